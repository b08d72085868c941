package flow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/merge"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// facts returns an empty fact of each type that moves a flow's revision.
var facts = map[event.Type]func() fact{
	event.FlowCreated:         func() fact { return &created{} },
	event.FlowStarted:         func() fact { return &started{} },
	event.FlowStateUpdated:    func() fact { return &stateUpdated{} },
	event.FlowWaiting:         func() fact { return &waiting{} },
	event.FlowResumed:         func() fact { return &resumed{} },
	event.FlowFinished:        func() fact { return &finished{} },
	event.FlowFailed:          func() fact { return &failed{} },
	event.FlowCancelRequested: func() fact { return &cancelRequested{} },
	event.FlowCancelled:       func() fact { return &cancelled{} },
	event.FlowReplaced:        func() fact { return &replaced{} },
	event.FlowReplayed:        func() fact { return &replayed{} },
	event.FlowTagSet:          func() fact { return &tagSet{} },
}

type created struct {
	Goal            string            `json:"goal"`
	Kind            string            `json:"kind"`
	ControllerID    string            `json:"controller_id"`
	OwnerSessionKey string            `json:"owner_session_key"`
	RequesterOrigin string            `json:"requester_origin"`
	CurrentStep     string            `json:"current_step"`
	State           json.RawMessage   `json:"state"`
	Tags            map[string]string `json:"tags,omitempty"`
	AutoFinish      bool              `json:"auto_finish,omitempty"`
	Limits          *execution.Limits `json:"limits,omitempty"`
}

func (created) tells() event.Type { return event.FlowCreated }

func (x created) apply(f *Flow, by event.By) {
	f.Goal, f.Kind, f.ControllerID, f.OwnerSessionKey, f.RequesterOrigin = x.Goal, x.Kind, x.ControllerID, x.OwnerSessionKey, x.RequesterOrigin
	f.CurrentStep, f.State, f.Tags, f.AutoFinish, f.Limits = x.CurrentStep, x.State, x.Tags, x.AutoFinish, x.Limits
	f.Status, f.CreatedAt = Created, by.At
}

type started struct{}

func (started) tells() event.Type { return event.FlowStarted }

func (started) apply(f *Flow, _ event.By) { f.Status = Running }

type stateUpdated struct {
	Patch       json.RawMessage `json:"patch,omitempty"`
	Merge       Merge           `json:"merge,omitempty"`
	CurrentStep *string         `json:"current_step,omitempty"`
}

func (stateUpdated) tells() event.Type { return event.FlowStateUpdated }

func (x stateUpdated) apply(f *Flow, _ event.By) {
	if x.Patch != nil {
		f.State = x.Merge.apply(f.State, x.Patch)
	}
	if x.CurrentStep != nil {
		f.CurrentStep = *x.CurrentStep
	}
}

type waiting struct {
	WaitID    uuid.UUID      `json:"wait_id"`
	Condition wait.Condition `json:"condition"`
	Deadline  event.Stamp    `json:"deadline,omitzero"`
	OnTimeout wait.OnTimeout `json:"on_timeout"`
}

func (waiting) tells() event.Type { return event.FlowWaiting }

func (x waiting) apply(f *Flow, by event.By) {
	f.Status = Waiting
	f.Wait = &Wait{ID: x.WaitID, Since: by.At, Spec: wait.Spec{Condition: x.Condition, Deadline: x.Deadline.Time(), OnTimeout: x.OnTimeout}}
}

