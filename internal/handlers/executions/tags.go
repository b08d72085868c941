package executions

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// ListExecutionTags handles GET /v1/executions/{execution_id}/tags.
func (h *Handlers) ListExecutionTags(ctx context.Context, req oapi.ListExecutionTagsRequestObject) (oapi.ListExecutionTagsResponseObject, error) {
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	return oapi.ListExecutionTags200JSONResponse{Body: oapi.TagSet{Tags: wire.Tags(e.Tags)}, Headers: oapi.ListExecutionTags200ResponseHeaders{ETag: ask.ETag(e.Revision)}}, nil
}

// GetExecutionTag handles GET /v1/executions/{execution_id}/tags/{key}.
func (h *Handlers) GetExecutionTag(ctx context.Context, req oapi.GetExecutionTagRequestObject) (oapi.GetExecutionTagResponseObject, error) {
	if err := tag.CheckParameter(req.Key); err != nil {
		return nil, err
	}
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	if _, ok := e.Tags[req.Key]; !ok {
		return nil, fault.New(fault.CodeNotFound, "Execution %s has no tag %s. Those that it has are at GET …/tags.", e.ID, req.Key).With("resource", "tag")
	}
	return oapi.GetExecutionTag200JSONResponse{TagOKJSONResponse: tagOK(e, req.Key)}, nil
}

// SetExecutionTag handles PUT /v1/executions/{execution_id}/tags/{key}.
func (h *Handlers) SetExecutionTag(ctx context.Context, req oapi.SetExecutionTagRequestObject) (oapi.SetExecutionTagResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	if err := tag.CheckParameter(req.Key); err != nil {
		return nil, err
	}
	e, err := h.Executions.SetTag(ctx, req.ExecutionID, expected, req.Key, req.Body.Value)
	if err != nil {
		return nil, err
	}
	return oapi.SetExecutionTag200JSONResponse{TagOKJSONResponse: tagOK(e, req.Key)}, nil
}

func tagOK(e execution.Execution, key string) oapi.TagOKJSONResponse {
	return oapi.TagOKJSONResponse{Body: oapi.Tag{Key: key, Value: e.Tags[key]}, Headers: oapi.TagOKResponseHeaders{ETag: ask.ETag(e.Revision)}}
}
