package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// cancellation tells how far the cancellation of the flow has come.
func (f *graphFlow) cancellation() oapi.FlowCancellationProgress {
	f.t.Helper()
	return flowAs[oapi.FlowCancellationProgress](f.Get(flowPath(f.ID, "cancellation")).Want(http.StatusOK))
}

// cancelled cancels the flow, and checks how many members are concerned and are still to end.
func (f *graphFlow) cancelled(body string, total, outstanding int64) {
	f.t.Helper()
	got := f.do(f.ID, "cancel", body)
	if got.Status != "cancelled" || got.Members == nil || got.Members.Total != total || got.Members.Outstanding != outstanding || len(got.Members.Failed) != 0 {
		f.t.Errorf("%+v", got.Members)
	}
	if p := f.cancellation(); p.Outstanding != outstanding || p.Total != f.flow(f.ID).NodeCount || int64(len(p.Members)) != min(outstanding, 100) {
		f.t.Errorf("%+v", p)
	}
}

// everyState is a graph with a member in every state, by that state.
func (g *graphTest) everyState() *graphFlow {
	g.t.Helper()
	f := g.graph("", "waiting", `delayed | "delay_ms":3600000`, "blocked < waiting", "active", "suspended", "released", "retried | "+retryPolicy(1), "children", "lost", "completed", "failed", "skipped < failed")
	f.claim("active", "children", "lost")
	f.report("suspended", "suspend", waitForGo).Want(http.StatusOK)
	f.report("released", "release", "").Want(http.StatusOK)
	f.report("retried", "fail", `"reason":"x"`).Want(http.StatusOK)
	f.report("children", "wait-children", "").Want(http.StatusOK)
	f.w.operator(f.of["lost"], "revoke-lease", "").Want(http.StatusOK)
	f.complete("completed")
	f.fail("failed")
	f.states("active: active lost; completed: completed; delayed: delayed retried; failed: failed; skipped: skipped; suspended: suspended; waiting: released waiting; waiting_children: blocked children")
	return f
}

// TestGraph_Cancel: flows that are cancelled with their members. flows-streams-budgets.md 3, 9.14-9.16, 10.4, defects 21-29.
func TestGraph_Cancel(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphCancelCases)
}

