package app_test

import (
	"fmt"
	"maps"
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

// flowRevisionCases: http.md CAS; model.md "Revision"; C5 NX-02 and 03; D5 35, 37 and 38; acceptance 6.
var flowRevisionCases = []flowCase{
	{"every change is one revision, and one event with its time (B6, D5 35)", func(x *flowTest) {
		f := x.create("")
		for i, change := range []func() *apitest.Response{
			func() *apitest.Response { return x.verb(f.ID, "start", "") },
			func() *apitest.Response { return x.patch(f.ID, `{"state":{"a":1}}`) },
			func() *apitest.Response { return x.verb(f.ID, "wait", waitBody(manual)) },
			func() *apitest.Response { return x.patch(f.ID, `{"state":{"b":1}}`) },
			func() *apitest.Response { return x.verb(f.ID, "resume", "") },
			func() *apitest.Response { return x.Do("PUT", flowPath(f.ID, "tags", "a.b"), `{"value":"c"}`) },
			func() *apitest.Response { return x.put(f.ID, 6, `{"goal":"y"}`) },
			func() *apitest.Response { return x.verb(f.ID, "request-cancel", "") },
			func() *apitest.Response { return x.verb(f.ID, "cancel", "") },
		} {
			if got := change().Want(http.StatusOK).ETag(); got != fmt.Sprintf(`"%d"`, i+1) {
				x.t.Errorf("change %d leads to %s", i, got)
			}
			if now, e := x.flow(f.ID), x.trail(f.ID, "")[0]; now.Revision != int64(i+1) || *e.Revision != now.Revision || !e.At.Equal(now.UpdatedAt) {
				x.t.Errorf("change %d: revision %d at %s, event of %d at %s", i, now.Revision, now.UpdatedAt, *e.Revision, e.At)
			}
		}
	}},
	{"If-None-Match saves the answer", func(x *flowTest) {
		f := x.at("running")
		for header, status := range map[string]int{`"1"`: 304, `W/"1"`: 304, `"0", "1"`: 304, `"0"`: 200, `"2"`: 200, `"10"`: 200, `"x"`: 200} {
			answer := x.Get(flowPath(f.ID), "If-None-Match: "+header).Want(status)
			if answer.ETag() != `"1"` || status == 304 && len(answer.Body) > 0 {
				x.t.Errorf("%s: ETag %s, %s", header, answer.ETag(), answer.Body)
			}
		}
		x.patch(f.ID, `{"state":{}}`).Want(http.StatusOK)
		x.Get(flowPath(f.ID), `If-None-Match: "1"`).Want(http.StatusOK)
	}},
	{"every change depends on a revision that is named, in each spelling", func(x *flowTest) {
		for _, v := range []struct {
			from         oapi.FlowStatus
			method, path string
			body         any
		}{
			{"created", "POST", "/start", nil}, {"running", "POST", "/wait", waitBody(manual)}, {"waiting", "POST", "/resume", nil}, {"running", "POST", "/finish", nil},
			{"running", "POST", "/fail", `{"reason":"x"}`}, {"running", "POST", "/request-cancel", nil}, {"running", "POST", "/cancel", nil},
			{"running", "PATCH", "", `{"state":{"x":1}}`}, {"running", "PUT", "", `{"goal":"y"}`}, {"running", "PUT", "/tags/a.b", `{"value":"c"}`}, {"finished", "DELETE", "", nil},
		} {
			x.sub(v.method+" "+v.path, func(x *flowTest) {
				for _, right := range []string{`If-Match: "%d"`, `If-Match: W/"%d"`, `?revision=%d`} {
					f := x.at(v.from)
					send := func(revision int64) *apitest.Response {
						named := fmt.Sprintf(right, revision)
						if query, ok := strings.CutPrefix(named, "?"); ok {
							return x.Do(v.method, flowPath(f.ID)+v.path+"?"+query, v.body)
						}
						return x.Do(v.method, flowPath(f.ID)+v.path, v.body, named)
					}
					for _, wrong := range []int64{f.Revision + 1, f.Revision + 1000} {
						answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return send(wrong) }, f.ID)
						x.facts(answer, map[string]any{"expected": float64(wrong), "actual": float64(f.Revision)})
					}
					if answer := send(f.Revision); answer.Status >= 300 {
						x.t.Errorf("%s: %d %s", right, answer.Status, answer.Body)
					}
				}
			})
		}
	}},
	{"an If-Match that is no ETag of ours is refused, and * is any", func(x *flowTest) {
		f := x.at("running")
		for _, header := range []string{`abc`, `"abc"`, `"-1"`, `"1", "2"`, `"1`, `W/1"`, `"1.0"`, `"99999999999999999999"`} {
			answer := x.refused(fault.CodeInvalidParameter, func() *apitest.Response { return x.patch(f.ID, `{"state":{}}`, "If-Match: "+header) }, f.ID)
			x.points(answer, fault.InHeader, "If-Match")
		}
		for _, query := range []string{"-1", "x", "1.5", "", "99999999999999999999"} {
			answer := x.same(func() *apitest.Response { return x.Do("PATCH", flowPath(f.ID)+"?revision="+query, `{"state":{}}`) }, f.ID)
			if query == "-1" {
				answer.Problem(fault.CodeValidationFailed) // a number, but none of ours
			} else {
				answer.Problem(fault.CodeInvalidParameter)
			}
			x.points(answer, fault.InQuery, "revision")
		}
		x.patch(f.ID, `{"state":{"x":1}}`, "If-Match: *").Want(http.StatusOK)
	}},
	{"a refusal names what has changed since", func(x *flowTest) {
		f := x.at("running") // revision 1
		changed := func(since int64) any {
			return x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.patch(f.ID, `{"state":{}}`, ifMatch(since)) }, f.ID).Get("changed")
		}
		x.patch(f.ID, `{"state":{"a":1}}`).Want(http.StatusOK)          // 2
		x.patch(f.ID, `{"current_step":"two"}`).Want(http.StatusOK)     // 3
		x.do(f.ID, "wait", waitBody(manual))                            // 4
		x.put(f.ID, 4, `{"goal":"other","tags":{"a.b":"c"}}`).Want(200) // 5
		x.do(f.ID, "fail", `{"reason":"x"}`)                            // 6
		for since, want := range map[int64][]any{
			5: {"status", "wait", "failure"},
			4: {"goal", "current_step", "state", "tags", "status", "wait", "failure"},
			2: {"goal", "current_step", "state", "tags", "status", "wait", "failure"},
			7: {},
		} {
			if diff := cmp.Diff(any(want), changed(since)); diff != "" {
				x.t.Errorf("since %d (-want +got):\n%s", since, diff)
			}
		}
	}},
	{"what is too long ago may have changed anything", func(x *flowTest) {
		f := x.at("running")
		for i := range 35 {
			x.patch(f.ID, fmt.Sprintf(`{"state":{"n":%d}}`, i)).Want(http.StatusOK)
		}
		all := x.patch(f.ID, `{"state":{}}`, ifMatch(0)).Problem(fault.CodeRevisionMismatch).Len("changed")
		few := x.patch(f.ID, `{"state":{}}`, ifMatch(30)).Problem(fault.CodeRevisionMismatch).Len("changed")
		if all < 10 || few != 1 {
			x.t.Errorf("%d and %d fields", all, few)
		}
	}},
	{"ten at once with the same If-Match: one succeeds, nine are told (acceptance 6, NX-03)", func(x *flowTest) {
		f := x.at("running")
		succeeded := 0
		for i, answer := range flowsAtOnce(10, func(i int) *apitest.Response {
			return x.patch(f.ID, fmt.Sprintf(`{"state":{"k%d":true}}`, i), ifMatch(1))
		}) {
			if answer.Status == http.StatusOK {
				succeeded++
				x.state(x.flow(f.ID), fmt.Sprintf(`{"n":1,"k%d":true}`, i))
				continue
			}
			x.facts(answer.Problem(fault.CodeRevisionMismatch), map[string]any{"expected": 1.0, "actual": 2.0, "changed": []any{"state"}})
		}
		if succeeded != 1 {
			x.t.Errorf("%d succeeded", succeeded)
		}
		x.stands(f.ID, "running", 2)
		x.told(f.ID, "flow.created", "flow.started", "flow.state_updated")
	}},
	{"ten at once without If-Match: all apply (acceptance 6)", func(x *flowTest) {
		f := x.at("running")
		revisions := map[string]bool{}
		for _, answer := range flowsAtOnce(10, func(i int) *apitest.Response { return x.patch(f.ID, fmt.Sprintf(`{"state":{"k%d":true}}`, i)) }) {
			revisions[answer.Want(http.StatusOK).ETag()] = true
		}
		if len(revisions) != 10 {
			x.t.Errorf("the answers have %d revisions", len(revisions))
		}
		x.state(x.stands(f.ID, "running", 11), `{"n":1,"k0":true,"k1":true,"k2":true,"k3":true,"k4":true,"k5":true,"k6":true,"k7":true,"k8":true,"k9":true}`)
	}},
	{"two at once both apply, with both keys (NX-02)", func(x *flowTest) {
		f := x.at("running")
		for _, answer := range flowsAtOnce(2, func(i int) *apitest.Response { return x.patch(f.ID, fmt.Sprintf(`{"state":{"k%d":1}}`, i)) }) {
			answer.Want(http.StatusOK)
		}
		x.state(x.stands(f.ID, "running", 3), `{"n":1,"k0":1,"k1":1}`)
	}},
	{"verbs at once: one finishes, the others are told (D5 37)", func(x *flowTest) {
		f := x.at("running")
		succeeded := 0
		for _, answer := range flowsAtOnce(6, func(i int) *apitest.Response {
			return x.verb(f.ID, []string{"finish", "fail", "cancel"}[i%3], []string{"", `{"reason":"x"}`, ""}[i%3])
		}) {
			if answer.Status == http.StatusOK { // cancel of what is cancelled is fine, too
				succeeded++
				continue
			}
			answer.Problem(fault.CodeAlreadyTerminal)
		}
		got := x.flow(f.ID)
		if got.Revision != 2 || succeeded != 1 && (succeeded != 2 || got.Status != "cancelled") {
			x.t.Errorf("%d succeeded; %s at revision %d", succeeded, got.Status, got.Revision)
		}
	}},
}

