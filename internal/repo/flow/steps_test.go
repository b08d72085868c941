package flow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestRepo_Steps: reference: runs-and-taskflows.md C5 NS-06 to NS-10, NM-09 to NM-11, NR-01.
func TestRepo_Steps(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		build, err := h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: "build", Task: "go build"})
		h.no(err)
		_, err = h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: "build", Task: "again"})
		h.is(err, fault.CodeDuplicateStep)
		seen, err := h.flows.ObserveStep(h.ctx(), f.ID, "test", flow.StepChange{Task: new("go test"), Status: new(flow.StepRunning), ChildSessionKey: patch.Field[string]{Present: true, Value: new("agent:1")}})
		h.no(err)
		if !seen.New || seen.Step.Runtime != flow.Mirrored || build.Runtime != flow.Managed {
			t.Errorf("observed %+v", seen)
		}
		again, err := h.flows.ObserveStep(h.ctx(), f.ID, "test", flow.StepChange{Task: new("go test"), Status: new(flow.StepSucceeded), Result: json.RawMessage(`{"ok": 1}`)})
		h.no(err)
		if again.New || again.Step.ID != seen.Step.ID || again.Step.ChildSessionKey != "agent:1" || string(again.Step.Result) != `{"ok":1}` || again.Step.Status != flow.StepSucceeded {
			t.Errorf("observed again %+v", again)
		}
		_, err = h.flows.ObserveStep(h.ctx(), f.ID, "test", flow.StepChange{Task: new("go test"), Status: new(flow.StepRunning)})
		h.is(err, fault.CodeStepTerminal)
		same, err := h.flows.ObserveStep(h.ctx(), f.ID, "test", flow.StepChange{Task: new("go test"), Status: new(flow.StepSucceeded)})
		h.no(err)
		if diff := cmp.Diff(again, same); diff != "" {
			t.Errorf("the same observation changed the step (-before +after):\n%s", diff)
		}
		patched, err := h.flows.PatchStep(h.ctx(), f.ID, "build", flow.StepChange{Status: new(flow.StepFailed)})
		h.no(err)
		found, err := h.flows.Step(h.ctx(), f.ID, "build")
		h.no(err)
		if diff := cmp.Diff(patched, found); diff != "" {
			t.Errorf("read and answered differ (-answered +read):\n%s", diff)
		}
		_, err = h.flows.Step(h.ctx(), f.ID, "deploy")
		h.is(err, fault.CodeNotFound)
		_, err = h.flows.Step(h.ctx(), h.create(flow.Running).ID, "build")
		h.is(err, fault.CodeNotFound)
		_, err = h.flows.PatchStep(h.ctx(), f.ID, "deploy", flow.StepChange{})
		h.is(err, fault.CodeNotFound)
		_, err = h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: "x", Task: "t", ExecutionID: uuid.New()})
		h.is(err, fault.CodeNotFound)

		for i := range 5 {
			_, err := h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: fmt.Sprint(i), Task: "t"})
			h.no(err)
		}
		var order []string
		for cursor := (page.Cursor{}); ; {
			p, err := h.flows.Steps(h.ctx(), f.ID, "", cursor, 2)
			h.no(err)
			for _, s := range p.Items {
				order = append(order, s.RunID)
			}
			if cursor = p.Next; cursor.IsZero() {
				break
			}
		}
		if want := []string{"build", "test", "0", "1", "2", "3", "4"}; !slices.Equal(order, want) {
			t.Errorf("the steps are in the order %v", order)
		}
		p, err := h.flows.Steps(h.ctx(), f.ID, flow.StepPending, page.Cursor{}, 50)
		if h.no(err); len(p.Items) != 5 {
			t.Errorf("%d steps are pending", len(p.Items))
		}
		if got := h.flow(f.ID); got.Revision != f.Revision {
			t.Errorf("steps moved the revision to %d", got.Revision)
		}
		if got := types(h.trail(f.ID)); !slices.Equal(got[2:6], []event.Type{event.StepInserted, event.StepObserved, event.StepObserved, event.StepUpdated}) {
			t.Errorf("events %v", got)
		}
		_, err = h.flows.Finish(h.ctx(), f.ID, nil, nil)
		h.no(err)
		_, err = h.flows.ObserveStep(h.ctx(), f.ID, "late", flow.StepChange{Task: new("t"), Status: new(flow.StepRunning)})
		h.is(err, fault.CodeAlreadyTerminal)
	})
}

