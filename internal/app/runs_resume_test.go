package app_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// again resumes a run as somebody who drives nothing.
func (x *runTest) again(r oapi.Run, members string) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.people(r, "resume", members).Want(http.StatusOK))
}

func runNotResumableCases() []runCase {
	return []runCase{
		{"what runs, has not begun, is to end or has been cancelled does not go on, nor what has completed but as a whole (C3 resume, A10)", func(x *runTest) {
			for status, bodies := range map[string][]string{
				"pending": {"", `"restart":true`}, "running": {"", `"restart":true`}, "cancelling": {"", `"restart":true`}, "cancelled": {"", `"restart":true`, `"from_step":"build"`},
				"completed": {"", `"from_step":"build"`, `"restart":false`},
			} {
				r := x.at(status)
				for _, members := range bodies {
					answer := x.refused(fault.CodeNotResumable, func() *apitest.Response { return x.people(r, "resume", members) }, r.ID)
					x.facts(answer, map[string]any{"current_status": status, "from": status, "to": "running"})
				}
			}
		}},
		{"restart and from_step exclude one another, and from_step is there (C3 resume, A10)", func(x *runTest) {
			r := x.running("")
			x.stepAt(r, "completed", "")
			x.do(r, "fail", `"error":"no disk"`)
			for members, pointer := range map[string]string{`"restart":true,"from_step":"build"`: "/from_step", `"from_step":"test"`: "/from_step", `"from_step":""`: "/from_step", `"restart":1`: "/restart", `"step":"build"`: "/step"} {
				x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.people(r, "resume", members) }, r.ID), fault.InBody, pointer)
			}
		}},
		{"a waiting run goes on by its engine, where it is", func(x *runTest) {
			r := x.at("waiting")
			for members, pointer := range map[string]string{"": "/generation", `"restart":true`: "/generation", fence(r.Generation, `"restart":true`): "/restart", fence(r.Generation, `"from_step":"build"`): "/restart"} {
				x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.people(r, "resume", members) }, r.ID), fault.InBody, pointer)
			}
			x.facts(x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.people(r, "resume", fence(0)) }, r.ID), map[string]any{"current_generation": 1.0})
		}},
		{"what is not there is not found (C3 resume)", func(x *runTest) {
			r := x.at("failed")
			x.missing("run", func() *apitest.Response { return x.Post(runPath(uuid.New(), "resume"), nil) })
			x.missing("run", func() *apitest.Response { return x.In(x.namespace+"-other").Post(runPath(r.ID, "resume"), nil) }, r.ID)
		}},
		{"a generation has to be the present one, whatever else is said (D1 4)", func(x *runTest) {
			for _, status := range []string{"failed", "needs_resume", "running", "cancelled"} {
				r := x.at(status)
				answer := x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.people(r, "resume", fence(7)) }, r.ID)
				x.facts(answer, map[string]any{"current_generation": 1.0})
			}
		}},
		{"without a generation it is an operator's to do", func(x *runTest) {
			worker, operator := x.as("w", "worker"), x.as("o", "operator")
			r := x.at("failed")
			x.facts(x.refused(fault.CodeForbidden, func() *apitest.Response { return worker.people(r, "resume", "") }, r.ID), map[string]any{"required_role": "operator"})
			operator.again(r, "")
			other := x.at("failed")
			worker.do(other, "resume", "")
			x.stands(other.ID, "running")
		}},
		{"at a revision that was read, and once under an Idempotency-Key", func(x *runTest) {
			r, key := x.at("failed"), "Idempotency-Key: resume-"+x.namespace
			x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.people(r, "resume", "", ifMatch(r.Revision-1)) }, r.ID)
			first := x.people(r, "resume", "", ifMatch(r.Revision), key).Want(http.StatusOK)
			again := x.same(func() *apitest.Response { return x.people(r, "resume", "", ifMatch(r.Revision), key) }, r.ID).Want(http.StatusOK)
			if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.ETag() != etagOf(r.Revision+1) {
				x.t.Errorf("%s\n%s", first.Body, again.Body)
			}
		}},
	}
}

