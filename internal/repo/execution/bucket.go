package execution

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// buckets knows the claim buckets. Buckets and capability sets never change once they exist, so they are remembered.
type buckets struct {
	mu  *sync.RWMutex
	ids map[bucketKey]int64
	// known are all buckets of all lanes, where no other process makes any; nil until they are read.
	known map[laneKey]map[int64]execution.Capabilities
}

type bucketKey struct {
	laneKey
	capabilities string
}

type laneKey struct{ namespace, lane string }

func newBuckets() buckets { return buckets{mu: &sync.RWMutex{}, ids: map[bucketKey]int64{}} }

// learn reads all buckets, once, where no other process makes any: a claim then looks only at those that its worker satisfies.
// What is committed after that is added by [buckets.add]. It runs before the claim's transaction, since what that makes may be
// rolled back.
func (b *buckets) learn(ctx context.Context, s *store.Store) error {
	if !s.Alone() {
		return nil
	}
	b.mu.RLock()
	done := b.known != nil
	b.mu.RUnlock()
	if done {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock() // nobody adds meanwhile: what is committed and not read here is added after this
	if b.known != nil {
		return nil
	}
	var rows []struct {
		Namespace string `db:"namespace"`
		Lane      string `db:"lane"`
		openBucket
	}
	err := s.Read(ctx, func(q *store.Queries) error {
		return q.Select(&rows, `SELECT b.namespace, b.lane, b.id, c.tokens FROM claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id`)
	})
	if err != nil {
		return fmt.Errorf("read claim buckets: %w", err)
	}
	b.known = map[laneKey]map[int64]execution.Capabilities{}
	for _, r := range rows {
		b.add(bucketKey{laneKey{r.Namespace, r.Lane}, r.Tokens}, r.ID)
	}
	return nil
}

// add remembers a bucket that is committed. The caller has the lock.
func (b *buckets) add(key bucketKey, id int64) {
	b.ids[key] = id
	if b.known == nil {
		return
	}
	if b.known[key.laneKey] == nil {
		b.known[key.laneKey] = map[int64]execution.Capabilities{}
	}
	b.known[key.laneKey][id] = execution.ParseCapabilities(key.capabilities)
}

// fitting returns the buckets of some lanes that a worker satisfies; false where that is not known.
func (b *buckets) fitting(namespace string, lanes []string, worker execution.Capabilities) (ids []int64, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, lane := range lanes {
		for id, need := range b.known[laneKey{namespace, lane}] {
			if worker.Cover(need) {
				ids = append(ids, id)
			}
		}
	}
	return ids, b.known != nil
}

// of returns the id of e's bucket, which it makes if there is none.
func (b *buckets) of(tx *store.Tx, e *execution.Execution) (int64, error) {
	key := bucketKey{laneKey{e.Namespace, e.Lane}, e.Required.String()}
	b.mu.RLock()
	id, ok := b.ids[key]
	b.mu.RUnlock()
	if ok {
		return id, nil
	}
	set, err := idOf(tx, `SELECT id FROM capability_sets WHERE tokens = ?`, `INSERT INTO capability_sets (tokens) VALUES (?) ON CONFLICT DO NOTHING`, key.capabilities)
	if err != nil {
		return 0, err
	}
	// The lane is locked by whoever makes a bucket of it: pausing it then misses none.
	lane, err := lockLane(tx, key.namespace, key.lane)
	if err != nil {
		return 0, err
	}
	id, err = idOf(tx, `SELECT id FROM claim_buckets WHERE namespace = ? AND lane = ? AND capability_set_id = ? AND admission_key = ''`,
		`INSERT INTO claim_buckets (namespace, lane, capability_set_id, admission_key, state) VALUES (?, ?, ?, '', '`+bucketState(lane.State)+`') ON CONFLICT DO NOTHING`,
		key.namespace, key.lane, set)
	if err != nil {
		return 0, err
	}
	tx.OnCommit(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.add(key, id)
	})
	return id, nil
}

// idOf selects the id of a row, and inserts the row first if there is none.
func idOf(tx *store.Tx, query, insert string, args ...any) (int64, error) {
	var id int64
	err := tx.Get(&id, query, args...)
	if !store.NotFound(err) {
		return id, err
	}
	if _, err := tx.Exec(insert, args...); err != nil {
		return 0, err
	}
	err = tx.Get(&id, query, args...)
	return id, err
}

