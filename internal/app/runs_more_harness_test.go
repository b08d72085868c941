package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// withKin returns cases after each of which it is checked that what is linked is equal: no open step or item has a child that has
// ended, and nothing is at work that nobody waits for. reference: runs-and-taskflows.md D2 20, D4 33, D6 51.
func withKin(cases []runCase) []runCase {
	for i := range cases {
		run := cases[i].run
		cases[i].run = func(x *runTest) {
			run(x)
			x.kin()
		}
	}
	return cases
}

// kinAudits are queries for links that do not hold, in a namespace. An execution with a cancellation has its grace.
var kinAudits = map[string]string{
	"open steps whose execution has ended": `SELECT count(*) FROM run_steps s JOIN executions e ON e.id = s.child_execution_id
		WHERE s.namespace = ? AND s.ended_at IS NULL AND e.lifecycle_phase = 'terminal'`,
	"open items whose execution has ended": `SELECT count(*) FROM run_items i JOIN executions e ON e.id = i.child_execution_id
		WHERE e.namespace = ? AND i.completed_at IS NULL AND e.lifecycle_phase = 'terminal'`,
	"open steps whose run has ended": `SELECT count(*) FROM run_steps s JOIN runs r ON r.parent_step_id = s.id AND r.parent_item_id IS NULL
		WHERE r.namespace = ? AND s.ended_at IS NULL AND r.ended_at IS NOT NULL AND s.child_linked = 1 AND s.retry_count = 0`,
	"open items whose run has ended": `SELECT count(*) FROM run_items i JOIN runs r ON r.parent_item_id = i.id
		WHERE r.namespace = ? AND i.completed_at IS NULL AND r.ended_at IS NOT NULL AND i.child_linked = 1`,
	"steps that are at work otherwise than their executions": `SELECT count(*) FROM run_steps s JOIN executions e ON e.id = s.child_execution_id
		WHERE s.namespace = ? AND s.ended_at IS NULL AND (e.public_state = 'active' AND s.status <> 'running' OR e.public_state = 'suspended' AND s.status <> 'waiting')`,
	"executions at work for ended runs": `SELECT count(*) FROM executions e JOIN runs r ON r.id = e.run_id
		WHERE r.namespace = ? AND r.ended_at IS NOT NULL AND r.draining = 0 AND e.lifecycle_phase <> 'terminal' AND e.cancellation IS NULL`,
	"runs at work in ended runs": `SELECT count(*) FROM runs c JOIN runs r ON r.id = c.parent_workflow_run_id
		WHERE r.namespace = ? AND r.ended_at IS NOT NULL AND r.draining = 0 AND c.ended_at IS NULL AND c.status <> 'cancelling'`,
}

