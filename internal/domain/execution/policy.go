package execution

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// Policy is frozen when an execution is created. reference: executions.md 1.6.
type Policy struct {
	Retry           *RetryPolicy        `json:"retry_policy,omitempty"` // without one there are no retries
	Timeout         TimeoutPolicy       `json:"timeout_policy,omitzero"`
	MaxReclaimCount *int                `json:"max_reclaim_count,omitempty"`
	MaxReplayCount  *int                `json:"max_replay_count,omitempty"`
	Routing         RoutingRequirements `json:"routing_requirements,omitzero"`
	DedupWindowMS   *int64              `json:"dedup_window_ms,omitempty"`
	Suspension      SuspensionPolicy    `json:"suspension_policy,omitzero"`
	MaxSignalCount  *int                `json:"max_signals_per_execution,omitempty"`
	Stream          StreamPolicy        `json:"stream_policy,omitzero"`
}

// SuspensionPolicy is what a suspension does about time when it does not say so itself.
type SuspensionPolicy struct {
	DefaultTimeoutMS *int64          `json:"default_timeout_ms,omitempty"`
	TimeoutBehavior  TimeoutBehavior `json:"timeout_behavior,omitempty"`
}

// RetryPolicy says whether a failed attempt is followed by another, and when.
type RetryPolicy struct {
	MaxRetries          *int     `json:"max_retries,omitempty"`
	Backoff             Backoff  `json:"backoff,omitzero"`
	RetryableCategories []string `json:"retryable_categories,omitempty"`
}

// Backoff is the delay before a retry: exponential (the default) or fixed.
type Backoff struct {
	Type           string   `json:"type,omitempty"`
	InitialDelayMS *int64   `json:"initial_delay_ms,omitempty"`
	MaxDelayMS     *int64   `json:"max_delay_ms,omitempty"`
	Multiplier     *float64 `json:"multiplier,omitempty"`
	DelayMS        *int64   `json:"delay_ms,omitempty"`
	Jitter         bool     `json:"jitter,omitempty"`
}

// TimeoutPolicy bounds one attempt and the whole execution.
type TimeoutPolicy struct {
	AttemptTimeoutMS    *int64 `json:"attempt_timeout_ms,omitempty"`
	ExecutionDeadlineMS *int64 `json:"execution_deadline_ms,omitempty"`
	MaxReclaimCount     *int   `json:"max_reclaim_count,omitempty"`
}

// StreamPolicy says how much of the streams of its attempts is kept.
type StreamPolicy struct {
	RetentionMaxlen *int64 `json:"retention_maxlen,omitempty"`
	RetentionTTLMS  *int64 `json:"retention_ttl_ms,omitempty"`
}

// RoutingRequirements says which workers may have the execution.
type RoutingRequirements struct {
	RequiredCapabilities []string `json:"required_capabilities,omitempty"`
}

// Defaults of the policy.
const (
	defaultMaxRetries   = 3
	defaultInitialDelay = 1000
	defaultMaxDelay     = 60000
	defaultMultiplier   = 2.0
	defaultFixedDelay   = 1000
	defaultMaxReclaims  = 100
	defaultMaxReplays   = 10
	defaultMaxlen       = 10_000
	defaultRetention    = 30 * 24 * time.Hour
	// DedupWindow is how long a create with the same idempotency_key is recognised.
	DedupWindow = 24 * time.Hour
	longest     = int64(365 * 24 * time.Hour / time.Millisecond)
)

