package app_test

import (
	"fmt"
	"maps"
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

// executionPost is a request that can be sent again.
type executionPost struct {
	path, body string
	headers    []string
	id         uuid.UUID // of the execution that it is about, if there is one already
}

func (x *executionTest) send(p executionPost, headers ...string) *apitest.Response {
	x.t.Helper()
	return x.Post(p.path, p.body, append(p.headers, headers...)...)
}

// posts are the requests that executions take, each made ready to be sent.
func (x *executionTest) posts() map[string]func() executionPost {
	all := x.operatorPosts()
	maps.Copy(all, x.grantPosts())
	maps.Copy(all, x.clientPosts())
	maps.Copy(all, x.workerPosts())
	return all
}

const octetsType = "Content-Type: application/octet-stream"

// alone is on a lane of its own.
func (x *executionTest) alone() *executionTest { return x.on(uuid.NewString()[:8]) }

// heldPost is a report of who holds an execution.
func (x *executionTest) heldPost(op, members string) func() executionPost {
	return func() executionPost {
		x.t.Helper()
		x.create(retryPolicy(1))
		c := x.claim(lasting)
		return executionPost{path: "/v1/executions/" + c.Execution.ID.String() + "/" + op, body: executionJSON(members, `"handle":"`+c.Handle+`"`), id: c.Execution.ID}
	}
}

// actedPost is an act of an operator on an execution in a phase.
func (x *executionTest) actedPost(op, members, phase string) func() executionPost {
	return func() executionPost {
		x.t.Helper()
		id := operatorAct{phase: phase}.ready(x.alone())
		return executionPost{path: operatorPath(id, op), body: executionJSON(members), id: id}
	}
}

// operatorPosts are those of operators.
func (x *executionTest) operatorPosts() map[string]func() executionPost {
	return map[string]func() executionPost{
		"operator-cancel":                    x.actedPost("operator-cancel", `"reason":"no"`, "waiting"),
		"operator-cancel of a cancelled one": x.actedPost("operator-cancel", `"reason":"no"`, "cancelled"),
		"operator-cancel with grace":         x.actedPost("operator-cancel", `"reason":"no","grace_ms":3600000`, "active"),
		"revoke-lease":                       x.actedPost("revoke-lease", `"reason":"no"`, "active"),
		"revoke-lease of a lost one":         x.actedPost("revoke-lease", "", "lost"),
		"replay":                             x.actedPost("replay", "", "completed"),
		"resume":                             x.actedPost("resume", `"resume_delay_ms":3600000`, "waiting for its children"),
		"operator-claim":                     x.actedPost("operator-claim", lasting, "waiting"),
		"complete by override":               x.actedPost("complete", `"override":true,"result":1`, "active"),
		"pause a lane": func() executionPost {
			return executionPost{path: "/v1/lanes/" + x.alone().lane + "/pause", body: `{"reason":"no"}`}
		},
		"resume a lane": func() executionPost {
			x.t.Helper()
			path := "/v1/lanes/" + x.alone().lane
			x.Post(path+"/pause", nil).Want(http.StatusOK)
			return executionPost{path: path + "/resume", body: "{}"}
		},
		"stop a bulk job": func() executionPost {
			x.t.Helper()
			job := x.alone().bulked(`"action":"cancel"`)
			return executionPost{path: "/v1/executions/bulk/" + job.JobID.String() + "/stop", body: "{}"}
		},
	}
}

// grantPosts reserve, and use what is reserved.
func (x *executionTest) grantPosts() map[string]func() executionPost {
	return map[string]func() executionPost{
		"reserve": func() executionPost {
			y := x.alone()
			return executionPost{path: "/v1/workers/w1/claim-grants", body: y.sent(`"worker_instance_id":"w1","grant_ttl_ms":60000`), id: y.create("").ID}
		},
		"claim what is reserved": func() executionPost {
			x.t.Helper()
			y := x.alone()
			e := y.create("")
			g := y.reserved("")
			return executionPost{path: operatorPath(e.ID, "claim"), body: `{"grant_id":"` + g.GrantID.String() + `","worker_id":"w1","worker_instance_id":"w1"}`, id: e.ID}
		},
		"reserve what is lost": func() executionPost {
			x.t.Helper()
			id := operatorAct{phase: "revoked"}.ready(x.alone())
			return executionPost{path: operatorPath(id, "reclaim-grants"), body: `{"worker_id":"w1","worker_instance_id":"w1","grant_ttl_ms":60000}`, id: id}
		},
		"take over what is reserved": func() executionPost {
			x.t.Helper()
			id := operatorAct{phase: "revoked"}.ready(x.alone())
			g := x.reservedLost(id, "")
			return executionPost{path: operatorPath(id, "reclaim"), body: `{"grant_id":"` + g.GrantID.String() + `","worker_id":"w1","worker_instance_id":"w1"}`, id: id}
		},
	}
}

// clientPosts create and claim.
func (x *executionTest) clientPosts() map[string]func() executionPost {
	return map[string]func() executionPost{
		"create": func() executionPost { return executionPost{path: "/v1/executions", body: x.sent(`"payload":[1, 2]`)} },
		"create with octets": func() executionPost {
			return executionPost{path: "/v1/executions/octets?lane=" + x.lane, body: "\x00\xff", headers: []string{octetsType}}
		},
		"create what there is": func() executionPost {
			return executionPost{path: "/v1/executions", body: x.sent(`"id":"` + x.create("").ID.String() + `"`)}
		},
		"create many, one wrong": func() executionPost {
			return executionPost{path: "/v1/executions/batch", body: `{"executions":[` + x.sent("") + `,` + x.sent(`"tags":{"BAD":""}`) + `]}`}
		},
		"claim": func() executionPost {
			return executionPost{path: "/v1/claims", body: x.sent(`"worker_id":"w1"`), id: x.create("").ID}
		},
		"claim as text": func() executionPost {
			return executionPost{path: "/v1/claims", body: x.sent(`"worker_id":"w1"`), id: x.create("").ID, headers: []string{"Accept: text/plain"}}
		},
		"claim and wait": func() executionPost {
			return executionPost{path: "/v1/claims", body: x.sent(`"worker_id":"w1"`), id: x.create("").ID, headers: []string{"Prefer: wait=20"}}
		},
	}
}

// workerPosts are the reports of workers.
func (x *executionTest) workerPosts() map[string]func() executionPost {
	return map[string]func() executionPost{
		"delay":               x.heldPost("delay", `"delay_ms":3600000`),
		"wait-children":       x.heldPost("wait-children", ""),
		"cancel":              x.heldPost("cancel", `"reason":"no"`),
		"renew":               x.heldPost("renew", `"lease_ttl_ms":3600000`),
		"progress":            x.heldPost("progress", `"pct":5`),
		"complete":            x.heldPost("complete", `"result":{"a": 1}`),
		"fail, to be retried": x.heldPost("fail", `"reason":"boom"`),
		"fail for good":       x.heldPost("fail", `"reason":"boom","category":"permanent"`),
		"release":             x.heldPost("release", ""),
		"complete with octets": func() executionPost {
			x.t.Helper()
			x.create("")
			c := x.claim(lasting)
			return executionPost{path: "/v1/executions/" + c.Execution.ID.String() + "/complete", body: "\x00\xff", headers: []string{octetsType, "Flowapi-Handle: " + c.Handle}, id: c.Execution.ID}
		},
		"complete many": func() executionPost {
			x.t.Helper()
			x.create("")
			c := x.claim(lasting)
			return executionPost{path: "/v1/completions", body: `{"items":[` + completionItem(c, "") + `,` + completionItem(c, `"fail":{"reason":"late"}`) + `]}`, id: c.Execution.ID}
		},
	}
}

// ids is what a snapshot of p's execution is taken with.
func (p executionPost) ids() []uuid.UUID {
	if p.id == uuid.Nil {
		return nil
	}
	return []uuid.UUID{p.id}
}

// TestExecutions_Idempotency: the same Idempotency-Key is one effect and one answer. http.md, "Idempotency-Key".
func TestExecutions_Idempotency(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, executionsIdempotencyCases)
}

