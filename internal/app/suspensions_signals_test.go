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

// Effects of signals. executions.md 2.17.
const (
	resumes       = "resume_condition_satisfied"
	appended      = "appended_to_waitpoint"
	appendedTwice = "appended_to_waitpoint_duplicate"
	elsewhere     = "signal_ignored_not_in_condition"
	misnamed      = "signal_ignored_matcher_failed"
	noEffect      = "no_op"
)

// named is a signal of a name on a waitpoint, and what else is said of it.
func named(key, name string, more ...string) string {
	return key + " " + executionMembers(append([]string{`"signal_name":` + quoted(name)}, more...)...)
}

// from says where a signal comes from.
func from(sourceType, identity string) string {
	return `"source_type":` + quoted(sourceType) + `,"source_identity":` + quoted(identity)
}

// TestResumeConditions: what an execution waits for, and what each signal does. executions.md 2.16, 2.17; 6.7/91, 94, 96.
func TestResumeConditions(t *testing.T) {
	t.Parallel()
	var cases []executionCase
	for _, row := range resumeConditions {
		cases = append(cases, executionCase{row.name, row.resumes})
	}
	cases = append(cases, executionCase{"TimeoutOnly: no signal ends it, and its timeout does", func(x *executionTest) {
		e, _, points := x.suspends("", waitOn(timeoutOnly, "a")+`,"timeout_ms":60000,"timeout_behavior":"auto_resume"`)
		x.effects(e.ID, points, effect{named("a", "__timeout_only__"), noEffect}, effect{named("a", "x"), noEffect})
		x.stands(e.ID, atSuspended)
		x.advance(time.Minute)
		x.stands(e.ID, atReleased)
	}})
	runExecutionCases(t, cases)
}

type effect = [2]string

// resumeCondition is a condition, and what each of some signals does to who waits for it.
type resumeCondition struct {
	name, condition, keys string
	signals               []effect
	counted               []string // names; nil when it still waits
}

