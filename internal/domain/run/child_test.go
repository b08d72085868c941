package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/run"
)

// TestStepOfExecution holds the mapping of public states. reference: runs-and-taskflows.md F4.
func TestStepOfExecution(t *testing.T) {
	t.Parallel()
	want := map[execution.Public][2]run.StepStatus{ // never started, started
		execution.PublicWaiting:         {run.StepPending, run.StepRunning},
		execution.PublicDelayed:         {run.StepPending, run.StepRunning},
		execution.PublicRateLimited:     {run.StepPending, run.StepRunning},
		execution.PublicWaitingChildren: {run.StepPending, run.StepRunning},
		execution.PublicActive:          {run.StepRunning, run.StepRunning},
		execution.PublicSuspended:       {run.StepWaiting, run.StepWaiting},
		execution.PublicCompleted:       {run.StepCompleted, run.StepCompleted},
		execution.PublicFailed:          {run.StepFailed, run.StepFailed},
		execution.PublicExpired:         {run.StepTimedOut, run.StepTimedOut},
		execution.PublicCancelled:       {run.StepCancelled, run.StepCancelled},
		execution.PublicSkipped:         {run.StepSkipped, run.StepSkipped},
	}
	if len(want) != len(execution.Publics()) {
		t.Errorf("there are %d public states", len(execution.Publics()))
	}
	for _, p := range execution.Publics() {
		for i, started := range []bool{false, true} {
			got := run.StepOfExecution(p, started)
			if got != want[p][i] || got.Terminal() != p.Ended() {
				t.Errorf("StepOfExecution(%s, %t) = %q, want %q", p, started, got, want[p][i])
			}
		}
	}
}

// TestStepOfRun holds the mapping of statuses. reference: runs-and-taskflows.md F4.
func TestStepOfRun(t *testing.T) {
	t.Parallel()
	want := map[run.Status]run.StepStatus{
		run.Pending: run.StepPending, run.Running: run.StepRunning, run.Waiting: run.StepWaiting, run.Cancelling: run.StepRunning, run.NeedsResume: run.StepRunning,
		run.Completed: run.StepCompleted, run.Failed: run.StepFailed, run.Cancelled: run.StepCancelled,
	}
	for _, s := range run.Statuses() {
		if got := run.StepOfRun(s); got != want[s] || got.Terminal() != s.Terminal() {
			t.Errorf("StepOfRun(%s) = %q, want %q", s, got, want[s])
		}
	}
}

func TestItemOf(t *testing.T) {
	t.Parallel()
	want := map[run.StepStatus]run.ItemStatus{
		run.StepPending: run.ItemRunning, run.StepRunning: run.ItemRunning, run.StepWaiting: run.ItemRunning, run.StepCompleted: run.ItemCompleted, run.StepFailed: run.ItemFailed,
		run.StepSkipped: run.ItemSkipped, run.StepTimedOut: run.ItemFailed, run.StepCancelled: run.ItemCancelled,
	}
	for _, s := range run.StepStatuses() {
		if got := run.ItemOf(s); got != want[s] || got.Terminal() != s.Terminal() {
			t.Errorf("ItemOf(%s) = %q, want %q", s, got, want[s])
		}
	}
}

