package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// quotaProperty checks a property on each database, a few runs of it: each has a namespace of its own.
func quotaProperty(t *testing.T, name string, run func(x *quotaTest, rt *rapid.T)) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now().Truncate(time.Millisecond)))
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			if rapid.IntRange(0, 7).Draw(rt, "one run in a few will do") > 0 {
				return
			}
			runs++
			x := quotasOn(t, s, fmt.Sprintf("%s-%d", name, runs))
			x.Client = s.For(rapidTB{t, rt}).In(fmt.Sprintf("%s-%d", name, runs))
			run(x, rt)
			x.audit()
		})
	})
}

// quotaStart is an attempt that began.
type quotaStart struct {
	key string
	at  time.Time
}

// quotaRun is one run of the property of quotas.
type quotaRun struct {
	*quotaTest
	rt     *rapid.T
	quota  oapi.Quota
	starts []quotaStart
	held   map[uuid.UUID]oapi.Claim
}

// begin notes a start, and checks that there are not too many of them within a window.
func (r *quotaRun) begin(e *oapi.Execution) {
	key, now, recent := e.Tags["org.tenant"], r.server.Clock.Now(), int64(0)
	if r.quota.KeyTag == nil {
		key = ""
	}
	r.starts = append(r.starts, quotaStart{key, now})
	for _, s := range r.starts {
		if s.key == key && now.Before(s.at.Add(time.Duration(r.quota.WindowSeconds)*time.Second)) {
			recent++
		}
	}
	if most := r.quota.MaxRequestsPerWindow; most > 0 && recent > most {
		r.rt.Fatalf("%d of %q began within %d s, of %d", recent, key, r.quota.WindowSeconds, most)
	}
}

// claimSome claims up to n; if it gets none, nothing has changed.
func (r *quotaRun) claimSome(n int) {
	before := r.counts(r.quota.ID)
	claims := r.claims(fmt.Sprintf(`"max":%d,"lease_ttl_ms":5000`, n))
	had := map[uuid.UUID]bool{}
	for _, a := range before.Admissions {
		had[a.ExecutionID] = true
	}
	for _, c := range claims { // a first attempt that was admitted by hand has begun with that
		if c.Kind == "retry" || c.Kind == "reclaimed" || c.Kind != "resumed" && !had[c.Execution.ID] {
			r.begin(&c.Execution)
		}
		r.held[c.Execution.ID] = c
	}
	if diff := cmp.Diff(before, r.counts(r.quota.ID)); len(claims) == 0 && diff != "" {
		r.rt.Fatalf("nothing was claimed, and yet (-before +after):\n%s", diff)
	}
}

func (r *quotaRun) admitOne(id uuid.UUID) {
	before := r.counts(r.quota.ID)
	answer := r.admit(r.quota.ID, id)
	switch e := r.get(id); {
	case e.CompletedAt != nil:
		answer.Problem("already_terminal")
	case answer.Want(http.StatusOK).Str("outcome") == "admitted":
		r.begin(&e)
		return
	}
	if diff := cmp.Diff(before, r.counts(r.quota.ID)); diff != "" {
		r.rt.Fatalf("%s, and yet (-before +after):\n%s", answer.Body, diff)
	}
}

