package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// wide writes n members in the lane of their name, each of which needs some others.
func wide(name string, n int, needs ...string) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`%s%d`, name, i)
		if len(needs) > 0 {
			lines[i] += " < " + strings.Join(needs, " ")
		}
		lines[i] += fmt.Sprintf(` | "lane":"g-%s"`, name)
	}
	return lines
}

// TestGraph_Large: graphs that are written in pieces. model.md "The bulk form is atomic for every reader".
func TestGraph_Large(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphLargeCases)
}

var graphLargeCases = []graphCase{
	{"a large graph is there as a whole, and runs", func(g *graphTest) {
		lines := append(wide("root", 300), wide("mid", 300, "root0", "root1", "root2", "root3", "root4")...)
		lines = append(lines, "end < mid0 mid299", "x any cancel < root5 root6")
		f := g.graph("", lines...)
		f.size(602, 1504)
		g.server.Settle() // the last are let go right after it is shown
		f.rolled("blocked waiting=300 waiting_children=302")
		g.told(f.ID, "flow.created", "flow.started", "flow.graph_changed")
		if n := len(f.log("execution.created")); n != 602 || len(f.of) != 602 {
			g.t.Errorf("%d are told, %d named", n, len(f.of))
		}
		for _, state := range []string{"waiting", "waiting_children"} {
			n, next := 0, ""
			for more := true; more; {
				page := answerAs[oapi.ExecutionList](g.Get(fmt.Sprintf("/v1/executions?flow_id=%s&public_state=%s&limit=500%s", f.ID, state, next)).Want(http.StatusOK))
				n += len(page.Items)
				if more = page.NextCursor != nil; more {
					next = "&cursor=" + *page.NextCursor
				}
			}
			if want := map[string]int{"waiting": 300, "waiting_children": 302}[state]; n != want {
				g.t.Errorf("%d are %s", n, state)
			}
		}
		f.none("mid", "end")
		for range 3 {
			var items []string
			for _, c := range f.w.on("root").claims(`"max":100,` + lasting) {
				items = append(items, fmt.Sprintf(`{"execution_id":%q,"handle":%q}`, c.Execution.ID, c.Handle))
			}
			if len(items) != 100 {
				g.t.Fatalf("%d were claimed", len(items))
			}
			g.Post("/v1/completions", `{"items":[`+strings.Join(items, ",")+`]}`).Want(http.StatusOK)
		}
		g.server.Settle()
		f.rolled("blocked completed=300 waiting=301 waiting_children=1")
	}},
	{"the members of a large graph wait for the start of their flow", func(g *graphTest) {
		f := g.graph(`"start":false`, append(wide("n", 300), "a < n0")...)
		f.rolled("blocked waiting=300 waiting_children=1")
		f.none("n")
		g.do(f.ID, "start", "")
		g.server.Settle()
		f.rolled("blocked waiting=300 waiting_children=1")
		for range 3 {
			if n := len(f.w.on("n").claims(`"max":100,` + lasting)); n != 100 {
				g.t.Fatalf("%d were claimed", n)
			}
		}
		f.none("n")
	}},
	{"a large graph is added to a flow in the middle of its work, whose members may be ending", func(g *graphTest) {
		f := g.graph("", "done", "bad", "open", "ends")
		f.complete("done")
		f.fail("bad")
		f.claim("ends")
		lines := append(wide("d", 100, "done"), wide("b", 100, "bad", "open")...)
		lines = append(append(lines, wide("o", 100, "open", "done")...), wide("e", 100, "ends")...)
		answers := flowsAtOnce(2, func(i int) *apitest.Response {
			if i == 1 {
				return f.report("ends", "complete", "")
			}
			return f.call("graph", f.lines(lines...))
		})
		answers[0].Want(http.StatusCreated)
		answers[1].Want(http.StatusOK)
		g.server.Settle()
		f.counted(map[string]int64{"completed": 2, "failed": 1, "skipped": 100, "waiting": 201, "waiting_children": 100})
		f.size(404, 600)
	}},
	{"it is made once, by id, by key, and by many at once", func(g *graphTest) {
		id := fmt.Sprintf(`"id":%q`, uuid.New())
		lines := append(wide("n", 260), "end < n0")
		body := g.withGraph(id, lines...)
		made := 0
		for _, answer := range flowsAtOnce(3, func(int) *apitest.Response { return g.Post("/v1/flows", body) }) {
			switch answer.Status {
			case http.StatusCreated:
				made++
				g.flowOf(flowAs[oapi.Flow](answer))
			case http.StatusOK:
			case http.StatusServiceUnavailable: // another one was being written
				answer.Problem(fault.CodeBusy)
			default: // it has just been made
				answer.Problem(fault.CodeAlreadyExists)
			}
		}
		g.server.Settle()
		if made != 1 {
			g.t.Fatalf("%d were made", made)
		}
		f := &graphFlow{graphTest: g, ID: (*g.made)[0]}
		f.size(261, 1)
		f.idle(http.StatusOK, func() *apitest.Response { return g.Post("/v1/flows", body) })
		more := func() *apitest.Response {
			return f.call("graph", f.lines(wide("m", 260, "end")...), "Idempotency-Key: m")
		}
		first := more().Want(http.StatusCreated)
		again := f.idle(http.StatusCreated, more)
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
			g.t.Errorf("%v", again.Header)
		}
		f.size(521, 261)
		f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines(wide("m", 260)...)) })
	}},
	{"the mistakes of a large graph are told before anything is written", func(g *graphTest) {
		f := g.graph("", "a")
		lines := append(wide("n", 300, "a"), "x < nobody", "y < z", "z < y")
		answer := f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines(lines...)) })
		if answer.Len("errors") != 2 || answer.Len("path") != 3 {
			g.t.Errorf("%s", answer.Body)
		}
		f.idle(http.StatusOK, func() *apitest.Response { return f.call("graph?dry_run=true", f.lines(wide("n", 300, "a")...)) })
	}},
	{"a large graph that is refused at its end was never seen, and is taken back", func(g *graphTest) {
		f := g.graph("", "a", "b", "held")
		f.w.on("n").create("") // the lane is there
		f.w.on("n").claim(lasting)
		f.claim("held", "b")
		stale := f.handle("held")
		f.complete("held")
		id := uuid.NewString()
		lines := append(wide("n", 300, "a"), fmt.Sprintf(`own | "lane":"g-n","id":%q`, id))
		before := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")
		f.call("graph", joined(f.lines(lines...), stale)).Problem(fault.CodeExecutionNotActive)
		f.unseen(id)
		if after := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'"); after["newest event"] != before["newest event"] {
			g.t.Error("something was told")
		}
		f.complete("a") // what was not shown is not decided
		f.unseen(id)
		g.server.Settle()
		g.advance(2 * time.Minute)
		after := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")
		for _, table := range []string{"executions", "edges", "edge_groups", "builds", "graph_backlog"} {
			if before[table] != after[table] {
				g.t.Errorf("%s went from %d to %d", table, before[table], after[table])
			}
		}
		f.call("graph", f.lines(lines...)).Want(http.StatusCreated) // keys and ids are free again
		g.server.Settle()
		f.counted(map[string]int64{"completed": 2, "active": 1, "waiting": 301})
	}},
	{"a flow is cancelled, replayed and deleted without what is not shown", func(g *graphTest) {
		f := g.graph("", "a", "held", "held2")
		f.claim("held")
		stale := f.handle("held")
		f.fail("held")
		f.call("graph", joined(f.lines(wide("n", 300, "a")...), stale)).Problem(fault.CodeExecutionNotActive)
		f.stop("a", "held2")
		g.stands(f.ID, "failed", 2) // all there is has ended
		f.replay(`"failed"`, "a held held2", "")
		f.cancelled("", 3, 0)
		g.Do(http.MethodDelete, flowPath(f.ID), nil).Want(http.StatusNoContent)
		g.server.Settle()
		g.advance(2 * time.Minute)
		after := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")
		for _, table := range []string{"executions", "edges", "edge_groups", "builds", "graph_backlog", "flows"} {
			if after[table] != 0 {
				g.t.Errorf("%d %s are left", after[table], table)
			}
		}
	}},
}

