package run

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// dueRun is a run whose time has come.
type dueRun struct {
	ID        store.ID `db:"id"`
	Namespace string   `db:"namespace"`
}

// mostDue bounds how many runs one pass looks at: each may end a batch of children.
const mostDue = 8

// Pass ends runs whose engine had time to, and children that nobody waits for any more, and returns how many runs it dealt with. Any
// number of processes may call it at the same time. A run that cannot be read is put aside, and its CodeCorruptRecord returned.
// reference: runs-and-taskflows.md A13 32, D2 21.
func (r *Repo) Pass(ctx context.Context) (int, error) {
	return store.Sweep(ctx, r.store, func(tx *store.Tx, done *store.Swept) error {
		var due []dueRun
		err := tx.Select(&due, `SELECT id, namespace FROM runs WHERE due_at <= ? ORDER BY due_at, id LIMIT ?`, store.Millis(tx.Queries.Now()), mostDue)
		if err != nil {
			return fmt.Errorf("read due runs: %w", err)
		}
		for _, d := range due {
			tx.Call = call.Engine(d.Namespace)
			acted, err := r.due(tx, d)
			if done.PutAside(err) {
				err = tx.ExecOne(`UPDATE runs SET due_at = NULL WHERE id = ?`, d.ID)
			} else if acted {
				done.Acted++
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// due does what time brings to a run, and says whether it has. One that somebody else holds is left alone.
func (r *Repo) due(tx *store.Tx, d dueRun) (bool, error) {
	if err := r.holdBelow(tx, d.Namespace, uuid.UUID(d.ID)); err != nil {
		return false, gone(err)
	}
	x, err := find(&tx.Queries, d.Namespace, uuid.UUID(d.ID), tx.SkipLocked())
	if err != nil {
		return false, gone(err)
	}
	tx.Later()
	switch {
	case x.DueAt().IsZero() || x.DueAt().After(tx.Now()):
		return false, nil
	case x.Draining:
		return true, r.drain(tx, &x)
	}
	c, err := x.Force(tx.By())
	if err != nil {
		return false, err
	}
	return true, r.save(tx, &x, c)
}

// gone leaves a run alone that somebody else holds, or that is not there any more. Any other error it returns.
func gone(err error) error {
	if fault.CodeOf(err) == fault.CodeNotFound {
		return nil
	}
	return err
}

// NextDue returns when the next run is due, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, `SELECT min(due_at) FROM runs WHERE due_at IS NOT NULL`)
}
