// Package form makes a form of a JSON Schema, and a JSON document of what was filled in.
//
// It knows the part of JSON Schema that a person can fill in without help: an object whose properties are texts, choices, numbers
// and yes or no. What it does not know is refused when the form is made, rather than ignored when it is answered. What is filled
// in is checked here alone; a page may help with it, but is not believed.
package form

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Form is what a person fills in. The zero value has no fields, and takes any document.
type Form struct {
	Title       string
	Description string
	Fields      []Field // in the order in which they were written
}

// Field is one of its fields.
type Field struct {
	Name        string
	Title       string
	Description string
	Kind        Kind
	Multiline   bool     // a text of several lines
	Options     []string // of a choice
	Required    bool
	Default     string // as it is filled in: "true" for yes
	MinLength   int    // of a text, in characters
	MaxLength   int    // of a text, in characters; 0 for no limit
	Minimum     *float64
	Maximum     *float64

	pattern *regexp.Regexp
}

// Kind says what goes into a field.
type Kind string

// The kinds. Email, URI, date and choice are texts.
const (
	Text    Kind = "text"
	Email   Kind = "email"
	URI     Kind = "uri"
	Date    Kind = "date"
	Choice  Kind = "choice"
	Boolean Kind = "boolean"
	Integer Kind = "integer"
	Number  Kind = "number"
)

// isText says whether a field of kind k holds a string.
func (k Kind) isText() bool { return k != Boolean && k != Integer && k != Number }

// Label is what a field is called on the page.
func (f *Field) Label() string { return cmp.Or(strings.TrimSpace(f.Title), f.Name) }

// Optional returns a form with the same fields, none of which need to be filled in.
func (f Form) Optional() Form {
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		f.Fields[i].Required = false
	}
	return f
}

// Fill returns the document of what was filled in, by the names of the fields, with the types of the schema; a field that was
// left empty is not in it, and yes or no always is. wrong says what is wrong with which field, and is empty when all is well.
func (f Form) Fill(values url.Values) (doc json.RawMessage, wrong map[string]string) {
	wrong = map[string]string{}
	b := []byte{'{'}
	for i := range f.Fields {
		field := &f.Fields[i]
		value, problem := field.read(values.Get(field.Name))
		switch {
		case problem != "":
			wrong[field.Name] = problem
		case value != nil:
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(append(b, quoted(field.Name)...), ':'), value...)
		case field.Required:
			wrong[field.Name] = missing
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return append(b, '}'), wrong
}

const missing = "This is required."

// read returns the JSON value of what was filled into a field, nil for nothing.
func (f *Field) read(filled string) (value json.RawMessage, problem string) {
	switch f.Kind {
	case Boolean:
		switch filled {
		case "":
			return json.RawMessage("false"), ""
		case "true", "false":
			return json.RawMessage(filled), ""
		}
		return nil, "This is yes or no."
	case Integer, Number:
		filled = strings.TrimSpace(filled)
		if filled == "" {
			return nil, ""
		}
		number, ok := numberOf(filled)
		if !ok {
			return nil, f.notNumber()
		}
		if problem = f.check(json.RawMessage(number)); problem == "" && f.Kind == Integer {
			n, _ := number.Float64()
			number = json.Number(strconv.FormatInt(int64(n), 10)) // 1e3 is one, too
		}
		return json.RawMessage(number), problem
	default:
		filled = strings.ReplaceAll(filled, "\r\n", "\n") // as a browser sends what has several lines
		if !f.Multiline {
			filled = strings.TrimSpace(filled)
		}
		if filled == "" {
			return nil, ""
		}
		value = quoted(filled)
		return value, f.check(value)
	}
}

func (f *Field) notNumber() string {
	if f.Kind == Integer {
		return "This must be a whole number."
	}
	return "This must be a number."
}

var numeral = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)

// numberOf returns a number as JSON writes it: in the very digits that were filled in, where JSON allows them.
func numberOf(filled string) (json.Number, bool) {
	if !numeral.MatchString(filled) {
		return "", false
	}
	n, err := strconv.ParseFloat(filled, 64)
	if err != nil || math.IsInf(n, 0) {
		return "", false
	}
	if json.Valid([]byte(filled)) {
		return json.Number(filled), true
	}
	return json.Number(strconv.FormatFloat(n, 'g', -1, 64)), true
}

