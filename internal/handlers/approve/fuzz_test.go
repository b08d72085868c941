package approve

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// FuzzInput: a body is a form or a document, says the same when it is sent again, and is refused with a code otherwise.
func FuzzInput(f *testing.F) {
	for _, seed := range []struct{ kind, body string }{
		{"", "decision=approve&name=+Ann+&reason=a%0D%0Ab&form.x=1&selection=a&selection=b&token=+t+"}, {"application/x-www-form-urlencoded", "%zz"}, {"application/json; charset=utf-8", `{"decision":"reject","form":null}`},
		{"application/problem+json", `{"decision":1}`}, {"application/json", `{"Decision":"approve"}`}, {"application/json", `{`}, {"multipart/form-data", ""}, {"text/plain", "x"}, {"", "a;b=c"}, {"application/json", ""},
	} {
		f.Add(seed.kind, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/approve/x", nil)
		r.Header.Set("Content-Type", kind)
		in, err := read(r, body)
		if err != nil {
			switch fault.CodeOf(err) {
			case fault.CodeMalformedJSON, fault.CodeInvalidParameter, fault.CodeUnsupportedMediaType, fault.CodeValidationFailed:
				return
			default:
				t.Fatalf("refused with %v", err)
			}
		}
		if in.Name != strings.TrimSpace(in.Name) || strings.Contains(in.Reason, "\r\n") || in.document == (in.values != nil) || in.document && in.bearer != "" {
			t.Fatalf("%s %q is read as %+v", kind, body, in)
		}
		for name := range in.values {
			if sent, _ := url.ParseQuery(string(body)); len(sent[fieldPrefix+name]) == 0 {
				t.Fatalf("%q has no field %q", body, name)
			}
		}
		if in.Form != nil && !json.Valid(in.Form) {
			t.Fatalf("%q is filled in with %q", body, in.Form)
		}
	})
}
