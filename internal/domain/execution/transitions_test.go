package execution_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// TestTransitions is executions.md 1.11, the canonical vectors, as far as it is built.
func TestTransitions(t *testing.T) {
	t.Parallel()
	runTransitions(t, transitionsCases)
}

var (
	timedOut = &execution.Failure{Reason: "attempt_timeout", Category: "timeout"}
	late     = &execution.Failure{Reason: "execution_deadline", Category: "timeout"}
	boom     = &execution.Failure{Reason: "boom", Category: "transient"}
)

// leaseOf is the lease of a minute that worker n took at that time.
func leaseOf(n byte, epoch int64, at time.Time) execution.Lease {
	return execution.Lease{ID: id(10*n + 1), Epoch: epoch, AttemptID: id(10*n + 2), WorkerID: fmt.Sprintf("w%d", n), InstanceID: fmt.Sprintf("w%d-1", n),
		AcquiredAt: at, ExpiresAt: at.Add(time.Minute)}
}

var transitionsCases = []transition{
	{
		name: "promote delayed", from: delayed, do: pass(100), vector: waitingRow, public: execution.PublicWaiting,
		change: func(e *execution.Execution) { e.DelayUntil, e.BlockingDetail = time.Time{}, "" },
		events: []string{`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_first_attempt"}`},
	},
	{
		name: "promote a retry", from: retrying, do: pass(305), public: execution.PublicWaiting,
		vector: "runnable unowned eligible_now waiting_for_worker none pending_retry_attempt",
		change: func(e *execution.Execution) { e.DelayUntil, e.BlockingDetail = time.Time{}, "" },
		events: []string{`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_retry_attempt"}`},
	},
	{
		name: "claim fresh", from: plain(created), do: func(e execution.Execution) (execution.Change, error) { return claim(e, 1, after(1)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease, e.AttemptIndex, e.Attempts, e.StartedAt, e.AttemptTimeoutAt = leaseOf(1, 1, after(1)), 0, 1, after(1), after(601)
		},
		attempts: []execution.AttemptChange{{Index: 0, Open: &execution.Attempt{Index: 0, Type: execution.AttemptInitial, Stage: execution.StageStarted,
			WorkerID: "w1", InstanceID: "w1-1", LeaseEpoch: 1, StartedAt: after(1)}}},
		events: []string{`lease.acquired ` + lease(1, 1, 0, `"kind":"fresh","expires_at":"2026-11-21T09:31:01.000Z"`)},
	},
	{
		name: "claim retry", from: retryDue, do: func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(306)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease, e.AttemptIndex, e.Attempts, e.AttemptTimeoutAt, e.Released = leaseOf(2, 2, after(306)), 1, 2, after(906), nil
		},
		attempts: []execution.AttemptChange{{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptRetry, Stage: execution.StageStarted,
			WorkerID: "w2", InstanceID: "w2-1", LeaseEpoch: 2, StartedAt: after(306), Previous: new(0)}}},
		events: []string{`lease.acquired ` + lease(2, 2, 1, `"kind":"retry","expires_at":"2026-11-21T09:36:06.000Z"`)},
	},
	{
		name: "claim replay",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			e := completed(tb)
			e.Vector = vector(tb, "runnable unowned eligible_now waiting_for_worker none pending_replay_attempt")
			e.Replays, e.CompletedAt, e.Released = 1, time.Time{}, nil
			return e
		},
		do:     func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(20)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease, e.AttemptIndex, e.Attempts, e.AttemptTimeoutAt = leaseOf(2, 2, after(20)), 1, 2, after(620)
		},
		attempts: []execution.AttemptChange{{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptReplay, Stage: execution.StageStarted,
			WorkerID: "w2", InstanceID: "w2-1", LeaseEpoch: 2, StartedAt: after(20), Previous: new(0)}}},
		events: []string{`lease.acquired ` + lease(2, 2, 1, `"kind":"replay","expires_at":"2026-11-21T09:31:20.000Z"`)},
	},
	{
		name: "claim resumed: the same attempt, with what is left of its time", from: released,
		do:     func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(20)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			attempt := e.Lease.AttemptID
			e.Lease, e.AttemptTimeoutAt, e.Released = leaseOf(2, 2, after(20)), after(20+596), nil
			e.Lease.AttemptID = attempt
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Lease: new(func() execution.Lease {
			l := leaseOf(2, 2, after(20))
			l.AttemptID = id(12)
			return l
		}())}},
		events: []string{`lease.acquired ` + lease(2, 2, 0, `"kind":"resumed","expires_at":"2026-11-21T09:31:20.000Z"`)},
	},
	{
		name: "renew", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Renew(e.Fence(), 5*time.Minute, after(20))
		},
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) { e.Lease.ExpiresAt = after(320) },
		events: []string{`lease.renewed ` + lease(1, 1, 0, `"expires_at":"2026-11-21T09:35:20.000Z"`)},
	},
	{
		name: "renew for less", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Renew(e.Fence(), time.Second, after(20))
		},
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) { e.Lease.ExpiresAt = after(21) },
		events: []string{`lease.renewed ` + lease(1, 1, 0, `"expires_at":"2026-11-21T09:30:21.000Z"`)},
	},
	{
		name: "progress", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Report(e.Fence(), new(40), new("compiling"), after(20))
		},
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Progress = &execution.Progress{Pct: new(40), Message: new("compiling"), At: after(20)}
		},
		events: []string{`execution.progressed {"pct":40,"message":"compiling"}`},
	},
	{
		name: "complete", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Complete(e.Fence(), after(20))
			return c, err
		},
		vector: "terminal unowned not_applicable none success attempt_terminal", public: execution.PublicCompleted,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Lease.ExpiresAt, e.AttemptTimeoutAt, e.Released = after(20), time.Time{}, time.Time{}, &execution.Released{Op: execution.OpComplete, Epoch: 1}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedSuccess, Close: execution.ClosedSuccess, EndedAt: after(20)}},
		events:   []string{`execution.completed ` + ended("success", `"attempt_index":0,`), `lease.revoked ` + lease(1, 1, 0, `"reason":"completed"`)},
	},
	{
		name: "fail, to be retried", from: plain(active), do: func(e execution.Execution) (execution.Change, error) { return fail(e, "transient", after(20)) },
		vector: retryRow, public: execution.PublicDelayed,
		change: func(e *execution.Execution) {
			e.Retries, e.DelayUntil, e.Failure = 1, after(320), boom
			e.BlockingDetail = "retry backoff until 2026-11-21T09:35:20.000Z (attempt 0 failed: boom)"
			e.Lease.ExpiresAt, e.AttemptTimeoutAt, e.Released = time.Time{}, time.Time{}, &execution.Released{Op: execution.OpFail, Epoch: 1, RetryAt: after(320)}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, Close: execution.ClosedFailure, EndedAt: after(20), Failure: boom}},
		events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"retry_scheduled"`),
			`execution.delayed {"delay_until":"2026-11-21T09:35:20.000Z","blocking_reason":"waiting_for_retry_backoff"}`},
	},
	{
		name: "fail for good", from: plain(active), do: func(e execution.Execution) (execution.Change, error) { return fail(e, "permanent", after(20)) },
		vector: failedRow, public: execution.PublicFailed,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Failure = after(20), &execution.Failure{Reason: "boom", Category: "permanent"}
			e.Lease.ExpiresAt, e.AttemptTimeoutAt, e.Released = time.Time{}, time.Time{}, &execution.Released{Op: execution.OpFail, Epoch: 1}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, Close: execution.ClosedFailure, EndedAt: after(20),
			Failure: &execution.Failure{Reason: "boom", Category: "permanent"}}},
		events: []string{`execution.failed ` + ended("failed", `"attempt_index":0,"reason":"boom","category":"permanent",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"failed"`)},
	},
	{
		name: "release", from: plain(active),
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Release(e.Fence(), after(20))
			return c, err
		},
		vector: "runnable unowned eligible_now waiting_for_worker none attempt_interrupted", public: execution.PublicWaiting,
		change: func(e *execution.Execution) {
			e.Lease.ExpiresAt, e.AttemptTimeoutAt = time.Time{}, time.Time{}
			e.Released = &execution.Released{Op: execution.OpRelease, Epoch: 1, AttemptLeft: 581 * time.Second}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageSuspended}},
		events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"released"`),
			`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"attempt_interrupted"}`},
	},
	{
		name: "mark the lease expired", from: plain(active), do: pass(61), vector: lapsedRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease.ExpiresAt, e.BlockingDetail = time.Time{}, "lease expired, awaiting reclaim"
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Close: execution.ClosedLeaseExpired}},
		events:   []string{`lease.expired ` + lease(1, 1, 0, `"reason":"timeout"`)},
	},
	{
		name: "reclaim", from: lapsed, do: func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(70)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease, e.AttemptIndex, e.Attempts, e.Reclaims, e.AttemptTimeoutAt, e.BlockingDetail = leaseOf(2, 2, after(70)), 1, 2, 1, after(670), ""
		},
		attempts: []execution.AttemptChange{
			{Index: 0, Stage: execution.StageInterruptedReclaimed, Close: execution.ClosedReclaimed, EndedAt: after(70)},
			{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptReclaim, Stage: execution.StageStarted, WorkerID: "w2", InstanceID: "w2-1",
				LeaseEpoch: 2, StartedAt: after(70), ReclaimReason: "lease_lease_expired_reclaimable", Previous: new(0)}},
		},
		events: []string{`lease.reclaimed ` + lease(2, 2, 1, `"previous_attempt_index":0,"expires_at":"2026-11-21T09:32:10.000Z"`)},
	},
	{
		name: "reclaim of a revoked lease",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			e := lapsed(tb)
			e.Ownership = execution.LeaseRevoked
			return e
		},
		do:     func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(70)) },
		vector: activeRow, public: execution.PublicActive,
		change: func(e *execution.Execution) {
			e.Lease, e.AttemptIndex, e.Attempts, e.Reclaims, e.AttemptTimeoutAt, e.BlockingDetail = leaseOf(2, 2, after(70)), 1, 2, 1, after(670), ""
		},
		attempts: []execution.AttemptChange{
			{Index: 0, Stage: execution.StageInterruptedReclaimed, Close: execution.ClosedReclaimed, EndedAt: after(70)},
			{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptReclaim, Stage: execution.StageStarted, WorkerID: "w2", InstanceID: "w2-1",
				LeaseEpoch: 2, StartedAt: after(70), ReclaimReason: "lease_lease_revoked", Previous: new(0)}},
		},
		events: []string{`lease.reclaimed ` + lease(2, 2, 1, `"previous_attempt_index":0,"expires_at":"2026-11-21T09:32:10.000Z"`)},
	},
	{
		name: "reclaim once too often",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return passed(tb, claimed(tb, lapsed(tb), 2, after(70)), after(130))
		},
		do:     func(e execution.Execution) (execution.Change, error) { return claim(e, 3, after(140)) },
		vector: failedRow, public: execution.PublicFailed,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.AttemptTimeoutAt, e.BlockingDetail = after(140), time.Time{}, ""
			e.Failure = &execution.Failure{Reason: "max_reclaims_exceeded", Category: "infra_crash"}
		},
		attempts: []execution.AttemptChange{{Index: 1, Stage: execution.StageInterruptedReclaimed, EndedAt: after(140)}},
		events: []string{`execution.failed ` + ended("failed", `"attempt_index":1,"reason":"max_reclaims_exceeded","category":"infra_crash",`),
			`lease.revoked ` + lease(2, 2, 1, `"reason":"failed"`)},
	},
	{
		name: "cancel what was never claimed", from: plain(created), do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(20)) },
		vector: "terminal unowned not_applicable none cancelled pending_first_attempt", public: execution.PublicCancelled,
		change: func(e *execution.Execution) { e.CompletedAt, e.Cancellation = after(20), &byOperator },
		events: []string{`execution.cancelled ` + ended("cancelled", `"reason":"not needed",`)},
	},
	{
		name: "cancel what is delayed", from: delayed, do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(20)) },
		vector: "terminal unowned not_applicable none cancelled pending_first_attempt", public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Cancellation, e.DelayUntil, e.BlockingDetail = after(20), &byOperator, time.Time{}, ""
		},
		events: []string{`execution.cancelled ` + ended("cancelled", `"reason":"not needed",`)},
	},
	{
		name: "cancel what somebody works on", from: plain(active), do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(20)) },
		vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Cancellation, e.Lease.ExpiresAt, e.Lease.Epoch, e.AttemptTimeoutAt = after(20), &byOperator, time.Time{}, 2, time.Time{}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedCancelled, EndedAt: after(20)}},
		events: []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"cancelled"`)},
	},
	{
		name: "cancel what was given back", from: released, do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(20)) },
		vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Cancellation, e.Lease.Epoch = after(20), &byOperator, 2
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedCancelled, EndedAt: after(20)}},
		events:   []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed",`)},
	},
	{
		name: "cancel what its worker has lost", from: lapsed, do: func(e execution.Execution) (execution.Change, error) { return cancel(e, after(70)) },
		vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Cancellation, e.Lease.Epoch, e.AttemptTimeoutAt, e.BlockingDetail = after(70), &byOperator, 2, time.Time{}, ""
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, EndedAt: after(70)}},
		events: []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"cancelled"`)},
	},
	{
		name: "cancel what is to be retried: its attempt has ended already", from: retrying,
		do:     func(e execution.Execution) (execution.Change, error) { return cancel(e, after(20)) },
		vector: cancelledRow, public: execution.PublicCancelled,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Cancellation, e.Lease.Epoch, e.DelayUntil, e.BlockingDetail = after(20), &byOperator, 2, time.Time{}, ""
		},
		events: []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed",`)},
	},
	{
		name: "an attempt runs out of time and is retried",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			e := active(tb)
			return must(tb)(e.Renew(e.Fence(), time.Hour, after(5)))
		},
		do: pass(601), vector: retryRow, public: execution.PublicDelayed,
		change: func(e *execution.Execution) {
			e.Retries, e.DelayUntil, e.Failure = 1, after(901), timedOut
			e.BlockingDetail = "retry backoff until 2026-11-21T09:45:01.000Z (attempt 0 failed: attempt_timeout)"
			e.Lease.ExpiresAt, e.AttemptTimeoutAt = time.Time{}, time.Time{}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, Close: execution.ClosedExpired, EndedAt: after(601), Failure: timedOut}},
		events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"retry_scheduled"`),
			`execution.delayed {"delay_until":"2026-11-21T09:45:01.000Z","blocking_reason":"waiting_for_retry_backoff"}`},
	},
	{
		name: "an attempt runs out of time for good",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			e := claimed(tb, retryDue(tb), 2, after(306))
			return must(tb)(e.Renew(e.Fence(), time.Hour, after(310)))
		},
		do: pass(906), vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Failure, e.Lease.ExpiresAt, e.AttemptTimeoutAt = after(906), timedOut, time.Time{}, time.Time{}
		},
		attempts: []execution.AttemptChange{{Index: 1, Stage: execution.StageEndedFailure, Close: execution.ClosedExpired, EndedAt: after(906), Failure: timedOut}},
		events: []string{`execution.expired ` + ended("expired", `"attempt_index":1,"reason":"attempt_timeout","category":"timeout",`),
			`lease.revoked ` + lease(2, 2, 1, `"reason":"timeout"`)},
	},
	{
		name: "the deadline of what was never claimed", from: withDeadline(created), do: pass(50), public: execution.PublicExpired,
		vector: "terminal unowned not_applicable none expired pending_first_attempt",
		change: func(e *execution.Execution) { e.CompletedAt, e.Failure = after(50), late },
		events: []string{`execution.expired ` + ended("expired", `"reason":"execution_deadline","category":"timeout",`)},
	},
	{
		name: "the deadline of what somebody works on", from: withDeadline(active), do: pass(50), vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Failure, e.Lease.ExpiresAt, e.AttemptTimeoutAt = after(50), late, time.Time{}, time.Time{}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, Close: execution.ClosedExpired, EndedAt: after(50), Failure: late}},
		events: []string{`execution.expired ` + ended("expired", `"attempt_index":0,"reason":"execution_deadline","category":"timeout",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"timeout"`)},
	},
	{
		name: "the deadline of what is to be retried: its attempt has ended already",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return must(tb)(fail(withDeadline(active)(tb), "transient", after(5)))
		},
		do: pass(50), vector: expiredRow, public: execution.PublicExpired,
		change: func(e *execution.Execution) {
			e.CompletedAt, e.Failure, e.DelayUntil, e.BlockingDetail = after(50), late, time.Time{}, ""
		},
		events: []string{`execution.expired ` + ended("expired", `"attempt_index":0,"reason":"execution_deadline","category":"timeout",`)},
	},
	{
		name: "the flow of a member starts",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return created(tb, func(in *execution.Create) { in.FlowID, in.Paused = id(9), true })
		},
		do: func(e execution.Execution) (execution.Change, error) {
			c, _ := e.Unpause(after(20))
			return c, nil
		},
		vector: waitingRow, public: execution.PublicWaiting, change: func(e *execution.Execution) { e.BlockingDetail = "" },
		events: []string{`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_first_attempt"}`},
	},
	{
		name: "the flow of a delayed member starts",
		from: func(tb testing.TB) execution.Execution {
			tb.Helper()
			return created(tb, func(in *execution.Create) { in.FlowID, in.Paused, in.DelayUntil = id(9), true, after(100) })
		},
		do: func(e execution.Execution) (execution.Change, error) {
			c, _ := e.Unpause(after(20))
			return c, nil
		},
		vector: "runnable unowned not_eligible_until_time waiting_for_delay none pending_first_attempt", public: execution.PublicDelayed,
		change: func(e *execution.Execution) { e.BlockingDetail = "delayed until 2026-11-21T09:31:40.000Z" },
		events: []string{`execution.delayed {"delay_until":"2026-11-21T09:31:40.000Z","blocking_reason":"waiting_for_delay"}`},
	},
}
