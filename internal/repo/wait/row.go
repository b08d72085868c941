package wait

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// row is a stored wait.
type row struct {
	ID          store.ID     `db:"id"`
	Namespace   string       `db:"namespace"`
	FlowID      store.ID     `db:"flow_id"`
	ExecutionID store.ID     `db:"execution_id"`
	RunID       store.ID     `db:"run_id"`
	StepID      store.ID     `db:"step_id"`
	Condition   store.JSON   `db:"condition"`
	Received    store.JSON   `db:"received"`
	DeadlineAt  store.Millis `db:"deadline_at"`
	OnTimeout   string       `db:"on_timeout"`
	Manual      int          `db:"manual"`
	Title       string       `db:"title"`
	RequestedBy string       `db:"requested_by"`
	Since       store.Millis `db:"since"`
	DueAt       store.Millis `db:"due_at"`
}

const columns = "id, namespace, flow_id, execution_id, run_id, step_id, condition, received, deadline_at, on_timeout, manual, title, requested_by, since, due_at"

const insertRow = "INSERT INTO waits (" + columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

func (r *row) values() []any {
	return []any{r.ID, r.Namespace, r.FlowID, r.ExecutionID, r.RunID, r.StepID, r.Condition, r.Received, r.DeadlineAt, r.OnTimeout, r.Manual, r.Title, r.RequestedBy, r.Since, r.DueAt}
}

// rowOf returns the stored form of w.
func rowOf(w *wait.Wait) (row, error) {
	r := row{
		ID: store.ID(w.ID), Namespace: w.Namespace, FlowID: store.ID(w.FlowID), ExecutionID: store.ID(w.ExecutionID), RunID: store.ID(w.RunID), StepID: store.ID(w.StepID), DeadlineAt: store.Millis(w.Deadline), OnTimeout: string(w.OnTimeout),
		Title: w.Title, RequestedBy: w.RequestedBy, Since: store.Millis(w.Since), DueAt: store.Millis(w.DueAt()), Manual: store.Bit(w.Asks),
	}
	var err error
	if r.Condition, err = json.Marshal(w.Condition); err == nil {
		r.Received, err = receivedDoc(w.Received)
	}
	return r, err
}

func receivedDoc(received []wait.Signal) (store.JSON, error) {
	if len(received) == 0 {
		return store.JSON("[]"), nil
	}
	return json.Marshal(received)
}

var errOnTimeout = errors.New("on_timeout is unknown")

// wait returns the wait that r stores. It returns CodeCorruptRecord for a row that cannot be one.
func (r *row) wait() (wait.Wait, error) {
	w := wait.Wait{
		ID: uuid.UUID(r.ID), Namespace: r.Namespace, FlowID: uuid.UUID(r.FlowID), ExecutionID: uuid.UUID(r.ExecutionID), RunID: uuid.UUID(r.RunID), StepID: uuid.UUID(r.StepID), Asks: r.Manual == 1, Title: r.Title, RequestedBy: r.RequestedBy, Since: time.Time(r.Since),
		Spec: wait.Spec{Deadline: time.Time(r.DeadlineAt), OnTimeout: wait.OnTimeout(r.OnTimeout)},
	}
	var err error
	if err = json.Unmarshal(r.Condition, &w.Condition); err == nil && len(r.Received) > len("[]") {
		err = json.Unmarshal(r.Received, &w.Received)
	}
	if err == nil && !w.OnTimeout.Known() {
		err = errOnTimeout
	}
	if err != nil {
		return w, store.Corrupt("wait", w.ID, err)
	}
	return w, nil
}

// find reads an open wait and when it is due, and says whether there is one.
func find(q *store.Queries, id uuid.UUID) (w wait.Wait, due time.Time, open bool, err error) {
	var found row
	err = q.Get(&found, "SELECT "+columns+" FROM waits WHERE id = ?", store.ID(id))
	switch {
	case store.NotFound(err):
		return wait.Wait{}, time.Time{}, false, nil
	case err != nil:
		return wait.Wait{}, time.Time{}, false, fmt.Errorf("read wait %s: %w", id, err)
	}
	w, err = found.wait()
	return w, time.Time(found.DueAt), err == nil, err
}

// Waits returns open waits by their ids.
func (*Repo) Waits(q *store.Queries, ids []uuid.UUID) (map[uuid.UUID]wait.Wait, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []row
	if err := q.Select(&rows, "SELECT "+columns+" FROM waits WHERE id IN ?", store.List(store.IDs(ids))); err != nil {
		return nil, fmt.Errorf("read waits: %w", err)
	}
	waits := make(map[uuid.UUID]wait.Wait, len(rows))
	for i := range rows {
		w, err := rows[i].wait()
		if err != nil {
			return nil, err
		}
		waits[w.ID] = w
	}
	return waits, nil
}
