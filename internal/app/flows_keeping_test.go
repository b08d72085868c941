package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// flowDeleteCases: DELETE /v1/flows/{flow_id}.
func flowDeleteCases() []flowCase {
	return []flowCase{
		{"it takes steps and members along, and leaves the events", func(x *flowTest) {
			w := x.workers("delete")
			f := x.running("")
			member := w.create(of(f.ID))
			x.insert(f.ID, `"run_id":"r"`).Want(http.StatusCreated)
			w.report(w.claim(""), "complete", "").Want(http.StatusOK)
			x.do(f.ID, "finish", "")
			before := countRows(x.t, x.server)
			events := x.Get("/v1/events?limit=500&flow_id=" + f.ID.String()).Want(http.StatusOK).Len("items")
			x.Do(http.MethodDelete, flowPath(f.ID), nil, ifMatch(2)).Want(http.StatusNoContent)
			x.nowhere(f.ID, nil)
			x.Get("/v1/executions/" + member.ID.String()).Problem(fault.CodeNotFound)
			after := countRows(x.t, x.server)
			want := map[string]int64{"flows": -1, "flow_steps": -1, "executions": -1, "attempts": -1, "newest event": 1,
				"revisions of flows": -2, "revisions of executions": after["revisions of executions"] - before["revisions of executions"]}
			for name := range after {
				if after[name]-before[name] != want[name] {
					x.t.Errorf("%s went from %d to %d", name, before[name], after[name])
				}
			}
			log := flowAs[oapi.EventList](x.Get("/v1/events?limit=500&flow_id=" + f.ID.String()).Want(http.StatusOK)).Items
			gone := log[len(log)-1]
			if len(log) != events+1 || gone.Type != "flow.deleted" || gone.Revision != nil || string(gone.Data) != `{"status":"finished"}` || gone.Actor != "local" {
				x.t.Errorf("%d events, the last is %+v", len(log), gone)
			}
			if again := x.create(`"id":"` + f.ID.String() + `"`); again.Revision != 0 { // the id is free
				x.t.Errorf("%+v", again)
			}
		}},
		{"a flow that waits is not deleted, and its wait stays", func(x *flowTest) {
			f := x.at("waiting")
			answer := x.refused(fault.CodeNotTerminal, func() *apitest.Response { return x.Do(http.MethodDelete, flowPath(f.ID), nil) }, f.ID)
			x.facts(answer, map[string]any{"current_status": "waiting"})
		}},
	}
}

