package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// What a limit holds up is stored as waiting, and shown as held up while its bucket is closed.

type holdRow struct {
	ID     store.ID     `db:"id"`
	By     string       `db:"held_by"`
	Limit  store.ID     `db:"held_id"`
	Key    string       `db:"held_key"`
	Need   int64        `db:"held_need"`
	Detail string       `db:"held_detail"`
	Since  store.Millis `db:"held_since"`
	Until  store.Millis `db:"reopen_at"`
}

func (h *holdRow) hold() *execution.Hold {
	return &execution.Hold{By: execution.HeldBy(h.By), ID: uuid.UUID(h.Limit), Key: h.Key, Need: h.Need, Detail: h.Detail, Since: time.Time(h.Since), Until: time.Time(h.Until)}
}

const selectHolds = `SELECT e.id, b.held_by, b.held_id, b.held_key, b.held_need, b.held_detail, b.held_since,
	coalesce(b.reopen_at, (SELECT g.next_reset_at FROM budgets g WHERE g.id = b.held_id)) AS reopen_at
	FROM executions e JOIN claim_buckets b ON b.id = e.claim_bucket WHERE b.held_by IS NOT NULL AND e.id IN ?`

// holdsOf returns what holds up those of some executions that a limit holds up.
func holdsOf(q *store.Queries, ids []store.ID) (map[uuid.UUID]*execution.Hold, error) {
	found := map[uuid.UUID]*execution.Hold{}
	for chunk := range store.Chunks(ids) {
		var rows []holdRow
		if err := q.Select(&rows, selectHolds, store.List(chunk)); err != nil {
			return nil, fmt.Errorf("look what holds up executions: %w", err)
		}
		for i := range rows {
			found[uuid.UUID(rows[i].ID)] = rows[i].hold()
		}
	}
	return found, nil
}

// shown makes of executions as they are stored what they are shown as.
func shown(q *store.Queries, list []*execution.Execution) error {
	var ids []store.ID
	for _, e := range list {
		if e.Claimable() && !e.Lost() {
			ids = append(ids, store.ID(e.ID))
		}
	}
	holds, err := holdsOf(q, ids)
	for _, e := range list {
		*e = holds[e.ID].Under(*e)
	}
	return err
}

// shownAll is shown for the rows of a list.
func shownAll(q *store.Queries, list []execution.Execution) ([]execution.Execution, error) {
	refs := make([]*execution.Execution, len(list))
	for i := range list {
		refs[i] = &list[i]
	}
	return list, shown(q, refs)
}

// holdOf returns what holds up an execution: its bucket is closed, or would be by the next claim.
func (r *Repo) holdOf(q *store.Queries, e *execution.Execution, lane execution.Lane) (*execution.Hold, error) {
	if !e.Claimable() {
		return nil, nil
	}
	holds, err := holdsOf(q, []store.ID{store.ID(e.ID)})
	if err != nil {
		return nil, err
	}
	closed := holds[e.ID]
	if closed != nil && closed.By == execution.HeldByQuota {
		return closed, nil
	}
	terms, err := r.termsIn(q, e, lane.Quotas)
	if err != nil {
		return nil, err
	}
	hold, err := r.look(q, terms, e.Estimate())
	if err != nil || closed == nil {
		return hold, err
	}
	if hold == nil { // it needs less than those before it
		return closed, nil
	}
	hold.Since = closed.Since
	return hold, nil
}

// HeldUp says how many claim buckets are closed, by what kind of limit holds them up.
func (r *Repo) HeldUp(ctx context.Context) (map[execution.HeldBy]int64, error) {
	found := map[execution.HeldBy]int64{execution.HeldByBudget: 0, execution.HeldByQuota: 0}
	err := r.store.Read(ctx, func(q *store.Queries) error {
		var rows []countRow
		if err := q.Select(&rows, `SELECT held_by AS name, count(*) AS n FROM claim_buckets WHERE held_by IS NOT NULL GROUP BY held_by`); err != nil {
			return fmt.Errorf("count closed claim buckets: %w", err)
		}
		for _, row := range rows {
			found[execution.HeldBy(row.Name)] = row.N
		}
		return nil
	})
	return found, err
}
