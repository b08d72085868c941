package execution_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// suspension is one on the waitpoint go, which times out after a minute.
func suspension(change ...func(*execution.Suspension)) execution.Suspension {
	s := execution.Suspension{ID: id(70), Reason: execution.SuspendSignal, RequestedBy: "worker", Waitpoints: []execution.Bound{{ID: id(71), Key: "go"}}, TimeoutAt: after(80), Behavior: execution.OnTimeoutFail}
	for _, c := range change {
		c(&s)
	}
	return s
}

// suspend suspends what somebody works on.
func suspend(e execution.Execution, s execution.Suspension) (execution.Change, error) {
	return e.Suspend(e.Fence(), s, after(20))
}

func suspended(change ...func(*execution.Suspension)) func(tb testing.TB) execution.Execution {
	return func(tb testing.TB) execution.Execution {
		tb.Helper()
		return must(tb)(suspend(active(tb), suspension(change...)))
	}
}

func behaves(b execution.TimeoutBehavior) func(*execution.Suspension) {
	return func(s *execution.Suspension) { s.Behavior = b }
}

// closedAt is how a suspension is kept after its end.
func closedAt(e *execution.Execution, at time.Time, reason string) {
	s := *e.Suspension
	s.ClosedAt, s.CloseReason = at, reason
	e.Suspension = &s
}

const (
	suspendedRow = "suspended unowned not_applicable waiting_for_signal none attempt_interrupted"
	putOffRow    = "runnable unowned not_eligible_until_time waiting_for_resume_delay none attempt_interrupted"
)

// TestSuspend_Transitions is executions.md 1.11 and 2.18 about what is suspended.
func TestSuspend_Transitions(t *testing.T) {
	t.Parallel()
	rows := slices.Clone(suspendTransitions)
	for _, behavior := range []execution.TimeoutBehavior{execution.OnTimeoutResume, execution.OnTimeoutResumeTold} {
		rows = append(rows, transition{
			name: "timeout: " + string(behavior), do: timeOut, vector: interruptedRow, public: execution.PublicWaiting,
			from: suspended(behaves(behavior), func(s *execution.Suspension) { s.Policy.DelayMS = 60_000 }),
			change: func(e *execution.Execution) {
				closedAt(e, after(80), "timed_out_auto_resume")
				e.BlockingDetail = ""
			},
			events: []string{resumedData("timeout", "", "waiting", "")},
		})
	}
	runTransitions(t, rows)
}

func wakes(signal string, delay *time.Duration) func(e execution.Execution) (execution.Change, error) {
	return func(e execution.Execution) (execution.Change, error) { return e.Wake(signal, delay, after(40)), nil }
}

func timeOut(e execution.Execution) (execution.Change, error) {
	c, escalated := e.TimeOut(after(80))
	if escalated != (e.Suspension.Behavior == execution.OnTimeoutEscalate) {
		return c, fmt.Errorf("escalated: %v", escalated)
	}
	return c, nil
}

func resumedData(by, signal, state, until string) string {
	if signal != "" {
		signal = `,"signal_id":"` + signal + `"`
	}
	if until != "" {
		until = `,"delay_until":"` + until + `"`
	}
	return fmt.Sprintf(`execution.resumed {"suspension_id":"%s","by":"%s"%s,"public_state":"%s"%s}`, id(70), by, signal, state, until)
}

func toldSuspended(blocking, reason, timeout, behavior, more string) string {
	if timeout != "" {
		timeout = `"timeout_at":"` + timeout + `",`
	}
	return fmt.Sprintf(`execution.suspended {"suspension_id":"%s","reason_code":"%s","blocking_reason":"%s","waitpoints":[{"waitpoint_id":"%s","waitpoint_key":"go"}],%s"timeout_behavior":"%s"%s}`,
		id(70), reason, blocking, id(71), timeout, behavior, more)
}

const timeoutText = "2026-11-21T09:31:20.000Z" // after(80)

func failedBy(behavior string) *execution.Failure {
	return &execution.Failure{Reason: "suspension_timeout:" + behavior, Category: "timeout"}
}

