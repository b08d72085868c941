package flow_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/flow"
)

func counts(of ...execution.Public) map[execution.Public]int64 {
	m := map[execution.Public]int64{}
	for _, p := range of {
		m[p]++
	}
	return m
}

// TestRollup_State: the table of flows-streams-budgets.md 1.3, with the rule of auto_finish for the ends.
func TestRollup_State(t *testing.T) {
	t.Parallel()
	const (
		waiting, active, done, skipped = execution.PublicWaiting, execution.PublicActive, execution.PublicCompleted, execution.PublicSkipped
	)
	tests := []struct {
		name       string
		counts     map[execution.Public]int64
		unforgiven bool
		want       flow.RollupState
	}{
		{"waiting", counts(waiting, done), false, flow.RollupOpen},
		{"active", counts(waiting, active, execution.PublicSuspended), false, flow.RollupRunning},
		{"suspended", counts(waiting, execution.PublicSuspended), false, flow.RollupBlocked},
		{"delayed", counts(execution.PublicDelayed), false, flow.RollupBlocked},
		{"rate limited", counts(execution.PublicRateLimited), false, flow.RollupBlocked},
		{"waiting for others", counts(execution.PublicWaitingChildren, done), false, flow.RollupBlocked},
		{"all have ended", counts(done, skipped), false, flow.RollupCompleted},
		{"badly, which was made up for", counts(done, execution.PublicFailed), false, flow.RollupCompleted},
		{"badly", counts(done, execution.PublicFailed), true, flow.RollupFailed},
		{"what was badly once counts when all have ended", counts(done, waiting), true, flow.RollupOpen},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := flow.Rollup{Counts: tt.counts, Unforgiven: tt.unforgiven}
			if got := r.State(); got != tt.want {
				t.Errorf("State() = %s, want %s", got, tt.want)
			}
		})
	}
}

// TestRollup_Sums: total, open and bad are the sums of what they are said to be of.
func TestRollup_Sums(t *testing.T) {
	t.Parallel()
	bad := []execution.Public{execution.PublicFailed, execution.PublicExpired, execution.PublicCancelled}
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfN(rapid.SampledFrom(execution.Publics()), 1, 30).Draw(t, "members")
		r := flow.Rollup{Counts: counts(members...), Unforgiven: rapid.Bool().Draw(t, "unforgiven")}
		var open, ill int64
		for _, p := range members {
			if !p.Ended() {
				open++
			}
			if slices.Contains(bad, p) {
				ill++
			}
		}
		if r.Total() != int64(len(members)) || r.Open() != open || r.Bad() != ill {
			t.Fatalf("total %d, open %d, bad %d of %v", r.Total(), r.Open(), r.Bad(), members)
		}
		ended := r.State() == flow.RollupCompleted || r.State() == flow.RollupFailed
		if ended != (open == 0) || (r.State() == flow.RollupRunning) != slices.Contains(members, execution.PublicActive) {
			t.Fatalf("%s with %v", r.State(), members)
		}
	})
}

// TestFlow_Complete: a running flow that ends by itself ends as its members have; any other stays as it is.
func TestFlow_Complete(t *testing.T) {
	t.Parallel()
	for _, status := range flow.Statuses() {
		for _, auto := range []bool{false, true} {
			f := in(t, status)
			f.AutoFinish = auto
			c, err := f.Complete([]string{"build"}, false, by(10))
			if err != nil {
				t.Fatal(err)
			}
			if auto && status == flow.Running {
				if c.Flow.Status != flow.Failed || len(c.Events) != 1 {
					t.Errorf("it is %s", c.Flow.Status)
				}
				continue
			}
			if diff := cmp.Diff(flow.Change{Flow: f}, c); diff != "" {
				t.Errorf("%s, auto_finish %t (-before +after):\n%s", status, auto, diff)
			}
		}
	}
	asked := func(f flow.Flow) flow.Flow { return f.RequestCancel("superseded", by(5)).Flow }
	same := func(f flow.Flow) flow.Flow { return f }
	tests := []struct {
		name       string
		before     func(flow.Flow) flow.Flow
		unforgiven []string
		more       bool
		status     flow.Status
		event      event.Type
		reason     string
	}{
		{"well", same, nil, false, flow.Finished, event.FlowFinished, ""},
		{"badly", same, []string{"build", "test"}, false, flow.Failed, event.FlowFailed, "these members did not end well: build, test"},
		{"badly, with more than are named", same, []string{"build"}, true, flow.Failed, event.FlowFailed, "these members did not end well: build and others"},
		{"well, but it was to be cancelled", asked, nil, false, flow.Cancelled, event.FlowCancelled, ""},
		{"badly, and it was to be cancelled", asked, []string{"build"}, false, flow.Cancelled, event.FlowCancelled, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := in(t, flow.Running)
			f.AutoFinish = true
			f = tt.before(f)
			c, err := f.Complete(tt.unforgiven, tt.more, by(10))
			if err != nil {
				t.Fatal(err)
			}
			n := c.Flow
			if n.Status != tt.status || n.Revision != f.Revision+1 || !n.EndedAt.Equal(by(10).At) || len(c.Events) != 1 || c.Events[0].Type != tt.event {
				t.Errorf("it is %s since %s at revision %d, and tells %v", n.Status, n.EndedAt, n.Revision, c.Events)
			}
			if n.Failure != nil && n.Failure.Reason != tt.reason || (n.Failure == nil) != (tt.reason == "") {
				t.Errorf("failure %+v, want %q", n.Failure, tt.reason)
			}
			if tt.status == flow.Cancelled && (n.Cancellation.Policy != flow.CancelAll || n.Cancellation.Reason != "superseded") {
				t.Errorf("cancellation %+v", n.Cancellation)
			}
		})
	}
}
