package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestQuotas_Keys: what is counted by a tag, and what is behind what is held up. Defect 44.
func TestQuotas_Keys(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, quotasKeysCases)
}

var quotasKeysCases = []quotaCase{
	{"each value for itself, none as one of them", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":3,"key_tag":"org.tenant"`)
		tenants := []string{"a", "b", "c", "d", ""}
		x.createMany(50, func(i int) string {
			if tenants[i%5] == "" && i%2 == 0 {
				return underQuotas(q) // without the tag, as with an empty one
			}
			return underQuotas(q) + "," + ofTenant(tenants[i%5])
		})
		by := map[string]int{}
		for _, c := range x.claims(`"max":100,` + lasting) {
			by[c.Execution.Tags["org.tenant"]]++
		}
		if diff := cmp.Diff(map[string]int{"a": 3, "b": 3, "c": 3, "d": 3, "": 3}, by); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.none(`"max":100`)
		if got := x.counted(); got["rate_limited"] != 35 || got["active"] != 15 {
			x.t.Errorf("%v", got)
		}
		for _, tenant := range tenants {
			if n := len(x.admissions(q, "&key="+tenant)); n != 3 {
				x.t.Errorf("%d of %q", n, tenant)
			}
		}
	}},
	{"the rate, too", func(x *quotaTest) {
		q := x.quota(`"window_seconds":10,"max_requests_per_window":2,"key_tag":"org.tenant"`)
		x.createMany(12, func(i int) string { return underQuotas(q) + "," + ofTenant(fmt.Sprint(i%3)) })
		if n := len(x.claims(`"max":100,` + lasting)); n != 6 {
			x.t.Errorf("%d are claimed", n)
		}
		x.none("")
		x.advance(10 * time.Second)
		if n := len(x.claims(`"max":100,` + lasting)); n != 6 {
			x.t.Errorf("%d are claimed", n)
		}
	}},
	{"another value moves what waits: to where there is room, and to where there is none", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1,"key_tag":"org.tenant"`)
		x.create(underQuotas(q) + "," + ofTenant("a"))
		a := x.claim(lasting)
		e := x.create(underQuotas(q) + "," + ofTenant("a"))
		x.none("")
		x.heldUp(q, "a", e.ID, atQuota)
		w := x.wait(lasting)
		x.settled()
		x.tag(e.ID, "org.tenant", "b").Want(http.StatusOK)
		b := w.got()
		if b.Execution.ID != e.ID {
			x.t.Fatalf("got %s", b.Execution.ID)
		}
		late := x.create(underQuotas(q) + "," + ofTenant("c"))
		x.tag(late.ID, "org.tenant", "b").Want(http.StatusOK)
		x.none("")
		x.heldUp(q, "b", late.ID, atQuota)
		x.tag(b.Execution.ID, "org.tenant", "z").Want(http.StatusOK) // what has a slot has it where it was counted
		x.none("")
		x.report(a, "complete", "").Want(http.StatusOK)
		x.none("")
		x.report(b, "complete", "").Want(http.StatusOK)
		if got := x.claim(lasting); got.Execution.ID != late.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
		x.Do(http.MethodPut, operatorPath(late.ID, "tags/other.key"), `{"value":"x"}`).Want(http.StatusOK)
		if got := x.admissions(q, "&key=b"); len(got) != 1 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"who is admitted by hand goes before those who are not", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		first, second := x.create(`"priority":9,`+underQuotas(q)), x.create(underQuotas(q))
		x.admits(q, second.ID, "admitted")
		c := x.claim(`"max":100,` + lasting)
		if c.Execution.ID != second.ID {
			x.t.Fatalf("got %s", c.Execution.ID)
		}
		x.none("")
		x.heldUp(q, "", first.ID, atQuota)
		x.holders(q, second.ID)
		w := x.wait(lasting)
		x.settled()
		x.dismiss(q, second.ID)
		if got := w.got(); got.Execution.ID != first.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
		x.report(c, "release", "").Want(http.StatusOK) // its slot is gone: it needs a new one
		x.none("")
		x.holders(q, first.ID)
	}},
	{"what was admitted by hand has begun: its first claim is no other start", func(x *quotaTest) {
		q := x.quota(`"max_requests_per_window":1,"window_seconds":60`)
		first, second := x.create(underQuotas(q)), x.create(`"priority":9,`+underQuotas(q))
		x.admits(q, first.ID, "admitted")
		if c := x.claim(`"max":9,` + lasting); c.Execution.ID != first.ID {
			x.t.Errorf("got %s", c.Execution.ID)
		}
		x.none("")
		x.heldUp(q, "", second.ID, atQuota)
		x.advance(time.Minute)
		x.claim(lasting)
	}},
	{"what is held up is admitted by hand as soon as there is room, and then claimed", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		other := x.on("other").create("")
		x.admits(q, other.ID, "admitted")
		a, b := x.create(`"priority":9,`+underQuotas(q)), x.create(underQuotas(q))
		x.none("")
		x.admits(q, b.ID, "concurrency_exceeded")
		w := x.wait(lasting)
		x.settled()
		x.turned("pause", "") // so that nobody takes the slot
		x.dismiss(q, other.ID)
		x.admits(q, b.ID, "admitted")
		x.turned("resume", "")
		if got := w.got(); got.Execution.ID != b.ID {
			x.t.Errorf("got %s", got.Execution.ID)
		}
		x.none("")
		x.heldUp(q, "", a.ID, atQuota)
	}},
	{"those behind go on: of another value, of another quota, of none", func(x *quotaTest) {
		q, other := x.quota(`"max_concurrent":1,"key_tag":"org.tenant"`), x.quota(`"max_concurrent":1`)
		x.create(`"priority":99,` + underQuotas(q) + "," + ofTenant("a"))
		x.claim(lasting)
		held := x.create(`"priority":90,` + underQuotas(q) + "," + ofTenant("a"))
		for _, members := range []string{underQuotas(q) + "," + ofTenant("b"), underQuotas(other), "", underQuotas(q)} {
			e := x.create(members)
			if got := x.claim(lasting); got.Execution.ID != e.ID {
				x.t.Errorf("got %s instead of the one of %s", got.Execution.ID, members)
			}
		}
		x.none("")
		x.heldUp(q, "a", held.ID, atQuota)
	}},
	{"a hundred asked for, of many limits: what there is room for, the best first", func(x *quotaTest) {
		one, two, rate := x.quota(`"max_concurrent":1`), x.quota(`"max_concurrent":2`), x.quota(`"max_requests_per_window":3`)
		ids := x.createMany(40, func(i int) string {
			return fmt.Sprintf(`"priority":%d,%s`, 1000-i, []string{underQuotas(one), underQuotas(two), underQuotas(rate), underQuotas(rate, two)}[i%4])
		})
		// 0 is the one of one; 1 has a slot of two; 2 begins; 3 begins and has the other slot; 6 is the last that begins.
		want := []uuid.UUID{ids[0], ids[1], ids[2], ids[3], ids[6]}
		var got []uuid.UUID
		for _, c := range x.claims(`"max":100,` + lasting) {
			got = append(got, c.Execution.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.none(`"max":100`)
		if n := x.counted(); n["rate_limited"] != 35 {
			x.t.Errorf("%v", n)
		}
	}},
	{"by hand: refused, and nothing is changed", func(x *quotaTest) {
		for name, limit := range map[string]string{"cap": `"max_concurrent":1`, "rate": `"max_requests_per_window":1,"window_seconds":600`} {
			y := x.on(name)
			q := y.quota(limit)
			a, b := y.create(`"priority":9,`+underQuotas(q)), y.create(underQuotas(q))
			first, second := y.reserved(`"grant_ttl_ms":60000`), y.reserved(`"grant_ttl_ms":60000`)
			c := y.used(first, "claim", lasting)
			if c.Execution.ID != a.ID {
				y.t.Fatalf("got %s", c.Execution.ID)
			}
			was := y.counts(q)
			says := func(answer *apitest.Response) {
				y.t.Helper()
				after := strings.Contains(string(answer.Body), "retry_after_ms")
				if answer.Str("quota_id") != q.String() || after != (name == "rate") || name == "rate" && answer.Int("retry_after_ms") != 600000 {
					y.t.Errorf("%s", answer.Body)
				}
				if diff := cmp.Diff(was, y.counts(q)); diff != "" {
					y.t.Errorf("(-before +after):\n%s", diff)
				}
			}
			says(y.refused(fault.CodeRateLimited, func() *apitest.Response { return y.use(second, "claim", lasting) }, a.ID, b.ID))
			third := y.create(underQuotas(q))
			says(y.refused(fault.CodeRateLimited, func() *apitest.Response { return y.operator(third.ID, "operator-claim", lasting) }, third.ID))
			if name == "rate" {
				y.operator(a.ID, "revoke-lease", "").Want(http.StatusOK)
				g := y.reservedLost(a.ID, "")
				says(y.refused(fault.CodeRateLimited, func() *apitest.Response { return y.use(g, "reclaim", lasting) }, a.ID))
				continue
			}
			y.report(c, "complete", "").Want(http.StatusOK)
			y.used(second, "claim", lasting)
			y.holders(q, b.ID)
			y.operated(b.ID, "operator-cancel", `"reason":"no"`)
			y.operator(third.ID, "operator-claim", lasting).Want(http.StatusOK)
			y.holders(q, third.ID)
		}
	}},
	{"nothing is reserved of what is held up", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		x.create(underQuotas(q))
		c := x.claim(lasting)
		e := x.create(underQuotas(q))
		x.reserve("").Want(http.StatusNoContent)
		x.heldUp(q, "", e.ID, atQuota)
		x.report(c, "complete", "").Want(http.StatusOK)
		x.used(x.reserved(""), "claim", lasting)
		x.holders(q, e.ID)
	}},
}
