package handlers

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// onlyToken knows one token, which is for one namespace or for all, and lets nobody in without it.
type onlyToken struct{ secret, namespace string }

func (o onlyToken) Authenticate(_ context.Context, bearer string) (access.Identity, error) {
	if bearer != o.secret {
		return access.Identity{}, fault.New(fault.CodeUnauthenticated, "unknown")
	}
	return access.Identity{Role: access.RoleViewer, Namespace: o.namespace, TokenID: "t", Name: "n"}, nil
}

func (onlyToken) Anonymous() bool { return false }

// FuzzAuthorization: no spelling of the headers and of the query opens a namespace but the token's own, or one that could not be
// stored.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range [][3]string{
		{"Bearer secret", "", ""}, {"bearer  secret ", "red", ""}, {"Bearer secret", "blue", "namespace=red"}, {"Basic c2VjcmV0", "", ""}, {"Bearer", "", ""}, {"secret", "", ""}, {"", "", ""},
		{"Bearer secret", "", "namespace=red&namespace=blue"}, {"Bearer secret", "", "%6eamespace=blue"}, {"Bearer secret", "\x00", ""}, {"Bearer secret", "", "namespace=%ff"}, {"Bearer secret", "*", ""},
		{"Bearer secret", strings.Repeat("x", 129), ""}, {"Bearer secret, Bearer other", "", ""}, {"Bearer secret", "", "a;namespace=blue"},
	} {
		f.Add(seed[0], seed[1], seed[2], false)
		f.Add(seed[0], seed[1], seed[2], true)
	}
	f.Fuzz(func(t *testing.T, authorization, named, query string, all bool) {
		auth := onlyToken{"secret", "red"}
		if all {
			auth.namespace = access.AllNamespaces
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/flows", nil)
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Flowapi-Namespace", named)
		r.URL.RawQuery = query
		c, err := authenticate(r, &operation{roles: []access.Role{access.RoleViewer}}, auth)
		if err != nil {
			switch fault.CodeOf(err) {
			case fault.CodeUnauthenticated, fault.CodeForbidden, fault.CodeInvalidParameter:
				return
			default:
				t.Fatalf("refused with %v", err)
			}
		}
		scheme, bearer, _ := strings.Cut(authorization, " ")
		if !strings.EqualFold(scheme, "bearer") || strings.TrimSpace(bearer) != "secret" || c.Actor != "token:n" {
			t.Fatalf("%q opens %+v", authorization, c)
		}
		if !all && c.Namespace != "red" || c.Namespace == "" || len(c.Namespace) > maxNamespace || unstorable(c.Namespace) || c.AllNamespaces != all {
			t.Fatalf("%q and %q open %+v", named, query, c)
		}
	})
}
