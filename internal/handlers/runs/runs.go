// Package runs holds the operations on workflow runs: those of the engine that drives a run under a lease, those of the people who
// resume, cancel and read it, and the gates that ask them. They translate and call; what is allowed is decided by the machine in
// domain/run.
package runs

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Runs is the store of runs, their steps, items and gates.
type Runs interface {
	Create(ctx context.Context, in run.Create) (run.Creation, error)
	Run(ctx context.Context, id uuid.UUID) (run.Run, error)
	Runs(ctx context.Context, f run.Filter, after page.Cursor, limit int) (page.Page[run.Run], error)
	Delete(ctx context.Context, id uuid.UUID, expected *int64) error
	Purge(ctx context.Context, p run.Purge) (run.Purged, error)
	Tree(ctx context.Context, id uuid.UUID) (run.Tree, error)

	Start(ctx context.Context, id uuid.UUID, generation int64) (run.Run, error)
	Wait(ctx context.Context, id uuid.UUID, in run.Park) (run.Run, error)
	Resume(ctx context.Context, id uuid.UUID, expected *int64, in run.Resume) (run.Run, error)
	Complete(ctx context.Context, id uuid.UUID, generation int64, summary string) (run.Run, error)
	Fail(ctx context.Context, id uuid.UUID, generation int64, reason, summary string) (run.Run, error)
	Cancel(ctx context.Context, id uuid.UUID, expected *int64, in run.Cancel) (run.Run, error)
	Dismiss(ctx context.Context, id uuid.UUID, expected *int64, dismissed bool) (run.Run, error)
	Acquire(ctx context.Context, id uuid.UUID, token string, ttl time.Duration) (run.LeaseAnswer, error)
	Release(ctx context.Context, id uuid.UUID, in run.Release) (run.Run, error)

	InsertStep(ctx context.Context, runID uuid.UUID, generation int64, in run.NewStep, child *run.Child) (run.StepCreation, error)
	UpdateStep(ctx context.Context, runID, id uuid.UUID, generation int64, u run.StepUpdate, child *run.Child) (run.StepUpdated, error)
	Step(ctx context.Context, runID, id uuid.UUID) (run.Step, error)
	Steps(ctx context.Context, runID uuid.UUID, f run.StepFilter, after page.Cursor, limit int) (page.Page[run.Step], error)
	Recover(ctx context.Context, runID uuid.UUID, steps []run.Recovery, endedAt time.Time) (run.Recovered, error)

	AddItems(ctx context.Context, runID, stepID uuid.UUID, generation int64, in []run.ItemRequest) ([]run.AddedItem, error)
	UpdateItems(ctx context.Context, runID, stepID uuid.UUID, generation int64, updates []run.ItemUpdate) ([]run.Item, error)
	Items(ctx context.Context, runID, stepID uuid.UUID, status run.ItemStatus, after page.Cursor, limit int) (page.Page[run.Item], error)

	Gate(ctx context.Context, runID, stepID uuid.UUID) (run.GateAt, error)
	Gates(ctx context.Context, f run.GateFilter, after page.Cursor, limit int) (page.Page[run.GateAt], error)
	GateStats(ctx context.Context, f run.StatsFilter) ([]run.GateStats, error)
	GateToken(ctx context.Context, runID, stepID uuid.UUID) (waitpoint.Token, error)
	Vote(ctx context.Context, runID, stepID uuid.UUID, v run.Vote) (run.GateAt, error)
}

// Handlers are the operations on runs.
type Handlers struct {
	Runs      Runs
	PublicURL func(ctx context.Context) string // where people reach this server, without a slash at the end
	Now       func() time.Time
}

// CreateRun handles POST /v1/runs.
func (h *Handlers) CreateRun(ctx context.Context, req oapi.CreateRunRequestObject) (oapi.CreateRunResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (run.Creation, error) {
		return h.Runs.Create(ctx, creation(req.Body))
	}, func(made run.Creation) oapi.CreateRunResponseObject {
		ok := runOK(&made.Run)
		if made.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.CreateRun200JSONResponse{RunOKJSONResponse: ok}
		}
		return oapi.CreateRun201JSONResponse{RunCreatedJSONResponse: oapi.RunCreatedJSONResponse{Body: ok.Body,
			Headers: oapi.RunCreatedResponseHeaders{ETag: ok.Headers.ETag, Location: "/v1/runs/" + ok.Body.ID.String()}}}
	}, oapi.CreateRunResponseObject.VisitCreateRunResponse)
}

