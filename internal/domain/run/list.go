package run

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Creation is the answer of a create. Existing means that the id was there already: nothing was changed.
type Creation struct {
	Run      Run
	Existing bool
}

// Filter selects runs. Empty fields select everything.
type Filter struct {
	Statuses            []Status
	WorkflowName        string
	Trigger             string
	ParentRunID         string
	ParentWorkflowRunID uuid.UUID
	FlowID              uuid.UUID
	Root                bool // those that are in no other run
	Dismissed           *bool
}

// StepCreation is the answer to an insert of a step.
type StepCreation struct {
	Step     Step
	Existing bool
}

// StepUpdated is the answer to an update of a step.
type StepUpdated struct {
	Step    Step
	Applied bool
}

// StepFilter selects steps of a run.
type StepFilter struct {
	Status StepStatus
	Role   Role
	Name   string
}

// AddedItem is the answer to one item that was added.
type AddedItem struct {
	Item    Item
	Created bool
}

// Recovered is the answer to a recovery.
type Recovered struct {
	Recovered       []uuid.UUID
	SkippedTerminal []uuid.UUID
	Missing         []uuid.UUID
}

// LeaseAnswer is the answer to whoever asks for a lease.
type LeaseAnswer struct {
	Run     Run
	Outcome Leased
}

// GateAt is a gate with where it is.
type GateAt struct {
	Run       Run
	Step      Step
	Votes     []Vote // only of one gate
	Approvals int    // by distinct people; only of one gate
	Replayed  bool   // the decision was made before
}

// GateFilter selects gates that have been opened. Empty fields select everything.
type GateFilter struct {
	State        GateOutcome
	Type         string
	RunID        uuid.UUID
	WorkflowName string
}

// StatsFilter selects the gates that are counted.
type StatsFilter struct {
	Since        time.Time
	Type         string
	WorkflowName string
}

// GateStats tells how gates of one name went. reference: runs-and-taskflows.md A6.8.
type GateStats struct {
	WorkflowName string
	StepName     string
	GateType     string
	Hits         int // that have an outcome
	Approvals    int
	Rejections   int
	TimedOut     int
	AvgWait      time.Duration // of those that were approved or rejected
	P50Wait      time.Duration
	P95Wait      time.Duration
	AvgFeedback  int // characters, of those that have any
}

// Passed is one gate that has its outcome.
type Passed struct {
	WorkflowName string
	StepName     string
	GateType     string
	Outcome      GateOutcome
	Wait         time.Duration
	Feedback     int // characters
}

// StatsOf counts gates by their names, those with the most first.
func StatsOf(gates []Passed) []GateStats {
	type key struct{ workflow, step, kind string }
	type sums struct {
		GateStats
		of       map[GateOutcome]int
		waits    []time.Duration
		feedback []int
	}
	of := map[key]*sums{}
	var order []key
	for _, g := range gates {
		k := key{g.WorkflowName, g.StepName, g.GateType}
		s := of[k]
		if s == nil {
			s = &sums{GateStats: GateStats{WorkflowName: g.WorkflowName, StepName: g.StepName, GateType: g.GateType}, of: map[GateOutcome]int{}}
			of[k], order = s, append(order, k)
		}
		s.Hits++
		s.of[g.Outcome]++
		if g.Outcome == GateApproved || g.Outcome == GateRejected {
			s.waits = append(s.waits, g.Wait)
		}
		if g.Feedback > 0 {
			s.feedback = append(s.feedback, g.Feedback)
		}
	}
	out := make([]GateStats, 0, len(order))
	for _, k := range order {
		s := of[k]
		s.Approvals, s.Rejections, s.TimedOut = s.of[GateApproved], s.of[GateRejected], s.of[GateTimedOut]
		slices.Sort(s.waits)
		s.P50Wait, s.P95Wait = percentile(s.waits, 50), percentile(s.waits, 95)
		if n := len(s.waits); n > 0 {
			var all time.Duration
			for _, w := range s.waits {
				all += w
			}
			s.AvgWait = all / time.Duration(n)
		}
		if n := len(s.feedback); n > 0 {
			all := 0
			for _, f := range s.feedback {
				all += f
			}
			s.AvgFeedback = all / n
		}
		out = append(out, s.GateStats)
	}
	slices.SortStableFunc(out, func(a, b GateStats) int { return b.Hits - a.Hits })
	return out
}

// percentile returns the smallest of sorted values that p percent of them do not exceed, zero of none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// Purge says which ended runs are deleted.
type Purge struct {
	Statuses     []Status
	OlderThan    time.Duration // since their end
	WorkflowName string
	DryRun       bool
}

// Purged counts what was deleted, or would be.
type Purged struct {
	Roots      int // runs that are in no other
	Runs       int // with those in them
	Executions int
}
