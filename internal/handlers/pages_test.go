package handlers

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestPages(t *testing.T) {
	t.Parallel()
	docs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("docs at " + r.URL.Path))
	})
	s := newServer(t, func(c *Config) { c.Docs, c.Document = docs, []byte("openapi: 3.0.3\n") })
	tests := []struct{ target, accept, contentType, want string }{
		{"/livez", "", "application/json", `{"status":"live"}`},
		{"/readyz", "", "application/json", `{"status":"ready"}`},
		{"/problems", "", "application/json", `"code":"stale_lease"`},
		{"/problems", "text/html,*/*", "text/html; charset=utf-8", `<a href="/problems/stale-lease">`},
		{"/problems/stale-lease", "", "application/json", `{"type":"/problems/stale-lease","code":"stale_lease","status":409,"retryable":false,`},
		{"/problems/stale-lease", "text/html", "text/html; charset=utf-8", "Stop working on it"},
		{"/problems/forbidden", "text/html", "text/html; charset=utf-8", "<p><code>required_role</code> names the role"},
		{"/openapi.json", "", "application/json", `"createThing"`},
		{"/openapi.yaml", "", "application/yaml", "openapi: 3.0.3"},
		{"/docs", "", "text/plain", "docs at /docs"},
		{"/docs/app.js", "", "text/plain", "docs at /docs/app.js"},
	}
	for _, tt := range tests {
		w := s.send("GET", tt.target, "", "Authorization: ", "Accept: "+tt.accept)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), tt.want) || w.Header().Get("Content-Type") != tt.contentType {
			t.Errorf("%s (%s) = %d %s %s", tt.target, tt.accept, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	}
	problem(t, s.send("GET", "/problems/no-such", ""), fault.CodeNotFound)
	problem(t, newServer(t).send("GET", "/docs", ""), fault.CodeNotFound)
}

// Every code that an answer can carry has its page.
func TestPages_EveryCode(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, e := range fault.Catalogue() {
		target := "/problems/" + strings.ReplaceAll(string(e.Code), "_", "-")
		if got := decode[codePage](t, s.send("GET", target, "")); got.Code != e.Code || got.Type != target {
			t.Errorf("%s = %+v", target, got)
		}
	}
}

func TestPages_NotReady(t *testing.T) {
	t.Parallel()
	var err error
	s := newServer(t, func(c *Config) { c.Ready = func() error { return err } })
	if w := s.send("GET", "/readyz", ""); w.Code != http.StatusOK {
		t.Errorf("ready = %d", w.Code)
	}
	err = errors.New("dial tcp: refused")
	w := s.send("GET", "/readyz", "")
	problem(t, w, fault.CodeUnavailable)
	if strings.Contains(w.Body.String(), "dial") {
		t.Errorf("the cause is shown: %s", w.Body)
	}
	err = fault.New(fault.CodeShuttingDown, "Bye.")
	problem(t, s.send("GET", "/readyz", ""), fault.CodeShuttingDown)
}
