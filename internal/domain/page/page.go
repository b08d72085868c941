// Package page holds the cursors of lists: where a list goes on, as an opaque string.
package page

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// Page is a stretch of a list. Next is zero at the end of the list.
type Page[T any] struct {
	Items []T
	Next  Cursor
}

// Cursor is the place of one row in a list ordered by (At, ID). The zero value is the list's beginning.
type Cursor struct {
	At int64 // the row's place: milliseconds, or a position
	ID uuid.UUID
}

// IsZero says whether c is the beginning.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// After returns the cursor behind a row that was made at the given time.
func After(at time.Time, id uuid.UUID) Cursor { return Cursor{At: at.UnixMilli(), ID: id} }

const (
	version = 1
	size    = 1 + 8 + 16
)

// String returns the opaque form, "" for the beginning.
func (c Cursor) String() string {
	if c.IsZero() {
		return ""
	}
	b := make([]byte, 0, size)
	b = append(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(c.At)) //nolint:gosec // all bits of the place are kept, and read again
	b = append(b, c.ID[:]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads what String wrote. It returns CodeInvalidCursor.
func Parse(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	b, ok := decode(s, version)
	if !ok || len(b) != size {
		return Cursor{}, invalid()
	}
	return Cursor{At: int64(binary.BigEndian.Uint64(b[1:9])), ID: uuid.UUID(b[9:])}, nil //nolint:gosec // as String wrote it
}

// decode returns the bytes that a cursor of a version stands for, which have one spelling.
func decode(s string, version byte) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) > 0 && b[0] == version && !strings.ContainsAny(s, "\r\n") // which base64 passes over
}

// Of cuts rows, of which one more than limit was read, into a page.
func Of[T any](rows []T, limit int, cursor func(T) Cursor) Page[T] {
	if len(rows) <= limit {
		return Page[T]{Items: rows}
	}
	return Page[T]{Items: rows[:limit], Next: cursor(rows[limit-1])}
}
