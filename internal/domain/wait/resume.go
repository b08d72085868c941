package wait

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Limits of the condition of a suspended execution.
const (
	MaxResumeDepth = 4    // composites in one another
	MaxResumeParts = 64   // leaves of the whole condition
	MaxCount       = 1000 // signals that the counts of a condition may need together
	MaxWaitpoints  = 32   // waitpoints of one suspension, or of one count
)

var distinctOf = map[string]Distinct{"DistinctWaitpoints": DistinctWaitpoints, "DistinctSignals": DistinctSignals, "DistinctSources": DistinctSources}

// ParseResume reads the condition of a suspended execution. pointer is where it stands in the request; the refusal,
// CodeInvalidCondition, points at the part that is wrong and names the rule. reference: executions.md 2.15, 2.16.
func ParseResume(raw []byte, pointer string) (Condition, error) {
	p := resumeParser{}
	return p.condition(raw, pointer, 1)
}

type resumeParser struct{ leaves, needs int }

// wrong refuses a condition by the name of a rule.
func wrong(rule, pointer, format string, args ...any) error {
	return fault.Invalid(fault.CodeInvalidCondition, pointer, format, args...).With("rule", rule)
}

func (p *resumeParser) condition(raw []byte, pointer string, depth int) (Condition, error) {
	var word string
	if json.Unmarshal(raw, &word) == nil && !bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return p.leaf(map[string]Condition{"OperatorOnly": {Kind: Manual}, "TimeoutOnly": {Kind: Never}}[word], pointer)
	}
	var tagged map[string]json.RawMessage
	if json.Unmarshal(raw, &tagged) != nil || len(tagged) != 1 {
		return p.leaf(Condition{}, pointer)
	}
	switch {
	case tagged["Single"] != nil:
		return p.single(tagged["Single"], pointer+"/Single")
	case tagged["Composite"] != nil:
		return p.composite(tagged["Composite"], pointer+"/Composite", depth)
	}
	return p.leaf(Condition{}, pointer)
}

// leaf counts a leaf, and refuses one that is none.
func (p *resumeParser) leaf(c Condition, pointer string) (Condition, error) {
	if c.Kind == "" {
		return c, wrong("unknown_condition", pointer, `A condition is {"Single":{…}}, {"Composite":{…}}, "OperatorOnly" or "TimeoutOnly".`)
	}
	if p.leaves++; p.leaves > MaxResumeParts {
		return Condition{}, wrong("too_many_parts", pointer, "A condition has at most %d parts.", MaxResumeParts)
	}
	return c, nil
}

// strict reads an object that has no other members than those of into, spelled as they are.
func strict(raw []byte, into any, pointer string) error {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return wrong("malformed", pointer, "This must be an object.")
	}
	err := jsonv2.Unmarshal(raw, into, jsonv2.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsonv2.SemanticError](err); ok && len(e.JSONPointer) <= MaxName {
		pointer += string(e.JSONPointer)
	}
	if errors.Is(err, jsonv2.ErrUnknownName) {
		return wrong("malformed", pointer, "This part of the condition has no such member.")
	}
	return wrong("malformed", pointer, "This part of the condition has another form.")
}

func (p *resumeParser) single(raw []byte, pointer string) (Condition, error) {
	var s struct {
		Key     *string         `json:"waitpoint_key"`
		Matcher json.RawMessage `json:"matcher"`
	}
	if err := strict(raw, &s, pointer); err != nil {
		return Condition{}, err
	}
	if s.Key == nil || *s.Key == "" {
		return Condition{}, wrong("waitpoint_key_missing", pointer+"/waitpoint_key", "waitpoint_key names the waitpoint that is listened to.")
	}
	if s.Matcher == nil {
		return Condition{}, wrong("matcher_missing", pointer+"/matcher", `matcher is "Wildcard" or {"ByName":…}.`)
	}
	name, err := matcher(s.Matcher, pointer+"/matcher")
	if err != nil {
		return Condition{}, err
	}
	return p.leaf(Condition{Kind: SignalOn, Waitpoints: []string{*s.Key}, Name: name}, pointer)
}

// matcher returns the name that signals must have, "" for any.
func matcher(raw []byte, pointer string) (string, error) {
	var word string
	if json.Unmarshal(raw, &word) == nil && word == "Wildcard" {
		return "", nil
	}
	var by struct {
		Name *string `json:"ByName"`
	}
	if err := strict(raw, &by, pointer); err != nil || by.Name == nil {
		return "", wrong("unknown_matcher", pointer, `matcher is "Wildcard" or {"ByName":…}.`)
	}
	switch {
	case *by.Name == "":
		return "", wrong("empty_signal_name", pointer+"/ByName", "A signal has a name; use Wildcard for any.")
	case utf8.RuneCountInString(*by.Name) > MaxName:
		return "", wrong("signal_name_too_long", pointer+"/ByName", "A name has at most %d characters.", MaxName)
	}
	return *by.Name, nil
}

