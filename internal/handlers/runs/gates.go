package runs

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// GetGate handles GET /v1/runs/{run_id}/steps/{step_id}/gate.
func (h *Handlers) GetGate(ctx context.Context, req oapi.GetGateRequestObject) (oapi.GetGateResponseObject, error) {
	g, err := h.Runs.Gate(ctx, req.RunID, req.StepID)
	if err != nil {
		return nil, err
	}
	return oapi.GetGate200JSONResponse(votedGate(&g)), nil
}

// vote notes what somebody says to a gate, and answers with the gate and its step.
func vote[R any](ctx context.Context, do func(ctx context.Context) (run.GateAt, error), response func(oapi.GateDecidedJSONResponse) R, visit func(R, http.ResponseWriter) error) (R, error) {
	return answer.Write(ctx, do, func(g run.GateAt) R {
		return response(oapi.GateDecidedJSONResponse{Body: oapi.DecidedGate{Gate: votedGate(&g), Step: step(&g.Step), Replayed: g.Replayed}})
	}, visit)
}

// ApproveGate handles POST /v1/runs/{run_id}/steps/{step_id}/gate/approve.
func (h *Handlers) ApproveGate(ctx context.Context, req oapi.ApproveGateRequestObject) (oapi.ApproveGateResponseObject, error) {
	b := ask.Or(req.Body, oapi.ApproveGate{})
	v := run.Vote{Voter: ask.Or(b.By, ""), Decision: run.Approve, Feedback: ask.Or(b.Feedback, ""), Selections: b.Selections}
	return vote(ctx, func(ctx context.Context) (run.GateAt, error) {
		return h.Runs.Vote(ctx, req.RunID, req.StepID, v)
	}, func(ok oapi.GateDecidedJSONResponse) oapi.ApproveGateResponseObject {
		return oapi.ApproveGate200JSONResponse{GateDecidedJSONResponse: ok}
	}, oapi.ApproveGateResponseObject.VisitApproveGateResponse)
}

// RejectGate handles POST /v1/runs/{run_id}/steps/{step_id}/gate/reject.
func (h *Handlers) RejectGate(ctx context.Context, req oapi.RejectGateRequestObject) (oapi.RejectGateResponseObject, error) {
	b := ask.Or(req.Body, oapi.RejectGate{})
	v := run.Vote{Voter: ask.Or(b.By, ""), Decision: run.Reject, Feedback: ask.Or(b.Feedback, "")}
	return vote(ctx, func(ctx context.Context) (run.GateAt, error) {
		return h.Runs.Vote(ctx, req.RunID, req.StepID, v)
	}, func(ok oapi.GateDecidedJSONResponse) oapi.RejectGateResponseObject {
		return oapi.RejectGate200JSONResponse{GateDecidedJSONResponse: ok}
	}, oapi.RejectGateResponseObject.VisitRejectGateResponse)
}

// NoteGate handles POST /v1/runs/{run_id}/steps/{step_id}/gate/feedback.
func (h *Handlers) NoteGate(ctx context.Context, req oapi.NoteGateRequestObject) (oapi.NoteGateResponseObject, error) {
	v := run.Vote{Voter: ask.Or(req.Body.By, ""), Decision: run.Note, Feedback: req.Body.Feedback}
	return vote(ctx, func(ctx context.Context) (run.GateAt, error) {
		return h.Runs.Vote(ctx, req.RunID, req.StepID, v)
	}, func(ok oapi.GateDecidedJSONResponse) oapi.NoteGateResponseObject {
		return oapi.NoteGate200JSONResponse{GateDecidedJSONResponse: ok}
	}, oapi.NoteGateResponseObject.VisitNoteGateResponse)
}

// GetGateToken handles GET /v1/runs/{run_id}/steps/{step_id}/gate/token.
func (h *Handlers) GetGateToken(ctx context.Context, req oapi.GetGateTokenRequestObject) (oapi.GetGateTokenResponseObject, error) {
	t, err := h.Runs.GateToken(ctx, req.RunID, req.StepID)
	if err != nil {
		return nil, err
	}
	return oapi.GetGateToken200JSONResponse(oapi.GateToken{StepID: req.StepID, ApproveURL: h.PublicURL(ctx) + waitpoint.ApprovePath + t.Link(req.StepID)}), nil
}

// ListGates handles GET /v1/gates.
func (h *Handlers) ListGates(ctx context.Context, req oapi.ListGatesRequestObject) (oapi.ListGatesResponseObject, error) {
	p := req.Params
	filter := run.GateFilter{State: run.GateOutcome(ask.Or(p.State, "")), Type: ask.Or(p.GateType, ""), RunID: ask.Or(p.RunID, uuid.Nil), WorkflowName: ask.Or(p.WorkflowName, "")}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[run.GateAt], error) {
		return h.Runs.Gates(ctx, filter, after, limit)
	}, namedGate)
	if err != nil {
		return nil, err
	}
	return oapi.ListGates200JSONResponse{Body: oapi.GateList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListGates200ResponseHeaders{Link: list.Link}}, nil
}

// defaultStatsDays is how far back gates are counted unless it is said otherwise.
const defaultStatsDays = 30

// GetGateStats handles GET /v1/gates/stats.
func (h *Handlers) GetGateStats(ctx context.Context, req oapi.GetGateStatsRequestObject) (oapi.GetGateStatsResponseObject, error) {
	p := req.Params
	filter := run.StatsFilter{Since: h.Now().AddDate(0, 0, -ask.Or(p.Days, defaultStatsDays)), Type: ask.Or(p.GateType, ""), WorkflowName: ask.Or(p.WorkflowName, "")}
	stats, err := h.Runs.GateStats(ctx, filter)
	if err != nil {
		return nil, err
	}
	return oapi.GetGateStats200JSONResponse{Items: answer.Each(stats, gateStats)}, nil
}
