// Package events holds the operations that read the event log: lists, long polls and streams.
package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/sse"
)

// Flows knows which flows exist.
type Flows interface {
	// Exists returns CodeNotFound for a flow that is not in the caller's namespace.
	Exists(ctx context.Context, id uuid.UUID) error
}

// Handlers are the operations on the event log.
type Handlers struct {
	Log          Log
	Flows        Flows
	Watch        func() <-chan struct{} // a channel that is closed when the log has grown since the call
	Done         <-chan struct{}        // closed when the server stops: nobody waits any longer
	Feed         *sse.Tail
	Completions  *sse.Tail
	Leases       *sse.Tail
	Signals      *sse.Tail
	Operator     *sse.Tail
	InstanceTags *sse.Tail
}

// ListEvents handles GET /v1/events. With Prefer: wait it waits for events that the filter shows.
func (h *Handlers) ListEvents(ctx context.Context, req oapi.ListEventsRequestObject) (oapi.ListEventsResponseObject, error) {
	p := req.Params
	filter := event.Filter{
		Namespace: call.From(ctx).Namespace, Topics: ask.Names[event.Topic](p.Topic), Types: ask.Names[event.Type](p.Type), FlowID: ask.Or(p.FlowID, uuid.Nil),
		RunID: ask.Or(p.RunID, uuid.Nil), ExecutionID: ask.Or(p.ExecutionID, uuid.Nil), InstanceTag: ask.Or(p.InstanceTag, ""),
	}
	wait, applied := ask.Wait(p.Prefer)
	after, err := h.after(ctx, p.After, wait > 0)
	if err != nil {
		return nil, err
	}
	found, err := h.list(ctx, filter, after, ask.Limit(p.Limit), wait)
	if err != nil {
		return nil, err
	}
	body := oapi.EventList{Items: make([]oapi.Event, len(found.Events)), NextCursor: found.Through, More: found.More}
	for i, e := range found.Events {
		body.Items[i] = answer.Event(e)
	}
	if found.ResetTo > 0 {
		body.ResetTo = &found.ResetTo
	}
	var link *string
	if found.More {
		link = ask.After(ctx, found.Through)
	}
	return oapi.ListEvents200JSONResponse{Body: body, Headers: oapi.ListEvents200ResponseHeaders{PreferenceApplied: applied, Link: link}}, nil
}

// after returns where a list begins: after the given event, else at the oldest one, or from now on.
func (h *Handlers) after(ctx context.Context, given *int64, fromNow bool) (int64, error) {
	switch {
	case given != nil:
		return *given, nil
	case fromNow:
		return newest(ctx, h.Log)
	}
	log, err := h.Log.EventLog(ctx)
	return log.Oldest - 1, err
}

// list reads one page, after waiting for it to have something to show.
func (h *Handlers) list(ctx context.Context, filter event.Filter, after int64, limit int, wait time.Duration) (event.Page, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		grown := h.Watch() // before looking: whatever comes later closes it
		if err := h.Log.Sync(ctx); err != nil {
			return event.Page{}, err
		}
		found, err := h.Log.Events(ctx, filter, after, limit)
		if err != nil || wait <= 0 || len(found.Events) > 0 || found.More || found.ResetTo > 0 {
			return found, err
		}
		after = found.Through
		select {
		case <-grown:
		case <-deadline.C:
			return found, nil
		case <-h.Done:
			return found, nil
		case <-ctx.Done():
			return event.Page{}, ctx.Err()
		}
	}
}

