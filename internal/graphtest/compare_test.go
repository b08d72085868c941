package graphtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// snapshot is all that a server tells of a namespace.
type snapshot struct {
	members map[uuid.UUID]memberView
	flows   map[string]flowView
}

type memberView struct {
	Name     string
	Flow     string
	Public   string
	Blocking string
	Replays  int
	Epoch    int64 // 0 unless it is held
}

type flowView struct {
	Status        string
	Revision      int64
	GraphRevision int64
	Nodes, Edges  int64
	Intent        bool
	Policy        string
	Rollup        string
	Counts        map[string]int64
	Graph         []string // edges and groups, a line for each
	edges         []edgeView
	groups        map[string]groupView
}

type edgeView struct{ up, down, state string }

type groupView struct {
	group
	running int64
	fired   bool
}

func (g group) String() string {
	return fmt.Sprintf("%s(%d) rest %t, %s: %d edges, %d satisfied, %d failed, %d skipped", g.Kind, g.K, g.Rest, g.State, g.Edges, g.Satisfied, g.Failed, g.Skipped)
}

// look takes a snapshot and holds it to the invariants.
func (s *side) look() {
	before := s.seen
	now := snapshot{members: map[uuid.UUID]memberView{}, flows: map[string]flowView{}}
	names := map[uuid.UUID]string{}
	for _, f := range s.w.flows {
		names[f.id] = f.name
	}
	for _, x := range s.w.all {
		names[x.id] = x.name
	}
	for _, e := range decode[struct {
		Items []struct {
			ID      uuid.UUID  `json:"id"`
			FlowID  *uuid.UUID `json:"flow_id"`
			Public  string     `json:"public_state"`
			Block   string     `json:"blocking_reason"`
			Replays int        `json:"replay_count"`
			Lease   *struct {
				Epoch int64 `json:"lease_epoch"`
			} `json:"current_lease"`
			Vector struct {
				Ownership string `json:"ownership_state"`
			} `json:"state_vector"`
		} `json:"items"`
	}](s.Fetch("/v1/executions?limit=500")).Items {
		v := memberView{Name: names[e.ID], Public: e.Public, Blocking: e.Block, Replays: e.Replays}
		if e.FlowID != nil {
			v.Flow = names[*e.FlowID]
		}
		if e.Lease != nil && e.Vector.Ownership == "leased" {
			v.Epoch = e.Lease.Epoch
		}
		now.members[e.ID] = v
	}
	for _, f := range s.w.flows {
		if f.deleted {
			continue
		}
		now.flows[f.name] = s.flow(f, names)
	}
	s.events()
	s.seen = now
	s.hold(before, now)
}

// flow reads one flow and its graph.
func (s *side) flow(f *flow, names map[uuid.UUID]string) flowView {
	type rollup struct {
		State  string           `json:"state"`
		Counts map[string]int64 `json:"counts"`
		Total  int64            `json:"total"`
	}
	head := decode[struct {
		Status        string  `json:"status"`
		Revision      int64   `json:"revision"`
		GraphRevision int64   `json:"graph_revision"`
		Nodes         int64   `json:"node_count"`
		Edges         int64   `json:"edge_count"`
		Intent        bool    `json:"cancel_requested"`
		Rollup        *rollup `json:"rollup"`
		Cancellation  *struct {
			Policy *string `json:"policy"`
		} `json:"cancellation"`
	}](s.Fetch("/v1/flows/" + f.id.String()))
	raw := s.Fetch("/v1/flows/" + f.id.String() + "/graph")
	g := decode[oapi.FlowGraph](raw)
	v := flowView{Status: head.Status, Revision: head.Revision, GraphRevision: head.GraphRevision, Nodes: head.Nodes, Edges: head.Edges, Intent: head.Intent, groups: map[string]groupView{}}
	if c := head.Cancellation; c != nil && c.Policy != nil {
		v.Policy = *c.Policy
	}
	if r := head.Rollup; r != nil {
		v.Rollup, v.Counts = r.State, r.Counts
		var total int64
		for _, n := range r.Counts {
			total += n
		}
		if total != r.Total || total != head.Nodes {
			s.Failf("the counts of the rollup add up to something else than its total, or than the members:\n%s", raw)
		}
	}
	if g.GraphRevision != head.GraphRevision || int64(len(g.Nodes)) != head.Nodes || int64(len(g.Edges)) != head.Edges {
		s.Failf("invariant 2: the flow counts otherwise than its graph has:\n%+v\n%s", head, raw)
	}
	for _, e := range g.Edges {
		ev := edgeView{names[e.UpstreamExecutionID], names[e.DownstreamExecutionID], string(e.State)}
		v.edges = append(v.edges, ev)
		v.Graph = append(v.Graph, fmt.Sprintf("%s -> %s %t %s", ev.up, ev.down, e.PassResult, ev.state))
	}
	for _, x := range g.Groups {
		gv := groupView{group: group{Kind: string(x.Kind), Rest: x.OnSatisfied == "cancel_remaining", State: string(x.State), Edges: int(x.TotalDeps), Satisfied: int(x.SatisfiedCount), Failed: int(x.FailedCount), Skipped: int(x.SkippedCount)}, running: x.RunningCount}
		if x.K != nil {
			gv.K = int(*x.K)
		}
		name := names[x.DownstreamExecutionID]
		gv.fired = !strings.Contains(string(must(json.Marshal(x.FiredAt))), "null")
		v.groups[name] = gv
		v.Graph = append(v.Graph, name+": "+gv.group.String())
	}
	slices.Sort(v.Graph)
	return v
}