type resumed struct {
	WaitID        uuid.UUID       `json:"wait_id"`
	By            ResumedBy       `json:"by"`
	EventID       string          `json:"event_id,omitempty"`
	Topic         string          `json:"topic,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	Earlier       []wait.Signal   `json:"earlier,omitempty"` // events that met other parts of the condition before
	StatePatch    json.RawMessage `json:"state_patch,omitempty"`
}

func (resumed) tells() event.Type { return event.FlowResumed }

func (x resumed) apply(f *Flow, _ event.By) {
	f.Status, f.Wait = Running, nil
	if x.Payload != nil {
		f.State = merge.Set(f.State, resumeEvent, x.Payload)
	}
	if x.StatePatch != nil {
		f.State = merge.Shallow(f.State, x.StatePatch)
	}
}

type finished struct {
	StatePatch json.RawMessage `json:"state_patch,omitempty"`
}

func (finished) tells() event.Type { return event.FlowFinished }

func (x finished) apply(f *Flow, _ event.By) {
	f.Status = Finished
	if x.StatePatch != nil {
		f.State = merge.Shallow(f.State, x.StatePatch)
	}
}

type failed struct {
	Reason string    `json:"reason"`
	WaitID uuid.UUID `json:"wait_id,omitzero"` // of the wait that this ended
}

func (failed) tells() event.Type { return event.FlowFailed }

func (x failed) apply(f *Flow, by event.By) {
	f.Status, f.Wait = Failed, nil
	f.Failure = &Failure{Reason: x.Reason, At: by.At}
}

type cancelRequested struct {
	Reason string `json:"reason,omitempty"`
}

func (cancelRequested) tells() event.Type { return event.FlowCancelRequested }

func (x cancelRequested) apply(f *Flow, by event.By) {
	f.CancelRequested = true
	f.Cancellation = &Cancellation{Reason: x.Reason, Actor: by.Actor, RequestedAt: by.At}
}

type cancelled struct {
	Policy  CancelPolicy `json:"policy"`
	Reason  string       `json:"reason,omitempty"`
	GraceMS int64        `json:"grace_ms,omitempty"`
	WaitID  uuid.UUID    `json:"wait_id,omitzero"` // of the wait that this ended
}

func (cancelled) tells() event.Type { return event.FlowCancelled }

// apply keeps who asked first; the policy is that of the cancellation itself, and so is the reason if none was given before.
func (x cancelled) apply(f *Flow, by event.By) {
	c := Cancellation{Actor: by.Actor, RequestedAt: by.At}
	if f.Cancellation != nil {
		c = *f.Cancellation
	}
	c.Policy = x.Policy
	if x.GraceMS > 0 {
		c.GraceUntil = by.At.Add(time.Duration(x.GraceMS) * time.Millisecond)
	}
	if c.Reason == "" {
		c.Reason = x.Reason
	}
	f.Status, f.Wait, f.Cancellation = Cancelled, nil, &c
}

type replayed struct {
	ExecutionIDs []uuid.UUID `json:"execution_ids"` // the first hundred
	Members      int         `json:"members"`
}

func (replayed) tells() event.Type { return event.FlowReplayed }

func (replayed) apply(f *Flow, _ event.By) {
	f.Status, f.Failure, f.CancelRequested, f.Cancellation, f.EndedAt = Running, nil, false, nil, time.Time{}
}

type replaced struct {
	Changed         []string          `json:"changed"` // the fields, each with its new value below
	Goal            string            `json:"goal,omitempty"`
	Kind            string            `json:"kind,omitempty"`
	ControllerID    string            `json:"controller_id,omitempty"`
	OwnerSessionKey string            `json:"owner_session_key,omitempty"`
	RequesterOrigin string            `json:"requester_origin,omitempty"`
	CurrentStep     string            `json:"current_step,omitempty"`
	State           json.RawMessage   `json:"state,omitempty"`
	Tags            map[string]string `json:"tags,omitempty"`
	Status          Status            `json:"status,omitempty"`
	Wait            *waiting          `json:"wait,omitempty"`
	WaitID          uuid.UUID         `json:"wait_id,omitzero"` // of the wait that this ended
}

func (replaced) tells() event.Type { return event.FlowReplaced }

func (x replaced) apply(f *Flow, by event.By) {
	for _, p := range []struct {
		field string
		to    *string
		value string
	}{
		{fieldGoal, &f.Goal, x.Goal}, {fieldKind, &f.Kind, x.Kind}, {fieldControllerID, &f.ControllerID, x.ControllerID},
		{fieldOwnerSessionKey, &f.OwnerSessionKey, x.OwnerSessionKey}, {fieldRequesterOrigin, &f.RequesterOrigin, x.RequesterOrigin},
		{fieldCurrentStep, &f.CurrentStep, x.CurrentStep},
	} {
		if slices.Contains(x.Changed, p.field) {
			*p.to = p.value
		}
	}
	if slices.Contains(x.Changed, fieldState) {
		f.State = x.State
	}
	if slices.Contains(x.Changed, fieldTags) {
		f.Tags = x.Tags
	}
	if slices.Contains(x.Changed, fieldStatus) {
		x.transition(f).apply(f, by)
	}
}

// transition returns what the verb of the new status would have stated.
func (x replaced) transition(f *Flow) fact {
	switch x.Status {
	case Waiting:
		return *x.Wait
	case Finished:
		return finished{}
	case Failed:
		return failed{Reason: reasonReplaced}
	case Cancelled:
		return cancelled{Policy: CancelAll}
	default: // running
		if f.Status == Waiting {
			return resumed{}
		}
		return started{}
	}
}

type tagSet struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (tagSet) tells() event.Type { return event.FlowTagSet }

func (x tagSet) apply(f *Flow, _ event.By) { f.Tags = tag.With(f.Tags, x.Key, x.Value) }
