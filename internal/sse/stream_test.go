package sse_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/sse"
)

// bubble runs test with a clock of its own.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// settle waits until everything has happened that need not wait for a ping or a poll.
func settle() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

func checkNews(t *testing.T, s *subscriber, want []event) {
	t.Helper()
	settle()
	if diff := cmp.Diff(want, s.news()); diff != "" {
		t.Errorf("other events (-want +got):\n%s", diff)
	}
}

func checkText(t *testing.T, s *subscriber, want string) {
	t.Helper()
	settle()
	if diff := cmp.Diff(want, s.text()); diff != "" {
		t.Errorf("other bytes (-want +got):\n%s", diff)
	}
}

func checkEnded(t *testing.T, s *subscriber, want error) {
	t.Helper()
	settle()
	select {
	case <-s.ended:
		if !errors.Is(s.err, want) {
			t.Errorf("Stream() = %v, want %v", s.err, want)
		}
	default:
		t.Error("the stream goes on")
	}
}

func TestTail_Stream_Begins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{Generation: func() string { return "g1" }})
		h.log.add(repeat("flow", 3)...)

		resumed := h.subscribe(2, nil)
		settle()
		header := http.Header{
			"Content-Type":      {"text/event-stream"},
			"Cache-Control":     {"no-store, no-transform"},
			"X-Accel-Buffering": {"no"},
		}
		if diff := cmp.Diff(header, resumed.header); diff != "" || resumed.status != http.StatusOK {
			t.Errorf("status %d, headers (-want +got):\n%s", resumed.status, diff)
		}
		checkText(t, resumed, ": generation g1\nretry: 2000\n\nid: 3\nevent: flow\ndata: 3\n\n")
		if resumed.flushes != 2 {
			t.Errorf("%d flushes for two writes", resumed.flushes)
		}
		if !resumed.deadline.IsZero() {
			t.Error("the deadline was left standing after the write")
		}

		fresh := h.subscribe(sse.FromNow, nil)
		checkText(t, fresh, ": generation g1\nretry: 2000\nid: 3\n\n")
		h.log.add("flow")
		checkText(t, fresh, "id: 4\nevent: flow\ndata: 4\n\n")
		checkText(t, resumed, "id: 4\nevent: flow\ndata: 4\n\n")
	})
}

func TestTail_Stream_FirstBytesDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := newLog()
		tail := sse.NewTail(log, log.wake, sse.Options{}) // not running
		h := &house{t: t, log: log, tail: tail}
		s := h.subscribe(0, nil)
		checkText(t, s, ":\nretry: 2000\n\n")
		time.Sleep(15 * time.Second)
		checkText(t, s, ": ping\n\n")
		tail.Close()
		checkEnded(t, s, nil)
	})
}

func TestTail_Stream_CatchesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		h.log.add(repeat("flow", 1234)...)
		all, some := h.subscribe(0, nil), h.subscribe(1100, topic("flow"))
		checkNews(t, all, events("flow", 1, 1234))
		checkNews(t, some, events("flow", 1101, 1234))
		h.log.add(repeat("flow", 250)...)
		checkNews(t, all, events("flow", 1235, 1484))
		checkNews(t, some, events("flow", 1235, 1484))
	})
}

func TestTail_Stream_Filters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		flows, runs, none := h.subscribe(0, topic("flow")), h.subscribe(0, topic("run")), h.subscribe(0, topic("none"))
		all := h.subscribe(0, nil)
		settle()
		for _, s := range []*subscriber{flows, runs, none, all} {
			s.text()
		}
		h.log.add("flow", "flow", "run", "flow")
		checkText(t, flows, "id: 1\nevent: flow\ndata: 1\n\nid: 2\nevent: flow\ndata: 2\n\nid: 4\nevent: flow\ndata: 4\n\n")
		checkText(t, runs, "id: 3\nevent: run\ndata: 3\n\n")
		checkText(t, none, "")
		if got := all.written(); len(got) != 1 {
			t.Errorf("without a filter, %d writes for one chunk", len(got))
		}
		if runs.flushes != 2 || none.flushes != 1 {
			t.Errorf("%d and %d flushes, want 2 and 1", runs.flushes, none.flushes)
		}
	})
}

// What a filter hides still moves the cursor, with the comment that keeps the connection alive.
func TestTail_Stream_Pings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		runs := h.subscribe(0, topic("run"))
		checkText(t, runs, ":\nretry: 2000\n\n")
		h.log.add("flow", "flow")
		checkText(t, runs, "")
		time.Sleep(15 * time.Second)
		checkText(t, runs, ": ping\nid: 2\n\n")
		time.Sleep(15 * time.Second)
		checkText(t, runs, ": ping\n\n")
		h.log.add("run", "flow", "hidden")
		checkText(t, runs, "id: 3\nevent: run\ndata: 3\n\n")
		time.Sleep(15 * time.Second)
		checkText(t, runs, ": ping\nid: 5\n\n")

		runs.feed("id: 5\nevent: run\ndata: 5\n\n: ping\nid: 9\n\n")
		if got := runs.client.dispatched(); len(got) != 1 || runs.lastID != "9" {
			t.Errorf("a comment with an id gave the events %v and the last id %s, want one and 9", got, runs.lastID)
		}
	})
}

