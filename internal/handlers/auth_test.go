package handlers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func TestGate_Roles(t *testing.T) {
	t.Parallel()
	const ok = ""
	tests := []struct {
		method, target, body string
		want                 map[string]string // by token, the required role
	}{
		{"GET", "/v1/things", "", map[string]string{"viewer": ok, "worker": ok, "operator": ok, "root": ok}},
		{"POST", "/v1/things", `{"name":"x"}`, map[string]string{"viewer": "operator", "worker": "operator", "operator": ok, "root": ok}},
		{"GET", "/v1/things/" + thingID, "", map[string]string{"viewer": ok, "worker": "viewer", "operator": ok, "root": ok}},
		{"PATCH", "/v1/things/" + thingID, "{}", map[string]string{"viewer": "worker", "worker": ok, "operator": ok, "root": ok}},
		{"POST", "/v1/things/1/start", "", map[string]string{"viewer": "worker", "worker": ok, "operator": ok, "root": ok}},
		{"POST", "/v1/secrets", "", map[string]string{"viewer": "admin", "worker": "admin", "operator": "admin", "root": ok}},
	}
	s := newServer(t)
	for _, tt := range tests {
		for token, required := range tt.want {
			w := s.send(tt.method, tt.target, tt.body, "Authorization: Bearer "+token)
			if required == ok {
				if w.Code != http.StatusOK {
					t.Errorf("%s %s as %s = %d %s", tt.method, tt.target, token, w.Code, w.Body)
				}
				continue
			}
			problem(t, w, fault.CodeForbidden)
			if got := decode[map[string]any](t, w)["required_role"]; got != required {
				t.Errorf("%s %s as %s: required_role = %v, want %s", tt.method, tt.target, token, got, required)
			}
		}
	}
}

func TestGate_Unauthenticated(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic cm9vdDo=", "Bearer nobody", "root"} {
		w := s.send("POST", "/v1/things", "no JSON at all", "Authorization: "+header)
		problem(t, w, fault.CodeUnauthenticated)
	}
	if w := s.send("GET", "/v1/things", "", "Authorization: bearer root"); w.Code != http.StatusOK {
		t.Errorf("a scheme in lower case = %d", w.Code)
	}
	if w := s.send("GET", "/approve/x", "", "Authorization: "); w.Code != http.StatusOK {
		t.Errorf("a public operation = %d %s", w.Code, w.Body)
	}
}

func TestGate_Namespace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, token, query, header string
		want                       string
		code                       fault.Code
	}{
		{name: "of the token", token: "viewer", want: "red"},
		{name: "of the token, named", token: "viewer", header: "red", want: "red"},
		{name: "of the token, named in the query", token: "viewer", query: "?namespace=red", want: "red"},
		{name: "another one", token: "viewer", header: "blue", code: fault.CodeForbidden},
		{name: "another one in the query", token: "viewer", query: "?namespace=blue", code: fault.CodeForbidden},
		{name: "none", token: "root", want: "default"},
		{name: "empty", token: "root", query: "?namespace=", want: "default"},
		{name: "header", token: "root", header: "blue", want: "blue"},
		{name: "query", token: "root", query: "?namespace=blue", want: "blue"},
		{name: "both alike", token: "root", header: "blue", query: "?namespace=blue", want: "blue"},
		{name: "both", token: "root", header: "blue", query: "?namespace=red", code: fault.CodeInvalidParameter},
		{name: "twice", token: "root", query: "?namespace=red&namespace=blue", code: fault.CodeInvalidParameter},
		{name: "NUL", token: "root", query: "?namespace=%00", code: fault.CodeInvalidParameter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			w := s.send("GET", "/v1/things"+tt.query, "", "Authorization: Bearer "+tt.token, "Flowapi-Namespace: "+tt.header)
			if tt.code != "" {
				problem(t, w, tt.code)
				return
			}
			if got := decode[echo](t, w).Namespace; got != tt.want {
				t.Errorf("namespace = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGate_Anonymous(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, remote, host string
		anonymous          bool
		headers            []string
		code               fault.Code
	}{
		{name: "loopback", remote: "127.0.0.1:1", host: "localhost:8080", anonymous: true},
		{name: "loopback 6", remote: "[::1]:1", host: "[::1]:8080", anonymous: true},
		{name: "loopback 4 in 6", remote: "[::ffff:127.0.0.1]:1", host: "127.0.0.1", anonymous: true},
		{name: "name below localhost", remote: "127.0.0.1:1", host: "flow.LOCALHOST:8080", anonymous: true},
		{name: "from elsewhere", remote: "192.0.2.7:1", host: "localhost", anonymous: true, code: fault.CodeUnauthenticated},
		{name: "rebound name", remote: "127.0.0.1:1", host: "evil.example:8080", anonymous: true, code: fault.CodeCrossOrigin},
		{name: "rebound name that ends well", remote: "127.0.0.1:1", host: "evillocalhost", anonymous: true, code: fault.CodeCrossOrigin},
		{name: "through a proxy", remote: "127.0.0.1:1", host: "localhost", anonymous: true, headers: []string{"X-Forwarded-For: 192.0.2.7"}, code: fault.CodeUnauthenticated},
		{name: "wrong token", remote: "127.0.0.1:1", host: "localhost", anonymous: true, headers: []string{"Authorization: Bearer nobody"}, code: fault.CodeUnauthenticated},
		{name: "once there is an admin", remote: "127.0.0.1:1", host: "localhost", code: fault.CodeUnauthenticated},
		{name: "another host, once there is an admin", remote: "192.0.2.7:1", host: "flow.example", headers: []string{"Authorization: Bearer root"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.auth.anonymous = tt.anonymous
			r := httptest.NewRequest("GET", "/v1/things?namespace=blue", nil)
			r.RemoteAddr, r.Host = tt.remote, tt.host
			for _, h := range tt.headers {
				name, value, _ := cutHeader(h)
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if tt.code != "" {
				problem(t, w, tt.code)
				return
			}
			got := decode[echo](t, w)
			if got.Role != string(access.RoleAdmin) || got.Namespace != "blue" {
				t.Errorf("got %+v", got)
			}
			if tt.anonymous && got.Actor != "local" {
				t.Errorf("actor = %q", got.Actor)
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	problem(t, s.send("POST", "/v1/things", `{"name":"x"}`, "Sec-Fetch-Site: cross-site"), fault.CodeCrossOrigin)
	problem(t, s.send("POST", "/v1/things", `{"name":"x"}`, "Origin: https://evil.example"), fault.CodeCrossOrigin)
	for _, header := range []string{"Sec-Fetch-Site: same-origin", "Origin: http://localhost:8080"} {
		if w := s.send("POST", "/v1/things", `{"name":"x"}`, header); w.Code != http.StatusOK {
			t.Errorf("%s = %d %s", header, w.Code, w.Body)
		}
	}
}
