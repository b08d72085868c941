package run_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/run"
)

func TestEndWith(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, s := range []run.Step{stepIn(t, run.StepPending), stepIn(t, run.StepRunning), stepIn(t, run.StepWaiting), asking(t), opened(t)} {
		for _, to := range []run.StepStatus{run.StepCancelled, run.StepSkipped, run.StepTimedOut, run.StepFailed} {
			before := frozenStep(s)
			want := frozenStep(s)
			want.Status, want.EndedAt = to, at(30)
			n := 1
			if want.Gate != nil {
				n++
				want.Gate.WaitID, want.Gate.ResolvedAt, want.Gate.ResolvedBy = uuid.Nil, at(30), "token:ci"
				want.Gate.Outcome = map[run.StepStatus]run.GateOutcome{run.StepCancelled: run.GateCancelled, run.StepSkipped: run.GateSkipped, run.StepTimedOut: run.GateTimedOut,
					run.StepFailed: run.GateCancelled}[to]
			}
			c := s.EndWith(&r, to, by(30))
			if diff := cmp.Diff(want, c.Step); diff != "" || !c.Applied || !c.Ended || len(c.Events) != n {
				t.Errorf("%s with %d events (-want +got):\n%s", to, len(c.Events), diff)
			}
			if diff := cmp.Diff(before, s); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
		}
	}
}

// TestRecover. reference: runs-and-taskflows.md A5.10; RS-15.
func TestRecover(t *testing.T) {
	t.Parallel()
	r := in(t, run.Completed) // an operator asks for no run that is under way
	base := stepIn(t, run.StepRunning)
	base.ChildRunID, base.ResultText, base.ContextOut, base.Markers, base.Structured, base.StepError = "agent-7", "r", "c", []string{"m"}, json.RawMessage(`{"a":1}`), "e"
	bare := func(status run.StepStatus, text string, ended time.Time) run.Step {
		s := base
		s.Status, s.EndedAt, s.ResultText, s.ContextOut, s.Markers, s.Structured, s.StepError = status, ended, text, "", nil, nil, ""
		return s
	}
	tests := []struct {
		name string
		in   run.Recovery
		want run.Step
	}{
		{"now", run.Recovery{Status: run.StepFailed}, bare(run.StepFailed, "", at(30))},
		{"with a text", run.Recovery{Status: run.StepTimedOut, ResultText: new("its engine was lost")}, bare(run.StepTimedOut, "its engine was lost", at(30))},
		{"then", run.Recovery{Status: run.StepCompleted, EndedAt: at(25)}, bare(run.StepCompleted, "", at(25))},
		{"before it has begun", run.Recovery{Status: run.StepFailed, EndedAt: at(5)}, bare(run.StepFailed, "", at(11))},
		{"between creation and begin", run.Recovery{Status: run.StepFailed, EndedAt: at(10)}, bare(run.StepFailed, "", at(11))},
	}
	for _, tt := range tests {
		c := base.Recover(&r, tt.in, by(30))
		if diff := cmp.Diff(tt.want, c.Step); diff != "" || !c.Ended || !c.Applied || len(c.Events) != 1 {
			t.Errorf("%s: %d events (-want +got):\n%s", tt.name, len(c.Events), diff)
		}
	}
	never := stepIn(t, run.StepPending).Recover(&r, run.Recovery{Status: run.StepFailed, EndedAt: at(5)}, by(30))
	if !never.Step.EndedAt.Equal(at(10)) || !never.Step.StartedAt.IsZero() {
		t.Errorf("what was created at %s and has not begun ended at %s", never.Step.CreatedAt, never.Step.EndedAt)
	}
	gate := opened(t).Recover(&r, run.Recovery{Status: run.StepCompleted}, by(30))
	if gate.Step.Gate.Outcome != run.GateSkipped || gate.Step.Gate.Open() {
		t.Errorf("a gate whose step is recovered was %s", gate.Step.Gate.Outcome)
	}
}

// TestReset: a step that is done anew keeps what it is, and the attempt beside it. reference: runs-and-taskflows.md A10, A13 23.
func TestReset(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, from := range run.StepStatuses() {
		if from == run.StepPending {
			continue
		}
		s := stepIn(t, from).Attach(run.Attached{ExecutionID: execID})
		s.Path, s.Iteration, s.CanCommit, s.ParallelGroup = "body/build", 2, true, "g"
		s.ChildRunID, s.ResultText, s.ContextOut, s.Markers, s.Structured, s.StepError = "agent-7", "r", "c", []string{"m"}, json.RawMessage(`{"a":1}`), "e"
		s.FanOut, s.RetryCount = run.Counts{run.ItemFailed: 1}, 4
		before := frozenStep(s)
		c := s.Reset(&r, by(30))
		want := run.Step{ID: stepID, RunID: id, Path: "body/build", Name: "build", Role: run.RoleAgent, Status: run.StepPending, Position: 3, Iteration: 2, RetryCount: 5,
			CanCommit: true, ParallelGroup: "g", CreatedAt: at(10), StartedAt: at(11), FanOut: run.Counts{run.ItemFailed: 1}}
		if diff := cmp.Diff(want, c.Step); diff != "" || !c.Applied || c.Ended {
			t.Errorf("%s (-want +got):\n%s", from, diff)
		}
		closed := run.Attempt{Index: 4, Status: from, ChildRunID: "agent-7", ChildExecution: execID, StartedAt: at(11), EndedAt: at(12), StepError: "e"}
		if !from.Terminal() {
			closed.Status, closed.EndedAt = run.StepCancelled, at(30)
		}
		if diff := cmp.Diff(&closed, c.Closed); diff != "" {
			t.Errorf("%s, the attempt that is over (-want +got):\n%s", from, diff)
		}
		if diff := cmp.Diff(before, s); diff != "" || !slices.Equal(types(c.Events), []event.Type{event.RunStepReset}) {
			t.Errorf("it tells %v\n%s", types(c.Events), diff)
		}
		again, err := c.Step.Update(&r, run.StepUpdate{Status: run.StepRunning}, by(40))
		if err != nil || !again.Step.StartedAt.Equal(at(11)) || !again.Step.AttemptStarted.Equal(at(40)) || again.Step.RetryCount != 5 {
			t.Errorf("it begins again: %+v, %v", again.Step, err)
		}
	}
}

