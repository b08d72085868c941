package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Subscribe is the hidden command that is the subscribers' process.
const Subscribe = "subscribe"

// heard is what that process answers.
type heard struct {
	Heard      map[digest]int `json:"heard"` // how many subscribers received this
	P50        float64        `json:"p50"`   // ms from an event's time to its receipt
	P99        float64        `json:"p99"`
	Max        float64        `json:"max"`
	Reconnects int64          `json:"reconnects"`
}

// patience is how long subscribers that have not received everything may wait for more.
const patience = 30 * time.Second

// RunSubscribers is the subscribers' process: args are the stream's URL, the number of subscribers, and the event to start after
// or "frames" for those of a stream of frames, which count from 1. It says on out that all are connected, reads the id of the last event from in, and answers when all have it.
func RunSubscribers(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("want a URL, a number of subscribers and a cursor")
	}
	n, errN := strconv.Atoi(args[1])
	count, from, errFrom := numberOfFrame, int64(0), error(nil)
	if args[2] != ofFrames {
		count = func(f frame) int64 { return number(f.id) }
		from, errFrom = strconv.ParseInt(args[2], 10, 64)
	}
	if err := errors.Join(errN, errFrom); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := newAudience(args[0], from, count)
	connected := make(chan struct{}, n)
	var ended sync.WaitGroup
	for range n {
		l := a.join()
		ended.Go(func() {
			if err := l.listen(ctx, sync.OnceFunc(func() { connected <- struct{}{} })); err != nil {
				cancel(err)
			}
		})
	}
	for range n {
		select {
		case <-connected:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}

	var last int64
	if err := json.NewDecoder(in).Decode(&last); err != nil {
		return err
	}
	for begin := time.Now(); ctx.Err() == nil && !a.have(last) && time.Since(begin) < patience; {
		time.Sleep(10 * time.Millisecond)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	cancel(nil)
	ended.Wait()
	return json.NewEncoder(out).Encode(a.heard())
}

// audience is the subscribers and what they share. A thousand of them and the server share a machine, so each does as little
// as it can: the time is taken once for all that one read brought, and an event's own time is read by whoever sees it first.
type audience struct {
	url        string
	http       *http.Client
	from       int64
	count      func(frame) int64 // which event of the stream it is
	listeners  []*listener
	at         []atomic.Int64 // times of the events after from, in unix ms
	delays     histogram
	reconnects atomic.Int64
}

func newAudience(url string, from int64, count func(frame) int64) *audience {
	return &audience{
		url:   url,
		http:  &http.Client{Transport: &http.Transport{DisableCompression: true}},
		from:  from,
		count: count,
		at:    make([]atomic.Int64, 1<<20),
	}
}

func (a *audience) join() *listener {
	l := &listener{audience: a, buf: make([]byte, 1<<14)}
	l.cursor.Store(a.from)
	if a.from > 0 {
		l.last = strconv.AppendInt(nil, a.from, 10)
	}
	a.listeners = append(a.listeners, l)
	return l
}

// have reports whether every listener has come to an event.
func (a *audience) have(last int64) bool {
	return !slices.ContainsFunc(a.listeners, func(l *listener) bool { return l.cursor.Load() < last })
}

func (a *audience) heard() heard {
	h := heard{Heard: make(map[digest]int), P50: a.delays.quantile(0.50), P99: a.delays.quantile(0.99), Max: a.delays.quantile(1), Reconnects: a.reconnects.Load()}
	for _, l := range a.listeners {
		h.Heard[l.digest]++
	}
	return h
}

// time returns the time of an event in unix ms.
func (a *audience) time(id int64, data []byte) (int64, error) {
	i := id - a.from
	if i < 0 || i >= int64(len(a.at)) {
		return 0, fmt.Errorf("event %d is not among the %d after %d", id, len(a.at), a.from)
	}
	if at := a.at[i].Load(); at != 0 {
		return at, nil
	}
	var event struct {
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal(data, &event); err != nil {
		return 0, fmt.Errorf("event %d: %w", id, err)
	}
	a.at[i].Store(event.At.UnixMilli())
	return event.At.UnixMilli(), nil
}

// listener is one subscriber.
type listener struct {
	audience *audience
	cursor   atomic.Int64 // the last event received
	last     []byte       // its id, as it was written
	digest   digest       // of all events received
	buf      []byte
	kept     int // bytes of buf: the beginning of an event
}

// listen receives events until the context ends, which is an error too. When the server finds it too slow and ends its stream, it comes back with its
// cursor, as a browser would.
func (l *listener) listen(ctx context.Context, connected func()) error {
	for {
		err := l.follow(ctx, connected)
		if !errors.Is(err, errLagged) && !errors.Is(err, io.EOF) {
			return err
		}
		l.audience.reconnects.Add(1)
	}
}

var errLagged = errors.New("the server ended the stream of a slow subscriber")

// follow reads one stream to its end, which is an error.
func (l *listener) follow(ctx context.Context, connected func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.audience.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if l.last != nil {
		req.Header.Set("Last-Event-ID", string(l.last))
	}
	res, err := l.audience.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<14))
		return fmt.Errorf("subscribe: %w", failure(res, body))
	}
	connected()
	l.kept = 0
	for {
		n, err := res.Body.Read(l.buf[l.kept:])
		if err := l.take(l.kept+n, time.Now()); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
}

// take notes the whole events in the first n bytes of buf, received at a time, and keeps the beginning of the next one.
func (l *listener) take(n int, now time.Time) error {
	rest, err := frames(l.buf[:n], func(f frame) error { return l.note(f, now) })
	if err != nil {
		return err
	}
	l.kept = copy(l.buf, rest)
	if l.kept == len(l.buf) {
		l.buf = append(l.buf, make([]byte, len(l.buf))...) // an event that is longer than the buffer
	}
	return nil
}

func (l *listener) note(f frame, now time.Time) error {
	switch string(f.kind) {
	case "": // a comment, or a cursor without an event
		return nil
	case "lagged":
		return errLagged
	case "reset", "bye":
		return fmt.Errorf("the stream ended with %q: %s", f.kind, f.data)
	}
	n := l.audience.count(f)
	at, err := l.audience.time(n, f.data)
	if err != nil {
		return err
	}
	l.audience.delays.add(now.Sub(time.UnixMilli(at)))
	l.digest = l.digest.with(n)
	l.last = append(l.last[:0], f.id...)
	l.cursor.Store(n)
	return nil
}
