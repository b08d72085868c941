package flows

import (
	"context"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
)

// maxState bounds the state of a flow that comes with a graph, whose body may be larger.
const maxState = 1 << 20

// createWithGraph is CreateFlow with a graph.
func (h *Handlers) createWithGraph(ctx context.Context, in flow.Create, b *oapi.Graph) (oapi.CreateFlowResponseObject, error) {
	nodes := nodesOf(b.Executions)
	return answer.Write(ctx, func(ctx context.Context) (graph.Creation, error) {
		return h.Graph.Create(ctx, in, nodes)
	}, func(made graph.Creation) oapi.CreateFlowResponseObject {
		ok := flowOK(made.Flow)
		ok.Body.Graph = new(built(made.Built))
		if made.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.CreateFlow200JSONResponse{FlowOKJSONResponse: ok}
		}
		return createdFlow(ok)
	}, oapi.CreateFlowResponseObject.VisitCreateFlowResponse)
}

func built(b graph.Built) oapi.BuiltGraph {
	return oapi.BuiltGraph{Executions: b.Executions, GraphRevision: b.GraphRevision}
}

// BuildFlowGraph handles POST /v1/flows/{flow_id}/graph.
func (h *Handlers) BuildFlowGraph(ctx context.Context, req oapi.BuildFlowGraphRequestObject) (oapi.BuildFlowGraphResponseObject, error) {
	holder, err := holder(ctx, req.Body.Handle)
	if err != nil {
		return nil, err
	}
	nodes := nodesOf(req.Body.Executions)
	dryRun := ask.Or(req.Params.DryRun, false)
	return answer.Write(ctx, func(ctx context.Context) (graph.Built, error) {
		return h.Graph.Build(ctx, req.FlowID, nodes, holder, dryRun)
	}, func(b graph.Built) oapi.BuildFlowGraphResponseObject {
		if dryRun {
			return oapi.BuildFlowGraph200JSONResponse(built(b))
		}
		return oapi.BuildFlowGraph201JSONResponse{Body: built(b)}
	}, oapi.BuildFlowGraphResponseObject.VisitBuildFlowGraphResponse)
}

// holder returns the fence of the member for which a worker changes the graph. An operator needs none. It returns CodeForbidden for
// a worker without it.
func holder(ctx context.Context, handle *string) (*execution.Fence, error) {
	if handle != nil {
		f, err := execution.ParseAnyHandle(*handle)
		return &f, err
	}
	if !call.From(ctx).Role.Operates() {
		return nil, fault.New(fault.CodeForbidden, "A worker changes the graph of a flow by the handle of a member that it holds: send it as handle.").With("required_role", access.RoleOperator)
	}
	return nil, nil
}

// nodesOf reads the executions of a graph. What is wrong with one of them stays with it, to be reported with everything else.
func nodesOf(in []oapi.GraphExecution) []graph.Node {
	nodes := make([]graph.Node, len(in))
	for i := range in {
		nodes[i] = node(&in[i])
	}
	return nodes
}

func node(in *oapi.MemberExecution) graph.Node {
	n := graph.Node{Policy: graph.DefaultPolicy()}
	n.Create, n.Err = shape.Creation(&oapi.CreateExecution{
		ID: in.ID, Lane: in.Lane, Kind: in.Kind, Priority: in.Priority, Payload: in.Payload, Policy: in.Policy, RequiredCapabilities: in.RequiredCapabilities, Tags: in.Tags,
		DelayMs: in.DelayMs, DelayUntil: in.DelayUntil, DeadlineAt: in.DeadlineAt, BudgetIds: in.BudgetIds, QuotaPolicyIds: in.QuotaPolicyIds, Estimate: in.Estimate,
	})
	n.Create.Key = ask.Or(in.Key, "")
	for _, need := range in.Needs {
		n.Needs = append(n.Needs, graph.Need{Name: need.Key, PassResult: need.PassResult})
	}
	if j := in.Join; j != nil {
		switch {
		case j.Quorum > 0:
			n.Policy.Kind, n.Policy.K = graph.Quorum, j.Quorum
		case j.Word == "any":
			n.Policy.Kind = graph.AnyOf
		}
	}
	n.Policy.OnSatisfied = graph.OnSatisfied(ask.Or(in.OnSatisfied, oapi.OnSatisfied(graph.LetRun)))
	return n
}