var suspendTransitions = []transition{
	{
		name: "suspend", from: plain(active), do: func(e execution.Execution) (execution.Change, error) { return suspend(e, suspension()) },
		vector: suspendedRow, public: execution.PublicSuspended,
		change: func(e *execution.Execution) {
			s := suspension()
			s.AttemptIndex, s.Since = 0, after(20)
			e.Suspension, e.BlockingDetail = &s, "suspended: waitpoint "+id(71).String()+" awaiting waiting_for_signal"
			e.Lease.ExpiresAt, e.AttemptTimeoutAt = time.Time{}, time.Time{}
			e.Released = &execution.Released{Op: execution.OpSuspend, Epoch: 1, AttemptLeft: 581 * time.Second}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageSuspended}},
		events:   []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"suspended"`), toldSuspended("waiting_for_signal", "waiting_for_signal", timeoutText, "fail", "")},
	},
	{
		name: "a signal wakes it", from: suspended(), do: wakes("s1", nil), vector: interruptedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "resumed")
			e.Suspension.Closer, e.BlockingDetail = "s1", ""
		},
		events: []string{resumedData("signal", "s1", "waiting", "")},
	},
	{
		name: "a signal wakes it, later", from: suspended(func(s *execution.Suspension) { s.Policy.DelayMS = 60_000 }), do: wakes("s1", nil), vector: putOffRow, public: execution.PublicDelayed,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "resumed")
			e.Suspension.Closer, e.DelayUntil, e.BlockingDetail = "s1", after(100), "resumed, delayed until 2026-11-21T09:31:40.000Z"
		},
		events: []string{resumedData("signal", "s1", "delayed", "2026-11-21T09:31:40.000Z")},
	},
	{
		name: "the signal's delay is the one that counts", from: suspended(func(s *execution.Suspension) { s.Policy.DelayMS = 60_000 }), do: wakes("s1", new(time.Duration(0))), vector: interruptedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "resumed")
			e.Suspension.Closer, e.BlockingDetail = "s1", ""
		},
		events: []string{resumedData("signal", "s1", "waiting", "")},
	},
	{
		name: "an operator resumes it", from: suspended(func(s *execution.Suspension) { s.Policy.DelayMS = 60_000 }),
		do: func(e execution.Execution) (execution.Change, error) { return e.Resume(0, after(40)) }, vector: interruptedRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "resumed")
			e.BlockingDetail = ""
		},
		events: []string{`operator.resumed {"blocking_reason":"waiting_for_signal"}`, resumedData("operator", "", "waiting", "")},
	},
	{
		name: "an operator resumes it, later", from: suspended(),
		do: func(e execution.Execution) (execution.Change, error) { return e.Resume(time.Minute, after(40)) }, vector: putOffRow, public: execution.PublicDelayed,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "resumed")
			e.DelayUntil, e.BlockingDetail = after(100), "resumed, delayed until 2026-11-21T09:31:40.000Z"
		},
		events: []string{`operator.resumed {"blocking_reason":"waiting_for_signal","resume_delay_ms":60000}`, resumedData("operator", "", "delayed", "2026-11-21T09:31:40.000Z")},
	},
	{
		name: "the next claim resumes it: the same attempt, with what is left of its time",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return suspended()(tb).Wake("s1", nil, after(40)).Execution
		},
		do: func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(50)) }, vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			attempt := e.Lease.AttemptID
			e.Lease = execution.Lease{ID: id(21), Epoch: 2, AttemptID: attempt, WorkerID: "w2", InstanceID: "w2-1", AcquiredAt: after(50), ExpiresAt: after(110)}
			e.AttemptTimeoutAt, e.Released = after(50+581), nil
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Lease: &execution.Lease{ID: id(21), Epoch: 2, AttemptID: id(12), WorkerID: "w2", InstanceID: "w2-1", AcquiredAt: after(50), ExpiresAt: after(110)}}},
		events:   []string{`lease.acquired ` + lease(2, 2, 0, `"kind":"resumed","expires_at":"2026-11-21T09:31:50.000Z"`)},
	},
	{
		name: "what it waits for had come: it stays with its owner", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Satisfied(suspension(), "s1", after(20)), nil
		},
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			s := suspension()
			s.Since, s.ClosedAt, s.CloseReason, s.Closer = after(20), after(20), "already_satisfied", "s1"
			e.Suspension = &s
		},
		events: []string{fmt.Sprintf(`waitpoint.closed {"waitpoint_id":"%s","waitpoint_key":"go","reason":"resumed"}`, id(71))},
	},
	{
		name: "timeout: fail", from: suspended(), do: timeOut, vector: failedRow, public: execution.PublicFailed,
		change: func(e *execution.Execution) {
			closedAt(e, after(80), "timed_out_fail")
			e.CompletedAt, e.Failure, e.BlockingDetail = after(80), failedBy("fail"), ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, EndedAt: after(80), Failure: failedBy("fail"), Close: execution.ClosedSuspensionTimeout}},
		events:   []string{`execution.failed ` + ended("failed", `"attempt_index":0,"reason":"suspension_timeout:fail","category":"timeout",`)},
	},
	{
		name: "timeout: expire", from: suspended(behaves(execution.OnTimeoutExpire)), do: timeOut, vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			closedAt(e, after(80), "timed_out_expire")
			e.CompletedAt, e.Failure, e.BlockingDetail = after(80), failedBy("expire"), ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, EndedAt: after(80), Failure: failedBy("expire"), Close: execution.ClosedSuspensionTimeout}},
		events:   []string{`execution.expired ` + ended("expired", `"attempt_index":0,"reason":"suspension_timeout:expire","category":"timeout",`)},
	},
	{
		name: "timeout: cancel", from: suspended(behaves(execution.OnTimeoutCancel)), do: timeOut, vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			closedAt(e, after(80), "timed_out_cancel")
			e.CompletedAt, e.Failure, e.BlockingDetail = after(80), failedBy("cancel"), ""
			e.Cancellation = &execution.Cancellation{Reason: "suspension_timeout:cancel", Actor: "engine", RequestedAt: after(80)}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, EndedAt: after(80), Failure: failedBy("cancel"), Close: execution.ClosedSuspensionTimeout}},
		events:   []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"suspension_timeout:cancel","category":"timeout",`)},
	},
	{
		name: "timeout: escalate", from: suspended(behaves(execution.OnTimeoutEscalate)), do: timeOut, public: execution.PublicSuspended,
		vector: "suspended unowned not_applicable paused_by_operator none attempt_interrupted",
		change: func(e *execution.Execution) {
			s := *e.Suspension
			s.Reason, s.TimeoutAt = execution.SuspendOperatorReview, time.Time{}
			e.Suspension, e.BlockingDetail = &s, "suspension escalated: timeout at 2026-11-21T09:31:20.000Z"
		},
		events: []string{toldSuspended("paused_by_operator", "waiting_for_operator_review", "", "escalate", `,"escalated":true`)},
	},
	{
		name: "cancelled while it waits", from: suspended(), do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(40)) }, vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			closedAt(e, after(40), "cancelled")
			e.CompletedAt, e.Cancellation, e.Lease.Epoch, e.BlockingDetail = after(40), &byOperator, 2, ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, EndedAt: after(40), Close: execution.ClosedCancelled}},
		events:   []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed",`)},
	},
	{
		name: "its deadline passes while it waits",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return must(tb)(suspend(withDeadline(active)(tb), suspension()))
		},
		do: pass(50), vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			closedAt(e, after(50), "expired:execution_deadline")
			e.CompletedAt, e.Failure, e.BlockingDetail = after(50), &execution.Failure{Reason: "execution_deadline", Category: "timeout"}, ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, EndedAt: after(50), Failure: &execution.Failure{Reason: "execution_deadline", Category: "timeout"}, Close: execution.ClosedExpired}},
		events:   []string{`execution.expired ` + ended("expired", `"attempt_index":0,"reason":"execution_deadline","category":"timeout",`)},
	},
	{
		name: "its deadline has passed before its timeout", do: func(e execution.Execution) (execution.Change, error) {
			c, _ := e.TimeOut(after(90))
			return c, nil
		},
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return must(tb)(suspend(withDeadline(active)(tb), suspension(behaves(execution.OnTimeoutResume))))
		},
		vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			closedAt(e, after(90), "expired:execution_deadline")
			e.CompletedAt, e.Failure, e.BlockingDetail = after(90), late, ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, EndedAt: after(90), Failure: late, Close: execution.ClosedExpired}},
		events:   []string{`execution.expired ` + ended("expired", `"attempt_index":0,"reason":"execution_deadline","category":"timeout",`)},
	},
}

