package run

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Gate is what a gate step asks, and what was answered. It opens when its step begins to wait, and has one outcome.
// reference: runs-and-taskflows.md A6.
type Gate struct {
	Type         string        `json:"gate_type"`
	Prompt       string        `json:"prompt,omitempty"`
	Timeout      time.Duration `json:"timeout"`
	OnTimeout    GateTimeout   `json:"on_timeout"`
	Options      []Option      `json:"options,omitempty"`
	MinApprovals int           `json:"min_approvals"`
	AllowSelf    bool          `json:"allow_self_approval"`
	RequestedBy  string        `json:"requested_by"`
	MadeBy       string        `json:"made_by"` // the actor who has sent it

	Outcome    GateOutcome `json:"outcome"`
	WaitID     uuid.UUID   `json:"wait_id,omitzero"` // while it is open
	OpenedAt   time.Time   `json:"opened_at,omitzero"`
	DeadlineAt time.Time   `json:"deadline_at,omitzero"`
	ResolvedAt time.Time   `json:"resolved_at,omitzero"`
	ResolvedBy string      `json:"resolved_by,omitempty"`
	Feedback   string      `json:"feedback,omitempty"`
	Selections []string    `json:"selections"` // nil when none was given
}

// The known types of gates; any other name is one, too.
const (
	HumanApproval = "human_approval"
	HumanReview   = "human_review"
	PRApproval    = "pr_approval"
	PRChecks      = "pr_checks"
	QualityGate   = "quality_gate"
)

// Option is what may be selected.
type Option struct {
	Value string `json:"value"`
	Label string `json:"label,omitempty"`
}

// GateTimeout says what becomes of the step of a gate that nobody answers in time.
type GateTimeout string

// What may become of it.
const (
	GateFails     GateTimeout = "fail"     // the step has failed
	GateContinues GateTimeout = "continue" // the step has timed out, and its run may go on
)

// GateOutcome is how a gate stands.
type GateOutcome string

// The outcomes.
const (
	GatePending   GateOutcome = "pending"
	GateApproved  GateOutcome = "approved"
	GateRejected  GateOutcome = "rejected"
	GateTimedOut  GateOutcome = "timed_out"
	GateCancelled GateOutcome = "cancelled"
	GateSkipped   GateOutcome = "skipped"
)

// GateOutcomes returns every outcome, pending first.
func GateOutcomes() []GateOutcome {
	return []GateOutcome{GatePending, GateApproved, GateRejected, GateTimedOut, GateCancelled, GateSkipped}
}

// The bounds of gates.
const (
	DefaultGateTimeout = 24 * time.Hour
	MaxApprovals       = 20
	MaxOptions         = 100
)

// check fills in what was left out, and refuses, with CodeValidationFailed, what no gate can be.
func (g *Gate) check(pointer string) error {
	if g.Timeout == 0 {
		g.Timeout = DefaultGateTimeout
	}
	if g.OnTimeout == "" {
		g.OnTimeout = GateFails
	}
	g.MinApprovals = max(g.MinApprovals, 1)
	g.Outcome = GatePending
	seen := map[string]bool{}
	for _, o := range g.Options {
		if seen[o.Value] {
			return fault.Invalid(fault.CodeValidationFailed, pointer+"/options", "The option %q is there twice.", o.Value)
		}
		seen[o.Value] = true
	}
	return nil
}

// automatic says whether the gate's answer comes from a machine, which the engine asks.
func (g *Gate) automatic() bool {
	return g.Type == PRApproval || g.Type == PRChecks || g.Type == QualityGate
}

// Asks says whether a person is asked.
func (g *Gate) Asks() bool { return !g.automatic() }

// open makes the gate wait for answers.
func (g *Gate) open(waitID uuid.UUID, at time.Time) {
	g.WaitID, g.OpenedAt, g.DeadlineAt = waitID, at, at.Add(g.Timeout)
}

// resolve gives the gate its outcome.
func (g *Gate) resolve(o GateOutcome, by event.By) {
	g.Outcome, g.ResolvedAt, g.ResolvedBy, g.WaitID = o, by.At, by.Actor, uuid.Nil
}

// Open says whether the gate waits for answers.
func (g *Gate) Open() bool { return g != nil && g.WaitID != uuid.Nil }

