package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// workerCalls are the calls of a worker, each with what it must say beside its handle.
var workerCalls = []struct{ op, members string }{
	{"renew", `"lease_ttl_ms":60000`}, {"progress", `"pct":50,"message":"half"`}, {"complete", `"result":{"ok":true}`},
	{"fail", `"reason":"boom","category":"transient"`}, {"release", ``}, {"delay", `"delay_ms":60000`}, {"wait-children", ``}, {"cancel", `"reason":"no"`},
}

// lasting is a lease of an hour: it does not run out by itself.
const lasting = `"lease_ttl_ms":3600000`

// fenced returns a claim's fence as a worker may send it, with some members replaced.
func fenced(c oapi.Claim, change ...func(map[string]any)) string {
	fence := map[string]any{"lease_id": c.Fence.LeaseID, "lease_epoch": c.Fence.LeaseEpoch, "attempt_id": c.Fence.AttemptID, "attempt_index": c.Fence.AttemptIndex}
	for _, f := range change {
		f(fence)
	}
	document, _ := json.Marshal(map[string]any{"fence": fence}) // ids and numbers
	return strings.Trim(string(document), "{}") + "}"
}

// by makes a call whose members say themselves who makes it.
func (x *executionTest) by(id uuid.UUID, op, members string) *apitest.Response {
	x.t.Helper()
	return x.Post("/v1/executions/"+id.String()+"/"+op, executionJSON(members))
}

// TestExecutions_CompletionStream: a completion wakes a subscriber, once. executions.md 6.4/46.
func TestExecutions_CompletionStream(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, func(t *testing.T, s *apptest.Server) {
		x := executionsOn(t, s, "stream")
		e := x.create("")
		c := x.claim("")
		stream := x.Stream("/v1/subscriptions/completions?execution_id=" + e.ID.String())
		x.report(c, "complete", "").Want(http.StatusOK)
		x.report(c, "complete", "").Want(http.StatusOK)
		event := stream.Next()
		var data struct {
			ExecutionID  uuid.UUID `json:"execution_id"`
			Outcome      string    `json:"outcome"`
			AttemptIndex *int      `json:"attempt_index"`
		}
		if err := json.Unmarshal([]byte(event.Data), &data); err != nil || event.Type != "execution.completed" || data.ExecutionID != e.ID || data.Outcome != "success" ||
			data.AttemptIndex == nil || *data.AttemptIndex != 0 {
			x.t.Errorf("%v: %+v", err, event)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
	})
}

// TestExecutions_Worker: executions.md 2.6 to 2.9 and 6.4.
func TestExecutions_Worker(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsWorkerCases)
}

