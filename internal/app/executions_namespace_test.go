package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_Namespaces: a namespace bounds ids, lists, claims, keys, events and tokens. model.md, "Namespace".
func TestExecutions_Namespaces(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsNamespacesCases)
}

var executionsNamespacesCases = []executionCase{
	{"what is of another namespace is not there", func(x *executionTest) {
		ours, theirs := x.in("ours"), x.in("theirs")
		e := ours.create("")
		c := ours.claim(lasting)
		if e.Namespace != "ours" {
			x.t.Errorf("namespace %s", e.Namespace)
		}
		before := ours.snapshot(e.ID)
		for _, part := range []string{"", "/state", "/result", "/payload", "/context", "/attempts"} {
			if missing := theirs.Get("/v1/executions/" + e.ID.String() + part).Problem(fault.CodeNotFound); missing.Str("resource") != "execution" {
				x.t.Errorf("%s: %s", part, missing.Body)
			}
		}
		theirs.everyCall(c, func(name string, call func() (fault.Code, *apitest.Response)) { // with the right handle
			if code, answer := call(); code != fault.CodeNotFound {
				x.t.Errorf("%s = %q\n%s", name, code, answer.Body)
			}
		})
		theirs.refused(fault.CodeAlreadyExists, func() *apitest.Response { return theirs.Post("/v1/executions", x.sent(`"id":"`+e.ID.String()+`"`)) })
		batch := theirs.Post("/v1/executions/batch", `{"executions":[`+x.sent(`"id":"`+e.ID.String()+`","idempotency_key":"b-`+x.lane+`"`)+`]}`).Want(http.StatusCreated)
		if batch.Str("items.0.problem.code") != string(fault.CodeAlreadyExists) {
			x.t.Errorf("%s", batch.Body)
		}
		theirs.create(`"idempotency_key":"b-` + x.lane + `"`) // what was refused has not taken its key
		if diff := cmp.Diff(before.Records, ours.snapshot(e.ID).Records); diff != "" {
			x.t.Errorf("another namespace changed something (-before +after):\n%s", diff)
		}
	}},
	{"lists, claims and events are those of the namespace", func(x *executionTest) {
		made := map[string][]uuid.UUID{}
		names := []string{"a-" + x.lane, "b-" + x.lane}
		for i := range 6 {
			name := names[i%2]
			made[name] = append(made[name], x.in(name).create(`"kind":"k","tags":{"cairn.instance_id":"i"}`).ID)
		}
		for _, name := range names {
			y := x.in(name)
			for _, path := range []string{"", "?lane=" + x.lane, "?kind=k", "?tag=cairn.instance_id:i", "?public_state=waiting", "?limit=3"} {
				var got []uuid.UUID
				for _, e := range answerAs[oapi.ExecutionList](y.Get("/v1/executions" + path).Want(http.StatusOK)).Items {
					got = append(got, e.ID)
				}
				slices.Reverse(got)
				if diff := cmp.Diff(made[name], got); diff != "" {
					x.t.Errorf("%s in %s (-want +got):\n%s", path, name, diff)
				}
			}
			for _, query := range []string{"", "?topic=execution", "?instance_tag=i"} {
				seen := map[uuid.UUID]bool{}
				for _, e := range answerAs[oapi.EventList](y.Get("/v1/events" + query).Want(http.StatusOK)).Items {
					if e.Namespace != name {
						x.t.Errorf("events%s of %s has one of %s", query, name, e.Namespace)
					}
					seen[*e.ExecutionID] = true
				}
				if len(seen) != 3 {
					x.t.Errorf("events%s of %s tell of %d executions", query, name, len(seen))
				}
			}
			if events := answerAs[oapi.EventList](y.Get("/v1/events?execution_id=" + made[names[0]][0].String()).Want(http.StatusOK)).Items; (len(events) == 1) != (name == names[0]) {
				x.t.Errorf("%d events in %s", len(events), name)
			}
		}
		var got []uuid.UUID
		for _, c := range x.in(names[0]).claims(`"max":100`) {
			got = append(got, c.Execution.ID)
		}
		if diff := cmp.Diff(made[names[0]], got); diff != "" {
			x.t.Errorf("claims (-want +got):\n%s", diff)
		}
		x.in(names[0]).none(`"max":100`)
		x.none(`"max":100`)
		if got := x.in(names[1]).claims(`"max":2`); len(got) != 2 || got[0].Execution.Namespace != names[1] {
			x.t.Errorf("%+v", got)
		}
		if got := answerAs[oapi.ExecutionList](x.in(names[1]).Get("/v1/executions?worker=w1").Want(http.StatusOK)).Items; len(got) != 2 {
			x.t.Errorf("w1 has %d in %s", len(got), names[1])
		}
	}},
	{"an idempotency_key is one of the namespace", func(x *executionTest) {
		key := `"idempotency_key":"n-` + x.lane + `"`
		a, b := x.in("a-"+x.lane).create(key), x.in("b-"+x.lane).create(key)
		if a.ID == b.ID {
			x.t.Error("two namespaces share an execution")
		}
		if again := x.in("a-"+x.lane).Post("/v1/executions", x.sent(key)).Want(http.StatusOK); again.Str("id") != a.ID.String() {
			x.t.Errorf("%s", again.Body)
		}
	}},
	{"a namespace is named by a header or by the query, in one way", func(x *executionTest) {
		e := x.in("q-" + x.lane).create("")
		path := "/v1/executions/" + e.ID.String()
		x.Get(path + "?namespace=q-" + x.lane).Want(http.StatusOK)
		x.Get(path+"?namespace=q-"+x.lane, "Flowapi-Namespace: q-"+x.lane).Want(http.StatusOK)
		x.Get(path+"?namespace=other", "Flowapi-Namespace: q-"+x.lane).Problem(fault.CodeInvalidParameter)
		x.Get(path).Problem(fault.CodeNotFound)
		for _, name := range []string{"-x", "a b", "é"} {
			x.refused(fault.CodeInvalidParameter, func() *apitest.Response { return x.in(name).Post("/v1/executions", x.sent("")) })
		}
	}},
	{"tokens: whose, and what for (the owner cases)", func(x *executionTest) {
		token := func(role, namespace string) *executionTest {
			x.t.Helper()
			answer := x.Post("/v1/admin/tokens", fmt.Sprintf(`{"name":"%s-%s","role":"%s","namespace":"%s"}`, role, namespace, role, namespace)).Want(http.StatusCreated)
			other := *x
			other.Client = x.As(answer.Str("token"))
			return &other
		}
		home, away := "home-"+x.lane, "away-"+x.lane
		operator, worker, viewer, stranger := token("operator", home), token("worker", home), token("viewer", home), token("operator", away)
		anywhere := token("operator", "*")
		e := operator.create("")
		if e.Namespace != home {
			x.t.Errorf("namespace %s", e.Namespace)
		}
		path := "/v1/executions/" + e.ID.String()
		stranger.Get(path).Problem(fault.CodeNotFound)
		stranger.Get(path, "Flowapi-Namespace: "+home).Problem(fault.CodeForbidden)
		anywhere.Get(path).Problem(fault.CodeNotFound)
		anywhere.Get(path, "Flowapi-Namespace: "+home).Want(http.StatusOK)
		viewer.Get(path).Want(http.StatusOK)
		c := worker.claim(lasting)
		if actor := operator.events(e.ID)[1].Actor; actor != "token:worker-"+home {
			x.t.Errorf("claimed by %s", actor)
		}
		for _, refusal := range []struct {
			who    *executionTest
			call   func(y *executionTest) *apitest.Response
			needed string
		}{
			{viewer, func(y *executionTest) *apitest.Response { return y.Post("/v1/executions", y.sent("")) }, "operator"},
			{worker, func(y *executionTest) *apitest.Response { return y.Post("/v1/executions", y.sent("")) }, "operator"},
			{worker, func(y *executionTest) *apitest.Response {
				return y.Post("/v1/executions/batch", `{"executions":[`+y.sent("")+`]}`)
			}, "operator"},
			{viewer, func(y *executionTest) *apitest.Response { return y.ask("") }, "worker"},
			{viewer, func(y *executionTest) *apitest.Response { return y.report(c, "complete", "") }, "worker"},
			{viewer, func(y *executionTest) *apitest.Response {
				return y.Post("/v1/completions", `{"items":[`+completionItem(c, "")+`]}`)
			}, "worker"},
		} {
			before := operator.Get(path).Want(http.StatusOK)
			if answer := refusal.call(refusal.who).Problem(fault.CodeForbidden); answer.Str("required_role") != refusal.needed {
				x.t.Errorf("%s", answer.Body)
			}
			if after := operator.Get(path).Want(http.StatusOK); string(before.Body) != string(after.Body) {
				x.t.Errorf("%s\n%s", before.Body, after.Body)
			}
		}
		stranger.report(c, "complete", "").Problem(fault.CodeNotFound)
		worker.report(c, "complete", "").Want(http.StatusOK)

		x.Post("/v1/admin/tokens", `{"name":"root","role":"admin","namespace":"*"}`).Want(http.StatusCreated) // nobody is anonymous any more
		for _, y := range []*apitest.Client{x.Client, x.As("fa_nonsense"), x.With("Authorization: Basic eDp5")} {
			y.Get(path).Problem(fault.CodeUnauthenticated)
			y.Post("/v1/executions", x.sent("")).Problem(fault.CodeUnauthenticated)
			y.Post("/v1/claims", `{"lane":"x","worker_id":"w"}`).Problem(fault.CodeUnauthenticated)
			y.Post(path+"/complete", `{"handle":"`+c.Handle+`"}`).Problem(fault.CodeUnauthenticated)
		}
		operator.Get(path).Want(http.StatusOK)
	}},
}
