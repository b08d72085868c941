// Package fault is the one error type of flowapi and the catalogue of its codes.
//
// An [Error] has two audiences: its Code is what a client switches on, its Message is what a person reads and says what
// to do next. Any other error is internal: it is answered with a fixed text, and its own text goes to the log only.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is a refusal that a client may see.
type Error struct {
	Code    Code
	Message string         // one or two sentences for a person: what happened, with the ids, and what to do next
	Facts   map[string]any // members of the problem document beside the standard ones: expected, actual, from, to, …
	Fields  []Field        // what is wrong with the request, part by part
	Err     error          // the cause, for the log; never shown
}

// Field names one wrong part of a request.
type Field struct {
	In      In     `json:"in"`
	Pointer string `json:"pointer"` // RFC 6901 into the body, else the parameter's name
	Detail  string `json:"detail"`
	Code    Code   `json:"code,omitempty"`
}

// In says which part of a request a Field points into.
type In string

// The parts of a request.
const (
	InBody   In = "body"
	InPath   In = "path"
	InQuery  In = "query"
	InHeader In = "header"
)

// New returns a refusal with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns a refusal that points at one part of the request body.
func Invalid(code Code, pointer, format string, args ...any) *Error {
	detail := fmt.Sprintf(format, args...)
	return &Error{Code: code, Message: detail, Fields: []Field{{In: InBody, Pointer: pointer, Detail: detail, Code: code}}}
}

// Part returns the name of a member as a part of a JSON pointer (RFC 6901), cut to a readable length.
func Part(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(Readable(name))
}

// Readable cuts a text of the client's to a length that can be repeated to it.
func Readable(text string) string {
	const longest = 64
	if utf8.RuneCountInString(text) > longest {
		return string([]rune(text)[:longest]) + "…"
	}
	return text
}

// NotFound returns the refusal for a resource that does not exist for this caller.
func NotFound(resource string, id any) *Error {
	return New(CodeNotFound, "There is no %s %v in this namespace. Check the id, and in which namespace you ask.", resource, id).With("resource", resource)
}

// Stale returns the refusal for whoever has read another revision of what than the present one.
func Stale(what string, expected, actual int64) *Error {
	return New(CodeRevisionMismatch, "%s has revision %d and not %d. Read it again, and repeat with its ETag.", what, actual, expected).
		With("expected", expected).With("actual", actual)
}

// Expect refuses, with CodeRevisionMismatch, whoever has read another revision of what than the present one. nil expects none.
func Expect(what string, revision *int64, present int64) error {
	if revision == nil || *revision == present {
		return nil
	}
	return Stale(what, *revision, present)
}

// MovedTo makes a refusal point at another part of the request. With a pointer it points there, else where it pointed before.
func MovedTo(err error, in In, pointer string) error {
	if f, ok := errors.AsType[*Error](err); ok {
		for i := range f.Fields {
			f.Fields[i].In = in
			if pointer != "" {
				f.Fields[i].Pointer = pointer
			}
		}
	}
	return err
}

// Under makes the refusal of a part of the body point into the whole: below the part's pointer, or at the part. What is no fault of the
// caller's points nowhere.
func Under(err error, pointer string) error {
	f, ok := errors.AsType[*Error](err)
	if !ok || Lookup(f.Code).Status >= 500 {
		return err
	}
	whole := *f
	if whole.Fields = slices.Clone(f.Fields); len(whole.Fields) == 0 {
		whole.Fields = []Field{{In: InBody, Pointer: pointer, Detail: f.Message, Code: f.Code}}
		return &whole
	}
	for i := range whole.Fields {
		if whole.Fields[i].In == InBody {
			whole.Fields[i].Pointer = pointer + whole.Fields[i].Pointer
		}
	}
	return &whole
}

// With adds a fact to the problem document and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Facts == nil {
		e.Facts = map[string]any{}
	}
	e.Facts[name] = value
	return e
}

// Because records the cause for the log and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

func (e *Error) Error() string {
	if e.Err != nil {
		return string(e.Code) + ": " + e.Message + ": " + e.Err.Error()
	}
	return string(e.Code) + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first [Error] in err's chain: "" for nil, [CodeInternal] for any other error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
