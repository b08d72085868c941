package handlers

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Authenticator knows the tokens.
type Authenticator interface {
	// Authenticate returns whose token bearer is. It returns CodeUnauthenticated for a token that is unknown, expired or revoked.
	Authenticate(ctx context.Context, bearer string) (access.Identity, error)
	// Anonymous reports whether callers on the loopback interface need no token, which is so while no admin token exists.
	Anonymous() bool
}

const (
	defaultNamespace = "default"
	maxNamespace     = 128
)

// authenticate returns the call that r makes of op: who asks, in which role, in which namespace. It returns
// CodeUnauthenticated, CodeForbidden, CodeInvalidParameter for a namespace of the wrong form, and what auth returns.
func authenticate(r *http.Request, op *operation, auth Authenticator) (call.Call, error) {
	c := call.Call{Namespace: defaultNamespace}
	if op.public {
		return c, nil
	}
	who, err := identify(r, auth)
	if err != nil {
		return c, err
	}
	c = callOf(who)
	if c.Namespace, err = namespaceOf(r, who); err != nil {
		return c, err
	}
	if !op.allows(who.Role) {
		return c, fault.New(fault.CodeForbidden, "This needs a token with the role %s; this one has the role %s.", op.needs(), who.Role).
			With("required_role", string(op.needs()))
	}
	return c, nil
}

// callOf returns a call of who, in the namespace of its token.
func callOf(who access.Identity) call.Call {
	c := call.Call{Namespace: who.Namespace, Token: who.TokenID, Role: who.Role, Actor: "local", AllNamespaces: who.Namespace == access.AllNamespaces}
	if who.TokenID != "" || who.Name != "" {
		c.Actor = "token:" + who.Name
	}
	return c
}

// identify finds out who sent r.
func identify(r *http.Request, auth Authenticator) (access.Identity, error) {
	return identifyBy(r, r.Header.Get("Authorization"), auth)
}

// identifyBy is identify for another Authorization header than r's.
func identifyBy(r *http.Request, header string, auth Authenticator) (access.Identity, error) {
	if header != "" {
		scheme, bearer, _ := strings.Cut(header, " ")
		bearer = strings.TrimSpace(bearer)
		if !strings.EqualFold(scheme, "Bearer") || bearer == "" {
			return access.Identity{}, fault.New(fault.CodeUnauthenticated, "The Authorization header is not of the form: Bearer <token>.")
		}
		return auth.Authenticate(r.Context(), bearer)
	}
	if !auth.Anonymous() {
		return access.Identity{}, fault.New(fault.CodeUnauthenticated, "Send a token: Authorization: Bearer <token>. An administrator makes one with flowapi token create.")
	}
	if !fromLoopback(r) || forwarded(r) {
		return access.Identity{}, fault.New(fault.CodeUnauthenticated, "Without a token this server answers only to callers on its own machine. Create an admin token with flowapi token create.")
	}
	return access.Identity{Role: access.RoleAdmin, Namespace: access.AllNamespaces}, nil
}

// namespaceOf returns the namespace that r is about: the token's, or the one that r names when the token may name any.
func namespaceOf(r *http.Request, who access.Identity) (string, error) {
	named, field := r.Header.Get("Flowapi-Namespace"), fault.Field{In: fault.InHeader, Pointer: "Flowapi-Namespace"}
	if strings.Contains(r.URL.RawQuery, "namespace=") {
		if query := r.URL.Query().Get("namespace"); query != "" {
			if named != "" && named != query {
				field.Detail = "names another namespace than the query"
				return "", invalid(true, []fault.Field{field})
			}
			named, field = query, fault.Field{In: fault.InQuery, Pointer: "namespace"}
		}
	}
	if len(named) > maxNamespace || unstorable(named) {
		field.Detail = "is not the name of a namespace"
		return "", invalid(true, []fault.Field{field})
	}
	switch {
	case who.Namespace != access.AllNamespaces && named != "" && named != who.Namespace:
		return "", fault.New(fault.CodeForbidden, "This token is for the namespace %s only: name that one or none, or use a token for %s.", who.Namespace, named).With("namespace", who.Namespace)
	case who.Namespace != access.AllNamespaces:
		return who.Namespace, nil
	case named == "":
		return defaultNamespace, nil
	}
	return named, nil
}

// fromLoopback reports whether r came in over the loopback interface.
func fromLoopback(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// forwarded reports whether a proxy passed r on, so that its peer says nothing about its sender.
func forwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if len(r.Header[name]) > 0 {
			return true
		}
	}
	return false
}

// loopbackHost reports whether a Host header names this machine's loopback interface.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
