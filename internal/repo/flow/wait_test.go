package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestWait_Timer: reference: runs-and-taskflows.md C5 NE-01, NE-02, NE-05, NE-09, D5 40.
func TestWait_Timer(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		manual, running := h.create(flow.Waiting), h.create(flow.Running)
		f = h.park(f.ID, h.timer(time.Minute))
		due, err := h.waits.NextDue(t.Context())
		h.no(err)
		if !due.Equal(f.Wait.Condition.At) || !h.alarms.last().Equal(due) {
			t.Errorf("due at %v, armed for %v, want %v", due, h.alarms.last(), f.Wait.Condition.At)
		}
		if n := h.pass(30 * seconds); n != 0 || h.flow(f.ID).Status != flow.Waiting {
			t.Errorf("the timer fired early, %d", n)
		}
		if n := h.pass(30 * seconds); n != 1 {
			t.Errorf("%d waits were decided, want 1", n)
		}
		got := h.flow(f.ID)
		if got.Status != flow.Running || got.Wait != nil || got.Revision != f.Revision+1 || string(got.State) != string(f.State) {
			t.Errorf("after the timer it is %+v", got)
		}
		if n := h.pass(0); n != 0 {
			t.Errorf("a second sweep decided %d", n)
		}
		events := h.trail(f.ID)
		last := events[len(events)-1]
		if last.Type != event.FlowResumed || last.Actor != "engine" || last.Namespace != "default" ||
			string(last.Data.(json.RawMessage)) != `{"wait_id":"`+f.Wait.ID.String()+`","by":"timer"}` { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("the event is %+v", last)
		}
		h.folded(got)
		for _, other := range []flow.Flow{manual, running} {
			if diff := cmp.Diff(other, h.flow(other.ID)); diff != "" {
				t.Errorf("another flow was changed (-before +after):\n%s", diff)
			}
		}
	})
}

// TestWait_Refusals: reference: runs-and-taskflows.md C5 NT-09 to NT-12.
func TestWait_Refusals(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Running)
		for _, tt := range []struct {
			req     wait.Request
			code    fault.Code
			pointer string
		}{
			{wait.Request{Condition: json.RawMessage(h.timer(-time.Second))}, fault.CodeTimerOutOfRange, "/condition/at"},
			{wait.Request{Condition: json.RawMessage(h.timer(60 * 24 * time.Hour))}, fault.CodeTimerOutOfRange, "/condition/at"},
			{wait.Request{Condition: json.RawMessage(event1(" ", "b"))}, fault.CodeBadWaitCondition, "/condition/topic"},
			{wait.Request{Condition: json.RawMessage(`{"kind":"manual"}`), Deadline: h.clock.Now().Add(-time.Second)}, fault.CodeTimerOutOfRange, "/deadline"},
			{wait.Request{Condition: json.RawMessage(`{"kind":"manual"}`), OnTimeout: "explode"}, fault.CodeValidationFailed, "/on_timeout"},
		} {
			_, err := h.flows.Wait(h.ctx(), f.ID, nil, tt.req)
			r, ok := errors.AsType[*fault.Error](err)
			if !ok || r.Code != tt.code || r.Fields[0].Pointer != tt.pointer {
				t.Errorf("Wait(%s) = %v, want %s at %s", tt.req.Condition, err, tt.code, tt.pointer)
			}
		}
		if diff := cmp.Diff(f, h.flow(f.ID)); diff != "" {
			t.Errorf("a refused wait changed the flow (-before +after):\n%s", diff)
		}
		_, err := h.flows.Wait(h.ctx(), h.create(flow.Created).ID, nil, wait.Request{Condition: json.RawMessage(`{"kind":"manual"}`)})
		h.is(err, fault.CodeIllegalTransition)
	})
}

