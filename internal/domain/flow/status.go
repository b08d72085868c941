// Package flow is the machine of a flow: a goal with an owner, a state document and a revision, driven by a controller.
//
//	created ──start──> running ──wait──> waiting
//	                    │  │ ^             │ │ │
//	                    │  │ └──resume─────┘ │ │
//	                    │  └──fail──> failed <┘ │
//	                    └─finish─> finished     │
//	created, running, waiting ──cancel──> cancelled
//	finished, failed ──replay of a member──> running
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
func (s Status) Terminal() bool { return s.Known() && len(transitions[s]) == 0 }

// Known says whether s is a status at all.
func (s Status) Known() bool {
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
	return fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s, and what has ended does not change any more. Create another one.", f.ID, f.Status).With("current_status", f.Status)
}

// guard refuses a transition that the machine does not have, or that does not begin at one of the statuses named. In this
// order: CodeAlreadyTerminal, CodeCancelPending, CodeIllegalTransition. reference: runs-and-taskflows.md B4; model.md adds
// failed to what a pending cancellation allows.
func (f *Flow) guard(to Status, from ...Status) error {
	if len(from) == 0 {
		from = sources(to)
	}
	if err := f.open(); err != nil && (f.Status.Terminal() || to != Cancelled && to != Failed) {
		return err
	}
	if slices.Contains(from, f.Status) {
		return nil
	}
	return fault.New(fault.CodeIllegalTransition, "Flow %s is %s, and this needs one that is %s. Read it and decide again.", f.ID, f.Status, list(from)).
		With("from", f.Status).With("to", to)
}

// sources returns the statuses from which a status can be reached in one step.
func sources(to Status) []Status {
	var from []Status
	for _, s := range Statuses() {
		if slices.Contains(transitions[s], to) {
			from = append(from, s)
		}
	}
	return from
}

func list(statuses []Status) string {
	words := make([]string, len(statuses))
	for i, s := range statuses {
		words[i] = string(s)
	}
	return strings.Join(words, " or ")
}
