package app_test

import (
	"fmt"
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

// quotaTest is one case about quotas, in a namespace that nobody else uses. What it counts is audited when it ends.
type quotaTest struct{ *executionTest }

// quotaCase is a case by its name, a plain phrase with the line of the reference that it stands for.
type quotaCase struct {
	name string
	run  func(x *quotaTest)
}

// runQuotaCases runs cases one after the other on one server for each database. The clock stands still, and nothing happens by
// itself, until a case moves it.
func runQuotaCases(t *testing.T, cases []quotaCase) {
	t.Helper()
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now().Truncate(time.Millisecond)))
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				x := quotasOn(t, s, fmt.Sprintf("quotas-%d", i))
				c.run(x)
				x.audit()
			})
		}
	})
}

func quotasOn(t *testing.T, s *apptest.Server, namespace string) *quotaTest {
	t.Helper()
	return &quotaTest{executionsOn(t, s, "q").in(namespace)}
}

// on returns the same case in another lane.
func (x *quotaTest) on(lane string) *quotaTest { return &quotaTest{x.executionTest.on(lane)} }

// quota makes a quota.
func (x *quotaTest) quota(members string) uuid.UUID {
	x.t.Helper()
	return answerAs[oapi.Quota](x.Post("/v1/quotas", executionJSON(members)).Want(http.StatusCreated)).ID
}

func quotaPath(id uuid.UUID, parts ...string) string {
	return "/v1/quotas/" + strings.Join(append([]string{id.String()}, parts...), "/")
}

// read reads a quota.
func (x *quotaTest) read(id uuid.UUID) oapi.Quota {
	x.t.Helper()
	return answerAs[oapi.Quota](x.Get(quotaPath(id)).Want(http.StatusOK))
}

// admit asks a quota by hand.
func (x *quotaTest) admit(quota, id uuid.UUID, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(quotaPath(quota, "admissions"), fmt.Sprintf(`{"execution_id":%q}`, id), headers...)
}

// admits asks a quota by hand and checks what it says. What it refuses changes nothing.
func (x *quotaTest) admits(quota, id uuid.UUID, want string) *apitest.Response {
	x.t.Helper()
	before := x.snapshot(id)
	was := x.counts(quota)
	answer := x.admit(quota, id).Want(http.StatusOK)
	if got := answer.Str("outcome"); got != want {
		x.t.Fatalf("the quota says %s, want %s", got, want)
	}
	if want != "admitted" {
		if diff := cmp.Diff(before, x.snapshot(id)) + cmp.Diff(was, x.counts(quota)); diff != "" {
			x.t.Errorf("%s, and yet something was changed (-before +after):\n%s", want, diff)
		}
	}
	return answer
}

// dismiss takes a slot back by hand.
func (x *quotaTest) dismiss(quota, id uuid.UUID) {
	x.t.Helper()
	x.Do(http.MethodDelete, quotaPath(quota, "admissions", id.String()), nil).Want(http.StatusNoContent)
}

// admissions lists who has a slot, in pages of two so that there are some.
func (x *quotaTest) admissions(quota uuid.UUID, query string) (all []oapi.Admission) {
	x.t.Helper()
	for path := quotaPath(quota, "admissions") + "?limit=2" + query; path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.AdmissionList](answer)
		all = append(all, p.Items...)
		path = nextPage(x.t, answer, p.NextCursor)
	}
	return all
}

// holders checks who has a slot, in any order.
func (x *quotaTest) holders(quota uuid.UUID, want ...uuid.UUID) {
	x.t.Helper()
	got := []string{}
	for _, a := range x.admissions(quota, "") {
		got = append(got, a.ExecutionID.String())
	}
	ids := []string{}
	for _, id := range want {
		ids = append(ids, id.String())
	}
	slices.Sort(got)
	slices.Sort(ids)
	if diff := cmp.Diff(ids, got); diff != "" {
		x.t.Errorf("the slots of %s (-want +got):\n%s", quota, diff)
	}
	if active := x.read(quota).Active; active != int64(len(want)) {
		x.t.Errorf("%d active, want %d", active, len(want))
	}
}

