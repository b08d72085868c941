// Package patch holds the parts of a change that may be left out.
package patch

// Field is a part of a change that may be absent, which keeps what is there, or null, which clears it.
type Field[T any] struct {
	Present bool
	Value   *T // nil for null, or absent
}

// Some returns a part with a value.
func Some[T any](v T) Field[T] { return Field[T]{Present: true, Value: &v} }

// Into sets to, unless the part is absent.
func (f Field[T]) Into(to *T) {
	if !f.Present {
		return
	}
	*to = *new(T)
	if f.Value != nil {
		*to = *f.Value
	}
}
