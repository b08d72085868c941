package execution

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Execution is one leased unit of work. reference: executions.md 1.2.
type Execution struct {
	ID        uuid.UUID
	Namespace string
	Lane      string
	Kind      string
	FlowID    uuid.UUID // uuid.Nil when it belongs to no flow
	RunID     uuid.UUID // uuid.Nil when it works for no run
	Key       string    // unique in its flow
	Priority  int
	Revision  int64

	Vector
	BlockingDetail string

	Payload         []byte // nil when none was given
	PayloadEncoding Encoding
	Policy          json.RawMessage
	Required        Capabilities
	Tags            map[string]string
	Creator         string
	Followed        bool // a flow waits for its end, or a step mirrors it, or did
	Admitted        bool // it has a slot of some quota
	Limits          *Limits

	CreatedAt        time.Time
	StartedAt        time.Time // of the first attempt; kept for ever
	CompletedAt      time.Time
	DelayUntil       time.Time
	DeadlineAt       time.Time
	AttemptTimeoutAt time.Time

	AttemptIndex int // of the current or last attempt, NoAttempt before the first
	Attempts     int // made so far; the index of the next one
	Retries      int
	Replays      int
	Reclaims     int

	Lease        Lease
	Grant        *Grant // who has reserved it
	Released     *Released
	Suspension   *Suspension // the present one, or the last
	Progress     *Progress
	Failure      *Failure
	Cancellation *Cancellation
}

// NoAttempt is the index of the current attempt before the first claim.
const NoAttempt = -1

// MaxPriority is the highest priority; priorities are clamped to 0…MaxPriority.
const MaxPriority = 9000

// Encoding says what kind of bytes a payload or a result is.
type Encoding string

// The encodings: a JSON document, or any bytes, which JSON bodies show as base64.
const (
	EncodingJSON   Encoding = "json"
	EncodingBase64 Encoding = "base64"
)

// Value is a payload or a result.
type Value struct {
	Bytes    []byte
	Encoding Encoding
}

// Lease is who owns an execution, or who did last. Its epoch grows with every acquisition and with every end that the
// owner did not choose.
type Lease struct {
	ID         uuid.UUID
	Epoch      int64
	AttemptID  uuid.UUID // the holder's secret
	WorkerID   string
	InstanceID string
	AcquiredAt time.Time
	ExpiresAt  time.Time // zero unless it is held
}

