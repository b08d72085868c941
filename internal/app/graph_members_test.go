package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// enlist adds an execution that exists.
func (f *graphFlow) enlist(id uuid.UUID) *apitest.Response {
	f.t.Helper()
	return f.call("members", `"execution_id":"`+id.String()+`"`)
}

// size checks how many members and edges are counted.
func (f *graphFlow) size(nodes, edges int64) {
	f.t.Helper()
	if got := f.flow(f.ID); got.NodeCount != nodes || got.EdgeCount != edges || got.GraphRevision != nodes+edges {
		f.t.Errorf("%d members and %d edges at graph revision %d, want %d and %d", got.NodeCount, got.EdgeCount, got.GraphRevision, nodes, edges)
	}
}

// TestGraph_Members: members that are added one by one. flows-streams-budgets.md 2.2, 10.1.
func TestGraph_Members(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphMembersCases)
}

var graphMembersCases = []graphCase{
	{"members are counted as they come (test_flow_create_and_membership, flow_id_visible_to_subsequent_reads)", func(g *graphTest) {
		x := g.running("")
		f := &graphFlow{graphTest: g, ID: x.ID}
		for i := range 3 {
			e := g.w.create("")
			m := flowAs[oapi.FlowMember](f.enlist(e.ID).Want(http.StatusCreated))
			if m.NodeCount != int64(i+1) || m.GraphRevision != int64(i+1) || *m.Execution.FlowID != f.ID || m.Execution.Revision != e.Revision+1 {
				g.t.Errorf("%+v", m)
			}
			if got := g.w.get(e.ID); *got.FlowID != f.ID {
				g.t.Errorf("%+v", got)
			}
		}
		f.size(3, 0)
		if n := g.Get("/v1/executions?flow_id=" + f.ID.String()).Want(http.StatusOK).Len("items"); n != 3 {
			g.t.Errorf("%d members are listed", n)
		}
		f.rolled("open waiting=3")
		g.stands(f.ID, "running", 1) // members move without the revision
		g.told(f.ID, "flow.created", "flow.started", "flow.member_added", "flow.member_added", "flow.member_added")
		last, data := g.last(f.ID)
		if last.Revision != nil || data["node_count"] != 3.0 || data["graph_revision"] != 3.0 || data["execution_id"] == nil {
			g.t.Errorf("%+v %v", last, data)
		}
	}},
	{"the same member again is answered as it is, and nothing moves (repeat_call_is_idempotent, add_execution_bumps)", func(g *graphTest) {
		f := g.graph("", "a")
		again := f.idle(http.StatusOK, func() *apitest.Response { return f.enlist(f.of["a"]) })
		if again.Header.Get("Idempotent-Replay") != "true" || again.Int("node_count") != 1 || again.Int("graph_revision") != 1 || again.Str("execution.id") != f.of["a"].String() {
			g.t.Errorf("%s", again.Body)
		}
		own := `"execution":` + f.line(fmt.Sprintf(`b < a | "id":%q`, uuid.New()))
		f.call("members", own).Want(http.StatusCreated)
		again = f.idle(http.StatusOK, func() *apitest.Response { return f.call("members", own) })
		if again.Header.Get("Idempotent-Replay") != "true" || again.Str("execution.key") != "b" {
			g.t.Errorf("%s", again.Body)
		}
		f.size(2, 1)
	}},
	{"what is not there changes nothing (flow_not_found_commits_nothing, execution_not_found_commits_nothing, partition_mismatch, defect 19)", func(g *graphTest) {
		f := g.graph("", "a")
		e := g.w.create("")
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		farFlow, farOne := far.bare(""), far.w.create("")
		for _, id := range []uuid.UUID{uuid.New(), farFlow.ID} {
			answer := g.refused(fault.CodeNotFound, func() *apitest.Response {
				return g.Post(flowPath(id, "members"), `{"execution_id":"`+e.ID.String()+`"}`)
			})
			g.facts(answer, map[string]any{"resource": "flow"})
			g.refused(fault.CodeNotFound, func() *apitest.Response { return g.Post(flowPath(id, "members"), `{"execution":`+g.line("x")+`}`) })
		}
		for _, id := range []uuid.UUID{uuid.New(), farOne.ID} {
			answer := f.denied(fault.CodeNotFound, func() *apitest.Response { return f.enlist(id) })
			g.facts(answer, map[string]any{"resource": "execution"})
		}
		if got := g.w.get(e.ID); got.FlowID != nil {
			g.t.Errorf("%+v", got)
		}
		if got := far.w.get(farOne.ID); got.FlowID != nil {
			g.t.Errorf("%+v", got)
		}
	}},
	{"an execution belongs to one flow, for good (already_member_of_different_flow, 9.2)", func(g *graphTest) {
		f, other := g.graph("", "a"), g.bare("")
		answer := g.refused(fault.CodeAlreadyMember, func() *apitest.Response { return other.enlist(f.of["a"]) }, f.ID, other.ID)
		g.facts(answer, map[string]any{"flow_id": f.ID.String()})
		answer = other.denied(fault.CodeGraphInvalid, func() *apitest.Response {
			return other.call("members", `"execution":`+f.line(fmt.Sprintf(`b | "id":%q`, f.of["a"])))
		})
		g.points(answer, "body", "/execution/id")
	}},
	{"what has ended or is worked on may join; what joins a created flow is paused", func(g *graphTest) {
		for _, status := range []oapi.FlowStatus{"created", "running", "waiting"} {
			f := &graphFlow{graphTest: g, ID: g.at(status).ID}
			paused := map[bool]string{true: atPaused, false: atWaiting}[status == "created"]
			for _, c := range []struct{ make, before, after string }{
				{"", atWaiting, paused}, {`"delay_ms":60000`, atDelayed, map[bool]string{true: atPaused, false: atDelayed}[status == "created"]},
				{"active", atActive, atActive}, {"suspend", atSuspended, atSuspended}, {"release", atReleased, atReleased}, {"complete", atCompleted, atCompleted},
			} {
				w := g.w.on(string(status) + strings.Trim(c.make, `"_:0123456789`))
				var e oapi.Execution
				switch c.make {
				case "active", "release", "complete":
					e = w.create("")
					held := w.claim(lasting)
					if c.make != "active" {
						w.report(held, c.make, "").Want(http.StatusOK)
					}
				case "suspend":
					e, _ = w.suspended("")
				case "", `"delay_ms":60000`:
					e = w.create(c.make)
				}
				w.stands(e.ID, c.before)
				m := flowAs[oapi.FlowMember](f.enlist(e.ID).Want(http.StatusCreated))
				if got := w.stands(e.ID, c.after); got.Revision != m.Execution.Revision || got.PublicState != m.Execution.PublicState {
					g.t.Errorf("answered %+v, read %+v", m.Execution, got)
				}
			}
			f.size(6, 0)
			if r := g.flow(f.ID).Rollup; r.Total != 6 || r.Counts["completed"] != 1 || r.Counts["active"] != 1 || r.Counts["suspended"] != 1 {
				g.t.Errorf("%+v", r)
			}
		}
	}},
	{"a reservation ends when the member is paused", func(g *graphTest) {
		f := g.flowOf(g.at("created"))
		e := g.w.create("")
		grant := g.w.reserved("")
		f.enlist(e.ID).Want(http.StatusCreated)
		g.w.use(grant, "claim", "").Problem(fault.CodeExecutionNotLeaseable)
		g.w.stands(e.ID, atPaused)
	}},
	{"a new member comes with what it depends on, in one request (defect 1)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		f.complete("a")
		if m := f.add("c < a b!"); m.Execution.PublicState != "waiting_children" || m.NodeCount != 3 || m.GraphRevision != 5 {
			g.t.Errorf("%+v", m)
		}
		f.groups("c", "pending of 2: 1 satisfied, 0 failed, 0 skipped")
		if m := f.add("d < a"); m.Execution.PublicState != "waiting" {
			g.t.Errorf("%+v", m)
		}
		f.fail("b")
		if m := f.add("e < b"); m.Execution.PublicState != "skipped" {
			g.t.Errorf("%+v", m)
		}
		for lines, pointer := range map[string]string{"x < nobody": "/execution/needs/0", "a": "/execution/key", "x < x": "/execution/needs/0", "x 2 < a": "/execution/join/quorum",
			"x < a b a": "/execution/needs/2", "x any": "/execution/join"} {
			answer := f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("members", `"execution":`+f.line(lines)) })
			g.points(answer, "body", pointer)
		}
		far := g.w.create("")
		for _, members := range []string{`"execution_id":"` + far.ID.String() + `","execution":` + f.line("x"), `"handle":"x"`} {
			f.Post(flowPath(f.ID, "members"), "{"+members+"}").Want(map[bool]int{true: 422, false: 400}[members != `"handle":"x"`])
		}
		f.size(5, 4)
	}},
	{"a member without a key is known by its id", func(g *graphTest) {
		f := g.bare("")
		m := flowAs[oapi.FlowMember](f.call("members", `"execution":`+g.w.sent("")).Want(http.StatusCreated))
		f.build("b < " + m.Execution.ID.String())
		f.states("waiting: " + m.Execution.ID.String() + "; waiting_children: b")
	}},
	{"an execution that is created for a flow is a member of it", func(g *graphTest) {
		f := g.bare("")
		e := g.w.create(`"key":"a",` + of(f.ID))
		last, data := g.last(f.ID)
		if last.Type != "flow.member_added" || data["execution_id"] != e.ID.String() || data["key"] != "a" || data["node_count"] != 1.0 || data["graph_revision"] != 1.0 {
			g.t.Errorf("%+v %v", last, data)
		}
		f.of["a"] = e.ID
		f.build("b < a")
		f.states("waiting: a; waiting_children: b")
		items := g.Post("/v1/executions/batch", `{"executions":[`+g.w.sent(of(f.ID))+`,`+g.w.sent(of(f.ID))+`]}`).Want(http.StatusCreated)
		if items.Len("items") != 2 || len(f.log("flow.member_added")) != 3 {
			g.t.Errorf("%s", items.Body)
		}
		f.size(4, 1)
		f.rolled("blocked waiting=3 waiting_children=1")
	}},
	{"a flow that has ended takes no members (test_cancel_empty_flow_then_add_member, test_flow_index_self_heal_on_add, 9.4)", func(g *graphTest) {
		for _, s := range []oapi.FlowStatus{"finished", "failed", "cancelled"} {
			f := g.flowOf(g.at(s))
			e := g.w.create("")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return f.enlist(e.ID) },
				func() *apitest.Response { return f.call("members", `"execution":`+f.line("a")) },
			} {
				g.facts(f.denied(fault.CodeAlreadyTerminal, call), map[string]any{"current_status": string(s)})
			}
			if got := g.flow(f.ID); got.Rollup != nil || got.NodeCount != 0 {
				g.t.Errorf("%+v", got)
			}
		}
	}},
	{"many at once are all counted (concurrent_distinct_execs)", func(g *graphTest) {
		f := g.bare("")
		one := g.w.create("")
		answers := flowsAtOnce(12, func(i int) *apitest.Response {
			switch i % 3 {
			case 0:
				return f.call("members", `"execution":`+f.line(fmt.Sprint("m", i)))
			case 1:
				return f.enlist(one.ID)
			default:
				return f.call("graph", f.lines(fmt.Sprint("g", i), fmt.Sprintf("h%d < g%d", i, i)))
			}
		})
		enlisted := 0
		for i, answer := range answers {
			if i%3 == 1 && answer.Status == http.StatusOK {
				continue
			}
			answer.Want(http.StatusCreated)
			if i%3 == 1 {
				enlisted++
			}
		}
		if enlisted != 1 {
			g.t.Errorf("one execution was enlisted %d times", enlisted)
		}
		f.size(4+1+8, 4)
	}},
	{"two flows want one execution: one gets it", func(g *graphTest) {
		f, other := g.bare(""), g.bare("")
		e := g.w.create("")
		won := 0
		for _, answer := range flowsAtOnce(8, func(i int) *apitest.Response { return []*graphFlow{f, other}[i%2].enlist(e.ID) }) {
			switch answer.Status {
			case http.StatusCreated:
				won++
			case http.StatusOK:
			default:
				answer.Problem(fault.CodeAlreadyMember)
			}
		}
		if n := g.flow(f.ID).NodeCount + g.flow(other.ID).NodeCount; won != 1 || n != 1 {
			g.t.Errorf("%d flows got it, %d count it", won, n)
		}
	}},
	{"the way through from an empty flow to its end (http_postgres_smoke, test_server_full_flow_lifecycle, flow_build_cancel_roundtrip, defect 3)", func(g *graphTest) {
		f := g.bare("")
		for _, key := range []string{"a", "b", "c"} {
			f.add(key)
		}
		first := f.edge("a", "c", `"expected_graph_revision":3`)
		unsatisfied := func(e oapi.StagedFlowEdge, want int64) {
			g.t.Helper()
			applied := f.idle(http.StatusOK, func() *apitest.Response { return f.call("edges/"+e.Edge.EdgeID.String()+"/apply", "") })
			if applied.Int("unsatisfied_count") != want || applied.Str("edge.edge_id") != e.Edge.EdgeID.String() {
				g.t.Errorf("%s", applied.Body)
			}
		}
		unsatisfied(first, 1)
		second := f.edge("b", "c", `"expected_graph_revision":4`)
		if first.GraphRevision != 4 || second.GraphRevision != 5 {
			g.t.Errorf("%+v %+v", first, second)
		}
		unsatisfied(second, 2)
		unsatisfied(first, 2)
		f.stand("c", atBlocked)
		f.complete("a")
		unsatisfied(first, 1)
		f.none("c")
		f.complete("b")
		unsatisfied(first, 0)
		f.complete("c")
		f.rolled("completed completed=3")
		g.stands(f.ID, "running", 1) // it was not asked to end by itself
		g.do(f.ID, "finish", "")
	}},
	{"a delay is kept to, wherever a member waits first", func(g *graphTest) {
		f := g.graph(`"start":false`, "a", `late < a | "delay_ms":120000`, `soon < a | "delay_ms":1000`)
		f.stand("late", atBlocked)
		g.advance(time.Minute)
		g.do(f.ID, "start", "")
		f.stand("late", atBlocked)
		f.complete("a")
		f.stand("late", atDelayed)
		f.stand("soon", atWaiting)
		f.none("late")
		g.advance(time.Minute)
		f.complete("late", "soon")
		g.stands(f.ID, "finished", 2)
	}},
}