func TestWait_Deadline(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		want := map[wait.OnTimeout]flow.Status{wait.TimeoutResumes: flow.Running, wait.TimeoutFails: flow.Failed, wait.TimeoutCancels: flow.Cancelled, "": flow.Failed}
		ids := map[wait.OnTimeout]uuid.UUID{}
		for on := range want {
			f := h.create(flow.Running)
			f, err := h.flows.Wait(h.ctx(), f.ID, nil, wait.Request{Condition: json.RawMessage(event1("a", string(on)+".")), Deadline: h.clock.Now().Add(time.Minute), OnTimeout: on})
			h.no(err)
			ids[on] = f.ID
		}
		if n := h.pass(59 * seconds); n != 0 {
			t.Errorf("%d deadlines passed early", n)
		}
		if n := h.pass(seconds); n != len(want) {
			t.Errorf("%d deadlines passed", n)
		}
		for on, status := range want {
			f := h.flow(ids[on])
			if f.Status != status || f.Wait != nil {
				t.Errorf("on_timeout %q made it %s", on, f.Status)
			}
			if status == flow.Failed && f.Failure.Reason != "wait_timeout" {
				t.Errorf("the failure is %+v", f.Failure)
			}
			if status == flow.Cancelled && (f.Cancellation.Reason != "wait_timeout" || f.Cancellation.Actor != "engine") {
				t.Errorf("the cancellation is %+v", f.Cancellation)
			}
			h.folded(f)
		}
	})
}

// TestWait_ExternalEvent: reference: runs-and-taskflows.md C5 NE-03, NE-04, NE-08, NE-09, D5 41.
func TestWait_ExternalEvent(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.park(h.create(flow.Running).ID, event1("deploy", "rel-1"))
		twin := h.park(h.create(flow.Running).ID, `{"kind":"any","of":[`+event1("deploy", "rel-1")+`,{"kind":"manual"}]}`)
		for _, e := range []wait.Signal{
			{Topic: "deploy", CorrelationID: "rel-2"}, {Topic: "Deploy", CorrelationID: "rel-1"}, {Topic: "deploy ", CorrelationID: "rel-1"},
		} {
			if receipt := h.deliver(e); !receipt.Buffered || len(receipt.Matched) != 0 {
				t.Errorf("%+v reached %+v", e, receipt)
			}
		}
		receipt := h.deliver(wait.Signal{ID: "e1", Topic: "deploy", CorrelationID: "rel-1", Payload: json.RawMessage(`{ "ok": true }`)})
		matched := []wait.Match{{FlowID: f.ID, WaitID: f.Wait.ID}, {FlowID: twin.ID, WaitID: twin.Wait.ID}}
		if diff := cmp.Diff(wait.Receipt{EventID: "e1", Matched: matched}, receipt); diff != "" {
			t.Errorf("the receipt (-want +got):\n%s", diff)
		}
		for _, id := range []uuid.UUID{f.ID, twin.ID} {
			got := h.flow(id)
			if got.Status != flow.Running || string(got.State) != `{"n":1,"resume_event":{"ok":true}}` {
				t.Errorf("it is %s with state %s", got.Status, got.State)
			}
			h.folded(got)
		}
		again := h.deliver(wait.Signal{ID: "e1", Topic: "deploy", CorrelationID: "rel-1", Payload: json.RawMessage(`{"ok":true}`)})
		receipt.Replayed = true
		if diff := cmp.Diff(receipt, again); diff != "" {
			t.Errorf("delivered again (-want +got):\n%s", diff)
		}
		if events := h.trail(f.ID); len(events) != 4 || events[3].Actor != "token:ci" {
			t.Errorf("events %v", types(events))
		}
		for _, other := range []wait.Signal{
			{ID: "e1", Topic: "deploy", CorrelationID: "rel-2", Payload: json.RawMessage(`{"ok":true}`)},
			{ID: "e1", Topic: "deploy", CorrelationID: "rel-1"},
			{ID: "e1", Topic: "deploy", CorrelationID: "rel-1", Payload: json.RawMessage(`{"ok":true}`), FlowID: f.ID},
		} {
			_, err := h.waits.Deliver(h.ctx(), other)
			h.is(err, fault.CodeAlreadyExists)
		}
		if other, err := h.waits.Deliver(as(t, "other"), wait.Signal{ID: "e1", Topic: "x", CorrelationID: "y"}); err != nil || other.Replayed {
			t.Errorf("the same id in another namespace: %+v, %v", other, err)
		}
		_, err := h.waits.Deliver(h.ctx(), wait.Signal{Topic: "x", CorrelationID: "y", FlowID: uuid.New()})
		h.is(err, fault.CodeNotFound)
		_, err = h.waits.Deliver(h.ctx(), wait.Signal{Topic: " ", CorrelationID: "y"})
		h.is(err, fault.CodeValidationFailed)
		if a, b := h.deliver(wait.Signal{Topic: "x", CorrelationID: "y"}), h.deliver(wait.Signal{Topic: "x", CorrelationID: "y"}); a.EventID == b.EventID || b.Replayed {
			t.Error("two events without an id are one")
		}
	})
}

