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

// TestRuns_Children: executions and runs that do the work of steps and items, flows that have runs, and what it all looks like as a tree.
// reference: runs-and-taskflows.md F4, F5 1, 2, 5 to 8 and 10, F6; D6 51.
func TestRuns_Children(t *testing.T) {
	t.Parallel()
	runRunGroups(t, []runGroup{
		{"executions", withKin(slices.Concat(runWorkCases(), runWorkEndCases()))},
		{"results", withKin(runResultCases())},
		{"runs", withKin(slices.Concat(runSubrunCases(), runSubrunTimeCases()))},
		{"items", withKin(slices.Concat(runChildItemCases(), runChildItemEndCases()))},
		{"links", withKin(slices.Concat(runLinkCases(), runLinkMoreCases))},
		{"cycles", withKin(runCycleCases())},
		{"refusals", withKin(slices.Concat(runChildRefusalCases(), runChildRuleCases()))},
		{"flows", withKin(slices.Concat(runFlowCases(), runFlowLinkCases()))},
		{"flows wait", withKin(runFlowWaitCases())},
		{"flows end", withKin(runFlowEndCases())},
		{"tree", runTreeCases()},
	})
}

// childEnd is an end of an execution, and how it comes to it.
type childEnd struct {
	execution, step, item string
	stepError             string
	end                   func(x *runTest, s oapi.RunStep)
}

// childEnds are all ends but skipped, which needs a graph. members are those of the execution that it needs.
var childEnds = []childEnd{
	{"completed", "completed", "completed", "", func(x *runTest, s oapi.RunStep) { x.report(x.claimed(s), "complete", "") }},
	{"failed", "failed", "failed", "boom", func(x *runTest, s oapi.RunStep) {
		x.report(x.claimed(s), "fail", `"reason":"boom","category":"permanent"`)
	}},
	{"cancelled", "cancelled", "cancelled", "", func(x *runTest, s oapi.RunStep) {
		x.workers(runLane).operated(*s.ChildExecutionID, "operator-cancel", `"reason":"no"`)
	}},
	{"cancelled", "cancelled", "cancelled", "", func(x *runTest, s oapi.RunStep) { x.report(x.claimed(s), "cancel", "") }},
	{"expired", "timed_out", "failed", "", func(x *runTest, _ oapi.RunStep) { x.advance(time.Minute) }},
}

// mortal is the child that is an execution which expires in a minute.
func (x *runTest) mortal() string {
	return workChild(`"deadline_at":` + spelled(x.now().Add(time.Minute)))
}

