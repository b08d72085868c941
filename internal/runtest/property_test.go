package runtest

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/proptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shortRuns = 2

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do with runs what the model does. Once with servers that change
// much in one transaction, and once with such as leave almost everything to the sweep.
func TestModel(t *testing.T) {
	t.Parallel()
	proptest.Batches(t, testModel)
}

func testModel(t *testing.T, batch int) {
	t.Helper()
	servers := proptest.Start(t, func(cfg *app.Config) { cfg.Batch = batch })
	var all []kind
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
		for range k.weight {
			all = append(all, k)
		}
	}
	proptest.Check(t, proptest.Property{Runs: shortRuns, Kinds: names, Points: points, Run: func(rt *rapid.T, n int, c *proptest.Counts) {
		w := newWorld(t, rt, n, batch, servers, c)
		w.begin()
		c.Go(rt, func() {
			for tries := 0; tries < 8 && !w.step(all[evenly(rt, len(all))]); tries++ { // until there is something to do it with
			}
		})
	}})
}

// evenly draws a number below n, all of them as often as one another: what rapid draws itself is mostly small.
func evenly(rt *rapid.T, n int) int {
	h := rapid.Uint32().Draw(rt, "what") * 2654435761
	h = (h ^ h>>15) * 2246822519
	return int((h ^ h>>13) % uint32(n))
}

// points are what a long test has to come by.
var points = []string{
	"cancel: again", "cancelled with a grace",
	"code: already_member", "code: already_terminal", "code: execution_not_active", "code: gate_already_resolved", "code: illegal_transition", "code: invalid_selection",
	"code: lease_expired", "code: lease_held", "code: lease_lost", "code: link_cycle", "code: not_a_gate", "code: not_found", "code: not_resumable", "code: not_terminal",
	"code: open_members", "code: out_of_range", "code: run_cancelled", "code: run_terminal", "code: self_approval", "code: stale_lease", "code: step_terminal",
	"code: timer_out_of_range", "code: validation_failed",
	"due: cancel", "due: deadline", "due: gate, continue", "due: gate, fail", "due: grace", "due: lease", "due: wait, cancel", "due: wait, fail", "due: wait, resume",
	"ended with its flow: pending", "ended with its flow: running",
	"gate: approved", "gate: cancelled", "gate: rejected", "gate: skipped", "gate: timed_out",
	"item: a child for one that is pending", "item: a child for one that is running",
	"item: pending -> cancelled", "item: pending -> completed", "item: pending -> failed", "item: pending -> running", "item: pending -> skipped",
	"item: running -> cancelled", "item: running -> completed", "item: running -> failed", "item: running -> skipped",
	"lease: granted", "lease: renewed", "lease: taken_over",
	"linked: a run that is pending", "linked: a run that is running",
	"mirror: cancelled", "mirror: completed", "mirror: failed", "mirror: running", "mirror: timed_out", "mirror: waiting",
	"refused: its child is at work", "refused: its gate is open", "release: of what is cancelling", "replay",
	"reset: an item, cancelled", "reset: an item, completed", "reset: an item, failed", "reset: an item, running", "reset: an item, skipped", "reset: an open gate",
	"restart", "resumed by its child", "retry",
	"run: cancelling -> cancelled", "run: completed -> running", "run: failed -> running",
	"run: needs_resume -> cancelled", "run: needs_resume -> failed", "run: needs_resume -> running", "run: pending -> cancelled", "run: pending -> failed",
	"run: pending -> running", "run: running -> cancelled", "run: running -> cancelling", "run: running -> completed", "run: running -> failed",
	"run: running -> needs_resume", "run: running -> waiting", "run: waiting -> cancelled", "run: waiting -> cancelling", "run: waiting -> failed",
	"run: waiting -> needs_resume", "run: waiting -> running",
	"step: pending -> cancelled", "step: pending -> completed", "step: pending -> failed", "step: pending -> skipped", "step: pending -> timed_out",
	"step: running -> cancelled", "step: running -> completed", "step: running -> failed", "step: running -> skipped", "step: running -> timed_out",
	"step: waiting -> cancelled", "step: waiting -> completed", "step: waiting -> failed", "step: waiting -> skipped", "step: waiting -> timed_out",
	"vote: approved", "vote: feedback", "vote: replayed", "wait: for what has ended",
	"work: cancelled", "work: expired", "work: failed", "work: success",
}
