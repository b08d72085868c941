package execution_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// TestTransitions_operators: executions.md 1.11 and 2.10, 2.11: what owners put off, and what operators do.
func TestTransitions_operators(t *testing.T) {
	t.Parallel()
	runTransitions(t, operatorsTransitions)
}

// givenBack is how an attempt is kept that was given back at 20.
func givenBack(op execution.Op) *execution.Released {
	return &execution.Released{Op: op, Epoch: 1, AttemptLeft: 581 * time.Second}
}

var attemptSuspended = []execution.AttemptChange{{Index: 0, Stage: execution.StageSuspended}}

func cancelledAttempt(at int) []execution.AttemptChange {
	return []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedCancelled, EndedAt: after(at)}}
}

func cancelEvents(first ...string) []string {
	return append(first, `execution.cancelled `+ended("cancelled", `"attempt_index":0,"reason":"not needed",`), `lease.revoked `+lease(1, 1, 0, `"reason":"cancelled"`))
}

var revocation = `operator.lease_revoked ` + lease(1, 1, 0, `"reason":"the host is gone"`)

func useGrant(kind execution.GrantKind) func(e execution.Execution) (execution.Change, error) {
	return func(e execution.Execution) (execution.Change, error) {
		c, _, err := e.ClaimGranted(execution.Use{GrantID: id(99), Kind: kind}, claimant(2), execution.Lane{}, after(85))
		return c, err
	}
}

// claimedAt85 is what a claim at 85 changes.
func claimedAt85(e *execution.Execution) {
	e.Lease = execution.Lease{ID: id(21), Epoch: e.Lease.Epoch + 1, AttemptID: id(22), WorkerID: "w2", InstanceID: "w2-1", AcquiredAt: after(85), ExpiresAt: after(145)}
	e.AttemptIndex, e.Attempts, e.AttemptTimeoutAt, e.Grant, e.BlockingDetail = e.Attempts, e.Attempts+1, after(685), nil, ""
}

