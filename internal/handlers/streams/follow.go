package streams

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/sse"
)

// follower is the response to one who follows the stream of an attempt: it writes itself for as long as the client listens.
type follower struct {
	ctx     context.Context
	streams *Handlers
	id      uuid.UUID
	attempt int   // to begin with, execution.NoAttempt before the first
	after   int64 // the last place that the client has seen of it
	current bool  // further attempts are followed, too
}

// follow finds out where a follower begins: after what it has seen, if it was here before.
func (h *Handlers) follow(ctx context.Context, id uuid.UUID, attempt int, seen *stream.Place, p oapi.ReadStreamParams) (oapi.ReadStreamResponseObject, error) {
	head, err := h.Streams.Head(ctx, id, attempt)
	if err != nil {
		return nil, err
	}
	f := follower{ctx: ctx, streams: h, id: id, attempt: head.AttemptIndex, current: attempt == stream.Current}
	if seen == nil && p.After != nil {
		place, err := afterOf(*p.After, attempt)
		if err != nil {
			return nil, err
		}
		if seen = &place; place.Attempt == stream.Current {
			place.Attempt = head.AttemptIndex
		}
	}
	if seen != nil {
		if f.over(&head, *seen) {
			return oapi.ReadStream204Response{}, nil
		}
		f.from(&head, *seen)
		return f, nil
	}
	from, err := bound(p.From, "from", stream.Start)
	switch {
	case err != nil:
		return nil, err
	case from == stream.End:
		f.after = sse.FromNow
	case from == stream.Start:
		f.after = int64(head.Trimmed) // with the first that is kept
	default:
		f.after = int64(from - 1)
	}
	return f, nil
}

// over says whether somebody who has seen everything up to a place has nothing more to expect.
func (f *follower) over(head *stream.Head, seen stream.Place) bool {
	if f.current {
		last := max(head.AttemptIndex, 0) // before the first attempt it is its beginning
		return head.Ended && (last < seen.Attempt || last == seen.Attempt && head.Ending() <= seen.ID)
	}
	return head.Closed() && head.Closing() <= seen.ID
}

// from goes on after a place, if there is such an attempt.
func (f *follower) from(head *stream.Head, seen stream.Place) {
	if seen.Attempt <= head.AttemptIndex {
		f.attempt, f.after = seen.Attempt, int64(seen.ID)
	}
}

// VisitReadStreamResponse implements oapi.ReadStreamResponseObject.
func (f follower) VisitReadStreamResponse(w http.ResponseWriter) error {
	leave, err := f.streams.place()
	if err != nil {
		return err
	}
	defer leave()
	err = f.serve(w)
	if errors.Is(err, sse.ErrClosed) {
		return fault.New(fault.CodeShuttingDown, "The server is shutting down. Repeat the request with the same cursor.")
	}
	return err
}

// serve sends the frames of an attempt, and then, if further attempts are followed, waits for the next one, until the execution
// has ended.
func (f follower) serve(w http.ResponseWriter) error {
	for first := true; ; first = false {
		if f.attempt != execution.NoAttempt {
			ended, err := f.streams.tails.Part(f.ctx, w, log{id: f.id, attempt: f.attempt}, f.after, nil, first)
			if err != nil || !ended || !f.current {
				return err
			}
			first = false
		}
		ended, err := f.streams.tails.Part(f.ctx, w, log{id: f.id, attempt: f.attempt, next: true}, sse.FromNow, nil, first)
		if err != nil || !ended {
			return err
		}
		head, err := f.streams.Streams.HeadOf(f.ctx, f.id, stream.Current)
		if fault.CodeOf(err) == fault.CodeNotFound { // deleted meanwhile
			return nil
		}
		if err != nil || head.AttemptIndex <= f.attempt {
			return err
		}
		f.attempt, f.after = f.attempt+1, 0
	}
}

// log is what can be followed: the frames of an attempt, or that which comes after it.
type log struct {
	id      uuid.UUID
	attempt int
	next    bool
}

// open returns a log as the tails read it.
func (h *Handlers) open(l log, options sse.Options) sse.Log {
	changed, stop := h.Streams.Watch(l.id)
	options.Spell = func(id int64) string { return spell(l.attempt, stream.ID(id)) }
	out := sse.Log{Wake: changed, Stop: stop, Options: options}
	if l.next {
		out.Source = &nextAttempt{h.Streams, l.id, l.attempt}
	} else {
		out.Source = &frames{h.Streams, l.id, l.attempt}
	}
	return out
}

// spell writes a place so that Last-Event-ID reads it again. Before the first attempt it is its beginning.
func spell(attempt int, id stream.ID) string {
	return stream.Place{Attempt: max(attempt, 0), ID: id}.String()
}
