package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// written are the cases that no schema knows.
func (w *badWorld) written() []badCase {
	flow, execution := "/v1/flows/"+w.params["flow_id"], "/v1/executions/"+w.params["execution_id"]
	all := []badCase{
		{operation: "listFlows", name: "query with a NUL", method: "GET", path: "/v1/flows?kind=a%00b", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "kind"},
		{operation: "listFlows", name: "query that is not UTF-8", method: "GET", path: "/v1/flows?kind=a%ff", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "kind"},
		{name: "a path that nobody has", method: "GET", path: "/v1/nothing", code: fault.CodeNotFound},
		{name: "a path with a slash too many", method: "GET", path: "/v1/flows/", code: fault.CodeNotFound},
		{name: "a method that nobody knows", method: "BREW", path: "/v1/flows", code: fault.CodeMethodNotAllowed},
		{name: "a method that nobody knows, nowhere", method: "BREW", path: "/v1/nothing", code: fault.CodeNotFound},
		{operation: "createFlow", name: "from a page of another origin", method: "POST", path: "/v1/flows", body: `{"goal":"x"}`, headers: []string{"Sec-Fetch-Site: cross-site"}, code: fault.CodeCrossOrigin},
		{operation: "getFlowStep", name: "a run id that is not UTF-8", method: "GET", path: flow + "/steps/%ff", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "run_id"},
		{operation: "getFlowStep", name: "a run id with a NUL", method: "GET", path: flow + "/steps/a%00b", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "run_id"},
		{operation: "waitFlow", name: "a timer in the past", method: "POST", path: flow + "/wait", body: `{"condition":{"kind":"timer","at":"2001-01-01T00:00:00Z"}}`, code: fault.CodeTimerOutOfRange, in: fault.InBody, pointer: "/condition/at"},
		{operation: "waitFlow", name: "a condition of no kind", method: "POST", path: flow + "/wait", body: `{"condition":{"kind":"any","of":[{"kind":"x"}]}}`, code: fault.CodeBadWaitCondition, in: fault.InBody, pointer: "/condition/of/0/kind"},
		{operation: "createFlow", name: "a tag's key", method: "POST", path: "/v1/flows", body: `{"goal":"x","tags":{"Team":"x"}}`, code: fault.CodeInvalidTagKey, in: fault.InBody, pointer: "/tags/Team"},
		{operation: "createFlow", name: "a tag's key of half a megabyte", method: "POST", path: "/v1/flows", body: `{"goal":"x","tags":{"` + strings.Repeat("X", 1<<19) + `":"x"}}`, code: fault.CodeInvalidTagKey},
		{operation: "createFlow", name: "an unknown member of half a megabyte", method: "POST", path: "/v1/flows", body: `{"goal":"x","` + strings.Repeat("x", 1<<19) + `":"x"}`, code: fault.CodeValidationFailed},
		{operation: "createFlow", name: "a name twice of half a megabyte", method: "POST", path: "/v1/flows", body: fmt.Sprintf(`{"%[1]s":1,"%[1]s":1}`, strings.Repeat("x", 1<<18)), code: fault.CodeMalformedJSON},
		{operation: "createFlow", name: "ten thousand unknown members", method: "POST", path: "/v1/flows", body: manyMembers(10000), code: fault.CodeValidationFailed},
		{operation: "createFlow", name: "a budget that is not there", method: "POST", path: "/v1/flows", body: `{"goal":"x","budget_ids":["` + w.params["flow_id"] + `"]}`, code: fault.CodeNotFound},
		{operation: "setFlowTag", name: "a key that is none", method: "PUT", path: flow + "/tags/Team", body: `{"value":"x"}`, code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "replaceFlow", name: "without a revision, and not JSON", method: "PUT", path: flow, body: `{`, code: fault.CodePreconditionRequired},
		{operation: "patchFlow", name: "a merge patch that is not UTF-8", method: "PATCH", path: flow, body: "{\"state\":\"\xc3\x28\"}", headers: []string{"Content-Type: application/merge-patch+json"}, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state"},
		{operation: "patchFlow", name: "a state of 101 levels", method: "PATCH", path: flow, body: `{"state":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state" + strings.Repeat("/a", 99)},
		{operation: "patchFlow", name: "a state with a name twice", method: "PATCH", path: flow, body: `{"state":{"a":{"b":1,"b":2}}}`, code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/state/a/b"},
		{operation: "createExecution", name: "capabilities with a comma", method: "POST", path: "/v1/executions", body: `{"lane":"ci","required_capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities},
		{operation: "createExecution", name: "a delay twice", method: "POST", path: "/v1/executions", body: `{"lane":"ci","delay_ms":1,"delay_until":"2099-01-01T00:00:00Z"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "createExecution", name: "a key without a flow", method: "POST", path: "/v1/executions", body: `{"lane":"ci","key":"a"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/key"},
		{operation: "createExecutions", name: "one bad item of many", method: "POST", path: "/v1/executions/batch", body: `{"executions":[{"lane":"ci"},{"lane":""}]}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/executions/1/lane"},
		{operation: "claimExecutions", name: "no lane", method: "POST", path: "/v1/claims", body: `{"worker_id":"w"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/lane"},
		{operation: "claimExecutions", name: "lane and lanes", method: "POST", path: "/v1/claims", body: `{"worker_id":"w","lane":"a","lanes":["b"]}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/lanes"},
		{operation: "claimExecutions", name: "a worker with a space", method: "POST", path: "/v1/claims", body: `{"worker_id":"a b","lane":"a"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/worker_id"},
		{operation: "createToken", name: "an expiry in the past", method: "POST", path: "/v1/admin/tokens", body: `{"name":"x","role":"viewer","expires_at":"2001-01-01T00:00:00Z"}`, code: fault.CodeTimerOutOfRange, in: fault.InBody, pointer: "/expires_at"},
		{operation: "createToken", name: "a namespace that is none", method: "POST", path: "/v1/admin/tokens", body: `{"name":"x","role":"viewer","namespace":"**"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/namespace"},
		{operation: "completeExecution", name: "bytes without a handle", method: "POST", path: execution + "/complete", body: "x", headers: []string{"Content-Type: application/octet-stream"}, code: fault.CodeValidationFailed},
		{operation: "completeExecution", name: "bytes with a handle that is none", method: "POST", path: execution + "/complete", body: "x", headers: []string{"Content-Type: application/octet-stream", "Flowapi-Handle: x"}, code: fault.CodeInvalidHandle},
	}
	all = append(all, w.ofOperators(execution)...)
	all = append(all, w.ofSuspensions(execution)...)
	all = append(all, w.ofBudgets()...)
	all = append(all, ofStreams(execution, `"handle":"`+w.mine.Handle+`"`)...)
	for verb, id := range map[string]string{"frames": "appendFrames", "renew": "renewExecution", "progress": "reportProgress", "complete": "completeExecution", "fail": "failExecution", "release": "releaseExecution",
		"delay": "delayExecution", "wait-children": "waitForChildren", "cancel": "cancelHeldExecution", "suspend": "suspendExecution", "waitpoints": "createWaitpoint"} {
		reason := map[string]string{"fail": `,"reason":"x"`, "delay": `,"delay_ms":1`, "frames": `,"frames":[{"payload":"x"}]`, "suspend": "," + waitForGo, "waitpoints": `,"waitpoint_key":"x"`}[verb]
		fence, _ := json.Marshal(w.mine.Fence)
		for name, tt := range map[string]struct {
			members string
			code    fault.Code
		}{
			"no handle":                     {`"x":1`, fault.CodeValidationFailed},
			"neither handle nor fence":      {"", fault.CodeValidationFailed},
			"handle and fence":              {`"handle":"` + w.mine.Handle + `","fence":` + string(fence), fault.CodeValidationFailed},
			"a handle that is none":         {`"handle":"x"`, fault.CodeInvalidHandle},
			"a handle of another execution": {`"handle":"` + w.other.Handle + `"`, fault.CodeInvalidHandle},
			"a handle that was cut":         {`"handle":"` + w.mine.Handle[:len(w.mine.Handle)-4] + `"`, fault.CodeInvalidHandle},
			"a handle with a rest":          {`"handle":"` + w.mine.Handle + `AAAA"`, fault.CodeInvalidHandle},
		} {
			all = append(all, badCase{operation: id, name: name, method: "POST", path: execution + "/" + verb, body: "{" + strings.TrimPrefix(tt.members+reason, ",") + "}", code: tt.code, in: fault.InBody,
				pointer: map[bool]string{true: "/x"}[name == "no handle"]})
			if name != "no handle" {
				all[len(all)-1].in = "" // which of the two it points at is left open
			}
		}
	}
	return all
}

// ofOperators are the cases that no schema knows of what operators ask for, of grants and of lists.
func (w *badWorld) ofOperators(execution string) []badCase {
	handle := `"handle":"` + w.mine.Handle + `"`
	all := []badCase{
		{operation: "delayExecution", name: "no time", method: "POST", path: execution + "/delay", body: "{" + handle + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "delayExecution", name: "two times", method: "POST", path: execution + "/delay", body: "{" + handle + `,"delay_ms":1,"delay_until":"2099-01-01T00:00:00Z"}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/delay_ms"},
		{operation: "startBulk", name: "no filter", method: "POST", path: "/v1/executions/bulk", body: `{"action":"cancel","filter":{}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/filter"},
		{operation: "startBulk", name: "a tag without a value", method: "POST", path: "/v1/executions/bulk", body: `{"action":"cancel","filter":{"tag":["x"]}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/filter/tag/0"},
		{operation: "startBulk", name: "no priority", method: "POST", path: "/v1/executions/bulk", body: `{"action":"priority","filter":{"lane":"x"}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/priority"},
		{operation: "startBulk", name: "a priority of nothing", method: "POST", path: "/v1/executions/bulk", body: `{"action":"replay","priority":1,"filter":{"lane":"x"}}`, code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/priority"},
		{operation: "setExecutionTag", name: "a key that is none", method: "PUT", path: execution + "/tags/Team", body: `{"value":"x"}`, code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "getExecutionTag", name: "a key that is none", method: "GET", path: execution + "/tags/Team", code: fault.CodeInvalidTagKey, in: fault.InPath, pointer: "key"},
		{operation: "explainExecution", name: "two workers", method: "GET", path: execution + "/explain?worker_instance_id=w&capability=go", code: fault.CodeValidationFailed, in: fault.InQuery, pointer: "capability"},
		{operation: "explainExecution", name: "a capability with a comma", method: "GET", path: execution + "/explain?capability=a%2Cb", code: fault.CodeInvalidCapabilities, in: fault.InQuery, pointer: "capability"},
		{operation: "grantClaim", name: "capabilities with a comma", method: "POST", path: "/v1/workers/w1/claim-grants", body: `{"lane":"bad","worker_instance_id":"w","grant_ttl_ms":1,"capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities, in: fault.InBody, pointer: "/capabilities"},
		{operation: "grantClaim", name: "a worker with a space", method: "POST", path: "/v1/workers/a%20b/claim-grants", body: `{"lane":"bad","worker_instance_id":"w","grant_ttl_ms":1}`, code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "worker_id"},
		{operation: "grantReclaim", name: "capabilities with a comma", method: "POST", path: execution + "/reclaim-grants", body: `{"worker_id":"w","worker_instance_id":"w","grant_ttl_ms":1,"capabilities":["a,b"]}`, code: fault.CodeInvalidCapabilities, in: fault.InBody, pointer: "/capabilities"},
		{operation: "pauseLane", name: "a lane that is not ASCII", method: "POST", path: "/v1/lanes/%C3%BC/pause", code: fault.CodeInvalidParameter, in: fault.InPath, pointer: "lane"},
		{operation: "pauseLane", name: "a lane that is too long", method: "POST", path: "/v1/lanes/" + strings.Repeat("x", 65) + "/pause", code: fault.CodeValidationFailed, in: fault.InPath, pointer: "lane"},
		{operation: "listExecutions", name: "created after no time", method: "GET", path: "/v1/executions?created_after=yesterday", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "created_after"},
		{operation: "listLeases", name: "expired as of no time", method: "GET", path: "/v1/leases?expired_as_of=2026-11-22T09%3A30%3A00", code: fault.CodeInvalidParameter, in: fault.InQuery, pointer: "expired_as_of"},
	}
	for _, op := range []string{"completeExecution complete", "failExecution fail", "delayExecution delay", "waitForChildren wait-children"} {
		id, verb, _ := strings.Cut(op, " ")
		more := map[string]string{"fail": `,"reason":"x"`, "delay": `,"delay_ms":1`}[verb]
		all = append(all,
			badCase{operation: id, name: "override beside a handle", method: "POST", path: execution + "/" + verb, body: "{" + handle + `,"override":true` + more + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/override"},
			badCase{operation: id, name: "no override and no handle", method: "POST", path: execution + "/" + verb, body: `{"override":false` + more + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/handle"})
	}
	return all
}

// ofSuspensions are the cases that no schema knows of what executions wait for.
func (w *badWorld) ofSuspensions(execution string) []badCase {
	handle := `{"handle":"` + w.mine.Handle + `",`
	closing := execution + "/waitpoints/" + w.params["waitpoint_id"] + "/close"
	fence, _ := json.Marshal(w.mine.Fence)
	var all []badCase
	suspend := func(name, members string, code fault.Code, pointer string) {
		all = append(all, badCase{operation: "suspendExecution", name: name, method: "POST", path: execution + "/suspend", body: handle + members + "}", code: code, in: fault.InBody, pointer: pointer})
	}
	suspend("a condition of another form", waitOn(`{"Single":7}`, "a"), fault.CodeInvalidCondition, "/resume_condition/Single")
	suspend("a condition of half a megabyte", waitOn(`"`+strings.Repeat("x", 1<<19)+`"`, "a"), fault.CodeInvalidCondition, "/resume_condition")
	suspend("a name of half a megabyte", waitOn(onSignal("a", byName(strings.Repeat("x", 1<<19))), "a"), fault.CodeInvalidCondition, "/resume_condition/Single/matcher/ByName")
	suspend("a key of half a megabyte", waitOn(onSignal(strings.Repeat("x", 1<<19), wildcard), "a"), fault.CodeInvalidCondition, "/resume_condition/Single/waitpoint_key")
	suspend("a member of half a megabyte", waitOn(`{"Single":{"waitpoint_key":"a","matcher":"Wildcard","`+strings.Repeat("x", 1<<19)+`":1}}`, "a"), fault.CodeInvalidCondition, "/resume_condition/Single")
	suspend("a condition of thirty levels", waitOn(nested(30, operatorOnly), "a"), fault.CodeInvalidCondition, "/resume_condition"+strings.Repeat("/Composite/members/0", 4)+"/Composite")
	suspend("a count that is not whole", waitOn(strings.Replace(countOf(1, "Signals", "", "a"), `"n":1`, `"n":1.5`, 1), "a"), fault.CodeInvalidCondition, "/resume_condition/Composite/n")
	suspend("a count beyond all integers", waitOn(strings.Replace(countOf(1, "Signals", "", "a"), `"n":1`, `"n":1e30`, 1), "a"), fault.CodeInvalidCondition, "/resume_condition/Composite/n")
	suspend("a pending waitpoint that is not there", waitAt(operatorOnly, `{"use_pending":"`+w.params["flow_id"]+`"}`), fault.CodeNotFound, "/waitpoints/0/use_pending")
	suspend("a form that is none", waitAt("", `{"waitpoint_key":"a","approval":{"title":"x","form":{"type":"string"}}}`), fault.CodeValidationFailed, "/waitpoints/0/approval/form/type")
	for name, body := range map[string]string{"a handle that is none": `{"handle":"x"}`, "a handle of another execution": `{"handle":"` + w.other.Handle + `"}`} {
		all = append(all, badCase{operation: "closeWaitpoint", name: name, method: "POST", path: closing, body: body, code: fault.CodeInvalidHandle})
	}
	return append(all,
		badCase{operation: "closeWaitpoint", name: "handle and fence", method: "POST", path: closing, body: handle + `"fence":` + string(fence) + "}", code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/fence"},
		badCase{operation: "deliverSignal", name: "a token that is none", method: "POST", path: execution + "/signals", body: `{"waitpoint_id":"` + w.params["waitpoint_id"] + `","signal_name":"x","token":"x"}`, code: fault.CodeInvalidToken},
		badCase{operation: "deliverSignal", name: "a payload with a name twice", method: "POST", path: execution + "/signals", body: `{"waitpoint_id":"` + w.params["waitpoint_id"] + `","signal_name":"x","token":"x","payload":{"a":1,"a":2}}`,
			code: fault.CodeMalformedJSON, in: fault.InBody, pointer: "/payload/a"},
		badCase{operation: "decideApproval", name: "a waitpoint that is not there", method: "POST", path: execution + "/approvals", body: `{"waitpoint_id":"` + w.params["flow_id"] + `","decision":"approved"}`, code: fault.CodeNotFound},
	)
}

// ofStreams are the cases that no schema knows of frames and their places.
func ofStreams(execution, handle string) []badCase {
	summary := func(name, payload string) badCase {
		return badCase{operation: "appendFrames", name: name, method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"payload":"{}"},{"mode":"summary","payload":` + payload + `}]}`,
			code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/frames/1/payload"}
	}
	at := func(operation, route, parameter, value string) badCase {
		return badCase{operation: operation, name: parameter + " " + value, method: "GET", path: execution + "/attempts/0/stream" + route + "?" + parameter + "=" + value,
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: parameter}
	}
	all := []badCase{
		{operation: "appendFrames", name: "a payload that is too large", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"payload":"x"},{"payload":"` + strings.Repeat("x", 65537) + `"}]}`,
			code: fault.CodePayloadTooLarge, in: fault.InBody, pointer: "/frames/1/payload", limit: 65536},
		{operation: "appendFrames", name: "bytes that are too many", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"encoding":"base64","payload":"` + strings.Repeat("AAAA", 21846) + `"}]}`,
			code: fault.CodePayloadTooLarge, in: fault.InBody, pointer: "/frames/0/payload", limit: 65536},
		{operation: "appendFrames", name: "no base64", method: "POST", path: execution + "/frames", body: "{" + handle + `,"frames":[{"encoding":"base64","payload":"YQ"}]}`,
			code: fault.CodeValidationFailed, in: fault.InBody, pointer: "/frames/0/payload"},
		summary("a summary that is no JSON", `"{"`), summary("a summary of two values", `"{}{}"`), summary("a summary that is no object", `"[1]"`), summary("a summary that is a text", `"\"x\""`),
		summary("a summary that is too deep", `"`+strings.Repeat(`{\"a\":`, 16)+"[]"+strings.Repeat("}", 16)+`"`),
		at("readStream", "", "cursor", "1-1"), at("readStream", "", "cursor", "1/1-1"), at("readStream", "", "cursor", "0/end"),
		{operation: "readStream", name: "Last-Event-ID of another attempt", method: "GET", path: execution + "/attempts/0/stream", headers: []string{"Accept: text/event-stream", "Last-Event-ID: 1/5-0"},
			code: fault.CodeInvalidCursor, in: fault.InHeader, pointer: "Last-Event-ID"},
		{operation: "readStream", name: "Last-Event-ID of events", method: "GET", path: execution + "/attempts/current/stream", headers: []string{"Accept: text/event-stream", "Last-Event-ID: 5"},
			code: fault.CodeInvalidCursor, in: fault.InHeader, pointer: "Last-Event-ID"},
		{operation: "readStream", name: "follow after what is no place", method: "GET", path: execution + "/attempts/0/stream?after=end", headers: []string{"Accept: text/event-stream"},
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: "after"},
		{operation: "readStream", name: "follow from what is no place", method: "GET", path: execution + "/attempts/0/stream?from=x", headers: []string{"Accept: text/event-stream"},
			code: fault.CodeInvalidCursor, in: fault.InQuery, pointer: "from"},
		{operation: "readStream", name: "no such attempt", method: "GET", path: execution + "/attempts/7/stream", code: fault.CodeNotFound},
		{operation: "tailStream", name: "no such attempt", method: "GET", path: execution + "/attempts/7/stream/tail?block_ms=30000", code: fault.CodeNotFound},
		{operation: "readSummary", name: "no such attempt", method: "GET", path: execution + "/attempts/7/summary", code: fault.CodeNotFound},
		{operation: "readSummary", name: "none was written", method: "GET", path: execution + "/attempts/0/summary", code: fault.CodeNotFound},
	}
	for _, value := range []string{"-", "%2B", "x", "-1", "%2B1-0", "1-", "-1-0", "1-0-0", "1.0", "1-x", "%D9%A1", "START"} {
		all = append(all, at("readStream", "", "from", value), at("readStream", "", "to", value), at("tailStream", "/tail", "after", value))
	}
	return append(all, at("tailStream", "/tail", "after", "start"), at("tailStream", "/tail", "after", "end"))
}

func manyMembers(n int) string {
	var b bytes.Buffer
	b.WriteString(`{"goal":"x"`)
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	b.WriteString("}")
	return b.String()
}
