package execution

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// ClaimKind says what a claim continues.
type ClaimKind string

// The kinds.
const (
	ClaimFresh     ClaimKind = "fresh"
	ClaimRetry     ClaimKind = "retry"
	ClaimReplay    ClaimKind = "replay"
	ClaimResumed   ClaimKind = "resumed"
	ClaimReclaimed ClaimKind = "reclaimed"
)

// Limits of a lease.
const (
	MinLeaseTTL     = 100 * time.Millisecond
	MaxLeaseTTL     = 24 * time.Hour
	DefaultLeaseTTL = 30 * time.Second
)

// Claimant is who claims, with the ids that the new lease gets.
type Claimant struct {
	WorkerID   string
	InstanceID string
	TTL        time.Duration
	LeaseID    uuid.UUID
	AttemptID  uuid.UUID
}

// leaseData is what an event tells of a lease. The attempt id is not in it: it is the holder's secret.
type leaseData struct {
	LeaseID      uuid.UUID   `json:"lease_id"`
	LeaseEpoch   int64       `json:"lease_epoch"`
	WorkerID     string      `json:"worker_id"`
	InstanceID   string      `json:"worker_instance_id"`
	AttemptIndex int         `json:"attempt_index"`
	Kind         ClaimKind   `json:"kind,omitempty"`
	Previous     *int        `json:"previous_attempt_index,omitempty"`
	ExpiresAt    event.Stamp `json:"expires_at,omitzero"`
	Reason       string      `json:"reason,omitempty"`
}

func (e *Execution) leaseData() leaseData {
	return leaseData{LeaseID: e.Lease.ID, LeaseEpoch: e.Lease.Epoch, WorkerID: e.Lease.WorkerID, InstanceID: e.Lease.InstanceID, AttemptIndex: e.AttemptIndex}
}

// Claim gives e to a worker: a new attempt, or the interrupted one again. Taking over a lost lease more often than the
// policy allows ends the execution instead; kind is then "". It returns CodeIllegalTransition when e is not
// claimable. reference: executions.md 1.11, 2.2, 2.5.
func (e Execution) Claim(by Claimant, now time.Time) (c Change, kind ClaimKind, err error) {
	if !e.Claimable() {
		return Change{}, "", fault.New(fault.CodeIllegalTransition, "Execution %s is %s and cannot be claimed.", e.ID, e.Public())
	}
	c, kind = e.take(by, now)
	return c, kind, nil
}

// take is Claim of an execution that by may have.
func (e Execution) take(by Claimant, now time.Time) (c Change, kind ClaimKind) {
	policy := e.PolicyOf()
	c = Change{Execution: e}
	n := &c.Execution
	previous, reclaimed := n.AttemptIndex, e.Lifecycle == Active
	if reclaimed {
		if n.Reclaims >= policy.MaxReclaims() {
			c.end(StageInterruptedReclaimed, "", nil, now)
			c.finish(OutcomeFailed, &Failure{Reason: "max_reclaims_exceeded", Category: "infra_crash"}, "failed", now)
			return c, ""
		}
		c.end(StageInterruptedReclaimed, ClosedReclaimed, nil, now)
		n.Reclaims++
	}
	left := policy.AttemptTimeout()
	n.Lease = Lease{ID: by.LeaseID, Epoch: n.Lease.Epoch + 1, AttemptID: by.AttemptID, WorkerID: by.WorkerID, InstanceID: by.InstanceID,
		AcquiredAt: now, ExpiresAt: now.Add(by.TTL)}
	switch {
	case reclaimed:
		kind = ClaimReclaimed
		c.open(AttemptReclaim, "lease_"+string(e.Ownership), now)
	case n.Attempt == AttemptInterrupted:
		kind = ClaimResumed
		n.Lease.AttemptID = e.Lease.AttemptID
		if e.Released != nil && e.Released.AttemptLeft > 0 {
			left = e.Released.AttemptLeft
		}
		c.Attempts = append(c.Attempts, AttemptChange{Index: n.AttemptIndex, Stage: StageStarted, Lease: &n.Lease})
	case n.Attempt == AttemptPendingRetry:
		kind = ClaimRetry
		c.open(AttemptRetry, "", now)
	case n.Attempt == AttemptPendingReplay:
		kind = ClaimReplay
		c.open(AttemptReplay, "", now)
	default:
		kind = ClaimFresh
		c.open(AttemptInitial, "", now)
	}
	n.Vector = Vector{Active, Leased, EligibilityNone, BlockingNone, OutcomeNone, AttemptRunning}
	n.BlockingDetail, n.Released, n.Grant, n.DelayUntil = "", nil, nil, time.Time{}
	if n.StartedAt.IsZero() {
		n.StartedAt = now
	}
	n.AttemptTimeoutAt = time.Time{}
	if left > 0 {
		n.AttemptTimeoutAt = now.Add(left)
	}
	n.Revision++
	data, t := n.leaseData(), event.LeaseAcquired
	data.Kind, data.ExpiresAt = kind, event.Stamp(n.Lease.ExpiresAt)
	if reclaimed {
		t, data.Kind, data.Previous = event.LeaseReclaimed, "", &previous
	}
	c.emit(t, data)
	return c, kind
}

