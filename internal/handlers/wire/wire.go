// Package wire holds the types whose form in JSON differs from Go's own: times with exactly three digits, and members
// that tell null from absent. The generated code refers to it.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Layout is the form of a time in answers, in UTC.
const Layout = "2006-01-02T15:04:05.000Z"

// The years of times that are read, in UTC: those with four digits. A later one could not be written again, and the zero time
// stands for none.
const (
	firstYear = 1000
	lastYear  = 9999
)

// errYear is the one thing that can be wrong with a time that is to be written.
var errYear = errors.New("wire: the year of a time is outside 0 … 9999")

// Time is a time that is written as RFC 3339 in UTC with milliseconds and read as any RFC 3339, cut to milliseconds.
// It converts from and to [time.Time], also behind a pointer.
type Time time.Time

// FromMillis returns the time that is ms milliseconds after the Unix epoch.
func FromMillis(ms int64) Time { return Time(time.UnixMilli(ms).UTC()) }

// Parse reads an RFC 3339 time, cuts it to milliseconds and turns it into UTC.
func Parse(s string) (Time, error) {
	var t Time
	err := t.UnmarshalText([]byte(s))
	return t, err
}

// Time returns t as Go knows it.
func (t Time) Time() time.Time { return time.Time(t) }

// UnixMilli returns the milliseconds from the Unix epoch to t.
func (t Time) UnixMilli() int64 { return time.Time(t).UnixMilli() }

// Equal says whether t and u are the same instant.
func (t Time) Equal(u Time) bool { return time.Time(t).Equal(time.Time(u)) }

// IsZero says whether t is the zero time.
func (t Time) IsZero() bool { return time.Time(t).IsZero() }

// String returns t as it is written.
func (t Time) String() string { return time.Time(t).UTC().Format(Layout) }

// AppendText appends t as it is written to b. It fails on a year that RFC 3339 cannot write.
func (t Time) AppendText(b []byte) ([]byte, error) {
	u := time.Time(t).UTC()
	year, month, day := u.Date()
	if year < 0 || year > 9999 {
		return b, errYear
	}
	hour, minute, second := u.Clock()
	milli := u.Nanosecond() / int(time.Millisecond)
	// By hand: a layout is parsed anew for every time, and an execution has half a dozen of them.
	return append(b,
		digit(year/1000), digit(year/100), digit(year/10), digit(year), '-',
		digit(int(month)/10), digit(int(month)), '-', digit(day/10), digit(day), 'T',
		digit(hour/10), digit(hour), ':', digit(minute/10), digit(minute), ':', digit(second/10), digit(second), '.',
		digit(milli/100), digit(milli/10), digit(milli), 'Z'), nil
}

// digit returns the last decimal digit of n.
func digit(n int) byte { return byte('0' + n%10) }

// MarshalText returns t as it is written.
func (t Time) MarshalText() ([]byte, error) {
	return t.AppendText(make([]byte, 0, len(Layout)))
}

// MarshalJSON returns t as it is written, in quotes.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 1, len(Layout)+2)
	b[0] = '"'
	b, err := t.AppendText(b)
	if err != nil {
		return nil, err
	}
	return append(b, '"'), nil
}

// UnmarshalText reads an RFC 3339 time. Its letters may be in lower case, as the RFC allows.
func (t *Time) UnmarshalText(b []byte) error {
	var u time.Time
	if err := u.UnmarshalText(bytes.ToUpper(b)); err != nil {
		return fmt.Errorf("wire: not an RFC 3339 time: %w", err)
	}
	u = u.UTC().Truncate(time.Millisecond)
	if u.Year() < firstYear || u.Year() > lastYear {
		return fmt.Errorf("wire: the year of a time is outside %d … %d", firstYear, lastYear)
	}
	*t = Time(u)
	return nil
}

// UnmarshalJSON reads an RFC 3339 time in quotes; null leaves t alone, as encoding/json has it.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("wire: a time is a string: %w", err)
	}
	return t.UnmarshalText([]byte(s))
}

// Field is a member of a request that may be absent, null, or a value.
type Field[T any] struct {
	Present bool // the member was there
	Value   *T   // nil when it was null, or absent
}

// Some returns a field with a value.
func Some[T any](v T) Field[T] { return Field[T]{Present: true, Value: &v} }

// Null returns a field that is null.
func Null[T any]() Field[T] { return Field[T]{Present: true} }

// IsZero says whether the member was absent; encoding/json then leaves it out (omitzero).
func (f Field[T]) IsZero() bool { return !f.Present }

// MarshalJSON writes the value, or null.
func (f Field[T]) MarshalJSON() ([]byte, error) { return json.Marshal(f.Value) }

// UnmarshalJSON reads the value, or null.
func (f *Field[T]) UnmarshalJSON(b []byte) error {
	var v *T
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*f = Field[T]{Present: true, Value: v}
	return nil
}
