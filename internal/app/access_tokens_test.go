package app_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestAccess_Tokens: the life of a token.
func TestAccess_Tokens(t *testing.T) {
	t.Parallel()
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		for name, run := range map[string]func(a *accessTest){
			"made, listed, used, revoked":                                             (*accessTest).life,
			"it expires by the server's clock":                                        (*accessTest).expires,
			"under an Idempotency-Key it is made once, and its secret not told again": (*accessTest).madeOnce,
			"an admin of one namespace has its tokens only":                           (*accessTest).namespaces,
		} {
			t.Run(name, func(t *testing.T) { run(a.on(t)) })
		}
	})
}

func (a *accessTest) life() {
	expiry := a.now().Add(time.Hour)
	made := a.Post("/v1/admin/tokens", `{"name":"builder","role":"worker","namespace":"red","expires_at":`+spelled(expiry)+`}`).Want(http.StatusCreated)
	got := flowAs[oapi.CreatedToken](made)
	secret := *got.Token
	if got.Name != "builder" || got.Role != "worker" || got.Namespace != "red" || !strings.HasPrefix(secret, got.Prefix) || len(got.Prefix) >= len(secret)/2 ||
		!got.ExpiresAt.Time().Equal(expiry) || made.Header.Get("Location") != "/v1/admin/tokens/"+got.TokenID.String() {
		a.t.Errorf("%v %s", made.Header, made.Body)
	}
	want := oapi.Token{TokenID: got.TokenID, Name: "builder", Role: "worker", Namespace: "red", Prefix: got.Prefix, CreatedAt: got.CreatedAt, ExpiresAt: got.ExpiresAt}
	listed, raw := a.listed(got.TokenID)
	if diff := cmp.Diff(want, listed); diff != "" || bytes.Contains(raw, []byte(secret)) {
		a.t.Errorf("listed %s (-want +got):\n%s", raw, diff)
	}
	worker := a.server.For(a.t).As(secret)
	worker.Post("/v1/claims", `{"lane":"idle-of-tokens","worker_id":"w"}`).Want(http.StatusNoContent)
	for _, bad := range []string{secret[:len(secret)-1], secret + "0", strings.ToUpper(secret), got.Prefix, got.Prefix + "x", got.TokenID.String(), " ", strings.Repeat("\xff", 40)} {
		a.server.For(a.t).With("Authorization: Bearer " + bad).Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	}
	for range 2 { // it may be repeated
		a.Do(http.MethodDelete, "/v1/admin/tokens/"+got.TokenID.String(), nil).Want(http.StatusNoContent)
		worker.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	}
	if listed, _ := a.listed(got.TokenID); listed.RevokedAt == nil || listed.RevokedAt.Time().Before(listed.CreatedAt.Time()) {
		a.t.Errorf("%+v", listed)
	}
	a.facts(a.Do(http.MethodDelete, "/v1/admin/tokens/"+uuid.NewString(), nil).Problem(fault.CodeNotFound), map[string]any{"resource": "token"})
	events := a.Get("/v1/events?topic=admin&limit=500").Want(http.StatusOK)
	var types []string
	for _, e := range flowAs[oapi.EventList](events).Items {
		if data := docAs[map[string]any](a.t, e.Data); data["token_id"] == got.TokenID.String() {
			types = append(types, e.Type)
		}
	}
	if !slices.Equal(types, []string{"token.created", "token.revoked"}) || bytes.Contains(events.Body, []byte(secret)) {
		a.t.Errorf("the log has %v: %s", types, events.Body)
	}
	a.nowhereKept(secret)
}

// listed returns a token as the list shows it, and the list itself.
func (a *accessTest) listed(id uuid.UUID) (oapi.Token, []byte) {
	a.t.Helper()
	answer := a.Get("/v1/admin/tokens?limit=500").Want(http.StatusOK)
	items := flowAs[oapi.TokenList](answer).Items
	i := slices.IndexFunc(items, func(t oapi.Token) bool { return t.TokenID == id })
	if i < 0 {
		a.t.Fatalf("%s is not listed: %s", id, answer.Body)
	}
	return items[i], answer.Body
}

