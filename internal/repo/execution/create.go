package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Create makes an execution in the caller's namespace. It returns CodeAlreadyExists for an id or a member key that is
// taken by another execution, CodeNotFound and CodeAlreadyTerminal for the flow, and the refusals of [execution.New].
// reference: executions.md 2.1.
func (r *Repo) Create(ctx context.Context, in execution.Create) (execution.Created, error) {
	return withBuckets(ctx, r, func() (execution.Created, error) {
		return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Created) (err error) {
			*out, err = r.create(tx, in)
			tx.Refer(out.Execution.ID)
			return err
		}, store.Reload(func(ctx context.Context, id uuid.UUID) (execution.Created, error) {
			e, err := r.Execution(ctx, id)
			return execution.Created{Execution: e}, err
		}))
	})
}

// create makes one execution. A refusal leaves nothing behind, since in a batch the others go on.
func (r *Repo) create(tx *store.Tx, in execution.Create) (execution.Created, error) {
	in.Namespace, in.Creator = tx.Call.Namespace, tx.Call.Actor
	now := tx.Now()
	if e, found, err := existing(tx, in, now); found || err != nil {
		return execution.Created{Execution: e, Existing: found}, err
	}
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
	}
	var err error
	if in.Limits, err = r.limitsIn(tx, &in); err != nil {
		return execution.Created{}, err
	}
	c, err := execution.New(in, now) // before anything is written
	if err != nil {
		return execution.Created{}, err
	}
	if in.IdempotencyKey == "" {
		return r.insert(tx, in, c)
	}
	id, err := takeKey(tx, in, now, c.Execution.PolicyOf().Dedup())
	if err != nil {
		return execution.Created{}, err
	}
	if id != in.ID { // a create with the same key was under way
		e, err := find(&tx.Queries, in.Namespace, id, "")
		return execution.Created{Execution: e, Existing: true}, err
	}
	made, err := r.insert(tx, in, c)
	if err != nil && refusal(err) {
		if err := dropKey(tx, in, in.ID); err != nil {
			return execution.Created{}, err
		}
	}
	return made, err
}

// existing finds what the same create has made before: under its idempotency_key, else under its id. A key whose execution
// is gone is free again.
func existing(tx *store.Tx, in execution.Create, now time.Time) (execution.Execution, bool, error) {
	if in.IdempotencyKey != "" {
		var id store.ID
		err := tx.Get(&id, `SELECT execution_id FROM execution_keys WHERE namespace = ? AND key = ? AND expires_at > ?`,
			in.Namespace, in.IdempotencyKey, store.Millis(now))
		if err == nil {
			var e execution.Execution
			if e, err = find(&tx.Queries, in.Namespace, uuid.UUID(id), ""); fault.CodeOf(err) != fault.CodeNotFound {
				return e, err == nil, err
			}
			err = dropKey(tx, in, uuid.UUID(id))
		}
		if err != nil && !store.NotFound(err) {
			return execution.Execution{}, false, fmt.Errorf("look for idempotency_key: %w", err)
		}
	}
	if in.ID == uuid.Nil {
		return execution.Execution{}, false, nil
	}
	e, err := find(&tx.Queries, in.Namespace, in.ID, tx.ForUpdate()) // after the end of a deletion: what that has dropped counts
	if fault.CodeOf(err) != fault.CodeNotFound {
		return e, err == nil, err
	}
	dropped, err := dropping(tx, in.ID)
	if dropped {
		err = fault.New(fault.CodeAlreadyExists, "The id %s was that of an execution that is being deleted. Choose another one.", in.ID)
	}
	return execution.Execution{}, false, err
}

// insert makes the execution in its flow, if it has one.
func (r *Repo) insert(tx *store.Tx, in execution.Create, c execution.Change) (execution.Created, error) {
	var owner flow.Flow
	if in.FlowID != uuid.Nil {
		var err error
		if owner, err = r.flows.Grow(tx, in.FlowID, 1, 0); err != nil {
			return execution.Created{}, err
		}
		if in.Paused = owner.Status == flow.Created; in.Paused {
			if c, err = execution.New(in, c.Execution.CreatedAt); err != nil {
				return execution.Created{}, err
			}
		}
		c.Execution.Limits = c.Execution.Limits.Under(owner.Limits)
	}
	key, err := r.keyOf(tx, &c.Execution)
	if err != nil {
		return execution.Created{}, err
	}
	if _, err := r.buckets.find(tx, key); err != nil { // also of what cannot be claimed yet: its lane is known from now on
		return execution.Created{}, err
	}
	stored, err := r.stand(tx, &c.Execution, false)
	if err != nil {
		return execution.Created{}, err
	}
	n, err := tx.Exec(table.Insert, table.All(&stored)...)
	if err != nil {
		return execution.Created{}, fmt.Errorf("insert execution: %w", err)
	}
	if n == 0 {
		if in.FlowID != uuid.Nil {
			if err := r.flows.Shrink(tx, in.FlowID); err != nil {
				return execution.Created{}, err
			}
		}
		return taken(tx, in)
	}
	emit(tx, c)
	if in.FlowID != uuid.Nil {
		r.flows.Moved(tx, in.FlowID, "", c.Execution.Public(), 1)
		r.flows.Joined(tx, &owner, &c.Execution)
	}
	return execution.Created{Execution: c.Execution}, nil
}