// events reads what was told since the last look.
func (s *side) events() {
	s.Sync()
	for more := true; more; {
		page := decode[oapi.EventList](s.Fetch(fmt.Sprintf("/v1/events?after=%d&limit=500", s.cursor)))
		for _, e := range page.Items {
			switch {
			case e.ExecutionID != nil && (e.Topic == "completion" || e.Topic == "lease"):
				s.lines[*e.ExecutionID] = append(s.lines[*e.ExecutionID], e.Type)
			case e.FlowID != nil && e.Revision != nil && e.ExecutionID == nil:
				s.told[*e.FlowID] = append(s.told[*e.FlowID], fmt.Sprintf("%d %s", *e.Revision, e.Type))
			}
		}
		s.cursor, more = page.NextCursor, page.More
	}
}

// compare compares the last snapshot with the model.
func (s *side) compare() {
	want := snapshot{members: map[uuid.UUID]memberView{}, flows: map[string]flowView{}}
	for _, x := range s.w.all {
		if x.gone() {
			continue
		}
		v := memberView{Name: x.name, Replays: x.replays}
		v.Public, v.Blocking = s.w.stand(x)
		if x.flow != nil {
			v.Flow = x.flow.name
		}
		if x.lease > 0 {
			v.Epoch = x.epoch
		}
		want.members[x.id] = v
		var ends []string
		for _, line := range s.lines[x.id] {
			if end, ok := strings.CutPrefix(line, "execution."); ok {
				ends = append(ends, end)
			}
		}
		if !slices.Equal(ends, x.ends) {
			s.Failf("invariant 21: %s has ended as %v, and the events tell %v", x.name, x.ends, ends)
		}
	}
	for _, f := range s.w.flows {
		if f.deleted {
			continue
		}
		v := flowView{Status: f.status, Revision: f.revision, GraphRevision: int64(len(f.members) + len(f.edges)), Nodes: int64(len(f.members)), Edges: int64(len(f.edges)), Intent: f.intent, Policy: f.policy}
		v.Rollup, v.Counts = s.w.rollup(f)
		for _, e := range f.edges {
			v.Graph = append(v.Graph, fmt.Sprintf("%s -> %s %t %s", e.up.name, e.down.name, e.pass, e.state()))
		}
		for _, x := range f.members {
			if _, set := f.policies[x]; set || len(x.into()) > 0 {
				v.Graph = append(v.Graph, x.name+": "+x.group().String())
			}
		}
		slices.Sort(v.Graph)
		want.flows[f.name] = v
	}
	opts := cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(snapshot{}), cmpopts.IgnoreUnexported(flowView{})}
	if diff := cmp.Diff(want, s.seen, opts); diff != "" {
		s.Failf("it stands otherwise than the model (-model +server):\n%s", diff)
	}
}

