package executions

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
)

// operated is the answer to an operator: the execution as it is now.
func operated(e execution.Execution) oapi.OperatedOKJSONResponse {
	return oapi.OperatedOKJSONResponse{Body: oapi.Operated{Execution: shape.Execution(&e)}, Headers: oapi.OperatedOKResponseHeaders{ETag: ask.ETag(e.Revision)}}
}

// OperatorCancelExecution handles POST /v1/executions/{execution_id}/operator-cancel.
func (h *Handlers) OperatorCancelExecution(ctx context.Context, req oapi.OperatorCancelExecutionRequestObject) (oapi.OperatorCancelExecutionResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Execution, error) {
		return h.Executions.Stop(ctx, req.ExecutionID, expected, req.Body.Reason, ask.Millis(ask.Or(req.Body.GraceMs, 0)))
	}, func(e execution.Execution) oapi.OperatorCancelExecutionResponseObject {
		return oapi.OperatorCancelExecution200JSONResponse{OperatedOKJSONResponse: operated(e)}
	}, oapi.OperatorCancelExecutionResponseObject.VisitOperatorCancelExecutionResponse)
}

// RevokeLease handles POST /v1/executions/{execution_id}/revoke-lease.
func (h *Handlers) RevokeLease(ctx context.Context, req oapi.RevokeLeaseRequestObject) (oapi.RevokeLeaseResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	in := ask.Or(req.Body, oapi.RevokeLease{})
	which := execution.Revocation{InstanceID: ask.Or(in.WorkerInstanceID, ""), LeaseID: ask.Or(in.ExpectedLeaseID, uuid.Nil), Reason: ask.Or(in.Reason, "")}
	return answer.Write(ctx, func(ctx context.Context) (execution.Revoked, error) {
		return h.Executions.Revoke(ctx, req.ExecutionID, expected, which)
	}, func(r execution.Revoked) oapi.RevokeLeaseResponseObject {
		out := oapi.LeaseRevocation{Outcome: oapi.RevocationOutcomeRevoked, LeaseEpoch: r.Execution.Lease.Epoch}
		if r.Satisfied != "" {
			out.Outcome, out.Reason = oapi.RevocationOutcomeAlreadySatisfied, &r.Satisfied
		}
		return oapi.RevokeLease200JSONResponse{Body: out, Headers: oapi.RevokeLease200ResponseHeaders{ETag: ask.ETag(r.Execution.Revision)}}
	}, oapi.RevokeLeaseResponseObject.VisitRevokeLeaseResponse)
}

// SetExecutionPriority handles PUT /v1/executions/{execution_id}/priority.
func (h *Handlers) SetExecutionPriority(ctx context.Context, req oapi.SetExecutionPriorityRequestObject) (oapi.SetExecutionPriorityResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	e, err := h.Executions.Prioritise(ctx, req.ExecutionID, expected, int(req.Body.Priority))
	if err != nil {
		return nil, err
	}
	return oapi.SetExecutionPriority200JSONResponse{OperatedOKJSONResponse: operated(e)}, nil
}

// ReplayExecution handles POST /v1/executions/{execution_id}/replay.
func (h *Handlers) ReplayExecution(ctx context.Context, req oapi.ReplayExecutionRequestObject) (oapi.ReplayExecutionResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Execution, error) {
		return h.Executions.Replay(ctx, req.ExecutionID, expected)
	}, func(e execution.Execution) oapi.ReplayExecutionResponseObject {
		return oapi.ReplayExecution200JSONResponse{OperatedOKJSONResponse: operated(e)}
	}, oapi.ReplayExecutionResponseObject.VisitReplayExecutionResponse)
}

// ResumeExecution handles POST /v1/executions/{execution_id}/resume.
func (h *Handlers) ResumeExecution(ctx context.Context, req oapi.ResumeExecutionRequestObject) (oapi.ResumeExecutionResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	in := ask.Or(req.Body, oapi.ResumeExecution{})
	return answer.Write(ctx, func(ctx context.Context) (execution.Execution, error) {
		return h.Executions.Resume(ctx, req.ExecutionID, expected, ask.Millis(ask.Or(in.ResumeDelayMs, 0)))
	}, func(e execution.Execution) oapi.ResumeExecutionResponseObject {
		return oapi.ResumeExecution200JSONResponse{OperatedOKJSONResponse: operated(e)}
	}, oapi.ResumeExecutionResponseObject.VisitResumeExecutionResponse)
}