// flowReplaceCases: PUT, the original's update_with_revision; model.md "Revision", B5.
var flowReplaceCases = []flowCase{
	{"it needs a revision, whatever the body is (428)", func(x *flowTest) {
		f := x.at("running")
		for name, send := range map[string]func(x *flowTest) *apitest.Response{
			"a good body": func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), `{"goal":"y"}`) },
			"no body":     func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), nil) },
			"not JSON":    func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), `{"goal":`) },
			"outside":     func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), `{"gaol":1}`) },
			"of another type": func(x *flowTest) *apitest.Response {
				return x.Do("PUT", flowPath(f.ID), `<a/>`, "Content-Type: text/xml")
			},
			"too large":        func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), strings.Repeat(" ", 2<<20)) },
			"any revision":     func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID), `{`, "If-Match: *") },
			"nothing in query": func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(f.ID)+"?namespace="+x.namespace, `{`) },
			"no such flow":     func(x *flowTest) *apitest.Response { return x.Do("PUT", flowPath(uuid.New()), `{`) },
		} {
			x.sub(name, func(x *flowTest) {
				x.refused(fault.CodePreconditionRequired, func() *apitest.Response { return send(x) }, f.ID)
			})
		}
		x.refused(fault.CodeMalformedJSON, func() *apitest.Response { return x.put(f.ID, 1, `{`) }, f.ID)
	}},
	{"a flow as GET gives it goes back, and what the server owns is ignored", func(x *flowTest) {
		for _, s := range []oapi.FlowStatus{"created", "running", "waiting"} {
			f := x.at(s)
			sent := x.Get(flowPath(f.ID)).JSON()
			sent["goal"], sent["kind"], sent["controller_id"], sent["owner_session_key"] = "other", "k", "c", "o"
			sent["requester_origin"], sent["current_step"], sent["state"], sent["tags"] = "r", "s", []any{1.0}, map[string]any{"x.y": "z"}
			want := map[string]any{}
			maps.Copy(want, sent)
			maps.Copy(sent, map[string]any{"id": uuid.NewString(), "namespace": "other", "revision": 99.0, "graph_revision": 9.0, "node_count": 5.0, "edge_count": "x",
				"cancel_requested": true, "auto_finish": true, "created_at": "never", "updated_at": 1.0, "ended_at": "now", "failure": "f", "cancellation": 1.0, "rollup": 1.0, "members": nil})
			x.advance(2 * time.Second)
			got := x.put(f.ID, f.Revision, sent).Want(http.StatusOK)
			after := got.JSON()
			if got.ETag() != fmt.Sprintf(`"%d"`, f.Revision+1) || after["updated_at"] == want["updated_at"] {
				x.t.Errorf("ETag %s, updated_at %v", got.ETag(), after["updated_at"])
			}
			want["revision"], want["updated_at"] = float64(f.Revision+1), after["updated_at"]
			if diff := cmp.Diff(want, after); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", s, diff)
			}
			e, data := x.last(f.ID)
			changed := []any{"kind", "controller_id", "goal", "owner_session_key", "requester_origin", "current_step", "state", "tags"}
			if e.Type != "flow.replaced" || !cmp.Equal(any(changed), data["changed"]) {
				x.t.Errorf("%s %v", e.Type, data)
			}
		}
	}},
	{"what is left out gets its default; status and wait stay", func(x *flowTest) {
		f := x.create(`"kind":"k","controller_id":"c","owner_session_key":"o","requester_origin":"r","current_step":"s","state":{"a":1},"tags":{"a.b":"c"},"start":true`)
		f = x.park(f.ID, manual)
		got := flowAs[oapi.Flow](x.put(f.ID, 2, `{"goal":"y"}`).Want(http.StatusOK))
		want := oapi.Flow{ID: f.ID, Namespace: x.namespace, Goal: "y", CurrentStep: "init", State: oapi.Document(`{}`), Wait: f.Wait, Status: "waiting", Revision: 3, Tags: oapi.Tags{},
			BudgetIds: oapi.BudgetIDs{}, QuotaPolicyIds: oapi.QuotaPolicyIDs{}, CreatedAt: f.CreatedAt, UpdatedAt: got.UpdatedAt}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"status moves by the same steps as the verbs", func(x *flowTest) {
		legal := map[oapi.FlowStatus][]oapi.FlowStatus{
			"created": {"running", "cancelled"}, "running": {"waiting", "finished", "failed", "cancelled"}, "waiting": {"running", "failed", "cancelled"},
		}
		for _, from := range []oapi.FlowStatus{"created", "running", "waiting", "finished", "failed", "cancelled"} {
			for _, to := range []oapi.FlowStatus{"created", "running", "waiting", "finished", "failed", "cancelled"} {
				x.sub(string(from+" to "+to), func(x *flowTest) { x.replaceStatus(from, to, slices.Contains(legal[from], to)) })
			}
		}
	}},
	{"a wait begins with its status, and is held to the same rules", func(x *flowTest) {
		f := x.at("running")
		for body, pointer := range map[string]string{
			`{"goal":"x","status":"waiting","wait":{"condition":` + x.after(-time.Hour) + `}}`:                      "timer_out_of_range /wait/condition/at",
			`{"goal":"x","status":"waiting","wait":{"condition":` + manual + `,"deadline":"2001-01-01T00:00:00Z"}}`: "timer_out_of_range /wait/deadline",
			`{"goal":"x","status":"waiting","wait":{"condition":{"kind":"any","of":[{"kind":"x"}]}}}`:               "bad_wait_condition /wait/condition/of/0/kind",
			`{"goal":"x","status":"waiting"}`:                                           "validation_failed /wait",
			`{"goal":"x","status":"waiting","wait":null}`:                               "validation_failed /wait",
			`{"goal":"x","wait":{"condition":` + manual + `}}`:                          "validation_failed /wait",
			`{"goal":"x","status":"finished","wait":{"condition":` + manual + `}}`:      "validation_failed /wait",
			`{"goal":"x","status":"waiting","wait":{}}`:                                 "validation_failed /wait/condition",
			`{"goal":"x","status":"waiting","wait":{"condition":` + manual + `,"x":1}}`: "validation_failed /wait/x",
			`{"goal":"x","tags":{"Bad":"x"}}`:                                           "invalid_tag_key /tags/Bad",
			`{"goal":" "}`:                                                              "validation_failed /goal",
			`{"kind":"x"}`:                                                              "validation_failed /goal",
		} {
			code, at, _ := strings.Cut(pointer, " ")
			x.points(x.refused(fault.Code(code), func() *apitest.Response { return x.put(f.ID, 1, body) }, f.ID), fault.InBody, at)
		}
		x.deliver("t", "c", `"payload":"kept"`)
		got := flowAs[oapi.Flow](x.put(f.ID, 1, `{"goal":"x","status":"waiting","wait":{"condition":`+outside("t", "c")+`}}`).Want(http.StatusOK))
		x.state(got, `{"resume_event":"kept"}`)
		x.stands(f.ID, "running", 3)
		x.told(f.ID, "flow.created", "flow.started", "flow.replaced", "flow.resumed")
	}},
	{"a wait is not exchanged for another one", func(x *flowTest) {
		f := x.waiting(manual)
		other := `{"goal":"x","status":"waiting","wait":{"condition":` + outside("t", "c") + `}}`
		x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.put(f.ID, 2, other) }, f.ID)
	}},
	{"the intent and the end are respected", func(x *flowTest) {
		f := x.at("running")
		x.do(f.ID, "request-cancel", "")
		x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.put(f.ID, 2, `{"goal":"x"}`) }, f.ID)
		x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.put(f.ID, 2, `{"goal":"x","status":"finished"}`) }, f.ID)
		x.put(f.ID, 2, `{"goal":"x","status":"failed"}`).Want(http.StatusOK)
		got := x.stands(f.ID, "failed", 3)
		if got.Failure.Reason == "" {
			x.t.Error("there is no reason")
		}
		x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.put(f.ID, 3, `{"goal":"x","status":"failed"}`) }, f.ID)
	}},
}

