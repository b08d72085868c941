package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

// waitsHeldUp is the condition that a limit holds up an execution which waits.
const waitsHeldUp = `claim_bucket IN (SELECT id FROM claim_buckets WHERE held_by IS NOT NULL)`

// where returns the condition that f means, within a namespace.
func where(q *store.Queries, namespace string, f execution.Filter) *store.Where {
	w := store.NewWhere("namespace = ?", namespace)
	w.If(f.Lane != "", "lane = ?", f.Lane)
	inState(w, f.State)
	w.If(f.State != "" && f.State != execution.PublicCompleted, "terminal_outcome <> 'success'") // what executions_state_idx holds
	w.If(f.FlowID != uuid.Nil, "flow_id = ?", store.ID(f.FlowID))
	w.If(f.Kind != "", "kind = ?", f.Kind)
	for _, t := range f.Tags {
		w.And(q.Tag("tags")+" = ?", t.Key, t.Value)
	}
	w.If(f.Worker != "", "worker_id = ? AND ownership_state = 'leased' AND public_state = 'active' AND terminal_outcome <> 'success'", f.Worker)
	w.If(!f.CreatedAfter.IsZero(), "created_at >= ?", store.Millis(f.CreatedAfter))
	w.If(!f.CreatedBefore.IsZero(), "created_at < ?", store.Millis(f.CreatedBefore))
	return w
}

// inState selects a public state. What a limit holds up is stored as waiting, and shown as rate limited.
func inState(w *store.Where, s execution.Public) {
	stored := s
	if s == execution.PublicRateLimited {
		stored = execution.PublicWaiting
	}
	w.If(s != "", "public_state = ?", string(stored))
	w.If(s == execution.PublicRateLimited, waitsHeldUp)
	w.If(s == execution.PublicWaiting, "(claim_bucket IS NULL OR NOT "+waitsHeldUp+")")
}

// Executions lists the executions of the caller's namespace, newest first.
func (r *Repo) Executions(ctx context.Context, f execution.Filter, after page.Cursor, limit int) (page.Page[execution.Execution], error) {
	var list []execution.Execution
	err := r.store.Read(ctx, func(q *store.Queries) error {
		w := where(q, call.From(ctx).Namespace, f)
		w.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM executions WHERE "+w.String()+" AND "+visible+" ORDER BY created_at DESC, id DESC LIMIT ?", w.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list executions: %w", err)
		}
		if list, err = executionsOf(rows); err != nil {
			return err
		}
		list, err = shownAll(q, list)
		return err
	})
	return page.Of(list, limit, func(e execution.Execution) page.Cursor { return page.After(e.CreatedAt, e.ID) }), err
}

// Leases lists who holds what in the caller's namespace, and what was lost: by when it ends, the lost ones first.
func (r *Repo) Leases(ctx context.Context, f execution.Leases, after page.Cursor, limit int) (page.Page[execution.Execution], error) {
	var list []execution.Execution
	err := r.store.Read(ctx, func(q *store.Queries) error {
		const ends = "coalesce(lease_expires_at, 0)"
		w := store.NewWhere("namespace = ? AND public_state = 'active' AND terminal_outcome <> 'success'", call.From(ctx).Namespace)
		w.If(!f.ExpiredAsOf.IsZero(), ends+" <= ?", store.Millis(f.ExpiredAsOf))
		w.If(f.Lane != "", "lane = ?", f.Lane)
		w.If(f.WorkerID != "", "worker_id = ?", f.WorkerID)
		w.If(f.InstanceID != "", "worker_instance_id = ?", f.InstanceID)
		w.If(!after.IsZero(), "("+ends+", id) > (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM executions WHERE "+w.String()+" ORDER BY "+ends+", id LIMIT ?", w.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list leases: %w", err)
		}
		list, err = executionsOf(rows)
		return err
	})
	return page.Of(list, limit, func(e execution.Execution) page.Cursor {
		if e.Lease.ExpiresAt.IsZero() {
			return page.Cursor{ID: e.ID}
		}
		return page.After(e.Lease.ExpiresAt, e.ID)
	}), err
}

type countRow struct {
	Name string `db:"name"`
	N    int64  `db:"n"`
}

// CountByLane says how many executions the caller's namespace has in each lane.
func (r *Repo) CountByLane(ctx context.Context) (execution.Counts, error) {
	return r.count(ctx, "lane", "SELECT lane AS name, count(*) AS n FROM executions WHERE namespace = ? GROUP BY lane", false)
}

