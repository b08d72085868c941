package graph

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/build"
	flowrepo "github.com/flowapi/flowapi/internal/repo/flow"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Rewind makes undecided again what has to do with a member that is about to run again. What depends on it and has not started waits
// for it again. What it depends on itself, as far as that runs again, it waits for again. And unless it was let go before: what ended
// well still counts, also what has done so since; the rest has to run again, too. It says whether the member has to wait.
// reference: flows-streams-budgets.md 2.8; model.md "Replay".
func (r *Repo) Rewind(tx *store.Tx, e *execution.Execution) (blocked bool, err error) {
	if err := r.reopenAfter(tx, e); err != nil {
		return false, err
	}
	g, found, err := findGroup(&tx.Queries, e.ID)
	if err != nil || !found || g.Edges == 0 {
		return false, err
	}
	// Whichever of two members is replayed first, the one waits for the other.
	again, err := tx.Exec(`UPDATE edges SET state = 'pending', resolved_at = NULL WHERE downstream_id = ? AND state <> 'pending' AND `+upstreamsThat("u.terminal_outcome = 'none'"),
		store.ID(e.ID), store.ID(e.ID))
	if err != nil {
		return false, err
	}
	if g.State == graph.Satisfied {
		if again == 0 {
			return false, nil
		}
		return r.recount(tx, &g)
	}
	_, err = tx.Exec(`UPDATE edges SET state = 'satisfied', resolved_at = ? WHERE downstream_id = ? AND state <> 'satisfied' AND `+upstreamsThat("u.terminal_outcome = 'success'"),
		store.Millis(tx.Now()), store.ID(e.ID), store.ID(e.ID))
	if err != nil {
		return false, err
	}
	if _, err := tx.Exec(`UPDATE edges SET state = 'pending', resolved_at = NULL WHERE downstream_id = ? AND state = 'impossible'`, store.ID(e.ID)); err != nil {
		return false, err
	}
	return r.recount(tx, &g)
}

// upstreamsThat selects edges by how their upstreams stand.
func upstreamsThat(condition string) string {
	return `upstream_id IN (SELECT u.id FROM edges d JOIN executions u ON u.id = d.upstream_id WHERE d.downstream_id = ? AND ` + condition + `)`
}

// recount counts the edges of a group anew, and says whether it holds its member.
func (r *Repo) recount(tx *store.Tx, g *graph.Group) (holds bool, err error) {
	var n struct {
		Satisfied int `db:"satisfied"`
		Failed    int `db:"failed"`
		Skipped   int `db:"skipped"`
	}
	err = tx.Get(&n, `SELECT count(CASE WHEN d.state = 'satisfied' THEN 1 END) AS satisfied,
		count(CASE WHEN d.state = 'impossible' AND u.terminal_outcome <> 'skipped' THEN 1 END) AS failed,
		count(CASE WHEN d.state = 'impossible' AND u.terminal_outcome = 'skipped' THEN 1 END) AS skipped
		FROM edges d JOIN executions u ON u.id = d.upstream_id WHERE d.downstream_id = ?`, store.ID(g.Downstream))
	if err != nil {
		return false, fmt.Errorf("count the dependencies of execution %s: %w", g.Downstream, err)
	}
	g.Rewind(n.Satisfied, n.Failed, n.Skipped, tx.Now())
	return g.Holds(), saveGroup(tx, g)
}

// reopenAfter lets what depends on e and has not started wait for it again.
func (r *Repo) reopenAfter(tx *store.Tx, e *execution.Execution) error {
	if e.FlowID == uuid.Nil {
		return nil
	}
	var rows []store.ID
	err := tx.Select(&rows, `SELECT d.downstream_id FROM edges d JOIN executions c ON c.id = d.downstream_id
		WHERE d.upstream_id = ? AND d.state <> 'pending' AND c.lifecycle_phase = 'runnable' ORDER BY d.downstream_id`, store.ID(e.ID))
	if err != nil || len(rows) == 0 {
		return err
	}
	members, err := r.executions.Members(tx, e.FlowID, store.UUIDs(rows))
	if err != nil {
		return err
	}
	for i := range members {
		if err := r.reopen(tx, e, &members[i]); err != nil {
			return fmt.Errorf("let execution %s wait again: %w", members[i].ID, err)
		}
	}
	return nil
}

