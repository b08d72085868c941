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
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// TestRuns_Ends: how runs are cancelled, done again and deleted, and how they are listed. reference: runs-and-taskflows.md A10, A12,
// A13 32, 33 and 46, C3 "Cancel", "Resume", "Purge" and "Lists".
func TestRuns_Ends(t *testing.T) {
	t.Parallel()
	runRunGroups(t, []runGroup{
		{"cancel", withKin(runCancelCases)},
		{"cancel with a deadline", withKin(slices.Concat(runCancellingCases(), runCancelDeadlineCases()))},
		{"cascade", withKin(runCascadeCases())},
		{"resume refused", withKin(runNotResumableCases())},
		{"resume", withKin(slices.Concat(runResumeCases(), runResumeAttemptCases(), runResumeItemCases()))},
		{"resume what was given up", withKin(runGivenUpCases())},
		{"delete", withKin(runDeleteCases())},
		{"purge", withKin(slices.Concat(runPurgeCases(), runPurgeRequestCases()))},
		{"lists", runListCases()},
	})
}

// cancelled cancels a run as somebody who drives nothing.
func (x *runTest) cancelled(r oapi.Run, members string) oapi.Run {
	x.t.Helper()
	return flowAs[oapi.Run](x.people(r, "cancel", members).Want(http.StatusOK))
}

// unheld lets the lease of a run run out.
func (x *runTest) unheld(r oapi.Run) oapi.Run {
	x.t.Helper()
	x.reach(r.LeaseUntil.Time().Add(time.Millisecond))
	return x.get(r.ID)
}

var runCancelCases = []runCase{
	{"what nobody drives is cancelled at once, with all that is open in it (C3 cancel 1 to 5)", (*runTest).cancelAtOnce},
	{"so is a run that is pending or given up, whoever has the lease", func(x *runTest) {
		for _, status := range []string{"pending", "needs_resume"} {
			r := x.at(status)
			x.hold(r.ID, engineToken, time.Hour)
			got := x.cancelled(r, "")
			if got.Status != "cancelled" || orNone(got.CancelReason) != "user_requested" || got.LeaseUntil != nil || got.Cancellation.DeadlineAt != nil {
				x.t.Errorf("%+v", got)
			}
		}
	}},
	{"a run that was never started has no beginning", func(x *runTest) {
		r := x.create("")
		x.advance(time.Second)
		got := x.cancelled(r, `"reason":"a mistake"`)
		if got.StartedAt != nil || got.TotalDurationMs != 0 || !got.EndedAt.Time().Equal(x.now()) || orNone(got.ResultSummary) != "a mistake" {
			x.t.Errorf("%+v", got)
		}
		x.replies(r.ID, 0, "run.created", "run.cancelled")
	}},
	{"what has ended is not cancelled (C3 cancel 6)", func(x *runTest) {
		for _, status := range []string{"completed", "failed", "cancelled"} {
			r := x.at(status)
			for _, members := range []string{"", `"reason":"again"`, fence(r.Generation)} {
				answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.people(r, "cancel", members) }, r.ID)
				x.facts(answer, map[string]any{"from": status, "to": "cancelled"})
			}
		}
	}},
	{"what is not there is not found (C3 cancel 7)", func(x *runTest) {
		r := x.running("")
		x.missing("run", func() *apitest.Response { return x.Post(runPath(uuid.New(), "cancel"), nil) })
		x.missing("run", func() *apitest.Response { return x.In(x.namespace+"-other").Post(runPath(r.ID, "cancel"), nil) }, r.ID)
	}},
	{"an engine ends its own run", func(x *runTest) {
		r := x.running("")
		s := x.stepAt(r, "running", "")
		got := x.do(r, "cancel", `"reason":"the machine goes down"`)
		if orNone(got.CancelReason) != "engine_shutdown" || got.Status != "cancelled" || orNone(got.ResultSummary) != "the machine goes down" {
			x.t.Errorf("%+v", got)
		}
		x.stepped(r, s.ID, "cancelled")
	}},
	{"a stale engine does not (D1 4)", func(x *runTest) {
		r := x.running("")
		x.unheld(r)
		x.hold(r.ID, "engine-2", time.Hour)
		answer := x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.verb(r, "cancel", "") }, r.ID)
		x.facts(answer, map[string]any{"current_generation": 2.0})
	}},
	{"without a generation it is an operator's to do", func(x *runTest) {
		worker, operator := x.as("w", "worker"), x.as("o", "operator")
		r := x.running("")
		answer := x.refused(fault.CodeForbidden, func() *apitest.Response { return worker.people(r, "cancel", "") }, r.ID)
		x.facts(answer, map[string]any{"required_role": "operator"})
		if got := operator.cancelled(r, ""); got.Cancellation.Actor != "token:o" {
			x.t.Errorf("%+v", got.Cancellation)
		}
		worker.do(r, "cancel", "")
	}},
	{"at a revision that was read, and once under an Idempotency-Key", func(x *runTest) {
		r, key := x.running(""), "Idempotency-Key: cancel-"+x.namespace
		answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.people(r, "cancel", "", ifMatch(r.Revision-1)) }, r.ID)
		x.facts(answer, map[string]any{"expected": float64(r.Revision - 1), "actual": float64(r.Revision)})
		first := x.people(r, "cancel", "", ifMatch(r.Revision), key).Want(http.StatusOK)
		again := x.same(func() *apitest.Response { return x.people(r, "cancel", "", ifMatch(r.Revision), key) }, r.ID).Want(http.StatusOK)
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.ETag() != etagOf(r.Revision+1) {
			x.t.Errorf("%s\n%s", first.Body, again.Body)
		}
	}},
	{"what is asked is checked", func(x *runTest) {
		r := x.running("")
		for members, pointer := range map[string]string{`"deadline_ms":-1`: "/deadline_ms", `"deadline_ms":3600001`: "/deadline_ms", `"reason":1`: "/reason", `"generation":-1`: "/generation", `"force":true`: "/force"} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.people(r, "cancel", members) }, r.ID), fault.InBody, pointer)
		}
	}},
}