// TestWait_ToOneFlow shows that an event for one flow reaches no other, neither at once nor later.
func TestWait_ToOneFlow(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		one, other := h.create(flow.Running), h.create(flow.Running)
		other = h.park(other.ID, event1("a", "b"))
		if receipt := h.deliver(wait.Signal{Topic: "a", CorrelationID: "b", FlowID: one.ID}); !receipt.Buffered {
			t.Errorf("it reached %+v", receipt)
		}
		third := h.park(h.create(flow.Running).ID, event1("a", "b"))
		if third.Status != flow.Waiting || h.flow(other.ID).Status != flow.Waiting {
			t.Error("another flow consumed it")
		}
		if one = h.park(one.ID, event1("a", "b")); one.Status != flow.Running || one.Revision != 3 {
			t.Errorf("its flow is %s at revision %d", one.Status, one.Revision)
		}
		receipt := h.deliver(wait.Signal{Topic: "a", CorrelationID: "b", FlowID: third.ID})
		if len(receipt.Matched) != 1 || receipt.Matched[0].FlowID != third.ID || h.flow(other.ID).Status != flow.Waiting {
			t.Errorf("it reached %+v", receipt)
		}
	})
}

// TestWait_Buffered: reference: runs-and-taskflows.md B13 5.
func TestWait_Buffered(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		for i := range 3 {
			h.deliver(wait.Signal{ID: fmt.Sprint("e", i), Topic: "a", CorrelationID: "b", Payload: json.RawMessage(fmt.Sprint(i))})
		}
		for i := range 3 { // the oldest first, each to one wait
			f := h.park(h.create(flow.Running).ID, event1("a", "b"))
			if want := fmt.Sprintf(`{"n":1,"resume_event":%d}`, i); f.Status != flow.Running || string(f.State) != want || f.Wait != nil {
				t.Errorf("flow %d is %s with state %s", i, f.Status, f.State)
			}
			if got := types(h.trail(f.ID)); !slices.Equal(got, []event.Type{event.FlowCreated, event.FlowStarted, event.FlowWaiting, event.FlowResumed}) {
				t.Errorf("events %v", got)
			}
			h.folded(f)
		}
		if f := h.park(h.create(flow.Running).ID, event1("a", "b")); f.Status != flow.Waiting {
			t.Errorf("an event was consumed twice: %s", f.Status)
		}
		again := h.deliver(wait.Signal{ID: "e0", Topic: "a", CorrelationID: "b", Payload: json.RawMessage(`0`)})
		if want := (wait.Receipt{EventID: "e0", Matched: []wait.Match{}, Buffered: true, Replayed: true}); !cmp.Equal(want, again) {
			t.Errorf("a consumed event again: %+v", again)
		}

		// of two kept events an any takes the older, and leaves the other
		h.deliver(wait.Signal{ID: "y", Topic: "t", CorrelationID: "2"})
		h.deliver(wait.Signal{ID: "x", Topic: "t", CorrelationID: "1"})
		f := h.park(h.create(flow.Running).ID, `{"kind":"any","of":[`+event1("t", "1")+`,`+event1("t", "2")+`]}`)
		if last := h.trail(f.ID)[3]; !strings.Contains(string(last.Data.(json.RawMessage)), `"event_id":"y"`) { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("it was resumed by %s", last.Data)
		}
		if f := h.park(h.create(flow.Running).ID, event1("t", "1")); f.Status != flow.Running {
			t.Error("the other event is gone")
		}

		// kept for a day
		h.deliver(wait.Signal{ID: "old", Topic: "late", CorrelationID: "1", Payload: json.RawMessage(`1`)})
		h.clock.Advance(24*time.Hour + time.Millisecond)
		if f := h.park(h.create(flow.Running).ID, event1("late", "1")); f.Status != flow.Waiting {
			t.Error("an event that has expired was consumed")
		}
		if receipt := h.deliver(wait.Signal{ID: "old", Topic: "late", CorrelationID: "1", Payload: json.RawMessage(`2`)}); receipt.Replayed || len(receipt.Matched) != 1 {
			t.Errorf("an id that has expired: %+v", receipt)
		}
		n, err := h.waits.Expire(t.Context(), 4)
		h.no(err)
		m, err := h.waits.Expire(t.Context(), 4)
		if h.no(err); n != 4 || m != 1 {
			t.Errorf("%d and %d events were forgotten", n, m)
		}
	})
}

