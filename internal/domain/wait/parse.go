package wait

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// members are the members of each kind, beside kind itself. All are required.
var members = map[Kind][]string{
	Timer:         {"at"},
	ExternalEvent: {"topic", "correlation_id"},
	Manual:        nil,
	Any:           {"of"},
	All:           {"of"},
}

// Parse reads a condition. pointer is where it stands in the request; the refusal, CodeBadWaitCondition, points at the part
// that is wrong. Whether its times make sense is decided by [Spec.Check]. reference: runs-and-taskflows.md B9 (guardrails),
// B13 10 and 20.
func Parse(raw []byte, pointer string) (Condition, error) {
	var p parser
	return p.condition(raw, pointer, 1)
}

type parser struct{ leaves int }

func refuse(pointer, format string, args ...any) error {
	return fault.Invalid(fault.CodeBadWaitCondition, pointer, format, args...)
}

func (p *parser) condition(raw []byte, pointer string, depth int) (Condition, error) {
	var none Condition
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return none, refuse(pointer, "A condition is an object with a kind.")
	}
	if depth > MaxDepth {
		return none, refuse(pointer, "A condition has at most %d levels.", MaxDepth)
	}
	c := Condition{}
	if json.Unmarshal(object["kind"], &c.Kind) != nil {
		return none, refuse(pointer+"/kind", "kind is required and is one of timer, external_event, manual, any and all.")
	}
	expected, known := members[c.Kind]
	if !known {
		return none, refuse(pointer+"/kind", "There is no condition of this kind. kind is one of timer, external_event, manual, any and all.")
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if name != "kind" && !slices.Contains(expected, name) {
			return none, refuse(pointer+"/"+fault.Part(name), "A condition of the kind %s has no such member.", c.Kind)
		}
	}
	if !c.composite() {
		if p.leaves++; p.leaves > MaxLeaves {
			return none, refuse(pointer, "A condition has at most %d parts that are not any or all.", MaxLeaves)
		}
	}
	var err error
	switch c.Kind {
	case Timer:
		c.At, err = instant(object["at"], pointer+"/at")
	case ExternalEvent:
		if c.Topic, err = name(object["topic"], pointer, "topic"); err == nil {
			c.CorrelationID, err = name(object["correlation_id"], pointer, "correlation_id")
		}
	case Any, All:
		c.Of, err = p.parts(object["of"], pointer+"/of", depth+1)
	case Manual, SignalOn, Count, Never: // a flow has the first alone
	}
	if err != nil {
		return none, err
	}
	return c, nil
}

func (p *parser) parts(raw []byte, pointer string, depth int) ([]Condition, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, refuse(pointer, "of is required and is a list of at least one condition.")
	}
	parts := make([]Condition, 0, min(len(list), MaxLeaves))
	for i, raw := range list {
		part, err := p.condition(raw, fmt.Sprintf("%s/%d", pointer, i), depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// instant reads an RFC 3339 time, whose letters may be in lower case, and cuts it to milliseconds.
func instant(raw []byte, pointer string) (time.Time, error) {
	var s event.Stamp
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) || s.UnmarshalJSON(bytes.ToUpper(raw)) != nil {
		return time.Time{}, refuse(pointer, "at is required and is a time by RFC 3339, as 2026-11-22T09:30:00Z.")
	}
	return time.Time(s), nil
}

// name reads a topic or a correlation id, which is kept as it is: matching is exact.
func name(raw []byte, pointer, member string) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) != nil || bytes.Equal(raw, []byte("null")) {
		return "", refuse(pointer+"/"+member, "%s is required and is a string.", member)
	}
	return s, checkName(fault.CodeBadWaitCondition, s, pointer, member)
}

func checkName(code fault.Code, s, pointer, member string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return fault.Invalid(code, pointer+"/"+member, "%s cannot be empty.", member)
	case utf8.RuneCountInString(s) > MaxName:
		return fault.Invalid(code, pointer+"/"+member, "%s has at most %d characters.", member, MaxName)
	}
	return nil
}
