package run

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Create is what a new run is made of.
type Create struct {
	ID           uuid.UUID
	Namespace    string
	WorkflowName string
	Trigger      string // "" for manual
	DryRun       bool
	Inputs       json.RawMessage // nil for {}
	Definition   json.RawMessage
	ParentRunID  string
	Parent       Place
	FlowID       uuid.UUID
	Iteration    int
	Creator      string
}

// DefaultTrigger is what starts a run unless it is said otherwise.
const DefaultTrigger = "manual"

// New returns a new run, which is pending. It returns CodeValidationFailed for a blank name.
func New(in Create, by event.By) (Change, error) {
	if strings.TrimSpace(in.WorkflowName) == "" {
		return Change{}, fault.Invalid(fault.CodeValidationFailed, "/workflow_name", "workflow_name cannot be empty.")
	}
	r := Run{
		ID: in.ID, Namespace: in.Namespace, WorkflowName: in.WorkflowName, WorkflowTitle: titleOf(in.Definition), Status: Pending, Trigger: in.Trigger,
		DryRun: in.DryRun, Inputs: compact(in.Inputs), Definition: compact(in.Definition), ParentRunID: in.ParentRunID, Parent: in.Parent, FlowID: in.FlowID,
		Iteration: in.Iteration, Creator: in.Creator, Revision: -1, CreatedAt: by.At, UpdatedAt: by.At,
	}
	if r.Trigger == "" {
		r.Trigger = DefaultTrigger
	}
	if r.Inputs == nil {
		r.Inputs = json.RawMessage("{}")
	}
	return r.told(event.RunCreated, createdData{r.WorkflowName, r.WorkflowTitle, r.Trigger, r.DryRun, r.Parent.RunID, r.Parent.StepID, r.Parent.ItemID}), nil
}

type createdData struct {
	WorkflowName        string    `json:"workflow_name"`
	WorkflowTitle       string    `json:"workflow_title,omitempty"`
	Trigger             string    `json:"trigger"`
	DryRun              bool      `json:"dry_run,omitempty"`
	ParentWorkflowRunID uuid.UUID `json:"parent_workflow_run_id,omitzero"`
	StepID              uuid.UUID `json:"step_id,omitzero"`
	ItemID              uuid.UUID `json:"item_id,omitzero"`
}

// titleOf returns the title that a definition gives itself, "" for none. reference: runs-and-taskflows.md A3.1.
func titleOf(definition json.RawMessage) string {
	var d struct {
		Title json.RawMessage `json:"title"`
	}
	var title string
	if definition == nil || json.Unmarshal(definition, &d) != nil || json.Unmarshal(d.Title, &title) != nil {
		return ""
	}
	return title
}

// compact returns a document without the space around its parts, nil for nil and for null.
func compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if doc == nil || json.Compact(&b, doc) != nil || b.String() == "null" {
		return nil
	}
	return b.Bytes()
}

// Each of these returns CodeIllegalTransition when the machine does not have the transition. Those that take a generation return
// CodeLeaseLost first.

// Start makes a pending run run.
func (r Run) Start(generation int64, by event.By) (Change, error) {
	if err := r.Fence(generation); err != nil {
		return Change{}, err
	}
	if r.Status != Pending {
		return Change{}, illegal("Run", r.ID, r.Status, Running)
	}
	next, err := r.move(Running, by)
	if err != nil {
		return Change{}, err
	}
	return next.told(event.RunStarted, generationData{generation}), nil
}

// Park is what an engine says that parks its run.
type Park struct {
	Generation int64
	BlockedOn  json.RawMessage
	Deadline   time.Time // zero for none
	OnTimeout  OnTimeout // "" for fail
}

// Park makes a running run wait. It returns also CodeTimerOutOfRange for a deadline that does not lie ahead, within the horizon, and
// CodeValidationFailed for a blocked_on that says too little.
func (r Run) Park(id uuid.UUID, in Park, horizon time.Duration, by event.By) (Change, error) {
	if err := r.Fence(in.Generation); err != nil {
		return Change{}, err
	}
	next, err := r.move(Waiting, by)
	if err != nil {
		return Change{}, err
	}
	if err := checkBlockedOn(in.BlockedOn); err != nil {
		return Change{}, err
	}
	if in.OnTimeout == "" {
		in.OnTimeout = TimeoutFails
	}
	next.Wait = &Wait{ID: id, BlockedOn: compact(in.BlockedOn), Deadline: in.Deadline, OnTimeout: in.OnTimeout, Since: by.At}
	spec := next.Wait.Spec()
	if err := spec.Check(by.At, horizon, ""); err != nil {
		return Change{}, err
	}
	return next.told(event.RunWaiting, waitingData{id, next.Wait.BlockedOn, event.Stamp(in.Deadline), in.OnTimeout}), nil
}