func runWorkCases() []runCase {
	return []runCase{
		{"it is made and linked with its step, and works for the run (F5 1, A13 12)", func(x *runTest) {
			r := x.running("")
			n := len(x.events(r.ID))
			s := x.step(r, workChild(`"kind":"compile","payload":{"n":1}`))
			e := x.execution(*s.ChildExecutionID)
			if s.Status != "pending" || s.ChildRunID != nil || e.RunID == nil || *e.RunID != r.ID || e.Kind != "compile" || string(e.Payload) != `{"n":1}` || e.PublicState != "waiting" {
				x.t.Errorf("%+v %+v", s, e)
			}
			x.replies(r.ID, n, "execution.created", "run_step.inserted")
			if diff := cmp.Diff(s.ChildExecutionID, x.read(r, s.ID).Attempts[0].ChildExecutionID); diff != "" {
				x.t.Errorf("the attempt's (-want +got):\n%s", diff)
			}
		}},
		{"whoever claims it starts the step, and whoever suspends it makes it wait (F4, F5 5)", (*runTest).executionSuspends},
		{"every end of it is an end of the step, in the same transaction (F4, F5 2, D6 51)", func(x *runTest) {
			for _, c := range childEnds {
				r := x.running("")
				s := x.step(r, x.mortal())
				n := len(x.events(r.ID))
				c.end(x, s)
				x.public(c.execution, *s.ChildExecutionID)
				got := x.stepped(r, s.ID, c.step)
				if orNone(got.StepError) != c.stepError && c.stepError != "" || !got.EndedAt.Time().Equal(x.now()) {
					x.t.Errorf("%s: %+v", c.execution, got)
				}
				events := x.events(r.ID)[n:]
				last, end := events[len(events)-1], -1
				for i, e := range events {
					if e.Type == "execution."+c.execution {
						end = i
					}
				}
				if end < 0 || last.Type != "run_step."+c.step || last.Cause == nil || *last.Cause != events[end].ID {
					x.t.Errorf("%s: %+v", c.execution, events)
				}
				x.stands(r.ID, "running")
			}
		}},
		{"what a graph skips is skipped (F4)", func(x *runTest) {
			f := x.flowTest.create(fmt.Sprintf(`"graph":{"executions":[{"key":"a","lane":%q},{"key":"b","lane":"idle","needs":["a"]}]}`, runLane))
			r := x.running("")
			s := x.step(r, knownChild("execution_id", f.Graph.Executions["b"]))
			x.workers(runLane).report(x.workers(runLane).claim(lasting), "fail", `"reason":"boom","category":"permanent"`).Want(http.StatusOK)
			x.public("skipped", *s.ChildExecutionID)
			x.stepped(r, s.ID, "skipped")
		}},
		{"retries and takeovers are its own, and do not fail the step (F5 2)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(retryPolicy(2)))
			x.report(x.claimed(s), "fail", `"reason":"flaky","category":"transient"`)
			x.stepped(r, s.ID, "running")
			x.advance(retryDelay)
			x.workers(runLane).claim(`"lease_ttl_ms":1000`)
			x.advance(2 * time.Second)
			c := x.claimed(s) // another one takes it over
			if c.Kind != "reclaimed" {
				x.t.Errorf("it was %s", c.Kind)
			}
			x.stepped(r, s.ID, "running")
			x.report(c, "release", "")
			x.stepped(r, s.ID, "running")
			x.report(x.claimed(s), "complete", `"result":"well"`)
			if got := x.stepped(r, s.ID, "completed"); got.RetryCount != 0 || len(got.Attempts) != 1 || orNone(got.ResultText) != "well" {
				x.t.Errorf("%+v", got)
			}
		}},
	}
}

func runWorkEndCases() []runCase {
	return []runCase{
		{"the engine says nothing of it while it is at work, but may end it (decisions)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			refuses := func(from, to string) {
				answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.patch(r, s.ID, `"status":`+quoted(to)) }, r.ID)
				x.facts(answer, map[string]any{"from": from, "to": to})
			}
			refuses("pending", "running")
			refuses("pending", "waiting")
			c := x.claimed(s)
			refuses("running", "waiting")
			x.workers(runLane).suspend(c, waitForGo)
			refuses("waiting", "running")
		}},
		{"an end by the engine ends it, with the words of the engine", func(x *runTest) {
			for _, to := range []string{"completed", "failed", "skipped", "timed_out", "cancelled"} {
				r := x.running("")
				s := x.step(r, workChild(""))
				x.claimed(s)
				n := len(x.events(r.ID))
				x.moved(r, s.ID, fmt.Sprintf(`"status":%q,"result_text":"enough","step_error":null`, to))
				x.public("cancelled", *s.ChildExecutionID)
				got := x.stepped(r, s.ID, to)
				if orNone(got.ResultText) != "enough" || *got.ChildExecutionID != *s.ChildExecutionID {
					x.t.Errorf("%+v", got)
				}
				events := x.events(r.ID)[n:]
				if events[0].Type != "run_step."+to || len(events) < 2 || events[len(events)-1].Cause == nil {
					x.t.Errorf("%s: %+v", to, events)
				}
			}
		}},
		{"a retry leaves the child to its attempt, and ends it", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			x.claimed(s)
			x.moved(r, s.ID, `"status":"running","retry_count":1,"step_error":"stuck",`+workChild(""))
			x.public("cancelled", *s.ChildExecutionID)
			got := x.read(r, s.ID)
			if *got.ChildExecutionID == *s.ChildExecutionID || *got.Attempts[0].ChildExecutionID != *s.ChildExecutionID || orNone(got.Attempts[0].StepError) != "stuck" || got.Attempts[0].Status != "failed" {
				x.t.Errorf("%+v", got)
			}
			x.report(x.claimed(got), "complete", "")
			x.stepped(r, s.ID, "completed")
		}},
		{"what has ended stays so when its child is replayed (D2 9)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			x.report(x.claimed(s), "fail", `"reason":"boom","category":"permanent"`)
			before := x.read(r, s.ID)
			x.workers(runLane).operated(*s.ChildExecutionID, "replay", "")
			x.report(x.claimed(s), "complete", `"result":"well"`)
			x.public("completed", *s.ChildExecutionID)
			if diff := cmp.Diff(before, x.read(r, s.ID)); diff != "" {
				x.t.Errorf("(-before +after):\n%s", diff)
			}
		}},
		{"a run is not complete while they are at work (D2 12)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"a",`+workChild(""))
			x.create(`"parent_workflow_run_id":"` + r.ID.String() + `"`)
			answer := x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.verb(r, "complete", "") }, r.ID)
			x.facts(answer, map[string]any{"count": 2.0})
			x.report(x.claimed(s), "complete", "")
			answer = x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.verb(r, "complete", "") }, r.ID)
			x.facts(answer, map[string]any{"count": 1.0})
		}},
	}
}

