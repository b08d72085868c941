// Package migrations holds the schema, a folder for each database with the same file names. A released file never changes.
package migrations

import "embed"

// Files are the migrations, in sqlite/ and postgres/.
//
//go:embed sqlite/*.sql postgres/*.sql
var Files embed.FS
