package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// TestPendingWaitpoints: waitpoints that are made before anybody waits there. executions.md 2.14, 2.15 (UsePending).
func TestPendingWaitpoints(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, pendingWaitpointsCases)
}

var onGo = onSignal("go", byName("go"))

var pendingWaitpointsCases = []executionCase{
	{"made, and listed as pending (6.7/90)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		n := len(x.events(e.ID))
		answer := x.report(c, "waitpoints", `"waitpoint_key":"go","expires_in_ms":60000`).Want(http.StatusCreated)
		one, two := answerAs[oapi.MintedWaitpoint](answer), x.prepared(c, "")
		if one.WaitpointID == two.WaitpointID || one.Token == two.Token || !tokenForm.MatchString(one.Token) || answer.Header.Get("Cache-Control") != "no-store" {
			x.t.Errorf("%v %+v %+v", answer.Header, one, two)
		}
		list := x.waitpoints(e.ID)
		if len(list) != 2 {
			x.t.Fatalf("%+v", list)
		}
		first, second := list[0], list[1]
		if first.WaitpointID != one.WaitpointID || first.State != "pending" || first.SuspensionID != nil || first.ActivatedAt != nil || first.ExpiresAt.Time().Sub(first.CreatedAt.Time()) != time.Minute ||
			second.ExpiresAt.Time().Sub(second.CreatedAt.Time()) != 24*time.Hour || first.AttemptIndex != 0 || len(first.RequiredSignalNames) != 0 {
			x.t.Errorf("%+v", list)
		}
		x.stands(e.ID, atActive)
		events := x.toldSince(e.ID, n, "waitpoint.created", "waitpoint.created")
		if data := eventData(x.t, events[0]); data["waitpoint_id"] != one.WaitpointID.String() || data["waitpoint_key"] != "go" || !sameTime(data["expires_at"], first.ExpiresAt) {
			x.t.Errorf("%s", events[0].Data)
		}
	}},
	{"only for who holds the execution (2.14)", func(x *executionTest) {
		prepare := func(c oapi.Claim) func() *apitest.Response {
			return func() *apitest.Response { return x.report(c, "waitpoints", `"waitpoint_key":"k"`) }
		}
		e, c := x.lost("")
		x.refused(fault.CodeLeaseExpired, prepare(c), e.ID)
		taken := x.claim(`"capabilities":["go","gpu"],` + lasting)
		x.refused(fault.CodeStaleLease, prepare(c), e.ID)
		x.suspend(taken, waitForGo)
		x.refused(fault.CodeExecutionNotActive, prepare(taken), e.ID)
		x.operated(e.ID, "operator-cancel", `"reason":"over"`)
		x.refused(fault.CodeExecutionNotActive, prepare(taken), e.ID)
		x.refused(fault.CodeNotFound, func() *apitest.Response {
			return x.Post(operatorPath(uuid.New(), "waitpoints"), executionJSON(fenced(c)+`,"waitpoint_key":"k"`))
		}, e.ID)
		x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post(operatorPath(e.ID, "waitpoints"), `{"waitpoint_key":"k"}`) }, e.ID)
	}},
	{"an id of one's own; one that is taken is refused (2.14)", func(x *executionTest) {
		id := `"waitpoint_id":"` + uuid.NewString() + `"`
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, id)
		x.refused(fault.CodeAlreadyExists, func() *apitest.Response { return x.report(c, "waitpoints", id+`,"waitpoint_key":"k"`) }, e.ID)
		if list := x.waitpoints(e.ID); len(list) != 1 || list[0].WaitpointID != w.WaitpointID {
			x.t.Errorf("%+v", list)
		}
	}},
	{"a waitpoint whose approval cannot be read is closed in time, too", func(x *executionTest) {
		e := x.create("")
		w := x.prepared(x.claim(lasting), `"expires_in_ms":1000,"approval":{"title":"Deploy"}`)
		err := store.Do(x.t.Context(), x.server.App.Store(), func(tx *store.Tx) error {
			return tx.ExecOne(`UPDATE waitpoints SET approval = '[' WHERE id = ?`, rowID(w.WaitpointID))
		})
		if err != nil {
			x.t.Fatal(err)
		}
		n := len(x.events(e.ID))
		x.advance(time.Second)
		x.toldSince(e.ID, n, "waitpoint.closed")
	}},
	{"what nobody suspends on in time is closed (4, pending waitpoint expiry)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(`"lease_ttl_ms":86400000`)
		w, other := x.prepared(c, `"expires_in_ms":60000`), x.prepared(c, "")
		n := len(x.events(e.ID))
		x.advance(time.Minute - time.Second)
		if got := x.signalled(e.ID, w, ""); got != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%s", got)
		}
		x.server.Clock.Advance(time.Second) // not swept yet
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		x.refused(fault.CodePendingExpired, func() *apitest.Response { return x.report(c, "suspend", waitAt(onGo, usePending(w))) }, e.ID)
		x.advance(0)
		events := x.toldSince(e.ID, n, "signal.buffered", "waitpoint.closed")
		if data := eventData(x.t, events[1]); data["reason"] != "never_committed" || data["waitpoint_id"] != w.WaitpointID.String() || events[1].Actor != "engine" {
			x.t.Errorf("%s %s", events[1].Actor, events[1].Data)
		}
		x.closedAs(e.ID, w, "never_committed")
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		x.refused(fault.CodeWaitpointNotPending, func() *apitest.Response { return x.report(c, "suspend", waitAt(onGo, usePending(w))) }, e.ID)
		x.suspend(c, waitAt(onGo, usePending(other)))
		x.advance(48 * time.Hour) // an active one does not expire
		x.signalled(e.ID, other, "")
		x.stands(e.ID, atReleased)
	}},
	{"a signal that came early is enough: the worker goes on (6.7/99; 5/29)", func(x *executionTest) {
		e := x.create(`"policy":{"timeout_policy":{"attempt_timeout_ms":600000}}`)
		c := x.claim(lasting)
		w := x.prepared(c, "")
		if got := x.receipt(e.ID, w, `"payload":{"early":true},"signal_id":"9b1d7f64-0c2a-4e5b-8d19-7a3c5e9f2b09"`); got.Effect != "buffered_for_pending_waitpoint" || got.Outcome != "accepted" {
			x.t.Errorf("%+v", got)
		}
		before, n := x.stands(e.ID, atActive), len(x.events(e.ID))
		s := x.suspend(c, waitAt(onGo, usePending(w)))
		if s.Outcome != "already_satisfied" || len(s.Waitpoints) != 1 || s.Waitpoints[0] != w {
			x.t.Errorf("%+v", s)
		}
		after := x.stands(e.ID, atActive)
		if diff := cmp.Diff(before.CurrentLease, after.CurrentLease); diff != "" {
			x.t.Errorf("the lease (-before +after):\n%s", diff)
		}
		events := x.toldSince(e.ID, n, "waitpoint.closed")
		if data := eventData(x.t, events[0]); data["reason"] != "resumed" {
			x.t.Errorf("%s", events[0].Data)
		}
		if got := x.suspensionClosed(e.ID, "already_satisfied"); got.CloserSignalID == nil || *got.CloserSignalID != "9b1d7f64-0c2a-4e5b-8d19-7a3c5e9f2b09" || got.SuspensionID != s.SuspensionID {
			x.t.Errorf("%+v", got)
		}
		if got := x.came(e.ID, ""); len(got) != 1 || string(got[0].Payload) != `{"early":true}` || got[0].Effect != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%+v", got)
		}
		x.closedAs(e.ID, w, "resumed")
		x.nothingWaits(e.ID)
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		x.refused(fault.CodeWaitpointNotPending, func() *apitest.Response { return x.report(c, "suspend", waitAt(onGo, usePending(w))) }, e.ID)
		x.report(c, "renew", "").Want(http.StatusOK)
		x.report(c, "complete", "").Want(http.StatusOK)
	}},
	{"an early signal that is not enough is kept: its progress, its token and its key (2.15)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, `"waitpoint_key":"k"`)
		for _, name := range []string{"one", "other", "one"} {
			if got := x.signalled(e.ID, w, `"signal_name":"`+name+`"`); got != "buffered_for_pending_waitpoint" {
				x.t.Errorf("%s", got)
			}
		}
		n := len(x.events(e.ID))
		s := x.suspend(c, waitAt(everyOf(onSignal("k", byName("one")), onSignal("k", byName("two"))), usePending(w))+`,"timeout_ms":3600000`)
		if s.Outcome != "suspended" || s.Waitpoints[0] != w {
			x.t.Errorf("%+v", s)
		}
		x.stands(e.ID, atSuspended)
		x.toldSince(e.ID, n, "lease.revoked", "execution.suspended")
		list := x.waitpoints(e.ID)
		if len(list) != 1 || list[0].State != "active" || *list[0].SuspensionID != s.SuspensionID || !list[0].ExpiresAt.Equal(*x.get(e.ID).Suspension.TimeoutAt) || list[0].SignalCount != 3 {
			x.t.Errorf("%+v", list)
		}
		x.observes(e.ID, []string{"one"}, []string{"one", "other", "one"})
		x.effects(e.ID, s.Waitpoints, [2]string{`k "signal_name":"one"`, "appended_to_waitpoint_duplicate"}, [2]string{`k "signal_name":"two"`, "resume_condition_satisfied"})
		x.stands(e.ID, atReleased)
		x.observes(e.ID, []string{"one", "two"}, []string{"one", "other", "one", "one", "two"})
	}},
	{"early signals of a count that wants different ones (5/23, 29)", func(x *executionTest) {
		for _, row := range []struct {
			distinct string
			outcome  oapi.SuspendedExecutionOutcome
		}{{"Signals", "already_satisfied"}, {"Sources", "suspended"}} {
			e := x.create("")
			c := x.claim(lasting)
			w := x.prepared(c, "")
			for range 2 {
				x.signalled(e.ID, w, `"source_identity":"same"`)
			}
			if s := x.suspend(c, waitAt(countOf(2, row.distinct, "", "go"), usePending(w))); s.Outcome != row.outcome {
				x.t.Errorf("%s: %+v", row.distinct, s)
			}
			x.operated(e.ID, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"an early duplicate counts once (5/23)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		first := x.receipt(e.ID, w, `"idempotency_key":"k"`)
		again := answerAs[oapi.SignalReceipt](x.unchanged(http.StatusOK, func() *apitest.Response { return x.signal(e.ID, w, `"idempotency_key":"k"`) }, e.ID))
		if again.Outcome != "duplicate" || again.SignalID != first.SignalID || again.Effect != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%+v", again)
		}
		s := x.suspend(c, waitAt(countOf(2, "Signals", "", "go"), usePending(w)))
		again = answerAs[oapi.SignalReceipt](x.unchanged(http.StatusOK, func() *apitest.Response { return x.signal(e.ID, w, `"idempotency_key":"k"`) }, e.ID))
		if s.Outcome != "suspended" || again.Outcome != "duplicate" || x.signalled(e.ID, w, "") != "resume_condition_satisfied" {
			x.t.Errorf("%+v %+v", s, again)
		}
	}},
	{"what cannot be suspended on (2.15)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		mine := x.prepared(c, "")
		refused := func(code fault.Code, c oapi.Claim, binding string) *apitest.Response {
			x.t.Helper()
			return x.refused(code, func() *apitest.Response { return x.report(c, "suspend", waitAt(onGo, binding)) }, e.ID)
		}
		answer := refused(fault.CodeNotFound, c, `{"use_pending":"`+uuid.NewString()+`"}`)
		if f := answer.Fields(); answer.Str("resource") != "waitpoint" || len(f) != 1 || f[0].Pointer != "/waitpoints/0/use_pending" {
			x.t.Errorf("%s", answer.Body)
		}
		other := x.create("")
		oc := x.claim(lasting)
		theirs := x.prepared(oc, "")
		refused(fault.CodeNotFound, c, usePending(theirs)) // that of another execution
		closed := x.prepared(c, "")
		x.Post(tokenPath(e.ID, closed, "close"), `{}`).Want(http.StatusOK)
		if answer := refused(fault.CodeWaitpointNotPending, c, usePending(closed)); answer.Str("state") != "closed" {
			x.t.Errorf("%s", answer.Body)
		}
		x.ruled(fault.CodeInvalidCondition, "waitpoint_key_mismatch", "/resume_condition/Single/waitpoint_key", func() *apitest.Response {
			return x.report(c, "suspend", waitAt(onSignal("stop", wildcard), usePending(mine)))
		}, e.ID)
		x.ruled(fault.CodeInvalidCondition, "referenced_waitpoint_key_missing_binding", "/resume_condition", func() *apitest.Response {
			return x.report(c, "suspend", waitAt(everyOf(onGo, onSignal("stop", wildcard)), usePending(mine)))
		}, e.ID)
		x.ruled(fault.CodeValidationFailed, "", "/resume_condition", func() *apitest.Response { return x.report(c, "suspend", waitAt("", usePending(mine))) }, e.ID)
		// Of an attempt that is over.
		x.report(oc, "complete", "").Want(http.StatusOK)
		x.operated(other.ID, "replay", "")
		again := x.claim(lasting)
		refused(fault.CodeWaitpointNotPending, again, usePending(theirs))
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(other.ID, theirs, "") }, other.ID)
		// Of this attempt, in other hands.
		x.report(c, "release", "").Want(http.StatusOK)
		c = x.claim(lasting)
		if s := x.suspend(c, waitAt(onGo, usePending(mine))); s.Outcome != "suspended" || s.Waitpoints[0].Token != mine.Token {
			x.t.Errorf("%+v", s)
		}
	}},
	{"while nobody works on it, signals are kept, and those to a retried attempt are not (2.17, 5/25)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.claim(lasting)
		w := x.prepared(c, "")
		x.report(c, "release", "").Want(http.StatusOK)
		if got := x.signalled(e.ID, w, ""); got != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%s", got)
		}
		c = x.claim(lasting)
		if s := x.suspend(c, waitAt(onGo, usePending(w))); s.Outcome != "already_satisfied" {
			x.t.Errorf("%+v", s)
		}
		late := x.prepared(c, "")
		refused := func() {
			x.t.Helper()
			x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(e.ID, late, "") }, e.ID)
			x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.decide(e.ID, late.WaitpointID, "") }, e.ID)
		}
		x.report(c, "fail", `"reason":"x","retry_after_ms":0`).Want(http.StatusOK)
		refused() // nobody of the next attempt would get it
		x.advance(0)
		refused()
		c = x.claim(lasting)
		refused()
		late = x.prepared(c, "")
		x.report(c, "complete", "").Want(http.StatusOK)
		refused()
		x.operated(e.ID, "replay", "")
		refused()
	}},
	{"a genuine token is good before anybody waits, a forged one never is; after closing, neither (6.7/100)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		forged := w
		forged.Token = w.Token[:len(w.Token)-1] + map[bool]string{true: "0", false: "1"}[w.Token[len(w.Token)-1] != '0']
		x.refused(fault.CodeInvalidToken, func() *apitest.Response { return x.signal(e.ID, forged, "") }, e.ID)
		x.signalled(e.ID, w, "")
		n := len(x.events(e.ID))
		answer := x.report(c, "waitpoints/"+w.WaitpointID.String()+"/close", `"reason":"wrong address"`).Want(http.StatusOK)
		if got := answerAs[oapi.Waitpoint](answer); got.State != "closed" || *got.CloseReason != "wrong address" || got.SignalCount != 1 {
			x.t.Errorf("%s", answer.Body)
		}
		events := x.toldSince(e.ID, n, "waitpoint.closed")
		if data := eventData(x.t, events[0]); data["reason"] != "wrong address" {
			x.t.Errorf("%s", events[0].Data)
		}
		refusal := x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		if refusal.Str("close_reason") != "wrong address" {
			x.t.Errorf("%s", refusal.Body)
		}
		x.refused(fault.CodeInvalidToken, func() *apitest.Response { return x.signal(e.ID, forged, "") }, e.ID)
	}},
	{"what comes after the signal that is enough does not count", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		for _, name := range []string{"first", "second", "third"} {
			x.signalled(e.ID, w, `"signal_name":"`+name+`"`)
		}
		if s := x.suspend(c, waitAt(everyOf(countOf(1, "Signals", "", "go"), onSignal("go", wildcard)), usePending(w))); s.Outcome != "already_satisfied" {
			x.t.Errorf("%+v", s)
		}
		x.observes(e.ID, []string{"first"}, []string{"first", "second", "third"})
	}},
	{"many early signals, in the order in which they came", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprint("n", i))
			x.signalled(e.ID, w, `"signal_name":"`+names[i]+`"`)
		}
		if s := x.suspend(c, waitAt(countOf(10, "Signals", "", "go"), usePending(w))); s.Outcome != "already_satisfied" {
			x.t.Errorf("%+v", s)
		}
		x.observes(e.ID, names[:10], names)
	}},
	{"an Idempotency-Key of an already satisfied suspension (http.md)", func(x *executionTest) {
		e := x.create("")
		c := x.claim(lasting)
		w := x.prepared(c, "")
		x.signalled(e.ID, w, "")
		call := func() *apitest.Response {
			return x.report(c, "suspend", waitAt(onGo, usePending(w))+`,"idempotency_key":"k"`, "Idempotency-Key: satisfied-"+x.lane)
		}
		first := call().Want(http.StatusOK)
		if again := x.unchanged(http.StatusOK, call, e.ID); !bytes.Equal(again.Body, first.Body) || first.Str("outcome") != "already_satisfied" {
			x.t.Errorf("first %s, then %s", first.Body, again.Body)
		}
		if again := x.unchanged(http.StatusOK, func() *apitest.Response {
			return x.report(c, "suspend", waitAt(onGo, usePending(w))+`,"idempotency_key":"k"`)
		}, e.ID); !bytes.Equal(again.Body, first.Body) {
			x.t.Errorf("first %s, then %s", first.Body, again.Body)
		}
	}},
}

