package graphtest

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
	shortRuns = 4
	repeats   = 3 // of some 30 steps
)

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do with a graph what the model does. Once with servers that
// change much in one transaction, and once with such as leave almost everything to the backlog.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{250, 3} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			testModel(t, batch)
		})
	}
}

func testModel(t *testing.T, batch int) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	began, long := time.Now(), time.Duration(0)
	if text := os.Getenv("FLOWAPI_TEST_MODEL"); text != "" {
		long = must(time.ParseDuration(text))
	}
	clock := store.StillClock(time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC))
	servers := map[string]*running{}
	for name, url := range storetest.URLs(t) {
		servers[name] = &running{apptest.Still(t, url, clock, configured(batch))}
	}
	var all []kind
	for _, k := range kinds() {
		for range k.weight {
			all = append(all, k)
		}
	}
	runs, done, failed := 0, 0, false
	did, reached := map[string]int{}, map[string]int{}
	enough := func() bool {
		if failed { // it is being made smaller
			return false
		}
		spent := time.Since(began)
		return long == 0 && runs >= shortRuns || long > 0 && spent >= long && (spent >= 2*long || len(unreached(did, reached)) == 0)
	}
	for over := false; !over; over = enough() || t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if enough() {
				return
			}
			ended := false
			defer func() { failed = failed || !ended && rt.Failed() }()
			runs++
			w := newWorld(t, rt, runs, batch, servers, did, reached)
			for range repeats {
				rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(*rapid.T) {
					w.step(rapid.SampledFrom(all).Draw(rt, "what"))
					done++
				}})
			}
			ended = true
		})
	}
	t.Logf("%d runs, %d steps in %s", runs, done, time.Since(began).Round(time.Millisecond))
	if long == 0 || t.Failed() {
		return
	}
	for _, what := range unreached(did, reached) {
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

// unreached lists the steps that have never succeeded, and the points that no run has come by.
func unreached(did, reached map[string]int) []string {
	var names []string
	for _, k := range kinds() {
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
