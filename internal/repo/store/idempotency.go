package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const (
	keyLifetime = 24 * time.Hour
	keptBody    = 64 << 10 // a larger answer is rendered again from the rows
)

// replay is the error of a change whose key was used before.
type replay struct {
	answer call.Replayed
	ref    []byte
}

func (*replay) Error() string { return "answered before" }

type keyRow struct {
	Hash      []byte `db:"hash"`
	Status    int    `db:"status"`
	Location  Text   `db:"location"`
	ETag      Text   `db:"etag"`
	Body      []byte `db:"body"`
	Ref       JSON   `db:"ref"`
	CreatedAt Millis `db:"created_at"`
	ExpiresAt Millis `db:"expires_at"`
}

// claimKey takes the request's Idempotency-Key for this transaction. It returns a *replay when the key has been used for
// the same request, and a fault when it was used for another one or is in use now.
func (tx *Tx) claimKey() error {
	key := tx.Call.Key
	if key == nil {
		return nil
	}
	if err := tx.dialect.lockKey(tx, tx.Call.Namespace, tx.Call.Token, key.Key); err != nil {
		return err
	}
	id := []any{tx.Call.Namespace, tx.Call.Token, key.Key}
	for {
		now := tx.Now()
		n, err := tx.Exec(`INSERT INTO idempotency_keys (namespace, token, key, hash, status, created_at, expires_at)
			VALUES (?, ?, ?, ?, 0, ?, ?) ON CONFLICT DO NOTHING`, append(id, key.Hash[:], Millis(now), Millis(now.Add(keyLifetime)))...)
		if err != nil {
			return fmt.Errorf("take idempotency key: %w", err)
		}
		if n == 1 {
			tx.now = time.Time{} // the change asks for the time itself, after it has locked its rows
			return nil
		}
		var row keyRow
		if err := tx.Get(&row, `SELECT hash, status, location, etag, body, ref, created_at, expires_at
			FROM idempotency_keys WHERE namespace = ? AND token = ? AND key = ?`, id...); err != nil {
			return fmt.Errorf("read idempotency key: %w", err)
		}
		switch {
		case !time.Time(row.ExpiresAt).After(now):
			if _, err := tx.Exec(`DELETE FROM idempotency_keys WHERE namespace = ? AND token = ? AND key = ?`, id...); err != nil {
				return fmt.Errorf("drop expired idempotency key: %w", err)
			}
			continue
		case !bytes.Equal(row.Hash, key.Hash[:]):
			return fault.New(fault.CodeIdempotencyMismatch, "This Idempotency-Key was used at %s for a request with another method, path or body. Use a new key for a new request.",
				time.Time(row.CreatedAt).Format(time.RFC3339))
		}
		return &replay{
			answer: call.Replayed{At: time.Time(row.CreatedAt), Answer: call.Answer{
				Status: row.Status, Location: string(row.Location), ETag: string(row.ETag), Body: row.Body}},
			ref: row.Ref,
		}
	}
}

// keepAnswer renders the result and keeps it under the request's key.
func (tx *Tx) keepAnswer(op *operation) error {
	key := tx.Call.Key
	if key == nil {
		return nil
	}
	answer := call.Answer{}
	if key.Render != nil {
		var err error
		if answer, err = key.Render(op.result()); err != nil {
			return fmt.Errorf("render the answer: %w", err)
		}
	}
	ref := JSON(nil)
	if tx.ref != nil {
		var err error
		if ref, err = json.Marshal(tx.ref); err != nil {
			return fmt.Errorf("keep what the answer is rendered from: %w", err)
		}
		if len(answer.Body) > keptBody || tx.hidden {
			answer.Body = nil
		}
	}
	err := tx.ExecOne(`UPDATE idempotency_keys SET status = ?, location = ?, etag = ?, body = ?, ref = ? WHERE namespace = ? AND token = ? AND key = ?`,
		answer.Status, Text(answer.Location), Text(answer.ETag), answer.Body, ref, tx.Call.Namespace, tx.Call.Token, key.Key)
	if err != nil {
		return fmt.Errorf("keep the answer: %w", err)
	}
	return nil
}
