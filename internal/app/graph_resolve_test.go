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

// chain writes a chain of members: n0, n1 which needs n0, and so on. They stand in one lane.
func chain(n int) []string {
	lines := []string{`n0 | "lane":"chain"`}
	for i := 1; i < n; i++ {
		lines = append(lines, fmt.Sprintf(`n%d < n%d | "lane":"chain"`, i, i-1))
	}
	return lines
}

// counted checks how many members stand where.
func (f *graphFlow) counted(want map[string]int64) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.flow(f.ID).Rollup.Counts); diff != "" {
		f.t.Fatalf("members (-want +got):\n%s", diff)
	}
}

// TestGraph_Resolve: what the end of a member does to those that depend on it. flows-streams-budgets.md 2.6, 10.1, 10.3, 11.
func TestGraph_Resolve(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphResolveCases)
}

var graphResolveCases = []graphCase{
	{"a chain goes on one by one (test_flow_linear_chain, test_flow_full_lifecycle_with_staging, test_server_flow_lifecycle, defect 9)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c < b")
		for i, key := range []string{"a", "b", "c"} {
			f.none([]string{"a", "b", "c"}[i+1:]...)
			n := len(f.w.events(f.of[key]))
			f.stand(key, atWaiting)
			f.complete(key)
			f.stand(key, atCompleted)
			f.w.toldSince(f.of[key], n, "lease.acquired", "execution.completed", "lease.revoked")
		}
		f.w.told(f.of["c"], "execution.created", "execution.eligible", "lease.acquired", "execution.completed", "lease.revoked")
		eligible := f.log("execution.eligible")
		ended := f.log("execution.completed")
		if len(eligible) != 2 || len(ended) != 3 || *eligible[0].Cause != ended[0].ID || *eligible[1].Cause != ended[1].ID {
			g.t.Errorf("%+v after %+v", eligible, ended)
		}
		g.data(eligible[0], map[string]any{"blocking_reason": "waiting_for_worker", "attempt_state": "pending_first_attempt"})
		finished := f.log("flow.finished")
		if len(finished) != 1 || finished[0].Cause == nil || *finished[0].Cause != ended[2].ID || finished[0].Actor != "engine" {
			g.t.Errorf("%+v", finished)
		}
		g.stands(f.ID, "finished", 2)
	}},
	{"one lets many go, and many let one go (test_flow_fan_out)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c < a", "d < b c")
		f.complete("a")
		f.states("completed: a; waiting: b c; waiting_children: d")
		f.claim("b", "c")
		f.complete("c")
		f.stand("d", atBlocked)
		f.complete("b", "d")
		g.stands(f.ID, "finished", 2)
	}},
	{"what cannot run is skipped, down to the end, with causes (test_flow_dependency_failure_propagation, resolve_dependency_child_skip_publish_dag, defect 10)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c < a b", "d < c", "e < d", "f < a")
		f.complete("a")
		f.fail("b")
		f.states("completed: a; failed: b; skipped: c d e; waiting: f")
		f.groups("c", "impossible of 2: 1 satisfied, 1 failed, 0 skipped")
		f.groups("d", "impossible of 1: 0 satisfied, 0 failed, 1 skipped")
		skipped, failed := f.log("execution.skipped"), f.log("execution.failed")
		cause := failed[0].ID
		for i, key := range []string{"c", "d", "e"} {
			if *skipped[i].ExecutionID != f.of[key] || *skipped[i].Cause != cause {
				g.t.Errorf("%+v", skipped[i])
			}
			cause = skipped[i].ID
			g.data(skipped[i], map[string]any{"outcome": "skipped", "reason": "dependency_impossible", "lane": "g-" + key, "kind": ""})
			if e := f.stand(key, atSkipped); e.CompletedAt == nil || e.StartedAt != nil || e.CurrentLease != nil || len(f.w.attempts(e.ID)) != 0 {
				g.t.Errorf("%+v", e)
			}
			f.w.told(f.of[key], "execution.created", "execution.skipped")
		}
		f.complete("f")
		if failed := g.stands(f.ID, "failed", 2); !strings.Contains(failed.Failure.Reason, "b") {
			g.t.Errorf("%+v", failed.Failure)
		}
	}},
	{"every bad end of an upstream is one, and is told once (expire_publish_dag, expire_suspension_publish_dag, defects 4, 22)", func(g *graphTest) {
		for _, c := range []struct {
			name, up string
			end      func(f *graphFlow)
			outcome  oapi.PublicState
		}{
			{"failed", "a", func(f *graphFlow) { f.fail("a") }, "failed"},
			{"cancelled by an operator", "a", func(f *graphFlow) { f.stop("a") }, "cancelled"},
			{"cancelled at work", "a", func(f *graphFlow) { f.claim("a"); f.stop("a") }, "cancelled"},
			{"cancelled by its worker", "a", func(f *graphFlow) { f.report("a", "cancel", `"reason":"x"`).Want(http.StatusOK) }, "cancelled"},
			{"its deadline, waiting", `a | "deadline_at":` + spelled(g.now().Add(time.Minute)), func(f *graphFlow) { f.advance(time.Minute) }, "expired"},
			{"its deadline, at work", `a | "policy":{"timeout_policy":{"execution_deadline_ms":60000}}`, func(f *graphFlow) { f.claim("a"); f.advance(time.Minute) }, "expired"},
			{"its attempt took too long", `a | "policy":{"timeout_policy":{"attempt_timeout_ms":60000}}`, func(f *graphFlow) { f.claim("a"); f.advance(time.Minute) }, "expired"},
			{"suspended, failed", "a", func(f *graphFlow) { f.suspendFor("a", "fail") }, "failed"},
			{"suspended, cancelled", "a", func(f *graphFlow) { f.suspendFor("a", "cancel") }, "cancelled"},
			{"suspended, expired", "a", func(f *graphFlow) { f.suspendFor("a", "expire") }, "expired"},
			{"suspended, stopped", "a", func(f *graphFlow) { f.report("a", "suspend", waitForGo).Want(http.StatusOK); f.stop("a") }, "cancelled"},
		} {
			g.sub(c.name, func(x *flowTest) {
				g := graphsOn(x.t, g.server, g.namespace+strings.NewReplacer(" ", "-", ",", "").Replace(c.name))
				f := g.graph("", c.up, "b < a", "c < b")
				c.end(f)
				f.states(string(c.outcome) + ": a; skipped: b c")
				if n := len(f.log("execution." + string(c.outcome))); n != 1 {
					g.t.Errorf("told %d times", n)
				}
				f.groups("b", "impossible of 1: 0 satisfied, 1 failed, 0 skipped")
				g.stands(f.ID, "failed", 2)
				g.audit(f.ID)
			})
		}
	}},
	{"a failure that is retried, a lost lease and a wait are no ends", func(g *graphTest) {
		f := g.graph("", "a | "+retryPolicy(1), "b < a")
		f.report("a", "fail", `"reason":"x"`).Want(http.StatusOK)
		f.stand("b", atBlocked)
		delete(f.held, "a")
		g.advance(retryDelay)
		f.held["a"] = f.w.on("a").claim(`"lease_ttl_ms":1000`)
		g.advance(time.Second)
		f.stand("b", atBlocked)
		f.claim("a")
		f.report("a", "suspend", waitForGo).Want(http.StatusOK)
		f.stand("b", atBlocked)
		f.w.operated(f.of["a"], "resume", "")
		f.claim("a")
		f.complete("a", "b")
		g.stands(f.ID, "finished", 2)
	}},
	{"an end that is reported again decides nothing again (test_flow_resolve_idempotency, second dispatch NoOp, defects 4, 5)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c", "d any < a c")
		f.claim("a")
		held := f.held["a"]
		f.report("a", "complete", `"result":1`).Want(http.StatusOK)
		f.claim("b", "d")
		for _, send := range []func() *apitest.Response{
			func() *apitest.Response { return f.w.report(held, "complete", `"result":1`) },
			func() *apitest.Response { return f.w.report(held, "complete", `"result":1`) },
		} {
			f.idle(http.StatusOK, send)
		}
		f.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return f.w.report(held, "fail", `"reason":"x"`) })
		f.complete("c") // once fired: who is at work is not let go again
		f.stand("d", atActive)
		f.groups("d", "satisfied of 2: 2 satisfied, 0 failed, 0 skipped")
		f.complete("b", "d")
		g.advance(time.Hour) // and no loop does anything later
		g.stands(f.ID, "finished", 2)
	}},
	{"a member may end before what it depends on, and stays as it is (typed terminal child, 9.9)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c", "d < c")
		f.stop("b", "d")
		f.fail("a")
		f.complete("c")
		f.states("cancelled: b d; completed: c; failed: a")
		f.groups("b", "impossible of 1: 0 satisfied, 1 failed, 0 skipped")
		f.groups("d", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		if n := len(f.log("execution.skipped")); n != 0 {
			g.t.Errorf("%d were skipped", n)
		}
	}},
	{"a deadline ends a member that waits for others, too", func(g *graphTest) {
		f := g.graph("", "a", `b < a | "deadline_at":`+spelled(g.now().Add(time.Minute)), "c < b", "d any < a b")
		f.stand("b", atBlocked)
		g.advance(time.Minute)
		f.states("expired: b; skipped: c; waiting: a; waiting_children: d")
		f.complete("a")
		f.stand("b", atExpiredIdle)
		f.complete("d")
		g.stands(f.ID, "failed", 2) // c needed b
	}},
	{"what may run and why not is told of every member (typed_evaluate_flow_eligibility, defect 11)", func(g *graphTest) {
		f := g.graph("", "free", "active", "blocked < free", "lost", "impossible < lost", "freed < lost2", "lost2")
		f.claim("active")
		f.fail("lost")
		f.complete("lost2")
		alone := g.w.create("")
		f.of["alone"] = alone.ID
		for key, want := range map[string][]string{"free": nil, "alone": nil, "freed": nil, "active": {"phase"}, "blocked": {"dependencies"}, "impossible": {"phase"}, "lost": {"phase"}} {
			got, _ := f.w.explain(f.of[key], "")
			if !slices.Equal(unmet(got), want) || got.Claimable != (want == nil) {
				g.t.Errorf("%s: %v", key, unmet(got))
			}
		}
		g.Get("/v1/executions/" + uuid.NewString() + "/explain").Problem(fault.CodeNotFound)
		f.complete("free")
		if got, _ := f.w.explain(f.of["blocked"], ""); !got.Claimable {
			g.t.Errorf("%+v", got)
		}
	}},
	{"explain says what a member waits for", func(g *graphTest) {
		f := g.graph("", "a", "b", "c 2 < a b")
		f.complete("a")
		got, gates := f.w.explain(f.of["c"], "")
		if gate := gates["dependencies"]; gate.Met || got.Claimable || !slices.Equal(unmet(got), []string{"dependencies"}) {
			g.t.Errorf("%+v", got)
		}
		want := map[string]any{"blocking_reason": "waiting_for_children", "kind": "quorum", "need": 2.0, "total_deps": 2.0, "satisfied_count": 1.0, "failed_count": 0.0, "skipped_count": 0.0,
			"waits_for": []any{map[string]any{"execution_id": f.of["b"].String(), "key": "b", "public_state": "waiting"}}}
		explained := g.Get(operatorPath(f.of["c"], "explain"))
		for i, gate := range got.Gates {
			if gate.Gate == "dependencies" {
				if diff := cmp.Diff(want, explained.Get(fmt.Sprintf("gates.%d.evidence", i))); diff != "" {
					g.t.Errorf("(-want +got):\n%s", diff)
				}
			}
		}
		f.complete("b")
		if got, _ := f.w.explain(f.of["c"], ""); !got.Claimable {
			g.t.Errorf("%+v", got)
		}
	}},
	{"a claim that waits is woken by the end that lets a member go", func(g *graphTest) {
		f := g.graph("", "a", "b < a")
		f.claim("a")
		w := f.w.on("b").waiting(func() *apitest.Response { return f.w.on("b").ask(lasting, "Prefer: wait=20") })
		f.complete("a")
		if got := w.got(); got.Execution.ID != f.of["b"] {
			g.t.Errorf("%+v", got)
		}
	}},
	{"a chain of sixty and one of four hundred are skipped to their ends (9.9, crash after hop 1, 3-hop chain, defect 20)", func(g *graphTest) {
		for _, n := range []int{60, 400} {
			f := g.graph("", chain(n)...)
			w := executionsOn(g.t, g.server, "chain")
			w.Client = g.Client
			w.report(w.claim(lasting), "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK)
			if n > 250 { // the rest follows
				if at := f.flow(f.ID); at.Status != "running" || at.Rollup.Counts["waiting_children"] == 0 || at.Rollup.Counts["skipped"] < 100 {
					g.t.Errorf("%s, %+v", at.Status, at.Rollup)
				}
				g.audit(f.ID)
				g.server.Settle()
			}
			f.counted(map[string]int64{"failed": 1, "skipped": int64(n - 1)})
			g.stands(f.ID, "failed", 2)
			if n := len(f.log("execution.skipped")); n != len(f.of)-1 {
				g.t.Errorf("%d are told", n)
			}
		}
	}},
	{"one that three hundred wait for lets them all go, and skips them all (8 groups drain under load)", func(g *graphTest) {
		for _, end := range []string{"complete", "fail"} {
			lines := []string{"root"}
			for i := range 300 {
				lines = append(lines, fmt.Sprintf(`n%d < root | "lane":"many"`, i))
			}
			f := g.graph("", lines...)
			if end == "complete" {
				f.complete("root")
				g.server.Settle()
				f.counted(map[string]int64{"completed": 1, "waiting": 300})
				g.do(f.ID, "cancel", "")
				g.server.Settle()
				f.counted(map[string]int64{"completed": 1, "cancelled": 300})
			} else {
				f.fail("root")
				g.server.Settle()
				f.counted(map[string]int64{"failed": 1, "skipped": 300})
				g.stands(f.ID, "failed", 2)
			}
		}
	}},
	{"more than one transaction's siblings are cancelled, each once", func(g *graphTest) {
		lines := []string{"winner"}
		needs := []string{"winner"}
		for i := range 260 {
			lines = append(lines, fmt.Sprintf(`n%d | "lane":"many"`, i))
			needs = append(needs, fmt.Sprint("n", i))
		}
		f := g.graph("", append(lines, "end any cancel < "+strings.Join(needs, " "))...)
		f.complete("winner")
		f.stand("end", atWaiting)
		g.server.Settle()
		f.counted(map[string]int64{"completed": 1, "cancelled": 260, "waiting": 1})
		f.groups("end", "satisfied of 261: 1 satisfied, 260 failed, 0 skipped")
		if n := len(f.log("execution.cancelled")); n != 260 {
			g.t.Errorf("%d are told", n)
		}
		f.complete("end")
		g.stands(f.ID, "finished", 2)
	}},
	{"many ends at once decide what they should (concurrent completions)", func(g *graphTest) {
		var ups []string
		for i := range 12 {
			ups = append(ups, fmt.Sprint("u", i))
		}
		f := g.graph("", append(ups, "all < "+strings.Join(ups, " "), "any any cancel < "+strings.Join(ups[:6], " "), "last < all any")...)
		f.claim(ups...)
		flowsAtOnce(12, func(i int) *apitest.Response { return f.w.report(f.held[ups[i]], "complete", "") })
		counts := g.flow(f.ID).Rollup.Counts
		if counts["active"] != 0 || counts["completed"]+counts["cancelled"] != 12 {
			g.t.Errorf("%v", counts)
		}
		if counts["cancelled"] > 0 { // then those were cancelled as siblings
			f.stand("all", atSkipped)
		} else {
			f.stand("all", atWaiting)
		}
		f.stand("any", atWaiting)
	}},
}

// suspendFor suspends a member until a timeout that has this behaviour, and lets it pass.
func (f *graphFlow) suspendFor(key, behaviour string) {
	f.t.Helper()
	f.report(key, "suspend", waitForGo+`,"timeout_ms":60000,"timeout_behavior":"`+behaviour+`"`).Want(http.StatusOK)
	f.advance(time.Minute)
}
