package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

const atEscalated = "suspended unowned not_applicable paused_by_operator none attempt_interrupted suspended"

// TestSuspensionTimeout: what becomes of an execution when the time of its suspension is over. executions.md 2.18; 6.7/98.
func TestSuspensionTimeout(t *testing.T) {
	t.Parallel()
	cases := slices.Clone(suspensionTimeoutCases)
	for _, e := range suspensionEndings {
		cases = append(cases, executionCase{e.behavior + ": it ends, and its waitpoints are closed (6.7/98)", func(x *executionTest) {
			id, _, points := x.suspends("", waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")+afterAMinute+`,"timeout_behavior":"`+e.behavior+`"`)
			x.signalled(id.ID, points[0], "")
			n := len(x.events(id.ID))
			x.advance(time.Minute - time.Millisecond)
			x.stands(id.ID, atSuspended)
			x.advance(time.Millisecond)
			x.timedOut(e, id.ID, points, n)
			x.advance(time.Hour)
			x.advance(0)
			x.toldSince(id.ID, n, e.event)
			x.operated(id.ID, "replay", "")
			if c := x.claim(lasting); c.Kind != "replay" || c.Fence.AttemptIndex != 1 {
				x.t.Errorf("%+v", c)
			}
		}})
	}
	for _, behavior := range []string{"auto_resume", "auto_resume_with_timeout_signal"} {
		cases = append(cases, executionCase{behavior + ": it goes on, in the same attempt (6.7/98)", func(x *executionTest) {
			e, c, points := x.suspends("", waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")+afterAMinute+`,"resume_policy":{"resume_delay_ms":3600000},"timeout_behavior":"`+behavior+`"`)
			x.signalled(e.ID, points[0], "")
			n := len(x.events(e.ID))
			x.advance(time.Minute)
			x.stands(e.ID, atReleased)
			x.toldSince(e.ID, n, "execution.resumed")
			x.resumedBy(e.ID, n, "timeout", "waiting")
			x.suspensionClosed(e.ID, "timed_out_auto_resume")
			for _, w := range points {
				x.closedAs(e.ID, w, "timed_out_auto_resume")
				x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
			}
			x.nothingWaits(e.ID)
			x.observes(e.ID, []string{"go"}, []string{"go"})
			if again := x.claim(lasting); again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID {
				x.t.Errorf("%+v", again)
			}
			x.toldSince(e.ID, n, "execution.resumed", "lease.acquired")
		}})
	}
	runExecutionCases(t, cases)
}

// suspensionEndings are the ends that a timeout can be.
var suspensionEndings = []suspensionEnding{
	{"fail", atFailed, "execution.failed", "ended_failure", "timeout"}, {"cancel", atCancelled, "execution.cancelled", "ended_cancelled", "timeout"},
	{"expire", atExpired, "execution.expired", "ended_failure", "timeout"},
}

type suspensionEnding struct{ behavior, at, event, attempt, category string }

const afterAMinute = `,"timeout_ms":60000`

var suspensionTimeoutCases = []executionCase{
	{"fail is what happens unless more is said (6.7/98)", func(x *executionTest) {
		e, _, points := x.suspends(retryPolicy(3), waitForGo+afterAMinute) // a timeout is not retried
		n := len(x.events(e.ID))
		x.advance(time.Minute)
		x.timedOut(suspensionEndings[0], e.ID, points, n)
	}},
	{"the policy says what happens, and after how long (1.6)", func(x *executionTest) {
		e, _, points := x.suspends(`"policy":{"suspension_policy":{"default_timeout_ms":60000,"timeout_behavior":"expire"}}`, waitForGo)
		n := len(x.events(e.ID))
		if e.Suspension.TimeoutBehavior != "expire" || e.Suspension.TimeoutAt.Time().Sub(e.Suspension.Since.Time()) != time.Minute {
			x.t.Errorf("%+v", e.Suspension)
		}
		x.advance(time.Minute)
		x.timedOut(suspensionEndings[2], e.ID, points, n)
	}},
	{"what is asked for wins over the policy", func(x *executionTest) {
		e, _, _ := x.suspends(`"policy":{"suspension_policy":{"default_timeout_ms":60000,"timeout_behavior":"expire"}}`, waitForGo+`,"timeout_ms":120000,"timeout_behavior":"cancel"`)
		x.advance(time.Minute)
		x.stands(e.ID, atSuspended)
		x.advance(time.Minute)
		x.stands(e.ID, atCancelled)
		e, _, _ = x.suspends(`"policy":{"suspension_policy":{"default_timeout_ms":0,"timeout_behavior":"expire"}}`, waitForGo)
		if e.Suspension.TimeoutAt != nil {
			x.t.Errorf("%+v", e.Suspension)
		}
	}},
	{"the policy's timeout is one for which alone one can wait", func(x *executionTest) {
		e, _, _ := x.suspends(`"policy":{"suspension_policy":{"default_timeout_ms":60000,"timeout_behavior":"auto_resume"}}`, waitOn(timeoutOnly, "a"))
		x.advance(time.Minute)
		x.stands(e.ID, atReleased)
	}},
	{"without a timeout nothing ends it (2.18)", func(x *executionTest) {
		e, _, _ := x.suspends("", waitForGo)
		x.advance(400 * 24 * time.Hour)
		x.stands(e.ID, atSuspended)
	}},
	{"escalate: it waits for an operator, and signals still work (2.18)", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")+afterAMinute+`,"timeout_behavior":"escalate"`)
		x.effects(e.ID, points, [2]string{"a ", appended})
		n := len(x.events(e.ID))
		if x.inInbox(e.ID) != nil {
			x.t.Error("a person is asked before its time is over")
		}
		x.advance(time.Minute)
		got := x.stands(e.ID, atEscalated)
		if s := got.Suspension; s.ReasonCode != "waiting_for_operator_review" || s.TimeoutAt != nil || s.ClosedAt != nil || !strings.HasPrefix(got.BlockingDetail, "suspension escalated: timeout at") {
			x.t.Errorf("%+v %q", s, got.BlockingDetail)
		}
		events := x.toldSince(e.ID, n, "execution.suspended")
		if data := eventData(x.t, events[0]); data["escalated"] != true || data["blocking_reason"] != "paused_by_operator" || data["reason_code"] != "waiting_for_operator_review" || data["timeout_at"] != nil {
			x.t.Errorf("%s", events[0].Data)
		}
		for _, w := range x.waitpoints(e.ID) {
			if w.State != "active" || w.ExpiresAt != nil {
				x.t.Errorf("%+v", w)
			}
		}
		if item := x.inInbox(e.ID); item == nil || *item.Reason != "waiting_for_operator_review" || item.DeadlineAt != nil || len(item.Waitpoints) != 2 {
			x.t.Errorf("%+v", item)
		}
		x.advance(time.Hour) // once
		x.toldSince(e.ID, n, "execution.suspended")
		x.effects(e.ID, points, [2]string{"b ", resumes}) // what had come counts
		x.stands(e.ID, atReleased)
		x.suspensionClosed(e.ID, "resumed")
	}},
	{"escalate, and then an operator resumes, approves or cancels it", func(x *executionTest) {
		for _, act := range []struct {
			at string
			do func(e oapi.Execution, w oapi.MintedWaitpoint)
		}{
			{atReleased, func(e oapi.Execution, _ oapi.MintedWaitpoint) { x.operated(e.ID, "resume", "") }},
			{atReleased, func(e oapi.Execution, w oapi.MintedWaitpoint) { x.decide(e.ID, w.WaitpointID, "").Want(http.StatusOK) }},
			{atCancelled, func(e oapi.Execution, _ oapi.MintedWaitpoint) { x.operated(e.ID, "operator-cancel", `"reason":"no"`) }},
		} {
			e, _, points := x.suspends("", waitForGo+afterAMinute+`,"timeout_behavior":"escalate"`)
			x.advance(time.Minute)
			x.stands(e.ID, atEscalated)
			act.do(e, points[0])
			x.stands(e.ID, act.at)
			x.nothingWaits(e.ID)
			if x.inInbox(e.ID) != nil {
				x.t.Error("it is in the inbox still")
			}
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"a signal that comes before anybody has looked is in time", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo+afterAMinute)
		x.server.Clock.Advance(2 * time.Minute)
		if got := x.signalled(e.ID, points[0], ""); got != resumes {
			x.t.Errorf("%s", got)
		}
		x.advance(0)
		x.stands(e.ID, atReleased)
	}},
	{"a timeout that has passed some minutes ago is over at once (2.15)", func(x *executionTest) {
		e, _, _ := x.suspends("", waitForGo+`,"timeout_behavior":"auto_resume","timeout_at":`+spelled(x.server.Clock.Now().Add(-9*time.Minute)))
		x.advance(0)
		x.stands(e.ID, atReleased)
	}},
	{"the attempt's time stands still meanwhile, and goes on with what was left (2.15)", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":600000}}`)
		c := x.claim(lasting)
		x.advance(4 * time.Minute)
		s := x.suspend(c, waitForGo)
		x.advance(2 * time.Hour)
		x.stands(e.ID, atSuspended)
		x.signalled(e.ID, s.Waitpoints[0], "")
		x.advance(time.Hour)
		x.claim(lasting)
		x.advance(6*time.Minute - time.Second)
		x.stands(e.ID, atActive)
		x.advance(time.Second)
		x.stands(e.ID, atExpired)
	}},
	{"the execution's deadline does not, and closes everything (2.15, 7.2/25)", func(x *executionTest) {
		e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(time.Hour)))
		s := x.suspend(x.claim(lasting), waitForGo+`,"timeout_ms":86400000,"timeout_behavior":"escalate"`)
		n := len(x.events(e.ID))
		x.advance(time.Hour)
		x.stands(e.ID, atExpired)
		x.toldSince(e.ID, n, "execution.expired")
		x.suspensionClosed(e.ID, "expired:execution_deadline")
		x.closedAs(e.ID, s.Waitpoints[0], "expired:execution_deadline")
		x.nothingWaits(e.ID)
		x.advance(48 * time.Hour)
		x.toldSince(e.ID, n, "execution.expired")
	}},
	{"the deadline comes first when both have passed", func(x *executionTest) {
		e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(time.Minute)))
		x.suspend(x.claim(lasting), waitForGo+`,"timeout_ms":120000,"timeout_behavior":"auto_resume"`)
		n := len(x.events(e.ID))
		x.advance(time.Hour)
		x.stands(e.ID, atExpired)
		x.toldSince(e.ID, n, "execution.expired")
	}},
	{"a second suspension has its own timeout", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo+afterAMinute)
		x.signalled(e.ID, points[0], "")
		c := x.claim(lasting)
		x.suspend(c, waitForGo+`,"timeout_ms":600000`)
		x.advance(5 * time.Minute)
		x.stands(e.ID, atSuspended)
		x.advance(5 * time.Minute)
		x.stands(e.ID, atFailed)
	}},
}

