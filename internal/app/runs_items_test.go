package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// itemStatuses are the statuses of items, in the order of the columns of the table below.
var itemStatuses = []string{"pending", "running", "completed", "failed", "skipped", "cancelled"}

// fan adds a running foreach with items of these ids to a new run.
func (x *runTest) fan(ids ...string) (oapi.Run, oapi.RunStep, []oapi.RunItem) {
	x.t.Helper()
	r := x.running("")
	s := x.stepAt(r, "running", `"step_name":"fan","role":"foreach"`)
	if len(ids) == 0 {
		return r, s, nil
	}
	return r, s, x.items(r, s.ID, ids...)
}

// counted checks the counters of a step: "pending running completed failed skipped cancelled".
func (x *runTest) counted(r oapi.Run, id uuid.UUID, want string) {
	x.t.Helper()
	s := x.read(r, id)
	got := fmt.Sprint(s.FanOutPending, s.FanOutRunning, s.FanOutCompleted, s.FanOutFailed, s.FanOutSkipped, s.FanOutCancelled)
	total := s.FanOutPending + s.FanOutRunning + s.FanOutCompleted + s.FanOutFailed + s.FanOutSkipped + s.FanOutCancelled
	if got != want || s.FanOutTotal != total {
		x.t.Errorf("counted %s, %d in all, want %s", got, s.FanOutTotal, want)
	}
}

// runItemTransitionCases drives items from every status to every other. reference: model.md "Run"; acceptance 6.
func runItemTransitionCases() []runCase {
	const (
		same    = runNothing
		illegal = fault.CodeIllegalTransition
		moved   = "moved"
	)
	//               pending   running   completed failed    skipped   cancelled
	table := map[string][]runOutcome{
		"pending":   {same, moved, moved, moved, moved, moved},
		"running":   {illegal, same, moved, moved, moved, moved},
		"completed": {illegal, illegal, same, illegal, illegal, illegal},
		"failed":    {illegal, illegal, illegal, same, illegal, illegal},
		"skipped":   {illegal, illegal, illegal, illegal, same, illegal},
		"cancelled": {illegal, illegal, illegal, illegal, illegal, same},
	}
	var cases []runCase
	for from, outcomes := range table {
		cases = append(cases, runCase{"from " + from + " (A4.3, A13 11, D2 9)", func(x *runTest) {
			for i, to := range itemStatuses {
				x.sub("to "+to, func(x *runTest) { x.itemTransition(from, to, outcomes[i]) })
			}
		}})
	}
	return cases
}

// itemTransition brings one item from one status to another.
func (x *runTest) itemTransition(from, to string, want runOutcome) {
	x.t.Helper()
	r, s, items := x.fan("1")
	it := items[0]
	if from != "pending" {
		x.patchItems(r, s.ID, itemTo(it, from)).Want(http.StatusOK)
		it = x.listItems(r, s.ID, "")[0]
	}
	call := func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(it, to)) }
	n := len(x.events(r.ID))
	if code, refused := want.(fault.Code); refused {
		x.facts(x.refused(code, call, r.ID), map[string]any{"from": from, "to": to, "item_id": it.ID.String()})
		return
	}
	if want == runNothing {
		got := flowAs[oapi.PatchedRunItems](x.same(call, r.ID).Want(http.StatusOK)).Items
		if diff := cmp.Diff([]oapi.RunItem{it}, got); diff != "" {
			x.t.Errorf("answered (-want +got):\n%s", diff)
		}
		return
	}
	x.advance(time.Second)
	got := flowAs[oapi.PatchedRunItems](call().Want(http.StatusOK)).Items
	if diff := cmp.Diff(x.listItems(r, s.ID, "&status="+to), got); diff != "" || len(got) != 1 {
		x.t.Fatalf("answered and listed differ:\n%s", diff)
	}
	ended := to != "running"
	if got := got[0]; (got.CompletedAt != nil) != ended || ended && !got.CompletedAt.Equal(x.when(0)) || (got.DispatchedAt != nil) != (from == "running" || to == "running") {
		x.t.Errorf("%+v", got)
	}
	told := x.told(r.ID, n, "item."+to)
	x.equalJSON("told", told[0].Data, fmt.Sprintf(`{"step_id":%q,"id":%q,"item_type":"ticket","item_id":"1","status":%q}`, s.ID, it.ID, to))
	if told[0].Topic != "fanout" {
		x.t.Errorf("told %+v", told[0])
	}
}

