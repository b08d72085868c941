package app_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// byWorker returns the flow as somebody sees it who has the token of a worker.
func (f *graphFlow) byWorker() *graphFlow {
	f.t.Helper()
	made := f.Post("/v1/admin/tokens", `{"name":"w-`+uuid.NewString()[:8]+`","role":"worker"}`).Want(http.StatusCreated)
	x, g, other := *f.flowTest, *f.graphTest, *f
	x.Client = x.As(made.Str("token"))
	g.flowTest, other.graphTest = &x, &g
	return &other
}

// handle is the handle of a member that is held, as a member of a body.
func (f *graphFlow) handle(key string) string { return `"handle":"` + f.held[key].Handle + `"` }

// TestGraph_Workers: workers that add to the graph which they work on. model.md "auto_finish", dynamic fan-out.
func TestGraph_Workers(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphWorkersCases)
}

var graphWorkersCases = []graphCase{
	{"the holder of a member fans out, and the flow ends when that has ended, too", func(g *graphTest) {
		f := g.graph("", "plan", "end < plan")
		f.claim("plan")
		w := f.byWorker()
		built := flowAs[oapi.BuiltGraph](w.call("graph", joined(f.lines("p1", "p2", "sum < p1! p2!"), f.handle("plan"))).Want(http.StatusCreated))
		maps.Copy(f.of, built.Executions)
		m := flowAs[oapi.FlowMember](w.call("members", joined(`"execution":`+f.line("p3"), f.handle("plan"))).Want(http.StatusCreated))
		f.of["p3"] = m.Execution.ID
		w.call("edges", joined(f.ends("p3", "sum"), `"pass_result":true`, f.handle("plan"))).Want(http.StatusCreated)
		alone := g.w.on("alone").create("")
		f.idle(http.StatusForbidden, func() *apitest.Response {
			return w.call("members", joined(`"execution_id":"`+alone.ID.String()+`"`, f.handle("plan")))
		})
		f.call("members", `"execution_id":"`+alone.ID.String()+`"`).Want(http.StatusCreated)
		g.w.on("alone").operated(alone.ID, "operator-cancel", `"reason":"no"`)
		f.states("active: plan; cancelled: " + alone.ID.String() + "; waiting: p1 p2 p3; waiting_children: end sum")
		f.complete("plan", "p1", "p2", "p3", "end")
		g.stands(f.ID, "running", 1)
		f.claim("sum")
		if n := len(f.held["sum"].Inputs); n != 3 {
			g.t.Errorf("%d inputs", n)
		}
		f.complete("sum")
		g.stands(f.ID, "failed", 2) // because of the one that was cancelled
	}},
	{"without a handle a worker changes no graph", func(g *graphTest) {
		f := g.graph("", "a", "b")
		w := f.byWorker()
		for _, call := range w.additions("") {
			g.facts(f.denied(fault.CodeForbidden, call), map[string]any{"required_role": "operator"})
		}
		f.denied(fault.CodeForbidden, func() *apitest.Response { return w.policy("b", `"kind":"any_of"`) })
		for _, verb := range []string{"cancel", "replay", "fail"} {
			f.denied(fault.CodeForbidden, func() *apitest.Response { return w.call(verb, `"from":"failed"`) })
		}
	}},
	{"a handle that is no good any more changes no graph", func(g *graphTest) {
		f := g.graph("", "a", "b", "new0", "h1", "h2", "h3", "h4", "h5")
		w := f.byWorker()
		for _, c := range []struct {
			key  string
			code fault.Code
			lose func()
		}{
			{"h1", fault.CodeExecutionNotActive, func() { f.report("h1", "complete", "").Want(http.StatusOK) }},
			{"h2", fault.CodeLeaseRevoked, func() { f.w.operator(f.of["h2"], "revoke-lease", "").Want(http.StatusOK) }},
			{"h3", fault.CodeExecutionNotActive, func() { f.report("h3", "release", "").Want(http.StatusOK) }},
			{"h4", fault.CodeStaleLease, func() {
				f.w.operator(f.of["h4"], "revoke-lease", "").Want(http.StatusOK)
				f.w.on("h4").claim(lasting)
			}},
			{"h5", fault.CodeLeaseExpired, func() { g.advance(2 * time.Hour) }},
		} {
			f.claim(c.key)
			c.lose()
			for _, by := range []*graphFlow{w, f} { // an operator who sends a handle means it
				for _, call := range by.additions(f.handle(c.key)) {
					f.denied(c.code, call)
				}
			}
		}
	}},
	{"a handle is good for the flow of its execution only", func(g *graphTest) {
		f, other := g.graph("", "a", "b", "new0"), g.graph("", "x")
		other.claim("x")
		alone := g.w.on("new")
		alone.create("")
		far := graphsOn(g.t, g.server, g.namespace+"-other").graph("", "y")
		far.claim("y")
		w := f.byWorker()
		single := `"handle":"` + alone.claim(lasting).Handle + `"`
		for handle, code := range map[string]fault.Code{other.handle("x"): fault.CodeExecutionNotInFlow, single: fault.CodeExecutionNotInFlow, far.handle("y"): fault.CodeNotFound,
			`"handle":"nonsense"`: fault.CodeInvalidHandle} {
			for _, call := range w.additions(handle) {
				f.denied(code, call)
			}
		}
	}},
	{"a worker adds only to a flow that has not ended", func(g *graphTest) {
		f := g.graph("", "a", "b", "h")
		f.claim("h")
		g.do(f.ID, "cancel", `{"policy":"flow_only"}`)
		for _, call := range f.byWorker().additions(f.handle("h")) {
			f.denied(fault.CodeAlreadyTerminal, call)
		}
		f.complete("a", "b", "h")
	}},
	{"the actor and the cause of what a worker adds are told", func(g *graphTest) {
		f := g.graph("", "a")
		f.claim("a")
		w := f.byWorker()
		f.of["b"] = uuid.MustParse(w.call("graph", joined(f.lines("b < a", "c < b"), f.handle("a"))).Want(http.StatusCreated).Str("executions.b"))
		changed := f.log("flow.graph_changed")
		if last := changed[len(changed)-1]; len(changed) != 2 || last.Actor[:6] != "token:" || last.Revision != nil {
			g.t.Errorf("%+v", changed)
		}
		g.data(changed[1], map[string]any{"executions": 2.0, "edges": 2.0, "graph_revision": 5.0, "node_count": 3.0, "edge_count": 2.0})
		for _, e := range f.log("execution.created")[1:] {
			if e.Actor != changed[1].Actor {
				g.t.Errorf("%+v", e)
			}
		}
		f.complete("a")
		f.claim("b")
		g.stands(f.ID, "running", 1)
	}},
}

// additions are the calls that add to the graph of f.
func (f *graphFlow) additions(handle string) []func() *apitest.Response {
	with := func(part, members string) func() *apitest.Response {
		return func() *apitest.Response { return f.call(part, joined(members, handle)) }
	}
	return []func() *apitest.Response{with("members", `"execution":`+f.line("new")), with("graph", f.lines("new", "more < new")), with("edges", f.ends("a", "b"))}
}
