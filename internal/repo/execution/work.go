package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// An execution may work for a run: as the child of one of its steps, or of an item. What that means is the run's to say; here it is an
// execution like any other that carries the run's id.

// Making runs a transaction that may make executions, and makes the buckets first that it finds missing.
func (r *Repo) Making(ctx context.Context, write func() error) error {
	_, err := withBuckets(ctx, r, func() (struct{}, error) { return struct{}{}, write() })
	return err
}

// Add makes an execution in a transaction that runs within [Repo.Making]. It returns what [Repo.Create] returns.
func (r *Repo) Add(tx *store.Tx, in execution.Create) (execution.Created, error) {
	return r.create(tx, in)
}

// Link lets an execution of the caller's namespace work for a run. It returns CodeNotFound, and CodeAlreadyMember when it works for
// another one.
func (r *Repo) Link(tx *store.Tx, id, runID uuid.UUID) (execution.Execution, error) {
	e, err := r.State(tx, id)
	switch {
	case err != nil:
		return e, err
	case e.RunID == runID:
		return e, nil
	case e.RunID != uuid.Nil:
		return e, fault.New(fault.CodeAlreadyMember, "Execution %s works for run %s already.", id, e.RunID).With("run_id", e.RunID)
	}
	e.RunID = runID
	if err := tx.ExecOne(`UPDATE executions SET run_id = ? WHERE id = ?`, store.ID(runID), store.ID(id)); err != nil {
		return e, fmt.Errorf("link execution %s: %w", id, err)
	}
	return e, nil
}

// Known returns an execution of the caller's namespace, and what it was completed with, nil for nothing. It returns CodeNotFound.
func (r *Repo) Known(tx *store.Tx, id uuid.UUID) (execution.Execution, *execution.Value, error) {
	e, err := find(&tx.Queries, tx.Call.Namespace, id, "")
	if err != nil || e.Public() != execution.PublicCompleted {
		return e, nil, err
	}
	v, err := r.ResultIn(tx, id)
	if fault.CodeOf(err) == fault.CodeNotFound {
		return e, nil, nil
	}
	return e, &v, err
}

// Await locks an execution of the caller's namespace and returns the event that told of its end. While it has not ended that is "", and
// its end will be told to the flows that wait for it. It is "" also when there is none.
func (r *Repo) Await(tx *store.Tx, id uuid.UUID) (event.Type, error) {
	e, err := r.Follow(tx, id)
	switch {
	case fault.CodeOf(err) == fault.CodeNotFound:
		return "", nil
	case err != nil || e.Lifecycle != execution.Terminal:
		return "", err
	}
	return execution.CompletionOf(e.Outcome), nil
}

// Follow locks an execution of the caller's namespace and returns it. What becomes of it is told to flows from now on. It returns CodeNotFound.
func (r *Repo) Follow(tx *store.Tx, id uuid.UUID) (execution.Execution, error) {
	e, err := r.State(tx, id)
	if err != nil || e.Followed {
		return e, err
	}
	if err := tx.ExecOne(`UPDATE executions SET followed = 1 WHERE id = ?`, store.ID(id)); err != nil {
		return e, fmt.Errorf("follow execution %s: %w", id, err)
	}
	e.Followed = true
	return e, nil
}

// OpenWork returns the executions that work for a run and have not ended.
func (r *Repo) OpenWork(tx *store.Tx, runID uuid.UUID) ([]uuid.UUID, error) {
	var ids []store.ID
	if err := tx.Select(&ids, `SELECT id FROM executions WHERE run_id = ? AND lifecycle_phase <> 'terminal' AND `+visible+` ORDER BY id`, store.ID(runID)); err != nil {
		return nil, fmt.Errorf("read the work of run %s: %w", runID, err)
	}
	return store.UUIDs(ids), nil
}

// UnaskedWork returns those of the executions that work for a run and have not ended which were not asked to end by a time.
func (r *Repo) UnaskedWork(tx *store.Tx, runID uuid.UUID, by time.Time) ([]uuid.UUID, error) {
	var open []struct {
		ID           store.ID   `db:"id"`
		Cancellation store.JSON `db:"cancellation"`
	}
	err := tx.Select(&open, `SELECT id, cancellation FROM executions WHERE run_id = ? AND lifecycle_phase <> 'terminal' AND `+visible+` ORDER BY id`, store.ID(runID))
	if err != nil {
		return nil, fmt.Errorf("read the work of run %s: %w", runID, err)
	}
	var out []uuid.UUID
	for _, e := range open {
		var c execution.Cancellation
		if e.Cancellation == nil || json.Unmarshal(e.Cancellation, &c) != nil || c.DeadlineAt.After(by) {
			out = append(out, uuid.UUID(e.ID))
		}
	}
	return out, nil
}

// HoldWork locks up to limit executions that work for a run and have not ended, and their flows. Whoever is about to lock the run and to
// end them calls it first.
func (r *Repo) HoldWork(tx *store.Tx, runID uuid.UUID, limit int) error {
	if !tx.Locks() {
		return nil
	}
	ids, err := r.OpenWork(tx, runID)
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = r.holdAll(tx, ids[:min(len(ids), limit)])
	return err
}

// HoldThese locks executions, before the run that they work for.
func (r *Repo) HoldThese(tx *store.Tx, ids []uuid.UUID) error {
	if !tx.Locks() || len(ids) == 0 {
		return nil
	}
	_, err := r.holdAll(tx, ids)
	return err
}

