package app_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowStepCases: runs-and-taskflows.md C5: NS-06 to 10, NM-09 to 11, NR-01; B13 2 and 3; D5 43.
var flowStepCases = []flowCase{
	{"inserted and read (NS-06)", func(x *flowTest) {
		f, run := x.at("running"), x.workflowRun()
		answer := x.insert(f.ID, `"run_id":"build","task":"go build ./...","status":"running","runtime":"mirrored","result":{"n":1.0},"child_session_key":"agent:1","workflow_run_id":"`+run.String()+`"`).Want(http.StatusCreated)
		got := flowAs[oapi.FlowStep](answer)
		want := oapi.FlowStep{ID: got.ID, FlowID: f.ID, RunID: "build", Runtime: "mirrored", ChildSessionKey: new("agent:1"), Task: "go build ./...", Status: "running",
			Result: oapi.Document(`{"n":1.0}`), WorkflowRunID: &run, CreatedAt: got.CreatedAt, UpdatedAt: got.CreatedAt}
		if diff := cmp.Diff(want, got); diff != "" || answer.Header.Get("Location") != flowPath(f.ID, "steps", "build") {
			x.t.Errorf("Location %q (-want +got):\n%s", answer.Header.Get("Location"), diff)
		}
		if diff := cmp.Diff(got, x.step(f.ID, "build")); diff != "" {
			x.t.Errorf("(-inserted +read):\n%s", diff)
		}
		plain := flowAs[oapi.FlowStep](x.insert(f.ID, `"run_id":"test"`).Want(http.StatusCreated))
		if plain.Status != "pending" || plain.Runtime != "managed" || plain.ChildSessionKey != nil || string(plain.Result) != "null" {
			x.t.Errorf("%+v", plain)
		}
		x.stands(f.ID, "running", 1) // a step is no revision
		x.told(f.ID, "flow.created", "flow.started", "step.inserted", "step.inserted")
		e, data := x.last(f.ID)
		told := map[string]any{"step_id": plain.ID.String(), "run_id": "test", "runtime": "managed", "task": "build", "status": "pending"}
		if diff := cmp.Diff(told, data); diff != "" || e.Topic != "step" || e.Revision != nil {
			x.t.Errorf("%+v (-want +got):\n%s", e, diff)
		}
	}},
	{"a change of status and result (NS-07)", func(x *flowTest) {
		f := x.at("running")
		before := flowAs[oapi.FlowStep](x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated))
		x.advance(time.Second)
		got := flowAs[oapi.FlowStep](x.Do("PATCH", flowPath(f.ID, "steps", "r"), `{"status":"succeeded","result":{"ok":true}}`).Want(http.StatusOK))
		if got.ID != before.ID || got.Status != "succeeded" || string(got.Result) != `{"ok":true}` || got.Task != before.Task || !got.UpdatedAt.Time().After(before.UpdatedAt.Time()) ||
			!got.CreatedAt.Equal(before.CreatedAt) || got.Runtime != "managed" {
			x.t.Errorf("%+v", got)
		}
		x.told(f.ID, "flow.created", "flow.started", "step.inserted", "step.updated")
		x.same(func() *apitest.Response { return x.Do("PATCH", flowPath(f.ID, "steps", "r"), `{"status":"succeeded"}`) }, f.ID).Want(http.StatusOK)
		x.same(func() *apitest.Response { return x.Do("PATCH", flowPath(f.ID, "steps", "r"), `{}`) }, f.ID).Want(http.StatusOK)
	}},
	{"listed in the order of insertion, per flow (NS-08, B13 19)", func(x *flowTest) {
		f, other := x.at("running"), x.at("running")
		var want []string
		for i := range 7 {
			want = append(want, fmt.Sprint("z", 9-i))
			status := []string{"pending", "succeeded"}[i%2]
			x.insert(f.ID, fmt.Sprintf(`"run_id":%q,"status":%q`, want[i], status)).Want(http.StatusCreated)
		}
		x.insert(other.ID, `"run_id":"z9"`).Want(http.StatusCreated)
		ids := func(steps []oapi.FlowStep) []string {
			got := []string{}
			for _, s := range steps {
				got = append(got, s.RunID)
			}
			return got
		}
		if diff := cmp.Diff(want, ids(x.steps(f.ID))); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if got := ids(x.steps(other.ID)); !slices.Equal(got, []string{"z9"}) {
			x.t.Errorf("the other flow has %v", got)
		}
		var got []string
		for path := flowPath(f.ID, "steps") + "?limit=3"; path != ""; {
			page := x.Get(path).Want(http.StatusOK)
			got = append(got, ids(flowAs[oapi.FlowStepList](page).Items)...)
			path = strings.TrimSuffix(strings.TrimPrefix(page.Header.Get("Link"), "<"), `>; rel="next"`)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("page by page (-want +got):\n%s", diff)
		}
		some := flowAs[oapi.FlowStepList](x.Get(flowPath(f.ID, "steps") + "?status=succeeded").Want(http.StatusOK))
		if diff := cmp.Diff([]string{"z8", "z6", "z4"}, ids(some.Items)); diff != "" {
			x.t.Errorf("by status (-want +got):\n%s", diff)
		}
	}},
	{"found by run id in its own flow only (NS-09)", func(x *flowTest) {
		f, other := x.at("running"), x.at("running")
		x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
		x.step(f.ID, "r")
		for _, path := range []string{flowPath(other.ID, "steps", "r"), flowPath(f.ID, "steps", "R"), flowPath(f.ID, "steps", "s")} {
			x.facts(x.Get(path).Problem(fault.CodeNotFound), map[string]any{"resource": "step"})
		}
	}},
	{"a change of an unknown step is not found (NS-10, B13 18)", func(x *flowTest) {
		f := x.at("running")
		answer := x.refused(fault.CodeNotFound, func() *apitest.Response { return x.Do("PATCH", flowPath(f.ID, "steps", "r"), `{"status":"running"}`) }, f.ID)
		x.facts(answer, map[string]any{"resource": "step"})
	}},
	{"a second insert of the same run id is refused (NR-01)", func(x *flowTest) {
		f := x.at("running")
		x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
		x.refused(fault.CodeDuplicateStep, func() *apitest.Response { return x.insert(f.ID, `"run_id":"r","status":"failed"`) }, f.ID)
		x.insert(x.at("running").ID, `"run_id":"r"`).Want(http.StatusCreated)
	}},
	{"at once, one insert wins (NR-01)", func(x *flowTest) {
		f := x.at("running")
		inserted := 0
		for _, answer := range flowsAtOnce(6, func(int) *apitest.Response { return x.insert(f.ID, `"run_id":"r"`) }) {
			if answer.Status == http.StatusCreated {
				inserted++
				continue
			}
			answer.Problem(fault.CodeDuplicateStep)
		}
		if inserted != 1 || len(x.steps(f.ID)) != 1 {
			x.t.Errorf("%d inserted, %d stored", inserted, len(x.steps(f.ID)))
		}
	}},
	{"observed twice is one step (NM-09, D5 43)", func(x *flowTest) {
		f := x.at("running")
		answer := x.observe(f.ID, "run-1", `"task":"build","status":"running","child_session_key":"agent:1"`).Want(http.StatusCreated)
		first := flowAs[oapi.FlowStep](answer)
		if first.Runtime != "mirrored" || first.Status != "running" || answer.Header.Get("Location") != flowPath(f.ID, "steps", "run-1") {
			x.t.Errorf("%+v", first)
		}
		second := flowAs[oapi.FlowStep](x.observe(f.ID, "run-1", `"task":"build it","status":"succeeded","result":{"n":1}`).Want(http.StatusOK))
		if second.ID != first.ID || second.Runtime != "mirrored" || second.Status != "succeeded" || second.Task != "build it" || string(second.Result) != `{"n":1}` || *second.ChildSessionKey != "agent:1" {
			x.t.Errorf("%+v", second)
		}
		if len(x.steps(f.ID)) != 1 {
			x.t.Errorf("%d steps", len(x.steps(f.ID)))
		}
		x.stands(f.ID, "running", 1)
		x.told(f.ID, "flow.created", "flow.started", "step.observed", "step.observed")
	}},
	{"three observations are three steps (NM-11)", func(x *flowTest) {
		f := x.at("created")
		for _, r := range []string{"c", "a", "b"} {
			x.observe(f.ID, r, `"status":"pending"`).Want(http.StatusCreated)
		}
		if got := x.steps(f.ID); len(got) != 3 || got[0].RunID != "c" || got[2].RunID != "b" {
			x.t.Errorf("%+v", got)
		}
	}},
	{"first observations at once are one step (B13 2)", func(x *flowTest) {
		f := x.at("running")
		made := 0
		for _, answer := range flowsAtOnce(6, func(i int) *apitest.Response {
			return x.observe(f.ID, "r", fmt.Sprintf(`"status":"running","result":%d`, i))
		}) {
			if answer.Status == http.StatusCreated {
				made++
				continue
			}
			answer.Want(http.StatusOK)
		}
		if steps := x.steps(f.ID); made != 1 || len(steps) != 1 || len(x.trail(f.ID, "")) != 8 {
			x.t.Errorf("%d made, %d stored, %d events", made, len(steps), len(x.trail(f.ID, "")))
		}
	}},
	{"an ended flow takes no observation (B13 3)", func(x *flowTest) {
		for _, s := range []oapi.FlowStatus{"finished", "failed", "cancelled"} {
			f := x.running("")
			x.observe(f.ID, "r", `"status":"running"`).Want(http.StatusCreated)
			x.put(f.ID, 1, fmt.Sprintf(`{"goal":"x","status":%q}`, s)).Want(http.StatusOK)
			for _, send := range []func() *apitest.Response{
				func() *apitest.Response { return x.observe(f.ID, "r", `"status":"succeeded"`) },
				func() *apitest.Response { return x.observe(f.ID, "r", `"status":"succeeded","force":true`) },
				func() *apitest.Response { return x.observe(f.ID, "new", `"status":"running"`) },
				func() *apitest.Response { return x.insert(f.ID, `"run_id":"new"`) },
				func() *apitest.Response { return x.Do("PATCH", flowPath(f.ID, "steps", "r"), `{"status":"failed"}`) },
			} {
				x.refused(fault.CodeAlreadyTerminal, send, f.ID)
			}
		}
	}},
	{"an ended step does not change its status, unless it is forced (B13 3)", func(x *flowTest) {
		f := x.at("running")
		for _, end := range []string{"succeeded", "failed", "cancelled"} {
			x.observe(f.ID, end, fmt.Sprintf(`"status":%q,"result":{"kept":true}`, end)).Want(http.StatusCreated)
			for _, to := range []string{"pending", "running", "succeeded", "failed", "cancelled"} {
				if to == end {
					x.observe(f.ID, end, fmt.Sprintf(`"status":%q`, to)).Want(http.StatusOK)
					continue
				}
				observe := func() *apitest.Response { return x.observe(f.ID, end, fmt.Sprintf(`"status":%q,"result":null`, to)) }
				x.facts(x.refused(fault.CodeStepTerminal, observe, f.ID), map[string]any{"current_status": end})
				patch := func() *apitest.Response {
					return x.Do("PATCH", flowPath(f.ID, "steps", end), fmt.Sprintf(`{"status":%q}`, to))
				}
				x.refused(fault.CodeStepTerminal, patch, f.ID)
			}
			got := flowAs[oapi.FlowStep](x.observe(f.ID, end, `"status":"running","force":true`).Want(http.StatusOK))
			if got.Status != "running" || string(got.Result) != `{"kept":true}` {
				x.t.Errorf("%+v", got)
			}
		}
	}},
	{"a running step does not become pending by an observation that comes late", func(x *flowTest) {
		f := x.at("running")
		x.observe(f.ID, "r", `"status":"running"`).Want(http.StatusCreated)
		x.same(func() *apitest.Response { return x.observe(f.ID, "r", `"status":"pending"`) }, f.ID).Want(http.StatusOK)
		if got := x.observe(f.ID, "r", `"status":"pending","force":true`).Want(http.StatusOK).Str("status"); got != "pending" {
			x.t.Errorf("forced, it is %s", got)
		}
	}},
	{"what is absent stays, null clears", func(x *flowTest) {
		f, run := x.at("running"), x.workflowRun().String()
		x.observe(f.ID, "r", `"status":"running","result":{"a":1},"child_session_key":"s"`).Want(http.StatusCreated)
		for _, send := range []func(members string) *apitest.Response{
			func(members string) *apitest.Response {
				return x.observe(f.ID, "r", joined(members, `"status":"running"`))
			},
			func(members string) *apitest.Response {
				return x.Do("PATCH", flowPath(f.ID, "steps", "r"), "{"+members+"}")
			},
		} {
			x.same(func() *apitest.Response { return send("") }, f.ID).Want(http.StatusOK)
			for member, value := range map[string]string{"result": `{"a":1}`, "child_session_key": `"s"`} {
				if got := send(fmt.Sprintf(`%q:null`, member)).Want(http.StatusOK).Get(member); got != nil {
					x.t.Errorf("%s is %v", member, got)
				}
				if got := send(fmt.Sprintf(`%q:%s`, member, value)).Want(http.StatusOK).Get(member); !cmp.Equal(got, docAs[any](x.t, []byte(value))) {
					x.t.Errorf("%s is %v", member, got)
				}
			}
			for _, value := range []any{run, nil} {
				if got := send(`"workflow_run_id":` + string(bodyJSON(x.t, value))).Want(http.StatusOK).Get("workflow_run_id"); got != value {
					x.t.Errorf("workflow_run_id is %v, want %v", got, value)
				}
			}
		}
	}},
	{"a run id may be anything that prints", func(x *flowTest) {
		f := x.at("running")
		for _, r := range []string{"a b", "a/b", "ü∂", "%2F", "?x=1#y", "..", "a+b&c", strings.Repeat("é", 256), `"quoted"`} {
			made := x.observe(f.ID, r, `"status":"running"`).Want(http.StatusCreated)
			if got := x.step(f.ID, r); got.RunID != r {
				x.t.Errorf("%q came back as %q", r, got.RunID)
			}
			if at := x.Get(made.Header.Get("Location")).Want(http.StatusOK).Str("run_id"); at != r {
				x.t.Errorf("at its Location is %q, want %q", at, r)
			}
		}
		for _, r := range []string{"a\nb", "\x00", "\x7f", "\xff"} {
			answer := x.same(func() *apitest.Response {
				return x.Do("PUT", flowPath(f.ID, "steps")+"/"+url.PathEscape(r), `{"task":"x","status":"running"}`)
			}, f.ID)
			x.points(answer.Problem(fault.CodeInvalidParameter), fault.InPath, "run_id")
		}
		x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.observe(f.ID, strings.Repeat("x", 257), `"status":"running"`) }, f.ID), fault.InPath, "run_id")
	}},
	{"an insert under an Idempotency-Key is done once", func(x *flowTest) {
		f, key := x.at("running"), "Idempotency-Key: s-"+x.namespace
		body := `{"run_id":"r","task":"build"}`
		first := x.Post(flowPath(f.ID, "steps"), body, key).Want(http.StatusCreated)
		again := x.same(func() *apitest.Response { return x.Post(flowPath(f.ID, "steps"), body, key) }, f.ID).Want(http.StatusCreated)
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("Location") != first.Header.Get("Location") {
			x.t.Errorf("first %s, again %v %s", first.Body, again.Header, again.Body)
		}
	}},
	{"what is outside the contract changes nothing", func(x *flowTest) {
		f := x.at("running")
		for body, pointer := range map[string]string{`{"run_id":"r"}`: "/task", `{"task":"t"}`: "/run_id", `{"run_id":"r","task":" "}`: "/task", `{"run_id":"r","task":"t","status":"done"}`: "/status",
			`{"run_id":"r","task":"t","runtime":"remote"}`: "/runtime", `{"run_id":"r","task":"t","execution_id":"x"}`: "/execution_id", `{"run_id":"","task":"t"}`: "/run_id",
			`{"run_id":"r","task":"t","force":true}`: "/force"} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post(flowPath(f.ID, "steps"), body) }, f.ID), fault.InBody, pointer)
		}
		for body, pointer := range map[string]string{`{"task":"t"}`: "/status", `{"status":"running"}`: "/task", `{"task":"t","status":"running","run_id":"r"}`: "/run_id",
			`{"task":"t","status":"running","child_session_key":""}`: "/child_session_key"} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Do("PUT", flowPath(f.ID, "steps", "r"), body) }, f.ID), fault.InBody, pointer)
		}
	}},
}

