package oapi

import (
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Codes returns what op may be refused with: the codes that it lists as its own, and those that any operation may answer.
func Codes(spec *openapi3.T, op *openapi3.Operation) []fault.Code {
	return append(listed(op.Extensions), listed(spec.Extensions)...)
}

func listed(extensions map[string]any) []fault.Code {
	list, _ := extensions["x-codes"].([]any)
	codes := make([]fault.Code, 0, len(list))
	for _, item := range list {
		name, _ := item.(string)
		codes = append(codes, fault.Code(name))
	}
	return codes
}

// describeCodes ends descriptions with the codes that are listed beside them: readers of /docs see no extensions.
func describeCodes(spec *openapi3.T) {
	spec.Info.Description += "\n### Codes\n\nAny operation may be refused with " + inWords(listed(spec.Extensions)) + ".\n"
	for _, item := range spec.Paths.Map() {
		for _, op := range item.Operations() {
			if own := listed(op.Extensions); len(own) > 0 {
				op.Description += "\nRefused with " + inWords(own) + ".\n"
			}
		}
	}
}

// inWords names codes with their statuses, and links each to its page.
func inWords(codes []fault.Code) string {
	var text strings.Builder
	status := 0
	for i, code := range codes {
		if i > 0 {
			text.WriteString(", ")
		}
		if e := fault.Lookup(code); e.Status != status {
			status = e.Status
			fmt.Fprintf(&text, "%d ", status)
		}
		fmt.Fprintf(&text, "[`%s`](%s)", code, code.Page())
	}
	return text.String()
}