// quotaCounts is all that a quota has counted.
type quotaCounts struct {
	Quota      string
	Admissions []oapi.Admission
	Starts     []int64
}

func (x *quotaTest) counts(quota uuid.UUID) quotaCounts {
	x.t.Helper()
	c := quotaCounts{Quota: string(x.Get(quotaPath(quota)).Want(http.StatusOK).Body), Admissions: x.admissions(quota, "")}
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		return q.Select(&c.Starts, `SELECT starts FROM quota_keys WHERE quota_id = ? AND starts > 0 ORDER BY key`, store.ID(quota))
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// audit checks the quotas of the case: what they say is what they list, no more than they let be, and nothing that has ended.
func (x *quotaTest) audit() {
	x.t.Helper()
	for path := "/v1/quotas?limit=500"; path != ""; {
		answer := x.Get(path).Want(http.StatusOK)
		p := answerAs[oapi.QuotaList](answer)
		for _, q := range p.Items {
			all, by := x.admissions(q.ID, ""), map[string]int64{}
			for _, a := range all {
				if by[a.Key]++; q.MaxConcurrent > 0 && by[a.Key] > q.MaxConcurrent {
					x.t.Errorf("quota %s lets %d of %q be at work, of %d", q.ID, by[a.Key], a.Key, q.MaxConcurrent)
				}
				if e := x.get(a.ExecutionID); e.CompletedAt != nil {
					x.t.Errorf("%s is %s and has a slot", e.ID, e.PublicState)
				}
			}
			if q.Active != int64(len(all)) {
				x.t.Errorf("quota %s says %d are active, and lists %d", q.ID, q.Active, len(all))
			}
		}
		path = nextPage(x.t, answer, p.NextCursor)
	}
}

// underQuotas attaches something to quotas.
func underQuotas(quotas ...uuid.UUID) string {
	ids := []string{}
	for _, id := range quotas {
		ids = append(ids, fmt.Sprintf("%q", id))
	}
	return `"quota_policy_ids":[` + strings.Join(ids, ",") + `]`
}

// ofTenant is a tag that quotas count by.
func ofTenant(name string) string { return `"tags":{"org.tenant":"` + name + `"}` }

// TestQuotas: quotas asked by hand. reference: flows-streams-budgets.md 6.8, 6.9, 10.8. The reconciler of 10.8 has nothing to correct
// here: slots are counted in the transaction that gives them.
func TestQuotas(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, quotasCases)
}

