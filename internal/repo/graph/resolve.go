package graph

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/build"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Resolve decides, when an execution ends, the edges that lead out of it. What that does to others is told by further events,
// which are reacted to in the same way: so it goes down the graph, until nothing more follows or enough was done for one
// transaction. reference: flows-streams-budgets.md 2.6.
func (r *Repo) Resolve() store.Reactor {
	return store.Reactor{Name: "dependencies", On: execution.Completions(), Do: func(tx *store.Tx, e event.Event) error {
		if e.FlowID == uuid.Nil {
			return nil
		}
		rest, err := r.resolve(tx, e.FlowID, e.ExecutionID, execution.EndedBy(e.Type), false)
		if err != nil || !rest {
			return err
		}
		return backlog.Put(tx, backlog.Item{Kind: backlog.Resolve, FlowID: e.FlowID, ExecutionID: e.ExecutionID})
	}}
}

// budget is how much a transaction has changed because of other changes.
type budget struct{ spent int }

type budgetKey struct{}

func budgetOf(tx *store.Tx) *budget { return store.Local[budget](tx, budgetKey{}) }

// left is how much a transaction may still change.
func (r *Repo) left(tx *store.Tx) int { return max(r.cfg.Batch-budgetOf(tx).spent, 0) }

// dependent is a pending edge with its group and its flow.
type dependent struct {
	groupRow
	FlowStatus   string     `db:"flow_status"`
	Cancellation store.JSON `db:"cancellation"`
}

// freshOnly keeps those out that were replayed alone: they wait until what they depend on is replayed, too.
const freshOnly = ` AND NOT EXISTS (SELECT 1 FROM executions c WHERE c.id = d.downstream_id AND c.replay_count > 0)`

var selectDependents = "SELECT " + groupColumns + `, f.status AS flow_status, f.cancellation FROM edges d
	JOIN edge_groups g ON g.execution_id = d.downstream_id JOIN flows f ON f.id = d.flow_id
	WHERE d.upstream_id = ? AND d.state = 'pending' AND ` + build.Shown("g")

// resolve decides the pending edges that lead out of an execution which has ended, fresh only those to members that were
// never replayed. It says whether some are left, because it was too much for this transaction.
func (r *Repo) resolve(tx *store.Tx, flowID, upstream uuid.UUID, outcome execution.Outcome, fresh bool) (rest bool, err error) {
	limit := r.left(tx)
	which := ""
	if fresh {
		which = freshOnly
	}
	var found []dependent
	if err := tx.Select(&found, selectDependents+which+" ORDER BY d.downstream_id LIMIT ?"+tx.ForUpdateOf("f, g"), store.ID(upstream), limit+1); err != nil {
		return false, fmt.Errorf("find what depends on execution %s: %w", upstream, err)
	}
	if rest = len(found) > limit; rest {
		found = found[:limit]
	}
	if len(found) == 0 {
		return rest, nil
	}
	budgetOf(tx).spent += len(found)
	if err := resolveEdges(tx, upstream, graph.StateOf(outcome), found); err != nil {
		return false, err
	}
	var fired []graph.Group
	for i := range found {
		g := found[i].group()
		if g.Resolve(outcome, tx.Now()) {
			fired = append(fired, g)
		}
		if err := saveGroup(tx, &g); err != nil {
			return false, err
		}
	}
	at, err := standing(&found[0])
	if err != nil {
		return false, err
	}
	return rest, r.fire(tx, flowID, at, fired)
}

// resolveEdges writes down how the edges from one upstream to some downstreams were decided.
func resolveEdges(tx *store.Tx, upstream uuid.UUID, state graph.State, found []dependent) error {
	ids := make([]store.ID, len(found))
	for i := range found {
		ids[i] = found[i].ExecutionID
	}
	if _, err := tx.Exec(`UPDATE edges SET state = ?, resolved_at = ? WHERE upstream_id = ? AND state = 'pending' AND downstream_id IN ?`,
		string(state), store.Millis(tx.Now()), store.ID(upstream), store.List(ids)); err != nil {
		return fmt.Errorf("decide the edges of execution %s: %w", upstream, err)
	}
	return nil
}

