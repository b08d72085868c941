package budget

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// row is a stored budget, without its amounts.
type row struct {
	ID                  store.ID     `db:"id"`
	Namespace           string       `db:"namespace"`
	ParentID            store.ID     `db:"parent_id"`
	CreatedAt           store.Millis `db:"created_at"`
	ScopeType           string       `db:"scope_type" row:"moving"`
	ScopeID             string       `db:"scope_id"`
	OnHardLimit         string       `db:"on_hard_limit"`
	ResetIntervalMS     *int64       `db:"reset_interval_ms"`
	Schedule            store.JSON   `db:"schedule"`
	Exhausted           int          `db:"exhausted"`
	Breaches            int64        `db:"breach_count"`
	SoftBreaches        int64        `db:"soft_breach_count"`
	LastBreachAt        store.Millis `db:"last_breach_at"`
	LastBreachDimension store.Text   `db:"last_breach_dimension"`
	NextResetAt         store.Millis `db:"next_reset_at"`
	LastResetAt         store.Millis `db:"last_reset_at"`
	Period              int64        `db:"period"`
	Revision            int64        `db:"revision"`
	UpdatedAt           store.Millis `db:"updated_at"`
}

var table = store.TableOf[row]("budgets")

// rowOf returns the stored form of b.
func rowOf(b *budget.Budget) (row, error) {
	r := row{
		ID: store.ID(b.ID), Namespace: b.Namespace, ParentID: store.ID(b.ParentID), CreatedAt: store.Millis(b.CreatedAt), ScopeType: b.ScopeType, ScopeID: b.ScopeID,
		OnHardLimit: string(b.OnHardLimit), Exhausted: store.Bit(b.Exhausted), Breaches: b.Breaches, SoftBreaches: b.SoftBreaches, LastBreachAt: store.Millis(b.LastBreachAt),
		LastBreachDimension: store.Text(b.LastBreachDimension), NextResetAt: store.Millis(b.NextResetAt), LastResetAt: store.Millis(b.LastResetAt), Period: b.Period,
		Revision: b.Revision, UpdatedAt: store.Millis(b.UpdatedAt),
	}
	if b.ResetInterval > 0 {
		r.ResetIntervalMS = new(b.ResetInterval.Milliseconds())
	}
	if b.Schedule == nil {
		return r, nil
	}
	var err error
	if r.Schedule, err = json.Marshal(b.Schedule); err != nil {
		return r, fmt.Errorf("schedule of budget %s: %w", b.ID, err)
	}
	return r, nil
}

// budget returns the budget that r stores, without its amounts. It returns CodeCorruptRecord for a row that cannot be one.
func (r *row) budget() (budget.Budget, error) {
	b := budget.Budget{
		ID: uuid.UUID(r.ID), Namespace: r.Namespace, ScopeType: r.ScopeType, ScopeID: r.ScopeID, ParentID: uuid.UUID(r.ParentID), OnHardLimit: budget.OnHardLimit(r.OnHardLimit),
		Amounts: map[string]budget.Amount{}, Exhausted: r.Exhausted == 1, Breaches: r.Breaches, SoftBreaches: r.SoftBreaches, LastBreachAt: time.Time(r.LastBreachAt),
		LastBreachDimension: string(r.LastBreachDimension), NextResetAt: time.Time(r.NextResetAt), LastResetAt: time.Time(r.LastResetAt), Period: r.Period, Revision: r.Revision,
		CreatedAt: time.Time(r.CreatedAt), UpdatedAt: time.Time(r.UpdatedAt),
	}
	if r.ResetIntervalMS != nil {
		b.ResetInterval = time.Duration(*r.ResetIntervalMS) * time.Millisecond
	}
	if r.Schedule != nil {
		if err := json.Unmarshal(r.Schedule, &b.Schedule); err != nil {
			return b, store.Corrupt("budget", b.ID, err)
		}
	}
	return b, nil
}

