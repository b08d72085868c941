package modeltest

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortRuns is how many runs there are when nobody asks for more: FLOWAPI_TEST_MODEL=5m goes on for five minutes, and then
// insists that everything was reached.
const (
	shortRuns = 5
	repeats   = 3 // of some 30 steps
)

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do what the model does, and nothing else.
func TestModel(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	began, long := time.Now(), time.Duration(0)
	if text := os.Getenv("FLOWAPI_TEST_MODEL"); text != "" {
		long = must(time.ParseDuration(text))
	}
	clock := store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC))
	servers := map[string]*apptest.Server{}
	for name, url := range storetest.URLs(t) {
		servers[name] = apptest.Still(t, url, clock)
	}
	all := kinds()
	runs, steps, failed := 0, 0, false
	did, reached := map[string]int{}, map[string]int{}
	enough := func() bool {
		if failed { // it is being made smaller
			return false
		}
		spent := time.Since(began)
		return long == 0 && runs >= shortRuns || long > 0 && spent >= long && (spent >= 2*long || len(unreached(all, did, reached)) == 0)
	}
	for done := false; !done; done = enough() || t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if enough() {
				return
			}
			ended := false
			defer func() { failed = failed || !ended && rt.Failed() }() // a run of an earlier failure that fits no more has not failed
			runs++
			w := newWorld(t, rt, runs, servers, did, reached)
			for range repeats {
				rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(*rapid.T) {
					steps++
					w.perform(all)
				}})
			}
			w.kind = "at the end"
			w.each(func(s *side) {
				s.snap(true, true)
				s.results()
				s.pages()
			})
			ended = true
		})
	}
	t.Logf("%d runs, %d steps in %s", runs, steps, time.Since(began).Round(time.Millisecond))
	if long == 0 || t.Failed() {
		return
	}
	for _, what := range unreached(all, did, reached) {
		t.Errorf("it never came to this: %s", what)
	}
	report(t, "succeeded", did)
	report(t, "reached", reached)
}

func report(t *testing.T, what string, counts map[string]int) {
	t.Helper()
	text := what + ":"
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text += fmt.Sprintf("\n  %6d  %s", counts[name], name)
	}
	t.Log(text)
}

// unreached lists the operations that have never succeeded, and the points that no run has come by.
func unreached(all []kind, did, reached map[string]int) []string {
	var names []string
	for _, k := range all {
		if did[k.name] == 0 {
			names = append(names, k.name)
		}
	}
	for _, point := range points {
		if reached[point] == 0 {
			names = append(names, point)
		}
	}
	return names
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
