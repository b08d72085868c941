package run

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

// Step is one step of a run, whatever it took: a retry is a further attempt at the same step. It is known in its run by its path and
// iteration. reference: runs-and-taskflows.md A3.2, A13 19, 22 and 25.
type Step struct {
	ID              uuid.UUID
	RunID           uuid.UUID
	Path            string
	Name            string
	Role            Role
	Status          StepStatus
	Position        int64
	Iteration       int
	RetryCount      int // of the present attempt
	CanCommit       bool
	ParallelGroup   string // "" for none
	ChildRunID      string // a run of ours, or what the engine calls whoever does the work
	ChildLinked     bool   // it is a run of ours, whose end ends the step
	ChildExecution  uuid.UUID
	CreatedAt       time.Time
	StartedAt       time.Time // of the first attempt; kept for ever
	AttemptStarted  time.Time // of the present attempt
	EndedAt         time.Time
	ResultText      string
	ContextOut      string
	Markers         []string        // nil for none
	Structured      json.RawMessage // nil for none
	StepError       string
	Gate            *Gate // nil unless its role is gate
	FanOut          Counts
	EarlierAttempts []Attempt // those before the present one; only where they are shown
}

// Role says what a step is.
type Role string

// The roles.
const (
	RoleAgent    Role = "agent"
	RoleScript   Role = "script"
	RoleGate     Role = "gate"
	RoleForeach  Role = "foreach"
	RoleWorkflow Role = "workflow"
	RoleWait     Role = "wait"
)

// Roles returns every role.
func Roles() []Role {
	return []Role{RoleAgent, RoleScript, RoleGate, RoleForeach, RoleWorkflow, RoleWait}
}

// Attempt is one try at a step.
type Attempt struct {
	Index          int
	Status         StepStatus
	ChildRunID     string
	ChildExecution uuid.UUID
	StartedAt      time.Time
	EndedAt        time.Time
	StepError      string
}

// Attempts returns all attempts at a step, the present one last. There is always one more than there were retries.
func (s *Step) Attempts() []Attempt { return append(slices.Clip(s.EarlierAttempts), s.attempt()) }

func (s *Step) attempt() Attempt {
	return Attempt{Index: s.RetryCount, Status: s.Status, ChildRunID: s.ChildRunID, ChildExecution: s.ChildExecution, StartedAt: s.AttemptStarted,
		EndedAt: s.EndedAt, StepError: s.StepError}
}

// HasChild says whether a child of ours does the step's work. While the step has not ended, the child has not either.
func (s *Step) HasChild() bool { return s.ChildExecution != uuid.Nil || s.ChildLinked }

// Within returns the place of a child of s.
func (s *Step) Within() Place { return Place{RunID: s.RunID, StepID: s.ID} }

// StepChanged is what becomes of a step.
type StepChanged struct {
	Step    Step
	Events  []event.Event
	Closed  *Attempt // the attempt that is over, when another one follows
	Applied bool     // something has changed
	Ended   bool     // with this change: what is open in it ends, too
}

// NewStep is what a new step is made of.
type NewStep struct {
	ID            uuid.UUID
	Path          string // "" for its name
	Name          string
	Role          Role
	Position      int64
	Iteration     int
	Running       bool // born at work
	CanCommit     bool
	ParallelGroup string
	Gate          *Gate
}

// Insert returns a new step of r. It returns CodeRunTerminal, CodeRunCancelled and CodeValidationFailed.
func (r *Run) Insert(in NewStep, by event.By) (StepChanged, error) {
	if err := r.Begins(); err != nil {
		return StepChanged{}, err
	}
	s := Step{ID: in.ID, RunID: r.ID, Path: in.Path, Name: in.Name, Role: in.Role, Status: StepPending, Position: in.Position, Iteration: in.Iteration,
		CanCommit: in.CanCommit, ParallelGroup: in.ParallelGroup, CreatedAt: by.At}
	if s.Path == "" {
		s.Path = s.Name
	}
	switch {
	case strings.TrimSpace(s.Name) == "":
		return StepChanged{}, fault.Invalid(fault.CodeValidationFailed, "/step_name", "step_name cannot be empty.")
	case (in.Role == RoleGate) != (in.Gate != nil):
		return StepChanged{}, fault.Invalid(fault.CodeValidationFailed, "/gate", "A step has a gate exactly when its role is gate.")
	case in.Gate != nil:
		g := *in.Gate
		if err := g.check("/gate"); err != nil {
			return StepChanged{}, err
		}
		if g.RequestedBy == "" {
			g.RequestedBy = r.Creator
		}
		g.MadeBy = by.Actor
		s.Gate = &g
	}
	c := StepChanged{Step: s, Applied: true}
	c.tell(r, event.RunStepInserted)
	if in.Running {
		c.Step.start(by.At)
		c.tell(r, event.RunStepStarted)
	}
	return c, nil
}

