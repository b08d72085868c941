package flows

import (
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

func flowOK(f flow.Flow) oapi.FlowOKJSONResponse {
	return oapi.FlowOKJSONResponse{Body: body(&f), Headers: oapi.FlowOKResponseHeaders{ETag: ask.ETag(f.Revision)}}
}

// body returns f as clients see it.
func body(f *flow.Flow) oapi.Flow {
	out := oapi.Flow{
		ID: f.ID, Namespace: f.Namespace, Kind: f.Kind, ControllerID: f.ControllerID, Goal: f.Goal, OwnerSessionKey: f.OwnerSessionKey,
		RequesterOrigin: f.RequesterOrigin, CurrentStep: f.CurrentStep, State: f.State, Status: oapi.FlowStatus(f.Status), CancelRequested: f.CancelRequested,
		Revision: f.Revision, GraphRevision: f.GraphRevision, NodeCount: f.NodeCount, EdgeCount: f.EdgeCount, AutoFinish: f.AutoFinish, Tags: wire.Tags(f.Tags),
		CreatedAt: wire.Time(f.CreatedAt), UpdatedAt: wire.Time(f.UpdatedAt), EndedAt: wire.TimeOrNull(f.EndedAt), Rollup: rollup(f.Rollup),
	}
	out.BudgetIds, out.QuotaPolicyIds, _ = shape.Attached(f.Limits)
	if w := f.Wait; w != nil {
		condition, err := json.Marshal(w.Condition)
		if err != nil {
			condition = []byte("null") // a condition that was read can be written
		}
		out.Wait = &oapi.FlowWait{WaitID: w.ID, Condition: condition, Deadline: wire.TimeOrNull(w.Deadline), OnTimeout: oapi.OnTimeout(w.OnTimeout), Since: wire.Time(w.Since)}
	}
	if c := f.Cancellation; c != nil {
		out.Cancellation = &oapi.FlowCancellation{Policy: wire.TextOrNull(string(c.Policy)), Reason: wire.TextOrNull(c.Reason), Actor: c.Actor, RequestedAt: wire.Time(c.RequestedAt)}
	}
	if x := f.Failure; x != nil {
		out.Failure = &oapi.FlowFailure{Reason: x.Reason, At: wire.Time(x.At)}
	}
	return out
}
