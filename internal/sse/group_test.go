package sse_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/sse"
)

// A log that ends ends its streams, those that have come up to its end and those that are still on the way, after the same last
// event.
func TestTail_Final(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		h.log.add(repeat("flow", 250)...)
		early := h.subscribe(0, nil)
		checkNews(t, early, events("flow", 1, 250))
		h.log.add("flow")
		checkNews(t, early, events("flow", 251, 251))
		bye := sse.AppendFrame(nil, 251, "closed", []byte(`{}`))
		h.log.end(bye)
		last := event{"251", "closed", "{}"}
		checkNews(t, early, []event{last})
		checkEnded(t, early, nil)
		late := h.subscribe(0, nil)
		checkNews(t, late, append(events("flow", 1, 251), last))
		checkEnded(t, late, nil)
		seen := h.subscribe(251, nil)
		checkNews(t, seen, []event{last})
		checkEnded(t, seen, nil)
	})
}

// What a filter hides does not keep a stream from ending.
func TestTail_Final_Filtered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		s := h.subscribe(0, topic("none"))
		settle()
		h.log.add("flow")
		h.log.end(nil)
		checkNews(t, s, nil)
		checkEnded(t, s, nil)
	})
}

// Ids that are texts stand in frames, comments and the events of the stream's own.
func TestTail_Spell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{Spell: func(id int64) string { return fmt.Sprintf("a/%d", id) }})
		h.log.add("flow")
		s := h.subscribe(sse.FromNow, nil)
		checkText(t, s, ":\nretry: 2000\nid: a/1\n\n")
		h.log.add("hidden")
		time.Sleep(15 * time.Second)
		checkText(t, s, ": ping\nid: a/2\n\n")
		h.log.trim(2)
		old := h.subscribe(0, nil)
		checkNews(t, old, []event{{"a/1", "reset", `{"oldest":"a/2"}`}})
		h.tail.Close()
		checkText(t, s, "id: a/2\nevent: bye\ndata: {\"after\":\"a/2\"}\n\n")
	})
}

// library is some logs and the group that serves them.
type library struct {
	t       *testing.T
	group   *sse.Group[string]
	logs    map[string]*memlog
	opened  map[string]int
	mu      sync.Mutex
	stopped map[string]int
}

func newLibrary(t *testing.T, names ...string) *library {
	t.Helper()
	l := &library{t: t, logs: map[string]*memlog{}, opened: map[string]int{}, stopped: map[string]int{}}
	for _, name := range names {
		l.logs[name] = newLog()
	}
	l.group = sse.NewGroup(func(name string) sse.Log {
		l.opened[name]++
		return sse.Log{Source: l.logs[name], Wake: l.logs[name].wake, Stop: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.stopped[name]++
		}}
	})
	t.Cleanup(func() {
		l.group.Close()
		l.group.Wait()
	})
	return l
}

// follow opens a stream of some logs, one after the other.
func (l *library) follow(names ...string) *subscriber {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	s := &subscriber{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for i, name := range names {
			ended, err := l.group.Part(ctx, wrapped{&s.conn}, name, 0, nil, i == 0)
			if s.err = err; err != nil || !ended {
				return
			}
		}
	}()
	l.t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	synctest.Wait()
	return s
}

// A group reads each log once for all who follow it, and forgets it with the last of them.
func TestGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLibrary(t, "a", "b")
		l.logs["a"].add("flow")
		first, second, other := l.follow("a"), l.follow("a"), l.follow("b")
		l.logs["a"].add("flow")
		for _, s := range []*subscriber{first, second} {
			checkNews(t, s, events("flow", 1, 2))
		}
		checkNews(t, other, nil)
		reads := l.logs["a"].readCount()
		l.logs["a"].add("flow")
		settle()
		if got := l.logs["a"].readCount() - reads; got != 1 || l.group.Subscribers() != 3 {
			t.Errorf("%d reads for two, of %d", got, l.group.Subscribers())
		}
		first.cancel()
		<-first.ended
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, l.opened); diff != "" || len(l.stopped) != 0 {
			t.Errorf("%v were stopped; opened:\n%s", l.stopped, diff)
		}
		second.cancel()
		<-second.ended
		synctest.Wait()
		if l.stopped["a"] != 1 || l.group.Subscribers() != 1 {
			t.Errorf("stopped %v, %d are left", l.stopped, l.group.Subscribers())
		}
		again := l.follow("a")
		checkNews(t, again, events("flow", 1, 3))
		if l.opened["a"] != 2 {
			t.Errorf("opened %v", l.opened)
		}
		l.group.Close()
		checkNews(t, again, []event{{"3", "bye", `{"after":3}`}})
		checkEnded(t, again, nil)
		checkEnded(t, other, nil)
		late := l.follow("b")
		if <-late.ended; !errors.Is(late.err, sse.ErrClosed) {
			t.Errorf("after Close: %v", late.err)
		}
	})
}

// One response goes through several logs, and greets once.
func TestGroup_Parts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLibrary(t, "a", "b", "c")
		l.logs["a"].add("one")
		s := l.follow("a", "b", "c")
		checkText(t, s, ":\nretry: 2000\n\nid: 1\nevent: one\ndata: 1\n\n")
		l.logs["a"].end(sse.AppendFrame(nil, 1, "closed", nil))
		checkText(t, s, "id: 1\nevent: closed\ndata: \n\n")
		l.logs["b"].end(nil)
		checkText(t, s, "")
		l.logs["c"].add("two")
		checkText(t, s, "id: 1\nevent: two\ndata: 1\n\n")
		if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, l.stopped); diff != "" {
			t.Errorf("stopped:\n%s", diff)
		}
	})
}
