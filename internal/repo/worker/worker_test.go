package worker_test

import (
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	domain "github.com/flowapi/flowapi/internal/domain/worker"
	"github.com/flowapi/flowapi/internal/hub"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
	"github.com/flowapi/flowapi/internal/storetest"
)

const namespace = "default" // of the engine, which calls here

func register(tb testing.TB, r *worker.Repo, in domain.Registration) domain.Worker {
	tb.Helper()
	in.WorkerID, in.TTL = "builder", time.Hour
	done, err := r.Register(tb.Context(), in)
	if err != nil || !done.New {
		tb.Fatalf("register %+v: %+v, %v", in, done, err)
	}
	return done.Worker
}

func read(tb testing.TB, s *store.Store, fn func(q *store.Queries) error) {
	tb.Helper()
	if err := s.Read(tb.Context(), fn); err != nil {
		tb.Fatal(err)
	}
}

// A registration is good until its expiry, and not at it.
func TestLive(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		w := register(t, worker.New(s), domain.Registration{InstanceID: "b-1", Lanes: []string{"ci"}, Capabilities: []string{"go"}})
		read(t, s, func(q *store.Queries) error {
			got, err := worker.Live(q, namespace, "b-1", w.ExpiresAt.Add(-time.Millisecond))
			if err != nil || got.WorkerID != "builder" || !got.ExpiresAt.Equal(w.ExpiresAt) || len(got.Lanes) != 1 || len(got.Capabilities) != 1 {
				t.Errorf("%+v, %v", got, err)
			}
			for instance, namespace := range map[string]string{"b-1": "other", "B-1": namespace, "": namespace} {
				if _, err := worker.Live(q, namespace, instance, w.RegisteredAt); fault.CodeOf(err) != fault.CodeWorkerNotRegistered {
					t.Errorf("%q in %s: %v", instance, namespace, err)
				}
			}
			if _, err := worker.Live(q, namespace, "b-1", w.ExpiresAt); fault.CodeOf(err) != fault.CodeWorkerNotRegistered {
				t.Errorf("at the expiry: %v", err)
			}
			return nil
		})
	})
}

func TestCapable(t *testing.T) {
	t.Parallel()
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		r := worker.New(s)
		first := register(t, r, domain.Registration{InstanceID: "all"})
		register(t, r, domain.Registration{InstanceID: "go", Lanes: []string{"ci", "cd"}, Capabilities: []string{"go"}})
		register(t, r, domain.Registration{InstanceID: "both", Lanes: []string{"ci"}, Capabilities: []string{"linux", "go"}})
		register(t, r, domain.Registration{InstanceID: "leaving", Lanes: []string{"ci"}, Capabilities: []string{"linux", "go"}})
		last := register(t, r, domain.Registration{InstanceID: "other", Lanes: []string{"ci,cd"}, Capabilities: []string{"go"}})
		if _, err := r.Drain(t.Context(), "leaving", ""); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			namespace, lane string
			need            execution.Capabilities
			at              time.Time
			want            int
		}{
			{namespace, "ci", nil, last.HeartbeatAt, 3},
			{namespace, "cd", nil, last.HeartbeatAt, 2},
			{namespace, "c", nil, last.HeartbeatAt, 1},
			{namespace, "ci", execution.Capabilities{"go"}, last.HeartbeatAt, 2},
			{namespace, "ci", execution.Capabilities{"go", "linux"}, last.HeartbeatAt, 1},
			{namespace, "ci", execution.Capabilities{"windows"}, last.HeartbeatAt, 0},
			{namespace, "c", nil, first.ExpiresAt.Add(-time.Millisecond), 1},
			{namespace, "c", nil, first.ExpiresAt, 0},
			{"other", "ci", nil, last.HeartbeatAt, 0},
		} {
			read(t, s, func(q *store.Queries) error {
				got, err := worker.Capable(q, tt.namespace, tt.lane, tt.need, tt.at)
				if got != tt.want {
					t.Errorf("%d could have what requires %v in lane %s of %s, want %d", got, tt.need, tt.lane, tt.namespace, tt.want)
				}
				return err
			})
		}
	})
}

// A drain wakes the claims that wait as the instance, and no others; again it wakes nobody.
func TestDrain_wakes(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		h := hub.New()
		s := storetest.Open(t, store.Config{URL: url, Hub: h})
		r := worker.New(s)
		register(t, r, domain.Registration{InstanceID: "b/1"})
		first, second := h.Wait([]string{worker.DrainKey(namespace, "b/1")}, nil), h.Wait([]string{"lane", worker.DrainKey(namespace, "b/1")}, nil)
		other := h.Wait([]string{worker.DrainKey(namespace, "b"), worker.DrainKey("other", "b/1")}, nil)
		defer other.Stop()
		if _, err := r.Drain(t.Context(), "b/1", ""); err != nil {
			t.Fatal(err)
		}
		<-first.C()
		first.Stop() // without having taken anything: the next one is woken
		<-second.C()
		second.Stop()
		again := h.Wait([]string{worker.DrainKey(namespace, "b/1")}, nil)
		defer again.Stop()
		if _, err := r.Drain(t.Context(), "b/1", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Heartbeat(t.Context(), "b/1"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-again.C():
			t.Error("a worker that drains was woken again")
		case <-other.C():
			t.Error("another instance was woken")
		default:
		}
	})
}

// What a heartbeat does to the next lapse is known to the loop at once, and to the database.
func TestNextDue(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		alarms := make(chan time.Time, 10)
		s := storetest.Open(t, store.Config{URL: url, Alarm: func(loop string, at time.Time) {
			if loop == worker.Loop {
				alarms <- at
			}
		}})
		r := worker.New(s)
		due := func(want time.Time) {
			t.Helper()
			if got, err := r.NextDue(t.Context()); err != nil || !got.Equal(want) {
				t.Errorf("due at %s, %v; want %s", got, err, want)
			}
		}
		due(time.Time{})
		w := register(t, r, domain.Registration{InstanceID: "b-1"})
		if at := <-alarms; !at.Equal(w.ExpiresAt) {
			t.Errorf("told of %s, want %s", at, w.ExpiresAt)
		}
		due(w.ExpiresAt)
		w, err := r.Heartbeat(t.Context(), "b-1")
		if err != nil {
			t.Fatal(err)
		}
		if at := <-alarms; !at.Equal(w.ExpiresAt) {
			t.Errorf("told of %s, want %s", at, w.ExpiresAt)
		}
		due(w.ExpiresAt)
		if n, err := r.Sweep(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := r.Remove(t.Context(), "b-1", ""); err != nil {
			t.Fatal(err)
		}
		due(time.Time{})
	})
}
