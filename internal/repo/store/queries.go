package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Queries runs statements on one snapshot or in one transaction. Placeholders are question marks on both databases; that of a
// [List] stands for a whole list.
type Queries struct {
	ctx     context.Context // of the snapshot or transaction: a statement cannot outlive it
	dialect *dialect
	prepare func(ctx context.Context, query string) (statement, error)
	clock   *Clock
	count   *atomic.Int64 // of the statements that ran
	err     error         // the first failure of a method that returns none
}

// statement is a query that is ready to run.
type statement interface {
	GetContext(ctx context.Context, dest any, args ...any) error
	SelectContext(ctx context.Context, dest any, args ...any) error
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
}

// plain is a statement that the driver prepares.
type plain struct {
	tx    *sqlx.Tx
	query string
}

func (p *plain) GetContext(ctx context.Context, dest any, args ...any) error {
	return p.tx.GetContext(ctx, dest, p.query, args...)
}

func (p *plain) SelectContext(ctx context.Context, dest any, args ...any) error {
	return p.tx.SelectContext(ctx, dest, p.query, args...)
}

func (p *plain) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return p.tx.ExecContext(ctx, p.query, args...)
}

// statement returns a query that is ready to run, and its arguments.
func (q *Queries) statement(query string, args []any) (statement, []any, error) {
	if q.err != nil {
		return nil, nil, q.err
	}
	query, args = spread(query, args)
	text, err := q.dialect.text(query)
	if err != nil {
		return nil, nil, err
	}
	q.count.Add(1)
	st, err := q.prepare(q.ctx, text)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare %s: %w", query, q.dialect.wrap(err))
	}
	return st, args, nil
}

// Get reads one row into dest. [NotFound] tells from its error whether there was none.
func (q *Queries) Get(dest any, query string, args ...any) error {
	st, args, err := q.statement(query, args)
	if err != nil {
		return err
	}
	err = st.GetContext(q.ctx, dest, args...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNotFound
	case err != nil:
		return q.dialect.wrap(err)
	}
	return nil
}

// Find is Get of the one record that an id names. It returns CodeNotFound, with what that would be, when there is none.
func (q *Queries) Find(dest any, what string, id any, query string, args ...any) error {
	err := q.Get(dest, query, args...)
	switch {
	case NotFound(err):
		return fault.NotFound(what, id)
	case err != nil:
		return fmt.Errorf("read %s %v: %w", what, id, err)
	}
	return nil
}

// Select reads all rows into the slice dest.
func (q *Queries) Select(dest any, query string, args ...any) error {
	st, args, err := q.statement(query, args)
	if err != nil {
		return err
	}
	if err := st.SelectContext(q.ctx, dest, args...); err != nil {
		return q.dialect.wrap(err)
	}
	return nil
}

// Now returns the time by which this snapshot is judged.
func (q *Queries) Now() time.Time { return q.clock.Now() }

// Tag returns the SQL expression for the value of one tag of a JSON column; the tag's key is its only argument.
func (q *Queries) Tag(column string) string { return q.dialect.tag(column) }

// Bytes returns the SQL expression for a text column whose order is that of its bytes, whatever the locale of the database.
func (q *Queries) Bytes(column string) string { return column + q.dialect.bytes }

// Among returns the SQL condition that a text, its only argument, is an element of the JSON array in a column.
func (q *Queries) Among(column string) string { return q.dialect.among(column) }
