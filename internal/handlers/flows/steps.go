package flows

import (
	"context"
	"net/url"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ListFlowSteps handles GET /v1/flows/{flow_id}/steps.
func (h *Handlers) ListFlowSteps(ctx context.Context, req oapi.ListFlowStepsRequestObject) (oapi.ListFlowStepsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[flow.Step], error) {
		return h.Flows.Steps(ctx, req.FlowID, flow.StepStatus(ask.Or(req.Params.Status, "")), after, limit)
	}, step)
	if err != nil {
		return nil, err
	}
	return oapi.ListFlowSteps200JSONResponse{Body: oapi.FlowStepList{Items: list.Items, NextCursor: list.Next},
		Headers: oapi.ListFlowSteps200ResponseHeaders{Link: list.Link}}, nil
}

// InsertFlowStep handles POST /v1/flows/{flow_id}/steps.
func (h *Handlers) InsertFlowStep(ctx context.Context, req oapi.InsertFlowStepRequestObject) (oapi.InsertFlowStepResponseObject, error) {
	b := req.Body
	in := flow.NewStep{RunID: b.RunID, Runtime: flow.Runtime(ask.Or(b.Runtime, "")), ChildSessionKey: ask.Or(b.ChildSessionKey, ""), Task: b.Task,
		Status: flow.StepStatus(ask.Or(b.Status, "")), Result: b.Result, ExecutionID: ask.Or(b.ExecutionID, uuid.Nil), WorkflowRunID: ask.Or(b.WorkflowRunID, uuid.Nil)}
	return answer.Write(ctx, func(ctx context.Context) (flow.Step, error) {
		return h.Flows.InsertStep(ctx, req.FlowID, in)
	}, func(s flow.Step) oapi.InsertFlowStepResponseObject {
		return oapi.InsertFlowStep201JSONResponse{FlowStepCreatedJSONResponse: stepCreated(s)}
	}, oapi.InsertFlowStepResponseObject.VisitInsertFlowStepResponse)
}

// GetFlowStep handles GET /v1/flows/{flow_id}/steps/{run_id}.
func (h *Handlers) GetFlowStep(ctx context.Context, req oapi.GetFlowStepRequestObject) (oapi.GetFlowStepResponseObject, error) {
	s, err := h.Flows.Step(ctx, req.FlowID, req.RunID)
	if err != nil {
		return nil, err
	}
	return oapi.GetFlowStep200JSONResponse{FlowStepOKJSONResponse: oapi.FlowStepOKJSONResponse{Body: step(&s)}}, nil
}

// ObserveFlowStep handles PUT /v1/flows/{flow_id}/steps/{run_id}.
func (h *Handlers) ObserveFlowStep(ctx context.Context, req oapi.ObserveFlowStepRequestObject) (oapi.ObserveFlowStepResponseObject, error) {
	b := req.Body
	o, err := h.Flows.ObserveStep(ctx, req.FlowID, req.RunID, flow.StepChange{Task: &b.Task, Status: new(flow.StepStatus(b.Status)), Result: b.Result,
		ChildSessionKey: patch.Field[string](b.ChildSessionKey), ExecutionID: patch.Field[uuid.UUID](b.ExecutionID), WorkflowRunID: patch.Field[uuid.UUID](b.WorkflowRunID), Force: ask.Or(b.Force, false)})
	if err != nil {
		return nil, err
	}
	if o.New {
		return oapi.ObserveFlowStep201JSONResponse{FlowStepCreatedJSONResponse: stepCreated(o.Step)}, nil
	}
	return oapi.ObserveFlowStep200JSONResponse{FlowStepOKJSONResponse: oapi.FlowStepOKJSONResponse{Body: step(&o.Step)}}, nil
}

// PatchFlowStep handles PATCH /v1/flows/{flow_id}/steps/{run_id}.
func (h *Handlers) PatchFlowStep(ctx context.Context, req oapi.PatchFlowStepRequestObject) (oapi.PatchFlowStepResponseObject, error) {
	b := ask.Or(req.Body, oapi.PatchFlowStep{})
	change := flow.StepChange{Task: b.Task, Result: b.Result, ChildSessionKey: patch.Field[string](b.ChildSessionKey), ExecutionID: patch.Field[uuid.UUID](b.ExecutionID),
		WorkflowRunID: patch.Field[uuid.UUID](b.WorkflowRunID), Force: ask.Or(b.Force, false)}
	if b.Status != nil {
		change.Status = new(flow.StepStatus(*b.Status))
	}
	s, err := h.Flows.PatchStep(ctx, req.FlowID, req.RunID, change)
	if err != nil {
		return nil, err
	}
	return oapi.PatchFlowStep200JSONResponse{FlowStepOKJSONResponse: oapi.FlowStepOKJSONResponse{Body: step(&s)}}, nil
}

func stepCreated(s flow.Step) oapi.FlowStepCreatedJSONResponse {
	return oapi.FlowStepCreatedJSONResponse{Body: step(&s), Headers: oapi.FlowStepCreatedResponseHeaders{
		Location: "/v1/flows/" + s.FlowID.String() + "/steps/" + url.PathEscape(s.RunID)}}
}

func step(s *flow.Step) oapi.FlowStep {
	return oapi.FlowStep{
		ID: s.ID, FlowID: s.FlowID, RunID: s.RunID, Runtime: oapi.StepRuntime(s.Runtime), ChildSessionKey: wire.TextOrNull(s.ChildSessionKey), Task: s.Task,
		Status: oapi.StepStatus(s.Status), Result: s.Result, ExecutionID: wire.IDOrNull(s.ExecutionID), WorkflowRunID: wire.IDOrNull(s.WorkflowRunID),
		CreatedAt: wire.Time(s.CreatedAt), UpdatedAt: wire.Time(s.UpdatedAt),
	}
}
