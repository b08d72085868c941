package execution_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

var start = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// after returns the time that many seconds after the start.
func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// id returns an id that is easy to recognise.
func id(n byte) uuid.UUID { return uuid.UUID{0: 0xe0, 15: n} }

// policy allows one retry after five minutes and one takeover, and gives an attempt ten minutes.
const policy = `{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":300000}},
	"timeout_policy":{"attempt_timeout_ms":600000},"max_reclaim_count":1}`

// claimant is worker n, which takes a lease of a minute. Its lease has the id 10·n+1, and a new attempt 10·n+2.
func claimant(n byte) execution.Claimant {
	return execution.Claimant{WorkerID: fmt.Sprintf("w%d", n), InstanceID: fmt.Sprintf("w%d-1", n), TTL: time.Minute, LeaseID: id(10*n + 1), AttemptID: id(10*n + 2)}
}

// must returns the execution after a change that is not refused.
func must(tb testing.TB) func(c execution.Change, err error) execution.Execution {
	return func(c execution.Change, err error) execution.Execution {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return c.Execution
	}
}

// The executions that the cases begin with, each made by the machine itself.

func created(tb testing.TB, change ...func(*execution.Create)) execution.Execution {
	tb.Helper()
	in := execution.Create{ID: id(1), Namespace: "default", Lane: "ci", Kind: "shell", Policy: json.RawMessage(policy)}
	for _, c := range change {
		c(&in)
	}
	return must(tb)(execution.New(in, start))
}

func delayed(tb testing.TB) execution.Execution {
	tb.Helper()
	return created(tb, func(in *execution.Create) { in.DelayUntil = after(100) })
}

func claimed(tb testing.TB, e execution.Execution, worker byte, at time.Time) execution.Execution {
	tb.Helper()
	return must(tb)(claim(e, worker, at))
}

func claim(e execution.Execution, worker byte, at time.Time) (execution.Change, error) {
	c, _, err := e.Claim(claimant(worker), at)
	return c, err
}

func active(tb testing.TB, change ...func(*execution.Create)) execution.Execution {
	tb.Helper()
	return claimed(tb, created(tb, change...), 1, after(1))
}

func fail(e execution.Execution, category string, at time.Time) (execution.Change, error) {
	c, _, err := e.Fail(e.Fence(), execution.Failure{Reason: "boom", Category: category}, nil, at)
	return c, err
}

func retrying(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(fail(active(tb), "transient", after(5)))
}

func retryDue(tb testing.TB) execution.Execution {
	tb.Helper()
	return passed(tb, retrying(tb), after(305))
}

func passed(tb testing.TB, e execution.Execution, at time.Time) execution.Execution {
	tb.Helper()
	c, ok := e.Pass(at)
	if !ok {
		tb.Fatalf("nothing was due at %s", at)
	}
	return c.Execution
}

func released(tb testing.TB) execution.Execution {
	tb.Helper()
	e := active(tb)
	c, _, err := e.Release(e.Fence(), after(5))
	return must(tb)(c, err)
}

func lapsed(tb testing.TB) execution.Execution {
	tb.Helper()
	return passed(tb, active(tb), after(61))
}

func completed(tb testing.TB) execution.Execution {
	tb.Helper()
	e := active(tb)
	c, _, err := e.Complete(e.Fence(), after(5))
	return must(tb)(c, err)
}

func cancelled(tb testing.TB) execution.Execution {
	tb.Helper()
	return must(tb)(cancel(created(tb), after(5)))
}

var byOperator = execution.Cancellation{Reason: "not needed", Actor: "token:ops", RequestedAt: after(10)}

func cancel(e execution.Execution, at time.Time) (execution.Change, error) {
	return e.Cancel(byOperator, at)
}

