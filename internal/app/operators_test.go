package app_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// operatorAct is a call of an operator that does something to an execution in some phase.
type operatorAct struct {
	op, members string
	phase       string   // of [operatorPhases], or what it has ended as
	events      []string // the first is that of the operator
}

var operatorActs = []operatorAct{
	{"operator-cancel", `"reason":"no"`, "waiting", []string{"operator.cancelled", "execution.cancelled"}},
	{"operator-cancel", `"reason":"no"`, "active", []string{"operator.cancelled", "execution.cancelled", "lease.revoked"}},
	{"operator-cancel", `"reason":"no"`, "lost", []string{"operator.cancelled", "execution.cancelled", "lease.revoked"}},
	{"operator-cancel", `"reason":"no","grace_ms":1000`, "active", []string{"operator.cancelled", "execution.cancelling"}},
	{"revoke-lease", ``, "active", []string{"operator.lease_revoked", "lease.revoked"}},
	{"priority", `"priority":7`, "waiting", []string{"operator.priority_changed"}},
	{"replay", ``, "completed", []string{"operator.replayed", "execution.eligible"}},
	{"resume", ``, "waiting for its children", []string{"operator.resumed", "execution.eligible"}},
	{"resume", `"resume_delay_ms":1000`, "suspended", []string{"operator.resumed", "execution.resumed"}},
	{"operator-claim", ``, "waiting", []string{"operator.claimed", "lease.acquired"}},
	{"complete", `"override":true`, "active", []string{"operator.reported", "execution.completed", "lease.revoked"}},
	{"fail", `"override":true,"reason":"x"`, "active", []string{"operator.reported", "lease.revoked", "execution.delayed"}},
	{"delay", `"override":true,"delay_ms":1000`, "active", []string{"operator.reported", "lease.revoked", "execution.delayed"}},
	{"wait-children", `"override":true`, "active", []string{"operator.reported", "lease.revoked", "execution.blocked"}},
}

// conditional says whether the act is one that is made on a revision.
func (a operatorAct) conditional() bool {
	return !strings.Contains(a.members, "override") && a.op != "operator-claim"
}

// ready makes an execution that the act does something to.
func (a operatorAct) ready(x *executionTest) uuid.UUID {
	x.t.Helper()
	for _, p := range operatorPhases() {
		if p.name == a.phase {
			id, _ := p.make(x)
			return id
		}
	}
	e, _ := x.ended(a.phase, "")
	return e.ID
}

// TestOperators: what all acts of operators have in common. http.md "CAS" and "Event types"; model.md "Every mutation".
func TestOperators(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsCases)
}

