package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Tx is one atomic change under way.
type Tx struct {
	Queries
	// Call is who asked for the change.
	Call call.Call

	store   *Store
	now     time.Time
	events  []event.Event
	refs    []int64 // local ids of events, once they are written
	cause   int     // ordinal of the event that is being reacted to
	sums    []*sum
	locals  map[any]any
	final   func() error
	closed  bool // no further events
	ref     any
	hidden  bool // the answer has a secret
	hooks   []func()
	alarms  []alarm
	signals []signal
	wakes   []string
}

type alarm struct {
	loop string
	at   time.Time
}

type signal struct {
	key, need string
	n         int
}

// Ref stands for an event that was emitted in this transaction.
type Ref int

// maxHops bounds how far events may cause one another: only transitions emit, and ended states have no successors, so a
// longer chain is a defect.
const maxHops = 1024

// Now returns the time of the change: whole milliseconds, never less than that of the change before. On PostgreSQL it is
// the database's clock at the first call, so a decision about a lease asks for it after it has locked the row.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() {
		tx.now = tx.dialect.now(tx)
	}
	return tx.now
}

// By says who makes the change, and when.
func (tx *Tx) By() event.By { return event.By{Actor: tx.Call.Actor, At: tx.Now()} }

// Later makes the next [Tx.Now] ask the clock again. A transaction that locks rows after it has decided something calls it:
// what others did to them before must not come after what it does.
func (tx *Tx) Later() { tx.now = time.Time{} }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	st, args, err := tx.statement(query, args)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(tx.ctx, args...)
	if err != nil {
		return 0, tx.dialect.wrap(err)
	}
	n, err := res.RowsAffected()
	return n, tx.dialect.wrap(err)
}

// ExecOne runs a statement that must change exactly one row: that of a record which this transaction has read.
func (tx *Tx) ExecOne(query string, args ...any) error {
	n, err := tx.Exec(query, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed instead of one by: %s", n, query)
	}
	return err
}

// Report tells the operator of a fault that the change goes on without.
func (tx *Tx) Report(err error) { tx.store.cfg.OnError(err) }

// ForUpdate is the clause that locks the rows which a SELECT finds, until the end of the transaction.
func (tx *Tx) ForUpdate() string { return tx.dialect.forUpdate }

// ForUpdateOf is [Tx.ForUpdate] for the rows of some of the tables in a SELECT.
func (tx *Tx) ForUpdateOf(tables string) string {
	if tx.dialect.forUpdate == "" {
		return ""
	}
	return tx.dialect.forUpdate + " OF " + tables
}

// ForKeyShare is the clause that keeps the rows of some of the tables in a SELECT from being deleted, until the end of the transaction.
func (tx *Tx) ForKeyShare(tables string) string {
	if tx.dialect.forUpdate == "" {
		return ""
	}
	return " FOR KEY SHARE OF " + tables
}

// Locks says whether transactions run side by side, and lock the rows that they read for a change.
func (tx *Tx) Locks() bool { return tx.dialect.forUpdate != "" }

// SkipLocked is [Tx.ForUpdate] without the rows that another transaction holds.
func (tx *Tx) SkipLocked() string { return tx.dialect.skipLocked }

// Emit writes e down as part of the change. It is called after the row that e tells of was locked or changed: the order of
// events is the order of those locks. Reactors of its type run after the function that emitted it has returned.
func (tx *Tx) Emit(e event.Event) Ref {
	switch {
	case tx.closed:
		tx.fail(fmt.Errorf("event %s was emitted after the end of its transaction", e.Type))
	case e.Type.Topic() == "":
		tx.fail(fmt.Errorf("event type %q is not in the catalogue", e.Type))
	}
	if e.Namespace == "" {
		e.Namespace = tx.Call.Namespace
	}
	if e.Actor == "" {
		e.Actor = tx.Call.Actor
	}
	if e.Cause == 0 {
		e.Cause = int64(tx.cause)
	}
	e.TraceID = tx.Call.TraceID
	e.At = tx.Now()
	tx.events = append(tx.events, e)
	return Ref(len(tx.events))
}

// Because makes what is emitted until the next call the consequence of the event ref. It returns the one before, to be set
// again.
func (tx *Tx) Because(ref Ref) (before Ref) {
	before = Ref(tx.cause)
	tx.cause = int(ref)
	return before
}

