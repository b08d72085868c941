package app_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Where an execution stands that a budget holds up.
const (
	atBudget        = "runnable unowned blocked_by_budget waiting_for_budget none pending_first_attempt rate_limited"
	atRetryBudget   = "runnable unowned blocked_by_budget waiting_for_budget none pending_retry_attempt rate_limited"
	atReplayBudget  = "runnable unowned blocked_by_budget waiting_for_budget none pending_replay_attempt rate_limited"
	atBudgetSuspend = "suspended unowned not_applicable waiting_for_budget none attempt_interrupted suspended"
)

// heldUp makes an execution that a budget of 10 tokens holds up, all of which another one has spent.
func (x *budgetTest) heldUp(more ...string) (budget uuid.UUID, e oapi.Execution, spender uuid.UUID) {
	x.t.Helper()
	budget = x.tokens(10, more...)
	spender = x.on("other").create("").ID
	x.uses(budget, `"tokens":10`, "ok", executionID(spender))
	e = x.limited("", budget)
	x.none("")
	return budget, x.stands(e.ID, atBudget), spender
}

// filtered lists the executions in a public state.
func (x *budgetTest) filtered(state string) []uuid.UUID {
	x.t.Helper()
	var ids []uuid.UUID
	for _, e := range answerAs[oapi.ExecutionList](x.Get("/v1/executions?limit=500&public_state=" + state).Want(http.StatusOK)).Items {
		ids = append(ids, e.ID)
	}
	return ids
}

// TestBudgets_Claims: what budgets hold up, how it is shown, and what lets it go on. reference: flows-streams-budgets.md 6.7, 10.7.
func TestBudgets_Claims(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsClaimsCases)
}