// TestSuspend_Cancelling: what was to end is not suspended.
func TestSuspend_Cancelling(t *testing.T) {
	t.Parallel()
	got := must(t)(suspend(must(t)(stop(active(t), time.Minute, after(15))), suspension()))
	if got.Public() != execution.PublicCancelled || got.Suspension != nil || got.Released.Op != execution.OpSuspend {
		t.Errorf("%v %+v %+v", got.Vector, got.Suspension, got.Released)
	}
}

// TestSuspend_Refusals: who may not suspend. executions.md 1.8, 2.15.
func TestSuspend_Refusals(t *testing.T) {
	t.Parallel()
	own := func(e execution.Execution) execution.Fence { return e.Fence() }
	stale := func(e execution.Execution) execution.Fence {
		f := e.Fence()
		f.LeaseEpoch++
		return f
	}
	tests := []struct {
		name  string
		from  func(tb testing.TB) execution.Execution
		fence func(e execution.Execution) execution.Fence
		at    time.Time
		code  fault.Code
	}{
		{"its owner, again", suspended(), own, after(30), fault.CodeAlreadySuspended},
		{"somebody else", suspended(), stale, after(30), fault.CodeExecutionNotActive},
		{"nobody has it", plain(created), own, after(30), fault.CodeExecutionNotActive},
		{"given back", released, own, after(30), fault.CodeExecutionNotActive},
		{"ended", completed, own, after(30), fault.CodeExecutionNotActive},
		{"with another epoch", plain(active), stale, after(30), fault.CodeStaleLease},
		{"at the moment when the lease is over", plain(active), own, after(61), fault.CodeLeaseExpired},
		{"lost", lapsed, own, after(70), fault.CodeLeaseExpired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.from(t)
			before := e
			c, err := e.Suspend(tt.fence(e), suspension(), tt.at)
			if fault.CodeOf(err) != tt.code || !cmp.Equal(execution.Change{}, c) || !cmp.Equal(before, e) {
				t.Errorf("Suspend() = %+v, %v, want %s", c, err, tt.code)
			}
			if code := fault.CodeOf(e.CheckSuspend(tt.fence(e), tt.at)); code != tt.code {
				t.Errorf("CheckSuspend() = %s, want %s", code, tt.code)
			}
		})
	}
}

