package merge_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/merge"
	"github.com/flowapi/flowapi/internal/jsontest"
)

// FuzzMerge: of documents as the API lets them in, merging makes what the RFC says, and what the shallow merge says; both again
// change nothing.
func FuzzMerge(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"b":1}}`, `{"a":{"b":null,"c":[null]}}`}, {`[]`, `{"a":null}`}, {`{"a":1}`, `null`}, {`{"\u00e9":1}`, `{"é":{"x":1e400}}`}, {` { "a" : 1 } `, ` { "a" : { "b" : 2 } } `},
		{`{"a":{}}`, `{"a":{"b":{"c":null}}}`}, {`"x"`, `[1]`}, {`{"\"":0,"\\":1}`, `{"\u0022":null}`}, {`{"":-0.0}`, `{"":{}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, target, patch []byte) {
		if !jsontext.Value(target).IsValid() || !jsontext.Value(patch).IsValid() {
			return
		}
		before, changes := jsontest.Value(t, target), jsontest.Value(t, patch)
		got := merge.Patch(target, patch)
		if want := mergePatch(jsontest.Value(t, target), changes); !jsontext.Value(got).IsValid() || !reflect.DeepEqual(jsontest.Value(t, got), want) {
			t.Fatalf("Patch(%s, %s) = %s, want %v", target, patch, got, want)
		}
		if again := merge.Patch(got, patch); !bytes.Equal(again, got) {
			t.Fatalf("applied twice %s makes %s of %s", patch, again, got)
		}
		shallow, want := merge.Shallow(target, patch), changes
		object, isObject := before.(map[string]any)
		if members, ok := changes.(map[string]any); ok && isObject {
			merged := maps.Clone(object)
			maps.Copy(merged, members)
			want = merged
		}
		if !jsontext.Value(shallow).IsValid() || !reflect.DeepEqual(jsontest.Value(t, shallow), want) {
			t.Fatalf("Shallow(%s, %s) = %s, want %v", target, patch, shallow, want)
		}
		if again := merge.Shallow(shallow, patch); !bytes.Equal(again, shallow) {
			t.Fatalf("merged twice %s makes %s of %s", patch, again, shallow)
		}
		if set := merge.Set(target, "x\"", json.RawMessage(`1`)); isObject && !reflect.DeepEqual(jsontest.Value(t, merge.Patch(target, json.RawMessage(`{"x\"":1}`))), jsontest.Value(t, set)) {
			t.Fatalf("Set makes %s of %s", set, target)
		}
	})
}
