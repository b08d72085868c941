package flow

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Grow counts further members and edges of a flow of the caller's namespace, without a revision, and locks it. It returns the flow
// as it is then, without its documents, and CodeNotFound and CodeAlreadyTerminal.
func (r *Repo) Grow(tx *store.Tx, id uuid.UUID, nodes, edges int) (flow.Flow, error) {
	var found row
	err := tx.Get(&found, `UPDATE flows SET node_count = node_count + ?, edge_count = edge_count + ?, graph_revision = graph_revision + ?
		WHERE id = ? AND namespace = ? AND ended_at IS NULL RETURNING `+aboutColumns+`, graph_revision, edge_count, auto_finish, limits`,
		nodes, edges, nodes+edges, store.ID(id), tx.Call.Namespace)
	switch {
	case store.NotFound(err):
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, "")
		if err != nil {
			return flow.Flow{}, err
		}
		return flow.Flow{}, fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s and takes no more members.", id, f.Status).With("current_status", f.Status)
	case err != nil:
		return flow.Flow{}, fmt.Errorf("grow flow %s: %w", id, err)
	}
	f := found.about()
	if found.Limits != nil {
		if err := json.Unmarshal(found.Limits, &f.Limits); err != nil {
			return flow.Flow{}, store.Corrupt("flow", id, err)
		}
	}
	return f, nil
}

// Joined tells that an execution has become a member of a flow, which [Repo.Grow] has counted.
func (*Repo) Joined(tx *store.Tx, f *flow.Flow, e *execution.Execution) {
	tx.Emit(f.Event(event.FlowMemberAdded, struct {
		ExecutionID   uuid.UUID `json:"execution_id"`
		Key           string    `json:"key,omitempty"`
		GraphRevision int64     `json:"graph_revision"`
		NodeCount     int64     `json:"node_count"`
	}{e.ID, e.Key, f.GraphRevision, f.NodeCount}))
}

// Head locks a flow of the caller's namespace, and returns it without its documents. It returns CodeNotFound.
func (*Repo) Head(tx *store.Tx, id uuid.UUID) (flow.Flow, error) {
	var found row
	if err := tx.Find(&found, "flow", id, "SELECT "+aboutColumns+", graph_revision, edge_count, auto_finish FROM flows WHERE id = ? AND namespace = ?"+tx.ForUpdate(),
		store.ID(id), tx.Call.Namespace); err != nil {
		return flow.Flow{}, err
	}
	return found.about(), nil
}

// Replayable says whether a flow, of which an ended member is to run again, has been started. It returns CodeAlreadyTerminal for a
// cancelled one, whose members stay as they are.
func (r *Repo) Replayable(tx *store.Tx, id uuid.UUID) (started bool, err error) {
	f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
	if err != nil {
		return false, err
	}
	if _, err := f.Replay(nil, tx.By()); err != nil {
		return false, err
	}
	return f.Status != flow.Created, nil
}

// Again lets a failed or finished flow run again because of members, and says whether it has been started. It returns
// CodeRevisionMismatch, and CodeAlreadyTerminal for a cancelled one.
func (r *Repo) Again(tx *store.Tx, id uuid.UUID, expected *int64, members []uuid.UUID) (started bool, err error) {
	_, err = r.apply(tx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
		started = f.Status != flow.Created
		if len(members) == 0 { // nothing runs again, so nothing changes
			c, err := f.Replay(nil, tx.By())
			c.Events = nil
			return c, err
		}
		return f.Replay(members, tx.By())
	})
	return started, err
}

// Reopen lets a failed or finished flow run again in the transaction in which a member of it does. The flow is locked.
func (r *Repo) Reopen() store.Reactor {
	return store.Reactor{Name: "flow of a replay", On: []event.Type{event.OperatorReplayed}, Do: func(tx *store.Tx, e event.Event) error {
		if e.FlowID == uuid.Nil {
			return nil
		}
		head, err := r.Head(tx, e.FlowID)
		if err != nil || !head.Status.Terminal() { // it runs, or another member of this replay has made it run
			return err
		}
		_, err = r.apply(tx, e.FlowID, nil, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
			return f.Replay([]uuid.UUID{e.ExecutionID}, tx.By())
		})
		return err
	}}
}

// Lock locks some flows in the order of their ids, so that two batches which join the same ones cannot lock each other out.
func (*Repo) Lock(tx *store.Tx, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	var locked []store.ID
	if err := tx.Select(&locked, `SELECT id FROM flows WHERE id IN ? ORDER BY id`+tx.ForUpdate(), store.List(store.IDs(ids))); err != nil {
		return fmt.Errorf("lock flows: %w", err)
	}
	return nil
}

// Shrink takes one member back that [Repo.Grow] has counted in this transaction, and that was not made.
func (*Repo) Shrink(tx *store.Tx, id uuid.UUID) error {
	err := tx.ExecOne(`UPDATE flows SET node_count = node_count - 1, graph_revision = graph_revision - 1 WHERE id = ?`, store.ID(id))
	if err != nil {
		return fmt.Errorf("shrink flow %s: %w", id, err)
	}
	return nil
}
