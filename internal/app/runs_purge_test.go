package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// remove asks for the deletion of a run.
func (x *runTest) remove(id uuid.UUID, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodDelete, runPath(id), nil, headers...)
}

// left counts the rows that are stored of a namespace's runs and of their work, by table.
func (x *runTest) left() map[string]int {
	x.t.Helper()
	rows := map[string]int{}
	queries := map[string]string{
		"runs": `runs WHERE namespace = ?`, "run_steps": `run_steps WHERE namespace = ?`, "executions": `executions WHERE namespace = ?`, "waits": `waits WHERE namespace = ?`,
		"run_items":         `run_items WHERE EXISTS (SELECT 1 FROM events e WHERE e.run_id = run_items.run_id AND e.namespace = ?)`,
		"run_step_attempts": `run_step_attempts WHERE EXISTS (SELECT 1 FROM run_steps s WHERE s.id = step_id AND s.namespace = ?)`,
		"gate_votes":        `gate_votes WHERE EXISTS (SELECT 1 FROM run_steps s WHERE s.id = step_id AND s.namespace = ?)`,
	}
	if err := x.server.App.Store().Sync(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		for table, from := range queries {
			var n int
			if err := q.Get(&n, "SELECT count(*) FROM "+from, x.namespace); err != nil {
				return err
			}
			if n > 0 {
				rows[table] = n
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return rows
}

// family creates a run with steps, attempts, votes and items in it, an execution that has ended, a child run of a step, and one in that.
func (x *runTest) family(members string) (root, child, grandchild oapi.Run) {
	x.t.Helper()
	root = x.running(members)
	done := x.step(root, `"step_name":"done","position":0,`+workChild(""))
	c := x.claimed(done)
	x.workers(runLane).append(c, `"payload":"log"`)
	x.report(c, "complete", "")
	retried := x.stepAt(root, "running", `"step_name":"retried","position":1`)
	x.moved(root, retried.ID, `"status":"running","retry_count":1`)
	gate := x.gate(root, `"min_approvals":2`)
	x.decided(root, gate.ID, "approve", `"by":"ada"`)
	each := x.stepAt(root, "running", `"step_name":"each","role":"foreach","position":3`)
	x.items(root, each.ID, "1", "2")
	child = x.driven(x.childRun(x.step(root, `"step_name":"inner","position":4,`+subRun(""))))
	grandchild = x.driven(x.create(`"parent_workflow_run_id":"` + child.ID.String() + `"`))
	x.stepAt(grandchild, "running", "")
	return root, child, grandchild
}

func runDeleteCases() []runCase {
	return []runCase{
		{"what has ended is deleted, however it ended (C3 purge 1 to 3)", func(x *runTest) {
			for _, status := range []string{"completed", "failed", "cancelled"} {
				r := x.at(status)
				n := len(x.events(r.ID))
				x.remove(r.ID).Want(http.StatusNoContent)
				x.missing("run", func() *apitest.Response { return x.Get(runPath(r.ID)) })
				x.missing("run", func() *apitest.Response { return x.remove(r.ID) })
				x.saying(x.replies(r.ID, n, "run.deleted")[0], map[string]any{"status": status}) // events go by their own retention
			}
			if diff := cmp.Diff(map[string]int{}, x.left()); diff != "" {
				x.t.Errorf("(-want +left):\n%s", diff)
			}
		}},
		{"what is in it goes with it, and nothing else (C3 purge 4 and 8, A13 43)", (*runTest).deleteFamily},
		{"what has not ended stays (C3 purge 6)", func(x *runTest) {
			for _, status := range []string{"pending", "running", "waiting", "cancelling", "needs_resume"} {
				r := x.at(status)
				answer := x.refused(fault.CodeNotTerminal, func() *apitest.Response { return x.remove(r.ID) }, r.ID)
				x.facts(answer, map[string]any{"current_status": status})
			}
		}},
		{"and so does what has something open in it", func(x *runTest) {
			r := x.running("")
			inner := x.driven(x.childRun(x.step(r, subRun(""))))
			s := x.step(inner, workChild(""))
			x.claimed(s)
			x.do(r, "fail", `"error":"no disk"`) // the child's engine has time to end
			x.stands(inner.ID, "cancelling")
			answer := x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.remove(r.ID) }, r.ID, inner.ID)
			x.facts(answer, map[string]any{"count": 2.0})
			x.advance(5 * time.Second)
			x.remove(r.ID).Want(http.StatusNoContent)
			x.workers(runLane).Get("/v1/executions/" + s.ChildExecutionID.String()).Problem(fault.CodeNotFound)
		}},
		{"what is not there is not found (C3 purge 5)", func(x *runTest) {
			r := x.at("completed")
			x.missing("run", func() *apitest.Response { return x.remove(uuid.New()) }, r.ID)
			x.missing("run", func() *apitest.Response { return x.In(x.namespace+"-other").Do(http.MethodDelete, runPath(r.ID), nil) }, r.ID)
		}},
		{"at a revision that was read", func(x *runTest) {
			r := x.at("completed")
			answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.remove(r.ID, ifMatch(r.Revision-1)) }, r.ID)
			x.facts(answer, map[string]any{"expected": float64(r.Revision - 1), "actual": float64(r.Revision)})
			x.remove(r.ID, ifMatch(r.Revision)).Want(http.StatusNoContent)
			other := x.at("completed")
			x.Do(http.MethodDelete, runPath(other.ID)+fmt.Sprintf("?revision=%d", other.Revision), nil).Want(http.StatusNoContent)
		}},
		{"a member of a flow goes on without the run", func(x *runTest) {
			f := x.flowTest.create(`"graph":{"executions":[{"key":"a","lane":"` + runLane + `"}]}`)
			r := x.running("")
			s := x.step(r, knownChild("execution_id", f.Graph.Executions["a"]))
			x.report(x.claimed(s), "complete", "")
			x.do(r, "complete", "")
			if e := x.execution(f.Graph.Executions["a"]); e.RunID == nil || *e.RunID != r.ID {
				x.t.Errorf("%v", e.RunID)
			}
			x.remove(r.ID).Want(http.StatusNoContent)
			if e := x.execution(f.Graph.Executions["a"]); e.RunID != nil || *e.FlowID != f.ID {
				x.t.Errorf("%v %v", e.RunID, e.FlowID)
			}
		}},
		{"the step of a deleted child keeps what it was", func(x *runTest) {
			r := x.running("")
			s := x.step(r, subRun(""))
			inner := x.driven(x.childRun(s))
			x.do(inner, "complete", `"result_summary":"well"`)
			x.remove(inner.ID).Want(http.StatusNoContent)
			if got := x.stepped(r, s.ID, "completed"); orNone(got.ResultText) != "well" || orNone(got.ChildRunID) != inner.ID.String() {
				x.t.Errorf("%+v", got)
			}
			x.do(r, "complete", "")
		}},
	}
}

