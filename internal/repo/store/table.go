package store

import (
	"reflect"
	"slices"
	"strings"
)

// Table is a table whose rows are values of R. Its columns are those of R's fields (`db:"name"`), in their order: first what never changes
// after the insert, or only by statements of its own, and from the field with `row:"moving"` on what an update writes. A field with
// `row:"computed"` is no column.
type Table[R any] struct {
	Columns string // all of them
	Insert  string // one row, unless there is one with its key: its arguments are All
	Update  string // what moves, of the row with an id: its arguments are Moving and the id

	name   string
	fields []field
	fixed  int // how many fields do not move
}

// field is a field that is a column.
type field struct {
	index int
	zero  any // most values of a row are none: this one is not allocated again
}

// TableOf returns the table of rows of type R.
func TableOf[R any](name string) Table[R] {
	t := Table[R]{name: name, fixed: -1}
	columns := t.columns(reflect.TypeFor[R]())
	t.Columns = strings.Join(columns, ", ")
	t.Insert = "INSERT INTO " + name + " (" + t.Columns + ") VALUES " + marks(len(columns)) + " ON CONFLICT DO NOTHING"
	t.Update = t.update(columns[t.fixed:])
	return t
}

// columns finds the fields that are columns, and returns their names.
func (t *Table[R]) columns(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		switch f.Tag.Get("row") {
		case "computed":
			continue
		case "moving":
			t.fixed = len(t.fields)
		}
		t.fields, names = append(t.fields, field{i, reflect.Zero(f.Type).Interface()}), append(names, f.Tag.Get("db"))
	}
	return names
}

func (t *Table[R]) update(columns []string) string {
	return "UPDATE " + t.name + " SET " + strings.Join(columns, " = ?, ") + " = ? WHERE id = ?"
}

// UpdateAnd is Update that also writes other columns, behind those.
func (t *Table[R]) UpdateAnd(others ...string) string {
	moving := strings.Split(t.Columns, ", ")[t.fixed:]
	return t.update(slices.Concat(moving, others))
}

// All returns the values of a row.
func (t *Table[R]) All(row *R) []any { return values(row, t.fields) }

// Moving returns those of a row that move.
func (t *Table[R]) Moving(row *R) []any { return values(row, t.fields[t.fixed:]) }

func values(row any, fields []field) []any {
	of, out := reflect.ValueOf(row).Elem(), make([]any, 0, len(fields)+3) // mostly a key follows
	for _, f := range fields {
		if v := of.Field(f.index); v.IsZero() {
			out = append(out, f.zero)
		} else {
			out = append(out, v.Interface())
		}
	}
	return out
}
