package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// each adds a step that runs, with items of the type ticket, each given by its id and further members.
func (x *runTest) each(r oapi.Run, items ...string) (oapi.RunStep, []oapi.RunItem) {
	x.t.Helper()
	s := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
	var added []oapi.RunItem
	for _, a := range flowAs[oapi.AddedRunItems](x.add(r, s.ID, items...).Want(http.StatusOK)).Items {
		added = append(added, a.Item)
	}
	return x.read(r, s.ID), added
}

func runChildItemCases() []runCase {
	return []runCase{
		{"an item with a child is at work, and carries it (A13 12)", func(x *runTest) {
			r := x.running("")
			n := len(x.events(r.ID))
			s, items := x.each(r, ticket("1", workChild("")), ticket("2", subRun("")), ticket("3"))
			x.fanned(r, s.ID, 1, 2, 0, 0, 0, 0)
			child := x.get(runOf(x.t, items[1].ChildRunID))
			if items[0].Status != "running" || items[0].DispatchedAt == nil || items[0].ChildRunID != nil || items[2].Status != "pending" || items[2].DispatchedAt != nil ||
				*child.ParentWorkflowRunID != r.ID || *child.ParentStepID != s.ID || *child.ParentItemID != items[1].ID || *x.execution(*items[0].ChildExecutionID).RunID != r.ID {
				x.t.Errorf("%+v %+v", items, child)
			}
			x.told(r.ID, n, "run_step.inserted", "run_step.started", "execution.created", "item.added", "item.running", "item.added", "item.running", "item.added")
		}},
		{"every end of an execution is an end of its item, and counted in the same transaction (F4, D4 29 and 33)", func(x *runTest) {
			for _, c := range childEnds {
				r := x.running("")
				s, items := x.each(r, strings.Replace(ticket("1", x.mortal()), `"lane"`, `"priority":9,"lane"`, 1), ticket("2"))
				n := len(x.events(r.ID))
				c.end(x, oapi.RunStep{ID: s.ID, ChildExecutionID: items[0].ChildExecutionID})
				got := x.listItems(r, s.ID, "")[0]
				if string(got.Status) != c.item || !got.CompletedAt.Time().Equal(x.now()) || !got.DispatchedAt.Time().Equal(items[0].DispatchedAt.Time()) {
					x.t.Errorf("%s: %+v", c.execution, got)
				}
				x.endedItem(r, s.ID, c.item)
				events := x.events(r.ID)[n:]
				if last := events[len(events)-1]; last.Type != "item."+c.item || last.Cause == nil {
					x.t.Errorf("%s: %+v", c.execution, events)
				}
				x.stepped(r, s.ID, "running") // the fan-out is the engine's
			}
		}},
		{"every end of a run is an end of its item", func(x *runTest) {
			for verb, want := range map[string]string{"complete": "completed", "fail": "failed", "cancel": "cancelled"} {
				r := x.running("")
				s, items := x.each(r, ticket("1", subRun("")))
				child := x.driven(x.get(runOf(x.t, items[0].ChildRunID)))
				x.do(child, verb, map[string]string{"fail": `"error":"no disk"`}[verb])
				x.itemised(r, s.ID, "1 "+want)
				x.endedItem(r, s.ID, want)
			}
		}},
		{"what waits and what nobody has begun is at work all the same", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1", workChild("")), ticket("2", subRun("")))
			c := x.workers(runLane).claim(lasting)
			x.workers(runLane).suspend(c, waitForGo)
			child := x.driven(x.get(runOf(x.t, items[1].ChildRunID)))
			x.do(child, "wait", blockedOn)
			x.itemised(r, s.ID, "1 running", "2 running")
		}},
		{"a child may come with the start of an item (A13 12)", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1"), ticket("2"), ticket("3"))
			x.advance(time.Second)
			x.patchItems(r, s.ID, itemTo(items[0], "running", workChild("")), itemTo(items[1], "running", subRun("")), itemTo(items[2], "running", `"child_run_id":"agent-7"`)).Want(http.StatusOK)
			x.fanned(r, s.ID, 0, 3, 0, 0, 0, 0)
			list := x.listItems(r, s.ID, "")
			if list[0].ChildExecutionID == nil || list[1].ChildRunID == nil || orNone(list[2].ChildRunID) != "agent-7" || !list[0].DispatchedAt.Time().Equal(x.now()) {
				x.t.Errorf("%+v", list)
			}
			x.report(x.workers(runLane).claim(lasting), "complete", "")
			x.cancelled(x.get(runOf(x.t, list[1].ChildRunID)), "")
			x.patchItems(r, s.ID, itemTo(items[2], "failed")).Want(http.StatusOK)
			x.fanned(r, s.ID, 0, 0, 1, 1, 0, 1)
		}},
	}
}

