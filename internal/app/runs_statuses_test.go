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

// runStatuses are the statuses of runs.
var runStatuses = []string{"pending", "running", "waiting", "cancelling", "needs_resume", "completed", "failed", "cancelled"}

// runStatusCases: the words for where things stand. reference: runs-and-taskflows.md A4, C2 "Statuses", RM-03, RM-17.
func runStatusCases() []runCase {
	return []runCase{
		{"each status of a run is found by its own name (statuses, RM-03)", func(x *runTest) {
			made := map[string]uuid.UUID{}
			for _, status := range runStatuses {
				made[status] = x.stands(x.at(status).ID, status).ID
			}
			for status, id := range made {
				if got := x.list("&status=" + status); len(got) != 1 || got[0].ID != id || string(got[0].Status) != status {
					x.t.Errorf("status=%s lists %v, want %s", status, runIDs(got), id)
				}
			}
			two := []uuid.UUID{made["failed"], made["pending"]}
			for _, query := range []string{"&status=failed,pending", "&status=pending&status=failed", "&status=failed,pending&status=failed"} {
				if diff := cmp.Diff(two, runIDs(x.list(query))); diff != "" {
					x.t.Errorf("%s (-want +got):\n%s", query, diff)
				}
			}
			if got := x.list(""); len(got) != len(runStatuses) {
				x.t.Errorf("%d runs", len(got))
			}
		}},
		{"three statuses are active, three are ends, and none is both (statuses)", func(x *runTest) {
			for _, status := range runStatuses {
				x.at(status)
			}
			active, ended := map[string]bool{}, map[string]bool{}
			for _, r := range x.list("&active=true") {
				active[string(r.Status)] = true
			}
			for _, r := range x.list("") {
				if r.EndedAt != nil {
					ended[string(r.Status)] = true
				}
			}
			if diff := cmp.Diff(map[string]bool{"pending": true, "running": true, "waiting": true}, active); diff != "" {
				x.t.Errorf("active (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]bool{"completed": true, "failed": true, "cancelled": true}, ended); diff != "" {
				x.t.Errorf("ended (-want +got):\n%s", diff)
			}
		}},
		{"each status of a step is found by its own name (statuses)", func(x *runTest) {
			r := x.running("")
			for i, status := range stepStatuses {
				x.stepAt(r, status, fmt.Sprintf(`"path":%q,"position":%d`, status, i))
			}
			for i, status := range stepStatuses {
				if got := x.steps(r, "&status="+status); len(got) != 1 || got[0].Position != int64(i) || string(got[0].Status) != status {
					x.t.Errorf("status=%s lists %+v", status, got)
				}
			}
		}},
		{"each status of an item is found by its own name (statuses)", func(x *runTest) {
			r, s, items := x.fan(itemStatuses...)
			for i, it := range items[1:] {
				x.patchItems(r, s.ID, itemTo(it, itemStatuses[i+1])).Want(http.StatusOK)
			}
			for _, status := range itemStatuses {
				if got := x.listItems(r, s.ID, "&status="+status); len(got) != 1 || got[0].ItemID != status || string(got[0].Status) != status {
					x.t.Errorf("status=%s lists %+v", status, got)
				}
			}
			x.counted(r, s.ID, "1 1 1 1 1 1")
		}},
	}
}

// runWordCases: words that are none, and what they stand for.
func runWordCases() []runCase {
	return []runCase{
		{"each role is one, and the originals' others are not (A13 24)", func(x *runTest) {
			r := x.running("")
			for _, role := range []string{"agent", "script", "foreach", "workflow", "wait"} {
				x.step(r, fmt.Sprintf(`"path":%q,"role":%q`, role, role))
				if got := x.steps(r, "&role="+role); len(got) != 1 || string(got[0].Role) != role {
					x.t.Errorf("role=%s lists %+v", role, got)
				}
			}
			x.gate(r, "")
			if got := x.steps(r, "&role=gate"); len(got) != 1 || got[0].Gate == nil {
				x.t.Errorf("gates %+v", got)
			}
			for _, role := range []string{"actor", "reviewer", "Agent", ""} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.insert(r, fmt.Sprintf(`"path":"p","role":%q`, role)) }, r.ID)
				x.points(answer, fault.InBody, "/role")
			}
		}},
		{"a word that is no status is refused where something is looked for (statuses)", func(x *runTest) {
			r, s, _ := x.fan()
			for query, name := range map[string]string{
				"/v1/runs?status=timed_out": "status", "/v1/runs?status=succeeded": "status", "/v1/runs?status=running,skipped": "status",
				"/v1/runs?status=RUNNING": "status", "/v1/runs?status=running,": "status",
				runPath(r.ID, "steps") + "?status=needs_resume": "status", runPath(r.ID, "steps") + "?status=": "status", runPath(r.ID, "steps") + "?role=actor": "role",
				stepPath(r, s.ID, "items") + "?status=timed_out": "status", stepPath(r, s.ID, "items") + "?status=waiting": "status",
			} {
				x.points(x.Get(query).Problem(fault.CodeValidationFailed), fault.InQuery, name)
			}
			x.points(x.Get("/v1/runs?status=").Problem(fault.CodeInvalidParameter), fault.InQuery, "status") // no word at all
		}},
		{"whether a run is cancelled is told by its status, and to who holds it (RM-17, A5.9)", func(x *runTest) {
			r := x.running("")
			if x.hold(r.ID, engineToken, time.Hour).CancelRequested {
				x.t.Error("nobody has asked for it")
			}
			x.people(r, "cancel", "").Want(http.StatusOK)
			if got := x.stands(r.ID, "cancelling"); *got.CancelReason != "user_requested" || !x.hold(r.ID, engineToken, time.Hour).CancelRequested {
				x.t.Errorf("%+v", got)
			}
			x.do(r, "cancel", "")
			x.facts(x.lease(r.ID, engineToken, time.Hour).Problem(fault.CodeRunTerminal), map[string]any{"current_status": "cancelled"})
		}},
	}
}

