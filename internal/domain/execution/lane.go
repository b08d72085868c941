package execution

import (
	"time"

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

// LaneStatus is a lane with what stands in it.
type LaneStatus struct {
	Lane
	Depth     int64     // how many executions a worker could have, lost ones included
	OldestAt  time.Time // when the oldest of them was created
	Completed int64     // how many have ended within Window
	Window    time.Duration
}
