package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/graph"
)

// node is one that needs others.
func node(key string, needs ...string) graph.Node {
	n := graph.Node{Create: execution.Create{Key: key}, Policy: all}
	for _, name := range needs {
		n.Needs = append(n.Needs, graph.Need{Name: name})
	}
	return n
}

// with is a node that is otherwise in one respect.
func with(n graph.Node, change func(n *graph.Node)) graph.Node {
	change(&n)
	return n
}

// flaws returns what a refusal points at: pointer and code, in order.
func flaws(tb testing.TB, err error) []string {
	tb.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		tb.Fatalf("the refusal is %v", err)
	}
	lines := make([]string, len(f.Fields))
	for i, field := range f.Fields {
		lines[i] = field.Pointer + " " + string(field.Code)
	}
	return lines
}

func TestNewPlan(t *testing.T) {
	t.Parallel()
	nodes := []graph.Node{
		node("build"), node("test", "build", "old"),
		with(node("publish", "test"), func(n *graph.Node) { n.Needs[0].PassResult = true }),
		with(node("", "publish"), func(n *graph.Node) { n.ID = id(7) }),
	}
	if diff := cmp.Diff([]string{"old"}, graph.Unknown(append(nodes, node("again", "old")))); diff != "" {
		t.Errorf("Unknown() (-want +got):\n%s", diff)
	}
	p, err := graph.NewPlan(nodes, map[string]uuid.UUID{"old": id(5)}, map[string]bool{"other": true}, "/executions")
	if err != nil {
		t.Fatal(err)
	}
	want := []graph.Link{{From: 0, To: 1}, {From: -1, Member: id(5), To: 1}, {From: 1, To: 2, PassResult: true}, {From: 2, To: 3}}
	if diff := cmp.Diff(want, p.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestNewPlan_Refusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		nodes []graph.Node
		code  fault.Code
		flaws []string
	}{
		{"a key twice", []graph.Node{node("a"), node("b"), node("a")}, fault.CodeGraphInvalid, []string{"/x/2/key already_exists"}},
		{"a key that a member has", []graph.Node{node("taken")}, fault.CodeGraphInvalid, []string{"/x/0/key already_exists"}},
		{"an id twice", []graph.Node{with(node("a"), func(n *graph.Node) { n.ID = id(1) }), with(node("b"), func(n *graph.Node) { n.ID = id(1) })}, fault.CodeGraphInvalid, []string{"/x/1/id already_exists"}},
		{"an id that is taken", []graph.Node{with(node("a"), func(n *graph.Node) { n.ID = id(8) })}, fault.CodeGraphInvalid, []string{"/x/0/id already_exists"}},
		{"an unknown need", []graph.Node{node("a", "nobody")}, fault.CodeGraphInvalid, []string{"/x/0/needs/0 not_found"}},
		{"a need twice", []graph.Node{node("a"), node("b", "a", "old", "a", "old")}, fault.CodeGraphInvalid, []string{"/x/1/needs/2 already_exists", "/x/1/needs/3 already_exists"}},
		{"itself", []graph.Node{node("a", "a")}, fault.CodeGraphInvalid, []string{"/x/0/needs/0 self_referencing_edge"}},
		{"a quorum of too many", []graph.Node{node("a"), with(node("b", "a"), func(n *graph.Node) { n.Policy = quorum(2) })}, fault.CodeGraphInvalid, []string{"/x/1/join/quorum graph_invalid"}},
		{"any of none", []graph.Node{with(node("a"), func(n *graph.Node) { n.Policy = first })}, fault.CodeGraphInvalid, []string{"/x/0/join graph_invalid"}},
		{"the rest of all", []graph.Node{with(node("a"), func(n *graph.Node) { n.Policy.OnSatisfied = graph.CancelRemaining })}, fault.CodeGraphInvalid, []string{"/x/0/on_satisfied graph_invalid"}},
		{"a cycle of two", []graph.Node{node("a", "b"), node("b", "a")}, fault.CodeGraphInvalid, []string{"/x/1/needs cycle_detected"}},
		{"what is wrong with one execution, alone", []graph.Node{with(node("a"), func(n *graph.Node) {
			n.Err = fault.Invalid(fault.CodeInvalidTagKey, "/tags/b", "bad")
		})}, fault.CodeInvalidTagKey, []string{"/x/0/tags/b invalid_tag_key"}},
		{"what is wrong with one execution, without a place", []graph.Node{node("a"), with(node("b"), func(n *graph.Node) {
			n.Err = fault.New(fault.CodeTimerOutOfRange, "bad")
		})}, fault.CodeTimerOutOfRange, []string{"/x/1 timer_out_of_range"}},
		{"several things at once", []graph.Node{
			with(node("a", "c"), func(n *graph.Node) { n.Err = fault.Invalid(fault.CodeInvalidTagKey, "/tags/b", "bad") }), node("a"), node("c", "a", "nobody"),
		}, fault.CodeGraphInvalid, []string{"/x/0/tags/b invalid_tag_key", "/x/1/key already_exists", "/x/2/needs/1 not_found", "/x/2/needs cycle_detected"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := graph.NewPlan(tt.nodes, map[string]uuid.UUID{"old": id(5)}, map[string]bool{"taken": true, id(8).String(): true}, "/x")
			if got := fault.CodeOf(err); got != tt.code {
				t.Fatalf("code = %s, want %s: %v", got, tt.code, err)
			}
			if diff := cmp.Diff(tt.flaws, flaws(t, err)); diff != "" {
				t.Errorf("flaws (-want +got):\n%s", diff)
			}
			f, _ := errors.AsType[*fault.Error](err)
			if len(f.Fields) == 1 && f.Message != f.Fields[0].Detail {
				t.Errorf("the message %q is not what is wrong: %q", f.Message, f.Fields[0].Detail)
			}
		})
	}
}

