package budget

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// subject is what every event of a budget says.
type subject struct {
	BudgetID  uuid.UUID `json:"budget_id"`
	ScopeType string    `json:"scope_type"`
	ScopeID   string    `json:"scope_id"`
}

func about(b *Budget) subject { return subject{b.ID, b.ScopeType, b.ScopeID} }

// limited is what is said of a limit that was met.
type limited struct {
	subject
	Dimension   string      `json:"dimension"`
	Current     int64       `json:"current_usage"`
	Delta       *int64      `json:"delta,omitempty"` // of the report that has met it
	Limit       int64       `json:"limit"`
	OnHardLimit OnHardLimit `json:"on_hard_limit,omitempty"`
	NextResetAt event.Stamp `json:"next_reset_at,omitzero"`
}

// tell adds an event.
func (c *Change) tell(kind event.Type, data any) {
	revision := c.Budget.Revision
	c.Events = append(c.Events, event.Event{Namespace: c.Budget.Namespace, Type: kind, Revision: &revision, Data: data})
}

func (c *Change) tellExhausted(dimension string) {
	b := &c.Budget
	a := b.Amounts[dimension]
	c.tell(event.BudgetExhausted, limited{
		subject: about(b), Dimension: dimension, Current: a.Usage, Limit: a.hard(), OnHardLimit: b.OnHardLimit, NextResetAt: event.Stamp(b.NextResetAt),
	})
}

// tellBreach tells that a report of delta has met a limit.
func (c *Change) tellBreach(kind event.Type, v Verdict, delta int64) {
	c.tell(kind, limited{
		subject: about(&c.Budget), Dimension: v.Dimension, Current: v.Current, Delta: &delta, Limit: v.Limit, NextResetAt: event.Stamp(c.Budget.NextResetAt),
	})
}

// creation is what is said of a new budget.
type creation struct {
	subject
	ParentID      uuid.UUID        `json:"parent_id,omitzero"`
	Hard          map[string]int64 `json:"hard_limits"`
	Soft          map[string]int64 `json:"soft_limits"`
	OnHardLimit   OnHardLimit      `json:"on_hard_limit"`
	ResetInterval int64            `json:"reset_interval_ms,omitempty"`
	Schedule      *Schedule        `json:"schedule,omitempty"`
	NextResetAt   event.Stamp      `json:"next_reset_at,omitzero"`
}

func created(b *Budget) creation {
	return creation{about(b), b.ParentID, b.HardLimits(), b.SoftLimits(), b.OnHardLimit, b.ResetInterval.Milliseconds(), b.Schedule, event.Stamp(b.NextResetAt)}
}

// updated names the members that were changed.
type updated struct {
	subject
	Changed []string `json:"changed"`
}

// wasReset says what the period that has ended had used.
type wasReset struct {
	subject
	By          string           `json:"by"`
	Usage       map[string]int64 `json:"usage"`
	Period      int64            `json:"period"`
	NextResetAt event.Stamp      `json:"next_reset_at,omitzero"`
}

// toppedUp says by how much hard limits were raised, and to what.
type toppedUp struct {
	subject
	Dimensions map[string]int64 `json:"dimensions"`
	Hard       map[string]int64 `json:"hard_limits"`
}

// released says how much was given back.
type released struct {
	subject
	Dimensions map[string]int64 `json:"dimensions"`
}