// runPost is a request that can be sent again.
type runPost struct {
	name string
	make func(x *runTest) (r oapi.Run, path, body string)
}

// runPosts are the POSTs of runs, each made ready to be sent.
func runPosts() []runPost {
	verb := func(status, verb, members string, fenced bool) runPost {
		return runPost{verb, func(x *runTest) (oapi.Run, string, string) {
			r := x.at(status)
			path := runPath(r.ID, strings.Split(verb, "/")...)
			if fenced {
				return r, path, engineBody(r, members)
			}
			return r, path, "{" + members + "}"
		}}
	}
	step := func(name, path, body string) runPost {
		return runPost{name, func(x *runTest) (oapi.Run, string, string) {
			r, s, _ := x.fan("1")
			asked := x.gate(r, "")
			fill := strings.NewReplacer("{run}", runPath(r.ID), "{fan}", stepPath(r, s.ID), "{gate}", stepPath(r, asked.ID), "{id}", s.ID.String(), "{lane}", x.namespace)
			return r, fill.Replace(path), fill.Replace(body)
		}}
	}
	items := make([]string, 100) // with more than 64 KiB
	for i := range items {
		items[i] = "{" + ticket(fmt.Sprint("T-", i), `"item_ref":"`+strings.Repeat("r", 1000)+`"`) + "}"
	}
	large := strings.Repeat("x", 100_000)
	return []runPost{
		{"create", func(x *runTest) (oapi.Run, string, string) {
			return x.create(""), "/v1/runs", `{"workflow_name":"again"}`
		}},
		{"create a large one", func(x *runTest) (oapi.Run, string, string) {
			return x.create(""), "/v1/runs", `{"workflow_name":"again","inputs":{"text":"` + large + `"}}`
		}},
		verb("pending", "start", "", true), verb("running", "wait", blockedOn, true), verb("waiting", "resume", "", true), verb("failed", "resume", "", false),
		verb("running", "complete", "", true), verb("running", "fail", `"error":"no disk"`, true), verb("running", "cancel", "", true), verb("running", "cancel", `"reason":"old"`, false),
		verb("running", "dismiss", "", false), verb("running", "lease/release", `"token":"`+engineToken+`"`, true), verb("pending", "lease", `"token":"`+engineToken+`","ttl_ms":60000`, false),
		step("insert", "{run}/steps", `{"generation":1,"step_name":"new","role":"agent","position":1}`),
		step("insert with a child", "{run}/steps", `{"generation":1,"step_name":"new","role":"agent","position":1,"child":{"execution":{"lane":"{lane}"}}}`),
		step("insert a large gate", "{run}/steps", `{"generation":1,"step_name":"new","role":"gate","position":1,"gate":{"gate_type":"human_review","options":[{"value":"a","label":"`+strings.Repeat("l", 200)+`"}],"prompt":"`+strings.Repeat("p", 16384)+`"}}`),
		step("recover", "{run}/steps/recover", `{"steps":[{"step_id":"{id}","status":"failed"}]}`),
		step("add items", "{fan}/items", `{"generation":1,"items":[{"item_type":"ticket","item_id":"1"},{"item_type":"ticket","item_id":"2"}]}`),
		step("add items with children", "{fan}/items", `{"generation":1,"items":[{"item_type":"ticket","item_id":"2","child":{"run":{"workflow_name":"sub"}}}]}`),
		step("add many items", "{fan}/items", `{"generation":1,"items":[`+strings.Join(items, ",")+`]}`),
		step("approve", "{gate}/gate/approve", `{"feedback":"fine"}`), step("reject", "{gate}/gate/reject", `{}`), step("feedback", "{gate}/gate/feedback", `{"feedback":"hm"}`),
	}
}

