package execution

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// completion is what a completion event tells. It carries all that a subscriber is shown.
type completion struct {
	Outcome      Outcome `json:"outcome"`
	AttemptIndex *int    `json:"attempt_index,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Category     string  `json:"category,omitempty"`
	Lane         string  `json:"lane"`
	Kind         string  `json:"kind"`
}

type eligibleData struct {
	Blocking Blocking     `json:"blocking_reason"`
	Attempt  AttemptState `json:"attempt_state"`
}

type blockedData struct {
	Blocking Blocking `json:"blocking_reason"`
}

type delayedData struct {
	DelayUntil event.Stamp `json:"delay_until"`
	Blocking   Blocking    `json:"blocking_reason"`
}

var completionTypes = map[Outcome]event.Type{
	OutcomeSuccess: event.ExecutionCompleted, OutcomeFailed: event.ExecutionFailed,
	OutcomeCancelled: event.ExecutionCancelled, OutcomeExpired: event.ExecutionExpired, OutcomeSkipped: event.ExecutionSkipped,
}

// Completions returns the types of the events that tell of an end.
func Completions() []event.Type { return slices.Sorted(maps.Values(completionTypes)) }

// CompletionOf returns the type of the event that tells of an end, "" for none.
func CompletionOf(o Outcome) event.Type { return completionTypes[o] }

// EndedBy returns the outcome that a completion event tells of, OutcomeNone for any other event.
func EndedBy(t event.Type) Outcome {
	for outcome, of := range completionTypes {
		if of == t {
			return outcome
		}
	}
	return OutcomeNone
}

// Complete ends e well. A repeated call by the same owner is answered again and changes nothing. Errors are those of Check.
func (e Execution) Complete(f Fence, now time.Time) (c Change, replayed bool, err error) {
	if e.replays(OpComplete, f) {
		return Change{Execution: e}, true, nil
	}
	if err := e.Check(f, now); err != nil {
		return Change{}, false, err
	}
	c = Change{Execution: e}
	c.end(StageEndedSuccess, ClosedSuccess, nil, now)
	c.finish(OutcomeSuccess, nil, "completed", now)
	c.Execution.Released = &Released{Op: OpComplete, Epoch: f.LeaseEpoch}
	c.reported(f, OpComplete)
	return c, false, nil
}

// Fail ends the attempt. If the policy allows another one it is scheduled, else e has failed. retryAfter replaces the
// policy's delay. A repeated call by the same owner is answered again and changes nothing. Errors are those of Check.
// reference: executions.md 2.9.
func (e Execution) Fail(f Fence, failure Failure, retryAfter *time.Duration, now time.Time) (c Change, replayed bool, err error) {
	if e.replays(OpFail, f) {
		return Change{Execution: e}, true, nil
	}
	if err := e.Check(f, now); err != nil {
		return Change{}, false, err
	}
	c = e.failed(failure, retryAfter, OutcomeFailed, ClosedFailure, now)
	released := &Released{Op: OpFail, Epoch: f.LeaseEpoch, Cancelled: c.Execution.Outcome == OutcomeCancelled}
	if c.Execution.Lifecycle == Runnable {
		released.RetryAt = c.Execution.DelayUntil
	}
	c.Execution.Released = released
	c.reported(f, OpFail)
	return c, false, nil
}

// Abandon ends e as cancelled, by its owner. A repeated call by the same owner is answered again and changes nothing. Errors
// are those of Check. reference: executions.md 2.10.
func (e Execution) Abandon(f Fence, by Cancellation, now time.Time) (c Change, replayed bool, err error) {
	if e.replays(OpCancel, f) {
		return Change{Execution: e}, true, nil
	}
	if err := e.Check(f, now); err != nil {
		return Change{}, false, err
	}
	c = e.cancelled(by, now)
	c.Execution.Released = &Released{Op: OpCancel, Epoch: f.LeaseEpoch}
	return c, false, nil
}

// failed ends the attempt and schedules the next one, or ends e with outcome.
func (e Execution) failed(failure Failure, retryAfter *time.Duration, outcome Outcome, why CloseReason, now time.Time) Change {
	policy := e.PolicyOf()
	c := Change{Execution: e}
	c.end(StageEndedFailure, why, &failure, now)
	if e.cancelling() {
		c.finish(OutcomeCancelled, &failure, reasonOf[OutcomeCancelled], now)
		return c
	}
	if !policy.Retries(failure.Category, e.Retries) {
		c.finish(outcome, &failure, reasonOf[outcome], now)
		return c
	}
	delay := policy.Delay(e.Retries, e.ID)
	if retryAfter != nil {
		delay = *retryAfter
	}
	n := &c.Execution
	n.Failure = &failure
	n.Retries++
	n.Vector = Vector{Runnable, Unowned, NotEligibleUntilTime, WaitingForRetryBackoff, OutcomeNone, AttemptPendingRetry}
	n.delay(now.Add(delay), WaitingForRetryBackoff, fmt.Sprintf("retry backoff until %s (attempt %d failed: %s)", stamp(now.Add(delay)), e.AttemptIndex, failure.Reason))
	n.AttemptTimeoutAt, n.Grant = time.Time{}, nil // what is tried again is anybody's
	n.Revision++
	c.letGo("retry_scheduled", nil)
	c.tellStand()
	return c
}

// endOf is how a suspension ends when its execution does so for another reason than its timeout.
var endOf = map[Outcome]string{OutcomeCancelled: closedCancelled, OutcomeExpired: closedExpired + reasonDeadline, OutcomeSkipped: "skipped"}

// reasonOf is why a lease ended when its execution ended with an outcome.
var reasonOf = map[Outcome]string{OutcomeFailed: "failed", OutcomeExpired: "timeout", OutcomeCancelled: "cancelled", OutcomeSkipped: "cancelled"}

// Cancel ends e from any phase that is not terminal. Cancelling a cancelled execution changes nothing; another ended one is
// CodeAlreadyTerminal. The epoch grows, so that a late worker is fenced. reference: executions.md 2.11.
func (e Execution) Cancel(by Cancellation, now time.Time) (Change, error) {
	switch {
	case e.Outcome == OutcomeCancelled:
		return Change{Execution: e}, nil
	case e.Lifecycle == Terminal:
		return Change{}, e.refuse(fault.CodeAlreadyTerminal, "Execution %s has ended as %s. Replay it to run it again.", e.ID, e.Public())
	}
	c := e.cancelled(by, now)
	if c.Execution.Lease.Epoch > 0 {
		c.Execution.Lease.Epoch++
	}
	return c, nil
}

// cancelled ends e as cancelled. Who asked for it first, and why, is kept.
func (e Execution) cancelled(by Cancellation, now time.Time) Change {
	c := Change{Execution: e}
	c.end(StageEndedCancelled, ClosedCancelled, nil, now)
	if c.Execution.Cancellation == nil {
		c.Execution.Cancellation = &by
	}
	c.finish(OutcomeCancelled, nil, reasonOf[OutcomeCancelled], now)
	return c
}

// finish enters the terminal phase: exactly one completion event, and the end of the lease if somebody held it. The attempt
// is ended by the caller, before.
func (c *Change) finish(outcome Outcome, failure *Failure, reason string, now time.Time) {
	n := &c.Execution
	held := n.Ownership != Unowned
	attempt := n.Attempt
	if n.AttemptIndex != NoAttempt {
		attempt = AttemptTerminal
	}
	n.Vector = Vector{Terminal, Unowned, EligibilityNone, BlockingNone, outcome, attempt}
	n.BlockingDetail, n.CompletedAt, n.Grant = "", now, nil
	n.closeSuspension(endOf[outcome], now)
	n.DelayUntil, n.AttemptTimeoutAt = time.Time{}, time.Time{}
	if failure != nil {
		n.Failure = failure
	}
	n.Revision++
	data := completion{Outcome: outcome, Lane: n.Lane, Kind: n.Kind}
	if n.AttemptIndex != NoAttempt {
		index := n.AttemptIndex
		data.AttemptIndex = &index
	}
	if failure != nil {
		data.Reason, data.Category = failure.Reason, failure.Category
	}
	switch outcome {
	case OutcomeCancelled:
		data.Reason = n.Cancellation.Reason
	case OutcomeSkipped:
		data.Reason, n.Cancellation = reasonImpossible, nil
	default:
		n.Cancellation = nil
	}
	c.emit(completionTypes[outcome], data)
	if held {
		c.letGo(reason, nil)
	}
}