// replaceStatus moves a flow from one status to another by PUT.
func (x *flowTest) replaceStatus(from, to oapi.FlowStatus, legal bool) {
	x.t.Helper()
	f := x.at(from)
	members := []string{`"goal":"Release 1.4"`, `"state":{"n":1}`, fmt.Sprintf(`"status":%q`, to)}
	if to == "waiting" && from != "waiting" {
		members = append(members, `"wait":{"condition":`+manual+`}`)
	}
	send := func() *apitest.Response { return x.put(f.ID, f.Revision, "{"+joined(members...)+"}") }
	switch {
	case f.EndedAt != nil:
		x.refused(fault.CodeAlreadyTerminal, send, f.ID)
	case from != to && !legal:
		x.facts(x.refused(fault.CodeIllegalTransition, send, f.ID), map[string]any{"from": string(from), "to": string(to)})
	default:
		send().Want(http.StatusOK)
		x.stands(f.ID, to, f.Revision+1)
		_, data := x.last(f.ID)
		if (from != to) != cmp.Equal(data["changed"], any([]any{"status"})) {
			x.t.Errorf("the event says %v", data)
		}
		if n := len(x.inbox("?flow_id=" + f.ID.String())); n == 1 != (to == "waiting") {
			x.t.Errorf("%d waits are open", n)
		}
	}
}