var resumeConditions = []resumeCondition{
	{"Single, Wildcard", onSignal("a", wildcard), "a", []effect{{named("a", "x"), resumes}}, []string{"x"}},
	{"Single, ByName (6.7/91)", onSignal("a", byName("go")), "a", []effect{{named("a", "GO"), appended}, {named("a", "go "), appended}, {named("a", "go"), resumes}}, []string{"go"}},
	{"a name that is also one of ours (7.2/23)", onSignal("a", byName("__operator_only__")), "a", []effect{{named("a", "__operator_only__"), resumes}}, []string{"__operator_only__"}},
	{"OperatorOnly: no signal ends it (7.2/23)", operatorOnly, "a", []effect{{named("a", "x"), noEffect}, {named("a", "__operator_only__"), noEffect}}, nil},
	{"AllOf of two (6.7/94)", everyOf(onSignal("a", byName("x")), onSignal("b", byName("y"))), "a b",
		[]effect{{named("a", "x"), appended}, {named("a", "x"), appendedTwice}, {named("a", "y"), misnamed}, {named("b", "x"), misnamed}, {named("b", "y"), resumes}}, []string{"x", "y"}},
	{"AllOf of three waitpoints (6.7/96)", everyOf(onSignal("a", wildcard), onSignal("b", wildcard), onSignal("c", wildcard)), "a b c",
		[]effect{{named("c", "1"), appended}, {named("a", "2"), appended}, {named("c", "3"), appendedTwice}, {named("b", "4"), resumes}}, []string{"1", "2", "4"}},
	{"AllOf: one signal for several members", everyOf(onSignal("a", wildcard), onSignal("a", byName("x")), everyOf(onSignal("a", byName("x")))), "a",
		[]effect{{named("a", "x"), resumes}}, []string{"x"}},
	{"AllOf with OperatorOnly: no signal ends it", everyOf(onSignal("a", wildcard), operatorOnly), "a", []effect{{named("a", "x"), appended}, {named("a", "x"), appendedTwice}}, nil},
	{"AllOf that does not listen there", everyOf(operatorOnly), "a", []effect{{named("a", "x"), elsewhere}}, nil},
	{"Count, distinct waitpoints (6.7/94)", countOf(2, "Waitpoints", "", "a", "b", "c"), "a b c",
		[]effect{{named("a", "1"), appended}, {named("a", "2"), appendedTwice}, {named("c", "3"), resumes}}, []string{"1", "3"}},
	{"Count, distinct signals (6.7/94)", countOf(3, "Signals", "", "a", "b"), "a b",
		[]effect{{named("a", "1"), appended}, {named("a", "2"), appended}, {named("b", "3"), resumes}}, []string{"1", "2", "3"}},
	{"Count, distinct sources (6.7/94)", countOf(2, "Sources", "", "a"), "a",
		[]effect{{named("a", "1", from("person", "ann")), appended}, {named("a", "2", from("person", "ann")), appendedTwice}, {named("a", "3", from("robot", "ann")), resumes}}, []string{"1", "3"}},
	{"Count with a matcher (6.7/94)", countOf(2, "Signals", byName("ok"), "a"), "a",
		[]effect{{named("a", "no"), misnamed}, {named("a", "ok"), appended}, {named("a", "no"), misnamed}, {named("a", "ok"), resumes}}, []string{"ok", "ok"}},
	{"Count, n = 1 is any of them", countOf(1, "Waitpoints", wildcard, "a", "b"), "a b", []effect{{named("b", "x"), resumes}}, []string{"x"}},
	{"two counts of the same kind do not disturb each other (7.2/23)", everyOf(countOf(2, "Sources", byName("x"), "a"), countOf(2, "Sources", byName("y"), "a")), "a",
		[]effect{{named("a", "x", from("p", "1")), appended}, {named("a", "y", from("p", "1")), appended}, {named("a", "x", from("p", "2")), appended}, {named("a", "y", from("p", "2")), resumes}},
		[]string{"x", "y", "x", "y"}},
	{"a count inside AllOf, overfed", everyOf(countOf(1, "Signals", "", "a"), onSignal("b", wildcard)), "a b",
		[]effect{{named("a", "1"), appended}, {named("a", "2"), appendedTwice}, {named("b", "3"), resumes}}, []string{"1", "3"}},
	{"four composites in one another (6.7/95)", everyOf(onSignal("a", byName("1")), nested(2, countOf(2, "Signals", "", "a"))), "a",
		[]effect{{named("a", "2"), appended}, {named("a", "1"), resumes}}, []string{"2", "1"}},
	{"sources that only look alike", countOf(2, "Sources", "", "a"), "a", []effect{{named("a", "1", from("ab", "c")), appended}, {named("a", "2", from("a", "bc")), resumes}}, []string{"1", "2"}},
}

// resumes checks that the last of the signals lets the execution go on, or that none does.
func (row resumeCondition) resumes(x *executionTest) {
	e, _, points := x.waitsFor(row.condition, strings.Fields(row.keys)...)
	n := len(x.events(e.ID))
	x.effects(e.ID, points, row.signals...)
	var told, names []string
	for i, s := range row.signals {
		told = append(told, "signal.delivered")
		_, members, _ := strings.Cut(s[0], " ")
		names = append(names, fromDocument[map[string]string](x.t, "{"+members+"}")["signal_name"])
		if x.since(e.ID, n)[i].Type != "signal.delivered" || eventData(x.t, x.since(e.ID, n)[i])["effect"] != s[1] {
			x.t.Errorf("%+v", x.since(e.ID, n)[i])
		}
	}
	if row.counted == nil {
		x.stands(e.ID, atSuspended)
		x.toldSince(e.ID, n, told...)
		return
	}
	x.stands(e.ID, atReleased)
	events := x.toldSince(e.ID, n, append(told, "execution.resumed")...)
	last := x.came(e.ID, "")[len(row.counted)-1]
	if data := eventData(x.t, events[len(events)-1]); data["signal_id"] != last.SignalID.String() || *events[len(events)-1].Cause != events[len(events)-2].ID {
		x.t.Errorf("%+v", events[len(events)-1])
	}
	if s := x.suspensionClosed(e.ID, "resumed"); *s.CloserSignalID != last.SignalID.String() {
		x.t.Errorf("%+v", s)
	}
	x.observes(e.ID, row.counted, names)
	for _, w := range points {
		x.closedAs(e.ID, w, "resumed")
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
	}
	x.nothingWaits(e.ID)
}

