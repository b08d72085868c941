package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestGraph_Again: requests about a graph that are sent again. http.md "Idempotency-Key"; flows-streams-budgets.md 11, defect 17.
func TestGraph_Again(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphAgainCases)
}

var graphAgainCases = []graphCase{
	{"a key answers the same again, whatever has become of the graph (defect 17)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c")
		alone := g.w.on("alone").create("")
		id := fmt.Sprintf(`"id":%q,`, uuid.New())
		calls := map[string]func(key string) *apitest.Response{
			"flow": func(key string) *apitest.Response { return g.Post("/v1/flows", g.withGraph("", "a", "b < a"), key) },
			"own flow": func(key string) *apitest.Response {
				return g.Post("/v1/flows", "{"+id+strings.TrimPrefix(g.withGraph("", "a", "b < a"), "{"), key)
			},
			"graph":  func(key string) *apitest.Response { return f.call("graph", f.lines("d < a", "e < d"), key) },
			"member": func(key string) *apitest.Response { return f.call("members", `"execution":`+f.line("f < a"), key) },
			"enlisted": func(key string) *apitest.Response {
				return f.call("members", `"execution_id":"`+alone.ID.String()+`"`, key)
			},
			"edge": func(key string) *apitest.Response { return f.call("edges", f.ends("a", "b"), key) },
			"apply": func(key string) *apitest.Response {
				return f.call("edges/"+f.view().Edges[0].EdgeID.String()+"/apply", "", key)
			},
		}
		answers := map[string]*apitest.Response{}
		for _, name := range []string{"flow", "own flow", "graph", "member", "enlisted", "edge", "apply"} {
			answers[name] = calls[name]("Idempotency-Key: " + name)
			if name != "apply" {
				answers[name].Want(http.StatusCreated)
			}
		}
		edges := "edges/" + answers["apply"].Str("edge.edge_id") + "/apply"
		calls["apply"] = func(key string) *apitest.Response { return f.call(edges, "", key) }
		repeat := func() {
			g.t.Helper()
			for name, call := range calls {
				again := f.idle(answers[name].Status, func() *apitest.Response { return call("Idempotency-Key: " + name) })
				if string(again.Body) != string(answers[name].Body) || again.Header.Get("Idempotent-Replay") != "true" {
					g.t.Errorf("%s: %v\n%s\n%s", name, again.Header, answers[name].Body, again.Body)
				}
			}
		}
		repeat()
		f.complete("a")
		repeat()
		g.do(f.ID, "cancel", "")
		repeat()
		f.denied(fault.CodeIdempotencyMismatch, func() *apitest.Response { return f.call("graph", f.lines("z"), "Idempotency-Key: graph") })
	}},
	{"an answer over 64 KiB is rendered again: graphs, whose keys are long", func(g *graphTest) {
		lines := make([]string, 249)
		for i := range lines {
			lines[i] = fmt.Sprintf(`%s%03d | "lane":"x"`, strings.Repeat("k", 240), i)
		}
		f := g.bare("")
		for name, call := range map[string]func() *apitest.Response{
			"flow": func() *apitest.Response {
				return g.Post("/v1/flows", g.withGraph("", lines...), "Idempotency-Key: flow")
			},
			"graph": func() *apitest.Response { return f.call("graph", f.lines(lines...), "Idempotency-Key: graph") },
		} {
			first := call().Want(http.StatusCreated)
			again := f.idle(http.StatusCreated, call)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || len(first.Body) < 64<<10 {
				g.t.Errorf("%s: %v, %d bytes after %d", name, again.Header, len(again.Body), len(first.Body))
			}
			if name == "flow" && again.Header.Get("Location") != first.Header.Get("Location") {
				g.t.Errorf("%v", again.Header)
			}
		}
	}},
	{"an answer over 64 KiB is rendered again: members and replays", func(g *graphTest) {
		big := `"payload":"` + strings.Repeat("x", 70<<10) + `"`
		f := g.graph("", "a")
		member := func() *apitest.Response {
			return f.call("members", `"execution":`+f.line("b < a | "+big), "Idempotency-Key: member")
		}
		first := member().Want(http.StatusCreated)
		f.fail("a")
		f.states("failed: a; skipped: b")
		again := f.idle(http.StatusCreated, member)
		if again.Header.Get("Idempotent-Replay") != "true" || again.Int("node_count") != 2 || again.Int("graph_revision") != first.Int("graph_revision") || again.Str("execution.public_state") != "skipped" {
			g.t.Errorf("%v", again.Header)
		}
		g.stands(f.ID, "failed", 2)
		lines := make([]string, 240)
		for i := range lines {
			lines[i] = fmt.Sprintf(`%s%03d < root | "lane":"x"`, strings.Repeat("k", 240), i)
		}
		f = g.graph("", append(lines, "root")...)
		f.fail("root")
		replay := func() *apitest.Response { return f.call("replay", `"from":"failed"`, "Idempotency-Key: replay") }
		first = replay().Want(http.StatusOK)
		again = f.idle(http.StatusOK, replay)
		if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || len(first.Body) < 64<<10 || again.Len("replayed") != 241 {
			g.t.Errorf("%v, %d bytes after %d", again.Header, len(again.Body), len(first.Body))
		}
	}},
	{"the same key at once makes one graph", func(g *graphTest) {
		f := g.bare("")
		for i, answer := range flowsAtOnce(6, func(int) *apitest.Response { return f.call("graph", f.lines("a", "b < a"), "Idempotency-Key: once") }) {
			if answer.Status == http.StatusConflict {
				answer.Problem(fault.CodeIdempotencyInFlight)
			} else if got := flowAs[oapi.BuiltGraph](answer.Want(http.StatusCreated)); len(got.Executions) != 2 || got.GraphRevision != 3 {
				g.t.Errorf("%d: %+v", i, got)
			}
		}
		if got := g.flow(f.ID); got.NodeCount != 2 || got.EdgeCount != 1 {
			g.t.Errorf("%+v", got)
		}
	}},
	{"the same create at once, with a key each, is one flow, and every answer is that flow", func(g *graphTest) {
		id := uuid.New()
		body := g.withGraph(fmt.Sprintf(`"id":%q`, id), "a", "b < a")
		ask := func(i int) *apitest.Response {
			return g.Post("/v1/flows", body, fmt.Sprintf("Idempotency-Key: %s/%d", id, i))
		}
		made := 0
		for i, answer := range flowsAtOnce(8, ask) {
			if answer.Status == http.StatusCreated {
				made++
			} else {
				answer.Want(http.StatusOK)
			}
			if got := flowAs[oapi.Flow](answer); got.ID != id || got.Graph == nil || len(got.Graph.Executions) != 2 {
				g.t.Errorf("%d: %s", i, answer.Body)
			}
			if again := ask(i).Want(answer.Status); string(again.Body) != string(answer.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				g.t.Errorf("%d is answered otherwise: %s\nafter %s", i, again.Body, answer.Body)
			}
		}
		if made != 1 {
			g.t.Errorf("%d were answered as the one that made it", made)
		}
		f := g.flowOf(g.flow(id))
		f.denied(fault.CodeIdempotencyMismatch, func() *apitest.Response {
			return g.Post("/v1/flows", g.withGraph(`"goal":"another"`, "a"), fmt.Sprintf("Idempotency-Key: %s/1", id))
		})
	}},
	{"the same member at once is one member", func(g *graphTest) {
		f, line := g.bare(""), g.line(fmt.Sprintf(`m | "id":%q`, uuid.New()))
		for _, key := range []bool{false, true} {
			made := 0
			for _, answer := range flowsAtOnce(8, func(i int) *apitest.Response {
				if key {
					return f.call("members", `"execution":`+line, fmt.Sprintf("Idempotency-Key: %s/%d", f.ID, i))
				}
				return f.call("members", `"execution":`+line)
			}) {
				if answer.Status == http.StatusCreated {
					made++
				} else {
					answer.Want(http.StatusOK)
				}
			}
			if got := g.flow(f.ID); made != 1 || got.NodeCount != 1 {
				g.t.Errorf("with keys (%t) %d of them have made %d", key, made, got.NodeCount)
			}
			f, line = g.bare(""), g.line(fmt.Sprintf(`m | "id":%q`, uuid.New()))
		}
	}},
	{"a refusal is not kept", func(g *graphTest) {
		f := g.bare("")
		f.denied(fault.CodeGraphInvalid, func() *apitest.Response { return f.call("graph", f.lines("a < b"), "Idempotency-Key: k") })
		f.call("graph", f.lines("a < b", "b"), "Idempotency-Key: k").Want(http.StatusCreated)
	}},
}