var quotasCases = []quotaCase{
	{"created, not overwritten, and counts nothing yet; none for an unknown one (10.8)", func(x *quotaTest) {
		id := uuid.New()
		body := fmt.Sprintf(`{"id":%q,"window_seconds":7,"max_requests_per_window":5,"max_concurrent":3,"jitter_ms":11,"key_tag":"org.tenant"}`, id)
		made := x.Post("/v1/quotas", body).Want(http.StatusCreated)
		want := oapi.Quota{ID: id, Namespace: "quotas-0", WindowSeconds: 7, MaxRequestsPerWindow: 5, MaxConcurrent: 3, JitterMs: 11, KeyTag: new("org.tenant"), CreatedAt: answerAs[oapi.Quota](made).CreatedAt}
		if diff := cmp.Diff(want, x.read(id)); diff != "" || made.Header.Get("Location") != quotaPath(id) {
			x.t.Errorf("%v (-want +got):\n%s", made.Header, diff)
		}
		x.admits(id, x.create("").ID, "admitted")
		again := x.Post("/v1/quotas", fmt.Sprintf(`{"id":%q,"window_seconds":99,"max_requests_per_window":1}`, id)).Want(http.StatusOK)
		want.Active = 1
		if diff := cmp.Diff(want, answerAs[oapi.Quota](again)); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%v (-want +got):\n%s", again.Header, diff)
		}
		x.Get(quotaPath(uuid.New())).Problem(fault.CodeNotFound)
	}},
	{"two in a second: the third comes too soon, and in time after it (10.8)", func(x *quotaTest) {
		q := x.quota(`"window_seconds":1,"max_requests_per_window":2`)
		a, b, c := x.create("").ID, x.create("").ID, x.create("").ID
		x.admits(q, a, "admitted")
		x.advance(300 * time.Millisecond)
		x.admits(q, b, "admitted")
		x.advance(300 * time.Millisecond)
		if late := x.admits(q, c, "rate_exceeded").Int("retry_after_ms"); late != 400 {
			x.t.Errorf("to be tried again after %d ms", late)
		}
		x.advance(399 * time.Millisecond)
		if late := x.admits(q, c, "rate_exceeded").Int("retry_after_ms"); late != 1 {
			x.t.Errorf("to be tried again after %d ms", late)
		}
		x.advance(time.Millisecond)
		x.admits(q, c, "admitted")
		if late := x.admits(q, x.create("").ID, "rate_exceeded").Int("retry_after_ms"); late != 300 { // the window slides
			x.t.Errorf("to be tried again after %d ms", late)
		}
		x.advance(1100 * time.Millisecond)
		x.admits(q, x.create("").ID, "admitted")
	}},
	{"the same one again is admitted already, also when there is no room (10.8)", func(x *quotaTest) {
		q := x.quota(`"max_requests_per_window":2,"max_concurrent":1`)
		a, b := x.create("").ID, x.create("").ID
		x.admits(q, a, "admitted")
		x.admits(q, a, "already_admitted")
		if full := x.admits(q, b, "concurrency_exceeded"); strings.Contains(string(full.Body), "retry_after_ms") {
			x.t.Errorf("%s", full.Body)
		}
		x.admits(q, a, "already_admitted")
		x.dismiss(q, a)
		x.admits(q, a, "admitted") // another start
		x.admits(q, a, "already_admitted")
		x.dismiss(q, a)
		x.admits(q, a, "rate_exceeded")
	}},
	{"two at a time: the third has no room until one is gone (10.8)", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":2`)
		a, b, c := x.create("").ID, x.create("").ID, x.create("").ID
		x.admits(q, a, "admitted")
		x.admits(q, b, "admitted")
		x.admits(q, c, "concurrency_exceeded")
		x.holders(q, a, b)
		x.dismiss(q, a)
		x.holders(q, b)
		x.admits(q, c, "admitted")
		x.admits(q, a, "concurrency_exceeded")
		x.holders(q, b, c)
	}},
	{"taken back once, and again nothing (10.8)", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":3`)
		a, b := x.create("").ID, x.create("").ID
		x.admits(q, a, "admitted")
		x.admits(q, b, "admitted")
		n := len(x.events(a))
		for range 3 {
			x.dismiss(q, a)
			x.holders(q, b)
		}
		x.toldSince(a, n, "quota.released")
		x.dismiss(q, uuid.New())
		x.dismiss(q, b)
		x.dismiss(q, b)
		x.holders(q)
		x.Do(http.MethodDelete, quotaPath(uuid.New(), "admissions", a.String()), nil).Problem(fault.CodeNotFound)
	}},
	{"when both are reached, the rate is told (6.9)", func(x *quotaTest) {
		q := x.quota(`"window_seconds":60,"max_requests_per_window":1,"max_concurrent":1`)
		x.admits(q, x.create("").ID, "admitted")
		b := x.create("").ID
		if late := x.admits(q, b, "rate_exceeded").Int("retry_after_ms"); late != 60000 {
			x.t.Errorf("to be tried again after %d ms", late)
		}
		x.advance(time.Minute)
		x.admits(q, b, "concurrency_exceeded")
	}},
	{"without limits everybody passes", func(x *quotaTest) {
		q := x.quota("")
		for range 5 {
			if got := x.admit(q, x.create("").ID).Want(http.StatusOK); got.Str("outcome") != "admitted" || got.Header.Get("RateLimit") != "" {
				x.t.Errorf("%v %s", got.Header, got.Body)
			}
		}
	}},
	{"counted by the value of a tag, as it is at the admission", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1,"key_tag":"org.tenant"`)
		a, b, none := x.create(ofTenant("a")).ID, x.create(ofTenant("b")).ID, x.create("").ID
		for _, id := range []uuid.UUID{a, b, none} {
			x.admits(q, id, "admitted")
		}
		x.admits(q, x.create(ofTenant("a")).ID, "concurrency_exceeded")
		x.admits(q, x.create(ofTenant("")).ID, "concurrency_exceeded") // as without the tag
		for key, id := range map[string]uuid.UUID{"a": a, "b": b, "": none} {
			if got := x.admissions(q, "&key="+key); len(got) != 1 || got[0].ExecutionID != id || got[0].Key != key {
				x.t.Errorf("of %q: %+v", key, got)
			}
		}
		moving := x.create(ofTenant("a")).ID
		x.tag(moving, "org.tenant", "c").Want(http.StatusOK)
		x.admits(q, moving, "admitted")
		x.tag(a, "org.tenant", "d").Want(http.StatusOK) // it keeps its slot under a
		x.admits(q, a, "already_admitted")
		x.admits(q, x.create(ofTenant("a")).ID, "concurrency_exceeded")
		x.admits(q, x.create(ofTenant("d")).ID, "admitted")
		x.dismiss(q, a)
		x.admits(q, x.create(ofTenant("a")).ID, "admitted")
	}},
	{"jitter is added at random, within its bounds (defect 56)", func(x *quotaTest) {
		q := x.quota(`"window_seconds":10,"max_requests_per_window":1,"jitter_ms":500`)
		x.admits(q, x.create("").ID, "admitted")
		x.advance(4 * time.Second)
		late, seen := x.create("").ID, map[int64]bool{}
		for range 12 {
			ms := x.admit(q, late).Want(http.StatusOK).Int("retry_after_ms")
			if ms < 6000 || ms > 6500 {
				x.t.Errorf("to be tried again after %d ms", ms)
			}
			seen[ms] = true
		}
		if len(seen) == 1 {
			x.t.Errorf("always %v", seen)
		}
		x.advance(6 * time.Second)
		x.admits(q, late, "admitted")
	}},
	{"what the headers say of it", func(x *quotaTest) {
		q := x.quota(`"window_seconds":60,"max_requests_per_window":3,"max_concurrent":2`)
		check := func(answer *apitest.Response, left string) {
			x.t.Helper()
			if p, l := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit"); p != `"requests";q=3;w=60, "concurrent";q=2` || l != left {
				x.t.Errorf("RateLimit-Policy %s\nRateLimit %s, want %s", p, l, left)
			}
		}
		a := x.create("").ID
		check(x.admits(q, a, "admitted"), `"requests";r=2;t=60, "concurrent";r=1`)
		x.advance(20 * time.Second)
		check(x.admits(q, x.create("").ID, "admitted"), `"requests";r=1;t=40, "concurrent";r=0`)
		check(x.admits(q, x.create("").ID, "concurrency_exceeded"), `"requests";r=1;t=40, "concurrent";r=0`)
		check(x.admits(q, a, "already_admitted"), `"requests";r=1;t=40, "concurrent";r=0`)
		x.dismiss(q, a)
		check(x.admits(q, x.create("").ID, "admitted"), `"requests";r=0;t=40, "concurrent";r=0`)
		x.advance(40 * time.Second)
		check(x.admits(q, x.create("").ID, "concurrency_exceeded"), `"requests";r=1;t=20, "concurrent";r=0`)
		if only := x.admit(x.quota(`"max_concurrent":4`), a).Want(http.StatusOK); only.Header.Get("RateLimit") != `"concurrent";r=3` || only.Header.Get("RateLimit-Policy") != `"concurrent";q=4` {
			x.t.Errorf("%v", only.Header)
		}
	}},
	{"what has ended is not admitted, and has no slot any more", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":9`)
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, underQuotas(q))
			was := x.counts(q)
			answer := x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.admit(q, e.ID) }, e.ID)
			if diff := cmp.Diff(was, x.counts(q)); diff != "" || answer.Str("public_state") != outcome {
				x.t.Errorf("%s: %s", answer.Body, diff)
			}
			x.holders(q)
		}
		x.admit(q, uuid.New()).Problem(fault.CodeNotFound)
		x.admit(uuid.New(), x.create("").ID).Problem(fault.CodeNotFound)
	}},
	{"an admission by hand ends with its execution, too", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		for _, end := range []func(id uuid.UUID){
			func(id uuid.UUID) { x.operated(id, "operator-cancel", `"reason":"no"`) },
			func(uuid.UUID) { x.report(x.claim(lasting), "complete", "").Want(http.StatusOK) },
			func(uuid.UUID) {
				x.report(x.claim(lasting), "fail", `"reason":"x","category":"permanent"`).Want(http.StatusOK)
			},
			func(uuid.UUID) { x.advance(time.Hour) },
		} {
			e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(30*time.Minute)))
			x.admits(q, e.ID, "admitted")
			x.holders(q, e.ID)
			end(e.ID)
			x.holders(q)
		}
	}},
	{"the same answer under a key; another request is refused", func(x *quotaTest) {
		key := "Idempotency-Key: " + x.lane
		made := x.Post("/v1/quotas", `{"max_concurrent":1}`, key).Want(http.StatusCreated)
		again := x.Post("/v1/quotas", `{"max_concurrent":1}`, key).Want(http.StatusCreated)
		if string(made.Body) != string(again.Body) || again.Header.Get("Idempotent-Replay") != "true" || x.Get("/v1/quotas").Want(http.StatusOK).Len("items") != 1 {
			x.t.Errorf("%s%s", made.Body, again.Body)
		}
		x.Post("/v1/quotas", `{"max_concurrent":2}`, key).Problem(fault.CodeIdempotencyMismatch)
		q, a, b := answerAs[oapi.Quota](made).ID, x.create("").ID, x.create("").ID
		key += "-2"
		first := x.admit(q, a, key).Want(http.StatusOK)
		x.dismiss(q, a)
		x.admits(q, b, "admitted")
		second := x.admit(q, a, key).Want(http.StatusOK) // as it was, although there is no room now
		if string(first.Body) != string(second.Body) || second.Str("outcome") != "admitted" || second.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%s%s", first.Body, second.Body)
		}
		x.holders(q, b)
		x.admit(q, b, key).Problem(fault.CodeIdempotencyMismatch)
		refused := x.admit(q, a, key+"-3").Want(http.StatusOK)
		x.dismiss(q, b)
		if got := x.admit(q, a, key+"-3").Want(http.StatusOK); string(got.Body) != string(refused.Body) || got.Str("outcome") != "concurrency_exceeded" {
			x.t.Errorf("%s%s", refused.Body, got.Body)
		}
	}},
	{"another namespace's is not there", func(x *quotaTest) {
		q, e := x.quota(`"max_concurrent":1`), x.create("").ID
		x.admits(q, e, "admitted")
		was := x.counts(q)
		y := &quotaTest{x.in("elsewhere")}
		own, theirs := y.quota(`"max_concurrent":1`), y.create("").ID
		for name, call := range map[string]func() *apitest.Response{
			"read":    func() *apitest.Response { return y.Get(quotaPath(q)) },
			"list":    func() *apitest.Response { return y.Get(quotaPath(q, "admissions")) },
			"admit":   func() *apitest.Response { return y.admit(q, theirs) },
			"of mine": func() *apitest.Response { return y.admit(own, e) },
			"dismiss": func() *apitest.Response { return y.Do(http.MethodDelete, quotaPath(q, "admissions", e.String()), nil) },
			"delete":  func() *apitest.Response { return y.Do(http.MethodDelete, quotaPath(q), nil) },
			"attach":  func() *apitest.Response { return y.Post("/v1/executions", y.sent(underQuotas(q))) },
			"a lane":  func() *apitest.Response { return y.Do(http.MethodPut, "/v1/lanes/"+y.lane, "{"+underQuotas(q)+"}") },
			"a flow":  func() *apitest.Response { return y.Post("/v1/flows", `{"goal":"x",`+underQuotas(q)+`}`) },
			"a member": func() *apitest.Response {
				return y.Post("/v1/flows", `{"goal":"x","graph":{"executions":[{"key":"a","lane":"x",`+underQuotas(q)+`}]}}`)
			},
		} {
			rows := y.rows()
			if call().Problem(fault.CodeNotFound); y.rows() != rows {
				x.t.Errorf("%s: something was changed: %+v, %+v", name, rows, y.rows())
			}
		}
		y.Post("/v1/quotas", fmt.Sprintf(`{"id":%q}`, q)).Problem(fault.CodeAlreadyExists)
		y.dismiss(own, e) // it has none there
		if got := y.Get("/v1/quotas").Want(http.StatusOK); got.Len("items") != 1 {
			x.t.Errorf("%s", got.Body)
		}
		if diff := cmp.Diff(was, x.counts(q)); diff != "" {
			x.t.Errorf("(-before +after):\n%s", diff)
		}
	}},
	{"listed, the newest first, and who has a slot, the oldest first", func(x *quotaTest) {
		var made, admitted []uuid.UUID
		for range 5 {
			made = append(made, x.quota(`"max_concurrent":9`))
			x.advance(time.Second)
		}
		var listed []uuid.UUID
		for path := "/v1/quotas?limit=2"; path != ""; {
			answer := x.Get(path).Want(http.StatusOK)
			p := answerAs[oapi.QuotaList](answer)
			for _, q := range p.Items {
				listed = append(listed, q.ID)
			}
			path = nextPage(x.t, answer, p.NextCursor)
		}
		slices.Reverse(listed)
		if diff := cmp.Diff(made, listed); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for range 5 {
			id := x.create("").ID
			x.admits(made[0], id, "admitted")
			admitted = append(admitted, id)
			x.advance(time.Second)
		}
		var got []uuid.UUID
		for _, a := range x.admissions(made[0], "") {
			got = append(got, a.ExecutionID)
		}
		if diff := cmp.Diff(admitted, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"deleted, with what it has counted", func(x *quotaTest) {
		q, e := x.quota(`"max_concurrent":1,"max_requests_per_window":1`), x.create("")
		x.admits(q, e.ID, "admitted")
		x.Do(http.MethodDelete, quotaPath(q), nil).Want(http.StatusNoContent)
		x.Do(http.MethodDelete, quotaPath(q), nil).Problem(fault.CodeNotFound)
		x.Get(quotaPath(q, "admissions")).Problem(fault.CodeNotFound)
		x.admit(q, e.ID).Problem(fault.CodeNotFound)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		x.stands(e.ID, atCompleted)
		anew := answerAs[oapi.Quota](x.Post("/v1/quotas", fmt.Sprintf(`{"id":%q,"max_concurrent":1,"max_requests_per_window":1}`, q)).Want(http.StatusCreated))
		if anew.Active != 0 {
			x.t.Errorf("%+v", anew)
		}
		x.admits(q, x.create("").ID, "admitted")
	}},
	{"what is told of it", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		a, b := x.create(underQuotas(q)), x.create(underQuotas(q))
		x.admits(q, a.ID, "admitted")
		x.admits(q, a.ID, "already_admitted")
		x.claim(lasting)
		x.none("")
		x.dismiss(q, a.ID)
		x.claim(lasting)
		x.Do(http.MethodDelete, quotaPath(q), nil).Want(http.StatusNoContent)
		var got []string
		for _, e := range x.eventsOf("quota") {
			data := eventData(x.t, e)
			if data["quota_id"] != q.String() {
				x.t.Errorf("%s of %v", e.Type, data["quota_id"])
			}
			got = append(got, e.Type)
		}
		if diff := cmp.Diff([]string{"quota.created", "quota.admitted", "quota.refused", "quota.released", "quota.deleted"}, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.told(b.ID, "execution.created", "lease.acquired")
	}},
	{"asked by many at once, no more than there is room for", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":3,"max_requests_per_window":5`)
		ids := x.createMany(12, func(int) string { return "" })
		admitted := 0
		for _, answer := range atOnce(len(ids)*2, func(i int) *apitest.Response { return x.admit(q, ids[i/2]).Want(http.StatusOK) }) {
			if answer.Str("outcome") == "admitted" {
				admitted++
			}
		}
		if n := len(x.admissions(q, "")); admitted != 3 || n != 3 {
			x.t.Errorf("%d admitted, %d listed", admitted, n)
		}
	}},
}
