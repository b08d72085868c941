package flow

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Step is bookkeeping: what the controller says happened, or what became of the execution that does it.
// reference: runs-and-taskflows.md B3.2.
type Step struct {
	ID              uuid.UUID
	FlowID          uuid.UUID
	RunID           string // external key, unique in the flow
	Position        int64  // in the order in which steps were added, from 1
	Runtime         Runtime
	ChildSessionKey string // "" for none
	Task            string
	Status          StepStatus
	Result          json.RawMessage // nil for none
	ExecutionID     uuid.UUID       // of the execution that it mirrors
	WorkflowRunID   uuid.UUID
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// Runtime says who drives a step.
type Runtime string

// The runtimes.
const (
	Managed  Runtime = "managed"  // the flow's controller
	Mirrored Runtime = "mirrored" // somebody else, whom it observes
)

// StepStatus is where a step stands. It only goes forward: pending, running, then one of the ends.
type StepStatus string

// The statuses.
const (
	StepPending   StepStatus = "pending"
	StepRunning   StepStatus = "running"
	StepSucceeded StepStatus = "succeeded"
	StepFailed    StepStatus = "failed"
	StepCancelled StepStatus = "cancelled"
)

// Terminal says whether s is an end.
func (s StepStatus) Terminal() bool {
	return s == StepSucceeded || s == StepFailed || s == StepCancelled
}

// Known says whether s is a status at all.
func (s StepStatus) Known() bool { return s == StepPending || s == StepRunning || s.Terminal() }

// StepStatusOf returns the status of a step whose execution is in a public state. started says whether that was ever claimed.
// reference: runs-and-taskflows.md F4.
func StepStatusOf(p execution.Public, started bool) StepStatus {
	switch p {
	case execution.PublicCompleted:
		return StepSucceeded
	case execution.PublicFailed, execution.PublicExpired:
		return StepFailed
	case execution.PublicCancelled, execution.PublicSkipped:
		return StepCancelled
	case execution.PublicActive, execution.PublicSuspended:
		return StepRunning
	default: // it waits
		if started {
			return StepRunning
		}
		return StepPending
	}
}

// Child is what a step mirrors of its execution.
type Child struct {
	Status StepStatus
	Public execution.Public
	Result json.RawMessage // nil for none
}

// ChildOf returns what a step mirrors of an execution, and of its result, nil for none. A result that is not JSON is
// mirrored as base64.
func ChildOf(p execution.Public, started bool, result *execution.Value) Child {
	c := Child{Status: StepStatusOf(p, started), Public: p}
	switch {
	case result == nil:
	case result.Encoding == execution.EncodingJSON:
		c.Result = compact(result.Bytes)
	default:
		c.Result = json.RawMessage(`"` + base64.StdEncoding.EncodeToString(result.Bytes) + `"`)
	}
	return c
}

// NewStep is what a new step is made of.
type NewStep struct {
	ID              uuid.UUID
	RunID           string
	Position        int64
	Runtime         Runtime // "" for managed
	ChildSessionKey string
	Task            string
	Status          StepStatus // "" for pending
	Result          json.RawMessage
	ExecutionID     uuid.UUID
	WorkflowRunID   uuid.UUID
}

// Insert returns a new step of f. child is what its execution or run, if it names one, is at the moment; it decides status and
// result. It returns CodeAlreadyTerminal when the flow has ended, and CodeValidationFailed for a blank task.
func (f *Flow) Insert(in NewStep, child *Child, by event.By) (Step, error) {
	if err := f.takesSteps(in.Task); err != nil {
		return Step{}, err
	}
	s := Step{ID: in.ID, FlowID: f.ID, RunID: in.RunID, Position: in.Position, Runtime: in.Runtime, ChildSessionKey: in.ChildSessionKey, Task: in.Task,
		Status: in.Status, ExecutionID: in.ExecutionID, WorkflowRunID: in.WorkflowRunID, CreatedAt: by.At, UpdatedAt: by.At}
	if s.Runtime == "" {
		s.Runtime = Managed
	}
	if s.Status == "" {
		s.Status = StepPending
	}
	s.take(in.Result)
	if child != nil {
		s.mirror(*child)
	}
	return s, nil
}

func (f *Flow) takesSteps(task string) error {
	if f.Status.Terminal() {
		return f.ended()
	}
	return required(task, "task")
}

// StepChange is what a controller says of a step.
type StepChange struct {
	Task            *string
	Status          *StepStatus
	Result          json.RawMessage // nil keeps it, null clears it
	ChildSessionKey patch.Field[string]
	ExecutionID     patch.Field[uuid.UUID]
	WorkflowRunID   patch.Field[uuid.UUID]
	Force           bool // a step that has ended may change its status
}

// NewStep returns the step that an observation makes when there is none yet.
func (c *StepChange) NewStep(runID string) NewStep {
	n := NewStep{RunID: runID, Runtime: Mirrored, Result: c.Result}
	if c.Task != nil {
		n.Task = *c.Task
	}
	if c.Status != nil {
		n.Status = *c.Status
	}
	c.ChildSessionKey.Into(&n.ChildSessionKey)
	c.ExecutionID.Into(&n.ExecutionID)
	c.WorkflowRunID.Into(&n.WorkflowRunID)
	return n
}

// Links returns the execution and the run that a change of s makes it mirror from now on, uuid.Nil where it begins to mirror none.
func (c *StepChange) Links(s *Step) (executionID, runID uuid.UUID) {
	begins := func(f patch.Field[uuid.UUID], was uuid.UUID) uuid.UUID {
		if f.Value == nil || *f.Value == was {
			return uuid.Nil
		}
		return *f.Value
	}
	return begins(c.ExecutionID, s.ExecutionID), begins(c.WorkflowRunID, s.WorkflowRunID)
}

// Change returns s as a controller changes it, and whether that is a change at all. child is what the execution or run is at
// the moment which s begins to mirror, if it does. While a step mirrors somebody its status and result are theirs, and what the
// change says of them is left aside.
//
// Statuses go forward only: a step that has ended does not change its status (CodeStepTerminal), and one that is running
// does not become pending again, unless the change is forced. It returns CodeAlreadyTerminal when the flow has ended.
// reference: runs-and-taskflows.md B6 and B13 3.
func (f *Flow) Change(s Step, c StepChange, child *Child, by event.By) (Step, bool, error) {
	next := s
	if c.Task != nil {
		next.Task = *c.Task
	}
	if err := f.takesSteps(next.Task); err != nil {
		return Step{}, false, err
	}
	c.ChildSessionKey.Into(&next.ChildSessionKey)
	c.ExecutionID.Into(&next.ExecutionID)
	c.WorkflowRunID.Into(&next.WorkflowRunID)
	switch {
	case child != nil:
		next.take(c.Result)
		next.mirror(*child)
	case !next.mirrors():
		next.take(c.Result)
		if c.Status != nil && (c.Force || s.Status != StepRunning || *c.Status != StepPending) {
			next.Status = *c.Status
		}
	}
	if s.Status.Terminal() && next.Status != s.Status && !c.Force {
		return Step{}, false, fault.New(fault.CodeStepTerminal, "Step %s of flow %s is %s and does not become %s. Repeat it with force to overwrite it.",
			s.RunID, f.ID, s.Status, next.Status).With("current_status", s.Status)
	}
	if next.same(&s) {
		return s, false, nil
	}
	next.UpdatedAt = by.At
	return next, true, nil
}

// mirrors says whether somebody else decides what the step is.
func (s *Step) mirrors() bool { return s.ExecutionID != uuid.Nil || s.WorkflowRunID != uuid.Nil }

// Mirror returns s with what has become of its execution or run, and whether that is a change. It may lead anywhere: a replayed
// execution runs again.
func (s Step) Mirror(child Child, now time.Time) (Step, bool) {
	next := s
	next.mirror(child)
	if next.same(&s) {
		return s, false
	}
	next.UpdatedAt = now
	return next, true
}

func (s *Step) mirror(child Child) {
	s.Status = child.Status
	if child.Result != nil {
		s.Result = child.Result
	}
}

// take sets the result to a document, unless it is nil; null clears it.
func (s *Step) take(result json.RawMessage) {
	switch {
	case result == nil:
	case null(result):
		s.Result = nil
	default:
		s.Result = compact(result)
	}
}

func (s *Step) same(t *Step) bool {
	return s.Task == t.Task && s.Status == t.Status && bytes.Equal(s.Result, t.Result) && s.ChildSessionKey == t.ChildSessionKey &&
		s.ExecutionID == t.ExecutionID && s.WorkflowRunID == t.WorkflowRunID
}

// stepData is what an event tells of a step.
type stepData struct {
	StepID          uuid.UUID        `json:"step_id"`
	RunID           string           `json:"run_id"`
	Runtime         Runtime          `json:"runtime"`
	Task            string           `json:"task"`
	Status          StepStatus       `json:"status"`
	Result          json.RawMessage  `json:"result,omitempty"`
	ChildSessionKey string           `json:"child_session_key,omitempty"`
	ExecutionID     uuid.UUID        `json:"execution_id,omitzero"`
	WorkflowRunID   uuid.UUID        `json:"workflow_run_id,omitzero"`
	PublicState     execution.Public `json:"public_state,omitempty"` // of the execution that it mirrors
}

// StepEvent returns the event that tells of a step of f. child is what made it change, if that was its execution.
func (f *Flow) StepEvent(t event.Type, s *Step, child *Child) event.Event {
	data := stepData{StepID: s.ID, RunID: s.RunID, Runtime: s.Runtime, Task: s.Task, Status: s.Status, Result: s.Result,
		ChildSessionKey: s.ChildSessionKey, ExecutionID: s.ExecutionID, WorkflowRunID: s.WorkflowRunID}
	if child != nil {
		data.PublicState = child.Public
	}
	return event.Event{Namespace: f.Namespace, Type: t, FlowID: f.ID, InstanceTag: f.Tags[tag.Instance], Data: data}
}