var operatorsCases = []executionCase{
	{"each act is told by one operator event, the first, which causes the rest (6.6/72, 77, 78)", func(x *executionTest) {
		by, actor := x.as("operator", "op-"+x.lane)
		for _, act := range operatorActs {
			id := act.ready(x)
			n, revision := len(x.events(id)), x.get(id).Revision
			by.operator(id, act.op, act.members).Want(http.StatusOK)
			events := x.toldSince(id, n, act.events...)
			for i, e := range events {
				if e.Actor != actor || (e.Topic == "operator") != (i == 0) || *e.Revision != revision+1 {
					x.t.Errorf("%s: %s by %s at revision %d", act.op, e.Type, e.Actor, *e.Revision)
				}
				if i == 0 && e.Cause != nil || i > 0 && (e.Cause == nil || *e.Cause != events[0].ID) {
					x.t.Errorf("%s: the cause of %s is %v", act.op, e.Type, e.Cause)
				}
			}
			if e := x.get(id); e.Revision != revision+1 {
				x.t.Errorf("%s: revision %d after %d", act.op, e.Revision, revision)
			}
			x.operator(id, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"an act on another revision is refused, on the right one done", func(x *executionTest) {
		for _, act := range operatorActs {
			if !act.conditional() {
				continue
			}
			id := act.ready(x)
			revision := x.get(id).Revision
			for _, headers := range [][]string{{ifMatch(revision + 1)}, {ifMatch(revision - 1)}, {`If-Match: W/` + etagOf(revision+7)}} {
				if headers[0] == ifMatch(-1) {
					continue
				}
				answer := x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.operator(id, act.op, act.members, headers...) }, id)
				if answer.Int("actual") != revision || answer.Int("expected") == revision {
					x.t.Errorf("%s: %s", act.op, answer.Body)
				}
			}
			wrong := act.op + "?revision=" + strings.Trim(etagOf(revision+1), `"`)
			call := func(op string, headers ...string) *apitest.Response {
				if act.op == "priority" {
					return x.Do(http.MethodPut, operatorPath(id, op), executionJSON(act.members), headers...)
				}
				return x.Post(operatorPath(id, op), executionJSON(act.members), headers...)
			}
			x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return call(wrong) }, id)
			if answer := call(act.op, ifMatch(revision)).Want(http.StatusOK); answer.ETag() != etagOf(revision+1) {
				x.t.Errorf("%s: ETag %s after revision %d", act.op, answer.ETag(), revision)
			}
			x.operator(id, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"what would change nothing, and what is refused, is measured by its revision first", func(x *executionTest) {
		e, _ := x.ended("cancelled", "")
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response {
			return x.operator(e.ID, "operator-cancel", `"reason":"again"`, ifMatch(e.Revision+1))
		}, e.ID)
		for _, op := range []string{"revoke-lease", "resume"} {
			x.refused(fault.CodeRevisionMismatch, func() *apitest.Response { return x.operator(e.ID, op, "", ifMatch(e.Revision+1)) }, e.ID)
		}
		x.refused(fault.CodeRevisionMismatch, func() *apitest.Response {
			return x.operator(e.ID, "priority", `"priority":1`, ifMatch(e.Revision+1))
		}, e.ID)
	}},
	{"what is not there, and what is no id (6.6/73, 79, 80; 6.8/118)", func(x *executionTest) {
		for _, act := range operatorActs {
			missing := x.refused(fault.CodeNotFound, func() *apitest.Response { return x.operator(uuid.New(), act.op, act.members) })
			if missing.Str("resource") != "execution" {
				x.t.Errorf("%s: %s", act.op, missing.Body)
			}
			for _, id := range []string{"7", "{fp:-1}:" + uuid.NewString(), "-1"} {
				path := "/v1/executions/" + url.PathEscape(id) + "/" + act.op
				method := map[bool]string{true: http.MethodPut, false: http.MethodPost}[act.op == "priority"]
				x.refused(fault.CodeInvalidParameter, func() *apitest.Response { return x.Do(method, path, executionJSON(act.members)) })
			}
		}
	}},
	{"another namespace's execution is not there, for any of the calls", func(x *executionTest) {
		theirs := x.in("theirs-" + x.lane)
		for _, act := range operatorActs {
			id := act.ready(x)
			x.refused(fault.CodeNotFound, func() *apitest.Response { return theirs.operator(id, act.op, act.members) }, id)
			x.operator(id, "operator-cancel", `"reason":"over"`)
		}
		e := x.create(`"tags":{"a.b":"c"}`)
		c := x.claim(`"lease_ttl_ms":60000`)
		ttl := `"worker_id":"w1","worker_instance_id":"w1","grant_ttl_ms":1000`
		use := `"worker_id":"w1","worker_instance_id":"w1","grant_id":"` + uuid.NewString() + `"`
		for _, call := range []func() *apitest.Response{
			func() *apitest.Response { return theirs.report(c, "delay", `"delay_ms":1`) },
			func() *apitest.Response { return theirs.report(c, "wait-children", "") },
			func() *apitest.Response { return theirs.report(c, "cancel", "") },
			func() *apitest.Response { return theirs.by(e.ID, "claim", use) },
			func() *apitest.Response { return theirs.by(e.ID, "reclaim-grants", ttl) },
			func() *apitest.Response { return theirs.by(e.ID, "reclaim", use) },
			func() *apitest.Response { return theirs.Get(operatorPath(e.ID, "explain")) },
			func() *apitest.Response { return theirs.Get(operatorPath(e.ID, "tags")) },
			func() *apitest.Response { return theirs.Get(operatorPath(e.ID, "tags/a.b")) },
			func() *apitest.Response {
				return theirs.Do(http.MethodPut, operatorPath(e.ID, "tags/a.b"), `{"value":"x"}`)
			},
		} {
			if answer := x.refused(fault.CodeNotFound, call, e.ID); answer.Str("resource") != "execution" {
				x.t.Errorf("%s", answer.Body)
			}
		}
		x.advance(time.Minute)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return theirs.by(e.ID, "reclaim-grants", ttl) }, e.ID)
	}},
	{"no body, and an empty one, where all is optional", func(x *executionTest) {
		for _, act := range []operatorAct{{op: "revoke-lease", phase: "active"}, {op: "replay", phase: "failed"}, {op: "resume", phase: "waiting for its children"}, {op: "operator-claim", phase: "waiting"}} {
			for _, body := range []any{nil, "", "{}"} {
				id := act.ready(x)
				x.Post(operatorPath(id, act.op), body).Want(http.StatusOK)
				x.operator(id, "operator-cancel", `"reason":"over"`)
			}
		}
	}},
}

