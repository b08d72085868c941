package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// stepStatuses are the statuses of steps, in the order of the columns of the tables below.
var stepStatuses = []string{"pending", "running", "waiting", "completed", "failed", "skipped", "timed_out", "cancelled"}

// runStepTransitionCases drives steps from every status to every other. reference: model.md "Run"; acceptance 6.
func runStepTransitionCases() []runCase {
	const (
		same     = runNothing
		illegal  = fault.CodeIllegalTransition
		terminal = fault.CodeStepTerminal
		moved    = "moved"
	)
	//                pending   running   waiting   completed failed    skipped   timed_out cancelled
	table := map[string][]runOutcome{
		"pending":       {same, moved, moved, moved, moved, moved, moved, moved},
		"running":       {illegal, same, moved, moved, moved, moved, moved, moved},
		"waiting":       {illegal, moved, same, moved, moved, moved, moved, moved},
		"completed":     {terminal, terminal, terminal, same, terminal, terminal, terminal, terminal},
		"failed":        {terminal, terminal, terminal, terminal, same, terminal, terminal, terminal},
		"skipped":       {terminal, terminal, terminal, terminal, terminal, same, terminal, terminal},
		"timed_out":     {terminal, terminal, terminal, terminal, terminal, terminal, same, terminal},
		"cancelled":     {terminal, terminal, terminal, terminal, terminal, terminal, terminal, same},
		"an open gate":  {illegal, illegal, same, illegal, moved, moved, moved, moved},
		"a child":       {same, illegal, illegal, moved, moved, moved, moved, moved},
		"a busy child":  {illegal, same, illegal, moved, moved, moved, moved, moved},
		"while it ends": {illegal, same, fault.CodeRunCancelled, moved, moved, moved, moved, moved},
		"before it":     {same, fault.CodeRunCancelled, fault.CodeRunCancelled, moved, moved, moved, moved, moved},
	}
	var cases []runCase
	for from, outcomes := range table {
		cases = append(cases, runCase{"from " + from + " (A4.2, A13 25, D2 9)", func(x *runTest) {
			for i, to := range stepStatuses {
				x.sub("to "+to, func(x *runTest) { x.stepTransition(from, to, outcomes[i]) })
			}
		}})
	}
	return cases
}

// stepFrom makes a step that stands where a row of the table begins.
func (x *runTest) stepFrom(from string) (oapi.Run, oapi.RunStep) {
	x.t.Helper()
	r := x.running("")
	switch from {
	case "an open gate":
		return r, x.gate(r, "")
	case "a child", "a busy child":
		e := x.workers(x.namespace + "-" + r.ID.String()[24:])
		s := x.step(r, `"child":{"execution":{"lane":"`+e.lane+`"}}`)
		if from == "a busy child" {
			e.claim("")
			s = x.read(r, s.ID)
		}
		return r, s
	case "while it ends", "before it":
		status := map[string]string{"while it ends": "running", "before it": "pending"}[from]
		s := x.stepAt(r, status, "")
		x.people(r, "cancel", "").Want(http.StatusOK)
		return r, s
	default:
		return r, x.stepAt(r, from, "")
	}
}

// stepTransition brings one step from one status to another.
func (x *runTest) stepTransition(from, to string, want runOutcome) {
	x.t.Helper()
	r, s := x.stepFrom(from)
	call := func() *apitest.Response { return x.patch(r, s.ID, fmt.Sprintf(`"status":%q`, to)) }
	n := len(x.events(r.ID))
	switch want {
	case runNothing:
		if got := flowAs[oapi.PatchedRunStep](x.same(call, r.ID).Want(http.StatusOK)); got.Applied || cmp.Diff(s, got.Step) != "" {
			x.t.Errorf("%+v", got)
		}
	case "moved":
		got := flowAs[oapi.PatchedRunStep](call().Want(http.StatusOK))
		if !got.Applied || string(got.Step.Status) != to || cmp.Diff(got.Step, x.read(r, s.ID)) != "" {
			x.t.Fatalf("%+v", got)
		}
		x.stepHolds(got.Step)
		types := []string{}
		for _, e := range x.events(r.ID)[n:] {
			types = append(types, e.Type)
		}
		event := "run_step." + strings.Replace(to, "running", "started", 1)
		if !slices.Contains(types, event) {
			x.t.Errorf("told %v, and not %s", types, event)
		}
		if s.ChildExecutionID != nil {
			x.workers("").stands(*s.ChildExecutionID, map[string]string{"pending": atCancelledIdle, "running": atCancelled}[string(s.Status)])
		}
	default:
		answer := x.refused(want.(fault.Code), call, r.ID)
		if want != fault.CodeRunCancelled {
			x.facts(answer, map[string]any{"from": string(s.Status), "to": to})
		}
		if want == fault.CodeStepTerminal {
			x.facts(answer, map[string]any{"current_status": string(s.Status)})
		}
	}
}

