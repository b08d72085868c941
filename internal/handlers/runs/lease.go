package runs

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// AcquireRunLease handles POST /v1/runs/{run_id}/lease.
func (h *Handlers) AcquireRunLease(ctx context.Context, req oapi.AcquireRunLeaseRequestObject) (oapi.AcquireRunLeaseResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (run.LeaseAnswer, error) {
		return h.Runs.Acquire(ctx, req.RunID, req.Body.Token, ask.Millis(req.Body.TTLMs))
	}, func(got run.LeaseAnswer) oapi.AcquireRunLeaseResponseObject {
		return oapi.AcquireRunLease200JSONResponse{Body: oapi.RunLease{Generation: got.Run.Generation, LeaseUntil: wire.Time(got.Run.Lease.Until),
			Outcome: oapi.LeaseOutcome(got.Outcome), CancelRequested: got.Run.Status == run.Cancelling}}
	}, oapi.AcquireRunLeaseResponseObject.VisitAcquireRunLeaseResponse)
}

// ReleaseRunLease handles POST /v1/runs/{run_id}/lease/release.
func (h *Handlers) ReleaseRunLease(ctx context.Context, req oapi.ReleaseRunLeaseRequestObject) (oapi.ReleaseRunLeaseResponseObject, error) {
	in := run.Release{Token: req.Body.Token, Generation: req.Body.Generation, NeedsResume: ask.Or(req.Body.NeedsResume, false)}
	return verb(ctx, func(ctx context.Context) (run.Run, error) {
		return h.Runs.Release(ctx, req.RunID, in)
	}, func(ok oapi.RunOKJSONResponse) oapi.ReleaseRunLeaseResponseObject {
		return oapi.ReleaseRunLease200JSONResponse{RunOKJSONResponse: ok}
	}, oapi.ReleaseRunLeaseResponseObject.VisitReleaseRunLeaseResponse)
}
