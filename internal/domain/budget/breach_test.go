package budget_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/patch"
)

// TestBreach: from a refused report on nobody begins, however much is left; whoever is at work goes on as before.
func TestBreach(t *testing.T) {
	t.Parallel()
	before := used(t, fresh(t, dims{"x": 10, "y": 10}, dims{"x": 8}), dims{"x": 4, "y": 4}).Reserve(dims{"x": 2})
	b := breached(t, before, dims{"x": 7, "y": 1})
	for _, tt := range []struct {
		name      string
		budget    budget.Budget
		estimate  dims
		dimension string
		need      int64
		left      int64
	}{
		{"before it", before, dims{"x": 4}, "", 0, 0},
		{"nothing expected", b, nil, "x", 1, 0},
		{"as much as there was", b, dims{"x": 4}, "x", 4, 0},
		{"something else", b, dims{"y": 1}, "x", 1, 0},
		{"too much of another dimension after it by name", b, dims{"y": 7}, "x", 1, 0},
		{"too much of another dimension before it by name", breached(t, before, dims{"y": 7}), dims{"x": 5}, "x", 5, 4},
	} {
		dimension, need, left, ok := tt.budget.Need(tt.estimate)
		if dimension != tt.dimension || need != tt.need || left != tt.left || ok != (tt.dimension == "") {
			t.Errorf("%s: %q %d %d %v", tt.name, dimension, need, left, ok)
		}
	}
	for dimension, want := range map[string]int64{"x": 0, "y": 6} {
		if left, limited := b.Left(dimension); left != want || !limited {
			t.Errorf("%s: %d %v", dimension, left, limited)
		}
	}
	own := dims{"x": 2}
	if diff := cmp.Diff(before.Remaining(own), b.Remaining(own)); diff != "" || b.Low() != before.Low() {
		t.Errorf("low: %v, remaining (-want +got):\n%s", b.Low(), diff)
	}
}

