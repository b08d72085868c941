package sse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// FromNow is the cursor of a subscriber that wants what happens from now on.
const FromNow int64 = -1

// maxWrite is the most that is written to a connection under one deadline, so that a slow line is not taken for a dead one.
const maxWrite = 64 << 10

// Stream sends the events with ids greater than after that pass the filter to w, in the order of the log and each once,
// until ctx ends, the connection fails, the subscriber lags or the tail is closed. after may be [FromNow].
//
// Besides the events of the log it sends comments to keep the connection alive, which carry the cursor when events were
// hidden by the filter, and these events of its own, each with the cursor as its id, so that a client that reconnects
// misses nothing:
//
//   - reset {"oldest":n}: the log cannot be read after the client's cursor; it goes on with event n.
//   - lagged {"after":n}: the client reads too slowly; the stream ends, and can be taken up again after n.
//   - bye {"after":n}: the server is shutting down; the stream ends.
//
// Before the first byte it returns ErrTooManyStreams, ErrClosed, or the source's error, and w is untouched. After that an
// error says why the stream broke off, a failed write or a failed look at the log, and nothing may be written to w any
// more. A stream that ends because ctx does, because it lagged or because the tail was closed returns nil.
func (t *Tail) Stream(ctx context.Context, w http.ResponseWriter, after int64, filter Filter) error {
	_, err := t.Part(ctx, w, after, filter, true)
	return err
}

// Part is [Tail.Stream] of a log that may end, as a part of a longer response, which has begun unless this is its first part.
// ended says that the log has ended, so that another part may follow.
func (t *Tail) Part(ctx context.Context, w http.ResponseWriter, after int64, filter Filter, first bool) (ended bool, err error) {
	if err := t.enter(); err != nil {
		return false, err
	}
	defer t.leave()
	s := stream{tail: t, w: w, control: http.NewResponseController(w), filter: filter, cursor: after, told: after}
	if after < 0 {
		// Before the client hears anything, so that it sees whatever it causes from then on.
		newest, err := t.source.Newest(ctx)
		if err != nil {
			return false, err
		}
		s.cursor = newest
	}
	s.ping = time.NewTicker(t.options.Ping)
	defer s.ping.Stop()
	s.turn = time.NewTimer(turnWait)
	defer s.turn.Stop()
	err = s.serve(ctx, first)
	switch {
	case errors.Is(err, errFinal):
		return true, nil
	case errors.Is(err, errEnded) || ctx.Err() != nil:
		return false, nil
	}
	return false, err
}

var (
	// errEnded says that a stream has ended as it should.
	errEnded = errors.New("the stream has ended")
	// errFinal says that its log has.
	errFinal = errors.New("the log has ended")
)

// stream is one subscriber.
type stream struct {
	tail    *Tail
	w       http.ResponseWriter
	control *http.ResponseController
	filter  Filter
	ping    *time.Ticker
	turn    *time.Timer // bounds how long a place among the writers is waited for
	cursor  int64       // the last id that was sent or hidden
	told    int64       // the last id that the client knows of
	scratch []byte      // for the frames of the stream's own
}

func (s *stream) serve(ctx context.Context, first bool) error {
	if first {
		if err := s.greet(); err != nil {
			return err
		}
	}
	for {
		at, err := s.catchUp(ctx)
		if err != nil {
			return err
		}
		if err := s.follow(ctx, at); err != nil {
			return err
		}
	}
}

// catchUp reads the log from the cursor on, until the ring goes on from there. It returns the chunk after which it does.
func (s *stream) catchUp(ctx context.Context) (*chunk, error) {
	for {
		// The position in the ring comes before the look at the log: what the look does not show comes after it. It is let
		// go of after each page, so that a long way to the ring does not keep the ring in memory.
		at, err := s.position(ctx)
		if err != nil {
			return nil, err
		}
		page, err := read(ctx, s.tail.source, s.cursor)
		if err != nil {
			return nil, err
		}
		if page.ResetTo > 0 {
			if err := s.reset(page.ResetTo); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.write(newChunk(page)); err != nil {
			return nil, err
		}
		if page.Final {
			return nil, s.finish(page.Farewell)
		}
		if !page.More || s.cursor >= at.last {
			return at, nil
		}
		if s.told != s.cursor {
			if err := s.tell(); err != nil {
				return nil, err
			}
		}
	}
}

// follow writes what the ring holds after the chunk at, as it comes. It returns nil when the ring has broken off.
func (s *stream) follow(ctx context.Context, at *chunk) error {
	for {
		if err := s.wait(ctx, at.ready, at); err != nil {
			return err
		}
		at = at.next
		if at.broken {
			return nil
		}
		if s.lags(at) {
			return s.end("lagged")
		}
		if err := s.inTurn(at); err != nil {
			return err
		}
		if at.final {
			return s.finish(at.bye)
		}
	}
}

// inTurn writes a chunk when there is a place among those who write. A window wakes every subscriber at once: all of them at the
// processors would keep whoever changes something waiting for the whole burst. A client that does not read holds its place
// until its deadline, so nobody waits for one longer than turnWait.
func (s *stream) inTurn(at *chunk) error {
	select {
	case s.tail.places <- struct{}{}:
	default:
		s.turn.Reset(turnWait)
		select {
		case s.tail.places <- struct{}{}:
			s.turn.Stop()
		case <-s.turn.C:
			return s.write(at)
		}
	}
	defer func() { <-s.tail.places }()
	return s.write(at)
}

// lags reports whether the ring has gone too far beyond the chunk at.
func (s *stream) lags(at *chunk) bool {
	head := s.tail.head.Load()
	return head != nil && head.total-at.total > s.tail.options.MaxLag
}

// position waits until the tail has a position in the log, and returns it.
func (s *stream) position(ctx context.Context) (*chunk, error) {
	select {
	case <-s.tail.done:
		return nil, s.end("bye")
	case <-ctx.Done():
		return nil, errEnded
	default:
	}
	for {
		at, ready := s.tail.position()
		if at != nil {
			return at, nil
		}
		if err := s.wait(ctx, ready, nil); err != nil {
			return nil, err
		}
	}
}

// wait returns when ready is closed, or with errEnded when the stream is over. Meanwhile it keeps the connection alive. at
// is where the stream stands in the ring, if it does.
func (s *stream) wait(ctx context.Context, ready <-chan struct{}, at *chunk) error {
	for {
		select {
		case <-ready:
			return nil
		case <-s.ping.C:
			s.pass(at)
			if err := s.tell(); err != nil {
				return err
			}
		case <-ctx.Done():
			return errEnded
		case <-s.tail.done:
			s.pass(at)
			return s.end("bye")
		}
	}
}

// pass moves the cursor over what the source does not show, when the stream stands at the end of the ring.
func (s *stream) pass(at *chunk) {
	if at == nil {
		return
	}
	through := s.tail.through.Load() // before the look at ready: what it covers has been published by then
	select {
	case <-at.ready:
	default:
		s.cursor = max(s.cursor, through)
	}
}

// greet begins the response. The client learns where a stream from now on begins, so that it misses nothing when it
// reconnects before the first event.
func (s *stream) greet() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	b := append(s.scratch[:0], ":"...)
	if generation := s.tail.options.Generation(); generation != "" {
		b = append(b, " generation "...)
		b = append(b, generation...)
	}
	b = append(b, "\nretry: 2000\n"...)
	return s.send(s.withCursor(b))
}

