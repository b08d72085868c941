// Package flows holds the operations on flows: their verbs, their steps, their trail, the events from outside that wake them
// and the inbox of what waits for a person. They translate and call; what is allowed is decided by the machine in
// domain/flow.
package flows

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Flows is the store of flows.
type Flows interface {
	Create(ctx context.Context, in flow.Create) (flow.Creation, error)
	Flow(ctx context.Context, id uuid.UUID) (flow.Flow, error)
	Flows(ctx context.Context, f flow.Filter, after page.Cursor, limit int) (page.Page[flow.Flow], error)
	Replace(ctx context.Context, id uuid.UUID, expected int64, n flow.Replacement, req *wait.Request) (flow.Flow, error)
	Patch(ctx context.Context, id uuid.UUID, expected *int64, p flow.Patch) (flow.Flow, error)
	Delete(ctx context.Context, id uuid.UUID, expected *int64) error
	Start(ctx context.Context, id uuid.UUID, expected *int64) (flow.Flow, error)
	Wait(ctx context.Context, id uuid.UUID, expected *int64, req wait.Request) (flow.Flow, error)
	Resume(ctx context.Context, id uuid.UUID, expected *int64, patch json.RawMessage) (flow.Flow, error)
	Finish(ctx context.Context, id uuid.UUID, expected *int64, patch json.RawMessage) (flow.Flow, error)
	Fail(ctx context.Context, id uuid.UUID, expected *int64, reason string) (flow.Flow, error)
	RequestCancel(ctx context.Context, id uuid.UUID, expected *int64, reason string) (flow.Flow, error)
	Cancel(ctx context.Context, id uuid.UUID, expected *int64, req flow.CancelRequest) (flow.CancelOutcome, error)
	Cancellation(ctx context.Context, id uuid.UUID) (flow.CancelProgress, error)
	Acknowledge(ctx context.Context, id, executionID uuid.UUID) (flow.CancelProgress, error)
	SetTag(ctx context.Context, id uuid.UUID, expected *int64, key, value string) (flow.Flow, error)
	Trail(ctx context.Context, id uuid.UUID, f flow.TrailFilter, after page.Cursor, limit int) (page.Page[event.Event], error)
	AppendEvent(ctx context.Context, id uuid.UUID, t event.Type, data json.RawMessage) (event.Event, error)
	Steps(ctx context.Context, id uuid.UUID, status flow.StepStatus, after page.Cursor, limit int) (page.Page[flow.Step], error)
	Step(ctx context.Context, id uuid.UUID, runID string) (flow.Step, error)
	InsertStep(ctx context.Context, id uuid.UUID, in flow.NewStep) (flow.Step, error)
	ObserveStep(ctx context.Context, id uuid.UUID, runID string, c flow.StepChange) (flow.Observation, error)
	PatchStep(ctx context.Context, id uuid.UUID, runID string, c flow.StepChange) (flow.Step, error)
	Prune(ctx context.Context, keep flow.Retention, dryRun bool) (flow.Pruned, error)
}

// Waits is the store of open waits.
type Waits interface {
	Deliver(ctx context.Context, e wait.Signal) (wait.Receipt, error)
}

// Handlers are the operations on flows.
type Handlers struct {
	Flows Flows
	Graph Graph
	Waits Waits
	Watch func() <-chan struct{} // a channel that is closed when the event log has grown since the call
	Done  <-chan struct{}        // closed when the server shuts down
}

// CreateFlow handles POST /v1/flows.
func (h *Handlers) CreateFlow(ctx context.Context, req oapi.CreateFlowRequestObject) (oapi.CreateFlowResponseObject, error) {
	b := req.Body
	in := flow.Create{
		ID: ask.Or(b.ID, uuid.Nil), Kind: ask.Or(b.Kind, ""), ControllerID: ask.Or(b.ControllerID, ""), Goal: b.Goal,
		OwnerSessionKey: ask.Or(b.OwnerSessionKey, ""), RequesterOrigin: ask.Or(b.RequesterOrigin, ""), CurrentStep: ask.Or(b.CurrentStep, ""),
		State: b.State, Tags: b.Tags, AutoFinish: ask.Or(b.AutoFinish, b.Graph != nil), Start: ask.Or(b.Start, b.Graph != nil),
		BudgetIDs: b.BudgetIds, QuotaIDs: b.QuotaPolicyIds,
	}
	if len(b.State) > maxState {
		return nil, fault.New(fault.CodePayloadTooLarge, "The state has %d bytes, and that of a flow may have %d. Keep elsewhere what is large, and say here where it is.", len(b.State), maxState).With("limit_bytes", maxState)
	}
	if b.Graph != nil {
		return h.createWithGraph(ctx, in, b.Graph)
	}
	return answer.Write(ctx, func(ctx context.Context) (flow.Creation, error) {
		return h.Flows.Create(ctx, in)
	}, func(made flow.Creation) oapi.CreateFlowResponseObject {
		ok := flowOK(made.Flow)
		if made.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.CreateFlow200JSONResponse{FlowOKJSONResponse: ok}
		}
		return createdFlow(ok)
	}, oapi.CreateFlowResponseObject.VisitCreateFlowResponse)
}

