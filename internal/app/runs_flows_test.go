package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// inFlow is the member that puts a run into a flow.
func inFlow(f oapi.Flow) string { return `"flow_id":"` + f.ID.String() + `"` }

// mirrored checks the step of a flow that shows a run, and returns it.
func (x *runTest) mirrored(f oapi.Flow, run uuid.UUID, status, result string) oapi.FlowStep {
	x.t.Helper()
	s := x.flowTest.step(f.ID, run.String())
	if string(s.Status) != status || string(s.Result) != result || s.WorkflowRunID == nil || *s.WorkflowRunID != run {
		x.t.Fatalf("the flow's step of run %s is %s with %s, want %s with %s", run, s.Status, s.Result, status, result)
	}
	return s
}

func runFlowCases() []runCase {
	return []runCase{
		{"a run of a flow is a step of it, which is what the run is (F5 7, F4)", (*runTest).flowMirrors},
		{"the same create at once in many flows is a run of one, and a step of that one alone", func(x *runTest) {
			flows, ids := make([]oapi.Flow, 8), make([]uuid.UUID, 8)
			for i := range flows {
				flows[i], ids[i] = x.flowTest.running(""), uuid.New()
			}
			for _, answer := range flowsAtOnce(len(flows)*len(ids), func(i int) *apitest.Response {
				return x.Post("/v1/runs", fmt.Sprintf(`{"id":%q,"workflow_name":"w",%s}`, ids[i/len(flows)], inFlow(flows[i%len(flows)])))
			}) {
				if answer.Status != http.StatusCreated {
					answer.Want(http.StatusOK)
				}
			}
			want, got := map[uuid.UUID]int{}, map[uuid.UUID]int{}
			for _, id := range ids {
				want[*x.get(id).FlowID]++
			}
			for _, f := range flows {
				if n := len(x.flowTest.steps(f.ID)); n > 0 {
					got[f.ID] = n
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("runs of the flows, and steps of them (-want +got):\n%s", diff)
			}
		}},
		{"every end of the run is an end of the step, with what the run says (F4)", func(x *runTest) {
			for _, c := range []struct{ verb, members, status, result string }{
				{"complete", `"result_summary":"well"`, "succeeded", `{"status":"completed","result_summary":"well"}`}, {"complete", "", "succeeded", `{"status":"completed"}`},
				{"fail", `"error":"no disk","result_summary":"sad"`, "failed", `{"status":"failed","result_summary":"sad","error":"no disk"}`},
				{"cancel", `"reason":"not today"`, "cancelled", `{"status":"cancelled","result_summary":"not today","cancel_reason":"engine_shutdown"}`},
			} {
				f := x.flowTest.running("")
				r := x.running(inFlow(f))
				m := len(x.events(r.ID))
				x.do(r, c.verb, c.members)
				x.mirrored(f, r.ID, c.status, c.result)
				told, cause := x.trail(f.ID, "")[0], x.events(r.ID)[m]
				if told.Type != "step.observed" || told.Cause == nil || *told.Cause != cause.ID {
					x.t.Errorf("%s because of %v, want %d", told.Type, told.Cause, cause.ID)
				}
				x.flowTest.stands(f.ID, "running", 1) // what it means is the controller's to say
			}
		}},
		{"a resume makes it run again, and the next end is its result", func(x *runTest) {
			f := x.flowTest.running("")
			r := x.running(inFlow(f))
			x.do(r, "fail", `"error":"no disk"`)
			x.again(r, "")
			x.mirrored(f, r.ID, "running", `{"status":"failed","error":"no disk"}`) // as with an execution that is replayed
			x.hold(r.ID, engineToken, time.Hour)
			x.do(x.get(r.ID), "complete", "")
			x.mirrored(f, r.ID, "succeeded", `{"status":"completed"}`)
		}},
		{"runs in it belong to its flow, unless they say otherwise (F5 12)", func(x *runTest) {
			f, other := x.flowTest.running(""), x.flowTest.running("")
			r := x.running(inFlow(f))
			step, bare, own := x.childRun(x.step(r, subRun(""))), x.create(`"parent_workflow_run_id":"`+r.ID.String()+`"`), x.childRun(x.step(r, `"step_name":"own",`+subRun(inFlow(other))))
			for id, of := range map[uuid.UUID]oapi.Flow{r.ID: f, step.ID: f, bare.ID: f, own.ID: other} {
				if got := x.get(id); got.FlowID == nil || *got.FlowID != of.ID {
					x.t.Errorf("%s is in the flow %v", id, got.FlowID)
				}
			}
			if steps := x.flowTest.steps(f.ID); len(steps) != 3 {
				x.t.Errorf("%+v", steps)
			}
			x.mirrored(other, own.ID, "pending", "null")
			if e := x.execution(*x.step(r, `"step_name":"work",`+workChild("")).ChildExecutionID); e.FlowID != nil { // a member of a flow it is made by saying so
				x.t.Errorf("%v", e.FlowID)
			}
		}},
	}
}

func runFlowLinkCases() []runCase {
	return []runCase{
		{"a flow that has ended or that there is not takes no run", func(x *runTest) {
			for _, status := range []oapi.FlowStatus{"finished", "failed", "cancelled"} {
				f := x.flowTest.at(status)
				x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.Post("/v1/runs", `{"workflow_name":"x",`+inFlow(f)+`}`) })
			}
			foreign := x.flowTest.in(x.namespace + "-other").running("")
			for _, id := range []uuid.UUID{uuid.New(), foreign.ID} {
				x.missing("flow", func() *apitest.Response {
					return x.Post("/v1/runs", `{"workflow_name":"x","flow_id":"`+id.String()+`"}`)
				})
			}
		}},
		{"steps that a controller links to a run mirror it, too", func(x *runTest) {
			f, r := x.flowTest.running(""), x.running("")
			made := flowAs[oapi.FlowStep](x.observe(f.ID, "outside", `"status":"pending","workflow_run_id":"`+r.ID.String()+`"`).Want(http.StatusCreated))
			if made.Status != "running" || made.Runtime != "mirrored" {
				x.t.Errorf("%+v", made)
			}
			x.do(r, "complete", `"result_summary":"well"`)
			if got := x.flowTest.step(f.ID, "outside"); got.Status != "succeeded" || string(got.Result) != `{"status":"completed","result_summary":"well"}` {
				x.t.Errorf("%+v", got)
			}
			late := flowAs[oapi.FlowStep](x.flowTest.insert(f.ID, `"run_id":"late","workflow_run_id":"`+r.ID.String()+`"`).Want(http.StatusCreated))
			if late.Status != "succeeded" {
				x.t.Errorf("%+v", late)
			}
			x.missing("run", func() *apitest.Response {
				return x.observe(f.ID, "x", `"status":"running","workflow_run_id":"`+uuid.NewString()+`"`)
			}, r.ID)
			foreign := x.in(x.namespace + "-other").create("")
			x.missing("run", func() *apitest.Response {
				return x.observe(f.ID, "x", `"status":"running","workflow_run_id":"`+foreign.ID.String()+`"`)
			}, r.ID)
		}},
		{"the events of a run of a flow are among those of the flow, its own are not", func(x *runTest) {
			f := x.flowTest.running("")
			r := x.running(inFlow(f))
			x.step(r, "")
			types := map[string]bool{}
			for _, e := range flowAs[oapi.EventList](x.Get("/v1/events?limit=500&flow_id=" + f.ID.String()).Want(http.StatusOK)).Items {
				types[e.Type] = true
			}
			for _, want := range []string{"flow.created", "run.created", "run.started", "run_step.inserted", "step.inserted", "step.observed"} {
				if !types[want] {
					x.t.Errorf("there is no %s in %v", want, types)
				}
			}
			x.flowTest.told(f.ID, "flow.created", "flow.started", "step.inserted", "step.observed")
		}},
	}
}

