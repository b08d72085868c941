package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// dialect is everything in which the two databases differ. There is one value for each, in a file of its own, and no other
// code asks which database it is on.
type dialect struct {
	name       string
	bind       int    // of sqlx
	forUpdate  string // locking clauses of SELECT
	skipLocked string
	bytes      string // makes a text be compared byte by byte
	alone      bool   // no other process uses the database
	localID    string // column of events with the number that Emit drew
	outbox     string // table that Emit writes to
	outboxID   string // its key

	open            func(ctx context.Context, s *Store) error
	read            func(ctx context.Context, s *Store, fn func(q *Queries) error) error
	write           func(s *Store, op *operation) error
	now             func(tx *Tx) time.Time
	reserveEvents   func(tx *Tx, n int) (first int64, err error)
	eventsCommitted func(s *Store)
	announce        func(s *Store, key string) // tells other processes of a signal
	sync            func(ctx context.Context, s *Store) error
	lockKey         func(tx *Tx, namespace, token, key string) error
	wrap            func(err error) error // gives a driver's error its code
	tag             func(column string) string
	among           func(column string) string
	spell           func(query string) string // last changes to a statement's text

	texts   sync.Map     // SQL as written -> SQL as sent
	kept    atomic.Int64 // texts
	inserts sync.Map     // number of events -> INSERT
}

// mostTexts is how many texts are kept: lists have as many forms as callers like.
const mostTexts = 5000

func dialectOf(url string) *dialect {
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		return newPostgres()
	}
	return newSQLite()
}

// text returns query in the database's spelling.
func (d *dialect) text(query string) (string, error) {
	if t, ok := d.texts.Load(query); ok {
		return t.(string), nil
	}
	t, err := checkSQL(query)
	if err != nil {
		return "", err
	}
	t = d.spell(sqlx.Rebind(d.bind, t))
	if d.kept.Add(1) > mostTexts {
		d.texts.Clear()
		d.kept.Store(1)
	}
	d.texts.Store(query, t)
	return t, nil
}

// insertEvents returns the statement that inserts n events.
func (d *dialect) insertEvents(n int) string {
	if t, ok := d.inserts.Load(n); ok {
		return t.(string)
	}
	row := marks(eventWidth)
	t := fmt.Sprintf("INSERT INTO %s (%s, %s) VALUES %s", d.outbox, d.outboxID, eventColumns, row+strings.Repeat(", "+row, n-1))
	d.inserts.Store(n, t)
	return t
}
