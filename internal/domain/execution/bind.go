package execution

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// SuspendRequest is what a worker suspends its execution on.
type SuspendRequest struct {
	Suspension
	Timeout        time.Duration  // from now, when there is no TimeoutAt
	Condition      wait.Condition // the zero one for that of the approval
	Bindings       []Binding      // the first is the primary one
	IdempotencyKey string
}

// Binding is a waitpoint of a suspension to be: a new one, or one that was made before.
type Binding struct {
	Fresh   Waitpoint
	Pending uuid.UUID // of one that was made before, else uuid.Nil
}

// How much a timeout may lie in the past, for clocks that differ, and in the future.
const (
	timeoutSkew    = 10 * time.Minute
	timeoutHorizon = 365 * 24 * time.Hour
)

// Check refuses what can be refused without a look at the store: CodeInvalidCondition with the rule that is broken, CodeTimerOutOfRange,
// and what Fit says of waitpoints that are all new. reference: executions.md 2.15.
func (r *SuspendRequest) Check(now time.Time) error {
	keys := []string{}
	for i, b := range r.Bindings {
		at := fmt.Sprintf("/waitpoints/%d", i)
		switch {
		case b.Pending != uuid.Nil && len(r.Bindings) > 1:
			return rule("additional_waitpoint_binding_must_be_fresh", at, "A pending waitpoint is suspended on alone.")
		case b.Pending == uuid.Nil && slices.Contains(keys, b.Fresh.Key):
			return rule("waitpoint_key_twice", at+"/waitpoint_key", "Two waitpoints cannot have the same key.")
		}
		keys = append(keys, b.Fresh.Key)
	}
	if r.Condition.Kind == wait.Never && r.TimeoutAt.IsZero() && r.Timeout == 0 {
		return rule("timeout_only_without_deadline", "/resume_condition", "What waits for its timeout alone needs one: give timeout_at or timeout_ms.")
	}
	if !r.TimeoutAt.IsZero() && (r.TimeoutAt.Before(now.Add(-timeoutSkew)) || r.TimeoutAt.After(now.Add(timeoutHorizon))) {
		return fault.Invalid(fault.CodeTimerOutOfRange, "/timeout_at", "The timeout must not be in the past, nor more than a year ahead.").With("rule", "timeout_at_in_past")
	}
	if r.Bindings[0].Pending != uuid.Nil {
		return nil // it is not known yet
	}
	points := make([]Waitpoint, len(r.Bindings))
	for i := range r.Bindings {
		points[i] = r.Bindings[i].Fresh
	}
	return r.Fit(points)
}

// Fit fills in what a lone waitpoint with an approval waits for, unless more is said, and refuses waitpoints and a condition that do
// not fit, for each must name the other: CodeInvalidCondition, and CodeValidationFailed when nothing says what is waited for.
func (r *SuspendRequest) Fit(points []Waitpoint) error {
	if r.Condition.Kind == "" {
		if len(points) != 1 || points[0].Approval == nil {
			return fault.Invalid(fault.CodeValidationFailed, "/resume_condition", "Say what is waited for: only a lone waitpoint with an approval has a condition of its own.")
		}
		r.Condition = points[0].Approval.Condition(points[0].Key)
		return nil
	}
	keys := make([]string, len(points))
	for i, p := range points {
		if keys[i] = p.Key; p.Approval != nil && p.Approval.MinApprovals > 1 {
			return rule("min_approvals_with_condition", "/resume_condition", "Waitpoint %s asks for %d approvals, which is a condition of its own: say one or the other.",
				fault.Readable(p.Key), p.Approval.MinApprovals)
		}
	}
	return r.checkKeys(keys)
}

func (r *SuspendRequest) checkKeys(keys []string) error {
	named := r.Condition.Listens()
	if r.Condition.Kind == wait.SignalOn && named[0] != keys[0] && !slices.Contains(keys, named[0]) {
		return rule("waitpoint_key_mismatch", "/resume_condition/Single/waitpoint_key", "The condition listens to %s, and the waitpoint is %s.", fault.Readable(named[0]), fault.Readable(keys[0]))
	}
	for _, key := range named {
		if !slices.Contains(keys, key) {
			return rule("referenced_waitpoint_key_missing_binding", "/resume_condition", "The condition listens to %s, which is none of the waitpoints.", fault.Readable(key))
		}
	}
	if len(keys) < 2 {
		return nil
	}
	for i, key := range keys {
		if !slices.Contains(named, key) {
			return rule("extra_binding_not_referenced_by_condition", fmt.Sprintf("/waitpoints/%d", i), "The condition does not listen to %s.", fault.Readable(key))
		}
	}
	return nil
}

func rule(name, pointer, format string, args ...any) error {
	return fault.Invalid(fault.CodeInvalidCondition, pointer, format, args...).With("rule", name)
}

// Wait is what the suspension waits for in the store.
func (r *SuspendRequest) Wait(e *Execution, approvals []*Approval) wait.Wait {
	s := &r.Suspension
	w := wait.Wait{
		ID: s.ID, Namespace: e.Namespace, ExecutionID: e.ID, Since: s.Since, RequestedBy: s.RequestedBy,
		Spec:  wait.Spec{Condition: r.Condition, Deadline: s.TimeoutAt, OnTimeout: onTimeout[s.Behavior]},
		Asks:  s.Reason.asksPeople() || r.Condition.Answerable(),
		Title: titleOf(e, s.Reason),
	}
	for _, a := range approvals {
		if a != nil {
			w.Asks, w.Title, w.RequestedBy = true, a.Title, a.RequestedBy
			break
		}
	}
	return w
}

func titleOf(e *Execution, reason SuspendReason) string {
	what := e.Kind
	if what == "" {
		what = "an execution"
	}
	return fmt.Sprintf("%s in lane %s: %s", what, e.Lane, reason)
}

// Time fills in what the request leaves to e's policy, and when its time is over.
func (r *SuspendRequest) Time(e *Execution, now time.Time) {
	policy := e.PolicyOf().Suspension
	if r.TimeoutAt.IsZero() && r.Timeout == 0 && policy.DefaultTimeoutMS != nil {
		r.Timeout = time.Duration(*policy.DefaultTimeoutMS) * time.Millisecond
	}
	if r.TimeoutAt.IsZero() && r.Timeout > 0 {
		r.TimeoutAt = now.Add(r.Timeout)
	}
	if r.Behavior == "" {
		r.Behavior = policy.TimeoutBehavior
	}
	if r.Behavior == "" {
		r.Behavior = OnTimeoutFail
	}
}

// Keep is how long a suspension is recognised by its idempotency key: a minute more than it can last, a week at most.
func (r *SuspendRequest) Keep(now time.Time) time.Duration {
	const week = 7 * 24 * time.Hour
	if r.TimeoutAt.IsZero() {
		return week
	}
	return min(max(r.TimeoutAt.Sub(now), 0)+time.Minute, week)
}
