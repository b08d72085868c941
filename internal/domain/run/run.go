package run

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Run is one execution of a workflow. Its documents are compact JSON. reference: runs-and-taskflows.md A3.1.
type Run struct {
	ID            uuid.UUID
	Namespace     string
	WorkflowName  string
	WorkflowTitle string // of its definition, "" for none
	Status        Status
	Trigger       string
	DryRun        bool
	Inputs        json.RawMessage // an object
	Definition    json.RawMessage // nil for none
	ParentRunID   string          // the unit of work outside that caused it, "" for none
	Parent        Place           // what it is a child of
	FlowID        uuid.UUID       // uuid.Nil when it belongs to no flow
	Iteration     int             // of the loop that it is a body of
	Wait          *Wait           // nil unless it waits
	ResultSummary string
	Error         string
	CancelReason  CancelReason
	Cancellation  *Cancellation
	Dismissed     bool
	Generation    int64 // the fence
	Lease         Lease
	ResumeCount   int
	Revision      int64 // grows by one with every event of its own
	Creator       string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	StartedAt     time.Time // of the first start; kept for ever
	EndedAt       time.Time // zero unless it has ended
	ActiveSince   time.Time // zero unless it is under way
	TotalDuration time.Duration
	Draining      bool // children of it that nobody waits for any more are still to be cancelled
}

// Place is where a child is in its parent run: the run itself, one of its steps, or an item of that step.
type Place struct {
	RunID  uuid.UUID
	StepID uuid.UUID
	ItemID uuid.UUID
}

// Wait is what a waiting run waits for.
type Wait struct {
	ID        uuid.UUID       `json:"wait_id"`
	BlockedOn json.RawMessage `json:"blocked_on"`
	Deadline  time.Time       `json:"deadline_at,omitzero"`
	OnTimeout OnTimeout       `json:"on_timeout"`
	Since     time.Time       `json:"since"`
}

// OnTimeout says what becomes of a run whose wait is not over in time.
type OnTimeout string

// What may become of it.
const (
	TimeoutFails   OnTimeout = "fail"
	TimeoutCancels OnTimeout = "cancel"
	TimeoutResumes OnTimeout = "resume"
)

// CancelReason says why a run was cancelled. The first reason stays. reference: runs-and-taskflows.md A13 46.
type CancelReason string

// The reasons.
const (
	ByUser   CancelReason = "user_requested"
	ByEngine CancelReason = "engine_shutdown" // its engine has ended it, and nobody had asked
	ByParent CancelReason = "parent_cancelled"
	ByTime   CancelReason = "timeout" // its wait was not over in time
)

// Cancellation is who asked for the end of a run first, and in what words.
type Cancellation struct {
	Actor       string    `json:"actor"`
	Message     string    `json:"message,omitempty"`
	RequestedAt time.Time `json:"requested_at"`
	DeadlineAt  time.Time `json:"deadline_at,omitzero"` // when its engine has to have ended it
}

// Change is what a verb does: the run after it, and the events that tell it. Without events nothing has changed, unless the lease was
// renewed.
type Change struct {
	Run    Run
	Events []event.Event
}

// Name is what people call the run.
func (r *Run) Name() string {
	if r.WorkflowTitle != "" {
		return r.WorkflowTitle
	}
	return r.WorkflowName
}

// Fence refuses, with CodeLeaseLost, a generation that is not the present one.
func (r *Run) Fence(generation int64) error {
	if generation == r.Generation {
		return nil
	}
	return fault.New(fault.CodeLeaseLost, "Run %s has the generation %d and not %d: somebody else drives it. Stop, or take its lease again.", r.ID, r.Generation, generation).
		With("current_generation", r.Generation)
}

// Expect refuses, with CodeRevisionMismatch, whoever has read another revision than the present one. nil expects none.
func (r *Run) Expect(revision *int64) error {
	return fault.Expect("Run "+r.ID.String(), revision, r.Revision)
}

// Takes refuses to change what is in a run that has ended, with CodeRunTerminal.
func (r *Run) Takes() error {
	if !r.Status.Terminal() {
		return nil
	}
	return fault.New(fault.CodeRunTerminal, "Run %s is %s, and what is in it does not change any more. Stop; an operator may resume what has failed.", r.ID, r.Status).With("current_status", r.Status)
}

// Begins refuses to begin something new in a run that has ended, with CodeRunTerminal, or that is to end, with CodeRunCancelled.
func (r *Run) Begins() error {
	if err := r.Takes(); err != nil {
		return err
	}
	if r.Status != Cancelling {
		return nil
	}
	return fault.New(fault.CodeRunCancelled, "Run %s is cancelling: nothing new begins in it. End what you have at work, and cancel it with your generation.", r.ID).
		With("reason", r.CancelReason)
}

// move returns r in another status, or the refusal of a transition that the machine does not have.
func (r Run) move(to Status, by event.By) (Run, error) {
	from := r.Status
	if !legal(from, to) {
		return r, illegal("Run", r.ID, from, to)
	}
	r.Status, r.UpdatedAt = to, by.At
	if to != Waiting {
		r.Wait = nil
	}
	if !r.ActiveSince.IsZero() && (to.Terminal() || to == NeedsResume) {
		r.TotalDuration += by.At.Sub(r.ActiveSince)
		r.ActiveSince = time.Time{}
	}
	switch {
	case to.Terminal():
		r.EndedAt, r.Lease = by.At, Lease{}
	case from.Terminal() || from == NeedsResume || from == Pending:
		r.EndedAt, r.ActiveSince = time.Time{}, by.At
		if r.StartedAt.IsZero() {
			r.StartedAt = by.At
		}
	}
	return r, nil
}

func legal(from, to Status) bool { return slices.Contains(transitions[from], to) }

// told returns the change that the event t, with this data, tells of.
func (r Run) told(t event.Type, data any) Change {
	r.Revision++
	e := r.Event(t, data)
	e.Revision = new(r.Revision)
	return Change{Run: r, Events: []event.Event{e}}
}

// Event returns an event that concerns r and is no change of it.
func (r *Run) Event(t event.Type, data any) event.Event {
	return event.Event{Namespace: r.Namespace, Type: t, FlowID: r.FlowID, RunID: r.ID, Data: data}
}
