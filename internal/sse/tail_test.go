package sse_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/sse"
)

// The first event after a silence goes at once; what comes within the window after it goes together.
func TestTail_Window(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const subscribers, window = 200, 10 * time.Millisecond
		h := open(t, sse.Options{})
		first := h.subscribe(sse.FromNow, nil)
		for range subscribers - 1 {
			h.subscribe(sse.FromNow, nil)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		first.text()
		begin := time.Now()
		reads := h.log.readCount()
		for range 25 { // one each millisecond, from 0 to 24
			h.log.add("flow")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		h.log.add("flow")
		synctest.Wait()

		type window10 struct {
			At     time.Duration
			Events int
		}
		var got []window10
		for _, w := range first.written() {
			first.feed(w.text)
			got = append(got, window10{w.at.Sub(begin), len(first.client.dispatched())})
		}
		want := []window10{
			{0, 1},
			{window, 10},
			{2 * window, 10},
			{3 * window, 4},
			{1025 * time.Millisecond, 1},
		}
		// Whether the event of the very moment in which a window ends goes with it is left to chance.
		total := 0
		for i := range got {
			total += got[i].Events
			if i < len(want) && got[i].Events >= want[i].Events-1 && got[i].Events <= want[i].Events+1 {
				got[i].Events = want[i].Events
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || total != 26 {
			t.Errorf("%d events in other windows (-want +got):\n%s", total, diff)
		}
		if got := h.log.readCount() - reads; got != len(want) {
			t.Errorf("%d reads for %d windows and %d subscribers", got, len(want), subscribers)
		}
	})
}

func TestTail_Window_IsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		s := h.subscribe(sse.FromNow, nil)
		for range 2999 { // 150 ms, were there no bound
			h.subscribe(sse.FromNow, topic("none"))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		s.text()
		begin := time.Now()
		h.log.add("flow")
		synctest.Wait()
		h.log.add("flow")
		time.Sleep(time.Second)
		var got []time.Duration
		for _, w := range s.written() {
			got = append(got, w.at.Sub(begin))
		}
		if diff := cmp.Diff([]time.Duration{0, 100 * time.Millisecond}, got); diff != "" {
			t.Errorf("written at other times (-want +got):\n%s", diff)
		}
	})
}

// While nobody subscribes the log is left alone, and who comes then starts at its end.
func TestTail_Idle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		h.log.add(repeat("flow", 10)...)
		time.Sleep(time.Hour)
		h.log.add("flow")
		synctest.Wait()
		if got := h.log.readCount(); got != 0 {
			t.Errorf("%d reads before the first subscriber", got)
		}

		for round := range int64(3) {
			s := h.subscribe(sse.FromNow, nil)
			synctest.Wait()
			s.text()
			h.log.add("flow")
			id := 12 + 1001*round
			checkNews(t, s, events("flow", id, id))
			s.cancel()
			<-s.ended
			time.Sleep(10 * time.Second)
			before := h.log.readCount()
			h.log.add(repeat("flow", 1000)...)
			time.Sleep(time.Hour)
			if got := h.log.readCount() - before; got != 0 {
				t.Errorf("%d reads after the last subscriber has left", got)
			}
		}
	})
}

// Who leaves and comes back before the tail has noticed misses nothing.
func TestTail_LastLeavesFirstComes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		for id := int64(1); id <= 200; id++ {
			s := h.subscribe(id-1, nil)
			if id%3 == 0 {
				synctest.Wait()
			}
			h.log.add("flow")
			checkNews(t, s, events("flow", id, id))
			s.cancel()
			<-s.ended
			if id%5 == 0 {
				time.Sleep(6 * time.Second)
			}
		}
	})
}

// What comes while the log is being read is not left to the poll, nor what comes while a subscriber catches up.
func TestTail_NothingIsOverlooked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		s := h.subscribe(0, nil)
		settle()
		h.log.mu.Lock()
		h.log.onRead = func() { h.log.add("flow") }
		h.log.mu.Unlock()
		h.log.add("flow")
		checkNews(t, s, events("flow", 1, 2))

		h.log.mu.Lock()
		h.log.onRead = func() {
			h.log.add("flow")
			settle()
		}
		h.log.mu.Unlock()
		late := h.subscribe(1, nil)
		time.Sleep(50 * time.Millisecond)
		checkNews(t, s, events("flow", 3, 3))
		checkNews(t, late, events("flow", 2, 3))
	})
}

func TestTail_Polls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := newLog()
		deaf := make(chan struct{})
		tail := sse.NewTail(log, func() <-chan struct{} { return deaf }, sse.Options{})
		h := &house{t: t, log: log, tail: tail}
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- tail.Run(ctx) }()
		s := h.subscribe(sse.FromNow, nil)
		synctest.Wait()
		log.add("flow")
		checkNews(t, s, nil)
		time.Sleep(5 * time.Second)
		checkNews(t, s, events("flow", 1, 1))
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		checkNews(t, s, []event{{"1", "bye", `{"after":1}`}})
	})
}

// A wake-up that has nothing to tell, even one that never ends, does not make the tail spin.
func TestTail_WakesForNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := newLog()
		closed := make(chan struct{})
		close(closed)
		tail := sse.NewTail(log, func() <-chan struct{} { return closed }, sse.Options{})
		done := make(chan error)
		go func() { done <- tail.Run(t.Context()) }()
		h := &house{t: t, log: log, tail: tail}
		s := h.subscribe(sse.FromNow, nil)
		time.Sleep(time.Second)
		if got := log.readCount(); got > 1001 {
			t.Errorf("%d reads in a second", got)
		}
		log.add("flow")
		time.Sleep(time.Millisecond)
		checkNews(t, s, events("flow", 1, 1))
		tail.Close()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

func TestTail_Run(t *testing.T) {
	t.Parallel()
	t.Run("goes on after failures", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			s := h.subscribe(0, nil)
			synctest.Wait()
			h.log.setBroken(true)
			h.log.add("flow")
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := len(h.errs); got < 10 || got > 20 || !errors.Is(h.errs[0], errDown) {
				t.Errorf("%d errors in a minute: %v", got, h.errs[0])
			}
			h.log.setBroken(false)
			time.Sleep(5 * time.Second)
			checkNews(t, s, events("flow", 1, 1))
		})
	})
	t.Run("begins though the log cannot be read yet", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			h.log.setBroken(true)
			s := h.subscribe(0, nil)
			time.Sleep(time.Second)
			h.log.setBroken(false)
			h.log.add("flow")
			time.Sleep(5 * time.Second)
			checkNews(t, s, events("flow", 1, 1))
		})
	})
	t.Run("runs once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			synctest.Wait()
			if err := h.tail.Run(t.Context()); err == nil {
				t.Error("the second Run() = nil")
			}
			h.subscribe(0, nil)
			synctest.Wait()
			if got := h.tail.Subscribers(); got != 1 {
				t.Errorf("the second Run disturbed the first: Subscribers() = %d, want 1", got)
			}
		})
	})
	t.Run("ends at once on a closed tail", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			log := newLog()
			tail := sse.NewTail(log, log.wake, sse.Options{})
			tail.Close()
			if err := tail.Run(t.Context()); err != nil {
				t.Errorf("Run() = %v", err)
			}
		})
	})
}
