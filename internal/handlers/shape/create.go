package shape

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Creation returns what a request asks to create. It returns CodeValidationFailed.
func Creation(in *oapi.CreateExecution) (execution.Create, error) {
	out := execution.Create{
		ID: ask.Or(in.ID, uuid.Nil), Lane: in.Lane, Kind: ask.Or(in.Kind, ""), FlowID: ask.Or(in.FlowID, uuid.Nil), Key: ask.Or(in.Key, ""),
		Priority: int(ask.Or(in.Priority, 0)), Payload: Value(in.Payload), Policy: in.Policy, Required: in.RequiredCapabilities, Tags: in.Tags,
		Delay: ask.Millis(ask.Or(in.DelayMs, 0)), DelayUntil: Time(in.DelayUntil), DeadlineAt: Time(in.DeadlineAt), IdempotencyKey: ask.Or(in.IdempotencyKey, ""),
		BudgetIDs: in.BudgetIds, QuotaIDs: in.QuotaPolicyIds, Estimate: in.Estimate,
	}
	switch {
	case in.DelayUntil != nil && in.DelayMs != nil:
		return out, fault.Invalid(fault.CodeValidationFailed, "/delay_ms", "Give delay_until or delay_ms, not both.")
	case in.Key != nil && in.FlowID == nil:
		return out, fault.Invalid(fault.CodeValidationFailed, "/key", "A key names a member of a flow: give flow_id, too.")
	}
	return out, Expected(in.Estimate)
}