// flowPatchCases: PATCH in both media types; model.md "State merge", B6, B13 15.
func flowPatchCases() []flowCase {
	const mergePatch = "Content-Type: application/merge-patch+json"
	return []flowCase{
		{"application/json merges shallowly", func(x *flowTest) {
			for _, tt := range []struct{ state, patch, want string }{
				{`{"a":1,"b":2}`, `{"b":3}`, `{"a":1,"b":3}`},
				{`{"a":{"x":1,"y":2}}`, `{"a":{"z":3}}`, `{"a":{"z":3}}`},
				{`{"a":1}`, `{"a":null}`, `{"a":null}`}, // null is stored
				{`{"a":1}`, `{}`, `{"a":1}`},
				{`{"a":1}`, `[1,2]`, `[1,2]`}, // what is no object replaces the whole
				{`[1,2]`, `{"a":1}`, `{"a":1}`},
				{`{"a":1}`, `"text"`, `"text"`},
				{`{"a":1}`, `null`, `null`},
			} {
				f := x.running(`"state":` + tt.state)
				got := flowAs[oapi.Flow](x.patch(f.ID, `{"state":`+tt.patch+`}`).Want(http.StatusOK))
				x.state(got, tt.want)
				if got.Revision != 2 {
					x.t.Errorf("%s with %s leads to revision %d", tt.state, tt.patch, got.Revision)
				}
			}
		}},
		{"application/merge-patch+json merges by RFC 7396", func(x *flowTest) {
			for _, tt := range []struct{ state, patch, want string }{
				{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
				{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
				{`{"a":{"b":"c","d":1}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d","d":1}}`},
				{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
				{`["a","b"]`, `["c","d"]`, `["c","d"]`},
				{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
				{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
				{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
				{`{"a":"foo"}`, `"bar"`, `"bar"`},
				{`{"a":"foo"}`, `null`, `{}`}, // the member is removed, and begins again
			} {
				f := x.running(`"state":` + tt.state)
				x.state(flowAs[oapi.Flow](x.patch(f.ID, `{"state":`+tt.patch+`}`, mergePatch).Want(http.StatusOK)), tt.want)
				if _, data := x.last(f.ID); data["merge"] != "rfc7396" {
					x.t.Errorf("the event says %v", data)
				}
			}
		}},
		{"numbers and the order of members stay as they were written", func(x *flowTest) {
			f := x.running(`"state":{"z":1.50,"a":12345678901234567890,"e":1e-7}`)
			got := flowAs[oapi.Flow](x.patch(f.ID, `{"state":{"n":0.10}}`).Want(http.StatusOK))
			if string(got.State) != `{"z":1.50,"a":12345678901234567890,"e":1e-7,"n":0.10}` {
				x.t.Errorf("%s", got.State)
			}
		}},
		{"the step label alone is a change; nothing is none", func(x *flowTest) {
			f := x.at("created")
			got := flowAs[oapi.Flow](x.patch(f.ID, `{"current_step":"plan"}`).Want(http.StatusOK))
			if got.CurrentStep != "plan" || got.Revision != 1 || string(got.State) != `{"n":1}` {
				x.t.Errorf("%+v", got)
			}
			x.same(func() *apitest.Response { return x.patch(f.ID, `{}`) }, f.ID).Want(http.StatusOK)
			x.same(func() *apitest.Response { return x.patch(f.ID, `{}`, mergePatch) }, f.ID).Want(http.StatusOK)
		}},
		{"what is outside the contract changes nothing", func(x *flowTest) {
			f := x.at("running")
			for body, pointer := range map[string]string{`{"status":"finished"}`: "/status", `{"current_step":""}`: "/current_step", `{"current_step":null}`: "/current_step",
				`{"goal":"x"}`: "/goal", `[]`: "", `"x"`: ""} {
				for _, kind := range []string{"Content-Type: application/json", mergePatch} {
					x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.patch(f.ID, body, kind) }, f.ID), fault.InBody, pointer)
				}
			}
			x.refused(fault.CodeMalformedJSON, func() *apitest.Response { return x.patch(f.ID, "") }, f.ID)
			x.refused(fault.CodeUnsupportedMediaType, func() *apitest.Response { return x.patch(f.ID, `{}`, "Content-Type: application/json-patch+json") }, f.ID)
		}},
	}
}
