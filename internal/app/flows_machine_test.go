package app_test

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowVerb is one way to change a flow.
type flowVerb struct {
	name string
	call func(x *flowTest, f oapi.Flow) *apitest.Response
}

func posted(verb, body string) flowVerb {
	return flowVerb{verb, func(x *flowTest, f oapi.Flow) *apitest.Response { return x.verb(f.ID, verb, body) }}
}

// flowVerbs are all of them, in the order of the columns of the tables below.
var flowVerbs = []flowVerb{
	posted("start", ""),
	posted("wait", waitBody(manual)),
	posted("resume", ""),
	posted("finish", ""),
	posted("fail", `{"reason":"no disk"}`),
	posted("request-cancel", ""),
	posted("cancel", ""),
	{"patch", func(x *flowTest, f oapi.Flow) *apitest.Response { return x.patch(f.ID, `{"current_step":"next"}`) }},
	{"put", func(x *flowTest, f oapi.Flow) *apitest.Response { return x.put(f.ID, f.Revision, f) }},
	{"tag", func(x *flowTest, f oapi.Flow) *apitest.Response {
		return x.Do(http.MethodPut, flowPath(f.ID, "tags", "team.name"), `{"value":"platform"}`)
	}},
	{"insert a step", func(x *flowTest, f oapi.Flow) *apitest.Response { return x.insert(f.ID, `"run_id":"r"`) }},
	{"observe a step", func(x *flowTest, f oapi.Flow) *apitest.Response { return x.observe(f.ID, "o", `"status":"running"`) }},
	{"append an event", func(x *flowTest, f oapi.Flow) *apitest.Response {
		return x.Post(flowPath(f.ID, "events"), `{"type":"custom.note"}`)
	}},
	{"delete", func(x *flowTest, f oapi.Flow) *apitest.Response { return x.Do(http.MethodDelete, flowPath(f.ID), nil) }},
}

// flowOutcome is what a verb leads to: a status, with one revision more; [flowBeside] for a change that is no revision of the
// flow; [flowNothing]; [flowGone]; or the code of a refusal.
type flowOutcome any

// What a verb can lead to beside a status and a code.
const (
	flowBeside  = oapi.FlowStatus("")
	flowNothing = oapi.FlowStatus("=")
	flowGone    = oapi.FlowStatus("gone")
)

// flowTransitionCases drives every verb from every status. reference: runs-and-taskflows.md B4, B6, C5 (types: the table of
// transitions, what is terminal, and what a pending cancellation allows), B13 6 and 8.
func flowTransitionCases() []flowCase {
	const (
		created   = oapi.FlowStatusCreated
		running   = oapi.FlowStatusRunning
		waiting   = oapi.FlowStatusWaiting
		finished  = oapi.FlowStatusFinished
		failed    = oapi.FlowStatusFailed
		cancelled = oapi.FlowStatusCancelled
		illegal   = fault.CodeIllegalTransition
		terminal  = fault.CodeAlreadyTerminal
		pending   = fault.CodeCancelPending
		notEnded  = fault.CodeNotTerminal
		beside    = flowBeside
		nothing   = flowNothing
		gone      = flowGone
	)
	//                     start    wait     resume   finish    fail    request  cancel     patch    put      tag       insert   observe  append  delete
	table := map[string][]flowOutcome{
		string(created):   {running, illegal, illegal, illegal, illegal, created, cancelled, created, created, created, beside, beside, beside, notEnded},
		string(running):   {illegal, waiting, illegal, finished, failed, running, cancelled, running, running, running, beside, beside, beside, notEnded},
		string(waiting):   {illegal, illegal, running, illegal, failed, waiting, cancelled, waiting, waiting, waiting, beside, beside, beside, notEnded},
		string(finished):  {terminal, terminal, terminal, terminal, terminal, nothing, terminal, terminal, terminal, finished, terminal, terminal, beside, gone},
		string(failed):    {terminal, terminal, terminal, terminal, terminal, nothing, terminal, terminal, terminal, failed, terminal, terminal, beside, gone},
		string(cancelled): {terminal, terminal, terminal, terminal, terminal, nothing, nothing, terminal, terminal, cancelled, terminal, terminal, beside, gone},
		// with cancel_requested; a waiting flow is cancelled at once
		"created, intent": {pending, pending, pending, pending, illegal, nothing, cancelled, pending, pending, created, beside, beside, beside, notEnded},
		"running, intent": {pending, pending, pending, pending, failed, nothing, cancelled, pending, pending, running, beside, beside, beside, notEnded},
	}
	var cases []flowCase
	for from, outcomes := range table {
		cases = append(cases, flowCase{"from " + from, func(x *flowTest) {
			for i, v := range flowVerbs {
				x.sub(v.name, func(x *flowTest) { x.transition(from, v, outcomes[i]) })
			}
		}})
	}
	return cases
}

