package events

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/sse"
)

// Log is the event log.
type Log interface {
	// Sync makes every committed event readable.
	Sync(ctx context.Context) error
	Events(ctx context.Context, filter event.Filter, after int64, limit int) (event.Page, error)
	EventLog(ctx context.Context) (event.Log, error)
}

// pageSize bounds what one look at the log renders.
const pageSize = 1000

// source renders the log, or one topic of it, for streams.
type source struct {
	log    Log
	topics []event.Topic
	render func(e event.Event) ([]byte, error) // the data of a frame: one line of JSON
}

// Feed is the source of whole events.
func Feed(log Log) sse.Source {
	return &source{log: log, render: func(e event.Event) ([]byte, error) { return json.Marshal(answer.Event(e)) }}
}

// Completions is the source of the entries into a terminal state.
func Completions(log Log) sse.Source {
	return &source{log: log, topics: []event.Topic{event.TopicCompletion}, render: flat}
}

// Leases is the source of the changes of ownership.
func Leases(log Log) sse.Source {
	return &source{log: log, topics: []event.Topic{event.TopicLease}, render: flat}
}

// Read implements sse.Source.
func (s *source) Read(ctx context.Context, after int64) (sse.Page, error) {
	found, err := s.log.Events(ctx, event.Filter{Topics: s.topics}, after, pageSize)
	if err != nil {
		return sse.Page{}, err
	}
	if found.ResetTo > 0 {
		return sse.Page{ResetTo: found.ResetTo}, nil
	}
	out := sse.Page{Messages: make([]sse.Message, len(found.Events)), Through: found.Through, More: found.More}
	for i, e := range found.Events {
		data, err := s.render(e)
		if err != nil {
			return sse.Page{}, fmt.Errorf("render event %d: %w", e.ID, err)
		}
		out.Messages[i] = sse.Message{ID: e.ID, Frame: sse.AppendFrame(nil, e.ID, string(e.Type), data), Fields: sse.Fields{
			Topic: string(e.Type.Topic()), Type: string(e.Type), Namespace: e.Namespace, FlowID: text(e.FlowID), RunID: text(e.RunID),
			ExecutionID: text(e.ExecutionID), InstanceTag: e.InstanceTag,
		}}
	}
	return out, nil
}

// Newest implements sse.Source.
func (s *source) Newest(ctx context.Context) (int64, error) { return newest(ctx, s.log) }

// newest returns the id of the last event that has been committed: what was answered before now does not come after it.
func newest(ctx context.Context, log Log) (int64, error) {
	if err := log.Sync(ctx); err != nil {
		return 0, err
	}
	l, err := log.EventLog(ctx)
	return l.Newest, err
}

func text(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// head is what the typed subscriptions say of every event, before its data.
type head struct {
	Cursor      int64      `json:"cursor"`
	ExecutionID uuid.UUID  `json:"execution_id"`
	FlowID      *uuid.UUID `json:"flow_id"`
	Namespace   string     `json:"namespace"`
	At          wire.Time  `json:"at"`
}

// flat renders an event as one object: where it stands, then the members of its data.
func flat(e event.Event) ([]byte, error) {
	h := head{Cursor: e.ID, ExecutionID: e.ExecutionID, Namespace: e.Namespace, At: wire.Time(e.At)}
	if e.FlowID != uuid.Nil {
		h.FlowID = &e.FlowID
	}
	line, err := json.Marshal(h)
	data, ok := e.Data.(json.RawMessage)
	if err != nil || !ok || len(data) <= len("{}") {
		return line, err
	}
	line[len(line)-1] = ','
	return append(line, data[1:]...), nil
}
