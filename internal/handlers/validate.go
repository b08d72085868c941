package handlers

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// validator holds requests to the contract.
type validator struct {
	readers documentReaders
	explain explainer
	filter  *openapi3filter.Options
}

func newValidator() *validator {
	options := []openapi3.SchemaValidationOption{
		openapi3.MultiErrors(),
		openapi3.DisableSchemaErrorDetails(),
		openapi3.WithStringFormatValidators(formats()),
	}
	return &validator{
		explain: explainer{options: options},
		filter: &openapi3filter.Options{
			MultiError:              true,
			SkipSettingDefaults:     true, // a body keeps its bytes
			AuthenticationFunc:      openapi3filter.NoopAuthenticationFunc,
			SchemaValidationOptions: options[1:],
		},
	}
}

var errFormat = errors.New("has another format")

// formats checks the string formats as strictly as the generated types decode them, so that what is wrong is found
// here, where its place is known.
func formats() map[string]openapi3.StringFormatValidator {
	check := openapi3.NewCallbackValidator[string]
	return map[string]openapi3.StringFormatValidator{
		"uuid": check(func(s string) error {
			if len(s) != 36 || uuid.Validate(s) != nil || s == uuid.Nil.String() {
				return errFormat
			}
			return nil
		}),
		"date-time": check(func(s string) error {
			_, err := wire.Parse(s)
			return err
		}),
		"byte": check(func(s string) error {
			_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(s)))
			return err
		}),
	}
}

// check reads r's body and holds all of r to the contract of op. It returns the bytes of the body, which r also gives to
// the next reader, with a Content-Type that says what they are. The refusals: invalid_parameter and malformed_json for
// what cannot be read, payload_too_large, unsupported_media_type, and validation_failed for what is outside the contract.
func (v *validator) check(w http.ResponseWriter, r *http.Request, op *operation) ([]byte, error) {
	wrong, unparsed := v.parameters(r, op)
	if unparsed {
		return nil, invalid(true, wrong)
	}
	data, inBody, err := v.body(w, r, op)
	if err != nil {
		return nil, err
	}
	if wrong = append(wrong, inBody...); len(wrong) > 0 {
		return nil, invalid(false, wrong)
	}
	return data, nil
}

// parameters returns what is wrong with r's path, query and headers, and whether something could not be read at all.
func (v *validator) parameters(r *http.Request, op *operation) (wrong []fault.Field, unparsed bool) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return []fault.Field{{In: fault.InQuery, Detail: "is not well formed"}}, true
	}
	if wrong, unparsed = unexpected(query, op); unparsed {
		return wrong, true
	}
	path, field := pathOf(r)
	if field != nil {
		return append(wrong, *field), true
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: path, QueryParams: query, Route: op.route, Options: v.filter,
	}
	for _, p := range op.parameters {
		if !p.Required && absent(r, query, p) {
			continue
		}
		err := openapi3filter.ValidateParameter(r.Context(), input, p)
		if err == nil {
			continue
		}
		field, syntax := v.parameter(p, err)
		wrong, unparsed = append(wrong, field), unparsed || syntax
	}
	return wrong[:min(len(wrong), maxFields)], unparsed
}

func absent(r *http.Request, query url.Values, p *openapi3.Parameter) bool {
	switch p.In {
	case openapi3.ParameterInQuery:
		_, ok := query[p.Name]
		return !ok
	case openapi3.ParameterInHeader:
		return len(r.Header.Values(p.Name)) == 0
	}
	return false
}

// unexpected finds query parameters that the operation does not have, has only once, or that are not text.
func unexpected(query url.Values, op *operation) (wrong []fault.Field, unparsed bool) {
	for name, values := range query {
		repeats, known := op.query[name]
		switch {
		case !known:
			wrong = append(wrong, fault.Field{In: fault.InQuery, Pointer: shorten(strings.ToValidUTF8(name, "�")), Detail: "is not known here"})
		case len(values) > 1 && !repeats:
			wrong, unparsed = append(wrong, fault.Field{In: fault.InQuery, Pointer: name, Detail: "is given more than once"}), true
		case slices.ContainsFunc(values, unstorable):
			wrong, unparsed = append(wrong, fault.Field{In: fault.InQuery, Pointer: name, Detail: "is not text in UTF-8"}), true
		}
	}
	slices.SortFunc(wrong, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	return wrong, unparsed
}

// unstorable reports whether a text is one that no database column takes.
func unstorable(s string) bool { return strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) }

