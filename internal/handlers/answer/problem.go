package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Problem is a problem document (RFC 9457) as every refusal is answered, alone or as one item of a batch.
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Instance  string         `json:"instance"`
	RequestID string         `json:"request_id"`
	Code      fault.Code     `json:"code"`
	Retryable bool           `json:"retryable"`
	Errors    []fault.Field  `json:"errors,omitempty"`
	Facts     map[string]any `json:"-"` // further members; a standard member wins over a fact of its name
}

// internalDetail is what a client reads about an error that is ours. The error's own text is for the log.
const internalDetail = "The server failed to answer. Nothing is known to be wrong with the request; report it with the request_id."

// busyDetail is what a client reads when its request ran out of time before anything was changed.
const busyDetail = "The server did not get to this request in time. Repeat it after Retry-After."

// ProblemOf describes err: a [fault.Error] with its code, message, fields and facts, an expired deadline as busy, and
// any other error as internal with a fixed text. Instance and RequestID are left to the caller.
func ProblemOf(err error) Problem {
	code, detail := fault.CodeInternal, internalDetail
	refusal, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok && fault.Lookup(refusal.Code).Code == refusal.Code:
		code, detail = refusal.Code, refusal.Message
	case !ok && errors.Is(err, context.DeadlineExceeded):
		code, detail = fault.CodeBusy, busyDetail
	}
	entry := fault.Lookup(code)
	p := Problem{
		Type: code.Page(), Title: entry.Title, Status: entry.Status, Detail: detail, Code: code, Retryable: entry.Retryable,
	}
	if ok && code == refusal.Code {
		p.Errors, p.Facts = refusal.Fields, refusal.Facts
	}
	return p
}

// Item describes err as one item of a batch that was posted to instance, the request's path. An error of ours among items is
// not logged by anybody else than the caller.
func Item(ctx context.Context, instance string, err error) oapi.ProblemDetails {
	p := ProblemOf(err)
	item := oapi.ProblemDetails{
		Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Instance: instance,
		RequestID: call.From(ctx).RequestID, Code: string(p.Code), Retryable: p.Retryable, AdditionalProperties: p.Facts,
	}
	for _, f := range p.Errors {
		field := oapi.ProblemError{In: oapi.ProblemErrorIn(f.In), Pointer: f.Pointer, Detail: f.Detail}
		if f.Code != "" {
			field.Code = new(string(f.Code))
		}
		item.Errors = append(item.Errors, field)
	}
	return item
}

// MarshalJSON renders the standard members, and after them the facts by name. A fact that cannot be rendered is left out.
func (p Problem) MarshalJSON() ([]byte, error) {
	type members Problem
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members(p)); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	for _, name := range slices.Sorted(maps.Keys(p.Facts)) {
		if standard(name) {
			continue
		}
		value, err := json.Marshal(p.Facts[name])
		if err != nil {
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			continue
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func standard(name string) bool {
	switch name {
	case "type", "title", "status", "detail", "instance", "request_id", "code", "retryable", "errors":
		return true
	}
	return false
}