// TestOperators_Cancel: executions.md 2.11 and 6.6/72 to 75; model.md "Cancel of a leased execution".
func TestOperators_Cancel(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsCancelCases)
}

var operatorsCancelCases = []executionCase{
	{"from every phase (6.6/72, 75; 5/17)", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, c oapi.Claim) {
			before, n := x.get(id), len(x.events(id))
			got := x.operated(id, "operator-cancel", `"reason":"superseded"`)
			at := atCancelled
			if !p.attempted {
				at = atCancelledIdle
			}
			x.stands(id, at)
			want := before
			want.StateVector, want.PublicState, want.BlockingReason, want.BlockingDetail = got.StateVector, "cancelled", "none", ""
			if s := before.Suspension; s != nil && s.ClosedAt == nil {
				closed := *s
				closed.ClosedAt, closed.CloseReason = got.CompletedAt, new("cancelled")
				want.Suspension = &closed
			}
			want.CurrentLease, want.DelayUntil, want.Revision, want.CompletedAt = nil, nil, before.Revision+1, got.CompletedAt
			want.Cancellation = &oapi.ExecutionCancellation{Reason: "superseded", Actor: "local", RequestedAt: *got.CompletedAt}
			if diff := cmp.Diff(want, got); diff != "" || got.CompletedAt == nil {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			events := []string{"operator.cancelled", "execution.cancelled"}
			if p.owned {
				events = append(events, "lease.revoked")
				x.leaseEnds(id, n, "lease.revoked", "cancelled")
			}
			told := x.toldSince(id, n, events...)
			if data := eventData(x.t, told[1]); data["outcome"] != "cancelled" || data["reason"] != "superseded" || (data["attempt_index"] != nil) != p.attempted {
				x.t.Errorf("%s", told[1].Data)
			}
			attempts := x.attempts(id)
			if p.attempted && (len(attempts) != 1 || attempts[0].State == "started" || attempts[0].State == "suspended" || attempts[0].EndedAt == nil) {
				x.t.Errorf("%+v", attempts)
			}
			if p.owned && attempts[0].State != "ended_cancelled" {
				x.t.Errorf("the attempt of a holder %s", attempts[0].State)
			}
			if p.attempted {
				for _, call := range workerCalls { // the epoch has grown: what is late is refused, and told why
					if call.op == p.gave { // what had been done before is answered again
						again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, call.op, call.members) }, id)
						if again.Get("replayed") != true || again.Str("execution.public_state") != "cancelled" {
							x.t.Errorf("%s", again.Body)
						}
						continue
					}
					answer := x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, id)
					if answer.Int("lease_epoch") <= c.Fence.LeaseEpoch || answer.Str("terminal_outcome") != "cancelled" {
						x.t.Errorf("%s", answer.Body)
					}
				}
			}
			x.advance(2 * time.Hour)
			x.stands(id, at)
			x.none("")
		})
	}},
	{"twice: the first reason stays (6.6/73)", func(x *executionTest) {
		for _, act := range []operatorAct{{phase: "waiting"}, {phase: "active"}} {
			id := act.ready(x)
			x.operated(id, "operator-cancel", `"reason":"first"`)
			for _, members := range []string{`"reason":"first"`, `"reason":"second"`, `"reason":"third","grace_ms":60000`} {
				again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(id, "operator-cancel", members) }, id)
				if again.Str("execution.cancellation.reason") != "first" {
					x.t.Errorf("%s", again.Body)
				}
			}
		}
	}},
	{"what its worker cancelled is cancelled already", func(x *executionTest) {
		e := x.create("")
		x.report(x.claim(""), "cancel", `"reason":"mine"`).Want(http.StatusOK)
		again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(e.ID, "operator-cancel", `"reason":"ours"`) }, e.ID)
		if again.Str("execution.cancellation.reason") != "mine" {
			x.t.Errorf("%s", again.Body)
		}
	}},
	{"what has ended otherwise is refused (6.6/73)", func(x *executionTest) {
		for _, outcome := range []string{"completed", "failed", "expired"} {
			e, _ := x.ended(outcome, "")
			for _, members := range []string{`"reason":"late"`, `"reason":"late","grace_ms":1000`} {
				answer := x.refused(fault.CodeAlreadyTerminal, func() *apitest.Response { return x.operator(e.ID, "operator-cancel", members) }, e.ID)
				if answer.Str("public_state") != outcome {
					x.t.Errorf("%s", answer.Body)
				}
			}
		}
	}},
	{"many at once: one does it, all are answered (6.6/74)", func(x *executionTest) {
		for _, act := range []operatorAct{{phase: "waiting"}, {phase: "active"}, {phase: "suspended"}} {
			id := act.ready(x)
			n := len(x.events(id))
			reasons := []string{"a", "b", "c", "d", "e", "f"}
			kept := x.Get("/v1/executions/" + id.String()).Want(http.StatusOK).Int("revision")
			for _, answer := range atOnce(len(reasons), func(i int) *apitest.Response {
				return x.operator(id, "operator-cancel", `"reason":"`+reasons[i]+`"`)
			}) {
				if answer.Want(http.StatusOK).Str("execution.cancellation.reason") != x.get(id).Cancellation.Reason || answer.Int("execution.revision") != kept+1 {
					x.t.Errorf("%s", answer.Body)
				}
			}
			cancels := 0
			for _, e := range x.since(id, n) {
				if e.Type == "execution.cancelled" || e.Type == "operator.cancelled" {
					cancels++
				}
			}
			if cancels != 2 {
				x.t.Errorf("%d events tell of it", cancels)
			}
		}
	}},
	{"against the worker that completes it: one of them", func(x *executionTest) {
		for range 5 {
			e := x.create("")
			c := x.claim(lasting)
			answers := atOnce(2, func(i int) *apitest.Response {
				if i == 0 {
					return x.report(c, "complete", "")
				}
				return x.operator(e.ID, "operator-cancel", `"reason":"no"`)
			})
			if x.get(e.ID).PublicState == "completed" {
				answers[0].Want(http.StatusOK)
				answers[1].Problem(fault.CodeAlreadyTerminal)
				x.told(e.ID, "execution.created", "lease.acquired", "execution.completed", "lease.revoked")
			} else {
				answers[0].Problem(fault.CodeExecutionNotActive)
				answers[1].Want(http.StatusOK)
				x.told(e.ID, "execution.created", "lease.acquired", "operator.cancelled", "execution.cancelled", "lease.revoked")
			}
		}
	}},
	{"a reservation goes with it", func(x *executionTest) {
		e := x.create("")
		g := x.reserved("")
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.refused(fault.CodeExecutionNotLeaseable, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.operated(e.ID, "replay", "")
		x.refused(fault.CodeInvalidClaimGrant, func() *apitest.Response { return x.use(g, "claim", "") }, e.ID)
		x.claim("")
		lost := x.on("lost")
		l := lost.create("")
		lost.claim(`"lease_ttl_ms":1000`)
		lost.advance(time.Second)
		g = lost.reservedLost(l.ID, "")
		lost.operated(l.ID, "operator-cancel", `"reason":"no"`)
		x.refused(fault.CodeNotReclaimable, func() *apitest.Response { return lost.use(g, "reclaim", "") }, l.ID)
	}},
}

