package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/storetest"
)

// largeChain and largeFan are the sizes of large graphs, ten times as large with FLOWAPI_TEST_LARGE_GRAPH=1: as large as one request may be.
var largeChain, largeFan = func() (int, int) {
	if os.Getenv("FLOWAPI_TEST_LARGE_GRAPH") != "" {
		return 10_000, 5000
	}
	return 1000, 500
}()

// A chain whose first member fails is skipped to its end, and a quorum that is reached cancels all the others: however many they are,
// and others create executions meanwhile. How long that takes is logged.
func TestLargeGraph(t *testing.T) { //nolint:paralleltest // it wants the machine for itself
	for name, url := range storetest.URLs(t) {
		t.Run(name, func(t *testing.T) {
			w := &wide{tb: t, database: url, client: newClient(t), lane: "large"}
			w.begin()
			w.chain(t)
			w.fan(t)
		})
	}
}

// chain fails the first of a long chain.
func (w *wide) chain(t *testing.T) {
	t.Helper()
	nodes := make([]wideNode, largeChain)
	for i := range nodes {
		nodes[i] = w.node(fmt.Sprintf("n%d", i), "ok")
		if i > 0 {
			nodes[i].Needs = []string{nodes[i-1].Key}
		}
	}
	id := w.submit(t, nodes)
	first := w.claim(t, 1)[0]
	took, creates := w.meanwhile(t, func() {
		if r := must(t, w.client, http.MethodPost, w.server.url+"/v1/executions/"+first.id+"/fail", `{"handle":"`+first.handle+`","reason":"no","category":"permanent"}`); r.status != http.StatusOK {
			t.Fatalf("fail = %d %s", r.status, r.body)
		}
		w.until(t, id, func(f largeFlow) bool { return f.Status != "running" })
	})
	f := w.flow(t, id)
	if want := map[string]int64{"failed": 1, "skipped": int64(largeChain - 1)}; f.Status != "failed" || !maps.Equal(f.Rollup.Counts, want) {
		t.Fatalf("it is %s with %v, want %v", f.Status, f.Rollup.Counts, want)
	}
	t.Logf("%d skips one after the other in %s; %s", largeChain-1, took, creates)
}

// fan reaches a quorum of many.
func (w *wide) fan(t *testing.T) {
	t.Helper()
	const k = 10
	nodes := []wideNode{w.node("begin", "ok")}
	join := w.node("join", "ok")
	join.Join, join.OnSatisfied = map[string]int{"quorum": k}, "cancel_remaining"
	for i := range largeFan {
		n := w.node(fmt.Sprintf("n%d", i), "ok", "begin")
		nodes, join.Needs = append(nodes, n), append(join.Needs, n.Key)
	}
	id := w.submit(t, append(nodes, join))
	took, creates := w.meanwhile(t, func() {
		w.complete(t, w.claim(t, 1)[0])
		w.until(t, id, func(f largeFlow) bool { return f.Rollup.Counts["waiting"] == int64(largeFan) })
	})
	t.Logf("%d that waited for one in %s; %s", largeFan, took, creates)
	some := w.claim(t, k)
	took, creates = w.meanwhile(t, func() {
		for _, h := range some {
			w.complete(t, h)
		}
		w.until(t, id, func(f largeFlow) bool { return f.Rollup.Counts["cancelled"] == int64(largeFan-k) })
	})
	t.Logf("%d that were not needed any more in %s; %s", largeFan-k, took, creates)
	w.complete(t, w.claim(t, 1)[0])
	w.until(t, id, func(f largeFlow) bool { return f.Status != "running" })
	f := w.flow(t, id)
	if want := map[string]int64{"completed": k + 2, "cancelled": int64(largeFan - k)}; f.Status != "finished" || !maps.Equal(f.Rollup.Counts, want) {
		t.Fatalf("it is %s with %v, want %v", f.Status, f.Rollup.Counts, want)
	}
}

func (w *wide) submit(t *testing.T, nodes []wideNode) string {
	t.Helper()
	id := uuid.NewString()
	body, err := json.Marshal(map[string]any{"id": id, "goal": "large", "graph": map[string]any{"executions": nodes}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if r := must(t, w.client, http.MethodPost, w.server.url+"/v1/flows", string(body)); r.status != http.StatusCreated {
		t.Fatalf("submit = %d %s", r.status, r.body)
	}
	t.Logf("%d members submitted in %s", len(nodes), time.Since(began).Round(time.Millisecond))
	w.until(t, id, func(f largeFlow) bool { return f.Rollup.Counts["waiting"] == 1 }) // large ones are let go afterwards
	return id
}

// claim claims so many.
func (w *wide) claim(t *testing.T, n int) []held {
	t.Helper()
	r := must(t, w.client, http.MethodPost, w.server.url+"/v1/claims", fmt.Sprintf(`{"lane":%q,"worker_id":"w","max":%d,"lease_ttl_ms":600000}`, w.lane, n))
	var got struct {
		Claims []struct {
			Execution struct{ ID string }
			Handle    string
		}
	}
	if r.status != http.StatusOK || json.Unmarshal(r.body, &got) != nil || len(got.Claims) != n {
		t.Fatalf("claim = %d %s", r.status, r.body)
	}
	list := make([]held, n)
	for i, c := range got.Claims {
		list[i] = held{id: c.Execution.ID, handle: c.Handle}
	}
	return list
}

func (w *wide) complete(t *testing.T, h held) {
	t.Helper()
	if r := must(t, w.client, http.MethodPost, w.server.url+"/v1/executions/"+h.id+"/complete", `{"handle":"`+h.handle+`"}`); r.status != http.StatusOK {
		t.Fatalf("complete = %d %s", r.status, r.body)
	}
}

type largeFlow struct {
	Status string `json:"status"`
	Rollup struct {
		Counts map[string]int64 `json:"counts"`
	} `json:"rollup"`
}

func (w *wide) flow(t *testing.T, id string) (f largeFlow) {
	t.Helper()
	r := must(t, w.client, http.MethodGet, w.server.url+"/v1/flows/"+id, "")
	if err := json.Unmarshal(r.body, &f); err != nil || r.status != http.StatusOK {
		t.Fatalf("flow = %d %s", r.status, r.body)
	}
	return f
}

// until looks at a flow again and again.
func (w *wide) until(t *testing.T, id string, done func(f largeFlow) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		f := w.flow(t, id)
		if done(f) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it does not come to its end: %+v", f)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// meanwhile creates executions, one after the other, while something is done. It returns how long that took, and the creates.
func (w *wide) meanwhile(t *testing.T, do func()) (took time.Duration, creates string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var each []time.Duration
	done := make(chan error, 1)
	client := newClient(t)
	go func() {
		for ctx.Err() == nil {
			began := time.Now()
			r, err := send(ctx, client, http.MethodPost, w.server.url+"/v1/executions", `{"lane":"others"}`)
			switch {
			case ctx.Err() != nil:
			case err != nil || r.status != http.StatusCreated:
				done <- fmt.Errorf("create = %d %s: %w", r.status, r.body, err)
				return
			default:
				each = append(each, time.Since(began))
			}
		}
		done <- nil
	}()
	began := time.Now()
	do()
	took = time.Since(began).Round(time.Millisecond)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(each) == 0 {
		return took, "no creates meanwhile"
	}
	slices.Sort(each)
	at := func(percent int) time.Duration { return each[(len(each)-1)*percent/100].Round(10 * time.Microsecond) }
	return took, fmt.Sprintf("%d creates meanwhile: p50 %s, p99 %s, max %s", len(each), at(50), at(99), at(100))
}
