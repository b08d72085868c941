package execution

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// transition is what a worker's call asks of the machine.
type transition func(e execution.Execution, now time.Time) (c execution.Change, replayed bool, err error)

// report runs a worker's call that may end the execution.
func (r *Repo) report(ctx context.Context, id uuid.UUID, do transition, result *execution.Value) (execution.Report, error) {
	return r.reportUnder(ctx, lockFlow, id, do, result)
}

// reportUnder runs one worker's call, after lock.
func (r *Repo) reportUnder(ctx context.Context, lock func(*store.Tx, uuid.UUID) error, id uuid.UUID, do transition, result *execution.Value) (execution.Report, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Report) error {
		if err := lock(tx, id); err != nil {
			return err
		}
		e, draining, err := Held(tx, id)
		if err != nil {
			return err
		}
		*out, err = r.apply(tx, e, draining, do, result)
		tx.Refer(reportRef{out.Replayed, out.RetryAt, out.Cancelled})
		return err
	}, store.Reload(func(ctx context.Context, old reportRef) (execution.Report, error) {
		e, err := r.Execution(ctx, id)
		return execution.Report{Execution: e, Replayed: old.Replayed, RetryAt: old.RetryAt, Cancelled: old.Cancelled}, err
	}))
}

// reportRef is what the answer to a worker's call is rendered from again, beside the execution.
type reportRef struct {
	Replayed  bool      `json:"replayed,omitempty"`
	RetryAt   time.Time `json:"retry_at,omitzero"`
	Cancelled bool      `json:"cancelled,omitempty"`
}

// Held reads and locks an execution of the caller's namespace, and says whether its worker is draining. It returns
// CodeNotFound.
func Held(tx *store.Tx, id uuid.UUID) (e execution.Execution, draining bool, err error) {
	var found row
	if err := tx.Find(&found, "execution", id, selectHeld+" WHERE id = ? AND namespace = ?"+tx.ForUpdate(), store.Millis(tx.Queries.Now()), store.ID(id), tx.Call.Namespace); err != nil {
		return e, false, err
	}
	e, err = found.execution()
	return e, found.Draining, err
}

// apply makes one transition of an execution that this transaction has read.
func (r *Repo) apply(tx *store.Tx, e execution.Execution, draining bool, do transition, result *execution.Value) (execution.Report, error) {
	c, replayed, err := do(e, tx.Now())
	if err != nil {
		return execution.Report{}, err
	}
	report := execution.Report{Execution: c.Execution, Replayed: replayed, Directives: c.Execution.Directives(draining)}
	if c.Execution.Released != nil {
		report.RetryAt, report.Cancelled = c.Execution.Released.RetryAt, c.Execution.Released.Cancelled
	}
	if err := r.save(tx, &e, c, result); err != nil {
		return execution.Report{}, err
	}
	return report, r.allow(tx, &report)
}

// allow adds what budgets leave to an execution that its worker goes on with, and does to it what an exhausted one says.
func (r *Repo) allow(tx *store.Tx, report *execution.Report) (err error) {
	e := &report.Execution
	if e.Ownership != execution.Leased || len(e.Counted()) == 0 {
		return nil
	}
	if report.Allowance, err = r.budgets.Allowance(&tx.Queries, e.ID, e.Counted()); err != nil {
		return err
	}
	if report.Allowance.Low {
		report.Directives = append(report.Directives, execution.DirectiveBudgetLow)
	}
	if report.Allowance.Spent == nil {
		return nil
	}
	told, err := r.Obey(tx, e, *report.Allowance.Spent)
	report.Directives = append(report.Directives, told)
	return err
}

