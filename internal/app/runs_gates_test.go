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

// TestRuns_Gates: what people are asked, and what they answer. reference: runs-and-taskflows.md A6, A13 4, 5, 7 and 8, C3 "Gates", D3.
func TestRuns_Gates(t *testing.T) {
	t.Parallel()
	runRunGroups(t, []runGroup{
		{"outcomes", slices.Concat(runGateOutcomeCases(), runGateEndCases())},
		{"selections", slices.Concat(runGateSelectionCases(), runGateOptionCases())},
		{"votes", runGateVoteCases()},
		{"refusals", runGateRefusalCases()},
		{"engine", slices.Concat(runGateEngineCases(), runGateLinkCases())},
		{"time", runGateTimeCases()},
		{"inbox", slices.Concat(runGateInboxCases(), runGateInboxFilterCases())},
		{"lists", runGateListCases()},
		{"stats", runGateStatsCases()},
	})
}

// outcome checks how a gate stands, and who has decided it.
func (x *runTest) outcome(r oapi.Run, stepID uuid.UUID, state, by string) oapi.RunGate {
	x.t.Helper()
	g := x.readGate(r, stepID)
	if string(g.State) != state || orNone(g.ResolvedBy) != by || (g.ResolvedAt == nil) != (state == "pending") {
		x.t.Fatalf("gate %s is %s by %q at %v, want %s by %q", g.StepName, g.State, orNone(g.ResolvedBy), g.ResolvedAt, state, by)
	}
	return g
}

func runGateOutcomeCases() []runCase {
	return []runCase{
		{"a waiting human_review is found and approved (C3 gates 1, RM-14, A6.8)", (*runTest).gateApproved},
		{"a human_approval is rejected, and its step has failed (C3 gates 2, RM-16)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			n := len(x.events(r.ID))
			d := x.decided(r, s.ID, "reject", `"by":"ada","feedback":"not ready"`)
			if d.Step.Status != "failed" || orNone(d.Step.StepError) != "not ready" || d.Step.EndedAt == nil || d.Step.ContextOut != nil {
				x.t.Errorf("%+v", d.Step)
			}
			if g := x.outcome(r, s.ID, "rejected", "ada"); orNone(g.Feedback) != "not ready" || g.Selections != nil {
				x.t.Errorf("%+v", g)
			}
			events := x.replies(r.ID, n, "gate.rejected", "0 run_step.failed")
			x.saying(events[0], map[string]any{"step_id": s.ID.String(), "step_name": "review", "gate_type": "human_approval", "by": "ada", "feedback": "not ready"})
			x.stands(r.ID, "running") // what it means is the engine's to say
		}},
		{"a rejection without words has a sentence of its own (RG-05)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			d := x.decided(r, s.ID, "reject", "")
			if orNone(d.Step.StepError) != "The gate review was rejected." || d.Gate.Feedback != nil || orNone(d.Gate.ResolvedBy) != "local" {
				x.t.Errorf("%+v %+v", d.Step, d.Gate)
			}
		}},
		{"gates that machines answer keep their type and who has answered (C3 gates 3 to 5)", func(x *runTest) {
			r := x.running("")
			for i, row := range []struct{ kind, decision, feedback, status string }{
				{"pr_approval", "approve", "", "completed"}, {"pr_approval", "reject", "changes requested", "failed"}, {"pr_checks", "approve", "", "completed"},
				{"quality_gate", "reject", "60 of 80", "failed"}, {"my_resolver", "approve", "", "completed"},
			} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":%q}`, i, row.kind))
				x.moved(r, s.ID, `"status":"waiting"`)
				body := `"by":"octocat"`
				if row.feedback != "" {
					body += `,"feedback":` + quoted(row.feedback)
				}
				d := x.decided(r, s.ID, row.decision, body)
				if d.Gate.GateType != row.kind || orNone(d.Gate.ResolvedBy) != "octocat" || orNone(d.Gate.Feedback) != row.feedback || string(d.Step.Status) != row.status {
					x.t.Errorf("%+v: %+v", row, d)
				}
			}
		}},
		{"a decision does not move the run, which its engine has parked (A13 3)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			waiting := x.do(r, "wait", `"blocked_on":{"type":"human_approval","gate_name":"review"}`)
			x.decided(r, s.ID, "approve", "")
			if now := x.stands(r.ID, "waiting"); now.Revision != waiting.Revision || now.Wait.WaitID != waiting.Wait.WaitID {
				x.t.Errorf("%+v", now)
			}
			x.do(r, "resume", "")
			x.stands(r.ID, "running")
		}},
	}
}

