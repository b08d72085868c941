package page

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Named is a stretch of a list that is ordered by name. Next is the name after which the list goes on, "" at its end.
type Named[T any] struct {
	Items []T
	Next  string
}

// nameVersion tells the cursor of a name from a [Cursor].
const nameVersion = 2

// NameCursor returns the opaque form of a name, "" for the beginning.
func NameCursor(name string) string {
	if name == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append([]byte{nameVersion}, name...))
}

// ParseName reads what NameCursor wrote. It returns CodeInvalidCursor.
func ParseName(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	b, ok := decode(s, nameVersion)
	if !ok || len(b) < 2 || !utf8.Valid(b[1:]) || bytes.IndexByte(b, 0) >= 0 {
		return "", invalid()
	}
	return string(b[1:]), nil
}

// OfNames cuts rows, of which one more than limit was read, into a page.
func OfNames[T any](rows []T, limit int, name func(T) string) Named[T] {
	if len(rows) <= limit {
		return Named[T]{Items: rows}
	}
	return Named[T]{Items: rows[:limit], Next: name(rows[limit-1])}
}

func invalid() error {
	f := fault.New(fault.CodeInvalidCursor, "The cursor is not one of this list's. Start again without one.")
	f.Fields = []fault.Field{{In: fault.InQuery, Pointer: "cursor", Detail: "not a cursor", Code: fault.CodeInvalidCursor}}
	return f
}
