package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestGraph_Rollup: what members add up to, and how a flow ends by itself. flows-streams-budgets.md 1.3, 1.4; model.md "Rollup",
// "auto_finish"; defect 18.
func TestGraph_Rollup(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphRollupCases)
}

var graphRollupCases = []graphCase{
	{"each state is counted, and the word follows (1.3)", func(g *graphTest) {
		f := g.bare("")
		if r := g.flow(f.ID).Rollup; r != nil {
			g.t.Errorf("%+v", r)
		}
		f.build("a", "b")
		f.rolled("open waiting=2")
		f.build("c < a")
		f.rolled("blocked waiting=2 waiting_children=1")
		f.claim("b")
		f.rolled("running active=1 waiting=1 waiting_children=1")
		f.report("b", "suspend", waitForGo).Want(http.StatusOK)
		f.rolled("blocked suspended=1 waiting=1 waiting_children=1")
		f.w.operated(f.of["b"], "resume", `"resume_delay_ms":60000`)
		f.rolled("blocked delayed=1 waiting=1 waiting_children=1")
		f.fail("a")
		f.rolled("blocked delayed=1 failed=1 skipped=1")
		g.advance(time.Minute)
		f.rolled("open failed=1 skipped=1 waiting=1")
		f.claim("b")
		f.complete("b")
		f.rolled("failed completed=1 failed=1 skipped=1")
		if v := f.view(); v.Rollup.State != "failed" || v.Rollup.Total != 3 {
			g.t.Errorf("%+v", v.Rollup)
		}
		g.stands(f.ID, "running", 1) // and the revision is the controller's
		for _, listed := range g.list("") {
			if listed.ID == f.ID && (listed.Rollup == nil || listed.Rollup.Counts["failed"] != 1) {
				g.t.Errorf("%+v", listed.Rollup)
			}
		}
	}},
	{"how a flow ends by itself (model, auto_finish)", func(g *graphTest) {
		for _, c := range []struct {
			name  string
			lines []string
			do    func(f *graphFlow)
			end   oapi.FlowStatus
			rests string
		}{
			{"all end well", []string{"a", "b < a"}, func(f *graphFlow) { f.complete("a", "b") }, "finished", "completed completed=2"},
			{"one that nothing needs fails", []string{"a", "b"}, func(f *graphFlow) { f.complete("a"); f.fail("b") }, "failed", "failed completed=1 failed=1"},
			{"one that all need fails", []string{"a", "b < a"}, func(f *graphFlow) { f.fail("a") }, "failed", "failed failed=1 skipped=1"},
			{"a loser of any", []string{"a", "b", "c any < a b"}, func(f *graphFlow) { f.fail("a"); f.complete("b", "c") }, "finished", "completed completed=2 failed=1"},
			{"a loser of any that something else needs", []string{"a", "b", "c any < a b", "d < a"}, func(f *graphFlow) { f.fail("a"); f.complete("b", "c") }, "failed", "failed completed=2 failed=1 skipped=1"},
			{"losers of a quorum", []string{"a", "b", "c", "d 2 < a b c"}, func(f *graphFlow) { f.complete("a", "b", "d"); f.fail("c") }, "finished", "completed completed=3 failed=1"},
			{"too many losers of a quorum", []string{"a", "b", "c", "d 2 < a b c"}, func(f *graphFlow) { f.fail("a", "b"); f.complete("c") }, "failed", "failed completed=1 failed=2 skipped=1"},
			{"cancelled siblings", []string{"a", "b", "c any cancel < a b"}, func(f *graphFlow) { f.complete("a", "c") }, "finished", "completed cancelled=1 completed=2"},
			{"one cancelled by hand", []string{"a", "b"}, func(f *graphFlow) { f.complete("a"); f.stop("b") }, "failed", "failed cancelled=1 completed=1"},
			{"one expired", []string{"a", `b | "policy":{"timeout_policy":{"execution_deadline_ms":60000}}`}, func(f *graphFlow) { f.complete("a"); f.advance(time.Minute) }, "failed", "failed completed=1 expired=1"},
			{"one expired that nobody needed", []string{"a", `b | "policy":{"timeout_policy":{"execution_deadline_ms":60000}}`, "c any < a b"}, func(f *graphFlow) { f.complete("a", "c"); f.advance(time.Minute) }, "finished", "completed completed=2 expired=1"},
			{"the decided one fails after all", []string{"a", "b", "c any < a b"}, func(f *graphFlow) { f.complete("a", "b"); f.fail("c") }, "failed", "failed completed=2 failed=1"},
		} {
			g.sub(c.name, func(x *flowTest) {
				g := graphsOn(x.t, g.server, g.namespace+strings.ReplaceAll(c.name, " ", "-"))
				f := g.graph("", c.lines...)
				c.do(f)
				got := g.stands(f.ID, c.end, 2)
				f.rolled(c.rests)
				last, _ := g.last(f.ID)
				if last.Type != "flow."+string(c.end) || last.Actor != "engine" || last.Cause == nil {
					g.t.Errorf("%+v", last)
				}
				if c.end == "failed" && (got.Failure == nil || !strings.HasPrefix(got.Failure.Reason, "these members did not end well: ")) {
					g.t.Errorf("%+v", got.Failure)
				}
				g.audit(f.ID)
			})
		}
	}},
	{"a failed flow names the first members that did not end well", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "d", "e", "f", "g")
		f.fail("a", "b", "c", "d", "e", "f", "g")
		reason := g.stands(f.ID, "failed", 2).Failure.Reason
		if strings.Count(reason, ", ") != 4 || !strings.HasSuffix(reason, " and others") {
			g.t.Error(reason)
		}
	}},
	{"without auto_finish it runs on, until its controller ends it", func(g *graphTest) {
		f := g.graph(`"auto_finish":false`, "a", "b < a")
		for n := 2.0; n > 0; n-- {
			answer := f.denied(fault.CodeOpenMembers, func() *apitest.Response { return g.verb(f.ID, "finish", "") })
			g.facts(answer, map[string]any{"count": n})
			f.complete(map[float64]string{2: "a", 1: "b"}[n])
		}
		f.rolled("completed completed=2")
		g.stands(f.ID, "running", 1)
		g.do(f.ID, "finish", "")
		f = g.flowOf(g.create(`"start":true,"auto_finish":true`)) // and without members nothing is over
		g.server.Settle()
		g.stands(f.ID, "running", 1)
		f.add("a")
		f.complete("a")
		g.stands(f.ID, "finished", 2)
	}},
	{"a flow that waits is decided when it resumes", func(g *graphTest) {
		for i, end := range []string{"finished", "failed"} {
			f := g.graph("", "a")
			g.park(f.ID, manual)
			if end == "failed" {
				f.fail("a")
			} else {
				f.complete("a")
			}
			g.stands(f.ID, "waiting", 2)
			resumed := g.do(f.ID, "resume", "")
			if string(resumed.Status) != end || resumed.Revision != 4 {
				g.t.Errorf("%d: %+v", i, resumed)
			}
			last, _ := g.last(f.ID)
			told := f.log("flow.resumed")
			if last.Cause == nil || *last.Cause != told[0].ID {
				g.t.Errorf("%+v", last)
			}
		}
		f := g.graph("", "a") // by a timer, too
		g.park(f.ID, g.after(time.Minute))
		f.complete("a")
		g.advance(time.Minute)
		g.stands(f.ID, "finished", 4)
	}},
	{"one whose cancellation is asked for is cancelled when all have ended", func(g *graphTest) {
		f := g.graph("", "a", "b < a")
		g.do(f.ID, "request-cancel", `{"reason":"enough"}`)
		f.complete("a")
		g.stands(f.ID, "running", 2)
		f.complete("b")
		got := g.stands(f.ID, "cancelled", 3)
		if *got.Cancellation.Reason != "enough" || *got.Cancellation.Policy != "cancel_all" {
			g.t.Errorf("%+v", got.Cancellation)
		}
		f.rolled("completed completed=2")
	}},
	{"one that starts when all its members have ended ends at once", func(g *graphTest) {
		f := g.graph(`"start":false`, "a", "b < a")
		f.stop("a")
		g.stands(f.ID, "created", 0)
		f.rolled("failed cancelled=1 skipped=1")
		if started := g.do(f.ID, "start", ""); started.Status != "failed" || started.Revision != 2 {
			g.t.Errorf("%+v", started)
		}
		f = g.flowOf(g.create(`"auto_finish":true`))
		e := g.w.create("")
		g.w.report(g.w.claim(lasting), "complete", "").Want(http.StatusOK)
		g.Post(flowPath(f.ID, "members"), `{"execution_id":"`+e.ID.String()+`"}`).Want(http.StatusCreated)
		*g.made = nil // its end was told before it joined
		if started := g.do(f.ID, "start", ""); started.Status != "finished" {
			g.t.Errorf("%+v", started)
		}
	}},
	{"members may be added until the last has ended", func(g *graphTest) {
		f := g.graph("", "a")
		f.claim("a")
		f.add("b")
		f.complete("a")
		g.stands(f.ID, "running", 1)
		f.claim("b")
		f.build("c < b")
		f.complete("b", "c")
		g.stands(f.ID, "finished", 2)
		f.denied(fault.CodeAlreadyTerminal, func() *apitest.Response { return f.call("members", `"execution":`+f.line("d")) })
	}},
	{"a member that is added to what has all ended decides it", func(g *graphTest) {
		f := g.graph("", "a")
		g.park(f.ID, manual)
		f.fail("a")
		f.build("b < a") // skipped on the spot
		f.add("c < a")
		f.states("failed: a; skipped: b c")
		g.stands(f.ID, "waiting", 2)
		g.do(f.ID, "resume", "")
		g.stands(f.ID, "failed", 4)
	}},
	{"who waits for the end of a flow is told", func(g *graphTest) {
		f := g.graph("", "a")
		w := g.w.waiting(func() *apitest.Response { return g.Get(flowPath(f.ID)+"?until=terminal", "Prefer: wait=20") })
		f.complete("a")
		if got := flowAs[oapi.Flow](w.answered().Want(http.StatusOK)); got.Status != "finished" || got.Rollup.Counts["completed"] != 1 {
			g.t.Errorf("%+v", got)
		}
	}},
	{"a flow that is failed by its controller takes its members along, and they are told (model, fail cascades)", func(g *graphTest) {
		f := g.graph("", "active", "waiting", "blocked < waiting", "deep any cancel < blocked active")
		f.claim("active")
		g.do(f.ID, "fail", `{"reason":"no disk"}`)
		f.states("cancelled: active blocked deep waiting")
		g.causes(f.ID, "flow.failed", map[string]int{"execution.cancelled": 4, "lease.revoked": 1})
		for key := range f.of {
			if e := f.w.get(f.of[key]); e.Cancellation.Reason != "flow_failed" {
				g.t.Errorf("%s: %+v", key, e.Cancellation)
			}
		}
		f.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return f.report("active", "complete", "") })
		if failed := g.stands(f.ID, "failed", 2); failed.Failure.Reason != "no disk" {
			g.t.Errorf("%+v", failed.Failure)
		}
	}},
	{"counts are right while many claim and report at once (1.4)", func(g *graphTest) {
		lines := make([]string, 30)
		for i := range lines {
			lines[i] = fmt.Sprintf(`n%d | "lane":"g-n"`, i)
		}
		f := g.graph("", append(lines, "end < n1 n2 n3")...)
		flowsAtOnce(6, func(int) *apitest.Response {
			var last *apitest.Response
			for {
				answer := f.w.on("n").ask(`"max":2,` + lasting)
				if answer.Status != http.StatusOK {
					return last
				}
				for _, c := range answerAs[oapi.Claims](answer).Claims {
					last = f.w.report(c, "complete", "")
				}
			}
		})
		f.rolled("open completed=30 waiting=1")
		f.complete("end")
		g.stands(f.ID, "finished", 2)
	}},
}