func (x *runTest) flowMirrors() {
	f := x.flowTest.running("")
	r := x.create(inFlow(f) + `,"definition_snapshot":{"title":"Release 1.4"}`)
	s := x.mirrored(f, r.ID, "pending", "null")
	if s.Runtime != "managed" || s.Task != "Release 1.4" || s.RunID != r.ID.String() || s.ExecutionID != nil {
		x.t.Errorf("%+v", s)
	}
	r = x.driven(r)
	x.mirrored(f, r.ID, "running", "null")
	told := len(x.trail(f.ID, ""))
	x.do(r, "wait", blockedOn)
	x.do(r, "resume", "")
	x.release(r, `"needs_resume":true`)
	x.again(r, "")
	x.hold(r.ID, engineToken, time.Hour)
	r = x.get(r.ID)
	x.cancelled(r, "")
	x.mirrored(f, r.ID, "running", "null") // it is running through all of this
	if n := len(x.trail(f.ID, "")); n != told {
		x.t.Errorf("%d events tell of nothing", n-told)
	}
	x.do(r, "cancel", "")
	x.mirrored(f, r.ID, "cancelled", `{"status":"cancelled","cancel_reason":"user_requested"}`)
	x.flowTest.told(f.ID, "flow.created", "flow.started", "step.inserted", "step.observed", "step.observed")
	x.flowTest.stands(f.ID, "running", 1)
}

