package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// folded compares a flow with its stored events, folded.
func (h *house) folded(f flow.Flow) {
	h.Helper()
	got, err := flow.Fold(h.trail(f.ID))
	h.no(err)
	ours := cmp.FilterPath(func(p cmp.Path) bool {
		return slices.Contains([]string{"GraphRevision", "NodeCount", "EdgeCount"}, p.String())
	}, cmp.Ignore())
	if diff := cmp.Diff(f, got, ours, cmpopts.EquateEmpty()); diff != "" {
		h.Errorf("the events folded differ from the flow (-flow +folded):\n%s", diff)
	}
}

// TestRepo_HappyPath: reference: runs-and-taskflows.md C5 NM-01, NM-07, NR-02.
func TestRepo_HappyPath(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		ctx := h.ctx()
		made, err := h.flows.Create(ctx, flow.Create{Goal: "g", State: json.RawMessage(`{"a":1,"b":2}`), Tags: map[string]string{"cairn.instance_id": "i"}})
		h.no(err)
		id := made.Flow.ID
		if made.Existing || made.Flow.Revision != 0 || made.Flow.Status != flow.Created || id.Version() != 7 {
			t.Errorf("created %+v", made)
		}
		f, err := h.flows.Start(ctx, id, new(int64(0)))
		h.no(err)
		if f.Revision != 1 || f.Status != flow.Running {
			t.Errorf("started: revision %d, %s", f.Revision, f.Status)
		}
		f = h.park(id, `{"kind":"manual"}`)
		if f.Revision != 2 || f.Status != flow.Waiting || f.Wait == nil || f.Wait.Condition.Kind != wait.Manual || !f.Wait.Since.Equal(f.UpdatedAt) {
			t.Errorf("waiting: revision %d, %s, %+v", f.Revision, f.Status, f.Wait)
		}
		h.folded(f)
		f, err = h.flows.Resume(ctx, id, nil, json.RawMessage(`{"a":5}`))
		h.no(err)
		if f.Revision != 3 || f.Status != flow.Running || f.Wait != nil || string(f.State) != `{"a":5,"b":2}` {
			t.Errorf("resumed: revision %d, %s, %+v, %s", f.Revision, f.Status, f.Wait, f.State)
		}
		f, err = h.flows.Replace(ctx, id, 3, flow.Replacement{Goal: "h", State: f.State, Tags: f.Tags}, nil)
		h.no(err)
		f, err = h.flows.Patch(ctx, id, nil, flow.Patch{CurrentStep: new("last"), State: json.RawMessage(`{"b":null}`), Merge: flow.MergeRFC7396})
		h.no(err)
		f, err = h.flows.Finish(ctx, id, new(f.Revision), json.RawMessage(`{"done":true}`))
		h.no(err)
		if f.Status != flow.Finished || string(f.State) != `{"a":5,"done":true}` || f.EndedAt.IsZero() {
			t.Errorf("finished: %s, %s, %v", f.Status, f.State, f.EndedAt)
		}
		_, err = h.flows.Finish(ctx, id, nil, nil)
		h.is(err, fault.CodeAlreadyTerminal)
		f, err = h.flows.SetTag(ctx, id, nil, "a.b", "c")
		h.no(err)

		if diff := cmp.Diff(h.flow(id), f); diff != "" {
			t.Errorf("the answer differs from the row (-row +answer):\n%s", diff)
		}
		events := h.trail(id)
		want := []event.Type{event.FlowCreated, event.FlowStarted, event.FlowWaiting, event.FlowResumed, event.FlowReplaced, event.FlowStateUpdated, event.FlowFinished, event.FlowTagSet}
		if !slices.Equal(types(events), want) {
			t.Errorf("events %v, want %v", types(events), want)
		}
		for i, e := range events {
			if *e.Revision != int64(i) || e.Actor != "token:ci" || e.InstanceTag != "i" {
				t.Errorf("event %d is %+v", i, e)
			}
		}
		h.folded(f)
	})
}

