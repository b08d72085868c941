package answer

import (
	"bytes"
	"context"
	"maps"
	"net/http"

	"github.com/flowapi/flowapi/internal/call"
)

// Slot holds, between the commit and the sending, the answer that was rendered inside a transaction.
type Slot struct{ recording *recording }

type slotKey struct{}

// WithSlot returns a context in which [Write] leaves what it rendered, and the slot to take it from.
func WithSlot(ctx context.Context) (context.Context, *Slot) {
	slot := &Slot{}
	return context.WithValue(ctx, slotKey{}, slot), slot
}

// slotOf returns the slot of ctx, or one that nobody looks into.
func slotOf(ctx context.Context) *Slot {
	if slot, ok := ctx.Value(slotKey{}).(*Slot); ok {
		return slot
	}
	return &Slot{}
}

// Send writes the answer in the slot to w, all its headers included, and reports whether there was one.
func (s *Slot) Send(w http.ResponseWriter) (bool, error) {
	if s.recording == nil {
		return false, nil
	}
	maps.Copy(w.Header(), s.recording.header)
	w.WriteHeader(s.recording.statusOr(http.StatusOK))
	if s.recording.body.Len() == 0 {
		return true, nil
	}
	_, err := w.Write(s.recording.body.Bytes())
	return true, err
}

// recording is a response in memory.
type recording struct {
	header http.Header
	status int
	body   bytes.Buffer
}

var _ http.ResponseWriter = (*recording)(nil)

func (r *recording) Header() http.Header { return r.header }

func (r *recording) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recording) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recording) statusOr(status int) int {
	if r.status == 0 {
		return status
	}
	return r.status
}

func (r *recording) answer() call.Answer {
	return call.Answer{
		Status:   r.statusOr(http.StatusOK),
		Location: r.header.Get("Location"),
		ETag:     r.header.Get("ETag"),
		Body:     r.body.Bytes(),
	}
}
