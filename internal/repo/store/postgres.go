package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const (
	postgresConns   = 32
	postgresRetries = 6
	// localIDStride is the room for the events of one transaction: it draws one number and counts from there, so that the
	// local ids of a transaction are consecutive.
	localIDStride = 1 << 16
)

func newPostgres() *dialect {
	return &dialect{
		name:       "postgres",
		bytes:      ` COLLATE "C"`,
		bind:       sqlx.DOLLAR,
		forUpdate:  " FOR UPDATE",
		skipLocked: " FOR UPDATE SKIP LOCKED",
		localID:    "local_id",
		outbox:     "events_inbox",
		outboxID:   "local_id",

		open:            openPostgres,
		read:            readPostgres,
		write:           writePostgres,
		now:             nowPostgres,
		reserveEvents:   reservePostgres,
		eventsCommitted: func(s *Store) { s.seq.kick() },
		announce:        func(s *Store, key string) { s.seq.announce(key) },
		sync:            func(ctx context.Context, s *Store) error { return s.seq.sync(ctx) },
		lockKey:         lockKeyPostgres,
		wrap:            wrapPostgres,
		spell:           func(query string) string { return query },
		tag:             func(column string) string { return "(" + column + ")::json ->> ?" },
		among: func(column string) string {
			return "EXISTS (SELECT 1 FROM json_array_elements_text((" + column + ")::json) AS e (value) WHERE value = ?)"
		},
	}
}

// postgresSettings are set on every connection, and read back at start: a role's default of synchronous_commit=off would
// break the promise that what was answered is on disk.
func (cfg *Config) postgresSettings() map[string]string {
	return map[string]string{
		"jit":                                 "off",
		"synchronous_commit":                  "on",
		"lock_timeout":                        cfg.within(lockLimit).String(),
		"idle_in_transaction_session_timeout": cfg.within(idleLimit).String(),
	}
}

func openPostgres(ctx context.Context, s *Store) error {
	cfg, err := pgx.ParseConfig(s.cfg.URL)
	if err != nil {
		return errors.New("the URL is not one of PostgreSQL") // the parser's own text may hold the password
	}
	settings := s.cfg.postgresSettings()
	maps.Copy(cfg.RuntimeParams, settings)
	db := stdlib.OpenDB(*cfg)
	conns := cmp.Or(s.cfg.Connections, postgresConns)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := preparePostgres(ctx, db, settings); err != nil {
		return errors.Join(err, db.Close())
	}
	s.db = sqlx.NewDb(db, "pgx")
	s.seq = newSequencer(s, cfg)
	return nil
}

func preparePostgres(ctx context.Context, db *sql.DB, settings map[string]string) error {
	for name, want := range settings {
		var got string
		if err := db.QueryRowContext(ctx, `SELECT current_setting($1)`, name).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s is %q on this server although %q was asked for", name, got, want)
		}
	}
	if err := migrate(ctx, db, goose.DialectPostgres, "postgres", goose.WithSessionLocker(migrationLock{})); err != nil {
		return err
	}
	return followTimeline(ctx, db)
}

// migrationLock lets one process at a time migrate a schema. goose's own looks again after five seconds, for which replicas
// that start together would wait for each other, and knows no schemas.
type migrationLock struct{}

var _ lock.SessionLocker = migrationLock{}

const (
	migrationKey  = `hashtextextended('flowapi migrations ' || current_schema(), 0)`
	migrationPoll = 20 * time.Millisecond
)

// SessionLock implements lock.SessionLocker. It waits until ctx ends: a blocking lock would end by lock_timeout.
func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var ours bool
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(`+migrationKey+`)`).Scan(&ours); err != nil || ours {
			return err
		}
		select {
		case <-time.After(migrationPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SessionUnlock implements lock.SessionLocker.
func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock(`+migrationKey+`)`)
	return err
}

// followTimeline gives the log a new generation after a fail-over or a restore to a point in time: ids that subscribers
// have seen may be lost then, and must not be given out again.
func followTimeline(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `UPDATE event_log SET timeline = t.id,
		generation = CASE WHEN timeline IS NULL THEN generation ELSE gen_random_uuid() END,
		last = CASE WHEN timeline IS NULL THEN last ELSE last + 1000000 END,
		gap_from = CASE WHEN timeline IS NULL THEN gap_from ELSE last END,
		gap_to = CASE WHEN timeline IS NULL THEN gap_to ELSE last + 1000000 END
		FROM (SELECT timeline_id AS id FROM pg_control_checkpoint()) t WHERE timeline IS DISTINCT FROM t.id`)
	return err
}

