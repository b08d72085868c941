package wait

import (
	"bytes"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Signal is what somebody outside reports. It reaches waits by a topic and a correlation id, as an external event, or by a
// waitpoint. Its payload is compact JSON, nil when there is none.
type Signal struct {
	ID            string          `json:"event_id"`
	Topic         string          `json:"topic,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	FlowID        uuid.UUID       `json:"-"` // the only flow that it is for, else uuid.Nil

	Waitpoint      string `json:"waitpoint_key,omitempty"`
	Name           string `json:"signal_name,omitempty"`
	SourceType     string `json:"source_type,omitempty"`
	SourceIdentity string `json:"source_identity,omitempty"`
}

// Compact returns a document without white space between its tokens, nil for none. What is not JSON comes back as it was.
func Compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if len(doc) == 0 || json.Compact(&b, doc) != nil {
		return doc
	}
	return b.Bytes()
}

// Key returns what an external event is matched by.
func (s *Signal) Key() Key { return Key{Topic: s.Topic, CorrelationID: s.CorrelationID} }

// Check refuses, with CodeValidationFailed, an external event that no condition could match.
func (s *Signal) Check() error {
	if err := checkName(fault.CodeValidationFailed, s.Topic, "", "topic"); err != nil {
		return err
	}
	return checkName(fault.CodeValidationFailed, s.CorrelationID, "", "correlation_id")
}

// Effect is what a signal did to a wait. reference: executions.md 2.17.
type Effect string

// The effects.
const (
	Satisfied      Effect = "resume_condition_satisfied"
	Appended       Effect = "appended_to_waitpoint"           // it counts
	Duplicate      Effect = "appended_to_waitpoint_duplicate" // the likes of it have counted
	NotInCondition Effect = "signal_ignored_not_in_condition" // nothing listens to where it came from
	MatcherFailed  Effect = "signal_ignored_matcher_failed"   // what listens there wants another name
	Ignored        Effect = "no_op"                           // no signal can satisfy what is waited for
	Buffered       Effect = "buffered_for_pending_waitpoint"  // nobody waits yet
)

// Receipt says what became of an external event.
type Receipt struct {
	EventID  string  `json:"event_id"`
	Matched  []Match `json:"matched"`
	Buffered bool    `json:"buffered"` // nobody waited for it: it is kept for the first wait that matches
	Replayed bool    `json:"-"`        // this is the answer of an earlier delivery, and nothing was done
}

// Match is a wait that an external event reached.
type Match struct {
	FlowID uuid.UUID `json:"flow_id"`
	WaitID uuid.UUID `json:"wait_id"`
}