func (s *Step) start(at time.Time) {
	s.Status = StepRunning
	s.begin(at)
}

// begin notes that the present attempt is under way.
func (s *Step) begin(at time.Time) {
	if s.StartedAt.IsZero() {
		s.StartedAt = at
	}
	if s.AttemptStarted.IsZero() {
		s.AttemptStarted = at
	}
}

// StepUpdate is what an engine says of a step: what is left out keeps its value, null clears it.
type StepUpdate struct {
	Status     StepStatus
	RetryCount *int // one more than it was opens another attempt
	ChildRunID patch.Field[string]
	ResultText patch.Field[string]
	ContextOut patch.Field[string]
	Markers    patch.Field[[]string]
	Structured json.RawMessage // nil keeps it, null clears it
	StepError  patch.Field[string]
	WaitID     uuid.UUID // of the gate that this may open
}

func (u *StepUpdate) into(s *Step) {
	if !s.ChildLinked {
		u.ChildRunID.Into(&s.ChildRunID)
	}
	u.ResultText.Into(&s.ResultText)
	u.ContextOut.Into(&s.ContextOut)
	u.Markers.Into(&s.Markers)
	u.StepError.Into(&s.StepError)
	if u.Structured != nil {
		s.Structured = compact(u.Structured)
	}
}

// says reports whether s and t have the same outputs.
func (s *Step) says(t *Step) bool {
	return s.ChildRunID == t.ChildRunID && s.ResultText == t.ResultText && s.ContextOut == t.ContextOut && (s.Markers == nil) == (t.Markers == nil) &&
		slices.Equal(s.Markers, t.Markers) && bytes.Equal(s.Structured, t.Structured) && s.StepError == t.StepError
}

// Update returns s as its engine changes it. The same end again changes nothing, whatever else is said; another one is refused with
// CodeStepTerminal. What its child, which is still at work, decides is not the engine's to say, but the engine may end the step, and
// the child with it. It returns also CodeIllegalTransition, CodeOpenMembers for a fan-out with open items that is said to
// be complete, CodeRunTerminal, CodeRunCancelled and CodeValidationFailed.
func (s Step) Update(r *Run, u StepUpdate, by event.By) (StepChanged, error) {
	if s.Status.Terminal() {
		if u.Status == s.Status {
			return StepChanged{Step: s}, nil
		}
		return StepChanged{}, s.Over(u.Status)
	}
	if err := r.Takes(); err != nil {
		return StepChanged{}, err
	}
	if u.Status != s.Status && !slices.Contains(stepTransitions[s.Status], u.Status) {
		return StepChanged{}, illegal("Step", s.ID, s.Status, u.Status)
	}
	if !u.Status.Terminal() && (u.Status != s.Status || s.retried(&u)) {
		if err := r.Begins(); err != nil {
			return StepChanged{}, err
		}
	}
	if s.HasChild() && u.Status != s.Status && !u.Status.Terminal() && !s.retried(&u) {
		f := illegal("Step", s.ID, s.Status, u.Status)
		f.Message = "The child of step " + s.ID.String() + " is at work: the step is what the child is, until you end it."
		return StepChanged{}, f
	}
	if err := s.gateTakes(u.Status); err != nil {
		return StepChanged{}, err
	}
	if open := s.FanOut.Open(); u.Status == StepCompleted && open > 0 {
		return StepChanged{}, fault.New(fault.CodeOpenMembers, "%d items of step %s have not ended. End them first, or end the step otherwise.", open, s.ID).With("count", open)
	}
	return s.apply(r, u, by)
}

