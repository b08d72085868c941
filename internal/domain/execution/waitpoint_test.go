package execution_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// TestWaitpoint_Takes: whom a signal reaches. executions.md 2.17, steps 3 to 5.
func TestWaitpoint_Takes(t *testing.T) {
	t.Parallel()
	waits, works := suspended()(t), active(t)
	woken := waits.Wake("s", nil, after(40)).Execution
	ended := must(t)(cancel(waits, after(40)))
	of := func(state execution.WaitpointState, change ...func(*execution.Waitpoint)) execution.Waitpoint {
		w := execution.Waitpoint{ID: id(71), State: state, ExpiresAt: after(80)}
		if state == execution.WaitpointActive {
			w.SuspensionID = id(70)
		}
		if state == execution.WaitpointClosed {
			w.ClosedAt, w.CloseReason = after(30), "resumed"
		}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	tests := []struct {
		name     string
		w        execution.Waitpoint
		e        execution.Execution
		at       time.Time
		delivers bool
		code     fault.Code
	}{
		{"somebody waits there", of(execution.WaitpointActive), waits, after(30), true, ""},
		{"somebody waits there, its timeout has passed and nobody has acted", of(execution.WaitpointActive), waits, after(90), true, ""},
		{"what waited there goes on", of(execution.WaitpointActive), woken, after(50), false, fault.CodeTargetNotSignalable},
		{"another suspension waits", of(execution.WaitpointActive, func(w *execution.Waitpoint) { w.SuspensionID = id(77) }), waits, after(30), false, fault.CodeTargetNotSignalable},
		{"nobody waits yet", of(execution.WaitpointPending), works, after(30), false, ""},
		{"nobody waits there yet, but elsewhere", of(execution.WaitpointPending), waits, after(30), false, ""},
		{"nobody waited in time", of(execution.WaitpointPending), works, after(80), false, fault.CodeTargetNotSignalable},
		{"of another attempt", of(execution.WaitpointPending, func(w *execution.Waitpoint) { w.AttemptIndex = 1 }), works, after(30), false, fault.CodeTargetNotSignalable},
		{"of an attempt that has failed", of(execution.WaitpointPending, func(w *execution.Waitpoint) { w.ExpiresAt = after(900) }), retrying(t), after(30), false, fault.CodeTargetNotSignalable},
		{"of an attempt that was given back", of(execution.WaitpointPending), released(t), after(30), false, ""},
		{"closed", of(execution.WaitpointClosed), waits, after(50), false, fault.CodeWaitpointClosed},
		{"closed, of what has ended", of(execution.WaitpointClosed), ended, after(50), false, fault.CodeTargetNotSignalable},
		{"pending, of what has ended", of(execution.WaitpointPending), ended, after(50), false, fault.CodeTargetNotSignalable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			delivers, err := tt.w.Takes(&tt.e, tt.at)
			if delivers != tt.delivers || fault.CodeOf(err) != tt.code {
				t.Errorf("Takes() = %v, %v, want %v, %s", delivers, err, tt.delivers, tt.code)
			}
		})
	}
}

// TestWaitpoint_Usable: what can be suspended on. executions.md 2.15 (UsePending).
func TestWaitpoint_Usable(t *testing.T) {
	t.Parallel()
	e := active(t)
	tests := []struct {
		name string
		w    execution.Waitpoint
		at   time.Time
		code fault.Code
	}{
		{"pending", execution.Waitpoint{State: execution.WaitpointPending, ExpiresAt: after(80)}, after(79), ""},
		{"at its last moment", execution.Waitpoint{State: execution.WaitpointPending, ExpiresAt: after(80)}, after(80), fault.CodePendingExpired},
		{"active", execution.Waitpoint{State: execution.WaitpointActive, ExpiresAt: after(80)}, after(20), fault.CodeWaitpointNotPending},
		{"closed", execution.Waitpoint{State: execution.WaitpointClosed, ExpiresAt: after(80)}, after(90), fault.CodeWaitpointNotPending},
		{"of another attempt", execution.Waitpoint{State: execution.WaitpointPending, ExpiresAt: after(80), AttemptIndex: 1}, after(20), fault.CodeWaitpointNotPending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.w.Usable(&e, tt.at); fault.CodeOf(err) != tt.code {
				t.Errorf("Usable() = %v, want %s", err, tt.code)
			}
		})
	}
}

