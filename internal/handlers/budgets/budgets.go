// Package budgets holds the operations on budgets: those of the operators who set their limits, and the reports of what was used
// up. They translate and call; what counts, and what a limit does, is decided in domain/budget.
package budgets

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Budgets is the store of budgets.
type Budgets interface {
	Create(ctx context.Context, in budget.Create) (budget.Creation, error)
	Budget(ctx context.Context, id uuid.UUID) (budget.Budget, error)
	Budgets(ctx context.Context, f budget.Filter, after page.Cursor, limit int) (page.Page[budget.Budget], error)
	Patch(ctx context.Context, id uuid.UUID, expected *int64, p budget.Patch) (budget.Budget, error)
	Delete(ctx context.Context, id uuid.UUID, expected *int64) error

	Report(ctx context.Context, id uuid.UUID, in budget.Usage) (budget.Reported, error)
	Release(ctx context.Context, id, executionID uuid.UUID) (budget.Budget, error)
	Reset(ctx context.Context, id uuid.UUID) (budget.Budget, error)
	TopUp(ctx context.Context, id uuid.UUID, dimensions map[string]int64) (budget.Budget, error)
	Ledger(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (page.Page[budget.Entry], error)
}

// Handlers are the operations on budgets.
type Handlers struct {
	Budgets Budgets
	Now     func() time.Time
}

// CreateBudget handles POST /v1/budgets.
func (h *Handlers) CreateBudget(ctx context.Context, req oapi.CreateBudgetRequestObject) (oapi.CreateBudgetResponseObject, error) {
	in := creation(ask.Or(req.Body, oapi.CreateBudget{}))
	return answer.Write(ctx, func(ctx context.Context) (budget.Creation, error) {
		return h.Budgets.Create(ctx, in)
	}, func(made budget.Creation) oapi.CreateBudgetResponseObject {
		ok := budgetOK(made.Budget)
		if made.Existing {
			ok.Headers.IdempotentReplay = new(true)
			return oapi.CreateBudget200JSONResponse{BudgetOKJSONResponse: ok}
		}
		return oapi.CreateBudget201JSONResponse{BudgetCreatedJSONResponse: oapi.BudgetCreatedJSONResponse{Body: ok.Body,
			Headers: oapi.BudgetCreatedResponseHeaders{ETag: ok.Headers.ETag, Location: "/v1/budgets/" + ok.Body.ID.String()}}}
	}, oapi.CreateBudgetResponseObject.VisitCreateBudgetResponse)
}

// ListBudgets handles GET /v1/budgets.
func (h *Handlers) ListBudgets(ctx context.Context, req oapi.ListBudgetsRequestObject) (oapi.ListBudgetsResponseObject, error) {
	p := req.Params
	filter := budget.Filter{ScopeType: p.ScopeType, ScopeID: p.ScopeID, ParentID: ask.Or(p.ParentID, uuid.Nil), Exhausted: p.Exhausted}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[budget.Budget], error) {
		return h.Budgets.Budgets(ctx, filter, after, limit)
	}, body)
	if err != nil {
		return nil, err
	}
	return oapi.ListBudgets200JSONResponse{Body: oapi.BudgetList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListBudgets200ResponseHeaders{Link: list.Link}}, nil
}

// GetBudget handles GET /v1/budgets/{budget_id}.
func (h *Handlers) GetBudget(ctx context.Context, req oapi.GetBudgetRequestObject) (oapi.GetBudgetResponseObject, error) {
	b, err := h.Budgets.Budget(ctx, req.BudgetID)
	if err != nil {
		return nil, err
	}
	return oapi.GetBudget200JSONResponse{BudgetOKJSONResponse: budgetOK(b)}, nil
}

// PatchBudget handles PATCH /v1/budgets/{budget_id}.
func (h *Handlers) PatchBudget(ctx context.Context, req oapi.PatchBudgetRequestObject) (oapi.PatchBudgetResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err != nil {
		return nil, err
	}
	b, err := h.Budgets.Patch(ctx, req.BudgetID, expected, change(req.Body))
	if err != nil {
		return nil, err
	}
	return oapi.PatchBudget200JSONResponse{BudgetOKJSONResponse: budgetOK(b)}, nil
}

// DeleteBudget handles DELETE /v1/budgets/{budget_id}.
func (h *Handlers) DeleteBudget(ctx context.Context, req oapi.DeleteBudgetRequestObject) (oapi.DeleteBudgetResponseObject, error) {
	expected, err := ask.Expected(req.Params.IfMatch, req.Params.Revision)
	if err == nil {
		err = h.Budgets.Delete(ctx, req.BudgetID, expected)
	}
	if err != nil {
		return nil, err
	}
	return oapi.DeleteBudget204Response{}, nil
}

// ResetBudget handles POST /v1/budgets/{budget_id}/reset.
func (h *Handlers) ResetBudget(ctx context.Context, req oapi.ResetBudgetRequestObject) (oapi.ResetBudgetResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (budget.Budget, error) {
		return h.Budgets.Reset(ctx, req.BudgetID)
	}, func(b budget.Budget) oapi.ResetBudgetResponseObject {
		return oapi.ResetBudget200JSONResponse{BudgetOKJSONResponse: budgetOK(b)}
	}, oapi.ResetBudgetResponseObject.VisitResetBudgetResponse)
}

// TopUpBudget handles POST /v1/budgets/{budget_id}/topup.
func (h *Handlers) TopUpBudget(ctx context.Context, req oapi.TopUpBudgetRequestObject) (oapi.TopUpBudgetResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (budget.Budget, error) {
		return h.Budgets.TopUp(ctx, req.BudgetID, req.Body.Dimensions)
	}, func(b budget.Budget) oapi.TopUpBudgetResponseObject {
		return oapi.TopUpBudget200JSONResponse{BudgetOKJSONResponse: budgetOK(b)}
	}, oapi.TopUpBudgetResponseObject.VisitTopUpBudgetResponse)
}
