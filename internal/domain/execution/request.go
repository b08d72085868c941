package execution

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Filter selects executions. Empty fields select everything; all tags must match.
type Filter struct {
	Lane          string     `json:"lane,omitempty"`
	State         Public     `json:"public_state,omitempty"`
	FlowID        uuid.UUID  `json:"flow_id,omitzero"`
	Kind          string     `json:"kind,omitempty"`
	Tags          []tag.Pair `json:"tag,omitempty"`
	Worker        string     `json:"worker,omitempty"`
	CreatedAfter  time.Time  `json:"created_after,omitzero"` // at it, too
	CreatedBefore time.Time  `json:"created_before,omitzero"`
}

// isZero says whether f selects everything.
func (f *Filter) isZero() bool {
	return f.Lane == "" && f.State == "" && f.FlowID == uuid.Nil && f.Kind == "" && len(f.Tags) == 0 && f.Worker == "" && f.CreatedAfter.IsZero() && f.CreatedBefore.IsZero()
}

// Created is the answer of a create. Existing means that the id or the idempotency_key was there already: nothing was
// changed.
type Created struct {
	Execution Execution
	Existing  bool
}

// Item is the outcome of one part of a batch: a value, or the refusal of this part.
type Item[T any] struct {
	Value T
	Err   error
}

// ClaimRequest is what a worker asks for.
type ClaimRequest struct {
	Lanes        []string
	WorkerID     string
	InstanceID   string
	Capabilities Capabilities
	TTL          time.Duration
	Max          int
	Reclaim      bool          // also take over lost leases
	Wait         time.Duration // how long to wait for work
}

// Claim is one execution that a worker got.
type Claim struct {
	Execution Execution
	Kind      ClaimKind
	Inputs    map[string]Value // results of others, by key or id
	Allowance Allowance
}

// Claimed is the answer to a claim.
type Claimed struct {
	Claims     []Claim // nil when there was nothing to do
	Directives []Directive
}

// Report is the answer to a worker's call. Replayed means that the same call had been answered before: nothing was changed.
type Report struct {
	Execution  Execution
	Replayed   bool
	RetryAt    time.Time // when what failed is tried again, zero when it is not
	Cancelled  bool      // the failure of what was to end has cancelled it
	Directives []Directive
	Allowance  Allowance // of what goes on
}

// GrantRequest asks for the reservation of an execution.
type GrantRequest struct {
	Lane         string
	WorkerID     string
	InstanceID   string
	Capabilities Capabilities
	TTL          time.Duration
}

// Leases selects leases. Empty fields select everything.
type Leases struct {
	ExpiredAsOf time.Time
	Lane        string
	WorkerID    string
	InstanceID  string
}

// Counts says how many executions there are, by what they were grouped by.
type Counts struct {
	By    map[string]int64
	Total int64
}

// Ending is one item of a batch of completions: Failure when the attempt failed.
type Ending struct {
	Fence      Fence
	Result     *Value
	Failure    *Failure
	RetryAfter *time.Duration
	Err        error // the item was refused before it came here
}

// Revoked is the answer to the revocation of a lease. Satisfied says why there was nothing to do.
type Revoked struct {
	Execution Execution
	Satisfied string
}

// WorkOf selects executions by what they belong to.
type WorkOf struct {
	Runs  []uuid.UUID
	Flows []uuid.UUID
	IDs   []uuid.UUID
}

// Worked is an execution with the attempts at it.
type Worked struct {
	Execution Execution
	Attempts  []Attempt
}
