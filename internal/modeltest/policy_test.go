package modeltest

import (
	"math"
	"slices"
)

// policy is what an execution is created with. nil members were left out. executions.md 1.6.
type policy struct {
	Retry      *retryPolicy   `json:"retry_policy,omitempty"`
	Timeout    *timeoutPolicy `json:"timeout_policy,omitempty"`
	MaxReplay  *int           `json:"max_replay_count,omitempty"`
	MaxReclaim *int           `json:"max_reclaim_count,omitempty"`
	Dedup      *int64         `json:"dedup_window_ms,omitempty"`
	MaxSignals *int           `json:"max_signals_per_execution,omitempty"`
}

type retryPolicy struct {
	Max        *int     `json:"max_retries,omitempty"`
	Backoff    *backoff `json:"backoff,omitempty"`
	Categories []string `json:"retryable_categories,omitempty"`
}

type backoff struct {
	Type       string   `json:"type,omitempty"`
	Initial    *int64   `json:"initial_delay_ms,omitempty"`
	Max        *int64   `json:"max_delay_ms,omitempty"`
	Multiplier *float64 `json:"multiplier,omitempty"`
	Delay      *int64   `json:"delay_ms,omitempty"`
}

type timeoutPolicy struct {
	Attempt    *int64 `json:"attempt_timeout_ms,omitempty"`
	Deadline   *int64 `json:"execution_deadline_ms,omitempty"`
	MaxReclaim *int   `json:"max_reclaim_count,omitempty"`
}

func or[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

func (p policy) attemptTimeout() int64 {
	if p.Timeout == nil {
		return 0
	}
	return or(p.Timeout.Attempt, 0)
}

func (p policy) deadline() int64 {
	if p.Timeout == nil {
		return 0
	}
	return or(p.Timeout.Deadline, 0)
}

func (p policy) maxReclaims() int {
	if p.MaxReclaim == nil && p.Timeout != nil {
		return or(p.Timeout.MaxReclaim, 100)
	}
	return or(p.MaxReclaim, 100)
}

func (p policy) maxReplays() int { return or(p.MaxReplay, 10) }

func (p policy) maxRetries() int {
	if p.Retry == nil {
		return 0
	}
	return or(p.Retry.Max, 3)
}

func (p policy) dedup() int64 { return or(p.Dedup, 24*60*60*1000) }

// retries says whether a failure of this category is tried again, after so many times. executions.md 2.9.
func (p policy) retries(category string, times int) bool {
	if p.Retry == nil || category == "permanent" || category == "cancelled" || times >= p.maxRetries() {
		return false
	}
	return len(p.Retry.Categories) == 0 || slices.Contains(p.Retry.Categories, category)
}

// wait is how long to wait before the retry after so many others.
func (p policy) wait(times int) int64 {
	b := or(p.Retry.Backoff, backoff{})
	if b.Type == "fixed" {
		return or(b.Delay, 1000)
	}
	grown := float64(or(b.Initial, 1000)) * math.Pow(or(b.Multiplier, 2), float64(times))
	return int64(min(grown, float64(or(b.Max, 60000))))
}
