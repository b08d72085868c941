package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

const secretsPath = "/v1/admin/waitpoint-secrets"

// keyTest is a server and what it knows of its waitpoint secrets.
type keyTest struct {
	*apptest.Server
	t *testing.T
}

// keyServers runs fn on servers of their own: the secrets are those of all namespaces.
func keyServers(t *testing.T, fn func(k *keyTest)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) { fn(keysOn(t, url)) })
}

// keysOn starts a server whose clock stands still.
func keysOn(t *testing.T, url string) *keyTest {
	t.Helper()
	return &keyTest{apptest.Still(t, url, store.StillClock(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))), t}
}

// hexOf is a secret.
func hexOf(b byte) string { return strings.Repeat(fmt.Sprintf("%02x", b), 32) }

func (k *keyTest) rotate(members string, headers ...string) *apitest.Response {
	k.t.Helper()
	return k.Post(secretsPath+"/rotate", "{"+members+"}", headers...)
}

// to rotates to a kid and a secret.
func (k *keyTest) to(kid string, b byte, more ...string) oapi.RotatedWaitpointSecret {
	k.t.Helper()
	members := joined(append([]string{fmt.Sprintf(`"new_kid":%q,"new_secret_hex":%q`, kid, hexOf(b))}, more...)...)
	return answerAs[oapi.RotatedWaitpointSecret](k.rotate(members).Want(http.StatusOK))
}

// kids is the list, a kid with the end of its grace for each.
func (k *keyTest) kids() (current string, verifying []string) {
	k.t.Helper()
	answer := k.Get(secretsPath).Want(http.StatusOK)
	if got := answer.Header.Get("Cache-Control"); got != "no-store" {
		k.t.Errorf("Cache-Control %q", got)
	}
	list := answerAs[oapi.WaitpointSecrets](answer)
	for _, v := range list.Verifying {
		text := v.Kid
		if v.ExpiresAt != nil {
			text += " " + v.ExpiresAt.String()
		}
		if v.Current != (list.CurrentKid != nil && v.Kid == *list.CurrentKid) || v.Current != (v.ExpiresAt == nil) {
			k.t.Errorf("%+v", v)
		}
		verifying = append(verifying, text)
	}
	if list.CurrentKid != nil {
		current = *list.CurrentKid
	}
	return current, verifying
}

func (k *keyTest) wantKids(want ...string) {
	k.t.Helper()
	if _, got := k.kids(); !slices.Equal(got, want) {
		k.t.Errorf("kids are %q, want %q", got, want)
	}
}

// stored is how many secrets the database has.
func (k *keyTest) stored() int64 {
	k.t.Helper()
	return countRows(k.t, k.Server)["waitpoint_secrets"]
}

// refuses checks that a request is refused, and changes nothing.
func (k *keyTest) refuses(code fault.Code, call func() *apitest.Response) *apitest.Response {
	k.t.Helper()
	return unmoved(k.t, func() []any {
		_, kids := k.kids()
		return []any{countRows(k.t, k.Server), kids}
	}, call).Problem(code)
}

// events are the admin events about secrets, the oldest first.
func (k *keyTest) events() (list []string) {
	k.t.Helper()
	for _, e := range answerAs[oapi.EventList](k.Get("/v1/events?topic=admin&limit=500").Want(http.StatusOK)).Items {
		if strings.HasPrefix(e.Type, "secret.") {
			list = append(list, e.Type+" "+string(e.Data)+" by "+e.Actor)
		}
	}
	return list
}

