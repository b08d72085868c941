package wait

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// due is a wait whose time has come.
type due struct {
	ID        store.ID `db:"id"`
	Namespace string   `db:"namespace"`
	RunID     store.ID `db:"run_id"`
	FlowID    store.ID `db:"flow_id"`
	Execution store.ID `db:"execution_id"`
}

// owners says which kind of owner is locked first.
func (d *due) owners() int {
	switch {
	case d.RunID != (store.ID{}):
		return 0
	case d.FlowID != (store.ID{}):
		return 1
	}
	return 2
}

// Pass decides up to limit waits that are due, by their timers or deadlines, or because their owner wants to be called, and
// returns how many it dealt with. Any number of processes may call it at the same time: one that is in other hands is left
// to them. A wait that cannot be read is put aside for good, and its CodeCorruptRecord returned although the others were
// decided. reference: runs-and-taskflows.md B7, B13 4, 12 and 14.
func (r *Repo) Pass(ctx context.Context, limit int) (int, error) {
	return store.Sweep(ctx, r.store, func(tx *store.Tx, done *store.Swept) error {
		held, err := r.holdDue(tx, limit, done)
		if err != nil {
			return err
		}
		for _, d := range held {
			acted, err := r.pass(tx, d)
			if err = shelve(tx, done, d.ID, err); err != nil {
				return err
			}
			if acted {
				done.Acted++
			}
		}
		return nil
	})
}

// holdDue locks the owners of due waits that nobody else holds, all of them before the time is asked for: runs, flows and then
// executions, each by their ids. What is due is found by this machine's clock, and judged by the database's.
func (r *Repo) holdDue(tx *store.Tx, limit int, done *store.Swept) ([]due, error) {
	var list []due
	err := tx.Select(&list, `SELECT id, namespace, run_id, flow_id, execution_id FROM waits WHERE due_at <= ? ORDER BY due_at, id LIMIT ?`, store.Millis(tx.Queries.Now()), limit)
	if err != nil {
		return nil, fmt.Errorf("read due waits: %w", err)
	}
	order := slices.Clone(list)
	slices.SortFunc(order, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.owners(), b.owners()), store.ByID(a.RunID, b.RunID), store.ByID(a.FlowID, b.FlowID), store.ByID(a.Execution, b.Execution))
	})
	mine := map[store.ID]bool{}
	for _, d := range order {
		owner, id := r.owner(uuid.UUID(d.RunID), uuid.UUID(d.FlowID), uuid.UUID(d.Execution))
		held, err := owner.Hold(tx, d.Namespace, id, true)
		if err = shelve(tx, done, d.ID, err); err != nil {
			return nil, err
		}
		mine[d.ID] = held
	}
	held := slices.DeleteFunc(list, func(d due) bool { return !mine[d.ID] })
	return held, nil
}

// pass decides one wait whose owner is held, unless it has been decided meanwhile. Before its CodeCorruptRecord it has written
// nothing.
func (r *Repo) pass(tx *store.Tx, d due) (bool, error) {
	w, at, open, err := find(&tx.Queries, uuid.UUID(d.ID))
	if err != nil || !open || at.IsZero() || at.After(tx.Now()) {
		return false, err
	}
	o, decided := w.Decide(tx.Now())
	if !decided {
		o = wait.Outcome{By: wait.ByOwner, Received: w.Received}
	}
	if _, err := r.Close(tx, w.ID); err != nil {
		return false, err
	}
	tx.Call = call.Engine(d.Namespace)
	owner, id := r.owner(w.RunID, w.FlowID, w.ExecutionID)
	if err := owner.Decided(tx, w, o); err != nil {
		return false, fmt.Errorf("wait %s of %s: %w", w.ID, id, err)
	}
	return true, nil
}

// shelve puts a wait aside that cannot be read. Any other error it returns.
func shelve(tx *store.Tx, done *store.Swept, id store.ID, err error) error {
	if !done.PutAside(err) {
		return err
	}
	return tx.ExecOne(`UPDATE waits SET due_at = NULL WHERE id = ?`, id)
}

// NextDue returns when the next wait is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT min(due_at) FROM waits WHERE due_at IS NOT NULL`)
}
