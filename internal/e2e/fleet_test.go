package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/storetest"
)

// fleetExecutions is how many executions the fleet ends: 1,000, or as many as FLOWAPI_TEST_FLEET says. CONTRIBUTING.md has the number of a long run.
var fleetExecutions = func() int {
	if n, err := strconv.Atoi(os.Getenv("FLOWAPI_TEST_FLEET")); err == nil {
		return n
	}
	return 1000
}()

// The fleet: so many workers, of different abilities and manners, end so many executions, while operators get in their way.
const (
	fleetWorkers   = 64
	fleetOperators = 2
	fleetPatience  = 10 * time.Minute
)

// Every execution ends once, no attempt has two owners, attempts and epochs grow: on SQLite, and on PostgreSQL with two
// servers.
func TestFleet(t *testing.T) { //nolint:paralleltest // it wants the machine for itself
	storetest.Databases(t, func(t *testing.T, url string) {
		servers := []string{serve(t, url).url}
		if strings.HasPrefix(url, "postgres") {
			servers = append(servers, serve(t, url).url)
		}
		f := &fleet{ledger: newLedger(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fleetWorkers}}, servers: servers}
		f.leases.Store(1)
		t.Cleanup(f.client.CloseIdleConnections)
		f.create(t)
		ctx, cancel := context.WithTimeout(t.Context(), fleetPatience)
		defer cancel()
		began := time.Now()
		if err := f.run(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d executions in %s; claims %d", len(f.ids), time.Since(began).Round(time.Millisecond), len(f.claimed))
		f.check(t)
	})
}

type fleet struct {
	*ledger
	client  *http.Client
	servers []string
	ids     []string
	leases  atomic.Int64 // how long they are, in units of what is enough on a quiet machine
}

// late makes leases longer, when one has run out that this was not meant for.
func (f *fleet) late(seen int64) { f.leases.CompareAndSwap(seen, min(2*seen, 64)) }

// call sends a request to one of the servers, and again while they are busy.
func (f *fleet) call(ctx context.Context, random *rand.Rand, method, path, body string, into any, headers ...string) (response, error) {
	for {
		r, err := send(ctx, f.client, method, f.servers[random.IntN(len(f.servers))]+path, body, headers...)
		if err != nil || r.status != http.StatusServiceUnavailable {
			if err == nil && into != nil && r.status < 300 && len(r.body) > 0 {
				err = json.Unmarshal(r.body, into)
			}
			return r, err
		}
		if err := pause(ctx, random, 20); err != nil {
			return r, err
		}
	}
}

// pause lets up to so many milliseconds pass.
func pause(ctx context.Context, random *rand.Rand, most int) error {
	select {
	case <-time.After(time.Duration(random.IntN(most*1000)) * time.Microsecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var fleetCapabilities = []string{`[]`, `["a"]`, `["b"]`, `["c"]`, `["a","b"]`, `["a","c"]`, `["a","b","c"]`}

func (f *fleet) create(t *testing.T) {
	t.Helper()
	const batch = 1000
	random := rand.New(rand.NewPCG(64, 20_000))
	for range fleetExecutions / batch {
		items := make([]string, batch)
		for i := range items {
			items[i] = fmt.Sprintf(`{"lane":"fleet","priority":%d,"delay_ms":%d,"required_capabilities":%s,
				"policy":{"max_reclaim_count":4,"retry_policy":{"max_retries":2,"backoff":{"type":"fixed","delay_ms":20}}}}`,
				random.IntN(5)*100, random.IntN(2)*random.IntN(2000), fleetCapabilities[random.IntN(len(fleetCapabilities))])
		}
		var made struct {
			Items []struct{ Execution struct{ ID string } }
		}
		r, err := f.call(t.Context(), random, http.MethodPost, "/v1/executions/batch", `{"executions":[`+strings.Join(items, ",")+`]}`, &made)
		if err != nil || r.status != http.StatusCreated {
			t.Fatalf("create = %d %s, %v", r.status, r.body, err)
		}
		for _, item := range made.Items {
			f.ids = append(f.ids, item.Execution.ID)
		}
	}
}

// run lets everybody do their work until nothing is left.
func (f *fleet) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := errors.New("nothing is left")
	var wg sync.WaitGroup
	spawn := func(n int, name string, do func(ctx context.Context, name string, random *rand.Rand) error) {
		for i := range n {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), uint64(len(name))))
				for ctx.Err() == nil {
					if err := do(ctx, name+strconv.Itoa(i), random); err != nil && ctx.Err() == nil {
						stop(fmt.Errorf("%s%d: %w", name, i, err))
					}
				}
			})
		}
	}
	spawn(fleetWorkers, "w", f.work)
	spawn(fleetOperators, "operator", f.operate)
	spawn(1, "watcher", func(ctx context.Context, _ string, random *rand.Rand) error {
		var got struct{ Counts map[string]int }
		if _, err := f.call(ctx, random, http.MethodGet, "/v1/executions/counts", "", &got); err != nil {
			return err
		}
		if ended := got.Counts["completed"] + got.Counts["failed"] + got.Counts["cancelled"] + got.Counts["expired"]; ended == len(f.ids) {
			stop(over)
		}
		return pause(ctx, random, 500)
	})
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, over) {
		return err
	}
	return nil
}

