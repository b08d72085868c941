// Package executions holds the operations on executions: those of their owners, and those of the workers. They translate
// and call; what is allowed is decided by the machine in domain/execution.
package executions

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Executions is the store of executions.
type Executions interface {
	Create(ctx context.Context, in execution.Create) (execution.Created, error)
	CreateMany(ctx context.Context, in []execution.Item[execution.Create], atomic bool) ([]execution.Item[execution.Created], error)
	Execution(ctx context.Context, id uuid.UUID) (execution.Execution, error)
	Executions(ctx context.Context, f execution.Filter, after page.Cursor, limit int) (page.Page[execution.Execution], error)
	Result(ctx context.Context, id uuid.UUID) (v execution.Value, revision int64, err error)
	Attempts(ctx context.Context, id uuid.UUID, after page.Cursor, limit int) (page.Page[execution.Attempt], error)
	Claim(ctx context.Context, req execution.ClaimRequest) (execution.Claimed, error)
	RetryAfter() *int
	Renew(ctx context.Context, f execution.Fence, ttl time.Duration) (execution.Report, error)
	Progress(ctx context.Context, f execution.Fence, pct *int, message *string) (execution.Report, error)
	Complete(ctx context.Context, f execution.Fence, result *execution.Value) (execution.Report, error)
	Fail(ctx context.Context, f execution.Fence, failure execution.Failure, retryAfter *time.Duration) (execution.Report, error)
	Release(ctx context.Context, f execution.Fence) (execution.Report, error)
	Delay(ctx context.Context, f execution.Fence, until time.Time, delay time.Duration) (execution.Report, error)
	WaitChildren(ctx context.Context, f execution.Fence) (execution.Report, error)
	Abandon(ctx context.Context, f execution.Fence, reason string) (execution.Report, error)
	End(ctx context.Context, items []execution.Ending) ([]execution.Item[execution.Report], error)

	Reserve(ctx context.Context, req execution.GrantRequest) (*execution.Execution, error)
	ReserveLost(ctx context.Context, id uuid.UUID, req execution.GrantRequest) (execution.Execution, error)
	ClaimGranted(ctx context.Context, id uuid.UUID, use execution.Use, worker, instance string, ttl time.Duration) (execution.Claimed, error)
	ClaimByHand(ctx context.Context, id uuid.UUID, ttl time.Duration) (execution.Claimed, error)

	Stop(ctx context.Context, id uuid.UUID, expected *int64, reason string, grace time.Duration) (execution.Execution, error)
	Prioritise(ctx context.Context, id uuid.UUID, expected *int64, priority int) (execution.Execution, error)
	Replay(ctx context.Context, id uuid.UUID, expected *int64) (execution.Execution, error)
	Resume(ctx context.Context, id uuid.UUID, expected *int64, delay time.Duration) (execution.Execution, error)
	Revoke(ctx context.Context, id uuid.UUID, expected *int64, which execution.Revocation) (execution.Revoked, error)
	SetTag(ctx context.Context, id uuid.UUID, expected *int64, key, value string) (execution.Execution, error)

	CountByLane(ctx context.Context) (execution.Counts, error)
	CountByState(ctx context.Context) (execution.Counts, error)
	Leases(ctx context.Context, f execution.Leases, after page.Cursor, limit int) (page.Page[execution.Execution], error)
	Explain(ctx context.Context, id uuid.UUID, instance string, capabilities execution.Capabilities, named bool) (execution.Execution, execution.Explanation, error)
	Lanes(ctx context.Context, after string, limit int) (page.Named[execution.LaneStatus], error)
	TurnLane(ctx context.Context, name string, expected *int64, state execution.LaneState, reason string) (execution.Lane, error)
	SetLaneQuotas(ctx context.Context, name string, expected *int64, ids []uuid.UUID) (execution.Lane, error)

	StartBulk(ctx context.Context, in execution.Bulk, dryRun bool) (execution.BulkJob, error)
	Bulk(ctx context.Context, id uuid.UUID) (execution.BulkJob, error)
	StopBulk(ctx context.Context, id uuid.UUID) (execution.BulkJob, error)
}

// Handlers are the operations on executions.
type Handlers struct {
	Executions Executions
}