type amountRow struct {
	BudgetID  store.ID `db:"budget_id"`
	Dimension string   `db:"dimension"`
	Hard      *int64   `db:"hard"`
	Soft      *int64   `db:"soft"`
	Usage     int64    `db:"usage"`
	Used      int      `db:"used"`
	Breached  int      `db:"breached"`
	Reserved  int64    `db:"reserved"`
}

func find(q *store.Queries, namespace string, id uuid.UUID, lock string) (budget.Budget, error) {
	list, err := read(q, "WHERE id = ? AND namespace = ?"+lock, store.ID(id), namespace)
	if err == nil && len(list) == 0 {
		err = fault.NotFound("budget", id)
	}
	if err != nil {
		return budget.Budget{}, err
	}
	return list[0], nil
}

// read returns budgets, in the order of the query.
func read(q *store.Queries, rest string, args ...any) ([]budget.Budget, error) {
	var rows []row
	if err := q.Select(&rows, "SELECT "+table.Columns+" FROM budgets "+rest, args...); err != nil {
		return nil, fmt.Errorf("read budgets: %w", err)
	}
	list, at, ids := make([]budget.Budget, len(rows)), make(map[store.ID]int, len(rows)), make([]store.ID, len(rows))
	for i := range rows {
		var err error
		if list[i], err = rows[i].budget(); err != nil {
			return nil, err
		}
		at[rows[i].ID], ids[i] = i, rows[i].ID
	}
	if len(rows) == 0 {
		return list, nil
	}
	var amounts []amountRow
	if err := q.Select(&amounts, "SELECT budget_id, dimension, hard, soft, usage, used, breached, reserved FROM budget_amounts WHERE budget_id IN ?", store.List(ids)); err != nil {
		return nil, fmt.Errorf("read amounts of budgets: %w", err)
	}
	for _, a := range amounts {
		list[at[a.BudgetID]].Amounts[a.Dimension] = budget.Amount{Hard: a.Hard, Soft: a.Soft, Usage: a.Usage, Used: a.Used == 1, Breached: a.Breached == 1, Reserved: a.Reserved}
	}
	return list, nil
}

func insert(tx *store.Tx, b *budget.Budget) (int64, error) {
	stored, err := rowOf(b)
	if err != nil {
		return 0, err
	}
	n, err := tx.Exec(table.Insert, table.All(&stored)...)
	if err != nil || n == 0 {
		return n, err
	}
	return n, saveAmounts(tx, b, nil)
}

const upsertAmount = ` ON CONFLICT (budget_id, dimension) DO UPDATE SET hard = excluded.hard, soft = excluded.soft, usage = excluded.usage, used = excluded.used, breached = excluded.breached`

// saveAmounts writes the amounts of a locked budget that differ from those of before. What is reserved is written by others.
func saveAmounts(tx *store.Tx, b *budget.Budget, before map[string]budget.Amount) error {
	var rows [][]any
	for dimension, a := range b.Amounts {
		old, known := before[dimension]
		if known && same(old, a) {
			continue
		}
		rows = append(rows, []any{store.ID(b.ID), dimension, a.Hard, a.Soft, a.Usage, store.Bit(a.Used), store.Bit(a.Breached), 0})
	}
	if _, err := tx.Insert(`INSERT INTO budget_amounts (budget_id, dimension, hard, soft, usage, used, breached, reserved) VALUES `, rows, upsertAmount); err != nil {
		return fmt.Errorf("write amounts of budget %s: %w", b.ID, err)
	}
	for dimension := range before {
		if _, kept := b.Amounts[dimension]; kept {
			continue
		}
		if _, err := tx.Exec(`DELETE FROM budget_amounts WHERE budget_id = ? AND dimension = ?`, store.ID(b.ID), dimension); err != nil {
			return fmt.Errorf("drop an amount of budget %s: %w", b.ID, err)
		}
	}
	return nil
}

func same(a, b budget.Amount) bool {
	limit := func(p *int64) int64 {
		if p == nil {
			return -1
		}
		return *p
	}
	return limit(a.Hard) == limit(b.Hard) && limit(a.Soft) == limit(b.Soft) && a.Usage == b.Usage && a.Used == b.Used && a.Breached == b.Breached
}
