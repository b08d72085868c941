package flows

import (
	"context"
	"net/http"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// verb runs one verb at the revision that the request names, and answers with the flow.
func verb[R any](ctx context.Context, ifMatch *string, revision *int64, do func(ctx context.Context, expected *int64) (flow.Flow, error),
	response func(oapi.FlowOKJSONResponse) R, visit func(R, http.ResponseWriter) error,
) (R, error) {
	expected, err := ask.Expected(ifMatch, revision)
	if err != nil {
		return *new(R), err
	}
	return answer.Write(ctx, func(ctx context.Context) (flow.Flow, error) { return do(ctx, expected) },
		func(f flow.Flow) R { return response(flowOK(f)) }, visit)
}

// StartFlow handles POST /v1/flows/{flow_id}/start.
func (h *Handlers) StartFlow(ctx context.Context, req oapi.StartFlowRequestObject) (oapi.StartFlowResponseObject, error) {
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.Start(ctx, req.FlowID, expected)
	}, func(ok oapi.FlowOKJSONResponse) oapi.StartFlowResponseObject {
		return oapi.StartFlow200JSONResponse{FlowOKJSONResponse: ok}
	},
		oapi.StartFlowResponseObject.VisitStartFlowResponse)
}

// WaitFlow handles POST /v1/flows/{flow_id}/wait.
func (h *Handlers) WaitFlow(ctx context.Context, req oapi.WaitFlowRequestObject) (oapi.WaitFlowResponseObject, error) {
	asked := wait.Request{Condition: req.Body.Condition, OnTimeout: wait.OnTimeout(ask.Or(req.Body.OnTimeout, ""))}
	if req.Body.Deadline != nil {
		asked.Deadline = req.Body.Deadline.Time()
	}
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.Wait(ctx, req.FlowID, expected, asked)
	}, func(ok oapi.FlowOKJSONResponse) oapi.WaitFlowResponseObject {
		return oapi.WaitFlow200JSONResponse{FlowOKJSONResponse: ok}
	},
		oapi.WaitFlowResponseObject.VisitWaitFlowResponse)
}

// ResumeFlow handles POST /v1/flows/{flow_id}/resume.
func (h *Handlers) ResumeFlow(ctx context.Context, req oapi.ResumeFlowRequestObject) (oapi.ResumeFlowResponseObject, error) {
	b := ask.Or(req.Body, oapi.ResumeFlow{})
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.Resume(ctx, req.FlowID, expected, b.State)
	}, func(ok oapi.FlowOKJSONResponse) oapi.ResumeFlowResponseObject {
		return oapi.ResumeFlow200JSONResponse{FlowOKJSONResponse: ok}
	},
		oapi.ResumeFlowResponseObject.VisitResumeFlowResponse)
}

// FinishFlow handles POST /v1/flows/{flow_id}/finish.
func (h *Handlers) FinishFlow(ctx context.Context, req oapi.FinishFlowRequestObject) (oapi.FinishFlowResponseObject, error) {
	b := ask.Or(req.Body, oapi.FinishFlow{})
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.Finish(ctx, req.FlowID, expected, b.State)
	}, func(ok oapi.FlowOKJSONResponse) oapi.FinishFlowResponseObject {
		return oapi.FinishFlow200JSONResponse{FlowOKJSONResponse: ok}
	},
		oapi.FinishFlowResponseObject.VisitFinishFlowResponse)
}

// FailFlow handles POST /v1/flows/{flow_id}/fail.
func (h *Handlers) FailFlow(ctx context.Context, req oapi.FailFlowRequestObject) (oapi.FailFlowResponseObject, error) {
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.Fail(ctx, req.FlowID, expected, req.Body.Reason)
	}, func(ok oapi.FlowOKJSONResponse) oapi.FailFlowResponseObject {
		return oapi.FailFlow200JSONResponse{FlowOKJSONResponse: ok}
	},
		oapi.FailFlowResponseObject.VisitFailFlowResponse)
}

// RequestCancelFlow handles POST /v1/flows/{flow_id}/request-cancel.
func (h *Handlers) RequestCancelFlow(ctx context.Context, req oapi.RequestCancelFlowRequestObject) (oapi.RequestCancelFlowResponseObject, error) {
	b := ask.Or(req.Body, oapi.RequestCancelFlow{})
	return verb(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (flow.Flow, error) {
		return h.Flows.RequestCancel(ctx, req.FlowID, expected, ask.Or(b.Reason, ""))
	}, func(ok oapi.FlowOKJSONResponse) oapi.RequestCancelFlowResponseObject {
		return oapi.RequestCancelFlow200JSONResponse{FlowOKJSONResponse: ok}
	}, oapi.RequestCancelFlowResponseObject.VisitRequestCancelFlowResponse)
}
