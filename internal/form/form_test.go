package form_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/form"
)

const everything = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","title":"Deployment","description":"About it.","additionalProperties":false,
"required":["zone","go"],"properties":{
	"zone":{"type":"string","title":"Zone","enum":["b","a"],"default":"a"},
	"day":{"type":"string","format":"date"},
	"mail":{"type":"string","format":"email"},
	"link":{"type":"string","format":"uri"},
	"code":{"type":"string","pattern":"^[A-Z]+$","minLength":2,"maxLength":4,"description":"Capitals.","x-width":3},
	"notes":{"type":"string","maxLength":500},
	"short":{"type":"string","x-multiline":true},
	"go":{"type":"boolean","default":true},
	"count":{"type":"integer","minimum":1,"maximum":100,"default":10},
	"share":{"type":"number","minimum":0.5}}}`

func parse(t *testing.T, schema string) form.Form {
	t.Helper()
	f, err := form.Parse(json.RawMessage(schema), "/form")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// only returns a form of one field, x.
func only(t *testing.T, schema string) form.Form {
	t.Helper()
	return parse(t, `{"properties":{"x":`+schema+`}}`)
}

func TestParse(t *testing.T) {
	t.Parallel()
	want := form.Form{Title: "Deployment", Description: "About it.", Fields: []form.Field{
		{Name: "zone", Title: "Zone", Kind: form.Choice, Options: []string{"b", "a"}, Required: true, Default: "a"},
		{Name: "day", Kind: form.Date},
		{Name: "mail", Kind: form.Email},
		{Name: "link", Kind: form.URI},
		{Name: "code", Kind: form.Text, Description: "Capitals.", MinLength: 2, MaxLength: 4},
		{Name: "notes", Kind: form.Text, Multiline: true, MaxLength: 500},
		{Name: "short", Kind: form.Text, Multiline: true},
		{Name: "go", Kind: form.Boolean, Required: true, Default: "true"},
		{Name: "count", Kind: form.Integer, Minimum: new(1.0), Maximum: new(100.0), Default: "10"},
		{Name: "share", Kind: form.Number, Minimum: new(0.5)},
	}}
	if diff := cmp.Diff(want, parse(t, everything), cmpopts.IgnoreUnexported(form.Field{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	many := make([]string, form.MaxFields)
	for i := range many {
		many[i] = fmt.Sprintf(`"%d":{"type":"string"}`, i)
	}
	if got := parse(t, `{"properties":{`+strings.Join(many, ",")+`}}`).Fields; len(got) != form.MaxFields || got[9].Name != "9" || got[10].Name != "10" {
		t.Errorf("%d fields in another order: %v", len(got), got)
	}
	if got := only(t, `{"type":"string"}`).Fields[0]; got.Label() != "x" {
		t.Errorf("label %q", got.Label())
	}
}

func TestParse_refused(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"p%d":{"type":"string"},`, form.MaxFields) + `"last":{"type":"string"}`
	numbers := make([]any, form.MaxFields)
	for i := range numbers {
		numbers[i] = i
	}
	field := func(schema string) string { return `{"properties":{"x":` + schema + `}}` }
	for schema, pointer := range map[string]string{
		`null`: "/form", `[]`: "/form", `"x"`: "/form", `{`: "/form", ``: "/form",
		`{}`: "/form/properties", `{"properties":{}}`: "/form/properties", `{"properties":[]}`: "/form/properties",
		`{"type":"array","properties":{"x":{"type":"string"}}}`:                 "/form/type",
		`{"type":["object"],"properties":{"x":{"type":"string"}}}`:              "/form/type",
		`{"oneOf":[],"properties":{"x":{"type":"string"}}}`:                     "/form/oneOf",
		`{"title":1,"properties":{"x":{"type":"string"}}}`:                      "/form/title",
		`{"required":"x","properties":{"x":{"type":"string"}}}`:                 "/form/required",
		`{"required":["x","y"],"properties":{"x":{"type":"string"}}}`:           "/form/required/1",
		`{"properties":{"a/b":{"type":"object"}}}`:                              "/form/properties/a~1b/type",
		`{"properties":{"":{"type":"string"}}}`:                                 "/form/properties/",
		`{"properties":{"` + strings.Repeat("n", 101) + `":{"type":"string"}}}`: "/form/properties/" + strings.Repeat("n", 64) + "…",
		`{"properties":{"a\u0000":{"type":"string"}}}`:                          "/form/properties/a\x00",
		`{"properties":{` + fmt.Sprintf(many, numbers...) + `}}`:                "/form/properties",
		field(`true`): "/form/properties/x",
		field(`{}`):   "/form/properties/x/type",
		field(`{"type":"object","properties":{}}`):             "/form/properties/x/type",
		field(`{"type":"array"}`):                              "/form/properties/x/type",
		field(`{"type":["string","null"]}`):                    "/form/properties/x/type",
		field(`{"type":"string","$ref":"#/x"}`):                "/form/properties/x/$ref",
		field(`{"type":"string","minimum":1}`):                 "/form/properties/x/minimum",
		field(`{"type":"integer","multipleOf":2}`):             "/form/properties/x/multipleOf",
		field(`{"type":"integer","enum":[1]}`):                 "/form/properties/x/enum",
		field(`{"type":"string","enum":[1]}`):                  "/form/properties/x/enum",
		field(`{"type":"string","enum":[]}`):                   "/form/properties/x/enum",
		field(`{"type":"string","enum":["a",""]}`):             "/form/properties/x/enum/1",
		field(`{"type":"string","enum":["a","a"]}`):            "/form/properties/x/enum/1",
		field(`{"type":"string","enum":["a"],"format":"uri"}`): "/form/properties/x/format",
		field(`{"type":"string","format":"date-time"}`):        "/form/properties/x/format",
		field(`{"type":"string","pattern":"("}`):               "/form/properties/x/pattern",
		field(`{"type":"string","pattern":"(?=a)"}`):           "/form/properties/x/pattern",
		field(`{"type":"string","maxLength":0}`):               "/form/properties/x/maxLength",
		field(`{"type":"string","maxLength":1.5}`):             "/form/properties/x/maxLength",
		field(`{"type":"string","minLength":3,"maxLength":2}`): "/form/properties/x/maxLength",
		field(`{"type":"string","minLength":-1}`):              "/form/properties/x/minLength",
		field(`{"type":"string","title":7}`):                   "/form/properties/x/title",
		field(`{"type":"string","default":7}`):                 "/form/properties/x/default",
		field(`{"type":"string","enum":["a"],"default":"b"}`):  "/form/properties/x/default",
		field(`{"type":"integer","default":1.5}`):              "/form/properties/x/default",
		field(`{"type":"boolean","default":"true"}`):           "/form/properties/x/default",
		field(`{"type":"number","minimum":2,"maximum":1}`):     "/form/properties/x/minimum",
	} {
		_, err := form.Parse(json.RawMessage(schema), "/form")
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != fault.CodeValidationFailed || len(f.Fields) != 1 || f.Fields[0].Pointer != pointer {
			t.Errorf("%.80s\n%+v, want %s", schema, err, pointer)
		}
	}
}

