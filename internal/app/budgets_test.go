package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// budgetTest is one case about budgets, in a namespace that nobody else uses.
type budgetTest struct {
	*executionTest
}

// budgetCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type budgetCase struct {
	name string
	run  func(x *budgetTest)
}

// runBudgetCases runs cases one after the other on one server for each database. The clock stands still, and nothing happens by
// itself, until a case moves it.
func runBudgetCases(t *testing.T, cases []budgetCase) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(budgetsOn(t, s, fmt.Sprintf("b%d", i))) })
		}
	})
}

func budgetsOn(t *testing.T, s *apptest.Server, namespace string) *budgetTest {
	t.Helper()
	return &budgetTest{executionsOn(t, s, "work").in(namespace)}
}

func budgetPath(id uuid.UUID, parts ...string) string {
	return "/v1/budgets/" + strings.Join(append([]string{id.String()}, parts...), "/")
}

// budget makes a budget.
func (x *budgetTest) budget(members string) uuid.UUID {
	x.t.Helper()
	return uuid.MustParse(x.Post("/v1/budgets", "{"+members+"}").Want(http.StatusCreated).Str("id"))
}

// under makes a budget that is in another one.
func (x *budgetTest) under(parent uuid.UUID, members string) uuid.UUID {
	x.t.Helper()
	return x.budget(joined(`"parent_id":"`+parent.String()+`"`, members))
}

// tokens makes a budget of so many tokens.
func (x *budgetTest) tokens(n int64, more ...string) uuid.UUID {
	x.t.Helper()
	return x.budget(joined(append(more, fmt.Sprintf(`"hard_limits":{"tokens":%d}`, n))...))
}

func (x *budgetTest) read(id uuid.UUID) oapi.Budget {
	x.t.Helper()
	return answerAs[oapi.Budget](x.Get(budgetPath(id)).Want(http.StatusOK))
}

// verb makes a call to a budget.
func (x *budgetTest) verb(id uuid.UUID, verb, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(budgetPath(id, verb), "{"+members+"}", headers...)
}

// done makes a call that succeeds and is answered with the budget as it is then.
func (x *budgetTest) done(id uuid.UUID, verb, members string) oapi.Budget {
	x.t.Helper()
	b := answerAs[oapi.Budget](x.verb(id, verb, members).Want(http.StatusOK))
	if diff := cmp.Diff(x.read(id), b); diff != "" {
		x.t.Errorf("%s: read and answered differ:\n%s", verb, diff)
	}
	return b
}

func dimensions(of string) string { return `"dimensions":{` + of + `}` }

// uses reports usage and checks what has become of the report: "ok", or "hard_breach tokens 60/100".
func (x *budgetTest) uses(id uuid.UUID, of, want string, more ...string) oapi.UsageReport {
	x.t.Helper()
	r := answerAs[oapi.UsageReport](x.verb(id, "usage", joined(append(more, dimensions(of))...)).Want(http.StatusOK))
	if got := verdictOf(r); got != want {
		x.t.Errorf("{%s} is reported: %s, want %s", of, got, want)
	}
	return r
}

func verdictOf(r oapi.UsageReport) string {
	if r.BudgetID == nil {
		return string(r.Outcome)
	}
	return fmt.Sprintf("%s %s %d/%d", r.Outcome, *r.Dimension, *r.CurrentUsage, *r.Limit)
}

func handleOf(c oapi.Claim) string { return `"handle":"` + c.Handle + `"` }

func executionID(id uuid.UUID) string { return `"execution_id":"` + id.String() + `"` }

func dedupKey(key string) string { return `"dedup_key":"` + key + `"` }

// amountsText writes amounts as "tokens 5, usd 3".
func amountsText(of oapi.CountedAmounts) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		words = append(words, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(words, ", ")
}

// used checks what a budget has counted.
func (x *budgetTest) used(id uuid.UUID, want string) oapi.Budget {
	x.t.Helper()
	b := x.read(id)
	if got := amountsText(b.Usage); got != want {
		x.t.Errorf("budget %s has counted %q, want %q", id, got, want)
	}
	return b
}

