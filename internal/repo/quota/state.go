package quota

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/quota"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// place is what a quota counts for itself: one value of its key.
type place struct {
	id  uuid.UUID
	key string
}

func (p place) order(o place) int {
	return cmp.Or(store.ByID(p.id, o.id), cmp.Compare(p.key, o.key))
}

func placeOf(t execution.QuotaTerm) place { return place{t.ID, t.Key} }

// state is how a place stands in this transaction, which has it locked, and what that adds to it.
type state struct {
	gone    bool // there is no such quota any more: nothing is limited
	quota   quota.Quota
	usage   quota.Usage
	starts  int64 // counted before this transaction
	slots   []uuid.UUID
	started int64
	at      time.Time // when they have started
	toldAt  time.Time // when it was last told that it refuses
}

// desk is what one transaction knows and does of quotas.
type desk struct {
	states map[place]*state
	ended  []uuid.UUID // executions whose slots are given back
}

type deskKey struct{}

// Rank says that the sum is written early: claims lock quotas, then budgets, and in the end what the members of a flow share.
func (deskKey) Rank() int { return 2 }

func (r *Repo) desk(tx *store.Tx) *desk {
	d := store.Local[desk](tx, deskKey{})
	if d.states == nil {
		d.states = map[place]*state{}
	}
	return d
}

// moved makes the transaction write its desk down in the end.
func (r *Repo) moved(tx *store.Tx) *desk {
	d := r.desk(tx)
	store.Sum(tx, deskKey{}, func(*struct{}) error { return r.write(tx, d) })
	return d
}

type stateRow struct {
	row
	Starts int64        `db:"starts"`
	ToldAt store.Millis `db:"told_at"`
}

const selectState = `SELECT q.id, q.namespace, q.window_ms, q.max_requests, q.max_concurrent, q.jitter_ms, q.key_tag, q.created_at, k.active, k.starts, k.told_at
	FROM quotas q JOIN quota_keys k ON k.quota_id = q.id WHERE k.quota_id = ? AND k.key = ?`

// Lock locks what terms name, in one order.
func (r *Repo) Lock(tx *store.Tx, terms []execution.QuotaTerm) error {
	d := r.desk(tx)
	var missing []place
	for _, t := range terms {
		if p := placeOf(t); d.states[p] == nil && !slices.Contains(missing, p) {
			missing = append(missing, p)
		}
	}
	slices.SortFunc(missing, place.order)
	for _, p := range missing {
		s, err := lock(tx, p)
		if err != nil {
			return err
		}
		d.states[p] = s
	}
	return nil
}

// lock locks one place, which it makes if nothing was counted there yet.
func lock(tx *store.Tx, p place) (*state, error) {
	var found stateRow
	query := selectState + tx.ForUpdateOf("k")
	err := tx.Get(&found, query, store.ID(p.id), p.key)
	if store.NotFound(err) {
		if _, err := tx.Exec(`INSERT INTO quota_keys (quota_id, key, active, starts) SELECT id, ?, 0, 0 FROM quotas WHERE id = ? ON CONFLICT DO NOTHING`, p.key, store.ID(p.id)); err != nil {
			return nil, fmt.Errorf("count for quota %s: %w", p.id, err)
		}
		err = tx.Get(&found, query, store.ID(p.id), p.key)
	}
	if store.NotFound(err) {
		return &state{gone: true}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read quota %s: %w", p.id, err)
	}
	tx.Later()
	s := &state{quota: found.quota(), starts: found.Starts, toldAt: time.Time(found.ToldAt)}
	s.usage, err = usageOf(&tx.Queries, p, &found, tx.Now())
	return s, err
}

// usageOf returns what a place has counted. A start counts while its window lasts.
func usageOf(q *store.Queries, p place, found *stateRow, now time.Time) (quota.Usage, error) {
	u := quota.Usage{Active: found.Active}
	if found.MaxRequests == 0 {
		return u, nil
	}
	var first struct {
		N     int64        `db:"n"`
		Count int64        `db:"count"`
		At    store.Millis `db:"at"`
	}
	since := now.Add(-time.Duration(found.WindowMS) * time.Millisecond)
	err := q.Get(&first, `SELECT n, count, at FROM quota_starts WHERE quota_id = ? AND key = ? AND at > ? ORDER BY n LIMIT 1`, store.ID(p.id), p.key, store.Millis(since))
	switch {
	case store.NotFound(err):
		return u, nil
	case err != nil:
		return u, fmt.Errorf("read the window of quota %s: %w", p.id, err)
	}
	u.Recent, u.Oldest = found.Starts-first.N+first.Count, time.Time(first.At)
	return u, nil
}