func (x *runTest) cancelAtOnce() {
	for _, status := range []string{"running", "waiting"} {
		r := x.running(`"parent_run_id":"agent-7"`)
		done := x.stepAt(r, "completed", `"step_name":"done","position":0`)
		x.advance(time.Second)
		running := x.stepAt(r, "running", `"step_name":"running","position":1`)
		x.step(r, `"step_name":"pending","position":2`)
		gate := x.step(r, `"step_name":"review","position":3,"role":"gate","gate":{"gate_type":"human_review"}`)
		x.moved(r, gate.ID, `"status":"waiting"`)
		each := x.stepAt(r, "running", `"step_name":"each","position":4,"role":"foreach"`)
		items := x.items(r, each.ID, "1", "2", "3")
		x.patchItems(r, each.ID, itemTo(items[0], "completed"), itemTo(items[1], "running")).Want(http.StatusOK)
		if status == "waiting" {
			x.do(r, "wait", blockedOn)
		}
		r = x.unheld(x.get(r.ID))
		n := len(x.events(r.ID))
		got := x.cancelled(r, `"reason":"not today"`)
		if got.Status != "cancelled" || orNone(got.ResultSummary) != "not today" || got.Error != nil || got.Revision != r.Revision+1 || orNone(got.ParentRunID) != "agent-7" {
			x.t.Errorf("%+v", got)
		}
		want := oapi.RunCancellation{Actor: "local", Message: new("not today"), RequestedAt: oapi.Time(x.now())}
		if diff := cmp.Diff(&want, got.Cancellation); diff != "" || orNone(got.CancelReason) != "user_requested" {
			x.t.Errorf("because of %q (-want +got):\n%s", orNone(got.CancelReason), diff)
		}
		x.stands(r.ID, "cancelled")
		x.statuses(r, "done completed", "running cancelled", "pending cancelled", "review cancelled", "each cancelled")
		if diff := cmp.Diff(done, x.read(r, done.ID)); diff != "" {
			x.t.Errorf("what had ended was changed (-before +after):\n%s", diff)
		}
		if s := x.read(r, running.ID); !s.EndedAt.Time().Equal(x.now()) || s.StepError != nil {
			x.t.Errorf("%+v", s)
		}
		x.outcome(r, gate.ID, "cancelled", "local")
		x.itemised(r, each.ID, "1 completed", "2 cancelled", "3 cancelled")
		x.fanned(r, each.ID, 0, 0, 1, 0, 0, 2)
		events := x.replies(r.ID, n, "run.cancelled", "0 run_step.cancelled", "0 run_step.cancelled", "0 gate.cancelled", "3 run_step.cancelled", "0 run_step.cancelled", "5 item.cancelled", "5 item.cancelled")
		data := eventData(x.t, events[0])
		if data["cancel_reason"] != "user_requested" || data["result_summary"] != "not today" || data["generation"] != 1.0 {
			x.t.Errorf("%s", events[0].Data)
		}
	}
}