// lateness are the refusals that a worker meets whose execution was taken from it.
var lateness = map[string]bool{"lease_expired": true, "stale_lease": true, "execution_not_active": true, "lease_revoked": true}

// work claims some executions and does with each what workers do. Some can do everything.
func (f *fleet) work(ctx context.Context, name string, random *rand.Rand) error {
	n, _ := strconv.Atoi(name[1:])
	able := fleetCapabilities[n%len(fleetCapabilities)]
	var got struct {
		Claims []struct {
			Execution struct{ ID string }
			Handle    string
			Fence     struct {
				LeaseID    string `json:"lease_id"`
				LeaseEpoch int64  `json:"lease_epoch"`
			}
		}
	}
	leases := f.leases.Load()
	body := fmt.Sprintf(`{"lane":"fleet","worker_id":%q,"capabilities":%s,"lease_ttl_ms":%d,"max":%d}`, name, able, leases*int64(500+random.IntN(2000)), 1+random.IntN(20))
	r, err := f.call(ctx, random, http.MethodPost, "/v1/claims", body, &got, "Prefer: wait=2")
	switch {
	case err != nil:
		return err
	case r.status == http.StatusNoContent:
		return nil
	case r.status != http.StatusOK:
		return fmt.Errorf("claim = %d %s", r.status, r.body)
	}
	var done []string
	for _, c := range got.Claims {
		if err := f.claim(c.Execution.ID, c.Fence.LeaseEpoch, claimEntry{name, c.Fence.LeaseID}); err != nil {
			return err
		}
		verb, more := "", ""
		switch random.IntN(24) {
		case 0: // it crashes
			continue
		case 1:
			verb, more = "fail", `,"reason":"no","category":"transient"`
		case 2:
			verb, more = "release", ""
		case 3:
			verb, more = "delay", `,"delay_ms":`+strconv.Itoa(random.IntN(100))
		case 4:
			verb, more = "cancel", ""
		case 5:
			verb, more = "renew", fmt.Sprintf(`,"lease_ttl_ms":%d`, leases*1000)
		case 6:
			verb, more = "fail", `,"reason":"never","category":"permanent"`
		}
		if verb != "" {
			r, err := f.call(ctx, random, http.MethodPost, "/v1/executions/"+c.Execution.ID+"/"+verb, `{"handle":"`+c.Handle+`"`+more+`}`, nil)
			if err != nil {
				return err
			}
			if r.status != http.StatusOK && !lateness[r.code()] {
				return fmt.Errorf("%s = %d %s", verb, r.status, r.body)
			}
			if r.code() == "lease_expired" {
				f.late(leases)
			}
		}
		if verb == "" || verb == "renew" {
			done = append(done, fmt.Sprintf(`{"execution_id":%q,"handle":%q}`, c.Execution.ID, c.Handle))
		}
	}
	return f.complete(ctx, random, done, leases)
}

func (f *fleet) complete(ctx context.Context, random *rand.Rand, items []string, leases int64) error {
	if len(items) == 0 {
		return nil
	}
	var got struct {
		Items []struct {
			ExecutionID string `json:"execution_id"`
			Problem     *struct{ Code string }
		}
	}
	r, err := f.call(ctx, random, http.MethodPost, "/v1/completions", `{"items":[`+strings.Join(items, ",")+`]}`, &got)
	if err != nil || r.status != http.StatusOK {
		return fmt.Errorf("completions = %d %s, %w", r.status, r.body, err)
	}
	for _, item := range got.Items {
		switch {
		case item.Problem == nil:
			f.note(func() { f.completed[item.ExecutionID] = "" })
		case !lateness[item.Problem.Code]:
			return fmt.Errorf("completions: %s", r.body)
		case item.Problem.Code == "lease_expired":
			f.late(leases)
		}
	}
	return nil
}

