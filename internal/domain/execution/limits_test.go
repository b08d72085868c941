package execution_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

var (
	capped = execution.QuotaRef{ID: id(50), KeyTag: "org.tenant", Cap: true}
	rated  = execution.QuotaRef{ID: id(51), Rate: true}
	both   = execution.QuotaRef{ID: id(52), Rate: true, Cap: true}
)

// limited is an execution of tenant a with limits.
func limited(tb testing.TB, l execution.Limits) execution.Execution {
	tb.Helper()
	return created(tb, func(in *execution.Create) { in.Limits, in.Tags = &l, map[string]string{"org.tenant": "a"} })
}

func TestTerms(t *testing.T) {
	l := execution.Limits{Budgets: []uuid.UUID{id(40), id(41)}, Estimate: map[string]int64{"tokens": 100, "usd": 1, "none": 0, "exact": 64}, Quotas: []execution.QuotaRef{capped, rated}}
	fresh := limited(t, l)
	held := must(t)(claim(fresh, 1, after(1)))
	retry := passed(t, must(t)(fail(held, "transient", after(2))), after(302))
	given, _, err := held.Release(held.Fence(), after(2))
	if err != nil {
		t.Fatal(err)
	}
	estimate := map[string]int64{"tokens": 128, "usd": 1, "none": 0, "exact": 64}
	for _, tt := range []struct {
		name string
		e    execution.Execution
		lane []execution.QuotaRef
		held []uuid.UUID
		want execution.Terms
	}{
		{"nothing", created(t), nil, nil, execution.Terms{}},
		{"a first attempt", fresh, nil, nil, execution.Terms{Budgets: l.Budgets, Estimate: estimate,
			Quotas: []execution.QuotaTerm{{ID: capped.ID, Key: "a", Slot: true}, {ID: rated.ID, Start: true}}}},
		{"an estimate without a budget", limited(t, execution.Limits{Estimate: l.Estimate}), nil, nil, execution.Terms{}},
		{"another attempt keeps its slot", retry, nil, []uuid.UUID{capped.ID}, execution.Terms{Budgets: l.Budgets, Estimate: estimate, Quotas: []execution.QuotaTerm{{ID: rated.ID, Start: true}}}},
		{"the same attempt is no start", given.Execution, nil, []uuid.UUID{capped.ID}, execution.Terms{Budgets: l.Budgets, Estimate: estimate}},
		{"what was lost is", passed(t, held, after(61)), nil, []uuid.UUID{capped.ID}, execution.Terms{Budgets: l.Budgets, Estimate: estimate, Quotas: []execution.QuotaTerm{{ID: rated.ID, Start: true}}}},
		{"the quotas of the lane, each once", limited(t, execution.Limits{Quotas: []execution.QuotaRef{rated}}), []execution.QuotaRef{rated, both}, nil, execution.Terms{
			Quotas: []execution.QuotaTerm{{ID: rated.ID, Start: true}, {ID: both.ID, Slot: true, Start: true}}, Lane: rated.ID.String() + "," + both.ID.String()}},
		{"without the tag", created(t), []execution.QuotaRef{capped}, nil, execution.Terms{Quotas: []execution.QuotaTerm{{ID: capped.ID, Slot: true}}, Lane: capped.ID.String()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.e.Terms(tt.lane, tt.held)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			again, err := execution.ParseTerms(got.String())
			if diff := cmp.Diff(got, again); diff != "" || err != nil {
				t.Errorf("%v; as it is written -want +got\n%s", err, diff)
			}
			if none := got.String() == ""; none != got.None() {
				t.Errorf("String() is %q, None() is %t", got.String(), got.None())
			}
		})
	}
	if _, err := execution.ParseTerms("{"); err == nil {
		t.Error("terms that cannot be read are read")
	}
}

// TestTerms_Property: estimates that are alike stand together, and one is never rounded down or to its double.
func TestTerms_Property(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(0, 1<<53-1).Draw(rt, "estimate")
		e := limited(t, execution.Limits{Budgets: []uuid.UUID{id(40)}, Estimate: map[string]int64{"d": n}})
		terms := e.Terms(nil, nil)
		rounded := terms.Estimate["d"]
		if rounded < n || n > 0 && rounded >= 2*n || rounded&(rounded-1) != 0 {
			rt.Fatalf("%d is rounded to %d", n, rounded)
		}
	})
}

