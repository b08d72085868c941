package handlers

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
)

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchmarkRequest(b *testing.B, h http.Handler, method, target string, body []byte) {
	b.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Set("Authorization", "Bearer root")
	r.ContentLength = int64(len(body))
	reader := &sentBody{}
	b.ReportAllocs()
	for b.Loop() {
		again := *r
		u := *r.URL
		again.URL = &u
		if body != nil {
			reader.Reset(body)
			again.Body = reader
		}
		h.ServeHTTP(&discard{header: http.Header{}}, &again)
	}
}

var smallBody = []byte(`{"name":"deploy","count":3,"kind":"a","id":"` + thingID + `","payload":{"ref":"main","sha":"0123456789abcdef"},"tags":{"k":"v"}}`)

// BenchmarkServer measures a request through the whole handler, with an operation that does nothing; bare is the same
// through chi alone.
func BenchmarkServer(b *testing.B) {
	nothing := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	s := newServer(b, func(c *Config) {
		c.Log = zerolog.Nop()
		c.Spec.Paths.Value("/v1/things").Post.Extensions["x-body-limit"] = float64(1 << 20)
	})
	s.operate = nothing
	bare := chi.NewRouter()
	bare.Post("/v1/things", nothing)
	bare.Get("/v1/things", nothing)
	bare.Get("/v1/things/{thing_id}", nothing)
	large := []byte(`{"name":"x","payload":"` + strings.Repeat("abcdefgh", 8<<10) + `"}`)
	for _, tt := range []struct {
		name, method, target string
		body                 []byte
	}{
		{"get by id", "GET", "/v1/things/" + thingID, nil},
		{"list", "GET", "/v1/things?limit=10&state=open", nil},
		{"small post", "POST", "/v1/things", smallBody},
		{"64 KiB payload", "POST", "/v1/things", large},
	} {
		b.Run(tt.name+"/bare", func(b *testing.B) { benchmarkRequest(b, bare, tt.method, tt.target, tt.body) })
		b.Run(tt.name+"/full", func(b *testing.B) { benchmarkRequest(b, s, tt.method, tt.target, tt.body) })
	}
}

// BenchmarkDocument measures the check of a JSON body alone.
func BenchmarkDocument(b *testing.B) {
	thing := documents{}.of(testSpec(b).Components.Schemas["Thing"])
	big := append(append([]byte(`{"name":"x","payload":[`), bytes.Repeat([]byte(`{"key":"some text","n":12.5,"deep":{"a":[1,2,3]}},`), 5000)...), `null]}`...)
	for _, tt := range []struct {
		name  string
		data  []byte
		shape *shape
	}{
		{"small", smallBody, thing.shape},
		{"250 KiB free", big, thing.shape},
		{"250 KiB looked at", big, nil},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var readers documentReaders
			b.SetBytes(int64(len(tt.data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readers.read(tt.data, tt.shape); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