// Progress is what the worker says about how far it is.
type Progress struct {
	Pct     *int      `json:"pct,omitempty"`
	Message *string   `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Failure is why an attempt failed.
type Failure struct {
	Reason   string `json:"reason"`
	Category string `json:"category,omitempty"`
}

// Cancellation is who wants an execution to end, and why. That of an active one is a request to its worker.
type Cancellation struct {
	Reason      string    `json:"reason"`
	Actor       string    `json:"actor"`
	RequestedAt time.Time `json:"requested_at"`
	DeadlineAt  time.Time `json:"deadline_at,omitzero"` // when its worker has to have ended it
}

// Released tells how the last owner gave the execution back itself. It lets the same call be answered again, whatever becomes
// of the execution, and it ends with the next acquisition. reference: executions.md 2.12.
type Released struct {
	Op          Op            `json:"op"`
	Epoch       int64         `json:"lease_epoch"`         // of that owner
	RetryAt     time.Time     `json:"retry_at,omitzero"`   // of a failed attempt that is followed by another
	Cancelled   bool          `json:"cancelled,omitempty"` // the failure of what was to end has cancelled it
	AttemptLeft time.Duration `json:"attempt_left,omitempty"`
}

// Op is a call that ends an ownership.
type Op string

// The calls.
const (
	OpComplete     Op = "complete"
	OpFail         Op = "fail"
	OpRelease      Op = "release"
	OpDelay        Op = "delay"
	OpWaitChildren Op = "wait_children"
	OpSuspend      Op = "suspend"
	OpCancel       Op = "cancel"
)

// Create is what a new execution is made of.
type Create struct {
	ID             uuid.UUID
	Namespace      string
	Lane           string
	Kind           string
	FlowID         uuid.UUID
	RunID          uuid.UUID // that it works for
	Key            string
	Priority       int
	Payload        *Value
	Policy         json.RawMessage
	Required       []string
	Tags           map[string]string
	DelayUntil     time.Time
	Delay          time.Duration
	DeadlineAt     time.Time
	IdempotencyKey string
	Creator        string
	BudgetIDs      []uuid.UUID
	QuotaIDs       []uuid.UUID
	Estimate       map[string]int64
	Limits         *Limits // what these are, once they were looked up
	Paused         bool    // the flow it belongs to has not started
	Blocked        bool    // it depends on executions that have not ended
}

// Change is what a transition does: the execution after it, what becomes of its attempts, and the events that tell it.
type Change struct {
	Execution Execution
	Attempts  []AttemptChange
	Events    []event.Event
	Discard   bool // the result of before
}

// New returns a new execution: claimable, or delayed, or paused until its flow starts.
// It returns CodeValidationFailed, CodeInvalidCapabilities or CodeInvalidTagKey. reference: executions.md 2.1.
func New(in Create, now time.Time) (Change, error) {
	policy, err := ParsePolicy(in.Policy, "/policy")
	if err != nil {
		return Change{}, err
	}
	required, err := NewCapabilities(in.Required, "required", "/required_capabilities")
	if err != nil {
		return Change{}, err
	}
	routed, err := NewCapabilities(append(policy.Routing.RequiredCapabilities, required...), "required", "/policy/routing_requirements/required_capabilities")
	if err != nil {
		return Change{}, err
	}
	if err := tag.Check(in.Tags, "/tags"); err != nil {
		return Change{}, err
	}
	e := Execution{
		ID: in.ID, Namespace: in.Namespace, Lane: in.Lane, Kind: in.Kind, FlowID: in.FlowID, RunID: in.RunID, Key: in.Key,
		Priority: clamp(in.Priority),
		Vector:   Vector{Runnable, Unowned, EligibleNow, WaitingForWorker, OutcomeNone, AttemptPendingFirst},
		Policy:   in.Policy, Required: routed, Tags: in.Tags, Creator: in.Creator, Limits: in.Limits,
		PayloadEncoding: EncodingJSON, CreatedAt: now, AttemptIndex: NoAttempt,
	}
	if in.Payload != nil {
		e.Payload, e.PayloadEncoding = in.Payload.Bytes, in.Payload.Encoding
	}
	if in.Delay > 0 {
		in.DelayUntil = now.Add(in.Delay)
	}
	if e.DeadlineAt = in.DeadlineAt; e.DeadlineAt.IsZero() && policy.Timeout.ExecutionDeadlineMS != nil {
		e.DeadlineAt = now.Add(time.Duration(*policy.Timeout.ExecutionDeadlineMS) * time.Millisecond)
	}
	if !e.DeadlineAt.IsZero() && !e.DeadlineAt.After(now) {
		return Change{}, fault.Invalid(fault.CodeTimerOutOfRange, "/deadline_at", "The deadline must be in the future.")
	}
	delayed := in.DelayUntil.After(now)
	if delayed {
		e.delay(in.DelayUntil, WaitingForDelay, "delayed until "+stamp(in.DelayUntil))
	}
	switch {
	case in.Blocked:
		e.block()
	case in.Paused:
		e.pause()
	}
	c := Change{Execution: e}
	c.emit(event.ExecutionCreated, struct {
		Lane     string `json:"lane"`
		Kind     string `json:"kind"`
		Priority int    `json:"priority"`
		State    Public `json:"public_state"`
	}{e.Lane, e.Kind, e.Priority, e.Public()})
	return c, nil
}

// PolicyOf returns the policy that e was created with.
func (e *Execution) PolicyOf() Policy {
	p, err := ParsePolicy(e.Policy, "/policy")
	if err != nil {
		return Policy{} // New has refused what cannot be read
	}
	return p
}

// Claimable says whether a worker may have e as it stands. What somebody has reserved is claimed by its grant alone.
func (e *Execution) Claimable() bool {
	return e.Grant == nil && (e.eligible() || e.Lost())
}

func (e *Execution) eligible() bool { return e.Lifecycle == Runnable && e.Eligibility == EligibleNow }

// Lost says whether e's last owner has lost it and nobody has taken it over.
func (e *Execution) Lost() bool {
	return e.Lifecycle == Active && (e.Ownership == LeaseExpired || e.Ownership == LeaseRevoked)
}

// Held says whether somebody owns e now.
func (e *Execution) Held(now time.Time) bool {
	return e.Ownership == Leased && e.Lease.ExpiresAt.After(now)
}

// cancelling says whether e's worker was asked to end it.
func (e *Execution) cancelling() bool { return e.Lifecycle == Active && e.Cancellation != nil }

// pause makes e wait for the start of its flow.
func (e *Execution) pause() {
	e.Eligibility, e.Blocking, e.BlockingDetail = BlockedByLaneState, PausedByPolicy, "the flow has not been started"
}

// block makes e wait for the executions that it depends on.
func (e *Execution) block() {
	e.Eligibility, e.Blocking, e.BlockingDetail = BlockedByDependencies, WaitingForChildren, "waiting for what it depends on"
}

// delay makes e wait for a time.
func (e *Execution) delay(until time.Time, reason Blocking, detail string) {
	e.Eligibility, e.Blocking, e.BlockingDetail = NotEligibleUntilTime, reason, detail
	e.DelayUntil = until
}

// first puts an event about the execution before the others, which it explains.
func (c *Change) first(t event.Type, data any) {
	rest := c.Events
	c.Events = nil
	c.emit(t, data)
	c.Events = append(c.Events, rest...)
}

// tellStand adds the event that tells what an execution waits for that nobody holds.
func (c *Change) tellStand() {
	switch e := &c.Execution; {
	case e.Lifecycle == Suspended:
		c.emit(event.ExecutionSuspended, e.suspendedData())
	case e.Eligibility == EligibleNow:
		c.emit(event.ExecutionEligible, eligibleData{e.Blocking, e.Attempt})
	case e.Eligibility == NotEligibleUntilTime:
		c.emit(event.ExecutionDelayed, delayedData{event.Stamp(e.DelayUntil), e.Blocking})
	default:
		c.emit(event.ExecutionBlocked, blockedData{e.Blocking})
	}
}

// emit adds an event about the execution as it is after the change.
func (c *Change) emit(t event.Type, data any) {
	told := c.Execution.Event(t, data)
	told.Revision = new(c.Execution.Revision)
	c.Events = append(c.Events, told)
}

// Event returns an event that concerns e and is no change of it.
func (e *Execution) Event(t event.Type, data any) event.Event {
	return event.Event{Namespace: e.Namespace, Type: t, FlowID: e.FlowID, RunID: e.RunID, ExecutionID: e.ID, InstanceTag: e.Tags[tag.Instance], Data: data,
		Followed: e.Followed}
}

func stamp(t time.Time) string { return event.Stamp(t).String() }
