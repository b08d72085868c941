package run

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// What is locked before a run, where transactions run side by side. Each of these does nothing where they do not.

// holdBelow locks what is open in a run of a namespace, up to a batch of executions of each run, from the bottom upwards: whoever is about
// to end it calls this before the run itself is locked. It returns CodeNotFound.
func (r *Repo) holdBelow(tx *store.Tx, namespace string, runID uuid.UUID) error {
	if !tx.Locks() {
		return nil
	}
	if _, err := find(&tx.Queries, namespace, runID, ""); err != nil {
		return err
	}
	levels := [][]store.ID{{store.ID(runID)}}
	for len(levels) <= run.MaxDepth {
		above := levels[len(levels)-1]
		var below []store.ID
		err := tx.Select(&below, `SELECT id FROM runs WHERE parent_workflow_run_id IN ? AND ended_at IS NULL ORDER BY id LIMIT ?`, store.List(above), r.cfg.Batch)
		if err != nil {
			return fmt.Errorf("read what is open in run %s: %w", runID, err)
		}
		if len(below) == 0 {
			break
		}
		levels = append(levels, below)
	}
	for i, level := range slices.Backward(levels) {
		for _, id := range level {
			if err := r.executions.HoldWork(tx, uuid.UUID(id), r.cfg.Batch); err != nil {
				return err
			}
		}
		if i > 0 {
			if _, err := heldRuns(tx, level); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdItems locks the children of items that are about to end.
func (r *Repo) holdItems(tx *store.Tx, updates []run.ItemUpdate) error {
	if !tx.Locks() {
		return nil
	}
	var ending []store.ID
	for i := range updates {
		if updates[i].Status.Terminal() {
			ending = append(ending, store.ID(updates[i].ID))
		}
	}
	if len(ending) == 0 {
		return nil
	}
	items, err := someItems(&tx.Queries, "id IN ? AND completed_at IS NULL ORDER BY id", store.List(ending))
	if err != nil {
		return err
	}
	var executions []uuid.UUID
	var runs []store.ID
	for i := range items {
		if items[i].ChildExecution != uuid.Nil {
			executions = append(executions, items[i].ChildExecution)
		}
		if id, err := uuid.Parse(items[i].ChildRunID); err == nil && items[i].ChildLinked {
			runs = append(runs, store.ID(id))
		}
	}
	if err := r.executions.HoldThese(tx, executions); err != nil {
		return err
	}
	_, err = heldRuns(tx, runs)
	return err
}

// holdFlows locks the flows that new child runs will be steps of: those that they name, or that of their parent.
func (r *Repo) holdFlows(tx *store.Tx, runID uuid.UUID, children ...*run.Child) error {
	if !tx.Locks() {
		return nil
	}
	var flows []uuid.UUID
	for _, c := range children {
		if c.IsZero() || c.Run == nil {
			continue
		}
		flowID := c.Run.FlowID
		if flowID == uuid.Nil {
			x, err := find(&tx.Queries, tx.Call.Namespace, runID, "")
			if err != nil {
				return err
			}
			flowID = x.FlowID
		}
		if flowID != uuid.Nil {
			flows = append(flows, flowID)
		}
	}
	return r.flows.Lock(tx, flows)
}
