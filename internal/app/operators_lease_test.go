package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestOperators_Revoke: executions.md 2.11 (canonical), 6.6/76.
func TestOperators_Revoke(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsRevokeCases)
}

var operatorsRevokeCases = []executionCase{
	{"revoked: it stays active, its worker is fenced off, and the next one takes it over (6.6/76)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(`"worker_instance_id":"w1-a",` + lasting)
		n := len(x.events(e.ID))
		answer := x.operator(e.ID, "revoke-lease", `"reason":"the host is gone"`).Want(http.StatusOK)
		if diff := cmp.Diff(oapi.LeaseRevocation{Outcome: "revoked", LeaseEpoch: 2}, answerAs[oapi.LeaseRevocation](answer)); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		lost := x.stands(e.ID, atRevoked)
		if answer.ETag() != etagOf(lost.Revision) || lost.BlockingDetail != "lease revoked: the host is gone" || lost.TotalAttemptCount != 1 {
			x.t.Errorf("ETag %s: %+v", answer.ETag(), lost)
		}
		told := x.toldSince(e.ID, n, "operator.lease_revoked", "lease.revoked")
		x.leaseEnds(e.ID, n, "lease.revoked", "operator")
		want := map[string]any{"lease_id": c.Fence.LeaseID.String(), "lease_epoch": 1.0, "worker_id": "w1", "worker_instance_id": "w1-a", "attempt_index": 0.0, "reason": "operator"}
		if diff := cmp.Diff(want, eventData(x.t, told[1])); diff != "" || eventData(x.t, told[0])["reason"] != "the host is gone" {
			x.t.Errorf("%s (-want +got):\n%s", told[0].Data, diff)
		}
		x.everyCall(c, func(name string, call func() (fault.Code, *apitest.Response)) {
			if code, answer := call(); code != fault.CodeLeaseRevoked {
				x.t.Errorf("%s = %q\n%s", name, code, answer.Body)
			}
		})
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask(`"reclaim":false`) }, e.ID)
		again := x.claim(`"worker_id":"w2"`)
		if again.Kind != "reclaimed" || again.Fence.LeaseEpoch != 3 || again.Fence.AttemptIndex != 1 || again.Execution.LeaseReclaimCount != 1 {
			x.t.Errorf("%+v", again)
		}
		attempts := x.attempts(e.ID)
		if len(attempts) != 2 || attempts[0].State != "interrupted_reclaimed" || attempts[1].AttemptType != "reclaim" || *attempts[1].ReclaimReason != "lease_lease_revoked" {
			x.t.Errorf("%+v", attempts)
		}
		for _, call := range workerCalls {
			x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
		}
	}},
	{"who waits for work is woken by it", func(x *executionTest) {
		e := x.create("")
		x.claim(lasting)
		w := x.wait(`"worker_id":"w2",` + lasting)
		x.settled()
		x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
		if got := w.got(); got.Kind != "reclaimed" || got.Execution.ID != e.ID {
			x.t.Errorf("a %s claim", got.Kind)
		}
	}},
	{"twice, and what has run out: satisfied already (6.6/76)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
		for _, members := range []string{"", `"worker_instance_id":"w1"`, `"worker_instance_id":"other"`, `"expected_lease_id":"` + uuid.NewString() + `"`, `"expected_lease_id":"` + c.Fence.LeaseID.String() + `"`} {
			x.nothingToRevoke(e.ID, members, "already_revoked", 2)
		}
		x.claim(lasting) // out of the way
		e = x.create("")
		x.claim("")
		x.advance(30 * time.Second)
		x.stands(e.ID, atLost)
		for _, members := range []string{"", `"worker_instance_id":"other"`, `"expected_lease_id":"` + uuid.NewString() + `"`} {
			x.nothingToRevoke(e.ID, members, "already_expired", 1)
		}
		x.claim(lasting)
		e = x.create("")
		x.claim("")
		x.unswept(e.ID)
		x.server.Clock.Advance(30 * time.Second) // run out, and not marked yet
		x.nothingToRevoke(e.ID, "", "already_expired", 1)
	}},
	{"only of this instance, only this lease (6.6/76)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(`"worker_instance_id":"w1-a",` + lasting)
		x.nothingToRevoke(e.ID, `"worker_instance_id":"w1-b"`, "different_worker_instance_id", 1)
		x.nothingToRevoke(e.ID, `"worker_instance_id":"w1"`, "different_worker_instance_id", 1)
		x.nothingToRevoke(e.ID, `"worker_instance_id":"w1-b","expected_lease_id":"`+uuid.NewString()+`"`, "different_worker_instance_id", 1)
		for _, members := range []string{`"expected_lease_id":"` + uuid.NewString() + `"`, `"worker_instance_id":"w1-a","expected_lease_id":"` + uuid.NewString() + `"`} {
			answer := x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.operator(e.ID, "revoke-lease", members) }, e.ID)
			if answer.Int("lease_epoch") != 1 {
				x.t.Errorf("%s", answer.Body)
			}
		}
		x.report(c, "progress", `"pct":1`).Want(http.StatusOK)
		answer := x.operator(e.ID, "revoke-lease", `"worker_instance_id":"w1-a","expected_lease_id":"`+c.Fence.LeaseID.String()+`"`).Want(http.StatusOK)
		if answer.Str("outcome") != "revoked" {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"what nobody works on (6.6/76)", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			if !p.owned {
				answer := x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.operator(id, "revoke-lease", "") }, id)
				if answer.Str("public_state") != string(x.get(id).PublicState) {
					x.t.Errorf("%s", answer.Body)
				}
			}
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.operator(e.ID, "revoke-lease", "") }, e.ID)
		}
	}},
	{"many at once: one does it", func(x *executionTest) {
		e := x.create("")
		x.claim(lasting)
		done := map[string]int{}
		for _, answer := range atOnce(6, func(int) *apitest.Response { return x.operator(e.ID, "revoke-lease", "") }) {
			done[answer.Want(http.StatusOK).Str("outcome")]++
		}
		if diff := cmp.Diff(map[string]int{"revoked": 1, "already_satisfied": 5}, done); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "operator.lease_revoked", "lease.revoked")
	}},
}

