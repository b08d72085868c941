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
	runExecutionCases(t, []executionCase{
		{"reserved, and claimed (6.2/30, 31, 33)", func(x *executionTest) {
			e := x.create("")
			g := x.reserved(`"worker_instance_id":"w1-a","grant_ttl_ms":5000`)
			want := oapi.Grant{GrantID: g.GrantID, ExecutionID: e.ID, Lane: x.lane, Kind: "claim", ExpiresAt: g.ExpiresAt}
			if diff := cmp.Diff(want, g); diff != "" || g.GrantID == uuid.Nil {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if left := g.ExpiresAt.Time().Sub(x.server.Clock.Now()); left > 5*time.Second || left < 4*time.Second {
				x.t.Errorf("it lapses in %s", left)
			}
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
	})
}

// TestGrants_Reclaim: taking over in two steps. executions.md 2.5, 6.3/41, 6.5/61 to 68.
func TestGrants_Reclaim(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, []executionCase{
		{"reserved, and taken over (6.5/61, 62, 63, 68)", func(x *executionTest) {
			e, c := x.lost("")
			n := len(x.events(e.ID))
			g := x.reservedLost(e.ID, `"grant_ttl_ms":5000`)
			want := oapi.Grant{GrantID: g.GrantID, ExecutionID: e.ID, Lane: x.lane, Kind: "reclaim", ExpiresAt: g.ExpiresAt}
			if diff := cmp.Diff(want, g); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if left := g.ExpiresAt.Time().Sub(x.server.Clock.Now()); left > 5*time.Second || left < 4*time.Second {
				x.t.Errorf("it lapses in %s", left)
			}
			if got := x.stands(e.ID, atLost); got.Revision != e.Revision+1 || got.TotalAttemptCount != 1 {
				x.t.Errorf("%+v", got)
			}
			x.toldSince(e.ID, n)
			x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("") }, e.ID) // nobody else takes it over
			again := x.used(g, "reclaim", `"worker_instance_id":"w1-b","lease_ttl_ms":60000`)
			if diff := cmp.Diff(x.stands(e.ID, atActive), again.Execution); diff != "" {
				x.t.Errorf("read and claimed differ (-read +claimed):\n%s", diff)
			}
			if again.Kind != "reclaimed" || again.Fence.LeaseEpoch != 2 || again.Fence.AttemptIndex != 1 || again.Fence.AttemptID == c.Fence.AttemptID ||
				again.Execution.LeaseReclaimCount != 1 || again.Execution.CurrentLease.WorkerInstanceID != "w1-b" {
				x.t.Errorf("%+v", again)
			}
			attempts := x.attempts(e.ID)
			if len(attempts) != 2 || attempts[0].State != "interrupted_reclaimed" || attempts[0].EndedAt == nil || attempts[1].AttemptType != "reclaim" || *attempts[1].PreviousAttemptIndex != 0 {
				x.t.Errorf("%+v", attempts)
			}
			x.toldSince(e.ID, n, "lease.reclaimed")
			for _, lease := range x.leases("worker_id=dead") {
				if lease.ExecutionID == e.ID {
					x.t.Errorf("the old worker still has %+v", lease)
				}
			}
			x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
			x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return x.use(g, "reclaim", "") }, e.ID)
			x.report(again, "complete", "").Want(http.StatusOK)
		}},
		{"revoked, and elapsed without being marked (6.5/62)", func(x *executionTest) {
			e := x.create("")
			x.claim(lasting)
			x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
			if c := x.used(x.reservedLost(e.ID, ""), "reclaim", lasting); c.Fence.LeaseEpoch != 3 || c.Kind != "reclaimed" {
				x.t.Errorf("%+v", c)
			}
			if attempts := x.attempts(e.ID); *attempts[1].ReclaimReason != "lease_lease_revoked" {
				x.t.Errorf("%+v", attempts[1])
			}
			e = x.create("")
			x.claim(`"lease_ttl_ms":1000`)
			x.unswept(e.ID)
			x.server.Clock.Advance(time.Second)
			before := x.get(e.ID)
			g := x.reservedLost(e.ID, "")
			if got := x.stands(e.ID, atLost); got.Revision != before.Revision+1 {
				x.t.Errorf("%d after %d", got.Revision, before.Revision)
			}
			x.leaseEnds(e.ID, 2, "lease.expired", "timeout")
			if c := x.used(g, "reclaim", ""); c.Fence.LeaseEpoch != 2 {
				x.t.Errorf("%+v", c)
			}
		}},
		{"what nobody has lost (6.5/62)", func(x *executionTest) {
			x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
				if p.at == atLost || p.at == atRevoked {
					return
				}
				answer := x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return x.reserveLost(id, "") }, id)
				e := x.get(id)
				if answer.Str("public_state") != string(e.PublicState) || answer.Str("ownership_state") != string(e.StateVector.OwnershipState) {
					x.t.Errorf("%s", answer.Body)
				}
				x.refused(fault.CodeNotReclaimable, func() *apitest.Response {
					return x.use(oapi.Grant{ExecutionID: id, GrantID: uuid.New()}, "reclaim", "")
				}, id)
			})
			for _, outcome := range terminals {
				e, _ := x.ended(outcome, "")
				x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return x.reserveLost(e.ID, "") }, e.ID)
			}
		}},
		{"what the worker lacks (6.3/41)", func(x *executionTest) {
			e, _ := x.lost(`"required_capabilities":["go","gpu"]`)
			for capabilities, missing := range map[string]string{``: `["go","gpu"]`, `"go"`: `["gpu"]`, `"GO","gpu"`: `["go"]`, `"linux","gpu"`: `["go"]`} {
				answer := x.refused(fault.CodeCapabilityMismatch, func() *apitest.Response { return x.reserveLost(e.ID, `"capabilities":[`+capabilities+`]`) }, e.ID)
				if diff := cmp.Diff(fromDocument[[]any](x.t, missing), answer.Get("missing")); diff != "" {
					x.t.Errorf("(-want +got):\n%s", diff)
				}
			}
			x.refused(fault.CodeInvalidCapabilities, func() *apitest.Response { return x.reserveLost(e.ID, `"capabilities":["a,b"]`) }, e.ID)
			x.used(x.reservedLost(e.ID, `"capabilities":["linux","gpu","go"]`), "reclaim", "")
		}},
		{"one grant at a time", func(x *executionTest) {
			e, _ := x.lost("")
			g := x.reservedLost(e.ID, `"worker_id":"w2"`)
			for _, worker := range []string{"w1", "w2"} {
				answer := x.refused(fault.CodeGrantExists, func() *apitest.Response { return x.reserveLost(e.ID, `"worker_id":"`+worker+`"`) }, e.ID)
				if answer.Str("worker_id") != "w2" || answer.Str("expires_at") != g.ExpiresAt.String() {
					x.t.Errorf("%s", answer.Body)
				}
			}
			x.advance(10 * time.Second)
			again := x.reservedLost(e.ID, "")
			x.refused(fault.CodeGrantNotFound, func() *apitest.Response { return x.use(g, "reclaim", "") }, e.ID)
			x.used(again, "reclaim", "")
		}},
		{"many at once: one gets it", func(x *executionTest) {
			e, _ := x.lost("")
			done := 0
			for _, answer := range atOnce(5, func(int) *apitest.Response { return x.reserveLost(e.ID, "") }) {
				if answer.Status == http.StatusOK {
					done++
				} else {
					answer.Problem(fault.CodeGrantExists)
				}
			}
			if done != 1 {
				x.t.Errorf("%d have it", done)
			}
		}},
		{"none, another one, one that has lapsed, and another's (6.5/64)", func(x *executionTest) {
			e, _ := x.lost("")
			none := oapi.Grant{ExecutionID: e.ID, GrantID: uuid.New()}
			x.refused(fault.CodeGrantNotFound, func() *apitest.Response { return x.use(none, "reclaim", "") }, e.ID)
			g := x.reservedLost(e.ID, "")
			x.refused(fault.CodeGrantNotFound, func() *apitest.Response { return x.use(none, "reclaim", "") }, e.ID)
			x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "reclaim", `"worker_id":"w2"`) }, e.ID)
			x.refused(fault.CodeLeaseConflict, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
			x.unswept(e.ID)
			x.server.Clock.Advance(10 * time.Second)
			for _, worker := range []string{"w1", "w2"} { // that it has lapsed comes before whose it was
				x.refused(fault.CodeGrantNotFound, func() *apitest.Response { return x.use(g, "reclaim", `"worker_id":"`+worker+`"`) }, e.ID)
			}
		}},
		{"a grant to claim is none to take over", func(x *executionTest) {
			e := x.create("")
			g := x.reserved("")
			c := x.used(g, "claim", `"lease_ttl_ms":1000`)
			x.advance(time.Second)
			x.refused(fault.CodeGrantNotFound, func() *apitest.Response { return x.use(g, "reclaim", "") }, e.ID)
			again := x.used(x.reservedLost(e.ID, ""), "reclaim", lasting)
			x.report(again, "release", "").Want(http.StatusOK)
			if c.Fence.LeaseEpoch+1 != again.Fence.LeaseEpoch {
				x.t.Errorf("epoch %d after %d", again.Fence.LeaseEpoch, c.Fence.LeaseEpoch)
			}
		}},
		{"as often as the policy says (6.5/62, 65)", func(x *executionTest) {
			for policy, most := range map[string]int{`"policy":{"max_reclaim_count":0}`: 0, `"policy":{"max_reclaim_count":2}`: 2, `"policy":{"timeout_policy":{"max_reclaim_count":1}}`: 1} {
				e, _ := x.lost(policy)
				for range most {
					c := x.used(x.reservedLost(e.ID, ""), "reclaim", `"lease_ttl_ms":1000`)
					if c.Kind != "reclaimed" {
						x.t.Errorf("a %s claim", c.Kind)
					}
					x.advance(time.Second)
				}
				answer := x.refused(fault.CodeReclaimCapExceeded, func() *apitest.Response { return x.reserveLost(e.ID, "") }, e.ID)
				if answer.Int("lease_reclaim_count") != int64(most) {
					x.t.Errorf("%s", answer.Body)
				}
				n := len(x.events(e.ID))
				x.none("") // the poll that meets it ends it
				if failed := x.stands(e.ID, atFailed); failed.Failure.Reason != "max_reclaims_exceeded" {
					x.t.Errorf("%+v", failed.Failure)
				}
				x.toldSince(e.ID, n, "execution.failed", "lease.revoked")
			}
		}},
		{"it ended after it was reserved (6.5/66)", func(x *executionTest) {
			e, _ := x.lost("")
			g := x.reservedLost(e.ID, "")
			x.operated(e.ID, "operator-cancel", `"reason":"no"`)
			x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return x.use(g, "reclaim", "") }, e.ID)
			x.stands(e.ID, atCancelled)
		}},
		{"its attempt ran out of time after it was reserved: the grant goes, and the retry is anybody's", func(x *executionTest) {
			e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":20000},"retry_policy":{"max_retries":3,"backoff":{"type":"fixed","delay_ms":1000}}}`)
			x.claim(`"lease_ttl_ms":10000`)
			x.advance(10 * time.Second)
			g := x.reservedLost(e.ID, `"grant_ttl_ms":60000`)
			x.advance(10 * time.Second)
			x.stands(e.ID, atBackoff)
			x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return x.use(g, "reclaim", "") }, e.ID)
			x.advance(time.Second)
			x.stands(e.ID, atRetry)
			if c := x.claim(lasting); c.Kind != "retry" {
				x.t.Errorf("a %s claim", c.Kind)
			}
		}},
		{"again and again: the epoch grows, and the attempt gets its time (6.5/68)", func(x *executionTest) {
			e, c := x.lost(`"policy":{"timeout_policy":{"attempt_timeout_ms":600000}}`)
			epoch := c.Fence.LeaseEpoch
			for i := range 3 {
				again := x.used(x.reservedLost(e.ID, ""), "reclaim", `"lease_ttl_ms":300000`)
				if again.Fence.LeaseEpoch != epoch+1 || again.Fence.AttemptIndex != int32(i+1) {
					x.t.Errorf("%+v", again.Fence)
				}
				epoch++
				x.advance(5 * time.Minute)
				x.stands(e.ID, atLost)
			}
		}},
		{"what is refused leaves nothing", func(x *executionTest) {
			e, _ := x.lost("")
			for _, members := range []string{`"grant_ttl_ms":0`, `"grant_ttl_ms":60001`, `"worker_id":""`, `"worker_instance_id":"a b"`, `"lane":"x"`} {
				x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.reserveLost(e.ID, members) }, e.ID)
			}
			g := x.reservedLost(e.ID, "")
			for _, members := range []string{`"lease_ttl_ms":99`, `"lease_ttl_ms":86400001`, `"grant_id":"x"`} {
				x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.use(g, "reclaim", members) }, e.ID)
			}
			x.used(g, "reclaim", "")
		}},
	})
}

