package budget_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/budget"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestApply holds the golden vectors for one budget. reference: flows-streams-budgets.md 6.3, 10.7.
func TestApply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		hard, soft dims
		before     dims
		report     dims
		want       budget.Verdict
		usage      dims
		exhausted  bool
		told       []string
	}{
		{"under the limit", dims{"tokens": 100}, dims{"tokens": 50}, nil, dims{"tokens": 30}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 30}, false, nil},
		{"without limits", nil, nil, dims{"tokens": 5}, dims{"tokens": 30}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 35}, false, nil},
		{"a limit of 0 is none", dims{"tokens": 0}, dims{"tokens": 0}, nil, dims{"tokens": 30}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 30}, false, nil},
		{"just at the soft limit", nil, dims{"tokens": 8}, dims{"tokens": 5}, dims{"tokens": 3}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 8}, false, nil},
		{"just at the hard limit", dims{"tokens": 8}, nil, dims{"tokens": 5}, dims{"tokens": 3}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 8}, true,
			[]string{`budget.exhausted {"dimension":"tokens","current_usage":8,"limit":8,"on_hard_limit":"deny"}`}},
		{"exhausted already", dims{"tokens": 8}, nil, dims{"tokens": 8}, dims{"calls": 3}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 8, "calls": 3}, true, nil},
		{"nothing", nil, nil, nil, dims{"tokens": 0}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 0}, false, nil},
		{"nothing at all", nil, nil, nil, nil, budget.Verdict{Outcome: budget.OK}, dims{}, false, nil},
		{"over the soft limit", dims{"tokens": 100}, dims{"tokens": 50}, nil, dims{"tokens": 60}, budget.Verdict{Outcome: budget.SoftBreach, BudgetID: id, Dimension: "tokens", Current: 60, Limit: 50},
			dims{"tokens": 60}, false, []string{`budget.soft_breached {"dimension":"tokens","current_usage":60,"delta":60,"limit":50}`}},
		{"over two soft limits", nil, dims{"tokens": 50, "calls": 1}, nil, dims{"tokens": 60, "calls": 2}, budget.Verdict{Outcome: budget.SoftBreach, BudgetID: id, Dimension: "calls", Current: 2, Limit: 1},
			dims{"tokens": 60, "calls": 2}, false, []string{`budget.soft_breached {"dimension":"calls","current_usage":2,"delta":2,"limit":1}`}},
		{"over the soft limit of another dimension already", nil, dims{"tokens": 50}, dims{"tokens": 60}, dims{"calls": 2}, budget.Verdict{Outcome: budget.OK}, dims{"tokens": 60, "calls": 2}, false, nil},
		{"over the soft limit and just at the hard one", dims{"tokens": 60}, dims{"tokens": 50}, nil, dims{"tokens": 60}, budget.Verdict{Outcome: budget.SoftBreach, BudgetID: id, Dimension: "tokens", Current: 60, Limit: 50},
			dims{"tokens": 60}, true, []string{
				`budget.soft_breached {"dimension":"tokens","current_usage":60,"delta":60,"limit":50}`,
				`budget.exhausted {"dimension":"tokens","current_usage":60,"limit":60,"on_hard_limit":"deny"}`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := fresh(t, tt.hard, tt.soft)
			if tt.before != nil {
				b = used(t, b, tt.before)
			}
			before := frozen(b)
			got, v, err := budget.Apply([]budget.Budget{b}, tt.report, at(2))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, b); diff != "" {
				t.Errorf("it changed what it was given:\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, v); diff != "" {
				t.Errorf("the verdict (-want +got):\n%s", diff)
			}
			want := before
			want.Amounts = got[0].Budget.Amounts
			want.UpdatedAt, want.Exhausted = at(2), tt.exhausted
			if v.Outcome == budget.SoftBreach {
				want.SoftBreaches++
			}
			same(t, want, tt.told, got[0])
			if diff := cmp.Diff(tt.usage, usage(got[0].Budget)); diff != "" {
				t.Errorf("the usage (-want +got):\n%s", diff)
			}
		})
	}
}

