// Package backlog keeps what a transaction has left to do because of a flow, since it was too much for one. It says what; repo/graph
// does it.
package backlog

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the loop that works the backlog off.
const Loop = "graph"

// Kind says what is left to do.
type Kind string

// The kinds. Those of a flow concern its members, or the runs in it.
const (
	Resolve  Kind = "resolve"  // the edges that lead out of an execution which has ended
	Siblings Kind = "siblings" // to cancel the other upstreams of a decided group
	Start    Kind = "start"    // of a flow: to let those go on that waited for its start
	Cancel   Kind = "cancel"   // of a flow: to cancel the others
	Replay   Kind = "replay"   // of a flow: to replay the others
	Runs     Kind = "runs"     // of a flow: to end the other runs that are in it
)

// Batch bounds how many executions one transaction changes because of another, unless a repository is configured otherwise.
const Batch = 250

// RunsRest is the detail of [Runs]: those behind this one, in the order of their ids.
type RunsRest struct {
	After uuid.UUID `json:"after"`
}

// Item is one thing that is left to do.
type Item struct {
	Kind        Kind
	FlowID      uuid.UUID
	ExecutionID uuid.UUID // the flow's id for the kinds of a flow
	Detail      any       // a value that marshals to JSON; nil for none
	Less        bool      // what is there already says more
}

// Put adds an item, or gives the one that is there already this detail if it does not say less, and wakes the loop.
func Put(tx *store.Tx, it Item) error {
	detail := []byte("{}")
	if it.Detail != nil {
		var err error
		if detail, err = json.Marshal(it.Detail); err != nil {
			return fmt.Errorf("detail of %s: %w", it.Kind, err)
		}
	}
	conflict := `DO UPDATE SET namespace = excluded.namespace, actor = excluded.actor, detail = excluded.detail`
	if it.Less {
		conflict = `DO NOTHING`
	}
	_, err := tx.Exec(`INSERT INTO graph_backlog (flow_id, kind, execution_id, namespace, actor, detail) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (flow_id, kind, execution_id) `+conflict,
		store.ID(it.FlowID), string(it.Kind), store.ID(it.ExecutionID), tx.Call.Namespace, tx.Call.Actor, store.JSON(detail))
	if err != nil {
		return fmt.Errorf("put %s of flow %s off: %w", it.Kind, it.FlowID, err)
	}
	tx.Alarm(Loop, tx.Now())
	return nil
}

// Has says whether something of some kinds is left to do for a flow.
func Has(q *store.Queries, flowID uuid.UUID, kinds ...Kind) (bool, error) {
	var n int
	err := q.Get(&n, `SELECT count(*) FROM graph_backlog WHERE flow_id = ? AND kind IN ?`, store.ID(flowID), store.List(kinds))
	return n > 0, err
}

// Drop forgets what is left to do for a flow that is deleted.
func Drop(tx *store.Tx, flowID uuid.UUID) error {
	_, err := tx.Exec(`DELETE FROM graph_backlog WHERE flow_id = ?`, store.ID(flowID))
	return err
}
