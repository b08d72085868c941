package merge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/merge"
	"github.com/flowapi/flowapi/internal/jsontest"
)

// TestShallow holds the golden vectors of the shallow merge. reference: runs-and-taskflows.md G-MG, B6.
func TestShallow(t *testing.T) {
	t.Parallel()
	tests := []struct{ state, patch, want string }{
		{`{"messages":10,"processed":0}`, `{"processed":5}`, `{"messages":10,"processed":5}`},
		{`{"a":{"x":1}}`, `{"a":{"y":2}}`, `{"a":{"y":2}}`},
		{`{"a":1}`, `{"a":null}`, `{"a":null}`},
		{`{"a":1}`, `[1]`, `[1]`},
		{`5`, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `null`, `null`},
		{`null`, `{}`, `{}`},
		{`{}`, `{}`, `{}`},
		{`{"b":1,"a":2}`, `{"c":3,"b":4}`, `{"b":4,"a":2,"c":3}`},
		{`{"n":12345678901234567890.10}`, `{"m":1e400}`, `{"n":12345678901234567890.10,"m":1e400}`},
		{`{"a<b":"<&>"}`, `{ "x y" : [ 1 , 2 ] }`, `{"a<b":"<&>","x y":[1,2]}`},
		{`{"é":1}`, `{"\u00e9":2}`, `{"é":2}`},
	}
	for _, tt := range tests {
		if got := merge.Shallow(json.RawMessage(tt.state), json.RawMessage(tt.patch)); string(got) != tt.want {
			t.Errorf("Shallow(%s, %s) = %s, want %s", tt.state, tt.patch, got, tt.want)
		}
	}
}

// TestPatch holds the vectors of RFC 7396, appendix A, and some of our own.
func TestPatch(t *testing.T) {
	t.Parallel()
	tests := []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		// section 3, the example
		{
			`{"title":"Goodbye!","author":{"givenName":"John","familyName":"Doe"},"tags":["example","sample"],"content":"This will be unchanged"}`,
			`{"title":"Hello!","phoneNumber":"+01-123-456-7890","author":{"familyName":null},"tags":["example"]}`,
			`{"title":"Hello!","author":{"givenName":"John"},"tags":["example"],"content":"This will be unchanged","phoneNumber":"+01-123-456-7890"}`,
		},
		{`{"n":9007199254740993}`, `{"m":{"x":0.10}}`, `{"n":9007199254740993,"m":{"x":0.10}}`},
		{`{"a":1,"b":2}`, "{\n \"a\": null,\n \"c\": { \"d\": [ null ] }\n}", `{"b":2,"c":{"d":[null]}}`},
	}
	for _, tt := range tests {
		if got := merge.Patch(json.RawMessage(tt.target), json.RawMessage(tt.patch)); string(got) != tt.want {
			t.Errorf("Patch(%s, %s) = %s, want %s", tt.target, tt.patch, got, tt.want)
		}
	}
}

// names are the members of the objects drawn.
var names = []string{"a", "b", "c", "d e", "resume_event"}

// TestShallow_Laws: reference: runs-and-taskflows.md D5 42.
func TestShallow_Laws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, a, b := jsontest.Objects(2, names...).Draw(t, "state"), jsontest.Objects(2, names...).Draw(t, "a"), jsontest.Objects(2, names...).Draw(t, "b")
		state, pa, pb := jsontest.Text(t, s), jsontest.Text(t, a), jsontest.Text(t, b)
		if got := merge.Shallow(state, json.RawMessage(`{}`)); !reflect.DeepEqual(jsontest.Value(t, got), jsontest.Value(t, state)) {
			t.Fatalf("an empty patch makes %s of %s", got, state)
		}
		left, right := merge.Shallow(merge.Shallow(state, pa), pb), merge.Shallow(state, merge.Shallow(pa, pb))
		if !reflect.DeepEqual(jsontest.Value(t, left), jsontest.Value(t, right)) {
			t.Fatalf("merging is not associative: %s, %s", left, right)
		}
		want := maps.Clone(s)
		maps.Copy(want, a)
		if got := merge.Shallow(state, pa); !reflect.DeepEqual(jsontest.Value(t, got), jsontest.Value(t, jsontest.Text(t, want))) {
			t.Fatalf("Shallow(%s, %s) = %s", state, pa, got)
		}
	})
}

// mergePatch is the pseudo code of RFC 7396, section 2.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for name, v := range p {
		if v == nil {
			delete(t, name)
		} else {
			t[name] = mergePatch(t[name], v)
		}
	}
	return t
}

func TestPatch_IsTheRFC(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		target, patch := jsontest.Text(t, jsontest.Values(3, names...).Draw(t, "target")), jsontest.Text(t, jsontest.Values(3, names...).Draw(t, "patch"))
		got := merge.Patch(target, patch)
		if want := mergePatch(jsontest.Value(t, target), jsontest.Value(t, patch)); !reflect.DeepEqual(jsontest.Value(t, got), want) {
			t.Fatalf("Patch(%s, %s) = %s, want %v", target, patch, got, want)
		}
		if again := merge.Patch(got, patch); !bytes.Equal(again, got) {
			t.Fatalf("applied twice it makes %s of %s", again, got)
		}
	})
}

// TestShallow_Large shows that a large patch takes time in proportion to its size.
func TestShallow_Large(t *testing.T) {
	t.Parallel()
	large := func(from int) json.RawMessage {
		var b strings.Builder
		for i := range 60_000 {
			fmt.Fprintf(&b, `,"%x":%d`, i, from)
		}
		return json.RawMessage("{" + b.String()[1:] + "}")
	}
	begun := time.Now()
	got := merge.Shallow(large(0), large(1))
	if !bytes.Equal(got, large(1)) || !slices.Equal(merge.Patch(large(0), large(1)), large(1)) {
		t.Error("the patch was not applied")
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
