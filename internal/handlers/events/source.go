package events

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/handlers/answer"
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

// source renders the log, or a part of it, for streams.
type source struct {
	log    Log
	filter event.Filter
	render func(e event.Event) ([]byte, error) // the data of a frame: one line of JSON, nil for an event that is left out
}

// Feed is the source of whole events.
func Feed(log Log) sse.Source {
	return &source{log: log, render: func(e event.Event) ([]byte, error) { return json.Marshal(answer.Event(&e)) }}
}

// Completions is the source of the entries into a terminal state.
func Completions(log Log) sse.Source {
	return &source{log: log, filter: event.Filter{Topics: []event.Topic{event.TopicCompletion}}, render: flat}
}

// Leases is the source of the changes of ownership.
func Leases(log Log) sse.Source {
	return &source{log: log, filter: event.Filter{Topics: []event.Topic{event.TopicLease}}, render: flat}
}

// Signals is the source of the signals that were taken.
func Signals(log Log) sse.Source {
	return &source{log: log, filter: event.Filter{Types: []event.Type{event.SignalDelivered, event.SignalBuffered}}, render: flat}
}

// Operator is the source of what operators do to executions, one by one.
func Operator(log Log) sse.Source {
	return &source{log: log, filter: event.Filter{Topics: []event.Topic{event.TopicOperator}}, render: acted}
}

// InstanceTags is the source of the values that executions get as their instance tag.
func InstanceTags(log Log) sse.Source {
	return &source{log: log, filter: event.Filter{Types: []event.Type{event.ExecutionCreated, event.ExecutionTagSet}}, render: tagged}
}

// Read implements sse.Source.
func (s *source) Read(ctx context.Context, after int64) (sse.Page, error) {
	found, err := s.log.Events(ctx, s.filter, after, pageSize)
	if err != nil {
		return sse.Page{}, err
	}
	if found.ResetTo > 0 {
		return sse.Page{ResetTo: found.ResetTo}, nil
	}
	out := sse.Page{Messages: make([]sse.Message, 0, len(found.Events)), Through: found.Through, More: found.More}
	for _, e := range found.Events {
		data, err := s.render(e)
		if err != nil {
			return sse.Page{}, fmt.Errorf("render event %d: %w", e.ID, err)
		}
		if data == nil {
			continue
		}
		out.Messages = append(out.Messages, sse.Message{ID: e.ID, Frame: sse.AppendFrame(nil, e.ID, string(e.Type), data), Fields: sse.Fields{
			Topic: string(e.Type.Topic()), Type: string(e.Type), Namespace: e.Namespace, FlowID: text(e.FlowID), RunID: text(e.RunID),
			ExecutionID: text(e.ExecutionID), InstanceTag: e.InstanceTag,
		}})
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
