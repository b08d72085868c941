// Package store is the ground floor of all SQL: one store on two databases. It runs atomic changes, writes their events,
// numbers them in one order, and wakes whoever waits for them. It knows no subject.
//
// On SQLite one goroutine owns the only writing connection and commits whatever is queued as a group, each operation
// inside its own savepoint. On PostgreSQL every operation is a transaction of its own, and a sequencer numbers the events
// after they are committed. What differs between the two is a [dialect].
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/hub"
)

// Config says where the store lives and whom it tells.
type Config struct {
	// URL is a file name, or postgres://…
	URL   string
	Clock *Clock
	Hub   *hub.Hub
	// Alarm is told of due times after the commit that set them: the loop called name has work at that time.
	Alarm func(name string, at time.Time)
	// Fatal is told of an error after which no further write may be answered. It must end the process.
	Fatal func(error)
	// OnError is told of work in the background that failed and will be tried again.
	OnError func(error)
	// Connections is how many reads, and on PostgreSQL also changes, run at a time. The default is 32 on PostgreSQL, and twice
	// the number of processors, at least 4, on SQLite.
	Connections int
	// Patience multiplies the limits of reads, of changes and of waiting for locks; 0 is 1. Tests have more of it, for slow machines.
	Patience int
	// Poll is how often is looked, without a wake-up, for what others have left behind: other processes, or a notification that was
	// lost. 0 is 5 s.
	Poll time.Duration
	// Observe is told of each commit: how many operations it carried and how long it took. It must not block.
	Observe func(operations int, commit time.Duration)
}

// within returns a limit as this store has it.
func (cfg *Config) within(limit time.Duration) time.Duration {
	return limit * time.Duration(max(1, cfg.Patience))
}

// Store runs reads and atomic changes. It is safe for concurrent use.
type Store struct {
	cfg      Config
	dialect  *dialect
	db       *sqlx.DB // PostgreSQL: all connections; SQLite: the query-only ones
	w        *writer  // SQLite only
	seq      *sequencer
	reactors map[event.Type][]Reactor
	readers  chan *session // SQLite only
	release  func() error  // SQLite only: lets another process have the file
	lastNow  atomic.Int64
	count    atomic.Int64 // of the statements that have run
	process  string       // names this process to the others
	closing  sync.Once
	closed   error // what close returned
}

// Reactor is a function that runs inside the transaction for each emitted event of the types it names. Its error rolls
// the whole operation back. It is called in the order of registration.
type Reactor struct {
	Name string
	On   []event.Type
	Do   func(tx *Tx, e event.Event) error
}

// Statements returns how many statements have run, transactions' own aside.
func (s *Store) Statements() int64 { return s.count.Load() }

// EventsKey is the hub's key for new events.
const EventsKey = "events"

const (
	readLimit  = 5 * time.Second // a longer snapshot would keep SQLite from reusing its write-ahead log
	writeLimit = 10 * time.Second
	lockLimit  = 5 * time.Second // for which a change waits for another one's rows
	idleLimit  = 10 * time.Second
	runLimit   = 30 * time.Second // for all of a transaction, on PostgreSQL
	poll       = 5 * time.Second
)

// Open opens the database, migrates it and starts the writer or the sequencer. It refuses a database that a newer
// version has migrated.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Clock == nil {
		cfg.Clock = &Clock{}
	}
	if cfg.Hub == nil {
		cfg.Hub = hub.New()
	}
	if cfg.Poll == 0 {
		cfg.Poll = poll
	}
	if cfg.Alarm == nil {
		cfg.Alarm = func(string, time.Time) {}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(int, time.Duration) {}
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { panic(err) }
	}
	s := &Store{cfg: cfg, dialect: dialectOf(cfg.URL), reactors: map[event.Type][]Reactor{}, process: NewID().String()}
	if err := s.dialect.open(ctx, s); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.dialect.name, err)
	}
	return s, nil
}

// Close waits for the operations under way, refuses new ones and closes the database. It may be called more than once.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) close() error {
	if s.w != nil {
		s.w.close()
	}
	if s.seq != nil {
		s.seq.close()
	}
	if s.readers != nil {
		closeReaders(s.readers)
	}
	err := s.db.Close()
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// React registers a reactor. It must be called before the first write.
func (s *Store) React(r Reactor) {
	for _, t := range r.On {
		s.reactors[t] = append(s.reactors[t], r)
	}
}

