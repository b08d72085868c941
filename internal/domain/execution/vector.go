// Package execution is the machine of one leased unit of work: its state vector, who may own it, and what each operation
// does to it. It is pure: time and ids are arguments, and every transition returns a new value and the events that tell it.
//
//	create ──> runnable ──claim──> active ──complete | fail──> terminal
//	            ^   │ delay          │  │
//	            │   └──promote──┘    │  └──lease runs out──> expired ──claim (reclaim)──> active
//	            └──── retry, release ┘
//
// reference: executions.md 1.9 and 1.11, the canonical column.
package execution

import "slices"

// Vector is the state of an execution in seven dimensions. public_state is always derived from the others.
type Vector struct {
	Lifecycle   Lifecycle
	Ownership   Ownership
	Eligibility Eligibility
	Blocking    Blocking
	Outcome     Outcome
	Attempt     AttemptState
}

// Lifecycle is the phase of an execution.
type Lifecycle string

// The phases.
const (
	Runnable  Lifecycle = "runnable"
	Active    Lifecycle = "active"
	Suspended Lifecycle = "suspended"
	Terminal  Lifecycle = "terminal"
)

// Ownership says whether a worker holds the execution.
type Ownership string

// The kinds of ownership.
const (
	Unowned      Ownership = "unowned"
	Leased       Ownership = "leased"
	LeaseExpired Ownership = "lease_expired_reclaimable"
	LeaseRevoked Ownership = "lease_revoked"
)

// Eligibility says whether a runnable execution may be claimed.
type Eligibility string

// The kinds of eligibility.
const (
	EligibleNow           Eligibility = "eligible_now"
	NotEligibleUntilTime  Eligibility = "not_eligible_until_time"
	BlockedByDependencies Eligibility = "blocked_by_dependencies"
	BlockedByBudget       Eligibility = "blocked_by_budget"
	BlockedByQuota        Eligibility = "blocked_by_quota"
	BlockedByRoute        Eligibility = "blocked_by_route"
	BlockedByLaneState    Eligibility = "blocked_by_lane_state"
	BlockedByOperator     Eligibility = "blocked_by_operator"
	EligibilityNone       Eligibility = "not_applicable"
)

// Blocking says what an execution waits for.
type Blocking string

// The reasons.
const (
	BlockingNone            Blocking = "none"
	WaitingForWorker        Blocking = "waiting_for_worker"
	WaitingForRetryBackoff  Blocking = "waiting_for_retry_backoff"
	WaitingForResumeDelay   Blocking = "waiting_for_resume_delay"
	WaitingForDelay         Blocking = "waiting_for_delay"
	WaitingForSignal        Blocking = "waiting_for_signal"
	WaitingForApproval      Blocking = "waiting_for_approval"
	WaitingForCallback      Blocking = "waiting_for_callback"
	WaitingForToolResult    Blocking = "waiting_for_tool_result"
	WaitingForChildren      Blocking = "waiting_for_children"
	WaitingForBudget        Blocking = "waiting_for_budget"
	WaitingForQuota         Blocking = "waiting_for_quota"
	WaitingForCapableWorker Blocking = "waiting_for_capable_worker"
	WaitingForLocalityMatch Blocking = "waiting_for_locality_match"
	PausedByOperator        Blocking = "paused_by_operator"
	PausedByPolicy          Blocking = "paused_by_policy"
	PausedByFlowCancel      Blocking = "paused_by_flow_cancel"
)

// Outcome is how an execution ended.
type Outcome string

// The outcomes.
const (
	OutcomeNone      Outcome = "none"
	OutcomeSuccess   Outcome = "success"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeExpired   Outcome = "expired"
	OutcomeSkipped   Outcome = "skipped"
)

// AttemptState says where the current or next attempt stands.
type AttemptState string

// The attempt states.
const (
	AttemptNone          AttemptState = "none"
	AttemptPendingFirst  AttemptState = "pending_first_attempt"
	AttemptRunning       AttemptState = "running_attempt"
	AttemptInterrupted   AttemptState = "attempt_interrupted"
	AttemptPendingRetry  AttemptState = "pending_retry_attempt"
	AttemptPendingReplay AttemptState = "pending_replay_attempt"
	AttemptTerminal      AttemptState = "attempt_terminal"
)

// Public is the one state that most clients look at.
type Public string

// The public states.
const (
	PublicWaiting         Public = "waiting"
	PublicDelayed         Public = "delayed"
	PublicRateLimited     Public = "rate_limited"
	PublicWaitingChildren Public = "waiting_children"
	PublicActive          Public = "active"
	PublicSuspended       Public = "suspended"
	PublicCompleted       Public = "completed"
	PublicFailed          Public = "failed"
	PublicCancelled       Public = "cancelled"
	PublicExpired         Public = "expired"
	PublicSkipped         Public = "skipped"
)

// Publics returns every public state.
func Publics() []Public {
	return []Public{PublicWaiting, PublicDelayed, PublicRateLimited, PublicWaitingChildren, PublicActive, PublicSuspended,
		PublicCompleted, PublicFailed, PublicCancelled, PublicExpired, PublicSkipped}
}

// Ends returns the public states of what has ended.
func Ends() []Public {
	return []Public{PublicCompleted, PublicFailed, PublicCancelled, PublicExpired, PublicSkipped}
}

// Ended says whether p is the state of what has ended.
func (p Public) Ended() bool { return slices.Contains(Ends(), p) }