// TestPrepare: a waitpoint that is made beforehand, and closed. executions.md 2.14.
func TestPrepare(t *testing.T) {
	t.Parallel()
	e := active(t)
	w, told, err := e.Prepare(e.Fence(), execution.Waitpoint{ID: id(71), Key: "go"}, time.Minute, after(20))
	if err != nil {
		t.Fatal(err)
	}
	want := execution.Waitpoint{ID: id(71), Key: "go", ExecutionID: e.ID, State: execution.WaitpointPending, CreatedAt: after(20), ExpiresAt: after(80)}
	if diff := cmp.Diff(want, w); diff != "" || told.Type != "waitpoint.created" || told.ExecutionID != e.ID {
		t.Errorf("%+v (-want +got):\n%s", told, diff)
	}
	closed, told := w.Close(&e, "never_committed", after(80))
	want.State, want.ClosedAt, want.CloseReason = execution.WaitpointClosed, after(80), "never_committed"
	if diff := cmp.Diff(want, closed); diff != "" || told.Type != "waitpoint.closed" || w.State != execution.WaitpointPending {
		t.Errorf("%+v (-want +got):\n%s", told, diff)
	}
	for name, f := range map[string]execution.Fence{"stale": {ExecutionID: e.ID, LeaseEpoch: 9}, "of nobody": {}} {
		if _, _, err := e.Prepare(f, execution.Waitpoint{}, time.Minute, after(20)); fault.CodeOf(err) != fault.CodeStaleLease {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestApproval: who may decide, and what is enough.
func TestApproval(t *testing.T) {
	t.Parallel()
	open, strict := execution.Approval{RequestedBy: "ann", AllowRequester: true, MinApprovals: 1}, execution.Approval{RequestedBy: "ann", MinApprovals: 1}
	for _, tt := range []struct {
		a    *execution.Approval
		who  string
		code fault.Code
	}{{nil, "ann", ""}, {&open, "ann", ""}, {&strict, "bob", ""}, {&strict, "ann", fault.CodeSelfApproval}, {&strict, "Ann", ""}} {
		if err := tt.a.Allow(tt.who); fault.CodeOf(err) != tt.code {
			t.Errorf("Allow(%s) of %+v = %v, want %s", tt.who, tt.a, err, tt.code)
		}
	}
	if open.Identified() || !strict.Identified() || !(&execution.Approval{AllowRequester: true, MinApprovals: 2}).Identified() {
		t.Error("it matters who decides just when it must be another one, or more than one")
	}
	c := (&execution.Approval{MinApprovals: 2}).Condition("go")
	decided := func(names ...string) bool {
		var all []wait.Signal
		for i, name := range names {
			all = append(all, wait.Signal{ID: fmt.Sprint(i), Waitpoint: "go", Name: name[:len(name)-1], SourceIdentity: name[len(name)-1:]})
		}
		return c.Satisfied(c.Progress(all), start)
	}
	for _, tt := range []struct {
		signals []string
		want    bool
	}{
		{nil, false}, {[]string{"approved1"}, false}, {[]string{"approved1", "approved1"}, false}, {[]string{"approved1", "approved2"}, true}, {[]string{"rejected1"}, true},
		{[]string{"other1", "other2"}, false}, {[]string{"approved1", "rejected1"}, true},
	} {
		if got := decided(tt.signals...); got != tt.want {
			t.Errorf("%v decide: %v", tt.signals, got)
		}
	}
	elsewhere := []wait.Signal{{ID: "1", Waitpoint: "stop", Name: "rejected"}}
	if c.Satisfied(c.Progress(elsewhere), start) {
		t.Error("a decision at another waitpoint counts")
	}
}

// TestRoomFor: how many signals an execution takes. executions.md 2.17, step 7.
func TestRoomFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy string
		had    int
		ok     bool
	}{{``, 9_999, true}, {``, 10_000, false}, {`{"max_signals_per_execution":2}`, 1, true}, {`{"max_signals_per_execution":2}`, 2, false}, {`{"max_signals_per_execution":0}`, 1 << 20, true}} {
		e := created(t, func(in *execution.Create) { in.Policy = json.RawMessage(tt.policy) })
		if err := e.RoomFor(tt.had); (err == nil) != tt.ok || err != nil && fault.CodeOf(err) != fault.CodeSignalLimitExceeded {
			t.Errorf("%s: room after %d signals: %v", tt.policy, tt.had, err)
		}
	}
}
