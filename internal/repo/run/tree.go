package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Tree returns what stands in the flow, run, step or execution of this id, in the caller's namespace: flow, runs, steps, executions,
// attempts, at most [run.MaxNodes] of them. It returns CodeNotFound. reference: runs-and-taskflows.md F6.
func (r *Repo) Tree(ctx context.Context, id uuid.UUID) (out run.Tree, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		out, err = r.tree(q, call.From(ctx).Namespace, id)
		return err
	})
	return out, err
}

func (r *Repo) tree(q *store.Queries, namespace string, id uuid.UUID) (run.Tree, error) {
	g := &grove{repo: r, q: q, left: run.MaxNodes}
	if f, err := r.flows.Find(q, namespace, id); fault.CodeOf(err) != fault.CodeNotFound {
		if err != nil {
			return run.Tree{}, err
		}
		return g.of(run.FlowNode(&f), func(root *run.Node) error { return g.flow(root, id) })
	}
	if x, err := find(q, namespace, id, ""); fault.CodeOf(err) != fault.CodeNotFound {
		if err != nil {
			return run.Tree{}, err
		}
		return g.of(x.Node(q.Now()), func(root *run.Node) error { return g.runs([]run.Run{x}, []*run.Node{root}) })
	}
	var step []stepRow
	if err := q.Select(&step, selectSteps+" WHERE id = ? AND namespace = ?", store.ID(id), namespace); err != nil {
		return run.Tree{}, fmt.Errorf("read step %s: %w", id, err)
	}
	if len(step) > 0 {
		s, err := step[0].step()
		if err != nil {
			return run.Tree{}, err
		}
		return g.of(s.Node(), func(root *run.Node) error { return g.steps([]run.Step{s}, []*run.Node{root}) })
	}
	found, err := r.executions.Work(q, execution.WorkOf{IDs: []uuid.UUID{id}}, 1)
	if err != nil {
		return run.Tree{}, err
	}
	if len(found) == 0 || found[0].Execution.Namespace != namespace {
		return run.Tree{}, fault.NotFound("flow, run, step or execution", id).With("resource", "tree")
	}
	return run.Tree{Root: run.ExecutionNode(&found[0], "")}, nil
}

// grove is a tree that is being built, level by level.
type grove struct {
	repo      *Repo
	q         *store.Queries
	left      int // nodes that may still be shown
	truncated bool
}

func (g *grove) of(root run.Node, grow func(root *run.Node) error) (run.Tree, error) {
	err := grow(&root)
	return run.Tree{Root: root, Truncated: g.truncated}, err
}

// take says how many of n nodes may be shown.
func (g *grove) take(n int) int {
	if n > g.left {
		n, g.truncated = g.left, true
	}
	g.left -= n
	return n
}

func (g *grove) flow(root *run.Node, id uuid.UUID) error {
	members, err := g.repo.executions.Work(g.q, execution.WorkOf{Flows: []uuid.UUID{id}}, g.left+1)
	if err != nil {
		return err
	}
	var rows []row
	err = g.q.Select(&rows, "SELECT "+columns+" FROM runs WHERE flow_id = ? AND parent_workflow_run_id IS NULL ORDER BY created_at, id LIMIT ?", store.ID(id), g.left+1)
	if err != nil {
		return fmt.Errorf("read the runs of flow %s: %w", id, err)
	}
	runs, err := runsOf(rows)
	if err != nil {
		return err
	}
	if err := g.underRuns([]*run.Node{root}, runs, func(*run.Run) int { return 0 }); err != nil {
		return err
	}
	inside, err := runsIn(g.q, id)
	if err != nil {
		return err
	}
	for i := range members[:g.take(len(members))] {
		if !inside[members[i].Execution.RunID] { // else it stands there
			root.Children = append(root.Children, run.ExecutionNode(&members[i], ""))
		}
	}
	return nil
}

// runsIn returns the runs of a flow, those that are in others too.
func runsIn(q *store.Queries, flowID uuid.UUID) (map[uuid.UUID]bool, error) {
	var ids []store.ID
	if err := q.Select(&ids, `SELECT id FROM runs WHERE flow_id = ? LIMIT ?`, store.ID(flowID), run.MaxNodes); err != nil {
		return nil, fmt.Errorf("read the runs of flow %s: %w", flowID, err)
	}
	in := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		in[uuid.UUID(id)] = true
	}
	return in, nil
}

