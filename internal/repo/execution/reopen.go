package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

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

// NextOpen returns when the next bucket opens, or is to be emptied.
func (r *Repo) NextOpen(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT CASE WHEN EXISTS (SELECT 1 FROM claim_buckets b WHERE b.stale = 1 AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)) THEN 1
		ELSE (SELECT reopen_at FROM claim_buckets WHERE reopen_at IS NOT NULL ORDER BY reopen_at LIMIT 1) END`)
}
