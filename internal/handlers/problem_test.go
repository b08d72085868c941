package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// failing returns a server whose operation fails with err.
func failing(tb testing.TB, err error) *server {
	tb.Helper()
	s := newServer(tb)
	s.operate = func(w http.ResponseWriter, r *http.Request) { problems{log: logOf(s)}.write(w, r, err) }
	return s
}

func TestProblems_Write(t *testing.T) {
	t.Parallel()
	secret := errors.New("pq: password authentication failed")
	tests := []struct {
		name   string
		err    error
		code   fault.Code
		header string
		value  string
		fact   string
		want   any
		logged string
	}{
		{name: "refusal", err: fault.New(fault.CodeStaleLease, "Taken over."), code: fault.CodeStaleLease},
		{name: "wrapped refusal", err: fmt.Errorf("complete: %w", fault.New(fault.CodeStaleLease, "Taken over.").Because(secret)), code: fault.CodeStaleLease},
		{name: "facts", err: fault.New(fault.CodeRevisionMismatch, "Changed.").With("expected", 3).With("actual", 4), code: fault.CodeRevisionMismatch, fact: "actual", want: 4.0},
		{name: "fact with a standard name", err: fault.New(fault.CodeAlreadyTerminal, "Ended.").With("code", "x").With("status", "finished"), code: fault.CodeAlreadyTerminal},
		{name: "fact that cannot be rendered", err: fault.New(fault.CodeAlreadyTerminal, "Ended.").With("f", func() {}), code: fault.CodeAlreadyTerminal},
		{name: "unknown error", err: secret, code: fault.CodeInternal, logged: "password authentication"},
		{name: "unknown code", err: fault.New("no_such_code", "Oh."), code: fault.CodeInternal, logged: "no_such_code"},
		{name: "our own fault", err: fault.New(fault.CodeCorruptRecord, "Flow 7 cannot be read.").Because(secret), code: fault.CodeCorruptRecord, logged: "password authentication"},
		{name: "out of time", err: fmt.Errorf("queue: %w", context.DeadlineExceeded), code: fault.CodeBusy, header: "Retry-After", value: "1", logged: "deadline"},
		{name: "busy", err: fault.New(fault.CodeBusy, "Later.").With("retry_after_ms", 2500), code: fault.CodeBusy, header: "Retry-After", value: "3", logged: "busy"},
		{name: "rate", err: fault.New(fault.CodeRateLimited, "Later.").With("retry_after_ms", int64(10)), code: fault.CodeRateLimited, header: "Retry-After", value: "1"},
		{name: "in flight", err: fault.New(fault.CodeIdempotencyInFlight, "Later."), code: fault.CodeIdempotencyInFlight, header: "Retry-After", value: "1"},
		{name: "no token", err: fault.New(fault.CodeUnauthenticated, "Who?"), code: fault.CodeUnauthenticated, header: "WWW-Authenticate", value: "Bearer"},
		{name: "other conflicts do not pass", err: fault.New(fault.CodeAlreadyExists, "Taken."), code: fault.CodeAlreadyExists, header: "Retry-After", value: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := failing(t, tt.err)
			w := s.send("GET", "/v1/things", "")
			p := problem(t, w, tt.code)
			if p.Instance != "/v1/things" || p.Type != "/problems/"+strings.ReplaceAll(string(tt.code), "_", "-") {
				t.Errorf("instance %q, type %q", p.Instance, p.Type)
			}
			if tt.header != "" && w.Header().Get(tt.header) != tt.value {
				t.Errorf("%s = %q, want %q", tt.header, w.Header().Get(tt.header), tt.value)
			}
			if got := decode[map[string]any](t, w)[tt.fact]; tt.fact != "" && got != tt.want {
				t.Errorf("%s = %v, want %v", tt.fact, got, tt.want)
			}
			if strings.Contains(w.Body.String(), "password") || strings.Contains(w.Body.String(), "no_such_code") {
				t.Errorf("the answer shows the cause: %s", w.Body)
			}
			if got := strings.Contains(s.log.String(), "request failed"); got != (p.Status >= 500) {
				t.Errorf("logged: %t\n%s", got, s.log)
			}
			if !strings.Contains(s.log.String(), tt.logged) {
				t.Errorf("the log lacks %q:\n%s", tt.logged, s.log)
			}
		})
	}
}

