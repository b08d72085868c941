package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/apitest"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

const day = 24 * time.Hour

// flowWaitCases: runs-and-taskflows.md C5: wait engine (NE), tool (NT-09 to 12); B13 4, 5, 10 and 11.
var flowWaitCases = []flowCase{
	{"a timer resumes when it is due (NE-01, NT-10)", func(x *flowTest) {
		at := x.now().Add(5 * time.Minute)
		f := x.waiting(timerAt(at))
		if string(f.Wait.Condition) != timerAt(at) {
			x.t.Errorf("condition %s, want %s", f.Wait.Condition, timerAt(at))
		}
		x.reach(at)
		got := x.stands(f.ID, "running", 3)
		x.state(got, `{"n":1}`)
		e, data := x.last(f.ID)
		if e.Type != "flow.resumed" || e.Actor != "engine" || data["by"] != "timer" || data["wait_id"] != f.Wait.WaitID.String() || e.At.Time().Before(at) {
			x.t.Errorf("%+v %v", e, data)
		}
		x.same(func() *apitest.Response { x.advance(time.Hour); return x.Get(flowPath(f.ID)) }, f.ID) // tick after tick: nothing
	}},
	{"a timer does not fire before its time (NE-02)", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		f := x.waiting(timerAt(at))
		x.reach(at.Add(-5 * time.Minute))
		x.stands(f.ID, "waiting", 2)
		x.reach(at)
		x.stands(f.ID, "running", 3)
	}},
	{"a timer fires by itself (engine.md: background loops)", func(x *flowTest) {
		f := x.waiting(manual, `"deadline":`+spelled(x.now().Add(200*time.Millisecond)), `"on_timeout":"fail"`)
		ended := x.Get(flowPath(f.ID)+"?until=terminal", "Prefer: wait=20").Want(http.StatusOK)
		if ended.Str("status") != "failed" || ended.Header.Get("Preference-Applied") != "wait=20" {
			x.t.Errorf("%v %s", ended.Header, ended.Body)
		}
	}},
	{"an external event resumes, and time does not (NE-03)", func(x *flowTest) {
		f := x.waiting(outside("deploy.finished", "rel-1.4"))
		x.advance(day)
		x.stands(f.ID, "waiting", 2)
		receipt := x.deliver("deploy.finished", "rel-1.4", `"event_id":"e1","payload":{"ok":true}`)
		want := oapi.ExternalEventReceipt{EventID: "e1", Matched: []oapi.MatchedWait{{FlowID: f.ID, WaitID: f.Wait.WaitID}}}
		if diff := cmp.Diff(want, receipt); diff != "" {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.state(x.stands(f.ID, "running", 3), `{"n":1,"resume_event":{"ok":true}}`)
		e, data := x.last(f.ID)
		told := map[string]any{"wait_id": f.Wait.WaitID.String(), "by": "external_event", "event_id": "e1", "topic": "deploy.finished", "correlation_id": "rel-1.4",
			"payload": map[string]any{"ok": true}}
		if diff := cmp.Diff(told, data); diff != "" || e.Actor != "local" {
			x.t.Errorf("%s (-want +got):\n%s", e.Actor, diff)
		}
	}},
	{"a wrong topic or correlation id wakes nobody (NE-04, D5 41)", func(x *flowTest) {
		f := x.waiting(outside("deploy", "r1"))
		for i, e := range [][2]string{{"deployed", "r1"}, {"deploy", "r2"}, {"Deploy", "r1"}, {"deploy ", "r1"}, {"deploy", "R1"}, {"r1", "deploy"}, {"deploy", "r1%"}} {
			if receipt := x.deliver(e[0], e[1]); !receipt.Buffered || len(receipt.Matched) != 0 || receipt.EventID == "" {
				x.t.Errorf("%d: %+v", i, receipt)
			}
		}
		x.stands(f.ID, "waiting", 2)
	}},
	{"a person answers a manual wait, and nothing else does (NE-05)", func(x *flowTest) {
		f := x.waiting(manual)
		x.deliver("manual", "x")
		x.advance(40 * day)
		x.stands(f.ID, "waiting", 2)
		x.state(x.do(f.ID, "resume", `{"state":{"approved_by":"ada"}}`), `{"n":1,"approved_by":"ada"}`)
	}},
	{"a waiting flow whose cancellation is requested is cancelled, not resumed (NE-06)", func(x *flowTest) {
		f := x.waiting(manual)
		x.do(f.ID, "request-cancel", `{"reason":"superseded"}`)
		x.advance(0)
		got := x.stands(f.ID, "cancelled", 4)
		if !got.CancelRequested || *got.Cancellation.Reason != "superseded" || *got.Cancellation.Policy != "cancel_all" || got.Cancellation.Actor != "local" {
			x.t.Errorf("%+v", got.Cancellation)
		}
		x.told(f.ID, "flow.created", "flow.started", "flow.waiting", "flow.cancel_requested", "flow.cancelled")
		if e, data := x.last(f.ID); e.Actor != "engine" || data["wait_id"] != f.Wait.WaitID.String() {
			x.t.Errorf("%+v %v", e, data)
		}
		if len(x.inbox("")) != 0 {
			x.t.Error("the inbox still shows the wait")
		}
	}},
	{"an event for a flow that does not wait is kept, and changes nothing (NE-09)", func(x *flowTest) {
		f := x.at("running")
		if receipt := x.deliver("t", "c", `"payload":1`); !receipt.Buffered {
			x.t.Errorf("%+v", receipt)
		}
		x.stands(f.ID, "running", 1)
	}},
	{"conditions come back as they were sent (NE-10)", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		for _, condition := range []string{
			timerAt(at), outside("t", "c"), outside(" spaces kept ", "ünï/cødé\t"), manual, anyOf(manual), anyOf(outside("a", "b"), timerAt(at)),
			allOf(outside("a", "b"), anyOf(manual, timerAt(at))),
		} {
			f := x.waiting(condition)
			for _, got := range []oapi.Flow{f, x.flow(f.ID)} {
				if diff := cmp.Diff(docAs[any](x.t, []byte(condition)), docAs[any](x.t, got.Wait.Condition)); diff != "" {
					x.t.Errorf("(-sent +got):\n%s", diff)
				}
			}
		}
		offset := x.waiting(`{"kind":"timer","at":"` + at.In(time.FixedZone("", 2*3600)).Format(time.RFC3339Nano) + `"}`)
		if string(offset.Wait.Condition) != timerAt(at.Truncate(time.Millisecond)) {
			x.t.Errorf("%s, want %s", offset.Wait.Condition, timerAt(at))
		}
	}},
	{"times lie in the future and within the horizon (NT-09, NT-12)", func(x *flowTest) {
		f := x.at("running")
		for _, tt := range []struct{ body, pointer, says string }{
			{waitBody(x.after(-time.Minute)), "/condition/at", "must be in the future"},
			{waitBody(x.after(0)), "/condition/at", "must be in the future"},
			{waitBody(x.after(60 * day)), "/condition/at", "max horizon of 30 days"},
			{waitBody(x.after(30*day + time.Hour)), "/condition/at", "max horizon"},
			{waitBody(anyOf(manual, allOf(outside("a", "b"), x.after(-time.Second)))), "/condition/of/1/of/1/at", "future"},
			{waitBody(manual, `"deadline":`+spelled(x.now().Add(-time.Minute))), "/deadline", "future"},
			{waitBody(manual, `"deadline":`+spelled(x.now().Add(31*day))), "/deadline", "max horizon"},
		} {
			answer := x.refused(fault.CodeTimerOutOfRange, func() *apitest.Response { return x.verb(f.ID, "wait", tt.body) }, f.ID)
			x.points(answer, fault.InBody, tt.pointer)
			if !strings.Contains(answer.Str("detail"), tt.says) {
				x.t.Errorf("%s does not say %q", answer.Str("detail"), tt.says)
			}
		}
		x.park(f.ID, x.after(30*day-time.Hour))
	}},
	{"a condition that is not one is refused, with the place (NT-11, B13 10)", func(x *flowTest) {
		f := x.at("running")
		at := x.after(time.Hour)
		deep := anyOf(anyOf(anyOf(manual)))
		for condition, pointer := range map[string]string{
			`{}`: "/condition/kind", `{"kind":"signal"}`: "/condition/kind", `{"kind":7}`: "/condition/kind", `[]`: "/condition", `"manual"`: "/condition", `7`: "/condition",
			`null`: "/condition", `{"kind":"timer"}`: "/condition/at", `{"kind":"timer","at":"soon"}`: "/condition/at", `{"kind":"timer","at":1700000000}`: "/condition/at",
			`{"kind":"timer","at":null}`: "/condition/at", `{"kind":"external_event","topic":" \t","correlation_id":"c"}`: "/condition/topic",
			`{"kind":"external_event","topic":"t"}`: "/condition/correlation_id", `{"kind":"external_event","topic":"t","correlation_id":""}`: "/condition/correlation_id",
			`{"kind":"external_event","topic":1,"correlation_id":"c"}`: "/condition/topic", outside(strings.Repeat("t", 257), "c"): "/condition/topic",
			`{"kind":"manual","signal":"x"}`: "/condition/signal", `{"kind":"any"}`: "/condition/of", `{"kind":"any","of":[]}`: "/condition/of", `{"kind":"any","of":{}}`: "/condition/of",
			anyOf(manual, `{"kind":"x"}`): "/condition/of/1/kind", deep: "/condition/of/0/of/0/of/0", anyOf(at, allOf(manual, `{"kind":"timer"}`)): "/condition/of/1/of/1/at",
			anyOf(slices.Repeat([]string{manual}, 33)...): "/condition/of/32",
		} {
			x.points(x.refused(fault.CodeBadWaitCondition, func() *apitest.Response { return x.verb(f.ID, "wait", waitBody(condition)) }, f.ID), fault.InBody, pointer)
		}
		x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.verb(f.ID, "wait", `{}`) }, f.ID), fault.InBody, "/condition")
		x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.verb(f.ID, "wait", waitBody(manual, `"on_timeout":"explode"`)) }, f.ID), fault.InBody, "/on_timeout")
		x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.verb(f.ID, "wait", waitBody(manual, `"deadline":"tomorrow"`)) }, f.ID), fault.InBody, "/deadline")
	}},
	{"any: the first one counts", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		condition := anyOf(outside("a", "1"), manual, timerAt(at))
		byEvent, byTimer, byPerson := x.waiting(condition), x.waiting(condition), x.waiting(condition)
		x.deliver("a", "1", `"flow_id":"`+byEvent.ID.String()+`","payload":"first"`)
		x.state(x.stands(byEvent.ID, "running", 3), `{"n":1,"resume_event":"first"}`)
		x.do(byPerson.ID, "resume", "")
		x.reach(at)
		x.state(x.stands(byTimer.ID, "running", 3), `{"n":1}`)
		if _, data := x.last(byTimer.ID); data["by"] != "timer" {
			x.t.Errorf("%v", data)
		}
		x.stands(byEvent.ID, "running", 3)
	}},
	{"all: the last one counts, and the earlier are told", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		f := x.waiting(allOf(outside("a", "1"), outside("b", "2"), timerAt(at)))
		x.deliver("b", "2", `"event_id":"eb","payload":2`)
		if receipt := x.deliver("b", "2", `"event_id":"eb2"`); !receipt.Buffered {
			x.t.Errorf("a part that was met takes another event: %+v", receipt)
		}
		x.stands(f.ID, "waiting", 2)
		x.reach(at)
		x.stands(f.ID, "waiting", 2)
		x.deliver("a", "1", `"event_id":"ea","payload":1`)
		x.state(x.stands(f.ID, "running", 3), `{"n":1,"resume_event":1}`)
		_, data := x.last(f.ID)
		want := []any{map[string]any{"event_id": "eb", "topic": "b", "correlation_id": "2", "payload": 2.0}}
		if diff := cmp.Diff(any(want), data["earlier"]); diff != "" || data["event_id"] != "ea" {
			x.t.Errorf("%v (-want +got):\n%s", data, diff)
		}
	}},
	{"all of a timer and a person is for a person alone", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		f := x.waiting(allOf(timerAt(at), manual))
		x.reach(at)
		x.stands(f.ID, "waiting", 2)
		x.do(f.ID, "resume", "")
	}},
	{"the deadline resumes, fails or cancels", func(x *flowTest) {
		at := x.now().Add(time.Hour)
		wait := func(more ...string) uuid.UUID {
			return x.waiting(manual, append(more, `"deadline":`+spelled(at))...).ID
		}
		resumes, fails, cancels, byDefault := wait(`"on_timeout":"resume"`), wait(`"on_timeout":"fail"`), wait(`"on_timeout":"cancel"`), wait()
		if w := x.flow(resumes).Wait; w.OnTimeout != "resume" || !w.Deadline.Time().Equal(at.Truncate(time.Millisecond)) {
			x.t.Errorf("%+v", w)
		}
		x.reach(at)
		x.state(x.stands(resumes, "running", 3), `{"n":1}`)
		if e, data := x.last(resumes); data["by"] != "timeout" || e.Actor != "engine" {
			x.t.Errorf("%v", data)
		}
		for _, id := range []uuid.UUID{fails, byDefault} {
			if f := x.stands(id, "failed", 3); f.Failure.Reason != "wait_timeout" {
				x.t.Errorf("%+v", f.Failure)
			}
		}
		if f := x.stands(cancels, "cancelled", 3); *f.Cancellation.Reason != "wait_timeout" || f.Cancellation.Actor != "engine" {
			x.t.Errorf("%+v", f.Cancellation)
		}
	}},
	{"the earlier of condition and deadline decides, however late it is seen", func(x *flowTest) {
		soon, late := x.now().Add(time.Hour), x.now().Add(2*time.Hour)
		deadlineFirst := x.waiting(timerAt(late), `"deadline":`+spelled(soon))
		timerFirst := x.waiting(timerAt(soon), `"deadline":`+spelled(late))
		both := x.waiting(timerAt(soon), `"deadline":`+spelled(soon))
		x.advance(3 * time.Hour)
		x.stands(deadlineFirst.ID, "failed", 3)
		x.stands(timerFirst.ID, "running", 3)
		x.stands(both.ID, "running", 3)
	}},
	{"a re-parked flow is not woken by what was meant for an earlier wait (B13 4)", func(x *flowTest) {
		soon, late := x.now().Add(time.Hour), x.now().Add(3*time.Hour)
		f := x.waiting(anyOf(timerAt(soon), outside("t", "1")), `"deadline":`+spelled(soon.Add(time.Minute)))
		x.do(f.ID, "resume", "")
		again := x.park(f.ID, anyOf(timerAt(late), outside("t", "2")))
		x.reach(soon.Add(time.Hour))
		if receipt := x.deliver("t", "1"); !receipt.Buffered {
			x.t.Errorf("%+v", receipt)
		}
		if got := x.stands(f.ID, "waiting", 4); got.Wait.WaitID != again.Wait.WaitID {
			x.t.Errorf("it waits for %s, want %s", got.Wait.WaitID, again.Wait.WaitID)
		}
		x.reach(late)
		x.stands(f.ID, "running", 5)
	}},
	{"an event wakes each wait once, however often it is sent (model.md: external events)", func(x *flowTest) {
		f := x.waiting(outside("t", "c"))
		first := x.send("t", "c", `"event_id":"e1","payload":{"n":1}`).Want(http.StatusAccepted)
		x.park(f.ID, outside("t", "c"))
		again := x.same(func() *apitest.Response { return x.send("t", "c", `"event_id":"e1","payload":{ "n" : 1 }`) }, f.ID).Want(http.StatusAccepted)
		if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" || first.Header.Get("Idempotent-Replay") != "" {
			x.t.Errorf("first %s, again %v %s", first.Body, again.Header, again.Body)
		}
		for _, other := range [][]string{
			{"t", "c", `"payload":{"n":2}`}, {"t", "c"}, {"t", "d", `"payload":{"n":1}`}, {"u", "c", `"payload":{"n":1}`},
			{"t", "c", `"payload":{"n":1}`, `"flow_id":"` + f.ID.String() + `"`},
		} {
			x.refused(fault.CodeAlreadyExists, func() *apitest.Response {
				return x.send(other[0], other[1], append(other[2:], `"event_id":"e1"`)...)
			}, f.ID)
		}
		x.stands(f.ID, "waiting", 4)
		x.deliver("t", "c", `"event_id":"e2"`)
		x.stands(f.ID, "running", 5)
		x.advance(day + time.Minute) // its id is known for a day
		if receipt := x.deliver("t", "c", `"event_id":"e1","payload":"other"`); !receipt.Buffered {
			x.t.Errorf("%+v", receipt)
		}
	}},
}