// Wait returns the open gate of a step as the kernel's wait: enough approvals by distinct people, or one rejection.
func (g *Gate) Wait(r *Run, s *Step) wait.Wait {
	keys := []string{s.ID.String()}
	onTimeout := wait.TimeoutFails
	if g.OnTimeout == GateContinues {
		onTimeout = wait.TimeoutResumes
	}
	return wait.Wait{
		ID: g.WaitID, Namespace: r.Namespace, RunID: r.ID, StepID: s.ID, Since: g.OpenedAt, Asks: g.Asks(), Title: r.Name() + ": " + s.Name, RequestedBy: g.RequestedBy,
		Spec: wait.Spec{Deadline: g.DeadlineAt, OnTimeout: onTimeout, Condition: wait.Condition{Kind: wait.Any, Of: []wait.Condition{
			{Kind: wait.Count, N: g.MinApprovals, Distinct: wait.DistinctSources, Waitpoints: keys, Name: string(GateApproved)},
			{Kind: wait.SignalOn, Waitpoints: keys, Name: string(GateRejected)},
		}}},
	}
}

// Vote is what one person has said to a gate.
type Vote struct {
	ID         uuid.UUID
	Attempt    int    // of the step
	Voter      string // who says it
	Actor      string // who has sent it
	Decision   Decision
	Feedback   string
	Selections []string // nil when none was given
	At         time.Time
}

// Decision is what somebody says to a gate.
type Decision string

// The decisions. A note decides nothing.
const (
	Approve Decision = "approved"
	Reject  Decision = "rejected"
	Note    Decision = "feedback"
)

// Same says whether two votes say the same.
func (v *Vote) Same(o *Vote) bool {
	return v.Attempt == o.Attempt && v.Voter == o.Voter && v.Decision == o.Decision && v.Feedback == o.Feedback &&
		(v.Selections == nil) == (o.Selections == nil) && slices.Equal(v.Selections, o.Selections)
}

// Signal returns the vote on a step's gate as the kernel's signal.
func (v *Vote) Signal(s *Step) wait.Signal {
	return wait.Signal{ID: v.ID.String(), Waitpoint: s.ID.String(), Name: string(v.Decision), SourceType: "person", SourceIdentity: v.Voter}
}

// Admits refuses a vote: on what is no gate (CodeNotAGate), in a run that has ended (CodeRunTerminal), on a gate that has its outcome
// (CodeGateAlreadyResolved) or is not open yet (CodeIllegalTransition), by whoever asks where that is not allowed
// (CodeSelfApproval), and with selections that are none (CodeInvalidSelection).
func (s *Step) Admits(r *Run, v *Vote) error {
	g := s.Gate
	switch {
	case g == nil:
		return s.NotAGate()
	case g.Outcome != GatePending:
		return fault.New(fault.CodeGateAlreadyResolved, "Gate %s was %s by %s at %s, and a gate is decided once.", s.ID, strings.ReplaceAll(string(g.Outcome), "_", " "), g.ResolvedBy, event.Stamp(g.ResolvedAt)).
			With("state", g.Outcome).With("by", g.ResolvedBy).With("at", event.Stamp(g.ResolvedAt))
	}
	if err := r.Takes(); err != nil {
		return err
	}
	if !g.Open() && v.Decision != Note {
		return fault.New(fault.CodeIllegalTransition, "Step %s is %s: its gate has not been opened yet. Ask again when it is waiting.", s.ID, s.Status).
			With("from", s.Status).With("to", v.Decision)
	}
	if v.Decision != Note && !g.AllowSelf && (g.asker(v.Voter) || g.asker(v.Actor)) {
		return fault.New(fault.CodeSelfApproval, "%s asks for this decision: another person has to make it.", g.RequestedBy).With("requested_by", g.RequestedBy)
	}
	return g.selects(v.Selections)
}

// NotAGate is the refusal to answer a step that is no gate.
func (s *Step) NotAGate() error {
	return fault.New(fault.CodeNotAGate, "Step %s has the role %s and is not a gate.", s.ID, s.Role).With("role", s.Role)
}

// asker says whether who is named asks: by the name or as the sender, with the kind of actor before the name or without it.
func (g *Gate) asker(who string) bool {
	for _, asks := range []string{g.RequestedBy, g.MadeBy} {
		if who == asks || who == nameOf(asks) || nameOf(who) == asks {
			return true
		}
	}
	return false
}

// nameOf returns an actor without its kind: ada for token:ada.
func nameOf(actor string) string {
	if _, name, _ := strings.Cut(actor, ":"); name != "" {
		return name
	}
	return actor
}

// selects refuses, with CodeInvalidSelection, what is not among the options.
func (g *Gate) selects(selections []string) error {
	for i, s := range selections {
		if slices.ContainsFunc(g.Options, func(o Option) bool { return o.Value == s }) {
			continue
		}
		allowed := make([]string, len(g.Options))
		for j, o := range g.Options {
			allowed[j] = o.Value
		}
		slices.Sort(allowed)
		f := fault.New(fault.CodeInvalidSelection, "%q is not among the options of this gate. Choose among those.", fault.Readable(s)).With("invalid", s).With("allowed", allowed)
		f.Fields = []fault.Field{{In: fault.InBody, Pointer: "/selections/" + itoa(i), Detail: f.Message, Code: f.Code}}
		return f
	}
	return nil
}