// timedOut checks that the time of a suspension was over, and how it ended.
func (x *executionTest) timedOut(e suspensionEnding, id uuid.UUID, points []oapi.MintedWaitpoint, n int) {
	x.t.Helper()
	got := x.stands(id, e.at)
	reason := "suspension_timeout:" + e.behavior
	if got.Failure == nil || got.Failure.Reason != reason || got.CompletedAt == nil || (got.Cancellation != nil) != (e.behavior == "cancel") {
		x.t.Errorf("%+v %+v", got.Failure, got.Cancellation)
	}
	if c := got.Cancellation; c != nil && (c.Reason != reason || c.Actor != "engine") {
		x.t.Errorf("%+v", c)
	}
	if a := x.attempts(id); len(a) != 1 || string(a[0].State) != e.attempt || a[0].EndedAt == nil {
		x.t.Errorf("%+v", a)
	}
	events := x.toldSince(id, n, e.event)
	if data := eventData(x.t, events[0]); data["reason"] != reason || events[0].Actor != "engine" {
		x.t.Errorf("%s %s", events[0].Actor, events[0].Data)
	}
	x.suspensionClosed(id, "timed_out_"+e.behavior)
	x.nothingWaits(id)
	for _, w := range points {
		x.closedAs(id, w, "timed_out_"+e.behavior)
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(id, w, "") }, id)
	}
	if list := x.waitpoints(id); len(list) != 0 {
		x.t.Errorf("%+v", list)
	}
}

