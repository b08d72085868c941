package execution

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Waitpoint is where signals reach an execution: made beforehand, to be handed out, or with a suspension. reference:
// executions.md 1.5.
type Waitpoint struct {
	ID           uuid.UUID
	ExecutionID  uuid.UUID
	AttemptIndex int
	SuspensionID uuid.UUID // of what waits there, uuid.Nil while nobody does
	Key          string
	Kid          string // of the secret that its token was made with
	State        WaitpointState
	Approval     *Approval
	CreatedAt    time.Time
	ActivatedAt  time.Time
	ExpiresAt    time.Time
	ClosedAt     time.Time
	CloseReason  string
	Signals      int
}

// WaitpointState is where a waitpoint stands.
type WaitpointState string

// The states.
const (
	WaitpointPending WaitpointState = "pending" // nobody waits there yet; what comes is kept
	WaitpointActive  WaitpointState = "active"
	WaitpointClosed  WaitpointState = "closed"
)

// Limits of waitpoints.
const (
	DefaultPendingTTL = 24 * time.Hour
	MaxPendingTTL     = 30 * 24 * time.Hour
	MaxOfExecution    = 1000 // waitpoints, closed ones too
	DefaultMaxSignals = 10_000
)

// NeverCommitted is why a waitpoint was closed that nobody suspended on in time.
const NeverCommitted = "never_committed"

type waitpointClosed struct {
	ID     uuid.UUID `json:"waitpoint_id"`
	Key    string    `json:"waitpoint_key"`
	Reason string    `json:"reason"`
}

// Prepare makes w a waitpoint of e's present attempt, for its owner to suspend on later. Errors are those of Check.
func (e *Execution) Prepare(f Fence, w Waitpoint, ttl time.Duration, now time.Time) (Waitpoint, event.Event, error) {
	if err := e.Check(f, now); err != nil {
		return w, event.Event{}, err
	}
	w.ExecutionID, w.AttemptIndex, w.State, w.CreatedAt, w.ExpiresAt = e.ID, e.AttemptIndex, WaitpointPending, now, now.Add(ttl)
	return w, e.Event(event.WaitpointCreated, struct {
		ID        uuid.UUID   `json:"waitpoint_id"`
		Key       string      `json:"waitpoint_key"`
		ExpiresAt event.Stamp `json:"expires_at"`
	}{w.ID, w.Key, event.Stamp(w.ExpiresAt)}), nil
}

// Close closes w, which is open, by itself.
func (w Waitpoint) Close(e *Execution, reason string, now time.Time) (Waitpoint, event.Event) {
	w.State, w.ClosedAt, w.CloseReason = WaitpointClosed, now, reason
	return w, e.Event(event.WaitpointClosed, waitpointClosed{w.ID, w.Key, reason})
}

// Usable refuses a waitpoint that e cannot suspend on: CodeNotFound, CodeWaitpointNotPending, CodePendingExpired.
// reference: executions.md 2.15 (UsePending).
func (w *Waitpoint) Usable(e *Execution, now time.Time) error {
	switch {
	case w.State != WaitpointPending || w.AttemptIndex != e.AttemptIndex:
		return fault.New(fault.CodeWaitpointNotPending, "Waitpoint %s of attempt %d is %s: it cannot be suspended on by attempt %d. Create another one.", w.ID, w.AttemptIndex, w.State, e.AttemptIndex).
			With("state", w.State)
	case !w.ExpiresAt.After(now):
		return fault.New(fault.CodePendingExpired, "Waitpoint %s expired at %s, before anybody suspended on it. Create another one.", w.ID, stamp(w.ExpiresAt)).With("expires_at", stamp(w.ExpiresAt))
	}
	return nil
}

// LastOf returns the suspension that w belongs to, or belonged to before it was kept for the next one; uuid.Nil for none.
func (w *Waitpoint) LastOf(e *Execution) uuid.UUID {
	s := e.Suspension
	if w.SuspensionID != uuid.Nil || s == nil || !slices.Contains(s.Waitpoints, Bound{w.ID, w.Key}) {
		return w.SuspensionID
	}
	return s.ID
}

// Takes says whether a signal to w is delivered (to whoever waits there), or kept. It returns CodeTargetNotSignalable and
// CodeWaitpointClosed. reference: executions.md 2.17.
func (w *Waitpoint) Takes(e *Execution, now time.Time) (deliver bool, err error) {
	switch {
	case e.Lifecycle == Terminal:
		return false, e.refuse(fault.CodeTargetNotSignalable, "Execution %s has ended as %s and takes no signals.", e.ID, e.Public())
	case w.State == WaitpointClosed:
		return false, fault.New(fault.CodeWaitpointClosed, "Waitpoint %s was closed at %s (%s). Nobody waits there any more.", w.ID, stamp(w.ClosedAt), w.CloseReason).
			With("close_reason", w.CloseReason).With("closed_at", stamp(w.ClosedAt))
	case w.State == WaitpointActive && e.Suspension.Open() && w.SuspensionID == e.Suspension.ID:
		return true, nil
	case w.State == WaitpointPending && w.AttemptIndex == e.AttemptIndex && !e.attemptEnded() && w.ExpiresAt.After(now):
		return false, nil
	}
	return false, e.refuse(fault.CodeTargetNotSignalable, "Waitpoint %s belongs to what execution %s no longer does: nobody will wait there. Nothing was changed.", w.ID, e.ID)
}

// OpenAttempt returns the index of the attempt that e is making, NoAttempt between two of them.
func (e *Execution) OpenAttempt() int {
	if e.Lifecycle == Terminal || e.attemptEnded() {
		return NoAttempt
	}
	return e.AttemptIndex
}

// attemptEnded says whether e goes on with another attempt.
func (e *Execution) attemptEnded() bool {
	return e.Attempt == AttemptPendingRetry || e.Attempt == AttemptPendingReplay
}

// ListedWaitpoint is an open waitpoint as lists show it, without its token.
type ListedWaitpoint struct {
	Waitpoint
	Kid         string   // of the token that is good now
	Fingerprint string   // of that token
	Names       []string // of the signals that are waited for, none for any
}
