package flow_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

func TestRepo_Trail(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		own, err := h.flows.AppendEvent(h.ctx(), f.ID, "custom.artifact_signed", json.RawMessage(`[1, "x"]`))
		h.no(err)
		if own.ID == 0 || own.Type != "custom.artifact_signed" || own.Type.Topic() != event.TopicFlow || own.Revision != nil || own.FlowID != f.ID {
			t.Errorf("appended %+v", own)
		}
		if got := h.flow(f.ID); got.Revision != f.Revision || !got.UpdatedAt.Equal(f.UpdatedAt) {
			t.Errorf("an event of the client's own changed the flow: %+v", got)
		}
		for _, bad := range []event.Type{"custom.", "custom", "flow.created"} {
			_, err := h.flows.AppendEvent(h.ctx(), f.ID, bad, nil)
			h.is(err, fault.CodeValidationFailed)
		}
		id := uuid.New()
		h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error {
			tx.Emit(event.Event{Type: event.ExecutionCreated, FlowID: f.ID, ExecutionID: id})
			return nil
		}))
		read := func(filter flow.TrailFilter, limit int) (got []event.Type) {
			for cursor := (page.Cursor{}); ; {
				p, err := h.flows.Trail(h.ctx(), f.ID, filter, cursor, limit)
				h.no(err)
				got = append(got, types(p.Items)...)
				if cursor = p.Next; cursor.IsZero() {
					return got
				}
			}
		}
		mine := []event.Type{"custom.artifact_signed", event.FlowStarted, event.FlowCreated}
		for _, limit := range []int{1, 2, 50} {
			if got := read(flow.TrailFilter{}, limit); !slices.Equal(got, mine) {
				t.Errorf("by %d the trail is %v", limit, got)
			}
			if got := read(flow.TrailFilter{All: true}, limit); !slices.Equal(got, append([]event.Type{event.ExecutionCreated}, mine...)) {
				t.Errorf("by %d the whole trail is %v", limit, got)
			}
			if got := read(flow.TrailFilter{Types: []event.Type{event.FlowCreated, event.FlowStarted}}, limit); !slices.Equal(got, mine[1:]) {
				t.Errorf("by %d the trail of two types is %v", limit, got)
			}
		}
	})
}

// TestRepo_Prune: reference: runs-and-taskflows.md D5 44, C5 NR-03 and "missing" (the boundary, negative retention).
func TestRepo_Prune(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		const day = 24 * time.Hour
		finished, failed, cancelled, running := h.create(flow.Finished), h.create(flow.Failed), h.create(flow.Cancelled), h.create(flow.Running)
		member := h.create(flow.Running)
		h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error { _, err := h.flows.Grow(tx, member.ID, 1, 0); return err }))
		h.executions.open = 0
		_, err := h.flows.InsertStep(h.ctx(), member.ID, flow.NewStep{RunID: "r", Task: "t"})
		h.no(err)
		_, err = h.flows.Finish(h.ctx(), member.ID, nil, nil)
		h.no(err)
		prune := func(keep flow.Retention, dry bool) flow.Pruned {
			t.Helper()
			done, err := h.flows.Prune(h.ctx(), keep, dry)
			h.no(err)
			return done
		}
		want := func(got flow.Pruned, finished, failed, cancelled, executions int, dry bool) {
			t.Helper()
			w := flow.Pruned{Flows: map[flow.Status]int{flow.Finished: finished, flow.Failed: failed, flow.Cancelled: cancelled}, Executions: executions, DryRun: dry}
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("pruned (-want +got):\n%s", diff)
			}
		}
		want(prune(flow.Retention{}, false), 0, 0, 0, 0, false)
		h.clock.Advance(10 * day)
		want(prune(flow.Retention{Finished: new(11), Failed: new(11), Cancelled: new(11)}, false), 0, 0, 0, 0, false)
		want(prune(flow.Retention{Finished: new(9), Failed: new(9), Cancelled: new(9)}, true), 2, 1, 1, 1, true)
		h.executions.open = 1 // what DeleteMembers returns
		want(prune(flow.Retention{Finished: new(9), Failed: new(11)}, false), 2, 0, 0, 1, false)
		want(prune(flow.Retention{Finished: new(9)}, false), 0, 0, 0, 0, false)
		for _, gone := range []uuid.UUID{finished.ID, member.ID} {
			_, err := h.flows.Flow(h.ctx(), gone)
			h.is(err, fault.CodeNotFound)
		}
		if other, err := h.flows.Prune(as(t, "other"), flow.Retention{Failed: new(0)}, false); err != nil || other.Flows[flow.Failed] != 0 {
			t.Errorf("another namespace pruned %v, %v", other, err)
		}
		h.clock.Advance(time.Millisecond)
		want(prune(flow.Retention{Failed: new(-3)}, false), 0, 1, 0, 0, false)
		_, err = h.flows.Flow(h.ctx(), failed.ID)
		h.is(err, fault.CodeNotFound)

		// what the configuration says, for all namespaces
		h.clock.Advance(20*day - time.Hour)
		if n, err := h.flows.Retain(t.Context(), 250); err != nil || n != 0 {
			t.Errorf("the retention took %d, %v", n, err)
		}
		h.clock.Advance(2 * time.Hour)
		if n, err := h.flows.Retain(t.Context(), 250); err != nil || n != 1 {
			t.Errorf("the retention took %d, %v", n, err)
		}
		_, err = h.flows.Flow(h.ctx(), cancelled.ID)
		h.is(err, fault.CodeNotFound)
		if f := h.flow(running.ID); f.Status != flow.Running {
			t.Errorf("the running flow is %s", f.Status)
		}
		h.no(h.store.Sync(t.Context()))
		p, err := h.store.Events(t.Context(), event.Filter{Types: []event.Type{event.FlowPruned}}, 0, 50)
		h.no(err)
		if len(p.Events) != 4 || string(p.Events[3].Data.(json.RawMessage)) != `{"status":"cancelled"}` || p.Events[3].Namespace != "default" || p.Events[3].Revision != nil { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("the events of it: %+v", p.Events)
		}
	})
}

