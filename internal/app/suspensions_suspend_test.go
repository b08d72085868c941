package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// tokenForm is what a token looks like. executions.md 2.13.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]+:[0-9a-f]{64}$`)

// TestSuspend: what becomes of an execution that its worker suspends. executions.md 2.15.
func TestSuspend(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, suspendCases)
}

var suspendCases = []executionCase{
	{"the answer, the vector, the attempt and the events (6.7/85)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		n := len(x.events(e.ID))
		answer := x.report(c, "suspend", waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")+`,"timeout_ms":60000,"timeout_behavior":"expire","continuation_metadata_pointer":"s3://x"`).
			Want(http.StatusOK)
		s := answerAs[oapi.SuspendedExecution](answer)
		if s.Outcome != "suspended" || len(s.Waitpoints) != 2 || len(s.Directives) != 0 || s.Waitpoints[0].WaitpointKey != "a" || s.Waitpoints[1].WaitpointKey != "b" ||
			answer.Header.Get("Cache-Control") != "no-store" {
			x.t.Errorf("%v %s", answer.Header, answer.Body)
		}
		for _, w := range s.Waitpoints {
			kid, digest, _ := strings.Cut(w.Token, ":")
			if !tokenForm.MatchString(w.Token) || !strings.HasSuffix(w.ApproveURL, "/approve/"+w.WaitpointID.String()+"."+kid+"."+digest) {
				x.t.Errorf("%+v", w)
			}
		}
		now := x.server.Clock.Now()
		got := x.stands(e.ID, atSuspended)
		want := &oapi.Suspension{SuspensionID: s.SuspensionID, ReasonCode: "waiting_for_signal", RequestedBy: "worker", Since: got.Suspension.Since, TimeoutAt: got.Suspension.TimeoutAt,
			TimeoutBehavior: "expire", ContinuationMetadataPointer: new("s3://x"),
			Waitpoints: []oapi.BoundWaitpoint{{WaitpointID: s.Waitpoints[0].WaitpointID, WaitpointKey: "a"}, {WaitpointID: s.Waitpoints[1].WaitpointID, WaitpointKey: "b"}}}
		if diff := cmp.Diff(want, got.Suspension); diff != "" || got.CurrentLease != nil || got.TotalAttemptCount != 1 || got.Suspension.TimeoutAt == nil ||
			got.Suspension.TimeoutAt.Time().Sub(got.Suspension.Since.Time()) != time.Minute || now.Sub(got.Suspension.Since.Time()).Abs() > time.Second {
			x.t.Errorf("%+v (-want +got):\n%s", got, diff)
		}
		if !strings.Contains(got.BlockingDetail, s.Waitpoints[0].WaitpointID.String()) || !strings.Contains(got.BlockingDetail, "waiting_for_signal") {
			x.t.Errorf("%q", got.BlockingDetail)
		}
		if a := x.attempts(e.ID); len(a) != 1 || a[0].State != "suspended" || a[0].EndedAt != nil {
			x.t.Errorf("%+v", a)
		}
		events := x.toldSince(e.ID, n, "lease.revoked", "execution.suspended")
		x.leaseEnds(e.ID, n, "lease.revoked", "suspended")
		told := eventData(x.t, events[1])
		if told["suspension_id"] != s.SuspensionID.String() || told["reason_code"] != "waiting_for_signal" || told["timeout_behavior"] != "expire" || told["escalated"] != nil {
			x.t.Errorf("%s", events[1].Data)
		}
		for _, event := range x.events(e.ID) {
			for _, w := range s.Waitpoints {
				if _, digest, _ := strings.Cut(w.Token, ":"); bytes.Contains(event.Data, []byte(digest)) {
					x.t.Errorf("%s tells the token", event.Type)
				}
			}
		}
		x.none(lasting)
		for _, call := range workerCalls {
			x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, e.ID)
		}
	}},
	{"why, and what it is blocked by (2.15)", func(x *executionTest) {
		for reason, blocking := range map[string]string{
			"waiting_for_signal": "waiting_for_signal", "waiting_for_approval": "waiting_for_approval", "waiting_for_callback": "waiting_for_callback",
			"waiting_for_tool_result": "waiting_for_tool_result", "waiting_for_operator_review": "paused_by_operator", "paused_by_policy": "paused_by_policy",
			"paused_by_budget": "waiting_for_budget", "step_boundary": "waiting_for_signal", "manual_pause": "paused_by_operator",
		} {
			e := x.create("")
			x.suspend(x.claim(lasting), strings.Replace(waitForGo, `"waiting_for_signal"`, quoted(reason), 1))
			if got := x.stands(e.ID, "suspended unowned not_applicable "+blocking+" none attempt_interrupted suspended"); string(got.Suspension.ReasonCode) != reason {
				x.t.Errorf("%+v", got.Suspension)
			}
		}
	}},
	{"a claim of the resumed goes on in the same attempt, with another epoch; what was never suspended is none (6.5/71, 6.7/107)", func(x *executionTest) {
		e, c, points := x.waitsFor(onSignal("a", wildcard), "a")
		x.signalled(e.ID, points[0], "")
		other := x.create("")
		claims := x.claims(`"worker_id":"w2","max":2,` + lasting)
		if len(claims) != 2 || claims[0].Execution.ID != e.ID || claims[1].Execution.ID != other.ID {
			x.t.Fatalf("%+v", claims)
		}
		first, second := claims[0], claims[1]
		if first.Kind != "resumed" || first.Fence.AttemptID != c.Fence.AttemptID || first.Fence.AttemptIndex != 0 || first.Fence.LeaseEpoch != 2 || first.Fence.LeaseID == c.Fence.LeaseID || second.Kind != "fresh" {
			x.t.Errorf("%+v and %+v", first, second)
		}
		if a := x.attempts(e.ID); len(a) != 1 || a[0].State != "started" || a[0].LeaseEpoch != 2 {
			x.t.Errorf("%+v", a)
		}
		x.report(first, "complete", "").Want(http.StatusOK)
		x.stands(e.ID, atCompleted)
	}},
	{"in two steps: a grant takes over the resumed, too (6.7/107)", func(x *executionTest) {
		e, c, points := x.waitsFor(onSignal("a", wildcard), "a")
		x.signalled(e.ID, points[0], "")
		got := x.used(x.reserved(""), "claim", "")
		if got.Execution.ID != e.ID || got.Kind != "resumed" || got.Fence.AttemptID != c.Fence.AttemptID {
			x.t.Errorf("%+v", got)
		}
	}},
	{"ids of one's own; what is taken is refused", func(x *executionTest) {
		ids := [3]uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		bind := func(id uuid.UUID, key string) string {
			return `{"waitpoint_id":"` + id.String() + `","waitpoint_key":"` + key + `"}`
		}
		e := x.create("")
		s := x.suspend(x.claim(lasting), `"suspension_id":"`+ids[0].String()+`",`+waitAt(onSignal("a", wildcard), bind(ids[1], "a")))
		if s.SuspensionID != ids[0] || s.Waitpoints[0].WaitpointID != ids[1] {
			x.t.Errorf("%+v", s)
		}
		other := x.create("")
		c := x.claim(lasting)
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
			return x.report(c, "suspend", waitAt(onSignal("a", wildcard), bind(ids[1], "a")))
		}, e.ID, other.ID)
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
			return x.report(c, "suspend", waitAt(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), bind(ids[2], "a"), bind(ids[2], "b")))
		}, e.ID, other.ID)
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
			return x.report(c, "suspend", `"suspension_id":"`+ids[0].String()+`",`+waitForGo)
		}, e.ID, other.ID)
		x.signalled(e.ID, s.Waitpoints[0], "")
		again := x.claim(lasting)
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
			return x.report(again, "suspend", `"suspension_id":"`+ids[0].String()+`",`+waitForGo)
		}, e.ID, other.ID)
	}},
	{"the id of a suspension that had signals is taken for everybody: they are not shown to another one", func(x *executionTest) {
		id := `"suspension_id":"` + uuid.NewString() + `",`
		e := x.create("")
		s := x.suspend(x.claim(lasting), id+waitForGo)
		x.signalled(e.ID, s.Waitpoints[0], `"payload":"secret"`)
		y := x.in("other-" + x.lane)
		other := y.create("")
		c := y.claim(lasting)
		y.refused(fault.CodeAlreadyExists, func() *apitest.Response { return y.report(c, "suspend", id+waitForGo) }, other.ID)
	}},
	{"by its fence; with another one it is refused (6.7/87)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		path := operatorPath(e.ID, "suspend")
		for name, change := range map[string]func(map[string]any){
			"lease_id": func(f map[string]any) { f["lease_id"] = uuid.New() }, "lease_epoch": func(f map[string]any) { f["lease_epoch"] = c.Fence.LeaseEpoch + 1 },
			"attempt_id": func(f map[string]any) { f["attempt_id"] = uuid.New() }, "attempt_index": func(f map[string]any) { f["attempt_index"] = 1 },
		} {
			if x.refused(fault.CodeStaleLease, func() *apitest.Response { return x.Post(path, executionJSON(fenced(c, change)+","+waitForGo)) }, e.ID); x.t.Failed() {
				x.t.Fatal(name)
			}
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post(path, executionJSON(waitForGo)) }, e.ID)
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.report(c, "suspend", fenced(c)+","+waitForGo) }, e.ID)
		x.refused(fault.CodeNotFound, func() *apitest.Response {
			return x.Post(operatorPath(uuid.New(), "suspend"), executionJSON(fenced(c)+","+waitForGo))
		}, e.ID)
		x.Post(path, executionJSON(fenced(c, func(f map[string]any) { delete(f, "attempt_index") })+","+waitForGo)).Want(http.StatusOK)
		x.stands(e.ID, atSuspended)
	}},
	{"what is not held any more is not suspended (1.8, 6.7/87, 88)", func(x *executionTest) {
		suspend := func(c oapi.Claim) func() *apitest.Response {
			return func() *apitest.Response { return x.report(c, "suspend", waitForGo) }
		}
		e, c := x.lost("")
		x.refused(fault.CodeLeaseExpired, suspend(c), e.ID)
		taken := x.claim(`"capabilities":["go","gpu"],` + lasting)
		x.refused(fault.CodeStaleLease, suspend(c), e.ID)
		x.operator(e.ID, "revoke-lease", "").Want(http.StatusOK)
		x.refused(fault.CodeLeaseRevoked, suspend(taken), e.ID)
		x.operated(e.ID, "operator-cancel", `"reason":"over"`)
		x.refused(fault.CodeExecutionNotActive, suspend(taken), e.ID)

		e = x.create("")
		c = x.claim(`"lease_ttl_ms":1000`)
		x.unswept(e.ID)
		x.server.Clock.Advance(time.Second)
		x.refused(fault.CodeLeaseExpired, suspend(c), e.ID) // before anybody has swept
		x.advance(time.Second)
		x.operated(e.ID, "operator-cancel", `"reason":"over"`)

		for _, op := range []string{"release", "complete"} {
			e = x.create("")
			c = x.claim(lasting)
			x.report(c, op, "").Want(http.StatusOK)
			x.refused(fault.CodeExecutionNotActive, suspend(c), e.ID)
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
		}

		e, c, _ = x.waitsFor(onSignal("a", wildcard), "a")
		x.refused(fault.CodeAlreadySuspended, suspend(c), e.ID) // 6.7/86, 88
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response {
			return x.Post(operatorPath(e.ID, "suspend"), executionJSON(fenced(c, func(f map[string]any) { f["attempt_id"] = uuid.New() })+","+waitForGo))
		}, e.ID)
	}},
	{"an idempotency key: the same ids and tokens, whatever the fence (6.7/86, 5/28)", func(x *executionTest) {
		const key = `,"idempotency_key":"k"`
		e := x.create("")
		c := x.claim(lasting)
		first := x.report(c, "suspend", waitForGo+key).Want(http.StatusOK)
		s := answerAs[oapi.SuspendedExecution](first)
		same := func(call func() *apitest.Response) {
			x.t.Helper()
			if again := x.unchanged(http.StatusOK, call, e.ID); !bytes.Equal(again.Body, first.Body) {
				x.t.Errorf("first %s, then %s", first.Body, again.Body)
			}
		}
		repeat := func() *apitest.Response { return x.report(c, "suspend", waitForGo+key) }
		same(repeat)
		same(func() *apitest.Response { return x.report(c, "suspend", waitOn(operatorOnly, "other")+key) })
		same(func() *apitest.Response {
			return x.Post(operatorPath(e.ID, "suspend"), executionJSON(fenced(c, func(f map[string]any) { f["lease_epoch"] = 77 })+","+waitForGo+key))
		})
		x.refused(fault.CodeAlreadySuspended, func() *apitest.Response { return x.report(c, "suspend", waitForGo) }, e.ID)
		x.refused(fault.CodeAlreadySuspended, func() *apitest.Response { return x.report(c, "suspend", waitForGo+`,"idempotency_key":"l"`) }, e.ID)
		x.signalled(e.ID, s.Waitpoints[0], "")
		same(repeat) // it has gone on since
		again := x.claim(lasting)
		same(func() *apitest.Response { return x.report(again, "suspend", waitForGo+key) })
		x.report(again, "complete", "").Want(http.StatusOK)
		same(repeat)
	}},
	{"an idempotency key is of one execution (7.1/13, 5/28)", func(x *executionTest) {
		const key = `,"idempotency_key":"k"`
		_, _, one := x.suspends("", waitForGo+key)
		_, _, two := x.suspends("", waitForGo+key)
		y := x.in("other-" + x.lane)
		_, _, three := y.suspends("", waitForGo+key)
		if one[0].Token == two[0].Token || one[0].WaitpointID == two[0].WaitpointID || three[0].Token == one[0].Token || three[0].WaitpointID == one[0].WaitpointID {
			x.t.Errorf("%v %v %v", one, two, three)
		}
	}},
	{"an idempotency key is kept a minute longer than the timeout, a week at most (2.15)", func(x *executionTest) {
		for _, row := range []struct {
			timeout string
			kept    time.Duration
		}{{`,"timeout_ms":600000,"timeout_behavior":"escalate"`, 11 * time.Minute}, {`,"timeout_ms":31536000000`, 7 * 24 * time.Hour}, {"", 7 * 24 * time.Hour}} {
			e, c, points := x.suspends("", waitForGo+row.timeout+`,"idempotency_key":"k"`)
			again := func() *apitest.Response { return x.report(c, "suspend", waitForGo+`,"idempotency_key":"k"`) }
			x.advance(row.kept - time.Second)
			if got := again().Want(http.StatusOK); got.Str("waitpoints.0.token") != points[0].Token {
				x.t.Errorf("%s", got.Body)
			}
			x.server.Clock.Advance(time.Second)
			x.refused(fault.CodeAlreadySuspended, again, e.ID)
			x.advance(0)
			if n := x.stored("suspend_keys WHERE execution_id = ?", rowID(e.ID)); n != 0 {
				x.t.Errorf("%d keys are kept", n)
			}
		}
	}},
	{"an idempotency key of a suspension whose timeout has just passed (2.15)", func(x *executionTest) {
		suspension := waitForGo + `,"idempotency_key":"k","timeout_at":` + spelled(x.server.Clock.Now().Add(-5*time.Minute))
		_, c, points := x.suspends("", suspension)
		if again := x.suspend(c, suspension); again.Waitpoints[0].Token != points[0].Token {
			x.t.Errorf("%+v", again)
		}
	}},
	{"a refusal is not kept under an idempotency key", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		x.refused(fault.CodeInvalidCondition, func() *apitest.Response {
			return x.report(c, "suspend", waitOn(timeoutOnly, "go")+`,"idempotency_key":"k"`)
		}, e.ID)
		x.suspend(c, waitForGo+`,"idempotency_key":"k"`)
		x.stands(e.ID, atSuspended)
	}},
	{"an Idempotency-Key: the same tokens, and none of them is kept (http.md)", func(x *executionTest) {
		key := "Idempotency-Key: suspend-" + x.lane
		e := x.create("")
		c := x.claim(lasting)
		prepare := func() *apitest.Response { return x.report(c, "waitpoints", `"waitpoint_key":"early"`, key+"-w") }
		made := prepare().Want(http.StatusCreated)
		suspend := func() *apitest.Response { return x.report(c, "suspend", waitForGo, key) }
		first := suspend().Want(http.StatusOK)
		for answer, call := range map[*apitest.Response]func() *apitest.Response{made: prepare, first: suspend} {
			again := x.unchanged(answer.Status, call, e.ID)
			if !bytes.Equal(again.Body, answer.Body) || again.Header.Get("Idempotent-Replay") != "true" || answer.Header.Get("Idempotent-Replay") != "" || again.Header.Get("Cache-Control") != "no-store" {
				x.t.Errorf("first %s, then %s %v", answer.Body, again.Body, again.Header)
			}
		}
		x.refused(fault.CodeIdempotencyMismatch, func() *apitest.Response { return x.report(c, "suspend", waitOn(operatorOnly, "go"), key) }, e.ID)
		x.keptNowhere(made.Str("token"), first.Str("waitpoints.0.token"))
	}},
	{"a worker that was asked to cancel has ended it (2.15; model.md, grace)", func(x *executionTest) {
		for _, prepared := range []bool{false, true} {
			e := x.create("")
			c := x.claim(lasting)
			suspension := waitForGo + `,"idempotency_key":"k"`
			if prepared {
				suspension = waitAt(onSignal("go", wildcard), usePending(x.prepared(c, "")))
			}
			x.operated(e.ID, "operator-cancel", `"reason":"no","grace_ms":60000`)
			n := len(x.events(e.ID))
			answer := x.report(c, "suspend", suspension).Want(http.StatusOK)
			if s := answerAs[oapi.SuspendedExecution](answer); s.Outcome != "cancelled" || len(s.Waitpoints) != 0 {
				x.t.Errorf("%s", answer.Body)
			}
			x.stands(e.ID, atCancelled)
			x.toldSince(e.ID, n, "execution.cancelled", "lease.revoked")
			x.nothingWaits(e.ID)
			if prepared {
				continue
			}
			if again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, "suspend", suspension) }, e.ID); !bytes.Equal(again.Body, answer.Body) {
				x.t.Errorf("first %s, then %s", answer.Body, again.Body)
			}
		}
	}},
	{"a member of a flow: its flow is cancelled, and so is it", func(x *executionTest) {
		f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		e, _, points := x.suspends(`"flow_id":"`+f+`"`, waitForGo)
		if *e.FlowID != uuid.MustParse(f) {
			x.t.Errorf("%+v", e)
		}
		x.Post("/v1/flows/"+f+"/cancel", `{"reason":"no"}`).Want(http.StatusOK)
		x.stands(e.ID, atCancelled)
		x.suspensionClosed(e.ID, "cancelled")
		x.closedAs(e.ID, points[0], "cancelled")
		x.nothingWaits(e.ID)
	}},
	{"it may be suspended again and again, in the same attempt", func(x *executionTest) {
		e := x.create("")
		for i := range 3 {
			c := x.claim(lasting)
			s := x.suspend(c, waitForGo)
			if got := x.receipt(e.ID, s.Waitpoints[0], fmt.Sprintf(`"signal_name":"n%d"`, i)); got.Effect != "resume_condition_satisfied" {
				x.t.Errorf("%+v", got)
			}
			x.observes(e.ID, []string{fmt.Sprint("n", i)}, []string{fmt.Sprint("n", i)})
		}
		if got := x.claim(lasting); got.Kind != "resumed" || got.Fence.LeaseEpoch != 4 || got.Fence.AttemptIndex != 0 {
			x.t.Errorf("%+v", got)
		}
	}},
	{"an execution has a thousand waitpoints at most", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		x.copyWaitpoint(w, 998)
		x.prepared(c, "")
		answer := x.refused(fault.CodeWaitpointLimit, func() *apitest.Response { return x.report(c, "waitpoints", `"waitpoint_key":"k"`) }, e.ID)
		if answer.Int("limit") != 1000 {
			x.t.Errorf("%s", answer.Body)
		}
		x.refused(fault.CodeWaitpointLimit, func() *apitest.Response { return x.report(c, "suspend", waitForGo) }, e.ID)
		x.suspend(c, waitAt(onSignal("go", wildcard), usePending(w)))
	}},
}

