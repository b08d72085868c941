package execution

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
)

// Loop is the name of the sweep over executions that are due.
const Loop = "executions"

var errIllegal = errors.New("the state vector is not a legal one")

// Repo is the store of executions.
type Repo struct {
	store   *store.Store
	waits   *waitrepo.Repo
	keys    Keys
	flows   Flows
	graph   Graph
	budgets Budgets
	quotas  Quotas
	buckets buckets
	lanes   *lanes
}

// Keys are the secrets that tokens of waitpoints are made with.
type Keys interface {
	Ring(q *store.Queries) (waitpoint.Ring, error)
}

// Flows is what executions need to know of the flow that they are created in.
type Flows interface {
	// Grow counts further members and edges of a flow, and locks it. It returns CodeNotFound and CodeAlreadyTerminal.
	Grow(tx *store.Tx, flowID uuid.UUID, nodes, edges int) (flow.Flow, error)
	// Joined tells of a member that was counted.
	Joined(tx *store.Tx, f *flow.Flow, e *execution.Execution)
	// Moved counts members that went from one public state to another, "" for those that are new.
	Moved(tx *store.Tx, flowID uuid.UUID, from, to execution.Public, n int)
	// Lock locks flows, in one order, before a batch joins several.
	Lock(tx *store.Tx, flowIDs []uuid.UUID) error
	// Replayable locks a flow, of which an ended member is to run again, and says whether it has been started. It returns
	// CodeAlreadyTerminal for a cancelled one.
	Replayable(tx *store.Tx, flowID uuid.UUID) (started bool, err error)
	// Shrink takes back one member that was counted in this transaction, and not made.
	Shrink(tx *store.Tx, flowID uuid.UUID) error
}

// Graph is what executions need to know of what they depend on.
type Graph interface {
	// Rewind makes undecided again what a member depends on that is about to run again, and says whether it has to wait for it.
	// The flow is locked.
	Rewind(tx *store.Tx, e *execution.Execution) (blocked bool, err error)
	// Inputs returns the results that were passed on to members, by key or id, for each that has any.
	Inputs(q *store.Queries, members []uuid.UUID) (map[uuid.UUID]map[string]execution.Value, error)
	// Dependencies tells what a member depends on.
	Dependencies(q *store.Queries, member uuid.UUID) (execution.Dependencies, error)
}

// Budgets is what executions need to know of the budgets that they are attached to.
type Budgets interface {
	// Attach returns budgets with their ancestors. It returns CodeNotFound.
	Attach(q *store.Queries, namespace string, ids []uuid.UUID) ([]uuid.UUID, error)
	// Lock locks budgets, in one order.
	Lock(tx *store.Tx, ids []uuid.UUID) error
	// Check locks budgets and says what holds up an execution that is expected to spend an estimate; nil for nothing.
	Check(tx *store.Tx, ids []uuid.UUID, estimate map[string]int64) (*execution.Hold, error)
	// Look is Check without locks.
	Look(q *store.Queries, ids []uuid.UUID, estimate map[string]int64) (*execution.Hold, error)
	// Take reserves what an execution is expected to spend, of budgets that were checked.
	Take(tx *store.Tx, id uuid.UUID, ids []uuid.UUID, estimate map[string]int64) execution.Allowance
	// Settle gives back what is left of what was reserved for an execution that nobody holds any more.
	Settle(tx *store.Tx, id uuid.UUID)
	// Allowance says what budgets leave to an execution.
	Allowance(q *store.Queries, id uuid.UUID, ids []uuid.UUID) (execution.Allowance, error)
	// Paused notes that an execution was suspended because of a budget.
	Paused(tx *store.Tx, budgetID, id, suspension uuid.UUID) error
}

// Quotas is what executions need to know of the quotas that they are attached to.
type Quotas interface {
	// Attach returns quotas, each once, in one order. It returns CodeNotFound.
	Attach(q *store.Queries, namespace string, ids []uuid.UUID) ([]execution.QuotaRef, error)
	// Lock locks what terms name, in one order.
	Lock(tx *store.Tx, terms []execution.QuotaTerm) error
	// Check locks what terms name and says how many executions may pass, or what holds them up.
	Check(tx *store.Tx, terms []execution.QuotaTerm) (room int64, hold *execution.Hold, err error)
	// Look is Check without locks.
	Look(q *store.Queries, terms []execution.QuotaTerm) (*execution.Hold, error)
	// Take counts an execution that has passed terms which were checked, and says whether it has a slot now.
	Take(tx *store.Tx, id uuid.UUID, terms []execution.QuotaTerm) bool
	// Ended gives back the slots of an execution that has ended.
	Ended(tx *store.Tx, id uuid.UUID)
	// Held returns the quotas of which an execution has a slot.
	Held(q *store.Queries, id uuid.UUID) ([]uuid.UUID, error)
	// Refused tells that a quota, which was checked, holds up a bucket.
	Refused(tx *store.Tx, h *execution.Hold) error
}

// New returns a repository on s. Executions that belong to flows ask flows, which is set before the first call.
func New(s *store.Store, waits *waitrepo.Repo, keys Keys) *Repo {
	return &Repo{store: s, waits: waits, keys: keys, buckets: newBuckets(), lanes: newLanes(s.Hub())}
}

// Attach sets whom to ask about flows, their graphs, budgets and quotas.
func (r *Repo) Attach(flows Flows, graph Graph, budgets Budgets, quotas Quotas) {
	r.flows, r.graph, r.budgets, r.quotas = flows, graph, budgets, quotas
}

