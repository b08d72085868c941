package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// malformed describes why a body is not one JSON value. Refusals pass as they are.
func malformed(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	var where *jsontext.SyntacticError
	if !errors.As(err, &where) {
		return fault.Invalid(fault.CodeMalformedJSON, "", "The body ends before its JSON value does.")
	}
	pointer := shorten(string(where.JSONPointer))
	switch {
	case errors.Is(err, errSecondValue):
		return fault.Invalid(fault.CodeMalformedJSON, pointer, "The body has more than one JSON value.")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fault.Invalid(fault.CodeMalformedJSON, pointer, "The same member stands twice in an object.")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Invalid(fault.CodeMalformedJSON, pointer, "The body ends before its JSON value does.")
	default:
		return fault.Invalid(fault.CodeMalformedJSON, pointer, "The body is not JSON at byte %d: %s.", where.ByteOffset, where.Err)
	}
}

// invalid returns the refusal of a request for what is wrong with its parts; unparsed says that one of them could not
// even be read.
func invalid(unparsed bool, wrong []fault.Field) *fault.Error {
	code := fault.CodeValidationFailed
	if unparsed {
		code = fault.CodeInvalidParameter
	}
	first := wrong[0]
	at := first.Pointer // what is wrong with the first; errors has them all
	if at == "" {
		at = "the " + string(first.In)
	}
	message := fmt.Sprintf("%s %s", at, first.Detail)
	if more := len(wrong) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more, see errors)", more)
	}
	return &fault.Error{Code: code, Message: message + ".", Fields: wrong}
}

// undecoded describes why a body that is within its schema does not fit the type that was generated from it.
func undecoded(err error) *fault.Error {
	field := fault.Field{In: fault.InBody, Detail: "holds a value that does not have the form which the contract names"}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field.Detail = "has the wrong type or is out of range"
		if mismatch.Field != "" {
			field.Pointer = shorten("/" + strings.ReplaceAll(mismatch.Field, ".", "/"))
		}
	}
	return invalid(false, []fault.Field{field}).Because(err)
}