// TestResumePolicy: what becomes of waitpoints and signals when an execution goes on. executions.md 2.15.
func TestResumePolicy(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, resumePolicyCases)
}

var resumePolicyCases = []executionCase{
	{"they are closed, and used up, by default", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo+resumePolicy(`"resume_target":"Runnable","consume_matched_signals":true`))
		x.signalled(e.ID, points[0], "")
		x.closedAs(e.ID, points[0], "resumed")
		x.suspensionClosed(e.ID, "resumed")
		if list := x.waitpoints(e.ID); len(list) != 0 {
			x.t.Errorf("%+v", list)
		}
	}},
	{"kept open: pending again, with the same token; what came between is kept", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(onGo, "go")+resumePolicy(`"close_waitpoint_on_resume":false`))
		w := points[0]
		x.signalled(e.ID, w, `"signal_name":"other"`)
		x.signalled(e.ID, w, "")
		x.stands(e.ID, atReleased)
		list := x.waitpoints(e.ID)
		if len(list) != 1 || list[0].State != "pending" || list[0].SuspensionID != nil || list[0].ActivatedAt != nil || list[0].ExpiresAt == nil {
			x.t.Fatalf("%+v", list)
		}
		if got := x.Get(tokenPath(e.ID, w, "token")).Want(http.StatusOK).Str("token"); got != w.Token {
			x.t.Errorf("%s", got)
		}
		c := x.claim(lasting)
		s := x.suspend(c, waitAt(onGo, usePending(w))+resumePolicy(`"close_waitpoint_on_resume":false`))
		if s.Outcome != "suspended" || s.Waitpoints[0].Token != w.Token { // what matched was used up
			x.t.Fatalf("%+v", s)
		}
		x.observes(e.ID, nil, nil)
		x.signalled(e.ID, w, "")
		if got := x.signalled(e.ID, w, ""); got != "buffered_for_pending_waitpoint" {
			x.t.Errorf("%s", got)
		}
		c = x.claim(lasting)
		if s := x.suspend(c, waitAt(onGo, usePending(w))); s.Outcome != "already_satisfied" {
			x.t.Errorf("%+v", s)
		}
		x.closedAs(e.ID, w, "resumed")
	}},
	{"kept open, with what matched, or with what did not", func(x *executionTest) {
		for _, row := range []struct {
			policy  string
			outcome oapi.SuspendedExecutionOutcome
			counted []string
			all     []string
		}{
			{`"close_waitpoint_on_resume":false,"consume_matched_signals":false`, "already_satisfied", []string{"go"}, []string{"go"}},
			{`"close_waitpoint_on_resume":false,"retain_signal_buffer_until_closed":true`, "suspended", nil, []string{"other"}},
			{`"close_waitpoint_on_resume":false,"consume_matched_signals":false,"retain_signal_buffer_until_closed":true`, "already_satisfied", []string{"go"}, []string{"other", "go"}},
		} {
			e, _, points := x.suspends("", waitOn(onGo, "go")+resumePolicy(row.policy))
			w := points[0]
			x.signalled(e.ID, w, `"signal_name":"other"`)
			x.signalled(e.ID, w, "")
			x.observes(e.ID, []string{"go"}, []string{"other", "go"})
			if s := x.suspend(x.claim(lasting), waitAt(onGo, usePending(w))); s.Outcome != row.outcome {
				x.t.Errorf("%s: %+v", row.policy, s)
			}
			x.observes(e.ID, row.counted, row.all)
			x.operated(e.ID, "operator-cancel", `"reason":"over"`)
		}
	}},
	{"kept open: nobody suspends on it again, so it expires", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(onGo, "go")+resumePolicy(`"close_waitpoint_on_resume":false`))
		x.operated(e.ID, "resume", "")
		x.advance(24*time.Hour - time.Second)
		x.signalled(e.ID, points[0], "")
		x.advance(time.Second)
		x.closedAs(e.ID, points[0], "never_committed")
	}},
	{"kept open does not outlive the execution", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(onGo, "go")+resumePolicy(`"close_waitpoint_on_resume":false`))
		x.operated(e.ID, "operator-cancel", `"reason":"no"`)
		x.closedAs(e.ID, points[0], "cancelled")
	}},
	{"a delay of the policy, and one of the signal in its place (2.17)", func(x *executionTest) {
		for _, row := range []struct {
			policy, signal string
			delay          time.Duration
		}{
			{`"resume_delay_ms":60000`, "", time.Minute}, {`"resume_delay_ms":60000`, `"resume_delay_ms":1000`, time.Second}, {`"resume_delay_ms":60000`, `"resume_delay_ms":0`, 0},
			{"", `"resume_delay_ms":3600000`, time.Hour}, {"", "", 0},
		} {
			e, _, points := x.suspends("", waitForGo+resumePolicy(row.policy))
			n := len(x.events(e.ID))
			x.signalled(e.ID, points[0], row.signal)
			if row.delay == 0 {
				x.stands(e.ID, atReleased)
				x.resumedBy(e.ID, n, "signal", "waiting")
				x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
				continue
			}
			got := x.stands(e.ID, atResumeDelay)
			if off := got.DelayUntil.Time().Sub(x.server.Clock.Now().Add(row.delay)); off.Abs() > time.Second {
				x.t.Errorf("%s too late", off)
			}
			x.resumedBy(e.ID, n, "signal", "delayed")
			x.none("")
			x.advance(row.delay)
			x.stands(e.ID, atReleased)
			c := x.claim(lasting)
			if c.Kind != "resumed" || c.Execution.ID != e.ID {
				x.t.Errorf("%+v", c)
			}
			x.report(c, "complete", "").Want(http.StatusOK)
		}
	}},
	{"the delay of an operator, and not of the policy (2.11)", func(x *executionTest) {
		e, _, points := x.suspends("", waitForGo+resumePolicy(`"resume_delay_ms":60000`))
		n := len(x.events(e.ID))
		x.operated(e.ID, "resume", "")
		x.stands(e.ID, atReleased)
		x.toldSince(e.ID, n, "operator.resumed", "execution.resumed")
		x.resumedBy(e.ID, n, "operator", "waiting")
		x.closedAs(e.ID, points[0], "resumed")
		x.suspensionClosed(e.ID, "resumed")
		x.nothingWaits(e.ID)
		x.refused(fault.CodeNotSuspended, func() *apitest.Response { return x.operator(e.ID, "resume", "") }, e.ID)
	}},
}

// resumePolicy is a policy as a member of a suspension.
func resumePolicy(members string) string { return `,"resume_policy":{` + members + `}` }
