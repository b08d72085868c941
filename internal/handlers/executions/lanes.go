package executions

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ListLanes handles GET /v1/lanes.
func (h *Handlers) ListLanes(ctx context.Context, req oapi.ListLanesRequestObject) (oapi.ListLanesResponseObject, error) {
	after, err := page.ParseName(ask.Or(req.Params.Cursor, ""))
	if err != nil {
		return nil, err
	}
	found, err := h.Executions.Lanes(ctx, after, ask.Limit(req.Params.Limit))
	if err != nil {
		return nil, err
	}
	items := make([]oapi.Lane, len(found.Items))
	for i, l := range found.Items {
		items[i] = lane(l.Lane)
		items[i].Depth, items[i].OldestAt = &l.Depth, wire.TimeOrNull(l.OldestAt)
		items[i].Throughput = &oapi.Throughput{Completed: l.Completed, WindowMs: l.Window.Milliseconds()}
	}
	next, link := ask.NextName(ctx, found.Next)
	return oapi.ListLanes200JSONResponse{Body: oapi.LaneList{Items: items, NextCursor: next}, Headers: oapi.ListLanes200ResponseHeaders{Link: link}}, nil
}

// SetLaneQuotas handles PUT /v1/lanes/{lane}.
func (h *Handlers) SetLaneQuotas(ctx context.Context, req oapi.SetLaneQuotasRequestObject) (oapi.SetLaneQuotasResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	l, err := h.Executions.SetLaneQuotas(ctx, req.Lane, expected, req.Body.QuotaPolicyIds)
	if err != nil {
		return nil, err
	}
	return oapi.SetLaneQuotas200JSONResponse{LaneOKJSONResponse: laneOK(l)}, nil
}

// PauseLane handles POST /v1/lanes/{lane}/pause.
func (h *Handlers) PauseLane(ctx context.Context, req oapi.PauseLaneRequestObject) (oapi.PauseLaneResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	in := ask.Or(req.Body, oapi.PauseLane{})
	return answer.Write(ctx, func(ctx context.Context) (execution.Lane, error) {
		return h.Executions.TurnLane(ctx, req.Lane, expected, execution.LanePaused, ask.Or(in.Reason, ""))
	}, func(l execution.Lane) oapi.PauseLaneResponseObject {
		return oapi.PauseLane200JSONResponse{LaneOKJSONResponse: laneOK(l)}
	}, oapi.PauseLaneResponseObject.VisitPauseLaneResponse)
}

// ResumeLane handles POST /v1/lanes/{lane}/resume.
func (h *Handlers) ResumeLane(ctx context.Context, req oapi.ResumeLaneRequestObject) (oapi.ResumeLaneResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	in := ask.Or(req.Body, oapi.ResumeLane{})
	return answer.Write(ctx, func(ctx context.Context) (execution.Lane, error) {
		return h.Executions.TurnLane(ctx, req.Lane, expected, execution.LaneActive, ask.Or(in.Reason, ""))
	}, func(l execution.Lane) oapi.ResumeLaneResponseObject {
		return oapi.ResumeLane200JSONResponse{LaneOKJSONResponse: laneOK(l)}
	}, oapi.ResumeLaneResponseObject.VisitResumeLaneResponse)
}

func laneOK(l execution.Lane) oapi.LaneOKJSONResponse {
	return oapi.LaneOKJSONResponse{Body: lane(l), Headers: oapi.LaneOKResponseHeaders{ETag: ask.ETag(l.Revision)}}
}

func lane(l execution.Lane) oapi.Lane {
	quotas := make(oapi.QuotaPolicyIDs, len(l.Quotas))
	for i, q := range l.Quotas {
		quotas[i] = q.ID
	}
	return oapi.Lane{Lane: l.Name, Namespace: l.Namespace, State: oapi.LaneState(l.State), Reason: wire.TextOrNull(l.Reason), Actor: wire.TextOrNull(l.Actor),
		Since: wire.TimeOrNull(l.ChangedAt), Revision: l.Revision, QuotaPolicyIds: quotas}
}