func runGateEndCases() []runCase {
	return []runCase{
		{"a run that is cancelling stays so when its gate is answered (D3 28)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			x.people(r, "cancel", "").Want(http.StatusOK)
			revision := x.stands(r.ID, "cancelling").Revision
			x.decided(r, s.ID, "approve", "")
			if now := x.stands(r.ID, "cancelling"); now.Revision != revision {
				x.t.Errorf("%+v", now)
			}
			x.stepped(r, s.ID, "completed")
		}},
		{"the end of the run is the outcome cancelled (D3 23)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			never := x.step(r, `"step_name":"later","role":"gate","gate":{"gate_type":"human_review"}`)
			n := len(x.events(r.ID))
			x.do(r, "fail", `"error":"no disk"`)
			x.outcome(r, s.ID, "cancelled", "local")
			x.outcome(r, never.ID, "cancelled", "local")
			x.replies(r.ID, n, "run.failed", "0 gate.cancelled", "1 run_step.cancelled", "0 gate.cancelled", "3 run_step.cancelled")
			for _, id := range []uuid.UUID{s.ID, never.ID} {
				answer := x.refused(fault.CodeGateAlreadyResolved, func() *apitest.Response { return x.answer(r, id, "approve", "") }, r.ID)
				x.facts(answer, map[string]any{"state": "cancelled", "by": "local"})
			}
		}},
	}
}

func (x *runTest) gateApproved() {
	r := x.running(`"definition_snapshot":{"title":"Release 1.4"}`)
	s := x.gate(r, `"gate_type":"human_review","prompt":"Publish 1.4?"`)
	list := flowAs[oapi.GateList](x.Get("/v1/gates?state=pending&run_id=" + r.ID.String()).Want(http.StatusOK)).Items
	if len(list) != 1 || list[0].StepID != s.ID || orNone(list[0].WorkflowName) != "release" || orNone(list[0].Prompt) != "Publish 1.4?" {
		x.t.Fatalf("the waiting gates are %+v", list)
	}
	n := len(x.events(r.ID))
	x.advance(2 * time.Second)
	at := x.now()
	d := x.decided(r, s.ID, "approve", `"by":"ada","feedback":"looks good"`)
	if d.Replayed || d.Step.Status != "completed" || !d.Step.EndedAt.Time().Equal(at) || d.Step.ContextOut != nil || d.Step.StepError != nil {
		x.t.Errorf("%+v", d)
	}
	opened := oapi.NullableTime(s.StartedAt.Time())
	deadline, resolved := oapi.NullableTime(s.StartedAt.Time().Add(24*time.Hour)), oapi.NullableTime(at)
	want := oapi.RunGate{
		StepID: s.ID, RunID: r.ID, WorkflowName: new("release"), StepName: "review", GateType: "human_review", State: "approved", Prompt: new("Publish 1.4?"), Options: []oapi.GateOption{},
		MinApprovals: 1, Approvals: new(int32(1)), AllowSelfApproval: true, RequestedBy: new("local"), TimeoutMs: 86_400_000, OnTimeout: "fail", OpenedAt: &opened, DeadlineAt: &deadline,
		ResolvedAt: &resolved, ResolvedBy: new("ada"), Feedback: new("looks good"), Votes: []oapi.GateVote{{By: "ada", Actor: "local", Decision: "approved", Feedback: new("looks good"), At: oapi.Time(at)}},
	}
	if diff := cmp.Diff(want, x.readGate(r, s.ID)); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, d.Gate); diff != "" {
		x.t.Errorf("answered (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(x.read(r, s.ID), d.Step); diff != "" {
		x.t.Errorf("the step (-read +answered):\n%s", diff)
	}
	events := x.replies(r.ID, n, "gate.approved", "0 run_step.completed")
	x.saying(events[0], map[string]any{"step_id": s.ID.String(), "step_name": "review", "gate_type": "human_review", "by": "ada", "feedback": "looks good", "wait_ms": 2000.0})
	if events[0].Topic != "gate" || events[0].Actor != "local" || events[0].Revision != nil {
		x.t.Errorf("%+v", events[0])
	}
}

