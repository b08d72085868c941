// Package graphtest holds the server to a model of what the graph of a flow does: whatever is asked in whatever order, SQLite and
// PostgreSQL end up where the model does. The model has no code of the domain, counts nothing as it goes along, and decides a group
// by looking at all its edges.
package graphtest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// model is what there is in one namespace.
type model struct {
	now     int64 // milliseconds
	flows   []*flow
	all     []*member // in the order of their creation
	owners  []*owner
	ended   []*member      // by this step, and not yet looked at
	decided []*member      // groups that were decided by this step
	times   map[int64]bool // at which something is due
	reached map[string]int
}

type flow struct {
	id       uuid.UUID
	name     string
	status   string
	auto     bool
	intent   bool   // to cancel
	asked    string // why
	policy   string // of its cancellation
	reason   string
	until    int64 // grace of its cancellation
	revision int64
	members  []*member
	edges    []*edge
	policies map[*member]policy // those that were set, or came with a build
	deleted  bool
	started  bool
}

type policy struct {
	kind string // all_of, any_of, quorum
	k    int
	rest bool // cancel_remaining
}

// edge is a dependency. how is what the end of its upstream has made of it: "" while it is pending, satisfied, failed or skipped.
type edge struct {
	up, down *member
	pass     bool
	how      string
}

func (e *edge) state() string {
	switch e.how {
	case "":
		return "pending"
	case "satisfied":
		return "satisfied"
	default:
		return "impossible"
	}
}

type member struct {
	id       uuid.UUID
	name     string
	key      string
	flow     *flow // nil for none
	created  int64
	priority int
	tries    int // retries that are allowed

	phase    string // runnable, active, suspended, ended
	begun    bool   // somebody has worked on it: it is to be retried, or was given back
	outcome  string
	until    int64
	deadline int64
	retries  int
	replays  int
	epoch    int64
	owner    *owner // while it is held, or lost
	lease    int64  // until when it is held; 0 when it is not
	grace    int64  // until when its worker may end it
	result   string
	ends     []string // completions, in order
	freed    bool     // its dependencies let it go when its flow had ended without having been started
	loose    bool     // it ended by this step as skipped or cancelled, whichever came first
}

// owner is one claim.
type owner struct {
	number int
	of     *member
	epoch  int64
	done   bool // by an operation of its own
}

func (m *model) reach(point string) { m.reached[point]++ }

func (x *member) over() bool { return x.phase == "ended" }

func (x *member) lost() bool { return x.phase == "active" && x.lease == 0 }

// started says whether its dependencies are settled for good.
func (x *member) started() bool { return x.phase != "runnable" || x.begun }

func (f *flow) terminal() bool {
	return f.status == "finished" || f.status == "failed" || f.status == "cancelled"
}

// endsMembers says whether the end of f is that of its members.
func (f *flow) endsMembers() bool {
	return f.status == "failed" || f.status == "cancelled" && f.policy != "flow_only"
}

func (x *member) into() []*edge {
	if x.flow == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(x.flow.edges), func(e *edge) bool { return e.down != x })
}

func (x *member) out() []*edge {
	if x.flow == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(x.flow.edges), func(e *edge) bool { return e.up != x })
}

func (x *member) policy() policy {
	if p, ok := x.flow.policies[x]; ok {
		return p
	}
	return policy{kind: "all_of"}
}

// group is what a member depends on.
type group struct {
	Kind      string
	K         int
	Rest      bool
	State     string
	Edges     int
	Satisfied int
	Failed    int
	Skipped   int
}

func (x *member) group() group {
	p := x.policy()
	g := group{Kind: p.kind, K: p.k, Rest: p.rest, State: "pending"}
	for _, e := range x.into() {
		g.Edges++
		switch e.how {
		case "satisfied":
			g.Satisfied++
		case "failed":
			g.Failed++
		case "skipped":
			g.Skipped++
		}
	}
	g.State = table(g)
	return g
}

// table is that of 2.6.
func table(g group) string {
	need := g.Edges
	switch g.Kind {
	case "any_of":
		need = 1
	case "quorum":
		need = g.K
	}
	switch {
	case g.Edges == 0 || need > g.Edges:
		return "pending"
	case g.Satisfied >= need:
		return "satisfied"
	case g.Edges-g.Failed-g.Skipped < need:
		return "impossible"
	}
	return "pending"
}

func (x *member) blocked() bool {
	if x.flow == nil || x.started() {
		return false
	}
	g := x.group()
	return g.Edges > 0 && g.State == "pending"
}

func (x *member) paused() bool {
	return x.flow != nil && !x.started() && !x.flow.started && !x.freed
}

