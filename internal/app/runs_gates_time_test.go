package app_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func runGateTimeCases() []runCase {
	return []runCase{
		{"nobody answers: the step has failed (C2 gates_and_errors, A13 7)", func(x *runTest) { x.gateLate("", "fail", "failed") }},
		{"nobody answers: the step has timed out and the run goes on (C2 gates_and_errors)", func(x *runTest) {
			x.gateLate(`"on_timeout":"continue"`, "continue", "timed_out")
		}},
		{"the deadline is a day ahead unless it is said, and counts from the opening (A6.2, D3 25)", func(x *runTest) {
			r := x.running("")
			s := x.step(r, `"step_name":"review","role":"gate","gate":{"gate_type":"human_review"}`)
			x.advance(time.Hour)
			s = x.moved(r, s.ID, `"status":"waiting"`)
			if got := s.Gate.DeadlineAt.Time().Sub(x.now()); got != 24*time.Hour {
				x.t.Errorf("the deadline is %s ahead", got)
			}
			x.advance(24*time.Hour - time.Millisecond)
			x.outcome(r, s.ID, "pending", "")
			x.advance(time.Millisecond)
			x.outcome(r, s.ID, "timed_out", "engine")
		}},
		{"an approval that comes before the deadline is swept is in time, one that comes after it is told (A13 7)", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, `"timeout_ms":1000`)
			x.server.Clock.Advance(2 * time.Second)
			x.decided(r, s.ID, "approve", `"by":"ada"`)
			x.server.Settle()
			x.outcome(r, s.ID, "approved", "ada")

			late := x.step(r, `"step_name":"late","role":"gate","gate":{"gate_type":"human_review","timeout_ms":1000,"min_approvals":2}`)
			x.moved(r, late.ID, `"status":"waiting"`)
			x.decided(r, late.ID, "approve", `"by":"ada"`) // one is not enough
			x.advance(time.Second)
			g := x.outcome(r, late.ID, "timed_out", "engine")
			answer := x.refused(fault.CodeGateAlreadyResolved, func() *apitest.Response { return x.answer(r, late.ID, "approve", `"by":"bob"`) }, r.ID)
			x.facts(answer, map[string]any{"state": "timed_out", "by": "engine", "at": strings.Trim(spelled(g.ResolvedAt.Time()), `"`)})
		}},
		{"the deadline of a parked or leaderless run counts, too", func(x *runTest) {
			r := x.running("")
			s := x.gate(r, `"timeout_ms":7200000`)
			x.do(r, "wait", `"blocked_on":{"type":"human_approval","gate_name":"review"}`)
			x.advance(2 * time.Hour) // its lease has run out meanwhile
			x.outcome(r, s.ID, "timed_out", "engine")
			x.stands(r.ID, "waiting")
		}},
		{"many deadlines at once", func(x *runTest) {
			r := x.running("")
			for i := range 30 {
				s := x.step(r, fmt.Sprintf(`"step_name":"g%d","role":"gate","gate":{"gate_type":"human_review","timeout_ms":%d}`, i, 1000+i%2))
				x.moved(r, s.ID, `"status":"waiting"`)
			}
			x.advance(time.Second)
			if n := len(x.steps(r, "&status=failed")); n != 15 {
				x.t.Errorf("%d have timed out", n)
			}
			x.advance(time.Millisecond)
			if n := len(x.steps(r, "&status=failed")); n != 30 {
				x.t.Errorf("%d have timed out", n)
			}
		}},
	}
}

// gateLate lets a gate time out, and checks what becomes of its step.
func (x *runTest) gateLate(members, onTimeout, status string) {
	x.t.Helper()
	r := x.running("")
	s := x.gate(r, joined(members, `"timeout_ms":60000`))
	n, revision := len(x.events(r.ID)), x.get(r.ID).Revision
	x.advance(time.Minute - time.Millisecond)
	x.outcome(r, s.ID, "pending", "")
	x.replies(r.ID, n)
	x.advance(time.Millisecond)
	x.outcome(r, s.ID, "timed_out", "engine")
	text, fails := "gate timed out", new("The gate review timed out.")
	if status == "timed_out" {
		text, fails = "gate timed out; continuing", nil
	}
	step := x.stepped(r, s.ID, status)
	if orNone(step.ResultText) != text || !step.EndedAt.Time().Equal(x.now()) {
		x.t.Errorf("%+v", step)
	}
	if diff := cmp.Diff(fails, step.StepError); diff != "" {
		x.t.Errorf("step_error (-want +got):\n%s", diff)
	}
	events := x.replies(r.ID, n, "gate.timed_out", "0 run_step."+status)
	x.saying(events[0], map[string]any{"step_id": s.ID.String(), "step_name": "review", "gate_type": "human_approval", "by": "engine", "wait_ms": 60000.0, "on_timeout": onTimeout})
	if x.stands(r.ID, "running").Revision != revision {
		x.t.Errorf("a gate is no revision of its run")
	}
	x.advance(time.Hour)
	x.replies(r.ID, n+2)
}
