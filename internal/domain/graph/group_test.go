package graph_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/graph"
)

var start = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// after returns the time that many seconds after the start.
func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// id returns an id that is easy to recognise.
func id(n byte) uuid.UUID { return uuid.UUID{0: 0xe0, 15: n} }

var (
	all      = graph.DefaultPolicy()
	first    = graph.Policy{Kind: graph.AnyOf, OnSatisfied: graph.LetRun}
	outcomes = []execution.Outcome{execution.OutcomeSuccess, execution.OutcomeFailed, execution.OutcomeCancelled, execution.OutcomeExpired, execution.OutcomeSkipped}
)

func quorum(k int) graph.Policy {
	return graph.Policy{Kind: graph.Quorum, K: k, OnSatisfied: graph.LetRun}
}

// letters are outcomes in short.
var letters = map[rune]execution.Outcome{
	's': execution.OutcomeSuccess, 'f': execution.OutcomeFailed, 'c': execution.OutcomeCancelled, 'x': execution.OutcomeExpired, '-': execution.OutcomeSkipped,
}

// TestGroup_Resolve: the table of flows-streams-budgets.md 2.6.
func TestGroup_Resolve(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy graph.Policy
		edges  int
		ends   string // outcomes, in order
		state  graph.State
		fired  int // by which of them, from 1; 0 by none
		counts [3]int
	}{
		{"all, none yet", all, 2, "", graph.Pending, 0, [3]int{}},
		{"all, some", all, 2, "s", graph.Pending, 0, [3]int{1, 0, 0}},
		{"all, all", all, 2, "ss", graph.Satisfied, 2, [3]int{2, 0, 0}},
		{"all, the first that does not end well", all, 3, "sf", graph.Impossible, 2, [3]int{1, 1, 0}},
		{"all, skipped", all, 2, "-", graph.Impossible, 1, [3]int{0, 0, 1}},
		{"all, later ends only count", all, 4, "fcx-", graph.Impossible, 1, [3]int{0, 3, 1}},
		{"any, the first", first, 3, "s", graph.Satisfied, 1, [3]int{1, 0, 0}},
		{"any, not before the last is lost", first, 3, "f-", graph.Pending, 0, [3]int{0, 1, 1}},
		{"any, the last", first, 3, "f-s", graph.Satisfied, 3, [3]int{1, 1, 1}},
		{"any, none", first, 3, "f-c", graph.Impossible, 3, [3]int{0, 2, 1}},
		{"any, once fired", first, 3, "sfs", graph.Satisfied, 1, [3]int{2, 1, 0}},
		{"a quorum", quorum(2), 3, "sfs", graph.Satisfied, 3, [3]int{2, 1, 0}},
		{"a quorum that cannot be reached", quorum(2), 3, "fsx", graph.Impossible, 3, [3]int{1, 2, 0}},
		{"a quorum of all", quorum(3), 3, "ssf", graph.Impossible, 3, [3]int{2, 1, 0}},
		{"a quorum of more than there are edges is still being staged", quorum(3), 2, "ss", graph.Pending, 0, [3]int{2, 0, 0}},
		{"and is not given up either", quorum(3), 2, "ff", graph.Pending, 0, [3]int{0, 2, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := graph.NewGroup(id(1), tt.policy, tt.edges)
			fired := 0
			for i, letter := range tt.ends {
				if g.Resolve(letters[letter], after(i+1)) {
					if fired != 0 {
						t.Errorf("it fires at end %d, and again at %d", fired, i+1)
					}
					fired = i + 1
				}
			}
			want := graph.Group{Downstream: id(1), Policy: tt.policy, State: tt.state, Edges: tt.edges, Satisfied: tt.counts[0], Failed: tt.counts[1], Skipped: tt.counts[2]}
			if tt.fired > 0 {
				want.FiredAt = after(tt.fired)
			}
			if diff := cmp.Diff(want, g); diff != "" || fired != tt.fired {
				t.Errorf("it fired at end %d, want %d; group (-want +got):\n%s", fired, tt.fired, diff)
			}
			if holds := tt.state == graph.Pending; g.Holds() != holds {
				t.Errorf("Holds() = %t, want %t", g.Holds(), holds)
			}
			if open := tt.edges - len(tt.ends); g.Open() != open {
				t.Errorf("Open() = %d, want %d", g.Open(), open)
			}
		})
	}
}

