package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/storetest"
)

// graphKills is how many times a wide graph is run with a server that is killed: twice, or as many as FLOWAPI_TEST_GRAPH_KILLS says. CONTRIBUTING.md
// has the number of a long run.
var graphKills = func() int {
	if n, err := strconv.Atoi(os.Getenv("FLOWAPI_TEST_GRAPH_KILLS")); err == nil {
		return n
	}
	return 2
}()

// A wide graph ends with the same result, whenever the server is killed: while it is submitted, while workers are at it, while many
// members are skipped, and while the members of a flow are cancelled.
func TestKill_Graph(t *testing.T) { //nolint:paralleltest // it wants the machine for itself
	for name, url := range storetest.URLs(t) {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(9, 7))
			want := newWide(t, url, random).run(t, 0)
			if want.Flows[0].Status != "failed" || want.Flows[1].Status != "cancelled" || want.Flows[0].Counts["skipped"] < 400 || want.Flows[0].Counts["cancelled"] < 20 {
				t.Fatalf("that is no such graph: %v", want.Flows)
			}
			kills := 0
			for i := range graphKills {
				w := newWide(t, url, random)
				got := w.run(t, 3)
				kills += w.kills
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("repetition %d, after %d kills (-undisturbed +killed):\n%s", i, w.kills, diff)
				}
			}
			t.Logf("%d repetitions, %d kills; %v", graphKills, kills, want.Flows)
		})
	}
}

// wide is one run of a wide graph.
type wide struct {
	tb       testing.TB
	database string
	server   *server
	url      atomic.Pointer[string]
	client   *http.Client
	random   *rand.Rand
	lane     string
	kills    int
}

func newWide(t *testing.T, database string, random *rand.Rand) *wide {
	t.Helper()
	w := &wide{tb: t, database: database, client: newClient(t), random: random, lane: "wide-" + uuid.NewString()}
	w.begin()
	return w
}

func (w *wide) begin() {
	w.server = serve(w.tb, w.database)
	w.url.Store(&w.server.url)
}

// killSoon kills the server after a time of up to so many milliseconds, and starts another one.
func (w *wide) killSoon(most int) {
	select {
	case <-time.After(time.Duration(w.random.IntN(most)) * time.Millisecond):
	case <-w.tb.Context().Done():
	}
	w.server.kill()
	w.kills++
	w.begin()
}

// post sends the same until it is answered.
func (w *wide) post(ctx context.Context, path, body string, headers ...string) (response, error) {
	for {
		r, err := send(ctx, w.client, http.MethodPost, *w.url.Load()+path, body, headers...)
		again := 5 * time.Millisecond
		switch {
		case err == nil && r.status == http.StatusServiceUnavailable:
			again = 200 * time.Millisecond
		case err == nil && r.code() != "idempotency_in_flight":
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(again):
		}
	}
}

// node is one member of the graph. Do says what its worker does: ok, fail, or hang.
type wideNode struct {
	Key         string         `json:"key"`
	Lane        string         `json:"lane"`
	Payload     any            `json:"payload"`
	Policy      map[string]any `json:"policy"`
	Needs       []string       `json:"needs,omitempty"`
	Join        any            `json:"join,omitempty"`
	OnSatisfied string         `json:"on_satisfied,omitempty"`
	DelayMS     int64          `json:"delay_ms,omitempty"`
}

func (w *wide) node(key, do string, needs ...string) wideNode {
	return wideNode{Key: key, Lane: w.lane, Payload: map[string]string{"do": do}, Policy: map[string]any{"max_reclaim_count": 1_000_000}, Needs: needs}
}

