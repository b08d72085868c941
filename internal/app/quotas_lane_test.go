package app_test

import (
	"fmt"
	"net/http"
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

// putLane asks for other quotas of the case's lane.
func (x *quotaTest) putLane(members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Do(http.MethodPut, "/v1/lanes/"+x.lane, executionJSON(members), headers...)
}

// begun is how many starts a quota has counted.
func (x *quotaTest) begun(quota uuid.UUID) (n int64) {
	x.t.Helper()
	for _, starts := range x.counts(quota).Starts {
		n += starts
	}
	return n
}

// TestQuotas_Lane: quotas of lanes, and several at once. model.md "Budgets and quotas".
func TestQuotas_Lane(t *testing.T) {
	t.Parallel()
	runQuotaCases(t, quotasLaneCases)
}

var quotasLaneCases = []quotaCase{
	{"set, shown, told; the same again changes nothing", func(x *quotaTest) {
		a, b := x.quota(`"max_concurrent":1`), x.quota(`"max_concurrent":2`)
		answer := x.putLane(underQuotas(b, a)).Want(http.StatusOK)
		lane := answerAs[oapi.Lane](answer)
		want := oapi.QuotaPolicyIDs{a, b}
		if lane.Revision != 1 || answer.ETag() != `"1"` || len(lane.QuotaPolicyIds) != 2 || lane.State != "active" {
			x.t.Errorf("%s %s", answer.ETag(), answer.Body)
		}
		for _, ids := range []oapi.QuotaPolicyIDs{lane.QuotaPolicyIds, x.laneOf(x.lane).QuotaPolicyIds} {
			if diff := cmp.Diff(map[uuid.UUID]bool{want[0]: true, want[1]: true}, map[uuid.UUID]bool{ids[0]: true, ids[1]: true}); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.putLane(underQuotas(b, a)) })
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.putLane(underQuotas(a, b)) })
		x.turned("pause", "")
		if l := x.laneOf(x.lane); len(l.QuotaPolicyIds) != 2 || l.State != "paused" {
			x.t.Errorf("%+v", l)
		}
		if l := x.setLane(); len(l.QuotaPolicyIds) != 0 || l.State != "paused" || l.Revision != 3 {
			x.t.Errorf("%+v", l)
		}
		x.turned("resume", "")
		var got []string
		for _, e := range x.laneEvents() {
			ids, _ := eventData(x.t, e)["quota_policy_ids"].([]any)
			got = append(got, fmt.Sprint(e.Type, " ", *e.Revision, " ", len(ids)))
		}
		if diff := cmp.Diff([]string{"lane.updated 1 2", "lane.paused 2 0", "lane.updated 3 0", "lane.resumed 4 0"}, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"on a revision", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		x.create("")
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.putLane(underQuotas(q), ifMatch(7)) })
		x.putLane(underQuotas(q), ifMatch(0)).Want(http.StatusOK)
		stale := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.putLane(underQuotas(), ifMatch(0)) })
		if stale.Int("expected") != 0 || stale.Int("actual") != 1 || len(x.laneOf(x.lane).QuotaPolicyIds) != 1 {
			x.t.Errorf("%s", stale.Body)
		}
		x.putLane(underQuotas(), ifMatch(1)).Want(http.StatusOK)
	}},
	{"of none that is not there, and for operators only", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.putLane(underQuotas(q, uuid.New())) })
		if l := x.laneOf(x.lane); l != nil {
			x.t.Errorf("a refusal put it on the list: %+v", l)
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.putLane(underQuotas(q, q)) })
	}},
	{"a lane elsewhere is another one", func(x *quotaTest) {
		q := x.quota(`"max_concurrent":1`)
		x.setLane(q)
		y := &quotaTest{x.in("quotas-elsewhere")}
		x.createMany(3, func(int) string { return "" })
		y.createMany(3, func(int) string { return "" })
		if mine, theirs := len(x.claims(`"max":9,`+lasting)), len(y.claims(`"max":9,`+lasting)); mine != 1 || theirs != 3 {
			x.t.Errorf("%d and %d are claimed", mine, theirs)
		}
	}},
	{"the quota of the lane and one of its own: both count, or none", func(x *quotaTest) {
		rate, own := x.quota(`"max_requests_per_window":5,"window_seconds":3600`), x.quota(`"max_concurrent":1`)
		x.setLane(rate)
		ids := x.createMany(3, func(int) string { return underQuotas(own) })
		c := x.claims(`"max":100,` + lasting)
		if len(c) != 1 || x.begun(rate) != 1 {
			x.t.Fatalf("%d are claimed, %d have begun", len(c), x.begun(rate))
		}
		was := []quotaCounts{x.counts(rate), x.counts(own)}
		for range 3 {
			x.none(`"max":100`)
		}
		x.refused(fault.CodeRateLimited, func() *apitest.Response { return x.operator(ids[2], "operator-claim", lasting) }, ids[2])
		if diff := cmp.Diff(was, []quotaCounts{x.counts(rate), x.counts(own)}); diff != "" {
			x.t.Errorf("a refusal was counted (-before +after):\n%s", diff)
		}
		free := x.create("") // in the lane, under its quota only
		if got := x.claim(lasting); got.Execution.ID != free.ID || x.begun(rate) != 2 {
			x.t.Errorf("got %s, %d have begun", got.Execution.ID, x.begun(rate))
		}
		x.report(c[0], "complete", "").Want(http.StatusOK)
		if x.claim(lasting); x.begun(rate) != 3 {
			x.t.Errorf("%d have begun", x.begun(rate))
		}
	}},
	{"the rate is reached: no slot is taken of the other", func(x *quotaTest) {
		rate, own := x.quota(`"max_requests_per_window":1,"window_seconds":60`), x.quota(`"max_concurrent":5`)
		x.setLane(rate)
		ids := x.createMany(3, func(int) string { return underQuotas(own) })
		c := x.claim(`"max":100,` + lasting)
		x.none("")
		x.holders(own, c.Execution.ID)
		for _, id := range ids {
			if id != c.Execution.ID {
				x.heldUp(rate, "", id, atQuota)
			}
		}
		x.report(c, "complete", "").Want(http.StatusOK)
		x.none("")
		x.holders(own)
		x.advance(time.Minute)
		x.claim(`"max":100,` + lasting)
	}},
	{"one quota of the lane, of the flow and of the execution counts once", func(x *quotaTest) {
		q := x.quota(`"max_requests_per_window":3,"max_concurrent":3`)
		x.setLane(q)
		x.startedFlow(underQuotas(q) + "," + x.nodes(4, underQuotas(q)))
		if n := len(x.claims(`"max":100,` + lasting)); n != 3 || x.begun(q) != 3 {
			x.t.Errorf("%d are claimed, %d have begun", n, x.begun(q))
		}
	}},
	{"a deleted quota holds nothing up any more", func(x *quotaTest) {
		for i, limit := range []string{`"max_concurrent":1`, `"max_requests_per_window":1,"window_seconds":3600`} {
			for j, attach := range []func(y *quotaTest, q uuid.UUID){
				func(y *quotaTest, q uuid.UUID) { y.createMany(4, func(int) string { return underQuotas(q) }) },
				func(y *quotaTest, q uuid.UUID) {
					y.setLane(q)
					y.createMany(4, func(int) string { return "" })
				},
			} {
				y := x.on(fmt.Sprintf("%d-%d", i, j))
				q := y.quota(limit)
				attach(y, q)
				first := y.claim(`"max":100,` + lasting)
				y.none("")
				w := y.wait(lasting)
				y.settled()
				y.Do(http.MethodDelete, quotaPath(q), nil).Want(http.StatusNoContent)
				w.got()
				if got := y.counted(); got["rate_limited"] != 0 || got["waiting"] != 2 {
					y.t.Errorf("%v", got)
				}
				if n := len(y.claims(`"max":100,` + lasting)); n != 2 {
					y.t.Errorf("%d are claimed", n)
				}
				e := y.get(first.Execution.ID)
				if j == 0 && (len(e.QuotaPolicyIds) != 1 || e.QuotaPolicyIds[0] != q) {
					y.t.Errorf("it shows %v", e.QuotaPolicyIds)
				}
				y.report(first, "complete", "").Want(http.StatusOK)
			}
		}
	}},
	{"of two, the other still holds up", func(x *quotaTest) {
		a, b := x.quota(`"max_concurrent":1`), x.quota(`"max_concurrent":1`)
		x.create(underQuotas(a, b))
		c, e := x.claim(lasting), x.create(underQuotas(a, b))
		x.none("")
		x.Do(http.MethodDelete, quotaPath(a), nil).Want(http.StatusNoContent)
		x.none("")
		x.heldUp(b, "", e.ID, atQuota)
		x.report(c, "complete", "").Want(http.StatusOK)
		x.claim(lasting)
	}},
	{"changed while many stand there: all are moved, none is lost, the new cap holds; and back", func(x *quotaTest) {
		const n = 600
		x.createMany(n, func(i int) string { return fmt.Sprintf(`"priority":%d`, i%7) })
		wide, narrow := x.quota(`"max_concurrent":9`), x.quota(`"max_concurrent":3,"key_tag":"org.tenant"`)
		left := n
		for _, step := range []struct {
			quotas []uuid.UUID
			more   int // that can be claimed; what is at work is not admitted afterwards
		}{{[]uuid.UUID{wide}, 9}, {[]uuid.UUID{narrow, wide}, 0}, {[]uuid.UUID{narrow}, 3}, {[]uuid.UUID{narrow, wide}, 0}, {[]uuid.UUID{wide}, 0}} {
			x.putLane(underQuotas(step.quotas...)).Want(http.StatusOK)
			x.advance(0)
			if got := len(x.claims(`"max":100,` + lasting)); got != step.more {
				x.t.Fatalf("%d are claimed under %v, want %d", got, step.quotas, step.more)
			}
			x.none(`"max":100`)
			left -= step.more
			if got := x.counted(); got["rate_limited"] != left || got["active"] != n-left || len(got) != 2 {
				x.t.Fatalf("under %v: %v, want %d", step.quotas, got, left)
			}
		}
		w := x.wait(lasting)
		x.settled()
		x.putLane(underQuotas()).Want(http.StatusOK)
		x.advance(0)
		w.got()
		left--
		if got := x.counted(); got["waiting"] != left || len(got) != 2 {
			x.t.Fatalf("without: %v", got)
		}
		for left > 0 {
			got := len(x.claims(`"max":100,` + lasting))
			if got != min(left, 100) {
				x.t.Fatalf("%d of %d are claimed", got, left)
			}
			left -= got
		}
		x.none("")
	}},
	{"changed: nothing is claimed by the old terms meanwhile", func(x *quotaTest) {
		x.createMany(5, func(int) string { return "" })
		q := x.quota(`"max_concurrent":1`)
		x.putLane(underQuotas(q)).Want(http.StatusOK)
		x.none(`"max":100`)
		x.create("")
		x.advance(0)
		x.claim(`"max":100,` + lasting)
		x.none(`"max":100`)
		x.putLane(underQuotas()).Want(http.StatusOK)
		x.advance(0)
		if n := len(x.claims(`"max":100,` + lasting)); n != 5 {
			x.t.Errorf("%d are claimed", n)
		}
	}},
	{"a lane that is paused stays so", func(x *quotaTest) {
		e := x.create("")
		x.turned("pause", "")
		q := x.quota(`"max_concurrent":1`)
		x.setLane(q)
		x.none("")
		x.create("")
		x.none("")
		why, _ := x.explain(e.ID, "")
		if diff := cmp.Diff([]string{"lane"}, unmet(why)); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.turned("resume", "")
		x.claim(`"max":9,` + lasting)
	}},
}