// stand is the public state, and the reason.
func (m *model) stand(x *member) (public, blocking string) {
	switch {
	case x.over() && x.outcome == "success":
		return "completed", "none"
	case x.over():
		return x.outcome, "none"
	case x.phase == "suspended":
		return "suspended", "waiting_for_callback"
	case x.lost():
		return "active", "waiting_for_worker"
	case x.phase == "active":
		return "active", "none"
	case x.blocked():
		return "waiting_children", "waiting_for_children"
	case x.paused():
		return "waiting", "paused_by_policy"
	case x.until > m.now && x.retries > 0 && x.begun:
		return "delayed", "waiting_for_retry_backoff"
	case x.until > m.now:
		return "delayed", "waiting_for_delay"
	}
	return "waiting", "waiting_for_worker"
}

// candidates are what a claim gets, in its order.
func (m *model) candidates() []*member {
	var found []*member
	for _, x := range m.all {
		if public, blocking := m.stand(x); !x.gone() && blocking == "waiting_for_worker" && (public == "waiting" || x.lost()) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.created, b.created), bytes.Compare(a.id[:], b.id[:]))
	})
	return found
}

func (x *member) gone() bool { return x.flow != nil && x.flow.deleted }

// due returns a time of its own, near the given one, so that never two things are due at once.
func (m *model) due(at int64) int64 {
	for m.times[at] {
		at++
	}
	m.times[at] = true
	return at
}

// end ends a member. fence says that whoever holds it is fenced off.
func (m *model) end(x *member, outcome string, fence bool) {
	x.phase, x.outcome, x.begun = "ended", outcome, false
	if fence && x.epoch > 0 {
		x.epoch++
	}
	x.owner, x.lease, x.grace, x.until = nil, 0, 0, 0
	x.ends = append(x.ends, map[string]string{"success": "completed"}[outcome]+map[bool]string{true: outcome}[outcome != "success"])
	m.ended = append(m.ended, x)
	m.reach("ended: " + outcome)
}

// bucket is what the end of an upstream counts as.
func bucket(outcome string) string {
	switch outcome {
	case "success":
		return "satisfied"
	case "skipped":
		return "skipped"
	default:
		return "failed"
	}
}

// follow lets the ends of this step have their consequences, until there are no more.
func (m *model) follow() {
	for len(m.ended) > 0 {
		x := m.ended[0]
		m.ended = m.ended[1:]
		for _, e := range x.out() {
			if e.how == "" {
				m.resolve(e)
			}
		}
	}
}

// resolve decides an edge whose upstream has ended.
func (m *model) resolve(e *edge) {
	before := e.down.group().State
	e.how = bucket(e.up.outcome)
	if before == "pending" && e.down.group().State != "pending" {
		m.fire(e.down)
	}
}

// fire does what follows from the decision of a group.
func (m *model) fire(x *member) {
	g := x.group()
	m.reach("group: " + g.State + " " + g.Kind)
	ends := x.flow.endsMembers()
	x.freed = x.freed || g.State == "satisfied" && x.flow.status != "created" && !x.started()
	switch {
	case x.over():
	case ends:
		m.end(x, "cancelled", true)
	case g.State == "impossible":
		m.end(x, "skipped", true)
		x.loose = true
	}
	if !g.Rest || g.Kind == "all_of" || ends {
		return
	}
	for _, e := range x.into() {
		if e.how == "" && !e.up.over() {
			m.reach("cancel_remaining: " + e.up.phase)
			m.end(e.up, "cancelled", true)
			e.up.loose = true
		}
	}
}

// bad says whether x ended badly and nothing made up for it, or was skipped because of a member that has ended well since.
func (x *member) bad() bool {
	if x.over() && x.outcome == "skipped" {
		return slices.ContainsFunc(x.into(), func(e *edge) bool { return e.state() == "impossible" && e.up.outcome == "success" })
	}
	if !x.over() || x.outcome == "success" {
		return false
	}
	out := x.out()
	return len(out) == 0 || slices.ContainsFunc(out, func(e *edge) bool { return e.down.group().State != "satisfied" })
}

// open returns how many members have not ended.
func (f *flow) open() int {
	n := 0
	for _, x := range f.members {
		if !x.over() {
			n++
		}
	}
	return n
}

func (f *flow) bad() bool { return slices.ContainsFunc(f.members, (*member).bad) }

// finish ends the flows that end by themselves.
func (m *model) finish() {
	for _, f := range m.flows {
		if f.deleted || f.status != "running" || !f.auto || len(f.members) == 0 || f.open() > 0 {
			continue
		}
		f.revision++
		switch {
		case f.intent:
			f.status, f.policy, f.reason = "cancelled", "cancel_all", f.asked
		case f.bad():
			f.status = "failed"
		default:
			f.status = "finished"
		}
		m.reach("auto_finish: " + f.status)
	}
}

