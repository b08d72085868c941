package run_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
)

// caller is somebody in a property: an engine with its token and the generation that it believes in.
type caller struct {
	token      string
	generation int64
}

// TestRun_Properties drives runs at random, by several engines and people. reference: runs-and-taskflows.md D1 1-8; D2 9, 10, 13.
func TestRun_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		c, err := run.New(run.Create{ID: id, Namespace: "default", WorkflowName: "w", FlowID: flowID}, event.By{Actor: "a", At: now})
		if err != nil {
			t.Fatal(err)
		}
		r := c.Run
		callers := []*caller{{token: "x"}, {token: "y"}, {token: "z"}}
		var m runModel
		for i := range rapid.IntRange(1, 25).Draw(t, "calls") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, time.Minute}).Draw(t, "pass"))
			who := rapid.SampledFrom(callers).Draw(t, "caller")
			what := rapid.SampledFrom([]string{"acquire", "acquire", "start", "start", "wait", "resume", "complete", "fail", "cancel", "force", "release", "late", "called", "dismiss"}).Draw(t, "verb")
			before := frozen(r)
			by := event.By{Actor: "token:" + who.token, At: now}
			c, how, fenced, err := act(t, what, r, who, by)
			if diff := cmp.Diff(before, r); diff != "" {
				t.Fatalf("%s changed its receiver (-before +after):\n%s", what, diff)
			}
			if fenced && who.generation != r.Generation {
				if refused(t, err, fault.CodeLeaseLost, map[string]any{"current_generation": r.Generation}); t.Failed() {
					t.FailNow()
				}
			}
			if err != nil {
				if diff := cmp.Diff(run.Change{}, c); diff != "" {
					t.Fatalf("%s is refused with a change:\n%s", what, diff)
				}
				if fault.CodeOf(err) == fault.CodeInternal {
					t.Fatal(err)
				}
				continue
			}
			next := c.Run
			switch {
			case len(c.Events) == 1 && next.Revision == r.Revision+1 && *c.Events[0].Revision == next.Revision && next.UpdatedAt.Equal(now) && c.Events[0].RunID == id:
			case len(c.Events) == 0 && (cmp.Equal(before, next) || how == run.Renewed):
			default:
				t.Fatalf("%s (call %d): revision %d became %d with %d events", what, i, r.Revision, next.Revision, len(c.Events))
			}
			if next.Status != r.Status && !slices.Contains(r.Status.Successors(), next.Status) || r.Status.Terminal() && next.Status != r.Status && what != "resume" {
				t.Fatalf("%s: %s became %s", what, r.Status, next.Status)
			}
			m.leased(t, what, who, r, next, how, now)
			m.passed(t, what, next, now)
			if (next.Wait != nil) != (next.Status == run.Waiting) || next.Status == run.Cancelling && next.Cancellation == nil {
				t.Fatalf("a run that is %s has the wait %v and the cancellation %v", next.Status, next.Wait, next.Cancellation)
			}
			if r.CancelReason != "" && next.CancelReason != r.CancelReason && what != "resume" {
				t.Fatalf("%s: the reason %s became %s", what, r.CancelReason, next.CancelReason)
			}
			r = next
		}
	})
}

// runModel is what becomes of a run, by the calls that it took.
type runModel struct {
	owner          string        // who was granted the lease last, "" since it was given back or the run ended
	under          time.Duration // how long the run was under way
	since          time.Time     // since when it is
	started, ended time.Time     // the first start; the present end
}

// leased follows the lease, and fails when the run has another one.
func (m *runModel) leased(t *rapid.T, what string, who *caller, r, next run.Run, how run.Leased, now time.Time) {
	grants := what == "acquire" && m.owner != who.token
	if grants != (next.Generation == r.Generation+1) || !grants && next.Generation != r.Generation {
		t.Fatalf("%s by %s, after %q: generation %d became %d", what, who.token, m.owner, r.Generation, next.Generation)
	}
	if what == "acquire" {
		if grants && m.owner != "" && r.Lease.Live(now) || r.Status.Terminal() || grants == (how == run.Renewed) {
			t.Fatalf("%s gets the lease that %s has until %s of a run that is %s: %s", who.token, m.owner, r.Lease.Until, r.Status, how)
		}
		m.owner, who.generation = who.token, next.Generation
	}
	if what == "release" || next.Status.Terminal() {
		m.owner = ""
	}
	if (next.Lease.Owner == nil) != (m.owner == "") || next.Lease.Until.IsZero() != (m.owner == "") || m.owner != "" && !cmp.Equal(next.Lease.Owner, run.OwnerOf(m.owner)) {
		t.Fatalf("%s: the lease of %q is %+v", what, m.owner, next.Lease)
	}
}

