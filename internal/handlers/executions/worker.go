package executions

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// none are the directives to a worker that just goes on.
var none = oapi.Directives{}

// ClaimExecutions handles POST /v1/claims.
func (h *Handlers) ClaimExecutions(ctx context.Context, req oapi.ClaimExecutionsRequestObject) (oapi.ClaimExecutionsResponseObject, error) {
	in, err := claiming(ctx, *req.Body)
	if err != nil {
		return nil, err
	}
	wait, applied := ask.Wait(req.Params.Prefer)
	in.Wait = wait
	return answer.Write(ctx, func(ctx context.Context) ([]execution.Claim, error) {
		return h.Executions.Claim(ctx, in)
	}, func(claims []execution.Claim) oapi.ClaimExecutionsResponseObject {
		if claims == nil { // no claims at all are those of a repeated request, which are over
			return oapi.ClaimExecutions204Response{Headers: oapi.ClaimExecutions204ResponseHeaders{PreferenceApplied: applied, RetryAfter: h.Executions.RetryAfter()}}
		}
		headers := oapi.ClaimExecutions200ResponseHeaders{PreferenceApplied: applied}
		if ask.Text(ctx) {
			return oapi.ClaimExecutions200TextResponse{Body: variables(claims), Headers: headers}
		}
		out := oapi.Claims{Claims: make([]oapi.Claim, len(claims)), Directives: none}
		for i := range claims {
			out.Claims[i] = claim(&claims[i])
		}
		return oapi.ClaimExecutions200JSONResponse{Body: out, Headers: headers}
	}, oapi.ClaimExecutionsResponseObject.VisitClaimExecutionsResponse)
}

// claiming returns what a worker asks for.
func claiming(ctx context.Context, in oapi.ClaimExecutions) (execution.ClaimRequest, error) {
	out := execution.ClaimRequest{
		Lanes: in.Lanes, WorkerID: in.WorkerID, InstanceID: ask.Or(in.WorkerInstanceID, in.WorkerID),
		TTL: ttl(in.LeaseTTLMs), Max: ask.Or(in.Max, 1), Reclaim: ask.Or(in.Reclaim, true),
	}
	switch {
	case in.Lane != nil && in.Lanes != nil:
		return out, fault.Invalid(fault.CodeValidationFailed, "/lanes", "Give lane or lanes, not both.")
	case in.Lane != nil:
		out.Lanes = []string{*in.Lane}
	case len(in.Lanes) == 0:
		return out, fault.Invalid(fault.CodeValidationFailed, "/lane", "Say which lane, or which lanes, to claim from.")
	}
	if ask.Text(ctx) && out.Max != 1 {
		return out, fault.Invalid(fault.CodeValidationFailed, "/max", "Plain text describes one claim: max must be 1.")
	}
	var err error
	out.Capabilities, err = execution.NewCapabilities(in.Capabilities, "worker", "/capabilities")
	return out, err
}

func ttl(ms *int64) time.Duration {
	if ms == nil {
		return execution.DefaultLeaseTTL
	}
	return time.Duration(*ms) * time.Millisecond
}

func claim(c *execution.Claim) oapi.Claim {
	f := c.Execution.Fence()
	return oapi.Claim{
		Execution: body(&c.Execution), Handle: f.Handle(), Kind: oapi.ClaimKind(c.Kind), LeaseExpiresAt: wire.Time(c.Execution.Lease.ExpiresAt),
		Fence:  oapi.Fence{LeaseID: f.LeaseID, LeaseEpoch: f.LeaseEpoch, AttemptID: f.AttemptID, AttemptIndex: int32(f.AttemptIndex)},
		Inputs: map[string]oapi.Document{},
	}
}

// RenewExecution handles POST /v1/executions/{execution_id}/renew.
func (h *Handlers) RenewExecution(ctx context.Context, req oapi.RenewExecutionRequestObject) (oapi.RenewExecutionResponseObject, error) {
	f, err := fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Renew(ctx, f, ttl(req.Body.LeaseTTLMs))
	}, func(r execution.Report) oapi.RenewExecutionResponseObject {
		return oapi.RenewExecution200JSONResponse{Body: oapi.RenewedLease{Directives: none, LeaseEpoch: r.Execution.Lease.Epoch, LeaseExpiresAt: wire.Time(r.Execution.Lease.ExpiresAt)}}
	}, oapi.RenewExecutionResponseObject.VisitRenewExecutionResponse)
}

