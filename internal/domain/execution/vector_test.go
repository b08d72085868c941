package execution_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// legalRows is executions.md 1.9.2, the canonical column, row by row: lifecycle, ownership, eligibility, blocking reason,
// outcome, attempt state, and the public state that 1.9.3 derives. Alternatives are separated by bars. What was never
// claimed keeps its attempt state when it is cancelled or expires, and has none when it is skipped.
const legalRows = `
runnable; unowned; eligible_now;            waiting_for_worker;                                        none; PENDING; waiting
runnable; unowned; not_eligible_until_time; waiting_for_delay|waiting_for_retry_backoff|waiting_for_resume_delay; none; PENDING; delayed
runnable; unowned; blocked_by_dependencies; waiting_for_children;                                      none; PENDING; waiting_children
runnable; unowned; blocked_by_budget;       waiting_for_budget;                                        none; PENDING; rate_limited
runnable; unowned; blocked_by_quota;        waiting_for_quota;                                         none; PENDING; rate_limited
runnable; unowned; blocked_by_route;        waiting_for_capable_worker|waiting_for_locality_match;     none; PENDING; waiting
runnable; unowned; blocked_by_lane_state;   paused_by_policy;                                          none; PENDING; waiting
runnable; unowned; blocked_by_operator;     paused_by_operator|paused_by_flow_cancel;                  none; PENDING; waiting
active;   leased;  not_applicable;          none;                                                      none; running_attempt; active
active;   lease_expired_reclaimable|lease_revoked; not_applicable; waiting_for_worker;                 none; attempt_interrupted; active
suspended; unowned; not_applicable; waiting_for_signal|waiting_for_approval|waiting_for_callback|waiting_for_tool_result|waiting_for_budget|paused_by_operator|paused_by_policy; none; attempt_interrupted; suspended
terminal; unowned; not_applicable; none; success;   attempt_terminal; completed
terminal; unowned; not_applicable; none; failed;    attempt_terminal; failed
terminal; unowned; not_applicable; none; cancelled; attempt_terminal|pending_first_attempt|pending_replay_attempt; cancelled
terminal; unowned; not_applicable; none; expired;   attempt_terminal|pending_first_attempt|pending_replay_attempt; expired
terminal; unowned; not_applicable; none; skipped;   attempt_terminal|none; skipped
`

// dimensions are executions.md 1.9.1, each with a word that is not in it: submitted is never stored.
var dimensions = [6]string{
	"submitted runnable active suspended terminal",
	"released unowned leased lease_expired_reclaimable lease_revoked",
	"pending_claim eligible_now not_eligible_until_time blocked_by_dependencies blocked_by_budget blocked_by_quota blocked_by_route " +
		"blocked_by_lane_state blocked_by_operator not_applicable",
	"waiting none waiting_for_worker waiting_for_retry_backoff waiting_for_resume_delay waiting_for_delay waiting_for_signal waiting_for_approval " +
		"waiting_for_callback waiting_for_tool_result waiting_for_children waiting_for_budget waiting_for_quota waiting_for_capable_worker " +
		"waiting_for_locality_match paused_by_operator paused_by_policy paused_by_flow_cancel",
	"succeeded none success failed cancelled expired skipped",
	"pending none pending_first_attempt running_attempt attempt_interrupted pending_retry_attempt pending_replay_attempt attempt_terminal",
}

// legalVectors returns every combination of the rows, with its public state.
func legalVectors(tb testing.TB) map[execution.Vector]execution.Public {
	tb.Helper()
	legal := map[execution.Vector]execution.Public{}
	for line := range strings.SplitSeq(strings.TrimSpace(legalRows), "\n") {
		line = strings.ReplaceAll(line, "PENDING", "pending_first_attempt|pending_retry_attempt|pending_replay_attempt|attempt_interrupted")
		cells := strings.Split(line, ";")
		if len(cells) != 7 {
			tb.Fatalf("row %q has %d cells", line, len(cells))
		}
		var alternatives [6][]string
		for i := range alternatives {
			alternatives[i] = strings.Split(strings.TrimSpace(cells[i]), "|")
		}
		each(alternatives, func(v execution.Vector) { legal[v] = execution.Public(strings.TrimSpace(cells[6])) })
	}
	return legal
}

// each calls fn with every combination of the values of the six dimensions.
func each(values [6][]string, fn func(execution.Vector)) {
	for _, lifecycle := range values[0] {
		for _, ownership := range values[1] {
			for _, eligibility := range values[2] {
				for _, blocking := range values[3] {
					for _, outcome := range values[4] {
						for _, attempt := range values[5] {
							fn(execution.Vector{
								Lifecycle: execution.Lifecycle(lifecycle), Ownership: execution.Ownership(ownership), Eligibility: execution.Eligibility(eligibility),
								Blocking: execution.Blocking(blocking), Outcome: execution.Outcome(outcome), Attempt: execution.AttemptState(attempt),
							})
						}
					}
				}
			}
		}
	}
}

// TestVector_Legal: executions.md 1.9.2, every combination of every value.
func TestVector_Legal(t *testing.T) {
	t.Parallel()
	legal := legalVectors(t)
	var values [6][]string
	for i := range dimensions {
		values[i] = strings.Fields(dimensions[i])
	}
	wrong, seen := 0, 0
	each(values, func(v execution.Vector) {
		_, want := legal[v]
		if want {
			seen++
		}
		if v.Legal() != want && wrong < 20 {
			wrong++
			t.Errorf("Legal(%v) = %t", v, !want)
		}
	})
	if seen != len(legal) {
		t.Errorf("%d of %d legal combinations are made of known words", seen, len(legal))
	}
}

// TestVector_Public: executions.md 1.9.3.
func TestVector_Public(t *testing.T) {
	t.Parallel()
	public := map[execution.Public]bool{}
	for v, want := range legalVectors(t) {
		if got := v.Public(); got != want {
			t.Errorf("Public(%v) = %q, want %q", v, got, want)
		}
		public[want] = true
	}
	for _, p := range execution.Publics() {
		if !public[p] {
			t.Errorf("no legal combination is %s", p)
		}
		delete(public, p)
	}
	if len(public) > 0 {
		t.Errorf("Publics() lacks %v", public)
	}
}

// vector reads "lifecycle ownership eligibility blocking outcome attempt".
func vector(tb testing.TB, s string) execution.Vector {
	tb.Helper()
	var v execution.Vector
	if n, err := fmt.Sscan(s, &v.Lifecycle, &v.Ownership, &v.Eligibility, &v.Blocking, &v.Outcome, &v.Attempt); n != 6 || err != nil {
		tb.Fatalf("vector %q: %v", s, err)
	}
	return v
}
