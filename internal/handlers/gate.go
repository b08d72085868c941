package handlers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/ask"
)

// gate is the one middleware between chi's match and the generated code: it finds the operation, asks who is calling,
// holds the request to the contract, and puts the call into the context.
type gate struct {
	problems
	operations map[routeKey]*operation
	auth       Authenticator
	validator  *validator
}

func (g *gate) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := g.admit(w, r)
		if err != nil {
			g.write(w, r, err)
			return
		}
		if op := exchangeOf(r).operation; r.Method == http.MethodHead && op.stream && (op.onlyStream || ask.EventStream(r.Context())) {
			w.Header().Set("Content-Type", "text/event-stream") // and no stream that nobody could see
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit returns r with its call in the context, or r as it is and why it may not pass.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	op, ok := g.operations[routeKey{routeMethod(r), r.Pattern}]
	if !ok {
		return r, fmt.Errorf("%s %s is routed, but not in the contract", r.Method, r.Pattern)
	}
	x := exchangeOf(r)
	x.operation = op
	if op.noStore {
		w.Header().Set("Cache-Control", "no-store")
	}
	c, err := authenticate(r, op, g.auth)
	c.RequestID, c.TraceID = x.id, x.trace
	c.Target, c.Accept, c.Base = r.URL.RequestURI(), r.Header.Get("Accept"), baseOf(r)
	x.caller = c
	if err != nil {
		return r, err
	}
	if err := op.conditional(r); err != nil {
		return r, err
	}
	body, err := g.validator.check(w, r, op)
	if err != nil {
		return r, err
	}
	if c.Key, err = idempotencyOf(r, body); err != nil {
		return r, err
	}
	return r.WithContext(call.With(r.Context(), c)), nil
}

// baseOf returns scheme and host as the client wrote them.
func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// conditional returns CodePreconditionRequired for a request that must name the revision it is about, and names none; an
// If-Match that any revision satisfies names none.
func (op *operation) conditional(r *http.Request) error {
	ifMatch := strings.TrimSpace(r.Header.Get("If-Match"))
	if !op.needsIfMatch || ifMatch != "" && ifMatch != "*" || r.URL.Query().Has("revision") {
		return nil
	}
	return fault.New(fault.CodePreconditionRequired, "This happens at a revision that you have read, or not at all: send its ETag as If-Match.")
}