// graph is one whose result does not depend on the order in which anything happens. Workers fail by key. Of the upstreams of a
// quorum with cancel_remaining just so many end by themselves as it takes to decide it, and the others only because of it.
func (w *wide) graph() []wideNode {
	rule := rand.New(rand.NewPCG(3, 4)) // the same in every run
	nodes := []wideNode{w.node("begin", "ok"), w.node("broken", "fail", "begin")}
	// Layers of everything that depends on some of the layer before.
	layer := []string{"begin"}
	for l := range 6 {
		var next []string
		for i := range 40 {
			n := w.node(fmt.Sprintf("l%d-%d", l, i), map[bool]string{true: "fail", false: "ok"}[rule.IntN(8) == 0])
			for _, up := range layer {
				if len(layer) == 1 || rule.IntN(len(layer)) < 4 {
					n.Needs = append(n.Needs, up)
				}
			}
			if k := len(n.Needs); k > 1 {
				n.Join = []any{"all", "any", map[string]int{"quorum": 1 + rule.IntN(k)}}[rule.IntN(3)]
			}
			nodes, next = append(nodes, n), append(next, n.Key)
		}
		layer = next
	}
	// Quorums that cancel the rest: every second one is reached.
	for i := range 12 {
		name := func(what string, j int) string { return fmt.Sprintf("q%d-%s%d", i, what, j) }
		join := w.node(fmt.Sprintf("q%d", i), "ok")
		const k, rest = 3, 4
		join.Join, join.OnSatisfied = map[string]int{"quorum": k}, "cancel_remaining"
		decide := k
		do := "ok"
		if i%2 == 1 {
			do, join.Join = "fail", map[string]int{"quorum": rest + 1}
		}
		for j := range decide {
			nodes, join.Needs = append(nodes, w.node(name("d", j), do, "begin")), append(join.Needs, name("d", j))
		}
		for j := range rest {
			n := w.node(name("r", j), "hang", "begin")
			if j%2 == 1 {
				n.DelayMS = time.Hour.Milliseconds()
			}
			nodes, join.Needs = append(nodes, n), append(join.Needs, n.Key)
		}
		nodes = append(nodes, join, w.node(fmt.Sprintf("q%d-after", i), "ok", join.Key))
	}
	// More that is skipped because of one than a transaction does, and a long way down.
	for i := range 350 {
		nodes = append(nodes, w.node(fmt.Sprintf("s%d", i), "ok", "broken"))
	}
	nodes = append(nodes, w.node("c0", "ok", "broken"))
	for i := range 80 {
		nodes = append(nodes, w.node(fmt.Sprintf("c%d", i+1), "ok", fmt.Sprintf("c%d", i)))
	}
	return nodes
}

// parked is a graph of which nothing ends by itself: it is there to be cancelled.
func (w *wide) parked() []wideNode {
	var nodes []wideNode
	for i := range 300 {
		up := w.node(fmt.Sprintf("p%d", i), "ok")
		up.DelayMS = time.Hour.Milliseconds()
		nodes = append(nodes, up, w.node(fmt.Sprintf("w%d", i), "ok", up.Key))
	}
	return nodes
}

// result is what a run has come to, without ids and times.
type wideResult struct {
	Flows []wideFlow
	Graph [][]string
}

type wideFlow struct {
	Status string
	State  string
	Counts map[string]int64
}

// run submits two graphs, works one off, cancels the other, and returns what they have come to. The server is killed so many times
// while workers are at it, and once at each of the other occasions, unless that is zero.
func (w *wide) run(t *testing.T, kills int) wideResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	disturb := func(most int, do func() error) {
		done := make(chan error, 1)
		go func() { done <- do() }()
		if kills > 0 {
			w.killSoon(most)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	flows := []string{uuid.NewString(), uuid.NewString()}
	submit := func(id string, nodes []wideNode, headers ...string) func() error {
		body, err := json.Marshal(map[string]any{"id": id, "goal": "wide", "graph": map[string]any{"executions": nodes}})
		if err != nil {
			t.Fatal(err)
		}
		return func() error {
			r, err := w.post(ctx, "/v1/flows", string(body), headers...)
			if err == nil && r.status != http.StatusCreated && r.status != http.StatusOK {
				err = fmt.Errorf("submit = %d %s", r.status, r.body)
			}
			return err
		}
	}
	disturb(400, submit(flows[0], w.graph(), "Idempotency-Key: "+uuid.NewString()))
	disturb(400, submit(flows[1], w.parked()))

	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			if err := w.work(working, "w"+strconv.Itoa(i)); err != nil && working.Err() == nil {
				errs[i] = err
				cancel()
			}
		})
	}
	for range kills {
		w.killSoon(1200)
	}
	key := "Idempotency-Key: " + uuid.NewString()
	disturb(60, func() error {
		r, err := w.post(ctx, "/v1/flows/"+flows[1]+"/cancel", `{"reason":"enough"}`, key)
		if err == nil && r.status != http.StatusOK {
			err = fmt.Errorf("cancel = %d %s", r.status, r.body)
		}
		return err
	})
	w.await(ctx, t, flows[0], flows[1])
	stop()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	var out wideResult
	for _, id := range flows {
		f, graph := w.read(t, id)
		out.Flows, out.Graph = append(out.Flows, f), append(out.Graph, graph)
	}
	w.server.terminate()
	if code := w.server.ended(stopLimit); code != 0 {
		t.Errorf("exit code %d: %s", code, w.server.said())
	}
	return out
}

