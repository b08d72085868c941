package runtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/proptest"
)

// What is compared of a run, a step, an item, a gate and an execution: times are milliseconds since the run of the test began, and what
// is null is empty.

type runView struct {
	Name, Status, In, Wait, Reason, Deadline, Summary, Error, Lease, Started, Ended string
	Generation, Revision, Total                                                     int64
	Resumes                                                                         int
	Dismissed                                                                       bool
}

type stepView struct {
	Name, Run, Path, Role, Status, Child, Created, Started, Ended string
	Text, Context, Markers, Structured, Error                     string
	Position, Iteration, Retries                                  int
	Counts, Gate                                                  string
	Attempts                                                      []string
}

type itemView struct{ Key, Step, Status, Child, Created, Dispatched, Completed string }

type gateView struct {
	Step, Type, State, Opened, Deadline, Resolved, By string
	Need, Approvals                                   int
	Votes                                             []string
}

type workView struct{ Name, State, Run string }

// raw is JSON as it came.
type raw = json.RawMessage

func decode[T any](data []byte) T { return proptest.Decode[T](data) }

func (w *world) at(ms int64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprint(ms - w.began)
}

func (w *world) when(t *time.Time) string {
	if t == nil {
		return ""
	}
	return w.at(t.UnixMilli())
}

func (w *world) nameOf(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return w.named(id.String())
}

