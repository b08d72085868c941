package stream_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
)

// apply merges patches into a summary, each in a request of its own.
func apply(t rapid.TB, s *stream.Summary, patches ...string) {
	t.Helper()
	for _, patch := range patches {
		if err := s.Apply([]stream.Frame{{Mode: stream.Durable}, {Mode: stream.Summarised, Payload: []byte(patch)}}, start, func(i int) int { return i }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSummary_Apply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		patches []string
		want    string
	}{
		{[]string{`{"a":1}`, `{"b":{"c":2}}`, `{"b":{"d":3}}`}, `{"a":1,"b":{"c":2,"d":3}}`},
		{[]string{`{"a":1,"b":2}`, `{"a":null}`}, `{"b":2}`},
		{[]string{`{"a":"__ff_null__"}`, `{"b":1}`}, `{"a":null,"b":1}`},
		{[]string{`{"a":{"b":"__ff_null__"}}`, `{"a":{"c":1}}`}, `{"a":{"b":null,"c":1}}`},
		{[]string{`{"a":["__ff_null__",{"b":"__ff_null__","__ff_null__":"x"}, "__ff_null__ "]}`}, `{"a":[null,{"b":null,"__ff_null__":"x"},"__ff_null__ "]}`},
		{[]string{`{"__ff_null__":"__ff_null__"}`}, `{"__ff_null__":null}`},
		{[]string{`{"a":["\\\"__ff_null__\""]}`}, `{"a":["\\\"__ff_null__\""]}`},
		{[]string{`{"a":"\u005f_ff_null__","b":["_\u005Fff_null__","\u005f_ff_null_\n"]}`}, `{"a":null,"b":[null,"\u005f_ff_null_\n"]}`},
		{[]string{`{"a":[null]}`}, `{"a":[null]}`},
		{[]string{` { "n" : 12345678901234567890.10 } `}, `{"n":12345678901234567890.10}`},
		{[]string{`{}`}, `{}`},
	}
	for _, tt := range tests {
		var s stream.Summary
		apply(t, &s, tt.patches...)
		if string(s.Document) != tt.want || s.Version != int64(len(tt.patches)) || !s.FirstAppliedAt.Equal(start) {
			t.Errorf("%v make %s, version %d, want %s", tt.patches, s.Document, s.Version, tt.want)
		}
	}
}

// fold is RFC 7396 on values.
func fold(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	to, ok := target.(map[string]any)
	if !ok {
		to = map[string]any{}
	}
	for name, v := range changes {
		if v == nil {
			delete(to, name)
		} else {
			to[name] = fold(to[name], v)
		}
	}
	return to
}

// sentinels makes the text that stands for a null a null, wherever it is a value.
func sentinels(v any) any {
	switch v := v.(type) {
	case string:
		if v == "__ff_null__" {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = sentinels(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = sentinels(v[name])
		}
	}
	return v
}

func values(depth int) *rapid.Generator[any] {
	leaf := rapid.SampledFrom([]any{nil, 1.0, true, "", "__ff_null__", "x\"__ff_null__\"", "\\"})
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return l }),
		rapid.Map(objects(depth-1), func(m map[string]any) any { return m }))
}

func objects(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "__ff_null__", "\""}), values(depth), 0, 3)
}

// TestSummary_IsTheFold: the document is the fold of the merges with sentinels made nulls at the end, however the patches are
// spread over requests; the version counts them. 9 (18).
func TestSummary_IsTheFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want any = map[string]any{}
		var s stream.Summary
		var batch []stream.Frame
		n := rapid.IntRange(1, 8).Draw(t, "patches")
		for i := range n {
			patch, err := json.Marshal(objects(3).Draw(t, "patch"))
			if err != nil {
				t.Fatal(err)
			}
			var v any
			if err := json.Unmarshal(patch, &v); err != nil {
				t.Fatal(err)
			}
			want = fold(want, v)
			batch = append(batch, stream.Frame{Mode: stream.Summarised, Payload: patch})
			if i < n-1 && rapid.Bool().Draw(t, "together") {
				continue
			}
			if err := s.Apply(batch, start.Add(time.Duration(i)*time.Second), func(i int) int { return i }); err != nil {
				t.Fatal(err)
			}
			if v := batch[len(batch)-1].Version; v != int64(i+1) {
				t.Fatalf("patch %d made version %d", i, v)
			}
			batch = nil
		}
		var got any
		if err := json.Unmarshal(s.Document, &got); err != nil {
			t.Fatalf("%s: %v", s.Document, err)
		}
		if !reflect.DeepEqual(got, sentinels(want)) || s.Version != int64(n) {
			t.Fatalf("version %d: %s, want %v", s.Version, s.Document, want)
		}
	})
}

func TestCheckPatch(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"[":`, n-1) + "[]" + strings.Repeat("}", n-1) }
	for _, fine := range []string{`{}`, ` {"a":"}]{["} `, deep(stream.MaxSummaryDepth), `{"a":"\\"}`} {
		if err := stream.CheckPatch([]byte(fine), 0); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	for _, wrong := range []string{"", "x", "{", "{}{}", "[]", "1", "null", `"x"`, deep(stream.MaxSummaryDepth + 1), "{\"a\":\"\xff\"}"} {
		if err := stream.CheckPatch([]byte(wrong), 2); fault.CodeOf(err) != fault.CodeValidationFailed {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestSummary_Apply_TooLarge(t *testing.T) {
	t.Parallel()
	var s stream.Summary
	patch := func(i int) string { return fmt.Sprintf(`{"m%d":%q}`, i, strings.Repeat("x", 60_000)) }
	apply(t, &s, patch(0), patch(1), patch(2), patch(3))
	err := s.Apply([]stream.Frame{{Mode: stream.Summarised, Payload: []byte(patch(4))}}, start, func(int) int { return 9 })
	if f, ok := err.(*fault.Error); !ok || f.Code != fault.CodePayloadTooLarge || f.Fields[0].Pointer != "/frames/9/payload" { //nolint:errorlint // it is not wrapped
		t.Errorf("%v", err)
	}
}
