package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// mostVotes bounds how many votes of a gate are shown.
const mostVotes = 500

// Gate returns one gate of a run of the caller's namespace, with what people said to it. It returns CodeNotFound and CodeNotAGate.
func (r *Repo) Gate(ctx context.Context, runID, stepID uuid.UUID) (out run.GateAt, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		out, err = gateAt(q, call.From(ctx).Namespace, runID, stepID)
		return err
	})
	return out, err
}

func gateAt(q *store.Queries, namespace string, runID, stepID uuid.UUID) (out run.GateAt, err error) {
	if out.Run, err = find(q, namespace, runID, ""); err != nil {
		return out, err
	}
	if out.Step, err = stepAnswer(q, runID, stepID); err != nil {
		return out, err
	}
	if out.Step.Gate == nil {
		return out, out.Step.NotAGate()
	}
	err = q.Get(&out.Approvals, `SELECT count(DISTINCT voter) FROM gate_votes WHERE step_id = ? AND attempt = ? AND decision = 'approved'`, store.ID(stepID), out.Step.RetryCount)
	if err != nil {
		return out, fmt.Errorf("count the approvals of gate %s: %w", stepID, err)
	}
	out.Votes, err = votes(q, &out.Step, "ORDER BY (decision = 'feedback'), id DESC LIMIT ?", mostVotes) // of too many the notes, and the oldest, are left out
	slices.SortFunc(out.Votes, func(a, b run.Vote) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out, err
}

type voteRow struct {
	ID         store.ID     `db:"id"`
	Attempt    int          `db:"attempt"`
	Voter      string       `db:"voter"`
	Actor      string       `db:"actor"`
	Decision   string       `db:"decision"`
	Feedback   store.Text   `db:"feedback"`
	Selections store.JSON   `db:"selections"`
	At         store.Millis `db:"at"`
}

// votes reads what was said to the gate of a step, in its present attempt.
func votes(q *store.Queries, s *run.Step, rest string, args ...any) ([]run.Vote, error) {
	var rows []voteRow
	err := q.Select(&rows, `SELECT id, attempt, voter, actor, decision, feedback, selections, at FROM gate_votes WHERE step_id = ? AND attempt = ? `+rest,
		append([]any{store.ID(s.ID), s.RetryCount}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read the votes of gate %s: %w", s.ID, err)
	}
	list := make([]run.Vote, len(rows))
	for i, v := range rows {
		list[i] = run.Vote{ID: uuid.UUID(v.ID), Attempt: v.Attempt, Voter: v.Voter, Actor: v.Actor, Decision: run.Decision(v.Decision), Feedback: string(v.Feedback), At: time.Time(v.At)}
		if v.Selections != nil {
			if err := json.Unmarshal(v.Selections, &list[i].Selections); err != nil {
				return nil, store.Corrupt("vote", list[i].ID, err)
			}
		}
	}
	return list, nil
}

// gateRef stands for a gate in an answer that was not kept.
type gateRef struct {
	RunID, StepID uuid.UUID
	Replayed      bool
}

// Vote notes what somebody says to a gate: enough approvals by distinct people, or one rejection, give it its outcome. The same said
// again changes nothing. It returns CodeNotFound and the refusals of [run.Step.Admits].
// reference: runs-and-taskflows.md A6.4, A6.5, A6.9, A13 4.
func (r *Repo) Vote(ctx context.Context, runID, stepID uuid.UUID, v run.Vote) (run.GateAt, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.GateAt) error {
		replayed, err := r.vote(tx, tx.Call.Namespace, runID, stepID, v)
		if err != nil {
			return err
		}
		tx.Refer(gateRef{runID, stepID, replayed})
		tx.Final(func() (err error) {
			*out, err = gateAt(&tx.Queries, tx.Call.Namespace, runID, stepID)
			out.Replayed = replayed
			return err
		})
		return nil
	}, store.Reload(func(ctx context.Context, kept gateRef) (run.GateAt, error) {
		out, err := r.Gate(ctx, kept.RunID, kept.StepID)
		out.Replayed = kept.Replayed
		return out, err
	}))
}

