package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sequencerBatch = 5000
	notifyChannel  = "flowapi"
)

// sequencer numbers the events of PostgreSQL and tells every replica of them.
//
// Numbers drawn inside a transaction become visible in another order than they were drawn, so a reader that remembers the
// highest one loses events. Emit therefore writes into events_inbox under a local id, which is drawn while the changed row
// is locked and so agrees with every row's own order; the sequencer moves what is visible, by local id, into events under
// consecutive ids. It holds the lock on event_log while it does, so there is one at a time, on whichever replica, and
// nothing can appear behind a reader. A transaction that stays open holds back only its own events.
type sequencer struct {
	store  *Store
	config *pgx.ConnConfig
	kicked chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	keys map[string]bool // signals to announce
}

// notice is what replicas tell one another.
type notice struct {
	From   string   `json:"from"`
	Events bool     `json:"events,omitempty"`
	Keys   []string `json:"keys,omitempty"`
}

func newSequencer(s *Store, cfg *pgx.ConnConfig) *sequencer {
	ctx, cancel := context.WithCancel(context.Background())
	q := &sequencer{store: s, config: cfg, kicked: make(chan struct{}, 1), cancel: cancel, keys: map[string]bool{}}
	q.done.Go(func() { q.run(ctx) })
	q.done.Go(func() { q.listen(ctx) })
	return q
}

func (q *sequencer) close() {
	q.cancel()
	q.done.Wait()
}

func (q *sequencer) kick() {
	select {
	case q.kicked <- struct{}{}:
	default:
	}
}

// announce lets the other replicas wake their own waiters of key.
func (q *sequencer) announce(key string) {
	q.mu.Lock()
	q.keys[key] = true
	q.mu.Unlock()
	q.kick()
}

func (q *sequencer) run(ctx context.Context) {
	poll := time.NewTicker(q.store.cfg.Poll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.kicked:
		case <-poll.C:
		}
		moved := 0
		for {
			n, err := q.move(ctx)
			moved += n
			if err != nil && ctx.Err() == nil {
				q.store.cfg.OnError(fmt.Errorf("number events: %w", err))
			}
			if err != nil || n < sequencerBatch {
				break
			}
		}
		q.notify(ctx, moved > 0)
	}
}

// sync numbers what is committed, so that a reader sees its own events.
func (q *sequencer) sync(ctx context.Context) error {
	for {
		var waiting bool
		if err := q.store.db.GetContext(ctx, &waiting, `SELECT EXISTS (SELECT 1 FROM events_inbox)`); err != nil || !waiting {
			return q.store.dialect.wrap(err)
		}
		n, err := q.move(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			q.kick() // for the notification
		}
		if n < sequencerBatch {
			return nil
		}
	}
}

// move numbers one batch. The lock is taken by a statement of its own, so that the next one sees everything that was
// committed before. The batch ends with a whole transaction: the events of one have consecutive local ids, and a cause is
// always in the same transaction.
func (q *sequencer) move(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, q.store.cfg.within(runLimit))
	defer cancel()
	tx, err := q.store.db.BeginTxx(ctx, nil)
	if err != nil {
		return 0, q.store.dialect.wrap(err)
	}
	defer func() { _ = tx.Rollback() }()
	var last int64
	if err := tx.GetContext(ctx, &last, `SELECT last FROM event_log FOR UPDATE`); err != nil {
		return 0, q.store.dialect.wrap(err)
	}
	res, err := tx.ExecContext(ctx, `
		WITH cut AS (
			SELECT (max(local_id) | $3) AS local_id FROM (SELECT local_id FROM events_inbox ORDER BY local_id LIMIT $2) head
		), moved AS (
			DELETE FROM events_inbox i USING cut WHERE i.local_id <= cut.local_id RETURNING i.*
		), numbered AS (
			SELECT $1 + row_number() OVER (ORDER BY local_id) AS id, moved.* FROM moved
		)
		INSERT INTO events (id, local_id, at, namespace, topic, type, flow_id, run_id, execution_id, instance_tag, revision, actor, cause, trace_id, data, schema_version)
		SELECT n.id, n.local_id, n.at, n.namespace, n.topic, n.type, n.flow_id, n.run_id, n.execution_id, n.instance_tag, n.revision, n.actor, c.id, n.trace_id, n.data, n.schema_version
		FROM numbered n LEFT JOIN numbered c ON c.local_id = n.cause
		ORDER BY n.id`, last, sequencerBatch, localIDStride-1)
	if err != nil {
		return 0, q.store.dialect.wrap(err)
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE event_log SET last = $1`, last+n); err != nil {
		return 0, q.store.dialect.wrap(err)
	}
	if err := tx.Commit(); err != nil {
		return 0, q.store.dialect.wrap(err)
	}
	q.store.cfg.Hub.Broadcast(EventsKey)
	return int(n), nil
}

// longestNotice is what a payload of NOTIFY may have, in bytes, with some room.
const longestNotice = 7000

// notify tells the other replicas, once for a whole batch: NOTIFY takes a lock over its commit, so no writing transaction
// carries one.
func (q *sequencer) notify(ctx context.Context, events bool) {
	q.mu.Lock()
	keys := slices.Collect(maps.Keys(q.keys))
	clear(q.keys)
	q.mu.Unlock()
	for n := (notice{From: q.store.process, Events: events}); n.Events || len(keys) > 0; n.Events = false {
		n.Keys, keys = cutKeys(keys)
		payload, err := json.Marshal(n)
		if err == nil {
			_, err = q.store.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, notifyChannel, string(payload))
		}
		if err != nil { // the others find it at their next poll
			if ctx.Err() == nil {
				q.store.cfg.OnError(fmt.Errorf("tell the other processes: %w", err))
			}
			return
		}
	}
}

// cutKeys takes as many keys as one notice can hold.
func cutKeys(keys []string) (some, rest []string) {
	size := 0
	for i, key := range keys {
		written, _ := json.Marshal(key) // a string
		if size += len(written) + len(","); size > longestNotice && i > 0 {
			return keys[:i], keys[i:]
		}
	}
	return keys, nil
}

// listen wakes this replica's waiters when another one tells it to, on a connection of its own.
func (q *sequencer) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = q.listenOnce(ctx)
		select { // the connection broke
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (q *sequencer) listenOnce(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, q.config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	for {
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var n notice
		if err := json.Unmarshal([]byte(heard.Payload), &n); err != nil {
			return errors.Join(errors.New("another program uses our channel"), err)
		}
		if n.From == q.store.process {
			continue
		}
		if n.Events {
			q.store.cfg.Hub.Broadcast(EventsKey)
		}
		for _, key := range n.Keys {
			q.store.cfg.Hub.SignalAll(key)
		}
	}
}
