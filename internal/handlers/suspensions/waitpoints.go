package suspensions

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// CreateWaitpoint handles POST /v1/executions/{execution_id}/waitpoints.
func (h *Handlers) CreateWaitpoint(ctx context.Context, req oapi.CreateWaitpointRequestObject) (oapi.CreateWaitpointResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	approval, err := approvalOf(ctx, req.Body.Approval, "/approval")
	if err != nil {
		return nil, err
	}
	w := execution.Waitpoint{ID: ask.Or(req.Body.WaitpointID, uuid.Nil), Key: req.Body.WaitpointKey, Approval: approval}
	ttl := ask.Millis(ask.Or(req.Body.ExpiresInMs, execution.DefaultPendingTTL.Milliseconds()))
	return answer.Write(ctx, func(ctx context.Context) (execution.Minted, error) {
		return h.Executions.CreateWaitpoint(ctx, f, w, ttl)
	}, func(m execution.Minted) oapi.CreateWaitpointResponseObject {
		return oapi.CreateWaitpoint201JSONResponse{Body: h.minted(ctx, &m)}
	}, oapi.CreateWaitpointResponseObject.VisitCreateWaitpointResponse)
}

// ListWaitpoints handles GET /v1/executions/{execution_id}/waitpoints.
func (h *Handlers) ListWaitpoints(ctx context.Context, req oapi.ListWaitpointsRequestObject) (oapi.ListWaitpointsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[execution.ListedWaitpoint], error) {
		return h.Executions.Waitpoints(ctx, req.ExecutionID, after, limit)
	}, listed)
	if err != nil {
		return nil, err
	}
	return oapi.ListWaitpoints200JSONResponse{Body: oapi.WaitpointList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListWaitpoints200ResponseHeaders{Link: list.Link}}, nil
}

// GetWaitpointToken handles GET /v1/executions/{execution_id}/waitpoints/{waitpoint_id}/token.
func (h *Handlers) GetWaitpointToken(ctx context.Context, req oapi.GetWaitpointTokenRequestObject) (oapi.GetWaitpointTokenResponseObject, error) {
	m, err := h.Executions.WaitpointToken(ctx, req.ExecutionID, req.WaitpointID)
	if err != nil {
		return nil, err
	}
	return oapi.GetWaitpointToken200JSONResponse(oapi.WaitpointToken{WaitpointID: m.ID, Token: m.Token.Reveal(), ApproveURL: h.approveURL(ctx, &m)}), nil
}

// CloseWaitpoint handles POST /v1/executions/{execution_id}/waitpoints/{waitpoint_id}/close.
func (h *Handlers) CloseWaitpoint(ctx context.Context, req oapi.CloseWaitpointRequestObject) (oapi.CloseWaitpointResponseObject, error) {
	b := ask.Or(req.Body, oapi.CloseWaitpoint{})
	var proof *execution.Fence
	if b.Handle != nil || b.Fence != nil {
		f, err := worker.Fence(req.ExecutionID, b.Handle, b.Fence)
		if err != nil {
			return nil, err
		}
		proof = &f
	} else if !call.From(ctx).Role.Operates() {
		return nil, fault.New(fault.CodeForbidden, "Send the handle of the execution; only an operator closes waitpoints without one.").With("required_role", access.RoleOperator)
	}
	reason := ask.Or(b.Reason, "")
	if reason == "" {
		reason = "closed"
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Waitpoint, error) {
		return h.Executions.CloseWaitpoint(ctx, req.ExecutionID, req.WaitpointID, proof, reason)
	}, func(w execution.Waitpoint) oapi.CloseWaitpointResponseObject {
		return oapi.CloseWaitpoint200JSONResponse{Body: body(&w)}
	}, oapi.CloseWaitpointResponseObject.VisitCloseWaitpointResponse)
}

// listed returns a waitpoint as a list shows it.
func listed(w *execution.ListedWaitpoint) oapi.Waitpoint {
	out := body(&w.Waitpoint)
	out.RequiredSignalNames, out.TokenKid, out.TokenFingerprint = w.Names, &w.Kid, &w.Fingerprint
	return out
}

// body returns a waitpoint as clients see it.
func body(w *execution.Waitpoint) oapi.Waitpoint {
	out := oapi.Waitpoint{
		WaitpointID: w.ID, WaitpointKey: w.Key, ExecutionID: w.ExecutionID, AttemptIndex: int32(w.AttemptIndex), SuspensionID: wire.IDOrNull(w.SuspensionID),
		State: oapi.WaitpointState(w.State), RequiredSignalNames: []string{}, SignalCount: int64(w.Signals), CreatedAt: wire.Time(w.CreatedAt), ActivatedAt: wire.TimeOrNull(w.ActivatedAt),
		ExpiresAt: wire.TimeOrNull(w.ExpiresAt), ClosedAt: wire.TimeOrNull(w.ClosedAt), CloseReason: wire.TextOrNull(w.CloseReason),
	}
	if a := w.Approval; a != nil {
		out.Approval = &oapi.Approval{Title: a.Title, Prompt: wire.TextOrNull(a.Prompt), RequestedBy: &a.RequestedBy, Payload: a.Payload, Form: a.Form,
			MinApprovals: new(int32(a.MinApprovals)), AllowRequester: &a.AllowRequester}
	}
	return out
}
