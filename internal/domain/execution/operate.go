package execution

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Each of these is an operator's act: it begins with one event of the topic operator. reference: executions.md 2.11.

// Stop cancels e. With a grace an execution that is held stays with its worker, who is asked to end it. Stopping again changes
// nothing, or shortens the grace. It returns CodeAlreadyTerminal for what has ended otherwise.
func (e Execution) Stop(by Cancellation, grace time.Duration, now time.Time) (Change, error) {
	c, err := e.CancelWithin(by, grace, now)
	if err == nil && c.Execution.Revision != e.Revision {
		c.first(operatorCancelled(by, grace))
	}
	return c, err
}

// CancelWithin is [Execution.Cancel] with a grace for whoever holds e, who is asked to end it.
func (e Execution) CancelWithin(by Cancellation, grace time.Duration, now time.Time) (Change, error) {
	if grace <= 0 || !e.Held(now) {
		return e.Cancel(by, now)
	}
	by.DeadlineAt = now.Add(grace)
	if e.cancelling() {
		if !by.DeadlineAt.Before(e.Cancellation.DeadlineAt) {
			return Change{Execution: e}, nil
		}
		by.Reason, by.Actor, by.RequestedAt = e.Cancellation.Reason, e.Cancellation.Actor, e.Cancellation.RequestedAt
	}
	c := Change{Execution: e}
	c.Execution.Cancellation = &by
	c.Execution.Revision++
	c.emit(event.ExecutionCancelling, struct {
		Reason     string      `json:"reason"`
		DeadlineAt event.Stamp `json:"deadline_at"`
	}{by.Reason, event.Stamp(by.DeadlineAt)})
	return c, nil
}

func operatorCancelled(by Cancellation, grace time.Duration) (event.Type, any) {
	return event.OperatorCancelled, struct {
		Reason  string `json:"reason"`
		GraceMS int64  `json:"grace_ms,omitempty"`
	}{by.Reason, grace.Milliseconds()}
}

// Revocation says which lease an operator takes away. Empty fields name any.
type Revocation struct {
	InstanceID string
	LeaseID    uuid.UUID
	Reason     string
}

// Why there was no lease to take away.
const (
	AlreadyRevoked  = "already_revoked"
	AlreadyExpired  = "already_expired"
	AnotherInstance = "different_worker_instance_id"
)

// Revoke takes the lease away from e's owner, whom the new epoch fences off: others can take e over at once. satisfied says why
// there was nothing to do. It returns CodeExecutionNotActive and CodeStaleLease.
func (e Execution) Revoke(which Revocation, now time.Time) (c Change, satisfied string, err error) {
	c = Change{Execution: e}
	switch {
	case e.Lifecycle != Active:
		return Change{}, "", e.notActive()
	case e.Ownership == LeaseRevoked:
		return c, AlreadyRevoked, nil
	case !e.Held(now):
		return c, AlreadyExpired, nil
	case which.InstanceID != "" && which.InstanceID != e.Lease.InstanceID:
		return c, AnotherInstance, nil
	case which.LeaseID != uuid.Nil && which.LeaseID != e.Lease.ID:
		return Change{}, "", fault.New(fault.CodeStaleLease, "Execution %s is held by another lease, %s, at epoch %d. Name that one, or none.", e.ID, e.Lease.ID, e.Lease.Epoch).With("lease_epoch", e.Lease.Epoch)
	}
	data := e.leaseData()
	data.Reason = which.Reason
	if e.cancelling() {
		c = e.cancelled(*e.Cancellation, now)
	} else {
		c.lose(ClosedLeaseRevoked)
		n := &c.Execution
		n.Vector = Vector{Active, LeaseRevoked, EligibilityNone, WaitingForWorker, OutcomeNone, AttemptInterrupted}
		n.BlockingDetail = "lease revoked"
		if which.Reason != "" {
			n.BlockingDetail += ": " + which.Reason
		}
		n.Revision++
		c.letGo("operator", nil)
	}
	c.Execution.Lease.Epoch++
	c.first(event.OperatorLeaseRevoked, data)
	return c, "", nil
}

// Prioritise changes the priority of what waits for a claim, clamped to 0 … MaxPriority. The same one changes nothing. It
// returns CodeExecutionNotEligible.
func (e Execution) Prioritise(priority int) (Change, error) {
	if e.Lifecycle != Runnable {
		return Change{}, e.refuse(fault.CodeExecutionNotEligible, "Execution %s is %s: only what waits for a claim has a priority.", e.ID, e.Public())
	}
	c := Change{Execution: e}
	priority = clamp(priority)
	if priority == e.Priority {
		return c, nil
	}
	c.Execution.Priority = priority
	c.Execution.Revision++
	c.emit(event.OperatorPriorityChanged, struct {
		Old int `json:"old_priority"`
		New int `json:"new_priority"`
	}{e.Priority, priority})
	return c, nil
}

