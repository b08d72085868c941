package execution

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Claimable executions stand in buckets: those of one bucket differ in nothing that decides who may have them. What others
// have lost stands apart, so that who does not take over need not step over it.

// buckets knows the claim buckets. Buckets and capability sets never change once they exist, so they are remembered; those with terms
// are deleted when they are empty, so they are remembered only where no other process does that.
type buckets struct {
	mu  *sync.RWMutex
	ids map[bucketKey]int64
	// known are the buckets of all lanes, where no other process makes any: all of them once learnt is set.
	known  map[laneKey]map[int64]need
	learnt bool
	terms  map[string]execution.Terms // by how they are spelled: those that were looked at
}

type bucketKey struct {
	laneKey
	capabilities string
	lost         bool
	terms        string // as [execution.Terms.String] spells them
}

type laneKey struct{ namespace, lane string }

// need is what a worker must have, and be ready for, to claim from a bucket.
type need struct {
	capabilities execution.Capabilities
	lost         bool
}

// admissionLost is how the admission keys of the buckets begin that hold what was lost.
const admissionLost = "lost"

// admission returns the admission key of a bucket: that of one without terms says all, others are digests.
func (k bucketKey) admission() string {
	key := ""
	if k.lost {
		key = admissionLost
	}
	if k.terms != "" {
		sum := sha256.Sum256([]byte(k.terms))
		key += ":" + hex.EncodeToString(sum[:16])
	}
	return key
}

// keyOf returns the key of the bucket for e, claimable or not.
func (r *Repo) keyOf(tx *store.Tx, e *execution.Execution) (bucketKey, error) {
	quotas, err := r.lanes.quotas(tx, laneKey{e.Namespace, e.Lane})
	if err != nil {
		return bucketKey{}, err
	}
	terms, err := r.termsIn(&tx.Queries, e, quotas)
	return keyWith(e, &terms), err
}

func keyWith(e *execution.Execution, terms *execution.Terms) bucketKey {
	return bucketKey{laneKey{e.Namespace, e.Lane}, e.Required.String(), e.Lost(), terms.String()}
}

// termsOf returns what decides whether e may be claimed, beside lane and capabilities.
func (r *Repo) termsOf(q *store.Queries, e *execution.Execution) (execution.Terms, error) {
	lane, err := findLane(q, e.Namespace, e.Lane, "")
	if err != nil {
		return execution.Terms{}, err
	}
	return r.termsIn(q, e, lane.Quotas)
}

// termsIn is termsOf in a lane with such quotas.
func (r *Repo) termsIn(q *store.Queries, e *execution.Execution, quotas []execution.QuotaRef) (execution.Terms, error) {
	var held []uuid.UUID
	if e.Admitted {
		var err error
		if held, err = r.quotas.Held(q, e.ID); err != nil {
			return execution.Terms{}, err
		}
	}
	return e.Terms(quotas, held), nil
}

func newBuckets() buckets {
	return buckets{mu: &sync.RWMutex{}, ids: map[bucketKey]int64{}, terms: map[string]execution.Terms{}}
}

// missingBuckets says that executions cannot be made before their buckets: those are made in a transaction of their own, as two
// batches that make the same ones in another order would lock each other out.
type missingBuckets struct{ keys []bucketKey }

func (m *missingBuckets) Error() string {
	return fmt.Sprintf("%d claim buckets are missing", len(m.keys))
}

// find returns the id of a bucket. It returns a missingBuckets if there is none.
func (b *buckets) find(tx *store.Tx, key bucketKey) (int64, error) {
	if key.terms != "" && tx.Locks() {
		return b.look(&tx.Queries, key, tx.ForKeyShare("b")) // it is not deleted before the end of the transaction
	}
	b.mu.RLock()
	id, ok := b.ids[key]
	b.mu.RUnlock()
	if ok {
		return id, nil
	}
	id, err := b.look(&tx.Queries, key, "")
	if err != nil {
		return 0, err
	}
	b.remember(tx, key, id)
	return id, nil
}

// look is find without what is remembered.
func (*buckets) look(q *store.Queries, key bucketKey, lock string) (id int64, err error) {
	err = q.Get(&id, `SELECT b.id FROM capability_sets c JOIN claim_buckets b ON b.capability_set_id = c.id
		WHERE c.tokens = ? AND b.namespace = ? AND b.lane = ? AND b.admission_key = ?`+lock, key.capabilities, key.namespace, key.lane, key.admission())
	switch {
	case store.NotFound(err):
		return 0, &missingBuckets{[]bucketKey{key}}
	case err != nil:
		return 0, fmt.Errorf("find claim bucket: %w", err)
	}
	return id, nil
}

// of returns the id of a bucket, which it makes if there is none.
func (b *buckets) of(tx *store.Tx, key bucketKey) (int64, error) {
	id, err := b.find(tx, key)
	if _, missing := errors.AsType[*missingBuckets](err); !missing {
		return id, err
	}
	if err := b.make(tx, key); err != nil {
		return 0, err
	}
	return b.find(tx, key)
}

