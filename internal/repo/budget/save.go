package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// save writes a change of a budget, which is locked, and lets those go on for whom there is more left than before.
func (r *Repo) save(tx *store.Tx, before budget.Budget, c budget.Change) error {
	b := &c.Budget
	stored, err := rowOf(b)
	if err != nil {
		return err
	}
	if err := tx.ExecOne(table.Update, append(table.Moving(&stored), stored.ID)...); err != nil {
		return fmt.Errorf("update budget %s: %w", b.ID, err)
	}
	if err := saveAmounts(tx, b, before.Amounts); err != nil {
		return err
	}
	r.known(tx, b)
	tell(tx, c)
	for dimension := range before.Amounts {
		was, limited := before.Left(dimension)
		if !limited {
			continue
		}
		left, limited := b.Left(dimension)
		if !limited {
			left = math.MaxInt64
		}
		if left <= was {
			continue
		}
		if err := r.executions.Reopen(tx, b.ID, dimension, left); err != nil {
			return err
		}
	}
	if before.Exhausted && !b.Exhausted {
		return r.refill(tx, b.ID)
	}
	return nil
}

// tell tells of a change, and the loop of the next one.
func tell(tx *store.Tx, c budget.Change) {
	tx.Alarm(Loop, c.Budget.NextResetAt)
	tx.EmitAll(c.Events)
}

// refillMost bounds how many suspended executions one transaction lets go on; the rest follow.
const refillMost = 250

// refill lets go on what a budget has suspended.
func (r *Repo) refill(tx *store.Tx, id uuid.UUID) error {
	left, err := r.refillSome(tx, id)
	if left {
		tx.Alarm(Loop, tx.Now())
	}
	return err
}

// refillSome is refill of some of them, and says whether others are left.
func (r *Repo) refillSome(tx *store.Tx, budgetID uuid.UUID) (left bool, err error) {
	var rows []struct {
		ExecutionID  store.ID `db:"execution_id"`
		SuspensionID store.ID `db:"suspension_id"`
	}
	if err := tx.Select(&rows, `SELECT execution_id, suspension_id FROM budget_paused WHERE budget_id = ? ORDER BY execution_id LIMIT ?`, store.ID(budgetID), refillMost); err != nil {
		return false, fmt.Errorf("read what budget %s has suspended: %w", budgetID, err)
	}
	if len(rows) == 0 {
		return false, nil
	}
	suspensions := make(map[uuid.UUID]uuid.UUID, len(rows))
	for _, row := range rows {
		suspensions[uuid.UUID(row.ExecutionID)] = uuid.UUID(row.SuspensionID)
	}
	done, err := r.executions.Refill(tx, suspensions)
	if err != nil || len(done) == 0 {
		return true, err
	}
	if _, err := tx.Exec(`DELETE FROM budget_paused WHERE budget_id = ? AND execution_id IN ?`, store.ID(budgetID), store.List(store.IDs(done))); err != nil {
		return false, fmt.Errorf("forget what budget %s has suspended: %w", budgetID, err)
	}
	return len(done) < len(rows) || len(rows) == refillMost, nil
}

// Paused notes that an execution was suspended because of a budget.
func (*Repo) Paused(tx *store.Tx, budgetID, id, suspension uuid.UUID) error {
	_, err := tx.Exec(`INSERT INTO budget_paused (budget_id, execution_id, suspension_id) VALUES (?, ?, ?)
		ON CONFLICT (budget_id, execution_id) DO UPDATE SET suspension_id = excluded.suspension_id`, store.ID(budgetID), store.ID(id), store.ID(suspension))
	if err != nil {
		return fmt.Errorf("note what budget %s suspends: %w", budgetID, err)
	}
	return nil
}

// errNothingDue ends a transaction that had nothing to do.
var errNothingDue = errors.New("nothing is due")

// Pass resets the budgets that are due, one in a transaction, and lets go on what was suspended by budgets that have something again. It
// returns how many were changed, at most limit.
func (r *Repo) Pass(ctx context.Context, limit int) (int, error) {
	for n := range limit {
		err := store.Do(ctx, r.store, r.passOne, store.Background())
		if errors.Is(err, errNothingDue) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return limit, nil
}

// refillable finds budgets that have suspended executions and have something again, or are gone.
const refillable = `SELECT p.budget_id FROM budget_paused p LEFT JOIN budgets b ON b.id = p.budget_id WHERE b.id IS NULL OR b.exhausted = 0`

func (r *Repo) passOne(tx *store.Tx) error {
	due, err := read(&tx.Queries, "WHERE id = (SELECT id FROM budgets WHERE next_reset_at <= ? ORDER BY next_reset_at LIMIT 1"+tx.SkipLocked()+")"+tx.ForUpdate(), store.Millis(tx.Now()))
	if err != nil {
		return err
	}
	if len(due) == 0 {
		return r.passRefill(tx)
	}
	tx.Later()
	b := due[0]
	tx.Call.Namespace = b.Namespace
	if !b.Due(tx.Now()) {
		return nil
	}
	return r.save(tx, b, b.Reset(false, tx.Now()))
}

func (r *Repo) passRefill(tx *store.Tx) error {
	var due []store.ID
	if err := tx.Select(&due, refillable+" LIMIT 1"); err != nil {
		return fmt.Errorf("look whom a budget lets go on: %w", err)
	}
	if len(due) == 0 {
		return errNothingDue
	}
	_, err := r.refillSome(tx, uuid.UUID(due[0]))
	return err
}

// NextDue returns when the next budget is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT CASE WHEN EXISTS (`+refillable+`) THEN 1
		ELSE (SELECT next_reset_at FROM budgets WHERE next_reset_at IS NOT NULL ORDER BY next_reset_at LIMIT 1) END`)
}

// ExpireKeys forgets up to limit keys of reports whose time is over, and returns how many.
func (r *Repo) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return store.ExpireRows(ctx, r.store, "budget_keys", "budget_id, key", limit)
}

// ExpireLedger forgets up to limit entries of the ledgers of periods that are over, and returns how many.
func (r *Repo) ExpireLedger(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		n, err := tx.Exec(`DELETE FROM budget_ledger WHERE (via_id, execution_id, budget_id, dimension) IN
			(SELECT l.via_id, l.execution_id, l.budget_id, l.dimension FROM budgets b JOIN budget_ledger l ON l.budget_id = b.id AND l.period < b.period LIMIT ?)`, limit)
		*out = int(n)
		return err
	}, store.Background())
}