// TestReset_Gate: a gate that is asked again is open to all answers.
func TestReset_Gate(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	options := func(g *run.Gate) {
		g.Options, g.MinApprovals, g.AllowSelf, g.OnTimeout, g.Timeout = []run.Option{{Value: "a"}}, 2, true, run.GateContinues, time.Minute
	}
	first := asking(t, options).Gate
	s := opened(t, options)
	v := vote("token:eve", run.Reject)
	v.Feedback, v.Selections = "no", []string{"a"}
	for _, s := range []run.Step{s, s.Decided(&r, &v, by(30)).Step, s.Late(&r, by(30)).Step} {
		c := s.Reset(&r, by(40))
		if diff := cmp.Diff(first, c.Step.Gate); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		c, err := c.Step.Update(&r, run.StepUpdate{Status: run.StepWaiting, WaitID: childID}, by(50))
		if err != nil || c.Step.Gate.WaitID != childID || !c.Step.Gate.DeadlineAt.Equal(at(110)) {
			t.Errorf("it is opened again: %+v, %v", c.Step.Gate, err)
		}
	}
}

// TestAgain. reference: runs-and-taskflows.md A10.
func TestAgain(t *testing.T) {
	t.Parallel()
	type row struct{ plain, restart, before, from bool } // before and from: with from_step, of a step before it and of itself
	want := map[run.StepStatus]row{
		run.StepPending:   {false, false, false, false},
		run.StepRunning:   {true, true, false, true},
		run.StepWaiting:   {true, true, false, true},
		run.StepCompleted: {false, true, false, true},
		run.StepFailed:    {true, true, false, true},
		run.StepSkipped:   {false, true, false, true},
		run.StepTimedOut:  {true, true, false, true},
		run.StepCancelled: {true, true, false, true},
	}
	check := func(name string, s run.Step, w row) {
		got := row{s.Again(run.Resume{}, 0), s.Again(run.Resume{Restart: true}, 9), s.Again(run.Resume{FromStep: "x"}, s.Position+1), s.Again(run.Resume{FromStep: "x"}, s.Position)}
		if got != w {
			t.Errorf("%s: %+v, want %+v", name, got, w)
		}
		if s.Again(run.Resume{FromStep: "x"}, s.Position-1) != w.from {
			t.Errorf("%s, behind the step from which it is done again", name)
		}
	}
	for _, status := range run.StepStatuses() {
		s := stepIn(t, status)
		check(string(status), s, want[status])
		for _, child := range []run.Attached{{ExecutionID: execID}, {RunID: childID}} {
			w := want[status]
			if status == run.StepRunning || status == run.StepWaiting {
				w.plain = false // its child goes on
			}
			check(string(status)+" with a child", s.Attach(child), w)
		}
	}
	w := want[run.StepWaiting]
	w.plain = false // people are still asked
	check("open gate", opened(t), w)
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	s := stepIn(t, run.StepFailed)
	s.RetryCount, s.ChildRunID, s.ChildExecution, s.StepError = 1, "agent-7", execID, "e"
	earlier := run.Attempt{Index: 0, Status: run.StepFailed, StartedAt: at(1), EndedAt: at(2)}
	s.EarlierAttempts = append(make([]run.Attempt, 0, 8), earlier)
	present := run.Attempt{Index: 1, Status: run.StepFailed, ChildRunID: "agent-7", ChildExecution: execID, StartedAt: at(11), EndedAt: at(12), StepError: "e"}
	for range 2 {
		if diff := cmp.Diff([]run.Attempt{earlier, present}, s.Attempts()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if s.Attempts(); s.EarlierAttempts[:2][1].Index != 0 {
		t.Error("it wrote behind the earlier attempts")
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	want := []run.Role{"agent", "script", "gate", "foreach", "workflow", "wait"}
	if diff := cmp.Diff(want, run.Roles()); diff != "" {
		t.Error(diff)
	}
	s := stepIn(t, run.StepRunning)
	if diff := cmp.Diff(run.Place{RunID: id, StepID: stepID}, s.Within()); diff != "" {
		t.Error(diff)
	}
}