// TestQuotas_Property: over any window no more begin than may, no more have slots than may be at work, what is active is what is
// listed, and what is refused changes nothing. flows-streams-budgets.md 9/26, 27.
func TestQuotas_Property(t *testing.T) {
	t.Parallel()
	quotaProperty(t, "property", func(x *quotaTest, rt *rapid.T) {
		keyed := rapid.SampledFrom([]string{"", `,"key_tag":"org.tenant"`}).Draw(rt, "keyed")
		id := x.quota(fmt.Sprintf(`"window_seconds":%d,"max_requests_per_window":%d,"max_concurrent":%d,"jitter_ms":%d%s`, rapid.IntRange(1, 10).Draw(rt, "window"),
			rapid.IntRange(0, 4).Draw(rt, "requests"), rapid.IntRange(0, 3).Draw(rt, "slots"), rapid.SampledFrom([]int{0, 700}).Draw(rt, "jitter"), keyed))
		r := &quotaRun{quotaTest: x, rt: rt, quota: x.read(id), held: map[uuid.UUID]oapi.Claim{}}
		tenants := []string{"a", "b", ""}
		ids := x.createMany(10, func(i int) string {
			return executionMembers(underQuotas(id), ofTenant(tenants[i%3]), `"policy":{"max_reclaim_count":2,"retry_policy":{"max_retries":2,"backoff":{"type":"fixed","delay_ms":1000}}}`)
		})
		for range 20 {
			one := rapid.SampledFrom(ids).Draw(rt, "which")
			c, held := r.held[one]
			switch op := rapid.SampledFrom([]string{"claim", "claim", "claim", "report", "report", "admit", "dismiss", "advance", "tag", "replay", "cancel"}).Draw(rt, "what"); op {
			case "claim":
				r.claimSome(rapid.IntRange(1, 5).Draw(rt, "max"))
			case "report":
				if held { // the lease may be over
					x.report(c, rapid.SampledFrom([]string{"complete", "fail", "release", "renew"}).Draw(rt, "report"), "")
				}
			case "admit":
				r.admitOne(one)
			case "dismiss":
				x.dismiss(id, one)
			case "advance":
				x.advance(time.Duration(rapid.IntRange(1, 6000).Draw(rt, "ms")) * time.Millisecond)
			case "tag":
				x.tag(one, "org.tenant", rapid.SampledFrom(tenants).Draw(rt, "tenant")).Want(http.StatusOK)
			case "replay":
				x.operator(one, "replay", "")
			case "cancel":
				x.operator(one, "operator-cancel", `"reason":"no"`)
			}
			if most := r.quota.MaxConcurrent; most > 0 {
				by := map[string]int64{}
				for _, a := range x.admissions(id, "") {
					if by[a.Key]++; by[a.Key] > most {
						rt.Fatalf("%d of %q are at work, of %d", by[a.Key], a.Key, most)
					}
				}
			}
		}
	})
}

