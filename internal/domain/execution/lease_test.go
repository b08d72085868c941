package execution_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestCheck: the order of the refusals of executions.md 1.8. An expired or revoked lease is told even to a stale owner.
func TestCheck(t *testing.T) {
	t.Parallel()
	revoked := func(tb testing.TB) execution.Execution {
		tb.Helper()
		e := lapsed(tb)
		e.Ownership = execution.LeaseRevoked
		return e
	}
	other := func(change func(*execution.Fence)) func(execution.Fence) execution.Fence {
		return func(f execution.Fence) execution.Fence {
			change(&f)
			return f
		}
	}
	own := other(func(*execution.Fence) {})
	stale := other(func(f *execution.Fence) { f.LeaseEpoch-- })
	tests := []struct {
		name  string
		from  func(testing.TB) execution.Execution
		fence func(execution.Fence) execution.Fence
		at    time.Time
		want  fault.Code
	}{
		{"own", plain(active), own, after(60), ""},
		{"own, at the moment of expiry", plain(active), own, after(61), fault.CodeLeaseExpired},
		{"own, marked as expired", lapsed, own, after(62), fault.CodeLeaseExpired},
		{"revoked", revoked, own, after(2), fault.CodeLeaseRevoked},
		{"revoked and stale", revoked, stale, after(2), fault.CodeLeaseRevoked},
		{"expired and stale", plain(active), stale, after(61), fault.CodeLeaseExpired},
		{"another epoch", plain(active), stale, after(2), fault.CodeStaleLease},
		{"another lease", plain(active), other(func(f *execution.Fence) { f.LeaseID = id(99) }), after(2), fault.CodeStaleLease},
		{"another attempt id", plain(active), other(func(f *execution.Fence) { f.AttemptID = id(99) }), after(2), fault.CodeStaleLease},
		{"another attempt index", plain(active), other(func(f *execution.Fence) { f.AttemptIndex++ }), after(2), fault.CodeStaleLease},
		{"no attempt index", plain(active), other(func(f *execution.Fence) { f.AttemptIndex = execution.AnyAttempt }), after(2), ""},
		{"another execution", plain(active), other(func(f *execution.Fence) { f.ExecutionID = id(99) }), after(2), fault.CodeStaleLease},
		{"never claimed", plain(created), own, after(2), fault.CodeExecutionNotActive},
		{"delayed for a retry", retrying, own, after(6), fault.CodeExecutionNotActive},
		{"given back", released, own, after(6), fault.CodeExecutionNotActive},
		{"completed", completed, own, after(6), fault.CodeExecutionNotActive},
		{"completed, and stale", completed, stale, after(6), fault.CodeExecutionNotActive},
		{"cancelled", cancelled, own, after(6), fault.CodeExecutionNotActive},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.from(t)
			f := tt.fence(e.Fence())
			if code := fault.CodeOf(e.Check(f, tt.at)); code != tt.want {
				t.Errorf("Check() = %q, want %q", code, tt.want)
			}
			// Renew and Report ask nothing else.
			if _, err := e.Renew(f, time.Minute, tt.at); fault.CodeOf(err) != tt.want {
				t.Errorf("Renew() = %v, want %q", err, tt.want)
			}
			if _, err := e.Report(f, nil, nil, tt.at); fault.CodeOf(err) != tt.want {
				t.Errorf("Report() = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCheck_Facts: the details with which a client recognises its own lost answer. executions.md 1.8.
func TestCheck_Facts(t *testing.T) {
	t.Parallel()
	e := completed(t)
	f := e.Fence()
	f.LeaseID = id(99)
	var refusal *fault.Error
	if _, _, err := e.Complete(f, after(9)); err != nil {
		refusal, _ = err.(*fault.Error) //nolint:errorlint // the machine returns it bare
	}
	if refusal == nil {
		t.Fatal("a stale complete was not refused")
	}
	want := map[string]any{"lifecycle_phase": execution.Terminal, "terminal_outcome": execution.OutcomeSuccess, "lease_epoch": int64(1), "public_state": execution.PublicCompleted}
	if diff := cmp.Diff(want, refusal.Facts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(fmt.Sprint(refusal.Facts, refusal.Message), e.Lease.AttemptID.String()) {
		t.Error("the refusal tells the attempt id, which is the holder's secret")
	}
}

// TestReplays: executions.md 2.12. The call that ended the last ownership is answered again, any other one is refused, and
// nothing is changed either way. It ends with the next acquisition.
func TestReplays(t *testing.T) {
	t.Parallel()
	ops := map[execution.Op]func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error){
		execution.OpComplete: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Complete(f, at)
		},
		execution.OpRelease: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Release(f, at)
		},
		execution.OpFail: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Fail(f, execution.Failure{Reason: "boom", Category: "transient"}, new(time.Minute), at)
		},
	}
	for op, first := range ops {
		e := active(t)
		f := e.Fence()
		c, replayed, err := first(e, f, after(5))
		if err != nil || replayed {
			t.Fatalf("%s: replayed %t, %v", op, replayed, err)
		}
		ended := c.Execution
		for again, second := range ops {
			c, replayed, err := second(ended, f, after(9))
			switch {
			case again == op && (err != nil || !replayed || c.Events != nil || c.Attempts != nil || !cmp.Equal(ended, c.Execution)):
				t.Errorf("%s after %s: replayed %t, %v, events %v\n%s", again, op, replayed, err, c.Events, cmp.Diff(ended, c.Execution))
			case again != op && (replayed || fault.CodeOf(err) != fault.CodeExecutionNotActive):
				t.Errorf("%s after %s: replayed %t, %v, want execution_not_active", again, op, replayed, err)
			}
			for _, change := range []func(*execution.Fence){
				func(f *execution.Fence) { f.LeaseID = id(99) }, func(f *execution.Fence) { f.AttemptID = id(99) },
				func(f *execution.Fence) { f.LeaseEpoch++ }, func(f *execution.Fence) { f.AttemptIndex++ },
			} {
				other := f
				change(&other)
				if _, replayed, err := second(ended, other, after(9)); replayed || fault.CodeOf(err) != fault.CodeExecutionNotActive {
					t.Errorf("%s after %s with another fence: replayed %t, %v", again, op, replayed, err)
				}
			}
		}
		if op == execution.OpComplete {
			continue
		}
		if c, ok := ended.Pass(after(500)); ok { // the delay is over: the answer stays the same
			ended = c.Execution
			if c, replayed, err := first(ended, f, after(500)); err != nil || !replayed || !c.Execution.Released.RetryAt.Equal(after(65)) {
				t.Errorf("%s after the delay: replayed %t, %v, %+v", op, replayed, err, c.Execution.Released)
			}
		}
		next := claimed(t, ended, 2, after(501))
		if _, replayed, err := first(next, f, after(502)); replayed || fault.CodeOf(err) != fault.CodeStaleLease {
			t.Errorf("%s after the next claim: replayed %t, %v, want stale_lease", op, replayed, err)
		}
	}
}

// TestRefusals: what has ended, or is not there to be taken, stays as it is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	states := map[string]func(testing.TB) execution.Execution{
		"delayed": delayed, "active": plain(active), "retrying": retrying, "completed": completed, "cancelled": cancelled,
		"paused": func(tb testing.TB) execution.Execution {
			tb.Helper()
			return created(tb, func(in *execution.Create) { in.FlowID, in.Paused = id(9), true })
		},
	}
	for name, from := range states {
		e := from(t)
		if e.Claimable() {
			t.Errorf("%s is claimable", name)
		}
		if _, err := claim(e, 2, after(7)); fault.CodeOf(err) != fault.CodeIllegalTransition {
			t.Errorf("claim of %s = %v", name, err)
		}
	}
	if _, err := cancel(completed(t), after(9)); fault.CodeOf(err) != fault.CodeAlreadyTerminal {
		t.Errorf("cancel of what is completed = %v", err)
	}
	e := cancelled(t)
	c, err := e.Cancel(execution.Cancellation{Reason: "again", Actor: "x", RequestedAt: after(9)}, after(9))
	if err != nil || c.Events != nil || c.Attempts != nil {
		t.Errorf("a second cancel: %v, %v", err, c)
	}
	if diff := cmp.Diff(e, c.Execution); diff != "" {
		t.Errorf("a second cancel changed (-before +after):\n%s", diff)
	}
	if _, ok := created(t).Unpause(after(9)); ok {
		t.Error("what is not paused was unpaused")
	}
}

