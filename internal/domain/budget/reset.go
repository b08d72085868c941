package budget

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Due says whether the time of the next reset has come.
func (b Budget) Due(now time.Time) bool { return !b.NextResetAt.IsZero() && !b.NextResetAt.After(now) }

// Reset begins a new period: nothing is used, and what the last breach was is forgotten; how many there were, and what is reserved,
// stays. By hand it can be done at any time. Otherwise nothing changes before the reset is due; periods that nobody has begun in time
// are left out. reference: flows-streams-budgets.md 6.5.
func (b Budget) Reset(manual bool, now time.Time) Change {
	if !manual && !b.Due(now) {
		return Change{Budget: b}
	}
	next := b.following(now)
	if manual {
		next, _ = b.fresh(now) // as in following
	}
	c := Change{Budget: b}
	c.Budget.own()
	used := map[string]int64{}
	for dimension, a := range b.Amounts {
		if a.Used {
			used[dimension] = a.Usage
		}
		a.Usage, a.Breached = 0, false
		c.Budget.Amounts[dimension] = a
	}
	c.Budget.LastBreachAt, c.Budget.LastBreachDimension = time.Time{}, ""
	c.Budget.LastResetAt, c.Budget.NextResetAt = now, next
	c.Budget.Period++
	c.decide(now)
	by := "schedule"
	if manual {
		by = "request"
	}
	c.tell(event.BudgetReset, wasReset{about(&b), by, used, c.Budget.Period, event.Stamp(next)})
	c.settle()
	return c
}

// fresh returns when a budget is reset next whose period begins now, zero for never.
func (b *Budget) fresh(now time.Time) (time.Time, error) {
	switch {
	case b.ResetInterval != 0:
		return now.Add(b.ResetInterval), nil
	case b.Schedule != nil:
		return b.Schedule.Next(now)
	default:
		return time.Time{}, nil
	}
}

// following returns the first time after now of those that b, whose reset is due, is to be reset at: intervals do not drift. A
// schedule was checked when it was given; if it names nothing any more, that is never.
func (b *Budget) following(now time.Time) time.Time {
	if b.ResetInterval != 0 {
		return now.Add(b.ResetInterval - now.Sub(b.NextResetAt)%b.ResetInterval)
	}
	next, _ := b.fresh(now)
	return next
}

// TopUp raises hard limits. It returns CodeValidationFailed for a dimension that has none, and CodeOutOfRange when one gets
// too large.
func (b Budget) TopUp(dims map[string]int64, now time.Time) (Change, error) {
	if err := checkAmounts("/dimensions", dims); err != nil {
		return Change{}, err
	}
	c := Change{Budget: b}
	c.Budget.own()
	raised := toppedUp{subject: about(&b), Dimensions: map[string]int64{}, Hard: map[string]int64{}}
	for _, dimension := range names(dims) {
		a, by := b.Amounts[dimension], dims[dimension]
		limit := a.hard()
		if limit == 0 {
			return Change{}, fault.Invalid(fault.CodeValidationFailed, at("/dimensions", dimension), "%s has no hard limit to raise.", dimension)
		}
		if limit > MaxAmount-by {
			return Change{}, fault.Invalid(fault.CodeOutOfRange, at("/dimensions", dimension), "The hard limit of %s is %d; with %d more it were more than %d.", dimension, limit, by, int64(MaxAmount))
		}
		if by == 0 {
			continue
		}
		limit += by
		a.Hard, a.Breached = &limit, false
		c.Budget.Amounts[dimension] = a
		raised.Dimensions[dimension], raised.Hard[dimension] = by, limit
	}
	if len(raised.Dimensions) == 0 {
		return Change{Budget: b}, nil
	}
	c.decide(now)
	c.tell(event.BudgetToppedUp, raised)
	c.settle()
	return c, nil
}

// Refund takes back what was counted, as far as it still is. What was counted in an earlier period is not in this one: whoever
// calls it leaves that out. reference: flows-streams-budgets.md 6.6.
func (b Budget) Refund(spent map[string]int64, now time.Time) Change {
	c := Change{Budget: b}
	c.Budget.own()
	back := map[string]int64{}
	for dimension, n := range spent {
		a := c.Budget.Amounts[dimension]
		if n = min(n, a.Usage); n > 0 {
			a.Usage, a.Breached = a.Usage-n, false
			c.Budget.Amounts[dimension] = a
			back[dimension] = n
		}
	}
	if len(back) == 0 {
		return Change{Budget: b}
	}
	c.decide(now)
	c.tell(event.BudgetReleased, released{about(&b), back})
	c.settle()
	return c
}