// unseen checks that nobody sees what was written of a graph with the members n0 to n299 and one of this id.
func (f *graphFlow) unseen(id string) {
	f.t.Helper()
	f.size(3, 0)
	if v := f.view(); len(v.Nodes) != 3 || len(v.Edges) != 0 || len(v.Groups) != 0 || v.Rollup.Total != 3 {
		f.t.Errorf("%+v", v)
	}
	if n := len(f.edgesOf("")) + len(f.edgesOf("&from="+f.of["a"].String())); n != 0 {
		f.t.Errorf("%d edges are listed", n)
	}
	for query, want := range map[string]int{"flow_id=" + f.ID.String(): 3, "lane=g-n": 1, "limit=500": 4} {
		if n := f.Get("/v1/executions?" + query).Want(http.StatusOK).Len("items"); n != want {
			f.t.Errorf("%d are listed by %s", n, query)
		}
	}
	counts := f.Get("/v1/executions/counts?group_by=lane").Want(http.StatusOK)
	if strings.Contains(string(counts.Body), "30") {
		f.t.Errorf("%s", counts.Body)
	}
	f.none("n")
	for _, part := range []string{"", "/state", "/result", "/payload", "/context", "/attempts", "/explain", "/signals", "/waitpoints", "/tags", "/attempts/current/stream", "/attempts/current/summary"} {
		f.facts(f.Get("/v1/executions/"+id+part).Problem(fault.CodeNotFound), map[string]any{"resource": "execution"})
	}
	for _, call := range []func() *apitest.Response{
		func() *apitest.Response { return f.Post("/v1/executions/"+id+"/operator-cancel", `{"reason":"x"}`) },
		func() *apitest.Response { return f.Post("/v1/executions/"+id+"/operator-claim", nil) },
		func() *apitest.Response {
			return f.Do(http.MethodPut, "/v1/executions/"+id+"/priority", `{"priority":9}`)
		},
		func() *apitest.Response {
			return f.Do(http.MethodPut, "/v1/executions/"+id+"/tags/a.b", `{"value":"x"}`)
		},
		func() *apitest.Response { return f.enlist(uuid.MustParse(id)) },
	} {
		f.denied(fault.CodeNotFound, call)
	}
	f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.Post("/v1/executions", f.w.on("n").sent(`"id":"`+id+`"`)) })
	f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines("z < n1")) })
	f.denied(fault.CodeExecutionNotInFlow, func() *apitest.Response { return f.call("replay", `"from":["n1"]`) })
	if matched := f.Post("/v1/executions/bulk", `{"action":"cancel","filter":{"lane":"g-n","public_state":"waiting"},"dry_run":true}`).Want(http.StatusOK).Int("matched"); matched != 0 {
		f.t.Errorf("%d match a bulk job", matched)
	}
}

