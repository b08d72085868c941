package execution

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// moveStale moves executions out of stale buckets, which take turns.
func (r *Repo) moveStale(tx *store.Tx, limit int, n *int) error {
	var stale []int64
	if err := tx.Select(&stale, `SELECT b.id FROM claim_buckets b WHERE b.stale = 1 AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id) LIMIT ?`, limit); err != nil {
		return fmt.Errorf("look for stale claim buckets: %w", err)
	}
	if len(stale) == 0 {
		return nil
	}
	r.lanes.forget()
	moves, missing := map[bucketKey][]*execution.Execution{}, missingBuckets{}
	for _, bucket := range stale {
		list, _, err := standingIn(tx, bucket, max(limit/len(stale), 1))
		if err != nil {
			return err
		}
		*n += len(list)
		for i := range list {
			key, err := r.keyOf(tx, &list[i])
			if err != nil {
				return err
			}
			moves[key] = append(moves[key], &list[i])
		}
	}
	for key, list := range moves {
		id, err := r.buckets.find(tx, key)
		if m, ok := errors.AsType[*missingBuckets](err); ok {
			missing.keys = append(missing.keys, m.keys...)
			continue
		}
		if err == nil {
			err = r.move(tx, list, id)
		}
		if err != nil {
			return err
		}
	}
	if len(missing.keys) > 0 {
		return &missing
	}
	return nil
}

// inBucket finds the best executions of a bucket, the best first.
const inBucket = " FROM executions WHERE claim_bucket = ? ORDER BY priority DESC, created_at, id LIMIT ?"

// standingIn locks the best executions of a bucket that nobody else is taking. Those that cannot be read are put aside, and counted.
func standingIn(tx *store.Tx, bucket int64, limit int) (list []execution.Execution, shelved int, err error) {
	var rows []row
	if err := tx.Select(&rows, "SELECT "+columns+inBucket+tx.SkipLocked(), bucket, limit); err != nil {
		return nil, 0, fmt.Errorf("read claim bucket %d: %w", bucket, err)
	}
	list = make([]execution.Execution, 0, len(rows))
	for i := range rows {
		e, err := rows[i].execution()
		if err == nil {
			list = append(list, e)
			continue
		}
		tx.Report(err)
		if err := shelve(tx, rows[i].ID); err != nil {
			return nil, 0, err
		}
		shelved++
	}
	return list, shelved, nil
}

// move lets executions stand in another bucket.
func (r *Repo) move(tx *store.Tx, list []*execution.Execution, bucket int64) error {
	ids := make([]store.ID, len(list))
	for i, e := range list {
		ids[i] = store.ID(e.ID)
		tx.Signal(waitKey(e.Namespace, e.Lane), e.Required.String())
	}
	if _, err := tx.Exec(`UPDATE executions SET claim_bucket = ? WHERE id IN ?`, bucket, store.List(ids)); err != nil {
		return fmt.Errorf("move %d executions to another claim bucket: %w", len(list), err)
	}
	return r.nudge(tx, list[0], bucket)
}

// SetAdmitted notes whether an execution, which is locked, has a slot of some quota, and lets it stand where it belongs then.
func (r *Repo) SetAdmitted(tx *store.Tx, e *execution.Execution, admitted bool) error {
	e.Admitted = admitted
	if err := tx.ExecOne(`UPDATE executions SET admitted = ? WHERE id = ?`, store.Bit(admitted), store.ID(e.ID)); err != nil {
		return fmt.Errorf("note the slots of execution %s: %w", e.ID, err)
	}
	if !e.Claimable() {
		return nil
	}
	key, err := r.keyOf(tx, e)
	if err != nil {
		return err
	}
	id, err := r.buckets.of(tx, key)
	if err != nil {
		return err
	}
	return r.move(tx, []*execution.Execution{e}, id)
}

// Retire deletes up to limit claim buckets with terms in which nobody stands: there is one for every tenant and every set of budgets
// that ever was. Whoever needs one again makes it. It returns how many went.
func (r *Repo) Retire(ctx context.Context, limit int) (int, error) {
	if err := r.buckets.learn(ctx, r.store); err != nil { // what is read of them now is not forgotten too early
		return 0, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		const empty = `NOT EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = claim_buckets.id)`
		var ids []int64
		if err := tx.Select(&ids, `SELECT id FROM claim_buckets WHERE terms IS NOT NULL AND `+empty+` LIMIT ?`+tx.SkipLocked(), limit); err != nil {
			return fmt.Errorf("look for empty claim buckets: %w", err)
		}
		if *out = len(ids); len(ids) == 0 {
			return nil
		}
		var gone []int64
		if err := tx.Select(&gone, `DELETE FROM claim_buckets WHERE id IN ? AND `+empty+` RETURNING id`, store.List(ids)); err != nil { // with a look of its own, after the locks
			return fmt.Errorf("delete empty claim buckets: %w", err)
		}
		r.buckets.forget(gone)
		tx.OnCommit(func() { r.buckets.forget(gone) }) // whoever has found one before, in the same commit, has just remembered it
		return nil
	}, store.Background())
}