// taken tells why an insert met another row: a create with the same id that was under way, or a member key.
func taken(tx *store.Tx, in execution.Create) (execution.Created, error) {
	e, err := find(&tx.Queries, in.Namespace, in.ID, "")
	if fault.CodeOf(err) == fault.CodeNotFound {
		return execution.Created{}, fault.New(fault.CodeAlreadyExists, "The id %s or the key %q is taken by another execution. Choose another one.", in.ID, in.Key)
	}
	return execution.Created{Execution: e, Existing: true}, err
}

// takeKey takes a creation key for in.ID, and returns the id of the execution that has it.
func takeKey(tx *store.Tx, in execution.Create, now time.Time, window time.Duration) (uuid.UUID, error) {
	if window <= 0 {
		return in.ID, nil
	}
	n, err := tx.Exec(`INSERT INTO execution_keys (namespace, key, execution_id, expires_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (namespace, key) DO UPDATE SET execution_id = excluded.execution_id, expires_at = excluded.expires_at
		WHERE execution_keys.expires_at <= ?`, in.Namespace, in.IdempotencyKey, store.ID(in.ID), store.Millis(now.Add(window)), store.Millis(now))
	if err != nil || n == 1 {
		return in.ID, err
	}
	var id store.ID
	err = tx.Get(&id, `SELECT execution_id FROM execution_keys WHERE namespace = ? AND key = ?`, in.Namespace, in.IdempotencyKey)
	return uuid.UUID(id), err
}

// dropKey frees a creation key that stands for an execution that does not exist.
func dropKey(tx *store.Tx, in execution.Create, id uuid.UUID) error {
	_, err := tx.Exec(`DELETE FROM execution_keys WHERE namespace = ? AND key = ? AND execution_id = ?`, in.Namespace, in.IdempotencyKey, store.ID(id))
	return err
}

// flowsOf returns the flows that a batch makes members of, each once.
func flowsOf(in []execution.Item[execution.Create]) []uuid.UUID {
	var ids []uuid.UUID
	for i := range in {
		if id := in[i].Value.FlowID; id != uuid.Nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// CreateMany makes many executions in one transaction; an item that was refused before it came here keeps its error. Each
// stands alone, unless atomic: then the first refusal, which points at its item, refuses all.
func (r *Repo) CreateMany(ctx context.Context, in []execution.Item[execution.Create], atomic bool) ([]execution.Item[execution.Created], error) {
	return withBuckets(ctx, r, func() ([]execution.Item[execution.Created], error) {
		return store.Write(ctx, r.store, func(tx *store.Tx, out *[]execution.Item[execution.Created]) (err error) {
			*out, err = r.createMany(tx, in, atomic)
			return err
		}, store.Reload(func(ctx context.Context, refs []itemRef) ([]execution.Item[execution.Created], error) {
			return reloadItems(ctx, r, refs, func(e execution.Execution, _ itemRef) execution.Created { return execution.Created{Execution: e} })
		}))
	})
}

func (r *Repo) createMany(tx *store.Tx, in []execution.Item[execution.Create], atomic bool) ([]execution.Item[execution.Created], error) {
	if flows := flowsOf(in); len(flows) > 0 { // before the lanes
		if err := r.flows.Lock(tx, flows); err != nil {
			return nil, err
		}
	}
	refs, out, missing := make([]itemRef, len(in)), make([]execution.Item[execution.Created], len(in)), missingBuckets{}
	awaited := map[string]bool{} // ids and keys of those whose bucket is missing: another item with one of them is most likely the same
	for i := range in {
		made, err := execution.Created{}, in[i].Err
		if err == nil {
			made, err = r.create(tx, in[i].Value)
		}
		if m, ok := errors.AsType[*missingBuckets](err); ok {
			id, key := in[i].Value.ID.String(), "key "+in[i].Value.IdempotencyKey
			if in[i].Value.ID != uuid.Nil && awaited[id] || in[i].Value.IdempotencyKey != "" && awaited[key] {
				continue
			}
			awaited[id], awaited[key] = true, true
			missing.keys = append(missing.keys, m.keys...)
			continue
		}
		if err != nil && (atomic || !refusal(err)) {
			return nil, fault.Under(err, fmt.Sprintf("/executions/%d", i))
		}
		out[i] = execution.Item[execution.Created]{Value: made, Err: err}
		refs[i] = itemRef{ID: made.Execution.ID, Refused: refOf(err)}
	}
	if len(missing.keys) > 0 {
		return nil, &missing
	}
	tx.Refer(refs)
	return out, nil
}

// refusal says whether err concerns one item only. Any other error, of the database say, concerns the whole transaction.
func refusal(err error) bool {
	entry := fault.Lookup(fault.CodeOf(err))
	return entry.Status < 500
}
