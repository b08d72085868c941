package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// tree reads a tree.
func (x *runTest) tree(id uuid.UUID) oapi.Tree {
	x.t.Helper()
	return flowAs[oapi.Tree](x.Get("/v1/tree/" + id.String()).Want(http.StatusOK))
}

// drawn writes a tree, a line for each node: "  step build: running (open), why it is not running".
func drawn(n *oapi.TreeNode, indent string) []string {
	line := fmt.Sprintf("%s%s %s: %s (%s)", indent, n.Type, n.Name, n.Status, n.StatusClass)
	if n.WhyNotRunning != nil {
		line += ", " + *n.WhyNotRunning
	}
	lines := []string{line}
	for i := range n.Children {
		lines = append(lines, drawn(&n.Children[i], indent+"  ")...)
	}
	return lines
}

// looks checks a tree.
func (x *runTest) looks(id uuid.UUID, want string) oapi.Tree {
	x.t.Helper()
	tree := x.tree(id)
	got := strings.Join(drawn(&tree.Root, ""), "\n")
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), strings.Split(got, "\n")); diff != "" || tree.Truncated {
		x.t.Errorf("truncated: %v (-want +got):\n%s", tree.Truncated, diff)
	}
	return tree
}

func runTreeCases() []runCase {
	return []runCase{
		{"flow, runs, steps, executions and attempts, from each of them downwards (F6)", (*runTest).treeLevels},
		{"every status of a run has its class, and says why it is not running (F4)", func(x *runTest) {
			for status, want := range map[string]string{
				"pending": "pending (open), no engine has started it", "running": "running (open)", "waiting": "waiting (waiting), it waits for timer", "cancelling": "cancelling (cancelling), its engine was asked to end it",
				"needs_resume": "needs_resume (open), its engine has given it up: resume it", "completed": "completed (succeeded)", "failed": "failed (failed)", "cancelled": "cancelled (cancelled)",
			} {
				r := x.at(status)
				tree := x.looks(r.ID, "run release: "+want)
				if (tree.Root.StartedAt == nil) != (r.StartedAt == nil) || (tree.Root.EndedAt == nil) != (r.EndedAt == nil) || tree.Root.ID != r.ID.String() {
					x.t.Errorf("%+v", tree.Root)
				}
			}
			r := x.running("")
			x.do(r, "wait", `"blocked_on":{"type":"human_approval","gate_name":"sign-off"}`)
			x.looks(r.ID, "run release: waiting (waiting), it waits for human approval (sign-off)")
			x.looks(x.unheld(x.running("")).ID, "run release: running (open), no engine holds its lease")
		}},
		{"and every status of a step (F4)", func(x *runTest) {
			r := x.running("")
			for status, want := range map[string]string{
				"pending": "pending (open), its engine has not begun it", "running": "running (open)", "waiting": "waiting (waiting), its engine has parked it", "completed": "completed (succeeded)",
				"failed": "failed (failed)", "skipped": "skipped (skipped)", "timed_out": "timed_out (expired)", "cancelled": "cancelled (cancelled)",
			} {
				s := x.stepAt(r, status, `"step_name":`+quoted(status))
				x.looks(s.ID, "step "+status+": "+want)
			}
			s, items := x.each(r, ticket("1"), ticket("2"), ticket("3"))
			x.patchItems(r, s.ID, itemTo(items[0], "completed")).Want(http.StatusOK)
			x.looks(s.ID, "step each: running (open), 2 of its 3 items have not ended")
		}},
		{"and every end of an execution (F4)", func(x *runTest) {
			for _, c := range childEnds {
				r := x.running("")
				s := x.step(r, x.mortal())
				c.end(x, s)
				class := map[string]string{"completed": "succeeded", "failed": "failed", "cancelled": "cancelled", "expired": "expired"}[c.execution]
				root := x.tree(s.ID).Root
				if got := root.Children[0]; got.Status != c.execution || string(got.StatusClass) != class || got.WhyNotRunning != nil || got.EndedAt == nil {
					x.t.Errorf("%+v, want the class %s", got, class)
				}
			}
		}},
		{"what is not there is not found, and reading changes nothing", func(x *runTest) {
			r := x.running("")
			s := x.step(r, workChild(""))
			x.same(func() *apitest.Response { return x.Get("/v1/tree/" + r.ID.String()) }, r.ID).Want(http.StatusOK)
			other := x.In(x.namespace + "-other")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.Get("/v1/tree/" + uuid.NewString()) },
				func() *apitest.Response { return other.Get("/v1/tree/" + r.ID.String()) },
				func() *apitest.Response { return other.Get("/v1/tree/" + s.ID.String()) },
				func() *apitest.Response { return other.Get("/v1/tree/" + s.ChildExecutionID.String()) },
			} {
				x.missing("tree", call)
			}
		}},
		{"at most two thousand nodes are shown (truncated)", func(x *runTest) {
			x = x.in(x.namespace + "-large") // what was not written by the server is not audited
			r, small := x.running(""), x.running("")
			x.manySteps(r, 2001)
			x.manySteps(small, 2000)
			for _, row := range []struct {
				id        uuid.UUID
				truncated bool
			}{{r.ID, true}, {small.ID, false}} {
				tree := x.tree(row.id)
				if n := len(tree.Root.Children); n != 2000 || tree.Truncated != row.truncated || tree.Root.Children[1999].Name != "s1999" {
					x.t.Errorf("%d steps, truncated: %v", n, tree.Truncated)
				}
			}
		}},
	}
}

