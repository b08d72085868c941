package handlers

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// maxFields bounds how many wrong places one answer names, and maxPointer how long a pointer is: names in it may be the
// client's.
const (
	maxFields  = 32
	maxPointer = 256
)

// finding is one place at which a value is outside its schema.
type finding struct {
	pointer string // RFC 6901
	keyword string // of the schema, which refuses the value
	detail  string // without the value
}

// explainer turns the validator's errors into findings, in words that name neither values nor Go types.
type explainer struct {
	options []openapi3.SchemaValidationOption
}

func (x explainer) findings(err error, base string) []finding {
	switch e := err.(type) { //nolint:errorlint // a MultiError is to be taken apart, and errors.As would search it
	case nil:
		return nil
	case openapi3.MultiError:
		var all []finding
		for _, one := range e {
			all = append(all, x.findings(one, base)...)
			if len(all) > maxFields {
				break
			}
		}
		return all
	case *openapi3.SchemaError:
		return x.finding(e, base+pointerTo(e.JSONPointer()))
	default:
		return []finding{{pointer: base, detail: "does not match the contract"}}
	}
}

func (x explainer) finding(e *openapi3.SchemaError, at string) []finding {
	switch e.SchemaField {
	case "oneOf", "anyOf":
		return x.alternatives(e, at)
	case "allOf":
		var all []finding
		for _, part := range e.Schema.AllOf {
			all = append(all, x.findings(part.Value.VisitJSON(e.Value, x.options...), at)...)
		}
		return all
	case "discriminator":
		name := e.Schema.Discriminator.PropertyName
		var known []string
		for value := range e.Schema.Discriminator.Mapping {
			known = append(known, value)
		}
		slices.Sort(known)
		return []finding{{at + pointerTo([]string{name}), "enum", "must be one of " + strings.Join(known, ", ")}}
	case "properties":
		at += pointerTo([]string{unknownName(e.Reason)})
	}
	return []finding{{at, e.SchemaField, detailOf(e)}}
}

// alternatives explains why a value is none of its schema's alternatives: by the one that it was most likely meant to
// be, when there is one such.
func (x explainer) alternatives(e *openapi3.SchemaError, at string) []finding {
	generic := []finding{{at, e.SchemaField, "has none of the forms that the contract allows here"}}
	best, tie, meant := math.MaxInt, false, generic
	for _, alternative := range append(slices.Clone(e.Schema.OneOf), e.Schema.AnyOf...) {
		found := x.findings(alternative.Value.VisitJSON(e.Value, x.options...), "")
		if len(found) == 0 {
			return []finding{{at, e.SchemaField, "has more than one of the forms that the contract allows here"}}
		}
		switch d := distance(found); {
		case d < best:
			best, tie, meant = d, false, found
		case d == best:
			tie = true
		}
	}
	if tie || best >= otherType {
		return generic
	}
	for i := range meant {
		meant[i].pointer = at + meant[i].pointer
	}
	return meant
}

// otherType is the distance to an alternative of another JSON type.
const otherType = 1000

// distance says how unlike an alternative a value is that has these findings: its type counts most, then the tag that
// tells alternatives apart, then missing and unknown members; what is wrong further inside does not count.
func distance(found []finding) int {
	sum := 0
	for _, f := range found {
		switch depth := strings.Count(f.pointer, "/"); {
		case depth == 0 && f.keyword == "type":
			sum += otherType
		case depth <= 1 && f.keyword == "enum":
			sum += 10
		case depth == 0, depth == 1 && (f.keyword == "required" || f.keyword == "properties"):
			sum++
		}
	}
	return sum
}

func detailOf(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "type":
		if types := s.Type.Slice(); len(types) > 0 {
			return "must be " + article(types[0])
		}
	case "nullable":
		return "must not be null"
	case "required":
		return "is required"
	case "properties":
		return "is not known here"
	case "enum":
		var allowed []string
		for _, v := range s.Enum {
			allowed = append(allowed, fmt.Sprint(v))
		}
		return "must be one of " + strings.Join(allowed, ", ")
	case "minLength":
		if s.MinLength == 1 {
			return "must not be empty"
		}
		return fmt.Sprintf("must have at least %d characters", s.MinLength)
	case "maxLength":
		return fmt.Sprintf("must have at most %d characters", *s.MaxLength)
	case "minimum":
		return "must be at least " + number(*s.Min)
	case "maximum":
		return "must be at most " + number(*s.Max)
	case "minItems":
		return fmt.Sprintf("must have at least %d items", s.MinItems)
	case "maxItems":
		return fmt.Sprintf("must have at most %d items", *s.MaxItems)
	case "uniqueItems":
		return "must not have the same item twice"
	case "minProperties":
		return fmt.Sprintf("must have at least %d members", s.MinProps)
	case "maxProperties":
		return fmt.Sprintf("must have at most %d members", *s.MaxProps)
	case "pattern":
		return "must match " + s.Pattern
	case "format":
		return "must be " + format(s.Format)
	}
	return "does not match the contract (" + e.SchemaField + ")"
}

func article(jsonType string) string {
	switch jsonType {
	case openapi3.TypeArray, openapi3.TypeObject, openapi3.TypeInteger:
		return "an " + jsonType
	}
	return "a " + jsonType
}

func format(name string) string {
	switch name {
	case "uuid":
		return "a UUID"
	case "date-time":
		return "a time as in RFC 3339, for example 2026-01-31T12:00:00Z"
	case "byte":
		return "base64"
	case "int32", "int64":
		return "within the range of " + name
	}
	return "a " + name
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// unknownName returns the member that a reason of the keyword "properties" is about: the validator names it nowhere else.
func unknownName(reason string) string {
	quoted, _ := strings.CutPrefix(reason, "property ")
	quoted, _ = strings.CutSuffix(quoted, " is unsupported")
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return ""
	}
	return name
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func pointerTo(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteByte('/')
		_, _ = pointerEscaper.WriteString(&b, name) // a Builder takes all
	}
	return b.String()
}

// shorten cuts a pointer that is too long to repeat, between characters.
func shorten(pointer string) string {
	if len(pointer) <= maxPointer {
		return pointer
	}
	return strings.ToValidUTF8(pointer[:maxPointer], "") + "…"
}

// fields puts findings into the form of the answer.
func fields(in fault.In, found []finding) []fault.Field {
	found = found[:min(len(found), maxFields)]
	all := make([]fault.Field, 0, len(found))
	for _, f := range found {
		all = append(all, fault.Field{In: in, Pointer: shorten(f.pointer), Detail: f.detail})
	}
	return all
}
