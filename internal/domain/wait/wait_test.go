package wait_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/wait"
)

var start = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// TestWait_Decide holds the golden vectors of the ticker. reference: runs-and-taskflows.md G-TK.
func TestWait_Decide(t *testing.T) {
	t.Parallel()
	manual := wait.Condition{Kind: wait.Manual}
	tests := []struct {
		name     string
		spec     wait.Spec
		received []wait.Key
		want     wait.Reason // "" for still waiting
		due      time.Time
	}{
		{"timer a minute ago", wait.Spec{Condition: timer(after(-60))}, nil, wait.ByTimer, after(-60)},
		{"timer in a minute", wait.Spec{Condition: timer(after(60))}, nil, "", after(60)},
		{"timer now", wait.Spec{Condition: timer(start)}, nil, wait.ByTimer, start},
		{"manual", wait.Spec{Condition: manual}, nil, "", time.Time{}},
		{"event", wait.Spec{Condition: event("a", "1")}, nil, "", time.Time{}},
		{"deadline in a minute", wait.Spec{Condition: manual, Deadline: after(60)}, nil, "", after(60)},
		{"deadline now", wait.Spec{Condition: manual, Deadline: start}, nil, wait.ByTimeout, start},
		{"deadline before the timer, both over", wait.Spec{Condition: timer(after(-1)), Deadline: after(-2)}, nil, wait.ByTimeout, after(-2)},
		{"timer before the deadline, both over", wait.Spec{Condition: timer(after(-2)), Deadline: after(-1)}, nil, wait.ByTimer, after(-2)},
		{"timer and deadline at once", wait.Spec{Condition: timer(start), Deadline: start}, nil, wait.ByTimer, start},
		{"any of event and timer", wait.Spec{Condition: anyOf(event("a", "1"), timer(start))}, nil, wait.ByTimer, start},
		{"all of event and timer, no event", wait.Spec{Condition: allOf(event("a", "1"), timer(start))}, nil, "", time.Time{}},
		{"all of event and timer, event", wait.Spec{Condition: allOf(event("a", "1"), timer(start))}, []wait.Key{{Topic: "a", CorrelationID: "1"}}, wait.ByTimer, start},
		{"all of two timers", wait.Spec{Condition: allOf(timer(after(-5)), timer(after(5)))}, nil, "", after(5)},
		{"any of two timers", wait.Spec{Condition: anyOf(timer(after(5)), timer(after(-5)))}, nil, wait.ByTimer, after(-5)},
		{"all of manual and timer", wait.Spec{Condition: allOf(manual, timer(start))}, nil, "", time.Time{}},
		{"nested", wait.Spec{Condition: anyOf(manual, allOf(event("a", "1"), anyOf(timer(after(9)), timer(after(7)))))}, []wait.Key{{Topic: "a", CorrelationID: "1"}}, "", after(7)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := wait.Wait{Spec: tt.spec}
			for _, k := range tt.received {
				w, _ = w.Deliver(wait.Signal{Topic: k.Topic, CorrelationID: k.CorrelationID})
			}
			outcome, decided := w.Decide(start)
			if decided != (tt.want != "") || outcome.By != tt.want {
				t.Errorf("Decide() = %q, %v, want %q", outcome.By, decided, tt.want)
			}
			if due := w.DueAt(); !due.Equal(tt.due) {
				t.Errorf("DueAt() = %v, want %v", due, tt.due)
			}
		})
	}
}

func TestWait_Deliver(t *testing.T) {
	t.Parallel()
	w := wait.Wait{Spec: wait.Spec{Condition: allOf(event("a", "1"), event("b", "2"), timer(start))}}
	if _, ok := w.Deliver(wait.Signal{Topic: "a", CorrelationID: "2"}); ok {
		t.Error("an event with another correlation id was taken")
	}
	if _, ok := w.Deliver(wait.Signal{Topic: "A", CorrelationID: "1"}); ok {
		t.Error("an event with another topic was taken")
	}
	first := wait.Signal{ID: "1", Topic: "a", CorrelationID: "1", Payload: json.RawMessage(`{"n":1}`)}
	w, ok := w.Deliver(first)
	if !ok {
		t.Fatal("a matching event was not taken")
	}
	if _, ok := w.Deliver(wait.Signal{ID: "2", Topic: "a", CorrelationID: "1"}); ok {
		t.Error("a second event for the same leaf was taken")
	}
	if _, decided := w.DecideBy(start); decided {
		t.Error("half of all is enough")
	}
	if keys := w.Condition.Keys(w.Progress()); !slices.Equal(keys, []wait.Key{{Topic: "b", CorrelationID: "2"}}) {
		t.Errorf("it still waits for %v", keys)
	}
	second := wait.Signal{ID: "3", Topic: "b", CorrelationID: "2"}
	w, _ = w.Deliver(second)
	if _, decided := w.DecideBy(after(-1)); decided {
		t.Error("the timer was not waited for")
	}
	got, decided := w.DecideBy(start)
	if want := (wait.Outcome{By: wait.BySignal, Received: []wait.Signal{first, second}}); !decided || !cmp.Equal(want, got) {
		t.Errorf("DecideBy() = %+v, %v", got, decided)
	}
	if e := got.Last(); e == nil || e.ID != "3" {
		t.Errorf("the event that counts is %+v, want the last", e)
	}
	if late := (wait.Outcome{By: wait.ByTimeout, Received: got.Received}); late.Last() != nil {
		t.Error("an event counts although the deadline passed")
	}
}

