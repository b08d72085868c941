package app_test

import (
	"bytes"
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

// flowReferenceCases: runs-and-taskflows.md C5: store (NS), manager (NM), race audit (NR), tool (NT) and configuration, as far
// as they are not about steps, waits, revisions and what outlives a restart, which have tests of their own.
var flowReferenceCases = []flowCase{
	{"created with everything and read again (NS-01)", func(x *flowTest) {
		answer := x.Post("/v1/flows", `{"goal":"Release 1.4","kind":"release","controller_id":"ci/release","owner_session_key":"agent:ci:session:main",
				"requester_origin":"chat","current_step":"plan","state":{"b":1,"a":[1.50,{"x":null}]},"tags":{"team.name":"platform"},"auto_finish":true}`).Want(http.StatusCreated)
		got := flowAs[oapi.Flow](answer)
		want := oapi.Flow{
			ID: got.ID, Namespace: x.namespace, Kind: "release", ControllerID: "ci/release", Goal: "Release 1.4", OwnerSessionKey: "agent:ci:session:main",
			RequesterOrigin: "chat", CurrentStep: "plan", State: oapi.Document(`{"b":1,"a":[1.50,{"x":null}]}`), Status: "created", AutoFinish: true,
			Tags: oapi.Tags{"team.name": "platform"}, BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{}, CreatedAt: got.CreatedAt, UpdatedAt: got.CreatedAt,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if got.ID.Version() != 7 || answer.ETag() != `"0"` || answer.Header.Get("Location") != flowPath(got.ID) {
			x.t.Errorf("id of version %d, ETag %s, Location %q", got.ID.Version(), answer.ETag(), answer.Header.Get("Location"))
		}
		read := x.Get(flowPath(got.ID)).Want(http.StatusOK)
		if !bytes.Equal(bytes.TrimSpace(read.Body), bytes.TrimSpace(answer.Body)) || read.ETag() != `"0"` {
			x.t.Errorf("created %s\nread    %s", answer.Body, read.Body)
		}
	}},
	{"only a goal is needed (B6)", func(x *flowTest) {
		got := flowAs[oapi.Flow](x.Post("/v1/flows", `{"goal":"x"}`).Want(http.StatusCreated))
		want := oapi.Flow{ID: got.ID, Namespace: x.namespace, Goal: "x", CurrentStep: "init", State: oapi.Document(`{}`), Status: "created", Tags: oapi.Tags{},
			BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{}, CreatedAt: got.CreatedAt, UpdatedAt: got.CreatedAt}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for _, body := range []string{`{}`, `{"goal":""}`, `{"goal":"  "}`, `{"goal":null}`} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/flows", body) }), fault.InBody, "/goal")
		}
	}},
	{"the state is any JSON value (B6)", func(x *flowTest) {
		for _, state := range []string{`[1,2]`, `"text"`, `17.000`, `false`, `null`, `{"é":"\u00e9","deep":{"er":[[]]}}`, `12345678901234567890.125`} {
			f := x.create(`"state":` + state)
			if string(f.State) != state || string(x.flow(f.ID).State) != state {
				x.t.Errorf("%s came back as %s", state, f.State)
			}
		}
	}},
	{"the same id twice changes nothing (model.md: ids)", func(x *flowTest) {
		id := uuid.New()
		first := x.create(`"id":"` + id.String() + `","state":{"n":1}`)
		again := x.same(func() *apitest.Response {
			return x.Post("/v1/flows", `{"id":"`+id.String()+`","goal":"another","start":true}`)
		}, id).Want(http.StatusOK)
		if diff := cmp.Diff(first, flowAs[oapi.Flow](again)); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("Idempotent-Replay %q (-first +again):\n%s", again.Header.Get("Idempotent-Replay"), diff)
		}
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
			return x.in(x.namespace+"-other").Post("/v1/flows", `{"id":"`+id.String()+`","goal":"x"}`)
		}, id)
	}},
	{"an owner's list has exactly the owner's flows (NS-02, NT-05)", func(x *flowTest) {
		a1, a2 := x.create(`"owner_session_key":"a"`), x.create(`"owner_session_key":"a"`)
		b := x.create(`"owner_session_key":"b"`)
		x.create(`"owner_session_key":"ab"`)
		for owner, want := range map[string][]uuid.UUID{"a": {a2.ID, a1.ID}, "b": {b.ID}, "c": {}} {
			if diff := cmp.Diff(want, flowIDs(x.list("&owner_session_key="+owner))); diff != "" {
				x.t.Errorf("owner %s (-want +got):\n%s", owner, diff)
			}
		}
	}},
	{"filters are combined, and pages hold every flow once (NS-05, D5 45)", func(x *flowTest) {
		var want []uuid.UUID
		for i := range 7 {
			tags := `"tags":{"team.name":"a","env.name":"prod"}`
			if i == 3 {
				tags = `"tags":{"team.name":"a","env.name":"test"}`
			}
			f := x.create(`"kind":"release","controller_id":"ci","start":true,` + tags)
			if i != 3 {
				want = append(want, f.ID)
			}
		}
		x.create(`"kind":"other","controller_id":"ci","tags":{"team.name":"a","env.name":"prod"}`)
		slices.Reverse(want)
		query := "&kind=release&controller_id=ci&status=running&tag=team.name:a&tag=env.name:prod"
		if diff := cmp.Diff(want, flowIDs(x.list(query))); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		var got []uuid.UUID
		path := "/v1/flows?limit=2" + query
		for pages := 1; path != ""; pages++ {
			page := x.Get(path).Want(http.StatusOK)
			list := flowAs[oapi.FlowList](page)
			if len(list.Items) == 0 || pages > 3 {
				x.t.Fatalf("page %d has %d flows", pages, len(list.Items))
			}
			got = append(got, flowIDs(list.Items)...)
			path = strings.TrimSuffix(strings.TrimPrefix(page.Header.Get("Link"), "<"), `>; rel="next"`)
			if (list.NextCursor == nil) != (path == "") || list.NextCursor != nil && !strings.Contains(path, "cursor="+*list.NextCursor) {
				x.t.Errorf("next_cursor %v, Link %q", list.NextCursor, path)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("page by page (-want +got):\n%s", diff)
		}
	}},
	{"a replacement at revision 0 makes revision 1, and a second one is refused (NS-03, NS-04)", func(x *flowTest) {
		f := x.create("")
		first := flowAs[oapi.Flow](x.put(f.ID, 0, `{"goal":"Release 1.4","current_step":"build","status":"running"}`).Want(http.StatusOK))
		if first.Revision != 1 || first.Status != "running" || first.CurrentStep != "build" || first.Goal != f.Goal {
			x.t.Errorf("%+v", first)
		}
		answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.put(f.ID, 0, `{"goal":"x"}`) }, f.ID)
		x.facts(answer, map[string]any{"expected": 0.0, "actual": 1.0, "changed": []any{"current_step", "status"}, "retryable": false})
	}},
	{"the happy path (NM-01)", func(x *flowTest) {
		f := x.create(`"state":{"a":1,"b":{"c":2}}`)
		if f.Revision != 0 || f.Status != "created" {
			x.t.Errorf("%+v", f)
		}
		if f = x.do(f.ID, "start", "{}"); f.Revision != 1 || f.Status != "running" {
			x.t.Errorf("%+v", f)
		}
		parked := x.park(f.ID, outside("deploy", "r1"))
		if parked.Revision != 2 || parked.Status != "waiting" || parked.Wait == nil || string(parked.Wait.Condition) != outside("deploy", "r1") ||
			parked.Wait.OnTimeout != "fail" || parked.Wait.Deadline != nil || !parked.Wait.Since.Equal(parked.UpdatedAt) || parked.Wait.WaitID == uuid.Nil {
			x.t.Errorf("%+v, wait %+v", parked, parked.Wait)
		}
		f = x.do(f.ID, "resume", `{"state":{"a":9}}`)
		if f.Revision != 3 || f.Status != "running" || f.Wait != nil {
			x.t.Errorf("%+v", f)
		}
		x.state(f, `{"a":9,"b":{"c":2}}`)
		if e, data := x.last(f.ID); e.Type != "flow.resumed" || data["wait_id"] != parked.Wait.WaitID.String() || data["by"] != "request" {
			x.t.Errorf("%s %v", e.Type, data)
		}
		f = x.do(f.ID, "finish", `{"state":{"done":true}}`)
		if f.Revision != 4 || f.Status != "finished" || f.EndedAt == nil || !f.EndedAt.Equal(f.UpdatedAt) {
			x.t.Errorf("%+v", f)
		}
		x.state(f, `{"a":9,"b":{"c":2},"done":true}`)
	}},
	{"fail keeps its reason beside the state (NM-02, NT-14, Δ B13 16)", func(x *flowTest) {
		for _, s := range []oapi.FlowStatus{"running", "waiting"} {
			f := x.at(s)
			x.advance(1500 * time.Millisecond)
			got := x.do(f.ID, "fail", `{"reason":"no disk"}`)
			if got.Failure == nil || got.Failure.Reason != "no disk" || !got.Failure.At.Equal(got.UpdatedAt) || !got.UpdatedAt.Time().After(f.UpdatedAt.Time()) {
				x.t.Errorf("from %s: %+v", s, got.Failure)
			}
			x.state(got, `{"n":1}`)
		}
	}},
	{"fail needs a reason (NT-15)", func(x *flowTest) {
		f := x.at("running")
		for _, body := range []string{`{}`, `{"reason":""}`, `{"reason":" \t "}`, `{"reason":null}`} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.verb(f.ID, "fail", body) }, f.ID), fault.InBody, "/reason")
		}
	}},
	{"cancelled from running (NM-03, NT-04)", func(x *flowTest) {
		f := x.at("running")
		got := x.do(f.ID, "cancel", "")
		c := got.Cancellation
		if got.Status != "cancelled" || got.CancelRequested || c == nil || *c.Policy != "cancel_all" || c.Reason != nil || c.Actor != "local" || !c.RequestedAt.Equal(got.UpdatedAt) {
			x.t.Errorf("%+v, cancellation %+v", got, c)
		}
	}},
	{"a state update merges, sets the step and keeps the rest (NM-05, NT-03)", func(x *flowTest) {
		f := x.create(`"start":true,"state":{"keep":1,"list":[1,2,3],"deep":{"a":1,"b":2}}`)
		got := flowAs[oapi.Flow](x.patch(f.ID, `{"state":{"list":[9],"deep":{"c":3},"new":null},"current_step":"publish"}`).Want(http.StatusOK))
		if got.Status != "running" || got.CurrentStep != "publish" || got.Revision != 2 {
			x.t.Errorf("%+v", got)
		}
		x.state(got, `{"keep":1,"list":[9],"deep":{"c":3},"new":null}`)
		x.told(f.ID, "flow.created", "flow.started", "flow.state_updated")
		if _, data := x.last(f.ID); data["merge"] != "shallow" || data["current_step"] != "publish" {
			x.t.Errorf("the event says %v", data)
		}
	}},
	{"a state update is refused under the intent, and in an ended flow (NM-06)", func(x *flowTest) {
		f := x.at("running")
		x.do(f.ID, "request-cancel", "")
		x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.patch(f.ID, `{"state":{"n":2}}`) }, f.ID)
		x.do(f.ID, "cancel", "")
		x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.patch(f.ID, `{"state":{"n":2}}`) }, f.ID)
	}},
	{"create writes one event (NM-07)", func(x *flowTest) {
		f := x.create(`"controller_id":"ci","state":{"n":1},"tags":{"cairn.instance_id":"i-1"}`)
		events := x.trail(f.ID, "&scope=all")
		if len(events) != 1 {
			x.t.Fatalf("%d events", len(events))
		}
		want := oapi.Event{ID: events[0].ID, At: f.CreatedAt, Namespace: x.namespace, Topic: "flow", Type: "flow.created", FlowID: &f.ID, InstanceTag: new("i-1"),
			Revision: new(int64(0)), Actor: "local", Data: events[0].Data}
		if diff := cmp.Diff(want, events[0]); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"start:true is running at once, in one transaction (NM-08, NT-01, B13 1)", func(x *flowTest) {
		f := x.running(`"state":{"given":true}`)
		x.stands(f.ID, "running", 1)
		x.state(f, `{"given":true}`)
		events := x.trail(f.ID, "")
		if len(events) != 2 || events[0].Type != "flow.started" || *events[0].Revision != 1 || events[0].ID != events[1].ID+1 || !events[0].At.Equal(events[1].At) {
			x.t.Errorf("%+v", events)
		}
	}},
	{"a second finish is refused (NM-12)", func(x *flowTest) {
		f := x.at("finished")
		x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.verb(f.ID, "finish", `{"state":{"n":2}}`) }, f.ID)
	}},
	{"start bumps the revision by one and says so (NR-02)", func(x *flowTest) {
		f := x.create("")
		if got := x.do(f.ID, "start", ""); got.Revision != f.Revision+1 {
			x.t.Errorf("revision %d", got.Revision)
		}
		x.told(f.ID, "flow.created", "flow.started")
	}},
	{"a revision that never was is refused, and nothing is told (NR-05)", func(x *flowTest) {
		f := x.at("running")
		answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.patch(f.ID, `{"state":{"n":2}}`, ifMatch(999)) }, f.ID)
		x.facts(answer, map[string]any{"expected": 999.0, "actual": 1.0, "changed": []any{}})
	}},
	{"an unknown flow is not found, by whatever is asked of it (NT-02, NT-08)", func(x *flowTest) {
		f := x.at("running")
		if got := x.flow(f.ID); got.ID != f.ID || got.Status != "running" {
			x.t.Errorf("%+v", got)
		}
		x.nowhere(uuid.New(), nil)
	}},
	{"a flow of another namespace is not found, and says nothing of itself (NT-06, NT-16, D5 46)", func(x *flowTest) {
		f := x.create(`"goal":"the secret goal","owner_session_key":"secret-owner","start":true,"state":{"secret":1}`)
		x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
		x.park(f.ID, manual)
		x.in(x.namespace+"-foreign").nowhere(f.ID, []string{"secret"})
		foreign := x.in(x.namespace + "-foreign")
		if len(foreign.list("")) != 0 || len(foreign.inbox("")) != 0 || foreign.Get("/v1/events").Want(http.StatusOK).Len("items") != 0 {
			x.t.Error("another namespace's lists show the flow")
		}
		if receipt := foreign.deliver("t", "c"); !receipt.Buffered {
			x.t.Error("an event of another namespace reached the flow")
		}
		x.stands(f.ID, "waiting", 2)
	}},
	{"finish merges the final state (NT-13)", func(x *flowTest) {
		f := x.at("running")
		got := x.do(f.ID, "finish", `{"state":{"n":2,"end":{"ok":true}}}`)
		x.state(got, `{"n":2,"end":{"ok":true}}`)
		if _, data := x.last(f.ID); !cmp.Equal(data["state_patch"], any(map[string]any{"n": 2.0, "end": map[string]any{"ok": true}})) {
			x.t.Errorf("the event says %v", data)
		}
	}},
	{"the horizon is 30 days, and an unknown key is refused (configuration)", func(x *flowTest) {
		meta := x.Get("/v1/meta").Want(http.StatusOK)
		if meta.Int("limits.timer_horizon_ms") != (30 * 24 * time.Hour).Milliseconds() {
			x.t.Errorf("%s", meta.Body)
		}
		x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/flows", `{"goal":"x","tick_interval":"5s"}`) }), fault.InBody, "/tick_interval")
	}},
	{"whatever takes no fields takes no body, an empty one and {} alike (http.md)", func(x *flowTest) {
		for _, body := range []any{nil, "", "{}", " \n"} {
			f := x.create("")
			x.Post(flowPath(f.ID, "start"), body).Want(http.StatusOK)
			x.park(f.ID, manual)
			x.Post(flowPath(f.ID, "resume"), body).Want(http.StatusOK)
			x.Post(flowPath(f.ID, "request-cancel"), body).Want(http.StatusOK)
			x.Post(flowPath(f.ID, "cancel"), body).Want(http.StatusOK)
			x.Post(flowPath(x.at("running").ID, "finish"), body, "Content-Type: application/x-www-form-urlencoded").Want(http.StatusOK)
		}
	}},
	{"Idempotency-Key: one flow and one answer, for create and for verbs (acceptance 7)", func(x *flowTest) {
		key := "Idempotency-Key: k-" + x.namespace
		first := x.Post("/v1/flows", `{"goal":"x","start":true}`, key).Want(http.StatusCreated)
		again := x.same(func() *apitest.Response { return x.Post("/v1/flows", `{"goal":"x","start":true}`, key) }).Want(http.StatusCreated)
		if !bytes.Equal(first.Body, again.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.Header.Get("Idempotent-Replay") != "" ||
			again.ETag() != first.ETag() || again.Header.Get("Location") != first.Header.Get("Location") {
			x.t.Errorf("first %v %s\nagain %v %s", first.Header, first.Body, again.Header, again.Body)
		}
		x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.Post("/v1/flows", `{"goal":"y","start":true}`, key) })
		id := uuid.MustParse(first.Str("id"))
		x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.verb(id, "finish", "", key) }, id)
		for i, verb := range []flowVerb{posted("wait", waitBody(manual)), posted("resume", `{"state":{"a":1}}`), posted("request-cancel", ""), posted("fail", `{"reason":"no"}`)} {
			body := []string{waitBody(manual), `{"state":{"a":1}}`, "", `{"reason":"no"}`}[i]
			one := x.verb(id, verb.name, body, key+verb.name).Want(http.StatusOK)
			two := x.same(func() *apitest.Response { return x.verb(id, verb.name, body, key+verb.name) }, id).Want(http.StatusOK)
			if !bytes.Equal(one.Body, two.Body) || two.Header.Get("Idempotent-Replay") != "true" || two.ETag() != one.ETag() {
				x.t.Errorf("%s: first %s, then %s", verb.name, one.Body, two.Body)
			}
			x.advance(0)
		}
	}},
	{"a refusal is not kept under its key (http.md)", func(x *flowTest) {
		f, key := x.create(""), "Idempotency-Key: r-"+x.namespace
		x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.verb(f.ID, "finish", "", key) }, f.ID)
		x.do(f.ID, "start", "")
		x.verb(f.ID, "finish", "", key).Want(http.StatusOK)
	}},
	{"at once with one key, one flow is made (acceptance 7)", func(x *flowTest) {
		key := "Idempotency-Key: c-" + x.namespace
		answers := flowsAtOnce(8, func(int) *apitest.Response { return x.Post("/v1/flows", `{"goal":"x"}`, key) })
		for _, answer := range answers {
			if answer.Status != http.StatusCreated {
				answer.Problem(fault.CodeIdempotencyInFlight)
			}
		}
		if n := len(x.list("")); n != 1 {
			x.t.Errorf("%d flows", n)
		}
	}},
	{"a large state comes back under its key, rendered again (http.md)", func(x *flowTest) {
		key, body := "Idempotency-Key: l-"+x.namespace, `{"goal":"x","state":{"text":"`+strings.Repeat("x", 100<<10)+`"}}`
		first := x.Post("/v1/flows", body, key).Want(http.StatusCreated)
		again := x.Post("/v1/flows", body, key).Want(http.StatusCreated)
		if !cmp.Equal(first.JSON(), again.JSON()) || again.Header.Get("Idempotent-Replay") != "true" || again.ETag() != `"0"` {
			x.t.Errorf("%v", again.Header)
		}
	}},
}

