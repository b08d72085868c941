package run

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
)

// MaxDepth is how deep runs may stand in one another. reference: runs-and-taskflows.md F5 "Loop protection".
const MaxDepth = 16

// Child is what somebody says who lets a child do the work of a step or an item: a new one, or one that exists. One of them is set.
type Child struct {
	Execution   *execution.Create
	Run         *Create
	ExecutionID uuid.UUID
	RunID       uuid.UUID
}

// IsZero says whether there is none.
func (c *Child) IsZero() bool {
	return c == nil || c.Execution == nil && c.Run == nil && c.ExecutionID == uuid.Nil && c.RunID == uuid.Nil
}

// Check refuses, with CodeValidationFailed, what is more than one child.
func (c *Child) Check(pointer string) error {
	n := 0
	for _, is := range []bool{c.Execution != nil, c.Run != nil, c.ExecutionID != uuid.Nil, c.RunID != uuid.Nil} {
		if is {
			n++
		}
	}
	if n != 1 {
		return fault.Invalid(fault.CodeValidationFailed, pointer, "A child is one of execution, run, execution_id and run_id.")
	}
	return nil
}

// LinkTo puts a run at a place in another one.
func (r Run) LinkTo(at Place, by event.By) Change {
	r.Parent, r.UpdatedAt = at, by.At
	return r.told(event.RunLinked, struct {
		ParentWorkflowRunID uuid.UUID `json:"parent_workflow_run_id"`
		StepID              uuid.UUID `json:"step_id"`
		ItemID              uuid.UUID `json:"item_id,omitzero"`
	}{at.RunID, at.StepID, at.ItemID})
}

// Seen is what a step or an item sees of its child.
type Seen struct {
	Status     StepStatus
	ResultText string
	ContextOut string
	Markers    []string
	Structured json.RawMessage
	StepError  string
}

// SeenExecution returns what is seen of an execution. started says whether anybody ever had it, result is what it was completed with,
// failure why it has failed; nil for neither. reference: runs-and-taskflows.md F4, F5 2.
func SeenExecution(p execution.Public, started bool, result *execution.Value, failure *execution.Failure) Seen {
	s := Seen{Status: StepOfExecution(p, started)}
	if failure != nil && s.Status.Terminal() && s.Status != StepCompleted {
		s.StepError = failure.Reason
	}
	if result != nil && result.Encoding == execution.EncodingJSON {
		s.outputs(result.Bytes)
	}
	return s
}

// StepOfExecution returns the status of a step whose execution is in a public state.
func StepOfExecution(p execution.Public, started bool) StepStatus {
	switch p {
	case execution.PublicCompleted:
		return StepCompleted
	case execution.PublicFailed:
		return StepFailed
	case execution.PublicExpired:
		return StepTimedOut
	case execution.PublicCancelled:
		return StepCancelled
	case execution.PublicSkipped:
		return StepSkipped
	case execution.PublicActive:
		return StepRunning
	case execution.PublicSuspended:
		return StepWaiting
	default: // it waits for somebody to have it
		if started {
			return StepRunning
		}
		return StepPending
	}
}

// outputs takes what a result says for the steps that follow: its text, or its members of the names of a step's outputs, else all of it
// as the structured output.
func (s *Seen) outputs(result json.RawMessage) {
	var text string
	if json.Unmarshal(result, &text) == nil {
		s.ResultText = text
		return
	}
	s.Structured = compact(result)
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return
	}
	s.ContextOut = member[string](members["context_out"])
	s.ResultText = member[string](members["result_text"])
	s.Markers = member[[]string](members["markers_out"])
	if doc, ok := members["structured_output"]; ok {
		s.Structured = compact(doc)
	}
}

// member returns a member of a result, the zero value for one that is not there or of another type.
func member[T any](doc json.RawMessage) T {
	var v T
	if doc == nil || json.Unmarshal(doc, &v) != nil {
		return *new(T)
	}
	return v
}

// SeenRun returns what is seen of a child run.
func SeenRun(r *Run) Seen {
	s := Seen{Status: StepOfRun(r.Status), ResultText: r.ResultSummary}
	if r.Status.Terminal() && r.Status != Completed {
		if s.StepError = r.Error; s.StepError == "" {
			s.StepError = r.ResultSummary
		}
	}
	return s
}