// nothingToRevoke checks that there was nothing to do, and why.
func (x *executionTest) nothingToRevoke(id uuid.UUID, members, reason string, epoch int64) {
	x.t.Helper()
	answer := x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(id, "revoke-lease", members) }, id)
	want := oapi.LeaseRevocation{Outcome: "already_satisfied", Reason: &reason, LeaseEpoch: epoch}
	if diff := cmp.Diff(want, answerAs[oapi.LeaseRevocation](answer)); diff != "" {
		x.t.Errorf("%s (-want +got):\n%s", members, diff)
	}
}

// TestOperators_Priority: executions.md 2.11, 6.6/77 and 7.3/42.
func TestOperators_Priority(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsPriorityCases)
}

var operatorsPriorityCases = []executionCase{
	{"it counts from the next claim on, is clamped and told (6.6/77)", func(x *executionTest) {
		low, high := x.create(`"priority":1`), x.create(`"priority":5`)
		for members, want := range map[string]int32{`"priority":10000`: 9000, `"priority":2147483647`: 9000, `"priority":-5`: 0, `"priority":-2147483648`: 0, `"priority":8`: 8, `"priority":9000`: 9000} {
			e, n := x.get(low.ID), len(x.events(low.ID))
			if e.Priority == want {
				continue
			}
			got := x.operated(low.ID, "priority", members)
			if got.Priority != want || x.stands(low.ID, atWaiting).Priority != want {
				x.t.Errorf("%s: %d", members, got.Priority)
			}
			told := x.toldSince(low.ID, n, "operator.priority_changed")
			if diff := cmp.Diff(map[string]any{"old_priority": float64(e.Priority), "new_priority": float64(want)}, eventData(x.t, told[0])); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		x.operator(low.ID, "priority", `"priority":6`).Want(http.StatusOK)
		if c := x.claim(""); c.Execution.ID != low.ID || c.Execution.Priority != 6 {
			x.t.Errorf("got %s of priority %d", c.Execution.ID, c.Execution.Priority)
		}
		if c := x.claim(""); c.Execution.ID != high.ID {
			x.t.Error("the other one is gone")
		}
	}},
	{"downwards, too, and equal ones by age", func(x *executionTest) {
		var want []uuid.UUID
		for range 3 {
			want = append(want, x.create(`"priority":5`).ID)
		}
		x.operated(want[0], "priority", `"priority":4`)
		x.operated(want[2], "priority", `"priority":4`)
		want[0], want[1] = want[1], want[0]
		var got []uuid.UUID
		for _, c := range x.claims(`"max":3`) {
			got = append(got, c.Execution.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"the same again changes nothing", func(x *executionTest) {
		e := x.create(`"priority":9000`)
		for _, members := range []string{`"priority":9000`, `"priority":9001`} {
			x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(e.ID, "priority", members) }, e.ID)
		}
		e = x.create("")
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(e.ID, "priority", `"priority":-1`) }, e.ID)
	}},
	{"of whatever waits for a claim, and of nothing else (6.6/77; 7.3/42)", func(x *executionTest) {
		waits := []string{"runnable"}
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			before := x.get(id)
			if !slices.Contains(waits, string(before.StateVector.LifecyclePhase)) {
				answer := x.refused(fault.CodeExecutionNotEligible, func() *apitest.Response { return x.operator(id, "priority", `"priority":3`) }, id)
				if answer.Str("public_state") != string(before.PublicState) {
					x.t.Errorf("%s", answer.Body)
				}
				return
			}
			got := x.operated(id, "priority", `"priority":3`)
			want := before
			want.Priority, want.Revision = 3, before.Revision+1
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			x.refused(fault.CodeExecutionNotEligible, func() *apitest.Response { return x.operator(e.ID, "priority", `"priority":3`) }, e.ID)
		}
	}},
	{"what was delayed comes with its new priority", func(x *executionTest) {
		plain, later := x.create(`"priority":5`), x.create(`"priority":1,"delay_ms":60000`)
		x.operated(later.ID, "priority", `"priority":9`)
		x.advance(time.Minute)
		if c := x.claim(""); c.Execution.ID != later.ID {
			x.t.Error("the other one came first")
		}
		if c := x.claim(""); c.Execution.ID != plain.ID {
			x.t.Error("which one is this?")
		}
	}},
}

