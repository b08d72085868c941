package run

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Mirror keeps steps and items equal to the executions that do their work, in the transaction that moves those.
// reference: runs-and-taskflows.md F4, F5 2 and 5, D6 51.
func (r *Repo) Mirror() store.Reactor {
	return store.Reactor{Name: "run steps", Do: r.mirrorExecution,
		On: append(execution.Completions(), event.LeaseAcquired, event.LeaseReclaimed, event.ExecutionSuspended, event.ExecutionResumed)}
}

func (r *Repo) mirrorExecution(tx *store.Tx, e event.Event) error {
	if e.RunID == uuid.Nil {
		return nil
	}
	x, err := find(&tx.Queries, e.Namespace, e.RunID, "")
	if err != nil {
		return err
	}
	at, err := workOf(tx, &x, e.ExecutionID)
	if err != nil {
		return err
	}
	if at.ItemID == uuid.Nil || x.Wait != nil { // the step or the run may change
		if x, err = find(&tx.Queries, e.Namespace, e.RunID, tx.ForUpdate()); err != nil {
			return err
		}
	}
	if at.StepID != uuid.Nil {
		done, result, err := r.executions.Known(tx, e.ExecutionID)
		if err != nil {
			return err
		}
		if err := r.seen(tx, &x, at, e.ExecutionID, run.SeenExecution(done.Public(), done.Attempts > 0, result, done.Failure)); err != nil {
			return err
		}
	}
	if e.Type.Topic() != event.TopicCompletion {
		return nil
	}
	return r.call(tx, &x, func(on *run.BlockedOn) bool { return on.ExecutionID == e.ExecutionID })
}

// workOf returns the place in a run whose work an execution does, an empty one when nobody waits for it any more.
func workOf(tx *store.Tx, x *run.Run, id uuid.UUID) (run.Place, error) {
	var at []struct {
		StepID store.ID `db:"step_id"`
		ItemID store.ID `db:"item_id"`
	}
	err := tx.Select(&at, `SELECT id AS step_id, NULL AS item_id FROM run_steps WHERE child_execution_id = ?
		UNION ALL SELECT step_id, id AS item_id FROM run_items WHERE child_execution_id = ?`, store.ID(id), store.ID(id))
	if err != nil || len(at) == 0 {
		return run.Place{}, err
	}
	return run.Place{RunID: x.ID, StepID: uuid.UUID(at[0].StepID), ItemID: uuid.UUID(at[0].ItemID)}, nil
}

// EndWithFlow ends the runs of a flow that was cancelled or has failed, as its policy says.
// reference: runs-and-taskflows.md F5 10 and 12.
func (r *Repo) EndWithFlow() store.Reactor {
	return store.Reactor{Name: "runs of a flow", On: []event.Type{event.FlowCancelled, event.FlowFailed, event.FlowReplaced}, Do: func(tx *store.Tx, e event.Event) error {
		return r.EndOf(tx, e.FlowID, uuid.Nil)
	}}
}

// EndOf ends the runs of a flow that has ended, behind the run after in the order of their ids: as many as one transaction may end, and
// the rest from the backlog.
func (r *Repo) EndOf(tx *store.Tx, flowID, after uuid.UUID) error {
	last, err := r.endSome(tx, flowID, after)
	if err != nil || last == uuid.Nil {
		return err
	}
	return backlog.Put(tx, backlog.Item{Kind: backlog.Runs, FlowID: flowID, ExecutionID: flowID, Detail: backlog.RunsRest{After: last}})
}

// EndRest ends those runs of a flow which the backlog was to end: the flow is about to be deleted.
func (r *Repo) EndRest(tx *store.Tx, flowID uuid.UUID) error {
	left, err := backlog.Has(&tx.Queries, flowID, backlog.Runs)
	for last := uuid.Nil; left && err == nil; left = last != uuid.Nil {
		last, err = r.endSome(tx, flowID, last)
	}
	return err
}

// endSome ends a batch of the runs of a flow that has ended, and returns the last of them if there are more.
func (r *Repo) endSome(tx *store.Tx, flowID, after uuid.UUID) (last uuid.UUID, err error) {
	where := store.NewWhere("flow_id = ? AND ended_at IS NULL AND status <> 'cancelling'", store.ID(flowID))
	where.If(after != uuid.Nil, "id > ?", store.ID(after))
	var ids []store.ID
	if err := tx.Select(&ids, `SELECT id FROM runs WHERE `+where.String()+` ORDER BY id LIMIT ?`, where.Args(r.cfg.Batch+1)...); err != nil || len(ids) == 0 {
		return uuid.Nil, err
	}
	f, err := r.flows.Find(&tx.Queries, tx.Call.Namespace, flowID)
	if err != nil {
		return uuid.Nil, err
	}
	end, ends := f.MembersEnd()
	if !ends {
		return uuid.Nil, nil
	}
	if len(ids) > r.cfg.Batch {
		ids = ids[:r.cfg.Batch]
		last = uuid.UUID(ids[len(ids)-1])
	}
	runs, err := heldRuns(tx, ids)
	if err != nil {
		return uuid.Nil, err
	}
	for i := range runs {
		if err := r.endWithFlow(tx, &f, &runs[i], end.PendingOnly); err != nil {
			return uuid.Nil, err
		}
	}
	return last, nil
}

func (r *Repo) endWithFlow(tx *store.Tx, f *flow.Flow, x *run.Run, pendingOnly bool) error {
	now, err := find(&tx.Queries, x.Namespace, x.ID, "") // it may have ended with what it is in
	if err != nil || now.Status.Terminal() || now.Status == run.Cancelling || pendingOnly && now.Lease.Live(tx.Now()) {
		return err
	}
	end, _ := f.MembersEnd()
	in := run.Cancel{Reason: run.ByParent, Message: end.Reason, Deadline: run.DefaultCancelDeadline}
	if !end.GraceUntil.IsZero() {
		in.Deadline, in.Until = 0, end.GraceUntil
	}
	return r.cancelChild(tx, &now, in)
}

// GoneWithFlow deletes the ended runs of a flow that was deleted, and lets the others go on without it.
func (r *Repo) GoneWithFlow() store.Reactor {
	return store.Reactor{Name: "runs of a deleted flow", On: []event.Type{event.FlowDeleted, event.FlowPruned}, Do: func(tx *store.Tx, e event.Event) error {
		var ids []store.ID
		err := tx.Select(&ids, `SELECT id FROM runs WHERE flow_id = ? AND parent_workflow_run_id IS NULL AND ended_at IS NOT NULL ORDER BY id`, store.ID(e.FlowID))
		if err != nil {
			return fmt.Errorf("read the runs of flow %s: %w", e.FlowID, err)
		}
		for _, id := range ids {
			x, err := find(&tx.Queries, e.Namespace, uuid.UUID(id), tx.ForUpdate())
			if err != nil {
				return err
			}
			if _, _, err := r.remove(tx, &x); err != nil && fault.CodeOf(err) != fault.CodeOpenMembers {
				return err
			}
		}
		_, err = tx.Exec(`UPDATE runs SET flow_id = NULL WHERE flow_id = ?`, store.ID(e.FlowID))
		return err
	}}
}
