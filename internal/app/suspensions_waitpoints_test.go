package app_test

import (
	"bytes"
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

// TestWaitpoints: lists of waitpoints, their tokens, and closing them. executions.md 2.14, 2.17; 6.7/104.
func TestWaitpoints(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, waitpointsCases)
}

var waitpointsCases = []executionCase{
	{"none of what never had one, 404 of what is not there (6.7/104)", func(x *executionTest) {
		if list := x.waitpoints(x.create("").ID); len(list) != 0 {
			x.t.Errorf("%+v", list)
		}
		answer := x.Get(operatorPath(uuid.New(), "waitpoints")).Problem(fault.CodeNotFound)
		if answer.Str("resource") != "execution" {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"every field, and never a token (6.7/104)", func(x *executionTest) {
		e, _, points := x.suspends("", waitAt(everyOf(onSignal("a", byName("x")), onSignal("b", wildcard), onSignal("c", byName("y")), onSignal("c", byName("z")), onSignal("c", byName("y"))),
			`{"waitpoint_key":"a"}`, `{"waitpoint_key":"b"}`, `{"waitpoint_key":"c","approval":{"title":"Deploy","prompt":"Really?","payload":{"n":1},"allow_requester":false,"requested_by":"ci"}}`)+`,"timeout_ms":60000`)
		x.signalled(e.ID, points[0], `"signal_name":"x"`)
		answer := x.Get(operatorPath(e.ID, "waitpoints")).Want(http.StatusOK)
		suspension := x.get(e.ID).Suspension
		var want []oapi.Waitpoint
		for i, names := range [][]string{{"x"}, nil, {"y", "z"}} {
			kid, digest, _ := strings.Cut(points[i].Token, ":")
			w := oapi.Waitpoint{WaitpointID: points[i].WaitpointID, WaitpointKey: string("abc"[i]), ExecutionID: e.ID, SuspensionID: &suspension.SuspensionID, State: "active", RequiredSignalNames: names,
				TokenKid: &kid, TokenFingerprint: new(digest[:16]), SignalCount: 0, CreatedAt: suspension.Since, ActivatedAt: &suspension.Since, ExpiresAt: suspension.TimeoutAt}
			if i == 0 {
				w.SignalCount = 1
			}
			if i == 2 {
				w.Approval = &oapi.Approval{Title: "Deploy", Prompt: new("Really?"), Payload: oapi.Document(`{"n":1}`), MinApprovals: new(int32(1)), AllowRequester: new(false), RequestedBy: new("ci")}
			}
			want = append(want, w)
		}
		if diff := cmp.Diff(want, answerAs[oapi.WaitpointList](answer).Items, equateEmpty); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for _, w := range points {
			if bytes.Contains(answer.Body, []byte(w.Token)) || bytes.Contains(answer.Body, []byte(w.Token[strings.Index(w.Token, ":")+1:])) {
				x.t.Errorf("the list has a token: %s", answer.Body)
			}
		}
		for _, w := range points[1:] {
			x.Post(tokenPath(e.ID, w, "close"), nil).Want(http.StatusOK)
		}
		if list := x.waitpoints(e.ID); len(list) != 1 || list[0].WaitpointKey != "a" { // 6.7/104, closed filtered
			x.t.Errorf("%+v", list)
		}
	}},
	{"the names that are waited for (2.16; 6.7/104)", func(x *executionTest) {
		for condition, want := range map[string][]string{
			onSignal("a", wildcard): nil, onSignal("a", byName("x")): {"x"}, operatorOnly: {"__operator_only__"}, timeoutOnly: {"__timeout_only__"},
			everyOf(onSignal("a", byName("x")), operatorOnly, onSignal("a", byName("x"))): {"x", "__operator_only__"}, countOf(2, "Signals", byName("y"), "a"): {"y"}, countOf(2, "Signals", "", "a"): nil,
		} {
			e, _, _ := x.suspends("", waitOn(condition, "a")+`,"timeout_ms":60000`)
			list := x.waitpoints(e.ID)
			if diff := cmp.Diff(want, list[0].RequiredSignalNames, equateEmpty); diff != "" {
				x.t.Errorf("%s (-want +got):\n%s", condition, diff)
			}
		}
	}},
	{"by pages, pending ones beside active ones (6.7/104)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		var want []string
		for i := range 3 {
			want = append(want, x.prepared(c, fmt.Sprintf(`"waitpoint_key":"p%d"`, i)).WaitpointID.String())
		}
		for _, w := range x.suspend(c, waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")).Waitpoints {
			want = append(want, w.WaitpointID.String())
		}
		var got []string
		sizes := x.paged(operatorPath(e.ID, "waitpoints?limit=2"), func(answer *apitest.Response) int {
			items := answerAs[oapi.WaitpointList](answer).Items
			for _, w := range items {
				got = append(got, w.WaitpointID.String())
			}
			return len(items)
		})
		if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(sizes) != "[2 2 1]" {
			x.t.Errorf("%v (-want +got):\n%s", sizes, diff)
		}
		x.refused(fault.CodeInvalidCursor, func() *apitest.Response { return x.Get(operatorPath(e.ID, "waitpoints?cursor=AAAA")) })
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		if list := x.waitpoints(e.ID); len(list) != 0 { // what has ended has none
			x.t.Errorf("%+v", list)
		}
	}},
	{"the token of one that is open, and of no other (6.7/104)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		pending := x.prepared(c, "")
		active := x.suspend(c, waitForGo).Waitpoints[0]
		for _, w := range []oapi.MintedWaitpoint{pending, active} {
			answer := x.Get(tokenPath(e.ID, w, "token")).Want(http.StatusOK)
			want := oapi.WaitpointToken{WaitpointID: w.WaitpointID, Token: w.Token, ApproveURL: w.ApproveURL}
			if diff := cmp.Diff(want, answerAs[oapi.WaitpointToken](answer)); diff != "" || answer.Header.Get("Cache-Control") != "no-store" {
				x.t.Errorf("%v (-want +got):\n%s", answer.Header, diff)
			}
		}
		missing := func(id uuid.UUID, w oapi.MintedWaitpoint, resource string, y *executionTest) {
			x.t.Helper()
			answer := y.refused(fault.CodeNotFound, func() *apitest.Response { return y.Get(tokenPath(id, w, "token")) })
			if answer.Str("resource") != resource || answer.Header.Get("Cache-Control") != "no-store" || bytes.Contains(answer.Body, []byte(w.Token)) {
				x.t.Errorf("%v %s", answer.Header, answer.Body)
			}
		}
		other := x.create("")
		missing(other.ID, active, "waitpoint", x)
		missing(uuid.New(), active, "execution", x)
		missing(e.ID, oapi.MintedWaitpoint{WaitpointID: uuid.New(), Token: "k1:none"}, "waitpoint", x)
		missing(e.ID, active, "execution", x.in("other-"+x.lane))
		x.Post(tokenPath(e.ID, pending, "close"), nil).Want(http.StatusOK)
		missing(e.ID, pending, "waitpoint", x)
		x.signalled(e.ID, active, "")
		missing(e.ID, active, "waitpoint", x)
	}},
	{"closed: by who holds the execution, or by an operator; by nobody else (2.14)", func(x *executionTest) {
		worker, _ := x.as("worker", "w-"+x.lane)
		viewer, _ := x.as("viewer", "v-"+x.lane)
		operator, _ := x.as("operator", "o-"+x.lane)
		e := x.create("")
		c := worker.claim(lasting)
		one, two := worker.prepared(c, ""), worker.prepared(c, "")
		closeAs := func(y *executionTest, w oapi.MintedWaitpoint, members string) func() *apitest.Response {
			return func() *apitest.Response { return y.Post(tokenPath(e.ID, w, "close"), executionJSON(members)) }
		}
		for _, y := range []*executionTest{worker, viewer} {
			if answer := x.refused(fault.CodeForbidden, closeAs(y, one, ""), e.ID); y == worker && answer.Str("required_role") != "operator" {
				x.t.Errorf("%s", answer.Body)
			}
		}
		x.refused(fault.CodeStaleLease, closeAs(worker, one, fenced(c, func(f map[string]any) { f["lease_epoch"] = 9 })), e.ID)
		x.refused(fault.CodeStaleLease, closeAs(operator, one, fenced(c, func(f map[string]any) { f["lease_epoch"] = 9 })), e.ID) // who sends a proof is held to it
		x.refused(fault.CodeNotFound, closeAs(operator, oapi.MintedWaitpoint{WaitpointID: uuid.New()}, ""), e.ID)
		n := len(x.events(e.ID))
		closeAs(worker, one, fenced(c))().Want(http.StatusOK)
		closeAs(operator, two, `"reason":"wrong address"`)().Want(http.StatusOK)
		events := x.toldSince(e.ID, n, "waitpoint.closed", "waitpoint.closed")
		for i, reason := range []string{"closed", "wrong address"} {
			if data := eventData(x.t, events[i]); data["reason"] != reason {
				x.t.Errorf("%s", events[i].Data)
			}
		}
		x.closedAs(e.ID, one, "closed")
		x.closedAs(e.ID, two, "wrong address")
		x.unchanged(http.StatusOK, closeAs(worker, one, fenced(c)), e.ID)
		s := worker.suspend(c, waitForGo)
		x.refused(fault.CodeExecutionNotActive, closeAs(worker, s.Waitpoints[0], fenced(c)), e.ID)
	}},
	{"a suspension whose only waitpoint is closed waits for its timeout, or for an operator (2.14)", func(x *executionTest) {
		for _, end := range []string{"timeout", "operator"} {
			e, _, points := x.suspends("", waitForGo+`,"timeout_ms":60000,"timeout_behavior":"auto_resume"`)
			x.Post(tokenPath(e.ID, points[0], "close"), nil).Want(http.StatusOK)
			x.stands(e.ID, atSuspended)
			x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, points[0], "") }, e.ID)
			if end == "operator" {
				x.operated(e.ID, "resume", "")
			}
			x.advance(time.Minute)
			x.stands(e.ID, atReleased)
			x.closedAs(e.ID, points[0], "closed") // as it was
		}
	}},
	{"an Idempotency-Key of closing (http.md)", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo)
		call := func() *apitest.Response {
			return x.Post(tokenPath(e.ID, points[0], "close"), nil, "Idempotency-Key: close-"+x.lane)
		}
		first := call().Want(http.StatusOK)
		if again := x.unchanged(http.StatusOK, call, e.ID); !bytes.Equal(first.Body, again.Body) {
			x.t.Errorf("first %s, then %s", first.Body, again.Body)
		}
	}},
	{"a token opens one waitpoint, and what is wrong with another is not told (2.13; 5/26; 6.7/93, 100, 101, 104)", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b"))
		other, _, others := x.suspends("", waitForGo)
		terminal, _, terminalPoints := x.suspends("", waitForGo)
		x.operated(terminal.ID, "operator-cancel", `"reason":"no"`)
		closed, _, closedPoints := x.suspends("", waitForGo+`,"resume_policy":{"close_waitpoint_on_resume":true}`)
		x.signalled(closed.ID, closedPoints[0], "")
		good := points[0]
		digest := good.Token[strings.Index(good.Token, ":")+1:]
		kid := strings.TrimSuffix(good.Token, ":"+digest)
		send := func(id, waitpoint uuid.UUID, token string) *apitest.Response {
			return x.refused(fault.CodeInvalidToken, func() *apitest.Response {
				return x.Post(operatorPath(id, "signals"), fmt.Sprintf(`{"waitpoint_id":"%s","token":%s,"signal_name":"go"}`, waitpoint, quoted(token)))
			}, e.ID, other.ID, closed.ID, terminal.ID)
		}
		want := ""
		for name, answer := range map[string]*apitest.Response{
			"another digit": send(e.ID, good.WaitpointID, flipped(good.Token, len(good.Token)-1)), "another first digit": send(e.ID, good.WaitpointID, flipped(good.Token, len(kid)+1)),
			"of another waitpoint": send(e.ID, good.WaitpointID, points[1].Token), "of another execution": send(e.ID, good.WaitpointID, others[0].Token),
			"another execution's waitpoint, with its token": send(e.ID, others[0].WaitpointID, others[0].Token), "a waitpoint that is not there": send(e.ID, uuid.New(), good.Token),
			"an unknown kid": send(e.ID, good.WaitpointID, "k2"+":"+digest), "no kid": send(e.ID, good.WaitpointID, ":"+digest), "no colon": send(e.ID, good.WaitpointID, digest), "two colons": send(e.ID, good.WaitpointID, good.Token+":"),
			"cut": send(e.ID, good.WaitpointID, good.Token[:len(good.Token)-1]), "longer": send(e.ID, good.WaitpointID, good.Token+"0"), "in capitals": send(e.ID, good.WaitpointID, kid+":"+strings.ToUpper(digest + "a")[:64]),
			"empty": send(e.ID, good.WaitpointID, ""), "of something else": send(e.ID, good.WaitpointID, "fa_whatever"), "a space": send(e.ID, good.WaitpointID, " "+good.Token),
			"of a closed one, wrong": send(closed.ID, closedPoints[0].WaitpointID, flipped(closedPoints[0].Token, 70%len(closedPoints[0].Token))), "of one that has ended, wrong": send(terminal.ID, terminalPoints[0].WaitpointID, good.Token),
			"of one that has ended, empty": send(terminal.ID, terminalPoints[0].WaitpointID, ""), "the link in place of the token": send(e.ID, good.WaitpointID, good.ApproveURL[strings.LastIndex(good.ApproveURL, "/")+1:]),
		} {
			problem := answer.JSON()
			delete(problem, "request_id")
			problem["instance"] = "-"
			got := fmt.Sprint(answer.Status, problem)
			if want == "" {
				want = got
			}
			if got != want || strings.Contains(string(answer.Body), digest) {
				x.t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { // 6.7/93
			return x.Post(operatorPath(e.ID, "signals"), fmt.Sprintf(`{"waitpoint_id":"%s","signal_name":"go"}`, good.WaitpointID))
		}, e.ID)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.signal(uuid.New(), good, "") }, e.ID)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.in("other-"+x.lane).signal(e.ID, good, "") }, e.ID)
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(closed.ID, closedPoints[0], "") }, closed.ID)
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(terminal.ID, terminalPoints[0], "") }, terminal.ID)
		x.effects(e.ID, points, [2]string{"a ", appended}, [2]string{"b ", resumes})
	}},
	{"each single character of a token matters (5/26)", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo)
		token := points[0].Token
		before := x.snapshot(e.ID)
		for i := range token {
			wrong := points[0]
			wrong.Token = flipped(token, i)
			x.signal(e.ID, wrong, "").Problem(fault.CodeInvalidToken)
		}
		if diff := cmp.Diff(before, x.snapshot(e.ID)); diff != "" {
			x.t.Errorf("something was changed (-before +after):\n%s", diff)
		}
		x.signalled(e.ID, points[0], "")
	}},
}

