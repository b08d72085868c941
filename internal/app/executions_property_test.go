package app_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// standing is a claimable execution as the model of the order knows it.
type standing struct {
	e    oapi.Execution
	lost bool
}

// inClaimOrder is that of claims: priority, then age, then id. executions.md 2.2.
func inClaimOrder(a, b standing) int {
	return cmp.Or(cmp.Compare(b.e.Priority, a.e.Priority), a.e.CreatedAt.Time().Compare(b.e.CreatedAt.Time()), bytes.Compare(a.e.ID[:], b.e.ID[:]))
}

// TestExecutions_ClaimOrder_Property: whatever is there and whoever asks, a claim gets the first of what it may have.
// executions.md 5/18, 19, 21.
func TestExecutions_ClaimOrder_Property(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			if rapid.IntRange(0, 3).Draw(rt, "one run in a few will do") > 0 {
				return
			}
			run++
			x := executionsOn(t, s, fmt.Sprintf("order-%d", run))
			x.Client = s.For(rapidTB{t, rt})
			lanes := []string{x.lane, x.lane + "-b"}
			sets := []string{``, `"a"`, `"b"`, `"a","b"`}
			var made []string
			for range rapid.IntRange(1, 10).Draw(rt, "executions") {
				made = append(made, fmt.Sprintf(`{"lane":%q,"priority":%d,"required_capabilities":[%s]}`, rapid.SampledFrom(lanes).Draw(rt, "lane"),
					rapid.IntRange(0, 2).Draw(rt, "priority"), rapid.SampledFrom(sets).Draw(rt, "required")))
			}
			var model []standing
			for _, item := range answerAs[oapi.CreatedExecutions](x.Post("/v1/executions/batch", `{"executions":[`+strings.Join(made, ",")+`]}`).Want(http.StatusCreated)).Items {
				model = append(model, standing{e: *item.Execution})
			}
			if rapid.Bool().Draw(rt, "some are lost") {
				for _, c := range answerAs[oapi.Claims](x.ask(fmt.Sprintf(`"lanes":["%s","%s"],"max":3,"lease_ttl_ms":60000,"capabilities":["a","b"]`, lanes[0], lanes[1])).Want(http.StatusOK)).Claims {
					i := slices.IndexFunc(model, func(m standing) bool { return m.e.ID == c.Execution.ID })
					model[i].lost = true
				}
				x.advance(time.Minute)
			}
			for len(model) > 0 {
				caps, reclaim := rapid.SampledFrom(sets).Draw(rt, "capabilities"), rapid.Bool().Draw(rt, "reclaim")
				asked := rapid.SampledFrom([][]string{lanes[:1], lanes[1:], lanes}).Draw(rt, "lanes")
				limit := rapid.IntRange(1, 5).Draw(rt, "max")
				slices.SortFunc(model, inClaimOrder)
				var want, got []uuid.UUID
				rest := slices.DeleteFunc(slices.Clone(model), func(m standing) bool {
					has := !slices.ContainsFunc(m.e.RequiredCapabilities, func(need string) bool { return !strings.Contains(caps, `"`+need+`"`) })
					if len(want) < limit && has && slices.Contains(asked, m.e.Lane) && (reclaim || !m.lost) {
						want = append(want, m.e.ID)
						return true
					}
					return false
				})
				for _, c := range x.claims(fmt.Sprintf(`"lanes":["%s"],"capabilities":[%s],"max":%d,"reclaim":%t,%s`, strings.Join(asked, `","`), caps, limit, reclaim, lasting)) {
					got = append(got, c.Execution.ID)
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					rt.Fatalf("lanes %v, capabilities [%s], max %d, reclaim %t (-want +got):\n%s", asked, caps, limit, reclaim, diff)
				}
				if model = rest; caps == sets[3] && len(asked) == 2 && reclaim && len(got) < limit {
					break
				}
			}
		})
	})
}

// rapidTB is a test whose failures are those of one run of a property, so that the run can be made smaller.
type rapidTB struct {
	testing.TB
	run *rapid.T
}

func (tb rapidTB) Errorf(format string, args ...any) { tb.run.Errorf(format, args...) }
func (tb rapidTB) Fatalf(format string, args ...any) { tb.run.Fatalf(format, args...) }
func (tb rapidTB) Fatal(args ...any)                 { tb.run.Fatal(args...) }

// TestExecutions_Concurrent_Property: one owner, whatever many workers do at once. executions.md 5/1 to 12; 6.8/119.
func TestExecutions_Concurrent_Property(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsConcurrentPropertyCases)
}

