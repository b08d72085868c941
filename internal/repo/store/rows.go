package store

import (
	"bytes"
	"strings"

	"github.com/google/uuid"
)

// Table is how the rows of a table are written that are read as a whole: the columns of fixed never change after the insert.
type Table struct {
	Columns string // all of them
	Insert  string // one row, unless there is one with its key
	Update  string // what moves, of the row with an id
}

// NewTable returns the statements of a table.
func NewTable(name string, fixed, moving []string) Table {
	columns := strings.Join(append(append([]string{}, fixed...), moving...), ", ")
	return Table{
		Columns: columns,
		Insert:  "INSERT INTO " + name + " (" + columns + ") VALUES " + marks(len(fixed)+len(moving)) + " ON CONFLICT DO NOTHING",
		Update:  "UPDATE " + name + " SET " + strings.Join(moving, " = ?, ") + " = ? WHERE id = ?",
	}
}

// marks returns "(?, ?, …)" with n placeholders.
func marks(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// Rows returns what the rows of a query are.
func Rows[R, T any](rows []R, read func(row *R) (T, error)) ([]T, error) {
	list := make([]T, len(rows))
	for i := range rows {
		var err error
		if list[i], err = read(&rows[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// IDs returns ids as they are stored.
func IDs(ids []uuid.UUID) []ID {
	out := make([]ID, len(ids))
	for i, id := range ids {
		out[i] = ID(id)
	}
	return out
}

// UUIDs returns ids that were stored.
func UUIDs(ids []ID) []uuid.UUID {
	out := make([]uuid.UUID, len(ids))
	for i, id := range ids {
		out[i] = uuid.UUID(id)
	}
	return out
}

// ByID is the order in which the rows of one table are locked.
func ByID[T ~[16]byte](a, b T) int { return bytes.Compare(a[:], b[:]) }

// Bit is how a flag is stored.
func Bit(set bool) int {
	if set {
		return 1
	}
	return 0
}
