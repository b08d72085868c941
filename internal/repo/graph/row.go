package graph

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// edgeRow is a stored edge.
type edgeRow struct {
	ID         store.ID     `db:"id"`
	FlowID     store.ID     `db:"flow_id"`
	Upstream   store.ID     `db:"upstream_id"`
	Downstream store.ID     `db:"downstream_id"`
	PassResult int          `db:"pass_result"`
	State      string       `db:"state"`
	CreatedAt  store.Millis `db:"created_at"`
	ResolvedAt store.Millis `db:"resolved_at"`
}

const (
	edgeColumns = "downstream_id, upstream_id, id, flow_id, pass_result, state, created_at, resolved_at"
	selectEdges = "SELECT " + edgeColumns + " FROM edges"
)

func (r *edgeRow) edge() graph.Edge {
	return graph.Edge{ID: uuid.UUID(r.ID), FlowID: uuid.UUID(r.FlowID), Upstream: uuid.UUID(r.Upstream), Downstream: uuid.UUID(r.Downstream),
		PassResult: r.PassResult == 1, State: graph.State(r.State), CreatedAt: time.Time(r.CreatedAt), ResolvedAt: time.Time(r.ResolvedAt)}
}

func edgeValues(e *graph.Edge) []any {
	return []any{store.ID(e.Downstream), store.ID(e.Upstream), store.ID(e.ID), store.ID(e.FlowID), store.Bit(e.PassResult), string(e.State), store.Millis(e.CreatedAt), store.Millis(e.ResolvedAt)}
}

// groupRow is a stored group.
type groupRow struct {
	ExecutionID store.ID     `db:"execution_id"`
	Kind        string       `db:"kind"`
	K           int          `db:"k"`
	OnSatisfied string       `db:"on_satisfied"`
	State       string       `db:"state"`
	Edges       int          `db:"edges"`
	Satisfied   int          `db:"satisfied"`
	Failed      int          `db:"failed"`
	Skipped     int          `db:"skipped"`
	FiredAt     store.Millis `db:"fired_at"`
}

const (
	groupColumns = "g.execution_id, g.kind, g.k, g.on_satisfied, g.state, g.edges, g.satisfied, g.failed, g.skipped, g.fired_at"
	insertGroups = "INSERT INTO edge_groups (execution_id, kind, k, on_satisfied, state, edges, satisfied, failed, skipped, fired_at, flow_id, build_id) VALUES "
	insertEdges  = "INSERT INTO edges (" + edgeColumns + ") VALUES "
)

func (r *groupRow) group() graph.Group {
	return graph.Group{Downstream: uuid.UUID(r.ExecutionID), Policy: graph.Policy{Kind: graph.Kind(r.Kind), K: r.K, OnSatisfied: graph.OnSatisfied(r.OnSatisfied)},
		State: graph.State(r.State), Edges: r.Edges, Satisfied: r.Satisfied, Failed: r.Failed, Skipped: r.Skipped, FiredAt: time.Time(r.FiredAt)}
}

func groupValues(g *graph.Group, flowID, build uuid.UUID) []any {
	return []any{store.ID(g.Downstream), string(g.Kind), g.K, string(g.OnSatisfied), string(g.State), g.Edges, g.Satisfied, g.Failed, g.Skipped,
		store.Millis(g.FiredAt), store.ID(flowID), store.ID(build)}
}

// saveGroup writes how a group stands.
func saveGroup(tx *store.Tx, g *graph.Group) error {
	err := tx.ExecOne(`UPDATE edge_groups SET state = ?, edges = ?, satisfied = ?, failed = ?, skipped = ?, fired_at = ? WHERE execution_id = ?`,
		string(g.State), g.Edges, g.Satisfied, g.Failed, g.Skipped, store.Millis(g.FiredAt), store.ID(g.Downstream))
	if err != nil {
		return fmt.Errorf("update the group of execution %s: %w", g.Downstream, err)
	}
	return nil
}

// findGroup reads the group of a member, and says whether it has one.
func findGroup(q *store.Queries, member uuid.UUID) (graph.Group, bool, error) {
	var found groupRow
	err := q.Get(&found, "SELECT "+groupColumns+" FROM edge_groups g WHERE g.execution_id = ?", store.ID(member))
	switch {
	case store.NotFound(err):
		return graph.Group{}, false, nil
	case err != nil:
		return graph.Group{}, false, fmt.Errorf("read the group of execution %s: %w", member, err)
	}
	return found.group(), true, nil
}