func TestProblems_Write_ClientGone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.operate = func(w http.ResponseWriter, r *http.Request) {
		cancel()
		problems{log: logOf(s)}.write(w, r, r.Context().Err())
	}
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/things", nil)
	r.Header.Set("Authorization", "Bearer root")
	w := httptest.NewRecorder()
	cut := func() (caught any) {
		defer func() { caught = recover() }()
		s.ServeHTTP(w, r)
		return nil
	}()
	if err, ok := cut.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("the connection was not cut: an empty 200 would be sent; caught %v", cut)
	}
	if w.Body.Len() != 0 {
		t.Errorf("something was written: %s", w.Body)
	}
	if !strings.Contains(s.log.String(), `"status":499`) || strings.Contains(s.log.String(), `"level":"error"`) {
		t.Errorf("log:\n%s", s.log)
	}
}

func TestProblems_Write_AnswerBegun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.operate = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("id: 1\n\n"))
		problems{log: logOf(s)}.write(w, r, errors.New("lost"))
	}
	w := s.send("GET", "/v1/things", "")
	if w.Code != http.StatusOK || w.Body.String() != "id: 1\n\n" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	if !strings.Contains(s.log.String(), "lost") {
		t.Errorf("log:\n%s", s.log)
	}
}

func TestProblems_Write_Replayed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		answer      call.Answer
		status      int
		contentType string
	}{
		{"created", call.Answer{Status: 201, Location: "/v1/flows/1", ETag: `"7"`, Body: []byte("{\"a\":1}\n")}, 201, "application/json"},
		{"no status", call.Answer{Body: []byte(`[]`)}, 200, "application/json"},
		{"no body", call.Answer{Status: 204}, 204, ""},
		{"shell lines", call.Answer{Status: 200, Body: []byte("KIND='x'\n")}, 200, "text/plain; charset=utf-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := failing(t, fmt.Errorf("store: %w", &call.Replayed{Answer: tt.answer, At: time.Unix(0, 0)})).send("GET", "/v1/things", "")
			h := w.Header()
			if w.Code != tt.status || w.Body.String() != string(tt.answer.Body) || h.Get("Idempotent-Replay") != "true" ||
				h.Get("Location") != tt.answer.Location || h.Get("ETag") != tt.answer.ETag || h.Get("Content-Type") != tt.contentType {
				t.Errorf("got %d %v %q", w.Code, h, w.Body)
			}
		})
	}
}

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for target, want := range map[string]string{
		"/v1/things":            "GET, HEAD, POST",
		"/v1/things/" + thingID: "GET, HEAD, PATCH",
		"/v1/things/1/start":    "POST",
		"/livez":                "GET, HEAD",
	} {
		w := s.send("DELETE", target, "")
		problem(t, w, fault.CodeMethodNotAllowed)
		if got := w.Header().Get("Allow"); got != want {
			t.Errorf("%s: Allow = %q, want %q", target, got, want)
		}
	}
	if w := s.send("HEAD", "/v1/things", ""); w.Code != http.StatusOK {
		t.Errorf("HEAD = %d", w.Code)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.operate = func(w http.ResponseWriter, r *http.Request) { problems{log: logOf(s)}.write(w, r, errors.New("x")) }
	digest := strings.Repeat("deadbeef", 8)
	for path, shown := range map[string]string{
		"/approve/wp.k1.deadbeef": "/approve/…", "/v1/approve/wp.k1." + digest: "/v1/approve/…", "/v1/things/wp.k1." + digest + "/x": "/v1/things/wp.k1.…/x", "/" + strings.ToUpper("wp.k1."+digest): "/WP.K1.…",
	} {
		if p := decode[problemDocument](t, s.send("GET", path, "", "Authorization: ")); p.Instance != shown {
			t.Errorf("%s is shown as %q", path, p.Instance)
		}
	}
	if strings.Contains(strings.ToLower(s.log.String()), "deadbeef") || !strings.Contains(s.log.String(), `"path":"/approve/…"`) {
		t.Errorf("log:\n%s", s.log)
	}
}