// TestSuspend_Reasons: why it is suspended is what it is blocked by. executions.md 2.15.
func TestSuspend_Reasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[execution.SuspendReason]execution.Blocking{
		execution.SuspendSignal: execution.WaitingForSignal, execution.SuspendApproval: execution.WaitingForApproval, execution.SuspendCallback: execution.WaitingForCallback,
		execution.SuspendToolResult: execution.WaitingForToolResult, execution.SuspendOperatorReview: execution.PausedByOperator, execution.SuspendByPolicy: execution.PausedByPolicy,
		execution.SuspendByBudget: execution.WaitingForBudget, execution.SuspendStepBoundary: execution.WaitingForSignal, execution.SuspendManualPause: execution.PausedByOperator,
	} {
		e := suspended(func(s *execution.Suspension) { s.Reason = reason })(t)
		if e.Blocking != want || !e.Legal() || e.Public() != execution.PublicSuspended {
			t.Errorf("%s: %v", reason, e.Vector)
		}
	}
}

// TestSuspendRequest_Check: the rules about the arguments. executions.md 2.15.
func TestSuspendRequest_Check(t *testing.T) {
	t.Parallel()
	fresh := func(keys ...string) []execution.Binding {
		var all []execution.Binding
		for _, key := range keys {
			all = append(all, execution.Binding{Fresh: execution.Waitpoint{Key: key}})
		}
		return all
	}
	pending := execution.Binding{Pending: id(5)}
	on := func(keys ...string) wait.Condition {
		c := wait.Condition{Kind: wait.All}
		for _, key := range keys {
			c.Of = append(c.Of, wait.Condition{Kind: wait.SignalOn, Waitpoints: []string{key}})
		}
		if len(c.Of) == 1 {
			return c.Of[0]
		}
		return c
	}
	timeout := wait.Condition{Kind: wait.Never}
	tests := []struct {
		name    string
		in      execution.SuspendRequest
		code    fault.Code
		rule    string
		pointer string
	}{
		{"one", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("a")}, "", "", ""},
		{"two", execution.SuspendRequest{Bindings: fresh("a", "b"), Condition: on("b", "a")}, "", "", ""},
		{"pending, whose key is not known yet", execution.SuspendRequest{Bindings: []execution.Binding{pending}, Condition: on("x")}, "", "", ""},
		{"one that nothing names, alone", execution.SuspendRequest{Bindings: fresh("a"), Condition: wait.Condition{Kind: wait.Manual}}, "", "", ""},
		{"another key", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("b")}, fault.CodeInvalidCondition, "waitpoint_key_mismatch", "/resume_condition/Single/waitpoint_key"},
		{"the second alone", execution.SuspendRequest{Bindings: fresh("a", "b"), Condition: on("b")}, fault.CodeInvalidCondition, "extra_binding_not_referenced_by_condition", "/waitpoints/0"},
		{"twice the same", execution.SuspendRequest{Bindings: fresh("a", "b", "a"), Condition: on("a", "b")}, fault.CodeInvalidCondition, "waitpoint_key_twice", "/waitpoints/2/waitpoint_key"},
		{"a key of nothing", execution.SuspendRequest{Bindings: fresh("a", "b"), Condition: on("a", "b", "c")}, fault.CodeInvalidCondition, "referenced_waitpoint_key_missing_binding", "/resume_condition"},
		{"one that nothing names", execution.SuspendRequest{Bindings: fresh("a", "b", "c"), Condition: on("a", "c")}, fault.CodeInvalidCondition, "extra_binding_not_referenced_by_condition", "/waitpoints/1"},
		{"pending and fresh", execution.SuspendRequest{Bindings: append(fresh("a"), pending), Condition: on("a", "b")}, fault.CodeInvalidCondition, "additional_waitpoint_binding_must_be_fresh", "/waitpoints/1"},
		{"pending and pending", execution.SuspendRequest{Bindings: []execution.Binding{pending, pending}, Condition: on("a", "b")}, fault.CodeInvalidCondition, "additional_waitpoint_binding_must_be_fresh", "/waitpoints/0"},
		{"for a timeout", execution.SuspendRequest{Bindings: fresh("a"), Condition: timeout}, fault.CodeInvalidCondition, "timeout_only_without_deadline", "/resume_condition"},
		{"for a timeout, pending", execution.SuspendRequest{Bindings: []execution.Binding{pending}, Condition: timeout}, fault.CodeInvalidCondition, "timeout_only_without_deadline", "/resume_condition"},
		{"for a timeout that there is", execution.SuspendRequest{Bindings: fresh("a"), Condition: timeout, Timeout: time.Second}, "", "", ""},
		{"for a time", execution.SuspendRequest{Bindings: fresh("a"), Condition: timeout, Suspension: execution.Suspension{TimeoutAt: after(1)}}, "", "", ""},
		{"ten minutes ago", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("a"), Suspension: execution.Suspension{TimeoutAt: after(-600)}}, "", "", ""},
		{"a little longer ago", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("a"), Suspension: execution.Suspension{TimeoutAt: after(-600).Add(-time.Millisecond)}}, fault.CodeTimerOutOfRange, "timeout_at_in_past", "/timeout_at"},
		{"in a year", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("a"), Suspension: execution.Suspension{TimeoutAt: after(365 * 86400)}}, "", "", ""},
		{"in more than a year", execution.SuspendRequest{Bindings: fresh("a"), Condition: on("a"), Suspension: execution.Suspension{TimeoutAt: after(365*86400 + 1)}}, fault.CodeTimerOutOfRange, "timeout_at_in_past", "/timeout_at"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.in.Check(start)
			if tt.code == "" {
				if err != nil {
					t.Errorf("Check() = %v", err)
				}
				return
			}
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != tt.code || e.Facts["rule"] != tt.rule || len(e.Fields) != 1 || e.Fields[0].Pointer != tt.pointer {
				t.Errorf("Check() = %+v, want %s %s at %s", err, tt.code, tt.rule, tt.pointer)
			}
		})
	}
}

