package graph

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Stage makes one member depend on another: the downstream waits at once, unless the upstream has ended, which decides the edge on
// the spot. In this order it returns CodeSelfReferencingEdge, CodeNotFound, the refusals of the fence, CodeAlreadyExists (for an id that
// has another content), CodeAlreadyTerminal, CodeStaleGraphRevision, CodeExecutionNotInFlow, CodeAlreadyExists (for the pair),
// CodeChildAlreadyStarted and CodeCycleDetected. reference: flows-streams-budgets.md 2.3; model.md "The graph of a flow".
func (r *Repo) Stage(ctx context.Context, in graph.Stage) (graph.Staged, error) {
	if in.Upstream == in.Downstream {
		return graph.Staged{}, fault.New(fault.CodeSelfReferencingEdge, "Execution %s cannot depend on itself. Name two members.", in.Upstream).With("execution_id", in.Upstream)
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Staged) (err error) {
		*out, err = r.stage(tx, in)
		tx.Refer(out.Edge)
		return err
	}, store.Reload(func(ctx context.Context, old graph.Edge) (graph.Staged, error) {
		e, err := r.Edge(ctx, old.FlowID, old.ID)
		if err != nil {
			return graph.Staged{}, err
		}
		f, err := r.flows.Flow(ctx, old.FlowID)
		return graph.Staged{Edge: e, GraphRevision: f.GraphRevision}, err
	}))
}

func (r *Repo) stage(tx *store.Tx, in graph.Stage) (graph.Staged, error) {
	f, err := r.flows.Head(tx, in.FlowID)
	if err != nil {
		return graph.Staged{}, err
	}
	if err := r.allow(tx, f.ID, in.Holder); err != nil {
		return graph.Staged{}, err
	}
	if old, found, err := staged(&tx.Queries, &in.Edge); err != nil || found {
		return graph.Staged{Edge: old, GraphRevision: f.GraphRevision, Existing: true}, err
	}
	if err := open(&f); err != nil {
		return graph.Staged{}, err
	}
	if in.Expected != nil && *in.Expected != f.GraphRevision {
		return graph.Staged{}, fault.New(fault.CodeStaleGraphRevision, "The graph of flow %s has revision %d and not %d. Read the flow again, and repeat with its graph_revision.",
			f.ID, f.GraphRevision, *in.Expected).With("expected", *in.Expected).With("actual", f.GraphRevision)
	}
	up, down, err := r.ends(tx, &f, in.Upstream, in.Downstream)
	if err != nil {
		return graph.Staged{}, err
	}
	if err := mayStage(&tx.Queries, up, down, &in.Edge); err != nil {
		return graph.Staged{}, err
	}
	e := in.Edge
	if e.ID == uuid.Nil {
		e.ID = store.NewID()
	}
	e.State, e.CreatedAt = graph.StateOf(up.Outcome), tx.Now()
	if e.State != graph.Pending {
		e.ResolvedAt = tx.Now()
	}
	if f, err = r.flows.Grow(tx, f.ID, 0, 1); err != nil {
		return graph.Staged{}, err
	}
	tx.Because(tx.Emit(f.Event(event.FlowEdgeStaged, struct {
		EdgeID        uuid.UUID   `json:"edge_id"`
		Upstream      uuid.UUID   `json:"upstream_execution_id"`
		Downstream    uuid.UUID   `json:"downstream_execution_id"`
		PassResult    bool        `json:"pass_result"`
		State         graph.State `json:"state"`
		GraphRevision int64       `json:"graph_revision"`
		EdgeCount     int64       `json:"edge_count"`
	}{e.ID, e.Upstream, e.Downstream, e.PassResult, e.State, f.GraphRevision, f.EdgeCount})))
	defer tx.Because(0)
	if _, err := tx.Insert(insertEdges, [][]any{edgeValues(&e)}, ""); err != nil {
		return graph.Staged{}, fmt.Errorf("insert edge: %w", err)
	}
	return graph.Staged{Edge: e, GraphRevision: f.GraphRevision}, r.depend(tx, &f, down, up.Outcome)
}

// staged finds an edge that says the same: by its id, or by its ends when it was given none.
func staged(q *store.Queries, e *graph.Edge) (graph.Edge, bool, error) {
	query, args := selectEdges+" WHERE flow_id = ? AND id = ?", []any{store.ID(e.FlowID), store.ID(e.ID)}
	if e.ID == uuid.Nil {
		query, args = selectEdges+" WHERE downstream_id = ? AND upstream_id = ?", []any{store.ID(e.Downstream), store.ID(e.Upstream)}
	}
	var found edgeRow
	err := q.Get(&found, query, args...)
	switch {
	case store.NotFound(err):
		return graph.Edge{}, false, nil
	case err != nil:
		return graph.Edge{}, false, fmt.Errorf("look for edge: %w", err)
	}
	old := found.edge()
	if !old.Same(e) {
		return graph.Edge{}, false, exists(&old)
	}
	return old, true, nil
}

