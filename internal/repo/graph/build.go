package graph

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// A graph is checked as a whole, and written in one transaction, or, when it is large, in several: then nobody sees what is
// written until the last one, which shows it all.

// fits says whether one transaction writes so much of a graph.
func (r *Repo) fits(nodes, links int) bool { return nodes <= r.cfg.Batch && links <= 5*r.cfg.Batch }

// Create makes a flow with its graph. The same id again gets what is there, and nothing changes. It returns the refusals of [flow.New] and
// [graph.NewPlan].
func (r *Repo) Create(ctx context.Context, in flow.Create, nodes []graph.Node) (graph.Creation, error) {
	reload := store.Reload(func(ctx context.Context, old createdRef) (made graph.Creation, err error) {
		err = r.store.Read(ctx, func(q *store.Queries) (err error) {
			made, err = r.created(q, call.From(ctx).Namespace, old.ID)
			return err
		})
		made.Existing = old.Existing
		return made, err
	})
	return store.Checked(ctx, r.store, func() (graph.Creation, error) { return r.createOnce(ctx, in, nodes, reload) }, reload)
}

// createOnce is what [store.Once] is for what takes many transactions.
func (r *Repo) createOnce(ctx context.Context, in flow.Create, nodes []graph.Node, reload store.Option) (graph.Creation, error) {
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
		return r.create(ctx, in, nodes, reload)
	}
	found, err := r.existing(ctx, in.ID, reload)
	if fault.CodeOf(err) != fault.CodeNotFound {
		return found, err
	}
	made, err := r.create(ctx, in, nodes, reload)
	if _, refused := errors.AsType[*fault.Error](err); !refused {
		return made, err
	}
	found, missing := r.existing(ctx, in.ID, reload) // the same create at the same time takes the ids and keys of its members, too
	if missing == nil {
		return found, nil
	}
	return made, err
}

func (r *Repo) create(ctx context.Context, in flow.Create, nodes []graph.Node, reload store.Option) (made graph.Creation, err error) {
	limits, err := r.limits(ctx, in.BudgetIDs, in.QuotaIDs)
	if err != nil {
		return graph.Creation{}, err
	}
	if err := r.limit(ctx, nodes, limits); err != nil {
		return graph.Creation{}, err
	}
	b, err := r.draft(ctx, in.ID, nil, nodes, !in.Start, "/graph/executions")
	if err != nil {
		return graph.Creation{}, err
	}
	if err := r.executions.Prepare(ctx, b.made, nil); err != nil {
		return graph.Creation{}, err
	}
	err = r.write(ctx, &b, func(last func(tx *store.Tx) error) (err error) {
		made, err = store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Creation) error {
			made, err := r.flows.CreateIn(tx, in)
			if err != nil {
				return err
			}
			if made.Existing {
				return store.Taken(in.ID)
			}
			if err := r.grow(tx, &b, nil); err != nil {
				return err
			}
			if err := last(tx); err != nil {
				return err
			}
			tx.Refer(createdRef{in.ID, false})
			tx.Final(func() (err error) {
				out.Built = b.built()
				out.Flow, err = r.flows.Find(&tx.Queries, tx.Call.Namespace, in.ID)
				return err
			})
			return nil
		}, reload)
		return err
	})
	return made, err
}

// createdRef stands for a flow with its graph in an answer that was not kept.
type createdRef struct {
	ID       uuid.UUID
	Existing bool
}

// existing answers a create with the flow that has its id already, with its graph, in a transaction, which takes the Idempotency-Key. It
// returns CodeNotFound, and CodeAlreadyExists for one of another namespace, whose members are nobody's business here.
func (r *Repo) existing(ctx context.Context, id uuid.UUID, reload store.Option) (graph.Creation, error) {
	err := r.store.Read(ctx, func(q *store.Queries) error {
		_, err := r.flows.Find(q, call.From(ctx).Namespace, id)
		if fault.CodeOf(err) == fault.CodeNotFound {
			err = cmp.Or(free(q, id), err)
		}
		return err
	})
	if err != nil {
		return graph.Creation{}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Creation) (err error) {
		*out, err = r.created(&tx.Queries, tx.Call.Namespace, id)
		tx.Refer(createdRef{id, true})
		return err
	}, reload)
}

