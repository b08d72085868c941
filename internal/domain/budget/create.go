package budget

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Create is what a new budget is made of.
type Create struct {
	ID            uuid.UUID
	Namespace     string
	ScopeType     string
	ScopeID       string
	ParentID      uuid.UUID // uuid.Nil without one
	Hard          map[string]int64
	Soft          map[string]int64
	OnHardLimit   OnHardLimit   // "" for [Deny]
	ResetInterval time.Duration // 0 without one
	Schedule      *Schedule     // nil without one
}

// New returns a budget of which nothing is used. It returns CodeValidationFailed or CodeOutOfRange, pointing at what cannot be.
func New(in Create, now time.Time) (Change, error) {
	b := Budget{
		ID: in.ID, Namespace: in.Namespace, ScopeType: in.ScopeType, ScopeID: in.ScopeID, ParentID: in.ParentID, OnHardLimit: in.OnHardLimit,
		ResetInterval: in.ResetInterval, Schedule: in.Schedule, Amounts: map[string]Amount{}, Revision: 1, CreatedAt: now, UpdatedAt: now,
	}
	if b.OnHardLimit == "" {
		b.OnHardLimit = Deny
	}
	if err := b.limit(given(in.Hard), given(in.Soft)); err != nil {
		return Change{}, err
	}
	if err := b.plan(now); err != nil {
		return Change{}, err
	}
	c := Change{Budget: b}
	c.tell(event.BudgetCreated, created(&b))
	return c, nil
}

// given returns limits as a change that gives them.
func given(limits map[string]int64) map[string]*int64 {
	all := make(map[string]*int64, len(limits))
	for dimension, n := range limits {
		all[dimension] = &n
	}
	return all
}

// plan checks how b is reset and says when it is reset next.
func (b *Budget) plan(now time.Time) error {
	if b.ResetInterval != 0 && b.Schedule != nil {
		return fault.Invalid(fault.CodeValidationFailed, "/schedule", "A budget is reset by an interval or by a schedule, not by both. Send null for the other one.")
	}
	if b.ResetInterval != 0 && (b.ResetInterval < MinResetInterval || b.ResetInterval > MaxResetInterval) {
		return fault.Invalid(fault.CodeValidationFailed, "/reset_interval_ms", "The time between two resets must be %d to %d milliseconds.",
			MinResetInterval.Milliseconds(), MaxResetInterval.Milliseconds())
	}
	next, err := b.fresh(now)
	b.NextResetAt = next
	return err
}

// Deleted returns the event of a budget that goes. It returns CodeBudgetInUse while it is the parent of others.
func (b Budget) Deleted(children int64) (event.Event, error) {
	if children > 0 {
		return event.Event{}, fault.New(fault.CodeBudgetInUse, "Budget %s is the parent of %d others. Delete them first.", b.ID, children).With("children", children)
	}
	c := Change{Budget: b}
	c.tell(event.BudgetDeleted, about(&b))
	return c.Events[0], nil
}
