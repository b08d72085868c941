package app_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestOperators_Replay: executions.md 2.11 and 6.6/78; the rules of a replay's deadline.
func TestOperators_Replay(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsReplayCases)
}

var operatorsReplayCases = []executionCase{
	{"what has ended, however, runs again as a new attempt (6.6/78)", func(x *executionTest) {
		for _, outcome := range terminals {
			e, c := x.ended(outcome, `"priority":3,"tags":{"a.b":"c"},"payload":[1],`+retryPolicy(2))
			n, attempts := len(x.events(e.ID)), x.attempts(e.ID)
			got := x.operated(e.ID, "replay", "")
			x.stands(e.ID, atReplay)
			want := e
			want.StateVector, want.PublicState, want.BlockingReason = got.StateVector, "waiting", "waiting_for_worker"
			want.ReplayCount, want.Revision, want.CompletedAt, want.Failure, want.Cancellation, want.DeadlineAt = 1, e.Revision+1, nil, nil, nil, nil
			if diff := cmp.Diff(want, got); diff != "" || got.StartedAt == nil {
				x.t.Errorf("%s (-want +got):\n%s", outcome, diff)
			}
			if missing := x.Get("/v1/executions/" + e.ID.String() + "/result").Problem(fault.CodeNotFound); missing.Str("resource") != "result" {
				x.t.Errorf("%s", missing.Body)
			}
			told := x.toldSince(e.ID, n, "operator.replayed", "execution.eligible")
			ended := map[string]string{"completed": "success"}[outcome]
			if ended == "" {
				ended = outcome
			}
			if diff := cmp.Diff(map[string]any{"replay_count": 1.0, "branch": "normal", "outcome": ended}, eventData(x.t, told[0])); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(attempts, x.attempts(e.ID)); diff != "" {
				x.t.Errorf("the attempts of before (-want +got):\n%s", diff)
			}
			if outcome == "completed" { // its end is answered again until somebody claims it
				answer := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
				if answer.Get("replayed") != true {
					x.t.Errorf("%s", answer.Body)
				}
			}
			again := x.claim(`"worker_id":"w2",` + lasting)
			if again.Execution.ID != e.ID || again.Kind != "replay" || again.Fence.AttemptIndex != 1 || again.Fence.LeaseEpoch <= c.Fence.LeaseEpoch ||
				again.Fence.AttemptID == c.Fence.AttemptID || !again.Execution.StartedAt.Equal(*e.StartedAt) {
				x.t.Errorf("a %s claim: %+v after %+v", again.Kind, again.Fence, c.Fence)
			}
			if attempts := x.attempts(e.ID); len(attempts) != 2 || attempts[1].AttemptType != "replay" || *attempts[1].PreviousAttemptIndex != 0 {
				x.t.Errorf("%+v", attempts)
			}
			x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
			x.report(again, "complete", `"result":2`).Want(http.StatusOK)
			x.stands(e.ID, atCompleted)
			completions := 0
			for _, event := range x.events(e.ID) {
				if event.Topic == "completion" {
					completions++
				}
			}
			if completions != 2 { // one for each entry into the end: 5/11
				x.t.Errorf("%d completion events", completions)
			}
		}
	}},
	{"what never ran has no attempt before", func(x *executionTest) {
		e := x.create("")
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		got := x.operated(e.ID, "replay", "")
		x.stands(e.ID, atReplay)
		if got.StartedAt != nil || got.CurrentAttemptIndex != nil {
			x.t.Errorf("%+v", got)
		}
		c := x.claim("")
		if attempts := x.attempts(e.ID); c.Kind != "replay" || c.Fence.AttemptIndex != 0 || c.Fence.LeaseEpoch != 1 || len(attempts) != 1 || attempts[0].PreviousAttemptIndex != nil {
			x.t.Errorf("%+v", attempts)
		}
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		e = x.create("")
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.operated(e.ID, "replay", "")
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.stands(e.ID, atCancelledReplay)
	}},
	{"its counters begin anew (7.2/21)", func(x *executionTest) {
		e := x.create(`"policy":{"max_reclaim_count":1,"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":1000}}}`)
		run := func() {
			x.t.Helper()
			x.claim(`"lease_ttl_ms":1000`)
			x.advance(time.Second)
			taken := x.claim(lasting)
			if taken.Kind != "reclaimed" || taken.Execution.LeaseReclaimCount != 1 {
				x.t.Fatalf("%s, %d", taken.Kind, taken.Execution.LeaseReclaimCount)
			}
			x.report(taken, "progress", `"pct":7,"message":"x"`).Want(http.StatusOK)
			if answer := x.report(taken, "fail", `"reason":"boom"`).Want(http.StatusOK); answer.Str("outcome") != "retry_scheduled" {
				x.t.Fatalf("%s", answer.Body)
			}
			x.advance(time.Second)
			if answer := x.report(x.claim(lasting), "fail", `"reason":"boom"`).Want(http.StatusOK); answer.Str("outcome") != "terminal_failed" {
				x.t.Fatalf("%s", answer.Body)
			}
		}
		run()
		failed := x.stands(e.ID, atFailed)
		if failed.RetryCount != 1 || failed.LeaseReclaimCount != 1 {
			x.t.Errorf("%+v", failed)
		}
		got := x.operated(e.ID, "replay", "")
		if got.RetryCount != 0 || got.LeaseReclaimCount != 0 || got.Failure != nil || got.Progress.Pct != nil || got.Progress.Message != nil || got.Progress.At != nil || got.TotalAttemptCount != 3 {
			x.t.Errorf("%+v", got)
		}
		run()
		if again := x.stands(e.ID, atFailed); again.TotalAttemptCount != 6 || again.ReplayCount != 1 {
			x.t.Errorf("%+v", again)
		}
	}},
	{"as often as its policy says", func(x *executionTest) {
		for policy, most := range map[string]int{`"policy":{"max_replay_count":0}`: 0, `"policy":{"max_replay_count":2}`: 2, `"kind":"no policy"`: 10} {
			e := x.create(policy)
			for range most {
				x.operated(e.ID, "operator-cancel", `"reason":"no"`)
				x.operated(e.ID, "replay", "")
			}
			x.operated(e.ID, "operator-cancel", `"reason":"no"`)
			answer := x.refused(fault.CodeMaxReplaysExhausted, func() *apitest.Response { return x.operator(e.ID, "replay", "") }, e.ID)
			if answer.Int("replay_count") != int64(most) {
				x.t.Errorf("%s", answer.Body)
			}
		}
	}},
	{"what has not ended (6.6/78)", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, _ operatorPhase, id uuid.UUID, _ oapi.Claim) {
			answer := x.refused(fault.CodeExecutionNotTerminal, func() *apitest.Response { return x.operator(id, "replay", "") }, id)
			if answer.Str("public_state") != string(x.get(id).PublicState) {
				x.t.Errorf("%s", answer.Body)
			}
		})
	}},
	{"many at once: one does it", func(x *executionTest) {
		e, _ := x.ended("completed", "")
		done := 0
		for _, answer := range atOnce(5, func(int) *apitest.Response { return x.operator(e.ID, "replay", "") }) {
			if answer.Status == http.StatusOK {
				done++
			} else {
				answer.Problem(fault.CodeExecutionNotTerminal)
			}
		}
		if done != 1 || x.get(e.ID).ReplayCount != 1 {
			x.t.Errorf("done %d times", done)
		}
	}},
	{"who waits for work is woken by it", func(x *executionTest) {
		e, _ := x.ended("failed", "")
		w := x.wait(lasting)
		x.settled()
		x.operator(e.ID, "replay", "").Want(http.StatusOK)
		if got := w.got(); got.Kind != "replay" {
			x.t.Errorf("a %s claim", got.Kind)
		}
	}},
	{"the policy's deadline counts anew", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"execution_deadline_ms":600000}}`)
		x.advance(10 * time.Minute)
		x.stands(e.ID, atExpiredIdle)
		x.advance(time.Hour)
		before := x.server.Clock.Now()
		got := x.operated(e.ID, "replay", "")
		if at := got.DeadlineAt; at == nil || at.Time().Before(before.Add(10*time.Minute-time.Second)) || at.Time().After(x.server.Clock.Now().Add(10*time.Minute)) {
			x.t.Errorf("deadline %s", at)
		}
		x.claim(lasting)
		x.advance(9 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(time.Minute)
		x.stands(e.ID, atExpired)
		early := x.create(`"policy":{"timeout_policy":{"execution_deadline_ms":600000}}`) // one that has not passed is counted anew, too
		x.advance(5 * time.Minute)
		x.operated(early.ID, "operator-cancel", `"reason":"no"`)
		x.operated(early.ID, "replay", "")
		x.advance(6 * time.Minute)
		x.stands(early.ID, atReplay)
	}},
	{"a deadline that has passed is dropped, one to come is kept", func(x *executionTest) {
		e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(10*time.Minute)))
		x.advance(10 * time.Minute)
		x.stands(e.ID, atExpiredIdle)
		if got := x.operated(e.ID, "replay", ""); got.DeadlineAt != nil {
			x.t.Errorf("deadline %s", got.DeadlineAt)
		}
		x.advance(time.Hour)
		x.stands(e.ID, atReplay)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)

		e = x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(10*time.Minute)))
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		if got := x.operated(e.ID, "replay", ""); got.DeadlineAt == nil || !got.DeadlineAt.Equal(*e.DeadlineAt) {
			x.t.Errorf("deadline %s, not %s", got.DeadlineAt, e.DeadlineAt)
		}
		x.advance(10 * time.Minute)
		if got := x.get(e.ID); got.PublicState != "expired" {
			x.t.Errorf("it is %s", got.PublicState)
		}
	}},
	{"its tags, and the time of its creation, place it where it was", func(x *executionTest) {
		first := x.create("")
		x.report(x.claim(""), "complete", "").Want(http.StatusOK)
		second := x.create("")
		x.operated(first.ID, "replay", "")
		if c := x.claim(""); c.Execution.ID != first.ID {
			x.t.Errorf("got %s and not the older one", c.Execution.ID)
		}
		if c := x.claim(""); c.Execution.ID != second.ID {
			x.t.Error("which one is this?")
		}
	}},
}

// memberCase is about a member of a flow, and the lane that it is on.
type memberCase struct {
	name string
	run  func(x *flowTest, w *executionTest)
}

// TestOperators_ReplayMember: a replay of a member of a flow. model.md "Replay".
func TestOperators_ReplayMember(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for i, c := range operatorsReplayMemberCases {
			t.Run(c.name, func(t *testing.T) {
				x := flowsOn(t, s, "members")
				c.run(x, x.workers("lane-"+string(rune('a'+i))))
			})
		}
	})
}

var operatorsReplayMemberCases = []memberCase{
	{"a finished flow runs again, and is told so", func(x *flowTest, w *executionTest) {
		f, e := x.endedMember(w, "complete")
		ended := x.do(f.ID, "finish", "")
		n := len(w.events(e.ID))
		w.operated(e.ID, "replay", "")
		got := x.stands(f.ID, "running", ended.Revision+1)
		if got.EndedAt != nil {
			x.t.Errorf("%+v", got)
		}
		told := w.toldSince(e.ID, n, "operator.replayed", "execution.eligible")
		last, data := x.last(f.ID)
		if diff := cmp.Diff(map[string]any{"execution_ids": []any{e.ID.String()}, "members": 1.0}, data); diff != "" || last.Type != "flow.replayed" {
			x.t.Errorf("%s (-want +got):\n%s", last.Type, diff)
		}
		if last.Cause == nil || *last.Cause != told[0].ID || told[0].Cause != nil || last.ID < told[0].ID { // the operator's act is the first, and causes the rest
			x.t.Errorf("flow.replayed is event %d, caused by %v; operator.replayed %d, caused by %v", last.ID, last.Cause, told[0].ID, told[0].Cause)
		}
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		x.do(f.ID, "finish", "")
	}},
	{"a failed flow runs again, and its failure is gone", func(x *flowTest, w *executionTest) {
		f, e := x.endedMember(w, "fail")
		ended := x.do(f.ID, "fail", `{"reason":"gave up"}`)
		w.operated(e.ID, "replay", "")
		if got := x.stands(f.ID, "running", ended.Revision+1); got.Failure != nil || got.EndedAt != nil {
			x.t.Errorf("%+v", got)
		}
	}},
	{"a second member finds it running: its revision stays", func(x *flowTest, w *executionTest) {
		f, e := x.endedMember(w, "complete")
		other := w.create(of(f.ID))
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		x.do(f.ID, "finish", "")
		w.operated(e.ID, "replay", "")
		running := x.flow(f.ID)
		w.operated(other.ID, "replay", "")
		x.stands(f.ID, "running", running.Revision)
	}},
	{"a running and a waiting flow stay as they are", func(x *flowTest, w *executionTest) {
		f, e := x.endedMember(w, "fail")
		w.operated(e.ID, "replay", "")
		x.stands(f.ID, "running", f.Revision)
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		parked := x.park(f.ID, manual)
		w.operated(e.ID, "replay", "")
		x.stands(f.ID, "waiting", parked.Revision)
	}},
	{"a member of a cancelled flow stays ended", func(x *flowTest, w *executionTest) {
		f, e := x.endedMember(w, "complete")
		x.do(f.ID, "cancel", "")
		w.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return w.operator(e.ID, "replay", "") }, e.ID)
		x.stands(f.ID, "cancelled", f.Revision+1)
	}},
	{"a member that is to be cancelled, whose flow is cancelled, ends at once, and as it was asked to", func(x *flowTest, w *executionTest) {
		f := x.running("")
		e := w.create(of(f.ID))
		c := w.claim(lasting)
		w.operated(e.ID, "operator-cancel", `"reason":"first","grace_ms":600000`)
		x.do(f.ID, "cancel", `{"reason":"second"}`)
		if got := w.stands(e.ID, atCancelled); got.Cancellation.Reason != "first" {
			x.t.Errorf("%+v", got.Cancellation)
		}
		w.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return w.report(c, "complete", "") }, e.ID)
	}},
	{"a member of a flow that has not started waits for its start", func(x *flowTest, w *executionTest) {
		f := x.create("")
		e := w.create(of(f.ID))
		w.operated(e.ID, "operator-cancel", `"reason":"no"`)
		n := len(w.events(e.ID))
		w.operated(e.ID, "replay", "")
		w.stands(e.ID, atReplayPaused)
		w.toldSince(e.ID, n, "operator.replayed", "execution.blocked")
		x.stands(f.ID, "created", 0)
		w.none("")
		x.do(f.ID, "start", "")
		w.stands(e.ID, atReplay)
		if c := w.claim(""); c.Kind != "replay" {
			x.t.Errorf("a %s claim", c.Kind)
		}
	}},
}

// endedMember makes a running flow with a member that has ended, in one of two ways.
func (x *flowTest) endedMember(w *executionTest, ends string) (oapi.Flow, oapi.Execution) {
	x.t.Helper()
	f := x.running("")
	e := w.create(of(f.ID))
	w.report(w.claim(""), ends, map[string]string{"fail": `"reason":"boom"`}[ends]).Want(http.StatusOK)
	return x.flow(f.ID), e
}
