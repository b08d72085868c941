package streams

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
	"github.com/flowapi/flowapi/internal/sse"
)

// pageSize bounds how many frames one look renders.
const pageSize = 500

// frames is the stream of one attempt as a log.
type frames struct {
	streams Streams
	id      uuid.UUID
	attempt int
}

// frameData is what a follower is told of a frame.
type frameData struct {
	AttemptIndex int `json:"attempt_index"`
	oapi.Frame
}

// closedData is what a follower is told of the end of an attempt.
type closedData struct {
	AttemptIndex int                   `json:"attempt_index"`
	ClosedAt     wire.Time             `json:"closed_at"`
	ClosedReason execution.CloseReason `json:"closed_reason"`
}

// Read implements sse.Source.
func (s *frames) Read(ctx context.Context, after int64) (sse.Page, error) {
	found, err := s.streams.Follow(ctx, s.id, s.attempt, stream.ID(after), pageSize)
	if err != nil {
		return gone(after, err)
	}
	if stream.ID(after) < found.Trimmed {
		return sse.Page{ResetTo: int64(found.Trimmed.Next())}, nil
	}
	out := sse.Page{Messages: make([]sse.Message, len(found.Frames)), Through: int64(found.Through), More: found.More}
	for i := range found.Frames {
		f := &found.Frames[i]
		rendered, err := render(s.attempt, f.ID, "frame", frameData{s.attempt, frame(f)})
		if err != nil {
			return sse.Page{}, err
		}
		out.Messages[i] = sse.Message{ID: int64(f.ID), Frame: rendered}
	}
	if out.Final = found.Closed() && !found.More; out.Final && stream.ID(after) < found.Closing() {
		out.Through = int64(found.Closing())
		out.Farewell, err = render(s.attempt, found.Closing(), "closed", closedData{s.attempt, wire.Time(found.ClosedAt), found.ClosedReason})
	}
	return out, err
}

// Newest implements sse.Source.
func (s *frames) Newest(ctx context.Context) (int64, error) {
	head, err := s.streams.HeadOf(ctx, s.id, s.attempt)
	return onward(head.Last, err)
}

// nextAttempt is a log without events that ends when there is a further attempt, or the execution has ended.
type nextAttempt struct {
	streams Streams
	id      uuid.UUID
	attempt int
}

// endData is what a follower is told of the end of the execution.
type endData struct {
	State execution.Public `json:"public_state"`
}

// Read implements sse.Source.
func (s *nextAttempt) Read(ctx context.Context, after int64) (sse.Page, error) {
	head, err := s.streams.HeadOf(ctx, s.id, stream.Current)
	if err != nil {
		return gone(after, err)
	}
	out := sse.Page{Through: after, Final: head.Ended || head.AttemptIndex > s.attempt}
	if head.Ended && head.AttemptIndex <= s.attempt {
		out.Through = max(after, int64(head.Ending()))
		out.Farewell, err = render(s.attempt, head.Ending(), "end", endData{head.State})
	}
	return out, err
}

// Newest implements sse.Source.
func (s *nextAttempt) Newest(ctx context.Context) (int64, error) {
	if s.attempt == execution.NoAttempt {
		return 0, nil
	}
	head, err := s.streams.HeadOf(ctx, s.id, s.attempt)
	return onward(head.Closing(), err)
}

// gone ends the log of an execution that was deleted meanwhile. Another error stays one.
func gone(after int64, err error) (sse.Page, error) {
	if fault.CodeOf(err) == fault.CodeNotFound {
		return sse.Page{Through: after, Final: true}, nil
	}
	return sse.Page{}, err
}

// onward is where a log is read on. That of an execution which was deleted meanwhile is read, too, and found to have ended.
func onward(id stream.ID, err error) (int64, error) {
	if fault.CodeOf(err) == fault.CodeNotFound {
		return 0, nil
	}
	return int64(id), err
}

// render returns an event of a stream.
func render(attempt int, id stream.ID, name string, data any) ([]byte, error) {
	line, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("render %s %s: %w", name, id, err)
	}
	return sse.AppendFrameAs(nil, spell(attempt, id), name, line), nil
}
