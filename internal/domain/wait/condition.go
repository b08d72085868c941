// Package wait holds what it means to wait: conditions on time, on events from outside and on people, what satisfies them,
// and what becomes of a wait whose deadline passes. It is pure: time is an argument.
//
// A condition is satisfied by leaves that are met. A leaf that names a time is met from that time on, one that names an
// event once that event has come, and one that a person answers never by itself: a person ends the whole wait. So what is
// met only grows, in whatever order things happen.
package wait

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// Kind says what a condition asks for.
type Kind string

// The kinds.
const (
	Timer         Kind = "timer"          // until a time
	ExternalEvent Kind = "external_event" // for an event with a topic and a correlation id
	Manual        Kind = "manual"         // for a person
	Any           Kind = "any"            // for one of several
	All           Kind = "all"            // for each of several
)

// Limits of a condition.
const (
	MaxDepth  = 3   // levels, the leaves' included
	MaxLeaves = 32  // of the whole condition
	MaxName   = 256 // characters of a topic or a correlation id
)

// Condition is what a wait waits for. reference: runs-and-taskflows.md B3.4.
type Condition struct {
	Kind          Kind
	At            time.Time   // of a timer
	Topic         string      // of an external event
	CorrelationID string      // of an external event
	Of            []Condition // of any and all
}

// Met says which leaves of a condition events have met: bit i stands for leaf i, in the order in which they are written.
type Met uint32

// Key is what an event and the leaves that wait for it have in common.
type Key struct {
	Topic         string
	CorrelationID string
}

// each calls fn for every leaf, in the order in which they are written.
func (c Condition) each(fn func(i int, leaf Condition)) {
	i := 0
	var walk func(Condition)
	walk = func(c Condition) {
		if c.composite() {
			for _, part := range c.Of {
				walk(part)
			}
			return
		}
		fn(i, c)
		i++
	}
	walk(c)
}

func (c Condition) composite() bool { return c.Kind == Any || c.Kind == All }

// Match returns the leaves that an event meets. Names are compared character by character.
func (c Condition) Match(k Key) Met {
	var met Met
	c.each(func(i int, leaf Condition) {
		if leaf.Kind == ExternalEvent && leaf.key() == k {
			met |= 1 << i
		}
	})
	return met
}

// Satisfied says whether the condition holds at a time, given the leaves that events have met.
func (c Condition) Satisfied(met Met, now time.Time) bool {
	at, ok := c.HoldsFrom(met)
	return ok && !at.After(now)
}

// HoldsFrom returns from when on the condition holds if no further event comes, and whether it does so at all. The zero time
// means that it holds already.
func (c Condition) HoldsFrom(met Met) (time.Time, bool) {
	i := 0
	return c.holdsFrom(met, &i)
}

func (c Condition) holdsFrom(met Met, i *int) (from time.Time, ok bool) {
	if !c.composite() {
		bit := Met(1) << *i
		*i++
		return c.At, c.Kind == Timer || met&bit != 0
	}
	ok = c.Kind == All
	for j, part := range c.Of {
		at, holds := part.holdsFrom(met, i)
		switch {
		case c.Kind == All:
			ok = ok && holds
			if j == 0 || at.After(from) {
				from = at
			}
		case holds && (!ok || at.Before(from)):
			ok, from = true, at
		}
	}
	if !ok {
		from = time.Time{}
	}
	return from, ok
}

// Keys returns the events that the condition waits for and that have not come, each once.
func (c Condition) Keys(met Met) []Key {
	var keys []Key
	c.each(func(i int, leaf Condition) {
		if leaf.Kind == ExternalEvent && met&(1<<i) == 0 && !slices.Contains(keys, leaf.key()) {
			keys = append(keys, leaf.key())
		}
	})
	return keys
}

func (c Condition) key() Key { return Key{Topic: c.Topic, CorrelationID: c.CorrelationID} }

// Answerable says whether a person is asked.
func (c Condition) Answerable() bool {
	asked := false
	c.each(func(_ int, leaf Condition) { asked = asked || leaf.Kind == Manual })
	return asked
}

// Equal says whether c and d ask for the same, part by part.
func (c Condition) Equal(d Condition) bool {
	return c.Kind == d.Kind && c.At.Equal(d.At) && c.key() == d.key() && slices.EqualFunc(c.Of, d.Of, Condition.Equal)
}

// MarshalJSON writes the condition as [Parse] reads it.
func (c Condition) MarshalJSON() ([]byte, error) {
	switch c.Kind {
	case Timer:
		return json.Marshal(struct {
			Kind Kind        `json:"kind"`
			At   event.Stamp `json:"at"`
		}{c.Kind, event.Stamp(c.At)})
	case ExternalEvent:
		return json.Marshal(struct {
			Kind          Kind   `json:"kind"`
			Topic         string `json:"topic"`
			CorrelationID string `json:"correlation_id"`
		}{c.Kind, c.Topic, c.CorrelationID})
	case Manual:
		return json.Marshal(struct {
			Kind Kind `json:"kind"`
		}{c.Kind})
	case Any, All:
		return json.Marshal(struct {
			Kind Kind        `json:"kind"`
			Of   []Condition `json:"of"`
		}{c.Kind, c.Of})
	default:
		return nil, fmt.Errorf("wait: no condition has the kind %q", c.Kind)
	}
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Condition) UnmarshalJSON(b []byte) error {
	parsed, err := Parse(b, "")
	*c = parsed
	return err
}