// threeSteps brings three steps in a run to statuses, at the positions 0, 1 and 2: a, b, and c.
func (x *runTest) threeSteps(r oapi.Run, statuses ...string) []oapi.RunStep {
	x.t.Helper()
	steps := make([]oapi.RunStep, len(statuses))
	for i, status := range statuses {
		steps[i] = x.stepAt(r, status, fmt.Sprintf(`"step_name":%q,"position":%d`, string(rune('a'+i)), i))
	}
	return steps
}

func runResumeCases() []runCase {
	return []runCase{
		{"a failed run does again what has not ended well, and keeps the rest (C3 resume)", (*runTest).resumeFailed},
		{"from a step on, that and all after it are done again, and the earlier stay (C3 resume)", func(x *runTest) {
			for _, from := range []string{"b", "body[1]/b"} {
				r := x.running("")
				x.stepAt(r, "failed", `"step_name":"a","position":0`)
				x.stepAt(r, "completed", `"step_name":"b","position":1,"path":"body[1]/b"`)
				x.stepAt(r, "completed", `"step_name":"beside","position":1`)
				x.stepAt(r, "skipped", `"step_name":"c","position":2`)
				x.do(r, "fail", `"error":"no disk"`)
				n := len(x.events(r.ID))
				x.again(r, `"from_step":`+quoted(from))
				x.statuses(r, "a failed", "b pending", "beside pending", "c pending")
				events := x.replies(r.ID, n, "run.resumed", "0 run_step.reset", "0 run_step.reset", "0 run_step.reset")
				x.saying(events[0], map[string]any{"by": "request", "resume_count": 1.0, "from_step": from})
			}
		}},
		{"a step that is there in every turn of a loop counts from its first place", func(x *runTest) {
			r := x.running("")
			for i := range 3 {
				x.stepAt(r, "completed", fmt.Sprintf(`"step_name":"body","iteration":%d,"position":%d`, i, 5-i))
			}
			x.stepAt(r, "completed", `"step_name":"before","position":2`)
			x.do(r, "fail", `"error":"no disk"`)
			x.again(r, `"from_step":"body"`)
			x.statuses(r, "before completed", "body pending", "body pending", "body pending")
		}},
		{"a restart does everything again, of what has completed, too (C3 resume)", func(x *runTest) {
			for _, status := range []string{"completed", "failed"} {
				r := x.running(`"inputs":{"version":"1.4.0"}`)
				steps := x.threeSteps(r, "completed", "skipped", "completed")
				x.advance(time.Minute)
				ended := x.do(r, map[string]string{"completed": "complete", "failed": "fail"}[status], map[string]string{"completed": `"result_summary":"well"`, "failed": `"error":"no disk"`}[status])
				n := len(x.events(r.ID))
				x.advance(time.Hour)
				got := x.again(r, `"restart":true`)
				if got.Status != "running" || got.ResumeCount != 1 || got.ResultSummary != nil || got.Error != nil || got.EndedAt != nil || got.TotalDurationMs != 60_000 ||
					!got.StartedAt.Time().Equal(ended.StartedAt.Time()) || got.Generation != 1 || got.LeaseUntil != nil || string(got.Inputs) != `{"version":"1.4.0"}` {
					x.t.Errorf("%+v", got)
				}
				x.statuses(r, "a pending", "b pending", "c pending")
				if s := x.read(r, steps[1].ID); s.RetryCount != 1 || len(s.Attempts) != 2 || s.Attempts[0].Status != "skipped" || s.Attempts[1].Status != "pending" {
					x.t.Errorf("%+v", s)
				}
				events := x.replies(r.ID, n, "run.resumed", "0 run_step.reset", "0 run_step.reset", "0 run_step.reset")
				x.saying(events[0], map[string]any{"by": "request", "resume_count": 1.0, "restart": true})
				x.advance(time.Second)
				if again := x.do(got, "fail", `"error":"again"`); again.TotalDurationMs != 61_000 {
					x.t.Errorf("it took %d ms", again.TotalDurationMs)
				}
			}
		}},
	}
}

