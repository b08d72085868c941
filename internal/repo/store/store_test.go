package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/flowapi/flowapi/db/migrations"
	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/hub"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put writes one token row, the smallest record there is, and an event.
func put(tx *store.Tx, name string) error {
	tx.Emit(event.Event{Type: event.TokenCreated, Data: map[string]any{"name": name}})
	return tx.ExecOne(`INSERT INTO tokens (id, name, role, namespace, prefix, hash, created_at) VALUES (?, ?, 'viewer', 'default', ?, ?, ?)`,
		store.ID(store.NewID()), name, name, []byte("h"), store.Millis(tx.Now()))
}

func mustNames(tb testing.TB, s *store.Store) []string {
	tb.Helper()
	var names []string
	err := s.Read(tb.Context(), func(q *store.Queries) error { return q.Select(&names, `SELECT name FROM tokens ORDER BY name`) })
	if err != nil {
		tb.Fatal(err)
	}
	return names
}

func mustEvents(tb testing.TB, s *store.Store) []event.Event {
	tb.Helper()
	if err := s.Sync(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	page, err := s.Events(tb.Context(), event.Filter{}, 0, 1000)
	if err != nil {
		tb.Fatal(err)
	}
	return page.Events
}

func TestWrite_refused_operation_leaves_nothing(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		refusal := fault.New(fault.CodeValidationFailed, "no")
		signalled := false
		err := store.Do(t.Context(), s, func(tx *store.Tx) error {
			tx.OnCommit(func() { signalled = true })
			return errors.Join(put(tx, "a"), refusal)
		})
		if !errors.Is(err, refusal) {
			t.Fatalf("Do() = %v, want the operation's own error", err)
		}
		if names, events := mustNames(t, s), mustEvents(t, s); len(names)+len(events) != 0 || signalled {
			t.Errorf("after a refusal there are rows %v, events %v, hook run: %v", names, events, signalled)
		}
	})
}

// A reader that is opened while somebody writes does not wait for the writer, nor see what is not committed.
func TestRead_opens_beside_a_writer(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		var names []string
		err := store.Do(t.Context(), s, func(tx *store.Tx) error {
			if err := put(tx, "a"); err != nil {
				return err
			}
			read := make(chan error)
			go func() {
				read <- s.Read(t.Context(), func(q *store.Queries) error { return q.Select(&names, `SELECT name FROM tokens`) })
			}()
			return <-read
		})
		if err != nil || len(names) > 0 {
			t.Errorf("read %v beside the writer: %v", names, err)
		}
	})
}

// One caller's failure, panic or disappearance inside a group must not touch its neighbours' changes.
// SQLite takes its log away when the last connection is closed, of those that have read and of the one that has written.
func TestClose_leaves_no_connection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Config{URL: filepath.Join(dir, "flowapi.db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Write(t.Context(), s, func(tx *store.Tx, _ *struct{}) error { return put(tx, "a") }); err != nil {
		t.Fatal(err)
	}
	mustNames(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "flowapi.db-[ws]*")); err != nil || len(left) > 0 {
		t.Errorf("closed, it leaves %v (%v)", left, err)
	}
}

func TestWrite_neighbours_in_a_group(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		const n = 200
		answered := make([]bool, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer func() {
					if r := recover(); (r != nil) != (i%4 == 1) {
						t.Errorf("operation %d: recovered %v", i, r)
					}
				}()
				err := store.Do(ctx, s, func(tx *store.Tx) error {
					if i%4 == 3 {
						cancel() // the client goes away while its change is under way
					}
					if err := put(tx, fmt.Sprintf("op-%03d", i)); err != nil {
						return err
					}
					switch i % 4 {
					case 1:
						panic("in operation")
					case 2:
						return fault.New(fault.CodeValidationFailed, "no")
					}
					return nil
				})
				answered[i] = err == nil
			})
		}
		wg.Wait()
		var want []string
		for i := range n {
			if ok := i%4 == 0 || i%4 == 3; ok != answered[i] {
				t.Errorf("operation %d answered well: %v, want %v", i, answered[i], ok)
			} else if ok {
				want = append(want, fmt.Sprintf("op-%03d", i))
			}
		}
		if got := mustNames(t, s); !slices.Equal(got, want) {
			t.Errorf("stored %v\nwant %v", got, want)
		}
		events := mustEvents(t, s)
		if len(events) != len(want) {
			t.Fatalf("%d events, want %d", len(events), len(want))
		}
		for i, e := range events {
			if e.ID != int64(i)+1 {
				t.Fatalf("event %d has the id %d: ids have holes", i, e.ID)
			}
		}
	})
}

// A test's FailNow, or anything that ends the goroutine, must not end the writer.
func TestWrite_goexit_inside_an_operation(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t, store.Config{URL: storetest.SQLite(t)})
	err := store.Do(t.Context(), s, func(tx *store.Tx) error {
		if err := put(tx, "gone"); err != nil {
			return err
		}
		runtime.Goexit()
		return nil
	})
	if fault.CodeOf(err) != fault.CodeUnavailable {
		t.Errorf("Do() = %v, want unavailable", err)
	}
	if err := store.Do(t.Context(), s, func(tx *store.Tx) error { return put(tx, "next") }); err != nil {
		t.Fatal(err)
	}
	if got := mustNames(t, s); !slices.Equal(got, []string{"next"}) {
		t.Errorf("stored %v", got)
	}
}