// Vocabulary returns every value of each dimension, by its name on the wire and in the store.
func Vocabulary() map[string][]string {
	return map[string][]string{
		"lifecycle_phase": words(Runnable, Active, Suspended, Terminal),
		"ownership_state": words(Unowned, Leased, LeaseExpired, LeaseRevoked),
		"eligibility_state": words(EligibleNow, NotEligibleUntilTime, BlockedByDependencies, BlockedByBudget, BlockedByQuota, BlockedByRoute,
			BlockedByLaneState, BlockedByOperator, EligibilityNone),
		"blocking_reason": words(BlockingNone, WaitingForWorker, WaitingForRetryBackoff, WaitingForResumeDelay, WaitingForDelay, WaitingForSignal,
			WaitingForApproval, WaitingForCallback, WaitingForToolResult, WaitingForChildren, WaitingForBudget, WaitingForQuota,
			WaitingForCapableWorker, WaitingForLocalityMatch, PausedByOperator, PausedByPolicy, PausedByFlowCancel),
		"terminal_outcome": words(OutcomeNone, OutcomeSuccess, OutcomeFailed, OutcomeCancelled, OutcomeExpired, OutcomeSkipped),
		"attempt_state": words(AttemptNone, AttemptPendingFirst, AttemptRunning, AttemptInterrupted, AttemptPendingRetry, AttemptPendingReplay,
			AttemptTerminal),
		"public_state": words(Publics()...),
	}
}

func words[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

var publicOfOutcome = map[Outcome]Public{
	OutcomeSuccess: PublicCompleted, OutcomeFailed: PublicFailed, OutcomeCancelled: PublicCancelled,
	OutcomeExpired: PublicExpired, OutcomeSkipped: PublicSkipped,
}

var publicOfEligibility = map[Eligibility]Public{
	EligibleNow: PublicWaiting, NotEligibleUntilTime: PublicDelayed, BlockedByDependencies: PublicWaitingChildren,
	BlockedByBudget: PublicRateLimited, BlockedByQuota: PublicRateLimited,
	BlockedByRoute: PublicWaiting, BlockedByLaneState: PublicWaiting, BlockedByOperator: PublicWaiting,
}

// Public derives the public state. reference: executions.md 1.9.3.
func (v Vector) Public() Public {
	switch v.Lifecycle {
	case Terminal:
		return publicOfOutcome[v.Outcome]
	case Suspended:
		return PublicSuspended
	case Active:
		return PublicActive
	default:
		return publicOfEligibility[v.Eligibility]
	}
}

// pending are the attempt states of a runnable execution.
var pending = map[AttemptState]bool{AttemptPendingFirst: true, AttemptPendingRetry: true, AttemptPendingReplay: true, AttemptInterrupted: true}

// runnableReasons are the reasons that go with each kind of eligibility of a runnable execution.
var runnableReasons = map[Eligibility][]Blocking{
	EligibleNow:           {WaitingForWorker},
	NotEligibleUntilTime:  {WaitingForDelay, WaitingForRetryBackoff, WaitingForResumeDelay},
	BlockedByDependencies: {WaitingForChildren},
	BlockedByBudget:       {WaitingForBudget},
	BlockedByQuota:        {WaitingForQuota},
	BlockedByRoute:        {WaitingForCapableWorker, WaitingForLocalityMatch},
	BlockedByLaneState:    {PausedByPolicy},
	BlockedByOperator:     {PausedByOperator, PausedByFlowCancel},
}

// suspendedReasons are the reasons of a suspended execution. reference: executions.md 2.15.
var suspendedReasons = []Blocking{WaitingForSignal, WaitingForApproval, WaitingForCallback, WaitingForToolResult, WaitingForBudget, PausedByOperator, PausedByPolicy}

// endings are the attempt states that go with each outcome. What was never claimed keeps its own when it is cancelled or
// expires, and has none when it is skipped.
var endings = map[Outcome][]AttemptState{
	OutcomeSuccess:   {AttemptTerminal},
	OutcomeFailed:    {AttemptTerminal},
	OutcomeCancelled: {AttemptTerminal, AttemptPendingFirst, AttemptPendingReplay},
	OutcomeExpired:   {AttemptTerminal, AttemptPendingFirst, AttemptPendingReplay},
	OutcomeSkipped:   {AttemptTerminal, AttemptNone},
}

// Legal says whether v is one of the combinations that exist. reference: executions.md 1.9.2.
func (v Vector) Legal() bool {
	switch v.Lifecycle {
	case Runnable:
		return v.Ownership == Unowned && v.Outcome == OutcomeNone && pending[v.Attempt] && slices.Contains(runnableReasons[v.Eligibility], v.Blocking)
	case Active:
		if v.Eligibility != EligibilityNone || v.Outcome != OutcomeNone {
			return false
		}
		if v.Ownership == Leased {
			return v.Blocking == BlockingNone && v.Attempt == AttemptRunning
		}
		return (v.Ownership == LeaseExpired || v.Ownership == LeaseRevoked) && v.Blocking == WaitingForWorker && v.Attempt == AttemptInterrupted
	case Suspended:
		return v.Ownership == Unowned && v.Eligibility == EligibilityNone && v.Outcome == OutcomeNone && v.Attempt == AttemptInterrupted && slices.Contains(suspendedReasons, v.Blocking)
	case Terminal:
		return v.Ownership == Unowned && v.Eligibility == EligibilityNone && v.Blocking == BlockingNone && slices.Contains(endings[v.Outcome], v.Attempt)
	default:
		return false
	}
}