func (r *Repo) reopen(tx *store.Tx, up, down *execution.Execution) error {
	if down.Started() {
		return nil
	}
	g, found, err := findGroup(&tx.Queries, down.ID)
	if err != nil || !found {
		return err
	}
	if err := tx.ExecOne(`UPDATE edges SET state = 'pending', resolved_at = NULL WHERE downstream_id = ? AND upstream_id = ?`, store.ID(down.ID), store.ID(up.ID)); err != nil {
		return err
	}
	// How the edge was counted is not how its upstream ended last: that may have run again when the member was at work.
	if holds, err := r.recount(tx, &g); err != nil || !holds {
		return err
	}
	if c, changed := down.Block(); changed {
		return r.executions.Save(tx, down, c)
	}
	return nil
}

// replayRow is a member, as far as a replay looks at it.
type replayRow struct {
	ID      store.ID   `db:"id"`
	Key     store.Text `db:"key"`
	Phase   string     `db:"lifecycle_phase"`
	Outcome string     `db:"terminal_outcome"`
	Public  string     `db:"public_state"`
	Policy  store.JSON `db:"policy"`
	Replays int        `db:"replay_count"`
	Failed  int        `db:"unforgiven"`
}

// replayPlan is what a replay will run again.
type replayPlan struct {
	again []graph.Named
	kept  []graph.Named
}

func (p *replayPlan) ids() []uuid.UUID {
	ids := make([]uuid.UUID, len(p.again))
	for i, n := range p.again {
		ids[i] = n.ID
	}
	return ids
}

// Replay runs members of a flow again: the failed ones, or those that are named, and what was skipped because of them. As many as
// one transaction may change run at once, the others right after them. A dry run only tells. It returns CodeNotFound,
// CodeRevisionMismatch, CodeAlreadyTerminal, CodeExecutionNotInFlow, CodeExecutionNotTerminal and CodeMaxReplaysExhausted.
func (r *Repo) Replay(ctx context.Context, flowID uuid.UUID, expected *int64, names []string, dryRun bool) (graph.Replayed, error) {
	namespace := call.From(ctx).Namespace
	if dryRun {
		var out graph.Replayed
		err := r.store.Read(ctx, func(q *store.Queries) (err error) {
			if out.Flow, err = r.flows.Find(q, namespace, flowID); err != nil {
				return err
			}
			if err := out.Flow.Expect(expected); err != nil {
				return err
			}
			if _, err := out.Flow.Replay(nil, event.By{}); err != nil {
				return err
			}
			p, err := r.planReplay(q, flowID, names)
			out.Again, out.Kept = p.again, p.kept
			return err
		})
		return out, err
	}
	reload := store.Reload(func(ctx context.Context, old replayRef) (graph.Replayed, error) {
		f, err := r.flows.Flow(ctx, old.ID)
		return graph.Replayed{Flow: f, Again: old.Again, Kept: old.Kept}, err
	})
	return store.Checked(ctx, r.store, func() (graph.Replayed, error) { return r.replayOnce(ctx, flowID, expected, names, reload) }, reload)
}