// flowExternalEventCases: model.md "External events"; B13 5; D5 41.
var flowExternalEventCases = []flowCase{
	{"one that came before the wait is consumed by it, once, the oldest first", func(x *flowTest) {
		for i := range 3 {
			if receipt := x.deliver("t", "c", fmt.Sprintf(`"event_id":"e%d","payload":%d`, i, i)); !receipt.Buffered {
				x.t.Errorf("%+v", receipt)
			}
		}
		f := x.at("running")
		for i := range 3 {
			got := x.park(f.ID, outside("t", "c"))
			if got.Status != "running" || got.Revision != int64(3+2*i) {
				x.t.Errorf("%+v", got)
			}
			x.state(got, fmt.Sprintf(`{"n":1,"resume_event":%d}`, i))
		}
		if got := x.park(f.ID, outside("t", "c")); got.Status != "waiting" {
			x.t.Errorf("a fourth wait found a fourth event: %+v", got)
		}
		x.told(f.ID, "flow.created", "flow.started", "flow.waiting", "flow.resumed", "flow.waiting", "flow.resumed", "flow.waiting", "flow.resumed", "flow.waiting")
		replay := x.send("t", "c", `"event_id":"e0","payload":0`).Want(http.StatusAccepted)
		if replay.Get("buffered") != true || replay.Header.Get("Idempotent-Replay") != "true" {
			x.t.Errorf("%s", replay.Body)
		}
		x.stands(f.ID, "waiting", 8)
	}},
	{"one for a flow reaches that flow only, now or later", func(x *flowTest) {
		a, b := x.waiting(outside("t", "c")), x.waiting(outside("t", "c"))
		receipt := x.deliver("t", "c", `"flow_id":"`+b.ID.String()+`"`)
		if len(receipt.Matched) != 1 || receipt.Matched[0].FlowID != b.ID {
			x.t.Errorf("%+v", receipt)
		}
		x.stands(a.ID, "waiting", 2)
		x.stands(b.ID, "running", 3)
		if receipt := x.deliver("t", "c", `"flow_id":"`+b.ID.String()+`","payload":"for b"`); !receipt.Buffered {
			x.t.Errorf("%+v", receipt)
		}
		x.do(a.ID, "resume", "")
		x.park(a.ID, outside("t", "c"))
		x.stands(a.ID, "waiting", 4)
		x.state(x.park(b.ID, outside("t", "c")), `{"n":1,"resume_event":"for b"}`)
	}},
	{"one reaches every wait that listens", func(x *flowTest) {
		a, b, c := x.waiting(outside("t", "c")), x.waiting(anyOf(manual, outside("t", "c"))), x.waiting(allOf(outside("u", "c"), outside("t", "c")))
		other := x.waiting(outside("t", "d"))
		receipt := x.deliver("t", "c", `"payload":7`)
		want := []uuid.UUID{a.ID, b.ID, c.ID}
		got := []uuid.UUID{}
		for _, m := range receipt.Matched {
			got = append(got, m.FlowID)
		}
		byText := func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }
		slices.SortFunc(want, byText)
		slices.SortFunc(got, byText)
		if diff := cmp.Diff(want, got); diff != "" || receipt.Buffered {
			x.t.Errorf("(-want +got):\n%s", diff)
		}
		x.stands(a.ID, "running", 3)
		x.stands(b.ID, "running", 3)
		x.stands(c.ID, "waiting", 2)
		x.stands(other.ID, "waiting", 2)
	}},
	{"one that nobody wants is kept for a day", func(x *flowTest) {
		x.deliver("t", "kept", "")
		x.deliver("t", "lost", "")
		x.advance(day - time.Hour)
		x.stands(x.waiting(outside("t", "kept")).ID, "running", 3)
		x.advance(2 * time.Hour)
		x.stands(x.waiting(outside("t", "lost")).ID, "waiting", 2)
	}},
	{"its payload becomes resume_event of a state that is an object", func(x *flowTest) {
		for _, tt := range []struct{ state, payload, want string }{
			{`{"a":1}`, `{"b":2}`, `{"a":1,"resume_event":{"b":2}}`},
			{`{"resume_event":"old"}`, `[1]`, `{"resume_event":[1]}`},
			{`{"a":1}`, `null`, `{"a":1,"resume_event":null}`},
			{`[1,2]`, `{"b":2}`, `[1,2]`},
			{`"text"`, `1`, `"text"`},
			{`null`, `1`, `null`},
		} {
			f := x.running(`"state":` + tt.state)
			x.park(f.ID, outside("t", f.ID.String()))
			x.deliver("t", f.ID.String(), `"payload":`+tt.payload)
			x.state(x.stands(f.ID, "running", 3), tt.want)
			if _, data := x.last(f.ID); !cmp.Equal(docAs[any](x.t, []byte(tt.payload)), data["payload"]) {
				x.t.Errorf("the event says %v", data)
			}
		}
		f := x.waiting(outside("t", "without"))
		x.deliver("t", "without")
		x.state(x.stands(f.ID, "running", 3), `{"n":1}`)
	}},
	{"all of several: what is kept counts, what is missing is waited for", func(x *flowTest) {
		x.deliver("a", "1", `"payload":"kept"`)
		f := x.waiting(allOf(outside("a", "1"), outside("b", "2")))
		x.stands(f.ID, "waiting", 2)
		x.deliver("b", "2", `"payload":"live"`)
		x.state(x.stands(f.ID, "running", 3), `{"n":1,"resume_event":"live"}`)
		x.stands(x.waiting(outside("a", "1")).ID, "waiting", 2) // it was consumed
	}},
	{"any of several consumes one only", func(x *flowTest) {
		x.deliver("a", "1", `"payload":"older"`)
		x.deliver("b", "2", `"payload":"newer"`)
		x.state(x.waiting(anyOf(outside("b", "2"), outside("a", "1"))), `{"n":1,"resume_event":"older"}`)
		x.state(x.waiting(outside("b", "2")), `{"n":1,"resume_event":"newer"}`)
	}},
	{"a wait and its event at the same moment find each other", func(x *flowTest) {
		for i := range 8 {
			f, correlation := x.at("running"), fmt.Sprint("c", i)
			answers := flowsAtOnce(2, func(j int) *apitest.Response {
				if j == 0 {
					return x.verb(f.ID, "wait", waitBody(outside("t", correlation)))
				}
				return x.send("t", correlation, `"payload":true`)
			})
			answers[0].Want(http.StatusOK)
			answers[1].Want(http.StatusAccepted)
			x.state(x.stands(f.ID, "running", 3), `{"n":1,"resume_event":true}`)
		}
	}},
	{"the same event many times at once wakes once", func(x *flowTest) {
		f := x.waiting(outside("t", "c"))
		for _, answer := range flowsAtOnce(8, func(int) *apitest.Response { return x.send("t", "c", `"event_id":"e","payload":1`) }) {
			if got := flowAs[oapi.ExternalEventReceipt](answer.Want(http.StatusAccepted)); len(got.Matched) != 1 || got.Buffered {
				x.t.Errorf("%s", answer.Body)
			}
		}
		x.stands(f.ID, "running", 3)
		x.stands(x.waiting(outside("t", "c")).ID, "waiting", 2)
	}},
	{"names that no wait can have are refused", func(x *flowTest) {
		for body, pointer := range map[string]string{
			`{"correlation_id":"c"}`: "/topic", `{"topic":"t"}`: "/correlation_id", `{"topic":" ","correlation_id":"c"}`: "/topic", `{"topic":"t","correlation_id":"\t"}`: "/correlation_id",
			`{"topic":"t","correlation_id":"` + strings.Repeat("c", 257) + `"}`: "/correlation_id", `{"topic":"t","correlation_id":"c","event_id":""}`: "/event_id",
			`{"topic":"t","correlation_id":"c","flow_id":"x"}`: "/flow_id", `{"topic":"t","correlation_id":"c","signal":1}`: "/signal",
		} {
			x.points(x.refused(fault.CodeValidationFailed, func() *apitest.Response { return x.Post("/v1/external-events", body) }), fault.InBody, pointer)
		}
	}},
}

