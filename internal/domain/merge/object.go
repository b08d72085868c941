package merge

import (
	"bytes"
	"encoding/json"
)

// node is a value of a document. It is looked into only when something inside it changes.
type node struct {
	raw    json.RawMessage // its text, as long as object is nil
	object *object
}

func (n *node) merge(patch json.RawMessage, stored func(json.RawMessage) json.RawMessage) {
	changes, ok := parseObject(patch)
	if !ok {
		if stored != nil {
			patch = stored(patch)
		}
		*n = node{raw: patch}
		return
	}
	if n.object == nil {
		n.object, _ = parseObject(n.raw)
	}
	for _, m := range changes.members {
		if string(m.value.raw) == "null" {
			n.object.set(m.name, nil)
			continue
		}
		inner := n.object.get(m.name)
		if inner == nil {
			inner = &node{}
			n.object.set(m.name, inner)
		}
		inner.merge(m.value.raw, stored)
	}
}

func (n *node) text() json.RawMessage {
	if n.object == nil {
		return n.raw
	}
	return n.object.text()
}

// object is a JSON object in the order of its members.
type object struct {
	members []member
	index   map[string]int
}

// member is one of them; without a value it has been removed.
type member struct {
	name  string
	value *node
}

// parseObject returns the members of a compact document, and whether it is an object at all; if not, they are those of {}.
func parseObject(doc json.RawMessage) (*object, bool) {
	o := &object{index: map[string]int{}}
	d := json.NewDecoder(bytes.NewReader(doc))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return &object{index: map[string]int{}}, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return &object{index: map[string]int{}}, false
		}
		o.set(name.(string), &node{raw: value}) //nolint:forcetypeassert // the decoder sees to it that names are strings
	}
	return o, true
}

func (o *object) get(name string) *node {
	if i, ok := o.index[name]; ok {
		return o.members[i].value
	}
	return nil
}

// set gives a member a value; nil removes it.
func (o *object) set(name string, value *node) {
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
	var b bytes.Buffer
	o.write(&b)
	return b.Bytes()
}

func (o *object) write(b *bytes.Buffer) {
	names := json.NewEncoder(b)
	names.SetEscapeHTML(false)
	b.WriteByte('{')
	first := true
	for _, m := range o.members {
		if m.value == nil {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		_ = names.Encode(m.name) // a string, into memory
		b.Truncate(b.Len() - 1)  // the line feed that Encode adds
		b.WriteByte(':')
		if m.value.object != nil {
			m.value.object.write(b)
		} else {
			b.Write(m.value.raw)
		}
	}
	b.WriteByte('}')
}