// reserves checks what of a budget is reserved.
func (x *budgetTest) reserves(id uuid.UUID, want string) {
	x.t.Helper()
	if got := amountsText(x.read(id).Reserved); got != want {
		x.t.Errorf("of budget %s is reserved %q, want %q", id, got, want)
	}
}

// ledger checks what executions have spent of a budget, and what is reserved for them: "tokens 5 | tokens 3".
func (x *budgetTest) ledger(id uuid.UUID, want map[uuid.UUID]string) {
	x.t.Helper()
	got := map[uuid.UUID]string{}
	for path := budgetPath(id, "ledger?limit=2"); path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[struct {
			Items []struct {
				ExecutionID     uuid.UUID `json:"execution_id"`
				Spent, Reserved oapi.CountedAmounts
			}
			NextCursor *string `json:"next_cursor"`
		}](answer)
		for _, e := range p.Items {
			got[e.ExecutionID] = strings.TrimSuffix(amountsText(e.Spent)+" | "+amountsText(e.Reserved), " | ")
		}
		path = nextPage(x.t, answer, p.NextCursor)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("ledger of %s (-want +got):\n%s", id, diff)
	}
}

// limited creates an execution that budgets count for.
func (x *budgetTest) limited(members string, budgets ...uuid.UUID) oapi.Execution {
	x.t.Helper()
	return x.create(joined(members, attached(budgets...)))
}

// attached is the member that attaches budgets.
func attached(budgets ...uuid.UUID) string {
	words := make([]string, len(budgets))
	for i, id := range budgets {
		words[i] = quoted(id.String())
	}
	return `"budget_ids":[` + strings.Join(words, ",") + "]"
}

// estimate is the member that says how many tokens are expected to be spent.
func estimate(n int64) string { return fmt.Sprintf(`"estimate":{"tokens":%d}`, n) }

// toldOf checks the types of a budget's events, from the first on.
func (x *budgetTest) toldOf(id uuid.UUID, want ...string) []oapi.Event {
	x.t.Helper()
	events := slices.DeleteFunc(x.eventsOf("budget"), func(e oapi.Event) bool { return eventData(x.t, e)["budget_id"] != id.String() })
	var got []string
	for _, e := range events {
		got = append(got, strings.TrimPrefix(e.Type, "budget."))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("events of budget %s (-want +got):\n%s", id, diff)
	}
	return events
}

// budgetSnapshot is what a refusal must leave as it is: the budgets of the namespace with their ledgers, the executions, and every table.
type budgetSnapshot struct {
	Budgets    []oapi.Budget
	Ledgers    map[uuid.UUID]string
	Executions string
	Rows       map[string]int64
}

func (x *budgetTest) snap() budgetSnapshot {
	x.t.Helper()
	s := budgetSnapshot{Ledgers: map[uuid.UUID]string{}, Rows: countRows(x.t, x.server)}
	s.Budgets = answerAs[oapi.BudgetList](x.Get("/v1/budgets?limit=500").Want(http.StatusOK)).Items
	for i := range s.Budgets {
		s.Ledgers[s.Budgets[i].ID] = string(x.Get(budgetPath(s.Budgets[i].ID, "ledger")).Want(http.StatusOK).Body)
	}
	s.Executions = string(x.Get("/v1/executions?limit=500").Want(http.StatusOK).Body)
	return s
}

// same checks that a call changes nothing.
func (x *budgetTest) same(call func() *apitest.Response) *apitest.Response {
	x.t.Helper()
	return unmoved(x.t, x.snap, call)
}

// denied checks that a call is refused with a code and changes nothing.
func (x *budgetTest) denied(code fault.Code, call func() *apitest.Response) *apitest.Response {
	x.t.Helper()
	return x.same(call).Problem(code)
}

