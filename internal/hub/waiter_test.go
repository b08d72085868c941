package hub_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/hub"
)

func only(needs ...string) func(string) bool {
	return func(need string) bool { return slices.Contains(needs, need) }
}

// woken returns the indexes of the waiters that have a signal, and takes it.
func woken(waiters []*hub.Waiter) []int {
	var got []int
	for i, w := range waiters {
		if ready(w.C()) {
			got = append(got, i)
		}
	}
	return got
}

func check(t *testing.T, what string, waiters []*hub.Waiter, want ...int) {
	t.Helper()
	if diff := cmp.Diff(want, woken(waiters)); diff != "" {
		t.Errorf("%s woke other waiters (-want +got):\n%s", what, diff)
	}
}

func TestHub_Signal(t *testing.T) {
	t.Parallel()
	h := hub.New()
	cpu, gpu := only("cpu"), only("cpu", "gpu")
	waiters := []*hub.Waiter{
		h.Wait([]string{"a"}, cpu),
		h.Wait([]string{"a", "b"}, gpu),
		h.Wait([]string{"a"}, cpu),
		h.Wait([]string{"b"}, nil),
		h.Wait([]string{"a"}, gpu),
	}
	h.Signal("a", "gpu", 1)
	check(t, "one piece for a gpu", waiters, 1)
	h.Signal("b", "cpu", 5)
	check(t, "more than there are waiters", waiters, 3)
	h.Signal("a", "tpu", 1)
	check(t, "work that nobody accepts", waiters)
	h.Signal("a", "cpu", 2)
	check(t, "two pieces", waiters, 0, 2)
	h.Signal("c", "cpu", 1)
	check(t, "an unknown key", waiters)

	waiters[1].Rearm()
	waiters[0].Rearm()
	h.Signal("a", "cpu", 2)
	check(t, "those who rearmed stand at the back", waiters, 1, 4)
	h.Signal("a", "cpu", 2)
	check(t, "the last", waiters, 0)
}

func TestHub_SignalAll(t *testing.T) {
	t.Parallel()
	h := hub.New()
	waiters := []*hub.Waiter{
		h.Wait([]string{"a"}, only("cpu")),
		h.Wait([]string{"b", "a"}, only("gpu")),
		h.Wait([]string{"b"}, nil),
	}
	h.SignalAll("a")
	check(t, "all of a", waiters, 0, 1)
	h.SignalAll("a")
	check(t, "nobody is left", waiters)
	waiters[0].Stop()
	check(t, "a wake-up of all is not passed on", waiters)
	h.Signal("b", "gpu", 2)
	check(t, "the one that was woken has left both queues", waiters, 2)
}

func TestWaiter_Stop(t *testing.T) {
	t.Parallel()
	k := hub.Kind{Key: "a", Need: "cpu"}
	setup := func() (*hub.Hub, []*hub.Waiter) {
		h := hub.New()
		waiters := make([]*hub.Waiter, 4)
		for i := range waiters {
			waiters[i] = h.Wait([]string{"a", "b", "a"}, only("cpu"))
		}
		return h, waiters
	}
	t.Run("without having taken the work passes it on", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop()
		waiters[0].Stop()
		check(t, "Stop", waiters[1:], 0)
		waiters[1].Stop()
		check(t, "Stop of the next", waiters[2:], 0)
	})
	t.Run("having taken the work keeps it", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop(k)
		check(t, "Stop", waiters[1:])
	})
	t.Run("having taken other work passes it on", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop(hub.Kind{Key: "b", Need: "cpu"})
		check(t, "Stop", waiters[1:], 0)
	})
	t.Run("after an unfinished look passes both signals on", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 4)
		check(t, "four pieces", waiters, 0, 1, 2, 3)
		waiters[0].Rearm()
		h.Signal("b", "cpu", 1) // the second signal of waiter 0, while it looks
		for _, w := range waiters[1:] {
			w.Rearm()
		}
		waiters[0].Stop()
		check(t, "Stop", waiters[1:], 0, 1)
	})
	t.Run("names work as often as it took it", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 4)
		check(t, "four pieces", waiters, 0, 1, 2, 3)
		waiters[0].Rearm()
		h.Signal("a", "cpu", 1)
		for _, w := range waiters[1:] {
			w.Rearm()
		}
		waiters[0].Stop(k)
		check(t, "Stop", waiters[1:], 0)
	})
	t.Run("after a look that found nothing passes nothing on", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		h.Signal("a", "cpu", 1)
		check(t, "one piece", waiters, 0)
		waiters[0].Rearm()
		if ready(waiters[0].C()) {
			t.Error("a rearmed waiter is ready")
		}
		waiters[0].Stop()
		check(t, "Stop", waiters[1:])
	})
	t.Run("of an armed waiter frees its place", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		waiters[0].Stop()
		h.Signal("b", "cpu", 1)
		check(t, "one piece", waiters, 1)
	})
	t.Run("is final", func(t *testing.T) {
		t.Parallel()
		h, waiters := setup()
		waiters[0].Stop()
		waiters[0].Rearm()
		h.SignalAll("a")
		check(t, "all", waiters, 1, 2, 3)
	})
}

