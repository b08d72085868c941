package execution

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

// DefaultRecognised is how long a signal is recognised by its idempotency key.
const DefaultRecognised = 24 * time.Hour

// The sources of decisions, which no other signal has.
const (
	SourceOperator = "operator"
	SourceLink     = "approval_link" // somebody who has only the link
)

// SignalRequest is a signal as it is sent.
type SignalRequest struct {
	wait.Kept
	Token      string // opens the waitpoint
	Trusted    bool   // who sends it needs no token
	Identified bool   // by an API token: the source is whose that is
	Decides    bool   // its idempotency key is recognised as long as the waitpoint is not suspended on again
	// Fits refuses a signal that the approval at the waitpoint, nil for none, does not take; nil for a signal of any form. It may run
	// more than once.
	Fits        func(*Approval) error
	Recognised  time.Duration
	ResumeDelay *time.Duration // in place of that of the suspension
}

// Signalled is what became of a signal.
type Signalled struct {
	Signal    wait.Kept // the earlier one, when it is a duplicate
	Duplicate bool
	Execution Execution
}

// Minted is a waitpoint with its token.
type Minted struct {
	Waitpoint
	Token waitpoint.Token
}

// SuspendReport is the answer to a suspension.
type SuspendReport struct {
	Outcome      SuspendOutcome
	SuspensionID uuid.UUID
	Waitpoints   []Minted
	Execution    Execution
	Directives   []Directive
}

// SuspendOutcome is what became of a request to suspend.
type SuspendOutcome string

// The outcomes.
const (
	SuspendDone      SuspendOutcome = "suspended"
	SuspendSatisfied SuspendOutcome = "already_satisfied" // what it waits for had come before: the worker goes on
	SuspendCancelled SuspendOutcome = "cancelled"         // the worker had been asked to end it, and it has ended
)

type signalData struct {
	ID             string      `json:"signal_id"`
	WaitpointID    uuid.UUID   `json:"waitpoint_id"`
	WaitpointKey   string      `json:"waitpoint_key"`
	Name           string      `json:"signal_name"`
	Category       string      `json:"signal_category"`
	SourceType     string      `json:"source_type"`
	SourceIdentity string      `json:"source_identity"`
	CorrelationID  string      `json:"correlation_id,omitempty"`
	SuspensionID   uuid.UUID   `json:"suspension_id,omitzero"`
	Effect         wait.Effect `json:"effect"`
}

// Told returns the event that tells of a signal.
func (e *Execution) Told(k *wait.Kept) event.Event {
	t := event.SignalDelivered
	if k.Effect == wait.Buffered {
		t = event.SignalBuffered
	}
	return e.Event(t, signalData{k.ID, k.WaitpointID, k.Waitpoint, k.Name, k.Category, k.SourceType, k.SourceIdentity, k.CorrelationID, k.SuspensionID, k.Effect})
}

// RoomFor refuses, with CodeSignalLimitExceeded, a signal to an execution that has had so many.
func (e *Execution) RoomFor(signals int) error {
	limit := e.PolicyOf().MaxSignals()
	if limit == 0 || signals < limit {
		return nil
	}
	return fault.New(fault.CodeSignalLimitExceeded, "Execution %s has had %d signals, which is all that its policy allows. Nothing was changed; an operator may resume it.", e.ID, signals).With("limit", limit)
}
