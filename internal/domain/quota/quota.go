// Package quota holds how many executions may begin within a time, and how many may be at work at once. It is pure: time is an
// argument.
//
// A start counts from its instant on until the window has passed; the windows slide. A slot is held until the execution ends.
// reference: flows-streams-budgets.md 6.8, 6.9.
package quota

import (
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
)

// Bounds.
const (
	MinWindow     = time.Second
	MaxWindow     = 31 * 24 * time.Hour
	DefaultWindow = time.Minute
	MaxJitter     = MaxWindow
	MaxLimit      = 1<<53 - 1
)

// Quota is a limit on executions. It never changes.
type Quota struct {
	ID            uuid.UUID
	Namespace     string
	Window        time.Duration
	MaxRequests   int64         // starts within a window; 0 for any number
	MaxConcurrent int64         // slots; 0 for any number
	Jitter        time.Duration // what is added, at random, to the time after which a refused start is tried again
	KeyTag        string        // the tag by whose values it counts; "" for one that counts all alike
	Active        int64         // slots that are held
	CreatedAt     time.Time
}

// Create is what a new quota is made of.
type Create struct {
	ID            uuid.UUID
	Namespace     string
	Window        time.Duration // 0 for [DefaultWindow]
	MaxRequests   int64
	MaxConcurrent int64
	Jitter        time.Duration
	KeyTag        string
}

// Creation is a quota, and whether it was there before.
type Creation struct {
	Quota    Quota
	Existing bool
}

// Admission is a slot that an execution holds.
type Admission struct {
	ExecutionID uuid.UUID
	Key         string // the value that it counts under
	AdmittedAt  time.Time
}

// New returns a quota that nobody has made use of. It returns CodeValidationFailed or CodeInvalidTagKey, pointing at what cannot be.
func New(in Create, now time.Time) (Quota, []event.Event, error) {
	q := Quota{
		ID: in.ID, Namespace: in.Namespace, Window: in.Window, MaxRequests: in.MaxRequests, MaxConcurrent: in.MaxConcurrent,
		Jitter: in.Jitter, KeyTag: in.KeyTag, CreatedAt: now,
	}
	if q.Window == 0 {
		q.Window = DefaultWindow
	}
	if q.KeyTag != "" {
		if err := tag.CheckKey(q.KeyTag, "/key_tag"); err != nil {
			return Quota{}, nil, err
		}
	}
	for _, bound := range []struct {
		name          string
		n, least, top int64
	}{
		{"window_seconds", int64(q.Window / time.Second), int64(MinWindow / time.Second), int64(MaxWindow / time.Second)},
		{"max_requests_per_window", q.MaxRequests, 0, MaxLimit},
		{"max_concurrent", q.MaxConcurrent, 0, MaxLimit},
		{"jitter_ms", q.Jitter.Milliseconds(), 0, MaxJitter.Milliseconds()},
	} {
		if bound.n < bound.least || bound.n > bound.top {
			return Quota{}, nil, fault.Invalid(fault.CodeValidationFailed, "/"+bound.name, "%s must be %d to %d; it is %d.", bound.name, bound.least, bound.top, bound.n)
		}
	}
	return q, []event.Event{q.tell(event.QuotaCreated, uuid.Nil, created{
		q.ID, int64(q.Window / time.Second), q.MaxRequests, q.MaxConcurrent, q.Jitter.Milliseconds(), q.KeyTag,
	})}, nil
}
