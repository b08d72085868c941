package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// runVerb is one way to change a run: what it would make of it, and the event that tells of it.
type runVerb struct {
	name, to, event string
	call            func(x *runTest, r oapi.Run) *apitest.Response
}

// engineVerb is a verb of the engine that drives a run.
func engineVerb(verb, to, event, members string) runVerb {
	return runVerb{verb + " by the engine", to, event, func(x *runTest, r oapi.Run) *apitest.Response { return x.verb(r, verb, members) }}
}

// peopleVerb is a verb of somebody who drives nothing.
func peopleVerb(verb, to, event, members string) runVerb {
	return runVerb{verb + " {" + members + "}", to, event, func(x *runTest, r oapi.Run) *apitest.Response { return x.people(r, verb, members) }}
}

// leaseVerb asks for the lease with a token.
func leaseVerb(token string) runVerb {
	return runVerb{"lease of " + token, "", "run.leased", func(x *runTest, r oapi.Run) *apitest.Response { return x.lease(r.ID, token, 30*time.Minute) }}
}

// releaseVerb gives the lease back.
func releaseVerb(members string) runVerb {
	return runVerb{"release {" + members + "}", "needs_resume", "run.lease_released", func(x *runTest, r oapi.Run) *apitest.Response {
		return x.Post(runPath(r.ID, "lease", "release"), engineBody(r, members, `"token":"`+engineToken+`"`))
	}}
}

// runVerbs are all of them, in the order of the columns of the table below.
var runVerbs = []runVerb{
	engineVerb("start", "running", "run.started", ""),
	engineVerb("wait", "waiting", "run.waiting", blockedOn),
	engineVerb("resume", "running", "run.resumed", ""),
	peopleVerb("resume", "running", "run.resumed", ""),
	peopleVerb("resume", "running", "run.resumed", `"restart":true`),
	engineVerb("complete", "completed", "run.completed", ""),
	engineVerb("fail", "failed", "run.failed", `"error":"no disk"`),
	engineVerb("cancel", "cancelled", "run.cancelled", ""),
	peopleVerb("cancel", "cancelled", "run.cancelled", ""),
	peopleVerb("dismiss", "", "run.dismissed", ""),
	leaseVerb(engineToken),
	leaseVerb("engine-2"),
	releaseVerb(""),
	releaseVerb(`"needs_resume":true`),
	{"insert a step", "", "", func(x *runTest, r oapi.Run) *apitest.Response { return x.insert(r, "") }},
	{"delete", "", "", func(x *runTest, r oapi.Run) *apitest.Response { return x.Do(http.MethodDelete, runPath(r.ID), nil) }},
}

// runOutcome is what a verb leads to: a status, with one revision and one event more; one of those below; or the code of a refusal.
type runOutcome any

// What a verb can lead to beside a status and a code.
const (
	runBeside  = "something in it"  // which is no change of the run
	runNothing = "nothing"          // 200, and all is as it was
	runRenewed = "a longer lease"   // which nothing tells of
	runGone    = "nothing any more" // it was deleted
)

