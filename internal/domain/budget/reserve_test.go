package budget_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/budget"
)

// TestBudget_Need: there must be something left of every limited dimension, and as much as is expected.
func TestBudget_Need(t *testing.T) {
	t.Parallel()
	b := used(t, fresh(t, dims{"calls": 3, "tokens": 10, "none": 0}, dims{"soft": 1}), dims{"tokens": 4, "calls": 1, "soft": 5}).Reserve(dims{"tokens": 2})
	tests := []struct {
		name      string
		budget    budget.Budget
		estimate  dims
		dimension string
		need      int64
		left      int64
	}{
		{"nothing expected", b, nil, "", 0, 0},
		{"just what is left", b, dims{"tokens": 4, "calls": 2}, "", 0, 0},
		{"what is not limited", b, dims{"none": 1e9, "soft": 1e9, "other": 1e9}, "", 0, 0},
		{"too much", b, dims{"tokens": 5}, "tokens", 5, 4},
		{"too much of two: the first by name", b, dims{"tokens": 5, "calls": 3}, "calls", 3, 2},
		{"all is reserved", b.Reserve(dims{"tokens": 4}), nil, "tokens", 1, 0},
		{"all is used", used(t, b, dims{"tokens": 6}), dims{"tokens": 0}, "tokens", 1, 0},
		{"exhausted in what is not expected", used(t, b, dims{"calls": 2}), dims{"tokens": 1}, "calls", 1, 0},
		{"as much as there can be", b, dims{"tokens": budget.MaxAmount}, "tokens", budget.MaxAmount, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dimension, need, left, ok := tt.budget.Need(tt.estimate)
			if dimension != tt.dimension || need != tt.need || left != tt.left || ok != (tt.dimension == "") {
				t.Errorf("%q %d %d %v", dimension, need, left, ok)
			}
		})
	}
}

func TestBudget_Reserve(t *testing.T) {
	t.Parallel()
	b := fresh(t, dims{"tokens": 10}, nil)
	before := frozen(b)
	held := b.Reserve(dims{"tokens": 4, "calls": 1, "none": 0}).Reserve(dims{"tokens": 3})
	if diff := cmp.Diff(dims{"tokens": 7, "calls": 1}, reserved(held)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(dims{"tokens": budget.MaxAmount, "calls": 1}, reserved(held.Reserve(dims{"tokens": budget.MaxAmount}))); diff != "" {
		t.Errorf("it is bounded:\n%s", diff)
	}
	again := frozen(held)
	if diff := cmp.Diff(dims{"tokens": 3}, reserved(held.Unreserve(dims{"tokens": 4, "calls": 9, "none": 3}))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(again, held); diff != "" {
		t.Errorf("it changed its receiver:\n%s", diff)
	}
	if diff := cmp.Diff(before, held.Unreserve(dims{"tokens": 7, "calls": 1})); diff != "" {
		t.Errorf("given back, nothing is left of it:\n%s", diff)
	}
	if diff := cmp.Diff(before, b); diff != "" {
		t.Errorf("it changed its receiver:\n%s", diff)
	}
	if got := held.Unreserve(dims{"tokens": -5}); !cmp.Equal(held, got) {
		t.Errorf("%+v", got)
	}
	if got := (budget.Budget{}).Reserve(dims{"x": 1}); !cmp.Equal(dims{"x": 1}, reserved(got)) {
		t.Errorf("%+v", got)
	}
}

// TestBudget_Left: what is reserved is not left; for whom it is reserved, it remains.
func TestBudget_Left(t *testing.T) {
	t.Parallel()
	b := used(t, fresh(t, dims{"tokens": 10, "calls": 3, "none": 0}, nil), dims{"tokens": 4, "free": 1}).Reserve(dims{"tokens": 5, "calls": 7, "free": 1})
	for dimension, want := range map[string]int64{"tokens": 1, "calls": 0} {
		if left, limited := b.Left(dimension); left != want || !limited {
			t.Errorf("%s: %d %v", dimension, left, limited)
		}
	}
	for _, dimension := range []string{"none", "free", "other"} {
		if left, limited := b.Left(dimension); left != 0 || limited {
			t.Errorf("%s: %d %v", dimension, left, limited)
		}
	}
	for _, tt := range []struct{ own, want dims }{
		{nil, dims{"tokens": 1, "calls": 0}},
		{dims{"tokens": 2, "free": 1}, dims{"tokens": 3, "calls": 0}},
		{dims{"tokens": 5, "calls": 7}, dims{"tokens": 6, "calls": 3}},
		{dims{"tokens": 50}, dims{"tokens": 6, "calls": 0}}, // never more than is not spent
	} {
		if diff := cmp.Diff(tt.want, b.Remaining(tt.own)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.own, diff)
		}
	}
	if got := fresh(t, nil, dims{"x": 1}).Remaining(nil); got == nil || len(got) > 0 {
		t.Errorf("without limits %v remains", got)
	}
}

func TestBudget_Low(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		hard, soft dims
		used       dims
		want       bool
	}{
		{"fresh", dims{"x": 100}, dims{"x": 50}, nil, false},
		{"at the soft limit", nil, dims{"x": 50}, dims{"x": 50}, false},
		{"over the soft limit", nil, dims{"x": 50}, dims{"x": 51}, true},
		{"a tenth is left", dims{"x": 100}, nil, dims{"x": 90}, false},
		{"less than a tenth is left", dims{"x": 100}, nil, dims{"x": 91}, true},
		{"exhausted", dims{"x": 5}, nil, dims{"x": 5}, true},
		{"of another dimension", dims{"a": 5, "x": 100}, nil, dims{"x": 95}, true},
		{"without limits", dims{"x": 0}, dims{"x": 0}, dims{"x": 5}, false},
		{"the largest limit", dims{"x": budget.MaxAmount}, nil, dims{"x": 5}, false},
	} {
		if got := used(t, fresh(t, tt.hard, tt.soft), tt.used).Reserve(dims{"x": 1e6}).Low(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
