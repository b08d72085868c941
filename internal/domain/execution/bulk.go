package execution

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Bulk is an operator's act on many executions.
type Bulk struct {
	Action   BulkAction
	Filter   Filter
	Priority *int   // of BulkPriority
	Reason   string // of BulkCancel
}

// BulkAction says what is done to each.
type BulkAction string

// The actions.
const (
	BulkCancel   BulkAction = "cancel"
	BulkReplay   BulkAction = "replay"
	BulkPriority BulkAction = "priority"
)

// Phase returns the phase in which the action concerns an execution: all but it, when not is set.
func (a BulkAction) Phase() (phase Lifecycle, not bool) {
	switch a {
	case BulkCancel:
		return Terminal, true
	case BulkReplay:
		return Terminal, false
	default:
		return Runnable, false
	}
}

// Check refuses, with CodeValidationFailed, what does not say what to do.
func (b Bulk) Check() error {
	switch {
	case b.Filter.isZero():
		return fault.Invalid(fault.CodeValidationFailed, "/filter", "Say which executions: the filter selects all of them.")
	case b.Action == BulkPriority && b.Priority == nil:
		return fault.Invalid(fault.CodeValidationFailed, "/priority", "Say which priority they get.")
	case b.Action != BulkPriority && b.Priority != nil:
		return fault.Invalid(fault.CodeValidationFailed, "/priority", "Only the action priority takes a priority.")
	case b.Action != BulkCancel && b.Reason != "":
		return fault.Invalid(fault.CodeValidationFailed, "/reason", "Only the action cancel takes a reason.")
	}
	return nil
}

// BulkJob is a bulk on its way. The server works through the executions that it selects, the oldest first.
type BulkJob struct {
	ID        uuid.UUID
	Namespace string
	Bulk
	State       BulkState
	Total       int64 // how many were selected when it began
	Done        int64 // how many were looked at
	FailedCount int64
	Failed      []BulkFailure // the first MaxBulkFailures of them
	Actor       string
	CreatedAt   time.Time
	EndedAt     time.Time
}

// MaxBulkFailures is how many refusals a job remembers.
const MaxBulkFailures = 100

// BulkState says whether a job is under way.
type BulkState string

// The states.
const (
	BulkRunning  BulkState = "running"
	BulkStopped  BulkState = "stopped"
	BulkFinished BulkState = "finished"
)

// BulkFailure is an execution that the action was refused for.
type BulkFailure struct {
	ExecutionID uuid.UUID  `json:"execution_id"`
	Code        fault.Code `json:"code"`
	Detail      string     `json:"detail"`
}

// Started returns the event that tells of a new job.
func (j *BulkJob) Started() event.Event {
	return event.Event{Namespace: j.Namespace, Type: event.OperatorBulkStarted, Actor: j.Actor, Data: struct {
		JobID  uuid.UUID  `json:"job_id"`
		Action BulkAction `json:"action"`
		Filter Filter     `json:"filter"`
		Total  int64      `json:"total"`
	}{j.ID, j.Action, j.Filter, j.Total}}
}

// Refused takes note of an execution that the action was refused for.
func (j *BulkJob) Refused(id uuid.UUID, f *fault.Error) {
	j.FailedCount++
	if len(j.Failed) < MaxBulkFailures {
		j.Failed = append(j.Failed, BulkFailure{id, f.Code, f.Message})
	}
}

// End ends a job that is under way, and returns the event that tells it.
func (j *BulkJob) End(state BulkState, now time.Time) event.Event {
	j.State, j.EndedAt = state, now
	return event.Event{Namespace: j.Namespace, Type: event.OperatorBulkFinished, Data: struct {
		JobID       uuid.UUID  `json:"job_id"`
		Action      BulkAction `json:"action"`
		State       BulkState  `json:"state"`
		Done        int64      `json:"done"`
		FailedCount int64      `json:"failed_count"`
	}{j.ID, j.Action, state, j.Done, j.FailedCount}}
}
