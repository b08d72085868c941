package run

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// attach makes the child that does the work at a place in a run which is held, or takes one that exists. Its refusals point into the
// child's part of the request. reference: runs-and-taskflows.md F5 1 and 6, A13 12.
func (r *Repo) attach(tx *store.Tx, x *run.Run, child *run.Child, at run.Place, pointer string) (run.Attached, error) {
	if err := child.Check(pointer); err != nil {
		return run.Attached{}, err
	}
	switch {
	case child.Execution != nil:
		in := *child.Execution
		in.RunID = x.ID
		made, err := r.executions.Add(tx, in)
		if err != nil {
			return run.Attached{}, fault.Under(err, pointer+"/execution")
		}
		if made.Existing {
			return r.takeExecution(tx, x, made.Execution.ID)
		}
		return run.Attached{ExecutionID: made.Execution.ID, Seen: run.SeenExecution(made.Execution.Public(), false, nil, nil)}, nil
	case child.ExecutionID != uuid.Nil:
		return r.takeExecution(tx, x, child.ExecutionID)
	case child.Run != nil:
		in := *child.Run
		in.Namespace, in.Creator, in.Parent = tx.Call.Namespace, tx.Call.Actor, at
		if in.ID == uuid.Nil {
			in.ID = store.NewID()
		}
		if in.FlowID == uuid.Nil {
			in.FlowID = x.FlowID
		}
		if _, err := depth(tx, x); err != nil {
			return run.Attached{}, err
		}
		made, err := r.insert(tx, in)
		if err != nil {
			return run.Attached{}, fault.Under(err, pointer+"/run")
		}
		return run.Attached{RunID: made.ID, Seen: run.SeenRun(&made)}, nil
	}
	return r.takeRun(tx, x, child.RunID, at)
}

// mayTake refuses, with CodeForbidden, a worker who wants what exists already to be a child: it would end with what it works for, and
// ending the work of others is an operator's.
func mayTake(tx *store.Tx) error {
	if tx.Call.Role.Operates() {
		return nil
	}
	return fault.New(fault.CodeForbidden, "Making something that exists a child needs a token with the role %s. New executions and runs need none.", access.RoleOperator).
		With("required_role", access.RoleOperator)
}

func (r *Repo) takeExecution(tx *store.Tx, x *run.Run, id uuid.UUID) (run.Attached, error) {
	if err := mayTake(tx); err != nil {
		return run.Attached{}, err
	}
	if _, err := r.executions.Link(tx, id, x.ID); err != nil {
		return run.Attached{}, err
	}
	e, result, err := r.executions.Known(tx, id)
	if err != nil {
		return run.Attached{}, err
	}
	var other int
	err = tx.Get(&other, `SELECT (SELECT count(*) FROM run_steps WHERE child_execution_id = ?) + (SELECT count(*) FROM run_items WHERE child_execution_id = ?)`, store.ID(id), store.ID(id))
	switch {
	case err != nil:
		return run.Attached{}, fmt.Errorf("look for whom execution %s works: %w", id, err)
	case other > 0:
		return run.Attached{}, worksElsewhere(id, x.ID)
	}
	return run.Attached{ExecutionID: id, Seen: run.SeenExecution(e.Public(), e.Attempts > 0, result, e.Failure)}, nil
}

func worksElsewhere(id, runID uuid.UUID) error {
	return fault.New(fault.CodeAlreadyMember, "Execution %s works for another step or item of this run. Create another one.", id).With("run_id", runID)
}

