package budget_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// parse reads a time with its offset, which makes what a zone shows readable.
func parse(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

// times returns the next n times of a schedule, as the clock of its zone shows them.
func times(tb testing.TB, s budget.Schedule, after string, n int) []string {
	tb.Helper()
	now := parse(tb, after)
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for range n {
		next, err := s.Next(now)
		if err != nil {
			tb.Fatal(err)
		}
		if next.Location() != time.UTC || !next.After(now) {
			tb.Errorf("after %s comes %s", now, next)
		}
		out = append(out, next.In(zone).Format(time.RFC3339))
		now = next
	}
	return out
}

func TestSchedule_Next(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cron  string
		zone  string
		after string
		want  []string
	}{
		{"minutes", "*/20 * * * *", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-21T09:40:00Z", "2026-11-21T10:00:00Z"}},
		{"just at one, the next one", "30 9 * * *", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-22T09:30:00Z"}},
		{"a millisecond before one", "30 9 * * *", "UTC", "2026-11-21T09:29:59.999Z", []string{"2026-11-21T09:30:00Z"}},
		{"a millisecond after one", "30 9 * * *", "UTC", "2026-11-21T09:30:00.001Z", []string{"2026-11-22T09:30:00Z"}},
		{"@hourly", "@hourly", "Asia/Kolkata", "2026-11-21T09:30:00Z", []string{"2026-11-21T16:00:00+05:30", "2026-11-21T17:00:00+05:30"}},
		{"@daily", "@daily", "Europe/Berlin", "2026-11-21T09:30:00Z", []string{"2026-11-22T00:00:00+01:00", "2026-11-23T00:00:00+01:00"}},
		{"@weekly is Sunday", "@weekly", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}},
		{"@monthly", "@monthly", "America/New_York", "2026-11-21T09:30:00Z", []string{"2026-12-01T00:00:00-05:00", "2027-01-01T00:00:00-05:00"}},
		{"names", "0 6 * JAN mon-tue", "UTC", "2026-11-21T09:30:00Z", []string{"2027-01-04T06:00:00Z", "2027-01-05T06:00:00Z"}},
		{"7 is Sunday", "0 6 * * 7", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-22T06:00:00Z"}},
		{"a day of the month or a day of the week", "0 0 1 * 5", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-27T00:00:00Z", "2026-12-01T00:00:00Z", "2026-12-04T00:00:00Z"}},
		{"months without a 31st", "0 0 31 * *", "UTC", "2026-11-21T09:30:00Z", []string{"2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-03-31T00:00:00Z"}},
		{"leap years, of which 2100 is none", "0 0 29 2 *", "UTC", "2095-11-21T09:30:00Z", []string{"2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"}},
		{"spaces", "  0\t6  * * *  ", "UTC", "2026-11-21T09:30:00Z", []string{"2026-11-22T06:00:00Z"}},

		{"Berlin skips an hour: what is in it comes at its end", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"several times in it come once", "*/10 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"and together with the one at its end", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"from within the hour before it", "0 1,2 * * *", "America/New_York", "2026-03-08T01:10:00-05:00", []string{"2026-03-08T03:00:00-04:00", "2026-03-09T01:00:00-04:00"}},
		{"every hour skips it", "@hourly", "Europe/Berlin", "2026-03-29T00:30:00+01:00", []string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"Berlin repeats an hour: what is in it comes once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"also from within the second", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", []string{"2026-10-26T02:30:00+01:00"}},
		{"every hour repeats it", "@hourly", "Europe/Berlin", "2026-10-25T01:30:00+02:00", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"the hour after it", "0 3 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", []string{"2026-10-25T03:00:00+01:00"}},
		{"a midnight that there is not", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00", []string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}},
		{"a Sunday without a midnight", "@weekly", "America/Santiago", "2026-09-05T12:00:00-04:00", []string{"2026-09-06T01:00:00-03:00", "2026-09-13T00:00:00-03:00"}},
		{"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, times(t, budget.Schedule{Cron: tt.cron, TimeZone: tt.zone}, tt.after, len(tt.want))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchedule_Next_refused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, cron, zone, pointer string }{
		{"nothing", "", "UTC", "/schedule/cron"},
		{"four fields", "0 0 * *", "UTC", "/schedule/cron"},
		{"seconds", "0 0 0 * * *", "UTC", "/schedule/cron"},
		{"seconds and a year", "0 0 0 * * * 2027", "UTC", "/schedule/cron"},
		{"a zone among the fields", "TZ=UTC 0 0 * *", "UTC", "/schedule/cron"},
		{"a zone before the fields", "CRON_TZ=UTC 0 0 * * *", "UTC", "/schedule/cron"},
		{"an interval", "@every 1h", "UTC", "/schedule/cron"},
		{"another word", "@yearly", "UTC", "/schedule/cron"},
		{"a word and more", "@daily 0 0 * *", "UTC", "/schedule/cron"},
		{"a minute that there is not", "60 0 * * *", "UTC", "/schedule/cron"},
		{"a day that there is not", "0 0 0 * *", "UTC", "/schedule/cron"},
		{"a step of nothing", "*/0 0 * * *", "UTC", "/schedule/cron"},
		{"no field", "a b c d e", "UTC", "/schedule/cron"},
		{"the last day", "0 0 L * *", "UTC", "/schedule/cron"},
		{"the third Friday", "0 0 * * FRI#3", "UTC", "/schedule/cron"},
		{"a hash", "H 0 * * *", "UTC", "/schedule/cron"},
		{"as long as nobody reads", "0 0 * * " + strings.Repeat("1,", 1000) + "1", "UTC", "/schedule/cron"},
		{"30 February", "0 0 30 2 *", "UTC", "/schedule/cron"},
		{"31 of short months", "0 0 31 4,6,9,11 *", "Europe/Berlin", "/schedule/cron"},
		{"no zone", "@daily", "", "/schedule/time_zone"},
		{"an unknown zone", "@daily", "Europe/Atlantis", "/schedule/time_zone"},
		{"that of the machine", "@daily", "Local", "/schedule/time_zone"},
		{"that of the machine, as a file", "@daily", "localtime", "/schedule/time_zone"},
		{"one with leap seconds", "@daily", "right/UTC", "/schedule/time_zone"},
		{"a path", "@daily", "../etc/passwd", "/schedule/time_zone"},
		{"an offset", "@daily", "+02:00", "/schedule/time_zone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			next, err := budget.Schedule{Cron: tt.cron, TimeZone: tt.zone}.Next(start)
			refused(t, err, fault.CodeValidationFailed, tt.pointer)
			if !next.IsZero() {
				t.Error(next)
			}
		})
	}
}

// TestSchedule_Next_oracle goes through the minutes one by one, with the clock of the zone: a schedule comes when the clock shows one of
// its times, or has skipped it, for the first time. One for every hour comes whenever the clock shows one of its times.
func TestSchedule_Next_oracle(t *testing.T) {
	t.Parallel()
	around := map[string][]string{ // the days on which the clocks of a zone jump
		"Europe/Berlin":       {"2026-03-28", "2026-10-24", "2026-06-01"},
		"America/New_York":    {"2026-03-07", "2026-10-31"},
		"America/Santiago":    {"2026-04-04", "2026-09-05"},
		"Australia/Lord_Howe": {"2026-04-04", "2026-10-03"},
		"Africa/Cairo":        {"2026-04-23", "2026-10-29"},
		"Asia/Kathmandu":      {"2026-05-05"},
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(around))).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.ParseInLocation(time.DateOnly, rapid.SampledFrom(around[name]).Draw(t, "day"), zone)
		if err != nil {
			t.Fatal(err)
		}
		minutes := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 15, 29, 30, 45, 59}), 1, 3, rapid.ID[int]).Draw(t, "minutes")
		hours := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 12, 22, 23}), 0, 4, rapid.ID[int]).Draw(t, "hours")
		field := "*"
		if len(hours) > 0 {
			field = list(hours)
		}
		s := budget.Schedule{Cron: list(minutes) + " " + field + " * * *", TimeZone: name}
		fits := func(clock time.Time) bool {
			return slices.Contains(minutes, clock.Minute()) && (len(hours) == 0 || slices.Contains(hours, clock.Hour()))
		}
		clock := func(at time.Time) time.Time {
			_, east := at.In(zone).Zone()
			return at.UTC().Add(time.Duration(east) * time.Second)
		}
		late := time.Duration(rapid.IntRange(0, 59999).Draw(t, "ms")) * time.Millisecond // after a full minute, whenever somebody asks
		shown := clock(day.Add(-time.Minute))                                            // the latest so far
		next, err := s.Next(day.Add(-time.Minute))
		for minute := range 2 * 24 * 60 {
			at := day.Add(time.Duration(minute) * time.Minute)
			want := len(hours) == 0 && fits(clock(at))
			for ; shown.Before(clock(at)); shown = shown.Add(time.Minute) {
				want = want || len(hours) > 0 && fits(shown.Add(time.Minute))
			}
			if err != nil || next.Equal(at) != want || next.Before(at) {
				t.Fatalf("%s: %v at %s, next %s, %v", s.Cron, want, at, next.In(zone), err)
			}
			if want || minute%37 == 0 {
				next, err = s.Next(at.Add(late))
			}
		}
	})
}

func list(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}