// resumeEvent is the payload that a flow gets when what it waits for has ended.
func resumeEvent(subject string, id uuid.UUID, status string) string {
	return fmt.Sprintf(`{"n":1,"resume_event":{"subject":%q,"id":%q,"status":%q}}`, subject, id, status)
}

func runFlowWaitCases() []runCase {
	return []runCase{
		{"the end of a run is an event that flows can wait for (F5 8)", func(x *runTest) {
			for verb, status := range map[string]string{"complete": "completed", "fail": "failed", "cancel": "cancelled"} {
				r := x.running("")
				first, second := x.flowTest.waiting(outside("run."+status, r.ID.String())), x.flowTest.waiting(outside("run."+status, r.ID.String()))
				other, upper := x.flowTest.waiting(outside("run.other", r.ID.String())), x.flowTest.waiting(outside("run."+status, strings.ToUpper(r.ID.String())))
				n := len(x.events(r.ID))
				x.do(r, verb, map[string]string{"fail": `"error":"no disk"`}[verb])
				end := x.events(r.ID)[n]
				for _, f := range []oapi.Flow{first, second} {
					x.state(x.flowTest.stands(f.ID, "running", 3), resumeEvent("run", r.ID, status))
					if e, _ := x.last(f.ID); e.Type != "flow.resumed" || e.Cause == nil || *e.Cause != end.ID {
						x.t.Errorf("%s because of %v, want %d", e.Type, e.Cause, end.ID)
					}
				}
				for _, f := range []oapi.Flow{other, upper} {
					x.flowTest.stands(f.ID, "waiting", 2)
				}
			}
		}},
		{"and that of an execution", func(x *runTest) {
			for _, c := range childEnds {
				r := x.running("")
				s := x.step(r, x.mortal())
				f := x.flowTest.waiting(outside("execution."+c.execution, s.ChildExecutionID.String()))
				c.end(x, s)
				x.state(x.flowTest.stands(f.ID, "running", 3), resumeEvent("execution", *s.ChildExecutionID, c.execution))
			}
		}},
		{"whoever begins to wait is told of an end that has been, as often as it is asked (decisions)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			x.report(x.claimed(s), "complete", "")
			x.do(r, "complete", "")
			for range 2 {
				x.state(x.flowTest.stands(x.flowTest.waiting(outside("run.completed", r.ID.String())).ID, "running", 3), resumeEvent("run", r.ID, "completed"))
				x.state(x.flowTest.stands(x.flowTest.waiting(outside("execution.completed", s.ChildExecutionID.String())).ID, "running", 3), resumeEvent("execution", *s.ChildExecutionID, "completed"))
			}
			x.flowTest.stands(x.flowTest.waiting(outside("run.failed", r.ID.String())).ID, "waiting", 2)
		}},
		{"another end, another subject and another namespace are not it", func(x *runTest) {
			r, foreign := x.running(""), x.in(x.namespace+"-other").at("completed")
			flows := []oapi.Flow{
				x.flowTest.waiting(outside("run.completed", r.ID.String())), x.flowTest.waiting(outside("run.completed", foreign.ID.String())), x.flowTest.waiting(outside("execution.failed", r.ID.String())),
				x.flowTest.waiting(outside("run.failed", uuid.NewString())), x.flowTest.waiting(outside("run.failed", "not an id")),
			}
			x.do(r, "fail", `"error":"no disk"`)
			for _, f := range flows {
				x.flowTest.stands(f.ID, "waiting", 2)
			}
			x.again(r, "")
			x.hold(r.ID, engineToken, time.Hour)
			x.do(x.get(r.ID), "complete", "")
			x.flowTest.stands(flows[0].ID, "running", 3) // the next end is
		}},
		{"of an execution that has failed it is told when that ends well after all", (*runTest).endsWellAfterAll},
		{"it may be one of many conditions", func(x *runTest) {
			a, b := x.running(""), x.running("")
			either := x.flowTest.waiting(anyOf(outside("run.completed", a.ID.String()), outside("run.failed", a.ID.String())))
			both := x.flowTest.waiting(allOf(outside("run.completed", a.ID.String()), outside("run.completed", b.ID.String())))
			x.do(b, "complete", "")
			late := x.flowTest.waiting(allOf(outside("run.failed", a.ID.String()), outside("run.completed", b.ID.String())))
			x.do(a, "fail", `"error":"no disk"`)
			x.flowTest.stands(either.ID, "running", 3)
			x.flowTest.stands(both.ID, "waiting", 2)
			x.flowTest.stands(late.ID, "running", 3)
		}},
		{"an event from outside of the same name is one, too", func(x *runTest) {
			r := x.running("")
			f := x.flowTest.waiting(outside("run.completed", r.ID.String()))
			x.deliver("run.completed", r.ID.String(), `"payload":{"from":"outside"}`)
			x.state(x.flowTest.stands(f.ID, "running", 3), `{"n":1,"resume_event":{"from":"outside"}}`)
		}},
	}
}

