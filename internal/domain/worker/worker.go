// Package worker holds the register of workers: who says that it lives, where it works, what it can do, and until when that is
// believed. Nobody must register in order to claim.
package worker

import (
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Worker is one process on the register. One without a WorkerID stands for nobody: only its place, Namespace and InstanceID,
// is known.
type Worker struct {
	Namespace     string
	InstanceID    string
	WorkerID      string
	Lanes         []string // sorted; none means all
	Capabilities  execution.Capabilities
	TTL           time.Duration
	RegisteredAt  time.Time
	HeartbeatAt   time.Time
	ExpiresAt     time.Time
	DrainingSince time.Time // zero unless it drains
}

// Registration is what a worker says of itself.
type Registration struct {
	InstanceID   string
	WorkerID     string
	Lanes        []string
	Capabilities []string
	TTL          time.Duration
}

// Registered is the answer to a registration. New says that nobody was registered there.
type Registered struct {
	Worker Worker
	New    bool
}

// Filter selects workers. Empty fields select everything.
type Filter struct {
	WorkerID string
	Lane     string
}

// Change is what a transition does: the worker after it, and the events that tell it. A heartbeat has none.
type Change struct {
	Worker Worker
	Events []event.Event
}

// Live says whether the last heartbeat is still believed.
func (w Worker) Live(now time.Time) bool { return now.Before(w.ExpiresAt) }

// Draining says whether w is to get no more work.
func (w Worker) Draining() bool { return !w.DrainingSince.IsZero() }

// Check returns CodeWorkerNotRegistered unless w is live.
func (w Worker) Check(now time.Time) error {
	if w.Live(now) {
		return nil
	}
	return fault.New(fault.CodeWorkerNotRegistered, "The worker %s is not registered, or its registration has lapsed. Register it with PUT.", fault.Readable(w.InstanceID))
}

// Register takes down what a worker says of itself: anew where nobody lives, else in place of what it said before. Since when
// it is registered, and that it drains, stays. It returns CodeInvalidCapabilities, and CodeWorkerReassigned when another
// worker lives there. reference: executions.md 2.20.
func (w Worker) Register(in Registration, now time.Time) (c Change, made bool, err error) {
	capabilities, err := execution.NewCapabilities(in.Capabilities, "worker", "/capabilities")
	if err != nil {
		return Change{}, false, err
	}
	made = !w.Live(now)
	if !made && w.WorkerID != in.WorkerID {
		return Change{}, false, fault.New(fault.CodeWorkerReassigned, "The instance %s belongs to the worker %s. Choose another instance id, or take that one off the register first.",
			fault.Readable(w.InstanceID), fault.Readable(w.WorkerID)).With("worker_id", w.WorkerID)
	}
	c.Worker = w
	if made {
		c.Worker = Worker{Namespace: w.Namespace, InstanceID: w.InstanceID, WorkerID: in.WorkerID, RegisteredAt: now}
	}
	n := &c.Worker
	n.Lanes, n.Capabilities, n.TTL = slices.Compact(slices.Sorted(slices.Values(in.Lanes))), capabilities, in.TTL
	n.beat(now)
	if made || !slices.Equal(n.Lanes, w.Lanes) || !slices.Equal(n.Capabilities, w.Capabilities) || n.TTL != w.TTL {
		c.emit(event.WorkerRegistered, struct {
			identity
			Lanes        []string `json:"lanes"`
			Capabilities []string `json:"capabilities"`
			TTLMs        int64    `json:"liveness_ttl_ms"`
		}{n.identity(""), List(n.Lanes), List(n.Capabilities), n.TTL.Milliseconds()})
	}
	return c, made, nil
}

// Heartbeat prolongs a registration. It returns CodeWorkerNotRegistered.
func (w Worker) Heartbeat(now time.Time) (Change, error) {
	if err := w.Check(now); err != nil {
		return Change{}, err
	}
	w.beat(now)
	return Change{Worker: w}, nil
}

// Drain ends the giving of work to w, until it is off the register. It changes nothing when w drains already. It returns
// CodeWorkerNotRegistered.
func (w Worker) Drain(reason string, now time.Time) (Change, error) {
	c := Change{Worker: w}
	if err := w.Check(now); err != nil || w.Draining() {
		return c, err
	}
	c.Worker.DrainingSince = now
	c.emit(event.WorkerDrained, w.identity(reason))
	return c, nil
}

// Remove takes w off the register. What it holds stays its own. It returns CodeWorkerNotRegistered.
func (w Worker) Remove(reason string, now time.Time) (Change, error) {
	if err := w.Check(now); err != nil {
		return Change{}, err
	}
	return w.leave(event.WorkerRemoved, reason), nil
}

// Lapse takes w off the register when its heartbeat is not believed any longer, and says whether that is so.
func (w Worker) Lapse(now time.Time) (Change, bool) {
	if w.WorkerID == "" || w.Live(now) {
		return Change{}, false
	}
	return w.leave(event.WorkerHeartbeatLost, ""), true
}

func (w *Worker) beat(now time.Time) { w.HeartbeatAt, w.ExpiresAt = now, now.Add(w.TTL) }

// leave empties w's place.
func (w Worker) leave(t event.Type, reason string) Change {
	c := Change{Worker: Worker{Namespace: w.Namespace, InstanceID: w.InstanceID}}
	c.emit(t, w.identity(reason))
	return c
}

// identity is what every event tells of a worker.
type identity struct {
	InstanceID string `json:"worker_instance_id"`
	WorkerID   string `json:"worker_id"`
	Reason     string `json:"reason,omitempty"`
}

func (w Worker) identity(reason string) identity { return identity{w.InstanceID, w.WorkerID, reason} }

func (c *Change) emit(t event.Type, data any) {
	c.Events = append(c.Events, event.Event{Namespace: c.Worker.Namespace, Type: t, Data: data})
}

// List returns names, empty for nil: lists are never null.
func List(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
