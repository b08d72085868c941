package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// stepRow is a stored step.
type stepRow struct {
	ID              store.ID     `db:"id"`
	FlowID          store.ID     `db:"flow_id"`
	RunID           string       `db:"run_id"`
	Position        int64        `db:"position"`
	Runtime         string       `db:"runtime"`
	CreatedAt       store.Millis `db:"created_at"`
	ChildSessionKey store.Text   `db:"child_session_key" row:"moving"`
	Task            string       `db:"task"`
	Status          string       `db:"status"`
	Result          store.JSON   `db:"result"`
	ExecutionID     store.ID     `db:"execution_id"`
	WorkflowRunID   store.ID     `db:"workflow_run_id"`
	UpdatedAt       store.Millis `db:"updated_at"`
}

var (
	steps       = store.TableOf[stepRow]("flow_steps")
	selectSteps = "SELECT " + steps.Columns + " FROM flow_steps"
)

var errResult = errors.New("the result is not JSON")

func stepRowOf(s *flow.Step) stepRow {
	return stepRow{
		ID: store.ID(s.ID), FlowID: store.ID(s.FlowID), RunID: s.RunID, Position: s.Position, Runtime: string(s.Runtime), CreatedAt: store.Millis(s.CreatedAt),
		ChildSessionKey: store.Text(s.ChildSessionKey), Task: s.Task, Status: string(s.Status), Result: store.JSON(s.Result),
		ExecutionID: store.ID(s.ExecutionID), WorkflowRunID: store.ID(s.WorkflowRunID), UpdatedAt: store.Millis(s.UpdatedAt),
	}
}

// step returns the step that r stores. It returns CodeCorruptRecord for a row that cannot be one.
func (r *stepRow) step() (flow.Step, error) {
	s := flow.Step{
		ID: uuid.UUID(r.ID), FlowID: uuid.UUID(r.FlowID), RunID: r.RunID, Position: r.Position, Runtime: flow.Runtime(r.Runtime),
		ChildSessionKey: string(r.ChildSessionKey), Task: r.Task, Status: flow.StepStatus(r.Status), Result: json.RawMessage(r.Result),
		ExecutionID: uuid.UUID(r.ExecutionID), WorkflowRunID: uuid.UUID(r.WorkflowRunID),
		CreatedAt: time.Time(r.CreatedAt), UpdatedAt: time.Time(r.UpdatedAt),
	}
	switch {
	case !s.Status.Known():
		return s, store.Corrupt("step", s.ID, errStatus)
	case s.Result != nil && !json.Valid(s.Result):
		return s, store.Corrupt("step", s.ID, errResult)
	}
	return s, nil
}

// Steps lists the steps of a flow of the caller's namespace, in the order in which they were added; those in one status, if
// one is given. It returns CodeNotFound.
func (r *Repo) Steps(ctx context.Context, id uuid.UUID, status flow.StepStatus, after page.Cursor, limit int) (page.Page[flow.Step], error) {
	var list []flow.Step
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if err := exists(q, call.From(ctx).Namespace, id); err != nil {
			return err
		}
		where := store.NewWhere("flow_id = ? AND position > ?", store.ID(id), after.At)
		where.If(status != "", "status = ?", string(status))
		var rows []stepRow
		if err := q.Select(&rows, selectSteps+" WHERE "+where.String()+" ORDER BY position LIMIT ?", where.Args(limit+1)...); err != nil {
			return fmt.Errorf("list the steps of flow %s: %w", id, err)
		}
		var err error
		list, err = store.Rows(rows, (*stepRow).step)
		return err
	})
	return page.Of(list, limit, func(s flow.Step) page.Cursor { return page.Cursor{At: s.Position, ID: s.ID} }), err
}

// Step returns one step of a flow of the caller's namespace by its run_id. It returns CodeNotFound.
func (r *Repo) Step(ctx context.Context, id uuid.UUID, runID string) (flow.Step, error) {
	var s flow.Step
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if err := exists(q, call.From(ctx).Namespace, id); err != nil {
			return err
		}
		found, ok, err := findStep(q, id, runID, "")
		if err == nil && !ok {
			err = fault.NotFound("step", runID)
		}
		s = found
		return err
	})
	return s, err
}

// findStep reads a step, and says whether there is one. lock is a locking clause, or "".
func findStep(q *store.Queries, flowID uuid.UUID, runID, lock string) (flow.Step, bool, error) {
	var found stepRow
	err := q.Get(&found, selectSteps+" WHERE flow_id = ? AND run_id = ?"+lock, store.ID(flowID), runID)
	switch {
	case store.NotFound(err):
		return flow.Step{}, false, nil
	case err != nil:
		return flow.Step{}, false, fmt.Errorf("read step %s of flow %s: %w", runID, flowID, err)
	}
	s, err := found.step()
	return s, err == nil, err
}

// InsertStep adds a step to a flow. One that names an execution or a run takes its state at once. It returns CodeNotFound for the
// flow and for the child, CodeDuplicateStep, and the refusals of [flow.Flow.Insert].
func (r *Repo) InsertStep(ctx context.Context, id uuid.UUID, in flow.NewStep) (flow.Step, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Step) error {
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if _, ok, err := findStep(&tx.Queries, id, in.RunID, ""); ok || err != nil {
			if err == nil {
				err = fault.New(fault.CodeDuplicateStep, "Flow %s has a step with the run_id %q. Observe it by PUT.", id, in.RunID)
			}
			return err
		}
		*out, err = r.addStep(tx, &f, in, event.StepInserted)
		tx.Refer(stepRef{id, in.RunID})
		return err
	}, store.Reload(r.reloadStep))
}

