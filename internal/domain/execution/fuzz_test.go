package execution_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

// refusedAs fails unless err is a refusal with this code that points at one part of the body.
func refusedAs(t *testing.T, err error, code fault.Code, pointer string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Pointer, pointer) {
		t.Fatalf("refused with %#v", err)
	}
}

// FuzzHandle: a handle has one spelling, and whatever is none is refused.
func FuzzHandle(f *testing.F) {
	own := execution.Fence{ExecutionID: uuid.Max, LeaseID: uuid.UUID{1}, LeaseEpoch: 7, AttemptIndex: 3}.Handle()
	for _, seed := range []string{"", own, own + "=", own[:len(own)-1], "A" + own, strings.Repeat("_", len(own)), strings.Repeat("A", len(own)), own + "\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fence, err := execution.ParseAnyHandle(text)
		if err != nil {
			refusedAs(t, err, fault.CodeInvalidHandle, "/handle")
			if fence != (execution.Fence{}) {
				t.Fatalf("refused, and yet %+v", fence)
			}
			return
		}
		if fence.Handle() != text || fence.LeaseEpoch < 0 || fence.AttemptIndex < 0 || fence.Override {
			t.Fatalf("%+v is written as %q", fence, fence.Handle())
		}
		if same, err := execution.ParseHandle(text, fence.ExecutionID); err != nil || same != fence {
			t.Fatalf("for its own execution it is %+v, %v", same, err)
		}
		if _, err := execution.ParseHandle(text, uuid.UUID{0xfe}); fence.ExecutionID != (uuid.UUID{0xfe}) && fault.CodeOf(err) != fault.CodeInvalidHandle {
			t.Fatalf("for another execution it is refused with %v", err)
		}
	})
}

// FuzzCapabilities: a set of tokens is read as it is stored, and covers itself.
func FuzzCapabilities(f *testing.F) {
	for _, seed := range []string{"", "a", "b\na\nb", "a,b", "a b", "é\nÉ", "\x7f", "\xff", strings.Repeat("x", 5000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		tokens := strings.Split(lines, "\n")
		set, err := execution.NewCapabilities(tokens, "worker", "/capabilities")
		if err != nil {
			refusedAs(t, err, fault.CodeInvalidCapabilities, "/capabilities")
			return
		}
		if again := execution.ParseCapabilities(set.String()); !slices.Equal(set, again) || !set.Cover(again) || !slices.IsSorted(set) {
			t.Fatalf("%q is stored as %q", set, set.String())
		}
		for _, token := range tokens {
			if !set.Cover(execution.Capabilities{token}) {
				t.Fatalf("%q lacks %q", set, token)
			}
		}
	})
}

// FuzzPolicy: a policy is read as it is stored, and every delay that it gives can be waited.
func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `{"retry_policy":{"max_retries":3,"backoff":{"initial_delay_ms":1000,"multiplier":1e300,"max_delay_ms":0,"jitter":true}}}`,
		`{"retry_policy":{"backoff":{"multiplier":0}}}`, `{"retry_policy":{"backoff":{"type":"fixed","delay_ms":-1}},"stream_policy":{"retention_ttl_ms":1}}`,
		`{"timeout_policy":{"attempt_timeout_ms":9223372036854775807},"routing_requirements":{"required_capabilities":["a"]}}`,
		`{"retry_policy":{"backoff":{"initial_delay_ms":0,"multiplier":1e308}}}`,
	} {
		f.Add([]byte(seed), 5)
	}
	f.Fuzz(func(t *testing.T, doc []byte, retries int) {
		p, err := execution.ParsePolicy(doc, "/policy")
		if err != nil {
			refusedAs(t, err, fault.CodeValidationFailed, "/policy")
			return
		}
		stored, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := execution.ParsePolicy(stored, "/policy")
		if restored, _ := json.Marshal(again); err != nil || !reflect.DeepEqual(stored, restored) {
			t.Fatalf("stored as %s, read as %s, %v", stored, restored, err)
		}
		for _, n := range []int{0, 1, max(0, retries)} {
			if d := p.Delay(n, uuid.UUID{1}); d < 0 || d > 365*24*time.Hour {
				t.Fatalf("retry %d is after %s", n, d)
			}
		}
	})
}
