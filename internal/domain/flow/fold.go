package flow

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// Fold makes a flow out of its events, the oldest first: the row as it was after the last of them, except what moves without
// the revision (members, edges and their counts). It fails if a revision is missing.
func Fold(events []event.Event) (Flow, error) {
	f := Flow{Revision: -1}
	for i := range events {
		var err error
		if f, err = f.Apply(events[i]); err != nil {
			return Flow{}, err
		}
	}
	return f, nil
}

// Apply returns f after one more of its events. Events that are not about the flow itself change nothing.
func (f Flow) Apply(e event.Event) (Flow, error) {
	empty, ok := facts[e.Type]
	if !ok {
		return f, nil
	}
	if f.ID == uuid.Nil {
		f.ID, f.Namespace = e.FlowID, e.Namespace
	}
	if e.FlowID != f.ID || e.Revision == nil || *e.Revision != f.Revision+1 {
		return f, fmt.Errorf("event %d (%s) does not follow revision %d of flow %s", e.ID, e.Type, f.Revision, f.ID)
	}
	x, err := read(e, empty())
	if err != nil {
		return f, fmt.Errorf("event %d (%s): %w", e.ID, e.Type, err)
	}
	return f.after(x, event.By{Actor: e.Actor, At: e.At}), nil
}

// read returns the fact that is an event's data, as it was emitted or as it was read from the log.
func read(e event.Event, into fact) (fact, error) {
	if x, ok := e.Data.(fact); ok {
		return x, nil
	}
	raw, ok := e.Data.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("its data is a %T", e.Data)
	}
	return into, json.Unmarshal(raw, into)
}