// runIdempotencyCases: the same request with the same key has one effect and one answer. reference: A13 43, D6 48.
func runIdempotencyCases() []runCase {
	var cases []runCase
	for i, p := range runPosts() {
		key := fmt.Sprint("Idempotency-Key: k", i)
		cases = append(cases, runCase{fmt.Sprintf("%d %s (D6 48, A13 43)", i, p.name), func(x *runTest) {
			r, path, body := p.make(x)
			first := x.Post(path, body, key)
			if first.Status != http.StatusOK && first.Status != http.StatusCreated || first.Header.Get("Idempotent-Replay") != "" {
				x.t.Fatalf("%d %v %s", first.Status, first.Header, first.Body)
			}
			for range 2 {
				again := x.same(func() *apitest.Response { return x.Post(path, body, key) }, r.ID).Want(first.Status)
				if again.Header.Get("Idempotent-Replay") != "true" || string(again.Body) != string(first.Body) || again.Header.Get("ETag") != first.Header.Get("ETag") ||
					again.Header.Get("Location") != first.Header.Get("Location") {
					x.t.Errorf("%v %s\nfirst it was %v %s", again.Header, again.Body, first.Header, first.Body)
				}
			}
			other := strings.TrimSuffix(body, "}") + " }"
			x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.Post(path, other, key) }, r.ID)
		}})
	}
	return append(cases,
		runCase{"a refusal is not kept, and the same key may be right later", func(x *runTest) {
			r := x.leased("")
			key := "Idempotency-Key: later"
			x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.verb(r, "complete", "", key) }, r.ID)
			x.do(r, "start", "")
			x.verb(r, "complete", "", key).Want(http.StatusOK)
		}},
		runCase{"an answer that was given is given again, whoever drives the run by now", func(x *runTest) {
			r := x.running("")
			key := "Idempotency-Key: mine"
			first := x.insert(r, "", key).Want(http.StatusCreated)
			x.advance(2 * time.Hour)
			x.hold(r.ID, "engine-2", time.Hour)
			if again := x.same(func() *apitest.Response { return x.insert(r, "", key) }, r.ID).Want(http.StatusCreated); string(again.Body) != string(first.Body) {
				x.t.Errorf("%s", again.Body)
			}
		}},
	)
}