// ring opens the database as a server does, and returns what it can sign with.
func (k *keyTest) ring(master keyring.Master) (ring waitpoint.Ring) {
	k.t.Helper()
	r, err := keyring.Open(k.t.Context(), k.App.Store(), master)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.App.Store().Read(k.t.Context(), func(q *store.Queries) error {
		ring, err = r.Ring(q)
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return ring
}

// master is the one that apptest gives servers.
func (k *keyTest) master() keyring.Master {
	if file := k.App.Store().File(); file != "" {
		return keyring.Master{File: file + ".secret"}
	}
	return keyring.Master{Secret: []byte("the master secret of PostgreSQL in tests")}
}

// TestKeyring_Seed: executions.md 2.13, 6.7 case 84.
func TestKeyring_Seed(t *testing.T) {
	t.Parallel()
	keyServers(t, func(k *keyTest) {
		if current, _ := k.kids(); current != "k1" {
			k.t.Fatalf("a new server has %q", current)
		}
		k.to("s", 1, `"grace_ms":0`)
		seed := func(members string) *apitest.Response { return k.Post(secretsPath, "{"+members+"}") }
		for body, want := range map[string]any{`"kid":"s","secret_hex":"` + hexOf(1) + `"`: true, `"kid":"s","secret_hex":"` + hexOf(2) + `"`: false, `"kid":"s"`: nil} {
			answer := seed(body).Want(http.StatusOK)
			if answer.Str("outcome") != "already_seeded" || answer.Get("same_secret") != want {
				k.t.Errorf("%s = %s", body, answer.Body)
			}
		}
		if got := k.refuses(fault.CodeRotationConflict, func() *apitest.Response { return seed(`"kid":"t","secret_hex":"` + hexOf(1) + `"`) }).Str("current_kid"); got != "s" {
			k.t.Errorf("current_kid %q", got)
		}
		// Only somebody who starts anew has an empty ring under a running server.
		if err := store.Do(k.t.Context(), k.App.Store(), func(tx *store.Tx) error {
			_, err := tx.Exec(`DELETE FROM waitpoint_secrets`)
			return err
		}); err != nil {
			k.t.Fatal(err)
		}
		if current, verifying := k.kids(); current != "" || len(verifying) != 0 {
			k.t.Errorf("%q %q", current, verifying)
		}
		first := seed(`"kid":"t"`).Want(http.StatusCreated)
		if first.Str("outcome") != "seeded" || first.Str("kid") != "t" || first.Get("same_secret") != nil || first.Header.Get("Cache-Control") != "no-store" {
			k.t.Errorf("%s", first.Body)
		}
		k.wantKids("t")
		if diff := cmp.Diff([]string{`secret.seeded {"kid":"k1"} by engine`,
			`secret.rotated {"expires_at":"2026-11-21T09:00:00.000Z","kid":"s","previous_kid":"k1"} by local`, `secret.seeded {"kid":"t"} by local`}, k.events()); diff != "" {
			k.t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// TestKeyring_Rotate: executions.md 6.7 cases 84, 102 and 103, 7.2/32.
func TestKeyring_Rotate(t *testing.T) {
	t.Parallel()
	keyServers(t, func(k *keyTest) {
		out := k.to("b", 2, `"grace_ms":60000`)
		want := oapi.RotatedWaitpointSecret{Outcome: "rotated", Kid: "b", PreviousKid: new("k1"), PreviousExpiresAt: out.PreviousExpiresAt}
		if diff := cmp.Diff(want, out); diff != "" || out.PreviousExpiresAt.String() != "2026-11-21T09:01:00.000Z" {
			k.t.Errorf("%s %v", diff, out.PreviousExpiresAt)
		}
		before := countRows(k.t, k.Server)
		for range 2 {
			if diff := cmp.Diff(oapi.RotatedWaitpointSecret{Outcome: "noop", Kid: "b"}, k.to("b", 2)); diff != "" {
				k.t.Error(diff)
			}
			if got := k.rotate(`"new_kid":"b"`).Want(http.StatusOK).Str("outcome"); got != "noop" {
				k.t.Error(got)
			}
		}
		if diff := cmp.Diff(before, countRows(k.t, k.Server)); diff != "" {
			k.t.Errorf("a noop has changed something: %s", diff)
		}
		for _, kid := range []string{"b", "k1"} {
			k.refuses(fault.CodeRotationConflict, func() *apitest.Response {
				return k.rotate(`"new_kid":"` + kid + `","new_secret_hex":"` + hexOf(9) + `"`)
			})
		}
		k.refuses(fault.CodeRotationConflict, func() *apitest.Response { return k.rotate(`"new_kid":"k1"`) })

		// Without a body everything is the server's choice, and the grace a day.
		next := answerAs[oapi.RotatedWaitpointSecret](k.Post(secretsPath+"/rotate", nil).Want(http.StatusOK))
		if next.Kid != "k2" || next.PreviousExpiresAt.String() != "2026-11-22T09:00:00.000Z" {
			k.t.Errorf("%+v", next)
		}
		k.wantKids("k2", "b 2026-11-22T09:00:00.000Z", "k1 2026-11-21T09:01:00.000Z")
		k.Advance(time.Minute)
		k.wantKids("k2", "b 2026-11-22T09:00:00.000Z", "k1 2026-11-21T09:01:00.000Z") // to its end, inclusive
		k.Clock.Advance(time.Millisecond)
		k.wantKids("k2", "b 2026-11-22T09:00:00.000Z")
		if k.stored() != 3 {
			k.t.Errorf("%d are stored", k.stored())
		}
		k.Settle() // forgets
		if k.stored() != 2 {
			k.t.Errorf("%d are stored", k.stored())
		}

		// An old kid, again: it loses its expiry, and is not collected when that is reached.
		if out := k.to("b", 2, `"grace_ms":0`); *out.PreviousKid != "k2" || out.Outcome != "rotated" {
			k.t.Errorf("%+v", out)
		}
		k.Clock.Advance(48 * time.Hour)
		if out := k.to("c", 3); out.Collected != 1 || *out.PreviousKid != "b" {
			k.t.Errorf("%+v", out)
		}
		k.wantKids("c", "b 2026-11-24T09:01:00.001Z")
		k.Clock.Advance(48 * time.Hour)
		k.Settle()
		k.wantKids("c")
		if out := k.to("b", 7); out.Outcome != "rotated" { // what was forgotten is forgotten
			k.t.Errorf("%+v", out)
		}
		if n := len(k.events()); n != 6 {
			k.t.Errorf("%d events: %q", n, k.events())
		}
	})
}

// TestKeyring_Refused: executions.md 6.7 case 103.
func TestKeyring_Refused(t *testing.T) {
	t.Parallel()
	keyServers(t, func(k *keyTest) {
		good := hexOf(5)
		for body, pointer := range map[string]string{
			`"new_kid":""`: "/new_kid", `"new_kid":"a:b"`: "/new_kid", `"new_kid":"a.b"`: "/new_kid", `"new_kid":"a/b"`: "/new_kid", `"new_kid":"a b"`: "/new_kid", `"new_kid":"ä"`: "/new_kid",
			`"new_kid":"` + strings.Repeat("k", 65) + `"`: "/new_kid", `"new_kid":"a\nb"`: "/new_kid",
			`"new_secret_hex":""`: "/new_secret_hex", `"new_secret_hex":"` + good[2:] + `"`: "/new_secret_hex", `"new_secret_hex":"` + good + `0"`: "/new_secret_hex",
			`"new_secret_hex":"` + good + `zz"`: "/new_secret_hex", `"new_secret_hex":"` + strings.Repeat("ab", 129) + `"`: "/new_secret_hex",
			`"grace_ms":-1`: "/grace_ms", `"grace_ms":2592000001`: "/grace_ms", `"grace_ms":0.5`: "/grace_ms", `"grace_ms":"1"`: "/grace_ms", `"grace":1`: "/grace",
		} {
			answer := k.refuses(fault.CodeValidationFailed, func() *apitest.Response { return k.rotate(body) })
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != pointer || strings.Contains(string(answer.Body), good[2:]) {
				k.t.Errorf("%s = %s", body, answer.Body)
			}
			if strings.HasPrefix(body, `"grace`) {
				continue
			}
			seed := strings.ReplaceAll(body, "new_", "")
			if !strings.Contains(seed, "kid") {
				seed += `,"kid":"k1"`
			}
			k.refuses(fault.CodeValidationFailed, func() *apitest.Response { return k.Post(secretsPath, "{"+seed+"}") })
		}
	})
}

// TestKeyring_Namespaces: who may choose a secret may make tokens of every namespace.
func TestKeyring_Namespaces(t *testing.T) {
	t.Parallel()
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		k := &keyTest{a.server, t}
		k.Client = a.As(rootToken)
		for _, token := range []string{a.token("admin", "red"), a.token("operator", "*"), a.token("worker", "*")} {
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return a.As(token).Post(secretsPath+"/rotate", `{"grace_ms":0}`) },
				func() *apitest.Response { return a.As(token).Post(secretsPath, `{"kid":"k1"}`) },
				func() *apitest.Response { return a.As(token).Get(secretsPath) },
			} {
				answer := k.refuses(fault.CodeForbidden, call)
				if answer.Str("required_role") != "admin" {
					t.Errorf("%s", answer.Body)
				}
			}
		}
		k.refuses(fault.CodeUnauthenticated, func() *apitest.Response { return a.As("").Post(secretsPath+"/rotate", nil) })
		a.As(a.token("admin", "*")).Post(secretsPath+"/rotate", nil).Want(http.StatusOK)
	})
}

// TestKeyring_Concurrent: many rotate at once, and one secret is current.
func TestKeyring_Concurrent(t *testing.T) {
	t.Parallel()
	keyServers(t, func(k *keyTest) {
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				client := k.For(k.t)
				if i%3 == 0 { // the same for several: one of them rotates
					client.Post(secretsPath+"/rotate", `{"new_kid":"same","new_secret_hex":"`+hexOf(1)+`"}`).Want(http.StatusOK)
					return
				}
				client.Post(secretsPath+"/rotate", nil).Want(http.StatusOK)
			})
		}
		wg.Wait()
		current, verifying := k.kids()
		if current == "" || len(verifying) != 10 || k.stored() != 10 { // k1, same, and eight more
			k.t.Errorf("%s %q", current, verifying)
		}
	})
}

