// Package handlers is the HTTP side of flowapi: what every request passes before an operation sees it, what becomes of
// every refusal, and the pages that describe the server. The operations themselves are in the packages below it, one per
// subject, and reach this one as the generated oapi.StrictServerInterface.
//
// A request passes, in this order: its exchange with log and metrics, recovery from panics, the check of its origin,
// chi's match, and then the gate, which asks who is calling, holds the request to the contract and puts a [call.Call]
// into the context. Every refusal, from wherever, is written by one function as application/problem+json.
package handlers

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Config is what a server is made of. Spec, API, Auth and Now are required.
type Config struct {
	Spec     *openapi3.T                // the contract
	Document []byte                     // the contract as it was written, in YAML
	API      oapi.StrictServerInterface // the operations
	Auth     Authenticator
	Log      zerolog.Logger
	Registry *prometheus.Registry // served at /metrics; a new one without it
	Docs     http.Handler         // of /docs and what is below, with the whole path; none without it
	Approval ApprovalPage         // what is behind the link of an approval; none without it
	Ready    func() error         // nil when the server takes requests; a fault is answered by /readyz as it is
	Now      func() time.Time     // the clock of durations in log and metrics
}

// mounter adds the routes of the API to a router on which the gate already stands.
type mounter func(r chi.Router, p problems)

// newHandler wires everything but the operations, which mount adds.
func newHandler(cfg Config, mount mounter) (http.Handler, error) {
	switch {
	case cfg.Spec == nil:
		return nil, errors.New("handlers: Config.Spec is missing")
	case cfg.Auth == nil:
		return nil, errors.New("handlers: Config.Auth is missing")
	case cfg.Now == nil:
		return nil, errors.New("handlers: Config.Now is missing")
	}
	operations, err := operationsOf(cfg.Spec)
	if err != nil {
		return nil, fmt.Errorf("handlers: %w", err)
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	show, decide := &operation{id: "showApproval", limit: defaultBodyLimit}, &operation{id: "decideByLink", limit: decisionBodyLimit}
	o, err := newObserver(cfg.Log, cfg.Now, cfg.Registry, append(slices.Collect(maps.Values(operations)), show, decide))
	if err != nil {
		return nil, fmt.Errorf("handlers: metrics: %w", err)
	}
	p := problems{log: cfg.Log}
	g := &gate{problems: p, operations: operations, auth: cfg.Auth, validator: newValidator()}

	r := chi.NewRouter()
	r.Use(o.middleware, p.recoverer, p.origins(cfg.Auth), middleware.GetHead)
	r.NotFound(p.notFound)
	r.MethodNotAllowed(p.methodNotAllowed)
	pages{
		problems: p, ready: cfg.Ready, rendered: sync.OnceValues(cfg.Spec.MarshalJSON), written: cfg.Document, registry: cfg.Registry, docs: cfg.Docs,
	}.mount(r)
	if cfg.Approval != nil {
		approvals{problems: p, page: cfg.Approval, auth: cfg.Auth}.mount(r, show, decide)
	}
	r.Group(func(r chi.Router) {
		r.Use(g.middleware)
		mount(r, p)
	})
	return r, nil
}

func (p problems) notFound(w http.ResponseWriter, r *http.Request) {
	p.write(w, r, fault.New(fault.CodeNotFound, "There is nothing at this path. The routes are in /openapi.json.").With("resource", "route"))
}

func (p problems) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allowed := allowedMethods(r)
	if len(allowed) == 0 { // a method that the router does not know, at a path that it does not know
		p.notFound(w, r)
		return
	}
	p.write(w, r, fault.New(fault.CodeMethodNotAllowed, "This path does not take %s, but %s.", clip(r.Method, 32), strings.Join(allowed, ", ")).With("allowed", allowed))
}

// allowedMethods returns the methods that r's path has.
func allowedMethods(r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	routes := chi.RouteContext(r.Context()).Routes
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !routes.Match(chi.NewRouteContext(), method, path) {
			continue
		}
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return allowed
}

// routeMethod returns the method that r was routed by: GET for a HEAD.
func routeMethod(r *http.Request) string {
	if method := chi.RouteContext(r.Context()).RouteMethod; method != "" {
		return method
	}
	return r.Method
}