// runTransitionCases drives every verb from every status. reference: model.md "Run", runs-and-taskflows.md A4.1; acceptance 6.
func runTransitionCases() []runCase {
	const (
		illegal  = fault.CodeIllegalTransition
		never    = fault.CodeNotResumable
		engines  = fault.CodeValidationFailed // a waiting run is resumed by its engine
		terminal = fault.CodeRunTerminal
		stopping = fault.CodeRunCancelled
		held     = fault.CodeLeaseHeld
		lost     = fault.CodeLeaseLost
		open     = fault.CodeNotTerminal
		beside   = runBeside
		nothing  = runNothing
		renewed  = runRenewed
		gone     = runGone
	)
	//                  start      wait       resume     people     restart    complete     fail      cancel       people        dismiss         lease    other     release         given up        insert    delete
	table := map[string][]runOutcome{
		"pending":      {"running", illegal, never, never, never, illegal, "failed", "cancelled", "cancelled", "pending", renewed, held, "pending", illegal, beside, open},
		"running":      {illegal, "waiting", never, never, never, "completed", "failed", "cancelled", "cancelling", "running", renewed, held, "running", "needs_resume", beside, open},
		"waiting":      {illegal, illegal, "running", engines, engines, illegal, "failed", "cancelled", "cancelling", "waiting", renewed, held, "waiting", "needs_resume", beside, open},
		"cancelling":   {illegal, illegal, never, never, never, illegal, illegal, "cancelled", nothing, "cancelling", renewed, held, "cancelled", "cancelled", stopping, open},
		"needs_resume": {illegal, illegal, "running", "running", "running", illegal, "failed", "cancelled", "cancelled", "needs_resume", "needs_resume", "needs_resume", lost, lost, beside, open},
		"completed":    {illegal, illegal, never, never, "running", illegal, illegal, illegal, illegal, "completed", terminal, terminal, lost, lost, terminal, gone},
		"failed":       {illegal, illegal, "running", "running", "running", illegal, illegal, illegal, illegal, "failed", terminal, terminal, lost, lost, terminal, gone},
		"cancelled":    {illegal, illegal, never, never, never, illegal, illegal, illegal, illegal, "cancelled", terminal, terminal, lost, lost, terminal, gone},
	}
	var cases []runCase
	for from, outcomes := range table {
		cases = append(cases, runCase{"from " + from + " (A4.1, D1 8, D2 9)", func(x *runTest) {
			for i, v := range runVerbs {
				x.sub(v.name, func(x *runTest) { x.transition(from, v, outcomes[i]) })
			}
		}})
	}
	return cases
}

// transition drives one verb from one status.
func (x *runTest) transition(from string, v runVerb, want runOutcome) {
	x.t.Helper()
	r := x.stands(x.at(from).ID, from)
	call := func() *apitest.Response { return v.call(x, r) }
	switch want := want.(type) {
	case fault.Code:
		answer := x.refused(want, call, r.ID)
		switch want {
		case fault.CodeIllegalTransition:
			x.facts(answer, map[string]any{"from": from, "to": v.to})
		case fault.CodeNotResumable:
			x.facts(answer, map[string]any{"from": from, "to": v.to, "current_status": from})
		case fault.CodeRunTerminal, fault.CodeNotTerminal:
			x.facts(answer, map[string]any{"current_status": from})
		case fault.CodeRunCancelled:
			x.facts(answer, map[string]any{"reason": "user_requested"})
		case fault.CodeLeaseHeld:
			x.facts(answer, map[string]any{"lease_until": r.LeaseUntil.String()})
		case fault.CodeLeaseLost:
			x.facts(answer, map[string]any{"current_generation": float64(r.Generation)})
		case fault.CodeValidationFailed:
			x.points(answer, fault.InBody, "/generation")
		}
	case string:
		x.changed(r, v, call, want)
	}
}

// changed calls a verb that is allowed, and checks what it leads to.
func (x *runTest) changed(r oapi.Run, v runVerb, call func() *apitest.Response, want string) {
	x.t.Helper()
	n := len(x.events(r.ID))
	switch want {
	case runNothing:
		x.same(call, r.ID).Want(http.StatusOK)
	case runGone:
		call().Want(http.StatusNoContent)
		x.Get(runPath(r.ID)).Problem(fault.CodeNotFound)
		x.told(r.ID, n, "run.deleted")
	case runBeside:
		call().Want(http.StatusCreated)
		x.told(r.ID, n, "run_step.inserted")
		if diff := cmp.Diff(r, x.get(r.ID)); diff != "" {
			x.t.Errorf("the run was changed (-before +after):\n%s", diff)
		}
	case runRenewed:
		got := flowAs[oapi.RunLease](call().Want(http.StatusOK))
		x.told(r.ID, n)
		r.LeaseUntil = new(got.LeaseUntil)
		if diff := cmp.Diff(r, x.get(r.ID)); diff != "" || got.Generation != 1 || !got.LeaseUntil.Equal(x.when(30*time.Minute)) {
			x.t.Errorf("renewed: %+v (-want +got):\n%s", got, diff)
		}
	default:
		answer := call().Want(http.StatusOK)
		after := x.stands(r.ID, want)
		event := v.event
		if want != string(r.Status) && want != "running" {
			event = "run." + want
		}
		told := x.told(r.ID, n, event)
		if len(told) != 1 || told[0].Revision == nil || *told[0].Revision != r.Revision+1 || after.Revision != r.Revision+1 || !told[0].At.Equal(after.UpdatedAt) {
			x.t.Errorf("revision %d after %d was told by %+v", after.Revision, r.Revision, told)
		}
		if !strings.HasPrefix(v.name, "lease") && (answer.ETag() != etagOf(after.Revision) || cmp.Diff(after, flowAs[oapi.Run](answer)) != "") {
			x.t.Errorf("answered ETag %s and %s, read %+v", answer.ETag(), answer.Body, after)
		}
	}
}