// tell sends a comment, with the cursor when the client does not know it. A frame of a comment and an id dispatches no
// event in the browser, but it moves the Last-Event-ID.
func (s *stream) tell() error {
	return s.send(s.withCursor(append(s.scratch[:0], ": ping\n"...)))
}

// withCursor appends the id line, if the client does not know the cursor yet, and ends the frame.
func (s *stream) withCursor(b []byte) []byte {
	if s.told != s.cursor {
		b = append(b, "id: "...)
		b = append(b, s.spell(s.cursor)...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}

// reset tells the client that the log goes on with oldest, and goes there.
func (s *stream) reset(oldest int64) error {
	s.cursor = oldest - 1
	return s.send(s.event("reset", "oldest", oldest))
}

// end sends the last event of the stream. It returns errEnded.
func (s *stream) end(event string) error {
	if err := s.send(s.event(event, "after", s.cursor)); err != nil {
		return err
	}
	return errEnded
}

// event renders an event of the stream's own, with the cursor as its id.
func (s *stream) event(name, member string, value int64) []byte {
	data := make([]byte, 0, 32)
	data = append(data, `{"`...)
	data = append(data, member...)
	data = append(data, `":`...)
	if s.tail.options.Spell != nil {
		data = strconv.AppendQuote(data, s.spell(value))
	} else {
		data = strconv.AppendInt(data, value, 10)
	}
	data = append(data, '}')
	return AppendFrameAs(s.scratch[:0], s.spell(s.cursor), name, data)
}

// spell returns an id as clients see it.
func (s *stream) spell(id int64) string {
	if spell := s.tail.options.Spell; spell != nil {
		return spell(id)
	}
	return strconv.FormatInt(id, 10)
}

// finish sends the last frame of a log that has ended. It returns errFinal.
func (s *stream) finish(farewell []byte) error {
	if farewell != nil {
		if err := s.put(farewell); err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
	return errFinal
}

// write sends what the client has not seen of c, and flushes once.
func (s *stream) write(c *chunk) error {
	wrote := false
	for i := c.after(s.cursor); i < len(c.entries); {
		from, to := c.run(i, s.filter)
		if from == to {
			break
		}
		if err := s.put(c.framesOf(from, to)); err != nil {
			return err
		}
		wrote, s.told = true, c.entries[to-1].id
		i = to + 1
	}
	s.cursor = max(s.cursor, c.last)
	if !wrote {
		return nil
	}
	return s.flush()
}

// send writes a frame of the stream's own, after which the client knows the cursor, and flushes.
func (s *stream) send(frame []byte) error {
	s.scratch = frame
	if err := s.put(frame); err != nil {
		return err
	}
	s.told = s.cursor
	return s.flush()
}

func (s *stream) put(b []byte) error {
	for len(b) > 0 {
		s.deadline()
		n, err := s.w.Write(b[:min(len(b), maxWrite)])
		if err != nil {
			return fmt.Errorf("write to the subscriber: %w", err)
		}
		b = b[n:]
	}
	return nil
}

func (s *stream) flush() error {
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write to the subscriber: %w", err)
	}
	// HTTP/2 resets a stream whose deadline passes even when nothing is being written.
	_ = s.control.SetWriteDeadline(time.Time{})
	return nil
}

// deadline limits the next write. A writer that knows no deadlines writes without one.
func (s *stream) deadline() {
	now := time.Now() //nolint:forbidigo // a deadline of a socket is not a time of the domain
	_ = s.control.SetWriteDeadline(now.Add(s.tail.options.WriteTimeout))
}
