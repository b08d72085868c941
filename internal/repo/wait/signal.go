package wait

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// signalRow is a stored signal on a waitpoint.
type signalRow struct {
	ID              store.ID     `db:"id"`
	SignalID        string       `db:"event_id"`
	CorrelationID   store.Text   `db:"correlation_id"`
	ExecutionID     store.ID     `db:"execution_id"`
	WaitpointID     store.ID     `db:"waitpoint_id"`
	WaitpointKey    string       `db:"waitpoint_key"`
	SuspensionID    store.ID     `db:"suspension_id"`
	Name            string       `db:"signal_name"`
	Category        string       `db:"signal_category"`
	SourceType      string       `db:"source_type"`
	SourceIdentity  store.Text   `db:"source_identity"`
	IdempotencyKey  store.Text   `db:"idempotency_key"`
	RecognisedUntil store.Millis `db:"recognised_until"`
	Effect          string       `db:"effect"`
	Counts          int          `db:"counts"`
	Payload         store.JSON   `db:"payload"`
	Open            int          `db:"open"`
	ReceivedAt      store.Millis `db:"received_at"`
}

const signalColumns = `id, event_id, correlation_id, execution_id, waitpoint_id, waitpoint_key, suspension_id, signal_name, signal_category, source_type, source_identity,
	idempotency_key, recognised_until, effect, counts, payload, open, received_at`

func (r *signalRow) kept() wait.Kept {
	return wait.Kept{
		Signal: wait.Signal{ID: r.SignalID, CorrelationID: string(r.CorrelationID), Payload: []byte(r.Payload), Waitpoint: r.WaitpointKey, Name: r.Name,
			SourceType: r.SourceType, SourceIdentity: string(r.SourceIdentity)},
		ExecutionID: uuid.UUID(r.ExecutionID), WaitpointID: uuid.UUID(r.WaitpointID), SuspensionID: uuid.UUID(r.SuspensionID), Category: r.Category,
		IdempotencyKey: string(r.IdempotencyKey), RecognisedUntil: time.Time(r.RecognisedUntil), At: time.Time(r.ReceivedAt), Effect: wait.Effect(r.Effect),
		Counts: r.Counts == 1, Open: r.Open == 1,
	}
}

