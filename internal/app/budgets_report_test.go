package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestBudgets_Reports: what reports count, and what is told of them. reference: flows-streams-budgets.md 6.3, 6.6, 9/23 to 25, 10.7.
func TestBudgets_Reports(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsReportsCases)
}

var budgetsReportsCases = []budgetCase{
	{"limits that are met (10.7)", func(x *budgetTest) {
		type report struct{ of, want string }
		for _, c := range []struct {
			name, limits string
			reports      []report
			used         string
			soft, hard   int64
		}{
			{"under the limit", `"hard_limits":{"tokens":100}`, []report{{`"tokens":30`, "ok"}}, "tokens 30", 0, 0},
			{"soft", `"soft_limits":{"tokens":50}`, []report{{`"tokens":60`, "soft_breach tokens 60/50"}}, "tokens 60", 1, 0},
			{"hard", `"hard_limits":{"tokens":100}`, []report{{`"tokens":60`, "ok"}, {`"tokens":50`, "hard_breach tokens 60/100"}}, "tokens 60", 0, 1},
			{"one dimension is too much: none is counted", `"hard_limits":{"cost":10,"tokens":100}`, []report{{`"cost":11,"tokens":5`, "hard_breach cost 0/10"}}, "", 0, 1},
			{"just the soft limit", `"soft_limits":{"tokens":8}`, []report{{`"tokens":8`, "ok"}}, "tokens 8", 0, 0},
			{"just the hard limit", `"hard_limits":{"tokens":8}`, []report{{`"tokens":8`, "ok"}, {`"tokens":0`, "ok"}, {`"tokens":1`, "hard_breach tokens 8/8"}}, "tokens 8", 0, 1},
			{"soft, then hard", `"hard_limits":{"tokens":100},"soft_limits":{"tokens":80}`,
				[]report{{`"tokens":85`, "soft_breach tokens 85/80"}, {`"tokens":50`, "hard_breach tokens 85/100"}}, "tokens 85", 1, 1},
			{"5 of 10", `"hard_limits":{"tokens":10}`, []report{{`"tokens":5`, "ok"}, {`"tokens":6`, "hard_breach tokens 5/10"}}, "tokens 5", 0, 1},
			{"the first dimension by name", `"hard_limits":{"b":1,"a":1}`, []report{{`"b":2,"a":2`, "hard_breach a 0/1"}}, "", 0, 1},
			{"soft limits once a report", `"soft_limits":{"b":1,"a":1}`, []report{{`"b":2,"a":2`, "soft_breach a 2/1"}}, "a 2, b 2", 1, 0},
			{"what is not limited", "", []report{{`"tokens":9007199254740991`, "ok"}, {`"calls":0`, "ok"}}, "calls 0, tokens 9007199254740991", 0, 0},
			{"a limit of 0 is none", `"hard_limits":{"tokens":0},"soft_limits":{"tokens":0}`, []report{{`"tokens":5`, "ok"}}, "tokens 5", 0, 0},
		} {
			x.t.Run(c.name, func(t *testing.T) {
				y := budgetsOn(t, x.server, "limits")
				id := y.budget(c.limits)
				for _, r := range c.reports {
					y.uses(id, r.of, r.want)
				}
				b := y.used(id, c.used)
				if b.SoftBreachCount != c.soft || b.BreachCount != c.hard || (b.LastBreachAt != nil) != (c.hard > 0) || (b.LastBreachDimension != nil) != (c.hard > 0) {
					t.Errorf("%+v", b)
				}
			})
		}
	}},
	{"a hard breach changes nothing but what is told of it (9/23)", func(x *budgetTest) {
		id := x.tokens(10)
		e := x.create("").ID
		x.uses(id, `"tokens":5`, "ok", executionID(e))
		before := x.snap()
		x.advance(time.Second)
		x.uses(id, `"calls":1,"tokens":6`, "hard_breach tokens 5/10", executionID(e), dedupKey("k"))
		b := x.used(id, "tokens 5")
		if b.BreachCount != 1 || b.LastBreachDimension == nil || *b.LastBreachDimension != "tokens" || b.LastBreachAt == nil || !b.LastBreachAt.Time().Equal(x.server.Clock.Now().Truncate(time.Millisecond)) ||
			b.Revision != before.Budgets[0].Revision {
			x.t.Errorf("%+v", b)
		}
		x.ledger(id, map[uuid.UUID]string{e: "tokens 5"})
		told := x.toldOf(id, "created", "breached", "exhausted")
		if data := eventData(x.t, told[1]); data["current_usage"] != float64(5) || data["delta"] != float64(6) || data["limit"] != float64(10) || data["dimension"] != "tokens" {
			x.t.Errorf("%v", data)
		}
		x.uses(id, `"tokens":5`, "ok", dedupKey("k")) // the refused one has not taken the key
	}},
	{"the same key counts once (r7, dedup replay)", func(x *budgetTest) {
		id, other := x.tokens(100, `"soft_limits":{"tokens":50}`), x.tokens(100)
		e := x.limited("", id)
		c := x.claim(lasting)
		x.uses(id, `"tokens":30`, "ok", handleOf(c), dedupKey("a"))
		x.same(func() *apitest.Response {
			x.uses(id, `"tokens":30`, "already_applied", handleOf(c), dedupKey("a"))
			return x.verb(id, "usage", dimensions(`"tokens":9000`)+","+dedupKey("a")).Want(http.StatusOK)
		})
		x.uses(id, `"tokens":25`, "soft_breach tokens 55/50", handleOf(c), dedupKey("b"))
		x.uses(id, `"tokens":46`, "hard_breach tokens 55/100", handleOf(c), dedupKey("c"))
		x.uses(other, `"tokens":30`, "ok", dedupKey("a")) // a key is a budget's
		x.used(id, "tokens 55")
		x.used(other, "tokens 30")
		x.ledger(id, map[uuid.UUID]string{e.ID: "tokens 55"})
	}},
	{"a key is known for a day", func(x *budgetTest) {
		id := x.budget("")
		x.uses(id, `"tokens":1`, "ok", dedupKey("a"))
		x.advance(24*time.Hour - time.Second)
		x.uses(id, `"tokens":1`, "already_applied", dedupKey("a"))
		x.advance(time.Second)
		x.uses(id, `"tokens":1`, "ok", dedupKey("a"))
		x.used(id, "tokens 2")
	}},
	{"a key is known beyond a reset", func(x *budgetTest) {
		id := x.budget("")
		x.uses(id, `"tokens":1`, "ok", dedupKey("a"))
		x.done(id, "reset", "")
		x.uses(id, `"tokens":1`, "already_applied", dedupKey("a"))
		x.used(id, "tokens 0")
	}},
	{"too much to be counted", func(x *budgetTest) {
		parent := x.budget("")
		id := x.under(parent, `"hard_limits":{"tokens":9007199254740991}`)
		x.uses(parent, `"tokens":9007199254740990`, "ok")
		for _, of := range []string{`"tokens":2`, `"calls":1,"tokens":9007199254740991`} {
			got := x.denied(fault.CodeOutOfRange, func() *apitest.Response { return x.verb(id, "usage", dimensions(of)) })
			if f := got.Fields(); got.Status != http.StatusUnprocessableEntity || len(f) == 0 || f[0].Pointer != "/dimensions/tokens" {
				x.t.Errorf("%s", got.Body)
			}
		}
		x.uses(id, `"tokens":1`, "ok")
		got := x.denied(fault.CodeOutOfRange, func() *apitest.Response { return x.verb(id, "topup", dimensions(`"tokens":1`)) })
		if f := got.Fields(); len(f) == 0 || f[0].Pointer != "/dimensions/tokens" {
			x.t.Errorf("%s", got.Body)
		}
	}},
	{"on each budget above, or on none", func(x *budgetTest) {
		top := x.tokens(100)
		mid := x.under(top, `"soft_limits":{"tokens":60}`)
		id, sibling := x.under(mid, `"hard_limits":{"calls":3}`), x.under(mid, "")
		check := func(want ...string) {
			x.t.Helper()
			for i, at := range []uuid.UUID{id, mid, top, sibling} {
				x.used(at, want[i])
			}
		}
		x.uses(id, `"tokens":50`, "ok")
		check("tokens 50", "tokens 50", "tokens 50", "")
		r := x.uses(id, `"tokens":20`, "soft_breach tokens 70/60")
		if *r.BudgetID != mid {
			x.t.Errorf("the breach is one of %s", r.BudgetID)
		}
		r = x.uses(sibling, `"tokens":31`, "hard_breach tokens 70/100")
		if *r.BudgetID != top {
			x.t.Errorf("the breach is one of %s", r.BudgetID)
		}
		r = x.uses(id, `"calls":4,"tokens":31`, "hard_breach calls 0/3") // the nearest first
		if *r.BudgetID != id {
			x.t.Errorf("the breach is one of %s", r.BudgetID)
		}
		check("tokens 70", "tokens 70", "tokens 70", "")
		for at, want := range map[uuid.UUID][2]int64{id: {1, 0}, mid: {0, 1}, top: {1, 0}, sibling: {0, 0}} {
			if b := x.read(at); b.BreachCount != want[0] || b.SoftBreachCount != want[1] {
				x.t.Errorf("%d and %d breaches, want %v", b.BreachCount, b.SoftBreachCount, want)
			}
		}
		x.uses(sibling, `"tokens":30`, "soft_breach tokens 100/60")
		if b := x.used(top, "tokens 100"); !b.Exhausted || x.read(mid).Exhausted {
			x.t.Errorf("%+v", b)
		}
		x.toldOf(top, "created", "breached", "exhausted")
	}},
	{"spend and its ledger (record_spend)", func(x *budgetTest) {
		e := x.create("").ID
		spend := func(id uuid.UUID, n int, key, want string) {
			x.t.Helper()
			r := answerAs[oapi.UsageReport](x.verb(id, "spend", joined(dimensions(fmt.Sprintf(`"tokens":%d`, n)), executionID(e), dedupKey(key))).Want(http.StatusOK))
			if got := verdictOf(r); got != want {
				x.t.Errorf("%s, want %s", got, want)
			}
		}
		ok := x.tokens(100)
		spend(ok, 10, "a", "ok")
		x.ledger(ok, map[uuid.UUID]string{e: "tokens 10"})
		spend(ok, 10, "b", "ok")
		spend(ok, 10, "b", "already_applied")
		x.ledger(ok, map[uuid.UUID]string{e: "tokens 20"})
		soft := x.budget(`"soft_limits":{"tokens":50}`)
		spend(soft, 60, "a", "soft_breach tokens 60/50")
		x.ledger(soft, map[uuid.UUID]string{e: "tokens 60"})
		hard := x.tokens(100)
		spend(hard, 40, "a", "ok")
		spend(hard, 61, "b", "hard_breach tokens 40/100")
		x.ledger(hard, map[uuid.UUID]string{e: "tokens 40"})
	}},
	{"release (release_budget; 9/25)", func(x *budgetTest) {
		id := x.tokens(100)
		a, b, nobody := x.create("").ID, x.create("").ID, x.create("").ID
		x.uses(id, `"tokens":9`, "ok")
		x.uses(id, `"tokens":2`, "ok", executionID(a))
		x.uses(id, `"tokens":3`, "ok", executionID(a))
		x.uses(id, `"tokens":8`, "ok", executionID(b))
		x.ledger(id, map[uuid.UUID]string{a: "tokens 5", b: "tokens 8"})
		x.same(func() *apitest.Response { return x.verb(id, "release", executionID(nobody)).Want(http.StatusOK) })
		x.same(func() *apitest.Response { return x.verb(id, "release", executionID(uuid.New())).Want(http.StatusOK) })
		x.done(id, "release", executionID(a))
		x.used(id, "tokens 17")
		x.ledger(id, map[uuid.UUID]string{b: "tokens 8"})
		x.same(func() *apitest.Response { return x.verb(id, "release", executionID(a)).Want(http.StatusOK) })
		x.done(id, "release", executionID(b))
		x.used(id, "tokens 9")
		x.ledger(id, map[uuid.UUID]string{})
	}},
	{"release from the budgets above, each in the period of the report", func(x *budgetTest) {
		top := x.tokens(100)
		mid := x.under(top, "")
		id, sibling := x.under(mid, ""), x.under(mid, "")
		e := x.create("").ID
		x.uses(id, `"tokens":5`, "ok", executionID(e))
		x.uses(sibling, `"tokens":7`, "ok", executionID(e))
		x.ledger(top, map[uuid.UUID]string{e: "tokens 12"})
		x.done(mid, "reset", "")
		x.ledger(mid, map[uuid.UUID]string{})
		x.uses(id, `"tokens":2`, "ok", executionID(e))
		x.uses(mid, `"tokens":1`, "ok")
		x.done(id, "release", executionID(e))
		x.used(id, "tokens 0")
		x.used(mid, "tokens 1")
		x.used(top, "tokens 8")
		x.used(sibling, "tokens 7")
		x.ledger(top, map[uuid.UUID]string{e: "tokens 7"})
		x.done(sibling, "release", executionID(e))
		x.used(sibling, "tokens 0")
		x.used(mid, "tokens 1") // it was counted there before the reset
		x.used(top, "tokens 1")
	}},
	{"release after a reset gives nothing back", func(x *budgetTest) {
		id, e := x.tokens(100), x.create("").ID
		x.uses(id, `"tokens":5`, "ok", executionID(e))
		x.done(id, "reset", "")
		x.uses(id, `"tokens":7`, "ok")
		x.done(id, "release", executionID(e))
		x.used(id, "tokens 7")
	}},
	{"a worker that is none any more", func(x *budgetTest) {
		id := x.tokens(100)
		x.limited("", id)
		c := x.claim(lasting)
		x.report(c, "complete", "").Want(http.StatusOK)
		x.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return x.verb(id, "usage", joined(dimensions(`"tokens":1`), handleOf(c))) })
		x.limited("", id)
		c = x.claim(`"lease_ttl_ms":1000`)
		x.advance(time.Second)
		x.denied(fault.CodeLeaseExpired, func() *apitest.Response { return x.verb(id, "usage", joined(dimensions(`"tokens":1`), handleOf(c))) })
		x.claim(`"worker_id":"w2",` + lasting)
		x.denied(fault.CodeStaleLease, func() *apitest.Response { return x.verb(id, "usage", joined(dimensions(`"tokens":1`), handleOf(c))) })
		x.used(id, "")
	}},
	{"what is told to workers", func(x *budgetTest) {
		id := x.tokens(100, `"soft_limits":{"tokens":50}`)
		x.limited(estimate(10), id)
		c := x.claim(lasting)
		if got := c.BudgetRemaining[id.String()]["tokens"]; got != 100 {
			x.t.Errorf("%d remain at the claim", got)
		}
		low := func(d oapi.Directives) bool { return len(d) == 1 && d[0] == "budget_low" }
		for _, s := range []struct {
			n, remain int64
			want      string
			low       bool
		}{{40, 60, "ok", false}, {10, 50, "ok", false}, {1, 49, "soft_breach tokens 51/50", true}, {50, 49, "hard_breach tokens 51/100", true}} {
			r := x.uses(id, fmt.Sprintf(`"tokens":%d`, s.n), s.want, handleOf(c))
			renewed := answerAs[oapi.RenewedLease](x.report(c, "renew", "").Want(http.StatusOK))
			noted := answerAs[oapi.ProgressNoted](x.report(c, "progress", `"pct":1`).Want(http.StatusOK))
			for i, got := range []oapi.Remaining{r.BudgetRemaining, renewed.BudgetRemaining, noted.BudgetRemaining} {
				if got[id.String()]["tokens"] != s.remain {
					x.t.Errorf("after %d, %d: %v remain, want %d", s.n, i, got, s.remain)
				}
			}
			for i, got := range []oapi.Directives{r.Directives, renewed.Directives, noted.Directives} {
				if low(got) != s.low || !s.low && len(got) > 0 {
					x.t.Errorf("after %d, %d: %v", s.n, i, got)
				}
			}
		}
		if answer := x.verb(id, "usage", dimensions(`"tokens":0`)).Want(http.StatusOK); answer.JSON()["budget_remaining"] != nil {
			x.t.Errorf("nobody is told %s", answer.Body)
		}
	}},
	{"RateLimit headers", func(x *budgetTest) {
		id := x.budget(`"hard_limits":{"calls":0,"tokens":100},"reset_interval_ms":60000`)
		x.advance(15 * time.Second)
		answer := x.verb(id, "usage", dimensions(`"tokens":40`))
		if p, l := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit"); p != `"tokens";q=100;w=60` || l != `"tokens";r=60;t=45` {
			x.t.Errorf("%s; %s", p, l)
		}
		never := x.tokens(10)
		answer = x.verb(never, "usage", dimensions(`"tokens":11`))
		if p, l := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit"); p != `"tokens";q=10` || l != `"tokens";r=0` { // somebody has spent more than there was
			x.t.Errorf("%s; %s", p, l)
		}
		free := x.budget("")
		answer = x.verb(free, "usage", dimensions(`"tokens":11`))
		if p, l := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit"); p != "" || l != "" {
			x.t.Errorf("%s; %s", p, l)
		}
	}},
}