// TestSignals: dedup, limits, and what reaches nobody. executions.md 2.17; 6.7/92; 5/23, 25.
func TestSignals(t *testing.T) {
	t.Parallel()
	runExecutionCases(t, signalsCases)
}

var twoSignals = countOf(2, "Signals", "", "go")

var signalsCases = []executionCase{
	{"the same idempotency key is a duplicate, whatever else it says (6.7/92)", func(x *executionTest) {
		e, _, points := x.waitsFor(twoSignals, "go")
		w := points[0]
		first := x.receipt(e.ID, w, `"idempotency_key":"k","payload":1`)
		if first.Outcome != "accepted" || first.Effect != appended {
			x.t.Errorf("%+v", first)
		}
		for _, members := range []string{`"idempotency_key":"k"`, `"idempotency_key":"k","payload":2,"signal_name":"other"`, `"idempotency_key":"k","signal_id":"` + uuid.NewString() + `"`} {
			x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, w, members) })
		}
		if got := x.signalled(e.ID, w, `"idempotency_key":"K"`); got != resumes {
			x.t.Errorf("%s", got)
		}
	}},
	{"the same signal id is a duplicate, at another waitpoint, too", func(x *executionTest) {
		e, _, points := x.waitsFor(countOf(2, "Waitpoints", "", "a", "b"), "a", "b")
		id := `"signal_id":"` + uuid.NewString() + `"`
		first := x.receipt(e.ID, points[0], id)
		x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, points[0], id) })
		x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, points[1], id) })
		x.advance(48 * time.Hour) // an id is recognised for as long as its execution is there
		x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, points[0], id) })
		other, _, others := x.waitsFor(twoSignals, "go")
		if got := x.receipt(other.ID, others[0], id); got.Outcome != "accepted" {
			x.t.Errorf("%+v", got)
		}
	}},
	{"an idempotency key is of one waitpoint", func(x *executionTest) {
		e, _, points := x.waitsFor(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")
		const key = `"idempotency_key":"k"`
		x.effects(e.ID, points, [2]string{"a " + key, appended}, [2]string{"b " + key, resumes})
	}},
	{"what woke it, sent again, is a duplicate although everything is closed", func(x *executionTest) {
		e, _, points := x.waitsFor(onSignal("go", wildcard), "go")
		w := points[0]
		const key = `"idempotency_key":"k"`
		first := x.receipt(e.ID, w, key)
		if first.Effect != resumes {
			x.t.Errorf("%+v", first)
		}
		again := func() *apitest.Response { return x.signal(e.ID, w, key) }
		byID := func() *apitest.Response { return x.signal(e.ID, w, `"signal_id":"`+first.SignalID.String()+`"`) }
		x.duplicateOf(e.ID, first, again)
		x.duplicateOf(e.ID, first, byID)
		x.refused(fault.CodeWaitpointClosed, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
		x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		x.duplicateOf(e.ID, first, again)
		x.duplicateOf(e.ID, first, byID)
		x.refused(fault.CodeTargetNotSignalable, func() *apitest.Response { return x.signal(e.ID, w, "") }, e.ID)
	}},
	{"an idempotency key is recognised for a day, or as long as is said", func(x *executionTest) {
		for _, row := range []struct {
			members string
			kept    time.Duration
		}{{"", 24 * time.Hour}, {`,"dedup_ttl_ms":60000`, time.Minute}} {
			e, _, points := x.waitsFor(countOf(3, "Signals", "", "go"), "go")
			members := `"idempotency_key":"k"` + row.members
			first := x.receipt(e.ID, points[0], members)
			x.advance(row.kept - time.Second)
			x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, points[0], members) })
			x.advance(time.Second)
			if second := x.receipt(e.ID, points[0], members); second.Outcome != "accepted" || second.SignalID == first.SignalID || second.Effect != appended {
				x.t.Errorf("%+v", second)
			}
			if n := x.stored("signals WHERE execution_id = ?", rowID(e.ID)); n != 2 {
				x.t.Errorf("%d signals are kept", n)
			}
		}
	}},
	{"an Idempotency-Key answers the same, and a refusal is not kept (http.md)", func(x *executionTest) {
		e, _, points := x.waitsFor(twoSignals, "go")
		key := "Idempotency-Key: signal-" + x.lane
		send := func(members string) *apitest.Response {
			return x.Post(operatorPath(e.ID, "signals"), executionJSON(members, `"waitpoint_id":"`+points[0].WaitpointID.String()+`"`, `"token":"`+points[0].Token+`"`, `"signal_name":"go"`), key)
		}
		x.refused(fault.CodeInvalidToken, func() *apitest.Response { return send(`"token":"x"`) }, e.ID)
		first := send("").Want(http.StatusOK)
		again := x.unchanged(http.StatusOK, func() *apitest.Response { return send("") }, e.ID)
		if again.Header.Get("Idempotent-Replay") != "true" || string(again.Body) != string(first.Body) {
			x.t.Errorf("first %s, then %s", first.Body, again.Body)
		}
		x.keptNowhere(points[0].Token)
	}},
	{"no more signals than the policy allows; duplicates are none, and those that do not match are (2.17, 7.2/22)", func(x *executionTest) {
		e, _, points := x.suspends(`"policy":{"max_signals_per_execution":3}`, waitOn(onSignal("go", byName("go")), "go")+`,"resume_policy":{"close_waitpoint_on_resume":false}`)
		w := points[0]
		const other = `"signal_name":"other"`
		first := x.receipt(e.ID, w, other+`,"idempotency_key":"k"`)
		x.signalled(e.ID, w, other)
		for range 3 {
			x.receipt(e.ID, w, `"idempotency_key":"k"`)
		}
		if got := x.signalled(e.ID, w, ""); got != resumes {
			x.t.Errorf("%s", got)
		}
		limited := func() *apitest.Response { return x.signal(e.ID, w, "") }
		answer := x.refused(fault.CodeSignalLimitExceeded, limited, e.ID)
		if answer.Int("limit") != 3 {
			x.t.Errorf("%s", answer.Body)
		}
		x.duplicateOf(e.ID, first, func() *apitest.Response { return x.signal(e.ID, w, `"idempotency_key":"k"`) })
		x.suspend(x.claim(lasting), waitAt(onSignal("go", wildcard), usePending(w)))
		x.refused(fault.CodeSignalLimitExceeded, limited, e.ID)
		x.refused(fault.CodeSignalLimitExceeded, func() *apitest.Response { return x.decide(e.ID, w.WaitpointID, "") }, e.ID)
		x.operated(e.ID, "resume", "") // the way out
	}},
	{"a limit of 0 is none (2.17)", func(x *executionTest) {
		e, _, points := x.suspends(`"policy":{"max_signals_per_execution":0}`, waitOn(operatorOnly, "go"))
		for range 5 {
			x.signalled(e.ID, points[0], "")
		}
	}},
	{"what came is told to who observes: all of it, byte for byte (6.7/106)", func(x *executionTest) {
		e, _, points := x.waitsFor(everyOf(onSignal("a", wildcard), onSignal("b", wildcard)), "a", "b")
		const payload = `{"z":12345678901234567890.10,"a":[1e400,-0,1.0,0.1e-7],"é":"\u00e9 ~","n":null}`
		first := x.receipt(e.ID, points[0], `"signal_category":"billing","source_type":"webhook","source_identity":"psp","correlation_id":"c-1","payload": `+strings.Replace(payload, `,"é"`, " ,\n\t\"é\"", 1))
		second := x.receipt(e.ID, points[1], `"payload":null`)
		got := x.came(e.ID, "")
		now := got[0].AcceptedAt
		want := []oapi.Signal{
			{SignalID: first.SignalID, WaitpointID: points[0].WaitpointID, WaitpointKey: "a", SignalName: "go", SignalCategory: "billing", SourceType: "webhook", SourceIdentity: "psp", CorrelationID: new("c-1"),
				AcceptedAt: now, Payload: oapi.Document(payload), Effect: appended},
			{SignalID: second.SignalID, WaitpointID: points[1].WaitpointID, WaitpointKey: "b", SignalName: "go", SignalCategory: "custom", SourceType: "external", AcceptedAt: got[1].AcceptedAt,
				Payload: oapi.Document("null"), Effect: resumes},
		}
		if diff := cmp.Diff(want, got); diff != "" || x.server.Clock.Now().Sub(now.Time()).Abs() > time.Second {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"signals are observed by the claim that they woke, and not by another attempt (6.7/106)", func(x *executionTest) {
		e := x.create(retryPolicy(1))
		c := x.claim(lasting)
		x.observes(e.ID, nil, nil)
		s := x.suspend(c, waitOn(onSignal("go", byName("go")), "go"))
		x.observes(e.ID, nil, nil)
		x.signalled(e.ID, s.Waitpoints[0], `"signal_name":"other"`)
		x.observes(e.ID, nil, []string{"other"})
		x.signalled(e.ID, s.Waitpoints[0], "")
		c = x.claim(lasting)
		x.observes(e.ID, []string{"go"}, []string{"other", "go"})
		x.report(c, "fail", `"reason":"x","retry_after_ms":0`).Want(http.StatusOK)
		x.advance(0)
		x.observes(e.ID, []string{"go"}, []string{"other", "go"}) // it is still the last attempt
		x.claim(lasting)
		x.observes(e.ID, nil, nil)
		x.refused(fault.CodeNotFound, func() *apitest.Response { return x.Get(operatorPath(uuid.New(), "signals")) })
	}},
	{"a page of large signals, or of large questions, ends after a mebibyte", func(x *executionTest) {
		e, _, points := x.waitsFor(countOf(100, "Signals", "", "a"), "a")
		payload := `"payload":"` + strings.Repeat("x", 250_000) + `"`
		for range 6 {
			x.receipt(e.ID, points[0], payload)
		}
		if sizes := x.paged(operatorPath(e.ID, "signals?limit=100"), func(answer *apitest.Response) int { return answer.Len("items") }); fmt.Sprint(sizes) != "[4 2]" {
			x.t.Errorf("%v", sizes)
		}
		e = x.create("")
		c := x.claim(lasting)
		for i := range 20 {
			x.prepared(c, fmt.Sprintf(`"waitpoint_key":"w%d","approval":{"title":"Deploy","payload":"%s"}`, i, strings.Repeat("x", 65_000)))
		}
		if sizes := x.paged(operatorPath(e.ID, "waitpoints?limit=100"), func(answer *apitest.Response) int { return answer.Len("items") }); fmt.Sprint(sizes) != "[16 4]" {
			x.t.Errorf("%v", sizes)
		}
	}},
	{"nobody signals in the name of decisions", func(x *executionTest) {
		e, _, points := x.waitsFor(onSignal("go", wildcard), "go")
		for _, source := range []string{"operator", "approval_link"} {
			answer := x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.signal(e.ID, points[0], from(source, "ada")) }, e.ID)
			if !bytes.Contains(answer.Body, []byte(`"/source_type"`)) {
				x.t.Errorf("%s", answer.Body)
			}
		}
	}},
	{"signals by pages, in the order in which they came", func(x *executionTest) {
		e, _, points := x.waitsFor(countOf(100, "Signals", "", "a", "b"), "a", "b")
		var want []uuid.UUID
		for i := range 5 {
			want = append(want, x.receipt(e.ID, points[i%2], "").SignalID)
		}
		var got []uuid.UUID
		sizes := x.paged(operatorPath(e.ID, "signals?limit=2"), func(answer *apitest.Response) int {
			items := answerAs[oapi.SignalList](answer).Items
			for _, s := range items {
				got = append(got, s.SignalID)
			}
			return len(items)
		})
		if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(sizes) != "[2 2 1]" {
			x.t.Errorf("%v (-want +got):\n%s", sizes, diff)
		}
	}},
	{"external events go on as before, and know nothing of waitpoints", func(x *executionTest) {
		e, _, points := x.waitsFor(onSignal("go", wildcard), "go")
		f := x.Post("/v1/flows", `{"goal":"x","start":true}`).Want(http.StatusCreated).Str("id")
		topic := quoted(x.lane)
		x.Post("/v1/flows/"+f+"/wait", `{"condition":{"kind":"external_event","topic":`+topic+`,"correlation_id":"go"}}`).Want(http.StatusOK)
		x.signalled(e.ID, points[0], `"signal_id":"9b1d7f64-0c2a-4e5b-8d19-7a3c5e9f2b0a","correlation_id":"go","signal_name":`+topic)
		if got := x.Get("/v1/flows/" + f).Want(http.StatusOK).Str("status"); got != "waiting" {
			x.t.Errorf("the flow is %s", got)
		}
		answer := x.Post("/v1/external-events", `{"event_id":"9b1d7f64-0c2a-4e5b-8d19-7a3c5e9f2b0a","topic":`+topic+`,"correlation_id":"go"}`)
		if answer.Status != http.StatusAccepted || answer.Len("matched") != 1 {
			x.t.Errorf("%d %s", answer.Status, answer.Body)
		}
		if got := x.Get("/v1/flows/" + f).Want(http.StatusOK).Str("status"); got != "running" {
			x.t.Errorf("the flow is %s", got)
		}
		buffered := x.Post("/v1/external-events", `{"topic":`+topic+`,"correlation_id":"kept"}`).Want(http.StatusAccepted)
		if buffered.Get("buffered") != true {
			x.t.Errorf("%s", buffered.Body)
		}
		x.advance(25 * time.Hour)
		if n := x.stored("signals WHERE execution_id = ?", rowID(e.ID)); n != 1 {
			x.t.Errorf("%d signals are kept", n) // only events expire
		}
	}},
	{"ten at once wake it once, and the others come too late (acceptance 5)", func(x *executionTest) {
		for _, approvals := range []bool{false, true} {
			e, _, points := x.suspends("", waitOn(onSignal("go", wildcard), "go"))
			n := len(x.events(e.ID))
			answers := atOnce(10, func(i int) *apitest.Response {
				if approvals {
					return x.decide(e.ID, points[0].WaitpointID, fmt.Sprintf(`"idempotency_suffix":"s%d"`, i))
				}
				return x.signal(e.ID, points[0], fmt.Sprintf(`"idempotency_key":"k%d"`, i))
			})
			x.onceWoken(e.ID, n, answers)
			x.report(x.claim(lasting), "complete", "").Want(http.StatusOK)
		}
	}},
	{"ten at once of a count of three wake it once (acceptance 5)", func(x *executionTest) {
		e, _, points := x.waitsFor(countOf(3, "Signals", "", "go"), "go")
		answers := atOnce(10, func(int) *apitest.Response { return x.signal(e.ID, points[0], "") })
		effects := map[string]int{}
		for _, answer := range answers {
			if answer.Status == http.StatusOK {
				effects[answer.Str("effect")]++
			} else {
				effects[string(fault.CodeWaitpointClosed)]++
				answer.Problem(fault.CodeWaitpointClosed)
			}
		}
		if diff := cmp.Diff(map[string]int{resumes: 1, appended: 2, "waitpoint_closed": 7}, effects); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
	}},
	{"signals that come while it suspends are not lost (5/29)", func(x *executionTest) {
		for range 5 {
			e := x.create("")
			c := x.claim(lasting)
			w := x.prepared(c, "")
			satisfied := false
			effects := map[string]int{}
			for i, answer := range atOnce(9, func(i int) *apitest.Response {
				if i == 4 {
					return x.report(c, "suspend", waitAt(countOf(8, "Signals", "", "go"), usePending(w)))
				}
				return x.signal(e.ID, w, "")
			}) {
				if answer.Want(http.StatusOK); i == 4 {
					satisfied = answer.Str("outcome") == "already_satisfied"
					continue
				}
				effects[answer.Str("effect")]++
			}
			if woken := effects[resumes] == 1; woken == satisfied || effects["buffered_for_pending_waitpoint"]+effects[appended]+effects[resumes] != 8 {
				x.t.Errorf("satisfied %v, %v", satisfied, effects)
			}
			if got := x.came(e.ID, ""); len(got) != 8 {
				x.t.Errorf("%d signals count", len(got))
			}
			if !satisfied {
				c = x.claim(lasting)
			}
			x.nothingWaits(e.ID)
			x.report(c, "complete", "").Want(http.StatusOK)
		}
	}},
	{"ten times the same at once is taken once (acceptance 5)", func(x *executionTest) {
		e, _, points := x.waitsFor(onSignal("go", wildcard), "go")
		n := len(x.events(e.ID))
		outcomes := map[string]int{}
		for _, answer := range atOnce(10, func(int) *apitest.Response { return x.signal(e.ID, points[0], `"idempotency_key":"k"`) }) {
			outcomes[answer.Want(http.StatusOK).Str("outcome")]++
		}
		if diff := cmp.Diff(map[string]int{"accepted": 1, "duplicate": 9}, outcomes); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.toldSince(e.ID, n, "signal.delivered", "execution.resumed")
	}},
}