func runCancellingCases() []runCase {
	return []runCase{
		{"what an engine drives is cancelling, and its engine is told (A4.1, RM-17)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			n := len(x.events(r.ID))
			got := x.cancelled(r, `"reason":"not today"`)
			deadline := x.now().Add(5 * time.Second)
			if got.Status != "cancelling" || !got.Cancellation.DeadlineAt.Time().Equal(deadline) || orNone(got.CancelReason) != "user_requested" || got.EndedAt != nil || got.LeaseUntil == nil {
				x.t.Errorf("%+v", got)
			}
			events := x.replies(r.ID, n, "run.cancelling")
			x.saying(events[0], map[string]any{"cancel_reason": "user_requested", "message": "not today", "deadline_at": spelledPlain(deadline)})
			if lease := x.hold(r.ID, engineToken, time.Hour); !lease.CancelRequested || lease.Outcome != "renewed" {
				x.t.Errorf("%+v", lease)
			}
			x.stepped(r, s.ID, "running")
		}},
		{"nothing new begins in it, and what is at work may end", (*runTest).cancellingTakesEnds},
		{"its engine ends it, and who asked first stays (D2 20)", func(x *runTest) {
			for name, end := range map[string]func(r oapi.Run) oapi.Run{
				"cancel":                   func(r oapi.Run) oapi.Run { return x.do(r, "cancel", `"reason":"the engine's words"`) },
				"release":                  func(r oapi.Run) oapi.Run { return x.release(r, "") },
				"release for whoever next": func(r oapi.Run) oapi.Run { return x.release(r, `"needs_resume":true`) },
			} {
				r := x.running("")
				before := x.cancelled(r, `"reason":"first"`)
				x.advance(time.Second)
				got := end(r)
				if got.Status != "cancelled" || orNone(got.CancelReason) != "user_requested" || orNone(got.ResultSummary) != "first" || !got.EndedAt.Time().Equal(x.now()) {
					x.t.Errorf("%s: %+v", name, got)
				}
				if diff := cmp.Diff(before.Cancellation, got.Cancellation); diff != "" {
					x.t.Errorf("%s (-before +after):\n%s", name, diff)
				}
				x.advance(time.Minute)
				if now := x.get(r.ID); now.Revision != got.Revision {
					x.t.Errorf("%s: the deadline has changed it: %+v", name, now)
				}
			}
		}},
	}
}

