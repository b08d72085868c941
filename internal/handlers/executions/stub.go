package executions

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func (h *Handlers) StartBulk(ctx context.Context, req oapi.StartBulkRequestObject) (oapi.StartBulkResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) GetBulk(ctx context.Context, req oapi.GetBulkRequestObject) (oapi.GetBulkResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) StopBulk(ctx context.Context, req oapi.StopBulkRequestObject) (oapi.StopBulkResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) CountExecutions(ctx context.Context, req oapi.CountExecutionsRequestObject) (oapi.CountExecutionsResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) CancelHeldExecution(ctx context.Context, req oapi.CancelHeldExecutionRequestObject) (oapi.CancelHeldExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ClaimGranted(ctx context.Context, req oapi.ClaimGrantedRequestObject) (oapi.ClaimGrantedResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) DelayExecution(ctx context.Context, req oapi.DelayExecutionRequestObject) (oapi.DelayExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ExplainExecution(ctx context.Context, req oapi.ExplainExecutionRequestObject) (oapi.ExplainExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) OperatorCancelExecution(ctx context.Context, req oapi.OperatorCancelExecutionRequestObject) (oapi.OperatorCancelExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) OperatorClaimExecution(ctx context.Context, req oapi.OperatorClaimExecutionRequestObject) (oapi.OperatorClaimExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) SetExecutionPriority(ctx context.Context, req oapi.SetExecutionPriorityRequestObject) (oapi.SetExecutionPriorityResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ReclaimGranted(ctx context.Context, req oapi.ReclaimGrantedRequestObject) (oapi.ReclaimGrantedResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) GrantReclaim(ctx context.Context, req oapi.GrantReclaimRequestObject) (oapi.GrantReclaimResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ReplayExecution(ctx context.Context, req oapi.ReplayExecutionRequestObject) (oapi.ReplayExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ResumeExecution(ctx context.Context, req oapi.ResumeExecutionRequestObject) (oapi.ResumeExecutionResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) RevokeLease(ctx context.Context, req oapi.RevokeLeaseRequestObject) (oapi.RevokeLeaseResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ListExecutionTags(ctx context.Context, req oapi.ListExecutionTagsRequestObject) (oapi.ListExecutionTagsResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) GetExecutionTag(ctx context.Context, req oapi.GetExecutionTagRequestObject) (oapi.GetExecutionTagResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) SetExecutionTag(ctx context.Context, req oapi.SetExecutionTagRequestObject) (oapi.SetExecutionTagResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) WaitForChildren(ctx context.Context, req oapi.WaitForChildrenRequestObject) (oapi.WaitForChildrenResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ListLanes(ctx context.Context, req oapi.ListLanesRequestObject) (oapi.ListLanesResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) PauseLane(ctx context.Context, req oapi.PauseLaneRequestObject) (oapi.PauseLaneResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ResumeLane(ctx context.Context, req oapi.ResumeLaneRequestObject) (oapi.ResumeLaneResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ListLeases(ctx context.Context, req oapi.ListLeasesRequestObject) (oapi.ListLeasesResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) GrantClaim(ctx context.Context, req oapi.GrantClaimRequestObject) (oapi.GrantClaimResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}