// inInbox returns what the inbox has of an execution, nil for nothing.
func (x *executionTest) inInbox(id uuid.UUID) *oapi.InboxItem {
	x.t.Helper()
	items := answerAs[oapi.InboxList](x.Get("/v1/inbox?limit=500").Want(http.StatusOK)).Items
	i := slices.IndexFunc(items, func(item oapi.InboxItem) bool { return item.ExecutionID != nil && *item.ExecutionID == id })
	if i < 0 {
		return nil
	}
	return &items[i]
}

// TestSuspensionEnds: whatever ends a suspension closes it and its waitpoints, and what comes later changes nothing.
// executions.md 5/22, 25; 6.7/96.
func TestSuspensionEnds(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, suspensionEndsCases)
}

var waitForBoth = waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")

var suspensionEndsCases = []executionCase{
	{"cancelled by an operator, with and without a grace: at once (6.7/96)", func(x *executionTest) {
		for _, grace := range []string{"", `,"grace_ms":60000`} {
			e, c, points := x.suspends("", waitForBoth)
			x.signalled(e.ID, points[0], `"idempotency_key":"k"`)
			n := len(x.events(e.ID))
			x.operated(e.ID, "operator-cancel", `"reason":"no"`+grace)
			x.stands(e.ID, atCancelled)
			x.toldSince(e.ID, n, "operator.cancelled", "execution.cancelled")
			x.suspensionClosed(e.ID, "cancelled")
			x.nothingWaits(e.ID)
			for _, w := range points {
				x.closedAs(e.ID, w, "cancelled")
				x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
				x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.decide(e.ID, w.WaitpointID, "") }, e.ID)
			}
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "suspend", waitForBoth) }, e.ID)
			x.advance(48 * time.Hour)
			x.toldSince(e.ID, n, "operator.cancelled", "execution.cancelled")
		}
	}},
	{"resumed by an operator (2.11)", func(x *executionTest) {
		e, _, points := x.suspends("", waitForBoth+`,"timeout_ms":60000`)
		x.signalled(e.ID, points[0], "")
		n := len(x.events(e.ID))
		x.operated(e.ID, "resume", `"resume_delay_ms":3600000`)
		x.stands(e.ID, atResumeDelay)
		x.toldSince(e.ID, n, "operator.resumed", "execution.resumed")
		x.resumedBy(e.ID, n, "operator", "delayed")
		x.suspensionClosed(e.ID, "resumed")
		x.nothingWaits(e.ID)
		for _, w := range points {
			x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		}
		x.advance(30 * time.Minute) // its timeout is disarmed
		x.stands(e.ID, atResumeDelay)
		x.observes(e.ID, []string{"go"}, []string{"go"})
	}},
	{"late signals to what has gone on since (5/25)", func(x *executionTest) {
		e, _, points := x.suspends(retryPolicy(1), waitForGo)
		w := points[0]
		x.signalled(e.ID, w, "")
		late := func(code fault.Code) {
			x.t.Helper()
			x.refused(code, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
			x.refused(code, func() *apitest.Response { return x.decide(e.ID, w.WaitpointID, "") }, e.ID)
		}
		late(fault.CodeWaitpointClosed)
		c := x.claim(lasting)
		late(fault.CodeWaitpointClosed)
		s := x.suspend(c, waitForGo)
		late(fault.CodeWaitpointClosed)
		x.stands(e.ID, atSuspended)
		x.signalled(e.ID, s.Waitpoints[0], "")
		c = x.claim(lasting)
		x.report(c, "fail", `"reason":"x","retry_after_ms":0`).Want(http.StatusOK)
		late(fault.CodeWaitpointClosed)
		x.advance(0)
		c = x.claim(lasting)
		late(fault.CodeWaitpointClosed)
		x.report(c, "complete", "").Want(http.StatusOK)
		late(fault.CodeTargetNotSignalable)
		x.operated(e.ID, "replay", "")
		late(fault.CodeWaitpointClosed)
	}},
	{"two suspensions that wait for the same time end at it, each by itself", func(x *executionTest) {
		one, _, _ := x.suspends("", waitForGo+`,"timeout_ms":60000`)
		two, _, _ := x.suspends("", waitForGo+`,"timeout_ms":60000,"timeout_behavior":"auto_resume"`)
		x.advance(time.Minute)
		x.stands(one.ID, atFailed)
		x.stands(two.ID, atReleased)
	}},
	{"the members of a flow that fails (model.md, flow)", func(x *executionTest) {
		f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		e, _, points := x.suspends(`"flow_id":"`+f+`"`, waitForBoth)
		n := len(x.events(e.ID))
		x.Post("/v1/flows/"+f+"/fail", `{"reason":"no"}`).Want(http.StatusOK)
		x.stands(e.ID, atCancelled)
		x.toldSince(e.ID, n, "execution.cancelled")
		x.closedAs(e.ID, points[0], "cancelled")
		x.nothingWaits(e.ID)
	}},
	{"many, by one job", func(x *executionTest) {
		e, _, points := x.suspends("", waitForBoth)
		x.bulked(fmt.Sprintf(`"action":"cancel","filter":{"lane":%q}`, x.lane))
		x.stands(e.ID, atCancelled)
		x.closedAs(e.ID, points[1], "cancelled")
		x.nothingWaits(e.ID)
	}},
	{"why it does not run: it is suspended (explain)", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo+`,"timeout_ms":3600000,"timeout_behavior":"auto_resume"`)
		got, gates := x.explain(e.ID, "")
		s, g := e.Suspension, gates["phase"]
		want := map[string]any{"lifecycle_phase": "suspended", "ownership_state": "unowned", "blocking_reason": "waiting_for_signal", "suspension_id": s.SuspensionID.String(), "reason_code": "waiting_for_signal",
			"waitpoints": []any{"go"}, "timeout_at": s.TimeoutAt.String(), "timeout_behavior": "auto_resume"}
		if diff := cmp.Diff(want, fromDocument[map[string]any](x.t, string(g.Evidence))); diff != "" || !slices.Equal(unmet(got), []string{"phase"}) || !g.Since.Equal(s.Since) || !g.NextAt.Equal(*s.TimeoutAt) {
			x.t.Errorf("%+v (-want +got):\n%s", g, diff)
		}
		if strings.Contains(got.Summary+g.Hint, points[0].Token) {
			x.t.Errorf("%s", got.Summary)
		}
		x.signalled(e.ID, points[0], `"resume_delay_ms":60000`)
		got, gates = x.explain(e.ID, "")
		if g := gates["time"]; got.Claimable || !slices.Equal(unmet(got), []string{"time"}) || g.NextAt == nil || !g.NextAt.Equal(*x.get(e.ID).DelayUntil) {
			x.t.Errorf("%+v %+v", got, g)
		}
		x.advance(time.Minute)
		if got, _ = x.explain(e.ID, ""); !got.Claimable {
			x.t.Errorf("%+v", got)
		}
	}},
	{"a claim that waits is woken by the signal", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo)
		w := x.wait(lasting)
		x.settled()
		x.signalled(e.ID, points[0], "")
		if got := w.got(); got.Execution.ID != e.ID || got.Kind != "resumed" {
			x.t.Errorf("%+v", got)
		}
	}},
}
