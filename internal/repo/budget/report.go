package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// keepKey is how long a report is known by its key.
const keepKey = 24 * time.Hour

// Report counts what somebody has spent, on a budget and on those above it, or on none. For a worker, by its fence, it also does what an
// exhausted budget says about running work. It returns CodeNotFound, the refusals of the fence, and those of [budget.Apply].
// reference: flows-streams-budgets.md 6.3, 6.6.
func (r *Repo) Report(ctx context.Context, id uuid.UUID, u budget.Usage) (budget.Reported, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *budget.Reported) error {
		u := u
		e, draining, err := r.spender(tx, &u)
		if err != nil {
			return err
		}
		if err := r.report(tx, id, &u, e, out); err != nil {
			return err
		}
		if e != nil && e.Ownership == execution.Leased {
			if err := r.advise(tx, e, draining, u.Fence != nil, out); err != nil {
				return err
			}
		}
		tx.Refer(out)
		return nil
	}, store.Reload(store.Kept[budget.Reported]))
}

// spender locks the execution that has spent, nil for none.
func (r *Repo) spender(tx *store.Tx, u *budget.Usage) (*execution.Execution, bool, error) {
	switch {
	case u.Fence != nil:
		e, draining, err := r.executions.HeldBy(tx, *u.Fence)
		u.ExecutionID = e.ID
		return &e, draining, err
	case u.ExecutionID != uuid.Nil:
		e, err := r.executions.State(tx, u.ExecutionID)
		return &e, false, err
	}
	return nil, false, nil
}

func (r *Repo) report(tx *store.Tx, id uuid.UUID, u *budget.Usage, e *execution.Execution, out *budget.Reported) error {
	ids, err := chainOf(&tx.Queries, tx.Call.Namespace, id)
	if err != nil {
		return err
	}
	if err := r.Lock(tx, ids); err != nil {
		return err
	}
	chain := make([]budget.Budget, len(ids))
	for i, at := range ids {
		b := r.desk(tx).budgets[at]
		if b == nil { // deleted just now
			return fault.NotFound("budget", at)
		}
		chain[i] = *b
	}
	out.Budget = chain[0]
	if known, err := r.keyed(tx, id, u.DedupKey); err != nil || known {
		out.Verdict = budget.Verdict{Outcome: budget.AlreadyApplied}
		return err
	}
	after, verdict, err := budget.Apply(chain, u.Dimensions, tx.Now())
	if err != nil {
		return err
	}
	for i, c := range after {
		if e != nil {
			for j := range c.Events {
				c.Events[j] = of(e, c.Events[j])
			}
		}
		if err := r.save(tx, chain[i], c); err != nil {
			return err
		}
	}
	if out.Verdict, out.Budget = verdict, after[0].Budget; verdict.Outcome == budget.HardBreach {
		return nil
	}
	if err := r.keep(tx, id, u.DedupKey); err != nil || e == nil {
		return err
	}
	if err := r.attribute(tx, after, u); err != nil {
		return err
	}
	out.Budget = *r.desk(tx).budgets[id] // what is reserved has changed, too
	return nil
}

// keyed says whether a report was counted under a key. The budget is locked.
func (*Repo) keyed(tx *store.Tx, id uuid.UUID, key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	var n int
	if err := tx.Get(&n, `SELECT count(*) FROM budget_keys WHERE budget_id = ? AND key = ? AND expires_at > ?`, store.ID(id), key, store.Millis(tx.Now())); err != nil {
		return false, fmt.Errorf("look for the key of a report: %w", err)
	}
	return n > 0, nil
}