// Check refuses whoever does not own e. It returns CodeExecutionNotActive, CodeLeaseRevoked, CodeLeaseExpired or
// CodeStaleLease, in this order. A refusal changes nothing: marking the lease as expired is the sweeper's work.
// reference: executions.md 1.8.
func (e *Execution) Check(f Fence, now time.Time) error {
	switch {
	case e.Lifecycle != Active:
		return e.notActive()
	case e.Ownership == LeaseRevoked:
		return fault.New(fault.CodeLeaseRevoked, "The lease on execution %s was revoked. Stop, and claim again.", e.ID).With("lease_epoch", e.Lease.Epoch)
	case e.Ownership == LeaseExpired || !e.Lease.ExpiresAt.After(now):
		return fault.New(fault.CodeLeaseExpired, "The lease on execution %s has run out. Stop, and claim again.", e.ID).With("lease_epoch", e.Lease.Epoch)
	case !f.Override && !f.equal(e.Fence()):
		return fault.New(fault.CodeStaleLease, "Execution %s belongs to another worker now, at epoch %d; this handle is of epoch %d. Stop, and claim again.", e.ID, e.Lease.Epoch, f.LeaseEpoch).
			With("lease_epoch", e.Lease.Epoch)
	}
	return nil
}

func (e *Execution) notActive() error {
	return fault.New(fault.CodeExecutionNotActive, "Nobody is working on execution %s: it is %s. Stop, and claim again.", e.ID, e.Public()).
		With("lifecycle_phase", e.Lifecycle).With("terminal_outcome", e.Outcome).With("lease_epoch", e.Lease.Epoch).With("public_state", e.Public())
}

// Renew extends the lease from now on; it may shorten it. Errors are those of Check.
func (e Execution) Renew(f Fence, ttl time.Duration, now time.Time) (Change, error) {
	if err := e.Check(f, now); err != nil {
		return Change{}, err
	}
	e.Lease.ExpiresAt = now.Add(ttl)
	e.Revision++
	c := Change{Execution: e}
	data := e.leaseData()
	data.ExpiresAt = event.Stamp(e.Lease.ExpiresAt)
	c.emit(event.LeaseRenewed, data)
	return c, nil
}

// Report keeps the worker's progress; what is absent stays as it was, and an empty message is absent. Errors are those of
// Check.
func (e Execution) Report(f Fence, pct *int, message *string, now time.Time) (Change, error) {
	if err := e.Check(f, now); err != nil {
		return Change{}, err
	}
	if message != nil && *message == "" {
		message = nil
	}
	if pct == nil && message == nil {
		return Change{Execution: e}, nil
	}
	p := Progress{At: now}
	if e.Progress != nil {
		p.Pct, p.Message = e.Progress.Pct, e.Progress.Message
	}
	if pct != nil {
		p.Pct = pct
	}
	if message != nil {
		p.Message = message
	}
	e.Progress = &p
	e.Revision++
	c := Change{Execution: e}
	c.emit(event.ExecutionProgressed, struct {
		Pct     *int    `json:"pct,omitempty"`
		Message *string `json:"message,omitempty"`
	}{pct, message})
	return c, nil
}

