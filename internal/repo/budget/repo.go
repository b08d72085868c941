// Package budget keeps budgets: what may be spent, what was, by whom, and what is reserved for whoever is at work.
package budget

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the work that resets budgets at their time, and lets go on what they had suspended.
const Loop = "budgets"

// Repo is the store of budgets.
type Repo struct {
	store      *store.Store
	executions Executions
}

// Executions is what budgets need to know of the executions that they hold up.
type Executions interface {
	// State returns an execution of the caller's namespace and locks it. It returns CodeNotFound.
	State(tx *store.Tx, id uuid.UUID) (execution.Execution, error)
	// HeldBy locks an execution, and its flow, for its worker. It returns CodeNotFound and the refusals of [execution.Execution.Check].
	HeldBy(tx *store.Tx, f execution.Fence) (e execution.Execution, draining bool, err error)
	// Obey does to an execution that is held what an exhausted budget says, and returns what its worker is told.
	Obey(tx *store.Tx, e *execution.Execution, s execution.Spent) (execution.Directive, error)
	// Refill lets executions go on that still have the suspension which a budget has caused, and returns those that nobody else has
	// locked. Others are left as they are.
	Refill(tx *store.Tx, suspensions map[uuid.UUID]uuid.UUID) ([]uuid.UUID, error)
	// Reopen opens the buckets that were held up for want of room.
	Reopen(tx *store.Tx, id uuid.UUID, key string, room int64) error
	// ReopenAll opens the buckets that a budget holds up.
	ReopenAll(tx *store.Tx, id uuid.UUID) error
}

// New returns a repository on s.
func New(s *store.Store, executions Executions) *Repo { return &Repo{store: s, executions: executions} }

// Create makes a budget in the caller's namespace. An id that a budget has already gets that budget, and nothing changes. It returns the
// refusals of [budget.New], CodeNotFound for the parent, and CodeAlreadyExists for an id that another namespace has.
func (r *Repo) Create(ctx context.Context, in budget.Create) (budget.Creation, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *budget.Creation) (err error) {
		out.Budget, out.Existing, err = store.Once(in.ID,
			func(id uuid.UUID) (budget.Budget, error) { return find(&tx.Queries, tx.Call.Namespace, id, "") },
			func(id uuid.UUID) (budget.Budget, error) { return r.create(tx, id, in) })
		tx.Refer(out.Budget.ID)
		return err
	}, store.Reload(func(ctx context.Context, id uuid.UUID) (budget.Creation, error) {
		b, err := r.Budget(ctx, id)
		return budget.Creation{Budget: b}, err
	}))
}

func (r *Repo) create(tx *store.Tx, id uuid.UUID, in budget.Create) (budget.Budget, error) {
	in.ID, in.Namespace = id, tx.Call.Namespace
	if err := r.checkParent(tx, in.ParentID); err != nil {
		return budget.Budget{}, err
	}
	c, err := budget.New(in, tx.Now())
	if err != nil {
		return budget.Budget{}, err
	}
	n, err := insert(tx, &c.Budget)
	switch {
	case err != nil:
		return budget.Budget{}, err
	case n == 0:
		return budget.Budget{}, store.Taken(id)
	}
	tell(tx, c)
	return c.Budget, nil
}

// checkParent refuses a parent that there is not, and one too many above each other.
func (r *Repo) checkParent(tx *store.Tx, id uuid.UUID) error {
	if id == uuid.Nil {
		return nil
	}
	above, err := chainOf(&tx.Queries, tx.Call.Namespace, id)
	if err != nil {
		return err
	}
	if len(above) >= budget.MaxDepth {
		return fault.Invalid(fault.CodeOutOfRange, "/parent_id", "There are %d budgets above each other already, which is the most. Choose a parent above this one.", len(above))
	}
	var locked store.ID // it is not deleted meanwhile
	if err := tx.Get(&locked, `SELECT id FROM budgets WHERE id = ?`+tx.ForUpdate(), store.ID(id)); err != nil {
		return fmt.Errorf("lock the parent: %w", err)
	}
	return nil
}

// Budget returns a budget of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Budget(ctx context.Context, id uuid.UUID) (b budget.Budget, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		b, err = find(q, call.From(ctx).Namespace, id, "")
		return err
	})
	return b, err
}

// Budgets lists the budgets of the caller's namespace, newest first.
func (r *Repo) Budgets(ctx context.Context, f budget.Filter, after page.Cursor, limit int) (page.Page[budget.Budget], error) {
	where := store.NewWhere("namespace = ?", call.From(ctx).Namespace)
	if f.ScopeType != nil {
		where.And("scope_type = ?", *f.ScopeType)
	}
	if f.ScopeID != nil {
		where.And("scope_id = ?", *f.ScopeID)
	}
	where.If(f.ParentID != uuid.Nil, "parent_id = ?", store.ID(f.ParentID))
	if f.Exhausted != nil {
		where.And("exhausted = ?", store.Bit(*f.Exhausted))
	}
	where.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
	var list []budget.Budget
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		list, err = read(q, "WHERE "+where.String()+" ORDER BY created_at DESC, id DESC LIMIT ?", where.Args(limit+1)...)
		return err
	})
	return page.Of(list, limit, func(b budget.Budget) page.Cursor { return page.After(b.CreatedAt, b.ID) }), err
}

