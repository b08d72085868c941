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
		x := &repoTest{t: t, ctx: call.With(t.Context(), call.Call{Namespace: "n", Actor: "token:ci"}), clock: clock, store: s, repo: r, owner: o}
		x.readsAndCloses()
		x.passesTime()
		x.delivers()
		x.keepsEvents()
	})
}

// repoTest is waits and their owner, at a time that stands still.
type repoTest struct {
	t     *testing.T
	ctx   context.Context
	clock *store.Clock
	store *store.Store
	repo  *waitrepo.Repo
	owner *owner
}

func (x *repoTest) do(fn func(tx *store.Tx) error) {
	x.t.Helper()
	if err := store.Do(x.ctx, x.store, fn); err != nil {
		x.t.Fatal(err)
	}
}

func (x *repoTest) add(title, condition string, deadline time.Duration) wait.Wait {
	x.t.Helper()
	c, err := wait.Parse([]byte(condition), "")
	if err != nil {
		x.t.Fatal(err)
	}
	w := wait.Wait{ID: store.NewID(), Namespace: "n", FlowID: store.NewID(), Title: title, Since: x.clock.Now(), Spec: wait.Spec{Condition: c, OnTimeout: wait.TimeoutFails}}
	if deadline > 0 {
		w.Deadline = x.clock.Now().Add(deadline)
	}
	x.do(func(tx *store.Tx) error {
		if err := x.repo.Reserve(tx, c); err != nil {
			return err
		}
		return x.repo.Open(tx, w)
	})
	return w
}

func (x *repoTest) deliver(id, topic string) wait.Receipt {
	x.t.Helper()
	receipt, err := x.repo.Deliver(x.ctx, wait.Signal{ID: id, Topic: topic, CorrelationID: "1"})
	if err != nil {
		x.t.Fatal(err)
	}
	return receipt
}

func (x *repoTest) pass(want int) {
	x.t.Helper()
	if n, err := x.repo.Pass(context.Background(), 250); err != nil || n != want {
		x.t.Errorf("Pass() = %d, %v, want %d", n, err, want)
	}
}

func (x *repoTest) told(want ...string) {
	x.t.Helper()
	if !slices.Equal(x.owner.told, want) {
		x.t.Errorf("the owner was told %q, want %q", x.owner.told, want)
	}
	x.owner.told = nil
}

// event is a condition that waits for an event of a topic.
func event(topic string) string {
	return `{"kind":"external_event","topic":"` + topic + `","correlation_id":"1"}`
}

// readsAndCloses shows that a wait is read as it was opened, and that nothing reaches it once it is closed.
func (x *repoTest) readsAndCloses() {
	read := x.add("read", `{"kind":"any","of":[{"kind":"manual"},`+event("read")+`]}`, time.Hour)
	got := map[uuid.UUID]wait.Wait{}
	if err := x.store.Read(x.ctx, func(q *store.Queries) (err error) {
		got, err = x.repo.Waits(q, []uuid.UUID{read.ID, uuid.New()})
		return err
	}); err != nil {
		x.t.Fatal(err)
	}
	if diff := cmp.Diff(map[uuid.UUID]wait.Wait{read.ID: read}, got); diff != "" {
		x.t.Errorf("Waits() (-want +got):\n%s", diff)
	}
	x.do(func(tx *store.Tx) error {
		for _, want := range []bool{true, false} {
			if open, err := x.repo.Close(tx, read.ID); err != nil || open != want {
				x.t.Errorf("Close() = %v, %v", open, err)
			}
		}
		return nil
	})
	if receipt := x.deliver("", "read"); !receipt.Buffered {
		x.t.Errorf("a closed wait was reached: %+v", receipt)
	}
}

// passesTime shows who is decided by time and by its owner, and that whoever is in other hands comes later.
func (x *repoTest) passesTime() {
	x.add("late", event("late"), time.Minute)
	busy := x.add("busy", `{"kind":"manual"}`, time.Minute)
	woken := x.add("woken", `{"kind":"manual"}`, 0)
	x.owner.busy[busy.FlowID] = true
	x.do(func(tx *store.Tx) error { return x.repo.Wake(tx, woken.ID) })
	x.clock.Advance(time.Minute)
	x.pass(2)
	x.told("woken by owner [] for engine in n", "late by timeout [] for engine in n")
	delete(x.owner.busy, busy.FlowID)
	x.pass(1)
	x.told("busy by timeout [] for engine in n")
	x.pass(0)
}

// delivers shows what an event reaches.
func (x *repoTest) delivers() {
	both := x.add("both", `{"kind":"all","of":[`+event("x")+`,`+event("y")+`]}`, 0)
	lost := x.add("lost", event("x"), 0)
	x.owner.gone[lost.FlowID] = true
	if receipt := x.deliver("1", "x"); !cmp.Equal(receipt.Matched, []wait.Match{{FlowID: both.FlowID, WaitID: both.ID}}) && len(receipt.Matched) != 2 {
		x.t.Errorf("reached %+v", receipt)
	}
	x.deliver("2", "y")
	if !slices.Contains(x.owner.told, "both by external_event [1 2] for token:ci in n") {
		x.t.Errorf("the owner was told %q", x.owner.told)
	}
	x.owner.told = nil
}

// keepsEvents shows how long an event is kept that has reached nobody.
func (x *repoTest) keepsEvents() {
	x.deliver("3", "z")
	x.add("kept", event("z"), 0)
	x.told("kept by external_event [3] for token:ci in n")
	x.deliver("4", "z")
	x.clock.Advance(time.Minute + time.Millisecond)
	x.add("too late", event("z"), 0)
	x.told()
	if due, err := x.repo.NextDue(x.ctx); err != nil || !due.IsZero() {
		x.t.Errorf("NextDue() = %v, %v", due, err)
	}
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
