package execution

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// Lane is the queue that executions wait in.
type Lane struct {
	Namespace string
	Name      string
	State     LaneState
	Reason    string // why it is paused
	Actor     string // who paused it
	ChangedAt time.Time
	Revision  int64
	Quotas    []QuotaRef // for whatever stands in it
}

// LaneState says whether executions of a lane can be claimed.
type LaneState string

// The states.
const (
	LaneActive LaneState = "active"
	LanePaused LaneState = "paused"
)

// LaneChange is what becomes of a lane, and the events that tell it.
type LaneChange struct {
	Lane   Lane
	Events []event.Event
}

// Turn pauses or resumes l. What is so already stays as it is.
func (l Lane) Turn(state LaneState, reason, actor string, now time.Time) LaneChange {
	if l.State == state {
		return LaneChange{Lane: l}
	}
	l.State, l.Reason, l.Actor, l.ChangedAt = state, "", "", now
	kind := event.LaneResumed
	if state == LanePaused {
		l.Reason, l.Actor = reason, actor
		kind = event.LanePaused
	}
	l.Revision++
	return LaneChange{Lane: l, Events: []event.Event{{Namespace: l.Namespace, Type: kind, Revision: &l.Revision, Data: struct {
		Lane   string `json:"lane"`
		Reason string `json:"reason,omitempty"`
	}{l.Name, reason}}}}
}

// Limit gives l other quotas. The same ones change nothing.
func (l Lane) Limit(quotas []QuotaRef) LaneChange {
	if slices.Equal(l.Quotas, quotas) {
		return LaneChange{Lane: l}
	}
	l.Quotas = quotas
	l.Revision++
	ids := make([]uuid.UUID, len(quotas))
	for i, q := range quotas {
		ids[i] = q.ID
	}
	return LaneChange{Lane: l, Events: []event.Event{{Namespace: l.Namespace, Type: event.LaneUpdated, Revision: &l.Revision, Data: struct {
		Lane     string      `json:"lane"`
		QuotaIDs []uuid.UUID `json:"quota_policy_ids"`
	}{l.Name, ids}}}}
}

// LaneStatus is a lane with what stands in it.
type LaneStatus struct {
	Lane
	Depth     int64     // how many executions a worker could have, lost ones included
	OldestAt  time.Time // when the oldest of them was created
	Completed int64     // how many have ended within Window
	Window    time.Duration
}
