package execution_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestBulk_Check: what does not say whom, or what to do.
func TestBulk_Check(t *testing.T) {
	t.Parallel()
	some := execution.Filter{Lane: "ci"}
	for name, tt := range map[string]struct {
		bulk    execution.Bulk
		pointer string // "" for one that is taken
	}{
		"cancel":                     {execution.Bulk{Action: execution.BulkCancel, Filter: some, Reason: "x"}, ""},
		"replay":                     {execution.Bulk{Action: execution.BulkReplay, Filter: some}, ""},
		"priority":                   {execution.Bulk{Action: execution.BulkPriority, Filter: some, Priority: new(1)}, ""},
		"all of them":                {execution.Bulk{Action: execution.BulkCancel}, "/filter"},
		"a priority without one":     {execution.Bulk{Action: execution.BulkPriority, Filter: some}, "/priority"},
		"a priority of another":      {execution.Bulk{Action: execution.BulkReplay, Filter: some, Priority: new(1)}, "/priority"},
		"a reason that nobody reads": {execution.Bulk{Action: execution.BulkReplay, Filter: some, Reason: "x"}, "/reason"},
	} {
		if err := tt.bulk.Check(); tt.pointer == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if tt.pointer != "" {
			refused(t, err, fault.CodeValidationFailed, tt.pointer)
		}
	}
}

// TestBulkJob: a job remembers the first refusals and counts all, and its end is told.
func TestBulkJob(t *testing.T) {
	t.Parallel()
	j := execution.BulkJob{ID: uuid.Max, Namespace: "red", Actor: "token:ann", State: execution.BulkRunning}
	if e := j.Started(); e.Type != event.OperatorBulkStarted || e.Actor != "token:ann" || e.Namespace != "red" {
		t.Errorf("%+v", e)
	}
	for i := range execution.MaxBulkFailures + 5 {
		j.Refused(uuid.Max, fault.New(fault.CodeAlreadyTerminal, "%s", fmt.Sprint(i)))
	}
	if j.FailedCount != execution.MaxBulkFailures+5 || len(j.Failed) != execution.MaxBulkFailures || j.Failed[0].Detail != "0" || j.Failed[1].Code != fault.CodeAlreadyTerminal {
		t.Errorf("%d refusals, of which %d are kept: %+v", j.FailedCount, len(j.Failed), j.Failed[:2])
	}
	if e := j.End(execution.BulkStopped, after(1)); e.Type != event.OperatorBulkFinished || j.State != execution.BulkStopped || !j.EndedAt.Equal(after(1)) {
		t.Errorf("%+v, %+v", e, j.EndedAt)
	}
	for action, want := range map[execution.BulkAction]execution.Lifecycle{execution.BulkCancel: execution.Terminal, execution.BulkReplay: execution.Terminal, execution.BulkPriority: execution.Runnable} {
		if phase, not := action.Phase(); phase != want || not != (action == execution.BulkCancel) {
			t.Errorf("%s concerns %s, %t", action, phase, not)
		}
	}
}

// TestAsking_First: the waitpoint to answer is one at which something is lacking.
func TestAsking_First(t *testing.T) {
	t.Parallel()
	a := execution.Asking{Waitpoints: []execution.AskedAt{{Key: "a"}, {Key: "b"}}}
	for want, lacking := range map[string][]string{"a": nil, "b": {"c", "b"}} {
		if got := a.First(lacking); got == nil || got.Key != want {
			t.Errorf("of what lacks %q the first is %+v", lacking, got)
		}
	}
	if got := (&execution.Asking{}).First(nil); got != nil {
		t.Errorf("of nothing the first is %+v", got)
	}
}