// TestApply_hard: what would go over a hard limit is counted nowhere, and only the breach is noted, which exhausts the dimension.
func TestApply_hard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		hard, soft dims
		before     dims
		report     dims
		dimension  string
		current    int64
		limit      int64
		told       []string
	}{
		{"one more than there is", dims{"tokens": 100}, dims{"tokens": 80}, dims{"tokens": 60}, dims{"tokens": 41}, "tokens", 60, 100,
			[]string{
				`budget.breached {"dimension":"tokens","current_usage":60,"delta":41,"limit":100}`,
				`budget.exhausted {"dimension":"tokens","current_usage":60,"limit":100,"on_hard_limit":"deny"}`,
			}},
		{"a dimension that was never reported", dims{"tokens": 10}, nil, nil, dims{"tokens": 11}, "tokens", 0, 10,
			[]string{
				`budget.breached {"dimension":"tokens","current_usage":0,"delta":11,"limit":10}`,
				`budget.exhausted {"dimension":"tokens","current_usage":0,"limit":10,"on_hard_limit":"deny"}`,
			}},
		{"another dimension is not counted, either", dims{"tokens": 10}, dims{"calls": 1}, nil, dims{"calls": 5, "tokens": 11}, "tokens", 0, 10,
			[]string{
				`budget.breached {"dimension":"tokens","current_usage":0,"delta":11,"limit":10}`,
				`budget.exhausted {"dimension":"tokens","current_usage":0,"limit":10,"on_hard_limit":"deny"}`,
			}},
		{"two limits: the first by name", dims{"tokens": 10, "calls": 1}, nil, nil, dims{"calls": 5, "tokens": 11}, "calls", 0, 1,
			[]string{
				`budget.breached {"dimension":"calls","current_usage":0,"delta":5,"limit":1}`,
				`budget.exhausted {"dimension":"calls","current_usage":0,"limit":1,"on_hard_limit":"deny"}`,
			}},
		{"as much as can be counted", dims{"tokens": 10}, nil, nil, dims{"tokens": budget.MaxAmount}, "tokens", 0, 10,
			[]string{
				`budget.breached {"dimension":"tokens","current_usage":0,"delta":9007199254740991,"limit":10}`,
				`budget.exhausted {"dimension":"tokens","current_usage":0,"limit":10,"on_hard_limit":"deny"}`,
			}},
		{"exhausted already", dims{"tokens": 10}, nil, dims{"tokens": 10}, dims{"tokens": 1}, "tokens", 10, 10,
			[]string{`budget.breached {"dimension":"tokens","current_usage":10,"delta":1,"limit":10}`}},
		{"exhausted already, in another dimension", dims{"calls": 1, "tokens": 10}, nil, dims{"calls": 1}, dims{"tokens": 11}, "tokens", 0, 10,
			[]string{`budget.breached {"dimension":"tokens","current_usage":0,"delta":11,"limit":10}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := fresh(t, tt.hard, tt.soft)
			if tt.before != nil {
				b = used(t, b, tt.before)
			}
			before := frozen(b)
			got, v, err := budget.Apply([]budget.Budget{b}, tt.report, at(2))
			if diff := cmp.Diff(budget.Verdict{Outcome: budget.HardBreach, BudgetID: id, Dimension: tt.dimension, Current: tt.current, Limit: tt.limit}, v); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(before, b); diff != "" {
				t.Errorf("it changed what it was given:\n%s", diff)
			}
			want := before
			a := want.Amounts[tt.dimension]
			a.Breached = true
			want.Amounts[tt.dimension], want.Exhausted = a, true
			want.Breaches, want.LastBreachAt, want.LastBreachDimension = 1, at(2), tt.dimension
			same(t, want, tt.told, got[0])
		})
	}
}

// TestApply_chain: a report counts on the budget and on every one above it, or on none.
func TestApply_chain(t *testing.T) {
	t.Parallel()
	root := uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b03")
	chain := func(t *testing.T, limits ...[2]dims) []budget.Budget {
		t.Helper()
		all := make([]budget.Budget, len(limits))
		for i, l := range limits {
			all[i] = fresh(t, l[0], l[1])
			all[i].ID = []uuid.UUID{id, parentID, root}[i]
		}
		return all
	}
	tests := []struct {
		name   string
		limits [][2]dims
		report dims
		want   budget.Verdict
		usage  []dims
		events []int // how many of each
	}{
		{"all have room", [][2]dims{{dims{"x": 9}}, {dims{"x": 9}}, {}}, dims{"x": 5}, budget.Verdict{Outcome: budget.OK}, []dims{{"x": 5}, {"x": 5}, {"x": 5}}, []int{0, 0, 0}},
		{"the root has none", [][2]dims{{dims{"x": 9}}, {dims{"x": 9}}, {dims{"x": 4}}}, dims{"x": 5},
			budget.Verdict{Outcome: budget.HardBreach, BudgetID: root, Dimension: "x", Current: 0, Limit: 4}, []dims{{}, {}, {}}, []int{0, 0, 2}},
		{"two have none: the nearest", [][2]dims{{}, {dims{"y": 3}}, {dims{"x": 4}}}, dims{"x": 5, "y": 4},
			budget.Verdict{Outcome: budget.HardBreach, BudgetID: parentID, Dimension: "y", Current: 0, Limit: 3}, []dims{{}, {}, {}}, []int{0, 2, 0}},
		{"a hard limit above comes before a soft one here", [][2]dims{{nil, dims{"x": 1}}, {dims{"x": 4}}}, dims{"x": 5},
			budget.Verdict{Outcome: budget.HardBreach, BudgetID: parentID, Dimension: "x", Current: 0, Limit: 4}, []dims{{}, {}}, []int{0, 2}},
		{"soft limits of two: the nearest is told", [][2]dims{{}, {nil, dims{"x": 3}}, {nil, dims{"x": 2}}}, dims{"x": 5},
			budget.Verdict{Outcome: budget.SoftBreach, BudgetID: parentID, Dimension: "x", Current: 5, Limit: 3}, []dims{{"x": 5}, {"x": 5}, {"x": 5}}, []int{0, 1, 0}},
		{"the parent is exhausted by it", [][2]dims{{}, {dims{"x": 5}}, {nil, dims{"x": 2}}}, dims{"x": 5},
			budget.Verdict{Outcome: budget.SoftBreach, BudgetID: root, Dimension: "x", Current: 5, Limit: 2}, []dims{{"x": 5}, {"x": 5}, {"x": 5}}, []int{0, 1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := chain(t, tt.limits...)
			got, v, err := budget.Apply(before, tt.report, at(2))
			if diff := cmp.Diff(tt.want, v); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			for i, c := range got {
				if diff := cmp.Diff(tt.usage[i], usage(c.Budget)); diff != "" || len(told(t, c)) != tt.events[i] {
					t.Errorf("budget %d tells %v (-want +got):\n%s", i, told(t, c), diff)
				}
				breached := v.Outcome == budget.HardBreach && c.Budget.ID == v.BudgetID
				if c.Budget.Revision != 1 || breached != (c.Budget.Breaches == 1) || breached == c.Budget.LastBreachAt.IsZero() {
					t.Errorf("budget %d: %+v", i, c.Budget)
				}
				if (c.Budget.SoftBreaches == 1) != (v.Outcome == budget.SoftBreach && c.Budget.ID == v.BudgetID) {
					t.Errorf("budget %d has %d soft breaches", i, c.Budget.SoftBreaches)
				}
				if v.Outcome == budget.HardBreach && c.Budget.Exhausted != breached {
					t.Errorf("budget %d is exhausted: %v", i, c.Budget.Exhausted)
				}
				if v.Outcome == budget.HardBreach && !breached {
					same(t, before[i], nil, c)
				}
			}
		})
	}
}

func TestApply_refused(t *testing.T) {
	t.Parallel()
	full := used(t, fresh(t, nil, nil), dims{"x": budget.MaxAmount})
	wide := fresh(t, many(32), nil)
	limited := fresh(t, dims{"x": 1}, nil)
	tests := []struct {
		name    string
		chain   []budget.Budget
		report  dims
		code    fault.Code
		pointer string
	}{
		{"negative", []budget.Budget{limited}, dims{"x": -1}, fault.CodeOutOfRange, "/dimensions/x"},
		{"too large", []budget.Budget{limited}, dims{"x": budget.MaxAmount + 1}, fault.CodeOutOfRange, "/dimensions/x"},
		{"no name", []budget.Budget{limited}, dims{"a b": 1}, fault.CodeValidationFailed, "/dimensions/a b"},
		{"too much together", []budget.Budget{full}, dims{"a": 1, "x": 1}, fault.CodeOutOfRange, "/dimensions/x"},
		{"too much together above", []budget.Budget{limited, full}, dims{"x": 2}, fault.CodeOutOfRange, "/dimensions/x"}, // rather than a breach
		{"too many dimensions", []budget.Budget{wide}, dims{"daa": 1, "x": 1}, fault.CodeValidationFailed, "/dimensions/x"},
		{"too many dimensions above", []budget.Budget{fresh(t, nil, nil), wide}, dims{"x": 0}, fault.CodeValidationFailed, "/dimensions/x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, v, err := budget.Apply(tt.chain, tt.report, at(2))
			refused(t, err, tt.code, tt.pointer)
			if got != nil || v != (budget.Verdict{}) {
				t.Errorf("%v %v", got, v)
			}
		})
	}
	if _, v, err := budget.Apply([]budget.Budget{full}, dims{"x": 0}, at(2)); err != nil || v.Outcome != budget.OK {
		t.Errorf("nothing more is not counted: %v %v", v, err)
	}
}