// TestRepo_Reopen: reference: runs-and-taskflows.md C5 NX-01, NX-04.
func TestRepo_Reopen(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		var id uuid.UUID
		t.Run("first", func(t *testing.T) {
			h := open(t, url)
			f := h.create(flow.Running)
			id = f.ID
			_, err := h.flows.Patch(h.ctx(), id, nil, flow.Patch{State: json.RawMessage(`{"m":[1]}`), CurrentStep: new("two")})
			h.no(err)
			for i := range 3 {
				_, err := h.flows.ObserveStep(h.ctx(), id, fmt.Sprint("run", i), flow.StepChange{Task: new("t"), Status: new(flow.StepSucceeded), Result: json.RawMessage(fmt.Sprint(i))})
				h.no(err)
			}
			h.park(id, `{"kind":"manual"}`)
		})
		t.Run("second", func(t *testing.T) {
			h := open(t, url)
			f := h.flow(id)
			if f.Status != flow.Waiting || f.CurrentStep != "two" || string(f.State) != `{"n":1,"m":[1]}` || f.Wait.Condition.Kind != wait.Manual || f.Revision != 3 {
				t.Errorf("it came back as %+v", f)
			}
			steps, err := h.flows.Steps(h.ctx(), id, "", page.Cursor{}, 50)
			h.no(err)
			for i, s := range steps.Items {
				if s.RunID != fmt.Sprint("run", i) || string(s.Result) != fmt.Sprint(i) {
					t.Errorf("step %d is %+v", i, s)
				}
			}
			f, err = h.flows.Resume(h.ctx(), id, nil, nil)
			h.no(err)
			h.folded(f)
		})
	})
}

