package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Create makes a run in the caller's namespace. The same id again changes nothing. It returns CodeNotFound and CodeAlreadyTerminal for
// the flow, CodeNotFound, CodeRunTerminal, CodeRunCancelled and CodeLinkCycle for the parent, CodeAlreadyExists for an id of another
// namespace, and the refusals of [run.New]. reference: runs-and-taskflows.md A5.1.
func (r *Repo) Create(ctx context.Context, in run.Create) (run.Creation, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Creation) (err error) {
		*out, err = r.create(tx, in)
		tx.Refer(out.Run.ID)
		return err
	}, store.Reload(func(ctx context.Context, id uuid.UUID) (run.Creation, error) {
		x, err := r.Run(ctx, id)
		return run.Creation{Run: x}, err
	}))
}

func (r *Repo) create(tx *store.Tx, in run.Create) (made run.Creation, err error) {
	in.Namespace, in.Creator = tx.Call.Namespace, tx.Call.Actor
	made.Run, made.Existing, err = store.Once(in.ID,
		func(id uuid.UUID) (run.Run, error) { return find(&tx.Queries, in.Namespace, id, "") },
		func(id uuid.UUID) (run.Run, error) {
			in.ID = id
			return r.createIn(tx, in)
		})
	return made, err
}

// createIn makes a run that is not there, in its parent if it has one.
func (r *Repo) createIn(tx *store.Tx, in run.Create) (run.Run, error) {
	if in.Parent.RunID == uuid.Nil {
		return r.insert(tx, in)
	}
	if err := r.holdFlows(tx, in.Parent.RunID, &run.Child{Run: &in}); err != nil {
		return run.Run{}, err
	}
	parent, err := r.hold(tx, in.Parent.RunID)
	if err != nil {
		return run.Run{}, err
	}
	if err := parent.Begins(); err != nil {
		return run.Run{}, err
	}
	if _, err := depth(tx, &parent); err != nil {
		return run.Run{}, err
	}
	if in.FlowID == uuid.Nil {
		in.FlowID = parent.FlowID
	}
	return r.insert(tx, in)
}

// insert writes a new run whose parent, if it has one, is held and takes children.
func (r *Repo) insert(tx *store.Tx, in run.Create) (run.Run, error) {
	c, err := run.New(in, tx.By())
	if err != nil {
		return run.Run{}, err
	}
	stored, err := rowOf(&c.Run)
	if err != nil {
		return run.Run{}, fmt.Errorf("run %s: %w", c.Run.ID, err)
	}
	n, err := tx.Exec(table.Insert, table.All(&stored)...)
	switch {
	case err != nil:
		return run.Run{}, fmt.Errorf("insert run: %w", err)
	case n == 0:
		return run.Run{}, store.Taken(in.ID)
	}
	if in.FlowID != uuid.Nil {
		if err := r.flows.AddRun(tx, in.FlowID, in.ID, c.Run.Name(), c.Run.FlowStepOf()); err != nil {
			return run.Run{}, err
		}
	}
	tx.EmitAll(c.Events)
	return c.Run, nil
}

// depth returns the runs that x is in, the nearest first. It returns CodeLinkCycle when a child of x would be too deep.
func depth(tx *store.Tx, x *run.Run) ([]uuid.UUID, error) {
	up := []uuid.UUID{}
	for at := x.Parent.RunID; at != uuid.Nil; {
		up = append(up, at)
		if len(up)+1 >= run.MaxDepth {
			return nil, fault.New(fault.CodeLinkCycle, "Runs stand at most %d deep in one another. Let this one be in a run further up, or in none.", run.MaxDepth).With("limit", run.MaxDepth)
		}
		var parent store.ID
		err := tx.Get(&parent, `SELECT parent_workflow_run_id FROM runs WHERE id = ?`, store.ID(at))
		if store.NotFound(err) { // it was deleted
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read what run %s is in: %w", at, err)
		}
		at = uuid.UUID(parent)
	}
	return up, nil
}