// flowMirrorCases: a step follows the execution that it names, in the transaction that moves it. F4, F5 2 and 7; D6 51.
var flowMirrorCases = []flowCase{
	{"through its whole life, to a result", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create(`"kind":"shell"`)
		x.observe(f.ID, "r", `"status":"running","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		x.mirrors(f.ID, "pending", "null")
		c := w.claim("")
		x.mirrors(f.ID, "running", "null")
		w.report(c, "progress", `"pct":40`).Want(http.StatusOK)
		w.report(c, "release", "").Want(http.StatusOK)
		x.mirrors(f.ID, "running", "null")
		w.claim(`"lease_ttl_ms":1000`)
		x.advance(time.Minute) // the lease runs out
		x.mirrors(f.ID, "running", "null")
		c = w.claim("")
		w.report(c, "complete", `"result":{"artifact":"a.tar.gz","size":1.50}`).Want(http.StatusOK)
		x.mirrors(f.ID, "succeeded", `{"artifact":"a.tar.gz","size":1.50}`)
		x.stands(f.ID, "running", 1)
		x.told(f.ID, "flow.created", "flow.started", "step.observed", "step.observed", "step.observed")
		newest := x.trail(f.ID, "")[0]
		completion := x.Get("/v1/events?topic=completion&execution_id=" + e.ID.String()).Want(http.StatusOK)
		if newest.Cause == nil || *newest.Cause != completion.Int("items.0.id") || docAs[map[string]any](x.t, newest.Data)["public_state"] != "completed" {
			x.t.Errorf("%+v, caused by %s", newest, completion.Body)
		}
	}},
	{"to a failure, over a retry", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create(`"policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":60000}}}`)
		x.insert(f.ID, `"run_id":"r","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		w.report(w.claim(""), "fail", `"reason":"no"`).Want(http.StatusOK)
		x.mirrors(f.ID, "running", "null")
		x.advance(2 * time.Minute)
		w.report(w.claim(""), "fail", `"reason":"no"`).Want(http.StatusOK)
		x.mirrors(f.ID, "failed", "null")
	}},
	{"to a deadline that passes", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create(`"deadline_at":`+spelled(x.now().Add(time.Minute)))
		x.insert(f.ID, `"run_id":"r","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		x.advance(2 * time.Minute)
		x.mirrors(f.ID, "failed", "null")
	}},
	{"to a cancellation, also when its own flow has ended", func(x *flowTest) {
		w := x.workers("mirror")
		f := x.at("running")
		e := w.create(`"flow_id":"` + f.ID.String() + `"`)
		other := x.at("running")
		for _, id := range []uuid.UUID{f.ID, other.ID} {
			x.insert(id, `"run_id":"r","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		}
		x.do(other.ID, "finish", "")
		x.do(f.ID, "cancel", "")
		x.mirrors(f.ID, "cancelled", "null")
		x.mirrors(other.ID, "cancelled", "null")
		x.stands(other.ID, "finished", 2)
	}},
	{"at once, when the execution has ended already", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create("")
		w.report(w.claim(""), "complete", `"result":[1]`).Want(http.StatusOK)
		got := flowAs[oapi.FlowStep](x.insert(f.ID, `"run_id":"r","status":"pending","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated))
		if got.Status != "succeeded" || string(got.Result) != "[1]" || *got.ExecutionID != e.ID {
			x.t.Errorf("%+v", got)
		}
	}},
	{"bytes are mirrored as base64", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create("")
		x.insert(f.ID, `"run_id":"r","execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		c := w.claim("")
		x.Post("/v1/executions/"+e.ID.String()+"/complete", []byte{0, 1, 254, 255}, "Content-Type: application/octet-stream", "Flowapi-Handle: "+c.Handle).Want(http.StatusOK)
		x.mirrors(f.ID, "succeeded", `"AAH+/w=="`)
	}},
	{"what the controller says of status and result does not count while it mirrors", func(x *flowTest) {
		w := x.workers("mirror")
		f, e := x.at("running"), w.create("")
		x.observe(f.ID, "r", `"status":"failed","result":"mine"`).Want(http.StatusCreated)
		x.refused(fault.CodeStepTerminal, func() *apitest.Response {
			return x.observe(f.ID, "r", `"status":"failed","execution_id":"`+e.ID.String()+`"`)
		}, f.ID)
		x.observe(f.ID, "s", `"status":"succeeded","result":null,"execution_id":"`+e.ID.String()+`"`).Want(http.StatusCreated)
		for _, members := range []string{`"status":"failed","result":"mine"`, `"status":"succeeded","force":true`} {
			got := flowAs[oapi.FlowStep](x.observe(f.ID, "s", members).Want(http.StatusOK))
			if got.Status != "pending" || string(got.Result) != "null" {
				x.t.Errorf("%s: %+v", members, got)
			}
		}
		free := flowAs[oapi.FlowStep](x.Do("PATCH", flowPath(f.ID, "steps", "s"), `{"execution_id":null,"status":"running"}`).Want(http.StatusOK))
		if free.ExecutionID != nil || free.Status != "running" {
			x.t.Errorf("%+v", free)
		}
		w.report(w.claim(""), "complete", "").Want(http.StatusOK)
		if got := x.step(f.ID, "s"); got.Status != "running" {
			x.t.Errorf("it mirrors still: %+v", got)
		}
	}},
	{"an execution of another namespace is not found", func(x *flowTest) {
		f, e := x.at("running"), x.in(x.namespace+"-other").workers("mirror").create("")
		for _, id := range []string{e.ID.String(), uuid.NewString()} {
			answer := x.refused(fault.CodeNotFound, func() *apitest.Response { return x.insert(f.ID, `"run_id":"r","execution_id":"`+id+`"`) }, f.ID)
			x.facts(answer, map[string]any{"resource": "execution"})
		}
	}},
}

// mirrors checks what the step r of a flow shows.
func (x *flowTest) mirrors(id uuid.UUID, status oapi.StepStatus, result string) {
	x.t.Helper()
	if got := x.step(id, "r"); got.Status != status || string(got.Result) != result {
		x.t.Errorf("the step is %s with %s, want %s with %s", got.Status, got.Result, status, result)
	}
}