// TestBreach_ends: it lasts until the dimension gets another limit, or less of it is used; nothing else ends it.
func TestBreach_ends(t *testing.T) {
	t.Parallel()
	type limits = map[string]*int64
	const available = `budget.available {}`
	one := breached(t, used(t, fresh(t, dims{"x": 10, "y": 10}, dims{"x": 8}), dims{"x": 4, "y": 4}), dims{"x": 7}).Reserve(dims{"x": 2})
	both := breached(t, one, dims{"y": 7})
	full := breached(t, used(t, one, dims{"x": 6}), dims{"x": 1})
	unused := breached(t, fresh(t, dims{"x": 10}, nil), dims{"x": 11})
	regular := one
	regular.ResetInterval, regular.NextResetAt = time.Minute, at(60)

	// of returns what changes one dimension, beside the flag of the budget.
	of := func(dimension string, exhausted bool, change func(*budget.Amount)) func(*budget.Budget) {
		return func(b *budget.Budget) {
			a := b.Amounts[dimension]
			change(&a)
			b.Amounts[dimension], b.Exhausted = a, exhausted
		}
	}
	decided := func(change func(*budget.Budget)) func(*budget.Budget) {
		return func(b *budget.Budget) {
			change(b)
			b.Revision, b.UpdatedAt = 2, at(2)
		}
	}
	hard := func(limit *int64) func(*budget.Amount) {
		return func(a *budget.Amount) { a.Hard, a.Breached = limit, false }
	}
	fallen := func(usage int64) func(*budget.Amount) {
		return func(a *budget.Amount) { a.Usage, a.Breached = usage, false }
	}
	anew := func(next time.Time, now time.Time) func(*budget.Budget) {
		return func(b *budget.Budget) {
			for dimension, a := range b.Amounts {
				a.Usage, a.Breached = 0, false
				b.Amounts[dimension] = a
			}
			b.LastBreachAt, b.LastBreachDimension, b.Exhausted = time.Time{}, "", false
			b.LastResetAt, b.NextResetAt, b.Period, b.Revision, b.UpdatedAt = now, next, 1, 2, now
		}
	}
	counted := func(usage dims) func(*budget.Budget) {
		return func(b *budget.Budget) {
			for dimension, n := range usage {
				a := b.Amounts[dimension]
				a.Usage, a.Used = n, true
				b.Amounts[dimension] = a
			}
			b.UpdatedAt = at(2)
		}
	}

	reset := func(manual bool, now time.Time) func(testing.TB, budget.Budget) budget.Change {
		return func(_ testing.TB, b budget.Budget) budget.Change { return b.Reset(manual, now) }
	}
	topUp := func(by dims) func(testing.TB, budget.Budget) budget.Change {
		return func(tb testing.TB, b budget.Budget) budget.Change {
			tb.Helper()
			c, err := b.TopUp(by, at(2))
			if err != nil {
				tb.Fatal(err)
			}
			return c
		}
	}
	change := func(p budget.Patch) func(testing.TB, budget.Budget) budget.Change {
		return func(tb testing.TB, b budget.Budget) budget.Change {
			tb.Helper()
			c, err := b.Patch(p, at(2))
			if err != nil {
				tb.Fatal(err)
			}
			return c
		}
	}
	refund := func(spent dims) func(testing.TB, budget.Budget) budget.Change {
		return func(_ testing.TB, b budget.Budget) budget.Change { return b.Refund(spent, at(2)) }
	}
	report := func(want budget.Outcome, spent dims) func(testing.TB, budget.Budget) budget.Change {
		return func(tb testing.TB, b budget.Budget) budget.Change {
			tb.Helper()
			after, v, err := budget.Apply([]budget.Budget{b}, spent, at(2))
			if err != nil || v.Outcome != want {
				tb.Fatal(v, err)
			}
			return after[0]
		}
	}
	tests := []struct {
		name   string
		before budget.Budget
		do     func(testing.TB, budget.Budget) budget.Change
		want   func(*budget.Budget)
		told   []string
	}{
		{"a reset by hand", one, reset(true, at(2)), anew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{"x":4,"y":4},"period":1}`, available}},
		{"a reset that is due", regular, reset(false, at(60)), anew(at(120), at(60)),
			[]string{`budget.reset {"by":"schedule","usage":{"x":4,"y":4},"period":1,"next_reset_at":"2026-11-21T09:32:00.000Z"}`, available}},
		{"a reset of two", both, reset(true, at(2)), anew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{"x":4,"y":4},"period":1}`, available}},
		{"a reset of what nobody has used", unused, reset(true, at(2)), anew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{},"period":1}`, available}},
		{"a top-up", one, topUp(dims{"x": 1}), decided(of("x", false, hard(new(int64(11))))),
			[]string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`, available}},
		{"a top-up of what is used up", full, topUp(dims{"x": 1}), decided(of("x", false, hard(new(int64(11))))),
			[]string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`, available}},
		{"a top-up of one of two", both, topUp(dims{"x": 1}), decided(of("x", true, hard(new(int64(11))))), []string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`}},
		{"a higher limit", one, change(budget.Patch{Hard: limits{"x": new(int64(11))}}), decided(of("x", false, hard(new(int64(11))))),
			[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
		{"a lower limit", one, change(budget.Patch{Hard: limits{"x": new(int64(5))}}), decided(of("x", false, hard(new(int64(5))))),
			[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
		{"a limit that leaves nothing", one, change(budget.Patch{Hard: limits{"x": new(int64(4))}}), decided(of("x", true, hard(new(int64(4))))),
			[]string{`budget.updated {"changed":["hard_limits"]}`}},
		{"a limit of 0", one, change(budget.Patch{Hard: limits{"x": new(int64(0))}}), decided(of("x", false, hard(new(int64(0))))),
			[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
		{"no limit", one, change(budget.Patch{Hard: limits{"x": nil}}), decided(of("x", false, hard(nil))), []string{`budget.updated {"changed":["hard_limits"]}`, available}},
		{"no limit of what nobody has used", unused, change(budget.Patch{Hard: limits{"x": nil}}), decided(func(b *budget.Budget) {
			delete(b.Amounts, "x")
			b.Exhausted = false
		}), []string{`budget.updated {"changed":["hard_limits"]}`, available}},
		{"a refund", one, refund(dims{"x": 1}), decided(of("x", false, fallen(3))), []string{`budget.released {"dimensions":{"x":1}}`, available}},
		{"a refund of what is used up", full, refund(dims{"x": 1}), decided(of("x", false, fallen(9))), []string{`budget.released {"dimensions":{"x":1}}`, available}},
		{"a refund of one of two", both, refund(dims{"y": 4}), decided(of("y", true, fallen(0))), []string{`budget.released {"dimensions":{"y":4}}`}},

		{"a reset before it is due", regular, reset(false, at(60).Add(-1)), nil, nil},
		{"a top-up of another dimension", one, topUp(dims{"x": 0, "y": 1}), decided(of("y", true, hard(new(int64(11))))),
			[]string{`budget.topped_up {"dimensions":{"y":1},"hard_limits":{"y":11}}`}},
		{"a top-up by nothing", one, topUp(dims{"x": 0}), nil, nil},
		{"another limit of another dimension", one, change(budget.Patch{Hard: limits{"y": nil}}), decided(of("y", true, hard(nil))), []string{`budget.updated {"changed":["hard_limits"]}`}},
		{"the same limit", one, change(budget.Patch{Hard: limits{"x": new(int64(10))}}), nil, nil},
		{"another soft limit", one, change(budget.Patch{Soft: limits{"x": new(int64(9))}}), decided(of("x", true, func(a *budget.Amount) { a.Soft = new(int64(9)) })),
			[]string{`budget.updated {"changed":["soft_limits"]}`}},
		{"another policy", one, change(budget.Patch{OnHardLimit: patch.Some(budget.Cancel)}), decided(func(b *budget.Budget) { b.OnHardLimit = budget.Cancel }),
			[]string{`budget.updated {"changed":["on_hard_limit"]}`}},
		{"a refund of another dimension", one, refund(dims{"x": 0, "y": 1}), decided(of("y", true, fallen(3))), []string{`budget.released {"dimensions":{"y":1}}`}},
		{"a refund of what nobody has used", unused, refund(dims{"x": 11}), nil, nil},
		{"a report that fits", one, report(budget.OK, dims{"x": 1, "y": 1}), counted(dims{"x": 5, "y": 5}), nil},
		{"a report of just what is left", one, report(budget.SoftBreach, dims{"x": 6}), func(b *budget.Budget) {
			counted(dims{"x": 10})(b)
			b.SoftBreaches = 1
		}, []string{`budget.soft_breached {"dimension":"x","current_usage":10,"delta":6,"limit":8}`}},
		{"another one that is refused", one, report(budget.HardBreach, dims{"x": 8}), func(b *budget.Budget) { b.Breaches, b.LastBreachAt = 2, at(2) },
			[]string{`budget.breached {"dimension":"x","current_usage":4,"delta":8,"limit":10}`}},
		{"what is reserved", one, func(_ testing.TB, b budget.Budget) budget.Change {
			return budget.Change{Budget: b.Reserve(dims{"x": 3}).Unreserve(dims{"x": 5})}
		}, of("x", true, func(a *budget.Amount) { a.Reserved = 0 }), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := frozen(tt.before)
			got := tt.do(t, tt.before)
			if diff := cmp.Diff(before, tt.before); diff != "" {
				t.Errorf("it changed its receiver:\n%s", diff)
			}
			want := frozen(before)
			if tt.want != nil {
				tt.want(&want)
			}
			same(t, want, tt.told, got)
			if _, _, _, ok := got.Budget.Unreserve(reserved(got.Budget)).Need(nil); ok == want.Exhausted {
				t.Errorf("with nobody at work, somebody may begin: %v", ok)
			}
		})
	}
}

// TestBreach_every: a budget that every report goes over holds everybody up after the first, and is told to be exhausted once.
func TestBreach_every(t *testing.T) {
	t.Parallel()
	b := fresh(t, dims{"x": 10}, nil)
	var all []string
	for range 3 {
		after, v, err := budget.Apply([]budget.Budget{b}, dims{"x": 11}, at(1))
		if err != nil || v.Outcome != budget.HardBreach {
			t.Fatal(v, err)
		}
		all = append(all, told(t, after[0])...)
		b = after[0].Budget
		if _, _, _, ok := b.Need(nil); ok {
			t.Error("somebody may begin")
		}
	}
	const breach = `budget.breached {"dimension":"x","current_usage":0,"delta":11,"limit":10}`
	want := []string{breach, `budget.exhausted {"dimension":"x","current_usage":0,"limit":10,"on_hard_limit":"deny"}`, breach, breach}
	if diff := cmp.Diff(want, all); diff != "" || b.Breaches != 3 || !maps.Equal(dims{}, usage(b)) {
		t.Errorf("%+v (-want +got):\n%s", b, diff)
	}
	c, err := b.TopUp(dims{"x": 1}, at(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, ok := c.Budget.Need(dims{"x": 11}); !ok {
		t.Error("after the top-up nobody may begin")
	}
	if b = used(t, c.Budget, dims{"x": 11}); !b.Exhausted || b.Amounts["x"].Breached {
		t.Errorf("%+v", b)
	}
}
