// Package storetest gives tests a store of their own, on both databases.
//
// PostgreSQL is the server that FLOWAPI_TEST_POSTGRES_URL names, else a throwaway cluster that is started when initdb can
// be found. Without either that half is skipped, unless FLOWAPI_TEST_POSTGRES=required makes its absence a failure.
package storetest

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// Databases runs fn once on each database, as parallel subtests, with the URL of one that has its tables and nothing in them.
func Databases(t *testing.T, fn func(t *testing.T, url string)) {
	t.Helper()
	each(t, SQLite, Postgres, fn)
}

// Bare is Databases without tables, for what migrates by itself.
func Bare(t *testing.T, fn func(t *testing.T, url string)) {
	t.Helper()
	each(t, fileOf, func(tb testing.TB) string {
		tb.Helper()
		return databaseOf(tb, "template1")
	}, fn)
}

func each(t *testing.T, sqlite, postgres func(tb testing.TB) string, fn func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, sqlite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, postgres(t))
	})
}

// URLs returns the URL of a database of each kind that has its tables and nothing in them: SQLite, and PostgreSQL where there is one.
func URLs(t *testing.T) map[string]string {
	t.Helper()
	urls := map[string]string{"sqlite": SQLite(t)}
	if _, err := cluster(); err == nil || os.Getenv("FLOWAPI_TEST_POSTGRES") == "required" {
		urls["postgres"] = Postgres(t)
	}
	return urls
}

// Stores is Databases with an open store.
func Stores(t *testing.T, fn func(t *testing.T, s *store.Store)) {
	t.Helper()
	Databases(t, func(t *testing.T, url string) { fn(t, Open(t, store.Config{URL: url})) })
}

// Open opens a store and closes it at the end of the test.
func Open(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return s
}

// SQLite returns the file of a new database.
func SQLite(tb testing.TB) string {
	tb.Helper()
	file := fileOf(tb)
	template, err := sqliteTemplate()
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, template, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Postgres returns the URL of a new database. It skips the test, or fails it, where there is no PostgreSQL.
func Postgres(tb testing.TB) string {
	tb.Helper()
	needServer(tb)
	template, err := postgresTemplate()
	if err != nil {
		tb.Fatal(err)
	}
	return databaseOf(tb, template)
}

// fileOf returns the name of a file that does not exist yet.
func fileOf(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "flowapi.db")
}

// databaseOf returns the URL of a copy of a database, which goes with the test.
func databaseOf(tb testing.TB, template string) string {
	tb.Helper()
	server := needServer(tb)
	db, err := sql.Open("pgx", server)
	if err != nil {
		tb.Fatal(err)
	}
	name := "flowapi_test_" + random()
	if err := execute(db, `CREATE DATABASE `+name+` TEMPLATE `+template); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := execute(db, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			tb.Errorf("drop the database: %v", err)
		}
		_ = db.Close()
	})
	return onServer(server, name)
}

// needServer returns the URL of the PostgreSQL server. It skips the test, or fails it, where there is none.
func needServer(tb testing.TB) string {
	tb.Helper()
	server, err := cluster()
	if err != nil {
		if os.Getenv("FLOWAPI_TEST_POSTGRES") == "required" {
			tb.Fatalf("PostgreSQL is required: %v", err)
		}
		tb.Skipf("no PostgreSQL: %v", err)
	}
	return server
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
