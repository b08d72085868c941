package execution_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
)

// TestFail holds the rules of executions.md 2.9 and model.md together: what the policy allows, and retry_after.
func TestFail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		policy     string
		category   string
		retryAfter *time.Duration
		delay      time.Duration // -1 for the end
	}{
		{"no policy", ``, "transient", nil, -1},
		{"no retry policy", `{}`, "transient", nil, -1},
		{"empty retry policy", `{"retry_policy":{}}`, "", nil, time.Second},
		{"no retries", `{"retry_policy":{"max_retries":0}}`, "transient", nil, -1},
		{"permanent", policy, "permanent", nil, -1},
		{"cancelled", policy, "cancelled", nil, -1},
		{"permanent, although it is listed", `{"retry_policy":{"retryable_categories":["permanent"]}}`, "permanent", nil, -1},
		{"timeout", policy, "timeout", nil, 5 * time.Minute},
		{"infra_crash", policy, "infra_crash", nil, 5 * time.Minute},
		{"a word of the worker's own", policy, "flaky", nil, 5 * time.Minute},
		{"no category", policy, "", nil, 5 * time.Minute},
		{"a category that is not listed", `{"retry_policy":{"retryable_categories":["flaky"]}}`, "transient", nil, -1},
		{"no category, but a list", `{"retry_policy":{"retryable_categories":["flaky"]}}`, "", nil, -1},
		{"a category that is listed", `{"retry_policy":{"retryable_categories":["x","flaky"]}}`, "flaky", nil, time.Second},
		{"retry_after replaces the delay", policy, "transient", new(7 * time.Second), 7 * time.Second},
		{"retry_after of nothing", policy, "transient", new(time.Duration(0)), 0},
		{"retry_after does not make it retried", ``, "transient", new(time.Second), -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := active(t, func(in *execution.Create) { in.Policy = json.RawMessage(tt.policy) })
			c, _, err := e.Fail(e.Fence(), execution.Failure{Reason: "boom", Category: tt.category}, tt.retryAfter, after(20))
			if err != nil {
				t.Fatal(err)
			}
			got := c.Execution
			if tt.delay < 0 {
				if got.Public() != execution.PublicFailed || got.Retries != 0 || !got.Released.RetryAt.IsZero() {
					t.Errorf("%s after %d retries, %+v", got.Public(), got.Retries, got.Released)
				}
				return
			}
			until := after(20).Add(tt.delay)
			if got.Public() != execution.PublicDelayed || got.Retries != 1 || !got.DelayUntil.Equal(until) || !got.Released.RetryAt.Equal(until) || !got.DueAt().Equal(until) {
				t.Errorf("%s after %d retries until %s, want %s", got.Public(), got.Retries, got.DelayUntil, until)
			}
			if got.AttemptIndex != 0 || got.Attempts != 1 {
				t.Errorf("the index is %d of %d before the next claim", got.AttemptIndex, got.Attempts)
			}
		})
	}
}
