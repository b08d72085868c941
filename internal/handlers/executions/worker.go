package executions

import (
	"context"
	"io"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// RenewExecution handles POST /v1/executions/{execution_id}/renew.
func (h *Handlers) RenewExecution(ctx context.Context, req oapi.RenewExecutionRequestObject) (oapi.RenewExecutionResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Renew(ctx, f, ttl(req.Body.LeaseTTLMs))
	}, func(r execution.Report) oapi.RenewExecutionResponseObject {
		return oapi.RenewExecution200JSONResponse{Body: oapi.RenewedLease{Directives: worker.Directives(r.Directives), LeaseEpoch: r.Execution.Lease.Epoch,
			LeaseExpiresAt: wire.TimeOrNull(r.Execution.Lease.ExpiresAt), BudgetRemaining: shape.Remaining(r.Allowance.Remaining)}}
	}, oapi.RenewExecutionResponseObject.VisitRenewExecutionResponse)
}

// ReportProgress handles POST /v1/executions/{execution_id}/progress.
func (h *Handlers) ReportProgress(ctx context.Context, req oapi.ReportProgressRequestObject) (oapi.ReportProgressResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	var pct *int
	if req.Body.Pct != nil {
		pct = new(int(*req.Body.Pct))
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Progress(ctx, f, pct, req.Body.Message)
	}, func(r execution.Report) oapi.ReportProgressResponseObject {
		return oapi.ReportProgress200JSONResponse{Body: oapi.ProgressNoted{Directives: worker.Directives(r.Directives), BudgetRemaining: shape.Remaining(r.Allowance.Remaining)}}
	}, oapi.ReportProgressResponseObject.VisitReportProgressResponse)
}

// CompleteExecution handles POST /v1/executions/{execution_id}/complete, with a JSON result or with the result as octets and
// the handle in a header.
func (h *Handlers) CompleteExecution(ctx context.Context, req oapi.CompleteExecutionRequestObject) (oapi.CompleteExecutionResponseObject, error) {
	var f execution.Fence
	var result *execution.Value
	var err error
	switch {
	case req.JSONBody != nil:
		f, err = fenceOrOverride(ctx, req.ExecutionID, req.JSONBody.Handle, req.JSONBody.Fence, req.JSONBody.Override)
		result = shape.Value(req.JSONBody.Result)
	case req.Params.FlowapiHandle == nil:
		err = fault.New(fault.CodeValidationFailed, "With a body of octets the handle stands in the header Flowapi-Handle.")
	default:
		if f, err = execution.ParseHandle(*req.Params.FlowapiHandle, req.ExecutionID); err == nil {
			result = &execution.Value{Encoding: execution.EncodingBase64}
			result.Bytes, err = io.ReadAll(req.Body)
		}
	}
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Complete(ctx, f, result)
	}, func(r execution.Report) oapi.CompleteExecutionResponseObject {
		return oapi.CompleteExecution200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.CompleteExecutionResponseObject.VisitCompleteExecutionResponse)
}

// FailExecution handles POST /v1/executions/{execution_id}/fail.
func (h *Handlers) FailExecution(ctx context.Context, req oapi.FailExecutionRequestObject) (oapi.FailExecutionResponseObject, error) {
	f, err := fenceOrOverride(ctx, req.ExecutionID, req.Body.Handle, req.Body.Fence, req.Body.Override)
	if err != nil {
		return nil, err
	}
	failed := execution.Failure{Reason: req.Body.Reason, Category: ask.Or(req.Body.Category, "")}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Fail(ctx, f, failed, span(req.Body.RetryAfterMs))
	}, func(r execution.Report) oapi.FailExecutionResponseObject {
		out := oapi.FailureReport{Directives: worker.Directives(r.Directives), Execution: shape.Execution(&r.Execution), Replayed: r.Replayed, Outcome: oapi.FailureOutcomeTerminalFailed}
		switch {
		case !r.RetryAt.IsZero():
			out.Outcome, out.DelayUntil = oapi.FailureOutcomeRetryScheduled, wire.TimeOrNull(r.RetryAt)
		case r.Cancelled:
			out.Outcome = oapi.FailureOutcomeCancelled
		}
		return oapi.FailExecution200JSONResponse{Body: out}
	}, oapi.FailExecutionResponseObject.VisitFailExecutionResponse)
}

// ReleaseExecution handles POST /v1/executions/{execution_id}/release.
func (h *Handlers) ReleaseExecution(ctx context.Context, req oapi.ReleaseExecutionRequestObject) (oapi.ReleaseExecutionResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Release(ctx, f)
	}, func(r execution.Report) oapi.ReleaseExecutionResponseObject {
		return oapi.ReleaseExecution200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.ReleaseExecutionResponseObject.VisitReleaseExecutionResponse)
}

func report(r execution.Report) oapi.ReportOKJSONResponse {
	return oapi.ReportOKJSONResponse{Body: oapi.Report{Directives: worker.Directives(r.Directives), Execution: shape.Execution(&r.Execution), Replayed: r.Replayed}}
}

// span returns the time that an optional number of milliseconds is.
func span(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	return new(ask.Millis(*ms))
}

// DelayExecution handles POST /v1/executions/{execution_id}/delay.
func (h *Handlers) DelayExecution(ctx context.Context, req oapi.DelayExecutionRequestObject) (oapi.DelayExecutionResponseObject, error) {
	f, err := fenceOrOverride(ctx, req.ExecutionID, req.Body.Handle, req.Body.Fence, req.Body.Override)
	if err != nil {
		return nil, err
	}
	var until time.Time
	switch in := req.Body; {
	case in.DelayUntil != nil && in.DelayMs != nil:
		return nil, fault.Invalid(fault.CodeValidationFailed, "/delay_ms", "Give delay_until or delay_ms, not both.")
	case in.DelayUntil != nil:
		until = in.DelayUntil.Time()
	case in.DelayMs == nil:
		return nil, fault.Invalid(fault.CodeValidationFailed, "/delay_ms", "Say how long to wait: delay_ms or delay_until.")
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Delay(ctx, f, until, ask.Millis(ask.Or(req.Body.DelayMs, 0)))
	}, func(r execution.Report) oapi.DelayExecutionResponseObject {
		return oapi.DelayExecution200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.DelayExecutionResponseObject.VisitDelayExecutionResponse)
}

// WaitForChildren handles POST /v1/executions/{execution_id}/wait-children.
func (h *Handlers) WaitForChildren(ctx context.Context, req oapi.WaitForChildrenRequestObject) (oapi.WaitForChildrenResponseObject, error) {
	f, err := fenceOrOverride(ctx, req.ExecutionID, req.Body.Handle, req.Body.Fence, req.Body.Override)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.WaitChildren(ctx, f)
	}, func(r execution.Report) oapi.WaitForChildrenResponseObject {
		return oapi.WaitForChildren200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.WaitForChildrenResponseObject.VisitWaitForChildrenResponse)
}

// CancelHeldExecution handles POST /v1/executions/{execution_id}/cancel.
func (h *Handlers) CancelHeldExecution(ctx context.Context, req oapi.CancelHeldExecutionRequestObject) (oapi.CancelHeldExecutionResponseObject, error) {
	f, err := worker.Fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Abandon(ctx, f, ask.Or(req.Body.Reason, ""))
	}, func(r execution.Report) oapi.CancelHeldExecutionResponseObject {
		return oapi.CancelHeldExecution200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.CancelHeldExecutionResponseObject.VisitCancelHeldExecutionResponse)
}
