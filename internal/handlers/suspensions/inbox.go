package suspensions

import (
	"cmp"
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ListInbox handles GET /v1/inbox: every open wait that a person can answer, whatever it belongs to.
func (h *Handlers) ListInbox(ctx context.Context, req oapi.ListInboxRequestObject) (oapi.ListInboxResponseObject, error) {
	p := req.Params
	after, err := page.Parse(ask.Or(p.Cursor, ""))
	if err != nil {
		return nil, err
	}
	filter := wait.Filter{Kind: wait.InboxKind(ask.Or(p.Kind, "")), FlowID: ask.Or(p.FlowID, uuid.Nil)}
	found, err := h.Waits.Inbox(ctx, filter, after, ask.Limit(p.Limit))
	if err != nil {
		return nil, err
	}
	var executions []uuid.UUID
	for _, w := range found.Items {
		if w.ExecutionID != uuid.Nil {
			executions = append(executions, w.ExecutionID)
		}
	}
	asking, err := h.Executions.Asking(ctx, executions)
	if err != nil {
		return nil, err
	}
	body := oapi.InboxList{Items: []oapi.InboxItem{}}
	for i := range found.Items {
		body.Items = append(body.Items, inboxItem(&found.Items[i], asking))
	}
	next, link := ask.Next(ctx, found.Next)
	body.NextCursor = next
	return oapi.ListInbox200JSONResponse{Body: body, Headers: oapi.ListInbox200ResponseHeaders{Link: link}}, nil
}

func inboxItem(w *wait.Wait, asking map[uuid.UUID]execution.Asking) oapi.InboxItem {
	item := oapi.InboxItem{WaitID: w.ID, Title: w.Title, Since: wire.Time(w.Since), DeadlineAt: wire.TimeOrNull(w.Deadline), RequestedBy: wire.TextOrNull(strings.TrimSpace(w.RequestedBy))}
	if w.FlowID != uuid.Nil {
		item.Kind, item.FlowID, item.Actions = oapi.InboxKindFlowWait, &w.FlowID, []string{"resume", "fail", "cancel"}
		return item
	}
	a := asking[w.ExecutionID]
	item.Kind, item.ExecutionID, item.FlowID, item.Actions = oapi.InboxKindWaitpoint, &w.ExecutionID, wire.IDOrNull(a.FlowID), []string{"approvals", "resume"}
	item.Reason = wire.TextOrNull(string(a.Reason))
	for _, at := range a.Waitpoints {
		item.Waitpoints = append(item.Waitpoints, oapi.BoundWaitpoint{WaitpointID: at.ID, WaitpointKey: at.Key})
	}
	if first := a.First(w.Lacks()); first != nil {
		item.WaitpointID, item.Title, item.Prompt = &first.ID, cmp.Or(first.Title, item.Title), wire.TextOrNull(first.Prompt)
	}
	return item
}
