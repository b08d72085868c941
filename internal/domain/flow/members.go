package flow

import (
	"cmp"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Reasons of members that end because their flow does.
const (
	reasonCancelled = "flow_cancelled"
	reasonFailed    = "flow_failed"
)

// MembersEnd says how the members of a flow that has ended end with it, and whether they do.
func (f *Flow) MembersEnd() (end execution.Cascade, ends bool) {
	switch {
	case f.Status == Failed:
		return execution.Cascade{Reason: reasonFailed}, true
	case f.Status == Cancelled && f.Cancellation != nil && f.Cancellation.Policy != FlowOnly:
		return execution.Cascade{Reason: cmp.Or(f.Cancellation.Reason, reasonCancelled), PendingOnly: f.Cancellation.Policy == CancelPending,
			GraceUntil: f.Cancellation.GraceUntil}, true
	default:
		return execution.Cascade{}, false
	}
}

// Event returns an event that concerns f and is no change of what its controller owns: it has no revision.
func (f *Flow) Event(t event.Type, data any) event.Event {
	return event.Event{Namespace: f.Namespace, Type: t, FlowID: f.ID, InstanceTag: f.Tags[tag.Instance], Data: data}
}