func TestForm_Fill(t *testing.T) {
	t.Parallel()
	f := parse(t, everything)
	full := url.Values{"zone": {"b"}, "day": {"2026-02-28"}, "mail": {"a@example.org"}, "link": {"https://example.org/x?y"}, "code": {" ABC "}, "notes": {"<b>\r\nline two "}, "go": {"true"},
		"count": {"7"}, "share": {" 0.50 "}, "unasked": {"x"}}
	doc, wrong := f.Fill(full)
	const want = `{"zone":"b","day":"2026-02-28","mail":"a@example.org","link":"https://example.org/x?y","code":"ABC","notes":"\u003cb\u003e\nline two ","go":true,"count":7,"share":0.50}`
	if string(doc) != want || len(wrong) != 0 {
		t.Errorf("%s, %v", doc, wrong)
	}
	if err := f.Check(doc, "/form"); err != nil {
		t.Errorf("what was filled in does not fit: %v", err)
	}
	if doc, wrong = f.Fill(url.Values{"zone": {"a"}}); string(doc) != `{"zone":"a","go":false}` || len(wrong) != 0 {
		t.Errorf("%s, %v", doc, wrong)
	}
	doc, wrong = f.Fill(url.Values{"zone": {" "}, "count": {"0"}, "share": {"much"}, "day": {"30.11.2026"}, "go": {"maybe"}, "code": {"abc"}})
	keys := map[string]bool{}
	for name, detail := range wrong {
		keys[name] = detail != ""
	}
	if diff := cmp.Diff(map[string]bool{"zone": true, "count": true, "share": true, "day": true, "go": true, "code": true}, keys); diff != "" || doc != nil {
		t.Errorf("%s (-want +got):\n%s", doc, diff)
	}
	if doc, wrong = f.Optional().Fill(nil); string(doc) != `{"go":false}` || len(wrong) != 0 || !f.Fields[0].Required {
		t.Errorf("nothing has to be filled in: %s, %v", doc, wrong)
	}
	if doc, wrong = (form.Form{}).Fill(full); string(doc) != `{}` || len(wrong) != 0 {
		t.Errorf("no form: %s, %v", doc, wrong)
	}
}

