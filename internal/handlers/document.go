package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// maxDepth is how deep a JSON body may nest.
const maxDepth = 100

// document is the form of a JSON body: its schema, and where it is free of one.
type document struct {
	schema *openapi3.Schema
	shape  *shape
}

// shape says which parts of a document the schema looks at, so that the others need not be taken apart: a payload is
// checked in one go and never becomes a tree. A nil shape is a part of which everything is looked at.
type shape struct {
	free    bool // any value will do
	members map[string]*member
	others  *shape // members that are not declared
	items   *shape
}

type member struct {
	name  string
	shape *shape
}

func freeShape() *shape { return &shape{free: true} }

// documents makes the forms of the contract's JSON bodies, each schema's shape once.
type documents map[*openapi3.Schema]*shape

func (d documents) of(ref *openapi3.SchemaRef) *document {
	if ref == nil || ref.Value == nil {
		return &document{schema: &openapi3.Schema{Nullable: true}, shape: freeShape()}
	}
	return &document{schema: ref.Value, shape: d.shapeOf(ref)}
}

func (d documents) shapeOf(ref *openapi3.SchemaRef) *shape {
	if ref == nil || ref.Value == nil {
		return freeShape()
	}
	s := ref.Value
	if known, ok := d[s]; ok {
		return known
	}
	if free(s) {
		d[s] = freeShape()
		return d[s]
	}
	if len(s.OneOf)+len(s.AnyOf)+len(s.AllOf)+len(s.Enum) > 0 || s.Not != nil || s.UniqueItems {
		d[s] = nil
		return nil
	}
	made := &shape{others: freeShape(), members: map[string]*member{}}
	d[s] = made // before its parts: a schema may contain itself
	for name, property := range s.Properties {
		made.members[name] = &member{name: name, shape: d.shapeOf(property)}
	}
	made.others = d.shapeOf(s.AdditionalProperties.Schema)
	made.items = d.shapeOf(s.Items)
	return made
}

// free reports whether s lets every value pass, null perhaps excepted.
func free(s *openapi3.Schema) bool {
	plain := *s
	plain.Nullable = false
	return plain.IsEmpty()
}

// documentReader turns the bytes of a body into the tree that the validator looks at.
type documentReader struct {
	decoder jsontext.Decoder
	buffer  bytes.Buffer
}

// documentReaders keeps readers for their buffers. It may be used by any number of goroutines.
type documentReaders struct{ pool sync.Pool }

// read checks that data is one JSON value in UTF-8 without duplicate names, at most maxDepth deep and without NUL
// characters (which PostgreSQL cannot store), and returns it as far as shape looks at it. In free parts null is nil and
// every other value is true. The refusals are malformed_json and, for NUL, validation_failed, with a pointer.
func (p *documentReaders) read(data []byte, shape *shape) (any, error) {
	if err := suspect(data); err != nil {
		return nil, err
	}
	r, _ := p.pool.Get().(*documentReader)
	if r == nil {
		r = &documentReader{}
	}
	r.reset(data)
	value, err := r.value(shape)
	if err == nil {
		err = r.end()
	}
	r.reset(nil) // the body must not stay in the pool
	p.pool.Put(r)
	if err != nil {
		return nil, malformed(err)
	}
	return value, nil
}

func (r *documentReader) reset(data []byte) {
	r.buffer = *bytes.NewBuffer(data)
	r.decoder.Reset(&r.buffer)
}

var errSecondValue = errors.New("a second value follows the first")

func (r *documentReader) end() error {
	switch _, err := r.decoder.ReadToken(); {
	case err == nil:
		return &jsontext.SyntacticError{ByteOffset: r.decoder.InputOffset(), Err: errSecondValue}
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

func (r *documentReader) value(s *shape) (any, error) {
	kind := r.decoder.PeekKind()
	if s == nil || !s.free {
		switch kind {
		case '{':
			return r.object(s)
		case '[':
			return r.array(s)
		default: // not something with parts
		}
	}
	raw, err := r.decoder.ReadValue()
	switch {
	case err != nil:
		return nil, err
	case kind == 'n':
		return nil, nil
	case kind == 't', s != nil && s.free:
		return true, nil
	case kind == 'f':
		return false, nil
	case kind == '"':
		return text(raw)
	default:
		return json.Number(raw), nil
	}
}

func (r *documentReader) object(s *shape) (any, error) {
	if _, err := r.decoder.ReadToken(); err != nil {
		return nil, err
	}
	object := map[string]any{}
	for r.decoder.PeekKind() != '}' {
		name, inner, err := r.name(s)
		if err != nil {
			return nil, err
		}
		if object[name], err = r.value(inner); err != nil {
			return nil, err
		}
	}
	_, err := r.decoder.ReadToken()
	return object, err
}

func (r *documentReader) name(s *shape) (string, *shape, error) {
	raw, err := r.decoder.ReadValue()
	if err != nil {
		return "", nil, err
	}
	if s != nil {
		if m, ok := s.members[string(raw[1:len(raw)-1])]; ok {
			return m.name, m.shape, nil
		}
	}
	name, err := text(raw)
	if s == nil || err != nil {
		return name, nil, err
	}
	if m, ok := s.members[name]; ok {
		return name, m.shape, nil
	}
	return name, s.others, nil
}

func (r *documentReader) array(s *shape) (any, error) {
	if _, err := r.decoder.ReadToken(); err != nil {
		return nil, err
	}
	var items *shape
	if s != nil {
		items = s.items
	}
	array := []any{}
	for r.decoder.PeekKind() != ']' {
		item, err := r.value(items)
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := r.decoder.ReadToken()
	return array, err
}

// text returns the string that a quoted JSON string stands for.
func text(quoted []byte) (string, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	plain, err := jsontext.AppendUnquote(make([]byte, 0, len(quoted)), quoted)
	return string(plain), err
}

// suspect refuses what is rare and costly to look for: nesting beyond maxDepth and NUL characters. Bodies without the
// bytes that either takes are let through after a glance.
func suspect(data []byte) error {
	deep := bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) > maxDepth && depth(data) > maxDepth
	if !deep && !bytes.Contains(data, []byte(`\u0000`)) {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return malformed(err)
		}
		if d.StackDepth() > maxDepth {
			return fault.Invalid(fault.CodeMalformedJSON, shorten(string(d.StackPointer())), "The body nests deeper than %d levels.", maxDepth)
		}
		if token.Kind() == '"' && strings.IndexByte(token.String(), 0) >= 0 {
			return fault.Invalid(fault.CodeValidationFailed, shorten(string(d.StackPointer())), "must not contain the character U+0000")
		}
	}
}

// depth returns how deep brackets nest outside strings.
func depth(data []byte) int {
	var now, most int
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			now++
			most = max(most, now)
		case '}', ']':
			now--
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return most
}
