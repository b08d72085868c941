package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/keyring"
	"github.com/flowapi/flowapi/internal/storetest"
)

// liveReplicas starts two servers on one database.
func liveReplicas(t *testing.T, change ...func(*app.Config)) (a, b live) {
	t.Helper()
	url := storetest.Postgres(t)
	a, b = live{apptest.Start(t, url, change...)}, live{apptest.Start(t, url, change...)}
	// Both hear each other before the test begins: a connection that listens is made in the background.
	for _, pair := range [][2]live{{a, b}, {b, a}} {
		stream, heard := pair[1].in("hello").Stream("/v1/events/stream"), false
		for deadline := time.Now().Add(apitest.Patience); !heard && time.Now().Before(deadline); {
			pair[0].in("hello").create("hello")
			_, heard = stream.Try(500 * time.Millisecond)
		}
		if !heard {
			t.Fatal("one server does not hear the other")
		}
	}
	return a, b
}

func TestLive_replicas_stream(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	stream := b.Stream("/v1/events/stream")
	for range 10 {
		id := a.create("a")
		e := stream.Next()
		if got := liveEventOf(t, []byte(e.Data)); got.ExecutionID != id || got.Type != "execution.created" {
			t.Errorf("got %s, want the creation of %s", e.Data, id)
		}
	}
	held := b.claim("a")
	b.verb(held, "complete")
	if diff := cmp.Diff(texts(a.log(t, "")), texts(b.log(t, ""))); diff != "" {
		t.Errorf("the servers show different logs (-a +b)\n%s", diff)
	}
	// What one server has answered is in the other one's list.
	for _, pair := range [][2]live{{a, b}, {b, a}} {
		id := pair[0].create("b")
		all := pair[1].log(t, "")
		if last := all[len(all)-1]; last.ExecutionID != id {
			t.Errorf("the log ends with %s, want the creation of %s", last.text, id)
		}
	}
}

func TestLive_replicas_long_poll(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	for range 5 {
		newest := b.page(t, "?after=0&limit=500").next
		poll := b.ask(t, http.MethodGet, fmt.Sprintf("/v1/events?after=%d", newest), "", "Prefer: wait=30")
		id := a.create("a")
		if events := awaited(t, poll).events(t); len(events) != 1 || events[0].ExecutionID != id {
			t.Fatalf("got %v, want the creation of %s", texts(events), id)
		}
	}
}

// A claim that waits on one server gets what comes on the other, whatever makes it claimable, long before the poll that backs
// up the wake-up.
func TestLive_replicas_waiting_claim(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	claimed := func(what, lane string, wake func() string, kind string) {
		t.Helper()
		claim := b.ask(t, http.MethodPost, "/v1/claims", `{"lane":"`+lane+`","worker_id":"w"}`, "Prefer: wait=30")
		id := wake()
		got := awaited(t, claim)
		var body struct {
			Claims []struct {
				Execution struct{ ID string }
				Kind      string
			}
		}
		if err := json.Unmarshal(got.body, &body); err != nil || len(body.Claims) != 1 || body.Claims[0].Execution.ID != id || body.Claims[0].Kind != kind {
			t.Errorf("%s: %d %s, want %s, %s", what, got.status, got.body, id, kind)
		}
	}
	for i := range 5 {
		claimed("a creation", fmt.Sprint("created", i), func() string { return a.create(fmt.Sprint("created", i)) }, "fresh")
	}
	claimed("a delayed start", "delayed", func() string { return a.create("delayed", `,"delay_ms":200`) }, "fresh")

	a.create("released")
	held := a.claim("released")
	claimed("a release", "released", func() string {
		a.verb(held, "release")
		return held.ID
	}, "resumed")

	a.create("failed", `,"policy":{"retry_policy":{"max_retries":1,"backoff":{"type":"fixed","delay_ms":100}}}`)
	held = a.claim("failed")
	claimed("a retry", "failed", func() string {
		a.verb(held, "fail", `,"reason":"no"`)
		return held.ID
	}, "retry")

	a.create("expired")
	held = a.claim("expired", `,"lease_ttl_ms":300`)
	claimed("an expired lease", "expired", func() string { return held.ID }, "reclaimed")
}

// A server that is gone takes no due time with it: the other one finds them by itself.
func TestLive_replicas_one_dies(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t, func(c *app.Config) { c.Poll = time.Second })
	id := a.create("a")
	a.claim("a", `,"lease_ttl_ms":1000`)
	a.Stop()
	claim := b.ask(t, http.MethodPost, "/v1/claims", `{"lane":"a","worker_id":"w"}`, "Prefer: wait=30")
	got := awaited(t, claim)
	var body struct {
		Claims []struct {
			Execution struct{ ID string }
			Kind      string
		}
	}
	if err := json.Unmarshal(got.body, &body); err != nil || len(body.Claims) != 1 || body.Claims[0].Execution.ID != id || body.Claims[0].Kind != "reclaimed" {
		t.Errorf("%d %s, want the reclaim of %s", got.status, got.body, id)
	}
}

