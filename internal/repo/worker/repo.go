// Package worker keeps the register of workers.
package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/worker"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the loop that calls [Repo.Sweep].
const Loop = "workers"

// Repo is the store of the register.
type Repo struct{ store *store.Store }

// New returns a repository on s.
func New(s *store.Store) *Repo { return &Repo{store: s} }

// Register takes down what a worker says of itself. It returns CodeInvalidCapabilities and CodeWorkerReassigned.
func (r *Repo) Register(ctx context.Context, in worker.Registration) (worker.Registered, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *worker.Registered) error {
		w, err := hold(tx, in.InstanceID)
		if err != nil {
			return err
		}
		if c, lapsed := w.Lapse(tx.Now()); lapsed { // the sweep has not come yet
			c.Events[0].Actor = call.Engine("").Actor
			tell(tx, c)
		}
		c, made, err := w.Register(in, tx.Now())
		if err != nil {
			return err
		}
		*out = worker.Registered{Worker: c.Worker, New: made}
		return save(tx, c)
	})
}

// Heartbeat prolongs a registration. It returns CodeWorkerNotRegistered.
func (r *Repo) Heartbeat(ctx context.Context, instance string) (worker.Worker, error) {
	return r.change(ctx, instance, worker.Worker.Heartbeat)
}

// Drain ends the giving of work to a worker. It returns CodeWorkerNotRegistered.
func (r *Repo) Drain(ctx context.Context, instance, reason string) (worker.Worker, error) {
	return r.change(ctx, instance, func(w worker.Worker, now time.Time) (worker.Change, error) { return w.Drain(reason, now) })
}

// Remove takes a worker off the register. It returns CodeWorkerNotRegistered.
func (r *Repo) Remove(ctx context.Context, instance, reason string) error {
	_, err := r.change(ctx, instance, func(w worker.Worker, now time.Time) (worker.Change, error) { return w.Remove(reason, now) })
	return err
}

func (r *Repo) change(ctx context.Context, instance string, transition func(w worker.Worker, now time.Time) (worker.Change, error)) (worker.Worker, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *worker.Worker) error {
		w, err := find(&tx.Queries, tx.Call.Namespace, instance, tx.ForUpdate())
		if err != nil {
			return err
		}
		c, err := transition(w, tx.Now())
		if err != nil {
			return err
		}
		*out = c.Worker
		return save(tx, c)
	})
}

// Workers lists the live workers of the caller's namespace by their instance ids, those after a given one. A lane is also
// served by workers that name none.
func (r *Repo) Workers(ctx context.Context, f worker.Filter, after string, limit int) (page.Named[worker.Worker], error) {
	var list []worker.Worker
	err := r.store.Read(ctx, func(q *store.Queries) error {
		name := q.Bytes("worker_instance_id")
		where := store.NewWhere("namespace = ? AND "+name+" > ? AND expires_at > ?", call.From(ctx).Namespace, after, store.Millis(q.Now()))
		where.If(f.WorkerID != "", "worker_id = ?", f.WorkerID)
		where.If(f.Lane != "", serves(q), f.Lane)
		var rows []row
		err := q.Select(&rows, "SELECT "+columns+" FROM workers WHERE "+where.String()+" ORDER BY "+name+" LIMIT ?", where.Args(limit+1)...)
		if err != nil {
			return fmt.Errorf("list workers: %w", err)
		}
		list, err = store.Rows(rows, (*row).worker)
		return err
	})
	return page.OfNames(list, limit, func(w worker.Worker) string { return w.InstanceID }), err
}

// serves is the condition that a worker serves the lane which is its argument.
func serves(q *store.Queries) string { return "(lanes = '[]' OR " + q.Among("lanes") + ")" }

// Live returns a worker that is registered. It returns CodeWorkerNotRegistered.
func Live(q *store.Queries, namespace, instance string, now time.Time) (worker.Worker, error) {
	w, err := find(q, namespace, instance, "")
	if err != nil {
		return worker.Worker{}, err
	}
	return w, w.Check(now)
}

// Draining is the condition of a worker that lives and gets no more work; its argument is the time.
const Draining = `draining_since IS NOT NULL AND expires_at > ?`

// Capable counts the workers that could have an execution of a lane which requires need: they live, do not drain, serve the
// lane and have the capabilities.
func Capable(q *store.Queries, namespace, lane string, need execution.Capabilities, now time.Time) (int, error) {
	var able []string
	err := q.Select(&able, "SELECT capabilities FROM workers WHERE namespace = ? AND expires_at > ? AND draining_since IS NULL AND "+serves(q),
		namespace, store.Millis(now), lane)
	if err != nil {
		return 0, fmt.Errorf("look for capable workers: %w", err)
	}
	n := 0
	for _, has := range able {
		if execution.ParseCapabilities(has).Cover(need) {
			n++
		}
	}
	return n, nil
}

// Sweep takes up to limit workers off the register whose heartbeat has lapsed, and returns how many. Any number of processes
// may call it at the same time.
func (r *Repo) Sweep(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var rows []row
		err := tx.Select(&rows, "SELECT namespace, worker_instance_id, worker_id, expires_at FROM workers WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"+tx.SkipLocked(),
			store.Millis(tx.Now()), limit)
		if err != nil {
			return fmt.Errorf("read lapsed workers: %w", err)
		}
		for i := range rows {
			c, lapsed := rows[i].place().Lapse(tx.Now())
			if !lapsed {
				continue
			}
			if err := save(tx, c); err != nil {
				return err
			}
			*out++
		}
		return nil
	}, store.Background())
}

// NextDue returns when the next heartbeat lapses, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, "SELECT min(expires_at) FROM workers")
}

// DrainKey is the hub's key for claims that wait as an instance: they look again when it is told to drain.
func DrainKey(namespace, instance string) string { return "drain/" + namespace + "/" + instance }

// tell emits the events of a change. One signal does for all claims that wait: each passes on what it did not take.
func tell(tx *store.Tx, c worker.Change) {
	for _, e := range c.Events {
		tx.Emit(e)
		if e.Type == event.WorkerDrained {
			tx.Signal(DrainKey(c.Worker.Namespace, c.Worker.InstanceID), "")
		}
	}
}