// flipped returns a token with another character at i.
func flipped(token string, i int) string {
	b := []byte(token)
	if b[i] == '0' {
		b[i] = '1'
	} else {
		b[i] = '0'
	}
	return string(b)
}

// TestApprovals: what people decide, and what is shown to them. executions.md 2.17 (deliver_approval_signal); 6.7/105.
func TestApprovals(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, approvalsCases)
}

var approvalsCases = []executionCase{
	{"approved, or rejected: either lets it go on, and tells which (6.7/105)", func(x *executionTest) {
		for _, decision := range []string{"approved", "rejected"} {
			by, actor := x.as("operator", decision+"-"+x.lane)
			e, _, points := x.suspends("", askingApproval(""))
			n := len(x.events(e.ID))
			answer := by.decide(e.ID, points[0].WaitpointID, fmt.Sprintf(`"decision":%q,"reason":"Not on a \"Friday\".","form":{"n":1.50}`, decision)).Want(http.StatusOK)
			if answer.Str("effect") != resumes || answer.Str("outcome") != "accepted" {
				x.t.Errorf("%s", answer.Body)
			}
			x.stands(e.ID, atReleased)
			events := x.toldSince(e.ID, n, "signal.delivered", "execution.resumed")
			if data := eventData(x.t, events[0]); data["signal_name"] != decision || data["signal_category"] != "approval" || data["source_type"] != "operator" || data["source_identity"] != actor || events[0].Actor != actor {
				x.t.Errorf("%s", events[0].Data)
			}
			got := x.came(e.ID, "")
			if len(got) != 1 || got[0].SignalName != decision || string(got[0].Payload) != fmt.Sprintf(`{"decision":%q,"by":%q,"reason":"Not on a \"Friday\".","form":{"n":1.50}}`, decision, actor) {
				x.t.Errorf("%+v %s", got, got[0].Payload)
			}
		}
	}},
	{"rejected is only kept when the condition asks for an approval (6.7/105)", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(onSignal("a", byName("approved")), "a"))
		if got := x.decide(e.ID, points[0].WaitpointID, `"decision":"rejected"`).Want(http.StatusOK).Str("effect"); got != appended {
			x.t.Errorf("%s", got)
		}
		x.stands(e.ID, atSuspended)
		if got := x.decide(e.ID, points[0].WaitpointID, "").Want(http.StatusOK).Str("effect"); got != resumes {
			x.t.Errorf("%s", got)
		}
	}},
	{"the same decision by the same person is a duplicate, unless a suffix tells them apart (6.7/105)", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(countOf(4, "Signals", byName("approved"), "a"), "a"))
		w := points[0].WaitpointID
		first := x.decide(e.ID, w, "").Want(http.StatusOK)
		for range 2 {
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.decide(e.ID, w, `"reason":"again"`) }, e.ID)
			if again.Str("outcome") != "duplicate" || again.Str("signal_id") != first.Str("signal_id") || again.Str("effect") != first.Str("effect") {
				x.t.Errorf("%s", again.Body)
			}
		}
		for _, members := range []string{`"decision":"rejected"`, `"idempotency_suffix":"2"`} {
			if answer := x.decide(e.ID, w, members).Want(http.StatusOK); answer.Str("outcome") != "accepted" {
				x.t.Errorf("%s", answer.Body)
			}
		}
		by, _ := x.as("operator", "o-"+x.lane)
		if answer := by.decide(e.ID, w, "").Want(http.StatusOK); answer.Str("outcome") != "accepted" {
			x.t.Errorf("%s", answer.Body)
		}
		x.advance(24 * time.Hour) // it is recognised for a day
		if answer := x.decide(e.ID, w, "").Want(http.StatusOK); answer.Str("outcome") != "accepted" || answer.Str("effect") != resumes {
			x.t.Errorf("%s", answer.Body)
		}
	}},
	{"the same decision about what is asked next is another one (6.7/105)", func(x *executionTest) {
		e, _, points := x.suspends("", askingApproval("")+`,"resume_policy":{"close_waitpoint_on_resume":false}`)
		w := points[0]
		for range 2 {
			x.decide(e.ID, w.WaitpointID, "").Want(http.StatusOK)
			again := x.unchanged(http.StatusOK, func() *apitest.Response { return x.decide(e.ID, w.WaitpointID, "") }, e.ID)
			if again.Str("outcome") != "duplicate" {
				x.t.Errorf("%s", again.Body)
			}
			if s := x.suspend(x.claim(lasting), waitAt("", usePending(w))+`,"resume_policy":{"close_waitpoint_on_resume":false}`); s.Outcome != "suspended" {
				x.t.Errorf("%+v", s)
			}
		}
	}},
	{"two different people have to approve, one rejection ends it", func(x *executionTest) {
		ann, _ := x.as("operator", "ann-"+x.lane)
		bob, _ := x.as("operator", "bob-"+x.lane)
		for _, second := range []string{"approved", "rejected"} {
			e, _, points := x.suspends("", askingApproval(`,"min_approvals":2`))
			w := points[0].WaitpointID
			decide := func(y *executionTest, members, effect string) {
				x.t.Helper()
				if got := y.decide(e.ID, w, members).Want(http.StatusOK).Str("effect"); got != effect {
					x.t.Errorf("%s", got)
				}
			}
			decide(ann, "", appended)
			decide(ann, `"idempotency_suffix":"again"`, appendedTwice)
			x.stands(e.ID, atSuspended)
			decide(bob, `"decision":"`+second+`"`, resumes)
			x.stands(e.ID, atReleased)
		}
		e, _, points := x.suspends("", askingApproval(`,"min_approvals":2`))
		ann.decide(e.ID, points[0].WaitpointID, `"decision":"rejected"`).Want(http.StatusOK)
		x.stands(e.ID, atReleased)
	}},
	{"who asks may not decide when another person has to", func(x *executionTest) {
		ann, actor := x.as("operator", "ann-"+x.lane)
		bob, _ := x.as("operator", "bob-"+x.lane)
		e := x.create("")
		c := ann.claim(lasting)
		points := ann.suspend(c, askingApproval(`,"allow_requester":false`)).Waitpoints
		for _, decision := range []string{"approved", "rejected"} {
			answer := x.refused(fault.CodeSelfApproval, func() *apitest.Response { return ann.decide(e.ID, points[0].WaitpointID, `"decision":"`+decision+`"`) }, e.ID)
			if answer.Str("requested_by") != actor {
				x.t.Errorf("%s", answer.Body)
			}
		}
		bob.decide(e.ID, points[0].WaitpointID, "").Want(http.StatusOK)
		x.stands(e.ID, atReleased)
		// By default who asks may.
		e, _, points = ann.suspends("", askingApproval(""))
		ann.decide(e.ID, points[0].WaitpointID, "").Want(http.StatusOK)
		x.stands(e.ID, atReleased)
	}},
	{"a decision before it is asked for counts when it is (6.7/99)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, `"waitpoint_key":"deploy","approval":{"title":"Deploy 1.4"}`)
		if got := x.decide(e.ID, w.WaitpointID, "").Want(http.StatusOK).Str("effect"); got != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%s", got)
		}
		if s := x.suspend(c, waitAt("", usePending(w))); s.Outcome != "already_satisfied" {
			x.t.Errorf("%+v", s)
		}
		w = x.prepared(c, `"waitpoint_key":"deploy","approval":{"title":"Deploy 1.4","min_approvals":2}`)
		x.ruled(fault.CodeInvalidCondition, "min_approvals_with_condition", "/resume_condition", func() *apitest.Response {
			return x.report(c, "suspend", waitAt(onSignal("deploy", wildcard), usePending(w)))
		}, e.ID)
		x.decide(e.ID, w.WaitpointID, "").Want(http.StatusOK)
		if s := x.suspend(c, waitAt("", usePending(w))); s.Outcome != "suspended" {
			x.t.Errorf("%+v", s)
		}
		by, _ := x.as("operator", "o-"+x.lane)
		by.decide(e.ID, w.WaitpointID, "").Want(http.StatusOK)
		x.stands(e.ID, atReleased)
	}},
	{"what is not there, and what is over (6.7/105)", func(x *executionTest) {
		e, _, points := x.suspends("", askingApproval(""))
		other, _, _ := x.suspends("", askingApproval(""))
		w := points[0].WaitpointID
		for resource, call := range map[string]func() *apitest.Response{
			"waitpoint": func() *apitest.Response { return x.decide(e.ID, uuid.New(), "") }, "execution": func() *apitest.Response { return x.decide(uuid.New(), w, "") },
		} {
			if answer := x.refused(fault.CodeNotFound, call, e.ID); answer.Str("resource") != resource {
				x.t.Errorf("%s", answer.Body)
			}
		}
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.decide(other.ID, w, "") }, e.ID, other.ID)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.in("other-"+x.lane).decide(e.ID, w, "") }, e.ID)
		x.decide(e.ID, w, "").Want(http.StatusOK)
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.decide(e.ID, w, `"decision":"rejected"`) }, e.ID)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.decide(e.ID, w, `"decision":"rejected"`) }, e.ID)
	}},
	{"a signal with the token decides, too", func(x *executionTest) {
		e, _, points := x.suspends("", askingApproval(""))
		x.effects(e.ID, points, [2]string{named("deploy", "maybe"), misnamed}, [2]string{named("deploy", "approved"), resumes})
	}},
	{"the inbox: what is asked, by whom, and where to answer", func(x *executionTest) {
		y := x.in("inbox-" + x.lane)
		f := y.Post("/v1/flows", `{"goal":"Release","start":true}`).Want(http.StatusCreated).Str("id")
		e, _, points := y.suspends(`"kind":"shell","flow_id":"`+f+`"`, strings.Replace(waitAt(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), `{"waitpoint_key":"a"}`,
			`{"waitpoint_key":"b","approval":{"title":"Deploy 1.4","prompt":"All checks are green.","requested_by":"ci/release"}}`), "waiting_for_signal", "waiting_for_approval", 1)+`,"timeout_ms":3600000`)
		y.suspends("", waitForGo) // asks nobody
		answer := y.Get("/v1/inbox").Want(http.StatusOK)
		s := y.get(e.ID).Suspension
		flow := uuid.MustParse(f)
		want := []oapi.InboxItem{{Kind: "waitpoint", WaitID: s.SuspensionID, ExecutionID: &e.ID, FlowID: &flow, Title: "Deploy 1.4", Prompt: new("All checks are green."), RequestedBy: new("ci/release"),
			Reason: new("waiting_for_approval"), Since: s.Since, DeadlineAt: s.TimeoutAt, Actions: []string{"approvals", "resume"}, WaitpointID: &points[1].WaitpointID,
			Waitpoints: []oapi.BoundWaitpoint{{WaitpointID: points[1].WaitpointID, WaitpointKey: "b"}, {WaitpointID: points[0].WaitpointID, WaitpointKey: "a"}}}}
		if diff := cmp.Diff(want, answerAs[oapi.InboxList](answer).Items, equateEmpty); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		for _, w := range points {
			if bytes.Contains(answer.Body, []byte(w.Token)) || bytes.Contains(answer.Body, []byte("approve/")) {
				x.t.Errorf("the inbox tells a token: %s", answer.Body)
			}
		}
		y.Post("/v1/flows/"+f+"/wait", waitBody(manual)).Want(http.StatusOK)
		for query, n := range map[string]int{"": 2, "?kind=waitpoint": 1, "?kind=flow_wait": 1, "?kind=gate": 0, "?flow_id=" + f: 2, "?kind=waitpoint&flow_id=" + f: 1, "?flow_id=" + uuid.NewString(): 0} {
			if got := y.Get("/v1/inbox" + query).Want(http.StatusOK).Len("items"); got != n {
				x.t.Errorf("%s: %d items, want %d", query, got, n)
			}
		}
		sizes := y.paged("/v1/inbox?limit=1", func(answer *apitest.Response) int { return answer.Len("items") })
		if fmt.Sprint(sizes) != "[1 1]" {
			x.t.Errorf("%v", sizes)
		}
		if x.inInbox(e.ID) != nil {
			x.t.Error("another namespace sees it")
		}
		y.signalled(e.ID, points[0], "")
		y.decide(e.ID, points[1].WaitpointID, "").Want(http.StatusOK)
		if y.inInbox(e.ID) != nil {
			x.t.Error("it is there still")
		}
	}},
	{"the inbox shows the first question that nobody has answered, and how it begins", func(x *executionTest) {
		long := strings.Repeat("Is it so? ", 1600)
		ask := func(key, prompt string) string {
			return `{"waitpoint_key":"` + key + `","approval":{"title":"Deploy ` + key + `","prompt":"` + prompt + `"}}`
		}
		e, _, points := x.suspends("", waitAt(everyOf(onSignal("b", byName("approved")), onSignal("a", byName("approved"))), ask("a", long), ask("b", "Green.")))
		for i, want := range []string{"Deploy a " + long[:1000], "Deploy b Green."} {
			item := x.inInbox(e.ID)
			if item == nil || *item.WaitpointID != points[i].WaitpointID || item.Title+" "+*item.Prompt != want {
				x.t.Errorf("%+v", item)
			}
			x.decide(e.ID, points[i].WaitpointID, "").Want(http.StatusOK)
		}
	}},
	{"the inbox: a waitpoint that is closed is not where to answer", func(x *executionTest) {
		e, _, points := x.suspends("", strings.Replace(waitOn(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b"), "waiting_for_signal", "manual_pause", 1))
		x.Post(tokenPath(e.ID, points[0], "close"), nil).Want(http.StatusOK)
		if item := x.inInbox(e.ID); item == nil || *item.WaitpointID != points[1].WaitpointID || len(item.Waitpoints) != 1 || *item.Reason != "manual_pause" || item.Title == "" {
			x.t.Errorf("%+v", item)
		}
	}},
	{"the inbox has what asks a person, and nothing else", func(x *executionTest) {
		for reason, asks := range map[string]bool{
			"waiting_for_signal": false, "waiting_for_approval": true, "waiting_for_callback": false, "waiting_for_tool_result": false, "waiting_for_operator_review": true,
			"paused_by_policy": false, "paused_by_budget": false, "step_boundary": false, "manual_pause": true,
		} {
			e, _, _ := x.suspends("", strings.Replace(waitForGo, `"waiting_for_signal"`, quoted(reason), 1))
			if got := x.inInbox(e.ID) != nil; got != asks {
				x.t.Errorf("%s: %t", reason, got)
			}
		}
		for _, asked := range []string{waitOn(operatorOnly, "a"), askingApproval("")} {
			if e, _, _ := x.suspends("", asked); x.inInbox(e.ID) == nil {
				x.t.Errorf("%s is not in the inbox", asked)
			}
		}
	}},
	{"what ends it otherwise takes it out of the inbox", func(x *executionTest) {
		for _, end := range []func(e oapi.Execution){
			func(e oapi.Execution) { x.operated(e.ID, "resume", "") }, func(e oapi.Execution) { x.operated(e.ID, "operator-cancel", `"reason":"no"`) }, func(oapi.Execution) { x.advance(time.Minute) },
		} {
			e, _, _ := x.suspends("", askingApproval("")+`,"timeout_ms":60000`)
			if x.inInbox(e.ID) == nil {
				x.t.Error("it is not in the inbox")
			}
			end(e)
			if x.inInbox(e.ID) != nil {
				x.t.Error("it is in the inbox still")
			}
			x.operator(e.ID, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"an approval is checked when it is asked for", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		for approval, pointer := range map[string]string{
			`{}`: "/title", `{"title":""}`: "/title", `{"title":"x","min_approvals":0}`: "/min_approvals", `{"title":"x","min_approvals":21}`: "/min_approvals", `{"title":"x","form":7}`: "/form", `{"title":"x","x":1}`: "/x",
		} {
			x.ruled(fault.CodeValidationFailed, "", "/waitpoints/0/approval"+pointer, func() *apitest.Response {
				return x.report(c, "suspend", waitAt("", `{"waitpoint_key":"a","approval":`+approval+`}`))
			}, e.ID)
			x.ruled(fault.CodeValidationFailed, "", "/approval"+pointer, func() *apitest.Response { return x.report(c, "waitpoints", `"waitpoint_key":"a","approval":`+approval) }, e.ID)
		}
	}},
}

// askingApproval is a suspension on one waitpoint that asks people.
func askingApproval(members string) string {
	return waitAt("", `{"waitpoint_key":"deploy","approval":{"title":"Deploy 1.4"`+members+`}}`)
}