// ParsePolicy reads a policy; the contract has checked its shape. An empty document is the empty policy.
func ParsePolicy(doc []byte, pointer string) (Policy, error) {
	var p Policy
	if len(doc) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(doc, &p); err != nil {
		return p, fault.Invalid(fault.CodeValidationFailed, pointer, "The policy cannot be read.").Because(err)
	}
	if p.Retry != nil {
		b := p.Retry.Backoff
		if m := or(b.Multiplier, defaultMultiplier); m <= 0 || math.IsInf(m, 0) || math.IsNaN(m) {
			return p, fault.Invalid(fault.CodeValidationFailed, pointer+"/retry_policy/backoff/multiplier", "The multiplier must be greater than zero.")
		}
	}
	return p, nil
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// MaxReclaims is how often a lost lease may be taken over.
func (p Policy) MaxReclaims() int {
	if p.MaxReclaimCount != nil {
		return *p.MaxReclaimCount
	}
	return or(p.Timeout.MaxReclaimCount, defaultMaxReclaims)
}

// MaxReplays is how often an ended execution may be replayed.
func (p Policy) MaxReplays() int { return or(p.MaxReplayCount, defaultMaxReplays) }

// MaxSignals is how many signals an execution takes, 0 for any number.
func (p Policy) MaxSignals() int { return or(p.MaxSignalCount, DefaultMaxSignals) }

// AttemptTimeout is how long one attempt may take, 0 for any time.
func (p Policy) AttemptTimeout() time.Duration {
	return time.Duration(or(p.Timeout.AttemptTimeoutMS, 0)) * time.Millisecond
}

// StreamLength is how many durable frames the stream of an attempt keeps, and whether it keeps never more than those.
func (p Policy) StreamLength() (frames int64, exactly bool) {
	return or(p.Stream.RetentionMaxlen, defaultMaxlen), p.Stream.RetentionMaxlen != nil
}

// StreamRetention is how long the frames of an attempt are kept after its stream has closed: a year at most.
func (p Policy) StreamRetention() time.Duration {
	return time.Duration(min(or(p.Stream.RetentionTTLMS, defaultRetention.Milliseconds()), longest)) * time.Millisecond
}

// Dedup is how long a create with the same idempotency_key is recognised; not at all for zero.
func (p Policy) Dedup() time.Duration {
	return time.Duration(or(p.DedupWindowMS, DedupWindow.Milliseconds())) * time.Millisecond
}

// The categories of failures with a meaning of their own.
const (
	CategoryPermanent = "permanent"
	CategoryCancelled = "cancelled"
	CategoryTimeout   = "timeout"
)

// Retries says whether an attempt that failed with category is followed by another, after retries earlier ones.
func (p Policy) Retries(category string, retries int) bool {
	if p.Retry == nil || category == CategoryPermanent || category == CategoryCancelled {
		return false
	}
	if retries >= or(p.Retry.MaxRetries, defaultMaxRetries) {
		return false
	}
	return len(p.Retry.RetryableCategories) == 0 || slices.Contains(p.Retry.RetryableCategories, category)
}

// Delay returns how long to wait before retry number retries (from 0): min(initial·multiplier^retries, max), or the fixed
// delay. With jitter it is between half of that and all of it, decided by id, so that the same question has one answer.
func (p Policy) Delay(retries int, id uuid.UUID) time.Duration {
	b := Backoff{}
	if p.Retry != nil {
		b = p.Retry.Backoff
	}
	var ms float64
	switch b.Type {
	case "", "exponential":
		growth := min(math.Pow(or(b.Multiplier, defaultMultiplier), float64(retries)), math.MaxFloat64) // 0 times infinity is no number
		ms = min(float64(or(b.InitialDelayMS, defaultInitialDelay))*growth, float64(or(b.MaxDelayMS, defaultMaxDelay)))
	default:
		ms = float64(or(b.DelayMS, defaultFixedDelay))
	}
	ms = max(0, min(ms, float64(longest)))
	if b.Jitter {
		h := fnv.New64a()
		_, _ = h.Write(id[:])
		_, _ = h.Write([]byte{byte(retries), byte(retries >> 8)}) //nolint:gosec // the low bits are what is meant
		ms = ms/2 + ms/2*float64(h.Sum64()%1024)/1024
	}
	return time.Duration(ms) * time.Millisecond
}
