package wait

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// OnTimeout is what becomes of the owner of a wait whose deadline passes.
type OnTimeout string

// What may become of it. A flow neither expires nor escalates.
const (
	TimeoutResumes   OnTimeout = "resume"
	TimeoutFails     OnTimeout = "fail"
	TimeoutCancels   OnTimeout = "cancel"
	TimeoutExpires   OnTimeout = "expire"
	TimeoutEscalates OnTimeout = "escalate" // to an operator
)

// ofFlows says whether o may become of a flow.
func (o OnTimeout) ofFlows() bool {
	return o == TimeoutResumes || o == TimeoutFails || o == TimeoutCancels
}

// Known says whether o is one of them.
func (o OnTimeout) Known() bool {
	return o.ofFlows() || o == TimeoutExpires || o == TimeoutEscalates
}

// DefaultHorizon is how far ahead timers and deadlines may lie unless the configuration says otherwise.
// reference: runs-and-taskflows.md B11.
const DefaultHorizon = 30 * 24 * time.Hour

// Request is a wait as a client asks for it.
type Request struct {
	Condition json.RawMessage
	Deadline  time.Time // zero for none
	OnTimeout OnTimeout // "" for fail
}

// Spec is a wait that was asked for: when it ends, and how.
type Spec struct {
	Condition Condition
	Deadline  time.Time // zero for none
	OnTimeout OnTimeout
}

// Parse returns what is asked for. pointer is where the request stands in the body. It returns CodeBadWaitCondition, and
// CodeValidationFailed for an on_timeout that does not exist.
func (r Request) Parse(pointer string) (Spec, error) {
	c, err := Parse(r.Condition, pointer+"/condition")
	if err != nil {
		return Spec{}, err
	}
	s := Spec{Condition: c, Deadline: r.Deadline, OnTimeout: r.OnTimeout}
	if s.OnTimeout == "" {
		s.OnTimeout = TimeoutFails
	}
	if !s.OnTimeout.ofFlows() {
		return Spec{}, fault.Invalid(fault.CodeValidationFailed, pointer+"/on_timeout", "on_timeout is one of resume, fail and cancel.")
	}
	return s, nil
}

// Check refuses, with CodeTimerOutOfRange, a timer or a deadline that does not lie after now and within the horizon.
// reference: runs-and-taskflows.md B9 (guardrails).
func (s Spec) Check(now time.Time, horizon time.Duration, pointer string) error {
	check := func(at time.Time, pointer string) error {
		if at.After(now) && !at.After(now.Add(horizon)) {
			return nil
		}
		return fault.Invalid(fault.CodeTimerOutOfRange, pointer, "The time must be in the future, and not beyond the max horizon of %s.", span(horizon))
	}
	if err := s.Condition.checkTimers(pointer+"/condition", check); err != nil {
		return err
	}
	if s.Deadline.IsZero() {
		return nil
	}
	return check(s.Deadline, pointer+"/deadline")
}

func (c Condition) checkTimers(pointer string, check func(time.Time, string) error) error {
	if c.Kind == Timer {
		return check(c.At, pointer+"/at")
	}
	for i, part := range c.Of {
		if err := part.checkTimers(fmt.Sprintf("%s/of/%d", pointer, i), check); err != nil {
			return err
		}
	}
	return nil
}

// span returns d in the unit in which a person thinks of it.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}

// Equal says whether s and t ask for the same.
func (s Spec) Equal(t Spec) bool {
	return s.Condition.Equal(t.Condition) && s.Deadline.Equal(t.Deadline) && s.OnTimeout == t.OnTimeout
}

// Wait is one open wait. It belongs to a flow, to an execution, or to a run: then it is the gate of one of its steps, or its own.
type Wait struct {
	ID          uuid.UUID
	Namespace   string
	FlowID      uuid.UUID
	ExecutionID uuid.UUID
	RunID       uuid.UUID
	StepID      uuid.UUID // of the gate, uuid.Nil for what the run itself waits for
	Spec
	Since       time.Time
	Asks        bool   // a person can answer it
	Title       string // what is waited for, in words, for people
	RequestedBy string
	Received    []Signal // those that count, the first first
}

// Reason says what decided a wait.
type Reason string

