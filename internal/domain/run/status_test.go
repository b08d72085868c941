package run_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/run"
)

// TestStatuses holds the machine of runs. reference: runs-and-taskflows.md A4.1 "Recommended enforced graph".
func TestStatuses(t *testing.T) {
	t.Parallel()
	want := map[run.Status][]run.Status{
		run.Pending:     {run.Running, run.Cancelled, run.Failed},
		run.Running:     {run.Waiting, run.Cancelling, run.Completed, run.Failed, run.Cancelled, run.NeedsResume},
		run.Waiting:     {run.Running, run.Cancelling, run.Cancelled, run.Failed, run.NeedsResume},
		run.Cancelling:  {run.Cancelled},
		run.NeedsResume: {run.Running, run.Failed, run.Cancelled},
		run.Completed:   {run.Running},
		run.Failed:      {run.Running},
		run.Cancelled:   {},
	}
	ends := []run.Status{run.Completed, run.Failed, run.Cancelled}
	sameGraph(t, want, run.Statuses(), run.Status.Successors)
	sameEnds(t, ends, run.Statuses(), run.Status.Terminal, run.Status.Known)
}

// TestStepStatuses holds the machine of steps. reference: model.md "Run" (steps).
func TestStepStatuses(t *testing.T) {
	t.Parallel()
	ends := []run.StepStatus{run.StepCompleted, run.StepFailed, run.StepSkipped, run.StepTimedOut, run.StepCancelled}
	want := map[run.StepStatus][]run.StepStatus{
		run.StepPending: slices.Concat([]run.StepStatus{run.StepRunning, run.StepWaiting}, ends),
		run.StepRunning: slices.Concat([]run.StepStatus{run.StepWaiting}, ends),
		run.StepWaiting: slices.Concat([]run.StepStatus{run.StepRunning}, ends),
	}
	sameGraph(t, want, run.StepStatuses(), run.StepStatus.Successors)
	sameEnds(t, ends, run.StepStatuses(), run.StepStatus.Terminal, run.StepStatus.Known)
}

// TestItemStatuses holds the machine of items. reference: model.md "Run" (items).
func TestItemStatuses(t *testing.T) {
	t.Parallel()
	ends := []run.ItemStatus{run.ItemCompleted, run.ItemFailed, run.ItemSkipped, run.ItemCancelled}
	want := map[run.ItemStatus][]run.ItemStatus{
		run.ItemPending: slices.Concat([]run.ItemStatus{run.ItemRunning}, ends),
		run.ItemRunning: ends,
	}
	sameGraph(t, want, run.ItemStatuses(), run.ItemStatus.Successors)
	sameEnds(t, ends, run.ItemStatuses(), run.ItemStatus.Terminal, run.ItemStatus.Known)
}

// TestSuccessors_Own: what a caller does to an answer does not reach the machine.
func TestSuccessors_Own(t *testing.T) {
	t.Parallel()
	run.Cancelling.Successors()[0] = "x"
	run.StepPending.Successors()[0] = "x"
	run.ItemRunning.Successors()[0] = "x"
	if diff := cmp.Diff([]run.Status{run.Cancelled}, run.Cancelling.Successors()); diff != "" {
		t.Error(diff)
	}
	if run.StepPending.Successors()[0] != run.StepRunning || run.ItemRunning.Successors()[0] != run.ItemCompleted || run.ItemStatuses()[2] != run.ItemCompleted {
		t.Error("the machine of steps or items has changed")
	}
}

func sameGraph[S ~string](t *testing.T, want map[S][]S, all []S, successors func(S) []S) {
	t.Helper()
	for _, from := range all {
		got, wanted := successors(from), slices.Clone(want[from])
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%s is followed by %v, want %v", from, got, wanted)
		}
	}
}

func sameEnds[S ~string](t *testing.T, ends, all []S, terminal, known func(S) bool) {
	t.Helper()
	for i, s := range all {
		if terminal(s) != slices.Contains(ends, s) || !known(s) || slices.Contains(all[:i], s) {
			t.Errorf("%s: terminal %t, known %t", s, terminal(s), known(s))
		}
		if terminal(s) != (i >= len(all)-len(ends)) {
			t.Errorf("%s is number %d: ends come last", s, i)
		}
	}
	for _, s := range []S{"", "Completed", "succeeded"} {
		if known(s) || terminal(s) {
			t.Errorf("%q is known", s)
		}
	}
}