// runBad is a request that is refused with 422, and the part that is wrong. The paths have {run}, {step} (a fan-out), {item} and {failed}
// (a run) in them.
type runBad struct {
	operation string // method and path
	bodies    map[string]string
}

// long is a text in quotes, so long.
func long(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// list is an array of n members.
func list(n int, member string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(member+",", n), ",") + "]"
}

// adding returns the pointer of what is wrong with each of these members, added to others.
func adding(others string, wrong map[string]string) map[string]string {
	bodies := map[string]string{}
	for members, pointer := range wrong {
		bodies[flowBody(members, splitMembers(others)...)] = pointer
	}
	return bodies
}

// splitMembers splits members that have no commas in them.
func splitMembers(members string) []string {
	if members == "" {
		return nil
	}
	return strings.Split(members, ",")
}

// lacking returns the pointer to each member that is required, and what is sent without it.
func lacking(members string) map[string]string {
	bodies := map[string]string{}
	all := splitMembers(members)
	for i, m := range all {
		name, _, _ := strings.Cut(m, ":")
		bodies["{"+strings.Join(slices.Delete(slices.Clone(all), i, i+1), ",")+"}"] = "/" + strings.Trim(name, `"`)
	}
	return bodies
}

const (
	insertMembers  = `"generation":1,"step_name":"new","role":"agent","position":1`
	gateMembers    = `"generation":1,"step_name":"new","role":"gate","position":1`
	releaseMembers = `"token":"engine-1","generation":1`
)

// badGenerations are what no generation is.
var badGenerations = map[string]string{`"generation":-1`: "/generation", `"generation":1.5`: "/generation", `"generation":"1"`: "/generation", `"generation":null`: "/generation",
	`"generation":9007199254740992`: "/generation"}