// TestRepo_Prune_Boundary shows that what changed exactly at the cut is kept.
func TestRepo_Prune_Boundary(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Finished)
		h.clock.Advance(24 * time.Hour)
		set := func(at time.Time) {
			h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error {
				return tx.ExecOne(`UPDATE flows SET updated_at = ? WHERE id = ?`, store.Millis(at), store.ID(f.ID))
			}))
		}
		set(h.clock.Now().Add(time.Hour)) // after the cut, whatever the moment
		if n, err := h.flows.Prune(h.ctx(), flow.Retention{Finished: new(0)}, false); err != nil || n.Flows[flow.Finished] != 0 {
			t.Errorf("pruned %v, %v", n, err)
		}
		cut := f.UpdatedAt
		set(cut)
		var kept, gone int
		h.no(h.store.Read(t.Context(), func(q *store.Queries) error {
			err := q.Get(&kept, `SELECT count(*) FROM flows WHERE updated_at < ?`, store.Millis(cut))
			return errors.Join(err, q.Get(&gone, `SELECT count(*) FROM flows WHERE updated_at < ?`, store.Millis(cut.Add(time.Millisecond))))
		}))
		if kept != 0 || gone != 1 {
			t.Errorf("at the cut %d, before it %d", kept, gone)
		}
	})
}

func TestRepo_Delete(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		h.is(h.flows.Delete(h.ctx(), h.create(flow.Waiting).ID, nil), fault.CodeNotTerminal)
		f := h.create(flow.Failed)
		h.is(h.flows.Delete(h.ctx(), f.ID, new(int64(1))), fault.CodeRevisionMismatch)
		h.no(h.flows.Delete(h.ctx(), f.ID, &f.Revision))
		h.is(h.flows.Delete(h.ctx(), f.ID, nil), fault.CodeNotFound)
		h.no(h.store.Sync(t.Context()))
		events, err := h.store.Trail(t.Context(), event.Filter{FlowID: f.ID}, 0, 50)
		h.no(err)
		if got := types(events); len(got) != 4 || got[0] != event.FlowDeleted {
			t.Errorf("its events are %v", got)
		}
	})
}

// What is kept no longer goes in parts, when there are many members in it.
func TestRepo_Retain_parts(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		for range 3 {
			f := h.create(flow.Running)
			h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error { _, err := h.flows.Grow(tx, f.ID, 1, 0); return err }))
			_, err := h.flows.Finish(h.ctx(), f.ID, nil, nil)
			h.no(err)
		}
		h.executions.open = 1300 // what DeleteMembers returns
		h.clock.Advance(1000 * 24 * time.Hour)
		for _, want := range []int{2, 1, 0} {
			if n, err := h.flows.Retain(t.Context(), 250); err != nil || n != want {
				t.Errorf("the retention took %d, %v, want %d", n, err, want)
			}
		}
	})
}