func quoted(text string) json.RawMessage {
	b, err := json.Marshal(strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return json.RawMessage(`""`) // a text can be written
	}
	return b
}

// Check refuses a document that the form would not make, with CodeValidationFailed. pointer is where it stands in the request. A form
// without fields takes any document.
func (f Form) Check(doc json.RawMessage, pointer string) error {
	if len(f.Fields) == 0 {
		return nil
	}
	var wrong []fault.Field
	add := func(name, detail string) {
		at := pointer
		if name != "" {
			at += "/" + fault.Part(name)
		}
		wrong = append(wrong, fault.Field{In: fault.InBody, Pointer: at, Detail: detail, Code: fault.CodeValidationFailed})
	}
	given := map[string]json.RawMessage{}
	if len(doc) > 0 && string(doc) != "null" && (json.Unmarshal(doc, &given) != nil || given == nil) {
		add("", "What is filled in is an object.")
	}
	for i := range f.Fields {
		field := &f.Fields[i]
		value, ok := given[field.Name]
		delete(given, field.Name)
		switch {
		case len(wrong) > 0 && wrong[0].Pointer == pointer:
		case ok:
			if problem := field.check(value); problem != "" {
				add(field.Name, problem)
			}
		case field.Required:
			add(field.Name, missing)
		}
	}
	unknown := make([]string, 0, len(given))
	for name := range given {
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		add(name, "The form has no such field.")
	}
	if len(wrong) == 0 {
		return nil
	}
	message := fmt.Sprintf("The form is not filled in as it asks for: %s: %s", wrong[0].Pointer, wrong[0].Detail)
	return &fault.Error{Code: fault.CodeValidationFailed, Message: message, Fields: wrong}
}

// check says what is wrong with a JSON value, "" for nothing.
func (f *Field) check(value json.RawMessage) string {
	switch {
	case f.Kind == Boolean:
		if s := string(value); s != "true" && s != "false" {
			return "This is yes or no: true or false."
		}
		return ""
	case f.Kind.isText():
		var text string
		if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
			return "This must be a text."
		}
		return f.checkText(text)
	}
	var number json.Number
	if len(value) == 0 || value[0] == '"' || json.Unmarshal(value, &number) != nil {
		return f.notNumber()
	}
	n, err := number.Float64()
	switch {
	case err != nil:
		return f.notNumber()
	case f.Kind == Integer && (n != math.Trunc(n) || math.Abs(n) > 1<<53):
		return f.notNumber()
	case f.Minimum != nil && n < *f.Minimum:
		return "This must be at least " + plain(*f.Minimum) + "."
	case f.Maximum != nil && n > *f.Maximum:
		return "This must be at most " + plain(*f.Maximum) + "."
	}
	return ""
}

func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func (f *Field) checkText(text string) string {
	size := utf8.RuneCountInString(text)
	switch {
	case text == "" && f.Required:
		return missing
	case strings.ContainsRune(text, 0):
		return "This has a character that cannot be stored."
	case size < f.MinLength:
		return fmt.Sprintf("This must have at least %d characters.", f.MinLength)
	case f.MaxLength > 0 && size > f.MaxLength:
		return fmt.Sprintf("This must have at most %d characters; it has %d.", f.MaxLength, size)
	case f.Kind == Choice && !slices.Contains(f.Options, text):
		return "This must be one of the choices."
	case f.pattern != nil && !f.pattern.MatchString(text):
		return "This does not have the form that is asked for."
	}
	return f.checkFormat(text)
}

func (f *Field) checkFormat(text string) string {
	switch f.Kind {
	case Date:
		if _, err := time.Parse(time.DateOnly, text); err != nil {
			return "This must be a date, such as 2026-11-30."
		}
	case Email:
		if a, err := mail.ParseAddress(text); err != nil || a.Address != text || a.Name != "" {
			return "This must be an email address."
		}
	case URI:
		if u, err := url.Parse(text); err != nil || !u.IsAbs() || u.Host == "" && u.Opaque == "" && u.Path == "" {
			return "This must be an address with a scheme, such as https://example.org."
		}
	default:
	}
	return ""
}