// runBads is the table of what is refused. reference: model.md "Run", http.md "Conventions".
func runBads() []runBad {
	return []runBad{
		{"POST /v1/runs", lacking(`"workflow_name":"w"`)},
		{"POST /v1/runs", adding(`"workflow_name":"w"`, map[string]string{
			`"workflow_name":""`: "/workflow_name", `"workflow_name":"  "`: "/workflow_name", `"workflow_name":` + long(257): "/workflow_name", `"workflow_name":7`: "/workflow_name", `"name":"n"`: "/name",
			`"id":"x"`: "/id", `"id":7`: "/id", `"trigger":""`: "/trigger", `"trigger":` + long(65): "/trigger", `"dry_run":"yes"`: "/dry_run", `"inputs":[]`: "/inputs", `"inputs":"x"`: "/inputs",
			`"parent_run_id":` + long(257): "/parent_run_id", `"parent_workflow_run_id":"x"`: "/parent_workflow_run_id", `"flow_id":"x"`: "/flow_id", `"iteration":-1`: "/iteration",
			`"iteration":1.5`: "/iteration", `"iteration":2147483648`: "/iteration", `"status":"running"`: "/status", `"generation":1`: "/generation",
		})},
		{"POST {run}/start", lacking(`"generation":1`)}, {"POST {run}/start", adding("", badGenerations)}, {"POST {run}/start", adding(`"generation":1`, map[string]string{`"token":"t"`: "/token"})},
		{"POST {run}/wait", adding(`"generation":1,"blocked_on":{"type":"x"}`, map[string]string{
			`"deadline":"soon"`: "/deadline", `"deadline":7`: "/deadline", `"on_timeout":"retry"`: "/on_timeout", `"timeout_ms":1`: "/timeout_ms",
			`"blocked_on":{"type":"x","prompt":` + long(16385) + `}`: "/blocked_on/prompt", `"blocked_on":{"type":"x","options":` + list(101, `"a"`) + `}`: "/blocked_on/options",
			`"blocked_on":{"type":"x","options":[7]}`: "/blocked_on/options/0", `"blocked_on":{"type":` + long(65) + `}`: "/blocked_on/type", `"blocked_on":{"type":"x","deadline":"soon"}`: "/blocked_on/deadline",
		})},
		{"POST {failed}/resume", adding("", map[string]string{`"from_step":""`: "/from_step", `"from_step":` + long(513): "/from_step", `"from_step":"nowhere"`: "/from_step", `"restart":"yes"`: "/restart",
			`"restart":true,"from_step":"fan"`: "/from_step", `"step":"x"`: "/step", `"generation":-1`: "/generation"})},
		{"POST {run}/complete", lacking(`"generation":1`)}, {"POST {run}/complete", adding(`"generation":1`, map[string]string{`"result_summary":7`: "/result_summary", `"error":"e"`: "/error"})},
		{"POST {run}/fail", lacking(`"generation":1,"error":"e"`)},
		{"POST {run}/fail", adding(`"generation":1,"error":"e"`, map[string]string{`"error":""`: "/error", `"error":` + long(32769): "/error", `"error":null`: "/error", `"result_summary":[]`: "/result_summary"})},
		{"POST {run}/cancel", adding("", map[string]string{`"reason":` + long(4097): "/reason", `"reason":7`: "/reason", `"deadline_ms":-1`: "/deadline_ms", `"deadline_ms":3600001`: "/deadline_ms",
			`"deadline_ms":"1"`: "/deadline_ms", `"policy":"x"`: "/policy"})},
		{"POST {run}/dismiss", adding("", map[string]string{`"dismissed":"yes"`: "/dismissed", `"hidden":true`: "/hidden"})},
		{"POST {run}/lease", lacking(`"token":"t","ttl_ms":60000`)},
		{"POST {run}/lease", adding(`"token":"t","ttl_ms":60000`, map[string]string{`"token":""`: "/token", `"token":` + long(257): "/token", `"token":7`: "/token", `"generation":1`: "/generation"})},
		{"POST {run}/lease/release", lacking(releaseMembers)},
		{"POST {run}/lease/release", adding(releaseMembers, map[string]string{`"needs_resume":1`: "/needs_resume", `"status":"x"`: "/status"})},
		{"POST {run}/steps", lacking(insertMembers)}, {"POST {run}/steps", adding(insertMembers, badGenerations)},
		{"POST {run}/steps", adding(insertMembers, map[string]string{
			`"step_name":""`: "/step_name", `"step_name":" "`: "/step_name", `"step_name":` + long(513): "/step_name", `"role":"actor"`: "/role", `"role":7`: "/role", `"position":-1`: "/position",
			`"position":1.5`: "/position", `"position":"0"`: "/position", `"path":""`: "/path", `"path":` + long(2049): "/path", `"iteration":-1`: "/iteration", `"retry_count":1`: "/retry_count",
			`"retry_count":-1`: "/retry_count", `"can_commit":"no"`: "/can_commit", `"parallel_group_id":` + long(257): "/parallel_group_id", `"status":"running"`: "/status", `"id":"x"`: "/id",
			`"gate":{"gate_type":"human_review"}`: "/gate", `"role":"gate"`: "/gate", `"child":{}`: "/child", `"child":"x"`: "/child", `"child":{"flow_id":"x"}`: "/child/flow_id",
			`"child":{"run":{"workflow_name":"w"},"execution":{"lane":"l"}}`: "/child", `"child":{"execution":{}}`: "/child/execution/lane", `"child":{"execution":{"lane":""}}`: "/child/execution/lane",
			`"child":{"run":{"workflow_name":" "}}`: "/child/run/workflow_name", `"child":{"run_id":"x"}`: "/child/run_id", `"child":{"execution_id":7}`: "/child/execution_id",
		})},
		{"POST {run}/steps", adding(gateMembers, map[string]string{
			`"gate":{}`: "/gate/gate_type", `"gate":{"gate_type":"Human"}`: "/gate/gate_type", `"gate":{"gate_type":"x","prompt":` + long(16385) + `}`: "/gate/prompt",
			`"gate":{"gate_type":"x","timeout_ms":0}`: "/gate/timeout_ms", `"gate":{"gate_type":"x","timeout_ms":2592000001}`: "/gate/timeout_ms", `"gate":{"gate_type":"x","on_timeout":"wait"}`: "/gate/on_timeout",
			`"gate":{"gate_type":"x","options":` + list(101, `{"value":"a"}`) + `}`: "/gate/options", `"gate":{"gate_type":"x","options":[{"value":""}]}`: "/gate/options/0/value",
			`"gate":{"gate_type":"x","options":[{"value":"a"},{"value":"a"}]}`: "/gate/options", `"gate":{"gate_type":"x","options":["a"]}`: "/gate/options/0", `"gate":{"gate_type":"x","min_approvals":0}`: "/gate/min_approvals",
			`"gate":{"gate_type":"x","min_approvals":21}`: "/gate/min_approvals", `"gate":{"gate_type":"x","requested_by":""}`: "/gate/requested_by", `"gate":{"gate_type":"x","state":"approved"}`: "/gate/state",
			`"gate":{"gate_type":"x"},"child":{"execution":{"lane":"l"}}`: "/child",
		})},
		{"PATCH {step}", lacking(`"generation":1,"status":"running"`)}, {"PATCH {step}", adding(`"status":"running"`, badGenerations)},
		{"PATCH {step}", adding(`"generation":1,"status":"running"`, map[string]string{
			`"status":"done"`: "/status", `"status":null`: "/status", `"status":"succeeded"`: "/status", `"retry_count":-1`: "/retry_count", `"retry_count":"1"`: "/retry_count", `"retry_count":7`: "/retry_count",
			`"child_run_id":7`: "/child_run_id", `"result_text":7`: "/result_text", `"result_text":` + long(262145): "/result_text", `"context_out":[]`: "/context_out", `"markers_out":"a"`: "/markers_out",
			`"markers_out":[1]`: "/markers_out/0", `"markers_out":` + list(1001, `"a"`): "/markers_out", `"step_error":{}`: "/step_error", `"outcome":"x"`: "/outcome", `"child":{}`: "/child",
			`"status":"failed","child":{"execution":{"lane":"l"}}`: "/child",
		})},
		{"POST {step}/items", lacking(`"generation":1,"items":[]`)},
		{"POST {step}/items", adding(`"generation":1`, map[string]string{
			`"items":"x"`: "/items", `"items":` + list(1001, `{"item_type":"t","item_id":"1"}`): "/items", `"items":[{"item_id":"1"}]`: "/items/0/item_type", `"items":[{"item_type":"t"}]`: "/items/0/item_id",
			`"items":[{"item_type":"","item_id":"1"}]`: "/items/0/item_type", `"items":[{"item_type":"t","item_id":""}]`: "/items/0/item_id", `"items":[{"item_type":"t","item_id":` + long(513) + `}]`: "/items/0/item_id",
			`"items":[{"item_type":"t","item_id":"1","item_ref":` + long(1025) + `}]`: "/items/0/item_ref", `"items":[{"item_type":"t","item_id":"1","context":[]}]`: "/items/0/context",
			`"items":[{"item_type":"t","item_id":"1","status":"running"}]`: "/items/0/status", `"items":[{"item_type":"t","item_id":"8"},{"item_type":"t","item_id":"9","child":{}}]`: "/items/1/child",
			`"items":[{"item_type":"t","item_id":"9","child":{"run":{"workflow_name":" "}}}]`: "/items/0/child/run/workflow_name",
		})},
		{"PATCH {step}/items", lacking(`"generation":1,"updates":[]`)},
		{"PATCH {step}/items", adding(`"generation":1`, map[string]string{
			`"updates":[{"status":"running"}]`: "/updates/0/id", `"updates":[{"id":"x","status":"running"}]`: "/updates/0/id", `"updates":[{"id":"{item}"}]`: "/updates/0/status",
			`"updates":[{"id":"{item}","status":"done"}]`: "/updates/0/status", `"updates":[{"id":"{item}","status":"running","child_run_id":""}]`: "/updates/0/child_run_id",
			`"updates":[{"id":"{item}","status":"running","context":{}}]`: "/updates/0/context", `"updates":[{"id":"{item}","status":"pending","child":{"run":{"workflow_name":"w"}}}]`: "/updates/0/child",
			`"updates":[{"id":"{item}","status":"running","child":{}}]`: "/updates/0/child",
		})},
		{"POST {run}/steps/recover", lacking(`"steps":[]`)},
		{"POST {run}/steps/recover", adding("", map[string]string{
			`"steps":[{"status":"failed"}]`: "/steps/0/step_id", `"steps":[{"step_id":"x","status":"failed"}]`: "/steps/0/step_id", `"steps":[{"step_id":"{item}","status":"running"}]`: "/steps/0/status",
			`"steps":[{"step_id":"{item}","status":"failed","result_text":7}]`: "/steps/0/result_text", `"steps":[],"ended_at":"x"`: "/ended_at", `"steps":[],"generation":1`: "/generation",
			`"steps":` + list(1001, `{"step_id":"01985c40-3c11-7a3e-8b52-4f1d8e6a4b22","status":"failed"}`): "/steps",
		})},
	}
}

