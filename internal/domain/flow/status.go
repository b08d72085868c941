// Package flow is the machine of a flow: a goal with an owner, a state document and a revision, driven by a controller.
//
//	created ──start──> running ──wait──> waiting
//	                    │  │ ^             │ │ │
//	                    │  │ └──resume─────┘ │ │
//	                    │  └──fail──> failed <┘ │
//	                    └─finish─> finished     │
//	created, running, waiting ──cancel──> cancelled
//
// It is pure: time, ids and callers are arguments. A verb decides whether it may happen and states the one fact that it makes
// true; the fact, which is also the event's data, makes the next flow out of this one. So the events of a flow, folded, are
// the flow ([Fold]), and no revision is without its event.
//
// reference: runs-and-taskflows.md B4 to B6.
package flow

import (
	"slices"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Status is where a flow stands.
type Status string

// The statuses.
const (
	Created   Status = "created"
	Running   Status = "running"
	Waiting   Status = "waiting"
	Finished  Status = "finished"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// transitions is the whole machine: the statuses that follow each one, none after an end.
var transitions = map[Status][]Status{
	Created:   {Running, Cancelled},
	Running:   {Waiting, Finished, Failed, Cancelled},
	Waiting:   {Running, Failed, Cancelled},
	Finished:  nil,
	Failed:    nil,
	Cancelled: nil,
}

// Statuses returns every status, those that are ends last.
func Statuses() []Status { return []Status{Created, Running, Waiting, Finished, Failed, Cancelled} }

// Successors returns the statuses that may follow s.
func (s Status) Successors() []Status { return slices.Clone(transitions[s]) }

// Terminal says whether s is an end.
func (s Status) Terminal() bool { return s.known() && len(transitions[s]) == 0 }

func (s Status) known() bool {
	_, ok := transitions[s]
	return ok
}

// open refuses to change a flow that has ended or that is about to be cancelled. It returns CodeAlreadyTerminal or
// CodeCancelPending.
func (f *Flow) open() error {
	if f.Status.Terminal() {
		return f.ended()
	}
	if f.CancelRequested {
		return fault.New(fault.CodeCancelPending, "Cancellation of flow %s was requested. It can only be cancelled or failed now.", f.ID)
	}
	return nil
}

func (f *Flow) ended() error {
	return fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s, and what has ended does not change any more.", f.ID, f.Status).With("status", f.Status)
}

// guard refuses a transition that the machine does not have. In this order: CodeAlreadyTerminal, CodeCancelPending,
// CodeIllegalTransition. reference: runs-and-taskflows.md B4; model.md adds failed to what a pending cancellation allows.
func (f *Flow) guard(to Status) error {
	err := f.open()
	if f.CancelRequested && (to == Cancelled || to == Failed) && !f.Status.Terminal() {
		err = nil
	}
	if err != nil || slices.Contains(transitions[f.Status], to) {
		return err
	}
	allowed := make([]string, len(transitions[f.Status]))
	for i, s := range transitions[f.Status] {
		allowed[i] = string(s)
	}
	return fault.New(fault.CodeIllegalTransition, "Flow %s is %s and cannot become %s; it can become %s.", f.ID, f.Status, to, strings.Join(allowed, ", ")).
		With("from", f.Status).With("to", to).With("allowed", allowed)
}