// runRecordCases: what a run is, from its creation on. reference: runs-and-taskflows.md A3.1, A5.1 to A5.4, C1, C2.
func runRecordCases() []runCase {
	return []runCase{
		{"a new run is pending, readable by its id, and has only what it was given (RM-01, A3.1, A13 27)", func(x *runTest) {
			answer := x.Post("/v1/runs", `{"workflow_name":"release"}`).Want(http.StatusCreated)
			id := uuid.MustParse(answer.Str("id"))
			if got := answer.Header.Get("Location"); !strings.HasSuffix(got, runPath(id)) || answer.ETag() != `"0"` {
				x.t.Errorf("Location %q, ETag %s", got, answer.ETag())
			}
			now := x.when(0).String()
			want := docAs[map[string]any](x.t, fmt.Appendf(nil, `{"id":%q,"namespace":%q,"workflow_name":"release","workflow_title":null,"status":"pending","trigger":"manual","dry_run":false,
				"inputs":{},"definition_snapshot":null,"parent_run_id":null,"parent_workflow_run_id":null,"parent_step_id":null,"parent_item_id":null,"flow_id":null,"iteration":0,
				"blocked_on":null,"wait":null,"result_summary":null,"error":null,"cancel_reason":null,"cancellation":null,"dismissed":false,"generation":0,"lease_until":null,
				"resume_count":0,"revision":0,"created_at":%q,"updated_at":%q,"started_at":null,"ended_at":null,"total_duration_ms":0}`, id, x.namespace, now, now))
			if diff := cmp.Diff(want, answer.JSON()); diff != "" {
				x.t.Errorf("created (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, x.Get(runPath(id)).Want(http.StatusOK).JSON()); diff != "" {
				x.t.Errorf("read (-want +got):\n%s", diff)
			}
			x.told(id, 0, "run.created")
		}},
		{"all that a run is given is kept from its creation on (A5.1, A13 44)", func(x *runTest) {
			f := x.flowTest.running("")
			id := uuid.New()
			r := x.create(fmt.Sprintf(`"id":%q,"trigger":"hook","dry_run":true,"inputs":{"b":1.50,"a":"x"},"definition_snapshot":{"title":"Release 1.4","steps":[]},
				"parent_run_id":"agent-7","flow_id":%q,"iteration":3`, id, f.ID))
			if r.ID != id || r.Trigger != "hook" || !r.DryRun || string(r.Inputs) != `{"b":1.50,"a":"x"}` || string(r.DefinitionSnapshot) != `{"title":"Release 1.4","steps":[]}` ||
				*r.WorkflowTitle != "Release 1.4" || *r.ParentRunID != "agent-7" || *r.FlowID != f.ID || r.Iteration != 3 {
				x.t.Errorf("created %+v", r)
			}
			if diff := cmp.Diff(r, x.get(id)); diff != "" {
				x.t.Errorf("created and read differ:\n%s", diff)
			}
		}},
		{"the title is what the definition calls itself, if that is a text (C3 serialisation)", func(x *runTest) {
			for definition, want := range map[string]string{`{"title":"T"}`: "T", `{"title":7}`: "", `{"title":null}`: "", `{"name":"n"}`: "", `[1]`: "", `"text"`: "", `null`: ""} {
				r := x.create(`"definition_snapshot":` + definition)
				if got := deref(r.WorkflowTitle); got != want || string(r.DefinitionSnapshot) != definition {
					x.t.Errorf("%s: title %q, kept as %s", definition, got, r.DefinitionSnapshot)
				}
			}
		}},
		{"the same id again is the run as it is, and another namespace cannot have it (A13 43)", func(x *runTest) {
			r := x.running("")
			body := fmt.Sprintf(`{"id":%q,"workflow_name":"another"}`, r.ID)
			again := x.same(func() *apitest.Response { return x.Post("/v1/runs", body) }, r.ID).Want(http.StatusOK)
			if again.Header.Get("Idempotent-Replay") != "true" || again.ETag() != `"2"` || cmp.Diff(r, flowAs[oapi.Run](again)) != "" {
				x.t.Errorf("%v %s", again.Header, again.Body)
			}
			x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.in("r-other").Post("/v1/runs", body) }, r.ID)
		}},
		{"an unknown run is not found, nor one of another namespace (RM-02)", func(x *runTest) {
			r := x.at("running")
			unknown := oapi.Run{ID: uuid.New()}
			for _, answer := range []*apitest.Response{x.Get(runPath(unknown.ID)), x.Get(runPath(unknown.ID, "steps")), x.insert(unknown, ""), x.verb(unknown, "start", ""), x.people(unknown, "cancel", "")} {
				x.facts(answer.Problem(fault.CodeNotFound), map[string]any{"resource": "run"})
			}
			other := x.in("r-other")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return other.Get(runPath(r.ID)) },
				func() *apitest.Response { return other.Get(runPath(r.ID, "steps")) },
				func() *apitest.Response { return other.verb(r, "complete", "") },
				func() *apitest.Response { return other.people(r, "cancel", "") },
				func() *apitest.Response { return other.people(r, "dismiss", "") },
				func() *apitest.Response { return other.insert(r, "") },
				func() *apitest.Response { return other.lease(r.ID, engineToken, time.Minute) },
				func() *apitest.Response { return other.Do(http.MethodDelete, runPath(r.ID), nil) },
			} {
				x.facts(x.refused(fault.CodeNotFound, call, r.ID), map[string]any{"resource": "run"})
			}
		}},
	}
}

