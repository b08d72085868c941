package sse_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/sse"
)

// server serves a tail over HTTP: ?after= is the cursor, ?topic= the filter, which lets events of the topic "last" pass.
type server struct {
	*httptest.Server
	log  *memlog
	tail *sse.Tail
}

func serve(t *testing.T, options sse.Options, configure func(*httptest.Server)) *server {
	t.Helper()
	s := &server{log: newLog()}
	s.tail = sse.NewTail(s.log, s.log.wake, options)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after := sse.FromNow
		if v := r.URL.Query().Get("after"); v != "" {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				t.Errorf("the client sent after=%q", v)
			}
			after = n
		}
		var filter sse.Filter
		if name := r.URL.Query().Get("topic"); name != "" {
			filter = func(f *sse.Fields) bool { return f.Topic == name || f.Topic == "last" }
		}
		if err := s.tail.Stream(r.Context(), w, after, filter); errors.Is(err, sse.ErrTooManyStreams) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	s.Config.RegisterOnShutdown(s.tail.Close)
	if configure != nil {
		configure(s.Server)
	}
	s.Start()
	done := make(chan error)
	go func() { done <- s.tail.Run(context.Background()) }()
	t.Cleanup(func() {
		s.tail.Close()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		s.Close()
	})
	return s
}

// Start starts the server with TLS when it is to speak HTTP/2.
func (s *server) Start() {
	if s.EnableHTTP2 {
		s.StartTLS()
		return
	}
	s.Server.Start()
}

// connection is an open stream, as a client reads it.
type connection struct {
	client
	body io.ReadCloser
	in   *bufio.Reader
}

func (s *server) connect(t *testing.T, query string) *connection {
	t.Helper()
	r, err := s.Client().Get(s.URL + "?" + query)
	if err != nil {
		t.Error(err)
		return &connection{in: bufio.NewReader(http.NoBody), body: http.NoBody}
	}
	if r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
	return &connection{body: r.Body, in: bufio.NewReader(r.Body)}
}

// frame reads one frame. It reports false at the end of the stream.
func (c *connection) frame() (text string, ok bool) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return text, false
		}
		text += line
		if line == "\n" {
			c.feed(text)
			return text, true
		}
	}
}

// next reads up to the next event.
func (c *connection) next(t *testing.T) event {
	t.Helper()
	for {
		if _, ok := c.frame(); !ok {
			t.Fatal("the stream has ended")
		}
		if got := c.dispatched(); got != nil {
			return got[0]
		}
	}
}

// Subscribers that hang up at random moments and come back with their Last-Event-ID see every event once and in order,
// while several writers write.
func TestServer_Reconnects(t *testing.T) {
	t.Parallel()
	s := serve(t, sse.Options{}, nil)
	s.log.pageSize = 7
	const writers, each, subscribers = 4, 400, 12
	var wg sync.WaitGroup
	for i := range uint64(writers) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, i))
			for n := 0; n < each; {
				batch := make([]string, min(1+rng.IntN(9), each-n))
				for j := range batch {
					batch[j] = []string{"flow", "run", "hidden"}[rng.IntN(3)]
				}
				s.log.add(batch...)
				n += len(batch)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
			}
		})
	}
	wg.Go(func() {
		for {
			grown := s.log.wake()
			if s.log.newestNow() == writers*each {
				break
			}
			<-grown
		}
		s.log.add("last")
	})
	got := make([][]event, subscribers)
	for i := range subscribers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(i)))
			name := []string{"", "flow", "run"}[i%3]
			last, done := "0", false
			for !done && !t.Failed() {
				c := s.connect(t, "after="+last+"&topic="+name)
				for range 1 + rng.IntN(60) {
					if _, ok := c.frame(); !ok {
						break
					}
					got[i] = append(got[i], c.dispatched()...)
					if done = len(got[i]) > 0 && got[i][len(got[i])-1].Name == "last"; done {
						break
					}
				}
				c.body.Close()
				if c.lastID != "" {
					last = c.lastID
				}
			}
		})
	}
	wg.Wait()
	for i := range got {
		if diff := cmp.Diff(s.log.shown([]string{"", "flow", "run"}[i%3]), got[i]); diff != "" {
			t.Errorf("subscriber %d (-want +got):\n%s", i, diff)
		}
	}
}