func runCancelDeadlineCases() []runCase {
	return []runCase{
		{"after its deadline it is forced (A13 32, D2 21)", func(x *runTest) {
			for _, status := range []string{"running", "waiting"} {
				r := x.at(status)
				s := x.stepAt(r, "running", "")
				each := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
				x.items(r, each.ID, "1")
				x.cancelled(r, `"reason":"first","deadline_ms":60000`)
				n := len(x.events(r.ID))
				x.advance(time.Minute - time.Millisecond)
				x.stands(r.ID, "cancelling")
				x.advance(time.Millisecond)
				got := x.stands(r.ID, "cancelled")
				if orNone(got.CancelReason) != "user_requested" || orNone(got.ResultSummary) != "first" || !got.EndedAt.Time().Equal(x.now()) || got.Cancellation.Actor != "local" {
					x.t.Errorf("%+v", got)
				}
				x.stepped(r, s.ID, "cancelled")
				events := x.replies(r.ID, n, "run.cancelled", "0 run_step.cancelled", "0 run_step.cancelled", "2 item.cancelled")
				if events[0].Actor != "engine" {
					x.t.Errorf("%+v", events[0])
				}
				answer := x.refused(fault.CodeRunTerminal, func() *apitest.Response { return x.lease(r.ID, engineToken, time.Hour) }, r.ID)
				x.facts(answer, map[string]any{"current_status": "cancelled"})
			}
		}},
		{"without any time it ends in the next sweep", func(x *runTest) {
			r := x.running("")
			if got := x.cancelled(r, `"deadline_ms":0`); got.Status != "cancelling" || !got.Cancellation.DeadlineAt.Time().Equal(x.now()) {
				x.t.Errorf("%+v", got)
			}
			x.server.Settle()
			x.stands(r.ID, "cancelled")
		}},
		{"a second request changes nothing: the first reason and deadline stay (C3 cancel 8, D2 20)", func(x *runTest) {
			r := x.running("")
			x.cancelled(r, `"reason":"first","deadline_ms":60000`)
			for _, members := range []string{"", `"reason":"second"`, `"deadline_ms":0`, `"reason":"third","deadline_ms":3600000`} {
				x.same(func() *apitest.Response { return x.people(r, "cancel", members) }, r.ID).Want(http.StatusOK)
			}
			x.advance(30 * time.Second)
			x.stands(r.ID, "cancelling")
		}},
		{"other ends are refused", func(x *runTest) {
			r := x.at("cancelling")
			for verb, to := range map[string]string{"complete": "completed", "fail": "failed", "wait": "waiting", "start": "running"} {
				members := map[string]string{"fail": `"error":"x"`, "wait": blockedOn}[verb]
				answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.verb(r, verb, members) }, r.ID)
				x.facts(answer, map[string]any{"from": "cancelling", "to": to})
			}
			x.facts(x.refused(fault.CodeNotResumable, func() *apitest.Response { return x.people(r, "resume", "") }, r.ID), map[string]any{"current_status": "cancelling"})
		}},
		{"a lease that has run out does not hold it up", func(x *runTest) {
			r := x.running("")
			x.reach(r.LeaseUntil.Time())
			if got := x.cancelled(r, ""); got.Status != "cancelling" { // at its very end it is still held
				x.t.Errorf("%+v", got)
			}
			other := x.unheld(x.running(""))
			if got := x.cancelled(other, ""); got.Status != "cancelled" {
				x.t.Errorf("%+v", got)
			}
		}},
		{"whoever takes it over ends it", func(x *runTest) {
			r := x.running("")
			x.reach(r.LeaseUntil.Time())
			x.cancelled(r, `"deadline_ms":3600000`)
			x.advance(time.Second)
			lease := x.hold(r.ID, "engine-2", time.Hour)
			if lease.Outcome != "taken_over" || lease.Generation != 2 || !lease.CancelRequested {
				x.t.Errorf("%+v", lease)
			}
			x.refused(fault.CodeLeaseLost, func() *apitest.Response { return x.verb(r, "cancel", "") }, r.ID)
			x.do(x.get(r.ID), "cancel", "")
			x.stands(r.ID, "cancelled")
		}},
	}
}

