package app_test

import (
	"fmt"
	"net/http"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// audit holds a flow to what is true of every graph at any time. reference: flows-streams-budgets.md 9.1, 9.2, 9.5, 9.8, 9.9, 9.21.
func (g *graphTest) audit(id uuid.UUID) {
	g.t.Helper()
	answer := g.Get(flowPath(id))
	if answer.Status == http.StatusNotFound {
		return
	}
	f := flowAs[oapi.Flow](answer.Want(http.StatusOK))
	known := graphFlow{graphTest: g, ID: id}
	v := known.view()
	if f.NodeCount != int64(len(v.Nodes)) || f.EdgeCount != int64(len(v.Edges)) || f.GraphRevision != f.NodeCount+f.EdgeCount || v.GraphRevision != f.GraphRevision {
		g.t.Errorf("%d nodes, %d edges and graph revision %d are counted of %d nodes and %d edges", f.NodeCount, f.EdgeCount, f.GraphRevision, len(v.Nodes), len(v.Edges))
	}
	states := map[uuid.UUID]oapi.PublicState{}
	counts := map[string]int64{}
	for _, n := range v.Nodes {
		states[n.ExecutionID] = n.PublicState
		counts[string(n.PublicState)]++
	}
	if f.Rollup == nil {
		f.Rollup = &oapi.FlowRollup{Counts: map[string]int64{}}
	}
	if diff := cmp.Diff(counts, f.Rollup.Counts); diff != "" || f.Rollup.Total != f.NodeCount {
		g.t.Errorf("the rollup of %d (-counted +rollup):\n%s", f.Rollup.Total, diff)
	}
	g.auditGroups(v, states)
	if len(v.Nodes) <= 500 {
		known.auditMembers(v)
	}
}

// auditGroups recounts groups from their edges.
func (g *graphTest) auditGroups(v oapi.FlowGraph, states map[uuid.UUID]oapi.PublicState) {
	g.t.Helper()
	counted := map[uuid.UUID]map[oapi.EdgeState]int64{}
	for _, e := range v.Edges {
		if (e.ResolvedAt == nil) != (e.State == "pending") {
			g.t.Errorf("an edge that is %s was resolved at %v", e.State, e.ResolvedAt)
		}
		if counted[e.DownstreamExecutionID] == nil {
			counted[e.DownstreamExecutionID] = map[oapi.EdgeState]int64{}
		}
		counted[e.DownstreamExecutionID][e.State]++
		if up := states[e.UpstreamExecutionID]; e.State == "satisfied" && up != "completed" && states[e.DownstreamExecutionID] == "waiting_children" {
			g.t.Errorf("an edge is %s, and what it leads out of is %s", e.State, up)
		}
	}
	for _, group := range v.Groups {
		n := counted[group.DownstreamExecutionID]
		got := map[oapi.EdgeState]int64{}
		for state, count := range map[oapi.EdgeState]int64{"pending": group.RunningCount, "satisfied": group.SatisfiedCount, "impossible": group.FailedCount + group.SkippedCount} {
			if count != 0 {
				got[state] = count
			}
		}
		if diff := cmp.Diff(n, got); len(n)+len(got) > 0 && diff != "" || group.TotalDeps != n["pending"]+n["satisfied"]+n["impossible"] {
			g.t.Errorf("a group of %d (-edges +group):\n%s", group.TotalDeps, diff)
		}
		if (group.FiredAt == nil) != (group.State == "pending") {
			g.t.Errorf("a group that is %s fired at %v", group.State, group.FiredAt)
		}
		if state := states[group.DownstreamExecutionID]; group.State == "impossible" && state != "skipped" && state != "cancelled" && state != "expired" && state != "failed" && state != "completed" {
			g.t.Errorf("what depends on an impossible group is %s", state)
		}
	}
	if n := len(counted); n > len(v.Groups) {
		g.t.Errorf("%d members have edges, and there are %d groups", n, len(v.Groups))
	}
}

// auditMembers checks that what waits for others cannot be claimed, and that each end and each lease is told of once.
func (f *graphFlow) auditMembers(v oapi.FlowGraph) {
	f.t.Helper()
	groups := map[uuid.UUID]oapi.FlowEdgeGroup{}
	for _, group := range v.Groups {
		groups[group.DownstreamExecutionID] = group
	}
	ends, leases := map[uuid.UUID]int64{}, map[uuid.UUID]int{}
	for _, e := range f.log("") {
		switch {
		case e.Topic == "completion":
			ends[*e.ExecutionID]++
		case e.Type == "lease.acquired" || e.Type == "lease.reclaimed":
			leases[*e.ExecutionID]++
		case e.Type == "lease.revoked" || e.Type == "lease.expired":
			leases[*e.ExecutionID]--
		}
	}
	list := answerAs[oapi.ExecutionList](f.Get(fmt.Sprintf("/v1/executions?flow_id=%s&limit=500", f.ID)).Want(http.StatusOK)).Items
	if len(list) != len(v.Nodes) {
		f.t.Errorf("%d members are listed of %d", len(list), len(v.Nodes))
	}
	for _, e := range list {
		group, grouped := groups[e.ID]
		waits := grouped && group.TotalDeps > 0 && group.State == "pending"
		at := e.StateVector
		fresh := at.AttemptState == "pending_first_attempt" || at.AttemptState == "pending_replay_attempt"
		if waits && at.LifecyclePhase == "runnable" && fresh && at.EligibilityState != "blocked_by_dependencies" {
			f.t.Errorf("%s is %s, and what it depends on is not decided", e.ID, at.EligibilityState)
		}
		if !waits && fresh && at.EligibilityState == "blocked_by_dependencies" {
			f.t.Errorf("%s waits for a group that is %s", e.ID, group.State)
		}
		want := e.ReplayCount
		if at.LifecyclePhase == "terminal" {
			want++
		}
		if ends[e.ID] != int64(want) {
			f.t.Errorf("%s is %s after %d replays: %d ends are told", e.ID, e.PublicState, e.ReplayCount, ends[e.ID])
		}
		held := 0
		if at.OwnershipState == "leased" {
			held = 1
		}
		if leases[e.ID] > held { // one that was lost ends once more, when nobody can take it over
			f.t.Errorf("%s is %s: %d of its leases did not end", e.ID, at.OwnershipState, leases[e.ID])
		}
	}
}
