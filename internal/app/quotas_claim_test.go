package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Where an execution stands that a quota holds up. executions.md 1.11.
const (
	atQuota         = "runnable unowned blocked_by_quota waiting_for_quota none pending_first_attempt rate_limited"
	atQuotaRetry    = "runnable unowned blocked_by_quota waiting_for_quota none pending_retry_attempt rate_limited"
	atQuotaReplay   = "runnable unowned blocked_by_quota waiting_for_quota none pending_replay_attempt rate_limited"
	quotaHeldGate   = "admission"
	quotaEndedBadly = `"reason":"boom","category":"permanent"`
)

// heldUp checks that an execution is shown and explained as held up by a quota, and returns when that ends by itself.
func (x *quotaTest) heldUp(quota uuid.UUID, key string, id uuid.UUID, at string) *oapi.Time {
	x.t.Helper()
	e := x.stands(id, at)
	if !strings.Contains(e.BlockingDetail, quota.String()) {
		x.t.Errorf("it says %q", e.BlockingDetail)
	}
	why, gates := x.explain(id, "")
	g := gates[quotaHeldGate]
	evidence := fromDocument[map[string]any](x.t, string(g.Evidence))
	if !slices.Equal(unmet(why), []string{quotaHeldGate}) || evidence["quota_id"] != quota.String() || evidence["key"] != key {
		x.t.Errorf("%v %v", unmet(why), evidence)
	}
	listed := answerAs[oapi.ExecutionList](x.Get("/v1/executions?limit=500&public_state=rate_limited&lane=" + e.Lane).Want(http.StatusOK)).Items
	if !slices.ContainsFunc(listed, func(e oapi.Execution) bool { return e.ID == id }) {
		x.t.Errorf("%s is not listed as rate_limited", id)
	}
	return g.NextAt
}

// until moves the clock to a time.
func (x *quotaTest) until(at time.Time) {
	x.t.Helper()
	x.advance(at.Sub(x.server.Clock.Now()))
}

// setLane gives the case's lane its quotas.
func (x *quotaTest) setLane(quotas ...uuid.UUID) oapi.Lane {
	x.t.Helper()
	got := answerAs[oapi.Lane](x.Do(http.MethodPut, "/v1/lanes/"+x.lane, "{"+underQuotas(quotas...)+"}").Want(http.StatusOK))
	x.advance(0)
	return got
}

// startedFlow starts a flow.
func (x *quotaTest) startedFlow(members string) (uuid.UUID, []uuid.UUID) {
	x.t.Helper()
	f := answerAs[oapi.Flow](x.Post("/v1/flows", executionJSON(members, `"goal":"x"`, `"start":true`)).Want(http.StatusCreated))
	var ids []uuid.UUID
	if f.Graph != nil {
		for i := range len(f.Graph.Executions) {
			ids = append(ids, f.Graph.Executions[fmt.Sprint("m", i)])
		}
	}
	return f.ID, ids
}

// nodes are n executions of a graph, each with some members.
func (x *quotaTest) nodes(n int, members string) string {
	var all []string
	for i := range n {
		all = append(all, x.sent(executionMembers(fmt.Sprintf(`"key":"m%d"`, i), members)))
	}
	return `"graph":{"executions":[` + strings.Join(all, ",") + `]}`
}

// quotaAttachment is a way to put n executions under a quota.
type quotaAttachment struct {
	name string
	make func(x *quotaTest, quota uuid.UUID, n int) []uuid.UUID
}

