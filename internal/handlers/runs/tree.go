package runs

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// GetTree handles GET /v1/tree/{id}.
func (h *Handlers) GetTree(ctx context.Context, req oapi.GetTreeRequestObject) (oapi.GetTreeResponseObject, error) {
	t, err := h.Runs.Tree(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	return oapi.GetTree200JSONResponse{Root: node(&t.Root), Truncated: t.Truncated}, nil
}

func node(n *run.Node) oapi.TreeNode {
	return oapi.TreeNode{Type: oapi.TreeNodeType(n.Type), ID: n.ID, Name: n.Name, Status: n.Status, StatusClass: oapi.StatusClass(n.Class), WhyNotRunning: wire.TextOrNull(n.Why),
		StartedAt: wire.TimeOrNull(n.StartedAt), EndedAt: wire.TimeOrNull(n.EndedAt), Children: answer.Each(n.Children, node)}
}