// threeOptions are the options of a gate, one of them without a label.
const threeOptions = `"options":[{"value":"alpha","label":"Early"},{"value":"beta"},{"value":"stable","label":"To \"everybody\" ✓"}]`

func runGateSelectionCases() []runCase {
	return []runCase{
		{"two of three are kept in their order, and the context lists exactly these (C3 gates 6, A6.4, G-GS, RM-15)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, threeOptions)
			want := []oapi.GateOption{{Value: "alpha", Label: "Early"}, {Value: "beta", Label: "beta"}, {Value: "stable", Label: `To "everybody" ✓`}}
			if diff := cmp.Diff(want, s.Gate.Options); diff != "" {
				x.t.Errorf("options (-want +got):\n%s", diff)
			}
			n := len(x.events(r.ID))
			d := x.decided(r, s.ID, "approve", `"by":"ada","selections":["beta","alpha"]`)
			if got := orNone(d.Step.ContextOut); got != "User selected the following items:\n- beta\n- alpha\n" {
				x.t.Errorf("context %q", got)
			}
			if diff := cmp.Diff([]string{"beta", "alpha"}, x.outcome(r, s.ID, "approved", "ada").Selections); diff != "" {
				x.t.Errorf("selections (-want +got):\n%s", diff)
			}
			events := x.replies(r.ID, n, "gate.approved", "0 run_step.completed")
			x.saying(events[0], map[string]any{"step_id": s.ID.String(), "step_name": "review", "gate_type": "human_approval", "by": "ada", "selections": []any{"beta", "alpha"}})
		}},
		{"what is there twice is taken once (D3 24)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, threeOptions)
			d := x.decided(r, s.ID, "approve", `"selections":["beta","alpha","beta","beta"]`)
			if diff := cmp.Diff([]string{"beta", "alpha"}, d.Gate.Selections); diff != "" || orNone(d.Step.ContextOut) != "User selected the following items:\n- beta\n- alpha\n" {
				x.t.Errorf("%q (-want +got):\n%s", orNone(d.Step.ContextOut), diff)
			}
		}},
		{"the context is the values byte for byte (A6.4)", func(x *runTest) {
			r := x.running("")
			values := []string{" a  b ", "ü∂✓", "<&>", `"q"\`, "- x", strings.Repeat("é", 256)}
			options, context := make([]string, len(values)), "User selected the following items:\n"
			for i, v := range values {
				options[i] = `{"value":` + quoted(v) + `}`
				context += "- " + v + "\n"
			}
			s := x.gate(r, `"options":[`+strings.Join(options, ",")+`]`)
			list := make([]string, len(values))
			for i, v := range values {
				list[i] = quoted(v)
			}
			d := x.decided(r, s.ID, "approve", `"selections":[`+strings.Join(list, ",")+`]`)
			if got := orNone(d.Step.ContextOut); got != context {
				x.t.Errorf("%q\nwant %q", got, context)
			}
		}},
		{"an empty selection is kept as empty, and leaves the context as it was (C3 gates 7)", func(x *runTest) {
			r := x.running("")
			for i, row := range []struct {
				gate, body string
				want       []string
			}{{threeOptions, `"selections":[]`, []string{}}, {`"options":[]`, `"selections":[]`, []string{}}, {threeOptions, "", nil}} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review",%s}`, i, row.gate))
				x.moved(r, s.ID, `"status":"waiting","context_out":"said before"`)
				d := x.decided(r, s.ID, "approve", row.body)
				if diff := cmp.Diff(row.want, d.Gate.Selections); diff != "" || orNone(d.Step.ContextOut) != "said before" {
					x.t.Errorf("%q (-want +got):\n%s", orNone(d.Step.ContextOut), diff)
				}
			}
		}},
	}
}

