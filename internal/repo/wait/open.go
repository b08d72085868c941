package wait

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Open opens a wait of a flow that the transaction holds. Events that are kept and that nobody has consumed are given to
// it, the oldest first; if they are enough the flow is told at once, and the wait is never opened. The caller has reserved
// its condition.
func (r *Repo) Open(tx *store.Tx, w wait.Wait) error {
	w, err := r.consume(tx, w)
	if err != nil {
		return err
	}
	if w, err = r.given(tx, w); err != nil {
		return err
	}
	if o, ok := w.DecideBy(tx.Now()); ok {
		return r.owners.Flows.Decided(tx, w, o)
	}
	return r.Insert(tx, &w)
}

// Used says whether a wait has had this id: one that is open, or one that signals came to.
func (*Repo) Used(q *store.Queries, id uuid.UUID) (bool, error) {
	var n int
	err := q.Get(&n, `SELECT (SELECT count(*) FROM waits WHERE id = ?) + (SELECT count(*) FROM signals WHERE suspension_id = ?)`, store.ID(id), store.ID(id))
	if err != nil {
		return false, fmt.Errorf("look for wait %s: %w", id, err)
	}
	return n > 0, nil
}

// Insert opens a wait that has been given what is kept for it, and that is not decided. It returns CodeAlreadyExists when its id
// is taken.
func (*Repo) Insert(tx *store.Tx, w *wait.Wait) error {
	stored, err := rowOf(w)
	if err != nil {
		return fmt.Errorf("wait %s: %w", w.ID, err)
	}
	err = tx.ExecOne(insertRow, stored.values()...)
	if store.Conflict(err) { // at this moment
		return fault.New(fault.CodeAlreadyExists, "There is a wait %s already. Choose another id, or none.", w.ID)
	}
	if err != nil {
		return fmt.Errorf("open wait %s: %w", w.ID, err)
	}
	for _, k := range w.Condition.Keys(w.Progress()) {
		err := tx.ExecOne(`INSERT INTO wait_keys (namespace, topic, correlation_id, wait_id) VALUES (?, ?, ?, ?)`, w.Namespace, k.Topic, k.CorrelationID, stored.ID)
		if err != nil {
			return fmt.Errorf("open wait %s: %w", w.ID, err)
		}
	}
	tx.Alarm(Loop, w.DueAt())
	return nil
}

// kept is an event that nobody has waited for yet.
type kept struct {
	ID         store.ID     `db:"id"`
	EventID    string       `db:"event_id"`
	Payload    store.JSON   `db:"payload"`
	ReceivedAt store.Millis `db:"received_at"`
	key        wait.Key
}

// consume gives w the events that are kept for it, as long as it needs one.
func (r *Repo) consume(tx *store.Tx, w wait.Wait) (wait.Wait, error) {
	var found []kept
	for _, k := range w.Condition.Keys(w.Condition.Progress(nil)) {
		e := kept{key: k}
		err := tx.Get(&e, `SELECT id, event_id, payload, received_at FROM signals
			WHERE namespace = ? AND topic = ? AND correlation_id = ? AND open = 1 AND expires_at > ? AND (flow_id IS NULL OR flow_id = ?)
			ORDER BY received_at, id LIMIT 1`, w.Namespace, k.Topic, k.CorrelationID, store.Millis(tx.Now()), store.ID(w.FlowID))
		switch {
		case store.NotFound(err):
		case err != nil:
			return w, fmt.Errorf("look for kept events: %w", err)
		default:
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b kept) int {
		return cmp.Or(time.Time(a.ReceivedAt).Compare(time.Time(b.ReceivedAt)), store.ByID(a.ID, b.ID))
	})
	for _, e := range found {
		if w.Condition.Satisfied(w.Progress(), tx.Now()) {
			break
		}
		n, err := tx.Exec(`UPDATE signals SET open = 0 WHERE id = ? AND open = 1`, e.ID)
		switch {
		case err != nil:
			return w, fmt.Errorf("consume event %s: %w", e.EventID, err)
		case n == 1:
			w, _ = w.Deliver(wait.Signal{ID: e.EventID, Topic: e.key.Topic, CorrelationID: e.key.CorrelationID, Payload: json.RawMessage(e.Payload)})
		}
	}
	return w, nil
}

// given gives w the ends that have been of what it waits for.
func (r *Repo) given(tx *store.Tx, w wait.Wait) (wait.Wait, error) {
	for _, k := range w.Condition.Keys(w.Progress()) {
		end, err := r.over(tx, k)
		if err != nil {
			return w, err
		}
		if end != nil {
			w, _ = w.Deliver(*end)
		}
	}
	return w, nil
}

// Close ends a wait whose owner goes on without it, and says whether it was open.
func (*Repo) Close(tx *store.Tx, id uuid.UUID) (bool, error) {
	n, err := tx.Exec(`DELETE FROM waits WHERE id = ?`, store.ID(id))
	if err != nil {
		return false, fmt.Errorf("close wait %s: %w", id, err)
	}
	return n == 1, nil
}

// Wake makes the next sweep call the owner of an open wait, whatever it waits for.
func (*Repo) Wake(tx *store.Tx, id uuid.UUID) error {
	now := tx.Now()
	if err := tx.ExecOne(`UPDATE waits SET due_at = ? WHERE id = ?`, store.Millis(now), store.ID(id)); err != nil {
		return fmt.Errorf("wake wait %s: %w", id, err)
	}
	tx.Alarm(Loop, now)
	return nil
}

// Describe changes what people are told about an open wait.
func (*Repo) Describe(tx *store.Tx, id uuid.UUID, title, requestedBy string) error {
	err := tx.ExecOne(`UPDATE waits SET title = ?, requested_by = ? WHERE id = ?`, title, requestedBy, store.ID(id))
	if err != nil {
		return fmt.Errorf("describe wait %s: %w", id, err)
	}
	return nil
}
