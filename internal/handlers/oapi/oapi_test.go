package oapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestSpec_Validates shows that the contract is valid OpenAPI, that every example in it fits its schema, and that what is
// embedded is what was written.
func TestSpec_Validates(t *testing.T) {
	t.Parallel()
	spec := mustSpec(t)
	if err := spec.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	if spec.OpenAPI != "3.0.3" {
		t.Errorf("openapi = %q, want 3.0.3: later versions are validated in another way", spec.OpenAPI)
	}

	file, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	written, err := openapi3.NewLoader().LoadFromData(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mustJSON(t, spec), mustJSON(t, written); !bytes.Equal(got, want) {
		t.Error("the embedded contract differs from api/openapi.yaml; run go generate")
	}
}

// TestSpec_Operations holds every operation to the rules of the house.
func TestSpec_Operations(t *testing.T) {
	t.Parallel()
	spec := mustSpec(t)
	problem := spec.Components.Responses["Problem"].Value
	roles := spec.Components.Schemas["Role"].Value.Enum
	ids := map[string]bool{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s: operationId %q is empty or taken", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			t.Run(method+" "+path, func(t *testing.T) {
				t.Parallel()
				if op.Summary == "" || op.Description == "" {
					t.Error("summary or description is missing")
				}
				if len(op.Tags) != 1 || spec.Tags.Get(op.Tags[0]) == nil {
					t.Errorf("tags = %v, want one that is declared", op.Tags)
				}

				granted, ok := op.Extensions["x-roles"].([]any)
				if !ok || len(granted) == 0 {
					t.Errorf("x-roles = %v, want a list", op.Extensions["x-roles"])
				}
				for _, role := range granted {
					if !slices.Contains(roles, role) {
						t.Errorf("x-roles has %v, which is no role", role)
					}
				}

				if d := op.Responses.Default(); d == nil || d.Value != problem {
					t.Error("the default response is not Problem")
				}
				checkResponses(t, op)
				checkParameters(t, method, item, op)
				checkBody(t, method, op)
			})
		}
	}
}

func checkResponses(t *testing.T, op *openapi3.Operation) {
	t.Helper()
	for status, response := range op.Responses.Map() {
		if status == "default" {
			continue
		}
		for name, media := range response.Value.Content {
			if media.Example == nil && len(media.Examples) == 0 {
				t.Errorf("%s %s has no example", status, name)
			}
			for _, example := range examples(media) {
				checkMembers(t, status+" "+name, media.Schema.Value, example)
			}
		}
	}
}

func checkParameters(t *testing.T, method string, item *openapi3.PathItem, op *openapi3.Operation) {
	t.Helper()
	declared := map[string]bool{}
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		declared[p.Value.In+" "+p.Value.Name] = true
		s := p.Value.Schema.Value
		if s.Type.Is("array") {
			s = s.Items.Value
		}
		if s.Type.Is("string") && s.MaxLength == nil && s.Format != "uuid" && len(s.Enum) == 0 {
			t.Errorf("parameter %s has no maxLength", p.Value.Name)
		}
		if p.Value.In == "header" && p.Value.Required {
			t.Errorf("header %s is required: its absence would be answered before the case is looked at", p.Value.Name)
		}
	}
	want := []string{"query namespace", "header Flowapi-Namespace"}
	if method == "POST" {
		want = append(want, "header Idempotency-Key")
	}
	if declared["header If-Match"] {
		want = append(want, "query revision")
	}
	for _, name := range want {
		if !declared[name] {
			t.Errorf("parameter %s is not declared", name)
		}
	}
}

