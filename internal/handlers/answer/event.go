package answer

import (
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Event returns e, as it was read from the log, as clients see it.
func Event(e *event.Event) oapi.Event {
	out := oapi.Event{
		ID: e.ID, At: wire.Time(e.At), Namespace: e.Namespace, Topic: string(e.Type.Topic()), Type: string(e.Type), FlowID: wire.IDOrNull(e.FlowID),
		RunID: wire.IDOrNull(e.RunID), ExecutionID: wire.IDOrNull(e.ExecutionID), Revision: e.Revision, Actor: e.Actor,
	}
	if data, ok := e.Data.(json.RawMessage); ok {
		out.Data = data
	}
	if e.InstanceTag != "" {
		out.InstanceTag = &e.InstanceTag
	}
	if e.Cause != 0 {
		out.Cause = &e.Cause
	}
	if e.TraceID != "" {
		out.TraceID = &e.TraceID
	}
	return out
}
