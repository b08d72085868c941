package app_test

import (
	"database/sql"
	"strconv"
	"strings"
	"testing"
)

// livePostgres opens the database itself, behind the server's back; nil where it is not a PostgreSQL.
func livePostgres(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	if !strings.HasPrefix(url, "postgres://") {
		return nil
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func liveExec(tb testing.TB, db *sql.DB, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(tb.Context(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// unnumber takes the first event's number back, as if its server had died between the commit and the numbering.
func unnumber(tb testing.TB, url string, s live) {
	tb.Helper()
	db := livePostgres(tb, url)
	if db == nil {
		return
	}
	s.page(tb, "") // numbers it
	first := strconv.Itoa(liveFirst)
	liveExec(tb, db, `WITH log AS (UPDATE event_log SET last = `+first+`), gone AS (DELETE FROM events WHERE id > `+first+` RETURNING *)
		INSERT INTO events_inbox (local_id, at, namespace, topic, type, execution_id, revision, actor, data, schema_version)
		SELECT local_id, at, namespace, topic, type, execution_id, revision, actor, data, schema_version FROM gone`)
}

// xid returns the id of a transaction that has locked something.
func xid(tb testing.TB, tx *sql.Tx) string {
	tb.Helper()
	var id string
	if err := tx.QueryRowContext(tb.Context(), `SELECT (pg_current_xact_id()::text::bigint & 4294967295)::text`).Scan(&id); err != nil {
		tb.Fatal(err)
	}
	return id
}
