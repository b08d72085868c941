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
	for _, tt := range breachEnds {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			from := tt.before(t)
			before := frozen(from)
			got := tt.do(t, from)
			if diff := cmp.Diff(before, from); diff != "" {
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

const available = `budget.available {}`

func withOneBreach(tb testing.TB) budget.Budget {
	tb.Helper()
	return breached(tb, used(tb, fresh(tb, dims{"x": 10, "y": 10}, dims{"x": 8}), dims{"x": 4, "y": 4}), dims{"x": 7}).Reserve(dims{"x": 2})
}

func withBothBreached(tb testing.TB) budget.Budget {
	tb.Helper()
	return breached(tb, withOneBreach(tb), dims{"y": 7})
}

func usedUpAndBreached(tb testing.TB) budget.Budget {
	tb.Helper()
	return breached(tb, used(tb, withOneBreach(tb), dims{"x": 6}), dims{"x": 1})
}

func unusedAndBreached(tb testing.TB) budget.Budget {
	tb.Helper()
	return breached(tb, fresh(tb, dims{"x": 10}, nil), dims{"x": 11})
}

func regularAndBreached(tb testing.TB) budget.Budget {
	tb.Helper()
	b := withOneBreach(tb)
	b.ResetInterval, b.NextResetAt = time.Minute, at(60)
	return b
}

// ofDimension returns what changes one dimension, beside the flag of the budget.
func ofDimension(dimension string, exhausted bool, change func(*budget.Amount)) func(*budget.Budget) {
	return func(b *budget.Budget) {
		a := b.Amounts[dimension]
		change(&a)
		b.Amounts[dimension], b.Exhausted = a, exhausted
	}
}

func byRequest(change func(*budget.Budget)) func(*budget.Budget) {
	return func(b *budget.Budget) {
		change(b)
		b.Revision, b.UpdatedAt = 2, at(2)
	}
}

func hardLimit(limit *int64) func(*budget.Amount) {
	return func(a *budget.Amount) { a.Hard, a.Breached = limit, false }
}

func fallenTo(usage int64) func(*budget.Amount) {
	return func(a *budget.Amount) { a.Usage, a.Breached = usage, false }
}

func begunAnew(next time.Time, now time.Time) func(*budget.Budget) {
	return func(b *budget.Budget) {
		for dimension, a := range b.Amounts {
			a.Usage, a.Breached = 0, false
			b.Amounts[dimension] = a
		}
		b.LastBreachAt, b.LastBreachDimension, b.Exhausted = time.Time{}, "", false
		b.LastResetAt, b.NextResetAt, b.Period, b.Revision, b.UpdatedAt = now, next, 1, 2, now
	}
}

func countedTo(usage dims) func(*budget.Budget) {
	return func(b *budget.Budget) {
		for dimension, n := range usage {
			a := b.Amounts[dimension]
			a.Usage, a.Used = n, true
			b.Amounts[dimension] = a
		}
		b.UpdatedAt = at(2)
	}
}

func resets(manual bool, now time.Time) func(testing.TB, budget.Budget) budget.Change {
	return func(_ testing.TB, b budget.Budget) budget.Change { return b.Reset(manual, now) }
}

func topsUp(by dims) func(testing.TB, budget.Budget) budget.Change {
	return func(tb testing.TB, b budget.Budget) budget.Change {
		tb.Helper()
		c, err := b.TopUp(by, at(2))
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
}

func changes(p budget.Patch) func(testing.TB, budget.Budget) budget.Change {
	return func(tb testing.TB, b budget.Budget) budget.Change {
		tb.Helper()
		c, err := b.Patch(p, at(2))
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
}

func refunds(spent dims) func(testing.TB, budget.Budget) budget.Change {
	return func(_ testing.TB, b budget.Budget) budget.Change { return b.Refund(spent, at(2)) }
}

func reports(want budget.Outcome, spent dims) func(testing.TB, budget.Budget) budget.Change {
	return func(tb testing.TB, b budget.Budget) budget.Change {
		tb.Helper()
		after, v, err := budget.Apply([]budget.Budget{b}, spent, at(2))
		if err != nil || v.Outcome != want {
			tb.Fatal(v, err)
		}
		return after[0]
	}
}

var breachEnds = []struct {
	name   string
	before func(testing.TB) budget.Budget
	do     func(testing.TB, budget.Budget) budget.Change
	want   func(*budget.Budget)
	told   []string
}{
	{"a reset by hand", withOneBreach, resets(true, at(2)), begunAnew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{"x":4,"y":4},"period":1}`, available}},
	{"a reset that is due", regularAndBreached, resets(false, at(60)), begunAnew(at(120), at(60)),
		[]string{`budget.reset {"by":"schedule","usage":{"x":4,"y":4},"period":1,"next_reset_at":"2026-11-21T09:32:00.000Z"}`, available}},
	{"a reset of two", withBothBreached, resets(true, at(2)), begunAnew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{"x":4,"y":4},"period":1}`, available}},
	{"a reset of what nobody has used", unusedAndBreached, resets(true, at(2)), begunAnew(time.Time{}, at(2)), []string{`budget.reset {"by":"request","usage":{},"period":1}`, available}},
	{"a top-up", withOneBreach, topsUp(dims{"x": 1}), byRequest(ofDimension("x", false, hardLimit(new(int64(11))))),
		[]string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`, available}},
	{"a top-up of what is used up", usedUpAndBreached, topsUp(dims{"x": 1}), byRequest(ofDimension("x", false, hardLimit(new(int64(11))))),
		[]string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`, available}},
	{"a top-up of one of two", withBothBreached, topsUp(dims{"x": 1}), byRequest(ofDimension("x", true, hardLimit(new(int64(11))))), []string{`budget.topped_up {"dimensions":{"x":1},"hard_limits":{"x":11}}`}},
	{"a higher limit", withOneBreach, changes(budget.Patch{Hard: limits{"x": new(int64(11))}}), byRequest(ofDimension("x", false, hardLimit(new(int64(11))))),
		[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
	{"a lower limit", withOneBreach, changes(budget.Patch{Hard: limits{"x": new(int64(5))}}), byRequest(ofDimension("x", false, hardLimit(new(int64(5))))),
		[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
	{"a limit that leaves nothing", withOneBreach, changes(budget.Patch{Hard: limits{"x": new(int64(4))}}), byRequest(ofDimension("x", true, hardLimit(new(int64(4))))),
		[]string{`budget.updated {"changed":["hard_limits"]}`}},
	{"a limit of 0", withOneBreach, changes(budget.Patch{Hard: limits{"x": new(int64(0))}}), byRequest(ofDimension("x", false, hardLimit(new(int64(0))))),
		[]string{`budget.updated {"changed":["hard_limits"]}`, available}},
	{"no limit", withOneBreach, changes(budget.Patch{Hard: limits{"x": nil}}), byRequest(ofDimension("x", false, hardLimit(nil))), []string{`budget.updated {"changed":["hard_limits"]}`, available}},
	{"no limit of what nobody has used", unusedAndBreached, changes(budget.Patch{Hard: limits{"x": nil}}), byRequest(func(b *budget.Budget) {
		delete(b.Amounts, "x")
		b.Exhausted = false
	}), []string{`budget.updated {"changed":["hard_limits"]}`, available}},
	{"a refund", withOneBreach, refunds(dims{"x": 1}), byRequest(ofDimension("x", false, fallenTo(3))), []string{`budget.released {"dimensions":{"x":1}}`, available}},
	{"a refund of what is used up", usedUpAndBreached, refunds(dims{"x": 1}), byRequest(ofDimension("x", false, fallenTo(9))), []string{`budget.released {"dimensions":{"x":1}}`, available}},
	{"a refund of one of two", withBothBreached, refunds(dims{"y": 4}), byRequest(ofDimension("y", true, fallenTo(0))), []string{`budget.released {"dimensions":{"y":4}}`}},

	{"a reset before it is due", regularAndBreached, resets(false, at(60).Add(-1)), nil, nil},
	{"a top-up of another dimension", withOneBreach, topsUp(dims{"x": 0, "y": 1}), byRequest(ofDimension("y", true, hardLimit(new(int64(11))))),
		[]string{`budget.topped_up {"dimensions":{"y":1},"hard_limits":{"y":11}}`}},
	{"a top-up by nothing", withOneBreach, topsUp(dims{"x": 0}), nil, nil},
	{"another limit of another dimension", withOneBreach, changes(budget.Patch{Hard: limits{"y": nil}}), byRequest(ofDimension("y", true, hardLimit(nil))), []string{`budget.updated {"changed":["hard_limits"]}`}},
	{"the same limit", withOneBreach, changes(budget.Patch{Hard: limits{"x": new(int64(10))}}), nil, nil},
	{"another soft limit", withOneBreach, changes(budget.Patch{Soft: limits{"x": new(int64(9))}}), byRequest(ofDimension("x", true, func(a *budget.Amount) { a.Soft = new(int64(9)) })),
		[]string{`budget.updated {"changed":["soft_limits"]}`}},
	{"another policy", withOneBreach, changes(budget.Patch{OnHardLimit: patch.Some(budget.Cancel)}), byRequest(func(b *budget.Budget) { b.OnHardLimit = budget.Cancel }),
		[]string{`budget.updated {"changed":["on_hard_limit"]}`}},
	{"a refund of another dimension", withOneBreach, refunds(dims{"x": 0, "y": 1}), byRequest(ofDimension("y", true, fallenTo(3))), []string{`budget.released {"dimensions":{"y":1}}`}},
	{"a refund of what nobody has used", unusedAndBreached, refunds(dims{"x": 11}), nil, nil},
	{"a report that fits", withOneBreach, reports(budget.OK, dims{"x": 1, "y": 1}), countedTo(dims{"x": 5, "y": 5}), nil},
	{"a report of just what is left", withOneBreach, reports(budget.SoftBreach, dims{"x": 6}), func(b *budget.Budget) {
		countedTo(dims{"x": 10})(b)
		b.SoftBreaches = 1
	}, []string{`budget.soft_breached {"dimension":"x","current_usage":10,"delta":6,"limit":8}`}},
	{"another one that is refused", withOneBreach, reports(budget.HardBreach, dims{"x": 8}), func(b *budget.Budget) { b.Breaches, b.LastBreachAt = 2, at(2) },
		[]string{`budget.breached {"dimension":"x","current_usage":4,"delta":8,"limit":10}`}},
	{"what is reserved", withOneBreach, func(_ testing.TB, b budget.Budget) budget.Change {
		return budget.Change{Budget: b.Reserve(dims{"x": 3}).Unreserve(dims{"x": 5})}
	}, ofDimension("x", true, func(a *budget.Amount) { a.Reserved = 0 }), nil},
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
