package store

import (
	"context"
	"time"
)

// NextDue returns the instant that a query for one nullable instant finds, zero for none.
func NextDue(ctx context.Context, s *Store, query string) (time.Time, error) {
	var at Millis
	err := s.Read(ctx, func(q *Queries) error { return q.Get(&at, query) })
	return time.Time(at), err
}

// Expire runs a DELETE of rows whose time is over; its arguments are the time and a limit. It returns how many rows went.
func Expire(ctx context.Context, s *Store, statement string, limit int) (int, error) {
	return Write(ctx, s, func(tx *Tx, out *int) error {
		n, err := tx.Exec(statement, Millis(tx.Now()), limit)
		*out = int(n)
		return err
	}, Background())
}

// ExpireKeys forgets up to limit Idempotency-Keys whose time is over, and returns how many.
func (s *Store) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return Expire(ctx, s, `DELETE FROM idempotency_keys WHERE (namespace, token, key) IN
		(SELECT namespace, token, key FROM idempotency_keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, limit)
}
