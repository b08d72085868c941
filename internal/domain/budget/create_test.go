package budget_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestNew: a budget begins with nothing used, keeps limits of 0, and knows when it is reset. reference: flows-streams-budgets.md 10.7.
func TestNew(t *testing.T) {
	t.Parallel()
	daily := &budget.Schedule{Cron: "0 6 * * *", TimeZone: "Europe/Berlin"}
	tests := []struct {
		name string
		in   budget.Create
		want budget.Budget // beside what all of them have
		told string
	}{
		{"nothing said", budget.Create{}, budget.Budget{OnHardLimit: budget.Deny, Amounts: map[string]budget.Amount{}},
			`"hard_limits":{},"soft_limits":{},"on_hard_limit":"deny"}`},
		{"limits", budget.Create{Hard: dims{"tokens": 100, "usd": 0}, Soft: dims{"tokens": 50, "calls": 7}, OnHardLimit: budget.Cancel},
			budget.Budget{OnHardLimit: budget.Cancel, Amounts: map[string]budget.Amount{
				"tokens": {Hard: new(int64(100)), Soft: new(int64(50))}, "usd": {Hard: new(int64(0))}, "calls": {Soft: new(int64(7))},
			}}, `"hard_limits":{"tokens":100,"usd":0},"soft_limits":{"calls":7,"tokens":50},"on_hard_limit":"cancel"}`},
		{"an interval", budget.Create{ParentID: parentID, ResetInterval: time.Hour, OnHardLimit: budget.Suspend},
			budget.Budget{ParentID: parentID, OnHardLimit: budget.Suspend, ResetInterval: time.Hour, NextResetAt: at(3600), Amounts: map[string]budget.Amount{}},
			`"parent_id":"01985c3e-7a10-7c3e-9b52-3f1d8e6a4b02","hard_limits":{},"soft_limits":{},"on_hard_limit":"suspend","reset_interval_ms":3600000,"next_reset_at":"2026-11-21T10:30:00.000Z"}`},
		{"a schedule", budget.Create{Schedule: daily},
			budget.Budget{OnHardLimit: budget.Deny, Schedule: daily, NextResetAt: time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC), Amounts: map[string]budget.Amount{}},
			`"hard_limits":{},"soft_limits":{},"on_hard_limit":"deny","schedule":{"cron":"0 6 * * *","time_zone":"Europe/Berlin"},"next_reset_at":"2026-11-22T05:00:00.000Z"}`},
		{"as large a limit as there may be", budget.Create{Soft: dims{"x": budget.MaxAmount}},
			budget.Budget{OnHardLimit: budget.Deny, Amounts: map[string]budget.Amount{"x": {Soft: new(int64(budget.MaxAmount))}}},
			`"hard_limits":{},"soft_limits":{"x":9007199254740991},"on_hard_limit":"deny"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := tt.in
			in.ID, in.Namespace, in.ScopeType, in.ScopeID = id, "default", "team", "blue"
			got, err := budget.New(in, start)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			want.ID, want.Namespace, want.ScopeType, want.ScopeID, want.Revision, want.CreatedAt, want.UpdatedAt = id, "default", "team", "blue", 1, start, start
			same(t, want, []string{"budget.created {" + tt.told}, got)
		})
	}
}

func TestNew_keepsItsOwnLimits(t *testing.T) {
	t.Parallel()
	hard := dims{"tokens": 100}
	b := fresh(t, hard, nil)
	hard["tokens"] = 1
	if diff := cmp.Diff(dims{"tokens": 100}, b.HardLimits()); diff != "" {
		t.Error(diff)
	}
}

func TestNew_refused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		in      budget.Create
		code    fault.Code
		pointer string
	}{
		{"a dimension without a name", budget.Create{Hard: dims{"": 1}}, fault.CodeValidationFailed, "/hard_limits/"},
		{"a name with a slash", budget.Create{Soft: dims{"a/b": 1}}, fault.CodeValidationFailed, "/soft_limits/a~1b"},
		{"a name with a line break at its end", budget.Create{Soft: dims{"a\n": 1}}, fault.CodeValidationFailed, "/soft_limits/a\n"},
		{"a long name", budget.Create{Hard: dims{strings.Repeat("x", 65): 1}}, fault.CodeValidationFailed, "/hard_limits/" + strings.Repeat("x", 64) + "…"},
		{"a negative limit", budget.Create{Hard: dims{"tokens": -1}}, fault.CodeOutOfRange, "/hard_limits/tokens"},
		{"too large a limit", budget.Create{Soft: dims{"tokens": budget.MaxAmount + 1}}, fault.CodeOutOfRange, "/soft_limits/tokens"},
		{"too many dimensions", budget.Create{Hard: many(33)}, fault.CodeValidationFailed, "/hard_limits"},
		{"too many dimensions together", budget.Create{Hard: many(32), Soft: dims{"tokens": 1}}, fault.CodeValidationFailed, "/soft_limits"},
		{"reset by both", budget.Create{ResetInterval: time.Hour, Schedule: &budget.Schedule{Cron: "@daily", TimeZone: "UTC"}}, fault.CodeValidationFailed, "/schedule"},
		{"reset too often", budget.Create{ResetInterval: time.Second - 1}, fault.CodeValidationFailed, "/reset_interval_ms"},
		{"reset too seldom", budget.Create{ResetInterval: budget.MaxResetInterval + 1}, fault.CodeValidationFailed, "/reset_interval_ms"},
		{"no schedule", budget.Create{Schedule: &budget.Schedule{Cron: "daily", TimeZone: "UTC"}}, fault.CodeValidationFailed, "/schedule/cron"},
		{"no time zone", budget.Create{Schedule: &budget.Schedule{Cron: "@daily", TimeZone: "Mars/Base"}}, fault.CodeValidationFailed, "/schedule/time_zone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := budget.New(tt.in, start)
			refused(t, err, tt.code, tt.pointer)
			if diff := cmp.Diff(budget.Change{}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBudget_Deleted(t *testing.T) {
	t.Parallel()
	b := fresh(t, nil, nil)
	e, err := b.Deleted(0)
	if err != nil || e.Type != event.BudgetDeleted || e.Namespace != "default" {
		t.Error(e, err)
	}
	same(t, b, []string{"budget.deleted {}"}, budget.Change{Budget: b, Events: []event.Event{e}})
	e, err = b.Deleted(2)
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != fault.CodeBudgetInUse || f.Facts["children"] != int64(2) || e.Type != "" {
		t.Errorf("%v %v", e, err)
	}
}

// TestWords: every policy and outcome is listed.
func TestWords(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]budget.OnHardLimit{"deny", "suspend", "cancel"}, budget.Policies()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]budget.Outcome{"ok", "soft_breach", "hard_breach", "already_applied"}, budget.Outcomes()); diff != "" {
		t.Error(diff)
	}
}
