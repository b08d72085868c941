package run

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// stepRow is a stored step. Its counts of items are moved by statements of their own.
type stepRow struct {
	ID            store.ID     `db:"id"`
	RunID         store.ID     `db:"run_id"`
	Namespace     string       `db:"namespace"`
	Path          string       `db:"path"`
	Name          string       `db:"step_name"`
	Role          string       `db:"role"`
	Position      int64        `db:"position"`
	Iteration     int          `db:"iteration"`
	CanCommit     int          `db:"can_commit"`
	ParallelGroup store.Text   `db:"parallel_group_id"`
	CreatedAt     store.Millis `db:"created_at"`

	// These are moved by statements of their own.
	ItemsPending   int `db:"items_pending"`
	ItemsRunning   int `db:"items_running"`
	ItemsCompleted int `db:"items_completed"`
	ItemsFailed    int `db:"items_failed"`
	ItemsSkipped   int `db:"items_skipped"`
	ItemsCancelled int `db:"items_cancelled"`

	Status         string       `db:"status" row:"moving"`
	RetryCount     int          `db:"retry_count"`
	ChildRunID     store.Text   `db:"child_run_id"`
	ChildLinked    int          `db:"child_linked"`
	ChildExecution store.ID     `db:"child_execution_id"`
	StartedAt      store.Millis `db:"started_at"`
	AttemptStarted store.Millis `db:"attempt_started_at"`
	EndedAt        store.Millis `db:"ended_at"`
	ResultText     store.Text   `db:"result_text"`
	ContextOut     store.Text   `db:"context_out"`
	Markers        store.JSON   `db:"markers_out"`
	Structured     store.JSON   `db:"structured_output"`
	StepError      store.Text   `db:"step_error"`
	Gate           store.JSON   `db:"gate"`
	GateType       store.Text   `db:"gate_type"`
	GateOutcome    store.Text   `db:"gate_outcome"`
	GateOpenedAt   store.Millis `db:"gate_opened_at"`
	GateResolvedAt store.Millis `db:"gate_resolved_at"`
}

var (
	steps       = store.TableOf[stepRow]("run_steps")
	selectSteps = "SELECT " + steps.Columns + " FROM run_steps"
)

func stepRowOf(namespace string, s *run.Step) (stepRow, error) {
	r := stepRow{
		ID: store.ID(s.ID), RunID: store.ID(s.RunID), Namespace: namespace, Path: s.Path, Name: s.Name, Role: string(s.Role), Position: s.Position, Iteration: s.Iteration,
		CanCommit: store.Bit(s.CanCommit), ParallelGroup: store.Text(s.ParallelGroup), CreatedAt: store.Millis(s.CreatedAt), Status: string(s.Status), RetryCount: s.RetryCount,
		ChildRunID: store.Text(s.ChildRunID), ChildLinked: store.Bit(s.ChildLinked), ChildExecution: store.ID(s.ChildExecution), StartedAt: store.Millis(s.StartedAt),
		AttemptStarted: store.Millis(s.AttemptStarted), EndedAt: store.Millis(s.EndedAt), ResultText: store.Text(s.ResultText), ContextOut: store.Text(s.ContextOut),
		Structured: store.JSON(s.Structured), StepError: store.Text(s.StepError),
	}
	var err error
	if s.Markers != nil {
		r.Markers, err = json.Marshal(s.Markers)
	}
	if g := s.Gate; g != nil && err == nil {
		r.GateType, r.GateOutcome, r.GateOpenedAt, r.GateResolvedAt = store.Text(g.Type), store.Text(g.Outcome), store.Millis(g.OpenedAt), store.Millis(g.ResolvedAt)
		r.Gate, err = json.Marshal(g)
	}
	return r, err
}

