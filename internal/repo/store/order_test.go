package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// The promise of the log: a subscriber that stops and starts again wherever it likes sees every event once, in one order,
// none missing, and each record's revisions in theirs; and a transaction that somebody leaves open stops nobody.
func TestEvents_order_under_concurrent_writers(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		const writers, each, records = 16, 40, 10
		ids := make([]uuid.UUID, records)
		for i := range ids {
			ids[i] = store.NewID()
			err := store.Do(t.Context(), s, func(tx *store.Tx) error {
				return tx.ExecOne(`INSERT INTO tokens (id, name, role, namespace, prefix, hash, created_at, last_used_at) VALUES (?, 'counter', 'viewer', 'default', ?, ?, 0, 0)`,
					store.ID(ids[i]), ids[i].String(), []byte("h"))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		release := storetest.ForeignTransaction(t, s)
		done := make(chan struct{})
		var wg sync.WaitGroup
		var answered atomic.Int64 // events whose writers have been answered
		for w := range writers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(w), 1))
				for range each {
					id := ids[random.IntN(records)]
					pause := time.Duration(random.IntN(3)) * time.Millisecond
					err := store.Do(t.Context(), s, func(tx *store.Tx) error {
						var revision int64
						if err := tx.Get(&revision, `SELECT last_used_at FROM tokens WHERE id = ?`+tx.ForUpdate(), store.ID(id)); err != nil {
							return err
						}
						revision++
						if err := tx.ExecOne(`UPDATE tokens SET last_used_at = ? WHERE id = ?`, revision, store.ID(id)); err != nil {
							return err
						}
						tx.Emit(event.Event{Type: event.TokenRevoked, ExecutionID: id, Revision: &revision})
						delayCommit(tx, pause)
						return nil
					})
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					answered.Add(1)
				}
			})
		}
		go func() {
			wg.Wait()
			close(done)
		}()
		for reader := range 4 {
			follow(t, s, rand.New(rand.NewPCG(uint64(reader), 2)), writers*each)
		}
		<-done
		release()
		if got := answered.Load(); got != writers*each {
			t.Errorf("%d writes were answered, want %d", got, writers*each)
		}
	})
}

// delayCommit holds the transaction open between drawing its event's number and its commit. On a database with one writer
// there is nothing between the two.
func delayCommit(tx *store.Tx, d time.Duration) { tx.Final(func() error { time.Sleep(d); return nil }) }

// follow reads the log from the beginning with random page sizes, forgets its last page now and then, and checks what it saw.
func follow(t *testing.T, s *store.Store, random *rand.Rand, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	revisions := map[uuid.UUID]int64{}
	cursor, seen := int64(0), 0
	for seen < want {
		grown := s.Hub().Watch(store.EventsKey)
		page, err := s.Events(ctx, event.Filter{}, cursor, 1+random.IntN(50))
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(4) == 0 {
			continue // the connection broke before the page was handled: it comes again
		}
		for _, e := range page.Events {
			if e.ID != cursor+1 {
				t.Fatalf("event %d follows event %d", e.ID, cursor)
			}
			cursor = e.ID
			if *e.Revision != revisions[e.ExecutionID]+1 {
				t.Fatalf("event %d has revision %d of a record that was at %d", e.ID, *e.Revision, revisions[e.ExecutionID])
			}
			revisions[e.ExecutionID] = *e.Revision
			seen++
		}
		if len(page.Events) == 0 {
			select {
			case <-grown:
			case <-ctx.Done():
				t.Fatalf("the log stopped after %d of %d events", seen, want)
			}
		}
	}
}

// A change is in the log when it has been answered.
func TestEvents_are_readable_when_the_change_is_answered(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		for i := range 20 {
			name := fmt.Sprintf("n-%02d", i)
			if err := store.Do(t.Context(), s, func(tx *store.Tx) error { return put(tx, name) }); err != nil {
				t.Fatal(err)
			}
			events := mustEvents(t, s)
			var data struct{ Name string }
			if err := json.Unmarshal(events[len(events)-1].Data.(json.RawMessage), &data); err != nil || data.Name != name || len(events) != i+1 {
				t.Fatalf("after change %s the log has %d events and ends with %q", name, len(events), data.Name)
			}
		}
	})
}

// After a restore ids may have been lost that somebody has seen: the log goes on behind a gap.
func TestEvents_gap(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		write := func(s *store.Store) {
			t.Helper()
			err := store.Do(t.Context(), s, func(tx *store.Tx) error {
				tx.Emit(event.Event{Type: event.TokenRevoked})
				return nil
			})
			if err := errors.Join(err, s.Sync(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		s, err := store.Open(t.Context(), store.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		write(s)
		write(s)
		err = store.Do(t.Context(), s, func(tx *store.Tx) error {
			_, err := tx.Exec(`UPDATE event_log SET gap_from = last, gap_to = last + 1000000, last = last + 1000000`)
			return err
		})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		s = storetest.Open(t, store.Config{URL: url})
		write(s)
		for _, tt := range []struct {
			after, first, resetTo int64
		}{{0, 1, 0}, {1, 2, 0}, {2, 1000003, 0}, {3, 1000003, 1000003}, {1000001, 1000003, 1000003}, {1000002, 1000003, 0}} {
			page, err := s.Events(t.Context(), event.Filter{}, tt.after, 100)
			if err != nil {
				t.Fatal(err)
			}
			if page.ResetTo != tt.resetTo || len(page.Events) == 0 || page.Events[0].ID != tt.first {
				t.Errorf("after %d: %+v, want event %d first and a reset to %d", tt.after, page, tt.first, tt.resetTo)
			}
		}
	})
}

func TestTrimEvents(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := &store.Clock{}
		s := storetest.Open(t, store.Config{URL: url, Clock: clock})
		write := func(n int) {
			for range n {
				if err := store.Do(t.Context(), s, func(tx *store.Tx) error {
					tx.Emit(event.Event{Type: event.TokenRevoked})
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		trim := func(age time.Duration, rows int64) {
			t.Helper()
			if err := s.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for n := 1; n > 0; {
				var err error
				if n, err = s.TrimEvents(t.Context(), age, rows); err != nil {
					t.Fatal(err)
				}
			}
		}
		oldest := func() int64 {
			log, err := s.EventLog(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return log.Oldest
		}
		write(10)
		clock.Advance(time.Hour)
		write(5)
		trim(2*time.Hour, 1000)
		if got := oldest(); got != 1 {
			t.Fatalf("nothing is old enough, yet the oldest is %d", got)
		}
		trim(30*time.Minute, 1000)
		if got := oldest(); got != 11 {
			t.Fatalf("oldest %d after an hour's events went, want 11", got)
		}
		page, err := s.Events(t.Context(), event.Filter{}, 3, 100)
		if err != nil || page.ResetTo != 11 || page.Events[0].ID != 11 {
			t.Errorf("a trimmed cursor got %+v, %v; want a reset to 11", page, err)
		}
		if page, err = s.Events(t.Context(), event.Filter{}, 999999, 100); err != nil || page.ResetTo != 11 {
			t.Errorf("a cursor ahead of the log got %+v, %v; want a reset to 11", page, err)
		}
		trim(1000*time.Hour, 2)
		if log, err := s.EventLog(t.Context()); err != nil || log.Newest-log.Oldest > 3 {
			t.Errorf("more than two rows are left: %+v, %v", log, err)
		}
	})
}