// TestWait_Composite shows waits for several things, in any order of their coming.
func TestWait_Composite(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		all := func() string {
			return `{"kind":"all","of":[` + event1("a", "1") + `,` + event1("b", "1") + `,` + h.timer(time.Minute) + `]}`
		}
		a := wait.Signal{ID: "a", Topic: "a", CorrelationID: "1", Payload: json.RawMessage(`"A"`)}
		b := wait.Signal{ID: "b", Topic: "b", CorrelationID: "1", Payload: json.RawMessage(`"B"`)}

		f := h.park(h.create(flow.Running).ID, all())
		if receipt := h.deliver(a); len(receipt.Matched) != 1 || h.flow(f.ID).Status != flow.Waiting {
			t.Errorf("the first event: %+v, %s", receipt, h.flow(f.ID).Status)
		}
		if receipt := h.deliver(wait.Signal{Topic: "a", CorrelationID: "1"}); !receipt.Buffered {
			t.Errorf("what it has already reached it again: %+v", receipt)
		}
		if due, err := h.waits.NextDue(t.Context()); err != nil || !due.IsZero() {
			t.Errorf("due at %v, %v although an event is missing", due, err)
		}
		h.clock.Advance(2 * time.Minute)
		if h.pass(0) != 0 {
			t.Error("the timer alone was enough")
		}
		h.deliver(b)
		got := h.flow(f.ID)
		if got.Status != flow.Running || string(got.State) != `{"n":1,"resume_event":"B"}` {
			t.Errorf("it is %s with state %s", got.Status, got.State)
		}
		events := h.trail(f.ID)
		if data := string(events[3].Data.(json.RawMessage)); !strings.Contains(data, `"by":"external_event","event_id":"b"`) || !strings.Contains(data, `"earlier":[{"event_id":"a","topic":"a","correlation_id":"1","payload":"A"}]`) { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("it was resumed by %s", data)
		}
		h.folded(got)

		// both events before the timer
		a.ID, b.ID = "a2", "b2"
		f = h.park(h.create(flow.Running).ID, all()) // takes the kept event "a"
		h.deliver(b)
		if due, err := h.waits.NextDue(t.Context()); err != nil || due.IsZero() || !h.alarms.last().Equal(due) {
			t.Errorf("due at %v, %v, armed for %v", due, err, h.alarms.last())
		}
		if h.pass(time.Minute) != 1 {
			t.Error("the timer did not complete it")
		}
		got = h.flow(f.ID)
		if data := string(h.trail(f.ID)[3].Data.(json.RawMessage)); got.Status != flow.Running || string(got.State) != `{"n":1,"resume_event":"B"}` || !strings.Contains(data, `"by":"timer","event_id":"b2"`) { //nolint:forcetypeassert // a panic fails the test
			t.Errorf("it is %s with state %s by %s", got.Status, got.State, data)
		}
		h.folded(got)

		// any: the timer wins
		f = h.park(h.create(flow.Running).ID, `{"kind":"any","of":[`+event1("z", "1")+`,`+h.timer(time.Second)+`]}`)
		if h.pass(seconds) != 1 || h.flow(f.ID).Status != flow.Running {
			t.Error("the timer was not enough")
		}
		if receipt := h.deliver(wait.Signal{Topic: "z", CorrelationID: "1"}); !receipt.Buffered {
			t.Errorf("a closed wait still listens: %+v", receipt)
		}
	})
}

