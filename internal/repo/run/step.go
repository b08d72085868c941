package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Steps lists the steps of a run of the caller's namespace, by their positions. It returns CodeNotFound.
func (r *Repo) Steps(ctx context.Context, runID uuid.UUID, f run.StepFilter, after page.Cursor, limit int) (page.Page[run.Step], error) {
	var list []run.Step
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := find(q, call.From(ctx).Namespace, runID, ""); err != nil {
			return err
		}
		where := store.NewWhere("run_id = ?", store.ID(runID))
		where.If(f.Status != "", "status = ?", string(f.Status))
		where.If(f.Role != "", "role = ?", string(f.Role))
		where.If(f.Name != "", "step_name = ?", f.Name)
		where.If(!after.IsZero(), "(position, id) > (?, ?)", after.At, store.ID(after.ID))
		var err error
		if list, err = someSteps(q, where.String()+" ORDER BY position, id LIMIT ?", where.Args(limit+1)...); err != nil {
			return err
		}
		return withAttempts(q, list)
	})
	return page.Of(list, limit, func(s run.Step) page.Cursor { return page.Cursor{At: s.Position, ID: s.ID} }), err
}

// Step returns one step of a run of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Step(ctx context.Context, runID, id uuid.UUID) (s run.Step, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := find(q, call.From(ctx).Namespace, runID, ""); err != nil {
			return err
		}
		s, err = stepAnswer(q, runID, id)
		return err
	})
	return s, err
}

// stepAnswer reads a step with all its attempts.
func stepAnswer(q *store.Queries, runID, id uuid.UUID) (run.Step, error) {
	s, err := findStep(q, runID, id)
	if err != nil {
		return s, err
	}
	one := []run.Step{s}
	err = withAttempts(q, one)
	return one[0], err
}

// stepRef stands for a step in an answer that was not kept.
type stepRef struct {
	RunID, StepID uuid.UUID
	Applied       bool
}

// engine returns a run that is held, of an engine with this generation. It returns CodeNotFound and CodeLeaseLost.
func (r *Repo) engine(tx *store.Tx, runID uuid.UUID, generation int64) (run.Run, error) {
	x, err := r.hold(tx, runID)
	if err != nil {
		return x, err
	}
	return x, x.Fence(generation)
}

// InsertStep adds a step to a run, with the child that does its work, if there is one. A step with the same path and iteration is
// returned as it is. It returns CodeNotFound, CodeLeaseLost, CodeAlreadyExists for an id that another step has, and the refusals of
// [run.Run.Insert] and of the child. reference: runs-and-taskflows.md A5.5, A13 19.
func (r *Repo) InsertStep(ctx context.Context, runID uuid.UUID, generation int64, in run.NewStep, child *run.Child) (out run.StepCreation, err error) {
	if in.Path == "" {
		in.Path = in.Name
	}
	err = r.executions.Making(ctx, func() error {
		out, err = store.Write(ctx, r.store, func(tx *store.Tx, out *run.StepCreation) error {
			return r.insertStep(tx, runID, generation, in, child, out)
		}, store.Reload(func(ctx context.Context, kept stepRef) (run.StepCreation, error) {
			s, err := r.Step(ctx, kept.RunID, kept.StepID)
			return run.StepCreation{Step: s}, err
		}))
		return err
	})
	return out, err
}

