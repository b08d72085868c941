package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// newBudget makes a budget and returns its id.
func (x *executionTest) newBudget(members string) string {
	x.t.Helper()
	return x.Post("/v1/budgets", "{"+members+"}").Want(http.StatusCreated).Str("id")
}

// newQuota makes a quota and returns its id.
func (x *executionTest) newQuota(members string) string {
	x.t.Helper()
	return x.Post("/v1/quotas", "{"+members+"}").Want(http.StatusCreated).Str("id")
}

// headers checks what an answer says of limits.
func (x *executionTest) headers(answer *apitest.Response, policy, left string) {
	x.t.Helper()
	for name, want := range map[string]string{"RateLimit-Policy": policy, "RateLimit": left} {
		if got := answer.Header.Get(name); got != want {
			x.t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestBudgets_Wire is how budgets look over HTTP. http.md "Budgets, quotas", "Budget", "RateLimit".
func TestBudgets_Wire(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, budgetsWireCases)
}

var budgetsWireCases = []executionCase{
	{"one with everything that there is to say", func(x *executionTest) {
		parent := x.newBudget("")
		answer := x.Post("/v1/budgets", `{"scope_type":"team","scope_id":"a","parent_id":"`+parent+`","hard_limits":{"cents":0,"tokens":9007199254740991},"soft_limits":{"tokens":8},
				"on_hard_limit":"cancel","reset_interval_ms":60000}`).Want(http.StatusCreated)
		got := answerAs[oapi.Budget](answer)
		want := oapi.Budget{
			ID: got.ID, Namespace: "default", ScopeType: "team", ScopeID: "a", ParentID: new(uuid.MustParse(parent)), HardLimits: oapi.CountedAmounts{"cents": 0, "tokens": 1<<53 - 1},
			SoftLimits: oapi.CountedAmounts{"tokens": 8}, Usage: oapi.CountedAmounts{}, Reserved: oapi.CountedAmounts{}, OnHardLimit: "cancel", ResetIntervalMs: new(int64(60000)),
			NextResetAt: new(wire.Time(got.CreatedAt.Time().Add(time.Minute))), Revision: got.Revision, CreatedAt: got.CreatedAt, UpdatedAt: got.CreatedAt,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if path := answer.Header.Get("Location"); path != "/v1/budgets/"+got.ID.String() || x.Get(path).Want(http.StatusOK).ETag() != answer.ETag() {
			x.t.Errorf("Location %s, ETag %s", path, answer.ETag())
		}
	}},
	{"the same id again changes nothing", func(x *executionTest) {
		id := uuid.NewString()
		first := x.Post("/v1/budgets", `{"id":"`+id+`","hard_limits":{"a":1}}`).Want(http.StatusCreated)
		again := x.Post("/v1/budgets", `{"id":"`+id+`","hard_limits":{"a":2}}`).Want(http.StatusOK)
		if again.Header.Get("Idempotent-Replay") != "true" || string(again.Body) != string(first.Body) {
			x.t.Errorf("%v\n%s\n%s", again.Header, first.Body, again.Body)
		}
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.in("other").Post("/v1/budgets", `{"id":"`+id+`"}`) })
	}},
	{"changed member by member", func(x *executionTest) {
		path := "/v1/budgets/" + x.newBudget(`"scope_type":"a","hard_limits":{"a":1,"b":2},"soft_limits":{"a":1},"reset_interval_ms":60000`)
		etag := x.Get(path).Want(http.StatusOK).ETag()
		got := answerAs[oapi.Budget](x.Do(http.MethodPatch, path, `{"scope_type":"","hard_limits":{"b":null,"c":3},"on_hard_limit":"suspend","reset_interval_ms":null,
				"schedule":{"cron":"@daily","time_zone":"Europe/Berlin"}}`, "If-Match: "+etag).Want(http.StatusOK))
		if got.ScopeType != "" || !cmp.Equal(got.HardLimits, oapi.CountedAmounts{"a": 1, "c": 3}) || !cmp.Equal(got.SoftLimits, oapi.CountedAmounts{"a": 1}) || got.OnHardLimit != "suspend" ||
			got.ResetIntervalMs != nil || got.Schedule == nil || *got.Schedule != (oapi.BudgetSchedule{Cron: "@daily", TimeZone: "Europe/Berlin"}) || got.NextResetAt == nil {
			x.t.Errorf("%+v", got)
		}
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.Do(http.MethodPatch, path, `{"scope_id":"x"}`, "If-Match: "+etag) })
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.Do(http.MethodDelete, path, nil, "If-Match: "+etag) })
		if got := answerAs[oapi.Budget](x.Do(http.MethodPatch, path, `{"schedule":null}`).Want(http.StatusOK)); got.Schedule != nil || got.NextResetAt != nil {
			x.t.Errorf("without a schedule: %+v", got)
		}
	}},
	{"the parent of others stays", func(x *executionTest) {
		parent := x.newBudget("")
		child := x.newBudget(`"parent_id":"` + parent + `"`)
		refused := x.refused(fault.CodeBudgetInUse, func() *apitest.Response { return x.Do(http.MethodDelete, "/v1/budgets/"+parent, nil) })
		if refused.Int("children") != 1 {
			x.t.Errorf("%s", refused.Body)
		}
		x.Do(http.MethodDelete, "/v1/budgets/"+child, nil).Want(http.StatusNoContent)
		x.Do(http.MethodDelete, "/v1/budgets/"+parent, nil).Want(http.StatusNoContent)
		x.Get("/v1/budgets/" + parent).Problem(fault.CodeNotFound)
	}},
	{"lists", func(x *executionTest) {
		x = x.in("lists")
		parent := x.newBudget(`"scope_type":"team","scope_id":"a"`)
		child := x.newBudget(`"parent_id":"` + parent + `","scope_type":"team","hard_limits":{"a":1}`)
		x.Post("/v1/budgets/"+child+"/usage", `{"dimensions":{"a":1}}`).Want(http.StatusOK)
		for query, want := range map[string][]string{
			"": {child, parent}, "scope_type=team": {child, parent}, "scope_id=": {child}, "scope_type=team&scope_id=a": {parent}, "parent_id=" + parent: {child},
			"exhausted=true": {child}, "exhausted=false": {parent}, "limit=1": {child}, "scope_type=none": {},
		} {
			answer := x.Get("/v1/budgets?" + query).Want(http.StatusOK)
			ids := []string{}
			for _, b := range answerAs[oapi.BudgetList](answer).Items {
				ids = append(ids, b.ID.String())
			}
			if diff := cmp.Diff(want, ids); diff != "" || (answer.Get("next_cursor") != nil) != (query == "limit=1") {
				x.t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
		next := x.Get("/v1/budgets?limit=1").Want(http.StatusOK).Str("next_cursor")
		if got := x.Get("/v1/budgets?limit=1&cursor=" + next).Want(http.StatusOK); got.Str("items.0.id") != parent || got.Get("next_cursor") != nil {
			x.t.Errorf("the second page is %s", got.Body)
		}
	}},
	{"reports by nobody, with what is left in the headers", func(x *executionTest) {
		parent := x.newBudget(`"hard_limits":{"tokens":100}`)
		path := "/v1/budgets/" + x.newBudget(`"parent_id":"`+parent+`","hard_limits":{"tokens":1000,"cents":50},"soft_limits":{"tokens":50},"reset_interval_ms":86400000`)
		report := func(body string) *apitest.Response { return x.Post(path+"/usage", body).Want(http.StatusOK) }
		const policy = `"cents";q=50;w=86400, "tokens";q=1000;w=86400`

		answer := report(`{"dimensions":{"tokens":40,"seconds":3},"dedup_key":"k"}`)
		if got := string(answer.Body); strings.TrimSpace(got) != `{"directives":[],"outcome":"ok"}` {
			x.t.Errorf("ok: %s", got)
		}
		x.headers(answer, policy, `"cents";r=50;t=86400, "tokens";r=960;t=86400`)
		if got := strings.TrimSpace(string(report(`{"dimensions":{"tokens":40},"dedup_key":"k"}`).Body)); got != `{"directives":[],"outcome":"already_applied"}` {
			x.t.Errorf("again: %s", got)
		}
		soft := report(`{"dimensions":{"tokens":20}}`)
		if soft.Str("outcome") != "soft_breach" || "/v1/budgets/"+soft.Str("budget_id") != path || soft.Str("dimension") != "tokens" || soft.Int("current_usage") != 60 || soft.Int("limit") != 50 {
			x.t.Errorf("%s", soft.Body)
		}
		hard := report(`{"dimensions":{"cents":1,"tokens":41}}`)
		if hard.Str("outcome") != "hard_breach" || hard.Str("budget_id") != parent || hard.Str("dimension") != "tokens" || hard.Int("current_usage") != 60 || hard.Int("limit") != 100 {
			x.t.Errorf("%s", hard.Body)
		}
		x.headers(hard, policy, `"cents";r=50;t=86400, "tokens";r=940;t=86400`)
		b := answerAs[oapi.Budget](x.Get(path).Want(http.StatusOK))
		if diff := cmp.Diff(oapi.CountedAmounts{"seconds": 3, "tokens": 60}, b.Usage); diff != "" || b.SoftBreachCount != 1 || b.BreachCount != 0 || b.LastBreachAt != nil {
			x.t.Errorf("%s%+v", diff, b)
		}
		if p := answerAs[oapi.Budget](x.Get("/v1/budgets/" + parent).Want(http.StatusOK)); p.BreachCount != 1 || p.LastBreachDimension == nil || *p.LastBreachDimension != "tokens" || p.LastBreachAt == nil {
			x.t.Errorf("%+v", p)
		}
		reset := answerAs[oapi.Budget](x.Post(path+"/reset", nil).Want(http.StatusOK))
		if !cmp.Equal(reset.Usage, oapi.CountedAmounts{"seconds": 0, "tokens": 0}) || reset.LastResetAt == nil {
			x.t.Errorf("%+v", reset)
		}
		if got := answerAs[oapi.Budget](x.Post(path+"/topup", `{"dimensions":{"cents":7}}`).Want(http.StatusOK)); got.HardLimits["cents"] != 57 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"a worker and its execution", func(x *executionTest) {
		id := x.newBudget(`"hard_limits":{"tokens":1000},"soft_limits":{"tokens":200}`)
		path, free := "/v1/budgets/"+id, x.newBudget(`"soft_limits":{"tokens":9000}`)
		e := x.create(`"budget_ids":["` + id + `","` + free + `"],"estimate":{"tokens":100}`)
		if !cmp.Equal(e.BudgetIds, oapi.BudgetIDs{uuid.MustParse(id), uuid.MustParse(free)}) || !cmp.Equal(e.Estimate, oapi.CountedAmounts{"tokens": 100}) || len(e.QuotaPolicyIds) != 0 {
			x.t.Errorf("%+v", e)
		}
		answer := x.ask("").Want(http.StatusOK)
		c := answerAs[oapi.Claims](answer).Claims[0]
		if diff := cmp.Diff(oapi.Remaining{id: {"tokens": 1000}, free: {}}, c.BudgetRemaining); diff != "" {
			x.t.Errorf("claimed (-want +got):\n%s", diff)
		}
		said := x.report(c, "progress", `"pct":1`).Want(http.StatusOK)
		if got := said.Int("budget_remaining." + id + ".tokens"); got != 1000 || said.Len("directives") != 0 {
			x.t.Errorf("progress: %s", said.Body)
		}
		if b := answerAs[oapi.Budget](x.Get(path).Want(http.StatusOK)); b.Reserved["tokens"] != 100 {
			x.t.Errorf("reserved: %+v", b)
		}
		used := x.Post(path+"/usage", `{"dimensions":{"tokens":40},"handle":"`+c.Handle+`"}`).Want(http.StatusOK)
		if used.Str("outcome") != "ok" || used.Int("budget_remaining."+id+".tokens") != 960 {
			x.t.Errorf("used: %s", used.Body)
		}
		x.headers(used, `"tokens";q=1000`, `"tokens";r=900`) // 60 are reserved still
		fence := `"fence":{"lease_id":"` + c.Fence.LeaseID.String() + `","lease_epoch":1,"attempt_id":"` + c.Fence.AttemptID.String() + `"},"execution_id":"` + e.ID.String() + `"`
		used = x.Post(path+"/usage", `{"dimensions":{"tokens":200},`+fence+`}`).Want(http.StatusOK)
		if used.Str("outcome") != "soft_breach" || used.Len("directives") != 1 || used.Str("directives.0") != "budget_low" {
			x.t.Errorf("used: %s", used.Body)
		}
		if renewed := x.report(c, "renew", "").Want(http.StatusOK); renewed.Int("budget_remaining."+id+".tokens") != 760 || renewed.Str("directives.0") != "budget_low" || renewed.Get("lease_expires_at") == nil {
			x.t.Errorf("renewed: %s", renewed.Body)
		}
		x.Post(path+"/spend", `{"dimensions":{"cents":1},"execution_id":"`+e.ID.String()+`"}`).Want(http.StatusOK)
		ledger := answerAs[oapi.BudgetLedger](x.Get(path + "/ledger").Want(http.StatusOK))
		if len(ledger.Items) != 1 || ledger.Items[0].ExecutionID != e.ID || !cmp.Equal(ledger.Items[0].Spent, oapi.CountedAmounts{"cents": 1, "tokens": 240}) {
			x.t.Errorf("ledger: %+v", ledger)
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		released := answerAs[oapi.Budget](x.Post(path+"/release", `{"execution_id":"`+e.ID.String()+`"}`).Want(http.StatusOK))
		if !cmp.Equal(released.Usage, oapi.CountedAmounts{"cents": 0, "tokens": 0}) || len(released.Reserved) != 0 {
			x.t.Errorf("released: %+v", released)
		}
		x.Post(path+"/usage", `{"dimensions":{"tokens":1},"handle":"`+c.Handle+`"}`).Problem(fault.CodeExecutionNotActive)
	}},
	{"what has no budget has nothing left to tell", func(x *executionTest) {
		x.create("")
		answer := x.ask("").Want(http.StatusOK)
		if strings.Contains(string(answer.Body), "budget_remaining") {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"held up, and told why", func(x *executionTest) {
		id := x.newBudget(`"hard_limits":{"tokens":10}`)
		e := x.create(`"budget_ids":["` + id + `"],"estimate":{"tokens":11}`)
		x.none("")
		if got := x.get(e.ID); got.PublicState != "rate_limited" || got.StateVector.EligibilityState != "blocked_by_budget" || got.BlockingReason != "waiting_for_budget" {
			x.t.Errorf("%+v", got)
		}
		refused := x.Post("/v1/executions/"+e.ID.String()+"/operator-claim", nil).Problem(fault.CodeBudgetExhausted)
		if refused.Str("budget_id") != id || refused.Str("dimension") != "tokens" {
			x.t.Errorf("%s", refused.Body)
		}
		x.Post("/v1/budgets/"+id+"/topup", `{"dimensions":{"tokens":10}}`).Want(http.StatusOK)
		x.claim("")
	}},
	{"an exhausted budget ends or suspends what is held", func(x *executionTest) {
		for policy, want := range map[string]struct{ directive, state string }{"cancel": {"cancel", "cancelled"}, "suspend": {"suspend", "suspended"}} {
			id := x.newBudget(`"hard_limits":{"tokens":10},"on_hard_limit":"` + policy + `"`)
			e := x.create(`"budget_ids":["` + id + `"]`)
			c := x.claim("")
			x.Post("/v1/budgets/"+id+"/usage", `{"dimensions":{"tokens":10}}`).Want(http.StatusOK)
			answer := x.report(c, "renew", "").Want(http.StatusOK)
			if got := answerAs[oapi.RenewedLease](answer); len(got.Directives) == 0 || got.Directives[len(got.Directives)-1] != want.directive || got.LeaseExpiresAt != nil {
				x.t.Errorf("%s: %s", policy, answer.Body)
			}
			if got := x.get(e.ID); string(got.PublicState) != want.state {
				x.t.Errorf("%s: it is %s", policy, got.PublicState)
			}
		}
	}},
	{"flows and graphs", func(x *executionTest) {
		budget, quota := x.newBudget(""), x.newQuota("")
		f := answerAs[oapi.Flow](x.Post("/v1/flows", `{"goal":"x","budget_ids":["`+budget+`"],"quota_policy_ids":["`+quota+`"],"graph":{"executions":[{"key":"a","lane":"`+x.lane+`",
				"estimate":{"a":1}},{"key":"b","lane":"`+x.lane+`","needs":["a"],"budget_ids":["`+budget+`"],"quota_policy_ids":["`+quota+`"]}]}}`).Want(http.StatusCreated))
		for _, got := range []oapi.Flow{f, answerAs[oapi.Flow](x.Get(flowPath(f.ID)).Want(http.StatusOK))} {
			if !cmp.Equal(got.BudgetIds, oapi.BudgetIDs{uuid.MustParse(budget)}) || !cmp.Equal(got.QuotaPolicyIds, oapi.QuotaPolicyIDs{uuid.MustParse(quota)}) {
				x.t.Errorf("%+v", got)
			}
		}
		a, b := x.get(f.Graph.Executions["a"]), x.get(f.Graph.Executions["b"])
		if len(a.BudgetIds) != 0 || len(a.QuotaPolicyIds) != 0 || a.Estimate["a"] != 1 || len(b.BudgetIds) != 1 || len(b.QuotaPolicyIds) != 1 || len(b.Estimate) != 0 {
			x.t.Errorf("%+v\n%+v", a, b)
		}
		nobody := uuid.NewString()
		for _, members := range []string{`"budget_ids":["` + nobody + `"]`, `"quota_policy_ids":["` + nobody + `"]`} {
			x.refused(fault.CodeNotFound, func() *apitest.Response {
				return x.Post("/v1/flows", `{"goal":"x","graph":{"executions":[{"key":"a","lane":"`+x.lane+`",`+members+`}]}}`)
			})
			x.refused(fault.CodeNotFound, func() *apitest.Response {
				return x.Post(flowPath(f.ID, "members"), `{"execution":`+x.sent(members)+`}`)
			})
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response {
			return x.Post(flowPath(f.ID, "graph"), `{"executions":[{"key":"c","lane":"`+x.lane+`","estimate":{"a b":1}}]}`)
		})
	}},
}

// TestQuotas_Wire is how quotas look over HTTP. http.md "Quota", "Quota admission".
func TestQuotas_Wire(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, quotasWireCases)
}

var quotasWireCases = []executionCase{
	{"made, read, listed, deleted", func(x *executionTest) {
		x = x.in("quotas")
		plain := answerAs[oapi.Quota](x.Post("/v1/quotas", nil).Want(http.StatusCreated))
		if diff := cmp.Diff(oapi.Quota{ID: plain.ID, Namespace: "quotas", WindowSeconds: 60, CreatedAt: plain.CreatedAt}, plain); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		id := "f" + uuid.NewString()[1:] // the newest of two of the same time
		answer := x.Post("/v1/quotas", `{"id":"`+id+`","window_seconds":2678400,"max_requests_per_window":5,"max_concurrent":2,"jitter_ms":10,"key_tag":"team.name"}`).Want(http.StatusCreated)
		full := answerAs[oapi.Quota](answer)
		want := oapi.Quota{ID: uuid.MustParse(id), Namespace: "quotas", WindowSeconds: 2678400, MaxRequestsPerWindow: 5, MaxConcurrent: 2, JitterMs: 10, KeyTag: new("team.name"), CreatedAt: full.CreatedAt}
		if diff := cmp.Diff(want, full); diff != "" || answer.Header.Get("Location") != "/v1/quotas/"+id {
			x.t.Errorf("%v (-want +got):\n%s", answer.Header, diff)
		}
		if again := x.Post("/v1/quotas", `{"id":"`+id+`"}`).Want(http.StatusOK); again.Header.Get("Idempotent-Replay") != "true" || string(again.Body) != string(answer.Body) {
			x.t.Errorf("%s", again.Body)
		}
		page := x.Get("/v1/quotas?limit=1").Want(http.StatusOK)
		if page.Str("items.0.id") != id || x.Get("/v1/quotas?limit=1&cursor="+page.Str("next_cursor")).Want(http.StatusOK).Str("items.0.id") != plain.ID.String() {
			x.t.Errorf("%s", page.Body)
		}
		x.Do(http.MethodDelete, "/v1/quotas/"+id, nil).Want(http.StatusNoContent)
		x.Get("/v1/quotas/" + id).Problem(fault.CodeNotFound)
	}},
	{"asked by hand", func(x *executionTest) {
		path := "/v1/quotas/" + x.newQuota(`"max_requests_per_window":3,"max_concurrent":2,"key_tag":"team.name"`)
		var ids []string
		for range 4 {
			ids = append(ids, x.create(`"tags":{"team.name":"a"}`).ID.String())
		}
		admit := func(id string) *apitest.Response {
			return x.Post(path+"/admissions", `{"execution_id":"`+id+`"}`).Want(http.StatusOK)
		}
		const policy = `"requests";q=3;w=60, "concurrent";q=2`
		first := admit(ids[0])
		if got := strings.TrimSpace(string(first.Body)); got != `{"outcome":"admitted"}` {
			x.t.Errorf("%s", got)
		}
		x.headers(first, policy, `"requests";r=2;t=60, "concurrent";r=1`)
		if again := admit(ids[0]); again.Str("outcome") != "already_admitted" {
			x.t.Errorf("%s", again.Body)
		}
		if second := admit(ids[1]); second.Str("outcome") != "admitted" {
			x.t.Errorf("%s", second.Body)
		}
		full := admit(ids[2])
		if got := strings.TrimSpace(string(full.Body)); got != `{"outcome":"concurrency_exceeded"}` {
			x.t.Errorf("%s", got)
		}
		x.headers(full, policy, `"requests";r=1;t=60, "concurrent";r=0`)
		list := answerAs[oapi.AdmissionList](x.Get(path + "/admissions?key=a").Want(http.StatusOK))
		if len(list.Items) != 2 || list.Items[0].Key != "a" || list.Items[0].AdmittedAt.IsZero() || x.Get(path+"/admissions?key=").Want(http.StatusOK).Len("items") != 0 ||
			x.Get(path+"/admissions?limit=1").Want(http.StatusOK).Get("next_cursor") == nil || x.Get(path).Want(http.StatusOK).Int("active") != 2 {
			x.t.Errorf("%+v", list)
		}
		for range 2 {
			x.Do(http.MethodDelete, path+"/admissions/"+ids[0], nil).Want(http.StatusNoContent)
		}
		x.Do(http.MethodDelete, path+"/admissions/"+uuid.NewString(), nil).Want(http.StatusNoContent)
		if got := admit(ids[2]); got.Str("outcome") != "admitted" {
			x.t.Errorf("%s", got.Body)
		}
		late := admit(ids[3])
		if late.Str("outcome") != "rate_exceeded" || late.Int("retry_after_ms") != 60000 {
			x.t.Errorf("%s", late.Body)
		}
		x.headers(late, policy, `"requests";r=0;t=60, "concurrent";r=0`)
		x.Post("/v1/executions/"+ids[3]+"/operator-cancel", `{"reason":"x"}`).Want(http.StatusOK)
		x.Post(path+"/admissions", `{"execution_id":"`+ids[3]+`"}`).Problem(fault.CodeAlreadyTerminal)
	}},
	{"the same answer under a key", func(x *executionTest) {
		path := "/v1/quotas/" + x.newQuota(`"max_concurrent":2`) + "/admissions"
		body := `{"execution_id":"` + x.create("").ID.String() + `"}`
		first := x.Post(path, body, "Idempotency-Key: "+x.lane).Want(http.StatusOK)
		again := x.Post(path, body, "Idempotency-Key: "+x.lane).Want(http.StatusOK)
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.Header.Get("RateLimit") == "" {
			x.t.Errorf("%v %s\n%v %s", first.Header, first.Body, again.Header, again.Body)
		}
	}},
	{"of a lane", func(x *executionTest) {
		id, path := x.newQuota(`"max_concurrent":1`), "/v1/lanes/"+x.lane
		first, second := x.create(""), x.create("")
		answer := x.Do(http.MethodPut, path, `{"quota_policy_ids":["`+id+`"]}`).Want(http.StatusOK)
		if answer.Str("quota_policy_ids.0") != id || answer.Str("lane") != x.lane {
			x.t.Errorf("%s", answer.Body)
		}
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.Do(http.MethodPut, path+"?revision=99", `{"quota_policy_ids":[]}`) })
		for _, l := range answerAs[oapi.LaneList](x.Get("/v1/lanes?limit=500").Want(http.StatusOK)).Items {
			if (len(l.QuotaPolicyIds) == 1) != (l.Lane == x.lane) {
				x.t.Errorf("%+v", l)
			}
		}
		x.server.Advance(0)
		c := x.claim("")
		x.none("")
		refused := x.Post("/v1/executions/"+second.ID.String()+"/operator-claim", nil).Problem(fault.CodeRateLimited)
		if c.Execution.ID != first.ID || refused.Str("quota_id") != id || x.get(second.ID).PublicState != "rate_limited" {
			x.t.Errorf("%s", refused.Body)
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		x.claim("")
		if got := x.Do(http.MethodPut, path, `{"quota_policy_ids":[]}`, "If-Match: "+answer.ETag()).Want(http.StatusOK); got.Len("quota_policy_ids") != 0 || got.ETag() == answer.ETag() {
			x.t.Errorf("%s", got.Body)
		}
	}},
}
