package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
)

// refusedAs fails unless err is a refusal with one of these codes, whose text can be shown.
func refusedAs(t *testing.T, err error, codes ...fault.Code) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Fields) != 1 {
		t.Fatalf("refused with %#v", err)
	}
	if !slices.Contains(codes, f.Code) {
		t.Fatalf("refused with %v", err)
	}
}

// FuzzPlace: a place is read as it is written, also where a stream goes on.
func FuzzPlace(f *testing.F) {
	for _, seed := range []string{"", "start", "end", "0", "1-2", "1763718600000-0", "-1", "1-", "8796093022207-1048575", "8796093022206-1048576", "99999999999999999999-0",
		"0/1-2", "2147483648/1", "1/", "/1", "٣-1", stream.End.String()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := stream.ParseBound(text); err != nil {
			refusedAs(t, err, fault.CodeInvalidCursor)
		} else {
			again, err := stream.ParseID(id.String())
			if id.At().Equal(stream.End.At()) {
				id = stream.End // a text that names the last millisecond is the end
			}
			if err != nil || again != id || id < stream.Start || id.Next() < id || id.At().Before(time.UnixMilli(0)) {
				t.Fatalf("%d is written as %s, and read as %d, %v", id, id, again, err)
			}
		}
		if place, err := stream.ParsePlace(text); err != nil {
			refusedAs(t, err, fault.CodeInvalidCursor)
		} else if again, err := stream.ParsePlace(place.String()); err != nil || again != place {
			t.Fatalf("%+v is written as %s, and read as %+v, %v", place, place, again, err)
		}
	})
}

// FuzzPayload: what a frame carries is shown as it was sent.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{"", "x", "eA==", "eB==", "eA", "e A==", "eA==\n", "\xff", "////"} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, payload string, binary bool) {
		frame := stream.Frame{Encoding: stream.UTF8}
		if binary {
			frame.Encoding = stream.Base64
		}
		var err error
		if frame.Payload, err = stream.Decode(payload, frame.Encoding, 0); err != nil {
			refusedAs(t, err, fault.CodeValidationFailed, fault.CodePayloadTooLarge)
			return
		}
		if frame.Encode() != payload || len(frame.Payload) > stream.MaxPayload {
			t.Fatalf("%q is shown as %q", payload, frame.Encode())
		}
	})
}

// FuzzSummary: a patch that is taken leaves a JSON object, and applied again changes nothing but the version.
func FuzzSummary(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":{"b":1}}`, `{"a":null}`, `{"a":"__ff_null__"}`, `{"a":["\u005f_ff_null__",null]}`, `{"__ff_null__":"__ff_null__"}`, `{"a":1,"a":null}`,
		`{"\ud800":1,"\ufffd":2}`, `[]`, `{"a":"\""}`, ` {"a" : { } } `, "{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(`{"a":{"c":[1]},"d":2}`), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var s stream.Summary
		for _, patch := range [][]byte{first, second} {
			if err := stream.CheckPatch(patch, 0); err != nil {
				refusedAs(t, err, fault.CodeValidationFailed)
				return
			}
			var once []byte
			for round := range 2 {
				before := s
				err := s.Apply([]stream.Frame{{Mode: stream.Summarised, Payload: patch}}, time.UnixMilli(1), func(i int) int { return i })
				if err != nil {
					refusedAs(t, err, fault.CodePayloadTooLarge)
					return
				}
				if s.Version != before.Version+1 || !json.Valid(s.Document) || !utf8.Valid(s.Document) || !bytes.HasPrefix(s.Document, []byte("{")) {
					t.Fatalf("%s makes %d %s of %s", patch, s.Version, s.Document, before.Document)
				}
				if round == 1 && !bytes.Equal(once, s.Document) {
					t.Fatalf("%s again makes %s of %s", patch, s.Document, once)
				}
				once = s.Document
			}
		}
	})
}
