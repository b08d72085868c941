package form_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/form"
)

// FuzzForm: a form takes the document that it makes of what was filled in, and what it refuses has a place.
func FuzzForm(f *testing.F) {
	f.Add([]byte(everything), "zone=a&go=true&count=1e1&share=.5&day=2026-11-30&mail=a@b.c&link=https://x&code=AB&notes=a%0D%0Ab")
	for _, schema := range []string{`{}`, `null`, `[]`, `{"properties":{"x":{"type":"integer"}}}`, `{"properties":{"x":{"type":"number","default":1e400}}}`, `{"properties":{"x":{"type":"string","pattern":"(a*)*$"}}}`,
		`{"properties":{"x":{"type":"string","enum":["a","b"],"default":"a"}},"required":["x"]}`, `{"properties":{"x":{"type":"boolean","default":false}}}`, `{"properties":{"x":{"type":"string","default":"\u0000"}}}`} {
		for _, filled := range []string{"", "x=1", "x=9007199254740993", "x=+1.", "x=%00", "x=%ff", "x=a"} {
			f.Add([]byte(schema), filled)
		}
	}
	f.Fuzz(func(t *testing.T, schema []byte, filled string) {
		parsed, err := form.Parse(schema, "/form")
		if err != nil {
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeValidationFailed || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Pointer, "/form") {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		values, err := url.ParseQuery(filled)
		if err != nil {
			return
		}
		for _, f := range []form.Form{parsed, parsed.Optional()} {
			doc, wrong := f.Fill(values)
			if len(wrong) > 0 {
				if doc != nil {
					t.Fatalf("wrong is %v, and yet %s", wrong, doc)
				}
				continue
			}
			if err := f.Check(doc, "/form"); err != nil || !json.Valid(doc) {
				t.Fatalf("%s makes %s, which it refuses: %v", schema, doc, err)
			}
		}
		if err := parsed.Check(json.RawMessage(filled), "/form"); err != nil && fault.CodeOf(err) != fault.CodeValidationFailed {
			t.Fatalf("refused with %v", err)
		}
	})
}
