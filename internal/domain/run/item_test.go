package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
)

var itemID = uuid.MustParse("01985c3e-7c30-7e44-8b74-6f3da08c2d07")

// ticket returns a new item.
func ticket() run.Item {
	s := run.Step{ID: stepID, RunID: id}
	return run.NewItem{Type: "ticket", ItemID: "T-1", Context: json.RawMessage(` {"a": 1}`)}.New(itemID, &s, at(10))
}

// itemIn returns an item in a status, by way of running.
func itemIn(tb testing.TB, s run.ItemStatus) run.Item {
	tb.Helper()
	it := ticket()
	for i, to := range []run.ItemStatus{run.ItemRunning, s} {
		if it.Status == s {
			break
		}
		var err error
		if it, _, err = it.Update(run.ItemUpdate{Status: to}, at(11+i)); err != nil {
			tb.Fatal(err)
		}
	}
	return it
}

func TestNewItem(t *testing.T) {
	t.Parallel()
	want := run.Item{ID: itemID, StepID: stepID, RunID: id, Type: "ticket", ItemID: "T-1", Status: run.ItemPending, Context: json.RawMessage(`{"a":1}`), CreatedAt: at(10)}
	it := ticket()
	if diff := cmp.Diff(want, it); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s := run.Step{ID: stepID, RunID: id}
	for _, doc := range []json.RawMessage{nil, json.RawMessage(`null`), json.RawMessage(`{ }`)} {
		if got := (run.NewItem{Context: doc}).New(itemID, &s, at(10)); string(got.Context) != "{}" {
			t.Errorf("the context %s is %s", doc, got.Context)
		}
	}
	if it.Name() != "T-1" || it.HasChild() {
		t.Errorf("it is called %s", it.Name())
	}
	if it.Ref = "the first"; it.Name() != "the first" {
		t.Errorf("it is called %s", it.Name())
	}
	if diff := cmp.Diff(run.Place{RunID: id, StepID: stepID, ItemID: itemID}, it.Within()); diff != "" {
		t.Error(diff)
	}
}

// TestItem_Transitions holds the machine of items, by an engine and by what makes them have a status.
// reference: model.md "Run" (items); runs-and-taskflows.md A13 11, RS-11, RS-13.
func TestItem_Transitions(t *testing.T) {
	t.Parallel()
	for _, from := range run.ItemStatuses() {
		for _, to := range run.ItemStatuses() {
			it := itemIn(t, from)
			want := it
			legal := slices.Contains(from.Successors(), to)
			if legal {
				want.Status = to
				if to == run.ItemRunning {
					want.DispatchedAt = at(20)
				}
				if to.Terminal() {
					want.CompletedAt = at(20)
				}
			}
			got, changed := it.Become(to, at(20))
			if diff := cmp.Diff(want, got); diff != "" || changed != legal {
				t.Errorf("%s becomes %s: %t (-want +got):\n%s", from, to, changed, diff)
			}
			got, changed, err := it.Update(run.ItemUpdate{Status: to}, at(20))
			if diff := cmp.Diff(want, got); diff != "" || changed != legal {
				t.Errorf("%s is updated to %s: %t (-want +got):\n%s", from, to, changed, diff)
			}
			if legal || from == to {
				refused(t, err, "", nil)
			} else {
				refused(t, err, fault.CodeIllegalTransition, map[string]any{"from": from, "to": to, "item_id": itemID})
			}
		}
	}
}

// TestItem_Child: what is said of its child, and when it was dispatched.
func TestItem_Child(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		before  run.Item
		update  run.ItemUpdate
		want    func(*run.Item)
		changed bool
	}{
		{"child with the status", ticket(), run.ItemUpdate{Status: run.ItemRunning, ChildRunID: new("r7")}, func(it *run.Item) {
			it.Status, it.ChildRunID, it.DispatchedAt = run.ItemRunning, "r7", at(20)
		}, true},
		{"child afterwards", itemIn(t, run.ItemRunning), run.ItemUpdate{Status: run.ItemRunning, ChildRunID: new("r7")}, func(it *run.Item) { it.ChildRunID = "r7" }, true},
		{"child, still pending", ticket(), run.ItemUpdate{Status: run.ItemPending, ChildRunID: new("r7")}, func(it *run.Item) { it.ChildRunID = "r7" }, true},
		{"the same child", itemIn(t, run.ItemRunning), run.ItemUpdate{Status: run.ItemRunning, ChildRunID: new("")}, func(*run.Item) {}, false},
		{"child of what has ended", itemIn(t, run.ItemFailed), run.ItemUpdate{Status: run.ItemFailed, ChildRunID: new("r7")}, func(*run.Item) {}, false},
		{"a run of ours stays", itemIn(t, run.ItemRunning).Attach(run.Attached{RunID: childID}), run.ItemUpdate{Status: run.ItemFailed, ChildRunID: new("r7")}, func(it *run.Item) {
			it.Status, it.CompletedAt = run.ItemFailed, at(20)
		}, true},
		{"skipped, never dispatched", ticket(), run.ItemUpdate{Status: run.ItemSkipped}, func(it *run.Item) { it.Status, it.CompletedAt = run.ItemSkipped, at(20) }, true},
		{"ended by its child at once", ticket().Attach(run.Attached{ExecutionID: execID}), run.ItemUpdate{Status: run.ItemCompleted}, func(it *run.Item) {
			it.Status, it.DispatchedAt, it.CompletedAt = run.ItemCompleted, at(20), at(20)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.before
			tt.want(&want)
			got, changed, err := tt.before.Update(tt.update, at(20))
			if diff := cmp.Diff(want, got); err != nil || diff != "" || changed != tt.changed {
				t.Errorf("changed %t, %v (-want +got):\n%s", changed, err, diff)
			}
		})
	}
}

