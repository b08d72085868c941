package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Limits of a form.
const (
	MaxFields  = 50
	MaxName    = 100 // characters
	MaxOptions = 200

	longText = 200 // characters from which a text gets several lines
)

// Parse reads a schema. pointer is where it stands in the request. It returns CodeValidationFailed, which points at the part that is not
// known or not right.
func Parse(schema json.RawMessage, pointer string) (Form, error) {
	members, err := membersOf(schema, pointer)
	if err != nil {
		return Form{}, err
	}
	var f Form
	var properties json.RawMessage
	required := []string{}
	for _, m := range members {
		at := pointer + "/" + fault.Part(m.name)
		switch m.name {
		case "type":
			var kind string
			if err := into(m.value, &kind, at); err != nil || kind != "object" {
				return f, refuse(at, "The schema of a form has the type object.")
			}
		case "title":
			err = into(m.value, &f.Title, at)
		case "description":
			err = into(m.value, &f.Description, at)
		case "properties":
			properties = m.value
		case "required":
			err = into(m.value, &required, at)
		case "additionalProperties": // what is not asked for is refused anyway
			var allowed bool
			err = into(m.value, &allowed, at)
		default:
			if !ignored(m.name) {
				return f, refuse(at, "A form does not know %s.", fault.Readable(m.name))
			}
		}
		if err != nil {
			return f, err
		}
	}
	if f.Fields, err = fieldsOf(properties, pointer+"/properties"); err != nil {
		return f, err
	}
	for i, name := range required {
		at := slices.IndexFunc(f.Fields, func(f Field) bool { return f.Name == name })
		if at < 0 {
			return f, refuse(fmt.Sprintf("%s/required/%d", pointer, i), "%s is none of the properties.", fault.Readable(name))
		}
		f.Fields[at].Required = true
	}
	return f, nil
}

// ignored says whether a keyword tells nothing about what may be filled in.
func ignored(keyword string) bool {
	return strings.HasPrefix(keyword, "x-") || slices.Contains([]string{"$schema", "$id", "$comment", "examples", "example"}, keyword)
}

func refuse(pointer, format string, args ...any) error {
	return fault.Invalid(fault.CodeValidationFailed, pointer, format, args...)
}

// named is a member of an object.
type named struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in the order in which they are written.
func membersOf(object json.RawMessage, pointer string) ([]named, error) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if first, err := d.ReadToken(); err != nil || first.Kind() != '{' {
		return nil, refuse(pointer, "A form is the JSON Schema of an object with properties.")
	}
	var members []named
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, refuse(pointer, "This is not an object.")
		}
		text := name.String() // the token is good until the next one
		value, err := d.ReadValue()
		if err != nil {
			return nil, refuse(pointer, "This is not an object.")
		}
		members = append(members, named{text, json.RawMessage(value.Clone())})
	}
	return members, nil
}

func into[T any](value json.RawMessage, to *T, pointer string) error {
	if string(value) == "null" || json.Unmarshal(value, to) != nil {
		return refuse(pointer, "This has another type.")
	}
	return nil
}