// Release gives the lease back without ending the attempt: the next claim resumes it. A repeated release by the same owner
// is answered again and changes nothing; so are Delay and WaitChildren. Errors are those of Check.
func (e Execution) Release(f Fence, now time.Time) (c Change, replayed bool, err error) {
	return e.giveBack(OpRelease, f, "released", now, func(*Execution) {})
}

// Delay gives the lease back until a time. The attempt goes on then, at once if the time has passed.
func (e Execution) Delay(f Fence, until, now time.Time) (c Change, replayed bool, err error) {
	return e.giveBack(OpDelay, f, "delayed", now, func(n *Execution) {
		if until.After(now) {
			n.delay(until, WaitingForDelay, "delayed until "+stamp(until))
		}
	})
}

// WaitChildren gives the lease back until the executions that e depends on have ended.
func (e Execution) WaitChildren(f Fence, now time.Time) (c Change, replayed bool, err error) {
	return e.giveBack(OpWaitChildren, f, "waiting_children", now, func(n *Execution) {
		n.Eligibility, n.Blocking, n.BlockingDetail = BlockedByDependencies, WaitingForChildren, "waiting for child executions to complete"
	})
}

// giveBack ends an ownership and not the attempt. place says what e waits for then, if not for a worker.
func (e Execution) giveBack(op Op, f Fence, reason string, now time.Time, place func(n *Execution)) (c Change, replayed bool, err error) {
	if e.replays(op, f) {
		return Change{Execution: e}, true, nil
	}
	if err := e.Check(f, now); err != nil {
		return Change{}, false, err
	}
	if e.cancelling() {
		c = e.cancelled(*e.Cancellation, now)
		c.Execution.Released = &Released{Op: op, Epoch: f.LeaseEpoch}
		c.reported(f, op)
		return c, false, nil
	}
	released := &Released{Op: op, Epoch: f.LeaseEpoch}
	if !e.AttemptTimeoutAt.IsZero() {
		released.AttemptLeft = max(e.AttemptTimeoutAt.Sub(now), time.Millisecond)
	}
	c = Change{Execution: e}
	c.Attempts = append(c.Attempts, AttemptChange{Index: e.AttemptIndex, Stage: StageSuspended})
	n := &c.Execution
	n.Vector = Vector{Runnable, Unowned, EligibleNow, WaitingForWorker, OutcomeNone, AttemptInterrupted}
	place(n)
	n.AttemptTimeoutAt = time.Time{}
	n.Revision++
	c.letGo(reason, released)
	c.tellStand()
	c.reported(f, op)
	return c, false, nil
}

// reported tells of an operator who reported in place of the owner.
func (c *Change) reported(f Fence, op Op) {
	if f.Override {
		c.first(event.OperatorReported, struct {
			Operation Op `json:"operation"`
		}{op})
	}
}

// replays says whether f's owner ended its ownership with this very call.
func (e *Execution) replays(op Op, f Fence) bool {
	if e.Released == nil || e.Released.Op != op {
		return false
	}
	then := e.Fence()
	then.LeaseEpoch = e.Released.Epoch // an operator may have moved it on since
	return f.equal(then)
}

// letGo ends the ownership and tells why. The identity of the lease stays, as that of the last owner.
func (c *Change) letGo(reason string, released *Released) {
	data := c.Execution.leaseData()
	data.Reason = reason
	c.Execution.Lease.ExpiresAt = time.Time{}
	c.Execution.Released = released
	c.emit(event.LeaseRevoked, data)
}