func (r *Repo) insertStep(tx *store.Tx, runID uuid.UUID, generation int64, in run.NewStep, child *run.Child, out *run.StepCreation) error {
	if err := r.holdFlows(tx, runID, child); err != nil {
		return err
	}
	x, err := r.engine(tx, runID, generation)
	if err != nil {
		return err
	}
	there, err := someSteps(&tx.Queries, "run_id = ? AND path = ? AND iteration = ?", store.ID(runID), in.Path, in.Iteration)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		out.Existing = true
		tx.Refer(stepRef{RunID: runID, StepID: there[0].ID})
		out.Step, err = stepAnswer(&tx.Queries, runID, there[0].ID)
		return err
	}
	if in.ID == uuid.Nil {
		in.ID = store.NewID()
	}
	c, err := x.Insert(in, tx.By())
	if err != nil {
		return err
	}
	if !child.IsZero() {
		if in.Role == run.RoleGate {
			return fault.Invalid(fault.CodeValidationFailed, "/child", "People do the work of a gate, not a child.")
		}
		a, err := r.attach(tx, &x, child, c.Step.Within(), "/child")
		if err != nil {
			return err
		}
		c = c.With(&x, a, tx.By())
	}
	stored, err := stepRowOf(x.Namespace, &c.Step)
	if err != nil {
		return fmt.Errorf("step %s: %w", c.Step.ID, err)
	}
	n, err := tx.Exec(steps.Insert, steps.All(&stored)...)
	switch {
	case err != nil:
		return fmt.Errorf("insert step: %w", err)
	case n == 0:
		return fault.New(fault.CodeAlreadyExists, "The id %s is taken by another step. Choose another one.", in.ID)
	}
	tx.EmitAll(c.Events)
	return r.answerStep(tx, runID, in.ID, &out.Step, stepRef{RunID: runID, StepID: in.ID})
}

// answerStep reads a step back when everything else is done.
func (*Repo) answerStep(tx *store.Tx, runID, id uuid.UUID, out *run.Step, ref stepRef) error {
	tx.Refer(ref)
	tx.Final(func() (err error) {
		*out, err = stepAnswer(&tx.Queries, runID, id)
		return err
	})
	return nil
}

// UpdateStep changes a step as its engine says. It returns CodeNotFound, CodeLeaseLost, and the refusals of [run.Step.Update] and of the
// child that is to do its work from now on. reference: runs-and-taskflows.md A5.7.
func (r *Repo) UpdateStep(ctx context.Context, runID, id uuid.UUID, generation int64, u run.StepUpdate, child *run.Child) (out run.StepUpdated, err error) {
	err = r.executions.Making(ctx, func() error {
		out, err = store.Write(ctx, r.store, func(tx *store.Tx, out *run.StepUpdated) error {
			return r.updateStep(tx, runID, id, generation, u, child, out)
		}, store.Reload(func(ctx context.Context, kept stepRef) (run.StepUpdated, error) {
			s, err := r.Step(ctx, kept.RunID, kept.StepID)
			return run.StepUpdated{Step: s, Applied: kept.Applied}, err
		}))
		return err
	})
	return out, err
}

func (r *Repo) updateStep(tx *store.Tx, runID, id uuid.UUID, generation int64, u run.StepUpdate, child *run.Child, out *run.StepUpdated) error {
	if err := r.holdFlows(tx, runID, child); err != nil {
		return err
	}
	if u.Status.Terminal() || u.RetryCount != nil { // a child may end with it
		if err := r.holdBelow(tx, tx.Call.Namespace, runID); err != nil {
			return err
		}
	}
	x, err := r.engine(tx, runID, generation)
	if err != nil {
		return err
	}
	s, err := findStep(&tx.Queries, runID, id)
	if err != nil {
		return err
	}
	u.WaitID = store.NewID()
	c, err := s.Update(&x, u, tx.By())
	if err != nil {
		return err
	}
	if !child.IsZero() && !s.Status.Terminal() {
		if err := x.Begins(); err != nil {
			return err
		}
		if c.Step.HasChild() || c.Step.Gate != nil || c.Step.Status.Terminal() || c.Step.Status == run.StepWaiting {
			return fault.Invalid(fault.CodeValidationFailed, "/child", "A child does the work of a step that is pending or running, is no gate and has none.")
		}
		a, err := r.attach(tx, &x, child, c.Step.Within(), "/child")
		if err != nil {
			return err
		}
		c = c.With(&x, a, tx.By())
	}
	out.Applied = c.Applied
	if err := r.saveStep(tx, &x, &s, c); err != nil {
		return err
	}
	return r.answerStep(tx, runID, id, &out.Step, stepRef{runID, id, c.Applied})
}

