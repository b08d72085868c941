package execution_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// TestNew is the three rows of executions.md 1.11 that create, and 2.1.
func TestNew(t *testing.T) {
	t.Parallel()
	blank := func(change func(*execution.Execution)) execution.Execution {
		e := execution.Execution{ID: id(1), Namespace: "default", Lane: "ci", Kind: "shell", Vector: vector(t, waitingRow),
			PayloadEncoding: execution.EncodingJSON, CreatedAt: start, AttemptIndex: execution.NoAttempt}
		change(&e)
		return e
	}
	delayedTo := func(e *execution.Execution) {
		e.Vector, e.DelayUntil, e.BlockingDetail = vector(t, delayedRow), after(100), "delayed until 2026-11-21T09:31:40.000Z"
	}
	tests := []struct {
		name   string
		in     execution.Create
		want   func(*execution.Execution)
		public execution.Public
	}{
		{"now", execution.Create{}, func(*execution.Execution) {}, "waiting"},
		{"delayed", execution.Create{DelayUntil: after(100)}, delayedTo, "delayed"},
		{"delayed for a time", execution.Create{Delay: 100 * time.Second}, delayedTo, "delayed"},
		{"delayed until now is not delayed", execution.Create{DelayUntil: start}, func(*execution.Execution) {}, "waiting"},
		{"delayed until yesterday is not delayed", execution.Create{DelayUntil: after(-86400)}, func(*execution.Execution) {}, "waiting"},
		{"priority above the highest", execution.Create{Priority: 10000}, func(e *execution.Execution) { e.Priority = 9000 }, "waiting"},
		{"priority below the lowest", execution.Create{Priority: -5}, func(e *execution.Execution) { e.Priority = 0 }, "waiting"},
		{"priority between", execution.Create{Priority: 50}, func(e *execution.Execution) { e.Priority = 50 }, "waiting"},
		{"deadline", execution.Create{DeadlineAt: after(1)}, func(e *execution.Execution) { e.DeadlineAt = after(1) }, "waiting"},
		{
			"deadline of the policy", execution.Create{Policy: json.RawMessage(`{"timeout_policy":{"execution_deadline_ms":5000}}`)},
			func(e *execution.Execution) {
				e.DeadlineAt, e.Policy = after(5), json.RawMessage(`{"timeout_policy":{"execution_deadline_ms":5000}}`)
			}, "waiting",
		},
		{
			"its own deadline wins over the policy's",
			execution.Create{DeadlineAt: after(9), Policy: json.RawMessage(`{"timeout_policy":{"execution_deadline_ms":5000}}`)},
			func(e *execution.Execution) {
				e.DeadlineAt, e.Policy = after(9), json.RawMessage(`{"timeout_policy":{"execution_deadline_ms":5000}}`)
			}, "waiting",
		},
		{
			"requirements of both kinds", execution.Create{Required: []string{"linux", "go"}, Policy: json.RawMessage(`{"routing_requirements":{"required_capabilities":["gpu","go"]}}`)},
			func(e *execution.Execution) {
				e.Required, e.Policy = execution.Capabilities{"go", "gpu", "linux"}, json.RawMessage(`{"routing_requirements":{"required_capabilities":["gpu","go"]}}`)
			}, "waiting",
		},
		{
			"a member of a flow that has not started", execution.Create{FlowID: id(9), Key: "build", Paused: true}, func(e *execution.Execution) {
				e.FlowID, e.Key = id(9), "build"
				e.Vector = vector(t, "runnable unowned blocked_by_lane_state paused_by_policy none pending_first_attempt")
				e.BlockingDetail = "the flow has not been started"
			}, "waiting",
		},
		{
			"payload", execution.Create{Payload: &execution.Value{Bytes: []byte{0, 1}, Encoding: execution.EncodingBase64}},
			func(e *execution.Execution) { e.Payload, e.PayloadEncoding = []byte{0, 1}, execution.EncodingBase64 }, "waiting",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.ID, tt.in.Namespace, tt.in.Lane, tt.in.Kind = id(1), "default", "ci", "shell"
			got, err := execution.New(tt.in, start)
			if err != nil {
				t.Fatal(err)
			}
			want := blank(tt.want)
			if diff := cmp.Diff(want, got.Execution); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !got.Execution.Legal() || got.Execution.Public() != tt.public {
				t.Errorf("legal %t, public state %s, want %s", got.Execution.Legal(), got.Execution.Public(), tt.public)
			}
			told := []string{fmt.Sprintf(`execution.created {"lane":"ci","kind":"shell","priority":%d,"public_state":"%s"}`, want.Priority, tt.public)}
			if diff := cmp.Diff(told, events(t, got)); diff != "" || got.Attempts != nil {
				t.Errorf("%d attempts, events (-want +got):\n%s", len(got.Attempts), diff)
			}
		})
	}
}

func TestNew_Refusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		in      execution.Create
		code    fault.Code
		pointer string
	}{
		{"deadline now", execution.Create{DeadlineAt: start}, fault.CodeTimerOutOfRange, "/deadline_at"},
		{"deadline of the policy now", execution.Create{Policy: json.RawMessage(`{"timeout_policy":{"execution_deadline_ms":0}}`)}, fault.CodeTimerOutOfRange, "/deadline_at"},
		{"multiplier", execution.Create{Policy: json.RawMessage(`{"retry_policy":{"backoff":{"multiplier":0}}}`)}, fault.CodeValidationFailed, "/policy/retry_policy/backoff/multiplier"},
		{"policy", execution.Create{Policy: json.RawMessage(`{"retry_policy":7}`)}, fault.CodeValidationFailed, "/policy"},
		{"capability", execution.Create{Required: []string{"a,b"}}, fault.CodeInvalidCapabilities, "/required_capabilities"},
		{
			"capability of the policy", execution.Create{Policy: json.RawMessage(`{"routing_requirements":{"required_capabilities":[""]}}`)},
			fault.CodeInvalidCapabilities, "/policy/routing_requirements/required_capabilities",
		},
		{"tag", execution.Create{Tags: map[string]string{"Team": "x"}}, fault.CodeInvalidTagKey, "/tags/Team"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := execution.New(tt.in, start)
			refused(t, err, tt.code, tt.pointer)
			if diff := cmp.Diff(execution.Change{}, c); diff != "" {
				t.Errorf("a refusal made something: %s", diff)
			}
		})
	}
}

// refused checks the code of a refusal, and its pointer if there should be one.
func refused(tb testing.TB, err error, code fault.Code, pointer string) {
	tb.Helper()
	if fault.CodeOf(err) != code {
		tb.Fatalf("got %v, want %s", err, code)
	}
	f, _ := err.(*fault.Error) //nolint:errorlint // the machine returns it bare
	if pointer != "" && (len(f.Fields) != 1 || f.Fields[0].Pointer != pointer || f.Fields[0].Code != code) {
		tb.Errorf("got fields %v, want %s", f.Fields, pointer)
	}
}