func (x *runTest) executionSuspends() {
	r := x.running("")
	s := x.step(r, workChild(""))
	n := len(x.events(r.ID))
	x.advance(time.Second)
	c := x.claimed(s)
	got := x.stepped(r, s.ID, "running")
	if !got.StartedAt.Time().Equal(x.now()) || !got.Attempts[0].StartedAt.Time().Equal(x.now()) {
		x.t.Errorf("%+v", got)
	}
	x.replies(r.ID, n, "lease.acquired", "0 run_step.started")
	x.advance(time.Second)
	suspended := x.workers(runLane).suspend(c, strings.Replace(waitOn(onSignal("k", wildcard), "k"), "waiting_for_signal", "waiting_for_approval", 1))
	waiting := x.stepped(r, s.ID, "waiting")
	if !waiting.StartedAt.Time().Equal(got.StartedAt.Time()) {
		x.t.Errorf("%+v", waiting)
	}
	if items := x.inbox("?run_id=" + r.ID.String()); len(items) != 1 || items[0].Kind != "waitpoint" || *items[0].ExecutionID != *s.ChildExecutionID { // once, and as what it is
		x.t.Errorf("%+v", items)
	}
	x.stands(r.ID, "running")
	n = len(x.events(r.ID))
	x.workers(runLane).receipt(*s.ChildExecutionID, suspended.Waitpoints[0], "")
	x.stepped(r, s.ID, "running")
	types := []string{}
	for _, e := range x.events(r.ID)[n:] {
		types = append(types, e.Type)
	}
	if diff := cmp.Diff([]string{"signal.delivered", "execution.resumed", "run_step.started"}, types); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
	if items := x.inbox(""); len(items) != 0 {
		x.t.Errorf("%+v", items)
	}
	x.report(x.claimed(s), "complete", "")
	x.stepped(r, s.ID, "completed")
}

