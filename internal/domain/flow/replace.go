package flow

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Replacement is what PUT makes of a flow: what is left out gets its default, except status and wait, which stay.
type Replacement struct {
	Kind            string
	ControllerID    string
	Goal            string
	OwnerSessionKey string
	RequesterOrigin string
	CurrentStep     string
	State           json.RawMessage
	Tags            map[string]string
	Status          Status     // "" leaves it
	Wait            *wait.Spec // nil leaves it, and is none when the flow does not wait
}

// Replace replaces the fields that a controller owns. status and wait are as they were, or take a step that a verb could
// take, under its guards. waitID is for a wait that begins, open the number of members that have not ended.
// It returns the errors of the verbs, CodeInvalidTagKey, and CodeValidationFailed for a blank goal and for a wait that does
// not go with the status. reference: runs-and-taskflows.md B5 (update_with_revision).
func (f Flow) Replace(r Replacement, waitID uuid.UUID, open int, by event.By) (Change, error) {
	if err := required(r.Goal, fieldGoal); err != nil {
		return Change{}, err
	}
	if err := tag.Check(r.Tags, "/tags"); err != nil {
		return Change{}, err
	}
	x := replaced{Changed: []string{}, WaitID: uuid.Nil}
	if err := f.move(&x, r, waitID, open); err != nil {
		return Change{}, err
	}
	text := func(field, from, to string, into *string) {
		if from != to {
			x.Changed = append(x.Changed, field)
			*into = to
		}
	}
	text(fieldKind, f.Kind, r.Kind, &x.Kind)
	text(fieldControllerID, f.ControllerID, r.ControllerID, &x.ControllerID)
	text(fieldGoal, f.Goal, r.Goal, &x.Goal)
	text(fieldOwnerSessionKey, f.OwnerSessionKey, r.OwnerSessionKey, &x.OwnerSessionKey)
	text(fieldRequesterOrigin, f.RequesterOrigin, r.RequesterOrigin, &x.RequesterOrigin)
	text(fieldCurrentStep, f.CurrentStep, stepOr(r.CurrentStep), &x.CurrentStep)
	if state := stateOr(r.State); !bytes.Equal(f.State, state) {
		x.Changed = append(x.Changed, fieldState)
		x.State = state
	}
	if !maps.Equal(f.Tags, r.Tags) {
		x.Changed = append(x.Changed, fieldTags)
		x.Tags = tagsOf(r.Tags)
	}
	return f.record(x, by), nil
}

// move checks what a replacement makes of status and wait, and notes the step if there is one.
func (f *Flow) move(x *replaced, r Replacement, waitID uuid.UUID, open int) error {
	to := r.Status
	if to == "" || to == f.Status {
		if err := f.open(); err != nil {
			return err
		}
		switch {
		case r.Wait == nil, f.Wait != nil && f.Wait.Equal(*r.Wait):
			return nil
		case f.Wait != nil:
			return f.guard(Waiting)
		default:
			return fault.Invalid(fault.CodeValidationFailed, "/wait", "A flow that is %s has no wait: leave it out, or set status to waiting.", f.Status)
		}
	}
	if err := f.guard(to); err != nil {
		return err
	}
	switch {
	case to == Waiting && r.Wait == nil:
		return fault.Invalid(fault.CodeValidationFailed, "/wait", "A flow that is to wait needs a wait.")
	case to == Waiting:
		w := parked(waitID, *r.Wait)
		x.Wait = &w
	case r.Wait != nil:
		return fault.Invalid(fault.CodeValidationFailed, "/wait", "A flow that is %s has no wait: leave it out, or make it null.", to)
	case to == Finished:
		if err := f.complete(open); err != nil {
			return err
		}
	}
	x.Status, x.WaitID = to, f.waitID()
	x.Changed = append(x.Changed, fieldStatus)
	return nil
}
