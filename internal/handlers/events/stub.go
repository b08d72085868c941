package events

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func (h *Handlers) SubscribeOperator(ctx context.Context, req oapi.SubscribeOperatorRequestObject) (oapi.SubscribeOperatorResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) SubscribeInstanceTags(ctx context.Context, req oapi.SubscribeInstanceTagsRequestObject) (oapi.SubscribeInstanceTagsResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}
