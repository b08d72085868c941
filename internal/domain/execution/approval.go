package execution

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Approval is what a person is asked at a waitpoint. It is shown as it is, and never run.
type Approval struct {
	Title          string          `json:"title"`
	Prompt         string          `json:"prompt,omitempty"`
	RequestedBy    string          `json:"requested_by"` // who asks
	Payload        json.RawMessage `json:"payload,omitempty"`
	Form           json.RawMessage `json:"form,omitempty"` // a JSON Schema of what to fill in
	MinApprovals   int             `json:"min_approvals"`  // by distinct people
	AllowRequester bool            `json:"allow_requester"`
}

// MaxApprovals bounds how many people may be asked for.
const MaxApprovals = 20

// Decision is what a person decides; the signal that tells it has its name.
type Decision string

// The decisions.
const (
	Approved Decision = "approved"
	Rejected Decision = "rejected"
)

// Identified says whether it matters who decides, so that somebody who only has the link must say who they are.
func (a *Approval) Identified() bool { return a.MinApprovals > 1 || !a.AllowRequester }

// Allow refuses, with CodeSelfApproval, a decision by whoever asks, where another person has to decide.
func (a *Approval) Allow(who string) error {
	if a == nil || a.AllowRequester || who != a.RequestedBy {
		return nil
	}
	return fault.New(fault.CodeSelfApproval, "%s asks for this approval: another person has to decide.", a.RequestedBy).With("requested_by", a.RequestedBy)
}

// Condition is what an approval at the waitpoint key waits for unless more is said: enough approvals by distinct people, or one
// rejection.
func (a *Approval) Condition(key string) wait.Condition {
	keys := []string{key}
	return wait.Condition{Kind: wait.Any, Of: []wait.Condition{
		{Kind: wait.Count, N: a.MinApprovals, Distinct: wait.DistinctSources, Waitpoints: keys, Name: string(Approved)},
		{Kind: wait.SignalOn, Waitpoints: keys, Name: string(Rejected)},
	}}
}

// Asking is what an execution asks people about.
type Asking struct {
	FlowID     uuid.UUID
	Reason     SuspendReason
	Waitpoints []Waitpoint // the open ones, those with an approval first
}

// Asked is what somebody sees who comes with the token of a waitpoint.
type Asked struct {
	Execution Execution
	Waitpoint Waitpoint
	Decisions []wait.Kept // what was decided there, the latest first
}

// Answerable says whether a decision would still reach somebody.
func (a *Asked) Answerable(now time.Time) bool {
	_, err := a.Waitpoint.Takes(&a.Execution, now)
	return err == nil
}