// operate does to an execution what operators do.
func (f *fleet) operate(ctx context.Context, _ string, random *rand.Rand) error {
	path := "/v1/executions/" + f.ids[random.IntN(len(f.ids))]
	method, body := http.MethodPost, "{}"
	switch random.IntN(5) {
	case 0:
		path, body = path+"/operator-cancel", `{"reason":"not needed"}`
	case 1:
		path, body = path+"/operator-cancel", `{"reason":"not needed","grace_ms":300}`
	case 2:
		method, path, body = http.MethodPut, path+"/priority", fmt.Sprintf(`{"priority":%d}`, random.IntN(1000))
	default:
		path += "/revoke-lease"
	}
	r, err := f.call(ctx, random, method, path, body, nil)
	if err != nil {
		return err
	}
	if r.status != http.StatusOK && r.status != http.StatusConflict {
		return fmt.Errorf("%s = %d %s", path, r.status, r.body)
	}
	return pause(ctx, random, 20)
}

// fleetEvent is what the check needs of an event.
type fleetEvent struct {
	Type        string
	ExecutionID string `json:"execution_id"`
	Data        struct {
		LeaseEpoch   int64 `json:"lease_epoch"`
		AttemptIndex int   `json:"attempt_index"`
		Kind         string
	}
}

// lived is what the events say about an execution.
type lived struct {
	held        bool
	epoch       int64
	attempts    int
	completions []string
}

// check reads the whole log and holds it to what is true of every execution.
func (f *fleet) check(t *testing.T) {
	t.Helper()
	all := map[string]*lived{}
	for after := int64(0); ; {
		var page struct {
			Items      []fleetEvent
			More       bool
			NextCursor int64 `json:"next_cursor"`
		}
		r := must(t, f.client, http.MethodGet, fmt.Sprintf("%s/v1/events?after=%d&limit=500&topic=lease,completion", f.servers[0], after), "")
		if err := json.Unmarshal(r.body, &page); err != nil || r.status != http.StatusOK {
			t.Fatalf("events = %d %s, %v", r.status, r.body, err)
		}
		for _, e := range page.Items {
			l, ok := all[e.ExecutionID]
			if !ok {
				l = &lived{}
				all[e.ExecutionID] = l
			}
			if err := l.apply(e); err != nil {
				t.Errorf("execution %s: %v", e.ExecutionID, err)
			}
		}
		if after = page.NextCursor; !page.More {
			break
		}
	}
	outcomes := map[string]int{}
	for _, id := range f.ids {
		l, ok := all[id]
		if !ok || len(l.completions) != 1 || l.held {
			t.Fatalf("execution %s: %+v", id, l)
		}
		outcomes[l.completions[0]]++
		if _, told := f.completed[id]; told && l.completions[0] != "execution.completed" {
			t.Errorf("the completion of %s was answered, and it is %s", id, l.completions[0])
		}
	}
	t.Logf("%v", outcomes)
	if outcomes["execution.completed"] < fleetExecutions/2 || outcomes["execution.failed"] == 0 || outcomes["execution.cancelled"] == 0 {
		t.Error("that was no fleet")
	}
}

func (l *lived) apply(e fleetEvent) error {
	d := e.Data
	switch e.Type {
	case "lease.acquired", "lease.reclaimed":
		fresh := e.Type == "lease.reclaimed" || d.Kind != "resumed"
		switch {
		case len(l.completions) > 0:
			return errors.New("it was claimed after its end")
		case l.held:
			return fmt.Errorf("epoch %d began while epoch %d had an owner", d.LeaseEpoch, l.epoch)
		case d.LeaseEpoch <= l.epoch:
			return fmt.Errorf("epoch %d after %d", d.LeaseEpoch, l.epoch)
		case fresh && d.AttemptIndex != l.attempts, !fresh && d.AttemptIndex != l.attempts-1:
			return fmt.Errorf("attempt %d (%s) after %d attempts", d.AttemptIndex, d.Kind, l.attempts)
		}
		l.held, l.epoch, l.attempts = true, d.LeaseEpoch, d.AttemptIndex+1
	case "lease.renewed":
		if !l.held || d.LeaseEpoch != l.epoch {
			return fmt.Errorf("epoch %d was renewed, the owner is of %d (held %t)", d.LeaseEpoch, l.epoch, l.held)
		}
	case "lease.expired", "lease.revoked":
		l.held = false
	default:
		l.completions = append(l.completions, e.Type)
	}
	return nil
}
