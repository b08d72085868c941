package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Each of these returns CodeNotFound, CodeRevisionMismatch when the caller has read another revision than the present one,
// and the refusals of the method of the same name in domain/execution. expected is nil for a caller who has read none.

// Stop cancels an execution, after a grace if somebody holds it.
func (r *Repo) Stop(ctx context.Context, id uuid.UUID, expected *int64, reason string, grace time.Duration) (execution.Execution, error) {
	return r.operate(ctx, id, expected, func(tx *store.Tx, e execution.Execution) (execution.Change, error) {
		return e.Stop(cancellation(tx, reason), grace, tx.Now())
	})
}

// Prioritise changes the priority of an execution.
func (r *Repo) Prioritise(ctx context.Context, id uuid.UUID, expected *int64, priority int) (execution.Execution, error) {
	return r.operate(ctx, id, expected, func(_ *store.Tx, e execution.Execution) (execution.Change, error) { return e.Prioritise(priority) })
}

// Resume lets an execution go on that is suspended or waits for its children.
func (r *Repo) Resume(ctx context.Context, id uuid.UUID, expected *int64, delay time.Duration) (execution.Execution, error) {
	return r.operate(ctx, id, expected, func(tx *store.Tx, e execution.Execution) (execution.Change, error) { return e.Resume(delay, tx.Now()) })
}

// SetTag sets one tag of an execution, whatever its phase.
func (r *Repo) SetTag(ctx context.Context, id uuid.UUID, expected *int64, key, value string) (execution.Execution, error) {
	return r.operate(ctx, id, expected, func(_ *store.Tx, e execution.Execution) (execution.Change, error) { return e.SetTag(key, value) })
}

// Replay lets an ended execution run again, and its flow if that has failed or finished. It returns also CodeAlreadyTerminal
// for a member of a cancelled flow.
func (r *Repo) Replay(ctx context.Context, id uuid.UUID, expected *int64) (execution.Execution, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Execution) error {
		return r.operateIn(tx, id, expected, out, r.replay)
	}, store.Reload(r.Execution))
}

// replay is [execution.Execution.Replay] of an execution whose flow is locked.
func (r *Repo) replay(tx *store.Tx, e execution.Execution) (execution.Change, error) {
	if e.FlowID == uuid.Nil {
		return e.Replay(execution.Standing{}, tx.Now())
	}
	if err := e.Replayable(); err != nil {
		return execution.Change{}, err
	}
	started, err := r.flows.Replayable(tx, e.FlowID)
	if err != nil {
		return execution.Change{}, err
	}
	return r.ReplayMember(tx, e, started)
}

// ReplayMember replays a member of a flow that is locked and that may run again.
func (r *Repo) ReplayMember(tx *store.Tx, e execution.Execution, started bool) (execution.Change, error) {
	blocked, err := r.graph.Rewind(tx, &e)
	if err != nil {
		return execution.Change{}, fmt.Errorf("rewind what execution %s depends on: %w", e.ID, err)
	}
	return e.Replay(execution.Standing{Paused: !started, Blocked: blocked}, tx.Now())
}

// revokedRef is what the answer to a revocation is rendered from again, beside the execution.
type revokedRef struct {
	ID        uuid.UUID `json:"id"`
	Satisfied string    `json:"satisfied,omitempty"`
}

// Revoke takes a lease away. satisfied says why there was nothing to do.
func (r *Repo) Revoke(ctx context.Context, id uuid.UUID, expected *int64, which execution.Revocation) (execution.Revoked, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Revoked) error {
		var satisfied string
		err := r.operateIn(tx, id, expected, &out.Execution, func(tx *store.Tx, e execution.Execution) (c execution.Change, err error) {
			c, satisfied, err = e.Revoke(which, tx.Now())
			return c, err
		})
		out.Satisfied = satisfied
		tx.Refer(revokedRef{id, satisfied})
		return err
	}, store.Reload(func(ctx context.Context, old revokedRef) (execution.Revoked, error) {
		e, err := r.Execution(ctx, old.ID)
		return execution.Revoked{Execution: e, Satisfied: old.Satisfied}, err
	}))
}

// act is what an operator does to an execution that the transaction holds.
type act func(tx *store.Tx, e execution.Execution) (execution.Change, error)

func (r *Repo) operate(ctx context.Context, id uuid.UUID, expected *int64, do act) (execution.Execution, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Execution) error {
		return r.operateIn(tx, id, expected, out, do)
	}, store.Reload(r.Execution))
}

func (r *Repo) operateIn(tx *store.Tx, id uuid.UUID, expected *int64, out *execution.Execution, do act) error {
	if err := lockFlow(tx, id); err != nil {
		return err
	}
	e, err := r.State(tx, id)
	if err != nil {
		return err
	}
	tx.Later()
	if err := fault.Expect("Execution "+id.String(), expected, e.Revision); err != nil {
		return err
	}
	c, err := do(tx, e)
	if err != nil {
		return err
	}
	*out = c.Execution
	tx.Refer(id)
	return r.save(tx, &e, c, nil)
}

func cancellation(tx *store.Tx, reason string) execution.Cancellation {
	return execution.Cancellation{Reason: reason, Actor: tx.Call.Actor, RequestedAt: tx.Now()}
}