// owner is how a flow stands, as far as it matters to members that are decided.
type owner struct {
	paused bool               // it has not been started
	end    *execution.Cascade // it has ended, and its members end with it
}

func standing(d *dependent) (owner, error) {
	f := flow.Flow{Status: flow.Status(d.FlowStatus)}
	if d.Cancellation != nil {
		if err := json.Unmarshal(d.Cancellation, &f.Cancellation); err != nil {
			return owner{}, store.Corrupt("flow", "of execution "+uuid.UUID(d.ExecutionID).String(), err)
		}
	}
	return ownerOf(&f), nil
}

func ownerOf(f *flow.Flow) owner {
	at := owner{paused: f.Status == flow.Created}
	if end, ends := f.MembersEnd(); ends {
		at.end = &end
	}
	return at
}

// fire makes what was decided true of the members: they may be claimed, or are skipped, or end with their flow; and other
// upstreams are cancelled that are not needed any more.
func (r *Repo) fire(tx *store.Tx, flowID uuid.UUID, at owner, fired []graph.Group) error {
	if len(fired) == 0 {
		return nil
	}
	states, ids := map[uuid.UUID]graph.State{}, make([]uuid.UUID, len(fired))
	for i, g := range fired {
		states[g.Downstream], ids[i] = g.State, g.Downstream
	}
	members, err := r.executions.Members(tx, flowID, ids)
	if err != nil {
		return err
	}
	for i := range members {
		c, changed, err := decided(tx, &members[i], states[members[i].ID], at)
		if err != nil {
			return err
		}
		if changed {
			if err := r.executions.Save(tx, &members[i], c); err != nil {
				return err
			}
		}
	}
	if at.end != nil { // the others end as their flow says: not before their grace is over, or not at all
		return nil
	}
	for i := range fired {
		if fired[i].CancelsRest() {
			if err := r.cancelRest(tx, flowID, &fired[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// decided is what becomes of a member whose dependencies are decided.
func decided(tx *store.Tx, e *execution.Execution, state graph.State, at owner) (c execution.Change, changed bool, err error) {
	switch {
	case e.Lifecycle == execution.Terminal:
		return c, false, nil
	case at.end != nil:
		c, err = e.Cancel(execution.Cancellation{Reason: at.end.Reason, Actor: tx.Call.Actor, RequestedAt: tx.Now()}, tx.Now())
		return c, true, err
	case state == graph.Satisfied:
		c, changed = e.Unblock(at.paused, tx.Now())
	default:
		c, changed = e.Skip(tx.Now())
	}
	return c, changed, nil
}

// cancelRest cancels the upstreams of a decided group that have not ended.
func (r *Repo) cancelRest(tx *store.Tx, flowID uuid.UUID, g *graph.Group) error {
	limit := r.left(tx)
	var ids []store.ID
	err := tx.Select(&ids, `SELECT d.upstream_id FROM edges d JOIN executions u ON u.id = d.upstream_id
		WHERE d.downstream_id = ? AND d.state = 'pending' AND u.lifecycle_phase <> 'terminal' ORDER BY d.upstream_id LIMIT ?`, store.ID(g.Downstream), limit+1)
	if err != nil {
		return fmt.Errorf("find the other upstreams of execution %s: %w", g.Downstream, err)
	}
	if len(ids) > limit {
		ids = ids[:limit]
		if err := backlog.Put(tx, backlog.Item{Kind: backlog.Siblings, FlowID: flowID, ExecutionID: g.Downstream}); err != nil {
			return err
		}
	}
	budgetOf(tx).spent += len(ids)
	list, err := r.executions.Members(tx, flowID, store.UUIDs(ids))
	if err != nil {
		return err
	}
	by := execution.Cancellation{Reason: g.RestReason(), Actor: call.Engine("").Actor, RequestedAt: tx.Now()}
	for i := range list {
		if list[i].Lifecycle == execution.Terminal {
			continue
		}
		c, err := list[i].Cancel(by, tx.Now())
		if err != nil {
			return err
		}
		if err := r.executions.Save(tx, &list[i], c); err != nil {
			return err
		}
	}
	return nil
}
