package graph

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
)

// Built is the answer of a build.
type Built struct {
	Executions    map[string]uuid.UUID // by key
	GraphRevision int64
}

// Creation is the answer of the create of a flow with a graph. Existing means that the id was there already: nothing was changed.
type Creation struct {
	Flow flow.Flow
	Built
	Existing bool
}

// Member is the answer of the addition of one member. Existing means that it was one already.
type Member struct {
	Execution     execution.Execution
	NodeCount     int64
	GraphRevision int64
	Existing      bool
}

// Stage is an edge to be.
type Stage struct {
	Edge
	Expected *int64 // the graph revision that the caller has read, nil for any
	Holder   *execution.Fence
}

// Staged is the answer of the staging of an edge. Existing means that it was there already.
type Staged struct {
	Edge          Edge
	GraphRevision int64
	Existing      bool
}

// Applied is an edge, and how many of those to the same downstream are pending.
type Applied struct {
	Edge
	Unsatisfied int64
}

// View is a whole graph.
type View struct {
	Flow   flow.Flow
	Nodes  []execution.Execution
	Edges  []Edge
	Groups []Group
}

// Named is a member, in short.
type Named struct {
	ID  uuid.UUID
	Key string
}

// Replayed is the answer of the replay of a flow.
type Replayed struct {
	Flow  flow.Flow
	Again []Named
	Kept  []Named
}