func runGateOptionCases() []runCase {
	return []runCase{
		{"what is not among the options is refused with what is (A6.4, A6.9)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, `"options":[{"value":"stable","label":"beta"},{"value":"alpha"}]`)
			for _, row := range []struct {
				selections, invalid, pointer string
			}{{`["alpha","beta","gamma"]`, "beta", "/selections/1"}, {`["Stable"]`, "Stable", "/selections/0"}, {`[""]`, "", "/selections/0"}, {`["alpha "]`, "alpha ", "/selections/0"}} {
				answer := x.refused(fault.CodeInvalidSelection, func() *apitest.Response { return x.answer(r, s.ID, "approve", `"selections":`+row.selections) }, r.ID)
				x.facts(answer, map[string]any{"invalid": row.invalid, "allowed": []any{"alpha", "stable"}})
				x.points(answer, fault.InBody, row.pointer)
			}
			bare := x.step(r, `"step_name":"bare","role":"gate","gate":{"gate_type":"human_review"}`)
			x.moved(r, bare.ID, `"status":"waiting"`)
			answer := x.refused(fault.CodeInvalidSelection, func() *apitest.Response { return x.answer(r, bare.ID, "approve", `"selections":["alpha"]`) }, r.ID)
			x.facts(answer, map[string]any{"invalid": "alpha", "allowed": []any{}})
			x.outcome(r, s.ID, "pending", "")
		}},
		{"options are there once each", func(x *runTest) {
			r := x.running("")
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response {
				return x.insert(r, `"role":"gate","gate":{"gate_type":"human_review","options":[{"value":"a"},{"value":"a","label":"b"}]}`)
			}, r.ID)
			x.points(answer, fault.InBody, "/gate/options")
		}},
	}
}