// flowPruneCases: POST /v1/admin/prune. C5 NR-03, "worth adding"; B13 21; D5 44.
var flowPruneCases = []flowCase{
	{"0 days removes what has ended and keeps what runs (NR-03)", func(x *flowTest) {
		finished, running := x.at("finished"), x.at("running")
		x.advance(time.Second)
		x.pruned(`{"finished_days":0}`, 1, 0, 0, 0)
		x.Get(flowPath(finished.ID)).Problem(fault.CodeNotFound)
		x.stands(running.ID, "running", 1)
		x.pruned(`{"finished_days":0}`, 0, 0, 0, 0)
	}},
	{"each status has its own days, a dry run only counts", func(x *flowTest) {
		w := x.workers("prune")
		old := map[oapi.FlowStatus]uuid.UUID{}
		for _, s := range []oapi.FlowStatus{"finished", "failed", "cancelled", "created", "running", "waiting"} {
			f := x.create("")
			w.create(of(f.ID))
			if s != "created" {
				x.do(f.ID, "start", "")
			}
			switch s {
			case "finished":
				w.report(w.claim(""), "complete", "").Want(http.StatusOK)
				x.do(f.ID, "finish", "")
			case "failed":
				x.do(f.ID, "fail", `{"reason":"x"}`)
			case "cancelled":
				x.do(f.ID, "cancel", "")
			case "waiting":
				x.park(f.ID, manual)
			}
			old[s] = f.ID
		}
		elsewhere := x.in(x.namespace + "-other").at("finished")
		x.advance(10 * day)
		fresh := x.at("finished")

		before := countRows(x.t, x.server)
		x.pruned(`{"finished_days":9,"failed_days":9,"cancelled_days":9,"dry_run":true}`, 1, 1, 1, 3)
		x.pruned(`{"finished_days":9,"failed_days":11,"cancelled_days":9,"dry_run":true}`, 1, 0, 1, 2)
		x.pruned(`{"dry_run":true}`, 0, 0, 0, 0) // by the server's own retention
		if diff := cmp.Diff(before, countRows(x.t, x.server)); diff != "" {
			x.t.Errorf("a dry run changed something (-before +after):\n%s", diff)
		}
		x.pruned(`{"failed_days":9}`, 0, 1, 0, 1)
		x.pruned(`{"finished_days":9,"failed_days":0,"cancelled_days":9}`, 1, 0, 1, 2)
		for s, id := range old {
			if ended := s == "finished" || s == "failed" || s == "cancelled"; ended {
				x.Get(flowPath(id)).Problem(fault.CodeNotFound)
			} else if got := x.flow(id); got.Status != s || got.NodeCount != 1 {
				x.t.Errorf("%+v", got)
			}
		}
		x.stands(fresh.ID, "finished", 2)
		x.in(x.namespace+"-other").stands(elsewhere.ID, "finished", 2)
		if n := x.Get("/v1/executions").Want(http.StatusOK).Len("items"); n != 3 {
			x.t.Errorf("%d executions are left", n)
		}
		told := flowAs[oapi.EventList](x.Get("/v1/events?type=flow.pruned").Want(http.StatusOK)).Items
		if len(told) != 3 || *told[0].FlowID != old["failed"] || string(told[0].Data) != `{"status":"failed"}` {
			x.t.Errorf("%+v", told)
		}
	}},
	{"what has changed less than that ago is kept (boundary)", func(x *flowTest) {
		f := x.at("finished")
		x.reach(f.UpdatedAt.Time().Add(2*day - time.Minute))
		x.pruned(`{"finished_days":2}`, 0, 0, 0, 0)
		x.Do(http.MethodPut, flowPath(f.ID, "tags", "a.b"), `{"value":"c"}`).Want(http.StatusOK) // a change counts
		x.advance(2 * time.Minute)
		x.pruned(`{"finished_days":2}`, 0, 0, 0, 0)
		x.advance(2 * day)
		x.pruned(`{"finished_days":2}`, 1, 0, 0, 0)
	}},
	{"days are not negative", func(x *flowTest) {
		x.at("finished")
		for body, pointer := range map[string]string{`{"finished_days":-1}`: "/finished_days", `{"failed_days":1.5}`: "/failed_days", `{"cancelled_days":36501}`: "/cancelled_days", `{"days":1}`: "/days"} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/admin/prune", body) }), fault.InBody, pointer)
		}
	}},
	{"under an Idempotency-Key it is done once", func(x *flowTest) {
		key := "Idempotency-Key: p-" + x.namespace
		x.at("finished")
		x.advance(time.Second)
		first := x.Post("/v1/admin/prune", `{"finished_days":0}`, key).Want(http.StatusOK)
		x.at("finished")
		x.advance(time.Second)
		again := x.same(func() *apitest.Response { return x.Post("/v1/admin/prune", `{"finished_days":0}`, key) }).Want(http.StatusOK)
		if first.Int("flows.finished") != 1 || string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("first %s, again %v %s", first.Body, again.Header, again.Body)
		}
	}},
	{"the server does it by itself (B13 21)", func(x *flowTest) {
		finished, failed, running := x.at("finished"), x.at("failed"), x.at("running")
		gone := func(id uuid.UUID) {
			x.t.Helper()
			for range 100 { // the server's own loop may have it under way
				if x.Get(flowPath(id)).Status == http.StatusNotFound {
					return
				}
				x.advance(0)
			}
			x.t.Errorf("flow %s is still there", id)
		}
		x.advance(29 * day)
		x.stands(finished.ID, "finished", 2)
		x.advance(2 * day)
		gone(finished.ID)
		x.stands(failed.ID, "failed", 2)
		x.advance(335 * day)
		gone(failed.ID)
		x.stands(running.ID, "running", 1)
	}},
}

