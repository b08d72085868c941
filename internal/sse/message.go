package sse

import (
	"context"
	"fmt"
	"strconv"
)

// Message is one event of a log, rendered.
type Message struct {
	ID int64
	Fields
	Frame []byte // as AppendFrame makes it
}

// Fields are what a [Filter] can see of a message. What does not apply is "".
type Fields struct {
	Topic, Type, Namespace                  string
	FlowID, RunID, ExecutionID, InstanceTag string
}

// Filter tells whether a subscriber sees a message; nil lets all pass. It is called by the subscriber's own goroutine, for
// every message, and must not keep or change the fields.
type Filter func(*Fields) bool

// AppendFrame appends the frame of one event to dst and returns it. A frame has one line of data: line breaks in data become
// spaces, which changes nothing in a JSON document. The name of the event is one line without a break.
func AppendFrame(dst []byte, id int64, event string, data []byte) []byte {
	return AppendFrameAs(dst, strconv.FormatInt(id, 10), event, data)
}

// AppendFrameAs is [AppendFrame] for an id that is written in another way; see Options.Spell.
func AppendFrameAs(dst []byte, id, event string, data []byte) []byte {
	dst = append(dst, "id: "...)
	dst = append(dst, id...)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, event...)
	dst = append(dst, "\ndata: "...)
	start := len(dst)
	dst = append(dst, data...)
	for i, b := range dst[start:] {
		if b == '\n' || b == '\r' {
			dst[start+i] = ' '
		}
	}
	return append(dst, "\n\n"...)
}

// Source is a log of events whose ids grow and which is read by id. Its events never change, and nothing appears at or
// before an id that was once the newest. It is used by many goroutines at once.
type Source interface {
	// Read returns what comes after an id. It examines a bounded number of events, so that it is quick, and never blocks to
	// wait for more.
	Read(ctx context.Context, after int64) (Page, error)
	// Newest returns the id of the last event of the log, or the id after which the first one will come.
	Newest(ctx context.Context) (int64, error)
}

// Page is a piece of a log.
type Page struct {
	// Messages are the events of this piece that the source shows, the oldest first. The source may leave events out, as
	// long as it always leaves out the same.
	Messages []Message
	// Through is the id of the last event that was examined, shown or not; the next page comes after it. When nothing was
	// examined it is the id that the reader asked for.
	Through int64
	// More tells that the log goes on after Through.
	More bool
	// ResetTo is set, and nothing else is, when the log cannot be read after the id that was asked for, because retention
	// has trimmed it or because the log never reached it. It is the oldest id that can be read, or will be.
	ResetTo int64
	// Final tells that nothing will come after Through: the stream ends there. It is never set together with More.
	Final bool
	// Farewell is the frame that a stream ends with when Final is set; nil for none.
	Farewell []byte
}

// read reads a page and refuses one that would make its reader run in circles.
func read(ctx context.Context, source Source, after int64) (Page, error) {
	page, err := source.Read(ctx, after)
	switch {
	case err != nil:
		return Page{}, fmt.Errorf("read the log after %d: %w", after, err)
	case page.ResetTo > 0 && page.ResetTo != after+1:
		return page, nil
	case page.ResetTo > 0, page.Through < after, page.More && (page.Through == after || page.Final):
		return Page{}, fmt.Errorf("read the log after %d: the source does not advance", after)
	}
	return page, nil
}
