package run_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// asking returns a new step that is a gate.
func asking(tb testing.TB, change ...func(*run.Gate)) run.Step {
	tb.Helper()
	r := in(tb, run.Running)
	g := run.Gate{Type: run.HumanApproval, Timeout: time.Hour}
	for _, c := range change {
		c(&g)
	}
	return applied(tb)(r.Insert(run.NewStep{ID: stepID, Name: "approve", Role: run.RoleGate, Position: 3, Gate: &g}, event.By{Actor: "token:ci", At: at(10)}))
}

// opened returns a step whose gate is open, since second 12.
func opened(tb testing.TB, change ...func(*run.Gate)) run.Step {
	tb.Helper()
	r := in(tb, run.Running)
	return applied(tb)(asking(tb, change...).Update(&r, run.StepUpdate{Status: run.StepWaiting, WaitID: waitID}, by(12)))
}

func vote(who string, d run.Decision) run.Vote {
	return run.Vote{ID: childID, Voter: who, Actor: who, Decision: d, At: at(20)}
}

// TestGate_Open: a gate opens when its step begins to wait, with a deadline from then. reference: model.md "Run" (gates); A13 7 and 8.
func TestGate_Open(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	s := asking(t, func(g *run.Gate) { g.MinApprovals = 2 })
	if s.Gate.Open() {
		t.Error("it is open before its step waits")
	}
	c, err := s.Update(&r, run.StepUpdate{Status: run.StepWaiting, WaitID: waitID}, by(12))
	want := frozenStep(s)
	want.Status, want.StartedAt, want.AttemptStarted = run.StepWaiting, at(12), at(12)
	want.Gate.WaitID, want.Gate.OpenedAt, want.Gate.DeadlineAt = waitID, at(12), at(12+3600)
	if diff := cmp.Diff(want, c.Step); err != nil || diff != "" || s.Gate.Open() {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	told := []string{
		fmt.Sprintf(`run_step.waiting {"step_id":"%s","step_name":"approve","role":"gate","status":"waiting","position":3,"iteration":0,"retry_count":0}`, stepID),
		fmt.Sprintf(`gate.opened {"step_id":"%s","step_name":"approve","gate_type":"human_approval","requested_by":"token:dev","min_approvals":2,"deadline_at":"2026-11-21T10:30:12.000Z"}`, stepID),
	}
	if diff := cmp.Diff(told, lines(t, c.Events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var none *run.Gate
	if none.Open() {
		t.Error("no gate is open")
	}
}

// TestGate_Wait holds the kernel's spelling of a gate. reference: runs-and-taskflows.md F5 4.
func TestGate_Wait(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, tt := range []struct {
		how  run.GateTimeout
		want wait.OnTimeout
	}{{run.GateFails, wait.TimeoutFails}, {run.GateContinues, wait.TimeoutResumes}} {
		s := opened(t, func(g *run.Gate) { g.OnTimeout, g.MinApprovals, g.RequestedBy = tt.how, 2, "eve" })
		keys := []string{stepID.String()}
		want := wait.Wait{
			ID: waitID, Namespace: "default", RunID: id, StepID: stepID, Since: at(12), Asks: true, Title: "deploy: approve", RequestedBy: "eve",
			Spec: wait.Spec{Deadline: at(12 + 3600), OnTimeout: tt.want, Condition: wait.Condition{Kind: wait.Any, Of: []wait.Condition{
				{Kind: wait.Count, N: 2, Distinct: wait.DistinctSources, Waitpoints: keys, Name: "approved"},
				{Kind: wait.SignalOn, Waitpoints: keys, Name: "rejected"},
			}}},
		}
		if diff := cmp.Diff(want, s.Gate.Wait(&r, &s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	v := vote("eve", run.Approve)
	s := opened(t)
	want := wait.Signal{ID: childID.String(), Waitpoint: stepID.String(), Name: "approved", SourceType: "person", SourceIdentity: "eve"}
	if diff := cmp.Diff(want, v.Signal(&s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w := s.Gate.Wait(&r, &s)
	if o, ok := w.Decide(at(12 + 3600)); !ok || o.By != wait.ByTimeout {
		t.Errorf("at its deadline: %+v, %t", o, ok)
	}
	if _, ok := w.Decide(at(12 + 3599)); ok {
		t.Error("it was decided before its deadline")
	}
}

// TestGate_Votes: exactly the vote by which enough distinct people approve, or the first rejection, decides.
// reference: runs-and-taskflows.md D3 23 and 26.
func TestGate_Votes(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	gates := map[int]run.Step{}
	for n := 1; n <= 4; n++ {
		gates[n] = opened(t, func(g *run.Gate) { g.MinApprovals = n })
	}
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.IntRange(1, 4).Draw(t, "min_approvals")
		s := gates[needs]
		w := s.Gate.Wait(&r, &s)
		approved := map[string]bool{}
		var outcome run.GateOutcome
		for i := range rapid.IntRange(0, 12).Draw(t, "votes") {
			v := vote(rapid.SampledFrom([]string{"ann", "bob", "eve", "joe", "token:sue"}).Draw(t, "voter"), rapid.SampledFrom([]run.Decision{run.Approve, run.Approve, run.Approve, run.Note, run.Reject}).Draw(t, "decision"))
			v.ID = uuid.UUID{15: byte(i)}
			err := s.Admits(&r, &v)
			if outcome != "" {
				if refused(t, err, fault.CodeGateAlreadyResolved, nil); t.Failed() {
					t.FailNow()
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			before := len(w.Received)
			next, counts := w.Deliver(v.Signal(&s))
			want := v.Decision == run.Reject || v.Decision == run.Approve && !approved[v.Voter]
			if w = next; counts != want || len(w.Received)-before != map[bool]int{true: 1}[want] {
				t.Fatalf("%s by %s counts: %t, want %t", v.Decision, v.Voter, counts, want)
			}
			if v.Decision == run.Approve {
				approved[v.Voter] = true
			}
			o, decided := w.DecideBy(at(20))
			decides := v.Decision == run.Reject || len(approved) >= needs
			if decided != decides || decided && (o.By != wait.BySignal || o.Last().SourceIdentity != v.Voter) {
				t.Fatalf("%s by %s, the approvals are %v of %d: decided %t", v.Decision, v.Voter, approved, needs, decided)
			}
			if decided {
				s = s.Decided(&r, &v, by(20)).Step
				if outcome = s.Gate.Outcome; outcome != run.GateOutcome(v.Decision) || s.Gate.ResolvedBy != v.Voter {
					t.Fatalf("%s by %s gives it the outcome %s", v.Decision, v.Voter, outcome)
				}
			}
		}
	})
}

// TestAdmits: what is refused, in which order. reference: runs-and-taskflows.md A6.4, A6.9, A13 4.
func TestAdmits(t *testing.T) {
	t.Parallel()
	options := func(g *run.Gate) { g.Options = []run.Option{{Value: "beta"}, {Value: "alpha", Label: "A"}} }
	running, ended := in(t, run.Running), in(t, run.Completed)
	decided := func(d run.Decision) run.Step {
		v := eves(d)
		return opened(t, options).Decided(&running, &v, by(30)).Step
	}
	asker := map[string]any{"requested_by": "token:dev"}
	tests := []struct {
		name  string
		step  run.Step
		run   run.Run
		vote  run.Vote
		code  fault.Code
		facts map[string]any
	}{
		{"approval", opened(t), running, eves(run.Approve), "", nil},
		{"rejection", opened(t), running, eves(run.Reject), "", nil},
		{"note", opened(t), running, eves(run.Note), "", nil},
		{"no gate, of a run that has ended", stepIn(t, run.StepCompleted), ended, eves(run.Approve), fault.CodeNotAGate, map[string]any{"role": run.RoleAgent}},
		{"answered, of a run that has ended", decided(run.Approve), ended, eves(run.Reject), fault.CodeGateAlreadyResolved, resolved(run.GateApproved, "eve")},
		{"answered, a note", decided(run.Reject), running, eves(run.Note), fault.CodeGateAlreadyResolved, resolved(run.GateRejected, "eve")},
		{"timed out", opened(t).Late(&running, by(30)).Step, running, eves(run.Approve), fault.CodeGateAlreadyResolved, resolved(run.GateTimedOut, "token:ci")},
		{"cancelled", opened(t).EndWith(&running, run.StepCancelled, by(30)).Step, running, eves(run.Approve), fault.CodeGateAlreadyResolved, resolved(run.GateCancelled, "token:ci")},
		{"skipped", opened(t).EndWith(&running, run.StepSkipped, by(30)).Step, running, eves(run.Approve), fault.CodeGateAlreadyResolved, resolved(run.GateSkipped, "token:ci")},
		{"open, of a run that has ended", opened(t), ended, eves(run.Note), fault.CodeRunTerminal, map[string]any{"current_status": run.Completed}},
		{"not opened, of a run that has ended", asking(t), ended, eves(run.Approve), fault.CodeRunTerminal, nil},
		{"not opened, by the asker", asking(t), running, eves(run.Approve, as("token:dev", "token:dev")), fault.CodeIllegalTransition, map[string]any{"from": run.StepPending, "to": run.Approve}},
		{"not opened, rejected", asking(t), running, eves(run.Reject), fault.CodeIllegalTransition, map[string]any{"from": run.StepPending, "to": run.Reject}},
		{"not opened, a note", asking(t), running, eves(run.Note), "", nil},
		{"by the asker, with no option", opened(t), running, eves(run.Approve, as("token:dev", "x"), selects("x")), fault.CodeSelfApproval, asker},
		{"rejected by the asker", opened(t), running, eves(run.Reject, as("token:dev", "x")), fault.CodeSelfApproval, asker},
		{"sent by the asker", opened(t), running, eves(run.Approve, as("eve", "token:dev")), fault.CodeSelfApproval, asker},
		{"by who has made it", opened(t), running, eves(run.Approve, as("token:ci", "x")), fault.CodeSelfApproval, asker},
		{"sent by who has made it", opened(t), running, eves(run.Approve, as("eve", "token:ci")), fault.CodeSelfApproval, asker},
		{"noted by the asker", opened(t), running, eves(run.Note, as("token:dev", "token:dev")), "", nil},
		{"by the asker, who may", opened(t, func(g *run.Gate) { g.AllowSelf = true }), running, eves(run.Approve, as("token:dev", "token:ci")), "", nil},
		{"by the asker, with the kind of actor", opened(t, func(g *run.Gate) { g.RequestedBy = "eve" }), running, eves(run.Approve, as("token:eve", "x")), fault.CodeSelfApproval, map[string]any{"requested_by": "eve"}},
		{"by the asker, by name", opened(t, func(g *run.Gate) { g.RequestedBy = "eve" }), running, eves(run.Approve, as("eve", "x")), fault.CodeSelfApproval, map[string]any{"requested_by": "eve"}},
		{"sent by the asker, with the kind of actor", opened(t, func(g *run.Gate) { g.RequestedBy = "eve" }), running, eves(run.Approve, as("joe", "token:eve")), fault.CodeSelfApproval, nil},
		{"by somebody of another name", opened(t, func(g *run.Gate) { g.RequestedBy = "eve" }), running, eves(run.Approve, as("token:steve", "token:eve2")), "", nil},
		{"by a kind without a name", opened(t, func(g *run.Gate) { g.RequestedBy = "eve" }), running, eves(run.Approve, as("token:", "eve:")), "", nil},
		{"selected", opened(t, options), running, eves(run.Approve, selects("alpha", "beta", "alpha")), "", nil},
		{"nothing selected", opened(t, options), running, eves(run.Approve, selects()), "", nil},
		{"nothing selected, without options", opened(t), running, eves(run.Approve, selects()), "", nil},
		{"selected what is none", opened(t, options), running, eves(run.Approve, selects("alpha", "x", "y")), fault.CodeInvalidSelection, invalid("x", "alpha", "beta")},
		{"selected a label", opened(t, options), running, eves(run.Approve, selects("A")), fault.CodeInvalidSelection, invalid("A", "alpha", "beta")},
		{"selected without options", opened(t), running, eves(run.Approve, selects("x")), fault.CodeInvalidSelection, invalid("x")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozenStep(tt.step)
			err := tt.step.Admits(&tt.run, &tt.vote)
			if refused(t, err, tt.code, tt.facts); tt.code == fault.CodeInvalidSelection {
				i := slices.Index(tt.vote.Selections, tt.facts["invalid"].(string))
				if pointer(err) != fmt.Sprintf("/selections/%d", i) {
					t.Errorf("it points at %s", pointer(err))
				}
			}
			if diff := cmp.Diff(before, tt.step); diff != "" {
				t.Errorf("it changed the step:\n%s", diff)
			}
		})
	}
}

// eves is what eve says, with some changes.
func eves(d run.Decision, change ...func(*run.Vote)) run.Vote {
	v := vote("eve", d)
	for _, c := range change {
		c(&v)
	}
	return v
}

func as(voter, actor string) func(*run.Vote) {
	return func(v *run.Vote) { v.Voter, v.Actor = voter, actor }
}

func selects(s ...string) func(*run.Vote) {
	return func(v *run.Vote) { v.Selections = append([]string{}, s...) }
}

func resolved(o run.GateOutcome, by string) map[string]any {
	return map[string]any{"state": o, "by": by, "at": event.Stamp(at(30))}
}

func invalid(s string, allowed ...string) map[string]any {
	return map[string]any{"invalid": s, "allowed": append([]string{}, allowed...)}
}

// TestAdmits_AskerByName: whoever is known by a kind of actor and a name is the asker by the name alone, too.
func TestAdmits_AskerByName(t *testing.T) {
	t.Parallel()
	r, s := in(t, run.Running), opened(t)
	v := vote("dev", run.Approve) // and token:dev asks
	v.Actor = "token:ops"
	refused(t, s.Admits(&r, &v), fault.CodeSelfApproval, nil)
}

// TestSelected holds the golden text. reference: runs-and-taskflows.md G-GS, A6.4.
func TestSelected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		selections []string
		want       string
	}{
		{[]string{"alpha", "beta"}, "User selected the following items:\n- alpha\n- beta\n"},
		{[]string{}, "User selected the following items:\n"},
		{nil, "User selected the following items:\n"},
		{[]string{"ü\n", " "}, "User selected the following items:\n- ü\n\n-  \n"},
	} {
		if got := run.Selected(tt.selections); got != tt.want {
			t.Errorf("Selected(%q) = %q, want %q", tt.selections, got, tt.want)
		}
	}
}

// TestDecided. reference: runs-and-taskflows.md A6.4, A6.5, D3 24.
func TestDecided(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	tests := []struct {
		name       string
		decision   run.Decision
		feedback   string
		selections []string
		want       func(*run.Step)
		told       string
	}{
		{"approved", run.Approve, "", nil, func(s *run.Step) { s.Status = run.StepCompleted }, `"by":"eve","wait_ms":8000`},
		{"approved with words", run.Approve, "nice", []string{}, func(s *run.Step) {
			s.Status, s.Gate.Feedback, s.Gate.Selections = run.StepCompleted, "nice", []string{}
		}, `"by":"eve","feedback":"nice","wait_ms":8000`},
		{"approved with selections", run.Approve, "", []string{"b", "a", "b"}, func(s *run.Step) {
			s.Status, s.Gate.Selections, s.ContextOut = run.StepCompleted, []string{"b", "a"}, "User selected the following items:\n- b\n- a\n"
		}, `"by":"eve","selections":["b","a"],"wait_ms":8000`},
		{"rejected", run.Reject, "", nil, func(s *run.Step) { s.Status, s.StepError = run.StepFailed, "The gate approve was rejected." }, `"by":"eve","wait_ms":8000`},
		{"rejected with words", run.Reject, "too early", []string{"a"}, func(s *run.Step) {
			s.Status, s.StepError, s.Gate.Feedback, s.Gate.Selections = run.StepFailed, "too early", "too early", []string{"a"}
		}, `"by":"eve","feedback":"too early","selections":["a"],"wait_ms":8000`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := opened(t)
			s.ContextOut = "before"
			before, want := frozenStep(s), frozenStep(s)
			want.EndedAt, want.Gate.WaitID, want.Gate.ResolvedAt, want.Gate.ResolvedBy, want.Gate.Outcome = at(20), uuid.Nil, at(20), "eve", run.GateOutcome(tt.decision)
			tt.want(&want)
			v := vote("eve", tt.decision)
			v.Actor, v.Feedback, v.Selections = "token:bot", tt.feedback, tt.selections
			c := s.Decided(&r, &v, by(20))
			if diff := cmp.Diff(want, c.Step); diff != "" || !c.Applied || !c.Ended || c.Closed != nil {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got := lines(t, c.Events)
			if told := fmt.Sprintf(`gate.%s {"step_id":"%s","step_name":"approve","gate_type":"human_approval",%s}`, tt.decision, stepID, tt.told); len(got) != 2 || got[0] != told {
				t.Errorf("it tells %v, want %s", got, told)
			}
			if diff := cmp.Diff(before, s); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
		})
	}
}

// TestStep_Late: what becomes of the step of a gate that nobody has answered in time. reference: runs-and-taskflows.md A6.3 7.
func TestStep_Late(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, tt := range []struct {
		how  run.GateTimeout
		want func(*run.Step)
	}{
		{run.GateFails, func(s *run.Step) {
			s.Status, s.ResultText, s.StepError = run.StepFailed, "gate timed out", "The gate approve timed out."
		}},
		{run.GateContinues, func(s *run.Step) { s.Status, s.ResultText = run.StepTimedOut, "gate timed out; continuing" }},
	} {
		s := opened(t, func(g *run.Gate) { g.OnTimeout = tt.how })
		before, want := frozenStep(s), frozenStep(s)
		want.EndedAt, want.Gate.WaitID, want.Gate.ResolvedAt, want.Gate.ResolvedBy, want.Gate.Outcome = at(3612), uuid.Nil, at(3612), "system", run.GateTimedOut
		tt.want(&want)
		c := s.Late(&r, event.By{Actor: "system", At: at(3612)})
		if diff := cmp.Diff(want, c.Step); diff != "" || !c.Ended || !c.Applied {
			t.Errorf("%s (-want +got):\n%s", tt.how, diff)
		}
		told := fmt.Sprintf(`gate.timed_out {"step_id":"%s","step_name":"approve","gate_type":"human_approval","by":"system","wait_ms":3600000,"on_timeout":"%s"}`, stepID, tt.how)
		if got := lines(t, c.Events); len(got) != 2 || got[0] != told {
			t.Errorf("it tells %v, want %s", got, told)
		}
		if diff := cmp.Diff(before, s); diff != "" {
			t.Errorf("it changed its receiver:\n%s", diff)
		}
	}
}

func TestVote_Same(t *testing.T) {
	t.Parallel()
	base := vote("eve", run.Approve)
	changes := map[string]func(*run.Vote){
		"attempt": func(v *run.Vote) { v.Attempt++ }, "voter": func(v *run.Vote) { v.Voter = "joe" }, "decision": func(v *run.Vote) { v.Decision = run.Reject },
		"feedback": func(v *run.Vote) { v.Feedback = "x" }, "no selections": func(v *run.Vote) { v.Selections = []string{} }, "selections": func(v *run.Vote) { v.Selections = []string{"a"} },
	}
	for name, change := range changes {
		v := base
		if change(&v); v.Same(&base) || base.Same(&v) {
			t.Errorf("%s makes no difference", name)
		}
	}
	v := base
	v.ID, v.Actor, v.At = id, "token:bot", at(99)
	if !v.Same(&base) {
		t.Error("who has sent it makes a difference")
	}
	v.Selections, base.Selections = []string{"a", "b"}, []string{"b", "a"}
	if v.Same(&base) {
		t.Error("the order of selections makes no difference")
	}
}

func TestVoted(t *testing.T) {
	t.Parallel()
	r, s := in(t, run.Running), opened(t)
	v := vote("eve", run.Note)
	v.Feedback = "hm"
	want := []string{fmt.Sprintf(`gate.voted {"step_id":"%s","gate_type":"human_approval","by":"eve","decision":"feedback","feedback":"hm"}`, stepID)}
	if diff := cmp.Diff(want, lines(t, []event.Event{s.Voted(&r, &v)})); diff != "" {
		t.Error(diff)
	}
	outcomes := []run.GateOutcome{"pending", "approved", "rejected", "timed_out", "cancelled", "skipped"}
	if diff := cmp.Diff(outcomes, run.GateOutcomes()); diff != "" {
		t.Error(diff)
	}
}
