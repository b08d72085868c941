package budget

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Outcome is what has become of a report.
type Outcome string

// The outcomes.
const (
	OK             Outcome = "ok"
	SoftBreach     Outcome = "soft_breach"     // it was counted, and is over a soft limit now
	HardBreach     Outcome = "hard_breach"     // it was not counted: it would have been over a hard limit
	AlreadyApplied Outcome = "already_applied" // it was counted before
)

// Outcomes returns every outcome.
func Outcomes() []Outcome { return []Outcome{OK, SoftBreach, HardBreach, AlreadyApplied} }

// Verdict is what is answered to a report.
type Verdict struct {
	Outcome   Outcome
	BudgetID  uuid.UUID // whose limit was met; uuid.Nil when none was
	Dimension string
	Current   int64 // its usage: before the report when it was not counted, else after it
	Limit     int64 // the limit that was met
}

// Apply counts what was spent on a budget and on those above it, or on none. chain is the budget, its parent, and so on; the
// changes are in the same order.
//
// A report that would take a dimension over its hard limit is refused: the first budget to refuse it notes the breach, counts as
// exhausted from then on, and nothing else changes anywhere. One that takes it over its soft limit is counted, and the first such limit is told. A limit
// that is just reached is not gone over. It returns CodeOutOfRange when an amount gets too large to be counted, and
// CodeValidationFailed for dimensions that no budget can have. reference: flows-streams-budgets.md 6.3.
func Apply(chain []Budget, dims map[string]int64, now time.Time) ([]Change, Verdict, error) {
	if err := checkReport(chain, dims); err != nil {
		return nil, Verdict{}, err
	}
	after := make([]Change, len(chain))
	for i, b := range chain {
		after[i] = Change{Budget: b}
	}
	if i, v, met := meets(chain, dims, HardBreach); met {
		after[i].breach(v, dims[v.Dimension], now)
		return after, v, nil
	}
	i, v, met := meets(chain, dims, SoftBreach)
	for j := range after {
		c := &after[j]
		c.add(dims, now)
		if met && j == i {
			c.Budget.SoftBreaches++
			c.tellBreach(event.BudgetSoftBreached, v, dims[v.Dimension])
		}
		c.settle()
	}
	if !met {
		v.Outcome = OK
	}
	return after, v, nil
}

// meets returns the first limit of a kind that a report would go over: the budgets in their order, the dimensions by name.
func meets(chain []Budget, dims map[string]int64, kind Outcome) (budget int, v Verdict, met bool) {
	for i, b := range chain {
		for _, dimension := range names(dims) {
			a := b.Amounts[dimension]
			after := a.Usage + dims[dimension]
			limit, current := a.hard(), a.Usage
			if kind == SoftBreach {
				limit, current = a.soft(), after
			}
			if limit > 0 && after > limit {
				return i, Verdict{kind, b.ID, dimension, current, limit}, true
			}
		}
	}
	return 0, Verdict{}, false
}

// breach notes that a report was refused. The revision stays: whoever watches over the budget has not changed it.
func (c *Change) breach(v Verdict, delta int64, now time.Time) {
	c.Budget.Breaches++
	c.Budget.LastBreachAt, c.Budget.LastBreachDimension = now, v.Dimension
	c.Budget.own()
	a := c.Budget.Amounts[v.Dimension]
	a.Breached = true
	c.Budget.Amounts[v.Dimension] = a
	c.tellBreach(event.BudgetBreached, v, delta)
	c.settle()
}

func (c *Change) add(dims map[string]int64, now time.Time) {
	c.Budget.own()
	for dimension, delta := range dims {
		a := c.Budget.Amounts[dimension]
		a.Usage += delta
		a.Used = true
		c.Budget.Amounts[dimension] = a
	}
	c.Budget.UpdatedAt = now
}

// checkReport refuses what cannot be counted on each of the budgets.
func checkReport(chain []Budget, dims map[string]int64) error {
	if err := checkAmounts("/dimensions", dims); err != nil {
		return err
	}
	for _, b := range chain {
		fresh := 0
		for _, dimension := range names(dims) {
			a, known := b.Amounts[dimension]
			if a.Usage > MaxAmount-dims[dimension] {
				return fault.Invalid(fault.CodeOutOfRange, at("/dimensions", dimension),
					"Budget %s has counted %d of %s; with %d more it were more than %d.", b.ID, a.Usage, dimension, dims[dimension], int64(MaxAmount))
			}
			if !known {
				fresh++
			}
			if !known && len(b.Amounts)+fresh > MaxDimensions {
				return fault.Invalid(fault.CodeValidationFailed, at("/dimensions", dimension), "Budget %s has %d dimensions; it cannot have more than %d.", b.ID, len(b.Amounts), MaxDimensions)
			}
		}
	}
	return nil
}