func TestWaiter_Rearm(t *testing.T) {
	t.Parallel()
	t.Run("keeps the place of an armed waiter", func(t *testing.T) {
		t.Parallel()
		h := hub.New()
		waiters := []*hub.Waiter{h.Wait([]string{"a"}, nil), h.Wait([]string{"a"}, nil)}
		waiters[0].Rearm()
		h.Signal("a", "", 1)
		check(t, "one piece", waiters, 0)
	})
	t.Run("takes an unread wake-up away", func(t *testing.T) {
		t.Parallel()
		h := hub.New()
		w := h.Wait([]string{"a"}, nil)
		h.Signal("a", "", 1)
		w.Rearm()
		if ready(w.C()) {
			t.Error("the wake-up before Rearm is still there")
		}
		h.Signal("a", "", 1)
		if !ready(w.C()) {
			t.Error("the wake-up after Rearm was lost")
		}
	})
	t.Run("passes on what nobody has looked for", func(t *testing.T) {
		t.Parallel()
		h := hub.New()
		w, other := h.Wait([]string{"a"}, nil), h.Wait([]string{"b", "a"}, nil)
		h.Signal("a", "", 1)
		w.Rearm()
		h.Signal("a", "", 1) // goes to other, which is the longest waiting
		other.Stop(hub.Kind{Key: "a"})
		h.Signal("a", "", 1) // goes to w, which has not yet said what became of the first
		third := h.Wait([]string{"a"}, nil)
		w.Rearm()
		if !ready(third.C()) {
			t.Error("the first signal got lost")
		}
	})
}

// table is the truth that the workers of the tests below look at: how many pieces of each kind lie there.
type table struct {
	mu    sync.Mutex
	lying map[hub.Kind]int
	left  int // pieces that nobody has taken, lying or still to come
}

func (tb *table) add(k hub.Kind) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.lying[k]++
}

// take takes up to limit pieces that stand under keys and are accepted.
func (tb *table) take(rng *rand.Rand, keys []string, accept func(string) bool, limit int) []hub.Kind {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	var kinds, got []hub.Kind
	for k, n := range tb.lying {
		for range n {
			if slices.Contains(keys, k.Key) && accept(k.Need) {
				kinds = append(kinds, k)
			}
		}
	}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, k := range kinds[:min(limit, len(kinds))] {
		tb.lying[k]--
		tb.left--
		got = append(got, k)
	}
	return got
}

var (
	lanes = []string{"a", "b", "c"}
	needs = []string{"x", "y", "z"}
)

func draw(rng *rand.Rand, from []string) []string {
	out := slices.Clone(from)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:1+rng.IntN(len(out))]
}

