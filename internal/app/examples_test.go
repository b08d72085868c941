package app_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExamples sends each example of the contract to a server that has something of everything: it is done, or refused for how
// things stand there, but never for its form.
func TestExamples(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		w := newBadWorld(t, s)
		there := maps.Clone(w.params)
		there["handle"] = w.mine.Handle
		operations := w.operations()
		order := []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete}
		slices.SortStableFunc(operations, func(a, b *badOperation) int { return slices.Index(order, a.method) - slices.Index(order, b.method) })
		sent, done := 0, 0
		for _, op := range operations {
			for _, request := range examplesOf(op, there) {
				sent++
				if w.takes(t, op, request) {
					done++
				}
			}
		}
		if sent < len(operations) || done < sent*3/5 {
			t.Errorf("of %d examples %d were done", sent, done)
		}
	})
}

// exampleRequest is the body of a request, and the headers that it needs.
type exampleRequest struct {
	body    any
	headers []string
}

// examplesOf returns every example of a request of op, one without a body for an operation that takes none. Where an example names
// something that there is, by a member of that name, it names what there really is.
func examplesOf(op *badOperation, there map[string]string) []exampleRequest {
	if op.declared.RequestBody == nil {
		return []exampleRequest{{headers: op.headers}}
	}
	var all []exampleRequest
	content := op.declared.RequestBody.Value.Content
	for _, kind := range slices.Sorted(maps.Keys(content)) {
		headers := append(slices.Clone(op.headers), "Content-Type: "+kind)
		for _, value := range valuesOf(content[kind]) {
			body := value // bytes are as they are
			if strings.HasSuffix(kind, "json") {
				body = withNames(value, there)
			} else if op.parameters.GetByInAndName(openapi3.ParameterInHeader, "Flowapi-Handle") != nil {
				headers = append(headers, "Flowapi-Handle: "+there["handle"])
			}
			all = append(all, exampleRequest{body, headers})
		}
	}
	return all
}

func valuesOf(media *openapi3.MediaType) []any {
	if media.Example != nil {
		return []any{media.Example}
	}
	var all []any
	for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
		all = append(all, media.Examples[name].Value.Value)
	}
	return all
}

func withNames(value any, there map[string]string) any {
	switch value := value.(type) {
	case map[string]any:
		named := make(map[string]any, len(value))
		for name, member := range value {
			_, text := member.(string)
			switch id, known := there[name]; {
			case known && text && name != "run_id" && name != "key" && name != "id": // what these name depends on where they stand
				named[name] = id
			case name == "quota_policy_ids":
				named[name] = []any{there["quota_id"]}
			default:
				named[name] = withNames(member, there)
			}
		}
		return named
	case []any:
		named := make([]any, len(value))
		for i, item := range value {
			named[i] = withNames(item, there)
		}
		return named
	}
	return value
}

// takes sends an example and says whether it was done. A refusal must be one of those that the operation lists as its own.
func (w *badWorld) takes(t *testing.T, op *badOperation, request exampleRequest) bool {
	t.Helper()
	if ok := op.declared.Responses.Value("200"); ok != nil && ok.Value.Content["text/event-stream"] != nil && len(ok.Value.Content) == 1 {
		w.For(t).Stream(op.target()).Close()
		return true
	}
	answer := w.For(t).Do(op.method, op.target(), request.body, request.headers...)
	if answer.Status < http.StatusBadRequest {
		return true
	}
	var refusal struct {
		Code fault.Code `json:"code"`
	}
	answer.Into(&refusal)
	if own := oapi.Codes(&openapi3.T{}, op.declared); !slices.Contains(own, refusal.Code) {
		t.Errorf("the example of %s is answered with %s, and its own codes are %v", op.id, answer.Body, own)
	}
	return false
}
