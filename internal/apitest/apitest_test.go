package apitest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const document = `
openapi: 3.0.3
info: {title: test, version: "1"}
paths:
  /things/{id}:
    get:
      operationId: getThing
      x-codes: [not_found]
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        '200':
          description: A thing.
          headers: {ETag: {required: true, schema: {type: string}}}
          content:
            application/json:
              schema:
                type: object
                required: [name]
                properties: {name: {type: string}, n: {type: integer}, items: {type: array, items: {type: object}}}
            text/event-stream: {schema: {type: string}}
        '204': {description: Nothing.}
        '304': {description: Unchanged.}
        default:
          description: A refusal.
          content:
            application/problem+json:
              schema: {type: object, required: [type, status, code, detail], properties: {detail: {type: string}}}
`

func spec(tb testing.TB) *openapi3.T {
	tb.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}

// witness is a TB that remembers what it was told instead of failing.
type witness struct {
	testing.TB
	errors []string
	fatals []string
}

func (w *witness) Errorf(format string, args ...any) {
	w.errors = append(w.errors, fmt.Sprintf(format, args...))
}

type ended struct{}

func (w *witness) Fatalf(format string, args ...any) {
	w.fatals = append(w.fatals, fmt.Sprintf(format, args...))
	panic(ended{})
}

// watch runs f and returns what it reported.
func watch(t *testing.T, f func(tb testing.TB)) *witness {
	t.Helper()
	w := &witness{TB: t}
	func() {
		defer func() {
			if caught := recover(); caught != nil {
				if _, ok := caught.(ended); !ok {
					panic(caught)
				}
			}
		}()
		f(w)
	}()
	return w
}

const refusal = `{"type":"/problems/not-found","title":"x","status":404,"detail":"d","instance":"/","request_id":"r1","code":"not_found","retryable":false,` +
	`"errors":[{"in":"path","pointer":"id","detail":"x"}]}`

func answering(status int, contentType, body string, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = nil
		if contentType != "" {
			h.Set("Content-Type", contentType)
		}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			h.Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func TestClient_HoldsAnswersToTheContract(t *testing.T) {
	t.Parallel()
	problem := []string{"Cache-Control: no-store", "X-Request-Id: r1"}
	other := strings.NewReplacer("not-found", "self-approval", "not_found", "self_approval", "404", "403").Replace(refusal)
	tests := []struct {
		name    string
		handler http.Handler
		path    string
		want    string // "" for an answer that keeps the contract
	}{
		{"right", answering(200, "application/json", `{"name":"x"}`, `ETag: "1"`), "/things/1", ""},
		{"no content", answering(204, "", ""), "/things/1", ""},
		{"unchanged", answering(304, "", ""), "/things/1", ""},
		{"refusal", answering(404, "application/problem+json", refusal, problem...), "/things/1", ""},
		{"refusal of a path that nobody has", answering(404, "application/problem+json", refusal, problem...), "/nowhere", ""},
		{"page beside the API", answering(200, "text/html", "hello"), "/docs", ""},
		{"missing member", answering(200, "application/json", `{}`, `ETag: "1"`), "/things/1", `property "name" is missing`},
		{"wrong type", answering(200, "application/json", `{"name":1}`, `ETag: "1"`), "/things/1", "must be a string"},
		{"missing header", answering(200, "application/json", `{"name":"x"}`), "/things/1", "ETag"},
		{"undeclared status", answering(202, "application/json", `{"name":"x"}`), "/things/1", "status 202 is not declared"},
		{"undeclared type", answering(200, "text/plain", `x`, `ETag: "1"`), "/things/1", "Content-Type"},
		{"undeclared refusal", answering(404, "text/plain", "404 page not found", problem...), "/nowhere", `a refusal of type "text/plain"`},
		{"cacheable refusal", answering(404, "application/problem+json", refusal, "X-Request-Id: r1"), "/nowhere", "Cache-Control"},
		{"other request id", answering(404, "application/problem+json", refusal, "Cache-Control: no-store", "X-Request-Id: r2"), "/nowhere", "request_id"},
		{"other status", answering(409, "application/problem+json", refusal, problem...), "/nowhere", "has the status 404"},
		{"code that nobody knows", answering(404, "application/problem+json", strings.Replace(refusal, "not_found", "gone_fishing", 1), problem...), "/nowhere", "not in the catalogue"},
		{"code that the operation does not list", answering(403, "application/problem+json", other, problem...), "/things/1", "self_approval is not among the x-codes of getThing"},
		{"item of a batch with such a code", answering(200, "application/json", `{"name":"x","items":[{},{"problem":{"code":"gone"}}]}`, `ETag: "1"`), "/things/1", "item 1: gone is not among the x-codes of getThing"},
		{"item of a batch with one of its codes", answering(200, "application/json", `{"name":"x","items":[{"problem":{"code":"not_found"}}]}`, `ETag: "1"`), "/things/1", ""},
		{"other type of problem", answering(404, "application/problem+json", strings.Replace(refusal, "/problems/not-found", "about:blank", 1), problem...), "/nowhere", "about:blank"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := watch(t, func(tb testing.TB) { apitest.Serve(tb, tt.handler, spec(t)).Get(tt.path) })
			if len(got.fatals) > 0 {
				t.Fatal(got.fatals)
			}
			if tt.want == "" {
				if len(got.errors) > 0 {
					t.Error(got.errors)
				}
				return
			}
			if len(got.errors) != 1 || !strings.Contains(got.errors[0], tt.want) {
				t.Errorf("reported %q, want %q", got.errors, tt.want)
			}
		})
	}
}

