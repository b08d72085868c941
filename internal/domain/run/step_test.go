package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/domain/run"
)

var (
	stepID  = uuid.MustParse("01985c3e-7c30-7e44-8b74-6f3da08c2d05")
	execID  = uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c02")
	childID = uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c03")
)

// applied returns the step that a change makes.
func applied(tb testing.TB) func(run.StepChanged, error) run.Step {
	tb.Helper()
	return func(c run.StepChanged, err error) run.Step {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return c.Step
	}
}

// build returns a new step of an agent.
func build(tb testing.TB) run.Step {
	tb.Helper()
	r := in(tb, run.Running)
	return applied(tb)(r.Insert(run.NewStep{ID: stepID, Name: "build", Role: run.RoleAgent, Position: 3}, by(10)))
}

// stepIn returns a step in a status, whose run is running.
func stepIn(tb testing.TB, s run.StepStatus) run.Step {
	tb.Helper()
	st := build(tb)
	if s == run.StepPending {
		return st
	}
	r, ok := in(tb, run.Running), applied(tb)
	st = ok(st.Update(&r, run.StepUpdate{Status: run.StepRunning}, by(11)))
	if s == run.StepRunning {
		return st
	}
	return ok(st.Update(&r, run.StepUpdate{Status: s}, by(12)))
}

// frozenStep returns a copy of s that shares nothing with it.
func frozenStep(s run.Step) run.Step {
	if s.Gate != nil {
		g := *s.Gate
		g.Options, g.Selections = slices.Clone(g.Options), slices.Clone(g.Selections)
		s.Gate = &g
	}
	s.Markers, s.Structured, s.EarlierAttempts = slices.Clone(s.Markers), slices.Clone(s.Structured), slices.Clone(s.EarlierAttempts)
	return s
}

func clears() patch.Field[string] { return patch.Field[string]{Present: true} }

// about is what an event tells of the step of these tests, up to its last members.
func about(s run.StepStatus, retry int, more string) string {
	return fmt.Sprintf(`{"step_id":"%s","step_name":"build","role":"agent","status":"%s","position":3,"iteration":0,"retry_count":%d%s}`, stepID, s, retry, more)
}

