// Package quotas holds the operations on quotas. They translate and call; who is admitted is decided in domain/quota.
package quotas

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/quota"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Quotas is the store of quotas.
type Quotas interface {
	Create(ctx context.Context, in quota.Create) (quota.Creation, error)
	Quota(ctx context.Context, id uuid.UUID) (quota.Quota, error)
	Quotas(ctx context.Context, after page.Cursor, limit int) (page.Page[quota.Quota], error)
	Delete(ctx context.Context, id uuid.UUID) error
	Admit(ctx context.Context, id, executionID uuid.UUID) (quota.Verdict, error)
	Release(ctx context.Context, id, executionID uuid.UUID) error
	Admissions(ctx context.Context, id uuid.UUID, key *string, after page.Cursor, limit int) (page.Page[quota.Admission], error)
}

// Handlers are the operations on quotas.
type Handlers struct {
	Quotas Quotas
	Now    func() time.Time
}

// CreateQuota handles POST /v1/quotas.
func (h *Handlers) CreateQuota(ctx context.Context, req oapi.CreateQuotaRequestObject) (oapi.CreateQuotaResponseObject, error) {
	b := ask.Or(req.Body, oapi.CreateQuota{})
	in := quota.Create{ID: ask.Or(b.ID, uuid.Nil), Window: time.Duration(ask.Or(b.WindowSeconds, 0)) * time.Second, MaxRequests: ask.Or(b.MaxRequestsPerWindow, 0),
		MaxConcurrent: ask.Or(b.MaxConcurrent, 0), Jitter: ask.Millis(ask.Or(b.JitterMs, 0)), KeyTag: ask.Or(b.KeyTag, "")}
	return answer.Write(ctx, func(ctx context.Context) (quota.Creation, error) {
		return h.Quotas.Create(ctx, in)
	}, func(made quota.Creation) oapi.CreateQuotaResponseObject {
		if made.Existing {
			return oapi.CreateQuota200JSONResponse{QuotaOKJSONResponse: oapi.QuotaOKJSONResponse{Body: body(&made.Quota), Headers: oapi.QuotaOKResponseHeaders{IdempotentReplay: new(true)}}}
		}
		return oapi.CreateQuota201JSONResponse{QuotaCreatedJSONResponse: oapi.QuotaCreatedJSONResponse{Body: body(&made.Quota),
			Headers: oapi.QuotaCreatedResponseHeaders{Location: "/v1/quotas/" + made.Quota.ID.String()}}}
	}, oapi.CreateQuotaResponseObject.VisitCreateQuotaResponse)
}

// ListQuotas handles GET /v1/quotas.
func (h *Handlers) ListQuotas(ctx context.Context, req oapi.ListQuotasRequestObject) (oapi.ListQuotasResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[quota.Quota], error) {
		return h.Quotas.Quotas(ctx, after, limit)
	}, body)
	if err != nil {
		return nil, err
	}
	return oapi.ListQuotas200JSONResponse{Body: oapi.QuotaList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListQuotas200ResponseHeaders{Link: list.Link}}, nil
}

// GetQuota handles GET /v1/quotas/{quota_id}.
func (h *Handlers) GetQuota(ctx context.Context, req oapi.GetQuotaRequestObject) (oapi.GetQuotaResponseObject, error) {
	q, err := h.Quotas.Quota(ctx, req.QuotaID)
	if err != nil {
		return nil, err
	}
	return oapi.GetQuota200JSONResponse{QuotaOKJSONResponse: oapi.QuotaOKJSONResponse{Body: body(&q)}}, nil
}

// DeleteQuota handles DELETE /v1/quotas/{quota_id}.
func (h *Handlers) DeleteQuota(ctx context.Context, req oapi.DeleteQuotaRequestObject) (oapi.DeleteQuotaResponseObject, error) {
	if err := h.Quotas.Delete(ctx, req.QuotaID); err != nil {
		return nil, err
	}
	return oapi.DeleteQuota204Response{}, nil
}

// AdmitExecution handles POST /v1/quotas/{quota_id}/admissions.
func (h *Handlers) AdmitExecution(ctx context.Context, req oapi.AdmitExecutionRequestObject) (oapi.AdmitExecutionResponseObject, error) {
	return answer.Write(ctx, func(ctx context.Context) (quota.Verdict, error) {
		return h.Quotas.Admit(ctx, req.QuotaID, req.Body.ExecutionID)
	}, func(v quota.Verdict) oapi.AdmitExecutionResponseObject {
		out := oapi.AdmissionReport{Outcome: oapi.AdmissionOutcome(v.Outcome)}
		if v.Outcome == quota.RateExceeded {
			out.RetryAfterMs = new(v.RetryAfter.Milliseconds())
		}
		policy, left := shape.RateLimit(limits(&v), h.Now())
		return oapi.AdmitExecution200JSONResponse{Body: out, Headers: oapi.AdmitExecution200ResponseHeaders{RateLimitPolicy: policy, RateLimit: left}}
	}, oapi.AdmitExecutionResponseObject.VisitAdmitExecutionResponse)
}

// ListAdmissions handles GET /v1/quotas/{quota_id}/admissions.
func (h *Handlers) ListAdmissions(ctx context.Context, req oapi.ListAdmissionsRequestObject) (oapi.ListAdmissionsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[quota.Admission], error) {
		return h.Quotas.Admissions(ctx, req.QuotaID, req.Params.Key, after, limit)
	}, func(a *quota.Admission) oapi.Admission {
		return oapi.Admission{ExecutionID: a.ExecutionID, Key: a.Key, AdmittedAt: wire.Time(a.AdmittedAt)}
	})
	if err != nil {
		return nil, err
	}
	return oapi.ListAdmissions200JSONResponse{Body: oapi.AdmissionList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListAdmissions200ResponseHeaders{Link: list.Link}}, nil
}

// ReleaseAdmission handles DELETE /v1/quotas/{quota_id}/admissions/{execution_id}.
func (h *Handlers) ReleaseAdmission(ctx context.Context, req oapi.ReleaseAdmissionRequestObject) (oapi.ReleaseAdmissionResponseObject, error) {
	if err := h.Quotas.Release(ctx, req.QuotaID, req.ExecutionID); err != nil {
		return nil, err
	}
	return oapi.ReleaseAdmission204Response{}, nil
}

// body returns q as clients see it.
func body(q *quota.Quota) oapi.Quota {
	return oapi.Quota{ID: q.ID, Namespace: q.Namespace, WindowSeconds: int64(q.Window / time.Second), MaxRequestsPerWindow: q.MaxRequests, MaxConcurrent: q.MaxConcurrent,
		JitterMs: q.Jitter.Milliseconds(), KeyTag: wire.TextOrNull(q.KeyTag), Active: q.Active, CreatedAt: wire.Time(q.CreatedAt)}
}

// limits returns those of a quota as the headers of an admission tell them.
func limits(v *quota.Verdict) []shape.Limit {
	var out []shape.Limit
	q, u := v.Quota, v.Usage
	if q.MaxRequests > 0 {
		l := shape.Limit{Name: "requests", Max: q.MaxRequests, Left: q.MaxRequests - u.Recent, Window: q.Window}
		if u.Recent > 0 {
			l.MoreAt = u.Oldest.Add(q.Window)
		}
		out = append(out, l)
	}
	if q.MaxConcurrent > 0 {
		out = append(out, shape.Limit{Name: "concurrent", Max: q.MaxConcurrent, Left: q.MaxConcurrent - u.Active})
	}
	return out
}
