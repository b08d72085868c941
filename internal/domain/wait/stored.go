package wait

import (
	"encoding/json"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// spelled is a condition as it is stored. What clients write of it is read by [Parse] and [ParseResume].
type spelled struct {
	Kind          Kind        `json:"kind"`
	At            event.Stamp `json:"at,omitzero"`
	Topic         string      `json:"topic,omitempty"`
	CorrelationID string      `json:"correlation_id,omitempty"`
	Waitpoints    []string    `json:"waitpoints,omitempty"`
	Name          string      `json:"name,omitempty"`
	N             int         `json:"n,omitempty"`
	Distinct      Distinct    `json:"distinct,omitempty"`
	Of            []Condition `json:"of,omitempty"`
}

// MarshalJSON writes the condition; that of a flow as [Parse] reads it.
func (c Condition) MarshalJSON() ([]byte, error) {
	return json.Marshal(spelled{c.Kind, event.Stamp(c.At), c.Topic, c.CorrelationID, c.Waitpoints, c.Name, c.N, c.Distinct, c.Of})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Condition) UnmarshalJSON(b []byte) error {
	var s spelled
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*c = Condition{s.Kind, s.At.Time(), s.Topic, s.CorrelationID, s.Waitpoints, s.Name, s.N, s.Distinct, s.Of}
	return c.check()
}

// check refuses a condition that nobody can have written.
func (c *Condition) check() error {
	switch {
	case c.composite() && len(c.Of) > 0, c.Kind == Timer && !c.At.IsZero(), c.Kind == ExternalEvent && c.Topic != "" && c.CorrelationID != "",
		c.Kind == SignalOn && len(c.Waitpoints) == 1, c.Kind == Count && c.N > 0 && len(c.Waitpoints) > 0 && c.Distinct != "", c.Kind == Manual, c.Kind == Never:
		return nil
	}
	return refuse("", "There is no such condition of the kind %q.", c.Kind)
}
