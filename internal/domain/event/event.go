// Package event holds what every change of state writes down: the event, its type and the catalogue of types.
package event

//go:generate go run ../../tools/eventsdoc ../../../docs/events.md

import (
	"strings"
	"time"

	"github.com/google/uuid"
)

// Event is one fact about one resource. It is written in the transaction of the change that it tells.
//
// Emitters fill in what they know; the transaction adds id, time, actor and trace.
type Event struct {
	ID          int64 // place in the log; 0 until it is read from there
	At          time.Time
	Namespace   string
	Type        Type
	FlowID      uuid.UUID // uuid.Nil where it does not apply
	RunID       uuid.UUID
	ExecutionID uuid.UUID
	InstanceTag string
	Revision    *int64 // of the resource, after the change
	Actor       string
	Cause       int64 // id of the event that caused this one; 0 = a request did
	TraceID     string
	Data        any // a value that marshals to a JSON object; raw JSON when read from the log
	Schema      int // version of Data's shape

	Followed bool // what it tells of an execution is told to flows; not written down
}

// By is who does something, and when.
type By struct {
	Actor string
	At    time.Time
}

// Type names what happened: "flow.started".
type Type string

// Topic groups types for subscribers.
type Topic string

// Custom is the prefix of the types that clients append to a flow's trail themselves.
const Custom = "custom."

// Topic returns the topic of t, "" for a type that is not in the catalogue.
func (t Type) Topic() Topic {
	if strings.HasPrefix(string(t), Custom) {
		return TopicFlow
	}
	return topics[t]
}

var topics = func() map[Type]Topic {
	m := make(map[Type]Topic, len(catalogue))
	for _, e := range catalogue {
		m[e.Type] = e.Topic
	}
	return m
}()

// Entry is one line of the catalogue.
type Entry struct {
	Type  Type
	Topic Topic
	About string // when it is written
	Data  string // the members of its data
}

// Catalogue returns every type, topic by topic. docs/events.md is generated from it.
func Catalogue() []Entry { return catalogue[:] }
