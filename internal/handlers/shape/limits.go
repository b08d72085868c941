package shape

import (
	"maps"
	"regexp"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Attached returns the budgets and quotas that an execution or a flow names itself, and what it is expected to use up.
func Attached(l *execution.Limits) (oapi.BudgetIDs, oapi.QuotaPolicyIDs, oapi.CountedAmounts) {
	if l == nil {
		return oapi.BudgetIDs{}, oapi.QuotaPolicyIDs{}, oapi.CountedAmounts{}
	}
	return IDs(l.BudgetIDs), IDs(l.QuotaIDs), Amounts(l.Estimate)
}

// IDs returns ids, none as an empty list.
func IDs(ids []uuid.UUID) []uuid.UUID {
	if ids == nil {
		return []uuid.UUID{}
	}
	return ids
}

// Amounts returns amounts by dimension, none as an empty object.
func Amounts(m map[string]int64) oapi.CountedAmounts {
	if m == nil {
		return oapi.CountedAmounts{}
	}
	return m
}

// Remaining returns what budgets leave to an execution, nil when it has none.
func Remaining(left map[uuid.UUID]map[string]int64) oapi.Remaining {
	if left == nil {
		return nil
	}
	out := make(oapi.Remaining, len(left))
	for id, amounts := range left {
		out[id.String()] = Amounts(amounts)
	}
	return out
}

// dimension is what the contract says of names, which its schema cannot.
var dimension = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// Expected checks the dimensions of an estimate. It returns CodeValidationFailed.
func Expected(estimate map[string]int64) error {
	for _, name := range slices.Sorted(maps.Keys(estimate)) {
		if !dimension.MatchString(name) {
			return fault.Invalid(fault.CodeValidationFailed, "/estimate/"+fault.Part(name),
				"A dimension is called by 1 to 64 letters, digits, dots, colons, dashes and underscores, not %q.", fault.Readable(name))
		}
	}
	return nil
}