// TestGraph_Keeping: flows with graphs that are deleted, and servers that stop in the middle. pg_reconciler_dependency: crash.
func TestGraph_Keeping(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphKeepingCases)
}

var graphKeepingCases = []graphCase{
	{"a flow that is deleted or pruned takes its graph along (defect 16)", func(g *graphTest) {
		for _, how := range []string{"delete", "prune"} {
			f := g.graph("", "a", "b < a", "c < a b", "d any < b c")
			kept := g.graph("", "a", "b < a")
			f.complete("a")
			f.fail("b")
			g.stands(f.ID, "failed", 2)
			before := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")
			if how == "delete" {
				g.Do(http.MethodDelete, flowPath(f.ID), nil).Want(http.StatusNoContent)
			} else {
				g.advance(time.Second)
				g.Post("/v1/admin/prune", `{"failed_days":0}`).Want(http.StatusOK)
			}
			g.Get(flowPath(f.ID, "graph")).Problem(fault.CodeNotFound)
			g.Get(flowPath(f.ID, "edges")).Problem(fault.CodeNotFound)
			g.Get("/v1/executions/" + f.of["c"].String()).Problem(fault.CodeNotFound)
			after := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")
			for table, n := range map[string]int64{"flows": 1, "executions": 4, "edges": 5, "edge_groups": 3} {
				if before[table]-after[table] != n {
					g.t.Errorf("%s: %d %s went", how, before[table]-after[table], table)
				}
			}
			kept.complete("a", "b")
		}
	}},
	{"steps mirror what becomes of members that never ran", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c < b", "d")
		for _, key := range []string{"a", "b", "c", "d"} {
			f.observe(f.ID, key, fmt.Sprintf(`"status":"pending","execution_id":%q`, f.of[key])).Want(http.StatusCreated)
		}
		f.fail("a")
		f.stop("d")
		for key, want := range map[string]oapi.StepStatus{"a": "failed", "b": "cancelled", "c": "cancelled", "d": "cancelled"} {
			if got := f.step(f.ID, key); got.Status != want {
				g.t.Errorf("%s is %s", key, got.Status)
			}
		}
		for _, e := range f.log("step.observed") {
			if data := eventData(g.t, e); data["run_id"] == "b" && data["status"] == "cancelled" && data["public_state"] != "skipped" {
				g.t.Errorf("%v", data)
			}
		}
	}},
	{"members of a created flow are paused, also when what they depend on is done", func(g *graphTest) {
		f := g.flowOf(g.create(`"auto_finish":true`))
		*g.made = nil // one ended before it joined
		e := g.w.create("")
		g.w.report(g.w.claim(lasting), "complete", `"result":1`).Want(http.StatusOK)
		f.enlist(e.ID).Want(http.StatusCreated)
		f.build("a < "+e.ID.String()+"!", "b < a", fmt.Sprintf(`c < %s | "delay_ms":60000`, e.ID))
		f.add("d < " + e.ID.String())
		f.build("x", "y")
		f.edge("x", "y")
		f.stop("x")
		f.stand("y", atSkipped)
		for key, at := range map[string]string{"a": atPaused, "b": atBlocked, "c": atPaused, "d": atPaused} {
			f.stand(key, at)
		}
		f.none("a", "c", "d")
		got, gates := f.w.explain(f.of["a"], "")
		if gates["flow"].Met || !gates["dependencies"].Met {
			g.t.Errorf("%+v", got)
		}
		g.do(f.ID, "start", "")
		for key, at := range map[string]string{"a": atWaiting, "b": atBlocked, "c": atDelayed, "d": atWaiting} {
			f.stand(key, at)
		}
		f.claim("a")
		f.given(f.held["a"], map[string]string{e.ID.String(): "1"})
		f.complete("a", "b", "d")
		g.advance(time.Minute)
		f.complete("c")
		g.stands(f.ID, "failed", 2)
	}},
	{"graphs of one namespace are nobody's else", func(g *graphTest) {
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		f, other := g.graph("", "a", "b < a"), far.graph("", "a", "b < a")
		edge := f.view().Edges[0].EdgeID.String()
		for _, part := range []string{"graph", "edges", "edges/" + edge, "cancellation"} {
			g.facts(far.Get(flowPath(f.ID)+"/"+part).Problem(fault.CodeNotFound), map[string]any{"resource": "flow"})
		}
		for part, body := range map[string]string{"graph": "{" + far.lines("x") + "}", "members": `{"execution":` + far.line("x") + `}`, "edges": "{" + f.ends("a", "b") + "}",
			"edges/" + edge + "/apply": "{}", "replay": `{"from":"failed"}`, "cancel": "{}", "cancellation/" + f.of["a"].String() + "/ack": "{}"} {
			f.denied(fault.CodeNotFound, func() *apitest.Response { return far.Post(flowPath(f.ID)+"/"+part, body) })
		}
		f.fail("a")
		other.states("waiting: a; waiting_children: b")
		other.complete("a", "b")
		for _, e := range other.log("") {
			if e.Namespace != other.namespace {
				g.t.Errorf("%+v", e)
			}
		}
	}},
}

