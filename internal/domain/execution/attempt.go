package execution

import "time"

// AttemptType says why an attempt was made.
type AttemptType string

// The types.
const (
	AttemptInitial AttemptType = "initial"
	AttemptRetry   AttemptType = "retry"
	AttemptReclaim AttemptType = "reclaim"
	AttemptReplay  AttemptType = "replay"
)

// Stage is where an attempt stands.
type Stage string

// The stages.
const (
	StageStarted              Stage = "started"
	StageSuspended            Stage = "suspended"
	StageEndedSuccess         Stage = "ended_success"
	StageEndedFailure         Stage = "ended_failure"
	StageEndedCancelled       Stage = "ended_cancelled"
	StageInterruptedReclaimed Stage = "interrupted_reclaimed"
)

// Attempt is one try at an execution. reference: executions.md 1.3.
type Attempt struct {
	Index         int
	Type          AttemptType
	Stage         Stage
	WorkerID      string
	InstanceID    string
	LeaseEpoch    int64
	StartedAt     time.Time
	EndedAt       time.Time
	Failure       *Failure
	ReclaimReason string
	Previous      *int
}

// AttemptChange is what a transition does to one attempt.
type AttemptChange struct {
	Index   int
	Open    *Attempt // a new attempt, else the existing one changes:
	Stage   Stage
	EndedAt time.Time // zero unless the attempt ends here
	Failure *Failure
	Lease   *Lease // who goes on with it
}

// open starts a new attempt of the given type under e's lease.
func (c *Change) open(t AttemptType, reason string, now time.Time) {
	e := &c.Execution
	a := &Attempt{Index: e.Attempts, Type: t, Stage: StageStarted, WorkerID: e.Lease.WorkerID, InstanceID: e.Lease.InstanceID,
		LeaseEpoch: e.Lease.Epoch, StartedAt: now, ReclaimReason: reason}
	if e.AttemptIndex != NoAttempt {
		previous := e.AttemptIndex
		a.Previous = &previous
	}
	e.AttemptIndex = e.Attempts
	e.Attempts++
	c.Attempts = append(c.Attempts, AttemptChange{Index: a.Index, Open: a})
}

// end ends the current attempt, if it is open: what waits for its first attempt, or its next one, has none.
func (c *Change) end(stage Stage, failure *Failure, now time.Time) {
	if c.Execution.Attempt == AttemptRunning || c.Execution.Attempt == AttemptInterrupted {
		c.Attempts = append(c.Attempts, AttemptChange{Index: c.Execution.AttemptIndex, Stage: stage, EndedAt: now, Failure: failure})
	}
}
