package execution_test

import (
	"testing"
	"time"

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