func (r *Repo) replayOnce(ctx context.Context, flowID uuid.UUID, expected *int64, names []string, reload store.Option) (graph.Replayed, error) {
	namespace := call.From(ctx).Namespace
	ahead, err := r.planAhead(ctx, namespace, flowID, names)
	if err != nil {
		return graph.Replayed{}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Replayed) error {
		if _, err := r.flows.Head(tx, flowID); err != nil { // locked, before it is looked at
			return err
		}
		p, err := ahead.now(r, tx, namespace, flowID, names)
		if err != nil {
			return err
		}
		ids := p.ids()
		started, err := r.flows.Again(tx, flowID, expected, ids)
		if err != nil {
			return err
		}
		if err := r.replaySome(tx, flowID, ids, started); err != nil {
			return err
		}
		tx.Refer(replayRef{flowID, p.again, p.kept})
		tx.Final(func() (err error) {
			out.Again, out.Kept = p.again, p.kept
			out.Flow, err = r.flows.Find(&tx.Queries, namespace, flowID)
			return err
		})
		return nil
	}, reload)
}

// aheadFrom is how many members a flow has whose replay is planned before the transaction: nobody else can write while it is.
const aheadFrom = 1000

// planned is a plan and the flow as it was then, nil when there is none.
type planned struct {
	flow *flow.Flow
	plan replayPlan
}

// planAhead plans the replay of a large flow.
func (r *Repo) planAhead(ctx context.Context, namespace string, flowID uuid.UUID, names []string) (ahead planned, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		f, err := r.flows.Find(q, namespace, flowID)
		if err != nil || f.NodeCount < aheadFrom {
			return err
		}
		ahead.flow = &f
		ahead.plan, err = r.planReplay(q, flowID, names)
		return err
	})
	return ahead, err
}

// now returns the plan, made anew unless the flow stands as it did.
func (a *planned) now(r *Repo, tx *store.Tx, namespace string, flowID uuid.UUID, names []string) (replayPlan, error) {
	if a.flow != nil {
		f, err := r.flows.Find(&tx.Queries, namespace, flowID)
		if err != nil {
			return replayPlan{}, err
		}
		if f.Revision == a.flow.Revision && f.GraphRevision == a.flow.GraphRevision && maps.Equal(f.Rollup.Counts, a.flow.Rollup.Counts) {
			return a.plan, nil
		}
	}
	return r.planReplay(&tx.Queries, flowID, names)
}

type replayRef struct {
	ID    uuid.UUID
	Again []graph.Named
	Kept  []graph.Named
}

// replayRest is the detail of what a replay has left to do.
type replayRest struct {
	IDs     []uuid.UUID `json:"ids"`
	Started bool        `json:"started"`
}