func runGateVoteCases() []runCase {
	return []runCase{
		{"as many different people as it asks for have to approve (D3 26)", (*runTest).gateQuorum},
		{"one rejection is enough, whoever has approved", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, `"min_approvals":3`)
			x.decided(r, s.ID, "approve", `"by":"ada"`)
			x.decided(r, s.ID, "approve", `"by":"bob"`)
			x.decided(r, s.ID, "reject", `"by":"ada","feedback":"I was wrong"`)
			if g := x.outcome(r, s.ID, "rejected", "ada"); *g.Approvals != 2 || len(g.Votes) != 3 {
				x.t.Errorf("%+v", g)
			}
			x.stepped(r, s.ID, "failed")
			if d := x.decided(r, s.ID, "approve", `"by":"bob"`); !d.Replayed || d.Gate.State != "rejected" {
				x.t.Errorf("what was said before the outcome is told again: %+v", d)
			}
		}},
		{"notes decide nothing, before and while it is open (A6.9)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_review"}`)
			n := len(x.events(r.ID))
			if d := x.decided(r, s.ID, "feedback", `"by":"ada","feedback":"Who asks?"`); d.Replayed || d.Step.Status != "pending" || d.Gate.OpenedAt != nil {
				x.t.Errorf("%+v", d)
			}
			x.moved(r, s.ID, `"status":"waiting"`)
			x.decided(r, s.ID, "feedback", `"feedback":"I do."`)
			events := x.replies(r.ID, n, "gate.voted", "run_step.waiting", "1 gate.opened", "gate.voted")
			x.saying(events[0], map[string]any{"step_id": s.ID.String(), "gate_type": "human_review", "by": "ada", "decision": "feedback", "feedback": "Who asks?"})
			g := x.outcome(r, s.ID, "pending", "")
			want := []oapi.GateVote{
				{By: "ada", Actor: "local", Decision: "feedback", Feedback: new("Who asks?"), At: oapi.Time(x.now())}, {By: "local", Actor: "local", Decision: "feedback", Feedback: new("I do."), At: oapi.Time(x.now())},
			}
			if diff := cmp.Diff(want, g.Votes); diff != "" || *g.Approvals != 0 {
				x.t.Errorf("%d approvals (-want +got):\n%s", *g.Approvals, diff)
			}
			x.stepped(r, s.ID, "waiting")
		}},
		{"the same again changes nothing (A6.9, D2 13)", func(x *runTest) {
			r := x.running("")
			for i, decision := range []string{"approve", "reject", "feedback"} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review",%s}`, i, threeOptions))
				x.moved(r, s.ID, `"status":"waiting"`)
				body := `"by":"ada","feedback":"as said"`
				if decision == "approve" {
					body += `,"selections":["alpha"]`
				}
				first := x.decided(r, s.ID, decision, body)
				x.advance(time.Minute)
				again := flowAs[oapi.DecidedGate](x.same(func() *apitest.Response { return x.answer(r, s.ID, decision, body) }, r.ID).Want(http.StatusOK))
				if !again.Replayed {
					x.t.Errorf("%s again is no replay", decision)
				}
				again.Replayed = false
				if diff := cmp.Diff(first, again); diff != "" {
					x.t.Errorf("%s again (-first +again):\n%s", decision, diff)
				}
			}
		}},
		{"an answer under an Idempotency-Key is given once", func(x *runTest) {
			r := x.running("")
			s, key := x.gate(r, `"min_approvals":2`), "Idempotency-Key: vote-"+x.namespace
			first := x.answer(r, s.ID, "approve", `"by":"ada"`, key).Want(http.StatusOK)
			x.decided(r, s.ID, "approve", `"by":"bob"`)
			again := x.same(func() *apitest.Response { return x.answer(r, s.ID, "approve", `"by":"ada"`, key) }, r.ID).Want(http.StatusOK)
			if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				x.t.Errorf("%s\n%s", first.Body, again.Body)
			}
			x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.answer(r, s.ID, "reject", `"by":"ada"`, key) }, r.ID)
		}},
	}
}

func (x *runTest) gateQuorum() {
	r := x.running("")
	s := x.gate(r, `"min_approvals":3,`+threeOptions)
	n := len(x.events(r.ID))
	if d := x.decided(r, s.ID, "approve", `"by":"ada","selections":["stable"]`); d.Gate.State != "pending" || *d.Gate.Approvals != 1 || d.Step.Status != "waiting" || d.Replayed {
		x.t.Errorf("%+v", d)
	}
	x.same(func() *apitest.Response { return x.answer(r, s.ID, "approve", `"by":"ada","selections":["stable"]`) }, r.ID).Want(http.StatusOK)
	if d := x.decided(r, s.ID, "approve", `"by":"ada","feedback":"or not?"`); d.Replayed || *d.Gate.Approvals != 1 { // she says something else, and counts once
		x.t.Errorf("%+v", d)
	}
	if d := x.decided(r, s.ID, "approve", `"by":"bob"`); *d.Gate.Approvals != 2 || d.Gate.State != "pending" {
		x.t.Errorf("%+v", d)
	}
	d := x.decided(r, s.ID, "approve", `"by":"cyd","feedback":"go","selections":["beta"]`)
	if d.Gate.State != "approved" || *d.Gate.Approvals != 3 || orNone(d.Step.ContextOut) != "User selected the following items:\n- beta\n" {
		x.t.Errorf("%+v", d)
	}
	g := x.outcome(r, s.ID, "approved", "cyd")
	var votes []string
	for _, v := range g.Votes {
		votes = append(votes, fmt.Sprint(v.By, " ", v.Decision, " ", orNone(v.Feedback), v.Selections))
	}
	if diff := cmp.Diff([]string{"ada approved [stable]", "ada approved or not?[]", "bob approved []", "cyd approved go[beta]"}, votes); diff != "" || orNone(g.Feedback) != "go" {
		x.t.Errorf("%+v: votes (-want +got):\n%s", g, diff)
	}
	events := x.replies(r.ID, n, "gate.voted", "gate.voted", "gate.voted", "gate.approved", "3 run_step.completed")
	x.saying(events[2], map[string]any{"step_id": s.ID.String(), "gate_type": "human_approval", "by": "bob", "decision": "approved"})
	answer := x.refused(fault.CodeGateAlreadyResolved, func() *apitest.Response { return x.answer(r, s.ID, "approve", `"by":"dan"`) }, r.ID)
	x.facts(answer, map[string]any{"state": "approved", "by": "cyd", "at": strings.Trim(spelled(g.ResolvedAt.Time()), `"`)})
	if d := x.decided(r, s.ID, "approve", `"by":"bob"`); !d.Replayed {
		x.t.Errorf("%+v", d)
	}
}