type resumeBody struct {
	Kind      string            `json:"kind"`
	Members   []json.RawMessage `json:"members"`
	N         *int              `json:"n"`
	CountKind string            `json:"count_kind"`
	Matcher   json.RawMessage   `json:"matcher"`
	Keys      []string          `json:"waitpoints"`
}

func (p *resumeParser) composite(raw []byte, pointer string, depth int) (Condition, error) {
	if depth > MaxResumeDepth {
		return Condition{}, wrong("too_deep", pointer, "Composites stand in one another %d deep; %d is the most.", depth, MaxResumeDepth)
	}
	var b resumeBody
	if err := strict(raw, &b, pointer); err != nil {
		return Condition{}, err
	}
	switch {
	case b.Kind == "AllOf" && b.N == nil && b.CountKind == "" && b.Matcher == nil && b.Keys == nil:
		return p.allOf(b.Members, pointer+"/members", depth)
	case b.Kind == "Count" && b.Members == nil:
		return p.count(b, pointer)
	}
	return Condition{}, wrong("unknown_composite", pointer+"/kind", "A composite is AllOf with members, or Count with n, count_kind and waitpoints.")
}

func (p *resumeParser) allOf(members []json.RawMessage, pointer string, depth int) (Condition, error) {
	if len(members) == 0 {
		return Condition{}, wrong("allof_empty_members", pointer, "AllOf needs at least one member.")
	}
	all := Condition{Kind: All}
	for i, raw := range members {
		part, err := p.condition(raw, fmt.Sprintf("%s/%d", pointer, i), depth+1)
		if err != nil {
			return Condition{}, err
		}
		all.Of = append(all.Of, part)
	}
	return all, nil
}

func (p *resumeParser) count(b resumeBody, pointer string) (Condition, error) {
	c := Condition{Kind: Count, Waitpoints: b.Keys, Distinct: distinctOf[b.CountKind]}
	switch {
	case b.N == nil || *b.N < 1:
		return Condition{}, wrong("count_n_zero", pointer+"/n", "n is at least 1.")
	case *b.N > MaxCount-p.needs:
		return Condition{}, wrong("count_n_too_large", pointer+"/n", "The counts of a condition need at most %d signals together.", MaxCount)
	case c.Distinct == "":
		return Condition{}, wrong("unknown_count_kind", pointer+"/count_kind", "count_kind is DistinctWaitpoints, DistinctSignals or DistinctSources.")
	case len(b.Keys) == 0:
		return Condition{}, wrong("count_waitpoints_empty", pointer+"/waitpoints", "A count listens to at least one waitpoint.")
	case len(b.Keys) > MaxWaitpoints:
		return Condition{}, wrong("count_waitpoints_too_many", pointer+"/waitpoints", "A count listens to at most %d waitpoints.", MaxWaitpoints)
	case c.Distinct == DistinctWaitpoints && *b.N > len(b.Keys):
		return Condition{}, wrong("count_exceeds_waitpoint_set", pointer+"/n", "%d distinct waitpoints cannot come from %d.", *b.N, len(b.Keys))
	}
	for i, key := range b.Keys {
		switch {
		case key == "":
			return Condition{}, wrong("waitpoint_key_missing", fmt.Sprintf("%s/waitpoints/%d", pointer, i), "A waitpoint's key is not empty.")
		case slices.Contains(b.Keys[:i], key):
			return Condition{}, wrong("count_waitpoint_twice", fmt.Sprintf("%s/waitpoints/%d", pointer, i), "This waitpoint is in the list already.")
		}
	}
	c.N = *b.N
	p.needs += c.N
	if b.Matcher != nil && !bytes.Equal(b.Matcher, []byte("null")) {
		var err error
		if c.Name, err = matcher(b.Matcher, pointer+"/matcher"); err != nil {
			return Condition{}, err
		}
	}
	return p.leaf(c, pointer)
}

// Listens returns the keys of the waitpoints that the condition names, each once, in the order in which they are written.
func (c Condition) Listens() []string { return c.listens(func(int, Condition) bool { return true }) }

// Lacks returns those of the waitpoints that w listens to at which something has not come yet.
func (w *Wait) Lacks() []string {
	has := w.Progress()
	return w.Condition.listens(func(i int, leaf Condition) bool { return has[i] < leaf.needs() })
}

func (c Condition) listens(counts func(i int, leaf Condition) bool) []string {
	var keys []string
	c.each(func(i int, leaf Condition) {
		if !counts(i, leaf) {
			return
		}
		for _, key := range leaf.Waitpoints {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// Names that stand for what no signal is waited for by.
const (
	OperatorOnlyName = "__operator_only__"
	TimeoutOnlyName  = "__timeout_only__"
)

// Names returns the names of the signals on a waitpoint that the condition asks for, each once, in the order in which they are
// written: none when any will do.
func (c Condition) Names(waitpoint string) []string {
	names := []string{}
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	c.each(func(_ int, leaf Condition) {
		switch {
		case leaf.Kind == Manual:
			add(OperatorOnlyName)
		case leaf.Kind == Never:
			add(TimeoutOnlyName)
		case leaf.Name != "" && slices.Contains(leaf.Waitpoints, waitpoint):
			add(leaf.Name)
		}
	})
	return names
}
