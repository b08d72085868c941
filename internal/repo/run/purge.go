package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// purgeBatch bounds how many roots one transaction deletes.
const purgeBatch = 50

// Delete deletes a run that has ended, with everything in it; its events stay. It returns CodeNotFound, CodeRevisionMismatch,
// CodeNotTerminal, and CodeOpenMembers while something in it has not ended. reference: runs-and-taskflows.md A12.
func (r *Repo) Delete(ctx context.Context, id uuid.UUID, expected *int64) error {
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		x, err := r.hold(tx, id)
		if err != nil {
			return err
		}
		if err := x.Expect(expected); err != nil {
			return err
		}
		if !x.Status.Terminal() {
			return fault.New(fault.CodeNotTerminal, "Run %s is %s. Only what has ended can be deleted: end or cancel it first.", id, x.Status).With("current_status", x.Status)
		}
		_, _, err = r.remove(tx, &x)
		return err
	})
}

// remove deletes an ended run with the runs in it, and returns how many runs and executions those were. It returns CodeOpenMembers, and has
// deleted nothing then.
func (r *Repo) remove(tx *store.Tx, x *run.Run) (runs, executions int, err error) {
	all, err := r.closed(tx, x)
	if err != nil {
		return 0, 0, err
	}
	for i := range all {
		n, err := r.executions.DropWork(tx, all[i].ID)
		if err != nil {
			return 0, 0, err
		}
		if err := tx.ExecOne(`DELETE FROM runs WHERE id = ?`, store.ID(all[i].ID)); err != nil {
			return 0, 0, fmt.Errorf("delete run %s: %w", all[i].ID, err)
		}
		tx.Emit(all[i].Gone())
		executions += n
	}
	return len(all), executions, nil
}

// closed returns a run with all runs in it, which it locks. It returns CodeOpenMembers while something there has not ended.
func (r *Repo) closed(tx *store.Tx, x *run.Run) ([]run.Run, error) {
	all := []run.Run{*x}
	for level := []store.ID{store.ID(x.ID)}; len(level) > 0; {
		var next []store.ID
		for some := range store.Chunks(level) {
			var rows []row
			if err := tx.Select(&rows, "SELECT "+columns+" FROM runs WHERE parent_workflow_run_id IN ? ORDER BY id"+tx.ForUpdate(), store.List(some)); err != nil {
				return nil, fmt.Errorf("read what is in run %s: %w", x.ID, err)
			}
			found, err := runsOf(rows)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			for i := range found {
				next = append(next, store.ID(found[i].ID))
			}
		}
		level = next
	}
	open := 0
	for i := range all {
		work, err := r.executions.OpenWork(tx, all[i].ID)
		if err != nil {
			return nil, err
		}
		if open += len(work); !all[i].Status.Terminal() {
			open++
		}
	}
	if open > 0 {
		return nil, fault.New(fault.CodeOpenMembers, "%d runs and executions in run %s have not ended yet. Cancel them, or wait for them.", open, x.ID).With("count", open)
	}
	return all, nil
}

// weigh counts what remove would delete.
func (r *Repo) weigh(tx *store.Tx, x *run.Run) (runs, executions int, err error) {
	all, err := r.closed(tx, x)
	if err != nil {
		return 0, 0, err
	}
	for i := range all {
		n, err := r.executions.CountWork(tx, all[i].ID)
		if err != nil {
			return 0, 0, err
		}
		executions += n
	}
	return len(all), executions, nil
}

// Purge deletes the ended runs of the caller's namespace that are in no other run, with everything in them; without a status it deletes
// nothing. What has something open in it stays. It works in transactions of some dozens, so that others may write in between. A dry run
// only counts. reference: runs-and-taskflows.md A12, C3 "Purge".
func (r *Repo) Purge(ctx context.Context, p run.Purge) (run.Purged, error) {
	for i, s := range p.Statuses {
		if !s.Terminal() {
			return run.Purged{}, fault.Invalid(fault.CodeValidationFailed, fmt.Sprintf("/statuses/%d", i), "Only ended runs are deleted: completed, failed and cancelled ones.")
		}
	}
	var after uuid.UUID
	return store.Gradually(ctx, r.store, run.Purged{}, func(ctx context.Context, total *run.Purged) (bool, error) {
		if len(p.Statuses) == 0 {
			return false, nil
		}
		var part run.Purged
		last := after
		err := store.Do(ctx, r.store, func(tx *store.Tx) (err error) {
			part, after, err = r.purge(tx, p, tx.Call.Namespace, last)
			return err
		}, store.Background())
		total.Roots, total.Runs, total.Executions = total.Roots+part.Roots, total.Runs+part.Runs, total.Executions+part.Executions
		return after != uuid.Nil, err
	})
}

// purge deletes the next roots after one, and returns the last that it looked at, uuid.Nil at the end.
func (r *Repo) purge(tx *store.Tx, p run.Purge, namespace string, after uuid.UUID) (part run.Purged, last uuid.UUID, err error) {
	where := store.NewWhere("namespace = ? AND parent_workflow_run_id IS NULL AND ended_at IS NOT NULL AND ended_at <= ? AND status IN ?", namespace,
		store.Millis(tx.Now().Add(-p.OlderThan)), store.List(p.Statuses))
	where.If(p.WorkflowName != "", "workflow_name = ?", p.WorkflowName)
	where.If(after != uuid.Nil, "id > ?", store.ID(after))
	var ids []store.ID
	if err := tx.Select(&ids, "SELECT id FROM runs WHERE "+where.String()+" ORDER BY id LIMIT ?", where.Args(purgeBatch)...); err != nil {
		return part, last, fmt.Errorf("find runs to purge: %w", err)
	}
	each := r.remove
	if p.DryRun {
		each = r.weigh
	}
	for _, id := range ids {
		x, err := holdIn(tx, namespace, uuid.UUID(id))
		if fault.CodeOf(err) == fault.CodeNotFound || err == nil && !x.Status.Terminal() { // at this moment
			continue
		}
		if err != nil {
			return part, last, err
		}
		runs, executions, err := each(tx, &x)
		switch {
		case fault.CodeOf(err) == fault.CodeOpenMembers:
			continue
		case err != nil:
			return part, last, err
		}
		part.Roots, part.Runs, part.Executions = part.Roots+1, part.Runs+runs, part.Executions+executions
	}
	if len(ids) == purgeBatch {
		last = uuid.UUID(ids[len(ids)-1])
	}
	return part, last, nil
}