// What the source itself does not show moves the cursor too, though the ring gets no chunk of it.
func TestTail_Stream_PassesWhatTheSourceHides(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		s := h.subscribe(0, nil)
		h.log.add("flow")
		checkNews(t, s, events("flow", 1, 1))
		h.log.add(repeat("hidden", 500)...)
		checkText(t, s, "")
		time.Sleep(15 * time.Second)
		checkText(t, s, ": ping\nid: 501\n\n")
		h.log.add("hidden", "flow")
		checkNews(t, s, events("flow", 503, 503))
		h.log.add("hidden")
		settle()
		h.tail.Close()
		checkText(t, s, "id: 504\nevent: bye\ndata: {\"after\":504}\n\n")
	})
}

func TestTail_Stream_TellsTheCursorWhileItCatchesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		h.log.add(repeat("flow", 250)...)
		h.log.add("run")
		s := h.subscribe(0, topic("run"))
		checkText(t, s, ":\nretry: 2000\n\n: ping\nid: 100\n\n: ping\nid: 200\n\nid: 251\nevent: run\ndata: 251\n\n")
	})
}

func TestTail_Stream_Resets(t *testing.T) {
	t.Parallel()
	t.Run("a trimmed cursor", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			h.log.add(repeat("flow", 300)...)
			h.log.trim(201)
			s := h.subscribe(42, nil)
			want := append([]event{{"200", "reset", `{"oldest":201}`}}, events("flow", 201, 300)...)
			checkNews(t, s, want)
			h.log.add("flow")
			checkNews(t, s, events("flow", 301, 301))
		})
	})
	t.Run("a cursor ahead of the log", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			h.log.add(repeat("flow", 3)...)
			s := h.subscribe(1000, nil)
			checkNews(t, s, append([]event{{"0", "reset", `{"oldest":1}`}}, events("flow", 1, 3)...))
			h.log.add("flow")
			checkNews(t, s, events("flow", 4, 4))
		})
	})
	t.Run("a log that was replaced meanwhile", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			s := h.subscribe(sse.FromNow, nil)
			h.log.add(repeat("flow", 3)...)
			checkNews(t, s, events("flow", 1, 3))
			h.log.restart(1_000_001)
			checkNews(t, s, []event{{"1000000", "reset", `{"oldest":1000001}`}})
			h.log.add("flow")
			checkNews(t, s, events("flow", 1_000_001, 1_000_001))
			h.log.restart(1)
			h.log.add("flow")
			checkNews(t, s, append([]event{{"0", "reset", `{"oldest":1}`}}, events("flow", 1, 1)...))
			h.log.add("flow")
			checkNews(t, s, events("flow", 2, 2))
		})
	})
	t.Run("nobody who is up to date when the log is trimmed", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			s := h.subscribe(sse.FromNow, nil)
			h.log.add(repeat("flow", 3)...)
			checkNews(t, s, events("flow", 1, 3))
			h.log.trim(4)
			h.log.add("flow")
			checkNews(t, s, events("flow", 4, 4))
		})
	})
}

func TestTail_Stream_Lags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{MaxLag: 1 << 20})
		slow, quick := h.subscribe(sse.FromNow, nil), h.subscribe(sse.FromNow, nil)
		h.log.add("flow")
		checkNews(t, slow, events("flow", 1, 1))
		release := slow.stall()
		for range 9 {
			h.log.addSized(200<<10, "big")
			time.Sleep(time.Second)
		}
		settle()
		if got := len(quick.news()); got != 10 {
			t.Errorf("the quick one got %d events, want 10", got)
		}
		release()
		settle()
		news := slow.news()
		if len(news) != 2 || news[0].Name != "big" {
			t.Fatalf("the slow one got %d events, want the one that was being written and the last", len(news))
		}
		if diff := cmp.Diff(event{"2", "lagged", `{"after":2}`}, news[1]); diff != "" {
			t.Errorf("last event (-want +got):\n%s", diff)
		}
		checkEnded(t, slow, nil)
		if got := h.tail.Subscribers(); got != 1 {
			t.Errorf("Subscribers() = %d, want 1", got)
		}
	})
}

// A subscriber that is behind by less than the bound gets everything, also when pings come in between.
func TestTail_Stream_RecoversFromAShortStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{Ping: 100 * time.Millisecond})
		s := h.subscribe(sse.FromNow, nil)
		for round := range int64(20) {
			settle()
			s.news()
			release := s.stall()
			for range 20 {
				h.log.add(repeat("flow", 5)...)
				time.Sleep(100 * time.Millisecond)
			}
			checkNews(t, s, nil)
			release()
			checkNews(t, s, events("flow", 100*round+1, 100*round+100))
		}
	})
}

