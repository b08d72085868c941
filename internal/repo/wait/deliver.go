package wait

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Deliver gives an external event to every open wait of the caller's namespace that listens to it, or to that of one flow.
// One that nobody waits for is kept for the first wait that matches it. The same id again, with the same content, gets the
// first answer and does nothing; without an id every call is an event of its own.
//
// It returns CodeNotFound for a flow that is named and does not exist, CodeAlreadyExists for an id that another event has,
// and CodeValidationFailed for names that no wait can have. reference: runs-and-taskflows.md B7, B13 5; model.md "External
// events".
func (r *Repo) Deliver(ctx context.Context, e wait.Signal) (wait.Receipt, error) {
	if err := e.Check(); err != nil {
		return wait.Receipt{}, err
	}
	e.Payload = wait.Compact(e.Payload)
	return store.Write(ctx, r.store, func(tx *store.Tx, out *wait.Receipt) (err error) {
		*out, err = r.deliver(tx, e)
		tx.Refer(out.EventID)
		return err
	}, store.Reload(r.receipt))
}

func (r *Repo) deliver(tx *store.Tx, e wait.Signal) (wait.Receipt, error) {
	if err := lock(tx, e.Key()); err != nil {
		return wait.Receipt{}, err
	}
	if e.ID == "" {
		e.ID = store.NewID().String()
	} else if known, ok, err := r.known(tx, e); ok || err != nil {
		return known, err
	}
	if e.FlowID != uuid.Nil {
		if _, err := r.owners.Flows.Hold(tx, tx.Call.Namespace, e.FlowID, false); err != nil {
			return wait.Receipt{}, err
		}
	}
	matched, err := r.reach(tx, e)
	if err != nil {
		return wait.Receipt{}, err
	}
	receipt := wait.Receipt{EventID: e.ID, Matched: matched, Buffered: len(matched) == 0}
	return receipt, r.keep(tx, e, receipt)
}

// eventRow is a stored event.
type eventRow struct {
	Topic         string       `db:"topic"`
	CorrelationID string       `db:"correlation_id"`
	FlowID        store.ID     `db:"flow_id"`
	Payload       store.JSON   `db:"payload"`
	Matched       store.JSON   `db:"matched"`
	ExpiresAt     store.Millis `db:"expires_at"`
}

// known returns the answer of an earlier delivery of e, if there was one.
func (r *Repo) known(tx *store.Tx, e wait.Signal) (wait.Receipt, bool, error) {
	found, err := findEvent(&tx.Queries, tx.Call.Namespace, e.ID)
	switch {
	case store.NotFound(err):
		return wait.Receipt{}, false, nil
	case err != nil:
		return wait.Receipt{}, false, err
	case !time.Time(found.ExpiresAt).After(tx.Now()):
		_, err := tx.Exec(`DELETE FROM signals WHERE namespace = ? AND event_id = ? AND topic IS NOT NULL`, tx.Call.Namespace, e.ID)
		return wait.Receipt{}, false, err
	case found.Topic != e.Topic, found.CorrelationID != e.CorrelationID, uuid.UUID(found.FlowID) != e.FlowID, !bytes.Equal(found.Payload, e.Payload):
		return wait.Receipt{}, false, taken(e.ID)
	}
	receipt, err := found.receipt(e.ID)
	receipt.Replayed = true
	return receipt, true, err
}

func taken(id string) error {
	return fault.New(fault.CodeAlreadyExists, "The event %q was delivered before with another content. Give a new event a new id.", id)
}

func findEvent(q *store.Queries, namespace, id string) (eventRow, error) {
	var found eventRow
	err := q.Get(&found, `SELECT topic, correlation_id, flow_id, payload, matched, expires_at FROM signals WHERE namespace = ? AND event_id = ? AND topic IS NOT NULL`, namespace, id)
	if err != nil {
		err = fmt.Errorf("read event %s: %w", id, err)
	}
	return found, err
}

func (r *eventRow) receipt(id string) (wait.Receipt, error) {
	out := wait.Receipt{EventID: id, Matched: []wait.Match{}}
	if err := json.Unmarshal(r.Matched, &out.Matched); err != nil {
		return out, store.Corrupt("external event", id, err)
	}
	out.Buffered = len(out.Matched) == 0
	return out, nil
}

// reach gives e to the waits that listen to it, in the order of their flows' ids.
func (r *Repo) reach(tx *store.Tx, e wait.Signal) ([]wait.Match, error) {
	listening, err := r.listening(tx, e)
	if err != nil || len(listening) == 0 {
		return []wait.Match{}, err
	}
	for _, l := range listening { // all, before the time is asked for: locking may take a while
		if _, err := r.owners.Flows.Hold(tx, tx.Call.Namespace, uuid.UUID(l.FlowID), false); err != nil && fault.CodeOf(err) != fault.CodeNotFound {
			return nil, err
		}
	}
	matched := make([]wait.Match, 0, len(listening))
	for _, l := range listening {
		reached, err := r.give(tx, uuid.UUID(l.ID), e)
		if err != nil {
			return nil, err
		}
		if reached {
			matched = append(matched, wait.Match{FlowID: uuid.UUID(l.FlowID), WaitID: uuid.UUID(l.ID)})
		}
	}
	return matched, nil
}