func TestInsert(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	base := run.Step{ID: stepID, RunID: id, Path: "build", Name: "build", Role: run.RoleAgent, Status: run.StepPending, Position: 3, CreatedAt: at(10)}
	with := func(change func(*run.Step)) run.Step {
		s := base
		change(&s)
		return s
	}
	asked := &run.Gate{Type: run.HumanApproval, Prompt: "ship it?"}
	gate := func(change func(*run.Gate)) *run.Gate {
		g := run.Gate{Type: run.HumanApproval, Prompt: "ship it?", Timeout: run.DefaultGateTimeout, OnTimeout: run.GateFails, MinApprovals: 1, RequestedBy: "token:dev",
			MadeBy: "token:ci", Outcome: run.GatePending}
		change(&g)
		return &g
	}
	full := run.Gate{Type: "custom", Timeout: time.Minute, OnTimeout: run.GateContinues, Options: []run.Option{{Value: "a", Label: "A"}, {Value: "b"}}, MinApprovals: 3, AllowSelf: true, RequestedBy: "eve"}
	tests := []struct {
		name    string
		in      run.NewStep
		want    run.Step
		told    []event.Type
		pointer string // of a refusal
	}{
		{"agent", run.NewStep{}, base, []event.Type{event.RunStepInserted}, ""},
		{"with all", run.NewStep{Path: "body[3]/build", Role: run.RoleScript, Iteration: 2, CanCommit: true, ParallelGroup: "g"}, with(func(s *run.Step) {
			s.Path, s.Role, s.Iteration, s.CanCommit, s.ParallelGroup = "body[3]/build", run.RoleScript, 2, true, "g"
		}), []event.Type{event.RunStepInserted}, ""},
		{"at work", run.NewStep{Running: true}, with(func(s *run.Step) {
			s.Status, s.StartedAt, s.AttemptStarted = run.StepRunning, at(10), at(10)
		}), []event.Type{event.RunStepInserted, event.RunStepStarted}, ""},
		{"gate", run.NewStep{Role: run.RoleGate, Gate: asked}, with(func(s *run.Step) { s.Role, s.Gate = run.RoleGate, gate(func(*run.Gate) {}) }), []event.Type{event.RunStepInserted}, ""},
		{"gate with all", run.NewStep{Role: run.RoleGate, Gate: &full}, with(func(s *run.Step) {
			g := full
			g.MadeBy, g.Outcome = "token:ci", run.GatePending
			s.Role, s.Gate = run.RoleGate, &g
		}), []event.Type{event.RunStepInserted}, ""},
		{"no name", run.NewStep{Name: " "}, run.Step{}, nil, "/step_name"},
		{"a gate without one", run.NewStep{Role: run.RoleGate}, run.Step{}, nil, "/gate"},
		{"no gate with one", run.NewStep{Gate: asked}, run.Step{}, nil, "/gate"},
		{"options twice", run.NewStep{Role: run.RoleGate, Gate: &run.Gate{Options: []run.Option{{Value: "a"}, {Value: "b"}, {Value: "a"}}}}, run.Step{}, nil, "/gate/options"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := tt.in
			in.ID, in.Position = stepID, 3
			if in.Name == "" {
				in.Name = "build"
			}
			if in.Role == "" {
				in.Role = run.RoleAgent
			}
			c, err := r.Insert(in, by(10))
			if tt.pointer != "" {
				refused(t, err, fault.CodeValidationFailed, nil)
				if diff := cmp.Diff(run.StepChanged{}, c); pointer(err) != tt.pointer || diff != "" {
					t.Errorf("it points at %s\n%s", pointer(err), diff)
				}
				return
			}
			if diff := cmp.Diff(tt.want, c.Step); err != nil || diff != "" || !c.Applied || c.Ended || c.Closed != nil {
				t.Errorf("Insert() = %v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(tt.told, types(c.Events)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if diff := cmp.Diff(&run.Gate{Type: run.HumanApproval, Prompt: "ship it?"}, asked); diff != "" {
		t.Errorf("the caller's gate was changed:\n%s", diff)
	}
}

// TestInsert_Statuses: a run that has ended, or is to, gets no steps.
func TestInsert_Statuses(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		_, err := r.Insert(run.NewStep{Name: "build", Role: run.RoleAgent}, by(10))
		switch {
		case s.Terminal():
			refused(t, err, fault.CodeRunTerminal, map[string]any{"current_status": s})
		case s == run.Cancelling:
			refused(t, err, fault.CodeRunCancelled, map[string]any{"reason": run.ByUser})
		default:
			refused(t, err, "", nil)
		}
	}
}

func types(events []event.Event) []event.Type {
	var out []event.Type
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// TestUpdate_Transitions holds the machine of steps, as engines drive it. reference: model.md "Run" (steps); runs-and-taskflows.md A13 25, D2 9 and 13; RS-08.
func TestUpdate_Transitions(t *testing.T) {
	t.Parallel()
	told := map[run.StepStatus]event.Type{
		run.StepRunning: event.RunStepStarted, run.StepWaiting: event.RunStepWaiting, run.StepCompleted: event.RunStepCompleted, run.StepFailed: event.RunStepFailed,
		run.StepSkipped: event.RunStepSkipped, run.StepTimedOut: event.RunStepTimedOut, run.StepCancelled: event.RunStepCancelled,
	}
	for _, from := range run.StepStatuses() {
		for _, to := range run.StepStatuses() {
			t.Run(string(from)+"/"+string(to), func(t *testing.T) {
				t.Parallel()
				r, s := in(t, run.Running), stepIn(t, from)
				before := frozenStep(s)
				c, err := s.Update(&r, run.StepUpdate{Status: to}, by(20))
				if diff := cmp.Diff(before, s); diff != "" {
					t.Errorf("it changed its receiver:\n%s", diff)
				}
				want := run.StepChanged{Step: before, Applied: true}
				switch {
				case from.Terminal() && from == to:
					want.Applied = false
				case from.Terminal():
					refused(t, err, fault.CodeStepTerminal, map[string]any{"current_status": from, "from": from, "to": to})
					want = run.StepChanged{}
				case from != to && !slices.Contains(from.Successors(), to):
					refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": from, "to": to})
					want = run.StepChanged{}
				case from == to: // and nothing else is said
					want.Applied = false
				default:
					want.Events = []event.Event{{Type: told[to]}}
					want.Step.Status = to
					if to.Terminal() {
						want.Ended, want.Step.EndedAt = true, at(20)
					} else if from == run.StepPending {
						want.Step.StartedAt, want.Step.AttemptStarted = at(20), at(20)
					}
				}
				if diff := cmp.Diff(types(want.Events), types(c.Events)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				for _, line := range lines(t, c.Events) {
					if want := string(want.Events[0].Type) + " " + about(to, 0, ""); line != want {
						t.Errorf("it tells\n%s, want\n%s", line, want)
					}
				}
				want.Events, c.Events = nil, nil
				if diff := cmp.Diff(want, c); diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
			})
		}
	}
}

// TestUpdate_SameEnd: the same end again changes nothing, whatever else is said, and wherever the run is.
func TestUpdate_SameEnd(t *testing.T) {
	t.Parallel()
	for _, end := range run.StepStatuses() {
		if !end.Terminal() {
			continue
		}
		s := stepIn(t, end)
		for _, status := range run.Statuses() {
			r := in(t, status)
			for _, u := range []run.StepUpdate{
				{}, {RetryCount: new(7)}, {ResultText: patch.Some("other"), StepError: clears(), Markers: patch.Some([]string{"m"})}, {Structured: json.RawMessage(`7`)}, {WaitID: waitID},
			} {
				u.Status = end
				c, err := s.Update(&r, u, by(20))
				if diff := cmp.Diff(run.StepChanged{Step: s}, c); err != nil || diff != "" {
					t.Errorf("%s again in a run that is %s: %v\n%s", end, status, err, diff)
				}
			}
			for _, to := range run.StepStatuses() {
				if to != end {
					_, err := s.Update(&r, run.StepUpdate{Status: to}, by(20))
					refused(t, err, fault.CodeStepTerminal, map[string]any{"current_status": end, "from": end, "to": to})
				}
			}
		}
	}
}

// TestUpdate_Patch: what is left out stays, null clears. reference: runs-and-taskflows.md D2 14, A13 25.
func TestUpdate_Patch(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	base := stepIn(t, run.StepRunning)
	base.ChildRunID, base.ResultText, base.ContextOut, base.Markers, base.Structured, base.StepError = "agent-7", "r", "c", []string{"m"}, json.RawMessage(`{"a":1}`), "e"
	linked := func(s *run.Step) { s.ChildRunID, s.ChildLinked = childID.String(), true }
	tests := []struct {
		name   string
		before func(*run.Step)
		u      run.StepUpdate
		want   func(*run.Step)
	}{
		{"nothing", nil, run.StepUpdate{}, func(*run.Step) {}},
		{"child", nil, run.StepUpdate{ChildRunID: patch.Some("agent-8")}, func(s *run.Step) { s.ChildRunID = "agent-8" }},
		{"no child", nil, run.StepUpdate{ChildRunID: clears()}, func(s *run.Step) { s.ChildRunID = "" }},
		{"a run of ours", linked, run.StepUpdate{ChildRunID: patch.Some("agent-8")}, linked},
		{"a run of ours, cleared", linked, run.StepUpdate{ChildRunID: clears()}, linked},
		{"result", nil, run.StepUpdate{ResultText: patch.Some("R")}, func(s *run.Step) { s.ResultText = "R" }},
		{"no result", nil, run.StepUpdate{ResultText: clears()}, func(s *run.Step) { s.ResultText = "" }},
		{"context", nil, run.StepUpdate{ContextOut: patch.Some("C")}, func(s *run.Step) { s.ContextOut = "C" }},
		{"no context", nil, run.StepUpdate{ContextOut: clears()}, func(s *run.Step) { s.ContextOut = "" }},
		{"markers", nil, run.StepUpdate{Markers: patch.Some([]string{"x", "y"})}, func(s *run.Step) { s.Markers = []string{"x", "y"} }},
		{"empty markers", nil, run.StepUpdate{Markers: patch.Some([]string{})}, func(s *run.Step) { s.Markers = []string{} }},
		{"no markers", nil, run.StepUpdate{Markers: patch.Field[[]string]{Present: true}}, func(s *run.Step) { s.Markers = nil }},
		{"structured", nil, run.StepUpdate{Structured: json.RawMessage(` [ 1 ] `)}, func(s *run.Step) { s.Structured = json.RawMessage(`[1]`) }},
		{"no structured", nil, run.StepUpdate{Structured: json.RawMessage(` null`)}, func(s *run.Step) { s.Structured = nil }},
		{"error", nil, run.StepUpdate{StepError: patch.Some("E")}, func(s *run.Step) { s.StepError = "E" }},
		{"no error", nil, run.StepUpdate{StepError: clears()}, func(s *run.Step) { s.StepError = "" }},
		{"the same attempt", nil, run.StepUpdate{RetryCount: new(0)}, func(*run.Step) {}},
	}
	for _, tt := range tests {
		for _, to := range []run.StepStatus{run.StepRunning, run.StepWaiting, run.StepCompleted} {
			t.Run(tt.name+"/"+string(to), func(t *testing.T) {
				t.Parallel()
				s := frozenStep(base)
				if tt.before != nil {
					tt.before(&s)
				}
				if s.HasChild() && to == run.StepWaiting {
					return // that is the child's to say
				}
				before := frozenStep(s)
				want := frozenStep(base)
				tt.want(&want)
				if want.Status = to; to.Terminal() {
					want.EndedAt = at(20)
				}
				u := tt.u
				u.Status = to
				got, err := s.Update(&r, u, by(20))
				if diff := cmp.Diff(want, got.Step); err != nil || diff != "" || got.Applied == cmp.Equal(want, before) {
					t.Errorf("%v, applied %t (-want +got):\n%s", err, got.Applied, diff)
				}
				if got.Applied && to == run.StepRunning && !slices.Equal(types(got.Events), []event.Type{event.RunStepUpdated}) {
					t.Errorf("it tells %v", types(got.Events))
				}
				if again, err := got.Step.Update(&r, u, by(21)); err != nil || again.Applied {
					t.Errorf("said again it is applied %t, %v", again.Applied, err)
				}
				if diff := cmp.Diff(before, s); diff != "" {
					t.Errorf("it changed its receiver:\n%s", diff)
				}
			})
		}
	}
}

// TestUpdate_Retry. reference: model.md "Run" (steps); runs-and-taskflows.md A13 22, D2 15.
func TestUpdate_Retry(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, from := range []run.StepStatus{run.StepRunning, run.StepWaiting} {
		s := stepIn(t, from)
		s.ChildRunID, s.ResultText = "agent-7", "kept"
		c, err := s.Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1), StepError: patch.Some("no network")}, by(30))
		want := s
		want.Status, want.RetryCount, want.AttemptStarted, want.ChildRunID = run.StepRunning, 1, at(30), ""
		if diff := cmp.Diff(want, c.Step); err != nil || diff != "" || !c.Applied || c.Ended {
			t.Errorf("%s: %v (-want +got):\n%s", from, err, diff)
		}
		closed := run.Attempt{Index: 0, Status: run.StepFailed, ChildRunID: "agent-7", StartedAt: at(11), EndedAt: at(30), StepError: "no network"}
		if diff := cmp.Diff(&closed, c.Closed); diff != "" {
			t.Errorf("%s, the attempt that is over (-want +got):\n%s", from, diff)
		}
		if diff := cmp.Diff([]string{"run_step.started " + about(run.StepRunning, 1, "")}, lines(t, c.Events)); diff != "" {
			t.Error(diff)
		}
		next := c.Step
		next.EarlierAttempts = []run.Attempt{closed}
		second, err := next.Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(2), ChildRunID: patch.Some("agent-9")}, by(40))
		if err != nil || second.Step.RetryCount != 2 || second.Step.ChildRunID != "agent-9" || second.Closed.Index != 1 || second.Closed.ChildRunID != "" || !second.Step.StartedAt.Equal(at(11)) {
			t.Errorf("the next one: %+v, %+v, %v", second.Step, second.Closed, err)
		}
	}
	// A child of ours does not do the next attempt.
	for _, child := range []run.Attached{{ExecutionID: execID}, {RunID: childID}} {
		s := stepIn(t, run.StepRunning).Attach(child)
		c, err := s.Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1)}, by(30))
		if err != nil || c.Step.HasChild() || c.Step.ChildRunID != "" || c.Closed.ChildExecution != child.ExecutionID || c.Closed.ChildRunID != s.ChildRunID {
			t.Errorf("a retry of what a child does: %+v, %+v, %v", c.Step, c.Closed, err)
		}
	}
}

