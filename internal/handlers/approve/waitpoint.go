package approve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/form"
	"github.com/flowapi/flowapi/internal/handlers/suspensions"
)

// Executions is the store of executions and of their waitpoints.
type Executions interface {
	Asked(ctx context.Context, id uuid.UUID, token waitpoint.Token) (execution.Asked, error)
	Signal(ctx context.Context, in execution.SignalRequest) (execution.Signalled, error)
}

// atWaitpoint returns what is asked at a waitpoint. It returns CodeInvalidToken.
func (p *Page) atWaitpoint(ctx context.Context, id uuid.UUID, token waitpoint.Token) (*question, error) {
	a, err := p.Executions.Asked(ctx, id, token)
	if err != nil {
		return nil, err
	}
	q := &question{Title: a.Title(), Asker: asker(&a), Since: momentOf(a.Since()), About: about(&a.Execution), Subject: "Execution", ID: a.Execution.ID,
		Namespace: a.Execution.Namespace, Identified: a.Waitpoint.Approval.Identified()}
	q.Have, q.Need = a.Approvals()
	if of := a.Waitpoint.Approval; of != nil {
		q.Prompt, q.Payload, q.NotOwn = of.Prompt, of.Payload, !of.AllowRequester
		if len(of.Form) > 0 {
			if q.Asked, err = form.Parse(of.Form, "/form"); err != nil {
				return nil, fmt.Errorf("the form of waitpoint %s: %s", id, err) //nolint:errorlint // it was right when it was made: this is no refusal
			}
		}
	}
	for i := range a.Decisions {
		q.Decisions = append(q.Decisions, signalled(&a.Decisions[i]))
	}
	if a.Answerable() {
		q.Kept = a.Waitpoint.State == execution.WaitpointPending
		if at := a.Waitpoint.ExpiresAt; !at.IsZero() {
			q.Deadline, q.Left, q.Then = momentOf(at), left(at.Sub(a.At)), thens[a.OnTimeout()]
		}
	} else {
		q.Ending = ended(&a)
	}
	q.decide = func(ctx context.Context, d decision) (any, error) {
		done, err := p.Executions.Signal(ctx, signal(&a.Waitpoint, token, d))
		if err != nil {
			return nil, err
		}
		return suspensions.Receipt(&done), nil
	}
	return q, nil
}

// signal returns the signal that tells a decision, with the link as its token. One by the same person is the same one for as long as
// the execution waits for the same: pressing a button twice decides once.
func signal(w *execution.Waitpoint, token waitpoint.Token, d decision) execution.SignalRequest {
	identified := w.Approval.Identified()
	said := suspensions.Decision{Execution: w.ExecutionID, Waitpoint: w.ID, Decision: execution.Decision(d.Decision), By: d.By, Reason: d.Reason, Form: d.Form,
		Suffix: "page:" + d.By}
	if !identified {
		said.Source = execution.SourceLink
	}
	out := said.Signal()
	out.Token, out.Identified = token.Reveal(), identified
	return out
}

// thens says what becomes of an execution for which nobody decides in time.
var thens = map[execution.TimeoutBehavior]string{
	execution.OnTimeoutFail: "then it fails", execution.OnTimeoutCancel: "then it is cancelled", execution.OnTimeoutExpire: "then it expires",
	execution.OnTimeoutResume: "then it goes on without a decision", execution.OnTimeoutResumeTold: "then it goes on without a decision",
	execution.OnTimeoutEscalate: "then an operator is asked",
}

// ended returns how a waitpoint was answered, or why that is not possible any more.
func ended(a *execution.Asked) *fact {
	at := momentOf(a.EndedAt())
	switch a.Ended() {
	case execution.AskedDecided:
		d := signalled(a.Deciding())
		return &d
	case execution.AskedExpired:
		return &fact{State: "expired", Text: wasLate, At: at, Reason: inTime}
	case execution.AskedOver:
		return &fact{State: "ended", Text: "The execution ended (" + string(a.Execution.Public()) + ")", At: at, Reason: noNeed}
	default:
		reason := a.Waitpoint.CloseReason
		if ours, ok := closings[reason]; ok {
			reason = ours
		}
		return &fact{State: "closed", Text: wasShut, At: at, Reason: reason}
	}
}

// closings are the reasons that we give ourselves, in words for people.
var closings = map[string]string{
	"resumed": "The execution went on without a decision here.", "already_satisfied": "The execution went on without a decision here.",
	"cancelled": "The execution was cancelled.", "skipped": "The execution was skipped.", "closed": noNeed, "": noNeed,
}

func asker(a *execution.Asked) string {
	if a.Waitpoint.Approval == nil && a.By() == "worker" {
		return "the worker of the execution"
	}
	return a.By()
}

func about(e *execution.Execution) string {
	if e.Kind == "" {
		return "an execution in lane " + e.Lane
	}
	return e.Kind + " in lane " + e.Lane
}

// signalled returns the decision that a signal tells.
func signalled(k *wait.Kept) fact {
	d := fact{State: rejected, At: momentOf(k.At), Note: notes[k.Effect]}
	if k.Name == string(execution.Approved) {
		d.State = approved
	}
	d.Text = words[d.State]
	var said struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(k.Payload, &said) == nil {
		d.Reason = said.Reason
	}
	d.By, d.ByHow = source(k)
	return d
}

// source says who has sent a signal, and how that is known.
func source(k *wait.Kept) (who, how string) {
	name := cmp.Or(k.SourceIdentity, "somebody")
	switch k.SourceType {
	case execution.SourceLink:
		return name, asTheySay
	case execution.SourceOperator:
		if who, how = actor(name); who != name {
			return who, how
		}
	}
	return name, k.SourceType
}

// notes say what a decision did, where that is not what one expects.
var notes = map[wait.Effect]string{
	wait.Duplicate: "counted before", wait.NotInCondition: "does not count here", wait.MatcherFailed: "does not count here", wait.Ignored: "does not count here",
	wait.Buffered: "kept until it is waited for",
}
