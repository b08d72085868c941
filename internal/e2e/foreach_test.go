package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/storetest"
)

const (
	foreachItems    = 2000
	foreachInFlight = 50
	foreachWorkers  = 6
)

// A step over two thousand items, each of which an execution does, ends with counters that equal the rows: in one pass, and when server
// and engine are killed in the middle.
func TestForeach(t *testing.T) { //nolint:paralleltest // it wants the machine for itself
	for name, url := range storetest.URLs(t) {
		t.Run(name, func(t *testing.T) {
			want := map[string]int{"completed": foreachItems * 8 / 10, "failed": foreachItems / 10, "cancelled": foreachItems / 10}
			for _, kills := range []int{0, 2} {
				f := &foreach{T: t, database: url, client: newClient(t), lane: "foreach-" + uuid.NewString(), kills: kills}
				if diff := cmp.Diff(want, f.pass()); diff != "" {
					t.Errorf("with %d kills (-want +got):\n%s", kills, diff)
				}
			}
		})
	}
}

// foreach is one pass over the items.
type foreach struct {
	*testing.T
	database string
	server   *server
	url      atomic.Pointer[string]
	client   *http.Client
	lane     string
	kills    int

	run, step  string
	token      string
	generation int64
	most       int // items that were at work at a time
}

func (f *foreach) begin() {
	f.server = serve(f, f.database)
	f.url.Store(&f.server.url)
}

// pass drives the run to its end, and returns how many items are in each status.
func (f *foreach) pass() map[string]int {
	f.begin()
	defer func() { f.server.kill() }()
	ctx, stop := context.WithTimeout(f.Context(), 4*time.Minute)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range foreachWorkers {
		wg.Go(func() { f.work(ctx, fmt.Sprintf("w%d", i)) })
	}
	f.prepare()
	for kill := 0; ; kill++ {
		after := foreachItems + 1 // never
		if kill < f.kills {
			after = (kill + 1) * foreachItems / (f.kills + 1)
		}
		if f.drive(ctx, after) {
			break
		}
		f.server.kill()
		f.begin()
		f.token = uuid.NewString() // another engine
	}
	if f.most > foreachInFlight {
		f.Errorf("%d items were at work at a time", f.most)
	}
	return f.counted()
}

