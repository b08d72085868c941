package event

import (
	"encoding/json"
	"time"
)

// Stamp is a time as documents spell it: RFC 3339 in UTC, with milliseconds.
type Stamp time.Time

const stampLayout = "2006-01-02T15:04:05.000Z"

func (s Stamp) String() string { return time.Time(s).UTC().Format(stampLayout) }

// MarshalJSON writes the time.
func (s Stamp) MarshalJSON() ([]byte, error) {
	return time.Time(s).UTC().AppendFormat(nil, `"`+stampLayout+`"`), nil
}

// UnmarshalJSON reads any RFC 3339 time and cuts it to milliseconds.
func (s *Stamp) UnmarshalJSON(b []byte) error {
	var t time.Time
	err := json.Unmarshal(b, &t)
	*s = Stamp(t.UTC().Truncate(time.Millisecond))
	return err
}

// IsZero says whether there is no time; encoding/json then leaves it out (omitzero).
func (s Stamp) IsZero() bool { return time.Time(s).IsZero() }

// Time returns the time.
func (s Stamp) Time() time.Time { return time.Time(s) }
