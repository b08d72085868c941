package store

import (
	"bytes"
	"strings"

	"github.com/google/uuid"
)

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
