package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
)

func TestNewHandler_RefusesContract(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*openapi3.Operation)
		want   string
	}{
		{"role that does not exist", func(o *openapi3.Operation) { o.Extensions["x-roles"] = []any{"boss"} }, "POST /v1/things: x-roles has boss"},
		{"roles that are no list", func(o *openapi3.Operation) { o.Extensions["x-roles"] = "viewer" }, "want a list of roles"},
		{"limit that is no number", func(o *openapi3.Operation) { o.Extensions["x-body-limit"] = "64 KiB" }, "want a number of bytes"},
		{"If-Match that may be left out", func(o *openapi3.Operation) { o.Extensions["x-if-match"] = "optional" }, "want required"},
		{"limit of half a byte", func(o *openapi3.Operation) { o.Extensions["x-body-limit"] = 0.5 }, "want a number of bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := testSpec(t)
			tt.change(spec.Paths.Value("/v1/things").Post)
			_, err := newHandler(Config{Spec: spec, Auth: someTokens(), Now: time.Now}, func(chi.Router, problems) {})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNewHandler_RefusesConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"Spec is missing": {Auth: someTokens(), Now: time.Now},
		"Auth is missing": {Spec: testSpec(t), Now: time.Now},
		"Now is missing":  {Spec: testSpec(t), Auth: someTokens()},
	} {
		if _, err := newHandler(cfg, func(chi.Router, problems) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "API is missing") {
		t.Errorf("got %v", err)
	}
}
