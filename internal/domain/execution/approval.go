package execution

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Approval is what a person is asked at a waitpoint. It is shown as it is, and never run.
type Approval struct {
	Title          string          `json:"-"` // beside it, as what lists show
	Prompt         string          `json:"-"`
	RequestedBy    string          `json:"requested_by"` // who asks
	MadeBy         string          `json:"made_by"`      // the actor who has sent it
	Payload        json.RawMessage `json:"payload,omitempty"`
	Form           json.RawMessage `json:"form,omitempty"` // a JSON Schema of what to fill in
	MinApprovals   int             `json:"min_approvals"`  // by distinct people
	AllowRequester bool            `json:"allow_requester"`
}

// Limits of approvals.
const (
	MaxApprovals = 20       // people who may be asked for
	MaxApproval  = 64 << 10 // bytes of all that is shown together
)

// Check refuses, with CodePayloadTooLarge, what is too large to be shown. pointer is where it stands in the request.
func (a *Approval) Check(pointer string) error {
	if n := len(a.Title) + len(a.Prompt) + len(a.Payload) + len(a.Form); n > MaxApproval {
		return fault.Invalid(fault.CodePayloadTooLarge, pointer, "An approval has at most %d bytes of title, prompt, payload and form; this one has %d.", MaxApproval, n).
			With("limit", MaxApproval)
	}
	return nil
}

// Decision is what a person decides; the signal that tells it has its name.
type Decision string

// The decisions.
const (
	Approved Decision = "approved"
	Rejected Decision = "rejected"
)

// Identified says whether it matters who decides, so that somebody who only has the link must say who they are.
func (a *Approval) Identified() bool { return a != nil && (a.MinApprovals > 1 || !a.AllowRequester) }

// Allow refuses, with CodeSelfApproval, a decision by whoever asks, where another person has to decide: by who is named, also
// without the kind of actor before the name, and by who has sent the request.
func (a *Approval) Allow(who string) error {
	if a == nil || a.AllowRequester {
		return nil
	}
	_, name, _ := strings.Cut(who, ":")
	if who != a.RequestedBy && who != a.MadeBy && name != a.RequestedBy {
		return nil
	}
	return fault.New(fault.CodeSelfApproval, "%s asks for this approval: another person has to decide.", a.RequestedBy).With("requested_by", a.RequestedBy)
}

// Admit refuses a decision by somebody whom nobody has identified where it matters who decides, with CodeForbidden, and what Allow
// refuses: whoever has the token of a waitpoint could else decide in any name, as often as it takes.
func (a *Approval) Admit(d Decision, who string, identified bool) error {
	switch {
	case a == nil || d != Approved && d != Rejected:
		return nil
	case identified:
		return a.Allow(who)
	case a.Identified():
		return fault.New(fault.CodeForbidden, "It matters who decides here: decide with an operator's API token, at …/approvals or on the page of the link.").
			With("required_role", "operator")
	}
	return nil
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
	Waitpoints []AskedAt // the open ones, those with an approval first
}

// AskedAt is what is asked at one waitpoint, in short.
type AskedAt struct {
	ID     uuid.UUID
	Key    string
	Title  string // "" without an approval
	Prompt string // the beginning
}

// First is the waitpoint to answer first: one that listens for something that has not come, with an approval if there is one.
func (a *Asking) First(lacking []string) *AskedAt {
	for i := range a.Waitpoints {
		if slices.Contains(lacking, a.Waitpoints[i].Key) {
			return &a.Waitpoints[i]
		}
	}
	if len(a.Waitpoints) == 0 {
		return nil
	}
	return &a.Waitpoints[0]
}

// Asked is what somebody sees who comes with the token of a waitpoint.
type Asked struct {
	Execution Execution
	Waitpoint Waitpoint
	Decisions []wait.Kept // what was decided there, the latest first
	At        time.Time   // of this look
}

// Answerable says whether a decision would still reach somebody.
func (a *Asked) Answerable() bool {
	_, err := a.Waitpoint.Takes(&a.Execution, a.At)
	return err == nil
}