func fieldsOf(properties json.RawMessage, pointer string) ([]Field, error) {
	members, err := membersOf(properties, pointer)
	switch {
	case err != nil:
		return nil, err
	case len(members) == 0:
		return nil, refuse(pointer, "A form has at least one property.")
	case len(members) > MaxFields:
		return nil, refuse(pointer, "A form has at most %d properties.", MaxFields)
	}
	fields := make([]Field, len(members))
	for i, m := range members {
		at := pointer + "/" + fault.Part(m.name)
		if m.name == "" || utf8.RuneCountInString(m.name) > MaxName || strings.ContainsFunc(m.name, control) {
			return nil, refuse(at, "The name of a property has 1 to %d characters.", MaxName)
		}
		if fields[i], err = fieldOf(m, at); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }

// property is the schema of one field.
type property struct {
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Default     json.RawMessage `json:"default"`
	Enum        []string        `json:"enum"`
	Format      string          `json:"format"`
	MinLength   int             `json:"minLength"`
	MaxLength   *int            `json:"maxLength"`
	Pattern     string          `json:"pattern"`
	Multiline   bool            `json:"x-multiline"`
	Minimum     *float64        `json:"minimum"`
	Maximum     *float64        `json:"maximum"`
}

// keywords are those that a type may have beside those that all have.
var keywords = map[string][]string{
	"string":  {"enum", "format", "minLength", "maxLength", "pattern", "x-multiline"},
	"boolean": nil,
	"integer": {"minimum", "maximum"},
	"number":  {"minimum", "maximum"},
}

var kinds = map[string]Kind{"string": Text, "boolean": Boolean, "integer": Integer, "number": Number}

var formats = map[string]Kind{"": Text, "date": Date, "email": Email, "uri": URI}

func fieldOf(m named, pointer string) (Field, error) {
	p, err := propertyOf(m.value, pointer)
	if err != nil {
		return Field{}, err
	}
	f := Field{Name: m.name, Title: p.Title, Description: p.Description, Kind: kinds[p.Type], Options: p.Enum, MinLength: p.MinLength,
		Minimum: p.Minimum, Maximum: p.Maximum}
	if f.Kind == Text {
		if err := f.text(&p, pointer); err != nil {
			return f, err
		}
	}
	if f.Minimum != nil && f.Maximum != nil && *f.Minimum > *f.Maximum {
		return f, refuse(pointer+"/minimum", "No number is as large as the minimum and as small as the maximum.")
	}
	return f, f.preset(p.Default, pointer+"/default")
}

// propertyOf reads the schema of one field, which has no other keywords than its type may have.
func propertyOf(schema json.RawMessage, pointer string) (p property, err error) {
	members, err := membersOf(schema, pointer)
	if err != nil {
		return p, refuse(pointer, "A property has a schema, which is an object.")
	}
	if i := slices.IndexFunc(members, func(m named) bool { return m.name == "type" }); i >= 0 {
		_ = json.Unmarshal(members[i].value, &p.Type) // what is no text is none of the types
	}
	known, ok := keywords[p.Type]
	if !ok {
		return p, refuse(pointer+"/type", "The type of a property is string, boolean, integer or number.")
	}
	to := map[string]any{"type": &p.Type, "title": &p.Title, "description": &p.Description, "default": &p.Default, "enum": &p.Enum, "format": &p.Format,
		"minLength": &p.MinLength, "maxLength": &p.MaxLength, "pattern": &p.Pattern, "x-multiline": &p.Multiline, "minimum": &p.Minimum, "maximum": &p.Maximum}
	for _, m := range members {
		at := pointer + "/" + fault.Part(m.name)
		switch {
		case slices.Contains([]string{"type", "title", "description", "default"}, m.name), slices.Contains(known, m.name):
			if string(m.value) == "null" || json.Unmarshal(m.value, to[m.name]) != nil {
				return p, refuse(at, "This has another type.")
			}
		case !ignored(m.name):
			return p, refuse(at, "A form does not know %s of a %s.", fault.Readable(m.name), p.Type)
		}
	}
	return p, nil
}

// text fills in what only a text has.
func (f *Field) text(p *property, pointer string) error {
	kind, ok := formats[p.Format]
	f.Kind = kind
	if p.MaxLength != nil {
		f.MaxLength = *p.MaxLength
	}
	f.Multiline = kind == Text && (p.Multiline || f.MaxLength > longText)
	switch {
	case !ok:
		return refuse(pointer+"/format", "The format of a text is date, email or uri.")
	case f.MinLength < 0:
		return refuse(pointer+"/minLength", "A length is not negative.")
	case p.MaxLength != nil && f.MaxLength < max(1, f.MinLength):
		return refuse(pointer+"/maxLength", "A text has room for one character, and for minLength.")
	}
	if p.Pattern != "" {
		var err error
		if f.pattern, err = regexp.Compile(p.Pattern); err != nil {
			return refuse(pointer+"/pattern", "The pattern cannot be used. It is a regular expression in the syntax of RE2, without look-ahead and back-references.")
		}
	}
	if p.Enum == nil {
		return nil
	}
	f.Kind, f.Multiline = Choice, false
	if p.Format != "" {
		return refuse(pointer+"/format", "A choice has no format.")
	}
	if len(p.Enum) == 0 || len(p.Enum) > MaxOptions {
		return refuse(pointer+"/enum", "A choice has 1 to %d values.", MaxOptions)
	}
	for i, option := range p.Enum {
		if option == "" || option != strings.TrimSpace(option) || slices.Contains(p.Enum[:i], option) {
			return refuse(fmt.Sprintf("%s/enum/%d", pointer, i), "The values of a choice are different texts that are not empty, without space around them.")
		}
	}
	return nil
}

// preset fills in what a field has before a person comes.
func (f *Field) preset(value json.RawMessage, pointer string) error {
	if value == nil {
		return nil
	}
	if problem := f.check(value); problem != "" {
		return refuse(pointer, "The default does not fit: %s", problem)
	}
	f.Default = string(value)
	if f.Kind.isText() {
		return into(value, &f.Default, pointer)
	}
	return nil
}
