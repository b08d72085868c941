// Package stream holds the rules of the streams of attempts: what frames are, which ids they get, how many of them are kept,
// and what their summary is. A stream belongs to one attempt at an execution, exists without being made, and closes when the
// attempt ends. reference: flows-streams-budgets.md 4.
package stream

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// MaxPayload is the most bytes that one frame may carry.
const MaxPayload = 65_536

// Kind says what a frame's payload is.
type Kind string

// The kinds.
const (
	KindStdout Kind = "stdout"
	KindStderr Kind = "stderr"
	KindEvent  Kind = "event"
	KindBlob   Kind = "blob"
)

// Mode says what becomes of a frame.
type Mode string

// The modes.
const (
	Durable    Mode = "durable"     // it is kept
	Summarised Mode = "summary"     // it is kept, and merged into the summary
	BestEffort Mode = "best_effort" // it is kept while it is young and there are not too many
)

// Encoding says how JSON shows a payload.
type Encoding string

// The encodings.
const (
	UTF8   Encoding = "utf8"
	Base64 Encoding = "base64"
)

// Frame is one piece of what an attempt puts out.
type Frame struct {
	ID            ID
	Kind          Kind
	Type          string // free; the kind's name unless something else was given
	Mode          Mode
	Encoding      Encoding
	Payload       []byte
	CorrelationID string
	Key           string // makes appending it again harmless, "" for none
	Live          Live   // of a best-effort frame
	Version       int64  // of the summary with this frame in it
}

// Decode returns the bytes of the payload that frame number i of a request carries. It returns CodePayloadTooLarge, and
// CodeValidationFailed for what is not base64.
func Decode(payload string, encoding Encoding, i int) ([]byte, error) {
	bytes := []byte(payload)
	if encoding == Base64 {
		var err error
		if bytes, err = base64.StdEncoding.Strict().DecodeString(payload); err != nil || strings.ContainsAny(payload, "\r\n") {
			return nil, fault.Invalid(fault.CodeValidationFailed, pointer(i), "The payload is not base64 (RFC 4648, section 4, with padding, without line breaks).")
		}
	}
	if len(bytes) > MaxPayload {
		return nil, fault.Invalid(fault.CodePayloadTooLarge, pointer(i), "The payload has %d bytes; a frame carries at most %d.", len(bytes), MaxPayload).
			With("limit_bytes", MaxPayload)
	}
	return bytes, nil
}

// Encode returns a payload as JSON shows it.
func (f *Frame) Encode() string {
	if f.Encoding == Base64 {
		return base64.StdEncoding.EncodeToString(f.Payload)
	}
	return string(f.Payload)
}

func pointer(i int) string { return "/frames/" + strconv.Itoa(i) + "/payload" }

// Current stands for the index of the current attempt.
const Current = execution.NoAttempt

// Range is a part of a stream: up to Limit frames from one id to another, both included.
type Range struct {
	From, To ID
	Limit    int
	Lasting  bool // without best-effort frames
}

// Page is a part of a stream, in order, and how the stream stands after it.
type Page struct {
	Head
	Frames  []Frame
	More    bool // there are further frames in the range that was asked for
	Through ID   // nothing more of the range will ever come at or before this place
}

// Head is how the stream of an attempt stands.
type Head struct {
	AttemptIndex int   // execution.NoAttempt before the first
	Count        int64 // frames that the stream has ever had
	Last         ID    // of the last frame, Start before the first
	Trimmed      ID    // the last durable frame that is not kept any more, Start before that
	ClosedAt     time.Time
	ClosedReason execution.CloseReason
	State        execution.Public // of the execution
	Ended        bool             // the execution has
}

// Closed says whether nothing will be appended any more.
func (h *Head) Closed() bool { return !h.ClosedAt.IsZero() }

// Closing returns the place at which followers are told that the stream is closed: whoever has come to it has heard of it.
func (h *Head) Closing() ID { return h.Last + 1 }

// Ending returns the place at which followers of the current attempt are told that the execution has ended.
func (h *Head) Ending() ID { return h.Last + 2 }

// Appended is one frame of an append's answer: Duplicate when its key was there already, with the id of then.
type Appended struct {
	ID        ID
	Duplicate bool
}

// Receipt is the answer to an append.
type Receipt struct {
	Frames     []Appended
	Count      int64 // frames that the stream has ever had
	Version    int64 // of the summary, 0 when the request had no part of it
	Directives []execution.Directive
}
