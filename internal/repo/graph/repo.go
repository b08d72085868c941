// Package graph keeps what the members of flows depend on: edges and their groups. It decides them when executions end, in the
// transaction in which they do.
//
// Whoever changes a graph has locked its flow, and then, in the order of their ids, the executions that it changes. What is too
// much for one transaction is left to the backlog, which a loop works off.
package graph

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Repo is the store of graphs.
type Repo struct {
	store      *store.Store
	executions Executions
	flows      Flows
	runs       Runs
	cfg        Config
}

// Config says how the repository behaves. Zero values are defaults.
type Config struct {
	// Batch is how many executions one transaction changes because of another, and how many it writes of a large graph.
	Batch int
}

// Executions is the store of executions, as far as graphs need it.
type Executions interface {
	// Execution returns one execution of the caller's namespace. It returns CodeNotFound.
	Execution(ctx context.Context, id uuid.UUID) (execution.Execution, error)
	// State does so in a transaction, and locks it.
	State(tx *store.Tx, id uuid.UUID) (execution.Execution, error)
	// Members reads and locks some executions of a flow, in the order of their ids; others are left out.
	Members(tx *store.Tx, flowID uuid.UUID, ids []uuid.UUID) ([]execution.Execution, error)
	// Nodes returns the members of a flow, the oldest first.
	Nodes(q *store.Queries, flowID uuid.UUID) ([]execution.Execution, error)
	// Named finds members by key or id; names that are not found are left out.
	Named(q *store.Queries, flowID uuid.UUID, names []string) (map[string]uuid.UUID, error)
	// Taken returns those of some ids that executions have.
	Taken(q *store.Queries, ids []uuid.UUID) (map[uuid.UUID]bool, error)
	// LimitsOf returns what budgets and quotas mean for members of a flow. It returns CodeNotFound for one that there is not.
	LimitsOf(q *store.Queries, namespace string, budgets, quotas []uuid.UUID) (*execution.Limits, error)
	// Save writes what a transition did.
	Save(tx *store.Tx, before *execution.Execution, c execution.Change) error
	// Prepare makes the places where new executions will stand, before the transaction that makes these. When one is missing it
	// first asks check, if there is one, whether it may be made.
	Prepare(ctx context.Context, made []execution.Change, check func() error) error
	// Insert writes new members, which Tell tells of. build is that of a graph which is still being written, uuid.Nil for none.
	// It returns CodeAlreadyExists for an id or a key that is taken.
	Insert(tx *store.Tx, made []execution.Change, build uuid.UUID) error
	Tell(tx *store.Tx, made []execution.Change)
	// Enlist makes an execution that exists a member of the flow that c names.
	Enlist(tx *store.Tx, before *execution.Execution, c execution.Change) error
	// Holder checks the fence of a worker who holds a member of a flow.
	Holder(tx *store.Tx, flowID uuid.UUID, f execution.Fence) error
	// ReplayMember is the replay of a member whose flow is locked and may run again.
	ReplayMember(tx *store.Tx, e execution.Execution, started bool) (execution.Change, error)
}

// Flows is the store of flows, as far as graphs need it.
type Flows interface {
	// Flow returns a flow of the caller's namespace. It returns CodeNotFound.
	Flow(ctx context.Context, id uuid.UUID) (flow.Flow, error)
	CreateIn(tx *store.Tx, in flow.Create) (flow.Creation, error)
	// Grow counts further members and edges of a flow, and locks it. It returns CodeNotFound and CodeAlreadyTerminal.
	Grow(tx *store.Tx, flowID uuid.UUID, nodes, edges int) (flow.Flow, error)
	// Head locks a flow, and returns it without its documents. It returns CodeNotFound.
	Head(tx *store.Tx, id uuid.UUID) (flow.Flow, error)
	Joined(tx *store.Tx, f *flow.Flow, e *execution.Execution)
	Moved(tx *store.Tx, flowID uuid.UUID, from, to execution.Public, n int)
	// Find reads a flow of a namespace. It returns CodeNotFound.
	Find(q *store.Queries, namespace string, id uuid.UUID) (flow.Flow, error)
	// Again lets a failed or finished flow run again because of members, and says whether it has been started. It returns
	// CodeAlreadyTerminal for a cancelled one.
	Again(tx *store.Tx, id uuid.UUID, expected *int64, members []uuid.UUID) (started bool, err error)
	// StartMembers lets members go on that have waited for the start of their flow: a batch now, the rest from the backlog.
	StartMembers(tx *store.Tx, flowID uuid.UUID) error
	// EndMembers ends members because their flow does, in the same way. It returns those that cannot be read.
	EndMembers(tx *store.Tx, flowID uuid.UUID, end execution.Cascade) ([]uuid.UUID, error)
}

// Runs is the store of runs, as far as the backlog needs it.
type Runs interface {
	// EndOf ends runs of a flow that has ended, behind a run in the order of their ids, and puts the rest off.
	EndOf(tx *store.Tx, flowID, after uuid.UUID) error
}

// New returns a repository on s.
func New(s *store.Store, executions Executions, flows Flows, runs Runs, cfg Config) *Repo {
	cfg.Batch = cmp.Or(cfg.Batch, backlog.Batch)
	return &Repo{store: s, executions: executions, flows: flows, runs: runs, cfg: cfg}
}
