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

// CloseReason is why the stream of an attempt takes no more frames.
type CloseReason string

// The reasons. A stream closes once; taking over a lost lease only changes the reason to ClosedReclaimed. Giving a lease back
// leaves the stream open, since the same attempt goes on later.
const (
	ClosedSuccess              CloseReason = "attempt_success"
	ClosedFailure              CloseReason = "attempt_failure"
	ClosedCancelled            CloseReason = "attempt_cancelled"
	ClosedLeaseExpired         CloseReason = "lease_expired"
	ClosedLeaseRevoked         CloseReason = "lease_revoked"
	ClosedReclaimed            CloseReason = "reclaimed"
	ClosedExpired              CloseReason = "expired" // a deadline, or the attempt's timeout
	ClosedSuspensionTimeout    CloseReason = "suspension_timeout"
	ClosedDependencyImpossible CloseReason = "dependency_impossible" // reserved
)

// CloseReasons returns every reason.
func CloseReasons() []CloseReason {
	return []CloseReason{ClosedSuccess, ClosedFailure, ClosedCancelled, ClosedLeaseExpired, ClosedLeaseRevoked, ClosedReclaimed, ClosedExpired,
		ClosedSuspensionTimeout, ClosedDependencyImpossible}
}

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
	// Close is why the attempt's stream closes here, "" when it stays as it is.
	Close CloseReason
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

// end ends the current attempt, if it is open: what waits for its first attempt, or its next one, has none. Its stream closes
// with it, unless that was closed when the lease was lost.
func (c *Change) end(stage Stage, why CloseReason, failure *Failure, now time.Time) {
	e := &c.Execution
	if e.Attempt != AttemptRunning && e.Attempt != AttemptInterrupted {
		return
	}
	if e.Lost() && why != ClosedReclaimed {
		why = ""
	}
	c.Attempts = append(c.Attempts, AttemptChange{Index: e.AttemptIndex, Stage: stage, EndedAt: now, Failure: failure, Close: why})
}

// lose closes the stream of the current attempt, whose lease was lost: nobody resumes it.
func (c *Change) lose(why CloseReason) {
	c.Attempts = append(c.Attempts, AttemptChange{Index: c.Execution.AttemptIndex, Stage: StageStarted, Close: why})
}
