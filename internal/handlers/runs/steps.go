package runs

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
)

// InsertRunStep handles POST /v1/runs/{run_id}/steps.
func (h *Handlers) InsertRunStep(ctx context.Context, req oapi.InsertRunStepRequestObject) (oapi.InsertRunStepResponseObject, error) {
	does, err := child(req.Body.Child, "/child")
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (run.StepCreation, error) {
		return h.Runs.InsertStep(ctx, req.RunID, req.Body.Generation, newStep(req.Body), does)
	}, func(made run.StepCreation) oapi.InsertRunStepResponseObject {
		b := step(&made.Step)
		if made.Existing {
			return oapi.InsertRunStep200JSONResponse{RunStepOKJSONResponse: oapi.RunStepOKJSONResponse{Body: b, Headers: oapi.RunStepOKResponseHeaders{IdempotentReplay: new(true)}}}
		}
		return oapi.InsertRunStep201JSONResponse{RunStepCreatedJSONResponse: oapi.RunStepCreatedJSONResponse{Body: b,
			Headers: oapi.RunStepCreatedResponseHeaders{Location: "/v1/runs/" + b.RunID.String() + "/steps/" + b.ID.String()}}}
	}, oapi.InsertRunStepResponseObject.VisitInsertRunStepResponse)
}

// newStep returns the step that a request asks to insert.
func newStep(b *oapi.InsertRunStep) run.NewStep {
	return run.NewStep{ID: ask.Or(b.ID, uuid.Nil), Path: ask.Or(b.Path, ""), Name: b.StepName, Role: run.Role(b.Role), Position: b.Position, Iteration: int(ask.Or(b.Iteration, 0)),
		Running: b.RetryCount != nil, CanCommit: ask.Or(b.CanCommit, false), ParallelGroup: ask.Or(b.ParallelGroupID, ""), Gate: newGate(b.Gate)}
}

// newGate returns the gate of a new step, nil for none.
func newGate(b *oapi.NewGate) *run.Gate {
	if b == nil {
		return nil
	}
	g := &run.Gate{Type: b.GateType, Prompt: ask.Or(b.Prompt, ""), Timeout: ask.Millis(ask.Or(b.TimeoutMs, 0)), OnTimeout: run.GateTimeout(ask.Or(b.OnTimeout, "")),
		MinApprovals: int(ask.Or(b.MinApprovals, 1)), AllowSelf: ask.Or(b.AllowSelfApproval, true), RequestedBy: ask.Or(b.RequestedBy, "")}
	for _, o := range b.Options {
		g.Options = append(g.Options, run.Option{Value: o.Value, Label: ask.Or(o.Label, "")})
	}
	return g
}

// ListRunSteps handles GET /v1/runs/{run_id}/steps.
func (h *Handlers) ListRunSteps(ctx context.Context, req oapi.ListRunStepsRequestObject) (oapi.ListRunStepsResponseObject, error) {
	p := req.Params
	filter := run.StepFilter{Status: run.StepStatus(ask.Or(p.Status, "")), Role: run.Role(ask.Or(p.Role, "")), Name: ask.Or(p.StepName, "")}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[run.Step], error) {
		return h.Runs.Steps(ctx, req.RunID, filter, after, limit)
	}, step)
	if err != nil {
		return nil, err
	}
	return oapi.ListRunSteps200JSONResponse{Body: oapi.RunStepList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListRunSteps200ResponseHeaders{Link: list.Link}}, nil
}

// GetRunStep handles GET /v1/runs/{run_id}/steps/{step_id}.
func (h *Handlers) GetRunStep(ctx context.Context, req oapi.GetRunStepRequestObject) (oapi.GetRunStepResponseObject, error) {
	s, err := h.Runs.Step(ctx, req.RunID, req.StepID)
	if err != nil {
		return nil, err
	}
	return oapi.GetRunStep200JSONResponse{RunStepOKJSONResponse: oapi.RunStepOKJSONResponse{Body: step(&s)}}, nil
}

// PatchRunStep handles PATCH /v1/runs/{run_id}/steps/{step_id}.
func (h *Handlers) PatchRunStep(ctx context.Context, req oapi.PatchRunStepRequestObject) (oapi.PatchRunStepResponseObject, error) {
	does, err := child(req.Body.Child, "/child")
	if err != nil {
		return nil, err
	}
	done, err := h.Runs.UpdateStep(ctx, req.RunID, req.StepID, req.Body.Generation, stepUpdate(req.Body), does)
	if err != nil {
		return nil, err
	}
	return oapi.PatchRunStep200JSONResponse{Step: step(&done.Step), Applied: done.Applied}, nil
}

// stepUpdate returns what an engine says of a step.
func stepUpdate(b *oapi.PatchRunStep) run.StepUpdate {
	u := run.StepUpdate{Status: run.StepStatus(b.Status), ChildRunID: patch.Field[string](b.ChildRunID), ResultText: patch.Field[string](b.ResultText),
		ContextOut: patch.Field[string](b.ContextOut), Markers: patch.Field[[]string](b.MarkersOut), Structured: b.StructuredOutput, StepError: patch.Field[string](b.StepError)}
	if b.RetryCount != nil {
		u.RetryCount = new(int(*b.RetryCount))
	}
	return u
}

// RecoverRunSteps handles POST /v1/runs/{run_id}/steps/recover.
func (h *Handlers) RecoverRunSteps(ctx context.Context, req oapi.RecoverRunStepsRequestObject) (oapi.RecoverRunStepsResponseObject, error) {
	steps := answer.Each(req.Body.Steps, func(s *oapi.RecoverRunStep) run.Recovery {
		return run.Recovery{StepID: s.StepID, Status: run.StepStatus(s.Status), ResultText: s.ResultText}
	})
	return answer.Write(ctx, func(ctx context.Context) (run.Recovered, error) {
		return h.Runs.Recover(ctx, req.RunID, steps, shape.Time(req.Body.EndedAt))
	}, func(r run.Recovered) oapi.RecoverRunStepsResponseObject {
		return oapi.RecoverRunSteps200JSONResponse{Body: oapi.RecoveredRunSteps{Recovered: r.Recovered, SkippedTerminal: r.SkippedTerminal, Missing: r.Missing}}
	}, oapi.RecoverRunStepsResponseObject.VisitRecoverRunStepsResponse)
}