func TestClient_Do(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":%q}`, strings.Join([]string{
			r.Header.Get("Authorization"), r.Header.Get("Flowapi-Namespace"), r.Header.Get("Content-Type"), r.Header.Get("X"), fmt.Sprint(r.ContentLength),
		}, "|"))
	})
	c := apitest.Serve(t, echo, spec(t))
	tests := []struct {
		got  *apitest.Response
		want string
	}{
		{c.Get("/things/1"), "||||0"},
		{c.As("t").In("red").Get("/things/1", "X: y"), "Bearer t|red||y|0"},
		{c.As("t").As("").Get("/things/1"), "||||0"},
		{c.Do("GET", "/things/1", map[string]int{"a": 1}), "||application/json||7"},
		{c.Do("GET", "/things/1", "{", "Content-Type:"), "||||1"},
		{c.Do("GET", "/things/1", []byte("{}"), "Content-Type: x/y"), "||x/y||2"},
		{c.For(t).With("X: z").Get("/things/1"), "|||z|0"},
	}
	for i, tt := range tests {
		if got := tt.got.Want(http.StatusOK).Str("name"); got != tt.want {
			t.Errorf("%d: got %q, want %q", i, got, tt.want)
		}
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	c := apitest.Serve(t, answering(200, "application/json", `{"name":"x","n":7,"items":[{"id":null}]}`, `ETag: "1"`), spec(t))
	r := c.Get("/things/1").Want(200)
	if r.Str("name") != "x" || r.Int("n") != 7 || r.Len("items") != 1 || r.Get("items.0.id") != nil || r.ETag() != `"1"` || r.JSON()["name"] != "x" {
		t.Errorf("got %s", r.Body)
	}
	for want, f := range map[string]func(r *apitest.Response){
		"= 200, want 201":      func(r *apitest.Response) { r.Want(201) },
		"want 404 not_found":   func(r *apitest.Response) { r.Problem(fault.CodeNotFound) },
		"there is no nothing":  func(r *apitest.Response) { r.Get("items.0.nothing") },
		"there is no 1":        func(r *apitest.Response) { r.Get("items.1") },
		"n is not a string":    func(r *apitest.Response) { r.Str("n") },
		"name is not a whole":  func(r *apitest.Response) { r.Int("name") },
		"name is not an array": func(r *apitest.Response) { r.Len("name") },
		"cannot unmarshal":     func(r *apitest.Response) { r.Into(new(int)) },
	} {
		got := watch(t, func(tb testing.TB) { f(c.For(tb).Get("/things/1")) })
		if len(got.fatals) != 1 || !strings.Contains(got.fatals[0], want) {
			t.Errorf("reported %q, want %q", got.fatals, want)
		}
	}

	refused := apitest.Serve(t, answering(404, "application/problem+json", refusal, "Cache-Control: no-store", "X-Request-Id: r1"), spec(t))
	if got := refused.Get("/things/1").Problem(fault.CodeNotFound).Fields(); len(got) != 1 || got[0].Pointer != "id" {
		t.Errorf("fields = %v", got)
	}
}

func TestClient_Stream(t *testing.T) {
	t.Parallel()
	const events = "retry: 1000\n: hello\n\nid: 1\nevent: a\ndata: x\ndata: y\n\n: ping\n\nevent: bye\n\ndata:z\r\n\r\n"
	c := apitest.Serve(t, answering(200, "text/event-stream", events, `ETag: "1"`), spec(t))
	s := c.Stream("/things/1")
	for _, want := range []apitest.Event{{ID: "1", Type: "a", Data: "x\ny"}, {Type: "bye"}, {Data: "z"}} {
		if got := s.Next(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got, ok := s.Try(0); ok {
		t.Errorf("got %+v after the end", got)
	}
	s.Close()

	other := apitest.Serve(t, answering(200, "application/json", `{"name":"x"}`, `ETag: "1"`), spec(t))
	got := watch(t, func(tb testing.TB) { other.For(tb).Stream("/things/1") })
	if len(got.fatals) != 1 || !strings.Contains(got.fatals[0], "want a stream") {
		t.Errorf("reported %q", got.fatals)
	}
}
