package handlers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestGate_BadInput(t *testing.T) {
	t.Parallel()
	for _, tt := range badInputs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			w := s.send(tt.method, tt.target, tt.body, tt.headers...)
			p := problem(t, w, tt.code)
			if s.calls != 0 {
				t.Error("the operation was called")
			}
			if tt.in != "" {
				if len(p.Errors) != 1 || p.Errors[0].In != tt.in || p.Errors[0].Pointer != tt.pointer || p.Errors[0].Detail == "" {
					t.Errorf("errors = %+v, want one in %s at %q", p.Errors, tt.in, tt.pointer)
				}
			}
			for _, inner := range []string{"openapi3", "jsontext", "uuid.UUID", "schema", "json:", "kin-", "handlers"} {
				if strings.Contains(w.Body.String(), inner) {
					t.Errorf("the answer mentions %q: %s", inner, w.Body)
				}
			}
		})
	}
}

// tooDeep is a document of one more level than is taken.
var tooDeep = strings.Repeat(`{"a":`, 101) + `1` + strings.Repeat(`}`, 101)

var badInputs = []struct {
	name    string
	method  string
	target  string
	body    string
	headers []string
	code    fault.Code
	in      fault.In
	pointer string
}{
	// What cannot be parsed.
	{"empty body", "POST", "/v1/things", "", nil, fault.CodeMalformedJSON, "body", ""},
	{"blank body", "POST", "/v1/things", " \n", nil, fault.CodeMalformedJSON, "body", ""},
	{"no JSON", "POST", "/v1/things", "goal=x", nil, fault.CodeMalformedJSON, "body", ""},
	{"cut off", "POST", "/v1/things", `{"name":"x","inner":{`, nil, fault.CodeMalformedJSON, "body", "/inner"},
	{"cut off in a string", "POST", "/v1/things", `{"name":"x`, nil, fault.CodeMalformedJSON, "body", "/name"},
	{"second value", "POST", "/v1/things", `{"name":"x"}{"name":"y"}`, nil, fault.CodeMalformedJSON, "body", ""},
	{"rubbish after it", "POST", "/v1/things", `{"name":"x"}]`, nil, fault.CodeMalformedJSON, "body", ""},
	{"trailing comma", "POST", "/v1/things", `{"name":"x",}`, nil, fault.CodeMalformedJSON, "body", ""},
	{"single quotes", "POST", "/v1/things", `{'name':'x'}`, nil, fault.CodeMalformedJSON, "body", ""},
	{"NaN", "POST", "/v1/things", `{"count":NaN}`, nil, fault.CodeMalformedJSON, "body", "/count"},
	{"leading zero", "POST", "/v1/things", `{"count":01}`, nil, fault.CodeMalformedJSON, "body", ""},
	{"byte order mark", "POST", "/v1/things", "\ufeff" + `{"name":"x"}`, nil, fault.CodeMalformedJSON, "body", ""},
	{"invalid UTF-8", "POST", "/v1/things", "{\"name\":\"\xff\"}", nil, fault.CodeMalformedJSON, "body", "/name"},
	{"invalid UTF-8 in a payload", "POST", "/v1/things", "{\"name\":\"x\",\"payload\":[0,{\"a\":\"\xc3\"}]}", nil, fault.CodeMalformedJSON, "body", "/payload/1/a"},
	{"lone surrogate", "POST", "/v1/things", `{"name":"\ud800"}`, nil, fault.CodeMalformedJSON, "body", "/name"},
	{"raw control character", "POST", "/v1/things", "{\"name\":\"a\nb\"}", nil, fault.CodeMalformedJSON, "body", "/name"},
	{"duplicate key", "POST", "/v1/things", `{"name":"x","name":"y"}`, nil, fault.CodeMalformedJSON, "body", "/name"},
	{"duplicate key, escaped", "POST", "/v1/things", `{"name":"x","n\u0061me":"y"}`, nil, fault.CodeMalformedJSON, "body", "/name"},
	{"duplicate key in a payload", "POST", "/v1/things", `{"name":"x","payload":{"a":[{"b":1,"b":2}]}}`, nil, fault.CodeMalformedJSON, "body", "/payload/a/0/b"},
	{"too deep", "POST", "/v1/things", `{"name":"x","payload":` + tooDeep + `}`, nil, fault.CodeMalformedJSON, "body", "/payload" + strings.Repeat("/a", 99)},
	{"path id", "GET", "/v1/things/42", "", nil, fault.CodeInvalidParameter, "path", "thing_id"},
	{"path id in braces", "GET", "/v1/things/%7B" + thingID + "%7D", "", nil, fault.CodeInvalidParameter, "path", "thing_id"},
	{"path id as urn", "GET", "/v1/things/urn:uuid:" + thingID, "", nil, fault.CodeInvalidParameter, "path", "thing_id"},
	{"path with NUL", "POST", "/v1/things/a%00b/start", "", nil, fault.CodeInvalidParameter, "path", "thing_id"},
	{"path not UTF-8", "POST", "/v1/things/%ff/start", "", nil, fault.CodeInvalidParameter, "path", "thing_id"},
	{"query integer", "GET", "/v1/things?limit=ten", "", nil, fault.CodeInvalidParameter, "query", "limit"},
	{"query integer beyond int64", "GET", "/v1/things?limit=99999999999999999999", "", nil, fault.CodeInvalidParameter, "query", "limit"},
	{"query integer empty", "GET", "/v1/things?limit=", "", nil, fault.CodeInvalidParameter, "query", "limit"},
	{"query id", "GET", "/v1/things?owner=x", "", nil, fault.CodeInvalidParameter, "query", "owner"},
	{"query pattern", "GET", "/v1/things?tag=nocolon", "", nil, fault.CodeInvalidParameter, "query", "tag"},
	{"query twice", "GET", "/v1/things?limit=1&limit=2", "", nil, fault.CodeInvalidParameter, "query", "limit"},
	{"query not well formed", "GET", "/v1/things?limit=%zz", "", nil, fault.CodeInvalidParameter, "query", ""},
	{"query not UTF-8", "GET", "/v1/things?state=%ff", "", nil, fault.CodeInvalidParameter, "query", "state"},
	{"query with NUL", "GET", "/v1/things?state=%00", "", nil, fault.CodeInvalidParameter, "query", "state"},
	{"header integer", "GET", "/v1/things", "", []string{"X-Level: high"}, fault.CodeInvalidParameter, "header", "X-Level"},
	{"idempotency key not printable", "POST", "/v1/things", `{"name":"x"}`, []string{"Idempotency-Key: ä"}, fault.CodeInvalidParameter, "header", "Idempotency-Key"},
	{"two idempotency keys", "POST", "/v1/things", `{"name":"x"}`, []string{"Idempotency-Key: a", "Idempotency-Key: b"}, fault.CodeInvalidParameter, "header", "Idempotency-Key"},

	// What is parsed, and outside the schema.
	{"missing field", "POST", "/v1/things", `{}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"unknown field", "POST", "/v1/things", `{"name":"x","nmae":1}`, nil, fault.CodeValidationFailed, "body", "/nmae"},
	{"unknown field, other case", "POST", "/v1/things", `{"name":"x","Count":1}`, nil, fault.CodeValidationFailed, "body", "/Count"},
	{"unknown field to be escaped", "POST", "/v1/things", `{"name":"x","a/b~\"":1}`, nil, fault.CodeValidationFailed, "body", `/a~1b~0"`},
	{"unknown field inside", "POST", "/v1/things", `{"name":"x","inner":{"things":[{"name":"y"},{"name":"z","q":1}]}}`, nil, fault.CodeValidationFailed, "body", "/inner/things/1/q"},
	{"wrong type", "POST", "/v1/things", `{"name":7}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"wrong type of the whole", "POST", "/v1/things", `["name"]`, nil, fault.CodeValidationFailed, "body", ""},
	{"null as the whole", "POST", "/v1/things", `null`, nil, fault.CodeValidationFailed, "body", ""},
	{"null", "POST", "/v1/things", `{"name":null}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"text for a boolean", "POST", "/v1/things", `{"name":"x","done":"yes"}`, nil, fault.CodeValidationFailed, "body", "/done"},
	{"list for an object", "POST", "/v1/things", `{"name":"x","state":[]}`, nil, fault.CodeValidationFailed, "body", "/state"},
	{"too short", "POST", "/v1/things", `{"name":""}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"too long", "POST", "/v1/things", `{"name":"12345678901"}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"too small", "POST", "/v1/things", `{"name":"x","count":-1}`, nil, fault.CodeValidationFailed, "body", "/count"},
	{"too large", "POST", "/v1/things", `{"name":"x","count":1e3}`, nil, fault.CodeValidationFailed, "body", "/count"},
	{"beyond a float", "POST", "/v1/things", `{"name":"x","count":1e999}`, nil, fault.CodeValidationFailed, "body", "/count"},
	{"no integer", "POST", "/v1/things", `{"name":"x","count":1.5}`, nil, fault.CodeValidationFailed, "body", "/count"},
	{"enum", "POST", "/v1/things", `{"name":"x","kind":"c"}`, nil, fault.CodeValidationFailed, "body", "/kind"},
	{"uuid in the body", "POST", "/v1/things", `{"name":"x","id":"42"}`, nil, fault.CodeValidationFailed, "body", "/id"},
	{"time", "POST", "/v1/things", `{"name":"x","at":"2026-02-30T00:00:00Z"}`, nil, fault.CodeValidationFailed, "body", "/at"},
	{"base64", "POST", "/v1/things", `{"name":"x","blob":"a"}`, nil, fault.CodeValidationFailed, "body", "/blob"},
	{"too many members", "POST", "/v1/things", `{"name":"x","state":{"a":1,"b":2,"c":3,"d":4}}`, nil, fault.CodeValidationFailed, "body", "/state"},
	{"too many items", "POST", "/v1/things", `{"name":"x","list":["a","b","c"]}`, nil, fault.CodeValidationFailed, "body", "/list"},
	{"too few items", "POST", "/v1/things", `{"name":"x","list":[]}`, nil, fault.CodeValidationFailed, "body", "/list"},
	{"same item twice", "POST", "/v1/things", `{"name":"x","list":["a","a"]}`, nil, fault.CodeValidationFailed, "body", "/list"},
	{"item", "POST", "/v1/things", `{"name":"x","list":["a",2]}`, nil, fault.CodeValidationFailed, "body", "/list/1"},
	{"pattern of a value", "POST", "/v1/things", `{"name":"x","tags":{"k":"V"}}`, nil, fault.CodeValidationFailed, "body", "/tags/k"},
	{"NUL", "POST", "/v1/things", `{"name":"a\u0000"}`, nil, fault.CodeValidationFailed, "body", "/name"},
	{"NUL in a payload", "POST", "/v1/things", `{"name":"x","payload":{"a":["\u0000"]}}`, nil, fault.CodeValidationFailed, "body", "/payload/a/0"},
	{"NUL in a name", "POST", "/v1/things", `{"name":"x","payload":{"\u0000":1}}`, nil, fault.CodeValidationFailed, "body", "/payload/\x00"},
	{"member of an alternative", "POST", "/v1/things", `{"name":"x","wait":{"kind":"timer","at":"soon"}}`, nil, fault.CodeValidationFailed, "body", "/wait/at"},
	{"missing member of an alternative", "POST", "/v1/things", `{"name":"x","wait":{"kind":"event"}}`, nil, fault.CodeValidationFailed, "body", "/wait/topic"},
	{"no alternative", "POST", "/v1/things", `{"name":"x","wait":{"kind":"never"}}`, nil, fault.CodeValidationFailed, "body", "/wait"},
	{"alternative by type", "POST", "/v1/things", `{"name":"x","need":{"key":1}}`, nil, fault.CodeValidationFailed, "body", "/need/key"},
	{"no alternative by type", "POST", "/v1/things", `{"name":"x","need":[]}`, nil, fault.CodeValidationFailed, "body", "/need"},
	{"one of all", "POST", "/v1/things", `{"name":"x","both":{"x":"1"}}`, nil, fault.CodeValidationFailed, "body", "/both/x"},
	{"optional body", "POST", "/v1/things/1/start", `{"why":1}`, nil, fault.CodeValidationFailed, "body", "/why"},
	{"unknown query", "GET", "/v1/things?lmit=1", "", nil, fault.CodeValidationFailed, "query", "lmit"},
	{"negative limit", "GET", "/v1/things?limit=-1", "", nil, fault.CodeValidationFailed, "query", "limit"},
	{"limit too large", "GET", "/v1/things?limit=501", "", nil, fault.CodeValidationFailed, "query", "limit"},
	{"unknown enum in the query", "GET", "/v1/things?state=ajar", "", nil, fault.CodeValidationFailed, "query", "state"},
	{"too many tags", "GET", "/v1/things?tag=a:1&tag=b:1&tag=c:1", "", nil, fault.CodeValidationFailed, "query", "tag"},
	{"path too long", "POST", "/v1/things/" + strings.Repeat("x", 41) + "/start", "", nil, fault.CodeValidationFailed, "path", "thing_id"},

	// The rest.
	{"too large", "POST", "/v1/things", `{"name":"` + strings.Repeat("x", 5000) + `"}`, nil, fault.CodePayloadTooLarge, "", ""},
	{"content type", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Type: text/yaml"}, fault.CodeUnsupportedMediaType, "", ""},
	{"patch type where none is taken", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Type: application/merge-patch+json"}, fault.CodeUnsupportedMediaType, "", ""},
	{"content encoding", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Encoding: gzip"}, fault.CodeUnsupportedMediaType, "", ""},
	{"method", "DELETE", "/v1/things", "", nil, fault.CodeMethodNotAllowed, "", ""},
	{"method that nobody knows", "BREW", "/v1/things", "", nil, fault.CodeMethodNotAllowed, "", ""},
	{"method that nobody knows, nowhere", "BREW", "/v1/pots", "", nil, fault.CodeNotFound, "", ""},
	{"asterisk", "OPTIONS", "*", "", nil, fault.CodeNotFound, "", ""},
	{"path", "GET", "/v1/thing", "", nil, fault.CodeNotFound, "", ""},
	{"trailing slash", "GET", "/v1/things/", "", nil, fault.CodeNotFound, "", ""},
}

func TestGate_ManyErrors(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := problem(t, s.send("POST", "/v1/things?x=1", `{"name":"","count":-1,"kind":"z","q":1}`), fault.CodeValidationFailed)
	want := []fault.Field{
		{In: "query", Pointer: "x", Detail: "is not known here"},
		{In: "body", Pointer: "/count", Detail: "must be at least 0"},
		{In: "body", Pointer: "/kind", Detail: "must be one of a, b"},
		{In: "body", Pointer: "/name", Detail: "must not be empty"},
		{In: "body", Pointer: "/q", Detail: "is not known here"},
	}
	if diff := cmp.Diff(want, p.Errors); diff != "" {
		t.Errorf("errors differ (-want +got):\n%s", diff)
	}

	var b strings.Builder
	b.WriteString(`{"name":"x"`)
	for i := range 100 {
		b.WriteString(`,"` + strings.Repeat("k", 10+i%20) + strings.Repeat("l", 1+i/20) + `":1`)
	}
	b.WriteString("}")
	p = problem(t, s.send("POST", "/v1/things", b.String()), fault.CodeValidationFailed)
	if len(p.Errors) != maxFields {
		t.Errorf("%d errors, want %d", len(p.Errors), maxFields)
	}

	long := strings.Repeat("é", 1000)
	p = problem(t, s.send("POST", "/v1/things", `{"name":"x","`+long+`":1}`), fault.CodeValidationFailed)
	if got := p.Errors[0].Pointer; len(got) > maxPointer+len("…") || !strings.HasPrefix(got, "/éé") {
		t.Errorf("pointer = %q", got)
	}
}

func TestGate_DoesNotRepeatValues(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, body := range []string{
		`{"name":"hunter2hunter2"}`, `{"name":"x","kind":"hunter2"}`, `{"name":"x","id":"hunter2"}`, `{"name":"x","at":"hunter2"}`,
		`{"name":"x","wait":{"kind":"hunter2"}}`, `{"name":"x","tags":{"a":"hunter2"}}`, `{"name":"x","blob":"hunter2%"}`, `{"name":"x","count":"hunter2"}`,
	} {
		w := s.send("POST", "/v1/things", body)
		problem(t, w, fault.CodeValidationFailed)
		if strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s is repeated: %s", body, w.Body)
		}
	}
	w := s.send("GET", "/v1/things?owner=hunter2&limit=hunter2", "")
	problem(t, w, fault.CodeInvalidParameter)
	if strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("the query is repeated: %s", w.Body)
	}
}

func TestGate_GoodInput(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		method      string
		target      string
		body        string
		headers     []string
		contentType string
	}{
		{"curl -d", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Type: application/x-www-form-urlencoded"}, "application/json"},
		{"no content type", "POST", "/v1/things", `{"name":"x"}`, nil, "application/json"},
		{"charset", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Type: application/json; charset=utf-8"}, "application/json; charset=utf-8"},
		{"other case", "POST", "/v1/things", `{"name":"x"}`, []string{"Content-Type: Application/JSON"}, "application/json"},
		{"white space is kept", "POST", "/v1/things", " {\n\"payload\" : { \"b\":1.0, \"a\":1e2 } ,\"name\":\"x\" }\n", nil, "application/json"},
		{"every member", "POST", "/v1/things", `{"id":"` + thingID + `","name":"äöü","count":100,"kind":"a","at":"2026-01-31T12:00:00.123+01:00","blob":"aGk=","done":true,"note":null,` +
			`"payload":null,"state":{"a":null},"list":["a"],"inner":{"a/b~c":1,"things":[]},"tags":{"k":"v"},"wait":{"kind":"event","topic":"t"},"need":"a","both":{"x":1}}`, nil, "application/json"},
		{"numbers beyond a float in a payload", "POST", "/v1/things", `{"name":"x","payload":[123456789012345678901234567890,1e999]}`, nil, "application/json"},
		{"escaped name", "POST", "/v1/things", `{"n\u0061me":"x"}`, nil, "application/json"},
		{"backslash before u0000", "POST", "/v1/things", `{"name":"\\u0000"}`, nil, "application/json"},
		{"exactly at the limit", "POST", "/v1/things", `{"name":"x"` + strings.Repeat(" ", 4096-12) + `}`, nil, "application/json"},
		{"100 levels", "POST", "/v1/things", `{"name":"x","payload":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`, nil, "application/json"},
		{"brackets in a string", "POST", "/v1/things", `{"name":"x","payload":"` + strings.Repeat(`[{\"`, 200) + `"}`, nil, "application/json"},
		{"merge patch", "PATCH", "/v1/things/" + thingID, `{"a":null}`, []string{"Content-Type: application/merge-patch+json"}, "application/merge-patch+json"},
		{"optional body absent", "POST", "/v1/things/1/start", "", nil, "application/json"},
		{"optional body empty", "POST", "/v1/things/1/start", "{}", nil, "application/json"},
		{"octets", "POST", "/v1/octets", "\x00\xff{", []string{"Content-Type: application/octet-stream"}, "application/octet-stream"},
		{"octets by curl --data-binary", "POST", "/v1/octets", "\x00\xff{", []string{"Content-Type: application/x-www-form-urlencoded"}, "application/octet-stream"},
		{"form", "POST", "/approve/secret", "decision=approved", []string{"Content-Type: application/x-www-form-urlencoded"}, "application/x-www-form-urlencoded"},
		{"query", "GET", "/v1/things?limit=500&state=open&owner=" + thingID + "&tag=a:1&tag=b:2&namespace=blue", "", nil, ""},
		{"escaped path", "POST", "/v1/things/a%2Fb/start", "", nil, "application/json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newServer(t).send(tt.method, tt.target, tt.body, tt.headers...)
			if w.Code != http.StatusOK {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			got := decode[echo](t, w)
			if want := strings.ToValidUTF8(tt.body, "\ufffd"); got.Body != want {
				t.Errorf("body = %q, want %q", got.Body, want)
			}
			if got.ContentType != tt.contentType {
				t.Errorf("content type = %q, want %q", got.ContentType, tt.contentType)
			}
		})
	}
}

func TestGate_TooLarge(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	w := s.send("POST", "/v1/things", strings.Repeat(" ", 4097))
	problem(t, w, fault.CodePayloadTooLarge)
	if got := decode[map[string]any](t, w)["limit_bytes"]; got != 4096.0 {
		t.Errorf("limit_bytes = %v", got)
	}
}
