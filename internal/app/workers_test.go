package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestWorkers: who lives, and who drains. executions.md 2.20, 5/35, 6.8/112.
func TestWorkers(t *testing.T) {
	t.Parallel()
	workersCases(t, workersLifeCases)
}

const builderB1 = `"worker_id":"builder","worker_instance_id":"b-1"`

var workersLifeCases = []workersCase{
	{"a worker registers, and again: the same row, with what it says now (6.8/112)", func(w *workersTest) {
		const sent = `"lanes":["ci","cd","ci"],"capabilities":["linux","go","go"],"liveness_ttl_ms":30000`
		began := w.server.Clock.Now()
		first := w.register("b-1", sent)
		want := oapi.Worker{WorkerInstanceID: "b-1", WorkerID: "builder", Namespace: w.namespace, Lanes: []string{"cd", "ci"}, Capabilities: []string{"go", "linux"},
			LivenessTTLMs: 30000, RegisteredAt: first.RegisteredAt, LastHeartbeatAt: first.RegisteredAt, ExpiresAt: first.ExpiresAt}
		if diff := cmp.Diff(want, first, cmp.Comparer(oapi.Time.Equal)); diff != "" {
			w.t.Errorf("registered (-want +got):\n%s", diff)
		}
		if at := first.RegisteredAt.Time(); at.Before(began) || at.After(w.server.Clock.Now()) || first.ExpiresAt.Time().Sub(at) != 30*time.Second {
			w.t.Errorf("registered at %s until %s", first.RegisteredAt, first.ExpiresAt)
		}
		w.server.Advance(10 * time.Second)
		second := w.refresh("b-1", sent)
		if !second.RegisteredAt.Equal(first.RegisteredAt) || second.LastHeartbeatAt.Time().Sub(first.LastHeartbeatAt.Time()) < 10*time.Second ||
			second.ExpiresAt.Time().Sub(second.LastHeartbeatAt.Time()) != 30*time.Second {
			w.t.Errorf("%+v became %+v", first, second)
		}
		w.told(registeredB1(`"cd","ci"`, `"go","linux"`, 30000)) // a refresh that says nothing new is a heartbeat
		third := w.refresh("b-1", `"lanes":["ci"],"liveness_ttl_ms":100000`)
		if !third.RegisteredAt.Equal(first.RegisteredAt) || third.ExpiresAt.Time().Sub(third.LastHeartbeatAt.Time()) != 100*time.Second || len(third.Capabilities) != 0 {
			w.t.Errorf("%+v", third)
		}
		w.told(registeredB1(`"cd","ci"`, `"go","linux"`, 30000), registeredB1(`"ci"`, ``, 100000))
		if diff := cmp.Diff([]oapi.Worker{third}, w.list("").Items, cmp.Comparer(oapi.Time.Equal)); diff != "" {
			w.t.Errorf("the list has another one (-answered +listed):\n%s", diff)
		}
	}},
	{"an instance belongs to one worker while it lives", func(w *workersTest) {
		w.register("b-1", "")
		answer := w.refused(fault.CodeWorkerReassigned, func() *apitest.Response { return w.put("b-1", `"worker_id":"other"`) })
		if answer.Str("worker_id") != "builder" {
			w.t.Errorf("%s", answer.Body)
		}
		w.in(w.namespace+"-b").register("b-1", `"worker_id":"other"`)
		w.remove("b-1", "").Want(http.StatusNoContent)
		if got := w.register("b-1", `"worker_id":"other"`); got.WorkerID != "other" {
			w.t.Errorf("%+v", got)
		}
		w.server.Clock.Advance(workersMinute) // nobody has swept yet
		if got := w.register("b-1", ""); got.WorkerID != "builder" {
			w.t.Errorf("%+v", got)
		}
	}},
	{"a heartbeat prolongs by the registered ttl, and tells nothing", func(w *workersTest) {
		w.register("b-1", "")
		for range 3 {
			w.server.Advance(workersMinute - 10*time.Second)
			before := w.server.Clock.Now()
			got := w.heartbeat("b-1")
			if left := got.ExpiresAt.Time().Sub(before); left < workersMinute || left > workersMinute+5*time.Second || len(got.Directives) != 0 {
				w.t.Errorf("%+v, %s from now", got, left)
			}
			if listed := w.list("").Items[0]; !listed.ExpiresAt.Equal(got.ExpiresAt) || listed.ExpiresAt.Time().Sub(listed.LastHeartbeatAt.Time()) != workersMinute {
				w.t.Errorf("%+v", listed)
			}
		}
		w.told(registeredB1("", "", 60000))
	}},
	{"a heartbeat at the expiry is too late, swept or not", func(w *workersTest) {
		w.register("b-1", "")
		w.register("b-2", "")
		w.server.Clock.Advance(workersMinute) // since the time goes on, this is when b-1 expires, or a little later
		w.Post(workersPath("b-1", "/heartbeat"), `{}`).Problem(fault.CodeWorkerNotRegistered)
		w.lists("")
		w.server.Advance(0)
		w.gone("b-1")
		w.gone("b-2")
	}},
	{"who lapses is swept, once, and may come again", func(w *workersTest) {
		first := w.register("b-1", "")
		w.drain("b-1", "")
		w.server.Advance(workersMinute)
		lost := `worker.heartbeat_lost engine {` + builderB1 + `}`
		want := []string{registeredB1("", "", 60000), `worker.drained local {` + builderB1 + `}`, lost}
		w.told(want...)
		w.lists("")
		for _, row := range w.rows() {
			if strings.HasPrefix(row, w.namespace+" ") {
				w.t.Errorf("still there: %s", row)
			}
		}
		w.server.Advance(workersMinute)
		again := w.register("b-1", "")
		if !again.RegisteredAt.Time().After(first.RegisteredAt.Time()) || again.DrainingSince != nil {
			w.t.Errorf("%+v", again)
		}
		w.told(append(want, registeredB1("", "", 60000))...)
	}},
	{"who registers again before the sweep has come is told to have been lost, too", func(w *workersTest) {
		w.register("b-1", "")
		w.drain("b-1", "")
		w.server.Clock.Advance(workersMinute)
		if again := w.register("b-1", ""); again.DrainingSince != nil {
			w.t.Errorf("%+v", again)
		}
		w.server.Advance(0)
		w.told(registeredB1("", "", 60000), `worker.drained local {`+builderB1+`}`, `worker.heartbeat_lost engine {`+builderB1+`}`, registeredB1("", "", 60000))
		w.lists("", "b-1")
	}},
	{"the sweep comes by itself when the first heartbeat lapses", func(w *workersTest) {
		stream := w.Stream("/v1/events/stream?type=worker.heartbeat_lost")
		w.register("b-2", "")
		w.register("b-1", `"liveness_ttl_ms":100`)
		if e := stream.Next(); !strings.Contains(e.Data, `"worker_instance_id":"b-1"`) {
			w.t.Errorf("got %+v", e)
		}
		w.lists("", "b-2")
	}},
	{"the sweep takes any number, and one that cannot be read as well", func(w *workersTest) {
		const many = 600 // more than two batches
		err := store.Do(w.t.Context(), w.server.App.Store(), func(tx *store.Tx) error {
			for i := range many {
				lanes := `[]`
				if i%100 == 0 {
					lanes = `[`
				}
				if err := tx.ExecOne(`INSERT INTO workers (namespace, worker_instance_id, worker_id, lanes, capabilities, liveness_ttl_ms, registered_at, last_heartbeat_at, expires_at)
					VALUES (?, ?, 'w', ?, '', 60000, 0, 0, ?)`, w.namespace, fmt.Sprint(i), lanes, store.Millis(tx.Now().Add(workersMinute))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.refused(fault.CodeCorruptRecord, func() *apitest.Response { return w.Get("/v1/workers") })
		w.refused(fault.CodeCorruptRecord, func() *apitest.Response { return w.Post(workersPath("100", "/heartbeat"), nil) })
		w.register("b-1", `"liveness_ttl_ms":3600000`)
		w.server.Advance(workersMinute)
		w.lists("", "b-1")
		lost := 0
		for after, more := int64(0), true; more; {
			p := answerAs[oapi.EventList](w.Get(fmt.Sprintf("/v1/events?type=worker.heartbeat_lost&limit=500&after=%d", after)).Want(http.StatusOK))
			lost, after, more = lost+len(p.Items), p.NextCursor, p.More
		}
		if lost != many {
			w.t.Errorf("%d of %d are told to be lost", lost, many)
		}
	}},
	{"who drains is told so until it is off the register", func(w *workersTest) {
		w.register("b-1", "")
		w.register("b-2", "")
		began := w.server.Clock.Now()
		got := w.drain("b-1", `"reason":"kernel update"`)
		if got.DrainingSince == nil || got.DrainingSince.Time().Before(began) || got.DrainingSince.Time().After(w.server.Clock.Now()) {
			w.t.Fatalf("%+v", got)
		}
		since := *got.DrainingSince
		draining := func(how string, got oapi.Worker) {
			w.t.Helper()
			if got.DrainingSince == nil || !got.DrainingSince.Equal(since) {
				w.t.Errorf("%s: draining since %v, want %s", how, got.DrainingSince, since)
			}
		}
		w.server.Advance(time.Second)
		before := w.rows()
		draining("again", w.drain("b-1", `"reason":"another"`))
		draining("again without a body", answerAs[oapi.Worker](w.Post(workersPath("b-1", "/drain"), nil).Want(http.StatusOK)))
		if diff := cmp.Diff(before, w.rows()); diff != "" {
			w.t.Errorf("drained again (-before +after):\n%s", diff)
		}
		draining("refreshed", w.refresh("b-1", ""))
		draining("changed", w.refresh("b-1", `"lanes":["ci"]`))
		if got := w.heartbeat("b-1").Directives; !cmp.Equal(got, oapi.Directives{"drain"}) {
			w.t.Errorf("directives %v", got)
		}
		if got := w.heartbeat("b-2").Directives; len(got) != 0 {
			w.t.Errorf("the directives of another: %v", got)
		}
		draining("listed", w.list("").Items[0])
		w.remove("b-1", "?reason=dead+at+last").Want(http.StatusNoContent)
		if again := w.register("b-1", ""); again.DrainingSince != nil {
			w.t.Errorf("%+v", again)
		}
		w.told(registeredB1("", "", 60000), strings.ReplaceAll(registeredB1("", "", 60000), "b-1", "b-2"), `worker.drained local {"reason":"kernel update",`+builderB1+`}`,
			registeredB1(`"ci"`, "", 60000), `worker.removed local {"reason":"dead at last",`+builderB1+`}`, registeredB1("", "", 60000))
	}},
	{"a drain ends the claims that wait as the instance, and no others", func(w *workersTest) {
		w.register("b/1", "")
		w.register("b-2", "")
		wait := func(instance string) <-chan liveAnswer {
			return live{w.server}.ask(w.t, http.MethodPost, "/v1/claims", `{"lane":"idle","worker_id":"builder","worker_instance_id":"`+instance+`"}`,
				"Prefer: wait=30", "Flowapi-Namespace: "+w.namespace)
		}
		first, second, other := wait("b/1"), wait("b/1"), wait("b-2")
		w.drain("b/1", "")
		for _, answers := range []<-chan liveAnswer{first, second} { // one that has come too late is answered the same
			if got := awaited(w.t, answers); got.status != http.StatusOK || strings.TrimSpace(string(got.body)) != `{"claims":[],"directives":["drain"]}` {
				w.t.Errorf("%d %s", got.status, got.body)
			}
		}
		x := &executionTest{Client: w.Client, t: w.t, server: w.server, lane: "idle"}
		select {
		case got := <-other:
			w.t.Fatalf("another instance is answered %d %s", got.status, got.body)
		default:
		}
		e := x.create("")
		if got := awaited(w.t, other); !strings.Contains(string(got.body), e.ID.String()) {
			w.t.Errorf("%d %s", got.status, got.body)
		}
	}},
	{"who is off the register keeps what it holds", func(w *workersTest) {
		w.register("b-1", "")
		x := &executionTest{Client: w.Client, t: w.t, server: w.server, lane: "ci"}
		x.create("")
		c := x.claim(`"worker_id":"builder","worker_instance_id":"b-1"`)
		w.remove("b-1", "").Want(http.StatusNoContent)
		w.gone("b-1")
		w.lists("")
		x.stands(c.Execution.ID, atActive)
		x.report(c, "complete", "").Want(http.StatusOK)
		w.told(registeredB1("", "", 60000), `worker.removed local {`+builderB1+`}`)
	}},
	{"nobody is registered who has not registered", func(w *workersTest) {
		w.gone("b-1")
		w.in(w.namespace+"-b").register("b-1", "")
		w.gone("b-1")
	}},
	{"the same names in two namespaces are two workers", func(w *workersTest) {
		other := w.in(w.namespace + "-b")
		w.register("b-1", `"lanes":["here"]`)
		other.register("b-1", `"lanes":["there"],"worker_id":"other"`)
		w.drain("b-1", "")
		if got := other.list("").Items; len(got) != 1 || got[0].Namespace != other.namespace || got[0].WorkerID != "other" || got[0].DrainingSince != nil {
			w.t.Errorf("%+v", got)
		}
		w.remove("b-1", "").Want(http.StatusNoContent)
		other.heartbeat("b-1")
		w.gone("b-1")
		other.told(`worker.registered local {"capabilities":[],"lanes":["there"],"liveness_ttl_ms":60000,"worker_id":"other","worker_instance_id":"b-1"}`)
	}},
	{"any name without white space is a name", func(w *workersTest) {
		names := []string{"a/b", "/", "50%", "%2F", "%25", "a%zz", "grün", "建造者-1", `a"b\c`, "?a=b&c#d;e", "+", ":", "a,b", "~", "'", "{x}", "heartbeat", "a/drain",
			strings.Repeat("a", 256), strings.Repeat("é", 256)}
		for _, name := range names {
			if got := w.register(name, `"worker_id":"w/%é"`); got.WorkerInstanceID != name {
				w.t.Errorf("%q is registered as %q", name, got.WorkerInstanceID)
			}
			w.heartbeat(name)
			w.refresh(name, `"worker_id":"w/%é"`)
		}
		if got := w.list("").Items; len(got) != len(names) {
			w.t.Errorf("%d of %d names", len(got), len(names))
		}
		for _, name := range names {
			w.drain(name, "")
			w.remove(name, "").Want(http.StatusNoContent)
			w.gone(name)
		}
		w.lists("")
	}},
}

// registeredB1 is the event of the registration of b-1.
func registeredB1(lanes, capabilities string, ttl int) string {
	return fmt.Sprintf(`worker.registered local {"capabilities":[%s],"lanes":[%s],"liveness_ttl_ms":%d,%s}`, capabilities, lanes, ttl, builderB1)
}

// TestWorkers_Refusals: what is not said well changes nothing.
func TestWorkers_Refusals(t *testing.T) {
	t.Parallel()
	workersCases(t, workersRefusalsCases)
}

var workersBadBodies = map[string]struct {
	members string
	code    fault.Code
	pointer string
}{
	"no worker":               {`"worker_id":null`, fault.CodeValidationFailed, "/worker_id"},
	"a worker with a space":   {`"worker_id":"a b"`, fault.CodeValidationFailed, "/worker_id"},
	"a worker without a name": {`"worker_id":""`, fault.CodeValidationFailed, "/worker_id"},
	"a lane without a name":   {`"lanes":["a",""]`, fault.CodeValidationFailed, "/lanes/1"},
	"a lane that is no ASCII": {`"lanes":["é"]`, fault.CodeValidationFailed, "/lanes/0"},
	"33 lanes":                {`"lanes":["l"` + strings.Repeat(`,"l"`, 32) + `]`, fault.CodeValidationFailed, "/lanes"},
	"a ttl too short":         {`"liveness_ttl_ms":99`, fault.CodeValidationFailed, "/liveness_ttl_ms"},
	"a ttl too long":          {`"liveness_ttl_ms":86400001`, fault.CodeValidationFailed, "/liveness_ttl_ms"},
	"something else":          {`"state":"draining"`, fault.CodeValidationFailed, "/state"},
	"an empty capability":     {`"capabilities":["go",""]`, fault.CodeInvalidCapabilities, "/capabilities"},
	"a comma":                 {`"capabilities":["go,linux"]`, fault.CodeInvalidCapabilities, "/capabilities"},
	"white space":             {`"capabilities":["go 1"]`, fault.CodeInvalidCapabilities, "/capabilities"},
	"257 capabilities":        {`"capabilities":[` + capabilityTokens(257) + `]`, fault.CodeInvalidCapabilities, "/capabilities"},
	"4097 bytes":              {`"capabilities":["` + strings.Repeat("x", 4097) + `"]`, fault.CodeInvalidCapabilities, "/capabilities"},
}

var workersRefusalsCases = []workersCase{
	{"a registration", func(w *workersTest) {
		w.register("b-1", `"capabilities":["go"]`)
		for name, c := range workersBadBodies {
			for _, instance := range []string{"b-1", "b-2"} {
				answer := w.refused(c.code, func() *apitest.Response { return w.put(instance, c.members) })
				if f := answer.Fields(); len(f) == 0 || f[0].Pointer != c.pointer || f[len(f)-1].Pointer != c.pointer || f[0].In != fault.InBody {
					w.t.Errorf("%s: %s", name, answer.Body)
				}
			}
		}
		for _, missing := range []string{`{}`, `{"worker_id":"builder"}`, `{"worker_id":"builder","lanes":[],"capabilities":[]}`} {
			w.refused(fault.CodeValidationFailed, func() *apitest.Response { return w.Do(http.MethodPut, workersPath("b-1"), missing) })
		}
		w.register("b-2", `"liveness_ttl_ms":100,"capabilities":[`+capabilityTokens(256)+`]`) // the bounds are inside
		w.register("b-3", `"liveness_ttl_ms":86400000,"capabilities":["`+strings.Repeat("x", 4096)+`"]`)
		w.server.Advance(time.Second) // b-2 goes now, and not while another case looks
	}},
	{"a name", func(w *workersTest) {
		for _, name := range []string{" ", "a b", "a\tb", "a\x7f", "\x01", strings.Repeat("a", 257)} {
			code := fault.CodeInvalidParameter
			if len(name) > 256 {
				code = fault.CodeValidationFailed
			}
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return w.put(name, "") }, func() *apitest.Response { return w.remove(name, "") },
				func() *apitest.Response { return w.Post(workersPath(name, "/heartbeat"), nil) }, func() *apitest.Response { return w.Post(workersPath(name, "/drain"), nil) },
			} {
				if f := w.refused(code, call).Fields(); len(f) != 1 || f[0].Pointer != "worker_instance_id" || f[0].In != fault.InPath {
					w.t.Errorf("%q: %+v", name, f)
				}
			}
		}
	}},
	{"a reason, a body, a filter, a cursor", func(w *workersTest) {
		w.register("b-1", "")
		for _, query := range []string{"?reason=", "?reason=a%0Ab", "?reason=" + strings.Repeat("a", 257)} {
			before := w.rows()
			if answer := w.remove("b-1", query); answer.Status != http.StatusBadRequest && answer.Status != http.StatusUnprocessableEntity {
				w.t.Errorf("%s = %d", query, answer.Status)
			}
			if diff := cmp.Diff(before, w.rows()); diff != "" {
				w.t.Errorf("%s (-before +after):\n%s", query, diff)
			}
		}
		w.refused(fault.CodeValidationFailed, func() *apitest.Response {
			return w.Post(workersPath("b-1", "/drain"), `{"reason":"`+strings.Repeat("a", 257)+`"}`)
		})
		w.refused(fault.CodeValidationFailed, func() *apitest.Response { return w.Post(workersPath("b-1", "/drain"), `{"grace_ms":1}`) })
		w.refused(fault.CodeValidationFailed, func() *apitest.Response { return w.Post(workersPath("b-1", "/heartbeat"), `{"ttl":1}`) })
		for query, code := range map[string]fault.Code{
			"?limit=0": fault.CodeValidationFailed, "?limit=501": fault.CodeValidationFailed, "?worker_id=a%20b": fault.CodeInvalidParameter, "?lane=%C3%A9": fault.CodeInvalidParameter,
			"?cursor=x": fault.CodeInvalidCursor, "?cursor=AQ": fault.CodeInvalidCursor, "?cursor=Ym9i": fault.CodeInvalidCursor, "?cursor=Av8": fault.CodeInvalidCursor,
		} {
			answer := w.refused(code, func() *apitest.Response { return w.Get("/v1/workers" + query) })
			if f := answer.Fields(); len(f) != 1 || f[0].In != fault.InQuery || !strings.HasPrefix(query, "?"+f[0].Pointer+"=") {
				w.t.Errorf("%s: %s", query, answer.Body)
			}
		}
	}},
}

// TestWorkers_Idempotency: a repeated POST has one effect and one answer; a refusal is not kept.
func TestWorkers_Idempotency(t *testing.T) {
	t.Parallel()
	workersCases(t, []workersCase{
		{"heartbeat", func(w *workersTest) {
			post := func(key string) *apitest.Response {
				return w.Post(workersPath("b-1", "/heartbeat"), `{}`, "Idempotency-Key: "+key)
			}
			w.refused(fault.CodeWorkerNotRegistered, func() *apitest.Response { return post("k-1") })
			w.register("b-1", "")
			first := post("k-1").Want(http.StatusOK)
			w.server.Advance(time.Second)
			before := w.rows()
			again := post("k-1").Want(http.StatusOK)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.Header.Get("Idempotent-Replay") != "" {
				w.t.Errorf("%s, and again %v %s", first.Body, again.Header, again.Body)
			}
			if diff := cmp.Diff(before, w.rows()); diff != "" {
				w.t.Errorf("a repeated heartbeat (-before +after):\n%s", diff)
			}
			if other := post("k-2").Want(http.StatusOK); string(other.Body) == string(first.Body) {
				w.t.Errorf("another heartbeat has the same answer %s", other.Body)
			}
		}},
		{"drain", func(w *workersTest) {
			post := func(body string) *apitest.Response {
				return w.Post(workersPath("b-1", "/drain"), body, "Idempotency-Key: k-1")
			}
			w.refused(fault.CodeWorkerNotRegistered, func() *apitest.Response { return post(`{}`) })
			w.register("b-1", "")
			first := post(`{}`).Want(http.StatusOK)
			w.remove("b-1", "").Want(http.StatusNoContent)
			w.register("b-1", "")
			before := w.rows()
			again := post(`{}`).Want(http.StatusOK)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				w.t.Errorf("%s, and again %v %s", first.Body, again.Header, again.Body)
			}
			post(`{"reason":"x"}`).Problem(fault.CodeIdempotencyMismatch)
			if diff := cmp.Diff(before, w.rows()); diff != "" {
				w.t.Errorf("a repeated drain drains whoever has come since (-before +after):\n%s", diff)
			}
		}},
	})
}

// TestWorkers_Concurrent: of those who register an instance at the same time one is the first, also over one that has lapsed.
func TestWorkers_Concurrent(t *testing.T) {
	t.Parallel()
	const rounds, many = 10, 8
	workersCases(t, []workersCase{
		{"of one worker, one is new and all others refresh", func(w *workersTest) {
			for round := range rounds {
				if round%2 == 1 {
					w.register(fmt.Sprint(round), "")
				}
			}
			w.server.Clock.Advance(workersMinute)
			for round := range rounds {
				got := w.together(many, func(int) (string, string, string) {
					return http.MethodPut, workersPath(fmt.Sprint(round)), `{"worker_id":"builder","lanes":[],"capabilities":[],"liveness_ttl_ms":600000}`
				})
				if diff := cmp.Diff(map[int]int{http.StatusCreated: 1, http.StatusOK: many - 1}, got); diff != "" {
					w.t.Errorf("round %d (-want +got):\n%s", round, diff)
				}
			}
			w.server.Advance(0)
			if got := answerAs[oapi.EventList](w.Get("/v1/events?type=worker.registered&limit=500").Want(http.StatusOK)).Items; len(got) != rounds+rounds/2 {
				w.t.Errorf("%d events of %d registrations", len(got), rounds+rounds/2)
			}
			if got := answerAs[oapi.EventList](w.Get("/v1/events?type=worker.heartbeat_lost&limit=500").Want(http.StatusOK)).Items; len(got) != rounds/2 {
				w.t.Errorf("%d of %d are told to be lost", len(got), rounds/2)
			}
		}},
		{"of several workers, one gets the instance", func(w *workersTest) {
			for round := range rounds {
				got := w.together(many, func(i int) (string, string, string) {
					return http.MethodPut, workersPath(fmt.Sprint(round)), fmt.Sprintf(`{"worker_id":"w-%d","lanes":[],"capabilities":[],"liveness_ttl_ms":600000}`, i)
				})
				if diff := cmp.Diff(map[int]int{http.StatusCreated: 1, http.StatusConflict: many - 1}, got); diff != "" {
					w.t.Errorf("round %d (-want +got):\n%s", round, diff)
				}
			}
		}},
		{"it is drained, and taken off, once", func(w *workersTest) {
			for round := range rounds {
				name := fmt.Sprint(round)
				w.register(name, "")
				if diff := cmp.Diff(map[int]int{http.StatusOK: many}, w.together(many, func(int) (string, string, string) {
					return http.MethodPost, workersPath(name, "/drain"), ""
				})); diff != "" {
					w.t.Errorf("drain (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(map[int]int{http.StatusNoContent: 1, http.StatusConflict: many - 1}, w.together(many, func(int) (string, string, string) {
					return http.MethodDelete, workersPath(name), ""
				})); diff != "" {
					w.t.Errorf("remove (-want +got):\n%s", diff)
				}
			}
			for _, eventType := range []string{"worker.registered", "worker.drained", "worker.removed"} {
				if got := answerAs[oapi.EventList](w.Get("/v1/events?limit=500&type=" + eventType).Want(http.StatusOK)).Items; len(got) != rounds {
					w.t.Errorf("%d events %s, want %d", len(got), eventType, rounds)
				}
			}
		}},
	})
}

