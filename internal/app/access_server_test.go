package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// serverAccessRows are the operations on events, workers, and the server itself.
var serverAccessRows = []accessRow{
	{"listEvents", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/events", nil) }},
	{"streamEvents", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/events/stream", nil) }},
	{"subscribeCompletions", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/completions", nil) }},
	{"subscribeLeases", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/leases", nil) }},
	{"subscribeSignals", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/signals", nil) }},
	{"subscribeOperator", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/operator", nil) }},
	{"subscribeInstanceTags", readers, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/subscriptions/instance-tags", nil) }},
	{"listWorkers", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/workers", nil) }},
	{"registerWorker", workers, "", func(*accessTest) accessCall {
		return asked(http.MethodPut, workersPath(uuid.NewString()), accessRegistration)
	}},
	{"heartbeatWorker", workers, "", func(a *accessTest) accessCall { return asked(http.MethodPost, a.registered()+"/heartbeat", nil) }},
	{"drainWorker", operators, "", func(a *accessTest) accessCall { return asked(http.MethodPost, a.registered()+"/drain", nil) }},
	{"removeWorker", workers, "", func(a *accessTest) accessCall { return asked(http.MethodDelete, a.registered(), nil) }},
	{"prune", admins, "", func(*accessTest) accessCall { return asked(http.MethodPost, "/v1/admin/prune", `{"dry_run":true}`) }},
	{"listTokens", admins, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/admin/tokens", nil) }},
	{"createToken", admins, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/tokens", `{"name":"x","role":"viewer"}`)
	}},
	{"revokeToken", admins, "token", func(a *accessTest) accessCall {
		return asked(http.MethodDelete, "/v1/admin/tokens/"+a.Post("/v1/admin/tokens", `{"name":"x","role":"viewer","namespace":"red"}`).Want(http.StatusCreated).Str("token_id"), nil)
	}},
	{"listWaitpointSecrets", roots, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/admin/waitpoint-secrets", nil) }},
	{"seedWaitpointSecret", roots, "", func(a *accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/waitpoint-secrets", `{"kid":"`+a.As(rootToken).Get("/v1/admin/waitpoint-secrets").Want(http.StatusOK).Str("current_kid")+`"}`)
	}},
	{"rotateWaitpointSecret", roots, "", func(*accessTest) accessCall {
		return asked(http.MethodPost, "/v1/admin/waitpoint-secrets/rotate", nil)
	}},
	{"getMeta", everybody, "", func(*accessTest) accessCall { return asked(http.MethodGet, "/v1/meta", nil) }},
}

const accessRegistration = `{"worker_id":"w","lanes":[],"capabilities":[],"liveness_ttl_ms":86400000}`

// registered is the path of a new worker.
func (a *accessTest) registered() string {
	a.t.Helper()
	path := workersPath(uuid.NewString())
	a.Do(http.MethodPut, path, accessRegistration).Want(http.StatusCreated)
	return path
}

// TestAccess_Pages: what is no operation is for whoever reaches the server, whatever their token; the link of an approval is a secret of
// its own, and no token replaces it.
func TestAccess_Pages(t *testing.T) {
	t.Parallel()
	accessDatabases(t, func(t *testing.T, a *accessTest) {
		a.invite()
		before := countRows(t, a.server)
		for path, want := range map[string]int{
			"/docs": http.StatusOK, "/metrics": http.StatusOK, "/problems": http.StatusOK, "/problems/not_found": http.StatusOK, "/approve/guessed": http.StatusForbidden,
		} {
			for _, who := range a.callers {
				answer := a.request(who.token, accessCall{method: http.MethodGet, path: path, headers: []string{"Accept: application/json"}})
				if answer.Status != want || strings.Contains(string(answer.Body), `"red"`) {
					t.Errorf("%s: GET %s = %d %.200s, want %d", who.name, path, answer.Status, answer.Body, want)
				}
			}
		}
		if diff := cmp.Diff(before, countRows(t, a.server)); diff != "" {
			t.Errorf("something was changed (-before +after):\n%s", diff)
		}
	})
}
