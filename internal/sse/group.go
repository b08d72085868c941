package sse

import (
	"context"
	"net/http"
	"sync"
)

// Log is one of many logs, as a [Group] opens it.
type Log struct {
	Source  Source
	Wake    func() <-chan struct{} // as for [NewTail]; it is called by one goroutine
	Stop    func()                 // is called when nobody follows the log any more
	Options Options
}

// Group keeps a tail for each log that somebody follows: it is made for the first subscriber and dropped with the last. It is
// made by [NewGroup].
type Group[K comparable] struct {
	open func(key K) Log

	mu     sync.Mutex
	tails  map[K]*shared
	closed bool
	done   sync.WaitGroup // the tails that run
}

// shared is a tail with its subscribers.
type shared struct {
	*Tail
	subscribers int
}

// NewGroup returns a group of the logs that open opens. open must not block.
func NewGroup[K comparable](open func(key K) Log) *Group[K] {
	return &Group[K]{open: open, tails: map[K]*shared{}}
}

// Part is [Tail.Part] of the log called key.
func (g *Group[K]) Part(ctx context.Context, w http.ResponseWriter, key K, after int64, filter Filter, first bool) (ended bool, err error) {
	t, err := g.enter(key)
	if err != nil {
		return false, err
	}
	defer g.leave(key, t)
	return t.Part(ctx, w, after, filter, first)
}

// Subscribers returns how many streams are open.
func (g *Group[K]) Subscribers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, t := range g.tails {
		n += t.subscribers
	}
	return n
}

// Close ends all streams as [Tail.Close] does, and lets no new one begin. It does not wait for them; [Group.Wait] does. It may
// be called more than once.
func (g *Group[K]) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, t := range g.tails {
		t.Close()
	}
}

// Wait returns when nothing of a closed group runs any more.
func (g *Group[K]) Wait() { g.done.Wait() }

func (g *Group[K]) enter(key K) (*shared, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	t, ok := g.tails[key]
	if !ok {
		log := g.open(key)
		t = &shared{Tail: NewTail(log.Source, log.Wake, log.Options)}
		g.tails[key] = t
		g.done.Go(func() {
			defer log.Stop()
			_ = t.Run(context.Background()) // it fails only when it is called twice
		})
	}
	t.subscribers++
	return t, nil
}

func (g *Group[K]) leave(key K, t *shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.subscribers--; t.subscribers == 0 {
		delete(g.tails, key)
		t.Close()
	}
}
