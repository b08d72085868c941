package budgets

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// ReportUsage handles POST /v1/budgets/{budget_id}/usage.
func (h *Handlers) ReportUsage(ctx context.Context, req oapi.ReportUsageRequestObject) (oapi.ReportUsageResponseObject, error) {
	in, err := usage(req.Body)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (budget.Reported, error) {
		return h.Budgets.Report(ctx, req.BudgetID, in)
	}, func(r budget.Reported) oapi.ReportUsageResponseObject {
		return oapi.ReportUsage200JSONResponse{UsageReportedJSONResponse: h.reported(&r)}
	}, oapi.ReportUsageResponseObject.VisitReportUsageResponse)
}

// usage returns what is reported, and for whom. It returns CodeValidationFailed and CodeInvalidHandle.
func usage(b *oapi.ReportUsage) (budget.Usage, error) {
	out := budget.Usage{Dimensions: b.Dimensions, DedupKey: ask.Or(b.DedupKey, ""), ExecutionID: ask.Or(b.ExecutionID, uuid.Nil)}
	var f execution.Fence
	var err error
	switch {
	case b.Handle == nil && b.Fence == nil:
		return out, nil
	case b.ExecutionID == nil && b.Handle == nil:
		return out, fault.Invalid(fault.CodeValidationFailed, "/execution_id", "A fence does not say of which execution it is: give execution_id, too.")
	case b.ExecutionID == nil && b.Fence == nil:
		f, err = execution.ParseAnyHandle(*b.Handle)
	default:
		f, err = worker.Fence(out.ExecutionID, b.Handle, b.Fence)
	}
	out.Fence, out.ExecutionID = &f, f.ExecutionID
	return out, err
}

// SpendBudget handles POST /v1/budgets/{budget_id}/spend.
func (h *Handlers) SpendBudget(ctx context.Context, req oapi.SpendBudgetRequestObject) (oapi.SpendBudgetResponseObject, error) {
	in := budget.Usage{Dimensions: req.Body.Dimensions, DedupKey: ask.Or(req.Body.DedupKey, ""), ExecutionID: req.Body.ExecutionID}
	return answer.Write(ctx, func(ctx context.Context) (budget.Reported, error) {
		return h.Budgets.Report(ctx, req.BudgetID, in)
	}, func(r budget.Reported) oapi.SpendBudgetResponseObject {
		return oapi.SpendBudget200JSONResponse{UsageReportedJSONResponse: h.reported(&r)}
	}, oapi.SpendBudgetResponseObject.VisitSpendBudgetResponse)
}

// reported returns the answer to a report: what has become of it, and in the headers what is left of this budget.
func (h *Handlers) reported(r *budget.Reported) oapi.UsageReportedJSONResponse {
	out := oapi.UsageReport{Outcome: oapi.UsageOutcome(r.Verdict.Outcome), Directives: worker.Directives(r.Directives), BudgetRemaining: shape.Remaining(r.Remaining)}
	if r.Verdict.Outcome == budget.SoftBreach || r.Verdict.Outcome == budget.HardBreach {
		v := r.Verdict
		out.BudgetID, out.Dimension, out.CurrentUsage, out.Limit = &v.BudgetID, &v.Dimension, &v.Current, &v.Limit
	}
	policy, left := shape.RateLimit(limits(&r.Budget), h.Now())
	return oapi.UsageReportedJSONResponse{Body: out, Headers: oapi.UsageReportedResponseHeaders{RateLimitPolicy: policy, RateLimit: left}}
}

// ReleaseBudget handles POST /v1/budgets/{budget_id}/release.
func (h *Handlers) ReleaseBudget(ctx context.Context, req oapi.ReleaseBudgetRequestObject) (oapi.ReleaseBudgetResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (budget.Budget, error) {
		return h.Budgets.Release(ctx, req.BudgetID, req.Body.ExecutionID)
	}, func(b budget.Budget) oapi.ReleaseBudgetResponseObject {
		return oapi.ReleaseBudget200JSONResponse{BudgetOKJSONResponse: budgetOK(b)}
	}, oapi.ReleaseBudgetResponseObject.VisitReleaseBudgetResponse)
}

// ListBudgetLedger handles GET /v1/budgets/{budget_id}/ledger.
func (h *Handlers) ListBudgetLedger(ctx context.Context, req oapi.ListBudgetLedgerRequestObject) (oapi.ListBudgetLedgerResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[budget.Entry], error) {
		return h.Budgets.Ledger(ctx, req.BudgetID, after, limit)
	}, func(e *budget.Entry) oapi.BudgetEntry {
		return oapi.BudgetEntry{ExecutionID: e.ExecutionID, Spent: shape.Amounts(e.Spent), Reserved: shape.Amounts(e.Reserved), UpdatedAt: wire.Time(e.UpdatedAt)}
	})
	if err != nil {
		return nil, err
	}
	return oapi.ListBudgetLedger200JSONResponse{Body: oapi.BudgetLedger{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListBudgetLedger200ResponseHeaders{Link: list.Link}}, nil
}