// TestUpdate_RetryRefused: attempts are numbered without gaps, and begin with running.
func TestUpdate_RetryRefused(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	second := applied(t)(stepIn(t, run.StepRunning).Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1)}, by(20)))
	tests := []struct {
		name string
		step run.Step
		to   run.StepStatus
		n    int
	}{
		{"two at once", stepIn(t, run.StepRunning), run.StepRunning, 2},
		{"less than none", stepIn(t, run.StepRunning), run.StepRunning, -1},
		{"the one before", second, run.StepRunning, 0},
		{"a gap", second, run.StepRunning, 3},
		{"before the first", stepIn(t, run.StepPending), run.StepRunning, 1},
		{"before the first, to stay", stepIn(t, run.StepPending), run.StepPending, 1},
		{"waiting", stepIn(t, run.StepRunning), run.StepWaiting, 1},
		{"still waiting", stepIn(t, run.StepWaiting), run.StepWaiting, 1},
		{"to end", stepIn(t, run.StepRunning), run.StepFailed, 1},
		{"to end with the one before", second, run.StepCompleted, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := tt.step.Update(&r, run.StepUpdate{Status: tt.to, RetryCount: new(tt.n)}, by(30))
			refused(t, err, fault.CodeValidationFailed, nil)
			if diff := cmp.Diff(run.StepChanged{}, c); pointer(err) != "/retry_count" || diff != "" {
				t.Errorf("it points at %s\n%s", pointer(err), diff)
			}
		})
	}
}

