package runtest

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/proptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shortRuns = 4
	repeats   = 3 // of some 30 steps
)

// TestModel: whatever is asked in whatever order, SQLite and PostgreSQL do with runs what the model does. Once with servers that change
// much in one transaction, and once with such as leave almost everything to the sweep.
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
		for range repeats {
			rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": func(*rapid.T) {
				for tries := 0; tries < 8 && !w.step(all[evenly(rt, len(all))]); tries++ { // until there is something to do it with
				}
				c.Steps++
			}})
		}
	}})
}

// evenly draws a number below n, all of them as often as one another: what rapid draws itself is mostly small.
func evenly(rt *rapid.T, n int) int {
	h := rapid.Uint32().Draw(rt, "what") * 2654435761
	h = (h ^ h>>15) * 2246822519
	return int((h ^ h>>13) % uint32(n))
}

// points are what a long test has to come by.
var points = []string{}