type waitingData struct {
	WaitID    uuid.UUID       `json:"wait_id"`
	BlockedOn json.RawMessage `json:"blocked_on"`
	Deadline  event.Stamp     `json:"deadline,omitzero"`
	OnTimeout OnTimeout       `json:"on_timeout"`
}

// Spec returns the wait as the kernel has it: only time decides it, or whoever resumes the run.
func (w *Wait) Spec() wait.Spec {
	return wait.Spec{Condition: wait.Condition{Kind: wait.Never}, Deadline: w.Deadline, OnTimeout: wait.OnTimeout(w.OnTimeout)}
}

// BlockedOn is what all forms of blocked_on have together. reference: runs-and-taskflows.md A3.4.
type BlockedOn struct {
	Type            string    `json:"type"`
	GateName        string    `json:"gate_name"`
	ApprovalsNeeded *int      `json:"approvals_needed"`
	RunID           uuid.UUID `json:"run_id"`
	ExecutionID     uuid.UUID `json:"execution_id"`
	StepID          uuid.UUID `json:"step_id"`
}

// The types of blocked_on of which something is required.
const (
	BlockedOnChild       = "child"
	blockedOnApproval    = "human_approval"
	blockedOnReview      = "human_review"
	blockedOnPRApproval  = "pr_approval"
	blockedOnPRChecks    = "pr_checks"
	pointerBlockedOn     = "/blocked_on"
	pointerBlockedOnGate = pointerBlockedOn + "/gate_name"
)

func checkBlockedOn(doc json.RawMessage) error {
	var on BlockedOn
	if err := json.Unmarshal(doc, &on); err != nil {
		return fault.Invalid(fault.CodeValidationFailed, pointerBlockedOn, "blocked_on is an object with a type and the members of that type.")
	}
	switch on.Type {
	case blockedOnApproval, blockedOnReview, blockedOnPRApproval, blockedOnPRChecks:
		if on.GateName == "" {
			return fault.Invalid(fault.CodeValidationFailed, pointerBlockedOnGate, "blocked_on of type %s names its gate.", on.Type)
		}
		if on.Type == blockedOnPRApproval && on.ApprovalsNeeded == nil {
			return fault.Invalid(fault.CodeValidationFailed, pointerBlockedOn+"/approvals_needed", "blocked_on of type %s says how many approvals are needed.", on.Type)
		}
	case BlockedOnChild:
		if on.RunID == uuid.Nil && on.ExecutionID == uuid.Nil && on.StepID == uuid.Nil {
			return fault.Invalid(fault.CodeValidationFailed, pointerBlockedOn, "blocked_on of type child names a run_id, an execution_id or a step_id.")
		}
	}
	return nil
}

// On returns what a waiting run is blocked on, an empty one for a run that does not wait.
func (r *Run) On() (on BlockedOn) {
	if r.Wait != nil {
		_ = json.Unmarshal(r.Wait.BlockedOn, &on) // it was checked when it began
	}
	return on
}

// Resume is what somebody says who lets a run go on.
type Resume struct {
	Generation *int64 // of the engine whose run waits
	FromStep   string // which step, and what comes after it, is done again
	Restart    bool   // everything is done again
}

// ResumedBy says what has let a run go on.
type ResumedBy string

// What.
const (
	ResumedByEngine  ResumedBy = "engine"
	ResumedByRequest ResumedBy = "request"
	ResumedByTimeout ResumedBy = "timeout"
	ResumedByChild   ResumedBy = "child"
)

