// Package merge merges JSON documents as texts: numbers keep their digits, and members their order.
package merge

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Shallow replaces the members of an object by those of another: nested objects are replaced whole, and null is stored. If
// either is not an object, the patch replaces the state. reference: runs-and-taskflows.md B6.
func Shallow(state, patch json.RawMessage) json.RawMessage {
	patch = compact(patch)
	to, ok := parseObject(compact(state))
	from, isObject := parseObject(patch)
	if !ok || !isObject {
		return patch
	}
	for i := range from.members {
		m := &from.members[i]
		to.set(m, m.value.raw)
	}
	return to.text()
}

// Set sets one member of a document that is an object, and leaves another one alone. nil removes the member.
func Set(doc json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	o, ok := parseObject(doc)
	if !ok {
		return doc
	}
	m := member{name: name}
	m.text, _ = jsontext.AppendQuote(nil, name)
	o.set(&m, value)
	return o.text()
}

// Patch applies a patch by RFC 7396: null removes a member, objects are merged, anything else replaces.
func Patch(target, patch json.RawMessage) json.RawMessage {
	d := Open(compact(target))
	d.Patch(patch, nil)
	return d.Text()
}

// Document is a document that takes many patches and is written once.
type Document struct{ root node }

// Open returns the document with this text, which is one that Text has returned, or none.
func Open(doc json.RawMessage) *Document { return &Document{root: node{raw: doc}} }

// Patch applies a patch by RFC 7396. Every value that it stores, which is whatever is not an object, is what stored makes of
// it; nil stores it as it is.
func (d *Document) Patch(patch json.RawMessage, stored func(json.RawMessage) json.RawMessage) {
	d.root.merge(compact(patch), stored)
}

// Text returns the document as it is now.
func (d *Document) Text() json.RawMessage { return d.root.text() }

func compact(doc json.RawMessage) json.RawMessage {
	out, err := jsontext.AppendFormat(make([]byte, 0, len(doc)), doc, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return doc
	}
	return out
}
