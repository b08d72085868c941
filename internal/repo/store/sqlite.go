package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func newSQLite() *dialect {
	return &dialect{
		name:     "sqlite",
		alone:    true,
		bind:     sqlx.QUESTION,
		localID:  "id",
		outbox:   "events",
		outboxID: "id",

		open:            openSQLite,
		read:            readSQLite,
		write:           func(s *Store, op *operation) error { return s.w.submit(op) },
		now:             func(tx *Tx) time.Time { return tx.store.now() },
		reserveEvents:   func(tx *Tx, n int) (int64, error) { return tx.store.w.reserve(n), nil },
		eventsCommitted: func(s *Store) { s.cfg.Hub.Broadcast(EventsKey) },
		announce:        func(*Store, string) {},
		sync:            func(context.Context, *Store) error { return nil },
		lockKey:         func(*Tx, string, string, string) error { return nil },
		wrap:            wrapSQLite,
		spell:           spellSQLite,
		tag:             func(column string) string { return "json_extract(" + column + `, '$."' || ? || '"')` },
		among:           func(column string) string { return "EXISTS (SELECT 1 FROM json_each(" + column + ") WHERE value = ?)" },
	}
}

// spellSQLite keeps the planner from looking at the bound value of a LIMIT: a statement whose plan depends on one is
// prepared again at every binding, which costs more than running it.
func spellSQLite(query string) string { return strings.ReplaceAll(query, "LIMIT ?", "LIMIT +?") }

// sqliteDSN puts the pragmas into the DSN, so that every connection of the pool gets them. auto_vacuum must come before
// the first table exists; it writes, so that a reader which asked for it could not be opened beside a writer.
func sqliteDSN(file string, readOnly bool) string {
	pragmas := []string{"busy_timeout(5000)"}
	if !readOnly {
		pragmas = append(pragmas, "auto_vacuum(2)")
	}
	pragmas = append(pragmas, "journal_mode(wal)", "synchronous(full)", "foreign_keys(on)",
		"wal_autocheckpoint(4000)", "journal_size_limit(67108864)", "temp_store(memory)")
	if readOnly {
		pragmas = append(pragmas, "query_only(on)", "cache_size(-8192)")
	} else {
		pragmas = append(pragmas, "cache_size(-65536)")
	}
	q := url.Values{"_pragma": pragmas, "_dqs": {"0"}}
	if !readOnly {
		q.Set("_txlock", "immediate")
	}
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + q.Encode()
}

// fileOf returns the name of the file that a URL means.
func fileOf(url string) string { return strings.TrimPrefix(url, "file:") }

func openSQLite(ctx context.Context, s *Store) (err error) {
	file := fileOf(s.cfg.URL)
	release, err := ownSQLite(ctx, file)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, release())
		}
	}()
	wdb, err := sql.Open("sqlite", sqliteDSN(file, false))
	if err != nil {
		return err
	}
	wdb.SetMaxOpenConns(1)
	if err := migrate(ctx, wdb, goose.DialectSQLite3, "sqlite"); err != nil {
		return errors.Join(err, wdb.Close())
	}
	rdb, err := sql.Open("sqlite", sqliteDSN(file, true))
	if err != nil {
		return errors.Join(err, wdb.Close())
	}
	readers := cmp.Or(s.cfg.Connections, max(4, 2*runtime.NumCPU()))
	rdb.SetMaxOpenConns(readers)
	rdb.SetMaxIdleConns(readers)
	s.db = sqlx.NewDb(rdb, "sqlite")
	s.readers = make(chan *session, readers)
	for range readers {
		s.readers <- nil // opened when it is needed
	}
	s.w, err = newWriter(ctx, s, sqlx.NewDb(wdb, "sqlite"))
	if err != nil {
		return errors.Join(err, wdb.Close(), rdb.Close())
	}
	s.release = release
	return nil
}

// ownSQLite makes this process the one that serves a file, until it releases it or ends, in whatever way. The writer knows
// the newest event without asking, and commits wake only its own process: two at a time would refuse each other's changes.
// The lock is SQLite's own, on an empty database beside the file.
func ownSQLite(ctx context.Context, file string) (release func() error, err error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file + "-lock"}).EscapedPath()+"?_pragma=busy_timeout(1000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_BUSY {
			err = fmt.Errorf("%s is served by another process; stop that one first, or use PostgreSQL for several servers", file)
		}
		return nil, errors.Join(err, db.Close())
	}
	return db.Close, nil
}

// readSQLite runs fn on one snapshot, on the next free connection.
func readSQLite(ctx context.Context, s *Store, fn func(q *Queries) error) (err error) {
	var free *session
	select {
	case free = <-s.readers:
	case <-ctx.Done():
		return s.dialect.wrap(ctx.Err())
	}
	defer func() { s.readers <- free }()
	if free == nil {
		if free, err = newSession(ctx, s.db); err != nil {
			return s.dialect.wrap(err)
		}
	}
	if err := free.exec("BEGIN"); err != nil {
		return s.dialect.wrap(err)
	}
	defer func() { _ = free.exec("ROLLBACK") }() // a snapshot has nothing to commit
	return fn(&Queries{ctx: ctx, dialect: s.dialect, prepare: free.prepare, clock: s.cfg.Clock, count: &s.count})
}

// closeReaders closes the reading connections, once nobody reads any more.
func closeReaders(readers chan *session) {
	for range cap(readers) {
		if s := <-readers; s != nil {
			s.close()
		}
	}
}

// wrapSQLite gives an error of the driver its code. Codes are compared, never texts.
func wrapSQLite(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	switch {
	case err == nil || !ok:
		if errors.Is(err, context.DeadlineExceeded) {
			return fault.New(fault.CodeBusy, "The read took too long and was stopped. Ask for less at a time.").Because(err)
		}
		return err
	case e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE, e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %w", errConflict, err)
	case e.Code()&0xff == sqlite3.SQLITE_BUSY, e.Code()&0xff == sqlite3.SQLITE_LOCKED:
		return fault.New(fault.CodeBusy, "The database is locked by another process. Nothing was changed. Repeat the request.").Because(err)
	case e.Code()&0xff == sqlite3.SQLITE_FULL:
		return fault.New(fault.CodeUnavailable, "The disk of the server is full. Nothing was changed. Repeat the request when somebody has made room.").Because(err)
	}
	return err
}