func exists(old *graph.Edge) error {
	return fault.New(fault.CodeAlreadyExists, "Edge %s leads from execution %s to %s, with pass_result %t. Choose another id for another edge.", old.ID, old.Upstream, old.Downstream, old.PassResult).
		With("edge_id", old.ID)
}

func open(f *flow.Flow) error {
	if f.Status.Terminal() {
		return fault.New(fault.CodeAlreadyTerminal, "Flow %s is %s, and its graph does not change any more.", f.ID, f.Status).With("current_status", f.Status)
	}
	return nil
}

// ends reads and locks two members of a flow.
func (r *Repo) ends(tx *store.Tx, f *flow.Flow, up, down uuid.UUID) (u, d *execution.Execution, err error) {
	list, err := r.executions.Members(tx, f.ID, []uuid.UUID{up, down})
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		switch list[i].ID {
		case up:
			u = &list[i]
		case down:
			d = &list[i]
		}
	}
	for id, found := range map[uuid.UUID]bool{up: u != nil, down: d != nil} {
		if !found {
			return nil, nil, notMember(f.ID, id)
		}
	}
	return u, d, nil
}

func notMember(flowID, id uuid.UUID) error {
	return fault.New(fault.CodeExecutionNotInFlow, "Execution %s is not a member of flow %s. Add it first.", id, flowID).With("execution_id", id)
}

// mayStage refuses an edge that does not go into the graph.
func mayStage(q *store.Queries, up, down *execution.Execution, e *graph.Edge) error {
	pair := graph.Edge{FlowID: e.FlowID, Upstream: e.Upstream, Downstream: e.Downstream, PassResult: e.PassResult}
	old, found, err := staged(q, &pair)
	if err != nil {
		return err
	}
	if found {
		return exists(&old)
	}
	if down.Started() {
		return fault.New(fault.CodeChildAlreadyStarted, "Execution %s is %s and has started: it gets no further dependencies. Add another member.", down.ID, down.Public()).
			With("execution_id", down.ID).With("public_state", down.Public())
	}
	path, err := path(q, down, up)
	if err != nil || path == nil {
		return err
	}
	return fault.New(fault.CodeCycleDetected, "The edge would close a cycle, in which all wait for one another: %s. Leave it out.", graph.PathText(path)).With("path", path)
}

// depend makes a member wait for one more upstream, which may have ended.
func (r *Repo) depend(tx *store.Tx, f *flow.Flow, down *execution.Execution, outcome execution.Outcome) error {
	g, found, err := findGroup(&tx.Queries, down.ID)
	if err != nil {
		return err
	}
	if !found {
		g = graph.NewGroup(down.ID, graph.DefaultPolicy(), 0)
		if _, err := tx.Insert(insertGroups, [][]any{groupValues(&g, f.ID, uuid.Nil)}, ""); err != nil {
			return fmt.Errorf("insert group: %w", err)
		}
	}
	before := g
	g.Add(tx.Now())
	if outcome != execution.OutcomeNone {
		g.Resolve(outcome, tx.Now())
	}
	if g.State == before.State { // it was let go by those that there were
		g.FiredAt = before.FiredAt
	}
	if err := saveGroup(tx, &g); err != nil {
		return err
	}
	switch {
	case g.State != graph.Pending && g.State == before.State:
		return nil
	case g.State != graph.Pending:
		return r.fire(tx, f.ID, ownerOf(f), []graph.Group{g})
	}
	if c, changed := down.Block(); changed {
		return r.executions.Save(tx, down, c)
	}
	return nil
}

// Apply returns an edge and how many of those to its downstream are pending. It returns CodeNotFound.
func (r *Repo) Apply(ctx context.Context, flowID, id uuid.UUID) (graph.Applied, error) {
	look := func(q *store.Queries) (out graph.Applied, err error) {
		if out.Edge, err = r.edge(q, call.From(ctx).Namespace, flowID, id); err != nil {
			return out, err
		}
		return out, q.Get(&out.Unsatisfied, `SELECT count(*) FROM edges WHERE downstream_id = ? AND state = 'pending'`, store.ID(out.Downstream))
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Applied) (err error) {
		*out, err = look(&tx.Queries)
		return err
	})
}

