package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Limits of one request.
const (
	MaxNodes = 10_000
	MaxEdges = 50_000
	maxFlaws = 1000 // reported at once
)

// Need names a member that another depends on.
type Need struct {
	Name       string // its key, or its id
	PassResult bool
}

// Node is a member to be, with what it depends on.
type Node struct {
	execution.Create
	Needs  []Need
	Policy Policy
	Err    error // why it cannot be made, whatever the graph
}

// Link is one dependency of a plan: a node on another one, or on a member that the flow has.
type Link struct {
	From       int       // index of the upstream node, -1 for a member that there is
	Member     uuid.UUID // that member
	To         int       // index of the downstream node
	PassResult bool
}

// Plan is a graph that can be built.
type Plan struct {
	Nodes []Node
	Links []Link
}

// Unknown returns the names in needs that are not those of nodes, each once: they have to be members of the flow.
func Unknown(nodes []Node) []string {
	own, seen := map[string]bool{}, map[string]bool{}
	for i := range nodes {
		own[nodes[i].Key] = true
	}
	var names []string
	for i := range nodes {
		for _, n := range nodes[i].Needs {
			if !own[n.Name] && !seen[n.Name] {
				seen[n.Name] = true
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// NewPlan checks a graph: members are those of the flow, by the names that nodes use, and taken the keys and ids among the nodes'
// that are not free. It returns CodeGraphInvalid with every mistake, each with its place under pointer and, for the first cycle,
// the path; or, if that is all that is wrong, what is wrong with the executions themselves.
func NewPlan(nodes []Node, members map[string]uuid.UUID, taken map[string]bool, pointer string) (Plan, error) {
	c := checker{plan: Plan{Nodes: nodes}, pointer: pointer, index: map[string]int{}, ids: map[uuid.UUID]int{}, members: members, taken: taken}
	links := 0
	for i := range nodes {
		c.node(i)
		links += len(nodes[i].Needs)
	}
	if links > MaxEdges {
		c.flaw(fault.CodeGraphInvalid, "", "%d dependencies are more than the %d that one request may have. Add the rest with another.", links, MaxEdges)
	}
	for i := range nodes {
		c.needs(i)
	}
	c.cycles()
	return c.plan, c.err()
}

type checker struct {
	plan    Plan
	pointer string
	index   map[string]int // of nodes, by key
	ids     map[uuid.UUID]int
	members map[string]uuid.UUID
	taken   map[string]bool
	flaws   []fault.Field
	path    []string
}

func (c *checker) flaw(code fault.Code, pointer, format string, args ...any) {
	if len(c.flaws) < maxFlaws {
		c.flaws = append(c.flaws, fault.Field{In: fault.InBody, Pointer: c.pointer + pointer, Code: code, Detail: fmt.Sprintf(format, args...)})
	}
}

// node checks key, id and join of one node.
func (c *checker) node(i int) {
	n := &c.plan.Nodes[i]
	at := fmt.Sprintf("/%d", i)
	if f, ok := errors.AsType[*fault.Error](n.Err); ok {
		for _, field := range f.Fields {
			c.flaw(f.Code, at+field.Pointer, "%s", field.Detail)
		}
		if len(f.Fields) == 0 {
			c.flaw(f.Code, at, "%s", f.Message)
		}
	}
	if n.Key != "" {
		if first, ok := c.index[n.Key]; ok {
			c.flaw(fault.CodeAlreadyExists, at+"/key", "The key %q is that of executions/%d, too.", n.Key, first)
		} else {
			c.index[n.Key] = i
		}
		if c.taken[n.Key] {
			c.flaw(fault.CodeAlreadyExists, at+"/key", "The flow has a member with the key %q.", n.Key)
		}
	}
	if n.ID != uuid.Nil {
		if first, ok := c.ids[n.ID]; ok {
			c.flaw(fault.CodeAlreadyExists, at+"/id", "The id is that of executions/%d, too.", first)
		}
		c.ids[n.ID] = i
		if c.taken[n.ID.String()] {
			c.flaw(fault.CodeAlreadyExists, at+"/id", "The id %s is taken.", n.ID)
		}
	}
	switch k := n.Policy.K; {
	case n.Policy.Kind == Quorum && k > len(n.Needs):
		c.flaw(fault.CodeGraphInvalid, at+"/join/quorum", "A quorum of %d cannot be reached by %d needs.", k, len(n.Needs))
	case n.Policy.Kind == AnyOf && len(n.Needs) == 0:
		c.flaw(fault.CodeGraphInvalid, at+"/join", "Any of no needs is none: name some, or leave join out.")
	case n.Policy.Kind == AllOf && n.Policy.OnSatisfied == CancelRemaining:
		c.flaw(fault.CodeGraphInvalid, at+"/on_satisfied", "When all needs have ended well nothing remains: cancel_remaining goes with any or a quorum.")
	}
}

// needs finds what one node depends on.
func (c *checker) needs(i int) {
	n := &c.plan.Nodes[i]
	seen := make(map[string]bool, len(n.Needs)) // by what the names stand for: a member has a key and an id
	for j, need := range n.Needs {
		at := fmt.Sprintf("/%d/needs/%d", i, j)
		from, own := c.index[need.Name]
		member, known := c.members[need.Name]
		name := need.Name
		if !own && known {
			name = member.String()
		}
		switch {
		case seen[name]:
			c.flaw(fault.CodeAlreadyExists, at, "%q is needed twice.", need.Name)
		case need.Name == n.Key && n.Key != "":
			c.flaw(fault.CodeSelfReferencingEdge, at, "%q needs itself.", n.Key)
		case own:
			c.plan.Links = append(c.plan.Links, Link{From: from, To: i, PassResult: need.PassResult})
		case known:
			c.plan.Links = append(c.plan.Links, Link{From: -1, Member: member, To: i, PassResult: need.PassResult})
		default:
			c.flaw(fault.CodeNotFound, at, "There is no execution with the key %q, here or in the flow.", need.Name)
		}
		seen[name] = true
	}
}

// cycles finds cycles among the nodes, at least one for each knot of them. What the flow has cannot need what it has not.
func (c *checker) cycles() {
	nodes := c.plan.Nodes
	out, open := make([][]int, len(nodes)), make([]int, len(nodes))
	in := make([][]int, len(nodes))
	for _, l := range c.plan.Links {
		if l.From >= 0 {
			out[l.From] = append(out[l.From], l.To)
			in[l.To] = append(in[l.To], l.From)
			open[l.To]++
		}
	}
	var ready []int
	for i := range nodes {
		if open[i] == 0 {
			ready = append(ready, i)
		}
	}
	left := len(nodes)
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		left--
		for _, j := range out[i] {
			if open[j]--; open[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	if left == 0 {
		return
	}
	// Each node that is left needs one that is left: going back comes round to a node of this walk, or to one of an earlier walk.
	walk := make([]int, len(nodes)) // by which walk a node was seen, 0 for none
	for i := range nodes {
		if open[i] == 0 || walk[i] != 0 {
			continue
		}
		number, at := i+1, i
		var way []int
		for walk[at] == 0 {
			walk[at] = number
			way = append(way, at)
			at = in[at][slices.IndexFunc(in[at], func(j int) bool { return open[j] > 0 })]
		}
		if walk[at] == number {
			c.cycle(way[slices.Index(way, at):])
		}
	}
}

// cycle reports a cycle, whose nodes are given against the direction of its edges.
func (c *checker) cycle(nodes []int) {
	path := make([]string, 0, len(nodes)+1)
	for _, i := range slices.Backward(nodes) {
		path = append(path, c.plan.Nodes[i].Key)
	}
	path = append(path, path[0])
	if c.path == nil {
		c.path = path
	}
	c.flaw(fault.CodeCycleDetected, fmt.Sprintf("/%d/needs", nodes[len(nodes)-1]), "These need one another: %s.", PathText(path))
}

// pathShown bounds how much of a path is written out in a sentence.
const pathShown = 20

// PathText writes a path as a person reads it.
func PathText(path []string) string {
	if len(path) > pathShown {
		path = append(append(slices.Clone(path[:pathShown-2]), fmt.Sprintf("… %d more …", len(path)-pathShown+1)), path[len(path)-1])
	}
	return strings.Join(path, " → ")
}

func (c *checker) err() error {
	if len(c.flaws) == 0 {
		return nil
	}
	code := c.flaws[0].Code
	for _, f := range c.flaws {
		if f.Code != code {
			code = fault.CodeGraphInvalid
		}
	}
	entry := fault.Lookup(code)
	if entry.Status != 422 {
		code = fault.CodeGraphInvalid
	}
	f := fault.New(code, "The graph has %d mistakes. Nothing was written; mend them all and send it again.", len(c.flaws))
	if len(c.flaws) == maxFlaws {
		f.Message = fmt.Sprintf("The graph has %d mistakes or more, the first of which are told. Nothing was written; mend them and send it again.", maxFlaws)
	}
	if len(c.flaws) == 1 {
		f.Message = c.flaws[0].Detail
	}
	f.Fields = c.flaws
	if c.path != nil {
		f = f.With("path", c.path)
	}
	return f
}

// Single makes the refusal of a plan of one node point at that node.
func Single(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		for i := range f.Fields {
			f.Fields[i].Pointer = strings.Replace(f.Fields[i].Pointer, "/execution/0", "/execution", 1)
		}
	}
	return err
}