// conditions draws a condition from a small world, so that events match.
func conditions(depth int) *rapid.Generator[wait.Condition] {
	return rapid.Custom(func(t *rapid.T) wait.Condition {
		kinds := []wait.Kind{wait.Timer, wait.ExternalEvent, wait.Manual, wait.Any, wait.All}
		if depth == wait.MaxDepth {
			kinds = kinds[:3]
		}
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case wait.Timer:
			return timer(after(rapid.IntRange(-5, 5).Draw(t, "at")))
		case wait.ExternalEvent:
			k := keys().Draw(t, "key")
			return event(k.Topic, k.CorrelationID)
		case wait.Manual:
			return wait.Condition{Kind: wait.Manual}
		default:
			return wait.Condition{Kind: kind, Of: rapid.SliceOfN(conditions(depth+1), 1, 3).Draw(t, "of")}
		}
	})
}

func keys() *rapid.Generator[wait.Key] {
	return rapid.Custom(func(t *rapid.T) wait.Key {
		return wait.Key{Topic: rapid.SampledFrom([]string{"a", "b", "A"}).Draw(t, "topic"), CorrelationID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "correlation")}
	})
}

// met returns how far a condition is with events of these keys.
func met(c wait.Condition, ks []wait.Key) wait.Progress {
	events := make([]wait.Signal, len(ks))
	for i, k := range ks {
		events[i] = wait.Signal{Topic: k.Topic, CorrelationID: k.CorrelationID}
	}
	return c.Progress(events)
}

// satisfied is the definition: any of them, all of them.
func satisfied(c wait.Condition, got []wait.Key, now time.Time) bool {
	part := func(p wait.Condition) bool { return satisfied(p, got, now) }
	switch c.Kind {
	case wait.Timer:
		return !now.Before(c.At)
	case wait.ExternalEvent:
		return slices.Contains(got, wait.Key{Topic: c.Topic, CorrelationID: c.CorrelationID})
	case wait.Any:
		return slices.ContainsFunc(c.Of, part)
	case wait.All:
		return !slices.ContainsFunc(c.Of, func(p wait.Condition) bool { return !part(p) })
	default:
		return false
	}
}

func TestCondition_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := conditions(1).Draw(t, "condition")
		got := rapid.SliceOfN(keys(), 0, 6).Draw(t, "events")
		now := after(rapid.IntRange(-6, 6).Draw(t, "now"))
		holds := c.Satisfied(met(c, got), now)

		if want := satisfied(c, got, now); holds != want {
			t.Fatalf("Satisfied() = %v, want %v", holds, want)
		}
		if shuffled := rapid.Permutation(got).Draw(t, "another order"); !slices.Equal(met(c, shuffled), met(c, got)) {
			t.Fatal("the order of events matters")
		}
		more := append(slices.Clone(got), keys().Draw(t, "one more"))
		if holds && (!c.Satisfied(met(c, more), now) || !c.Satisfied(met(c, got), now.Add(time.Second))) {
			t.Fatal("what was satisfied is not any more")
		}
		if from, ok := c.HoldsFrom(met(c, got)); ok && (!c.Satisfied(met(c, got), from) || !from.IsZero() && c.Satisfied(met(c, got), from.Add(-time.Millisecond))) {
			t.Fatalf("it does not begin to hold at %v", from)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := wait.Parse(text, ""); err != nil || !again.Equal(c) {
			t.Fatalf("%s is read as %+v, %v", text, again, err)
		}
	})
}

// TestWait_Incremental shows that taking events one by one is taking them together, and that a wait which time decides is
// decided at DueAt and not before.
func TestWait_Incremental(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := wait.Wait{Spec: wait.Spec{Condition: conditions(1).Draw(t, "condition")}}
		if rapid.Bool().Draw(t, "with deadline") {
			w.Deadline = after(rapid.IntRange(-5, 5).Draw(t, "deadline"))
		}
		got := rapid.SliceOfN(keys(), 0, 6).Draw(t, "events")
		for _, k := range got {
			w, _ = w.Deliver(wait.Signal{Topic: k.Topic, CorrelationID: k.CorrelationID})
		}
		if !slices.Equal(w.Progress(), met(w.Condition, got)) {
			t.Fatalf("one by one they meet %v, together %v", w.Progress(), met(w.Condition, got))
		}
		if from, ok := w.Condition.HoldsFrom(w.Progress()); ok && from.IsZero() {
			return // an event decided it
		}
		due := w.DueAt()
		if due.IsZero() {
			if _, decided := w.Decide(after(1000)); decided {
				t.Fatal("it is decided although it is never due")
			}
			return
		}
		if _, decided := w.Decide(due.Add(-time.Millisecond)); decided {
			t.Fatal("it is decided before it is due")
		}
		first, decided := w.Decide(due)
		late, _ := w.Decide(due.Add(time.Hour))
		if !decided || first.By != late.By {
			t.Fatalf("decided by %q in time and by %q late", first.By, late.By)
		}
	})
}
