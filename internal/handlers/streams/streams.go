// Package streams holds the operations on the streams of attempts: appending frames, reading them, waiting for them and
// following them as they come.
package streams

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/worker"
	"github.com/flowapi/flowapi/internal/sse"
)

// Streams is the store of streams.
type Streams interface {
	Append(ctx context.Context, f execution.Fence, frames []stream.Frame) (stream.Receipt, error)
	Read(ctx context.Context, id uuid.UUID, attempt int, part stream.Range) (stream.Page, error)
	Tail(ctx context.Context, id uuid.UUID, attempt int, onward bool, part stream.Range, wait time.Duration) (stream.Page, error)
	Summary(ctx context.Context, id uuid.UUID, attempt int) (stream.Summary, error)
	Head(ctx context.Context, id uuid.UUID, attempt int) (stream.Head, error)

	// These are for callers who have looked whether the execution is one of their namespace.

	Follow(ctx context.Context, id uuid.UUID, attempt int, after stream.ID, limit int) (stream.Page, error)
	HeadOf(ctx context.Context, id uuid.UUID, attempt int) (stream.Head, error)
	Watch(id uuid.UUID) (changed func() <-chan struct{}, stop func())
}

// Handlers are the operations on streams. They are made by [New].
type Handlers struct {
	Streams Streams
	tails   *sse.Group[log]
	places  chan struct{} // of those who wait for frames
}

// New returns the operations on streams, of which most may wait for frames at a time. Streams that are followed are served with
// these options.
func New(streams Streams, most int, options sse.Options) *Handlers {
	h := &Handlers{Streams: streams, places: make(chan struct{}, most)}
	h.tails = sse.NewGroup(func(l log) sse.Log { return h.open(l, options) })
	return h
}

// Close ends all streams of events and lets no new one begin; Wait returns when they have ended.
func (h *Handlers) Close() { h.tails.Close() }

// Wait returns when nothing runs any more after Close.
func (h *Handlers) Wait() { h.tails.Wait() }

// Subscribers returns how many follow a stream.
func (h *Handlers) Subscribers() int { return h.tails.Subscribers() }

// Waiting returns how many requests wait for frames, followers among them.
func (h *Handlers) Waiting() int { return len(h.places) }

// place takes a place among those who wait. It returns CodeTooManyStreams when there is none.
func (h *Handlers) place() (leave func(), err error) {
	select {
	case h.places <- struct{}{}:
		return func() { <-h.places }, nil
	default:
		return nil, fault.New(fault.CodeTooManyStreams, "%d requests wait for frames at this server, which is all that may. Ask again without waiting, or later.", cap(h.places))
	}
}

// AppendFrames handles POST /v1/executions/{execution_id}/frames.
func (h *Handlers) AppendFrames(ctx context.Context, req oapi.AppendFramesRequestObject) (oapi.AppendFramesResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	frames := make([]stream.Frame, len(req.Body.Frames))
	for i := range req.Body.Frames {
		if frames[i], err = frameOf(&req.Body.Frames[i], i); err != nil {
			return nil, err
		}
	}
	return answer.Write(ctx, func(ctx context.Context) (stream.Receipt, error) {
		return h.Streams.Append(ctx, f, frames)
	}, func(r stream.Receipt) oapi.AppendFramesResponseObject {
		return oapi.AppendFrames200JSONResponse{Body: receipt(r)}
	}, oapi.AppendFramesResponseObject.VisitAppendFramesResponse)
}

// ReadStream handles GET /v1/executions/{execution_id}/attempts/{attempt}/stream.
func (h *Handlers) ReadStream(ctx context.Context, req oapi.ReadStreamRequestObject) (oapi.ReadStreamResponseObject, error) {
	attempt, p := attemptOf(req.Attempt), req.Params
	seen, err := lastSeen(p.LastEventID, attempt)
	if err != nil {
		return nil, err
	}
	if ask.EventStream(ctx) {
		return h.follow(ctx, req.ExecutionID, attempt, seen, p)
	}
	part := stream.Range{Limit: ask.Or(p.Limit, 100)}
	if part.From, err = bound(p.From, "from", stream.Start); err != nil {
		return nil, err
	}
	if part.To, err = bound(p.To, "to", stream.End); err != nil {
		return nil, err
	}
	switch {
	case p.Cursor != nil:
		place, err := placeOf(*p.Cursor, attempt, fault.InQuery, "cursor")
		if err != nil {
			return nil, err
		}
		attempt, part.From = place.Attempt, place.ID
	case p.After != nil:
		place, err := afterOf(*p.After, attempt)
		if err != nil {
			return nil, err
		}
		attempt, part.From = place.Attempt, max(part.From, place.ID.Next())
	}
	page, err := h.Streams.Read(ctx, req.ExecutionID, attempt, part)
	if err != nil {
		return nil, err
	}
	out := oapi.ReadStream200JSONResponse{Body: body(&page)}
	if page.More {
		next := stream.Place{Attempt: page.AttemptIndex, ID: page.Frames[len(page.Frames)-1].ID + 1}
		out.Body.NextCursor, out.Headers.Link = ask.NextAt(ctx, next.String())
	}
	return out, nil
}

