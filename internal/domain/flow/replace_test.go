package flow_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
)

// TestReplace holds what PUT may make of each status. model.md "Revision".
func TestReplace(t *testing.T) {
	t.Parallel()
	other := wait.Spec{Condition: wait.Condition{Kind: wait.ExternalEvent, Topic: "a", CorrelationID: "b"}, OnTimeout: wait.TimeoutFails}
	tests := []struct {
		name    string
		from    flow.Status
		status  flow.Status
		wait    *wait.Spec
		open    int
		want    flow.Status
		code    fault.Code
		pointer string
	}{
		{name: "status left out", from: flow.Running, want: flow.Running},
		{name: "status unchanged", from: flow.Created, status: flow.Created, want: flow.Created},
		{name: "wait left out", from: flow.Waiting, status: flow.Waiting, want: flow.Waiting},
		{name: "wait unchanged", from: flow.Waiting, status: flow.Waiting, wait: &manual, want: flow.Waiting},
		{name: "wait changed", from: flow.Waiting, status: flow.Waiting, wait: &other, code: fault.CodeIllegalTransition},
		{name: "wait without status", from: flow.Waiting, wait: &other, code: fault.CodeIllegalTransition},
		{name: "wait of a running flow", from: flow.Running, status: flow.Running, wait: &manual, code: fault.CodeValidationFailed, pointer: "/wait"},
		{name: "starts", from: flow.Created, status: flow.Running, want: flow.Running},
		{name: "waits", from: flow.Running, status: flow.Waiting, wait: &other, want: flow.Waiting},
		{name: "waits for nothing", from: flow.Running, status: flow.Waiting, code: fault.CodeValidationFailed, pointer: "/wait"},
		{name: "waits too early", from: flow.Created, status: flow.Waiting, wait: &other, code: fault.CodeIllegalTransition},
		{name: "resumes", from: flow.Waiting, status: flow.Running, want: flow.Running},
		{name: "resumes with a wait", from: flow.Waiting, status: flow.Running, wait: &manual, code: fault.CodeValidationFailed, pointer: "/wait"},
		{name: "finishes", from: flow.Running, status: flow.Finished, want: flow.Finished},
		{name: "finishes with open members", from: flow.Running, status: flow.Finished, open: 2, code: fault.CodeOpenMembers},
		{name: "fails", from: flow.Waiting, status: flow.Failed, want: flow.Failed},
		{name: "is cancelled", from: flow.Created, status: flow.Cancelled, want: flow.Cancelled},
		{name: "is created again", from: flow.Running, status: flow.Created, code: fault.CodeIllegalTransition},
		{name: "has ended", from: flow.Finished, status: flow.Finished, code: fault.CodeAlreadyTerminal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := in(t, tt.from)
			r := flow.Replacement{Goal: "other", Kind: "k", State: json.RawMessage(`{"n":1}`), Tags: map[string]string{"a.b": "c"}, Status: tt.status, Wait: tt.wait}
			c, err := f.Replace(r, waitID, tt.open, by(9))
			if fault.CodeOf(err) != tt.code {
				t.Fatalf("Replace() = %v, want %q", err, tt.code)
			}
			if refused, ok := errors.AsType[*fault.Error](err); ok {
				if tt.pointer != "" && refused.Fields[0].Pointer != tt.pointer {
					t.Errorf("it points at %s, want %s", refused.Fields[0].Pointer, tt.pointer)
				}
				return
			}
			got := c.Flow
			if got.Status != tt.want || got.Revision != f.Revision+1 || len(c.Events) != 1 || (got.Wait != nil) != (tt.want == flow.Waiting) {
				t.Errorf("it is %s at revision %d with %d events and the wait %v", got.Status, got.Revision, len(c.Events), got.Wait)
			}
			if got.Goal != "other" || got.Kind != "k" || got.CurrentStep != "init" || got.Tags["a.b"] != "c" {
				t.Errorf("its fields are %+v", got)
			}
		})
	}
}

func TestReplace_Event(t *testing.T) {
	t.Parallel()
	f := must(t)(in(t, flow.Running).SetTag("a.b", "c", by(2)))
	c, err := f.Replace(flow.Replacement{Goal: "Release 1.4", ControllerID: "ci", CurrentStep: "build", State: json.RawMessage(`{"n": 1}`)}, waitID, 0, by(3))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c.Events[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"changed":["controller_id","current_step","tags"],"controller_id":"ci","current_step":"build"}`; string(data) != want {
		t.Errorf("the event says %s, want %s", data, want)
	}
	if diff := cmp.Diff([]string{"controller_id", "current_step", "tags"}, c.Flow.History.Since(2)); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
	if _, err := f.Replace(flow.Replacement{Goal: ""}, waitID, 0, by(3)); fault.CodeOf(err) != fault.CodeValidationFailed {
		t.Errorf("a blank goal: %v", err)
	}
	if _, err := f.Replace(flow.Replacement{Goal: "g", Tags: map[string]string{"x": ""}}, waitID, 0, by(3)); fault.CodeOf(err) != fault.CodeInvalidTagKey {
		t.Errorf("a bad tag: %v", err)
	}
}

func TestExpect(t *testing.T) {
	t.Parallel()
	ok := must(t)
	f := in(t, flow.Running)
	f = ok(f.Patch(flow.Patch{State: json.RawMessage(`{"m":1}`)}, by(2)))
	f = ok(f.SetTag("a.b", "c", by(3)))
	for _, tt := range []struct {
		revision int64
		changed  []string
	}{
		{3, nil}, {2, []string{"tags"}}, {1, []string{"state", "tags"}}, {0, []string{"state", "tags", "status"}}, {999, []string{}},
	} {
		err := f.Expect(&tt.revision)
		if tt.changed == nil {
			if err != nil {
				t.Errorf("Expect(%d) = %v", tt.revision, err)
			}
			continue
		}
		refused, found := errors.AsType[*fault.Error](err)
		if !found || refused.Code != fault.CodeRevisionMismatch {
			t.Fatalf("Expect(%d) = %v", tt.revision, err)
		}
		if diff := cmp.Diff(map[string]any{"expected": tt.revision, "actual": int64(3), "changed": tt.changed}, refused.Facts); diff != "" {
			t.Errorf("Expect(%d) (-want +got):\n%s", tt.revision, diff)
		}
	}
	if err := f.Expect(nil); err != nil {
		t.Errorf("Expect(nothing) = %v", err)
	}

	// beyond what is remembered, anything may have changed
	for i := range 40 {
		f = ok(f.SetTag("a.b", string(rune('a'+i)), by(4)))
	}
	if got := f.History.Since(11); len(f.History) != 32 || len(got) != 1 {
		t.Errorf("%d revisions are remembered, since 11 %v has changed", len(f.History), got)
	}
	if got := f.History.Since(10); len(got) != 13 {
		t.Errorf("since 10 %v may have changed", got)
	}
	text, err := json.Marshal(f.History[:1])
	if err != nil || string(text) != `[[12,["tags"]]]` {
		t.Errorf("the history is written as %s, %v", text, err)
	}
	var again flow.History
	if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(again, f.History[:1]) {
		t.Errorf("it is read as %v, %v", again, err)
	}
}
