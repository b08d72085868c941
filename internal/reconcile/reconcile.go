// Package reconcile runs the work that time brings: one supervisor, and a loop for each kind of work.
//
// A loop sleeps until the next due time that the database knows, or until [Supervisor.Arm] tells it of an earlier one; so a
// timer fires when it is due, and an idle server does nothing. Every loop may run in any number of processes at once.
package reconcile

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Loop is one kind of work.
type Loop struct {
	Name string
	// Work does up to one batch and returns how much it did. While it does something it is called again at once.
	Work func(ctx context.Context) (int, error)
	// NextDue says when there is work again, zero for never. nil for work that has no due time.
	NextDue func(ctx context.Context) (time.Time, error)
	// Every is the longest sleep: the period of work without due times, and for the rest the safety net for work that
	// another process has left behind.
	Every time.Duration
}

// Figures tell how a loop has done.
type Figures struct {
	Runs        int64
	Acted       int64
	Errors      int64
	LastSuccess time.Time
}

// Supervisor runs loops.
type Supervisor struct {
	now     func() time.Time
	onError func(loop string, err error)
	loops   map[string]*runner
	order   []*runner // as they were given
}

type runner struct {
	Loop
	wake chan struct{}

	mu      sync.Mutex
	next    time.Time // when the loop will look again
	figures Figures
}

const (
	retryAfter = time.Second
	// breath is how long a loop rests when something was due but nothing could be done: another process has it, or its clock
	// is behind ours.
	breath = 20 * time.Millisecond
)

// New returns a supervisor that judges due times by now and tells onError of failures, after which it tries again.
func New(now func() time.Time, onError func(loop string, err error), loops ...Loop) *Supervisor {
	s := &Supervisor{now: now, onError: onError, loops: map[string]*runner{}}
	for _, l := range loops {
		r := &runner{Loop: l, wake: make(chan struct{}, 1)}
		s.loops[l.Name], s.order = r, append(s.order, r)
	}
	return s
}

// Arm tells the loop called name that it has work at the given time. It does not block; an unknown name is ignored.
func (s *Supervisor) Arm(name string, at time.Time) {
	r, ok := s.loops[name]
	if !ok {
		return
	}
	r.mu.Lock()
	earlier := at.Before(r.next)
	if earlier {
		r.next = at
	}
	r.mu.Unlock()
	if earlier {
		r.poke()
	}
}

// Poke makes every loop look at once.
func (s *Supervisor) Poke() {
	for _, r := range s.loops {
		r.mu.Lock()
		r.next = time.Time{}
		r.mu.Unlock()
		r.poke()
	}
}

func (r *runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Figures returns how every loop has done so far.
func (s *Supervisor) Figures() map[string]Figures {
	out := map[string]Figures{}
	for name, r := range s.loops {
		r.mu.Lock()
		out[name] = r.figures
		r.mu.Unlock()
	}
	return out
}

// Run runs the loops until ctx ends.
func (s *Supervisor) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, r := range s.loops {
		g.Go(func() error {
			s.run(ctx, r)
			return nil
		})
	}
	return g.Wait()
}

func (s *Supervisor) run(ctx context.Context, r *runner) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		if at := r.plan(); s.now().Before(at) {
			timer.Reset(at.Sub(s.now()))
			continue
		}
		at, err := s.look(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.onError(r.Name, err)
		}
		timer.Reset(max(0, s.settle(r, at).Sub(s.now())))
	}
}

// plan returns when r looks again.
func (r *runner) plan() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// settle makes at the time of the next look, unless somebody has asked for an earlier one meanwhile.
func (s *Supervisor) settle(r *runner, at time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.Before(r.next) {
		r.next = at
	}
	return r.next
}

// look does what there is to do and returns when to look again.
func (s *Supervisor) look(ctx context.Context, r *runner) (time.Time, error) {
	r.mu.Lock()
	started := s.now()
	r.next = started.Add(jitter(r.Every)) // before looking: an alarm from now on counts
	r.mu.Unlock()
	done := 0
	for {
		n, err := r.Work(ctx)
		r.note(s.now(), n, err)
		if err != nil {
			return s.now().Add(jitter(retryAfter)), err
		}
		done += n
		if n == 0 || ctx.Err() != nil {
			break
		}
	}
	if r.NextDue == nil {
		return started.Add(r.Every), nil
	}
	due, err := r.NextDue(ctx)
	switch now := s.now(); {
	case err != nil:
		return now.Add(jitter(retryAfter)), err
	case due.IsZero():
		return now.Add(jitter(r.Every)), nil
	case !due.After(now) && done == 0:
		return now.Add(breath), nil
	default:
		return due, nil
	}
}

func (r *runner) note(now time.Time, n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.Runs++
	r.figures.Acted += int64(n)
	if err != nil {
		r.figures.Errors++
		return
	}
	r.figures.LastSuccess = now
}

// jitter spreads the replicas: between nine tenths of d and d.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d/10)+1)) //nolint:gosec // a pause is no secret
}

// Settle does all the work that is due now, loop by loop in the order in which they were given, and returns when there is none left. For tests that have moved the clock.
func (s *Supervisor) Settle(ctx context.Context) error {
	for _, r := range s.order {
		for {
			n, err := r.Work(ctx)
			if err != nil {
				return err
			}
			if n > 0 {
				continue
			}
			if r.NextDue == nil {
				break
			}
			due, err := r.NextDue(ctx)
			if err != nil {
				return err
			}
			if due.IsZero() || due.After(s.now()) {
				break
			}
			time.Sleep(time.Millisecond) // another transaction has it under way
		}
	}
	return nil
}