var executionsIdempotencyCases = []executionCase{
	{"the same request twice: the same answer, and nothing else", func(x *executionTest) {
		n := 0
		for name, ready := range x.posts() {
			n++
			p, key := ready(), fmt.Sprintf("Idempotency-Key: same %s %d ~", x.lane, n)
			first := x.send(p, key)
			if first.Status >= 300 || first.Header.Get("Idempotent-Replay") != "" && first.Status != http.StatusOK {
				x.t.Fatalf("%s: %d %s", name, first.Status, first.Body)
			}
			for range 2 {
				again := x.unchanged(first.Status, func() *apitest.Response { return x.send(p, key) }, p.ids()...)
				same := func(header string) bool { return first.Header.Get(header) == again.Header.Get(header) }
				if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || !same("ETag") || !same("Location") ||
					mediaTypeOf(first) != mediaTypeOf(again) {
					x.t.Errorf("%s: first %v %s\nthen %v %s", name, first.Header, first.Body, again.Header, again.Body)
				}
			}
			other, elsewhere, asked := p, p, p
			other.body += " "
			elsewhere.path += "?namespace=default"
			if strings.Contains(p.path, "?") {
				elsewhere.path = p.path + "&namespace=default"
			}
			for _, p := range []executionPost{other, elsewhere} {
				x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.send(p, key) }, asked.ids()...)
			}
		}
	}},
	{"the same request many times at once: one effect, and its answer or idempotency_in_flight", func(x *executionTest) {
		n := 0
		for name, ready := range x.posts() {
			n++
			p, key := ready(), fmt.Sprintf("Idempotency-Key: once %s %d", x.lane, n)
			before := x.rows()
			answers := atOnce(6, func(int) *apitest.Response { return x.send(p, key) })
			var first *apitest.Response
			done := 0
			for _, a := range answers {
				if a.Status == http.StatusConflict {
					if a.Problem(fault.CodeIdempotencyInFlight).Header.Get("Retry-After") == "" {
						x.t.Errorf("%s: in flight without Retry-After", name)
					}
					continue
				}
				if first == nil {
					first = a
				}
				if a.Header.Get("Idempotent-Replay") == "" || name == "create what there is" && done == 0 {
					done++
				}
				if a.Status != first.Status || string(a.Body) != string(first.Body) {
					x.t.Errorf("%s: %d %s\nand %d %s", name, first.Status, first.Body, a.Status, a.Body)
				}
			}
			if first == nil || first.Status >= 300 || done != 1 {
				x.t.Fatalf("%s: done %d times", name, done)
			}
			after := x.rows()
			again := x.unchanged(first.Status, func() *apitest.Response { return x.send(p, key) }, p.ids()...)
			if string(again.Body) != string(first.Body) || after.IdempotencyKeys != before.IdempotencyKeys+1 || after.Executions > before.Executions+1 ||
				after.Attempts > before.Attempts+1 {
				x.t.Errorf("%s: %+v → %+v\n%s\n%s", name, before, after, first.Body, again.Body)
			}
		}
	}},
	{"many claims at once with one key take one execution", func(x *executionTest) {
		for range 4 {
			x.create("")
		}
		atOnce(8, func(int) *apitest.Response { return x.ask("", "Idempotency-Key: many "+x.lane) })
		active := answerAs[oapi.ExecutionList](x.Get("/v1/executions?public_state=active&lane=" + x.lane).Want(http.StatusOK)).Items
		if len(active) != 1 {
			x.t.Errorf("%d were taken", len(active))
		}
	}},
	{"a refusal is not kept", func(x *executionTest) {
		key := "Idempotency-Key: refused " + x.lane
		for range 2 {
			x.refused(fault.CodeInvalidTagKey, func() *apitest.Response { return x.Post("/v1/executions", x.sent(`"tags":{"BAD":""}`), key) })
		}
		if answer := x.Post("/v1/executions", x.sent(""), key).Want(http.StatusCreated); answer.Header.Get("Idempotent-Replay") != "" {
			x.t.Error("a new request was replayed")
		}
		c := x.claim("")
		x.advance(time.Minute)
		key = "Idempotency-Key: late " + x.lane
		x.refused(fault.CodeLeaseExpired, func() *apitest.Response { return x.report(c, "complete", "", key) }, c.Execution.ID)
		c = x.claim(lasting)
		x.report(c, "complete", "", key).Want(http.StatusOK)
	}},
	{"a claim that found nothing is not kept", func(x *executionTest) {
		key := "Idempotency-Key: nothing " + x.lane
		x.unchanged(http.StatusNoContent, func() *apitest.Response { return x.ask("", key) })
		e := x.create("")
		answer := x.ask("", key).Want(http.StatusOK)
		if answer.Header.Get("Idempotent-Replay") != "" || answer.Str("claims.0.execution.id") != e.ID.String() {
			x.t.Errorf("%v %s", answer.Header, answer.Body)
		}
	}},
	{"a key is forgotten after a day", func(x *executionTest) {
		key := "Idempotency-Key: day " + x.lane
		first := x.Post("/v1/executions", x.sent(""), key).Want(http.StatusCreated)
		x.advance(24*time.Hour - time.Minute)
		if again := x.Post("/v1/executions", x.sent(""), key).Want(http.StatusCreated); string(again.Body) != string(first.Body) {
			x.t.Errorf("%s", again.Body)
		}
		x.advance(2 * time.Minute)
		again := x.Post("/v1/executions", x.sent(`"priority":1`), key).Want(http.StatusCreated)
		if again.Str("id") == first.Str("id") || again.Header.Get("Idempotent-Replay") != "" {
			x.t.Errorf("%v %s", again.Header, again.Body)
		}
	}},
	{"a key belongs to its namespace", func(x *executionTest) {
		key := "Idempotency-Key: ours " + x.lane
		first := x.Post("/v1/executions", x.sent(""), key).Want(http.StatusCreated)
		other := x.in("other").Post("/v1/executions", x.sent(`"priority":1`), key).Want(http.StatusCreated)
		if first.Str("id") == other.Str("id") || other.Header.Get("Idempotent-Replay") != "" {
			x.t.Errorf("%v %s", other.Header, other.Body)
		}
	}},
	{"what is no key", func(x *executionTest) {
		for key, code := range map[string]fault.Code{strings.Repeat("k", 256): fault.CodeValidationFailed, "é": fault.CodeInvalidParameter} {
			answer := x.refused(code, func() *apitest.Response { return x.Post("/v1/executions", x.sent(""), "Idempotency-Key: "+key) })
			if fields := answer.Fields(); len(fields) != 1 || fields[0].In != fault.InHeader || fields[0].Pointer != "Idempotency-Key" {
				x.t.Errorf("%+v", fields)
			}
		}
		x.Post("/v1/executions", x.sent(""), "Idempotency-Key: "+strings.Repeat("k", 255)).Want(http.StatusCreated)
	}},
	{"an answer over 64 KiB is rendered again: create", func(x *executionTest) {
		key := "Idempotency-Key: large " + x.lane
		body := x.sent(largePayload(x))
		first := x.Post("/v1/executions", body, key).Want(http.StatusCreated)
		again := x.unchanged(http.StatusCreated, func() *apitest.Response { return x.Post("/v1/executions", body, key) })
		if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("Location") != first.Header.Get("Location") || len(first.Body) < 64<<10 {
			x.t.Errorf("%v, %d and %d bytes", again.Header, len(first.Body), len(again.Body))
		}
		x.claim("")
		again = x.Post("/v1/executions", body, key).Want(http.StatusCreated) // from the row as it is now
		if again.Str("id") != first.Str("id") || again.Str("public_state") != "active" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%v %.300s", again.Header, again.Body)
		}
		x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.Post("/v1/executions", body+" ", key) })
	}},
	{"an answer over 64 KiB is rendered again: claim, with what is still good of it", func(x *executionTest) {
		for _, kind := range []string{"application/json", "text/plain"} {
			x.create(largePayload(x))
			key := "Idempotency-Key: " + kind + " " + x.lane
			first := x.ask(lasting, key, "Accept: "+kind).Want(http.StatusOK)
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.ask(lasting, key, "Accept: "+kind) })
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || mediaTypeOf(first) != mediaTypeOf(again) || mediaTypeOf(first) != kind || len(first.Body) < 64<<10 {
				x.t.Errorf("%v, %d and %d bytes", again.Header, len(first.Body), len(again.Body))
			}
			e := answerAs[oapi.ExecutionList](x.Get("/v1/executions?public_state=active&lane=" + x.lane)).Items[0]
			c := oapi.Claim{Execution: e, Handle: handleIn(x.t, first)}
			x.report(c, "complete", "").Want(http.StatusOK)
			again = x.ask(lasting, key, "Accept: "+kind)
			if again.Status != http.StatusOK || again.Header.Get("Idempotent-Replay") != "true" || strings.Contains(string(again.Body), c.Handle) {
				x.t.Errorf("%d %v %.300s", again.Status, again.Header, again.Body)
			}
			if kind == "application/json" && (again.Len("claims") != 0 || again.Len("directives") != 0) {
				x.t.Errorf("%s", again.Body)
			}
		}
	}},
	{"an answer over 64 KiB is rendered again: several claims, of which some are over", func(x *executionTest) {
		x.create(largePayload(x))
		x.create(`"priority":1`)
		x.create("")
		key := "Idempotency-Key: several " + x.lane
		first := answerAs[oapi.Claims](x.ask(`"max":5,`+lasting, key).Want(http.StatusOK)).Claims
		x.report(first[0], "complete", "").Want(http.StatusOK)
		x.report(first[1], "release", "").Want(http.StatusOK)
		next := x.claim("")
		again := answerAs[oapi.Claims](x.ask(`"max":5,`+lasting, key).Want(http.StatusOK)).Claims
		if diff := cmp.Diff(first[2:], again); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.report(next, "complete", "").Want(http.StatusOK)
	}},
	{"an answer over 64 KiB is rendered again: many at once, with what was refused", func(x *executionTest) {
		key := "Idempotency-Key: batch " + x.lane
		body := `{"executions":[` + x.sent(largePayload(x)) + `,` + x.sent(`"tags":{"BAD":""}`) + `,` + x.sent(`"budget_ids":["`+uuid.NewString()+`"]`) + `]}`
		first := x.Post("/v1/executions/batch", body, key).Want(http.StatusCreated)
		again := x.unchanged(http.StatusCreated, func() *apitest.Response { return x.Post("/v1/executions/batch", body, key) })
		if diff := cmp.Diff(withoutRequestID(first), withoutRequestID(again)); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%v (-first +again):\n%.2000s", again.Header, diff)
		}
	}},
	{"an answer over 64 KiB is rendered again: reports", func(x *executionTest) {
		for op, members := range map[string]string{"complete": "", "fail": `"reason":"boom"`, "release": ""} {
			x := x.on(op)
			e := x.create(retryPolicy(1) + "," + largePayload(x))
			c := x.claim(lasting)
			key := "Idempotency-Key: " + op + " " + x.lane
			first := x.report(c, op, members, key).Want(http.StatusOK)
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, op, members, key) }, e.ID)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" {
				x.t.Errorf("%s: %v (-first +again):\n%.2000s", op, again.Header, cmp.Diff(first.JSON(), again.JSON()))
			}
			if op == "complete" {
				continue
			}
			x.advance(retryDelay)
			x.claim(lasting) // what it was answered stays what it was answered, of the execution as it is now
			again = x.report(c, op, members, key).Want(http.StatusOK)
			if again.Str("execution.public_state") != "active" || again.Get("replayed") != false {
				x.t.Errorf("%s: %.2000s", op, again.Body)
			}
			if op == "fail" && (again.Str("outcome") != "retry_scheduled" || again.Str("delay_until") != first.Str("delay_until")) {
				x.t.Errorf("%s: %.2000s", op, again.Body)
			}
		}
	}},
	{"an answer over 64 KiB is rendered again: what operators do", func(x *executionTest) {
		for i, act := range []operatorAct{
			{op: "operator-cancel", members: `"reason":"no"`, phase: "waiting"}, {op: "operator-cancel", members: `"reason":"no","grace_ms":60000`, phase: "active"},
			{op: "revoke-lease", phase: "active"}, {op: "replay", phase: "completed"}, {op: "resume", phase: "waiting for its children"},
			{op: "operator-claim", members: lasting, phase: "waiting"}, {op: "delay", members: `"override":true,"delay_ms":60000`, phase: "active"},
		} {
			y := x.on(fmt.Sprint(i))
			id := act.ready(y)
			y.tamper(`UPDATE executions SET payload = ? WHERE id = ?`, []byte(`"`+strings.Repeat("x", 70000)+`"`), rowID(id))
			key := fmt.Sprintf("Idempotency-Key: large %s %d", x.lane, i)
			first := y.operator(id, act.op, act.members, key).Want(http.StatusOK)
			again := y.unchanged(http.StatusOK, func() *apitest.Response { return y.operator(id, act.op, act.members, key) }, id)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || again.Header.Get("ETag") != first.Header.Get("ETag") || (len(first.Body) < 64<<10) != (act.op == "revoke-lease") {
				x.t.Errorf("%s: %v (-first +again):\n%.2000s", act.op, again.Header, cmp.Diff(first.JSON(), again.JSON()))
			}
		}
	}},
	{"an answer over 64 KiB is rendered again: grants that are used", func(x *executionTest) {
		for _, op := range []string{"claim", "reclaim"} {
			y := x.on(op)
			e := y.create(largePayload(y))
			g := oapi.Grant{}
			if op == "claim" {
				g = y.reserved("")
			} else {
				y.claim(lasting)
				y.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
				g = y.reservedLost(e.ID, "")
			}
			key := "Idempotency-Key: grant " + y.lane
			first := y.use(g, op, lasting, key).Want(http.StatusOK)
			again := y.unchanged(http.StatusOK, func() *apitest.Response { return y.use(g, op, lasting, key) }, e.ID)
			if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || len(first.Body) < 64<<10 {
				x.t.Errorf("%s: %v (-first +again):\n%.2000s", op, again.Header, cmp.Diff(first.JSON(), again.JSON()))
			}
			y.report(answerAs[oapi.Claims](first).Claims[0], "complete", "").Want(http.StatusOK)
			if over := y.use(g, op, lasting, key).Want(http.StatusOK); over.Len("claims") != 0 {
				x.t.Errorf("%.500s", over.Body)
			}
		}
	}},
	{"an answer over 64 KiB is rendered again: a failure of what was to be cancelled", func(x *executionTest) {
		e := x.create(retryPolicy(1) + "," + largePayload(x))
		c := x.claim(lasting)
		x.operator(e.ID, "operator-cancel", `"reason":"no","grace_ms":60000`).Want(http.StatusOK)
		key := "Idempotency-Key: cancelling " + x.lane
		first := x.report(c, "fail", `"reason":"boom"`, key).Want(http.StatusOK)
		again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "fail", `"reason":"boom"`, key) }, e.ID)
		if string(again.Body) != string(first.Body) || again.Str("outcome") != "cancelled" {
			x.t.Errorf("%.500s\n%.500s", first.Body, again.Body)
		}
		x.operator(e.ID, "replay", "").Want(http.StatusOK)
		x.claim(lasting)
		if later := x.report(c, "fail", `"reason":"boom"`, key).Want(http.StatusOK); later.Str("outcome") != "cancelled" {
			x.t.Errorf("%s", later.Str("outcome"))
		}
	}},
	{"an answer over 64 KiB is rendered again: many completions", func(x *executionTest) {
		x.create(largePayload(x))
		x.create("")
		held := x.claims(`"max":2,` + lasting)
		key := "Idempotency-Key: completions " + x.lane
		body := `{"items":[` + completionItem(held[0], `"result":1`) + `,` + completionItem(held[0], `"fail":{"reason":"late"}`) + `,` + completionItem(held[1], `"fail":{"reason":"boom"}`) + `,` + completionItem(held[0], ``) + `]}`
		first := x.Post("/v1/completions", body, key).Want(http.StatusOK)
		again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.Post("/v1/completions", body, key) }, held[0].Execution.ID, held[1].Execution.ID)
		if diff := cmp.Diff(withoutRequestID(first), withoutRequestID(again)); diff != "" || again.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%v (-first +again):\n%.2000s", again.Header, diff)
		}
	}},
}

// largePayload is a payload whose answer is over 64 KiB.
func largePayload(x *executionTest) string {
	return `"payload":"` + strings.Repeat(x.lane+" ", 12000) + `"`
}

// mediaTypeOf returns the media type of an answer without its parameters.
func mediaTypeOf(answer *apitest.Response) string {
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	return kind
}

// handleIn returns the handle of a claim's answer, of whatever type.
func handleIn(t *testing.T, answer *apitest.Response) string {
	t.Helper()
	if mediaTypeOf(answer) == "application/json" {
		return answer.Str("claims.0.handle")
	}
	_, rest, _ := strings.Cut(string(answer.Body), "HANDLE='")
	handle, _, ok := strings.Cut(rest, "'")
	if !ok {
		t.Fatalf("%s has no handle", answer.Body)
	}
	return handle
}

// withoutRequestID returns the items of a batch's answer without what is never the same.
func withoutRequestID(answer *apitest.Response) any {
	items, _ := answer.Get("items").([]any)
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			if problem, ok := item["problem"].(map[string]any); ok {
				delete(problem, "request_id")
			}
		}
	}
	return items
}