// Resume lets a run go on: one that waits for the engine that holds it, and one that has failed or that its engine has given up for
// anybody. What has completed begins again only as a whole. It returns CodeLeaseLost, CodeNotResumable and CodeValidationFailed.
// reference: runs-and-taskflows.md A10, C3 "Resume".
func (r Run) Resume(in Resume, by event.By) (Change, error) {
	if in.Generation != nil {
		if err := r.Fence(*in.Generation); err != nil {
			return Change{}, err
		}
	}
	if in.Restart && in.FromStep != "" {
		return Change{}, fault.Invalid(fault.CodeValidationFailed, "/from_step", "A restart begins with the first step: say either restart or from_step.")
	}
	again := in.Restart || in.FromStep != ""
	switch {
	case r.Status == Waiting && in.Generation == nil:
		return Change{}, fault.Invalid(fault.CodeValidationFailed, "/generation", "A waiting run is resumed by its engine: send the generation of its lease.")
	case r.Status == Waiting && again:
		return Change{}, fault.Invalid(fault.CodeValidationFailed, "/restart", "A waiting run goes on where it is. Steps are done again of a run that has ended or needs_resume.")
	case r.Status == Waiting:
		return r.goOn(ResumedByEngine, by)
	case r.Status == NeedsResume, r.Status == Failed, r.Status == Completed && in.Restart:
	default:
		return Change{}, fault.New(fault.CodeNotResumable, "Run %s is %s. Only what waits, needs_resume or has failed goes on, and what has completed only with restart.", r.ID, r.Status).
			With("current_status", r.Status).With("from", r.Status).With("to", Running)
	}
	next, err := r.move(Running, by)
	if err != nil {
		return Change{}, err
	}
	next.ResumeCount++
	next.ResultSummary, next.Error, next.CancelReason, next.Cancellation = "", "", "", nil
	return next.told(event.RunResumed, resumedData{ResumedByRequest, next.ResumeCount, in.FromStep, in.Restart}), nil
}

// Called lets a waiting run go on because a child that it waits for has ended.
func (r Run) Called(by event.By) (Change, error) { return r.goOn(ResumedByChild, by) }

func (r Run) goOn(how ResumedBy, by event.By) (Change, error) {
	if r.Status != Waiting {
		return Change{}, illegal("Run", r.ID, r.Status, Running)
	}
	next, err := r.move(Running, by)
	if err != nil {
		return Change{}, err
	}
	return next.told(event.RunResumed, resumedData{By: how}), nil
}

type resumedData struct {
	By          ResumedBy `json:"by"`
	ResumeCount int       `json:"resume_count,omitempty"`
	FromStep    string    `json:"from_step,omitempty"`
	Restart     bool      `json:"restart,omitempty"`
}

// Late is what becomes of a waiting run whose deadline has passed.
func (r Run) Late(by event.By) (Change, error) {
	if r.Wait == nil {
		return Change{}, illegal("Run", r.ID, r.Status, Running)
	}
	switch r.Wait.OnTimeout {
	case TimeoutResumes:
		return r.goOn(ResumedByTimeout, by)
	case TimeoutCancels:
		r.CancelReason, r.ResultSummary = ByTime, waitTimeout
		r.Cancellation = &Cancellation{Actor: by.Actor, Message: waitTimeout, RequestedAt: by.At}
		return r.cancelled(by)
	default:
		return r.fail(waitTimeout, "", by)
	}
}

const waitTimeout = "wait_timeout"

// Complete ends a run well. open is the number of steps and of runs in it that have not ended: while there are any it returns CodeOpenMembers.
func (r Run) Complete(generation int64, summary string, open int, by event.By) (Change, error) {
	if err := r.Fence(generation); err != nil {
		return Change{}, err
	}
	next, err := r.move(Completed, by)
	if err != nil {
		return Change{}, err
	}
	if open > 0 {
		return Change{}, fault.New(fault.CodeOpenMembers, "%d steps of run %s, or runs in it, have not ended. End them, skip them, or fail the run.", open, r.ID).With("count", open)
	}
	next.ResultSummary, next.Error = summary, ""
	return next.told(event.RunCompleted, next.ended()), nil
}

// Fail ends a run badly; what is open in it is cancelled.
func (r Run) Fail(generation int64, reason, summary string, by event.By) (Change, error) {
	if err := r.Fence(generation); err != nil {
		return Change{}, err
	}
	return r.fail(reason, summary, by)
}

