package watch

import (
	"cmp"
	"slices"

	"github.com/flowapi/flowapi/internal/client"
)

// placed is a member with its place in the graph.
type placed struct {
	*client.Node
	depth int      // the length of the longest way to it
	needs []string // names of the members that it still waits for, or waited for in vain
	group *client.Group
}

// order returns the members so that each comes after what it depends on, and those of one depth by name.
func order(g *client.Graph) []placed {
	at := make(map[string]int, len(g.Nodes))
	list := make([]placed, len(g.Nodes))
	for i := range g.Nodes {
		list[i].Node = &g.Nodes[i]
		at[g.Nodes[i].ID] = i
	}
	down, open := make([][]int, len(list)), make([]int, len(list))
	for _, e := range g.Edges {
		from, ok := at[e.Upstream]
		to, ok2 := at[e.Downstream]
		if !ok || !ok2 {
			continue
		}
		down[from] = append(down[from], to)
		open[to]++
		if e.State != "satisfied" {
			list[to].needs = append(list[to].needs, list[from].Name())
		}
	}
	for i := range g.Groups {
		if to, ok := at[g.Groups[i].Downstream]; ok {
			list[to].group = &g.Groups[i]
		}
	}
	var ready []int
	for i := range list {
		slices.Sort(list[i].needs)
		if open[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		for _, to := range down[i] {
			list[to].depth = max(list[to].depth, list[i].depth+1)
			if open[to]--; open[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	slices.SortFunc(list, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.Name(), b.Name()))
	})
	return list
}