// Obey does to an execution, which is held and whose flow is locked, what an exhausted budget says about running work, and returns
// what its worker is told.
func (r *Repo) Obey(tx *store.Tx, e *execution.Execution, s execution.Spent) (execution.Directive, error) {
	before := *e
	c, err := e.Obey(s, store.NewID(), tx.Now())
	if err != nil {
		return "", err
	}
	if *e = c.Execution; e.Lifecycle != execution.Suspended {
		return execution.DirectiveCancel, r.save(tx, &before, c, nil)
	}
	if err := r.budgets.Paused(tx, s.BudgetID, e.ID, e.Suspension.ID); err != nil {
		return "", err
	}
	return execution.DirectiveSuspend, r.save(tx, &before, c, nil)
}

// Refill lets executions go on that still have the suspension which a budget has caused, and returns those of them that nobody has
// locked: whoever reports has locked the execution before the budget. Others are left as they are.
func (r *Repo) Refill(tx *store.Tx, suspensions map[uuid.UUID]uuid.UUID) (done []uuid.UUID, err error) {
	for _, id := range slices.SortedFunc(maps.Keys(suspensions), store.ByID[uuid.UUID]) {
		var rows []row
		if err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE id = ?"+tx.SkipLocked(), store.ID(id)); err != nil {
			return nil, fmt.Errorf("read execution %s: %w", id, err)
		}
		if len(rows) == 0 {
			var n int
			if err := tx.Get(&n, `SELECT count(*) FROM executions WHERE id = ?`, store.ID(id)); err != nil {
				return nil, fmt.Errorf("look for execution %s: %w", id, err)
			}
			if n == 0 { // it is gone
				done = append(done, id)
			}
			continue
		}
		e, err := rows[0].execution()
		if err != nil {
			return nil, err
		}
		done = append(done, id)
		if c, ok := e.Refill(suspensions[id], tx.Now()); ok {
			if err := r.save(tx, &e, c, nil); err != nil {
				return nil, err
			}
		}
	}
	return done, nil
}

// HeldBy locks an execution, and its flow, for its worker. It returns CodeNotFound and the refusals of [execution.Execution.Check].
func (r *Repo) HeldBy(tx *store.Tx, f execution.Fence) (e execution.Execution, draining bool, err error) {
	if err := lockFlow(tx, f.ExecutionID); err != nil {
		return e, false, err
	}
	if e, draining, err = Held(tx, f.ExecutionID); err != nil {
		return e, false, err
	}
	return e, draining, e.Check(f, tx.Now())
}

// Renew extends the lease of f's owner. Errors: CodeNotFound and those of [execution.Execution.Check].
func (r *Repo) Renew(ctx context.Context, f execution.Fence, ttl time.Duration) (execution.Report, error) {
	return r.reportUnder(ctx, lockLimited, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		c, err := e.Renew(f, ttl, now)
		return c, false, err
	}, nil)
}

// Progress keeps what f's owner says about how far it is. Errors are those of Renew.
func (r *Repo) Progress(ctx context.Context, f execution.Fence, pct *int, message *string) (execution.Report, error) {
	return r.reportUnder(ctx, lockLimited, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		c, err := e.Report(f, pct, message, now)
		return c, false, err
	}, nil)
}

// Complete ends an execution well, with a result or without. Errors are those of Renew.
func (r *Repo) Complete(ctx context.Context, f execution.Fence, result *execution.Value) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, completing(f), result)
}

// Fail ends an attempt. Errors are those of Renew.
func (r *Repo) Fail(ctx context.Context, f execution.Fence, failure execution.Failure, retryAfter *time.Duration) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, failing(f, failure, retryAfter), nil)
}

// Release gives a lease back. Errors are those of Renew.
func (r *Repo) Release(ctx context.Context, f execution.Fence) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		return e.Release(f, now)
	}, nil)
}

// Delay gives a lease back until a time, or for a while from now. Errors are those of Renew.
func (r *Repo) Delay(ctx context.Context, f execution.Fence, until time.Time, delay time.Duration) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		if until.IsZero() {
			return e.Delay(f, now.Add(delay), now)
		}
		return e.Delay(f, until, now)
	}, nil)
}

// WaitChildren gives a lease back until child executions have ended. Errors are those of Renew.
func (r *Repo) WaitChildren(ctx context.Context, f execution.Fence) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		return e.WaitChildren(f, now)
	}, nil)
}

