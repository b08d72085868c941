package execution_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// TestApproval_Admit: who may decide. model.md "Approvals".
func TestApproval_Admit(t *testing.T) {
	t.Parallel()
	open, two, other := execution.Approval{RequestedBy: "token:eve", MinApprovals: 1, AllowRequester: true}, execution.Approval{RequestedBy: "token:eve", MinApprovals: 2, AllowRequester: true},
		execution.Approval{RequestedBy: "token:eve", MinApprovals: 1}
	tests := []struct {
		name       string
		approval   *execution.Approval
		decision   execution.Decision
		who        string
		identified bool
		want       fault.Code
	}{
		{"no approval", nil, execution.Approved, "x", false, ""},
		{"anybody", &open, execution.Approved, "token:eve", false, ""},
		{"anybody who is known", &open, execution.Approved, "token:eve", true, ""},
		{"one of two whom nobody knows", &two, execution.Approved, "token:ada", false, fault.CodeForbidden},
		{"a rejection, too", &two, execution.Rejected, "token:ada", false, fault.CodeForbidden},
		{"one of two", &two, execution.Approved, "token:ada", true, ""},
		{"one of two is who asks", &two, execution.Approved, "token:eve", true, ""},
		{"another person", &other, execution.Approved, "token:ada", true, ""},
		{"another person whom nobody knows", &other, execution.Approved, "token:ada", false, fault.CodeForbidden},
		{"whoever asks", &other, execution.Rejected, "token:eve", true, fault.CodeSelfApproval},
		{"a signal that decides nothing", &other, "progress", "token:eve", false, ""},
	}
	for _, tt := range tests {
		if got := fault.CodeOf(tt.approval.Admit(tt.decision, tt.who, tt.identified)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAsked_Ended: how a request ends, as whoever comes with its link is told.
func TestAsked_Ended(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	suspension := uuid.New()
	closed := func(reason string) execution.Waitpoint {
		return execution.Waitpoint{SuspensionID: suspension, State: execution.WaitpointClosed, CloseReason: reason, ClosedAt: at}
	}
	over := execution.Execution{CompletedAt: at, Suspension: &execution.Suspension{ID: suspension}}
	over.Lifecycle = execution.Terminal
	later := over
	later.CompletedAt = at.Add(time.Hour)
	went := execution.Execution{Suspension: &execution.Suspension{ID: suspension, Closer: "s2"}}
	tests := []struct {
		name  string
		asked execution.Asked
		want  execution.AskedEnding
	}{
		{"decided", execution.Asked{Execution: later, Waitpoint: closed("resumed"), Decisions: []wait.Kept{{SuspensionID: suspension, Effect: wait.Satisfied}}}, execution.AskedDecided},
		{"decided before it waited", execution.Asked{Execution: went, Waitpoint: closed("resumed"), Decisions: []wait.Kept{{Signal: wait.Signal{ID: "s2"}, SuspensionID: suspension, Effect: wait.Buffered}}}, execution.AskedDecided},
		{"decided another time", execution.Asked{Execution: went, Waitpoint: closed("resumed"), Decisions: []wait.Kept{{SuspensionID: uuid.New(), Effect: wait.Satisfied}}}, execution.AskedClosed},
		{"timed out", execution.Asked{Execution: over, Waitpoint: closed("timed_out_fail")}, execution.AskedExpired},
		{"timed out, and went on", execution.Asked{Execution: went, Waitpoint: closed("timed_out_auto_resume")}, execution.AskedExpired},
		{"deadline", execution.Asked{Execution: over, Waitpoint: closed("expired:deadline")}, execution.AskedExpired},
		{"never waited for", execution.Asked{Execution: went, Waitpoint: closed(execution.NeverCommitted)}, execution.AskedExpired},
		{"never waited for, not swept", execution.Asked{Execution: went, Waitpoint: execution.Waitpoint{State: execution.WaitpointPending, ExpiresAt: at}, At: at}, execution.AskedExpired},
		{"cancelled", execution.Asked{Execution: over, Waitpoint: closed("cancelled")}, execution.AskedOver},
		{"kept open by nobody", execution.Asked{Execution: over, Waitpoint: execution.Waitpoint{State: execution.WaitpointPending, ExpiresAt: at.Add(1)}, At: at}, execution.AskedOver},
		{"resumed by hand, ended since", execution.Asked{Execution: later, Waitpoint: closed("resumed")}, execution.AskedClosed},
		{"closed by hand", execution.Asked{Execution: went, Waitpoint: closed("wrong address")}, execution.AskedClosed},
	}
	for _, tt := range tests {
		if got := tt.asked.Ended(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestAsked: what whoever comes with a link is told of the request: by the approval where there is one, else by the suspension, else by
// the waitpoint alone.
func TestAsked(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	type view struct {
		Title, By  string
		Since      time.Time
		OnTimeout  execution.TimeoutBehavior
		Have, Need int
		Answerable bool
		EndedAt    time.Time
	}
	suspension := uuid.New()
	point := execution.Waitpoint{ID: uuid.New(), Key: "go", SuspensionID: suspension, State: execution.WaitpointActive, CreatedAt: at}
	asked := point
	asked.Approval = &execution.Approval{Title: "Deploy?", RequestedBy: "token:eve", MinApprovals: 2}
	alone := point
	alone.SuspensionID, alone.ExpiresAt = uuid.Nil, at.Add(time.Hour)
	closed := point
	closed.State, closed.CloseReason, closed.ClosedAt = execution.WaitpointClosed, "resumed", at.Add(time.Minute)
	waiting := execution.Execution{Lane: "work", Kind: "deploy", Suspension: &execution.Suspension{
		ID: suspension, Reason: "waiting_for_approval", RequestedBy: "worker:w", Since: at.Add(time.Second), Behavior: "fail", Waitpoints: []execution.Bound{{ID: point.ID, Key: "go"}},
	}}
	waiting.Lifecycle = execution.Suspended
	over := execution.Execution{Lane: "work", CompletedAt: at.Add(2 * time.Minute)}
	over.Lifecycle = execution.Terminal
	by := func(id, who string, name execution.Decision) wait.Kept {
		return wait.Kept{Signal: wait.Signal{ID: id, Name: string(name), SourceType: "user", SourceIdentity: who}, SuspensionID: suspension}
	}
	tests := []struct {
		name  string
		asked execution.Asked
		want  view
	}{
		{
			"an approval", execution.Asked{Execution: waiting, Waitpoint: asked, At: at},
			view{Title: "Deploy?", By: "token:eve", Since: at.Add(time.Second), OnTimeout: "fail", Need: 2, Answerable: true},
		},
		{
			"one of two has approved, twice, and another has not", execution.Asked{Execution: waiting, Waitpoint: asked, At: at, Decisions: []wait.Kept{
				by("1", "ada", execution.Approved), by("2", "ada", execution.Approved), by("3", "bob", execution.Rejected), {Signal: wait.Signal{ID: "4", Name: "approved", SourceIdentity: "old"}, SuspensionID: uuid.New()},
			}},
			view{Title: "Deploy?", By: "token:eve", Since: at.Add(time.Second), OnTimeout: "fail", Have: 1, Need: 2, Answerable: true},
		},
		{
			"no approval", execution.Asked{Execution: waiting, Waitpoint: point, At: at},
			view{Title: "deploy in lane work: waiting for approval", By: "worker:w", Since: at.Add(time.Second), OnTimeout: "fail", Need: 1, Answerable: true},
		},
		{
			"nobody waits yet", execution.Asked{Execution: execution.Execution{Lane: "work"}, Waitpoint: alone, At: at},
			view{Title: "an execution in lane work: waitpoint go", Since: at, Need: 1, EndedAt: at.Add(time.Hour)},
		},
		{
			"closed", execution.Asked{Execution: waiting, Waitpoint: closed, At: at},
			view{Title: "deploy in lane work: waiting for approval", By: "worker:w", Since: at.Add(time.Second), OnTimeout: "fail", Need: 1, EndedAt: at.Add(time.Minute)},
		},
		{
			"its execution has ended", execution.Asked{Execution: over, Waitpoint: alone, At: at},
			view{Title: "an execution in lane work: waitpoint go", Since: at, Need: 1, EndedAt: at.Add(2 * time.Minute)},
		},
	}
	for _, tt := range tests {
		a := &tt.asked
		got := view{Title: a.Title(), By: a.By(), Since: a.Since(), OnTimeout: a.OnTimeout(), Answerable: a.Answerable(), EndedAt: a.EndedAt()}
		got.Have, got.Need = a.Approvals()
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestApproval_Check: what is shown together has a limit.
func TestApproval_Check(t *testing.T) {
	t.Parallel()
	most := execution.Approval{Title: "t", Prompt: strings.Repeat("p", execution.MaxApproval-3), Payload: []byte("1"), Form: []byte("2")}
	if err := most.Check("/approval"); err != nil {
		t.Error(err)
	}
	most.Prompt += "p"
	f, ok := errors.AsType[*fault.Error](most.Check("/approval"))
	if !ok || f.Code != fault.CodePayloadTooLarge || f.Facts["limit"] != execution.MaxApproval {
		t.Errorf("one byte too many: %v", f)
	}
}