// TestGraph_Restart: what is left to do is durable. 10.3 pg_reconciler_dependency: crash after hop 1, second tick no-op; defect 4.
func TestGraph_Restart(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		s.Stop()
		g := graphsOn(t, apptest.Still(t, s.URL, s.Clock), "restart")
		chained, star, cancelled := g.graph("", chain(400)...), g.graph("", append(wide("s", 300, "root"), "root")...), g.graph("", wide("c", 300)...)
		w := executionsOn(t, g.server, "chain")
		w.Client = g.Client
		w.report(w.claim(lasting), "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK)
		star.complete("root")
		cancelled.cancelled("", 300, 50)
		built := g.graph("", "a", "held")
		built.claim("held")
		stale := built.handle("held")
		built.complete("held")
		built.call("graph", joined(built.lines(wide("n", 300, "a")...), stale)).Problem(fault.CodeExecutionNotActive)
		g.server.Stop()

		after := graphsOn(t, apptest.Still(t, s.URL, s.Clock), "restart")
		*after.made = *g.made
		for _, f := range []*graphFlow{chained, star, cancelled, built} {
			f.graphTest = after
		}
		after.advance(2 * time.Minute)
		chained.counted(map[string]int64{"failed": 1, "skipped": 399})
		star.counted(map[string]int64{"completed": 1, "waiting": 300})
		cancelled.counted(map[string]int64{"cancelled": 300})
		built.counted(map[string]int64{"completed": 1, "waiting": 1})
		for _, f := range []*graphFlow{chained, star, cancelled, built} {
			after.audit(f.ID)
		}
		rows := countRows(t, after.server)
		if rows["builds"] != 0 || rows["graph_backlog"] != 0 {
			t.Errorf("%d builds and %d items are left", rows["builds"], rows["graph_backlog"])
		}
		events := rows["newest event"]
		after.advance(time.Hour)
		if now := countRows(t, after.server)["newest event"]; now != events {
			t.Errorf("%d more events", now-events)
		}
	})
}

// TestGraph_sweptWithOthers: what a sweep leaves for later of a flow's graph is done, whatever else it came upon, in other namespaces, too.
func TestGraph_sweptWithOthers(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()), func(c *app.Config) { c.Batch = 3 })
		g := graphsOn(t, s, "swept")
		lines := []string{`root | "deadline_at":` + spelled(g.now().Add(time.Minute))}
		for i := range 10 {
			lines = append(lines, fmt.Sprintf("d%d < root", i))
		}
		f := g.graph("", lines...)
		other := g.in("other").workers("other").create(`"deadline_at":` + spelled(g.now().Add(61*time.Second)))
		s.Advance(2 * time.Minute)
		if got := g.in("other").workers("other").get(other.ID).PublicState; got != "expired" {
			t.Errorf("the other execution is %s", got)
		}
		f.rolled("failed expired=1 skipped=10")
		g.audit(f.ID)
	})
}