func (x *runTest) deleteFamily() {
	root, child, grandchild := x.family("")
	sibling, _, _ := x.family("")
	before := x.left()
	for table, n := range before {
		if n%2 != 0 {
			x.t.Errorf("%d rows of %s", n, table)
		}
		before[table] = n / 2
	}
	want := map[string]int{"runs": 3, "run_steps": 6, "executions": 1, "run_items": 2, "run_step_attempts": 1, "gate_votes": 1, "waits": 1}
	if diff := cmp.Diff(want, before); diff != "" {
		x.t.Errorf("before, of each (-want +got):\n%s", diff)
	}
	x.do(root, "cancel", "")
	x.advance(5 * time.Second)
	n := len(x.events(grandchild.ID))
	x.remove(root.ID).Want(http.StatusNoContent)
	for _, r := range []oapi.Run{root, child, grandchild} {
		x.missing("run", func() *apitest.Response { return x.Get(runPath(r.ID)) })
	}
	if diff := cmp.Diff(want, x.left()); diff != "" {
		x.t.Errorf("left is (-want +got):\n%s", diff)
	}
	x.replies(grandchild.ID, n, "run.deleted")
	x.stands(sibling.ID, "running")
	x.do(sibling, "cancel", "")
	x.advance(5 * time.Second)
	x.remove(sibling.ID).Want(http.StatusNoContent)
	if diff := cmp.Diff(map[string]int{}, x.left()); diff != "" {
		x.t.Errorf("in the end (-want +left):\n%s", diff)
	}
}

// purge deletes ended runs.
func (x *runTest) purge(members string) oapi.PurgedRuns {
	x.t.Helper()
	return flowAs[oapi.PurgedRuns](x.Post("/v1/admin/purge-runs", "{"+members+"}").Want(http.StatusOK))
}

// purged checks what is counted: of a dry run first, which changes nothing, and then of the real one.
func (x *runTest) purged(members string, roots, runs, executions int64) {
	x.t.Helper()
	want := oapi.PurgedRuns{DryRun: true, Roots: roots, Runs: runs, Executions: executions}
	dry := x.same(func() *apitest.Response { return x.Post("/v1/admin/purge-runs", "{"+members+`,"dry_run":true}`) }).Want(http.StatusOK)
	if diff := cmp.Diff(want, flowAs[oapi.PurgedRuns](dry)); diff != "" {
		x.t.Errorf("dry (-want +got):\n%s", diff)
	}
	want.DryRun = false
	if diff := cmp.Diff(want, x.purge(members)); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
}

