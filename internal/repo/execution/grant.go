package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

// Reserve grants the execution that a claim would get, but for lost leases, to a worker. Without work it returns none. It
// returns CodeWorkerDraining.
func (r *Repo) Reserve(ctx context.Context, req execution.GrantRequest) (*execution.Execution, error) {
	if err := r.buckets.learn(ctx, r.store); err != nil {
		return nil, err
	}
	reserved, err := limited(ctx, r, func() (*execution.Execution, error) { return r.tryReserve(ctx, req) })
	switch {
	case errors.Is(err, errNoWork):
		return nil, nil
	case errors.Is(err, errDraining):
		return nil, isDraining(req.InstanceID)
	}
	return reserved, err
}

func (r *Repo) tryReserve(ctx context.Context, req execution.GrantRequest) (*execution.Execution, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out **execution.Execution) error {
		open, err := r.buckets.open(tx, tx.Call.Namespace, []string{req.Lane}, req.InstanceID, req.Capabilities, false)
		if err != nil {
			return fmt.Errorf("claim buckets: %w", err)
		}
		p, err := r.pick(tx, open, 1, func(e *execution.Execution, _ execution.Terms) (bool, error) {
			reserved, err := r.reserve(tx, *e, func(g execution.Grant) (execution.Change, error) { return e.Reserve(g, tx.Now()) }, req)
			*out = &reserved
			return true, err
		})
		if err == nil {
			err = p.shut()
		}
		if err == nil && *out == nil {
			err = errNoWork
		}
		return err
	})
}

// ReserveLost grants a lost execution to a worker. It returns CodeNotFound, CodeWorkerDraining and the refusals of
// [execution.Execution.ReserveLost].
func (r *Repo) ReserveLost(ctx context.Context, id uuid.UUID, req execution.GrantRequest) (execution.Execution, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Execution) error {
		e, err := r.State(tx, id)
		if err != nil {
			return err
		}
		if err := working(tx, req.InstanceID); err != nil {
			return err
		}
		lane, err := findLane(&tx.Queries, e.Namespace, e.Lane, "")
		if err != nil {
			return err
		}
		*out, err = r.reserve(tx, e, func(g execution.Grant) (execution.Change, error) {
			return e.ReserveLost(g, req.Capabilities, lane, tx.Now())
		}, req)
		return err
	})
}

// reserve grants e as do says.
func (r *Repo) reserve(tx *store.Tx, e execution.Execution, do func(g execution.Grant) (execution.Change, error), req execution.GrantRequest) (execution.Execution, error) {
	c, err := do(execution.Grant{ID: store.NewID(), WorkerID: req.WorkerID, InstanceID: req.InstanceID, ExpiresAt: tx.Now().Add(req.TTL)})
	if err != nil {
		return execution.Execution{}, err
	}
	return c.Execution, r.save(tx, &e, c, nil)
}

// ClaimGranted claims a reserved execution. It returns CodeNotFound, CodeWorkerDraining and the refusals of
// [execution.Execution.ClaimGranted].
func (r *Repo) ClaimGranted(ctx context.Context, id uuid.UUID, use execution.Use, workerID, instance string, ttl time.Duration) (execution.Claimed, error) {
	return r.claimOne(ctx, id, func(tx *store.Tx, e execution.Execution) (execution.Change, execution.ClaimKind, error) {
		if err := working(tx, instance); err != nil {
			return execution.Change{}, "", err
		}
		lane, err := findLane(&tx.Queries, e.Namespace, e.Lane, "")
		if err != nil {
			return execution.Change{}, "", err
		}
		return e.ClaimGranted(use, claimant(workerID, instance, ttl), lane, tx.Now())
	})
}

// byHand is the worker of what an operator claims.
const byHand = "operator"

// ClaimByHand claims one execution for an operator. It returns CodeNotFound and the refusals of
// [execution.Execution.ClaimByHand].
func (r *Repo) ClaimByHand(ctx context.Context, id uuid.UUID, ttl time.Duration) (execution.Claimed, error) {
	return r.claimOne(ctx, id, func(tx *store.Tx, e execution.Execution) (execution.Change, execution.ClaimKind, error) {
		return e.ClaimByHand(claimant(byHand, byHand, ttl), tx.Now())
	})
}

func (r *Repo) claimOne(ctx context.Context, id uuid.UUID, do func(tx *store.Tx, e execution.Execution) (execution.Change, execution.ClaimKind, error)) (execution.Claimed, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Claimed) error {
		e, err := r.State(tx, id)
		if err != nil {
			return err
		}
		c, kind, err := do(tx, e)
		if err != nil {
			return err
		}
		out.Claims = []execution.Claim{{Kind: kind}}
		if kind != "" {
			if out.Claims[0].Allowance, err = r.admit(tx, &e, &c.Execution); err != nil {
				return err
			}
		}
		out.Claims[0].Execution = c.Execution
		tx.Refer(claimRefs(out.Claims))
		if err := r.save(tx, &e, c, nil); err != nil {
			return err
		}
		return r.passInputs(&tx.Queries, out.Claims)
	}, store.Reload(r.reloadClaims))
}

// working refuses, with CodeWorkerDraining, a worker that gets no more work.
func working(tx *store.Tx, instance string) error {
	var n int
	if err := tx.Get(&n, `SELECT count(*) FROM workers WHERE namespace = ? AND worker_instance_id = ? AND `+worker.Draining,
		tx.Call.Namespace, instance, store.Millis(tx.Queries.Now())); err != nil {
		return fmt.Errorf("look whether worker %s is draining: %w", instance, err)
	}
	if n > 0 {
		return isDraining(instance)
	}
	return nil
}

func isDraining(instance string) error {
	return fault.New(fault.CodeWorkerDraining, "Worker %s is draining and gets no more work. End what it holds, and stop it.", instance).With("worker_instance_id", instance)
}