func runResumeAttemptCases() []runCase {
	return []runCase{
		{"identity and inputs survive, and resumes are counted beside iterations (C3 resume, A13 31 and 35)", func(x *runTest) {
			members := `"workflow_name":"deploy","trigger":"hook","dry_run":true,"inputs":{"n":1.0},"definition_snapshot":{"title":"Deploy"},"parent_run_id":"agent-7","iteration":4`
			r := x.running(members)
			before := x.do(r, "fail", `"error":"no disk","result_summary":"sad"`)
			for i := range 3 {
				x.again(r, "")
				x.hold(r.ID, engineToken, time.Hour)
				r = x.get(r.ID)
				if r.Generation != int64(2+i) {
					x.t.Errorf("the generation is %d", r.Generation)
				}
				r = x.do(r, "fail", `"error":"no disk","result_summary":"sad"`)
			}
			want := before
			want.Generation, want.ResumeCount, want.Revision, want.UpdatedAt, want.EndedAt = r.Generation, 3, before.Revision+9, r.UpdatedAt, r.EndedAt
			if diff := cmp.Diff(want, r); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}},
		{"attempts are numbered, also those of retries before (D2 15, A13 23)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			x.moved(r, s.ID, `"status":"running","retry_count":1,"step_error":"first"`)
			x.moved(r, s.ID, `"status":"failed","step_error":"second"`)
			x.do(r, "fail", `"error":"no disk"`)
			x.again(r, "")
			x.hold(r.ID, engineToken, time.Hour)
			r = x.get(r.ID)
			x.moved(r, s.ID, `"status":"running"`)
			x.moved(r, s.ID, `"status":"running","retry_count":3,"step_error":"third"`)
			done := x.moved(r, s.ID, `"status":"completed"`)
			var got []string
			for _, a := range done.Attempts {
				got = append(got, fmt.Sprint(a.AttemptIndex, " ", a.Status, " ", orNone(a.StepError)))
			}
			if diff := cmp.Diff([]string{"0 failed first", "1 failed second", "2 failed third", "3 completed "}, got); diff != "" || done.RetryCount != 3 || done.StepError != nil {
				x.t.Errorf("%+v (-want +got):\n%s", done, diff)
			}
		}},
		{"a gate is asked again, and what was said before does not count (D3 23)", (*runTest).resumeGate},
	}
}

func runResumeItemCases() []runCase {
	return []runCase{
		{"items that ended well stay (C3 fan-out)", func(x *runTest) {
			r := x.running("")
			each := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
			items := x.items(r, each.ID, "ok", "bad", "left out", "waits", "at work")
			x.patchItems(r, each.ID, itemTo(items[0], "completed"), itemTo(items[1], "failed"), itemTo(items[2], "skipped"), itemTo(items[4], "running", `"child_run_id":"agent-7"`)).Want(http.StatusOK)
			x.do(r, "fail", `"error":"no disk"`)
			x.itemised(r, each.ID, "ok completed", "bad failed", "left out skipped", "waits cancelled", "at work cancelled")
			n := len(x.events(r.ID))
			x.again(r, "")
			x.itemised(r, each.ID, "ok completed", "bad pending", "left out skipped", "waits pending", "at work pending")
			x.fanned(r, each.ID, 3, 0, 1, 0, 1, 0)
			x.replies(r.ID, n, "run.resumed", "0 item.added", "0 item.added", "0 item.added", "0 run_step.reset")
			for _, it := range x.listItems(r, each.ID, "&status=pending") {
				if it.ChildRunID != nil || it.DispatchedAt != nil || it.CompletedAt != nil {
					x.t.Errorf("%+v", it)
				}
			}
			x.do(r, "fail", `"error":"again"`)
			x.again(r, `"restart":true`)
			x.fanned(r, each.ID, 5, 0, 0, 0, 0, 0)
		}},
		{"children of what is done again stay with the attempt", func(x *runTest) {
			r := x.running("")
			a, b := x.step(r, `"step_name":"a",`+workChild("")), x.step(r, `"step_name":"b",`+subRun(""))
			x.report(x.claimed(a), "fail", `"reason":"boom","category":"permanent"`)
			inner := x.driven(x.childRun(b))
			x.do(inner, "complete", "")
			x.do(r, "fail", `"error":"no disk"`)
			x.again(r, `"restart":true`)
			for _, s := range []oapi.RunStep{a, b} {
				now := x.stepped(r, s.ID, "pending")
				if now.ChildExecutionID != nil || now.ChildRunID != nil || len(now.Attempts) != 2 {
					x.t.Errorf("%+v", now)
				}
				first := now.Attempts[0]
				if diff := cmp.Diff([]any{s.ChildExecutionID, s.ChildRunID}, []any{first.ChildExecutionID, first.ChildRunID}); diff != "" {
					x.t.Errorf("the first attempt of %s (-want +got):\n%s", s.StepName, diff)
				}
			}
			x.again(inner, `"restart":true`) // is nobody's child any more, as far as steps go
			x.stepped(r, b.ID, "pending")
		}},
	}
}

