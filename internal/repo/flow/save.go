package flow

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Reasons of members that end because their flow does.
const (
	reasonCancelled = "flow_cancelled"
	reasonFailed    = "flow_failed"
)

// verb is one transition of a flow that the transaction holds.
type verb func(tx *store.Tx, f flow.Flow) (flow.Change, error)

// change applies a verb to a flow in one transaction and returns the flow as it is in the end. expected is the revision that
// the caller has read, nil for any.
func (r *Repo) change(ctx context.Context, id uuid.UUID, expected *int64, do verb) (flow.Flow, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Flow) error {
		return r.changeIn(tx, id, expected, out, do)
	}, store.Reload(r.reload))
}

// changeIn is change in a transaction.
func (r *Repo) changeIn(tx *store.Tx, id uuid.UUID, expected *int64, out *flow.Flow, do verb) error {
	if _, err := r.apply(tx, id, expected, do); err != nil {
		return err
	}
	r.answer(tx, id, out)
	tx.Refer(id)
	return nil
}

// answer reads a flow back when everything else is done.
func (r *Repo) answer(tx *store.Tx, id uuid.UUID, out *flow.Flow) {
	tx.Final(func() (err error) {
		*out, err = r.find(&tx.Queries, tx.Call.Namespace, id, "")
		return err
	})
}

// apply reads and locks a flow of the caller's namespace, applies a verb and saves what it did. It returns how many members
// that cancelled.
func (r *Repo) apply(tx *store.Tx, id uuid.UUID, expected *int64, do verb) (int, error) {
	f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
	if err != nil {
		return 0, err
	}
	if err := f.Expect(expected); err != nil {
		return 0, err
	}
	c, err := do(tx, f)
	if err != nil {
		return 0, err
	}
	return r.save(tx, &f, c)
}

// save writes what a transition did: the row, its events, and what follows for waits and members. A transition that changed
// nothing writes nothing. It returns how many members it cancelled.
func (r *Repo) save(tx *store.Tx, before *flow.Flow, c flow.Change) (int, error) {
	if len(c.Events) == 0 {
		return 0, nil
	}
	after := &c.Flow
	stored, err := rowOf(after)
	if err != nil {
		return 0, fmt.Errorf("flow %s: %w", after.ID, err)
	}
	if err := tx.ExecOne(updateRow, append(stored.movingValues(), stored.ID, before.Revision)...); err != nil {
		return 0, fmt.Errorf("update flow %s: %w", after.ID, err)
	}
	for _, e := range c.Events {
		tx.Because(tx.Emit(e))
	}
	defer tx.Because(0)
	if err := r.followWait(tx, before, after); err != nil {
		return 0, err
	}
	return r.followMembers(tx, before, after)
}

// followWait opens, closes, wakes or describes the wait of a flow that has changed.
func (r *Repo) followWait(tx *store.Tx, before, after *flow.Flow) error {
	switch {
	case before.Wait == nil && after.Wait == nil:
		return nil
	case before.Wait == nil:
		return r.waits.Open(tx, wait.Wait{ID: after.Wait.ID, Namespace: after.Namespace, FlowID: after.ID, Spec: after.Wait.Spec, Asks: after.Wait.Condition.Answerable(), Since: after.Wait.Since,
			Title: after.Goal, RequestedBy: cmp.Or(after.ControllerID, tx.Call.Actor)})
	case after.Wait == nil:
		_, err := r.waits.Close(tx, before.Wait.ID)
		return err
	case after.CancelRequested && !before.CancelRequested:
		return r.waits.Wake(tx, after.Wait.ID)
	case before.Goal != after.Goal, before.ControllerID != after.ControllerID:
		return r.waits.Describe(tx, after.Wait.ID, after.Goal, cmp.Or(after.ControllerID, tx.Call.Actor))
	}
	return nil
}

// followMembers lets members go with a flow that has started, and end with one that was cancelled or has failed.
func (r *Repo) followMembers(tx *store.Tx, before, after *flow.Flow) (int, error) {
	if after.NodeCount == 0 || before.Status == after.Status {
		return 0, nil
	}
	by := execution.Cancellation{Reason: reasonFailed, Actor: tx.Call.Actor, RequestedAt: tx.Now()}
	switch {
	case before.Status == flow.Created && after.Status == flow.Running:
		return 0, r.executions.UnpauseMembers(tx, after.ID)
	case after.Status == flow.Failed:
		return r.executions.CancelMembers(tx, after.ID, by)
	case after.Status != flow.Cancelled:
		return 0, nil
	}
	by.Reason = cmp.Or(after.Cancellation.Reason, reasonCancelled)
	switch after.Cancellation.Policy {
	case flow.CancelAll:
		return r.executions.CancelMembers(tx, after.ID, by)
	case flow.CancelPending:
		return r.executions.CancelPendingMembers(tx, after.ID, by)
	default:
		return 0, nil
	}
}

// open returns how many members of a flow have not ended.
func (r *Repo) open(tx *store.Tx, f *flow.Flow) (int, error) {
	if f.NodeCount == 0 {
		return 0, nil
	}
	return r.executions.OpenMembers(tx, f.ID)
}