func runChildItemEndCases() []runCase {
	return []runCase{
		{"an item that its engine ends takes its child along", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1", workChild("")), ticket("2", subRun("")), ticket("3", workChild("")))
			x.patchItems(r, s.ID, itemTo(items[0], "skipped"), itemTo(items[1], "completed")).Want(http.StatusOK)
			x.itemised(r, s.ID, "1 skipped", "2 completed", "3 running")
			x.public("cancelled", *items[0].ChildExecutionID)
			x.stands(runOf(x.t, items[1].ChildRunID), "cancelled")
			x.public("waiting", *items[2].ChildExecutionID)
		}},
		{"the end of their step ends them, skipped or cancelled (A13 14)", func(x *runTest) {
			for to, want := range map[string]string{"skipped": "skipped", "failed": "cancelled", "timed_out": "cancelled", "cancelled": "cancelled"} {
				r := x.running("")
				s, items := x.each(r, ticket("1", workChild("")), ticket("2", subRun("")), ticket("3"), ticket("4"))
				x.patchItems(r, s.ID, itemTo(items[3], "completed")).Want(http.StatusOK)
				answer := x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.patch(r, s.ID, `"status":"completed"`) }, r.ID)
				x.facts(answer, map[string]any{"count": 3.0})
				x.moved(r, s.ID, `"status":`+quoted(to))
				x.itemised(r, s.ID, "1 "+want, "2 "+want, "3 "+want, "4 completed")
				x.public("cancelled", *items[0].ChildExecutionID)
				x.stands(runOf(x.t, items[1].ChildRunID), "cancelled")
			}
		}},
		{"a batch of which one child cannot be is not done at all (D4 31)", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1"), ticket("2"))
			taken := x.step(r, `"step_name":"taken",`+workChild(""))
			bad := knownChild("execution_id", *taken.ChildExecutionID)
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response {
					return x.add(r, s.ID, ticket("3", workChild("")), ticket("4", subRun("")), ticket("5", bad))
				},
				func() *apitest.Response {
					return x.patchItems(r, s.ID, itemTo(items[0], "running", workChild("")), itemTo(items[1], "running", bad))
				},
			} {
				x.refused(fault.CodeAlreadyMember, call, r.ID)
			}
		}},
		{"a hundred executions at once, ended in any order (D4 29)", func(x *runTest) {
			r := x.running("")
			many := make([]string, 100)
			for i := range many {
				many[i] = ticket(fmt.Sprint(i), workChild(""))
			}
			s, _ := x.each(r, many...)
			claims := x.workers(runLane).claims(`"max":100,` + lasting)
			var ends []string
			for i, c := range slices.Backward(claims) {
				end := ""
				if i%4 == 3 {
					end = `,"fail":{"reason":"boom","category":"permanent"}`
				}
				ends = append(ends, fmt.Sprintf(`{"execution_id":%q,"handle":%q%s}`, c.Execution.ID, c.Handle, end))
			}
			for chunk := range slices.Chunk(ends, 7) {
				x.Post("/v1/completions", `{"items":[`+strings.Join(chunk, ",")+`]}`).Want(http.StatusOK)
			}
			x.fanned(r, s.ID, 0, 0, 75, 25, 0, 0)
			x.moved(r, s.ID, `"status":"completed"`)
		}},
	}
}

