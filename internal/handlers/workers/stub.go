package workers

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Handlers are the operations on the register of workers.
type Handlers struct{}

func (h *Handlers) RegisterWorker(ctx context.Context, req oapi.RegisterWorkerRequestObject) (oapi.RegisterWorkerResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) RemoveWorker(ctx context.Context, req oapi.RemoveWorkerRequestObject) (oapi.RemoveWorkerResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) HeartbeatWorker(ctx context.Context, req oapi.HeartbeatWorkerRequestObject) (oapi.HeartbeatWorkerResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) DrainWorker(ctx context.Context, req oapi.DrainWorkerRequestObject) (oapi.DrainWorkerResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}

func (h *Handlers) ListWorkers(ctx context.Context, req oapi.ListWorkersRequestObject) (oapi.ListWorkersResponseObject, error) {
	return nil, fault.New(fault.CodeUnavailable, "not built yet")
}
