// Package wait keeps open waits: what they wait for, the signals from outside that reach them, and the sweep that decides
// those whose time has come. Whose waits they are it knows only as an [Owner], which is told how they were decided.
//
// Locks are taken in one order: stripes of event keys, then owners, then waits. A wait is read and written only by whoever
// holds its owner, so it is decided once, by whoever comes first.
package wait

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the sweep over waits that are due.
const Loop = "waits"

// DefaultEventTTL is how long an external event is kept unless the configuration says otherwise.
const DefaultEventTTL = 24 * time.Hour

// Config says how the repository behaves. Zero values are defaults.
type Config struct {
	// EventTTL is how long an external event waits for a wait, and its id is recognised.
	EventTTL time.Duration
}

// Repo is the store of waits and of the signals that reach them.
type Repo struct {
	store    *store.Store
	cfg      Config
	owners   Owners
	subjects Kinds
}

// Owners are all kinds of owners.
type Owners struct{ Flows, Executions, Runs Owner }

// Kinds are all kinds of subjects whose end flows can wait for.
type Kinds struct{ Executions, Runs Subjects }

// Owner is what has waits: flows, executions, and runs.
type Owner interface {
	// Hold locks an owner until the end of the transaction. With skip it does not wait for another transaction that holds it,
	// and says false. It returns CodeNotFound for one that the namespace does not have, and CodeCorruptRecord.
	Hold(tx *store.Tx, namespace string, id uuid.UUID, skip bool) (bool, error)
	// Decided makes an owner that is held go on. The wait is closed, or was never opened.
	Decided(tx *store.Tx, w wait.Wait, o wait.Outcome) error
}

// New returns a repository on s.
func New(s *store.Store, cfg Config) *Repo {
	if cfg.EventTTL <= 0 {
		cfg.EventTTL = DefaultEventTTL
	}
	return &Repo{store: s, cfg: cfg}
}

// Attach sets whom to tell how waits were decided, and whom to ask how what they wait for has ended, before the first call.
func (r *Repo) Attach(owners Owners, subjects Kinds) { r.owners, r.subjects = owners, subjects }

// owner returns whose wait it is.
func (r *Repo) owner(runID, flowID, executionID uuid.UUID) (Owner, uuid.UUID) {
	switch {
	case runID != uuid.Nil:
		return r.owners.Runs, runID
	case flowID != uuid.Nil:
		return r.owners.Flows, flowID
	}
	return r.owners.Executions, executionID
}

// stripes is the number of rows of wait_stripes.
const stripes = 64

// Reserve locks what a condition listens to, so that no event comes between the look at those that are kept and the opening of
// the wait. It is called before the owner is locked.
func (r *Repo) Reserve(tx *store.Tx, c wait.Condition) error {
	return lock(tx, c.Keys(c.Progress(nil))...)
}

func lock(tx *store.Tx, keys ...wait.Key) error {
	if len(keys) == 0 {
		return nil
	}
	ids := make([]int64, len(keys))
	for i, k := range keys {
		h := fnv.New32a()
		for _, part := range []string{tx.Call.Namespace, k.Topic, k.CorrelationID} {
			_, _ = h.Write(append([]byte(part), 0)) // a hash takes all
		}
		ids[i] = int64(h.Sum32() % stripes)
	}
	slices.Sort(ids)
	var locked []int64
	if err := tx.Select(&locked, `SELECT id FROM wait_stripes WHERE id IN ? ORDER BY id`+tx.ForUpdate(), store.List(ids)); err != nil {
		return fmt.Errorf("lock what events are matched by: %w", err)
	}
	return nil
}