// Replayable refuses what has not ended (CodeExecutionNotTerminal), and what was replayed too often (CodeMaxReplaysExhausted).
func (e *Execution) Replayable() error {
	if e.Lifecycle != Terminal {
		return e.refuse(fault.CodeExecutionNotTerminal, "Execution %s is %s and has not ended. Wait for it, or cancel it.", e.ID, e.Public())
	}
	if e.Replays >= e.PolicyOf().MaxReplays() {
		return fault.New(fault.CodeMaxReplaysExhausted, "Execution %s was replayed %d times, which is all that its policy allows. Create a new one.", e.ID, e.Replays).
			With("replay_count", e.Replays).With("execution_id", e.ID)
	}
	return nil
}

// Replay lets what has ended run again, as a new attempt: its counters begin anew, and result, failure and cancellation go. A
// deadline that has passed is dropped; that of the policy counts anew. at says what it waits for first. It returns the refusals
// of [Execution.Replayable].
func (e Execution) Replay(at Standing, now time.Time) (Change, error) {
	if err := e.Replayable(); err != nil {
		return Change{}, err
	}
	policy := e.PolicyOf()
	c := Change{Execution: e, Discard: true}
	n := &c.Execution
	n.Vector = Vector{Runnable, Unowned, EligibleNow, WaitingForWorker, OutcomeNone, AttemptPendingReplay}
	branch := "normal"
	switch {
	case at.Blocked:
		n.block()
	case at.Paused:
		n.pause()
	}
	if e.Outcome == OutcomeSkipped {
		branch = "skipped_flow_member"
	}
	n.Replays++
	n.Retries, n.Reclaims = 0, 0
	n.CompletedAt, n.Failure, n.Cancellation, n.Progress = time.Time{}, nil, nil, nil
	switch {
	case policy.Timeout.ExecutionDeadlineMS != nil && *policy.Timeout.ExecutionDeadlineMS > 0:
		n.DeadlineAt = now.Add(time.Duration(*policy.Timeout.ExecutionDeadlineMS) * time.Millisecond)
	case !n.DeadlineAt.After(now):
		n.DeadlineAt = time.Time{}
	}
	n.Revision++
	c.emit(event.OperatorReplayed, struct {
		Replays int     `json:"replay_count"`
		Branch  string  `json:"branch"`
		Outcome Outcome `json:"outcome"`
	}{n.Replays, branch, e.Outcome})
	c.tellStand()
	return c, nil
}

// Resume lets an execution go on, in the same attempt, that is suspended or waits for its children: now, or after a delay. It
// returns CodeNotSuspended.
func (e Execution) Resume(delay time.Duration, now time.Time) (Change, error) {
	waitsForChildren := e.Lifecycle == Runnable && e.Eligibility == BlockedByDependencies && e.Attempt == AttemptInterrupted
	if e.Lifecycle != Suspended && !waitsForChildren {
		return Change{}, e.refuse(fault.CodeNotSuspended, "Execution %s is %s: there is nothing to resume. GET …/explain says what it waits for.", e.ID, e.Public())
	}
	c := Change{Execution: e}
	c.wake(closedResumed, delay, now)
	c.emit(event.OperatorResumed, struct {
		Blocking Blocking `json:"blocking_reason"`
		DelayMS  int64    `json:"resume_delay_ms,omitempty"`
	}{e.Blocking, delay.Milliseconds()})
	if waitsForChildren {
		c.tellStand()
	} else {
		c.tellResumed("operator")
	}
	return c, nil
}

func operatorClaimed(l Lease) (event.Type, any) {
	return event.OperatorClaimed, struct {
		LeaseID    uuid.UUID `json:"lease_id"`
		LeaseEpoch int64     `json:"lease_epoch"`
	}{l.ID, l.Epoch}
}

// SetTag sets one tag, in any phase. The same value again changes nothing. It returns CodeInvalidTagKey, and
// CodeValidationFailed for a value that is too long or a tag too many.
func (e Execution) SetTag(key, value string) (Change, error) {
	tags, before, err := tag.Set(e.Tags, key, value)
	c := Change{Execution: e}
	if err != nil || before != nil && *before == value {
		return c, err
	}
	c.Execution.Tags = tags
	c.Execution.Revision++
	c.emit(event.ExecutionTagSet, struct {
		Key      string  `json:"key"`
		Value    string  `json:"value"`
		Previous *string `json:"previous,omitempty"`
	}{key, value, before})
	return c, nil
}

func clamp(priority int) int { return max(0, min(priority, MaxPriority)) }