// stepHolds checks what always goes together in a step. reference: runs-and-taskflows.md D2 10 and 15.
func (x *runTest) stepHolds(s oapi.RunStep) {
	x.t.Helper()
	ended := slices.Index(stepStatuses, string(s.Status)) > 2
	if (s.EndedAt != nil) != ended || len(s.Attempts) != int(s.RetryCount)+1 {
		x.t.Errorf("a step that is %s has the end %v, and %d attempts at retry %d", s.Status, s.EndedAt, len(s.Attempts), s.RetryCount)
	}
	for i, a := range s.Attempts {
		last := i == len(s.Attempts)-1
		if int(a.AttemptIndex) != i || (a.EndedAt == nil) != (last && !ended) || last && a.Status != s.Status {
			x.t.Errorf("attempt %d of %d is %+v", i, len(s.Attempts), a)
		}
	}
	if (s.Status == "running" || s.Status == "waiting") && s.StartedAt == nil {
		x.t.Errorf("a step that is %s was never started", s.Status)
	}
}

// runStepCases: steps as an engine has them. reference: runs-and-taskflows.md A5.5 to A5.7, C2 "Persistence", C3 "Steps" and "Guards".
func runStepCases() []runCase {
	return []runCase{
		{"a plain step is pending and was never started (RM-05, C3 steps)", func(x *runTest) {
			r := x.running("")
			answer := x.insert(r, "").Want(http.StatusCreated)
			id := uuid.MustParse(answer.Str("id"))
			if got := answer.Header.Get("Location"); !strings.HasSuffix(got, stepPath(r, id)) {
				x.t.Errorf("Location %q", got)
			}
			want := docAs[map[string]any](x.t, fmt.Appendf(nil, `{"id":%q,"run_id":%q,"path":"build","step_name":"build","role":"agent","status":"pending","position":0,"iteration":0,
				"retry_count":0,"can_commit":false,"child_run_id":null,"child_execution_id":null,"created_at":%s,"started_at":null,"ended_at":null,"result_text":null,"context_out":null,
				"markers_out":null,"structured_output":null,"step_error":null,"parallel_group_id":null,"gate":null,"fan_out_total":0,"fan_out_pending":0,"fan_out_running":0,
				"fan_out_completed":0,"fan_out_failed":0,"fan_out_skipped":0,"fan_out_cancelled":0,"attempts":[{"attempt_index":0,"status":"pending","child_run_id":null,
				"child_execution_id":null,"started_at":null,"ended_at":null,"step_error":null}]}`, id, r.ID, spelled(x.now())))
			if diff := cmp.Diff(want, answer.JSON()); diff != "" {
				x.t.Errorf("inserted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, x.Get(stepPath(r, id)).Want(http.StatusOK).JSON()); diff != "" {
				x.t.Errorf("read (-want +got):\n%s", diff)
			}
		}},
		{"a step with a retry count is born running (RM-06, C3 steps)", func(x *runTest) {
			r := x.running("")
			n := len(x.events(r.ID))
			s := x.step(r, `"retry_count":0`)
			if s.Status != "running" || s.StartedAt == nil || !s.StartedAt.Equal(x.when(0)) || s.Attempts[0].StartedAt == nil {
				x.t.Errorf("%+v", s)
			}
			x.told(r.ID, n, "run_step.inserted", "run_step.started")
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.insert(r, `"path":"b","retry_count":1`) }, r.ID)
			x.points(answer, fault.InBody, "/retry_count")
		}},
		{"all that a step is given is kept (C3 steps)", func(x *runTest) {
			r, id := x.running(""), uuid.New()
			s := x.step(r, fmt.Sprintf(`"id":%q,"step_name":"verify","path":"body[3]/verify","role":"script","position":7,"iteration":2,"can_commit":true,"parallel_group_id":"g1"`, id))
			if s.ID != id || s.StepName != "verify" || s.Path != "body[3]/verify" || s.Role != "script" || s.Position != 7 || s.Iteration != 2 || !s.CanCommit || *s.ParallelGroupID != "g1" {
				x.t.Errorf("%+v", s)
			}
			if diff := cmp.Diff(s, x.read(r, id)); diff != "" {
				x.t.Errorf("inserted and read differ:\n%s", diff)
			}
			x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.insert(r, fmt.Sprintf(`"id":%q,"path":"other"`, id)) }, r.ID)
		}},
		{"a step is known by its path and iteration, and the same again is the stored row (A5.5, A13 13 and 19, C3 guards)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", `"path":"a"`)
			again := x.same(func() *apitest.Response {
				return x.insert(r, `"path":"a","step_name":"other","role":"script","position":9,"id":"`+uuid.NewString()+`"`)
			}, r.ID).Want(http.StatusOK)
			if again.Header.Get("Idempotent-Replay") != "true" || cmp.Diff(s, flowAs[oapi.RunStep](again)) != "" {
				x.t.Errorf("%v %s", again.Header, again.Body)
			}
			x.step(r, `"path":"a","iteration":1`)
			x.step(r, `"path":"b"`)
			x.moved(r, s.ID, `"status":"completed"`)
			x.same(func() *apitest.Response { return x.insert(r, `"path":"a"`) }, r.ID).Want(http.StatusOK)
			if got := len(x.steps(r, "&step_name=build")); got != 3 {
				x.t.Errorf("%d steps", got)
			}
		}},
		{"a step ends with what it was told, and with nothing else (RM-07, RG-06 to RG-08)", func(x *runTest) {
			r := x.running("")
			for _, c := range []struct{ path, update, text, failure, child string }{
				{"completed", `"status":"completed","result_text":"done"`, "done", "", ""},
				{"failed", `"status":"failed","result_text":"no disk","step_error":"no disk"`, "no disk", "no disk", ""},
				{"failed with child", `"status":"failed","result_text":"no disk","step_error":"no disk","child_run_id":"agent-9"`, "no disk", "no disk", "agent-9"},
			} {
				s := x.stepAt(r, "running", fmt.Sprintf(`"path":%q`, c.path))
				got := x.moved(r, s.ID, c.update)
				if deref(got.ResultText) != c.text || deref(got.StepError) != c.failure || deref(got.ChildRunID) != c.child || got.EndedAt == nil ||
					got.ContextOut != nil || got.MarkersOut != nil || string(got.StructuredOutput) != "null" || got.RetryCount != 0 {
					x.t.Errorf("%s: %+v", c.path, got)
				}
			}
		}},
	}
}