// StepOfRun returns the status of a step whose child run is in a status.
func StepOfRun(s Status) StepStatus {
	switch s {
	case Pending:
		return StepPending
	case Waiting:
		return StepWaiting
	case Completed:
		return StepCompleted
	case Failed:
		return StepFailed
	case Cancelled:
		return StepCancelled
	default:
		return StepRunning
	}
}

// ItemOf returns the status of an item whose child makes a step have this status. An item that has a child is at work.
func ItemOf(s StepStatus) ItemStatus {
	switch s {
	case StepPending, StepRunning, StepWaiting:
		return ItemRunning
	case StepCompleted:
		return ItemCompleted
	case StepSkipped:
		return ItemSkipped
	case StepCancelled:
		return ItemCancelled
	default:
		return ItemFailed
	}
}

// flowSteps are what runs are as steps of flows. reference: runs-and-taskflows.md F4.
var flowSteps = map[Status]flow.StepStatus{
	Pending: flow.StepPending, Running: flow.StepRunning, Waiting: flow.StepRunning, Cancelling: flow.StepRunning, NeedsResume: flow.StepRunning,
	Completed: flow.StepSucceeded, Failed: flow.StepFailed, Cancelled: flow.StepCancelled,
}

// FlowStepOf returns what a flow's step that mirrors the run sees of it.
func (r *Run) FlowStepOf() flow.Child {
	c := flow.Child{Status: flowSteps[r.Status]}
	if r.Status.Terminal() {
		doc, err := json.Marshal(struct {
			Status        Status       `json:"status"`
			ResultSummary string       `json:"result_summary,omitempty"`
			Error         string       `json:"error,omitempty"`
			CancelReason  CancelReason `json:"cancel_reason,omitempty"`
		}{r.Status, r.ResultSummary, r.Error, r.CancelReason})
		if err == nil { // of texts: it cannot fail
			c.Result = doc
		}
	}
	return c
}

// Attached is a child that does the work of a step or an item from now on, and what is seen of it.
type Attached struct {
	RunID       uuid.UUID // one of both
	ExecutionID uuid.UUID
	Seen        Seen
}

// Attach lets a child do the work of a step.
func (s Step) Attach(a Attached) Step {
	s.ChildExecution = a.ExecutionID
	if a.RunID != uuid.Nil {
		s.ChildRunID, s.ChildLinked = a.RunID.String(), true
	}
	return s
}

// Attach lets a child do the work of an item.
func (it Item) Attach(a Attached) Item {
	it.ChildExecution = a.ExecutionID
	if a.RunID != uuid.Nil {
		it.ChildRunID, it.ChildLinked = a.RunID.String(), true
	}
	return it
}

// Mirror returns s with what has become of its child. A step that has ended stays as it is, and its fan-out is its own.
func (s Step) Mirror(r *Run, seen Seen, by event.By) StepChanged {
	if s.Status == seen.Status || !slices.Contains(stepTransitions[s.Status], seen.Status) {
		return StepChanged{Step: s}
	}
	u := StepUpdate{Status: seen.Status}
	next := s
	if seen.Status.Terminal() {
		next.take(&seen)
	}
	c, err := next.apply(r, u, by)
	if err != nil {
		return StepChanged{Step: s}
	}
	return c
}

// With returns the change of a step whose work a child does from now on: the step is what the child is.
func (c StepChanged) With(r *Run, a Attached, by event.By) StepChanged {
	c.Step = c.Step.Attach(a)
	seen := c.Step.Mirror(r, a.Seen, by)
	c.Step, c.Events, c.Applied, c.Ended = seen.Step, append(c.Events, seen.Events...), true, c.Ended || seen.Ended
	if len(c.Events) == 0 {
		c.tell(r, event.RunStepUpdated)
	}
	return c
}

func (s *Step) take(seen *Seen) {
	if seen.ResultText != "" {
		s.ResultText = seen.ResultText
	}
	if seen.ContextOut != "" {
		s.ContextOut = seen.ContextOut
	}
	if seen.Markers != nil {
		s.Markers = seen.Markers
	}
	if seen.Structured != nil {
		s.Structured = seen.Structured
	}
	if seen.StepError != "" {
		s.StepError = seen.StepError
	}
}
