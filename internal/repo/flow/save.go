package flow

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// verb is one transition of a flow that the transaction holds.
type verb func(tx *store.Tx, f flow.Flow) (flow.Change, error)

// change applies a verb to a flow in one transaction and returns the flow as it is in the end. expected is the revision that
// the caller has read, nil for any.
func (r *Repo) change(ctx context.Context, id uuid.UUID, expected *int64, do verb) (flow.Flow, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Flow) error {
		return r.changeIn(tx, id, expected, out, do)
	}, store.Reload(r.Flow))
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

// apply reads and locks a flow of the caller's namespace, applies a verb and saves what it did. It returns the members that it
// could not cancel.
func (r *Repo) apply(tx *store.Tx, id uuid.UUID, expected *int64, do verb) ([]uuid.UUID, error) {
	f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
	if err != nil {
		return nil, err
	}
	if err := f.Expect(expected); err != nil {
		return nil, err
	}
	c, err := do(tx, f)
	if err != nil {
		return nil, err
	}
	return r.save(tx, &f, c)
}

// save writes what a transition did: the row, its events, and what follows for waits and members. A transition that changed
// nothing writes nothing. It returns the members that it could not cancel.
func (r *Repo) save(tx *store.Tx, before *flow.Flow, c flow.Change) ([]uuid.UUID, error) {
	if len(c.Events) == 0 {
		return nil, nil
	}
	after := &c.Flow
	stored, err := rowOf(after)
	if err != nil {
		return nil, fmt.Errorf("flow %s: %w", after.ID, err)
	}
	if err := tx.ExecOne(table.Update+" AND revision = ?", append(table.Moving(&stored), stored.ID, before.Revision)...); err != nil {
		return nil, fmt.Errorf("update flow %s: %w", after.ID, err)
	}
	defer tx.Because(tx.Cause()) // what it was before
	for _, e := range c.Events {
		tx.Because(tx.Emit(e))
	}
	if err := r.followWait(tx, before, after); err != nil {
		return nil, err
	}
	if after.AutoFinish && after.NodeCount > 0 && after.Status == flow.Running && before.Status != flow.Running {
		r.Moved(tx, after.ID, "", "", 0)
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

// followMembers lets members go with a flow that has started, and end with one that was cancelled or has failed. It returns the
// members that it could not cancel.
func (r *Repo) followMembers(tx *store.Tx, before, after *flow.Flow) ([]uuid.UUID, error) {
	if after.NodeCount == 0 || before.Status == after.Status {
		return nil, nil
	}
	if before.Status == flow.Created && after.Status == flow.Running {
		return nil, r.StartMembers(tx, after.ID)
	}
	if end, ends := after.MembersEnd(); ends {
		return r.EndMembers(tx, after.ID, end)
	}
	return nil, nil
}

// StartMembers lets members go on that have waited for the start of their flow: as many as one transaction may change, and the rest
// from the backlog.
func (r *Repo) StartMembers(tx *store.Tx, flowID uuid.UUID) error {
	n, err := r.executions.UnpauseMembers(tx, flowID, r.cfg.Batch)
	if err != nil || n < r.cfg.Batch {
		return err
	}
	return backlog.Put(tx, backlog.Item{Kind: backlog.Start, FlowID: flowID, ExecutionID: flowID})
}

// EndMembers ends members because their flow does: as many as one transaction may change, and the rest from the backlog. It returns
// those that cannot be read.
func (r *Repo) EndMembers(tx *store.Tx, flowID uuid.UUID, end execution.Cascade) ([]uuid.UUID, error) {
	ended, err := r.executions.CancelMembers(tx, flowID, end, r.cfg.Batch)
	if err != nil || ended.Looked < r.cfg.Batch || len(ended.Failed) == ended.Looked {
		return ended.Failed, err
	}
	return ended.Failed, backlog.Put(tx, backlog.Item{Kind: backlog.Cancel, FlowID: flowID, ExecutionID: flowID, Detail: end})
}

// open returns how many members of a flow have not ended.
func (r *Repo) open(tx *store.Tx, f *flow.Flow) (int, error) {
	if f.NodeCount == 0 {
		return 0, nil
	}
	return r.executions.OpenMembers(tx, f.ID)
}