func (l *memlog) newestNow() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest()
}

// shown returns the events of a topic and "last", or all that the log shows.
func (l *memlog) shown(topic string) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var want []event
	for _, m := range l.events {
		if m.Topic == "last" || m.Topic != "hidden" && (topic == "" || topic == m.Topic) {
			id := strconv.FormatInt(m.ID, 10)
			want = append(want, event{id, m.Topic, id})
		}
	}
	return want
}

// A client that stops reading is told so once it reads again, or is cut off; nobody else waits for it.
func TestServer_Lags(t *testing.T) {
	t.Parallel()
	s := serve(t, sse.Options{MaxLag: 1 << 20, WriteTimeout: time.Minute}, nil)
	slow, quick := s.connect(t, ""), s.connect(t, "")
	defer slow.body.Close()
	defer quick.body.Close()
	slow.frame()
	quick.frame()
	for id := int64(1); id <= 400; id++ { // 40 MB, more than any socket buffer holds
		s.log.addSized(100<<10, "big")
		if got := quick.next(t); got.ID != strconv.FormatInt(id, 10) {
			t.Fatalf("the quick client got %s after event %d", got.ID, id-1)
		}
	}
	var last event
	for seen := 0; last.Name != "lagged"; seen++ {
		if last = slow.next(t); last.Name == "big" && last.ID != strconv.Itoa(seen+1) {
			t.Fatalf("event %s came as number %d", last.ID, seen+1)
		}
	}
	if want := (event{last.ID, "lagged", `{"after":` + last.ID + `}`}); last != want {
		t.Errorf("the last event is %v, want %v", last, want)
	}
	if _, ok := slow.frame(); ok {
		t.Error("the stream goes on after lagged")
	}
	resumed := s.connect(t, "after="+last.ID)
	defer resumed.body.Close()
	after, err := strconv.Atoi(last.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := resumed.next(t); got.ID != strconv.Itoa(after+1) {
		t.Errorf("resumed after %d with %s", after, got.ID)
	}
}

// Streams outlive the server's own write timeout, and on HTTP/2 a deadline of their own that passes in silence.
func TestServer_OutlivesTimeouts(t *testing.T) {
	t.Parallel()
	options := sse.Options{WriteTimeout: 150 * time.Millisecond, Ping: 250 * time.Millisecond}
	for _, tt := range []struct {
		name  string
		http2 bool
	}{{"HTTP/1.1", false}, {"HTTP/2", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, options, func(s *httptest.Server) {
				s.EnableHTTP2 = tt.http2
				s.Config.WriteTimeout = 200 * time.Millisecond
			})
			c := s.connect(t, "")
			defer c.body.Close()
			for range 4 {
				if text, ok := c.frame(); !ok {
					t.Fatalf("the stream has ended with %q", text)
				}
			}
			s.log.add("flow")
			if diff := cmp.Diff(event{"1", "flow", "1"}, c.next(t)); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

// A shutdown does not wait for streams, and clients see them end in good order.
func TestServer_Shutdown(t *testing.T) {
	t.Parallel()
	s := serve(t, sse.Options{}, nil)
	s.log.add("flow", "flow")
	var streams []*connection
	for range 20 {
		c := s.connect(t, "after=0")
		defer c.body.Close()
		c.next(t)
		c.next(t)
		streams = append(streams, c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Fatalf("Shutdown() = %v", err)
	}
	for _, c := range streams {
		if diff := cmp.Diff(event{"2", "bye", `{"after":2}`}, c.next(t)); diff != "" {
			t.Errorf("last event (-want +got):\n%s", diff)
		}
		if rest, err := io.ReadAll(c.in); err != nil || len(rest) != 0 {
			t.Errorf("after bye came %q, %v", rest, err)
		}
	}
}

// A refused stream leaves the response to the handler.
func TestServer_TooManyStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, sse.Options{MaxStreams: 1}, nil)
	c := s.connect(t, "")
	defer c.body.Close()
	r, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Content-Type") == "text/event-stream" {
		t.Errorf("status %d, headers %v", r.StatusCode, r.Header)
	}
}
