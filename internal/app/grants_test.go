package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// reserve asks for a grant, as the worker w1, for ten seconds unless the members say otherwise.
func (x *executionTest) reserve(members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.reserveAs("w1", members, headers...)
}

func (x *executionTest) reserveAs(worker, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post("/v1/workers/"+worker+"/claim-grants", executionJSON(members, `"lane":"`+x.lane+`"`, `"worker_instance_id":"`+worker+`"`, `"grant_ttl_ms":10000`), headers...)
}

// reserved gets a grant.
func (x *executionTest) reserved(members string) oapi.Grant {
	x.t.Helper()
	return answerAs[oapi.Grant](x.reserve(members).Want(http.StatusOK))
}

// reserveLost asks for a grant to take an execution over, as the worker w1.
func (x *executionTest) reserveLost(id uuid.UUID, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(operatorPath(id, "reclaim-grants"), executionJSON(members, `"worker_id":"w1"`, `"worker_instance_id":"w1"`, `"grant_ttl_ms":10000`), headers...)
}

func (x *executionTest) reservedLost(id uuid.UUID, members string) oapi.Grant {
	x.t.Helper()
	return answerAs[oapi.Grant](x.reserveLost(id, members).Want(http.StatusOK))
}

// use uses a grant, as the worker w1: op is claim or reclaim.
func (x *executionTest) use(g oapi.Grant, op, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(operatorPath(g.ExecutionID, op), executionJSON(members, `"grant_id":"`+g.GrantID.String()+`"`, `"worker_id":"w1"`, `"worker_instance_id":"w1"`), headers...)
}

// used uses a grant, which succeeds.
func (x *executionTest) used(g oapi.Grant, op, members string) oapi.Claim {
	x.t.Helper()
	answer := x.use(g, op, members).Want(http.StatusOK)
	got := answerAs[oapi.Claims](answer)
	if len(got.Claims) != 1 || got.Directives == nil || len(got.Directives) != 0 {
		x.t.Fatalf("%s", answer.Body)
	}
	return got.Claims[0]
}

// lost makes an execution whose owner has lost it.
func (x *executionTest) lost(members string) (oapi.Execution, oapi.Claim) {
	x.t.Helper()
	e := x.create(members)
	c := x.claim(`"worker_id":"dead","lease_ttl_ms":1000,"capabilities":["go","gpu"]`)
	x.advance(time.Second)
	return x.stands(e.ID, atLost), c
}

// lapses checks until when a grant is good that was asked for at some time.
func (x *executionTest) lapses(g oapi.Grant, asked time.Time, ttl time.Duration) {
	x.t.Helper()
	if at := g.ExpiresAt.Time(); at.Before(asked.Add(ttl-time.Second)) || at.After(x.server.Clock.Now().Add(ttl+time.Second)) {
		x.t.Errorf("asked for at %s, it lapses at %s", asked, at)
	}
}

// drained registers a worker that is draining, without the calls of its own.
func (x *executionTest) drained(instance string) {
	x.t.Helper()
	now := x.server.Clock.Now().UnixMilli()
	x.tamper(`INSERT INTO workers (namespace, worker_instance_id, worker_id, lanes, capabilities, liveness_ttl_ms, registered_at, last_heartbeat_at, expires_at, draining_since)
		VALUES ('default', ?, 'w1', '[]', '[]', 3600000, ?, ?, ?, ?)`, instance, now, now, now+3600000, now)
}

// TestGrants_Claim: a claim in two steps. executions.md 1.4, 2.3, 6.2/29 to 34; 5/20.
func TestGrants_Claim(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, grantsClaimCases)
}

