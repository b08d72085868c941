package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/flowapi/flowapi/db/migrations"
)

// migrate brings the database up to the newest migration of this binary, and refuses one that is newer.
func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, folder string, opts ...goose.ProviderOption) error {
	files, err := fs.Sub(migrations.Files, folder)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	current, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the database's version: %w", err)
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; current > newest {
		return fmt.Errorf("the database has version %d and this binary knows %d: it is too old; start the version that last ran here", current, newest)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
