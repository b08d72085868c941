package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/flowapi/flowapi/db/migrations"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Migrating takes longer than most tests do, so it is done once, and each test has a copy.

// sqliteTemplate returns the content of a database that has its tables and nothing in them.
var sqliteTemplate = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "flowapi-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "flowapi.db")
	if err := migrate(file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// postgresTemplate returns the name of a database that has its tables and nothing in them. It stays on the server, and whoever
// has the same migrations takes it again.
var postgresTemplate = sync.OnceValues(func() (name string, err error) {
	server, err := cluster()
	if err != nil {
		return "", err
	}
	sum, err := sumOf("postgres")
	if err != nil {
		return "", err
	}
	db, err := sql.Open("pgx", server)
	if err != nil {
		return "", err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the lock is its session's
	if err := execute(db, `SELECT pg_advisory_lock(hashtext('flowapi_template'))`); err != nil {
		return "", err
	}
	name = "flowapi_template_" + sum
	var there bool
	if err := db.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, name).Scan(&there); err != nil || there {
		return name, err
	}
	const unfinished = "flowapi_template_unfinished"
	if err := errors.Join(execute(db, `DROP DATABASE IF EXISTS `+unfinished+` WITH (FORCE)`), execute(db, `CREATE DATABASE `+unfinished)); err != nil {
		return "", err
	}
	if err := migrate(onServer(server, unfinished)); err != nil {
		return "", err
	}
	return name, execute(db, `ALTER DATABASE `+unfinished+` RENAME TO `+name)
})

func migrate(url string) error {
	s, err := store.Open(context.Background(), store.Config{URL: url})
	if err != nil {
		return err
	}
	return s.Close()
}

// sumOf returns what tells the migrations of a folder apart from others.
func sumOf(folder string) (string, error) {
	names, err := fs.Glob(migrations.Files, folder+"/*")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range names {
		content, err := migrations.Files.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d ", name, len(content))
		sum.Write(content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), nil
}

// onServer returns the URL of another database on the same server.
func onServer(server, database string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // which cannot be connected to, either
	}
	u.Path = "/" + database
	return u.String()
}

func execute(db *sql.DB, statement string) error {
	_, err := db.Exec(statement) //nolint:noctx // set-up outlives no test
	return err
}