// underRuns puts runs, with what is in them, below nodes.
func (g *grove) underRuns(parents []*run.Node, runs []run.Run, below func(x *run.Run) int) error {
	runs = runs[:g.take(len(runs))]
	if len(runs) == 0 {
		return nil
	}
	first := make([]int, len(runs))
	for i := range runs {
		p := parents[below(&runs[i])]
		first[i] = len(p.Children)
		p.Children = append(p.Children, runs[i].Node(g.q.Now()))
	}
	nodes := make([]*run.Node, len(runs)) // once none of the slices grows any more
	for i := range runs {
		nodes[i] = &parents[below(&runs[i])].Children[first[i]]
	}
	return g.runs(runs, nodes)
}

// runs puts what is in runs below their nodes.
func (g *grove) runs(runs []run.Run, nodes []*run.Node) error {
	at := make(map[uuid.UUID]int, len(runs))
	ids := make([]store.ID, len(runs))
	for i := range runs {
		at[runs[i].ID], ids[i] = i, store.ID(runs[i].ID)
	}
	steps, err := someSteps(g.q, "run_id IN ? ORDER BY position, id LIMIT ?", store.List(ids), g.left+1)
	if err != nil {
		return err
	}
	steps = steps[:g.take(len(steps))]
	first := make([]int, len(steps))
	for i := range steps {
		p := nodes[at[steps[i].RunID]]
		first[i] = len(p.Children)
		p.Children = append(p.Children, steps[i].Node())
	}
	below := make([]*run.Node, len(steps))
	for i := range steps {
		below[i] = &nodes[at[steps[i].RunID]].Children[first[i]]
	}
	if err := g.steps(steps, below); err != nil {
		return err
	}
	var rows []row
	err = g.q.Select(&rows, "SELECT "+columns+" FROM runs WHERE parent_workflow_run_id IN ? AND parent_step_id IS NULL ORDER BY created_at, id LIMIT ?", store.List(ids), g.left+1)
	if err != nil {
		return fmt.Errorf("read the runs in runs: %w", err)
	}
	children, err := runsOf(rows)
	if err != nil {
		return err
	}
	return g.underRuns(nodes, children, func(x *run.Run) int { return at[x.Parent.RunID] })
}

// steps puts what does the work of steps below their nodes.
func (g *grove) steps(steps []run.Step, nodes []*run.Node) error {
	if len(steps) == 0 {
		return nil
	}
	at := make(map[uuid.UUID]int, len(steps))
	ids := make([]store.ID, len(steps))
	of := map[uuid.UUID]worker{} // executions
	var work []uuid.UUID
	for i := range steps {
		at[steps[i].ID], ids[i] = i, store.ID(steps[i].ID)
		if e := steps[i].ChildExecution; e != uuid.Nil {
			of[e] = worker{step: i}
			work = append(work, e)
		}
	}
	items, err := someItems(g.q, "step_id IN ? AND child_execution_id IS NOT NULL ORDER BY id LIMIT ?", store.List(ids), g.left+1)
	if err != nil {
		return err
	}
	for i := range items {
		e := items[i].ChildExecution
		of[e] = worker{step: at[items[i].StepID], name: items[i].Name()}
		work = append(work, e)
	}
	if err := g.work(nodes, of, work[:g.take(len(work))]); err != nil {
		return err
	}
	var rows []row
	err = g.q.Select(&rows, "SELECT "+columns+" FROM runs WHERE parent_step_id IN ? ORDER BY created_at, id LIMIT ?", store.List(ids), g.left+1)
	if err != nil {
		return fmt.Errorf("read the runs in steps: %w", err)
	}
	runs, err := runsOf(rows)
	if err != nil {
		return err
	}
	return g.underRuns(nodes, runs, func(x *run.Run) int { return at[x.Parent.StepID] })
}

// worker is where an execution works, and what it is called there.
type worker struct {
	step int
	name string
}

// work puts executions below the nodes of the steps that they work for.
func (g *grove) work(nodes []*run.Node, of map[uuid.UUID]worker, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	found, err := g.repo.executions.Work(g.q, execution.WorkOf{IDs: ids}, len(ids))
	if err != nil {
		return err
	}
	for i := range found {
		w := of[found[i].Execution.ID]
		nodes[w.step].Children = append(nodes[w.step].Children, run.ExecutionNode(&found[i], w.name))
	}
	return nil
}
