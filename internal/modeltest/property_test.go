package modeltest

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
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
	shortRuns = 8
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
	if only := os.Getenv("ONLY"); only != "" {
		all = slices.DeleteFunc(all, func(k kind) bool { return !slices.Contains(strings.Split(only, ","), k.name) })
	}
	runs, steps, failed := 0, 0, false
	did, reached := map[string]int{}, map[string]int{}
	enough := func() bool {
		if failed { // it is being made smaller
			return false
		}
		return long == 0 && runs >= shortRuns || long > 0 && time.Since(began) >= long
	}
	for done := false; !done; done = enough() || t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if enough() {
				return
			}
			ended := false
			defer func() { failed = failed || !ended }()
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
	for _, k := range all {
		if did[k.name] == 0 {
			t.Errorf("%s has never succeeded", k.name)
		}
	}
	for _, point := range points {
		if reached[point] == 0 {
			t.Errorf("this was never reached: %s", point)
		}
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

// points are what a long test has to come by.
var points = []string{}