// runStepUpdateCases: what an engine says of a step. reference: runs-and-taskflows.md A5.7, A13 25.
func runStepUpdateCases() []runCase {
	return []runCase{
		{"a write of an old generation changes nothing, whatever the status (RM-08, RS-05 to RS-07)", func(x *runTest) {
			r := x.create("")
			s := x.step(r, "")
			x.hold(r.ID, engineToken, time.Hour)
			for _, status := range stepStatuses {
				answer := x.refused(fault.CodeLeaseLost, func() *apitest.Response {
					return x.patch(r, s.ID, fence(0, fmt.Sprintf(`"status":%q,"result_text":"late"`, status)))
				}, r.ID)
				x.facts(answer, map[string]any{"current_generation": float64(1)})
			}
		}},
		{"a step that has ended stays as it ended, and the same end again changes nothing (RS-08, A13 25, D2 13)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			x.moved(r, s.ID, `"status":"completed","result_text":"ok"`)
			x.advance(time.Minute)
			for range 2 {
				again := x.same(func() *apitest.Response {
					return x.patch(r, s.ID, `"status":"completed","result_text":"other","context_out":null,"retry_count":5`)
				}, r.ID).Want(http.StatusOK)
				if again.Get("applied") != false || again.Str("step.result_text") != "ok" {
					x.t.Errorf("%s", again.Body)
				}
			}
			answer := x.refused(fault.CodeStepTerminal, func() *apitest.Response { return x.patch(r, s.ID, `"status":"failed","step_error":"no disk"`) }, r.ID)
			x.facts(answer, map[string]any{"current_status": "completed", "from": "completed", "to": "failed"})
		}},
		{"what is left out is kept, and null clears it (A5.7, A13 25, D2 14)", runStepPatches},
		{"a write that changes nothing is told to nobody", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			n := len(x.events(r.ID))
			x.moved(r, s.ID, `"status":"running","result_text":"half","structured_output":{"a":1}`)
			x.told(r.ID, n, "run_step.updated")
			again := x.same(func() *apitest.Response {
				return x.patch(r, s.ID, `"status":"running","result_text":"half","structured_output": {"a": 1},"retry_count":0`)
			}, r.ID).Want(http.StatusOK)
			if again.Get("applied") != false {
				x.t.Errorf("%s", again.Body)
			}
		}},
		{"a retry closes the attempt and opens the next one in the same row (A13 22, D2 15)", runStepRetries},
		{"a step that waits and goes on keeps the time of its start (A13 25, D2 10)", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", `"role":"wait"`)
			n, started := len(x.events(r.ID)), *s.StartedAt
			x.moved(r, s.ID, `"status":"running","child_run_id":"agent-1"`)
			for _, status := range []string{"waiting", "running", "waiting", "completed"} {
				x.advance(time.Second)
				s = x.moved(r, s.ID, fmt.Sprintf(`"status":%q`, status))
				if !s.StartedAt.Equal(started) || !s.Attempts[0].StartedAt.Equal(started) || *s.ChildRunID != "agent-1" {
					x.t.Errorf("%s: started at %v, child %v", status, s.StartedAt, s.ChildRunID)
				}
			}
			told := x.told(r.ID, n, "run_step.updated", "run_step.waiting", "run_step.started", "run_step.waiting", "run_step.completed")
			x.equalJSON("told", told[4].Data, fmt.Sprintf(`{"step_id":%q,"step_name":"build","role":"wait","status":"completed","position":0,"iteration":0,"retry_count":0,"child_run_id":"agent-1"}`, s.ID))
			if told[4].Revision != nil || *told[4].RunID != r.ID || told[4].Topic != "run" {
				x.t.Errorf("told %+v", told[4])
			}
		}},
	}
}

