// Package merge merges JSON documents as texts: numbers keep their digits, and members their order.
package merge

import (
	"bytes"
	"encoding/json"
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
	for _, m := range from.members {
		to.set(m.name, m.value)
	}
	return to.text()
}

// Set sets one member of a document that is an object, and leaves another one alone. nil removes the member.
func Set(doc json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	o, ok := parseObject(doc)
	if !ok {
		return doc
	}
	if value == nil {
		o.set(name, nil)
	} else {
		o.set(name, &node{raw: value})
	}
	return o.text()
}

// Patch applies a patch by RFC 7396: null removes a member, objects are merged, anything else replaces.
func Patch(target, patch json.RawMessage) json.RawMessage {
	d := Open(target)
	d.Patch(patch, nil)
	return d.Text()
}

// Document is a document that takes many patches and is written once.
type Document struct{ root node }

// Open returns the document with this text.
func Open(doc json.RawMessage) *Document { return &Document{root: node{raw: compact(doc)}} }

// Patch applies a patch by RFC 7396. Every value that it stores, which is whatever is not an object, is what stored makes of
// it; nil stores it as it is.
func (d *Document) Patch(patch json.RawMessage, stored func(json.RawMessage) json.RawMessage) {
	d.root.merge(compact(patch), stored)
}

// Text returns the document as it is now.
func (d *Document) Text() json.RawMessage { return d.root.text() }

func compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(doc) == 0 || json.Compact(&b, doc) != nil {
		return doc
	}
	return b.Bytes()
}
