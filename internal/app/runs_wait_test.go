package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// until is the deadline of a wait, some time from now, and what becomes of it then.
func (x *runTest) until(d time.Duration, onTimeout string) string {
	return fmt.Sprintf(`"deadline":%s,"on_timeout":%q`, spelled(x.now().Add(d)), onTimeout)
}

// runWaitCases: a run that waits as a whole. reference: runs-and-taskflows.md A3.4, A13 1, C3 "Waiting", D2 11, F5 8; model.md "Run".
func runWaitCases() []runCase {
	return []runCase{
		{"status, reason and deadline are written together, and leaving clears them (C3 waiting, A13 1)", func(x *runTest) {
			r := x.running("")
			n := len(x.events(r.ID))
			at := x.now().Add(time.Hour)
			got := x.do(r, "wait", `"blocked_on": {"type":"human_approval","gate_name":"sign-off","options":["a","b"]},`+x.until(time.Hour, "cancel"))
			if got.Status != "waiting" || string(got.BlockedOn) != `{"type":"human_approval","gate_name":"sign-off","options":["a","b"]}` || !got.Wait.Deadline.Equal(oapi.Time(at)) ||
				got.Wait.OnTimeout != "cancel" || !got.Wait.Since.Equal(x.when(0)) {
				x.t.Errorf("%+v, wait %+v", got, got.Wait)
			}
			x.stands(r.ID, "waiting")
			told := x.told(r.ID, n, "run.waiting")
			x.equalJSON("told", told[0].Data, fmt.Sprintf(`{"wait_id":%q,"blocked_on":%s,"deadline":%s,"on_timeout":"cancel"}`, got.Wait.WaitID, got.BlockedOn, spelled(at)))
			x.do(r, "resume", "")
			if got := x.stands(r.ID, "running"); got.ResumeCount != 0 { // it had not ended
				x.t.Errorf("%+v", got)
			}
			x.equalJSON("told", x.told(r.ID, n, "run.waiting", "run.resumed")[1].Data, `{"by":"engine"}`)
		}},
		{"every sort of reason comes back as it was given (A3.4, C3 serialisation)", func(x *runTest) {
			for _, on := range []string{
				`{"type":"human_approval","gate_name":"g","prompt":"Fine?","options":["a"]}`, `{"type":"human_approval","gate_name":"g"}`, `{"type":"human_review","gate_name":"g","options":[]}`,
				`{"type":"pr_approval","gate_name":"g","approvals_needed":2}`, `{"type":"pr_approval","gate_name":"g","approvals_needed":0}`, `{"type":"pr_checks","gate_name":"g"}`,
				`{"type":"budget","resolver_state":{"z":[1,2.50],"a":null}}`,
			} {
				r := x.running("")
				if got := x.do(r, "wait", `"blocked_on":`+on); string(got.BlockedOn) != on || got.Wait.Deadline != nil || got.Wait.OnTimeout != "fail" {
					x.t.Errorf("%s became %s, wait %+v", on, got.BlockedOn, got.Wait)
				}
			}
		}},
		{"a wait says what it waits for (RM-04, A13 1, C3 waiting)", func(x *runTest) {
			r := x.running("")
			for members, pointer := range map[string]string{
				``: "/blocked_on", `"blocked_on":null`: "/blocked_on", `"blocked_on":"gate"`: "/blocked_on", `"blocked_on":{}`: "/blocked_on/type", `"blocked_on":{"type":"Human"}`: "/blocked_on/type",
				`"blocked_on":{"type":7}`: "/blocked_on/type", `"blocked_on":{"type":"x","other":1}`: "/blocked_on/other", `"blocked_on":{"type":"human_approval"}`: "/blocked_on/gate_name",
				`"blocked_on":{"type":"human_review","gate_name":""}`: "/blocked_on/gate_name", `"blocked_on":{"type":"pr_checks"}`: "/blocked_on/gate_name",
				`"blocked_on":{"type":"pr_approval","gate_name":"g"}`: "/blocked_on/approvals_needed", `"blocked_on":{"type":"pr_approval","gate_name":"g","approvals_needed":-1}`: "/blocked_on/approvals_needed",
				`"blocked_on":{"type":"child"}`: "/blocked_on", `"blocked_on":{"type":"child","run_id":"x"}`: "/blocked_on/run_id", `"blocked_on":{"type":"x"},"on_timeout":"wait"`: "/on_timeout",
			} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.verb(r, "wait", members) }, r.ID)
				x.points(answer, fault.InBody, pointer)
			}
		}},
		{"a child that there is not, of another namespace or of another run is nothing to wait for (A13 5)", func(x *runTest) {
			r, foreign := x.running(""), x.in("r-other").create("")
			for on, resource := range map[string]string{
				fmt.Sprintf(`"step_id":%q`, uuid.New()): "step", fmt.Sprintf(`"run_id":%q`, uuid.New()): "run", fmt.Sprintf(`"run_id":%q`, foreign.ID): "run", fmt.Sprintf(`"execution_id":%q`, uuid.New()): "execution",
			} {
				answer := x.refused(fault.CodeNotFound, func() *apitest.Response { return x.verb(r, "wait", `"blocked_on":{"type":"child",`+on+`}`) }, r.ID)
				x.facts(answer, map[string]any{"resource": resource})
			}
			other, e := x.create(""), x.workers(x.namespace).create("")
			for member, id := range map[string]uuid.UUID{"run_id": other.ID, "execution_id": e.ID} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response {
					return x.verb(r, "wait", fmt.Sprintf(`"blocked_on":{"type":"child",%q:%q}`, member, id))
				}, r.ID)
				x.points(answer, fault.InBody, "/blocked_on/"+member)
			}
		}},
		{"a deadline lies ahead, and not beyond the horizon (D1 7, C1)", func(x *runTest) {
			r := x.running("")
			for _, d := range []time.Duration{-time.Second, 0, 30*24*time.Hour + time.Second} {
				answer := x.refused(fault.CodeTimerOutOfRange, func() *apitest.Response { return x.verb(r, "wait", blockedOn+","+x.until(d, "fail")) }, r.ID)
				x.points(answer, fault.InBody, "/deadline")
			}
			x.do(r, "wait", blockedOn+","+x.until(30*24*time.Hour, "fail"))
		}},
	}
}

