package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_GiveBack: delay, wait-children, and cancel by the holder. executions.md 2.10 and 6.4/59.
func TestExecutions_GiveBack(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsGiveBackCases)
}

var executionsGiveBackCases = []executionCase{
	{"delay: the same attempt, later (6.4/59)", func(x *executionTest) {
		for _, named := range []string{"delay_ms", "delay_until"} {
			e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(10*time.Hour)))
			c := x.claim(lasting)
			n := len(x.events(e.ID))
			until := x.server.Clock.Now().Add(time.Hour)
			members := `"delay_ms":3600000`
			if named == "delay_until" {
				members = `"delay_until":` + spelled(until)
			}
			got := answerAs[oapi.Report](x.report(c, "delay", members).Want(http.StatusOK))
			put := x.stands(e.ID, atPutOff)
			if diff := cmp.Diff(oapi.Report{Execution: put, Directives: oapi.Directives{}}, got); diff != "" {
				x.t.Errorf("answered and read differ:\n%s", diff)
			}
			if off := put.DelayUntil.Time().Sub(until); off < -time.Second || off > time.Second || named == "delay_until" && off.Abs() >= time.Millisecond {
				x.t.Errorf("%s: %s too late", named, off)
			}
			if put.CurrentLease != nil || !put.DeadlineAt.Equal(*e.DeadlineAt) || !strings.HasPrefix(put.BlockingDetail, "delayed until") || put.TotalAttemptCount != 1 {
				x.t.Errorf("%+v", put)
			}
			if attempts := x.attempts(e.ID); len(attempts) != 1 || attempts[0].State != "suspended" || attempts[0].EndedAt != nil {
				x.t.Errorf("%+v", attempts)
			}
			x.toldSince(e.ID, n, "lease.revoked", "execution.delayed")
			x.leaseEnds(e.ID, n, "lease.revoked", "delayed")
			x.advance(59 * time.Minute)
			x.none("")
			x.advance(time.Minute)
			if back := x.stands(e.ID, atReleased); back.DelayUntil != nil || back.BlockingDetail != "" {
				x.t.Errorf("%+v", back)
			}
			again := x.claim(`"worker_id":"w2",` + lasting)
			if again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.AttemptIndex != 0 || again.Fence.LeaseEpoch != 2 {
				x.t.Errorf("a %s claim: %+v after %+v", again.Kind, again.Fence, c.Fence)
			}
			x.report(again, "complete", "").Want(http.StatusOK)
		}
	}},
	{"delay: until a time that has passed, it goes on at once (2.10)", func(x *executionTest) {
		for _, members := range []string{`"delay_ms":0`, `"delay_until":"2001-01-01T00:00:00Z"`, `"delay_until":` + spelled(x.server.Clock.Now())} {
			e := x.create("")
			c := x.claim(lasting)
			n := len(x.events(e.ID))
			x.report(c, "delay", members).Want(http.StatusOK)
			if back := x.stands(e.ID, atReleased); back.DelayUntil != nil {
				x.t.Errorf("%s", back.DelayUntil)
			}
			x.toldSince(e.ID, n, "lease.revoked", "execution.eligible")
			x.leaseEnds(e.ID, n, "lease.revoked", "delayed")
			if again := x.claim(lasting); again.Kind != "resumed" || again.Execution.ID != e.ID {
				x.t.Errorf("a %s claim", again.Kind)
			}
		}
	}},
	{"times in events are spelled as everywhere", func(x *executionTest) {
		e := x.create("")
		x.report(x.claim(lasting), "delay", `"delay_until":"2099-01-01T00:00:00Z"`).Want(http.StatusOK)
		for _, event := range x.events(e.ID) {
			if event.Type == "execution.delayed" && eventData(x.t, event)["delay_until"] != "2099-01-01T00:00:00.000Z" {
				x.t.Errorf("%s", event.Data)
			}
		}
	}},
	{"delay: one time, no more and no less", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		for members, pointer := range map[string]string{
			``: "/delay_ms", `"delay_ms":1,"delay_until":"2099-01-01T00:00:00Z"`: "/delay_ms", `"delay_ms":-1`: "/delay_ms", `"delay_ms":31536000001`: "/delay_ms",
			`"delay_until":"tomorrow"`: "/delay_until", `"delay_until":null`: "/delay_until", `"delay_ms":null`: "/delay_ms",
		} {
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.report(c, "delay", members) }, e.ID)
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != pointer {
				x.t.Errorf("%s: %+v", members, fields)
			}
		}
		x.report(c, "delay", `"delay_ms":31536000000`).Want(http.StatusOK)
	}},
	{"delay: the time of the attempt stands still meanwhile", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":600000}}`)
		c := x.claim(lasting)
		x.advance(4 * time.Minute)
		x.report(c, "delay", `"delay_ms":3600000`).Want(http.StatusOK)
		x.advance(2 * time.Hour)
		x.claim(lasting)
		x.advance(5 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(61 * time.Second)
		x.stands(e.ID, atExpired)
	}},
	{"delay: a deadline comes before it", func(x *executionTest) {
		e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(time.Minute)))
		x.report(x.claim(lasting), "delay", `"delay_ms":3600000`).Want(http.StatusOK)
		x.advance(time.Minute)
		x.stands(e.ID, atExpired)
	}},
	{"wait-children: until somebody resumes it (6.4/59)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		n := len(x.events(e.ID))
		got := answerAs[oapi.Report](x.report(c, "wait-children", "").Want(http.StatusOK))
		waits := x.stands(e.ID, atChildren)
		if diff := cmp.Diff(oapi.Report{Execution: waits, Directives: oapi.Directives{}}, got); diff != "" {
			x.t.Errorf("answered and read differ:\n%s", diff)
		}
		if attempts := x.attempts(e.ID); waits.CurrentLease != nil || waits.BlockingDetail != "waiting for child executions to complete" || len(attempts) != 1 || attempts[0].State != "suspended" {
			x.t.Errorf("%+v, %+v", waits, attempts)
		}
		x.toldSince(e.ID, n, "lease.revoked", "execution.blocked")
		x.leaseEnds(e.ID, n, "lease.revoked", "waiting_children")
		x.advance(48 * time.Hour)
		x.none("")
		x.operated(e.ID, "resume", "")
		if again := x.claim(""); again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.LeaseEpoch != 2 {
			x.t.Errorf("%+v", again)
		}
	}},
	{"cancel by the holder (2.10)", func(x *executionTest) {
		by, actor := x.as("worker", "w-"+x.lane)
		for _, members := range []string{`"reason":"superseded"`, ``} {
			e := x.create("")
			c := by.claim(lasting)
			n := len(x.events(e.ID))
			got := answerAs[oapi.Report](by.report(c, "cancel", members).Want(http.StatusOK))
			done := x.stands(e.ID, atCancelled)
			if diff := cmp.Diff(oapi.Report{Execution: done, Directives: oapi.Directives{}}, got); diff != "" {
				x.t.Errorf("answered and read differ:\n%s", diff)
			}
			reason := map[bool]string{true: "superseded"}[members != ""]
			if diff := cmp.Diff(&oapi.ExecutionCancellation{Reason: reason, Actor: actor, RequestedAt: *done.CompletedAt}, done.Cancellation); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if attempts := x.attempts(e.ID); attempts[0].State != "ended_cancelled" || !attempts[0].EndedAt.Equal(*done.CompletedAt) {
				x.t.Errorf("%+v", attempts)
			}
			x.toldSince(e.ID, n, "execution.cancelled", "lease.revoked")
			x.leaseEnds(e.ID, n, "lease.revoked", "cancelled")
			answer := x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
			if answer.Int("lease_epoch") != c.Fence.LeaseEpoch { // unlike an operator's, it is in the holder's own epoch
				x.t.Errorf("%s", answer.Body)
			}
		}
	}},
	{"each end is answered again by the same call, and no other (2.12; 6.4/49, 50)", func(x *executionTest) {
		for _, end := range []struct{ op, members, other string }{
			{"delay", `"delay_ms":60000`, `"delay_ms":1`}, {"delay", `"delay_ms":0`, `"delay_until":"2099-01-01T00:00:00Z"`},
			{"wait-children", "", ""}, {"cancel", `"reason":"mine"`, `"reason":"other"`},
		} {
			e := x.create("")
			c := x.claim(lasting)
			first := x.report(c, end.op, end.members).Want(http.StatusOK)
			for _, again := range []func() *apitest.Response{
				func() *apitest.Response { return x.report(c, end.op, end.members) },
				func() *apitest.Response { return x.report(c, end.op, end.other) },
				func() *apitest.Response { return x.by(e.ID, end.op, executionMembers(fenced(c), end.members)) },
			} {
				answer := x.unchanged(http.StatusOK, again, e.ID)
				want := answerAs[oapi.Report](first)
				want.Replayed = true
				if diff := cmp.Diff(want, answerAs[oapi.Report](answer)); diff != "" {
					x.t.Errorf("%s (-want +got):\n%s", end.op, diff)
				}
			}
			for _, call := range workerCalls {
				if call.op != end.op {
					x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
				}
			}
			wrong := fenced(c, func(fence map[string]any) { fence["lease_epoch"] = c.Fence.LeaseEpoch + 1 })
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.by(e.ID, end.op, executionMembers(wrong, end.members)) }, e.ID)
			if x.get(e.ID).PublicState == "waiting" {
				x.claim(lasting)
				x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.report(c, end.op, end.members) }, e.ID)
			}
		}
	}},
	{"many at once: it is done once", func(x *executionTest) {
		for op, members := range map[string]string{"delay": `"delay_ms":60000`, "wait-children": "", "cancel": ""} {
			e := x.create("")
			c := x.claim(lasting)
			n, done := len(x.events(e.ID)), 0
			for _, answer := range atOnce(5, func(int) *apitest.Response { return x.report(c, op, members) }) {
				if answer.Want(http.StatusOK).Get("replayed") == false {
					done++
				}
			}
			if done != 1 || len(x.since(e.ID, n)) != 2 {
				x.t.Errorf("%s was done %d times", op, done)
			}
		}
	}},
}