// runItemCases: what a step fans out over. reference: runs-and-taskflows.md A3.3, A5.8, C1, C2 "Persistence", C3 "Fan-out", D4.
func runItemCases() []runCase {
	return []runCase{
		{"a new item is pending and has what it was given (A3.3, C3 fan-out)", func(x *runTest) {
			r, s, _ := x.fan()
			answer := x.add(r, s.ID, `"item_type":"ticket","item_id":"T-1","item_ref":"Fix it","context":{"title":"Fix","n":1.50}`, ticket("T-2")).Want(http.StatusOK)
			for i, want := range []string{
				`{"id":"","step_id":%q,"run_id":%q,"item_type":"ticket","item_id":"T-1","item_ref":"Fix it","status":"pending","child_run_id":null,"child_execution_id":null,
					"context":{"title":"Fix","n":1.50},"created_at":%s,"dispatched_at":null,"completed_at":null}`,
				`{"id":"","step_id":%q,"run_id":%q,"item_type":"ticket","item_id":"T-2","item_ref":"","status":"pending","child_run_id":null,"child_execution_id":null,
					"context":{},"created_at":%s,"dispatched_at":null,"completed_at":null}`,
			} {
				got := answer.Get(fmt.Sprintf("items.%d.item", i)).(map[string]any)
				got["id"] = ""
				if diff := cmp.Diff(docAs[map[string]any](x.t, fmt.Appendf(nil, want, s.ID, r.ID, spelled(x.now()))), got); diff != "" || answer.Get(fmt.Sprintf("items.%d.created", i)) != true {
					x.t.Errorf("added (-want +got):\n%s", diff)
				}
			}
			if got := x.listItems(r, s.ID, "")[0].Context; string(got) != `{"title":"Fix","n":1.50}` {
				x.t.Errorf("context %s", got)
			}
			x.counted(r, s.ID, "2 0 0 0 0 0")
		}},
		{"pending, running, completed, each with its time and child (RM-09, RM-21, RS-13)", func(x *runTest) {
			r, s, items := x.fan("1", "2")
			it := items[0]
			x.advance(time.Second)
			x.patchItems(r, s.ID, itemTo(it, "running", `"child_run_id":"agent-1"`)).Want(http.StatusOK)
			running := x.listItems(r, s.ID, "&status=running")
			if len(running) != 1 || *running[0].ChildRunID != "agent-1" || !running[0].DispatchedAt.Equal(x.when(0)) || running[0].CompletedAt != nil {
				x.t.Fatalf("running %+v", running)
			}
			x.advance(time.Second)
			x.patchItems(r, s.ID, itemTo(it, "completed")).Want(http.StatusOK)
			done := x.listItems(r, s.ID, "&status=completed")
			if len(done) != 1 || *done[0].ChildRunID != "agent-1" || !done[0].DispatchedAt.Equal(x.when(-time.Second)) || !done[0].CompletedAt.Equal(x.when(0)) {
				x.t.Fatalf("completed %+v", done)
			}
			x.counted(r, s.ID, "1 0 1 0 0 0")
		}},
		{"a duplicate item returns the stored row (RM-10, A13 10, D4 30)", func(x *runTest) {
			r, s, items := x.fan("1")
			x.patchItems(r, s.ID, itemTo(items[0], "running", `"child_run_id":"agent-1"`)).Want(http.StatusOK)
			stored := x.listItems(r, s.ID, "")[0]
			again := x.same(func() *apitest.Response { return x.add(r, s.ID, ticket("1", `"item_ref":"other","context":{"a":1}`)) }, r.ID).Want(http.StatusOK)
			if got := flowAs[oapi.AddedRunItems](again).Items; len(got) != 1 || got[0].Created || cmp.Diff(stored, got[0].Item) != "" {
				x.t.Errorf("%s", again.Body)
			}
			twice := flowAs[oapi.AddedRunItems](x.add(r, s.ID, ticket("2"), ticket("2"), ticket("1")).Want(http.StatusOK)).Items
			if len(twice) != 3 || !twice[0].Created || twice[1].Created || twice[2].Created || twice[0].Item.ID != twice[1].Item.ID || twice[2].Item.ID != stored.ID {
				x.t.Errorf("twice in one request: %+v", twice)
			}
			x.counted(r, s.ID, "1 1 0 0 0 0")
		}},
		{"the same id of another type is another item (RM-11)", func(x *runTest) {
			r, s, _ := x.fan("1")
			both := []string{ticket("1"), `"item_type":"repo","item_id":"1"`}
			if got := flowAs[oapi.AddedRunItems](x.add(r, s.ID, both...).Want(http.StatusOK)).Items; got[0].Created || !got[1].Created {
				x.t.Errorf("%+v", got)
			}
			x.same(func() *apitest.Response { return x.add(r, s.ID, both...) }, r.ID).Want(http.StatusOK)
			if got := x.listItems(r, s.ID, ""); len(got) != 2 || got[0].ItemType != "ticket" || got[1].ItemType != "repo" {
				x.t.Errorf("%+v", got)
			}
		}},
	}
}