// listener is an open wait that listens to an event.
type listener struct {
	ID     store.ID `db:"id"`
	FlowID store.ID `db:"flow_id"`
}

// listening returns the waits that listen to e, in the order of their flows' ids.
func (*Repo) listening(tx *store.Tx, e wait.Signal) ([]listener, error) {
	where := store.NewWhere(`k.namespace = ? AND k.topic = ? AND k.correlation_id = ?`, tx.Call.Namespace, e.Topic, e.CorrelationID)
	where.If(e.FlowID != uuid.Nil, `w.flow_id = ?`, store.ID(e.FlowID))
	var found []listener
	if err := tx.Select(&found, `SELECT w.id, w.flow_id FROM wait_keys k JOIN waits w ON w.id = k.wait_id WHERE `+where.String()+` ORDER BY w.flow_id, w.id`, where.Args()...); err != nil {
		return nil, fmt.Errorf("find who waits for the event: %w", err)
	}
	return found, nil
}

// give gives e to one wait whose flow is held, and says whether it was still there to take it.
func (r *Repo) give(tx *store.Tx, id uuid.UUID, e wait.Signal) (bool, error) {
	t, err := r.Take(tx, id, e)
	if err == nil && t.Decided {
		err = r.owners.Flows.Decided(tx, t.Wait, t.Outcome)
	}
	return t.Counts, err
}

// Taken is what a wait did with a signal.
type Taken struct {
	Wait    wait.Wait
	Open    bool        // there was a wait
	Effect  wait.Effect // as a signal on a waitpoint
	Counts  bool        // a part of the condition is met by it
	Decided bool        // it was the last that was needed: the wait is closed, and its owner is to go on
	Outcome wait.Outcome
}

// Take gives a signal to an open wait whose owner is held.
func (r *Repo) Take(tx *store.Tx, id uuid.UUID, s wait.Signal) (t Taken, err error) {
	if t.Wait, _, t.Open, err = find(&tx.Queries, id); !t.Open || err != nil {
		return t, err
	}
	if t.Wait, t.Counts = t.Wait.Deliver(s); !t.Counts {
		t.Effect = t.Wait.Effect(s)
		return t, nil
	}
	t.Effect = wait.Appended
	if t.Outcome, t.Decided = t.Wait.DecideBy(tx.Now()); t.Decided {
		t.Effect = wait.Satisfied
		_, err = r.Close(tx, id)
		return t, err
	}
	return t, r.note(tx, &t.Wait, s.Key())
}

// note writes down that a signal has met a part of w, which therefore no longer listens to its key, if it has one.
func (*Repo) note(tx *store.Tx, w *wait.Wait, k wait.Key) error {
	received, err := receivedDoc(w.Received)
	if err != nil {
		return fmt.Errorf("wait %s: %w", w.ID, err)
	}
	due := w.DueAt()
	if err := tx.ExecOne(`UPDATE waits SET received = ?, due_at = ? WHERE id = ?`, received, store.Millis(due), store.ID(w.ID)); err != nil {
		return fmt.Errorf("update wait %s: %w", w.ID, err)
	}
	tx.Alarm(Loop, due)
	if k.Topic == "" {
		return nil
	}
	_, err = tx.Exec(`DELETE FROM wait_keys WHERE namespace = ? AND topic = ? AND correlation_id = ? AND wait_id = ?`, w.Namespace, k.Topic, k.CorrelationID, store.ID(w.ID))
	if err != nil {
		return fmt.Errorf("update wait %s: %w", w.ID, err)
	}
	return nil
}

// keep stores e with its answer. An event that reached nobody stays open for a wait to come.
func (r *Repo) keep(tx *store.Tx, e wait.Signal, receipt wait.Receipt) error {
	matched, err := json.Marshal(receipt.Matched)
	if err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	now := tx.Now()
	err = tx.ExecOne(`INSERT INTO signals (id, namespace, event_id, topic, correlation_id, flow_id, payload, matched, open, received_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		store.ID(store.NewID()), tx.Call.Namespace, e.ID, e.Topic, e.CorrelationID, store.ID(e.FlowID), store.JSON(e.Payload), store.JSON(matched), store.Bit(receipt.Buffered),
		store.Millis(now), store.Millis(now.Add(r.cfg.EventTTL)))
	switch {
	case store.Conflict(err): // delivered at this moment under another topic or correlation id
		return taken(e.ID)
	case err != nil:
		return fmt.Errorf("keep event %s: %w", e.ID, err)
	}
	return nil
}

// receipt renders the answer of an earlier delivery again.
func (r *Repo) receipt(ctx context.Context, id string) (wait.Receipt, error) {
	var out wait.Receipt
	err := r.store.Read(ctx, func(q *store.Queries) error {
		found, err := findEvent(q, call.From(ctx).Namespace, id)
		if store.NotFound(err) {
			return fault.NotFound("external event", id)
		}
		if err == nil {
			out, err = found.receipt(id)
		}
		return err
	})
	return out, err
}

// Expire forgets up to limit external events whose time is over, and returns how many.
func (r *Repo) Expire(ctx context.Context, limit int) (int, error) {
	return store.ExpireRows(ctx, r.store, "signals", "id", limit)
}