func TestGroup_Holds_NoEdges(t *testing.T) {
	t.Parallel()
	for _, p := range []graph.Policy{all, first, quorum(2)} {
		if g := graph.NewGroup(id(1), p, 0); g.Holds() {
			t.Errorf("a group of kind %s without edges holds its member", p.Kind)
		}
	}
}

func TestGroup_CancelsRest(t *testing.T) {
	t.Parallel()
	cancelling := func(p graph.Policy) graph.Policy {
		p.OnSatisfied = graph.CancelRemaining
		return p
	}
	tests := []struct {
		name   string
		policy graph.Policy
		ends   string
		want   bool
		reason string
	}{
		{"undecided", cancelling(first), "f", false, ""},
		{"satisfied", cancelling(first), "s", true, "sibling_quorum_satisfied"},
		{"impossible", cancelling(quorum(2)), "ff", true, "sibling_quorum_impossible"},
		{"nobody is left", cancelling(first), "ffs", false, ""},
		{"the others may run", first, "s", false, ""},
		{"of all nothing remains", cancelling(all), "f", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := graph.NewGroup(id(1), tt.policy, 3)
			for _, letter := range tt.ends {
				g.Resolve(letters[letter], start)
			}
			if got := g.CancelsRest(); got != tt.want {
				t.Errorf("CancelsRest() = %t, want %t", got, tt.want)
			}
			if tt.want && g.RestReason() != tt.reason {
				t.Errorf("RestReason() = %s, want %s", g.RestReason(), tt.reason)
			}
		})
	}
}

// TestGroup_Add: while its member has not started, another edge opens a group again.
func TestGroup_Add(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy graph.Policy
		edges  int
		ends   string
		state  graph.State
	}{
		{"the first edge", all, 0, "", graph.Pending},
		{"all, which was satisfied", all, 1, "s", graph.Pending},
		{"all, which was impossible", all, 1, "f", graph.Impossible},
		{"any, which was satisfied", first, 1, "s", graph.Satisfied},
		{"any, which was impossible", first, 2, "ff", graph.Pending},
		{"the last edge of a quorum", quorum(2), 1, "s", graph.Pending},
		{"the last edge of a quorum that it cannot be reached by", quorum(2), 1, "f", graph.Impossible},
		{"a quorum with one edge more", quorum(2), 2, "ss", graph.Satisfied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := graph.NewGroup(id(1), tt.policy, tt.edges)
			for _, letter := range tt.ends {
				g.Resolve(letters[letter], after(1))
			}
			g.Add(after(2))
			if g.State != tt.state || g.Edges != tt.edges+1 || g.Open() != tt.edges+1-len(tt.ends) {
				t.Errorf("it is %s with %d edges, %d of them open; want %s", g.State, g.Edges, g.Open(), tt.state)
			}
			if g.FiredAt.IsZero() != (g.State == graph.Pending) {
				t.Errorf("it is %s, and fired at %s", g.State, g.FiredAt)
			}
		})
	}
}

// TestGroup_Rewind: what ended well still counts, the rest is pending again.
func TestGroup_Rewind(t *testing.T) {
	t.Parallel()
	g := graph.NewGroup(id(1), all, 3)
	for _, letter := range "sf-" {
		g.Resolve(letters[letter], after(1))
	}
	g.Rewind(1, 0, 0, after(2))
	if diff := cmp.Diff(graph.Group{Downstream: id(1), Policy: all, State: graph.Pending, Edges: 3, Satisfied: 1}, g); diff != "" {
		t.Errorf("rewound (-want +got):\n%s", diff)
	}
	g.Rewind(3, 0, 0, after(3))
	if diff := cmp.Diff(graph.Group{Downstream: id(1), Policy: all, State: graph.Satisfied, Edges: 3, Satisfied: 3, FiredAt: after(3)}, g); diff != "" {
		t.Errorf("rewound when all have ended well meanwhile (-want +got):\n%s", diff)
	}
}