// TestKeyring_Idempotency: a repeated request changes nothing, gets the same answer, and nothing secret is kept of it.
func TestKeyring_Idempotency(t *testing.T) {
	t.Parallel()
	keyServers(t, func(k *keyTest) {
		for name, body := range map[string]string{"ours": `"grace_ms":1`, "theirs": `"new_kid":"x","new_secret_hex":"` + hexOf(0xc4) + `"`} {
			first := k.rotate(body, "Idempotency-Key: "+name).Want(http.StatusOK)
			rows := countRows(k.t, k.Server)
			again := k.rotate(body, "Idempotency-Key: "+name).Want(http.StatusOK)
			if !bytes.Equal(first.Body, again.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("Cache-Control") != "no-store" {
				k.t.Errorf("%s, and again %v %s", first.Body, again.Header, again.Body)
			}
			if diff := cmp.Diff(rows, countRows(k.t, k.Server)); diff != "" {
				k.t.Error(diff)
			}
		}
		k.rotate(`"new_kid":"y"`, "Idempotency-Key: theirs").Problem(fault.CodeIdempotencyMismatch)
	})
}

// TestKeyring_Restart: the secrets outlive the server, and what they have signed verifies.
func TestKeyring_Restart(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		k := keysOn(t, url)
		k.to("b", 2)
		_, before := k.kids()
		execution, wait := uuid.New(), uuid.New()
		token, err := k.ring(k.master()).Mint(execution, wait)
		if err != nil {
			t.Fatal(err)
		}
		k.Stop()
		k = keysOn(t, url)
		k.wantKids(before...)
		if err := k.ring(k.master()).Verify(token.Reveal(), execution, wait, k.Clock.Now()); err != nil {
			t.Error(err)
		}
		if n := len(k.events()); n != 2 {
			t.Errorf("%q", k.events())
		}
	})
}

