package execution_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

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

// TestTransitions_operators: executions.md 1.11 and 2.10, 2.11: what owners put off, and what operators do.
func TestTransitions_operators(t *testing.T) {
	t.Parallel()
	released := func(op execution.Op) *execution.Released {
		return &execution.Released{Op: op, Epoch: 1, AttemptLeft: 581 * time.Second}
	}
	suspended := []execution.AttemptChange{{Index: 0, Stage: execution.StageSuspended}}
	cancelledAttempt := func(at int) []execution.AttemptChange {
		return []execution.AttemptChange{{Index: 0, Stage: execution.StageEndedCancelled, Close: execution.ClosedCancelled, EndedAt: after(at)}}
	}
	cancelEvents := func(first ...string) []string {
		return append(first, `execution.cancelled `+ended("cancelled", `"attempt_index":0,"reason":"not needed",`), `lease.revoked `+lease(1, 1, 0, `"reason":"cancelled"`))
	}
	revocation := `operator.lease_revoked ` + lease(1, 1, 0, `"reason":"the host is gone"`)
	use := func(kind execution.GrantKind) func(e execution.Execution) (execution.Change, error) {
		return func(e execution.Execution) (execution.Change, error) {
			c, _, err := e.ClaimGranted(execution.Use{GrantID: id(99), Kind: kind}, claimant(2), execution.Lane{}, after(85))
			return c, err
		}
	}
	claimedAt85 := func(e *execution.Execution) {
		e.Lease = execution.Lease{ID: id(21), Epoch: e.Lease.Epoch + 1, AttemptID: id(22), WorkerID: "w2", InstanceID: "w2-1", AcquiredAt: after(85), ExpiresAt: after(145)}
		e.AttemptIndex, e.Attempts, e.AttemptTimeoutAt, e.Grant, e.BlockingDetail = e.Attempts, e.Attempts+1, after(685), nil, ""
	}
	runTransitions(t, []transition{
		{
			name: "delay", from: plain(active), public: execution.PublicDelayed,
			do: func(e execution.Execution) (execution.Change, error) {
				c, _, err := e.Delay(e.Fence(), after(100), after(20))
				return c, err
			},
			vector: "runnable unowned not_eligible_until_time waiting_for_delay none attempt_interrupted",
			change: func(e *execution.Execution) {
				unheld(e)
				e.DelayUntil, e.BlockingDetail, e.Released = after(100), "delayed until 2026-11-21T09:31:40.000Z", released(execution.OpDelay)
			},
			attempts: suspended,
			events: []string{`lease.revoked ` + lease(1, 1, 0, `"reason":"delayed"`),
				`execution.delayed {"delay_until":"2026-11-21T09:31:40.000Z","blocking_reason":"waiting_for_delay"}`},
		},
		{
			name: "delay until now: it goes on at once", from: plain(active), public: execution.PublicWaiting, vector: interruptedRow,
			do: func(e execution.Execution) (execution.Change, error) {
				c, _, err := e.Delay(e.Fence(), after(20), after(20))
				return c, err
			},
			change:   func(e *execution.Execution) { unheld(e); e.Released = released(execution.OpDelay) },
			attempts: suspended,
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
				e.BlockingDetail, e.Released = "waiting for child executions to complete", released(execution.OpWaitChildren)
			},
			attempts: suspended,
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
			name: "claim what is reserved", from: reserved, public: execution.PublicActive, vector: activeRow, do: use(execution.GrantsClaim),
			change: func(e *execution.Execution) {
				claimedAt85(e)
				e.AttemptIndex, e.Attempts, e.StartedAt = 0, 1, after(85)
			},
			attempts: []execution.AttemptChange{{Index: 0, Open: &execution.Attempt{Index: 0, Type: execution.AttemptInitial, Stage: execution.StageStarted,
				WorkerID: "w2", InstanceID: "w2-1", LeaseEpoch: 1, StartedAt: after(85)}}},
			events: []string{`lease.acquired ` + lease(2, 1, 0, `"kind":"fresh","expires_at":"2026-11-21T09:32:25.000Z"`)},
		},
		{
			name: "take over what is reserved", from: reservedLost, public: execution.PublicActive, vector: activeRow, do: use(execution.GrantsReclaim),
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
	})
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

// TestOperators_refusals: every refusal of what operators and grants do, in the order of the reference. executions.md 2.3 to 2.5, 2.11.
func TestOperators_refusals(t *testing.T) {
	t.Parallel()
	type call = func(e execution.Execution) error
	use := func(kind execution.GrantKind, grant uuid.UUID, worker byte, lane execution.Lane, at int) call {
		return func(e execution.Execution) error {
			_, _, err := e.ClaimGranted(execution.Use{GrantID: grant, Kind: kind}, claimant(worker), lane, after(at))
			return err
		}
	}
	claimIt, reclaimIt := execution.GrantsClaim, execution.GrantsReclaim
	lost := func(at int, worker execution.Capabilities, lane ...execution.Lane) call {
		return func(e execution.Execution) error {
			_, err := e.ReserveLost(grantFor("w3"), worker, append(lane, execution.Lane{})[0], after(at))
			return err
		}
	}
	byHand := func(e execution.Execution) error {
		_, _, err := e.ClaimByHand(claimant(2), after(85))
		return err
	}
	revokeIt := func(which execution.Revocation) call {
		return func(e execution.Execution) error {
			_, _, err := e.Revoke(which, after(20))
			return err
		}
	}
	replay := func(e execution.Execution) error { _, err := e.Replay(execution.Standing{}, after(85)); return err }
	resume := func(e execution.Execution) error { _, err := e.Resume(0, after(85)); return err }
	prioritise := func(e execution.Execution) error { _, err := e.Prioritise(1); return err }
	stopIt := func(e execution.Execution) error { _, err := stop(e, time.Minute, after(85)); return err }
	capable := func(tb testing.TB) execution.Execution {
		e := lapsed(tb)
		e.Required = execution.Capabilities{"cuda", "go"}
		return e
	}
	worn := func(tb testing.TB) execution.Execution {
		e := lapsed(tb)
		e.Reclaims = 1
		return e
	}
	noReplays := func(tb testing.TB) execution.Execution {
		e := cancelled(tb)
		e.Replays = 10
		return e
	}
	paused := execution.Lane{Name: "ci", State: execution.LanePaused}
	for _, tt := range []struct {
		name string
		from func(testing.TB) execution.Execution
		call call
		code fault.Code
	}{
		{"grant: held", plain(active), use(claimIt, id(99), 2, execution.Lane{}, 85), fault.CodeLeaseConflict},
		{"grant: lost", lapsed, use(claimIt, id(99), 2, execution.Lane{}, 85), fault.CodeLeaseConflict},
		{"grant: ended", completed, use(claimIt, id(99), 2, execution.Lane{}, 85), fault.CodeExecutionNotLeaseable},
		{"grant: delayed", delayed, use(claimIt, id(99), 2, execution.Lane{}, 85), fault.CodeExecutionNotLeaseable},
		{"grant: lane paused", reserved, use(claimIt, id(99), 2, paused, 85), fault.CodeExecutionNotLeaseable},
		{"grant: none", plain(created), use(claimIt, id(99), 2, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
		{"grant: another one", reserved, use(claimIt, id(98), 2, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
		{"grant: another worker", reserved, use(claimIt, id(99), 3, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
		{"grant: lapsed", reserved, use(claimIt, id(99), 2, execution.Lane{}, 90), fault.CodeClaimGrantExpired},
		{"reclaim: not lost", plain(active), use(reclaimIt, id(99), 2, execution.Lane{}, 20), fault.CodeNotReclaimable},
		{"reclaim: ended", completed, use(reclaimIt, id(99), 2, execution.Lane{}, 20), fault.CodeNotReclaimable},
		{"reclaim: lane paused", reservedLost, use(reclaimIt, id(99), 2, paused, 85), fault.CodeExecutionNotLeaseable},
		{"reclaim: no grant", lapsed, use(reclaimIt, id(99), 2, execution.Lane{}, 85), fault.CodeGrantNotFound},
		{"reclaim: another one", reservedLost, use(reclaimIt, id(98), 2, execution.Lane{}, 85), fault.CodeGrantNotFound},
		{"reclaim: lapsed", reservedLost, use(reclaimIt, id(99), 2, execution.Lane{}, 90), fault.CodeGrantNotFound},
		{"reclaim: another worker", reservedLost, use(reclaimIt, id(99), 3, execution.Lane{}, 85), fault.CodeInvalidClaimGrant},
		{"reserve lost: held", plain(active), lost(20, nil), fault.CodeNotReclaimable},
		{"reserve lost: waiting", plain(created), lost(20, nil), fault.CodeNotReclaimable},
		{"reserve lost: to end", cancelling, lost(80, nil), fault.CodeNotReclaimable},
		{"reserve lost: lane paused", capable, lost(80, nil, paused), fault.CodeExecutionNotLeaseable},
		{"reserve lost: incapable", capable, lost(80, execution.Capabilities{"go"}), fault.CodeCapabilityMismatch},
		{"reserve lost: reserved", reservedLost, lost(85, nil), fault.CodeGrantExists},
		{"reserve lost: too often", worn, lost(85, nil), fault.CodeReclaimCapExceeded},
		{"by hand: held", plain(active), byHand, fault.CodeLeaseConflict},
		{"by hand: lost", lapsed, byHand, fault.CodeExecutionNotEligible},
		{"by hand: ended", completed, byHand, fault.CodeExecutionNotEligible},
		{"by hand: delayed", delayed, byHand, fault.CodeExecutionNotEligible},
		{"by hand: reserved", reserved, byHand, fault.CodeGrantExists},
		{"revoke: waiting", plain(created), revokeIt(execution.Revocation{}), fault.CodeExecutionNotActive},
		{"revoke: ended", completed, revokeIt(execution.Revocation{}), fault.CodeExecutionNotActive},
		{"revoke: another lease", plain(active), revokeIt(execution.Revocation{LeaseID: id(98)}), fault.CodeStaleLease},
		{"prioritise: held", plain(active), prioritise, fault.CodeExecutionNotEligible},
		{"prioritise: ended", completed, prioritise, fault.CodeExecutionNotEligible},
		{"replay: waiting", plain(created), replay, fault.CodeExecutionNotTerminal},
		{"replay: held", plain(active), replay, fault.CodeExecutionNotTerminal},
		{"replay: too often", noReplays, replay, fault.CodeMaxReplaysExhausted},
		{"resume: waiting", plain(created), resume, fault.CodeNotSuspended},
		{"resume: held", plain(active), resume, fault.CodeNotSuspended},
		{"resume: delayed", delayed, resume, fault.CodeNotSuspended},
		{"resume: ended", completed, resume, fault.CodeNotSuspended},
		{"stop: completed", completed, stopIt, fault.CodeAlreadyTerminal},
	} {
		e := tt.from(t)
		if got := fault.CodeOf(tt.call(e)); got != tt.code {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.code)
		}
		if diff := cmp.Diff(tt.from(t), e); diff != "" {
			t.Errorf("%s: refused, and yet changed (-before +after):\n%s", tt.name, diff)
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