// Database names the database: "sqlite" or "postgres".
func (s *Store) Database() string { return s.dialect.name }

// File names the file that the database is; "" when it is a server.
func (s *Store) File() string {
	if !s.dialect.alone {
		return ""
	}
	return fileOf(s.cfg.URL)
}

// Alone says whether no other process uses the database: what this one remembers of it is then all there is.
func (s *Store) Alone() bool { return s.dialect.alone }

// Poll is how often is looked for what nobody told of; see [Config].
func (s *Store) Poll() time.Duration { return s.cfg.Poll }

// Hub returns the hub that the store wakes.
func (s *Store) Hub() *hub.Hub { return s.cfg.Hub }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.Read(ctx, func(q *Queries) error {
		var one int
		return q.Get(&one, `SELECT 1`)
	})
}

// QueueDepth returns how many operations wait for the writer.
func (s *Store) QueueDepth() int {
	if s.w == nil {
		return 0
	}
	return len(s.w.queue) + len(s.w.background)
}

// Read runs fn on one snapshot. fn must not write to the network: a snapshot ends after five seconds.
func (s *Store) Read(ctx context.Context, fn func(q *Queries) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.within(readLimit))
	defer cancel()
	return s.dialect.read(ctx, s, fn)
}

// Option changes how a write is run.
type Option func(*operation)

// Background marks work that nobody waits for: drains, sweeps and retention. On SQLite a group carries at most one such
// operation, as its last.
func Background() Option { return func(o *operation) { o.background = true } }

// Reload tells how the answer of an earlier request with the same Idempotency-Key is rendered again, when it was too large
// to be kept: from the value that the operation gave to [Tx.Refer].
func Reload[R, T any](load func(ctx context.Context, ref R) (T, error)) Option {
	return func(o *operation) {
		o.reload = func(ctx context.Context, kept []byte) (any, error) {
			var ref R
			if err := json.Unmarshal(kept, &ref); err != nil {
				return nil, Corrupt("idempotency key", "", err)
			}
			return load(ctx, ref)
		}
	}
}

// Kept is for [Reload] of an operation that gives its whole answer to [Tx.Refer].
func Kept[T any](_ context.Context, answer T) (T, error) { return answer, nil }

// Write runs fn as one atomic change and returns once it is durable. What fn puts into out is the result; with an
// Idempotency-Key in the context its rendered answer is kept in the same transaction.
//
// fn may run more than once, each time with a zero out: it must touch only tx, out and its own locals. The context counts
// until fn starts and is ignored from then on. fn must not call Read or Write.
//
// After fn the reactors of the emitted events run, then theirs, until none is left, then the function given to
// [Tx.Final]. Any error rolls everything back.
func Write[T any](ctx context.Context, s *Store, fn func(tx *Tx, out *T) error, opts ...Option) (T, error) {
	var out T
	op := &operation{
		ctx: ctx,
		run: func(tx *Tx) error {
			out = *new(T)
			return fn(tx, &out)
		},
		result: func() any { return out },
	}
	for _, o := range opts {
		o(op)
	}
	if err := s.write(op); err != nil {
		return *new(T), err
	}
	return out, nil
}

// Do is Write for a change without a result.
func Do(ctx context.Context, s *Store, fn func(tx *Tx) error, opts ...Option) error {
	_, err := Write(ctx, s, func(tx *Tx, _ *struct{}) error { return fn(tx) }, opts...)
	return err
}

// errProbe ends a transaction that was only to ask for its Idempotency-Key.
var errProbe = errors.New("only asked")

// Asked returns what a request with the Idempotency-Key of the context was answered with, if it has one and was. A change of several
// transactions asks before the first.
func (s *Store) Asked(ctx context.Context, opts ...Option) error {
	if call.From(ctx).Key == nil {
		return nil
	}
	err := Do(ctx, s, func(*Tx) error { return errProbe }, opts...)
	if errors.Is(err, errProbe) {
		return nil
	}
	return err
}