// runWaitEndCases: how a wait ends. reference: runs-and-taskflows.md D2 11, D3 25.
func runWaitEndCases() []runCase {
	return []runCase{
		{"it fires at its deadline, never before, and once (D3 25, D2 11)", func(x *runTest) {
			for onTimeout, want := range map[string]struct{ status, event string }{"fail": {"failed", "run.failed"}, "cancel": {"cancelled", "run.cancelled"}, "resume": {"running", "run.resumed"}} {
				x.sub(onTimeout, func(x *runTest) {
					r := x.running("")
					x.do(r, "wait", blockedOn+","+x.until(time.Minute, onTimeout))
					n := len(x.events(r.ID))
					x.advance(time.Minute - time.Millisecond)
					x.stands(r.ID, "waiting")
					x.advance(time.Millisecond)
					after := x.stands(r.ID, want.status)
					x.advance(time.Hour)
					told := x.told(r.ID, n, want.event)
					if told[0].Actor != "engine" || !told[0].At.Equal(x.when(-time.Hour)) {
						x.t.Errorf("told %+v", told[0])
					}
					switch onTimeout {
					case "fail":
						if *after.Error != "wait_timeout" || after.LeaseUntil != nil {
							x.t.Errorf("%+v", after)
						}
					case "cancel":
						if *after.CancelReason != "timeout" || after.Cancellation.Actor != "engine" || *after.ResultSummary != "wait_timeout" {
							x.t.Errorf("%+v", after)
						}
					default:
						x.equalJSON("told", told[0].Data, `{"by":"timeout"}`)
						x.do(r, "complete", "") // by who still holds it
					}
				})
			}
		}},
		{"what is open in it ends with a run whose wait was not over in time", func(x *runTest) {
			r := x.running("")
			s, asked := x.stepAt(r, "running", ""), x.gate(r, "")
			x.do(r, "wait", blockedOn+","+x.until(time.Minute, "fail"))
			n := len(x.events(r.ID))
			x.advance(time.Minute)
			x.causes(x.told(r.ID, n, "run.failed", "run_step.cancelled", "gate.cancelled", "run_step.cancelled"), -1, 0, 0, 2)
			if x.read(r, s.ID).Status != "cancelled" || x.readGate(r, asked.ID).State != "cancelled" || len(x.inbox("")) != 0 {
				x.t.Errorf("%+v", x.steps(r, ""))
			}
		}},
		{"a wait that is over has no deadline any more, and the next one has its own", func(x *runTest) {
			r := x.running("")
			first := x.do(r, "wait", blockedOn+","+x.until(time.Minute, "fail")).Wait.WaitID
			x.do(r, "resume", "")
			second := x.do(r, "wait", blockedOn+","+x.until(time.Hour, "resume")).Wait.WaitID
			if first == second {
				x.t.Errorf("both waits are %s", first)
			}
			x.advance(time.Minute)
			x.stands(r.ID, "waiting")
			x.advance(time.Hour)
			x.stands(r.ID, "running")
		}},
		{"a wait without a deadline waits for its engine (A4.1)", func(x *runTest) {
			r := x.at("waiting")
			x.advance(20 * 24 * time.Hour)
			x.stands(r.ID, "waiting")
			x.do(r, "resume", "")
		}},
		{"a gate that opens or is answered moves no run (model.md)", func(x *runTest) {
			r := x.running("")
			asked := x.gate(r, "")
			x.stands(r.ID, "running")
			x.do(r, "wait", fmt.Sprintf(`"blocked_on":{"type":"human_approval","gate_name":"review","step_id":%q}`, asked.ID))
			x.answer(r, asked.ID, "approve", "").Want(http.StatusOK)
			x.stands(r.ID, "waiting")
			x.do(r, "resume", "")
		}},
	}
}

