// Package worker reads what every call of a worker carries, and writes what every answer to one does, whatever it is about.
package worker

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Fence returns the proof of ownership that a worker sent: its handle, or the triple that the handle stands for.
func Fence(id uuid.UUID, handle *string, sent *oapi.SentFence) (execution.Fence, error) {
	switch {
	case handle != nil && sent != nil:
		return execution.Fence{}, fault.Invalid(fault.CodeValidationFailed, "/fence", "Give handle or fence, not both.")
	case handle != nil:
		return execution.ParseHandle(*handle, id)
	case sent == nil:
		return execution.Fence{}, fault.Invalid(fault.CodeValidationFailed, "/handle", "The handle of the claim answer is missing.")
	}
	f := execution.Fence{ExecutionID: id, LeaseID: sent.LeaseID, AttemptID: sent.AttemptID, LeaseEpoch: sent.LeaseEpoch, AttemptIndex: execution.AnyAttempt}
	if sent.AttemptIndex != nil {
		f.AttemptIndex = int(*sent.AttemptIndex)
	}
	return f, nil
}

// Directives returns what is asked of a worker.
func Directives(all []execution.Directive) oapi.Directives {
	out := make(oapi.Directives, len(all))
	for i, d := range all {
		out[i] = string(d)
	}
	return out
}