// TestWait_Reparked shows that an event or a sweep never wakes a later wait than the one it is about.
// reference: runs-and-taskflows.md B13 4.
func TestWait_Reparked(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.park(h.create(flow.Running).ID, `{"kind":"any","of":[`+event1("a", "b")+`,`+h.timer(time.Minute)+`]}`)
		_, err := h.flows.Resume(h.ctx(), f.ID, nil, nil)
		h.no(err)
		f = h.park(f.ID, event1("c", "d"))
		if receipt := h.deliver(wait.Signal{Topic: "a", CorrelationID: "b"}); len(receipt.Matched) != 0 {
			t.Errorf("the first wait's event reached %+v", receipt)
		}
		if n := h.pass(2 * time.Minute); n != 0 {
			t.Errorf("the first wait's timer decided %d", n)
		}
		if got := h.flow(f.ID); got.Status != flow.Waiting || got.Wait.ID != f.Wait.ID {
			t.Errorf("it is %s", got.Status)
		}
	})
}

// TestWait_RequestCancel: reference: runs-and-taskflows.md C5 NE-06, B7.
func TestWait_RequestCancel(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.create(flow.Waiting)
		asked, err := h.flows.RequestCancel(h.ctx(), f.ID, nil, "superseded")
		h.no(err)
		if asked.Status != flow.Waiting || !asked.CancelRequested || asked.Wait == nil {
			t.Errorf("after the request it is %+v", asked)
		}
		if due, err := h.waits.NextDue(t.Context()); err != nil || due.After(h.clock.Now()) || due.IsZero() || !h.alarms.last().Equal(due) {
			t.Errorf("due at %v, %v", due, err)
		}
		_, err = h.flows.Resume(h.ctx(), f.ID, nil, nil)
		h.is(err, fault.CodeCancelPending)
		again, err := h.flows.RequestCancel(h.ctx(), f.ID, nil, "other")
		h.no(err)
		if diff := cmp.Diff(asked, again); diff != "" {
			t.Errorf("asked again (-first +second):\n%s", diff)
		}
		if n := h.pass(seconds); n != 1 {
			t.Errorf("the sweep dealt with %d", n)
		}
		got := h.flow(f.ID)
		if got.Status != flow.Cancelled || got.Wait != nil || got.Cancellation.Reason != "superseded" || got.Cancellation.Actor != "token:ci" || got.Cancellation.Policy != flow.CancelAll {
			t.Errorf("it is %s, %+v", got.Status, got.Cancellation)
		}
		if events := types(h.trail(f.ID)); !slices.Equal(events[3:], []event.Type{event.FlowCancelRequested, event.FlowCancelled}) {
			t.Errorf("events %v", events)
		}
		h.folded(got)

		// an event that comes before the sweep cancels it too
		f = h.park(h.create(flow.Running).ID, event1("a", "b"))
		_, err = h.flows.RequestCancel(h.ctx(), f.ID, nil, "")
		h.no(err)
		if receipt := h.deliver(wait.Signal{Topic: "a", CorrelationID: "b"}); len(receipt.Matched) != 1 || h.flow(f.ID).Status != flow.Cancelled {
			t.Errorf("the event reached %+v and made it %s", receipt, h.flow(f.ID).Status)
		}
		if n := h.pass(seconds); n != 0 {
			t.Errorf("the sweep dealt with %d", n)
		}
	})
}

