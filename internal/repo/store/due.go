package store

import (
	"context"
	"errors"
	"time"

	"github.com/flowapi/flowapi/internal/domain/fault"
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

// ExpireRows is [Expire] for the rows of a table with a column expires_at; key are the columns of its key.
func ExpireRows(ctx context.Context, s *Store, table, key string, limit int) (int, error) {
	return Expire(ctx, s, `DELETE FROM `+table+` WHERE (`+key+`) IN (SELECT `+key+` FROM `+table+` WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`, limit)
}

// Swept is what one sweep has done.
type Swept struct {
	Acted   int
	corrupt []error
}

// PutAside says whether err is that of a record that cannot be read. It is told at the end of the sweep; the caller puts the record
// aside, so that it does not stop the others.
func (s *Swept) PutAside(err error) bool {
	if fault.CodeOf(err) != fault.CodeCorruptRecord {
		return false
	}
	s.Acted++
	s.corrupt = append(s.corrupt, err)
	return true
}

// Sweep makes changes that are due, in one transaction in the background. It returns how many records it dealt with, and the faults
// of those that it has put aside.
func Sweep(ctx context.Context, s *Store, fn func(tx *Tx, done *Swept) error) (int, error) {
	done, err := Write(ctx, s, fn, Background())
	return done.Acted, errors.Join(append(done.corrupt, err)...)
}

// ExpireKeys forgets up to limit Idempotency-Keys whose time is over, and returns how many.
func (s *Store) ExpireKeys(ctx context.Context, limit int) (int, error) {
	return ExpireRows(ctx, s, "idempotency_keys", "namespace, token, key", limit)
}
