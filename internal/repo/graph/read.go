package graph

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/build"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// shown is the condition that an edge does not lead to a part of a graph which is still being written.
var shown = `NOT EXISTS (SELECT 1 FROM edge_groups g WHERE g.execution_id = edges.downstream_id AND NOT ` + build.Shown("g") + `)`

// Graph returns the whole graph of a flow. It returns CodeNotFound.
func (r *Repo) Graph(ctx context.Context, flowID uuid.UUID) (graph.View, error) {
	var v graph.View
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		if v.Flow, err = r.flows.Find(q, call.From(ctx).Namespace, flowID); err != nil {
			return err
		}
		if v.Nodes, err = r.executions.Nodes(q, flowID); err != nil {
			return err
		}
		var edges []edgeRow
		if err := q.Select(&edges, selectEdges+" WHERE flow_id = ? AND "+shown+" ORDER BY id", store.ID(flowID)); err != nil {
			return fmt.Errorf("read the edges of flow %s: %w", flowID, err)
		}
		v.Edges = edgesOf(edges)
		var groups []groupRow
		if err := q.Select(&groups, "SELECT "+groupColumns+` FROM executions e JOIN edge_groups g ON g.execution_id = e.id
			WHERE e.flow_id = ? AND `+build.Shown("g")+` ORDER BY e.created_at, e.id`, store.ID(flowID)); err != nil {
			return fmt.Errorf("read the groups of flow %s: %w", flowID, err)
		}
		v.Groups = make([]graph.Group, len(groups))
		for i := range groups {
			v.Groups[i] = groups[i].group()
		}
		return nil
	})
	return v, err
}

func edgesOf(rows []edgeRow) []graph.Edge {
	edges := make([]graph.Edge, len(rows))
	for i := range rows {
		edges[i] = rows[i].edge()
	}
	return edges
}

// Edges lists the edges of a flow by their ids: all of them, those that lead out of from, or those that lead to to. It returns
// CodeNotFound.
func (r *Repo) Edges(ctx context.Context, flowID, from, to uuid.UUID, after page.Cursor, limit int) (page.Page[graph.Edge], error) {
	var list []graph.Edge
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := r.flows.Find(q, call.From(ctx).Namespace, flowID); err != nil {
			return err
		}
		where := store.NewWhere("flow_id = ?", store.ID(flowID))
		if from != uuid.Nil || to != uuid.Nil { // to be found by the index of an end, which is better than that of the flow
			where = store.NewWhere("CASE WHEN flow_id = ? THEN 1 END = 1", store.ID(flowID))
		}
		where.If(from != uuid.Nil, "upstream_id = ?", store.ID(from))
		where.If(to != uuid.Nil, "downstream_id = ?", store.ID(to))
		where.If(!after.IsZero(), "id > ?", store.ID(after.ID))
		var rows []edgeRow
		if err := q.Select(&rows, selectEdges+" WHERE "+where.String()+" AND "+shown+" ORDER BY id LIMIT ?", where.Args(limit+1)...); err != nil {
			return fmt.Errorf("list the edges of flow %s: %w", flowID, err)
		}
		list = edgesOf(rows)
		return nil
	})
	return page.Of(list, limit, func(e graph.Edge) page.Cursor { return page.Cursor{ID: e.ID} }), err
}

// Edge returns one edge. It returns CodeNotFound.
func (r *Repo) Edge(ctx context.Context, flowID, id uuid.UUID) (graph.Edge, error) {
	var e graph.Edge
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		e, err = r.edge(q, call.From(ctx).Namespace, flowID, id)
		return err
	})
	return e, err
}

func (r *Repo) edge(q *store.Queries, namespace string, flowID, id uuid.UUID) (graph.Edge, error) {
	if _, err := r.flows.Find(q, namespace, flowID); err != nil {
		return graph.Edge{}, err
	}
	var found edgeRow
	err := q.Find(&found, "edge", id, selectEdges+" WHERE flow_id = ? AND id = ? AND "+shown, store.ID(flowID), store.ID(id))
	return found.edge(), err
}

// inputRow is a result that was passed on.
type inputRow struct {
	Downstream store.ID   `db:"downstream_id"`
	Upstream   store.ID   `db:"upstream_id"`
	Key        store.Text `db:"key"`
	Result     []byte     `db:"result"`
	Encoding   store.Text `db:"result_encoding"`
}

// Inputs returns the results that were passed on to members, by the keys or ids of those whose results they are, for each that has
// any. reference: flows-streams-budgets.md 2.6 (data passing); model.md "The graph of a flow".
func (*Repo) Inputs(q *store.Queries, members []uuid.UUID) (map[uuid.UUID]map[string]execution.Value, error) {
	var rows []inputRow
	err := q.Select(&rows, `SELECT d.downstream_id, d.upstream_id, u.key, u.result, u.result_encoding FROM edges d JOIN executions u ON u.id = d.upstream_id
		WHERE d.downstream_id IN ? AND d.pass_result = 1 AND d.state = 'satisfied' AND u.result_encoding IS NOT NULL`, store.List(store.IDs(members)))
	if err != nil {
		return nil, fmt.Errorf("read the inputs of %d executions: %w", len(members), err)
	}
	inputs := map[uuid.UUID]map[string]execution.Value{}
	for _, row := range rows {
		id, name := uuid.UUID(row.Downstream), string(row.Key)
		if name == "" {
			name = uuid.UUID(row.Upstream).String()
		}
		if inputs[id] == nil {
			inputs[id] = map[string]execution.Value{}
		}
		inputs[id][name] = execution.Value{Bytes: row.Result, Encoding: execution.Encoding(row.Encoding)}
	}
	return inputs, nil
}

// Dependencies tells what a member depends on.
func (*Repo) Dependencies(q *store.Queries, member uuid.UUID) (execution.Dependencies, error) {
	g, found, err := findGroup(q, member)
	if err != nil || !found {
		return execution.Dependencies{}, err
	}
	var rows []struct {
		ID     store.ID   `db:"id"`
		Key    store.Text `db:"key"`
		Public string     `db:"public_state"`
	}
	err = q.Select(&rows, `SELECT u.id, u.key, u.public_state FROM edges d JOIN executions u ON u.id = d.upstream_id
		WHERE d.downstream_id = ? AND d.state = 'pending' ORDER BY u.created_at, u.id LIMIT ?`, store.ID(member), execution.DependenciesShown)
	if err != nil {
		return execution.Dependencies{}, fmt.Errorf("read what execution %s depends on: %w", member, err)
	}
	d := execution.Dependencies{Kind: string(g.Kind), Need: g.Need(), Edges: g.Edges, Satisfied: g.Satisfied, Failed: g.Failed, Skipped: g.Skipped}
	for _, row := range rows {
		d.Open = append(d.Open, execution.Dependency{ID: uuid.UUID(row.ID), Key: string(row.Key), Public: execution.Public(row.Public)})
	}
	return d, nil
}