func (x *runTest) resumeFailed() {
	r := x.running("")
	done := x.stepAt(r, "running", `"step_name":"done","position":0`)
	done = x.moved(r, done.ID, `"status":"completed","result_text":"built","context_out":"c","markers_out":["m"],"structured_output":{"n":1}`)
	skipped := x.stepAt(r, "skipped", `"step_name":"skipped","position":1`)
	failed := x.stepAt(r, "running", `"step_name":"failed","position":2`)
	x.moved(r, failed.ID, `"status":"failed","result_text":"t","context_out":"c","markers_out":["m"],"structured_output":{"n":1},"step_error":"boom","child_run_id":"agent-7"`)
	x.stepAt(r, "timed_out", `"step_name":"late","position":3`)
	x.stepAt(r, "running", `"step_name":"running","position":4`)
	x.step(r, `"step_name":"never","position":5`)
	x.advance(time.Minute)
	x.do(r, "fail", `"error":"no disk","result_summary":"sad"`)
	x.statuses(r, "done completed", "skipped skipped", "failed failed", "late timed_out", "running cancelled", "never cancelled")
	n := len(x.events(r.ID))
	got := x.again(r, "")
	if got.Status != "running" || got.Error != nil || got.ResultSummary != nil || got.EndedAt != nil || got.ResumeCount != 1 || got.LeaseUntil != nil || got.Generation != 1 {
		x.t.Errorf("%+v", got)
	}
	x.statuses(r, "done completed", "skipped skipped", "failed pending", "late pending", "running pending", "never pending")
	for _, kept := range []oapi.RunStep{done, skipped} {
		if diff := cmp.Diff(kept, x.read(r, kept.ID)); diff != "" {
			x.t.Errorf("%s (-before +after):\n%s", kept.StepName, diff)
		}
	}
	s := x.read(r, failed.ID)
	if s.ResultText != nil || s.ContextOut != nil || s.MarkersOut != nil || string(s.StructuredOutput) != "null" || s.StepError != nil || s.ChildRunID != nil || s.EndedAt != nil || s.RetryCount != 1 ||
		!s.StartedAt.Time().Equal(failed.StartedAt.Time()) || len(s.Attempts) != 2 || orNone(s.Attempts[0].StepError) != "boom" || orNone(s.Attempts[0].ChildRunID) != "agent-7" || s.Attempts[1].StartedAt != nil {
		x.t.Errorf("%+v", s)
	}
	events := x.replies(r.ID, n, "run.resumed", "0 run_step.reset", "0 run_step.reset", "0 run_step.reset", "0 run_step.reset")
	x.saying(events[0], map[string]any{"by": "request", "resume_count": 1.0})
	x.same(func() *apitest.Response { return x.insert(r, `"step_name":"failed"`) }, r.ID).Want(http.StatusOK) // the same step, and not another one
}

