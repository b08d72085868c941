package flows

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// CancelFlow handles POST /v1/flows/{flow_id}/cancel. With Prefer: wait it waits for the members to end.
func (h *Handlers) CancelFlow(ctx context.Context, req oapi.CancelFlowRequestObject) (oapi.CancelFlowResponseObject, error) {
	b := ask.Or(req.Body, oapi.CancelFlow{})
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	limit, applied := ask.Wait(req.Params.Prefer)
	if call.From(ctx).Key != nil { // the answer is kept as it is with the change
		limit, applied = 0, nil
	}
	how := flow.CancelRequest{Policy: flow.CancelPolicy(ask.Or(b.Policy, oapi.CancelPolicy(flow.CancelAll))), Reason: ask.Or(b.Reason, ""), GraceMS: ask.Or(b.GraceMs, 0)}
	response := func(o flow.CancelOutcome) oapi.CancelFlowResponseObject {
		ok := flowOK(o.Flow)
		ok.Headers.PreferenceApplied = applied
		ok.Body.Members = &oapi.FlowMembers{Total: int64(o.Members.Total), Outstanding: int64(o.Members.Outstanding), Failed: shape.IDs(o.Members.Failed)}
		return oapi.CancelFlow200JSONResponse{FlowOKJSONResponse: ok}
	}
	var done flow.CancelOutcome
	out, err := answer.Write(ctx, func(ctx context.Context) (flow.CancelOutcome, error) {
		var err error
		done, err = h.Flows.Cancel(ctx, req.FlowID, expected, how)
		return done, err
	}, response, oapi.CancelFlowResponseObject.VisitCancelFlowResponse)
	if err != nil || limit <= 0 || done.Members.Outstanding == 0 {
		return out, err
	}
	progress, err := h.awaitCancellation(ctx, req.FlowID, limit)
	if err != nil {
		return nil, err
	}
	done.Members.Outstanding, done.Members.Failed = progress.Outstanding, progress.Failed
	if done.Flow, err = h.Flows.Flow(ctx, req.FlowID); err != nil {
		return nil, err
	}
	return response(done), nil
}

// awaitCancellation returns how far a cancellation has come as soon as nothing is outstanding, or when the time is over.
func (h *Handlers) awaitCancellation(ctx context.Context, id uuid.UUID, limit time.Duration) (flow.CancelProgress, error) {
	return answer.Await(ctx, h.Watch, h.Done, limit, func() (flow.CancelProgress, bool, error) {
		p, err := h.Flows.Cancellation(ctx, id)
		return p, p.Outstanding == 0, err
	})
}

// GetFlowCancellation handles GET /v1/flows/{flow_id}/cancellation.
func (h *Handlers) GetFlowCancellation(ctx context.Context, req oapi.GetFlowCancellationRequestObject) (oapi.GetFlowCancellationResponseObject, error) {
	limit, applied := ask.Wait(req.Params.Prefer)
	p, err := h.awaitCancellation(ctx, req.FlowID, limit)
	if err != nil {
		return nil, err
	}
	return oapi.GetFlowCancellation200JSONResponse{Body: progress(p), Headers: oapi.GetFlowCancellation200ResponseHeaders{PreferenceApplied: applied}}, nil
}

// AckFlowCancellation handles POST /v1/flows/{flow_id}/cancellation/{execution_id}/ack.
func (h *Handlers) AckFlowCancellation(ctx context.Context, req oapi.AckFlowCancellationRequestObject) (oapi.AckFlowCancellationResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (flow.CancelProgress, error) {
		return h.Flows.Acknowledge(ctx, req.FlowID, req.ExecutionID)
	}, func(p flow.CancelProgress) oapi.AckFlowCancellationResponseObject {
		return oapi.AckFlowCancellation200JSONResponse{Body: progress(p)}
	}, oapi.AckFlowCancellationResponseObject.VisitAckFlowCancellationResponse)
}

func progress(p flow.CancelProgress) oapi.FlowCancellationProgress {
	return oapi.FlowCancellationProgress{Policy: oapi.CancelPolicy(p.Policy), Reason: wire.TextOrNull(p.Reason), Actor: p.Actor, RequestedAt: wire.Time(p.RequestedAt),
		Total: p.Total, Outstanding: int64(p.Outstanding), Members: shape.IDs(p.Members), Failed: shape.IDs(p.Failed)}
}
