package app_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Where an execution stands, beside those of the harness of executions. executions.md 1.11.
const (
	atPutOff          = "runnable unowned not_eligible_until_time waiting_for_delay none attempt_interrupted delayed"
	atResumeDelay     = "runnable unowned not_eligible_until_time waiting_for_resume_delay none attempt_interrupted delayed"
	atChildren        = "runnable unowned blocked_by_dependencies waiting_for_children none attempt_interrupted waiting_children"
	atRevoked         = "active lease_revoked not_applicable waiting_for_worker none attempt_interrupted active"
	atSuspended       = "suspended unowned not_applicable waiting_for_signal none attempt_interrupted suspended"
	atCancelled       = "terminal unowned not_applicable none cancelled attempt_terminal cancelled"
	atCancelledIdle   = "terminal unowned not_applicable none cancelled pending_first_attempt cancelled"
	atReplay          = "runnable unowned eligible_now waiting_for_worker none pending_replay_attempt waiting"
	atPaused          = "runnable unowned blocked_by_lane_state paused_by_policy none pending_first_attempt waiting"
	atReplayPaused    = "runnable unowned blocked_by_lane_state paused_by_policy none pending_replay_attempt waiting"
	atCancelledReplay = "terminal unowned not_applicable none cancelled pending_replay_attempt cancelled"
)

// operatorPath is the path of an operator's call.
func operatorPath(id uuid.UUID, op string) string { return "/v1/executions/" + id.String() + "/" + op }

// operator makes an operator's call.
func (x *executionTest) operator(id uuid.UUID, op, members string, headers ...string) *apitest.Response {
	x.t.Helper()
	if op == "priority" {
		return x.Do(http.MethodPut, operatorPath(id, op), executionJSON(members), headers...)
	}
	return x.Post(operatorPath(id, op), executionJSON(members), headers...)
}

// operated makes an operator's call that succeeds, and checks that it is answered with the execution as it is then.
func (x *executionTest) operated(id uuid.UUID, op, members string) oapi.Execution {
	x.t.Helper()
	answer := x.operator(id, op, members).Want(http.StatusOK)
	got, now := answerAs[oapi.Operated](answer).Execution, x.get(id)
	if diff := cmp.Diff(now, got); diff != "" || answer.ETag() != etagOf(now.Revision) {
		x.t.Errorf("%s: ETag %s; answered and read differ:\n%s", op, answer.ETag(), diff)
	}
	return got
}

func etagOf(revision int64) string {
	document, _ := json.Marshal(revision) // a number
	return `"` + string(document) + `"`
}

// since returns an execution's events after the first n.
func (x *executionTest) since(id uuid.UUID, n int) []oapi.Event {
	x.t.Helper()
	return x.events(id)[n:]
}

// toldSince checks the types of an execution's events after the first n.
func (x *executionTest) toldSince(id uuid.UUID, n int, want ...string) []oapi.Event {
	x.t.Helper()
	events := x.since(id, n)
	var got []string
	for _, e := range events {
		got = append(got, e.Type)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("events of %s (-want +got):\n%s", id, diff)
	}
	return events
}

// eventData returns what an event tells.
func eventData(t *testing.T, e oapi.Event) map[string]any {
	t.Helper()
	return fromDocument[map[string]any](t, string(e.Data))
}

// sameTime says whether an event tells of a time.
func sameTime(told any, at *oapi.Time) bool {
	text, _ := told.(string)
	t, err := time.Parse(time.RFC3339, text)
	return err == nil && t.Equal(at.Time())
}

// leaseEnds checks that the events after the first n tell of the end of the lease once, and why.
func (x *executionTest) leaseEnds(id uuid.UUID, n int, eventType, reason string) {
	x.t.Helper()
	ends := 0
	for _, e := range x.since(id, n) {
		if e.Topic != "lease" {
			continue
		}
		ends++
		if got := eventData(x.t, e)["reason"]; e.Type != eventType || got != reason {
			x.t.Errorf("%s because of %v, want %s because of %s", e.Type, got, eventType, reason)
		}
	}
	if ends != 1 {
		x.t.Errorf("%d events tell of the end of the lease", ends)
	}
}

// suspended makes an execution that is suspended.
func (x *executionTest) suspended(members string) (oapi.Execution, oapi.Claim) {
	x.t.Helper()
	e := x.create(members)
	c := x.claim(lasting)
	x.report(c, "suspend", waitForGo).Want(http.StatusOK)
	return x.stands(e.ID, atSuspended), c
}

// waitForGo is what a suspension waits for that any signal at its waitpoint ends.
const waitForGo = `"reason_code":"waiting_for_signal","waitpoints":[{"waitpoint_key":"go"}],"resume_condition":{"Single":{"waitpoint_key":"go","matcher":"Wildcard"}}`

// operatorPhase is a place where an execution can stand, and how it comes there.
type operatorPhase struct {
	name, at  string
	attempted bool // it has an attempt
	owned     bool // somebody has a lease on it, good or lost
	make      func(x *executionTest) (uuid.UUID, oapi.Claim)
	gave      string // the call by which its last owner gave it back
}