// nowhere asks everything of a flow that is not there for this caller: the answer is always that, changes nothing and shows
// none of the secrets.
func (x *flowTest) nowhere(id uuid.UUID, secrets []string) {
	x.t.Helper()
	before := countRows(x.t, x.server)
	path := flowPath(id)
	for _, r := range []struct{ method, path, body string }{
		{"GET", path, ""}, {"GET", path + "?until=terminal", ""}, {"PUT", path + "?revision=1", `{"goal":"x"}`}, {"PATCH", path, `{"state":{}}`}, {"DELETE", path, ""},
		{"POST", path + "/start", ""}, {"POST", path + "/wait", waitBody(manual)}, {"POST", path + "/resume", ""}, {"POST", path + "/finish", ""},
		{"POST", path + "/fail", `{"reason":"x"}`}, {"POST", path + "/request-cancel", ""}, {"POST", path + "/cancel", ""},
		{"GET", path + "/events", ""}, {"POST", path + "/events", `{"type":"custom.x"}`}, {"GET", path + "/events/stream", ""},
		{"GET", path + "/steps", ""}, {"POST", path + "/steps", `{"run_id":"x","task":"x"}`}, {"GET", path + "/steps/r", ""},
		{"PUT", path + "/steps/r", `{"task":"x","status":"running"}`}, {"PATCH", path + "/steps/r", `{"status":"running"}`},
		{"GET", path + "/tags", ""}, {"GET", path + "/tags/a.b", ""}, {"PUT", path + "/tags/a.b", `{"value":"x"}`},
		{"POST", "/v1/external-events", `{"topic":"t","correlation_id":"c","flow_id":"` + id.String() + `"}`},
		{"POST", "/v1/executions", `{"lane":"l","flow_id":"` + id.String() + `"}`},
	} {
		var body any
		if r.body != "" {
			body = r.body
		}
		answer := x.Do(r.method, r.path, body).Problem(fault.CodeNotFound)
		x.facts(answer, map[string]any{"resource": "flow"})
		for _, secret := range secrets {
			if bytes.Contains(answer.Body, []byte(secret)) {
				x.t.Errorf("%s %s tells %q: %s", r.method, r.path, secret, answer.Body)
			}
		}
	}
	if diff := cmp.Diff(before, countRows(x.t, x.server)); diff != "" {
		x.t.Errorf("something was changed (-before +after):\n%s", diff)
	}
}

// flowsAtOnce makes n calls at the same time.
func flowsAtOnce(n int, call func(i int) *apitest.Response) []*apitest.Response {
	answers, begin, done := make([]*apitest.Response, n), make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			<-begin
			answers[i] = call(i)
		}()
	}
	close(begin)
	for range n {
		<-done
	}
	return answers
}