// runStepPlaceCases: steps in their runs.
func runStepPlaceCases() []runCase {
	return []runCase{
		{"steps are listed by their positions, in pages, and found by status, role and name (A5.6, A13 40)", runStepLists},
		{"a step is found in its own run only (C3 fan-out)", func(x *runTest) {
			r, other := x.running(""), x.running("")
			s := x.step(r, "")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.Get(stepPath(r, uuid.New())) },
				func() *apitest.Response { return x.Get(stepPath(other, s.ID)) },
				func() *apitest.Response { return x.patch(other, s.ID, `"status":"completed"`) },
				func() *apitest.Response { return x.add(other, s.ID, ticket("1")) },
				func() *apitest.Response { return x.patchItems(other, s.ID) },
				func() *apitest.Response { return x.Get(stepPath(other, s.ID, "items")) },
				func() *apitest.Response { return x.Get(stepPath(other, s.ID, "gate")) },
			} {
				x.facts(x.refused(fault.CodeNotFound, call, r.ID, other.ID), map[string]any{"resource": "step"})
			}
		}},
		{"what runs in a run that is to end may end, and nothing else begins in it (D3 28)", func(x *runTest) {
			r := x.running("")
			s, fan := x.stepAt(r, "running", `"path":"a"`), x.stepAt(r, "running", `"path":"fan","role":"foreach"`)
			it := x.items(r, fan.ID, "1")[0]
			r = flowAs[oapi.Run](x.people(r, "cancel", "").Want(http.StatusOK))
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.insert(r, `"path":"new"`) },
				func() *apitest.Response { return x.patch(r, s.ID, `"status":"running","retry_count":1`) },
				func() *apitest.Response { return x.add(r, fan.ID, ticket("2")) },
				func() *apitest.Response { return x.patchItems(r, fan.ID, itemTo(it, "running")) },
				func() *apitest.Response {
					return x.Post("/v1/runs", fmt.Sprintf(`{"workflow_name":"w","parent_workflow_run_id":%q}`, r.ID))
				},
			} {
				x.facts(x.refused(fault.CodeRunCancelled, call, r.ID), map[string]any{"reason": "user_requested"})
			}
			x.moved(r, s.ID, `"status":"running","result_text":"half"`)
			x.patchItems(r, fan.ID, itemTo(it, "failed")).Want(http.StatusOK)
			x.moved(r, s.ID, `"status":"completed"`)
			x.do(r, "cancel", "")
			if got := x.read(r, s.ID); got.Status != "completed" || *got.ResultText != "half" {
				x.t.Errorf("%+v", got)
			}
		}},
	}
}

