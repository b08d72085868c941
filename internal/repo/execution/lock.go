package execution

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// A member that ends changes others, of which its flow's lock keeps everybody else away: so the flow is locked before the member.
// What only claims, renews or tells of progress leaves the flow alone, unless a budget may end the execution then.

// lockFlow locks the flow of an execution that may end, before the execution itself.
func lockFlow(tx *store.Tx, id uuid.UUID) error { return lockFlowIf(tx, id, "") }

// lockLimited is lockFlow for an execution that only a budget may end.
func lockLimited(tx *store.Tx, id uuid.UUID) error {
	return lockFlowIf(tx, id, " AND limits IS NOT NULL")
}

func lockFlowIf(tx *store.Tx, id uuid.UUID, and string) error {
	if !tx.Locks() {
		return nil
	}
	var locked []store.ID
	err := tx.Select(&locked, `SELECT id FROM flows WHERE id = (SELECT flow_id FROM executions WHERE id = ?`+and+`)`+tx.ForUpdate(), store.ID(id))
	if err != nil {
		return fmt.Errorf("lock the flow of execution %s: %w", id, err)
	}
	return nil
}

// unheldFlow is lockFlow for one that nobody holds, and says whether there is none other.
func unheldFlow(tx *store.Tx, id uuid.UUID) (bool, error) {
	if !tx.Locks() {
		return true, nil
	}
	var found []owned
	if err := tx.Select(&found, `SELECT id, flow_id FROM executions WHERE id = ?`, store.ID(id)); err != nil {
		return false, fmt.Errorf("look for the flow of execution %s: %w", id, err)
	}
	ids, err := unheld(tx, found)
	return len(ids) > 0, err
}

// lockFlows is lockFlow for many executions.
func lockFlows(tx *store.Tx, ids []store.ID) error {
	if !tx.Locks() || len(ids) == 0 {
		return nil
	}
	var locked []store.ID
	err := tx.Select(&locked, `SELECT id FROM flows WHERE id IN (SELECT flow_id FROM executions WHERE id IN ?) ORDER BY id`+tx.ForUpdate(), store.List(ids))
	if err != nil {
		return fmt.Errorf("lock the flows of %d executions: %w", len(ids), err)
	}
	return nil
}

// owned is an execution and the flow that it belongs to.
type owned struct {
	ID     store.ID `db:"id"`
	FlowID store.ID `db:"flow_id"`
}

// unheld locks the flows of executions that are due, but for those that somebody holds, and returns the executions that may be
// changed then.
func unheld(tx *store.Tx, due []owned) ([]store.ID, error) {
	flows, ids := []store.ID{}, []store.ID{}
	for _, o := range due {
		if uuid.UUID(o.FlowID) != uuid.Nil {
			flows = append(flows, o.FlowID)
		}
	}
	slices.SortFunc(flows, store.ByID[store.ID])
	flows = slices.Compact(flows)
	locked := []store.ID{}
	if len(flows) > 0 {
		if err := tx.Select(&locked, `SELECT id FROM flows WHERE id IN ? ORDER BY id`+tx.SkipLocked(), store.List(flows)); err != nil {
			return nil, fmt.Errorf("lock the flows of due executions: %w", err)
		}
	}
	for _, o := range due {
		if uuid.UUID(o.FlowID) == uuid.Nil || slices.Contains(locked, o.FlowID) {
			ids = append(ids, o.ID)
		}
	}
	return ids, nil
}
