package flow

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Flow is a goal and what has become of it. Its documents are compact JSON.
type Flow struct {
	ID              uuid.UUID
	Namespace       string
	Kind            string
	ControllerID    string
	Goal            string
	OwnerSessionKey string
	RequesterOrigin string
	CurrentStep     string
	State           json.RawMessage
	Wait            *Wait // nil unless it is waiting
	Status          Status
	CancelRequested bool  // once set it stays
	Revision        int64 // grows by one with every fact
	Cancellation    *Cancellation
	Failure         *Failure
	Tags            map[string]string // nil when there are none
	AutoFinish      bool
	Limits          *execution.Limits // that count for its members
	CreatedAt       time.Time
	UpdatedAt       time.Time
	EndedAt         time.Time // zero until it ends
	History         History

	// What moves without the revision, so that a controller's compare-and-set is not disturbed by its workers.
	GraphRevision int64
	NodeCount     int64
	EdgeCount     int64
	Rollup        *Rollup // nil without members
}

// Wait is what a waiting flow waits for.
type Wait struct {
	ID uuid.UUID
	wait.Spec
	Since time.Time
}

// Cancellation is who asked for the end of a flow first, and why. Policy is "" while it has only been requested.
type Cancellation struct {
	Policy      CancelPolicy `json:"policy,omitempty"`
	Reason      string       `json:"reason,omitempty"`
	Actor       string       `json:"actor"`
	RequestedAt time.Time    `json:"requested_at"`
	GraceUntil  time.Time    `json:"grace_until,omitzero"` // for the workers of members that were held
}

// CancelPolicy says what becomes of the members of a flow that is cancelled.
type CancelPolicy string

// The policies.
const (
	FlowOnly      CancelPolicy = "flow_only"      // nothing
	CancelAll     CancelPolicy = "cancel_all"     // all that have not ended are cancelled
	CancelPending CancelPolicy = "cancel_pending" // all that nobody is working on are cancelled
)

// Failure is why a flow failed.
type Failure struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Change is what a verb does: the flow after it, and the events that tell it. Without events nothing has changed.
type Change struct {
	Flow   Flow
	Events []event.Event
}

// fact is one thing that became true of a flow. It is the data of the event that tells it.
type fact interface {
	// tells returns the type of that event.
	tells() event.Type
	// apply makes the fact true of f, which is a copy.
	apply(f *Flow, by event.By)
}

// record makes a fact true: the flow goes one revision further, and one event says so.
func (f Flow) record(x fact, by event.By) Change {
	next := f.after(x, by)
	return Change{Flow: next, Events: []event.Event{next.event(x, by)}}
}

// after returns f with a fact made true.
func (f Flow) after(x fact, by event.By) Flow {
	next := f
	x.apply(&next, by)
	next.Revision++
	next.UpdatedAt = by.At
	if next.Status.Terminal() {
		next.EndedAt = by.At
		if f.Status.Terminal() {
			next.EndedAt = f.EndedAt
		}
	}
	if next.Revision > 0 {
		next.History = f.History.with(next.Revision, differences(&f, &next))
	}
	return next
}

func (f *Flow) event(x fact, by event.By) event.Event {
	revision := f.Revision
	return event.Event{
		At: by.At, Namespace: f.Namespace, Type: x.tells(), FlowID: f.ID, InstanceTag: f.Tags[tag.Instance],
		Revision: &revision, Actor: by.Actor, Data: x,
	}
}

// Gone returns the event that tells of the deletion of a flow: [event.FlowDeleted] or [event.FlowPruned]. It has no
// revision.
func (f *Flow) Gone(t event.Type) event.Event {
	return f.Event(t, struct {
		Status Status `json:"status"`
	}{f.Status})
}
