package flow

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// resumeEvent is the member of the state that takes the payload of the event that resumed the flow.
const resumeEvent = "resume_event"

// Reasons of what happens without a reason of somebody's own.
const (
	reasonTimeout  = "wait_timeout"
	reasonReplaced = "status_replaced"
)

// ResumedBy says what ended a wait.
type ResumedBy string

// What ends a wait.
const (
	ByRequest       ResumedBy = "request"
	ByTimer         ResumedBy = "timer"
	ByExternalEvent ResumedBy = "external_event"
	ByTimeout       ResumedBy = "timeout"
)

// Create is what a new flow is made of.
type Create struct {
	ID              uuid.UUID
	Namespace       string
	Kind            string
	ControllerID    string
	Goal            string
	OwnerSessionKey string
	RequesterOrigin string
	CurrentStep     string          // "" for init
	State           json.RawMessage // nil for {}
	Tags            map[string]string
	AutoFinish      bool
	Start           bool
	BudgetIDs       []uuid.UUID
	QuotaIDs        []uuid.UUID
	Limits          *execution.Limits // what these are, once they were looked up
}

// New returns a new flow: created at revision 0, or running at revision 1. It returns CodeValidationFailed for a blank goal,
// and CodeInvalidTagKey.
func New(in Create, by event.By) (Change, error) {
	if err := required(in.Goal, "goal"); err != nil {
		return Change{}, err
	}
	if err := tag.Check(in.Tags, "/tags"); err != nil {
		return Change{}, err
	}
	f := Flow{ID: in.ID, Namespace: in.Namespace, Revision: -1}
	c := f.record(created{
		Goal: in.Goal, Kind: in.Kind, ControllerID: in.ControllerID, OwnerSessionKey: in.OwnerSessionKey, RequesterOrigin: in.RequesterOrigin,
		CurrentStep: stepOr(in.CurrentStep), State: stateOr(in.State), Tags: tagsOf(in.Tags), AutoFinish: in.AutoFinish, Limits: in.Limits,
	}, by)
	if !in.Start {
		return c, nil
	}
	next, err := c.Flow.Start(by)
	next.Events = append(c.Events, next.Events...)
	return next, err
}

func required(s, name string) error {
	if strings.TrimSpace(s) == "" {
		return fault.Invalid(fault.CodeValidationFailed, "/"+name, "%s cannot be empty.", name)
	}
	return nil
}

func stepOr(step string) string {
	if step == "" {
		return "init"
	}
	return step
}

func stateOr(doc json.RawMessage) json.RawMessage {
	if doc == nil {
		return emptyObject
	}
	return compact(doc)
}

func tagsOf(tags map[string]string) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	return maps.Clone(tags)
}

// Start starts a created flow. As every verb it returns CodeAlreadyTerminal, CodeCancelPending or CodeIllegalTransition, in
// this order, when the flow's status does not allow it.
func (f Flow) Start(by event.By) (Change, error) {
	if err := f.guard(Running, Created); err != nil {
		return Change{}, err
	}
	return f.record(started{}, by), nil
}

// Park makes a running flow wait. The wait has the given id.
func (f Flow) Park(id uuid.UUID, spec wait.Spec, by event.By) (Change, error) {
	if err := f.guard(Waiting); err != nil {
		return Change{}, err
	}
	return f.record(parked(id, spec), by), nil
}

func parked(id uuid.UUID, spec wait.Spec) waiting {
	return waiting{WaitID: id, Condition: spec.Condition, Deadline: event.Stamp(spec.Deadline), OnTimeout: spec.OnTimeout}
}

// Resume ends the wait of a flow, whatever it waits for. The patch is merged shallowly; nil is none.
func (f Flow) Resume(patch json.RawMessage, by event.By) (Change, error) {
	if err := f.guard(Running, Waiting); err != nil {
		return Change{}, err
	}
	return f.record(resumed{WaitID: f.Wait.ID, By: ByRequest, StatePatch: compact(patch)}, by), nil
}

// Finish ends a flow well. The patch is merged shallowly first; nil is none. open is the number of members that have not
// ended: while there are any it returns CodeOpenMembers.
func (f Flow) Finish(patch json.RawMessage, open int, by event.By) (Change, error) {
	if err := f.guard(Finished); err != nil {
		return Change{}, err
	}
	if err := f.complete(open); err != nil {
		return Change{}, err
	}
	return f.record(finished{StatePatch: compact(patch)}, by), nil
}

// complete refuses to end a flow well that has open members.
func (f *Flow) complete(open int) error {
	if open == 0 {
		return nil
	}
	return fault.New(fault.CodeOpenMembers, "%d members of flow %s have not ended. Wait for them, or cancel or fail the flow.", open, f.ID).With("count", open)
}