// stepRef stands for a step in an answer that was not kept.
type stepRef struct {
	FlowID uuid.UUID
	RunID  string
}

func (r *Repo) reloadStep(ctx context.Context, kept stepRef) (flow.Step, error) {
	return r.Step(ctx, kept.FlowID, kept.RunID)
}

// addStep makes a new step of a flow that the transaction holds.
func (r *Repo) addStep(tx *store.Tx, f *flow.Flow, in flow.NewStep, t event.Type) (flow.Step, error) {
	child, err := r.child(tx, in.ExecutionID, in.WorkflowRunID)
	if err != nil {
		return flow.Step{}, err
	}
	return r.insertStep(tx, f, in, child, t)
}

// insertStep makes a step of a flow that the transaction holds. child is what it mirrors, nil for nothing.
func (*Repo) insertStep(tx *store.Tx, f *flow.Flow, in flow.NewStep, child *flow.Child, t event.Type) (flow.Step, error) {
	in.ID = store.NewID()
	if err := tx.Get(&in.Position, `SELECT coalesce(max(position), 0) + 1 FROM flow_steps WHERE flow_id = ?`, store.ID(f.ID)); err != nil {
		return flow.Step{}, fmt.Errorf("count the steps of flow %s: %w", f.ID, err)
	}
	s, err := f.Insert(in, child, tx.By())
	if err != nil {
		return flow.Step{}, err
	}
	stored := stepRowOf(&s)
	if err := tx.ExecOne(steps.Insert, steps.All(&stored)...); err != nil {
		return flow.Step{}, fmt.Errorf("insert step %s of flow %s: %w", s.RunID, f.ID, err)
	}
	tx.Emit(f.StepEvent(t, &s, child))
	return s, nil
}

// ObserveStep records what was observed of a step: it makes it, as a mirrored one, or changes it. Task and status must be
// given. It returns CodeNotFound for the flow and for an execution that the step begins to mirror, and the refusals of
// [flow.Flow.Change]. reference: runs-and-taskflows.md B6, B13 2.
func (r *Repo) ObserveStep(ctx context.Context, id uuid.UUID, runID string, c flow.StepChange) (flow.Observation, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Observation) error {
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		s, ok, err := findStep(&tx.Queries, id, runID, tx.ForUpdate())
		if err != nil {
			return err
		}
		if ok {
			out.Step, err = r.changeStep(tx, &f, s, c, event.StepObserved)
			return err
		}
		out.New = true
		out.Step, err = r.addStep(tx, &f, c.NewStep(runID), event.StepObserved)
		return err
	})
}

// PatchStep changes a step. It returns CodeNotFound for the flow, the step, and an execution that the step begins to mirror,
// and the refusals of [flow.Flow.Change].
func (r *Repo) PatchStep(ctx context.Context, id uuid.UUID, runID string, c flow.StepChange) (flow.Step, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.Step) error {
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		s, ok, err := findStep(&tx.Queries, id, runID, tx.ForUpdate())
		if err == nil && !ok {
			err = fault.NotFound("step", runID)
		}
		if err != nil {
			return err
		}
		*out, err = r.changeStep(tx, &f, s, c, event.StepUpdated)
		return err
	})
}

// changeStep changes a step of a flow that the transaction holds.
func (r *Repo) changeStep(tx *store.Tx, f *flow.Flow, s flow.Step, c flow.StepChange, t event.Type) (flow.Step, error) {
	executionID, runID := c.Links(&s)
	child, err := r.child(tx, executionID, runID)
	if err != nil {
		return flow.Step{}, err
	}
	next, changed, err := f.Change(s, c, child, tx.By())
	if err != nil || !changed {
		return next, err
	}
	if err := saveStep(tx, &next); err != nil {
		return flow.Step{}, err
	}
	tx.Emit(f.StepEvent(t, &next, child))
	return next, nil
}

func saveStep(tx *store.Tx, s *flow.Step) error {
	stored := stepRowOf(s)
	if err := tx.ExecOne(steps.Update, append(steps.Moving(&stored), stored.ID)...); err != nil {
		return fmt.Errorf("update step %s of flow %s: %w", s.RunID, s.FlowID, err)
	}
	return nil
}

// child returns what a step mirrors of an execution or a run that it is linked to now, nil for none. Of both it mirrors the execution.
func (r *Repo) child(tx *store.Tx, executionID, runID uuid.UUID) (*flow.Child, error) {
	if executionID == uuid.Nil && runID == uuid.Nil {
		return nil, nil
	}
	if executionID == uuid.Nil {
		child, err := r.runs.Seen(tx, runID)
		return &child, err
	}
	e, err := r.executions.Follow(tx, executionID)
	if err != nil {
		return nil, err
	}
	result, err := r.result(tx, executionID, e.Public())
	if err != nil {
		return nil, err
	}
	child := flow.ChildOf(e.Public(), e.Attempts > 0, result)
	return &child, nil
}

// result returns what an execution was completed with, nil for nothing.
func (r *Repo) result(tx *store.Tx, id uuid.UUID, p execution.Public) (*execution.Value, error) {
	if p != execution.PublicCompleted {
		return nil, nil
	}
	v, err := r.executions.ResultIn(tx, id)
	switch {
	case fault.CodeOf(err) == fault.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &v, nil
}