// Keep stores a signal on a waitpoint of an execution that is held.
func (*Repo) Keep(tx *store.Tx, k wait.Kept) error {
	err := tx.ExecOne(`INSERT INTO signals (namespace, matched, `+signalColumns+`) VALUES (?, '[]', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		tx.Call.Namespace, store.ID(store.NewID()), k.ID, store.Text(k.CorrelationID), store.ID(k.ExecutionID), store.ID(k.WaitpointID), k.Waitpoint,
		store.ID(k.SuspensionID), k.Name, k.Category, k.SourceType, store.Text(k.SourceIdentity), store.Text(k.IdempotencyKey), store.Millis(k.RecognisedUntil),
		string(k.Effect), store.Bit(k.Counts), store.JSON(k.Payload), store.Bit(k.Open), store.Millis(k.At))
	if err != nil {
		return fmt.Errorf("keep signal %s: %w", k.ID, err)
	}
	return nil
}

// Known returns the signal of an execution that has this id, or came to the same waitpoint under the same idempotency key while
// that is recognised, if there is one.
func (*Repo) Known(tx *store.Tx, k *wait.Kept) (wait.Kept, bool, error) {
	var found signalRow
	err := tx.Get(&found, `SELECT `+signalColumns+` FROM signals WHERE execution_id = ? AND event_id = ? AND waitpoint_id IS NOT NULL`, store.ID(k.ExecutionID), k.ID)
	if store.NotFound(err) && k.IdempotencyKey != "" {
		err = tx.Get(&found, `SELECT `+signalColumns+` FROM signals WHERE waitpoint_id = ? AND idempotency_key = ?`, store.ID(k.WaitpointID), k.IdempotencyKey)
		if err == nil && !time.Time(found.RecognisedUntil).After(tx.Now()) {
			return wait.Kept{}, false, tx.ExecOne(`UPDATE signals SET idempotency_key = NULL WHERE id = ?`, found.ID)
		}
	}
	switch {
	case store.NotFound(err):
		return wait.Kept{}, false, nil
	case err != nil:
		return wait.Kept{}, false, fmt.Errorf("look for signal %s: %w", k.ID, err)
	}
	return found.kept(), true, nil
}

// KeptAt returns the signals that are kept at a waitpoint for a wait to come, the first first. Their payloads, which may be many
// megabytes, stay where they are.
func (*Repo) KeptAt(q *store.Queries, waitpoint uuid.UUID) ([]wait.Kept, error) {
	return signalsOf(q, strings.Replace(signalColumns, "payload", "NULL AS payload", 1), `waitpoint_id = ? AND open = 1 ORDER BY id`, store.ID(waitpoint))
}

// Give marks what is kept at a waitpoint of an execution as given to a wait; counted are the ids of those that count.
func (*Repo) Give(tx *store.Tx, execution, waitpoint, suspension uuid.UUID, counted []string) error {
	if _, err := tx.Exec(`UPDATE signals SET open = 0, counts = 0, suspension_id = ? WHERE waitpoint_id = ? AND open = 1`, store.ID(suspension), store.ID(waitpoint)); err != nil {
		return fmt.Errorf("consume the signals at waitpoint %s: %w", waitpoint, err)
	}
	for chunk := range store.Chunks(counted) {
		if _, err := tx.Exec(`UPDATE signals SET counts = 1 WHERE execution_id = ? AND event_id IN ?`, store.ID(execution), store.List(chunk)); err != nil {
			return fmt.Errorf("consume the signals at waitpoint %s: %w", waitpoint, err)
		}
	}
	return nil
}

// Return keeps signals that a wait had for the next one at their waitpoints: those that counted, or the others.
func (*Repo) Return(tx *store.Tx, suspension uuid.UUID, counted bool) error {
	_, err := tx.Exec(`UPDATE signals SET open = 1 WHERE suspension_id = ? AND counts = ?`, store.ID(suspension), store.Bit(counted))
	if err != nil {
		return fmt.Errorf("keep the signals of suspension %s: %w", suspension, err)
	}
	return nil
}

// Signals lists the signals that a wait had, the first first: those that counted, or all of them.
func (*Repo) Signals(q *store.Queries, suspension uuid.UUID, all bool, after page.Cursor, limit int) (page.Page[wait.Kept], error) {
	where := store.NewWhere(`suspension_id = ?`, store.ID(suspension))
	where.If(!all, `counts = 1`)
	where.If(!after.IsZero(), `id > ?`, store.ID(after.ID))
	limit, err := store.Fit(q, limit, "payload", `signals WHERE `+where.String()+` ORDER BY id`, where.Args()...)
	if err != nil {
		return page.Page[wait.Kept]{}, fmt.Errorf("list the signals of suspension %s: %w", suspension, err)
	}
	var rows []signalRow
	if err := q.Select(&rows, `SELECT `+signalColumns+` FROM signals WHERE `+where.String()+` ORDER BY id LIMIT ?`, where.Args(limit+1)...); err != nil {
		return page.Page[wait.Kept]{}, fmt.Errorf("list the signals of suspension %s: %w", suspension, err)
	}
	at := page.Of(rows, limit, func(r signalRow) page.Cursor { return page.After(time.Time(r.ReceivedAt), uuid.UUID(r.ID)) })
	out := page.Page[wait.Kept]{Items: make([]wait.Kept, len(at.Items)), Next: at.Next}
	for i := range at.Items {
		out.Items[i] = at.Items[i].kept()
	}
	return out, nil
}

// SignalsAt returns the last signals that came to a waitpoint with one of these names, the latest first.
func (*Repo) SignalsAt(q *store.Queries, execution, waitpoint uuid.UUID, names []string, limit int) ([]wait.Kept, error) {
	return signalsOf(q, signalColumns, `execution_id = ? AND waitpoint_id = ? AND signal_name IN ? ORDER BY id DESC LIMIT ?`, store.ID(execution), store.ID(waitpoint), store.List(names), limit)
}

func signalsOf(q *store.Queries, columns, where string, args ...any) ([]wait.Kept, error) {
	var rows []signalRow
	if err := q.Select(&rows, `SELECT `+columns+` FROM signals WHERE `+where, args...); err != nil {
		return nil, fmt.Errorf("read signals: %w", err)
	}
	list := make([]wait.Kept, len(rows))
	for i := range rows {
		list[i] = rows[i].kept()
	}
	return list, nil
}