// runItemBatchCases: many items at once, all or none. reference: runs-and-taskflows.md A5.8, D4 31.
func runItemBatchCases() []runCase {
	return []runCase{
		{"a batch of three ends, at one time (RS-11, RM-19, D4 31)", func(x *runTest) {
			r, s, items := x.fan("1", "2", "3", "4")
			n := len(x.events(r.ID))
			x.advance(time.Minute)
			answer := x.patchItems(r, s.ID, itemTo(items[2], "skipped"), itemTo(items[0], "completed"), itemTo(items[1], "failed")).Want(http.StatusOK)
			for i, want := range []oapi.RunItem{items[2], items[0], items[1]} { // in the order of the request
				if got := flowAs[oapi.PatchedRunItems](answer).Items[i]; got.ID != want.ID || !got.CompletedAt.Equal(x.when(0)) {
					x.t.Errorf("item %d: %+v", i, got)
				}
			}
			x.told(r.ID, n, "item.skipped", "item.completed", "item.failed")
			x.counted(r, s.ID, "1 0 1 1 1 0")
		}},
		{"an empty batch changes nothing (RS-12, RM-20)", func(x *runTest) {
			r, s, _ := x.fan("1")
			for _, call := range []func() *apitest.Response{
				func() *apitest.Response { return x.patchItems(r, s.ID) },
				func() *apitest.Response { return x.Post(stepPath(r, s.ID, "items"), "{"+fence(1, `"items":[]`)+"}") },
			} {
				if got := x.same(call, r.ID).Want(http.StatusOK).Len("items"); got != 0 {
					x.t.Errorf("%d items", got)
				}
			}
		}},
		{"a batch with items that are not there changes nothing, and lists them (RS-14, RM-22, A13 11)", func(x *runTest) {
			r, s, items := x.fan("1")
			_, _, others := x.fan("1")
			unknown := oapi.RunItem{ID: uuid.New()}
			answer := x.refused(fault.CodeNotFound, func() *apitest.Response {
				return x.patchItems(r, s.ID, itemTo(items[0], "completed"), itemTo(unknown, "completed"), itemTo(others[0], "failed"), itemTo(unknown, "failed"))
			}, r.ID)
			x.facts(answer, map[string]any{"resource": "item", "missing": []any{unknown.ID.String(), others[0].ID.String()}})
		}},
		{"a batch with one transition that is not allowed changes nothing", func(x *runTest) {
			r, s, items := x.fan("1", "2")
			x.patchItems(r, s.ID, itemTo(items[1], "completed")).Want(http.StatusOK)
			answer := x.refused(fault.CodeIllegalTransition, func() *apitest.Response {
				return x.patchItems(r, s.ID, itemTo(items[0], "running"), itemTo(items[1], "failed"))
			}, r.ID)
			x.facts(answer, map[string]any{"from": "completed", "to": "failed", "item_id": items[1].ID.String()})
		}},
		{"one item twice in a batch goes both ways, one after the other", func(x *runTest) {
			r, s, items := x.fan("1")
			n := len(x.events(r.ID))
			x.patchItems(r, s.ID, itemTo(items[0], "running"), itemTo(items[0], "completed")).Want(http.StatusOK)
			x.told(r.ID, n, "item.running", "item.completed")
			x.counted(r, s.ID, "0 0 1 0 0 0")
		}},
		{"some items are skipped, and the others stay as they are (C3 fan-out)", func(x *runTest) {
			r, s, items := x.fan("1", "2", "3")
			x.patchItems(r, s.ID, itemTo(items[0], "skipped"), itemTo(items[2], "skipped")).Want(http.StatusOK)
			if got := x.listItems(r, s.ID, ""); got[0].CompletedAt == nil || got[2].CompletedAt == nil || cmp.Diff(items[1], got[1]) != "" {
				x.t.Errorf("%+v", got)
			}
		}},
		{"the counters are those of the items, none for none (C3 fan-out, A13 18, D4 29)", func(x *runTest) {
			r, s, items := x.fan("1", "2", "3", "4", "5", "6")
			x.patchItems(r, s.ID, itemTo(items[0], "completed"), itemTo(items[1], "completed"), itemTo(items[2], "failed"), itemTo(items[3], "skipped"), itemTo(items[4], "running")).Want(http.StatusOK)
			x.counted(r, s.ID, "1 1 2 1 1 0")
			x.counted(r, x.step(r, `"path":"empty","role":"foreach"`).ID, "0 0 0 0 0 0")
		}},
	}
}