// created returns a flow with its graph. It returns CodeNotFound.
func (r *Repo) created(q *store.Queries, namespace string, id uuid.UUID) (graph.Creation, error) {
	f, err := r.flows.Find(q, namespace, id)
	if err != nil {
		return graph.Creation{}, err
	}
	nodes, err := r.executions.Nodes(q, id)
	if err != nil {
		return graph.Creation{}, err
	}
	made := graph.Creation{Flow: f, Existing: true, Built: graph.Built{GraphRevision: f.GraphRevision, Executions: map[string]uuid.UUID{}}}
	for i := range nodes {
		if nodes[i].Key != "" {
			made.Executions[nodes[i].Key] = nodes[i].ID
		}
	}
	return made, nil
}

// free refuses the id of a flow, of whatever namespace.
func free(q *store.Queries, id uuid.UUID) error {
	var n int
	if err := q.Get(&n, `SELECT count(*) FROM flows WHERE id = ?`, store.ID(id)); err != nil {
		return fmt.Errorf("look for flow %s: %w", id, err)
	}
	if n > 0 {
		return store.Taken(id)
	}
	return nil
}

// Build adds members and edges to a flow. holder is the fence of a member whose worker asks for it, nil for an operator. A dry run
// writes nothing. It returns CodeNotFound, CodeAlreadyTerminal, the refusals of [graph.NewPlan], and those of the fence.
func (r *Repo) Build(ctx context.Context, flowID uuid.UUID, nodes []graph.Node, holder *execution.Fence, dryRun bool) (graph.Built, error) {
	reload := store.Reload(store.Kept[graph.Built])
	return store.Checked(ctx, r.store, func() (graph.Built, error) { return r.buildOnce(ctx, flowID, nodes, holder, dryRun, reload) }, reload)
}

func (r *Repo) buildOnce(ctx context.Context, flowID uuid.UUID, nodes []graph.Node, holder *execution.Fence, dryRun bool, reload store.Option) (graph.Built, error) {
	f, err := r.flows.Flow(ctx, flowID)
	if err != nil {
		return graph.Built{}, err
	}
	if err := open(&f); err != nil {
		return graph.Built{}, err
	}
	if err := r.limit(ctx, nodes, f.Limits); err != nil {
		return graph.Built{}, err
	}
	b, err := r.draft(ctx, flowID, &f, nodes, f.Status == flow.Created, "/executions")
	if err != nil {
		return graph.Built{}, err
	}
	if dryRun {
		return r.dryRun(ctx, &b, holder)
	}
	if err := r.executions.Prepare(ctx, b.made, r.allowed(ctx, &b, holder)); err != nil {
		return graph.Built{}, err
	}
	var out graph.Built
	err = r.write(ctx, &b, func(last func(tx *store.Tx) error) (err error) {
		out, err = store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Built) error {
			if err := r.grow(tx, &b, holder); err != nil {
				return err
			}
			if err := last(tx); err != nil {
				return err
			}
			*out = b.built()
			tx.Refer(*out)
			return nil
		}, reload)
		return err
	})
	return out, err
}

// grow counts what a draft adds to its flow, which it locks, and checks who asks for it.
func (r *Repo) grow(tx *store.Tx, b *draft, holder *execution.Fence) (err error) {
	if b.owner, err = r.flows.Grow(tx, b.flowID, len(b.made), len(b.plan.Links)); err != nil {
		return err
	}
	return r.allow(tx, b.flowID, holder)
}

// allow checks that a member's worker holds its lease still; an operator, who has no fence, needs none.
func (r *Repo) allow(tx *store.Tx, flowID uuid.UUID, holder *execution.Fence) error {
	if holder == nil {
		return nil
	}
	return r.executions.Holder(tx, flowID, *holder)
}

// dryRunDone rolls back what was only tried.
type dryRunDone struct{ built graph.Built }

func (*dryRunDone) Error() string { return "only tried" }

// dryRun checks what a build would check in its transaction.
func (r *Repo) dryRun(ctx context.Context, b *draft, holder *execution.Fence) (graph.Built, error) {
	var out graph.Built
	err := store.Do(ctx, r.store, func(tx *store.Tx) error {
		if err := r.grow(tx, b, holder); err != nil {
			return err
		}
		return &dryRunDone{b.built()}
	})
	if done, ok := err.(*dryRunDone); ok { //nolint:errorlint // our own, which nothing wraps
		out, err = done.built, nil
	}
	return out, err
}

// allowed asks beforehand what the transaction of a build will ask.
func (r *Repo) allowed(ctx context.Context, b *draft, holder *execution.Fence) func() error {
	return func() error {
		_, err := r.dryRun(ctx, b, holder)
		return err
	}
}