// takeRun makes a run that exists the child of another one. It returns CodeNotFound, CodeAlreadyMember for one that is in a run, and
// CodeLinkCycle.
func (r *Repo) takeRun(tx *store.Tx, x *run.Run, id uuid.UUID, at run.Place) (run.Attached, error) {
	if err := mayTake(tx); err != nil {
		return run.Attached{}, err
	}
	child, err := r.hold(tx, id)
	if err != nil {
		return run.Attached{}, err
	}
	up, err := depth(tx, x)
	if err != nil {
		return run.Attached{}, err
	}
	if path := append([]uuid.UUID{x.ID}, up...); slices.Contains(path, id) {
		return run.Attached{}, fault.New(fault.CodeLinkCycle, "Run %s is run %s itself, or what that is in: it cannot be in it. Create another run.", id, x.ID).
			With("path", append(path[:slices.Index(path, id)+1:slices.Index(path, id)+1], x.ID))
	}
	if child.Parent.RunID != uuid.Nil {
		return run.Attached{}, fault.New(fault.CodeAlreadyMember, "Run %s is in run %s already. Create another one.", id, child.Parent.RunID).With("run_id", child.Parent.RunID)
	}
	if err := height(tx, id, run.MaxDepth-len(up)-1); err != nil {
		return run.Attached{}, err
	}
	c := child.LinkTo(at, tx.By())
	if err := r.save(tx, &child, c); err != nil {
		return run.Attached{}, err
	}
	return run.Attached{RunID: id, Seen: run.SeenRun(&c.Run)}, nil
}

// height refuses, with CodeLinkCycle, a run in which others stand more than some levels deep, itself counted.
func height(tx *store.Tx, id uuid.UUID, most int) error {
	level := []store.ID{store.ID(id)}
	for n := 0; len(level) > 0; n++ {
		if n >= most {
			return fault.New(fault.CodeLinkCycle, "Runs stand at most %d deep in one another. Let this one be in a run further up, or in none.", run.MaxDepth).With("limit", run.MaxDepth)
		}
		var next []store.ID
		for some := range store.Chunks(level) {
			var found []store.ID
			if err := tx.Select(&found, `SELECT id FROM runs WHERE parent_workflow_run_id IN ?`, store.List(some)); err != nil {
				return fmt.Errorf("read what is in run %s: %w", id, err)
			}
			next = append(next, found...)
		}
		level = next
	}
	return nil
}

// seen changes the step or item at a place as its child is. A child that is not theirs any more changes nothing.
func (r *Repo) seen(tx *store.Tx, x *run.Run, at run.Place, child uuid.UUID, s run.Seen) error {
	if at.ItemID != uuid.Nil {
		items, err := someItems(&tx.Queries, "id = ?"+tx.ForUpdate(), store.ID(at.ItemID))
		if err != nil || len(items) == 0 || !isChild(child, items[0].ChildExecution, items[0].ChildLinked, items[0].ChildRunID) {
			return err
		}
		next, changed := items[0].Become(run.ItemOf(s.Status), tx.Now())
		if !changed {
			return nil
		}
		_, err = r.saveItem(tx, x, &items[0], &next)
		return err
	}
	step, err := findStep(&tx.Queries, x.ID, at.StepID)
	if fault.CodeOf(err) == fault.CodeNotFound {
		return nil
	}
	if err != nil || !isChild(child, step.ChildExecution, step.ChildLinked, step.ChildRunID) {
		return err
	}
	return r.saveStep(tx, x, &step, step.Mirror(x, s, tx.By()))
}

func isChild(child, execution uuid.UUID, linked bool, runID string) bool {
	return child == execution || linked && child.String() == runID
}

// tellParent makes what a run is in equal to it: a step or an item, and a parent that waits for it.
func (r *Repo) tellParent(tx *store.Tx, x *run.Run) error {
	if x.Parent.RunID == uuid.Nil {
		return nil
	}
	parent, err := holdIn(tx, x.Namespace, x.Parent.RunID)
	if err != nil {
		if fault.CodeOf(err) == fault.CodeNotFound { // it was deleted
			err = nil
		}
		return err
	}
	if x.Parent.StepID != uuid.Nil {
		if err := r.seen(tx, &parent, x.Parent, x.ID, run.SeenRun(x)); err != nil {
			return err
		}
	}
	if !x.Status.Terminal() {
		return nil
	}
	return r.call(tx, &parent, func(on *run.BlockedOn) bool { return on.RunID == x.ID })
}

// call lets a run go on that waits for a child, if that is the one.
func (r *Repo) call(tx *store.Tx, x *run.Run, ended func(on *run.BlockedOn) bool) error {
	if x.Wait == nil {
		return nil
	}
	now, err := holdIn(tx, x.Namespace, x.ID) // what has ended may have called it
	if err != nil || now.Wait == nil {
		return err
	}
	if on := now.On(); on.Type != run.BlockedOnChild || !ended(&on) {
		return nil
	}
	c, err := now.Called(tx.By())
	if err != nil {
		return err
	}
	return r.save(tx, &now, c)
}

