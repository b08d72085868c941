package wire

import (
	"time"

	"github.com/google/uuid"
)

// What a resource does not have is null on the wire, and the zero value in the domain.

// TimeOrNull returns t, nil for the zero time.
func TimeOrNull(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return new(Time(t))
}

// IDOrNull returns id, nil for uuid.Nil.
func IDOrNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// TextOrNull returns s, nil for the empty string.
func TextOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Tags returns t, empty for nil.
func Tags(t map[string]string) map[string]string {
	if t == nil {
		return map[string]string{}
	}
	return t
}
