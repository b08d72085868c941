package executions

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// ClaimExecutions handles POST /v1/claims.
func (h *Handlers) ClaimExecutions(ctx context.Context, req oapi.ClaimExecutionsRequestObject) (oapi.ClaimExecutionsResponseObject, error) {
	in, err := claiming(ctx, *req.Body)
	if err != nil {
		return nil, err
	}
	wait, applied := ask.Wait(req.Params.Prefer)
	in.Wait = wait
	return answer.Write(ctx, func(ctx context.Context) (execution.Claimed, error) {
		return h.Executions.Claim(ctx, in)
	}, func(got execution.Claimed) oapi.ClaimExecutionsResponseObject {
		if got.Claims == nil { // no claims at all are those of a repeated request, which are over
			return oapi.ClaimExecutions204Response{Headers: oapi.ClaimExecutions204ResponseHeaders{PreferenceApplied: applied, RetryAfter: h.Executions.RetryAfter()}}
		}
		headers := oapi.ClaimExecutions200ResponseHeaders{PreferenceApplied: applied}
		if ask.Text(ctx) {
			return oapi.ClaimExecutions200TextResponse{Body: variables(got.Claims), Headers: headers}
		}
		return oapi.ClaimExecutions200JSONResponse{Body: claimed(got), Headers: headers}
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
	return ask.Millis(*ms)
}

func claimed(got execution.Claimed) oapi.Claims {
	out := oapi.Claims{Claims: make([]oapi.Claim, len(got.Claims)), Directives: worker.Directives(got.Directives)}
	for i := range got.Claims {
		out.Claims[i] = claim(&got.Claims[i])
	}
	return out
}

func claim(c *execution.Claim) oapi.Claim {
	f := c.Execution.Fence()
	return oapi.Claim{
		Execution: shape.Execution(&c.Execution), Handle: f.Handle(), Kind: oapi.ClaimKind(c.Kind), LeaseExpiresAt: wire.Time(c.Execution.Lease.ExpiresAt),
		Fence:  oapi.Fence{LeaseID: f.LeaseID, LeaseEpoch: f.LeaseEpoch, AttemptID: f.AttemptID, AttemptIndex: int32(f.AttemptIndex)},
		Inputs: inputs(c), BudgetRemaining: shape.Remaining(c.Allowance.Remaining),
	}
}

// inputs returns what other members have passed on.
func inputs(c *execution.Claim) map[string]oapi.Document {
	out := make(map[string]oapi.Document, len(c.Inputs))
	for name, v := range c.Inputs {
		out[name] = shape.Document(v.Bytes, v.Encoding)
	}
	return out
}

func claimsOK(got execution.Claimed) oapi.ClaimsOKJSONResponse {
	return oapi.ClaimsOKJSONResponse{Body: claimed(got)}
}

// ClaimGranted handles POST /v1/executions/{execution_id}/claim.
func (h *Handlers) ClaimGranted(ctx context.Context, req oapi.ClaimGrantedRequestObject) (oapi.ClaimGrantedResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (execution.Claimed, error) {
		return h.useGrant(ctx, req.ExecutionID, execution.GrantsClaim, req.Body)
	}, func(got execution.Claimed) oapi.ClaimGrantedResponseObject {
		return oapi.ClaimGranted200JSONResponse{ClaimsOKJSONResponse: claimsOK(got)}
	}, oapi.ClaimGrantedResponseObject.VisitClaimGrantedResponse)
}

// ReclaimGranted handles POST /v1/executions/{execution_id}/reclaim.
func (h *Handlers) ReclaimGranted(ctx context.Context, req oapi.ReclaimGrantedRequestObject) (oapi.ReclaimGrantedResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (execution.Claimed, error) {
		return h.useGrant(ctx, req.ExecutionID, execution.GrantsReclaim, req.Body)
	}, func(got execution.Claimed) oapi.ReclaimGrantedResponseObject {
		return oapi.ReclaimGranted200JSONResponse{ClaimsOKJSONResponse: claimsOK(got)}
	}, oapi.ReclaimGrantedResponseObject.VisitReclaimGrantedResponse)
}

