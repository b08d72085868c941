package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// contract is a transport that fails the test on every answer that the contract does not have.
type contract struct {
	tb     testing.TB
	spec   *openapi3.T
	router *chi.Mux
	next   http.RoundTripper
}

func newContract(spec *openapi3.T, next http.RoundTripper) *contract {
	router := chi.NewRouter()
	for path, item := range spec.Paths.Map() {
		for method := range item.Operations() {
			router.Method(method, path, http.NotFoundHandler())
		}
	}
	return &contract{spec: spec, router: router, next: next}
}

func (c *contract) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := c.check(request, answer); err != nil {
		c.tb.Errorf("%s %s: %d breaks the contract: %v", request.Method, request.URL.Path, answer.StatusCode, err)
	}
	return answer, nil
}

// check holds an answer to the contract. It reads its body unless that is a stream, and puts it back.
func (c *contract) check(request *http.Request, answer *http.Response) error {
	if request.Method == http.MethodHead {
		return nil
	}
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil && answer.Header.Get("Content-Type") != "" {
		return err
	}
	var body []byte
	stream := kind == "text/event-stream"
	if !stream {
		if body, err = io.ReadAll(answer.Body); err != nil {
			return err
		}
		answer.Body.Close()
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	route := c.route(request)
	if answer.StatusCode >= 400 {
		if err := c.checkProblem(route, answer, kind, body); err != nil {
			return fmt.Errorf("%w\n%s", err, body)
		}
	}
	if route == nil {
		return nil // a page beside the API, or a path that nobody has
	}
	if answer.StatusCode < 300 {
		all.success(route.Operation.OperationID)
	}
	if stream && route.Operation.Responses.Status(answer.StatusCode).Value.Content.Get(kind) == nil {
		return fmt.Errorf("%s is not declared", kind)
	}
	if err := c.checkAnswer(request, route, answer, body, stream); err != nil {
		return fmt.Errorf("%w\n%s", err, body)
	}
	return c.checkItems(route, body)
}

// checkItems holds the refused items of a batch to the codes that route lists.
func (c *contract) checkItems(route *routers.Route, body []byte) error {
	if !bytes.Contains(body, []byte(`"problem":{`)) {
		return nil
	}
	var batch struct {
		Items []struct {
			Problem *struct {
				Code fault.Code `json:"code"`
			} `json:"problem"`
		} `json:"items"`
	}
	_ = json.Unmarshal(body, &batch) // somebody's own bytes are no batch
	for i, item := range batch.Items {
		if item.Problem != nil && !slices.Contains(oapi.Codes(c.spec, route.Operation), item.Problem.Code) {
			return fmt.Errorf("item %d: %s is not among the x-codes of %s", i, item.Problem.Code, route.Operation.OperationID)
		}
	}
	return nil
}

func (c *contract) route(request *http.Request) *routers.Route {
	pattern := c.router.Find(chi.NewRouteContext(), request.Method, request.URL.EscapedPath())
	if pattern == "" {
		return nil
	}
	item := c.spec.Paths.Value(pattern)
	return &routers.Route{
		Spec: c.spec, Path: pattern, PathItem: item, Method: request.Method, Operation: item.GetOperation(request.Method),
	}
}

func (c *contract) checkAnswer(request *http.Request, route *routers.Route, answer *http.Response, body []byte, stream bool) error {
	declared := route.Operation.Responses.Status(answer.StatusCode)
	if declared == nil && answer.StatusCode < 400 {
		return fmt.Errorf("status %d is not declared", answer.StatusCode)
	}
	if declared != nil && len(declared.Value.Content) == 0 && len(body) > 0 {
		return fmt.Errorf("a body is not declared")
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route},
		Status:                 answer.StatusCode,
		Header:                 answer.Header,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, MultiError: true, ExcludeResponseBody: stream,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.DisableSchemaErrorDetails()},
		},
	}
	input.SetBodyBytes(body)
	return openapi3filter.ValidateResponse(request.Context(), input)
}

// checkProblem holds a refusal to what the contract says about all of them, and its code to those that route lists.
func (c *contract) checkProblem(route *routers.Route, answer *http.Response, kind string, body []byte) error {
	if kind != "application/problem+json" {
		return fmt.Errorf("a refusal of type %q", kind)
	}
	if answer.Header.Get("Cache-Control") != "no-store" {
		return fmt.Errorf("a refusal with Cache-Control %q", answer.Header.Get("Cache-Control"))
	}
	var p struct {
		Type      string     `json:"type"`
		Status    int        `json:"status"`
		RequestID string     `json:"request_id"`
		Code      fault.Code `json:"code"`
		Retryable bool       `json:"retryable"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	entry := fault.Lookup(p.Code)
	all.refusal(p.Code)
	switch {
	case entry.Code != p.Code:
		return fmt.Errorf("the code %q is not in the catalogue", p.Code)
	case route != nil && !slices.Contains(oapi.Codes(c.spec, route.Operation), p.Code):
		return fmt.Errorf("%s is not among the x-codes of %s", p.Code, route.Operation.OperationID)
	case p.Status != answer.StatusCode || p.Status != entry.Status:
		return fmt.Errorf("%s has the status %d in the document and %d in the catalogue", p.Code, p.Status, entry.Status)
	case p.Retryable != entry.Retryable:
		return fmt.Errorf("%s is retryable %t, and %t in the catalogue", p.Code, p.Retryable, entry.Retryable)
	case p.Type != p.Code.Page():
		return fmt.Errorf("%s has the type %q", p.Code, p.Type)
	case p.RequestID == "" || p.RequestID != answer.Header.Get("X-Request-Id"):
		return fmt.Errorf("the request_id %q is not that of the header, %q", p.RequestID, answer.Header.Get("X-Request-Id"))
	}
	return nil
}
