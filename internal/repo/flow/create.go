package flow

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
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
	in.Namespace = tx.Call.Namespace
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
	} else if f, err := r.find(&tx.Queries, in.Namespace, in.ID, ""); fault.CodeOf(err) != fault.CodeNotFound {
		return flow.Creation{Flow: f, Existing: true}, err
	}
	var err error
	if in.Limits, err = r.executions.LimitsOf(&tx.Queries, in.Namespace, in.BudgetIDs, in.QuotaIDs); err != nil {
		return flow.Creation{}, err
	}
	c, err := flow.New(in, tx.By())
	if err != nil {
		return flow.Creation{}, err
	}
	stored, err := rowOf(&c.Flow)
	if err != nil {
		return flow.Creation{}, fmt.Errorf("flow %s: %w", in.ID, err)
	}
	n, err := tx.Exec(table.Insert, append(stored.fixedValues(), stored.movingValues()...)...)
	if err != nil {
		return flow.Creation{}, fmt.Errorf("insert flow: %w", err)
	}
	if n == 0 { // made at the same time, or elsewhere
		f, err := r.find(&tx.Queries, in.Namespace, in.ID, "")
		if fault.CodeOf(err) == fault.CodeNotFound {
			err = fault.New(fault.CodeAlreadyExists, "The id %s is taken. Choose another one.", in.ID)
		}
		return flow.Creation{Flow: f, Existing: true}, err
	}
	tx.EmitAll(c.Events)
	return flow.Creation{Flow: c.Flow}, nil
}