// ReportProgress handles POST /v1/executions/{execution_id}/progress.
func (h *Handlers) ReportProgress(ctx context.Context, req oapi.ReportProgressRequestObject) (oapi.ReportProgressResponseObject, error) {
	f, err := fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	var pct *int
	if req.Body.Pct != nil {
		pct = new(int(*req.Body.Pct))
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Progress(ctx, f, pct, req.Body.Message)
	}, func(execution.Report) oapi.ReportProgressResponseObject {
		return oapi.ReportProgress200JSONResponse{Body: oapi.ProgressNoted{Directives: none}}
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
		f, err = fence(req.ExecutionID, req.JSONBody.Handle, req.JSONBody.Fence)
		result = value(req.JSONBody.Result)
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
	f, err := fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	failed := execution.Failure{Reason: req.Body.Reason, Category: ask.Or(req.Body.Category, "")}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Fail(ctx, f, failed, millis(req.Body.RetryAfterMs))
	}, func(r execution.Report) oapi.FailExecutionResponseObject {
		out := oapi.FailureReport{Directives: none, Execution: body(&r.Execution), Replayed: r.Replayed, Outcome: oapi.FailureOutcomeTerminalFailed}
		if !r.RetryAt.IsZero() {
			out.Outcome, out.DelayUntil = oapi.FailureOutcomeRetryScheduled, wire.TimeOrNull(r.RetryAt)
		}
		return oapi.FailExecution200JSONResponse{Body: out}
	}, oapi.FailExecutionResponseObject.VisitFailExecutionResponse)
}

// ReleaseExecution handles POST /v1/executions/{execution_id}/release.
func (h *Handlers) ReleaseExecution(ctx context.Context, req oapi.ReleaseExecutionRequestObject) (oapi.ReleaseExecutionResponseObject, error) {
	f, err := fence(req.ExecutionID, req.Body.Handle, req.Body.Fence)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Report, error) {
		return h.Executions.Release(ctx, f)
	}, func(r execution.Report) oapi.ReleaseExecutionResponseObject {
		return oapi.ReleaseExecution200JSONResponse{ReportOKJSONResponse: report(r)}
	}, oapi.ReleaseExecutionResponseObject.VisitReleaseExecutionResponse)
}

// CompleteExecutions handles POST /v1/completions.
func (h *Handlers) CompleteExecutions(ctx context.Context, req oapi.CompleteExecutionsRequestObject) (oapi.CompleteExecutionsResponseObject, error) {
	in := make([]execution.Ending, len(req.Body.Items))
	for i, item := range req.Body.Items {
		in[i] = ending(item)
	}
	return answer.Write(ctx, func(ctx context.Context) ([]execution.Item[execution.Report], error) {
		return h.Executions.End(ctx, in)
	}, func(ended []execution.Item[execution.Report]) oapi.CompleteExecutionsResponseObject {
		items := make([]oapi.CompletedExecution, len(ended))
		for i := range ended {
			items[i].ExecutionID = req.Body.Items[i].ExecutionID
			if ended[i].Err != nil {
				items[i].Problem = new(answer.Item(ctx, "/v1/completions", ended[i].Err))
				continue
			}
			items[i].Execution, items[i].Replayed = new(body(&ended[i].Value.Execution)), new(ended[i].Value.Replayed)
		}
		return oapi.CompleteExecutions200JSONResponse{Body: oapi.CompletedExecutions{Items: items}}
	}, oapi.CompleteExecutionsResponseObject.VisitCompleteExecutionsResponse)
}

func ending(item oapi.CompletionItem) execution.Ending {
	f, err := fence(item.ExecutionID, item.Handle, item.Fence)
	out := execution.Ending{Fence: f, Result: value(item.Result), Err: err}
	if item.Fail != nil {
		out.Failure = &execution.Failure{Reason: item.Fail.Reason, Category: ask.Or(item.Fail.Category, "")}
		out.RetryAfter = millis(item.Fail.RetryAfterMs)
		if item.Result != nil && err == nil {
			out.Err = fault.Invalid(fault.CodeValidationFailed, "/fail", "Give result or fail, not both.")
		}
	}
	return out
}

func report(r execution.Report) oapi.ReportOKJSONResponse {
	return oapi.ReportOKJSONResponse{Body: oapi.Report{Directives: none, Execution: body(&r.Execution), Replayed: r.Replayed}}
}

func millis(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	return new(time.Duration(*ms) * time.Millisecond)
}

// fence returns the proof of ownership that a worker sent: its handle, or the triple that the handle stands for.
func fence(id uuid.UUID, handle *string, sent *oapi.SentFence) (execution.Fence, error) {
	switch {
	case handle != nil && sent != nil:
		return execution.Fence{}, fault.Invalid(fault.CodeValidationFailed, "/fence", "Give handle or fence, not both.")
	case handle != nil:
		return execution.ParseHandle(*handle, id)
	case sent == nil:
		return execution.Fence{}, fault.Invalid(fault.CodeValidationFailed, "/handle", "The handle of the claim answer is missing.")
	}
	f := execution.Fence{ExecutionID: id, LeaseID: sent.LeaseID, AttemptID: sent.AttemptID, LeaseEpoch: sent.LeaseEpoch, AttemptIndex: execution.AnyAttempt}
	if sent.AttemptIndex != nil {
		f.AttemptIndex = int(*sent.AttemptIndex)
	}
	return f, nil
}
