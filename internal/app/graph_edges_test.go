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

// edgesOf lists edges, page by page.
func (f *graphFlow) edgesOf(query string) []oapi.FlowEdge {
	f.t.Helper()
	var all []oapi.FlowEdge
	for next := "?limit=2" + query; ; {
		page := flowAs[oapi.FlowEdgeList](f.Get(flowPath(f.ID, "edges") + next).Want(http.StatusOK))
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all
		}
		next = "?limit=2" + query + "&cursor=" + *page.NextCursor
	}
}

// TestGraph_Edges: edges that are staged one by one. flows-streams-budgets.md 2.3, 2.4, 10.1, 10.2, 11.
func TestGraph_Edges(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphEdgesCases)
}

var graphEdgesCases = []graphCase{
	{"a member that is needed by its key and by its id is needed twice", func(g *graphTest) {
		f := g.graph("", "a")
		id := f.of["a"].String()
		for _, needs := range []string{"a " + id, id + " " + strings.ToUpper(id), strings.ToUpper(id) + " a"} {
			answer := f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines("b < "+needs)) })
			g.points(answer, fault.InBody, "/executions/0/needs/1")
			answer = f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("members", `"execution":`+f.line("b < "+needs)) })
			g.points(answer, fault.InBody, "/execution/needs/1")
		}
	}},
	{"an edge to what was let go by others changes nothing, and its upstream is not cancelled", func(g *graphTest) {
		f := g.graph("", "a", "b", "j any cancel < a b", "c")
		f.complete("a")
		f.states("cancelled: b; completed: a; waiting: c j")
		fired := f.group("j").FiredAt
		g.advance(time.Second)
		f.edge("c", "j")
		f.states("cancelled: b; completed: a; waiting: c j")
		if got := f.group("j"); got.FiredAt == nil || fired == nil || !got.FiredAt.Equal(*fired) || got.State != "satisfied" || got.TotalDeps != 3 {
			g.t.Errorf("%+v", got)
		}
	}},
	{"an edge blocks its downstream at once, and is told (stage_and_apply_edge_happy_path, describe_edge_api, defect 1)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		f.stand("b", atWaiting)
		id := uuid.New()
		staged := f.edge("a", "b", fmt.Sprintf(`"edge_id":%q,"pass_result":true,"dependency_kind":"success_only","expected_graph_revision":2`, id))
		f.stand("b", atBlocked)
		f.none("b")
		if staged.GraphRevision != 3 || staged.Edge.EdgeID != id || !staged.Edge.PassResult || staged.Edge.State != "pending" || staged.Edge.ResolvedAt != nil || staged.Edge.FlowID != f.ID {
			g.t.Errorf("%+v", staged)
		}
		if got := flowAs[oapi.FlowEdge](g.Get(flowPath(f.ID, "edges", id.String())).Want(http.StatusOK)); cmp.Diff(staged.Edge, got) != "" {
			g.t.Errorf("%s", cmp.Diff(staged.Edge, got))
		}
		f.size(2, 1)
		g.stands(f.ID, "running", 1)
		g.data(f.log("flow.edge_staged")[0], map[string]any{"edge_id": id.String(), "upstream_execution_id": f.of["a"].String(), "downstream_execution_id": f.of["b"].String(),
			"pass_result": true, "state": "pending", "graph_revision": 3.0, "edge_count": 1.0})
		g.causes(f.ID, "flow.edge_staged", map[string]int{"execution.blocked": 1})
		f.complete("a")
		if got := flowAs[oapi.FlowEdge](g.Get(flowPath(f.ID, "edges", id.String())).Want(http.StatusOK)); got.State != "satisfied" || got.ResolvedAt == nil {
			g.t.Errorf("%+v", got)
		}
		f.complete("b")
	}},
	{"who has reserved a member that is blocked then has not, and no operator lets it go", func(g *graphTest) {
		f := g.graph("", "a", "b")
		w := f.w.on("b")
		grant := w.reserved("")
		f.edge("a", "b")
		f.denied(fault.CodeExecutionNotLeaseable, func() *apitest.Response { return w.use(grant, "claim", "") })
		f.denied(fault.CodeExecutionNotEligible, func() *apitest.Response { return w.operator(f.of["b"], "operator-claim", "") })
		f.denied(fault.CodeNotSuspended, func() *apitest.Response { return w.operator(f.of["b"], "resume", "") })
		w.reserve("").Want(http.StatusNoContent)
		w.operated(f.of["b"], "priority", `"priority":7`)
		f.stand("b", atBlocked)
		f.complete("a")
		if f.claim("b"); f.held["b"].Execution.Priority != 7 {
			g.t.Errorf("%+v", f.held["b"].Execution)
		}
		f.complete("b")
	}},
	{"a stale revision is refused with what it is, and changes nothing (stage_dependency_edge_rejects_stale_revision)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		for _, revision := range []int{0, 1, 3} {
			answer := f.denied(fault.CodeStaleGraphRevision, func() *apitest.Response { return f.stage("a", "b", fmt.Sprint(`"expected_graph_revision":`, revision)) })
			g.facts(answer, map[string]any{"expected": float64(revision), "actual": 2.0, "retryable": true})
		}
		f.edge("a", "b")
	}},
	{"of many at one revision one wins, and the others do when they try again (9.3)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "d", "e", "f", "g")
		ups := []string{"b", "c", "d", "e", "f", "g"}
		for n := len(ups); n > 0; n-- {
			revision := g.flow(f.ID).GraphRevision
			answers := flowsAtOnce(n, func(i int) *apitest.Response {
				return f.stage("a", ups[i], fmt.Sprint(`"expected_graph_revision":`, revision))
			})
			var lost []string
			for i, answer := range answers {
				if answer.Status == http.StatusCreated {
					continue
				}
				g.facts(answer.Problem(fault.CodeStaleGraphRevision), map[string]any{"expected": float64(revision), "actual": float64(revision + 1)})
				lost = append(lost, ups[i])
			}
			if len(lost) != n-1 {
				g.t.Fatalf("%d of %d lost", len(lost), n)
			}
			ups = lost
		}
		f.size(7, 6)
	}},
	{"edges that would close a cycle together: one comes too late (9.3)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c")
		cycles := 0
		for _, answer := range flowsAtOnce(3, func(i int) *apitest.Response { return f.stage([]string{"a", "b", "c"}[i], []string{"b", "c", "a"}[i]) }) {
			if answer.Status != http.StatusCreated {
				answer.Problem(fault.CodeCycleDetected)
				cycles++
			}
		}
		if cycles != 1 {
			g.t.Errorf("%d were refused", cycles)
		}
	}},
	{"the same edge again is answered as it is, at whatever revision; other content is refused (defect 17)", func(g *graphTest) {
		f, other := g.graph("", "a", "b", "c"), g.graph("", "a", "b")
		id := fmt.Sprintf(`"edge_id":%q`, uuid.New())
		f.edge("a", "b", id, `"expected_graph_revision":3`)
		for _, more := range []string{id, id + `,"expected_graph_revision":3`, id + `,"expected_graph_revision":99`, "", `"expected_graph_revision":3`} {
			again := f.idle(http.StatusOK, func() *apitest.Response { return f.stage("a", "b", more) })
			if again.Header.Get("Idempotent-Replay") != "true" || again.Int("graph_revision") != 4 {
				g.t.Errorf("%v %s", again.Header, again.Body)
			}
		}
		f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.stage("a", "c", id) })
		f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.stage("b", "c", id) })
		f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.stage("a", "b", id, `"pass_result":true`) })
		f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.stage("a", "b", `"pass_result":true`) })
		other.edge("a", "b", id) // an edge's id is its flow's
		g.do(f.ID, "cancel", "")
		if again := f.idle(http.StatusOK, func() *apitest.Response { return f.stage("a", "b", id) }); again.Str("edge.state") != "impossible" {
			g.t.Errorf("%s", again.Body)
		}
		f.denied(fault.CodeAlreadyTerminal, func() *apitest.Response { return f.stage("a", "c") })
	}},
	{"the same pair is one edge, whatever its id (defect 16)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		f.edge("a", "b", fmt.Sprintf(`"edge_id":%q`, uuid.New()))
		f.denied(fault.CodeAlreadyExists, func() *apitest.Response { return f.stage("a", "b", fmt.Sprintf(`"edge_id":%q`, uuid.New())) })
		f.groups("b", "pending of 1: 0 satisfied, 0 failed, 0 skipped")
		wins := 0
		f.build("c")
		for _, answer := range flowsAtOnce(6, func(int) *apitest.Response { return f.stage("a", "c") }) {
			if answer.Status == http.StatusCreated {
				wins++
			} else {
				answer.Want(http.StatusOK)
			}
		}
		if wins != 1 {
			g.t.Errorf("%d were new", wins)
		}
		f.size(3, 2)
	}},
	{"what is wrong first is told first (stage order, defect 19)", func(g *graphTest) {
		f, other := g.graph("", "a", "b < a", "c < b"), g.graph("", "x")
		alone := g.w.create("")
		f.of["x"], f.of["alone"], f.of["nobody"] = other.of["x"], alone.ID, uuid.New()
		g.facts(f.denied(fault.CodeSelfReferencingEdge, func() *apitest.Response { return f.stage("a", "a", `"expected_graph_revision":99`) }), map[string]any{"execution_id": f.of["a"].String()})
		g.refused(fault.CodeSelfReferencingEdge, func() *apitest.Response { return g.Post(flowPath(uuid.New(), "edges"), "{"+f.ends("a", "a")+"}") })
		g.facts(g.refused(fault.CodeNotFound, func() *apitest.Response { return g.Post(flowPath(uuid.New(), "edges"), "{"+f.ends("a", "b")+"}") }), map[string]any{"resource": "flow"})
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		far.refused(fault.CodeNotFound, func() *apitest.Response { return far.Post(flowPath(f.ID, "edges"), "{"+f.ends("a", "c")+"}") })
		f.denied(fault.CodeStaleGraphRevision, func() *apitest.Response { return f.stage("c", "a", `"expected_graph_revision":99`) })
		for _, ends := range [][2]string{{"a", "x"}, {"x", "a"}, {"alone", "a"}, {"a", "alone"}, {"nobody", "a"}, {"a", "nobody"}} {
			answer := f.denied(fault.CodeExecutionNotInFlow, func() *apitest.Response { return f.stage(ends[0], ends[1]) })
			id := f.of[ends[0]]
			if ends[0] == "a" {
				id = f.of[ends[1]]
			}
			g.facts(answer, map[string]any{"execution_id": id.String()})
		}
		answer := f.denied(fault.CodeCycleDetected, func() *apitest.Response { return f.stage("c", "a") })
		g.facts(answer, map[string]any{"path": []any{"a", "b", "c", "a"}})
		f.claim("a")
		f.denied(fault.CodeChildAlreadyStarted, func() *apitest.Response { return f.stage("c", "a") }) // the child first
		f.Post(flowPath(f.ID, "edges"), "{"+f.ends("a", "c")+`,"dependency_kind":"always"}`).Problem(fault.CodeValidationFailed)
		for part, body := range map[string]string{"edges": f.ends("a", "c") + `,"now":1`, "members": `"execution_id":"` + f.of["a"].String() + `","now":1`, "cancel": `"now":1`} { // defect 62
			f.points(f.denied(fault.CodeValidationFailed, func() *apitest.Response { return f.call(part, body) }), "body", "/now")
		}
		f.Post(flowPath(f.ID, "edges"), `{"upstream_execution_id":"x","downstream_execution_id":"y"}`).Want(http.StatusUnprocessableEntity)
	}},
	{"a child that has started gets no further dependencies", func(g *graphTest) {
		f := g.graph("", "up", "active", "lost", "suspended", "released", "retried", "delayed", "children", "completed", "failed", "cancelled", "expired", "revoked", "skipped < failed")
		for key, how := range map[string][2]string{"active": {}, "suspended": {"suspend", waitForGo}, "released": {"release", ""}, "delayed": {"delay", `"delay_ms":3600000`}, "children": {"wait-children", ""},
			"completed": {"complete", ""}, "failed": {"fail", `"reason":"x","category":"permanent"`}, "cancelled": {"cancel", `"reason":"x"`}} {
			f.claim(key)
			if how[0] != "" {
				f.report(key, how[0], how[1]).Want(http.StatusOK)
			}
		}
		f.claim("revoked")
		f.w.operator(f.of["revoked"], "revoke-lease", "").Want(http.StatusOK)
		f.build(`again | ` + retryPolicy(2))
		f.report("again", "fail", `"reason":"x"`).Want(http.StatusOK)
		for _, key := range []string{"active", "suspended", "released", "delayed", "children", "completed", "failed", "cancelled", "revoked", "skipped", "again"} {
			answer := f.denied(fault.CodeChildAlreadyStarted, func() *apitest.Response { return f.stage("up", key) })
			g.facts(answer, map[string]any{"execution_id": f.of[key].String(), "public_state": string(f.w.get(f.of[key]).PublicState)})
		}
		for _, key := range []string{"lost", "retried", "expired"} { // these have not
			f.edge("up", key)
			f.stand(key, atBlocked)
		}
	}},
	{"a further edge makes undecided again what has not started (model, re-opens its group)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c < a", "d any < a b")
		f.complete("a")
		f.stand("c", atWaiting)
		f.groups("c", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		f.edge("b", "c")
		f.stand("c", atBlocked)
		f.none("c")
		f.groups("c", "pending of 2: 1 satisfied, 0 failed, 0 skipped")
		f.build("e")
		f.edge("e", "d") // of any, one is enough
		f.stand("d", atWaiting)
		f.groups("d", "satisfied of 3: 1 satisfied, 0 failed, 0 skipped")
		f.complete("b")
		f.stand("c", atWaiting)
		f.complete("c", "d", "e")
		g.stands(f.ID, "finished", 2)
	}},
	{"an upstream that has ended decides its edge on the spot (9.11, defect 2)", func(g *graphTest) {
		f := g.graph(`"auto_finish":false`, "good", "bad", "gone", "skip < bad", "late", "w1", "w2", "w3", "w4", "w5", "w6")
		f.complete("good")
		f.fail("bad")
		f.stop("gone")
		for i, c := range []struct {
			up    string
			state oapi.EdgeState
			at    string
		}{{"good", "satisfied", atWaiting}, {"bad", "impossible", atSkipped}, {"gone", "impossible", atSkipped}, {"skip", "impossible", atSkipped}} {
			key := fmt.Sprint("w", i+1)
			staged := f.edge(c.up, key)
			if staged.Edge.State != c.state || staged.Edge.ResolvedAt == nil {
				g.t.Errorf("%+v", staged.Edge)
			}
			f.stand(key, c.at)
			if read := flowAs[oapi.FlowEdge](g.Get(flowPath(f.ID, "edges", staged.Edge.EdgeID.String()))); cmp.Diff(staged.Edge, read) != "" {
				g.t.Errorf("%s", cmp.Diff(staged.Edge, read))
			}
		}
		f.edge("late", "w5")
		f.edge("good", "w5")
		f.stand("w5", atBlocked)
		f.groups("w5", "pending of 2: 1 satisfied, 0 failed, 0 skipped")
		f.edge("bad", "w5")
		f.stand("w5", atSkipped)
		g.causes(f.ID, "flow.edge_staged", map[string]int{"execution.skipped": 4, "execution.blocked": 1})
	}},
	{"edges are listed from and to a member (list_edges, engine_backend_describe_edge_resolve)", func(g *graphTest) {
		f, other := g.graph("", "a", "b < a", "c < a b", "d < a b c", "e"), g.graph("", "a", "b < a")
		pairs := func(query string) []string {
			g.t.Helper()
			list := f.edgesOf(query)
			if !slices.IsSortedFunc(list, func(x, y oapi.FlowEdge) int { return strings.Compare(x.EdgeID.String(), y.EdgeID.String()) }) {
				g.t.Errorf("%+v", list)
			}
			names := map[uuid.UUID]string{}
			for key, id := range f.of {
				names[id] = key
			}
			out := []string{}
			for _, e := range list {
				out = append(out, names[e.UpstreamExecutionID]+names[e.DownstreamExecutionID])
			}
			slices.Sort(out)
			return out
		}
		for query, want := range map[string][]string{"": {"ab", "ac", "ad", "bc", "bd", "cd"}, "&from=" + f.of["a"].String(): {"ab", "ac", "ad"}, "&to=" + f.of["d"].String(): {"ad", "bd", "cd"},
			"&from=" + f.of["b"].String() + "&to=" + f.of["d"].String(): {"bd"}, "&from=" + f.of["d"].String(): {}, "&to=" + f.of["e"].String(): {}, "&from=" + uuid.NewString(): {},
			"&from=" + other.of["a"].String(): {}} {
			if diff := cmp.Diff(want, pairs(query)); diff != "" {
				g.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		foreign := other.view().Edges[0].EdgeID
		for _, send := range []func() *apitest.Response{
			func() *apitest.Response { return g.Get(flowPath(uuid.New(), "edges")) },
			func() *apitest.Response { return far.Get(flowPath(f.ID, "edges")) },
			func() *apitest.Response { return g.Get(flowPath(f.ID, "edges", uuid.NewString())) },
			func() *apitest.Response { return g.Get(flowPath(f.ID, "edges", foreign.String())) },
			func() *apitest.Response { return far.Get(flowPath(other.ID, "edges", foreign.String())) },
			func() *apitest.Response { return f.call("edges/"+foreign.String()+"/apply", "") },
			func() *apitest.Response { return f.call("edges/"+uuid.NewString()+"/apply", "") },
		} {
			f.denied(fault.CodeNotFound, send)
		}
	}},
	{"a big graph is no cycle, and a long cycle is one (defect 7)", func(g *graphTest) {
		lines := []string{`root | "lane":"x"`, "x", "y"}
		for i := range 1100 {
			up := "root"
			if i > 700 {
				up = fmt.Sprint("n", i-1)
			}
			lines = append(lines, fmt.Sprintf(`n%d < %s | "lane":"x"`, i, up))
		}
		f := g.graph("", lines...)
		f.edge("x", "root")
		f.edge("y", "n1")
		answer := f.denied(fault.CodeCycleDetected, func() *apitest.Response { return f.stage("n1099", "x") })
		if n := answer.Len("path"); n != 403 || answer.Str("path.0") != "x" || answer.Str("path.1") != "root" || answer.Str("path.402") != "x" {
			g.t.Errorf("the path has %d members: %.200s", n, answer.Body)
		}
	}},
}