// StreamEvents handles GET /v1/events/stream.
func (h *Handlers) StreamEvents(ctx context.Context, req oapi.StreamEventsRequestObject) (oapi.StreamEventsResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.Feed, after, shown(ctx, selection{topics: p.Topic, types: p.Type, flow: p.FlowID, run: p.RunID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// StreamFlowEvents handles GET /v1/flows/{flow_id}/events/stream.
func (h *Handlers) StreamFlowEvents(ctx context.Context, req oapi.StreamFlowEventsRequestObject) (oapi.StreamFlowEventsResponseObject, error) {
	if err := h.Flows.Exists(ctx, req.FlowID); err != nil {
		return nil, err
	}
	after, err := cursor(req.Params.LastEventID, req.Params.After)
	return stream{ctx, h.Feed, after, shown(ctx, selection{topics: req.Params.Topic, types: req.Params.Type, flow: &req.FlowID})}, err
}

// SubscribeCompletions handles GET /v1/subscriptions/completions.
func (h *Handlers) SubscribeCompletions(ctx context.Context, req oapi.SubscribeCompletionsRequestObject) (oapi.SubscribeCompletionsResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.Completions, after, shown(ctx, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// SubscribeLeases handles GET /v1/subscriptions/leases.
func (h *Handlers) SubscribeLeases(ctx context.Context, req oapi.SubscribeLeasesRequestObject) (oapi.SubscribeLeasesResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.Leases, after, shown(ctx, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// SubscribeSignals handles GET /v1/subscriptions/signals.
func (h *Handlers) SubscribeSignals(ctx context.Context, req oapi.SubscribeSignalsRequestObject) (oapi.SubscribeSignalsResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.Signals, after, shown(ctx, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// SubscribeOperator handles GET /v1/subscriptions/operator.
func (h *Handlers) SubscribeOperator(ctx context.Context, req oapi.SubscribeOperatorRequestObject) (oapi.SubscribeOperatorResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.Operator, after, shown(ctx, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// SubscribeInstanceTags handles GET /v1/subscriptions/instance-tags.
func (h *Handlers) SubscribeInstanceTags(ctx context.Context, req oapi.SubscribeInstanceTagsRequestObject) (oapi.SubscribeInstanceTagsResponseObject, error) {
	p := req.Params
	after, err := cursor(p.LastEventID, p.After)
	return stream{ctx, h.InstanceTags, after, shown(ctx, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})}, err
}

// stream is the response of every streaming operation: it writes itself for as long as the client listens.
type stream struct {
	ctx    context.Context
	tail   *sse.Tail
	after  int64
	filter sse.Filter
}

// VisitStreamEventsResponse implements the generated response interface.
func (s stream) VisitStreamEventsResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitStreamFlowEventsResponse implements the generated response interface.
func (s stream) VisitStreamFlowEventsResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitSubscribeCompletionsResponse implements the generated response interface.
func (s stream) VisitSubscribeCompletionsResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitSubscribeLeasesResponse implements the generated response interface.
func (s stream) VisitSubscribeLeasesResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitSubscribeSignalsResponse implements the generated response interface.
func (s stream) VisitSubscribeSignalsResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitSubscribeOperatorResponse implements the generated response interface.
func (s stream) VisitSubscribeOperatorResponse(w http.ResponseWriter) error { return s.serve(w) }

// VisitSubscribeInstanceTagsResponse implements the generated response interface.
func (s stream) VisitSubscribeInstanceTagsResponse(w http.ResponseWriter) error { return s.serve(w) }

func (s stream) serve(w http.ResponseWriter) error {
	err := s.tail.Stream(s.ctx, w, s.after, s.filter)
	switch {
	case errors.Is(err, sse.ErrTooManyStreams):
		return fault.New(fault.CodeTooManyStreams, "Too many streams are open. Close some, or read GET /v1/events with Prefer: wait instead.")
	case errors.Is(err, sse.ErrClosed):
		return fault.New(fault.CodeShuttingDown, "The server is shutting down. Repeat the request with the same cursor.")
	}
	return err
}

// cursor returns where a stream begins: strictly after the last event that the client has seen, else from now.
func cursor(lastEventID *string, after *int64) (int64, error) {
	if lastEventID != nil {
		return ask.LastEventID(*lastEventID)
	}
	return ask.Or(after, sse.FromNow), nil
}

// selection is what a client wants to see.
type selection struct {
	topics, types        []string
	flow, run, execution *uuid.UUID
	tag                  *string
}

// shown returns the filter for a selection within the caller's namespace.
func shown(ctx context.Context, s selection) sse.Filter {
	namespace := call.From(ctx).Namespace
	topics, types := set(s.topics), set(s.types)
	flow, run, execution, tag := written(s.flow), written(s.run), written(s.execution), ask.Or(s.tag, "")
	return func(f *sse.Fields) bool {
		return f.Namespace == namespace && (topics == nil || topics[f.Topic]) && (types == nil || types[f.Type]) && (flow == "" || f.FlowID == flow) &&
			(run == "" || f.RunID == run) && (execution == "" || f.ExecutionID == execution) && (tag == "" || f.InstanceTag == tag)
	}
}

func written(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return id.String()
}

func set(values []string) map[string]bool {
	var out map[string]bool
	for _, name := range ask.Names[string](values) {
		if out == nil {
			out = map[string]bool{}
		}
		out[name] = true
	}
	return out
}