// orphans is what a transaction remembers of a run whose children may have nobody any more who waits for them.
type orphans struct {
	cause store.Ref // the first event that has left a child alone
}

// orphaned cancels, once everything else is done, children that nobody waits for any more.
func (r *Repo) orphaned(tx *store.Tx, x *run.Run) {
	namespace, id := x.Namespace, x.ID
	o := store.Sum(tx, orphanKey{id}, func(o *orphans) error {
		defer tx.Because(tx.Because(o.cause))
		x, err := find(&tx.Queries, namespace, id, tx.ForUpdate())
		if err != nil {
			return gone(err) // deleted with its flow
		}
		return r.drain(tx, &x)
	})
	if o.cause == 0 {
		o.cause = tx.Cause()
	}
}

type orphanKey struct{ run uuid.UUID }

// drained is how many children a transaction has ended.
type drained struct{ n int }

type drainedKey struct{}

// drain cancels children that nobody waits for any more, and asks those of a run that is cancelling to end with it: up to a batch in one
// transaction whatever they work for. It leaves the others to the sweep.
func (r *Repo) drain(tx *store.Tx, x *run.Run) error {
	done := store.Local[drained](tx, drainedKey{})
	left := max(0, r.cfg.Batch-done.n)
	work, err := r.orphanedWork(tx, x)
	if err != nil {
		return err
	}
	draining := len(work) > left
	work = work[:min(len(work), left)]
	end := execution.Cascade{Reason: "the run " + x.ID.String() + " does not wait for it any more"}
	if err := r.executions.EndWork(tx, work, end); err != nil {
		return err
	}
	done.n += len(work)
	more, err := r.drainRuns(tx, x, done)
	if err != nil {
		return err
	}
	draining = draining || more
	if draining == x.Draining {
		if draining {
			tx.Alarm(Loop, x.DueAt())
		}
		return nil
	}
	now, err := find(&tx.Queries, x.Namespace, x.ID, "") // the end of a child may have let it go on
	if err != nil {
		return err
	}
	now.Draining = draining
	return r.write(tx, &now)
}

// drainRuns is drain for runs, and asks all that is open in a run that is cancelling to end with it. The runs in it have its time then,
// whether somebody waits for them or not, so that it does not depend on what ends first.
func (r *Repo) drainRuns(tx *store.Tx, x *run.Run, done *drained) (more bool, err error) {
	if x.Status == run.Cancelling {
		return r.warn(tx, x, done)
	}
	left := max(0, r.cfg.Batch-done.n)
	runs, err := r.orphanedRuns(tx, x, left+1)
	if err != nil {
		return false, err
	}
	more = len(runs) > left
	runs = runs[:min(len(runs), left)]
	done.n += len(runs)
	return more, r.cancelChildren(tx, runs, run.Cancel{Message: x.ResultSummary, Deadline: run.DefaultCancelDeadline})
}

