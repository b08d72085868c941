package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", " \t"} {
		_, err := run.New(run.Create{WorkflowName: name}, by(0))
		if refused(t, err, fault.CodeValidationFailed, nil); pointer(err) != "/workflow_name" {
			t.Errorf("it points at %s", pointer(err))
		}
	}
	for _, tt := range []struct{ definition, title string }{
		{``, ""}, {`null`, ""}, {`{}`, ""}, {`{"title":7}`, ""}, {`[1]`, ""}, {`{"title":null}`, ""}, {`{"title":"Deploy"}`, "Deploy"},
	} {
		var doc json.RawMessage
		if tt.definition != "" {
			doc = json.RawMessage(tt.definition)
		}
		r := must(t)(run.New(run.Create{WorkflowName: "deploy", Definition: doc}, by(0)))
		if r.WorkflowTitle != tt.title || r.Trigger != run.DefaultTrigger || string(r.Inputs) != "{}" || r.Revision != 0 || r.Generation != 0 {
			t.Errorf("%s: %+v", tt.definition, r)
		}
		if want := tt.title; want == "" && r.Name() != "deploy" || want != "" && r.Name() != want {
			t.Errorf("%s is called %s", tt.definition, r.Name())
		}
	}
	at := run.Place{RunID: flowID, StepID: waitID, ItemID: id}
	c, err := run.New(run.Create{ID: id, Namespace: "default", FlowID: flowID, WorkflowName: "x", Parent: at}, by(0))
	want := []string{fmt.Sprintf(`run.created {"workflow_name":"x","trigger":"manual","parent_workflow_run_id":"%s","step_id":"%s","item_id":"%s"}`, flowID, waitID, id)}
	if diff := cmp.Diff(want, lines(t, c.Events)); err != nil || diff != "" {
		t.Errorf("a child: %v (-want +got):\n%s", err, diff)
	}
}