// transition drives one verb from one status.
func (x *flowTest) transition(from string, v flowVerb, want flowOutcome) {
	x.t.Helper()
	status, intent := oapi.FlowStatus(from), false
	if n := len(from) - len(", intent"); n > 0 && from[n:] == ", intent" {
		status, intent = oapi.FlowStatus(from[:n]), true
	}
	f := x.at(status)
	if intent {
		f = x.do(f.ID, "request-cancel", "")
	}
	call := func() *apitest.Response { return v.call(x, f) }
	switch want := want.(type) {
	case fault.Code:
		answer := x.refused(want, call, f.ID)
		switch want {
		case fault.CodeIllegalTransition:
			x.facts(answer, map[string]any{"from": string(f.Status)})
		case fault.CodeAlreadyTerminal, fault.CodeNotTerminal:
			x.facts(answer, map[string]any{"current_status": string(f.Status)})
		}
	case oapi.FlowStatus:
		x.changed(f, call, want)
	}
}

// changed calls a verb that is allowed, and checks what it leads to.
func (x *flowTest) changed(f oapi.Flow, call func() *apitest.Response, want oapi.FlowStatus) {
	x.t.Helper()
	trail := len(x.trail(f.ID, ""))
	switch want {
	case flowNothing:
		x.same(call, f.ID).Want(http.StatusOK)
	case flowGone:
		call().Want(http.StatusNoContent)
		x.Get(flowPath(f.ID)).Problem(fault.CodeNotFound)
	case flowBeside:
		call().Want(http.StatusCreated)
		if diff := len(x.trail(f.ID, "")) - trail; diff != 1 {
			x.t.Errorf("%d events instead of one", diff)
		}
		x.stands(f.ID, f.Status, f.Revision)
	default:
		call().Want(http.StatusOK)
		x.advance(0)
		if f.Status == "waiting" && x.flow(f.ID).CancelRequested { // the sweep has found it
			x.stands(f.ID, "cancelled", f.Revision+2)
			return
		}
		after := x.stands(f.ID, want, f.Revision+1)
		newest := x.trail(f.ID, "")
		if len(newest) != trail+1 || newest[0].Revision == nil || *newest[0].Revision != after.Revision || !newest[0].At.Equal(after.UpdatedAt) {
			x.t.Errorf("revision %d of %s was told by %d events, the last of them %+v", after.Revision, after.UpdatedAt, len(newest)-trail, newest[0])
		}
	}
}

