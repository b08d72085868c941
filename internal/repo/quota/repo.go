// Package quota keeps quotas: how many executions may begin within a window, and how many may be at work.
package quota

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/quota"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Repo is the store of quotas.
type Repo struct {
	store      *store.Store
	executions Executions
}

// Executions is what quotas need to know of the executions that they hold up.
type Executions interface {
	// State returns an execution of the caller's namespace and locks it. It returns CodeNotFound.
	State(tx *store.Tx, id uuid.UUID) (execution.Execution, error)
	// SetAdmitted notes whether an execution, which is locked, has a slot of some quota, and lets it stand where it belongs then.
	SetAdmitted(tx *store.Tx, e *execution.Execution, admitted bool) error
	// Reopen opens the buckets that were held up for want of room.
	Reopen(tx *store.Tx, id uuid.UUID, key string, room int64) error
	// ReopenAll opens the buckets that a quota holds up.
	ReopenAll(tx *store.Tx, id uuid.UUID) error
}

// New returns a repository on s.
func New(s *store.Store, executions Executions) *Repo { return &Repo{store: s, executions: executions} }

const columns = `id, namespace, window_ms, max_requests, max_concurrent, jitter_ms, key_tag, created_at`

type row struct {
	ID            store.ID     `db:"id"`
	Namespace     string       `db:"namespace"`
	WindowMS      int64        `db:"window_ms"`
	MaxRequests   int64        `db:"max_requests"`
	MaxConcurrent int64        `db:"max_concurrent"`
	JitterMS      int64        `db:"jitter_ms"`
	KeyTag        store.Text   `db:"key_tag"`
	CreatedAt     store.Millis `db:"created_at"`
	Active        int64        `db:"active"`
}

func (r *row) quota() quota.Quota {
	return quota.Quota{ID: uuid.UUID(r.ID), Namespace: r.Namespace, Window: time.Duration(r.WindowMS) * time.Millisecond, MaxRequests: r.MaxRequests, MaxConcurrent: r.MaxConcurrent,
		Jitter: time.Duration(r.JitterMS) * time.Millisecond, KeyTag: string(r.KeyTag), Active: r.Active, CreatedAt: time.Time(r.CreatedAt)}
}

// selectQuota also counts the slots that are taken.
const selectQuota = `SELECT ` + columns + `, (SELECT coalesce(sum(k.active), 0) FROM quota_keys k WHERE k.quota_id = quotas.id) AS active FROM quotas`

// Create makes a quota in the caller's namespace. An id that a quota has already gets that quota, and nothing changes. It returns the
// refusals of [quota.New], and CodeAlreadyExists for an id that another namespace has.
func (r *Repo) Create(ctx context.Context, in quota.Create) (quota.Creation, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *quota.Creation) (err error) {
		out.Quota, out.Existing, err = store.Once(in.ID,
			func(id uuid.UUID) (quota.Quota, error) { return find(&tx.Queries, tx.Call.Namespace, id) },
			func(id uuid.UUID) (quota.Quota, error) { return create(tx, id, in) })
		tx.Refer(out.Quota.ID)
		return err
	}, store.Reload(func(ctx context.Context, id uuid.UUID) (quota.Creation, error) {
		q, err := r.Quota(ctx, id)
		return quota.Creation{Quota: q}, err
	}))
}

func create(tx *store.Tx, id uuid.UUID, in quota.Create) (quota.Quota, error) {
	in.ID, in.Namespace = id, tx.Call.Namespace
	q, events, err := quota.New(in, tx.Now())
	if err != nil {
		return quota.Quota{}, err
	}
	n, err := tx.Exec(`INSERT INTO quotas (`+columns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, store.ID(q.ID), q.Namespace, q.Window.Milliseconds(),
		q.MaxRequests, q.MaxConcurrent, q.Jitter.Milliseconds(), store.Text(q.KeyTag), store.Millis(q.CreatedAt))
	switch {
	case err != nil:
		return quota.Quota{}, fmt.Errorf("insert quota: %w", err)
	case n == 0:
		return quota.Quota{}, store.Taken(id)
	}
	tx.EmitAll(events)
	return q, nil
}

