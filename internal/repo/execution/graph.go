package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// insertRows is the insert of many, with the graph that they are part of while it is being written.
var insertRows = "INSERT INTO executions (" + columns + ", build_id) VALUES "

// Prepare makes the places where new executions will stand, before the transaction that makes these. When one is missing it first
// asks check, if there is one, whether it may be made.
func (r *Repo) Prepare(ctx context.Context, made []execution.Change, check func() error) error {
	seen, lanes := map[bucketKey]bool{}, map[laneKey][]execution.QuotaRef{}
	for i := range made {
		e := &made[i].Execution
		key, err := r.keyIn(ctx, e, lanes)
		if err != nil {
			return err
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		err = r.buckets.there(ctx, r.store, key)
		if _, missing := errors.AsType[*missingBuckets](err); missing && check != nil {
			if err := check(); err != nil {
				return err
			}
			check = nil
		}
		_, err = withBuckets(ctx, r, func() (struct{}, error) {
			return struct{}{}, r.buckets.there(ctx, r.store, key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keyIn returns the key of the bucket for a new execution, and remembers the quotas of the lanes that it has looked at.
func (r *Repo) keyIn(ctx context.Context, e *execution.Execution, lanes map[laneKey][]execution.QuotaRef) (bucketKey, error) {
	at := laneKey{e.Namespace, e.Lane}
	quotas, known := lanes[at]
	if !known {
		err := r.store.Read(ctx, func(q *store.Queries) error {
			lane, err := findLane(q, e.Namespace, e.Lane, "")
			quotas = lane.Quotas
			return err
		})
		if err != nil {
			return bucketKey{}, err
		}
		lanes[at] = quotas
	}
	terms := e.Terms(quotas, nil)
	return keyWith(e, &terms), nil
}

// there returns a missingBuckets unless the bucket exists.
func (b *buckets) there(ctx context.Context, s *store.Store, key bucketKey) error {
	b.mu.RLock()
	_, ok := b.ids[key]
	b.mu.RUnlock()
	if ok {
		return nil
	}
	return s.Read(ctx, func(q *store.Queries) error {
		_, err := b.look(q, key, "")
		return err
	})
}

// Insert writes new members of a flow, whose events are told by whoever shows them. build names a graph that is still being
// written, which nobody sees; it is uuid.Nil for none. It returns CodeAlreadyExists for an id or a key that is taken, and
// CodeBusy if it may be by a graph that is not finished.
func (r *Repo) Insert(tx *store.Tx, made []execution.Change, build uuid.UUID) error {
	rows := make([][]any, len(made))
	for i := range made {
		stored, err := r.stand(tx, &made[i].Execution, false)
		if err != nil {
			return err
		}
		rows[i] = append(table.All(&stored), store.ID(build))
	}
	n, err := tx.Insert(insertRows, rows, " ON CONFLICT DO NOTHING")
	switch {
	case err != nil:
		return fmt.Errorf("insert %d executions: %w", len(made), err)
	case n < int64(len(made)):
		seen, err := r.seen(&tx.Queries, made)
		if err != nil {
			return err
		}
		if !seen {
			return fault.New(fault.CodeBusy, "Another graph with the same ids or keys is being written, or was left unfinished and is being taken back. Nothing was written. Send it again.")
		}
		return fault.New(fault.CodeAlreadyExists, "%d of the ids or keys are taken by other executions. Nothing was written. Choose others.", int64(len(made))-n)
	}
	return nil
}

// seen says whether one of the ids or keys of new executions is that of an execution which is not part of an unfinished graph.
func (r *Repo) seen(q *store.Queries, made []execution.Change) (bool, error) {
	keys, ids := []string{}, make([]store.ID, len(made))
	for i := range made {
		e := &made[i].Execution
		ids[i] = store.ID(e.ID)
		if e.Key != "" {
			keys = append(keys, e.Key)
		}
	}
	found, err := r.Named(q, made[0].Execution.FlowID, keys)
	if err != nil || len(found) > 0 {
		return len(found) > 0, err
	}
	n := 0
	for chunk := range store.Chunks(ids) {
		var some int
		if err := q.Get(&some, "SELECT count(*) FROM executions WHERE id IN ? AND "+visible, store.List(chunk)); err != nil {
			return false, fmt.Errorf("look for ids that are taken: %w", err)
		}
		n += some
	}
	return n > 0, nil
}

// Tell emits the events of new executions that [Repo.Insert] has written.
func (*Repo) Tell(tx *store.Tx, made []execution.Change) {
	for i := range made {
		emit(tx, made[i])
	}
}

// Enlist makes an execution that exists a member of the flow that c names.
func (r *Repo) Enlist(tx *store.Tx, before *execution.Execution, c execution.Change) error {
	limits, err := limitsDoc(c.Execution.Limits)
	if err != nil {
		return err
	}
	n, err := tx.Exec(`UPDATE executions SET flow_id = ?, limits = ? WHERE id = ? AND flow_id IS NULL`, store.ID(c.Execution.FlowID), limits, store.ID(before.ID))
	if err == nil && n != 1 {
		err = errors.New("it belongs to a flow")
	}
	if err != nil {
		return fmt.Errorf("enlist execution %s: %w", before.ID, err)
	}
	return r.save(tx, before, c, nil)
}

// Named finds members of a flow by key or id; names that are not found are left out.
func (r *Repo) Named(q *store.Queries, flowID uuid.UUID, names []string) (map[string]uuid.UUID, error) {
	found := make(map[string]uuid.UUID, len(names))
	var ids []store.ID
	for chunk := range store.Chunks(names) {
		var rows []namedRow
		err := q.Select(&rows, "SELECT id, key FROM executions WHERE flow_id = ? AND key IN ? AND "+visible, store.ID(flowID), store.List(chunk))
		if err != nil {
			return nil, fmt.Errorf("find members of flow %s: %w", flowID, err)
		}
		for _, row := range rows {
			found[string(row.Key)] = uuid.UUID(row.ID)
		}
	}
	for _, name := range names {
		if id, err := uuid.Parse(name); err == nil && found[name] == uuid.Nil {
			ids = append(ids, store.ID(id))
		}
	}
	for chunk := range store.Chunks(ids) {
		var rows []namedRow
		err := q.Select(&rows, "SELECT id, key FROM executions WHERE id IN ? AND flow_id = ? AND "+visible, store.List(chunk), store.ID(flowID))
		if err != nil {
			return nil, fmt.Errorf("find members of flow %s: %w", flowID, err)
		}
		for _, row := range rows {
			id := uuid.UUID(row.ID)
			found[id.String()] = id
		}
	}
	for _, name := range names { // however an id is spelled
		if id, err := uuid.Parse(name); err == nil && found[name] == uuid.Nil && found[id.String()] != uuid.Nil {
			found[name] = id
		}
	}
	return found, nil
}

type namedRow struct {
	ID  store.ID   `db:"id"`
	Key store.Text `db:"key"`
}

// Taken returns those of some ids that executions have, wherever they are. What is part of a graph that is still being written is
// found by [Repo.Insert].
func (*Repo) Taken(q *store.Queries, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	taken := map[uuid.UUID]bool{}
	for chunk := range store.Chunks(ids) {
		keys := store.List(store.IDs(chunk))
		var rows []store.ID
		if err := q.Select(&rows, "SELECT id FROM executions WHERE id IN ? AND "+visible+" UNION SELECT execution_id FROM dropped_streams WHERE execution_id IN ?",
			keys, keys); err != nil {
			return nil, fmt.Errorf("look for ids that are taken: %w", err)
		}
		for _, id := range rows {
			taken[uuid.UUID(id)] = true
		}
	}
	return taken, nil
}

// Holder checks that a fence is that of a worker who holds a member of a flow. It returns CodeNotFound, CodeExecutionNotInFlow and
// the refusals of [execution.Execution.Check].
func (r *Repo) Holder(tx *store.Tx, flowID uuid.UUID, f execution.Fence) error {
	e, err := r.State(tx, f.ExecutionID)
	if err != nil {
		return err
	}
	if err := e.Check(f, tx.Now()); err != nil {
		return err
	}
	if e.FlowID != flowID {
		return fault.New(fault.CodeExecutionNotInFlow, "Execution %s, whose handle this is, is not a member of flow %s. Send the handle of a member.", e.ID, flowID).With("execution_id", e.ID)
	}
	return nil
}

// Nodes returns the members of a flow, the oldest first.
func (r *Repo) Nodes(q *store.Queries, flowID uuid.UUID) ([]execution.Execution, error) {
	var rows []row
	err := q.Select(&rows, "SELECT "+nodeColumns+" FROM executions WHERE flow_id = ? AND "+visible+" ORDER BY created_at, id", store.ID(flowID))
	if err != nil {
		return nil, fmt.Errorf("read the members of flow %s: %w", flowID, err)
	}
	list, err := executionsOf(rows)
	if err != nil {
		return nil, err
	}
	return shownAll(q, list)
}

// nodeColumns are all columns, but with documents left out that a node does not show.
var nodeColumns = strings.NewReplacer(" payload,", " NULL AS payload,", " tags,", " '{}' AS tags,", " progress,", " NULL AS progress,", " released,", " NULL AS released,").Replace(columns)
