package wait

import (
	"bytes"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Event is what somebody outside reports. Its payload is compact JSON, nil when there is none.
type Event struct {
	ID            string          `json:"event_id"`
	Topic         string          `json:"topic"`
	CorrelationID string          `json:"correlation_id"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	FlowID        uuid.UUID       `json:"-"` // the only flow that it is for, else uuid.Nil
}

// Compact returns a document without white space between its tokens, nil for none. What is not JSON comes back as it was.
func Compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(doc) == 0 || json.Compact(&b, doc) != nil {
		return doc
	}
	return b.Bytes()
}

// Key returns what the event is matched by.
func (e *Event) Key() Key { return Key{Topic: e.Topic, CorrelationID: e.CorrelationID} }

// Check refuses, with CodeValidationFailed, an event that no condition could match.
func (e *Event) Check() error {
	if err := checkName(fault.CodeValidationFailed, e.Topic, "", "topic"); err != nil {
		return err
	}
	return checkName(fault.CodeValidationFailed, e.CorrelationID, "", "correlation_id")
}

// Receipt says what became of an event.
type Receipt struct {
	EventID  string  `json:"event_id"`
	Matched  []Match `json:"matched"`
	Buffered bool    `json:"buffered"` // nobody waited for it: it is kept for the first wait that matches
	Replayed bool    `json:"-"`        // this is the answer of an earlier delivery, and nothing was done
}

// Match is a wait that an event reached.
type Match struct {
	FlowID uuid.UUID `json:"flow_id"`
	WaitID uuid.UUID `json:"wait_id"`
}
