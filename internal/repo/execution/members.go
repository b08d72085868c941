package execution

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/build"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// visible is the condition that an execution is not part of a graph which is still being written.
var visible = build.Shown("executions")

// OpenMembers returns how many members of a flow are not terminal.
func (r *Repo) OpenMembers(tx *store.Tx, flowID uuid.UUID) (int, error) {
	return r.CountMembers(&tx.Queries, flowID, execution.Cascade{})
}

// concerned is the condition of the members that are still to end.
func concerned(end execution.Cascade) string {
	if end.PendingOnly {
		return `lifecycle_phase = 'runnable'`
	}
	return `lifecycle_phase <> 'terminal'`
}

// CountMembers returns how many members of a flow are still to end.
func (r *Repo) CountMembers(q *store.Queries, flowID uuid.UUID, end execution.Cascade) (int, error) {
	var n int
	err := q.Get(&n, `SELECT count(*) FROM executions WHERE flow_id = ? AND `+concerned(end)+` AND `+visible, store.ID(flowID))
	return n, err
}

// NameMembers returns up to limit members of a flow that are still to end, and those among these that cannot be read.
func (r *Repo) NameMembers(q *store.Queries, flowID uuid.UUID, end execution.Cascade, limit int) (open, failed []uuid.UUID, err error) {
	var rows []row
	err = q.Select(&rows, "SELECT "+columns+" FROM executions WHERE flow_id = ? AND "+concerned(end)+" AND "+visible+" ORDER BY id LIMIT ?", store.ID(flowID), limit)
	for i := range rows {
		if _, err := rows[i].execution(); err != nil {
			failed = append(failed, uuid.UUID(rows[i].ID))
		} else {
			open = append(open, uuid.UUID(rows[i].ID))
		}
	}
	return open, failed, err
}

// CancelMembers cancels up to limit members of a flow that are still to end; those that somebody holds get the grace. One that
// cannot be read is put aside.
func (r *Repo) CancelMembers(tx *store.Tx, flowID uuid.UUID, end execution.Cascade, limit int) (execution.MembersEnded, error) {
	condition := concerned(end)
	if !end.GraceUntil.IsZero() {
		condition += ` AND (cancellation IS NULL OR lifecycle_phase <> 'active')` // others have been asked
	}
	rows, err := r.memberRows(tx, flowID, condition, limit)
	if err != nil {
		return execution.MembersEnded{}, err
	}
	return r.cancelRows(tx, rows, end)
}

// EndGrace cancels a member of a flow now that is held and was asked to end. Any other execution stays as it is.
func (r *Repo) EndGrace(tx *store.Tx, flowID, id uuid.UUID) error {
	list, err := r.Members(tx, flowID, []uuid.UUID{id})
	if err != nil || len(list) == 0 || list[0].Lifecycle != execution.Active || list[0].Cancellation == nil {
		return err
	}
	c, err := list[0].Cancel(*list[0].Cancellation, tx.Now())
	if err != nil {
		return err
	}
	return r.save(tx, &list[0], c, nil)
}

// UnpauseMembers lets up to limit members of a flow that has started be claimed, and returns how many it has looked at, 0 when none
// could be. One that cannot be read stays as it is.
func (r *Repo) UnpauseMembers(tx *store.Tx, flowID uuid.UUID, limit int) (int, error) {
	rows, err := r.memberRows(tx, flowID, `blocking_reason = 'paused_by_policy' AND lifecycle_phase = 'runnable'`, limit)
	if err != nil {
		return 0, err
	}
	looked := 0
	for i := range rows {
		e, err := rows[i].execution()
		if err != nil {
			tx.Report(err)
			continue
		}
		looked = len(rows)
		if c, ok := e.Unpause(tx.Now()); ok {
			if err := r.save(tx, &e, c, nil); err != nil {
				return 0, err
			}
		}
	}
	return looked, nil
}

// DeleteMembers deletes the members of a flow with all that they own, and returns how many there were. Their frames, which may be
// any number, go later.
func (r *Repo) DeleteMembers(tx *store.Tx, flowID uuid.UUID) (int, error) {
	if err := dropStreams(tx, "flow_id", flowID); err != nil {
		return 0, fmt.Errorf("drop their streams: %w", err)
	}
	if _, err := tx.Exec(`DELETE FROM edge_groups WHERE execution_id IN (SELECT id FROM executions WHERE flow_id = ?)`, store.ID(flowID)); err != nil {
		return 0, fmt.Errorf("delete their groups: %w", err)
	}
	if _, err := tx.Exec(`DELETE FROM edges WHERE flow_id = ?`, store.ID(flowID)); err != nil {
		return 0, fmt.Errorf("delete their edges: %w", err)
	}
	n, err := tx.Exec(`DELETE FROM executions WHERE flow_id = ?`, store.ID(flowID))
	return int(n), err
}

// Members reads and locks some executions of a flow, in the order of their ids; others are left out.
func (r *Repo) Members(tx *store.Tx, flowID uuid.UUID, ids []uuid.UUID) ([]execution.Execution, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := store.IDs(ids)
	slices.SortFunc(keys, store.ByID[store.ID])
	keys = slices.Compact(keys)
	var rows []row
	err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE id IN ? AND "+visible+" ORDER BY id"+tx.ForUpdate(), store.List(keys))
	if err != nil {
		return nil, fmt.Errorf("read members of flow %s: %w", flowID, err)
	}
	tx.Later()
	rows = slices.DeleteFunc(rows, func(r row) bool { return uuid.UUID(r.FlowID) != flowID })
	return executionsOf(rows)
}

// memberRows reads and locks up to limit members of a flow that a condition selects, the oldest first.
func (r *Repo) memberRows(tx *store.Tx, flowID uuid.UUID, condition string, limit int) ([]row, error) {
	var rows []row
	err := tx.Select(&rows, "SELECT "+columns+" FROM executions WHERE flow_id = ? AND "+condition+" AND "+visible+" ORDER BY created_at, id LIMIT ?"+tx.ForUpdate(), store.ID(flowID), limit)
	if err != nil {
		return nil, fmt.Errorf("read the members of flow %s: %w", flowID, err)
	}
	tx.Later()
	return rows, nil
}