func TestLimits_Under(t *testing.T) {
	own := &execution.Limits{BudgetIDs: []uuid.UUID{id(41)}, Budgets: []uuid.UUID{id(41)}, Quotas: []execution.QuotaRef{rated}, Estimate: map[string]int64{"d": 1}}
	flow := &execution.Limits{BudgetIDs: []uuid.UUID{id(40)}, QuotaIDs: []uuid.UUID{rated.ID}, Budgets: []uuid.UUID{id(40), id(41)}, Quotas: []execution.QuotaRef{capped, rated}}
	before := fmt.Sprint(own, flow)
	got := own.Under(flow)
	want := &execution.Limits{BudgetIDs: own.BudgetIDs, Estimate: own.Estimate, Budgets: []uuid.UUID{id(40), id(41)}, Quotas: []execution.QuotaRef{capped, rated}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if fmt.Sprint(own, flow) != before {
		t.Error("what it was made of has changed")
	}
	var none *execution.Limits
	if none.Under(nil) != nil || own.Under(nil) != own || !none.None() || none.Under(flow).None() {
		t.Error("none is not none")
	}
	if got := none.Expecting(own.Estimate); !slices.Equal(got.Budgets, nil) || got.Estimate["d"] != 1 {
		t.Errorf("an estimate alone: %+v", got)
	}
}

// TestHold_Under: a limit shows on what waits for a claim, and on nothing else.
func TestHold_Under(t *testing.T) {
	h := &execution.Hold{By: execution.HeldByBudget, ID: id(40), Key: "tokens", Detail: "Nothing is left.", Until: after(100)}
	q := &execution.Hold{By: execution.HeldByQuota, ID: id(50), Detail: "Enough are at work.", Until: after(100)}
	for _, e := range []execution.Execution{created(t), retryDue(t), released(t)} {
		for _, tt := range []struct {
			h           *execution.Hold
			eligibility execution.Eligibility
			blocking    execution.Blocking
		}{{h, execution.BlockedByBudget, execution.WaitingForBudget}, {q, execution.BlockedByQuota, execution.WaitingForQuota}} {
			got := tt.h.Under(e)
			if got.Public() != execution.PublicRateLimited || got.Eligibility != tt.eligibility || got.Blocking != tt.blocking || got.BlockingDetail != tt.h.Detail || !got.Legal() {
				t.Errorf("%s is shown as %s %+v %q", e.Public(), got.Public(), got.Vector, got.BlockingDetail)
			}
		}
	}
	for _, e := range []execution.Execution{active(t), lapsed(t), delayed(t), completed(t)} {
		if diff := cmp.Diff(e, h.Under(e)); diff != "" {
			t.Errorf("%s is shown otherwise: %s", e.Public(), diff)
		}
	}
	if !h.ReopenAt().IsZero() || !q.ReopenAt().Equal(after(100)) {
		t.Error("a budget tells its reset itself; a quota's window is over by itself")
	}
	for _, hold := range []*execution.Hold{h, q} {
		x := new(created(t)).Explain(execution.Situation{Lane: execution.Lane{Name: "ci"}, Hold: hold}, execution.Asker{}, after(1))
		checkGates(t, x)
		i := slices.IndexFunc(x.Gates, func(g execution.Gate) bool { return !g.Met })
		if x.Claimable || i < 0 || x.Gates[i].Name != execution.GateAdmission || !x.Gates[i].NextAt.Equal(after(100)) {
			t.Errorf("explained as %+v", x)
		}
	}
}

// TestObey: what an exhausted budget makes of running work, and how that goes on.
func TestObey(t *testing.T) {
	e := active(t)
	paused := must(t)(e.Obey(execution.Spent{BudgetID: id(40)}, id(90), after(20)))
	if paused.Public() != execution.PublicSuspended || paused.Blocking != execution.WaitingForBudget || paused.Suspension.Reason != execution.SuspendByBudget || !paused.Legal() {
		t.Fatalf("suspended as %+v %+v", paused.Vector, paused.Suspension)
	}
	c, ok := paused.Refill(id(90), after(30))
	if !ok || !c.Execution.Claimable() || c.Execution.Suspension.Open() {
		t.Fatalf("goes on as %+v", c.Execution.Vector)
	}
	if got := events(t, c); len(got) != 1 {
		t.Errorf("told: %v", got)
	}
	next, kind, err := c.Execution.Claim(claimant(2), after(31))
	if err != nil || kind != execution.ClaimResumed || next.Execution.AttemptIndex != e.AttemptIndex {
		t.Errorf("claimed as %s, attempt %d: %v", kind, next.Execution.AttemptIndex, err)
	}
	if _, ok := paused.Refill(id(91), after(30)); ok {
		t.Error("it goes on because of another suspension")
	}
	ended := must(t)(e.Obey(execution.Spent{BudgetID: id(40), Cancel: true}, id(90), after(20)))
	if ended.Public() != execution.PublicCancelled || ended.Cancellation.Reason != "budget_exhausted" || ended.Lease.Epoch <= e.Lease.Epoch {
		t.Errorf("cancelled as %+v %+v", ended.Vector, ended.Cancellation)
	}
	for _, other := range []execution.Execution{created(t), e, completed(t)} {
		if _, ok := other.Refill(id(90), after(30)); ok {
			t.Errorf("what is %s goes on", other.Public())
		}
	}
}

func TestLane_Limit(t *testing.T) {
	l := execution.Lane{Namespace: "default", Name: "ci", State: execution.LaneActive, Revision: 3}
	c := l.Limit([]execution.QuotaRef{capped})
	if c.Lane.Revision != 4 || len(c.Events) != 1 || !slices.Equal(c.Lane.Quotas, []execution.QuotaRef{capped}) {
		t.Errorf("limited: %+v", c)
	}
	if again := c.Lane.Limit([]execution.QuotaRef{capped}); again.Lane.Revision != 4 || len(again.Events) != 0 {
		t.Errorf("the same again: %+v", again)
	}
}