func TestRepo_Create_Again(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		id := uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01")
		first, err := h.flows.Create(h.ctx(), flow.Create{ID: id, Goal: "g", Start: true})
		h.no(err)
		again, err := h.flows.Create(h.ctx(), flow.Create{ID: id, Goal: "other"})
		h.no(err)
		if diff := cmp.Diff(flow.Creation{Flow: first.Flow, Existing: true}, again); diff != "" {
			t.Errorf("created again (-want +got):\n%s", diff)
		}
		if got := types(h.trail(id)); !slices.Equal(got, []event.Type{event.FlowCreated, event.FlowStarted}) {
			t.Errorf("events %v", got)
		}
		_, err = h.flows.Create(as(t, "other"), flow.Create{ID: id, Goal: "g"})
		h.is(err, fault.CodeAlreadyExists)
		_, err = h.flows.Create(h.ctx(), flow.Create{Goal: "\n"})
		h.is(err, fault.CodeValidationFailed)

		// at the same time
		id = uuid.New()
		var group sync.WaitGroup
		made := make([]flow.Creation, 8)
		for i := range made {
			group.Go(func() {
				var err error
				if made[i], err = h.flows.Create(h.ctx(), flow.Create{ID: id, Goal: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		fresh := 0
		for _, m := range made {
			if !m.Existing {
				fresh++
			}
			if m.Flow.Goal != h.flow(id).Goal {
				t.Errorf("answered the goal %s", m.Flow.Goal)
			}
		}
		if fresh != 1 {
			t.Errorf("%d of the creates made the flow", fresh)
		}
	})
}

// TestRepo_Namespaces shows that a flow does not exist for another namespace. reference: runs-and-taskflows.md D5 46, C5
// NT-06, NT-08, NT-16.
func TestRepo_Namespaces(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		running, waiting, ended := h.create(flow.Running), h.create(flow.Waiting), h.create(flow.Finished)
		_, err := h.flows.InsertStep(h.ctx(), running.ID, flow.NewStep{RunID: "r", Task: "t"})
		h.no(err)
		other := as(t, "other")
		req := wait.Request{Condition: json.RawMessage(`{"kind":"manual"}`)}
		calls := map[string]func(id uuid.UUID) error{
			"get":            func(id uuid.UUID) error { _, err := h.flows.Flow(other, id); return err },
			"exists":         func(id uuid.UUID) error { return h.flows.Exists(other, id) },
			"start":          func(id uuid.UUID) error { _, err := h.flows.Start(other, id, nil); return err },
			"wait":           func(id uuid.UUID) error { _, err := h.flows.Wait(other, id, nil, req); return err },
			"resume":         func(id uuid.UUID) error { _, err := h.flows.Resume(other, id, nil, nil); return err },
			"finish":         func(id uuid.UUID) error { _, err := h.flows.Finish(other, id, nil, nil); return err },
			"fail":           func(id uuid.UUID) error { _, err := h.flows.Fail(other, id, nil, "x"); return err },
			"request cancel": func(id uuid.UUID) error { _, err := h.flows.RequestCancel(other, id, nil, ""); return err },
			"cancel": func(id uuid.UUID) error {
				_, err := h.flows.Cancel(other, id, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: ""})
				return err
			},
			"patch": func(id uuid.UUID) error { _, err := h.flows.Patch(other, id, nil, flow.Patch{}); return err },
			"put": func(id uuid.UUID) error {
				_, err := h.flows.Replace(other, id, 1, flow.Replacement{Goal: "g"}, &req)
				return err
			},
			"tag":    func(id uuid.UUID) error { _, err := h.flows.SetTag(other, id, nil, "a.b", ""); return err },
			"delete": func(id uuid.UUID) error { return h.flows.Delete(other, id, nil) },
			"trail": func(id uuid.UUID) error {
				_, err := h.flows.Trail(other, id, flow.TrailFilter{}, page.Cursor{}, 5)
				return err
			},
			"append": func(id uuid.UUID) error { _, err := h.flows.AppendEvent(other, id, "custom.x", nil); return err },
			"steps":  func(id uuid.UUID) error { _, err := h.flows.Steps(other, id, "", page.Cursor{}, 5); return err },
			"step":   func(id uuid.UUID) error { _, err := h.flows.Step(other, id, "r"); return err },
			"insert step": func(id uuid.UUID) error {
				_, err := h.flows.InsertStep(other, id, flow.NewStep{RunID: "s", Task: "t"})
				return err
			},
			"observe": func(id uuid.UUID) error {
				_, err := h.flows.ObserveStep(other, id, "r", flow.StepChange{Task: new("t")})
				return err
			},
			"patch step": func(id uuid.UUID) error { _, err := h.flows.PatchStep(other, id, "r", flow.StepChange{}); return err },
			"join": func(id uuid.UUID) error {
				return store.Do(other, h.store, func(tx *store.Tx) error { _, err := h.flows.Grow(tx, id, 1, 0); return err })
			},
			"external event": func(id uuid.UUID) error {
				_, err := h.waits.Deliver(other, wait.Signal{Topic: "a", CorrelationID: "b", FlowID: id})
				return err
			},
		}
		for name, do := range calls {
			for _, f := range []flow.Flow{running, waiting, ended, {ID: uuid.New()}} {
				if err := do(f.ID); fault.CodeOf(err) != fault.CodeNotFound {
					t.Errorf("%s of a flow that is %q: %v", name, f.Status, err)
				}
			}
		}
		for _, f := range []flow.Flow{running, waiting, ended} {
			if diff := cmp.Diff(f, h.flow(f.ID)); diff != "" {
				t.Errorf("it was changed (-before +after):\n%s", diff)
			}
		}
		if p, err := h.flows.Flows(other, flow.Filter{}, page.Cursor{}, 50); err != nil || len(p.Items) != 0 {
			t.Errorf("the other namespace lists %v, %v", p.Items, err)
		}
		if p, err := h.waits.Inbox(other, wait.Filter{}, page.Cursor{}, 50); err != nil || len(p.Items) != 0 {
			t.Errorf("the other namespace's inbox has %v, %v", p.Items, err)
		}
	})
}

// TestRepo_CompareAndSet: reference: runs-and-taskflows.md D5 37, 38, C5 NX-02, NX-03, NR-05.
func TestRepo_CompareAndSet(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		const writers = 10
		patches := func(id uuid.UUID, expected *int64, to int) (refused []error) {
			var mu sync.Mutex
			var group sync.WaitGroup
			for i := range writers {
				group.Go(func() {
					p := flow.Patch{State: json.RawMessage(fmt.Sprintf(`{"k%d":%d}`, i, to))}
					if _, err := h.flows.Patch(h.ctx(), id, expected, p); err != nil {
						mu.Lock()
						refused = append(refused, err)
						mu.Unlock()
					}
				})
			}
			group.Wait()
			return refused
		}
		f := h.create(flow.Running)
		for _, err := range patches(f.ID, nil, 1) {
			t.Errorf("without a revision: %v", err)
		}
		if f = h.flow(f.ID); f.Revision != 1+writers || len(value(t, f.State)) != writers+1 {
			t.Errorf("revision %d, state %s", f.Revision, f.State)
		}
		refused := patches(f.ID, &f.Revision, 2)
		if len(refused) != writers-1 {
			t.Errorf("%d of %d writers with the same revision were refused", len(refused), writers)
		}
		for _, err := range refused {
			r, ok := errors.AsType[*fault.Error](err)
			if want := map[string]any{"expected": f.Revision, "actual": f.Revision + 1, "changed": []string{"state"}}; !ok || r.Code != fault.CodeRevisionMismatch || !cmp.Equal(want, r.Facts) {
				t.Errorf("refused by %v %v", err, r.Facts)
			}
		}
		before := h.flow(f.ID)
		events := len(h.trail(f.ID))
		_, err := h.flows.Finish(h.ctx(), f.ID, new(int64(999)), nil)
		h.is(err, fault.CodeRevisionMismatch)
		if diff := cmp.Diff(before, h.flow(f.ID)); diff != "" || len(h.trail(f.ID)) != events {
			t.Errorf("a refused call changed something:\n%s", diff)
		}
		h.folded(before)
	})
}

