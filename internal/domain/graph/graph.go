// Package graph is what the members of a flow depend on: edges from one execution to another, the groups that the edges to one
// execution form, and how the ends of executions decide them. It is pure.
//
//	upstream ends well ──> edge satisfied ──┐
//	                                        ├──> group satisfied ──> downstream may be claimed
//	upstream ends      ──> edge impossible ─┘    or impossible ──> downstream is skipped, and what depends on it
//
// reference: flows-streams-budgets.md 2.
package graph

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// State is where an edge, or a group of them, stands.
type State string

// The states. A state other than pending is left only when an execution is replayed.
const (
	Pending    State = "pending"
	Satisfied  State = "satisfied"
	Impossible State = "impossible"
)

// SuccessOnly is the only kind of dependency: the upstream has to end well.
const SuccessOnly = "success_only"

// Edge makes one member of a flow depend on another.
type Edge struct {
	ID         uuid.UUID
	FlowID     uuid.UUID
	Upstream   uuid.UUID
	Downstream uuid.UUID
	PassResult bool // the downstream's worker gets the upstream's result
	State      State
	CreatedAt  time.Time
	ResolvedAt time.Time // zero while it is pending
}

// Same says whether e and o say the same, whatever has become of them.
func (e *Edge) Same(o *Edge) bool {
	return e.FlowID == o.FlowID && e.Upstream == o.Upstream && e.Downstream == o.Downstream && e.PassResult == o.PassResult
}

// StateOf is what the end of its upstream makes of an edge.
func StateOf(o execution.Outcome) State {
	switch o {
	case execution.OutcomeNone:
		return Pending
	case execution.OutcomeSuccess:
		return Satisfied
	default:
		return Impossible
	}
}

// Kind says how many edges of a group have to be satisfied.
type Kind string

// The kinds.
const (
	AllOf  Kind = "all_of"
	AnyOf  Kind = "any_of"
	Quorum Kind = "quorum"
)

// OnSatisfied says what becomes of the other upstreams once a group of kind any or quorum is decided.
type OnSatisfied string

// What may become of them.
const (
	LetRun          OnSatisfied = "let_run"
	CancelRemaining OnSatisfied = "cancel_remaining"
)

// Policy says when a group is satisfied.
type Policy struct {
	Kind        Kind
	K           int // of a quorum, else 0
	OnSatisfied OnSatisfied
}

// DefaultPolicy is that of a group which was given none.
func DefaultPolicy() Policy { return Policy{Kind: AllOf, OnSatisfied: LetRun} }

// Group is what one member depends on, taken together.
type Group struct {
	Downstream uuid.UUID
	Policy
	State     State
	Edges     int
	Satisfied int
	Failed    int // upstreams that failed, expired or were cancelled
	Skipped   int
	FiredAt   time.Time // when it was decided; zero while it is pending
}

// NewGroup returns the group of a member that has n dependencies, none of them resolved.
func NewGroup(downstream uuid.UUID, p Policy, n int) Group {
	return Group{Downstream: downstream, Policy: p, State: Pending, Edges: n}
}

// Open returns how many edges are not resolved.
func (g *Group) Open() int { return g.Edges - g.Satisfied - g.Failed - g.Skipped }

// Holds says whether the group keeps its member from being claimed: a group without edges keeps nobody.
func (g *Group) Holds() bool { return g.Edges > 0 && g.State == Pending }

// Need returns how many edges have to be satisfied.
func (g *Group) Need() int {
	switch g.Kind {
	case AnyOf:
		return 1
	case Quorum:
		return g.K
	default:
		return g.Edges
	}
}

// decided is the state that the counts add up to. A quorum of more than there are edges is neither satisfied nor impossible:
// its edges are still being staged.
func (g *Group) decided() State {
	need, lost := g.Need(), g.Failed+g.Skipped
	switch {
	case g.Edges == 0 || g.Edges < need:
		return Pending
	case g.Satisfied >= need:
		return Satisfied
	case lost > g.Edges-need:
		return Impossible
	default:
		return Pending
	}
}

// Resolve counts the end of one upstream, and says whether that decides the group. Once it is decided the others are only
// counted. reference: flows-streams-budgets.md 2.6.
func (g *Group) Resolve(o execution.Outcome, now time.Time) (fired bool) {
	switch o {
	case execution.OutcomeSuccess:
		g.Satisfied++
	case execution.OutcomeSkipped:
		g.Skipped++
	default:
		g.Failed++
	}
	if g.State != Pending {
		return false
	}
	return g.settle(now)
}

// Add takes one more edge, which may be undecided again what was satisfied.
func (g *Group) Add(now time.Time) {
	g.Edges++
	g.State, g.FiredAt = Pending, time.Time{}
	g.settle(now)
}

// Rewind counts the group anew: an upstream, or the member itself, runs again, so many edges are still resolved, and the others pending.
func (g *Group) Rewind(satisfied, failed, skipped int, now time.Time) {
	was, fired := g.State, g.FiredAt
	g.Satisfied, g.Failed, g.Skipped = satisfied, failed, skipped
	g.State, g.FiredAt = Pending, time.Time{}
	if g.settle(now) && g.State == was {
		g.FiredAt = fired
	}
}

func (g *Group) settle(now time.Time) bool {
	if g.State = g.decided(); g.State == Pending {
		return false
	}
	g.FiredAt = now
	return true
}

// CancelsRest says whether the upstreams that have not ended are cancelled now that the group is decided.
func (g *Group) CancelsRest() bool {
	return g.Kind != AllOf && g.OnSatisfied == CancelRemaining && g.State != Pending && g.Open() > 0
}

// RestReason is why they are cancelled.
func (g *Group) RestReason() string { return "sibling_quorum_" + string(g.State) }