// Selected is the context that selections become for later steps, byte for byte. reference: runs-and-taskflows.md A6.4, G-GS.
func Selected(selections []string) string {
	var b strings.Builder
	b.WriteString("User selected the following items:\n")
	for _, s := range selections {
		b.WriteString("- " + s + "\n")
	}
	return b.String()
}

// once returns selections without what is there twice, in their order; nil stays nil.
func once(selections []string) []string {
	if selections == nil {
		return nil
	}
	out := []string{}
	for _, s := range selections {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Decided returns the step of a gate that a vote has decided.
func (s Step) Decided(r *Run, v *Vote, by event.By) StepChanged {
	g := *s.Gate
	g.resolve(GateOutcome(v.Decision), event.By{Actor: v.Voter, At: by.At})
	g.Feedback, g.Selections = v.Feedback, once(v.Selections)
	to := StepCompleted
	if v.Decision == Reject {
		to = StepFailed
		s.StepError = v.Feedback
		if s.StepError == "" {
			s.StepError = "The gate " + s.Name + " was rejected."
		}
	} else if len(g.Selections) > 0 {
		s.ContextOut = Selected(g.Selections)
	}
	return s.close(r, to, &g, by)
}

// Late returns the step of a gate that nobody has answered in time.
func (s Step) Late(r *Run, by event.By) StepChanged {
	g := *s.Gate
	g.resolve(GateTimedOut, by)
	to := StepFailed
	s.ResultText, s.StepError = "gate timed out", "The gate "+s.Name+" timed out."
	if g.OnTimeout == GateContinues {
		to, s.StepError = StepTimedOut, ""
		s.ResultText = "gate timed out; continuing"
	}
	return s.close(r, to, &g, by)
}

// outcomeOf is what becomes of a gate whose step ends otherwise than by an answer.
func (g *Gate) outcomeOf(to StepStatus) GateOutcome {
	switch {
	case to == StepSkipped:
		return GateSkipped
	case to == StepTimedOut:
		return GateTimedOut
	case to == StepCompleted && g.automatic():
		return GateApproved
	case to == StepFailed && g.automatic():
		return GateRejected
	case to == StepCompleted:
		return GateSkipped // nobody was asked
	}
	return GateCancelled
}

// gateEvents are the events of outcomes.
var gateEvents = map[GateOutcome]event.Type{
	GateApproved: event.GateApproved, GateRejected: event.GateRejected, GateTimedOut: event.GateTimedOut, GateCancelled: event.GateCancelled, GateSkipped: event.GateSkipped,
}

type gateData struct {
	StepID     uuid.UUID   `json:"step_id"`
	StepName   string      `json:"step_name"`
	GateType   string      `json:"gate_type"`
	By         string      `json:"by,omitempty"`
	Feedback   string      `json:"feedback,omitempty"`
	Selections []string    `json:"selections,omitempty"`
	WaitMS     int64       `json:"wait_ms,omitempty"`
	OnTimeout  GateTimeout `json:"on_timeout,omitempty"`
}

func (g *Gate) event(r *Run, s *Step) event.Event {
	data := gateData{StepID: s.ID, StepName: s.Name, GateType: g.Type, By: g.ResolvedBy, Feedback: g.Feedback, Selections: g.Selections}
	if !g.OpenedAt.IsZero() {
		data.WaitMS = g.ResolvedAt.Sub(g.OpenedAt).Milliseconds()
	}
	if g.Outcome == GateTimedOut {
		data.OnTimeout = g.OnTimeout
	}
	return r.Event(gateEvents[g.Outcome], data)
}

type openedData struct {
	StepID       uuid.UUID   `json:"step_id"`
	StepName     string      `json:"step_name"`
	GateType     string      `json:"gate_type"`
	RequestedBy  string      `json:"requested_by"`
	MinApprovals int         `json:"min_approvals"`
	DeadlineAt   event.Stamp `json:"deadline_at"`
}

func (g *Gate) opened(r *Run, s *Step) event.Event {
	return r.Event(event.GateOpened, openedData{s.ID, s.Name, g.Type, g.RequestedBy, g.MinApprovals, event.Stamp(g.DeadlineAt)})
}

// Voted returns the event that tells of a vote that has not decided its gate.
func (s *Step) Voted(r *Run, v *Vote) event.Event {
	return r.Event(event.GateVoted, struct {
		StepID   uuid.UUID `json:"step_id"`
		GateType string    `json:"gate_type"`
		By       string    `json:"by"`
		Decision Decision  `json:"decision"`
		Feedback string    `json:"feedback,omitempty"`
	}{s.ID, s.Gate.Type, v.Voter, v.Decision, v.Feedback})
}
