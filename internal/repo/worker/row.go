package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/worker"
	"github.com/flowapi/flowapi/internal/repo/store"
)

type row struct {
	Namespace     string       `db:"namespace"`
	InstanceID    string       `db:"worker_instance_id"`
	WorkerID      string       `db:"worker_id"`
	Lanes         store.JSON   `db:"lanes"`
	Capabilities  string       `db:"capabilities"`
	TTL           int64        `db:"liveness_ttl_ms"`
	RegisteredAt  store.Millis `db:"registered_at"`
	HeartbeatAt   store.Millis `db:"last_heartbeat_at"`
	ExpiresAt     store.Millis `db:"expires_at"`
	DrainingSince store.Millis `db:"draining_since"`
}

const columns = `namespace, worker_instance_id, worker_id, lanes, capabilities, liveness_ttl_ms, registered_at, last_heartbeat_at, expires_at, draining_since`

// place is what a sweep must know of a worker, of which the rest may be unreadable.
func (r *row) place() worker.Worker {
	return worker.Worker{Namespace: r.Namespace, InstanceID: r.InstanceID, WorkerID: r.WorkerID, ExpiresAt: time.Time(r.ExpiresAt)}
}

func (r *row) worker() (worker.Worker, error) {
	w := r.place()
	w.Capabilities, w.TTL = execution.ParseCapabilities(r.Capabilities), time.Duration(r.TTL)*time.Millisecond
	w.RegisteredAt, w.HeartbeatAt, w.DrainingSince = time.Time(r.RegisteredAt), time.Time(r.HeartbeatAt), time.Time(r.DrainingSince)
	if err := json.Unmarshal(r.Lanes, &w.Lanes); err != nil {
		return worker.Worker{}, store.Corrupt("worker", r.InstanceID, err)
	}
	return w, nil
}

// find returns who is registered at a place, live or not: nobody when there is no row.
func find(q *store.Queries, namespace, instance, lock string) (worker.Worker, error) {
	var found row
	err := q.Get(&found, "SELECT "+columns+" FROM workers WHERE namespace = ? AND worker_instance_id = ?"+lock, namespace, instance)
	switch {
	case store.NotFound(err):
		return worker.Worker{Namespace: namespace, InstanceID: instance}, nil
	case err != nil:
		return worker.Worker{}, fmt.Errorf("read worker %s: %w", instance, err)
	}
	return found.worker()
}

// hold returns who is registered at a place of the caller's namespace, and keeps the place, also an empty one: of those who
// register there at the same time, one is the first. Whoever holds a place must save it.
func hold(tx *store.Tx, instance string) (worker.Worker, error) {
	_, err := tx.Exec(`INSERT INTO workers (`+columns+`) VALUES (?, ?, '', '[]', '', 0, 0, 0, 0, NULL)
		ON CONFLICT (namespace, worker_instance_id) DO UPDATE SET worker_id = workers.worker_id`, tx.Call.Namespace, instance)
	if err != nil {
		return worker.Worker{}, fmt.Errorf("hold the place of worker %s: %w", instance, err)
	}
	return find(&tx.Queries, tx.Call.Namespace, instance, "")
}

// save writes down what became of a worker whose row is locked, and tells it.
func save(tx *store.Tx, c worker.Change) error {
	w := &c.Worker
	tell(tx, c)
	if w.WorkerID == "" {
		return tx.ExecOne(`DELETE FROM workers WHERE namespace = ? AND worker_instance_id = ?`, w.Namespace, w.InstanceID)
	}
	lanes, err := json.Marshal(worker.List(w.Lanes))
	if err != nil {
		return fmt.Errorf("lanes of worker %s: %w", w.InstanceID, err)
	}
	tx.Alarm(Loop, w.ExpiresAt)
	return tx.ExecOne(`UPDATE workers SET worker_id = ?, lanes = ?, capabilities = ?, liveness_ttl_ms = ?, registered_at = ?, last_heartbeat_at = ?, expires_at = ?,
		draining_since = ? WHERE namespace = ? AND worker_instance_id = ?`, w.WorkerID, store.JSON(lanes), w.Capabilities.String(), w.TTL.Milliseconds(),
		store.Millis(w.RegisteredAt), store.Millis(w.HeartbeatAt), store.Millis(w.ExpiresAt), store.Millis(w.DrainingSince), w.Namespace, w.InstanceID)
}