// runItemListCases: which items there are, and with what they end.
func runItemListCases() []runCase {
	return []runCase{
		{"items are listed in the order of their creation, in pages, and found by status (A3.3, C3 fan-out)", func(x *runTest) {
			r, s, items := x.fan("c", "a", "b", "e", "d")
			x.patchItems(r, s.ID, itemTo(items[1], "running"), itemTo(items[3], "running")).Want(http.StatusOK)
			var paged []string
			for cursor := ""; ; {
				p := flowAs[oapi.RunItemList](x.Get(stepPath(r, s.ID, "items") + "?limit=2" + cursor).Want(http.StatusOK))
				for _, it := range p.Items {
					paged = append(paged, it.ItemID)
				}
				if p.NextCursor == nil {
					break
				}
				cursor = "&cursor=" + *p.NextCursor
			}
			if diff := cmp.Diff([]string{"c", "a", "b", "e", "d"}, paged); diff != "" {
				x.t.Errorf("pages (-want +got):\n%s", diff)
			}
			if got := x.listItems(r, s.ID, "&status=running"); len(got) != 2 || got[0].ItemID != "a" || got[1].ItemID != "e" {
				x.t.Errorf("running %+v", got)
			}
			if got := x.listItems(r, s.ID, "&status=failed"); len(got) != 0 {
				x.t.Errorf("failed %+v", got)
			}
		}},
		{"a fan-out is not complete while an item is open, and any other end ends its items (A13 14, D2 12)", runItemsEnd},
		{"nothing is added to a step that has ended, and what is there is told (D2 9)", func(x *runTest) {
			r, s, items := x.fan("1")
			x.patchItems(r, s.ID, itemTo(items[0], "completed")).Want(http.StatusOK)
			x.moved(r, s.ID, `"status":"completed"`)
			x.facts(x.refused(fault.CodeStepTerminal, func() *apitest.Response { return x.add(r, s.ID, ticket("2")) }, r.ID), map[string]any{"current_status": "completed"})
			x.same(func() *apitest.Response { return x.add(r, s.ID, ticket("1"), ticket("1")) }, r.ID).Want(http.StatusOK)
			x.same(func() *apitest.Response { return x.patchItems(r, s.ID, itemTo(items[0], "completed")) }, r.ID).Want(http.StatusOK)
			x.do(r, "complete", "")
			x.facts(x.refused(fault.CodeRunTerminal, func() *apitest.Response { return x.add(r, s.ID, ticket("2")) }, r.ID), map[string]any{"current_status": "completed"})
		}},
		{"an item's child keeps its id when an update leaves it out (C3 steps, A13 12)", func(x *runTest) {
			r, s, items := x.fan("1")
			x.patchItems(r, s.ID, itemTo(items[0], "running", `"child_run_id":"agent-1"`)).Want(http.StatusOK)
			n := len(x.events(r.ID))
			x.patchItems(r, s.ID, itemTo(items[0], "running", `"child_run_id":"agent-2"`)).Want(http.StatusOK)
			x.told(r.ID, n, "item.running")
			x.patchItems(r, s.ID, itemTo(items[0], "failed")).Want(http.StatusOK)
			if got := x.listItems(r, s.ID, "")[0]; *got.ChildRunID != "agent-2" || got.Status != "failed" {
				x.t.Errorf("%+v", got)
			}
		}},
		{"items are of the step and run that they were added to (C3 fan-out)", func(x *runTest) {
			r, s, items := x.fan("1")
			other, fan, _ := x.fan("1", "2")
			if got := x.listItems(r, s.ID, ""); len(got) != 1 || got[0].ID != items[0].ID || got[0].RunID != r.ID || got[0].StepID != s.ID {
				x.t.Errorf("%+v", got)
			}
			x.facts(x.Get(stepPath(r, fan.ID, "items")).Problem(fault.CodeNotFound), map[string]any{"resource": "step"})
			x.facts(x.Get(stepPath(r, uuid.New(), "items")).Problem(fault.CodeNotFound), map[string]any{"resource": "step"})
			x.facts(x.refused(fault.CodeNotFound, func() *apitest.Response { return x.add(r, fan.ID, ticket("3")) }, r.ID, other.ID), map[string]any{"resource": "step"})
		}},
		{"a step has at most 10,000 items, and a run 30,000 (decisions)", runItemsBounded},
		{"a thousand items in one request, and one more is too much", func(x *runTest) {
			r, s, _ := x.fan()
			ids := make([]string, 1000)
			for i := range ids {
				ids[i] = fmt.Sprint("T-", i)
			}
			items := x.items(r, s.ID, ids...)
			x.counted(r, s.ID, "1000 0 0 0 0 0")
			updates := make([]string, len(items))
			for i, it := range items {
				updates[i] = itemTo(it, "completed")
			}
			x.patchItems(r, s.ID, updates...).Want(http.StatusOK)
			x.counted(r, s.ID, "0 0 1000 0 0 0")
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.patchItems(r, s.ID, append(updates, updates[0])...) }), fault.InBody, "/updates")
		}},
	}
}

