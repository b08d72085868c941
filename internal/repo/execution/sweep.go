package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// Pass makes the changes that are due for up to limit executions and returns how many it looked at: deadlines, attempt
// timeouts, leases that ran out, delays that are over. Any number of processes may call it at the same time.
func (r *Repo) Pass(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var rows []row
		err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE due_at <= ? ORDER BY due_at LIMIT ?"+tx.SkipLocked(), store.Millis(tx.Now()), limit)
		if err != nil {
			return fmt.Errorf("read due executions: %w", err)
		}
		list, err := executionsOf(rows)
		if err != nil {
			return err
		}
		*out = len(list)
		for i := range list {
			tx.Call.Namespace = list[i].Namespace
			if c, ok := list[i].Pass(tx.Now()); ok {
				if err := r.save(tx, &list[i], c, nil); err != nil {
					return err
				}
			}
		}
		return nil
	}, store.Background())
}

// NextDue returns when the next execution is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT min(due_at) FROM executions WHERE due_at IS NOT NULL`)
}

// ExpireKeys forgets up to limit creation keys whose time is over, and returns how many.
func (r *Repo) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return store.Expire(ctx, r.store, `DELETE FROM execution_keys WHERE (namespace, key) IN
		(SELECT namespace, key FROM execution_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, limit)
}
