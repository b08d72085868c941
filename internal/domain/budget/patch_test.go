package budget_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

func null[T any]() patch.Field[T] { return patch.Field[T]{Present: true} }

// TestBudget_Patch: what is given is changed, and told by its name.
func TestBudget_Patch(t *testing.T) {
	t.Parallel()
	for _, tt := range patches {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			from := tt.before(t)
			before := frozen(from)
			got, err := from.Patch(tt.patch, at(2))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, from); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
			want := before
			if tt.want != nil {
				tt.want(&want)
				want.Revision, want.UpdatedAt = 2, at(2)
			}
			same(t, want, tt.told, got)
		})
	}
}

var hourly = budget.Schedule{Cron: "@hourly", TimeZone: "UTC"}

func unlimited(tb testing.TB) budget.Budget {
	tb.Helper()
	return fresh(tb, nil, nil)
}

func partlySpent(tb testing.TB) budget.Budget {
	tb.Helper()
	return used(tb, fresh(tb, dims{"x": 10, "y": 0}, dims{"x": 8}), dims{"x": 6})
}

func allSpent(tb testing.TB) budget.Budget {
	tb.Helper()
	return used(tb, fresh(tb, dims{"x": 10}, nil), dims{"x": 10})
}

func resetByInterval(tb testing.TB) budget.Budget {
	tb.Helper()
	b := partlySpent(tb)
	b.ResetInterval, b.NextResetAt = time.Minute, at(60)
	return b
}

func resetBySchedule(tb testing.TB) budget.Budget {
	tb.Helper()
	b := partlySpent(tb)
	b.Schedule, b.NextResetAt = &hourly, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return b
}

var patches = []struct {
	name   string
	before func(testing.TB) budget.Budget
	patch  budget.Patch
	want   func(*budget.Budget)
	told   []string
}{
	{"labels", partlySpent, budget.Patch{ScopeType: patch.Some("team"), ScopeID: patch.Some("red")}, func(b *budget.Budget) { b.ScopeID = "red" },
		[]string{`budget.updated {"budget_id":"01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01","scope_type":"team","scope_id":"red","changed":["scope_id"]}`}},
	{"no labels", partlySpent, budget.Patch{ScopeType: null[string](), ScopeID: null[string]()}, func(b *budget.Budget) { b.ScopeType, b.ScopeID = "", "" },
		[]string{`budget.updated {"budget_id":"01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01","scope_type":"","scope_id":"","changed":["scope_type","scope_id"]}`}},
	{"a limit more", partlySpent, budget.Patch{Hard: limits{"z": new(int64(5))}}, func(b *budget.Budget) { b.Amounts["z"] = budget.Amount{Hard: new(int64(5))} },
		[]string{`budget.updated {"changed":["hard_limits"]}`}},
	{"a limit that leaves nothing", partlySpent, budget.Patch{Hard: limits{"x": new(int64(6))}}, func(b *budget.Budget) {
		b.Amounts["x"] = budget.Amount{Hard: new(int64(6)), Soft: new(int64(8)), Usage: 6, Used: true}
		b.Exhausted = true
	}, []string{`budget.updated {"changed":["hard_limits"]}`, `budget.exhausted {"dimension":"x","current_usage":6,"limit":6,"on_hard_limit":"deny"}`}},
	{"a limit below what was spent", partlySpent, budget.Patch{Hard: limits{"x": new(int64(2))}, OnHardLimit: patch.Some(budget.Cancel)}, func(b *budget.Budget) {
		b.Amounts["x"] = budget.Amount{Hard: new(int64(2)), Soft: new(int64(8)), Usage: 6, Used: true}
		b.Exhausted, b.OnHardLimit = true, budget.Cancel
	}, []string{`budget.updated {"changed":["hard_limits","on_hard_limit"]}`, `budget.exhausted {"dimension":"x","current_usage":6,"limit":2,"on_hard_limit":"cancel"}`}},
	{"a higher limit", allSpent, budget.Patch{Hard: limits{"x": new(int64(11))}}, func(b *budget.Budget) {
		b.Amounts["x"] = budget.Amount{Hard: new(int64(11)), Usage: 10, Used: true}
		b.Exhausted = false
	}, []string{`budget.updated {"changed":["hard_limits"]}`, `budget.available {}`}},
	{"no limit", allSpent, budget.Patch{Hard: limits{"x": nil}}, func(b *budget.Budget) {
		b.Amounts["x"] = budget.Amount{Usage: 10, Used: true}
		b.Exhausted = false
	}, []string{`budget.updated {"changed":["hard_limits"]}`, `budget.available {}`}},
	{"a limit less, of what nobody uses", partlySpent, budget.Patch{Hard: limits{"y": nil}, Soft: limits{"x": nil, "w": nil}}, func(b *budget.Budget) {
		delete(b.Amounts, "y")
		b.Amounts["x"] = budget.Amount{Hard: new(int64(10)), Usage: 6, Used: true}
	}, []string{`budget.updated {"changed":["hard_limits","soft_limits"]}`}},
	{"the default policy", unlimited, budget.Patch{OnHardLimit: patch.Some(budget.Suspend)}, func(b *budget.Budget) { b.OnHardLimit = budget.Suspend },
		[]string{`budget.updated {"changed":["on_hard_limit"]}`}},
	{"an interval", partlySpent, budget.Patch{ResetInterval: patch.Some(time.Hour)}, func(b *budget.Budget) { b.ResetInterval, b.NextResetAt = time.Hour, at(3602) },
		[]string{`budget.updated {"changed":["reset_interval_ms"]}`}},
	{"something else: the period goes on", resetByInterval, budget.Patch{OnHardLimit: patch.Some(budget.Cancel)}, func(b *budget.Budget) { b.OnHardLimit = budget.Cancel },
		[]string{`budget.updated {"changed":["on_hard_limit"]}`}},
	{"no interval", resetByInterval, budget.Patch{ResetInterval: null[time.Duration]()}, func(b *budget.Budget) { b.ResetInterval, b.NextResetAt = 0, time.Time{} },
		[]string{`budget.updated {"changed":["reset_interval_ms"]}`}},
	{"a schedule for an interval", resetByInterval, budget.Patch{ResetInterval: null[time.Duration](), Schedule: patch.Some(hourly)}, func(b *budget.Budget) {
		b.ResetInterval, b.Schedule, b.NextResetAt = 0, &hourly, time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	}, []string{`budget.updated {"changed":["reset_interval_ms","schedule"]}`}},
	{"another schedule", resetBySchedule, budget.Patch{Schedule: patch.Some(budget.Schedule{Cron: "0 11 * * *", TimeZone: "UTC"})}, func(b *budget.Budget) {
		b.Schedule, b.NextResetAt = &budget.Schedule{Cron: "0 11 * * *", TimeZone: "UTC"}, time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)
	}, []string{`budget.updated {"changed":["schedule"]}`}},
	{"no schedule", resetBySchedule, budget.Patch{Schedule: null[budget.Schedule]()}, func(b *budget.Budget) { b.Schedule, b.NextResetAt = nil, time.Time{} },
		[]string{`budget.updated {"changed":["schedule"]}`}},

	{"nothing", partlySpent, budget.Patch{}, nil, nil},
	{"what is so already", resetByInterval, budget.Patch{
		ScopeType: patch.Some("team"), ScopeID: patch.Some("blue"), Hard: limits{"x": new(int64(10)), "y": new(int64(0)), "z": nil}, Soft: limits{"x": new(int64(8))},
		OnHardLimit: patch.Some(budget.Deny), ResetInterval: patch.Some(time.Minute), Schedule: null[budget.Schedule](),
	}, nil, nil},
	{"the same schedule", resetBySchedule, budget.Patch{OnHardLimit: null[budget.OnHardLimit](), Schedule: patch.Some(hourly)}, nil, nil},
}

