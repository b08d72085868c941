// Package workers holds the operations on the register of workers.
package workers

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/worker"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Workers is the register.
type Workers interface {
	Register(ctx context.Context, in worker.Registration) (worker.Registered, error)
	Remove(ctx context.Context, instance, reason string) error
	Heartbeat(ctx context.Context, instance string) (worker.Worker, error)
	Drain(ctx context.Context, instance, reason string) (worker.Worker, error)
	Workers(ctx context.Context, f worker.Filter, after string, limit int) (page.Named[worker.Worker], error)
}

// Handlers are the operations on the register of workers.
type Handlers struct {
	Workers Workers
}

// RegisterWorker handles PUT /v1/workers/{worker_instance_id}.
func (h *Handlers) RegisterWorker(ctx context.Context, req oapi.RegisterWorkerRequestObject) (oapi.RegisterWorkerResponseObject, error) {
	done, err := h.Workers.Register(ctx, worker.Registration{
		InstanceID: req.WorkerInstanceID, WorkerID: req.Body.WorkerID, Lanes: req.Body.Lanes, Capabilities: req.Body.Capabilities,
		TTL: ask.Millis(req.Body.LivenessTTLMs),
	})
	if err != nil {
		return nil, err
	}
	if done.New {
		return oapi.RegisterWorker201JSONResponse{WorkerRegisteredJSONResponse: oapi.WorkerRegisteredJSONResponse(body(&done.Worker))}, nil
	}
	return oapi.RegisterWorker200JSONResponse{WorkerOKJSONResponse: oapi.WorkerOKJSONResponse{Body: body(&done.Worker)}}, nil
}

// RemoveWorker handles DELETE /v1/workers/{worker_instance_id}.
func (h *Handlers) RemoveWorker(ctx context.Context, req oapi.RemoveWorkerRequestObject) (oapi.RemoveWorkerResponseObject, error) {
	if err := h.Workers.Remove(ctx, req.WorkerInstanceID, ask.Or(req.Params.Reason, "")); err != nil {
		return nil, err
	}
	return oapi.RemoveWorker204Response{}, nil
}

// HeartbeatWorker handles POST /v1/workers/{worker_instance_id}/heartbeat.
func (h *Handlers) HeartbeatWorker(ctx context.Context, req oapi.HeartbeatWorkerRequestObject) (oapi.HeartbeatWorkerResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (worker.Worker, error) {
		return h.Workers.Heartbeat(ctx, req.WorkerInstanceID)
	}, func(w worker.Worker) oapi.HeartbeatWorkerResponseObject {
		out := oapi.HeartbeatReport{ExpiresAt: wire.Time(w.ExpiresAt), Directives: oapi.Directives{}}
		if w.Draining() {
			out.Directives = append(out.Directives, string(execution.DirectiveDrain))
		}
		return oapi.HeartbeatWorker200JSONResponse{Body: out}
	}, oapi.HeartbeatWorkerResponseObject.VisitHeartbeatWorkerResponse)
}

// DrainWorker handles POST /v1/workers/{worker_instance_id}/drain.
func (h *Handlers) DrainWorker(ctx context.Context, req oapi.DrainWorkerRequestObject) (oapi.DrainWorkerResponseObject, error) {
	asked := ask.Or(req.Body, oapi.DrainWorker{})
	return answer.Write(ctx, func(ctx context.Context) (worker.Worker, error) {
		return h.Workers.Drain(ctx, req.WorkerInstanceID, ask.Or(asked.Reason, ""))
	}, func(w worker.Worker) oapi.DrainWorkerResponseObject {
		return oapi.DrainWorker200JSONResponse{WorkerOKJSONResponse: oapi.WorkerOKJSONResponse{Body: body(&w)}}
	}, oapi.DrainWorkerResponseObject.VisitDrainWorkerResponse)
}

// ListWorkers handles GET /v1/workers.
func (h *Handlers) ListWorkers(ctx context.Context, req oapi.ListWorkersRequestObject) (oapi.ListWorkersResponseObject, error) {
	p := req.Params
	after, err := page.ParseName(ask.Or(p.Cursor, ""))
	if err != nil {
		return nil, err
	}
	found, err := h.Workers.Workers(ctx, worker.Filter{WorkerID: ask.Or(p.WorkerID, ""), Lane: ask.Or(p.Lane, "")}, after, ask.Limit(p.Limit))
	if err != nil {
		return nil, err
	}
	next, link := ask.NextName(ctx, found.Next)
	return oapi.ListWorkers200JSONResponse{Body: oapi.WorkerList{Items: answer.Each(found.Items, body), NextCursor: next}, Headers: oapi.ListWorkers200ResponseHeaders{Link: link}}, nil
}

func body(w *worker.Worker) oapi.Worker {
	return oapi.Worker{
		WorkerInstanceID: w.InstanceID, WorkerID: w.WorkerID, Namespace: w.Namespace, Lanes: worker.List(w.Lanes), Capabilities: worker.List(w.Capabilities),
		LivenessTTLMs: w.TTL.Milliseconds(), RegisteredAt: wire.Time(w.RegisteredAt), LastHeartbeatAt: wire.Time(w.HeartbeatAt), ExpiresAt: wire.Time(w.ExpiresAt),
		DrainingSince: wire.TimeOrNull(w.DrainingSince),
	}
}