func (h *Handlers) useGrant(ctx context.Context, id uuid.UUID, kind execution.GrantKind, in *oapi.UseGrant) (execution.Claimed, error) {
	return h.Executions.ClaimGranted(ctx, id, execution.Use{GrantID: in.GrantID, Kind: kind}, in.WorkerID, in.WorkerInstanceID, ttl(in.LeaseTTLMs))
}

// OperatorClaimExecution handles POST /v1/executions/{execution_id}/operator-claim.
func (h *Handlers) OperatorClaimExecution(ctx context.Context, req oapi.OperatorClaimExecutionRequestObject) (oapi.OperatorClaimExecutionResponseObject, error) {
	in := ask.Or(req.Body, oapi.OperatorClaim{})
	return answer.Write(ctx, func(ctx context.Context) (execution.Claimed, error) {
		return h.Executions.ClaimByHand(ctx, req.ExecutionID, ttl(in.LeaseTTLMs))
	}, func(got execution.Claimed) oapi.OperatorClaimExecutionResponseObject {
		return oapi.OperatorClaimExecution200JSONResponse{ClaimsOKJSONResponse: claimsOK(got)}
	}, oapi.OperatorClaimExecutionResponseObject.VisitOperatorClaimExecutionResponse)
}

// GrantClaim handles POST /v1/workers/{worker_id}/claim-grants.
func (h *Handlers) GrantClaim(ctx context.Context, req oapi.GrantClaimRequestObject) (oapi.GrantClaimResponseObject, error) {
	capabilities, err := execution.NewCapabilities(req.Body.Capabilities, "worker", "/capabilities")
	if err != nil {
		return nil, err
	}
	in := execution.GrantRequest{Lane: req.Body.Lane, WorkerID: req.WorkerID, InstanceID: req.Body.WorkerInstanceID, Capabilities: capabilities, TTL: ask.Millis(req.Body.GrantTTLMs)}
	return answer.Write(ctx, func(ctx context.Context) (*execution.Execution, error) {
		return h.Executions.Reserve(ctx, in)
	}, func(e *execution.Execution) oapi.GrantClaimResponseObject {
		if e == nil {
			return oapi.GrantClaim204Response{}
		}
		return oapi.GrantClaim200JSONResponse{Body: grant(e)}
	}, oapi.GrantClaimResponseObject.VisitGrantClaimResponse)
}

// GrantReclaim handles POST /v1/executions/{execution_id}/reclaim-grants.
func (h *Handlers) GrantReclaim(ctx context.Context, req oapi.GrantReclaimRequestObject) (oapi.GrantReclaimResponseObject, error) {
	capabilities, err := execution.NewCapabilities(req.Body.Capabilities, "worker", "/capabilities")
	if err != nil {
		return nil, err
	}
	in := execution.GrantRequest{WorkerID: req.Body.WorkerID, InstanceID: req.Body.WorkerInstanceID, Capabilities: capabilities, TTL: ask.Millis(req.Body.GrantTTLMs)}
	return answer.Write(ctx, func(ctx context.Context) (execution.Execution, error) {
		return h.Executions.ReserveLost(ctx, req.ExecutionID, in)
	}, func(e execution.Execution) oapi.GrantReclaimResponseObject {
		return oapi.GrantReclaim200JSONResponse{Body: grant(&e)}
	}, oapi.GrantReclaimResponseObject.VisitGrantReclaimResponse)
}

func grant(e *execution.Execution) oapi.Grant {
	return oapi.Grant{GrantID: e.Grant.ID, ExecutionID: e.ID, Lane: e.Lane, Kind: oapi.GrantKind(e.Grant.Kind), ExpiresAt: wire.Time(e.Grant.ExpiresAt)}
}