// retried says whether an update opens another attempt.
func (s *Step) retried(u *StepUpdate) bool {
	return u.RetryCount != nil && *u.RetryCount > s.RetryCount
}

// Over is the refusal to change a step that has ended.
func (s *Step) Over(to StepStatus) error {
	return fault.New(fault.CodeStepTerminal, "Step %s is %s already and does not become %s.", s.ID, s.Status, to).
		With("current_status", s.Status).With("from", s.Status).With("to", to)
}

// gateTakes refuses, with CodeIllegalTransition, to take an open gate back, or to answer it in the place of a person.
func (s *Step) gateTakes(to StepStatus) error {
	if !s.Gate.Open() || to == s.Status {
		return nil
	}
	f := illegal("Step", s.ID, s.Status, to)
	switch {
	case !to.Terminal():
		f.Message = "The gate of step " + s.ID.String() + " is open: it waits for its outcome. End the step, or let it be answered."
	case to == StepCompleted && s.Gate.Asks():
		f.Message = "The gate of step " + s.ID.String() + " is a person's to answer. Approve it at …/gate/approve."
	default:
		return nil
	}
	return f
}

func (s Step) apply(r *Run, u StepUpdate, by event.By) (StepChanged, error) {
	c := StepChanged{Step: s, Applied: true}
	next := &c.Step
	retry := false
	if n := u.RetryCount; n != nil && *n != s.RetryCount {
		if *n != s.RetryCount+1 || s.Status == StepPending || u.Status != StepRunning || s.Gate.Open() {
			return StepChanged{}, fault.Invalid(fault.CodeValidationFailed, "/retry_count",
				"The present attempt is %d: the next one is opened by status running with retry_count %d, after this one has begun.", s.RetryCount, s.RetryCount+1)
		}
		retry = true
	}
	if retry {
		closed := s.attempt()
		closed.Status, closed.EndedAt = StepFailed, by.At
		u.StepError.Into(&closed.StepError)
		c.Closed = &closed
		next.RetryCount, next.AttemptStarted, next.ChildRunID, next.ChildLinked, next.ChildExecution = s.RetryCount+1, time.Time{}, "", false, uuid.Nil
		next.StepError, u.StepError = "", patch.Field[string]{} // it is the closed attempt's
	}
	u.into(next)
	switch {
	case retry:
		next.start(by.At)
		c.tell(r, event.RunStepStarted)
	case u.Status.Terminal():
		return next.EndWith(r, u.Status, by), nil
	case u.Status == s.Status && next.says(&s):
		return StepChanged{Step: s}, nil
	case u.Status == s.Status:
		c.tell(r, event.RunStepUpdated)
	case u.Status == StepRunning:
		next.start(by.At)
		c.tell(r, event.RunStepStarted)
	default:
		next.Status = StepWaiting
		next.begin(by.At)
		c.tell(r, event.RunStepWaiting)
		if s.Gate != nil && s.Gate.Outcome == GatePending {
			g := *s.Gate
			g.open(u.WaitID, by.At)
			next.Gate = &g
			c.Events = append(c.Events, g.opened(r, next))
		}
	}
	return c, nil
}

// close returns s at one of its ends. gate is its gate with its outcome, nil when it has none that was open.
func (s Step) close(r *Run, to StepStatus, gate *Gate, by event.By) StepChanged {
	s.Status, s.EndedAt = to, by.At
	if gate != nil {
		s.Gate = gate
	}
	c := StepChanged{Step: s, Applied: true, Ended: true}
	if gate != nil {
		c.Events = append(c.Events, gate.event(r, &s))
	}
	c.tell(r, stepEvents[to])
	return c
}

// EndWith returns a step at one of its ends, with the outcome of its gate when that was open.
func (s Step) EndWith(r *Run, to StepStatus, by event.By) StepChanged {
	var gate *Gate
	if s.Gate != nil && s.Gate.Outcome == GatePending {
		g := *s.Gate
		g.resolve(g.outcomeOf(to), by)
		gate = &g
	}
	return s.close(r, to, gate, by)
}

// Recovery is what an operator says of a step whose engine was lost.
type Recovery struct {
	StepID     uuid.UUID
	Status     StepStatus
	ResultText *string
	EndedAt    time.Time // zero for now
}