// passed follows the times of the run, and fails when it has others.
func (m *runModel) passed(t *rapid.T, what string, next run.Run, now time.Time) {
	// What it takes is what lies between its beginnings and its ends.
	goes := next.Status == run.Running || next.Status == run.Waiting || next.Status == run.Cancelling
	if goes && m.since.IsZero() {
		m.since = now
	} else if !goes && !m.since.IsZero() {
		m.under, m.since = m.under+now.Sub(m.since), time.Time{}
	}
	if m.started.IsZero() && goes {
		m.started = now
	}
	if !next.Status.Terminal() {
		m.ended = time.Time{}
	} else if m.ended.IsZero() {
		m.ended = now
	}
	if next.TotalDuration != m.under || !next.ActiveSince.Equal(m.since) || !next.StartedAt.Equal(m.started) || !next.EndedAt.Equal(m.ended) {
		t.Fatalf("%s: under way for %s and since %s, want %s and %s; started %s, want %s; ended %s, want %s",
			what, next.TotalDuration, next.ActiveSince, m.under, m.since, next.StartedAt, m.started, next.EndedAt, m.ended)
	}
}

// act draws what a verb is called with, and calls it. fenced says whether it carries the caller's generation.
func act(t *rapid.T, what string, r run.Run, who *caller, by event.By) (c run.Change, how run.Leased, fenced bool, err error) {
	var generation *int64
	if rapid.Bool().Draw(t, "with generation") {
		generation = new(who.generation)
	}
	switch what {
	case "acquire":
		c, how, err = r.Acquire(who.token, rapid.SampledFrom([]time.Duration{0, time.Second, 30 * time.Second, time.Hour, time.Hour + 1}).Draw(t, "ttl"), by)
		return c, how, false, err
	case "start":
		c, err = r.Start(who.generation, by)
		return c, "", true, err
	case "wait":
		p := park(who.generation)
		if rapid.Bool().Draw(t, "with deadline") {
			p.Deadline = by.At.Add(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "until"))
		}
		p.OnTimeout = rapid.SampledFrom([]run.OnTimeout{"", run.TimeoutCancels, run.TimeoutFails, run.TimeoutResumes}).Draw(t, "on_timeout")
		c, err = r.Park(waitID, p, horizon, by)
		return c, "", true, err
	case "resume":
		in := rapid.SampledFrom([]run.Resume{{}, {Restart: true}, {FromStep: "a"}}).Draw(t, "resume")
		in.Generation = generation
		c, err = r.Resume(in, by)
		return c, "", generation != nil, err
	case "complete":
		c, err = r.Complete(who.generation, "s", rapid.IntRange(0, 1).Draw(t, "open"), by)
		return c, "", true, err
	case "fail":
		c, err = r.Fail(who.generation, "e", "s", by)
		return c, "", true, err
	case "cancel":
		in := run.Cancel{Generation: generation, Deadline: 5 * time.Second, Reason: rapid.SampledFrom([]run.CancelReason{"", run.ByParent}).Draw(t, "reason")}
		c, err = r.Cancel(in, by)
		return c, "", generation != nil, err
	case "force":
		if r.Status != run.Cancelling {
			return run.Change{}, "", false, fault.New(fault.CodeIllegalTransition, "the sweep forces what is cancelling")
		}
		c, err = r.Force(by)
	case "release":
		c, err = r.Release(run.Release{Token: who.token, Generation: who.generation, NeedsResume: rapid.Bool().Draw(t, "unfinished")}, by)
		return c, "", true, err
	case "late":
		c, err = r.Late(by)
	case "called":
		if r.Status != run.Waiting {
			return run.Change{}, "", false, fault.New(fault.CodeIllegalTransition, "who does not wait is not called")
		}
		c, err = r.Called(by)
	default:
		c = r.Dismiss(rapid.Bool().Draw(t, "dismissed"), by)
	}
	return c, "", false, err
}
