package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// completionItem returns an item of a batch of completions.
func completionItem(c oapi.Claim, members string) string {
	return executionJSON(members, `"execution_id":"`+c.Execution.ID.String()+`"`, `"handle":"`+c.Handle+`"`)
}

// everyCall makes each of the calls that a worker has, with the handle, with the fence, and in a batch, and looks at each with
// check, which is given a code when the call was refused.
func (x *executionTest) everyCall(c oapi.Claim, check func(name string, call func() (fault.Code, *apitest.Response))) {
	x.t.Helper()
	alone := func(answer *apitest.Response) (fault.Code, *apitest.Response) {
		if answer.Status == http.StatusOK {
			return "", answer
		}
		return fault.Code(answer.Str("code")), answer
	}
	for _, call := range workerCalls {
		check(call.op, func() (fault.Code, *apitest.Response) { return alone(x.report(c, call.op, call.members)) })
		check(call.op+" with the fence", func() (fault.Code, *apitest.Response) {
			return alone(x.Post("/v1/executions/"+c.Execution.ID.String()+"/"+call.op, executionJSON(executionMembers(fenced(c), call.members))))
		})
	}
	check("complete with octets", func() (fault.Code, *apitest.Response) {
		return alone(x.Post("/v1/executions/"+c.Execution.ID.String()+"/complete", "x", "Content-Type: application/octet-stream", "Flowapi-Handle: "+c.Handle))
	})
	for name, members := range map[string]string{"complete in a batch": `"result":1`, "fail in a batch": `"fail":{"reason":"boom","category":"transient"}`} {
		check(name, func() (fault.Code, *apitest.Response) {
			answer := x.Post("/v1/completions", `{"items":[`+completionItem(c, members)+`]}`).Want(http.StatusOK)
			if item := answerAs[oapi.CompletedExecutions](answer).Items[0]; item.Problem != nil {
				return fault.Code(item.Problem.Code), answer
			}
			return "", answer
		})
	}
}

// TestExecutions_Stale: who does not own an execution any more changes nothing, and a call that is repeated is answered again.
// executions.md 1.8, 2.12 and 5/4, 5, 12.
func TestExecutions_Stale(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsStaleCases)
}

