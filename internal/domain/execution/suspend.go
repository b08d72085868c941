package execution

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Suspension is why an execution was given back until something happens outside, and how that ended. The last one stays with
// the execution. What is waited for is the [wait.Wait] with the same id. reference: executions.md 1.5, 2.15.
type Suspension struct {
	ID           uuid.UUID       `json:"suspension_id"`
	AttemptIndex int             `json:"attempt_index"`
	Reason       SuspendReason   `json:"reason_code"`
	RequestedBy  string          `json:"requested_by"`
	Since        time.Time       `json:"since"`
	Waitpoints   []Bound         `json:"waitpoints"`
	TimeoutAt    time.Time       `json:"timeout_at,omitzero"`
	Behavior     TimeoutBehavior `json:"timeout_behavior"`
	Policy       ResumePolicy    `json:"resume_policy,omitzero"`
	Pointer      string          `json:"continuation_metadata_pointer,omitempty"`

	ClosedAt    time.Time `json:"closed_at,omitzero"`
	CloseReason string    `json:"close_reason,omitempty"`
	Closer      string    `json:"closer_signal_id,omitempty"`
}

// Bound is a waitpoint of a suspension.
type Bound struct {
	ID  uuid.UUID `json:"waitpoint_id"`
	Key string    `json:"waitpoint_key"`
}

// Open says whether something is still waited for.
func (s *Suspension) Open() bool { return s != nil && s.ClosedAt.IsZero() }

// SuspendReason is why a worker suspends its execution.
type SuspendReason string

// The reasons.
const (
	SuspendSignal         SuspendReason = "waiting_for_signal"
	SuspendApproval       SuspendReason = "waiting_for_approval"
	SuspendCallback       SuspendReason = "waiting_for_callback"
	SuspendToolResult     SuspendReason = "waiting_for_tool_result"
	SuspendOperatorReview SuspendReason = "waiting_for_operator_review"
	SuspendByPolicy       SuspendReason = "paused_by_policy"
	SuspendByBudget       SuspendReason = "paused_by_budget"
	SuspendStepBoundary   SuspendReason = "step_boundary"
	SuspendManualPause    SuspendReason = "manual_pause"
)

// blockingOf says what an execution waits for that was suspended for a reason. reference: executions.md 2.15.
var blockingOf = map[SuspendReason]Blocking{
	SuspendSignal: WaitingForSignal, SuspendApproval: WaitingForApproval, SuspendCallback: WaitingForCallback, SuspendToolResult: WaitingForToolResult,
	SuspendOperatorReview: PausedByOperator, SuspendByPolicy: PausedByPolicy, SuspendByBudget: WaitingForBudget, SuspendStepBoundary: WaitingForSignal,
	SuspendManualPause: PausedByOperator,
}

// asksPeople says whether a person is to answer.
func (r SuspendReason) asksPeople() bool {
	return r == SuspendApproval || r == SuspendOperatorReview || r == SuspendManualPause
}

// TimeoutBehavior is what becomes of a suspended execution when its time is over.
type TimeoutBehavior string

// The behaviours.
const (
	OnTimeoutFail       TimeoutBehavior = "fail"
	OnTimeoutCancel     TimeoutBehavior = "cancel"
	OnTimeoutExpire     TimeoutBehavior = "expire"
	OnTimeoutResume     TimeoutBehavior = "auto_resume"
	OnTimeoutResumeTold TimeoutBehavior = "auto_resume_with_timeout_signal"
	OnTimeoutEscalate   TimeoutBehavior = "escalate"
)

// onTimeout is how a wait spells a behaviour.
var onTimeout = map[TimeoutBehavior]wait.OnTimeout{
	OnTimeoutFail: wait.TimeoutFails, OnTimeoutCancel: wait.TimeoutCancels, OnTimeoutExpire: wait.TimeoutExpires, OnTimeoutResume: wait.TimeoutResumes,
	OnTimeoutResumeTold: wait.TimeoutResumes, OnTimeoutEscalate: wait.TimeoutEscalates,
}

