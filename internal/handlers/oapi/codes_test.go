package oapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestSpec_Codes holds the codes that operations list to the catalogue, and to what the operations take.
func TestSpec_Codes(t *testing.T) {
	t.Parallel()
	spec := mustSpec(t)
	common := mustCodes(t, "the document", spec.Extensions)
	answered := map[fault.Code]bool{fault.CodeMethodNotAllowed: true} // by the router, before there is an operation
	for _, code := range common {
		answered[code] = true
	}
	for _, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			own := mustCodes(t, op.OperationID, op.Extensions)
			for _, code := range own {
				answered[code] = true
				if slices.Contains(common, code) {
					t.Errorf("%s lists %s, which any operation may answer", op.OperationID, code)
				}
			}
			if got := oapi.Codes(spec, op); !slices.Equal(got, slices.Concat(own, common)) {
				t.Errorf("%s may answer %v", op.OperationID, got)
			}
			for _, code := range implied(method, item, op) {
				if !slices.Contains(own, code) {
					t.Errorf("%s does not list %s", op.OperationID, code)
				}
			}
		}
	}
	for _, e := range fault.Catalogue() {
		if !answered[e.Code] {
			t.Errorf("no operation lists %s", e.Code)
		}
	}
}

// mustCodes returns the codes of an x-codes, which are in the catalogue and in its order, each once.
func mustCodes(t *testing.T, where string, extensions map[string]any) []fault.Code {
	t.Helper()
	list, ok := extensions["x-codes"].([]any)
	if !ok {
		t.Errorf("%s has no list of x-codes", where)
	}
	codes := make([]fault.Code, len(list))
	for i, name := range list {
		codes[i] = fault.Code(fmt.Sprint(name))
	}
	var sorted []fault.Code
	for _, e := range fault.Catalogue() {
		if slices.Contains(codes, e.Code) {
			sorted = append(sorted, e.Code)
		}
	}
	if diff := cmp.Diff(sorted, codes); len(codes) > 0 && diff != "" {
		t.Errorf("the x-codes of %s are not codes in the order of the catalogue (-want +got):\n%s", where, diff)
	}
	return codes
}

// implied returns the codes that follow from what an operation takes and answers.
func implied(method string, item *openapi3.PathItem, op *openapi3.Operation) []fault.Code {
	var codes []fault.Code
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		switch {
		case p.Value.Name == "cursor":
			codes = append(codes, fault.CodeInvalidCursor)
		case p.Value.Name == "If-Match":
			codes = append(codes, fault.CodeRevisionMismatch)
		case p.Value.In == "path" && method == "GET" && p.Value.Name != "lane":
			codes = append(codes, fault.CodeNotFound)
		}
	}
	if op.Extensions["x-if-match"] == "required" {
		codes = append(codes, fault.CodePreconditionRequired)
	}
	if ok := op.Responses.Value("200"); ok != nil && ok.Value.Content["text/event-stream"] != nil {
		codes = append(codes, fault.CodeTooManyStreams)
	}
	if op.RequestBody != nil {
		if media := op.RequestBody.Value.Content["application/json"]; media != nil && media.Schema.Value.Properties["handle"] != nil {
			codes = append(codes, fault.CodeInvalidHandle, fault.CodeStaleLease, fault.CodeLeaseExpired, fault.CodeLeaseRevoked)
		}
	}
	return codes
}

// TestSpec_DescribesCodes shows that readers of the descriptions see the codes, and where each is explained.
func TestSpec_DescribesCodes(t *testing.T) {
	t.Parallel()
	spec, err := oapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	const want = "\nRefused with 404 [`not_found`](/problems/not-found), 409 [`not_terminal`](/problems/not-terminal), " +
		"412 [`revision_mismatch`](/problems/revision-mismatch).\n"
	if got := spec.Paths.Value("/v1/flows/{flow_id}").Delete.Description; !strings.HasSuffix(got, want) {
		t.Errorf("the description ends otherwise: %s", got)
	}
	if got := spec.Info.Description; !strings.Contains(got, "503 [`busy`](/problems/busy)") {
		t.Errorf("the codes of all operations are not told: %s", got)
	}
}