var operatorsTransitions = []transition{
	{
		name: "delay", from: plain(active), public: execution.PublicDelayed,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Delay(e.Fence(), after(100), after(20))
			return c, err
		},
		vector: "runnable unowned not_eligible_until_time waiting_for_delay none attempt_interrupted",
		change: func(e *execution.Execution) {
			unheld(e)
			e.DelayUntil, e.BlockingDetail, e.Released = after(100), "delayed until 2026-11-21T09:31:40.000Z", givenBack(execution.OpDelay)
		},
		attempts: attemptSuspended,
		events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"delayed"`),
			`execution.delayed {"delay_until":"2026-11-21T09:31:40.000Z","blocking_reason":"waiting_for_delay"}`},
	},
	{
		name: "delay until now: it goes on at once", from: plain(active), public: execution.PublicWaiting, vector: interruptedRow,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Delay(e.Fence(), after(20), after(20))
			return c, err
		},
		change:   func(e *execution.Execution) { unheld(e); e.Released = givenBack(execution.OpDelay) },
		attempts: attemptSuspended,
		events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"delayed"`),
			`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"attempt_interrupted"}`},
	},
	{
		name: "wait for children", from: plain(active), public: execution.PublicWaitingChildren, vector: childrenRow,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.WaitChildren(e.Fence(), after(20))
			return c, err
		},
		change: func(e *execution.Execution) {
			unheld(e)
			e.BlockingDetail, e.Released = "waiting for child executions to complete", givenBack(execution.OpWaitChildren)
		},
		attempts: attemptSuspended,
		events:   []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"waiting_children"`), `execution.blocked {"blocking_reason":"waiting_for_children"}`},
	},
	{
		name: "cancel by the holder", from: plain(active), public: execution.PublicCancelled, vector: cancelledRow,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Abandon(e.Fence(), byOperator, after(20))
			return c, err
		},
		change: func(e *execution.Execution) {
			unheld(e)
			e.CompletedAt, e.Cancellation, e.Released = after(20), &byOperator, &execution.Released{Op: execution.OpCancel, Epoch: 1}
		},
		attempts: cancelledAttempt(20), events: cancelEvents(),
	},
	{
		name: "an operator completes in place of the holder", from: plain(active), public: execution.PublicCompleted,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Complete(execution.Fence{ExecutionID: e.ID, Override: true}, after(20))
			return c, err
		},
		vector: "terminal unowned not_applicable none success attempt_terminal",
		change: func(e *execution.Execution) {
			unheld(e)
			e.CompletedAt, e.Released = after(20), &execution.Released{Op: execution.OpComplete}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedSuccess, Close: execution.ClosedSuccess, EndedAt: after(20)}},
		events: []string{`operator.reported {"operation":"complete"}`, `execution.completed ` + ended("success", `"attempt_index":0,`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"completed"`)},
	},
	{
		name: "stop with a grace", from: plain(active), public: execution.PublicActive, vector: activeRow,
		do:     func(e execution.Execution) (execution.Change, error) { return stop(e, 30*time.Second, after(10)) },
		change: func(e *execution.Execution) { e.Cancellation = asked(40) },
		events: []string{`operator.cancelled {"reason":"not needed","grace_ms":30000}`, `execution.cancelling {"reason":"not needed","deadline_at":"2026-11-21T09:30:40.000Z"}`},
	},
	{
		name: "stop sooner: who asked first is kept", from: cancelling, public: execution.PublicActive, vector: activeRow,
		do:     func(e execution.Execution) (execution.Change, error) { return stop(e, 5*time.Second, after(20)) },
		change: func(e *execution.Execution) { e.Cancellation = asked(25) },
		events: []string{`operator.cancelled {"reason":"not needed","grace_ms":5000}`, `execution.cancelling {"reason":"not needed","deadline_at":"2026-11-21T09:30:25.000Z"}`},
	},
	{
		name: "stop at once", from: cancelling, public: execution.PublicCancelled, vector: cancelledRow,
		do:       func(e execution.Execution) (execution.Change, error) { return stop(e, 0, after(20)) },
		change:   func(e *execution.Execution) { unheld(e); e.CompletedAt, e.Lease.Epoch = after(20), 2 },
		attempts: cancelledAttempt(20), events: cancelEvents(`operator.cancelled {"reason":"not needed"}`),
	},
	{
		name: "the grace is over", from: cancelling, public: execution.PublicCancelled, vector: cancelledRow, do: pass(40),
		change:   func(e *execution.Execution) { unheld(e); e.CompletedAt, e.Lease.Epoch = after(40), 2 },
		attempts: cancelledAttempt(40), events: cancelEvents(),
	},
	{
		name: "the deadline of what is to end", public: execution.PublicCancelled, vector: cancelledRow, do: pass(50),
		from: func(tb testing.TB) execution.Execution {
			return must(tb)(stop(withDeadline(active)(tb), 5*time.Minute, after(10)))
		},
		change:   func(e *execution.Execution) { unheld(e); e.CompletedAt, e.Lease.Epoch = after(50), 2 },
		attempts: cancelledAttempt(50), events: cancelEvents(),
	},
	{
		name: "the lease runs out of what is to end", public: execution.PublicCancelled, vector: cancelledRow, do: pass(61),
		from:     func(tb testing.TB) execution.Execution { return must(tb)(stop(active(tb), 5*time.Minute, after(10))) },
		change:   func(e *execution.Execution) { unheld(e); e.CompletedAt, e.Lease.Epoch = after(61), 2 },
		attempts: cancelledAttempt(61), events: cancelEvents(),
	},
	{
		name: "a failure of what is to end: no retry", from: cancelling, public: execution.PublicCancelled, vector: cancelledRow,
		do: func(e execution.Execution) (execution.Change, error) { return fail(e, "transient", after(20)) },
		change: func(e *execution.Execution) {
			unheld(e)
			e.CompletedAt, e.Failure, e.Released = after(20), &execution.Failure{Reason: "boom", Category: "transient"}, &execution.Released{Op: execution.OpFail, Epoch: 1, Cancelled: true}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedFailure, Close: execution.ClosedFailure, EndedAt: after(20), Failure: &execution.Failure{Reason: "boom", Category: "transient"}}},
		events: []string{`execution.cancelled ` + ended("cancelled", `"attempt_index":0,"reason":"not needed","category":"transient",`),
			`lease.revoked ` + lease(1, 1, 0, `"reason":"cancelled"`)},
	},
	{
		name: "what is to end is given back", from: cancelling, public: execution.PublicCancelled, vector: cancelledRow,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Release(e.Fence(), after(20))
			return c, err
		},
		change: func(e *execution.Execution) {
			unheld(e)
			e.CompletedAt, e.Released = after(20), &execution.Released{Op: execution.OpRelease, Epoch: 1}
		},
		attempts: cancelledAttempt(20), events: cancelEvents(),
	},
	{
		name: "what is to end is completed", from: cancelling, public: execution.PublicCompleted,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.Complete(e.Fence(), after(20))
			return c, err
		},
		vector: "terminal unowned not_applicable none success attempt_terminal",
		change: func(e *execution.Execution) {
			unheld(e)
			e.CompletedAt, e.Cancellation, e.Released = after(20), nil, &execution.Released{Op: execution.OpComplete, Epoch: 1}
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedSuccess, Close: execution.ClosedSuccess, EndedAt: after(20)}},
		events:   []string{`execution.completed ` + ended("success", `"attempt_index":0,`), `lease.revoked ` + lease(1, 1, 0, `"reason":"completed"`)},
	},
	{
		name: "revoke", from: plain(active), public: execution.PublicActive, vector: revokedRow,
		do: func(e execution.Execution) (execution.Change, error) { return revoke(e, after(20)) },
		change: func(e *execution.Execution) {
			e.Lease.ExpiresAt, e.Lease.Epoch, e.BlockingDetail = time.Time{}, 2, "lease revoked: the host is gone"
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Close: execution.ClosedLeaseRevoked}},
		events:   []string{revocation, `lease.revoked ` + lease(1, 1, 0, `"reason":"operator"`)},
	},
	{
		name: "revoke what is to end", from: cancelling, public: execution.PublicCancelled, vector: cancelledRow,
		do:       func(e execution.Execution) (execution.Change, error) { return revoke(e, after(20)) },
		change:   func(e *execution.Execution) { unheld(e); e.CompletedAt, e.Lease.Epoch = after(20), 2 },
		attempts: cancelledAttempt(20), events: cancelEvents(revocation),
	},
	{
		name: "take over what was revoked: the epoch grows again", from: revoked, public: execution.PublicActive, vector: activeRow,
		do: func(e execution.Execution) (execution.Change, error) { return claim(e, 2, after(85)) },
		change: func(e *execution.Execution) {
			claimedAt85(e)
			e.Reclaims = 1
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageInterruptedReclaimed, Close: execution.ClosedReclaimed, EndedAt: after(85)},
			{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptReclaim, Stage: execution.StageStarted, WorkerID: "w2", InstanceID: "w2-1",
				LeaseEpoch: 3, StartedAt: after(85), ReclaimReason: "lease_lease_revoked", Previous: new(0)}}},
		events: []string{`lease.reclaimed ` + lease(2, 3, 1, `"previous_attempt_index":0,"expires_at":"2026-11-21T09:32:25.000Z"`)},
	},
	{
		name: "prioritise what is delayed", from: delayed, public: execution.PublicDelayed,
		do:     func(e execution.Execution) (execution.Change, error) { return e.Prioritise(10_000) },
		vector: "runnable unowned not_eligible_until_time waiting_for_delay none pending_first_attempt",
		change: func(e *execution.Execution) { e.Priority = execution.MaxPriority },
		events: []string{`operator.priority_changed {"old_priority":0,"new_priority":9000}`},
	},
	{
		name: "replay what failed: counters, failure and a deadline that has passed go", public: execution.PublicWaiting, vector: replayRow,
		from: func(tb testing.TB) execution.Execution {
			e := must(tb)(fail(withDeadline(active)(tb), "permanent", after(20)))
			e.Retries, e.Reclaims, e.Progress = 1, 1, &execution.Progress{At: after(10)}
			return e
		},
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Replay(execution.Standing{}, after(50))
		},
		change: func(e *execution.Execution) {
			e.Replays, e.Retries, e.Reclaims, e.CompletedAt, e.DeadlineAt, e.Failure, e.Progress = 1, 0, 0, time.Time{}, time.Time{}, nil, nil
		},
		events: []string{`operator.replayed {"replay_count":1,"branch":"normal","outcome":"failed"}`,
			`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"pending_replay_attempt"}`},
	},
	{
		name: "replay what was cancelled, of a flow that has not started", public: execution.PublicWaiting,
		from: cancelled,
		do: func(e execution.Execution) (execution.Change, error) {
			return e.Replay(execution.Standing{Paused: true}, after(50))
		},
		vector: "runnable unowned blocked_by_lane_state paused_by_policy none pending_replay_attempt",
		change: func(e *execution.Execution) {
			e.Replays, e.CompletedAt, e.Cancellation, e.BlockingDetail = 1, time.Time{}, nil, "the flow has not been started"
		},
		events: []string{`operator.replayed {"replay_count":1,"branch":"normal","outcome":"cancelled"}`, `execution.blocked {"blocking_reason":"paused_by_policy"}`},
	},
	{
		name: "resume what waits for its children", from: withChildren, public: execution.PublicWaiting, vector: interruptedRow,
		do:     func(e execution.Execution) (execution.Change, error) { return e.Resume(0, after(20)) },
		change: func(e *execution.Execution) { e.BlockingDetail = "" },
		events: []string{`operator.resumed {"blocking_reason":"waiting_for_children"}`,
			`execution.eligible {"blocking_reason":"waiting_for_worker","attempt_state":"attempt_interrupted"}`},
	},
	{
		name: "reserve", from: plain(created), public: execution.PublicWaiting, vector: waitingRow,
		do:     func(e execution.Execution) (execution.Change, error) { return e.Reserve(grantFor("w2"), after(80)) },
		change: func(e *execution.Execution) { e.Grant = operatorsGrant(execution.GrantsClaim) },
	},
	{
		name: "reserve what is lost and not marked", from: plain(active), public: execution.PublicActive, vector: lapsedRow,
		do: func(e execution.Execution) (execution.Change, error) {
			return e.ReserveLost(grantFor("w2"), nil, execution.Lane{}, after(80))
		},
		change: func(e *execution.Execution) {
			e.Lease.ExpiresAt, e.BlockingDetail, e.Grant = time.Time{}, "lease expired, awaiting reclaim", operatorsGrant(execution.GrantsReclaim)
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Close: execution.ClosedLeaseExpired}},
		events:   []string{`lease.expired ` + lease(1, 1, 0, `"reason":"timeout"`)},
	},
	{
		name: "a grant lapses", from: reserved, public: execution.PublicWaiting, vector: waitingRow, do: pass(90),
		change: func(e *execution.Execution) { e.Grant = nil },
	},
	{
		name: "claim what is reserved", from: reserved, public: execution.PublicActive, vector: activeRow, do: useGrant(execution.GrantsClaim),
		change: func(e *execution.Execution) {
			claimedAt85(e)
			e.AttemptIndex, e.Attempts, e.StartedAt = 0, 1, after(85)
		},
		attempts: []execution.AttemptChange{{Index: 0, Open: &execution.Attempt{Index: 0, Type: execution.AttemptInitial, Stage: execution.StageStarted,
			WorkerID: "w2", InstanceID: "w2-1", LeaseEpoch: 1, StartedAt: after(85)}}},
		events: []string{`lease.acquired ` + lease(2, 1, 0, `"kind":"fresh","expires_at":"2026-11-21T09:32:25.000Z"`)},
	},
	{
		name: "take over what is reserved", from: reservedLost, public: execution.PublicActive, vector: activeRow, do: useGrant(execution.GrantsReclaim),
		change: func(e *execution.Execution) {
			claimedAt85(e)
			e.Reclaims = 1
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageInterruptedReclaimed, Close: execution.ClosedReclaimed, EndedAt: after(85)},
			{Index: 1, Open: &execution.Attempt{Index: 1, Type: execution.AttemptReclaim, Stage: execution.StageStarted, WorkerID: "w2", InstanceID: "w2-1",
				LeaseEpoch: 2, StartedAt: after(85), ReclaimReason: "lease_lease_expired_reclaimable", Previous: new(0)}}},
		events: []string{`lease.reclaimed ` + lease(2, 2, 1, `"previous_attempt_index":0,"expires_at":"2026-11-21T09:32:25.000Z"`)},
	},
	{
		name: "claim by hand what waits for its children", from: withChildren, public: execution.PublicActive, vector: activeRow,
		do: func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.ClaimByHand(claimant(2), after(85))
			return c, err
		},
		change: func(e *execution.Execution) {
			attempt := e.Lease.AttemptID
			claimedAt85(e)
			e.Lease.AttemptID, e.AttemptIndex, e.Attempts, e.AttemptTimeoutAt, e.Released = attempt, 0, 1, after(85+596), nil
		},
		attempts: []execution.AttemptChange{{Index: 0, Stage: execution.StageStarted, Lease: &execution.Lease{ID: id(21), Epoch: 2, AttemptID: id(12),
			WorkerID: "w2", InstanceID: "w2-1", AcquiredAt: after(85), ExpiresAt: after(145)}}},
		events: []string{fmt.Sprintf(`operator.claimed {"lease_id":"%s","lease_epoch":2}`, id(21)),
			`lease.acquired ` + lease(2, 2, 0, `"kind":"resumed","expires_at":"2026-11-21T09:32:25.000Z"`)},
	},
	{
		name: "cancel what is reserved: the grant goes", from: reserved, public: execution.PublicCancelled,
		do:     func(e execution.Execution) (execution.Change, error) { return cancel(e, after(85)) },
		vector: "terminal unowned not_applicable none cancelled pending_first_attempt",
		change: func(e *execution.Execution) { e.CompletedAt, e.Cancellation, e.Grant = after(85), &byOperator, nil },
		events: []string{`execution.cancelled ` + ended("cancelled", `"reason":"not needed",`)},
	},
	{
		name: "tag", from: completed, public: execution.PublicCompleted, vector: "terminal unowned not_applicable none success attempt_terminal",
		do:     func(e execution.Execution) (execution.Change, error) { return e.SetTag("team.name", "a") },
		change: func(e *execution.Execution) { e.Tags = map[string]string{"team.name": "a"} },
		events: []string{`execution.tag_set {"key":"team.name","value":"a"}`},
	},
}
