package stream

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/merge"
)

// Limits of a summary.
const (
	MaxSummary      = 256 << 10 // bytes of the document
	MaxSummaryDepth = 16
)

// PatchKind is how patches change a summary.
const PatchKind = "json-merge-patch"

// null is the text that a patch writes where it means a null that is kept: null itself removes.
const null = `"__ff_null__"`

// Summary is the document that the summary frames of a stream add up to: each is a patch of it by RFC 7396.
type Summary struct {
	Document       json.RawMessage
	Version        int64 // how many patches it took
	FirstAppliedAt time.Time
	LastUpdatedAt  time.Time
}

// CheckPatch refuses, with CodeValidationFailed, the payload of frame number i of a request unless it can patch a summary.
func CheckPatch(payload []byte, i int) error {
	switch {
	case !utf8.Valid(payload) || !json.Valid(payload):
		return fault.Invalid(fault.CodeValidationFailed, pointer(i), "The payload of a summary frame must be JSON.")
	case !bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")):
		return fault.Invalid(fault.CodeValidationFailed, pointer(i), "The payload of a summary frame must be a JSON object: a merge patch (RFC 7396).")
	case depth(payload) > MaxSummaryDepth:
		return fault.Invalid(fault.CodeValidationFailed, pointer(i), "The payload of a summary frame may be %d levels deep.", MaxSummaryDepth)
	}
	return nil
}

// depth returns how deep a valid document nests.
func depth(doc []byte) int {
	deepest, at, quoted := 0, 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			at++
			deepest = max(deepest, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return deepest
}

// Apply merges the summary frames among frames into s, and tells each its version. It returns CodePayloadTooLarge when the
// document becomes too large; place is which frame of the request one of these is.
func (s *Summary) Apply(frames []Frame, now time.Time, place func(i int) int) error {
	doc, last := merge.Open(s.Document), -1
	for i := range frames {
		if frames[i].Mode != Summarised {
			continue
		}
		doc.Patch(frames[i].Payload, stored)
		s.Version++
		frames[i].Version, last = s.Version, i
	}
	if last < 0 {
		return nil
	}
	if s.Document = doc.Text(); len(s.Document) > MaxSummary {
		return fault.Invalid(fault.CodePayloadTooLarge, pointer(place(last)), "The summary becomes %d bytes long; it may have %d.", len(s.Document), MaxSummary).
			With("limit_bytes", MaxSummary)
	}
	if s.FirstAppliedAt.IsZero() {
		s.FirstAppliedAt = now
	}
	s.LastUpdatedAt = now
	return nil
}

// stored returns a value of a patch as it is kept: nulls stand where their sentinels stood.
func stored(value json.RawMessage) json.RawMessage {
	if !bytes.Contains(value, []byte(null)) && bytes.IndexByte(value, '\\') < 0 {
		return value
	}
	out := make(json.RawMessage, 0, len(value))
	for len(value) > 0 {
		if value[0] != '"' {
			out, value = append(out, value[0]), value[1:]
			continue
		}
		end := 1 + quote(value[1:])
		text := value[:end]
		value = value[end:]
		if isNull(text) && (len(value) == 0 || value[0] != ':') { // a colon follows the name of a member
			text = []byte("null")
		}
		out = append(out, text...)
	}
	return out
}

// isNull says whether a string is the sentinel, however it is written.
func isNull(text []byte) bool {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text) == null
	}
	plain, err := jsontext.AppendUnquote(nil, text)
	return err == nil && string(plain) == null[1:len(null)-1]
}

// quote returns how long the rest of a string is, its closing quote included.
func quote(rest []byte) int {
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(rest)
}
