package approve

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
)

// Gates is the store of the gates of workflow runs.
type Gates interface {
	AskedBy(ctx context.Context, stepID uuid.UUID, token waitpoint.Token) (at run.GateAt, now time.Time, err error)
	Vote(ctx context.Context, runID, stepID uuid.UUID, v run.Vote) (run.GateAt, error)
}

// atGate returns what is asked at a gate. It returns CodeInvalidToken.
func (p *Page) atGate(ctx context.Context, id uuid.UUID, token waitpoint.Token) (*question, error) {
	at, now, err := p.Gates.AskedBy(ctx, id, token)
	if err != nil {
		return nil, err
	}
	r, s, g := &at.Run, &at.Step, at.Step.Gate
	q := &question{Title: r.Name() + ": " + s.Name, Asker: g.RequestedBy, Since: momentOf(g.OpenedAt), About: "a run of " + r.WorkflowName, Subject: "Run", ID: r.ID,
		Namespace: r.Namespace, Prompt: g.Prompt, Selects: true, Options: options(g), Have: at.Approvals, Need: g.MinApprovals, NotOwn: !g.AllowSelf,
		Identified: g.MinApprovals > 1 || !g.AllowSelf, Ending: resolved(&at)}
	for _, v := range slices.Backward(at.Votes) {
		q.Decisions = append(q.Decisions, voted(g, &v))
	}
	if q.Open() {
		q.Deadline, q.Left, q.Then = momentOf(g.DeadlineAt), left(g.DeadlineAt.Sub(now)), gateThens[g.OnTimeout]
	}
	q.decide = func(ctx context.Context, d decision) (any, error) {
		done, err := p.Gates.Vote(ctx, r.ID, s.ID, run.Vote{Voter: d.By, Decision: run.Decision(d.Decision), Feedback: d.Reason, Selections: d.Selections})
		if err != nil {
			return nil, err
		}
		return receiptOf(&done), nil
	}
	return q, nil
}

// gateThens says what happens when nobody answers a gate in time.
var gateThens = map[run.GateTimeout]string{run.GateFails: "then the step fails", run.GateContinues: "then the run goes on without an answer"}

// gateReceipt tells a program what became of its decision.
type gateReceipt struct {
	Outcome string          `json:"outcome"` // accepted, or duplicate
	State   run.GateOutcome `json:"state"`
}

func receiptOf(at *run.GateAt) gateReceipt {
	outcome := "accepted"
	if at.Replayed {
		outcome = "duplicate"
	}
	return gateReceipt{outcome, at.Step.Gate.Outcome}
}

func options(g *run.Gate) []option {
	list := make([]option, len(g.Options))
	for i, o := range g.Options {
		list[i] = option{o.Value, labelOf(g, o.Value)}
	}
	return list
}

// labelOf returns how people read an option.
func labelOf(g *run.Gate, value string) string {
	for _, o := range g.Options {
		if o.Value == value && o.Label != "" {
			return o.Label
		}
	}
	return value
}

// resolved returns how a gate was answered, or why that is not possible now; nil when it is open.
func resolved(at *run.GateAt) *fact {
	r, g := &at.Run, at.Step.Gate
	closed := momentOf(g.ResolvedAt)
	over := fact{State: "ended", Text: "The run ended (" + string(r.Status) + ")", At: momentOf(r.EndedAt), Reason: noNeed}
	switch g.Outcome {
	case run.GateApproved, run.GateRejected:
		d := voted(g, deciding(at))
		return &d
	case run.GateTimedOut:
		return &fact{State: "expired", Text: wasLate, At: closed, Reason: inTime}
	case run.GateCancelled, run.GateSkipped:
		if r.Status.Terminal() && !g.ResolvedAt.Before(r.EndedAt) {
			return &over
		}
		return &fact{State: "closed", Text: wasShut, At: closed, Reason: noNeed}
	case run.GatePending:
		if r.Status.Terminal() {
			return &over
		}
		if !g.Open() {
			return &fact{State: "closed", Text: "This request is not open", Reason: "The run does not wait for a decision here now."}
		}
	}
	return nil
}

// deciding returns the vote that gave a gate its outcome, or what is known of it: who drives the run may answer for a machine.
func deciding(at *run.GateAt) *run.Vote {
	g := at.Step.Gate
	for i := range at.Votes {
		if v := &at.Votes[i]; v.Voter == g.ResolvedBy && v.Decision == run.Decision(g.Outcome) && v.At.Equal(g.ResolvedAt) {
			return v
		}
	}
	return &run.Vote{Voter: g.ResolvedBy, Actor: g.ResolvedBy, Decision: run.Decision(g.Outcome), Feedback: g.Feedback, Selections: g.Selections, At: g.ResolvedAt}
}

// voted returns what a vote says.
func voted(g *run.Gate, v *run.Vote) fact {
	d := fact{State: string(v.Decision), At: momentOf(v.At), Reason: v.Feedback}
	if v.Decision == run.Note {
		d.State = "noted"
	}
	d.Text = words[d.State]
	d.By, d.ByHow = voter(v)
	for i, value := range v.Selections {
		if slices.Index(v.Selections, value) == i {
			d.Selected = append(d.Selected, labelOf(g, value))
		}
	}
	return d
}

// voter says who has voted, and how that is known.
func voter(v *run.Vote) (who, how string) {
	switch v.Actor {
	case execution.SourceLink:
		return v.Voter, asTheySay
	case v.Voter:
		return actor(v.Voter)
	}
	by, _ := actor(v.Actor)
	return v.Voter, "according to " + by
}