func (*Repo) keep(tx *store.Tx, id uuid.UUID, key string) error {
	if key == "" {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO budget_keys (budget_id, key, expires_at) VALUES (?, ?, ?) ON CONFLICT (budget_id, key) DO UPDATE SET expires_at = excluded.expires_at`,
		store.ID(id), key, store.Millis(tx.Now().Add(keepKey)))
	if err != nil {
		return fmt.Errorf("keep the key of a report: %w", err)
	}
	return nil
}

const upsertLedger = ` ON CONFLICT (via_id, execution_id, budget_id, dimension) DO UPDATE SET updated_at = excluded.updated_at, period = excluded.period,
	spent = excluded.spent + CASE WHEN budget_ledger.period = excluded.period THEN budget_ledger.spent ELSE 0 END`

// attribute enters a report in the ledgers, as what one execution has spent, and takes it off what is reserved for that.
func (r *Repo) attribute(tx *store.Tx, after []budget.Change, u *budget.Usage) error {
	var rows [][]any
	freed := map[part]int64{}
	for i := range after {
		b := &after[i].Budget
		for _, dimension := range slices.Sorted(maps.Keys(u.Dimensions)) {
			spent := u.Dimensions[dimension]
			rows = append(rows, []any{store.ID(b.ID), store.ID(after[0].Budget.ID), store.ID(u.ExecutionID), dimension, b.Period, spent, store.Millis(tx.Now())})
			if spent == 0 {
				continue
			}
			n, err := settle(tx, u.ExecutionID, b.ID, dimension, spent)
			if err != nil {
				return err
			}
			if n > 0 {
				freed[part{b.ID, dimension}] += n
			}
		}
	}
	if _, err := tx.Insert(`INSERT INTO budget_ledger (budget_id, via_id, execution_id, dimension, period, spent, updated_at) VALUES `, rows, upsertLedger); err != nil {
		return fmt.Errorf("enter a report in the ledger: %w", err)
	}
	return r.free(tx, freed)
}

// settle takes what was spent off what is reserved, and returns how much that was.
func settle(tx *store.Tx, executionID, budgetID uuid.UUID, dimension string, spent int64) (int64, error) {
	var left int64
	err := tx.Get(&left, `SELECT amount FROM budget_reservations WHERE execution_id = ? AND budget_id = ? AND dimension = ?`, store.ID(executionID), store.ID(budgetID), dimension)
	if store.NotFound(err) || err == nil && left == 0 {
		return 0, nil
	}
	n := min(left, spent)
	if err == nil {
		err = tx.ExecOne(`UPDATE budget_reservations SET amount = amount - ? WHERE execution_id = ? AND budget_id = ? AND dimension = ?`, n, store.ID(executionID), store.ID(budgetID), dimension)
	}
	if err != nil {
		return 0, fmt.Errorf("settle a reservation of budget %s: %w", budgetID, err)
	}
	return n, nil
}

// advise tells a worker what its budgets leave to it, and does what an exhausted one says.
func (r *Repo) advise(tx *store.Tx, e *execution.Execution, draining, worker bool, out *budget.Reported) error {
	out.Directives = e.Directives(draining)
	if len(e.Counted()) == 0 {
		return nil
	}
	a, err := r.Allowance(&tx.Queries, e.ID, e.Counted())
	if err != nil {
		return err
	}
	if out.Remaining = a.Remaining; a.Low {
		out.Directives = append(out.Directives, execution.DirectiveBudgetLow)
	}
	if a.Spent == nil || !worker {
		return nil
	}
	told, err := r.executions.Obey(tx, e, *a.Spent)
	out.Directives = append(out.Directives, told)
	return err
}

type spentRow struct {
	BudgetID  store.ID `db:"budget_id"`
	Dimension string   `db:"dimension"`
	Spent     int64    `db:"spent"`
}

// Release gives back what was reported for an execution in the present periods of a budget and of those above it. Again it gives back
// nothing. It returns CodeNotFound for the budget. reference: flows-streams-budgets.md 6.6.
func (r *Repo) Release(ctx context.Context, id, executionID uuid.UUID) (budget.Budget, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *budget.Budget) error {
		ids, err := chainOf(&tx.Queries, tx.Call.Namespace, id)
		if err != nil {
			return err
		}
		if err := r.Lock(tx, ids); err != nil {
			return err
		}
		var rows []spentRow
		err = tx.Select(&rows, `DELETE FROM budget_ledger WHERE via_id = ? AND execution_id = ? AND period = (SELECT b.period FROM budgets b WHERE b.id = budget_id) RETURNING budget_id, dimension, spent`,
			store.ID(id), store.ID(executionID))
		if err != nil {
			return fmt.Errorf("read the ledger of budget %s: %w", id, err)
		}
		spent := map[uuid.UUID]map[string]int64{}
		for _, row := range rows {
			at := uuid.UUID(row.BudgetID)
			if spent[at] == nil {
				spent[at] = map[string]int64{}
			}
			spent[at][row.Dimension] += row.Spent
		}
		for i, at := range ids {
			b := r.desk(tx).budgets[at]
			if b == nil {
				return fault.NotFound("budget", at)
			}
			c := budget.Change{Budget: *b}
			if len(spent[at]) > 0 {
				c = b.Refund(spent[at], tx.Now())
				if err := r.save(tx, *b, c); err != nil {
					return err
				}
			}
			if i == 0 {
				*out = c.Budget
			}
		}
		tx.Refer(id)
		return nil
	}, store.Reload(r.Budget))
}

// Ledger lists what executions have spent in the present period of a budget, by their ids. It returns CodeNotFound.
func (r *Repo) Ledger(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (page.Page[budget.Entry], error) {
	var list []budget.Entry
	err := r.store.Read(ctx, func(q *store.Queries) error {
		b, err := find(q, call.From(ctx).Namespace, id, "")
		if err != nil {
			return err
		}
		list, err = ledger(q, &b, after.ID, limit+1)
		return err
	})
	return page.Of(list, limit, func(e budget.Entry) page.Cursor { return page.Cursor{ID: e.ExecutionID} }), err
}

func ledger(q *store.Queries, b *budget.Budget, after uuid.UUID, limit int) ([]budget.Entry, error) {
	var rows []struct {
		ExecutionID store.ID     `db:"execution_id"`
		Dimension   string       `db:"dimension"`
		IsSpent     int          `db:"is_spent"`
		Amount      int64        `db:"amount"`
		UpdatedAt   store.Millis `db:"updated_at"`
	}
	const spent = `SELECT execution_id, dimension, 1 AS is_spent, spent AS amount, updated_at FROM budget_ledger WHERE budget_id = ? AND period = ?`
	const reserved = `SELECT execution_id, dimension, 0 AS is_spent, amount, reserved_at AS updated_at FROM budget_reservations WHERE budget_id = ? AND amount > 0`
	from, args := "", []any{store.ID(b.ID), b.Period, store.ID(b.ID)}
	if after != uuid.Nil {
		from, args = " WHERE execution_id > ?", append(args, store.ID(after))
	}
	err := q.Select(&rows, `WITH entries AS (`+spent+" UNION ALL "+reserved+`) SELECT execution_id, dimension, is_spent, amount, updated_at FROM entries
		WHERE execution_id IN (SELECT DISTINCT execution_id FROM entries`+from+` ORDER BY execution_id LIMIT ?) ORDER BY execution_id, dimension`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read the ledger of budget %s: %w", b.ID, err)
	}
	var list []budget.Entry
	for _, row := range rows {
		if n := len(list); n == 0 || list[n-1].ExecutionID != uuid.UUID(row.ExecutionID) {
			list = append(list, budget.Entry{ExecutionID: uuid.UUID(row.ExecutionID), Spent: map[string]int64{}, Reserved: map[string]int64{}})
		}
		e := &list[len(list)-1]
		if row.IsSpent == 1 {
			e.Spent[row.Dimension] += row.Amount
		} else {
			e.Reserved[row.Dimension] += row.Amount
		}
		if at := time.Time(row.UpdatedAt); at.After(e.UpdatedAt) {
			e.UpdatedAt = at
		}
	}
	return list, nil
}

// of makes an event one of an execution, too.
func of(e *execution.Execution, told event.Event) event.Event {
	about := e.Event(told.Type, told.Data)
	about.Revision = told.Revision
	return about
}