func runResultCases() []runCase {
	long := strings.Repeat("x", 20_000)
	return []runCase{
		{"what it was completed with is the outputs of the step (F5 2)", func(x *runTest) {
			for i, row := range []struct{ result, text, context, markers, structured string }{
				{`"built 1.4.0"`, "built 1.4.0", "", "null", "null"},
				{`""`, "", "", "null", "null"},
				{`{"result_text":"built","context_out":"ctx","markers_out":["a","b"],"structured_output":{"n":1.0}}`, "built", "ctx", `["a","b"]`, `{"n":1.0}`},
				{`{"context_out":"ctx","other":1}`, "", "ctx", "null", `{"context_out":"ctx","other":1}`},
				{`{"markers_out":[],"structured_output":null}`, "", "", `[]`, `null`},
				{`{"n": 12345678901234567890.10}`, "", "", "null", `{"n":12345678901234567890.10}`},
				{`{"markers_out":"a","result_text":7}`, "", "", "null", `{"markers_out":"a","result_text":7}`},
				{`[1,2]`, "", "", "null", `[1,2]`}, {`true`, "", "", "null", `true`}, {`null`, "", "", "null", "null"},
				{quoted(long), long, "", "null", "null"},
			} {
				r := x.running("")
				s := x.step(r, workChild(""))
				x.report(x.claimed(s), "complete", `"result":`+row.result)
				got := x.stepped(r, s.ID, "completed")
				markers := "null"
				if got.MarkersOut != nil {
					markers = string(bodyJSON(x.t, got.MarkersOut))
				}
				if orNone(got.ResultText) != row.text || orNone(got.ContextOut) != row.context || markers != row.markers || string(got.StructuredOutput) != row.structured || got.StepError != nil {
					x.t.Errorf("row %d, %s: %+v %s", i, row.result, got, got.StructuredOutput)
				}
			}
		}},
		{"no result and one that is not JSON say nothing", func(x *runTest) {
			for _, complete := range []func(c oapi.Claim){
				func(c oapi.Claim) { x.report(c, "complete", "") },
				func(c oapi.Claim) {
					x.Post("/v1/executions/"+c.Execution.ID.String()+"/complete", []byte{0, 1, 0xff}, "Content-Type: application/octet-stream", "Flowapi-Handle: "+c.Handle).Want(http.StatusOK)
				},
			} {
				r := x.running("")
				s := x.step(r, workChild(""))
				complete(x.claimed(s))
				got := x.stepped(r, s.ID, "completed")
				if got.ResultText != nil || got.ContextOut != nil || got.MarkersOut != nil || string(got.StructuredOutput) != "null" {
					x.t.Errorf("%+v", got)
				}
			}
		}},
		{"what the engine has said before stays where the result says nothing (decisions)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			x.moved(r, s.ID, `"status":"running","result_text":"begun","context_out":"mine","markers_out":["m"],"structured_output":{"a":1},`+workChild(""))
			x.report(x.claimed(x.read(r, s.ID)), "complete", `"result":"done"`)
			got := x.stepped(r, s.ID, "completed")
			if orNone(got.ResultText) != "done" || orNone(got.ContextOut) != "mine" || len(got.MarkersOut) != 1 || string(got.StructuredOutput) != `{"a":1}` {
				x.t.Errorf("%+v", got)
			}
		}},
		{"a failure is the error of the step, and only that", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			x.report(x.claimed(s), "fail", `"reason":"no disk\nsecond line","category":"permanent"`)
			if got := x.stepped(r, s.ID, "failed"); orNone(got.StepError) != "no disk\nsecond line" || got.ResultText != nil {
				x.t.Errorf("%+v", got)
			}
		}},
	}
}

func runSubrunCases() []runCase {
	return []runCase{
		{"it is made and linked with its step (F5 6, A13 12 and 45)", func(x *runTest) {
			r := x.running(`"inputs":{"outer":1}`)
			n := len(x.events(r.ID))
			s := x.step(r, `"role":"workflow",`+subRun(`"workflow_name":"build","inputs":{"n":1},"iteration":3,"dry_run":true`))
			child := x.childRun(s)
			if s.Status != "pending" || s.ChildExecutionID != nil || *child.ParentWorkflowRunID != r.ID || *child.ParentStepID != s.ID || child.ParentItemID != nil || child.Iteration != 3 ||
				string(child.Inputs) != `{"n":1}` || !child.DryRun || child.Status != "pending" || child.Generation != 0 {
				x.t.Errorf("%+v %+v", s, child)
			}
			x.replies(r.ID, n, "run_step.inserted")
			x.saying(x.replies(child.ID, 0, "run.created")[0], map[string]any{"workflow_name": "build", "trigger": "manual", "dry_run": true, "parent_workflow_run_id": r.ID.String(), "step_id": s.ID.String()})
		}},
		{"its step is what it is, all the way (F4)", (*runTest).subrunStatuses},
		{"every end of it is an end of the step, in the same transaction (F4, D6 51)", func(x *runTest) {
			for _, c := range []struct{ end, step, text, fails string }{
				{`complete "result_summary":"well"`, "completed", "well", ""}, {`complete `, "completed", "", ""}, {`fail "error":"no disk","result_summary":"sad"`, "failed", "sad", "no disk"},
				{`fail "error":"no disk"`, "failed", "", "no disk"}, {`cancel "reason":"not today"`, "cancelled", "not today", "not today"}, {`cancel `, "cancelled", "", ""},
			} {
				r := x.running("")
				s := x.step(r, subRun(""))
				child := x.driven(x.childRun(s))
				n, m := len(x.events(r.ID)), len(x.events(child.ID))
				verb, members, _ := strings.Cut(c.end, " ")
				x.do(child, verb, members)
				got := x.stepped(r, s.ID, c.step)
				if orNone(got.ResultText) != c.text || orNone(got.StepError) != c.fails {
					x.t.Errorf("%s: %q %q", c.end, orNone(got.ResultText), orNone(got.StepError))
				}
				e, cause := x.replies(r.ID, n, "? run_step."+c.step)[0], x.events(child.ID)[m]
				if *e.Cause != cause.ID {
					x.t.Errorf("%s: %+v because of %+v", c.end, e, cause)
				}
			}
		}},
	}
}