// operatorPhases are all the places where an execution that has not ended can stand, with the last claim of it.
func operatorPhases() []operatorPhase {
	claimed := func(after func(x *executionTest, c oapi.Claim)) func(x *executionTest) (uuid.UUID, oapi.Claim) {
		return func(x *executionTest) (uuid.UUID, oapi.Claim) {
			x.t.Helper()
			e := x.create(retryPolicy(3))
			c := x.claim(`"lease_ttl_ms":60000`)
			after(x, c)
			return e.ID, c
		}
	}
	created := func(members string) func(x *executionTest) (uuid.UUID, oapi.Claim) {
		return func(x *executionTest) (uuid.UUID, oapi.Claim) { return x.create(members).ID, oapi.Claim{} }
	}
	reported := func(op, members string) func(x *executionTest) (uuid.UUID, oapi.Claim) {
		return claimed(func(x *executionTest, c oapi.Claim) { x.report(c, op, members).Want(http.StatusOK) })
	}
	return []operatorPhase{
		{"waiting", atWaiting, false, false, created(""), ""},
		{"delayed", atDelayed, false, false, created(`"delay_ms":3600000`), ""},
		{"reserved", atWaiting, false, false, func(x *executionTest) (uuid.UUID, oapi.Claim) {
			x.t.Helper()
			e := x.create("")
			x.reserve("").Want(http.StatusOK)
			return e.ID, oapi.Claim{}
		}, ""},
		{"paused by its flow", atPaused, false, false, func(x *executionTest) (uuid.UUID, oapi.Claim) {
			x.t.Helper()
			f := x.Post("/v1/flows", `{"goal":"x"}`).Want(http.StatusCreated).Str("id")
			return x.create(`"flow_id":"` + f + `"`).ID, oapi.Claim{}
		}, ""},
		{"active", atActive, true, true, claimed(func(*executionTest, oapi.Claim) {}), ""},
		{"lost", atLost, true, true, claimed(func(x *executionTest, _ oapi.Claim) { x.advance(time.Minute) }), ""},
		{"revoked", atRevoked, true, true, claimed(func(x *executionTest, c oapi.Claim) {
			x.operator(c.Execution.ID, "revoke-lease", "").Want(http.StatusOK)
		}), ""},
		{"given back", atReleased, true, false, reported("release", ""), "release"},
		{"put off", atPutOff, true, false, reported("delay", `"delay_ms":3600000`), "delay"},
		{"waiting for its children", atChildren, true, false, reported("wait-children", ""), "wait-children"},
		{"to be retried later", atBackoff, true, false, reported("fail", `"reason":"boom"`), "fail"},
		{"to be retried", atRetry, true, false, reported("fail", `"reason":"boom","retry_after_ms":0`), "fail"},
		{"suspended", atSuspended, true, false, func(x *executionTest) (uuid.UUID, oapi.Claim) {
			x.t.Helper()
			e, c := x.suspended("")
			return e.ID, c
		}, ""},
		{"resumed, later", atResumeDelay, true, false, func(x *executionTest) (uuid.UUID, oapi.Claim) {
			x.t.Helper()
			e, c := x.suspended("")
			x.operated(e.ID, "resume", `"resume_delay_ms":3600000`)
			return e.ID, c
		}, ""},
	}
}

// inEachPhase runs check on an execution in each of the places of [operatorPhases], each in a lane of its own.
func (x *executionTest) inEachPhase(check func(y *executionTest, p operatorPhase, id uuid.UUID, c oapi.Claim)) {
	x.t.Helper()
	for i, p := range operatorPhases() {
		y := x.on(string(rune('a' + i)))
		id, c := p.make(y)
		if p.name == "to be retried" {
			y.advance(0)
		}
		y.stands(id, p.at)
		check(y, p, id, c)
		if x.t.Failed() {
			x.t.Fatalf("that was one that is %s", p.name)
		}
	}
}

// ended makes an execution that has ended in each way, with the last claim of it.
func (x *executionTest) ended(outcome, members string) (oapi.Execution, oapi.Claim) {
	x.t.Helper()
	if outcome == "expired" {
		members = executionMembers(members, `"deadline_at":`+spelled(x.server.Clock.Now().Add(20*time.Minute)))
	}
	e := x.create(members)
	c := x.claim(lasting)
	if c.Execution.ID != e.ID {
		x.t.Fatalf("%s stood before %s", c.Execution.ID, e.ID)
	}
	switch outcome {
	case "completed":
		x.report(c, "complete", `"result":{"n":1}`).Want(http.StatusOK)
	case "failed":
		x.report(c, "fail", `"reason":"boom","category":"permanent"`).Want(http.StatusOK)
	case "cancelled":
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
	case "expired":
		x.advance(20 * time.Minute)
	}
	e = x.get(e.ID)
	if string(e.PublicState) != outcome {
		x.t.Fatalf("it is %s, not %s", e.PublicState, outcome)
	}
	return e, c
}

// terminals are the public states of what has ended by itself.
var terminals = []string{"completed", "failed", "cancelled", "expired"}

// as returns the same case by somebody with a token of this role, and the actor that this is.
func (x *executionTest) as(role, name string) (y *executionTest, actor string) {
	x.t.Helper()
	made := x.Post("/v1/admin/tokens", `{"name":"`+name+`","role":"`+role+`"}`).Want(http.StatusCreated)
	other := *x
	other.Client = x.As(made.Str("token"))
	return &other, "token:" + name
}