// Sum returns what this transaction has summed up under a key so far, which is made the first time. write is called with it when no
// event is left to react to: it writes the sum down, and may emit events again. A row that many transactions change is so
// changed once in each, and last, which keeps it locked for the shortest time. write is called in the namespace of now.
func Sum[T any](tx *Tx, key any, write func(sum *T) error) *T {
	for _, s := range tx.sums {
		if s.key == key {
			if v, ok := s.value.(*T); ok {
				return v
			}
		}
	}
	v, namespace := new(T), tx.Call.Namespace
	tx.sums = append(tx.sums, &sum{key, v, func() error {
		defer tx.In(namespace)()
		return write(v)
	}})
	return v
}

// Cause returns the event whose consequence is what is emitted now, 0 for none.
func (tx *Tx) Cause() Ref { return Ref(tx.cause) }

// As lets the transaction go on in the name of another caller, and returns what ends that.
func (tx *Tx) As(other call.Call) (end func()) {
	before := tx.Call
	tx.Call = other
	return func() { tx.Call = before }
}

// In lets the transaction's caller act in another namespace, and returns what ends that.
func (tx *Tx) In(namespace string) (end func()) {
	there := tx.Call
	there.Namespace = namespace
	return tx.As(there)
}

// EmitAll emits events in their order.
func (tx *Tx) EmitAll(events []event.Event) {
	for _, e := range events {
		tx.Emit(e)
	}
}

// Local returns what this transaction remembers under a key, which is made the first time.
func Local[T any](tx *Tx, key any) *T {
	if v, ok := tx.locals[key].(*T); ok {
		return v
	}
	if tx.locals == nil {
		tx.locals = map[any]any{}
	}
	v := new(T)
	tx.locals[key] = v
	return v
}

type sum struct {
	key   any
	value any
	write func() error
}

// ranked is the key of a sum that is written before those of a lower rank, and before those without one: its rows are locked early by
// some transactions, and in one order by all.
type ranked interface{ Rank() int }

func (s *sum) rank() int {
	if r, ok := s.key.(ranked); ok {
		return r.Rank()
	}
	return 0
}

// Final sets the function that runs last, when all reactors are done: it reads back what is answered.
func (tx *Tx) Final(fn func() error) { tx.final = fn }

// LocalID returns the number under which an event was written. Valid in [Tx.Final] and in hooks; see [Store.EventByLocalID].
func (tx *Tx) LocalID(ref Ref) int64 { return tx.refs[ref-1] }

// Refer keeps what is needed to render the answer again, when it is too large to be kept beside its Idempotency-Key.
func (tx *Tx) Refer(v any) { tx.ref = v }

// Hide keeps nothing of the answer beside its Idempotency-Key, because there is a secret in it: it is rendered again from what
// [Tx.Refer] keeps.
func (tx *Tx) Hide() { tx.hidden = true }

// OnCommit runs fn after the change is durable and before it is answered. fn must not block.
func (tx *Tx) OnCommit(fn func()) { tx.hooks = append(tx.hooks, fn) }

// Alarm tells the loop called name, after the commit, that it has work at the given time.
func (tx *Tx) Alarm(name string, at time.Time) {
	if !at.IsZero() {
		tx.alarms = append(tx.alarms, alarm{name, at})
	}
}

// Signal wakes, after the commit, one waiter of key that accepts need.
func (tx *Tx) Signal(key, need string) {
	for i := range tx.signals {
		if tx.signals[i].key == key && tx.signals[i].need == need {
			tx.signals[i].n++
			return
		}
	}
	tx.signals = append(tx.signals, signal{key, need, 1})
}

// Wake wakes, after the commit, every waiter of key, in all processes.
func (tx *Tx) Wake(key string) {
	if !slices.Contains(tx.wakes, key) {
		tx.wakes = append(tx.wakes, key)
	}
}

func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// run runs the whole operation in tx, up to but without the commit.
func (tx *Tx) run(op *operation) error {
	if err := tx.claimKey(); err != nil {
		return err
	}
	tx.now = time.Time{} // that of the key; the change has its own, after its locks
	if err := op.run(tx); err != nil {
		return err
	}
	if err := tx.settle(); err != nil {
		return err
	}
	tx.closed = true
	if err := tx.writeEvents(); err != nil {
		return err
	}
	if tx.final != nil {
		if err := tx.final(); err != nil {
			return err
		}
	}
	if err := tx.keepAnswer(op); err != nil {
		return err
	}
	return tx.err
}