var executionsConcurrentPropertyCases = []executionCase{
	{"n claims of m executions hand out the smaller number of them, each once (5/2)", func(x *executionTest) {
		for i, c := range []struct{ n, m, buckets int }{{12, 5, 1}, {5, 12, 1}, {10, 10, 1}, {10, 10, 10}, {12, 6, 3}, {1, 3, 3}, {6, 0, 1}} {
			x := x.on(fmt.Sprint(i))
			var made []string
			for k := range c.m {
				made = append(made, x.sent(fmt.Sprintf(`"required_capabilities":["t%d"]`, k%c.buckets)))
			}
			if c.m > 0 {
				x.Post("/v1/executions/batch", `{"executions":[`+strings.Join(made, ",")+`]}`).Want(http.StatusCreated)
			}
			owners := map[uuid.UUID]int{}
			for _, answer := range atOnce(c.n, func(w int) *apitest.Response {
				return x.ask(fmt.Sprintf(`"worker_id":"w%d","capabilities":[%s],%s`, w, capabilityTokens(10), lasting))
			}) {
				if answer.Status == http.StatusNoContent {
					continue
				}
				for _, claim := range answerAs[oapi.Claims](answer.Want(http.StatusOK)).Claims {
					owners[claim.Execution.ID]++
					if lease := x.get(claim.Execution.ID).CurrentLease; claim.Fence.LeaseEpoch != 1 || lease.LeaseID != claim.Fence.LeaseID {
						x.t.Errorf("epoch %d, lease %s", claim.Fence.LeaseEpoch, lease.LeaseID)
					}
				}
			}
			for id, n := range owners {
				if n != 1 {
					x.t.Errorf("%d workers have %s", n, id)
				}
			}
			if len(owners) != min(c.n, c.m) {
				x.t.Errorf("%d claims of %d executions in %d buckets got %d", c.n, c.m, c.buckets, len(owners))
			}
		}
	}},
	{"many claims of several never share one (5/2)", func(x *executionTest) {
		const m = 40
		var made []string
		for k := range m {
			made = append(made, x.sent(fmt.Sprintf(`"required_capabilities":["t%d"]`, k%4)))
		}
		x.Post("/v1/executions/batch", `{"executions":[`+strings.Join(made, ",")+`]}`).Want(http.StatusCreated)
		seen := map[uuid.UUID]bool{}
		for round := 0; len(seen) < m && round < 20; round++ {
			for _, answer := range atOnce(4, func(int) *apitest.Response {
				return x.ask(`"max":7,"capabilities":[` + capabilityTokens(4) + `],` + lasting)
			}) {
				if answer.Status == http.StatusNoContent {
					continue
				}
				for _, claim := range answerAs[oapi.Claims](answer.Want(http.StatusOK)).Claims {
					if seen[claim.Execution.ID] {
						x.t.Errorf("%s was handed out twice", claim.Execution.ID)
					}
					seen[claim.Execution.ID] = true
				}
			}
		}
		if len(seen) != m {
			x.t.Errorf("%d of %d were handed out", len(seen), m)
		}
	}},
	{"many completes of one owner at once: one ends it, all are answered (5/11, 12)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		ended := 0
		for _, answer := range atOnce(8, func(i int) *apitest.Response {
			if i%2 == 0 {
				return x.Post("/v1/completions", `{"items":[`+completionItem(c, "")+`]}`)
			}
			return x.report(c, "complete", "")
		}) {
			answer.Want(http.StatusOK)
			if strings.Contains(string(answer.Body), `"replayed":false`) {
				ended++
			}
		}
		if ended != 1 {
			x.t.Errorf("%d calls have ended it", ended)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
	}},
	{"complete and fail at once: one of them", func(x *executionTest) {
		for range 6 {
			e := x.create(retryPolicy(1))
			c := x.claim(lasting)
			answers := atOnce(2, func(i int) *apitest.Response {
				return x.report(c, []string{"complete", "fail"}[i], []string{"", `"reason":"boom"`}[i])
			})
			complete, fail := answers[0], answers[1]
			if (complete.Status == http.StatusOK) == (fail.Status == http.StatusOK) {
				x.t.Errorf("%s\n%s", complete.Body, fail.Body)
			}
			if complete.Status == http.StatusOK {
				fail.Problem(fault.CodeExecutionNotActive)
				x.told(e.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
			} else {
				complete.Problem(fault.CodeExecutionNotActive)
				x.told(e.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.delayed")
			}
		}
	}},
	{"workers that crash, fail, give back and complete, all at once, come to an end (5/1 to 14; 6.8/119)", func(x *executionTest) {
		const executions, workers = 20, 6
		var ids []uuid.UUID
		for range executions {
			ids = append(ids, x.create(`"policy":{"max_reclaim_count":3,"retry_policy":{"max_retries":3,"backoff":{"type":"fixed","delay_ms":0}}}`).ID)
		}
		open := func() bool {
			for _, id := range ids {
				if x.get(id).CompletedAt == nil {
					return true
				}
			}
			return false
		}
		for round := 0; open(); round++ {
			if round > 100 {
				x.t.Fatal("it does not end")
			}
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() { x.workSomehow(w, round) })
			}
			wg.Wait()
			x.advance(time.Minute) // whoever has not reported is dead
		}
		for _, id := range ids {
			x.consistent(id)
		}
	}},
}