func (r Run) fail(reason, summary string, by event.By) (Change, error) {
	next, err := r.move(Failed, by)
	if err != nil {
		return Change{}, err
	}
	next.Error, next.ResultSummary = reason, summary
	return next.told(event.RunFailed, next.ended()), nil
}

type endedData struct {
	ResultSummary string       `json:"result_summary,omitempty"`
	Error         string       `json:"error,omitempty"`
	CancelReason  CancelReason `json:"cancel_reason,omitempty"`
	TotalMS       int64        `json:"total_duration_ms"`
	Generation    int64        `json:"generation"`
}

func (r *Run) ended() endedData {
	return endedData{r.ResultSummary, r.Error, r.CancelReason, r.TotalDuration.Milliseconds(), r.Generation}
}

// The time that an engine has to end a run that is to be cancelled.
const (
	DefaultCancelDeadline = 5 * time.Second
	MaxCancelDeadline     = time.Hour
)

// Cancel is what somebody says who ends a run.
type Cancel struct {
	Reason     CancelReason // "" for what follows from Generation
	Message    string
	Deadline   time.Duration // for its engine
	Until      time.Time     // instead of Deadline: the time of what it is in
	Generation *int64        // of the engine, which ends it itself
}

// Cancel ends a run: at once, or when its engine, if there is one, has ended it, at the latest after a deadline. A second time it
// changes nothing. reference: runs-and-taskflows.md A4.1, C3 "Cancel".
func (r Run) Cancel(in Cancel, by event.By) (Change, error) {
	if in.Generation != nil {
		if err := r.Fence(*in.Generation); err != nil {
			return Change{}, err
		}
	}
	if !legal(r.Status, Cancelled) {
		return Change{}, illegal("Run", r.ID, r.Status, Cancelled)
	}
	atOnce := in.Generation != nil || !r.Lease.Live(by.At) || !legal(r.Status, Cancelling)
	if r.Status == Cancelling {
		if in.Generation == nil {
			return Change{Run: r}, nil
		}
		return r.cancelled(by)
	}
	if r.CancelReason = in.Reason; r.CancelReason == "" {
		r.CancelReason = ByUser
		if in.Generation != nil {
			r.CancelReason = ByEngine
		}
	}
	r.Cancellation = &Cancellation{Actor: by.Actor, Message: in.Message, RequestedAt: by.At}
	if r.ResultSummary = in.Message; atOnce {
		return r.cancelled(by)
	}
	next, err := r.move(Cancelling, by)
	if err != nil {
		return Change{}, err
	}
	c := *next.Cancellation
	c.DeadlineAt = by.At.Add(in.Deadline)
	if in.Until.After(by.At) {
		c.DeadlineAt = in.Until
	}
	next.Cancellation = &c
	return next.told(event.RunCancelling, cancellingData{next.CancelReason, in.Message, event.Stamp(c.DeadlineAt)}), nil
}

type cancellingData struct {
	CancelReason CancelReason `json:"cancel_reason"`
	Message      string       `json:"message,omitempty"`
	DeadlineAt   event.Stamp  `json:"deadline_at"`
}

// Force ends a run whose engine had time to.
func (r Run) Force(by event.By) (Change, error) { return r.cancelled(by) }

func (r Run) cancelled(by event.By) (Change, error) {
	next, err := r.move(Cancelled, by)
	if err != nil {
		return Change{}, err
	}
	return next.told(event.RunCancelled, next.ended()), nil
}

// DueAt is when time does something to a run by itself, zero for never.
func (r *Run) DueAt() time.Time {
	switch {
	case r.Draining:
		return r.UpdatedAt
	case r.Status == Cancelling:
		return r.Cancellation.DeadlineAt
	}
	return time.Time{}
}

// Dismiss hides a run from lists, or shows it again.
func (r Run) Dismiss(dismissed bool, by event.By) Change {
	if r.Dismissed == dismissed {
		return Change{Run: r}
	}
	r.Dismissed, r.UpdatedAt = dismissed, by.At
	return r.told(event.RunDismissed, struct {
		Dismissed bool `json:"dismissed"`
	}{dismissed})
}

// Gone returns the event that tells of the deletion of a run.
func (r *Run) Gone() event.Event {
	return r.Event(event.RunDeleted, struct {
		Status Status `json:"status"`
	}{r.Status})
}
