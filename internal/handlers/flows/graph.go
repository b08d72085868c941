package flows

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Graph is the store of what members of flows depend on.
type Graph interface {
	Create(ctx context.Context, in flow.Create, nodes []graph.Node) (graph.Creation, error)
	Build(ctx context.Context, flowID uuid.UUID, nodes []graph.Node, holder *execution.Fence, dryRun bool) (graph.Built, error)
	Graph(ctx context.Context, flowID uuid.UUID) (graph.View, error)
	Enlist(ctx context.Context, flowID, id uuid.UUID, holder *execution.Fence) (graph.Member, error)
	Add(ctx context.Context, flowID uuid.UUID, node graph.Node, holder *execution.Fence) (graph.Member, error)
	Stage(ctx context.Context, in graph.Stage) (graph.Staged, error)
	Apply(ctx context.Context, flowID, id uuid.UUID) (graph.Applied, error)
	Edge(ctx context.Context, flowID, id uuid.UUID) (graph.Edge, error)
	Edges(ctx context.Context, flowID, from, to uuid.UUID, after page.Cursor, limit int) (page.Page[graph.Edge], error)
	SetPolicy(ctx context.Context, flowID, member uuid.UUID, p graph.Policy) (graph.Group, error)
	Replay(ctx context.Context, flowID uuid.UUID, expected *int64, names []string, dryRun bool) (graph.Replayed, error)
}

// AddFlowMember handles POST /v1/flows/{flow_id}/members.
func (h *Handlers) AddFlowMember(ctx context.Context, req oapi.AddFlowMemberRequestObject) (oapi.AddFlowMemberResponseObject, error) {
	b := req.Body
	holder, err := holder(ctx, b.Handle)
	switch {
	case err != nil:
		return nil, err
	case b.ExecutionID != nil && !call.From(ctx).Role.Operates():
		return nil, fault.New(fault.CodeForbidden, "A worker adds new executions to its flow: those that exist are an operator's.").With("required_role", access.RoleOperator)
	case (b.ExecutionID == nil) == (b.Execution == nil):
		return nil, fault.Invalid(fault.CodeValidationFailed, "/execution_id", "Give execution_id, of one that exists, or execution, a new one; and only one of them.")
	}
	return answer.Write(ctx, func(ctx context.Context) (graph.Member, error) {
		if b.ExecutionID != nil {
			return h.Graph.Enlist(ctx, req.FlowID, *b.ExecutionID, holder)
		}
		return h.Graph.Add(ctx, req.FlowID, node(b.Execution), holder)
	}, func(m graph.Member) oapi.AddFlowMemberResponseObject {
		ok := oapi.FlowMemberOKJSONResponse{Body: oapi.FlowMember{Execution: shape.Execution(&m.Execution), NodeCount: m.NodeCount, GraphRevision: m.GraphRevision}}
		if m.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.AddFlowMember200JSONResponse{FlowMemberOKJSONResponse: ok}
		}
		return oapi.AddFlowMember201JSONResponse{Body: ok.Body}
	}, oapi.AddFlowMemberResponseObject.VisitAddFlowMemberResponse)
}

// StageFlowEdge handles POST /v1/flows/{flow_id}/edges.
func (h *Handlers) StageFlowEdge(ctx context.Context, req oapi.StageFlowEdgeRequestObject) (oapi.StageFlowEdgeResponseObject, error) {
	b := req.Body
	holder, err := holder(ctx, b.Handle)
	if err != nil {
		return nil, err
	}
	in := graph.Stage{Expected: b.ExpectedGraphRevision, Holder: holder, Edge: graph.Edge{ID: ask.Or(b.EdgeID, uuid.Nil), FlowID: req.FlowID,
		Upstream: b.UpstreamExecutionID, Downstream: b.DownstreamExecutionID, PassResult: ask.Or(b.PassResult, false)}}
	return answer.Write(ctx, func(ctx context.Context) (graph.Staged, error) {
		return h.Graph.Stage(ctx, in)
	}, func(s graph.Staged) oapi.StageFlowEdgeResponseObject {
		ok := oapi.FlowEdgeStagedJSONResponse{Body: oapi.StagedFlowEdge{Edge: edge(&s.Edge), GraphRevision: s.GraphRevision}}
		if s.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.StageFlowEdge200JSONResponse{FlowEdgeStagedJSONResponse: ok}
		}
		return oapi.StageFlowEdge201JSONResponse{Body: ok.Body}
	}, oapi.StageFlowEdgeResponseObject.VisitStageFlowEdgeResponse)
}

func edge(e *graph.Edge) oapi.FlowEdge {
	return oapi.FlowEdge{EdgeID: e.ID, FlowID: e.FlowID, UpstreamExecutionID: e.Upstream, DownstreamExecutionID: e.Downstream, DependencyKind: graph.SuccessOnly,
		PassResult: e.PassResult, State: oapi.EdgeState(e.State), CreatedAt: wire.Time(e.CreatedAt), ResolvedAt: wire.TimeOrNull(e.ResolvedAt)}
}

// ListFlowEdges handles GET /v1/flows/{flow_id}/edges.
func (h *Handlers) ListFlowEdges(ctx context.Context, req oapi.ListFlowEdgesRequestObject) (oapi.ListFlowEdgesResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[graph.Edge], error) {
		return h.Graph.Edges(ctx, req.FlowID, ask.Or(req.Params.From, uuid.Nil), ask.Or(req.Params.To, uuid.Nil), after, limit)
	}, edge)
	if err != nil {
		return nil, err
	}
	return oapi.ListFlowEdges200JSONResponse{Body: oapi.FlowEdgeList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListFlowEdges200ResponseHeaders{Link: list.Link}}, nil
}

