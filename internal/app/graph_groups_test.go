package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestGraph_Groups: when the dependencies of a member are satisfied. flows-streams-budgets.md 2.5, 2.6, 10.3, 11.
func TestGraph_Groups(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphGroupsCases)
}

var graphGroupsCases = []graphCase{
	{"a policy is set before there are edges, and is told once (set policy Set then AlreadySet, defects 15, 59)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		for _, c := range []struct {
			body, kind, on string
			k              any
		}{{`"kind":"any_of"`, "any_of", "let_run", nil}, {`"kind":"any_of","on_satisfied":"cancel_remaining"`, "any_of", "cancel_remaining", nil},
			{`"kind":"quorum","k":3`, "quorum", "let_run", 3.0}, {`"kind":"quorum","k":2,"on_satisfied":"let_run"`, "quorum", "let_run", 2.0}, {`"kind":"all_of"`, "all_of", "let_run", nil}} {
			n := len(f.log("flow.group_set"))
			answer := f.policy("b", c.body).Want(http.StatusOK)
			g.facts(answer, map[string]any{"kind": c.kind, "on_satisfied": c.on, "k": c.k, "state": "pending", "total_deps": 0.0, "downstream_execution_id": f.of["b"].String()})
			f.idle(http.StatusOK, func() *apitest.Response { return f.policy("b", c.body) })
			told := f.log("flow.group_set")
			if len(told) != n+1 {
				g.t.Fatalf("%d more events", len(told)-n)
			}
			want := map[string]any{"execution_id": f.of["b"].String(), "kind": c.kind, "on_satisfied": c.on}
			if c.k != nil {
				want["k"] = c.k
			}
			g.data(told[n], want)
		}
		f.stand("b", atWaiting) // a group without edges keeps nobody
		f.size(2, 0)
		f.complete("b")
	}},
	{"a policy must be one (k=0 rejected)", func(g *graphTest) {
		f := g.graph("", "a")
		for body, pointer := range map[string]string{`"kind":"quorum"`: "/k", `"kind":"quorum","k":0`: "/k", `"kind":"any_of","k":1`: "/k", `"kind":"all_of","on_satisfied":"cancel_remaining"`: "/on_satisfied",
			`"kind":"some"`: "/kind", `"kind":"any_of","on_satisfied":"x"`: "/on_satisfied", `"k":1`: "/kind"} {
			g.points(f.denied(fault.CodeValidationFailed, func() *apitest.Response { return f.policy("a", body) }), "body", pointer)
		}
	}},
	{"a policy is fixed once there is an edge (policy rejected after staging, defect 15)", func(g *graphTest) {
		f := g.graph("", "a", "b any < a", "c < a")
		g.facts(f.denied(fault.CodePolicyFixed, func() *apitest.Response { return f.policy("b", `"kind":"all_of"`) }), map[string]any{"kind": "any_of"})
		f.denied(fault.CodePolicyFixed, func() *apitest.Response { return f.policy("b", `"kind":"any_of","on_satisfied":"cancel_remaining"`) })
		f.denied(fault.CodePolicyFixed, func() *apitest.Response { return f.policy("c", `"kind":"quorum","k":1`) })
		f.idle(http.StatusOK, func() *apitest.Response { return f.policy("b", `"kind":"any_of"`) })
		f.complete("a")
		f.denied(fault.CodePolicyFixed, func() *apitest.Response { return f.policy("b", `"kind":"all_of"`) })
	}},
	{"a policy is that of a member, of a flow that goes on (defects 15, 19)", func(g *graphTest) {
		f, other := g.graph("", "a"), g.graph("", "b")
		put := func(flow, id uuid.UUID) func() *apitest.Response {
			return func() *apitest.Response {
				return g.Do(http.MethodPut, flowPath(flow, "edge-groups", id.String()), `{"kind":"any_of"}`)
			}
		}
		g.refused(fault.CodeNotFound, put(uuid.New(), f.of["a"]))
		f.denied(fault.CodeExecutionNotInFlow, put(f.ID, uuid.New()))
		f.denied(fault.CodeExecutionNotInFlow, put(f.ID, other.of["b"]))
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		far.refused(fault.CodeNotFound, func() *apitest.Response {
			return far.Do(http.MethodPut, flowPath(f.ID, "edge-groups", f.of["a"].String()), `{"kind":"any_of"}`)
		})
		g.do(f.ID, "cancel", "")
		f.denied(fault.CodeAlreadyTerminal, put(f.ID, f.of["a"]))
	}},
	{"no policy is all_of, and so is one that says so (stage_a, explicit and implicit)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "explicit all < a b c", "implicit < a b c", "set")
		f.policy("set", `"kind":"all_of"`).Want(http.StatusOK)
		for _, up := range []string{"a", "b", "c"} {
			f.edge(up, "set")
		}
		for i, up := range []string{"a", "b", "c"} {
			for _, key := range []string{"explicit", "implicit", "set"} {
				f.groups(key, fmt.Sprintf("pending of 3: %d satisfied, 0 failed, 0 skipped", i))
				f.stand(key, atBlocked)
			}
			f.complete(up)
		}
		for _, key := range []string{"explicit", "implicit", "set"} {
			f.groups(key, "satisfied of 3: 3 satisfied, 0 failed, 0 skipped")
			f.stand(key, atWaiting)
		}
		f.complete("explicit", "implicit", "set")
	}},
	{"a quorum of more edges than there are waits for them (defects 6, 15)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c")
		f.policy("c", `"kind":"quorum","k":2`).Want(http.StatusOK)
		f.complete("a")
		f.edge("a", "c")
		f.stand("c", atBlocked)
		f.groups("c", "pending of 1: 1 satisfied, 0 failed, 0 skipped")
		_, gates := f.w.explain(f.of["c"], "")
		if gate := gates["dependencies"]; gate.Met || gate.Hint != "Stage more edges to it." {
			g.t.Errorf("%+v", gate)
		}
		f.edge("b", "c")
		f.stand("c", atBlocked)
		f.complete("b")
		f.stand("c", atWaiting)
		f.complete("c")
		g.stands(f.ID, "finished", 2)
	}},
	{"any and quorum are decided by the one that makes up the number (stages b and c, e2e_any_of_cancel_remaining_cascade, defects 8, 22, 23)", func(g *graphTest) {
		for _, c := range []struct {
			join string
			need int
			on   string
		}{{"any", 1, "cancel"}, {"any", 1, "let"}, {"1", 1, "cancel"}, {"3", 3, "cancel"}, {"3", 3, "let"}, {"5", 5, "cancel"}} {
			g.sub(strings.Join([]string{c.join, c.on}, " "), func(x *flowTest) {
				g := graphsOn(x.t, g.server, g.namespace+c.join+c.on)
				ups := []string{"a", "b", "c", "d", "e"}
				f := g.graph("", append(ups, fmt.Sprintf("z %s %s < a b c d e", c.join, c.on), "after < z")...)
				f.claim("d") // at work when the others decide
				if c.need < 4 {
					f.claim("e")
					f.report("e", "suspend", waitForGo).Want(http.StatusOK)
				}
				for i, up := range ups[:c.need] {
					f.groups("z", fmt.Sprintf("pending of 5: %d satisfied, 0 failed, 0 skipped", i))
					f.stand("z", atBlocked)
					f.complete(up)
				}
				f.stand("z", atWaiting)
				rest := ups[c.need:]
				g.fireOnce(f, rest, c.on == "cancel", "sibling_quorum_satisfied")
				f.complete("z", "after")
				if c.on == "let" {
					g.stands(f.ID, "running", 1)
					f.report("e", "complete", "").Problem(fault.CodeExecutionNotActive)
					f.w.operated(f.of["e"], "resume", "")
					delete(f.held, "e")
					f.complete("e")
					for _, up := range rest[:len(rest)-1] {
						f.fail(up) // nobody needs them any more
					}
					f.groups("z", fmt.Sprintf("satisfied of 5: %d satisfied, %d failed, 0 skipped", c.need+1, len(rest)-1))
				}
				g.stands(f.ID, "finished", 2)
				g.audit(f.ID)
			})
		}
	}},
	{"they are impossible when too few are left (stage_b impossible, stage_c, quorum impossible)", func(g *graphTest) {
		for _, c := range []struct {
			join string
			lose int
			on   string
		}{{"any", 5, "cancel"}, {"3", 3, "cancel"}, {"3", 3, "let"}, {"5", 1, "cancel"}} {
			g.sub(strings.Join([]string{c.join, c.on}, " "), func(x *flowTest) {
				g := graphsOn(x.t, g.server, g.namespace+c.join+c.on)
				ups := []string{"a", "b", "c", "d", "e"}
				f := g.graph("", append(ups, fmt.Sprintf("z %s %s < a b c d e", c.join, c.on), "after < z", "other any < after d")...)
				for i, up := range ups[:c.lose] {
					f.groups("z", fmt.Sprintf("pending of 5: 0 satisfied, %d failed, 0 skipped", i))
					if i == 1 {
						f.stop(up)
					} else {
						f.fail(up)
					}
				}
				f.stand("z", atSkipped)
				f.stand("after", atSkipped)
				rest := ups[c.lose:]
				g.fireOnce(f, rest, c.on == "cancel", "sibling_quorum_impossible")
				if c.on == "let" {
					f.complete("d", "e")
					f.groups("z", "impossible of 5: 2 satisfied, 3 failed, 0 skipped")
					f.stand("z", atSkipped)
					f.complete("other")
				}
				g.stands(f.ID, "failed", 2)
				g.audit(f.ID)
			})
		}
	}},
	{"what is not needed any more is not cancelled twice, nor what has ended (stage_d, 9.10)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "y any cancel < a b c", "z 2 cancel < a b c")
		f.fail("b")
		f.complete("a")
		f.states("cancelled: c; completed: a; failed: b; skipped: z; waiting: y")
		if n := len(f.log("execution.cancelled")); n != 1 {
			g.t.Errorf("%d were cancelled", n)
		}
		f.groups("y", "satisfied of 3: 1 satisfied, 2 failed, 0 skipped")
		f.groups("z", "impossible of 3: 1 satisfied, 2 failed, 0 skipped")
	}},
	{"one cancelled sibling decides others, and so on (9.10)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "first any cancel < a b", "second < b c", "third any cancel < second c")
		f.complete("a")
		f.states("cancelled: b; completed: a; skipped: second; waiting: c first; waiting_children: third")
		f.complete("c", "first", "third")
		g.stands(f.ID, "failed", 2) // b was needed by second
	}},
	{"fifty upstreams are counted right, whatever their order (stage_e 50-way fan-in, 50-way fan-out)", func(g *graphTest) {
		var ups []string
		for i := range 50 {
			ups = append(ups, fmt.Sprintf("u%02d", i))
		}
		lines := []string{"all < " + strings.Join(ups, " "), "any any < " + strings.Join(ups, " "), "quorum 40 < " + strings.Join(ups, " ")}
		for _, up := range ups {
			lines = append(lines, up+` < root | "lane":"ups"`)
		}
		f := g.graph("", append(lines, "root")...)
		f.complete("root")
		var body []string
		w := executionsOn(g.t, g.server, "ups")
		w.Client = g.Client
		for _, c := range w.claims(`"max":50,` + lasting) {
			body = append(body, fmt.Sprintf(`{"execution_id":%q,"handle":%q,"result":1}`, c.Execution.ID, c.Handle))
		}
		if len(body) != 50 {
			g.t.Fatalf("%d were claimed", len(body))
		}
		flowsAtOnce(5, func(i int) *apitest.Response {
			return g.Post("/v1/completions", `{"items":[`+strings.Join(body[10*i:10*i+10], ",")+`]}`)
		})
		f.groups("all", "satisfied of 50: 50 satisfied, 0 failed, 0 skipped")
		f.groups("quorum", "satisfied of 50: 50 satisfied, 0 failed, 0 skipped")
		f.groups("any", "satisfied of 50: 50 satisfied, 0 failed, 0 skipped")
		eligible := map[uuid.UUID]int{}
		for _, e := range f.log("execution.eligible") {
			eligible[*e.ExecutionID]++
		}
		if eligible[f.of["all"]] != 1 || eligible[f.of["any"]] != 1 || eligible[f.of["quorum"]] != 1 {
			g.t.Errorf("told as eligible: %v", eligible)
		}
		f.complete("all", "any", "quorum")
		g.stands(f.ID, "finished", 2)
	}},
	{"the order in which upstreams end does not matter (9.7)", func(g *graphTest) {
		outcomes := map[string]func(f *graphFlow, key string){"ok": func(f *graphFlow, key string) { f.complete(key) }, "bad": func(f *graphFlow, key string) { f.fail(key) },
			"no": func(f *graphFlow, key string) { f.stop(key) }}
		ends := []string{"ok", "bad", "ok", "no"}
		var first map[string]oapi.PublicState
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
			f := g.graph("", "u0", "u1", "u2", "u3", "all < u0 u1 u2 u3", "any any < u0 u1 u2 u3", "q2 2 < u0 u1 u2 u3", "q3 3 < u0 u1 u2 u3")
			for _, i := range order {
				outcomes[ends[i]](f, fmt.Sprint("u", i))
			}
			got := map[string]oapi.PublicState{}
			for _, n := range f.view().Nodes {
				got[*n.Key] = n.PublicState
			}
			if first == nil {
				first = got
			}
			if diff := cmp.Diff(first, got); diff != "" {
				g.t.Errorf("%v (-first +then):\n%s", order, diff)
			}
			f.complete("any", "q2")
		}
	}},
}

