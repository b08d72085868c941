package budget

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// desk is what one transaction knows of budgets, which it has locked, and what it reserves of them.
type desk struct {
	budgets map[uuid.UUID]*budget.Budget // nil for one that is no more: nothing is limited
	taken   []reservation
	settled []uuid.UUID // executions that nobody holds any more
}

// reservation is what was reserved of a budget for an execution.
type reservation struct {
	budgetID, executionID uuid.UUID
	dimension             string
	amount                int64
}

type deskKey struct{}

// Rank says that the sum is written early: claims lock budgets after quotas, and in the end what the members of a flow share.
func (deskKey) Rank() int { return 1 }

func (*Repo) desk(tx *store.Tx) *desk {
	d := store.Local[desk](tx, deskKey{})
	if d.budgets == nil {
		d.budgets = map[uuid.UUID]*budget.Budget{}
	}
	return d
}

// moved makes the transaction write its desk down in the end.
func (r *Repo) moved(tx *store.Tx) *desk {
	d := r.desk(tx)
	store.Sum(tx, deskKey{}, func(*struct{}) error { return r.write(tx, d) })
	return d
}

// known remembers how a budget stands that was changed.
func (r *Repo) known(tx *store.Tx, b *budget.Budget) { r.desk(tx).budgets[b.ID] = new(*b) }

