package ask_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/handlers/ask"
)

// refusedAt fails unless err is a refusal with one of these codes that names the parameter.
func refusedAt(t *testing.T, err error, in fault.In, name string, codes ...fault.Code) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Fields) != 1 || f.Fields[0].In != in || f.Fields[0].Pointer != name {
		t.Fatalf("refused with %#v", err)
	}
	if !slices.Contains(codes, f.Code) {
		t.Fatalf("refused with %v", err)
	}
}

// FuzzRevision: the revision that a header names is the one whose tag it is, for a change and for a question alike.
func FuzzRevision(f *testing.F) {
	for _, seed := range []string{"", "*", `"7"`, `W/"7"`, "7", `"7`, `"-7"`, `"07"`, `"7", "8"`, `w/"7"`, `"9223372036854775808"`, ` W/"0" `, `"+7"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		revision, err := ask.Expected(&header, nil)
		switch {
		case err != nil:
			refusedAt(t, err, fault.InHeader, "If-Match", fault.CodeInvalidParameter)
		case revision == nil:
		case *revision < 0 || !ask.Unchanged(&header, *revision) || *revision > 0 && ask.Unchanged(&header, *revision-1):
			t.Fatalf("%q means %d for a change only", header, *revision)
		default:
			for _, same := range []string{ask.ETag(*revision), "W/" + ask.ETag(*revision), strconv.FormatInt(*revision, 10)} {
				if again, err := ask.Expected(&same, nil); err != nil || again == nil || *again != *revision {
					t.Fatalf("%q means %d, and %q does not: %v", header, *revision, same, err)
				}
			}
		}
	})
}

// FuzzParameters: what a parameter means is bounded, and what means nothing is refused, or ignored where a standard says so.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{"", "wait=5", "respond-async, wait=100", `WAIT="7"`, "wait=-1", "wait", "wait=5;x=y", "wait=99999999999999999999", "12", "-1", " 7 ", "a.b:c", "a.b:", "a.b", ":", "A:b", "a.b:c:d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		wait, applied := ask.Wait(&text)
		if wait < 0 || wait > ask.MaxWait || (applied == nil) != (wait == 0) && (applied == nil || *applied != "wait=0") {
			t.Fatalf("%q is %s, %v", text, wait, applied)
		}
		if applied != nil {
			if again, same := ask.Wait(applied); again != wait || *same != *applied || wait%time.Second != 0 {
				t.Fatalf("%q is %s, and %q is %s", text, wait, *applied, again)
			}
		}
		if id, err := ask.LastEventID(text); err != nil {
			refusedAt(t, err, fault.InHeader, "Last-Event-ID", fault.CodeInvalidCursor)
		} else if again, err := ask.LastEventID(strconv.FormatInt(id, 10)); err != nil || id < 0 || again != id {
			t.Fatalf("%q is %d, read again as %d, %v", text, id, again, err)
		}
		if tags, err := ask.Tags([]string{text}); err != nil {
			refusedAt(t, err, fault.InQuery, "tag", fault.CodeValidationFailed, fault.CodeInvalidTagKey)
		} else if got := tags[0]; got.Key+":"+got.Value != text || tag.CheckKey(got.Key, "") != nil {
			t.Fatalf("%q is %+v", text, got)
		}
		for _, name := range ask.Names[string]([]string{text}) {
			if names := ask.Names[string]([]string{name}); len(names) != 1 || names[0] != name {
				t.Fatalf("%q of %q is %q", name, text, names)
			}
		}
	})
}