func value(tb testing.TB, doc json.RawMessage) map[string]any {
	tb.Helper()
	var v map[string]any
	if err := json.Unmarshal(doc, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

func TestRepo_Flows(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		var ids []uuid.UUID
		for i := range 7 {
			made, err := h.flows.Create(h.ctx(), flow.Create{
				Goal: "g", Kind: fmt.Sprint("kind", i%2), ControllerID: fmt.Sprint("c", i%3), OwnerSessionKey: fmt.Sprint("o", i%2), Start: i%2 == 0,
				Tags: map[string]string{"team.name": fmt.Sprint(i % 2), "dotted.key.x": "it's"},
			})
			h.no(err)
			ids = append(ids, made.Flow.ID)
			if i%3 == 0 {
				h.clock.Advance(seconds)
			}
		}
		h.park(ids[2], `{"kind":"manual"}`)
		slices.Reverse(ids)
		list := func(f flow.Filter, limit int) (got []uuid.UUID) {
			cursor := page.Cursor{}
			for {
				p, err := h.flows.Flows(h.ctx(), f, cursor, limit)
				h.no(err)
				if len(p.Items) > limit || len(p.Items) == 0 && !cursor.IsZero() {
					t.Fatalf("a page of %d", len(p.Items))
				}
				for _, f := range p.Items {
					got = append(got, f.ID)
				}
				if cursor = p.Next; cursor.IsZero() {
					return got
				}
			}
		}
		pick := func(keep func(i int) bool) (want []uuid.UUID) {
			for i := range ids {
				if keep(len(ids) - 1 - i) {
					want = append(want, ids[i])
				}
			}
			return want
		}
		for _, limit := range []int{1, 2, 3, 50} {
			for _, tt := range []struct {
				filter flow.Filter
				keep   func(i int) bool
			}{
				{flow.Filter{}, func(int) bool { return true }},
				{flow.Filter{OwnerSessionKey: "o1"}, func(i int) bool { return i%2 == 1 }},
				{flow.Filter{Kind: "kind0", ControllerID: "c0"}, func(i int) bool { return i%6 == 0 }},
				{flow.Filter{Status: flow.Created}, func(i int) bool { return i%2 == 1 }},
				{flow.Filter{Status: flow.Waiting}, func(i int) bool { return i == 2 }},
				{flow.Filter{Tags: []tag.Pair{{Key: "team.name", Value: "0"}, {Key: "dotted.key.x", Value: "it's"}}}, func(i int) bool { return i%2 == 0 }},
				{flow.Filter{Tags: []tag.Pair{{Key: "team.name", Value: "0"}, {Key: "team.name", Value: "1"}}}, func(int) bool { return false }},
			} {
				if got, want := list(tt.filter, limit), pick(tt.keep); !slices.Equal(got, want) {
					t.Errorf("%+v by %d lists %v, want %v", tt.filter, limit, got, want)
				}
			}
		}
		p, err := h.flows.Flows(h.ctx(), flow.Filter{Status: flow.Waiting}, page.Cursor{}, 50)
		h.no(err)
		if diff := cmp.Diff(h.flow(p.Items[0].ID), p.Items[0]); diff != "" {
			t.Errorf("listed and read differ (-read +listed):\n%s", diff)
		}
	})
}

