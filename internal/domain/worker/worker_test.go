package worker_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/worker"
)

const ttl = 30 * time.Second

var (
	start  = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	nobody = worker.Worker{Namespace: "default", InstanceID: "builder-1"}
	said   = worker.Registration{InstanceID: "builder-1", WorkerID: "builder", Lanes: []string{"ci"}, Capabilities: []string{"go"}, TTL: ttl}
	alive  = worker.Worker{
		Namespace: "default", InstanceID: "builder-1", WorkerID: "builder", Lanes: []string{"ci"}, Capabilities: execution.Capabilities{"go"}, TTL: ttl,
		RegisteredAt: start, HeartbeatAt: start, ExpiresAt: after(30),
	}
)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// with returns w after some changes.
func with(w worker.Worker, change func(w *worker.Worker)) worker.Worker {
	change(&w)
	return w
}

// told returns the events of a change as lines.
func told(tb testing.TB, c worker.Change) []string {
	tb.Helper()
	var lines []string
	for _, e := range c.Events {
		data, err := json.Marshal(e.Data)
		if err != nil || e.Namespace != "default" {
			tb.Errorf("event %s of %s: %v", e.Type, e.Namespace, err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", e.Type, data))
	}
	return lines
}

func TestWorker(t *testing.T) {
	t.Parallel()
	for _, tt := range changes {
		c, err := tt.do(t, tt.from, after(tt.at))
		if fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.code)
			continue
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(tt.want, c.Worker); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.told, told(t, c)); diff != "" {
			t.Errorf("%s tells (-want +got):\n%s", tt.name, diff)
		}
	}
}

const me = `"worker_instance_id":"builder-1","worker_id":"builder"`

var draining = with(alive, func(w *worker.Worker) { w.DrainingSince = after(5) })

// beaten is a worker after a heartbeat.
func beaten(w worker.Worker, at time.Time) worker.Worker {
	return with(w, func(w *worker.Worker) { w.HeartbeatAt, w.ExpiresAt = at, at.Add(w.TTL) })
}

// register registers the worker, with some changes.
func register(change func(in *worker.Registration)) func(testing.TB, worker.Worker, time.Time) (worker.Change, error) {
	in := said
	change(&in)
	return func(tb testing.TB, w worker.Worker, now time.Time) (worker.Change, error) {
		tb.Helper()
		c, made, err := w.Register(in, now)
		if err == nil && made != !w.Live(now) {
			tb.Errorf("registered anew: %t", made)
		}
		return c, err
	}
}

var again = register(func(*worker.Registration) {})

func drain(_ testing.TB, w worker.Worker, now time.Time) (worker.Change, error) {
	return w.Drain("update", now)
}

func remove(_ testing.TB, w worker.Worker, now time.Time) (worker.Change, error) {
	return w.Remove("", now)
}

func lapse(_ testing.TB, w worker.Worker, now time.Time) (worker.Change, error) {
	c, lapsed := w.Lapse(now)
	if !lapsed {
		c.Worker = w
	}
	return c, nil
}

func heartbeat(_ testing.TB, w worker.Worker, now time.Time) (worker.Change, error) {
	return w.Heartbeat(now)
}