// rollup is the state and the counts of a flow, "" without members.
func (m *model) rollup(f *flow) (state string, counts map[string]int64) {
	counts = map[string]int64{}
	for _, x := range f.members {
		public, _ := m.stand(x)
		counts[public]++
	}
	switch {
	case len(f.members) == 0:
		return "", counts
	case f.open() == 0 && f.bad():
		return "failed", counts
	case f.open() == 0:
		return "completed", counts
	case counts["active"] > 0:
		return "running", counts
	case counts["suspended"]+counts["delayed"]+counts["waiting_children"] > 0:
		return "blocked", counts
	}
	return "open", counts
}

// reaches says whether there is a way along edges from one to another.
func (x *member) reaches(to *member) bool {
	seen, front := map[*member]bool{x: true}, []*member{x}
	for len(front) > 0 {
		at := front[0]
		front = front[1:]
		if at == to {
			return true
		}
		for _, e := range at.out() {
			if !seen[e.down] {
				seen[e.down] = true
				front = append(front, e.down)
			}
		}
	}
	return false
}

// ask is the cancellation of one member, with a grace or without.
func (m *model) cancel(x *member, graceUntil int64) {
	if graceUntil > m.now && x.phase == "active" && x.lease > m.now {
		if x.grace == 0 || graceUntil < x.grace {
			x.grace = graceUntil
		}
		m.reach("cancelled with a grace")
		return
	}
	m.end(x, "cancelled", true)
}

// endMembers ends the members of a flow with it.
func (m *model) endMembers(f *flow) {
	for _, x := range f.members {
		switch {
		case x.over(), f.policy == "cancel_pending" && f.status == "cancelled" && x.phase != "runnable":
		case f.until > m.now && x.phase == "active" && x.grace > 0: // it was asked before
		default:
			m.cancel(x, f.until)
		}
	}
}

// replay lets a member run again.
func (m *model) replay(x *member) {
	m.reach("replay: " + x.outcome)
	wasSatisfied := x.flow != nil && x.group().State == "satisfied"
	x.phase, x.outcome, x.begun, x.result = "runnable", "", false, ""
	x.retries, x.replays = 0, x.replays+1
	if x.deadline <= m.now {
		x.deadline = 0
	}
	for _, e := range x.out() {
		if !e.down.started() && e.how != "" {
			e.how = ""
			m.reach("replay: a downstream waits again")
		}
	}
	for _, e := range x.into() {
		switch {
		case !e.up.over():
			if e.how != "" {
				m.reach("replay: the upstream runs again, too")
			}
			e.how = ""
		case wasSatisfied:
		case e.up.outcome == "success":
			e.how = "satisfied"
		case e.how != "satisfied":
			e.how = ""
		}
	}
	if wasSatisfied && slices.ContainsFunc(x.into(), func(e *edge) bool { return e.how == "" }) {
		for _, e := range x.into() {
			if e.how == "failed" || e.how == "skipped" {
				e.how = bucket(map[bool]string{true: "skipped", false: "failed"}[e.up.outcome == "skipped"])
			}
		}
	}
}

// again lets a flow run again of which members do.
func (f *flow) again() {
	if f.status == "failed" || f.status == "finished" {
		f.status = "running"
		f.intent, f.asked, f.policy, f.until = false, "", "", 0
		f.revision++
	}
}

// planned are the members that a replay of a flow runs again: those that are named, or failed, and what was skipped because of
// them.
func (f *flow) planned(named []*member) []*member {
	chosen := map[*member]bool{}
	for _, x := range f.members {
		if named == nil && x.bad() || slices.Contains(named, x) {
			chosen[x] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, e := range f.edges {
			if chosen[e.up] && !chosen[e.down] && e.state() == "impossible" && e.down.outcome == "skipped" {
				chosen[e.down], grown = true, true
			}
		}
	}
	var list []*member
	for _, x := range f.members {
		if chosen[x] {
			list = append(list, x)
		}
	}
	return list
}

// next is when something is due, 0 for never.
func (m *model) next() int64 {
	var at int64
	for _, x := range m.all {
		if x.over() || x.gone() {
			continue
		}
		for _, t := range []int64{x.until, x.deadline, x.lease, x.grace} {
			if t > m.now && (at == 0 || t < at) {
				at = t
			}
		}
	}
	return at
}

// pass does what is due.
func (m *model) pass() {
	for _, x := range slices.Clone(m.all) {
		due := func(t int64) bool { return t != 0 && t <= m.now }
		switch {
		case x.over() || x.gone():
		case x.phase == "active" && x.grace > 0 && (due(x.grace) || due(x.deadline) || due(x.lease)):
			m.reach("due: grace")
			m.end(x, "cancelled", true)
		case due(x.deadline):
			m.reach("due: deadline of what is " + x.phase)
			m.end(x, "expired", false)
		case x.phase == "active" && due(x.lease):
			m.reach("due: lease")
			x.lease = 0
		}
		if due(x.until) && !x.blocked() && !x.paused() {
			x.until = 0
		}
	}
}