// ListRuns handles GET /v1/runs.
func (h *Handlers) ListRuns(ctx context.Context, req oapi.ListRunsRequestObject) (oapi.ListRunsResponseObject, error) {
	p := req.Params
	filter := run.Filter{WorkflowName: ask.Or(p.WorkflowName, ""), Trigger: ask.Or(p.Trigger, ""), ParentRunID: ask.Or(p.ParentRunID, ""),
		ParentWorkflowRunID: ask.Or(p.ParentWorkflowRunID, uuid.Nil), FlowID: ask.Or(p.FlowID, uuid.Nil), Root: ask.Or(p.Root, false), Dismissed: p.Dismissed}
	var err error
	if filter.Statuses, err = statuses(p.Status, ask.Or(p.Active, false)); err != nil {
		return nil, err
	}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[run.Run], error) {
		return h.Runs.Runs(ctx, filter, after, limit)
	}, body)
	if err != nil {
		return nil, err
	}
	return oapi.ListRuns200JSONResponse{Body: oapi.RunList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListRuns200ResponseHeaders{Link: list.Link}}, nil
}

// statuses returns those that are asked for, none for all. It returns CodeValidationFailed for what is no status, or asked for in two ways.
func statuses(names []string, active bool) ([]run.Status, error) {
	asked := ask.Names[run.Status](names)
	if active {
		if asked != nil {
			return nil, fault.MovedTo(fault.Invalid(fault.CodeValidationFailed, "active", "Give status or active, not both."), fault.InQuery, "")
		}
		return []run.Status{run.Pending, run.Running, run.Waiting}, nil
	}
	for _, s := range asked {
		if !s.Known() {
			return nil, fault.MovedTo(fault.Invalid(fault.CodeValidationFailed, "status", "A run is never %q; allowed lists what it may be.", fault.Readable(string(s))).With("allowed", run.Statuses()), fault.InQuery, "")
		}
	}
	return asked, nil
}

// GetRun handles GET /v1/runs/{run_id}.
func (h *Handlers) GetRun(ctx context.Context, req oapi.GetRunRequestObject) (oapi.GetRunResponseObject, error) {
	r, err := h.Runs.Run(ctx, req.RunID)
	if err != nil {
		return nil, err
	}
	if ask.Unchanged(req.Params.IfNoneMatch, r.Revision) {
		return oapi.GetRun304Response{Headers: oapi.NotModifiedResponseHeaders{ETag: ask.ETag(r.Revision)}}, nil
	}
	return oapi.GetRun200JSONResponse{RunOKJSONResponse: runOK(&r)}, nil
}

// DeleteRun handles DELETE /v1/runs/{run_id}.
func (h *Handlers) DeleteRun(ctx context.Context, req oapi.DeleteRunRequestObject) (oapi.DeleteRunResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err == nil {
		err = h.Runs.Delete(ctx, req.RunID, expected)
	}
	if err != nil {
		return nil, err
	}
	return oapi.DeleteRun204Response{}, nil
}

// PurgeRuns handles POST /v1/admin/purge-runs.
func (h *Handlers) PurgeRuns(ctx context.Context, req oapi.PurgeRunsRequestObject) (oapi.PurgeRunsResponseObject, error) {
	b := req.Body
	in := run.Purge{OlderThan: ask.Millis(ask.Or(b.OlderThanMs, 0)), WorkflowName: ask.Or(b.WorkflowName, ""), DryRun: ask.Or(b.DryRun, false)}
	for _, s := range b.Statuses {
		in.Statuses = append(in.Statuses, run.Status(s))
	}
	return answer.Write(ctx, func(ctx context.Context) (run.Purged, error) {
		return h.Runs.Purge(ctx, in)
	}, func(p run.Purged) oapi.PurgeRunsResponseObject {
		return oapi.PurgeRuns200JSONResponse{Body: oapi.PurgedRuns{Roots: int64(p.Roots), Runs: int64(p.Runs), Executions: int64(p.Executions), DryRun: in.DryRun}}
	}, oapi.PurgeRunsResponseObject.VisitPurgeRunsResponse)
}