// replaySome replays the first of some members, and leaves the others to the backlog, batch by batch.
func (r *Repo) replaySome(tx *store.Tx, flowID uuid.UUID, ids []uuid.UUID, started bool) error {
	for i, batch := range slices.Collect(slices.Chunk(ids, r.cfg.Batch)) {
		var err error
		if i == 0 {
			err = r.replayThese(tx, flowID, batch, started)
		} else {
			err = backlog.Put(tx, backlog.Item{Kind: backlog.Replay, FlowID: flowID, ExecutionID: store.NewID(), Detail: replayRest{batch, started}}) // each is an item of its own
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) replayThese(tx *store.Tx, flowID uuid.UUID, ids []uuid.UUID, started bool) error {
	members, err := r.executions.Members(tx, flowID, ids)
	if err != nil {
		return err
	}
	for i := range members {
		if members[i].Replayable() != nil { // it runs already, by somebody else's doing
			continue
		}
		c, err := r.executions.ReplayMember(tx, members[i], started)
		if err != nil {
			return err
		}
		if err := r.executions.Save(tx, &members[i], c); err != nil {
			return err
		}
	}
	return nil
}

// planReplay finds out what runs again, in the order in which it was added.
func (r *Repo) planReplay(q *store.Queries, flowID uuid.UUID, names []string) (replayPlan, error) {
	var rows []replayRow
	err := q.Select(&rows, `SELECT e.id, e.key, e.lifecycle_phase, e.terminal_outcome, e.public_state, e.policy, e.replay_count,
		CASE WHEN `+flowrepo.Unforgiven+` THEN 1 ELSE 0 END AS unforgiven FROM executions e WHERE e.flow_id = ? AND `+build.Shown("e")+` ORDER BY e.created_at, e.id`, store.ID(flowID))
	if err != nil {
		return replayPlan{}, fmt.Errorf("read the members of flow %s: %w", flowID, err)
	}
	chosen, err := chosen(flowID, rows, names)
	if err != nil {
		return replayPlan{}, err
	}
	if err := withSkipped(q, flowID, chosen); err != nil {
		return replayPlan{}, err
	}
	p := replayPlan{again: []graph.Named{}, kept: []graph.Named{}}
	for i := range rows {
		named := graph.Named{ID: uuid.UUID(rows[i].ID), Key: string(rows[i].Key)}
		if !chosen[rows[i].ID] {
			p.kept = append(p.kept, named)
			continue
		}
		e := execution.Execution{ID: named.ID, Policy: json.RawMessage(rows[i].Policy), Replays: rows[i].Replays}
		e.Lifecycle, e.Outcome = execution.Lifecycle(rows[i].Phase), execution.Outcome(rows[i].Outcome)
		if err := e.Replayable(); err != nil {
			return p, err
		}
		p.again = append(p.again, named)
	}
	return p, nil
}

// chosen returns the members that are to run again: those that are named, else those that ended badly and that nothing made up for.
func chosen(flowID uuid.UUID, rows []replayRow, names []string) (map[store.ID]bool, error) {
	chosen := map[store.ID]bool{}
	if names == nil {
		for i := range rows {
			if rows[i].Failed == 1 {
				chosen[rows[i].ID] = true
			}
		}
		return chosen, nil
	}
	byName := make(map[string]*replayRow, 2*len(rows))
	for i := range rows {
		byName[uuid.UUID(rows[i].ID).String()] = &rows[i]
	}
	for i := range rows {
		if rows[i].Key != "" {
			byName[string(rows[i].Key)] = &rows[i]
		}
	}
	for i, name := range names {
		row := byName[name]
		if id, err := uuid.Parse(name); row == nil && err == nil {
			row = byName[id.String()]
		}
		pointer := fmt.Sprintf("/from/%d", i)
		if row == nil {
			f := fault.Invalid(fault.CodeExecutionNotInFlow, pointer, "Flow %s has no member %q. GET …/graph lists them.", flowID, fault.Readable(name))
			return nil, f
		}
		if row.Phase != string(execution.Terminal) {
			return nil, fault.Invalid(fault.CodeExecutionNotTerminal, pointer, "Execution %s is %s and has not ended. Wait for it, or cancel it.",
				cmp.Or(string(row.Key), uuid.UUID(row.ID).String()), row.Public).With("public_state", row.Public)
		}
		chosen[row.ID] = true
	}
	return chosen, nil
}

// withSkipped adds the members that were skipped because of those that are chosen.
func withSkipped(q *store.Queries, flowID uuid.UUID, chosen map[store.ID]bool) error {
	var edges []edgeRow
	err := q.Select(&edges, `SELECT d.upstream_id, d.downstream_id FROM edges d JOIN executions c ON c.id = d.downstream_id
		WHERE d.flow_id = ? AND d.state = 'impossible' AND c.terminal_outcome = 'skipped'`, store.ID(flowID))
	if err != nil {
		return fmt.Errorf("find what was skipped in flow %s: %w", flowID, err)
	}
	out := map[store.ID][]store.ID{}
	for _, e := range edges {
		out[e.Upstream] = append(out[e.Upstream], e.Downstream)
	}
	front := make([]store.ID, 0, len(chosen))
	for id := range chosen {
		front = append(front, id)
	}
	for len(front) > 0 {
		id := front[len(front)-1]
		front = front[:len(front)-1]
		for _, next := range out[id] {
			if !chosen[next] {
				chosen[next] = true
				front = append(front, next)
			}
		}
	}
	return nil
}
