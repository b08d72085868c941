package graphtest

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/proptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shortRuns = 2

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do with a graph what the model does. Once with servers that
// change much in one transaction, and once with such as leave almost everything to the backlog.
func TestModel(t *testing.T) {
	t.Parallel()
	proptest.Batches(t, testModel)
}

func testModel(t *testing.T, batch int) {
	t.Helper()
	servers := proptest.Start(t, configured(batch))
	var all []kind
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
		for range k.weight {
			all = append(all, k)
		}
	}
	proptest.Check(t, proptest.Property{Runs: shortRuns, Kinds: names, Points: points, Run: func(rt *rapid.T, n int, c *proptest.Counts) {
		w := newWorld(t, rt, n, servers, c)
		c.Go(rt, func() { w.step(rapid.SampledFrom(all).Draw(rt, "what")) })
	}})
}

// points are what a long test has to come by.
var points = []string{
	"acknowledge: in its grace", "auto_finish: cancelled", "auto_finish: failed", "auto_finish: finished", "a waiting flow is cancelled as it was asked",
	"build: onto one that has ended", "cancel execution: active", "cancel execution: runnable", "cancel execution: suspended",
	"cancel flow: cancel_all", "cancel flow: cancel_pending", "cancel flow: flow_only", "cancel_remaining: active", "cancel_remaining: runnable", "cancelled with a grace",
	"claim: reclaimed", "claim: with an input",
	"code: already_exists", "code: already_member", "code: already_terminal", "code: cancel_pending", "code: child_already_started", "code: cycle_detected",
	"code: execution_not_active", "code: execution_not_in_flow", "code: graph_invalid", "code: lease_expired", "code: not_terminal", "code: open_members", "code: policy_fixed",
	"code: self_referencing_edge", "code: stale_graph_revision", "code: stale_lease",
	"due: deadline of what is active", "due: deadline of what is runnable", "due: grace", "due: lease",
	"either skipped or cancelled", "ended: cancelled", "ended: expired", "ended: failed", "ended: skipped", "ended: success",
	"enlist: active", "enlist: ended", "enlist: runnable", "fail: to be retried",
	"group: impossible all_of", "group: impossible any_of", "group: impossible quorum", "group: satisfied all_of", "group: satisfied any_of", "group: satisfied quorum",
	"replay: a downstream waits again", "replay: cancelled", "replay: expired", "replay: failed", "replay: skipped", "replay: success", "replay: the upstream runs again, too",
	"restart", "stage: the upstream has ended: failed", "stage: the upstream has ended: success",
}
