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

// fourWaiters are four that wait for the same.
func fourWaiters() (*hub.Hub, []*hub.Waiter) {
	h := hub.New()
	waiters := make([]*hub.Waiter, 4)
	for i := range waiters {
		waiters[i] = h.Wait([]string{"a", "b", "a"}, only("cpu"))
	}
	return h, waiters
}

func TestWaiter_Stop(t *testing.T) {
	t.Parallel()
	t.Run("without having taken the work passes it on", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop()
		waiters[0].Stop()
		check(t, "Stop", waiters[1:], 0)
		waiters[1].Stop()
		check(t, "Stop of the next", waiters[2:], 0)
	})
	t.Run("having taken the work keeps it", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop(hub.Kind{Key: "a", Need: "cpu"})
		check(t, "Stop", waiters[1:])
	})
	t.Run("having taken other work passes it on", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		h.Signal("a", "cpu", 1)
		waiters[0].Stop(hub.Kind{Key: "b", Need: "cpu"})
		check(t, "Stop", waiters[1:], 0)
	})
	t.Run("of an armed waiter frees its place", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		waiters[0].Stop()
		h.Signal("b", "cpu", 1)
		check(t, "one piece", waiters, 1)
	})
	t.Run("is final", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		waiters[0].Stop()
		waiters[0].Rearm()
		h.SignalAll("a")
		check(t, "all", waiters, 1, 2, 3)
	})
}

// TestWaiter_Stop_looked: what is passed on by a waiter that has looked, and looked again.
func TestWaiter_Stop_looked(t *testing.T) {
	t.Parallel()
	t.Run("after an unfinished look passes both signals on", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
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
		h, waiters := fourWaiters()
		h.Signal("a", "cpu", 4)
		check(t, "four pieces", waiters, 0, 1, 2, 3)
		waiters[0].Rearm()
		h.Signal("a", "cpu", 1)
		for _, w := range waiters[1:] {
			w.Rearm()
		}
		waiters[0].Stop(hub.Kind{Key: "a", Need: "cpu"})
		check(t, "Stop", waiters[1:], 0)
	})
	t.Run("after a look that found nothing passes nothing on", func(t *testing.T) {
		t.Parallel()
		h, waiters := fourWaiters()
		h.Signal("a", "cpu", 1)
		check(t, "one piece", waiters, 0)
		waiters[0].Rearm()
		if ready(waiters[0].C()) {
			t.Error("a rearmed waiter is ready")
		}
		waiters[0].Stop()
		check(t, "Stop", waiters[1:])
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
	for seed := range uint64(200) {
		f := &floor{rng: rand.New(rand.NewPCG(seed, 1)), hub: hub.New(), table: &table{lying: map[hub.Kind]int{}}}
		for step := range 400 {
			switch f.rng.IntN(16) {
			case 0, 1:
				f.produce()
			case 2, 3, 4, 5:
				f.enter()
			default:
				f.move()
			}
			if f.rng.IntN(10) != 0 {
				continue
			}
			f.finish()
			for _, w := range f.workers {
				if got := f.take(w, 1); got != nil {
					t.Fatalf("seed %d, step %d: %v lies, and the waiter for %v of %v sleeps", seed, step, got, w.needs, w.keys)
				}
			}
		}
	}
}

// sleeper is somebody who takes from the table, and sleeps while nothing lies there.
type sleeper struct {
	*hub.Waiter
	keys, needs []string
	asleep      bool
}

// floor is where sleepers wait for work, at random.
type floor struct {
	rng     *rand.Rand
	hub     *hub.Hub
	table   *table
	workers []*sleeper
}

func (f *floor) take(w *sleeper, limit int) []hub.Kind {
	return f.table.take(f.rng, w.keys, only(w.needs...), limit)
}

// produce puts work on the table and signals it.
func (f *floor) produce() {
	k := hub.Kind{Key: lanes[f.rng.IntN(3)], Need: needs[f.rng.IntN(3)]}
	n := 1 + f.rng.IntN(2)
	for range n {
		f.table.add(k)
	}
	f.hub.Signal(k.Key, k.Need, n)
}

// enter lets somebody come: one who waits, or one who takes and never does.
func (f *floor) enter() {
	w := &sleeper{keys: draw(f.rng, lanes), needs: draw(f.rng, needs)}
	if f.rng.IntN(4) == 0 {
		f.take(w, 1)
		return
	}
	w.Waiter = f.hub.Wait(w.keys, only(w.needs...))
	f.workers = append(f.workers, w)
}

// move lets somebody do a step: get lost, wake up, or look.
func (f *floor) move() {
	if len(f.workers) == 0 {
		return
	}
	i := f.rng.IntN(len(f.workers))
	w := f.workers[i]
	gone := f.rng.IntN(8) == 0
	switch {
	case gone:
		w.Stop()
	case w.asleep:
		if ready(w.C()) {
			w.Rearm()
			w.asleep = false
		}
	default:
		gone = f.look(w, 1+f.rng.IntN(2))
	}
	if gone {
		f.workers = slices.Delete(f.workers, i, i+1)
	}
}

// look lets somebody take what it finds and go, or fall asleep. It says whether it has gone.
func (f *floor) look(w *sleeper, limit int) bool {
	if got := f.take(w, limit); got != nil {
		w.Stop(got...)
		return true
	}
	w.C()
	w.asleep = true
	return false
}

// finish lets everybody who is awake run to the end.
func (f *floor) finish() {
	for busy := true; busy; {
		busy = false
		for i := 0; i < len(f.workers); i++ {
			w := f.workers[i]
			if w.asleep && !ready(w.C()) {
				continue
			}
			if w.asleep {
				w.Rearm()
			}
			busy = true
			if f.look(w, 1) {
				f.workers = slices.Delete(f.workers, i, i+1)
				i--
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