func TestNewPlan_TooManyLinks(t *testing.T) {
	t.Parallel()
	nodes := make([]graph.Node, 0, 302)
	var names []string
	for i := range 301 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", i), names...))
		if i < 200 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
	}
	for i := range 152 {
		nodes = append(nodes, node(fmt.Sprintf("m%d", i), names...))
	}
	_, err := graph.NewPlan(nodes, nil, nil, "/x")
	if diff := cmp.Diff([]string{"/x graph_invalid"}, flaws(t, err)); diff != "" {
		t.Errorf("flaws (-want +got):\n%s", diff)
	}
}

// TestNewPlan_ManyFlaws: the report ends somewhere.
func TestNewPlan_ManyFlaws(t *testing.T) {
	t.Parallel()
	nodes := make([]graph.Node, 1500)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("n%d", i), "nobody")
	}
	_, err := graph.NewPlan(nodes, nil, nil, "/x")
	if n := len(flaws(t, err)); n != 1000 {
		t.Errorf("%d flaws are reported", n)
	}
}

// acyclic draws nodes that need only such as come before them in an order of their own, and that order.
func acyclic(t *rapid.T, most int) []graph.Node {
	n := rapid.IntRange(1, most).Draw(t, "nodes")
	nodes := make([]graph.Node, n)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("n%d", i))
		for j := range i {
			if rapid.IntRange(0, 3).Draw(t, "an edge") == 0 {
				nodes[i].Needs = append(nodes[i].Needs, graph.Need{Name: nodes[j].Key, PassResult: rapid.Bool().Draw(t, "pass_result")})
			}
		}
		if needs := len(nodes[i].Needs); needs > 0 {
			nodes[i].Policy = policies(needs).Filter(func(p graph.Policy) bool {
				return p.K <= needs && (p.Kind != graph.AllOf || p.OnSatisfied == graph.LetRun)
			}).Draw(t, "policy")
		}
	}
	return rapid.Permutation(nodes).Draw(t, "in any order")
}