// TestOperators_Grace: an operator asks the worker to end it. rules of model.md "Execution", "With grace_ms".
func TestOperators_Grace(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, operatorsGraceCases)
}

const askedToEnd = `"reason":"superseded","grace_ms":600000`

var operatorsGraceCases = []executionCase{
	{"its worker is told in every answer, and nobody else", func(x *executionTest) {
		other := x.on("other")
		other.create("")
		held := other.claim(lasting)
		c, n := x.cancelling("", lasting)
		for _, call := range workerCalls[:2] {
			if answer := x.report(c, call.op, call.members).Want(http.StatusOK); answer.Len("directives") != 1 || answer.Str("directives.0") != "cancel" {
				x.t.Errorf("%s: %s", call.op, answer.Body)
			}
			if answer := x.report(held, call.op, call.members).Want(http.StatusOK); answer.Len("directives") != 0 {
				x.t.Errorf("%s: %s", call.op, answer.Body)
			}
		}
		answer := x.report(c, "cancel", `"reason":"as asked"`).Want(http.StatusOK)
		if answer.Len("directives") != 0 || answer.Get("replayed") != false {
			x.t.Errorf("%s", answer.Body)
		}
		x.leaseEnds(c.Execution.ID, n+2, "lease.revoked", "cancelled")
		if e := x.stands(c.Execution.ID, atCancelled); e.Cancellation.Reason != "superseded" {
			x.t.Errorf("%+v", e.Cancellation)
		}
	}},
	{"complete ends it as completed", func(x *executionTest) {
		for _, call := range []func(c oapi.Claim) *apitest.Response{
			func(c oapi.Claim) *apitest.Response { return x.report(c, "complete", `"result":1`) },
			func(c oapi.Claim) *apitest.Response { return x.by(c.Execution.ID, "complete", `"override":true`) },
			func(c oapi.Claim) *apitest.Response {
				return x.Post("/v1/completions", `{"items":[`+completionItem(c, "")+`]}`)
			},
		} {
			c, n := x.cancelling("", lasting)
			call(c).Want(http.StatusOK)
			if e := x.stands(c.Execution.ID, atCompleted); e.Cancellation != nil {
				x.t.Errorf("%+v", e.Cancellation)
			}
			x.leaseEnds(c.Execution.ID, n, "lease.revoked", "completed")
			x.advance(20 * time.Minute)
			x.stands(c.Execution.ID, atCompleted)
		}
	}},
	{"whatever else its worker does ends it as cancelled, and is answered again", func(x *executionTest) {
		for op, members := range map[string]string{
			"fail": `"reason":"boom","category":"transient","retry_after_ms":0`, "release": "", "delay": `"delay_ms":1000`, "wait-children": "", "cancel": `"reason":"mine"`,
		} {
			c, n := x.cancelling(retryPolicy(3), lasting)
			answer := x.report(c, op, members).Want(http.StatusOK)
			if answer.Str("execution.public_state") != "cancelled" || answer.Get("replayed") != false || op == "fail" && answer.Str("outcome") != "cancelled" {
				x.t.Errorf("%s: %s", op, answer.Body)
			}
			x.endedAsAsked(c, n)
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.report(c, op, members) }, c.Execution.ID)
			if again.Get("replayed") != true || op == "fail" && again.Str("outcome") != "cancelled" {
				x.t.Errorf("%s: %s", op, again.Body)
			}
			for _, call := range workerCalls {
				if call.op != op {
					x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, call.op, call.members) }, c.Execution.ID)
				}
			}
		}
		c, n := x.cancelling(retryPolicy(3), lasting)
		x.Post("/v1/completions", `{"items":[`+completionItem(c, `"fail":{"reason":"boom"}`)+`]}`).Want(http.StatusOK)
		x.endedAsAsked(c, n)
	}},
	{"an operator in place of its worker, too", func(x *executionTest) {
		for op, members := range map[string]string{"fail": `"reason":"boom"`, "delay": `"delay_ms":1000`, "wait-children": ""} {
			c, n := x.cancelling(retryPolicy(3), lasting)
			x.by(c.Execution.ID, op, executionMembers(members, `"override":true`)).Want(http.StatusOK)
			x.endedAsAsked(c, n)
		}
	}},
	{"the lease runs out", func(x *executionTest) {
		c, n := x.cancelling(retryPolicy(3), `"lease_ttl_ms":60000`)
		x.advance(time.Minute)
		x.endedAsAsked(c, n)
	}},
	{"the attempt takes too long", func(x *executionTest) {
		c, n := x.cancelling(`"policy":{"timeout_policy":{"attempt_timeout_ms":120000},"retry_policy":{"max_retries":3}}`, lasting)
		x.advance(2 * time.Minute)
		x.endedAsAsked(c, n)
	}},
	{"its deadline comes", func(x *executionTest) {
		c, n := x.cancelling(`"deadline_at":`+spelled(x.server.Clock.Now().Add(2*time.Minute)), lasting)
		x.advance(2 * time.Minute)
		x.endedAsAsked(c, n)
	}},
	{"the lease is revoked", func(x *executionTest) {
		c, n := x.cancelling(retryPolicy(3), lasting)
		if answer := x.operator(c.Execution.ID, "revoke-lease", "").Want(http.StatusOK); answer.Str("outcome") != "revoked" {
			x.t.Errorf("%s", answer.Body)
		}
		x.endedAsAsked(c, n)
	}},
	{"the grace is over", func(x *executionTest) {
		c, n := x.cancelling(retryPolicy(3), lasting)
		x.advance(9 * time.Minute)
		x.report(c, "progress", `"pct":5`).Want(http.StatusOK)
		x.stands(c.Execution.ID, atActive)
		x.advance(time.Minute)
		x.endedAsAsked(c, n)
		answer := x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "cancel", "") }, c.Execution.ID)
		if answer.Int("lease_epoch") != 2 { // fenced off, as by a cancel at once
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"a renewed lease does not outlive the grace", func(x *executionTest) {
		c, n := x.cancelling("", lasting)
		x.report(c, "renew", `"lease_ttl_ms":86400000`).Want(http.StatusOK)
		x.advance(10 * time.Minute)
		x.endedAsAsked(c, n+1)
	}},
	{"again: without a grace it ends at once, by whom and why stays", func(x *executionTest) {
		c, n := x.cancelling("", lasting)
		second, _ := x.as("operator", "second-"+x.lane)
		second.operator(c.Execution.ID, "operator-cancel", `"reason":"now"`).Want(http.StatusOK)
		x.endedAsAsked(c, n)
		x.toldSince(c.Execution.ID, n, "operator.cancelled", "execution.cancelled", "lease.revoked")
		x.refused(fault.CodeExecutionNotActive, func() *apitest.Response { return x.report(c, "complete", "") }, c.Execution.ID)
	}},
	{"again: a grace that ends earlier shortens it, another changes nothing", func(x *executionTest) {
		c, n := x.cancelling("", lasting)
		id := c.Execution.ID
		for _, members := range []string{`"reason":"later","grace_ms":3600000`, `"reason":"same","grace_ms":600000`, askedToEnd} {
			x.unchanged(http.StatusOK, func() *apitest.Response { return x.operator(id, "operator-cancel", members) }, id)
		}
		first := x.get(id)
		got := x.operated(id, "operator-cancel", `"reason":"sooner","grace_ms":60000`)
		by := got.Cancellation
		if by.Reason != "superseded" || !by.RequestedAt.Equal(first.Cancellation.RequestedAt) || got.Revision != first.Revision+1 ||
			!by.DeadlineAt.Time().Before(first.Cancellation.RequestedAt.Time().Add(2*time.Minute)) {
			x.t.Errorf("%+v", by)
		}
		x.toldSince(id, n, "operator.cancelled", "execution.cancelling")
		x.advance(time.Minute)
		x.endedAsAsked(c, n)
	}},
	{"what nobody holds ends at once, whatever the grace", func(x *executionTest) {
		x.inEachPhase(func(x *executionTest, p operatorPhase, id uuid.UUID, _ oapi.Claim) {
			got := x.operated(id, "operator-cancel", askedToEnd)
			if ends := p.name != "active"; (got.PublicState == "cancelled") != ends || (got.Cancellation.DeadlineAt == nil) != ends {
				x.t.Errorf("%s, %+v", got.PublicState, got.Cancellation)
			}
		})
	}},
	{"a lease that has run out and was not marked yet holds nothing", func(x *executionTest) {
		e := x.create("")
		x.claim("")
		x.unswept(e.ID)
		x.server.Clock.Advance(30 * time.Second)
		if got := x.operated(e.ID, "operator-cancel", askedToEnd); got.PublicState != "cancelled" {
			x.t.Errorf("%+v", got)
		}
	}},
	{"none and a zero grace are the same", func(x *executionTest) {
		e := x.create("")
		x.claim(lasting)
		x.operated(e.ID, "operator-cancel", `"reason":"no","grace_ms":0`)
		x.stands(e.ID, atCancelled)
		e = x.create("")
		x.claim(lasting)
		x.refused(fault.CodeValidationFailed, func() *apitest.Response {
			return x.operator(e.ID, "operator-cancel", `"reason":"no","grace_ms":86400001`)
		}, e.ID)
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.operator(e.ID, "operator-cancel", `"reason":""`) }, e.ID)
		x.operated(e.ID, "operator-cancel", `"reason":"no","grace_ms":86400000`)
	}},
	{"replayed, nothing is left of it", func(x *executionTest) {
		c, _ := x.cancelling("", lasting)
		x.report(c, "cancel", "").Want(http.StatusOK)
		x.operated(c.Execution.ID, "replay", "")
		again := x.claim(lasting)
		if answer := x.report(again, "progress", `"pct":1`).Want(http.StatusOK); answer.Len("directives") != 0 || again.Execution.Cancellation != nil {
			x.t.Errorf("%s", answer.Body)
		}
		x.advance(20 * time.Minute)
		x.stands(c.Execution.ID, atActive)
	}},
}