// ResumePolicy says how an execution goes on. By default its waitpoints are closed, and what reached them is used up.
type ResumePolicy struct {
	DelayMS        int64 `json:"resume_delay_ms,omitempty"`
	KeepWaitpoints bool  `json:"keep_waitpoints,omitempty"` // they are pending again, for the next suspension of the attempt
	KeepMatched    bool  `json:"keep_matched,omitempty"`    // the signals that counted wait there, too
	KeepOthers     bool  `json:"keep_others,omitempty"`     // so do those that did not count
}

// engine is who does what time brings.
const engine = "engine"

// How a suspension ends.
const (
	closedResumed   = "resumed"
	closedCancelled = "cancelled"
	closedSatisfied = "already_satisfied"
	closedExpired   = "expired:"   // and why
	timedOut        = "timed_out_" // and what became of it
)

type suspendedData struct {
	ID        uuid.UUID       `json:"suspension_id"`
	Reason    SuspendReason   `json:"reason_code"`
	Blocking  Blocking        `json:"blocking_reason"`
	Bound     []Bound         `json:"waitpoints"`
	TimeoutAt event.Stamp     `json:"timeout_at,omitzero"`
	Behavior  TimeoutBehavior `json:"timeout_behavior"`
	Escalated bool            `json:"escalated,omitempty"`
}

func (e *Execution) suspendedData() suspendedData {
	s := e.Suspension
	return suspendedData{ID: s.ID, Reason: s.Reason, Blocking: e.Blocking, Bound: s.Waitpoints, TimeoutAt: event.Stamp(s.TimeoutAt), Behavior: s.Behavior}
}

// CheckSuspend refuses whoever may not suspend e: with CodeAlreadySuspended its last owner when it has done so, else with what
// Check says.
func (e *Execution) CheckSuspend(f Fence, now time.Time) error {
	if e.Lifecycle == Suspended && f.equal(e.Fence()) {
		return e.refuse(fault.CodeAlreadySuspended, "Execution %s is suspended already, since %s. Stop working on it.", e.ID, stamp(e.Suspension.Since))
	}
	return e.Check(f, now)
}

// Suspend gives the lease back until what s waits for has come. What is to end is cancelled instead. Errors are those of
// CheckSuspend.
func (e Execution) Suspend(f Fence, s Suspension, now time.Time) (Change, error) {
	if err := e.CheckSuspend(f, now); err != nil {
		return Change{}, err
	}
	c, _, err := e.giveBack(OpSuspend, f, "suspended", now, func(n *Execution) {
		s.AttemptIndex, s.Since = n.AttemptIndex, now
		n.Suspension = &s
		n.Vector = Vector{Suspended, Unowned, EligibilityNone, blockingOf[s.Reason], OutcomeNone, AttemptInterrupted}
		n.BlockingDetail = fmt.Sprintf("suspended: waitpoint %s awaiting %s", s.Waitpoints[0].ID, s.Reason)
	})
	return c, err
}

// Satisfied keeps s as e's last suspension although e goes on with the lease it has: what s waits for had come before. Its
// waitpoint is closed, unless its policy keeps it.
func (e Execution) Satisfied(s Suspension, closer string, now time.Time) Change {
	s.AttemptIndex, s.Since, s.ClosedAt, s.CloseReason, s.Closer = e.AttemptIndex, now, now, closedSatisfied, closer
	e.Suspension = &s
	e.Revision++
	c := Change{Execution: e}
	if s.Policy.KeepWaitpoints {
		c.tellResumed("signal")
		return c
	}
	for _, w := range s.Waitpoints {
		c.emit(event.WaitpointClosed, waitpointClosed{w.ID, w.Key, closedResumed})
	}
	return c
}

type resumedData struct {
	ID         uuid.UUID   `json:"suspension_id"`
	By         string      `json:"by"`
	Signal     string      `json:"signal_id,omitempty"`
	State      Public      `json:"public_state"`
	DelayUntil event.Stamp `json:"delay_until,omitzero"`
}