// TailStream handles GET /v1/executions/{execution_id}/attempts/{attempt}/stream/tail.
func (h *Handlers) TailStream(ctx context.Context, req oapi.TailStreamRequestObject) (oapi.TailStreamResponseObject, error) {
	attempt, p := attemptOf(req.Attempt), req.Params
	after := stream.Place{Attempt: attempt}
	if p.After != nil {
		var err error
		if after, err = afterOf(*p.After, attempt); err != nil {
			return nil, err
		}
	}
	wait, applied := ask.Wait(p.Prefer)
	wait = max(wait, time.Duration(ask.Or(p.BlockMs, 0))*time.Millisecond)
	if wait > 0 {
		leave, err := h.place()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	part := stream.Range{From: after.ID.Next(), To: stream.End, Limit: ask.Or(p.Limit, 50), Lasting: ask.Or(p.Visibility, "all") != "all"}
	page, err := h.Streams.Tail(ctx, req.ExecutionID, after.Attempt, attempt == stream.Current, part, wait)
	if err != nil {
		return nil, err
	}
	out := body(&page)
	out.NextCursor = new(page.Through.String())
	if attempt == stream.Current {
		out.NextCursor = new(next(&page).String())
	}
	return oapi.TailStream200JSONResponse{Body: out, Headers: oapi.TailStream200ResponseHeaders{PreferenceApplied: applied}}, nil
}

// next returns where a tail of the current attempt goes on: who has come to the end of an attempt has heard of it.
func next(page *stream.Page) stream.Place {
	place := stream.Place{Attempt: max(page.AttemptIndex, 0), ID: page.Through}
	if page.Closed() && !page.More {
		place.ID = max(place.ID, page.Closing())
	}
	return place
}

// ReadSummary handles GET /v1/executions/{execution_id}/attempts/{attempt}/summary.
func (h *Handlers) ReadSummary(ctx context.Context, req oapi.ReadSummaryRequestObject) (oapi.ReadSummaryResponseObject, error) {
	s, err := h.Streams.Summary(ctx, req.ExecutionID, attemptOf(req.Attempt))
	if err != nil {
		return nil, err
	}
	return oapi.ReadSummary200JSONResponse(summary(s)), nil
}

// attemptOf returns the index that a path names; the contract has checked its form.
func attemptOf(param string) int {
	n, err := strconv.Atoi(param)
	if err != nil {
		return stream.Current
	}
	return n
}

// bound reads where a part of a stream begins or ends.
func bound(given *string, name string, otherwise stream.ID) (stream.ID, error) {
	if given == nil {
		return otherwise, nil
	}
	id, err := stream.ParseBound(*given)
	return id, fault.MovedTo(err, fault.InQuery, name)
}

// lastSeen reads the header that an EventSource sends when it connects again; nil without it.
func lastSeen(header *string, attempt int) (*stream.Place, error) {
	if header == nil {
		return nil, nil
	}
	place, err := placeOf(strings.TrimSpace(*header), attempt, fault.InHeader, "Last-Event-ID")
	return &place, err
}

// afterOf reads the place of a frame that has been seen, of the attempt that is asked for unless it names one.
func afterOf(given string, attempt int) (stream.Place, error) {
	if strings.Contains(given, "/") {
		return placeOf(given, attempt, fault.InQuery, "after")
	}
	id, err := stream.ParseID(given)
	return stream.Place{Attempt: attempt, ID: id}, fault.MovedTo(err, fault.InQuery, "after")
}

// placeOf reads a place in the stream of an attempt, or of any attempt where the current one is asked for.
func placeOf(given string, attempt int, in fault.In, name string) (stream.Place, error) {
	place, err := stream.ParsePlace(given)
	if err == nil && attempt != stream.Current && attempt != place.Attempt {
		err = fault.Invalid(fault.CodeInvalidCursor, "", "%s is a place in attempt %d, not in %d. Ask that attempt, or begin without it.", place, place.Attempt, attempt)
	}
	return place, fault.MovedTo(err, in, name)
}