func quotaAttachments() []quotaAttachment {
	one := func(members func(quota uuid.UUID) string) func(x *quotaTest, quota uuid.UUID, n int) []uuid.UUID {
		return func(x *quotaTest, quota uuid.UUID, n int) (ids []uuid.UUID) {
			for range n {
				ids = append(ids, x.create(members(quota)).ID)
			}
			return ids
		}
	}
	return []quotaAttachment{
		{"execution", one(func(quota uuid.UUID) string { return underQuotas(quota) })},
		{"batch", func(x *quotaTest, quota uuid.UUID, n int) []uuid.UUID {
			return x.createMany(n, func(int) string { return underQuotas(quota) })
		}},
		{"flow", func(x *quotaTest, quota uuid.UUID, n int) []uuid.UUID {
			_, ids := x.startedFlow(underQuotas(quota) + "," + x.nodes(n, ""))
			return ids
		}},
		{"node", func(x *quotaTest, quota uuid.UUID, n int) []uuid.UUID {
			_, ids := x.startedFlow(x.nodes(n, underQuotas(quota)))
			return ids
		}},
		{"member", func(x *quotaTest, quota uuid.UUID, n int) (ids []uuid.UUID) {
			f, _ := x.startedFlow(underQuotas(quota))
			for i := range n {
				answer := x.Post(flowPath(f, "members"), `{"execution":`+x.sent(fmt.Sprintf(`"key":"m%d"`, i))+`}`).Want(http.StatusCreated)
				ids = append(ids, answerAs[oapi.FlowMember](answer).Execution.ID)
			}
			return ids
		}},
		{"enlisted", func(x *quotaTest, quota uuid.UUID, n int) (ids []uuid.UUID) {
			f, _ := x.startedFlow(underQuotas(quota))
			for range n {
				e := x.create("")
				x.Post(flowPath(f, "members"), fmt.Sprintf(`{"execution_id":%q}`, e.ID)).Want(http.StatusCreated)
				ids = append(ids, e.ID)
			}
			return ids
		}},
		{"lane", func(x *quotaTest, quota uuid.UUID, n int) (ids []uuid.UUID) {
			for range n / 2 { // before it has the quota, and afterwards
				ids = append(ids, x.create("").ID)
			}
			x.setLane(quota)
			for range n - n/2 {
				ids = append(ids, x.create("").ID)
			}
			return ids
		}},
	}
}

// TestQuotas_Rate: no more begin within a window. model.md "Budgets and quotas"; defects 44, 54, 57, 58.
func TestQuotas_Rate(t *testing.T) {
	t.Parallel()
	var cases []quotaCase
	for _, a := range quotaAttachments() {
		cases = append(cases, quotaCase{"attached to " + a.name + ": so many begin, the next at its moment", a.limitsTheRate})
	}
	runQuotaCases(t, append(cases, quotasRateCases...))
}

// limitsTheRate checks that two of five begin within ten seconds.
func (a quotaAttachment) limitsTheRate(x *quotaTest) {
	q := x.quota(`"window_seconds":10,"max_requests_per_window":2`)
	ids := a.make(x, q, 5)
	begun := x.server.Clock.Now()
	waiting := map[uuid.UUID]bool{}
	for _, id := range ids {
		waiting[id] = true
	}
	take := func(claims ...oapi.Claim) {
		x.t.Helper()
		for _, c := range claims {
			if !waiting[c.Execution.ID] {
				x.t.Errorf("%s was claimed", c.Execution.ID)
			}
			delete(waiting, c.Execution.ID)
		}
	}
	held := func(next time.Time) {
		x.t.Helper()
		x.none(`"max":100`)
		for id := range waiting {
			if at := x.heldUp(q, "", id, atQuota); at == nil || !at.Time().Equal(next) {
				x.t.Errorf("next at %v, want %s", at, next)
			}
		}
	}
	take(x.claim(lasting))
	x.advance(3 * time.Second)
	take(x.claim(`"max":100,` + lasting)) // there is room for one
	held(begun.Add(10 * time.Second))
	w := x.wait(lasting)
	x.settled()
	x.until(begun.Add(10*time.Second - time.Millisecond))
	x.none("")
	x.advance(time.Millisecond)
	take(w.got())
	held(begun.Add(13 * time.Second))
	x.until(begun.Add(13 * time.Second))
	take(x.claim(`"max":100,` + lasting)) // in the place of the second one
	held(begun.Add(20 * time.Second))
}