// runEndCases: a run from its start to its end. reference: runs-and-taskflows.md A5.4, A13 27, RS-03.
func runEndCases() []runCase {
	return []runCase{
		{"a step that was completed at generation 0 of a run that nobody leased (RS-03)", func(x *runTest) {
			r := x.create("")
			s := x.step(r, "")
			if s.Status != "pending" || s.Role != "agent" {
				x.t.Errorf("inserted %+v", s)
			}
			x.moved(r, s.ID, `"status":"completed","result_text":"ok"`)
			if got := x.stands(r.ID, "pending"); got.WorkflowName != "release" || got.Generation != 0 {
				x.t.Errorf("run %+v", got)
			}
			if got := x.steps(r, ""); len(got) != 1 || got[0].Status != "completed" || *got[0].ResultText != "ok" {
				x.t.Errorf("steps %+v", got)
			}
		}},
		{"a run that nobody leased is driven with generation 0 (model.md)", func(x *runTest) {
			r := x.create("")
			x.do(r, "start", "")
			x.do(r, "wait", blockedOn)
			x.do(r, "resume", "")
			if got := x.do(r, "complete", ""); got.Generation != 0 || got.Status != "completed" {
				x.t.Errorf("%+v", got)
			}
			x.told(r.ID, 0, "run.created", "run.started", "run.waiting", "run.resumed", "run.completed")
		}},
		{"what a run was told of its end, and how long it took (A13 27, A3.1)", func(x *runTest) {
			r := x.running("")
			x.advance(90 * time.Second)
			r = x.do(r, "complete", `"result_summary":"released"`)
			if *r.ResultSummary != "released" || r.Error != nil || r.TotalDurationMs != 90000 || !r.EndedAt.Equal(x.when(0)) || !r.StartedAt.Equal(x.when(-90*time.Second)) || r.LeaseUntil != nil {
				x.t.Errorf("completed %+v", r)
			}
			x.advance(time.Hour)
			again := flowAs[oapi.Run](x.people(r, "resume", `"restart":true`).Want(http.StatusOK))
			if again.StartedAt == nil || !again.StartedAt.Equal(*r.StartedAt) || again.EndedAt != nil || again.ResultSummary != nil || again.ResumeCount != 1 || again.Generation != 1 {
				x.t.Errorf("restarted %+v", again)
			}
			x.advance(30 * time.Second)
			failed := x.do(again, "fail", `"error":"no disk","result_summary":"half done"`)
			if *failed.Error != "no disk" || *failed.ResultSummary != "half done" || failed.TotalDurationMs != 120000 {
				x.t.Errorf("failed %+v", failed)
			}
			told := x.events(r.ID)
			if got := eventData(x.t, told[len(told)-1]); got["error"] != "no disk" || got["total_duration_ms"] != float64(120000) || got["generation"] != float64(1) {
				x.t.Errorf("told %v", got)
			}
		}},
		{"a run is not complete while a step or a run in it is open", func(x *runTest) {
			r := x.running("")
			x.step(r, `"path":"a"`)
			s := x.stepAt(r, "running", `"path":"b"`)
			x.facts(x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.verb(r, "complete", "") }, r.ID), map[string]any{"count": float64(2)})
			x.moved(r, s.ID, `"status":"failed"`)
			x.moved(r, x.steps(r, "&status=pending")[0].ID, `"status":"skipped"`)
			child := x.create(fmt.Sprintf(`"parent_workflow_run_id":%q`, r.ID))
			x.facts(x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.verb(r, "complete", "") }, r.ID, child.ID), map[string]any{"count": float64(1)})
			x.people(child, "cancel", "").Want(http.StatusOK)
			x.do(r, "complete", "")
		}},
	}
}