// TestRepo_Members shows what becomes of members when their flow moves.
func TestRepo_Members(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		join := func(id uuid.UUID) (started bool, err error) {
			return store.Write(h.ctx(), h.store, func(tx *store.Tx, out *bool) (err error) {
				f, err := h.flows.Grow(tx, id, 1, 0)
				*out = f.Status != flow.Created
				return err
			})
		}
		f := h.create(flow.Created)
		started, err := join(f.ID)
		if h.no(err); started {
			t.Error("a created flow has started")
		}
		started, err = join(f.ID)
		h.no(err)
		joined := h.flow(f.ID)
		if joined.NodeCount != 2 || joined.GraphRevision != 2 || joined.Revision != 0 || started {
			t.Errorf("after two members: %+v", joined)
		}
		_, err = h.flows.Start(h.ctx(), f.ID, new(int64(0)))
		h.no(err)
		if started, err = join(f.ID); err != nil || !started {
			t.Errorf("joining a running flow: %v, %v", started, err)
		}
		h.executions.open = 2
		_, err = h.flows.Finish(h.ctx(), f.ID, nil, nil)
		h.is(err, fault.CodeOpenMembers)
		_, err = h.flows.Replace(h.ctx(), f.ID, 1, flow.Replacement{Goal: "g", Status: flow.Finished}, nil)
		h.is(err, fault.CodeOpenMembers)
		done, err := h.flows.Cancel(h.ctx(), f.ID, nil, flow.CancelRequest{Policy: flow.CancelPending, Reason: "enough"})
		h.no(err)
		if diff := cmp.Diff(flow.Members{Total: 2}, done.Members); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
		_, err = join(f.ID)
		h.is(err, fault.CodeAlreadyTerminal)
		again, err := h.flows.Cancel(h.ctx(), f.ID, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: "again"})
		if h.no(err); again.Flow.Cancellation.Policy != flow.CancelPending || again.Flow.Cancellation.Reason != "enough" || again.Flow.Revision != 2 {
			t.Errorf("cancelled again: %+v", again.Flow)
		}
		h.no(h.flows.Delete(h.ctx(), f.ID, nil))

		for _, end := range []func(id uuid.UUID) error{
			func(id uuid.UUID) error { _, err := h.flows.Fail(h.ctx(), id, nil, "x"); return err },
			func(id uuid.UUID) error {
				_, err := h.flows.Cancel(h.ctx(), id, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: ""})
				return err
			},
			func(id uuid.UUID) error {
				_, err := h.flows.Cancel(h.ctx(), id, nil, flow.CancelRequest{Policy: flow.FlowOnly, Reason: ""})
				return err
			},
		} {
			f := h.create(flow.Running)
			_, err := join(f.ID)
			h.no(err)
			h.no(end(f.ID))
		}
		want := []string{"unpause", "open", "open", "cancel pending enough token:ci",
			"cancel the flow was deleted token:ci", "delete", "cancel flow_failed token:ci", "cancel flow_cancelled token:ci"}
		if diff := cmp.Diff(want, h.executions.calls); diff != "" {
			t.Errorf("members were told (-want +got):\n%s", diff)
		}
	})
}

// TestRepo_Replace_Wait shows that PUT moves a wait as the verbs do.
func TestRepo_Replace_Wait(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		condition := wait.Request{Condition: json.RawMessage(h.timer(time.Minute))}
		put := func(n flow.Replacement, w *wait.Request) (flow.Flow, error) {
			f := h.flow(f.ID)
			return h.flows.Replace(h.ctx(), f.ID, f.Revision, n, w)
		}
		_, err := put(flow.Replacement{Goal: "g", Status: flow.Waiting}, &wait.Request{Condition: json.RawMessage(h.timer(-time.Minute))})
		h.is(err, fault.CodeTimerOutOfRange)
		_, err = put(flow.Replacement{Goal: "g", Status: flow.Waiting}, &wait.Request{Condition: json.RawMessage(`{}`)})
		h.is(err, fault.CodeBadWaitCondition)
		if r, ok := errors.AsType[*fault.Error](err); !ok || r.Fields[0].Pointer != "/wait/condition/kind" {
			t.Errorf("it points at %+v", r)
		}
		parked, err := put(flow.Replacement{Goal: "g", Status: flow.Waiting}, &condition)
		h.no(err)
		if due, err := h.waits.NextDue(t.Context()); err != nil || !due.Equal(parked.Wait.Condition.At) {
			t.Errorf("due at %v, %v", due, err)
		}
		h.clock.Advance(2 * time.Minute) // the wait is due, and may still be named unchanged
		same, err := put(flow.Replacement{Goal: "other", Status: flow.Waiting}, &condition)
		h.no(err)
		if same.Wait.ID != parked.Wait.ID {
			t.Error("the wait has changed")
		}
		resumed, err := put(flow.Replacement{Goal: "other", Status: flow.Running}, nil)
		h.no(err)
		if due, err := h.waits.NextDue(t.Context()); err != nil || !due.IsZero() {
			t.Errorf("after the wait something is due at %v, %v", due, err)
		}
		h.folded(resumed)
		_, err = h.flows.Replace(h.ctx(), f.ID, 1, flow.Replacement{Goal: "g"}, nil)
		h.is(err, fault.CodeRevisionMismatch)
	})
}

