package executions

import (
	"context"
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// CountExecutions handles GET /v1/executions/counts.
func (h *Handlers) CountExecutions(ctx context.Context, req oapi.CountExecutionsRequestObject) (oapi.CountExecutionsResponseObject, error) {
	by, count := ask.Or(req.Params.GroupBy, "public_state"), h.Executions.CountByState
	if by == "lane" {
		count = h.Executions.CountByLane
	}
	counts, err := count(ctx)
	if err != nil {
		return nil, err
	}
	return oapi.CountExecutions200JSONResponse{GroupBy: by, Counts: counts.By, Total: counts.Total}, nil
}

// ListLeases handles GET /v1/leases.
func (h *Handlers) ListLeases(ctx context.Context, req oapi.ListLeasesRequestObject) (oapi.ListLeasesResponseObject, error) {
	p := req.Params
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[execution.Execution], error) {
		return h.Executions.Leases(ctx, execution.Leases{ExpiredAsOf: shape.Time(p.ExpiredAsOf), Lane: ask.Or(p.Lane, ""), WorkerID: ask.Or(p.WorkerID, ""),
			InstanceID: ask.Or(p.WorkerInstanceID, "")}, after, limit)
	}, lease)
	if err != nil {
		return nil, err
	}
	return oapi.ListLeases200JSONResponse{Body: oapi.LeaseList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListLeases200ResponseHeaders{Link: list.Link}}, nil
}

func lease(e *execution.Execution) oapi.Lease {
	return oapi.Lease{ExecutionID: e.ID, FlowID: wire.IDOrNull(e.FlowID), Lane: e.Lane, Kind: e.Kind, OwnershipState: oapi.OwnershipState(e.Ownership),
		LeaseID: e.Lease.ID, LeaseEpoch: e.Lease.Epoch, WorkerID: e.Lease.WorkerID, WorkerInstanceID: e.Lease.InstanceID, AttemptIndex: int32(e.AttemptIndex),
		AcquiredAt: wire.Time(e.Lease.AcquiredAt), ExpiresAt: wire.TimeOrNull(e.Lease.ExpiresAt)}
}

// ExplainExecution handles GET /v1/executions/{execution_id}/explain.
func (h *Handlers) ExplainExecution(ctx context.Context, req oapi.ExplainExecutionRequestObject) (oapi.ExplainExecutionResponseObject, error) {
	p := req.Params
	instance, named := ask.Or(p.WorkerInstanceID, ""), p.Capability != nil
	if instance != "" && named {
		f := fault.New(fault.CodeValidationFailed, "Give worker_instance_id or capability, not both.")
		f.Fields = []fault.Field{{In: fault.InQuery, Pointer: "capability", Detail: f.Message, Code: f.Code}}
		return nil, f
	}
	capabilities, err := execution.NewCapabilities(p.Capability, "worker", "capability")
	if err != nil {
		return nil, fault.MovedTo(err, fault.InQuery, "")
	}
	e, x, err := h.Executions.Explain(ctx, req.ExecutionID, instance, capabilities, named)
	if err != nil {
		return nil, err
	}
	gates := make([]oapi.Gate, len(x.Gates))
	for i, g := range x.Gates {
		evidence, err := json.Marshal(g.Evidence)
		if err != nil {
			return nil, err
		}
		gates[i] = oapi.Gate{Gate: oapi.GateName(g.Name), Met: g.Met, Since: wire.TimeOrNull(g.Since), Evidence: evidence, NextAt: wire.TimeOrNull(g.NextAt), Hint: g.Hint}
	}
	return oapi.ExplainExecution200JSONResponse{ExecutionID: e.ID, PublicState: oapi.PublicState(e.Public()), Claimable: x.Claimable, Summary: x.Summary, Gates: gates}, nil
}