// spelledPlain is a time as a member of a document that was decoded.
func spelledPlain(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func (x *runTest) cancellingTakesEnds() {
	r := x.running("")
	build, test := x.stepAt(r, "running", ""), x.step(r, `"step_name":"test"`)
	each := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
	items := x.items(r, each.ID, "1", "2")
	x.patchItems(r, each.ID, itemTo(items[0], "running")).Want(http.StatusOK)
	x.cancelled(r, "")
	for name, call := range map[string]func() *apitest.Response{
		"a step":               func() *apitest.Response { return x.insert(r, `"step_name":"more"`) },
		"a step with a child":  func() *apitest.Response { return x.insert(r, `"step_name":"more",`+workChild("")) },
		"the start of a step":  func() *apitest.Response { return x.patch(r, test.ID, `"status":"running"`) },
		"another attempt":      func() *apitest.Response { return x.patch(r, build.ID, `"status":"running","retry_count":1`) },
		"a wait":               func() *apitest.Response { return x.patch(r, build.ID, `"status":"waiting"`) },
		"an item":              func() *apitest.Response { return x.add(r, each.ID, ticket("3")) },
		"the start of an item": func() *apitest.Response { return x.patchItems(r, each.ID, itemTo(items[1], "running")) },
		"a run in it": func() *apitest.Response {
			return x.Post("/v1/runs", `{"workflow_name":"x","parent_workflow_run_id":"`+r.ID.String()+`"}`)
		},
		"the child of a step":    func() *apitest.Response { return x.patch(r, build.ID, `"status":"running",`+workChild("")) },
		"the child of an item":   func() *apitest.Response { return x.patchItems(r, each.ID, itemTo(items[0], "running", workChild(""))) },
		"one among those it has": func() *apitest.Response { return x.add(r, each.ID, ticket("1"), ticket("4")) },
	} {
		answer := x.refused(fault.CodeRunCancelled, call, r.ID)
		x.facts(answer, map[string]any{"reason": "user_requested"})
		if x.t.Failed() {
			x.t.Fatalf("that was %s", name)
		}
	}
	x.same(func() *apitest.Response { return x.insert(r, `"step_name":"test"`) }, r.ID).Want(http.StatusOK) // what is there is told
	x.same(func() *apitest.Response { return x.add(r, each.ID, ticket("1")) }, r.ID).Want(http.StatusOK)
	x.moved(r, build.ID, `"status":"completed","result_text":"done all the same"`)
	x.moved(r, test.ID, `"status":"skipped"`)
	x.patchItems(r, each.ID, itemTo(items[0], "completed"), itemTo(items[1], "failed")).Want(http.StatusOK)
	x.moved(r, each.ID, `"status":"completed"`)
	x.do(r, "cancel", "")
	x.statuses(r, "build completed", "test skipped", "each completed")
	x.fanned(r, each.ID, 0, 0, 1, 1, 0, 0)
}

func runCascadeCases() []runCase {
	return []runCase{
		{"all that is below is cancelled in the same transaction (C3 cancel 9, A13 33, D2 20)", (*runTest).cascade},
		{"what is held has time, and is told by every reply (F5 10)", (*runTest).cascadeGrace},
		{"a child that an engine drives has the time that it has by itself", func(x *runTest) {
			r := x.running("")
			s := x.step(r, subRun(""))
			inner := x.driven(x.childRun(s))
			x.unheldBut(r, inner)
			x.cancelled(r, `"reason":"not today"`)
			x.stepped(r, s.ID, "cancelled")
			got := x.stands(inner.ID, "cancelling")
			if orNone(got.CancelReason) != "parent_cancelled" || !got.Cancellation.DeadlineAt.Time().Equal(x.now().Add(5*time.Second)) || orNone(got.Cancellation.Message) != "not today" {
				x.t.Errorf("%+v", got.Cancellation)
			}
			x.advance(5 * time.Second)
			x.stands(inner.ID, "cancelled")
		}},
		{"the end of a child changes neither its sibling nor what it is in, but its step (D2 20)", func(x *runTest) {
			r := x.running("")
			a, b := x.step(r, `"step_name":"a",`+subRun(`"parent_run_id":"agent-7"`)), x.step(r, `"step_name":"b",`+subRun(""))
			x.cancelled(x.childRun(a), "")
			x.statuses(r, "a cancelled", "b pending")
			failing := x.driven(x.childRun(b))
			if got := x.do(failing, "fail", `"error":"no disk"`); orNone(got.ParentRunID) != "" || *got.ParentWorkflowRunID != r.ID { // C3 cancel 10
				x.t.Errorf("%+v", got)
			}
			x.statuses(r, "a cancelled", "b failed")
			x.stands(r.ID, "running")
		}},
		{"failing and completing end what is below, too", func(x *runTest) {
			r := x.running("")
			s, e := x.step(r, `"step_name":"a",`+subRun("")), x.step(r, `"step_name":"b",`+workChild(""))
			for _, step := range []oapi.RunStep{s, e} { // C3 cancel: ended, and the children that nobody waits for with it
				x.moved(r, step.ID, `"status":"completed","result_text":"enough"`)
			}
			x.public("cancelled", *e.ChildExecutionID)
			if got := x.stands(x.childRun(s).ID, "cancelled"); orNone(got.CancelReason) != "parent_cancelled" {
				x.t.Errorf("%+v", got)
			}
			x.do(r, "complete", "")

			r = x.running("")
			s, e = x.step(r, `"step_name":"a",`+subRun("")), x.step(r, `"step_name":"b",`+workChild(""))
			x.do(r, "fail", `"error":"no disk","result_summary":"sad"`)
			x.statuses(r, "a cancelled", "b cancelled")
			x.public("cancelled", *e.ChildExecutionID)
			x.stands(x.childRun(s).ID, "cancelled")
		}},
	}
}

// unheldBut lets the lease of a run run out, while that of another one is renewed.
func (x *runTest) unheldBut(r, other oapi.Run) {
	x.t.Helper()
	for !x.now().After(r.LeaseUntil.Time()) {
		x.hold(other.ID, engineToken, time.Hour)
		x.advance(30 * time.Minute)
	}
}

func (x *runTest) cascade() {
	r := x.running("")
	inner := x.step(r, `"step_name":"inner","position":0,`+subRun(""))
	middle := x.driven(x.childRun(inner))
	each := x.stepAt(middle, "running", `"step_name":"each","role":"foreach"`)
	var added []oapi.RunItem
	for _, a := range flowAs[oapi.AddedRunItems](x.add(middle, each.ID, ticket("1", workChild("")), ticket("2", subRun("")), ticket("3")).Want(http.StatusOK)).Items {
		added = append(added, a.Item)
	}
	lowest := x.driven(x.get(runOf(x.t, added[1].ChildRunID)))
	deep, own := x.step(lowest, workChild("")), x.step(r, `"step_name":"own","position":1,`+workChild(""))
	gate := x.gate(lowest, "")
	x.do(middle, "wait", `"blocked_on":{"type":"child","step_id":"`+each.ID.String()+`"}`)
	for _, id := range []uuid.UUID{middle.ID, lowest.ID} {
		x.release(x.get(id), "")
	}
	x.release(r, "")
	n, m := len(x.events(r.ID)), len(x.events(lowest.ID))
	x.cancelled(r, `"reason":"not today"`) // and nothing is swept
	for _, id := range []uuid.UUID{middle.ID, lowest.ID} {
		if got := x.stands(id, "cancelled"); orNone(got.CancelReason) != "parent_cancelled" || orNone(got.ResultSummary) != "not today" {
			x.t.Errorf("%+v", got)
		}
	}
	x.public("cancelled", *added[0].ChildExecutionID, *deep.ChildExecutionID, *own.ChildExecutionID)
	x.outcome(lowest, gate.ID, "cancelled", "local")
	x.itemised(middle, each.ID, "1 cancelled", "2 cancelled", "3 cancelled")
	x.statuses(r, "inner cancelled", "own cancelled")
	if open := x.inbox(""); len(open) != 0 {
		x.t.Errorf("%+v", open)
	}
	x.replies(r.ID, n, "run.cancelled", "0 run_step.cancelled", "0 run_step.cancelled", "0 execution.cancelled")
	events := x.events(lowest.ID)[m:]
	if events[0].Type != "run.cancelled" || events[0].Actor != "local" || !events[0].At.Equal(oapi.Time(x.now())) {
		x.t.Errorf("%+v", events[0])
	}
	settled := len(x.events(lowest.ID))
	x.advance(time.Hour)
	x.replies(lowest.ID, settled)
}

func (x *runTest) cascadeGrace() {
	r := x.running("")
	held, idle := x.step(r, `"step_name":"held","position":0,`+workChild(`"priority":1`)), x.step(r, `"step_name":"idle","position":1,`+workChild(""))
	c := x.claimed(held)
	inner := x.step(r, `"step_name":"inner","position":2,`+subRun(""))
	quick := x.step(r, `"step_name":"quick","position":3,`+subRun(""))
	child := x.driven(x.childRun(inner))
	deadline := x.now().Add(time.Minute)
	x.cancelled(r, `"deadline_ms":60000`)
	x.statuses(r, "held running", "idle cancelled", "inner running", "quick cancelled")
	x.public("cancelled", *idle.ChildExecutionID)
	e := x.execution(*held.ChildExecutionID)
	if e.PublicState != "active" || e.Cancellation == nil || !e.Cancellation.DeadlineAt.Time().Equal(deadline) {
		x.t.Errorf("%+v", e.Cancellation)
	}
	if got := x.stands(child.ID, "cancelling"); !got.Cancellation.DeadlineAt.Time().Equal(deadline) || orNone(got.CancelReason) != "parent_cancelled" {
		x.t.Errorf("%+v", got.Cancellation)
	}
	x.stands(x.childRun(quick).ID, "cancelled")
	renewed := x.workers(runLane).report(c, "renew", "").Want(http.StatusOK)
	if diff := cmp.Diff([]any{"cancel"}, renewed.Get("directives")); diff != "" {
		x.t.Errorf("directives (-want +got):\n%s", diff)
	}
	x.report(c, "cancel", "")
	x.stepped(r, held.ID, "cancelled")
	x.advance(time.Minute)
	x.stands(r.ID, "cancelled")
	x.stands(child.ID, "cancelled")
	x.stepped(r, inner.ID, "cancelled")
}

// TestRuns_ManyChildren: what one transaction does not end is ended by the sweep, a few at a time.
func TestRuns_ManyChildren(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()), func(c *app.Config) { c.Batch = 3 })
		for i, c := range withKin([]runCase{
			{"cancelled at once", func(x *runTest) { x.manyChildren(func(r oapi.Run) { x.release(r, ""); x.cancelled(r, "") }) }},
			{"cancelled by its engine", func(x *runTest) { x.manyChildren(func(r oapi.Run) { x.cancelled(r, ""); x.do(r, "cancel", "") }) }},
			{"forced", func(x *runTest) { x.manyChildren(func(r oapi.Run) { x.cancelled(r, ""); x.advance(5 * time.Second) }) }},
			{"failed", func(x *runTest) { x.manyChildren(func(r oapi.Run) { x.do(r, "fail", `"error":"no disk"`) }) }},
			{"its steps ended", func(x *runTest) {
				x.manyChildren(func(r oapi.Run) {
					for _, step := range x.steps(r, "") {
						x.moved(r, step.ID, `"status":"failed"`)
					}
				})
			}},
		}) {
			t.Run(c.name, func(t *testing.T) {
				x := runsOn(t, s, fmt.Sprint("m", i))
				c.run(x)
				x.audit()
			})
		}
	})
}

