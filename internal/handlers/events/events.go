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
	body := oapi.EventList{Items: answer.Each(found.Events, answer.Event), NextCursor: found.Through, More: found.More}
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
	return answer.Await(ctx, h.Watch, h.Done, wait, func() (found event.Page, done bool, err error) {
		if err := h.Log.Sync(ctx); err != nil {
			return found, false, err
		}
		found, err = h.Log.Events(ctx, filter, after, limit)
		after = found.Through
		return found, len(found.Events) > 0 || found.More || found.ResetTo > 0, err
	})
}

// StreamEvents handles GET /v1/events/stream.
func (h *Handlers) StreamEvents(ctx context.Context, req oapi.StreamEventsRequestObject) (oapi.StreamEventsResponseObject, error) {
	p := req.Params
	return follow(ctx, h.Feed, p.LastEventID, p.After, selection{topics: p.Topic, types: p.Type, flow: p.FlowID, run: p.RunID, execution: p.ExecutionID, tag: p.InstanceTag})
}

// StreamFlowEvents handles GET /v1/flows/{flow_id}/events/stream.
func (h *Handlers) StreamFlowEvents(ctx context.Context, req oapi.StreamFlowEventsRequestObject) (oapi.StreamFlowEventsResponseObject, error) {
	if err := h.Flows.Exists(ctx, req.FlowID); err != nil {
		return nil, err
	}
	return follow(ctx, h.Feed, req.Params.LastEventID, req.Params.After, selection{topics: req.Params.Topic, types: req.Params.Type, flow: &req.FlowID})
}

// SubscribeCompletions handles GET /v1/subscriptions/completions.
func (h *Handlers) SubscribeCompletions(ctx context.Context, req oapi.SubscribeCompletionsRequestObject) (oapi.SubscribeCompletionsResponseObject, error) {
	p := req.Params
	return follow(ctx, h.Completions, p.LastEventID, p.After, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})
}

// SubscribeLeases handles GET /v1/subscriptions/leases.
func (h *Handlers) SubscribeLeases(ctx context.Context, req oapi.SubscribeLeasesRequestObject) (oapi.SubscribeLeasesResponseObject, error) {
	p := req.Params
	return follow(ctx, h.Leases, p.LastEventID, p.After, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})
}

// SubscribeSignals handles GET /v1/subscriptions/signals.
func (h *Handlers) SubscribeSignals(ctx context.Context, req oapi.SubscribeSignalsRequestObject) (oapi.SubscribeSignalsResponseObject, error) {
	p := req.Params
	return follow(ctx, h.Signals, p.LastEventID, p.After, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})
}

// SubscribeOperator handles GET /v1/subscriptions/operator.
func (h *Handlers) SubscribeOperator(ctx context.Context, req oapi.SubscribeOperatorRequestObject) (oapi.SubscribeOperatorResponseObject, error) {
	p := req.Params
	return follow(ctx, h.Operator, p.LastEventID, p.After, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})
}

// SubscribeInstanceTags handles GET /v1/subscriptions/instance-tags.
func (h *Handlers) SubscribeInstanceTags(ctx context.Context, req oapi.SubscribeInstanceTagsRequestObject) (oapi.SubscribeInstanceTagsResponseObject, error) {
	p := req.Params
	return follow(ctx, h.InstanceTags, p.LastEventID, p.After, selection{flow: p.FlowID, execution: p.ExecutionID, tag: p.InstanceTag})
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

// follow returns the stream of what a client wants to see: strictly after the last event that it has seen, else from now.
func follow(ctx context.Context, tail *sse.Tail, lastEventID *string, after *int64, s selection) (stream, error) {
	out := stream{ctx, tail, ask.Or(after, sse.FromNow), shown(ctx, s)}
	if lastEventID == nil {
		return out, nil
	}
	var err error
	out.after, err = ask.LastEventID(*lastEventID)
	return out, err
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