// endedItem checks that one item of a step is in a status, and that what else there is is pending.
func (x *runTest) endedItem(r oapi.Run, stepID uuid.UUID, status string) {
	x.t.Helper()
	s := x.read(r, stepID)
	of := map[string]int64{"completed": s.FanOutCompleted, "failed": s.FanOutFailed, "skipped": s.FanOutSkipped, "cancelled": s.FanOutCancelled}
	if of[status] != 1 || s.FanOutPending+1 != s.FanOutTotal {
		x.t.Errorf("%+v", s)
	}
}

func runLinkCases() []runCase {
	return []runCase{
		{"an execution that exists is what its step is from then on, wherever it stands (F5 1)", func(x *runTest) {
			for _, row := range []struct {
				name, want, text, fails string
				make                    func(w *executionTest) uuid.UUID
			}{
				{"waiting", "pending", "", "", func(w *executionTest) uuid.UUID { return w.create("").ID }},
				{"delayed", "pending", "", "", func(w *executionTest) uuid.UUID { return w.create(`"delay_ms":60000`).ID }},
				{"active", "running", "", "", func(w *executionTest) uuid.UUID { w.create(""); return w.claim(lasting).Execution.ID }},
				{"suspended", "waiting", "", "", func(w *executionTest) uuid.UUID { e, _ := w.suspended(""); return e.ID }},
				{"released", "running", "", "", func(w *executionTest) uuid.UUID {
					w.create("")
					c := w.claim(lasting)
					w.report(c, "release", "").Want(http.StatusOK)
					return c.Execution.ID
				}},
				{"completed", "completed", "well", "", func(w *executionTest) uuid.UUID {
					w.create("")
					c := w.claim(lasting)
					w.report(c, "complete", `"result":"well"`).Want(http.StatusOK)
					return c.Execution.ID
				}},
				{"failed", "failed", "", "boom", func(w *executionTest) uuid.UUID {
					w.create("")
					c := w.claim(lasting)
					w.report(c, "fail", `"reason":"boom","category":"permanent"`).Want(http.StatusOK)
					return c.Execution.ID
				}},
				{"cancelled", "cancelled", "", "", func(w *executionTest) uuid.UUID {
					return w.operated(w.create("").ID, "operator-cancel", `"reason":"no"`).ID
				}},
			} {
				r := x.running("")
				id := row.make(x.workers(row.name))
				s := x.step(r, knownChild("execution_id", id))
				if string(s.Status) != row.want || *s.ChildExecutionID != id || orNone(s.ResultText) != row.text || row.fails != "" && orNone(s.StepError) != row.fails {
					x.t.Errorf("%s: %+v", row.name, s)
				}
				if e := x.execution(id); *e.RunID != r.ID {
					x.t.Errorf("%s works for %v", row.name, e.RunID)
				}
			}
		}},
	}
}

