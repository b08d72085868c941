package app_test

import (
	"net/http"

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