// TestRuns_ManyOfAFlow: what the end of a flow does to the runs in it is done a few at a time, to all of them.
func TestRuns_ManyOfAFlow(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()), func(c *app.Config) { c.Batch = 3 })
		for verb, pending := range map[string]bool{`cancel {"policy":"cancel_all","reason":"not today"}`: false, `cancel {"policy":"cancel_pending"}`: true, `fail {"reason":"no disk"}`: false} {
			t.Run(verb, func(t *testing.T) {
				verb, body, _ := strings.Cut(verb, " ")
				x := runsOn(t, s, fmt.Sprint("of-", verb, pending))
				f := x.flowTest.running("")
				var idle, driven []uuid.UUID
				for range 10 {
					idle, driven = append(idle, x.create(inFlow(f)).ID), append(driven, x.running(inFlow(f)).ID)
				}
				x.flowTest.do(f.ID, verb, body)
				if n := len(flowAs[oapi.RunList](x.Get("/v1/runs?status=pending").Want(http.StatusOK)).Items); n < 5 {
					t.Errorf("one transaction has left only %d", n)
				}
				s.Settle()
				for _, id := range idle {
					x.stands(id, "cancelled")
				}
				for _, id := range driven {
					x.stands(id, map[bool]string{false: "cancelling", true: "running"}[pending])
				}
				x.audit()
			})
		}
	})
}