// holdAll reads and locks executions, in the order of their ids, after their flows.
func (r *Repo) holdAll(tx *store.Tx, ids []uuid.UUID) ([]row, error) {
	var all []row
	for chunk := range store.Chunks(ids) {
		keys := store.IDs(chunk)
		if err := lockFlows(tx, keys); err != nil {
			return nil, err
		}
		var rows []row
		if err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE id IN ? ORDER BY id"+tx.ForUpdate(), store.List(keys)); err != nil {
			return nil, fmt.Errorf("read %d executions: %w", len(keys), err)
		}
		all = append(all, rows...)
	}
	tx.Later()
	return all, nil
}

// EndWork cancels executions that have not ended; those that somebody holds get the grace. One that cannot be read is put aside.
func (r *Repo) EndWork(tx *store.Tx, ids []uuid.UUID, end execution.Cascade) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.holdAll(tx, ids)
	if err != nil {
		return err
	}
	_, err = r.cancelRows(tx, rows, end)
	return err
}

// cancelRows cancels executions that are held and have not ended.
func (r *Repo) cancelRows(tx *store.Tx, rows []row, end execution.Cascade) (execution.MembersEnded, error) {
	by := execution.Cancellation{Reason: end.Reason, Actor: tx.Call.Actor, RequestedAt: tx.Now()}
	ended := execution.MembersEnded{Looked: len(rows)}
	for i := range rows {
		e, err := rows[i].execution()
		if err != nil {
			tx.Report(err)
			ended.Failed = append(ended.Failed, uuid.UUID(rows[i].ID))
			if err := shelve(tx, rows[i].ID); err != nil {
				return ended, err
			}
			continue
		}
		if e.Lifecycle == execution.Terminal { // it has ended since it was looked for
			continue
		}
		c, err := e.CancelWithin(by, end.GraceUntil.Sub(tx.Now()), tx.Now())
		if err != nil {
			return ended, err
		}
		if err := r.save(tx, &e, c, nil); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// CountWork counts the executions that work for a run and belong to no flow.
func (*Repo) CountWork(tx *store.Tx, runID uuid.UUID) (int, error) {
	var n int
	err := tx.Get(&n, `SELECT count(*) FROM executions WHERE run_id = ? AND flow_id IS NULL`, store.ID(runID))
	return n, err
}

// DropWork deletes the executions that work for a run and belong to no flow, and returns how many there were; the others go on without
// the run.
func (*Repo) DropWork(tx *store.Tx, runID uuid.UUID) (int, error) {
	if _, err := tx.Exec(`UPDATE executions SET run_id = NULL WHERE run_id = ? AND flow_id IS NOT NULL`, store.ID(runID)); err != nil {
		return 0, fmt.Errorf("let go what worked for run %s: %w", runID, err)
	}
	if err := dropStreams(tx, "run_id", runID); err != nil {
		return 0, fmt.Errorf("drop the streams of run %s: %w", runID, err)
	}
	n, err := tx.Exec(`DELETE FROM executions WHERE run_id = ?`, store.ID(runID))
	if err != nil {
		return 0, fmt.Errorf("delete the work of run %s: %w", runID, err)
	}
	return int(n), nil
}

// errWorkOf is a defect: nothing selects everything.
var errWorkOf = errors.New("no work was asked for")

// Work returns up to limit executions that are selected, the oldest first, with their attempts and without their documents.
func (r *Repo) Work(q *store.Queries, of execution.WorkOf, limit int) ([]execution.Worked, error) {
	var where string
	var ids []uuid.UUID
	for _, by := range []struct {
		column string
		ids    []uuid.UUID
	}{{"run_id", of.Runs}, {"flow_id", of.Flows}, {"id", of.IDs}} {
		if len(by.ids) == 0 {
			continue
		}
		where, ids = by.column+" IN ?", by.ids
	}
	if where == "" {
		return nil, errWorkOf
	}
	var rows []row
	err := q.Select(&rows, "SELECT "+nodeColumns+" FROM executions WHERE "+where+" AND "+visible+" ORDER BY created_at, id LIMIT ?", store.List(store.IDs(ids)), limit)
	if err != nil {
		return nil, fmt.Errorf("read executions: %w", err)
	}
	list, err := executionsOf(rows)
	if err != nil {
		return nil, err
	}
	if list, err = shownAll(q, list); err != nil {
		return nil, err
	}
	return withAttempts(q, list)
}

// withAttempts returns executions with the attempts at them.
func withAttempts(q *store.Queries, list []execution.Execution) ([]execution.Worked, error) {
	out := make([]execution.Worked, len(list))
	at := make(map[store.ID]int, len(list))
	ids := make([]store.ID, len(list))
	for i := range list {
		out[i].Execution, ids[i] = list[i], store.ID(list[i].ID)
		at[ids[i]] = i
	}
	for chunk := range store.Chunks(ids) {
		var rows []struct {
			ExecutionID store.ID `db:"execution_id"`
			attemptRow
		}
		if err := q.Select(&rows, `SELECT execution_id, `+attemptColumns+` FROM attempts WHERE execution_id IN ? ORDER BY execution_id, attempt_index`, store.List(chunk)); err != nil {
			return nil, fmt.Errorf("read attempts: %w", err)
		}
		for i := range rows {
			a, err := rows[i].attempt()
			if err != nil {
				return nil, store.Corrupt("attempt of execution", uuid.UUID(rows[i].ExecutionID), err)
			}
			n := at[rows[i].ExecutionID]
			out[n].Attempts = append(out[n].Attempts, a)
		}
	}
	return out, nil
}
