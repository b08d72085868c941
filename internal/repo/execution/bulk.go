package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// BulkLoop is the name of the loop that works through bulk jobs.
const BulkLoop = "bulk"

type bulkRow struct {
	ID          store.ID     `db:"id"`
	Namespace   string       `db:"namespace"`
	Action      string       `db:"action"`
	Filter      store.JSON   `db:"filter"`
	Priority    *int         `db:"priority"`
	Reason      store.Text   `db:"reason"`
	State       string       `db:"state"`
	Total       int64        `db:"total"`
	Done        int64        `db:"done"`
	FailedCount int64        `db:"failed_count"`
	Failed      store.JSON   `db:"failed"`
	Actor       string       `db:"actor"`
	CreatedAt   store.Millis `db:"created_at"`
	EndedAt     store.Millis `db:"ended_at"`
	CursorAt    int64        `db:"cursor_at"`
	CursorID    store.ID     `db:"cursor_id"`
}

const bulkColumns = "id, namespace, action, filter, priority, reason, state, total, done, failed_count, failed, actor, created_at, ended_at, cursor_at, cursor_id"

func (r *bulkRow) job() (execution.BulkJob, error) {
	j := execution.BulkJob{ID: uuid.UUID(r.ID), Namespace: r.Namespace, State: execution.BulkState(r.State), Total: r.Total, Done: r.Done,
		FailedCount: r.FailedCount, Actor: r.Actor, CreatedAt: time.Time(r.CreatedAt), EndedAt: time.Time(r.EndedAt),
		Bulk: execution.Bulk{Action: execution.BulkAction(r.Action), Priority: r.Priority, Reason: string(r.Reason)}}
	if err := errors.Join(json.Unmarshal(r.Filter, &j.Filter), json.Unmarshal(r.Failed, &j.Failed)); err != nil {
		return j, store.Corrupt("bulk job", j.ID, err)
	}
	return j, nil
}

func findBulk(q *store.Queries, namespace string, id uuid.UUID, lock string) (execution.BulkJob, error) {
	var found bulkRow
	err := q.Get(&found, "SELECT "+bulkColumns+" FROM bulk_jobs WHERE id = ?"+lock, store.ID(id))
	switch {
	case store.NotFound(err) || err == nil && found.Namespace != namespace:
		return execution.BulkJob{}, fault.NotFound("bulk job", id)
	case err != nil:
		return execution.BulkJob{}, fmt.Errorf("read bulk job %s: %w", id, err)
	}
	return found.job()
}

// StartBulk makes a job, which the server then works through. A dry run only counts.
func (r *Repo) StartBulk(ctx context.Context, in execution.Bulk, dryRun bool) (execution.BulkJob, error) {
	if err := in.Check(); err != nil {
		return execution.BulkJob{}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.BulkJob) error {
		j := execution.BulkJob{ID: store.NewID(), Namespace: tx.Call.Namespace, Bulk: in, State: execution.BulkRunning, Actor: tx.Call.Actor, CreatedAt: tx.Now()}
		c := selected(&tx.Queries, &j)
		if err := tx.Get(&j.Total, "SELECT count(*) FROM executions WHERE "+c.text, c.args...); err != nil {
			return fmt.Errorf("count what a bulk job selects: %w", err)
		}
		if dryRun {
			*out = execution.BulkJob{Total: j.Total}
			return nil
		}
		*out = j
		filter, err := json.Marshal(j.Filter)
		if err != nil {
			return err
		}
		if err := tx.ExecOne("INSERT INTO bulk_jobs ("+bulkColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '[]', ?, ?, NULL, 0, ?)", store.ID(j.ID), j.Namespace, string(j.Action), store.JSON(filter),
			j.Priority, store.Text(j.Reason), string(j.State), j.Total, j.Actor, store.Millis(j.CreatedAt), uuid.Nil[:]); err != nil {
			return fmt.Errorf("insert bulk job: %w", err)
		}
		tx.Emit(j.Started())
		tx.Alarm(BulkLoop, j.CreatedAt)
		return nil
	})
}

// selected is the condition of what a job concerns.
func selected(q *store.Queries, j *execution.BulkJob) condition {
	c := where(q, j.Namespace, j.Filter)
	phase, not := j.Action.Phase()
	c.and("lifecycle_phase = ?", !not, string(phase))
	c.and("lifecycle_phase <> ?", not, string(phase))
	c.and("terminal_outcome <> 'success'", j.Action != execution.BulkReplay) // what executions_state_idx holds
	c.and("created_at <= ?", true, store.Millis(j.CreatedAt))
	return c
}

// Bulk returns a job of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Bulk(ctx context.Context, id uuid.UUID) (j execution.BulkJob, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		j, err = findBulk(q, call.From(ctx).Namespace, id, "")
		return err
	})
	return j, err
}