func runItemsBounded(x *runTest) {
	r, s, _ := x.fan()
	other := x.stepAt(r, "running", `"path":"other","role":"foreach"`)
	e := x.workers("")
	pretend := func(id uuid.UUID, n int) {
		e.tamper(`UPDATE run_steps SET items_skipped = ? WHERE id = ?`, n, rowID(id))
	}
	tooMany := func(items ...string) {
		x.t.Helper()
		x.points(x.refused(fault.CodeOutOfRange, func() *apitest.Response { return x.add(r, s.ID, items...) }, r.ID), fault.InBody, "/items")
	}
	pretend(s.ID, 9998)
	tooMany(ticket("1"), ticket("2"), ticket("3"))
	x.items(r, s.ID, "1")
	x.add(r, s.ID, ticket("2"), ticket("2"), ticket("1")).Want(http.StatusOK) // one of them is new
	tooMany(ticket("3"))
	x.same(func() *apitest.Response { return x.add(r, s.ID, ticket("1"), ticket("2"), ticket("1")) }, r.ID).Want(http.StatusOK)
	pretend(s.ID, 0)
	pretend(other.ID, 29997)
	x.items(r, s.ID, "3")
	tooMany(ticket("4"))
	pretend(other.ID, 0)
	x.items(r, s.ID, "4")
}