var quotasRateCases = []quotaCase{
	{"a retry and a takeover are starts, what goes on is none", func(x *quotaTest) {
		q := x.quota(`"window_seconds":3600,"max_requests_per_window":3`)
		left := func(want string) {
			x.t.Helper()
			other := x.on("other").create("")
			got := x.admit(q, other.ID).Want(http.StatusOK).Str("outcome")
			if got != want {
				x.t.Fatalf("another one is %s, want %s", got, want)
			}
		}
		e := x.create(underQuotas(q) + "," + retryPolicy(9))
		c := x.claim(`"lease_ttl_ms":60000`) // 1
		x.report(c, "release", "").Want(http.StatusOK)
		c = x.claim(`"lease_ttl_ms":60000`)
		x.report(c, "delay", `"delay_ms":1000`).Want(http.StatusOK)
		x.advance(time.Second)
		c = x.claim(`"lease_ttl_ms":60000`)
		x.report(c, "suspend", waitForGo).Want(http.StatusOK)
		x.operator(e.ID, "resume", "").Want(http.StatusOK)
		x.claim(`"lease_ttl_ms":60000`)
		x.advance(time.Minute)
		if c = x.claim(`"lease_ttl_ms":60000`); c.Kind != "reclaimed" { // 2
			x.t.Errorf("a %s claim", c.Kind)
		}
		x.report(c, "fail", `"reason":"boom","retry_after_ms":0`).Want(http.StatusOK)
		x.advance(0)
		if c = x.claim(`"lease_ttl_ms":60000`); c.Kind != "retry" { // 3
			x.t.Errorf("a %s claim", c.Kind)
		}
		left("rate_exceeded")
		x.report(c, "release", "").Want(http.StatusOK)
		c = x.claim(`"lease_ttl_ms":60000`)
		x.report(c, "fail", `"reason":"boom","retry_after_ms":0`).Want(http.StatusOK)
		x.advance(0)
		x.none("")
		x.heldUp(q, "", e.ID, atQuotaRetry)
		x.advance(time.Hour)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		left("admitted") // the window is over
	}},
	{"jitter moves the moment, within its bounds, and then it is a moment", func(x *quotaTest) {
		q := x.quota(`"window_seconds":10,"max_requests_per_window":1,"jitter_ms":5000`)
		begun := x.server.Clock.Now()
		x.create(underQuotas(q))
		second := x.create(underQuotas(q))
		x.claim(`"max":1,` + lasting)
		x.none("")
		next := x.heldUp(q, "", second.ID, atQuota)
		if next.Time().Before(begun.Add(10*time.Second)) || next.Time().After(begun.Add(15*time.Second)) {
			x.t.Fatalf("next at %s, it began at %s", next, begun)
		}
		w := x.wait(lasting)
		x.settled()
		x.until(next.Time())
		if got := w.got(); got.Execution.ID != second.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
	}},
}

// TestQuotas_Cap: no more are at work than may be, from the first claim until the end. model.md "Budgets and quotas"; defect 55.
func TestQuotas_Cap(t *testing.T) {
	t.Parallel()
	var cases []quotaCase
	for _, a := range quotaAttachments() {
		cases = append(cases, quotaCase{"attached to " + a.name + ": so many at a time, the next when one ends", func(x *quotaTest) {
			q := x.quota(`"max_concurrent":2`)
			ids := a.make(x, q, 5)
			got := x.claims(`"max":100,` + lasting)
			if len(got) != 2 {
				x.t.Fatalf("%d are claimed", len(got))
			}
			x.none("")
			x.holders(q, got[0].Execution.ID, got[1].Execution.ID)
			for _, id := range ids {
				if id != got[0].Execution.ID && id != got[1].Execution.ID && x.heldUp(q, "", id, atQuota) != nil {
					x.t.Errorf("%s goes on by time", id)
				}
			}
			for range 3 {
				w := x.wait(lasting)
				x.settled()
				x.report(got[0], "complete", "").Want(http.StatusOK)
				got = append(got[1:], w.got())
				x.none("")
				x.holders(q, got[0].Execution.ID, got[1].Execution.ID)
			}
		}})
	}
	runQuotaCases(t, append(cases, quotaEndings()...))
}

// quotaEndings are what gives a slot back, and what does not.
func quotaEndings() []quotaCase {
	var cases []quotaCase
	for _, e := range quotaEnds {
		cases = append(cases, quotaCase{"free again by: " + e.name, e.frees})
	}
	for _, p := range quotaPauses {
		cases = append(cases, quotaCase{"kept in spite of: " + p.name + "; it goes on, and nobody else", p.keeps})
	}
	return append(cases, quotaSlotCases...)
}

// quotaEnd is an end that gives a slot back.
type quotaEnd struct {
	name, members string
	end           func(x *quotaTest, c oapi.Claim)
}