// await waits until the first flow has ended and the second has no members that are still to end.
func (w *wide) await(ctx context.Context, t *testing.T, ran, cancelled string) {
	t.Helper()
	for {
		var f struct {
			Status string `json:"status"`
			Rollup struct {
				Counts map[string]int64 `json:"counts"`
			} `json:"rollup"`
		}
		r, err := send(ctx, w.client, http.MethodGet, *w.url.Load()+"/v1/flows/"+ran, "")
		if err != nil || json.Unmarshal(r.body, &f) != nil {
			t.Fatalf("flow: %v: %d %s", err, r.status, r.body)
		}
		if f.Status != "running" {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it is still running: %s", r.body)
		case <-time.After(50 * time.Millisecond):
		}
	}
	var p struct{ Outstanding int }
	for p.Outstanding = 1; p.Outstanding > 0; {
		r, err := send(ctx, w.client, http.MethodGet, *w.url.Load()+"/v1/flows/"+cancelled+"/cancellation", "", "Prefer: wait=30")
		if err != nil || json.Unmarshal(r.body, &p) != nil || r.status != http.StatusOK {
			t.Fatalf("cancellation: %v: %d %s", err, r.status, r.body)
		}
	}
	undecided := func(line string) bool { return strings.HasSuffix(line, " pending") }
	for _, lines := w.read(t, cancelled); slices.ContainsFunc(lines, undecided); _, lines = w.read(t, cancelled) {
		select {
		case <-ctx.Done():
			t.Fatal("edges of what has ended stay undecided")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// work claims and does what the payloads say, until ctx ends.
func (w *wide) work(ctx context.Context, name string) error {
	for ctx.Err() == nil {
		r, err := w.post(ctx, "/v1/claims", fmt.Sprintf(`{"lane":%q,"worker_id":%q,"lease_ttl_ms":1500,"max":20}`, w.lane, name), "Prefer: wait=1")
		if err != nil {
			return err
		}
		var got struct {
			Claims []struct {
				Execution struct {
					ID      string
					Payload struct{ Do string }
				}
				Handle string
			}
		}
		switch {
		case r.status == http.StatusNoContent:
			continue
		case r.status != http.StatusOK:
			return fmt.Errorf("claim = %d %s", r.status, r.body)
		}
		if err := json.Unmarshal(r.body, &got); err != nil {
			return err
		}
		for _, c := range got.Claims {
			verb, more := "complete", `,"result":"done"`
			switch c.Execution.Payload.Do {
			case "fail":
				verb, more = "fail", `,"reason":"by rule","category":"permanent"`
			case "hang":
				continue // until somebody cancels it
			}
			r, err := w.post(ctx, "/v1/executions/"+c.Execution.ID+"/"+verb, `{"handle":"`+c.Handle+`"`+more+`}`)
			if err != nil {
				return err
			}
			if r.status != http.StatusOK && !(r.status == http.StatusConflict && tooLate[r.code()]) {
				return fmt.Errorf("%s = %d %s", verb, r.status, r.body)
			}
		}
	}
	return nil
}

// read returns what a flow has come to.
func (w *wide) read(t *testing.T, id string) (wideFlow, []string) {
	t.Helper()
	var f struct {
		Status string `json:"status"`
		Rollup struct {
			State  string           `json:"state"`
			Counts map[string]int64 `json:"counts"`
		} `json:"rollup"`
	}
	var g struct {
		Nodes []struct {
			ID     string `json:"execution_id"`
			Key    string `json:"key"`
			Public string `json:"public_state"`
		} `json:"nodes"`
		Edges []struct {
			Up    string `json:"upstream_execution_id"`
			Down  string `json:"downstream_execution_id"`
			State string `json:"state"`
		} `json:"edges"`
		Groups []struct {
			Down      string `json:"downstream_execution_id"`
			State     string `json:"state"`
			Total     int    `json:"total_deps"`
			Satisfied int    `json:"satisfied_count"`
			Failed    int    `json:"failed_count"`
			Skipped   int    `json:"skipped_count"`
		} `json:"groups"`
	}
	for path, into := range map[string]any{"": &f, "/graph": &g} {
		r := must(t, w.client, http.MethodGet, w.server.url+"/v1/flows/"+id+path, "")
		if err := json.Unmarshal(r.body, into); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s = %d %s", path, r.status, r.body)
		}
	}
	names := map[string]string{}
	var lines []string
	for _, n := range g.Nodes {
		names[n.ID] = n.Key
		lines = append(lines, n.Key+" "+n.Public)
	}
	for _, e := range g.Edges {
		lines = append(lines, names[e.Up]+" -> "+names[e.Down]+" "+e.State)
	}
	for _, x := range g.Groups {
		lines = append(lines, fmt.Sprintf("%s waits: %s, of %d edges %d satisfied, %d failed, %d skipped", names[x.Down], x.State, x.Total, x.Satisfied, x.Failed, x.Skipped))
	}
	slices.Sort(lines)
	return wideFlow{f.Status, f.Rollup.State, f.Rollup.Counts}, lines
}