var changes = []struct {
	name string
	from worker.Worker
	do   func(testing.TB, worker.Worker, time.Time) (worker.Change, error)
	at   int // seconds after its registration
	want worker.Worker
	told []string
	code fault.Code
}{
	{"register, where nobody is", nobody, again, 0, alive, []string{`worker.registered {` + me + `,"lanes":["ci"],"capabilities":["go"],"liveness_ttl_ms":30000}`}, ""},
	{"register for all lanes, with nothing", nobody, register(func(in *worker.Registration) { in.Lanes, in.Capabilities = []string{}, nil }), 0,
		with(alive, func(w *worker.Worker) { w.Lanes, w.Capabilities = nil, nil }),
		[]string{`worker.registered {` + me + `,"lanes":[],"capabilities":[],"liveness_ttl_ms":30000}`}, ""},
	{"register, in any order and twice", nobody, register(func(in *worker.Registration) {
		in.Lanes, in.Capabilities = []string{"b", "a", "b"}, []string{"y", "x", "y"}
	}), 0, with(alive, func(w *worker.Worker) { w.Lanes, w.Capabilities = []string{"a", "b"}, execution.Capabilities{"x", "y"} }),
		[]string{`worker.registered {` + me + `,"lanes":["a","b"],"capabilities":["x","y"],"liveness_ttl_ms":30000}`}, ""},
	{"register again is a heartbeat", alive, again, 10, beaten(alive, after(10)), nil, ""},
	{"register with another ttl", alive, register(func(in *worker.Registration) { in.TTL = time.Second }), 10,
		with(alive, func(w *worker.Worker) { w.TTL, w.HeartbeatAt, w.ExpiresAt = time.Second, after(10), after(11) }),
		[]string{`worker.registered {` + me + `,"lanes":["ci"],"capabilities":["go"],"liveness_ttl_ms":1000}`}, ""},
	{"register with other lanes", alive, register(func(in *worker.Registration) { in.Lanes = []string{"cd"} }), 0,
		with(alive, func(w *worker.Worker) { w.Lanes = []string{"cd"} }),
		[]string{`worker.registered {` + me + `,"lanes":["cd"],"capabilities":["go"],"liveness_ttl_ms":30000}`}, ""},
	{"register while it drains", draining, again, 10, beaten(draining, after(10)), nil, ""},
	{"register as another worker", alive, register(func(in *worker.Registration) { in.WorkerID = "other" }), 29, worker.Worker{}, nil, fault.CodeWorkerReassigned},
	{"register as another worker, when the one before has lapsed", draining, register(func(in *worker.Registration) { in.WorkerID = "other" }), 30,
		with(alive, func(w *worker.Worker) {
			w.WorkerID, w.RegisteredAt, w.HeartbeatAt, w.ExpiresAt = "other", after(30), after(30), after(60)
		}), []string{`worker.registered {"worker_instance_id":"builder-1","worker_id":"other","lanes":["ci"],"capabilities":["go"],"liveness_ttl_ms":30000}`}, ""},
	{"register with a bad capability", alive, register(func(in *worker.Registration) { in.Capabilities = []string{"a b"} }), 0, worker.Worker{}, nil, fault.CodeInvalidCapabilities},
	{"register with a bad capability, as another worker", alive, register(func(in *worker.Registration) { in.WorkerID, in.Capabilities = "other", []string{""} }), 0,
		worker.Worker{}, nil, fault.CodeInvalidCapabilities},
	{"heartbeat", alive, heartbeat, 29, beaten(alive, after(29)), nil, ""},
	{"heartbeat while it drains", draining, heartbeat, 29, beaten(draining, after(29)), nil, ""},
	{"heartbeat at the expiry", alive, heartbeat, 30, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"heartbeat of nobody", nobody, heartbeat, 0, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"drain", alive, drain, 5, draining, []string{`worker.drained {` + me + `,"reason":"update"}`}, ""},
	{"drain again", draining, drain, 6, draining, nil, ""},
	{"drain at the expiry", draining, drain, 30, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"drain nobody", nobody, drain, 0, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"remove", draining, remove, 10, nobody, []string{`worker.removed {` + me + `}`}, ""},
	{"remove at the expiry", alive, remove, 30, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"remove nobody", nobody, remove, 0, worker.Worker{}, nil, fault.CodeWorkerNotRegistered},
	{"lapse at the expiry", draining, lapse, 30, nobody, []string{`worker.heartbeat_lost {` + me + `}`}, ""},
	{"lapse before the expiry", alive, lapse, 29, alive, nil, ""},
	{"lapse of nobody", nobody, lapse, 0, nobody, nil, ""},
}

// A heartbeat is taken exactly until the last one and the ttl, and a refresh leaves registered_at alone. executions.md 5/35.
func TestWorker_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, now := nobody, start
		var last, registered time.Time // what the model knows
		var lasting time.Duration
		draining := false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
			live := !registered.IsZero() && now.Before(last.Add(lasting))
			var c worker.Change
			var err error
			switch op := rapid.SampledFrom([]string{"register", "register", "heartbeat", "heartbeat", "drain", "remove", "lapse"}).Draw(t, "op"); op {
			case "register":
				in := said
				in.TTL = time.Duration(rapid.IntRange(1, 5).Draw(t, "ttl")) * time.Second
				in.WorkerID = rapid.SampledFrom([]string{"builder", "other"}).Draw(t, "worker")
				var made bool
				if c, made, err = w.Register(in, now); err == nil {
					if made == live {
						t.Fatalf("registered anew: %t, although it lived: %t", made, live)
					}
					if made {
						registered, draining = now, false
					}
					last, lasting = now, in.TTL
				} else if !live || in.WorkerID == w.WorkerID {
					t.Fatalf("refused: %v", err)
				}
			case "heartbeat":
				if c, err = w.Heartbeat(now); (err == nil) != live {
					t.Fatalf("a heartbeat %s after the last, with a ttl of %s: %v", now.Sub(last), lasting, err)
				}
				if err == nil {
					last = now
				}
				if len(c.Events) > 0 {
					t.Fatalf("a heartbeat tells %+v", c.Events)
				}
			case "drain":
				if c, err = w.Drain("", now); (err == nil) != live || err == nil && (len(c.Events) == 1) == draining {
					t.Fatalf("drain: %v, %+v", err, c.Events)
				}
				draining = draining || err == nil
			case "remove":
				if c, err = w.Remove("", now); (err == nil) != live {
					t.Fatalf("remove: %v", err)
				}
				if err == nil {
					registered, draining = time.Time{}, false
				}
			case "lapse":
				var lapsed bool
				if c, lapsed = w.Lapse(now); lapsed != (!live && !registered.IsZero()) {
					t.Fatalf("lapsed: %t", lapsed)
				}
				if !lapsed {
					continue
				}
				if c.Events[0].Type != event.WorkerHeartbeatLost {
					t.Fatalf("tells %+v", c.Events)
				}
				registered, draining = time.Time{}, false
			}
			if err != nil {
				continue
			}
			if w = c.Worker; registered.IsZero() {
				if diff := cmp.Diff(nobody, w); diff != "" {
					t.Fatalf("something stayed (-want +got):\n%s", diff)
				}
				continue
			}
			if !w.RegisteredAt.Equal(registered) || !w.HeartbeatAt.Equal(last) || !w.ExpiresAt.Equal(last.Add(lasting)) || w.Draining() != draining || !w.Live(now) {
				t.Fatalf("%+v, want one registered at %s, with a heartbeat at %s for %s, draining %t", w, registered, last, lasting, draining)
			}
		}
	})
}