// vote is Vote in a transaction, and says whether the same was said before.
func (r *Repo) vote(tx *store.Tx, namespace string, runID, stepID uuid.UUID, v run.Vote) (replayed bool, err error) {
	x, err := find(&tx.Queries, namespace, runID, tx.ForUpdate())
	if err != nil {
		return false, err
	}
	tx.Later()
	s, err := findStep(&tx.Queries, runID, stepID)
	if err != nil {
		return false, err
	}
	v.ID, v.Attempt, v.Actor, v.At = store.NewID(), s.RetryCount, tx.Call.Actor, tx.Now()
	if v.Voter = strings.TrimSpace(v.Voter); v.Voter == "" {
		v.Voter = v.Actor
	}
	if s.Gate != nil {
		before, err := votes(&tx.Queries, &s, "AND voter = ? AND decision = ? ORDER BY id", v.Voter, string(v.Decision))
		if err != nil {
			return false, err
		}
		for i := range before {
			if before[i].Same(&v) {
				return true, nil
			}
		}
	}
	if err := s.Admits(&x, &v); err != nil {
		return false, err
	}
	if err := insertVote(tx, stepID, &v); err != nil {
		return false, err
	}
	if v.Decision == run.Note {
		tx.Emit(s.Voted(&x, &v))
		return false, nil
	}
	taken, err := r.waits.Take(tx, s.Gate.WaitID, v.Signal(&s))
	switch {
	case err != nil:
		return false, err
	case !taken.Open:
		return false, store.Corrupt("gate", stepID, errWait)
	case !taken.Decided:
		tx.Emit(s.Voted(&x, &v))
		return false, nil
	}
	return false, r.saveStep(tx, &x, &s, s.Decided(&x, &v, tx.By()))
}