// Wake lets e go on in the same attempt, because a signal has satisfied what it waits for. after replaces the delay of its
// policy.
func (e Execution) Wake(signal string, after *time.Duration, now time.Time) Change {
	delay := time.Duration(e.Suspension.Policy.DelayMS) * time.Millisecond
	if after != nil {
		delay = *after
	}
	c := Change{Execution: e}
	c.wake(closedResumed, delay, now)
	c.Execution.Suspension.Closer = signal
	c.tellResumed("signal")
	return c
}

// wake makes a suspended execution runnable, after a delay.
func (c *Change) wake(reason string, delay time.Duration, now time.Time) {
	n := &c.Execution
	n.Vector = Vector{Runnable, Unowned, EligibleNow, WaitingForWorker, OutcomeNone, AttemptInterrupted}
	n.BlockingDetail = ""
	if delay > 0 {
		n.delay(now.Add(delay), WaitingForResumeDelay, "resumed, delayed until "+stamp(now.Add(delay)))
	}
	n.Revision++
	n.closeSuspension(reason, now)
}

func (c *Change) tellResumed(by string) {
	e := &c.Execution
	c.emit(event.ExecutionResumed, resumedData{e.Suspension.ID, by, e.Suspension.Closer, e.Public(), event.Stamp(e.DelayUntil)})
}

// closeSuspension ends what e waited for, if it waits.
func (e *Execution) closeSuspension(reason string, now time.Time) {
	if !e.Suspension.Open() {
		return
	}
	closed := *e.Suspension // the one of before is somebody else's
	closed.ClosedAt, closed.CloseReason = now, reason
	e.Suspension = &closed
}

// TimeOut makes of e what was asked for when the time of its suspension is over. escalated says that it goes on waiting, for an
// operator. A deadline of e that has passed no later ends it instead: the two are looked at in any order, here and by Pass.
// reference: executions.md 2.18.
func (e Execution) TimeOut(now time.Time) (c Change, escalated bool) {
	if !e.DeadlineAt.IsZero() && !e.DeadlineAt.After(e.Suspension.TimeoutAt) {
		if c, over := e.Pass(now); over {
			return c, false
		}
	}
	c = Change{Execution: e}
	behavior := e.Suspension.Behavior
	failure := &Failure{Reason: "suspension_timeout:" + string(behavior), Category: CategoryTimeout}
	closing := timedOut + string(behavior)
	switch behavior {
	case OnTimeoutResume, OnTimeoutResumeTold:
		c.wake(timedOut+"auto_resume", 0, now)
		c.tellResumed("timeout")
	case OnTimeoutEscalate:
		c.escalate(now)
		return c, true
	case OnTimeoutCancel:
		c.Execution.closeSuspension(closing, now)
		c.end(StageEndedCancelled, ClosedSuspensionTimeout, failure, now)
		c.Execution.Cancellation = &Cancellation{Reason: failure.Reason, Actor: engine, RequestedAt: now}
		c.finish(OutcomeCancelled, failure, reasonOf[OutcomeCancelled], now)
	case OnTimeoutExpire:
		c.Execution.closeSuspension(closing, now)
		c.end(StageEndedFailure, ClosedSuspensionTimeout, failure, now)
		c.finish(OutcomeExpired, failure, reasonOf[OutcomeExpired], now)
	default:
		c.Execution.closeSuspension(closing, now)
		c.end(StageEndedFailure, ClosedSuspensionTimeout, failure, now)
		c.finish(OutcomeFailed, failure, reasonOf[OutcomeFailed], now)
	}
	return c, false
}

// escalate leaves e to an operator. Its waitpoints stay open.
func (c *Change) escalate(now time.Time) {
	n := &c.Execution
	s := *n.Suspension
	n.BlockingDetail = "suspension escalated: timeout at " + stamp(now)
	s.Reason, s.TimeoutAt = SuspendOperatorReview, time.Time{}
	n.Suspension, n.Blocking = &s, PausedByOperator
	n.Revision++
	data := n.suspendedData()
	data.Escalated = true
	c.emit(event.ExecutionSuspended, data)
}