// TestNewPlan_Acyclic: a graph without a mistake is a plan with all its links, by downstream.
func TestNewPlan_Acyclic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := acyclic(t, 20)
		p, err := graph.NewPlan(nodes, nil, nil, "/x")
		if err != nil {
			t.Fatal(err)
		}
		var want []graph.Link
		for to := range nodes {
			for _, need := range nodes[to].Needs {
				from := slices.IndexFunc(nodes, func(n graph.Node) bool { return n.Key == need.Name })
				want = append(want, graph.Link{From: from, To: to, PassResult: need.PassResult})
			}
		}
		if diff := cmp.Diff(want, p.Links); diff != "" {
			t.Fatalf("links (-want +got):\n%s", diff)
		}
	})
}

// TestNewPlan_Planted: each mistake that is put into a graph is found where it is, and no other.
func TestNewPlan_Planted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := acyclic(t, 12)
		members, taken := map[string]uuid.UUID{}, map[string]bool{"used": true, id(8).String(): true}
		planted := map[string]bool{}
		for i := range nodes {
			n, at := &nodes[i], fmt.Sprintf("/x/%d", i)
			switch rapid.SampledFrom([]string{"", "", "unknown", "twice", "self", "quorum", "id", "err", "key", "member"}).Draw(t, "mistake") {
			case "unknown":
				planted[fmt.Sprintf("%s/needs/%d not_found", at, len(n.Needs))] = true
				n.Needs = append(n.Needs, graph.Need{Name: "nobody"})
			case "twice":
				if len(n.Needs) > 0 {
					planted[fmt.Sprintf("%s/needs/%d already_exists", at, len(n.Needs))] = true
					n.Needs = append(n.Needs, n.Needs[0])
				}
			case "self":
				planted[fmt.Sprintf("%s/needs/%d self_referencing_edge", at, len(n.Needs))] = true
				n.Needs = append(n.Needs, graph.Need{Name: n.Key})
			case "quorum":
				planted[at+"/join/quorum graph_invalid"] = true
				n.Policy = quorum(len(n.Needs) + 1)
			case "id":
				planted[at+"/id already_exists"] = true
				n.ID = id(8)
			case "err":
				planted[at+"/tags/b invalid_tag_key"] = true
				n.Err = fault.Invalid(fault.CodeInvalidTagKey, "/tags/b", "bad")
			case "key":
				planted[at+"/key already_exists"] = true
				taken[n.Key] = true
			case "member": // no mistake
				n.Needs = append(n.Needs, graph.Need{Name: "old"})
				members["old"] = id(5)
				if n.Policy.Kind == graph.AnyOf || n.Policy.Kind == graph.Quorum && n.Policy.K > len(n.Needs) {
					n.Policy = all
				}
			}
		}
		doubled := map[string]bool{} // an id that is taken twice over is told once more
		for i := range nodes {
			if at := fmt.Sprintf("/x/%d/id already_exists", i); planted[at] {
				doubled[at] = true
			}
		}
		_, err := graph.NewPlan(nodes, members, taken, "/x")
		if len(planted) == 0 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		f, ok := errors.AsType[*fault.Error](err)
		if !ok {
			t.Fatalf("%v was planted, and the answer is %v", planted, err)
		}
		found := map[string]bool{}
		for _, field := range f.Fields {
			line := field.Pointer + " " + string(field.Code)
			if !planted[line] || found[line] && !doubled[line] {
				t.Fatalf("%s is found, and not planted: %v", line, planted)
			}
			found[line] = true
		}
		if len(found) != len(planted) {
			t.Fatalf("planted (-) and found (+):\n%s", cmp.Diff(planted, found))
		}
	})
}

