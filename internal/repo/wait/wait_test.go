package wait_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
	"github.com/flowapi/flowapi/internal/storetest"
)

// owner stands for flows: it remembers what it was told.
type owner struct {
	busy map[uuid.UUID]bool // in other hands
	gone map[uuid.UUID]bool
	told []string
}

func (o *owner) Hold(_ *store.Tx, _ string, id uuid.UUID, skip bool) (bool, error) {
	switch {
	case o.gone[id]:
		return false, fault.NotFound("flow", id)
	case o.busy[id] && skip:
		return false, nil
	}
	return true, nil
}

func (o *owner) Decided(tx *store.Tx, w wait.Wait, out wait.Outcome) error {
	var events []string
	for _, e := range out.Received {
		events = append(events, e.ID)
	}
	o.told = append(o.told, fmt.Sprintf("%s by %s %v for %s in %s", w.Title, out.By, events, tx.Call.Actor, tx.Call.Namespace))
	return nil
}

// TestRepo shows what an owner is promised: each of its waits is decided once, and how.
func TestRepo(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := store.StillClock(time.Now())
		s := storetest.Open(t, store.Config{URL: url, Clock: clock})
		o := &owner{busy: map[uuid.UUID]bool{}, gone: map[uuid.UUID]bool{}}
		r := waitrepo.New(s, waitrepo.Config{EventTTL: time.Minute})
		r.Attach(waitrepo.Owners{Flows: o, Executions: o}, waitrepo.Kinds{})
		ctx := call.With(t.Context(), call.Call{Namespace: "n", Actor: "token:ci"})
		do := func(fn func(tx *store.Tx) error) {
			t.Helper()
			if err := store.Do(ctx, s, fn); err != nil {
				t.Fatal(err)
			}
		}
		add := func(title, condition string, deadline time.Duration) wait.Wait {
			t.Helper()
			c, err := wait.Parse([]byte(condition), "")
			if err != nil {
				t.Fatal(err)
			}
			w := wait.Wait{ID: store.NewID(), Namespace: "n", FlowID: store.NewID(), Title: title, Since: clock.Now(), Spec: wait.Spec{Condition: c, OnTimeout: wait.TimeoutFails}}
			if deadline > 0 {
				w.Deadline = clock.Now().Add(deadline)
			}
			do(func(tx *store.Tx) error {
				if err := r.Reserve(tx, c); err != nil {
					return err
				}
				return r.Open(tx, w)
			})
			return w
		}
		event := func(topic string) string {
			return `{"kind":"external_event","topic":"` + topic + `","correlation_id":"1"}`
		}
		deliver := func(id, topic string) wait.Receipt {
			t.Helper()
			receipt, err := r.Deliver(ctx, wait.Signal{ID: id, Topic: topic, CorrelationID: "1"})
			if err != nil {
				t.Fatal(err)
			}
			return receipt
		}
		pass := func(want int) {
			t.Helper()
			if n, err := r.Pass(context.Background(), 250); err != nil || n != want {
				t.Errorf("Pass() = %d, %v, want %d", n, err, want)
			}
		}
		told := func(want ...string) {
			t.Helper()
			if !slices.Equal(o.told, want) {
				t.Errorf("the owner was told %q, want %q", o.told, want)
			}
			o.told = nil
		}

		read := add("read", `{"kind":"any","of":[{"kind":"manual"},`+event("read")+`]}`, time.Hour)
		got := map[uuid.UUID]wait.Wait{}
		if err := s.Read(ctx, func(q *store.Queries) (err error) {
			got, err = r.Waits(q, []uuid.UUID{read.ID, uuid.New()})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[uuid.UUID]wait.Wait{read.ID: read}, got); diff != "" {
			t.Errorf("Waits() (-want +got):\n%s", diff)
		}
		do(func(tx *store.Tx) error {
			for _, want := range []bool{true, false} {
				if open, err := r.Close(tx, read.ID); err != nil || open != want {
					t.Errorf("Close() = %v, %v", open, err)
				}
			}
			return nil
		})
		if receipt := deliver("", "read"); !receipt.Buffered {
			t.Errorf("a closed wait was reached: %+v", receipt)
		}

		late, busy := add("late", event("late"), time.Minute), add("busy", `{"kind":"manual"}`, time.Minute)
		woken := add("woken", `{"kind":"manual"}`, 0)
		o.busy[busy.FlowID] = true
		do(func(tx *store.Tx) error { return r.Wake(tx, woken.ID) })
		clock.Advance(time.Minute)
		pass(2)
		told("woken by owner [] for engine in n", "late by timeout [] for engine in n")
		delete(o.busy, busy.FlowID)
		pass(1)
		told("busy by timeout [] for engine in n")
		pass(0)

		both := add("both", `{"kind":"all","of":[`+event("x")+`,`+event("y")+`]}`, 0)
		lost := add("lost", event("x"), 0)
		o.gone[lost.FlowID] = true
		if receipt := deliver("1", "x"); !cmp.Equal(receipt.Matched, []wait.Match{{FlowID: both.FlowID, WaitID: both.ID}}) && len(receipt.Matched) != 2 {
			t.Errorf("reached %+v", receipt)
		}
		deliver("2", "y")
		if !slices.Contains(o.told, "both by external_event [1 2] for token:ci in n") {
			t.Errorf("the owner was told %q", o.told)
		}
		o.told = nil

		deliver("3", "z")
		add("kept", event("z"), 0)
		told("kept by external_event [3] for token:ci in n")
		deliver("4", "z")
		clock.Advance(time.Minute + time.Millisecond)
		add("too late", event("z"), 0)
		told()
		if due, err := r.NextDue(ctx); err != nil || !due.IsZero() {
			t.Errorf("NextDue() = %v, %v", due, err)
		}
		_ = late
	})
}

// TestRepo_Large shows that payloads come back as they were.
func TestRepo_Large(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		r := waitrepo.New(s, waitrepo.Config{})
		r.Attach(waitrepo.Owners{Flows: &owner{}}, waitrepo.Kinds{})
		payload := json.RawMessage(`{"n":12345678901234567890.10,"s":"<&>ü"}`)
		first, err := r.Deliver(t.Context(), wait.Signal{ID: "e", Topic: "a", CorrelationID: "b", Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Deliver(t.Context(), wait.Signal{ID: "e", Topic: "a", CorrelationID: "b", Payload: json.RawMessage(" " + string(payload) + "\n")})
		if err != nil || !again.Replayed || again.EventID != first.EventID || again.Buffered != first.Buffered {
			t.Errorf("Deliver() again = %+v, %v", again, err)
		}
	})
}