// TestPark_Refusals. reference: runs-and-taskflows.md A3.4; model.md "Run" (waiting).
func TestPark_Refusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		on       string
		deadline time.Time
		code     fault.Code
		pointer  string
	}{
		{"approval", `{"type":"human_approval","gate_name":"g"}`, time.Time{}, "", ""},
		{"approval of no gate", `{"type":"human_approval"}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on/gate_name"},
		{"review of no gate", `{"type":"human_review","gate_name":""}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on/gate_name"},
		{"checks of no gate", `{"type":"pr_checks"}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on/gate_name"},
		{"checks", `{"type":"pr_checks","gate_name":"g"}`, time.Time{}, "", ""},
		{"pr approval of no gate", `{"type":"pr_approval","approvals_needed":1}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on/gate_name"},
		{"pr approval of how many", `{"type":"pr_approval","gate_name":"g"}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on/approvals_needed"},
		{"pr approval", `{"type":"pr_approval","gate_name":"g","approvals_needed":0}`, time.Time{}, "", ""},
		{"no child", `{"type":"child"}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on"},
		{"child run", fmt.Sprintf(`{"type":"child","run_id":%q}`, flowID), time.Time{}, "", ""},
		{"child execution", fmt.Sprintf(`{"type":"child","execution_id":%q}`, flowID), time.Time{}, "", ""},
		{"child of a step", fmt.Sprintf(`{"type":"child","step_id":%q}`, flowID), time.Time{}, "", ""},
		{"anything else", `{"type":"weather","city":"x"}`, time.Time{}, "", ""},
		{"no object", `7`, time.Time{}, fault.CodeValidationFailed, "/blocked_on"},
		{"member of another type", `{"type":"child","run_id":7}`, time.Time{}, fault.CodeValidationFailed, "/blocked_on"},
		{"deadline now", `{"type":"x"}`, at(9), fault.CodeTimerOutOfRange, "/deadline"},
		{"deadline passed", `{"type":"x"}`, at(8), fault.CodeTimerOutOfRange, "/deadline"},
		{"deadline", `{"type":"x"}`, at(10), "", ""},
		{"deadline at the horizon", `{"type":"x"}`, at(9).Add(horizon), "", ""},
		{"deadline beyond it", `{"type":"x"}`, at(9).Add(horizon + time.Millisecond), fault.CodeTimerOutOfRange, "/deadline"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := in(t, run.Running)
			got, err := r.Park(waitID, run.Park{Generation: 1, BlockedOn: json.RawMessage(tt.on), Deadline: tt.deadline}, horizon, by(9))
			if refused(t, err, tt.code, nil); pointer(err) != tt.pointer {
				t.Errorf("it points at %q, want %q", pointer(err), tt.pointer)
			}
			if tt.code != "" {
				return
			}
			w := got.Run.Wait
			want := wait.Spec{Condition: wait.Condition{Kind: wait.Never}, Deadline: tt.deadline, OnTimeout: wait.TimeoutFails}
			if diff := cmp.Diff(want, w.Spec()); diff != "" || w.OnTimeout != run.TimeoutFails {
				t.Errorf("%s (-want +got):\n%s", w.OnTimeout, diff)
			}
		})
	}
	r := in(t, run.Running)
	_, err := r.Park(waitID, run.Park{Generation: 1}, horizon, by(9))
	refused(t, err, fault.CodeValidationFailed, nil)
}

func TestOn(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	if diff := cmp.Diff(run.BlockedOn{}, r.On()); diff != "" {
		t.Errorf("a run that does not wait:\n%s", diff)
	}
	p := run.Park{Generation: 1, BlockedOn: json.RawMessage(fmt.Sprintf(`{"type":"child","run_id":%q,"gate_name":"g","approvals_needed":2,"x":1}`, flowID))}
	r = must(t)(r.Park(waitID, p, horizon, by(9)))
	if diff := cmp.Diff(run.BlockedOn{Type: run.BlockedOnChild, RunID: flowID, GateName: "g", ApprovalsNeeded: new(2)}, r.On()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestResume_Conflicting(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		_, err := r.Resume(run.Resume{Restart: true, FromStep: "build"}, by(9))
		if refused(t, err, fault.CodeValidationFailed, nil); pointer(err) != "/from_step" {
			t.Errorf("it points at %s", pointer(err))
		}
	}
	r := in(t, run.Waiting)
	_, err := r.Resume(run.Resume{}, by(9))
	if pointer(err) != "/generation" {
		t.Errorf("a waiting run is resumed by nobody: %v", err)
	}
	_, err = r.Resume(run.Resume{Generation: new(int64(1)), FromStep: "build"}, by(9))
	if pointer(err) != "/restart" {
		t.Errorf("a waiting run does a step again: %v", err)
	}
}

// TestComplete_Open: while there are open steps a run does not complete.
func TestComplete_Open(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	_, err := r.Complete(1, "", 2, by(9))
	refused(t, err, fault.CodeOpenMembers, map[string]any{"count": 2})
	waits := in(t, run.Waiting)
	_, err = waits.Complete(1, "", 2, by(9))
	refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": run.Waiting, "to": run.Completed})
}

// TestLate compares what each on_timeout leaves. reference: model.md "Run" (waiting); A13 46.
func TestLate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		how  run.OnTimeout
		want func(r *run.Run)
		told string
	}{
		{run.TimeoutFails, func(r *run.Run) { r.Status, r.Error = run.Failed, "wait_timeout" },
			`run.failed {"error":"wait_timeout","total_duration_ms":7000,"generation":1}`},
		{run.TimeoutCancels, func(r *run.Run) {
			r.Status, r.ResultSummary, r.CancelReason = run.Cancelled, "wait_timeout", run.ByTime
			r.Cancellation = &run.Cancellation{Actor: "token:ci", Message: "wait_timeout", RequestedAt: at(9)}
		}, `run.cancelled {"result_summary":"wait_timeout","cancel_reason":"timeout","total_duration_ms":7000,"generation":1}`},
		{run.TimeoutResumes, func(r *run.Run) { r.Status = run.Running }, `run.resumed {"by":"timeout"}`},
	} {
		r := in(t, run.Running)
		p := park(1)
		p.OnTimeout, p.Deadline = tt.how, at(8)
		r = must(t)(r.Park(waitID, p, horizon, by(3)))
		want := r
		want.Wait, want.UpdatedAt, want.Revision = nil, at(9), r.Revision+1
		if tt.want(&want); want.Status.Terminal() {
			want.EndedAt, want.Lease, want.ActiveSince, want.TotalDuration = at(9), run.Lease{}, time.Time{}, 7*time.Second
		}
		got, err := r.Late(by(9))
		if diff := cmp.Diff(want, got.Run); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.how, err, diff)
		}
		if diff := cmp.Diff([]string{tt.told}, lines(t, got.Events)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.how, diff)
		}
	}
}

