package events

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// head is what the typed subscriptions say of every event, before its data.
type head struct {
	Cursor      int64      `json:"cursor"`
	ExecutionID uuid.UUID  `json:"execution_id"`
	FlowID      *uuid.UUID `json:"flow_id"`
	Namespace   string     `json:"namespace"`
	At          wire.Time  `json:"at"`
}

func headOf(e event.Event) head {
	return head{Cursor: e.ID, ExecutionID: e.ExecutionID, FlowID: wire.IDOrNull(e.FlowID), Namespace: e.Namespace, At: wire.Time(e.At)}
}

// flat renders an event as one object: where it stands, then the members of its data.
func flat(e event.Event) ([]byte, error) { return joined(headOf(e), e) }

// acted renders what an operator did, with who did it. Bulk jobs are left out: what they do to each execution is told there.
func acted(e event.Event) ([]byte, error) {
	if e.ExecutionID == uuid.Nil {
		return nil, nil
	}
	return joined(struct {
		head
		Actor string `json:"actor"`
	}{headOf(e), e.Actor}, e)
}

// joined renders an object, and in it the members of e's data.
func joined(object any, e event.Event) ([]byte, error) {
	line, err := json.Marshal(object)
	data, ok := e.Data.(json.RawMessage)
	if err != nil || !ok || len(data) <= len("{}") {
		return line, err
	}
	line[len(line)-1] = ','
	return append(line, data[1:]...), nil
}

// tagged renders how an execution got its instance tag: at its creation, or later. Other tags, and executions that are
// created without it, are left out.
func tagged(e event.Event) ([]byte, error) {
	set := struct {
		Key      string  `json:"key"`
		Value    string  `json:"value"`
		Previous *string `json:"previous"`
	}{Key: tag.Instance, Value: e.InstanceTag}
	if data, ok := e.Data.(json.RawMessage); ok && e.Type == event.ExecutionTagSet {
		if err := json.Unmarshal(data, &set); err != nil {
			return nil, err
		}
	}
	if set.Key != tag.Instance || set.Value == "" {
		return nil, nil
	}
	return json.Marshal(struct {
		head
		InstanceTag string  `json:"instance_tag"`
		Previous    *string `json:"previous"`
	}{headOf(e), set.Value, set.Previous})
}
