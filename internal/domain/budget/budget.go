// Package budget holds what may be spent: amounts of free dimensions, with hard and soft limits, that are counted within periods.
// It is pure: time is an argument.
//
// What is reported counts on a budget and on every one above it, or on none of them. A hard limit is never gone over by a report:
// one that would is refused as a whole, and only the breach is noted. What workers are expected to spend is reserved beside
// what they have spent; it holds up claims, and nothing else. reference: flows-streams-budgets.md 6, 9.
package budget

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// Bounds.
const (
	MaxAmount     = 1<<53 - 1 // the largest whole number that every reader of JSON keeps
	MaxDepth      = 8         // budgets one above the other
	MaxDimensions = 32        // of one budget
)

// The bounds of the time between two resets.
const (
	MinResetInterval = time.Second
	MaxResetInterval = 10 * 365 * 24 * time.Hour
)

// OnHardLimit says what becomes of running work when its budget is exhausted.
type OnHardLimit string

// What may become of it.
const (
	Deny    OnHardLimit = "deny"    // it goes on; only claims are refused
	Suspend OnHardLimit = "suspend" // it is suspended at its next call, until something is left again
	Cancel  OnHardLimit = "cancel"  // it is cancelled at its next call
)

// Policies returns every one of them.
func Policies() []OnHardLimit { return []OnHardLimit{Deny, Suspend, Cancel} }

// Amount is one dimension of a budget.
type Amount struct {
	Hard     *int64 // what is never gone over; nil: never given, and no limit, as 0
	Soft     *int64 // what is told when it is gone over; nil: never given, and no limit, as 0
	Usage    int64  // in the present period
	Used     bool   // was ever reported
	Breached bool   // a report was refused since: what is left is less than what somebody has spent
	Reserved int64  // for whoever is at work
}

// Budget is what may be spent.
type Budget struct {
	ID                  uuid.UUID
	Namespace           string
	ScopeType           string // free labels
	ScopeID             string
	ParentID            uuid.UUID // uuid.Nil for one that stands by itself; it never changes
	OnHardLimit         OnHardLimit
	ResetInterval       time.Duration // 0 without one
	Schedule            *Schedule     // nil without one
	Amounts             map[string]Amount
	Exhausted           bool // nothing is left of a limited dimension, or one was breached; what is reserved does not count
	Breaches            int64
	SoftBreaches        int64
	LastBreachAt        time.Time // since the last reset
	LastBreachDimension string
	NextResetAt         time.Time // zero for never
	LastResetAt         time.Time
	Period              int64 // how often it was reset
	Revision            int64 // of what operators decide: reports leave it alone
	CreatedAt           time.Time
	UpdatedAt           time.Time
}

// Change is what becomes of a budget, and the events that tell it.
type Change struct {
	Budget Budget
	Events []event.Event
}

// hard returns the hard limit, 0 for none.
func (a Amount) hard() int64 { return value(a.Hard) }

// soft returns the soft limit, 0 for none.
func (a Amount) soft() int64 { return value(a.Soft) }

// spent says whether nothing is left. A report that was refused has been spent all the same: until the limit is raised, or the usage
// falls, nobody begins. Otherwise a budget that every report goes over would never hold anybody up.
func (a Amount) spent() bool { return a.hard() > 0 && (a.Usage >= a.hard() || a.Breached) }

func value(limit *int64) int64 {
	if limit == nil {
		return 0
	}
	return *limit
}

// own gives b amounts that can be changed without changing those of the budget that it was copied from.
func (b *Budget) own() {
	b.Amounts = maps.Clone(b.Amounts)
	if b.Amounts == nil {
		b.Amounts = map[string]Amount{}
	}
}

// exhausted returns the first dimension, by name, of which nothing is left.
func (b *Budget) exhausted() (dimension string, ok bool) {
	for _, dimension := range names(b.Amounts) {
		if b.Amounts[dimension].spent() {
			return dimension, true
		}
	}
	return "", false
}

// settle says whether the budget is exhausted now, and tells it when that is news.
func (c *Change) settle() {
	dimension, now := c.Budget.exhausted()
	if now == c.Budget.Exhausted {
		return
	}
	c.Budget.Exhausted = now
	if now {
		c.tellExhausted(dimension)
	} else {
		c.tell(event.BudgetAvailable, about(&c.Budget))
	}
}

// decide makes c a change that others have to read before they make another one.
func (c *Change) decide(now time.Time) {
	c.Budget.Revision++
	c.Budget.UpdatedAt = now
}

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
