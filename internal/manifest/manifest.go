// Package manifest reads a document that a person has written, in YAML or in JSON, as JSON. It keeps the types that YAML gives to what
// is written, refuses what JSON cannot say, and knows which line everything stands in.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	maxDepth  = 100      // the server takes no more
	maxSize   = 16 << 20 // nor this
	maxMerges = 10_000
	maxLines  = 100_000 // of which the place is known
)

// Document is what was read.
type Document struct {
	JSON  json.RawMessage
	lines map[string]int // by JSON pointer
}

// Line returns the line in which what a JSON pointer points to stands, or what it stands in; 0 when that is not known.
func (d *Document) Line(pointer string) int {
	for {
		if line, ok := d.lines[pointer]; ok {
			return line
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return 0
		}
		pointer = pointer[:i]
	}
}

// Parse reads a document. What is not JSON is YAML, unless its name ends in .json. An error names the line.
func Parse(name string, data []byte) (*Document, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxSize)
	}
	if json.Valid(data) {
		return &Document{JSON: bytes.TrimSpace(data)}, nil
	}
	if filepath.Ext(name) == ".json" {
		return nil, jsonError(data)
	}
	var documents []yaml.Node
	if err := yaml.Load(data, &documents, yaml.WithAllDocuments()); err != nil {
		return nil, yamlError(err)
	}
	if len(documents) == 0 || len(documents[0].Content) == 0 {
		return nil, errors.New("it is empty")
	}
	if len(documents) > 1 {
		return nil, fmt.Errorf("line %d: a second document begins; one is enough", documents[1].Line)
	}
	w := writer{lines: map[string]int{}}
	if err := w.node(documents[0].Content[0], "", 0); err != nil {
		return nil, err
	}
	return &Document{JSON: w.out.Bytes(), lines: w.lines}, nil
}

func jsonError(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	var value any
	err := d.Decode(&value)
	at := d.InputOffset()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case err == nil:
		err = errors.New("more follows after the document")
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(at, int64(len(data)))], []byte("\n")), err)
}

func yamlError(err error) error {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok || e.Mark.Line == 0 {
		return err
	}
	text := e.Message
	if e.ContextMsg != "" {
		text += ", " + e.ContextMsg
	}
	return fmt.Errorf("line %d: %s", e.Mark.Line, text)
}

// writer writes nodes as JSON.
type writer struct {
	out    bytes.Buffer
	lines  map[string]int
	merges int // that were followed
}

func (w *writer) node(n *yaml.Node, at string, depth int) error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if depth > maxDepth {
		return fmt.Errorf("line %d: deeper than %d levels", n.Line, maxDepth)
	}
	if w.out.Len() > maxSize {
		return fmt.Errorf("line %d: the document becomes larger than %d bytes", n.Line, maxSize)
	}
	if _, known := w.lines[at]; !known && len(w.lines) < maxLines {
		w.lines[at] = n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		return w.mapping(n, at, depth)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.node(item, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	default:
		return w.scalar(n)
	}
}

// mapping writes a mapping with what `<<` merges into it, which what it says itself wins over.
func (w *writer) mapping(n *yaml.Node, at string, depth int) error {
	pairs, err := w.members(n, depth)
	if err != nil {
		return err
	}
	w.out.WriteByte('{')
	for i, p := range pairs {
		if i > 0 {
			w.out.WriteByte(',')
		}
		pointer := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p.key.Value)
		if len(w.lines) < maxLines {
			w.lines[pointer] = p.key.Line
		}
		w.text(p.key.Value)
		w.out.WriteByte(':')
		if err := w.node(p.value, pointer, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

type pair struct{ key, value *yaml.Node }

// members returns the members of a mapping, each once.
func (w *writer) members(n *yaml.Node, depth int) ([]pair, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d: deeper than %d levels", n.Line, maxDepth)
	}
	var own, merged []pair
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch tag := key.ShortTag(); {
		case tag == "!!merge":
			more, err := w.merge(value, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
		case key.Kind != yaml.ScalarNode || tag != "!!str":
			return nil, fmt.Errorf("line %d: a name has to be a string: put %q into quotes", key.Line, key.Value)
		case seen[key.Value] != 0:
			return nil, fmt.Errorf("line %d: %q is there already, in line %d", key.Line, key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			own = append(own, pair{key, value})
		}
	}
	for _, p := range merged {
		if seen[p.key.Value] == 0 {
			seen[p.key.Value] = p.key.Line
			own = append(own, p)
		}
	}
	return own, nil
}

// merge returns the members of what is merged: a mapping, or several, of which the first wins.
func (w *writer) merge(n *yaml.Node, depth int) ([]pair, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if w.merges++; w.merges > maxMerges {
		return nil, fmt.Errorf("line %d: more than %d merges", n.Line, maxMerges)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return w.members(n, depth)
	case yaml.SequenceNode:
		var all []pair
		for _, item := range n.Content {
			more, err := w.merge(item, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	default:
		return nil, fmt.Errorf("line %d: only mappings can be merged", n.Line)
	}
}

func (w *writer) text(s string) {
	enc := json.NewEncoder(&w.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can be encoded, and a buffer takes it
	w.out.Truncate(w.out.Len() - 1)
}

func (w *writer) scalar(n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp": // JSON has no times
		w.text(n.Value)
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		word := strings.ToLower(n.Value)
		if word != "true" && word != "false" { // a tag can say it of anything
			return fmt.Errorf("line %d: %s is neither true nor false", n.Line, n.Value)
		}
		w.out.WriteString(word)
	case "!!int", "!!float":
		number, err := number(n.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", n.Line, err)
		}
		w.out.WriteString(number)
	default:
		return fmt.Errorf("line %d: JSON has nothing like %s %s", n.Line, tag, n.Value)
	}
	return nil
}

// number returns a number of YAML as JSON writes it, with all of its digits.
func number(text string) (string, error) {
	if json.Valid([]byte(text)) {
		return text, nil
	}
	plain := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	if digits := strings.TrimPrefix(plain, "-"); len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789") == "" {
		return "", fmt.Errorf("%s is octal to some and decimal to others: write 0o%s, or put it into quotes", text, strings.TrimLeft(digits, "0"))
	}
	if i, ok := new(big.Int).SetString(plain, 0); ok {
		return i.String(), nil
	}
	f, err := strconv.ParseFloat(plain, 64)
	b, unknown := json.Marshal(f)
	if err != nil || unknown != nil {
		return "", fmt.Errorf("JSON has no number %s", text)
	}
	return string(b), nil
}