// TestReport: executions.md 2.7. What is absent, or empty, stays as it was, and nothing at all is nothing at all.
func TestReport(t *testing.T) {
	t.Parallel()
	e := active(t)
	step := func(pct *int, message *string, at int, want *execution.Progress) {
		t.Helper()
		c, err := e.Report(e.Fence(), pct, message, after(at))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Execution.Progress); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", at, diff)
		}
		if changed := c.Execution.Revision != e.Revision; changed != (len(c.Events) == 1) || changed == cmp.Equal(e, c.Execution) {
			t.Errorf("at %d: revision %d → %d, %d events", at, e.Revision, c.Execution.Revision, len(c.Events))
		}
		e = c.Execution
	}
	step(nil, nil, 2, nil)
	step(nil, new(""), 3, nil)
	step(new(10), nil, 4, &execution.Progress{Pct: new(10), At: after(4)})
	step(nil, new("half"), 5, &execution.Progress{Pct: new(10), Message: new("half"), At: after(5)})
	step(new(0), nil, 6, &execution.Progress{Pct: new(0), Message: new("half"), At: after(6)})
	step(new(5), new(""), 7, &execution.Progress{Pct: new(5), Message: new("half"), At: after(7)})
	step(nil, nil, 8, &execution.Progress{Pct: new(5), Message: new("half"), At: after(7)})
}