// TestGrants_ByHand: an operator claims. executions.md 2.3 (issue_grant_and_claim), 6.2/37.
func TestGrants_ByHand(t *testing.T) {
	t.Parallel()
	byHand := func(x *executionTest, id uuid.UUID) oapi.Claim {
		x.t.Helper()
		answer := x.operator(id, "operator-claim", `"lease_ttl_ms":3600000`).Want(http.StatusOK)
		got := answerAs[oapi.Claims](answer)
		if len(got.Claims) != 1 {
			x.t.Fatalf("%s", answer.Body)
		}
		return got.Claims[0]
	}
	runExecutionCases(t, []executionCase{
		{"this very execution, whatever stands before it and whatever it requires (6.2/37)", func(x *executionTest) {
			x.create(`"priority":9`)
			e := x.create(`"required_capabilities":["gpu"]`)
			c := byHand(x, e.ID)
			lease := c.Execution.CurrentLease
			if c.Kind != "fresh" || c.Fence.LeaseEpoch != 1 || c.Fence.AttemptIndex != 0 || lease.WorkerID != "operator" || lease.WorkerInstanceID != "operator" ||
				lease.ExpiresAt.Time().Sub(lease.AcquiredAt.Time()) != time.Hour {
				x.t.Errorf("%+v", c)
			}
			if diff := cmp.Diff(x.stands(e.ID, atActive), c.Execution); diff != "" {
				x.t.Errorf("read and claimed differ (-read +claimed):\n%s", diff)
			}
			told := x.toldSince(e.ID, 1, "operator.claimed", "lease.acquired")
			if diff := cmp.Diff(map[string]any{"lease_id": c.Fence.LeaseID.String(), "lease_epoch": 1.0}, eventData(x.t, told[0])); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			x.refused(fault.CodeLeaseConflict, func() *apitest.Response { return x.operator(e.ID, "operator-claim", "") }, e.ID)
			x.report(c, "complete", `"result":1`).Want(http.StatusOK)
		}},
		{"even of a paused lane, and it leaves no grant behind", func(x *executionTest) {
			e := x.create("")
			x.Post("/v1/lanes/"+x.lane+"/pause", nil).Want(http.StatusOK)
			c := byHand(x, e.ID)
			x.report(c, "release", "").Want(http.StatusOK)
			x.Post("/v1/lanes/"+x.lane+"/resume", nil).Want(http.StatusOK)
			x.claim("")
		}},
		{"in each phase (6.2/37)", func(x *executionTest) {
			x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, c oapi.Claim) {
				refused := map[string]fault.Code{
					"delayed": fault.CodeExecutionNotEligible, "paused by its flow": fault.CodeExecutionNotEligible, "revoked": fault.CodeExecutionNotEligible,
					"lost": fault.CodeExecutionNotEligible, "to be retried later": fault.CodeExecutionNotEligible, "suspended": fault.CodeExecutionNotEligible,
					"active": fault.CodeLeaseConflict, "reserved": fault.CodeGrantExists,
				}
				if code, ok := refused[p.name]; ok {
					x.refused(code, func() *apitest.Response { return x.operator(id, "operator-claim", "") }, id)
					return
				}
				got := byHand(x, id)
				resumed := p.attempted && p.name != "to be retried" // interrupted: whatever it waits for
				if (got.Kind == "resumed") != resumed || resumed && (got.Fence.AttemptID != c.Fence.AttemptID || got.Fence.AttemptIndex != 0) || got.Execution.DelayUntil != nil {
					x.t.Errorf("a %s claim: %+v after %+v", got.Kind, got.Fence, c.Fence)
				}
				x.advance(30 * time.Minute)
				x.stands(id, atActive)
			})
			for _, outcome := range terminals {
				e, _ := x.ended(outcome, "")
				answer := x.refused(fault.CodeExecutionNotEligible, func() *apitest.Response { return x.operator(e.ID, "operator-claim", "") }, e.ID)
				if answer.Str("public_state") != outcome {
					x.t.Errorf("%s", answer.Body)
				}
			}
		}},
		{"held by somebody whose lease has run out, which is not marked yet", func(x *executionTest) {
			e := x.create("")
			x.claim("")
			x.unswept(e.ID)
			x.server.Clock.Advance(30 * time.Second)
			x.refused(fault.CodeLeaseConflict, func() *apitest.Response { return x.operator(e.ID, "operator-claim", "") }, e.ID)
		}},
		{"a grant that has lapsed is no obstacle", func(x *executionTest) {
			e := x.create("")
			g := x.reserved("")
			x.unswept(e.ID)
			x.server.Clock.Advance(10 * time.Second)
			c := byHand(x, e.ID)
			x.report(c, "release", "").Want(http.StatusOK)
			x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
			x.claim("")
		}},
		{"many at once: one gets it", func(x *executionTest) {
			e := x.create("")
			done := 0
			for _, answer := range atOnce(5, func(int) *apitest.Response { return x.operator(e.ID, "operator-claim", "") }) {
				if answer.Status == http.StatusOK {
					done++
				} else {
					answer.Problem(fault.CodeLeaseConflict)
				}
			}
			if done != 1 || x.get(e.ID).TotalAttemptCount != 1 {
				x.t.Errorf("done %d times", done)
			}
		}},
	})
}