// fireOnce checks what became of the upstreams that a decided group did not wait for: they are cancelled, once, with the reason, or
// let run; and that their ends decide nothing again.
func (g *graphTest) fireOnce(f *graphFlow, rest []string, cancelled bool, reason string) {
	g.t.Helper()
	by := map[string]int{}
	for _, e := range f.log("execution.cancelled") {
		data := eventData(g.t, e)
		if data["reason"] == reason {
			by[e.ExecutionID.String()]++
			if e.Cause == nil {
				g.t.Errorf("%+v", e)
			}
		}
	}
	for _, key := range rest {
		e := f.w.get(f.of[key])
		if told := by[e.ID.String()]; told != map[bool]int{true: 1}[cancelled] || (e.PublicState == "cancelled") != cancelled {
			g.t.Errorf("%s is %s, told %d times", key, e.PublicState, told)
			continue
		}
		if cancelled && (e.Cancellation == nil || e.Cancellation.Reason != reason || e.Cancellation.Actor != "engine") {
			g.t.Errorf("%s: %+v", key, e.Cancellation)
		}
		c, held := f.held[key]
		if cancelled && held { // the late worker is fenced
			f.w.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return f.w.report(c, "complete", `"result":1`) }, e.ID)
			delete(f.held, key)
			if e.CurrentLease != nil || f.w.reason(e.ID, "lease.revoked") == "" {
				g.t.Errorf("%s: lease %+v", key, e.CurrentLease)
			}
		}
	}
	if len(by) != map[bool]int{true: len(rest)}[cancelled] {
		g.t.Errorf("cancelled were %v", by)
	}
}