var grantsClaimCases = []executionCase{
	{"reserved, and claimed (6.2/30, 31, 33)", func(x *executionTest) {
		e := x.create("")
		before := x.server.Clock.Now()
		g := x.reserved(`"worker_instance_id":"w1-a","grant_ttl_ms":5000`)
		want := oapi.Grant{GrantID: g.GrantID, ExecutionID: e.ID, Lane: x.lane, Kind: "claim", ExpiresAt: g.ExpiresAt}
		if diff := cmp.Diff(want, g); diff != "" || g.GrantID == uuid.Nil {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.lapses(g, before, 5*time.Second)
		if waits := x.stands(e.ID, atWaiting); waits.Revision != 1 || waits.CurrentLease != nil || waits.TotalAttemptCount != 0 {
			x.t.Errorf("%+v", waits)
		}
		x.told(e.ID, "execution.created")
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("") }, e.ID)
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.reserve("") }, e.ID)
		c := x.used(g, "claim", `"worker_instance_id":"w1-b"`) // another instance may
		if diff := cmp.Diff(x.stands(e.ID, atActive), c.Execution); diff != "" {
			x.t.Errorf("read and claimed differ (-read +claimed):\n%s", diff)
		}
		lease := c.Execution.CurrentLease
		if c.Kind != "fresh" || c.Fence.LeaseEpoch != 1 || c.Fence.AttemptIndex != 0 || lease.WorkerID != "w1" || lease.WorkerInstanceID != "w1-b" ||
			lease.ExpiresAt.Time().Sub(lease.AcquiredAt.Time()) != 30*time.Second || c.Inputs == nil {
			x.t.Errorf("%+v", c)
		}
		x.told(e.ID, "execution.created", "lease.acquired")
		x.report(c, "complete", "").Want(http.StatusOK)
	}},
	{"what a claim would get: by priority, by capabilities, and never what is lost (6.2/29, 30)", func(x *executionTest) {
		x.lost(`"priority":100`)
		var ids []uuid.UUID
		for _, members := range []string{`"priority":1`, `"priority":3`, `"priority":2,"required_capabilities":["go"]`, `"priority":9,"required_capabilities":["gpu"]`} {
			ids = append(ids, x.create(members).ID)
		}
		for _, want := range []int{1, 2, 0} {
			if g := x.reserved(`"capabilities":["go"]`); g.ExecutionID != ids[want] {
				x.t.Errorf("%s is reserved and not %d", g.ExecutionID, want)
			}
		}
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.reserve(`"capabilities":["go"]`) }, ids...)
		if g := x.reserved(`"capabilities":["go","gpu"]`); g.ExecutionID != ids[3] {
			x.t.Errorf("%s", g.ExecutionID)
		}
	}},
	{"nothing to do", func(x *executionTest) {
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.reserve("") })
		x.create(`"delay_ms":60000`)
		x.on("other").create("")
		x.in("elsewhere").create("")
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.reserve("") })
	}},
	{"whatever it continues", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.used(x.reserved(""), "claim", lasting)
		x.report(c, "release", "").Want(http.StatusOK)
		again := x.used(x.reserved(""), "claim", lasting)
		if again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.LeaseEpoch != 2 {
			x.t.Errorf("%+v", again)
		}
		x.report(again, "fail", `"reason":"boom","retry_after_ms":0`).Want(http.StatusOK)
		x.advance(0)
		if retry := x.used(x.reserved(""), "claim", lasting); retry.Kind != "retry" || retry.Fence.AttemptIndex != 1 {
			x.t.Errorf("%+v", retry)
		}
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.operated(e.ID, "replay", "")
		if replay := x.used(x.reserved(""), "claim", ""); replay.Kind != "replay" || replay.Fence.AttemptIndex != 2 {
			x.t.Errorf("%+v", replay)
		}
	}},
	{"two at once reserve two (6.2/30)", func(x *executionTest) {
		const n = 6
		for range n {
			x.create("")
		}
		got := map[uuid.UUID]bool{}
		for _, answer := range atOnce(n+2, func(i int) *apitest.Response { return x.reserveAs(fmt.Sprint("w", i), "") }) {
			if answer.Status == http.StatusNoContent {
				continue
			}
			got[answerAs[oapi.Grant](answer.Want(http.StatusOK)).ExecutionID] = true
		}
		if len(got) != n {
			x.t.Errorf("%d of %d are reserved", len(got), n)
		}
		x.none("")
	}},
	{"polls and reservations at once never share one", func(x *executionTest) {
		const n = 24
		x.createMany(n, func(int) string { return "" })
		got := make([][]uuid.UUID, 8)
		atOnce(len(got), func(i int) *apitest.Response {
			for range n / 4 {
				if i%2 == 0 {
					for _, c := range x.claims(lasting) {
						got[i] = append(got[i], c.Execution.ID)
					}
					continue
				}
				if answer := x.reserve(`"grant_ttl_ms":60000`); answer.Status == http.StatusOK {
					got[i] = append(got[i], x.used(answerAs[oapi.Grant](answer), "claim", lasting).Execution.ID)
				}
			}
			return nil
		})
		taken := map[uuid.UUID]int{}
		for _, ids := range got {
			for _, id := range ids {
				taken[id]++
			}
		}
		for id, times := range taken {
			if e := x.get(id); times != 1 || e.TotalAttemptCount != 1 {
				x.t.Errorf("%s was taken %d times", id, times)
			}
		}
		if len(taken) != n {
			x.t.Errorf("%d of %d are taken", len(taken), n)
		}
	}},
	{"a tag, a priority and a paused lane leave it as it is", func(x *executionTest) {
		e := x.create("")
		g := x.reserved("")
		x.tag(e.ID, "a.b", "c").Want(http.StatusOK)
		x.operated(e.ID, "priority", `"priority":9`)
		x.turn("pause", "").Want(http.StatusOK)
		x.turn("resume", "").Want(http.StatusOK)
		x.none("")
		if c := x.used(g, "claim", ""); c.Execution.Priority != 9 || c.Execution.Tags["a.b"] != "c" {
			x.t.Errorf("%+v", c.Execution)
		}
	}},
	{"unused, it lapses, and anybody can have it again (5/20)", func(x *executionTest) {
		e := x.create("")
		g := x.reserved(`"grant_ttl_ms":60000`)
		w := x.wait(`"worker_id":"w2",` + lasting)
		x.settled()
		x.advance(50 * time.Second)
		x.none("")
		x.advance(10 * time.Second)
		if got := w.got(); got.Execution.ID != e.ID || got.Kind != "fresh" {
			x.t.Errorf("%+v", got)
		}
		x.told(e.ID, "execution.created", "lease.acquired")
		e = x.create("")
		g = x.reserved(`"grant_ttl_ms":1`)
		x.advance(time.Second)
		second := x.reserved("")
		if second.GrantID == g.GrantID || second.ExecutionID != e.ID {
			x.t.Errorf("%+v", second)
		}
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.used(second, "claim", "")
	}},
	{"lapsed, and nobody has noticed yet (6.2/33)", func(x *executionTest) {
		e := x.create("")
		g := x.reserved("")
		x.unswept(e.ID)
		x.server.Clock.Advance(g.ExpiresAt.Time().Sub(x.server.Clock.Now()))
		answer := x.refused(fault.CodeClaimGrantExpired, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		if answer.Str("expires_at") != g.ExpiresAt.String() {
			x.t.Errorf("%s", answer.Body)
		}
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", `"worker_id":"w2"`) }, e.ID)
	}},
	{"none, another one, or another's (6.2/33)", func(x *executionTest) {
		e := x.create("")
		none := oapi.Grant{ExecutionID: e.ID, GrantID: uuid.New()}
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(none, "claim", "") }, e.ID)
		g := x.reserved("")
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(none, "claim", "") }, e.ID)
		for _, worker := range []string{"w2", "W1", "w11"} {
			x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", `"worker_id":"`+worker+`"`) }, e.ID)
		}
		x.used(g, "claim", "")
	}},
	{"it is used once (5/20)", func(x *executionTest) {
		e := x.create("")
		g := x.reserved("")
		c := x.used(g, "claim", lasting)
		x.refused(fault.CodeLeaseConflict, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.report(c, "release", "").Want(http.StatusOK)
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		done := 0
		g = x.reserved("")
		for _, answer := range atOnce(5, func(int) *apitest.Response { return x.use(g, "claim", lasting) }) {
			if answer.Status == http.StatusOK {
				done++
			} else {
				answer.Problem(fault.CodeLeaseConflict)
			}
		}
		if done != 1 {
			x.t.Errorf("used %d times", done)
		}
	}},
	{"what cannot be claimed as it stands (6.2/33; 2.3)", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			code := fault.CodeExecutionNotLeaseable
			switch {
			case p.owned:
				code = fault.CodeLeaseConflict
			case p.at == atWaiting, p.at == atReleased, p.at == atRetry:
				code = fault.CodeInvalidClaimGrant
			}
			x.refused(code, func() *apitest.Response { return x.use(oapi.Grant{ExecutionID: id, GrantID: uuid.New()}, "claim", "") }, id)
		})
		for _, outcome := range terminals {
			e, _ := x.ended(outcome, "")
			x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response {
				return x.use(oapi.Grant{ExecutionID: e.ID, GrantID: uuid.New()}, "claim", "")
			}, e.ID)
		}
	}},
	{"a deadline takes it away, a priority does not", func(x *executionTest) {
		e := x.create(`"deadline_at":` + spelled(x.server.Clock.Now().Add(30*time.Second)))
		g := x.reserved(`"grant_ttl_ms":60000`)
		x.operated(e.ID, "priority", `"priority":7`)
		x.none("")
		x.advance(30 * time.Second)
		x.stands(e.ID, atExpiredIdle)
		x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.operated(e.ID, "replay", "")
		x.claim("")
	}},
	{"a worker that is draining gets none, and can use none", func(x *executionTest) {
		e := x.create("")
		g := x.reserved("")
		x.drained("d-" + x.lane)
		draining := `"worker_instance_id":"d-` + x.lane + `"`
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return x.reserve(draining) },
			func() *apitest.Response { return x.use(g, "claim", draining) },
			func() *apitest.Response {
				return x.use(oapi.Grant{ExecutionID: e.ID, GrantID: uuid.New()}, "reclaim", draining)
			},
			func() *apitest.Response { return x.reserveLost(e.ID, draining) },
		} {
			x.refused(fault.CodeWorkerDraining, call, e.ID)
		}
		x.refused(fault.CodeNotFound, func() *apitest.Response {
			return x.use(oapi.Grant{ExecutionID: uuid.New(), GrantID: uuid.New()}, "claim", draining)
		})
		x.used(g, "claim", "")
	}},
	{"what is not there (6.2/34)", func(x *executionTest) {
		nobody := oapi.Grant{ExecutionID: uuid.New(), GrantID: uuid.New()}
		for _, op := range []string{"claim", "reclaim"} {
			x.refused(fault.CodeNotFound, func() *apitest.Response { return x.use(nobody, op, "") })
		}
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.reserveLost(nobody.ExecutionID, "") })
	}},
	{"what is refused leaves nothing", func(x *executionTest) {
		e := x.create("")
		for members, code := range map[string]fault.Code{
			`"grant_ttl_ms":0`: fault.CodeValidationFailed, `"grant_ttl_ms":60001`: fault.CodeValidationFailed, `"grant_ttl_ms":null`: fault.CodeValidationFailed,
			`"worker_instance_id":""`: fault.CodeValidationFailed, `"worker_instance_id":"a b"`: fault.CodeValidationFailed, `"lane":""`: fault.CodeValidationFailed,
			`"capabilities":["a,b"]`: fault.CodeInvalidCapabilities, `"capabilities":[""]`: fault.CodeInvalidCapabilities,
		} {
			x.refused(code, func() *apitest.Response { return x.reserve(members) }, e.ID)
		}
		x.reserved(`"grant_ttl_ms":60000`)
	}},
}