// together sends n requests at once and counts the answers by status.
func (w *workersTest) together(n int, request func(i int) (method, path, body string)) map[int]int {
	w.t.Helper()
	statuses := make([]int, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		method, path, body := request(i)
		all.Go(func() {
			statuses[i], _, _, errs[i] = live{w.server}.send(w.t.Context(), method, path, body, "Flowapi-Namespace: "+w.namespace)
		})
	}
	all.Wait()
	count := map[int]int{}
	for i := range n {
		if errs[i] != nil {
			w.t.Fatal(errs[i])
		}
		count[statuses[i]]++
	}
	return count
}

// TestWorkers_List: whom a list has, and in which order.
func TestWorkers_List(t *testing.T) {
	t.Parallel()
	workersCases(t, workersListCases)
}

var workersListCases = []workersCase{
	{"by instance, byte by byte, in pages", func(w *workersTest) {
		sorted := []string{"%", "-", "A", "B-1", "Z", "_", "a", "a-1", "a/1", "a1", "b", "ba", "z", "é", "日"}
		for i := range sorted {
			w.register(sorted[(i*7)%len(sorted)], "")
		}
		w.lists("", sorted...)
		for _, limit := range []int{1, 2, 7, 14, 15, 500} {
			got, pages := []string{}, 0
			for target := fmt.Sprintf("/v1/workers?limit=%d&worker_id=builder", limit); target != ""; pages++ {
				answer := w.Get(target).Want(http.StatusOK)
				list := answerAs[oapi.WorkerList](answer)
				got = append(got, workersNames(list)...)
				target = liveLink(answer.Header.Get("Link"))
				if (list.NextCursor == nil) != (target == "") || len(list.Items) > limit {
					w.t.Fatalf("%d items, next %v, link %q", len(list.Items), list.NextCursor, target)
				}
			}
			if diff := cmp.Diff(sorted, got); diff != "" || pages != (len(sorted)+limit-1)/limit {
				w.t.Errorf("limit %d, %d pages (-want +got):\n%s", limit, pages, diff)
			}
		}
		next := *w.list("?limit=3").NextCursor
		w.remove("A", "").Want(http.StatusNoContent) // the list goes on behind a row that has gone
		w.lists("?limit=2&cursor="+next, "B-1", "Z")
		w.in(w.namespace + "-b").lists("?cursor=" + next)
	}},
	{"the longest names fit into a cursor", func(w *workersTest) {
		names := []string{strings.Repeat("\U0001F41D", 255) + "a", strings.Repeat("\U0001F41D", 255) + "b"}
		for _, name := range names {
			w.register(name, "")
		}
		first := w.list("?limit=1")
		if diff := cmp.Diff(names[:1], workersNames(first)); diff != "" {
			w.t.Errorf("(-want +got):\n%s", diff)
		}
		w.lists("?limit=1&cursor="+*first.NextCursor, names[1])
	}},
	{"of a worker, of a lane", func(w *workersTest) {
		w.register("all", "")
		w.register("ci", `"lanes":["ci"]`)
		w.register("both", `"lanes":["ci","cd"],"worker_id":"other"`)
		w.lists("?worker_id=builder", "all", "ci")
		w.lists("?worker_id=other", "both")
		w.lists("?worker_id=Builder")
		w.lists("?lane=ci", "all", "both", "ci") // who names no lane serves every one
		w.lists("?lane=cd", "all", "both")
		w.lists("?lane=c", "all")
		w.lists("?lane=CI", "all")
		w.lists("?lane=ci&worker_id=other", "both")
		w.lists("?lane=cd&worker_id=builder", "all")
		w.refresh("all", `"lanes":["cd"]`)
		w.lists("?lane=ci", "both", "ci")
	}},
	{"of a lane whose name looks like JSON", func(w *workersTest) {
		names := []string{`,`, `"`, `\`, `","`, `a,`, `[]`, `%`, `'`, `\u0061`, `<&>`, ` `}
		for i, lane := range names {
			w.register(fmt.Sprintf("%02d", i), fmt.Sprintf(`"lanes":[%q,"b"]`, lane))
		}
		w.register("ab", `"lanes":["a","b"]`)
		for i, lane := range names {
			w.lists("?lane="+workersQuery(lane), fmt.Sprintf("%02d", i))
		}
		w.lists("?lane=a", "ab")
	}},
	{"of those who live", func(w *workersTest) {
		w.register("a", "")
		w.register("b", `"liveness_ttl_ms":3600000`)
		w.register("c", "")
		w.server.Advance(30 * time.Second)
		w.heartbeat("c")
		w.lists("", "a", "b", "c")
		w.server.Clock.Advance(30 * time.Second) // nobody has swept yet
		w.lists("", "b", "c")
		w.server.Advance(30 * time.Second)
		w.lists("", "b")
	}},
}