// step returns the step that r stores. It returns CodeCorruptRecord for a row that cannot be one.
func (r *stepRow) step() (run.Step, error) {
	s := run.Step{
		ID: uuid.UUID(r.ID), RunID: uuid.UUID(r.RunID), Path: r.Path, Name: r.Name, Role: run.Role(r.Role), Status: run.StepStatus(r.Status), Position: r.Position,
		Iteration: r.Iteration, RetryCount: r.RetryCount, CanCommit: r.CanCommit == 1, ParallelGroup: string(r.ParallelGroup), ChildRunID: string(r.ChildRunID),
		ChildLinked: r.ChildLinked == 1, ChildExecution: uuid.UUID(r.ChildExecution), CreatedAt: time.Time(r.CreatedAt), StartedAt: time.Time(r.StartedAt),
		AttemptStarted: time.Time(r.AttemptStarted), EndedAt: time.Time(r.EndedAt), ResultText: string(r.ResultText), ContextOut: string(r.ContextOut),
		Structured: json.RawMessage(r.Structured), StepError: string(r.StepError),
		FanOut: run.Counts{run.ItemPending: r.ItemsPending, run.ItemRunning: r.ItemsRunning, run.ItemCompleted: r.ItemsCompleted, run.ItemFailed: r.ItemsFailed,
			run.ItemSkipped: r.ItemsSkipped, run.ItemCancelled: r.ItemsCancelled},
	}
	var err error
	if r.Markers != nil {
		err = json.Unmarshal(r.Markers, &s.Markers)
	}
	if r.Gate != nil && err == nil {
		err = json.Unmarshal(r.Gate, &s.Gate)
	}
	if err == nil && !s.Status.Known() {
		err = errStatus
	}
	if err != nil {
		return s, store.Corrupt("step", s.ID, err)
	}
	return s, nil
}

// findStep reads a step of a run.
func findStep(q *store.Queries, runID, id uuid.UUID) (run.Step, error) {
	var found stepRow
	if err := q.Find(&found, "step", id, selectSteps+" WHERE id = ? AND run_id = ?", store.ID(id), store.ID(runID)); err != nil {
		return run.Step{}, err
	}
	return found.step()
}

// someSteps reads the steps that a condition selects.
func someSteps(q *store.Queries, condition string, args ...any) ([]run.Step, error) {
	var rows []stepRow
	if err := q.Select(&rows, selectSteps+" WHERE "+condition, args...); err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	return store.Rows(rows, (*stepRow).step)
}

type attemptRow struct {
	StepID         store.ID     `db:"step_id"`
	Index          int          `db:"attempt_index"`
	Status         string       `db:"status"`
	ChildRunID     store.Text   `db:"child_run_id"`
	ChildExecution store.ID     `db:"child_execution_id"`
	StartedAt      store.Millis `db:"started_at"`
	EndedAt        store.Millis `db:"ended_at"`
	StepError      store.Text   `db:"step_error"`
}

// withAttempts gives steps their earlier attempts.
func withAttempts(q *store.Queries, steps []run.Step) error {
	var ids []store.ID
	at := map[uuid.UUID]int{}
	for i := range steps {
		if steps[i].RetryCount > 0 {
			ids = append(ids, store.ID(steps[i].ID))
			at[steps[i].ID] = i
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var rows []attemptRow
	err := q.Select(&rows, `SELECT step_id, attempt_index, status, child_run_id, child_execution_id, started_at, ended_at, step_error FROM run_step_attempts
		WHERE step_id IN ? ORDER BY step_id, attempt_index`, store.List(ids))
	if err != nil {
		return fmt.Errorf("read the attempts at steps: %w", err)
	}
	for _, a := range rows {
		s := &steps[at[uuid.UUID(a.StepID)]]
		s.EarlierAttempts = append(s.EarlierAttempts, run.Attempt{Index: a.Index, Status: run.StepStatus(a.Status), ChildRunID: string(a.ChildRunID),
			ChildExecution: uuid.UUID(a.ChildExecution), StartedAt: time.Time(a.StartedAt), EndedAt: time.Time(a.EndedAt), StepError: string(a.StepError)})
	}
	return nil
}