// TestItem_LinkedChild: what the engine calls the child is not its to say when that is a run of ours, and then nothing has changed.
func TestItem_LinkedChild(t *testing.T) {
	t.Parallel()
	it := itemIn(t, run.ItemRunning).Attach(run.Attached{RunID: childID})
	got, changed, err := it.Update(run.ItemUpdate{Status: run.ItemRunning, ChildRunID: new("r7")}, at(20))
	if diff := cmp.Diff(it, got); err != nil || diff != "" || changed {
		t.Errorf("changed %t, %v\n%s", changed, err, diff)
	}
}

// TestItem_Again. reference: runs-and-taskflows.md A10, C3 "Fan-out".
func TestItem_Again(t *testing.T) {
	t.Parallel()
	again := []run.ItemStatus{run.ItemFailed, run.ItemCancelled}
	for _, s := range run.ItemStatuses() {
		for _, child := range []run.Attached{{}, {ExecutionID: execID}, {RunID: childID}} {
			it := itemIn(t, s).Attach(child)
			want := slices.Contains(again, s) || s == run.ItemRunning && !it.HasChild()
			if got := it.Again(run.Resume{}); got != want || !it.Again(run.Resume{Restart: true}) || !it.Again(run.Resume{FromStep: "x"}) {
				t.Errorf("%s with the child %v: %t, want %t", s, child, got, want)
			}
			it.Ref = "the first"
			want2 := ticket()
			want2.Ref = "the first"
			if diff := cmp.Diff(want2, it.Reset()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s, diff)
			}
		}
	}
}

func TestItem_Event(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	it := ticket().Attach(run.Attached{RunID: childID}).Attach(run.Attached{ExecutionID: execID})
	var got []string
	for _, s := range run.ItemStatuses() {
		it.Status = s
		got = append(got, lines(t, []event.Event{it.Event(&r)})...)
	}
	var want []string
	for _, s := range []string{"added pending", "running running", "completed completed", "failed failed", "skipped skipped", "cancelled cancelled"} {
		var name, status string
		if _, err := fmt.Sscan(s, &name, &status); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf(`item.%s {"step_id":"%s","id":"%s","item_type":"ticket","item_id":"T-1","status":"%s","child_run_id":"%s","child_execution_id":"%s"}`,
			name, stepID, itemID, status, childID, execID))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestItem_Properties: whatever happens to items, what has ended stays, and the counts are those of the items.
// reference: runs-and-taskflows.md D4 29.
func TestItem_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		items := make([]run.Item, rapid.IntRange(0, 5).Draw(t, "items"))
		counts := run.Counts{}
		for i := range items {
			items[i] = ticket()
			counts[run.ItemPending]++
		}
		now := at(10)
		for range rapid.IntRange(0, 20).Draw(t, "calls") {
			if len(items) == 0 {
				break
			}
			now = now.Add(time.Second)
			i := rapid.IntRange(0, len(items)-1).Draw(t, "item")
			before, to := items[i], rapid.SampledFrom(run.ItemStatuses()).Draw(t, "to")
			after, changed := before, false
			switch rapid.SampledFrom([]string{"update", "become", "reset"}).Draw(t, "call") {
			case "update":
				var err error
				if after, changed, err = before.Update(run.ItemUpdate{Status: to}, now); err != nil && (changed || !cmp.Equal(before, after)) {
					t.Fatalf("refused, and changed: %v", err)
				}
			case "become":
				after, changed = before.Become(to, now)
			default:
				after, changed = before.Reset(), true
				before.Status = run.ItemPending // from which it begins anew
				counts[items[i].Status]--
				counts[run.ItemPending]++
			}
			switch {
			case !changed && !cmp.Equal(before, after), changed && before.Status.Terminal():
				t.Fatalf("%s became %s, changed %t", before.Status, after.Status, changed)
			case after.CompletedAt.IsZero() == after.Status.Terminal(), after.Status == run.ItemRunning && after.DispatchedAt.IsZero(), after.Status == run.ItemPending && !after.DispatchedAt.IsZero():
				t.Fatalf("%s: dispatched %s, completed %s", after.Status, after.DispatchedAt, after.CompletedAt)
			case !after.CompletedAt.IsZero() && after.CompletedAt.Before(after.DispatchedAt):
				t.Fatal("it was completed before it was dispatched")
			}
			counts[before.Status]--
			counts[after.Status]++
			items[i] = after
		}
		open := 0
		for _, it := range items {
			if !it.Status.Terminal() {
				open++
			}
		}
		if counts.Total() != len(items) || counts.Open() != open {
			t.Fatalf("total %d, open %d of %v", counts.Total(), counts.Open(), items)
		}
	})
	var none run.Counts
	if none.Total() != 0 || none.Open() != 0 {
		t.Error("there are some of none")
	}
}
