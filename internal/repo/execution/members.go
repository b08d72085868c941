package execution

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// OpenMembers returns how many members of a flow are not terminal.
func (r *Repo) OpenMembers(tx *store.Tx, flowID uuid.UUID) (int, error) {
	var n int
	err := tx.Get(&n, `SELECT count(*) FROM executions WHERE flow_id = ? AND lifecycle_phase <> 'terminal'`, store.ID(flowID))
	return n, err
}

// CancelMembers cancels every member of a flow that is not terminal, and returns how many it cancelled.
func (r *Repo) CancelMembers(tx *store.Tx, flowID uuid.UUID, by execution.Cancellation) (int, error) {
	return r.cancel(tx, flowID, `lifecycle_phase <> 'terminal'`, by)
}

// CancelPendingMembers cancels every member of a flow that nobody works on or has suspended, and returns how many it
// cancelled.
func (r *Repo) CancelPendingMembers(tx *store.Tx, flowID uuid.UUID, by execution.Cancellation) (int, error) {
	return r.cancel(tx, flowID, `lifecycle_phase = 'runnable'`, by)
}

func (r *Repo) cancel(tx *store.Tx, flowID uuid.UUID, condition string, by execution.Cancellation) (int, error) {
	return r.members(tx, flowID, condition, func(e execution.Execution) (execution.Change, error) {
		return e.Cancel(by, tx.Now())
	})
}

// UnpauseMembers lets the members of a flow that has started be claimed.
func (r *Repo) UnpauseMembers(tx *store.Tx, flowID uuid.UUID) error {
	_, err := r.members(tx, flowID, `blocking_reason = 'paused_by_policy'`, func(e execution.Execution) (execution.Change, error) {
		c, ok := e.Unpause(tx.Now())
		if !ok {
			c.Execution = e
		}
		return c, nil
	})
	return err
}

// DeleteMembers deletes the members of a flow with all that they own, and returns how many there were. Their frames, which may be
// any number, go later.
func (r *Repo) DeleteMembers(tx *store.Tx, flowID uuid.UUID) (int, error) {
	if err := dropStreams(tx, flowID); err != nil {
		return 0, fmt.Errorf("drop their streams: %w", err)
	}
	n, err := tx.Exec(`DELETE FROM executions WHERE flow_id = ?`, store.ID(flowID))
	return int(n), err
}

// members applies a transition to the members of a flow that a condition selects, in the order of their ids.
func (r *Repo) members(tx *store.Tx, flowID uuid.UUID, condition string, change func(execution.Execution) (execution.Change, error)) (int, error) {
	var rows []row
	err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE flow_id = ? AND "+condition+" ORDER BY id"+tx.ForUpdate(), store.ID(flowID))
	if err != nil {
		return 0, fmt.Errorf("read the members of flow %s: %w", flowID, err)
	}
	tx.Later()
	list, err := executionsOf(rows)
	if err != nil {
		return 0, err
	}
	for i := range list {
		c, err := change(list[i])
		if err != nil {
			return i, err
		}
		if err := r.save(tx, &list[i], c, nil); err != nil {
			return i, err
		}
	}
	return len(list), nil
}
