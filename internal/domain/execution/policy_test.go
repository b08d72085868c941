package execution_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
)

func policyOf(tb testing.TB, doc string) execution.Policy {
	tb.Helper()
	p, err := execution.ParsePolicy([]byte(doc), "/policy")
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func backoff(members string) string { return `{"retry_policy":{"backoff":{` + members + `}}}` }

// TestPolicy_Delay holds the golden values of executions.md 2.9: min(initial·multiplier^retries, max), or the fixed delay.
func TestPolicy_Delay(t *testing.T) {
	t.Parallel()
	const year = 31536000000
	tests := []struct {
		name    string
		members string
		want    map[int]int64 // milliseconds before the retry number n
	}{
		{"nothing said", ``, map[int]int64{0: 1000, 1: 2000, 2: 4000, 3: 8000, 4: 16000, 5: 32000, 6: 60000, 7: 60000, 5000: 60000}},
		{"exponential", `"type":"exponential","initial_delay_ms":100,"multiplier":3,"max_delay_ms":5000`, map[int]int64{0: 100, 1: 300, 2: 900, 3: 2700, 4: 5000, 100: 5000}},
		{"a fraction", `"initial_delay_ms":1000,"multiplier":1.5`, map[int]int64{0: 1000, 1: 1500, 2: 2250, 3: 3375, 4: 5062}},
		{"no growth", `"multiplier":1`, map[int]int64{0: 1000, 1: 1000, 77: 1000}},
		{"shrinking", `"multiplier":0.5`, map[int]int64{0: 1000, 1: 500, 2: 250}},
		{"first above the longest", `"initial_delay_ms":9000,"max_delay_ms":500`, map[int]int64{0: 500, 1: 500}},
		{"at once", `"initial_delay_ms":0`, map[int]int64{0: 0, 1: 0, 1023: 0, 1024: 0, 1000000: 0}},
		{"at once, by the longest", `"max_delay_ms":0`, map[int]int64{0: 0, 9: 0, 5000: 0}},
		{"as long as can be", `"initial_delay_ms":31536000000,"multiplier":1000,"max_delay_ms":31536000000`, map[int]int64{0: year, 1: year, 1000000: year}},
		{"fixed", `"type":"fixed"`, map[int]int64{0: 1000, 1: 1000, 50: 1000}},
		{"fixed delay", `"type":"fixed","delay_ms":250`, map[int]int64{0: 250, 1: 250, 50: 250}},
		{"fixed, at once", `"type":"fixed","delay_ms":0`, map[int]int64{0: 0, 1: 0}},
		{"fixed looks at nothing else", `"type":"fixed","initial_delay_ms":7,"max_delay_ms":8,"multiplier":9`, map[int]int64{0: 1000, 3: 1000}},
		{"exponential looks at nothing else", `"delay_ms":7`, map[int]int64{0: 1000, 1: 2000}},
	}
	for _, tt := range tests {
		p := policyOf(t, backoff(tt.members))
		for n, want := range tt.want {
			if got := p.Delay(n, id(1)); got != time.Duration(want)*time.Millisecond {
				t.Errorf("%s: before retry %d: %s, want %d ms", tt.name, n, got, want)
			}
		}
	}
	if got := policyOf(t, ``).Delay(1, id(1)); got != 2*time.Second {
		t.Errorf("without a policy: %s", got)
	}
}

// TestPolicy_Delay_Jitter: with jitter the delay lies between half of it and all of it, is the same for the same question,
// and is spread over executions and retries.
func TestPolicy_Delay_Jitter(t *testing.T) {
	t.Parallel()
	p, plain := policyOf(t, backoff(`"jitter":true,"initial_delay_ms":10000,"max_delay_ms":1000000`)), policyOf(t, backoff(`"initial_delay_ms":10000,"max_delay_ms":1000000`))
	seen := map[time.Duration]bool{}
	for n := range byte(100) {
		for retries := range 5 {
			full := plain.Delay(retries, id(n))
			got := p.Delay(retries, id(n))
			if got < full/2 || got > full || got != p.Delay(retries, id(n)) {
				t.Fatalf("retry %d: %s of %s", retries, got, full)
			}
			seen[got] = true
		}
	}
	if len(seen) < 250 {
		t.Errorf("500 delays have %d values", len(seen))
	}
}

// TestPolicy_Delay_Property: the k-th delay against the formula, and never a negative or an endless one.
func TestPolicy_Delay_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		initial := rapid.Int64Range(0, 31536000000).Draw(t, "initial")
		longest := rapid.Int64Range(0, 31536000000).Draw(t, "max")
		multiplier := rapid.Float64Range(1, 1000).Draw(t, "multiplier")
		retries := rapid.IntRange(0, 1000000).Draw(t, "retries")
		doc := backoff(fmt.Sprintf(`"initial_delay_ms":%d,"max_delay_ms":%d,"multiplier":%g`, initial, longest, multiplier))
		p, err := execution.ParsePolicy([]byte(doc), "/policy")
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		if initial > 0 {
			want = int64(math.Min(float64(initial)*math.Pow(multiplier, float64(retries)), float64(longest)))
		}
		if got := p.Delay(retries, uuid.Nil).Milliseconds(); got != want {
			t.Errorf("%s: before retry %d: %d ms, want %d", doc, retries, got, want)
		}
	})
}