// settle runs the reactors and writes the sums, until neither has anything left to do.
func (tx *Tx) settle() error {
	r := reaction{tx: tx, hops: make([]int, 0, 4)}
	for {
		if err := r.run(); err != nil {
			return err
		}
		if len(tx.sums) == 0 {
			return nil
		}
		due := tx.sums
		tx.sums = nil
		slices.SortStableFunc(due, func(a, b *sum) int { return b.rank() - a.rank() })
		for _, s := range due {
			if err := s.write(); err != nil {
				return err
			}
		}
	}
}

// reaction is how far the reactors have come.
type reaction struct {
	tx   *Tx
	hops []int // of each event that was reacted to: how many others have led to it
}

// run runs the reactors of every new event, oldest first, until no event is left.
func (r *reaction) run() error {
	tx, hops := r.tx, r.hops
	defer func() { r.hops, tx.cause = hops, 0 }()
	for i := len(hops); i < len(tx.events); i++ {
		e := tx.events[i]
		hop := 0
		if e.Cause > 0 && int(e.Cause) <= len(hops) {
			hop = hops[e.Cause-1] + 1
		}
		if hop > maxHops {
			return fault.New(fault.CodeReactorLoop, "A change caused itself %d times over and was rolled back. Nothing was changed; report it with the request_id.", hop)
		}
		hops = append(hops, hop)
		tx.cause = i + 1
		if err := r.react(e); err != nil {
			return err
		}
	}
	return nil
}

// react runs the reactors of one event, in its namespace: a sweep goes through many.
func (r *reaction) react(e event.Event) error {
	defer r.tx.In(e.Namespace)()
	for _, reactor := range r.tx.store.reactors[e.Type] {
		if err := reactor.Do(r.tx, e); err != nil {
			return fmt.Errorf("reactor %s on %s: %w", reactor.Name, e.Type, err)
		}
	}
	return nil
}

// eventRow is the stored form of an event.
type eventRow struct {
	ID          int64  `db:"id"`
	At          Millis `db:"at"`
	Namespace   string `db:"namespace"`
	Topic       string `db:"topic"`
	Type        string `db:"type"`
	FlowID      ID     `db:"flow_id"`
	RunID       ID     `db:"run_id"`
	ExecutionID ID     `db:"execution_id"`
	InstanceTag Text   `db:"instance_tag"`
	Revision    *int64 `db:"revision"`
	Actor       string `db:"actor"`
	Cause       *int64 `db:"cause"`
	TraceID     Text   `db:"trace_id"`
	Data        JSON   `db:"data"`
	Schema      int    `db:"schema_version"`
}

// eventColumns are the columns of an event, in both tables, after its id.
const eventColumns = `at, namespace, topic, type, flow_id, run_id, execution_id, instance_tag, revision, actor, cause, trace_id, data, schema_version`

const (
	eventWidth      = 15 // with the id
	eventsPerInsert = 64 // rows of one INSERT
	schemaVersion   = 1
)

// writeEvents inserts the events of the transaction under consecutive local ids.
func (tx *Tx) writeEvents() error {
	if len(tx.events) == 0 {
		return tx.err
	}
	first, err := tx.dialect.reserveEvents(tx, len(tx.events))
	if err != nil {
		return err
	}
	tx.refs = make([]int64, len(tx.events))
	for i := range tx.events {
		tx.refs[i] = first + int64(i)
	}
	for i := 0; i < len(tx.events); i += eventsPerInsert {
		n := min(eventsPerInsert, len(tx.events)-i)
		args := make([]any, 0, n*eventWidth)
		for j, e := range tx.events[i : i+n] {
			data := []byte("{}")
			if e.Data != nil {
				if data, err = json.Marshal(e.Data); err != nil {
					return fmt.Errorf("data of event %s: %w", e.Type, err)
				}
			}
			var cause *int64
			if e.Cause > 0 {
				cause = &tx.refs[e.Cause-1]
			}
			args = append(args, tx.refs[i+j], Millis(e.At), e.Namespace, string(e.Type.Topic()), string(e.Type), ID(e.FlowID), ID(e.RunID),
				ID(e.ExecutionID), Text(e.InstanceTag), e.Revision, e.Actor, cause, Text(e.TraceID), JSON(data), schemaVersion)
		}
		if _, err := tx.Exec(tx.dialect.insertEvents(n), args...); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
	}
	return nil
}