// StopBulk stops a job of the caller's namespace. One that has ended stays as it is. It returns CodeNotFound.
func (r *Repo) StopBulk(ctx context.Context, id uuid.UUID) (execution.BulkJob, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.BulkJob) (err error) {
		if *out, err = findBulk(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate()); err != nil || out.State != execution.BulkRunning {
			return err
		}
		tx.Emit(out.End(execution.BulkStopped, tx.Now()))
		return tx.ExecOne(`UPDATE bulk_jobs SET state = ?, ended_at = ? WHERE id = ?`, string(out.State), store.Millis(out.EndedAt), store.ID(id))
	}, store.Reload(func(ctx context.Context, _ []byte) (execution.BulkJob, error) { return r.Bulk(ctx, id) }))
}

// WorkBulk does the next limit executions of the oldest job under way that no other process is at, and returns how many it
// looked at. An execution that the action is refused for is taken note of, and the others go on.
func (r *Repo) WorkBulk(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var found bulkRow
		err := tx.Get(&found, "SELECT "+bulkColumns+" FROM bulk_jobs WHERE state = 'running' ORDER BY created_at LIMIT 1"+tx.SkipLocked())
		if store.NotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read bulk jobs: %w", err)
		}
		j, err := found.job()
		if err != nil {
			return err
		}
		tx.Call.Namespace, tx.Call.Actor = j.Namespace, j.Actor
		c := selected(&tx.Queries, &j)
		c.and("(created_at, id) > (?, ?)", true, found.CursorAt, found.CursorID)
		var next []struct {
			ID        store.ID `db:"id"`
			FlowID    store.ID `db:"flow_id"`
			CreatedAt int64    `db:"created_at"`
		}
		if err := tx.Select(&next, "SELECT id, flow_id, created_at FROM executions WHERE "+c.text+" ORDER BY created_at, id LIMIT ?", append(c.args, limit)...); err != nil {
			return fmt.Errorf("select for bulk job %s: %w", j.ID, err)
		}
		var flows []uuid.UUID
		for _, n := range next {
			if id := uuid.UUID(n.FlowID); id != uuid.Nil && j.Action == execution.BulkReplay {
				flows = append(flows, id)
			}
		}
		if err := r.flows.Lock(tx, flows); err != nil { // before their members, all at once
			return err
		}
		for _, n := range next {
			if err := r.bulkOne(tx, &j, uuid.UUID(n.ID)); err != nil {
				return err
			}
			found.CursorAt, found.CursorID = n.CreatedAt, n.ID
			j.Done++
		}
		if *out = len(next); len(next) < limit {
			tx.Emit(j.End(execution.BulkFinished, tx.Now()))
		}
		failed, err := json.Marshal(j.Failed)
		if err != nil {
			return err
		}
		return tx.ExecOne(`UPDATE bulk_jobs SET state = ?, done = ?, failed_count = ?, failed = ?, ended_at = ?, cursor_at = ?, cursor_id = ? WHERE id = ?`,
			string(j.State), j.Done, j.FailedCount, store.JSON(failed), store.Millis(j.EndedAt), found.CursorAt, found.CursorID[:], found.ID) // the cursor may still be at the beginning
	}, store.Background())
}

// bulkOne does to one execution what a job does.
func (r *Repo) bulkOne(tx *store.Tx, j *execution.BulkJob, id uuid.UUID) error {
	var after execution.Execution
	err := r.operateIn(tx, id, nil, &after, func(tx *store.Tx, e execution.Execution) (execution.Change, error) {
		switch j.Action {
		case execution.BulkCancel:
			return e.Stop(cancellation(tx, j.Reason), 0, tx.Now())
		case execution.BulkReplay:
			return r.replay(tx, e)
		default:
			return e.Prioritise(*j.Priority)
		}
	})
	if refused, ok := errors.AsType[*fault.Error](err); ok && refusal(err) {
		j.Refused(id, refused)
		return nil
	}
	return err
}

// NextBulk returns when there is work for [Repo.WorkBulk], zero for never.
func (r *Repo) NextBulk(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT min(created_at) FROM bulk_jobs WHERE state = 'running'`)
}

// bulkKept is how long an ended job can be looked at.
const bulkKept = 30 * 24 * time.Hour

// ForgetBulk forgets up to limit jobs that ended long ago, and returns how many.
func (r *Repo) ForgetBulk(ctx context.Context, limit int) (int, error) {
	return store.Expire(ctx, r.store, `DELETE FROM bulk_jobs WHERE id IN (SELECT id FROM bulk_jobs WHERE ended_at + `+fmt.Sprint(bulkKept.Milliseconds())+` <= ? ORDER BY ended_at LIMIT ?)`, limit)
}
