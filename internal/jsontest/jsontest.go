// Package jsontest draws JSON documents for property tests.
package jsontest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"
)

// Values draws a JSON value that nests at most so deep. Members of objects have some of the given names.
func Values(depth int, names ...string) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.IntRange(-3, 3), func(i int) any { return json.Number(fmt.Sprint(i)) }),
		rapid.Map(rapid.SampledFrom([]string{"", "x", "<>&", "ü", "\\"}), func(s string) any { return s }), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(Values(depth-1, names...), 0, 3), func(l []any) any { return l }),
		rapid.Map(Objects(depth-1, names...), func(m map[string]any) any { return m }))
}

// Objects draws a JSON object whose members nest at most so deep.
func Objects(depth int, names ...string) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom(names), Values(depth, names...), 0, 4)
}

// Text returns v as a document.
func Text(t *rapid.T, v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Value returns what a document says. Numbers keep their digits.
func Value(tb interface{ Fatalf(string, ...any) }, doc json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("%s: %v", doc, err)
	}
	return v
}