func or(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func listOf(list *[]string) string {
	if list == nil {
		return "none"
	}
	return fmt.Sprint(*list)
}

// placeOf is where a run is.
func (p place) String() string {
	switch {
	case p.run == nil:
		return ""
	case p.item != nil:
		return p.run.name + " " + p.step.name + " " + p.item.kind + "/" + p.item.key
	case p.step != nil:
		return p.run.name + " " + p.step.name
	}
	return p.run.name
}

func (c child) String() string {
	switch {
	case c.work != nil:
		return c.work.name
	case c.run != nil:
		return c.run.name
	}
	return ""
}

func (w *world) viewRun(r *run) runView {
	v := runView{Name: r.name, Status: r.status, In: r.at.String(), Reason: r.reason, Deadline: w.at(r.deadline), Summary: r.summary, Error: r.failure, Lease: w.at(r.until), Started: w.at(r.started),
		Ended: w.at(r.ended), Generation: r.generation, Revision: int64(len(r.trail) - 1), Total: r.total, Resumes: r.resumes, Dismissed: r.dismissed}
	if on := r.wait; on != nil {
		what := child{on.work, on.run}.String()
		if on.step != nil {
			what = on.step.name
		}
		v.Wait = fmt.Sprintf("for %q until %q, then %s, since %s", what, w.at(on.deadline), on.onTimeout, w.at(on.since))
	}
	return v
}

func (s *side) readRun(data []byte) runView {
	r := decode[struct {
		ID         uuid.UUID
		Status     string
		ParentRun  *uuid.UUID `json:"parent_workflow_run_id"`
		ParentStep *uuid.UUID `json:"parent_step_id"`
		ParentItem *uuid.UUID `json:"parent_item_id"`
		BlockedOn  *struct {
			RunID       *uuid.UUID `json:"run_id"`
			ExecutionID *uuid.UUID `json:"execution_id"`
			StepID      *uuid.UUID `json:"step_id"`
		} `json:"blocked_on"`
		Wait *struct {
			Deadline  *time.Time
			OnTimeout string `json:"on_timeout"`
			Since     time.Time
		}
		ResultSummary *string `json:"result_summary"`
		Error         *string
		CancelReason  *string `json:"cancel_reason"`
		Cancellation  *struct {
			DeadlineAt *time.Time `json:"deadline_at"`
		}
		Dismissed   bool
		Generation  int64
		LeaseUntil  *time.Time `json:"lease_until"`
		ResumeCount int        `json:"resume_count"`
		Revision    int64
		StartedAt   *time.Time `json:"started_at"`
		EndedAt     *time.Time `json:"ended_at"`
		Total       int64      `json:"total_duration_ms"`
	}](data)
	w := s.w
	v := runView{Name: w.nameOf(&r.ID), Status: r.Status, In: w.nameOf(r.ParentRun), Reason: or(r.CancelReason), Summary: or(r.ResultSummary), Error: or(r.Error), Lease: w.when(r.LeaseUntil),
		Started: w.when(r.StartedAt), Ended: w.when(r.EndedAt), Generation: r.Generation, Revision: r.Revision, Total: r.Total, Resumes: r.ResumeCount, Dismissed: r.Dismissed}
	if r.ParentStep != nil {
		v.In += " " + w.nameOf(r.ParentStep)
	}
	if r.ParentItem != nil {
		v.In += " " + s.itemName(*r.ParentItem)
	}
	if r.Cancellation != nil {
		v.Deadline = w.when(r.Cancellation.DeadlineAt)
	}
	if on := r.BlockedOn; on != nil && r.Wait != nil {
		what := w.nameOf(on.RunID) + w.nameOf(on.ExecutionID) + w.nameOf(on.StepID)
		v.Wait = fmt.Sprintf("for %q until %q, then %s, since %s", what, w.when(r.Wait.Deadline), r.Wait.OnTimeout, w.when(&r.Wait.Since))
	} else if on != nil || r.Wait != nil {
		s.Failf("blocked_on and wait do not go together:\n%s", data)
	}
	return v
}

func (s *side) itemName(id uuid.UUID) string {
	for it, of := range s.items {
		if of == id {
			return it.kind + "/" + it.key
		}
	}
	return "an unknown item"
}

// shown is what an engine says of a step.
func (s *step) shown() string {
	o := s.out
	return fmt.Sprintf("%q %q %q %q %s %q", s.label, o.text, o.context, o.err, listOf(o.markers), o.structured)
}

func (w *world) viewStep(s *step) stepView {
	v := stepView{Name: s.name, Run: s.run.name, Path: s.path, Role: s.role, Status: s.status, Child: s.child.String(), Created: w.at(s.created), Started: w.at(s.started), Ended: w.at(s.ended),
		Text: s.out.text, Context: s.out.context, Markers: listOf(s.out.markers), Structured: s.out.structured, Error: s.out.err, Position: s.position, Iteration: s.iteration, Retries: s.retries}
	if s.child.run == nil && s.label != "" {
		v.Child = strings.TrimSpace(v.Child + " " + s.label)
	}
	if s.out.loose {
		v.Text, v.Error = anyText, anyText
	}
	counts := map[string]int{}
	for _, it := range s.items {
		counts[it.status]++
	}
	v.Counts = countsText(len(s.items), counts)
	if s.gate != nil {
		v.Gate = s.gate.outcome
	}
	for i, a := range append(slices.Clip(s.attempts), attempt{s.status, s.label, s.child, s.began, s.ended, s.out.err, s.out.loose}) {
		who := a.child.String()
		if a.child.run == nil {
			who += " " + a.label
		}
		if a.loose {
			a.err = anyText
		}
		v.Attempts = append(v.Attempts, attemptText(i, a.status, who, w.at(a.started), w.at(a.ended), a.err))
	}
	return v
}

func countsText(total int, of map[string]int) string {
	return fmt.Sprintf("%d: %d pending, %d running, %d completed, %d failed, %d skipped, %d cancelled", total, of["pending"], of["running"], of["completed"], of["failed"], of["skipped"], of["cancelled"])
}

func attemptText(i int, status, child, started, ended, err string) string {
	return fmt.Sprintf("%d %s %q from %q to %q: %q", i, status, strings.TrimSpace(child), started, ended, err)
}

// shownStep is a step in an answer.
type shownStep struct {
	ID             uuid.UUID
	RunID          uuid.UUID `json:"run_id"`
	Path           string
	Role           string
	Status         string
	Position       int
	Iteration      int
	RetryCount     int        `json:"retry_count"`
	ChildRun       *string    `json:"child_run_id"`
	ChildExecution *uuid.UUID `json:"child_execution_id"`
	CreatedAt      *time.Time `json:"created_at"`
	StartedAt      *time.Time `json:"started_at"`
	EndedAt        *time.Time `json:"ended_at"`
	ResultText     *string    `json:"result_text"`
	ContextOut     *string    `json:"context_out"`
	Markers        *[]string  `json:"markers_out"`
	Structured     raw        `json:"structured_output"`
	StepError      *string    `json:"step_error"`
	Gate           *struct{ State string }
	Total          int `json:"fan_out_total"`
	Pending        int `json:"fan_out_pending"`
	Running        int `json:"fan_out_running"`
	Completed      int `json:"fan_out_completed"`
	Failed         int `json:"fan_out_failed"`
	Skipped        int `json:"fan_out_skipped"`
	Cancelled      int `json:"fan_out_cancelled"`
	Attempts       []struct {
		Index          int `json:"attempt_index"`
		Status         string
		ChildRun       *string    `json:"child_run_id"`
		ChildExecution *uuid.UUID `json:"child_execution_id"`
		StartedAt      *time.Time `json:"started_at"`
		EndedAt        *time.Time `json:"ended_at"`
		StepError      *string    `json:"step_error"`
	}
}

func (s *side) readStep(data []byte) stepView {
	x, w := decode[shownStep](data), s.w
	who := func(execution *uuid.UUID, run *string) string {
		if run == nil {
			return w.nameOf(execution)
		}
		return strings.TrimSpace(w.nameOf(execution) + " " + w.named(*run))
	}
	v := stepView{Name: w.nameOf(&x.ID), Run: w.nameOf(&x.RunID), Path: x.Path, Role: x.Role, Status: x.Status, Child: who(x.ChildExecution, x.ChildRun), Created: w.when(x.CreatedAt),
		Started: w.when(x.StartedAt), Ended: w.when(x.EndedAt), Text: or(x.ResultText), Context: or(x.ContextOut), Markers: listOf(x.Markers), Error: or(x.StepError), Position: x.Position,
		Iteration: x.Iteration, Retries: x.RetryCount}
	if string(x.Structured) != "null" {
		v.Structured = string(x.Structured)
	}
	v.Counts = countsText(x.Total, map[string]int{"pending": x.Pending, "running": x.Running, "completed": x.Completed, "failed": x.Failed, "skipped": x.Skipped, "cancelled": x.Cancelled})
	if x.Gate != nil {
		v.Gate = x.Gate.State
	}
	for _, a := range x.Attempts {
		v.Attempts = append(v.Attempts, attemptText(a.Index, a.Status, who(a.ChildExecution, a.ChildRun), w.when(a.StartedAt), w.when(a.EndedAt), or(a.StepError)))
	}
	return v
}

func (w *world) viewItem(it *item) itemView {
	return itemView{Key: it.kind + "/" + it.key, Step: it.step.name, Status: it.status, Child: it.child.String(), Created: w.at(it.created), Dispatched: w.at(it.dispatched), Completed: w.at(it.completed)}
}

func (s *side) readItem(data []byte) (itemView, uuid.UUID) {
	x := decode[struct {
		ID             uuid.UUID
		StepID         uuid.UUID  `json:"step_id"`
		Type           string     `json:"item_type"`
		ItemID         string     `json:"item_id"`
		Status         string     `json:"status"`
		ChildRun       *string    `json:"child_run_id"`
		ChildExecution *uuid.UUID `json:"child_execution_id"`
		CreatedAt      *time.Time `json:"created_at"`
		DispatchedAt   *time.Time `json:"dispatched_at"`
		CompletedAt    *time.Time `json:"completed_at"`
	}](data)
	w := s.w
	return itemView{Key: x.Type + "/" + x.ItemID, Step: w.nameOf(&x.StepID), Status: x.Status, Child: w.nameOf(x.ChildExecution) + w.named(or(x.ChildRun)), Created: w.when(x.CreatedAt),
		Dispatched: w.when(x.DispatchedAt), Completed: w.when(x.CompletedAt)}, x.ID
}

func voteText(by, decision, feedback, selections, at string) string {
	return fmt.Sprintf("%s %s %q %s at %s", by, decision, feedback, selections, at)
}

func (w *world) viewGate(s *step) gateView {
	g := s.gate
	v := gateView{Step: s.name, Type: g.kind, State: g.outcome, Opened: w.at(g.opened), Deadline: w.at(g.deadline), Resolved: w.at(g.resolved), By: g.by, Need: g.need}
	approvers := map[string]bool{}
	for _, vote := range g.votes {
		v.Votes = append(v.Votes, voteText(vote.by, vote.decision, vote.feedback, listOf(vote.selections), w.at(vote.at)))
		if vote.decision == "approved" {
			approvers[vote.by] = true
		}
	}
	v.Approvals = len(approvers)
	return v
}

func (s *side) readGate(data []byte) gateView {
	x := decode[struct {
		StepID     uuid.UUID `json:"step_id"`
		Type       string    `json:"gate_type"`
		State      string
		Need       int        `json:"min_approvals"`
		Approvals  int        `json:"approvals"`
		OpenedAt   *time.Time `json:"opened_at"`
		DeadlineAt *time.Time `json:"deadline_at"`
		ResolvedAt *time.Time `json:"resolved_at"`
		ResolvedBy *string    `json:"resolved_by"`
		Votes      []struct {
			By         string
			Decision   string
			Feedback   *string
			Selections *[]string
			At         *time.Time
		}
	}](data)
	w := s.w
	v := gateView{Step: w.nameOf(&x.StepID), Type: x.Type, State: x.State, Opened: w.when(x.OpenedAt), Deadline: w.when(x.DeadlineAt), Resolved: w.when(x.ResolvedAt), Need: x.Need, Approvals: x.Approvals}
	for _, vote := range x.Votes {
		v.Votes = append(v.Votes, voteText(vote.By, vote.Decision, or(vote.Feedback), listOf(vote.Selections), w.when(vote.At)))
		if by := or(x.ResolvedBy); by == vote.By { // else it is the engine's, or time's
			v.By = by
		}
	}
	return v
}

func (w *world) viewWork(x *work) workView {
	v := workView{Name: x.name, State: x.phase}
	switch {
	case x.over():
		v.State = map[string]string{"success": "completed"}[x.outcome] + map[bool]string{true: x.outcome}[x.outcome != "success"]
	case x.phase == "runnable":
		v.State = "waiting"
	}
	if x.run != nil {
		v.Run = x.run.name
	}
	return v
}

// loosen puts words of the server's own in the place of what it says, where the model does not know them. What it says has to be something.
func loosen(want string, got *string) {
	if want == anyText {
		*got = anyText
	}
}

func (s *side) same(want, got any, data []byte) {
	if diff := cmp.Diff(want, got); diff != "" {
		s.Failf("the answer is not the model's (-model +server):\n%s\n%s", diff, s.w.named(string(data)))
	}
}

func (s *side) sameRun(r *run, data []byte) {
	want, got := s.w.viewRun(r), s.readRun(data)
	loosen(want.Summary, &got.Summary)
	loosen(want.Error, &got.Error)
	s.same(want, got, data)
}

func (s *side) sameStep(x *step, data []byte) {
	want, got := s.w.viewStep(x), s.readStep(data)
	loosenStep(want, &got)
	s.same(want, got, data)
}

func loosenStep(want stepView, got *stepView) {
	loosen(want.Text, &got.Text)
	loosen(want.Error, &got.Error)
	for i := range got.Attempts {
		if i < len(want.Attempts) && strings.HasSuffix(want.Attempts[i], fmt.Sprintf(": %q", anyText)) {
			head, _, _ := strings.Cut(got.Attempts[i], ": ")
			got.Attempts[i] = head + fmt.Sprintf(": %q", anyText)
		}
	}
}

func (s *side) sameItem(it *item, data []byte) {
	got, id := s.readItem(data)
	if known, ok := s.items[it]; ok && known != id {
		s.Failf("item %s has another id than before", got.Key)
	}
	s.items[it] = id
	s.same(s.w.viewItem(it), got, data)
}

func (s *side) sameGate(x *step, data []byte) { s.same(s.w.viewGate(x), s.readGate(data), data) }