var budgetsClaimsCases = []budgetCase{
	{"what a budget holds up is passed by, and shown (test_block_and_unblock)", func(x *budgetTest) {
		id, e, _ := x.heldUp(`"reset_interval_ms":60000`)
		other := x.limited("", x.tokens(10))
		free := x.create("")
		for _, want := range []uuid.UUID{other.ID, free.ID} {
			if got := x.claim(lasting).Execution.ID; got != want {
				x.t.Errorf("%s was claimed, not %s", got, want)
			}
		}
		x.none("")
		if got := x.stands(e.ID, atBudget); got.BlockingDetail == "" {
			x.t.Error("nothing is told of what holds it up")
		}
		if diff := cmp.Diff([]uuid.UUID{e.ID}, x.filtered("rate_limited")); diff != "" {
			x.t.Errorf("rate_limited (-want +got):\n%s", diff)
		}
		if got := x.filtered("waiting"); len(got) != 1 { // the spender
			x.t.Errorf("waiting: %v", got)
		}
		counts := answerAs[oapi.ExecutionCounts](x.Get("/v1/executions/counts").Want(http.StatusOK))
		if diff := cmp.Diff(map[string]int64{"rate_limited": 1, "active": 2, "waiting": 1}, counts.Counts); diff != "" {
			x.t.Errorf("counts (-want +got):\n%s", diff)
		}
		_, gates := x.explain(e.ID, "")
		g := gates["admission"]
		evidence := fromDocument[map[string]any](x.t, string(g.Evidence))
		if g.Met || evidence["budget_id"] != id.String() || evidence["dimension"] != "tokens" || evidence["need"] != float64(1) || g.NextAt == nil || !g.NextAt.Equal(*x.read(id).NextResetAt) {
			x.t.Errorf("%+v %s", g, g.Evidence)
		}
	}},
	{"explain knows before any claim does", func(x *budgetTest) {
		id := x.tokens(10, `"reset_interval_ms":60000`)
		e := x.limited(estimate(11), id)
		ask := func() (oapi.Explanation, oapi.Gate) {
			got := answerAs[oapi.Explanation](x.Get(operatorPath(e.ID, "explain")).Want(http.StatusOK))
			at := slices.IndexFunc(got.Gates, func(g oapi.Gate) bool { return g.Gate == "admission" })
			return got, got.Gates[at]
		}
		got, gate := ask()
		if evidence := fromDocument[map[string]any](x.t, string(gate.Evidence)); got.Claimable || gate.Met || evidence["need"] != float64(11) || gate.NextAt == nil || !gate.NextAt.Equal(*x.read(id).NextResetAt) {
			x.t.Errorf("%+v", got)
		}
		x.done(id, "topup", dimensions(`"tokens":1`))
		if got, gate := ask(); !got.Claimable || !gate.Met {
			x.t.Errorf("%+v", got)
		}
		x.claim("")
	}},
	{"retries and replays", func(x *budgetTest) {
		id := x.tokens(10)
		e := x.limited(retryPolicy(3), id).ID
		c := x.claim(lasting)
		x.uses(id, `"tokens":10`, "ok", handleOf(c))
		x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.advance(retryDelay)
		x.none("")
		x.stands(e, atRetryBudget)
		x.done(id, "topup", dimensions(`"tokens":10`))
		x.stands(e, atRetry)
		c = x.claim(lasting)
		x.uses(id, `"tokens":10`, "ok", handleOf(c))
		x.report(c, "complete", "").Want(http.StatusOK)
		x.operated(e, "replay", "")
		x.none("")
		x.stands(e, atReplayBudget)
		x.done(id, "reset", "")
		x.stands(e, atReplay)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
	}},
	{"whatever makes room wakes a claim that waits", func(x *budgetTest) {
		wakes := map[string]func(x *budgetTest, id, spender uuid.UUID){
			"topup": func(x *budgetTest, id, _ uuid.UUID) { x.done(id, "topup", dimensions(`"tokens":1`)) },
			"a higher limit": func(x *budgetTest, id, _ uuid.UUID) {
				x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":11}}`).Want(http.StatusOK)
			},
			"no limit": func(x *budgetTest, id, _ uuid.UUID) {
				x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":null}}`).Want(http.StatusOK)
			},
			"a limit of 0": func(x *budgetTest, id, _ uuid.UUID) {
				x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":0}}`).Want(http.StatusOK)
			},
			"reset":     func(x *budgetTest, id, _ uuid.UUID) { x.done(id, "reset", "") },
			"due reset": func(x *budgetTest, _, _ uuid.UUID) { x.advance(time.Minute) },
			"release":   func(x *budgetTest, id, spender uuid.UUID) { x.done(id, "release", executionID(spender)) },
			"delete": func(x *budgetTest, id, _ uuid.UUID) {
				x.Do(http.MethodDelete, budgetPath(id), nil).Want(http.StatusNoContent)
			},
		}
		for name, wake := range wakes {
			x.t.Run(name, func(t *testing.T) {
				y := budgetsOn(t, x.server, "wake")
				id, e, spender := y.heldUp(`"reset_interval_ms":60000`)
				w := y.wait(lasting)
				y.settled()
				wake(y, id, spender)
				if got := w.got(); got.Execution.ID != e.ID {
					t.Errorf("%s was claimed, not %s", got.Execution.ID, e.ID)
				}
			})
		}
	}},
	{"a report that is refused holds up what comes after it (defect 45)", func(x *budgetTest) {
		spender := x.on("other").create("").ID
		for name, again := range map[string]func(id uuid.UUID){
			"topup":   func(id uuid.UUID) { x.done(id, "topup", dimensions(`"tokens":1`)) },
			"reset":   func(id uuid.UUID) { x.done(id, "reset", "") },
			"release": func(id uuid.UUID) { x.done(id, "release", executionID(spender)) },
		} {
			id := x.tokens(10)
			x.uses(id, `"tokens":5`, "ok", executionID(spender))
			x.uses(id, `"tokens":6`, "hard_breach tokens 5/10")
			e := x.limited("", id)
			x.none("")
			x.stands(e.ID, atBudget)
			again(id)
			if c := x.claim(lasting); c.Execution.ID != e.ID || x.read(id).Exhausted {
				x.t.Errorf("%s: %s was claimed", name, c.Execution.ID)
			}
		}
	}},
	{"what does not make room leaves it where it is", func(x *budgetTest) {
		id, e, _ := x.heldUp()
		x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":9},"soft_limits":{"tokens":1}}`).Want(http.StatusOK)
		x.done(id, "topup", dimensions(`"tokens":1`)) // 10 of 10
		x.none("")
		x.stands(e.ID, atBudget)
	}},
	{"the nearest and the farthest limit", func(x *budgetTest) {
		top := x.tokens(10)
		id := x.under(x.under(top, ""), `"hard_limits":{"tokens":5}`)
		e := x.limited("", id)
		x.uses(top, `"tokens":10`, "ok")
		x.none("")
		if got := x.stands(e.ID, atBudget); !cmp.Equal(got.BudgetIds, oapi.BudgetIDs{id}) {
			x.t.Errorf("%v", got.BudgetIds)
		}
		refused := x.Post(operatorPath(e.ID, "operator-claim"), nil).Problem(fault.CodeBudgetExhausted)
		if refused.Str("budget_id") != top.String() {
			x.t.Errorf("%s", refused.Body)
		}
		x.done(top, "reset", "")
		x.uses(id, `"tokens":5`, "ok")
		x.none("")
		x.stands(e.ID, atBudget)
		x.done(id, "reset", "")
		x.claim(lasting)
	}},
	{"grants and claims by hand are refused, and nothing changes", func(x *budgetTest) {
		id := x.tokens(10, `"on_hard_limit":"deny"`)
		reserved, lost := x.on("reserved"), x.on("lost")
		of := attached(id)
		granted := reserved.create(of)
		grant := reserved.reserved("")
		taken := lost.create(of)
		lost.claim(`"worker_id":"dead","lease_ttl_ms":1000`)
		x.advance(time.Second)
		takeover := lost.reservedLost(taken.ID, "")
		x.uses(id, `"tokens":10`, "ok")
		blocked := x.limited("", id)
		x.none("")
		for name, call := range map[string]func() *apitest.Response{
			"grant":              func() *apitest.Response { return x.use(grant, "claim", "") },
			"grant to take over": func() *apitest.Response { return x.use(takeover, "reclaim", "") },
			"by hand":            func() *apitest.Response { return x.Post(operatorPath(blocked.ID, "operator-claim"), nil) },
		} {
			if got := x.denied(fault.CodeBudgetExhausted, call); got.Str("budget_id") != id.String() || got.Str("dimension") != "tokens" {
				x.t.Errorf("%s: %s", name, got.Body)
			}
		}
		x.reserve("").Want(http.StatusNoContent)
		x.done(id, "topup", dimensions(`"tokens":10`))
		if c := x.usesGrant(grant, "claim"); c.Execution.ID != granted.ID {
			x.t.Errorf("%+v", c)
		}
		x.usesGrant(takeover, "reclaim")
		x.Post(operatorPath(blocked.ID, "operator-claim"), nil).Want(http.StatusOK)
	}},
	{"the budgets of a flow count for all of its members", func(x *budgetTest) {
		id, own := x.tokens(10), x.tokens(100)
		x.uses(id, `"tokens":10`, "ok")
		f := flowAs[oapi.Flow](x.Post("/v1/flows", `{"goal":"x","start":true,`+attached(id)+`,"graph":{"executions":[{"key":"a","lane":"work",`+estimate(3)+`}]}}`).Want(http.StatusCreated))
		flowAs[oapi.BuiltGraph](x.Post(flowPath(f.ID, "graph"), `{"executions":[{"key":"b","lane":"work",`+attached(own)+`}]}`).Want(http.StatusCreated))
		flowAs[oapi.FlowMember](x.Post(flowPath(f.ID, "members"), `{"execution":`+x.sent("")+`}`).Want(http.StatusCreated))
		enlisted := x.create("")
		x.Post(flowPath(f.ID, "members"), "{"+executionID(enlisted.ID)+"}").Want(http.StatusCreated)
		x.none("")
		if got := x.filtered("rate_limited"); len(got) != 4 {
			x.t.Errorf("%d of 4 are held up", len(got))
		}
		x.done(id, "topup", dimensions(`"tokens":10`))
		claims := x.claims(`"max":10,` + lasting)
		if len(claims) != 4 {
			x.t.Fatalf("%d of 4 were claimed", len(claims))
		}
		for _, c := range claims {
			if _, ok := c.BudgetRemaining[id.String()]; !ok {
				x.t.Errorf("%s is told of %v", c.Execution.ID, c.BudgetRemaining)
			}
		}
		x.reserves(id, "tokens 3")
	}},
}