// SetPolicy says when the dependencies of a member are satisfied, before it has any. It returns CodeNotFound, CodeAlreadyTerminal,
// CodeExecutionNotInFlow and CodePolicyFixed. reference: flows-streams-budgets.md 2.5.
func (r *Repo) SetPolicy(ctx context.Context, flowID, member uuid.UUID, p graph.Policy) (graph.Group, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Group) error {
		f, err := r.flows.Head(tx, flowID)
		if err != nil {
			return err
		}
		g, found, err := findGroup(&tx.Queries, member)
		if err != nil {
			return err
		}
		list, err := r.executions.Members(tx, flowID, []uuid.UUID{member})
		switch {
		case err != nil:
			return err
		case len(list) == 1 && found && g.Policy == p:
			*out = g
			return nil
		}
		if err := open(&f); err != nil {
			return err
		}
		switch {
		case len(list) == 0:
			return notMember(flowID, member)
		case g.Edges > 0:
			return fault.New(fault.CodePolicyFixed, "Execution %s has %d dependencies already: when they are satisfied was said before the first of them, and stays.", member, g.Edges).With("kind", g.Kind)
		}
		g = graph.NewGroup(member, p, 0)
		*out = g
		if _, err := tx.Insert(insertGroups, [][]any{groupValues(&g, flowID, uuid.Nil)},
			` ON CONFLICT (execution_id) DO UPDATE SET kind = excluded.kind, k = excluded.k, on_satisfied = excluded.on_satisfied`); err != nil {
			return fmt.Errorf("set policy: %w", err)
		}
		tx.Emit(f.Event(event.FlowGroupSet, struct {
			ExecutionID uuid.UUID         `json:"execution_id"`
			Kind        graph.Kind        `json:"kind"`
			K           int               `json:"k,omitempty"`
			OnSatisfied graph.OnSatisfied `json:"on_satisfied"`
		}{member, p.Kind, p.K, p.OnSatisfied}))
		return nil
	})
}

// path returns the names of the members on the way from one to another, and from there back to the first, nil when there is no way.
func path(q *store.Queries, from, to *execution.Execution) ([]string, error) {
	var reached int
	if err := q.Get(&reached, `SELECT count(*) FROM (SELECT 1 FROM edges WHERE upstream_id = ? LIMIT 1) first`, store.ID(from.ID)); err != nil || reached == 0 {
		return nil, err
	}
	err := q.Get(&reached, `WITH RECURSIVE reach (id) AS (SELECT downstream_id FROM edges WHERE upstream_id = ?
		UNION SELECT d.downstream_id FROM reach r JOIN edges d ON d.upstream_id = r.id) SELECT count(*) FROM reach WHERE id = ?`, store.ID(from.ID), store.ID(to.ID))
	if err != nil || reached == 0 {
		return nil, err
	}
	before := map[store.ID]store.ID{} // each member that was met, and where from
	for front := []store.ID{store.ID(from.ID)}; len(front) > 0; {
		var next []store.ID
		for some := range store.Chunks(front) {
			var found []edgeRow
			if err := q.Select(&found, selectEdges+" WHERE upstream_id IN ?", store.List(some)); err != nil {
				return nil, fmt.Errorf("follow the edges: %w", err)
			}
			for _, e := range found {
				if _, met := before[e.Downstream]; !met {
					before[e.Downstream] = e.Upstream
					next = append(next, e.Downstream)
				}
			}
		}
		front = next
		if _, met := before[store.ID(to.ID)]; met {
			break
		}
	}
	var way []store.ID
	for at := store.ID(to.ID); at != store.ID(from.ID); at = before[at] {
		way = append(way, at)
	}
	way = append(way, store.ID(from.ID))
	slices.Reverse(way)
	return namesOf(q, append(way, way[0]))
}

// namesOf returns the names of members: their keys, or ids.
func namesOf(q *store.Queries, ids []store.ID) ([]string, error) {
	keys := make(map[store.ID]string, len(ids))
	for chunk := range store.Chunks(ids) {
		var rows []struct {
			ID  store.ID   `db:"id"`
			Key store.Text `db:"key"`
		}
		if err := q.Select(&rows, "SELECT id, key FROM executions WHERE id IN ?", store.List(chunk)); err != nil {
			return nil, fmt.Errorf("name the members of a cycle: %w", err)
		}
		for _, row := range rows {
			keys[row.ID] = string(row.Key)
		}
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = cmp.Or(keys[id], uuid.UUID(id).String())
	}
	return names, nil
}
