package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestGraph_Build: graphs that are built by one request. flows-streams-budgets.md 10.1, 11; model.md "The graph of a flow".
func TestGraph_Build(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphBuildCases)
}

var graphBuildCases = []graphCase{
	{"one request makes a flow with its graph, which runs and ends by itself (defects 1, 18, 59)", func(g *graphTest) {
		f := g.graph("", "build", "lint", `test < build | "kind":"shell","priority":3`, "publish any cancel < test build! lint")
		got := g.stands(f.ID, "running", 1)
		if got.NodeCount != 4 || got.EdgeCount != 4 || got.GraphRevision != 8 || !got.AutoFinish {
			g.t.Errorf("%+v", got)
		}
		f.states("waiting: build lint; waiting_children: publish test")
		f.rolled("blocked waiting=2 waiting_children=2")
		f.groups("test", "pending of 1: 0 satisfied, 0 failed, 0 skipped")
		if group := f.group("publish"); group.Kind != "any_of" || group.OnSatisfied != "cancel_remaining" || group.K != nil || group.TotalDeps != 3 || group.RunningCount != 3 {
			g.t.Errorf("%+v", group)
		}
		v := f.view()
		keys := make([]string, len(v.Nodes))
		for i := range v.Nodes {
			keys[i] = name(&v.Nodes[i])
		}
		slices.Sort(keys) // made in the same millisecond
		if diff := cmp.Diff([]string{"build", "lint", "publish", "test"}, keys); diff != "" {
			g.t.Errorf("nodes (-want +got):\n%s", diff)
		}
		passed := 0
		for _, e := range v.Edges {
			if e.PassResult {
				passed++
			}
			if e.PassResult && e.UpstreamExecutionID != f.of["build"] || e.FlowID != f.ID || e.DependencyKind != "success_only" || e.State != "pending" {
				g.t.Errorf("%+v", e)
			}
		}
		if len(v.Edges) != 4 || passed != 1 {
			g.t.Errorf("%d edges, %d of them with a result", len(v.Edges), passed)
		}
		g.told(f.ID, "flow.created", "flow.started", "flow.graph_changed")
		g.data(f.log("flow.graph_changed")[0], map[string]any{"executions": 4.0, "edges": 4.0, "graph_revision": 8.0, "node_count": 4.0, "edge_count": 4.0})
		if n := len(f.log("execution.created")); n != 4 {
			g.t.Errorf("%d members are told", n)
		}
		f.none("test", "publish")
		if e := f.stand("test", atBlocked); e.Kind != "shell" || e.Priority != 3 || *e.FlowID != f.ID || *e.Key != "test" {
			g.t.Errorf("%+v", e)
		}
		f.claim("build", "lint")
	}},
	{"with start false the flow stays created: nothing can be claimed until it starts (model, Start and end)", func(g *graphTest) {
		f := g.graph(`"start":false`, "a", "b < a", `late | "delay_ms":60000`)
		g.stands(f.ID, "created", 0)
		f.stand("a", atPaused)
		f.stand("b", atBlocked)
		f.stand("late", atPaused)
		f.none("a", "b", "late")
		g.do(f.ID, "start", "")
		f.stand("a", atWaiting)
		f.stand("b", atBlocked)
		f.stand("late", atDelayed)
		f.complete("a", "b")
		g.advance(time.Minute)
		f.complete("late")
		g.stands(f.ID, "finished", 2)
	}},
	{"every mistake of a graph is told at once, and nothing is written (model, all errors at once)", func(g *graphTest) {
		taken := g.graph("", "there").of["there"]
		lines := []string{"a", "b < a nobody", "a", "c < c", "d 3 < a b", "e any", "f < h", "g < f", "h < g", "i < j", "j < i", "k < a a", "l cancel < a",
			`m | "required_capabilities":["x,y"]`, `n | "policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"exponential","initial_delay_ms":10,"max_delay_ms":1,"multiplier":1}}}`,
			fmt.Sprintf(`o | "id":%q`, taken), `p | "tags":{"Bad":"x"}`, `q | "delay_ms":1,"delay_until":"2030-01-01T00:00:00Z"`}
		want := map[string]string{
			"/1/needs/1": "not_found", "/2/key": "already_exists", "/3/needs/0": "self_referencing_edge", "/4/join/quorum": "graph_invalid", "/5/join": "graph_invalid",
			"/7/needs": "cycle_detected", "/10/needs": "cycle_detected", "/11/needs/1": "already_exists", "/12/on_satisfied": "graph_invalid",
			"/13/required_capabilities": "invalid_capabilities", "/15/id": "already_exists", "/16/tags/Bad": "invalid_tag_key", "/17/delay_ms": "validation_failed",
		}
		f := g.bare("")
		for at, send := range map[string]func() *apitest.Response{
			"/graph/executions": func() *apitest.Response { return g.Post("/v1/flows", g.withGraph("", lines...)) },
			"/executions":       func() *apitest.Response { return f.call("graph", f.lines(lines...)) },
		} {
			answer := f.denied(fault.CodeGraphInvalid, send)
			got := map[string]string{}
			for _, field := range answer.Fields() {
				pointer, under := strings.CutPrefix(field.Pointer, at)
				if !under || field.In != "body" || field.Detail == "" {
					g.t.Errorf("%+v", field)
				}
				if !strings.HasPrefix(pointer, "/14/policy") {
					got[pointer] = string(field.Code)
				} else if field.Code != "validation_failed" {
					g.t.Errorf("%+v", field)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				g.t.Errorf("%s: mistakes (-want +got):\n%s", at, diff)
			}
			if diff := cmp.Diff([]any{"g", "h", "f", "g"}, answer.Get("path")); diff != "" {
				g.t.Errorf("path (-want +got):\n%s", diff)
			}
		}
	}},
	{"one mistake is told for what it is, with its place (defect 60)", func(g *graphTest) {
		f := g.graph("", "there")
		for _, c := range []struct{ lines, pointer, code string }{
			{"a < nobody", "/executions/0/needs/0", "not_found"},
			{"there", "/executions/0/key", "already_exists"},
			{"a;b < a;b < a", "/executions/2/key", "already_exists"},
			{"a < a", "/executions/0/needs/0", "self_referencing_edge"},
			{"a < b;b < a", "/executions/1/needs", "cycle_detected"},
			{"a 2 < there", "/executions/0/join/quorum", "graph_invalid"},
			{"a any", "/executions/0/join", "graph_invalid"},
			{"a 1", "/executions/0/join/quorum", "graph_invalid"},
			{"a < there there", "/executions/0/needs/1", "already_exists"},
			{`a | "required_capabilities":["x,y"]`, "/executions/0/required_capabilities", "invalid_capabilities"},
			{`a | "tags":{"Bad":"x"}`, "/executions/0/tags/Bad", "invalid_tag_key"},
			{`a | "delay_ms":1,"delay_until":"2030-01-01T00:00:00Z"`, "/executions/0/delay_ms", "validation_failed"},
		} {
			code := fault.CodeGraphInvalid
			if fault.Lookup(fault.Code(c.code)).Status == http.StatusUnprocessableEntity {
				code = fault.Code(c.code)
			}
			answer := f.denied(code, func() *apitest.Response { return f.call("graph", f.lines(strings.Split(c.lines, ";")...)) })
			if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != c.pointer || string(fields[0].Code) != c.code {
				g.t.Errorf("%s: %+v", c.lines, fields)
			}
		}
	}},
	{"more edges than one request may have are refused as a whole", func(g *graphTest) {
		var ups, lines []string
		for i := range 230 {
			ups = append(ups, fmt.Sprint("u", i))
		}
		lines = append(lines, ups...)
		for i := range 220 {
			lines = append(lines, fmt.Sprintf("d%d < %s", i, strings.Join(ups, " ")))
		}
		f := g.bare("")
		f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines(lines...)) })
	}},
	{"a dry run checks all of it and writes nothing", func(g *graphTest) {
		f := g.graph("", "a")
		body := f.lines("b < a", "c < b")
		dry := f.idle(http.StatusOK, func() *apitest.Response { return f.call("graph?dry_run=true", body) })
		f.idle(http.StatusOK, func() *apitest.Response { return f.call("graph?dry_run=true", body) })
		built := flowAs[oapi.BuiltGraph](dry)
		if len(built.Executions) != 2 || built.GraphRevision != 5 {
			g.t.Errorf("%+v", built)
		}
		f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph?dry_run=true", f.lines("b < nobody")) })
		if got := f.build("b < a", "c < b"); got.GraphRevision != 5 {
			g.t.Errorf("%+v", got)
		}
		g.do(f.ID, "cancel", "")
		f.denied(fault.CodeAlreadyTerminal, func() *apitest.Response { return f.call("graph?dry_run=true", f.lines("x")) })
	}},
	{"needs may name members that there are, by key or id, in whatever state (9.11, defect 2)", func(g *graphTest) {
		f := g.graph("", "done", "lost", "gone < lost", "open", "stopped", "keeper < open")
		f.complete("done")
		f.fail("lost")
		f.stop("stopped")
		f.build("after < done", fmt.Sprintf("byid < %s! open", f.of["done"]), fmt.Sprintf("upper < %s", strings.ToUpper(f.of["done"].String())), "bad < lost", "worse < gone", "worst < stopped",
			"some any < gone lost done", "none any < gone lost stopped", "next < bad")
		f.states("cancelled: stopped; completed: done; failed: lost; skipped: bad gone next none worse worst; waiting: after open some upper; waiting_children: byid keeper")
		f.groups("some", "satisfied of 3: 1 satisfied, 1 failed, 1 skipped")
		f.groups("none", "impossible of 3: 0 satisfied, 2 failed, 1 skipped")
		f.groups("byid", "pending of 2: 1 satisfied, 0 failed, 0 skipped")
		f.complete("open", "byid", "after", "some", "upper", "keeper")
		g.stands(f.ID, "failed", 2)
	}},
	{"names of other flows, other namespaces and of what is not there are unknown", func(g *graphTest) {
		other, foreign := g.graph("", "a"), graphsOn(g.t, g.server, g.namespace+"-other")
		far := foreign.graph("", "a")
		alone := g.w.create("")
		f := g.graph("", "b")
		for _, need := range []string{"a", other.of["a"].String(), far.of["a"].String(), alone.ID.String(), uuid.NewString(), "B"} {
			answer := f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines("c < b "+need)) })
			f.points(answer, "body", "/executions/0/needs/1")
		}
		answer := f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines(fmt.Sprintf(`c | "id":%q`, far.of["a"]))) })
		f.points(answer, "body", "/executions/0/id")
	}},
	{"a key may look like the id of another member: the key wins", func(g *graphTest) {
		f := g.graph("", "a")
		f.build(f.of["a"].String() + " < a")
		f.build("c < " + f.of["a"].String())
		f.complete("a")
		f.states("completed: a; waiting: " + f.of["a"].String() + "; waiting_children: c")
	}},
	{"an id of one's own is kept", func(g *graphTest) {
		id := uuid.New()
		f := g.graph("", fmt.Sprintf(`a | "id":%q`, id), "b < a")
		if f.of["a"] != id {
			g.t.Errorf("%s is %s", id, f.of["a"])
		}
	}},
	{"a graph is added to a flow that has not ended, whatever it is doing; to no other", func(g *graphTest) {
		for _, s := range []oapi.FlowStatus{"created", "running", "waiting"} {
			f := g.flowOf(g.at(s))
			f.build("a", "b < a")
			if s == "created" {
				f.stand("a", atPaused)
				f.none("a")
			} else {
				f.claim("a")
			}
			g.stands(f.ID, s, f.flow(f.ID).Revision)
			if f.flow(f.ID).AutoFinish {
				g.t.Error("a graph that is added later makes a flow end by itself")
			}
		}
		for _, s := range []oapi.FlowStatus{"finished", "failed", "cancelled"} {
			f := g.flowOf(g.at(s))
			answer := f.denied(fault.CodeAlreadyTerminal, func() *apitest.Response { return f.call("graph", f.lines("a")) })
			g.facts(answer, map[string]any{"current_status": string(s)})
		}
		far := graphsOn(g.t, g.server, g.namespace+"-other").bare("")
		for _, id := range []uuid.UUID{uuid.New(), far.ID} {
			answer := g.refused(fault.CodeNotFound, func() *apitest.Response { return g.Post(flowPath(id, "graph"), "{"+g.lines("a")+"}") })
			g.facts(answer, map[string]any{"resource": "flow"})
			g.Get(flowPath(id, "graph")).Problem(fault.CodeNotFound)
		}
	}},
	{"the id of a flow again answers the flow and its graph, and changes nothing (create_flow_idempotent, 9.4)", func(g *graphTest) {
		id := fmt.Sprintf(`"id":%q`, uuid.New())
		f := g.graph(id, "a", "b < a")
		for _, body := range []string{g.withGraph(id, "a", "b < a"), g.withGraph(id, "other"), "{" + id + `,"goal":"x"}`} {
			again := f.idle(http.StatusOK, func() *apitest.Response { return g.Post("/v1/flows", body) })
			if again.Header.Get("Idempotent-Replay") != "true" || again.Str("goal") != "Release 1.4" {
				g.t.Errorf("%v %s", again.Header, again.Body)
			}
			if !strings.Contains(body, `"graph"`) {
				continue
			}
			if diff := cmp.Diff(f.of, flowAs[oapi.Flow](again).Graph.Executions); diff != "" {
				g.t.Errorf("graph (-want +got):\n%s", diff)
			}
		}
		g.do(f.ID, "cancel", "")
		if again := f.idle(http.StatusOK, func() *apitest.Response { return g.Post("/v1/flows", g.withGraph(id, "a")) }); again.Str("status") != "cancelled" {
			g.t.Errorf("%s", again.Body)
		}
		id = fmt.Sprintf(`"id":%q`, uuid.New())
		created := 0
		for _, answer := range flowsAtOnce(5, func(int) *apitest.Response { return g.Post("/v1/flows", g.withGraph(id, "a", "b < a")) }) {
			if answer.Status == http.StatusCreated {
				created++
				g.flowOf(flowAs[oapi.Flow](answer))
			} else {
				answer.Want(http.StatusOK)
			}
		}
		if created != 1 {
			g.t.Errorf("%d of five made it", created)
		}
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		far.refused(fault.CodeAlreadyExists, func() *apitest.Response { return far.Post("/v1/flows", far.withGraph(id, "a")) })
	}},
}
