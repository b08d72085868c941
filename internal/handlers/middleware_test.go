package handlers

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestObserver_RequestID(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for given, kept := range map[string]bool{
		"abc-123": true, "trace/1:2": true, "": false, "a b": false, "a\"b": false, strings.Repeat("x", 129): false, "ä": false,
	} {
		w := s.send("GET", "/v1/things", "", "X-Request-Id: "+given)
		got := w.Header().Get("X-Request-Id")
		if (got == given) != kept || got == "" {
			t.Errorf("X-Request-Id %q -> %q", given, got)
		}
		if id := decode[echo](t, w).RequestID; id != got {
			t.Errorf("the operation saw %q, the client %q", id, got)
		}
	}
}

func TestObserver_TraceID(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	s := newServer(t)
	for given, want := range map[string]string{
		"00-" + trace + "-00f067aa0ba902b7-01":                   trace,
		"01-" + trace + "-00f067aa0ba902b7-01-later":             trace,
		"00-" + trace + "-00f067aa0ba902b7-01-later":             "",
		"ff-" + trace + "-00f067aa0ba902b7-01":                   "",
		"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01":  "",
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + trace + "-0000000000000000-01":                   "",
		"00-" + trace:                                            "",
		"":                                                       "",
	} {
		if got := decode[echo](t, s.send("GET", "/v1/things", "", "Traceparent: "+given)).TraceID; got != want {
			t.Errorf("traceparent %q -> %q, want %q", given, got, want)
		}
	}
}

func TestObserver_Log(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.send("GET", "/v1/things/"+thingID, "", "Authorization: Bearer viewer", "X-Request-Id: r1")
	got := s.log.String()
	for _, want := range []string{
		`"level":"info"`, `"method":"GET"`, `"route":"/v1/things/{thing_id}"`, `"path":"/v1/things/` + thingID + `"`, `"status":200`,
		`"bytes":`, `"duration_ms":`, `"request_id":"r1"`, `"actor":"token:eve"`, `"namespace":"red"`, `"message":"request"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "Bearer") || strings.Count(got, "\n") != 1 {
		t.Errorf("log:\n%s", got)
	}
}

func TestObserver_Metrics(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.send("GET", "/v1/things", "")
	s.send("GET", "/v1/things?limit=-1", "")
	s.send("GET", "/nowhere", "")
	w := s.send("GET", "/metrics", "", "Authorization: ")
	for _, want := range []string{
		`flowapi_http_requests_total{operation="listThings",status="200"} 1`,
		`flowapi_http_requests_total{operation="listThings",status="422"} 1`,
		`flowapi_http_requests_total{operation="none",status="404"} 1`,
		`flowapi_http_request_duration_seconds_count{operation="listThings"} 2`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metrics lack %s:\n%s", want, w.Body)
		}
	}
}

func TestRecoverer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.operate = func(http.ResponseWriter, *http.Request) { panic("secret of the handler") }
	w := s.send("GET", "/v1/things", "")
	problem(t, w, fault.CodeInternal)
	if strings.Contains(w.Body.String(), "secret") || !strings.Contains(s.log.String(), "secret of the handler") || !strings.Contains(s.log.String(), `"status":500`) {
		t.Errorf("answer %s, log:\n%s", w.Body, s.log)
	}

	s.operate = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("later")
	}
	if got := caught(func() { s.send("GET", "/v1/things", "") }); !errors.Is(got, http.ErrAbortHandler) {
		t.Errorf("a panic in the middle of an answer became %v, want the connection cut", got)
	}
	s.operate = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	if got := caught(func() { s.send("GET", "/v1/things", "") }); !errors.Is(got, http.ErrAbortHandler) {
		t.Errorf("ErrAbortHandler became %v", got)
	}
}

func caught(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

func TestResponse_Gzip(t *testing.T) {
	t.Parallel()
	large := `{"a":"` + strings.Repeat("x", 2000) + `"}`
	write := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, body)
		}
	}
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusCreated)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		_, _ = io.WriteString(w, large)
	}
	tests := []struct {
		name    string
		accept  string
		remote  string
		operate http.HandlerFunc
		want    bool
	}{
		{"asked for", "deflate, gzip;q=0.8", "192.0.2.1:1", write("application/json", large), true},
		{"problem", "gzip", "192.0.2.1:1", write("application/problem+json; charset=utf-8", large), true},
		{"not asked for", "", "192.0.2.1:1", write("application/json", large), false},
		{"refused", "gzip;q=0", "192.0.2.1:1", write("application/json", large), false},
		{"refused at length", "gzip; q=0.000", "192.0.2.1:1", write("application/json", large), false},
		{"small", "gzip", "192.0.2.1:1", write("application/json", "{}"), false},
		{"bytes", "gzip", "192.0.2.1:1", write("application/octet-stream", large), false},
		{"stream", "gzip", "192.0.2.1:1", stream, false},
		{"same machine", "gzip", "127.0.0.1:1", write("application/json", large), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.operate = tt.operate
			r := httptest.NewRequest("GET", "/v1/things", nil)
			r.RemoteAddr = tt.remote
			r.Header.Set("Authorization", "Bearer root")
			if tt.accept != "" {
				r.Header.Set("Accept-Encoding", tt.accept)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusCreated {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if got := w.Header().Get("Content-Encoding") == "gzip"; got != tt.want {
				t.Fatalf("compressed: %t, want %t", got, tt.want)
			}
			if !tt.want {
				return
			}
			reader, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(reader); err != nil || string(got) != large {
				t.Errorf("%q, %v", got, err)
			}
			if w.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("Vary = %q", w.Header().Get("Vary"))
			}
		})
	}
}

// A header without a body, or a handler that fails after it has set one, must not be lost while it is held back.
func TestResponse_Held(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	send := func(operate http.HandlerFunc) *httptest.ResponseRecorder {
		s.operate = operate
		r := httptest.NewRequest("GET", "/v1/things", nil)
		r.Header.Set("Authorization", "Bearer root")
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	w := send(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
	})
	if w.Code != http.StatusAccepted {
		t.Errorf("got %d", w.Code)
	}
	w = send(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		problems{log: logOf(s)}.write(w, r, fault.New(fault.CodeBusy, "Later."))
	})
	problem(t, w, fault.CodeBusy)
}