// pruned prunes, and checks what the answer says.
func (x *flowTest) pruned(body string, finished, failed, cancelled, executions int64) {
	x.t.Helper()
	got := flowAs[oapi.Pruned](x.Post("/v1/admin/prune", body).Want(http.StatusOK))
	got.DryRun = false
	want := oapi.Pruned{Flows: oapi.PrunedFlows{Finished: finished, Failed: failed, Cancelled: cancelled}, Executions: executions}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("prune %s (-want +got):\n%s", body, diff)
	}
}

// TestFlows_Restart: a server that stops and starts again on the same database goes on where it was. C5 NX-01, NX-04, NE-07;
// D6 49.
func TestFlows_Restart(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := flowsOn(t, s, "restart")
		f := x.running(`"state":{"a":1}`)
		x.patch(f.ID, `{"state":{"b":2},"current_step":"gate"}`).Want(http.StatusOK)
		f = x.park(f.ID, manual)
		ends := x.waiting(outside("t", "c"))
		times := x.waiting(x.after(time.Hour))
		fails := x.waiting(manual, `"deadline":`+spelled(x.now().Add(time.Hour)))
		asked := x.at("running")
		x.do(asked.ID, "request-cancel", "")
		for i, r := range []string{"one", "two", "three"} {
			x.observe(f.ID, r, fmt.Sprintf(`"status":"succeeded","result":{"n":%d}`, i)).Want(http.StatusCreated)
		}
		x.deliver("kept", "c", `"payload":"before"`)
		key := "Idempotency-Key: k"
		made := x.Post("/v1/flows", `{"goal":"once"}`, key).Want(http.StatusCreated)
		ids := []uuid.UUID{f.ID, ends.ID, times.ID, fails.ID, asked.ID}
		lists := func() []any { return []any{x.inbox(""), x.list(""), x.trail(f.ID, ""), x.trail(ends.ID, "")} }
		before, listed := x.snapshot(ids...), lists()
		position := x.Get("/v1/meta").Want(http.StatusOK).Get("event_log")

		stopping := time.Now()
		s.Stop()
		if took := time.Since(stopping); took > 10*time.Second { // NE-07
			t.Errorf("it took %s to stop while flows wait", took)
		}
		x = flowsOn(t, apptest.Start(t, s.URL, func(c *app.Config) { c.Clock = s.Clock }), "restart")

		if diff := cmp.Diff(before, x.snapshot(ids...)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(listed, lists()); diff != "" {
			t.Errorf("lists (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(position, x.Get("/v1/meta").Want(http.StatusOK).Get("event_log")); diff != "" {
			t.Errorf("the event log (-before +after):\n%s", diff)
		}
		if got := x.flow(f.ID); got.Status != "waiting" || got.Revision != 3 || got.CurrentStep != "gate" || string(got.Wait.Condition) != manual || string(got.State) != `{"a":1,"b":2}` {
			t.Errorf("%+v", got)
		}
		x.do(f.ID, "resume", "")
		x.deliver("t", "c", `"payload":"after"`)
		x.state(x.stands(ends.ID, "running", 3), `{"n":1,"resume_event":"after"}`)
		x.state(x.park(f.ID, outside("kept", "c")), `{"a":1,"b":2,"resume_event":"before"}`)
		x.refused(fault.CodeCancelPending, func() *apitest.Response { return x.verb(asked.ID, "finish", "") }, asked.ID)
		again := x.Post("/v1/flows", `{"goal":"once"}`, key).Want(http.StatusCreated)
		if again.Str("id") != made.Str("id") || again.Header.Get("Idempotent-Replay") != "true" {
			t.Errorf("%v %s", again.Header, again.Body)
		}

		x.server.Stop()
		s.Clock.Advance(2 * time.Hour) // what is due meanwhile happens at the start
		x = flowsOn(t, apptest.Start(t, s.URL, func(c *app.Config) { c.Clock = s.Clock }), "restart")
		ended := x.Get(flowPath(fails.ID)+"?until=terminal", "Prefer: wait=30").Want(http.StatusOK)
		if ended.Str("status") != "failed" {
			t.Errorf("%s", ended.Body)
		}
		x.advance(0)
		x.stands(times.ID, "running", 3)
	})
}