func runStepPatches(x *runTest) {
	r := x.running("")
	s := x.stepAt(r, "running", "")
	fields := []struct{ name, value string }{
		{"child_run_id", `"agent-1"`}, {"result_text", `"half"`}, {"context_out", `"see log"`}, {"markers_out", `["a","b"]`}, {"structured_output", `{"n":1.50}`}, {"step_error", `"odd"`},
	}
	all := map[string]string{}
	check := func(id uuid.UUID, status string) {
		x.t.Helper()
		got := x.Get(stepPath(r, id)).Want(http.StatusOK)
		if got.Str("status") != status {
			x.t.Fatalf("%s", got.Body)
		}
		for _, f := range fields {
			want := all[f.name]
			if want == "" {
				want = "null"
			}
			if diff := cmp.Diff(docAs[any](x.t, []byte(want)), got.Get(f.name)); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", f.name, diff)
			}
		}
	}
	for _, f := range fields { // one after the other: the others stay
		x.moved(r, s.ID, fmt.Sprintf(`"status":"running",%q:%s`, f.name, f.value))
		all[f.name] = f.value
		check(s.ID, "running")
	}
	if got := x.moved(r, s.ID, `"status":"waiting"`); string(got.StructuredOutput) != `{"n":1.50}` {
		x.t.Errorf("structured_output is %s", got.StructuredOutput)
	}
	check(s.ID, "waiting")
	for _, f := range fields {
		x.moved(r, s.ID, fmt.Sprintf(`"status":"waiting",%q:null`, f.name))
		delete(all, f.name)
		check(s.ID, "waiting")
		x.moved(r, s.ID, fmt.Sprintf(`"status":"waiting",%q:%s`, f.name, f.value))
		all[f.name] = f.value
	}
	x.moved(r, s.ID, `"status":"waiting","markers_out":[]`)
	all["markers_out"] = "[]"
	check(s.ID, "waiting")
	x.moved(r, s.ID, `"status":"completed","result_text":null`)
	delete(all, "result_text")
	check(s.ID, "completed")
}

func runStepRetries(x *runTest) {
	r := x.running("")
	s := x.step(r, "")
	retry := func(members string) func() *apitest.Response {
		return func() *apitest.Response { return x.patch(r, s.ID, members) }
	}
	x.points(x.refused(fault.CodeValidationFailed, retry(`"status":"running","retry_count":1`), r.ID), fault.InBody, "/retry_count") // it has not begun
	x.moved(r, s.ID, `"status":"running","child_run_id":"agent-0","step_error":"odd"`)
	for _, members := range []string{`"status":"running","retry_count":2`, `"status":"waiting","retry_count":1`, `"status":"failed","retry_count":1`} {
		x.points(x.refused(fault.CodeValidationFailed, retry(members), r.ID), fault.InBody, "/retry_count")
	}
	x.advance(time.Second)
	n := len(x.events(r.ID))
	second := x.moved(r, s.ID, `"status":"running","retry_count":1,"step_error":"no disk"`)
	told := x.told(r.ID, n, "run_step.started")
	x.equalJSON("told", told[0].Data, fmt.Sprintf(`{"step_id":%q,"step_name":"build","role":"agent","status":"running","position":0,"iteration":0,"retry_count":1}`, s.ID))
	x.stepHolds(second)
	if second.RetryCount != 1 || second.ChildRunID != nil || second.StepError != nil || !second.StartedAt.Equal(x.when(-time.Second)) {
		x.t.Errorf("second attempt %+v", second)
	}
	if a := second.Attempts[0]; a.Status != "failed" || *a.ChildRunID != "agent-0" || *a.StepError != "no disk" || !a.EndedAt.Equal(x.when(0)) || !a.StartedAt.Equal(x.when(-time.Second)) {
		x.t.Errorf("first attempt %+v", a)
	}
	if a := second.Attempts[1]; !a.StartedAt.Equal(x.when(0)) || a.StepError != nil {
		x.t.Errorf("second attempt %+v", a)
	}
	again := x.same(retry(`"status":"running","retry_count":1`), r.ID).Want(http.StatusOK)
	if again.Get("applied") != false {
		x.t.Errorf("the same retry again: %s", again.Body)
	}
	x.moved(r, s.ID, `"status":"waiting"`)
	x.moved(r, s.ID, `"status":"running","retry_count":2`)
	done := x.moved(r, s.ID, `"status":"completed"`)
	x.stepHolds(done)
	if got := x.steps(r, ""); len(got) != 1 || len(got[0].Attempts) != 3 || got[0].Attempts[1].StepError != nil {
		x.t.Errorf("%+v", got)
	}
	x.facts(x.refused(fault.CodeStepTerminal, retry(`"status":"running","retry_count":3`), r.ID), map[string]any{"current_status": "completed"})
	x.do(r, "complete", "")
}