func (x *runTest) endsWellAfterAll() {
	w := x.flowTest.workers(x.namespace + "-again")
	e := w.create("")
	w.report(w.claim(""), "fail", `"reason":"no disk"`).Want(http.StatusOK)
	f := x.flowTest.waiting(outside("execution.completed", e.ID.String()))
	w.operator(e.ID, "replay", "").Want(http.StatusOK)
	x.flowTest.stands(f.ID, "waiting", 2)
	w.report(w.claim(""), "complete", "").Want(http.StatusOK)
	x.flowTest.stands(f.ID, "running", 3)
}

func runFlowEndCases() []runCase {
	return []runCase{
		{"a flow that is cancelled or fails cancels its runs (F5 10)", (*runTest).flowEnds},
		{"as its policy says: flow_only leaves them, cancel_pending those that are driven (F5 10)", func(x *runTest) {
			for policy, want := range map[string][2]string{"flow_only": {"pending", "running"}, "cancel_pending": {"cancelled", "running"}, "cancel_all": {"cancelled", "cancelling"}} {
				f := x.flowTest.running("")
				idle, driven := x.create(inFlow(f)), x.running(inFlow(f))
				x.flowTest.do(f.ID, "cancel", `{"policy":`+quoted(policy)+`}`)
				x.stands(idle.ID, want[0])
				x.stands(driven.ID, want[1])
				x.do(driven, "cancel", "")
				x.mirrored(f, driven.ID, "cancelled", string(x.flowTest.step(f.ID, driven.ID.String()).Result)) // it is shown to its end
			}
		}},
		{"a finished flow and one that is asked to end leave them alone", func(x *runTest) {
			f, asked := x.flowTest.running(""), x.flowTest.running("")
			r, other := x.running(inFlow(f)), x.running(inFlow(asked))
			x.flowTest.do(f.ID, "finish", "")
			x.flowTest.do(asked.ID, "request-cancel", "")
			x.stands(r.ID, "running")
			x.stands(other.ID, "running")
			x.do(r, "complete", "")
			x.mirrored(f, r.ID, "succeeded", `{"status":"completed"}`)
		}},
		{"the grace of the flow is the time that engines have", func(x *runTest) {
			f := x.flowTest.running("")
			r := x.running(inFlow(f))
			x.flowTest.do(f.ID, "cancel", `{"grace_ms":60000,"reason":"not today"}`)
			got := x.stands(r.ID, "cancelling")
			if !got.Cancellation.DeadlineAt.Time().Equal(x.now().Add(time.Minute)) || orNone(got.CancelReason) != "parent_cancelled" || orNone(got.Cancellation.Message) != "not today" {
				x.t.Errorf("%+v", got.Cancellation)
			}
			x.advance(time.Minute)
			x.stands(r.ID, "cancelled")
		}},
		{"a deleted flow takes its ended runs along, and lets the others go on (decisions)", func(x *runTest) {
			f := x.flowTest.running("")
			ended, open := x.running(inFlow(f)), x.running(inFlow(f))
			inner := x.childRun(x.step(open, subRun("")))
			busy := x.running(inFlow(f))
			child := x.driven(x.childRun(x.step(busy, subRun(""))))
			x.do(ended, "complete", "")
			x.do(busy, "fail", `"error":"no disk"`) // its child has time to end
			x.flowTest.do(f.ID, "finish", "")
			x.Do(http.MethodDelete, flowPath(f.ID), nil).Want(http.StatusNoContent)
			x.missing("run", func() *apitest.Response { return x.Get(runPath(ended.ID)) })
			for id, status := range map[uuid.UUID]string{open.ID: "running", inner.ID: "pending", busy.ID: "failed", child.ID: "cancelling"} {
				if got := x.stands(id, status); got.FlowID != nil {
					x.t.Errorf("%s is in the flow %v", id, got.FlowID)
				}
			}
			x.do(open, "cancel", "")
		}},
	}
}

