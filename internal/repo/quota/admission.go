package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/quota"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Admit counts an execution by hand, unless the quota refuses it. One that has a slot already keeps it. It returns CodeNotFound, and
// CodeAlreadyTerminal for an execution that has ended. reference: flows-streams-budgets.md 6.9.
func (r *Repo) Admit(ctx context.Context, id, executionID uuid.UUID) (quota.Verdict, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *quota.Verdict) error {
		q, err := find(&tx.Queries, tx.Call.Namespace, id)
		if err != nil {
			return err
		}
		e, err := r.executions.State(tx, executionID)
		if err != nil {
			return err
		}
		if e.Lifecycle == execution.Terminal {
			return fault.New(fault.CodeAlreadyTerminal, "Execution %s has ended as %s: there is nothing to admit.", e.ID, e.Public()).With("execution_id", e.ID).With("public_state", e.Public())
		}
		*out, err = r.admit(tx, &q, &e)
		tx.Refer(*out)
		return err
	}, store.Reload(store.Kept[quota.Verdict]))
}

func (r *Repo) admit(tx *store.Tx, q *quota.Quota, e *execution.Execution) (quota.Verdict, error) {
	ref := execution.QuotaRef{ID: q.ID, KeyTag: q.KeyTag}
	t := execution.QuotaTerm{ID: q.ID, Key: ref.Key(e), Slot: true, Start: true}
	if err := r.Lock(tx, []execution.QuotaTerm{t}); err != nil {
		return quota.Verdict{}, err
	}
	s := r.desk(tx).states[placeOf(t)]
	var held int
	if err := tx.Get(&held, `SELECT count(*) FROM quota_admissions WHERE execution_id = ? AND quota_id = ?`, store.ID(e.ID), store.ID(q.ID)); err != nil {
		return quota.Verdict{}, fmt.Errorf("look for the slot of execution %s: %w", e.ID, err)
	}
	if held > 0 {
		return quota.Verdict{Outcome: quota.AlreadyAdmitted, Quota: *q, Usage: s.usage}, nil
	}
	now := tx.Now()
	v := q.Check(s.usage, true, true, now)
	if v.Quota = *q; v.Outcome != quota.Admitted {
		if v.Usage = s.usage; !v.RetryAt.IsZero() {
			v.RetryAfter = max(v.RetryAt.Sub(now), 0) + jitter(q.Jitter)
		}
		return v, nil
	}
	r.Take(tx, e.ID, []execution.QuotaTerm{t})
	v.Usage = s.usage
	tell(tx, e, q.Admitted(quota.Admission{ExecutionID: e.ID, Key: t.Key}))
	if err := r.write(tx, r.desk(tx)); err != nil { // before it stands elsewhere
		return v, err
	}
	return v, r.executions.SetAdmitted(tx, e, true)
}

// tell tells of an admission, with what is known of the execution.
func tell(tx *store.Tx, e *execution.Execution, told event.Event) {
	tx.Emit(e.Event(told.Type, told.Data))
}

// Release takes the slot of an execution back, if it has one. What it has begun goes on counting. It returns CodeNotFound for the quota.
func (r *Repo) Release(ctx context.Context, id, executionID uuid.UUID) error {
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		q, err := find(&tx.Queries, tx.Call.Namespace, id)
		if err != nil {
			return err
		}
		e, err := r.executions.State(tx, executionID)
		if fault.CodeOf(err) == fault.CodeNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		var key string
		err = tx.Get(&key, `DELETE FROM quota_admissions WHERE execution_id = ? AND quota_id = ? RETURNING key`, store.ID(executionID), store.ID(id))
		if store.NotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take the slot of execution %s back: %w", executionID, err)
		}
		tell(tx, &e, q.Released(quota.Admission{ExecutionID: e.ID, Key: key}))
		if err := r.free(tx, place{id, key}, 1); err != nil {
			return err
		}
		left, err := r.Held(&tx.Queries, executionID)
		if err != nil {
			return err
		}
		return r.executions.SetAdmitted(tx, &e, len(left) > 0)
	})
}

// Admissions lists who has a slot of a quota, the oldest first; those of one key if that is given. It returns CodeNotFound.
func (r *Repo) Admissions(ctx context.Context, id uuid.UUID, key *string, after page.Cursor, limit int) (page.Page[quota.Admission], error) {
	var list []quota.Admission
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := find(q, call.From(ctx).Namespace, id); err != nil {
			return err
		}
		where := store.NewWhere("quota_id = ?", store.ID(id))
		where.If(key != nil, "key = ?", key)
		where.If(!after.IsZero(), "(admitted_at, execution_id) > (?, ?)", after.At, store.ID(after.ID))
		var rows []struct {
			ExecutionID store.ID     `db:"execution_id"`
			Key         string       `db:"key"`
			AdmittedAt  store.Millis `db:"admitted_at"`
		}
		if err := q.Select(&rows, "SELECT execution_id, key, admitted_at FROM quota_admissions WHERE "+where.String()+" ORDER BY admitted_at, execution_id LIMIT ?", where.Args(limit+1)...); err != nil {
			return fmt.Errorf("list the slots of quota %s: %w", id, err)
		}
		list = make([]quota.Admission, len(rows))
		for i, row := range rows {
			list[i] = quota.Admission{ExecutionID: uuid.UUID(row.ExecutionID), Key: row.Key, AdmittedAt: time.Time(row.AdmittedAt)}
		}
		return nil
	})
	return page.Of(list, limit, func(a quota.Admission) page.Cursor { return page.After(a.AdmittedAt, a.ExecutionID) }), err
}

// Trim deletes up to limit starts whose window is over, of quotas that nobody asks any more. It returns how many went.
func (r *Repo) Trim(ctx context.Context, limit int) (int, error) {
	return store.Expire(ctx, r.store, `DELETE FROM quota_starts WHERE (quota_id, key, n) IN
		(SELECT s.quota_id, s.key, s.n FROM quota_starts s JOIN quotas q ON q.id = s.quota_id WHERE s.at <= ? - q.window_ms LIMIT ?)`, limit)
}

// Forget deletes up to limit keys that have nothing to remember. It returns how many went.
func (r *Repo) Forget(ctx context.Context, limit int) (int, error) {
	return store.Expire(ctx, r.store, `DELETE FROM quota_keys WHERE active = 0 AND (told_at IS NULL OR told_at + 60000 <= ?) AND (quota_id, key) IN
		(SELECT k.quota_id, k.key FROM quota_keys k WHERE k.active = 0 AND NOT EXISTS (SELECT 1 FROM quota_starts s WHERE s.quota_id = k.quota_id AND s.key = k.key) LIMIT ?)`, limit)
}