// readPostgres runs fn on one snapshot.
func readPostgres(ctx context.Context, s *Store, fn func(q *Queries) error) error {
	tx, err := s.db.BeginTxx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return s.dialect.wrap(err)
	}
	defer func() { _ = tx.Rollback() }() // a snapshot has nothing to commit
	return fn(&Queries{ctx: ctx, dialect: s.dialect, prepare: onTx(tx), clock: s.cfg.Clock, count: &s.count})
}

// onTx returns the statements of tx. The driver keeps those it has prepared.
func onTx(tx *sqlx.Tx) func(context.Context, string) (statement, error) {
	return func(_ context.Context, query string) (statement, error) { return &plain{tx: tx, query: query}, nil }
}

// writePostgres runs op in a transaction of its own, again after a serialisation failure or a deadlock.
func writePostgres(s *Store, op *operation) error {
	begin, cancel := context.WithTimeout(op.ctx, s.cfg.within(writeLimit))
	defer cancel()
	var err error
	for attempt := range postgresRetries {
		if err = op.ctx.Err(); err != nil {
			return err
		}
		if attempt > 0 && begin.Err() != nil { // what was tried took all the time
			break
		}
		if err = runPostgres(begin, s, op); !errors.Is(err, errAgain) {
			return err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond) << (attempt + 1)))) //nolint:gosec // a pause is no secret
	}
	return fault.New(fault.CodeBusy, "Too many changes meet in the same place. Nothing was changed. Repeat the request.").Because(err)
}

// runPostgres runs op once. It has to begin before begin ends; the caller's context counts no longer then.
func runPostgres(begin context.Context, s *Store, op *operation) error {
	conn, err := s.db.Connx(begin)
	if err != nil {
		if op.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fault.New(fault.CodeBusy, "All connections to the database are in use. Nothing was changed. Repeat the request.").Because(err)
		}
		return s.dialect.wrap(err)
	}
	defer conn.Close()
	ctx, cancelRun := context.WithTimeout(context.WithoutCancel(op.ctx), s.cfg.within(runLimit))
	defer cancelRun()
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		return s.dialect.wrap(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	op.tx = &Tx{
		Queries: Queries{ctx: ctx, dialect: s.dialect, prepare: onTx(tx), clock: s.cfg.Clock, count: &s.count},
		Call:    call.From(op.ctx),
		store:   s,
	}
	if err := op.tx.run(op); err != nil {
		return err
	}
	commit := time.Now()
	if err := tx.Commit(); err != nil {
		return s.dialect.wrap(err)
	}
	s.committed([]*operation{op})
	s.cfg.Observe(1, time.Since(commit))
	return nil
}

// nowPostgres asks the database, whose clock all replicas share.
func nowPostgres(tx *Tx) time.Time {
	var ms int64
	if err := tx.Get(&ms, `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint`); err != nil {
		tx.fail(err)
		return time.Unix(0, 0).UTC()
	}
	return tx.clock.at(time.UnixMilli(ms))
}

func reservePostgres(tx *Tx, n int) (int64, error) {
	if n > localIDStride {
		return 0, fmt.Errorf("%d events in one transaction", n)
	}
	var drawn int64
	if err := tx.Get(&drawn, `SELECT nextval('events_local_id')`); err != nil {
		return 0, fmt.Errorf("draw event ids: %w", err)
	}
	return drawn * localIDStride, nil
}

// lockKeyPostgres refuses a key that another transaction is using now: without it the INSERT would wait for that one.
func lockKeyPostgres(tx *Tx, namespace, token, key string) error {
	h := fnv.New64a()
	for _, part := range []string{namespace, token, key} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	var ours bool
	if err := tx.Get(&ours, `SELECT pg_try_advisory_xact_lock(?)`, int64(h.Sum64())); err != nil { //nolint:gosec // all bits of the hash are kept
		return err
	}
	if !ours {
		return fault.New(fault.CodeIdempotencyInFlight, "The first request with this Idempotency-Key is still running. Repeat the request for its answer.")
	}
	return nil
}

// errAgain is in the chain of an error after which the same transaction may succeed.
var errAgain = errors.New("try again")

// wrapPostgres gives an error of the driver its code. Codes are compared, never texts.
func wrapPostgres(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "23505":
			return fmt.Errorf("%w: %w", errConflict, err)
		case "40001", "40P01":
			return fmt.Errorf("%w: %w", errAgain, err)
		case "55P03", "57014":
			return fault.New(fault.CodeBusy, "The record is locked by another change. Nothing was changed. Repeat the request.").Because(err)
		case "57P01", "57P02", "57P03", "53300", "25P03", "53100", "25006":
			return fault.New(fault.CodeUnavailable, "The database is not available. Repeat the request.").Because(err)
		}
		return err
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgconn.SafeToRetry(err) {
		return fault.New(fault.CodeUnavailable, "The database is not available. Repeat the request.").Because(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.CodeBusy, "The database took too long. Repeat the request.").Because(err)
	}
	return err
}
