package flow

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// mirrored returns the public state that an event of an execution leads to. By F4 no others than those of [Repo.Mirror] change a step:
// what happens before the first claim is pending, and what happens between two claims is running.
func mirrored(t event.Type) execution.Public {
	switch t {
	case event.LeaseAcquired, event.LeaseReclaimed:
		return execution.PublicActive
	case event.OperatorReplayed:
		return execution.PublicWaiting
	default:
		return execution.Vector{Lifecycle: execution.Terminal, Outcome: execution.EndedBy(t)}.Public()
	}
}

// Mirror keeps steps equal to the executions that they are linked to, in the transaction that moves those; also steps of
// flows that have ended. reference: runs-and-taskflows.md F4, F5 2 and 7, D6 51.
func (r *Repo) Mirror() store.Reactor {
	return store.Reactor{Name: "flow steps", On: append(execution.Completions(), event.LeaseAcquired, event.LeaseReclaimed, event.OperatorReplayed), Do: r.mirror}
}

func (r *Repo) mirror(tx *store.Tx, e event.Event) error {
	if !e.Followed {
		return nil
	}
	return r.mirrorInto(tx, "execution_id", e.ExecutionID, func() (flow.Child, error) {
		state := mirrored(e.Type)
		result, err := r.result(tx, e.ExecutionID, state)
		return flow.ChildOf(state, true, result), err
	})
}

// MirrorRun makes the steps that are linked to a run equal to it, in the transaction that moves it.
func (r *Repo) MirrorRun(tx *store.Tx, runID uuid.UUID, child flow.Child) error {
	return r.mirrorInto(tx, "workflow_run_id", runID, func() (flow.Child, error) { return child, nil })
}

// AddRun gives a flow of the caller's namespace a step that mirrors a run. It returns CodeNotFound and CodeAlreadyTerminal.
// reference: runs-and-taskflows.md F5 7.
func (r *Repo) AddRun(tx *store.Tx, flowID, runID uuid.UUID, task string, child flow.Child) error {
	f, err := r.find(&tx.Queries, tx.Call.Namespace, flowID, tx.ForUpdate())
	if err != nil {
		return err
	}
	if _, ok, err := findStep(&tx.Queries, flowID, runID.String(), ""); ok || err != nil {
		return err
	}
	_, err = r.insertStep(tx, &f, flow.NewStep{RunID: runID.String(), Task: task, WorkflowRunID: runID}, &child, event.StepInserted)
	return err
}

// mirrorInto makes the steps whose column names a child equal to it.
func (*Repo) mirrorInto(tx *store.Tx, column string, id uuid.UUID, seen func() (flow.Child, error)) error {
	var rows []stepRow
	err := tx.Select(&rows, selectSteps+" WHERE "+column+" = ? ORDER BY id"+tx.ForUpdate(), store.ID(id))
	if err != nil || len(rows) == 0 {
		return err
	}
	child, err := seen()
	if err != nil {
		return err
	}
	for i := range rows {
		before, err := rows[i].step()
		if err != nil {
			return err
		}
		if before.ExecutionID != uuid.Nil && before.ExecutionID != id { // of both it mirrors the execution
			continue
		}
		s, changed := before.Mirror(child, tx.Now())
		if !changed {
			continue
		}
		if err := saveStep(tx, &s); err != nil {
			return err
		}
		var found row
		if err := tx.Get(&found, "SELECT "+aboutColumns+" FROM flows WHERE id = ?", store.ID(s.FlowID)); err != nil {
			return fmt.Errorf("read the flow of step %s: %w", s.RunID, err)
		}
		f := found.about()
		tx.Emit(f.StepEvent(event.StepObserved, &s, &child))
	}
	return nil
}