// No piece of work lies while somebody who would take it sleeps: checked after every step of a random interleaving of
// producers, waiters that look, take, find nothing, get lost between any two steps, and claimers who never wait.
func TestHub_Signal_NothingLies(t *testing.T) {
	t.Parallel()
	type worker struct {
		*hub.Waiter
		keys, needs []string
		asleep      bool
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := hub.New()
		tb := &table{lying: map[hub.Kind]int{}}
		var workers []*worker
		for step := range 400 {
			switch rng.IntN(16) {
			case 0, 1:
				k := hub.Kind{Key: lanes[rng.IntN(3)], Need: needs[rng.IntN(3)]}
				n := 1 + rng.IntN(2)
				for range n {
					tb.add(k)
				}
				h.Signal(k.Key, k.Need, n)
			case 2, 3, 4, 5:
				w := &worker{keys: draw(rng, lanes), needs: draw(rng, needs)}
				if rng.IntN(4) == 0 { // one who takes and never waits
					tb.take(rng, w.keys, only(w.needs...), 1)
					break
				}
				w.Waiter = h.Wait(w.keys, only(w.needs...))
				workers = append(workers, w)
			default:
				if len(workers) == 0 {
					break
				}
				i := rng.IntN(len(workers))
				w := workers[i]
				gone := rng.IntN(8) == 0
				switch {
				case gone:
					w.Stop()
				case w.asleep:
					if ready(w.C()) {
						w.Rearm()
						w.asleep = false
					}
				default:
					if got := tb.take(rng, w.keys, only(w.needs...), 1+rng.IntN(2)); got != nil {
						w.Stop(got...)
						gone = true
					} else {
						w.C()
						w.asleep = true
					}
				}
				if gone {
					workers = slices.Delete(workers, i, i+1)
				}
			}
			// Let everybody who is awake run to the end, on a coin, and see whether anything lies before a sleeper.
			if rng.IntN(10) != 0 {
				continue
			}
			for busy := true; busy; {
				busy = false
				for i := 0; i < len(workers); i++ {
					w := workers[i]
					if w.asleep && !ready(w.C()) {
						continue
					}
					if w.asleep {
						w.Rearm()
					}
					busy = true
					if got := tb.take(rng, w.keys, only(w.needs...), 1); got != nil {
						w.Stop(got...)
						workers = slices.Delete(workers, i, i+1)
						i--
					} else {
						w.C()
						w.asleep = true
					}
				}
			}
			for _, w := range workers {
				if got := tb.take(rng, w.keys, only(w.needs...), 1); got != nil {
					t.Fatalf("seed %d, step %d: %v lies, and the waiter for %v of %v sleeps", seed, step, got, w.needs, w.keys)
				}
			}
		}
	}
}

// The same with real goroutines: all work that comes is taken, though workers get lost and nobody ever polls.
func TestHub_Signal_Concurrently(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			const producers, pieces, workers = 4, 500, 24
			h := hub.New()
			tb := &table{lying: map[hub.Kind]int{}, left: producers * pieces}
			var wg sync.WaitGroup
			for p := range uint64(producers) {
				rng := rand.New(rand.NewPCG(seed, p))
				wg.Go(func() {
					for range pieces {
						k := hub.Kind{Key: lanes[rng.IntN(3)], Need: needs[rng.IntN(3)]}
						tb.add(k)
						h.Signal(k.Key, k.Need, 1)
					}
				})
			}
			for i := range uint64(workers) {
				rng := rand.New(rand.NewPCG(seed, 100+i))
				accept := only(needs[i%3], needs[(i+1)%3])
				keys := []string{lanes[i%3], lanes[(i/3)%3]}
				wg.Go(func() {
					for work(h, tb, rng, keys, accept) {
					}
				})
			}
			wg.Wait() // in a bubble work that lies before sleepers is a deadlock, which fails the test
			if tb.left != 0 {
				t.Errorf("%d pieces were left", tb.left)
			}
		})
	}
}

// work waits for work and takes it, or gets lost. It reports false when the hub is closed, which happens when all is done.
func work(h *hub.Hub, tb *table, rng *rand.Rand, keys []string, accept func(string) bool) bool {
	w := h.Wait(keys, accept)
	defer w.Stop()
	for {
		if got := tb.take(rng, keys, accept, 1+rng.IntN(3)); got != nil {
			w.Stop(got...)
			tb.mu.Lock()
			defer tb.mu.Unlock()
			if tb.left == 0 {
				h.Close()
			}
			return true
		}
		_, open := <-w.C()
		if !open {
			return false
		}
		if rng.IntN(4) == 0 {
			return true
		}
		w.Rearm()
		if rng.IntN(8) == 0 {
			return true
		}
	}
}

func BenchmarkHub_Signal(b *testing.B) {
	h := hub.New()
	waiters := make([]*hub.Waiter, 1000)
	for i := range waiters {
		waiters[i] = h.Wait([]string{"a"}, nil)
	}
	i := 0
	for b.Loop() {
		h.Signal("a", "cpu", 1)
		w := waiters[i%len(waiters)]
		<-w.C()
		w.Rearm()
		i++
	}
}
