package graph

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// A graph is checked as a whole, and written in one transaction, or, when it is large, in several: then nobody sees what is
// written until the last one, which shows it all.

// fits says whether one transaction writes so much of a graph.
func (r *Repo) fits(nodes, links int) bool { return nodes <= r.cfg.Batch && links <= 5*r.cfg.Batch }

// Create makes a flow with its graph. It returns the refusals of [flow.New] and [graph.NewPlan].
func (r *Repo) Create(ctx context.Context, in flow.Create, nodes []graph.Node) (graph.Creation, error) {
	namespace := call.From(ctx).Namespace
	reload := store.Reload(func(ctx context.Context, old createdRef) (graph.Creation, error) {
		made, _, err := r.created(ctx, namespace, old.ID)
		made.Existing = false
		return made, err
	})
	return store.Checked(ctx, r.store, func() (graph.Creation, error) { return r.createOnce(ctx, in, nodes, reload) }, reload)
}

func (r *Repo) createOnce(ctx context.Context, in flow.Create, nodes []graph.Node, reload store.Option) (graph.Creation, error) {
	namespace := call.From(ctx).Namespace
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
	} else if made, found, err := r.created(ctx, namespace, in.ID); found || err != nil {
		return made, err
	}
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
	var made graph.Creation
	err = r.write(ctx, &b, func(last func(tx *store.Tx) error) (err error) {
		made, err = store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Creation) error {
			made, err := r.flows.CreateIn(tx, in)
			if err != nil {
				return err
			}
			if made.Existing {
				out.Existing = true
				return nil
			}
			if err := r.grow(tx, &b, nil); err != nil {
				return err
			}
			if err := last(tx); err != nil {
				return err
			}
			tx.Refer(createdRef{in.ID})
			tx.Final(func() (err error) {
				out.Built = b.built()
				out.Flow, err = r.flows.Find(&tx.Queries, namespace, in.ID)
				return err
			})
			return nil
		}, reload)
		return err
	})
	if made.Existing && err == nil { // made at the same time
		made, _, err = r.created(ctx, namespace, in.ID)
	}
	return made, err
}

type createdRef struct{ ID uuid.UUID }

// created returns the flow that has an id already, with its graph. It returns CodeAlreadyExists for one of another namespace, whose
// members are nobody's business here.
func (r *Repo) created(ctx context.Context, namespace string, id uuid.UUID) (made graph.Creation, found bool, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		f, err := r.flows.Find(q, namespace, id)
		if fault.CodeOf(err) == fault.CodeNotFound {
			return free(q, id)
		}
		if err != nil {
			return err
		}
		nodes, err := r.executions.Nodes(q, id)
		if err != nil {
			return err
		}
		made, found = graph.Creation{Flow: f, Existing: true, Built: graph.Built{GraphRevision: f.GraphRevision, Executions: map[string]uuid.UUID{}}}, true
		for i := range nodes {
			if nodes[i].Key != "" {
				made.Executions[nodes[i].Key] = nodes[i].ID
			}
		}
		return nil
	})
	return made, found, err
}

// free refuses the id of a flow, of whatever namespace.
func free(q *store.Queries, id uuid.UUID) error {
	var n int
	if err := q.Get(&n, `SELECT count(*) FROM flows WHERE id = ?`, store.ID(id)); err != nil {
		return fmt.Errorf("look for flow %s: %w", id, err)
	}
	if n > 0 {
		return fault.New(fault.CodeAlreadyExists, "The id %s is taken. Choose another one.", id)
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
	f, err := r.head(ctx, call.From(ctx).Namespace, flowID)
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

func (r *Repo) head(ctx context.Context, namespace string, id uuid.UUID) (f flow.Flow, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		f, err = r.flows.Find(q, namespace, id)
		return err
	})
	return f, err
}

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

// write writes a graph: what does not fit into the last transaction before it. last runs that one, which locks the flow first.
func (r *Repo) write(ctx context.Context, b *draft, last func(show func(tx *store.Tx) error) error) error {
	if b.build == uuid.Nil {
		return last(func(tx *store.Tx) error {
			if err := r.insert(tx, b, 0, len(b.made)); err != nil {
				return err
			}
			return r.show(tx, b)
		})
	}
	unkeyed := call.From(ctx) // what is written here is nobody's answer yet
	unkeyed.Key = nil
	err := r.writeHidden(call.With(ctx, unkeyed), b)
	if err == nil {
		err = last(func(tx *store.Tx) error {
			n, err := tx.Exec(`DELETE FROM builds WHERE id = ? AND touched_at > 0`, store.ID(b.build))
			if err != nil || n == 0 {
				return cmp.Or(err, errSlow)
			}
			return r.show(tx, b)
		})
	}
	if err != nil {
		r.abandon(context.WithoutCancel(ctx), b.build)
	}
	return err
}

