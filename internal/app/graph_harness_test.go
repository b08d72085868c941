package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// graphTest is one case about graphs, in a namespace that nobody else uses. What it makes is audited when it ends.
type graphTest struct {
	*flowTest
	w    *executionTest
	made *[]uuid.UUID
}

// graphCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type graphCase struct {
	name string
	run  func(g *graphTest)
}

// runGraphCases runs cases one after the other on one server for each database. The clock stands still, and nothing happens by
// itself, until a case moves it.
func runGraphCases(t *testing.T, cases []graphCase) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				g := graphsOn(t, s, fmt.Sprintf("g%d", i))
				c.run(g)
				for _, id := range *g.made {
					g.audit(id)
				}
			})
		}
	})
}

func graphsOn(t *testing.T, s *apptest.Server, namespace string) *graphTest {
	t.Helper()
	x := flowsOn(t, s, namespace)
	return &graphTest{flowTest: x, w: x.workers("g"), made: new([]uuid.UUID)}
}

// line writes one execution of a graph as JSON. A line is "key"; "key < a b!", which needs a, and b with its result; "key any < a b";
// "key 2 cancel < a b c", a quorum that cancels the rest. Further members follow "|". Each stands in a lane of its own, the case's
// lane with its key, unless it has another.
func (g *graphTest) line(text string) string {
	head, members, _ := strings.Cut(text, "|")
	head, needs, _ := strings.Cut(head, "<")
	words := strings.Fields(head)
	key := words[0]
	parts := []string{fmt.Sprintf(`"key":%q`, key)}
	for _, word := range words[1:] {
		switch word {
		case "cancel":
			parts = append(parts, `"on_satisfied":"cancel_remaining"`)
		case "let":
			parts = append(parts, `"on_satisfied":"let_run"`)
		case "any", "all":
			parts = append(parts, fmt.Sprintf(`"join":%q`, word))
		default:
			parts = append(parts, `"join":{"quorum":`+word+`}`)
		}
	}
	var all []string
	for need := range strings.FieldsSeq(needs) {
		name, passed := strings.CutSuffix(need, "!")
		if passed {
			all = append(all, fmt.Sprintf(`{"key":%q,"pass_result":true}`, name))
		} else {
			all = append(all, quoted(name))
		}
	}
	if len(all) > 0 {
		parts = append(parts, `"needs":[`+strings.Join(all, ",")+`]`)
	}
	if members = strings.TrimSpace(members); members != "" {
		parts = append(parts, members)
	}
	return flowBody(strings.Join(parts, ","), fmt.Sprintf(`"lane":%q`, g.w.lane+"-"+key))
}

// lines writes the executions of a graph as a member.
func (g *graphTest) lines(lines ...string) string {
	all := make([]string, len(lines))
	for i, text := range lines {
		all[i] = g.line(text)
	}
	return `"executions":[` + strings.Join(all, ",") + `]`
}

// graphFlow is a flow with the members that the case knows of, by their keys.
type graphFlow struct {
	*graphTest
	ID   uuid.UUID
	of   map[string]uuid.UUID
	held map[string]oapi.Claim // the last claim of each
}

// flowOf takes a flow into the case.
func (g *graphTest) flowOf(f oapi.Flow) *graphFlow {
	*g.made = append(*g.made, f.ID)
	out := &graphFlow{graphTest: g, ID: f.ID, of: map[string]uuid.UUID{}, held: map[string]oapi.Claim{}}
	if f.Graph != nil {
		maps.Copy(out.of, f.Graph.Executions)
	}
	return out
}

// withGraph is the body that creates a flow with a graph.
func (g *graphTest) withGraph(members string, lines ...string) string {
	return flowBody(joined(members, `"graph":{`+g.lines(lines...)+`}`), `"goal":"Release 1.4"`)
}

// graph creates a flow with a graph, and further members.
func (g *graphTest) graph(members string, lines ...string) *graphFlow {
	g.t.Helper()
	return g.flowOf(flowAs[oapi.Flow](g.Post("/v1/flows", g.withGraph(members, lines...)).Want(http.StatusCreated)))
}

