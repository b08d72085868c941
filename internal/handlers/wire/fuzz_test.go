package wire_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// FuzzTime: a time that is read is written in one form, with milliseconds and in UTC, and read again as the same.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{"", "2026-11-22T09:30:00Z", "2026-11-22t09:30:00.1239999+01:00", "9999-12-31T23:59:59-23:59", "0999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-11-22 09:30:00Z",
		"2026-11-22T09:30:60Z", "2026-11-22T24:00:00Z", "2026-11-22T09:30:00,5Z", "1000-01-01T00:00:00+23:59"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := wire.Parse(text)
		quoted, _ := json.Marshal(text)
		var inJSON wire.Time
		if jsonErr := json.Unmarshal(quoted, &inJSON); (jsonErr == nil) != (err == nil) || !inJSON.Equal(read) {
			t.Fatalf("%s is %s, %v; in JSON %s, %v", text, read, err, inJSON, jsonErr)
		}
		if err != nil {
			if !read.IsZero() {
				t.Fatalf("refused, and yet %s", read)
			}
			return
		}
		again, err := wire.Parse(read.String())
		if text, marshalErr := read.MarshalText(); err != nil || marshalErr != nil || !again.Equal(read) || string(text) != read.String() || len(text) != len(wire.Layout) {
			t.Fatalf("%s is written as %s, and read as %s, %v, %v", read, text, again, err, marshalErr)
		}
		if !read.Equal(wire.FromMillis(read.UnixMilli())) || read.Time().Location() != time.UTC {
			t.Fatalf("%s is not in whole milliseconds, in UTC", read)
		}
	})
}

// FuzzForms: what has two forms in a body is one of them, whatever is sent.
func FuzzForms(f *testing.F) {
	for _, seed := range []string{`"a"`, `{"key":"a","pass_result":true}`, `{"quorum":2}`, `"any"`, `"failed"`, `["a","b"]`, `null`, `{}`, `[]`, `1`, `{"quorum":null}`, ` "a"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var need wire.Need
		if err := json.Unmarshal(data, &need); err == nil && data[0] == '"' && need.PassResult {
			t.Fatalf("%s asks for the result", data)
		}
		var join wire.Join
		if err := json.Unmarshal(data, &join); err == nil && join.Word != "" && join.Quorum != 0 {
			t.Fatalf("%s is both %+v", data, join)
		}
		var from wire.ReplayFrom
		if err := json.Unmarshal(data, &from); err == nil && from.Failed && from.Names != nil {
			t.Fatalf("%s is both %+v", data, from)
		}
		var field wire.Field[string]
		if err := json.Unmarshal(data, &field); err != nil {
			return
		}
		text, err := json.Marshal(field)
		var again wire.Field[string]
		if err != nil || json.Unmarshal(text, &again) != nil || !again.Present || (again.Value == nil) != (field.Value == nil) || again.Value != nil && *again.Value != *field.Value {
			t.Fatalf("%s is written as %s, %v", data, text, err)
		}
	})
}