// TestSuspendRequest_Time: what the policy adds. executions.md 1.6, 2.15.
func TestSuspendRequest_Time(t *testing.T) {
	t.Parallel()
	const hour = `{"suspension_policy":{"default_timeout_ms":3600000,"timeout_behavior":"expire"}}`
	tests := []struct {
		name, policy string
		in           execution.SuspendRequest
		at           time.Time
		behavior     execution.TimeoutBehavior
		kept         time.Duration
	}{
		{"nothing is said", ``, execution.SuspendRequest{}, time.Time{}, execution.OnTimeoutFail, 7 * 24 * time.Hour},
		{"by the policy", hour, execution.SuspendRequest{}, after(3600), execution.OnTimeoutExpire, 61 * time.Minute},
		{"by the policy, a timeout of nothing", `{"suspension_policy":{"default_timeout_ms":0}}`, execution.SuspendRequest{}, time.Time{}, execution.OnTimeoutFail, 7 * 24 * time.Hour},
		{"for a while", hour, execution.SuspendRequest{Timeout: time.Minute}, after(60), execution.OnTimeoutExpire, 2 * time.Minute},
		{"until", hour, execution.SuspendRequest{Suspension: execution.Suspension{TimeoutAt: after(30), Behavior: execution.OnTimeoutCancel}}, after(30), execution.OnTimeoutCancel, 90 * time.Second},
		{"for long", ``, execution.SuspendRequest{Timeout: 30 * 24 * time.Hour}, after(30 * 86400), execution.OnTimeoutFail, 7 * 24 * time.Hour},
		{"until a time that has passed", ``, execution.SuspendRequest{Suspension: execution.Suspension{TimeoutAt: after(-300)}}, after(-300), execution.OnTimeoutFail, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := created(t, func(in *execution.Create) { in.Policy = json.RawMessage(tt.policy) })
			got := tt.in
			got.Time(&e, start)
			if !got.TimeoutAt.Equal(tt.at) || got.Behavior != tt.behavior {
				t.Errorf("until %s, %s, want %s, %s", got.TimeoutAt, got.Behavior, tt.at, tt.behavior)
			}
			if kept := got.Keep(start); kept != tt.kept {
				t.Errorf("its key is kept for %s, want %s", kept, tt.kept)
			}
		})
	}
}