// Execution returns one execution of the caller's namespace. It returns CodeNotFound.
func (r *Repo) Execution(ctx context.Context, id uuid.UUID) (execution.Execution, error) {
	var e execution.Execution
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		if e, err = find(q, call.From(ctx).Namespace, id, ""); err != nil {
			return err
		}
		return shown(q, []*execution.Execution{&e})
	})
	return e, err
}

// State returns an execution of the caller's namespace and locks it. It returns CodeNotFound.
func (r *Repo) State(tx *store.Tx, id uuid.UUID) (execution.Execution, error) {
	return find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
}

func find(q *store.Queries, namespace string, id uuid.UUID, lock string) (execution.Execution, error) {
	var found row
	if err := q.Find(&found, "execution", id, selectByID+" AND namespace = ?"+lock, store.ID(id), namespace); err != nil {
		return execution.Execution{}, err
	}
	return found.execution()
}

type resultRow struct {
	Revision int64      `db:"revision"`
	Result   []byte     `db:"result"`
	Encoding store.Text `db:"result_encoding"`
}

// Result returns what an execution was completed with, and its revision. It returns CodeNotFound, also while there is no
// result.
func (r *Repo) Result(ctx context.Context, id uuid.UUID) (v execution.Value, revision int64, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) (err error) {
		v, revision, err = result(q, call.From(ctx).Namespace, id)
		return err
	})
	return v, revision, err
}

// ResultIn is Result in a transaction.
func (*Repo) ResultIn(tx *store.Tx, id uuid.UUID) (execution.Value, error) {
	v, _, err := result(&tx.Queries, tx.Call.Namespace, id)
	return v, err
}

func result(q *store.Queries, namespace string, id uuid.UUID) (execution.Value, int64, error) {
	var found resultRow
	err := q.Find(&found, "execution", id, "SELECT revision, result, result_encoding FROM executions WHERE id = ? AND namespace = ? AND "+visible, store.ID(id), namespace)
	switch {
	case err != nil:
		return execution.Value{}, 0, err
	case found.Encoding == "":
		return execution.Value{}, 0, fault.New(fault.CodeNotFound, "Execution %s has no result: only one that was completed with a result has one.", id).With("resource", "result")
	}
	return execution.Value{Bytes: found.Result, Encoding: execution.Encoding(found.Encoding)}, found.Revision, nil
}

const attemptColumns = `attempt_index, attempt_type, state, worker_id, worker_instance_id, lease_epoch, started_at, ended_at, failure, reclaim_reason, previous_attempt_index`

type attemptRow struct {
	Index      int          `db:"attempt_index"`
	Type       string       `db:"attempt_type"`
	Stage      string       `db:"state"`
	WorkerID   string       `db:"worker_id"`
	InstanceID string       `db:"worker_instance_id"`
	LeaseEpoch int64        `db:"lease_epoch"`
	StartedAt  store.Millis `db:"started_at"`
	EndedAt    store.Millis `db:"ended_at"`
	Failure    store.JSON   `db:"failure"`
	Reclaim    store.Text   `db:"reclaim_reason"`
	Previous   *int         `db:"previous_attempt_index"`
}

// Attempts lists the attempts at an execution, the first first. It returns CodeNotFound, and CodeInvalidCursor for the cursor
// of another list.
func (r *Repo) Attempts(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (page.Page[execution.Attempt], error) {
	if !after.IsZero() && (after.ID != id || after.At < 0 || after.At > math.MaxInt32) {
		f := fault.New(fault.CodeInvalidCursor, "The cursor is not one of this list's. Start again without one.")
		f.Fields = []fault.Field{{In: fault.InQuery, Pointer: "cursor", Detail: "not a cursor of this list", Code: f.Code}}
		return page.Page[execution.Attempt]{}, f
	}
	var list []execution.Attempt
	err := r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := find(q, call.From(ctx).Namespace, id, ""); err != nil {
			return err
		}
		var rows []attemptRow
		err := q.Select(&rows, `SELECT `+attemptColumns+` FROM attempts WHERE execution_id = ? AND attempt_index >= ?
			ORDER BY attempt_index LIMIT ?`, store.ID(id), after.At, limit+1)
		if err != nil {
			return fmt.Errorf("read attempts of %s: %w", id, err)
		}
		list = make([]execution.Attempt, len(rows))
		for i, a := range rows {
			if list[i], err = a.attempt(); err != nil {
				return store.Corrupt("attempt of execution", id, err)
			}
		}
		return nil
	})
	return page.Of(list, limit, func(a execution.Attempt) page.Cursor { return page.Cursor{At: int64(a.Index) + 1, ID: id} }), err
}

func (a *attemptRow) attempt() (execution.Attempt, error) {
	out := execution.Attempt{Index: a.Index, Type: execution.AttemptType(a.Type), Stage: execution.Stage(a.Stage), WorkerID: a.WorkerID,
		InstanceID: a.InstanceID, LeaseEpoch: a.LeaseEpoch, StartedAt: time.Time(a.StartedAt), EndedAt: time.Time(a.EndedAt),
		ReclaimReason: string(a.Reclaim), Previous: a.Previous}
	var err error
	if a.Failure != nil {
		out.Failure, err = failureOf(a.Failure)
	}
	return out, err
}
