package merge

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// node is a value of a document. It is looked into only when something inside it changes.
type node struct {
	raw    json.RawMessage // its text, as long as object is nil; neither for a member that has been removed
	object *object
}

func (n *node) gone() bool { return n.raw == nil && n.object == nil }

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
	for i := range changes.members {
		switch m := &changes.members[i]; {
		case m.value.gone():
		case string(m.value.raw) == "null":
			n.object.set(m, nil)
		default:
			n.object.at(m).merge(m.value.raw, stored)
		}
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
	size    int // of the text that it was read from
}

// member is one of them.
type member struct {
	name  string
	text  []byte // the name as it is written
	value node
}

// parseObject returns the members of a compact document, and whether it is an object at all; if not, they are those of {}.
func parseObject(doc json.RawMessage) (*object, bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(doc), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return &object{index: map[string]int{}}, false
	}
	most := min(bytes.Count(doc, []byte(":")), len(doc)/len(`"":1,`)) // some are deeper
	o := &object{members: make([]member, 0, most), index: make(map[string]int, most), size: len(doc)}
	names := string(doc)
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() != '}' {
		var m member
		var from, to int
		if from, to, err = next(d); err != nil {
			break
		}
		if m.name, m.text = names[from+1:to-1], doc[from:to]; bytes.IndexByte(m.text, '\\') >= 0 {
			m.rename(doc[from:to])
		}
		if from, to, err = next(d); err != nil {
			break
		}
		m.value.raw = doc[from:to]
		o.index[m.name] = len(o.members)
		o.members = append(o.members, m)
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err != nil {
		return &object{index: map[string]int{}}, false
	}
	if len(o.index) < len(o.members) {
		o.unique()
	}
	return o, true
}

// unique removes all but the last of the members that are called alike.
func (o *object) unique() {
	for i := range o.members {
		if m := &o.members[i]; o.index[m.name] != i {
			m.value = node{}
		}
	}
}

// next returns where the next value of a document lies.
func next(d *jsontext.Decoder) (from, to int, err error) {
	v, err := d.ReadValue()
	to = int(d.InputOffset())
	return to - len(v), to, err
}

// rename gives a member a name that is written with escapes, and writes it without those that it does not need.
func (m *member) rename(text []byte) {
	plain, _ := jsontext.AppendUnquote(nil, text) // what is not valid in it becomes U+FFFD
	m.name = string(plain)
	m.text, _ = jsontext.AppendQuote(nil, m.name)
}

// at returns the value of the member that is called as m; it is made if there is none.
func (o *object) at(m *member) *node {
	i, ok := o.index[m.name]
	if !ok {
		i = len(o.members)
		o.index[m.name] = i
		o.members = append(o.members, member{name: m.name, text: m.text})
	}
	return &o.members[i].value
}

// set gives the member that is called as m a value; nil removes it.
func (o *object) set(m *member, value json.RawMessage) {
	if value != nil {
		*o.at(m) = node{raw: value}
	} else if i, ok := o.index[m.name]; ok {
		delete(o.index, m.name)
		o.members[i].value = node{}
	}
}

func (o *object) text() json.RawMessage {
	var b bytes.Buffer
	b.Grow(o.size + o.size/8)
	o.write(&b)
	return b.Bytes()
}

func (o *object) write(b *bytes.Buffer) {
	b.WriteByte('{')
	first := true
	for i := range o.members {
		m := &o.members[i]
		if m.value.gone() {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.Write(m.text)
		b.WriteByte(':')
		if m.value.object != nil {
			m.value.object.write(b)
		} else {
			b.Write(m.value.raw)
		}
	}
	b.WriteByte('}')
}