// duplicateOf checks that a signal is answered as a duplicate of the first, and changes nothing.
func (x *executionTest) duplicateOf(id uuid.UUID, first oapi.SignalReceipt, call func() *apitest.Response) {
	x.t.Helper()
	again := answerAs[oapi.SignalReceipt](x.unchanged(http.StatusOK, call, id))
	if diff := cmp.Diff(oapi.SignalReceipt{Outcome: "duplicate", SignalID: first.SignalID, Effect: first.Effect}, again); diff != "" {
		x.t.Errorf("(-want +got):\n%s", diff)
	}
}

// onceWoken checks that of many that came at once one woke an execution, and the others came too late.
func (x *executionTest) onceWoken(id uuid.UUID, n int, answers []*apitest.Response) {
	x.t.Helper()
	woke := 0
	for _, answer := range answers {
		switch answer.Status {
		case http.StatusOK:
			if answer.Str("effect") != resumes || answer.Str("outcome") != "accepted" {
				x.t.Errorf("%s", answer.Body)
			}
			woke++
		default:
			answer.Problem(fault.CodeWaitpointClosed)
		}
	}
	if woke != 1 {
		x.t.Errorf("%d of them woke it", woke)
	}
	x.stands(id, atReleased)
	x.toldSince(id, n, "signal.delivered", "execution.resumed")
	if got := x.came(id, "?all=true"); len(got) != 1 {
		x.t.Errorf("%+v", got)
	}
}

// paged reads a list to its end, and returns the sizes of its pages.
func (x *executionTest) paged(path string, read func(answer *apitest.Response) int) []int {
	x.t.Helper()
	var sizes []int
	for next := path; ; {
		answer := x.Get(next).Want(http.StatusOK)
		sizes = append(sizes, read(answer))
		cursor := answer.Get("next_cursor")
		if cursor == nil {
			return sizes
		}
		next = path + "&cursor=" + fmt.Sprint(cursor)
	}
}