func checkBody(t *testing.T, method string, op *openapi3.Operation) {
	t.Helper()
	limit, limited := op.Extensions["x-body-limit"].(float64)
	if op.RequestBody == nil {
		if limited {
			t.Error("x-body-limit without a body")
		}
		if method == "POST" {
			t.Error("a POST without a body: it could not be sent {}")
		}
		return
	}
	if !limited || !slices.Contains([]float64{65536, 262144, 1048576, 16777216}, limit) {
		t.Errorf("x-body-limit = %v, want one of the four", op.Extensions["x-body-limit"])
	}
	for name, media := range op.RequestBody.Value.Content {
		if media.Example == nil && len(media.Examples) == 0 {
			t.Errorf("body %s has no example", name)
		}
		if !strings.HasSuffix(name, "json") {
			continue
		}
		closed := media.Schema.Value.AdditionalProperties.Has
		if closed == nil || *closed {
			t.Errorf("body %s does not refuse unknown members", name)
		}
		if op.RequestBody.Value.Required == (len(media.Schema.Value.Required) == 0) && method == "POST" &&
			media.Schema.Value.Properties["handle"] == nil {
			t.Errorf("body %s: required is %v with required members %v", name, op.RequestBody.Value.Required, media.Schema.Value.Required)
		}
		checkBounds(t, "body", media.Schema.Value)
		for _, example := range examples(media) {
			checkMembers(t, name, media.Schema.Value, example)
		}
	}
}

// checkBounds fails for every string, number and list in a request that has no bounds, and every object that is open.
func checkBounds(t *testing.T, at string, s *openapi3.Schema) {
	t.Helper()
	switch {
	case s.Type == nil: // any JSON value
	case s.Type.Is("string"):
		if s.MaxLength == nil && s.Format != "uuid" && s.Format != "date-time" && len(s.Enum) == 0 {
			t.Errorf("%s has no maxLength", at)
		}
	case s.Type.Is("integer"), s.Type.Is("number"):
		if (s.Min == nil || s.Max == nil) && !strings.HasSuffix(at, "/priority") && !strings.Contains(at, "/fence/") {
			t.Errorf("%s has no minimum or no maximum", at)
		}
	case s.Type.Is("array"):
		if s.MaxItems == nil {
			t.Errorf("%s has no maxItems", at)
		}
		checkBounds(t, at+"/0", s.Items.Value)
	case s.Type.Is("object"):
		if s.AdditionalProperties.Schema != nil {
			if s.MaxProps == nil {
				t.Errorf("%s has no maxProperties", at)
			}
			checkBounds(t, at+"/*", s.AdditionalProperties.Schema.Value)
		} else if closed := s.AdditionalProperties.Has; closed == nil || *closed {
			t.Errorf("%s does not refuse unknown members", at)
		}
		for name, p := range s.Properties {
			checkBounds(t, at+"/"+name, p.Value)
		}
	}
}

// checkMembers fails for every member of an example that its schema does not name. Answers may grow, so their schemas are
// open, and a misspelt member would not be noticed otherwise.
func checkMembers(t *testing.T, at string, s *openapi3.Schema, value any) {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		if s.Type == nil || s.AdditionalProperties.Schema != nil {
			return
		}
		for name, member := range value {
			p, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s: the example has %q, which the schema does not name", at, name)
				continue
			}
			checkMembers(t, at+"/"+name, p.Value, member)
		}
	case []any:
		if s.Items == nil {
			return
		}
		for i, item := range value {
			checkMembers(t, fmt.Sprintf("%s/%d", at, i), s.Items.Value, item)
		}
	}
}

func examples(media *openapi3.MediaType) []any {
	var all []any
	if media.Example != nil {
		all = append(all, media.Example)
	}
	for _, e := range media.Examples {
		all = append(all, e.Value.Value)
	}
	return all
}

// TestDocument shows that a document keeps its bytes, and that null is not the same as nothing.
func TestDocument(t *testing.T) {
	t.Parallel()
	const big = `{"z":12345678901234567890,"a":1.0}`
	for _, tt := range []struct{ name, body, state string }{
		{"absent", `{}`, ""},
		{"null", `{"state":null}`, "null"},
		{"object", `{"state":` + big + `}`, big},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var patch oapi.PatchFlow
			if err := json.Unmarshal([]byte(tt.body), &patch); err != nil {
				t.Fatal(err)
			}
			if got := string(patch.State); got != tt.state || (patch.State == nil) != (tt.state == "") {
				t.Errorf("state = %q, want %q", got, tt.state)
			}
			if got := string(mustJSON(t, patch)); got != tt.body {
				t.Errorf("written again it is %s, want %s", got, tt.body)
			}
		})
	}
}

func mustSpec(tb testing.TB) *openapi3.T {
	tb.Helper()
	spec, err := oapi.GetSpec()
	if err != nil {
		tb.Fatal(err)
	}
	return spec
}

func mustJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
