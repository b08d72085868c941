// Package form makes an HTML form of a JSON Schema, and a JSON document of what was filled in.
package form

import (
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Form is what a person fills in.
type Form struct {
	Fields []Field
}

// Field is one of its fields.
type Field struct {
	Name string
}

// Parse reads a schema. pointer is where it stands in the request. It returns CodeValidationFailed.
func Parse(schema json.RawMessage, pointer string) (Form, error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil || len(s.Properties) == 0 {
		return Form{}, fault.Invalid(fault.CodeValidationFailed, pointer, "A form is the JSON Schema of an object with properties.")
	}
	return Form{}, nil
}
