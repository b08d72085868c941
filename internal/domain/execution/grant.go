package execution

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Grant reserves an execution for a worker: the first half of a claim in two steps. While it stands nobody else can claim the
// execution, which waits as before. reference: executions.md 1.4.
type Grant struct {
	ID         uuid.UUID `json:"grant_id"`
	Kind       GrantKind `json:"kind"`
	WorkerID   string    `json:"worker_id"`
	InstanceID string    `json:"worker_instance_id"`
	IssuedAt   time.Time `json:"issued_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// GrantKind says what a grant gives.
type GrantKind string

// The kinds.
const (
	GrantsClaim   GrantKind = "claim"
	GrantsReclaim GrantKind = "reclaim"
)

// granted says whether a grant stands.
func (e *Execution) granted(now time.Time) bool {
	return e.Grant != nil && e.Grant.ExpiresAt.After(now)
}

// Reserve grants a claimable execution to a worker. It returns CodeExecutionNotEligible.
func (e Execution) Reserve(g Grant, now time.Time) (Change, error) {
	if !e.Claimable() || e.Lost() {
		return Change{}, e.refuse(fault.CodeExecutionNotEligible, "Execution %s is %s and cannot be reserved. GET …/explain says what it waits for.", e.ID, e.Public())
	}
	return Change{Execution: e}.grant(g, GrantsClaim, e.Revision+1, now), nil
}

// ReserveLost grants an execution whose owner has lost it to a worker with the given capabilities. It returns, in this order,
// CodeNotReclaimable, CodeExecutionNotLeaseable (its lane is paused), CodeCapabilityMismatch, CodeGrantExists and CodeReclaimCapExceeded. reference: executions.md 2.5.
func (e Execution) ReserveLost(g Grant, worker Capabilities, lane Lane, now time.Time) (Change, error) {
	c := Change{Execution: e}
	if e.Ownership == Leased && !e.Held(now) && !e.cancelling() {
		c = e.leaseExpired(now) // the sweep has not come by yet
	}
	if !c.Execution.Lost() {
		return Change{}, e.notReclaimable()
	}
	if lane.State == LanePaused {
		return Change{}, e.paused()
	}
	if missing := worker.Missing(e.Required); len(missing) > 0 {
		return Change{}, fault.New(fault.CodeCapabilityMismatch, "Execution %s requires %s, which this worker lacks. Leave it to one that has them.", e.ID, missing).With("missing", []string(missing))
	}
	if e.granted(now) {
		return Change{}, e.reserved()
	}
	if limit := e.PolicyOf().MaxReclaims(); e.Reclaims >= limit {
		return Change{}, fault.New(fault.CodeReclaimCapExceeded, "Execution %s was taken over %d times, which is all that its policy allows. The next claim of lane %s ends it as failed.", e.ID, e.Reclaims, e.Lane).
			With("lease_reclaim_count", e.Reclaims)
	}
	return c.grant(g, GrantsReclaim, e.Revision+1, now), nil
}

// grant is one revision, also where the change has found more to do. There is no event of it.
func (c Change) grant(g Grant, kind GrantKind, revision int64, now time.Time) Change {
	g.Kind, g.IssuedAt = kind, now
	c.Execution.Grant, c.Execution.Revision = &g, revision
	return c
}

// Use says which grant a worker means to use.
type Use struct {
	GrantID uuid.UUID
	Kind    GrantKind
}

// ClaimGranted claims a reserved execution, and uses the grant up. The instance may be another one than it was given to. For a
// claim it returns, in this order, CodeLeaseConflict, CodeExecutionNotLeaseable (also while its lane is paused),
// CodeInvalidClaimGrant and CodeClaimGrantExpired; for taking over CodeNotReclaimable, CodeExecutionNotLeaseable, CodeGrantNotFound and
// CodeInvalidClaimGrant. reference: executions.md 2.3 to 2.5.
func (e Execution) ClaimGranted(use Use, by Claimant, lane Lane, now time.Time) (c Change, kind ClaimKind, err error) {
	if use.Kind == GrantsReclaim {
		err = e.checkReclaimGrant(use, by, lane, now)
	} else {
		err = e.checkClaimGrant(use, by, lane, now)
	}
	if err != nil {
		return Change{}, "", err
	}
	c, kind = e.take(by, now)
	return c, kind, nil
}

func (e *Execution) checkClaimGrant(use Use, by Claimant, lane Lane, now time.Time) error {
	switch g := e.Grant; {
	case e.Lifecycle == Active:
		return e.conflict()
	case !e.eligible():
		return e.refuse(fault.CodeExecutionNotLeaseable, "Execution %s is %s and cannot be claimed. GET …/explain says what it waits for.", e.ID, e.Public())
	case lane.State == LanePaused:
		return e.paused()
	case g == nil || g.Kind != GrantsClaim || g.ID != use.GrantID || g.WorkerID != by.WorkerID:
		return e.otherGrant(by)
	case !e.granted(now):
		return fault.New(fault.CodeClaimGrantExpired, "Grant %s of execution %s lapsed at %s. Ask for another one.", g.ID, e.ID, stamp(g.ExpiresAt)).With("expires_at", stamp(g.ExpiresAt))
	}
	return nil
}

func (e *Execution) checkReclaimGrant(use Use, by Claimant, lane Lane, now time.Time) error {
	switch g := e.Grant; {
	case !e.Lost():
		return e.notReclaimable()
	case lane.State == LanePaused:
		return e.paused()
	case g == nil || g.Kind != GrantsReclaim || g.ID != use.GrantID || !e.granted(now):
		return fault.New(fault.CodeGrantNotFound, "Execution %s has no such grant, or it has lapsed. Ask for another one.", e.ID)
	case g.WorkerID != by.WorkerID:
		return e.otherGrant(by)
	}
	return nil
}

// ClaimByHand gives e to an operator, whatever it requires. It returns, in this order, CodeLeaseConflict,
// CodeExecutionNotEligible and CodeGrantExists. reference: executions.md 2.3, issue_grant_and_claim.
func (e Execution) ClaimByHand(by Claimant, now time.Time) (Change, ClaimKind, error) {
	switch {
	case e.Ownership == Leased:
		return Change{}, "", e.conflict()
	case e.Lifecycle != Runnable || e.Attempt != AttemptInterrupted && !e.eligible():
		return Change{}, "", e.refuse(fault.CodeExecutionNotEligible, "Execution %s is %s and cannot be claimed. GET …/explain says what it waits for.", e.ID, e.Public())
	case e.granted(now):
		return Change{}, "", e.reserved()
	}
	c, kind := e.take(by, now)
	c.first(operatorClaimed(c.Execution.Lease))
	return c, kind, nil
}

// refuse returns a refusal that says where e stands.
func (e *Execution) refuse(code fault.Code, format string, args ...any) *fault.Error {
	return fault.New(code, format, args...).With("public_state", e.Public())
}

func (e *Execution) conflict() error {
	return fault.New(fault.CodeLeaseConflict, "Execution %s is held, or was, by worker %s: wait for its lease to end, or take it over.", e.ID, e.Lease.WorkerID).
		With("lease_epoch", e.Lease.Epoch).With("ownership_state", e.Ownership)
}

func (e *Execution) paused() error {
	return e.refuse(fault.CodeExecutionNotLeaseable, "Lane %s is paused: nothing of it can be claimed until somebody resumes it.", e.Lane)
}

func (e *Execution) notReclaimable() error {
	return fault.New(fault.CodeNotReclaimable, "Nobody has lost execution %s: it is %s, %s. Only what a lease was lost on is taken over; revoke the lease, or wait for its end.", e.ID, e.Public(), e.Ownership).
		With("public_state", e.Public()).With("ownership_state", e.Ownership)
}

func (e *Execution) reserved() error {
	return fault.New(fault.CodeGrantExists, "Execution %s is reserved for worker %s until %s. Ask again then, or for another one.", e.ID, e.Grant.WorkerID, stamp(e.Grant.ExpiresAt)).
		With("worker_id", e.Grant.WorkerID).With("expires_at", stamp(e.Grant.ExpiresAt))
}

func (e *Execution) otherGrant(by Claimant) error {
	return fault.New(fault.CodeInvalidClaimGrant, "Worker %s has no such grant for execution %s. Ask for another one.", by.WorkerID, e.ID)
}

// Missing returns what need has and c has not.
func (c Capabilities) Missing(need Capabilities) Capabilities {
	return slices.DeleteFunc(slices.Clone(need), func(t string) bool {
		_, ok := slices.BinarySearch(c, t)
		return ok
	})
}
