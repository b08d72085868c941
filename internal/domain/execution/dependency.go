package execution

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Dependencies tells what a member of a flow depends on.
type Dependencies struct {
	Kind      string // all_of, any_of or quorum
	Need      int    // how many have to end well
	Edges     int
	Satisfied int
	Failed    int
	Skipped   int
	Open      []Dependency // the first of those that are not decided
}

// Dependency is one of them.
type Dependency struct {
	ID     uuid.UUID `json:"execution_id"`
	Key    string    `json:"key,omitempty"`
	Public Public    `json:"public_state"`
}

// DependenciesShown bounds how many of them an explanation names.
const DependenciesShown = 10

func (d Dependency) name() string { return cmp.Or(d.Key, d.ID.String()) }

// explain tells what is missing.
func (d *Dependencies) explain(g *Gate) {
	g.Evidence = map[string]any{"kind": d.Kind, "need": d.Need, "total_deps": d.Edges, "satisfied_count": d.Satisfied, "failed_count": d.Failed,
		"skipped_count": d.Skipped, "waits_for": d.Open}
	if d.Need > d.Edges {
		g.what = fmt.Sprintf("It needs %d of its dependencies to end well, and has %d.", d.Need, d.Edges)
		g.Hint = "Stage more edges to it."
		return
	}
	var names, ended []string
	for _, o := range d.Open {
		names = append(names, fmt.Sprintf("%s (%s)", o.name(), o.Public))
		if o.Public.Ended() {
			ended = append(ended, o.name())
		}
	}
	if more := d.Edges - d.Satisfied - d.Failed - d.Skipped - len(d.Open); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	g.what = fmt.Sprintf("It needs %d of its %d dependencies to end well, %d have; it waits for %s.", d.Need, d.Edges, d.Satisfied, strings.Join(names, ", "))
	g.Hint = "Look why these do not go on."
	if len(ended) > 0 {
		g.Hint = fmt.Sprintf("%s has ended and has to run again: replay it.", strings.Join(ended, ", "))
	}
}