func runSubrunTimeCases() []runCase {
	return []runCase{
		{"what time does to it is done to its step", func(x *runTest) {
			r := x.running("")
			s := x.step(r, subRun(""))
			child := x.driven(x.childRun(s))
			x.do(child, "wait", fmt.Sprintf(`%s,"deadline":%s,"on_timeout":"fail"`, blockedOn, spelled(x.now().Add(time.Minute))))
			x.stepped(r, s.ID, "waiting")
			x.advance(time.Minute)
			if got := x.stepped(r, s.ID, "failed"); orNone(got.StepError) != "wait_timeout" {
				x.t.Errorf("%+v", got)
			}
		}},
		{"a child that goes on again leaves its step as it is (D2 9)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, subRun(""))
			child := x.driven(x.childRun(s))
			x.do(child, "fail", `"error":"no disk"`)
			before := x.read(r, s.ID)
			x.again(child, "")
			x.hold(child.ID, engineToken, time.Hour)
			x.do(x.get(child.ID), "complete", "")
			if diff := cmp.Diff(before, x.read(r, s.ID)); diff != "" {
				x.t.Errorf("(-before +after):\n%s", diff)
			}
		}},
		{"a run in a run without a step is ended with it, and no step says so", func(x *runTest) {
			r := x.running("")
			child := x.create(`"parent_workflow_run_id":"` + r.ID.String() + `"`)
			if *child.ParentWorkflowRunID != r.ID || child.ParentStepID != nil {
				x.t.Errorf("%+v", child)
			}
			x.driven(child)
			x.release(x.get(child.ID), "")
			x.do(r, "fail", `"error":"no disk"`)
			x.stands(child.ID, "cancelled")
			for _, status := range []string{"completed", "failed", "cancelled", "cancelling"} {
				ended := x.at(status)
				code := fault.CodeRunTerminal
				if status == "cancelling" {
					code = fault.CodeRunCancelled
				}
				x.refused(code, func() *apitest.Response {
					return x.Post("/v1/runs", `{"workflow_name":"x","parent_workflow_run_id":"`+ended.ID.String()+`"}`)
				}, ended.ID)
			}
			x.missing("run", func() *apitest.Response {
				return x.Post("/v1/runs", `{"workflow_name":"x","parent_workflow_run_id":"`+uuid.NewString()+`"}`)
			})
		}},
	}
}

func (x *runTest) subrunStatuses() {
	r := x.running("")
	s := x.step(r, subRun(""))
	child := x.childRun(s)
	x.hold(child.ID, engineToken, time.Hour)
	x.stepped(r, s.ID, "pending")
	x.advance(time.Second)
	child = x.do(x.get(child.ID), "start", "")
	if got := x.stepped(r, s.ID, "running"); !got.StartedAt.Time().Equal(x.now()) {
		x.t.Errorf("%+v", got)
	}
	x.do(child, "wait", blockedOn)
	x.stepped(r, s.ID, "waiting")
	x.do(child, "resume", "")
	x.stepped(r, s.ID, "running")
	gate := x.gate(child, "") // moves no run, so no step either
	x.stepped(r, s.ID, "running")
	x.decided(child, gate.ID, "approve", "")
	x.release(child, `"needs_resume":true`)
	x.stepped(r, s.ID, "running")
	x.again(child, "")
	x.hold(child.ID, engineToken, time.Hour)
	child = x.get(child.ID)
	x.cancelled(child, "")
	x.stepped(r, s.ID, "running") // cancelling
	x.do(child, "cancel", "")
	x.stepped(r, s.ID, "cancelled")
	var told []string
	for _, e := range x.events(r.ID) {
		if strings.HasPrefix(e.Type, "run_step.") {
			told = append(told, e.Type)
		}
	}
	if diff := cmp.Diff([]string{"run_step.inserted", "run_step.started", "run_step.waiting", "run_step.started", "run_step.cancelled"}, told); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
}
