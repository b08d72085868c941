// Package storetest gives tests a store of their own, on both databases.
//
// PostgreSQL is the server that FLOWAPI_TEST_POSTGRES_URL names, else a throwaway cluster that is started when initdb can
// be found. Without either that half is skipped, unless FLOWAPI_TEST_POSTGRES=required makes its absence a failure.
package storetest

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// Databases runs fn once on each database, as parallel subtests, with the URL of an empty database.
func Databases(t *testing.T, fn func(t *testing.T, url string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, SQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, Postgres(t))
	})
}

// URLs returns the URL of an empty database of each kind: SQLite, and PostgreSQL where there is one.
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

// SQLite returns the name of a file that does not exist yet.
func SQLite(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "flowapi.db")
}

// Postgres returns the URL of a new schema. It skips the test, or fails it, where there is no PostgreSQL.
func Postgres(tb testing.TB) string {
	tb.Helper()
	server, err := cluster()
	if err != nil {
		if os.Getenv("FLOWAPI_TEST_POSTGRES") == "required" {
			tb.Fatalf("PostgreSQL is required: %v", err)
		}
		tb.Skipf("no PostgreSQL: %v", err)
	}
	schema := "test_" + random()
	db, err := sql.Open("pgx", server)
	if err != nil {
		tb.Fatal(err)
	}
	exec := func(statement string) error {
		_, err := db.Exec(fmt.Sprintf(statement, schema)) //nolint:noctx // set-up outlives no test
		return err
	}
	if err := exec(`CREATE SCHEMA %s`); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := exec(`DROP SCHEMA %s CASCADE`); err != nil {
			tb.Errorf("drop the schema: %v", err)
		}
		_ = db.Close()
	})
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