// Check locks what terms name and says how many executions may pass, or what holds them up.
func (r *Repo) Check(tx *store.Tx, terms []execution.QuotaTerm) (room int64, hold *execution.Hold, err error) {
	room = math.MaxInt64
	if len(terms) == 0 {
		return room, nil, nil
	}
	if err := r.Lock(tx, terms); err != nil {
		return 0, nil, err
	}
	d := r.desk(tx)
	for _, t := range terms {
		s := d.states[placeOf(t)]
		if s.gone {
			continue
		}
		if hold := holdOf(&s.quota, s.usage, t, tx.Now(), jitter(s.quota.Jitter)); hold != nil {
			return 0, hold, nil
		}
		room = min(room, s.quota.Room(s.usage, t.Slot, t.Start))
	}
	return room, nil, nil
}

// Look is Check without locks.
func (r *Repo) Look(q *store.Queries, terms []execution.QuotaTerm) (*execution.Hold, error) {
	now := q.Now().Truncate(time.Millisecond)
	for _, t := range terms {
		var found stateRow
		err := q.Get(&found, selectState, store.ID(t.ID), t.Key)
		if store.NotFound(err) { // nothing was counted, or it is gone
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read quota %s: %w", t.ID, err)
		}
		usage, err := usageOf(q, placeOf(t), &found, now)
		if err != nil {
			return nil, err
		}
		of := found.quota()
		if hold := holdOf(&of, usage, t, now, 0); hold != nil {
			return hold, nil
		}
	}
	return nil, nil
}

// holdOf says how a quota holds up what needs t.
func holdOf(q *quota.Quota, u quota.Usage, t execution.QuotaTerm, now time.Time, after time.Duration) *execution.Hold {
	v := q.Check(u, t.Slot, t.Start, now)
	h := &execution.Hold{By: execution.HeldByQuota, ID: t.ID, Key: t.Key, Need: 1, Since: now}
	of := ""
	if q.KeyTag != "" {
		of = fmt.Sprintf(" of %s %q", q.KeyTag, t.Key)
	}
	switch v.Outcome {
	case quota.RateExceeded:
		h.Until = v.RetryAt.Add(after)
		h.Detail = fmt.Sprintf("Quota %s lets %d begin%s within %s.", q.ID, q.MaxRequests, of, q.Window)
	case quota.ConcurrencyExceeded:
		h.Detail = fmt.Sprintf("Quota %s lets %d be at work%s at a time.", q.ID, q.MaxConcurrent, of)
	default:
		return nil
	}
	return h
}

// jitter spreads what would begin at the same time.
func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(most) + 1)).Truncate(time.Millisecond) //nolint:gosec // a pause is no secret
}

// Take counts an execution that has passed terms which were checked, and says whether it has a slot now.
func (r *Repo) Take(tx *store.Tx, id uuid.UUID, terms []execution.QuotaTerm) (slot bool) {
	if len(terms) == 0 {
		return false
	}
	d := r.moved(tx)
	for _, t := range terms {
		s := d.states[placeOf(t)]
		if s.gone {
			continue
		}
		if t.Slot {
			s.slots, slot = append(s.slots, id), true
			s.usage.Active++
		}
		if t.Start {
			s.started, s.at = s.started+1, tx.Now()
			if s.usage.Recent++; s.usage.Recent == 1 {
				s.usage.Oldest = s.at
			}
		}
	}
	return slot
}

// Ended gives back the slots of an execution that has ended.
func (r *Repo) Ended(tx *store.Tx, id uuid.UUID) {
	d := r.moved(tx)
	d.ended = append(d.ended, id)
}

// Held returns the quotas of which an execution has a slot.
func (*Repo) Held(q *store.Queries, id uuid.UUID) ([]uuid.UUID, error) {
	var ids []store.ID
	if err := q.Select(&ids, `SELECT quota_id FROM quota_admissions WHERE execution_id = ?`, store.ID(id)); err != nil {
		return nil, fmt.Errorf("read the slots of execution %s: %w", id, err)
	}
	return store.UUIDs(ids), nil
}