func createdFlow(ok oapi.FlowOKJSONResponse) oapi.CreateFlow201JSONResponse {
	return oapi.CreateFlow201JSONResponse{FlowCreatedJSONResponse: oapi.FlowCreatedJSONResponse{Body: ok.Body,
		Headers: oapi.FlowCreatedResponseHeaders{ETag: ok.Headers.ETag, Location: "/v1/flows/" + ok.Body.ID.String()}}}
}

// ListFlows handles GET /v1/flows.
func (h *Handlers) ListFlows(ctx context.Context, req oapi.ListFlowsRequestObject) (oapi.ListFlowsResponseObject, error) {
	p := req.Params
	filter := flow.Filter{OwnerSessionKey: ask.Or(p.OwnerSessionKey, ""), Status: flow.Status(ask.Or(p.Status, "")),
		ControllerID: ask.Or(p.ControllerID, ""), Kind: ask.Or(p.Kind, "")}
	var err error
	if filter.Tags, err = ask.Tags(p.Tag); err != nil {
		return nil, err
	}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[flow.Flow], error) {
		return h.Flows.Flows(ctx, filter, after, limit)
	}, body)
	if err != nil {
		return nil, err
	}
	return oapi.ListFlows200JSONResponse{Body: oapi.FlowList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListFlows200ResponseHeaders{Link: list.Link}}, nil
}

// GetFlow handles GET /v1/flows/{flow_id}. With until=terminal and Prefer: wait it waits for the flow to end.
func (h *Handlers) GetFlow(ctx context.Context, req oapi.GetFlowRequestObject) (oapi.GetFlowResponseObject, error) {
	limit, applied := ask.Wait(req.Params.Prefer)
	if req.Params.Until == nil {
		limit, applied = 0, nil
	}
	f, err := h.awaitEnd(ctx, req.FlowID, limit)
	if err != nil {
		return nil, err
	}
	if f.NodeCount == 0 && ask.Unchanged(req.Params.IfNoneMatch, f.Revision) {
		return oapi.GetFlow304Response{Headers: oapi.NotModifiedResponseHeaders{ETag: ask.ETag(f.Revision)}}, nil
	}
	ok := flowOK(f)
	ok.Headers.PreferenceApplied = applied
	return oapi.GetFlow200JSONResponse{FlowOKJSONResponse: ok}, nil
}

// awaitEnd returns a flow as soon as it has ended, or when the time is over.
func (h *Handlers) awaitEnd(ctx context.Context, id uuid.UUID, limit time.Duration) (flow.Flow, error) {
	return answer.Await(ctx, h.Watch, h.Done, limit, func() (flow.Flow, bool, error) {
		f, err := h.Flows.Flow(ctx, id)
		return f, f.Status.Terminal(), err
	})
}

// PatchFlow handles PATCH /v1/flows/{flow_id}: a shallow merge, or RFC 7396 with application/merge-patch+json.
func (h *Handlers) PatchFlow(ctx context.Context, req oapi.PatchFlowRequestObject) (oapi.PatchFlowResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	patch := flow.Patch{Merge: flow.MergeShallow}
	if b := req.JSONBody; b != nil {
		patch.State, patch.CurrentStep = b.State, b.CurrentStep
	}
	if b := req.ApplicationMergePatchPlusJSONBody; b != nil {
		patch = flow.Patch{Merge: flow.MergeRFC7396, State: b.State, CurrentStep: b.CurrentStep}
	}
	f, err := h.Flows.Patch(ctx, req.FlowID, expected, patch)
	if err != nil {
		return nil, err
	}
	return oapi.PatchFlow200JSONResponse{FlowOKJSONResponse: flowOK(f)}, nil
}