var quotaEnds = []quotaEnd{
	{"complete", "", func(x *quotaTest, c oapi.Claim) { x.report(c, "complete", "").Want(http.StatusOK) }},
	{"complete in a batch", "", func(x *quotaTest, c oapi.Claim) {
		x.Post("/v1/completions", `{"items":[`+completionItem(c, `"result":1`)+`]}`).Want(http.StatusOK)
	}},
	{"fail for good", retryPolicy(3), func(x *quotaTest, c oapi.Claim) { x.report(c, "fail", quotaEndedBadly).Want(http.StatusOK) }},
	{"fail without retries left", "", func(x *quotaTest, c oapi.Claim) { x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK) }},
	{"operator-cancel", "", func(x *quotaTest, c oapi.Claim) { x.operated(c.Execution.ID, "operator-cancel", `"reason":"no"`) }},
	{"cancel by its worker", "", func(x *quotaTest, c oapi.Claim) { x.report(c, "cancel", `"reason":"x"`).Want(http.StatusOK) }},
	{"its deadline", "deadline", func(x *quotaTest, _ oapi.Claim) { x.advance(20 * time.Minute) }},
	{"put off, then its deadline", "deadline", func(x *quotaTest, c oapi.Claim) {
		x.report(c, "delay", `"delay_ms":7200000`).Want(http.StatusOK)
		x.none("")
		x.advance(20 * time.Minute)
	}},
	{"suspended, then cancelled", "", func(x *quotaTest, c oapi.Claim) {
		x.report(c, "suspend", waitForGo).Want(http.StatusOK)
		x.none("")
		x.operated(c.Execution.ID, "operator-cancel", `"reason":"no"`)
	}},
	{"lost too often", `"policy":{"max_reclaim_count":0}`, func(x *quotaTest, _ oapi.Claim) {
		x.advance(time.Hour)
		x.none(`"lanes":["` + x.lane + `-nothing"]`)
		x.ask(`"worker_id":"w3"`) // it ends the lost one
	}},
	{"given back by hand", "", func(x *quotaTest, c oapi.Claim) {
		var quota uuid.UUID
		for _, q := range c.Execution.QuotaPolicyIds {
			quota = q
		}
		x.dismiss(quota, c.Execution.ID)
	}},
}

// frees checks that the end lets the next one begin.
func (e quotaEnd) frees(x *quotaTest) {
	q := x.quota(`"max_concurrent":1`)
	members := e.members
	if members == "deadline" {
		members = `"deadline_at":` + spelled(x.server.Clock.Now().Add(20*time.Minute))
	}
	first := x.create(executionMembers(`"priority":9`, underQuotas(q), members))
	c := x.claim(lasting)
	second := x.create(underQuotas(q))
	x.none("")
	x.heldUp(q, "", second.ID, atQuota)
	w := x.wait(lasting)
	x.settled()
	e.end(x, c)
	if got := w.got(); got.Execution.ID != second.ID || c.Execution.ID != first.ID {
		x.t.Errorf("got %s", got.Execution.ID)
	}
	x.holders(q, second.ID)
}

// quotaPause is what gives no slot back.
type quotaPause struct {
	name string
	give func(x *quotaTest, c oapi.Claim)
	back func(x *quotaTest, c oapi.Claim) // what makes it claimable again; nil if it is
	kind oapi.ClaimKind
}

var quotaPauses = []quotaPause{
	{"release", func(x *quotaTest, c oapi.Claim) { x.report(c, "release", "").Want(http.StatusOK) }, nil, "resumed"},
	{"delay", func(x *quotaTest, c oapi.Claim) { x.report(c, "delay", `"delay_ms":60000`).Want(http.StatusOK) },
		func(x *quotaTest, _ oapi.Claim) { x.advance(time.Minute) }, "resumed"},
	{"suspend", func(x *quotaTest, c oapi.Claim) { x.report(c, "suspend", waitForGo).Want(http.StatusOK) },
		func(x *quotaTest, c oapi.Claim) { x.operator(c.Execution.ID, "resume", "").Want(http.StatusOK) }, "resumed"},
	{"wait-children", func(x *quotaTest, c oapi.Claim) { x.report(c, "wait-children", "").Want(http.StatusOK) },
		func(x *quotaTest, c oapi.Claim) { x.operator(c.Execution.ID, "resume", "").Want(http.StatusOK) }, "resumed"},
	{"retry backoff", func(x *quotaTest, c oapi.Claim) { x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK) },
		func(x *quotaTest, _ oapi.Claim) { x.advance(retryDelay) }, "retry"},
	{"lease expiry", func(x *quotaTest, _ oapi.Claim) { x.advance(time.Minute) }, nil, "reclaimed"},
	{"revoke", func(x *quotaTest, c oapi.Claim) { x.operator(c.Execution.ID, "revoke-lease", "").Want(http.StatusOK) }, nil, "reclaimed"},
}

