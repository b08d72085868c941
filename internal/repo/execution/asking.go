package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Asking returns what suspended executions ask people about. Those that are not suspended any more are left out.
func (r *Repo) Asking(ctx context.Context, executions []uuid.UUID) (map[uuid.UUID]execution.Asking, error) {
	asking := make(map[uuid.UUID]execution.Asking, len(executions))
	if len(executions) == 0 {
		return asking, nil
	}
	ids := store.List(store.IDs(executions))
	err := r.store.Read(ctx, func(q *store.Queries) error {
		var found []struct {
			ID         store.ID   `db:"id"`
			FlowID     store.ID   `db:"flow_id"`
			Suspension store.JSON `db:"suspension"`
		}
		if err := q.Select(&found, `SELECT id, flow_id, suspension FROM executions WHERE id IN ? AND lifecycle_phase = 'suspended'`, ids); err != nil {
			return fmt.Errorf("read suspended executions: %w", err)
		}
		for _, e := range found {
			var s execution.Suspension
			if err := json.Unmarshal(e.Suspension, &s); err != nil {
				return store.Corrupt("execution", uuid.UUID(e.ID), err)
			}
			asking[uuid.UUID(e.ID)] = execution.Asking{FlowID: uuid.UUID(e.FlowID), Reason: s.Reason}
		}
		var points []struct {
			ID          store.ID   `db:"id"`
			ExecutionID store.ID   `db:"execution_id"`
			Key         string     `db:"waitpoint_key"`
			Title       store.Text `db:"title"`
			Prompt      store.Text `db:"prompt"`
		}
		err := q.Select(&points, `SELECT id, execution_id, waitpoint_key, title, substr(prompt, 1, 1000) AS prompt FROM waitpoints
			WHERE execution_id IN ? AND state = 'active' ORDER BY (title IS NULL), id`, ids)
		if err != nil {
			return fmt.Errorf("read active waitpoints: %w", err)
		}
		for _, p := range points {
			if a, ok := asking[uuid.UUID(p.ExecutionID)]; ok {
				a.Waitpoints = append(a.Waitpoints, execution.AskedAt{ID: uuid.UUID(p.ID), Key: p.Key, Title: string(p.Title), Prompt: string(p.Prompt)})
				asking[uuid.UUID(p.ExecutionID)] = a
			}
		}
		return nil
	})
	return asking, err
}

// decisions is how many of what was decided at a waitpoint are shown.
const decisions = 50

// Asked returns what somebody sees who comes with the token of a waitpoint, in whatever namespace that is. It returns
// CodeInvalidToken, the same whatever is wrong.
func (r *Repo) Asked(ctx context.Context, id uuid.UUID, token waitpoint.Token) (out execution.Asked, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		ring, err := r.keys.Ring(q)
		if err != nil {
			return err
		}
		var found waitpointRow
		if err := q.Get(&found, `SELECT `+waitpointColumns+` FROM waitpoints WHERE id = ?`, store.ID(id)); err != nil && !store.NotFound(err) {
			return fmt.Errorf("read waitpoint %s: %w", id, err)
		}
		if err := ring.Verify(token.Reveal(), uuid.UUID(found.ExecutionID), id, q.Now()); err != nil {
			return err
		}
		if out.Waitpoint, err = found.waitpoint(); err != nil {
			return err
		}
		var e row
		if err := q.Get(&e, selectByID, found.ExecutionID); err != nil {
			return fmt.Errorf("read execution of waitpoint %s: %w", id, err)
		}
		if out.Execution, err = e.execution(); err != nil {
			return err
		}
		out.At = q.Now()
		out.Decisions, err = r.waits.SignalsAt(q, out.Execution.ID, id, []string{string(execution.Approved), string(execution.Rejected)}, decisions)
		return err
	})
	return out, err
}