func TestBudget_Patch_keepsItsOwnLimits(t *testing.T) {
	t.Parallel()
	limit := int64(5)
	c, err := fresh(t, nil, nil).Patch(budget.Patch{Hard: map[string]*int64{"x": &limit}}, at(2))
	limit = 1
	if got := c.Budget.HardLimits()["x"]; got != 5 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

func TestBudget_Patch_refused(t *testing.T) {
	t.Parallel()
	type limits = map[string]*int64
	b := fresh(t, many(32), nil)
	b.ResetInterval, b.NextResetAt = time.Hour, at(3600)
	tests := []struct {
		name    string
		patch   budget.Patch
		code    fault.Code
		pointer string
	}{
		{"a bad name", budget.Patch{Hard: limits{"a b": nil}}, fault.CodeValidationFailed, "/hard_limits/a b"},
		{"a negative limit", budget.Patch{Soft: limits{"daa": new(int64(-1))}}, fault.CodeOutOfRange, "/soft_limits/daa"},
		{"too many dimensions", budget.Patch{ScopeID: patch.Some("red"), Hard: limits{"daa": new(int64(4)), "x": new(int64(4))}}, fault.CodeValidationFailed, "/hard_limits"},
		{"a schedule beside the interval", budget.Patch{Schedule: patch.Some(budget.Schedule{Cron: "@daily", TimeZone: "UTC"})}, fault.CodeValidationFailed, "/schedule"},
		{"too short an interval", budget.Patch{ResetInterval: patch.Some(time.Millisecond)}, fault.CodeValidationFailed, "/reset_interval_ms"},
		{"a schedule that never comes", budget.Patch{ResetInterval: null[time.Duration](), Schedule: patch.Some(budget.Schedule{Cron: "0 0 30 2 *", TimeZone: "UTC"})}, fault.CodeValidationFailed, "/schedule/cron"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozen(b)
			got, err := b.Patch(tt.patch, at(2))
			refused(t, err, tt.code, tt.pointer)
			if diff := cmp.Diff(budget.Change{}, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, b); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
		})
	}
}