func runGateRefusalCases() []runCase {
	return []runCase{
		{"another answer after the outcome is refused with what was decided (A6.9, A13 4)", func(x *runTest) {
			r := x.running("")
			for i, first := range []string{"approve", "reject"} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review"}`, i))
				x.moved(r, s.ID, `"status":"waiting"`)
				d := x.decided(r, s.ID, first, `"by":"ada"`)
				at := strings.Trim(spelled(d.Gate.ResolvedAt.Time()), `"`)
				x.advance(time.Second)
				for _, other := range [][2]string{{"approve", `"by":"bob"`}, {"reject", `"by":"bob"`}, {first, `"by":"ada","feedback":"and more"`}, {"feedback", `"by":"ada","feedback":"late"`}} {
					answer := x.refused(fault.CodeGateAlreadyResolved, func() *apitest.Response { return x.answer(r, s.ID, other[0], other[1]) }, r.ID)
					x.facts(answer, map[string]any{"state": string(d.Gate.State), "by": "ada", "at": at})
				}
			}
		}},
		{"whoever asks may be kept from answering (A6.9)", (*runTest).gateSelf},
		{"what is no gate is not answered (A13 4)", func(x *runTest) {
			r := x.running("")
			for i, role := range []string{"agent", "script", "foreach", "workflow", "wait"} {
				s := x.step(r, fmt.Sprintf(`"step_name":"s%d","role":%q`, i, role))
				x.moved(r, s.ID, `"status":"waiting"`)
				for j, call := range x.gateCalls(r.ID, s.ID) {
					if i > 0 && j != i { // all calls of one role, and one call of every other
						continue
					}
					x.facts(x.refused(fault.CodeNotAGate, call, r.ID), map[string]any{"role": role})
				}
			}
		}},
		{"what is not there is not found (A13 5, RM-13)", func(x *runTest) {
			r, other := x.running(""), x.running("")
			s := x.gate(r, "")
			for _, call := range append(x.gateCalls(r.ID, uuid.New()), x.gateCalls(other.ID, s.ID)...) {
				x.missing("step", call, r.ID, other.ID)
			}
			foreign := &runTest{x.flowTest.in(x.namespace + "-other")}
			for _, call := range append(x.gateCalls(uuid.New(), s.ID), foreign.gateCalls(r.ID, s.ID)...) {
				x.missing("run", call, r.ID)
			}
			x.outcome(r, s.ID, "pending", "")
		}},
		{"a gate that has not been opened is not answered (RM-12)", func(x *runTest) {
			r := x.running("")
			pending := x.step(r, `"step_name":"a","role":"gate","gate":{"gate_type":"human_review"}`)
			begun := x.step(r, `"step_name":"b","role":"gate","retry_count":0,"gate":{"gate_type":"human_review"}`)
			for _, s := range []oapi.RunStep{pending, begun} {
				for decision, to := range map[string]string{"approve": "approved", "reject": "rejected"} {
					answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.answer(r, s.ID, decision, "") }, r.ID)
					x.facts(answer, map[string]any{"from": string(s.Status), "to": to})
				}
				if g := x.outcome(r, s.ID, "pending", ""); g.OpenedAt != nil || g.DeadlineAt != nil {
					x.t.Errorf("%+v", g)
				}
			}
		}},
		{"an answer is refused that is not one", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, threeOptions)
			for _, row := range []struct{ decision, body, pointer string }{
				{"approve", `"by":""`, "/by"}, {"approve", `"selections":"alpha"`, "/selections"}, {"approve", `"selections":[1]`, "/selections/0"},
				{"approve", `"feedback":` + quoted(strings.Repeat("x", 16385)), "/feedback"}, {"reject", `"selections":[]`, "/selections"}, {"feedback", "", "/feedback"},
				{"feedback", `"feedback":""`, "/feedback"}, {"approve", `"decision":"approved"`, "/decision"},
			} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.answer(r, s.ID, row.decision, row.body) }, r.ID)
				x.points(answer, fault.InBody, row.pointer)
			}
		}},
	}
}

