package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

var (
	id     = uuid.MustParse("01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01")
	waitID = uuid.MustParse("01985c3f-1a10-7b3e-8b52-4f1d8e6a4b06")
	start  = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	manual = wait.Spec{Condition: wait.Condition{Kind: wait.Manual}, OnTimeout: wait.TimeoutFails}
)

func by(seconds int) event.By {
	return event.By{Actor: "token:ci", At: start.Add(time.Duration(seconds) * time.Second)}
}

// must returns the flow that a verb makes.
func must(tb testing.TB) func(flow.Change, error) flow.Flow {
	tb.Helper()
	return func(c flow.Change, err error) flow.Flow {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return c.Flow
	}
}

// in returns a flow in a status.
func in(tb testing.TB, s flow.Status) flow.Flow {
	tb.Helper()
	ok := must(tb)
	f := ok(flow.New(flow.Create{ID: id, Namespace: "default", Goal: "Release 1.4", State: json.RawMessage(`{"n":1}`)}, by(0)))
	if s == flow.Created {
		return f
	}
	if s != flow.Cancelled {
		f = ok(f.Start(by(1)))
	}
	switch s {
	case flow.Waiting:
		return ok(f.Park(waitID, manual, by(2)))
	case flow.Finished:
		return ok(f.Finish(nil, 0, by(2)))
	case flow.Failed:
		return ok(f.Fail("no", by(2)))
	case flow.Cancelled:
		return ok(f.Cancel(flow.CancelRequest{Policy: flow.CancelAll, Reason: "enough"}, by(2)))
	default:
		return f
	}
}

// TestTransitions holds the whole machine: each verb from each status, without and with a pending cancellation.
// reference: runs-and-taskflows.md B4; model.md "Flow".
func TestTransitions(t *testing.T) {
	t.Parallel()
	const (
		ok       = ""
		illegal  = string(fault.CodeIllegalTransition)
		ended    = string(fault.CodeAlreadyTerminal)
		pending  = string(fault.CodeCancelPending)
		nothing  = "nothing" // no error, and nothing changes
		statuses = 6
	)
	type row struct {
		to      flow.Status
		call    func(flow.Flow) (flow.Change, error)
		want    [statuses]string // created, running, waiting, finished, failed, cancelled
		pending [3]string        // created, running, waiting with the cancellation requested
	}
	verbs := map[string]row{
		"start":  {flow.Running, func(f flow.Flow) (flow.Change, error) { return f.Start(by(9)) }, [6]string{ok, illegal, illegal, ended, ended, ended}, [3]string{pending, pending, pending}},
		"wait":   {flow.Waiting, func(f flow.Flow) (flow.Change, error) { return f.Park(waitID, manual, by(9)) }, [6]string{illegal, ok, illegal, ended, ended, ended}, [3]string{pending, pending, pending}},
		"resume": {flow.Running, func(f flow.Flow) (flow.Change, error) { return f.Resume(nil, by(9)) }, [6]string{illegal, illegal, ok, ended, ended, ended}, [3]string{pending, pending, pending}},
		"finish": {flow.Finished, func(f flow.Flow) (flow.Change, error) { return f.Finish(nil, 0, by(9)) }, [6]string{illegal, ok, illegal, ended, ended, ended}, [3]string{pending, pending, pending}},
		"fail":   {flow.Failed, func(f flow.Flow) (flow.Change, error) { return f.Fail("no", by(9)) }, [6]string{illegal, ok, ok, ended, ended, ended}, [3]string{illegal, ok, ok}},
		"cancel": {flow.Cancelled, func(f flow.Flow) (flow.Change, error) {
			return f.Cancel(flow.CancelRequest{Policy: flow.CancelAll, Reason: ""}, by(9))
		}, [6]string{ok, ok, ok, ended, ended, nothing}, [3]string{ok, ok, ok}},
		"request-cancel": {"", func(f flow.Flow) (flow.Change, error) { return f.RequestCancel("", by(9)), nil }, [6]string{ok, ok, ok, nothing, nothing, nothing}, [3]string{nothing, nothing, nothing}},
		"patch": {"", func(f flow.Flow) (flow.Change, error) {
			return f.Patch(flow.Patch{State: json.RawMessage(`{}`)}, by(9))
		}, [6]string{ok, ok, ok, ended, ended, ended}, [3]string{pending, pending, pending}},
		"put": {"", func(f flow.Flow) (flow.Change, error) {
			return f.Replace(flow.Replacement{Goal: "x"}, waitID, 0, by(9))
		}, [6]string{ok, ok, ok, ended, ended, ended}, [3]string{pending, pending, pending}},
		"set tag": {"", func(f flow.Flow) (flow.Change, error) { return f.SetTag("team.name", "x", by(9)) }, [6]string{ok, ok, ok, ok, ok, ok}, [3]string{ok, ok, ok}},
	}
	for name, verb := range verbs {
		for i, from := range flow.Statuses() {
			check := func(t *testing.T, f flow.Flow, want string) {
				t.Helper()
				got, err := verb.call(f)
				if want == nothing {
					if err != nil || len(got.Events) != 0 || got.Flow.Revision != f.Revision {
						t.Errorf("%s of a flow that is %s: %v and %d events, want nothing", name, from, err, len(got.Events))
					}
					return
				}
				if string(fault.CodeOf(err)) != want {
					t.Fatalf("%s of a flow that is %s: %v, want %q", name, from, err, want)
				}
				if want != ok {
					return
				}
				to := verb.to
				if to == "" {
					to = from
				}
				if got.Flow.Status != to || got.Flow.Revision != f.Revision+1 || len(got.Events) != 1 {
					t.Errorf("%s of a flow that is %s makes it %s at revision %d with %d events", name, from, got.Flow.Status, got.Flow.Revision, len(got.Events))
				}
			}
			t.Run(fmt.Sprintf("%s from %s", name, from), func(t *testing.T) {
				t.Parallel()
				check(t, in(t, from), verb.want[i])
				if i < len(verb.pending) {
					check(t, in(t, from).RequestCancel("", by(8)).Flow, verb.pending[i])
				}
			})
		}
	}
}