// TestRepo_Replays shows that answers too large to be kept are rendered from the rows.
func TestRepo_Replays(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		made, err := h.flows.Create(keyed(t, "create"), flow.Create{Goal: "g", Start: true})
		h.no(err)
		id := made.Flow.ID
		_, err = h.flows.Create(keyed(t, "create"), flow.Create{Goal: "g", Start: true})
		if again := h.replayed(err).Value.(flow.Creation); again.Flow.ID != id { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("created again as %s", again.Flow.ID)
		}
		_, err = h.flows.Patch(keyed(t, "patch"), id, nil, flow.Patch{CurrentStep: new("x")})
		h.no(err)
		_, err = h.flows.Patch(keyed(t, "patch"), id, nil, flow.Patch{CurrentStep: new("x")})
		if again := h.replayed(err).Value.(flow.Flow); again.Revision != 2 { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("patched again to revision %d", again.Revision)
		}
		step, err := h.flows.InsertStep(keyed(t, "step"), id, flow.NewStep{RunID: "r", Task: "t"})
		h.no(err)
		_, err = h.flows.InsertStep(keyed(t, "step"), id, flow.NewStep{RunID: "r", Task: "t"})
		if diff := cmp.Diff(step, h.replayed(err).Value.(flow.Step)); diff != "" { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("inserted again (-first +again):\n%s", diff)
		}
		own, err := h.flows.AppendEvent(keyed(t, "event"), id, "custom.note", json.RawMessage(`{"a":1}`))
		h.no(err)
		_, err = h.flows.AppendEvent(keyed(t, "event"), id, "custom.note", json.RawMessage(`{"a":1}`))
		if diff := cmp.Diff(own, h.replayed(err).Value.(event.Event)); diff != "" { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("appended again (-first +again):\n%s", diff)
		}
		receipt, err := h.waits.Deliver(keyed(t, "deliver"), wait.Signal{Topic: "a", CorrelationID: "b"})
		h.no(err)
		_, err = h.waits.Deliver(keyed(t, "deliver"), wait.Signal{Topic: "a", CorrelationID: "b"})
		if diff := cmp.Diff(receipt, h.replayed(err).Value.(wait.Receipt)); diff != "" { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("delivered again (-first +again):\n%s", diff)
		}
		h.executions.open = 3
		h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error { _, err := h.flows.Grow(tx, id, 1, 0); return err }))
		done, err := h.flows.Cancel(keyed(t, "cancel"), id, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: "r"})
		h.no(err)
		_, err = h.flows.Cancel(keyed(t, "cancel"), id, nil, flow.CancelRequest{Policy: flow.CancelAll, Reason: "r"})
		if diff := cmp.Diff(done, h.replayed(err).Value.(flow.CancelOutcome)); diff != "" { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("cancelled again (-first +again):\n%s", diff)
		}
		if got := types(h.trail(id)); len(got) != 6 {
			t.Errorf("events %v", got)
		}
		h.clock.Advance(time.Millisecond)
		gone, err := h.flows.Prune(keyed(t, "prune"), flow.Retention{Cancelled: new(0)}, false)
		if h.no(err); gone.Flows[flow.Cancelled] != 1 {
			t.Errorf("pruned %+v", gone)
		}
		kept := h.create(flow.Cancelled)
		h.clock.Advance(time.Millisecond)
		_, err = h.flows.Prune(keyed(t, "prune"), flow.Retention{Cancelled: new(0)}, false)
		_ = h.replayed(err)
		h.flow(kept.ID)
	})
}