// nowhereKept looks for a secret in the rows that could have it.
func (a *accessTest) nowhereKept(secret string) {
	a.t.Helper()
	var kept [][]byte
	err := a.server.App.Store().Read(a.t.Context(), func(q *store.Queries) error {
		for _, query := range []string{`SELECT body FROM idempotency_keys WHERE body IS NOT NULL`, `SELECT hash FROM tokens`} {
			var found [][]byte
			if err := q.Select(&found, query); err != nil {
				return err
			}
			kept = append(kept, found...)
		}
		for _, query := range []string{`SELECT data FROM events`, `SELECT prefix FROM tokens`} {
			var found []string
			if err := q.Select(&found, query); err != nil {
				return err
			}
			for _, text := range found {
				kept = append(kept, []byte(text))
			}
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, row := range kept {
		if bytes.Contains(row, []byte(secret)) {
			a.t.Errorf("the secret is kept in %s", row)
		}
	}
}

func (a *accessTest) expires() {
	expiry := a.now().Add(time.Hour)
	secret := a.token("viewer", "red", `"expires_at":`+spelled(expiry))
	viewer := a.server.For(a.t).As(secret)
	viewer.Get("/v1/meta").Want(http.StatusOK)
	a.reach(expiry.Add(-10 * time.Minute))
	viewer.Get("/v1/meta").Want(http.StatusOK)
	a.reach(expiry)
	viewer.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
	for _, at := range []time.Time{a.now().Add(-time.Second), a.now()} {
		a.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","expires_at":`+spelled(at)+`}`).Problem(fault.CodeTimerOutOfRange)
	}
}

func (a *accessTest) madeOnce() {
	key, body := "Idempotency-Key: token", `{"name":"once","role":"operator","namespace":"red"}`
	first := a.Post("/v1/admin/tokens", body, key).Want(http.StatusCreated)
	secret := first.Str("token")
	again := a.same(func() *apitest.Response { return a.Post("/v1/admin/tokens", body, key) }).Want(http.StatusCreated)
	want := first.JSON()
	want["token"] = nil
	if diff := cmp.Diff(want, again.JSON()); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
		a.t.Errorf("%v (-want +got):\n%s", again.Header, diff)
	}
	a.server.For(a.t).As(secret).Get("/v1/flows").Want(http.StatusOK)
	a.nowhereKept(secret)
}

func (a *accessTest) namespaces() {
	f := a.at("running")
	everywhere := a.server.For(a.t).As(a.token("operator", "*"))
	everywhere.Get(flowPath(f.ID)).Problem(fault.CodeNotFound) // it is not in the namespace default
	everywhere.Get(flowPath(f.ID) + "?namespace=red").Want(http.StatusOK)
	everywhere.In("red").Post(flowPath(f.ID, "finish"), nil).Want(http.StatusOK)
	if n := everywhere.In("blue").Get("/v1/flows").Want(http.StatusOK).Len("items"); n != 0 {
		a.t.Errorf("blue has %d flows", n)
	}
	red, blue := a.server.For(a.t).As(a.token("admin", "red")), a.server.For(a.t).As(a.token("admin", "blue"))
	of := func(c *apitest.Client) map[string]bool {
		found := map[string]bool{}
		for _, t := range flowAs[oapi.TokenList](c.Get("/v1/admin/tokens?limit=500").Want(http.StatusOK)).Items {
			found[t.Namespace] = true
		}
		return found
	}
	if diff := cmp.Diff(map[string]bool{"red": true}, of(red)); diff != "" {
		a.t.Errorf("red sees (-want +got):\n%s", diff)
	}
	mine := red.Post("/v1/admin/tokens", `{"name":"x","role":"viewer"}`).Want(http.StatusCreated)
	if mine.Str("namespace") != "red" {
		a.t.Errorf("%s", mine.Body)
	}
	for _, other := range []string{"blue", "*"} {
		a.refused(fault.CodeForbidden, func() *apitest.Response {
			return red.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","namespace":"`+other+`"}`)
		})
	}
	path := "/v1/admin/tokens/" + mine.Str("token_id")
	a.refused(fault.CodeNotFound, func() *apitest.Response { return blue.Do(http.MethodDelete, path, nil) })
	red.Do(http.MethodDelete, path, nil).Want(http.StatusNoContent)
}

// TestAccess_Anonymous: while there is no admin token, a caller on this machine needs none; after the first one, everybody does.
func TestAccess_Anonymous(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		s.Post("/v1/admin/tokens", `{"name":"v","role":"viewer"}`).Want(http.StatusCreated)
		f := s.Post("/v1/flows", `{"goal":"x"}`, "Flowapi-Namespace: red").Want(http.StatusCreated)
		if f.Str("namespace") != "red" || s.Get("/v1/flows?namespace=red").Want(http.StatusOK).Len("items") != 1 || s.Get("/v1/flows").Want(http.StatusOK).Len("items") != 0 {
			t.Errorf("%s", f.Body)
		}
		s.Get("/v1/meta", "X-Forwarded-For: 192.0.2.7").Problem(fault.CodeUnauthenticated)
		s.Get("/v1/meta", "Forwarded: for=192.0.2.7").Problem(fault.CodeUnauthenticated)

		made := s.Post("/v1/admin/tokens", `{"name":"first","role":"admin","namespace":"*","expires_at":`+spelled(s.Clock.Now().Add(time.Hour))+`}`).Want(http.StatusCreated)
		s.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		admin := s.As(made.Str("token"))
		admin.Get("/v1/flows/" + f.Str("id") + "?namespace=red").Want(http.StatusOK)
		e := admin.Get("/v1/events?type=token.created&limit=500").Want(http.StatusOK)
		if e.Str("items.0.actor") != "local" {
			t.Errorf("%s", e.Body)
		}
		second := admin.Post("/v1/admin/tokens", `{"name":"second","role":"admin","namespace":"*"}`).Want(http.StatusCreated)
		told := flowAs[oapi.EventList](admin.Get("/v1/events?type=token.created&limit=500").Want(http.StatusOK)).Items
		if told[len(told)-1].Actor != "token:first" {
			t.Errorf("%+v", told)
		}
		s.Advance(2 * time.Hour) // the first has expired
		admin.Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		s.As(second.Str("token")).Do(http.MethodDelete, "/v1/admin/tokens/"+second.Str("token_id"), nil).Want(http.StatusNoContent)
		s.As(second.Str("token")).Get("/v1/meta").Problem(fault.CodeUnauthenticated)
		s.Get("/v1/meta").Problem(fault.CodeUnauthenticated) // what was closed does not open by itself
		for _, page := range []string{"/livez", "/readyz", "/openapi.json", "/problems", "/metrics"} {
			s.Get(page).Want(http.StatusOK)
		}
	})
}
