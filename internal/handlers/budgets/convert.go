package budgets

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// creation returns what a request asks to create.
func creation(b oapi.CreateBudget) budget.Create {
	out := budget.Create{ID: ask.Or(b.ID, uuid.Nil), ScopeType: ask.Or(b.ScopeType, ""), ScopeID: ask.Or(b.ScopeID, ""), ParentID: ask.Or(b.ParentID, uuid.Nil),
		Hard: b.HardLimits, Soft: b.SoftLimits, OnHardLimit: budget.OnHardLimit(ask.Or(b.OnHardLimit, oapi.OnHardLimit(budget.Deny))), ResetInterval: ask.Millis(ask.Or(b.ResetIntervalMs, 0))}
	if b.Schedule != nil {
		out.Schedule = new(budget.Schedule(*b.Schedule))
	}
	return out
}

// change returns what a request asks to change.
func change(b *oapi.PatchBudget) budget.Patch {
	out := budget.Patch{Hard: b.HardLimits, Soft: b.SoftLimits, ScopeType: some(b.ScopeType), ScopeID: some(b.ScopeID)}
	if b.OnHardLimit != nil {
		out.OnHardLimit = patch.Some(budget.OnHardLimit(*b.OnHardLimit))
	}
	if f := b.ResetIntervalMs; f.Present {
		out.ResetInterval.Present = true
		if f.Value != nil {
			out.ResetInterval.Value = new(ask.Millis(*f.Value))
		}
	}
	if f := b.Schedule; f.Present {
		out.Schedule = patch.Field[budget.Schedule]{Present: true, Value: (*budget.Schedule)(f.Value)}
	}
	return out
}

func some[T any](v *T) patch.Field[T] { return patch.Field[T]{Present: v != nil, Value: v} }

func budgetOK(b budget.Budget) oapi.BudgetOKJSONResponse {
	return oapi.BudgetOKJSONResponse{Body: body(&b), Headers: oapi.BudgetOKResponseHeaders{ETag: ask.ETag(b.Revision)}}
}

// body returns b as clients see it: the limits that were given, what was ever reported, and what is reserved now.
func body(b *budget.Budget) oapi.Budget {
	out := oapi.Budget{
		ID: b.ID, Namespace: b.Namespace, ScopeType: b.ScopeType, ScopeID: b.ScopeID, ParentID: wire.IDOrNull(b.ParentID), HardLimits: oapi.CountedAmounts{},
		SoftLimits: oapi.CountedAmounts{}, Usage: oapi.CountedAmounts{}, Reserved: oapi.CountedAmounts{}, OnHardLimit: oapi.OnHardLimit(b.OnHardLimit),
		Schedule: (*oapi.BudgetSchedule)(b.Schedule), Exhausted: b.Exhausted, BreachCount: b.Breaches, SoftBreachCount: b.SoftBreaches,
		LastBreachAt: wire.TimeOrNull(b.LastBreachAt), LastBreachDimension: wire.TextOrNull(b.LastBreachDimension), NextResetAt: wire.TimeOrNull(b.NextResetAt),
		LastResetAt: wire.TimeOrNull(b.LastResetAt), Revision: b.Revision, CreatedAt: wire.Time(b.CreatedAt), UpdatedAt: wire.Time(b.UpdatedAt),
	}
	if b.ResetInterval > 0 {
		out.ResetIntervalMs = new(b.ResetInterval.Milliseconds())
	}
	for dimension, a := range b.Amounts {
		if a.Hard != nil {
			out.HardLimits[dimension] = *a.Hard
		}
		if a.Soft != nil {
			out.SoftLimits[dimension] = *a.Soft
		}
		if a.Used {
			out.Usage[dimension] = a.Usage
		}
		if a.Reserved > 0 {
			out.Reserved[dimension] = a.Reserved
		}
	}
	return out
}

// limits returns the hard limits of b as the headers of a report tell them.
func limits(b *budget.Budget) []shape.Limit {
	var out []shape.Limit
	for _, dimension := range slices.Sorted(maps.Keys(b.Amounts)) {
		if left, limited := b.Left(dimension); limited {
			out = append(out, shape.Limit{Name: dimension, Max: *b.Amounts[dimension].Hard, Left: left, Window: b.ResetInterval, MoreAt: b.NextResetAt})
		}
	}
	return out
}
