package budget

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// Creation is a budget, and whether it was there before.
type Creation struct {
	Budget   Budget
	Existing bool
}

// Filter says which budgets are listed: those that fit all of what is given.
type Filter struct {
	ScopeType *string
	ScopeID   *string
	ParentID  uuid.UUID // uuid.Nil for any, or none
	Exhausted *bool
}

// Usage is what somebody reports to have spent.
type Usage struct {
	Dimensions  map[string]int64
	DedupKey    string           // "" without one; a report is counted once for each key
	Fence       *execution.Fence // of the worker that reports, nil without one
	ExecutionID uuid.UUID        // whose spending it is, uuid.Nil for nobody's
}

// Reported is what has become of a report.
type Reported struct {
	Verdict
	Budget     Budget // after it
	Directives []execution.Directive
	Remaining  map[uuid.UUID]map[string]int64 // what the budgets of the execution leave to it; nil without an execution
}

// Entry is what one execution has spent in the present period of a budget, and what is reserved for it.
type Entry struct {
	ExecutionID uuid.UUID
	Spent       map[string]int64
	Reserved    map[string]int64
	UpdatedAt   time.Time
}