func TestWrite_cancelled_before_its_turn(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ran := false
		err := store.Do(ctx, s, func(*store.Tx) error {
			ran = true
			return nil
		})
		if !errors.Is(err, context.Canceled) || ran {
			t.Errorf("Do() = %v, ran: %v; want cancelled, not run", err, ran)
		}
	})
}

// A wake-up reaches every waiter of its key, once, when the change is committed; a change that was refused wakes nobody.
func TestTx_Wake(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		waiters := []*hub.Waiter{s.Hub().Wait([]string{"a"}, nil), s.Hub().Wait([]string{"a", "b"}, nil), s.Hub().Wait([]string{"c"}, nil)}
		woken := func() (all []bool) {
			for _, w := range waiters {
				select {
				case <-w.C():
					all = append(all, true)
				default:
					all = append(all, false)
				}
			}
			return all
		}
		for _, tt := range []struct {
			err  error
			want []bool
		}{{errors.New("no"), []bool{false, false, false}}, {nil, []bool{true, true, false}}} {
			err := store.Do(t.Context(), s, func(tx *store.Tx) error {
				tx.Wake("a")
				tx.Wake("b")
				tx.Wake("a")
				return tt.err
			})
			if got := woken(); !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
				t.Errorf("Do() = %v woke %v, want %v", err, got, tt.want)
			}
		}
	})
}

func TestWrite_reactors(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		refuse := false
		s.React(store.Reactor{Name: "echo", On: []event.Type{event.TokenCreated}, Do: func(tx *store.Tx, _ event.Event) error {
			tx.Emit(event.Event{Type: event.TokenRevoked})
			if refuse {
				return fault.New(fault.CodeAlreadyExists, "reactor says no")
			}
			return nil
		}})
		if err := store.Do(t.Context(), s, func(tx *store.Tx) error {
			tx.Final(func() error {
				if tx.LocalID(1) == 0 {
					t.Error("Final runs before the events are written")
				}
				return nil
			})
			return errors.Join(put(tx, "a"), put(tx, "b"))
		}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range mustEvents(t, s) {
			got = append(got, fmt.Sprintf("%d %s because of %d", e.ID, e.Type, e.Cause))
		}
		want := []string{"1 token.created because of 0", "2 token.created because of 0", "3 token.revoked because of 1", "4 token.revoked because of 2"}
		if !slices.Equal(got, want) {
			t.Errorf("events %q\nwant %q", got, want)
		}
		refuse = true
		err := store.Do(t.Context(), s, func(tx *store.Tx) error { return put(tx, "c") })
		if fault.CodeOf(err) != fault.CodeAlreadyExists || !strings.Contains(err.Error(), "echo") {
			t.Errorf("Do() = %v, want the reactor's refusal with its name", err)
		}
		if got := mustNames(t, s); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("stored %v", got)
		}
	})
}

func TestWrite_reactor_loop_is_a_fault(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		s.React(store.Reactor{Name: "self", On: []event.Type{event.TokenRevoked}, Do: func(tx *store.Tx, _ event.Event) error {
			tx.Emit(event.Event{Type: event.TokenRevoked})
			return nil
		}})
		err := store.Do(t.Context(), s, func(tx *store.Tx) error {
			tx.Emit(event.Event{Type: event.TokenRevoked})
			return nil
		})
		if fault.CodeOf(err) != fault.CodeReactorLoop {
			t.Errorf("Do() = %v, want reactor_loop", err)
		}
		if events := mustEvents(t, s); len(events) != 0 {
			t.Errorf("events %v", events)
		}
	})
}

func TestEmit_refuses_a_type_outside_the_catalogue(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		err := store.Do(t.Context(), s, func(tx *store.Tx) error {
			tx.Emit(event.Event{Type: "made.up"})
			return put(tx, "a")
		})
		if err == nil || len(mustNames(t, s)) != 0 {
			t.Errorf("Do() = %v, stored %v", err, mustNames(t, s))
		}
	})
}

func TestWrite_idempotency_key(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		with := func(key string, hash byte) context.Context {
			return call.With(t.Context(), call.Call{Namespace: "default", Token: "t", Key: &call.Idempotency{Key: key, Hash: [32]byte{hash},
				Render: func(result any) (call.Answer, error) {
					return call.Answer{Status: 201, ETag: `"1"`, Body: []byte(result.(string))}, nil
				}}})
		}
		do := func(ctx context.Context, name string) (string, error) {
			return store.Write(ctx, s, func(tx *store.Tx, out *string) error {
				*out = "made " + name
				return put(tx, name)
			})
		}
		if out, err := do(with("k", 1), "a"); err != nil || out != "made a" {
			t.Fatal(out, err)
		}
		_, err := do(with("k", 1), "again")
		replayed, ok := errors.AsType[*call.Replayed](err)
		if !ok || replayed.Answer.Status != 201 || string(replayed.Answer.Body) != "made a" || replayed.Answer.ETag != `"1"` {
			t.Errorf("the second request got %v, want the first answer", err)
		}
		if _, err := do(with("k", 2), "other"); fault.CodeOf(err) != fault.CodeIdempotencyMismatch {
			t.Errorf("another body got %v", err)
		}
		// A refusal is not kept.
		_, err = store.Write(with("r", 1), s, func(*store.Tx, *string) error { return fault.New(fault.CodeValidationFailed, "no") })
		if fault.CodeOf(err) != fault.CodeValidationFailed {
			t.Fatal(err)
		}
		if _, err := do(with("r", 1), "b"); err != nil {
			t.Errorf("after a refusal the key is taken: %v", err)
		}
		if got := mustNames(t, s); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("stored %v", got)
		}
	})
}

