package execution

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// Reasons of an execution that ran out of time.
const (
	reasonDeadline       = "execution_deadline"
	reasonAttemptTimeout = "attempt_timeout"
)

// DueAt is when time next changes e, zero for never.
func (e *Execution) DueAt() time.Time {
	var due time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if e.Lifecycle == Terminal {
		return due
	}
	earlier(e.DeadlineAt)
	if e.Eligibility == NotEligibleUntilTime {
		earlier(e.DelayUntil)
	}
	if e.Grant != nil {
		earlier(e.Grant.ExpiresAt)
	}
	if e.Lifecycle == Active {
		earlier(e.AttemptTimeoutAt)
		if e.Cancellation != nil {
			earlier(e.Cancellation.DeadlineAt)
		}
		if e.Ownership == Leased {
			earlier(e.Lease.ExpiresAt)
		}
	}
	return due
}

// Pass makes the one change to e that is due, and says whether there was one: the grace of its cancellation is over, the
// deadline ends it, the timeout of its attempt fails that, a lease that ran out may be taken over, a delay is over, a grant
// has lapsed. Passing the same time twice is passing it once. reference: executions.md 4.
func (e Execution) Pass(now time.Time) (Change, bool) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case e.Lifecycle == Terminal:
	case e.cancelling() && (due(e.Cancellation.DeadlineAt) || due(e.DeadlineAt)):
		c := e.cancelled(*e.Cancellation, now)
		c.Execution.Lease.Epoch++
		return c, true
	case due(e.DeadlineAt):
		if s := e.Suspension; s.Open() && due(s.TimeoutAt) && s.TimeoutAt.Before(e.DeadlineAt) {
			if c, escalated := e.TimeOut(now); !escalated {
				return c, true
			}
		}
		failure := &Failure{Reason: reasonDeadline, Category: CategoryTimeout}
		c := Change{Execution: e}
		c.end(StageEndedFailure, ClosedExpired, failure, now)
		c.finish(OutcomeExpired, failure, reasonOf[OutcomeExpired], now)
		return c, true
	case e.Lifecycle == Active && due(e.AttemptTimeoutAt):
		return e.failed(Failure{Reason: reasonAttemptTimeout, Category: CategoryTimeout}, nil, OutcomeExpired, ClosedExpired, now), true
	case e.Ownership == Leased && due(e.Lease.ExpiresAt):
		return e.leaseExpired(now), true
	case e.Eligibility == NotEligibleUntilTime && due(e.DelayUntil):
		return e.free(false, now), true
	case e.Grant != nil && due(e.Grant.ExpiresAt):
		c := Change{Execution: e}
		c.Execution.Grant = nil
		c.Execution.Revision++
		return c, true
	}
	return Change{}, false
}

// leaseExpired lets somebody else take e over. Epoch and ids stay until then. What its worker was asked to end has ended.
func (e Execution) leaseExpired(now time.Time) Change {
	if e.cancelling() {
		c := e.cancelled(*e.Cancellation, now)
		c.Execution.Lease.Epoch++
		return c
	}
	c := Change{Execution: e}
	c.lose(ClosedLeaseExpired)
	n := &c.Execution
	n.Vector = Vector{Active, LeaseExpired, EligibilityNone, WaitingForWorker, OutcomeNone, AttemptInterrupted}
	n.BlockingDetail = "lease expired, awaiting reclaim"
	n.Revision++
	data := n.leaseData()
	data.Reason = "timeout"
	n.Lease.ExpiresAt = time.Time{}
	c.emit(event.LeaseExpired, data)
	return c
}