// TestSeenExecution. reference: runs-and-taskflows.md F5 2.
func TestSeenExecution(t *testing.T) {
	t.Parallel()
	doc := func(s string) *execution.Value {
		return &execution.Value{Bytes: []byte(s), Encoding: execution.EncodingJSON}
	}
	boom := &execution.Failure{Reason: "boom", Category: "transient"}
	done := func(change func(*run.Seen)) run.Seen {
		s := run.Seen{Status: run.StepCompleted}
		change(&s)
		return s
	}
	structured := func(s string) func(*run.Seen) {
		return func(seen *run.Seen) { seen.Structured = json.RawMessage(s) }
	}
	tests := []struct {
		name    string
		public  execution.Public
		result  *execution.Value
		failure *execution.Failure
		want    run.Seen
	}{
		{"nothing", execution.PublicCompleted, nil, nil, run.Seen{Status: run.StepCompleted}},
		{"text", execution.PublicCompleted, doc(`"fine"`), nil, done(func(s *run.Seen) { s.ResultText = "fine" })},
		{"null", execution.PublicCompleted, doc(`null`), nil, run.Seen{Status: run.StepCompleted}},
		{"number", execution.PublicCompleted, doc(` 7`), nil, done(structured(`7`))},
		{"list", execution.PublicCompleted, doc(`[ 1, "a" ]`), nil, done(structured(`[1,"a"]`))},
		{"object", execution.PublicCompleted, doc(`{ "a": 1 }`), nil, done(structured(`{"a":1}`))},
		{"outputs", execution.PublicCompleted, doc(`{"context_out":"c","markers_out":["m","n"],"structured_output":{ "a": 1 },"result_text":"r"}`), nil, run.Seen{
			Status: run.StepCompleted, ResultText: "r", ContextOut: "c", Markers: []string{"m", "n"}, Structured: json.RawMessage(`{"a":1}`)}},
		{"no structured output", execution.PublicCompleted, doc(`{"context_out":"c","structured_output":null}`), nil, run.Seen{Status: run.StepCompleted, ContextOut: "c"}},
		{"some outputs", execution.PublicCompleted, doc(`{"markers_out":[], "b":2}`), nil, run.Seen{
			Status: run.StepCompleted, Markers: []string{}, Structured: json.RawMessage(`{"markers_out":[],"b":2}`)}},
		{"members of other types", execution.PublicCompleted, doc(`{"context_out":7,"markers_out":"m","result_text":[1]}`), nil, done(structured(`{"context_out":7,"markers_out":"m","result_text":[1]}`))},
		{"members that are null", execution.PublicCompleted, doc(`{"context_out":null,"markers_out":null,"result_text":null}`), nil,
			done(structured(`{"context_out":null,"markers_out":null,"result_text":null}`))},
		{"bytes", execution.PublicCompleted, &execution.Value{Bytes: []byte(`"x"`), Encoding: execution.EncodingBase64}, nil, run.Seen{Status: run.StepCompleted}},
		{"failed", execution.PublicFailed, nil, boom, run.Seen{Status: run.StepFailed, StepError: "boom"}},
		{"expired", execution.PublicExpired, nil, boom, run.Seen{Status: run.StepTimedOut, StepError: "boom"}},
		{"cancelled", execution.PublicCancelled, nil, nil, run.Seen{Status: run.StepCancelled}},
		{"cancelled after a failure", execution.PublicCancelled, nil, boom, run.Seen{Status: run.StepCancelled, StepError: "boom"}},
		{"completed after a failure", execution.PublicCompleted, doc(`"fine"`), boom, done(func(s *run.Seen) { s.ResultText = "fine" })},
		{"delayed after a failure", execution.PublicDelayed, nil, boom, run.Seen{Status: run.StepRunning}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, run.SeenExecution(tt.public, true, tt.result, tt.failure)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestSeenExecution_MixedMarkers: markers that are not all texts are no markers, but a member like any other.
func TestSeenExecution_MixedMarkers(t *testing.T) {
	t.Parallel()
	result := &execution.Value{Bytes: []byte(`{"markers_out":["a",1]}`), Encoding: execution.EncodingJSON}
	want := run.Seen{Status: run.StepCompleted, Structured: json.RawMessage(`{"markers_out":["a",1]}`)}
	if diff := cmp.Diff(want, run.SeenExecution(execution.PublicCompleted, true, result, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSeenRun(t *testing.T) {
	t.Parallel()
	want := map[run.Status]run.Seen{
		run.Pending:     {Status: run.StepPending},
		run.Running:     {Status: run.StepRunning},
		run.Waiting:     {Status: run.StepWaiting},
		run.Cancelling:  {Status: run.StepRunning, ResultText: "enough"},
		run.NeedsResume: {Status: run.StepRunning},
		run.Completed:   {Status: run.StepCompleted, ResultText: "done"},
		run.Failed:      {Status: run.StepFailed, ResultText: "half of it", StepError: "boom"},
		run.Cancelled:   {Status: run.StepCancelled, ResultText: "enough", StepError: "enough"},
	}
	for _, s := range run.Statuses() {
		r := in(t, s)
		if diff := cmp.Diff(want[s], run.SeenRun(&r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
	}
}

// TestFlowStepOf holds what a flow sees of a run. reference: runs-and-taskflows.md F4.
func TestFlowStepOf(t *testing.T) {
	t.Parallel()
	want := map[run.Status]flow.Child{
		run.Pending:     {Status: flow.StepPending},
		run.Running:     {Status: flow.StepRunning},
		run.Waiting:     {Status: flow.StepRunning},
		run.Cancelling:  {Status: flow.StepRunning},
		run.NeedsResume: {Status: flow.StepRunning},
		run.Completed:   {Status: flow.StepSucceeded, Result: json.RawMessage(`{"status":"completed","result_summary":"done"}`)},
		run.Failed:      {Status: flow.StepFailed, Result: json.RawMessage(`{"status":"failed","result_summary":"half of it","error":"boom"}`)},
		run.Cancelled:   {Status: flow.StepCancelled, Result: json.RawMessage(`{"status":"cancelled","result_summary":"enough","cancel_reason":"engine_shutdown"}`)},
	}
	for _, s := range run.Statuses() {
		r := in(t, s)
		if diff := cmp.Diff(want[s], r.FlowStepOf()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
	}
}

func TestChild(t *testing.T) {
	t.Parallel()
	var none *run.Child
	if !none.IsZero() || !new(run.Child).IsZero() {
		t.Error("no child is one")
	}
	parts := []func(*run.Child){
		func(c *run.Child) { c.Execution = new(execution.Create) }, func(c *run.Child) { c.Run = new(run.Create) },
		func(c *run.Child) { c.ExecutionID = execID }, func(c *run.Child) { c.RunID = childID },
	}
	for chosen := range 1 << len(parts) {
		var c run.Child
		n := 0
		for i, set := range parts {
			if chosen>>i&1 == 1 {
				set(&c)
				n++
			}
		}
		if c.IsZero() != (n == 0) {
			t.Errorf("%d parts: zero %t", n, c.IsZero())
		}
		err := c.Check("/child")
		if n == 1 {
			refused(t, err, "", nil)
		} else if refused(t, err, fault.CodeValidationFailed, nil); pointer(err) != "/child" {
			t.Errorf("it points at %s", pointer(err))
		}
	}
}

func TestLinkTo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		place run.Place
		told  string
	}{
		{run.Place{RunID: childID, StepID: stepID}, fmt.Sprintf(`run.linked {"parent_workflow_run_id":"%s","step_id":"%s"}`, childID, stepID)},
		{run.Place{RunID: childID, StepID: stepID, ItemID: itemID}, fmt.Sprintf(`run.linked {"parent_workflow_run_id":"%s","step_id":"%s","item_id":"%s"}`, childID, stepID, itemID)},
	} {
		r := in(t, run.Running)
		c := r.LinkTo(tt.place, by(9))
		want := r
		want.Parent, want.UpdatedAt, want.Revision = tt.place, at(9), r.Revision+1
		if diff := cmp.Diff(want, c.Run); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{tt.told}, lines(t, c.Events)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	s, it := stepIn(t, run.StepRunning), itemIn(t, run.ItemRunning)
	s.ChildRunID, it.ChildRunID = "agent-7", "agent-7"
	byExecution, byRun := run.Attached{ExecutionID: execID}, run.Attached{RunID: childID}
	wantStep, wantItem := s, it
	wantStep.ChildExecution, wantItem.ChildExecution = execID, execID
	if diff := cmp.Diff(wantStep, s.Attach(byExecution)) + cmp.Diff(wantItem, it.Attach(byExecution)); diff != "" {
		t.Errorf("an execution (-want +got):\n%s", diff)
	}
	wantStep, wantItem = s, it
	wantStep.ChildRunID, wantStep.ChildLinked, wantItem.ChildRunID, wantItem.ChildLinked = childID.String(), true, childID.String(), true
	if diff := cmp.Diff(wantStep, s.Attach(byRun)) + cmp.Diff(wantItem, it.Attach(byRun)); diff != "" {
		t.Errorf("a run (-want +got):\n%s", diff)
	}
	for _, a := range []run.Attached{byExecution, byRun} {
		s, it := s.Attach(a), it.Attach(a)
		if !s.HasChild() || !it.HasChild() {
			t.Errorf("%v is no child", a)
		}
	}
	if s.HasChild() || it.HasChild() {
		t.Error("what the engine calls its child is a child of ours")
	}
}

// TestStep_Mirror: a step goes where its child goes, forward only, and takes what that says when it ends.
// reference: runs-and-taskflows.md F4, D4 33.
func TestStep_Mirror(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	full := run.Seen{ResultText: "R", ContextOut: "C", Markers: []string{"M"}, Structured: json.RawMessage(`{}`), StepError: "E"}
	for _, from := range run.StepStatuses() {
		for _, to := range run.StepStatuses() {
			s := stepIn(t, from).Attach(run.Attached{ExecutionID: execID})
			s.ResultText, s.ContextOut, s.Markers, s.Structured, s.StepError = "r", "c", []string{"m"}, json.RawMessage(`1`), "e"
			for _, seen := range []run.Seen{full, {}} {
				seen.Status = to
				before, want := frozenStep(s), run.StepChanged{Step: frozenStep(s)}
				if slices.Contains(from.Successors(), to) {
					want.Applied, want.Ended, want.Step.Status = true, to.Terminal(), to
					if to.Terminal() {
						want.Step.EndedAt = at(20)
						if seen.ResultText != "" {
							want.Step.ResultText, want.Step.ContextOut, want.Step.Markers, want.Step.Structured, want.Step.StepError = "R", "C", []string{"M"}, json.RawMessage(`{}`), "E"
						}
					} else if from == run.StepPending {
						want.Step.StartedAt, want.Step.AttemptStarted = at(20), at(20)
					}
				}
				got := s.Mirror(&r, seen, by(20))
				if n := len(got.Events); n != map[bool]int{true: 1}[want.Applied] {
					t.Errorf("%s, seen %s: %d events", from, to, n)
				}
				told := got.Events
				if got.Events = nil; cmp.Diff(want, got) != "" {
					t.Errorf("%s, seen %s (-want +got):\n%s", from, to, cmp.Diff(want, got))
				}
				if want.Applied && to == run.StepFailed && seen.StepError != "" {
					line := "run_step.failed " + about(to, 0, fmt.Sprintf(`,"child_execution_id":"%s","step_error":"E"`, execID))
					if diff := cmp.Diff([]string{line}, lines(t, told)); diff != "" {
						t.Error(diff)
					}
				}
				if diff := cmp.Diff(before, s); diff != "" {
					t.Errorf("it changed its receiver:\n%s", diff)
				}
			}
		}
	}
	// Its fan-out is its own: a child that has ended ends it, whatever is open in it.
	s := stepIn(t, run.StepRunning).Attach(run.Attached{RunID: childID})
	s.FanOut = run.Counts{run.ItemRunning: 1}
	if got := s.Mirror(&r, run.Seen{Status: run.StepCompleted}, by(20)); !got.Ended || !slices.Equal(types(got.Events), []event.Type{event.RunStepCompleted}) {
		t.Errorf("with open items: %+v", got)
	}
	// The run of a child that ends late has ended, or is to: what has become of the child is still said.
	for _, status := range []run.Status{run.Cancelling, run.Failed} {
		r := in(t, status)
		if got := s.Mirror(&r, run.Seen{Status: run.StepFailed}, by(20)); !got.Ended {
			t.Errorf("in a run that is %s: %+v", status, got)
		}
	}
}
