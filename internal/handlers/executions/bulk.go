package executions

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// StartBulk handles POST /v1/executions/bulk.
func (h *Handlers) StartBulk(ctx context.Context, req oapi.StartBulkRequestObject) (oapi.StartBulkResponseObject, error) {
	f := req.Body.Filter
	in := execution.Bulk{Action: execution.BulkAction(req.Body.Action), Reason: ask.Or(req.Body.Reason, ""), Filter: execution.Filter{
		Lane: ask.Or(f.Lane, ""), State: execution.Public(ask.Or(f.PublicState, "")), FlowID: ask.Or(f.FlowID, uuid.Nil), Kind: ask.Or(f.Kind, ""),
		Worker: ask.Or(f.Worker, ""), CreatedAfter: shape.Time(f.CreatedAfter), CreatedBefore: shape.Time(f.CreatedBefore)}}
	if req.Body.Priority != nil {
		in.Priority = new(int(*req.Body.Priority))
	}
	var err error
	if in.Filter.Tags, err = ask.Tags(f.Tag); err != nil {
		return nil, fault.MovedTo(err, fault.InBody, "/filter/tag")
	}
	dry := ask.Or(req.Body.DryRun, false)
	return answer.Write(ctx, func(ctx context.Context) (execution.BulkJob, error) {
		return h.Executions.StartBulk(ctx, in, dry)
	}, func(j execution.BulkJob) oapi.StartBulkResponseObject {
		out := oapi.BulkStarted{JobID: wire.IDOrNull(j.ID), Matched: j.Total}
		if dry {
			return oapi.StartBulk200JSONResponse{Body: out}
		}
		return oapi.StartBulk202JSONResponse{Body: out, Headers: oapi.StartBulk202ResponseHeaders{Location: "/v1/executions/bulk/" + j.ID.String()}}
	}, oapi.StartBulkResponseObject.VisitStartBulkResponse)
}

// GetBulk handles GET /v1/executions/bulk/{job_id}.
func (h *Handlers) GetBulk(ctx context.Context, req oapi.GetBulkRequestObject) (oapi.GetBulkResponseObject, error) {
	j, err := h.Executions.Bulk(ctx, req.JobID)
	return oapi.GetBulk200JSONResponse{BulkOKJSONResponse: bulkOK(j)}, err
}

// StopBulk handles POST /v1/executions/bulk/{job_id}/stop.
func (h *Handlers) StopBulk(ctx context.Context, req oapi.StopBulkRequestObject) (oapi.StopBulkResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (execution.BulkJob, error) {
		return h.Executions.StopBulk(ctx, req.JobID)
	}, func(j execution.BulkJob) oapi.StopBulkResponseObject {
		return oapi.StopBulk200JSONResponse{BulkOKJSONResponse: bulkOK(j)}
	}, oapi.StopBulkResponseObject.VisitStopBulkResponse)
}

func bulkOK(j execution.BulkJob) oapi.BulkOKJSONResponse {
	f := j.Filter
	filter := oapi.BulkFilter{Lane: wire.TextOrNull(f.Lane), FlowID: wire.IDOrNull(f.FlowID), Kind: wire.TextOrNull(f.Kind), Worker: wire.TextOrNull(f.Worker),
		CreatedAfter: wire.TimeOrNull(f.CreatedAfter), CreatedBefore: wire.TimeOrNull(f.CreatedBefore)}
	if f.State != "" {
		filter.PublicState = new(oapi.PublicState(f.State))
	}
	for _, t := range f.Tags {
		filter.Tag = append(filter.Tag, t.Key+":"+t.Value)
	}
	out := oapi.BulkJob{JobID: j.ID, Action: oapi.BulkAction(j.Action), Filter: filter, Reason: j.Reason, State: oapi.BulkState(j.State), Total: j.Total, Done: j.Done,
		FailedCount: j.FailedCount, Failed: make([]oapi.BulkFailure, len(j.Failed)), Actor: j.Actor, CreatedAt: wire.Time(j.CreatedAt), EndedAt: wire.TimeOrNull(j.EndedAt)}
	if j.Priority != nil {
		out.Priority = new(int32(*j.Priority))
	}
	for i, f := range j.Failed {
		out.Failed[i] = oapi.BulkFailure{ExecutionID: f.ExecutionID, Code: string(f.Code), Detail: f.Detail}
	}
	return oapi.BulkOKJSONResponse{Body: out}
}
