package budget

import (
	"maps"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

// Patch is what is changed of a budget. Limits are merged with those that there are: nil takes one away.
type Patch struct {
	ScopeType     patch.Field[string]
	ScopeID       patch.Field[string]
	Hard          map[string]*int64
	Soft          map[string]*int64
	OnHardLimit   patch.Field[OnHardLimit] // null for [Deny]
	ResetInterval patch.Field[time.Duration]
	Schedule      patch.Field[Schedule]
}

// Patch changes what is given. What is so already stays, and changes nothing. Another interval, or schedule, counts from now. It
// returns CodeValidationFailed or CodeOutOfRange, pointing at what cannot be.
func (b Budget) Patch(p Patch, now time.Time) (Change, error) {
	n := b
	n.own()
	p.ScopeType.Into(&n.ScopeType)
	p.ScopeID.Into(&n.ScopeID)
	p.OnHardLimit.Into(&n.OnHardLimit)
	if n.OnHardLimit == "" {
		n.OnHardLimit = Deny
	}
	p.ResetInterval.Into(&n.ResetInterval)
	if p.Schedule.Present {
		n.Schedule = p.Schedule.Value
	}
	if err := n.limit(p.Hard, p.Soft); err != nil {
		return Change{}, err
	}
	if !samePlan(&b, &n) {
		if err := n.plan(now); err != nil {
			return Change{}, err
		}
	}
	changed := differences(&b, &n)
	if len(changed) == 0 {
		return Change{Budget: b}, nil
	}
	c := Change{Budget: n}
	c.decide(now)
	c.tell(event.BudgetUpdated, updated{about(&n), changed})
	c.settle()
	return c, nil
}

// limit gives b other limits. It returns CodeValidationFailed when b had too many dimensions.
func (b *Budget) limit(hard, soft map[string]*int64) error {
	for _, kind := range []struct {
		pointer string
		limits  map[string]*int64
		of      func(*Amount) **int64
	}{
		{"/hard_limits", hard, func(a *Amount) **int64 { return &a.Hard }},
		{"/soft_limits", soft, func(a *Amount) **int64 { return &a.Soft }},
	} {
		for _, dimension := range names(kind.limits) {
			limit := kind.limits[dimension]
			if err := checkName(kind.pointer, dimension); err != nil {
				return err
			}
			if limit != nil {
				if err := checkAmount(kind.pointer, dimension, *limit); err != nil {
					return err
				}
				own := *limit
				limit = &own
			}
			a := b.Amounts[dimension]
			before := a.hard()
			*kind.of(&a) = limit
			a.Breached = a.Breached && a.hard() == before
			b.put(dimension, a)
		}
		if len(kind.limits) > 0 && len(b.Amounts) > MaxDimensions {
			return fault.Invalid(fault.CodeValidationFailed, kind.pointer, "The budget would have %d dimensions; it cannot have more than %d.", len(b.Amounts), MaxDimensions)
		}
	}
	return nil
}

// limits returns what was given as limits.
func (b *Budget) limits(of func(Amount) *int64) map[string]int64 {
	all := map[string]int64{}
	for dimension, a := range b.Amounts {
		if limit := of(a); limit != nil {
			all[dimension] = *limit
		}
	}
	return all
}

// HardLimits returns the hard limits that were given, also those that are 0.
func (b Budget) HardLimits() map[string]int64 {
	return b.limits(func(a Amount) *int64 { return a.Hard })
}

// SoftLimits returns the soft limits that were given, also those that are 0.
func (b Budget) SoftLimits() map[string]int64 {
	return b.limits(func(a Amount) *int64 { return a.Soft })
}

// samePlan says whether two budgets are reset alike.
func samePlan(a, b *Budget) bool {
	if a.Schedule == nil || b.Schedule == nil {
		return a.Schedule == b.Schedule && a.ResetInterval == b.ResetInterval
	}
	return *a.Schedule == *b.Schedule && a.ResetInterval == b.ResetInterval
}

// differences returns the names of the members in which an operator has made two budgets differ.
func differences(a, b *Budget) []string {
	var changed []string
	for _, member := range []struct {
		name string
		same bool
	}{
		{"scope_type", a.ScopeType == b.ScopeType},
		{"scope_id", a.ScopeID == b.ScopeID},
		{"hard_limits", maps.Equal(a.HardLimits(), b.HardLimits())},
		{"soft_limits", maps.Equal(a.SoftLimits(), b.SoftLimits())},
		{"on_hard_limit", a.OnHardLimit == b.OnHardLimit},
		{"reset_interval_ms", a.ResetInterval == b.ResetInterval},
		{"schedule", samePlan(&Budget{Schedule: a.Schedule}, &Budget{Schedule: b.Schedule})},
	} {
		if !member.same {
			changed = append(changed, member.name)
		}
	}
	return changed
}