// TestKeyring_Replicas: what one server rotates, another one uses at once; servers that start together on a new database make one
// secret; and one with another master secret is kept out.
func TestKeyring_Replicas(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	servers := make([]*keyTest, 4)
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() { servers[i] = &keyTest{apptest.Start(t, url), t} })
	}
	wg.Wait()
	a, b := servers[0], servers[1]
	b.wantKids("k1")
	if got := a.events(); len(got) != 1 {
		t.Errorf("%q", got)
	}
	execution, wait := uuid.New(), uuid.New()
	for i := range 5 {
		kid := a.to(fmt.Sprint("r", i), byte(i+1)).Kid
		if current, _ := b.kids(); current != kid {
			t.Fatalf("the other server has %q, want %q", current, kid)
		}
		token, err := b.ring(b.master()).Mint(execution, wait)
		if err != nil || token.Kid() != kid {
			t.Errorf("%v, %v", token, err)
		}
		if err := a.ring(a.master()).Verify(token.Reveal(), execution, wait, a.Clock.Now()); err != nil {
			t.Error(err)
		}
	}
	wantWords(t, refusedStart(t, url, keyring.Master{Secret: bytes.Repeat([]byte{1}, 32)}), "all servers of a database need the same")

	var all sync.WaitGroup
	for _, s := range servers {
		for range 5 {
			all.Go(func() { s.For(t).Post(secretsPath+"/rotate", nil).Want(http.StatusOK) })
		}
	}
	all.Wait()
	current, verifying := a.kids()
	if other, same := b.kids(); other != current || !slices.Equal(same, verifying) || len(verifying) != 26 {
		t.Errorf("%q and %q", verifying, same)
	}
}