// pathOf returns the path's parameters, unescaped, or what is wrong with them.
func pathOf(r *http.Request) (map[string]string, *fault.Field) {
	params := chi.RouteContext(r.Context()).URLParams
	if len(params.Keys) == 0 {
		return nil, nil
	}
	path := make(map[string]string, len(params.Keys))
	for i, name := range params.Keys {
		value := params.Values[i]
		var err error
		if r.URL.RawPath != "" {
			value, err = url.PathUnescape(value)
		}
		if err != nil || unstorable(value) {
			return nil, &fault.Field{In: fault.InPath, Pointer: name, Detail: "is not text in UTF-8"}
		}
		path[name] = value
	}
	return path, nil
}

// parameter describes what is wrong with one parameter, and whether it is its form: a value that is no number, no
// UUID, or does not match its pattern.
func (v *validator) parameter(p *openapi3.Parameter, err error) (field fault.Field, syntax bool) {
	field = fault.Field{In: fault.In(p.In), Pointer: p.Name, Detail: "is malformed"}
	switch {
	case errors.Is(err, openapi3filter.ErrInvalidRequired):
		field.Detail = "is required"
		return field, false
	case errors.Is(err, openapi3filter.ErrInvalidEmptyValue):
		field.Detail = "must not be empty"
		return field, true
	}
	request, ok := errors.AsType[*openapi3filter.RequestError](err)
	if !ok {
		return field, true
	}
	if _, ok := errors.AsType[*openapi3filter.ParseError](err); ok {
		if p.Schema != nil && len(p.Schema.Value.Type.Slice()) > 0 {
			field.Detail = "must be " + article(p.Schema.Value.Type.Slice()[0])
		}
		return field, true
	}
	found := v.explain.findings(request.Err, "")
	if len(found) == 0 {
		return field, true
	}
	field.Detail = found[0].detail
	return field, found[0].keyword == "format" || found[0].keyword == "pattern"
}

// body reads the body of r and returns its bytes and what is wrong with them.
func (v *validator) body(w http.ResponseWriter, r *http.Request, op *operation) ([]byte, []fault.Field, error) {
	if len(op.bodies) == 0 {
		return nil, nil, nil
	}
	data, err := readBody(w, r, op.limit)
	if err != nil {
		return nil, nil, err
	}
	declared, named, ok := op.bodyOf(r.Header.Get("Content-Type"))
	if coding := r.Header.Get("Content-Encoding"); !ok || coding != "" && coding != "identity" {
		return nil, nil, op.wrongType()
	}
	if declared.json != nil && len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		data = nil
	}
	setBody(r, data)
	if !named {
		r.Header.Set("Content-Type", declared.contentType)
	}
	if declared.json == nil {
		return data, nil, nil // bytes, or a form whose reader knows its fields
	}
	if len(data) == 0 {
		if op.bodyRequired {
			return nil, nil, fault.Invalid(fault.CodeMalformedJSON, "", "The body is empty; this route takes a JSON value.")
		}
		return nil, nil, nil
	}
	value, err := v.readers.read(data, declared.json.shape)
	if err != nil {
		return nil, nil, err
	}
	err = declared.json.schema.VisitJSON(value, v.explain.options...)
	return data, fields(fault.InBody, v.explain.findings(err, "")), nil
}

func (op *operation) wrongType() *fault.Error {
	var types []string
	for _, b := range op.bodies {
		types = append(types, b.contentType)
	}
	return fault.New(fault.CodeUnsupportedMediaType, "This route takes %s.", strings.Join(types, " or ")).With("allowed", types)
}
