package suspensions

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/form"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// SuspendExecution handles POST /v1/executions/{execution_id}/suspend.
func (h *Handlers) SuspendExecution(ctx context.Context, req oapi.SuspendExecutionRequestObject) (oapi.SuspendExecutionResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	in, err := suspension(ctx, req.Body)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.SuspendReport, error) {
		return h.Executions.Suspend(ctx, f, in)
	}, func(r execution.SuspendReport) oapi.SuspendExecutionResponseObject {
		out := oapi.SuspendedExecution{Outcome: oapi.SuspendedExecutionOutcome(r.Outcome), SuspensionID: r.SuspensionID, Waitpoints: make([]oapi.MintedWaitpoint, len(r.Waitpoints)),
			Directives: worker.Directives(r.Directives)}
		for i := range r.Waitpoints {
			out.Waitpoints[i] = h.minted(ctx, &r.Waitpoints[i])
		}
		return oapi.SuspendExecution200JSONResponse{Body: out}
	}, oapi.SuspendExecutionResponseObject.VisitSuspendExecutionResponse)
}

// suspension returns what a request asks to wait for.
func suspension(ctx context.Context, b *oapi.SuspendExecution) (execution.SuspendRequest, error) {
	in := execution.SuspendRequest{
		Suspension: execution.Suspension{ID: ask.Or(b.SuspensionID, uuid.Nil), Reason: execution.SuspendReason(b.ReasonCode), RequestedBy: string(ask.Or(b.RequestedBy, "worker")),
			Behavior: execution.TimeoutBehavior(ask.Or(b.TimeoutBehavior, "")), Pointer: ask.Or(b.ContinuationMetadataPointer, "")},
		Timeout: ask.Millis(ask.Or(b.TimeoutMs, 0)), IdempotencyKey: ask.Or(b.IdempotencyKey, ""),
	}
	if b.TimeoutAt != nil {
		in.TimeoutAt = b.TimeoutAt.Time()
	}
	if b.TimeoutAt != nil && b.TimeoutMs != nil {
		return in, fault.Invalid(fault.CodeValidationFailed, "/timeout_ms", "Give timeout_at or timeout_ms, not both.")
	}
	if p := b.ResumePolicy; p != nil {
		in.Policy = execution.ResumePolicy{DelayMS: ask.Or(p.ResumeDelayMs, 0), KeepWaitpoints: !ask.Or(p.CloseWaitpointOnResume, true),
			KeepMatched: !ask.Or(p.ConsumeMatchedSignals, true), KeepOthers: ask.Or(p.RetainSignalBufferUntilClosed, false)}
	}
	for i, w := range b.Waitpoints {
		bound, err := binding(ctx, &w, fmt.Sprintf("/waitpoints/%d", i))
		if err != nil {
			return in, err
		}
		in.Bindings = append(in.Bindings, bound)
	}
	if b.ResumeCondition == nil {
		return in, nil
	}
	var err error
	in.Condition, err = wait.ParseResume(b.ResumeCondition, "/resume_condition")
	return in, err
}

func binding(ctx context.Context, w *oapi.WaitpointBinding, pointer string) (execution.Binding, error) {
	switch {
	case w.UsePending != nil && (w.WaitpointKey != nil || w.WaitpointID != nil || w.Approval != nil):
		return execution.Binding{}, fault.Invalid(fault.CodeValidationFailed, pointer+"/use_pending", "A waitpoint that was made before has its key and its approval already.")
	case w.UsePending != nil:
		return execution.Binding{Pending: *w.UsePending}, nil
	case w.WaitpointKey == nil:
		return execution.Binding{}, fault.Invalid(fault.CodeValidationFailed, pointer+"/waitpoint_key", "A waitpoint needs a waitpoint_key, or use_pending.")
	}
	approval, err := approvalOf(ctx, w.Approval, pointer+"/approval")
	return execution.Binding{Fresh: execution.Waitpoint{ID: ask.Or(w.WaitpointID, uuid.Nil), Key: *w.WaitpointKey, Approval: approval}}, err
}

// approvalOf returns what a person is asked. Who asks is the caller, if nobody is named.
func approvalOf(ctx context.Context, a *oapi.Approval, pointer string) (*execution.Approval, error) {
	if a == nil {
		return nil, nil
	}
	out := &execution.Approval{Title: a.Title, Prompt: ask.Or(a.Prompt, ""), RequestedBy: ask.Or(a.RequestedBy, call.From(ctx).Actor), MadeBy: call.From(ctx).Actor, Payload: a.Payload, Form: a.Form,
		MinApprovals: int(ask.Or(a.MinApprovals, 1)), AllowRequester: ask.Or(a.AllowRequester, true)}
	if err := out.Check(pointer); err != nil {
		return nil, err
	}
	if len(a.Form) == 0 || string(a.Form) == "null" {
		out.Form = nil
		return out, nil
	}
	_, err := form.Parse(a.Form, pointer+"/form")
	return out, err
}

// minted returns a waitpoint with its token, as its maker sees it.
func (h *Handlers) minted(ctx context.Context, m *execution.Minted) oapi.MintedWaitpoint {
	return oapi.MintedWaitpoint{WaitpointID: m.ID, WaitpointKey: m.Key, Token: m.Token.Reveal(), ApproveURL: h.approveURL(ctx, m)}
}

func (h *Handlers) approveURL(ctx context.Context, m *execution.Minted) string {
	return h.PublicURL(ctx) + waitpoint.ApprovePath + m.Token.Link(m.ID)
}
