package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Pass makes the changes that are due for up to limit executions and returns how many rows it changed: deadlines, attempt
// timeouts, leases that ran out, delays that are over. Any number of processes may call it at the same time. A row that
// cannot be read is put aside and reported by the error; the others go on.
func (r *Repo) Pass(ctx context.Context, limit int) (int, error) {
	return store.Sweep(ctx, r.store, func(tx *store.Tx, done *store.Swept) error {
		rows, err := due(tx, limit)
		if err != nil {
			return fmt.Errorf("read due executions: %w", err)
		}
		tx.Later()
		for i := range rows {
			e, err := rows[i].execution()
			if done.PutAside(err) {
				err = shelve(tx, rows[i].ID)
			} else if err == nil {
				err = r.passOne(tx, &e)
				done.Acted++
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// due reads and locks up to limit executions that are due and that nobody holds.
func due(tx *store.Tx, limit int) (rows []row, err error) {
	from := ` FROM executions WHERE due_at <= ? AND ` + visible
	now := store.Millis(tx.Now())
	if !tx.Locks() {
		return rows, tx.Select(&rows, "SELECT "+columns+from+" ORDER BY due_at LIMIT ?", now, limit)
	}
	var found []owned
	if err := tx.Select(&found, "SELECT id, flow_id"+from+" ORDER BY due_at LIMIT ?", now, limit); err != nil || len(found) == 0 {
		return nil, err
	}
	ids, err := unheld(tx, found)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return rows, tx.Select(&rows, "SELECT "+columns+from+" AND id IN ? ORDER BY due_at"+tx.SkipLocked(), now, store.List(ids))
}

// passOne makes what is due for e. A due time that means nothing any more is set anew.
func (r *Repo) passOne(tx *store.Tx, e *execution.Execution) error {
	tx.Call.Namespace = e.Namespace
	if c, ok := e.Pass(tx.Now()); ok {
		return r.save(tx, e, c, nil)
	}
	return tx.ExecOne(`UPDATE executions SET due_at = ? WHERE id = ?`, store.Millis(e.DueAt()), store.ID(e.ID))
}

// shelve takes an execution that cannot be read out of everybody's way: no sweep and no claim finds it until it is mended.
func shelve(tx *store.Tx, id store.ID) error {
	return tx.ExecOne(`UPDATE executions SET due_at = NULL, claim_bucket = NULL WHERE id = ?`, id)
}

// NextDue returns when the next execution is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT (SELECT due_at FROM executions WHERE due_at IS NOT NULL AND `+visible+` ORDER BY due_at LIMIT 1)`)
}

// ExpireKeys forgets up to limit creation keys whose time is over, and returns how many.
func (r *Repo) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return store.ExpireRows(ctx, r.store, "execution_keys", "namespace, key", limit)
}