// TestSuspendRequest_Wait: who is asked, and about what.
func TestSuspendRequest_Wait(t *testing.T) {
	t.Parallel()
	e := active(t)
	person := wait.Condition{Kind: wait.Manual}
	signal := wait.Condition{Kind: wait.SignalOn, Waitpoints: []string{"go"}}
	approval := &execution.Approval{Title: "Deploy", RequestedBy: "ci"}
	tests := []struct {
		name      string
		condition wait.Condition
		reason    execution.SuspendReason
		approvals []*execution.Approval
		asks      bool
		title, by string
	}{
		{"a signal", signal, execution.SuspendSignal, nil, false, "shell in lane ci: waiting_for_signal", "worker"},
		{"an approval", signal, execution.SuspendSignal, []*execution.Approval{nil, approval}, true, "Deploy", "ci"},
		{"a person", person, execution.SuspendSignal, nil, true, "shell in lane ci: waiting_for_signal", "worker"},
		{"a reason", signal, execution.SuspendManualPause, nil, true, "shell in lane ci: manual_pause", "worker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := execution.SuspendRequest{Suspension: suspension(func(s *execution.Suspension) {
				s.Reason, s.Since, s.Behavior = tt.reason, after(20), execution.OnTimeoutEscalate
			}), Condition: tt.condition}
			want := wait.Wait{ID: id(70), Namespace: "default", ExecutionID: e.ID, Spec: wait.Spec{Condition: tt.condition, Deadline: after(80), OnTimeout: wait.TimeoutEscalates}, Since: after(20),
				Asks: tt.asks, Title: tt.title, RequestedBy: tt.by}
			if diff := cmp.Diff(want, r.Wait(&e, tt.approvals)); diff != "" {
				t.Errorf("Wait() (-want +got):\n%s", diff)
			}
		})
	}
}
