package flows

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ReplayFlow handles POST /v1/flows/{flow_id}/replay.
func (h *Handlers) ReplayFlow(ctx context.Context, req oapi.ReplayFlowRequestObject) (oapi.ReplayFlowResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (graph.Replayed, error) {
		return h.Graph.Replay(ctx, req.FlowID, expected, req.Body.From.Names, ask.Or(req.Body.DryRun, false))
	}, func(r graph.Replayed) oapi.ReplayFlowResponseObject {
		ok := flowOK(r.Flow)
		ok.Body.Replayed, ok.Body.Kept = named(r.Again), named(r.Kept)
		return oapi.ReplayFlow200JSONResponse{FlowOKJSONResponse: ok}
	}, oapi.ReplayFlowResponseObject.VisitReplayFlowResponse)
}

func named(in []graph.Named) []oapi.NamedMember {
	return answer.Each(in, func(n *graph.Named) oapi.NamedMember {
		return oapi.NamedMember{ExecutionID: n.ID, Key: wire.TextOrNull(n.Key)}
	})
}