// Recover ends a step that has not ended, without its outputs. reference: runs-and-taskflows.md A5.10.
func (s Step) Recover(r *Run, in Recovery, by event.By) StepChanged {
	s.ContextOut, s.Markers, s.Structured, s.StepError, s.ResultText = "", nil, nil, "", ""
	if in.ResultText != nil {
		s.ResultText = *in.ResultText
	}
	c := s.EndWith(r, in.Status, by)
	if !in.EndedAt.IsZero() {
		c.Step.EndedAt = in.EndedAt
		for _, began := range []time.Time{s.CreatedAt, s.AttemptStarted} { // nothing ends before it has begun
			if c.Step.EndedAt.Before(began) {
				c.Step.EndedAt = began
			}
		}
	}
	return c
}

// Again says whether a resume does a step anew.
func (s *Step) Again(in Resume, from int64) bool {
	switch {
	case in.Restart:
		return s.Status != StepPending
	case in.FromStep != "":
		return s.Position >= from && s.Status != StepPending
	}
	lost := (s.Status == StepRunning || s.Status == StepWaiting) && !s.HasChild() && !s.Gate.Open()
	return lost || s.Status == StepFailed || s.Status == StepTimedOut || s.Status == StepCancelled
}

// Reset returns a step that is done anew: the present attempt is kept beside it, and the next one is pending.
// reference: runs-and-taskflows.md A10, A13 23.
func (s Step) Reset(r *Run, by event.By) StepChanged {
	closed := s.attempt()
	if closed.EndedAt.IsZero() {
		closed.Status, closed.EndedAt = StepCancelled, by.At
	}
	next := Step{ID: s.ID, RunID: s.RunID, Path: s.Path, Name: s.Name, Role: s.Role, Status: StepPending, Position: s.Position, Iteration: s.Iteration,
		RetryCount: s.RetryCount + 1, CanCommit: s.CanCommit, ParallelGroup: s.ParallelGroup, CreatedAt: s.CreatedAt, StartedAt: s.StartedAt, FanOut: s.FanOut}
	var lost []event.Event
	if s.Gate.Open() {
		g := *s.Gate
		g.resolve(GateCancelled, by)
		lost = append(lost, g.event(r, &s))
	}
	if s.Gate != nil {
		g := Gate{Type: s.Gate.Type, Prompt: s.Gate.Prompt, Timeout: s.Gate.Timeout, OnTimeout: s.Gate.OnTimeout, Options: s.Gate.Options, MinApprovals: s.Gate.MinApprovals,
			AllowSelf: s.Gate.AllowSelf, RequestedBy: s.Gate.RequestedBy, MadeBy: s.Gate.MadeBy, Outcome: GatePending}
		next.Gate = &g
	}
	c := StepChanged{Step: next, Closed: &closed, Applied: true, Events: lost}
	c.tell(r, event.RunStepReset)
	return c
}

// stepEvents are the events of ends.
var stepEvents = map[StepStatus]event.Type{
	StepCompleted: event.RunStepCompleted, StepFailed: event.RunStepFailed, StepSkipped: event.RunStepSkipped, StepTimedOut: event.RunStepTimedOut, StepCancelled: event.RunStepCancelled,
}

type stepData struct {
	StepID           uuid.UUID  `json:"step_id"`
	StepName         string     `json:"step_name"`
	Role             Role       `json:"role"`
	Status           StepStatus `json:"status"`
	Position         int64      `json:"position"`
	Iteration        int        `json:"iteration"`
	RetryCount       int        `json:"retry_count"`
	ChildRunID       string     `json:"child_run_id,omitempty"`
	ChildExecutionID uuid.UUID  `json:"child_execution_id,omitzero"`
	StepError        string     `json:"step_error,omitempty"`
}

func (c *StepChanged) tell(r *Run, t event.Type) {
	s := &c.Step
	c.Events = append(c.Events, r.Event(t, stepData{s.ID, s.Name, s.Role, s.Status, s.Position, s.Iteration, s.RetryCount, s.ChildRunID, s.ChildExecution, s.StepError}))
}

func itoa(i int) string { return strconv.Itoa(i) }