// manyChildren ends, somehow, a run with many executions and runs, and checks that none is left.
func (x *runTest) manyChildren(end func(r oapi.Run)) {
	x.t.Helper()
	r := x.running("")
	each := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
	items := make([]string, 20)
	for i := range items {
		items[i] = ticket(fmt.Sprint(i), workChild(""))
		if i%2 == 1 {
			items[i] = ticket(fmt.Sprint(i), subRun(""))
		}
	}
	x.add(r, each.ID, items...).Want(http.StatusOK)
	x.step(r, `"step_name":"inner",`+subRun(""))
	x.step(r, `"step_name":"work",`+workChild(`"priority":-1`))
	held := x.workers(runLane).claim(lasting)
	end(r)
	x.server.Settle()
	for _, it := range x.listItems(r, each.ID, "") {
		if it.Status != "cancelled" {
			x.t.Errorf("item %s is %s", it.ItemID, it.Status)
		}
		if it.ChildExecutionID != nil {
			x.public("cancelled", *it.ChildExecutionID)
			continue
		}
		x.stands(runOf(x.t, it.ChildRunID), "cancelled")
	}
	x.public("cancelled", held.Execution.ID)
	if open := x.list("&active=true&parent_workflow_run_id=" + r.ID.String()); len(open) != 0 {
		x.t.Errorf("%d runs in it are open", len(open))
	}
	x.workers(runLane).none("")
}
