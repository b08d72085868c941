package flow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// The fields that a controller owns, by their names on the wire. A change of any of them is a revision.
const (
	fieldKind            = "kind"
	fieldControllerID    = "controller_id"
	fieldGoal            = "goal"
	fieldOwnerSessionKey = "owner_session_key"
	fieldRequesterOrigin = "requester_origin"
	fieldCurrentStep     = "current_step"
	fieldState           = "state"
	fieldTags            = "tags"
	fieldStatus          = "status"
	fieldWait            = "wait"
	fieldCancelRequested = "cancel_requested"
	fieldCancellation    = "cancellation"
	fieldFailure         = "failure"
)

// fields are all of them.
var fields = []string{fieldKind, fieldControllerID, fieldGoal, fieldOwnerSessionKey, fieldRequesterOrigin, fieldCurrentStep, fieldState,
	fieldTags, fieldStatus, fieldWait, fieldCancelRequested, fieldCancellation, fieldFailure}

// differences returns the names of the fields in which two revisions of a flow differ.
func differences(f, g *Flow) []string {
	same := map[string]bool{
		fieldKind:            f.Kind == g.Kind,
		fieldControllerID:    f.ControllerID == g.ControllerID,
		fieldGoal:            f.Goal == g.Goal,
		fieldOwnerSessionKey: f.OwnerSessionKey == g.OwnerSessionKey,
		fieldRequesterOrigin: f.RequesterOrigin == g.RequesterOrigin,
		fieldCurrentStep:     f.CurrentStep == g.CurrentStep,
		fieldState:           bytes.Equal(f.State, g.State),
		fieldTags:            maps.Equal(f.Tags, g.Tags),
		fieldStatus:          f.Status == g.Status,
		fieldWait:            f.Wait == g.Wait || f.Wait != nil && g.Wait != nil && f.Wait.ID == g.Wait.ID,
		fieldCancelRequested: f.CancelRequested == g.CancelRequested,
		fieldCancellation:    f.Cancellation == g.Cancellation || f.Cancellation != nil && g.Cancellation != nil && *f.Cancellation == *g.Cancellation,
		fieldFailure:         f.Failure == g.Failure || f.Failure != nil && g.Failure != nil && *f.Failure == *g.Failure,
	}
	changed := []string{}
	for _, name := range fields {
		if !same[name] {
			changed = append(changed, name)
		}
	}
	return changed
}

// History tells which fields the latest revisions changed, the oldest first. It is kept so that a refused compare-and-set can
// say what has happened meanwhile.
type History []Revised

// Revised is what one revision changed.
type Revised struct {
	Revision int64
	Fields   []string
}

// remembered is how many revisions a history holds.
const remembered = 32

// with returns the history with one more revision, as a copy.
func (h History) with(revision int64, fields []string) History {
	h = h[max(0, len(h)-remembered+1):]
	return append(slices.Clip(h), Revised{revision, fields})
}

// Since returns the names of the fields that changed after a revision. If that is longer ago than the history goes back, any
// may have changed, and all are returned.
func (h History) Since(revision int64) []string {
	if len(h) > 0 && h[0].Revision > revision+1 {
		return slices.Clone(fields)
	}
	changed := []string{}
	for _, name := range fields {
		if slices.ContainsFunc(h, func(r Revised) bool { return r.Revision > revision && slices.Contains(r.Fields, name) }) {
			changed = append(changed, name)
		}
	}
	return changed
}

// MarshalJSON writes [revision, [fields…]].
func (r Revised) MarshalJSON() ([]byte, error) { return json.Marshal([]any{r.Revision, r.Fields}) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Revised) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &[]any{&r.Revision, &r.Fields}); err != nil {
		return fmt.Errorf("a revision and the fields that it changed: %w", err)
	}
	return nil
}

// Expect refuses, with CodeRevisionMismatch, whoever has read another revision than the present one. nil expects none.
func (f *Flow) Expect(revision *int64) error {
	if revision == nil || *revision == f.Revision {
		return nil
	}
	return fault.Stale("Flow "+f.ID.String(), *revision, f.Revision).With("changed", f.History.Since(*revision))
}