// The reasons.
const (
	ByTimer   Reason = "timer"          // the condition holds since a time
	BySignal  Reason = "external_event" // the condition holds since a signal
	ByTimeout Reason = "timeout"        // the deadline has passed
	ByOwner   Reason = "owner"          // its owner wants to be called
)

// Outcome is how a wait was decided. A wait is decided once.
type Outcome struct {
	By       Reason
	Received []Signal // those that counted, the first first; the last one is the one that decided
}

// Last returns the last signal that counted for a condition that came to hold, nil without one.
func (o *Outcome) Last() *Signal {
	if (o.By != ByTimer && o.By != BySignal) || len(o.Received) == 0 {
		return nil
	}
	return &o.Received[len(o.Received)-1]
}

// Progress returns how far w's condition is.
func (w *Wait) Progress() Progress { return w.Condition.Progress(w.Received) }

// DueAt is when time decides w, zero for never.
func (w *Wait) DueAt() time.Time {
	at, ok := w.Condition.HoldsFrom(w.Progress())
	if !ok || !w.Deadline.IsZero() && w.Deadline.Before(at) {
		return w.Deadline
	}
	return at
}

// Deliver gives w a signal. It returns w with it, and whether it counts: whether some leaf needs it and has none like it. If
// not, nothing has changed.
func (w Wait) Deliver(s Signal) (Wait, bool) {
	if t := w.Condition.tally(w.Received); !t.add(&s) {
		return w, false
	}
	w.Received = append(slices.Clip(w.Received), s)
	return w, true
}

// DeliverAll gives w signals one after the other, until its condition holds: what comes after the signal that decides does not
// count. It returns w with them, and the ids of those that count.
func (w Wait) DeliverAll(signals []Signal, now time.Time) (_ Wait, counted []string) {
	t := w.Condition.tally(w.Received)
	w.Received = slices.Clip(w.Received)
	for i := range signals {
		if !t.add(&signals[i]) {
			continue
		}
		w.Received, counted = append(w.Received, signals[i]), append(counted, signals[i].ID)
		if w.Condition.Satisfied(t.progress(), now) {
			break
		}
	}
	return w, counted
}

// Effect returns what a signal on a waitpoint does that does not count for w.
func (w *Wait) Effect(s Signal) Effect {
	if w.Condition.Kind == Never || w.Condition.Kind == Manual {
		return Ignored
	}
	if w.Condition.Kind == SignalOn {
		return Appended // one of another name is kept beside, too
	}
	effect := NotInCondition
	w.Condition.each(func(_ int, leaf Condition) {
		if _, ok := leaf.takes(&s); ok {
			effect = Duplicate
		} else if effect == NotInCondition && leaf.hears(&s) {
			effect = MatcherFailed
		}
	})
	return effect
}

// Decide says whether w is decided at a time, and how. The earlier of condition and deadline decides, however late it is
// asked; the condition, when both come at once. reference: runs-and-taskflows.md B7.
func (w *Wait) Decide(now time.Time) (Outcome, bool) {
	from, holds := w.Condition.HoldsFrom(w.Progress())
	holds = holds && !from.After(now)
	late := !w.Deadline.IsZero() && !w.Deadline.After(now)
	switch {
	case late && (!holds || w.Deadline.Before(from)):
		return Outcome{By: ByTimeout, Received: w.Received}, true
	case holds:
		return Outcome{By: ByTimer, Received: w.Received}, true
	}
	return Outcome{}, false
}

// DecideBy is Decide at the moment in which a signal has counted: whoever comes first wins, so a deadline that has passed
// does not count before it was acted on.
func (w *Wait) DecideBy(now time.Time) (Outcome, bool) {
	if !w.Condition.Satisfied(w.Progress(), now) {
		return Outcome{}, false
	}
	return Outcome{By: BySignal, Received: w.Received}, true
}

// Filter selects open waits that a person can answer. Empty fields select everything.
type Filter struct {
	Kind        InboxKind
	FlowID      uuid.UUID
	ExecutionID uuid.UUID
	RunID       uuid.UUID
}

// InboxKind says whose wait it is.
type InboxKind string

// The kinds.
const (
	FlowWait       InboxKind = "flow_wait"
	WaitpointsWait InboxKind = "waitpoint"
	GateWait       InboxKind = "gate"
)
