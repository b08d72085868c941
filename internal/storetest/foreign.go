package storetest

import (
	"database/sql"
	"testing"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// ForeignTransaction opens a transaction of somebody else's, which has written and neither commits nor goes away until
// release is called. A database with one writer has no such thing; there it does nothing.
func ForeignTransaction(tb testing.TB, s *store.Store) (release func()) {
	tb.Helper()
	if s.Database() != "postgres" {
		return func() {}
	}
	server, err := cluster()
	if err != nil {
		tb.Fatal(err)
	}
	db, err := sql.Open("pgx", server)
	if err != nil {
		tb.Fatal(err)
	}
	tx, err := db.BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := tx.ExecContext(tb.Context(), `CREATE TEMPORARY TABLE left_open AS SELECT pg_current_xact_id()`); err != nil {
		tb.Fatal(err)
	}
	return func() {
		_ = tx.Rollback()
		_ = db.Close()
	}
}