// manySteps writes steps of a run behind the server's back: one by one they take too long.
func (x *runTest) manySteps(r oapi.Run, n int) {
	x.t.Helper()
	rows := make([][]any, n)
	for i := range rows {
		name := fmt.Sprint("s", i)
		rows[i] = []any{store.ID(store.NewID()), rowID(r.ID), x.namespace, name, name, "agent", i, 0, 0, x.now().UnixMilli(), "pending", 0, 0, 0, 0, 0, 0, 0, 0}
	}
	err := store.Do(x.t.Context(), x.server.App.Store(), func(tx *store.Tx) error {
		_, err := tx.Insert(`INSERT INTO run_steps (id, run_id, namespace, path, step_name, role, position, iteration, can_commit, created_at, status, retry_count, child_linked,
			items_pending, items_running, items_completed, items_failed, items_skipped, items_cancelled) VALUES `, rows, "")
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *runTest) treeLevels() {
	f := x.flowTest.running("")
	r := x.running(inFlow(f) + `,"definition_snapshot":{"title":"Release 1.4"}`)
	build := x.step(r, `"step_name":"build","position":0,`+workChild(`"kind":"compile","priority":3,`+retryPolicy(1)))
	x.report(x.claimed(build), "fail", `"reason":"flaky","category":"transient"`)
	x.advance(retryDelay)
	x.report(x.claimed(build), "complete", "")
	held := x.step(r, `"step_name":"held","position":1,`+workChild(`"kind":"test","priority":2`))
	x.claimed(held)
	x.step(r, `"step_name":"idle","position":2,`+workChild(""))
	gate := x.step(r, `"step_name":"review","position":3,"role":"gate","gate":{"gate_type":"human_review","timeout_ms":3600000}`)
	gate = x.moved(r, gate.ID, `"status":"waiting"`)
	each := x.stepAt(r, "running", `"step_name":"each","position":4,"role":"foreach"`)
	x.add(r, each.ID, ticket("1", `"item_ref":"The docs"`, workChild("")), ticket("2", subRun(`"workflow_name":"per-item"`)), ticket("3")).Want(http.StatusOK)
	inner := x.driven(x.childRun(x.step(r, `"step_name":"inner","position":5,`+subRun(`"workflow_name":"deploy"`))))
	x.step(inner, `"step_name":"deep","position":0`)
	x.create(`"workflow_name":"beside","parent_workflow_run_id":"` + r.ID.String() + `"`)
	x.Post(flowPath(f.ID, "members"), `{"execution":{"key":"lint","lane":"idle"}}`).Want(http.StatusCreated)
	until := gate.Gate.DeadlineAt.Time().UTC().Format(time.RFC3339)

	run := `
run Release 1.4: running (open)
  step build: completed (succeeded)
    execution compile: completed (succeeded)
      attempt w1: ended_failure (failed)
      attempt w1: ended_success (succeeded)
  step held: running (open)
    execution test: active (open)
      attempt w1: started (open)
  step idle: pending (open), nobody has begun its work
    execution work: waiting (open), waiting for worker
  step review: waiting (waiting), its gate (human_review) waits for an answer until ` + until + `
  step each: running (open), 3 of its 3 items have not ended
    execution The docs: waiting (open), waiting for worker
    run per-item: pending (open), no engine has started it
  step inner: running (open)
    run deploy: running (open)
      step deep: pending (open), its engine has not begun it
  run beside: pending (open), no engine has started it`
	tree := x.looks(r.ID, run)
	if root := tree.Root; root.StartedAt == nil || root.EndedAt != nil || root.Children[0].EndedAt == nil || root.Children[0].Children[0].ID != build.ChildExecutionID.String() {
		x.t.Errorf("%+v", root)
	}
	x.looks(f.ID, "flow Release 1.4: running (open)"+strings.ReplaceAll(run, "\n", "\n  ")+"\n  execution lint: waiting (open), waiting for worker")
	x.looks(held.ID, "step held: running (open)\n  execution test: active (open)\n    attempt w1: started (open)")
	x.looks(*held.ChildExecutionID, "execution test: active (open)\n  attempt w1: started (open)")
	x.looks(inner.ID, "run deploy: running (open)\n  step deep: pending (open), its engine has not begun it")
}