// Checked makes a change that checks much before its transaction. A request whose Idempotency-Key was answered is answered so again, also
// when that came to pass during the checks: what it has written itself would fail them.
func Checked[T any](ctx context.Context, s *Store, change func() (T, error), opts ...Option) (T, error) {
	if err := s.Asked(ctx, opts...); err != nil {
		return *new(T), err
	}
	out, err := change()
	if _, refused := errors.AsType[*fault.Error](err); refused {
		if answered := s.Asked(ctx, opts...); answered != nil {
			return *new(T), answered
		}
	}
	return out, err
}

// Gradually makes a change that is too large for one transaction in many, so that others may write in between, and answers it once. step
// makes one of them, whose context has no Idempotency-Key, adds it to the total, and says whether there is more.
func Gradually[T any](ctx context.Context, s *Store, total T, step func(ctx context.Context, total *T) (more bool, err error)) (T, error) {
	if err := s.Asked(ctx); err != nil {
		return *new(T), err
	}
	unkeyed := call.From(ctx)
	unkeyed.Key = nil
	for more := true; more; {
		var err error
		if more, err = step(call.With(ctx, unkeyed), &total); err != nil {
			return *new(T), err
		}
	}
	return Write(ctx, s, func(_ *Tx, out *T) error {
		*out = total
		return nil
	})
}

// operation is one atomic change on its way.
type operation struct {
	ctx        context.Context
	run        func(tx *Tx) error
	result     func() any
	reload     func(ctx context.Context, ref []byte) (any, error)
	background bool

	tx    *Tx // of the run that is being committed
	err   error
	panic any // what run panicked with; raised again in the caller
	done  chan struct{}
}

func (s *Store) write(op *operation) error {
	if err := s.dialect.write(s, op); err != nil {
		return s.reloaded(op, err)
	}
	return nil
}

// reloaded completes the error of a replayed request whose answer was not kept.
func (s *Store) reloaded(op *operation, err error) error {
	old, ok := errors.AsType[*replay](err)
	if !ok {
		return err
	}
	if old.answer.Answer.Body == nil && op.reload != nil {
		value, err := op.reload(op.ctx, old.ref)
		if err != nil {
			return err
		}
		old.answer.Value = value
	}
	return &old.answer
}

// now returns the time, never less than it was before.
func (s *Store) now() time.Time {
	for {
		last, now := s.lastNow.Load(), s.cfg.Clock.Now().UnixMilli()
		if now < last {
			now = last
		}
		if s.lastNow.CompareAndSwap(last, now) {
			return time.UnixMilli(now).UTC()
		}
	}
}

// committed tells everybody who waits for what the operations of one commit changed.
func (s *Store) committed(ops []*operation) {
	events := false
	for _, op := range ops {
		for _, hook := range op.tx.hooks {
			hook()
		}
		for _, a := range op.tx.alarms {
			s.cfg.Alarm(a.loop, a.at)
		}
		for _, w := range op.tx.signals {
			s.cfg.Hub.Signal(w.key, w.need, w.n)
			s.dialect.announce(s, w.key)
		}
		for _, key := range op.tx.wakes {
			s.cfg.Hub.SignalAll(key)
			s.dialect.announce(s, key)
		}
		events = events || len(op.tx.events) > 0
	}
	if events {
		s.dialect.eventsCommitted(s)
	}
}

// NewID returns a new time-ordered id.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// errNotFound is what a query for one row returns when there is none.
var errNotFound = errors.New("no such row")

// NotFound says whether err means that a query for one row found none.
func NotFound(err error) bool { return errors.Is(err, errNotFound) }

// Corrupt returns the fault for a stored record that cannot be read.
func Corrupt(what string, id any, err error) error {
	return fault.New(fault.CodeCorruptRecord, "The stored %s %v cannot be read. Nothing was changed; restore it, or report it with the request_id.", what, id).Because(err)
}

// checkSQL refuses what would be parsed again at every execution.
func checkSQL(query string) (string, error) {
	query = strings.TrimSpace(query)
	if strings.Contains(query, ";") {
		return "", fmt.Errorf("a statement must not contain a semicolon: %s", query)
	}
	return query, nil
}

// errConflict is in the chain of an error that a unique constraint raised.
var errConflict = errors.New("not unique")

// Conflict says whether err means that a unique constraint was broken.
func Conflict(err error) bool { return errors.Is(err, errConflict) }