func insertVote(tx *store.Tx, stepID uuid.UUID, v *run.Vote) error {
	var selections store.JSON
	if v.Selections != nil {
		var err error
		if selections, err = json.Marshal(v.Selections); err != nil {
			return fmt.Errorf("selections of a vote: %w", err)
		}
	}
	err := tx.ExecOne(`INSERT INTO gate_votes (id, step_id, attempt, voter, actor, decision, feedback, selections, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		store.ID(v.ID), store.ID(stepID), v.Attempt, v.Voter, v.Actor, string(v.Decision), store.Text(v.Feedback), selections, store.Millis(v.At))
	if err != nil {
		return fmt.Errorf("note a vote on gate %s: %w", stepID, err)
	}
	return nil
}

// Gates lists the gates of the caller's namespace that have been opened, the newest first.
func (r *Repo) Gates(ctx context.Context, f run.GateFilter, after page.Cursor, limit int) (page.Page[run.GateAt], error) {
	var list []run.GateAt
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("namespace = ? AND gate_opened_at IS NOT NULL", call.From(ctx).Namespace)
		if f.RunID != uuid.Nil { // by the run's index
			if _, err := find(q, call.From(ctx).Namespace, f.RunID, ""); fault.CodeOf(err) == fault.CodeNotFound {
				return nil
			} else if err != nil {
				return err
			}
			where = store.NewWhere("run_id = ? AND gate_opened_at IS NOT NULL", store.ID(f.RunID))
		}
		if f.State == run.GatePending {
			where.And("gate_outcome = 'pending'") // as its index has it
		} else {
			where.If(f.State != "", "gate_outcome = ?", string(f.State))
		}
		where.If(f.Type != "", "gate_type = ?", f.Type)
		where.If(f.WorkflowName != "", "run_id IN (SELECT id FROM runs WHERE namespace = ? AND workflow_name = ?)", call.From(ctx).Namespace, f.WorkflowName)
		where.If(!after.IsZero(), "(gate_opened_at, id) < (?, ?)", after.At, store.ID(after.ID))
		steps, err := someSteps(q, where.String()+" ORDER BY gate_opened_at DESC, id DESC LIMIT ?", where.Args(limit+1)...)
		if err != nil {
			return err
		}
		list, err = withRuns(q, steps)
		return err
	})
	return page.Of(list, limit, func(g run.GateAt) page.Cursor { return page.After(g.Step.Gate.OpenedAt, g.Step.ID) }), err
}

// withRuns gives gates the runs that they are in.
func withRuns(q *store.Queries, steps []run.Step) ([]run.GateAt, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	ids := make([]store.ID, len(steps))
	for i := range steps {
		ids[i] = store.ID(steps[i].RunID)
	}
	var rows []row
	if err := q.Select(&rows, "SELECT "+columns+" FROM runs WHERE id IN ?", store.List(ids)); err != nil {
		return nil, fmt.Errorf("read the runs of gates: %w", err)
	}
	runs, err := runsOf(rows)
	if err != nil {
		return nil, err
	}
	of := make(map[uuid.UUID]run.Run, len(runs))
	for i := range runs {
		of[runs[i].ID] = runs[i]
	}
	list := make([]run.GateAt, len(steps))
	for i := range steps {
		list[i] = run.GateAt{Run: of[steps[i].RunID], Step: steps[i]}
	}
	return list, nil
}

// Asked returns the gates of some steps that people are asked at, by the steps' ids.
func (r *Repo) Asked(ctx context.Context, stepIDs []uuid.UUID) (map[uuid.UUID]run.GateAt, error) {
	asked := make(map[uuid.UUID]run.GateAt, len(stepIDs))
	if len(stepIDs) == 0 {
		return asked, nil
	}
	err := r.store.Read(ctx, func(q *store.Queries) error {
		steps, err := someSteps(q, "id IN ?", store.List(store.IDs(stepIDs)))
		if err != nil {
			return err
		}
		list, err := withRuns(q, steps)
		for i := range list {
			asked[list[i].Step.ID] = list[i]
		}
		return err
	})
	return asked, err
}

// mostPassed bounds how many gates are counted.
const mostPassed = 10_000

// GateStats tells how the gates of the caller's namespace went that were opened since a time, the last ten thousand of them.
func (r *Repo) GateStats(ctx context.Context, f run.StatsFilter) ([]run.GateStats, error) {
	var gates []run.Passed
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("s.namespace = ? AND s.gate_opened_at >= ? AND s.gate_outcome <> 'pending'", call.From(ctx).Namespace, store.Millis(f.Since))
		where.If(f.Type != "", "s.gate_type = ?", f.Type)
		where.If(f.WorkflowName != "", "r.workflow_name = ?", f.WorkflowName)
		var rows []struct {
			Workflow string       `db:"workflow_name"`
			Step     string       `db:"step_name"`
			Type     string       `db:"gate_type"`
			Outcome  string       `db:"gate_outcome"`
			Opened   store.Millis `db:"gate_opened_at"`
			Resolved store.Millis `db:"gate_resolved_at"`
			Gate     store.JSON   `db:"gate"`
		}
		err := q.Select(&rows, `SELECT r.workflow_name, s.step_name, s.gate_type, s.gate_outcome, s.gate_opened_at, s.gate_resolved_at, s.gate
			FROM run_steps s JOIN runs r ON r.id = s.run_id WHERE `+where.String()+` ORDER BY s.gate_opened_at DESC, s.id DESC LIMIT ?`, where.Args(mostPassed)...)
		if err != nil {
			return fmt.Errorf("read gates: %w", err)
		}
		for _, g := range rows {
			var gate run.Gate
			if err := json.Unmarshal(g.Gate, &gate); err != nil {
				return store.Corrupt("gate", g.Step, err)
			}
			gates = append(gates, run.Passed{WorkflowName: g.Workflow, StepName: g.Step, GateType: g.Type, Outcome: run.GateOutcome(g.Outcome),
				Wait: time.Time(g.Resolved).Sub(time.Time(g.Opened)), Feedback: len([]rune(gate.Feedback))})
		}
		return nil
	})
	return run.StatsOf(gates), err
}

// GateToken returns the token of an open gate: whoever has its link may answer it. It returns CodeNotFound, also when the gate is
// not open, and CodeNotAGate.
func (r *Repo) GateToken(ctx context.Context, runID, stepID uuid.UUID) (t waitpoint.Token, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		g, err := gateAt(q, call.From(ctx).Namespace, runID, stepID)
		if err != nil {
			return err
		}
		if !g.Step.Gate.Open() {
			return fault.New(fault.CodeNotFound, "Gate %s is %s and has no link. Only an open gate has one.", stepID, g.Step.Gate.Outcome).With("resource", "token")
		}
		ring, err := r.keys.Ring(q)
		if err != nil {
			return err
		}
		t, err = ring.MintGate(runID, stepID, g.Step.RetryCount)
		return err
	})
	return t, err
}

// AskedBy returns what somebody sees who comes with the token of a gate, in whatever namespace that is. It returns CodeInvalidToken, the
// same whatever is wrong.
func (r *Repo) AskedBy(ctx context.Context, stepID uuid.UUID, token waitpoint.Token) (out run.GateAt, now time.Time, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		ring, err := r.keys.Ring(q)
		if err != nil {
			return err
		}
		var of struct {
			RunID     store.ID `db:"run_id"`
			Namespace string   `db:"namespace"`
			Attempt   int      `db:"retry_count"`
		}
		if err := q.Get(&of, `SELECT run_id, namespace, retry_count FROM run_steps WHERE id = ? AND role = 'gate'`, store.ID(stepID)); err != nil && !store.NotFound(err) {
			return fmt.Errorf("read gate %s: %w", stepID, err)
		}
		if err := ring.VerifyGate(token.Reveal(), uuid.UUID(of.RunID), stepID, of.Attempt, q.Now()); err != nil {
			return err
		}
		now = q.Now()
		out, err = gateAt(q, of.Namespace, uuid.UUID(of.RunID), stepID)
		return err
	})
	return out, now, err
}