func (x *runTest) resumeGate() {
	r := x.running("")
	s := x.gate(r, `"min_approvals":2,"timeout_ms":60000,`+threeOptions)
	x.decided(r, s.ID, "approve", `"by":"ada"`)
	x.decided(r, s.ID, "reject", `"by":"bob","feedback":"not yet"`)
	x.do(r, "fail", `"error":"rejected"`)
	x.again(r, "")
	g := x.outcome(r, s.ID, "pending", "")
	if g.OpenedAt != nil || g.DeadlineAt != nil || g.Feedback != nil || len(g.Votes) != 0 || *g.Approvals != 0 || len(g.Options) != 3 || g.MinApprovals != 2 || g.TimeoutMs != 60_000 {
		x.t.Errorf("%+v", g)
	}
	if got := x.gates("?state=rejected"); len(got) != 0 {
		x.t.Errorf("%v are listed as rejected", got)
	}
	x.advance(time.Hour)
	opened := x.moved(r, s.ID, `"status":"waiting"`)
	if !opened.Gate.DeadlineAt.Time().Equal(x.now().Add(time.Minute)) {
		x.t.Errorf("%+v", opened.Gate)
	}
	if d := x.decided(r, s.ID, "approve", `"by":"ada"`); d.Replayed || *d.Gate.Approvals != 1 || d.Gate.State != "pending" {
		x.t.Errorf("%+v", d)
	}
	d := x.decided(r, s.ID, "approve", `"by":"bob","selections":["beta"]`)
	if d.Gate.State != "approved" || d.Step.RetryCount != 1 || orNone(d.Step.ContextOut) != "User selected the following items:\n- beta\n" || d.Step.StepError != nil {
		x.t.Errorf("%+v", d)
	}
	outcomes := 0
	for _, e := range x.events(r.ID) {
		if e.Type == "gate.approved" || e.Type == "gate.rejected" {
			outcomes++
		}
	}
	if outcomes != 2 { // one of each attempt
		x.t.Errorf("%d outcomes are told", outcomes)
	}
}