// ask sends a request until the server answers, and reads the answer.
func (f *foreach) ask(ctx context.Context, method, path, body string, into any) response {
	for {
		r, err := send(ctx, f.client, method, *f.url.Load()+path, body)
		if err == nil && r.status != http.StatusServiceUnavailable {
			if into != nil && r.status < 300 && len(r.body) > 0 {
				if err := json.Unmarshal(r.body, into); err != nil {
					f.Errorf("%s %s: %v", method, path, err)
				}
			}
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// prepare makes the run, its step and the items.
func (f *foreach) prepare() {
	f.run, f.step, f.token = uuid.NewString(), uuid.NewString(), uuid.NewString()
	ctx := f.Context()
	for _, r := range []response{
		f.ask(ctx, http.MethodPost, "/v1/runs", `{"id":"`+f.run+`","workflow_name":"foreach"}`, nil),
		f.ask(ctx, http.MethodPost, "/v1/runs/"+f.run+"/start", `{"generation":0}`, nil),
		f.ask(ctx, http.MethodPost, "/v1/runs/"+f.run+"/steps", `{"generation":0,"id":"`+f.step+`","step_name":"all","role":"foreach","position":0,"retry_count":0}`, nil),
	} {
		if r.status >= 300 {
			f.Fatalf("%d %s", r.status, r.body)
		}
	}
	for from := 0; from < foreachItems; from += 500 {
		items := make([]string, 500)
		for i := range items {
			items[i] = fmt.Sprintf(`{"item_type":"n","item_id":"%d"}`, from+i)
		}
		r := f.ask(ctx, http.MethodPost, f.path("/items"), `{"generation":0,"items":[`+strings.Join(items, ",")+`]}`, nil)
		if r.status != http.StatusOK {
			f.Fatalf("add items = %d %s", r.status, r.body)
		}
	}
}

func (f *foreach) path(rest string) string { return "/v1/runs/" + f.run + "/steps/" + f.step + rest }

type foreachPage struct {
	Items []struct {
		ID     string
		ItemID string `json:"item_id"`
	}
}

// drive is an engine: it keeps so many items at work, until none is left, or until so many have ended: then it is killed. It says whether
// it has come to the end.
func (f *foreach) drive(ctx context.Context, until int) bool {
	for {
		var leased struct{ Generation int64 }
		r := f.ask(ctx, http.MethodPost, "/v1/runs/"+f.run+"/lease", `{"token":"`+f.token+`","ttl_ms":1000}`, &leased)
		if r.status == http.StatusOK {
			f.generation = leased.Generation
			break
		}
		if r.code() != "lease_held" {
			f.Fatalf("lease = %d %s", r.status, r.body)
		}
		if err := pause(ctx, rand.New(rand.NewPCG(1, 1)), 50); err != nil {
			f.Fatal(err)
		}
	}
	for ctx.Err() == nil {
		var running, pending foreachPage
		var step struct {
			Open int `json:"fan_out_pending"`
			Busy int `json:"fan_out_running"`
		}
		f.ask(ctx, http.MethodGet, f.path("/items?status=running&limit=500"), "", &running)
		f.ask(ctx, http.MethodGet, f.path("/items?status=pending&limit=50"), "", &pending)
		f.ask(ctx, http.MethodGet, f.path(""), "", &step)
		f.most = max(f.most, len(running.Items))
		ended := foreachItems - step.Open - step.Busy
		switch {
		case ended >= until:
			return false
		case ended == foreachItems:
			return f.finish(ctx)
		case len(running.Items) >= foreachInFlight || len(pending.Items) == 0:
			_ = pause(ctx, rand.New(rand.NewPCG(2, 2)), 5)
			continue
		}
		f.dispatch(ctx, pending, foreachInFlight-len(running.Items))
	}
	f.Fatal("the items do not end")
	return false
}

// dispatch lets executions do the work of the next items.
func (f *foreach) dispatch(ctx context.Context, pending foreachPage, free int) {
	var updates []string
	for _, item := range pending.Items[:min(free, len(pending.Items))] {
		updates = append(updates, fmt.Sprintf(`{"id":%q,"status":"running","child":{"execution":{"lane":%q,"payload":{"n":%s},"policy":{"max_reclaim_count":1000}}}}`, item.ID, f.lane, item.ItemID))
	}
	r := f.ask(ctx, http.MethodPatch, f.path("/items"), fmt.Sprintf(`{"generation":%d,"updates":[%s]}`, f.generation, strings.Join(updates, ",")), nil)
	if r.status != http.StatusOK && ctx.Err() == nil {
		f.Fatalf("dispatch = %d %s", r.status, r.body)
	}
}

func (f *foreach) finish(ctx context.Context) bool {
	r := f.ask(ctx, http.MethodPatch, f.path(""), fmt.Sprintf(`{"generation":%d,"status":"completed"}`, f.generation), nil)
	if r.status == http.StatusOK {
		r = f.ask(ctx, http.MethodPost, "/v1/runs/"+f.run+"/complete", fmt.Sprintf(`{"generation":%d}`, f.generation), nil)
	}
	if r.status != http.StatusOK {
		f.Fatalf("complete = %d %s", r.status, r.body)
	}
	return true
}

// work is a worker: of ten executions it fails one and cancels one.
func (f *foreach) work(ctx context.Context, name string) {
	for ctx.Err() == nil {
		var got struct {
			Claims []struct {
				Handle    string
				Execution struct {
					ID      string
					Payload struct{ N int }
				}
			}
		}
		if r := f.ask(ctx, http.MethodPost, "/v1/claims", fmt.Sprintf(`{"lane":%q,"worker_id":%q,"max":8,"lease_ttl_ms":1000}`, f.lane, name), &got); r.status != http.StatusOK {
			_ = pause(ctx, rand.New(rand.NewPCG(3, 3)), 10)
			continue
		}
		for _, c := range got.Claims {
			verb, more := "complete", `,"result":{"n":`+fmt.Sprint(c.Execution.Payload.N)+`}`
			switch c.Execution.Payload.N % 10 {
			case 3:
				verb, more = "fail", `,"reason":"broken","category":"permanent"`
			case 7:
				verb, more = "cancel", `,"reason":"not needed"`
			}
			f.ask(ctx, http.MethodPost, "/v1/executions/"+c.Execution.ID+"/"+verb, `{"handle":"`+c.Handle+`"`+more+`}`, nil)
		}
	}
}

// counted returns how many items are in each status, and checks that the step's counters and the executions say the same.
func (f *foreach) counted() map[string]int {
	ctx := f.Context()
	rows := map[string]int{}
	executions := map[string]int{}
	for next := f.path("/items?limit=500"); next != ""; {
		var page struct {
			Items []struct {
				Status           string
				ChildExecutionID string `json:"child_execution_id"`
			}
			NextCursor string `json:"next_cursor"`
		}
		f.ask(ctx, http.MethodGet, next, "", &page)
		for _, it := range page.Items {
			rows[it.Status]++
			executions[it.ChildExecutionID]++
		}
		if next = ""; page.NextCursor != "" {
			next = f.path("/items?limit=500&cursor=" + page.NextCursor)
		}
	}
	var counters map[string]any
	f.ask(ctx, http.MethodGet, f.path(""), "", &counters)
	for status, n := range rows {
		if got := counters["fan_out_"+status]; got != float64(n) {
			f.Errorf("%d items are %s, the step counts %v", n, status, got)
		}
	}
	if counters["fan_out_total"] != float64(foreachItems) || counters["fan_out_pending"] != 0.0 || counters["fan_out_running"] != 0.0 || counters["status"] != "completed" {
		f.Errorf("the step is %v", counters)
	}
	var made struct{ Counts map[string]int }
	f.ask(ctx, http.MethodGet, "/v1/executions/counts?group_by=lane", "", &made)
	if len(executions) != foreachItems || made.Counts[f.lane] != foreachItems {
		f.Errorf("%d executions do the work of %d items, and there are %d", len(executions), foreachItems, made.Counts[f.lane])
	}
	return rows
}