// TestQuotas_Explain_Property: it says claimable just when a claim gets it. executions.md 6.8/117.
func TestQuotas_Explain_Property(t *testing.T) {
	t.Parallel()
	quotaProperty(t, "explain", func(x *quotaTest, rt *rapid.T) {
		quotas := []uuid.UUID{x.quota(`"max_concurrent":2`), x.quota(`"max_requests_per_window":2,"window_seconds":5`), x.quota(`"max_concurrent":1,"max_requests_per_window":3,"key_tag":"org.tenant"`)}
		budget := x.Post("/v1/budgets", `{"hard_limits":{"tokens":100}}`).Want(http.StatusCreated).Str("id")
		held := map[int]oapi.Claim{}
		var ids []uuid.UUID
		for i := range 8 { // each in a lane of its own: nothing stands before it
			members := []string{ofTenant(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tenant")), `"policy":{"retry_policy":{"max_retries":9,"backoff":{"type":"fixed","delay_ms":1000}}}`}
			var under []uuid.UUID
			for _, q := range quotas {
				if rapid.Bool().Draw(rt, "under it") {
					under = append(under, q)
				}
			}
			members = append(members, underQuotas(under...))
			if rapid.Bool().Draw(rt, "spends") {
				members = append(members, fmt.Sprintf(`"budget_ids":[%q],"estimate":{"tokens":%d}`, budget, rapid.IntRange(0, 60).Draw(rt, "estimate")))
			}
			ids = append(ids, x.on(fmt.Sprint(i)).create(executionMembers(members...)).ID)
		}
		for range 20 {
			i := rapid.IntRange(0, len(ids)-1).Draw(rt, "which")
			y := x.on(fmt.Sprint(i))
			switch rapid.SampledFrom([]string{"claim", "claim", "claim", "report", "spend", "advance", "tag", "topup", "replay"}).Draw(rt, "what") {
			case "claim":
				why := y.why(ids[i])
				claims := y.claims(`"lease_ttl_ms":8000`)
				if why.Claimable != (len(claims) == 1) {
					rt.Fatalf("%d is %s: it says %v, %s; and %d are claimed", i, y.get(ids[i]).PublicState, why.Claimable, why.Summary, len(claims))
				}
				if len(claims) == 1 {
					held[i] = claims[0]
					continue
				}
				if again := y.why(ids[i]); again.Claimable { // closed now
					rt.Fatalf("%d: %s", i, again.Summary)
				}
			case "report":
				if c, ok := held[i]; ok {
					y.report(c, rapid.SampledFrom([]string{"complete", "fail", "release"}).Draw(rt, "report"), "")
				}
			case "spend":
				x.Post("/v1/budgets/"+budget+"/usage", fmt.Sprintf(`{"dimensions":{"tokens":%d}}`, rapid.IntRange(0, 40).Draw(rt, "tokens"))).Want(http.StatusOK)
			case "advance":
				x.advance(time.Duration(rapid.IntRange(1, 6000).Draw(rt, "ms")) * time.Millisecond)
			case "tag":
				y.tag(ids[i], "org.tenant", rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tenant")).Want(http.StatusOK)
			case "topup":
				x.Post("/v1/budgets/"+budget+"/topup", `{"dimensions":{"tokens":20}}`).Want(http.StatusOK)
			case "replay":
				y.operator(ids[i], "replay", "")
			}
		}
	})
}

// why asks why an execution is not running. Before the first claim that could not have it, it is shown as waiting still.
func (x *quotaTest) why(id uuid.UUID) oapi.Explanation {
	x.t.Helper()
	return answerAs[oapi.Explanation](x.Get(operatorPath(id, "explain")).Want(http.StatusOK))
}

const (
	quotaTenants   = 10
	quotaTenantCap = 3
)

func tenantName(i int) string { return fmt.Sprint("tenant-", i%quotaTenants) }

// TestQuotas_Tenants_Steps: no claim comes back empty, or with less than it asks for, while a tenant has work and a slot. The model
// is two counters for each tenant.
func TestQuotas_Tenants_Steps(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, []quotaCase{{"step by step", func(x *quotaTest) {
		q := x.quota(fmt.Sprintf(`"max_concurrent":%d,"key_tag":"org.tenant"`, quotaTenantCap))
		x.setLane(q)
		random := rand.New(rand.NewPCG(1, 2)) // the same ones each time
		const n = 120
		waiting, active, done := map[string]int{}, map[string]int{}, 0
		x.createMany(n, func(i int) string {
			tenant := tenantName(i * i) // some have more than others
			waiting[tenant]++
			return fmt.Sprintf(`"priority":%d,`, random.IntN(3)) + ofTenant(tenant)
		})
		var held []oapi.Claim
		for step := 0; done < n; step++ {
			most, room := 1+random.IntN(12), 0
			for tenant, left := range waiting {
				room += min(left, quotaTenantCap-active[tenant])
			}
			got := x.claims(fmt.Sprintf(`"max":%d,%s`, most, lasting))
			if len(got) != min(most, room) {
				x.t.Fatalf("step %d: %d are claimed, want %d of %d", step, len(got), most, room)
			}
			for _, c := range got {
				tenant := c.Execution.Tags["org.tenant"]
				waiting[tenant]--
				if active[tenant]++; active[tenant] > quotaTenantCap {
					x.t.Fatalf("step %d: %d of %s", step, active[tenant], tenant)
				}
			}
			held = append(held, got...)
			for range random.IntN(len(held) + 1) {
				i := random.IntN(len(held))
				x.report(held[i], "complete", "").Want(http.StatusOK)
				active[held[i].Execution.Tags["org.tenant"]]--
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				done++
			}
		}
		x.none("")
		x.holders(q)
	}}})
}

// TestQuotas_Tenants: many tenants with a cap each, and many workers: the caps hold at every moment, and everything completes once.
func TestQuotas_Tenants(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, []quotaCase{{"all at once", func(x *quotaTest) {
		q := x.quota(fmt.Sprintf(`"max_concurrent":%d,"key_tag":"org.tenant"`, quotaTenantCap))
		x.setLane(q)
		const n, workers = 600, 40
		ids := x.createMany(n, func(i int) string { return ofTenant(tenantName(i)) })
		active := map[string]*atomic.Int64{}
		for i := range quotaTenants {
			active[tenantName(i)] = &atomic.Int64{}
		}
		var done atomic.Int64
		var completed sync.Map
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for done.Load() < n && !x.t.Failed() {
					answer := patiently(func() *apitest.Response {
						return x.ask(fmt.Sprintf(`"worker_id":"w%d","max":%d,%s`, w, 1+w%3, lasting), "Prefer: wait=1")
					})
					if answer.Status == http.StatusNoContent {
						continue
					}
					claims := answerAs[oapi.Claims](answer.Want(http.StatusOK)).Claims
					for _, c := range claims {
						if n := active[c.Execution.Tags["org.tenant"]].Add(1); n > quotaTenantCap {
							x.t.Errorf("%d of %s are at work", n, c.Execution.Tags["org.tenant"])
						}
					}
					for _, c := range claims {
						active[c.Execution.Tags["org.tenant"]].Add(-1) // before it is said: the slot is free in the meantime at the latest
						patiently(func() *apitest.Response { return x.report(c, "complete", "") }).Want(http.StatusOK)
						if _, twice := completed.LoadOrStore(c.Execution.ID, true); twice {
							x.t.Errorf("%s was completed twice", c.Execution.ID)
						}
						done.Add(1)
					}
				}
			})
		}
		all.Go(func() { // what the server says meanwhile
			for i := 0; done.Load() < n && !x.t.Failed(); i++ {
				tenant := tenantName(i)
				if got := x.Get(quotaPath(q, "admissions") + "?key=" + tenant).Want(http.StatusOK).Len("items"); got > quotaTenantCap {
					x.t.Errorf("%d of %s have slots", got, tenant)
				}
			}
		})
		all.Wait()
		for _, id := range ids {
			if _, ok := completed.Load(id); !ok {
				x.t.Errorf("%s was not completed", id)
			}
		}
		if got := x.counted(); got["completed"] != n || len(got) != 1 {
			x.t.Errorf("%v", got)
		}
		x.holders(q)
	}}})
}