var executionsStaleCases = []executionCase{
	{"taken over: stale_lease on every call, and nothing changes", func(x *executionTest) {
		takeovers := map[string]func(old oapi.Claim){
			"by another after the lease ran out": func(oapi.Claim) { x.advance(30 * time.Second) },
			"by another after it was given back": func(old oapi.Claim) { x.report(old, "release", "").Want(http.StatusOK) },
			"by another after it failed": func(old oapi.Claim) {
				x.report(old, "fail", `"reason":"boom","category":"transient"`).Want(http.StatusOK)
				x.advance(retryDelay)
			},
		}
		for how, takeover := range takeovers {
			for _, worker := range []string{"w1", "w2"} { // it may be the same worker
				e := x.create(retryPolicy(1))
				old := x.claim(`"worker_id":"w1"`)
				takeover(old)
				c := x.claim(`"worker_id":"` + worker + `",` + lasting)
				if c.Fence.LeaseEpoch <= old.Fence.LeaseEpoch {
					x.t.Fatalf("%s: epoch %d after %d", how, c.Fence.LeaseEpoch, old.Fence.LeaseEpoch)
				}
				before := x.snapshot(e.ID)
				x.everyCall(old, func(name string, call func() (fault.Code, *apitest.Response)) {
					code, answer := call()
					if code != fault.CodeStaleLease {
						x.t.Errorf("%s by %s: %s = %q, want stale_lease\n%s", how, worker, name, code, answer.Body)
					}
					if strings.Contains(string(answer.Body), c.Fence.AttemptID.String()) && c.Fence.AttemptID != old.Fence.AttemptID {
						x.t.Errorf("%s: %s tells the secret of the new holder", how, name)
					}
				})
				for _, call := range workerCalls { // a refusal leaves its key free for the next
					x.report(old, call.op, call.members, "Idempotency-Key: "+how+worker).Problem(fault.CodeStaleLease)
				}
				if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
					x.t.Errorf("%s by %s: a stale worker changed something (-before +after):\n%s", how, worker, diff)
				}
				x.report(c, "complete", `"result":2`).Want(http.StatusOK)
				x.stands(e.ID, atCompleted)
			}
		}
	}},
	{"taken over and ended by the next one: execution_not_active, also for what the stale one ended itself", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		old := x.claim("")
		x.report(old, "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.advance(retryDelay)
		c := x.claim(lasting)
		x.report(c, "complete", "").Want(http.StatusOK)
		before := x.snapshot(e.ID)
		x.everyCall(old, func(name string, call func() (fault.Code, *apitest.Response)) {
			if code, answer := call(); code != fault.CodeExecutionNotActive {
				x.t.Errorf("%s = %q\n%s", name, code, answer.Body)
			}
		})
		if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
			x.t.Errorf("a stale worker changed something (-before +after):\n%s", diff)
		}
	}},
	{"a repeated complete is answered again (6.4/49)", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		first := x.report(c, "complete", `"result":{"n":1}`).Want(http.StatusOK)
		if first.Get("replayed") != false {
			x.t.Errorf("%s", first.Body)
		}
		before := x.snapshot(e.ID)
		again := []*apitest.Response{
			x.report(c, "complete", `"result":{"n":1}`), x.report(c, "complete", `"result":{"n":2}`), x.report(c, "complete", ``),
			x.by(e.ID, "complete", fenced(c)),
			x.Post("/v1/executions/"+e.ID.String()+"/complete", "x", "Content-Type: application/octet-stream", "Flowapi-Handle: "+c.Handle),
		}
		x.advance(time.Hour) // it does not depend on the lease's time
		for _, answer := range append(again, x.report(c, "complete", "")) {
			got := answerAs[oapi.Report](answer.Want(http.StatusOK))
			if diff := cmp.Diff(oapi.Report{Execution: answerAs[oapi.Report](first).Execution, Replayed: true, Directives: oapi.Directives{}}, got); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
		}
		batch := x.Post("/v1/completions", `{"items":[`+completionItem(c, "")+`]}`).Want(http.StatusOK)
		if batch.Get("items.0.replayed") != true || batch.Str("items.0.execution.public_state") != "completed" {
			x.t.Errorf("%s", batch.Body)
		}
		for _, call := range workerCalls {
			if call.op != "complete" {
				x.report(c, call.op, call.members).Problem(fault.CodeExecutionNotActive)
			}
		}
		if diff := cmp.Diff(before.Records, x.snapshot(e.ID).Records); diff != "" {
			x.t.Errorf("a replay changed something (-before +after):\n%s", diff)
		}
	}},
	{"a repeated fail is answered again, with the same time (6.4/50)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.claim("")
		first := x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		until := first.Str("delay_until")
		before := x.snapshot(e.ID)
		for _, members := range []string{`"reason":"boom"`, `"reason":"other","category":"permanent"`, `"reason":"boom","retry_after_ms":1`} {
			answer := x.report(c, "fail", members).Want(http.StatusOK)
			if answer.Str("outcome") != "retry_scheduled" || answer.Str("delay_until") != until || answer.Get("replayed") != true || answer.Str("execution.public_state") != "delayed" {
				x.t.Errorf("%s: %s", members, answer.Body)
			}
		}
		batch := x.Post("/v1/completions", `{"items":[`+completionItem(c, `"fail":{"reason":"x"}`)+`]}`).Want(http.StatusOK)
		if batch.Get("items.0.replayed") != true {
			x.t.Errorf("%s", batch.Body)
		}
		x.report(c, "complete", "").Problem(fault.CodeExecutionNotActive)
		if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
			x.t.Errorf("a replay changed something (-before +after):\n%s", diff)
		}
		x.advance(retryDelay)
		answer := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "fail", `"reason":"boom"`) }, e.ID)
		if answer.Str("delay_until") != until || answer.Get("replayed") != true || answer.Str("execution.public_state") != "waiting" {
			x.t.Errorf("%s", answer.Body)
		}
		c = x.claim("")
		last := x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		answer = x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "fail", `"reason":"boom"`) }, e.ID)
		if last.Str("outcome") != "terminal_failed" || answer.Str("outcome") != "terminal_failed" || answer.Get("replayed") != true {
			x.t.Errorf("%s\n%s", last.Body, answer.Body)
		}
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, e.ID)
	}},
	{"a repeated release is answered again", func(x *executionTest) {
		e := x.create("")
		c := x.claim("")
		x.report(c, "release", "").Want(http.StatusOK)
		answer := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "release", "") }, e.ID)
		if answer.Get("replayed") != true || answer.Str("execution.public_state") != "waiting" {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"fail after complete, and complete after fail, are refused (6.4/47, 7.1/4)", func(x *executionTest) {
		e := x.create(retryPolicy(3))
		c := x.claim("")
		x.report(c, "complete", "").Want(http.StatusOK)
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "fail", `"reason":"late"`) }, e.ID)
		x.stands(e.ID, atCompleted)
		e = x.create("")
		c = x.claim("")
		x.report(c, "fail", `"reason":"boom"`).Want(http.StatusOK)
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", `"result":1`) }, e.ID)
		x.stands(e.ID, atFailed)
	}},
}
