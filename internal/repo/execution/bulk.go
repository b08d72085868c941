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
	if err := q.Find(&found, "bulk job", id, "SELECT "+bulkColumns+" FROM bulk_jobs WHERE id = ? AND namespace = ?"+lock, store.ID(id), namespace); err != nil {
		return execution.BulkJob{}, err
	}
	return found.job()
}

// StartBulk makes a job, which the server then works through. A dry run only counts.
func (r *Repo) StartBulk(ctx context.Context, in execution.Bulk, dryRun bool) (execution.BulkJob, error) {
	if err := in.Check(); err != nil {
		return execution.BulkJob{}, err
	}
	total, err := r.countBulk(ctx, in)
	if err != nil || dryRun {
		return execution.BulkJob{Total: total}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.BulkJob) error {
		*out = execution.BulkJob{ID: store.NewID(), Namespace: tx.Call.Namespace, Bulk: in, State: execution.BulkRunning, Total: total, Actor: tx.Call.Actor, CreatedAt: tx.Now()}
		filter, err := json.Marshal(in.Filter)
		if err != nil {
			return err
		}
		err = tx.ExecOne("INSERT INTO bulk_jobs ("+bulkColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '[]', ?, ?, NULL, 0, ?)", store.ID(out.ID), out.Namespace, string(in.Action),
			store.JSON(filter), in.Priority, store.Text(in.Reason), string(out.State), total, out.Actor, store.Millis(out.CreatedAt), uuid.Nil[:])
		if err != nil {
			return fmt.Errorf("insert bulk job: %w", err)
		}
		tx.Emit(out.Started())
		tx.Alarm(BulkLoop, out.CreatedAt)
		return nil
	})
}

// countBulk says how many executions of the caller's namespace a job would concern.
func (r *Repo) countBulk(ctx context.Context, in execution.Bulk) (total int64, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		w := selected(q, &execution.BulkJob{Namespace: call.From(ctx).Namespace, Bulk: in, CreatedAt: q.Now()})
		if err := q.Get(&total, "SELECT count(*) FROM executions WHERE "+w.String()+" AND "+visible, w.Args()...); err != nil {
			return fmt.Errorf("count what a bulk job selects: %w", err)
		}
		return nil
	})
	return total, err
}

// selected is the condition of what a job concerns.
func selected(q *store.Queries, j *execution.BulkJob) *store.Where {
	w := where(q, j.Namespace, j.Filter)
	phase, not := j.Action.Phase()
	w.If(!not, "lifecycle_phase = ?", string(phase))
	w.If(not, "lifecycle_phase <> ?", string(phase))
	w.If(j.Action != execution.BulkReplay, "terminal_outcome <> 'success'") // what executions_state_idx holds
	w.And("created_at <= ?", store.Millis(j.CreatedAt))
	return w
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
		tx.Refer(id)
		if *out, err = findBulk(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate()); err != nil || out.State != execution.BulkRunning {
			return err
		}
		tx.Emit(out.End(execution.BulkStopped, tx.Now()))
		return tx.ExecOne(`UPDATE bulk_jobs SET state = ?, ended_at = ? WHERE id = ?`, string(out.State), store.Millis(out.EndedAt), store.ID(id))
	}, store.Reload(r.Bulk))
}

// chunk is what is next for a job under way. It is looked for outside of the writing transaction: a filter may have to look at
// many executions to find a few.
type chunk struct {
	job     bulkRow
	items   []chunkItem
	through *place // up to where all were looked at; nil for to the end
}

type chunkItem struct {
	ID     store.ID `db:"id"`
	FlowID store.ID `db:"flow_id"`
	place
}

// place is one of the order in which a job goes.
type place struct {
	CreatedAt int64    `db:"created_at"`
	Placed    store.ID `db:"placed"`
}

// bulkWindow is how many executions of a namespace one look for a job's next ones goes through at most: a filter that selects
// few must not keep the look from ending.
const bulkWindow = 50_000