// change makes one change of a budget of the caller's namespace. It returns CodeNotFound, and CodeRevisionMismatch when the caller has
// read another revision than the present one.
func (r *Repo) change(ctx context.Context, id uuid.UUID, expected *int64, do func(tx *store.Tx, b budget.Budget) (budget.Change, error)) (budget.Budget, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *budget.Budget) error {
		b, err := find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		tx.Later()
		if err := fault.Expect("Budget "+id.String(), expected, b.Revision); err != nil {
			return err
		}
		c, err := do(tx, b)
		if err != nil {
			return err
		}
		*out = c.Budget
		tx.Refer(id)
		return r.save(tx, b, c)
	}, store.Reload(r.Budget))
}

// Patch changes a budget. It also returns the refusals of [budget.Budget.Patch].
func (r *Repo) Patch(ctx context.Context, id uuid.UUID, expected *int64, p budget.Patch) (budget.Budget, error) {
	return r.change(ctx, id, expected, func(tx *store.Tx, b budget.Budget) (budget.Change, error) { return b.Patch(p, tx.Now()) })
}

// TopUp raises hard limits. It also returns the refusals of [budget.Budget.TopUp].
func (r *Repo) TopUp(ctx context.Context, id uuid.UUID, dimensions map[string]int64) (budget.Budget, error) {
	return r.change(ctx, id, nil, func(tx *store.Tx, b budget.Budget) (budget.Change, error) { return b.TopUp(dimensions, tx.Now()) })
}

// Reset begins a new period.
func (r *Repo) Reset(ctx context.Context, id uuid.UUID) (budget.Budget, error) {
	return r.change(ctx, id, nil, func(tx *store.Tx, b budget.Budget) (budget.Change, error) { return b.Reset(true, tx.Now()), nil })
}

// Delete deletes a budget: what is attached to it is limited by it no more. It returns CodeNotFound, CodeRevisionMismatch, and
// CodeBudgetInUse while it is the parent of others.
func (r *Repo) Delete(ctx context.Context, id uuid.UUID, expected *int64) error {
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		b, err := find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := fault.Expect("Budget "+id.String(), expected, b.Revision); err != nil {
			return err
		}
		var children int64
		if err := tx.Get(&children, `SELECT count(*) FROM budgets WHERE parent_id = ?`, store.ID(id)); err != nil {
			return fmt.Errorf("count what is below budget %s: %w", id, err)
		}
		deleted, err := b.Deleted(children)
		if err != nil {
			return err
		}
		if err := r.refill(tx, id); err != nil {
			return err
		}
		for _, statement := range []string{`DELETE FROM budget_reservations WHERE budget_id = ?`, `DELETE FROM budget_ledger WHERE via_id = ?`} {
			if _, err := tx.Exec(statement, store.ID(id)); err != nil {
				return fmt.Errorf("drop the entries of budget %s: %w", id, err)
			}
		}
		if err := tx.ExecOne(`DELETE FROM budgets WHERE id = ?`, store.ID(id)); err != nil {
			return fmt.Errorf("delete budget %s: %w", id, err)
		}
		tx.Emit(deleted)
		return r.executions.ReopenAll(tx, id)
	})
}

// Attach returns budgets of a namespace with their ancestors, in the order of their ids. It returns CodeNotFound.
func (r *Repo) Attach(q *store.Queries, namespace string, ids []uuid.UUID) ([]uuid.UUID, error) {
	var all []uuid.UUID
	for _, id := range ids {
		if slices.Contains(all, id) {
			continue
		}
		chain, err := chainOf(q, namespace, id)
		if err != nil {
			return nil, err
		}
		all = append(all, chain...)
	}
	slices.SortFunc(all, store.ByID[uuid.UUID])
	return slices.Compact(all), nil
}

// chainOf returns a budget and those above it. It returns CodeNotFound.
func chainOf(q *store.Queries, namespace string, id uuid.UUID) ([]uuid.UUID, error) {
	var chain []uuid.UUID
	for id != uuid.Nil && len(chain) <= budget.MaxDepth {
		var parent store.ID
		if err := q.Find(&parent, "budget", id, `SELECT parent_id FROM budgets WHERE id = ? AND namespace = ?`, store.ID(id), namespace); err != nil {
			return nil, err
		}
		chain = append(chain, id)
		id = uuid.UUID(parent)
	}
	return chain, nil
}

// Exhausted says how many budgets have nothing left of a limited dimension.
func (r *Repo) Exhausted(ctx context.Context) (n int64, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error { return q.Get(&n, `SELECT count(*) FROM budgets WHERE exhausted = 1`) })
	return n, err
}