// bare creates a running flow without members.
func (g *graphTest) bare(members string) *graphFlow {
	g.t.Helper()
	return g.flowOf(g.running(members))
}

// call posts to a part of the flow.
func (f *graphFlow) call(part, members string, headers ...string) *apitest.Response {
	f.t.Helper()
	return f.Post(flowPath(f.ID)+"/"+part, "{"+members+"}", headers...)
}

// build adds to the graph.
func (f *graphFlow) build(lines ...string) oapi.BuiltGraph {
	f.t.Helper()
	built := flowAs[oapi.BuiltGraph](f.call("graph", f.lines(lines...)).Want(http.StatusCreated))
	maps.Copy(f.of, built.Executions)
	return built
}

// add adds one member from a line.
func (f *graphFlow) add(text string) oapi.FlowMember {
	f.t.Helper()
	m := flowAs[oapi.FlowMember](f.call("members", `"execution":`+f.line(text)).Want(http.StatusCreated))
	f.of[*m.Execution.Key] = m.Execution.ID
	return m
}

// ends writes the ends of an edge, as members.
func (f *graphFlow) ends(up, down string) string {
	return fmt.Sprintf(`"upstream_execution_id":%q,"downstream_execution_id":%q`, f.of[up], f.of[down])
}

// edge stages an edge; more are further members.
func (f *graphFlow) edge(up, down string, more ...string) oapi.StagedFlowEdge {
	f.t.Helper()
	return flowAs[oapi.StagedFlowEdge](f.stage(up, down, more...).Want(http.StatusCreated))
}

// stage asks for an edge.
func (f *graphFlow) stage(up, down string, more ...string) *apitest.Response {
	f.t.Helper()
	return f.call("edges", joined(append([]string{f.ends(up, down)}, more...)...))
}

// policy says when the dependencies of a member are satisfied.
func (f *graphFlow) policy(key, members string) *apitest.Response {
	f.t.Helper()
	return f.Do(http.MethodPut, flowPath(f.ID, "edge-groups", f.of[key].String()), "{"+members+"}")
}

// claim claims members, each of which must be there to be claimed.
func (f *graphFlow) claim(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		c := f.w.on(key).claim(lasting)
		if c.Execution.ID != f.of[key] {
			f.t.Fatalf("%s was claimed instead of %s", c.Execution.ID, key)
		}
		f.held[key] = c
	}
}

// report makes a call of the worker of a member, who claims it first unless it is held.
func (f *graphFlow) report(key, op, members string) *apitest.Response {
	f.t.Helper()
	if _, held := f.held[key]; !held {
		f.claim(key)
	}
	return f.w.report(f.held[key], op, members)
}

// complete ends members well.
func (f *graphFlow) complete(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.report(key, "complete", `"result":`+quoted(key)).Want(http.StatusOK)
		delete(f.held, key)
	}
}

// fail ends members badly.
func (f *graphFlow) fail(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.report(key, "fail", `"reason":"boom","category":"permanent"`).Want(http.StatusOK)
		delete(f.held, key)
	}
}

// stop cancels members, as an operator.
func (f *graphFlow) stop(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.w.operated(f.of[key], "operator-cancel", `"reason":"no"`)
	}
}

// again replays members, one by one.
func (f *graphFlow) again(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.w.operated(f.of[key], "replay", "")
	}
}

// none finds nothing to claim of some members.
func (f *graphFlow) none(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.w.on(key).none("")
	}
}

// view reads the graph.
func (f *graphFlow) view() oapi.FlowGraph {
	f.t.Helper()
	return flowAs[oapi.FlowGraph](f.Get(flowPath(f.ID, "graph")).Want(http.StatusOK))
}

// name is the key of a member, or its id.
func name(n *oapi.FlowNode) string {
	if n.Key != nil {
		return *n.Key
	}
	return n.ExecutionID.String()
}