// CountByState says how many executions the caller's namespace has in each public state. What ended well is what is left.
func (r *Repo) CountByState(ctx context.Context) (execution.Counts, error) {
	return r.count(ctx, "public_state", "SELECT public_state AS name, count(*) AS n FROM executions WHERE namespace = ? AND terminal_outcome <> 'success' GROUP BY public_state", true)
}

func (r *Repo) count(ctx context.Context, by, query string, rest bool) (execution.Counts, error) {
	counts := execution.Counts{By: map[string]int64{}}
	namespace := call.From(ctx).Namespace
	err := r.store.Read(ctx, func(q *store.Queries) error {
		var rows []countRow
		if err := q.Select(&rows, query, namespace); err != nil {
			return fmt.Errorf("count executions: %w", err)
		}
		for _, row := range rows {
			counts.By[row.Name] = row.N
			counts.Total += row.N
		}
		if rest {
			var all int64
			if err := q.Get(&all, "SELECT count(*) FROM executions WHERE namespace = ?", namespace); err != nil {
				return fmt.Errorf("count executions: %w", err)
			}
			if all > counts.Total {
				counts.By[string(execution.PublicCompleted)] = all - counts.Total
			}
			counts.Total = all
		}
		if err := withoutHidden(q, namespace, by, &counts); err != nil || !rest {
			return err
		}
		return withHeldUp(q, namespace, &counts)
	})
	return counts, err
}

// withHeldUp counts what a limit holds up as that.
func withHeldUp(q *store.Queries, namespace string, counts *execution.Counts) error {
	var n int64
	err := q.Get(&n, "SELECT count(*) FROM claim_buckets b JOIN executions e ON e.claim_bucket = b.id WHERE b.namespace = ? AND b.held_by IS NOT NULL AND e.public_state = 'waiting' AND e.terminal_outcome <> 'success'", namespace)
	if err != nil {
		return fmt.Errorf("count what is held up: %w", err)
	}
	if n > 0 {
		counts.By[string(execution.PublicRateLimited)] += n
		if counts.By[string(execution.PublicWaiting)] -= n; counts.By[string(execution.PublicWaiting)] == 0 {
			delete(counts.By, string(execution.PublicWaiting))
		}
	}
	return nil
}

// withoutHidden takes what is part of graphs that are still being written out of counts, which come from indexes that do not know
// it. There is hardly ever one.
func withoutHidden(q *store.Queries, namespace, by string, counts *execution.Counts) error {
	var rows []countRow
	err := q.Select(&rows, "SELECT e."+by+" AS name, count(*) AS n FROM builds b JOIN executions e ON e.flow_id = b.flow_id AND e.build_id = b.id WHERE e.namespace = ? GROUP BY e."+by, namespace)
	if err != nil {
		return fmt.Errorf("count executions: %w", err)
	}
	for _, row := range rows {
		counts.Total -= row.N
		if counts.By[row.Name] -= row.N; counts.By[row.Name] == 0 {
			delete(counts.By, row.Name)
		}
	}
	return nil
}

// Explain says whether a claim gets an execution now, and why or why not. It returns CodeNotFound, and CodeWorkerNotRegistered
// for an instance that is not.
func (r *Repo) Explain(ctx context.Context, id uuid.UUID, instance string, capabilities execution.Capabilities, named bool) (execution.Execution, execution.Explanation, error) {
	var e execution.Execution
	var x execution.Explanation
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		namespace := call.From(ctx).Namespace
		if e, err = find(q, namespace, id, ""); err != nil {
			return err
		}
		now := q.Now().Truncate(time.Millisecond)
		by := execution.Asker{Named: named, Capabilities: capabilities}
		if instance != "" {
			if by, err = asker(q, namespace, instance, now); err != nil {
				return err
			}
		}
		lane, err := findLane(q, namespace, e.Lane, "")
		if err != nil {
			return err
		}
		capable, err := worker.Capable(q, namespace, e.Lane, e.Required, now)
		if err != nil {
			return err
		}
		var needs execution.Dependencies
		if e.Eligibility == execution.BlockedByDependencies {
			if needs, err = r.graph.Dependencies(q, e.ID); err != nil {
				return err
			}
		}
		hold, err := r.holdOf(q, &e, lane)
		if err != nil {
			return err
		}
		x = e.Explain(execution.Situation{Lane: lane, Needs: needs, Hold: hold, Capable: capable}, by, now)
		return shown(q, []*execution.Execution{&e})
	})
	return e, x, err
}