// gateCalls are all calls about one gate.
func (x *runTest) gateCalls(runID, stepID uuid.UUID) []func() *apitest.Response {
	path := runPath(runID, "steps", stepID.String(), "gate")
	return []func() *apitest.Response{
		func() *apitest.Response { return x.Get(path) },
		func() *apitest.Response { return x.Get(path + "/token") },
		func() *apitest.Response { return x.Post(path+"/approve", nil) },
		func() *apitest.Response { return x.Post(path+"/reject", `{"by":"ada"}`) },
		func() *apitest.Response { return x.Post(path+"/feedback", `{"feedback":"x"}`) },
	}
}

func (x *runTest) gateSelf() {
	ada, bob := x.as("ada", "operator"), x.as("bob", "operator")
	for i, row := range []struct {
		asks    string // the gate's members
		who     *runTest
		by      string
		refused bool
	}{
		{`"requested_by":"ada"`, ada, "", true},
		{`"requested_by":"ada"`, ada, "ada", true},
		{`"requested_by":"ada"`, ada, "somebody", true}, // she sends it
		{`"requested_by":"ada"`, bob, "ada", true},
		{`"requested_by":"ada"`, bob, "token:ada", true},
		{`"requested_by":"token:ada"`, ada, "", true},
		{`"requested_by":"token:ada"`, bob, "ada", true},
		{`"requested_by":"ada"`, x, "eve", true}, // whoever has made the gate sends it
		{"", x, "", true},                        // and has asked, when nobody else is named
		{`"requested_by":"ada"`, bob, "", false},
		{`"requested_by":"ada"`, bob, "ad", false},
		{"", bob, "eve", false},
	} {
		r := x.running("")
		s := x.gate(r, joined(row.asks, `"allow_self_approval":false`))
		body := ""
		if row.by != "" {
			body = `"by":` + quoted(row.by)
		}
		if !row.refused {
			row.who.decided(r, s.ID, "approve", body)
			continue
		}
		decision := []string{"approve", "reject"}[i%2]
		answer := x.refused(fault.CodeSelfApproval, func() *apitest.Response { return row.who.answer(r, s.ID, decision, body) }, r.ID)
		x.facts(answer, map[string]any{"requested_by": orNone(s.Gate.RequestedBy)})
		x.decided(r, s.ID, "feedback", `"feedback":"I may say something"`)
		if x.t.Failed() {
			x.t.Fatalf("that was row %d", i)
		}
	}
	r := x.running("")
	ada.decided(r, x.gate(r, `"requested_by":"ada"`).ID, "approve", "") // it is allowed unless it is said
}

