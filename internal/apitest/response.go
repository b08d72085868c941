package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Response is an answer that was read to its end. Its accessors end the test when the answer does not have what they are
// asked for.
type Response struct {
	Status int
	Header http.Header
	Body   []byte

	tb    testing.TB
	asked string
}

// Want ends the test unless the status is the wanted one.
func (r *Response) Want(status int) *Response {
	r.tb.Helper()
	if r.Status != status {
		r.tb.Fatalf("%s = %d, want %d\n%s", r.asked, r.Status, status, r.Body)
	}
	return r
}

// Problem ends the test unless the answer is a refusal with this code and its status.
func (r *Response) Problem(code fault.Code) *Response {
	r.tb.Helper()
	var p struct {
		Code fault.Code `json:"code"`
	}
	if err := json.Unmarshal(r.Body, &p); err != nil || p.Code != code || r.Status != fault.Lookup(code).Status {
		r.tb.Fatalf("%s = %d %s, want %d %s\n%s", r.asked, r.Status, p.Code, fault.Lookup(code).Status, code, r.Body)
	}
	return r
}

// Fields returns what a refusal says is wrong with the request, part by part.
func (r *Response) Fields() []fault.Field {
	r.tb.Helper()
	var p struct {
		Errors []fault.Field `json:"errors"`
	}
	r.Into(&p)
	return p.Errors
}

// JSON returns the body, a JSON object.
func (r *Response) JSON() map[string]any {
	r.tb.Helper()
	var object map[string]any
	r.Into(&object)
	return object
}

// Into decodes the body.
func (r *Response) Into(v any) {
	r.tb.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.tb.Fatalf("%s = %d: %v\n%s", r.asked, r.Status, err, r.Body)
	}
}

// Get returns the value at a path of names and indices, such as items.0.id; nil for null.
func (r *Response) Get(path string) any {
	r.tb.Helper()
	var value any
	r.Into(&value)
	for name := range strings.SplitSeq(path, ".") {
		inner, err := step(value, name)
		if err != nil {
			r.tb.Fatalf("%s = %d: %s: %v\n%s", r.asked, r.Status, path, err, r.Body)
		}
		value = inner
	}
	return value
}

func step(value any, name string) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		if inner, ok := value[name]; ok {
			return inner, nil
		}
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(value) {
			return value[i], nil
		}
	}
	return nil, fmt.Errorf("there is no %s", name)
}

// Str returns the string at a path.
func (r *Response) Str(path string) string {
	r.tb.Helper()
	s, ok := r.Get(path).(string)
	if !ok {
		r.tb.Fatalf("%s = %d: %s is not a string\n%s", r.asked, r.Status, path, r.Body)
	}
	return s
}

// Int returns the number at a path, which must be whole.
func (r *Response) Int(path string) int64 {
	r.tb.Helper()
	f, ok := r.Get(path).(float64)
	if !ok || f != float64(int64(f)) {
		r.tb.Fatalf("%s = %d: %s is not a whole number\n%s", r.asked, r.Status, path, r.Body)
	}
	return int64(f)
}

// Len returns the number of items of the array at a path.
func (r *Response) Len(path string) int {
	r.tb.Helper()
	items, ok := r.Get(path).([]any)
	if !ok {
		r.tb.Fatalf("%s = %d: %s is not an array\n%s", r.asked, r.Status, path, r.Body)
	}
	return len(items)
}

// ETag returns the header of that name, which must be there.
func (r *Response) ETag() string {
	r.tb.Helper()
	etag := r.Header.Get("ETag")
	if etag == "" {
		r.tb.Fatalf("%s = %d without an ETag", r.asked, r.Status)
	}
	return etag
}