func runStepLists(x *runTest) {
	r := x.running("")
	var want []uuid.UUID
	for _, position := range []int{0, 1, 1, 2, 5} {
		want = append(want, x.step(r, fmt.Sprintf(`"path":%q,"position":%d,"role":%q`, uuid.NewString(), position, map[bool]string{true: "script", false: "agent"}[position == 1])).ID)
	}
	early := x.step(r, `"path":"early","step_name":"early","position":0`).ID
	want = slices.Insert(want, 1, early)
	x.moved(r, want[2], `"status":"running"`)
	listed := func(query string) (ids []uuid.UUID) {
		x.t.Helper()
		for _, s := range x.steps(r, query) {
			ids = append(ids, s.ID)
		}
		return ids
	}
	for query, ids := range map[string][]uuid.UUID{
		"": want, "&status=running": {want[2]}, "&status=failed": nil, "&role=script": {want[2], want[3]}, "&role=script&status=pending": {want[3]}, "&step_name=early": {early}, "&step_name=late": nil,
	} {
		if diff := cmp.Diff(ids, listed(query)); diff != "" {
			x.t.Errorf("steps %q (-want +got):\n%s", query, diff)
		}
	}
	var paged []uuid.UUID
	for cursor := ""; ; {
		page := flowAs[oapi.RunStepList](x.Get(runPath(r.ID, "steps") + "?limit=2" + cursor).Want(http.StatusOK))
		for _, s := range page.Items {
			paged = append(paged, s.ID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if diff := cmp.Diff(want, paged); diff != "" {
		x.t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// runGateStateCases: how a gate stands is told by its outcome, and by nothing else. reference: runs-and-taskflows.md A6.7, C2 "Gate state".
func runGateStateCases() []runCase {
	return []runCase{
		{"a gate is pending before and while it waits (RM-12, RG-01)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_review","prompt":"Fine?","timeout_ms":3600000}`)
			if g := x.readGate(r, s.ID); g.State != "pending" || g.OpenedAt != nil || g.DeadlineAt != nil || *g.Prompt != "Fine?" {
				x.t.Errorf("before: %+v", g)
			}
			n := len(x.events(r.ID))
			s = x.moved(r, s.ID, `"status":"waiting"`)
			x.told(r.ID, n, "run_step.waiting", "gate.opened")
			if g := x.readGate(r, s.ID); g.State != "pending" || !g.OpenedAt.Equal(x.when(0)) || !g.DeadlineAt.Equal(x.when(time.Hour)) || g.ResolvedAt != nil {
				x.t.Errorf("while it waits: %+v", g)
			}
		}},
		{"an unknown gate is not found, and what is no gate is not one (RM-13, A13 5)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, "")
			x.facts(x.Get(stepPath(r, uuid.New(), "gate")).Problem(fault.CodeNotFound), map[string]any{"resource": "step"})
			x.facts(x.Get(stepPath(r, s.ID, "gate")).Problem(fault.CodeNotAGate), map[string]any{"role": "agent"})
		}},
		{"how a gate stands (RM-14 to RM-16, RG-02 to RG-05, A13 4 and 5)", runGateStates},
		{"the words and deadline of a gate are kept, and shown in its step (C3 steps, A13 8 and 50)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"security_board","prompt":"Fine?","timeout_ms":60000,"on_timeout":"continue",
				"options":[{"value":"a","label":"A"},{"value":"b"}],"min_approvals":2,"allow_self_approval":false,"requested_by":"ann"}`)
			g := s.Gate
			if g.GateType != "security_board" || *g.Prompt != "Fine?" || g.TimeoutMs != 60000 || g.OnTimeout != "continue" || g.MinApprovals != 2 || g.AllowSelfApproval || *g.RequestedBy != "ann" {
				x.t.Errorf("%+v", g)
			}
			if diff := cmp.Diff([]oapi.GateOption{{Value: "a", Label: "A"}, {Value: "b", Label: "b"}}, g.Options); diff != "" {
				x.t.Errorf("options (-want +got):\n%s", diff)
			}
			plain := x.step(r, `"step_name":"plain","role":"gate","gate":{"gate_type":"human_approval"}`).Gate
			if plain.Prompt != nil || plain.TimeoutMs != 86400000 || plain.OnTimeout != "fail" || len(plain.Options) != 0 || plain.MinApprovals != 1 || !plain.AllowSelfApproval || *plain.RequestedBy != "local" {
				x.t.Errorf("%+v", plain)
			}
		}},
	}
}

func runGateStates(x *runTest) {
	answered := func(decision, members string) func(x *runTest, r oapi.Run, id uuid.UUID) {
		return func(x *runTest, r oapi.Run, id uuid.UUID) {
			x.answer(r, id, decision, members).Want(http.StatusOK)
		}
	}
	patched := func(status string) func(x *runTest, r oapi.Run, id uuid.UUID) {
		return func(x *runTest, r oapi.Run, id uuid.UUID) { x.moved(r, id, fmt.Sprintf(`"status":%q`, status)) }
	}
	late := func(x *runTest, _ oapi.Run, _ uuid.UUID) { x.advance(time.Hour) }
	for _, c := range []struct {
		name, gate string
		end        func(x *runTest, r oapi.Run, id uuid.UUID)
		state      string
		step       string
		feedback   string
		selected   []string
	}{
		{"approved with words", "", answered("approve", `"feedback":"looks good"`), "approved", "completed", "looks good", nil},
		{"approved with selections", `"options":[{"value":"a"},{"value":"b"}]`, answered("approve", `"selections":["b"]`), "approved", "completed", "", []string{"b"}},
		{"rejected with words", "", answered("reject", `"feedback":"not ready"`), "rejected", "failed", "not ready", nil},
		{"rejected without words", "", answered("reject", ""), "rejected", "failed", "", nil},
		{"nobody answers, and it fails", `"timeout_ms":3600000`, late, "timed_out", "failed", "", nil},
		{"nobody answers, and it goes on", `"timeout_ms":3600000,"on_timeout":"continue"`, late, "timed_out", "timed_out", "", nil},
		{"checks passed", `"gate_type":"pr_checks"`, patched("completed"), "approved", "completed", "", nil},
		{"checks failed", `"gate_type":"pr_checks"`, patched("failed"), "rejected", "failed", "", nil},
		{"its engine fails it", "", patched("failed"), "cancelled", "failed", "", nil},
		{"its engine skips it", "", patched("skipped"), "skipped", "skipped", "", nil},
		{"its engine gives up waiting", "", patched("timed_out"), "timed_out", "timed_out", "", nil},
		{"its engine cancels it", "", patched("cancelled"), "cancelled", "cancelled", "", nil},
	} {
		x.sub(c.name, func(x *runTest) {
			r := x.running("")
			s := x.gate(r, c.gate)
			c.end(x, r, s.ID)
			g, after := x.readGate(r, s.ID), x.read(r, s.ID)
			if string(g.State) != c.state || string(after.Status) != c.step || deref(g.Feedback) != c.feedback || g.ResolvedAt == nil || string(after.Gate.State) != c.state {
				x.t.Errorf("gate %+v of step %+v", g, after)
			}
			if diff := cmp.Diff(c.selected, g.Selections); diff != "" {
				x.t.Errorf("selections (-want +got):\n%s", diff)
			}
			x.stands(r.ID, "running") // a gate does not move its run
		})
	}
}