// hold checks the invariants of flows-streams-budgets.md 9 that show in what the server tells, without the model.
func (s *side) hold(before, now snapshot) {
	claimable := map[string]bool{}
	state := map[string]memberView{}
	for _, m := range now.members {
		state[m.Name] = m
		claimable[m.Name] = m.Blocking == "waiting_for_worker"
	}
	for name, f := range now.flows {
		if f.GraphRevision != f.Nodes+f.Edges || f.GraphRevision < before.flows[name].GraphRevision {
			s.Failf("invariant 1: %s has graph revision %d with %d members and %d edges, after %d", name, f.GraphRevision, f.Nodes, f.Edges, before.flows[name].GraphRevision)
		}
		if was, ok := before.flows[name]; ok && terminal(was.Status) && !s.w.replayed && f.GraphRevision != was.GraphRevision {
			s.Failf("invariant 4: the graph of %s has changed, which was %s", name, was.Status)
		}
		s.acyclic(name, f.edges)
		counted := map[string]map[string]int{}
		for _, e := range f.edges {
			if counted[e.down] == nil {
				counted[e.down] = map[string]int{}
			}
			counted[e.down][e.state]++
			counted[e.down][""]++
			if ended(state[e.up].Public) && e.state == "pending" && state[e.down].Replays == 0 {
				s.Failf("invariant 5: %s has ended, and its edge to %s is pending", e.up, e.down)
			}
		}
		for down, g := range f.groups {
			n := counted[down]
			if g.Edges != n[""] || g.Satisfied != n["satisfied"] || g.Failed+g.Skipped != n["impossible"] || g.running != int64(n["pending"]) || min(g.Satisfied, g.Failed, g.Skipped) < 0 {
				s.Failf("invariant 5: the group of %s counts %s, running %d, and its edges are %v", down, g.group, g.running, n)
			}
			if g.State != table(g.group) || g.fired != (g.State != "pending") {
				s.Failf("invariant 7: the group of %s is %s; fired %t", down, g.group, g.fired)
			}
			if was := before.flows[name].groups[down]; was.State != "" && was.State != "pending" && g.State != was.State && !s.w.reopens {
				s.Failf("invariant 6: the group of %s was %s and is %s", down, was.State, g.State)
			}
			if g.State == "pending" && g.Edges > 0 && claimable[down] && state[down].Public == "waiting" {
				s.Failf("invariant 8: %s can be claimed, and its group is %s", down, g.group)
			}
			if g.State == "impossible" && !ended(state[down].Public) {
				s.Failf("invariant 9: the group of %s is impossible, and it is %s", down, state[down].Public)
			}
			if was := before.flows[name].groups[down]; g.Rest && g.Kind != "all_of" && g.State != "pending" && was.State == "pending" && !s.w.replayed && !terminal(f.Status) {
				for _, e := range f.edges {
					if e.down == down && !ended(state[e.up].Public) && state[e.up].Replays == 0 {
						s.Failf("invariant 10: the group of %s is %s, and %s goes on", down, g.group, e.up)
					}
				}
			}
		}
		if f.Policy == "cancel_all" && before.flows[name].Status != f.Status && f.Status == "cancelled" {
			for _, m := range now.members {
				if m.Flow == name && !ended(m.Public) && !s.spared(m.Name) {
					s.Failf("invariant 14: %s was cancelled with all members, and %s is %s", name, m.Name, m.Public)
				}
			}
		}
	}
	for id, m := range now.members {
		lines := slices.DeleteFunc(slices.Clone(s.lines[id]), func(line string) bool { return !strings.HasPrefix(line, "lease.") })
		if n := len(lines); ended(m.Public) && n > 0 && lines[n-1] != "lease.revoked" && lines[n-1] != "lease.expired" {
			s.Failf("%s has ended, and the last that is told of its lease is %s", m.Name, lines[n-1])
		}
	}
	for id, told := range s.told {
		for i, line := range told {
			if !strings.HasPrefix(line, fmt.Sprintf("%d ", i)) {
				s.Failf("the revisions of flow %s are told as %v", id, told)
			}
		}
	}
}

// spared says whether a member may outlive its flow: it has a grace.
func (s *side) spared(name string) bool {
	return slices.ContainsFunc(s.w.spares, func(x *member) bool { return x.name == name })
}

func terminal(status string) bool {
	return status == "finished" || status == "failed" || status == "cancelled"
}

func ended(public string) bool {
	return slices.Contains([]string{"completed", "failed", "cancelled", "expired", "skipped"}, public)
}

// acyclic is invariant 3.
func (s *side) acyclic(name string, edges []edgeView) {
	open := map[string]int{}
	for _, e := range edges {
		open[e.up] += 0
		open[e.down]++
	}
	for len(open) > 0 {
		free := slices.DeleteFunc(slices.Collect(maps.Keys(open)), func(n string) bool { return open[n] > 0 })
		if len(free) == 0 {
			s.Failf("invariant 3: the edges of %s are no DAG: %v", name, edges)
		}
		for _, n := range free {
			delete(open, n)
			for _, e := range edges {
				if e.up == n {
					open[e.down]--
				}
			}
		}
	}
}
