package app_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestGrants_Reclaim: taking over in two steps. executions.md 2.5, 6.3/41, 6.5/61 to 68.
func TestGrants_Reclaim(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, grantsReclaimCases)
}

var grantsReclaimCases = []executionCase{
	{"reserved, and taken over (6.5/61, 62, 63, 68)", func(x *executionTest) {
		e, c := x.lost("")
		n := len(x.events(e.ID))
		before := x.server.Clock.Now()
		g := x.reservedLost(e.ID, `"grant_ttl_ms":5000`)
		want := oapi.Grant{GrantID: g.GrantID, ExecutionID: e.ID, Lane: x.lane, Kind: "reclaim", ExpiresAt: g.ExpiresAt}
		if diff := cmp.Diff(want, g); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.lapses(g, before, 5*time.Second)
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
}

// TestGrants_ByHand: an operator claims. executions.md 2.3 (issue_grant_and_claim), 6.2/37.
func TestGrants_ByHand(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, grantsByHandCases)
}

var grantsByHandCases = []executionCase{
	{"this very execution, whatever stands before it and whatever it requires (6.2/37)", func(x *executionTest) {
		x.create(`"priority":9`)
		e := x.create(`"required_capabilities":["gpu"]`)
		c := x.claimedByHand(e.ID)
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
		c := x.claimedByHand(e.ID)
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
			got := x.claimedByHand(id)
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
		c := x.claimedByHand(e.ID)
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
}

// claimedByHand claims an execution as an operator, which succeeds.
func (x *executionTest) claimedByHand(id uuid.UUID) oapi.Claim {
	x.t.Helper()
	answer := x.operator(id, "operator-claim", `"lease_ttl_ms":3600000`).Want(http.StatusOK)
	got := answerAs[oapi.Claims](answer)
	if len(got.Claims) != 1 {
		x.t.Fatalf("%s", answer.Body)
	}
	return got.Claims[0]
}