// TestOperators_Resume: executions.md 2.11 and 6.6/79.
func TestOperators_Resume(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsResumeCases)
}

// parkedFor makes an execution that waits, by what it waits for.
var parkedFor = map[string]func(x *executionTest) (uuid.UUID, oapi.Claim){
	"waiting_for_children": func(x *executionTest) (uuid.UUID, oapi.Claim) {
		x.t.Helper()
		e := x.create("")
		c := x.claim(lasting)
		x.report(c, "wait-children", "").Want(http.StatusOK)
		return e.ID, c
	},
	"waiting_for_signal": func(x *executionTest) (uuid.UUID, oapi.Claim) {
		x.t.Helper()
		e, c := x.suspended("")
		return e.ID, c
	},
}

var operatorsResumeCases = []executionCase{
	{"now: the same attempt goes on (6.6/79; 6.5/71)", func(x *executionTest) {
		for reason, park := range parkedFor {
			for _, members := range []string{"", `"resume_delay_ms":0`} {
				id, c := park(x)
				n := len(x.events(id))
				x.operated(id, "resume", members)
				x.stands(id, atReleased)
				goes := "execution.eligible"
				if reason == "waiting_for_signal" {
					goes = "execution.resumed"
				}
				told := x.toldSince(id, n, "operator.resumed", goes)
				if diff := cmp.Diff(map[string]any{"blocking_reason": reason}, eventData(x.t, told[0])); diff != "" {
					x.t.Errorf("(-want +got):\n%s", diff)
				}
				again := x.claim(`"worker_id":"w2",` + lasting)
				if again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.AttemptIndex != 0 || again.Fence.LeaseEpoch != 2 {
					x.t.Errorf("a %s claim: %+v after %+v", again.Kind, again.Fence, c.Fence)
				}
			}
		}
	}},
	{"later (6.6/79)", func(x *executionTest) {
		for reason, park := range parkedFor {
			id, _ := park(x)
			n := len(x.events(id))
			before := x.server.Clock.Now()
			got := x.operated(id, "resume", `"resume_delay_ms":60000`)
			x.stands(id, atResumeDelay)
			if until := got.DelayUntil; until == nil || until.Time().Before(before.Add(time.Minute-time.Second)) || until.Time().After(x.server.Clock.Now().Add(time.Minute)) {
				x.t.Errorf("delayed until %s", until)
			}
			goes := "execution.delayed"
			if reason == "waiting_for_signal" {
				goes = "execution.resumed"
			}
			told := x.toldSince(id, n, "operator.resumed", goes)
			if eventData(x.t, told[0])["resume_delay_ms"] != 60000.0 || eventData(x.t, told[1])["delay_until"] == nil {
				x.t.Errorf("%s %s", told[0].Data, told[1].Data)
			}
			x.refused(fault.CodeNotSuspended, func() *apitest.Response { return x.operator(id, "resume", "") }, id)
			x.advance(50 * time.Second)
			x.none("")
			x.advance(10 * time.Second)
			if e := x.stands(id, atReleased); e.DelayUntil != nil {
				x.t.Errorf("%s", e.DelayUntil)
			}
			if c := x.claim(lasting); c.Kind != "resumed" || c.Execution.ID != id {
				x.t.Errorf("a %s claim", c.Kind)
			}
		}
	}},
	{"who waits for work is woken by it", func(x *executionTest) {
		id, _ := parkedFor["waiting_for_children"](x)
		w := x.wait(lasting)
		x.settled()
		x.operator(id, "resume", "").Want(http.StatusOK)
		if got := w.got(); got.Kind != "resumed" {
			x.t.Errorf("a %s claim", got.Kind)
		}
	}},
	{"what is not suspended (6.6/79)", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			if p.at == atSuspended || p.at == atChildren {
				return
			}
			answer := x.refused(fault.CodeNotSuspended, func() *apitest.Response { return x.operator(id, "resume", "") }, id)
			if answer.Str("public_state") != string(x.get(id).PublicState) {
				x.t.Errorf("%s", answer.Body)
			}
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			x.refused(fault.CodeNotSuspended, func() *apitest.Response { return x.operator(e.ID, "resume", "") }, e.ID)
		}
	}},
	{"resumed twice at once: one does it", func(x *executionTest) {
		id, _ := parkedFor["waiting_for_children"](x)
		done := 0
		for _, answer := range atOnce(5, func(int) *apitest.Response { return x.operator(id, "resume", "") }) {
			if answer.Status == http.StatusOK {
				done++
			} else {
				answer.Problem(fault.CodeNotSuspended)
			}
		}
		if done != 1 {
			x.t.Errorf("done %d times", done)
		}
	}},
	{"the time of its attempt stands still meanwhile", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":600000}}`)
		c := x.claim(lasting)
		x.advance(4 * time.Minute)
		x.report(c, "wait-children", "").Want(http.StatusOK)
		x.advance(time.Hour)
		x.operated(e.ID, "resume", "")
		x.claim(lasting)
		x.advance(5 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(61 * time.Second)
		x.stands(e.ID, atExpired)
	}},
	{"a deadline does not wait for it (7.2/25)", func(x *executionTest) {
		for _, park := range parkedFor {
			id, _ := park(x)
			x.tamper(`UPDATE executions SET deadline_at = ?, due_at = ? WHERE id = ?`, x.server.Clock.Now().Add(time.Minute).UnixMilli(), x.server.Clock.Now().Add(time.Minute).UnixMilli(), rowID(id))
			x.advance(2 * time.Minute)
			x.stands(id, atExpired)
			if attempts := x.attempts(id); attempts[0].State != "ended_failure" {
				x.t.Errorf("%+v", attempts)
			}
		}
	}},
	{"delays that are none", func(x *executionTest) {
		id, _ := parkedFor["waiting_for_children"](x)
		for _, ms := range []int64{-1, 31536000001} {
			x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.operator(id, "resume", fmt.Sprintf(`"resume_delay_ms":%d`, ms)) }, id)
		}
	}},
}
