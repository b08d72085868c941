package suspensions

import (
	"cmp"
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ListInbox handles GET /v1/inbox: every open wait that a person can answer, whatever it belongs to.
func (h *Handlers) ListInbox(ctx context.Context, req oapi.ListInboxRequestObject) (oapi.ListInboxResponseObject, error) {
	p := req.Params
	filter := wait.Filter{Kind: wait.InboxKind(ask.Or(p.Kind, "")), FlowID: ask.Or(p.FlowID, uuid.Nil), RunID: ask.Or(p.RunID, uuid.Nil)}
	var asked asking
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[wait.Wait], error) {
		found, err := h.Waits.Inbox(ctx, filter, after, limit)
		if err == nil {
			asked, err = h.asking(ctx, found.Items)
		}
		return found, err
	}, asked.item)
	if err != nil {
		return nil, err
	}
	return oapi.ListInbox200JSONResponse{Body: oapi.InboxList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListInbox200ResponseHeaders{Link: list.Link}}, nil
}

// asking is what some waits ask people, by the executions and the gates' steps that wait.
type asking struct {
	executions map[uuid.UUID]execution.Asking
	gates      map[uuid.UUID]run.GateAt
}

func (h *Handlers) asking(ctx context.Context, waits []wait.Wait) (out asking, err error) {
	var executions, steps []uuid.UUID
	for _, w := range waits {
		switch {
		case w.ExecutionID != uuid.Nil:
			executions = append(executions, w.ExecutionID)
		case w.StepID != uuid.Nil:
			steps = append(steps, w.StepID)
		}
	}
	if out.executions, err = h.Executions.Asking(ctx, executions); err != nil {
		return out, err
	}
	out.gates, err = h.Gates.Asked(ctx, steps)
	return out, err
}

func (a *asking) item(w *wait.Wait) oapi.InboxItem {
	item := oapi.InboxItem{WaitID: w.ID, Title: w.Title, Since: wire.Time(w.Since), DeadlineAt: wire.TimeOrNull(w.Deadline), RequestedBy: wire.TextOrNull(strings.TrimSpace(w.RequestedBy))}
	switch {
	case w.FlowID != uuid.Nil:
		item.Kind, item.FlowID, item.Actions = oapi.InboxKindFlowWait, &w.FlowID, []string{"resume", "fail", "cancel"}
	case w.StepID != uuid.Nil:
		item.Kind, item.RunID, item.StepID, item.Actions = oapi.InboxKindGate, &w.RunID, &w.StepID, []string{"approve", "reject", "feedback"}
		showGate(&item, a.gates[w.StepID])
	default:
		item.Kind, item.ExecutionID, item.Actions = oapi.InboxKindWaitpoint, &w.ExecutionID, []string{"approvals", "resume"}
		showWaitpoints(&item, a.executions[w.ExecutionID], w)
	}
	return item
}

// mostPrompt is how many characters of a prompt a list shows.
const mostPrompt = 1000

// showGate shows what a gate asks, unless its step has been deleted meanwhile.
func showGate(item *oapi.InboxItem, at run.GateAt) {
	item.FlowID = wire.IDOrNull(at.Run.FlowID)
	g := at.Step.Gate
	if g == nil {
		return
	}
	prompt := []rune(g.Prompt)
	item.Prompt, item.Reason, item.Options = wire.TextOrNull(string(prompt[:min(len(prompt), mostPrompt)])), &g.Type, shape.Options(g.Options)
}

func showWaitpoints(item *oapi.InboxItem, a execution.Asking, w *wait.Wait) {
	item.FlowID, item.Reason = wire.IDOrNull(a.FlowID), wire.TextOrNull(string(a.Reason))
	for _, at := range a.Waitpoints {
		item.Waitpoints = append(item.Waitpoints, oapi.BoundWaitpoint{WaitpointID: at.ID, WaitpointKey: at.Key})
	}
	if first := a.First(w.Lacks()); first != nil {
		item.WaitpointID, item.Title, item.Prompt = &first.ID, cmp.Or(first.Title, item.Title), wire.TextOrNull(first.Prompt)
	}
}
