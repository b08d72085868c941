package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowapi/flowapi/internal/reconcile"
)

// timers is work that falls due at set times.
type timers struct {
	mu    sync.Mutex
	due   []time.Time
	fired []time.Duration // since the start
	start time.Time
	fail  error
	looks int
}

func (w *timers) add(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = append(w.due, at)
	slices.SortFunc(w.due, time.Time.Compare)
}

func (w *timers) work(context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.fail != nil {
		return 0, w.fail
	}
	n := 0
	for len(w.due) > 0 && !w.due[0].After(time.Now()) {
		w.due = w.due[1:]
		w.fired = append(w.fired, time.Since(w.start))
		n++
	}
	return n, nil
}

func (w *timers) next(context.Context) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) == 0 {
		return time.Time{}, nil
	}
	return w.due[0], nil
}

// run runs a supervisor over w in a bubble of its own time.
func run(t *testing.T, w *timers, every time.Duration, test func(s *reconcile.Supervisor, failures func() int)) {
	synctest.Test(t, func(t *testing.T) {
		w.start = time.Now()
		var mu sync.Mutex
		failed := 0
		s := reconcile.New(time.Now, func(string, error) {
			mu.Lock()
			defer mu.Unlock()
			failed++
		}, reconcile.Loop{Name: "timers", Work: w.work, NextDue: w.next, Every: every})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		test(s, func() int {
			mu.Lock()
			defer mu.Unlock()
			return failed
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

func TestSupervisor_fires_when_it_is_due(t *testing.T) {
	t.Parallel()
	w := &timers{}
	run(t, w, time.Hour, func(*reconcile.Supervisor, func() int) {
		w.add(time.Now().Add(50 * time.Millisecond)) // before the first look
		w.add(time.Now().Add(90 * time.Second))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if want := []time.Duration{50 * time.Millisecond, 90 * time.Second}; !slices.Equal(w.fired, want) {
			t.Errorf("fired after %v, want %v", w.fired, want)
		}
		if w.looks > 6 {
			t.Errorf("looked %d times for two timers", w.looks)
		}
	})
}

func TestSupervisor_Arm_wakes_it_earlier(t *testing.T) {
	t.Parallel()
	w := &timers{}
	run(t, w, time.Hour, func(s *reconcile.Supervisor, _ func() int) {
		synctest.Wait() // asleep for an hour
		at := time.Now().Add(30 * time.Millisecond)
		w.add(at)
		s.Arm("timers", at)
		s.Arm("timers", at.Add(time.Second)) // later: nothing to change
		s.Arm("unknown", at)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{30 * time.Millisecond}; !slices.Equal(w.fired, want) {
			t.Errorf("fired after %v, want %v", w.fired, want)
		}
	})
}

func TestSupervisor_finds_what_nobody_told(t *testing.T) {
	t.Parallel()
	w := &timers{}
	run(t, w, 5*time.Second, func(*reconcile.Supervisor, func() int) {
		synctest.Wait()
		w.add(time.Now().Add(time.Second)) // another process
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(w.fired) != 1 || w.fired[0] > 5*time.Second {
			t.Errorf("fired after %v, want one within five seconds", w.fired)
		}
	})
}

func TestSupervisor_tries_again_after_an_error(t *testing.T) {
	t.Parallel()
	w := &timers{fail: errors.New("database away")}
	run(t, w, time.Hour, func(s *reconcile.Supervisor, failures func() int) {
		w.add(time.Now())
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if n := failures(); n < 3 || n > 5 {
			t.Errorf("%d failures were told in three and a half seconds, want one a second", n)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f := s.Figures()["timers"]
		if len(w.fired) != 1 || f.Acted != 1 || f.Errors < 3 || f.LastSuccess.IsZero() {
			t.Errorf("fired %v, figures %+v", w.fired, f)
		}
	})
}

// What is due but held by somebody else must not make the loop spin.
func TestSupervisor_rests_when_nothing_can_be_done(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := reconcile.New(time.Now, func(string, error) {}, reconcile.Loop{
			Name: "held", Every: time.Hour,
			Work:    func(context.Context) (int, error) { looks++; return 0, nil },
			NextDue: func(context.Context) (time.Time, error) { return time.Now().Add(-time.Second), nil },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if looks < 10 || looks > 60 {
			t.Errorf("looked %d times in a second", looks)
		}
	})
}

func TestSupervisor_Settle(t *testing.T) {
	t.Parallel()
	w := &timers{start: time.Now()}
	s := reconcile.New(time.Now, func(string, error) {}, reconcile.Loop{Name: "timers", Work: w.work, NextDue: w.next, Every: time.Hour})
	w.add(time.Now().Add(-time.Second))
	w.add(time.Now().Add(time.Hour))
	if err := s.Settle(t.Context()); err != nil || len(w.fired) != 1 {
		t.Errorf("Settle() = %v, fired %d, want the one that is due", err, len(w.fired))
	}
	w.fail = errors.New("database away")
	if err := s.Settle(t.Context()); !errors.Is(err, w.fail) {
		t.Errorf("Settle() = %v", err)
	}
}