// Quota returns a quota of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Quota(ctx context.Context, id uuid.UUID) (q quota.Quota, err error) {
	err = r.store.Read(ctx, func(queries *store.Queries) (err error) {
		q, err = find(queries, call.From(ctx).Namespace, id)
		return err
	})
	return q, err
}

func find(q *store.Queries, namespace string, id uuid.UUID) (quota.Quota, error) {
	var found row
	err := q.Find(&found, "quota", id, selectQuota+` WHERE id = ? AND namespace = ?`, store.ID(id), namespace)
	return found.quota(), err
}

// Quotas lists the quotas of the caller's namespace, newest first.
func (r *Repo) Quotas(ctx context.Context, after page.Cursor, limit int) (page.Page[quota.Quota], error) {
	var list []quota.Quota
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("namespace = ?", call.From(ctx).Namespace)
		where.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		if err := q.Select(&rows, selectQuota+" WHERE "+where.String()+" ORDER BY created_at DESC, id DESC LIMIT ?", where.Args(limit+1)...); err != nil {
			return fmt.Errorf("list quotas: %w", err)
		}
		list = make([]quota.Quota, len(rows))
		for i := range rows {
			list[i] = rows[i].quota()
		}
		return nil
	})
	return page.Of(list, limit, func(q quota.Quota) page.Cursor { return page.After(q.CreatedAt, q.ID) }), err
}

// Delete deletes a quota of the caller's namespace. What is attached to it is limited by it no more. It returns CodeNotFound.
func (r *Repo) Delete(ctx context.Context, id uuid.UUID) error {
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		q, err := find(&tx.Queries, tx.Call.Namespace, id)
		if err != nil {
			return err
		}
		if err := tx.ExecOne(`DELETE FROM quotas WHERE id = ?`, store.ID(id)); err != nil {
			return fmt.Errorf("delete quota %s: %w", id, err)
		}
		tx.Emit(q.Deleted())
		return r.executions.ReopenAll(tx, id)
	})
}

// Attach returns quotas of a namespace, each once, in the order of their ids. It returns CodeNotFound.
func (r *Repo) Attach(q *store.Queries, namespace string, ids []uuid.UUID) ([]execution.QuotaRef, error) {
	refs := make([]execution.QuotaRef, 0, len(ids))
	for _, id := range ids {
		if slices.ContainsFunc(refs, func(r execution.QuotaRef) bool { return r.ID == id }) {
			continue
		}
		var found row
		if err := q.Find(&found, "quota", id, `SELECT `+columns+` FROM quotas WHERE id = ? AND namespace = ?`, store.ID(id), namespace); err != nil {
			return nil, err
		}
		refs = append(refs, execution.QuotaRef{ID: id, KeyTag: string(found.KeyTag), Rate: found.MaxRequests > 0, Cap: found.MaxConcurrent > 0})
	}
	slices.SortFunc(refs, func(a, b execution.QuotaRef) int { return store.ByID(a.ID, b.ID) })
	return refs, nil
}

// tellEvery is how often it is told, of one key of a quota, that it refuses: at its limit it does so with every claim.
const tellEvery = time.Second

// Refused tells that a quota, which was checked, holds up what stands in a bucket.
func (r *Repo) Refused(tx *store.Tx, h *execution.Hold) error {
	s := r.desk(tx).states[place{h.ID, h.Key}]
	now := tx.Now()
	if !s.toldAt.IsZero() && now.Before(s.toldAt.Add(tellEvery)) {
		return nil
	}
	s.toldAt = now
	if err := tx.ExecOne(`UPDATE quota_keys SET told_at = ? WHERE quota_id = ? AND key = ?`, store.Millis(now), store.ID(h.ID), h.Key); err != nil {
		return fmt.Errorf("note a refusal of quota %s: %w", h.ID, err)
	}
	v := quota.Verdict{Outcome: quota.ConcurrencyExceeded, Usage: s.usage, RetryAt: h.Until}
	if !h.Until.IsZero() {
		v.Outcome = quota.RateExceeded
	}
	tx.Emit(s.quota.Refused(h.Key, v))
	return nil
}
