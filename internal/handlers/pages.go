package handlers

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// pages are what the server says about itself, beside the API. They need no token.
type pages struct {
	problems
	ready    func() error
	rendered func() ([]byte, error) // the contract in JSON
	written  []byte                 // the contract in YAML
	registry prometheus.Gatherer
	docs     http.Handler
}

func (p pages) mount(r chi.Router) {
	r.Get("/livez", p.live)
	r.Get("/readyz", p.readiness)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{DisableCompression: true}))
	r.Get("/problems", p.catalogue)
	r.Get("/problems/{code}", p.entry)
	r.Get("/openapi.json", p.contractJSON)
	r.Get("/openapi.yaml", p.contractYAML)
	if p.docs != nil {
		r.Method(http.MethodGet, "/docs", p.docs)
		r.Method(http.MethodGet, "/docs/*", p.docs)
	}
}

func (p pages) contractJSON(w http.ResponseWriter, r *http.Request) {
	content, err := p.rendered()
	if err != nil {
		p.write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(content)
}

func (p pages) contractYAML(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(p.written)
}

func (p pages) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	sendJSON(w, map[string]string{"status": "live"})
}

func (p pages) readiness(w http.ResponseWriter, r *http.Request) {
	if p.ready != nil {
		if err := p.ready(); err != nil {
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				err = fault.New(fault.CodeUnavailable, "The server is not ready to take requests.").Because(err)
			}
			p.write(w, r, err)
			return
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	sendJSON(w, map[string]string{"status": "ready"})
}

// codePage describes one code of the catalogue.
type codePage struct {
	Type      string     `json:"type"`
	Code      fault.Code `json:"code"`
	Status    int        `json:"status"`
	Retryable bool       `json:"retryable"`
	Title     string     `json:"title"`
	About     string     `json:"about"`
}

func codePageOf(e fault.Entry) codePage {
	return codePage{e.Code.Page(), e.Code, e.Status, e.Retryable, e.Title, e.About}
}

func (p pages) catalogue(w http.ResponseWriter, r *http.Request) {
	var items []codePage
	for _, e := range fault.Catalogue() {
		items = append(items, codePageOf(e))
	}
	if wantsHTML(r) {
		sendHTML(w, items)
		return
	}
	sendJSON(w, map[string]any{"items": items})
}

func (p pages) entry(w http.ResponseWriter, r *http.Request) {
	named := chi.URLParam(r, "code")
	code := fault.Code(strings.ReplaceAll(named, "-", "_"))
	e := fault.Lookup(code)
	if e.Code != code {
		p.write(w, r, fault.New(fault.CodeNotFound, "There is no problem %q. All of them are at /problems.", clip(strings.ToValidUTF8(named, ""), 64)).With("resource", "problem"))
		return
	}
	if wantsHTML(r) {
		sendHTML(w, []codePage{codePageOf(e)})
		return
	}
	sendJSON(w, codePageOf(e))
}

// wantsHTML reports whether r comes from a browser that shows a page.
func wantsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func sendJSON(w http.ResponseWriter, value any) {
	body, _ := json.Marshal(value) // strings and numbers: it cannot fail
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

func sendHTML(w http.ResponseWriter, items []codePage) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = codesHTML.Execute(w, items) // a client that is gone does not read it
}

// span is a part of a text; names of members and codes stand between backticks.
type span struct {
	Text string
	Code bool
}

func spans(text string) []span {
	var all []span
	for i, part := range strings.Split(text, "`") {
		all = append(all, span{part, i%2 == 1})
	}
	return all
}

var codesHTML = template.Must(template.New("codes").Funcs(template.FuncMap{"spans": spans}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>flowapi: problems</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}h2{margin:1.5rem 0 0;font-size:1.1rem}p{margin:.2rem 0}</style>
<h1><a href="/problems">Problems</a></h1>
{{range .}}<h2><a href="{{.Type}}"><code>{{.Code}}</code></a></h2>
<p><b>{{.Status}}</b> {{.Title}}.{{if .Retryable}} The same request may succeed later.{{end}}</p>
<p>{{range spans .About}}{{if .Code}}<code>{{.Text}}</code>{{else}}{{.Text}}{{end}}{{end}}</p>
{{end}}</html>
`))