var executionsWorkerCases = []executionCase{
	{"complete (6.4/42, 43)", func(x *executionTest) {
		e := x.create(`"tags":{"cairn.instance_id":"i-7"}`)
		c := x.claim("")
		answer := x.report(c, "complete", `"result":{"ok":true}`).Want(http.StatusOK)
		got := answerAs[oapi.Report](answer)
		done := x.stands(e.ID, atCompleted)
		if diff := cmp.Diff(oapi.Report{Execution: done, Directives: oapi.Directives{}}, got); diff != "" {
			x.t.Errorf("answered and read differ:\n%s", diff)
		}
		want := c.Execution
		want.StateVector, want.PublicState, want.Revision, want.CurrentLease, want.CompletedAt = done.StateVector, "completed", 2, nil, done.CompletedAt
		if diff := cmp.Diff(want, done); diff != "" || done.CompletedAt == nil {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		if attempts := x.attempts(e.ID); len(attempts) != 1 || attempts[0].State != "ended_success" || attempts[0].EndedAt == nil || !attempts[0].EndedAt.Equal(*done.CompletedAt) {
			x.t.Errorf("%+v", attempts)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
		for _, event := range x.events(e.ID) {
			if event.InstanceTag == nil || *event.InstanceTag != "i-7" || event.Actor != "local" {
				x.t.Errorf("%s by %s has the instance tag %v", event.Type, event.Actor, event.InstanceTag)
			}
		}
		x.none("")
	}},
	{"a fence that is a little wrong is refused by every call, and the right one still good (6.4/44, 48, 57)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		for _, call := range workerCalls {
			for name, value := range map[string]any{"lease_epoch": 0, "lease_id": uuid.New(), "attempt_id": uuid.New(), "attempt_index": 1} {
				wrong := fenced(c, func(fence map[string]any) { fence[name] = value })
				answer := x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.by(e.ID, call.op, executionMembers(wrong, call.members)) }, e.ID)
				if strings.Contains(string(answer.Body), c.Fence.AttemptID.String()) {
					x.t.Errorf("%s: the refusal tells the holder's secret", call.op)
				}
			}
		}
		x.report(c, "complete", "").Want(http.StatusOK)
	}},
	{"the fence instead of the handle, with and without the index", func(x *executionTest) {
		for _, call := range workerCalls {
			x.create("")
			c := x.claim(lasting)
			without := fenced(c, func(fence map[string]any) { delete(fence, "attempt_index") })
			if call.op == "renew" || call.op == "progress" {
				x.by(c.Execution.ID, call.op, executionMembers(fenced(c), call.members)).Want(http.StatusOK)
			}
			x.by(c.Execution.ID, call.op, executionMembers(without, call.members)).Want(http.StatusOK)
		}
	}},
	{"no proof of ownership, half of one, two, or another's (6.4/45, 47, 54, 58)", func(x *executionTest) {
		e, other := x.create(""), x.create("")
		c, o := x.claim(lasting), x.claim(lasting)
		handle := `"handle":"` + c.Handle + `"`
		for _, call := range workerCalls {
			tests := []struct {
				proof, pointer string
				code           fault.Code
			}{
				{``, "/handle", fault.CodeValidationFailed},
				{handle + `,` + fenced(c), "/fence", fault.CodeValidationFailed},
				{fenced(c, func(fence map[string]any) { delete(fence, "attempt_id") }), "/fence/attempt_id", fault.CodeValidationFailed},
				{fenced(c, func(fence map[string]any) { delete(fence, "lease_epoch") }), "/fence/lease_epoch", fault.CodeValidationFailed},
				{fenced(c, func(fence map[string]any) { fence["lease_epoch"] = -1 }), "/fence/lease_epoch", fault.CodeValidationFailed},
				{`"handle":""`, "/handle", fault.CodeValidationFailed},
				{`"handle":"nonsense"`, "/handle", fault.CodeInvalidHandle},
				{`"handle":"` + c.Handle[1:] + `"`, "/handle", fault.CodeInvalidHandle},
				{`"handle":"` + o.Handle + `"`, "/handle", fault.CodeInvalidHandle},
			}
			for _, tt := range tests {
				answer := x.refused(tt.code, func() *apitest.Response { return x.by(e.ID, call.op, executionMembers(tt.proof, call.members)) }, e.ID, other.ID)
				if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != tt.pointer {
					x.t.Errorf("%s with %s: %+v, want %s", call.op, tt.proof, fields, tt.pointer)
				}
			}
			stranger := uuid.New()
			f := execution.Fence{ExecutionID: stranger, LeaseID: c.Fence.LeaseID, AttemptID: c.Fence.AttemptID, LeaseEpoch: 1}
			x.refused(fault.CodeNotFound, func() *apitest.Response {
				return x.by(stranger, call.op, executionMembers(`"handle":"`+f.Handle()+`"`, call.members))
			})
			x.refused(fault.CodeNotFound, func() *apitest.Response { return x.by(stranger, call.op, executionMembers(fenced(c), call.members)) })
		}
	}},
	{"what nobody holds (6.4/47, 49, 54, 58)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.claim(lasting)
		x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		notActive := func(phase, outcome string, except ...string) {
			x.t.Helper()
			for _, call := range workerCalls {
				if slices.Contains(except, call.op) {
					continue
				}
				answer := x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
				if answer.Str("lifecycle_phase") != phase || answer.Str("terminal_outcome") != outcome || answer.Int("lease_epoch") != c.Fence.LeaseEpoch {
					x.t.Errorf("%s: %s", call.op, answer.Body)
				}
			}
		}
		notActive("runnable", "none", "fail")
		x.advance(retryDelay)
		notActive("runnable", "none", "fail")
		c = x.claim(lasting)
		x.report(c, "release", "").Want(http.StatusOK)
		notActive("runnable", "none", "release")
		c = x.claim(lasting)
		x.report(c, "complete", "").Want(http.StatusOK)
		notActive("terminal", "success", "complete")
	}},
	{"a lease that has run out is told to its holder, and nothing is marked by that (6.4/47, 58)", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		x.server.Clock.Advance(30 * time.Second) // whether the sweeper has seen it yet or not
		for _, call := range workerCalls {
			x.report(c, call.op, call.members).Problem(fault.CodeLeaseExpired)
		}
		x.advance(0)
		for _, call := range workerCalls {
			answer := x.refused(fault.CodeLeaseExpired, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
			if answer.Int("lease_epoch") != 1 {
				x.t.Errorf("%s", answer.Body)
			}
			x.refused(fault.CodeLeaseExpired, func() *apitest.Response {
				return x.by(e.ID, call.op, executionMembers(fenced(c, func(fence map[string]any) { fence["lease_epoch"] = 0 }), call.members))
			}, e.ID)
		}
		x.stands(e.ID, atLost)
	}},
	{"a lease that was revoked is told to its holder (6.4/47, 58)", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		x.tamper(`UPDATE executions SET ownership_state = 'lease_revoked', blocking_reason = 'waiting_for_worker', attempt_state = 'attempt_interrupted',
				lease_expires_at = NULL, due_at = NULL WHERE id = ?`, rowID(e.ID))
		for _, call := range workerCalls {
			x.refused(fault.CodeLeaseRevoked, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
		}
	}},
	{"renew (6.4/57, 58)", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		for _, ttl := range []time.Duration{time.Minute, time.Hour, 30 * time.Second} { // it may shorten the lease
			before := x.server.Clock.Now()
			got := answerAs[oapi.RenewedLease](x.report(c, "renew", fmt.Sprintf(`"lease_ttl_ms":%d`, ttl.Milliseconds())).Want(http.StatusOK))
			lease := x.stands(e.ID, atActive).CurrentLease
			if got.LeaseEpoch != 1 || got.Directives == nil || !got.LeaseExpiresAt.Equal(lease.ExpiresAt) || lease.LeaseID != c.Fence.LeaseID ||
				got.LeaseExpiresAt.Time().Before(before.Add(ttl-time.Second)) || got.LeaseExpiresAt.Time().After(x.server.Clock.Now().Add(ttl+time.Second)) {
				x.t.Errorf("renewed for %s: %+v, %+v", ttl, got, lease)
			}
		}
		x.told(e.ID, "execution.created", "lease.acquired", "lease.renewed", "lease.renewed", "lease.renewed")
		for range 5 {
			x.advance(20 * time.Second)
			x.report(c, "renew", "").Want(http.StatusOK)
		}
		x.stands(e.ID, atActive)
		x.advance(30 * time.Second)
		x.stands(e.ID, atLost)
		for _, wrong := range []string{`"lease_ttl_ms":99`, `"lease_ttl_ms":86400001`, `"lease_ttl_ms":null`} {
			x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.report(c, "renew", wrong) }, e.ID)
		}
	}},
	{"progress (6.4/56)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		said := func(members string, pct *int32, message *string) {
			x.t.Helper()
			answer := x.report(c, "progress", members).Want(http.StatusOK)
			got := x.get(e.ID).Progress
			if !cmp.Equal(got.Pct, pct) || !cmp.Equal(got.Message, message) || (got.At == nil) != (pct == nil && message == nil) || answer.Len("directives") != 0 {
				x.t.Errorf("%s: %+v", members, got)
			}
		}
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "progress", "") }, e.ID)
		said(``, nil, nil)
		said(`"pct":10`, new(int32(10)), nil)
		said(`"message":"half"`, new(int32(10)), new("half"))
		said(`"pct":0`, new(int32(0)), new("half"))
		said(`"pct":100,"message":"done"`, new(int32(100)), new("done"))
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "progress", "") }, e.ID)
		x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "progress", `"message":""`) }, e.ID)
		for _, wrong := range []string{`"pct":101`, `"pct":-1`, `"pct":1.5`, `"pct":null`, `"message":null`, `"message":"` + strings.Repeat("x", 4097) + `"`} {
			x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.report(c, "progress", wrong) }, e.ID)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "execution.progressed", "execution.progressed", "execution.progressed", "execution.progressed")
	}},
	{"fail: retried as the stored policy says (6.4/51, 52, 54, 55)", func(x *executionTest) {
		e := x.create(`"policy":{"retry_policy":{"max_retries":3,"backoff":{"type":"exponential","initial_delay_ms":600000,"multiplier":3,"max_delay_ms":3000000}}}`)
		for k, delay := range []time.Duration{10 * time.Minute, 30 * time.Minute, 50 * time.Minute} {
			c := x.claim(lasting)
			answer := x.report(c, "fail", fmt.Sprintf(`"reason":"boom %d","category":"transient"`, k)).Want(http.StatusOK)
			got := answerAs[oapi.FailureReport](answer)
			failed := x.stands(e.ID, atBackoff)
			if diff := cmp.Diff(oapi.FailureReport{Outcome: "retry_scheduled", DelayUntil: failed.DelayUntil, Execution: failed, Directives: oapi.Directives{}}, got); diff != "" {
				x.t.Errorf("answered and read differ:\n%s", diff)
			}
			attempt := x.attempts(e.ID)[k]
			if got := failed.DelayUntil.Time().Sub(attempt.EndedAt.Time()); got != delay || failed.RetryCount != int32(k+1) || failed.CurrentLease != nil {
				x.t.Errorf("retry %d after %s, want %s: %+v", failed.RetryCount, got, delay, failed)
			}
			want := &oapi.ExecutionFailure{Reason: fmt.Sprintf("boom %d", k), Category: new("transient")}
			if !cmp.Equal(failed.Failure, want) || !cmp.Equal(attempt.Failure, want) || attempt.State != "ended_failure" || !strings.Contains(failed.BlockingDetail, want.Reason) {
				x.t.Errorf("%+v, %+v, %q", failed.Failure, attempt, failed.BlockingDetail)
			}
			if x.reason(e.ID, "lease.revoked") != "retry_scheduled" {
				x.t.Errorf("the lease was revoked because of %s", x.reason(e.ID, "lease.revoked"))
			}
			x.advance(delay - time.Minute)
			x.none("")
			x.advance(time.Minute)
			x.stands(e.ID, atRetry)
		}
		got := answerAs[oapi.FailureReport](x.report(x.claim(lasting), "fail", `"reason":"boom"`).Want(http.StatusOK))
		failed := x.stands(e.ID, atFailed)
		if diff := cmp.Diff(oapi.FailureReport{Outcome: "terminal_failed", Execution: failed, Directives: oapi.Directives{}}, got); diff != "" || failed.RetryCount != 3 {
			x.t.Errorf("after %d retries:\n%s", failed.RetryCount, diff)
		}
		if attempts := x.attempts(e.ID); len(attempts) != 4 || failed.TotalAttemptCount != 4 {
			x.t.Errorf("%d attempts", len(attempts))
		}
	}},
	{"fail: what is not retried (6.4/53, 54, 55)", func(x *executionTest) {
		for policy, call := range map[string]string{
			`"kind":"no policy"`: `"category":"transient"`,
			`"policy":{}`:        `"category":"transient"`,
			`"policy":{"retry_policy":{"max_retries":0}}`: `"category":"transient"`,
			retryPolicy(3):                                                 `"category":"permanent"`,
			retryPolicy(3) + `,"kind":"cancelled"`:                         `"category":"cancelled"`,
			retryPolicy(3) + `,"kind":"retry after"`:                       `"category":"permanent","retry_after_ms":0`,
			`"policy":{"retry_policy":{"retryable_categories":["flaky"]}}`: `"category":"transient"`,
		} {
			e := x.create(policy)
			c := x.claim(lasting)
			answer := x.report(c, "fail", `"reason":"boom",`+call).Want(http.StatusOK)
			failed := x.stands(e.ID, atFailed)
			if answer.Str("outcome") != "terminal_failed" || strings.Contains(string(answer.Body), `"delay_until":"`) || failed.RetryCount != 0 || failed.CompletedAt == nil {
				x.t.Errorf("%s: %s", policy, answer.Body)
			}
			x.told(e.ID, "execution.created", "lease.acquired", "execution.failed", "lease.revoked")
			if x.reason(e.ID, "lease.revoked") != "failed" || x.reason(e.ID, "execution.failed") != "boom" {
				x.t.Errorf("the lease was revoked because of %s, it failed of %s", x.reason(e.ID, "lease.revoked"), x.reason(e.ID, "execution.failed"))
			}
		}
	}},
	{"fail: the worker says when", func(x *executionTest) {
		e := x.create(retryPolicy(2))
		x.report(x.claim(lasting), "fail", `"reason":"busy","category":"timeout","retry_after_ms":3600000`).Want(http.StatusOK)
		x.advance(59 * time.Minute)
		x.stands(e.ID, atBackoff)
		x.advance(time.Minute)
		x.stands(e.ID, atRetry)
		answer := x.report(x.claim(lasting), "fail", `"reason":"busy","retry_after_ms":0`).Want(http.StatusOK)
		x.advance(0)
		if x.stands(e.ID, atRetry); answer.Str("outcome") != "retry_scheduled" {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"fail: what is refused changes nothing", func(x *executionTest) {
		e := x.create(retryPolicy(2))
		c := x.claim(lasting)
		for _, wrong := range []string{
			``, `"reason":""`, `"reason":7`, `"reason":"` + strings.Repeat("x", 4097) + `"`, `"reason":"x","category":""`, `"reason":"x","category":"` + strings.Repeat("x", 65) + `"`,
			`"reason":"x","retry_after_ms":-1`, `"reason":"x","retry_policy":{}`, `"reason":"x","source":"operator_override"`,
		} {
			x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.report(c, "fail", wrong) }, e.ID)
		}
	}},
	{"release, and the same attempt again", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":3600000}}`)
		c := x.claim(lasting)
		x.advance(20 * time.Minute)
		got := answerAs[oapi.Report](x.report(c, "release", "").Want(http.StatusOK))
		if diff := cmp.Diff(oapi.Report{Execution: x.stands(e.ID, atReleased), Directives: oapi.Directives{}}, got); diff != "" {
			x.t.Errorf("answered and read differ:\n%s", diff)
		}
		if attempts := x.attempts(e.ID); len(attempts) != 1 || attempts[0].State != "suspended" || attempts[0].EndedAt != nil {
			x.t.Errorf("%+v", attempts)
		}
		x.advance(3 * time.Hour) // while nobody works on it the attempt's time stands still
		again := x.claim(`"worker_id":"w2",` + lasting)
		if again.Kind != "resumed" || again.Fence.AttemptID != c.Fence.AttemptID || again.Fence.AttemptIndex != 0 || again.Fence.LeaseEpoch != 2 || again.Fence.LeaseID == c.Fence.LeaseID {
			x.t.Errorf("a %s claim: %+v after %+v", again.Kind, again.Fence, c.Fence)
		}
		if attempts := x.attempts(e.ID); len(attempts) != 1 || attempts[0].State != "started" || attempts[0].WorkerID != "w2" || attempts[0].LeaseEpoch != 2 {
			x.t.Errorf("%+v", attempts)
		}
		x.told(e.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.eligible", "lease.acquired")
		if x.reason(e.ID, "lease.revoked") != "released" {
			x.t.Errorf("the lease was revoked because of %s", x.reason(e.ID, "lease.revoked"))
		}
		x.report(again, "renew", `"lease_ttl_ms":7200000`).Want(http.StatusOK)
		x.advance(39 * time.Minute)
		x.stands(e.ID, atActive)
		x.advance(2 * time.Minute)
		x.stands(e.ID, atExpired)
	}},
	{"complete with octets needs its handle in the header", func(x *executionTest) {
		e, other := x.create(""), x.create("")
		c, o := x.claim(lasting), x.claim(lasting)
		path := "/v1/executions/" + e.ID.String() + "/complete"
		octets := "Content-Type: application/octet-stream"
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post(path, "x", octets) }, e.ID)
		x.refused(fault.CodeInvalidHandle, func() *apitest.Response { return x.Post(path, "x", octets, "Flowapi-Handle: nonsense") }, e.ID)
		x.refused(fault.CodeInvalidHandle, func() *apitest.Response { return x.Post(path, "x", octets, "Flowapi-Handle: "+o.Handle) }, e.ID, other.ID)
		x.Post(path, "x", octets, "Flowapi-Handle: "+c.Handle).Want(http.StatusOK)
	}},
	{"bodies up to their limits (6.8/113)", func(x *executionTest) {
		payload := func(n int) string { return `"payload":"` + strings.Repeat("x", n-len(x.sent(`"payload":""`))) + `"` }
		large := x.refused(fault.CodePayloadTooLarge, func() *apitest.Response { return x.Post("/v1/executions", x.sent(payload(1<<20+1))) })
		if large.Int("limit_bytes") != 1<<20 {
			x.t.Errorf("%s", large.Body)
		}
		x.create("")
		c := x.claim(lasting)
		result := func(n int) string {
			return `"result":"` + strings.Repeat("x", n-len(executionJSON(`"result":""`, `"handle":"`+c.Handle+`"`))) + `"`
		}
		for op, limit := range map[string]int{"complete": 1 << 20, "fail": 1 << 20, "renew": 64 << 10, "progress": 64 << 10, "release": 64 << 10} {
			large := x.refused(fault.CodePayloadTooLarge, func() *apitest.Response { return x.report(c, op, result(limit+1)) }, c.Execution.ID)
			if large.Int("limit_bytes") != int64(limit) {
				x.t.Errorf("%s: %s", op, large.Body)
			}
		}
		x.report(c, "complete", result(1<<20)).Want(http.StatusOK)
		x.create(payload(1 << 20))
	}},
	{"a batch of completions answers each item, in order", func(x *executionTest) {
		for range 5 {
			x.create(retryPolicy(1))
		}
		held := x.claims(`"max":5,` + lasting)
		stranger := uuid.New()
		item := func(id uuid.UUID, members string) string {
			return executionJSON(members, `"execution_id":"`+id.String()+`"`)
		}
		handle := func(c oapi.Claim) string { return `"handle":"` + c.Handle + `"` }
		items := []string{
			item(held[0].Execution.ID, handle(held[0])+`,"result":{"n":0}`),
			item(held[1].Execution.ID, handle(held[1])+`,"fail":{"reason":"boom","category":"transient"}`),
			item(held[2].Execution.ID, fenced(held[2])+`,"fail":{"reason":"boom","category":"permanent"}`),
			item(held[3].Execution.ID, `"handle":"nonsense"`),
			item(held[3].Execution.ID, handle(held[4])),
			item(held[3].Execution.ID, `"result":1`),
			item(held[3].Execution.ID, handle(held[3])+`,"result":1,"fail":{"reason":"both"}`),
			item(stranger, fenced(held[4])),
			item(held[4].Execution.ID, fenced(held[4], func(fence map[string]any) { fence["lease_epoch"] = 9 })),
			item(held[0].Execution.ID, handle(held[0])+`,"result":{"n":1}`),
			item(held[0].Execution.ID, handle(held[0])+`,"fail":{"reason":"late"}`),
			item(held[4].Execution.ID, handle(held[4])),
			item(held[1].Execution.ID, handle(held[1])+`,"fail":{"reason":"other words"}`),
		}
		want := []struct {
			code     fault.Code
			state    oapi.PublicState
			replayed bool
		}{
			{"", "completed", false}, {"", "delayed", false}, {"", "failed", false},
			{fault.CodeInvalidHandle, "", false}, {fault.CodeInvalidHandle, "", false}, {fault.CodeValidationFailed, "", false}, {fault.CodeValidationFailed, "", false},
			{fault.CodeNotFound, "", false}, {fault.CodeStaleLease, "", false},
			{"", "completed", true}, {fault.CodeExecutionNotActive, "", false}, {"", "completed", false}, {"", "delayed", true},
		}
		before := x.snapshot(held[3].Execution.ID)
		answer := x.Post("/v1/completions", `{"items":[`+strings.Join(items, ",")+`]}`).Want(http.StatusOK)
		got := answerAs[oapi.CompletedExecutions](answer).Items
		if len(got) != len(items) {
			x.t.Fatalf("%d answers to %d items", len(got), len(items))
		}
		for i, item := range got {
			switch {
			case !strings.Contains(items[i], item.ExecutionID.String()):
				x.t.Errorf("item %d is answered for %s", i, item.ExecutionID)
			case want[i].code != "" && (item.Problem == nil || item.Problem.Code != string(want[i].code) || item.Problem.Status != fault.Lookup(want[i].code).Status || item.Execution != nil):
				x.t.Errorf("item %d: %+v, want %s", i, item, want[i].code)
			case want[i].code == "" && (item.Problem != nil || item.Execution == nil || item.Execution.PublicState != want[i].state || item.Replayed == nil || *item.Replayed != want[i].replayed):
				x.t.Errorf("item %d: %+v, want %+v", i, item, want[i])
			}
		}
		if diff := cmp.Diff(before.Records, x.snapshot(held[3].Execution.ID).Records); diff != "" {
			x.t.Errorf("what was refused was changed:\n%s", diff)
		}
		if result := x.Get("/v1/executions/" + held[0].Execution.ID.String() + "/result").Want(http.StatusOK); string(result.Body) != `{"n":0}` {
			x.t.Errorf("a replay changed the result to %s", result.Body)
		}
		x.told(held[0].Execution.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
		x.told(held[1].Execution.ID, "execution.created", "lease.acquired", "lease.revoked", "execution.delayed")
		for body, pointer := range map[string]string{`{"items":[]}`: "/items", `{"items":[{"handle":"x"}]}`: "/items/0/execution_id", `{}`: "/items",
			`{"items":[` + item(stranger, `"fail":{}`) + `]}`: "/items/0/fail/reason"} {
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/completions", body) })
			if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != pointer {
				x.t.Errorf("%s: %+v", body, fields)
			}
		}
	}},
}

// executionMembers joins what is said of a call.
func executionMembers(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ",")
}