var runLinkMoreCases = []runCase{
	{"a run that exists, too, and is told that it has become a child", func(x *runTest) {
		for status, want := range map[string]string{
			"pending": "pending", "running": "running", "waiting": "waiting", "cancelling": "running", "needs_resume": "running", "completed": "completed", "failed": "failed", "cancelled": "cancelled",
		} {
			r, child := x.running(""), x.at(status)
			n := len(x.events(child.ID))
			s := x.step(r, knownChild("run_id", child.ID))
			if string(s.Status) != want || orNone(s.ChildRunID) != child.ID.String() {
				x.t.Errorf("%s: %+v", status, s)
			}
			now := x.get(child.ID)
			if *now.ParentWorkflowRunID != r.ID || *now.ParentStepID != s.ID || now.Revision != child.Revision+1 || string(now.Status) != status {
				x.t.Errorf("%s: %+v", status, now)
			}
			x.saying(x.told(child.ID, n, "run.linked")[0], map[string]any{"parent_workflow_run_id": r.ID.String(), "step_id": s.ID.String()})
		}
	}},
	{"items take what exists, too", func(x *runTest) {
		r := x.running("")
		e, child := x.workers("other").create(""), x.running("")
		s, items := x.each(r, ticket("1", knownChild("execution_id", e.ID)), ticket("2"))
		x.patchItems(r, s.ID, itemTo(items[1], "running", knownChild("run_id", child.ID))).Want(http.StatusOK)
		x.do(child, "complete", "")
		x.workers("other").operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.itemised(r, s.ID, "1 cancelled", "2 completed")
		if now := x.get(child.ID); *now.ParentItemID != items[1].ID {
			x.t.Errorf("%+v", now)
		}
	}},
	{"a step that is at work takes a child", func(x *runTest) {
		r := x.running("")
		s := x.step(r, "")
		got := x.moved(r, s.ID, `"status":"running",`+workChild(""))
		if got.Status != "running" || got.ChildExecutionID == nil { // forward only
			x.t.Errorf("%+v", got)
		}
		x.report(x.claimed(got), "complete", "")
		x.stepped(r, s.ID, "completed")
		begun := x.stepAt(r, "running", `"step_name":"begun"`)
		n := len(x.events(r.ID))
		got = x.moved(r, begun.ID, `"status":"running",`+workChild(""))
		x.told(r.ID, n, "execution.created", "run_step.updated")
		x.report(x.claimed(got), "complete", "")
		x.stepped(r, begun.ID, "completed")
		u := flowAs[oapi.PatchedRunStep](x.same(func() *apitest.Response { return x.patch(r, begun.ID, `"status":"completed",`+workChild("")) }, r.ID).Want(http.StatusOK))
		if u.Applied { // the same end again, whatever else it says
			x.t.Errorf("%+v", u)
		}
		done := x.stepAt(r, "running", `"step_name":"two"`)
		e := x.workers("other").create("")
		c := x.workers("other").claim(lasting)
		x.workers("other").report(c, "complete", `"result":"well"`).Want(http.StatusOK)
		n = len(x.events(r.ID))
		got = x.moved(r, done.ID, `"status":"running",`+knownChild("execution_id", e.ID))
		x.told(r.ID, n, "run_step.completed") // one move, one event: its status does not stay
		if got.Status != "completed" || orNone(got.ResultText) != "well" {
			x.t.Errorf("%+v", got)
		}
	}},
	{"the same step with a child is made once (A5.5, A13 19)", func(x *runTest) {
		r := x.running("")
		first := x.insert(r, workChild("")).Want(http.StatusCreated)
		again := x.same(func() *apitest.Response { return x.insert(r, workChild("")) }, r.ID).Want(http.StatusOK)
		if diff := cmp.Diff(first.JSON(), again.JSON()); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("(-first +again):\n%s", diff)
		}
		key := "Idempotency-Key: step-" + x.namespace
		keyed := x.insert(r, `"step_name":"two",`+subRun(""), key).Want(http.StatusCreated)
		again = x.same(func() *apitest.Response { return x.insert(r, `"step_name":"two",`+subRun(""), key) }, r.ID).Want(http.StatusCreated)
		if diff := cmp.Diff(keyed.JSON(), again.JSON()); diff != "" {
			x.t.Errorf("(-first +again):\n%s", diff)
		}
		s := x.stepAt(r, "running", `"step_name":"each","role":"foreach"`)
		x.add(r, s.ID, ticket("1", workChild(""))).Want(http.StatusOK)
		x.same(func() *apitest.Response { return x.add(r, s.ID, ticket("1", workChild(""))) }, r.ID).Want(http.StatusOK)
	}},
}

