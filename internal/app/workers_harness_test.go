package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// workersTest is one case about the register, in a namespace of its own.
type workersTest struct {
	*apitest.Client
	t         *testing.T
	server    *apptest.Server
	namespace string
}

type workersCase struct {
	name string
	run  func(w *workersTest)
}

// workersCases runs cases one after the other, since they share a clock, on one server for each database.
func workersCases(t *testing.T, cases []workersCase) {
	t.Helper()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				c.run((&workersTest{Client: s.For(t), t: t, server: s}).in(fmt.Sprintf("case-%d", i)))
			})
		}
	})
}

func (w *workersTest) in(namespace string) *workersTest {
	other := *w
	other.Client, other.namespace = w.In(namespace), namespace
	return &other
}

func workersPath(instance string, part ...string) string {
	return "/v1/workers/" + url.PathEscape(instance) + strings.Join(part, "")
}

func workersQuery(value string) string { return url.QueryEscape(value) }

// workersMinute is the liveness of those who register without saying another: no test takes so long by itself.
const workersMinute = time.Minute

// put registers an instance, as the worker "builder" for all lanes unless the members say otherwise.
func (w *workersTest) put(instance, members string) *apitest.Response {
	w.t.Helper()
	return w.Do(http.MethodPut, workersPath(instance), executionJSON(members, `"worker_id":"builder"`, `"lanes":[]`, `"capabilities":[]`,
		fmt.Sprintf(`"liveness_ttl_ms":%d`, workersMinute.Milliseconds())))
}

// register registers an instance that is not registered.
func (w *workersTest) register(instance, members string) oapi.Worker {
	w.t.Helper()
	return answerAs[oapi.Worker](w.put(instance, members).Want(http.StatusCreated))
}

// refresh registers an instance that is registered.
func (w *workersTest) refresh(instance, members string) oapi.Worker {
	w.t.Helper()
	return answerAs[oapi.Worker](w.put(instance, members).Want(http.StatusOK))
}

func (w *workersTest) heartbeat(instance string) oapi.HeartbeatReport {
	w.t.Helper()
	return answerAs[oapi.HeartbeatReport](w.Post(workersPath(instance, "/heartbeat"), nil).Want(http.StatusOK))
}

func (w *workersTest) drain(instance, members string) oapi.Worker {
	w.t.Helper()
	return answerAs[oapi.Worker](w.Post(workersPath(instance, "/drain"), executionJSON(members)).Want(http.StatusOK))
}

func (w *workersTest) remove(instance, query string) *apitest.Response {
	w.t.Helper()
	return w.Do(http.MethodDelete, workersPath(instance, query), nil)
}

// list reads one page.
func (w *workersTest) list(query string) oapi.WorkerList {
	w.t.Helper()
	return answerAs[oapi.WorkerList](w.Get("/v1/workers" + query).Want(http.StatusOK))
}

// lists checks which instances a list has.
func (w *workersTest) lists(query string, want ...string) {
	w.t.Helper()
	got := workersNames(w.list(query))
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		w.t.Errorf("the list %s (-want +got):\n%s", query, diff)
	}
}

func workersNames(list oapi.WorkerList) []string {
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.WorkerInstanceID)
	}
	return names
}

// told checks the events of the case's namespace about workers: type, actor and data.
func (w *workersTest) told(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, e := range answerAs[oapi.EventList](w.Get("/v1/events?topic=worker&limit=500").Want(http.StatusOK)).Items {
		var data any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			w.t.Fatal(err)
		}
		line, err := json.Marshal(data) // with its members in order
		if err != nil {
			w.t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s", e.Type, e.Actor, line))
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// rows is all that is stored of the register, and how much is stored besides.
func (w *workersTest) rows() []string {
	w.t.Helper()
	s := w.server.App.Store()
	if err := s.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	var rows []string
	err := s.Read(w.t.Context(), func(q *store.Queries) error {
		err := q.Select(&rows, `SELECT namespace || ' ' || worker_instance_id || ' ' || worker_id || ' ' || lanes || ' ' || capabilities || ' ' || liveness_ttl_ms || ' ' ||
			registered_at || ' ' || last_heartbeat_at || ' ' || expires_at || ' ' || coalesce(draining_since, 0) FROM workers ORDER BY 1`)
		for _, table := range []string{"events", "idempotency_keys", "executions"} {
			var n int
			if err == nil {
				err = q.Get(&n, "SELECT count(*) FROM "+table)
			}
			rows = append(rows, fmt.Sprint(table, ": ", n))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// refused checks that a call is refused with a code and leaves everything as it is.
func (w *workersTest) refused(code fault.Code, call func() *apitest.Response) *apitest.Response {
	w.t.Helper()
	return unmoved(w.t, w.rows, call).Problem(code)
}

// gone checks that an instance is not registered, whoever asks.
func (w *workersTest) gone(instance string) {
	w.t.Helper()
	for _, call := range []func() *apitest.Response{
		func() *apitest.Response { return w.Post(workersPath(instance, "/heartbeat"), nil) },
		func() *apitest.Response { return w.Post(workersPath(instance, "/drain"), `{"reason":"x"}`) },
		func() *apitest.Response { return w.remove(instance, "") },
	} {
		w.refused(fault.CodeWorkerNotRegistered, call)
	}
}
