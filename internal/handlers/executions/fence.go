package executions

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/access"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/worker"
)

// fenceOrOverride is [worker.Fence] for what an operator may also report in place of the owner. It returns CodeForbidden to others.
func fenceOrOverride(ctx context.Context, id uuid.UUID, handle *string, sent *oapi.SentFence, override *bool) (execution.Fence, error) {
	if !ask.Or(override, false) {
		return worker.Fence(id, handle, sent)
	}
	switch {
	case handle != nil || sent != nil:
		return execution.Fence{}, fault.Invalid(fault.CodeValidationFailed, "/override", "Give handle, fence or override, only one of them.")
	case !call.From(ctx).Role.Operates():
		return execution.Fence{}, fault.New(fault.CodeForbidden, "Only an operator reports in place of the owner.").With("required_role", access.RoleOperator)
	}
	return execution.Fence{ExecutionID: id, Override: true}, nil
}
