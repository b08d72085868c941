package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// TestExecutions_Claim: executions.md 2.2, 6.2 and 6.3.
func TestExecutions_Claim(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsClaimCases)
}

var executionsClaimCases = []executionCase{
	{"a fresh claim (6.2/23)", func(x *executionTest) {
		e := x.create(`"payload":{"a":1},"required_capabilities":["go"]`)
		answer := x.ask(`"worker_id":"builder","worker_instance_id":"builder-1","capabilities":["linux","go"],"lease_ttl_ms":45000`).Want(http.StatusOK)
		got := answerAs[oapi.Claims](answer)
		if len(got.Claims) != 1 || got.Directives == nil || len(got.Directives) != 0 {
			x.t.Fatalf("%s", answer.Body)
		}
		c := got.Claims[0]
		if diff := cmp.Diff(x.stands(e.ID, atActive), c.Execution); diff != "" {
			x.t.Errorf("read and claimed differ (-read +claimed):\n%s", diff)
		}
		want := oapi.Claim{Execution: c.Execution, Kind: "fresh", Handle: c.Handle, Inputs: c.Inputs, LeaseExpiresAt: c.Execution.CurrentLease.ExpiresAt,
			Fence: oapi.Fence{LeaseID: c.Execution.CurrentLease.LeaseID, LeaseEpoch: 1, AttemptID: c.Fence.AttemptID, AttemptIndex: 0}}
		if diff := cmp.Diff(want, c); diff != "" || c.Inputs == nil || len(c.Inputs) != 0 || c.Handle == "" {
			x.t.Errorf("%s(-want +got):\n%s", answer.Body, diff)
		}
		if c.Fence.AttemptID == uuid.Nil || c.Fence.AttemptID.Version() != 4 || c.Fence.LeaseID.Version() != 4 || c.Fence.LeaseID == c.Fence.AttemptID {
			x.t.Errorf("lease %s, attempt %s", c.Fence.LeaseID, c.Fence.AttemptID)
		}
		if ttl := c.LeaseExpiresAt.Time().Sub(c.Execution.StartedAt.Time()); ttl != 45*time.Second {
			x.t.Errorf("the lease runs %s", ttl)
		}
		attempts := x.attempts(e.ID)
		if diff := cmp.Diff([]oapi.Attempt{{AttemptType: "initial", State: "started", WorkerID: "builder", WorkerInstanceID: "builder-1", LeaseEpoch: 1,
			StartedAt: c.Execution.StartedAt}}, attempts); diff != "" {
			x.t.Errorf("attempts (-want +got):\n%s", diff)
		}
		x.told(e.ID, "execution.created", "lease.acquired")
		secret := c.Fence.AttemptID.String()
		for _, part := range []string{"", "/attempts", "/state", "/context"} {
			if body := x.Get("/v1/executions/" + e.ID.String() + part).Body; strings.Contains(string(body), secret) {
				x.t.Errorf("%s tells the holder's secret: %s", part, body)
			}
		}
		for _, event := range x.events(e.ID) {
			if strings.Contains(string(event.Data), secret) {
				x.t.Errorf("an event tells the holder's secret: %s", event.Data)
			}
		}
	}},
	{"the lease runs thirty seconds, and the instance is the worker, unless it says otherwise", func(x *executionTest) {
		x.create("")
		c := x.claim(`"worker_id":"w9"`)
		if ttl := c.LeaseExpiresAt.Time().Sub(c.Execution.StartedAt.Time()); ttl != 30*time.Second || c.Execution.CurrentLease.WorkerInstanceID != "w9" {
			x.t.Errorf("the lease of %s runs %s", c.Execution.CurrentLease.WorkerInstanceID, ttl)
		}
	}},
	{"nothing to do (6.2/24)", func(x *executionTest) {
		x.none("")
		answer := x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("") })
		if len(answer.Body) > 0 || answer.Header.Get("Preference-Applied") != "" || answer.Header.Get("Retry-After") != "" {
			x.t.Errorf("%v %q", answer.Header, answer.Body)
		}
		c := x.on("other").create("")
		x.none("")
		x.stands(c.ID, atWaiting)
	}},
	{"what a worker lacks leaves the row as it is (6.2/25, 6.3/38, 40)", func(x *executionTest) {
		e := x.create(`"required_capabilities":["go","gpu"]`)
		for _, worker := range []string{``, `"go"`, `"gpu"`, `"GO","GPU"`, `"g","o","gp","u"`, `"gogpu"`, `"linux","go"`} {
			x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask(`"capabilities":[` + worker + `]`) }, e.ID)
		}
		x.stands(e.ID, atWaiting)
		if c := x.claim(`"capabilities":["linux","gpu","go"]`); c.Execution.ID != e.ID {
			x.t.Error("a worker that has more does not get it")
		}
	}},
	{"a worker that has exactly what is needed, and one that needs not (6.3/38)", func(x *executionTest) {
		x.create(`"required_capabilities":["go"]`)
		x.claim(`"capabilities":["go"]`)
		x.create("")
		x.claim(`"capabilities":["go"]`)
		x.create("")
		x.claim("")
	}},
	{"what cannot be had stands in nobody's way (6.2/26, 5/19)", func(x *executionTest) {
		for i := range 40 {
			x.create(fmt.Sprintf(`"priority":9000,"required_capabilities":["never-%d"]`, i%20))
		}
		e := x.create(`"priority":1,"required_capabilities":["go"]`)
		if c := x.claim(`"capabilities":["go"]`); c.Execution.ID != e.ID {
			x.t.Errorf("got %s", c.Execution.ID)
		}
		x.none(`"capabilities":["go"]`)
	}},
	{"the highest priority first, then the oldest (6.2/29, 2.2)", func(x *executionTest) {
		var want []uuid.UUID
		for _, priority := range []int{5, 9, 5, 0, 9} {
			want = append(want, x.create(fmt.Sprintf(`"priority":%d`, priority)).ID)
		}
		for _, i := range []int{1, 4, 0, 2, 3} {
			if c := x.claim(""); c.Execution.ID != want[i] {
				x.t.Errorf("got priority %d of %s", c.Execution.Priority, c.Execution.CreatedAt)
			}
		}
	}},
	{"several at once, in order, and never more than asked for", func(x *executionTest) {
		var ids []uuid.UUID
		for i := range 7 {
			ids = append(ids, x.create(fmt.Sprintf(`"priority":%d,"required_capabilities":[%s]`, i, []string{``, `"go"`, `"gpu"`}[i%3])).ID)
		}
		var got []uuid.UUID
		epochs := map[string]bool{}
		for _, n := range []int{3, 100} {
			claims := x.claims(fmt.Sprintf(`"max":%d,"capabilities":["go","gpu"]`, n))
			for _, c := range claims {
				got = append(got, c.Execution.ID)
				epochs[c.Handle] = true
			}
			if len(claims) != min(n, 4) {
				x.t.Errorf("%d claims of %d", len(claims), n)
			}
		}
		if diff := cmp.Diff([]uuid.UUID{ids[6], ids[5], ids[4], ids[3], ids[2], ids[1], ids[0]}, got); diff != "" || len(epochs) != 7 {
			x.t.Errorf("%d handles (-want +got):\n%s", len(epochs), diff)
		}
		x.none(`"max":100,"capabilities":["go","gpu"]`)
	}},
	{"from several lanes, by priority across them", func(x *executionTest) {
		a, b, c := x.on("a"), x.on("b"), x.on("c")
		low, high, other := a.create(`"priority":1`), b.create(`"priority":2`), c.create(`"priority":3`)
		lanes := fmt.Sprintf(`"lanes":["%s","%s","%s"]`, a.lane, b.lane, a.lane)
		if got := x.claim(lanes); got.Execution.ID != high.ID || got.Execution.Lane != b.lane {
			x.t.Errorf("got %s of %s", got.Execution.ID, got.Execution.Lane)
		}
		if got := x.claim(lanes); got.Execution.ID != low.ID {
			x.t.Errorf("got %s of %s", got.Execution.ID, got.Execution.Lane)
		}
		x.none(lanes)
		x.stands(other.ID, atWaiting)
	}},
	{"claim, then complete: two lease events (6.2/27)", func(x *executionTest) {
		e := x.create("")
		x.report(x.claim(""), "complete", "").Want(http.StatusOK)
		var leases []string
		for _, event := range x.events(e.ID) {
			if event.Topic == "lease" {
				leases = append(leases, event.Type)
			}
		}
		if diff := cmp.Diff([]string{"lease.acquired", "lease.revoked"}, leases); diff != "" || x.reason(e.ID, "lease.revoked") != "completed" {
			x.t.Errorf("%s (-want +got):\n%s", x.reason(e.ID, "lease.revoked"), diff)
		}
	}},
	{"started_at is of the first claim, for ever (6.2/28, 6.1/11)", func(x *executionTest) {
		e := x.create(retryPolicy(2))
		first := x.claim("")
		x.report(first, "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.advance(retryDelay)
		second := x.claim("")
		x.advance(time.Minute)
		third := x.claim("")
		x.report(third, "complete", "").Want(http.StatusOK)
		done := x.get(e.ID)
		for _, c := range []oapi.Claim{second, third} {
			if !c.Execution.StartedAt.Equal(*first.Execution.StartedAt) {
				x.t.Errorf("started %s, then %s", first.Execution.StartedAt, c.Execution.StartedAt)
			}
		}
		if !done.StartedAt.Equal(*first.Execution.StartedAt) || done.CompletedAt.Time().Sub(done.StartedAt.Time()) < retryDelay {
			x.t.Errorf("started %s, completed %s", done.StartedAt, done.CompletedAt)
		}
	}},
	{"a retry is the next attempt (6.2/36, 6.4/51)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.claim("")
		x.report(c, "fail", `"reason":"boom","category":"transient"`).Want(http.StatusOK)
		x.advance(retryDelay)
		again := x.claim(`"worker_id":"w2"`)
		if again.Kind != "retry" || again.Fence.AttemptIndex != 1 || again.Fence.LeaseEpoch != 2 || again.Fence.AttemptID == c.Fence.AttemptID || again.Fence.LeaseID == c.Fence.LeaseID {
			x.t.Errorf("%+v after %+v", again.Fence, c.Fence)
		}
		attempts := x.attempts(e.ID)
		if len(attempts) != 2 || attempts[0].State != "ended_failure" || attempts[1].AttemptType != "retry" || attempts[1].WorkerID != "w2" ||
			attempts[1].PreviousAttemptIndex == nil || *attempts[1].PreviousAttemptIndex != 0 || attempts[0].EndedAt == nil || attempts[1].EndedAt != nil {
			x.t.Errorf("%+v", attempts)
		}
	}},
	{"a worker without reclaim leaves what others lost, and finds what is behind it", func(x *executionTest) {
		lost := x.create(`"priority":100`)
		x.claim("")
		x.advance(time.Minute)
		x.stands(lost.ID, atLost)
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask(`"reclaim":false`) }, lost.ID)
		same, other, low := x.create(`"priority":7`), x.create(`"priority":8,"required_capabilities":["go"]`), x.create(`"priority":1,"required_capabilities":["go"]`)
		var got []uuid.UUID
		for range 3 {
			got = append(got, x.claim(`"reclaim":false,"capabilities":["go"]`).Execution.ID)
		}
		if diff := cmp.Diff([]uuid.UUID{other.ID, same.ID, low.ID}, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.none(`"reclaim":false,"capabilities":["go"]`)
		if c := x.claim(`"worker_id":"w2"`); c.Execution.ID != lost.ID || c.Kind != "reclaimed" {
			x.t.Errorf("got a %s claim of %s", c.Kind, c.Execution.ID)
		}
	}},
	{"what others lost, and what was given back, stand where they stood", func(x *executionTest) {
		lost, back, plain := x.create(`"priority":2`), x.create(`"priority":1`), x.create(`"priority":1`)
		claims := x.claims(`"max":2`)
		x.report(claims[1], "release", "").Want(http.StatusOK)
		x.advance(time.Minute)
		var got []uuid.UUID
		for _, c := range x.claims(`"max":5`) {
			got = append(got, c.Execution.ID)
		}
		if diff := cmp.Diff([]uuid.UUID{lost.ID, back.ID, plain.ID}, got); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"a takeover looks at capabilities, too (6.3/41)", func(x *executionTest) {
		e := x.create(`"required_capabilities":["go"]`)
		x.claim(`"capabilities":["go"]`)
		x.advance(time.Minute)
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("") }, e.ID)
		if c := x.claim(`"capabilities":["go"]`); c.Kind != "reclaimed" {
			x.t.Errorf("a %s claim", c.Kind)
		}
	}},
	{"what is refused changes nothing (6.3/39)", func(x *executionTest) {
		e := x.create("")
		lane := `"lane":"` + x.lane + `","worker_id":"w1"`
		tests := []struct {
			body    string
			code    fault.Code
			pointer string
		}{
			{lane + `,"capabilities":["a,b"]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":["a b"]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":["\u007f"]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":[""]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":[` + capabilityTokens(257) + `]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":["` + strings.Repeat("x", 4097) + `"]`, fault.CodeInvalidCapabilities, "/capabilities"},
			{lane + `,"capabilities":[7]`, fault.CodeValidationFailed, "/capabilities/0"},
			{lane + `,"lease_ttl_ms":99`, fault.CodeValidationFailed, "/lease_ttl_ms"},
			{lane + `,"lease_ttl_ms":86400001`, fault.CodeValidationFailed, "/lease_ttl_ms"},
			{lane + `,"lease_ttl_ms":"1000"`, fault.CodeValidationFailed, "/lease_ttl_ms"},
			{lane + `,"max":0`, fault.CodeValidationFailed, "/max"},
			{lane + `,"max":101`, fault.CodeValidationFailed, "/max"},
			{lane + `,"lanes":["x"]`, fault.CodeValidationFailed, "/lanes"},
			{lane + `,"reclaim":"no"`, fault.CodeValidationFailed, "/reclaim"},
			{lane + `,"worker_instance_id":"a b"`, fault.CodeValidationFailed, "/worker_instance_id"},
			{lane + `,"now":1`, fault.CodeValidationFailed, "/now"},
			{`"worker_id":"w1"`, fault.CodeValidationFailed, "/lane"},
			{`"worker_id":"w1","lanes":[]`, fault.CodeValidationFailed, "/lanes"},
			{`"lane":"` + x.lane + `"`, fault.CodeValidationFailed, "/worker_id"},
			{`"lane":"` + x.lane + `","worker_id":""`, fault.CodeValidationFailed, "/worker_id"},
			{`"lane":"` + x.lane + `","worker_id":"a\n"`, fault.CodeValidationFailed, "/worker_id"},
			{`"lane":"` + x.lane + `","worker_id":"` + strings.Repeat("x", 257) + `"`, fault.CodeValidationFailed, "/worker_id"},
		}
		for _, tt := range tests {
			answer := x.refused(tt.code, func() *apitest.Response { return x.Post("/v1/claims", "{"+tt.body+"}") }, e.ID)
			if fields := answer.Fields(); len(fields) == 0 || fields[0].Pointer != tt.pointer {
				x.t.Errorf("%.80s: %+v, want %s", tt.body, fields, tt.pointer)
			}
		}
		text := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.ask(`"max":2`, "Accept: text/plain") }, e.ID)
		if fields := text.Fields(); len(fields) != 1 || fields[0].Pointer != "/max" {
			x.t.Errorf("%+v", fields)
		}
		x.claim("")
	}},
	{"the shortest and the longest lease", func(x *executionTest) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, 24 * time.Hour} {
			x.create("")
			c := x.claim(fmt.Sprintf(`"reclaim":false,"lease_ttl_ms":%d`, ttl.Milliseconds()))
			if got := c.LeaseExpiresAt.Time().Sub(c.Execution.CurrentLease.AcquiredAt.Time()); got != ttl {
				x.t.Errorf("the lease runs %s, not %s", got, ttl)
			}
		}
	}},
}