func TestWait_Inbox(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		var ids []uuid.UUID
		for i, condition := range []string{`{"kind":"manual"}`, event1("a", "b"), `{"kind":"any","of":[` + h.timer(time.Hour) + `,{"kind":"manual"}]}`, `{"kind":"manual"}`} {
			f := h.park(h.create(flow.Running).ID, condition)
			if i != 1 {
				ids = append([]uuid.UUID{f.Wait.ID}, ids...)
			}
			h.clock.Advance(seconds)
		}
		var got []wait.Wait
		for cursor := (page.Cursor{}); ; {
			p, err := h.waits.Inbox(h.ctx(), wait.Filter{}, cursor, 2)
			h.no(err)
			got = append(got, p.Items...)
			if cursor = p.Next; cursor.IsZero() {
				break
			}
		}
		for i, w := range got {
			if w.ID != ids[i] || w.Title != "Release 1.4" || w.RequestedBy != "ci/release" {
				t.Errorf("item %d is %+v", i, w)
			}
		}
		if len(got) != len(ids) {
			t.Fatalf("%d items, want %d", len(got), len(ids))
		}
		f := h.flow(got[0].FlowID)
		_, err := h.flows.Replace(h.ctx(), f.ID, f.Revision, flow.Replacement{Goal: "Release 2"}, nil)
		h.no(err)
		p, err := h.waits.Inbox(h.ctx(), wait.Filter{FlowID: f.ID}, page.Cursor{}, 50)
		h.no(err)
		if len(p.Items) != 1 || p.Items[0].Title != "Release 2" || p.Items[0].RequestedBy != "token:ci" {
			t.Errorf("after PUT the inbox says %+v", p.Items)
		}
		_, err = h.flows.Resume(h.ctx(), f.ID, nil, nil)
		h.no(err)
		if p, err = h.waits.Inbox(h.ctx(), wait.Filter{FlowID: f.ID}, page.Cursor{}, 50); err != nil || len(p.Items) != 0 {
			t.Errorf("an answered wait is still there: %v, %v", p.Items, err)
		}
	})
}

// TestWait_Tickers shows that any number of sweeps resume each flow once. reference: runs-and-taskflows.md D5 40, B13 14.
func TestWait_Tickers(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		const flows = 40
		var ids []uuid.UUID
		for range flows {
			ids = append(ids, h.park(h.create(flow.Running).ID, h.timer(time.Minute)).ID)
		}
		h.clock.Advance(2 * time.Minute)
		_, err := h.waits.NextDue(t.Context())
		h.no(err)
		var decided atomic.Int64
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for {
					n, err := h.waits.Pass(t.Context(), 7)
					if err != nil {
						t.Error(err)
						return
					}
					decided.Add(int64(n))
					due, err := h.waits.NextDue(t.Context())
					if err != nil {
						t.Error(err)
					}
					if due.IsZero() {
						return
					}
				}
			})
		}
		group.Wait()
		if decided.Load() != flows {
			t.Errorf("%d waits were decided, want %d", decided.Load(), flows)
		}
		for _, id := range ids {
			if f := h.flow(id); f.Status != flow.Running || f.Revision != 3 {
				t.Errorf("it is %s at revision %d", f.Status, f.Revision)
			}
		}
	})
}