// TestQuotas_Storm: all that gives and takes slots at once. In the end they are those of who is at work, and nobody was forgotten.
func TestQuotas_Storm(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, []quotaCase{{"it comes to an end", func(x *quotaTest) {
		cap3, other := x.quota(`"max_concurrent":3,"key_tag":"org.tenant"`), x.quota(`"max_concurrent":7`)
		x.setLane(cap3)
		const n, workers = 60, 8
		ids := x.createMany(n, func(i int) string {
			return executionMembers(ofTenant(tenantName(i%3)), []string{"", underQuotas(other)}[i%2], `"policy":{"max_reclaim_count":3,"retry_policy":{"max_retries":2,"backoff":{"type":"fixed","delay_ms":0}}}`)
		})
		for round := range 100 {
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() { x.workSomehow(w, round) })
			}
			all.Go(func() {
				id := ids[round%n]
				x.admit(other, id)
				x.tag(id, "org.tenant", tenantName(round)).Want(http.StatusOK)
				x.dismiss(other, id)
				if round%5 == 0 {
					x.putLane([]string{underQuotas(cap3), underQuotas(cap3, other), underQuotas()}[round/5%3]).Want(http.StatusOK)
				}
			})
			all.Wait()
			x.audit()
			x.advance(time.Minute)
			if got := x.counted(); got["completed"]+got["failed"] == n {
				break
			} else if round == 99 {
				x.t.Errorf("it does not end: %v", got)
			}
		}
		if x.read(cap3).Active != 0 || x.read(other).Active != 0 {
			x.t.Errorf("%+v %+v", x.read(cap3), x.read(other))
		}
		if list := strings.Join(x.closed(), "; "); list != "" {
			x.t.Errorf("closed, with somebody behind: %s", list)
		}
	}}})
}

// closed are the claim buckets of the case that are closed although somebody stands in them.
func (x *quotaTest) closed() (list []string) {
	x.t.Helper()
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		return q.Select(&list, `SELECT b.held_detail FROM claim_buckets b WHERE b.held_by IS NOT NULL AND b.lane = ? AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)`, x.lane)
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return list
}