// Abandon cancels an execution for its owner. Errors are those of Renew.
func (r *Repo) Abandon(ctx context.Context, f execution.Fence, reason string) (execution.Report, error) {
	by := call.From(ctx).Actor
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		return e.Abandon(f, execution.Cancellation{Reason: reason, Actor: by, RequestedAt: now}, now)
	}, nil)
}

func completing(f execution.Fence) transition {
	return func(e execution.Execution, now time.Time) (execution.Change, bool, error) { return e.Complete(f, now) }
}

func failing(f execution.Fence, failure execution.Failure, retryAfter *time.Duration) transition {
	return func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		return e.Fail(f, failure, retryAfter, now)
	}
}

// End completes or fails many executions in one transaction; each stands alone.
func (r *Repo) End(ctx context.Context, items []execution.Ending) ([]execution.Item[execution.Report], error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *[]execution.Item[execution.Report]) error {
		*out = make([]execution.Item[execution.Report], len(items))
		refs := make([]itemRef, len(items))
		found, err := lockAll(tx, items)
		if err != nil {
			return err
		}
		for i, item := range items {
			report, err := execution.Report{}, cmp.Or(item.Err, found[item.Fence.ExecutionID].err)
			if err == nil {
				if report, err = r.end(tx, item, found); err != nil && !refusal(err) {
					return err
				}
			}
			(*out)[i] = execution.Item[execution.Report]{Value: report, Err: err}
			refs[i] = itemRef{ID: report.Execution.ID, Replayed: report.Replayed, Refused: refOf(err)}
		}
		tx.Refer(refs)
		return nil
	}, store.Reload(func(ctx context.Context, refs []itemRef) ([]execution.Item[execution.Report], error) {
		return reloadItems(ctx, r, refs, func(e execution.Execution, old itemRef) execution.Report {
			return execution.Report{Execution: e, Replayed: old.Replayed}
		})
	}))
}

func (r *Repo) end(tx *store.Tx, item execution.Ending, found map[uuid.UUID]holding) (execution.Report, error) {
	id := item.Fence.ExecutionID
	h, ok := found[id]
	if !ok {
		return execution.Report{}, fault.NotFound("execution", id)
	}
	do := completing(item.Fence)
	if item.Failure != nil {
		do = failing(item.Fence, *item.Failure, item.RetryAfter)
	}
	report, err := r.apply(tx, h.Execution, h.draining, do, item.Result)
	if err == nil {
		h.Execution = report.Execution
		found[id] = h // the same execution may come twice
	}
	return report, err
}

// holding is an execution, and whether its worker is draining.
type holding struct {
	execution.Execution
	draining bool
	err      error // of one that cannot be read
}

// lockAll reads the executions of a batch, in the order of their ids, so that two batches cannot lock each other out.
func lockAll(tx *store.Tx, items []execution.Ending) (map[uuid.UUID]holding, error) {
	ids := make([]store.ID, 0, len(items))
	for _, item := range items {
		if item.Err == nil {
			ids = append(ids, store.ID(item.Fence.ExecutionID))
		}
	}
	found := make(map[uuid.UUID]holding, len(ids))
	slices.SortFunc(ids, store.ByID[store.ID])
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return found, nil
	}
	if err := lockFlows(tx, ids); err != nil {
		return nil, err
	}
	var rows []row
	err := tx.Select(&rows, selectHeld+" WHERE id IN ? ORDER BY id"+tx.ForUpdate(), store.Millis(tx.Queries.Now()), store.List(ids))
	if err != nil {
		return nil, fmt.Errorf("read a batch of executions: %w", err)
	}
	for i := range rows {
		if rows[i].Namespace == tx.Call.Namespace { // here and not in the query, whose planner would choose the namespace's index
			e, err := rows[i].execution()
			found[uuid.UUID(rows[i].ID)] = holding{e, rows[i].Draining, err}
		}
	}
	return found, nil
}