// events returns type and data of each event, one on a line.
func events(tb testing.TB, c execution.Change) []string {
	tb.Helper()
	var lines []string
	for _, e := range c.Events {
		data, err := json.Marshal(e.Data)
		if err != nil {
			tb.Fatal(err)
		}
		if e.ExecutionID != c.Execution.ID || e.Namespace != c.Execution.Namespace || e.Revision == nil || *e.Revision != c.Execution.Revision {
			tb.Errorf("event %s tells of %s in %s at revision %v", e.Type, e.ExecutionID, e.Namespace, e.Revision)
		}
		lines = append(lines, string(e.Type)+" "+string(data))
	}
	return lines
}

// lease is the data of an event about the lease that worker n had, up to its last members.
func lease(n byte, epoch, attempt int, more string) string {
	return fmt.Sprintf(`{"lease_id":"%s","lease_epoch":%d,"worker_id":"w%d","worker_instance_id":"w%d-1","attempt_index":%d,%s}`, id(10*n+1), epoch, n, n, attempt, more)
}

func ended(outcome string, more string) string {
	return fmt.Sprintf(`{"outcome":"%s",%s"lane":"ci","kind":"shell"}`, outcome, more)
}

// transition is one row of the table: what an operation makes of an execution.
type transition struct {
	name     string
	from     func(tb testing.TB) execution.Execution
	do       func(e execution.Execution) (execution.Change, error)
	vector   string // without the public state, which is derived
	public   execution.Public
	change   func(e *execution.Execution) // beside vector and revision
	attempts []execution.AttemptChange
	events   []string
}

func withDeadline(e func(testing.TB, ...func(*execution.Create)) execution.Execution) func(testing.TB) execution.Execution {
	return func(tb testing.TB) execution.Execution {
		tb.Helper()
		return e(tb, func(in *execution.Create) { in.DeadlineAt = after(50) })
	}
}

func plain(e func(testing.TB, ...func(*execution.Create)) execution.Execution) func(testing.TB) execution.Execution {
	return func(tb testing.TB) execution.Execution {
		tb.Helper()
		return e(tb)
	}
}

func pass(seconds int) func(e execution.Execution) (execution.Change, error) {
	return func(e execution.Execution) (execution.Change, error) {
		c, ok := e.Pass(after(seconds))
		if !ok {
			return c, fmt.Errorf("nothing is due at %s", after(seconds))
		}
		return c, nil
	}
}

const (
	waitingRow   = "runnable unowned eligible_now waiting_for_worker none pending_first_attempt"
	activeRow    = "active leased not_applicable none none running_attempt"
	lapsedRow    = "active lease_expired_reclaimable not_applicable waiting_for_worker none attempt_interrupted"
	retryRow     = "runnable unowned not_eligible_until_time waiting_for_retry_backoff none pending_retry_attempt"
	cancelledRow = "terminal unowned not_applicable none cancelled attempt_terminal"
	expiredRow   = "terminal unowned not_applicable none expired attempt_terminal"
	failedRow    = "terminal unowned not_applicable none failed attempt_terminal"
)

func runTransitions(t *testing.T, tests []transition) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := tt.from(t)
			same := tt.from(t)
			got, err := tt.do(before)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(same, before); diff != "" {
				t.Errorf("the operation changed its receiver (-before +after):\n%s", diff)
			}
			want := before
			want.Vector = vector(t, tt.vector)
			want.Revision++
			tt.change(&want)
			if diff := cmp.Diff(want, got.Execution); diff != "" {
				t.Errorf("execution (-want +got):\n%s", diff)
			}
			if !got.Execution.Legal() || got.Execution.Public() != tt.public {
				t.Errorf("legal %t, public state %s, want %s", got.Execution.Legal(), got.Execution.Public(), tt.public)
			}
			if diff := cmp.Diff(tt.attempts, got.Attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			told := events(t, got)
			if diff := cmp.Diff(tt.events, told); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for _, secret := range []uuid.UUID{before.Lease.AttemptID, got.Execution.Lease.AttemptID} {
				if secret != uuid.Nil && strings.Contains(strings.Join(told, ""), secret.String()) {
					t.Errorf("the attempt id, the holder's secret, is in the events: %s", told)
				}
			}
		})
	}
}
