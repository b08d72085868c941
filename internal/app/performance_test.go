package app_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

// request is one whose statements are counted: prepare makes what it is about, and returns it.
type request struct {
	what    string
	prepare func(x *executionTest) func() *apitest.Response
}

var flowRequests = []request{
	{"create a flow", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.Post("/v1/flows", `{"goal":"Release 1.4"}`) }
	}},
	{"create a flow with a graph of 10", func(x *executionTest) func() *apitest.Response {
		g := graphsOn(x.t, x.server, "default")
		lines := []string{"n0"}
		for i := range 9 {
			lines = append(lines, fmt.Sprintf("n%d < n%d", i+1, i))
		}
		body := g.withGraph("", lines...)
		return func() *apitest.Response { return x.Post("/v1/flows", body) }
	}},
	{"read a flow", func(x *executionTest) func() *apitest.Response {
		f := flowsOn(x.t, x.server, "default").running("")
		return func() *apitest.Response { return x.Get(flowPath(f.ID)) }
	}},
	{"change the state of a flow", func(x *executionTest) func() *apitest.Response {
		y := flowsOn(x.t, x.server, "default")
		f := y.running("")
		return func() *apitest.Response { return y.patch(f.ID, `{"state":{"n":1}}`) }
	}},
	{"let a flow wait", func(x *executionTest) func() *apitest.Response {
		y := flowsOn(x.t, x.server, "default")
		f := y.running("")
		return func() *apitest.Response { return y.verb(f.ID, "wait", `{"condition":`+manual+`}`) }
	}},
}

var executionRequests = []request{
	{"create an execution", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.Post("/v1/executions", x.sent("")) }
	}},
	{"create 100 executions", func(x *executionTest) func() *apitest.Response {
		body := `{"executions":[` + strings.Repeat(x.sent("")+",", 99) + x.sent("") + `]}`
		return func() *apitest.Response { return x.Post("/v1/executions/batch", body) }
	}},
	{"claim, and get nothing", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.ask("") }
	}},
	{"claim one", func(x *executionTest) func() *apitest.Response {
		x.create("")
		return func() *apitest.Response { return x.ask("") }
	}},
	{"claim 100", func(x *executionTest) func() *apitest.Response {
		x.createMany(100, func(int) string { return "" })
		return func() *apitest.Response { return x.ask(`"max":100`) }
	}},
	{"claim one under a budget", func(x *executionTest) func() *apitest.Response {
		id := (&budgetTest{x}).tokens(1000)
		x.create(joined(attached(id), estimate(10)))
		return func() *apitest.Response { return x.ask("") }
	}},
	{"claim one under a quota", func(x *executionTest) func() *apitest.Response {
		id := (&quotaTest{x}).quota(`"max_concurrent":3`)
		x.create(underQuotas(id))
		return func() *apitest.Response { return x.ask("") }
	}},
	{"renew", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		return func() *apitest.Response { return x.report(c, "renew", "") }
	}},
	{"complete", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		return func() *apitest.Response { return x.report(c, "complete", `"result":{"n":1}`) }
	}},
	{"complete, and let the next of a graph go", func(x *executionTest) func() *apitest.Response {
		g := graphsOn(x.t, x.server, "default")
		f := g.graph("", "a", "b < a", "c < b")
		f.claim("a")
		return func() *apitest.Response { return g.w.report(f.held["a"], "complete", "") }
	}},
	{"complete 100", func(x *executionTest) func() *apitest.Response {
		x.createMany(100, func(int) string { return "" })
		var bodies []string
		for _, c := range x.claims(`"max":100`) {
			bodies = append(bodies, fmt.Sprintf(`{"execution_id":"%s","handle":"%s"}`, c.Execution.ID, c.Handle))
		}
		return func() *apitest.Response {
			return x.Post("/v1/completions", `{"items":[`+strings.Join(bodies, ",")+`]}`)
		}
	}},
	{"fail, and try again", func(x *executionTest) func() *apitest.Response {
		c := x.held(retryPolicy(1))
		return func() *apitest.Response { return x.report(c, "fail", `"reason":"no disk"`) }
	}},
	{"suspend", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		return func() *apitest.Response { return x.report(c, "suspend", waitForGo) }
	}},
	{"signal, and let it go on", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		s := x.suspend(c, waitForGo)
		return func() *apitest.Response { return x.signal(c.Execution.ID, s.Waitpoints[0], "") }
	}},
	{"append 100 frames", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		return func() *apitest.Response { return x.put(c, lines(0, 100)...) }
	}},
	{"read 100 frames", func(x *executionTest) func() *apitest.Response {
		c := x.held("")
		x.append(c, lines(0, 100)...)
		return func() *apitest.Response { return x.Get(streamPath(c.Execution.ID, 0, "")) }
	}},
	{"read an execution", func(x *executionTest) func() *apitest.Response {
		e := x.create("")
		return func() *apitest.Response { return x.Get("/v1/executions/" + e.ID.String()) }
	}},
	{"list 50 executions", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.Get("/v1/executions?limit=50") }
	}},
	{"read 100 events", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.Get("/v1/events?limit=100&after=0") }
	}},
}

