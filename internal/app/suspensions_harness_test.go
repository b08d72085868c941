package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Conditions as clients write them.

const (
	wildcard     = `"Wildcard"`
	operatorOnly = `"OperatorOnly"`
	timeoutOnly  = `"TimeoutOnly"`
)

// quoted returns a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string
	return string(b)
}

// byName is a matcher of signals with one name.
func byName(name string) string { return `{"ByName":` + quoted(name) + `}` }

// onSignal waits for one signal on a waitpoint.
func onSignal(key, matcher string) string {
	return `{"Single":{"waitpoint_key":` + quoted(key) + `,"matcher":` + matcher + `}}`
}

// everyOf waits for each of its members.
func everyOf(members ...string) string {
	return `{"Composite":{"kind":"AllOf","members":[` + strings.Join(members, ",") + `]}}`
}

// countOf waits for n signals on some waitpoints that differ in something. An empty matcher is none.
func countOf(n int, distinct, matcher string, keys ...string) string {
	if matcher != "" {
		matcher = `,"matcher":` + matcher
	}
	list, _ := json.Marshal(append([]string{}, keys...)) // strings
	return fmt.Sprintf(`{"Composite":{"kind":"Count","n":%d,"count_kind":"Distinct%s"%s,"waitpoints":%s}}`, n, distinct, matcher, list)
}

// nested is a condition of so many composites in one another.
func nested(depth int, leaf string) string {
	for range depth {
		leaf = everyOf(leaf)
	}
	return leaf
}

// waitOn is the body of a suspension on new waitpoints with these keys.
func waitOn(condition string, keys ...string) string {
	points := make([]string, len(keys))
	for i, key := range keys {
		points[i] = `{"waitpoint_key":` + quoted(key) + `}`
	}
	return waitAt(condition, points...)
}

// waitAt is the body of a suspension on waitpoints as they are bound.
func waitAt(condition string, bindings ...string) string {
	if condition != "" {
		condition = `,"resume_condition":` + condition
	}
	return `"reason_code":"waiting_for_signal","waitpoints":[` + strings.Join(bindings, ",") + `]` + condition
}

// usePending binds a waitpoint that was made before.
func usePending(w oapi.MintedWaitpoint) string {
	return `{"use_pending":"` + w.WaitpointID.String() + `"}`
}

// waitsFor makes an execution that waits for a condition on waitpoints with these keys.
func (x *executionTest) waitsFor(condition string, keys ...string) (oapi.Execution, oapi.Claim, []oapi.MintedWaitpoint) {
	x.t.Helper()
	return x.suspends("", waitOn(condition, keys...))
}

// suspends makes an execution of these members, and suspends it. What stands before it, as other parts of a case have left it, is
// ended.
func (x *executionTest) suspends(members, suspension string) (oapi.Execution, oapi.Claim, []oapi.MintedWaitpoint) {
	x.t.Helper()
	e := x.create(members)
	c := x.claim(lasting)
	for c.Execution.ID != e.ID {
		x.report(c, "complete", "").Want(http.StatusOK)
		c = x.claim(lasting)
	}
	s := x.suspend(c, suspension)
	if s.Outcome != "suspended" {
		x.t.Fatalf("%+v", s)
	}
	return x.get(e.ID), c, s.Waitpoints
}

// prepared makes a waitpoint that is not suspended on yet.
func (x *executionTest) prepared(c oapi.Claim, members string) oapi.MintedWaitpoint {
	x.t.Helper()
	if !strings.Contains(members, `"waitpoint_key":`) {
		members = executionMembers(members, `"waitpoint_key":"go"`)
	}
	return answerAs[oapi.MintedWaitpoint](x.report(c, "waitpoints", members).Want(http.StatusCreated))
}

// receipt sends a signal that is taken.
func (x *executionTest) receipt(id uuid.UUID, w oapi.MintedWaitpoint, members string) oapi.SignalReceipt {
	x.t.Helper()
	return answerAs[oapi.SignalReceipt](x.signal(id, w, members).Want(http.StatusOK))
}

// effects sends signals one after the other, "key members", and checks what each did.
func (x *executionTest) effects(id uuid.UUID, points []oapi.MintedWaitpoint, signals ...[2]string) {
	x.t.Helper()
	for i, s := range signals {
		key, members, _ := strings.Cut(s[0], " ")
		for _, w := range points {
			if w.WaitpointKey != key {
				continue
			}
			if got := x.signalled(id, w, members); string(got) != s[1] {
				x.t.Errorf("signal %d, %s: %s, want %s", i+1, s[0], got, s[1])
			}
		}
	}
}

// decide approves or rejects, as whoever x is.
func (x *executionTest) decide(id, waitpoint uuid.UUID, members string) *apitest.Response {
	x.t.Helper()
	return x.Post(operatorPath(id, "approvals"), executionJSON(members, `"waitpoint_id":"`+waitpoint.String()+`"`, `"decision":"approved"`))
}

