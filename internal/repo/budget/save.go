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
	values, err := movingValues(b)
	if err != nil {
		return err
	}
	if err := tx.ExecOne(updateRow, append(values, store.ID(b.ID))...); err != nil {
		return fmt.Errorf("update budget %s: %w", b.ID, err)
	}
	if err := saveAmounts(tx, b, before.Amounts); err != nil {
		return err
	}
	r.known(tx, b)
	if err := r.tell(tx, c); err != nil {
		return err
	}
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
		return r.refill(tx, b)
	}
	return nil
}

func (*Repo) tell(tx *store.Tx, c budget.Change) error {
	tx.Alarm(Loop, c.Budget.NextResetAt)
	for _, e := range c.Events {
		tx.Emit(e)
	}
	return nil
}

// refillMost bounds how many suspended executions one transaction lets go on; the rest follow.
const refillMost = 250

// refill lets go on what a budget has suspended.
func (r *Repo) refill(tx *store.Tx, b *budget.Budget) error {
	n, err := r.refillSome(tx, b)
	if n == refillMost {
		tx.Alarm(Loop, tx.Now())
	}
	return err
}

// refillAll is refill of a budget that is about to go.
func (r *Repo) refillAll(tx *store.Tx, b *budget.Budget) error {
	for {
		if n, err := r.refillSome(tx, b); n < refillMost || err != nil {
			return err
		}
	}
}

func (r *Repo) refillSome(tx *store.Tx, b *budget.Budget) (int, error) {
	var ids []store.ID
	err := tx.Select(&ids, `DELETE FROM budget_paused WHERE (budget_id, execution_id) IN (SELECT budget_id, execution_id FROM budget_paused WHERE budget_id = ? ORDER BY execution_id LIMIT ?) RETURNING execution_id`,
		store.ID(b.ID), refillMost)
	if err != nil {
		return 0, fmt.Errorf("read what budget %s has suspended: %w", b.ID, err)
	}
	executions := make([]uuid.UUID, len(ids))
	for i := range ids {
		executions[i] = uuid.UUID(ids[i])
	}
	return len(ids), r.executions.Refill(tx, b.Namespace, executions)
}

// Paused notes that an execution was suspended because of a budget.
func (*Repo) Paused(tx *store.Tx, budgetID, id uuid.UUID) error {
	_, err := tx.Exec(`INSERT INTO budget_paused (budget_id, execution_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, store.ID(budgetID), store.ID(id))
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

// The budgets that have something to do, a reset or the rest of those that they had suspended.
const (
	dueReset  = `next_reset_at <= ?`
	dueRefill = `exhausted = 0 AND EXISTS (SELECT 1 FROM budget_paused p WHERE p.budget_id = budgets.id)`
)

func (r *Repo) passOne(tx *store.Tx) error {
	due, err := read(&tx.Queries, "WHERE id = (SELECT id FROM budgets WHERE "+dueReset+" ORDER BY next_reset_at LIMIT 1"+tx.SkipLocked()+")"+tx.ForUpdate(), store.Millis(tx.Now()))
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
	due, err := read(&tx.Queries, "WHERE id IN (SELECT budget_id FROM budget_paused) AND "+dueRefill+" LIMIT 1")
	if err != nil {
		return err
	}
	if len(due) == 0 {
		return errNothingDue
	}
	tx.Call.Namespace = due[0].Namespace
	_, err = r.refillSome(tx, &due[0])
	return err
}

// NextDue returns when the next budget is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT CASE WHEN EXISTS (SELECT 1 FROM budgets WHERE id IN (SELECT budget_id FROM budget_paused) AND exhausted = 0) THEN 1
		ELSE (SELECT next_reset_at FROM budgets WHERE next_reset_at IS NOT NULL ORDER BY next_reset_at LIMIT 1) END`)
}

// ExpireKeys forgets up to limit keys of reports whose time is over, and returns how many.
func (r *Repo) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return store.Expire(ctx, r.store, `DELETE FROM budget_keys WHERE (budget_id, key) IN
		(SELECT budget_id, key FROM budget_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, limit)
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