func runPurgeCases() []runCase {
	ended := []string{"completed", "failed", "cancelled"}
	return []runCase{
		{"by status, and only roots (C3 purge 9 and 10)", func(x *runTest) {
			for _, status := range []string{"pending", "running", "waiting", "cancelling", "needs_resume"} {
				x.at(status)
			}
			open := x.list("")
			for _, status := range ended {
				x.at(status)
				x.at(status)
			}
			root, child, grandchild := x.family("")
			x.release(child, "") // so that they end with the root, at once
			x.release(grandchild, "")
			x.do(root, "fail", `"error":"no disk"`)
			inner := x.childRun(x.step(open[4], subRun(""))) // a child that has ended in a run that has not
			x.cancelled(inner, "")
			x.purged(`"statuses":["completed"]`, 2, 2, 0)
			x.purged(`"statuses":["completed"]`, 0, 0, 0)
			x.purged(`"statuses":["failed","cancelled"]`, 5, 7, 1)
			got := runIDs(x.list(""))
			if want := append(runIDs(open), inner.ID); !sameIDs(want, got) {
				x.t.Errorf("left are %v, want %v", got, want)
			}
		}},
		{"without a status nothing is deleted, and what matches nothing is nothing (C3 purge 15 and 16)", func(x *runTest) {
			r := x.at("completed")
			x.purged(`"statuses":[]`, 0, 0, 0)
			x.purged(`"statuses":["failed","cancelled"]`, 0, 0, 0)
			x.purged(`"statuses":["completed"],"workflow_name":"other"`, 0, 0, 0)
			x.stands(r.ID, "completed")
		}},
		{"by age since the end, and by workflow (C3 purge 11)", func(x *runTest) {
			x.at("completed")
			x.advance(time.Hour)
			r := x.running(`"workflow_name":"deploy"`)
			x.do(r, "complete", "")
			x.advance(time.Hour)
			late := x.at("completed")
			x.purged(`"statuses":["completed"],"older_than_ms":7200001`, 0, 0, 0)
			x.purged(`"statuses":["completed"],"older_than_ms":7200000`, 1, 1, 0)
			x.purged(`"statuses":["completed"],"workflow_name":"release","older_than_ms":1`, 0, 0, 0)
			x.purged(`"statuses":["completed"],"workflow_name":"deploy","older_than_ms":3600000`, 1, 1, 0)
			x.stands(late.ID, "completed")
			x.purged(`"statuses":["completed"]`, 1, 1, 0)
		}},
		{"what has something open in it stays", func(x *runTest) {
			r := x.running("")
			inner := x.driven(x.childRun(x.step(r, subRun(""))))
			x.do(r, "fail", `"error":"no disk"`)
			x.at("failed")
			x.purged(`"statuses":["failed"]`, 1, 1, 0)
			x.stands(inner.ID, "cancelling")
			x.advance(5 * time.Second)
			x.purged(`"statuses":["failed"]`, 1, 2, 0)
		}},
	}
}

func runPurgeRequestCases() []runCase {
	return []runCase{
		{"more than one transaction deletes, and only of its namespace (C3 purge 12)", func(x *runTest) {
			other := x.in(x.namespace + "-other")
			kept := other.at("cancelled")
			for range 120 {
				x.people(x.create(""), "cancel", "").Want(http.StatusOK)
			}
			open := x.create("")
			x.purged(`"statuses":["cancelled"]`, 120, 120, 0)
			if left := runIDs(x.list("")); !slices.Equal(left, []uuid.UUID{open.ID}) {
				x.t.Errorf("%v", left)
			}
			other.stands(kept.ID, "cancelled")
		}},
		{"under an Idempotency-Key it is done once", func(x *runTest) {
			x.at("completed")
			key, body := "Idempotency-Key: purge-"+x.namespace, `{"statuses":["completed"]}`
			first := x.Post("/v1/admin/purge-runs", body, key).Want(http.StatusOK)
			r := x.at("completed")
			again := x.same(func() *apitest.Response { return x.Post("/v1/admin/purge-runs", body, key) }, r.ID).Want(http.StatusOK)
			if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.Int("roots") != 1 {
				x.t.Errorf("%s %s", first.Body, again.Body)
			}
		}},
		{"what is asked is checked", func(x *runTest) {
			r := x.at("completed")
			for members, pointer := range map[string]string{
				"": "/statuses", `"statuses":["running"]`: "/statuses/0", `"statuses":["completed","pending"]`: "/statuses/1", `"statuses":"completed"`: "/statuses",
				`"statuses":[],"older_than_ms":-1`: "/older_than_ms", `"statuses":[],"workflow_name":""`: "/workflow_name", `"statuses":[],"all":true`: "/all",
			} {
				answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/admin/purge-runs", "{"+members+"}") }, r.ID)
				x.points(answer, fault.InBody, pointer)
			}
		}},
	}
}

// sameIDs says whether two lists have the same ids, in whatever order.
func sameIDs(a, b []uuid.UUID) bool {
	set := map[uuid.UUID]bool{}
	for _, id := range a {
		set[id] = true
	}
	for _, id := range b {
		if !set[id] {
			return false
		}
		delete(set, id)
	}
	return len(set) == 0
}
