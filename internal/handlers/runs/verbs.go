package runs

import (
	"context"
	"net/http"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
)

// verb runs one verb, and answers with the run.
func verb[R any](ctx context.Context, do func(ctx context.Context) (run.Run, error), response func(oapi.RunOKJSONResponse) R, visit func(R, http.ResponseWriter) error) (R, error) {
	return answer.Write(ctx, do, func(r run.Run) R { return response(runOK(&r)) }, visit)
}

// verbAt is verb at the revision that the request names.
func verbAt[R any](ctx context.Context, ifMatch *string, revision *int64, do func(ctx context.Context, expected *int64) (run.Run, error),
	response func(oapi.RunOKJSONResponse) R, visit func(R, http.ResponseWriter) error,
) (R, error) {
	expected, err := ask.Expected(ifMatch, revision)
	if err != nil {
		return *new(R), err
	}
	return verb(ctx, func(ctx context.Context) (run.Run, error) { return do(ctx, expected) }, response, visit)
}

// entitled refuses, with CodeForbidden, whoever names no generation and is no operator.
func entitled(ctx context.Context, generation *int64) error {
	if generation != nil || call.From(ctx).Role.Operates() {
		return nil
	}
	return fault.New(fault.CodeForbidden, "Send the generation of the run's lease; only an operator does this without one.").With("required_role", access.RoleOperator)
}

// StartRun handles POST /v1/runs/{run_id}/start.
func (h *Handlers) StartRun(ctx context.Context, req oapi.StartRunRequestObject) (oapi.StartRunResponseObject, error) {
	return verb(ctx, func(ctx context.Context) (run.Run, error) {
		return h.Runs.Start(ctx, req.RunID, req.Body.Generation)
	}, func(ok oapi.RunOKJSONResponse) oapi.StartRunResponseObject {
		return oapi.StartRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.StartRunResponseObject.VisitStartRunResponse)
}

// WaitRun handles POST /v1/runs/{run_id}/wait.
func (h *Handlers) WaitRun(ctx context.Context, req oapi.WaitRunRequestObject) (oapi.WaitRunResponseObject, error) {
	b := req.Body
	in := run.Park{Generation: b.Generation, BlockedOn: b.BlockedOn, Deadline: shape.Time(b.Deadline), OnTimeout: run.OnTimeout(ask.Or(b.OnTimeout, ""))}
	return verb(ctx, func(ctx context.Context) (run.Run, error) {
		return h.Runs.Wait(ctx, req.RunID, in)
	}, func(ok oapi.RunOKJSONResponse) oapi.WaitRunResponseObject {
		return oapi.WaitRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.WaitRunResponseObject.VisitWaitRunResponse)
}

// ResumeRun handles POST /v1/runs/{run_id}/resume.
func (h *Handlers) ResumeRun(ctx context.Context, req oapi.ResumeRunRequestObject) (oapi.ResumeRunResponseObject, error) {
	b := ask.Or(req.Body, oapi.ResumeRun{})
	if err := entitled(ctx, b.Generation); err != nil {
		return nil, err
	}
	in := run.Resume{Generation: b.Generation, FromStep: ask.Or(b.FromStep, ""), Restart: ask.Or(b.Restart, false)}
	return verbAt(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (run.Run, error) {
		return h.Runs.Resume(ctx, req.RunID, expected, in)
	}, func(ok oapi.RunOKJSONResponse) oapi.ResumeRunResponseObject {
		return oapi.ResumeRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.ResumeRunResponseObject.VisitResumeRunResponse)
}

// CompleteRun handles POST /v1/runs/{run_id}/complete.
func (h *Handlers) CompleteRun(ctx context.Context, req oapi.CompleteRunRequestObject) (oapi.CompleteRunResponseObject, error) {
	return verb(ctx, func(ctx context.Context) (run.Run, error) {
		return h.Runs.Complete(ctx, req.RunID, req.Body.Generation, ask.Or(req.Body.ResultSummary, ""))
	}, func(ok oapi.RunOKJSONResponse) oapi.CompleteRunResponseObject {
		return oapi.CompleteRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.CompleteRunResponseObject.VisitCompleteRunResponse)
}

// FailRun handles POST /v1/runs/{run_id}/fail.
func (h *Handlers) FailRun(ctx context.Context, req oapi.FailRunRequestObject) (oapi.FailRunResponseObject, error) {
	return verb(ctx, func(ctx context.Context) (run.Run, error) {
		return h.Runs.Fail(ctx, req.RunID, req.Body.Generation, req.Body.Error, ask.Or(req.Body.ResultSummary, ""))
	}, func(ok oapi.RunOKJSONResponse) oapi.FailRunResponseObject {
		return oapi.FailRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.FailRunResponseObject.VisitFailRunResponse)
}

// CancelRun handles POST /v1/runs/{run_id}/cancel.
func (h *Handlers) CancelRun(ctx context.Context, req oapi.CancelRunRequestObject) (oapi.CancelRunResponseObject, error) {
	b := ask.Or(req.Body, oapi.CancelRun{})
	if err := entitled(ctx, b.Generation); err != nil {
		return nil, err
	}
	in := run.Cancel{Message: ask.Or(b.Reason, ""), Deadline: ask.Millis(ask.Or(b.DeadlineMs, run.DefaultCancelDeadline.Milliseconds())), Generation: b.Generation}
	return verbAt(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (run.Run, error) {
		return h.Runs.Cancel(ctx, req.RunID, expected, in)
	}, func(ok oapi.RunOKJSONResponse) oapi.CancelRunResponseObject {
		return oapi.CancelRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.CancelRunResponseObject.VisitCancelRunResponse)
}

// DismissRun handles POST /v1/runs/{run_id}/dismiss.
func (h *Handlers) DismissRun(ctx context.Context, req oapi.DismissRunRequestObject) (oapi.DismissRunResponseObject, error) {
	b := ask.Or(req.Body, oapi.DismissRun{})
	return verbAt(ctx, req.Params.IfMatch, req.Params.Revision, func(ctx context.Context, expected *int64) (run.Run, error) {
		return h.Runs.Dismiss(ctx, req.RunID, expected, ask.Or(b.Dismissed, true))
	}, func(ok oapi.RunOKJSONResponse) oapi.DismissRunResponseObject {
		return oapi.DismissRun200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.DismissRunResponseObject.VisitDismissRunResponse)
}