// runWaitChildCases: a run that waits for what is in it. reference: runs-and-taskflows.md F5 4 and 8.
func runWaitChildCases() []runCase {
	return []runCase{
		{"only the gate of a waiting run is in the inbox, not its wait (F5 4)", func(x *runTest) {
			r := x.running("")
			asked := x.gate(r, "")
			x.do(r, "wait", `"blocked_on":{"type":"human_approval","gate_name":"review"}`)
			if got := x.inbox(""); len(got) != 1 || *got[0].StepID != asked.ID {
				x.t.Errorf("%+v", got)
			}
		}},
		{"a run that waits for a child goes on when that ends, in the same transaction (F5 8)", runWaitsForChild},
		{"a run that waits for a child which has ended already goes on at once (F5 8)", runWaitsForEnded},
		{"what it is in sees both, in their order: its step runs in the end (F4, D6 51)", func(x *runTest) {
			for _, c := range runChildren {
				x.sub(c.name, func(x *runTest) {
					parent := x.running("")
					s := x.step(parent, subRun(""))
					r := x.driven(x.childRun(s))
					on, end := c.make(x, r)
					end(x)
					n := len(x.events(parent.ID))
					x.do(r, "wait", `"blocked_on":{"type":"child",`+on+`}`)
					x.stepped(parent, s.ID, "running")
					x.told(parent.ID, n, "run_step.waiting", "run_step.started")
				})
			}
		}},
		{"a run that waits for one child does not go on because of another", func(x *runTest) {
			r := x.running("")
			s, other := x.stepAt(r, "running", `"path":"a"`), x.stepAt(r, "running", `"path":"b"`)
			x.do(r, "wait", fmt.Sprintf(`"blocked_on":{"type":"child","step_id":%q}`, s.ID))
			x.moved(r, other.ID, `"status":"completed"`)
			x.stands(r.ID, "waiting")
			x.do(r, "resume", "")
			x.do(r, "wait", fmt.Sprintf(`"blocked_on":{"type":"review","step_id":%q}`, s.ID)) // of another type it is only a word
			x.moved(r, s.ID, `"status":"completed"`)
			x.stands(r.ID, "waiting")
		}},
	}
}

// runChild is one sort of child that a run can wait for.
type runChild struct {
	name string
	make func(x *runTest, r oapi.Run) (on string, end func(x *runTest))
}

var runChildren = []runChild{
	{"run", func(x *runTest, r oapi.Run) (string, func(x *runTest)) {
		s := x.step(r, `"role":"workflow","child":{"run":{"workflow_name":"sub"}}`)
		child := x.get(uuid.MustParse(*s.ChildRunID))
		return fmt.Sprintf(`"run_id":%q`, child.ID), func(x *runTest) {
			x.do(child, "start", "")
			x.do(child, "complete", "")
		}
	}},
	{"execution", func(x *runTest, r oapi.Run) (string, func(x *runTest)) {
		e := x.workers(x.namespace + strings.ReplaceAll(r.ID.String(), "-", ""))
		s := x.step(r, fmt.Sprintf(`"child":{"execution":{"lane":%q}}`, e.lane))
		return fmt.Sprintf(`"execution_id":%q`, s.ChildExecutionID), func(x *runTest) {
			e.report(e.claim(""), "complete", "").Want(http.StatusOK)
		}
	}},
	{"step", func(x *runTest, r oapi.Run) (string, func(x *runTest)) {
		s := x.stepAt(r, "running", "")
		return fmt.Sprintf(`"step_id":%q`, s.ID), func(x *runTest) { x.moved(r, s.ID, `"status":"failed"`) }
	}},
	{"gate", func(x *runTest, r oapi.Run) (string, func(x *runTest)) {
		s := x.gate(r, "")
		return fmt.Sprintf(`"step_id":%q`, s.ID), func(x *runTest) { x.answer(r, s.ID, "reject", "").Want(http.StatusOK) }
	}},
}

func runWaitsForChild(x *runTest) {
	for _, c := range runChildren {
		x.sub(c.name, func(x *runTest) {
			r := x.running("")
			on, end := c.make(x, r)
			x.do(r, "wait", `"blocked_on":{"type":"child",`+on+`}`)
			end(x)
			after := x.stands(r.ID, "running")
			events := x.events(r.ID)
			last := events[len(events)-1]
			x.equalJSON("told", last.Data, `{"by":"child"}`)
			if last.Type != "run.resumed" || last.Cause == nil || after.ResumeCount != 0 {
				x.t.Errorf("told %+v", last)
			}
		})
	}
}

func runWaitsForEnded(x *runTest) {
	for _, c := range runChildren {
		x.sub(c.name, func(x *runTest) {
			r := x.running("")
			on, end := c.make(x, r)
			end(x)
			n := len(x.events(r.ID))
			if got := x.do(r, "wait", `"blocked_on":{"type":"child",`+on+`}`); got.Status != "running" {
				x.t.Fatalf("it is %s, and nothing will end any more", got.Status)
			}
			x.stands(r.ID, "running")
			x.causes(x.told(r.ID, n, "run.waiting", "run.resumed"), -1, 0)
		})
	}
}