func TestGuard_Facts(t *testing.T) {
	t.Parallel()
	facts := func(err error) map[string]any {
		f, ok := errors.AsType[*fault.Error](err)
		if !ok {
			t.Fatalf("%v is not a refusal", err)
		}
		return f.Facts
	}
	_, err := in(t, flow.Created).Park(waitID, manual, by(9))
	if diff := cmp.Diff(map[string]any{"from": flow.Created, "to": flow.Waiting}, facts(err)); diff != "" {
		t.Errorf("illegal_transition (-want +got):\n%s", diff)
	}
	_, err = in(t, flow.Failed).Start(by(9))
	if diff := cmp.Diff(map[string]any{"current_status": flow.Failed}, facts(err)); diff != "" {
		t.Errorf("already_terminal (-want +got):\n%s", diff)
	}
	_, err = in(t, flow.Running).Finish(nil, 3, by(9))
	if diff := cmp.Diff(map[string]any{"count": 3}, facts(err)); diff != "" || fault.CodeOf(err) != fault.CodeOpenMembers {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	running, _ := in(t, flow.Running), 0
	err = running.Ended()
	if fault.CodeOf(err) != fault.CodeNotTerminal {
		t.Errorf("deleting a running flow: %v", err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, s := range flow.Statuses() {
		if want := slices.Contains([]flow.Status{flow.Finished, flow.Failed, flow.Cancelled}, s); s.Terminal() != want {
			t.Errorf("Terminal(%s) = %v", s, s.Terminal())
		}
		if s.Terminal() != (len(s.Successors()) == 0) {
			t.Errorf("%s has the successors %v", s, s.Successors())
		}
	}
	if flow.Status("done").Terminal() {
		t.Error("an unknown status is an end")
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	c, err := flow.New(flow.Create{ID: id, Namespace: "n", Goal: "g", Start: true, Tags: map[string]string{"cairn.instance_id": "i7"}}, by(0))
	if err != nil {
		t.Fatal(err)
	}
	want := flow.Flow{
		ID: id, Namespace: "n", Goal: "g", CurrentStep: "init", State: json.RawMessage(`{}`), Status: flow.Running, Revision: 1,
		Tags: map[string]string{"cairn.instance_id": "i7"}, CreatedAt: start, UpdatedAt: start,
		History: flow.History{{Revision: 1, Fields: []string{"status"}}},
	}
	if diff := cmp.Diff(want, c.Flow); diff != "" {
		t.Errorf("New() (-want +got):\n%s", diff)
	}
	var types []event.Type
	for _, e := range c.Events {
		types = append(types, e.Type)
		if e.InstanceTag != "i7" || e.FlowID != id || e.Namespace != "n" || e.Actor != "token:ci" {
			t.Errorf("event %+v", e)
		}
	}
	if !slices.Equal(types, []event.Type{event.FlowCreated, event.FlowStarted}) || *c.Events[0].Revision != 0 || *c.Events[1].Revision != 1 {
		t.Errorf("events %v", types)
	}
	for _, tt := range []struct {
		in   flow.Create
		code fault.Code
	}{
		{flow.Create{Goal: " "}, fault.CodeValidationFailed},
		{flow.Create{Goal: "g", Tags: map[string]string{"Team": "x"}}, fault.CodeInvalidTagKey},
	} {
		if _, err := flow.New(tt.in, by(0)); fault.CodeOf(err) != tt.code {
			t.Errorf("New(%+v) = %v, want %s", tt.in, err, tt.code)
		}
	}
}

// TestVerbs holds what each verb does to the flow beside its status. reference: runs-and-taskflows.md C5 (manager).
func TestVerbs(t *testing.T) {
	t.Parallel()
	ok := must(t)
	deadline := start.Add(time.Hour)
	spec := wait.Spec{Condition: wait.Condition{Kind: wait.ExternalEvent, Topic: "a", CorrelationID: "b"}, Deadline: deadline, OnTimeout: wait.TimeoutResumes}

	f := ok(in(t, flow.Running).Park(waitID, spec, by(2)))
	if diff := cmp.Diff(&flow.Wait{ID: waitID, Spec: spec, Since: by(2).At}, f.Wait); diff != "" {
		t.Errorf("the wait (-want +got):\n%s", diff)
	}
	f = ok(f.Resume(json.RawMessage(`{"m": 2}`), by(3)))
	if f.Wait != nil || string(f.State) != `{"n":1,"m":2}` || f.Revision != 3 {
		t.Errorf("after resume: wait %v, state %s, revision %d", f.Wait, f.State, f.Revision)
	}
	f = ok(f.Finish(json.RawMessage(`{"n":null}`), 0, by(4)))
	if string(f.State) != `{"n":null,"m":2}` || !f.EndedAt.Equal(by(4).At) {
		t.Errorf("after finish: state %s, ended %v", f.State, f.EndedAt)
	}
	if f = ok(f.SetTag("a.b", "c", by(5))); !f.EndedAt.Equal(by(4).At) || !f.UpdatedAt.Equal(by(5).At) {
		t.Errorf("a tag moves the end to %v, the update to %v", f.EndedAt, f.UpdatedAt)
	}

	f = ok(in(t, flow.Waiting).Fail("broken", by(3)))
	if diff := cmp.Diff(&flow.Failure{Reason: "broken", At: by(3).At}, f.Failure); diff != "" || f.Wait != nil || string(f.State) != `{"n":1}` {
		t.Errorf("after fail: wait %v, state %s, failure (-want +got):\n%s", f.Wait, f.State, diff)
	}
	if _, err := in(t, flow.Running).Fail("  ", by(3)); fault.CodeOf(err) != fault.CodeValidationFailed {
		t.Errorf("fail without a reason: %v", err)
	}

	f = ok(in(t, flow.Waiting).Cancel(flow.CancelRequest{Policy: flow.FlowOnly, Reason: ""}, by(3)))
	if diff := cmp.Diff(&flow.Cancellation{Policy: flow.FlowOnly, Actor: "token:ci", RequestedAt: by(3).At}, f.Cancellation); diff != "" || f.Wait != nil || f.CancelRequested {
		t.Errorf("after cancel: wait %v, requested %v (-want +got):\n%s", f.Wait, f.CancelRequested, diff)
	}

	// who asked first is kept
	f = in(t, flow.Running).RequestCancel("superseded", by(3)).Flow
	if diff := cmp.Diff(&flow.Cancellation{Reason: "superseded", Actor: "token:ci", RequestedAt: by(3).At}, f.Cancellation); diff != "" {
		t.Errorf("after request-cancel (-want +got):\n%s", diff)
	}
	f = ok(f.Cancel(flow.CancelRequest{Policy: flow.CancelPending, Reason: "other"}, event.By{Actor: "token:ops", At: by(4).At}))
	if diff := cmp.Diff(&flow.Cancellation{Policy: flow.CancelPending, Reason: "superseded", Actor: "token:ci", RequestedAt: by(3).At}, f.Cancellation); diff != "" {
		t.Errorf("after request-cancel and cancel (-want +got):\n%s", diff)
	}
	again := ok(f.Cancel(flow.CancelRequest{Policy: flow.FlowOnly, Reason: "third"}, by(5)))
	if diff := cmp.Diff(f, again); diff != "" {
		t.Errorf("cancelled twice (-first +second):\n%s", diff)
	}

	// a draining controller can still say why
	f = ok(in(t, flow.Waiting).RequestCancel("", by(3)).Flow.Fail("drained", by(4)))
	if !f.CancelRequested || f.Failure.Reason != "drained" {
		t.Errorf("failed while cancelling: %+v", f)
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	step := "publish"
	tests := []struct {
		name  string
		patch flow.Patch
		state string
		step  string
	}{
		{"shallow", flow.Patch{State: json.RawMessage(`{"n":null,"m":{"x":1}}`), Merge: flow.MergeShallow}, `{"n":null,"m":{"x":1}}`, "init"},
		{"rfc7396", flow.Patch{State: json.RawMessage(`{"n":null,"m":{"x":null}}`), Merge: flow.MergeRFC7396}, `{"m":{}}`, "init"},
		{"shallow, null", flow.Patch{State: json.RawMessage(`null`), Merge: flow.MergeShallow}, `null`, "init"},
		{"rfc7396, null begins again", flow.Patch{State: json.RawMessage(`null`), Merge: flow.MergeRFC7396}, `{}`, "init"},
		{"list", flow.Patch{State: json.RawMessage(`[1]`), Merge: flow.MergeRFC7396}, `[1]`, "init"},
		{"step", flow.Patch{CurrentStep: &step}, `{"n":1}`, "publish"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := must(t)(in(t, flow.Waiting).Patch(tt.patch, by(9)))
			if string(f.State) != tt.state || f.CurrentStep != tt.step || f.Revision != 3 {
				t.Errorf("state %s, step %s, revision %d", f.State, f.CurrentStep, f.Revision)
			}
		})
	}
	if c, err := in(t, flow.Running).Patch(flow.Patch{}, by(9)); err != nil || len(c.Events) != 0 {
		t.Errorf("a patch of nothing: %v and %d events", err, len(c.Events))
	}
}

func TestSetTag(t *testing.T) {
	t.Parallel()
	f := must(t)(in(t, flow.Running).SetTag("a.b", "1", by(9)))
	if c, err := f.SetTag("a.b", "1", by(10)); err != nil || len(c.Events) != 0 {
		t.Errorf("the same value again: %v and %d events", err, len(c.Events))
	}
	for i := range 63 {
		f = must(t)(f.SetTag(fmt.Sprintf("n.t%d", i), "", by(9)))
	}
	if _, err := f.SetTag("one.more", "", by(9)); fault.CodeOf(err) != fault.CodeValidationFailed {
		t.Errorf("the 65th tag: %v", err)
	}
	if _, err := f.SetTag("Bad", "", by(9)); fault.CodeOf(err) != fault.CodeInvalidTagKey {
		t.Errorf("a bad key: %v", err)
	}
	if _, err := f.SetTag("a.b", strings.Repeat("x", 1025), by(9)); fault.CodeOf(err) != fault.CodeValidationFailed {
		t.Errorf("a long value: %v", err)
	}
}

// TestDecided holds what becomes of a flow when its wait is decided. reference: runs-and-taskflows.md B7, G-TK.
func TestDecided(t *testing.T) {
	t.Parallel()
	payload := wait.Signal{ID: "e1", Topic: "a", CorrelationID: "b", Payload: json.RawMessage(`{"ok":true}`)}
	bare := wait.Signal{ID: "e2", Topic: "a", CorrelationID: "b"}
	engine := event.By{Actor: "engine", At: by(9).At}
	tests := []struct {
		name      string
		state     string
		on        wait.OnTimeout
		requested bool
		outcome   wait.Outcome
		status    flow.Status
		want      string // state
		data      string
	}{
		{"timer", `{}`, wait.TimeoutFails, false, wait.Outcome{By: wait.ByTimer}, flow.Running, `{}`, `{"wait_id":"W","by":"timer"}`},
		{"event", `{"n":1}`, wait.TimeoutFails, false, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{payload}}, flow.Running, `{"n":1,"resume_event":{"ok":true}}`, `{"wait_id":"W","by":"external_event","event_id":"e1","topic":"a","correlation_id":"b","payload":{"ok":true}}`},
		{"event, again", `{"resume_event":1,"n":1}`, wait.TimeoutFails, false, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{payload}}, flow.Running, `{"resume_event":{"ok":true},"n":1}`, `{"wait_id":"W","by":"external_event","event_id":"e1","topic":"a","correlation_id":"b","payload":{"ok":true}}`},
		{"event without payload", `{"n":1}`, wait.TimeoutFails, false, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{bare}}, flow.Running, `{"n":1}`, `{"wait_id":"W","by":"external_event","event_id":"e2","topic":"a","correlation_id":"b"}`},
		{"event, state is a list", `[1]`, wait.TimeoutFails, false, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{payload}}, flow.Running, `[1]`, `{"wait_id":"W","by":"external_event","event_id":"e1","topic":"a","correlation_id":"b","payload":{"ok":true}}`},
		{"two events", `{}`, wait.TimeoutFails, false, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{bare, payload}}, flow.Running, `{"resume_event":{"ok":true}}`, `{"wait_id":"W","by":"external_event","event_id":"e1","topic":"a","correlation_id":"b","payload":{"ok":true},"earlier":[{"event_id":"e2","topic":"a","correlation_id":"b"}]}`},
		{"timeout resumes", `{}`, wait.TimeoutResumes, false, wait.Outcome{By: wait.ByTimeout, Received: []wait.Signal{payload}}, flow.Running, `{}`, `{"wait_id":"W","by":"timeout"}`},
		{"timeout fails", `{}`, wait.TimeoutFails, false, wait.Outcome{By: wait.ByTimeout}, flow.Failed, `{}`, `{"reason":"wait_timeout","wait_id":"W"}`},
		{"timeout cancels", `{}`, wait.TimeoutCancels, false, wait.Outcome{By: wait.ByTimeout}, flow.Cancelled, `{}`, `{"policy":"cancel_all","reason":"wait_timeout","wait_id":"W"}`},
		{"cancel requested, timer", `{}`, wait.TimeoutFails, true, wait.Outcome{By: wait.ByTimer}, flow.Cancelled, `{}`, `{"policy":"cancel_all","reason":"enough","wait_id":"W"}`},
		{"cancel requested, event", `{}`, wait.TimeoutFails, true, wait.Outcome{By: wait.BySignal, Received: []wait.Signal{payload}}, flow.Cancelled, `{}`, `{"policy":"cancel_all","reason":"enough","wait_id":"W"}`},
		{"cancel requested, timeout", `{}`, wait.TimeoutFails, true, wait.Outcome{By: wait.ByTimeout}, flow.Cancelled, `{}`, `{"policy":"cancel_all","reason":"enough","wait_id":"W"}`},
		{"cancel requested", `{}`, wait.TimeoutFails, true, wait.Outcome{By: wait.ByOwner}, flow.Cancelled, `{}`, `{"policy":"cancel_all","reason":"enough","wait_id":"W"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ok := must(t)
			f := ok(flow.New(flow.Create{ID: id, Goal: "g", State: json.RawMessage(tt.state), Start: true}, by(0)))
			f = ok(f.Park(waitID, wait.Spec{Condition: manual.Condition, OnTimeout: tt.on}, by(1)))
			if tt.requested {
				f = f.RequestCancel("enough", by(2)).Flow
			}
			c, err := f.Decided(tt.outcome, engine)
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(c.Events[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tt.data, `"W"`, `"`+waitID.String()+`"`)
			if len(c.Events) != 1 || c.Flow.Status != tt.status || string(c.Flow.State) != tt.want || c.Flow.Wait != nil || string(data) != want {
				t.Errorf("it is %s with state %s and %s, want %s, %s and %s", c.Flow.Status, c.Flow.State, data, tt.status, tt.want, want)
			}
		})
	}
	if _, err := in(t, flow.Running).Decided(wait.Outcome{By: wait.ByTimer}, engine); fault.CodeOf(err) != fault.CodeIllegalTransition {
		t.Errorf("a running flow was resumed: %v", err)
	}
}