func runItemsEnd(x *runTest) {
	for _, c := range []struct{ step, item string }{{"failed", "cancelled"}, {"timed_out", "cancelled"}, {"cancelled", "cancelled"}, {"skipped", "skipped"}} {
		x.sub(c.step, func(x *runTest) {
			r, s, items := x.fan("1", "2", "3")
			x.patchItems(r, s.ID, itemTo(items[0], "completed"), itemTo(items[1], "running")).Want(http.StatusOK)
			answer := x.refused(fault.CodeOpenMembers, func() *apitest.Response { return x.patch(r, s.ID, `"status":"completed"`) }, r.ID)
			x.facts(answer, map[string]any{"count": float64(2)})
			n := len(x.events(r.ID))
			x.moved(r, s.ID, fmt.Sprintf(`"status":%q`, c.step))
			x.causes(x.told(r.ID, n, "run_step."+c.step, "item."+c.item, "item."+c.item), -1, 0, 0)
			if got := x.listItems(r, s.ID, "&status="+c.item); len(got) != 2 || got[0].CompletedAt == nil {
				x.t.Errorf("%+v", got)
			}
			x.counted(r, s.ID, map[string]string{"cancelled": "0 0 1 0 0 2", "skipped": "0 0 1 0 2 0"}[c.item])
		})
	}
}

// recover ends steps whose engine was lost, each entry given by its members.
func (x *runTest) recover(r oapi.Run, endedAt string, entries ...string) *apitest.Response {
	x.t.Helper()
	steps := "[]"
	if len(entries) > 0 {
		steps = "[{" + strings.Join(entries, "},{") + "}]"
	}
	return x.Post(runPath(r.ID, "steps", "recover"), "{"+joined(`"steps":`+steps, endedAt)+"}")
}

// recovery is the members of an entry of recover.
func recovery(id uuid.UUID, status string, more ...string) string {
	return joined(append([]string{fmt.Sprintf(`"step_id":%q,"status":%q`, id, status)}, more...)...)
}

// recovered checks which steps a recovery ended, left alone and did not find.
func (x *runTest) recovered(answer *apitest.Response, ended, left, missing []uuid.UUID) {
	x.t.Helper()
	none := func(ids []uuid.UUID) []uuid.UUID { return append([]uuid.UUID{}, ids...) }
	want := oapi.RecoveredRunSteps{Recovered: none(ended), SkippedTerminal: none(left), Missing: none(missing)}
	if diff := cmp.Diff(want, flowAs[oapi.RecoveredRunSteps](answer.Want(http.StatusOK))); diff != "" {
		x.t.Errorf("recovered (-want +got):\n%s", diff)
	}
}