// CreateExecution handles POST /v1/executions.
func (h *Handlers) CreateExecution(ctx context.Context, req oapi.CreateExecutionRequestObject) (oapi.CreateExecutionResponseObject, error) {
	in, err := shape.Creation(req.Body)
	if err != nil {
		return nil, err
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Created, error) {
		return h.Executions.Create(ctx, in)
	}, func(made execution.Created) oapi.CreateExecutionResponseObject {
		if made.Existing {
			return oapi.CreateExecution200JSONResponse{ExecutionOKJSONResponse: existing(made)}
		}
		return oapi.CreateExecution201JSONResponse{ExecutionCreatedJSONResponse: created(made)}
	}, oapi.CreateExecutionResponseObject.VisitCreateExecutionResponse)
}

// CreateExecutionFromOctets handles POST /v1/executions/octets.
func (h *Handlers) CreateExecutionFromOctets(ctx context.Context, req oapi.CreateExecutionFromOctetsRequestObject) (oapi.CreateExecutionFromOctetsResponseObject, error) {
	payload, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	in := execution.Create{
		ID: ask.Or(req.Params.ID, uuid.Nil), Lane: req.Params.Lane, Kind: ask.Or(req.Params.Kind, ""), Priority: int(ask.Or(req.Params.Priority, 0)),
		Payload: &execution.Value{Bytes: payload, Encoding: execution.EncodingBase64},
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Created, error) {
		return h.Executions.Create(ctx, in)
	}, func(made execution.Created) oapi.CreateExecutionFromOctetsResponseObject {
		if made.Existing {
			return oapi.CreateExecutionFromOctets200JSONResponse{ExecutionOKJSONResponse: existing(made)}
		}
		return oapi.CreateExecutionFromOctets201JSONResponse{ExecutionCreatedJSONResponse: created(made)}
	}, oapi.CreateExecutionFromOctetsResponseObject.VisitCreateExecutionFromOctetsResponse)
}

func created(made execution.Created) oapi.ExecutionCreatedJSONResponse {
	return oapi.ExecutionCreatedJSONResponse{Body: shape.Execution(&made.Execution), Headers: oapi.ExecutionCreatedResponseHeaders{
		ETag: ask.ETag(made.Execution.Revision), Location: "/v1/executions/" + made.Execution.ID.String()}}
}

func existing(made execution.Created) oapi.ExecutionOKJSONResponse {
	return oapi.ExecutionOKJSONResponse{Body: shape.Execution(&made.Execution), Headers: oapi.ExecutionOKResponseHeaders{
		ETag: ask.ETag(made.Execution.Revision), IdempotentReplay: new(true)}}
}

// CreateExecutions handles POST /v1/executions/batch.
func (h *Handlers) CreateExecutions(ctx context.Context, req oapi.CreateExecutionsRequestObject) (oapi.CreateExecutionsResponseObject, error) {
	in := make([]execution.Item[execution.Create], len(req.Body.Executions))
	for i := range req.Body.Executions {
		in[i].Value, in[i].Err = shape.Creation(&req.Body.Executions[i])
	}
	return answer.Write(ctx, func(ctx context.Context) ([]execution.Item[execution.Created], error) {
		return h.Executions.CreateMany(ctx, in, ask.Or(req.Params.Atomic, false))
	}, func(made []execution.Item[execution.Created]) oapi.CreateExecutionsResponseObject {
		items := make([]oapi.CreatedExecution, len(made))
		for i := range made {
			if made[i].Err != nil {
				items[i].Problem = new(answer.Item(ctx, "/v1/executions/batch", made[i].Err))
				continue
			}
			items[i].Execution = new(shape.Execution(&made[i].Value.Execution))
		}
		return oapi.CreateExecutions201JSONResponse{Body: oapi.CreatedExecutions{Items: items}}
	}, oapi.CreateExecutionsResponseObject.VisitCreateExecutionsResponse)
}

// GetExecution handles GET /v1/executions/{execution_id}.
func (h *Handlers) GetExecution(ctx context.Context, req oapi.GetExecutionRequestObject) (oapi.GetExecutionResponseObject, error) {
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	if ask.Unchanged(req.Params.IfNoneMatch, e.Revision) {
		return oapi.GetExecution304Response{Headers: oapi.NotModifiedResponseHeaders{ETag: ask.ETag(e.Revision)}}, nil
	}
	return oapi.GetExecution200JSONResponse{ExecutionOKJSONResponse: oapi.ExecutionOKJSONResponse{
		Body: shape.Execution(&e), Headers: oapi.ExecutionOKResponseHeaders{ETag: ask.ETag(e.Revision)}}}, nil
}