// states checks how all members stand: "completed: a b; waiting: c".
func (f *graphFlow) states(want string) {
	f.t.Helper()
	by := map[string][]string{}
	nodes := f.view().Nodes
	for i := range nodes {
		state := string(nodes[i].PublicState)
		by[state] = append(by[state], name(&nodes[i]))
	}
	var got []string
	for _, state := range slices.Sorted(maps.Keys(by)) {
		got = append(got, state+": "+strings.Join(slices.Sorted(slices.Values(by[state])), " "))
	}
	if text := strings.Join(got, "; "); text != want {
		f.t.Fatalf("the members stand\nat   %s\nwant %s", text, want)
	}
}

// group returns what a member depends on.
func (f *graphFlow) group(key string) oapi.FlowEdgeGroup {
	f.t.Helper()
	for _, group := range f.view().Groups {
		if group.DownstreamExecutionID == f.of[key] {
			return group
		}
	}
	f.t.Fatalf("%s has no group", key)
	return oapi.FlowEdgeGroup{}
}

// groups checks where the group of a member stands: "pending of 3: 1 satisfied, 0 failed, 1 skipped".
func (f *graphFlow) groups(key, want string) {
	f.t.Helper()
	group := f.group(key)
	got := fmt.Sprintf("%s of %d: %d satisfied, %d failed, %d skipped", group.State, group.TotalDeps, group.SatisfiedCount, group.FailedCount, group.SkippedCount)
	if got != want {
		f.t.Fatalf("the group of %s is %s, want %s", key, got, want)
	}
}

// stand checks where one member stands, in all dimensions.
func (f *graphFlow) stand(key, want string) oapi.Execution {
	f.t.Helper()
	return f.w.stands(f.of[key], want)
}

// rolled checks the flow's rollup: "running active=1 completed=2".
func (f *graphFlow) rolled(want string) {
	f.t.Helper()
	r := f.flow(f.ID).Rollup
	words := []string{string(r.State)}
	for _, state := range slices.Sorted(maps.Keys(r.Counts)) {
		words = append(words, fmt.Sprintf("%s=%d", state, r.Counts[state]))
	}
	if got := strings.Join(words, " "); got != want {
		f.t.Fatalf("the rollup is %s, want %s", got, want)
	}
}

// denied checks that a call is refused with a code, and that neither the flow nor any table is changed.
func (f *graphFlow) denied(code fault.Code, call func() *apitest.Response) *apitest.Response {
	f.t.Helper()
	return f.refused(code, call, f.ID)
}

// idle checks that a call changes nothing and answers with a status.
func (f *graphFlow) idle(status int, call func() *apitest.Response) *apitest.Response {
	f.t.Helper()
	return f.same(call, f.ID).Want(status)
}

// log reads the events of the flow and of its members of one type, the oldest first; "" for all.
func (f *graphFlow) log(eventType string) []oapi.Event {
	f.t.Helper()
	var all []oapi.Event
	for after := int64(0); ; {
		p := answerAs[oapi.EventList](f.Get(fmt.Sprintf("/v1/events?flow_id=%s&limit=500&after=%d", f.ID, after)).Want(http.StatusOK))
		all = append(all, p.Items...)
		if !p.More {
			break
		}
		after = p.NextCursor
	}
	return slices.DeleteFunc(all, func(e oapi.Event) bool { return eventType != "" && e.Type != eventType })
}

// data checks what an event tells.
func (g *graphTest) data(e oapi.Event, want map[string]any) {
	g.t.Helper()
	if diff := cmp.Diff(want, eventData(g.t, e)); diff != "" {
		g.t.Errorf("%s tells (-want +got):\n%s", e.Type, diff)
	}
}

// Where a member stands, beside those of the other harnesses.
const (
	atBlocked       = "runnable unowned blocked_by_dependencies waiting_for_children none pending_first_attempt waiting_children"
	atReplayBlocked = "runnable unowned blocked_by_dependencies waiting_for_children none pending_replay_attempt waiting_children"
	atSkipped       = "terminal unowned not_applicable none skipped none skipped"
)
