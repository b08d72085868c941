// Package flow keeps flows and their steps: rows, queries and transactions of one subject. Every method that changes
// something is one transaction; what it decides is decided by the machine in domain/flow.
//
// Locks are taken in one order: the keys of a wait, then flows, then executions, steps and waits.
package flow

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// Config says how the repository behaves. Zero values are defaults.
type Config struct {
	// Horizon is how far ahead timers and deadlines may lie.
	Horizon time.Duration
	// Retention says when ended flows are deleted. What it leaves open is kept for ever, unless it leaves all open: then
	// [flow.DefaultRetention] holds.
	Retention flow.Retention
	// Batch is how many members one transaction changes with their flow.
	Batch int
}

// Repo is the store of flows.
type Repo struct {
	store      *store.Store
	waits      *waitrepo.Repo
	executions Executions
	runs       Runs
	cfg        Config
}

// Executions is what flows need to know of executions: those that belong to a flow, and those that a step mirrors.
type Executions interface {
	Members
	Children
}

// Members are the executions that belong to a flow. The transaction holds the flow, whatever its caller's namespace.
type Members interface {
	// LimitsOf returns what budgets and quotas mean for members. It returns CodeNotFound for one that there is not.
	LimitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID) (*execution.Limits, error)
	// OpenMembers returns how many members have not ended.
	OpenMembers(tx *store.Tx, flowID uuid.UUID) (int, error)
	// UnpauseMembers lets up to limit members go on that have waited for the start of their flow, and returns how many it has
	// looked at, 0 when none could.
	UnpauseMembers(tx *store.Tx, flowID uuid.UUID, limit int) (int, error)
	// CancelMembers cancels up to limit members that have not ended.
	CancelMembers(tx *store.Tx, flowID uuid.UUID, end execution.Cascade, limit int) (execution.MembersEnded, error)
	// CountMembers returns how many members are still to end.
	CountMembers(q *store.Queries, flowID uuid.UUID, end execution.Cascade) (int, error)
	// NameMembers returns up to limit of them, and those of these that cannot be read.
	NameMembers(q *store.Queries, flowID uuid.UUID, end execution.Cascade, limit int) (open, failed []uuid.UUID, err error)
	// EndGrace cancels a member that is held and was asked to end; any other stays as it is.
	EndGrace(tx *store.Tx, flowID, id uuid.UUID) error
	// DeleteMembers deletes all members with everything that they own, and returns how many that were.
	DeleteMembers(tx *store.Tx, flowID uuid.UUID) (int, error)
}

// Children are executions that steps mirror, in the namespace of the transaction's caller.
type Children interface {
	// Follow locks an execution and returns it. What becomes of it is told to flows from now on. It returns CodeNotFound.
	Follow(tx *store.Tx, id uuid.UUID) (execution.Execution, error)
	// ResultIn returns what an execution was completed with. It returns CodeNotFound, also while there is no result.
	ResultIn(tx *store.Tx, id uuid.UUID) (execution.Value, error)
}

// Runs are workflow runs that belong to flows, in the namespace of the transaction's caller.
type Runs interface {
	// Seen returns what a step sees of a run, and locks the run. It returns CodeNotFound.
	Seen(tx *store.Tx, id uuid.UUID) (flow.Child, error)
	// EndRest ends those runs of a flow that are still to end with it.
	EndRest(tx *store.Tx, flowID uuid.UUID) error
}

var _ waitrepo.Owner = (*Repo)(nil)

// New returns a repository on s. Its waits are kept by waits, which calls it back once it is attached there.
func New(s *store.Store, waits *waitrepo.Repo, executions Executions, cfg Config) *Repo {
	if cfg.Horizon <= 0 {
		cfg.Horizon = wait.DefaultHorizon
	}
	if cfg.Retention == (flow.Retention{}) {
		cfg.Retention = flow.DefaultRetention()
	}
	cfg.Batch = cmp.Or(cfg.Batch, backlog.Batch)
	return &Repo{store: s, waits: waits, executions: executions, cfg: cfg}
}