// runKeepingCases: what ends with a run, and what is told of it.
func runKeepingCases() []runCase {
	return []runCase{
		{"what is open in a run ends with it, in the same transaction (D2 12)", func(x *runTest) {
			r := x.running("")
			fan, asked := x.stepAt(r, "running", `"step_name":"fan","role":"foreach"`), x.gate(r, "")
			x.items(r, fan.ID, "1")
			n := len(x.events(r.ID))
			x.do(r, "fail", `"error":"no disk"`)
			told := x.told(r.ID, n, "run.failed", "run_step.cancelled", "item.cancelled", "gate.cancelled", "run_step.cancelled")
			x.causes(told, -1, 0, 1, 0, 3)
			for _, s := range x.steps(r, "") {
				if s.Status != "cancelled" || s.EndedAt == nil {
					x.t.Errorf("step %s is %s", s.StepName, s.Status)
				}
			}
			if g := x.readGate(r, asked.ID); g.State != "cancelled" {
				x.t.Errorf("gate %+v", g)
			}
			if it := x.listItems(r, fan.ID, ""); it[0].Status != "cancelled" || it[0].CompletedAt == nil {
				x.t.Errorf("item %+v", it)
			}
		}},
		{"the ETag is the revision, and an old one is refused (A13 3)", runETags},
		{"a dismissed run is left out where lists leave such runs out, until it is shown again (A3.1)", func(x *runTest) {
			r, other := x.at("completed"), x.at("running")
			hidden := flowAs[oapi.Run](x.people(r, "dismiss", "").Want(http.StatusOK))
			if !hidden.Dismissed || hidden.Revision != r.Revision+1 || hidden.Status != "completed" {
				x.t.Errorf("dismissed %+v", hidden)
			}
			x.same(func() *apitest.Response { return x.people(r, "dismiss", `"dismissed":true`) }, r.ID).Want(http.StatusOK)
			for query, want := range map[string][]uuid.UUID{"&dismissed=true": {r.ID}, "&dismissed=false": {other.ID}, "": {other.ID, r.ID}} {
				if diff := cmp.Diff(want, runIDs(x.list(query))); diff != "" {
					x.t.Errorf("list %q (-want +got):\n%s", query, diff)
				}
			}
			shown := flowAs[oapi.Run](x.people(r, "dismiss", `"dismissed":false`).Want(http.StatusOK))
			if shown.Dismissed || len(x.list("&dismissed=true")) != 0 {
				x.t.Errorf("shown again %+v", shown)
			}
		}},
		{"neither token nor digest of a lease is told anywhere (A3.1)", func(x *runTest) {
			r := x.running("")
			all := string(x.Get(runPath(r.ID)).Body) + string(x.Get("/v1/runs").Body) + string(x.Get("/v1/events?run_id="+r.ID.String()).Body)
			for _, secret := range []string{engineToken, "owner", "token"} {
				if strings.Contains(all, secret) {
					x.t.Errorf("%q is told: %s", secret, all)
				}
			}
		}},
	}
}

