package flow

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Each verb returns CodeNotFound, CodeRevisionMismatch (with expected, actual and the fields that changed) when the caller
// has read another revision than the present one, and the refusals of the verb of the same name in domain/flow. expected is
// nil for a caller who has read none.

// Start starts a created flow; its members may be claimed from then on.
func (r *Repo) Start(ctx context.Context, id uuid.UUID, expected *int64) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.Start(tx.By()) })
}

// Wait parks a running flow. An event that is kept for it resumes it at once. It returns also CodeBadWaitCondition and
// CodeTimerOutOfRange, which point at the part of the request that is wrong.
func (r *Repo) Wait(ctx context.Context, id uuid.UUID, expected *int64, req wait.Request) (flow.Flow, error) {
	spec, err := req.Parse("")
	if err != nil {
		return flow.Flow{}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Flow) error {
		if err := r.waits.Reserve(tx, spec.Condition); err != nil {
			return err
		}
		return r.changeIn(tx, id, expected, out, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
			if err := spec.Check(tx.Now(), r.cfg.Horizon, ""); err != nil {
				return flow.Change{}, err
			}
			return f.Park(store.NewID(), spec, tx.By())
		})
	}, store.Reload(r.Flow))
}

// Resume ends the wait of a flow, whatever it waits for, and merges a patch into its state; nil is none.
func (r *Repo) Resume(ctx context.Context, id uuid.UUID, expected *int64, patch json.RawMessage) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.Resume(patch, tx.By()) })
}

// Finish ends a running flow well, after merging a patch into its state; nil is none. It returns also CodeOpenMembers.
func (r *Repo) Finish(ctx context.Context, id uuid.UUID, expected *int64, patch json.RawMessage) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
		open, err := r.open(tx, &f)
		if err != nil {
			return flow.Change{}, err
		}
		return f.Finish(patch, open, tx.By())
	})
}

// Fail ends a flow badly, and cancels its members.
func (r *Repo) Fail(ctx context.Context, id uuid.UUID, expected *int64, reason string) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.Fail(reason, tx.By()) })
}

// RequestCancel asks a flow to cancel itself. A waiting one is cancelled by the next sweep, which is at once.
// reference: runs-and-taskflows.md B7.
func (r *Repo) RequestCancel(ctx context.Context, id uuid.UUID, expected *int64, reason string) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.RequestCancel(reason, tx.By()), nil })
}

// Patch changes a flow's state and step label.
func (r *Repo) Patch(ctx context.Context, id uuid.UUID, expected *int64, p flow.Patch) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.Patch(p, tx.By()) })
}

// Replace replaces the fields of a flow that its controller owns. req is its wait, nil when it is left out or null. It returns
// also CodeBadWaitCondition and CodeTimerOutOfRange.
func (r *Repo) Replace(ctx context.Context, id uuid.UUID, expected int64, n flow.Replacement, req *wait.Request) (flow.Flow, error) {
	if req != nil {
		spec, err := req.Parse("/wait")
		if err != nil {
			return flow.Flow{}, err
		}
		n.Wait = &spec
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Flow) error {
		if n.Wait != nil {
			if err := r.waits.Reserve(tx, n.Wait.Condition); err != nil {
				return err
			}
		}
		return r.changeIn(tx, id, &expected, out, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
			if n.Wait != nil && (f.Wait == nil || !f.Wait.Equal(*n.Wait)) {
				if err := n.Wait.Check(tx.Now(), r.cfg.Horizon, "/wait"); err != nil {
					return flow.Change{}, err
				}
			}
			open, err := r.open(tx, &f)
			if err != nil {
				return flow.Change{}, err
			}
			return f.Replace(n, store.NewID(), open, tx.By())
		})
	})
}

// SetTag sets one tag of a flow, whatever its status.
func (r *Repo) SetTag(ctx context.Context, id uuid.UUID, expected *int64, key, value string) (flow.Flow, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.SetTag(key, value, tx.By()) })
}