// suspension is the one that the waitpoint belongs to, nil when that is not the execution's last one, or there is none.
func (a *Asked) suspension() *Suspension {
	s := a.Execution.Suspension
	if s == nil || a.Waitpoint.SuspensionID == uuid.Nil || s.ID != a.Waitpoint.SuspensionID {
		return nil
	}
	return s
}

// Title is what is asked, in a line.
func (a *Asked) Title() string {
	if of := a.Waitpoint.Approval; of != nil {
		return of.Title
	}
	if s := a.suspension(); s != nil {
		return titleOf(&a.Execution, SuspendReason(strings.ReplaceAll(string(s.Reason), "_", " ")))
	}
	return titleOf(&a.Execution, SuspendReason("waitpoint "+a.Waitpoint.Key))
}

// By is who asks.
func (a *Asked) By() string {
	if of := a.Waitpoint.Approval; of != nil {
		return of.RequestedBy
	}
	if s := a.suspension(); s != nil {
		return s.RequestedBy
	}
	return ""
}

// Since is when it was asked.
func (a *Asked) Since() time.Time {
	if s := a.suspension(); s != nil {
		return s.Since
	}
	return a.Waitpoint.CreatedAt
}

// OnTimeout is what becomes of the execution when nobody decides in time, "" while it does not wait.
func (a *Asked) OnTimeout() TimeoutBehavior {
	if s := a.suspension(); s.Open() {
		return s.Behavior
	}
	return ""
}

// Current are the decisions that were made for the suspension that the waitpoint belongs to, or are kept for one to come.
func (a *Asked) Current() []wait.Kept {
	var current []wait.Kept
	for _, k := range a.Decisions {
		if k.Open || k.SuspensionID == a.Waitpoint.SuspensionID {
			current = append(current, k)
		}
	}
	return current
}

// Deciding is the decision that let the execution go on, nil when there is none: it still waits, or something else has ended that.
func (a *Asked) Deciding() *wait.Kept {
	s := a.suspension()
	for _, k := range a.Current() {
		if k.Effect == wait.Satisfied || s != nil && s.Closer == k.ID {
			return &k
		}
	}
	return nil
}

// Approvals says how many people have approved, and how many are needed.
func (a *Asked) Approvals() (have, need int) {
	need = 1
	if of := a.Waitpoint.Approval; of != nil {
		need = of.MinApprovals
	}
	counted := map[string]bool{}
	for _, k := range a.Current() {
		if k.Name == string(Approved) {
			counted[k.SourceType+"\x00"+k.SourceIdentity] = true
		}
	}
	return len(counted), need
}

// Ended says how the request has ended that takes no decision any more.
func (a *Asked) Ended() AskedEnding {
	w := &a.Waitpoint
	switch {
	case a.Deciding() != nil:
		return AskedDecided
	case strings.HasPrefix(w.CloseReason, timedOut), strings.HasPrefix(w.CloseReason, closedExpired):
		return AskedExpired
	case a.Execution.Lifecycle == Terminal && (w.State != WaitpointClosed || !w.ClosedAt.Before(a.Execution.CompletedAt)):
		return AskedOver
	case w.CloseReason == NeverCommitted, w.State == WaitpointPending && !w.ExpiresAt.IsZero() && !w.ExpiresAt.After(a.At):
		return AskedExpired
	}
	return AskedClosed
}

// EndedAt is when it has ended.
func (a *Asked) EndedAt() time.Time {
	w := &a.Waitpoint
	switch {
	case !w.ClosedAt.IsZero():
		return w.ClosedAt
	case a.Execution.Lifecycle == Terminal:
		return a.Execution.CompletedAt
	}
	return w.ExpiresAt
}

// AskedEnding is how a request has ended.
type AskedEnding string

// The endings.
const (
	AskedDecided AskedEnding = "decided"
	AskedExpired AskedEnding = "expired"
	AskedOver    AskedEnding = "over"   // the execution has ended
	AskedClosed  AskedEnding = "closed" // somebody has closed it, or the execution went on without it
)
