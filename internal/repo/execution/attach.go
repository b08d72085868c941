package execution

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// limitsOf returns what an execution, or a flow, is attached to. It returns CodeNotFound for a budget or a quota that there is not.
func (r *Repo) limitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID, estimate map[string]int64) (*execution.Limits, error) {
	l := execution.Limits{BudgetIDs: budgets, QuotaIDs: quotas, Estimate: estimate}
	var err error
	if len(budgets) > 0 {
		if l.Budgets, err = r.budgets.Attach(q, namespace, budgets); err != nil {
			return nil, err
		}
	}
	if len(quotas) > 0 {
		if l.Quotas, err = r.quotas.Attach(q, namespace, quotas); err != nil {
			return nil, err
		}
	}
	if l.None() {
		return nil, nil
	}
	return &l, nil
}

// attached remembers what a transaction has looked up: the items of a batch mostly have the same limits.
type attached map[string]*execution.Limits

type attachedKey struct{}

// limitsIn is limitsOf for what is about to be made.
func (r *Repo) limitsIn(tx *store.Tx, in *execution.Create) (*execution.Limits, error) {
	if len(in.BudgetIDs)+len(in.QuotaIDs) == 0 {
		return r.limitsOf(&tx.Queries, in.Namespace, nil, nil, in.Estimate)
	}
	known, name := store.Local[attached](tx, attachedKey{}), fmt.Sprint(in.BudgetIDs, in.QuotaIDs)
	l, ok := (*known)[name]
	if !ok {
		var err error
		if l, err = r.limitsOf(&tx.Queries, in.Namespace, in.BudgetIDs, in.QuotaIDs, nil); err != nil {
			return nil, err
		}
		if *known == nil {
			*known = attached{}
		}
		(*known)[name] = l
	}
	if len(in.Estimate) > 0 {
		return l.Expecting(in.Estimate), nil
	}
	return l, nil
}

// LimitsOf is what the members of a flow are attached to. It returns CodeNotFound.
func (r *Repo) LimitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID) (*execution.Limits, error) {
	return r.limitsOf(q, namespace, budgets, quotas, nil)
}
