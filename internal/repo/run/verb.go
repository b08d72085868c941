package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Each verb returns CodeNotFound, and the refusals of the verb of the same name in domain/run. What people do returns also
// CodeRevisionMismatch when they have read another revision than the present one; expected is nil for who has read none.

// Start makes a pending run run.
func (r *Repo) Start(ctx context.Context, id uuid.UUID, generation int64) (run.Run, error) {
	return r.change(ctx, id, nil, func(tx *store.Tx, x run.Run) (run.Change, error) { return x.Start(generation, tx.By()) })
}

// Wait parks a running run. One that waits for a child which has ended goes on at once.
func (r *Repo) Wait(ctx context.Context, id uuid.UUID, in run.Park) (run.Run, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Run) error {
		return r.changeIn(tx, id, nil, out, func(tx *store.Tx, x run.Run) (run.Change, error) {
			return x.Park(store.NewID(), in, r.cfg.Horizon, tx.By())
		}, func(_, after *run.Run) error {
			if after.On().Type != run.BlockedOnChild {
				return nil
			}
			ended, err := r.childEnded(tx, after)
			if err != nil || !ended {
				return err
			}
			return r.call(tx, after, func(*run.BlockedOn) bool { return true })
		})
	}, store.Reload(r.Run))
}

// childEnded says whether the child that a run waits for has ended. It returns CodeNotFound, and CodeValidationFailed for what is no child
// of the run: its end would not be told.
func (r *Repo) childEnded(tx *store.Tx, x *run.Run) (bool, error) {
	on := x.On()
	switch {
	case on.ExecutionID != uuid.Nil:
		return r.executionEnded(tx, x, on.ExecutionID)
	case on.RunID != uuid.Nil:
		child, err := find(&tx.Queries, x.Namespace, on.RunID, "")
		if err == nil && child.Parent.RunID != x.ID {
			err = noChild(x, "run", child.ID)
		}
		return err == nil && child.Status.Terminal(), err
	}
	s, err := findStep(&tx.Queries, x.ID, on.StepID)
	return err == nil && s.Status.Terminal(), err
}

func noChild(x *run.Run, what string, id uuid.UUID) error {
	return fault.Invalid(fault.CodeValidationFailed, "/blocked_on/"+what+"_id", "The %s %s is no child of run %s, which would wait for ever.", what, id, x.ID)
}

// executionEnded is childEnded for an execution. That of a step is not locked: its end waits for the run, and finds the wait then. That of
// an item leaves the run alone, so it is locked.
func (r *Repo) executionEnded(tx *store.Tx, x *run.Run, id uuid.UUID) (bool, error) {
	child, _, err := r.executions.Known(tx, id)
	if err == nil && child.RunID != x.ID {
		err = noChild(x, "execution", id)
	}
	if err != nil {
		return false, err
	}
	at, err := workOf(tx, x, id)
	if err == nil && at.ItemID != uuid.Nil {
		child, err = r.executions.Link(tx, id, x.ID)
	}
	return err == nil && child.Lifecycle == execution.Terminal, err
}

// Complete ends a run well, in which nothing is open.
func (r *Repo) Complete(ctx context.Context, id uuid.UUID, generation int64, summary string) (run.Run, error) {
	return r.change(ctx, id, nil, func(tx *store.Tx, x run.Run) (run.Change, error) {
		var open int
		err := tx.Get(&open, `SELECT (SELECT count(*) FROM run_steps WHERE run_id = ? AND ended_at IS NULL) +
			(SELECT count(*) FROM runs WHERE parent_workflow_run_id = ? AND ended_at IS NULL)`, store.ID(id), store.ID(id))
		if err != nil {
			return run.Change{}, fmt.Errorf("count what is open in run %s: %w", id, err)
		}
		return x.Complete(generation, summary, open, tx.By())
	})
}

// Fail ends a run badly, and cancels what is open in it.
func (r *Repo) Fail(ctx context.Context, id uuid.UUID, generation int64, reason, summary string) (run.Run, error) {
	return r.ending(ctx, id, nil, func(tx *store.Tx, x run.Run) (run.Change, error) { return x.Fail(generation, reason, summary, tx.By()) })
}

// Cancel ends a run, or asks its engine to.
func (r *Repo) Cancel(ctx context.Context, id uuid.UUID, expected *int64, in run.Cancel) (run.Run, error) {
	return r.ending(ctx, id, expected, func(tx *store.Tx, x run.Run) (run.Change, error) { return x.Cancel(in, tx.By()) })
}

// ending is change of a verb that may end children, which are locked before their run.
func (r *Repo) ending(ctx context.Context, id uuid.UUID, expected *int64, do verb) (run.Run, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Run) error {
		if err := r.holdBelow(tx, tx.Call.Namespace, id); err != nil {
			return err
		}
		return r.changeIn(tx, id, expected, out, do)
	}, store.Reload(r.Run))
}

// Dismiss hides a run from lists, or shows it again.
func (r *Repo) Dismiss(ctx context.Context, id uuid.UUID, expected *int64, dismissed bool) (run.Run, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, x run.Run) (run.Change, error) { return x.Dismiss(dismissed, tx.By()), nil })
}

// Acquire takes or renews the lease of a run.
func (r *Repo) Acquire(ctx context.Context, id uuid.UUID, token string, ttl time.Duration) (run.LeaseAnswer, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.LeaseAnswer) error {
		return r.changeIn(tx, id, nil, &out.Run, func(tx *store.Tx, x run.Run) (c run.Change, err error) {
			c, out.Outcome, err = x.Acquire(token, ttl, tx.By())
			return c, err
		})
	}, store.Reload(func(ctx context.Context, id uuid.UUID) (run.LeaseAnswer, error) {
		x, err := r.Run(ctx, id)
		return run.LeaseAnswer{Run: x, Outcome: run.Renewed}, err
	}))
}

// Release gives the lease of a run back.
func (r *Repo) Release(ctx context.Context, id uuid.UUID, in run.Release) (run.Run, error) {
	return r.ending(ctx, id, nil, func(tx *store.Tx, x run.Run) (run.Change, error) { return x.Release(in, tx.By()) })
}

// Resume lets a run go on, and resets the steps that are done again.
func (r *Repo) Resume(ctx context.Context, id uuid.UUID, expected *int64, in run.Resume) (run.Run, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Run) error {
		if err := r.holdBelow(tx, tx.Call.Namespace, id); err != nil {
			return err
		}
		return r.changeIn(tx, id, expected, out, func(tx *store.Tx, x run.Run) (run.Change, error) {
			return x.Resume(in, tx.By())
		}, func(before, after *run.Run) error {
			if before.Status == run.Waiting {
				return nil
			}
			return r.reset(tx, after, in)
		})
	}, store.Reload(r.Run))
}