func runCycleCases() []runCase {
	return []runCase{
		{"a run is in no two places (already_member)", func(x *runTest) {
			r, other := x.running(""), x.running("")
			s := x.step(r, `"step_name":"a",`+subRun(""))
			w := x.step(r, `"step_name":"b",`+workChild(""))
			for _, row := range []struct {
				run   oapi.Run
				child string
			}{
				{r, knownChild("run_id", x.childRun(s).ID)}, {other, knownChild("run_id", x.childRun(s).ID)}, {r, knownChild("execution_id", *w.ChildExecutionID)}, {other, knownChild("execution_id", *w.ChildExecutionID)},
			} {
				answer := x.refused(fault.CodeAlreadyMember, func() *apitest.Response { return x.insert(row.run, `"step_name":"more",`+row.child) }, r.ID, other.ID)
				x.facts(answer, map[string]any{"run_id": r.ID.String()})
			}
			bare := x.create(`"parent_workflow_run_id":"` + r.ID.String() + `"`)
			x.refused(fault.CodeAlreadyMember, func() *apitest.Response { return x.insert(other, knownChild("run_id", bare.ID)) }, other.ID, bare.ID)
		}},
		{"nor in itself, nor in what it is in (F5 loop protection)", func(x *runTest) {
			a := x.running("")
			b := x.driven(x.childRun(x.step(a, subRun(""))))
			c := x.driven(x.childRun(x.step(b, subRun(""))))
			for _, row := range []struct {
				run  oapi.Run
				id   uuid.UUID
				path []any
			}{
				{a, a.ID, []any{a.ID.String(), a.ID.String()}}, {b, a.ID, []any{b.ID.String(), a.ID.String(), b.ID.String()}},
				{c, a.ID, []any{c.ID.String(), b.ID.String(), a.ID.String(), c.ID.String()}},
			} {
				answer := x.refused(fault.CodeLinkCycle, func() *apitest.Response { return x.insert(row.run, `"step_name":"loop",`+knownChild("run_id", row.id)) }, a.ID, b.ID, c.ID)
				x.facts(answer, map[string]any{"path": row.path})
			}
			each := x.stepAt(c, "running", `"step_name":"each","role":"foreach"`)
			x.refused(fault.CodeLinkCycle, func() *apitest.Response { return x.add(c, each.ID, ticket("1", knownChild("run_id", a.ID))) }, c.ID)
		}},
		{"nor more than sixteen deep (F5 loop protection)", func(x *runTest) {
			chain := []oapi.Run{x.running("")}
			for len(chain) < 16 {
				s := x.step(chain[len(chain)-1], subRun(""))
				chain = append(chain, x.driven(x.childRun(s)))
			}
			last, lone := chain[15], x.running("")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.insert(last, subRun("")) },
				func() *apitest.Response { return x.insert(last, knownChild("run_id", lone.ID)) },
				func() *apitest.Response {
					return x.Post("/v1/runs", `{"workflow_name":"x","parent_workflow_run_id":"`+last.ID.String()+`"}`)
				},
				func() *apitest.Response { return x.insert(lone, knownChild("run_id", chain[0].ID)) }, // from above, too
			} {
				x.facts(x.refused(fault.CodeLinkCycle, call, last.ID, lone.ID), map[string]any{"limit": 16.0})
			}
			x.step(last, `"step_name":"work",`+workChild("")) // an execution is not deeper
			two := x.running("")
			x.step(two, subRun(""))
			x.refused(fault.CodeLinkCycle, func() *apitest.Response { return x.insert(chain[14], `"step_name":"b",`+knownChild("run_id", two.ID)) }, two.ID)
			x.step(chain[13], `"step_name":"b",`+knownChild("run_id", two.ID)) // two levels below the fourteenth
		}},
	}
}