// saveStep writes what became of a step: its row, its events, the attempt that is over, and what follows for its gate, its items and
// its children.
func (r *Repo) saveStep(tx *store.Tx, x *run.Run, before *run.Step, c run.StepChanged) error {
	if !c.Applied {
		return nil
	}
	after := &c.Step
	defer tx.Because(tell(tx, c.Events)) // also of the end of its items
	if c.Ended {
		if err := r.endItems(tx, x, after); err != nil {
			return err
		}
	}
	stored, err := stepRowOf(x.Namespace, after)
	if err != nil {
		return fmt.Errorf("step %s: %w", after.ID, err)
	}
	if err := tx.ExecOne(steps.Update, append(steps.Moving(&stored), stored.ID)...); err != nil {
		return fmt.Errorf("update step %s: %w", after.ID, err)
	}
	if a := c.Closed; a != nil {
		err := tx.ExecOne(`INSERT INTO run_step_attempts (step_id, attempt_index, status, child_run_id, child_execution_id, started_at, ended_at, step_error)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, stored.ID, a.Index, string(a.Status), store.Text(a.ChildRunID), store.ID(a.ChildExecution), store.Millis(a.StartedAt),
			store.Millis(a.EndedAt), store.Text(a.StepError))
		if err != nil {
			return fmt.Errorf("close an attempt at step %s: %w", after.ID, err)
		}
	}
	if before.Gate.Open() && (!after.Gate.Open() || after.Gate.WaitID != before.Gate.WaitID) {
		if _, err := r.waits.Close(tx, before.Gate.WaitID); err != nil {
			return err
		}
	}
	if after.Gate.Open() && !before.Gate.Open() {
		w := after.Gate.Wait(x, after)
		if err := r.waits.Insert(tx, &w); err != nil {
			return err
		}
	}
	if before.HasChild() && (c.Ended || c.Closed != nil) {
		r.orphaned(tx, x)
	}
	if !c.Ended {
		return nil
	}
	return r.call(tx, x, func(on *run.BlockedOn) bool { return on.StepID == after.ID })
}

// tell emits events of which the first causes the others, and what follows. It returns what the cause was before.
func tell(tx *store.Tx, events []event.Event) (before store.Ref) {
	before = tx.Because(tx.Emit(events[0]))
	tx.EmitAll(events[1:])
	return before
}

// endSteps ends what is open in a run that has ended.
func (r *Repo) endSteps(tx *store.Tx, x *run.Run) error {
	open, err := someSteps(&tx.Queries, "run_id = ? AND ended_at IS NULL ORDER BY id", store.ID(x.ID))
	if err != nil {
		return err
	}
	for i := range open {
		if err := r.saveStep(tx, x, &open[i], open[i].EndWith(x, run.StepCancelled, tx.By())); err != nil {
			return err
		}
	}
	return nil
}

// reset does steps again after a resume.
func (r *Repo) reset(tx *store.Tx, x *run.Run, in run.Resume) error {
	var from int64
	if in.FromStep != "" {
		var at []int64
		if err := tx.Select(&at, `SELECT position FROM run_steps WHERE run_id = ? AND (step_name = ? OR path = ?) ORDER BY position LIMIT 1`, store.ID(x.ID), in.FromStep, in.FromStep); err != nil {
			return fmt.Errorf("look for step %q: %w", in.FromStep, err)
		}
		if len(at) == 0 {
			return fault.Invalid(fault.CodeValidationFailed, "/from_step", "Run %s has no step %q.", x.ID, fault.Readable(in.FromStep))
		}
		from = at[0]
	}
	steps, err := someSteps(&tx.Queries, "run_id = ? ORDER BY id", store.ID(x.ID))
	if err != nil {
		return err
	}
	for i := range steps {
		unbegun := steps[i].Status == run.StepPending && steps[i].Position >= from // it may have items that were begun
		if !unbegun && !steps[i].Again(in, from) {
			continue
		}
		if err := r.resetItems(tx, x, &steps[i], in); err != nil {
			return err
		}
		if unbegun {
			continue
		}
		if err := r.saveStep(tx, x, &steps[i], steps[i].Reset(x, tx.By())); err != nil {
			return err
		}
	}
	return nil
}