// Workers of both servers race for the same executions: each goes to one of them, and none is left over.
func TestLive_replicas_claim_race(t *testing.T) {
	t.Parallel()
	a, b := liveReplicas(t)
	const executions, workers = 300, 8
	capabilities := []string{``, `"gpu"`, `"gpu","x86"`}
	for i := range executions {
		[]live{a, b}[i%2].create("race", `,"required_capabilities":[`+capabilities[i%3]+`]`)
	}
	type claimed struct {
		id     string
		epoch  int64
		worker string
	}
	var mu sync.Mutex
	var all []claimed
	var wg sync.WaitGroup
	for i := range 2 * workers {
		server, worker, most := []live{a, b}[i%2], fmt.Sprintf("w%d", i), 1+i%4
		wg.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), apitest.Patience)
				status, _, answer, err := server.send(ctx, http.MethodPost, "/v1/claims",
					fmt.Sprintf(`{"lane":"race","worker_id":%q,"capabilities":["gpu","x86"],"max":%d}`, worker, most), "Prefer: wait=1")
				cancel()
				if err != nil || status != http.StatusOK {
					if status != http.StatusNoContent {
						t.Errorf("a claim = %d %s, %v", status, answer, err)
					}
					return
				}
				var body struct {
					Claims []struct {
						Execution struct{ ID string }
						Fence     struct {
							LeaseEpoch int64 `json:"lease_epoch"`
						}
					}
				}
				if err := json.Unmarshal(answer, &body); err != nil || len(body.Claims) > most {
					t.Errorf("%d claims, asked for %d: %v", len(body.Claims), most, err)
				}
				mu.Lock()
				for _, c := range body.Claims {
					all = append(all, claimed{c.Execution.ID, c.Fence.LeaseEpoch, worker})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	owner, shares := map[string]string{}, map[string]int{}
	for _, c := range all {
		if other, ok := owner[c.id]; ok || c.epoch != 1 {
			t.Errorf("execution %s went to %s in epoch %d, and to %q", c.id, c.worker, c.epoch, other)
		}
		owner[c.id] = c.worker
		shares[c.worker]++
	}
	if len(owner) != executions {
		t.Errorf("%d executions were claimed, want %d", len(owner), executions)
	}
	if len(shares) < 2 {
		t.Errorf("all went to one worker: %v", shares)
	}
}

// Servers that start together on a new database come up together.
func TestLive_replicas_start_together(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	const replicas = 4
	apps := make([]*app.App, replicas)
	var wg sync.WaitGroup
	for i := range apps {
		wg.Go(func() {
			var err error
			if apps[i], err = app.Open(t.Context(), app.Config{DatabaseURL: url, Waitpoints: keyring.Master{Secret: bytes.Repeat([]byte{1}, 32)}}); err != nil {
				t.Errorf("open: %v", err)
			}
		})
	}
	wg.Wait()
	for _, a := range apps {
		if a != nil {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A lease is judged by the clock after its row was waited for, also with an Idempotency-Key: an answer that waited in a queue
// beyond the end of the lease is too late.
func TestLive_lease_is_judged_after_the_wait(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{"plain": nil, "idempotent": {"Idempotency-Key: k-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.Postgres(t)
			s := live{apptest.Start(t, url)}
			s.create("a")
			held := s.claim("a", `,"lease_ttl_ms":600`)
			expires := time.Now().Add(600 * time.Millisecond)

			db := livePostgres(t, url)
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM executions WHERE id = $1 FOR UPDATE`, held.ID); err != nil {
				t.Fatal(err)
			}
			complete := s.ask(t, http.MethodPost, "/v1/executions/"+held.ID+"/complete", `{"handle":"`+held.Handle+`"}`, headers...)
			waits := func() bool {
				var n int
				if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE NOT l.granted AND a.query LIKE '%FROM executions WHERE id%FOR UPDATE%' AND l.locktype = 'transactionid'
					AND l.transactionid = $1::text::xid`, xid(t, tx)).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n > 0
			}
			for !waits() {
				if time.Now().After(expires) {
					t.Fatal("the call came too late to wait for the row")
				}
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Until(expires.Add(50 * time.Millisecond))) // the lease ends by the database's clock
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			got := awaited(t, complete)
			var problem struct{ Code fault.Code }
			if err := json.Unmarshal(got.body, &problem); err != nil || problem.Code != fault.CodeLeaseExpired {
				t.Errorf("a call that waited beyond the end of its lease = %d %s, want %s", got.status, got.body, fault.CodeLeaseExpired)
			}
		})
	}
}
