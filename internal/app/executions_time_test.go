package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_Time: what time does to an execution. executions.md 4, 6.5 and 6.6/81, 82.
func TestExecutions_Time(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsTimeCases)
}

var executionsTimeCases = []executionCase{
	{"a lost lease is taken over through the same poll (6.5/61, 63, 68; 6.6/82)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(`"worker_id":"dead"`)
		x.advance(29 * time.Second)
		x.none("")
		x.stands(e.ID, atActive)
		x.advance(2 * time.Second)
		lost := x.stands(e.ID, atLost)
		if lost.CurrentLease != nil || lost.BlockingDetail != "lease expired, awaiting reclaim" || lost.LeaseReclaimCount != 0 {
			x.t.Errorf("%+v", lost)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "lease.expired")
		again := x.claim(`"worker_id":"alive"`)
		if again.Kind != "reclaimed" || again.Fence.LeaseEpoch != 2 || again.Fence.AttemptIndex != 1 || again.Fence.AttemptID == c.Fence.AttemptID ||
			again.Execution.LeaseReclaimCount != 1 || again.Execution.TotalAttemptCount != 2 {
			x.t.Errorf("a %s claim: %+v after %+v", again.Kind, again.Fence, c.Fence)
		}
		attempts := x.attempts(e.ID)
		want := []oapi.Attempt{
			{AttemptType: "initial", State: "interrupted_reclaimed", WorkerID: "dead", WorkerInstanceID: "dead", LeaseEpoch: 1,
				StartedAt: c.Execution.StartedAt, EndedAt: &again.Execution.CurrentLease.AcquiredAt},
			{AttemptIndex: 1, AttemptType: "reclaim", State: "started", WorkerID: "alive", WorkerInstanceID: "alive", LeaseEpoch: 2,
				StartedAt: &again.Execution.CurrentLease.AcquiredAt, ReclaimReason: new("lease_lease_expired_reclaimable"), PreviousAttemptIndex: new(int32(0))},
		}
		if diff := cmp.Diff(want, attempts); diff != "" {
			x.t.Errorf("attempts (-want +got):\n%s", diff)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "lease.expired", "lease.reclaimed")
		x.report(again, "complete", "").Want(http.StatusOK)
	}},
	{"one takeover too many ends it (6.5/65, 67)", func(x *executionTest) {
		for _, limit := range []int{0, 2} {
			x := x.on(fmt.Sprint(limit))
			e := x.create(fmt.Sprintf(`"policy":{"max_reclaim_count":%d}`, limit))
			for n := range limit + 1 {
				if c := x.claim(""); c.Fence.LeaseEpoch != int64(n+1) || c.Execution.LeaseReclaimCount != int32(n) {
					x.t.Errorf("takeover %d has the epoch %d", c.Execution.LeaseReclaimCount, c.Fence.LeaseEpoch)
				}
				x.advance(30 * time.Second)
			}
			behind := x.create(`"priority":0`)
			if c := x.claim(""); c.Execution.ID != behind.ID { // it ends in passing
				x.t.Errorf("got %s", c.Execution.ID)
			}
			failed := x.stands(e.ID, atFailed)
			if failed.Failure == nil || failed.Failure.Reason != "max_reclaims_exceeded" || failed.LeaseReclaimCount != int32(limit) {
				x.t.Errorf("%+v", failed)
			}
			attempts := x.attempts(e.ID)
			if len(attempts) != limit+1 || attempts[limit].State != "interrupted_reclaimed" || attempts[limit].EndedAt == nil {
				x.t.Errorf("%+v", attempts)
			}
			var ends []string
			for _, event := range x.events(e.ID)[len(x.events(e.ID))-2:] {
				ends = append(ends, event.Type)
			}
			if diff := cmp.Diff([]string{"execution.failed", "lease.revoked"}, ends); diff != "" {
				x.t.Errorf("%s", diff)
			}
		}
	}},
	{"a takeover that ends something and finds nothing is 204", func(x *executionTest) {
		e := x.create(`"policy":{"max_reclaim_count":0}`)
		x.claim("")
		x.advance(time.Minute)
		x.none("")
		x.stands(e.ID, atFailed)
	}},
	{"a renewal in time keeps the lease, one too late does not (4)", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		x.advance(29 * time.Second)
		x.report(c, "renew", "").Want(http.StatusOK)
		x.advance(29 * time.Second)
		x.stands(e.ID, atActive)
		x.advance(2 * time.Second)
		x.report(c, "renew", "").Problem(fault.CodeLeaseExpired)
		x.stands(e.ID, atLost)
	}},
	{"an attempt that takes too long is retried, then ends it (6.6/81, 82)", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":900000},"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":600000}}}`)
		c := x.claim(lasting)
		x.advance(14 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(time.Minute)
		got := x.stands(e.ID, atBackoff)
		if got.Failure == nil || got.Failure.Reason != "attempt_timeout" || *got.Failure.Category != "timeout" || got.RetryCount != 1 || got.DelayUntil == nil {
			x.t.Errorf("%+v", got)
		}
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
		x.advance(retryDelay)
		if c = x.claim(lasting); c.Kind != "retry" || c.Fence.AttemptIndex != 1 {
			x.t.Errorf("a %s claim of attempt %d", c.Kind, c.Fence.AttemptIndex)
		}
		x.advance(15 * time.Minute)
		got = x.stands(e.ID, atExpired)
		if got.Failure == nil || got.Failure.Reason != "attempt_timeout" || got.CompletedAt == nil {
			x.t.Errorf("%+v", got)
		}
		for _, a := range x.attempts(e.ID) {
			if a.State != "ended_failure" || a.Failure == nil || a.Failure.Reason != "attempt_timeout" || a.EndedAt == nil {
				x.t.Errorf("%+v", a)
			}
		}
		x.told(e.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.delayed", "execution.eligible", "lease.acquired", "execution.expired", "lease.revoked")
		if x.reason(e.ID, "lease.revoked") != "timeout" || x.reason(e.ID, "execution.expired") != "attempt_timeout" {
			x.t.Errorf("revoked because of %s, expired because of %s", x.reason(e.ID, "lease.revoked"), x.reason(e.ID, "execution.expired"))
		}
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
	}},
	{"a takeover gives the new attempt its whole time (2.5)", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":900000}}`)
		x.claim("")
		x.advance(10 * time.Minute)
		x.stands(e.ID, atLost)
		x.claim(lasting)
		x.advance(14 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(time.Minute)
		x.stands(e.ID, atExpired)
	}},
	{"an attempt that nobody took over runs out of time, too", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":900000}}`)
		x.claim("")
		x.advance(15 * time.Minute)
		x.stands(e.ID, atExpired)
		x.told(e.ID, "execution.created", "lease.acquired", "execution.expired", "lease.revoked")
		e = x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":900000}}`)
		x.claim("")
		x.advance(time.Minute)
		x.advance(14 * time.Minute)
		x.stands(e.ID, atExpired)
		x.told(e.ID, "execution.created", "lease.acquired", "lease.expired", "execution.expired", "lease.revoked")
	}},
	{"a deadline ends whatever phase it finds (6.6/81)", func(x *executionTest) {
		deadline := `"policy":{"timeout_policy":{"execution_deadline_ms":3600000},"retry_policy":{"max_retries":9,"backoff":{"type":"fixed","delay_ms":7200000}}}`
		delayed := x.create(deadline + `,"delay_ms":7200000,"lane":"` + x.lane + `-d"`)
		waiting := x.create(deadline + `,"lane":"` + x.lane + `-w"`)
		active, retrying, back, lost := x.create(deadline), x.create(deadline), x.create(deadline), x.create(deadline)
		held := x.claims(`"max":3,"lease_ttl_ms":7200000`)
		x.claim("")
		x.report(held[1], "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.report(held[2], "release", "").Want(http.StatusOK)
		x.advance(59 * time.Minute)
		x.stands(active.ID, atActive)
		x.stands(retrying.ID, atBackoff)
		x.stands(back.ID, atReleased)
		x.stands(lost.ID, atLost)
		x.advance(time.Minute)
		for _, e := range []oapi.Execution{delayed, waiting} {
			x.stands(e.ID, atExpiredIdle)
			x.told(e.ID, "execution.created", "execution.expired")
		}
		states := map[uuid.UUID]oapi.AttemptLifecycle{active.ID: "ended_failure", retrying.ID: "ended_failure", back.ID: "ended_failure", lost.ID: "ended_failure"}
		reasons := map[uuid.UUID]string{active.ID: "execution_deadline", retrying.ID: "boom", back.ID: "execution_deadline", lost.ID: "execution_deadline"}
		for id, state := range states {
			e := x.stands(id, atExpired)
			attempts := x.attempts(id)
			if len(attempts) != 1 || attempts[0].State != state || attempts[0].Failure == nil || attempts[0].Failure.Reason != reasons[id] || e.Failure.Reason != "execution_deadline" {
				x.t.Errorf("%+v: %+v", e.Failure, attempts)
			}
			completions := 0
			for _, event := range x.events(id) {
				if event.Topic == "completion" {
					completions++
				}
			}
			if completions != 1 {
				x.t.Errorf("%d completions", completions)
			}
		}
		x.told(active.ID, "execution.created", "lease.acquired", "execution.expired", "lease.revoked")
		x.told(retrying.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.delayed", "execution.expired")
		x.told(back.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.eligible", "execution.expired")
		x.told(lost.ID, "execution.created", "lease.acquired", "lease.expired", "execution.expired", "lease.revoked")
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(held[0], "complete", "") }, active.ID)
		x.none("")
	}},
	{"the same time twice does nothing the second time (5/34)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		x.claim("")
		x.advance(time.Minute)
		before := x.snapshot(e.ID)
		x.advance(0)
		x.advance(time.Hour)
		if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
			x.t.Errorf("%s", diff)
		}
	}},
	{"everything at once: a long time later", func(x *executionTest) {
		e := x.create(`"delay_ms":60000,"policy":{"timeout_policy":{"attempt_timeout_ms":900000},"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":600000}}}`)
		x.advance(time.Minute)
		x.claim("")
		x.advance(24 * time.Hour) // lease and attempt are over; the backoff begins when that is seen
		x.stands(e.ID, atBackoff)
		x.advance(retryDelay)
		x.stands(e.ID, atRetry)
	}},
}