func TestTail_Stream_DeadConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{WriteTimeout: 3 * time.Second})
		s := h.subscribe(sse.FromNow, nil)
		settle()
		s.stall()
		h.log.add("flow")
		begin := time.Now()
		<-s.ended
		if !errors.Is(s.err, os.ErrDeadlineExceeded) || time.Since(begin) != 3*time.Second {
			t.Errorf("Stream() = %v after %s, want a passed deadline after 3s", s.err, time.Since(begin))
		}
	})
}

// A deadline is for 64 KiB, so that a slow line is not taken for a dead one.
func TestTail_Stream_WritesInPieces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{})
		s := h.subscribe(sse.FromNow, nil)
		settle()
		s.text()
		h.log.addSized(150<<10, "big")
		settle()
		writes := s.written()
		if len(writes) != 3 || len(writes[0].text) != 64<<10 || s.flushes != 2 {
			t.Errorf("%d writes and %d flushes, want 3 of at most 64 KiB and 2", len(writes), s.flushes)
		}
		var all strings.Builder
		for _, w := range writes {
			all.WriteString(w.text)
		}
		s.feed(all.String())
		if got := s.client.dispatched(); len(got) != 1 || len(got[0].Data) != 150<<10 {
			t.Errorf("the event came as %d", len(got))
		}
	})
}

func TestTail_Stream_Ends(t *testing.T) {
	t.Parallel()
	t.Run("with the request", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			s := h.subscribe(sse.FromNow, nil)
			settle()
			s.text()
			s.cancel()
			checkEnded(t, s, nil)
			checkText(t, s, "")
			if got := h.tail.Subscribers(); got != 0 {
				t.Errorf("Subscribers() = %d, want 0", got)
			}
		})
	})
	t.Run("with the tail", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			s := h.subscribe(0, topic("run"))
			h.log.add("run", "flow")
			settle()
			s.text()
			h.tail.Close()
			h.tail.Close()
			checkText(t, s, "id: 2\nevent: bye\ndata: {\"after\":2}\n\n")
			checkEnded(t, s, nil)
			if err := h.tail.Stream(t.Context(), nil, 0, nil); !errors.Is(err, sse.ErrClosed) {
				t.Errorf("Stream() of a closed tail = %v", err)
			}
		})
	})
	t.Run("when the tail is closed while it catches up", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			h.log.add(repeat("flow", 300)...)
			s := &subscriber{}
			release := s.stall()
			done := make(chan error)
			go func() { done <- h.tail.Stream(t.Context(), &s.conn, 0, nil) }()
			settle()
			h.tail.Close()
			release()
			if err := <-done; err != nil {
				t.Errorf("Stream() = %v", err)
			}
			checkNews(t, s, []event{{"0", "bye", `{"after":0}`}})
		})
	})
}

// TestTail_Stream_Fails: what is wrong with the log ends a stream too.
func TestTail_Stream_Fails(t *testing.T) {
	t.Parallel()
	t.Run("when the log cannot be read", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			ok := h.subscribe(0, nil)
			settle()
			h.log.setBroken(true)
			s := h.subscribe(0, nil)
			checkEnded(t, s, errDown)
			checkText(t, s, ":\nretry: 2000\n\n")

			fresh := h.subscribe(sse.FromNow, nil)
			checkEnded(t, fresh, errDown)
			if fresh.status != 0 || fresh.text() != "" {
				t.Error("a stream that fails at once has begun its response")
			}
			h.log.setBroken(false)
			h.log.add("flow")
			time.Sleep(5 * time.Second)
			checkNews(t, ok, events("flow", 1, 1))
		})
	})
	t.Run("when the source runs in circles", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h := open(t, sse.Options{})
			h.log.add("flow", "flow")
			h.log.pageSize = -1 // goes back
			s := h.subscribe(1, nil)
			settle()
			select {
			case <-s.ended:
				if s.err == nil {
					t.Error("Stream() = nil")
				}
			default:
				t.Error("the stream goes on")
			}
		})
	})
}

func TestTail_Stream_Limit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := open(t, sse.Options{MaxStreams: 2})
		a := h.subscribe(0, nil)
		h.subscribe(0, nil)
		settle()
		refused := h.subscribe(0, nil)
		checkEnded(t, refused, sse.ErrTooManyStreams)
		if refused.status != 0 || len(refused.header) != 0 || refused.text() != "" {
			t.Error("a refused stream has begun its response")
		}
		a.cancel()
		<-a.ended
		if got := h.tail.Subscribers(); got != 1 {
			t.Errorf("Subscribers() = %d, want 1", got)
		}
		h.subscribe(0, nil)
		settle()
		if got := h.tail.Subscribers(); got != 2 {
			t.Errorf("Subscribers() = %d, want 2", got)
		}
	})
}
