package execution_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const (
	revokedRow     = "active lease_revoked not_applicable waiting_for_worker none attempt_interrupted"
	interruptedRow = "runnable unowned eligible_now waiting_for_worker none attempt_interrupted"
	childrenRow    = "runnable unowned blocked_by_dependencies waiting_for_children none attempt_interrupted"
	replayRow      = "runnable unowned eligible_now waiting_for_worker none pending_replay_attempt"
)

// unheld is what every end of an ownership does to the lease and to its timer.
func unheld(e *execution.Execution) {
	e.Lease.ExpiresAt, e.AttemptTimeoutAt = time.Time{}, time.Time{}
}

func stop(e execution.Execution, grace time.Duration, at time.Time) (execution.Change, error) {
	by := byOperator
	by.RequestedAt = at
	return e.Stop(by, grace, at)
}

// cancelling is an execution whose worker has until 40 to end it.
func cancelling(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(stop(active(tb), 30*time.Second, after(10)))
}

func asked(deadline int) *execution.Cancellation {
	return &execution.Cancellation{Reason: "not needed", Actor: "token:ops", RequestedAt: after(10), DeadlineAt: after(deadline)}
}

func revoke(e execution.Execution, at time.Time) (execution.Change, error) {
	c, satisfied, err := e.Revoke(execution.Revocation{Reason: "the host is gone"}, at)
	if satisfied != "" {
		err = fmt.Errorf("there was nothing to revoke: %s", satisfied)
	}
	return c, err
}

func revoked(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(revoke(active(tb), after(20)))
}

func withChildren(tb testing.TB) execution.Execution {
	tb.Helper()
	e := active(tb)
	c, _, err := e.WaitChildren(e.Fence(), after(5))
	return must(tb)(c, err)
}

func grantFor(worker string) execution.Grant {
	return execution.Grant{ID: id(99), WorkerID: worker, InstanceID: worker + "-1", ExpiresAt: after(90)}
}

func reserved(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(created(tb).Reserve(grantFor("w2"), after(80)))
}

func reservedLost(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(lapsed(tb).ReserveLost(grantFor("w2"), nil, execution.Lane{}, after(80)))
}

func operatorsGrant(kind execution.GrantKind) *execution.Grant {
	g := grantFor("w2")
	g.Kind, g.IssuedAt = kind, after(80)
	return &g
}

// TestReplay_deadline: a replay's deadline is that of the policy, counted anew, else the old one while it lies ahead.
func TestReplay_deadline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*execution.Create)
		want   time.Time
	}{
		{"none", func(*execution.Create) {}, time.Time{}},
		{"of the policy", func(in *execution.Create) { in.Policy = []byte(`{"timeout_policy":{"execution_deadline_ms":50000}}`) }, after(80)},
		{"passed", func(in *execution.Create) { in.DeadlineAt = after(30) }, time.Time{}},
		{"ahead", func(in *execution.Create) { in.DeadlineAt = after(31) }, after(31)},
	} {
		e := must(t)(cancel(created(t, tt.change), after(5)))
		if got := must(t)(e.Replay(execution.Standing{}, after(30))); !got.DeadlineAt.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got.DeadlineAt, tt.want)
		}
	}
}

// TestOperators_nothing: what is so already is not changed.
func TestOperators_nothing(t *testing.T) {
	t.Parallel()
	satisfied := func(which execution.Revocation, why string) func(execution.Execution) (execution.Change, error) {
		return func(e execution.Execution) (execution.Change, error) {
			c, got, err := e.Revoke(which, after(70))
			if got != why {
				t.Errorf("%q, want %q", got, why)
			}
			return c, err
		}
	}
	longer := func(tb testing.TB) execution.Execution {
		e := active(tb)
		return must(tb)(e.Renew(e.Fence(), time.Hour, after(5)))
	}
	for _, tt := range []struct {
		name string
		from func(testing.TB) execution.Execution
		do   func(execution.Execution) (execution.Change, error)
	}{
		{"revoke twice", revoked, satisfied(execution.Revocation{}, execution.AlreadyRevoked)},
		{"revoke what has lapsed", plain(active), satisfied(execution.Revocation{}, execution.AlreadyExpired)},
		{"revoke what is marked", lapsed, satisfied(execution.Revocation{}, execution.AlreadyExpired)},
		{"revoke the lease of another", longer, satisfied(execution.Revocation{InstanceID: "w9"}, execution.AnotherInstance)},
		{"stop twice", cancelling, func(e execution.Execution) (execution.Change, error) { return stop(e, time.Minute, after(20)) }},
		{"stop what was cancelled", cancelled, func(e execution.Execution) (execution.Change, error) { return stop(e, 0, after(20)) }},
		{"the same priority", plain(created), func(e execution.Execution) (execution.Change, error) { return e.Prioritise(-5) }},
		{"the same tag", func(tb testing.TB) execution.Execution {
			return created(tb, func(in *execution.Create) { in.Tags = map[string]string{"a.b": "c"} })
		}, func(e execution.Execution) (execution.Change, error) { return e.SetTag("a.b", "c") }},
	} {
		e := tt.from(t)
		c, err := tt.do(e)
		if err != nil || len(c.Events) > 0 || len(c.Attempts) > 0 {
			t.Errorf("%s: %v, %d events", tt.name, err, len(c.Events))
		}
		if diff := cmp.Diff(e, c.Execution); diff != "" {
			t.Errorf("%s (-before +after):\n%s", tt.name, diff)
		}
	}
}

// TestReplays_giveBack: each report of an owner that has ended its ownership with it is answered again, another one is not.
func TestReplays_giveBack(t *testing.T) {
	t.Parallel()
	type report = func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error)
	reports := map[execution.Op]report{
		execution.OpDelay: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Delay(f, after(100), at)
		},
		execution.OpWaitChildren: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.WaitChildren(f, at)
		},
		execution.OpRelease: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Release(f, at)
		},
		execution.OpCancel: func(e execution.Execution, f execution.Fence, at time.Time) (execution.Change, bool, error) {
			return e.Abandon(f, byOperator, at)
		},
	}
	for _, from := range []func(testing.TB) execution.Execution{plain(active), cancelling} {
		for first := range reports {
			e := from(t)
			f := e.Fence()
			c, replayed, err := reports[first](e, f, after(20))
			if err != nil || replayed {
				t.Fatalf("%s: %v, replayed %t", first, err, replayed)
			}
			for second := range reports {
				again, replayed, err := reports[second](c.Execution, f, after(21))
				if first != second {
					if fault.CodeOf(err) != fault.CodeExecutionNotActive {
						t.Errorf("%s after %s: %v", second, first, err)
					}
					continue
				}
				if err != nil || !replayed || again.Execution.Revision != c.Execution.Revision || len(again.Events) > 0 {
					t.Errorf("%s again: %v, replayed %t", second, err, replayed)
				}
			}
		}
	}
}
