package executions

import (
	"context"
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
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
	after, err := page.Parse(ask.Or(p.Cursor, ""))
	if err != nil {
		return nil, err
	}
	found, err := h.Executions.Leases(ctx, execution.Leases{ExpiredAsOf: shape.Time(p.ExpiredAsOf), Lane: ask.Or(p.Lane, ""), WorkerID: ask.Or(p.WorkerID, ""),
		InstanceID: ask.Or(p.WorkerInstanceID, "")}, after, ask.Limit(p.Limit))
	if err != nil {
		return nil, err
	}
	items := make([]oapi.Lease, len(found.Items))
	for i := range found.Items {
		items[i] = lease(&found.Items[i])
	}
	next, link := ask.Next(ctx, found.Next)
	return oapi.ListLeases200JSONResponse{Body: oapi.LeaseList{Items: items, NextCursor: next}, Headers: oapi.ListLeases200ResponseHeaders{Link: link}}, nil
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

// tags reads tag filters, each key:value.
func tags(filters []string) ([]execution.Tag, error) {
	var all []execution.Tag
	for _, t := range filters {
		key, value, err := ask.Tag(t)
		if err != nil {
			return nil, err
		}
		all = append(all, execution.Tag{Key: key, Value: value})
	}
	return all, nil
}
