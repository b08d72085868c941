package graph

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

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