// cancelChildren cancels runs because of the one that they are in.
func (r *Repo) cancelChildren(tx *store.Tx, runs []run.Run, in run.Cancel) error {
	in.Reason = run.ByParent
	for i := range runs {
		if err := r.cancelChild(tx, &runs[i], in); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) cancelChild(tx *store.Tx, child *run.Run, in run.Cancel) error {
	c, err := child.Cancel(in, tx.By())
	if err != nil {
		return err
	}
	return r.save(tx, child, c)
}

// orphanedWork returns the executions that work for a run, have not ended, and do no open step's or item's work.
func (r *Repo) orphanedWork(tx *store.Tx, x *run.Run) ([]uuid.UUID, error) {
	open, err := r.executions.OpenWork(tx, x.ID)
	if err != nil || len(open) == 0 || x.Status.Terminal() {
		return open, err
	}
	var kept []store.ID
	err = tx.Select(&kept, `SELECT child_execution_id FROM run_steps WHERE run_id = ? AND ended_at IS NULL AND child_execution_id IS NOT NULL
		UNION ALL SELECT child_execution_id FROM run_items WHERE run_id = ? AND completed_at IS NULL AND child_execution_id IS NOT NULL`, store.ID(x.ID), store.ID(x.ID))
	if err != nil {
		return nil, fmt.Errorf("read whose work is open in run %s: %w", x.ID, err)
	}
	keep := make(map[uuid.UUID]bool, len(kept))
	for _, id := range kept {
		keep[uuid.UUID(id)] = true
	}
	return slices.DeleteFunc(open, func(id uuid.UUID) bool { return keep[id] }), nil
}

// orphanedRuns returns up to limit runs in a run that have not ended and that were not asked to, of which no open step or item waits
// for the end.
func (r *Repo) orphanedRuns(tx *store.Tx, x *run.Run, limit int) ([]run.Run, error) {
	var open []struct {
		ID     store.ID `db:"id"`
		StepID store.ID `db:"parent_step_id"`
	}
	err := tx.Select(&open, `SELECT id, parent_step_id FROM runs WHERE parent_workflow_run_id = ? AND ended_at IS NULL AND status <> 'cancelling' ORDER BY id`, store.ID(x.ID))
	if err != nil || len(open) == 0 {
		return nil, err
	}
	keep := map[string]bool{}
	if !x.Status.Terminal() {
		var kept []string
		err := tx.Select(&kept, `SELECT child_run_id FROM run_steps WHERE run_id = ? AND ended_at IS NULL AND child_linked = 1
			UNION ALL SELECT child_run_id FROM run_items WHERE run_id = ? AND completed_at IS NULL AND child_linked = 1`, store.ID(x.ID), store.ID(x.ID))
		if err != nil {
			return nil, fmt.Errorf("read whose work is open in run %s: %w", x.ID, err)
		}
		for _, id := range kept {
			keep[id] = true
		}
	}
	var ids []store.ID
	for _, o := range open {
		inStep := o.StepID != store.ID{}
		if x.Status.Terminal() || inStep && !keep[uuid.UUID(o.ID).String()] {
			ids = append(ids, o.ID)
		}
	}
	return heldRuns(tx, ids[:min(len(ids), limit)])
}

// heldRuns reads and locks runs, in the order of their ids.
func heldRuns(tx *store.Tx, ids []store.ID) ([]run.Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []row
	if err := tx.Select(&rows, "SELECT "+columns+" FROM runs WHERE id IN ? AND ended_at IS NULL ORDER BY id"+tx.ForUpdate(), store.List(ids)); err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	tx.Later()
	return runsOf(rows)
}

// Seen returns what a step of a flow sees of a run, and locks the run. It returns CodeNotFound.
func (r *Repo) Seen(tx *store.Tx, id uuid.UUID) (flow.Child, error) {
	x, err := r.hold(tx, id)
	return x.FlowStepOf(), err
}

// warn asks children of a run that is cancelling to end with it, as many as the transaction may still end, and says whether there are more.
func (r *Repo) warn(tx *store.Tx, x *run.Run, done *drained) (more bool, err error) {
	deadline, left := x.Cancellation.DeadlineAt, max(0, r.cfg.Batch-done.n)
	work, err := r.executions.UnaskedWork(tx, x.ID, deadline)
	if err != nil {
		return false, err
	}
	asked := work[:min(len(work), left)]
	if err := r.executions.EndWork(tx, asked, execution.Cascade{Reason: "its run is cancelled", GraceUntil: deadline}); err != nil {
		return false, err
	}
	left -= len(asked)
	var ids []store.ID
	err = tx.Select(&ids, `SELECT id FROM runs WHERE parent_workflow_run_id = ? AND ended_at IS NULL AND status <> 'cancelling' ORDER BY id LIMIT ?`, store.ID(x.ID), left+1)
	if err != nil {
		return false, fmt.Errorf("read what is open in run %s: %w", x.ID, err)
	}
	runs, err := heldRuns(tx, ids[:min(len(ids), left)])
	if err != nil {
		return false, err
	}
	done.n += len(asked) + len(runs)
	err = r.cancelChildren(tx, runs, run.Cancel{Message: x.Cancellation.Message, Until: deadline})
	return len(work) > len(asked) || len(ids) > left, err
}
