package flow

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Join counts one more member of a flow of the caller's namespace, without a revision, and says whether the flow has been
// started. It returns CodeNotFound and CodeAlreadyTerminal.
func (r *Repo) Join(tx *store.Tx, id uuid.UUID) (started bool, err error) {
	var status string
	err = tx.Get(&status, `UPDATE flows SET node_count = node_count + 1, graph_revision = graph_revision + 1
		WHERE id = ? AND namespace = ? AND ended_at IS NULL RETURNING status`, store.ID(id), tx.Call.Namespace)
	switch {
	case store.NotFound(err):
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, "")
		if err != nil {
			return false, err
		}
		return false, fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s and takes no more members.", id, f.Status).With("current_status", f.Status)
	case err != nil:
		return false, fmt.Errorf("join flow %s: %w", id, err)
	}
	return flow.Status(status) != flow.Created, nil
}

// Replayable says whether a flow, of which an ended member is to run again, has been started. It returns CodeAlreadyTerminal for a
// cancelled one, whose members stay as they are.
func (r *Repo) Replayable(tx *store.Tx, id uuid.UUID) (started bool, err error) {
	f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
	if err != nil {
		return false, err
	}
	if _, err := f.Replay(nil, by(tx)); err != nil {
		return false, err
	}
	return f.Status != flow.Created, nil
}

// Reopen lets a failed or finished flow run again in the transaction in which a member of it does. The flow is locked.
func (r *Repo) Reopen() store.Reactor {
	return store.Reactor{Name: "flow of a replay", On: []event.Type{event.OperatorReplayed}, Do: func(tx *store.Tx, e event.Event) error {
		if e.FlowID == uuid.Nil {
			return nil
		}
		_, err := r.apply(tx, e.FlowID, nil, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
			return f.Replay([]uuid.UUID{e.ExecutionID}, by(tx))
		})
		return err
	}}
}

// Lock locks some flows in the order of their ids, so that two batches which join the same ones cannot lock each other out.
func (*Repo) Lock(tx *store.Tx, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]store.ID, len(ids))
	for i, id := range ids {
		keys[i] = store.ID(id)
	}
	in, size := store.In(len(keys))
	var locked []store.ID
	if err := tx.Select(&locked, `SELECT id FROM flows WHERE id IN `+in+` ORDER BY id`+tx.ForUpdate(), store.InArgs(keys, size)...); err != nil {
		return fmt.Errorf("lock flows: %w", err)
	}
	return nil
}

// Leave takes back a Join of this transaction, whose member was not made.
func (*Repo) Leave(tx *store.Tx, id uuid.UUID) error {
	err := tx.ExecOne(`UPDATE flows SET node_count = node_count - 1, graph_revision = graph_revision - 1 WHERE id = ?`, store.ID(id))
	if err != nil {
		return fmt.Errorf("leave flow %s: %w", id, err)
	}
	return nil
}
