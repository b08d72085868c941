package flows

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// ListFlowEvents handles GET /v1/flows/{flow_id}/events.
func (h *Handlers) ListFlowEvents(ctx context.Context, req oapi.ListFlowEventsRequestObject) (oapi.ListFlowEventsResponseObject, error) {
	p := req.Params
	filter := flow.TrailFilter{All: ask.Or(p.Scope, "") == "all", Types: ask.Names[event.Type](p.Type)}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[event.Event], error) {
		return h.Flows.Trail(ctx, req.FlowID, filter, after, limit)
	}, answer.Event)
	if err != nil {
		return nil, err
	}
	return oapi.ListFlowEvents200JSONResponse{Body: oapi.FlowEventList{Items: list.Items, NextCursor: list.Next},
		Headers: oapi.ListFlowEvents200ResponseHeaders{Link: list.Link}}, nil
}

// AppendFlowEvent handles POST /v1/flows/{flow_id}/events.
func (h *Handlers) AppendFlowEvent(ctx context.Context, req oapi.AppendFlowEventRequestObject) (oapi.AppendFlowEventResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (event.Event, error) {
		return h.Flows.AppendEvent(ctx, req.FlowID, event.Type(req.Body.Type), req.Body.Data)
	}, func(e event.Event) oapi.AppendFlowEventResponseObject {
		return oapi.AppendFlowEvent201JSONResponse{Body: answer.Event(&e)}
	}, oapi.AppendFlowEventResponseObject.VisitAppendFlowEventResponse)
}

// DeliverExternalEvent handles POST /v1/external-events.
func (h *Handlers) DeliverExternalEvent(ctx context.Context, req oapi.DeliverExternalEventRequestObject) (oapi.DeliverExternalEventResponseObject, error) {
	b := req.Body
	e := wait.Signal{ID: ask.Or(b.EventID, ""), Topic: b.Topic, CorrelationID: b.CorrelationID, Payload: b.Payload, FlowID: ask.Or(b.FlowID, uuid.Nil)}
	return answer.Write(ctx, func(ctx context.Context) (wait.Receipt, error) {
		return h.Waits.Deliver(ctx, e)
	}, func(r wait.Receipt) oapi.DeliverExternalEventResponseObject {
		out := oapi.DeliverExternalEvent202JSONResponse{Body: oapi.ExternalEventReceipt{EventID: r.EventID, Buffered: r.Buffered, Matched: make([]oapi.MatchedWait, len(r.Matched))}}
		for i, m := range r.Matched {
			out.Body.Matched[i] = oapi.MatchedWait{FlowID: m.FlowID, WaitID: m.WaitID}
		}
		if r.Replayed {
			out.Headers.IdempotentReplay = new(true)
		}
		return out
	}, oapi.DeliverExternalEventResponseObject.VisitDeliverExternalEventResponse)
}
