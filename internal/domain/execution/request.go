package execution

import (
	"time"

	"github.com/google/uuid"
)

// Filter selects executions. Empty fields select everything; all tags must match.
type Filter struct {
	Lane   string
	State  Public
	FlowID uuid.UUID
	Kind   string
	Tags   []Tag
	Worker string
}

// Tag is one tag with its value.
type Tag struct {
	Key   string
	Value string
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
}

// Report is the answer to a worker's call. Replayed means that the same call had been answered before: nothing was changed.
type Report struct {
	Execution Execution
	Replayed  bool
	RetryAt   time.Time // when what failed is tried again, zero when it is not
}

// Ending is one item of a batch of completions: Failure when the attempt failed.
type Ending struct {
	Fence      Fence
	Result     *Value
	Failure    *Failure
	RetryAfter *time.Duration
	Err        error // the item was refused before it came here
}
