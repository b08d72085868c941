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

// keysOf names members, sorted.
func keysOf(members []oapi.NamedMember) string {
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.ExecutionID.String()
		if m.Key != nil {
			keys[i] = *m.Key
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// replay replays the flow, after a dry run has told the same and changed nothing, and checks who runs again and who is kept.
func (f *graphFlow) replay(from, replayed, kept string) oapi.Flow {
	f.t.Helper()
	dry := flowAs[oapi.Flow](f.idle(http.StatusOK, func() *apitest.Response { return f.call("replay", `"from":`+from+`,"dry_run":true`) }))
	got := flowAs[oapi.Flow](f.call("replay", `"from":`+from).Want(http.StatusOK))
	if keysOf(got.Replayed) != replayed || keysOf(got.Kept) != kept {
		f.t.Errorf("replayed are %q, kept are %q; want %q and %q", keysOf(got.Replayed), keysOf(got.Kept), replayed, kept)
	}
	if diff := cmp.Diff([][]oapi.NamedMember{got.Replayed, got.Kept}, [][]oapi.NamedMember{dry.Replayed, dry.Kept}); diff != "" {
		f.t.Errorf("a dry run tells something else (-real +dry):\n%s", diff)
	}
	return got
}

// TestGraph_Replay: members and flows that run again. flows-streams-budgets.md 2.8, 9.12, 10.3, defects 12, 13; model.md "Replay".
func TestGraph_Replay(t *testing.T) {
	t.Parallel()
	runGraphCases(t, graphReplayCases)
}

var graphReplayCases = []graphCase{
	{"a failed member alone: what was skipped because of it stays (normal branch)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c")
		f.fail("a")
		f.complete("c")
		g.stands(f.ID, "failed", 2)
		f.again("a")
		got := g.stands(f.ID, "running", 3)
		if got.Failure != nil || got.EndedAt != nil {
			g.t.Errorf("%+v", got)
		}
		f.stand("a", atReplay)
		f.stand("b", atSkipped)
		replayed := f.log("flow.replayed")
		if len(replayed) != 1 || *replayed[0].Revision != 3 {
			g.t.Errorf("%+v", replayed)
		}
		g.data(replayed[0], map[string]any{"execution_ids": []any{f.of["a"].String()}, "members": 1.0})
		f.again("b")
		f.stand("b", atReplayBlocked)
		f.complete("a", "b")
		g.stands(f.ID, "finished", 4)
		if n := len(f.log("flow.replayed")); n != 1 {
			g.t.Errorf("told %d times", n)
		}
	}},
	{"a skipped member alone waits for what has to run again, which explain names (test_flow_replay_after_skip, defect 12)", func(g *graphTest) {
		f := g.graph("", "ok", "bad", "b < ok bad", "c < b")
		f.complete("ok")
		f.fail("bad")
		f.states("completed: ok; failed: bad; skipped: b c")
		f.again("b")
		f.stand("b", atReplayBlocked)
		f.none("b")
		f.groups("b", "pending of 2: 1 satisfied, 0 failed, 0 skipped") // 9.12
		last := f.log("operator.replayed")
		g.data(last[0], map[string]any{"replay_count": 1.0, "branch": "skipped_flow_member", "outcome": "skipped"})
		got, gates := f.w.explain(f.of["b"], "")
		if gate := gates["dependencies"]; gate.Met || !strings.Contains(gate.Hint, "bad has ended and has to run again: replay it.") {
			g.t.Errorf("%+v", got)
		}
		g.advance(time.Hour) // it is not skipped again by anybody
		f.stand("b", atReplayBlocked)
		f.again("c")
		f.stand("c", atReplayBlocked)
		f.again("bad")
		f.complete("bad", "b", "c")
		f.groups("b", "satisfied of 2: 2 satisfied, 0 failed, 0 skipped")
		g.stands(f.ID, "finished", 4)
	}},
	{"a member that was at work when what it depends on ran again waits for it when both are replayed, whichever comes first", func(g *graphTest) {
		for _, ids := range [][2]string{{"0", "f"}, {"f", "0"}} {
			own := func(first string) string { return fmt.Sprintf(`| "id":%q`, first+uuid.New().String()[1:]) }
			f := g.graph("", "a "+own(ids[0]), "b < a "+own(ids[1]))
			f.complete("a")
			f.claim("b")
			f.again("a")
			f.groups("b", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
			g.do(f.ID, "fail", `{"reason":"no"}`)
			g.advance(time.Second)
			f.states("cancelled: a b")
			f.call("replay", `"from":["a","b"]`).Want(http.StatusOK)
			f.groups("b", "pending of 1: 0 satisfied, 0 failed, 0 skipped")
			f.stand("b", atReplayBlocked)
			f.complete("a")
			f.claim("b")
			f.complete("b")
			f.groups("b", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		}
	}},
	{"a flow does not end well without what was skipped because of a member that was replayed alone", func(g *graphTest) {
		f := g.graph("", "a", "deploy < a", "after < deploy")
		f.fail("a")
		f.again("a")
		f.complete("a")
		got := g.stands(f.ID, "failed", 4)
		if got.Failure == nil || got.Failure.Reason != "these members did not end well: deploy" || got.Rollup.State != "failed" {
			g.t.Errorf("%+v, %+v", got.Failure, got.Rollup)
		}
		f.replay(`"failed"`, "after deploy", "a")
		f.complete("deploy", "after")
		g.stands(f.ID, "finished", 6)
	}},
	{"a skipped member whose upstreams have ended well since goes on at once", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c any < b a")
		f.fail("a")
		f.again("a")
		f.complete("a")
		f.stand("b", atSkipped)
		f.again("b")
		f.stand("b", atReplay)
		f.groups("b", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		f.again("c")
		f.stand("c", atReplay)
		f.complete("b", "c")
		f.states("completed: a b c")
	}},
	{"any and quorum are rewound with their groups (defect 12)", func(g *graphTest) {
		f := g.graph("", "a", "b", "c", "z 2 < a b c", "y any < a b")
		f.complete("c")
		f.fail("a", "b")
		f.states("completed: c; failed: a b; skipped: y z")
		f.again("z", "y")
		f.groups("z", "pending of 3: 1 satisfied, 0 failed, 0 skipped")
		f.groups("y", "pending of 2: 0 satisfied, 0 failed, 0 skipped")
		f.again("b")
		f.complete("b")
		f.groups("z", "satisfied of 3: 2 satisfied, 0 failed, 0 skipped")
		f.stand("z", atReplay)
		f.stand("y", atReplay)
		f.complete("z", "y")
		f.again("a")
		f.complete("a")
		f.groups("z", "satisfied of 3: 3 satisfied, 0 failed, 0 skipped")
	}},
	{"an upstream that runs again is waited for by those that have not started, and by no others (defect 12)", func(g *graphTest) {
		f := g.graph("", "up", "open < up", "active < up", "done < up", "held any < up other", "other", "deep < open")
		f.complete("up")
		f.claim("active")
		f.complete("done")
		f.again("up")
		f.stand("open", atBlocked)
		f.stand("held", atBlocked)
		f.stand("active", atActive)
		f.stand("done", atCompleted)
		f.groups("open", "pending of 1: 0 satisfied, 0 failed, 0 skipped")
		f.groups("active", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		f.groups("done", "satisfied of 1: 1 satisfied, 0 failed, 0 skipped")
		f.complete("active")
		f.complete("other")
		f.stand("held", atWaiting)
		f.fail("up") // this time
		f.states("completed: active done other; failed: up; skipped: deep open; waiting: held")
		f.complete("held")
		g.stands(f.ID, "failed", 2)
		f.replay(`"failed"`, "deep open up", "active done held other")
		f.complete("up", "open", "deep")
		g.stands(f.ID, "finished", 4)
		for _, key := range []string{"active", "done"} {
			if e := f.w.get(f.of[key]); e.ReplayCount != 0 || len(f.w.attempts(e.ID)) != 1 {
				g.t.Errorf("%+v", e)
			}
		}
	}},
	{"an upstream that runs again is not waited for by any that has enough without it", func(g *graphTest) {
		f := g.graph("", "a", "b", "c any < a b")
		f.complete("a", "b")
		f.again("a")
		f.stand("c", atWaiting)
		f.groups("c", "satisfied of 2: 1 satisfied, 0 failed, 0 skipped")
		f.complete("a", "c")
		g.stands(f.ID, "finished", 2)
	}},
	{"a flow from its failed members, and what was skipped because of them (model)", func(g *graphTest) {
		f := g.graph("", "a", "b", `c | "policy":{"timeout_policy":{"execution_deadline_ms":60000}}`, "d", "ab < a b", "bc < b c", "loser", "winner any cancel < loser a", "end < ab bc winner")
		f.complete("a")
		f.fail("b")
		f.stop("d")
		g.advance(time.Minute)
		f.complete("winner")
		f.states("cancelled: d loser; completed: a winner; expired: c; failed: b; skipped: ab bc end")
		g.stands(f.ID, "failed", 2)
		got := f.replay(`"failed"`, "ab b bc c d end", "a loser winner")
		if got.Status != "running" || got.Revision != 3 || got.EndedAt != nil || got.Failure != nil {
			g.t.Errorf("%+v", got)
		}
		f.states("cancelled: loser; completed: a winner; waiting: b c d; waiting_children: ab bc end")
		f.rolled("blocked cancelled=1 completed=2 waiting=3 waiting_children=3")
		replayed := f.log("flow.replayed")
		if len(replayed) != 1 || eventData(g.t, replayed[0])["members"] != 6.0 {
			g.t.Errorf("%+v", replayed)
		}
		g.told(f.ID, "flow.created", "flow.started", "flow.graph_changed", "flow.failed", "flow.replayed")
		f.complete("b", "c", "d", "ab", "bc", "end")
		g.stands(f.ID, "finished", 4)
		f.rolled("completed cancelled=1 completed=8")
	}},
	{"a flow that is running is replayed without a revision", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c")
		f.fail("a")
		f.replay(`"failed"`, "a b", "c")
		g.stands(f.ID, "running", 1)
		if n := len(f.log("flow.replayed")); n != 0 {
			g.t.Errorf("told %d times", n)
		}
		f.complete("a", "b", "c")
		g.stands(f.ID, "finished", 2)
	}},
	{"nothing to replay changes nothing", func(g *graphTest) {
		f := g.graph("", "a", "b", "c any < a b")
		f.fail("a")
		f.complete("b", "c")
		g.stands(f.ID, "finished", 2)
		got := flowAs[oapi.Flow](f.idle(http.StatusOK, func() *apitest.Response { return f.call("replay", `"from":"failed"`) }))
		if got.Status != "finished" || len(got.Replayed) != 0 || keysOf(got.Kept) != "a b c" {
			g.t.Errorf("%+v", got)
		}
	}},
	{"a flow from members that are named, by key and id, however they ended", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c < b", "bad", "skip < bad", "other")
		f.complete("a", "b", "c", "other")
		f.fail("bad")
		g.stands(f.ID, "failed", 2)
		f.replay(fmt.Sprintf(`["a",%q]`, f.of["bad"]), "a bad skip", "b c other")
		f.states("completed: b c other; waiting: a bad; waiting_children: skip")
		f.complete("a", "bad", "skip")
		g.stands(f.ID, "finished", 4)
		f.replay(`["c","c"]`, "c", "a b bad other skip")
		f.complete("c")
		g.stands(f.ID, "finished", 6)
		f.replay(fmt.Sprintf(`[%q]`, strings.ToUpper(f.of["b"].String())), "b", "a bad c other skip")
		f.stand("b", atReplay)
		f.stand("c", atCompleted)
		f.complete("b")
	}},
	{"what cannot be replayed is refused, and changes nothing (ExecutionNotTerminal, max_replays, defect 13)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", `once | "policy":{"max_replay_count":1}`, "open")
		other := g.graph("", "x")
		f.fail("a", "once")
		for _, name := range []string{"nobody", uuid.NewString(), other.of["x"].String(), "A"} {
			answer := f.denied(fault.CodeExecutionNotInFlow, func() *apitest.Response { return f.call("replay", `"from":["a",`+quoted(name)+`]`) })
			g.points(answer, "body", "/from/1")
		}
		answer := f.denied(fault.CodeExecutionNotTerminal, func() *apitest.Response { return f.call("replay", `"from":["a","open"]`) })
		g.points(answer, "body", "/from/1")
		g.facts(answer, map[string]any{"public_state": "waiting"})
		f.denied(fault.CodeRevisionMismatch, func() *apitest.Response { return f.call("replay", `"from":"failed"`, ifMatch(7)) })
		f.denied(fault.CodeRevisionMismatch, func() *apitest.Response { return f.call("replay", `"from":"failed","dry_run":true`, ifMatch(7)) })
		for _, body := range []string{`"from":"all"`, `"from":[]`, ``, `"from":"failed","x":1`} {
			f.denied(fault.CodeValidationFailed, func() *apitest.Response { return f.call("replay", body) })
		}
		g.refused(fault.CodeNotFound, func() *apitest.Response { return g.Post(flowPath(uuid.New(), "replay"), `{"from":"failed"}`) })
		far := graphsOn(g.t, g.server, g.namespace+"-other")
		far.refused(fault.CodeNotFound, func() *apitest.Response { return far.Post(flowPath(f.ID, "replay"), `{"from":"failed"}`) })
		f.replay(`"failed"`, "a b once", "open")
		f.fail("once")
		f.complete("a", "b", "open")
		for _, body := range []string{`"from":"failed"`, `"from":["a","once"]`, `"from":"failed","dry_run":true`} {
			answer := f.denied(fault.CodeMaxReplaysExhausted, func() *apitest.Response { return f.call("replay", body) })
			g.facts(answer, map[string]any{"replay_count": 1.0, "execution_id": f.of["once"].String()})
		}
		f.denied(fault.CodeMaxReplaysExhausted, func() *apitest.Response { return f.w.operator(f.of["once"], "replay", "") })
		f.replay(`["a"]`, "a", "b once open")
	}},
	{"a cancelled flow is not replayed, nor are its members (model)", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c")
		f.fail("a")
		g.do(f.ID, "cancel", "")
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return f.call("replay", `"from":"failed"`) },
			func() *apitest.Response { return f.call("replay", `"from":"failed","dry_run":true`) },
			func() *apitest.Response { return f.call("replay", `"from":["a"]`) },
			func() *apitest.Response { return f.w.operator(f.of["a"], "replay", "") },
			func() *apitest.Response { return f.w.operator(f.of["c"], "replay", "") },
		} {
			g.facts(f.denied(fault.CodeAlreadyTerminal, call), map[string]any{"current_status": "cancelled"})
		}
	}},
	{"members that ended with a failed flow are replayed with it", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c")
		f.claim("c")
		g.do(f.ID, "fail", `{"reason":"no disk"}`)
		f.states("cancelled: a b c")
		f.replay(`"failed"`, "a b c", "")
		f.states("waiting: a c; waiting_children: b")
		delete(f.held, "c")
		f.complete("a", "b", "c")
		g.stands(f.ID, "finished", 4)
	}},
	{"members of a flow that has not started are replayed, and paused", func(g *graphTest) {
		f := g.graph(`"start":false`, "a", "b < a", "c")
		f.stop("a", "c")
		f.replay(`"failed"`, "a b c", "")
		f.stand("a", atReplayPaused)
		f.stand("b", atReplayBlocked)
		f.none("a", "b", "c")
		g.do(f.ID, "start", "")
		f.complete("a", "b", "c")
		g.stands(f.ID, "finished", 2)
	}},
	{"a flow without auto_finish runs again until its controller ends it", func(g *graphTest) {
		f := g.graph(`"auto_finish":false`, "a")
		f.fail("a")
		g.do(f.ID, "fail", `{"reason":"x"}`)
		f.replay(`"failed"`, "a", "")
		f.complete("a")
		g.stands(f.ID, "running", 3)
		g.do(f.ID, "finish", "")
	}},
	{"many replays at once: a flow runs again once", func(g *graphTest) {
		f := g.graph("", "a", "b < a", "c < b")
		f.fail("a")
		replayed := 0
		for _, answer := range flowsAtOnce(5, func(int) *apitest.Response { return f.call("replay", `"from":"failed"`) }) {
			if len(flowAs[oapi.Flow](answer.Want(http.StatusOK)).Replayed) > 0 {
				replayed++
			}
		}
		if replayed != 1 || len(f.log("flow.replayed")) != 1 || len(f.log("operator.replayed")) != 3 {
			g.t.Errorf("%d replays", replayed)
		}
		f.complete("a", "b", "c")
	}},
	{"a chain and a star of more than one transaction run again", func(g *graphTest) {
		lines := chain(150)
		for i := range 150 {
			lines = append(lines, fmt.Sprintf(`s%d < n0 | "lane":"star"`, i))
		}
		f := g.graph("", lines...)
		w := executionsOn(g.t, g.server, "chain")
		w.Client = g.Client
		w.report(w.claim(lasting), "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK)
		g.server.Settle()
		f.counted(map[string]int64{"failed": 1, "skipped": 299})
		got := flowAs[oapi.Flow](f.call("replay", `"from":"failed"`).Want(http.StatusOK))
		if len(got.Replayed) != 300 || len(got.Kept) != 0 || got.Status != "running" {
			g.t.Errorf("%d again, %d kept, %s", len(got.Replayed), len(got.Kept), got.Status)
		}
		told := f.log("flow.replayed")
		if data := eventData(g.t, told[0]); len(told) != 1 || data["members"] != 300.0 || len(data["execution_ids"].([]any)) != 100 {
			g.t.Errorf("%d %v", len(told), data["members"])
		}
		w.report(w.claim(lasting), "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK) // before the rest runs again
		g.stands(f.ID, "running", 3)
		g.server.Settle()
		again := flowAs[oapi.Flow](f.call("replay", `"from":"failed"`).Want(http.StatusOK))
		g.server.Settle()
		f.counted(map[string]int64{"waiting": 1, "waiting_children": 299})
		if len(again.Replayed) == 0 {
			g.t.Error("nothing was replayed")
		}
		w.report(w.claim(lasting), "complete", "").Want(http.StatusOK)
		g.server.Settle()
		f.counted(map[string]int64{"completed": 1, "waiting": 151, "waiting_children": 148})
	}},
}
