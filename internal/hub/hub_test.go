package hub_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ready reports whether a receive from c would not block.
func ready(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestHub_Broadcast(t *testing.T) {
	t.Parallel()
	h := hub.New()
	a, b, other := h.Watch("events"), h.Watch("events"), h.Watch("flows")

	h.Broadcast("events")
	if !ready(a) || !ready(b) {
		t.Error("a watcher of the key was not woken")
	}
	if ready(other) {
		t.Error("a watcher of another key was woken")
	}
	again := h.Watch("events")
	if ready(again) {
		t.Error("a channel taken after the broadcast is ready")
	}
	h.Broadcast("events")
	if !ready(again) {
		t.Error("the second broadcast woke nobody")
	}
	h.Broadcast("nobody watches this")
}

func TestHub_Close(t *testing.T) {
	t.Parallel()
	h := hub.New()
	watch := h.Watch("events")
	armed := h.Wait([]string{"a", "b"}, nil)
	signalled := h.Wait([]string{"c"}, nil)
	h.Signal("c", "", 1)
	if ready(h.Done()) || ready(watch) {
		t.Fatal("an open hub looks closed")
	}

	h.Close()
	h.Close()
	if !ready(h.Done()) || !ready(watch) || !ready(h.Watch("events")) {
		t.Error("Close left a channel open")
	}
	if _, open := <-armed.C(); open {
		t.Error("an armed waiter got a signal from Close")
	}
	if _, open := <-signalled.C(); !open {
		t.Error("Close took a signal back")
	}
	signalled.Rearm()
	if _, open := <-signalled.C(); open {
		t.Error("a waiter that rearms on a closed hub was signalled")
	}
	late := h.Wait([]string{"a"}, nil)
	if _, open := <-late.C(); open {
		t.Error("a waiter that comes to a closed hub was signalled")
	}
	h.Broadcast("events")
	h.Signal("a", "", 1)
	h.SignalAll("a")
	for _, w := range []*hub.Waiter{armed, signalled, late} {
		w.Rearm()
		w.Stop()
		w.Stop()
	}
}

// A watcher that takes the channel, looks, and then waits sees every change, however they interleave.
func TestHub_Broadcast_NothingLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const changes, watchers = 2000, 20
		h := hub.New()
		var mu sync.Mutex
		state := 0
		look := func() int {
			mu.Lock()
			defer mu.Unlock()
			return state
		}
		var wg sync.WaitGroup
		for range watchers {
			wg.Go(func() {
				for {
					woken := h.Watch("events")
					if look() == changes {
						return
					}
					<-woken
				}
			})
		}
		for range changes {
			mu.Lock()
			state++
			mu.Unlock()
			h.Broadcast("events")
		}
		wg.Wait() // in a bubble a lost wake-up is a deadlock, which fails the test
	})
}

func BenchmarkHub_Broadcast(b *testing.B) {
	h := hub.New()
	for b.Loop() {
		for range 1000 {
			h.Watch("events")
		}
		h.Broadcast("events")
	}
}