// usesGrant uses a grant, which succeeds.
func (x *budgetTest) usesGrant(g oapi.Grant, op string) oapi.Claim {
	x.t.Helper()
	return x.executionTest.used(g, op, lasting)
}

// TestBudgets_Spent: what an exhausted budget does to those at work. reference: flows-streams-budgets.md 6.7.
func TestBudgets_Spent(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsSpentCases)
}

// directedCalls are what a worker says whose answers carry directives.
var directedCalls = map[string]func(x *budgetTest, id uuid.UUID, c oapi.Claim) oapi.Directives{
	"renew": func(x *budgetTest, _ uuid.UUID, c oapi.Claim) oapi.Directives {
		return answerAs[oapi.RenewedLease](x.report(c, "renew", "").Want(http.StatusOK)).Directives
	},
	"progress": func(x *budgetTest, _ uuid.UUID, c oapi.Claim) oapi.Directives {
		return answerAs[oapi.ProgressNoted](x.report(c, "progress", `"pct":1`).Want(http.StatusOK)).Directives
	},
	"usage": func(x *budgetTest, id uuid.UUID, c oapi.Claim) oapi.Directives {
		return x.uses(id, `"tokens":1`, "hard_breach tokens 10/10", handleOf(c)).Directives
	},
}

var budgetsSpentCases = []budgetCase{
	{"deny, suspend or cancel", func(x *budgetTest) {
		for policy, want := range map[string]struct{ at, directive string }{
			"deny": {atActive, "budget_low"}, "suspend": {atBudgetSuspend, "suspend"}, "cancel": {atCancelled, "cancel"},
		} {
			for name, call := range directedCalls {
				x.t.Run(policy+" "+name, func(t *testing.T) {
					y := budgetsOn(t, x.server, "policies")
					id := y.tokens(10, `"on_hard_limit":"`+policy+`"`)
					e := y.limited("", id)
					c := y.claim(lasting)
					y.uses(id, `"tokens":10`, "ok")
					y.stands(e.ID, atActive) // until its worker asks
					if got := call(y, id, c); len(got) == 0 || got[len(got)-1] != want.directive {
						t.Errorf("%v, want %s", got, want.directive)
					}
					y.stands(e.ID, want.at)
					if policy == "deny" {
						y.report(c, "complete", "").Want(http.StatusOK)
						return
					}
					y.denied(fault.CodeExecutionNotActive, func() *apitest.Response { return y.report(c, "complete", "") })
					y.done(id, "topup", dimensions(`"tokens":1`))
					if policy == "cancel" {
						y.stands(e.ID, atCancelled)
						return
					}
					again := y.claim(lasting)
					if again.Execution.ID != e.ID || again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID {
						t.Errorf("%+v", again)
					}
					y.report(again, "complete", "").Want(http.StatusOK)
				})
			}
		}
	}},
	{"whoever is done may say so", func(x *budgetTest) {
		for _, policy := range []string{"suspend", "cancel"} {
			for op, members := range map[string]string{"complete": "", "fail": `"reason":"boom","category":"permanent"`} {
				id := x.tokens(10, `"on_hard_limit":"`+policy+`"`)
				x.limited("", id)
				c := x.claim(lasting)
				x.uses(id, `"tokens":10`, "ok")
				x.report(c, op, members).Want(http.StatusOK)
			}
		}
	}},
	{"its own report is enough", func(x *budgetTest) {
		id := x.tokens(10, `"on_hard_limit":"suspend"`)
		e := x.limited(estimate(5), id)
		c := x.claim(lasting)
		if got := x.uses(id, `"tokens":10`, "ok", handleOf(c)).Directives; len(got) == 0 || got[len(got)-1] != "suspend" {
			x.t.Errorf("%v", got)
		}
		x.stands(e.ID, atBudgetSuspend)
		x.reserves(id, "")
	}},
	{"cancel is stronger than suspend, and a budget above counts", func(x *budgetTest) {
		top := x.tokens(10, `"on_hard_limit":"cancel"`)
		id := x.under(top, `"hard_limits":{"tokens":10},"on_hard_limit":"suspend"`)
		e := x.limited("", id)
		c := x.claim(lasting)
		x.uses(id, `"tokens":10`, "ok")
		x.report(c, "renew", "").Want(http.StatusOK)
		x.stands(e.ID, atCancelled)
	}},
	{"each thing that makes room resumes", func(x *budgetTest) {
		for name, resume := range map[string]func(id uuid.UUID){
			"topup": func(id uuid.UUID) { x.done(id, "topup", dimensions(`"tokens":1`)) },
			"reset": func(id uuid.UUID) { x.done(id, "reset", "") },
			"delete": func(id uuid.UUID) {
				x.Do(http.MethodDelete, budgetPath(id), nil).Want(http.StatusNoContent)
			},
			"patch": func(id uuid.UUID) {
				x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":null}}`).Want(http.StatusOK)
			},
		} {
			id := x.tokens(10, `"on_hard_limit":"suspend"`)
			e := x.limited("", id)
			c := x.claim(lasting)
			x.uses(id, `"tokens":10`, "ok")
			x.report(c, "renew", "").Want(http.StatusOK)
			x.stands(e.ID, atBudgetSuspend)
			w := x.wait(lasting)
			x.settled()
			resume(id)
			if got := w.got(); got.Execution.ID != e.ID {
				x.t.Errorf("%s: %s was claimed", name, got.Execution.ID)
			}
		}
	}},
	{"what was cancelled meanwhile stays so", func(x *budgetTest) {
		id := x.tokens(10, `"on_hard_limit":"suspend"`)
		e := x.limited("", id)
		c := x.claim(lasting)
		x.uses(id, `"tokens":10`, "ok")
		x.report(c, "renew", "").Want(http.StatusOK)
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		n := len(x.events(e.ID))
		x.done(id, "topup", dimensions(`"tokens":1`))
		x.server.Settle()
		x.stands(e.ID, atCancelled)
		x.toldSince(e.ID, n)
		x.none("")
	}},
	{"more than are resumed at once", func(x *budgetTest) {
		const many = 260
		id := x.tokens(10, `"on_hard_limit":"suspend"`)
		x.createMany(many, func(int) string { return attached(id) })
		var held []oapi.Claim
		for len(held) < many {
			held = append(held, x.claims(`"max":100,`+lasting)...)
		}
		x.uses(id, `"tokens":10`, "ok")
		for _, c := range held {
			x.report(c, "renew", "").Want(http.StatusOK)
		}
		if diff := cmp.Diff(map[string]int{"suspended": many}, x.counted()); diff != "" {
			x.t.Fatalf("(-want +got):\n%s", diff)
		}
		x.done(id, "topup", dimensions(`"tokens":1`))
		x.server.Settle()
		if diff := cmp.Diff(map[string]int{"waiting": many}, x.counted()); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
}

// TestBudgets_Estimates: what is reserved, and when it is given back.
func TestBudgets_Estimates(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsEstimatesCases)
}

var budgetsEstimatesCases = []budgetCase{
	{"reserved by the claim, settled by reports", func(x *budgetTest) {
		top := x.tokens(1000)
		id := x.under(top, `"hard_limits":{"tokens":500}`)
		e := x.limited(`"estimate":{"calls":2,"tokens":100}`, id)
		x.reserves(id, "")
		c := x.claim(lasting)
		for _, s := range []struct{ of, used, reserved, entry string }{
			{"", "", "calls 2, tokens 100", " | calls 2, tokens 100"},
			{`"tokens":30`, "tokens 30", "calls 2, tokens 70", "tokens 30 | calls 2, tokens 70"},
			{`"other":1`, "other 1, tokens 30", "calls 2, tokens 70", "other 1, tokens 30 | calls 2, tokens 70"},
			{`"tokens":90`, "other 1, tokens 120", "calls 2", "other 1, tokens 120 | calls 2"},
		} {
			if s.of != "" {
				x.uses(id, s.of, "ok", handleOf(c))
			}
			for _, at := range []uuid.UUID{id, top} {
				x.used(at, s.used)
				x.reserves(at, s.reserved)
				x.ledger(at, map[uuid.UUID]string{e.ID: s.entry})
			}
		}
		x.uses(id, `"calls":1`, "ok") // somebody else's
		x.reserves(id, "calls 2")
		x.report(c, "complete", "").Want(http.StatusOK)
		x.reserves(id, "")
		x.reserves(top, "")
		x.ledger(id, map[uuid.UUID]string{e.ID: "other 1, tokens 120"})
	}},
	{"given back, however the hold ends", func(x *budgetTest) {
		for name, end := range map[string]func(x *budgetTest, c oapi.Claim){
			"complete": func(x *budgetTest, c oapi.Claim) { x.report(c, "complete", "").Want(http.StatusOK) },
			"fail": func(x *budgetTest, c oapi.Claim) {
				x.report(c, "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK)
			},
			"fail and retry": func(x *budgetTest, c oapi.Claim) { x.report(c, "fail", `"reason":"x"`).Want(http.StatusOK) },
			"release":        func(x *budgetTest, c oapi.Claim) { x.report(c, "release", "").Want(http.StatusOK) },
			"delay":          func(x *budgetTest, c oapi.Claim) { x.report(c, "delay", `"delay_ms":3600000`).Want(http.StatusOK) },
			"suspend":        func(x *budgetTest, c oapi.Claim) { x.report(c, "suspend", waitForGo).Want(http.StatusOK) },
			"cancel":         func(x *budgetTest, c oapi.Claim) { x.report(c, "cancel", "").Want(http.StatusOK) },
			"operator-cancel": func(x *budgetTest, c oapi.Claim) {
				x.operated(c.Execution.ID, "operator-cancel", `"reason":"no"`)
			},
			"revoke": func(x *budgetTest, c oapi.Claim) {
				x.operator(c.Execution.ID, "revoke-lease", `"reason":"no"`).Want(http.StatusOK)
			},
			"lease expiry": func(x *budgetTest, _ oapi.Claim) { x.advance(time.Hour) },
		} {
			x.t.Run(name, func(t *testing.T) {
				y := budgetsOn(t, x.server, "given-back-"+uuid.NewString()[:8])
				id := y.tokens(150)
				y.limited(joined(estimate(100), retryPolicy(1)), id)
				c := y.claim(lasting)
				y.uses(id, `"tokens":10`, "ok", handleOf(c))
				y.reserves(id, "tokens 90")
				second := y.on("second")
				second.create(joined(estimate(100), attached(id)))
				second.none("")
				w := second.wait(lasting)
				second.settled()
				end(y, c)
				w.got() // what was given back is had by the next one
				y.reserves(id, "tokens 100")
				y.used(id, "tokens 10")
			})
		}
	}},
	{"two workers cannot go over the limit", func(x *budgetTest) {
		id := x.tokens(150)
		x.limited(estimate(100), id)
		second := x.limited(estimate(100), id)
		c := x.claim(lasting)
		x.none("")
		x.stands(second.ID, atBudget)
		x.uses(id, `"tokens":40`, "ok", handleOf(c))
		x.none("") // 60 are reserved still
		x.report(c, "complete", "").Want(http.StatusOK)
		if c := x.claim(lasting); c.Execution.ID != second.ID || c.BudgetRemaining[id.String()]["tokens"] != 110 {
			x.t.Errorf("%+v", c)
		}
	}},
	{"one that is larger than the limit waits, and holds no smaller one up", func(x *budgetTest) {
		id := x.tokens(100)
		large, small := x.limited(estimate(1000), id), x.limited(estimate(10), id)
		if c := x.claim(lasting); c.Execution.ID != small.ID {
			x.t.Errorf("%s was claimed", c.Execution.ID)
		}
		x.none("")
		x.stands(large.ID, atBudget)
		x.done(id, "topup", dimensions(`"tokens":909`)) // one too few
		x.none("")
		x.done(id, "topup", dimensions(`"tokens":1`))
		x.claim(lasting)
	}},
	{"what takes over reserves anew", func(x *budgetTest) {
		id := x.tokens(150)
		x.limited(estimate(100), id)
		x.claim(`"worker_id":"dead","lease_ttl_ms":1000`)
		x.advance(time.Second)
		x.reserves(id, "")
		x.claim(`"worker_id":"w2",` + lasting)
		x.reserves(id, "tokens 100")
	}},
	{"a reset leaves reservations alone", func(x *budgetTest) {
		id := x.tokens(150)
		e := x.limited(estimate(100), id)
		c := x.claim(lasting)
		x.uses(id, `"tokens":60`, "ok", handleOf(c))
		x.done(id, "reset", "")
		x.reserves(id, "tokens 40")
		x.ledger(id, map[uuid.UUID]string{e.ID: " | tokens 40"})
		x.report(c, "complete", "").Want(http.StatusOK)
		x.reserves(id, "")
	}},
	{"a deleted budget has nothing to give back", func(x *budgetTest) {
		id := x.tokens(150)
		e := x.limited(estimate(100), id)
		c := x.claim(lasting)
		x.Do(http.MethodDelete, budgetPath(id), nil).Want(http.StatusNoContent)
		x.report(c, "renew", "").Want(http.StatusOK)
		x.report(c, "complete", "").Want(http.StatusOK)
		if got := x.stands(e.ID, atCompleted); !cmp.Equal(got.BudgetIds, oapi.BudgetIDs{id}) {
			x.t.Errorf("%v", got.BudgetIds)
		}
	}},
	{"of a batch of claims only so many as there is room for", func(x *budgetTest) {
		id := x.tokens(350)
		for range 6 {
			x.limited(estimate(100), id)
		}
		if got := len(x.claims(`"max":6,` + lasting)); got != 3 {
			x.t.Errorf("%d were claimed", got)
		}
		x.none("")
		x.reserves(id, "tokens 300")
		if got := len(x.filtered("rate_limited")); got != 3 {
			x.t.Errorf("%d are held up", got)
		}
	}},
}