// runRecoverCases: steps whose engine was lost. reference: runs-and-taskflows.md A5.10, RS-15, C1 "Missing in the seed".
func runRecoverCases() []runCase {
	return []runCase{
		{"two failed with their words, one timed out without, one as it ended (RS-15)", func(x *runTest) {
			r := x.running("")
			var s []oapi.RunStep
			for _, path := range []string{"a", "b", "c"} {
				s = append(s, x.stepAt(r, "running", fmt.Sprintf(`"path":%q`, path)))
			}
			done := x.stepAt(r, "completed", `"path":"d"`)
			x.moved(r, s[0].ID, `"status":"running","context_out":"c","markers_out":["m"],"structured_output":{"a":1},"step_error":"odd","result_text":"half"`)
			x.advance(time.Hour)
			n, at := len(x.events(r.ID)), x.now().Add(-time.Minute)
			answer := x.recover(r, `"ended_at":`+spelled(at), recovery(s[0].ID, "failed", `"result_text":"lost"`), recovery(s[1].ID, "failed", `"result_text":"gone"`), recovery(s[2].ID, "timed_out"),
				recovery(done.ID, "failed", `"result_text":"no"`))
			x.recovered(answer, []uuid.UUID{s[0].ID, s[1].ID, s[2].ID}, []uuid.UUID{done.ID}, nil)
			for i, want := range []struct{ status, text string }{{"failed", "lost"}, {"failed", "gone"}, {"timed_out", ""}} {
				got := x.read(r, s[i].ID)
				if string(got.Status) != want.status || deref(got.ResultText) != want.text || !got.EndedAt.Equal(oapi.Time(at)) || got.ContextOut != nil || got.MarkersOut != nil ||
					string(got.StructuredOutput) != "null" || got.StepError != nil {
					x.t.Errorf("%+v", got)
				}
			}
			if diff := cmp.Diff(done, x.read(r, done.ID)); diff != "" {
				x.t.Errorf("what had ended was changed:\n%s", diff)
			}
			x.told(r.ID, n, "run_step.failed", "run_step.failed", "run_step.timed_out")
		}},
		{"nothing is recovered of nothing (A5.10)", func(x *runTest) {
			r := x.at("running")
			x.recovered(x.same(func() *apitest.Response { return x.recover(r, "") }, r.ID), nil, nil, nil)
		}},
		{"steps that are not there, or twice: the first entry counts (A5.10)", func(x *runTest) {
			r, other := x.running(""), x.running("")
			s, foreign, unknown := x.step(r, ""), x.step(other, ""), uuid.New()
			answer := x.recover(r, "", recovery(s.ID, "failed", `"result_text":"first"`), recovery(unknown, "failed"), recovery(s.ID, "skipped", `"result_text":"second"`), recovery(foreign.ID, "failed"), recovery(unknown, "failed"))
			x.recovered(answer, []uuid.UUID{s.ID}, nil, []uuid.UUID{unknown, foreign.ID})
			if got := x.read(r, s.ID); got.Status != "failed" || *got.ResultText != "first" || !got.EndedAt.Equal(x.when(0)) {
				x.t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(foreign, x.read(other, foreign.ID)); diff != "" {
				x.t.Errorf("a step of another run was changed:\n%s", diff)
			}
		}},
		{"199, 200 and 201 steps in one call (A5.10, chunks)", func(x *runTest) {
			r := x.running("")
			ids, entries := x.many(r, 201)
			for i, size := range []int{199, 200, 201} {
				before := []int{0, 199, 200}[i]
				x.recovered(x.recover(r, "", entries[:size]...), ids[before:size], ids[:before], nil)
				if n := openSteps(x.t, x.server.App.Store(), r.ID); n != 201-size {
					x.t.Errorf("%d steps are open after %d", n, size)
				}
			}
			x.do(r, "complete", "")
		}},
	}
}

// runRecoverEndCases: a recovery as a whole, and what ends with it.
func runRecoverEndCases() []runCase {
	return []runCase{
		{"all chunks or none (A5.10, rollback)", func(x *runTest) {
			r := x.running("")
			ids, entries := x.many(r, 201)
			x.workers("").tamper(`UPDATE run_steps SET markers_out = '"broken"' WHERE id = ?`, rowID(ids[200]))
			before := countRowsWhere(x.t, x.server, "namespace = '"+x.namespace+"'")
			x.recover(r, "", entries...).Problem(fault.CodeCorruptRecord)
			if diff := cmp.Diff(before, countRowsWhere(x.t, x.server, "namespace = '"+x.namespace+"'")); diff != "" {
				x.t.Errorf("something was changed (-before +after):\n%s", diff)
			}
			if n := openSteps(x.t, x.server.App.Store(), r.ID); n != 201 {
				x.t.Errorf("%d steps are open", n)
			}
			x.workers("").tamper(`UPDATE run_steps SET markers_out = NULL WHERE id = ?`, rowID(ids[200]))
			x.recovered(x.recover(r, "", entries...), ids, nil, nil)
			steps := x.steps(r, "&status=failed")
			if len(steps) != 201 || slices.ContainsFunc(steps, func(s oapi.RunStep) bool { return !s.EndedAt.Equal(x.when(0)) || *s.ResultText != "lost" }) {
				x.t.Errorf("%d of 201 failed", len(steps))
			}
		}},
		{"nothing has ended in the future, nor before it began", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			answer := x.refused(fault.CodeTimerOutOfRange, func() *apitest.Response {
				return x.recover(r, `"ended_at":`+spelled(x.now().Add(time.Second)), recovery(s.ID, "failed"))
			}, r.ID)
			x.points(answer, fault.InBody, "/ended_at")
			x.recover(r, `"ended_at":`+spelled(x.now().Add(-time.Hour)), recovery(s.ID, "failed")).Want(http.StatusOK)
			if got := x.read(r, s.ID); !got.EndedAt.Equal(*got.StartedAt) {
				x.t.Errorf("%+v", got)
			}
		}},
		{"no generation is asked for, and the engine that comes back finds the end", func(x *runTest) {
			r := x.running("")
			s := x.stepAt(r, "running", "")
			x.recover(r, "", recovery(s.ID, "failed")).Want(http.StatusOK)
			x.facts(x.refused(fault.CodeStepTerminal, func() *apitest.Response { return x.patch(r, s.ID, `"status":"completed"`) }, r.ID), map[string]any{"current_status": "failed"})
		}},
		{"a gate, the items and the child of a recovered step end with it (A5.10, D2 11 and 12)", func(x *runTest) {
			r, fan, _ := x.fan("1")
			asked := x.gate(r, "")
			e := x.workers(x.namespace)
			s := x.step(r, `"child":{"execution":{"lane":"`+x.namespace+`"}}`)
			x.recovered(x.recover(r, "", recovery(asked.ID, "timed_out"), recovery(fan.ID, "failed"), recovery(s.ID, "skipped")), []uuid.UUID{asked.ID, fan.ID, s.ID}, nil, nil)
			x.counted(r, fan.ID, "0 0 0 0 0 1")
			if g := x.readGate(r, asked.ID); g.State != "timed_out" || len(x.inbox("")) != 0 {
				x.t.Errorf("%+v", g)
			}
			e.stands(*s.ChildExecutionID, atCancelledIdle)
			x.do(r, "complete", "")
		}},
	}
}

// many adds so many running steps, and returns entries that recover them.
func (x *runTest) many(r oapi.Run, size int) (ids []uuid.UUID, entries []string) {
	x.t.Helper()
	for i := range size {
		id := uuid.MustParse(x.insert(r, fmt.Sprintf(`"path":"p%d","position":%d,"retry_count":0`, i, i)).Want(http.StatusCreated).Str("id"))
		ids, entries = append(ids, id), append(entries, recovery(id, "failed", `"result_text":"lost"`))
	}
	return ids, entries
}

// openSteps counts the steps of a run that have not ended, without reading them.
func openSteps(t *testing.T, st *store.Store, id uuid.UUID) (n int) {
	t.Helper()
	err := st.Read(t.Context(), func(q *store.Queries) error {
		return q.Get(&n, `SELECT count(*) FROM run_steps WHERE run_id = ? AND ended_at IS NULL`, rowID(id))
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