// TestUpdate_RetryError: what has gone wrong with one attempt is not said of the next one.
func TestUpdate_RetryError(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	s := applied(t)(stepIn(t, run.StepRunning).Update(&r, run.StepUpdate{Status: run.StepRunning, StepError: patch.Some("no network")}, by(20)))
	c, err := s.Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1)}, by(30))
	if err != nil || c.Closed.StepError != "no network" || c.Step.StepError != "" {
		t.Errorf("the first attempt failed with %q, and the second one begins with %q: %v", c.Closed.StepError, c.Step.StepError, err)
	}
}

// TestStep_Properties drives steps at random, by engines, children, people, operators and resumes.
// reference: runs-and-taskflows.md D2 9, 10, 13, 14, 15; D3 23.
func TestStep_Properties(t *testing.T) {
	t.Parallel()
	running := in(t, run.Running)
	first := map[bool]run.Step{false: build(t), true: asking(t)}
	kinds := []string{run.HumanApproval, run.PRChecks}
	rapid.Check(t, func(t *rapid.T) {
		r, now := running, at(10)
		asks := rapid.Bool().Draw(t, "gate")
		s := frozenStep(first[asks])
		if asks {
			s.Gate.Type = rapid.SampledFrom(kinds).Draw(t, "type")
		}
		var outcome run.GateOutcome
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second}).Draw(t, "pass"))
			before := frozenStep(s)
			what, c, err := actOnStep(t, &r, s, event.By{Actor: "token:ci", At: now})
			if diff := cmp.Diff(before, s); diff != "" {
				t.Fatalf("%s changed its receiver (-before +after):\n%s", what, diff)
			}
			if err != nil {
				if diff := cmp.Diff(run.StepChanged{}, c); diff != "" || fault.CodeOf(err) == fault.CodeInternal {
					t.Fatalf("%s is refused, %v, with a change:\n%s", what, err, diff)
				}
				continue
			}
			next := c.Step
			if c.Applied != (len(c.Events) > 0) || !c.Applied && (!cmp.Equal(before, next) || c.Ended || c.Closed != nil) {
				t.Fatalf("%s: applied %t with %d events", what, c.Applied, len(c.Events))
			}
			if next.Status != s.Status && !slices.Contains(s.Status.Successors(), next.Status) && what != "reset" {
				t.Fatalf("%s: %s became %s", what, s.Status, next.Status)
			}
			if c.Ended != (next.Status.Terminal() && !s.Status.Terminal()) || next.EndedAt.IsZero() == next.Status.Terminal() {
				t.Fatalf("%s: %s, ended %t at %s", what, next.Status, c.Ended, next.EndedAt)
			}
			if !s.StartedAt.IsZero() && !next.StartedAt.Equal(s.StartedAt) {
				t.Fatalf("%s: the first start has moved from %s to %s", what, s.StartedAt, next.StartedAt)
			}
			if begun := next.AttemptStarted; !begun.IsZero() && (begun.Before(next.StartedAt) || next.StartedAt.Before(next.CreatedAt) || next.Status == run.StepPending) ||
				!next.EndedAt.IsZero() && next.EndedAt.Before(begun) || (next.Status == run.StepRunning || next.Status == run.StepWaiting) && begun.IsZero() {
				t.Fatalf("%s: %s, created %s, started %s, attempt %s, ended %s", what, next.Status, next.CreatedAt, next.StartedAt, begun, next.EndedAt)
			}
			next.EarlierAttempts = s.EarlierAttempts // where the repository has them
			if c.Closed != nil {
				next.EarlierAttempts = append(slices.Clip(s.EarlierAttempts), *c.Closed)
			}
			for i, a := range next.Attempts() {
				if last := i == next.RetryCount; a.Index != i || !last && (!a.Status.Terminal() || a.EndedAt.IsZero() || a.EndedAt.Before(a.StartedAt)) {
					t.Fatalf("%s: attempt %d is %+v", what, i, a)
				}
			}
			if len(next.Attempts()) != next.RetryCount+1 {
				t.Fatalf("%s: %d attempts after %d retries", what, len(next.Attempts()), next.RetryCount)
			}
			if (next.Gate != nil) != asks {
				t.Fatalf("%s: the gate is %v", what, next.Gate)
			}
			if g := next.Gate; g != nil {
				if g.Open() != (next.Status == run.StepWaiting) || (g.Outcome == run.GatePending) == next.Status.Terminal() || g.ResolvedAt.IsZero() == next.Status.Terminal() {
					t.Fatalf("%s: a step that is %s has the gate %+v", what, next.Status, g)
				}
				if outcome != "" && what != "reset" && g.Outcome != outcome {
					t.Fatalf("%s: the outcome %s became %s", what, outcome, g.Outcome)
				}
				if outcome = ""; g.Outcome != run.GatePending {
					outcome = g.Outcome
				}
			}
			s = next
		}
	})
}

