package execution

import (
	"bytes"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

type openBucket struct {
	ID     int64  `db:"id"`
	Tokens string `db:"tokens"`
	Terms  string `db:"terms"`
}

// maxBuckets bounds how many buckets of its lanes one claim ranks: beyond it the order between buckets is not exact. reference: measured.md F.
const maxBuckets = 1000

// draining stands for a bucket in what open reads: the worker is draining.
const draining = 0

// open returns the buckets of some lanes that a worker may claim from and in which something stands, at most maxBuckets; those of
// what was lost only to take it over. It returns errDraining for a worker that is draining.
func (b *buckets) open(tx *store.Tx, namespace string, lanes []string, instance string, worker execution.Capabilities, reclaim bool) ([]openBucket, error) {
	fit, known := b.fitting(namespace, lanes, worker, reclaim)
	if !known {
		where := "b.namespace = ? AND b.lane IN ?"
		if !reclaim {
			where += " AND b.admission_key NOT LIKE '" + admissionLost + "%'"
		}
		return standing(tx, "claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id", "c.tokens", where, []any{namespace, store.List(lanes)}, namespace, instance, worker)
	}
	var open []openBucket
	for len(open) < maxBuckets {
		n := min(len(fit), maxBuckets)
		found, err := standing(tx, "claim_buckets b", "''", "b.id IN ?", []any{store.List(fit[:n])}, namespace, instance, worker)
		if err != nil {
			return nil, err
		}
		open, fit = append(open, found...), fit[n:]
		if len(fit) == 0 {
			break
		}
	}
	return open[:min(len(open), maxBuckets)], nil
}

// standing returns those of the selected buckets which are open, in which something stands, and that able satisfies.
func standing(tx *store.Tx, from, tokens, where string, args []any, namespace, instance string, able execution.Capabilities) ([]openBucket, error) {
	var rows []openBucket
	err := tx.Select(&rows, `SELECT b.id, `+tokens+` AS tokens, coalesce(b.terms, '') AS terms FROM `+from+` WHERE `+where+` AND b.state = 'open' AND b.held_by IS NULL AND b.stale = 0 AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)
		UNION ALL SELECT 0, '', '' FROM workers WHERE namespace = ? AND worker_instance_id = ? AND `+worker.Draining, append(args, namespace, instance, store.Millis(tx.Queries.Now()))...)
	open := make([]openBucket, 0, len(rows))
	for _, row := range rows {
		if row.ID == draining {
			return nil, errDraining
		}
		if able.Cover(execution.ParseCapabilities(row.Tokens)) {
			open = append(open, row)
		}
	}
	return open[:min(len(open), maxBuckets)], err
}

// waitKey is the hub's key for claims that wait on a lane.
func waitKey(namespace, lane string) string { return "claim/" + namespace + "/" + lane }

// heads returns those of the buckets that hold the n best claimable executions, ranked by their best one.
func heads(tx *store.Tx, open []openBucket, n int) ([]openBucket, error) {
	if len(open) <= 1 {
		return open, nil
	}
	ids, at := make([]int64, len(open)), make(map[int64]openBucket, len(open))
	for i, b := range open {
		ids[i], at[b.ID] = b.ID, b
	}
	slices.Sort(ids)
	var ranked []int64
	err := tx.Select(&ranked, `SELECT h.bucket FROM (
			SELECT b.id AS bucket, (SELECT e.id FROM executions e WHERE e.claim_bucket = b.id ORDER BY e.priority DESC, e.created_at, e.id LIMIT 1) AS head
			FROM claim_buckets b WHERE b.id IN ?
		) h JOIN executions x ON x.id = h.head
		ORDER BY x.priority DESC, x.created_at, x.id LIMIT ?`, store.List(ids), n)
	out := make([]openBucket, len(ranked))
	for i, id := range ranked {
		out[i] = at[id]
	}
	return out, err
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
