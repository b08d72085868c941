// Package sse serves a log of events as server-sent events to any number of subscribers.
//
// A [Tail] has one reader of the log, however many subscribers there are. It reads what is new, copies the rendered frames
// into one immutable chunk and hangs the chunk onto a list; each subscriber walks along that list and writes the chunks, or
// what its [Filter] leaves of them, to its own connection, in the goroutine of its request. A subscriber that comes with a
// cursor reads the log itself until it has come up to the list.
//
// The package moves bytes and sequence numbers. What an event is, and how it is rendered, is known to the [Source] only.
package sse

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ErrTooManyStreams is returned by [Tail.Stream] when Options.MaxStreams streams are open.
var ErrTooManyStreams = errors.New("sse: too many open streams")

// ErrClosed is returned by [Tail.Stream] when the tail is closed.
var ErrClosed = errors.New("sse: the tail is closed")

// Options are the settings of a [Tail]. The zero value has the defaults.
type Options struct {
	Generation   func() string         // names the log's generation in the first comment of each stream; nil or "" leaves it out
	Spell        func(id int64) string // how ids are written for clients, as a text; nil writes them as numbers
	MaxStreams   int                   // open streams at a time; 0 is no limit
	MaxLag       int64                 // bytes that a subscriber may be behind before it is closed as lagged; 0 is 8 MiB
	WriteTimeout time.Duration         // for each write to a connection; 0 is 10 s
	Ping         time.Duration         // between the comments that keep a connection alive; 0 is 15 s
	Poll         time.Duration         // the longest time between two looks at the log while somebody subscribes; 0 is 5 s
	OnError      func(error)           // is told why a look at the log failed, before it is repeated; nil forgets it
}

func (o Options) withDefaults() Options {
	if o.Generation == nil {
		o.Generation = func() string { return "" }
	}
	if o.MaxLag == 0 {
		o.MaxLag = 8 << 20
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.Ping == 0 {
		o.Ping = 15 * time.Second
	}
	if o.Poll == 0 {
		o.Poll = 5 * time.Second
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o
}

// After a chunk was published, the next look at the log waits for the rest of a window, so that each subscriber is woken
// and written to once for all the events in it. The more subscribers, the more a window is worth. The first event after a
// silence goes at once.
const (
	windowPerSubscriber = 50 * time.Microsecond
	maxWindow           = 100 * time.Millisecond
	// emptyWindow follows a look that found nothing, so that a wake-up that has nothing to tell costs little.
	emptyWindow = time.Millisecond
	// turnWait bounds how long a subscriber waits for its turn to write.
	turnWait = 50 * time.Millisecond
	// firstRetry follows a look that failed. It doubles with each failure, up to Options.Poll.
	firstRetry = 100 * time.Millisecond
)

// Tail follows a log and serves it to subscribers. It is made by [NewTail] and works while [Tail.Run] runs.
type Tail struct {
	source  Source
	wake    func() <-chan struct{}
	options Options

	arrived chan struct{}         // has an item when the first subscriber has come
	done    chan struct{}         // closed by Close
	head    atomic.Pointer[chunk] // the last chunk; nil while nobody subscribes
	through atomic.Int64          // all ids through this one are in the ring at or before some head, or are not shown

	mu          sync.Mutex
	subscribers int
	closed      bool
	running     bool
	stop        context.CancelFunc // ends Run; nil unless running
	ready       chan struct{}      // closed when head is set

	places chan struct{} // of those who write at the same time
}

// NewTail returns a tail of source. wake returns a channel that is closed when the log has grown since the call; it is
// asked before each look at the log.
func NewTail(source Source, wake func() <-chan struct{}, options Options) *Tail {
	return &Tail{
		source:  source,
		wake:    wake,
		options: options.withDefaults(),
		arrived: make(chan struct{}, 1),
		done:    make(chan struct{}),
		ready:   make(chan struct{}),
		places:  make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// Run reads the log for the subscribers until ctx ends or Close is called; then it closes the tail and returns nil. While
// nobody subscribes it sleeps. When the log cannot be read it tries again, and tells Options.OnError. It fails only when it
// is called twice.
func (t *Tail) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.running {
		t.mu.Unlock()
		return errors.New("sse: Run was called twice")
	}
	t.running, t.stop = true, cancel
	if t.closed {
		cancel()
	}
	t.mu.Unlock()
	defer t.Close()
	for {
		select {
		case <-t.arrived:
			t.follow(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Close ends all streams with a "bye" event and lets no new one begin. It does not wait for them. It may be called more than
// once.
func (t *Tail) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	close(t.done)
	if t.stop != nil {
		t.stop()
	}
}

// Subscribers returns how many streams are open.
func (t *Tail) Subscribers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subscribers
}

func (t *Tail) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	if t.options.MaxStreams > 0 && t.subscribers >= t.options.MaxStreams {
		return ErrTooManyStreams
	}
	t.subscribers++
	if t.subscribers == 1 {
		select {
		case t.arrived <- struct{}{}:
		default:
		}
	}
	return nil
}

func (t *Tail) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers--
}

// position returns the end of the ring, or a channel that is closed when there is one.
func (t *Tail) position() (*chunk, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head.Load(), t.ready
}

// rest lets go of the ring and reports true when the last subscriber has left.
func (t *Tail) rest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers > 0 {
		return false
	}
	if t.head.Load() != nil {
		t.head.Store(nil)
		t.ready = make(chan struct{})
	}
	return true
}

// follow reads the log into the ring until ctx ends or the last subscriber has left.
func (t *Tail) follow(ctx context.Context) {
	poll := time.NewTicker(t.options.Poll)
	defer poll.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	retry := firstRetry
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if t.rest() {
			return
		}
		wake := t.wake()
		window, err := t.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.options.OnError(err)
			pause.Reset(retry)
			retry = min(2*retry, t.options.Poll)
			continue
		}
		retry = firstRetry
		pause.Reset(window)
		if window == 0 {
			continue
		}
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// look reads the next page of the log and publishes what it holds. It returns how long to wait before the next look; 0 says
// that there is more already.
func (t *Tail) look(ctx context.Context) (time.Duration, error) {
	head := t.head.Load()
	if head == nil {
		return emptyWindow, t.begin(ctx)
	}
	page, err := read(ctx, t.source, t.through.Load())
	if err != nil {
		return 0, err
	}
	if page.ResetTo > 0 {
		return emptyWindow, t.breakOff(ctx, head)
	}
	window := emptyWindow
	if len(page.Messages) > 0 || page.Final && !head.final {
		t.publish(head, newChunk(page))
		window = min(windowPerSubscriber*time.Duration(t.Subscribers()), maxWindow)
	}
	t.through.Store(page.Through)
	if page.More {
		window = 0
	}
	return window, nil
}

// begin starts an empty ring at the end of the log.
func (t *Tail) begin(ctx context.Context) error {
	newest, err := t.source.Newest(ctx)
	if err != nil {
		return err
	}
	t.through.Store(newest)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head.Store(&chunk{last: newest, ready: make(chan struct{})})
	close(t.ready)
	return nil
}

// breakOff continues the ring at the end of a log that cannot be read where the ring has ended. The subscribers find out
// for themselves what that means for them.
func (t *Tail) breakOff(ctx context.Context, head *chunk) error {
	newest, err := t.source.Newest(ctx)
	if err != nil {
		return err
	}
	t.publish(head, &chunk{last: newest, broken: true, ready: make(chan struct{})})
	t.through.Store(newest)
	return nil
}

func (t *Tail) publish(head, next *chunk) {
	head.follow(next)
	t.head.Store(next)
}