// budgetCalls are all calls to a budget, but those that read, with a body that is good.
func budgetCalls(e uuid.UUID) map[string]func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response {
	post := func(verb, members string) func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response {
		return func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response {
			return x.verb(id, verb, members, headers...)
		}
	}
	return map[string]func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response{
		"usage": post("usage", dimensions(`"tokens":1`)), "usage for an execution": post("usage", dimensions(`"tokens":1`)+","+executionID(e)),
		"spend":   post("spend", dimensions(`"tokens":1`)+","+executionID(e)),
		"release": post("release", executionID(e)), "reset": post("reset", ""), "topup": post("topup", dimensions(`"tokens":1`)),
		"PATCH": func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response {
			return x.Do(http.MethodPatch, budgetPath(id), `{"scope_id":"y"}`, headers...)
		},
		"DELETE": func(x *budgetTest, id uuid.UUID, headers ...string) *apitest.Response {
			return x.Do(http.MethodDelete, budgetPath(id), nil, headers...)
		},
	}
}

// attachments are all calls that attach a budget to something, with that member.
func (x *budgetTest) attachments() map[string]func(members string) *apitest.Response {
	flow := flowAs[oapi.Flow](x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated))
	return map[string]func(members string) *apitest.Response{
		"execution": func(members string) *apitest.Response { return x.Post("/v1/executions", x.sent(members)) },
		"batch": func(members string) *apitest.Response {
			return x.Post("/v1/executions/batch?atomic=true", `{"executions":[`+x.sent("")+`,`+x.sent(members)+`]}`)
		},
		"flow": func(members string) *apitest.Response { return x.Post("/v1/flows", `{"goal":"x",`+members+`}`) },
		"flow with a graph": func(members string) *apitest.Response {
			return x.Post("/v1/flows", `{"goal":"x","graph":{"executions":[{"key":"a","lane":"work",`+members+`}]}}`)
		},
		"graph": func(members string) *apitest.Response {
			return x.Post(flowPath(flow.ID, "graph"), `{"executions":[{"key":"a","lane":"work"},{"key":"b","lane":"work",`+members+`}]}`)
		},
		"member": func(members string) *apitest.Response {
			return x.Post(flowPath(flow.ID, "members"), `{"execution":`+x.sent(members)+`}`)
		},
	}
}

// TestBudgets: what is kept of budgets, and who may change it. reference: flows-streams-budgets.md 6.1 to 6.4, 10.7.
func TestBudgets(t *testing.T) {
	t.Parallel()
	runBudgetCases(t, budgetsCases)
}