// policies draws one for a group of n edges, whose quorum may be beyond them.
func policies(n int) *rapid.Generator[graph.Policy] {
	return rapid.Custom(func(t *rapid.T) graph.Policy {
		p := graph.Policy{Kind: rapid.SampledFrom([]graph.Kind{graph.AllOf, graph.AnyOf, graph.Quorum}).Draw(t, "kind"),
			OnSatisfied: rapid.SampledFrom([]graph.OnSatisfied{graph.LetRun, graph.CancelRemaining}).Draw(t, "on_satisfied")}
		if p.Kind == graph.Quorum {
			p.K = rapid.IntRange(1, n+2).Draw(t, "k")
		}
		return p
	})
}

// expected is the state of a group by the counts of its edges: the table of 2.6, read once for all resolutions.
func expected(p graph.Policy, n, satisfied, lost int) graph.State {
	need := map[graph.Kind]int{graph.AllOf: n, graph.AnyOf: 1, graph.Quorum: p.K}[p.Kind]
	switch {
	case n == 0 || need > n:
		return graph.Pending
	case satisfied >= need:
		return graph.Satisfied
	case n-lost < need:
		return graph.Impossible
	default:
		return graph.Pending
	}
}

// TestGroup_Properties: invariants 5, 6 and 7 of flows-streams-budgets.md 9.
func TestGroup_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "edges")
		p := policies(n).Draw(t, "policy")
		ends := rapid.SliceOfN(rapid.SampledFrom(outcomes), 0, n).Draw(t, "ends")
		run := func(p graph.Policy, ends []execution.Outcome) (graph.Group, int) {
			g, fired := graph.NewGroup(id(1), p, n), 0
			for i, o := range ends {
				before := g
				if g.Resolve(o, after(i)) {
					fired++
				}
				s, f, k := count(ends[:i+1])
				switch {
				case g.Satisfied != s || g.Failed != f || g.Skipped != k || g.Open() != n-i-1:
					t.Fatalf("after %v: %+v", ends[:i+1], g)
				case g.State != expected(p, n, s, f+k):
					t.Fatalf("after %v it is %s, want %s", ends[:i+1], g.State, expected(p, n, s, f+k))
				case before.State != graph.Pending && (g.State != before.State || !g.FiredAt.Equal(before.FiredAt)):
					t.Fatalf("it was %s since %s, and is %s since %s", before.State, before.FiredAt, g.State, g.FiredAt)
				case g.FiredAt.IsZero() != (g.State == graph.Pending):
					t.Fatalf("it is %s, and fired at %s", g.State, g.FiredAt)
				}
			}
			return g, fired
		}
		g, fired := run(p, ends)
		if want := map[bool]int{true: 1}[g.State != graph.Pending]; fired != want {
			t.Fatalf("it is %s and fired %d times", g.State, fired)
		}
		shuffled := rapid.Permutation(ends).Draw(t, "in another order")
		if other, _ := run(p, shuffled); other.State != g.State {
			t.Fatalf("%v makes it %s, and %v %s", ends, g.State, shuffled, other.State)
		}
		like := p
		switch p.Kind {
		case graph.AnyOf:
			like = graph.Policy{Kind: graph.Quorum, K: 1, OnSatisfied: p.OnSatisfied}
		case graph.AllOf:
			like = graph.Policy{Kind: graph.Quorum, K: n, OnSatisfied: p.OnSatisfied}
		}
		other, _ := run(like, ends)
		if other.Policy = g.Policy; other != g {
			t.Fatalf("%+v is %+v with %+v", g, other, like)
		}
		// An upstream that runs again takes its resolution with it.
		if len(ends) > 0 {
			before, last := graph.NewGroup(id(1), p, n), ends[len(ends)-1]
			for i, o := range ends[:len(ends)-1] {
				before.Resolve(o, after(i))
			}
			back := before
			back.Resolve(last, after(90))
			s, f, k := count(ends[:len(ends)-1])
			back.Rewind(s, f, k, after(91))
			if back != before {
				t.Fatalf("one more end and back again (-before +after):\n%s", cmp.Diff(before, back))
			}
		}
	})
}

