package run_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// TestRun_Node: class and reason of each status. reference: runs-and-taskflows.md F4.
func TestRun_Node(t *testing.T) {
	t.Parallel()
	want := map[run.Status]struct {
		class run.Class
		why   string
	}{
		run.Pending:     {run.ClassOpen, "no engine has started it"},
		run.Running:     {run.ClassOpen, ""},
		run.Waiting:     {run.ClassWaiting, "it waits for human approval (deploy)"},
		run.Cancelling:  {run.ClassCancelling, "its engine was asked to end it"},
		run.NeedsResume: {run.ClassOpen, "its engine has given it up: resume it"},
		run.Completed:   {run.ClassSucceeded, ""},
		run.Failed:      {run.ClassFailed, ""},
		run.Cancelled:   {run.ClassCancelled, ""},
	}
	for _, s := range run.Statuses() {
		r := in(t, s)
		n := run.Node{Type: run.NodeRun, ID: id.String(), Name: "deploy", Status: string(s), Class: want[s].class, Why: want[s].why, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
		if diff := cmp.Diff(n, r.Node(at(9))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
	}
	r := in(t, run.Running)
	if got := r.Node(r.Lease.Until.Add(1)).Why; got != "no engine holds its lease" {
		t.Errorf("after its lease: %s", got)
	}
	r = must(t)(r.Park(waitID, run.Park{Generation: 1, BlockedOn: json.RawMessage(`{"type":"some_thing"}`)}, horizon, by(9)))
	if got := r.Node(at(9)).Why; got != "it waits for some thing" {
		t.Errorf("without a gate: %s", got)
	}
}

// TestStep_Node: class and reason of each status. reference: runs-and-taskflows.md F4.
func TestStep_Node(t *testing.T) {
	t.Parallel()
	want := map[run.StepStatus]struct {
		class        run.Class
		why, byChild string
	}{
		run.StepPending:   {run.ClassOpen, "its engine has not begun it", "nobody has begun its work"},
		run.StepRunning:   {run.ClassOpen, "", ""},
		run.StepWaiting:   {run.ClassWaiting, "its engine has parked it", "what does its work waits"},
		run.StepCompleted: {run.ClassSucceeded, "", ""},
		run.StepFailed:    {run.ClassFailed, "", ""},
		run.StepSkipped:   {run.ClassSkipped, "", ""},
		run.StepTimedOut:  {run.ClassExpired, "", ""},
		run.StepCancelled: {run.ClassCancelled, "", ""},
	}
	for _, status := range run.StepStatuses() {
		s := stepIn(t, status)
		n := run.Node{Type: run.NodeStep, ID: stepID.String(), Name: "build", Status: string(status), Class: want[status].class, Why: want[status].why, StartedAt: s.StartedAt, EndedAt: s.EndedAt}
		if diff := cmp.Diff(n, s.Node()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
		s, n.Why = s.Attach(run.Attached{ExecutionID: execID}), want[status].byChild
		if diff := cmp.Diff(n, s.Node()); diff != "" {
			t.Errorf("%s with a child (-want +got):\n%s", status, diff)
		}
	}
	s := opened(t)
	if got := s.Node(); got.Why != "its gate (human_approval) waits for an answer until 2026-11-21T10:30:12Z" || got.Class != run.ClassWaiting {
		t.Errorf("an open gate: %+v", got)
	}
	s = stepIn(t, run.StepRunning)
	if s.FanOut = (run.Counts{run.ItemRunning: 2, run.ItemPending: 1, run.ItemFailed: 1}); s.Node().Why != "3 of its 4 items have not ended" {
		t.Errorf("a fan-out: %s", s.Node().Why)
	}
}

func TestExecutionNode(t *testing.T) {
	t.Parallel()
	leased := execution.Vector{Lifecycle: execution.Active, Ownership: execution.Leased, Attempt: execution.AttemptRunning, Outcome: execution.OutcomeNone}
	waits := func(e execution.Eligibility, b execution.Blocking) execution.Vector {
		return execution.Vector{Lifecycle: execution.Runnable, Ownership: execution.Unowned, Eligibility: e, Blocking: b}
	}
	ended := func(o execution.Outcome) execution.Vector {
		return execution.Vector{Lifecycle: execution.Terminal, Ownership: execution.Unowned, Outcome: o}
	}
	tests := []struct {
		name   string
		vector execution.Vector
		change func(*execution.Execution)
		status execution.Public
		class  run.Class
		why    string
	}{
		{"waiting", waits(execution.EligibleNow, execution.WaitingForWorker), nil, execution.PublicWaiting, run.ClassOpen, "waiting for worker"},
		{"in words", waits(execution.BlockedByRoute, execution.WaitingForCapableWorker), func(e *execution.Execution) { e.BlockingDetail = "nobody has gpu" }, execution.PublicWaiting, run.ClassOpen, "nobody has gpu"},
		{"delayed", waits(execution.NotEligibleUntilTime, execution.WaitingForDelay), nil, execution.PublicDelayed, run.ClassOpen, "waiting for delay"},
		{"rate limited", waits(execution.BlockedByQuota, execution.WaitingForQuota), nil, execution.PublicRateLimited, run.ClassOpen, "waiting for quota"},
		{"children", waits(execution.BlockedByDependencies, execution.WaitingForChildren), nil, execution.PublicWaitingChildren, run.ClassOpen, "waiting for children"},
		{"active", leased, nil, execution.PublicActive, run.ClassOpen, ""},
		{"lost", execution.Vector{Lifecycle: execution.Active, Ownership: execution.LeaseExpired, Blocking: execution.WaitingForWorker}, nil, execution.PublicActive, run.ClassOpen, "waiting for worker"},
		{"asked to end", leased, func(e *execution.Execution) { e.Cancellation = &execution.Cancellation{} }, execution.PublicActive, run.ClassCancelling, "its worker was asked to end it"},
		{"suspended", execution.Vector{Lifecycle: execution.Suspended, Blocking: execution.WaitingForSignal}, nil, execution.PublicSuspended, run.ClassWaiting, "waiting for signal"},
		{"completed", ended(execution.OutcomeSuccess), nil, execution.PublicCompleted, run.ClassSucceeded, ""},
		{"failed", ended(execution.OutcomeFailed), nil, execution.PublicFailed, run.ClassFailed, ""},
		{"expired", ended(execution.OutcomeExpired), nil, execution.PublicExpired, run.ClassExpired, ""},
		{"cancelled", ended(execution.OutcomeCancelled), func(e *execution.Execution) { e.Cancellation = &execution.Cancellation{} }, execution.PublicCancelled, run.ClassCancelled, ""},
		{"skipped", ended(execution.OutcomeSkipped), nil, execution.PublicSkipped, run.ClassSkipped, ""},
	}
	seen := map[execution.Public]bool{}
	for _, tt := range tests {
		w := execution.Worked{Execution: execution.Execution{ID: execID, Lane: "ci", Vector: tt.vector, StartedAt: at(1), CompletedAt: at(2)}}
		if tt.change != nil {
			tt.change(&w.Execution)
		}
		want := run.Node{Type: run.NodeExecution, ID: execID.String(), Name: "ci", Status: string(tt.status), Class: tt.class, Why: tt.why, StartedAt: at(1), EndedAt: at(2)}
		if diff := cmp.Diff(want, run.ExecutionNode(&w, "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		seen[tt.status] = true
	}
	if len(seen) != len(execution.Publics()) {
		t.Errorf("only %v are there", seen)
	}
	// Its name, and its attempts.
	w := execution.Worked{Execution: execution.Execution{ID: execID, Lane: "ci", Vector: leased}, Attempts: []execution.Attempt{
		{Index: 0, Stage: execution.StageInterruptedReclaimed, WorkerID: "w1", StartedAt: at(1), EndedAt: at(2)}, {Index: 1, Stage: execution.StageEndedFailure, WorkerID: "w2"},
		{Index: 2, Stage: execution.StageEndedCancelled}, {Index: 3, Stage: execution.StageEndedSuccess}, {Index: 4, Stage: execution.StageSuspended}, {Index: 5, Stage: execution.StageStarted},
	}}
	want := []run.Node{
		{Type: run.NodeAttempt, ID: "0", Name: "w1", Status: "interrupted_reclaimed", Class: run.ClassFailed, StartedAt: at(1), EndedAt: at(2)},
		{Type: run.NodeAttempt, ID: "1", Name: "w2", Status: "ended_failure", Class: run.ClassFailed},
		{Type: run.NodeAttempt, ID: "2", Status: "ended_cancelled", Class: run.ClassCancelled},
		{Type: run.NodeAttempt, ID: "3", Status: "ended_success", Class: run.ClassSucceeded},
		{Type: run.NodeAttempt, ID: "4", Status: "suspended", Class: run.ClassWaiting},
		{Type: run.NodeAttempt, ID: "5", Status: "started", Class: run.ClassOpen},
	}
	if diff := cmp.Diff(want, run.ExecutionNode(&w, "").Children); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	var names []string
	for _, set := range []func(){func() {}, func() { w.Execution.Kind = "shell" }, func() { w.Execution.Key = "build" }} {
		set()
		names = append(names, run.ExecutionNode(&w, "").Name)
	}
	if diff := cmp.Diff([]string{"ci", "shell", "build", "T-1"}, append(names, run.ExecutionNode(&w, "T-1").Name)); diff != "" {
		t.Error(diff)
	}
}

func TestFlowNode(t *testing.T) {
	t.Parallel()
	want := map[flow.Status]struct {
		class, asked run.Class
		why          string
	}{
		flow.Created:   {run.ClassOpen, run.ClassCancelling, "it has not been started"},
		flow.Running:   {run.ClassOpen, run.ClassCancelling, ""},
		flow.Waiting:   {run.ClassWaiting, run.ClassCancelling, "it waits for external event"},
		flow.Finished:  {run.ClassSucceeded, run.ClassSucceeded, ""},
		flow.Failed:    {run.ClassFailed, run.ClassFailed, ""},
		flow.Cancelled: {run.ClassCancelled, run.ClassCancelled, ""},
	}
	for _, s := range flow.Statuses() {
		f := flow.Flow{ID: flowID, Goal: "Release", Status: s, CreatedAt: at(1), EndedAt: time.Time{}}
		if s == flow.Waiting {
			f.Wait = &flow.Wait{Spec: wait.Spec{Condition: wait.Condition{Kind: wait.ExternalEvent}}}
		}
		n := run.Node{Type: run.NodeFlow, ID: flowID.String(), Name: "Release", Status: string(s), Class: want[s].class, Why: want[s].why, StartedAt: at(1)}
		if diff := cmp.Diff(n, run.FlowNode(&f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
		f.CancelRequested = true
		if n.Class = want[s].asked; !s.Terminal() {
			n.Why = "its cancellation was requested"
		}
		if diff := cmp.Diff(n, run.FlowNode(&f)); diff != "" {
			t.Errorf("%s, to be cancelled (-want +got):\n%s", s, diff)
		}
	}
}
