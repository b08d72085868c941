package flow_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

var (
	stepID = uuid.MustParse("01985c3e-7c30-7e44-8b74-6f3da08c2d05")
	execID = uuid.MustParse("01985c3e-7b20-7d41-8a63-5e2c9f7b1c02")
)

// TestStepStatusOf holds the mapping of public states. reference: runs-and-taskflows.md F4.
func TestStepStatusOf(t *testing.T) {
	t.Parallel()
	want := map[execution.Public][2]flow.StepStatus{ // never started, started
		execution.PublicWaiting:         {flow.StepPending, flow.StepRunning},
		execution.PublicDelayed:         {flow.StepPending, flow.StepRunning},
		execution.PublicRateLimited:     {flow.StepPending, flow.StepRunning},
		execution.PublicWaitingChildren: {flow.StepPending, flow.StepRunning},
		execution.PublicActive:          {flow.StepRunning, flow.StepRunning},
		execution.PublicSuspended:       {flow.StepRunning, flow.StepRunning},
		execution.PublicCompleted:       {flow.StepSucceeded, flow.StepSucceeded},
		execution.PublicFailed:          {flow.StepFailed, flow.StepFailed},
		execution.PublicExpired:         {flow.StepFailed, flow.StepFailed},
		execution.PublicCancelled:       {flow.StepCancelled, flow.StepCancelled},
		execution.PublicSkipped:         {flow.StepCancelled, flow.StepCancelled},
	}
	for _, p := range execution.Publics() {
		for i, started := range []bool{false, true} {
			if got := flow.StepStatusOf(p, started); got != want[p][i] {
				t.Errorf("StepStatusOf(%s, %v) = %q, want %q", p, started, got, want[p][i])
			}
		}
	}
}

func TestChildOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value *execution.Value
		want  string
	}{
		{nil, ""},
		{&execution.Value{Bytes: []byte(`{"a": 1}`), Encoding: execution.EncodingJSON}, `{"a":1}`},
		{&execution.Value{Bytes: []byte{0xff, 0}, Encoding: execution.EncodingBase64}, `"/wA="`},
	} {
		if got := flow.ChildOf(execution.PublicCompleted, true, tt.value); string(got.Result) != tt.want || got.Status != flow.StepSucceeded {
			t.Errorf("ChildOf(%+v) = %+v", tt.value, got)
		}
	}
}

func TestInsert(t *testing.T) {
	t.Parallel()
	f := in(t, flow.Running)
	got, err := f.Insert(flow.NewStep{ID: stepID, RunID: "build", Position: 3, Task: "go build"}, nil, by(9))
	want := flow.Step{ID: stepID, FlowID: id, RunID: "build", Position: 3, Runtime: flow.Managed, Task: "go build", Status: flow.StepPending, CreatedAt: by(9).At, UpdatedAt: by(9).At}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Insert() = %v (-want +got):\n%s", err, diff)
	}
	child := flow.Child{Status: flow.StepSucceeded, Result: json.RawMessage(`7`)}
	got, err = f.Insert(flow.NewStep{RunID: "build", Task: "x", Status: flow.StepPending, Result: json.RawMessage(`null`), ExecutionID: execID}, &child, by(9))
	if err != nil || got.Status != flow.StepSucceeded || string(got.Result) != "7" {
		t.Errorf("a step of an execution that has completed: %+v, %v", got, err)
	}
	if _, err := f.Insert(flow.NewStep{Task: " "}, nil, by(9)); fault.CodeOf(err) != fault.CodeValidationFailed {
		t.Errorf("a blank task: %v", err)
	}
	for _, s := range []flow.Status{flow.Finished, flow.Failed, flow.Cancelled} {
		ended := in(t, s)
		if _, err := ended.Insert(flow.NewStep{Task: "x"}, nil, by(9)); fault.CodeOf(err) != fault.CodeAlreadyTerminal {
			t.Errorf("a step of a flow that is %s: %v", s, err)
		}
		if _, _, err := ended.Change(flow.Step{Task: "x"}, flow.StepChange{}, nil, by(9)); fault.CodeOf(err) != fault.CodeAlreadyTerminal {
			t.Errorf("a change of a step of a flow that is %s: %v", s, err)
		}
	}
}