// TestExecutions_Override: an operator reports in place of the holder. executions.md 1.8 and 6.4/47, 54; 7.1/19.
func TestExecutions_Override(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsOverrideCases)
}

// overriddenReports are the reports that an operator may make in place of the holder.
var overriddenReports = []struct{ op, members, operation, at string }{
	{"complete", `"result":{"n":1}`, "complete", atCompleted}, {"fail", `"reason":"stuck"`, "fail", atFailed},
	{"delay", `"delay_ms":60000`, "delay", atPutOff}, {"wait-children", "", "wait_children", atChildren},
}

const overriding = `"override":true`

var executionsOverrideCases = []executionCase{
	{"without handle or fence (6.4/47, 54)", func(x *executionTest) {
		by, actor := x.as("operator", "op-"+x.lane)
		for _, o := range overriddenReports {
			e := x.create("")
			c := x.claim(lasting)
			n := len(x.events(e.ID))
			got := by.by(e.ID, o.op, executionMembers(o.members, overriding)).Want(http.StatusOK)
			now := x.stands(e.ID, o.at)
			if diff := cmp.Diff(now, answerAs[oapi.Operated](got).Execution); diff != "" || got.Get("replayed") != false || now.CurrentLease != nil {
				x.t.Errorf("answered and read differ:\n%s", diff)
			}
			events := x.since(e.ID, n)
			if events[0].Type != "operator.reported" || eventData(x.t, events[0])["operation"] != o.operation {
				x.t.Errorf("%s %s", events[0].Type, events[0].Data)
			}
			for i, event := range events {
				if event.Actor != actor || i > 0 && (event.Cause == nil || *event.Cause != events[0].ID) {
					x.t.Errorf("%s by %s because of %v", event.Type, event.Actor, event.Cause)
				}
			}
			for _, call := range workerCalls { // the holder has not done it: it is no replay
				x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
			}
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return by.by(e.ID, o.op, executionMembers(o.members, overriding)) }, e.ID)
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"a failure is retried by the policy as ever", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		x.claim(lasting)
		if answer := x.by(e.ID, "fail", `"reason":"stuck",`+overriding).Want(http.StatusOK); answer.Str("outcome") != "retry_scheduled" {
			x.t.Errorf("%s", answer.Body)
		}
		x.stands(e.ID, atBackoff)
	}},
	{"what nobody holds is refused to an operator, too (6.4/47)", func(x *executionTest) {
		for _, o := range overriddenReports {
			members := executionMembers(o.members, overriding)
			e := x.create("")
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.by(e.ID, o.op, members) }, e.ID)
			x.claim("")
			x.unswept(e.ID)
			x.server.Clock.Advance(30 * time.Second)
			x.refused(fault.CodeLeaseExpired, func() *apitest.Response { return x.by(e.ID, o.op, members) }, e.ID)
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
			e = x.create("")
			x.claim("")
			x.advance(30 * time.Second)
			x.refused(fault.CodeLeaseExpired, func() *apitest.Response { return x.by(e.ID, o.op, members) }, e.ID)
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
			e = x.create("")
			x.claim(lasting)
			x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
			x.refused(fault.CodeLeaseRevoked, func() *apitest.Response { return x.by(e.ID, o.op, members) }, e.ID)
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.by(e.ID, o.op, members) }, e.ID)
		}
	}},
	{"not beside a proof of ownership, and not by omission (7.1/19)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		for _, o := range overriddenReports {
			for members, pointer := range map[string]string{
				overriding + `,"handle":"` + c.Handle + `"`: "/override", overriding + "," + fenced(c): "/override", `"override":false`: "/handle", ``: "/handle", `"override":null`: "/override", `"override":"yes"`: "/override",
			} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.by(e.ID, o.op, executionMembers(o.members, members)) }, e.ID)
				if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != pointer {
					x.t.Errorf("%s with %s: %+v", o.op, members, fields)
				}
			}
		}
		for op, members := range map[string]string{"renew": "", "progress": "", "release": "", "cancel": ""} { // these are the holder's own
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.by(e.ID, op, executionMembers(members, overriding)) }, e.ID)
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != "/override" {
				x.t.Errorf("%s: %+v", op, fields)
			}
		}
		x.report(c, "complete", `"override":false`).Want(http.StatusOK)
	}},
	{"by operators only", func(x *executionTest) {
		worker, _ := x.as("worker", "w-"+x.lane)
		e := x.create("")
		c := worker.claim(lasting)
		for _, o := range overriddenReports {
			answer := x.refused(fault.CodeForbidden, func() *apitest.Response { return worker.by(e.ID, o.op, executionMembers(o.members, overriding)) }, e.ID)
			if answer.Str("required_role") != "operator" {
				x.t.Errorf("%s", answer.Body)
			}
		}
		worker.report(c, "complete", "").Want(http.StatusOK)
	}},
}