// TestCancel: the first who asks is remembered, and their reason stays. reference: runs-and-taskflows.md A13 32 and 46, D2 20.
func TestCancel(t *testing.T) {
	t.Parallel()
	first := &run.Cancellation{Actor: "token:ops", Message: "superseded", RequestedAt: at(5), DeadlineAt: at(7)}
	r := in(t, run.Waiting)
	c, err := r.Cancel(run.Cancel{Message: "superseded", Deadline: 2 * time.Second}, event.By{Actor: "token:ops", At: at(5)})
	asked := must(t)(c, err)
	want := r
	want.Status, want.Wait, want.CancelReason, want.ResultSummary, want.Cancellation = run.Cancelling, nil, run.ByUser, "superseded", first
	want.UpdatedAt, want.Revision = at(5), r.Revision+1
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	told := []string{`run.cancelling {"cancel_reason":"user_requested","message":"superseded","deadline_at":"2026-11-21T09:30:07.000Z"}`}
	if diff := cmp.Diff(told, lines(t, c.Events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !asked.DueAt().Equal(at(7)) {
		t.Errorf("it is due at %s", asked.DueAt())
	}
	again, err := asked.Cancel(run.Cancel{Reason: run.ByParent, Message: "other", Deadline: time.Hour}, by(6))
	if diff := cmp.Diff(run.Change{Run: asked}, again); err != nil || diff != "" {
		t.Errorf("a second time: %v\n%s", err, diff)
	}
	ends := map[string]func() (run.Change, error){
		"force": func() (run.Change, error) { return asked.Force(by(8)) },
		"engine": func() (run.Change, error) {
			return asked.Cancel(run.Cancel{Reason: run.ByParent, Message: "other", Generation: new(int64(1))}, by(8))
		},
		"release": func() (run.Change, error) {
			return asked.Release(run.Release{Token: token, Generation: 1, NeedsResume: true}, by(8))
		},
	}
	want = asked
	want.Status, want.EndedAt, want.UpdatedAt, want.Revision, want.Lease = run.Cancelled, at(8), at(8), asked.Revision+1, run.Lease{}
	want.ActiveSince, want.TotalDuration = time.Time{}, 6*time.Second
	for name, end := range ends {
		got, err := end()
		if diff := cmp.Diff(want, got.Run); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		told := []string{`run.cancelled {"result_summary":"superseded","cancel_reason":"user_requested","total_duration_ms":6000,"generation":1}`}
		if diff := cmp.Diff(told, lines(t, got.Events)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// Whose reason it is.
	for _, tt := range []struct {
		in   run.Cancel
		want run.CancelReason
	}{
		{run.Cancel{}, run.ByUser}, {run.Cancel{Generation: new(int64(1))}, run.ByEngine}, {run.Cancel{Reason: run.ByParent}, run.ByParent},
		{run.Cancel{Reason: run.ByParent, Generation: new(int64(1))}, run.ByParent},
	} {
		r := in(t, run.Running)
		if got := must(t)(r.Cancel(tt.in, by(5))); got.CancelReason != tt.want {
			t.Errorf("%+v: %s, want %s", tt.in, got.CancelReason, tt.want)
		}
	}
	// The lease lives at its very end.
	r = in(t, run.Running)
	if got := must(t)(r.Cancel(run.Cancel{}, event.By{At: r.Lease.Until})); got.Status != run.Cancelling {
		t.Errorf("at the end of its lease it is %s", got.Status)
	}
	if got := must(t)(r.Cancel(run.Cancel{}, event.By{At: r.Lease.Until.Add(1)})); got.Status != run.Cancelled {
		t.Errorf("after its lease it is %s", got.Status)
	}
}

func TestDueAt(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		want := time.Time{}
		if s == run.Cancelling {
			want = at(8)
		}
		if !r.DueAt().Equal(want) {
			t.Errorf("a run that is %s is due at %s, want %s", s, r.DueAt(), want)
		}
		if r.Draining = true; !r.DueAt().Equal(r.UpdatedAt) {
			t.Errorf("a run that is %s, with children to cancel, is due at %s", s, r.DueAt())
		}
	}
}

// TestTakes: what a run takes in which status.
func TestTakes(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		switch {
		case s.Terminal():
			refused(t, r.Takes(), fault.CodeRunTerminal, map[string]any{"current_status": s})
			refused(t, r.Begins(), fault.CodeRunTerminal, map[string]any{"current_status": s})
		case s == run.Cancelling:
			refused(t, r.Takes(), "", nil)
			refused(t, r.Begins(), fault.CodeRunCancelled, map[string]any{"reason": run.ByUser})
		default:
			refused(t, r.Takes(), "", nil)
			refused(t, r.Begins(), "", nil)
		}
		refused(t, r.Expect(nil), "", nil)
		refused(t, r.Expect(new(r.Revision)), "", nil)
		refused(t, r.Expect(new(r.Revision+1)), fault.CodeRevisionMismatch, map[string]any{"expected": r.Revision + 1, "actual": r.Revision})
	}
}

func TestDismiss(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		if diff := cmp.Diff(run.Change{Run: r}, r.Dismiss(false, by(9))); diff != "" {
			t.Errorf("what is shown is shown again:\n%s", diff)
		}
		want := r
		want.Dismissed, want.UpdatedAt, want.Revision = true, at(9), r.Revision+1
		hidden := r.Dismiss(true, by(9))
		if diff := cmp.Diff(want, hidden.Run); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
		shown := hidden.Run.Dismiss(false, by(10))
		told := lines(t, slices.Concat(hidden.Events, shown.Events))
		if diff := cmp.Diff([]string{`run.dismissed {"dismissed":true}`, `run.dismissed {"dismissed":false}`}, told); diff != "" || shown.Run.Dismissed {
			t.Error(diff)
		}
	}
}
