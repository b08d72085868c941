package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

const (
	groupOperations = 256
	groupWork       = 5 * time.Millisecond
	queueLength     = 1024
	lingerFloor     = 500 * time.Microsecond // a quicker commit is not worth waiting for
	idleCheckpoint  = time.Second
)

// writer is the one goroutine that changes a SQLite database. It commits operations in groups: each runs inside its own
// savepoint, so that a failing one rolls back alone, and nobody is answered before the commit.
//
// Its statements run with a context that is never cancelled: SQLite answers an interrupted write by rolling the whole
// transaction back, neighbours included.
type writer struct {
	*session
	store      *Store
	db         *sqlx.DB
	queue      chan *operation
	background chan *operation
	stop       chan struct{}
	stopped    chan struct{}
	closing    sync.Once

	lastEvent  int64         // newest event id, of the transaction under way
	lastGroup  int           // operations of the last group
	lastCommit time.Duration // what its commit took
	unflushed  bool          // the log has pages that no checkpoint has moved
}

func newWriter(ctx context.Context, s *Store, db *sqlx.DB) (*writer, error) {
	own, err := newSession(ctx, db)
	if err != nil {
		return nil, err
	}
	w := &writer{
		session: own, store: s, db: db,
		queue: make(chan *operation, queueLength), background: make(chan *operation, queueLength),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	if err := w.conn.GetContext(ctx, &w.lastEvent, `SELECT last FROM event_log`); err != nil {
		return nil, errors.Join(fmt.Errorf("read the event log's head: %w", err), w.conn.Close())
	}
	go w.loop()
	return w, nil
}

func (w *writer) close() {
	w.closing.Do(func() { close(w.stop) })
	<-w.stopped
}

// submit queues op and waits until it is committed or refused. A full queue is waited for, but not for long.
func (w *writer) submit(op *operation) error {
	op.done = make(chan struct{})
	queue := w.queue
	if op.background {
		queue = w.background
	}
	select {
	case queue <- op:
	default:
		timeout := time.NewTimer(w.store.cfg.within(writeLimit))
		defer timeout.Stop()
		select {
		case queue <- op:
		case <-op.ctx.Done():
			return op.ctx.Err()
		case <-w.stopped:
			return errShuttingDown()
		case <-timeout.C:
			return fault.New(fault.CodeBusy, "More changes are waiting than can be written. Nothing was changed. Repeat the request.")
		}
	}
	select {
	case <-op.done:
	case <-w.stopped:
		select {
		case <-op.done: // it was the last group's
		default:
			return errShuttingDown()
		}
	}
	if op.panic != nil {
		panic(op.panic)
	}
	return op.err
}

func errShuttingDown() error {
	return fault.New(fault.CodeShuttingDown, "The server is shutting down. Nothing was changed. Repeat the request.")
}

// loop runs groups until the writer is closed. A function that ends its goroutine (runtime.Goexit, as testing.T.FailNow
// does) must not end the writer: the loop goes on in a new one.
func (w *writer) loop() {
	ended := false
	defer func() {
		if !ended {
			go w.loop()
		}
	}()
	idle := time.NewTimer(idleCheckpoint)
	defer idle.Stop()
	for {
		select {
		case op := <-w.queue:
			w.group(op)
			idle.Reset(idleCheckpoint)
			continue
		default:
		}
		select {
		case op := <-w.queue:
			w.group(op)
		case op := <-w.background:
			w.group(op)
		case <-idle.C:
			w.checkpoint()
			continue
		case <-w.stop:
			ended = true
			w.drain()
			return
		}
		idle.Reset(idleCheckpoint)
	}
}

// drain commits what is queued, then closes the connection.
func (w *writer) drain() {
	for {
		select {
		case op := <-w.queue:
			w.group(op)
		case op := <-w.background:
			w.group(op)
		default:
			w.checkpoint()
			w.session.close()
			_ = w.db.Close()
			close(w.stopped)
			return
		}
	}
}

// checkpoint moves the log into the database when nobody is waiting.
func (w *writer) checkpoint() {
	if w.unflushed {
		// A reader must not make the next change wait: the log is moved then at another time.
		_ = w.exec(`PRAGMA busy_timeout = 0`)
		defer func() { _ = w.exec(`PRAGMA busy_timeout = 5000`) }()
		var busy, log, moved int
		if row := w.conn.QueryRowxContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`); row.Scan(&busy, &log, &moved) == nil {
			w.unflushed = busy != 0
		}
	}
}

// group runs first and whatever else is queued in one transaction, commits it and answers everybody.
func (w *writer) group(first *operation) {
	started := time.Now()
	head := w.lastEvent
	ops := make([]*operation, 0, max(8, w.lastGroup))
	answered := false
	defer func() { // runtime.Goexit inside an operation
		if !answered {
			w.lastEvent = head
			w.abandon(ops, errors.New("an operation ended the writer's goroutine"))
		}
	}()
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		answered = true
		first.err = w.store.dialect.wrap(err)
		close(first.done)
		return
	}
	broken := error(nil)
	for op := first; op != nil && broken == nil; op = w.next(started, ops) {
		ops = append(ops, op)
		broken = w.runOne(op)
		if op.background {
			break
		}
	}
	if broken == nil && w.lastEvent != head {
		broken = w.exec("UPDATE event_log SET last = ?", w.lastEvent)
	}
	answered = true
	if broken != nil {
		w.lastEvent = head
		w.abandon(ops, broken)
		return
	}
	commit := time.Now()
	if err := w.exec("COMMIT"); err != nil {
		w.lastEvent = head
		w.abandon(ops, err)
		if !retryable(w.store.dialect.wrap(err)) {
			w.store.cfg.Fatal(fmt.Errorf("commit: %w", err))
		}
		return
	}
	w.unflushed = true
	w.lastGroup, w.lastCommit = len(ops), time.Since(commit)
	done := ops[:0:0]
	for _, op := range ops {
		if op.err == nil && op.panic == nil {
			done = append(done, op)
		}
	}
	w.store.committed(done)
	for _, op := range ops {
		close(op.done)
	}
	w.store.cfg.Observe(len(ops), w.lastCommit)
}

// next returns the operation that joins the group, nil when the group is complete.
func (w *writer) next(started time.Time, ops []*operation) *operation {
	if len(ops) >= groupOperations || time.Since(started) > groupWork {
		return w.nextBackground()
	}
	select {
	case op := <-w.queue:
		return op
	default:
	}
	// The callers that the last commit answered come back just after the next group has begun. On a slow disk it pays to
	// wait a little for them; a lone caller never waits.
	if len(ops) < w.lastGroup && w.lastGroup > 1 && w.lastCommit > lingerFloor {
		for until := time.Now().Add(min(w.lastCommit/8, lingerFloor)); time.Now().Before(until); {
			select {
			case op := <-w.queue:
				return op
			default:
				runtime.Gosched()
			}
		}
	}
	return w.nextBackground()
}

// nextBackground returns the background operation that ends the group, if one waits.
func (w *writer) nextBackground() *operation {
	select {
	case op := <-w.background:
		return op
	default:
		return nil
	}
}

// runOne runs op inside a savepoint. Its error means that the transaction itself is broken; that of the operation is in
// op.err.
func (w *writer) runOne(op *operation) error {
	if op.ctx.Err() != nil { // it has not begun, so nothing is broken
		op.err = op.ctx.Err()
		return nil //nolint:nilerr // it is the operation's error, and the transaction is whole
	}
	if err := w.exec("SAVEPOINT op"); err != nil {
		return err
	}
	head := w.lastEvent
	w.run(op)
	if op.err == nil && op.panic == nil {
		return w.exec("RELEASE op")
	}
	w.lastEvent = head
	if err := w.exec("ROLLBACK TO op"); err != nil {
		return err
	}
	return w.exec("RELEASE op")
}

func (w *writer) run(op *operation) {
	defer func() {
		if r := recover(); r != nil {
			op.panic = r
		}
	}()
	op.tx = &Tx{
		Queries: Queries{ctx: context.Background(), dialect: w.store.dialect, prepare: w.prepare, clock: w.store.cfg.Clock, count: &w.store.count},
		Call:    call.From(op.ctx),
		store:   w.store,
	}
	op.err = op.tx.run(op)
}

// abandon rolls the transaction back and refuses every operation of the group.
func (w *writer) abandon(ops []*operation, cause error) {
	_ = w.exec("ROLLBACK") // SQLite may have rolled back already
	for _, op := range ops {
		op.err = fault.New(fault.CodeUnavailable, "The database refused the change. Nothing was changed. Repeat the request.").Because(cause)
		close(op.done)
	}
}

// reserve draws n consecutive event ids.
func (w *writer) reserve(n int) int64 {
	first := w.lastEvent + 1
	w.lastEvent += int64(n)
	return first
}

// retryable says whether the same change may succeed later.
func retryable(err error) bool { return fault.Lookup(fault.CodeOf(err)).Retryable }