// TestRepo_ObserveStep_Race: reference: runs-and-taskflows.md B13 2.
func TestRepo_ObserveStep_Race(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		var mu sync.Mutex
		var group sync.WaitGroup
		made := 0
		for range 8 {
			group.Go(func() {
				seen, err := h.flows.ObserveStep(h.ctx(), f.ID, "r", flow.StepChange{Task: new("t"), Status: new(flow.StepRunning)})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if seen.New {
					made++
				}
			})
		}
		group.Wait()
		if p, err := h.flows.Steps(h.ctx(), f.ID, "", page.Cursor{}, 50); err != nil || len(p.Items) != 1 || made != 1 {
			t.Errorf("%d steps, made %d times, %v", len(p.Items), made, err)
		}
	})
}

// TestRepo_Mirror: reference: runs-and-taskflows.md F4, F5 7.
func TestRepo_Mirror(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		id := uuid.New()
		h.executions.states[id] = execution.Execution{Vector: execution.Vector{Lifecycle: execution.Runnable, Eligibility: execution.EligibleNow}}
		s, err := h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: "r", Task: "t", Status: flow.StepSucceeded, ExecutionID: id})
		h.no(err)
		if s.Status != flow.StepPending {
			t.Errorf("linked to a waiting execution it is %s", s.Status)
		}
		emit := func(types ...event.Type) {
			h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error {
				for _, e := range types {
					tx.Emit(event.Event{Type: e, ExecutionID: id, Followed: true})
				}
				return nil
			}))
		}
		status := func() flow.Step {
			s, err := h.flows.Step(h.ctx(), f.ID, "r")
			h.no(err)
			return s
		}
		emit(event.ExecutionDelayed, event.ExecutionEligible)
		if got := status(); got.Status != flow.StepPending {
			t.Errorf("not yet claimed it is %s", got.Status)
		}
		emit(event.LeaseAcquired)
		emit(event.LeaseExpired)
		emit(event.LeaseReclaimed)
		if got := status(); got.Status != flow.StepRunning {
			t.Errorf("claimed it is %s", got.Status)
		}
		h.executions.results[id] = execution.Value{Bytes: []byte(`{"n": 1.50}`), Encoding: execution.EncodingJSON}
		emit(event.ExecutionCompleted, event.LeaseRevoked)
		if got := status(); got.Status != flow.StepSucceeded || string(got.Result) != `{"n":1.50}` {
			t.Errorf("completed it is %+v", got)
		}
		events := h.trail(f.ID)
		if got := types(events); !slices.Equal(got[2:], []event.Type{event.StepInserted, event.StepObserved, event.StepObserved}) {
			t.Errorf("events %v", got)
		}
		p, err := h.store.Trail(h.ctx(), event.Filter{ExecutionID: id, Types: []event.Type{event.ExecutionCompleted}}, 0, 1)
		if h.no(err); events[4].Cause != p[0].ID {
			t.Errorf("the cause of %+v is not %d", events[4], p[0].ID)
		}
		emit(event.ExecutionFailed) // a flow that has ended is mirrored too
		if got := status(); got.Status != flow.StepFailed {
			t.Errorf("failed it is %s", got.Status)
		}

		// a step that is linked later takes the state of that moment
		done := uuid.New()
		h.executions.states[done] = execution.Execution{Attempts: 1, Vector: execution.Vector{Lifecycle: execution.Terminal, Outcome: execution.OutcomeExpired}}
		_, err = h.flows.InsertStep(h.ctx(), f.ID, flow.NewStep{RunID: "late", Task: "t"})
		h.no(err)
		late, err := h.flows.PatchStep(h.ctx(), f.ID, "late", flow.StepChange{ExecutionID: patch.Field[uuid.UUID]{Present: true, Value: &done}})
		if h.no(err); late.Status != flow.StepFailed || late.ExecutionID != done {
			t.Errorf("linked late it is %+v", late)
		}
	})
}