func runChildRefusalCases() []runCase {
	return []runCase{
		{"what is not there, or another namespace's, is not found", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1"))
			other := x.in(x.namespace + "-other")
			foreignRun, foreignWork := other.running("").ID, other.workers(runLane).create("").ID
			for _, row := range []struct {
				member, resource string
				ids              []uuid.UUID
			}{{"run_id", "run", []uuid.UUID{uuid.New(), foreignRun}}, {"execution_id", "execution", []uuid.UUID{uuid.New(), foreignWork}}} {
				for _, id := range row.ids {
					child := knownChild(row.member, id)
					for _, call := range []func() *apitest.Response{
						func() *apitest.Response { return x.insert(r, child) },
						func() *apitest.Response { return x.patch(r, s.ID, `"status":"running",`+child) },
						func() *apitest.Response { return x.add(r, s.ID, ticket("2", child)) },
						func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[0], "running", child)) },
					} {
						x.missing(row.resource, call, r.ID)
					}
				}
			}
		}},
		{"a child is one thing, of a step that can have one", func(x *runTest) {
			r := x.running("")
			pending, has := x.step(r, `"step_name":"pending"`), x.step(r, `"step_name":"has",`+workChild(""))
			s, items := x.each(r, ticket("1"), ticket("2", workChild("")))
			gate := x.step(r, `"step_name":"gate","role":"gate","gate":{"gate_type":"pr_checks"}`)
			two := `"child":{"run":{"workflow_name":"x"},"execution":{"lane":"x"}}`
			for i, row := range []struct {
				pointer string
				call    func() *apitest.Response
			}{
				{"/child", func() *apitest.Response { return x.insert(r, two) }},
				{"/child", func() *apitest.Response { return x.insert(r, `"child":{}`) }},
				{"/child/task", func() *apitest.Response { return x.insert(r, `"child":{"task":"x"}`) }},
				{"/child/execution/lane", func() *apitest.Response { return x.insert(r, `"child":{"execution":{"kind":"x"}}`) }},
				{"/child/run/workflow_name", func() *apitest.Response { return x.insert(r, `"child":{"run":{"workflow_name":" "}}`) }},
				{"/items/1/child/run/workflow_name", func() *apitest.Response {
					return x.add(r, s.ID, ticket("3"), ticket("4", subRun(`"workflow_name":" "`)))
				}},
				{"/child", func() *apitest.Response {
					return x.insert(r, `"step_name":"g","role":"gate","gate":{"gate_type":"human_review"},`+workChild(""))
				}},
				{"/child", func() *apitest.Response { return x.patch(r, gate.ID, `"status":"running",`+workChild("")) }},
				{"/child", func() *apitest.Response {
					return x.patch(r, has.ID, `"status":"pending","result_text":"x",`+workChild(""))
				}},
				{"/child", func() *apitest.Response { return x.patch(r, pending.ID, `"status":"completed",`+workChild("")) }},
				{"/updates/0/child", func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[0], "completed", workChild(""))) }},
				{"/updates/0/child", func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[1], "running", workChild(""))) }},
				{"/updates/0/child", func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[0], "pending", workChild(""))) }},
			} {
				answer := x.refused(fault.CodeValidationFailed, row.call, r.ID)
				x.points(answer, fault.InBody, row.pointer)
				if x.t.Failed() {
					x.t.Fatalf("that was row %d", i)
				}
			}
			past := workChild(`"deadline_at":` + spelled(x.now().Add(-time.Minute)))
			x.points(x.refused(fault.CodeTimerOutOfRange, func() *apitest.Response { return x.insert(r, past) }, r.ID), fault.InBody, "/child/execution/deadline_at")
		}},
	}
}

func runChildRuleCases() []runCase {
	return []runCase{
		{"a child whose id is taken", func(x *runTest) {
			r, other := x.running(""), x.running("")
			e := x.workers(runLane).create("")
			x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.insert(r, subRun(`"id":"`+other.ID.String()+`"`)) }, r.ID, other.ID)
			s := x.step(r, workChild(`"id":"`+e.ID.String()+`"`)) // as at POST /v1/executions, it is the one that is there
			if *s.ChildExecutionID != e.ID || *x.execution(e.ID).RunID != r.ID {
				x.t.Errorf("%+v", s)
			}
		}},
		{"a child in a flow that has ended", func(x *runTest) {
			f := x.flowTest.at("finished")
			r := x.running("")
			for _, child := range []string{subRun(`"flow_id":"` + f.ID.String() + `"`), workChild(`"flow_id":"` + f.ID.String() + `"`)} {
				x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.insert(r, child) }, r.ID)
			}
		}},
		{"a stale engine makes no child (D1 4)", func(x *runTest) {
			r := x.running("")
			s, items := x.each(r, ticket("1"))
			stale := r
			stale.Generation = 0
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.insert(stale, `"step_name":"x",`+workChild("")) },
				func() *apitest.Response {
					return x.insert(stale, `"step_name":"x","child":{"run_id":"`+uuid.NewString()+`"}`)
				}, // before it is looked for
				func() *apitest.Response { return x.patch(stale, s.ID, `"status":"running",`+subRun("")) },
				func() *apitest.Response { return x.add(stale, s.ID, ticket("2", workChild(""))) },
				func() *apitest.Response { return x.patchItems(stale, s.ID, itemTo(items[0], "running", workChild(""))) },
			} {
				x.facts(x.refused(fault.CodeLeaseLost, call, r.ID), map[string]any{"current_generation": 1.0})
			}
		}},
	}
}