// kin checks what is linked in the namespace of the case.
func (x *runTest) kin() {
	x.t.Helper()
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		for what, query := range kinAudits {
			var n int64
			if err := q.Get(&n, query, x.namespace); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if n > 0 {
				x.t.Errorf("%s: %d", what, n)
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// runLane is where the executions of these cases are, each in a namespace of its own.
const runLane = "work"

// workChild is the child that is a new execution, of these further members.
func workChild(members string) string {
	return `"child":{"execution":` + flowBody(members, `"lane":"`+runLane+`"`) + `}`
}

// subRun is the child that is a new run, of these further members.
func subRun(members string) string {
	return `"child":{"run":` + flowBody(members, `"workflow_name":"inner"`) + `}`
}

// knownChild is the child that is an execution or a run, by the name of the member.
func knownChild(member string, id uuid.UUID) string {
	return fmt.Sprintf(`"child":{%q:%q}`, member, id)
}

// claimed claims the execution that does the work of a step.
func (x *runTest) claimed(s oapi.RunStep) oapi.Claim {
	x.t.Helper()
	c := x.workers(runLane).claim(lasting)
	if s.ChildExecutionID == nil || c.Execution.ID != *s.ChildExecutionID {
		x.t.Fatalf("%s was claimed, and not what works for step %s", c.Execution.ID, s.ID)
	}
	return c
}

// report makes a call of the worker that holds c, which succeeds.
func (x *runTest) report(c oapi.Claim, op, members string) {
	x.t.Helper()
	x.workers(runLane).report(c, op, members).Want(http.StatusOK)
}

// execution reads an execution.
func (x *runTest) execution(id uuid.UUID) oapi.Execution {
	x.t.Helper()
	return x.workers(runLane).get(id)
}

// public checks the public states of executions.
func (x *runTest) public(want string, ids ...uuid.UUID) {
	x.t.Helper()
	for _, id := range ids {
		if got := string(x.execution(id).PublicState); got != want {
			x.t.Errorf("execution %s is %s, want %s", id, got, want)
		}
	}
}

// childRun reads the run that does the work of a step.
func (x *runTest) childRun(s oapi.RunStep) oapi.Run {
	x.t.Helper()
	return x.get(runOf(x.t, s.ChildRunID))
}

// runOf reads the id of a child run.
func runOf(t *testing.T, childRunID *string) uuid.UUID {
	t.Helper()
	if childRunID == nil {
		t.Fatal("there is no child run")
	}
	return uuid.MustParse(*childRunID)
}

// driven takes the lease of a run for an hour and starts it.
func (x *runTest) driven(r oapi.Run) oapi.Run {
	x.t.Helper()
	x.hold(r.ID, engineToken, time.Hour)
	return x.do(x.get(r.ID), "start", "")
}

// stepped checks the status of a step.
func (x *runTest) stepped(r oapi.Run, id uuid.UUID, want string) oapi.RunStep {
	x.t.Helper()
	s := x.read(r, id)
	if string(s.Status) != want {
		x.t.Fatalf("step %s is %s, want %s", s.StepName, s.Status, want)
	}
	return s
}

// statuses checks the statuses of a run's steps, by their names: "build completed, test failed".
func (x *runTest) statuses(r oapi.Run, want ...string) {
	x.t.Helper()
	got := []string{}
	for _, s := range x.steps(r, "") {
		got = append(got, s.StepName+" "+string(s.Status))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("steps of %s (-want +got):\n%s", r.ID, diff)
	}
}

// itemised checks the statuses of a step's items, by their ids.
func (x *runTest) itemised(r oapi.Run, stepID uuid.UUID, want ...string) {
	x.t.Helper()
	got := []string{}
	for _, it := range x.listItems(r, stepID, "") {
		got = append(got, it.ItemID+" "+string(it.Status))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("items of %s (-want +got):\n%s", stepID, diff)
	}
}

// fanned checks the counters of a step: pending, running, completed, failed, skipped, cancelled.
func (x *runTest) fanned(r oapi.Run, stepID uuid.UUID, want ...int64) oapi.RunStep {
	x.t.Helper()
	s := x.read(r, stepID)
	got := []int64{s.FanOutPending, s.FanOutRunning, s.FanOutCompleted, s.FanOutFailed, s.FanOutSkipped, s.FanOutCancelled}
	total := int64(0)
	for _, n := range want {
		total += n
	}
	if diff := cmp.Diff(want, got); diff != "" || s.FanOutTotal != total {
		x.t.Errorf("of %d items (pending, running, completed, failed, skipped, cancelled; -want +got):\n%s", s.FanOutTotal, diff)
	}
	return s
}

// decided answers a gate, which is not refused.
func (x *runTest) decided(r oapi.Run, stepID uuid.UUID, decision, members string) oapi.DecidedGate {
	x.t.Helper()
	return flowAs[oapi.DecidedGate](x.answer(r, stepID, decision, members).Want(http.StatusOK))
}

// replies checks the events of a run after the first n, and returns them: "run.cancelled", "0 run_step.cancelled". A number before
// the type is the place of the event that caused it, a question mark an event elsewhere.
func (x *runTest) replies(id uuid.UUID, n int, want ...string) []oapi.Event {
	x.t.Helper()
	events := x.events(id)[n:]
	got := []string{}
	for _, e := range events {
		text := e.Type
		if i := slices.IndexFunc(events, func(c oapi.Event) bool { return e.Cause != nil && *e.Cause == c.ID }); i >= 0 {
			text = fmt.Sprintf("%d %s", i, text)
		} else if e.Cause != nil {
			text = "? " + text
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
		x.t.Errorf("events of %s (-want +got):\n%s", id, diff)
	}
	return events
}

// saying checks what an event tells.
func (x *runTest) saying(e oapi.Event, want map[string]any) {
	x.t.Helper()
	if diff := cmp.Diff(want, eventData(x.t, e)); diff != "" {
		x.t.Errorf("%s tells (-want +got):\n%s", e.Type, diff)
	}
}

// missing checks that a call finds nothing of a kind and changes nothing.
func (x *runTest) missing(resource string, call func() *apitest.Response, ids ...uuid.UUID) {
	x.t.Helper()
	x.facts(x.refused(fault.CodeNotFound, call, ids...), map[string]any{"resource": resource})
}

// as returns the same case as a caller with a new token.
func (x *runTest) as(name, role string) *runTest {
	x.t.Helper()
	token := x.Post("/v1/admin/tokens", fmt.Sprintf(`{"name":%q,"role":%q,"namespace":%q}`, name, role, x.namespace)).Want(http.StatusCreated).Str("token")
	other := *x.flowTest
	other.Client = x.As(token)
	return &runTest{&other}
}

// orNone is a text that may be null, "" for that.
func orNone(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
