package run_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
)

// TestAcquire holds the golden vectors. reference: runs-and-taskflows.md G-LE, A7; RS-04, RS-09, RS-10.
func TestAcquire(t *testing.T) {
	t.Parallel()
	now := at(100)
	owned := func(by string, until time.Time, generation int64) run.Run {
		r := in(t, run.Running)
		r.Lease, r.Generation = run.Lease{Owner: run.OwnerOf(by), Until: until}, generation
		return r
	}
	free := fresh(t)
	tests := []struct {
		name       string
		run        run.Run
		token      string
		generation int64 // after it
		how        run.Leased
		code       fault.Code
		told       []string
	}{
		{"nobody's", free, "T", 1, run.Granted, "", []string{`run.leased {"generation":1,"outcome":"granted","lease_until":"2026-11-21T09:32:40.000Z"}`}},
		{"its own, live", owned("T", at(150), 1), "T", 1, run.Renewed, "", nil},
		{"another's, live", owned("T", at(150), 1), "U", 1, "", fault.CodeLeaseHeld, nil},
		{"another's, run out a second ago", owned("old", at(99), 5), "U", 6, run.TakenOver, "",
			[]string{`run.leased {"generation":6,"outcome":"taken_over","lease_until":"2026-11-21T09:32:40.000Z"}`}},
		{"its own, run out", owned("T", at(10), 3), "T", 3, run.Renewed, "", nil},
		{"another's, at its very end", owned("T", now, 2), "U", 2, "", fault.CodeLeaseHeld, nil}, // strictly after it
		{"another's, just after its end", owned("T", now.Add(-1), 2), "U", 3, run.TakenOver, "",
			[]string{`run.leased {"generation":3,"outcome":"taken_over","lease_until":"2026-11-21T09:32:40.000Z"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozen(tt.run)
			got, how, err := tt.run.Acquire(tt.token, time.Minute, event.By{Actor: "token:ci", At: now})
			if diff := cmp.Diff(before, tt.run); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
			if tt.code != "" {
				refused(t, err, tt.code, map[string]any{"lease_until": event.Stamp(before.Lease.Until)})
				if diff := cmp.Diff(run.Change{}, got); diff != "" || how != "" {
					t.Errorf("%q\n%s", how, diff)
				}
				return
			}
			want := before
			want.Lease = run.Lease{Owner: run.OwnerOf(tt.token), Until: now.Add(time.Minute)}
			if how != run.Renewed {
				want.Generation, want.Revision, want.UpdatedAt = tt.generation, before.Revision+1, now
			}
			if diff := cmp.Diff(want, got.Run); err != nil || how != tt.how || diff != "" {
				t.Errorf("%q, %v (-want +got):\n%s", how, err, diff)
			}
			if diff := cmp.Diff(tt.told, lines(t, got.Events)); diff != "" || got.Run.Generation != tt.generation {
				t.Errorf("generation %d (-want +got):\n%s", got.Run.Generation, diff)
			}
		})
	}
}

// TestAcquire_Bounds. reference: runs-and-taskflows.md D1 7; model.md "Run" (lease).
func TestAcquire_Bounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttl  time.Duration
		code fault.Code
	}{
		{-time.Second, fault.CodeOutOfRange}, {0, fault.CodeOutOfRange}, {time.Second - time.Millisecond, fault.CodeOutOfRange}, {time.Second, ""},
		{1500 * time.Millisecond, ""}, {time.Hour, ""}, {time.Hour + time.Millisecond, fault.CodeOutOfRange},
	} {
		r := fresh(t)
		got, _, err := r.Acquire(token, tt.ttl, by(1))
		if refused(t, err, tt.code, nil); tt.code != "" {
			if diff := cmp.Diff(run.Change{}, got); diff != "" || pointer(err) != "/ttl_ms" {
				t.Errorf("%s: %s\n%s", tt.ttl, pointer(err), diff)
			}
		} else if !got.Run.Lease.Until.Equal(at(1).Add(tt.ttl)) {
			t.Errorf("%s: until %s", tt.ttl, got.Run.Lease.Until)
		}
	}
}

// TestAcquire_Statuses: whatever has not ended can be leased. reference: runs-and-taskflows.md D1 8.
func TestAcquire_Statuses(t *testing.T) {
	t.Parallel()
	for _, s := range run.Statuses() {
		r := in(t, s)
		got, _, err := r.Acquire("engine-2", time.Minute, by(2*3600))
		if s.Terminal() {
			refused(t, err, fault.CodeRunTerminal, map[string]any{"current_status": s})
			continue
		}
		if err != nil || got.Run.Status != s || got.Run.Generation != 2 {
			t.Errorf("a run that is %s: %s at generation %d, %v", s, got.Run.Status, got.Run.Generation, err)
		}
	}
}

// TestLease_Expiry: that a lease has run out refuses nothing. reference: runs-and-taskflows.md D1 5, A7.
func TestLease_Expiry(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	late := event.By{Actor: "token:ci", At: r.Lease.Until.Add(24 * time.Hour)}
	if got := must(t)(r.Complete(1, "late", 0, late)); got.Status != run.Completed {
		t.Errorf("it is %s", got.Status)
	}
	if got := must(t)(r.Release(run.Release{Token: token, Generation: 1}, late)); got.Lease.Owner != nil {
		t.Errorf("it is still leased: %v", got.Lease)
	}
	var nobody run.Lease
	if nobody.Live(start) || nobody.Live(time.Time{}) {
		t.Error("nobody's lease is live")
	}
}

// TestRelease. reference: runs-and-taskflows.md D1 6.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := in(t, run.Running)
	for _, tt := range []run.Release{{Token: "engine-2", Generation: 1}, {Token: "", Generation: 1}, {Token: token, Generation: 0}, {Token: token, Generation: 2}} {
		got, err := r.Release(tt, by(9))
		refused(t, err, fault.CodeLeaseLost, map[string]any{"current_generation": int64(1)})
		if diff := cmp.Diff(run.Change{}, got); diff != "" {
			t.Errorf("%+v:\n%s", tt, diff)
		}
	}
	c, err := r.Release(run.Release{Token: token, Generation: 1}, by(9))
	want := r
	want.Lease, want.UpdatedAt, want.Revision = run.Lease{}, at(9), r.Revision+1
	if diff := cmp.Diff(want, c.Run); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{`run.lease_released {"generation":1}`}, lines(t, c.Events)); diff != "" {
		t.Error(diff)
	}
	_, err = c.Run.Release(run.Release{Token: token, Generation: 1}, by(10))
	refused(t, err, fault.CodeLeaseLost, nil)
	for _, who := range []string{token, "engine-2"} {
		got, how, err := c.Run.Acquire(who, time.Minute, by(9))
		if err != nil || how != run.Granted || got.Run.Generation != 2 {
			t.Errorf("%s after it was given back: %s, generation %d, %v", who, how, got.Run.Generation, err)
		}
	}
}