var runRequests = []request{
	{"create a run", func(x *executionTest) func() *apitest.Response {
		return func() *apitest.Response { return x.Post("/v1/runs", `{"workflow_name":"deploy"}`) }
	}},
	{"renew the lease of a run", func(x *executionTest) func() *apitest.Response {
		y := runsOn(x.t, x.server, "default")
		r := y.running("")
		return func() *apitest.Response { return y.lease(r.ID, engineToken, time.Minute) }
	}},
	{"end a step", func(x *executionTest) func() *apitest.Response {
		y := runsOn(x.t, x.server, "default")
		r := y.running("")
		s := y.stepAt(r, "running", `"step_name":"build"`)
		return func() *apitest.Response { return y.patch(r, s.ID, `"status":"completed"`) }
	}},
	{"approve a gate", func(x *executionTest) func() *apitest.Response {
		y := runsOn(x.t, x.server, "default")
		r := y.running("")
		s := y.gate(r, "")
		return func() *apitest.Response { return y.answer(r, s.ID, "approve", "") }
	}},
	{"end 100 items", func(x *executionTest) func() *apitest.Response {
		y := runsOn(x.t, x.server, "default")
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = fmt.Sprint("item-", i)
		}
		r, s, items := y.fan(ids...)
		updates := make([]string, len(items))
		for i, it := range items {
			updates[i] = itemTo(it, "skipped")
		}
		return func() *apitest.Response { return y.patchItems(r, s.ID, updates...) }
	}},
	{"report usage to a budget in another one", func(x *executionTest) func() *apitest.Response {
		b := &budgetTest{x}
		id := b.under(b.tokens(1000), `"hard_limits":{"tokens":1000}`)
		return func() *apitest.Response { return b.verb(id, "usage", dimensions(`"tokens":5`)) }
	}},
}

// TestStatements: docs/performance.md says how many statements a request sends to the database, beside BEGIN and COMMIT. What
// reaches the server first in its life (prepared secrets, buckets that are learnt) has been done before.
func TestStatements(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(content), "| request | SQLite | PostgreSQL |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	storetest.Databases(t, func(t *testing.T, url string) {
		s := apptest.Still(t, url, store.StillClock(time.Now()))
		column := 1
		if s.App.Store().Database() == "postgres" {
			column = 2
		}
		var said, counted []string
		for row := range strings.SplitSeq(table, "\n") {
			cells := strings.Split(row, " | ")
			said = append(said, strings.Trim(cells[0], "| ")+": "+strings.Trim(cells[column], "| "))
		}
		for i, r := range slices.Concat(flowRequests, executionRequests, runRequests) {
			var n int64
			for range 2 { // the second time counts
				x := executionsOn(t, s, fmt.Sprint("lane-", i))
				send := r.prepare(x)
				before := s.App.Store().Statements()
				if answer := send(); answer.Status >= http.StatusBadRequest {
					t.Fatalf("%s: %d %s", r.what, answer.Status, answer.Body)
				}
				n = s.App.Store().Statements() - before
			}
			counted = append(counted, fmt.Sprintf("%s: %d", r.what, n))
		}
		if diff := cmp.Diff(said, counted); diff != "" {
			t.Errorf("docs/performance.md (-said +counted):\n%s", diff)
		}
	})
}