// copyWaitpoint stores n more of the like, closed ones.
func (x *executionTest) copyWaitpoint(w oapi.MintedWaitpoint, n int) {
	x.t.Helper()
	err := store.Do(x.t.Context(), x.server.App.Store(), func(tx *store.Tx) error {
		for range n {
			err := tx.ExecOne(`INSERT INTO waitpoints (id, execution_id, attempt_index, waitpoint_key, kid, state, created_at, closed_at, close_reason, signal_count)
				SELECT ?, execution_id, attempt_index, waitpoint_key, kid, 'closed', created_at, created_at, 'closed', 0 FROM waitpoints WHERE id = ?`, store.ID(uuid.New()), rowID(w.WaitpointID))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// keptNowhere looks for the secret part of tokens in every row that could have it.
func (x *executionTest) keptNowhere(tokens ...string) {
	x.t.Helper()
	var kept []string
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error {
		for _, query := range []string{`SELECT data FROM events`, `SELECT answer FROM suspend_keys`, `SELECT coalesce(suspension, '') FROM executions`, `SELECT coalesce(payload, '') FROM signals`} {
			var found []string
			if err := q.Select(&found, query); err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
			kept = append(kept, found...)
		}
		var bodies [][]byte
		if err := q.Select(&bodies, `SELECT body FROM idempotency_keys WHERE body IS NOT NULL`); err != nil {
			return err
		}
		for _, body := range bodies {
			kept = append(kept, string(body))
		}
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, token := range tokens {
		_, digest, _ := strings.Cut(token, ":")
		for _, row := range kept {
			if strings.Contains(row, digest) {
				x.t.Errorf("a token is kept in %s", row)
			}
		}
	}
}

// TestSuspend_Rules: what is refused before anything is written. executions.md 2.15, 2.16; 6.7/89, 95.
func TestSuspend_Rules(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, suspendRulesCases)
}

const bindA, bindBoth = `{"waitpoint_key":"a"}`, `{"waitpoint_key":"a"},{"waitpoint_key":"b"}`

var (
	onA, onB       = onSignal("a", wildcard), onSignal("b", wildcard)
	sixtyFiveParts = slices.Repeat([]string{onA}, 65)
)

// tooManyKeys are one more than an execution may wait at.
func tooManyKeys() []string {
	keys := make([]string, 33)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	return keys
}

func compositeOf(body string) string { return `{"Composite":{` + body + `}}` }

// suspendRules are refused before anything is written.
var suspendRules = []suspensionRow{
	{"no waitpoint", waitAt(onA), "", "/waitpoints", fault.CodeValidationFailed},
	{"a waitpoint of no key", waitAt(onA, `{}`), "", "/waitpoints/0/waitpoint_key", fault.CodeValidationFailed},
	{"a pending one with a key", waitAt(onA, `{"use_pending":"`+uuid.NewString()+`","waitpoint_key":"a"}`), "", "/waitpoints/0/use_pending", fault.CodeValidationFailed},
	{"a pending one with an approval", waitAt(onA, `{"use_pending":"`+uuid.NewString()+`","approval":{"title":"x"}}`), "", "/waitpoints/0/use_pending", fault.CodeValidationFailed},
	{"the condition is of another waitpoint", waitAt(onB, bindA), "waitpoint_key_mismatch", "/resume_condition/Single/waitpoint_key", ""},
	{"the condition is of the second waitpoint alone", waitAt(onB, bindBoth), "extra_binding_not_referenced_by_condition", "/waitpoints/0", ""},
	{"the same key twice", waitAt(onA, bindA, bindA), "waitpoint_key_twice", "/waitpoints/1/waitpoint_key", ""},
	{"a key that nothing is bound to", waitAt(everyOf(onA, onB, onSignal("c", wildcard)), bindBoth), "referenced_waitpoint_key_missing_binding", "/resume_condition", ""},
	{"a key that nothing is bound to, of one", waitAt(everyOf(onA, onB), bindA), "referenced_waitpoint_key_missing_binding", "/resume_condition", ""},
	{"a waitpoint that nothing names", waitAt(everyOf(onA), bindBoth), "extra_binding_not_referenced_by_condition", "/waitpoints/1", ""},
	{"two waitpoints for nobody", waitAt(operatorOnly, bindBoth), "extra_binding_not_referenced_by_condition", "/waitpoints/0", ""},
	{"pending beside another", waitAt(everyOf(onA, onB), bindA, `{"use_pending":"`+uuid.NewString()+`"}`), "additional_waitpoint_binding_must_be_fresh", "/waitpoints/1", ""},
	{"another beside pending", waitAt(everyOf(onA, onB), `{"use_pending":"`+uuid.NewString()+`"}`, bindA), "additional_waitpoint_binding_must_be_fresh", "/waitpoints/0", ""},
	{"for a timeout without one", waitAt(timeoutOnly, bindA), "timeout_only_without_deadline", "/resume_condition", ""},
	{"a name that is empty", waitAt(onSignal("a", `{"ByName":""}`), bindA), "empty_signal_name", "/resume_condition/Single/matcher/ByName", ""},
	{"a name that is empty, inside", waitAt(everyOf(onA, onSignal("a", `{"ByName":""}`)), bindA), "empty_signal_name", "/resume_condition/Composite/members/1/Single/matcher/ByName", ""},
	{"a name that is empty, of a count", waitAt(countOf(1, "Signals", `{"ByName":""}`, "a"), bindA), "empty_signal_name", "/resume_condition/Composite/matcher/ByName", ""},
	{"AllOf of nothing", waitAt(everyOf(), bindA), "allof_empty_members", "/resume_condition/Composite/members", ""},
	{"AllOf of nothing, inside", waitAt(everyOf(onA, everyOf()), bindA), "allof_empty_members", "/resume_condition/Composite/members/1/Composite/members", ""},
	{"a count of none", waitAt(countOf(0, "Signals", "", "a"), bindA), "count_n_zero", "/resume_condition/Composite/n", ""},
	{"a count of less than none", waitAt(countOf(-1, "Signals", "", "a"), bindA), "count_n_zero", "/resume_condition/Composite/n", ""},
	{"a count of too many", waitAt(countOf(1001, "Signals", "", "a"), bindA), "count_n_too_large", "/resume_condition/Composite/n", ""},
	{"a count on nothing", waitAt(countOf(1, "Signals", ""), bindA), "count_waitpoints_empty", "/resume_condition/Composite/waitpoints", ""},
	{"a count on too many", waitAt(countOf(1, "Signals", "", tooManyKeys()...), bindA), "count_waitpoints_too_many", "/resume_condition/Composite/waitpoints", ""},
	{"more distinct waitpoints than there are", waitAt(countOf(3, "Waitpoints", "", "a", "b"), bindBoth), "count_exceeds_waitpoint_set", "/resume_condition/Composite/n", ""},
	{"a count on the same twice", waitAt(countOf(1, "Signals", "", "a", "a"), bindA), "count_waitpoint_twice", "/resume_condition/Composite/waitpoints/1", ""},
	{"a count of another kind", waitAt(countOf(1, "Moods", "", "a"), bindA), "unknown_count_kind", "/resume_condition/Composite/count_kind", ""},
	{"five composites in one another", waitAt(nested(5, onA), bindA), "too_deep", "/resume_condition" + strings.Repeat("/Composite/members/0", 4) + "/Composite", ""},
	{"four composites around a count", waitAt(nested(4, countOf(1, "Signals", "", "a")), bindA), "too_deep", "/resume_condition" + strings.Repeat("/Composite/members/0", 4) + "/Composite", ""},
	{"65 parts", waitAt(everyOf(sixtyFiveParts...), bindA), "too_many_parts", "/resume_condition/Composite/members/64/Single", ""},
	{"another word", waitAt(`"Whenever"`, bindA), "unknown_condition", "/resume_condition", ""},
	{"another tag", waitAt(`{"AnyOf":[]}`, bindA), "unknown_condition", "/resume_condition", ""},
	{"two tags", waitAt(`{"Single":{"waitpoint_key":"a","matcher":"Wildcard"},"Composite":{}}`, bindA), "unknown_condition", "/resume_condition", ""},
	{"a number", waitAt(`1`, bindA), "unknown_condition", "/resume_condition", ""},
	{"null", waitAt(`null`, bindA), "", "/resume_condition", ""},
	{"another composite", waitAt(compositeOf(`"kind":"AnyOf","members":[`+onA+`]`), bindA), "unknown_composite", "/resume_condition/Composite/kind", ""},
	{"a count with members", waitAt(compositeOf(`"kind":"Count","n":1,"count_kind":"DistinctSignals","waitpoints":["a"],"members":[`+onA+`]`), bindA), "unknown_composite", "/resume_condition/Composite/kind", ""},
	{"another matcher", waitAt(onSignal("a", `"Any"`), bindA), "unknown_matcher", "/resume_condition/Single/matcher", ""},
	{"a member too many", waitAt(`{"Single":{"waitpoint_key":"a","matcher":"Wildcard","x":1}}`, bindA), "malformed", "/resume_condition/Single/x", ""},
	{"approvals that are counted twice", waitAt(onA, `{"waitpoint_key":"a","approval":{"title":"Deploy","min_approvals":2}}`), "min_approvals_with_condition", "/resume_condition", ""},
	{"an approval that is too large", waitAt("", `{"waitpoint_key":"a","approval":{"title":"Deploy","payload":"`+strings.Repeat("x", 64<<10)+`"}}`), "", "/waitpoints/0/approval", fault.CodePayloadTooLarge},
	{"no matcher", waitAt(`{"Single":{"waitpoint_key":"a"}}`, bindA), "matcher_missing", "/resume_condition/Single/matcher", ""},
	{"no key", waitAt(`{"Single":{"matcher":"Wildcard"}}`, bindA), "waitpoint_key_missing", "/resume_condition/Single/waitpoint_key", ""},
	{"no condition", waitAt("", bindA), "", "/resume_condition", fault.CodeValidationFailed},
	{"no condition for two, of which one asks", waitAt("", `{"waitpoint_key":"a","approval":{"title":"x"}}`, `{"waitpoint_key":"b"}`), "", "/resume_condition", fault.CodeValidationFailed},
	{"two timeouts", waitAt(onA, bindA) + `,"timeout_ms":1,"timeout_at":"2099-01-01T00:00:00Z"`, "", "/timeout_ms", fault.CodeValidationFailed},
	{"a timeout long ago", waitAt(onA, bindA) + `,"timeout_at":"2001-01-01T00:00:00Z"`, "timeout_at_in_past", "/timeout_at", fault.CodeTimerOutOfRange},
	{"a timeout of no time", waitAt(onA, bindA) + `,"timeout_ms":0`, "", "/timeout_ms", fault.CodeValidationFailed},
	{"another target", waitAt(onA, bindA) + `,"resume_policy":{"resume_target":"Moon"}`, "", "/resume_policy/resume_target", fault.CodeValidationFailed},
}

var suspendRulesCases = []executionCase{
	{"each rule, by its name (6.7/89, 95)", func(x *executionTest) {
		x.create("")
		x.refuses(x.t, x.claim(lasting), suspendRules)
	}},
	{"too many waitpoints", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		x.ruled(fault.CodeValidationFailed, "", "/waitpoints", func() *apitest.Response { return x.report(c, "suspend", waitOn(onA, tooManyKeys()...)) }, e.ID)
		if s := x.suspend(c, waitOn(countOf(32, "Waitpoints", "", tooManyKeys()[:32]...), tooManyKeys()[:32]...)); len(s.Waitpoints) != 32 {
			x.t.Errorf("%+v", s)
		}
	}},
	{"what is as it should be (6.7/95)", func(x *executionTest) {
		for name, members := range map[string]string{
			"four composites": waitAt(nested(4, onA), bindA), "three around a count": waitAt(nested(3, countOf(1, "Sources", "", "a")), bindA), "n beyond the list": waitAt(countOf(1000, "Signals", "", "a"), bindA),
			"sources beyond the list": waitAt(countOf(3, "Sources", byName("x"), "a", "b"), bindBoth), "64 parts": waitAt(everyOf(sixtyFiveParts[:64]...), bindA),
			"for a timeout that there is": waitAt(timeoutOnly, bindA) + `,"timeout_ms":1000`, "for nobody": waitAt(operatorOnly, bindA), "a matcher that is null": waitAt(countOf(1, "Signals", "null", "a"), bindA),
			"a timeout of ten minutes ago": waitAt(onA, bindA) + `,"timeout_at":` + spelled(x.server.Clock.Now().Add(-10*time.Minute+time.Second)),
			"a timeout in a year":          waitAt(onA, bindA) + `,"timeout_at":` + spelled(x.server.Clock.Now().Add(365*24*time.Hour-time.Second)),
		} {
			e := x.create("")
			if answer := x.report(x.claim(lasting), "suspend", members); answer.Status != http.StatusOK {
				x.t.Errorf("%s: %s", name, answer.Body)
			}
			x.stands(e.ID, atSuspended)
		}
	}},
	{"a timeout eleven minutes ago, and one beyond a year (2.15)", func(x *executionTest) {
		x.create("")
		c := x.claim(lasting)
		now := x.server.Clock.Now()
		for _, at := range []time.Time{now.Add(-10*time.Minute - time.Second), now.Add(366 * 24 * time.Hour)} {
			x.refuses(x.t, c, []suspensionRow{{at.String(), waitAt(onA, bindA) + `,"timeout_at":` + spelled(at), "timeout_at_in_past", "/timeout_at", fault.CodeTimerOutOfRange}})
		}
	}},
	{"the fence is looked at after the arguments, and both before anything is written", func(x *executionTest) {
		e, c, _ := x.waitsFor(onA, "a")
		x.ruled(fault.CodeInvalidCondition, "timeout_only_without_deadline", "/resume_condition", func() *apitest.Response { return x.report(c, "suspend", waitAt(timeoutOnly, bindA)) }, e.ID)
	}},
	{"another namespace's execution is not there", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		y := x.in("other-" + x.lane)
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return y.report(c, "suspend", waitForGo) },
			func() *apitest.Response { return y.report(c, "waitpoints", `"waitpoint_key":"k"`) },
			func() *apitest.Response { return y.Get(operatorPath(e.ID, "waitpoints")) },
			func() *apitest.Response { return y.Get(operatorPath(e.ID, "signals")) },
		} {
			x.refused(fault.CodeNotFound, call, e.ID)
		}
	}},
}
