package execution

import (
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Budgets and quotas decide in the transaction that claims. What they do not let pass holds up its whole bucket, which is closed until
// there is room again: however many stand in it, nobody looks at them meanwhile. reference: flows-streams-budgets.md 6.7, 6.9.

// look says, without locking anything, what holds up an execution with such terms that is expected to spend an estimate.
func (r *Repo) look(q *store.Queries, t execution.Terms, estimate map[string]int64) (*execution.Hold, error) {
	if hold, err := r.quotas.Look(q, t.Quotas); hold != nil || err != nil || len(t.Budgets) == 0 {
		return hold, err
	}
	return r.budgets.Look(q, t.Budgets, estimate)
}

// check locks what terms name, and says how many executions with them may be claimed, each of which is expected to spend an
// estimate, or what holds them up.
func (r *Repo) check(tx *store.Tx, t execution.Terms, estimate map[string]int64) (room int64, hold *execution.Hold, err error) {
	room, hold, err = r.quotas.Check(tx, t.Quotas)
	if err != nil || hold != nil || len(t.Budgets) == 0 {
		return room, hold, err
	}
	hold, err = r.budgets.Check(tx, t.Budgets, estimate)
	return room, hold, err
}

// enter notes that e, whose terms were checked, is claimed.
func (r *Repo) enter(tx *store.Tx, e *execution.Execution, t execution.Terms) execution.Allowance {
	if r.quotas.Take(tx, e.ID, t.Quotas) {
		e.Admitted = true
	}
	if len(t.Budgets) == 0 {
		return execution.Allowance{}
	}
	return r.budgets.Take(tx, e.ID, t.Budgets, e.Estimate())
}

// admit takes e, which somebody claims by name, if its terms allow it. It returns CodeBudgetExhausted or CodeRateLimited.
func (r *Repo) admit(tx *store.Tx, before, e *execution.Execution) (execution.Allowance, error) {
	t, err := r.termsOf(&tx.Queries, before)
	if err != nil || t.None() {
		return execution.Allowance{}, err
	}
	_, hold, err := r.check(tx, t, before.Estimate())
	if err != nil {
		return execution.Allowance{}, err
	}
	if hold != nil {
		return execution.Allowance{}, refusedBy(hold, tx)
	}
	return r.enter(tx, e, t), nil
}

func refusedBy(h *execution.Hold, tx *store.Tx) error {
	if h.By == execution.HeldByBudget {
		return fault.New(fault.CodeBudgetExhausted, "%s Raise its limit with POST /v1/budgets/%s/topup, or wait for its reset.", h.Detail, h.ID).With("budget_id", h.ID).With("dimension", h.Key)
	}
	f := fault.New(fault.CodeRateLimited, "%s Claim it again later.", h.Detail).With("quota_id", h.ID)
	if !h.Until.IsZero() {
		f = f.With("retry_after_ms", h.Until.Sub(tx.Now()).Milliseconds())
	}
	return f
}
