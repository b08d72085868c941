package store

import (
	"iter"
	"slices"
	"strings"
)

// list is an argument that stands for several.
type list []any

// List returns the argument of a placeholder that stands for a whole list: "IN ?" becomes "IN (?, ?, …)". There are a power of two of
// them, so that few statements exist: the last value is repeated. Nothing is in the empty list. A list that may be of any length is
// taken in [Chunks].
func List[T any](values []T) any {
	size := 1
	for size < len(values) {
		size *= 2
	}
	all := make(list, size)
	for i := range all {
		if len(values) > 0 {
			all[i] = values[min(i, len(values)-1)]
		}
	}
	return all
}

// chunk is how many values of a long list one statement gets.
const chunk = 512

// Chunks returns the parts of a list that may be of any length.
func Chunks[T any](values []T) iter.Seq[[]T] { return slices.Chunk(values, chunk) }

// spread writes out the lists among the arguments of a query.
func spread(query string, args []any) (string, []any) {
	if !slices.ContainsFunc(args, func(arg any) bool { _, is := arg.(list); return is }) {
		return query, args
	}
	var text strings.Builder
	all := make([]any, 0, 2*len(args))
	for _, arg := range args {
		before, rest, _ := strings.Cut(query, "?")
		text.WriteString(before)
		if many, is := arg.(list); is {
			text.WriteString(marks(len(many)))
			all = append(all, many...)
		} else {
			text.WriteByte('?')
			all = append(all, arg)
		}
		query = rest
	}
	return text.String() + query, all
}
