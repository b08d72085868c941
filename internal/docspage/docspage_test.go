package docspage_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/docspage"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		path        string
		status      int
		contentType string
		location    string
	}{
		{"the page", "/docs", 200, "text/html; charset=utf-8", ""},
		{"the page, as a folder", "/docs/", 200, "text/html; charset=utf-8", ""},
		{"its script", "/docs/page.js", 200, "text/javascript; charset=utf-8", ""},
		{"the vendored script", "/docs/vendor/swagger-ui-bundle.js", 200, "text/javascript; charset=utf-8", ""},
		{"the vendored style", "/docs/vendor/swagger-ui.css", 200, "text/css; charset=utf-8", ""},
		{"a licence", "/docs/vendor/LICENSE", 200, "text/plain; charset=utf-8", ""},
		{"a folder", "/docs/vendor", 302, "text/html; charset=utf-8", "/docs"},
		{"an unknown file", "/docs/../docspage.go", 302, "text/html; charset=utf-8", "/docs"},
	}
	handler := docspage.Handler()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := get(handler, tt.path, "")
			if res.Code != tt.status {
				t.Errorf("status = %d, want %d", res.Code, tt.status)
			}
			if got := res.Header().Get("Content-Type"); got != tt.contentType {
				t.Errorf("Content-Type = %q, want %q", got, tt.contentType)
			}
			if got := res.Header().Get("Location"); got != tt.location {
				t.Errorf("Location = %q, want %q", got, tt.location)
			}
			if policy := res.Header().Get("Content-Security-Policy"); tt.status == 200 && !strings.HasPrefix(policy, "default-src 'none'") {
				t.Errorf("Content-Security-Policy = %q", policy)
			}
		})
	}
}

func TestHandler_revalidation(t *testing.T) {
	t.Parallel()
	handler := docspage.Handler()
	etag := get(handler, "/docs/vendor/swagger-ui.css", "").Header().Get("ETag")
	res := get(handler, "/docs/vendor/swagger-ui.css", etag)
	if etag == "" || res.Code != http.StatusNotModified || res.Body.Len() != 0 {
		t.Errorf("with its ETag %s: status %d and %d bytes, want 304 and none", etag, res.Code, res.Body.Len())
	}
}

// The page works offline and under its own policy only if what it names is here and nothing is inline.
func TestPage_selfContained(t *testing.T) {
	t.Parallel()
	handler := docspage.Handler()
	page := get(handler, "/docs", "").Body.String()
	for _, match := range regexp.MustCompile(`<(?:script|link)[^>]* (?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if res := get(handler, match[1], ""); res.Code != http.StatusOK {
			t.Errorf("GET %s = %d", match[1], res.Code)
		}
	}
	for _, inline := range []string{"<style", " style=", "<script>", " onload=", "//"} {
		if strings.Contains(page, inline) {
			t.Errorf("the page contains %q", inline)
		}
	}
}

func get(handler http.Handler, path, etag string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	res := httptest.NewRecorder()
	handler.ServeHTTP(res, req)
	return res
}
