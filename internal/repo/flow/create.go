package flow

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Create makes a flow in the caller's namespace, and starts it if that is asked for, in the same transaction. An id that a
// flow has already gets that flow, and nothing changes. It returns CodeAlreadyExists for an id that is not this namespace's
// to take, and the refusals of [flow.New]. reference: runs-and-taskflows.md B6, B13 1; model.md "Common".
func (r *Repo) Create(ctx context.Context, in flow.Create) (flow.Creation, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Creation) (err error) {
		*out, err = r.CreateIn(tx, in)
		tx.Refer(out.Flow.ID)
		return err
	}, store.Reload(func(ctx context.Context, id uuid.UUID) (flow.Creation, error) {
		f, err := r.Flow(ctx, id)
		return flow.Creation{Flow: f}, err
	}))
}

// CreateIn is Create in a transaction.
func (r *Repo) CreateIn(tx *store.Tx, in flow.Create) (flow.Creation, error) {
	f, existing, err := store.Once(in.ID,
		func(id uuid.UUID) (flow.Flow, error) { return r.find(&tx.Queries, tx.Call.Namespace, id, "") },
		func(id uuid.UUID) (flow.Flow, error) { return r.create(tx, id, in) })
	return flow.Creation{Flow: f, Existing: existing}, err
}

func (r *Repo) create(tx *store.Tx, id uuid.UUID, in flow.Create) (flow.Flow, error) {
	in.ID, in.Namespace = id, tx.Call.Namespace
	var err error
	if in.Limits, err = r.executions.LimitsOf(&tx.Queries, in.Namespace, in.BudgetIDs, in.QuotaIDs); err != nil {
		return flow.Flow{}, err
	}
	c, err := flow.New(in, tx.By())
	if err != nil {
		return flow.Flow{}, err
	}
	stored, err := rowOf(&c.Flow)
	if err != nil {
		return flow.Flow{}, fmt.Errorf("flow %s: %w", id, err)
	}
	n, err := tx.Exec(table.Insert, table.All(&stored)...)
	switch {
	case err != nil:
		return flow.Flow{}, fmt.Errorf("insert flow: %w", err)
	case n == 0:
		return flow.Flow{}, store.Taken(id)
	}
	tx.EmitAll(c.Events)
	return c.Flow, nil
}