func count(ends []execution.Outcome) (satisfied, failed, skipped int) {
	for _, o := range ends {
		switch o {
		case execution.OutcomeSuccess:
			satisfied++
		case execution.OutcomeSkipped:
			skipped++
		default:
			failed++
		}
	}
	return satisfied, failed, skipped
}

// TestGroup_History: whatever happens to a group, in whatever order, it is what a recount of its edges makes of it.
func TestGroup_History(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(t, "edges")
		p := policies(n+2).Draw(t, "policy")
		g := graph.NewGroup(id(1), p, n)
		var ended []execution.Outcome // of those edges that are resolved
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			now := after(i)
			switch act := rapid.SampledFrom([]string{"resolve", "resolve", "add", "reopen", "rewind"}).Draw(t, "act"); {
			case act == "resolve" && g.Open() > 0:
				o := rapid.SampledFrom(outcomes).Draw(t, "outcome")
				was := g.State
				if fired := g.Resolve(o, now); fired != (was == graph.Pending && g.State != graph.Pending) {
					t.Fatalf("it was %s, is %s, and fired %t", was, g.State, fired)
				}
				ended = append(ended, o)
			case act == "add":
				g.Add(now)
			case act == "reopen" && len(ended) > 0:
				at := rapid.IntRange(0, len(ended)-1).Draw(t, "which")
				ended = slices.Delete(ended, at, at+1)
				s, f, k := count(ended)
				g.Rewind(s, f, k, now)
			case act == "rewind":
				lost := rapid.Bool().Draw(t, "what did not end well, too")
				ended = slices.DeleteFunc(ended, func(o execution.Outcome) bool { return lost && o != execution.OutcomeSuccess })
				s, f, k := count(ended)
				g.Rewind(s, f, k, now)
			}
			s, f, k := count(ended)
			if g.Satisfied != s || g.Failed != f || g.Skipped != k || g.State != expected(p, g.Edges, s, f+k) || g.FiredAt.IsZero() != (g.State == graph.Pending) {
				t.Fatalf("%+v, and its edges ended as %v", g, ended)
			}
		}
	})
}

func TestStateOf(t *testing.T) {
	t.Parallel()
	want := map[execution.Outcome]graph.State{
		execution.OutcomeNone: graph.Pending, execution.OutcomeSuccess: graph.Satisfied, execution.OutcomeFailed: graph.Impossible,
		execution.OutcomeCancelled: graph.Impossible, execution.OutcomeExpired: graph.Impossible, execution.OutcomeSkipped: graph.Impossible,
	}
	for o, s := range want {
		if got := graph.StateOf(o); got != s {
			t.Errorf("StateOf(%s) = %s, want %s", o, got, s)
		}
	}
}

func TestEdge_Same(t *testing.T) {
	t.Parallel()
	e := graph.Edge{ID: id(1), FlowID: id(2), Upstream: id(3), Downstream: id(4), PassResult: true, State: graph.Pending, CreatedAt: start}
	o := e
	o.ID, o.State, o.CreatedAt, o.ResolvedAt = id(9), graph.Satisfied, after(1), after(2)
	if !e.Same(&o) {
		t.Error("what has become of an edge makes another edge of it")
	}
	for name, change := range map[string]func(*graph.Edge){
		"flow": func(e *graph.Edge) { e.FlowID = id(9) }, "upstream": func(e *graph.Edge) { e.Upstream = id(9) },
		"downstream": func(e *graph.Edge) { e.Downstream = id(9) }, "pass_result": func(e *graph.Edge) { e.PassResult = false },
	} {
		o := e
		change(&o)
		if e.Same(&o) {
			t.Errorf("another %s says the same", name)
		}
	}
}
