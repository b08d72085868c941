package flow

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// What one transaction deletes: so many flows, or fewer once they have had so many batches of members.
const (
	pruneBatch   = 250
	pruneBatches = 10
)

// Delete deletes a flow that has ended, with its steps and members; its events stay. It returns CodeNotFound,
// CodeRevisionMismatch and CodeNotTerminal.
func (r *Repo) Delete(ctx context.Context, id uuid.UUID, expected *int64) error {
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := f.Expect(expected); err != nil {
			return err
		}
		if err := f.Ended(); err != nil {
			return err
		}
		_, err = r.remove(tx, &f, event.FlowDeleted)
		return err
	})
}

// remove deletes a flow with everything that it owns, and returns how many executions those were.
func (r *Repo) remove(tx *store.Tx, f *flow.Flow, t event.Type) (members int, err error) {
	if f.NodeCount > 0 {
		// Whoever works on a member is told that it is over, before there is nothing left to tell of.
		if _, err := r.executions.CancelMembers(tx, f.ID, execution.Cascade{Reason: "the flow was deleted"}, math.MaxInt32); err != nil {
			return 0, fmt.Errorf("cancel the members of flow %s: %w", f.ID, err)
		}
		if members, err = r.executions.DeleteMembers(tx, f.ID); err != nil {
			return 0, fmt.Errorf("delete the members of flow %s: %w", f.ID, err)
		}
	}
	if err := r.runs.EndRest(tx, f.ID); err != nil {
		return 0, fmt.Errorf("end the runs of flow %s: %w", f.ID, err)
	}
	if err := backlog.Drop(tx, f.ID); err != nil {
		return 0, fmt.Errorf("drop the backlog of flow %s: %w", f.ID, err)
	}
	if err := tx.ExecOne(`DELETE FROM flows WHERE id = ?`, store.ID(f.ID)); err != nil {
		return 0, fmt.Errorf("delete flow %s: %w", f.ID, err)
	}
	forgetMoves(tx, f.ID)
	tx.Emit(f.Gone(t))
	return members, nil
}

// Prune deletes the flows of the caller's namespace that have ended and have not changed for as many days as their status is
// kept, with everything that they own; what is left open is taken from the configuration. A dry run only counts. It works in
// transactions of some hundred flows or a few thousand members, so that others may write in between.
// reference: runs-and-taskflows.md B5 (prune_terminal_flows), D5 44.
func (r *Repo) Prune(ctx context.Context, keep flow.Retention, dryRun bool) (flow.Pruned, error) {
	keep = keep.Or(r.cfg.Retention)
	if dryRun {
		return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Pruned) error { return r.count(tx, keep, out) })
	}
	return store.Gradually(ctx, r.store, pruned(false), func(ctx context.Context, total *flow.Pruned) (bool, error) {
		part, err := r.prune(ctx, keep, call.From(ctx).Namespace, pruneBatch)
		n := 0
		for s, deleted := range part.Flows {
			total.Flows[s] += deleted
			n += deleted
		}
		total.Executions += part.Executions
		return n > 0, err
	})
}

// Retain deletes up to limit flows, of all namespaces, whose time is over by the configuration, and returns how many.
func (r *Repo) Retain(ctx context.Context, limit int) (int, error) {
	done, err := r.prune(ctx, r.cfg.Retention, "", limit)
	n := 0
	for _, deleted := range done.Flows {
		n += deleted
	}
	return n, err
}

func pruned(dryRun bool) flow.Pruned {
	return flow.Pruned{Flows: map[flow.Status]int{flow.Finished: 0, flow.Failed: 0, flow.Cancelled: 0}, DryRun: dryRun}
}

// prune deletes up to limit flows in one transaction, of one namespace or, for "", of all.
func (r *Repo) prune(ctx context.Context, keep flow.Retention, namespace string, limit int) (flow.Pruned, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Pruned) error {
		*out = pruned(false)
		left := limit
		return r.over(tx, keep, namespace, func(s flow.Status, where *store.Where) error {
			var rows []row
			err := tx.Select(&rows, "SELECT "+aboutColumns+" FROM flows WHERE "+where.String()+" ORDER BY updated_at LIMIT ?"+tx.SkipLocked(), where.Args(left)...)
			if err != nil {
				return fmt.Errorf("find flows to prune: %w", err)
			}
			for i := range rows {
				if out.Executions >= pruneBatches*r.cfg.Batch {
					break
				}
				f := rows[i].about()
				tx.Call.Namespace = f.Namespace
				members, err := r.remove(tx, &f, event.FlowPruned)
				if err != nil {
					return err
				}
				out.Flows[s]++
				out.Executions += members
			}
			left -= len(rows)
			return nil
		})
	}, store.Background())
}

// count counts what prune would delete.
func (r *Repo) count(tx *store.Tx, keep flow.Retention, out *flow.Pruned) error {
	*out = pruned(true)
	return r.over(tx, keep, tx.Call.Namespace, func(s flow.Status, where *store.Where) error {
		var n struct {
			Flows      int `db:"flows"`
			Executions int `db:"executions"`
		}
		if err := tx.Get(&n, "SELECT count(*) AS flows, CAST(coalesce(sum(node_count), 0) AS BIGINT) AS executions FROM flows WHERE "+where.String(), where.Args()...); err != nil {
			return fmt.Errorf("count flows to prune: %w", err)
		}
		out.Flows[s] = n.Flows
		out.Executions += n.Executions
		return nil
	})
}

// over calls fn for each status that is not kept for ever, with the condition of the flows whose time is over: those that
// were last changed before the cut, and not those at it.
func (*Repo) over(tx *store.Tx, keep flow.Retention, namespace string, fn func(s flow.Status, where *store.Where) error) error {
	for _, s := range []flow.Status{flow.Finished, flow.Failed, flow.Cancelled} {
		days := keep.Days(s)
		if days == nil {
			continue
		}
		cut := tx.Now().Add(-time.Duration(*days) * 24 * time.Hour)
		where := store.NewWhere("status = ? AND ended_at IS NOT NULL AND updated_at < ?", string(s), store.Millis(cut))
		where.If(namespace != "", "namespace = ?", namespace)
		if err := fn(s, where); err != nil {
			return err
		}
	}
	return nil
}