// ListExecutions handles GET /v1/executions.
func (h *Handlers) ListExecutions(ctx context.Context, req oapi.ListExecutionsRequestObject) (oapi.ListExecutionsResponseObject, error) {
	p := req.Params
	filter := execution.Filter{Lane: ask.Or(p.Lane, ""), State: execution.Public(ask.Or(p.PublicState, "")), FlowID: ask.Or(p.FlowID, uuid.Nil),
		Kind: ask.Or(p.Kind, ""), Worker: ask.Or(p.Worker, ""), CreatedAfter: shape.Time(p.CreatedAfter), CreatedBefore: shape.Time(p.CreatedBefore)}
	var err error
	if filter.Tags, err = ask.Tags(p.Tag); err != nil {
		return nil, err
	}
	list, err := answer.List(ctx, p.Cursor, p.Limit, func(after page.Cursor, limit int) (page.Page[execution.Execution], error) {
		return h.Executions.Executions(ctx, filter, after, limit)
	}, shape.Execution)
	if err != nil {
		return nil, err
	}
	return oapi.ListExecutions200JSONResponse{Body: oapi.ExecutionList{Items: list.Items, NextCursor: list.Next},
		Headers: oapi.ListExecutions200ResponseHeaders{Link: list.Link}}, nil
}

// GetExecutionState handles GET /v1/executions/{execution_id}/state.
func (h *Handlers) GetExecutionState(ctx context.Context, req oapi.GetExecutionStateRequestObject) (oapi.GetExecutionStateResponseObject, error) {
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	return oapi.GetExecutionState200JSONResponse{Body: oapi.ExecutionState{PublicState: oapi.PublicState(e.Public()), StateVector: shape.Vector(&e)},
		Headers: oapi.GetExecutionState200ResponseHeaders{ETag: ask.ETag(e.Revision)}}, nil
}

// GetExecutionContext handles GET /v1/executions/{execution_id}/context.
func (h *Handlers) GetExecutionContext(ctx context.Context, req oapi.GetExecutionContextRequestObject) (oapi.GetExecutionContextResponseObject, error) {
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	return oapi.GetExecutionContext200JSONResponse(oapi.ExecutionContext{Kind: e.Kind, Tags: wire.Tags(e.Tags),
		Payload: shape.Document(e.Payload, e.PayloadEncoding), PayloadEncoding: oapi.PayloadEncoding(e.PayloadEncoding)}), nil
}

// GetExecutionPayload handles GET /v1/executions/{execution_id}/payload: the stored value itself, null when there is none.
func (h *Handlers) GetExecutionPayload(ctx context.Context, req oapi.GetExecutionPayloadRequestObject) (oapi.GetExecutionPayloadResponseObject, error) {
	e, err := h.Executions.Execution(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	v := execution.Value{Bytes: e.Payload, Encoding: e.PayloadEncoding}
	if v.Bytes == nil {
		v.Bytes = []byte("null")
	}
	return stored{v, e.Revision}, nil
}

// GetExecutionResult handles GET /v1/executions/{execution_id}/result: the stored value itself.
func (h *Handlers) GetExecutionResult(ctx context.Context, req oapi.GetExecutionResultRequestObject) (oapi.GetExecutionResultResponseObject, error) {
	v, revision, err := h.Executions.Result(ctx, req.ExecutionID)
	if err != nil {
		return nil, err
	}
	return stored{v, revision}, nil
}

// ListAttempts handles GET /v1/executions/{execution_id}/attempts.
func (h *Handlers) ListAttempts(ctx context.Context, req oapi.ListAttemptsRequestObject) (oapi.ListAttemptsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[execution.Attempt], error) {
		return h.Executions.Attempts(ctx, req.ExecutionID, after, limit)
	}, shape.Attempt)
	if err != nil {
		return nil, err
	}
	return oapi.ListAttempts200JSONResponse{Body: oapi.AttemptList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListAttempts200ResponseHeaders{Link: list.Link}}, nil
}