// cancelling makes an execution whose worker has been asked to end it within ten minutes.
func (x *executionTest) cancelling(members, lease string) (oapi.Claim, int) {
	x.t.Helper()
	e := x.create(members)
	c := x.claim(lease)
	n := len(x.events(e.ID))
	before := x.server.Clock.Now()
	got := x.operated(e.ID, "operator-cancel", askedToEnd)
	x.stands(e.ID, atActive)
	if by := got.Cancellation; by == nil || by.Reason != "superseded" || by.Actor != "local" || by.DeadlineAt == nil || by.DeadlineAt.Time().Sub(by.RequestedAt.Time()) != 10*time.Minute ||
		by.RequestedAt.Time().Before(before.Add(-time.Second)) || got.CompletedAt != nil || got.CurrentLease == nil {
		x.t.Fatalf("%+v", got.Cancellation)
	}
	events := x.toldSince(e.ID, n, "operator.cancelled", "execution.cancelling")
	if data := eventData(x.t, events[1]); data["reason"] != "superseded" || !sameTime(data["deadline_at"], got.Cancellation.DeadlineAt) || eventData(x.t, events[0])["grace_ms"] != 600000.0 {
		x.t.Errorf("%s %s", events[0].Data, events[1].Data)
	}
	return c, n + 2
}

