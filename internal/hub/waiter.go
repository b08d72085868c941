package hub

import (
	"container/list"
	"slices"
)

// Kind names the work that a signal is about.
type Kind struct {
	Key  string // where it waits, such as a lane
	Need string // what its taker must accept, such as a set of capabilities
}

// Waiter is one who waits for work. It is armed by [Hub.Wait], gets at most one signal, and gets another one only after it
// has armed itself again. A signal is for one piece of work, and the waiter answers for it until it has taken such work
// or has seen that there is none; else the signal goes on to the next waiter that accepts it, so that no work lies while
// somebody waits for it. This is the whole protocol:
//
//	w := h.Wait(keys, accept)
//	defer w.Stop()
//	for {
//		if work := look(); work != nil {
//			w.Stop(kinds(work)...)
//			return work
//		}
//		select {
//		case _, open := <-w.C():
//			if !open {
//				return nil // the hub is closed
//			}
//			w.Rearm()
//		case <-ctx.Done():
//			return nil
//		}
//	}
//
// The methods of one waiter are for one goroutine.
type Waiter struct {
	hub    *Hub
	keys   []string
	accept func(need string) bool
	c      chan struct{}

	// All below is guarded by hub.mu.

	places  []*list.Element // in the queue of each key; empty unless the waiter is armed
	held    *Kind           // the signal that came since the waiter was armed
	looking *Kind           // the signal before it, until the look that it asked for has ended
	stopped bool
}

// Wait arms a waiter at the back of the queue of each of keys. It is woken by a signal whose need it accepts; a nil accept
// accepts all. accept is called while the hub is locked: it must be quick and must not call the hub. The caller must Stop
// the waiter.
func (h *Hub) Wait(keys []string, accept func(need string) bool) *Waiter {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	w := &Waiter{hub: h, keys: slices.Compact(keys), accept: accept, c: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.arm()
	return w
}

// C returns the channel on which the wake-up comes; the closing of the hub closes it. Calling C says that the look at the
// table, made since the waiter was armed, found nothing: the signal that had asked for it is settled by that. So it is
// called once for each wait, after the look.
func (w *Waiter) C() <-chan struct{} {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.looking = nil
	return w.c
}

// Rearm puts a waiter that was woken at the back of its queues. To miss nothing, rearm first, then look at the table, then
// wait. A waiter that is still armed keeps its place.
func (w *Waiter) Rearm() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.stopped || w.armed() {
		return
	}
	select {
	case <-w.c:
	default:
	}
	if w.looking != nil {
		h.signal(w.looking, 1)
	}
	w.looking, w.held = w.held, nil
	w.arm()
}

// Stop ends the waiting. The caller names the kinds of the work that it has taken, a kind as often as it took work of it;
// each settles one signal of that kind. What else the waiter was signalled for is passed on to the next waiter that
// accepts it. Naming too little costs one look of somebody else, naming work that was not taken leaves work lying. Only
// the first call of Stop counts.
func (w *Waiter) Stop(took ...Kind) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	w.leave()
	open := [2]*Kind{w.looking, w.held}
	w.looking, w.held = nil, nil
	for _, kind := range took {
		for i, signal := range open {
			if signal != nil && *signal == kind {
				open[i] = nil
				break
			}
		}
	}
	for _, signal := range open {
		if signal != nil {
			h.signal(signal, 1)
		}
	}
}

func (w *Waiter) armed() bool { return len(w.places) > 0 }

func (w *Waiter) arm() {
	h := w.hub
	if h.closed {
		w.close()
		return
	}
	for _, key := range w.keys {
		q, ok := h.queues[key]
		if !ok {
			q = list.New()
			h.queues[key] = q
		}
		w.places = append(w.places, q.PushBack(w))
	}
}

func (w *Waiter) leave() {
	for i, place := range w.places {
		q := w.hub.queues[w.keys[i]]
		q.Remove(place)
		if q.Len() == 0 {
			delete(w.hub.queues, w.keys[i])
		}
	}
	w.places = w.places[:0]
}

func (w *Waiter) wake(kind *Kind) {
	w.leave()
	w.held = kind
	w.c <- struct{}{}
}

func (w *Waiter) close() {
	w.leave()
	w.stopped = true
	close(w.c)
}

func waiterAt(e *list.Element) *Waiter {
	w, _ := e.Value.(*Waiter)
	return w
}