var graphCancelCases = []graphCase{
	{"each policy, and members in every state (test_flow_cancel, cascade, spine_a_pt2, 9.15, defects 21, 22, 25, 27, 29)", func(g *graphTest) {
		for _, c := range []struct {
			policy           string
			total            int64
			states           string
			cancelled, lease int
		}{
			{`{"policy":"cancel_all","reason":"r"}`, 9, "cancelled: active blocked children delayed lost released retried suspended waiting; completed: completed; failed: failed; skipped: skipped", 9, 2},
			{`{"reason":"r"}`, 9, "cancelled: active blocked children delayed lost released retried suspended waiting; completed: completed; failed: failed; skipped: skipped", 9, 2},
			{`{"policy":"cancel_pending","reason":"r"}`, 6, "active: active lost; cancelled: blocked children delayed released retried waiting; completed: completed; failed: failed; skipped: skipped; suspended: suspended", 6, 0},
			{`{"policy":"flow_only","reason":"r"}`, 0, "active: active lost; completed: completed; delayed: delayed retried; failed: failed; skipped: skipped; suspended: suspended; waiting: released waiting; waiting_children: blocked children", 0, 0},
		} {
			g.sub(c.policy, func(x *flowTest) {
				g := graphsOn(x.t, g.server, fmt.Sprintf("%s-%d-%d", g.namespace, c.cancelled, len(c.policy)))
				f := g.everyState()
				before := len(f.log("lease.revoked"))
				f.cancelled(c.policy, c.total, 0)
				f.states(c.states)
				if n := len(f.log("lease.revoked")) - before; n != c.lease || len(f.log("execution.cancelled")) != c.cancelled {
					g.t.Errorf("%d leases ended", n)
				}
				want := map[string]int{"flow.cancelled": 1}
				for eventType, n := range map[string]int{"execution.cancelled": c.cancelled, "lease.revoked": c.lease} {
					if n > 0 {
						want[eventType] = n
					}
				}
				g.causes(f.ID, "operator.flow_cancel_requested", want)
				policy := "cancel_all"
				for _, p := range []string{"cancel_pending", "flow_only"} {
					if strings.Contains(c.policy, p) {
						policy = p
					}
				}
				g.data(f.log("operator.flow_cancel_requested")[0], map[string]any{"policy": policy, "reason": "r", "member_count": float64(c.total)})
				g.data(f.log("flow.cancelled")[0], map[string]any{"policy": policy, "reason": "r"})
				for _, e := range f.log("execution.cancelled") {
					if member := f.w.get(*e.ExecutionID); member.Cancellation.Reason != "r" || member.Cancellation.Actor != "local" || member.CurrentLease != nil {
						g.t.Errorf("%+v", member.Cancellation)
					}
				}
				if c.cancelled == 9 { // 9.16, defect 23
					f.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return f.report("active", "complete", "") })
				} else {
					f.report("active", "complete", `"result":1`).Want(http.StatusOK)
				}
				if got := g.flow(f.ID); *got.Cancellation.Reason != "r" || *got.Cancellation.Policy != policy || got.EndedAt == nil {
					g.t.Errorf("%+v", got.Cancellation)
				}
				g.server.Settle()
				if n := countRowsWhere(g.t, g.server, "namespace = '"+g.namespace+"'")["graph_backlog"]; n != 0 { // defect 24
					g.t.Errorf("%d are left to do", n)
				}
				g.audit(f.ID)
			})
		}
	}},
	{"a flow in any status, and an empty one (test_server_create_cancel_roundtrip, test_api_cancel_flow, cancel_flow_wait)", func(g *graphTest) {
		for _, s := range []oapi.FlowStatus{"created", "running", "waiting"} {
			f := g.flowOf(g.at(s))
			f.build("a", "b < a", "c < b")
			f.cancelled("", 3, 0)
			f.states("cancelled: a b c")
			if n := len(f.log("execution.skipped")); n != 0 {
				g.t.Errorf("%d were skipped", n)
			}
			g.flowOf(g.at(s)).cancelled("", 0, 0)
		}
		for _, s := range []oapi.FlowStatus{"finished", "failed"} { // defect 28
			f := g.flowOf(g.at(s))
			g.facts(f.denied(fault.CodeAlreadyTerminal, func() *apitest.Response { return g.verb(f.ID, "cancel", "") }), map[string]any{"current_status": string(s)})
			g.facts(f.denied(fault.CodeNotFound, func() *apitest.Response { return g.Get(flowPath(f.ID, "cancellation")) }), map[string]any{"resource": "cancellation"})
		}
		f := g.bare("")
		g.facts(g.refused(fault.CodeNotFound, func() *apitest.Response { return g.verb(uuid.New(), "cancel", "") }), map[string]any{"resource": "flow"}) // defect 25
		f.denied(fault.CodeRevisionMismatch, func() *apitest.Response { return g.verb(f.ID, "cancel", "{}", ifMatch(7)) })
		for _, body := range []string{`{"policy":"all"}`, `{"grace_ms":-1}`, `{"grace_ms":1.5}`, `{"grace_ms":86400001}`} { // bad grace_ms rejected; defect 21
			f.denied(fault.CodeValidationFailed, func() *apitest.Response { return g.verb(f.ID, "cancel", body) })
		}
	}},
	{"again it answers the stored policy and reason, and changes nothing (second call, cancel idempotent, 9.14, defect 25)", func(g *graphTest) {
		f := g.graph("", "a")
		f.cancelled(`{"policy":"flow_only","reason":"first"}`, 0, 0)
		again := flowAs[oapi.Flow](f.idle(http.StatusOK, func() *apitest.Response { return g.verb(f.ID, "cancel", `{"policy":"cancel_all","reason":"second"}`) }))
		if *again.Cancellation.Policy != "flow_only" || *again.Cancellation.Reason != "first" || again.Members.Outstanding != 0 {
			g.t.Errorf("%+v", again.Cancellation)
		}
		f.complete("a")
		many := g.graph("", "a", "b < a")
		for _, answer := range flowsAtOnce(5, func(i int) *apitest.Response { return g.verb(many.ID, "cancel", fmt.Sprintf(`{"reason":"r%d"}`, i)) }) {
			answer.Want(http.StatusOK)
		}
		if n := len(many.log("execution.cancelled")) + len(many.log("flow.cancelled")); n != 3 {
			g.t.Errorf("%d events", n)
		}
	}},
	{"what depended on cancelled members is cancelled with the flow, also what is decided later (kept as cancelled)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c any < a b", "d < c", "e < a")
		f.claim("a", "b")
		f.cancelled(`{"policy":"cancel_pending","reason":"r"}`, 3, 0)
		f.states("active: a b; cancelled: c d e")
		f.complete("a")
		f.fail("b")
		f.states("cancelled: c d e; completed: a; failed: b")
		f.groups("c", "satisfied of 2: 1 satisfied, 1 failed, 0 skipped")
		if n := len(f.log("execution.skipped")) + len(f.log("execution.eligible")); n != 0 {
			g.t.Errorf("%d members moved", n)
		}
	}},
	{"with flow_only the members go on, with what depends on them", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c", "d < c")
		f.cancelled(`{"policy":"flow_only"}`, 0, 0)
		f.complete("a", "b")
		f.fail("c")
		f.states("completed: a b; failed: c; skipped: d")
		g.stands(f.ID, "cancelled", 2)
		f.rolled("failed completed=2 failed=1 skipped=1")
	}},
	{"a grace is for those that are held: they are told, and end by themselves", func(g *graphTest) {
		f := g.graph("", "good", "gives", "waits", "suspended", "after < good")
		f.claim("good", "gives")
		f.report("suspended", "suspend", waitForGo).Want(http.StatusOK)
		f.cancelled(`{"reason":"r","grace_ms":60000}`, 5, 2)
		f.states("active: gives good; cancelled: after suspended waits")
		g.data(f.log("operator.flow_cancel_requested")[0], map[string]any{"policy": "cancel_all", "reason": "r", "member_count": 5.0, "grace_ms": 60000.0})
		if n := len(f.log("execution.cancelling")); n != 2 {
			g.t.Errorf("%d were asked", n)
		}
		e := f.w.get(f.of["good"])
		if e.Cancellation.Reason != "r" || e.Cancellation.DeadlineAt == nil || !e.Cancellation.DeadlineAt.Time().Equal(g.now().Add(time.Minute).Truncate(time.Millisecond)) {
			g.t.Errorf("%+v", e.Cancellation)
		}
		for op, members := range map[string]string{"renew": "", "progress": `"pct":50`} {
			if answer := f.report("good", op, members).Want(http.StatusOK); answer.Len("directives") != 1 || answer.Str("directives.0") != "cancel" {
				g.t.Errorf("%s", answer.Body)
			}
		}
		f.complete("good")
		f.report("gives", "cancel", `"reason":"told to"`).Want(http.StatusOK)
		f.states("cancelled: after gives suspended waits; completed: good")
		if p := f.cancellation(); p.Outstanding != 0 || len(p.Members) != 0 || p.Total != 5 || *p.Reason != "r" || p.Policy != "cancel_all" || p.Actor != "local" {
			g.t.Errorf("%+v", p)
		}
	}},
	{"at the end of its grace a member is cancelled, and its worker fenced off (grace_until, defects 23, 24)", func(g *graphTest) {
		f := g.graph("", "a", "b")
		f.claim("a", "b")
		f.cancelled(`{"reason":"r","grace_ms":60000}`, 2, 2)
		again := f.idle(http.StatusOK, func() *apitest.Response { return g.verb(f.ID, "cancel", `{"grace_ms":1}`) })
		if again.Int("members.outstanding") != 2 {
			g.t.Errorf("%s", again.Body)
		}
		g.advance(59 * time.Second)
		f.states("active: a b")
		g.advance(time.Second)
		f.states("cancelled: a b")
		for _, key := range []string{"a", "b"} {
			f.w.leaseEnds(f.of[key], 2, "lease.revoked", "cancelled")
			f.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return f.report(key, "complete", "") })
		}
		if p := f.cancellation(); p.Outstanding != 0 {
			g.t.Errorf("%+v", p)
		}
	}},
	{"a lease that is lost within the grace ends the member", func(g *graphTest) {
		f := g.graph("", "a", "b")
		f.held["a"] = f.w.on("a").claim(`"lease_ttl_ms":1000`)
		f.claim("b")
		f.cancelled(`{"grace_ms":60000}`, 2, 2)
		g.advance(2 * time.Second)
		f.states("active: b; cancelled: a")
		f.w.operator(f.of["b"], "revoke-lease", "").Want(http.StatusOK)
		f.states("cancelled: a b")
	}},
	{"an acknowledgement ends the grace of one (ack drains, ack of missing is success)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c")
		f.claim("a", "b")
		ack := func(id uuid.UUID) *apitest.Response { return f.call("cancellation/"+id.String()+"/ack", "") }
		g.facts(f.denied(fault.CodeNotFound, func() *apitest.Response { return ack(f.of["a"]) }), map[string]any{"resource": "cancellation"})
		f.cancelled(`{"reason":"r","grace_ms":60000}`, 3, 2)
		if p := flowAs[oapi.FlowCancellationProgress](ack(f.of["a"]).Want(http.StatusOK)); p.Outstanding != 1 || p.Members[0] != f.of["b"] {
			g.t.Errorf("%+v", p)
		}
		f.states("active: b; cancelled: a c")
		if e := f.w.get(f.of["a"]); e.Cancellation.Reason != "r" {
			g.t.Errorf("%+v", e.Cancellation)
		}
		other := g.graph("", "x")
		other.claim("x")
		for _, id := range []uuid.UUID{f.of["a"], f.of["c"], other.of["x"], uuid.New()} {
			f.idle(http.StatusOK, func() *apitest.Response { return ack(id) })
		}
		g.refused(fault.CodeNotFound, func() *apitest.Response {
			return g.Post(flowPath(uuid.New(), "cancellation", f.of["b"].String(), "ack"), nil)
		})
		other.complete("x")
		f.complete("b")
	}},
	{"the caller may wait until the members have ended, and is told when they have not (wait modes, defect 26)", func(g *graphTest) {
		f := g.graph("", "a")
		f.claim("a")
		cancel := g.w.waiting(func() *apitest.Response { return g.verb(f.ID, "cancel", `{"grace_ms":60000}`, "Prefer: wait=20") })
		g.Get(flowPath(f.ID)+"?until=terminal", "Prefer: wait=20").Want(http.StatusOK)
		watch := g.w.waiting(func() *apitest.Response { return g.Get(flowPath(f.ID, "cancellation"), "Prefer: wait=20") })
		f.complete("a")
		for _, w := range []*waitingClaim{cancel, watch} {
			answer := w.answered().Want(http.StatusOK)
			if answer.Header.Get("Preference-Applied") != "wait=20" {
				g.t.Errorf("%v", answer.Header)
			}
			if got, flow := answer.JSON()["members"].(map[string]any); flow && (got["total"] != 1.0 || got["outstanding"] != 0.0) {
				g.t.Errorf("%s", answer.Body)
			} else if !flow && answer.Int("outstanding") != 0 {
				g.t.Errorf("%s", answer.Body)
			}
		}
		f = g.graph("", "a")
		f.claim("a")
		if answer := g.verb(f.ID, "cancel", `{"grace_ms":60000}`, "Prefer: wait=1").Want(http.StatusOK); answer.Int("members.outstanding") != 1 {
			g.t.Errorf("%s", answer.Body)
		}
	}},
	{"a member that cannot be read is named, and stops nobody (pr_c1_cancel_flow_partial, defect 27)", func(g *graphTest) {
		f := g.graph("", "a", "broken", "c", "d < c")
		*g.made = nil // the members cannot be listed either
		f.w.tamper(`UPDATE executions SET progress = '{' WHERE id = ?`, rowID(f.of["broken"]))
		got := g.do(f.ID, "cancel", "")
		if got.Status != "cancelled" || got.Members.Total != 4 || cmp.Diff([]uuid.UUID{f.of["broken"]}, got.Members.Failed) != "" {
			g.t.Errorf("%+v", got.Members)
		}
		for _, key := range []string{"a", "c", "d"} {
			if e := f.w.get(f.of[key]); e.PublicState != "cancelled" {
				g.t.Errorf("%s is %s", key, e.PublicState)
			}
		}
		if p := f.cancellation(); p.Outstanding != 0 || len(p.Members) != 0 || cmp.Diff([]uuid.UUID{f.of["broken"]}, p.Failed) != "" {
			g.t.Errorf("%+v", p)
		}
		f.none("broken")
		g.Get("/v1/executions/" + f.of["broken"].String()).Problem(fault.CodeCorruptRecord) // defect 60
	}},
	{"more than one transaction's members are cancelled right after it (cancel_flow_backlog, defects 24, 26)", func(g *graphTest) {
		lines := []string{"root"}
		for i := range 300 {
			lines = append(lines, fmt.Sprintf(`n%d | "lane":"g-n"`, i))
		}
		f := g.graph("", append(lines, `last < root | "lane":"g-n"`)...)
		f.claim("root")
		f.cancelled(`{"reason":"r"}`, 302, 51) // "last" went with "root"
		late := f.w.on("n").claims(`"max":3,` + lasting)
		f.report("root", "complete", "").Problem(fault.CodeExecutionNotActive)
		again := g.verb(f.ID, "cancel", `{"reason":"other"}`).Want(http.StatusOK)
		if n := again.Int("members.outstanding"); n != 51 || again.Str("cancellation.reason") != "r" {
			g.t.Errorf("%d are outstanding: %s", n, again.Body)
		}
		watch := g.w.waiting(func() *apitest.Response { return g.Get(flowPath(f.ID, "cancellation"), "Prefer: wait=20") })
		g.server.Settle()
		if n := watch.answered().Want(http.StatusOK).Int("outstanding"); n != 0 {
			g.t.Errorf("%d are outstanding", n)
		}
		f.counted(map[string]int64{"cancelled": 302})
		for _, c := range late {
			f.w.report(c, "complete", "").Problem(fault.CodeExecutionNotActive)
		}
		if n := len(f.log("execution.cancelled")); n != 302 {
			g.t.Errorf("%d are told", n)
		}
		for _, e := range f.log("execution.cancelled") {
			if eventData(g.t, e)["reason"] != "r" || e.Actor != "local" {
				g.t.Fatalf("%+v", e)
			}
		}
	}},
}