// GetFlowEdge handles GET /v1/flows/{flow_id}/edges/{edge_id}.
func (h *Handlers) GetFlowEdge(ctx context.Context, req oapi.GetFlowEdgeRequestObject) (oapi.GetFlowEdgeResponseObject, error) {
	e, err := h.Graph.Edge(ctx, req.FlowID, req.EdgeID)
	if err != nil {
		return nil, err
	}
	return oapi.GetFlowEdge200JSONResponse(edge(&e)), nil
}

// ApplyFlowEdge handles POST /v1/flows/{flow_id}/edges/{edge_id}/apply.
func (h *Handlers) ApplyFlowEdge(ctx context.Context, req oapi.ApplyFlowEdgeRequestObject) (oapi.ApplyFlowEdgeResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (graph.Applied, error) {
		return h.Graph.Apply(ctx, req.FlowID, req.EdgeID)
	}, func(a graph.Applied) oapi.ApplyFlowEdgeResponseObject {
		return oapi.ApplyFlowEdge200JSONResponse{Body: oapi.AppliedFlowEdge{Edge: edge(&a.Edge), UnsatisfiedCount: a.Unsatisfied}}
	}, oapi.ApplyFlowEdgeResponseObject.VisitApplyFlowEdgeResponse)
}

// SetFlowEdgeGroup handles PUT /v1/flows/{flow_id}/edge-groups/{execution_id}.
func (h *Handlers) SetFlowEdgeGroup(ctx context.Context, req oapi.SetFlowEdgeGroupRequestObject) (oapi.SetFlowEdgeGroupResponseObject, error) {
	b := req.Body
	p := graph.Policy{Kind: graph.Kind(b.Kind), K: int(ask.Or(b.K, 0)), OnSatisfied: graph.OnSatisfied(ask.Or(b.OnSatisfied, oapi.OnSatisfied(graph.LetRun)))}
	switch {
	case p.Kind == graph.Quorum && p.K == 0:
		return nil, fault.Invalid(fault.CodeValidationFailed, "/k", "A quorum needs a k: how many dependencies have to end well.")
	case p.Kind != graph.Quorum && b.K != nil:
		return nil, fault.Invalid(fault.CodeValidationFailed, "/k", "Only a quorum has a k.")
	case p.Kind == graph.AllOf && p.OnSatisfied == graph.CancelRemaining:
		return nil, fault.Invalid(fault.CodeValidationFailed, "/on_satisfied", "When all have ended well nothing remains: cancel_remaining goes with any_of or a quorum.")
	}
	g, err := h.Graph.SetPolicy(ctx, req.FlowID, req.ExecutionID, p)
	if err != nil {
		return nil, err
	}
	return oapi.SetFlowEdgeGroup200JSONResponse(group(&g)), nil
}

func group(g *graph.Group) oapi.FlowEdgeGroup {
	out := oapi.FlowEdgeGroup{DownstreamExecutionID: g.Downstream, Kind: oapi.EdgeGroupKind(g.Kind), OnSatisfied: oapi.OnSatisfied(g.OnSatisfied), State: oapi.EdgeState(g.State),
		TotalDeps: int64(g.Edges), SatisfiedCount: int64(g.Satisfied), FailedCount: int64(g.Failed), SkippedCount: int64(g.Skipped), RunningCount: int64(g.Open()),
		FiredAt: wire.TimeOrNull(g.FiredAt)}
	if g.Kind == graph.Quorum {
		out.K = new(int32(g.K))
	}
	return out
}

// GetFlowGraph handles GET /v1/flows/{flow_id}/graph.
func (h *Handlers) GetFlowGraph(ctx context.Context, req oapi.GetFlowGraphRequestObject) (oapi.GetFlowGraphResponseObject, error) {
	v, err := h.Graph.Graph(ctx, req.FlowID)
	if err != nil {
		return nil, err
	}
	out := oapi.FlowGraph{GraphRevision: v.Flow.GraphRevision, Nodes: make([]oapi.FlowNode, len(v.Nodes)), Edges: answer.Each(v.Edges, edge), Groups: make([]oapi.FlowEdgeGroup, len(v.Groups)),
		Rollup: rollup(v.Flow.Rollup)}
	for i := range v.Nodes {
		e := &v.Nodes[i]
		out.Nodes[i] = oapi.FlowNode{ExecutionID: e.ID, Key: wire.TextOrNull(e.Key), Lane: e.Lane, Kind: e.Kind, PublicState: oapi.PublicState(e.Public()),
			BlockingReason: oapi.BlockingReason(e.Blocking), TotalAttemptCount: int64(e.Attempts), Failure: shape.Failure(e.Failure), CreatedAt: wire.Time(e.CreatedAt),
			StartedAt: wire.TimeOrNull(e.StartedAt), CompletedAt: wire.TimeOrNull(e.CompletedAt)}
	}
	for i := range v.Groups {
		out.Groups[i] = group(&v.Groups[i])
	}
	return oapi.GetFlowGraph200JSONResponse(out), nil
}

func rollup(r *flow.Rollup) *oapi.FlowRollup {
	if r == nil {
		return nil
	}
	out := &oapi.FlowRollup{State: oapi.RollupState(r.State()), Total: r.Total(), Counts: make(map[string]int64, len(r.Counts))}
	for p, n := range r.Counts {
		out.Counts[string(p)] = n
	}
	return out
}
