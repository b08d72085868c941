package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestDocumentReaders_Read(t *testing.T) {
	t.Parallel()
	thing := documents{}.of(testSpec(t).Components.Schemas["Thing"]).shape
	tests := []struct {
		name, data string
		shape      *shape
		want       any
	}{
		{"all of it", `{"a":[1,"x",true,false,null,{}],"b":-1.5e3}`, nil,
			map[string]any{"a": []any{json.Number("1"), "x", true, false, nil, map[string]any{}}, "b": json.Number("-1.5e3")}},
		{"nothing of it", ` {"a":1} `, freeShape(), true},
		{"null where all is free", `null`, freeShape(), nil},
		{"what the schema looks at", `{"name":"x","payload":{"a":[1]},"note":null,"state":{"k":[1],"n":null},"list":["y"],"more":{"z":1}}`, thing,
			map[string]any{"name": "x", "payload": true, "note": nil, "state": map[string]any{"k": true, "n": nil}, "list": []any{"y"}, "more": true}},
		{"escapes", `{"n\u0061me":"\u00e4\n\ud83d\ude00"}`, thing, map[string]any{"name": "ä\n😀"}},
		{"recursive schema", `{"name":"x","inner":{"things":[{"name":"y","payload":[]}]}}`, thing,
			map[string]any{"name": "x", "inner": map[string]any{"things": []any{map[string]any{"name": "y", "payload": true}}}}},
	}
	var readers documentReaders
	for _, tt := range tests {
		got, err := readers.read([]byte(tt.data), tt.shape)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// FuzzDocument: what the reader lets through is one JSON value to encoding/json too, with the same content, and what it
// refuses it refuses with a code of its own; looking at less never lets more through.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `""`, `null`, `0`, ` {"a" : [1 , 2.5e-3, "x\u00e9\\\""] } `, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"b":[{}]}}`,
		`[1,]`, `{"a"}`, `{"a":1}{`, "{\"a\":\"\xff\"}", `"\ud800"`, `"\ud83d\ude00"`, `"\u0000"`, `"\\u0000"`, "\ufeff{}", `01`, `1e999`, `-`,
		strings.Repeat("[", 100) + strings.Repeat("]", 100), strings.Repeat("[", 101) + strings.Repeat("]", 101), `"` + strings.Repeat("[", 200) + `"`, ``, ` `, `tru`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var readers documentReaders
		value, err := readers.read(data, nil)
		_, freeErr := readers.read(data, freeShape())
		if (err == nil) != (freeErr == nil) {
			t.Fatalf("looked at: %v; free: %v", err, freeErr)
		}
		if err != nil {
			refusal, ok := errors.AsType[*fault.Error](err)
			if !ok || len(refusal.Fields) != 1 || !utf8.ValidString(refusal.Message) || !utf8.ValidString(refusal.Fields[0].Pointer) {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		if !utf8.Valid(data) || depth(data) > maxDepth {
			t.Fatal("let through")
		}
		want, wantErr := plain(data)
		if wantErr != nil {
			t.Fatalf("encoding/json refuses it: %v", wantErr)
		}
		if !reflect.DeepEqual(want, value) { // cmp takes exponential time in the depth
			t.Fatalf("got %v, encoding/json has %v", value, want)
		}
	})
}

func plain(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