// endedAsAsked checks that it has ended as the operator wished.
func (x *executionTest) endedAsAsked(c oapi.Claim, n int) {
	x.t.Helper()
	x.advance(0)
	e := x.stands(c.Execution.ID, atCancelled)
	if e.Cancellation == nil || e.Cancellation.Reason != "superseded" || e.Cancellation.Actor != "local" || e.CompletedAt == nil {
		x.t.Errorf("%+v", e.Cancellation)
	}
	x.leaseEnds(e.ID, n, "lease.revoked", "cancelled")
	completions := 0
	for _, event := range x.since(e.ID, n) {
		if event.Topic == "completion" {
			completions++
			if data := eventData(x.t, event); event.Type != "execution.cancelled" || data["reason"] != "superseded" {
				x.t.Errorf("%s %s", event.Type, event.Data)
			}
		}
	}
	if attempts := x.attempts(e.ID); completions != 1 || attempts[len(attempts)-1].EndedAt == nil {
		x.t.Errorf("%d completions, %+v", completions, attempts)
	}
	x.none("")
}

// unswept keeps the sweeper from an execution, so that what is due stays due.
func (x *executionTest) unswept(id uuid.UUID) {
	x.t.Helper()
	x.tamper(`UPDATE executions SET due_at = NULL WHERE id = ?`, rowID(id))
}
