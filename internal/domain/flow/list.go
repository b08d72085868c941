package flow

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Creation is the answer of a create. Existing means that the id was there already: nothing was changed.
type Creation struct {
	Flow     Flow
	Existing bool
}

// CancelOutcome is the answer of a cancellation: the flow, and how far the cancellation of its members has come.
type CancelOutcome struct {
	Flow    Flow
	Members Members
}

// Members says how many members a cancellation concerns, and how many of them have not ended.
type Members struct {
	Total       int
	Outstanding int
	Failed      []uuid.UUID
}

// CancelProgress tells how far the cancellation of a flow has come.
type CancelProgress struct {
	Cancellation
	Total       int64 // members of the flow
	Outstanding int
	Members     []uuid.UUID // the first of those that are outstanding
	Failed      []uuid.UUID // members that could not be cancelled
}

// Observation is the answer of an observation. New means that there was no such step before.
type Observation struct {
	Step Step
	New  bool
}

// Filter selects flows. Empty fields select everything; all tags must match.
type Filter struct {
	OwnerSessionKey string
	Status          Status
	ControllerID    string
	Kind            string
	Tags            []tag.Pair
}

// TrailFilter selects events of a flow's trail: its own and its steps', unless All asks for whatever carries its id.
type TrailFilter struct {
	All   bool
	Types []event.Type
}

// Retention says after how many days without a change an ended flow is deleted, by its status. nil leaves it to whoever has a
// default, and keeps it for ever where nobody has.
type Retention struct {
	Finished  *int
	Failed    *int
	Cancelled *int
}

// DefaultRetention is kept unless the configuration says otherwise. reference: runs-and-taskflows.md B11.
func DefaultRetention() Retention {
	return Retention{Finished: new(30), Failed: new(365), Cancelled: new(30)}
}

// Days returns the number of days for a status, nil for ever. What is negative counts as 0.
func (r Retention) Days(s Status) *int {
	days := map[Status]*int{Finished: r.Finished, Failed: r.Failed, Cancelled: r.Cancelled}[s]
	if days == nil {
		return nil
	}
	return new(max(*days, 0))
}

// Or returns r with what it leaves open taken from other.
func (r Retention) Or(other Retention) Retention {
	or := func(a, b *int) *int {
		if a == nil {
			return b
		}
		return a
	}
	return Retention{Finished: or(r.Finished, other.Finished), Failed: or(r.Failed, other.Failed), Cancelled: or(r.Cancelled, other.Cancelled)}
}

// Pruned counts what retention deleted, or would delete: flows by their status, and the executions that they owned.
type Pruned struct {
	Flows      map[Status]int
	Executions int
	DryRun     bool
}