// Fail ends a flow badly, also while its cancellation is requested. It returns CodeValidationFailed for a blank reason.
func (f Flow) Fail(reason string, by event.By) (Change, error) {
	if err := required(reason, "reason"); err != nil {
		return Change{}, err
	}
	if err := f.guard(Failed); err != nil {
		return Change{}, err
	}
	return f.record(failed{Reason: reason, WaitID: f.waitID()}, by), nil
}

// RequestCancel sets the intent to cancel, which stays. A second time, and on a flow that has ended, it changes nothing.
// reference: runs-and-taskflows.md B13 6.
func (f Flow) RequestCancel(reason string, by event.By) Change {
	if f.Status.Terminal() || f.CancelRequested {
		return Change{Flow: f}
	}
	return f.record(cancelRequested{Reason: reason}, by)
}

// Cancel ends a flow that has not ended. On a cancelled one it changes nothing: policy and reason stay as they were. On
// another ended one it returns CodeAlreadyTerminal.
func (f Flow) Cancel(req CancelRequest, by event.By) (Change, error) {
	if f.Status == Cancelled {
		return Change{Flow: f}, nil
	}
	if err := f.guard(Cancelled); err != nil {
		return Change{}, err
	}
	if f.Cancellation != nil && f.Cancellation.Reason != "" {
		req.Reason = f.Cancellation.Reason
	}
	return f.record(cancelled{Policy: req.Policy, Reason: req.Reason, GraceMS: req.GraceMS, WaitID: f.waitID()}, by), nil
}

// replayedShown bounds how many members an event names.
const replayedShown = 100

// Replay lets a failed or finished flow run again, because members of it do: the one way out of an end. On one that has not
// ended it changes nothing, and for a cancelled one it returns CodeAlreadyTerminal.
func (f Flow) Replay(members []uuid.UUID, by event.By) (Change, error) {
	switch {
	case f.Status == Cancelled:
		return Change{}, f.ended()
	case !f.Status.Terminal():
		return Change{Flow: f}, nil
	}
	return f.record(replayed{ExecutionIDs: members[:min(len(members), replayedShown)], Members: len(members)}, by), nil
}

// Decided ends the wait of a flow as it was decided. A flow whose cancellation is requested is cancelled, whatever decided
// its wait. reference: runs-and-taskflows.md B7.
func (f Flow) Decided(o wait.Outcome, by event.By) (Change, error) {
	if f.CancelRequested {
		return f.Cancel(CancelRequest{Policy: CancelAll}, by)
	}
	if err := f.guard(Running, Waiting); err != nil {
		return Change{}, err
	}
	switch {
	case o.By == wait.ByTimeout && f.Wait.OnTimeout == wait.TimeoutFails:
		return f.Fail(reasonTimeout, by)
	case o.By == wait.ByTimeout && f.Wait.OnTimeout == wait.TimeoutCancels:
		return f.Cancel(CancelRequest{Policy: CancelAll, Reason: reasonTimeout}, by)
	}
	x := resumed{WaitID: f.Wait.ID, By: ResumedBy(o.By)}
	if e := o.Last(); e != nil {
		x.EventID, x.Topic, x.CorrelationID, x.Payload = e.ID, e.Topic, e.CorrelationID, e.Payload
		x.Earlier = o.Received[:len(o.Received)-1]
	}
	return f.record(x, by), nil
}

// Patch is what PATCH changes. Without a document and a step it changes nothing.
type Patch struct {
	State       json.RawMessage // nil leaves the state alone
	CurrentStep *string
	Merge       Merge
}

// Patch changes the state and the step label. It returns CodeAlreadyTerminal and CodeCancelPending.
func (f Flow) Patch(p Patch, by event.By) (Change, error) {
	if err := f.open(); err != nil {
		return Change{}, err
	}
	if p.State == nil && p.CurrentStep == nil {
		return Change{Flow: f}, nil
	}
	x := stateUpdated{CurrentStep: p.CurrentStep}
	if p.State != nil {
		x.Patch, x.Merge = compact(p.State), p.Merge
	}
	return f.record(x, by), nil
}

// SetTag sets one tag, of a flow in any status. The same value again changes nothing. It returns CodeInvalidTagKey, and
// CodeValidationFailed for a value that is too long or a tag too many.
func (f Flow) SetTag(key, value string, by event.By) (Change, error) {
	_, before, err := tag.Set(f.Tags, key, value)
	if err != nil || before != nil && *before == value {
		return Change{Flow: f}, err
	}
	return f.record(tagSet{Key: key, Value: value}, by), nil
}

// Ended refuses, with CodeNotTerminal, a flow that has not ended.
func (f *Flow) Ended() error {
	if f.Status.Terminal() {
		return nil
	}
	return fault.New(fault.CodeNotTerminal, "Flow %s is %s. Only what has ended can be deleted: cancel it first.", f.ID, f.Status).With("current_status", f.Status)
}

func (f *Flow) waitID() uuid.UUID {
	if f.Wait == nil {
		return uuid.Nil
	}
	return f.Wait.ID
}