// actOnStep draws what happens to a step, and lets it happen.
func actOnStep(t *rapid.T, r *run.Run, s run.Step, by event.By) (what string, c run.StepChanged, err error) {
	open := !s.Status.Terminal()
	text := func(name string) patch.Field[string] {
		return rapid.SampledFrom([]patch.Field[string]{{}, clears(), patch.Some("x"), patch.Some("y")}).Draw(t, name)
	}
	what = rapid.SampledFrom([]string{"update", "update", "update", "retry", "mirror", "attach", "vote", "late", "end", "recover", "reset"}).Draw(t, "what")
	switch {
	case what == "mirror" && s.HasChild():
		return what, s.Mirror(r, run.Seen{Status: rapid.SampledFrom(run.StepStatuses()).Draw(t, "seen"), StepError: "z"}, by), nil
	case what == "attach" && open && s.Gate == nil && !s.HasChild():
		c.Step = s.Attach(rapid.SampledFrom([]run.Attached{{ExecutionID: execID}, {RunID: childID}}).Draw(t, "child"))
		c.Applied, c.Events = true, []event.Event{{}}
		return what, c, nil
	case what == "vote" && s.Gate.Open():
		v := vote("token:eve", rapid.SampledFrom([]run.Decision{run.Approve, run.Reject}).Draw(t, "decision"))
		return what, s.Decided(r, &v, by), nil
	case what == "late" && s.Gate.Open():
		return what, s.Late(r, by), nil
	case what == "end" && open:
		return what, s.EndWith(r, run.StepCancelled, by), nil
	case what == "recover" && open:
		return what, s.Recover(r, run.Recovery{Status: run.StepFailed, EndedAt: at(rapid.IntRange(0, 20).Draw(t, "ended"))}, by), nil
	case what == "reset" && s.Status != run.StepPending:
		return what, s.Reset(r, by), nil
	}
	u := run.StepUpdate{Status: rapid.SampledFrom(run.StepStatuses()).Draw(t, "to"), WaitID: waitID, ChildRunID: text("child"), ResultText: text("result"), ContextOut: text("context"), StepError: text("error")}
	if what == "retry" {
		u.Status, u.RetryCount = run.StepRunning, new(s.RetryCount+rapid.SampledFrom([]int{1, 1, 1, 0, 2, -1}).Draw(t, "retry"))
	}
	c, err = s.Update(r, u, by)
	if err == nil && c.Applied && c.Closed == nil {
		want := s
		if !s.ChildLinked {
			u.ChildRunID.Into(&want.ChildRunID)
		}
		u.ResultText.Into(&want.ResultText)
		u.ContextOut.Into(&want.ContextOut)
		u.StepError.Into(&want.StepError)
		if got := c.Step; got.ChildRunID != want.ChildRunID || got.ResultText != want.ResultText || got.ContextOut != want.ContextOut || got.StepError != want.StepError {
			t.Fatalf("%+v made %+v of %+v", u, got, s)
		}
	}
	if err == nil && c.Step.Status.Terminal() { // said again
		again, err := c.Step.Update(r, u, event.By{Actor: "token:ops", At: by.At.Add(time.Minute)})
		if diff := cmp.Diff(run.StepChanged{Step: c.Step}, again); err != nil || diff != "" {
			t.Fatalf("the same end again: %v\n%s", err, diff)
		}
	}
	return "update", c, err
}