var budgetsCases = []budgetCase{
	{"made, and shown with its scope, its mode and its limits (e2e_api)", func(x *budgetTest) {
		id := x.budget(`"scope_type":"team","scope_id":"a","hard_limits":{"tokens":100},"soft_limits":{"tokens":50},"on_hard_limit":"suspend","reset_interval_ms":60000`)
		b := x.used(id, "")
		if b.ScopeType != "team" || b.ScopeID != "a" || b.OnHardLimit != "suspend" || amountsText(b.HardLimits) != "tokens 100" || amountsText(b.SoftLimits) != "tokens 50" ||
			b.BreachCount != 0 || b.SoftBreachCount != 0 || b.LastBreachAt != nil || b.Exhausted || b.ParentID != nil {
			x.t.Errorf("%+v", b)
		}
		if want := b.CreatedAt.Time().Add(time.Minute); b.NextResetAt == nil || !b.NextResetAt.Time().Equal(want) { // 10.7: seeded with the interval
			x.t.Errorf("next_reset_at %v, want %s", b.NextResetAt, want)
		}
		x.toldOf(id, "created")
	}},
	{"the same id again: the limits are not overwritten (wave9_budget)", func(x *budgetTest) {
		id := x.tokens(100)
		again := x.same(func() *apitest.Response {
			return x.Post("/v1/budgets", `{"id":"`+id.String()+`","hard_limits":{"tokens":1},"scope_type":"z"}`)
		}).Want(http.StatusOK)
		if again.Header.Get("Idempotent-Replay") != "true" || again.Int("hard_limits.tokens") != 100 {
			x.t.Errorf("%s", again.Body)
		}
	}},
	{"fresh, then 5, 8, and 0 after a reset (V lifecycle)", func(x *budgetTest) {
		id := x.budget("")
		x.used(id, "")
		x.uses(id, `"tokens":5`, "ok")
		x.used(id, "tokens 5")
		x.uses(id, `"tokens":3`, "ok")
		x.used(id, "tokens 8")
		x.done(id, "reset", "")
		x.used(id, "tokens 0")
	}},
	{"a budget that there is not", func(x *budgetTest) {
		x.tokens(10)
		e := x.create("").ID
		for name, call := range budgetCalls(e) {
			if got := x.denied(fault.CodeNotFound, func() *apitest.Response { return call(x, uuid.New()) }); got.Str("resource") != "budget" {
				x.t.Errorf("%s: %s", name, got.Body)
			}
		}
		for _, part := range []string{"", "/ledger"} {
			x.Get(budgetPath(uuid.New()) + part).Problem(fault.CodeNotFound)
		}
		x.denied(fault.CodeNotFound, func() *apitest.Response { return x.Post("/v1/budgets", `{"parent_id":"`+uuid.NewString()+`"}`) })
	}},
	{"an execution that there is not", func(x *budgetTest) {
		id := x.tokens(10)
		for _, verb := range []string{"usage", "spend"} {
			x.denied(fault.CodeNotFound, func() *apitest.Response {
				return x.verb(id, verb, dimensions(`"tokens":1`)+","+executionID(uuid.New()))
			})
		}
	}},
	{"another namespace's budget is none", func(x *budgetTest) {
		other := &budgetTest{x.in("others")}
		id := other.tokens(10)
		before := other.snap()
		e := x.create("").ID
		for _, call := range budgetCalls(e) {
			x.denied(fault.CodeNotFound, func() *apitest.Response { return call(x, id) })
		}
		for _, part := range []string{"", "/ledger"} {
			x.Get(budgetPath(id) + part).Problem(fault.CodeNotFound)
		}
		x.denied(fault.CodeNotFound, func() *apitest.Response { return x.Post("/v1/budgets", `{"parent_id":"`+id.String()+`"}`) })
		for name, attach := range x.attachments() {
			if got := x.denied(fault.CodeNotFound, func() *apitest.Response { return attach(attached(id)) }); got.Str("resource") != "budget" {
				x.t.Errorf("%s: %s", name, got.Body)
			}
		}
		if got := other.snap(); !cmp.Equal(before.Budgets, got.Budgets) || !cmp.Equal(before.Ledgers, got.Ledgers) {
			x.t.Errorf("it was changed: %+v", got.Budgets)
		}
		if got := x.Get("/v1/budgets").Want(http.StatusOK); got.Len("items") != 0 {
			x.t.Errorf("it is listed: %s", got.Body)
		}
	}},
	{"an execution of another namespace spends nothing", func(x *budgetTest) {
		id, e := x.tokens(10), x.in("others").create("").ID
		for _, verb := range []string{"usage", "spend"} {
			x.denied(fault.CodeNotFound, func() *apitest.Response { return x.verb(id, verb, dimensions(`"tokens":1`)+","+executionID(e)) })
		}
	}},
	{"If-Match, with a revision that reports leave alone", func(x *budgetTest) {
		id := x.tokens(100)
		etag := x.Get(budgetPath(id)).ETag()
		x.uses(id, `"tokens":50`, "ok")
		x.uses(id, `"tokens":51`, "hard_breach tokens 50/100")
		if got := x.Get(budgetPath(id)).ETag(); got != etag {
			x.t.Errorf("reports took the ETag from %s to %s", etag, got)
		}
		patched := x.Do(http.MethodPatch, budgetPath(id), `{"scope_id":"new"}`, "If-Match: "+etag).Want(http.StatusOK)
		if patched.ETag() == etag {
			x.t.Error("the ETag did not change")
		}
		for _, method := range []string{http.MethodPatch, http.MethodDelete} {
			var body any
			if method == http.MethodPatch {
				body = `{"scope_id":"newer"}`
			}
			x.denied(fault.CodeRevisionMismatch, func() *apitest.Response { return x.Do(method, budgetPath(id), body, "If-Match: "+etag) })
		}
		for _, verb := range []string{"reset", "topup"} {
			before := x.Get(budgetPath(id)).ETag()
			x.done(id, verb, map[string]string{"topup": dimensions(`"tokens":1`)}[verb])
			if x.Get(budgetPath(id)).ETag() == before {
				x.t.Errorf("%s leaves the revision alone", verb)
			}
		}
		x.Do(http.MethodDelete, budgetPath(id), nil, "If-Match: "+x.Get(budgetPath(id)).ETag()).Want(http.StatusNoContent)
		x.Get(budgetPath(id)).Problem(fault.CodeNotFound)
	}},
	{"a patch that changes nothing", func(x *budgetTest) {
		id := x.tokens(100)
		x.same(func() *apitest.Response {
			return x.Do(http.MethodPatch, budgetPath(id), `{"hard_limits":{"tokens":100}}`)
		}).Want(http.StatusOK)
	}},
	{"a POST with an Idempotency-Key is done once", func(x *budgetTest) {
		e := x.create("").ID
		for name, call := range budgetCalls(e) {
			if name == "PATCH" || name == "DELETE" {
				continue
			}
			id := x.tokens(1000)
			x.uses(id, `"tokens":10`, "ok", executionID(e))
			key := "Idempotency-Key: " + strings.ReplaceAll(name, " ", "-")
			first := call(x, id, key).Want(http.StatusOK)
			again := x.same(func() *apitest.Response { return call(x, id, key) }).Want(http.StatusOK)
			if again.Header.Get("Idempotent-Replay") != "true" || string(again.Body) != string(first.Body) {
				x.t.Errorf("%s: %v\n%s\n%s", name, again.Header, first.Body, again.Body)
			}
			x.denied(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.verb(id, "topup", dimensions(`"tokens":999`), key) })
		}
		key := "Idempotency-Key: new"
		first := x.Post("/v1/budgets", `{"scope_id":"k"}`, key).Want(http.StatusCreated)
		again := x.same(func() *apitest.Response { return x.Post("/v1/budgets", `{"scope_id":"k"}`, key) })
		if again.Str("id") != first.Str("id") || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%s", again.Body)
		}
	}},
	{"what cannot be is refused", func(x *budgetTest) {
		id := x.tokens(100)
		many := make([]string, 33)
		for i := range many {
			many[i] = fmt.Sprintf(`"d%d":1`, i)
		}
		for _, c := range []struct {
			call func() *apitest.Response
			code fault.Code
		}{
			{func() *apitest.Response { return x.verb(id, "usage", dimensions(`"tokens":-1`)) }, fault.CodeValidationFailed},
			{func() *apitest.Response { return x.verb(id, "topup", dimensions(`"tokens":-1`)) }, fault.CodeValidationFailed},
			{func() *apitest.Response { return x.Post("/v1/budgets", `{"hard_limits":{"tokens":-1}}`) }, fault.CodeValidationFailed},
			{func() *apitest.Response { return x.Post("/v1/budgets", `{"hard_limits":{"a b":1}}`) }, fault.CodeValidationFailed},
			{func() *apitest.Response { return x.verb(id, "usage", dimensions(strings.Join(many, ","))) }, fault.CodeValidationFailed},
			{func() *apitest.Response { return x.verb(id, "topup", dimensions(`"other":1`)) }, fault.CodeValidationFailed},
			{func() *apitest.Response {
				return x.Post("/v1/budgets", `{"reset_interval_ms":60000,"schedule":{"cron":"@daily","time_zone":"UTC"}}`)
			}, fault.CodeValidationFailed},
			{func() *apitest.Response {
				return x.Post("/v1/budgets", `{"schedule":{"cron":"0 0 30 2 *","time_zone":"UTC"}}`)
			}, fault.CodeValidationFailed},
			{func() *apitest.Response {
				return x.Post("/v1/budgets", `{"schedule":{"cron":"@daily","time_zone":"Mars/Olympus"}}`)
			}, fault.CodeValidationFailed},
		} {
			if got := c.call(); got.Status != http.StatusUnprocessableEntity {
				x.t.Errorf("%d instead of 422: %s", got.Status, got.Body)
			}
			x.denied(c.code, c.call)
		}
	}},
	{"eight above each other, and no more", func(x *budgetTest) {
		id := x.budget("")
		for range 7 {
			id = x.under(id, "")
		}
		got := x.denied(fault.CodeOutOfRange, func() *apitest.Response { return x.Post("/v1/budgets", `{"parent_id":"`+id.String()+`"}`) })
		if f := got.Fields(); len(f) == 0 || f[0].Pointer != "/parent_id" {
			x.t.Errorf("%s", got.Body)
		}
		x.uses(id, `"tokens":1`, "ok")
		for b := x.read(id); ; b = x.read(*b.ParentID) {
			x.used(b.ID, "tokens 1")
			if b.ParentID == nil {
				break
			}
		}
	}},
	{"attached to executions, flows and members, and shown again", func(x *budgetTest) {
		a, b := x.tokens(100), x.tokens(100)
		want := oapi.BudgetIDs{b, a}
		for name, attach := range x.attachments() {
			answer := attach(attached(b, a))
			if answer.Status != http.StatusCreated {
				x.t.Fatalf("%s: %d %s", name, answer.Status, answer.Body)
			}
			var got oapi.BudgetIDs
			switch name {
			case "execution":
				got = x.get(answerAs[oapi.Execution](answer).ID).BudgetIds
			case "batch":
				got = x.get(answerAs[oapi.CreatedExecutions](answer).Items[1].Execution.ID).BudgetIds
			case "flow":
				got = flowAs[oapi.Flow](x.Get(flowPath(flowAs[oapi.Flow](answer).ID)).Want(http.StatusOK)).BudgetIds
			case "flow with a graph":
				got = x.get(flowAs[oapi.Flow](answer).Graph.Executions["a"]).BudgetIds
			case "graph":
				got = x.get(flowAs[oapi.BuiltGraph](answer).Executions["b"]).BudgetIds
			case "member":
				got = x.get(flowAs[oapi.FlowMember](answer).Execution.ID).BudgetIds
			}
			if diff := cmp.Diff(want, got); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			nobody := uuid.New()
			if got := x.denied(fault.CodeNotFound, func() *apitest.Response { return attach(attached(a, nobody)) }); got.Str("resource") != "budget" {
				x.t.Errorf("%s: %s", name, got.Body)
			}
			x.denied(fault.CodeValidationFailed, func() *apitest.Response { return attach(attached(a, a)) })
		}
	}},
	{"a child of a run has budgets, too", func(x *budgetTest) {
		id := x.tokens(10)
		run := x.Post("/v1/runs", `{"workflow_name":"w"}`).Want(http.StatusCreated).Str("id")
		x.Post("/v1/runs/"+run+"/start", `{"generation":0}`).Want(http.StatusOK)
		step := func(members string) *apitest.Response {
			return x.Post("/v1/runs/"+run+"/steps", `{"generation":0,"step_name":"s","role":"agent","position":0,"child":{"execution":`+x.sent(members)+`}}`)
		}
		x.denied(fault.CodeNotFound, func() *apitest.Response { return step(attached(uuid.New())) })
		made := step(joined(attached(id), estimate(4))).Want(http.StatusCreated)
		e := x.get(uuid.MustParse(made.Str("child_execution_id")))
		if !cmp.Equal(e.BudgetIds, oapi.BudgetIDs{id}) || amountsText(e.Estimate) != "tokens 4" {
			x.t.Errorf("%+v", e)
		}
		x.claim(lasting)
		x.reserves(id, "tokens 4")
	}},
}
