package store

import "slices"

// Where is the condition of a query, put together of parts that all have to hold.
type Where struct {
	text string
	args []any
}

// NewWhere returns a condition of one part.
func NewWhere(part string, args ...any) *Where { return &Where{part, args} }

// And adds a part.
func (w *Where) And(part string, args ...any) {
	w.text += " AND " + part
	w.args = append(w.args, args...)
}

// If adds a part that is there only sometimes.
func (w *Where) If(present bool, part string, args ...any) {
	if present {
		w.And(part, args...)
	}
}

// String returns the condition as SQL.
func (w *Where) String() string { return w.text }

// Args returns the arguments of the condition, and those that follow it in the query.
func (w *Where) Args(more ...any) []any { return append(slices.Clip(w.args), more...) }
