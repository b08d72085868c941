package execution

import (
	"time"

	"github.com/google/uuid"
)

// What becomes of a member because of its flow, or of other members. reference: flows-streams-budgets.md 2.4, 2.6.

// reasonImpossible is why a member is skipped.
const reasonImpossible = "dependency_impossible"

// Standing says what an execution that runs again has to wait for, before a worker.
type Standing struct {
	Paused  bool // its flow has not been started
	Blocked bool // what it depends on has not ended well
}

// Cascade is how executions end because what they belong to does: the members of a flow, and what works for a run.
type Cascade struct {
	Reason      string    `json:"reason"`
	PendingOnly bool      `json:"pending_only,omitempty"` // those that nobody works on, and that are not suspended
	GraceUntil  time.Time `json:"grace_until,omitzero"`   // for those that somebody holds
}

// MembersEnded tells what became of it.
type MembersEnded struct {
	Looked int         // how many were there to cancel
	Failed []uuid.UUID // those of them that cannot be read
}

// Started says whether somebody has begun to work on e, or it has ended: what it depends on does not change any more.
func (e *Execution) Started() bool {
	return e.Lifecycle != Runnable || e.Attempt == AttemptInterrupted || e.Attempt == AttemptPendingRetry
}

// waits says whether e waits for what it depends on, and not for the children of an attempt.
func (e *Execution) waits() bool {
	return e.Lifecycle == Runnable && e.Eligibility == BlockedByDependencies && e.Attempt != AttemptInterrupted
}

// Block makes e wait for executions that it depends on, unless it does already or has started. Whoever has reserved it has not
// any more.
func (e Execution) Block() (Change, bool) {
	if e.Started() || e.Eligibility == BlockedByDependencies {
		return Change{}, false
	}
	c := Change{Execution: e}
	n := &c.Execution
	n.block()
	n.Grant = nil
	n.Revision++
	c.tellStand()
	return c, true
}

// Unblock lets e be claimed, or delayed, whose dependencies are satisfied. paused says that its flow has not been started.
func (e Execution) Unblock(paused bool, now time.Time) (Change, bool) {
	if !e.waits() {
		return Change{}, false
	}
	return e.free(paused, now), true
}

// Pause makes e wait for the start of the flow that it has just become a member of, unless it waits for its dependencies or has
// started.
func (e Execution) Pause() (Change, bool) {
	if e.Started() || e.Eligibility == BlockedByDependencies || e.Eligibility == BlockedByLaneState {
		return Change{}, false
	}
	c := Change{Execution: e}
	n := &c.Execution
	n.pause()
	n.Grant = nil
	n.Revision++
	c.tellStand()
	return c, true
}

// Unpause makes a member claimable, or delayed, whose flow has started.
func (e Execution) Unpause(now time.Time) (Change, bool) {
	if e.Eligibility != BlockedByLaneState || e.Blocking != PausedByPolicy {
		return Change{}, false
	}
	return e.free(false, now), true
}

// free makes e claimable, delayed or paused that was held up.
func (e Execution) free(paused bool, now time.Time) Change {
	c := Change{Execution: e}
	n := &c.Execution
	n.Eligibility, n.Blocking, n.BlockingDetail = EligibleNow, WaitingForWorker, ""
	n.Revision++
	switch {
	case paused:
		n.pause()
	case n.DelayUntil.After(now):
		n.delay(n.DelayUntil, WaitingForDelay, "delayed until "+stamp(n.DelayUntil))
	default:
		n.DelayUntil = time.Time{}
	}
	c.tellStand()
	return c
}

// Skip ends e, which has not ended, because what it depends on cannot end well any more.
func (e Execution) Skip(now time.Time) (Change, bool) {
	if e.Lifecycle == Terminal {
		return Change{}, false
	}
	c := Change{Execution: e}
	c.end(StageEndedCancelled, ClosedDependencyImpossible, nil, now)
	if c.Execution.AttemptIndex == NoAttempt {
		c.Execution.Attempt = AttemptNone
	}
	c.finish(OutcomeSkipped, nil, reasonOf[OutcomeSkipped], now)
	if c.Execution.Lease.Epoch > 0 {
		c.Execution.Lease.Epoch++
	}
	return c, true
}

// JoinFlow makes e, which belongs to no flow, a member of one.
func (e Execution) JoinFlow(flowID uuid.UUID, limits *Limits) Change {
	c := Change{Execution: e}
	c.Execution.FlowID, c.Execution.Limits = flowID, e.Limits.Under(limits)
	c.Execution.Revision++
	return c
}