// insert writes some nodes with what they depend on.
func (r *Repo) insert(tx *store.Tx, b *draft, from, to int) error {
	if err := r.executions.Insert(tx, b.made[from:to], b.build); err != nil {
		return err
	}
	var edges, groups [][]any
	for i := from; i < to; i++ {
		n := &b.plan.Nodes[i]
		if len(n.Needs) == 0 {
			continue
		}
		g := graph.NewGroup(b.made[i].Execution.ID, n.Policy, len(n.Needs))
		groups = append(groups, groupValues(&g, b.flowID, b.build))
	}
	for _, l := range b.links(from, to) {
		e := graph.Edge{ID: store.NewID(), FlowID: b.flowID, Upstream: l.Member, Downstream: b.made[l.To].Execution.ID, PassResult: l.PassResult,
			State: graph.Pending, CreatedAt: b.now}
		if l.From >= 0 {
			e.Upstream = b.made[l.From].Execution.ID
		}
		edges = append(edges, edgeValues(&e))
	}
	if _, err := tx.Insert(insertGroups, groups, ""); err != nil {
		return fmt.Errorf("insert groups: %w", err)
	}
	if _, err := tx.Insert(insertEdges, edges, ""); err != nil {
		return fmt.Errorf("insert edges: %w", err)
	}
	return nil
}

// links returns the links that lead to some nodes. Those of a plan are in the order of the nodes that they lead to.
func (b *draft) links(from, to int) []graph.Link {
	at := func(node int) int {
		return sort.Search(len(b.plan.Links), func(i int) bool { return b.plan.Links[i].To >= node })
	}
	return b.plan.Links[at(from):at(to)]
}

// show lets everybody see a graph that was written: it is counted and told, what depends on members that have ended is decided,
// and what waits for nothing may be claimed.
func (r *Repo) show(tx *store.Tx, b *draft) error {
	states := map[execution.Public]int{}
	for i := range b.made {
		states[b.made[i].Execution.Public()]++
	}
	for state, n := range states {
		r.flows.Moved(tx, b.flowID, "", state, n)
	}
	r.executions.Tell(tx, b.made)
	tx.Emit(b.owner.Event(event.FlowGraphChanged, struct {
		Executions    int   `json:"executions"`
		Edges         int   `json:"edges"`
		GraphRevision int64 `json:"graph_revision"`
		NodeCount     int64 `json:"node_count"`
		EdgeCount     int64 `json:"edge_count"`
	}{len(b.made), len(b.plan.Links), b.owner.GraphRevision, b.owner.NodeCount, b.owner.EdgeCount}))
	if err := r.resolveEnded(tx, b.flowID, upstreams(b.plan.Links), true); err != nil {
		return err
	}
	if b.build == uuid.Nil || b.owner.Status == flow.Created {
		return nil
	}
	return r.flows.StartMembers(tx, b.flowID)
}

// upstreams returns the members that links lead out of and that there were before, each once.
func upstreams(links []graph.Link) []uuid.UUID {
	seen := map[uuid.UUID]bool{}
	var ids []uuid.UUID
	for _, l := range links {
		if l.From < 0 && !seen[l.Member] {
			seen[l.Member] = true
			ids = append(ids, l.Member)
		}
	}
	return ids
}

// resolveRest is the detail of what is left to resolve.
type resolveRest struct {
	Fresh bool `json:"fresh,omitempty"`
}

// resolveEnded decides the pending edges that lead out of members which have ended already, fresh only those to members
// that were never replayed.
func (r *Repo) resolveEnded(tx *store.Tx, flowID uuid.UUID, ids []uuid.UUID, fresh bool) error {
	for _, id := range ids {
		var outcome string
		err := tx.Get(&outcome, `SELECT terminal_outcome FROM executions WHERE id = ?`, store.ID(id))
		if err != nil {
			return fmt.Errorf("look how execution %s stands: %w", id, err)
		}
		if execution.Outcome(outcome) == execution.OutcomeNone {
			continue
		}
		rest, err := r.resolve(tx, flowID, id, execution.Outcome(outcome), fresh)
		if err == nil && rest {
			err = backlog.Put(tx, backlog.Item{Kind: backlog.Resolve, FlowID: flowID, ExecutionID: id, Detail: resolveRest{fresh}, Less: fresh})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