// flowStatusCases: C5 types: the words, and where they end.
var flowStatusCases = []flowCase{
	{"each status is found by its own name, and an unknown one is refused (types)", func(x *flowTest) {
		made := map[oapi.FlowStatus]uuid.UUID{}
		for _, s := range []oapi.FlowStatus{"created", "running", "waiting", "finished", "failed", "cancelled"} {
			made[s] = x.at(s).ID
		}
		for s, id := range made {
			if got := x.list("&status=" + string(s)); len(got) != 1 || got[0].ID != id || got[0].Status != s {
				x.t.Errorf("status=%s lists %v, want %s", s, flowIDs(got), id)
			}
		}
		for _, s := range []string{"RUNNING", "done", ""} {
			x.points(x.Get("/v1/flows?status="+s).Problem(fault.CodeValidationFailed), fault.InQuery, "status")
		}
	}},
	{"created, running, waiting, running, finished (types)", func(x *flowTest) {
		f := x.create("")
		x.do(f.ID, "start", "")
		x.park(f.ID, manual)
		x.do(f.ID, "resume", "")
		x.do(f.ID, "finish", "")
		x.stands(f.ID, "finished", 4)
		x.told(f.ID, "flow.created", "flow.started", "flow.waiting", "flow.resumed", "flow.finished")
	}},
	{"cancelled from created, running and waiting (types)", func(x *flowTest) {
		for revision, s := range []oapi.FlowStatus{"created", "running", "waiting"} {
			f := x.at(s)
			x.do(f.ID, "cancel", "")
			x.stands(f.ID, "cancelled", int64(revision)+1)
		}
	}},
	{"the intent is idempotent, and stays (types, NM-04)", func(x *flowTest) {
		f := x.at("running")
		first := x.do(f.ID, "request-cancel", `{"reason":"superseded"}`)
		if !first.CancelRequested || first.Status != "running" || first.Revision != 2 {
			x.t.Errorf("%+v", first)
		}
		again := x.same(func() *apitest.Response { return x.verb(f.ID, "request-cancel", `{"reason":"another"}`) }, f.ID).Want(http.StatusOK)
		if got := again.Str("cancellation.reason"); got != "superseded" || again.ETag() != `"2"` {
			x.t.Errorf("reason %q, ETag %s", got, again.ETag())
		}
		if again.Get("cancellation.policy") != nil || again.Str("cancellation.actor") != "local" {
			x.t.Errorf("cancellation is %v", again.Get("cancellation"))
		}
		x.facts(x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.verb(f.ID, "finish", "") }, f.ID), map[string]any{"retryable": false})
		done := x.do(f.ID, "cancel", `{"policy":"flow_only","reason":"mine"}`)
		if !done.CancelRequested || done.Cancellation == nil || *done.Cancellation.Policy != "flow_only" || *done.Cancellation.Reason != "superseded" {
			x.t.Errorf("cancelled: %+v", done.Cancellation)
		}
		x.told(f.ID, "flow.created", "flow.started", "flow.cancel_requested", "flow.cancelled")
	}},
	{"a draining controller records why it failed (B13 8)", func(x *flowTest) {
		f := x.at("running")
		x.do(f.ID, "request-cancel", "")
		got := x.do(f.ID, "fail", `{"reason":"the registry is down"}`)
		if got.Failure == nil || got.Failure.Reason != "the registry is down" || !got.CancelRequested {
			x.t.Errorf("failure %+v", got.Failure)
		}
		x.state(got, `{"n":1}`) // not a key of the state: B13 16
	}},
	{"a cancelled flow keeps its policy and reason (B13 9)", func(x *flowTest) {
		f := x.at("waiting")
		got := x.verb(f.ID, "cancel", `{"reason":"first"}`, "Prefer: wait=1").Want(http.StatusOK)
		if got.Header.Get("Preference-Applied") != "wait=1" || got.Get("wait") != nil || got.Int("members.total") != 0 || got.Len("members.failed") != 0 {
			x.t.Errorf("%v %s", got.Header, got.Body)
		}
		again := x.same(func() *apitest.Response {
			return x.verb(f.ID, "cancel", `{"policy":"cancel_pending","reason":"second"}`)
		}, f.ID).Want(http.StatusOK)
		if again.Str("cancellation.policy") != "cancel_all" || again.Str("cancellation.reason") != "first" {
			x.t.Errorf("cancellation is %v", again.Get("cancellation"))
		}
		if len(x.inbox("")) != 0 {
			x.t.Error("the wait is still open")
		}
	}},
	{"what is told first: the revision, the end, the intent, the transition (B4)", func(x *flowTest) {
		f := x.at("running")
		stale := ifMatch(0)
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.verb(f.ID, "resume", "", stale) }, f.ID)
		x.do(f.ID, "request-cancel", "")
		x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.verb(f.ID, "resume", "") }, f.ID)
		x.do(f.ID, "cancel", "")
		x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.verb(f.ID, "resume", "") }, f.ID)
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.verb(f.ID, "resume", "", stale) }, f.ID)
	}},
}