// TestPolicy_Retries: executions.md 1.6 and 2.9. Without a retry policy there are no retries; with one, three.
func TestPolicy_Retries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		policy   string
		category string
		want     int // how many retries there are
	}{
		{``, "transient", 0},
		{`{}`, "transient", 0},
		{`{"retry_policy":null}`, "transient", 0},
		{`{"retry_policy":{}}`, "transient", 3},
		{`{"retry_policy":{"max_retries":0}}`, "transient", 0},
		{`{"retry_policy":{"max_retries":7}}`, "", 7},
		{`{"retry_policy":{"max_retries":7}}`, "permanent", 0},
		{`{"retry_policy":{"max_retries":7}}`, "cancelled", 0},
		{`{"retry_policy":{"max_retries":7}}`, "timeout", 7},
		{`{"retry_policy":{"max_retries":7,"retryable_categories":[]}}`, "x", 7},
		{`{"retry_policy":{"max_retries":7,"retryable_categories":["x"]}}`, "x", 7},
		{`{"retry_policy":{"max_retries":7,"retryable_categories":["x"]}}`, "X", 0},
		{`{"retry_policy":{"max_retries":7,"retryable_categories":["x"]}}`, "", 0},
	}
	for _, tt := range tests {
		p, n := policyOf(t, tt.policy), 0
		for n < 100 && p.Retries(tt.category, n) {
			n++
		}
		if n != tt.want {
			t.Errorf("%s: %d retries of %q, want %d", tt.policy, n, tt.category, tt.want)
		}
	}
}

func TestPolicy_Limits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		policy   string
		reclaims int
		attempt  time.Duration
		dedup    time.Duration
	}{
		{``, 100, 0, 24 * time.Hour},
		{`{"max_reclaim_count":0,"dedup_window_ms":0}`, 0, 0, 0},
		{`{"max_reclaim_count":7,"timeout_policy":{"max_reclaim_count":9,"attempt_timeout_ms":1500}}`, 7, 1500 * time.Millisecond, 24 * time.Hour},
		{`{"timeout_policy":{"max_reclaim_count":9,"attempt_timeout_ms":0},"dedup_window_ms":60000}`, 9, 0, time.Minute},
		{`{"timeout_policy":{"attempt_timeout_ms":null}}`, 100, 0, 24 * time.Hour},
	}
	for _, tt := range tests {
		p := policyOf(t, tt.policy)
		if p.MaxReclaims() != tt.reclaims || p.AttemptTimeout() != tt.attempt || p.Dedup() != tt.dedup {
			t.Errorf("%s: %d takeovers, %s an attempt, %s for a key", tt.policy, p.MaxReclaims(), p.AttemptTimeout(), p.Dedup())
		}
	}
}

func TestParsePolicy_Refusals(t *testing.T) {
	t.Parallel()
	for doc, pointer := range map[string]string{
		`{`: "/at", `[]`: "/at", `{"retry_policy":{"max_retries":"3"}}`: "/at",
		backoff(`"multiplier":0`): "/at/retry_policy/backoff/multiplier", backoff(`"multiplier":-1`): "/at/retry_policy/backoff/multiplier",
	} {
		_, err := execution.ParsePolicy(json.RawMessage(doc), "/at")
		refused(t, err, fault.CodeValidationFailed, pointer)
	}
}

// A policy of before the contract had a bound is still one.
func TestPolicy_StreamRetention(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for doc, want := range map[string]time.Duration{
		`{}`: 30 * 24 * time.Hour, `{"stream_policy":{"retention_ttl_ms":0}}`: 0, `{"stream_policy":{"retention_ttl_ms":31536000000}}`: year,
		`{"stream_policy":{"retention_ttl_ms":31536000000000}}`: year,
	} {
		p, err := execution.ParsePolicy([]byte(doc), "")
		if got := p.StreamRetention(); err != nil || got != want {
			t.Errorf("%s: %s, %v", doc, got, err)
		}
	}
}