func runGivenUpCases() []runCase {
	return []runCase{
		{"what is at work without a child is done again, what nobody has begun stays (C3 resume)", func(x *runTest) {
			r := x.running("")
			steps := x.threeSteps(r, "completed", "running", "pending")
			x.stepAt(r, "waiting", `"step_name":"d","position":3,"role":"wait"`)
			x.stepAt(r, "failed", `"step_name":"e","position":4`)
			before := x.read(r, steps[2].ID)
			x.release(r, `"needs_resume":true`)
			x.stands(r.ID, "needs_resume")
			x.statuses(r, "a completed", "b running", "c pending", "d waiting", "e failed")
			n := len(x.events(r.ID))
			if got := x.again(r, ""); got.ResumeCount != 1 || got.Status != "running" {
				x.t.Errorf("%+v", got)
			}
			x.statuses(r, "a completed", "b pending", "c pending", "d pending", "e pending")
			if diff := cmp.Diff(before, x.read(r, steps[2].ID)); diff != "" {
				x.t.Errorf("what had not begun (-before +after):\n%s", diff)
			}
			if s := x.read(r, steps[1].ID); s.Attempts[0].Status != "cancelled" || s.Attempts[0].EndedAt == nil {
				x.t.Errorf("%+v", s.Attempts)
			}
			x.replies(r.ID, n, "run.resumed", "0 run_step.reset", "0 run_step.reset", "0 run_step.reset")
		}},
		{"children at work and open gates go on (C3 fan-out, D3 25)", (*runTest).resumeKeeps},
		{"what has a child that is at work is done again from its step on, and the child is cancelled", func(x *runTest) {
			r := x.running("")
			a := x.step(r, `"step_name":"a","position":0,`+workChild(""))
			x.claimed(a)
			b := x.step(r, `"step_name":"b","position":1,`+subRun(""))
			x.release(x.driven(x.childRun(b)), "")
			idle := x.step(r, `"step_name":"idle","position":2,`+subRun(""))
			x.release(r, `"needs_resume":true`)
			x.again(r, `"from_step":"a"`)
			x.statuses(r, "a pending", "b pending", "idle pending")
			x.stands(x.childRun(idle).ID, "pending") // nobody has begun it, so nothing is done again
			x.public("cancelled", *a.ChildExecutionID)
			if got := x.stands(x.childRun(b).ID, "cancelled"); orNone(got.CancelReason) != "parent_cancelled" {
				x.t.Errorf("%+v", got)
			}
			if s := x.read(r, a.ID); s.ChildExecutionID != nil || *s.Attempts[0].ChildExecutionID != *a.ChildExecutionID {
				x.t.Errorf("%+v", s)
			}
		}},
		{"children of a run that was given up still end their steps", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			c := x.claimed(s)
			x.release(r, `"needs_resume":true`)
			x.report(c, "complete", `"result":"built"`)
			x.stepped(r, s.ID, "completed")
			x.again(r, "")
			x.statuses(r, "build completed")
		}},
		{"with a generation, a resume is its engine's, of any status that allows it", func(x *runTest) {
			r := x.at("needs_resume")
			x.hold(r.ID, "engine-2", time.Hour)
			x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.verb(r, "resume", "") }, r.ID)
			got := x.do(x.get(r.ID), "resume", "")
			if got.Status != "running" || got.Generation != 2 || got.LeaseUntil == nil {
				x.t.Errorf("%+v", got)
			}
		}},
		{"failing what was given up", func(x *runTest) {
			r := x.at("needs_resume")
			s := x.get(r.ID)
			x.do(s, "fail", `"error":"exceeded auto_resume_limit"`)
			x.stands(r.ID, "failed")
		}},
	}
}

func (x *runTest) resumeKeeps() {
	r := x.running("")
	held := x.step(r, `"step_name":"held","position":0,`+workChild(""))
	c := x.claimed(held)
	x.step(r, `"step_name":"inner","position":1,`+subRun(""))
	gate := x.step(r, `"step_name":"review","position":2,"role":"gate","gate":{"gate_type":"human_review","min_approvals":2,"timeout_ms":3600000}`)
	open := x.moved(r, gate.ID, `"status":"waiting"`)
	x.decided(r, gate.ID, "approve", `"by":"ada"`)
	each := x.stepAt(r, "running", `"step_name":"each","position":3,"role":"foreach"`)
	items := x.items(r, each.ID, "ok", "outside", "ours")
	x.patchItems(r, each.ID, itemTo(items[0], "completed"), itemTo(items[1], "running", `"child_run_id":"agent-7"`), itemTo(items[2], "running", workChild(""))).Want(http.StatusOK)
	x.advance(30 * time.Minute)
	x.release(r, `"needs_resume":true`)
	before := x.read(r, held.ID)
	x.again(r, "")
	x.statuses(r, "held running", "inner pending", "review waiting", "each pending")
	if diff := cmp.Diff(before, x.read(r, held.ID)); diff != "" {
		x.t.Errorf("what its child does (-before +after):\n%s", diff)
	}
	x.itemised(r, each.ID, "ok completed", "outside pending", "ours running")
	x.fanned(r, each.ID, 1, 1, 1, 0, 0, 0)
	g := x.readGate(r, gate.ID)
	if !g.DeadlineAt.Time().Equal(open.Gate.DeadlineAt.Time()) || *g.Approvals != 1 {
		x.t.Errorf("%+v", g)
	}
	x.report(c, "complete", "")
	x.stepped(r, held.ID, "completed")
	ours := x.workers(runLane).claim(lasting)
	x.report(ours, "complete", "")
	x.itemised(r, each.ID, "ok completed", "outside pending", "ours completed")
	x.advance(30 * time.Minute)
	x.outcome(r, gate.ID, "timed_out", "engine")
}
