package budget_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// breached returns b after a report that was refused.
func breached(tb testing.TB, b budget.Budget, report dims) budget.Budget {
	tb.Helper()
	after, v, err := budget.Apply([]budget.Budget{b}, report, at(1))
	if err != nil || v.Outcome != budget.HardBreach {
		tb.Fatal(v, err)
	}
	return after[0].Budget
}

// TestBudget_Reset holds the golden vectors. reference: flows-streams-budgets.md 6.5.
func TestBudget_Reset(t *testing.T) {
	t.Parallel()
	spent := breached(t, used(t, fresh(t, dims{"x": 10}, dims{"y": 1}), dims{"x": 10, "y": 2}), dims{"x": 1}).Reserve(dims{"x": 3})
	never, regular, daily := spent, spent, spent
	regular.ResetInterval, regular.NextResetAt = time.Minute, at(60)
	daily.Schedule, daily.NextResetAt = &budget.Schedule{Cron: "@daily", TimeZone: "UTC"}, at(60)
	tests := []struct {
		name   string
		before budget.Budget
		manual bool
		now    time.Time
		next   time.Time
		told   string // the end of what is told
	}{
		{"by hand, of one that is never reset", never, true, at(7), time.Time{}, ``},
		{"by hand: the period begins now", regular, true, at(7), at(67), `,"next_reset_at":"2026-11-21T09:31:07.000Z"`},
		{"by hand: the next time of the schedule", daily, true, at(7), time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), `,"next_reset_at":"2026-11-22T00:00:00.000Z"`},
		{"due just now", regular, false, at(60), at(120), `,"next_reset_at":"2026-11-21T09:32:00.000Z"`},
		{"due for a while: it does not drift", regular, false, at(75), at(120), `,"next_reset_at":"2026-11-21T09:32:00.000Z"`},
		{"just before the period after it", regular, false, at(120).Add(-1), at(120), `,"next_reset_at":"2026-11-21T09:32:00.000Z"`},
		{"missed periods are left out", regular, false, at(60 + 3600 + 1), at(60 + 3660), `,"next_reset_at":"2026-11-21T10:32:00.000Z"`},
		{"due by schedule", daily, false, at(3 * 86400), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC), `,"next_reset_at":"2026-11-25T00:00:00.000Z"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozen(tt.before)
			got := tt.before.Reset(tt.manual, tt.now)
			if diff := cmp.Diff(before, tt.before); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
			want := before
			want.Amounts = map[string]budget.Amount{"x": {Hard: new(int64(10)), Used: true, Reserved: 3}, "y": {Soft: new(int64(1)), Used: true}}
			want.LastBreachAt, want.LastBreachDimension, want.Exhausted = time.Time{}, "", false // Breaches and SoftBreaches stay
			want.LastResetAt, want.NextResetAt, want.Period, want.Revision, want.UpdatedAt = tt.now, tt.next, 1, 2, tt.now
			by := "schedule"
			if tt.manual {
				by = "request"
			}
			same(t, want, []string{`budget.reset {"by":"` + by + `","usage":{"x":10,"y":2},"period":1` + tt.told + `}`, `budget.available {}`}, got)
			if again := got.Budget.Reset(false, tt.now); len(again.Events) > 0 || !cmp.Equal(got.Budget, again.Budget) {
				t.Errorf("at the same instant it is reset again: %v", told(t, again))
			}
		})
	}
}

func TestBudget_Reset_notDue(t *testing.T) {
	t.Parallel()
	never := used(t, fresh(t, nil, nil), dims{"x": 1})
	regular := never
	regular.ResetInterval, regular.NextResetAt = time.Minute, at(60)
	for _, b := range []budget.Budget{never, regular} {
		if b.Due(at(60).Add(-1)) {
			t.Error("it is due")
		}
		same(t, b, nil, b.Reset(false, at(60).Add(-1)))
	}
	if never.Due(at(1e9)) || !regular.Due(at(60)) {
		t.Error("Due()")
	}
}

// TestBudget_Reset_lostZone: a schedule that cannot be read any more names nothing.
func TestBudget_Reset_lostZone(t *testing.T) {
	t.Parallel()
	b := used(t, fresh(t, nil, nil), dims{"x": 1})
	b.Schedule, b.NextResetAt = &budget.Schedule{Cron: "@daily", TimeZone: "Europe/Atlantis"}, at(60)
	got := b.Reset(false, at(60)).Budget
	if !got.NextResetAt.IsZero() || got.Period != 1 || got.Amounts["x"].Usage != 0 {
		t.Errorf("%+v", got)
	}
}

// TestReset_retry: what was refused is counted after a reset. reference: flows-streams-budgets.md 10.7, 11 (47).
func TestReset_retry(t *testing.T) {
	t.Parallel()
	b := breached(t, used(t, fresh(t, dims{"x": 10}, nil), dims{"x": 8}), dims{"x": 6})
	b = used(t, b.Reset(true, at(2)).Budget, dims{"x": 6})
	if b = breached(t, b, dims{"x": 5}); b.Amounts["x"].Usage != 6 || b.Breaches != 2 {
		t.Errorf("%+v", b)
	}
}

func TestBudget_TopUp(t *testing.T) {
	t.Parallel()
	b := used(t, fresh(t, dims{"x": 10, "y": 5, "zero": 0, "top": budget.MaxAmount}, dims{"x": 2, "soft": 3}), dims{"x": 10, "free": 1})
	before := frozen(b)
	got, err := b.TopUp(dims{"x": 5, "y": 0}, at(2))
	if err != nil {
		t.Fatal(err)
	}
	want := frozen(b)
	want.Amounts["x"] = budget.Amount{Hard: new(int64(15)), Soft: new(int64(2)), Usage: 10, Used: true}
	want.Exhausted, want.Revision, want.UpdatedAt = false, 2, at(2)
	same(t, want, []string{`budget.topped_up {"dimensions":{"x":5},"hard_limits":{"x":15}}`, `budget.available {}`}, got)

	for _, nothing := range []dims{nil, {"x": 0, "y": 0}} {
		got, err := b.TopUp(nothing, at(2))
		if err != nil {
			t.Error(err)
		}
		same(t, b, nil, got)
	}
	for _, tt := range []struct {
		name    string
		dims    dims
		code    fault.Code
		pointer string
	}{
		{"no such dimension", dims{"other": 1, "x": 1}, fault.CodeValidationFailed, "/dimensions/other"},
		{"only a soft limit", dims{"soft": 1}, fault.CodeValidationFailed, "/dimensions/soft"},
		{"only used", dims{"free": 0}, fault.CodeValidationFailed, "/dimensions/free"},
		{"a limit of 0", dims{"x": 1, "zero": 1}, fault.CodeValidationFailed, "/dimensions/zero"},
		{"too much", dims{"top": 1, "x": 1}, fault.CodeOutOfRange, "/dimensions/top"},
		{"negative", dims{"x": -1}, fault.CodeOutOfRange, "/dimensions/x"},
	} {
		got, err := b.TopUp(tt.dims, at(2))
		refused(t, err, tt.code, tt.pointer)
		if diff := cmp.Diff(budget.Change{}, got); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
	if diff := cmp.Diff(before, b); diff != "" {
		t.Errorf("it changed its receiver:\n%s", diff)
	}
}

// TestBudget_Refund: what an execution has spent is given back, as far as it counts. reference: flows-streams-budgets.md 6.6, 10.7.
func TestBudget_Refund(t *testing.T) {
	t.Parallel()
	b := used(t, fresh(t, dims{"x": 13}, nil), dims{"x": 13, "y": 4})
	tests := []struct {
		name  string
		spent dims
		usage dims
		told  []string
	}{
		{"one of two executions", dims{"x": 5}, dims{"x": 8, "y": 4}, []string{`budget.released {"dimensions":{"x":5}}`, `budget.available {}`}},
		{"all there is", dims{"x": 13, "y": 4}, dims{"x": 0, "y": 0}, []string{`budget.released {"dimensions":{"x":13,"y":4}}`, `budget.available {}`}},
		{"more than there is", dims{"y": 9}, dims{"x": 13, "y": 0}, []string{`budget.released {"dimensions":{"y":4}}`}},
		{"what was never used", dims{"z": 9, "y": 0}, dims{"x": 13, "y": 4}, nil},
		{"nothing", nil, dims{"x": 13, "y": 4}, nil},
		{"less than nothing", dims{"x": -1}, dims{"x": 13, "y": 4}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozen(b)
			got := b.Refund(tt.spent, at(2))
			if diff := cmp.Diff(before, b); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
			want := before
			if tt.told != nil {
				want.Amounts, want.Revision, want.UpdatedAt, want.Exhausted = got.Budget.Amounts, 2, at(2), tt.usage["x"] == 13
			}
			same(t, want, tt.told, got)
			if diff := cmp.Diff(tt.usage, usage(got.Budget)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
