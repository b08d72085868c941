package quota_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/quota"
)

var (
	id          = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01")
	executionID = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b02")
	start       = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
)

const about = `{"quota_id":"01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01"`

func fresh(tb testing.TB, in quota.Create) quota.Quota {
	tb.Helper()
	in.ID, in.Namespace = id, "default"
	q, _, err := quota.New(in, start)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

// line returns an event as text, after a look at what every event of a quota has.
func line(tb testing.TB, e event.Event, execution uuid.UUID) string {
	tb.Helper()
	data, err := json.Marshal(e.Data)
	if err != nil || e.Namespace != "default" || e.ExecutionID != execution || e.Type.Topic() != event.TopicQuota {
		tb.Errorf("event %+v, %v", e, err)
	}
	return string(e.Type) + " " + string(data)
}

func TestNew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   quota.Create
		want quota.Quota
		told string
	}{
		{"nothing said", quota.Create{}, quota.Quota{Window: time.Minute}, `"window_seconds":60,"max_requests_per_window":0,"max_concurrent":0,"jitter_ms":0}`},
		{"all said", quota.Create{Window: quota.MaxWindow, MaxRequests: quota.MaxLimit, MaxConcurrent: 3, Jitter: 250 * time.Millisecond, KeyTag: "team.name"},
			quota.Quota{Window: quota.MaxWindow, MaxRequests: quota.MaxLimit, MaxConcurrent: 3, Jitter: 250 * time.Millisecond, KeyTag: "team.name"},
			`"window_seconds":2678400,"max_requests_per_window":9007199254740991,"max_concurrent":3,"jitter_ms":250,"key_tag":"team.name"}`},
		{"the shortest window", quota.Create{Window: time.Second}, quota.Quota{Window: time.Second}, `"window_seconds":1,"max_requests_per_window":0,"max_concurrent":0,"jitter_ms":0}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in, want := tt.in, tt.want
			in.ID, in.Namespace = id, "default"
			want.ID, want.Namespace, want.CreatedAt = id, "default", start
			got, events, err := quota.New(in, start)
			if diff := cmp.Diff(want, got); diff != "" || err != nil || len(events) != 1 {
				t.Fatalf("%v, %v (-want +got):\n%s", events, err, diff)
			}
			if told := line(t, events[0], uuid.Nil); told != "quota.created "+about+","+tt.told {
				t.Error(told)
			}
		})
	}
}

func TestNew_refused(t *testing.T) {
	t.Parallel()
	for pointer, all := range map[string][]quota.Create{
		"/window_seconds":          {{Window: -time.Second}, {Window: time.Second - 1}, {Window: quota.MaxWindow + time.Second}},
		"/max_requests_per_window": {{MaxRequests: -1}, {MaxRequests: quota.MaxLimit + 1}},
		"/max_concurrent":          {{MaxConcurrent: -1}, {MaxConcurrent: quota.MaxLimit + 1}},
		"/jitter_ms":               {{Jitter: -time.Millisecond}, {Jitter: quota.MaxJitter + time.Millisecond}},
	} {
		for _, in := range all {
			q, events, err := quota.New(in, start)
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Code != fault.CodeValidationFailed || len(f.Fields) != 1 || f.Fields[0].Pointer != pointer {
				t.Errorf("%+v: %v", in, err)
			}
			if q != (quota.Quota{}) || events != nil {
				t.Errorf("%+v: %v %v", in, q, events)
			}
		}
	}
}

// TestEvents: what is told of a quota.
func TestEvents(t *testing.T) {
	t.Parallel()
	q := fresh(t, quota.Create{MaxRequests: 5, MaxConcurrent: 2})
	a := quota.Admission{ExecutionID: executionID, Key: "blue", AdmittedAt: start}
	full := quota.Usage{Active: 2, Recent: 5, Oldest: start}
	for _, tt := range []struct {
		event     event.Event
		execution uuid.UUID
		want      string
	}{
		{q.Deleted(), uuid.Nil, `quota.deleted ` + about + `}`},
		{q.Admitted(a), executionID, `quota.admitted ` + about + `,"key":"blue"}`},
		{q.Released(a), executionID, `quota.released ` + about + `,"key":"blue"}`},
		{q.Refused("blue", q.Check(full, true, true, start)), uuid.Nil, `quota.refused ` + about + `,"key":"blue","outcome":"rate_exceeded","limit":5,"current":5,"retry_at":"2026-11-21T09:31:00.000Z"}`},
		{q.Refused("", q.Check(full, true, false, start)), uuid.Nil, `quota.refused ` + about + `,"key":"","outcome":"concurrency_exceeded","limit":2,"current":2}`},
	} {
		if got := line(t, tt.event, tt.execution); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	if diff := cmp.Diff([]quota.Outcome{"admitted", "already_admitted", "rate_exceeded", "concurrency_exceeded"}, quota.Outcomes()); diff != "" {
		t.Error(diff)
	}
}

// TestQuota_Check holds the golden vectors. reference: flows-streams-budgets.md 6.9, 10.8.
func TestQuota_Check(t *testing.T) {
	t.Parallel()
	both := quota.Create{MaxRequests: 2, MaxConcurrent: 1, Window: time.Second, Jitter: time.Hour}
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	tests := []struct {
		name        string
		in          quota.Create
		usage       quota.Usage
		slot, start bool
		now         time.Time
		want        quota.Outcome
		retry       time.Duration
		room        int64
	}{
		{"the first", both, quota.Usage{}, true, true, at(0), quota.Admitted, 0, 1},
		{"no limits", quota.Create{}, quota.Usage{Active: 1e9, Recent: 1e9}, true, true, at(0), quota.Admitted, 0, math.MaxInt64},
		{"no limit of the rate", quota.Create{MaxConcurrent: 5}, quota.Usage{Active: 2, Recent: 1e9}, true, true, at(0), quota.Admitted, 0, 3},
		{"no limit of slots", quota.Create{MaxRequests: 5}, quota.Usage{Active: 1e9, Recent: 1}, true, true, at(0), quota.Admitted, 0, 4},
		{"admitted before, whatever there is", both, quota.Usage{Active: 1, Recent: 2, Oldest: at(0)}, false, false, at(0), quota.AlreadyAdmitted, 0, math.MaxInt64},
		{"the rate is reached", both, quota.Usage{Recent: 2, Oldest: at(0)}, true, true, at(300), quota.RateExceeded, 700 * time.Millisecond, 0},
		{"the slots are reached", both, quota.Usage{Active: 1, Recent: 1, Oldest: at(0)}, true, true, at(300), quota.ConcurrencyExceeded, 0, 0},
		{"both are reached: the rate is told", both, quota.Usage{Active: 1, Recent: 2, Oldest: at(0)}, true, true, at(300), quota.RateExceeded, 700 * time.Millisecond, 0},
		{"the oldest has just ceased to count", both, quota.Usage{Recent: 2, Oldest: at(0)}, true, true, at(1000), quota.RateExceeded, 0, 0},
		{"it should not count any more", both, quota.Usage{Recent: 2, Oldest: at(0)}, true, true, at(5000), quota.RateExceeded, 0, 0},
		{"a retry has its slot", both, quota.Usage{Active: 1, Recent: 1, Oldest: at(0)}, false, true, at(300), quota.Admitted, 0, 1},
		{"a retry is a start", both, quota.Usage{Active: 1, Recent: 2, Oldest: at(0)}, false, true, at(300), quota.RateExceeded, 700 * time.Millisecond, 0},
		{"what goes on is no start", both, quota.Usage{Recent: 2, Oldest: at(0)}, true, false, at(300), quota.Admitted, 0, 1},
		{"what goes on needs a slot", both, quota.Usage{Active: 1}, true, false, at(300), quota.ConcurrencyExceeded, 0, 0},
		{"more than there is", both, quota.Usage{Active: 9, Recent: 1, Oldest: at(0)}, true, true, at(300), quota.ConcurrencyExceeded, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := fresh(t, tt.in)
			want := quota.Verdict{Outcome: tt.want, Quota: q, Usage: tt.usage}
			if tt.want == quota.RateExceeded {
				want.RetryAfter, want.RetryAt = tt.retry, tt.now.Add(tt.retry)
			}
			if diff := cmp.Diff(want, q.Check(tt.usage, tt.slot, tt.start, tt.now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if room := q.Room(tt.usage, tt.slot, tt.start); room != tt.room {
				t.Errorf("room for %d", room)
			}
		})
	}
}

// TestQuota_properties lets executions come and go while the clock runs: over any window there are at most so many starts, and at any
// time at most so many slots; whoever comes again when it was told to come is not refused for the rate, unless somebody else was there
// before. reference: flows-streams-budgets.md 9, property 26.
func TestQuota_properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q, _, err := quota.New(quota.Create{
			Window:      time.Duration(rapid.Int64Range(1, 5).Draw(t, "window")) * time.Second,
			MaxRequests: rapid.Int64Range(0, 4).Draw(t, "rate"), MaxConcurrent: rapid.Int64Range(0, 3).Draw(t, "slots"),
		}, start)
		if err != nil {
			t.Fatal(err)
		}
		c := &comings{quota: q, now: start}
		t.Repeat(map[string]func(*rapid.T){
			"begin":                      func(t *rapid.T) { c.ask(t, true, true) },
			"begin as often as possible": c.beginAsOftenAsPossible,
			"again": func(t *rapid.T) {
				if c.working == 0 {
					t.Skip("nobody works")
				}
				c.ask(t, false, true)
			},
			"go on": func(t *rapid.T) { c.ask(t, true, false) },
			"end": func(t *rapid.T) {
				if c.working == 0 {
					t.Skip("nobody works")
				}
				c.working--
			},
			"come when told": c.comeWhenTold,
			"wait": func(t *rapid.T) {
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 3000).Draw(t, "ms")) * time.Millisecond)
			},
			"": c.check,
		})
	})
}

// comings are executions that come and go under a quota, while the clock runs.
type comings struct {
	quota   quota.Quota
	now     time.Time
	starts  []time.Time
	working int64
}

func (c *comings) usage() quota.Usage {
	u := quota.Usage{Active: c.working}
	for _, s := range c.starts {
		if c.now.Before(s.Add(c.quota.Window)) {
			if u.Recent++; u.Recent == 1 {
				u.Oldest = s
			}
		}
	}
	return u
}

// ask asks whether one may begin, and lets it when it may.
func (c *comings) ask(t *rapid.T, slot, begins bool) quota.Verdict {
	v, room := c.quota.Check(c.usage(), slot, begins, c.now), c.quota.Room(c.usage(), slot, begins)
	if (v.Outcome == quota.Admitted) != (room > 0) {
		t.Fatalf("%s, with room for %d", v.Outcome, room)
	}
	if v.Outcome == quota.Admitted {
		if begins {
			c.starts = append(c.starts, c.now)
		}
		if slot {
			c.working++
		}
	}
	return v
}

func (c *comings) beginAsOftenAsPossible(t *rapid.T) {
	u := c.usage()
	room := c.quota.Room(u, true, true)
	n := int64(0)
	for n < min(room, 10) && c.ask(t, true, true).Outcome == quota.Admitted {
		n++
	}
	if n != min(room, 10) || room <= 10 && c.ask(t, true, true).Outcome == quota.Admitted {
		t.Fatalf("room for %d, and %d have begun", room, n)
	}
}

func (c *comings) comeWhenTold(t *rapid.T) {
	v := c.ask(t, true, true)
	if v.Outcome != quota.RateExceeded {
		t.Skip("nobody has to wait")
	}
	if !v.RetryAt.After(c.now) || v.RetryAfter != v.RetryAt.Sub(c.now) || v.RetryAfter > c.quota.Window {
		t.Fatalf("at %s: %+v", c.now, v)
	}
	c.now = v.RetryAt.Add(-1)
	if early := c.ask(t, false, true); early.Outcome != quota.RateExceeded {
		t.Fatalf("too early: %s", early.Outcome)
	}
	if c.now = v.RetryAt; c.ask(t, false, true).Outcome != quota.Admitted {
		t.Fatal("refused when it was told to come")
	}
}

// check fails when there are more at work, or more starts in a window, than there may be.
func (c *comings) check(t *rapid.T) {
	if c.quota.MaxConcurrent > 0 && c.working > c.quota.MaxConcurrent {
		t.Fatalf("%d at work", c.working)
	}
	if !slices.IsSortedFunc(c.starts, time.Time.Compare) || c.quota.MaxRequests == 0 {
		return
	}
	for i := int(c.quota.MaxRequests); i < len(c.starts); i++ {
		if within := c.starts[i].Sub(c.starts[i-int(c.quota.MaxRequests)]); within < c.quota.Window {
			t.Fatalf("%d starts within %s of a window of %s", c.quota.MaxRequests+1, within, c.quota.Window)
		}
	}
}
