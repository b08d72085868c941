package flow_test

import (
	"bytes"
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"
)

// values draws a JSON value that nests a little.
func values(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.IntRange(-3, 3), func(i int) any { return json.Number(fmt.Sprint(i)) }),
		rapid.Map(rapid.SampledFrom([]string{"", "x", "<>&", "ü", "\\"}), func(s string) any { return s }), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return l }), rapid.Map(objects(depth-1), func(m map[string]any) any { return m }))
}

func objects(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d e", "resume_event"}), values(depth), 0, 4)
}

func text(t *rapid.T, v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func value(tb interface{ Fatalf(string, ...any) }, doc json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("%s: %v", doc, err)
	}
	return v
}