// runBadInputCases: what is not as the contract or a rule says is refused with a pointer, and nothing changes.
func runBadInputCases() []runCase {
	var cases []runCase
	for i, b := range runBads() {
		cases = append(cases, runCase{fmt.Sprintf("%d %s", i, b.operation), func(x *runTest) {
			r, s, items := x.fan("1")
			failed := x.running("")
			x.step(failed, `"step_name":"fan"`)
			x.do(failed, "fail", `"error":"no disk"`)
			fill := strings.NewReplacer("{run}", runPath(r.ID), "{step}", stepPath(r, s.ID), "{failed}", runPath(failed.ID), "{item}", items[0].ID.String())
			method, path, _ := strings.Cut(fill.Replace(b.operation), " ")
			before := x.snapshot(r.ID, failed.ID)
			for body, pointer := range b.bodies {
				answer := x.Do(method, path, fill.Replace(body)).Problem(fault.CodeValidationFailed)
				if !slices.ContainsFunc(answer.Fields(), func(f fault.Field) bool { return f.In == fault.InBody && f.Pointer == pointer && f.Detail != "" }) {
					x.t.Errorf("%.300s: nothing points at %s: %s", body, pointer, answer.Body)
				}
			}
			if diff := cmp.Diff(before, x.snapshot(r.ID, failed.ID)); diff != "" {
				x.t.Errorf("something was changed (-before +after):\n%s", diff)
			}
		}})
	}
	return append(cases, runCase{"ids, cursors and limits that are none", func(x *runTest) {
		r, s, _ := x.fan()
		for path, name := range map[string]string{
			"/v1/runs/x": "run_id", "/v1/runs/x/steps": "run_id", runPath(r.ID, "steps", "x"): "step_id", runPath(r.ID, "steps", "x", "items"): "step_id", runPath(r.ID, "steps", "x", "gate"): "step_id",
		} {
			x.points(x.Get(path).Problem(fault.CodeInvalidParameter), fault.InPath, name)
		}
		for _, path := range []string{"/v1/runs", runPath(r.ID, "steps"), stepPath(r, s.ID, "items")} {
			x.Get(path + "?cursor=" + url.QueryEscape("no cursor")).Problem(fault.CodeInvalidCursor)
			x.points(x.Get(path+"?limit=x").Problem(fault.CodeInvalidParameter), fault.InQuery, "limit")
			x.points(x.Get(path+"?limit=501").Problem(fault.CodeValidationFailed), fault.InQuery, "limit")
			x.points(x.Get(path+"?limit=0").Problem(fault.CodeValidationFailed), fault.InQuery, "limit")
		}
		for query, name := range map[string]string{"dismissed=maybe": "dismissed", "active=7": "active", "root=x": "root", "flow_id=x": "flow_id", "parent_workflow_run_id=x": "parent_workflow_run_id"} {
			x.points(x.Get("/v1/runs?"+query).Problem(fault.CodeInvalidParameter), fault.InQuery, name)
		}
	}})
}