func (x *runTest) flowEnds() {
	for verb, reason := range map[string]string{"cancel": "not today", "fail": "flow_failed"} {
		f, other := x.flowTest.running(""), x.flowTest.running("")
		r, idle, given := x.running(inFlow(f)), x.create(inFlow(f)), x.running(inFlow(f))
		x.release(given, `"needs_resume":true`)
		done, apart := x.running(inFlow(f)), x.running(inFlow(other))
		x.do(done, "complete", "")
		s, inner := x.step(r, `"step_name":"a",`+workChild("")), x.childRun(x.step(r, `"step_name":"b",`+subRun("")))
		before := x.get(done.ID)
		x.flowTest.do(f.ID, verb, `{"reason":"not today"}`)
		for _, id := range []uuid.UUID{idle.ID, given.ID, inner.ID} {
			if got := x.stands(id, "cancelled"); orNone(got.CancelReason) != "parent_cancelled" || orNone(got.ResultSummary) != reason {
				x.t.Errorf("%s: because of %q", verb, orNone(got.ResultSummary))
			}
		}
		x.stands(r.ID, "cancelling")
		x.public("cancelled", *s.ChildExecutionID)
		x.stands(apart.ID, "running")
		if diff := cmp.Diff(before, x.get(done.ID)); diff != "" {
			x.t.Errorf("what had ended (-before +after):\n%s", diff)
		}
		cancelled := 0
		for _, e := range x.events(inner.ID) {
			if e.Type == "run.cancelled" {
				cancelled++
			}
		}
		if e := x.events(idle.ID)[1]; cancelled != 1 || e.Type != "run.cancelled" || e.Cause == nil {
			x.t.Errorf("%d times, %+v", cancelled, e)
		}
		x.advance(5 * time.Second)
		x.stands(r.ID, "cancelled")
		x.mirrored(f, r.ID, "cancelled", `{"status":"cancelled","result_summary":"`+reason+`","cancel_reason":"parent_cancelled"}`)
	}
}
