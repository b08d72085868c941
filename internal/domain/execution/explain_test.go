package execution_test

import (
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// TestExplain_agrees: for every legal vector, reserved or not, what is explained is what a claim does.
func TestExplain_agrees(t *testing.T) {
	t.Parallel()
	grant := grantFor("w2")
	for v := range legalVectors(t) {
		for _, g := range []*execution.Grant{nil, &grant} {
			e := active(t)
			e.Vector, e.Grant, e.DelayUntil = v, g, after(100)
			e.Suspension = &execution.Suspension{Reason: execution.SuspendSignal, Waitpoints: []execution.Bound{{Key: "go"}}}
			for _, lane := range []execution.Lane{{Name: "ci", State: execution.LaneActive}, {Name: "ci", State: execution.LanePaused, Actor: "token:ops"}} {
				x := e.Explain(execution.Situation{Lane: lane}, execution.Asker{}, after(20))
				if want := e.Claimable() && lane.State == execution.LaneActive; x.Claimable != want {
					t.Errorf("%v, reserved %t, lane %s: claimable %t, want %t", v, g != nil, lane.State, x.Claimable, want)
				}
				checkGates(t, x)
			}
		}
	}
}

func checkGates(t *testing.T, x execution.Explanation) {
	t.Helper()
	all := true
	for _, g := range x.Gates {
		all = all && g.Met
		if g.Met == (g.Hint != "") || !g.Met && len(g.Evidence) == 0 {
			t.Errorf("gate %s, met %t: hint %q, evidence %v", g.Name, g.Met, g.Hint, g.Evidence)
		}
	}
	if all != x.Claimable || x.Summary == "" || strings.Contains(x.Summary, "%!") {
		t.Errorf("claimable %t, all gates met %t: %q", x.Claimable, all, x.Summary)
	}
}

// TestExplain: what is said of each state, and of the worker that asks.
func TestExplain(t *testing.T) {
	t.Parallel()
	open := execution.Lane{Name: "ci", State: execution.LaneActive}
	choosy := func(tb testing.TB) execution.Execution {
		return created(tb, func(in *execution.Create) { in.Required = []string{"go", "cuda"} })
	}
	for _, tt := range []struct {
		name    string
		from    func(testing.TB) execution.Execution
		lane    execution.Lane
		by      execution.Asker
		capable int
		at      int
		unmet   execution.GateName // "" for none
		says    string
	}{
		{"waiting", plain(created), open, execution.Asker{}, 0, 20, "", "The next claim of lane ci gets it, after what stands before it: start a worker of this lane if there is none."},
		{"waiting, for a capable worker", choosy, open, execution.Asker{}, 0, 20, "", "A claim of lane ci gets it, but no registered worker has what it requires: cuda,go. Start one that claims with these capabilities."},
		{"waiting, and there is one", choosy, open, execution.Asker{}, 1, 20, "", "The next claim of lane ci gets it, after what stands before it: start a worker of this lane if there is none."},
		{"this worker may have it", choosy, open, execution.Asker{Named: true, Capabilities: execution.Capabilities{"cuda", "go"}}, 1, 20, "", "The next claim of lane ci by this worker gets it, after what stands before it."},
		{"this worker may not", choosy, open, execution.Asker{Named: true, Capabilities: execution.Capabilities{"go"}}, 1, 20, execution.GateCapabilities, "This worker lacks cuda. Claim with a worker that has what it requires."},
		{"this worker is draining", plain(created), open, execution.Asker{Named: true, InstanceID: "w1-1", DrainingSince: after(3)}, 0, 20, execution.GateWorker, "Worker w1-1 is draining. Claim with another worker."},
		{"delayed", delayed, open, execution.Asker{}, 0, 20, execution.GateTime, "It waits until 2026-11-21T09:31:40.000Z (waiting_for_delay). Wait until then."},
		{"delayed, due", delayed, open, execution.Asker{}, 0, 100, execution.GateTime, "It waits until 2026-11-21T09:31:40.000Z (waiting_for_delay). That time has just come: it can be claimed in a moment."},
		{"held", plain(active), open, execution.Asker{}, 0, 20, execution.GatePhase, "Worker w1 is working on it. Wait for it, or revoke its lease."},
		{"held, lapsed", plain(active), open, execution.Asker{}, 0, 61, execution.GatePhase, "Worker w1 is working on it. Its lease has just run out: it can be taken over in a moment."},
		{"lost", lapsed, open, execution.Asker{}, 0, 70, "", "The next claim of lane ci gets it, after what stands before it: start a worker of this lane if there is none."},
		{"ended", completed, open, execution.Asker{}, 0, 20, execution.GatePhase, "It has ended as completed. Replay it to run it again."},
		{"reserved", reserved, open, execution.Asker{}, 0, 85, execution.GateGrant, "It is reserved for worker w2. Wait until the worker claims it or the grant lapses."},
		{"children", withChildren, open, execution.Asker{}, 0, 20, execution.GateDependencies, "It waits for its children. Wait for them, or resume it."},
		{"lane paused", plain(created), execution.Lane{Name: "ci", State: execution.LanePaused, Actor: "token:ops", ChangedAt: after(2)}, execution.Asker{}, 0, 20, execution.GateLane, "Lane ci is paused by token:ops. Resume the lane."},
	} {
		e := tt.from(t)
		x := e.Explain(execution.Situation{Lane: tt.lane, Capable: tt.capable}, tt.by, after(tt.at))
		checkGates(t, x)
		if x.Summary != tt.says {
			t.Errorf("%s: %q, want %q", tt.name, x.Summary, tt.says)
		}
		for _, g := range x.Gates {
			if g.Met == (g.Name == tt.unmet) {
				t.Errorf("%s: gate %s, met %t", tt.name, g.Name, g.Met)
			}
		}
	}
}