// TestQuotas_Restart: what is closed, and who has a slot, is durable.
func TestQuotas_Restart(t *testing.T) {
	t.Parallel()
	storetest.Databases(t, func(t *testing.T, url string) {
		clock := store.StillClock(time.Now().Truncate(time.Millisecond))
		s := apptest.Still(t, url, clock)
		x := quotasOn(t, s, "quotas-restart")
		slots, rate, lane := x.quota(`"max_concurrent":2,"key_tag":"org.tenant"`), x.quota(`"max_requests_per_window":1,"window_seconds":60`), x.quota(`"max_concurrent":1`)
		a, b, c, d := x.on("slots"), x.on("rate"), x.on("lane"), x.on("changing")
		a.createMany(8, func(i int) string { return underQuotas(slots) + "," + ofTenant(fmt.Sprint(i%2)) })
		b.createMany(3, func(int) string { return underQuotas(rate) })
		c.setLane(lane)
		c.createMany(3, func(int) string { return "" })
		d.createMany(300, func(int) string { return "" })
		held := a.claims(`"max":100,` + lasting)
		begun := clock.Now()
		b.claim(lasting)
		last := c.claim(lasting)
		for _, y := range []*quotaTest{a, b, c} {
			y.none("")
		}
		d.putLane(underQuotas(lane)).Want(http.StatusOK) // and nobody has moved what stands there
		s.Stop()

		x = quotasOn(t, apptest.Still(t, url, clock), "quotas-restart")
		a, b, c, d = x.on("slots"), x.on("rate"), x.on("lane"), x.on("changing")
		for _, y := range []*quotaTest{a, b, c, d} {
			y.none(`"max":100`)
		}
		x.advance(0)
		d.none(`"max":100`)
		if got := a.counted(); got["rate_limited"] != 4 || got["active"] != 4 {
			t.Errorf("%v", got)
		}
		if active := x.read(slots).Active; active != 4 {
			t.Errorf("%d active", active)
		}
		w := a.wait(lasting)
		a.settled()
		a.report(held[0], "complete", "").Want(http.StatusOK)
		if got := w.got(); got.Execution.Tags["org.tenant"] != held[0].Execution.Tags["org.tenant"] {
			t.Errorf("got one of %s", got.Execution.Tags["org.tenant"])
		}
		a.none("")
		w = c.wait(lasting)
		c.settled()
		c.report(last, "complete", "").Want(http.StatusOK)
		last = w.got()
		d.none("")
		c.report(last, "complete", "").Want(http.StatusOK)
		d.claim(`"max":100,` + lasting)
		c.none("")
		x.advance(begun.Add(time.Minute - time.Millisecond).Sub(clock.Now()))
		b.none("")
		w = b.wait(lasting)
		b.settled()
		x.advance(time.Millisecond)
		w.got()
		b.none("")
		x.audit()
	})
}
