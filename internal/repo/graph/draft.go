package graph

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// draft is a graph that was checked and is about to be written.
type draft struct {
	flowID uuid.UUID
	plan   graph.Plan
	made   []execution.Change
	now    time.Time
	owner  flow.Flow
	build  uuid.UUID // uuid.Nil when one transaction writes it
}

// draft checks a graph against the flow as it is now; f is nil for one that is about to be made. paused says that the members wait
// for its start.
func (r *Repo) draft(ctx context.Context, flowID uuid.UUID, f *flow.Flow, nodes []graph.Node, paused bool, pointer string) (draft, error) {
	c := call.From(ctx)
	links := 0
	for i := range nodes {
		links += len(nodes[i].Needs)
	}
	b := draft{flowID: flowID, now: r.store.Now(), made: make([]execution.Change, len(nodes))}
	large := !r.fits(len(nodes), links)
	chosen := make([]uuid.UUID, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		chosen[i] = n.ID
		n.FlowID, n.Namespace, n.Creator = flowID, c.Namespace, c.Actor
		n.Blocked, n.Paused = len(n.Needs) > 0, paused || large
		if n.Err == nil {
			b.made[i], n.Err = execution.New(n.Create, b.now)
		}
		if n.ID == uuid.Nil {
			b.made[i].Execution.ID = store.NewID()
		}
	}
	members, taken, err := r.names(ctx, flowID, nodes, chosen, f == nil)
	if err != nil {
		return b, err
	}
	if b.plan, err = graph.NewPlan(nodes, members, taken, pointer); err != nil {
		return b, err
	}
	for i := range b.made { // with the ids that were given to them just now
		for j := range b.made[i].Events {
			b.made[i].Events[j].ExecutionID = b.made[i].Execution.ID
		}
	}
	if large {
		b.build = store.NewID()
	}
	return b, nil
}

// limits returns what budgets and quotas mean for members.
func (r *Repo) limits(ctx context.Context, budgets, quotas []uuid.UUID) (l *execution.Limits, err error) {
	if len(budgets)+len(quotas) == 0 {
		return nil, nil
	}
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		l, err = r.executions.LimitsOf(q, call.From(ctx).Namespace, budgets, quotas)
		return err
	})
	return l, err
}

// limit looks up the budgets and quotas of nodes, which those of their flow come on top of. Most nodes have the same ones.
func (r *Repo) limit(ctx context.Context, nodes []graph.Node, flow *execution.Limits) error {
	known := map[string]*execution.Limits{}
	for i := range nodes {
		n := &nodes[i]
		name := fmt.Sprint(n.BudgetIDs, n.QuotaIDs)
		l, seen := known[name]
		if !seen {
			var err error
			if l, err = r.limits(ctx, n.BudgetIDs, n.QuotaIDs); err != nil {
				return err
			}
			known[name] = l
		}
		if n.Limits = l.Under(flow); len(n.Estimate) > 0 {
			n.Limits = n.Limits.Expecting(n.Estimate)
		}
	}
	return nil
}

// names finds the members that nodes name, and what is taken of the keys and ids that they want.
func (r *Repo) names(ctx context.Context, flowID uuid.UUID, nodes []graph.Node, chosen []uuid.UUID, fresh bool) (members map[string]uuid.UUID, taken map[string]bool, err error) {
	wanted := graph.Unknown(nodes)
	keys := make([]string, 0, len(nodes))
	var ids []uuid.UUID
	for i := range nodes {
		if nodes[i].Key != "" {
			keys = append(keys, nodes[i].Key)
		}
		if chosen[i] != uuid.Nil {
			ids = append(ids, chosen[i])
		}
	}
	members, taken = map[string]uuid.UUID{}, map[string]bool{}
	if fresh { // a flow that there is not yet has no members
		wanted, keys = nil, nil
	}
	if len(wanted)+len(keys)+len(ids) == 0 {
		return members, taken, nil
	}
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		if members, err = r.executions.Named(q, flowID, wanted); err != nil {
			return err
		}
		found, err := r.executions.Named(q, flowID, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if id, ok := found[key]; ok && id.String() != key {
				taken[key] = true
			}
		}
		gone, err := r.executions.Taken(q, ids)
		for id := range gone {
			taken[id.String()] = true
		}
		return err
	})
	return members, taken, err
}

func (b *draft) built() graph.Built {
	out := graph.Built{GraphRevision: b.owner.GraphRevision, Executions: make(map[string]uuid.UUID, len(b.made))}
	for i := range b.made {
		if key := b.made[i].Execution.Key; key != "" {
			out.Executions[key] = b.made[i].Execution.ID
		}
	}
	return out
}

// links returns the links that lead to some nodes. Those of a plan are in the order of the nodes that they lead to.
func (b *draft) links(from, to int) []graph.Link {
	at := func(node int) int {
		return sort.Search(len(b.plan.Links), func(i int) bool { return b.plan.Links[i].To >= node })
	}
	return b.plan.Links[at(from):at(to)]
}
