package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const thingID = "01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01"

// tokens is an Authenticator over a map.
type tokens struct {
	known     map[string]access.Identity
	anonymous bool
}

func (a *tokens) Authenticate(_ context.Context, bearer string) (access.Identity, error) {
	if who, ok := a.known[bearer]; ok {
		return who, nil
	}
	return access.Identity{}, fault.New(fault.CodeUnauthenticated, "The token is not known.")
}

func (a *tokens) Anonymous() bool { return a.anonymous }

func someTokens() *tokens {
	return &tokens{known: map[string]access.Identity{
		"root":     {TokenID: "1", Name: "root", Role: access.RoleAdmin, Namespace: access.AllNamespaces},
		"viewer":   {TokenID: "2", Name: "eve", Role: access.RoleViewer, Namespace: "red"},
		"worker":   {TokenID: "3", Name: "bob", Role: access.RoleWorker, Namespace: "red"},
		"operator": {TokenID: "4", Name: "oz", Role: access.RoleOperator, Namespace: "red"},
	}}
}

// server is a handler over the test contract, whose operations echo what reached them.
type server struct {
	http.Handler
	auth     *tokens
	log      *bytes.Buffer
	registry *prometheus.Registry
	operate  http.HandlerFunc // replaces the echo
	calls    int              // requests that reached an operation
}

// echo is what an operation of the test server answers.
type echo struct {
	Operation   string `json:"operation"`
	Body        string `json:"body"`
	ContentType string `json:"content_type"`
	Namespace   string `json:"namespace"`
	Actor       string `json:"actor"`
	Role        string `json:"role"`
	RequestID   string `json:"request_id"`
	TraceID     string `json:"trace_id"`
	Key         string `json:"key"`
}

func testSpec(tb testing.TB) *openapi3.T {
	tb.Helper()
	data, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	spec, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		tb.Fatal(err)
	}
	if err := spec.Validate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return spec
}

func newServer(tb testing.TB, change ...func(*Config)) *server {
	tb.Helper()
	s := &server{auth: someTokens(), log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	cfg := Config{
		Spec: testSpec(tb), Auth: s.auth, Log: zerolog.New(s.log).Level(zerolog.DebugLevel), Registry: s.registry,
		Now: time.Now,
	}
	for _, f := range change {
		f(&cfg)
	}
	h, err := newHandler(cfg, func(r chi.Router, _ problems) {
		for path, item := range cfg.Spec.Paths.Map() {
			for method := range item.Operations() {
				r.Method(method, path, http.HandlerFunc(s.serve))
			}
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Handler = h
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.calls++
	if s.operate != nil {
		s.operate(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	c := call.From(r.Context())
	e := echo{
		Operation: exchangeOf(r).operation.id, Body: string(body), ContentType: r.Header.Get("Content-Type"),
		Namespace: c.Namespace, Actor: c.Actor, Role: string(c.Role), RequestID: c.RequestID, TraceID: c.TraceID,
	}
	if c.Key != nil {
		e.Key = c.Key.Key
	}
	sendJSON(w, e)
}

// send sends a request as root, unless a header says otherwise.
func (s *server) send(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	r.Host = "localhost:8080"
	r.Header.Set("Authorization", "Bearer root")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			r.Header.Del(name)
			continue
		}
		r.Header.Add(name, value)
		if name == "Authorization" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func decode[T any](tb testing.TB, w *httptest.ResponseRecorder) T {
	tb.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		tb.Fatalf("%d: %v\n%s", w.Code, err, w.Body)
	}
	return v
}

// problemDocument is a problem document as a client reads it.
type problemDocument struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Detail    string        `json:"detail"`
	Instance  string        `json:"instance"`
	RequestID string        `json:"request_id"`
	Code      fault.Code    `json:"code"`
	Retryable bool          `json:"retryable"`
	Errors    []fault.Field `json:"errors"`
}

// problem checks that w is a problem with this code, whose form is right, and returns it.
func problem(tb testing.TB, w *httptest.ResponseRecorder, code fault.Code) problemDocument {
	tb.Helper()
	p := decode[problemDocument](tb, w)
	entry := fault.Lookup(code)
	if p.Code != code || w.Code != entry.Status || p.Status != entry.Status {
		tb.Fatalf("got %d %s, want %d %s\n%s", w.Code, p.Code, entry.Status, code, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		tb.Errorf("Content-Type = %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		tb.Errorf("Cache-Control = %q", got)
	}
	if p.RequestID == "" || p.RequestID != w.Header().Get("X-Request-Id") {
		tb.Errorf("request_id = %q, header %q", p.RequestID, w.Header().Get("X-Request-Id"))
	}
	if p.Title != entry.Title || p.Retryable != entry.Retryable || p.Detail == "" || p.Instance == "" {
		tb.Errorf("incomplete: %s", w.Body)
	}
	return p
}

func cutHeader(line string) (name, value string, ok bool) { return strings.Cut(line, ": ") }

func logOf(s *server) zerolog.Logger { return zerolog.New(s.log).Level(zerolog.DebugLevel) }