// ReplaceFlow handles PUT /v1/flows/{flow_id}.
func (h *Handlers) ReplaceFlow(ctx context.Context, req oapi.ReplaceFlowRequestObject) (oapi.ReplaceFlowResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	if expected == nil { // the contract says x-if-match: required
		return nil, fault.New(fault.CodePreconditionRequired, "A flow is replaced at a revision that you have read: send its ETag as If-Match.")
	}
	b := req.Body
	n := flow.Replacement{
		Kind: ask.Or(b.Kind, ""), ControllerID: ask.Or(b.ControllerID, ""), Goal: b.Goal, OwnerSessionKey: ask.Or(b.OwnerSessionKey, ""),
		RequesterOrigin: ask.Or(b.RequesterOrigin, ""), CurrentStep: ask.Or(b.CurrentStep, ""), State: b.State, Tags: b.Tags,
		Status: flow.Status(ask.Or(b.Status, "")),
	}
	var asked *wait.Request
	if w := b.Wait; w != nil {
		asked = &wait.Request{Condition: w.Condition, OnTimeout: wait.OnTimeout(ask.Or(w.OnTimeout, ""))}
		if w.Deadline != nil {
			asked.Deadline = w.Deadline.Time()
		}
	}
	f, err := h.Flows.Replace(ctx, req.FlowID, *expected, n, asked)
	if err != nil {
		return nil, err
	}
	return oapi.ReplaceFlow200JSONResponse{FlowOKJSONResponse: flowOK(f)}, nil
}

// DeleteFlow handles DELETE /v1/flows/{flow_id}.
func (h *Handlers) DeleteFlow(ctx context.Context, req oapi.DeleteFlowRequestObject) (oapi.DeleteFlowResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err == nil {
		err = h.Flows.Delete(ctx, req.FlowID, expected)
	}
	if err != nil {
		return nil, err
	}
	return oapi.DeleteFlow204Response{}, nil
}

// ListFlowTags handles GET /v1/flows/{flow_id}/tags.
func (h *Handlers) ListFlowTags(ctx context.Context, req oapi.ListFlowTagsRequestObject) (oapi.ListFlowTagsResponseObject, error) {
	f, err := h.Flows.Flow(ctx, req.FlowID)
	if err != nil {
		return nil, err
	}
	return oapi.ListFlowTags200JSONResponse{Body: oapi.TagSet{Tags: wire.Tags(f.Tags)}, Headers: oapi.ListFlowTags200ResponseHeaders{ETag: ask.ETag(f.Revision)}}, nil
}

// GetFlowTag handles GET /v1/flows/{flow_id}/tags/{key}.
func (h *Handlers) GetFlowTag(ctx context.Context, req oapi.GetFlowTagRequestObject) (oapi.GetFlowTagResponseObject, error) {
	if err := tag.CheckParameter(req.Key); err != nil {
		return nil, err
	}
	f, err := h.Flows.Flow(ctx, req.FlowID)
	if err != nil {
		return nil, err
	}
	value, ok := f.Tags[req.Key]
	if !ok {
		return nil, fault.New(fault.CodeNotFound, "Flow %s has no tag %s. Those that it has are at GET …/tags.", f.ID, req.Key).With("resource", "tag")
	}
	return oapi.GetFlowTag200JSONResponse{TagOKJSONResponse: tagOK(f, req.Key, value)}, nil
}

// SetFlowTag handles PUT /v1/flows/{flow_id}/tags/{key}.
func (h *Handlers) SetFlowTag(ctx context.Context, req oapi.SetFlowTagRequestObject) (oapi.SetFlowTagResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	f, err := h.Flows.SetTag(ctx, req.FlowID, expected, req.Key, req.Body.Value)
	if err != nil {
		return nil, err
	}
	return oapi.SetFlowTag200JSONResponse{TagOKJSONResponse: tagOK(f, req.Key, req.Body.Value)}, nil
}

func tagOK(f flow.Flow, key, value string) oapi.TagOKJSONResponse {
	return oapi.TagOKJSONResponse{Body: oapi.Tag{Key: key, Value: value}, Headers: oapi.TagOKResponseHeaders{ETag: ask.ETag(f.Revision)}}
}

// Prune handles POST /v1/admin/prune.
func (h *Handlers) Prune(ctx context.Context, req oapi.PruneRequestObject) (oapi.PruneResponseObject, error) {
	b := ask.Or(req.Body, oapi.Prune{})
	days := func(n *int32) *int {
		if n == nil {
			return nil
		}
		return new(int(*n))
	}
	keep := flow.Retention{Finished: days(b.FinishedDays), Failed: days(b.FailedDays), Cancelled: days(b.CancelledDays)}
	return answer.Write(ctx, func(ctx context.Context) (flow.Pruned, error) {
		return h.Flows.Prune(ctx, keep, ask.Or(b.DryRun, false))
	}, func(p flow.Pruned) oapi.PruneResponseObject {
		return oapi.Prune200JSONResponse{Body: oapi.Pruned{DryRun: p.DryRun, Executions: int64(p.Executions), Flows: oapi.PrunedFlows{
			Finished: int64(p.Flows[flow.Finished]), Failed: int64(p.Flows[flow.Failed]), Cancelled: int64(p.Flows[flow.Cancelled])}}}
	}, oapi.PruneResponseObject.VisitPruneResponse)
}