// flowInboxCases: GET /v1/inbox, model.md "One kernel".
func flowInboxCases() []flowCase {
	return []flowCase{
		{"it has the waits that a person can answer, newest first", func(x *flowTest) {
			at := x.now().Add(time.Hour)
			one := x.create(`"goal":"Release 1.4","controller_id":"ci/release","start":true`)
			one = x.park(one.ID, manual, `"deadline":`+spelled(at))
			x.advance(time.Second)
			two := x.waiting(anyOf(outside("t", "c"), allOf(manual, timerAt(at))))
			x.waiting(outside("t", "c"))
			x.waiting(timerAt(at))
			want := []oapi.InboxItem{
				{Kind: "flow_wait", WaitID: two.Wait.WaitID, FlowID: &two.ID, Title: "Release 1.4", RequestedBy: new("local"), Since: two.Wait.Since, Actions: []string{"resume", "fail", "cancel"}},
				{Kind: "flow_wait", WaitID: one.Wait.WaitID, FlowID: &one.ID, Title: "Release 1.4", RequestedBy: new("ci/release"), Since: one.Wait.Since, DeadlineAt: one.Wait.Deadline,
					Actions: []string{"resume", "fail", "cancel"}},
			}
			if diff := cmp.Diff(want, x.inbox("")); diff != "" {
				x.t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want[1:], x.inbox("?flow_id="+one.ID.String())); diff != "" {
				x.t.Errorf("of one flow (-want +got):\n%s", diff)
			}
			if len(x.inbox("?kind=flow_wait")) != 2 || len(x.inbox("?kind=gate")) != 0 || len(x.inbox("?kind=waitpoint")) != 0 {
				x.t.Error("kind is not respected")
			}
			first := x.Get("/v1/inbox?limit=1").Want(http.StatusOK)
			second := x.Get("/v1/inbox?limit=1&cursor=" + first.Str("next_cursor")).Want(http.StatusOK)
			if first.Str("items.0.wait_id") != two.Wait.WaitID.String() || second.Str("items.0.wait_id") != one.Wait.WaitID.String() || second.Get("next_cursor") != nil {
				x.t.Errorf("page by page: %s, %s", first.Body, second.Body)
			}
		}},
		{"what was answered, has ended or was put off is not in it any more", func(x *flowTest) {
			resume, fail, cancel, timeout := x.waiting(manual), x.waiting(manual), x.waiting(manual), x.waiting(manual, `"deadline":`+spelled(x.now().Add(time.Hour)))
			for _, action := range []struct {
				f    oapi.Flow
				verb string
				body string
			}{{resume, "resume", ""}, {fail, "fail", `{"reason":"no"}`}, {cancel, "cancel", ""}} {
				if len(x.inbox("?flow_id="+action.f.ID.String())) != 1 {
					x.t.Errorf("%s is not in the inbox", action.verb)
				}
				x.do(action.f.ID, action.verb, action.body)
			}
			x.advance(2 * time.Hour)
			x.stands(timeout.ID, "failed", 3)
			if got := x.inbox(""); len(got) != 0 {
				x.t.Errorf("%+v", got)
			}
		}},
		{"it says what the flow is called now", func(x *flowTest) {
			f := x.waiting(manual)
			f.Goal, f.ControllerID = "Release 1.5", "ops"
			x.put(f.ID, f.Revision, f).Want(http.StatusOK)
			if got := x.inbox(""); len(got) != 1 || got[0].Title != "Release 1.5" || *got[0].RequestedBy != "ops" {
				x.t.Errorf("%+v", got)
			}
		}},
	}
}