// deref is a text that may be missing.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func runETags(x *runTest) {
	r := x.at("running")
	etag := x.Get(runPath(r.ID)).Want(http.StatusOK).ETag()
	if etag != `"2"` || r.Revision != 2 {
		x.t.Errorf("ETag %s at revision %d", etag, r.Revision)
	}
	x.Get(runPath(r.ID), "If-None-Match: "+etag).Want(http.StatusNotModified)
	x.Get(runPath(r.ID), `If-None-Match: W/"2"`).Want(http.StatusNotModified)
	x.Get(runPath(r.ID), `If-None-Match: "1"`).Want(http.StatusOK)
	x.hold(r.ID, engineToken, time.Minute) // renewing changes no revision
	if got := x.get(r.ID).Revision; got != 2 {
		x.t.Errorf("revision %d after a renewal", got)
	}
	failed := x.at("failed")
	for verb, of := range map[string]oapi.Run{"cancel": r, "dismiss": r, "resume": failed} {
		stale := map[string]any{"expected": float64(of.Revision - 1), "actual": float64(of.Revision)}
		x.facts(x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.people(of, verb, "", ifMatch(of.Revision-1)) }, of.ID), stale)
		x.facts(x.refused(fault.CodeRevisionMismatch, func() *apitest.Response {
			return x.Post(runPath(of.ID, verb)+fmt.Sprintf("?revision=%d", of.Revision-1), "{}")
		}, of.ID), stale)
	}
	x.facts(x.refused(fault.CodeRevisionMismatch, func() *apitest.Response {
		return x.Do(http.MethodDelete, runPath(failed.ID), nil, ifMatch(1))
	}, failed.ID), map[string]any{"expected": float64(1), "actual": float64(failed.Revision)})
	x.Do(http.MethodDelete, runPath(failed.ID), nil, ifMatch(failed.Revision)).Want(http.StatusNoContent)
	if got := x.people(r, "dismiss", "", ifMatch(2)).Want(http.StatusOK).ETag(); got != `"3"` {
		x.t.Errorf("ETag %s after dismissal", got)
	}
	if got := flowAs[oapi.Run](x.people(r, "cancel", "", `If-Match: W/"3"`).Want(http.StatusOK)); got.Status != "cancelling" || got.Revision != 4 {
		x.t.Errorf("cancelled %+v", got)
	}
}

// TestRuns_Restart: a second start on the same database keeps all data, and what is due happens afterwards. reference:
// runs-and-taskflows.md RS-02, D2 25, D3 25.
func TestRuns_Restart(t *testing.T) {
	t.Parallel()
	runRestarted(t, func(x *runTest) func(x *runTest) {
		r := x.running(`"definition_snapshot":{"title":"T"},"inputs":{"a":1}`)
		fan := x.stepAt(r, "running", `"step_name":"fan","role":"foreach"`)
		x.items(r, fan.ID, "1", "2")
		asked := x.gate(r, `"timeout_ms":60000`)
		x.do(r, "wait", blockedOn+`,"on_timeout":"resume","deadline":`+spelled(x.now().Add(2*time.Minute)))
		before := x.snapshot(r.ID)
		return func(x *runTest) {
			if diff := cmp.Diff(before, x.snapshot(r.ID)); diff != "" {
				x.t.Errorf("the restart has changed (-before +after):\n%s", diff)
			}
			x.refused(fault.CodeLeaseHeld, func() *apitest.Response { return x.lease(r.ID, "engine-2", time.Minute) }, r.ID)
			x.advance(time.Minute)
			if got := x.read(r, asked.ID); got.Status != "failed" || got.Gate.State != "timed_out" {
				x.t.Errorf("gate %+v", got)
			}
			x.stands(r.ID, "waiting")
			x.advance(time.Minute)
			x.stands(r.ID, "running")
			if got := x.hold(r.ID, engineToken, time.Hour); got.Generation != 1 || got.Outcome != "renewed" {
				x.t.Errorf("lease %+v", got)
			}
		}
	})
}

// equalJSON checks a document.
func (x *runTest) equalJSON(what string, got json.RawMessage, want string) {
	x.t.Helper()
	if diff := cmp.Diff(docAs[any](x.t, []byte(want)), docAs[any](x.t, got)); diff != "" {
		x.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