func TestWrite_idempotency_key_used_at_the_same_time(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		ctx := call.With(t.Context(), call.Call{Namespace: "default", Key: &call.Idempotency{Key: "k"}})
		var wg sync.WaitGroup
		results := make([]error, 16)
		for i := range results {
			wg.Go(func() {
				results[i] = store.Do(ctx, s, func(tx *store.Tx) error { return put(tx, fmt.Sprintf("op-%d", i)) })
			})
		}
		wg.Wait()
		done := 0
		for i, err := range results {
			_, replayed := errors.AsType[*call.Replayed](err)
			switch {
			case err == nil:
				done++
			case !replayed && fault.CodeOf(err) != fault.CodeIdempotencyInFlight:
				t.Errorf("request %d got %v", i, err)
			}
		}
		if names := mustNames(t, s); done != 1 || len(names) != 1 {
			t.Errorf("%d requests were the first, rows %v", done, names)
		}
	})
}

// TestChecked: a request that was answered is not checked again, and one that is answered while it is checked is not refused for what it
// has written itself.
func TestChecked(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		key := func(key string) context.Context {
			return call.With(t.Context(), call.Call{Namespace: "default", Key: &call.Idempotency{Key: key}})
		}
		refusal := fault.New(fault.CodeAlreadyExists, "There is one.")
		write := func(ctx context.Context, name string) error {
			return store.Do(ctx, s, func(tx *store.Tx) error { return put(tx, name) })
		}
		checked := func(ctx context.Context, change func() error) error {
			_, err := store.Checked(ctx, s, func() (struct{}, error) { return struct{}{}, change() })
			return err
		}
		if err := checked(key("refused"), func() error { return refusal }); !errors.Is(err, refusal) {
			t.Errorf("a refusal is answered with %v", err)
		}
		if err := checked(key("before"), func() error { return write(key("before"), "a") }); err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func() error{
			"before": func() error { t.Error("it was checked again"); return nil },
			"meanwhile": func() error {
				if err := write(key("meanwhile"), "b"); err != nil {
					t.Error(err)
				}
				return refusal
			},
		} {
			if _, replayed := errors.AsType[*call.Replayed](checked(key(what), change)); !replayed {
				t.Errorf("answered %s, and not again", what)
			}
		}
		if got := mustNames(t, s); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("stored %v", got)
		}
	})
}

func TestOpen_refuses_a_database_from_the_future(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), store.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		err = store.Do(t.Context(), s, func(tx *store.Tx) error {
			return tx.ExecOne(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, ?)`, true)
		})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		if s, err := store.Open(t.Context(), store.Config{URL: url}); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("Open() = %v, want a refusal", err)
			_ = s.Close()
		}
	})
}

func TestMigrations_have_the_same_names(t *testing.T) {
	t.Parallel()
	names := func(folder string) []string {
		files, err := fs.Glob(migrations.Files, folder+"/*.sql")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		return files
	}
	if a, b := names("sqlite"), names("postgres"); !slices.Equal(a, b) {
		t.Errorf("sqlite has %v, postgres has %v", a, b)
	}
}

// What a group could lose its neighbours' changes by must not be in the schema.
func TestMigrations_have_nothing_that_rolls_a_group_back(t *testing.T) {
	t.Parallel()
	files, _ := fs.Glob(migrations.Files, "sqlite/*.sql")
	for _, f := range files {
		text, err := fs.ReadFile(migrations.Files, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"DEFERRABLE", "DEFERRED", "ON CONFLICT ROLLBACK", "RAISE(ROLLBACK"} {
			if strings.Contains(strings.ToUpper(string(text)), bad) {
				t.Errorf("%s has %s", f, bad)
			}
		}
	}
}

// No file but the dialects' own names a database.
func TestDialects_keep_to_themselves(t *testing.T) {
	t.Parallel()
	own := map[string]bool{"sqlite.go": true, "postgres.go": true, "dialect.go": true, "sequencer.go": true, "store.go": true, "writer.go": true}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || own[filepath.Base(path)] && filepath.Base(filepath.Dir(path)) == "store" {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // our own source
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if lower := strings.ToLower(code); strings.Contains(lower, "postgres") || strings.Contains(lower, "sqlite") {
				t.Errorf("%s: %s", path, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
