package run_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
	"github.com/flowapi/flowapi/internal/domain/run"
)

// TestUpdate_Gate: an open gate is not taken back, and the engine answers none that a person is asked.
func TestUpdate_Gate(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	people, machines := []string{run.HumanApproval, run.HumanReview, "custom"}, []string{run.PRApproval, run.PRChecks, run.QualityGate}
	outcomes := map[run.StepStatus][2]run.GateOutcome{ // of a gate that a person is asked, of an automatic one
		run.StepCompleted: {"", run.GateApproved},
		run.StepFailed:    {run.GateCancelled, run.GateRejected},
		run.StepSkipped:   {run.GateSkipped, run.GateSkipped},
		run.StepTimedOut:  {run.GateTimedOut, run.GateTimedOut},
		run.StepCancelled: {run.GateCancelled, run.GateCancelled},
	}
	told := map[run.GateOutcome]event.Type{run.GateApproved: event.GateApproved, run.GateRejected: event.GateRejected, run.GateTimedOut: event.GateTimedOut,
		run.GateCancelled: event.GateCancelled, run.GateSkipped: event.GateSkipped}
	for i, kind := range slices.Concat(people, machines) {
		automatic := i >= len(people)
		s := opened(t, func(g *run.Gate) { g.Type = kind })
		for _, to := range run.StepStatuses() {
			before := frozenStep(s)
			c, err := s.Update(&r, run.StepUpdate{Status: to, WaitID: childID}, by(30))
			if diff := cmp.Diff(before, s); diff != "" {
				t.Fatalf("it changed its receiver:\n%s", diff)
			}
			outcome := outcomes[to][0]
			if automatic {
				outcome = outcomes[to][1]
			}
			switch {
			case to == run.StepWaiting:
				if diff := cmp.Diff(before, c.Step); err != nil || diff != "" {
					t.Errorf("%s goes on to wait: %v\n%s", kind, err, diff)
				}
			case outcome == "":
				refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": run.StepWaiting, "to": to})
			default:
				want := before
				want.Gate = new(*before.Gate)
				want.Status, want.EndedAt = to, at(30)
				want.Gate.Outcome, want.Gate.ResolvedAt, want.Gate.ResolvedBy, want.Gate.WaitID = outcome, at(30), "token:ci", uuid.Nil
				if diff := cmp.Diff(want, c.Step); err != nil || diff != "" || !c.Ended {
					t.Errorf("%s, %s: %v (-want +got):\n%s", kind, to, err, diff)
				}
				if ts := types(c.Events); len(ts) != 2 || ts[0] != told[outcome] {
					t.Errorf("%s, %s: it tells %v", kind, to, ts)
				}
			}
		}
		if !s.Gate.Open() || s.Gate.Asks() == automatic {
			t.Errorf("%s: open %t, asks %t", kind, s.Gate.Open(), s.Gate.Asks())
		}
		_, err := s.Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1)}, by(30))
		refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": run.StepWaiting, "to": run.StepRunning})
	}
	// One that has not been opened is the engine's to end: nobody was asked.
	for _, from := range []run.StepStatus{run.StepPending, run.StepRunning} {
		s := asking(t)
		if from == run.StepRunning {
			s = applied(t)(s.Update(&r, run.StepUpdate{Status: run.StepRunning, WaitID: waitID}, by(20)))
		}
		c, err := s.Update(&r, run.StepUpdate{Status: run.StepCompleted, WaitID: waitID}, by(30))
		if err != nil || c.Step.Gate.Outcome != run.GateSkipped || c.Step.Gate.Open() {
			t.Errorf("a gate that is %s is completed: %+v, %v", from, c.Step.Gate, err)
		}
		want := []string{
			fmt.Sprintf(`gate.skipped {"step_id":"%s","step_name":"approve","gate_type":"human_approval","by":"token:ci"}`, stepID),
			fmt.Sprintf(`run_step.completed {"step_id":"%s","step_name":"approve","role":"gate","status":"completed","position":3,"iteration":0,"retry_count":0}`, stepID),
		}
		if diff := cmp.Diff(want, lines(t, c.Events)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestUpdate_Items: a fan-out is complete when its items have ended; any other end ends them.
func TestUpdate_Items(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, open := range []run.Counts{{run.ItemPending: 1, run.ItemCompleted: 3}, {run.ItemRunning: 2}, {run.ItemPending: 1, run.ItemRunning: 2}} {
		s := stepIn(t, run.StepRunning)
		s.FanOut = open
		for _, to := range s.Status.Successors() {
			_, err := s.Update(&r, run.StepUpdate{Status: to}, by(20))
			if to == run.StepCompleted {
				refused(t, err, fault.CodeOpenMembers, map[string]any{"count": open.Open()})
			} else {
				refused(t, err, "", nil)
			}
		}
	}
	s := stepIn(t, run.StepRunning)
	s.FanOut = run.Counts{run.ItemCompleted: 1, run.ItemFailed: 1, run.ItemSkipped: 1, run.ItemCancelled: 1}
	if _, err := s.Update(&r, run.StepUpdate{Status: run.StepCompleted}, by(20)); err != nil {
		t.Error(err)
	}
}

// TestUpdate_Child: what a child does is the child's to say, but not when it ends.
func TestUpdate_Child(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, child := range []run.Attached{{ExecutionID: execID}, {RunID: childID}} {
		for _, from := range []run.StepStatus{run.StepPending, run.StepRunning, run.StepWaiting} {
			s := stepIn(t, from).Attach(child)
			for _, to := range run.StepStatuses() {
				c, err := s.Update(&r, run.StepUpdate{Status: to}, by(20))
				switch {
				case to == from, to.Terminal():
					if err != nil || c.Applied != to.Terminal() || c.Ended != to.Terminal() || !c.Step.HasChild() {
						t.Errorf("%s becomes %s: %+v, %v", from, to, c, err)
					}
				default:
					refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": from, "to": to})
				}
			}
		}
	}
}

// TestUpdate_Run: in a run that has ended nothing changes, and in one that is to end nothing begins.
func TestUpdate_Run(t *testing.T) {
	t.Parallel()
	for _, status := range run.Statuses() {
		r := in(t, status)
		for _, from := range []run.StepStatus{run.StepPending, run.StepRunning, run.StepWaiting} {
			s := stepIn(t, from)
			for _, to := range append(from.Successors(), from) {
				_, err := s.Update(&r, run.StepUpdate{Status: to, ResultText: patch.Some("x")}, by(20))
				switch {
				case status.Terminal():
					refused(t, err, fault.CodeRunTerminal, map[string]any{"current_status": status})
				case status == run.Cancelling && !to.Terminal() && to != from:
					refused(t, err, fault.CodeRunCancelled, map[string]any{"reason": run.ByUser})
				default:
					refused(t, err, "", nil)
				}
			}
		}
		if status == run.Cancelling {
			_, err := stepIn(t, run.StepRunning).Update(&r, run.StepUpdate{Status: run.StepRunning, RetryCount: new(1)}, by(20))
			refused(t, err, fault.CodeRunCancelled, nil)
		}
	}
}