// TestWait_NothingLost races deliveries against flows that park: each event is consumed exactly once, and no flow waits while
// an event for it is kept.
func TestWait_NothingLost(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		const rounds, width = 12, 4
		for round := range rounds {
			condition := event1("race", fmt.Sprint(round))
			var ids []uuid.UUID
			for range width {
				ids = append(ids, h.create(flow.Running).ID)
			}
			var matched, buffered atomic.Int64
			var group sync.WaitGroup
			for i := range width {
				group.Go(func() {
					receipt, err := h.waits.Deliver(h.ctx(), wait.Signal{Topic: "race", CorrelationID: fmt.Sprint(round), Payload: json.RawMessage(fmt.Sprint(i))})
					if err != nil {
						t.Error(err)
					}
					matched.Add(int64(len(receipt.Matched)))
					if receipt.Buffered {
						buffered.Add(1)
					}
				})
				group.Go(func() {
					if _, err := h.flows.Wait(h.ctx(), ids[i], nil, wait.Request{Condition: json.RawMessage(condition)}); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			waiting := 0
			for _, id := range ids {
				if h.flow(id).Status == flow.Waiting {
					waiting++
				}
			}
			var kept int
			h.no(h.store.Read(t.Context(), func(q *store.Queries) error {
				return q.Get(&kept, `SELECT count(*) FROM signals WHERE topic = 'race' AND correlation_id = ? AND open = 1`, fmt.Sprint(round))
			}))
			if waiting > 0 && kept > 0 {
				t.Fatalf("%d flows wait although %d events are kept", waiting, kept)
			}
			if consumed := buffered.Load() - int64(kept); matched.Load()+consumed != int64(width-waiting) {
				t.Fatalf("%d matched and %d consumed, but %d flows were resumed", matched.Load(), consumed, width-waiting)
			}
		}
	})
}

// TestWait_SameEventAtOnce shows that one event id has one effect, however many send it.
func TestWait_SameEventAtOnce(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		f := h.park(h.create(flow.Running).ID, event1("a", "b"))
		var fresh atomic.Int64
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				e := wait.Signal{ID: "e", Topic: "a", CorrelationID: "b"}
				if i == 7 {
					e.Topic = "other"
				}
				receipt, err := h.waits.Deliver(h.ctx(), e)
				switch {
				case fault.CodeOf(err) == fault.CodeAlreadyExists:
				case err != nil:
					t.Error(err)
				case !receipt.Replayed:
					fresh.Add(1)
				}
			})
		}
		group.Wait()
		if got := h.flow(f.ID); fresh.Load() != 1 || got.Revision > 3 {
			t.Errorf("%d deliveries counted, the flow is at revision %d", fresh.Load(), got.Revision)
		}
	})
}

// TestWait_Corrupt shows that a wait which cannot be read holds up no other. reference: runs-and-taskflows.md B13 10.
func TestWait_Corrupt(t *testing.T) {
	t.Parallel()
	houses(t, func(t *testing.T, h *house) {
		sound, broken, odd := h.create(flow.Running), h.create(flow.Running), h.create(flow.Running)
		for _, f := range []flow.Flow{broken, odd, sound} {
			h.park(f.ID, h.timer(time.Minute))
		}
		h.no(store.Do(h.ctx(), h.store, func(tx *store.Tx) error {
			err := tx.ExecOne(`UPDATE waits SET condition = '{"kind":"signal"}' WHERE flow_id = ?`, store.ID(broken.ID))
			return errors.Join(err, tx.ExecOne(`UPDATE flows SET state = '{' WHERE id = ?`, store.ID(odd.ID)))
		}))
		h.clock.Advance(2 * time.Minute)
		n, err := h.waits.Pass(t.Context(), 250)
		if fault.CodeOf(err) == "" || !strings.Contains(err.Error(), string(fault.CodeCorruptRecord)) || n != 3 {
			t.Errorf("Pass() = %d, %v", n, err)
		}
		if h.flow(sound.ID).Status != flow.Running {
			t.Error("the sound wait was held up")
		}
		for _, id := range []uuid.UUID{broken.ID, odd.ID} {
			_, err := h.flows.Flow(h.ctx(), id)
			h.is(err, fault.CodeCorruptRecord)
		}
		if n, err := h.waits.Pass(t.Context(), 250); n != 0 || err != nil {
			t.Errorf("the next Pass() = %d, %v", n, err)
		}
	})
}
