package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// AdmissionLoop is the name of the work that opens claim buckets at their time, and moves those that stand in stale ones.
const AdmissionLoop = "admission"

// reopened is a bucket that was opened, and how many claims that wait it may serve.
type reopened struct {
	Namespace string `db:"namespace"`
	Lane      string `db:"lane"`
	Tokens    string `db:"tokens"`
	N         int    `db:"n"`
}

const unhold = `UPDATE claim_buckets SET held_by = NULL, held_id = NULL, held_key = NULL, held_need = NULL, held_detail = NULL, held_since = NULL, reopen_at = NULL WHERE held_by IS NOT NULL AND `

// returning says of the opened buckets whom that wakes.
const returning = ` RETURNING namespace, lane, (SELECT c.tokens FROM capability_sets c WHERE c.id = capability_set_id) AS tokens,
	(SELECT count(*) FROM (SELECT 1 FROM executions e WHERE e.claim_bucket = claim_buckets.id LIMIT ?) first) AS n`

// Reopen opens the buckets which a limit has closed because there was less than they need of something: room is what there is now.
// Claims that wait are woken for at most that many executions.
func (r *Repo) Reopen(tx *store.Tx, id uuid.UUID, key string, room int64) error {
	return r.unhold(tx, unhold+`held_id = ? AND held_key = ? AND held_need <= ? AND reopen_at IS NULL`, min(room, wakeMost), store.ID(id), key, room)
}

// ReopenAll opens the buckets which a limit has closed that is no more.
func (r *Repo) ReopenAll(tx *store.Tx, id uuid.UUID) error {
	return r.unhold(tx, unhold+`held_id = ?`, wakeMost, store.ID(id))
}

// unhold opens buckets, and wakes whom that serves.
func (*Repo) unhold(tx *store.Tx, statement string, wake int64, args ...any) error {
	var rows []reopened
	if err := tx.Select(&rows, statement+returning, append(args, wake)...); err != nil {
		return fmt.Errorf("open claim buckets: %w", err)
	}
	for _, b := range rows {
		for range b.N {
			tx.Signal(waitKey(b.Namespace, b.Lane), b.Tokens)
		}
	}
	return nil
}

// OpenDue opens the buckets whose time has come, and lets up to limit executions that stand in stale buckets stand where they belong
// now. It returns how many of these there were.
func (r *Repo) OpenDue(ctx context.Context, limit int) (int, error) {
	err := store.Do(ctx, r.store, func(tx *store.Tx) error {
		return r.unhold(tx, unhold+`reopen_at <= ?`, wakeMost, store.Millis(tx.Now()))
	}, store.Background())
	if err != nil {
		return 0, err
	}
	return withBuckets(ctx, r, func() (int, error) {
		return store.Write(ctx, r.store, func(tx *store.Tx, n *int) error {
			*n = 0
			return r.moveStale(tx, limit, n)
		}, store.Background())
	})
}

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

// NextOpen returns when the next bucket opens, or is to be emptied.
func (r *Repo) NextOpen(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT CASE WHEN EXISTS (SELECT 1 FROM claim_buckets b WHERE b.stale = 1 AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)) THEN 1
		ELSE (SELECT reopen_at FROM claim_buckets WHERE reopen_at IS NOT NULL ORDER BY reopen_at LIMIT 1) END`)
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