// workSomehow claims some executions and does with each what depends on its id and on the round alone.
func (x *executionTest) workSomehow(worker, round int) {
	x.t.Helper()
	claims := x.claims(fmt.Sprintf(`"worker_id":"w%d","max":3,"lease_ttl_ms":60000`, worker))
	for _, c := range claims {
		switch (int(c.Execution.ID[15]) + worker + round) % 6 {
		case 0: // it crashes
		case 1:
			x.report(c, "fail", `"reason":"boom","category":"transient"`).Want(http.StatusOK)
			x.report(c, "complete", "") // it does not know better
		case 2:
			x.report(c, "release", "").Want(http.StatusOK)
			x.report(c, "renew", "")
		case 3:
			x.report(c, "progress", `"pct":50`).Want(http.StatusOK)
			x.report(c, "renew", `"lease_ttl_ms":60000`).Want(http.StatusOK)
			x.report(c, "complete", "").Want(http.StatusOK)
			x.report(c, "complete", "")
		default:
			x.Post("/v1/completions", `{"items":[`+completionItem(c, `"result":1`)+`]}`).Want(http.StatusOK)
		}
	}
}

// consistent checks that row, attempts and events of an ended execution tell the same story. executions.md 5.
func (x *executionTest) consistent(id uuid.UUID) {
	x.t.Helper()
	e, attempts := x.get(id), x.attempts(id)
	var epochs []int64
	held, completions, revision := false, 0, int64(-1)
	for _, event := range x.events(id) {
		var data struct {
			LeaseEpoch int64 `json:"lease_epoch"`
		}
		if event.Topic == "lease" {
			data = fromDocument[struct {
				LeaseEpoch int64 `json:"lease_epoch"`
			}](x.t, string(event.Data))
		}
		switch event.Type {
		case "lease.acquired", "lease.reclaimed":
			if held || len(epochs) > 0 && data.LeaseEpoch <= epochs[len(epochs)-1] {
				x.t.Errorf("%s: epoch %d after %v, held %t", id, data.LeaseEpoch, epochs, held)
			}
			epochs, held = append(epochs, data.LeaseEpoch), true
		case "lease.renewed":
			if !held || data.LeaseEpoch != epochs[len(epochs)-1] {
				x.t.Errorf("%s: epoch %d was renewed after %v, held %t", id, data.LeaseEpoch, epochs, held)
			}
		case "lease.expired":
			held = false
		case "lease.revoked":
			if data.LeaseEpoch != epochs[len(epochs)-1] {
				x.t.Errorf("%s: epoch %d ended after %v", id, data.LeaseEpoch, epochs)
			}
			held = false
		}
		if event.Topic == "completion" {
			completions++
		}
		if *event.Revision < revision || *event.Revision > revision+1 {
			x.t.Errorf("%s: revision %d of %s after %d", id, *event.Revision, event.Type, revision)
		}
		revision = *event.Revision
	}
	if held || completions != 1 || revision != e.Revision {
		x.t.Errorf("%s: held %t, %d completions, revision %d of %d", id, held, completions, revision, e.Revision)
	}
	if int(e.TotalAttemptCount) != len(attempts) || len(attempts) > 1+int(e.RetryCount+e.LeaseReclaimCount) || e.RetryCount > 3 || e.LeaseReclaimCount > 3 || *e.CurrentAttemptIndex != e.TotalAttemptCount-1 {
		x.t.Errorf("%s: %d attempts, %+v", id, len(attempts), e)
	}
	for i, a := range attempts {
		if int(a.AttemptIndex) != i || a.EndedAt == nil || a.EndedAt.Time().Before(a.StartedAt.Time()) || !slices.Contains(epochs, a.LeaseEpoch) {
			x.t.Errorf("%s: attempt %d of %v: %+v", id, i, epochs, a)
		}
	}
	if e.StartedAt.Time().Before(e.CreatedAt.Time()) || e.CompletedAt.Time().Before(e.StartedAt.Time()) || !e.StartedAt.Equal(*attempts[0].StartedAt) {
		x.t.Errorf("%s: created %s, started %s, completed %s", id, e.CreatedAt, e.StartedAt, e.CompletedAt)
	}
}