// Attach sets whom to ask about runs, before the first call.
func (r *Repo) Attach(runs Runs) { r.runs = runs }

// Flow returns one flow of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Flow(ctx context.Context, id uuid.UUID) (flow.Flow, error) {
	var f flow.Flow
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		f, err = r.find(q, call.From(ctx).Namespace, id, "")
		return err
	})
	return f, err
}

// Find is Flow of a namespace, in a snapshot or a transaction.
func (r *Repo) Find(q *store.Queries, namespace string, id uuid.UUID) (flow.Flow, error) {
	return r.find(q, namespace, id, "")
}

// Exists returns CodeNotFound for a flow that is not in the caller's namespace.
func (r *Repo) Exists(ctx context.Context, id uuid.UUID) error {
	return r.store.Read(ctx, func(q *store.Queries) error { return exists(q, call.From(ctx).Namespace, id) })
}

func exists(q *store.Queries, namespace string, id uuid.UUID) error {
	var one int
	return q.Find(&one, "flow", id, `SELECT 1 FROM flows WHERE id = ? AND namespace = ?`, store.ID(id), namespace)
}

// find reads a flow with its wait. lock is a locking clause, or "".
func (r *Repo) find(q *store.Queries, namespace string, id uuid.UUID, lock string) (flow.Flow, error) {
	found, err := findRow(q, namespace, id, lock)
	if err != nil {
		return flow.Flow{}, err
	}
	flows, err := r.flowsOf(q, []row{found})
	if err != nil {
		return flow.Flow{}, err
	}
	return flows[0], nil
}

func findRow(q *store.Queries, namespace string, id uuid.UUID, lock string) (found row, err error) {
	err = q.Find(&found, "flow", id, "SELECT "+columns+" FROM flows WHERE id = ? AND namespace = ?"+lock, store.ID(id), namespace)
	return found, err
}

// flowsOf returns the flows that rows store, with their waits.
func (r *Repo) flowsOf(q *store.Queries, rows []row) ([]flow.Flow, error) {
	var ids []uuid.UUID
	for i := range rows {
		if id := uuid.UUID(rows[i].WaitID); id != uuid.Nil {
			ids = append(ids, id)
		}
	}
	waits, err := r.waits.Waits(q, ids)
	if err != nil {
		return nil, err
	}
	var rolled []store.ID
	for i := range rows {
		if rows[i].NodeCount > 0 {
			rolled = append(rolled, rows[i].ID)
		}
	}
	rollups, err := rollupsOf(q, rolled)
	if err != nil {
		return nil, err
	}
	flows := make([]flow.Flow, len(rows))
	for i := range rows {
		var open *wait.Wait
		if w, ok := waits[uuid.UUID(rows[i].WaitID)]; ok {
			open = &w
		}
		if flows[i], err = rows[i].flow(open); err != nil {
			return nil, err
		}
		if rollup, ok := rollups[flows[i].ID]; ok {
			flows[i].Rollup = &rollup
		}
	}
	return flows, nil
}

// Flows lists the flows of the caller's namespace, newest first.
func (r *Repo) Flows(ctx context.Context, f flow.Filter, after page.Cursor, limit int) (page.Page[flow.Flow], error) {
	var list []flow.Flow
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("namespace = ?", call.From(ctx).Namespace)
		where.If(f.OwnerSessionKey != "", "owner_session_key = ?", f.OwnerSessionKey)
		where.If(f.Status != "", "status = ?", string(f.Status))
		where.If(f.ControllerID != "", "controller_id = ?", f.ControllerID)
		where.If(f.Kind != "", "kind = ?", f.Kind)
		for _, t := range f.Tags {
			where.And(q.Tag("tags")+" = ?", t.Key, t.Value)
		}
		where.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM flows WHERE "+where.String()+" ORDER BY created_at DESC, id DESC LIMIT ?", where.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list flows: %w", err)
		}
		list, err = r.flowsOf(q, rows)
		return err
	})
	return page.Of(list, limit, func(f flow.Flow) page.Cursor { return page.After(f.CreatedAt, f.ID) }), err
}
