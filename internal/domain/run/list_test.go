package run_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/run"
)

// passed returns a gate of deploy that was answered after seconds.
func passed(o run.GateOutcome, seconds, feedback int) run.Passed {
	return run.Passed{WorkflowName: "deploy", StepName: "approve", GateType: run.HumanApproval, Outcome: o, Wait: time.Duration(seconds) * time.Second, Feedback: feedback}
}

// TestStatsOf. reference: runs-and-taskflows.md A6.8.
func TestStatsOf(t *testing.T) {
	t.Parallel()
	var twenty []run.Passed // which waited 1 … 20 s, in no order
	for i := range 20 {
		twenty = append(twenty, passed(run.GateApproved, i*7%20+1, 0))
	}
	stats := func(change func(*run.GateStats)) run.GateStats {
		s := run.GateStats{WorkflowName: "deploy", StepName: "approve", GateType: run.HumanApproval}
		change(&s)
		return s
	}
	other := func(workflow, step, kind string) run.Passed {
		return run.Passed{WorkflowName: workflow, StepName: step, GateType: kind, Outcome: run.GateSkipped}
	}
	tests := []struct {
		name  string
		gates []run.Passed
		want  []run.GateStats
	}{
		{"none", nil, []run.GateStats{}},
		{"one", []run.Passed{passed(run.GateApproved, 8, 5)}, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.AvgWait, s.P50Wait, s.P95Wait, s.AvgFeedback = 1, 1, 8*time.Second, 8*time.Second, 8*time.Second, 5
		})}},
		{"two", []run.Passed{passed(run.GateRejected, 10, 3), passed(run.GateApproved, 2, 0)}, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.Rejections, s.AvgWait, s.P50Wait, s.P95Wait, s.AvgFeedback = 2, 1, 1, 6*time.Second, 2*time.Second, 10*time.Second, 3
		})}},
		{"three", []run.Passed{passed(run.GateApproved, 9, 0), passed(run.GateApproved, 1, 4), passed(run.GateApproved, 2, 7)}, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.AvgWait, s.P50Wait, s.P95Wait, s.AvgFeedback = 3, 3, 4*time.Second, 2*time.Second, 9*time.Second, 5
		})}},
		{"twenty", twenty, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.AvgWait, s.P50Wait, s.P95Wait = 20, 20, 10500*time.Millisecond, 10*time.Second, 19*time.Second
		})}},
		{"twenty-one", append(slices.Clone(twenty), passed(run.GateRejected, 21, 0)), []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.Rejections, s.AvgWait, s.P50Wait, s.P95Wait = 21, 20, 1, 11*time.Second, 11*time.Second, 20*time.Second
		})}},
		{"those that nobody answered", []run.Passed{passed(run.GateTimedOut, 3600, 0), passed(run.GateCancelled, 5, 0), passed(run.GateSkipped, 0, 0)}, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.TimedOut = 3, 1
		})}},
		{"their waits do not count", []run.Passed{passed(run.GateTimedOut, 3600, 2), passed(run.GateApproved, 4, 0)}, []run.GateStats{stats(func(s *run.GateStats) {
			s.Hits, s.Approvals, s.TimedOut, s.AvgWait, s.P50Wait, s.P95Wait, s.AvgFeedback = 2, 1, 1, 4*time.Second, 4*time.Second, 4*time.Second, 2
		})}},
		{"by name, those with the most first, else in their order", []run.Passed{
			other("b", "s", "x"), other("a", "s", "x"), other("a", "t", "x"), other("a", "s", "y"), other("a", "t", "x"),
		}, []run.GateStats{
			{WorkflowName: "a", StepName: "t", GateType: "x", Hits: 2}, {WorkflowName: "b", StepName: "s", GateType: "x", Hits: 1},
			{WorkflowName: "a", StepName: "s", GateType: "x", Hits: 1}, {WorkflowName: "a", StepName: "s", GateType: "y", Hits: 1},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tt.gates)
			if diff := cmp.Diff(tt.want, run.StatsOf(tt.gates)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(before, tt.gates) {
				t.Error("it changed what it counts")
			}
		})
	}
}

// TestStatsOf_Properties: every gate is counted once, and percentiles are waits that there were, in their order.
func TestStatsOf_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		gates := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Passed {
			p := passed(rapid.SampledFrom(run.GateOutcomes()[1:]).Draw(t, "outcome"), rapid.IntRange(0, 9).Draw(t, "wait"), rapid.IntRange(0, 3).Draw(t, "feedback"))
			p.StepName = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step")
			return p
		}), 0, 40).Draw(t, "gates")
		n, before := 0, len(gates)
		for _, s := range run.StatsOf(gates) {
			n += s.Hits
			var waits []time.Duration
			for _, g := range gates {
				if g.StepName == s.StepName && (g.Outcome == run.GateApproved || g.Outcome == run.GateRejected) {
					waits = append(waits, g.Wait)
				}
			}
			if s.Hits > before || s.Approvals+s.Rejections != len(waits) || s.Approvals+s.Rejections+s.TimedOut > s.Hits {
				t.Fatalf("%+v", s)
			}
			before = s.Hits
			for p, got := range map[int]time.Duration{50: s.P50Wait, 95: s.P95Wait} {
				below, notAbove := 0, 0
				for _, w := range waits {
					if w < got {
						below++
					}
					if w <= got {
						notAbove++
					}
				}
				if len(waits) > 0 && (!slices.Contains(waits, got) || notAbove*100 < p*len(waits) || below*100 >= p*len(waits)) || len(waits) == 0 && got != 0 {
					t.Fatalf("%d percent of %v wait %s", p, waits, got)
				}
			}
		}
		if n != len(gates) {
			t.Fatalf("%d of %d are counted", n, len(gates))
		}
	})
}