// Lock locks budgets, in one order.
func (r *Repo) Lock(tx *store.Tx, ids []uuid.UUID) error {
	d := r.desk(tx)
	var missing []store.ID
	for _, id := range ids {
		if _, ok := d.budgets[id]; !ok {
			d.budgets[id] = nil
			missing = append(missing, store.ID(id))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if tx.Locks() { // and read then: the amounts are those of after the lock
		var locked []store.ID
		if err := tx.Select(&locked, "SELECT id FROM budgets WHERE id IN ? ORDER BY id"+tx.ForUpdate(), store.List(missing)); err != nil {
			return fmt.Errorf("lock budgets: %w", err)
		}
	}
	tx.Later()
	list, err := read(&tx.Queries, "WHERE id IN ?", store.List(missing))
	for i := range list {
		d.budgets[list[i].ID] = &list[i]
	}
	return err
}

// Check locks budgets and says what holds up an execution that is expected to spend an estimate; nil for nothing.
func (r *Repo) Check(tx *store.Tx, ids []uuid.UUID, estimate map[string]int64) (*execution.Hold, error) {
	if err := r.Lock(tx, ids); err != nil {
		return nil, err
	}
	d := r.desk(tx)
	for _, id := range ids {
		if b := d.budgets[id]; b != nil {
			if hold := holdOf(b, estimate); hold != nil {
				hold.Since = tx.Now()
				return hold, nil
			}
		}
	}
	return nil, nil
}

// Look is Check without locks.
func (r *Repo) Look(q *store.Queries, ids []uuid.UUID, estimate map[string]int64) (*execution.Hold, error) {
	list, err := readAll(q, ids)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if hold := holdOf(&list[i], estimate); hold != nil {
			return hold, nil
		}
	}
	return nil, nil
}

func readAll(q *store.Queries, ids []uuid.UUID) ([]budget.Budget, error) {
	return read(q, "WHERE id IN ? ORDER BY id", store.List(store.IDs(ids)))
}

// holdOf says how a budget holds up what is expected to spend an estimate.
func holdOf(b *budget.Budget, estimate map[string]int64) *execution.Hold {
	dimension, need, left, ok := b.Need(estimate)
	if ok {
		return nil
	}
	a := b.Amounts[dimension]
	h := &execution.Hold{By: execution.HeldByBudget, ID: b.ID, Key: dimension, Need: need, Until: b.NextResetAt}
	h.Detail = fmt.Sprintf("Budget %s has %d of %d %s left, of which it needs %d (%d are used, %d reserved).", b.ID, left, *a.Hard, dimension, need, a.Usage, a.Reserved)
	return h
}

// Take reserves what an execution is expected to spend, of budgets that were checked.
func (r *Repo) Take(tx *store.Tx, id uuid.UUID, ids []uuid.UUID, estimate map[string]int64) execution.Allowance {
	d := r.desk(tx)
	if len(estimate) > 0 {
		d = r.moved(tx)
	}
	a := execution.Allowance{Remaining: map[uuid.UUID]map[string]int64{}}
	for _, budgetID := range ids {
		b := d.budgets[budgetID]
		if b == nil {
			continue
		}
		for dimension, amount := range estimate {
			if amount = min(amount, budget.MaxAmount-b.Amounts[dimension].Reserved); amount > 0 {
				d.taken = append(d.taken, reservation{budgetID, id, dimension, amount})
			}
		}
		*b = b.Reserve(estimate)
		a.Remaining[budgetID] = b.Remaining(estimate)
		a.Low = a.Low || b.Low()
	}
	return a
}

// Settle gives back what is left of what was reserved for an execution that nobody holds any more.
func (r *Repo) Settle(tx *store.Tx, id uuid.UUID) {
	d := r.moved(tx)
	d.settled = append(d.settled, id)
}

// Allowance says what budgets leave to an execution.
func (r *Repo) Allowance(q *store.Queries, id uuid.UUID, ids []uuid.UUID) (execution.Allowance, error) {
	list, err := readAll(q, ids)
	if err != nil {
		return execution.Allowance{}, err
	}
	var rows []reservedRow
	if err := q.Select(&rows, `SELECT budget_id, dimension, amount FROM budget_reservations WHERE execution_id = ?`, store.ID(id)); err != nil {
		return execution.Allowance{}, fmt.Errorf("read what is reserved for execution %s: %w", id, err)
	}
	own := map[uuid.UUID]map[string]int64{}
	for _, row := range rows {
		at := uuid.UUID(row.BudgetID)
		if own[at] == nil {
			own[at] = map[string]int64{}
		}
		own[at][row.Dimension] = row.Amount
	}
	a := execution.Allowance{Remaining: map[uuid.UUID]map[string]int64{}}
	for i := range list {
		b := &list[i]
		a.Remaining[b.ID] = b.Remaining(own[b.ID])
		a.Low = a.Low || b.Low()
		if !b.Exhausted || b.OnHardLimit == budget.Deny || a.Spent != nil && a.Spent.Cancel {
			continue
		}
		a.Spent = &execution.Spent{BudgetID: b.ID, Cancel: b.OnHardLimit == budget.Cancel}
	}
	return a, nil
}

type reservedRow struct {
	BudgetID  store.ID `db:"budget_id"`
	Dimension string   `db:"dimension"`
	Amount    int64    `db:"amount"`
}

// part is one dimension of a budget.
type part struct {
	id        uuid.UUID
	dimension string
}

func (p part) order(o part) int {
	return cmp.Or(store.ByID(p.id, o.id), cmp.Compare(p.dimension, o.dimension))
}

// write writes down what a transaction has given back, and then what it has reserved.
func (r *Repo) write(tx *store.Tx, d *desk) error {
	settled, taken := d.settled, d.taken
	d.settled, d.taken = nil, nil
	if err := r.giveBack(tx, settled); err != nil {
		return err
	}
	amounts, rows := map[part]int64{}, make([][]any, len(taken))
	for i, t := range taken {
		amounts[part{t.budgetID, t.dimension}] += t.amount
		rows[i] = []any{store.ID(t.executionID), store.ID(t.budgetID), t.dimension, t.amount, store.Millis(tx.Now())}
	}
	for _, p := range slices.SortedFunc(maps.Keys(amounts), part.order) {
		_, err := tx.Exec(`INSERT INTO budget_amounts (budget_id, dimension, usage, used, reserved) VALUES (?, ?, 0, 0, ?)
			ON CONFLICT (budget_id, dimension) DO UPDATE SET reserved = budget_amounts.reserved + excluded.reserved`, store.ID(p.id), p.dimension, amounts[p])
		if err != nil {
			return fmt.Errorf("reserve of budget %s: %w", p.id, err)
		}
	}
	if _, err := tx.Insert(`INSERT INTO budget_reservations (execution_id, budget_id, dimension, amount, reserved_at) VALUES `, rows, ""); err != nil {
		return fmt.Errorf("note reservations: %w", err)
	}
	return nil
}

// giveBack gives back what is reserved for executions.
func (r *Repo) giveBack(tx *store.Tx, executions []uuid.UUID) error {
	freed := map[part]int64{}
	for chunk := range store.Chunks(executions) {
		var rows []reservedRow
		if err := tx.Select(&rows, `DELETE FROM budget_reservations WHERE execution_id IN ? RETURNING budget_id, dimension, amount`, store.List(store.IDs(chunk))); err != nil {
			return fmt.Errorf("give reservations back: %w", err)
		}
		for _, row := range rows {
			freed[part{uuid.UUID(row.BudgetID), row.Dimension}] += row.Amount
		}
	}
	return r.free(tx, freed)
}

// free counts what was given back, of budgets that it locks, and lets those go on for whom that is enough.
func (r *Repo) free(tx *store.Tx, freed map[part]int64) error {
	if len(freed) == 0 {
		return nil
	}
	ids := map[uuid.UUID]bool{}
	for p := range freed {
		ids[p.id] = true
	}
	if err := r.Lock(tx, slices.SortedFunc(maps.Keys(ids), store.ByID[uuid.UUID])); err != nil {
		return err
	}
	d := r.desk(tx)
	for _, p := range slices.SortedFunc(maps.Keys(freed), part.order) {
		b := d.budgets[p.id]
		if b == nil { // it was deleted
			continue
		}
		*b = b.Unreserve(map[string]int64{p.dimension: freed[p]})
		if err := tx.ExecOne(`UPDATE budget_amounts SET reserved = reserved - ? WHERE budget_id = ? AND dimension = ?`, freed[p], store.ID(p.id), p.dimension); err != nil {
			return fmt.Errorf("give reservations of budget %s back: %w", p.id, err)
		}
		left, limited := b.Left(p.dimension)
		if !limited {
			left = math.MaxInt64
		}
		if err := r.executions.Reopen(tx, p.id, p.dimension, left); err != nil {
			return err
		}
	}
	return nil
}
