// Package run is the machine of a workflow run: what an engine from outside drives, step by step, under a lease.
//
//	pending ──start──> running ──wait──> waiting
//	   │               │ │ │ ^            │ │
//	   │               │ │ │ └──resume────┘ │
//	   │               │ │ └─release─> needs_resume ──resume──> running
//	   │               │ └─complete─> completed ──resume, restart──> running
//	   │               └──fail──> failed ──resume──> running
//	   └──cancel──> cancelled <── cancelling <──cancel of what an engine holds
//
// It is pure: time, ids and callers are arguments. What an engine does carries the generation of its lease, the fence: a new
// holder has a new one, and the old one's writes change nothing any more. What people do has no fence, but a status that it
// begins at.
//
// reference: runs-and-taskflows.md A3 to A7, A10, A13; F4 for what children become here.
package run

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Status is where a run stands.
type Status string

// The statuses.
const (
	Pending     Status = "pending"
	Running     Status = "running"
	Waiting     Status = "waiting"
	Cancelling  Status = "cancelling"   // its engine was asked to end it
	NeedsResume Status = "needs_resume" // its engine has given it up
	Completed   Status = "completed"
	Failed      Status = "failed"
	Cancelled   Status = "cancelled"
)

// transitions is the whole machine. What has ended begins again only by an explicit resume.
// reference: runs-and-taskflows.md A4.1.
var transitions = map[Status][]Status{
	Pending:     {Running, Cancelled, Failed},
	Running:     {Waiting, Cancelling, NeedsResume, Completed, Failed, Cancelled},
	Waiting:     {Running, Cancelling, NeedsResume, Failed, Cancelled},
	Cancelling:  {Cancelled},
	NeedsResume: {Running, Failed, Cancelled},
	Completed:   {Running},
	Failed:      {Running},
	Cancelled:   nil,
}

// Statuses returns every status, those that are ends last.
func Statuses() []Status {
	return []Status{Pending, Running, Waiting, Cancelling, NeedsResume, Completed, Failed, Cancelled}
}

// Successors returns the statuses that may follow s.
func (s Status) Successors() []Status { return slices.Clone(transitions[s]) }

// completionTypes are the events that tell of an end.
var completionTypes = map[Status]event.Type{Completed: event.RunCompleted, Failed: event.RunFailed, Cancelled: event.RunCancelled}

// CompletionOf returns the type of the event that tells of an end, "" for none.
func CompletionOf(s Status) event.Type { return completionTypes[s] }

// Terminal says whether s is an end.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// Known says whether s is a status at all.
func (s Status) Known() bool {
	_, ok := transitions[s]
	return ok
}

// StepStatus is where a step stands.
type StepStatus string

// The statuses of steps. They go forward only; running and waiting alternate.
const (
	StepPending   StepStatus = "pending"
	StepRunning   StepStatus = "running"
	StepWaiting   StepStatus = "waiting"
	StepCompleted StepStatus = "completed"
	StepFailed    StepStatus = "failed"
	StepSkipped   StepStatus = "skipped"
	StepTimedOut  StepStatus = "timed_out"
	StepCancelled StepStatus = "cancelled"
)

var stepEnds = []StepStatus{StepCompleted, StepFailed, StepSkipped, StepTimedOut, StepCancelled}

// stepTransitions is the machine of a step.
var stepTransitions = map[StepStatus][]StepStatus{
	StepPending:   append([]StepStatus{StepRunning, StepWaiting}, stepEnds...),
	StepRunning:   append([]StepStatus{StepWaiting}, stepEnds...),
	StepWaiting:   append([]StepStatus{StepRunning}, stepEnds...),
	StepCompleted: nil,
	StepFailed:    nil,
	StepSkipped:   nil,
	StepTimedOut:  nil,
	StepCancelled: nil,
}

// StepStatuses returns every status of a step, those that are ends last.
func StepStatuses() []StepStatus {
	return append([]StepStatus{StepPending, StepRunning, StepWaiting}, stepEnds...)
}

// Successors returns the statuses that may follow s.
func (s StepStatus) Successors() []StepStatus { return slices.Clone(stepTransitions[s]) }

// Terminal says whether s is an end.
func (s StepStatus) Terminal() bool { return slices.Contains(stepEnds, s) }

// Known says whether s is a status at all.
func (s StepStatus) Known() bool {
	_, ok := stepTransitions[s]
	return ok
}

// ItemStatus is where an item of a fan-out stands.
type ItemStatus string

// The statuses of items.
const (
	ItemPending   ItemStatus = "pending"
	ItemRunning   ItemStatus = "running"
	ItemCompleted ItemStatus = "completed"
	ItemFailed    ItemStatus = "failed"
	ItemSkipped   ItemStatus = "skipped"
	ItemCancelled ItemStatus = "cancelled"
)

var itemEnds = []ItemStatus{ItemCompleted, ItemFailed, ItemSkipped, ItemCancelled}

// itemTransitions is the machine of an item.
var itemTransitions = map[ItemStatus][]ItemStatus{
	ItemPending:   append([]ItemStatus{ItemRunning}, itemEnds...),
	ItemRunning:   itemEnds,
	ItemCompleted: nil,
	ItemFailed:    nil,
	ItemSkipped:   nil,
	ItemCancelled: nil,
}

// ItemStatuses returns every status of an item, those that are ends last.
func ItemStatuses() []ItemStatus { return append([]ItemStatus{ItemPending, ItemRunning}, itemEnds...) }

// Successors returns the statuses that may follow s.
func (s ItemStatus) Successors() []ItemStatus { return slices.Clone(itemTransitions[s]) }

// Terminal says whether s is an end.
func (s ItemStatus) Terminal() bool { return slices.Contains(itemEnds, s) }

// Known says whether s is a status at all.
func (s ItemStatus) Known() bool {
	return slices.Contains(slices.Collect(maps.Keys(itemTransitions)), s)
}

// illegal is the refusal of a transition that a machine does not have.
func illegal[S ~string](what string, id uuid.UUID, from, to S) *fault.Error {
	return fault.New(fault.CodeIllegalTransition, "%s %s is %s and cannot become %s. Read it and decide again.", what, id, from, to).
		With("from", from).With("to", to)
}