// keeps checks that the next one begins only when the first has ended.
func (p quotaPause) keeps(x *quotaTest) {
	q := x.quota(`"max_concurrent":1`)
	first := x.create(executionMembers(`"priority":9`, underQuotas(q), retryPolicy(3)))
	second := x.create(underQuotas(q))
	c := x.claim(`"lease_ttl_ms":60000`)
	p.give(x, c)
	x.holders(q, first.ID)
	if p.back != nil {
		x.none("")
		x.heldUp(q, "", second.ID, atQuota)
		p.back(x, c)
		x.holders(q, first.ID)
	}
	again := x.claims(`"max":100,` + lasting)
	if len(again) != 1 || again[0].Execution.ID != first.ID || again[0].Kind != p.kind {
		x.t.Fatalf("%+v", again)
	}
	x.none("")
	x.heldUp(q, "", second.ID, atQuota)
	x.report(again[0], "complete", "").Want(http.StatusOK)
	if got := x.claim(lasting); got.Execution.ID != second.ID {
		x.t.Errorf("got %s", got.Execution.ID)
	}
}

var quotaSlotCases = []quotaCase{
	{"a replay needs a new slot", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		first := x.create(executionMembers(`"priority":9`, underQuotas(q)))
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		x.holders(q)
		x.create(underQuotas(q))
		c := x.claim(lasting)
		x.operator(first.ID, "replay", "").Want(http.StatusOK)
		x.none("")
		x.heldUp(q, "", first.ID, atQuotaReplay)
		w := x.wait(lasting)
		x.settled()
		x.report(c, "complete", "").Want(http.StatusOK)
		if got := w.got(); got.Execution.ID != first.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
		x.holders(q, first.ID)
	}},
	{"a flow that is cancelled gives all its slots back at once", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":40`)
		f, ids := x.startedFlow(underQuotas(q) + "," + x.nodes(60, ""))
		if n := len(x.claims(`"max":100,` + lasting)); n != 40 {
			x.t.Fatalf("%d are claimed", n)
		}
		others := x.on("others")
		others.createMany(50, func(int) string { return underQuotas(q) })
		others.none("")
		w := others.wait(lasting)
		others.settled()
		x.Post(flowPath(f, "cancel"), `{}`).Want(http.StatusOK)
		x.advance(time.Minute)
		w.got()
		if n := len(others.claims(`"max":100,` + lasting)); n != 39 {
			x.t.Errorf("%d are claimed", n)
		}
		for _, id := range ids {
			if e := x.get(id); e.PublicState != "cancelled" {
				x.t.Errorf("%s is %s", id, e.PublicState)
			}
		}
	}},
	{"what is skipped gives back what it was admitted for", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		f := answerAs[oapi.Flow](x.Post("/v1/flows", `{"goal":"x","start":true,"graph":{"executions":[`+x.sent(`"key":"up"`)+`,`+
			x.on("down").sent(`"key":"down","needs":["up"],`+underQuotas(q))+`]}}`).Want(http.StatusCreated))
		down := f.Graph.Executions["down"]
		x.admits(q, down, "admitted")
		other := x.on("other")
		e := other.create(underQuotas(q))
		other.none("")
		x.report(x.claim(lasting), "fail", quotaEndedBadly).Want(http.StatusOK)
		x.advance(time.Minute)
		if got := x.get(down); got.PublicState != "skipped" {
			x.t.Fatalf("it is %s", got.PublicState)
		}
		x.holders(q)
		if got := other.claim(lasting); got.Execution.ID != e.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
	}},
}