// TestChange holds the rules of observations. reference: runs-and-taskflows.md B6, B13 3, D5 43.
func TestChange(t *testing.T) {
	t.Parallel()
	is := func(s flow.StepStatus) *flow.StepStatus { return &s }
	base := flow.Step{RunID: "r", Task: "t", Status: flow.StepRunning, Result: json.RawMessage(`1`), ChildSessionKey: "k", ExecutionID: uuid.Nil}
	with := func(change func(*flow.Step)) flow.Step {
		s := base
		change(&s)
		return s
	}
	linked := with(func(s *flow.Step) { s.ExecutionID = execID })
	ended := with(func(s *flow.Step) { s.Status = flow.StepSucceeded })
	tests := []struct {
		name   string
		step   flow.Step
		change flow.StepChange
		child  *flow.Child
		want   flow.Step
		code   fault.Code
	}{
		{"nothing", base, flow.StepChange{}, nil, base, ""},
		{"absent keeps", base, flow.StepChange{Status: is(flow.StepSucceeded)}, nil, with(func(s *flow.Step) { s.Status = flow.StepSucceeded }), ""},
		{"null clears the result", base, flow.StepChange{Result: json.RawMessage(` null`)}, nil, with(func(s *flow.Step) { s.Result = nil }), ""},
		{"null clears the session", base, flow.StepChange{ChildSessionKey: patch.Field[string]{Present: true}}, nil, with(func(s *flow.Step) { s.ChildSessionKey = "" }), ""},
		{"value", base, flow.StepChange{ChildSessionKey: patch.Field[string]{Present: true, Value: new("j")}, Task: new("u")}, nil, with(func(s *flow.Step) { s.ChildSessionKey, s.Task = "j", "u" }), ""},
		{"a late pending is passed over", base, flow.StepChange{Status: is(flow.StepPending), Result: json.RawMessage(`2`)}, nil, with(func(s *flow.Step) { s.Result = json.RawMessage(`2`) }), ""},
		{"pending, forced", base, flow.StepChange{Status: is(flow.StepPending), Force: true}, nil, with(func(s *flow.Step) { s.Status = flow.StepPending }), ""},
		{"ended, again", ended, flow.StepChange{Status: is(flow.StepSucceeded), Result: json.RawMessage(`2`)}, nil, with(func(s *flow.Step) { s.Status, s.Result = flow.StepSucceeded, json.RawMessage(`2`) }), ""},
		{"ended, regress", ended, flow.StepChange{Status: is(flow.StepRunning)}, nil, flow.Step{}, fault.CodeStepTerminal},
		{"ended, otherwise", ended, flow.StepChange{Status: is(flow.StepFailed)}, nil, flow.Step{}, fault.CodeStepTerminal},
		{"ended, forced", ended, flow.StepChange{Status: is(flow.StepRunning), Force: true}, nil, base, ""},
		{"linked, its status is not ours", linked, flow.StepChange{Status: is(flow.StepSucceeded), Result: json.RawMessage(`2`), Task: new("u"), Force: true}, nil, with(func(s *flow.Step) { s.ExecutionID, s.Task = execID, "u" }), ""},
		{"unlinked", linked, flow.StepChange{ExecutionID: patch.Field[uuid.UUID]{Present: true}, Status: is(flow.StepFailed)}, nil, with(func(s *flow.Step) { s.Status = flow.StepFailed }), ""},
		{"newly linked", base, flow.StepChange{ExecutionID: patch.Field[uuid.UUID]{Present: true, Value: &execID}, Status: is(flow.StepPending)}, &flow.Child{Status: flow.StepSucceeded, Result: json.RawMessage(`9`)}, with(func(s *flow.Step) {
			s.ExecutionID, s.Status, s.Result = execID, flow.StepSucceeded, json.RawMessage(`9`)
		}), ""},
		{"newly linked after its end", ended, flow.StepChange{ExecutionID: patch.Field[uuid.UUID]{Present: true, Value: &execID}}, &flow.Child{Status: flow.StepRunning}, flow.Step{}, fault.CodeStepTerminal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := in(t, flow.Running)
			got, changed, err := f.Change(tt.step, tt.change, tt.child, by(9))
			if fault.CodeOf(err) != tt.code {
				t.Fatalf("Change() = %v, want %q", err, tt.code)
			}
			if wantChange := tt.code == "" && !cmp.Equal(tt.want, tt.step); changed != wantChange {
				t.Errorf("changed = %v, want %v", changed, wantChange)
			}
			if changed {
				tt.want.UpdatedAt = by(9).At
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Change() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	s := flow.Step{RunID: "r", Task: "t", Status: flow.StepPending, ExecutionID: execID}
	s, changed := s.Mirror(flow.Child{Status: flow.StepRunning}, by(1).At)
	if !changed || s.Status != flow.StepRunning || !s.UpdatedAt.Equal(by(1).At) {
		t.Errorf("claimed: %+v, %v", s, changed)
	}
	if _, changed := s.Mirror(flow.Child{Status: flow.StepRunning}, by(2).At); changed {
		t.Error("the same again is a change")
	}
	s, _ = s.Mirror(flow.Child{Status: flow.StepSucceeded, Result: json.RawMessage(`1`)}, by(3).At)
	if s.Status != flow.StepSucceeded || string(s.Result) != `1` {
		t.Errorf("completed: %+v", s)
	}
	if s, changed = s.Mirror(flow.Child{Status: flow.StepRunning}, by(4).At); !changed || s.Status != flow.StepRunning {
		t.Errorf("replayed: %+v, %v", s, changed)
	}
}

// TestChange_Monotone shows that observations in any order leave a step where the furthest of them was, as long as one end is
// not contradicted by another.
func TestChange_Monotone(t *testing.T) {
	t.Parallel()
	rank := map[flow.StepStatus]int{flow.StepPending: 0, flow.StepRunning: 1, flow.StepSucceeded: 2}
	f := in(t, flow.Running)
	rapid.Check(t, func(t *rapid.T) {
		seen := rapid.SliceOfN(rapid.SampledFrom([]flow.StepStatus{flow.StepPending, flow.StepRunning, flow.StepSucceeded}), 1, 6).Draw(t, "observations")
		s, furthest := flow.Step{RunID: "r", Task: "t", Status: flow.StepPending, ChildSessionKey: "k"}, 0
		for _, status := range seen {
			next, _, err := f.Change(s, flow.StepChange{Status: &status}, nil, by(1))
			if err == nil {
				s = next
			} else if fault.CodeOf(err) != fault.CodeStepTerminal {
				t.Fatal(err)
			}
			furthest = max(furthest, rank[status])
		}
		if rank[s.Status] != furthest || s.ChildSessionKey != "k" {
			t.Fatalf("after %v it is %s", seen, s.Status)
		}
	})
}
