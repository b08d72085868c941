package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Create makes an execution in the caller's namespace. It returns CodeAlreadyExists for an id or a member key that is
// taken by another execution, CodeNotFound and CodeAlreadyTerminal for the flow, and the refusals of [execution.New].
// reference: executions.md 2.1.
func (r *Repo) Create(ctx context.Context, in execution.Create) (execution.Created, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Created) (err error) {
		*out, err = r.create(tx, in)
		tx.Refer(out.Execution.ID)
		return err
	}, store.Reload(func(ctx context.Context, ref []byte) (execution.Created, error) {
		var id uuid.UUID
		if err := json.Unmarshal(ref, &id); err != nil {
			return execution.Created{}, store.Corrupt("idempotency key", "", err)
		}
		e, err := r.Execution(ctx, id)
		return execution.Created{Execution: e}, err
	}))
}

// create makes one execution. A refusal has written nothing.
func (r *Repo) create(tx *store.Tx, in execution.Create) (execution.Created, error) {
	in.Namespace, in.Creator = tx.Call.Namespace, tx.Call.Actor
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
	} else if e, err := find(&tx.Queries, in.Namespace, in.ID, ""); fault.CodeOf(err) != fault.CodeNotFound {
		return execution.Created{Execution: e, Existing: true}, err
	}
	now := tx.Now()
	c, err := execution.New(in, now) // before anything is written
	if err != nil {
		return execution.Created{}, err
	}
	if in.IdempotencyKey != "" {
		id, err := r.takeKey(tx, in, now, c.Execution.PolicyOf().Dedup())
		if err != nil {
			return execution.Created{}, err
		}
		if id != in.ID {
			e, err := find(&tx.Queries, in.Namespace, id, "")
			return execution.Created{Execution: e, Existing: true}, err
		}
	}
	if in.FlowID != uuid.Nil {
		started, err := r.flows.Join(tx, in.FlowID)
		if err != nil {
			return execution.Created{}, err
		}
		if in.Paused = !started; in.Paused {
			if c, err = execution.New(in, now); err != nil {
				return execution.Created{}, err
			}
		}
	}
	stored, err := r.stand(tx, &c.Execution, false)
	if err != nil {
		return execution.Created{}, err
	}
	n, err := tx.Exec(insertRow, append(stored.fixedValues(), stored.movingValues()...)...)
	if err != nil {
		return execution.Created{}, fmt.Errorf("insert execution: %w", err)
	}
	if n == 0 {
		return r.taken(tx, in)
	}
	emit(tx, c)
	return execution.Created{Execution: c.Execution}, nil
}

// taken tells why an insert met another row: a create with the same id that was under way, or a member key.
func (r *Repo) taken(tx *store.Tx, in execution.Create) (execution.Created, error) {
	e, err := find(&tx.Queries, in.Namespace, in.ID, "")
	if fault.CodeOf(err) == fault.CodeNotFound {
		return execution.Created{}, fault.New(fault.CodeAlreadyExists, "The id %s or the key %q is taken by another execution. Choose another one.", in.ID, in.Key)
	}
	return execution.Created{Execution: e, Existing: true}, err
}

// takeKey takes a creation key for in.ID, and returns the id of the execution that has it.
func (*Repo) takeKey(tx *store.Tx, in execution.Create, now time.Time, window time.Duration) (uuid.UUID, error) {
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

// CreateMany makes many executions in one transaction; an item that was refused before it came here keeps its error. Each
// stands alone, unless atomic: then the first refusal, which points at its item, refuses all.
func (r *Repo) CreateMany(ctx context.Context, in []execution.Item[execution.Create], atomic bool) ([]execution.Item[execution.Created], error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *[]execution.Item[execution.Created]) error {
		ids := make([]uuid.UUID, len(in))
		*out = make([]execution.Item[execution.Created], len(in))
		for i := range in {
			made, err := execution.Created{}, in[i].Err
			if err == nil {
				made, err = r.create(tx, in[i].Value)
			}
			if err != nil && (atomic || !refusal(err)) {
				return at(err, fmt.Sprintf("/executions/%d", i))
			}
			(*out)[i] = execution.Item[execution.Created]{Value: made, Err: err}
			ids[i] = made.Execution.ID
		}
		tx.Refer(ids)
		return nil
	}, store.Reload(r.reloadMany))
}

func (r *Repo) reloadMany(ctx context.Context, ref []byte) ([]execution.Item[execution.Created], error) {
	var ids []uuid.UUID
	if err := json.Unmarshal(ref, &ids); err != nil {
		return nil, store.Corrupt("idempotency key", "", err)
	}
	items := make([]execution.Item[execution.Created], len(ids))
	for i, id := range ids {
		e, err := r.Execution(ctx, id)
		if err != nil && !refusal(err) {
			return nil, err
		}
		items[i] = execution.Item[execution.Created]{Value: execution.Created{Execution: e}, Err: err}
	}
	return items, nil
}

// refusal says whether err concerns one item only. Any other error, of the database say, concerns the whole transaction.
func refusal(err error) bool {
	entry := fault.Lookup(fault.CodeOf(err))
	return entry.Status < 500
}

// at makes the pointers of a refusal start at the item it concerns.
func at(err error, pointer string) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	for i := range f.Fields {
		f.Fields[i].Pointer = pointer + f.Fields[i].Pointer
	}
	if len(f.Fields) == 0 {
		f.Fields = []fault.Field{{In: fault.InBody, Pointer: pointer, Detail: f.Message, Code: f.Code}}
	}
	return f
}
