package run

import (
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
)

// Class is a status in words that flows, runs, steps and executions have in common. reference: runs-and-taskflows.md F2, F4.
type Class string

// The classes.
const (
	ClassOpen       Class = "open"
	ClassWaiting    Class = "waiting"
	ClassCancelling Class = "cancelling"
	ClassSucceeded  Class = "succeeded"
	ClassFailed     Class = "failed"
	ClassCancelled  Class = "cancelled"
	ClassSkipped    Class = "skipped"
	ClassExpired    Class = "expired"
)

// ClassOf returns the class of a run.
func (r *Run) ClassOf() Class {
	switch r.Status {
	case Waiting:
		return ClassWaiting
	case Cancelling:
		return ClassCancelling
	case Completed:
		return ClassSucceeded
	case Failed:
		return ClassFailed
	case Cancelled:
		return ClassCancelled
	default:
		return ClassOpen
	}
}

// flowClass returns the class of a flow.
func flowClass(f *flow.Flow) Class {
	switch {
	case f.Status == flow.Finished:
		return ClassSucceeded
	case f.Status == flow.Failed:
		return ClassFailed
	case f.Status == flow.Cancelled:
		return ClassCancelled
	case f.CancelRequested:
		return ClassCancelling
	case f.Status == flow.Waiting:
		return ClassWaiting
	default:
		return ClassOpen
	}
}

// stepClasses are the classes of steps.
var stepClasses = map[StepStatus]Class{
	StepPending: ClassOpen, StepRunning: ClassOpen, StepWaiting: ClassWaiting, StepCompleted: ClassSucceeded, StepFailed: ClassFailed, StepSkipped: ClassSkipped,
	StepTimedOut: ClassExpired, StepCancelled: ClassCancelled,
}

// executionClasses are the classes of executions that are not open.
var executionClasses = map[execution.Public]Class{
	execution.PublicSuspended: ClassWaiting, execution.PublicCompleted: ClassSucceeded, execution.PublicFailed: ClassFailed, execution.PublicExpired: ClassExpired,
	execution.PublicCancelled: ClassCancelled, execution.PublicSkipped: ClassSkipped,
}

// attemptClasses are the classes of attempts.
var attemptClasses = map[execution.Stage]Class{
	execution.StageStarted: ClassOpen, execution.StageSuspended: ClassWaiting, execution.StageEndedSuccess: ClassSucceeded, execution.StageEndedFailure: ClassFailed,
	execution.StageEndedCancelled: ClassCancelled, execution.StageInterruptedReclaimed: ClassFailed,
}