// waitpoints lists the open waitpoints of an execution.
func (x *executionTest) waitpoints(id uuid.UUID) []oapi.Waitpoint {
	x.t.Helper()
	return answerAs[oapi.WaitpointList](x.Get(operatorPath(id, "waitpoints?limit=500")).Want(http.StatusOK)).Items
}

// closedAs checks that a waitpoint is closed, and why: closing it again tells, and changes nothing.
func (x *executionTest) closedAs(id uuid.UUID, w oapi.MintedWaitpoint, reason string) oapi.Waitpoint {
	x.t.Helper()
	answer := x.unchanged(http.StatusOK, func() *apitest.Response { return x.Post(tokenPath(id, w, "close"), `{"reason":"again"}`) }, id)
	got := answerAs[oapi.Waitpoint](answer)
	if got.State != "closed" || got.CloseReason == nil || *got.CloseReason != reason || got.ClosedAt == nil {
		x.t.Errorf("waitpoint %s is %s, want closed as %s", w.WaitpointKey, answer.Body, reason)
	}
	return got
}

// tokenPath is a path of a waitpoint.
func tokenPath(id uuid.UUID, w oapi.MintedWaitpoint, part string) string {
	return operatorPath(id, "waitpoints/"+w.WaitpointID.String()+"/"+part)
}

// came lists what came to an execution's suspension.
func (x *executionTest) came(id uuid.UUID, query string) []oapi.Signal {
	x.t.Helper()
	return answerAs[oapi.SignalList](x.Get(operatorPath(id, "signals"+query)).Want(http.StatusOK)).Items
}

// observes checks the names of the signals that counted, and of all that came.
func (x *executionTest) observes(id uuid.UUID, counted, all []string) {
	x.t.Helper()
	for query, want := range map[string][]string{"": counted, "?all=true": all} {
		var got []string
		for _, s := range x.came(id, query) {
			got = append(got, s.SignalName)
		}
		if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
			x.t.Errorf("signals%s (-want +got):\n%s", query, diff)
		}
	}
}

// ruled checks that a call is refused by a rule, at a place of the body, and changes nothing.
func (x *executionTest) ruled(code fault.Code, rule, pointer string, call func() *apitest.Response, ids ...uuid.UUID) {
	x.t.Helper()
	answer := x.refused(code, call, ids...)
	if got := answer.JSON()["rule"]; rule != "" && got != rule {
		x.t.Errorf("the rule is %v, want %s: %s", got, rule, answer.Body)
	}
	if fields := answer.Fields(); len(fields) != 1 || fields[0].Pointer != pointer || fields[0].In != fault.InBody {
		x.t.Errorf("it points at %+v, want %s", fields, pointer)
	}
}

// resumedBy checks the only event after the first n that tells of going on.
func (x *executionTest) resumedBy(id uuid.UUID, n int, by, state string) {
	x.t.Helper()
	found := 0
	for _, e := range x.since(id, n) {
		if e.Type != "execution.resumed" {
			continue
		}
		found++
		if data := eventData(x.t, e); data["by"] != by || data["public_state"] != state {
			x.t.Errorf("%s, want by %s, %s", e.Data, by, state)
		}
	}
	if found != 1 {
		x.t.Errorf("%d events tell that it goes on", found)
	}
}

// suspensionClosed checks how the last suspension of an execution ended, and returns it.
func (x *executionTest) suspensionClosed(id uuid.UUID, reason string) *oapi.Suspension {
	x.t.Helper()
	s := x.get(id).Suspension
	if s == nil || s.CloseReason == nil || *s.CloseReason != reason || s.ClosedAt == nil {
		x.t.Fatalf("the suspension is %+v, want closed as %s", s, reason)
	}
	return s
}

// nothingWaits checks that no wait is stored for an execution, and that no open waitpoint is.
func (x *executionTest) nothingWaits(id uuid.UUID) {
	x.t.Helper()
	for _, from := range []string{"waits WHERE execution_id = ?", "waitpoints WHERE state = 'active' AND execution_id = ?"} {
		if n := x.stored(from, rowID(id)); n != 0 {
			x.t.Errorf("%d rows of %s", n, from)
		}
	}
}

// stored counts rows.
func (x *executionTest) stored(from string, args ...any) (n int) {
	x.t.Helper()
	err := x.server.App.Store().Read(x.t.Context(), func(q *store.Queries) error { return q.Get(&n, "SELECT count(*) FROM "+from, args...) })
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// equateEmpty takes a list that is empty for one that is not there.
var equateEmpty = cmpopts.EquateEmpty()

// suspensionRow is a suspension that is refused, and why.
type suspensionRow struct {
	name, members, rule, pointer string
	code                         fault.Code
}

// refuses sends each row as a suspension of what c holds.
func (x *executionTest) refuses(t *testing.T, c oapi.Claim, rows []suspensionRow) {
	t.Helper()
	for _, row := range rows {
		code := row.code
		if code == "" {
			code = fault.CodeInvalidCondition
		}
		x.ruled(code, row.rule, row.pointer, func() *apitest.Response { return x.report(c, "suspend", row.members) }, c.Execution.ID)
		if t.Failed() {
			t.Fatalf("that was: %s", row.name)
		}
	}
}
