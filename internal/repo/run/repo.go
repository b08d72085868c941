// Package run keeps workflow runs with their steps, items and gates: rows, queries and transactions of one subject. Every method
// that changes something is one transaction; what it decides is decided by the machine in domain/run.
//
// Locks are taken in one order: children, then the run that they work for, then items, and steps last. Whoever changes what is in a run has
// locked the run; only the end of an item's child leaves it alone, so that many can end at a time: it locks the item, and counts it at its
// step in the end. Whoever ends children because of a run locks those that it knows of first.
package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
)

// Config says how the repository behaves. Zero values are defaults.
type Config struct {
	// Horizon is how far ahead deadlines may lie.
	Horizon time.Duration
	// Batch is how many children one transaction ends because of their run.
	Batch int
}

// Repo is the store of runs.
type Repo struct {
	store      *store.Store
	waits      *waitrepo.Repo
	executions Executions
	flows      Flows
	keys       Keys
	cfg        Config
}

// Executions is the store of executions, as far as runs need it.
type Executions interface {
	// Making runs a transaction that may make executions, and makes what it needs for them first.
	Making(ctx context.Context, write func() error) error
	// Add makes an execution in a transaction.
	Add(tx *store.Tx, in execution.Create) (execution.Created, error)
	// Link lets an execution work for a run. It returns CodeNotFound, and CodeAlreadyMember when it works for another one.
	Link(tx *store.Tx, id, runID uuid.UUID) (execution.Execution, error)
	// Known returns an execution of the caller's namespace, and what it was completed with, nil for nothing.
	Known(tx *store.Tx, id uuid.UUID) (execution.Execution, *execution.Value, error)
	// HoldWork locks up to limit executions that work for a run and have not ended, before the run itself.
	HoldWork(tx *store.Tx, runID uuid.UUID, limit int) error
	// HoldThese locks executions, before the run that they work for.
	HoldThese(tx *store.Tx, ids []uuid.UUID) error
	// OpenWork returns the executions that work for a run and have not ended.
	OpenWork(tx *store.Tx, runID uuid.UUID) ([]uuid.UUID, error)
	// UnaskedWork returns those of them that were not asked to end by a time.
	UnaskedWork(tx *store.Tx, runID uuid.UUID, by time.Time) ([]uuid.UUID, error)
	// EndWork cancels executions that have not ended; those that somebody holds get the grace.
	EndWork(tx *store.Tx, ids []uuid.UUID, end execution.Cascade) error
	// DropWork deletes the executions that work for a run and belong to no flow, and lets the others go.
	DropWork(tx *store.Tx, runID uuid.UUID) (int, error)
	// CountWork counts those that DropWork would delete.
	CountWork(tx *store.Tx, runID uuid.UUID) (int, error)
	// Work returns up to limit executions that work for some runs, or are members of some flows, or are named, with their attempts. They
	// come without their documents.
	Work(q *store.Queries, of execution.WorkOf, limit int) ([]execution.Worked, error)
}

// Flows is the store of flows, as far as runs need it.
type Flows interface {
	// AddRun gives a flow a step that mirrors a run. It returns CodeNotFound and CodeAlreadyTerminal.
	AddRun(tx *store.Tx, flowID, runID uuid.UUID, task string, child flow.Child) error
	// Lock locks flows, in the order of their ids.
	Lock(tx *store.Tx, ids []uuid.UUID) error
	// MirrorRun makes the steps of flows equal to the run that they are linked to.
	MirrorRun(tx *store.Tx, runID uuid.UUID, child flow.Child) error
	// Find reads a flow of a namespace. It returns CodeNotFound.
	Find(q *store.Queries, namespace string, id uuid.UUID) (flow.Flow, error)
}

// Keys are the secrets that the tokens of gates are made with.
type Keys interface {
	Ring(q *store.Queries) (waitpoint.Ring, error)
}

var _ waitrepo.Owner = (*Repo)(nil)

// New returns a repository on s. Its waits are kept by waits, which calls it back once it is attached there.
func New(s *store.Store, waits *waitrepo.Repo, executions Executions, flows Flows, keys Keys, cfg Config) *Repo {
	if cfg.Horizon <= 0 {
		cfg.Horizon = wait.DefaultHorizon
	}
	cfg.Batch = cmp.Or(cfg.Batch, backlog.Batch)
	return &Repo{store: s, waits: waits, executions: executions, flows: flows, keys: keys, cfg: cfg}
}

// Run returns one run of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Run(ctx context.Context, id uuid.UUID) (run.Run, error) {
	var x run.Run
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		x, err = find(q, call.From(ctx).Namespace, id, "")
		return err
	})
	return x, err
}

// find reads a run. lock is a locking clause, or "".
func find(q *store.Queries, namespace string, id uuid.UUID, lock string) (run.Run, error) {
	var found row
	if err := q.Find(&found, "run", id, "SELECT "+columns+" FROM runs WHERE id = ? AND namespace = ?"+lock, store.ID(id), namespace); err != nil {
		return run.Run{}, err
	}
	return found.run()
}

// hold reads a run of the caller's namespace and locks it.
func (*Repo) hold(tx *store.Tx, id uuid.UUID) (run.Run, error) {
	return holdIn(tx, tx.Call.Namespace, id)
}

// holdIn is hold of a namespace.
func holdIn(tx *store.Tx, namespace string, id uuid.UUID) (run.Run, error) {
	x, err := find(&tx.Queries, namespace, id, tx.ForUpdate())
	tx.Later()
	return x, err
}

// Runs lists the runs of the caller's namespace, newest first.
func (r *Repo) Runs(ctx context.Context, f run.Filter, after page.Cursor, limit int) (page.Page[run.Run], error) {
	var list []run.Run
	err := r.store.Read(ctx, func(q *store.Queries) error {
		where := store.NewWhere("namespace = ?", call.From(ctx).Namespace)
		if len(f.Statuses) > 0 {
			where.And("status IN ?", store.List(f.Statuses))
			ended := slices.ContainsFunc(f.Statuses, run.Status.Terminal)
			where.If(!ended, "ended_at IS NULL") // as the index of what is open has it
		}
		where.If(f.WorkflowName != "", "workflow_name = ?", f.WorkflowName)
		where.If(f.Trigger != "", "trigger = ?", f.Trigger)
		where.If(f.ParentRunID != "", "parent_run_id = ?", f.ParentRunID)
		where.If(f.ParentWorkflowRunID != uuid.Nil, "parent_workflow_run_id = ?", store.ID(f.ParentWorkflowRunID))
		where.If(f.FlowID != uuid.Nil, "flow_id = ?", store.ID(f.FlowID))
		where.If(f.Root, "parent_workflow_run_id IS NULL")
		if f.Dismissed != nil {
			where.And("dismissed = ?", store.Bit(*f.Dismissed))
		}
		where.If(!after.IsZero(), "(created_at, id) < (?, ?)", after.At, store.ID(after.ID))
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM runs WHERE "+where.String()+" ORDER BY created_at DESC, id DESC LIMIT ?", where.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		list, err = runsOf(rows)
		return err
	})
	return page.Of(list, limit, func(x run.Run) page.Cursor { return page.After(x.CreatedAt, x.ID) }), err
}