// TestNewPlan_Cycles: a graph with cycles is refused, with a path that is one; and nothing else is said of it.
func TestNewPlan_Cycles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 15).Draw(t, "nodes")
		nodes := make([]graph.Node, n)
		needs := map[string]map[string]bool{}
		for i := range nodes {
			nodes[i] = node(fmt.Sprintf("n%d", i))
			needs[nodes[i].Key] = map[string]bool{}
			for j := range nodes {
				if i != j && rapid.IntRange(0, n).Draw(t, "an edge") == 0 {
					name := fmt.Sprintf("n%d", j)
					nodes[i].Needs = append(nodes[i].Needs, graph.Need{Name: name})
					needs[nodes[i].Key][name] = true
				}
			}
		}
		_, err := graph.NewPlan(nodes, nil, nil, "/x")
		if cyclic := cyclic(needs); cyclic != (err != nil) {
			t.Fatalf("a cycle: %t, and the answer is %v", cyclic, err)
		}
		if err == nil {
			return
		}
		f, _ := errors.AsType[*fault.Error](err)
		for _, field := range f.Fields {
			if field.Code != fault.CodeCycleDetected {
				t.Fatalf("found beside cycles: %s %s", field.Pointer, field.Code)
			}
		}
		path, _ := f.Facts["path"].([]string)
		if len(path) < 3 || path[0] != path[len(path)-1] || len(slices.Compact(slices.Sorted(slices.Values(path)))) != len(path)-1 {
			t.Fatalf("that is no cycle: %v", path)
		}
		for i := range path[1:] {
			if !needs[path[i+1]][path[i]] {
				t.Fatalf("%s does not need %s, and yet the path is %v", path[i+1], path[i], path)
			}
		}
	})
}

// cyclic says whether some node reaches itself.
func cyclic(needs map[string]map[string]bool) bool {
	for begin := range needs {
		seen, front := map[string]bool{}, []string{begin}
		for len(front) > 0 {
			at := front[0]
			front = front[1:]
			for next := range needs[at] {
				if next == begin {
					return true
				}
				if !seen[next] {
					seen[next] = true
					front = append(front, next)
				}
			}
		}
	}
	return false
}

// TestNewPlan_Large: as much as one request may have, in time that is not quadratic, whichever way it is written down.
func TestNewPlan_Large(t *testing.T) {
	t.Parallel()
	nodes := make([]graph.Node, graph.MaxNodes)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("n%d", i))
		for j := 1; j <= 5 && j <= i; j++ {
			nodes[i].Needs = append(nodes[i].Needs, graph.Need{Name: fmt.Sprintf("n%d", i-j)})
		}
	}
	p, err := graph.NewPlan(nodes, nil, nil, "/x")
	if err != nil || len(p.Links) != 5*graph.MaxNodes-15 {
		t.Fatalf("%d links: %v", len(p.Links), err)
	}
	slices.Reverse(nodes)
	if _, err := graph.NewPlan(nodes, nil, nil, "/x"); err != nil {
		t.Fatal(err)
	}
	nodes[len(nodes)-1].Needs = []graph.Need{{Name: nodes[0].Key}}
	_, err = graph.NewPlan(nodes, nil, nil, "/x")
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Facts["path"] == nil {
		t.Fatalf("the answer to a large cycle is %v", err)
	}
	if text := f.Fields[0].Detail; len(text) > 500 {
		t.Errorf("a sentence of %d bytes", len(text))
	}
}

func TestPathText(t *testing.T) {
	t.Parallel()
	if got := graph.PathText([]string{"a", "b", "a"}); got != "a → b → a" {
		t.Error(got)
	}
	var long []string
	for i := range 30 {
		long = append(long, fmt.Sprint(i))
	}
	got := strings.Split(graph.PathText(long), " → ")
	if want := append(slices.Clone(long[:18]), "… 11 more …", "29"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if long[18] != "18" {
		t.Error("the path was changed")
	}
}

func TestSingle(t *testing.T) {
	t.Parallel()
	_, err := graph.NewPlan([]graph.Node{node("a", "nobody")}, nil, nil, "/execution")
	if diff := cmp.Diff([]string{"/execution/needs/0 not_found"}, flaws(t, graph.Single(err))); diff != "" {
		t.Errorf("flaws (-want +got):\n%s", diff)
	}
	if other := errors.New("no"); !errors.Is(graph.Single(other), other) {
		t.Error("another error is not returned as it is")
	}
}