type openBucket struct {
	ID     int64  `db:"id"`
	Tokens string `db:"tokens"`
}

// maxBuckets bounds how many buckets of its lanes one claim ranks: beyond it the order between buckets is not exact. reference: measured.md F.
const maxBuckets = 1000

// draining stands for a bucket in what open reads: the worker is draining.
const draining = 0

// open returns the buckets of some lanes that a worker may claim from and in which something stands, at most maxBuckets. It
// returns errDraining for a worker that is draining.
func (b *buckets) open(tx *store.Tx, namespace string, lanes []string, instance string, worker execution.Capabilities) ([]int64, error) {
	fit, known := b.fitting(namespace, lanes, worker)
	if !known {
		in, size := store.In(len(lanes))
		return standing(tx, "claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id", "c.tokens", "b.namespace = ? AND b.lane IN "+in,
			append([]any{namespace}, store.InArgs(lanes, size)...), namespace, instance, worker)
	}
	var ids []int64
	for len(ids) < maxBuckets {
		n := min(len(fit), maxBuckets)
		some := append(fit[:n:n], draining) // no bucket has this id, and a list needs one
		fit = fit[n:]
		in, size := store.In(len(some))
		found, err := standing(tx, "claim_buckets b", "''", "b.id IN "+in, store.InArgs(some, size), namespace, instance, worker)
		if err != nil {
			return nil, err
		}
		if ids = append(ids, found...); len(fit) == 0 {
			break
		}
	}
	return ids[:min(len(ids), maxBuckets)], nil
}

// standing returns those of the selected buckets which are open, in which something stands, and that worker satisfies.
func standing(tx *store.Tx, from, tokens, where string, args []any, namespace, instance string, worker execution.Capabilities) ([]int64, error) {
	var rows []openBucket
	err := tx.Select(&rows, `SELECT b.id, `+tokens+` AS tokens FROM `+from+` WHERE `+where+` AND b.state = 'open' AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)
		UNION ALL SELECT 0, '' FROM workers WHERE namespace = ? AND worker_instance_id = ? AND draining_since IS NOT NULL`, append(args, namespace, instance)...)
	ids := make([]int64, 0, len(rows))
	for _, row := range rows {
		if row.ID == draining {
			return nil, errDraining
		}
		if worker.Cover(execution.ParseCapabilities(row.Tokens)) {
			ids = append(ids, row.ID)
		}
	}
	return ids[:min(len(ids), maxBuckets)], err
}

// waitKey is the hub's key for claims that wait on a lane.
func waitKey(namespace, lane string) string { return "claim/" + namespace + "/" + lane }

// runnableOnly leaves out what others have lost.
const runnableOnly = " AND lifecycle_phase = 'runnable'"

// heads returns those of the buckets that hold the n best claimable executions, ranked by their best one.
func heads(tx *store.Tx, ids []int64, n int, reclaim bool) ([]int64, error) {
	if len(ids) <= 1 {
		return ids, nil
	}
	only := ""
	if !reclaim {
		only = runnableOnly
	}
	slices.Sort(ids)
	in, size := store.In(len(ids))
	var ranked []int64
	err := tx.Select(&ranked, `SELECT h.bucket FROM (
			SELECT b.id AS bucket, (SELECT e.id FROM executions e WHERE e.claim_bucket = b.id`+only+` ORDER BY e.priority DESC, e.created_at, e.id LIMIT 1) AS head
			FROM claim_buckets b WHERE b.id IN `+in+`
		) h JOIN executions x ON x.id = h.head
		ORDER BY x.priority DESC, x.created_at, x.id LIMIT ?`, append(store.InArgs(ids, size), n)...)
	return ranked, err
}

// order is that of claims: priority, then age, then id.
func order(a, b *execution.Execution) int {
	switch {
	case a.Priority != b.Priority:
		return b.Priority - a.Priority
	case !a.CreatedAt.Equal(b.CreatedAt):
		return a.CreatedAt.Compare(b.CreatedAt)
	default:
		return bytes.Compare(a.ID[:], b.ID[:])
	}
}

// place returns of r what decides about its order.
func (r *row) place() *execution.Execution {
	return &execution.Execution{ID: uuid.UUID(r.ID), Priority: r.Priority, CreatedAt: time.Time(r.CreatedAt)}
}