// nextChunk returns up to limit executions for a job under way.
func (r *Repo) nextChunk(ctx context.Context, job bulkRow, limit int) (chunk, error) {
	next := chunk{job: job}
	j, err := job.job()
	if err != nil {
		return next, err
	}
	err = r.store.Read(ctx, func(q *store.Queries) error {
		var end place
		err := q.Get(&end, "SELECT created_at, id AS placed FROM executions WHERE namespace = ? AND (created_at, id) > (?, ?) ORDER BY created_at, id LIMIT 1 OFFSET ?",
			j.Namespace, job.CursorAt, job.CursorID, bulkWindow)
		if err != nil && !store.NotFound(err) {
			return fmt.Errorf("look ahead for bulk job %s: %w", j.ID, err)
		}
		w := selected(q, &j)
		w.And("(created_at, id) > (?, ?)", job.CursorAt, job.CursorID)
		if err == nil {
			next.through = &end
			w.And("(created_at, id) <= (?, ?)", end.CreatedAt, end.Placed)
		}
		err = q.Select(&next.items, "SELECT id, flow_id, created_at, id AS placed FROM executions WHERE "+w.String()+" AND "+visible+" ORDER BY created_at, id LIMIT ?", w.Args(limit)...)
		if err != nil {
			return fmt.Errorf("select for bulk job %s: %w", j.ID, err)
		}
		if len(next.items) == limit {
			next.through = &next.items[limit-1].place
		}
		return nil
	})
	return next, err
}

// WorkBulk does the next limit executions of the oldest job under way that can be worked on, and returns how many it looked at.
// An execution that the action is refused for is taken note of, and the others go on. Any number of processes may call it at the
// same time.
func (r *Repo) WorkBulk(ctx context.Context, limit int) (int, error) {
	var jobs []bulkRow
	err := r.store.Read(ctx, func(q *store.Queries) error {
		return q.Select(&jobs, "SELECT "+bulkColumns+" FROM bulk_jobs WHERE state = 'running' ORDER BY created_at LIMIT ?", limit)
	})
	if err != nil {
		return 0, fmt.Errorf("read bulk jobs: %w", err)
	}
	var failed error
	for _, job := range jobs {
		next, err := r.nextChunk(ctx, job, limit)
		if err == nil {
			var n int
			if n, err = r.workOn(ctx, next); err == nil && n > 0 {
				return n, failed
			}
		}
		failed = errors.Join(failed, err) // the others go on
	}
	return 0, failed
}

// workOn does a chunk, unless its job was stopped or another process has done it.
func (r *Repo) workOn(ctx context.Context, next chunk) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var now bulkRow
		err := tx.Get(&now, "SELECT "+bulkColumns+" FROM bulk_jobs WHERE id = ? AND state = 'running'"+tx.SkipLocked(), next.job.ID)
		if store.NotFound(err) || err == nil && now.CursorID != next.job.CursorID {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock bulk job: %w", err)
		}
		j, err := now.job()
		if err != nil {
			return err
		}
		tx.Call.Namespace, tx.Call.Actor = j.Namespace, j.Actor
		if err := r.workChunk(tx, &j, next.items); err != nil {
			return err
		}
		*out = max(len(next.items), 1) // having found nothing in a window is progress, too
		if next.through != nil {
			now.CursorAt, now.CursorID = next.through.CreatedAt, next.through.Placed
		} else {
			tx.Emit(j.End(execution.BulkFinished, tx.Now()))
		}
		failed, err := json.Marshal(j.Failed)
		if err != nil {
			return err
		}
		return tx.ExecOne(`UPDATE bulk_jobs SET state = ?, done = ?, failed_count = ?, failed = ?, ended_at = ?, cursor_at = ?, cursor_id = coalesce(?, cursor_id) WHERE id = ?`,
			string(j.State), j.Done, j.FailedCount, store.JSON(failed), store.Millis(j.EndedAt), now.CursorAt, now.CursorID, now.ID)
	}, store.Background())
}

func (r *Repo) workChunk(tx *store.Tx, j *execution.BulkJob, items []chunkItem) error {
	var flows []uuid.UUID
	for _, item := range items {
		if id := uuid.UUID(item.FlowID); id != uuid.Nil && j.Action != execution.BulkPriority {
			flows = append(flows, id)
		}
	}
	if err := r.flows.Lock(tx, flows); err != nil { // before their members, all at once
		return err
	}
	for _, item := range items {
		if err := r.bulkOne(tx, j, uuid.UUID(item.ID)); err != nil {
			return err
		}
		j.Done++
	}
	return nil
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
	if refused, ok := errors.AsType[*fault.Error](err); ok && (refusal(err) || refused.Code == fault.CodeCorruptRecord) {
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
	return store.Expire(ctx, r.store, `DELETE FROM bulk_jobs WHERE id IN (SELECT id FROM bulk_jobs WHERE ended_at <= ? - `+fmt.Sprint(bulkKept.Milliseconds())+` ORDER BY ended_at LIMIT ?)`, limit)
}
