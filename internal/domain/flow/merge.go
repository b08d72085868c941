package flow

import (
	"bytes"
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Merge says how a patch is applied to a document.
type Merge string

// The ways. Both work on the text of the documents: numbers keep their digits and members their order.
const (
	MergeShallow Merge = "shallow"
	MergeRFC7396 Merge = "rfc7396"
)

func (m Merge) apply(state, patch json.RawMessage) json.RawMessage {
	if m != MergeRFC7396 {
		return Shallow(state, patch)
	}
	if null(patch) {
		return emptyObject // null removes the member: the state begins again
	}
	return MergePatch(state, patch)
}

var emptyObject = json.RawMessage("{}")

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

// MergePatch applies a patch by RFC 7396: null removes a member, objects are merged, anything else replaces.
func MergePatch(target, patch json.RawMessage) json.RawMessage {
	return mergePatch(compact(target), compact(patch))
}

func mergePatch(target, patch json.RawMessage) json.RawMessage {
	changes, ok := parseObject(patch)
	if !ok {
		return patch
	}
	to, _ := parseObject(target)
	for _, m := range changes.members {
		if null(m.value) {
			to.set(m.name, nil)
		} else {
			to.set(m.name, mergePatch(to.get(m.name), m.value))
		}
	}
	return to.text()
}

// setMember sets one member of a document that is an object, and leaves another one alone.
func setMember(doc json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	o, ok := parseObject(doc)
	if !ok {
		return doc
	}
	o.set(name, value)
	return o.text()
}

// object is a JSON object in the order of its members.
type object struct {
	members []member
	index   map[string]int
}

// member is one of them; without a value it has been removed.
type member struct {
	name  string
	value json.RawMessage
}

// parseObject returns the members of a compact document, and whether it is an object at all; if not, they are those of {}.
func parseObject(doc json.RawMessage) (object, bool) {
	o := object{index: map[string]int{}}
	d := json.NewDecoder(bytes.NewReader(doc))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return object{index: map[string]int{}}, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return object{index: map[string]int{}}, false
		}
		o.set(name.(string), value) //nolint:forcetypeassert // the decoder sees to it that names are strings
	}
	return o, true
}

func (o *object) get(name string) json.RawMessage {
	if i, ok := o.index[name]; ok {
		return o.members[i].value
	}
	return nil
}

// set gives a member a value; nil removes it.
func (o *object) set(name string, value json.RawMessage) {
	i, ok := o.index[name]
	switch {
	case ok && value == nil:
		delete(o.index, name)
		o.members[i].value = nil
	case ok:
		o.members[i].value = value
	case value != nil:
		o.index[name] = len(o.members)
		o.members = append(o.members, member{name, value})
	}
}

func (o *object) text() json.RawMessage {
	b := bytes.NewBufferString("{")
	names := json.NewEncoder(b)
	names.SetEscapeHTML(false)
	for _, m := range o.members {
		if m.value == nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		_ = names.Encode(m.name) // a string, into memory
		b.Truncate(b.Len() - 1)  // the line feed that Encode adds
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func null(doc json.RawMessage) bool { return string(bytes.TrimSpace(doc)) == "null" }

// compact returns doc in the form in which documents are kept.
func compact(doc json.RawMessage) json.RawMessage { return wait.Compact(doc) }