func runGateEngineCases() []runCase {
	return []runCase{
		{"the engine does not answer in the place of a person, nor take the question back", func(x *runTest) {
			r := x.running("")
			for i, kind := range []string{"human_approval", "human_review", "my_resolver"} {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":%q}`, i, kind))
				x.moved(r, s.ID, `"status":"waiting"`)
				for _, to := range []string{"completed", "running", "pending"} {
					answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response { return x.patch(r, s.ID, `"status":`+quoted(to)) }, r.ID)
					x.facts(answer, map[string]any{"from": "waiting", "to": to})
				}
				x.outcome(r, s.ID, "pending", "")
			}
		}},
		{"it may end the step, which is an outcome, too (D3 23)", func(x *runTest) {
			r := x.running("")
			for to, outcome := range map[string]string{"failed": "cancelled", "cancelled": "cancelled", "skipped": "skipped", "timed_out": "timed_out"} {
				s := x.step(r, fmt.Sprintf(`"step_name":%q,"role":"gate","gate":{"gate_type":"human_review"}`, to))
				x.moved(r, s.ID, `"status":"waiting"`)
				n := len(x.events(r.ID))
				x.moved(r, s.ID, `"status":`+quoted(to))
				x.outcome(r, s.ID, outcome, "local")
				x.replies(r.ID, n, "gate."+outcome, "0 run_step."+to)
				answer := x.refused(fault.CodeGateAlreadyResolved, func() *apitest.Response { return x.answer(r, s.ID, "approve", "") }, r.ID)
				x.facts(answer, map[string]any{"state": outcome, "by": "local"})
			}
			if open := x.inbox("?kind=gate"); len(open) != 0 {
				x.t.Errorf("%+v", open)
			}
		}},
		{"it answers what a machine answers (C3 resolver units)", func(x *runTest) {
			r := x.running("")
			for i, kind := range []string{"pr_approval", "pr_checks", "quality_gate"} {
				for j, row := range [][3]string{{"completed", "approved"}, {"failed", "rejected"}, {"timed_out", "timed_out"}, {"skipped", "skipped"}, {"cancelled", "cancelled"}} {
					s := x.step(r, fmt.Sprintf(`"step_name":"g%d-%d","role":"gate","gate":{"gate_type":%q}`, i, j, kind))
					x.moved(r, s.ID, `"status":"waiting"`)
					n := len(x.events(r.ID))
					x.moved(r, s.ID, fmt.Sprintf(`"status":%q,"result_text":"90 of 80"`, row[0]))
					x.outcome(r, s.ID, row[1], "local")
					x.replies(r.ID, n, "gate."+row[1], "0 run_step."+row[0])
				}
			}
		}},
		{"a gate that is never opened was not asked (C2 gates_and_errors, dry run)", func(x *runTest) {
			r := x.running(`"dry_run":true`)
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_approval"}`)
			n := len(x.events(r.ID))
			x.moved(r, s.ID, `"status":"completed","result_text":"auto-approved (dry run)"`)
			x.replies(r.ID, n, "gate.skipped", "0 run_step.completed")
			if g := x.outcome(r, s.ID, "skipped", "local"); g.OpenedAt != nil || len(x.Get("/v1/gates").Want(http.StatusOK).JSON()["items"].([]any)) != 0 {
				x.t.Errorf("%+v", g)
			}
			x.do(r, "complete", "")
		}},
		{"what is said of an open gate leaves it open", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, "")
			x.moved(r, s.ID, `"status":"waiting","context_out":"reminded twice"`)
			if g := x.outcome(r, s.ID, "pending", ""); !g.DeadlineAt.Time().Equal(s.Gate.DeadlineAt.Time()) {
				x.t.Errorf("%+v", g)
			}
			d := x.decided(r, s.ID, "approve", "")
			if orNone(d.Step.ContextOut) != "reminded twice" {
				x.t.Errorf("%+v", d.Step)
			}
		}},
	}
}

func runGateLinkCases() []runCase {
	return []runCase{
		{"its link is made while it is open", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_approval"}`)
			token := func() *apitest.Response { return x.Get(stepPath(r, s.ID, "gate", "token")) }
			x.missing("token", token, r.ID)
			x.moved(r, s.ID, `"status":"waiting"`)
			answer := token().Want(http.StatusOK)
			got := flowAs[oapi.GateToken](answer)
			if got.StepID != s.ID || !strings.Contains(got.ApproveURL, "/approve/"+s.ID.String()+".") || answer.Header.Get("Cache-Control") != "no-store" {
				x.t.Errorf("%v %+v", answer.Header, got)
			}
			x.decided(r, s.ID, "approve", "")
			x.missing("token", token, r.ID)
		}},
	}
}
