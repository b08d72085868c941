package executions

import (
	"context"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// CompleteExecutions handles POST /v1/completions.
func (h *Handlers) CompleteExecutions(ctx context.Context, req oapi.CompleteExecutionsRequestObject) (oapi.CompleteExecutionsResponseObject, error) {
	in := make([]execution.Ending, len(req.Body.Items))
	for i, item := range req.Body.Items {
		in[i] = ending(item)
	}
	return answer.Write(ctx, func(ctx context.Context) ([]execution.Item[execution.Report], error) {
		return h.Executions.End(ctx, in)
	}, func(ended []execution.Item[execution.Report]) oapi.CompleteExecutionsResponseObject {
		items := make([]oapi.CompletedExecution, len(ended))
		for i := range ended {
			items[i].ExecutionID = req.Body.Items[i].ExecutionID
			if ended[i].Err != nil {
				items[i].Problem = new(answer.Item(ctx, "/v1/completions", ended[i].Err))
				continue
			}
			items[i].Execution, items[i].Replayed = new(shape.Execution(&ended[i].Value.Execution)), new(ended[i].Value.Replayed)
		}
		return oapi.CompleteExecutions200JSONResponse{Body: oapi.CompletedExecutions{Items: items}}
	}, oapi.CompleteExecutionsResponseObject.VisitCompleteExecutionsResponse)
}

func ending(item oapi.CompletionItem) execution.Ending {
	f, err := worker.Fence(item.ExecutionID, item.Handle, item.Fence)
	out := execution.Ending{Fence: f, Result: shape.Value(item.Result), Err: err}
	if item.Fail != nil {
		out.Failure = &execution.Failure{Reason: item.Fail.Reason, Category: ask.Or(item.Fail.Category, "")}
		out.RetryAfter = span(item.Fail.RetryAfterMs)
		if item.Result != nil && err == nil {
			out.Err = fault.Invalid(fault.CodeValidationFailed, "/fail", "Give result or fail, not both.")
		}
	}
	return out
}
