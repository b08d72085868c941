package sse_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/internal/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the database is down")

// memlog is a log in memory.
type memlog struct {
	pageSize int64 // ids that a read examines; 0 is 100

	mu     sync.Mutex
	oldest int64
	events []sse.Message // with the ids oldest, oldest+1, …
	reads  int
	onRead func() // is called once, when the next read has seen what there is
	broken bool
	grown  chan struct{}
	final  bool // there will be no more events
	bye    []byte
}

func newLog() *memlog { return &memlog{oldest: 1, grown: make(chan struct{})} }

// add appends an event of each topic and wakes who waits, once. Events of the topic "hidden" are not shown.
func (l *memlog) add(topics ...string) { l.addSized(0, topics...) }

// addSized is add with events whose data has size bytes; with 0 it is their id.
func (l *memlog) addSized(size int, topics ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, topic := range topics {
		id := l.newest() + 1
		data := strconv.FormatInt(id, 10)
		if size > 0 {
			data = strings.Repeat("x", size)
		}
		l.events = append(l.events, sse.Message{
			ID:     id,
			Fields: sse.Fields{Topic: topic},
			Frame:  sse.AppendFrame(nil, id, topic, []byte(data)),
		})
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// trim forgets the events before oldest.
func (l *memlog) trim(oldest int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = l.events[oldest-l.oldest:]
	l.oldest = oldest
}

// restart makes another log of it, which has no event and will begin with oldest.
func (l *memlog) restart(oldest int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest, l.events = oldest, nil
	close(l.grown)
	l.grown = make(chan struct{})
}

// end ends the log, with a frame for everybody.
func (l *memlog) end(bye []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.final, l.bye = true, bye
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *memlog) setBroken(broken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = broken
}

func (l *memlog) wake() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grown
}

func (l *memlog) readCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

func (l *memlog) newest() int64 { return l.oldest + int64(len(l.events)) - 1 }

func (l *memlog) Newest(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return 0, errDown
	}
	return l.newest(), nil
}

func (l *memlog) Read(ctx context.Context, after int64) (sse.Page, error) {
	page, err := l.read(ctx, after)
	l.mu.Lock()
	onRead := l.onRead
	l.onRead = nil
	l.mu.Unlock()
	if onRead != nil {
		onRead()
	}
	return page, err
}

func (l *memlog) read(ctx context.Context, after int64) (sse.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	switch {
	case ctx.Err() != nil:
		return sse.Page{}, ctx.Err()
	case l.broken:
		return sse.Page{}, errDown
	case after < l.oldest-1 || after > l.newest():
		return sse.Page{ResetTo: l.oldest}, nil
	}
	size := l.pageSize
	if size == 0 {
		size = 100
	}
	page := sse.Page{Through: min(after+size, l.newest())}
	page.More = page.Through < l.newest()
	for _, m := range l.events[after-l.oldest+1 : max(after, page.Through)-l.oldest+1] {
		if m.Topic != "hidden" {
			page.Messages = append(page.Messages, m)
		}
	}
	if l.final && !page.More {
		page.Final, page.Farewell = true, l.bye
	}
	return page, nil
}

// conn is the connection of a subscriber: a ResponseWriter that keeps what is written and when. It works inside a
// synctest bubble.
type conn struct {
	mu       sync.Mutex
	header   http.Header
	status   int
	writes   []write
	flushes  int
	deadline time.Time
	gate     chan struct{} // while it is open, writes stall until their deadline
}

type write struct {
	at   time.Time
	text string
}

// wrapped hides the extra methods of a conn behind Unwrap, as the writers of middlewares do.
type wrapped struct{ c *conn }

func (w wrapped) Header() http.Header         { return w.c.Header() }
func (w wrapped) Write(b []byte) (int, error) { return w.c.Write(b) }
func (w wrapped) WriteHeader(status int)      { w.c.WriteHeader(status) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.c }

func (c *conn) Header() http.Header {
	if c.header == nil {
		c.header = make(http.Header)
	}
	return c.header
}

func (c *conn) WriteHeader(status int) { c.status = status }

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	gate, limit := c.gate, time.Until(c.deadline)
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-time.After(limit):
			return 0, os.ErrDeadlineExceeded
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, write{time.Now(), string(b)})
	return len(b), nil
}

func (c *conn) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushes++
	return nil
}

func (c *conn) SetWriteDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = deadline
	return nil
}

// stall makes writes wait for the returned function.
func (c *conn) stall() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := make(chan struct{})
	c.gate = gate
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.gate = nil
		close(gate)
	}
}

// written returns what was written since the last call.
func (c *conn) written() []write {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.writes
	c.writes = nil
	return got
}

// text is written as one string.
func (c *conn) text() string {
	var b strings.Builder
	for _, w := range c.written() {
		b.WriteString(w.text)
	}
	return b.String()
}

// client is what a browser makes of an event stream (WHATWG HTML 9.2.6).
type client struct {
	lastID string
	retry  string
	events []event

	id, name, data string
}

type event struct{ ID, Name, Data string }

func (c *client) feed(text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			c.lastID = c.id
			if c.data != "" {
				c.events = append(c.events, event{c.lastID, c.name, strings.TrimSuffix(c.data, "\n")})
			}
			c.name, c.data = "", ""
		case field == "id":
			c.id = value
		case field == "event":
			c.name = value
		case field == "data":
			c.data += value + "\n"
		case field == "retry":
			c.retry = value
		}
	}
}

// dispatched returns the events that came since the last call.
func (c *client) dispatched() []event {
	got := c.events
	c.events = nil
	return got
}

// events returns the events first to last of topic, as a client sees them.
func events(topic string, first, last int64) []event {
	var want []event
	for id := first; id <= last; id++ {
		s := strconv.FormatInt(id, 10)
		want = append(want, event{s, topic, s})
	}
	return want
}

// subscriber is a stream that runs in its own goroutine.
type subscriber struct {
	conn
	client
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// house is a log, a tail on it that runs, and what subscribes to it.
type house struct {
	t    *testing.T
	log  *memlog
	tail *sse.Tail
	errs []error
}

// open starts a tail, which ends with the test. It is called inside a bubble.
func open(t *testing.T, options sse.Options) *house {
	t.Helper()
	h := &house{t: t, log: newLog()}
	options.OnError = func(err error) { h.errs = append(h.errs, err) }
	h.tail = sse.NewTail(h.log, h.log.wake, options)
	ended := make(chan error)
	go func() { ended <- h.tail.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return h
}

// subscribe opens a stream. One from now on has begun when subscribe returns.
func (h *house) subscribe(after int64, filter sse.Filter) *subscriber {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	s := &subscriber{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = h.tail.Stream(ctx, wrapped{&s.conn}, after, filter)
	}()
	h.t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	if after == sse.FromNow {
		synctest.Wait()
	}
	return s
}

// news feeds what was written to the client and returns the events that came of it.
func (s *subscriber) news() []event {
	s.feed(s.text())
	return s.client.dispatched()
}

func topic(name string) sse.Filter { return func(f *sse.Fields) bool { return f.Topic == name } }

func repeat(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func (e event) String() string { return fmt.Sprintf("%s#%s %s", e.Name, e.ID, e.Data) }
