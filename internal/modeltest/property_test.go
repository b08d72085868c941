package modeltest

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/proptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shortRuns = 3

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do what the model does, and nothing else.
func TestModel(t *testing.T) {
	t.Parallel()
	servers, all := proptest.Start(t), kinds()
	var names []string
	for _, k := range all {
		names = append(names, k.name)
	}
	proptest.Check(t, proptest.Property{Runs: shortRuns, Kinds: names, Points: points, Run: func(rt *rapid.T, n int, c *proptest.Counts) {
		w := newWorld(t, rt, n, servers, c)
		c.Go(rt, func() { w.perform(all) })
		w.kind = "at the end"
		w.each(func(s *side) {
			s.snap(true, true)
			s.results()
			s.pages()
		})
	}})
}

// points are what a long test has to come by.
var points = []string{
	"cancelling, and then cancel", "cancelling, and then complete", "cancelling, and then delay", "cancelling, and then fail", "cancelling, and then release",
	"cancelling, and then revoke-lease", "cancelling, and then wait_children",
	"claim with a grant: claim_grant_expired", "claim with a grant: execution_not_leaseable", "claim with a grant: invalid_claim_grant",
	"claim with a grant: lease_conflict", "claim with a grant: worker_draining",
	"claim: draining", "claim: fresh", "claim: lost too often", "claim: reclaimed", "claim: replay", "claim: resumed", "claim: retry",
	"code: already_terminal", "code: capability_mismatch", "code: execution_not_active", "code: execution_not_eligible", "code: execution_not_terminal",
	"code: invalid_capabilities", "code: invalid_handle", "code: invalid_tag_key", "code: lease_conflict", "code: lease_expired", "code: lease_revoked",
	"code: max_replays_exhausted", "code: not_found", "code: not_suspended", "code: revision_mismatch", "code: stale_lease", "code: timer_out_of_range",
	"code: worker_not_registered", "code: worker_reassigned",
	"create: delayed", "create: the id is known", "create: the key is known",
	"directives: cancel", "directives: drain",
	"due: attempt timeout", "due: attempt timeout, of a resumed attempt", "due: deadline", "due: delay", "due: grace", "due: grant", "due: heartbeat", "due: lease", "due: lease, cancelling",
	"ended: cancelled", "ended: expired", "ended: failed", "ended: success",
	"explain: claimable",
	"operator-cancel: grace", "operator-cancel: it is cancelled", "operator-cancel: less grace", "operator-cancel: more grace", "operator-cancel: no more grace",
	"operator-claim: before its time", "operator-claim: grant_exists",
	"reclaim with a grant: grant_not_found", "reclaim with a grant: invalid_claim_grant", "reclaim with a grant: not_reclaimable",
	"reclaim-grants: capability_mismatch", "reclaim-grants: elapsed", "reclaim-grants: grant_exists", "reclaim-grants: not_reclaimable",
	"reclaim-grants: reclaim_cap_exceeded", "reclaim-grants: worker_draining",
	"register: the sweep has not come by yet",
	"replayed: cancel", "replayed: complete", "replayed: delay", "replayed: fail", "replayed: release", "replayed: wait_children",
	"replay: at the deadline", "replay: cancelled", "replay: expired", "replay: failed", "replay: success",
	"resume: later", "resume: suspended", "resumed: later",
	"cancelling, and then suspend", "suspend: already satisfied", "suspend: the key is known",
	"due: suspension, auto_resume", "due: suspension, auto_resume_with_timeout_signal", "due: suspension, cancel", "due: suspension, escalate",
	"due: suspension, expire", "due: suspension, fail", "due: waitpoint",
	"signal: appended_to_waitpoint", "signal: appended_to_waitpoint_duplicate", "signal: buffered_for_pending_waitpoint", "signal: no_op",
	"signal: resume_condition_satisfied", "signal: signal_ignored_matcher_failed", "signal: the id is known", "signal: the key is known",
	"signal: the key was known", "waitpoints: kept",
	"code: already_suspended", "code: invalid_condition", "code: invalid_token", "code: pending_waitpoint_expired", "code: signal_limit_exceeded",
	"code: target_not_signalable", "code: waitpoint_closed", "code: waitpoint_not_pending",
	"revoke-lease: already_expired", "revoke-lease: already_revoked", "revoke-lease: different_worker_instance_id",
}
