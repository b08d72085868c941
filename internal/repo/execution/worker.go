package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// transition is what a worker's call asks of the machine.
type transition func(e execution.Execution, now time.Time) (c execution.Change, replayed bool, err error)

// report runs one worker's call.
func (r *Repo) report(ctx context.Context, id uuid.UUID, do transition, result *execution.Value) (execution.Report, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Report) error {
		e, err := find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		*out, err = r.apply(tx, e, do, result)
		tx.Refer(reportRef{out.Replayed, out.RetryAt})
		return err
	}, store.Reload(func(ctx context.Context, ref []byte) (execution.Report, error) {
		var old reportRef
		if err := json.Unmarshal(ref, &old); err != nil {
			return execution.Report{}, store.Corrupt("idempotency key", "", err)
		}
		e, err := r.Execution(ctx, id)
		return execution.Report{Execution: e, Replayed: old.Replayed, RetryAt: old.RetryAt}, err
	}))
}

// reportRef is what the answer to a worker's call is rendered from again, beside the execution.
type reportRef struct {
	Replayed bool      `json:"replayed,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// apply makes one transition of an execution that this transaction has read.
func (r *Repo) apply(tx *store.Tx, e execution.Execution, do transition, result *execution.Value) (execution.Report, error) {
	c, replayed, err := do(e, tx.Now())
	if err != nil {
		return execution.Report{}, err
	}
	report := execution.Report{Execution: c.Execution, Replayed: replayed}
	if c.Execution.Released != nil {
		report.RetryAt = c.Execution.Released.RetryAt
	}
	return report, r.save(tx, &e, c, result)
}

// Renew extends the lease of f's owner. Errors: CodeNotFound and those of [execution.Execution.Check].
func (r *Repo) Renew(ctx context.Context, f execution.Fence, ttl time.Duration) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
		c, err := e.Renew(f, ttl, now)
		return c, false, err
	}, nil)
}

// Progress keeps what f's owner says about how far it is. Errors are those of Renew.
func (r *Repo) Progress(ctx context.Context, f execution.Fence, pct *int, message *string) (execution.Report, error) {
	return r.report(ctx, f.ExecutionID, func(e execution.Execution, now time.Time) (execution.Change, bool, error) {
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
			report, err := execution.Report{}, item.Err
			if err == nil {
				report, err = r.end(tx, item, found)
			}
			if err != nil && !refusal(err) {
				return err
			}
			(*out)[i] = execution.Item[execution.Report]{Value: report, Err: err}
			refs[i] = itemRef{ID: report.Execution.ID, Replayed: report.Replayed, Refused: refOf(err)}
		}
		tx.Refer(refs)
		return nil
	}, store.Reload(func(ctx context.Context, ref []byte) ([]execution.Item[execution.Report], error) {
		return reloadItems(ctx, r, ref, func(e execution.Execution, old itemRef) execution.Report {
			return execution.Report{Execution: e, Replayed: old.Replayed}
		})
	}))
}

func (r *Repo) end(tx *store.Tx, item execution.Ending, found map[uuid.UUID]execution.Execution) (execution.Report, error) {
	id := item.Fence.ExecutionID
	e, ok := found[id]
	if !ok {
		return execution.Report{}, fault.NotFound("execution", id)
	}
	do := completing(item.Fence)
	if item.Failure != nil {
		do = failing(item.Fence, *item.Failure, item.RetryAfter)
	}
	report, err := r.apply(tx, e, do, item.Result)
	if err == nil {
		found[id] = report.Execution // the same execution may come twice
	}
	return report, err
}

// lockAll reads the executions of a batch, in the order of their ids, so that two batches cannot lock each other out.
func lockAll(tx *store.Tx, items []execution.Ending) (map[uuid.UUID]execution.Execution, error) {
	ids := make([]store.ID, 0, len(items))
	for _, item := range items {
		if item.Err == nil {
			ids = append(ids, store.ID(item.Fence.ExecutionID))
		}
	}
	found := make(map[uuid.UUID]execution.Execution, len(ids))
	slices.SortFunc(ids, func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return found, nil
	}
	in, size := store.In(len(ids))
	var rows []row
	err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE id IN "+in+" ORDER BY id"+tx.ForUpdate(), store.InArgs(ids, size)...)
	if err != nil {
		return nil, fmt.Errorf("read a batch of executions: %w", err)
	}
	list, err := executionsOf(rows)
	for _, e := range list {
		if e.Namespace == tx.Call.Namespace { // here and not in the query, whose planner would choose the namespace's index
			found[e.ID] = e
		}
	}
	return found, err
}
