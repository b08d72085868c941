// Package hub wakes goroutines of this process that wait for a change of the database.
//
// A wake-up carries no data: it says "look again", and what is true stands in the tables alone. So nothing can be lost,
// reordered or repeated between a commit and those who wait for it, and a wake-up too many costs one look.
//
// There are two kinds. A broadcast ([Hub.Broadcast], [Hub.Watch]) wakes everybody who watches a key. A signal
// ([Hub.Signal], [Hub.Wait]) says that n pieces of work have come and wakes n of those who wait for such work, the longest
// waiting first. Both are safe against a change between the look and the wait, as long as the order is kept: first the
// channel, then the look, then the wait.
//
// A Hub and all its methods may be used by any number of goroutines. None of them blocks.
package hub

import (
	"container/list"
	"sync"
)

// Hub is the meeting place of those who change and those who wait. It is made by [New].
type Hub struct {
	done chan struct{}

	mu      sync.Mutex
	closed  bool
	watched map[string]chan struct{}
	queues  map[string]*list.List // of armed *Waiter, the longest waiting first; never empty
}

// New returns an open hub.
func New() *Hub {
	return &Hub{
		done:    make(chan struct{}),
		watched: make(map[string]chan struct{}),
		queues:  make(map[string]*list.List),
	}
}

// Close wakes everybody for good: it closes Done, every channel that Watch has returned or will return, and the channel of
// every waiter. Later signals and broadcasts do nothing. Close may be called more than once.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	close(h.done)
	for key := range h.watched {
		h.broadcast(key)
	}
	for _, q := range h.queues {
		for q.Len() > 0 {
			waiterAt(q.Front()).close()
		}
	}
}

// Done returns a channel that is closed by Close. Who loops over Watch must look at it, because a closed hub's channels
// are always ready.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Watch returns a channel that the next Broadcast of key closes. To miss nothing, take the channel, then look at the
// table, then wait. A key that is watched is remembered until it is broadcast: keys are a small, fixed set of names.
func (h *Hub) Watch(key string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.done
	}
	c, ok := h.watched[key]
	if !ok {
		c = make(chan struct{})
		h.watched[key] = c
	}
	return c
}

// Broadcast wakes everybody who watches key. It costs next to nothing when nobody does.
func (h *Hub) Broadcast(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broadcast(key)
}

func (h *Hub) broadcast(key string) {
	if c, ok := h.watched[key]; ok {
		close(c)
		delete(h.watched, key)
	}
}

// Signal says that n pieces of work that need need have come under key. It wakes at most n of the waiters of key that
// accept need, the longest waiting first. What nobody is armed for is forgotten: whoever comes later looks at the table
// before it waits.
func (h *Hub) Signal(key, need string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signal(&Kind{Key: key, Need: need}, n)
}

func (h *Hub) signal(kind *Kind, n int) {
	q, ok := h.queues[kind.Key]
	if !ok {
		return
	}
	for e := q.Front(); e != nil && n > 0; {
		w := waiterAt(e)
		e = e.Next()
		if w.accept == nil || w.accept(kind.Need) {
			w.wake(kind)
			n--
		}
	}
}

// SignalAll wakes every waiter of key, whatever it accepts. It is for changes of which only the key is known, such as
// those of another process. Such a wake-up is not passed on, since everybody had it.
func (h *Hub) SignalAll(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q, ok := h.queues[key]
	if !ok {
		return
	}
	for q.Len() > 0 {
		waiterAt(q.Front()).wake(nil)
	}
}