// TestField: what goes into one field; "" for nothing, "!" for a refusal.
func TestField(t *testing.T) {
	t.Parallel()
	tests := []struct {
		schema string
		values []string // what is filled in, and what becomes of it, in turn
	}{
		{`{"type":"integer"}`, []string{"", "", "12", "12", "-3", "-3", "+4", "4", "1e3", "1000", "1.0", "1", "1.5", "!", "x", "!", "0x10", "!", "1_000", "!", "9007199254740993000", "!", "1e999", "!", "NaN", "!", " 5", "5"}},
		{`{"type":"number"}`, []string{"", "", "1.50", "1.50", ".5", "0.5", "-1e-7", "-1e-7", "1e999", "!", "Inf", "!", "1,5", "!", "0.1000000000000000055", "0.1000000000000000055"}},
		{`{"type":"number","minimum":-1,"maximum":1}`, []string{"-1", "-1", "1", "1", "1.0001", "!", "-2", "!"}},
		{`{"type":"boolean"}`, []string{"", "false", "true", "true", "false", "false", "on", "!", "1", "!"}},
		{`{"type":"string"}`, []string{"", "", "  ", "", " a ", `"a"`, "a\x00b", "!", "ü\"\\", `"ü\"\\"`, "\xff", `"` + "\uFFFD" + `"`}},
		{`{"type":"string","x-multiline":true}`, []string{"", "", "a\r\nb ", `"a\nb "`}},
		{`{"type":"string","minLength":2,"maxLength":3}`, []string{"", "", "ä", "!", "äöü", `"äöü"`, "abcd", "!"}},
		{`{"type":"string","pattern":"b"}`, []string{"abc", `"abc"`, "ac", "!"}},
		{`{"type":"string","format":"date"}`, []string{"2024-02-29", `"2024-02-29"`, "2026-02-29", "!", "26-1-1", "!", "2026-01-01T00:00:00Z", "!"}},
		{`{"type":"string","format":"email"}`, []string{"a@b.example", `"a@b.example"`, "a", "!", "A <a@b.example>", "!", "a@b, c@d", "!"}},
		{`{"type":"string","format":"uri"}`, []string{"https://a.example/", `"https://a.example/"`, "mailto:a@b", `"mailto:a@b"`, "/a", "!", "a b", "!", "https:", "!"}},
		{`{"type":"string","enum":["a","b c"]}`, []string{"", "", "a", `"a"`, "b c", `"b c"`, "A", "!", "c", "!"}},
	}
	for _, tt := range tests {
		f := only(t, tt.schema)
		for pair := range slices.Chunk(tt.values, 2) {
			filled, want := pair[0], pair[1]
			doc, wrong := f.Fill(url.Values{"x": {filled}})
			got := strings.TrimSuffix(strings.TrimPrefix(string(doc), `{"x":`), "}")
			switch {
			case len(wrong) > 0:
				got = "!"
			case string(doc) == "{}":
				got = ""
			}
			if got != want {
				t.Errorf("%s of %q = %s %v, want %s", tt.schema, filled, doc, wrong, want)
			}
		}
	}
}

func TestForm_Check(t *testing.T) {
	t.Parallel()
	f := parse(t, everything)
	for doc, pointers := range map[string][]string{
		`{"zone":"a","go":true}`:                        {},
		`{"zone":"a","go":true,"count":1e1,"notes":""}`: {},
		``:                                       {"/form/zone", "/form/go"},
		`null`:                                   {"/form/zone", "/form/go"},
		`[]`:                                     {"/form"},
		`"x"`:                                    {"/form"},
		`{"zone":"c","go":"true"}`:               {"/form/zone", "/form/go"},
		`{"zone":"a","go":false,"count":"7"}`:    {"/form/count"},
		`{"zone":"a","go":false,"count":null}`:   {"/form/count"},
		`{"zone":"a","go":false,"code":["A"]}`:   {"/form/code"},
		`{"zone":"a","go":false,"code":{"a":1}}`: {"/form/code"},
		`{"zone":"a","go":false,"notes":"a\u0000"}`:       {"/form/notes"},
		`{"zone":"a","go":false,"z":1,"a/b":2}`:           {"/form/a~1b", "/form/z"},
		`{"zone":"a","go":false,"count":101,"share":0.1}`: {"/form/count", "/form/share"},
		`{"zone":"","go":false}`:                          {"/form/zone"},
	} {
		err := f.Check(json.RawMessage(doc), "/form")
		got := []string{}
		if refused, ok := errors.AsType[*fault.Error](err); ok && refused.Code == fault.CodeValidationFailed {
			for _, field := range refused.Fields {
				got = append(got, field.Pointer)
			}
		} else if err != nil {
			t.Errorf("%s: %v", doc, err)
		}
		if diff := cmp.Diff(pointers, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
	if err := f.Optional().Check(nil, "/form"); err != nil {
		t.Error(err)
	}
	if err := (form.Form{}).Check(json.RawMessage(`[1]`), "/form"); err != nil {
		t.Errorf("no form takes any document: %v", err)
	}
}