// TestExecutions_Directives: what a worker is told beside its answer. model.md, "Every worker reply carries directives".
func TestExecutions_Directives(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"a worker that is draining is told in every answer about what it holds", func(x *executionTest) {
			instance := "d-" + x.lane
			for range workerCalls {
				x.create(retryPolicy(1))
			}
			claims := x.claims(`"max":100,"worker_instance_id":"` + instance + `",` + lasting)
			x.create("")
			other := x.claim(lasting)
			x.drained(instance)
			for i, call := range workerCalls {
				answer := x.report(claims[i], call.op, call.members).Want(http.StatusOK)
				if answer.Len("directives") != 1 || answer.Str("directives.0") != "drain" {
					x.t.Errorf("%s: %s", call.op, answer.Body)
				}
			}
			if answer := x.report(other, "progress", `"pct":1`).Want(http.StatusOK); answer.Len("directives") != 0 {
				x.t.Errorf("%s", answer.Body)
			}
			x.operated(claims[0].Execution.ID, "operator-cancel", `"reason":"no","grace_ms":60000`)
			if answer := x.report(claims[0], "renew", "").Want(http.StatusOK); answer.Len("directives") != 2 || answer.Str("directives.0") != "cancel" || answer.Str("directives.1") != "drain" {
				x.t.Errorf("%s", answer.Body)
			}
		}},
	})
}
