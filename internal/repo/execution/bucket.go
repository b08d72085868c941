package execution

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// buckets finds the claim bucket of an execution. Buckets and capability sets never change once they exist, so their ids
// are remembered.
type buckets struct {
	mu  *sync.RWMutex
	ids map[bucketKey]int64
}

type bucketKey struct {
	namespace, lane, capabilities string
}

func newBuckets() buckets { return buckets{mu: &sync.RWMutex{}, ids: map[bucketKey]int64{}} }

// of returns the id of e's bucket, which it makes if there is none.
func (b *buckets) of(tx *store.Tx, e *execution.Execution) (int64, error) {
	key := bucketKey{e.Namespace, e.Lane, e.Required.String()}
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
		b.ids[key] = id
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
func (*buckets) open(tx *store.Tx, namespace string, lanes []string, instance string, worker execution.Capabilities) ([]int64, error) {
	in, size := store.In(len(lanes))
	var rows []openBucket
	args := append([]any{namespace}, store.InArgs(lanes, size)...)
	err := tx.Select(&rows, `SELECT b.id, c.tokens FROM claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id
		WHERE b.namespace = ? AND b.lane IN `+in+` AND b.state = 'open' AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)
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