// make makes the buckets of a lane for a set of capabilities, unless they are there. The lane is locked, so that pausing it misses
// none.
func (b *buckets) make(tx *store.Tx, key bucketKey) error {
	lane, err := lockLane(tx, key.namespace, key.lane)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO capability_sets (tokens) VALUES (?) ON CONFLICT DO NOTHING`, key.capabilities); err != nil {
		return fmt.Errorf("make set of capabilities: %w", err)
	}
	pair := []bucketKey{key}
	if key.terms == "" { // most likely soon
		key.lost = !key.lost
		pair = append(pair, key)
	}
	for _, k := range pair {
		terms, err := execution.ParseTerms(k.terms)
		if err != nil {
			return fmt.Errorf("terms of a claim bucket: %w", err)
		}
		stale := 0
		if terms.Lane != execution.LaneQuotas(lane.Quotas) { // they were changed just now
			stale = 1
		}
		_, err = tx.Exec(`INSERT INTO claim_buckets (namespace, lane, capability_set_id, admission_key, terms, lane_quotas, stale, state)
			SELECT ?, ?, id, ?, ?, ?, CAST(? AS INTEGER), ? FROM capability_sets WHERE tokens = ? ON CONFLICT DO NOTHING`,
			k.namespace, k.lane, k.admission(), store.Text(k.terms), store.Text(terms.Lane), stale, bucketState(lane.State), k.capabilities)
		if err != nil {
			return fmt.Errorf("make claim bucket: %w", err)
		}
	}
	return nil
}

// withBuckets runs a transaction that makes executions, and makes the buckets first that it finds missing.
func withBuckets[T any](ctx context.Context, r *Repo, write func() (T, error)) (T, error) {
	for {
		out, err := write()
		missing, ok := errors.AsType[*missingBuckets](err)
		if !ok {
			return out, err
		}
		slices.SortFunc(missing.keys, func(a, b bucketKey) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.lane, b.lane), cmp.Compare(a.capabilities, b.capabilities), cmp.Compare(a.terms, b.terms))
		})
		err = store.Do(call.With(ctx, call.Engine(call.From(ctx).Namespace)), r.store, func(tx *store.Tx) error {
			for _, key := range slices.Compact(missing.keys) {
				if err := r.buckets.make(tx, key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return *new(T), err
		}
	}
}

func (b *buckets) remember(tx *store.Tx, key bucketKey, id int64) {
	tx.OnCommit(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.add(key, id)
	})
}

// learn reads all buckets, once, where no other process makes any: a claim then looks only at those that its worker satisfies. It
// runs before the claim's transaction, since what that makes may be rolled back. What is committed meanwhile is added by
// [buckets.add]; nobody waits for it.
func (b *buckets) learn(ctx context.Context, s *store.Store) error {
	if !s.Alone() {
		return nil
	}
	b.mu.RLock()
	learnt := b.learnt
	b.mu.RUnlock()
	if learnt {
		return nil
	}
	b.mu.Lock()
	if b.known == nil {
		b.known = map[laneKey]map[int64]need{} // from now on it misses none that is committed
	}
	b.mu.Unlock()
	var rows []struct {
		Namespace string `db:"namespace"`
		Lane      string `db:"lane"`
		Admission string `db:"admission_key"`
		openBucket
	}
	err := s.Read(ctx, func(q *store.Queries) error {
		return q.Select(&rows, `SELECT b.namespace, b.lane, b.admission_key, b.id, c.tokens, coalesce(b.terms, '') AS terms FROM claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id`)
	})
	if err != nil {
		return fmt.Errorf("read claim buckets: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.learnt { // by another one, since when some may have been deleted
		return nil
	}
	for _, r := range rows {
		b.add(bucketKey{laneKey{r.Namespace, r.Lane}, r.Tokens, strings.HasPrefix(r.Admission, admissionLost), r.Terms}, r.ID)
	}
	b.learnt = true
	return nil
}

// add remembers a bucket that is committed. The caller has the lock.
func (b *buckets) add(key bucketKey, id int64) {
	b.ids[key] = id
	if b.known == nil {
		return
	}
	if b.known[key.laneKey] == nil {
		b.known[key.laneKey] = map[int64]need{}
	}
	b.known[key.laneKey][id] = need{execution.ParseCapabilities(key.capabilities), key.lost}
}

// mostTerms bounds how many terms are remembered.
const mostTerms = 10_000

// parse reads terms, which nobody changes.
func (b *buckets) parse(text string) (execution.Terms, error) {
	b.mu.RLock()
	t, known := b.terms[text]
	b.mu.RUnlock()
	if known {
		return t, nil
	}
	t, err := execution.ParseTerms(text)
	if err != nil {
		return t, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.terms) >= mostTerms {
		clear(b.terms)
	}
	b.terms[text] = t
	return t, nil
}

// forget forgets buckets that are deleted by this transaction: if it is rolled back, they are found again.
func (b *buckets) forget(ids []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := make(map[int64]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	for key, id := range b.ids {
		if gone[id] {
			delete(b.ids, key)
			delete(b.known[key.laneKey], id)
		}
	}
}

// fitting returns the buckets of some lanes that a worker satisfies; false where that is not known.
func (b *buckets) fitting(namespace string, lanes []string, worker execution.Capabilities, reclaim bool) (ids []int64, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, lane := range lanes {
		for id, need := range b.known[laneKey{namespace, lane}] {
			if (reclaim || !need.lost) && worker.Cover(need.capabilities) {
				ids = append(ids, id)
			}
		}
	}
	return ids, b.learnt
}
