package quota

import (
	"math"
	"time"
)

// Outcome is whether an execution may go on.
type Outcome string

// The outcomes.
const (
	Admitted            Outcome = "admitted"
	AlreadyAdmitted     Outcome = "already_admitted"
	RateExceeded        Outcome = "rate_exceeded"
	ConcurrencyExceeded Outcome = "concurrency_exceeded"
)

// Outcomes returns every outcome.
func Outcomes() []Outcome {
	return []Outcome{Admitted, AlreadyAdmitted, RateExceeded, ConcurrencyExceeded}
}

// Usage is what is made use of, under one key.
type Usage struct {
	Active int64     // slots that are held
	Recent int64     // starts that count: those within the last window
	Oldest time.Time // of them
}

// Verdict is what is answered to somebody who asks to be admitted.
type Verdict struct {
	Outcome    Outcome
	RetryAt    time.Time     // when the next start is possible, for RateExceeded
	RetryAfter time.Duration // from now until then, and some jitter, which whoever answers adds
	Quota      Quota
	Usage      Usage // before it
}

// Check says whether an execution is admitted that needs a slot, or is a start, or both; what needs neither was admitted before. The
// rate is looked at first. Whoever is refused has used nothing. reference: flows-streams-budgets.md 6.9.
func (q *Quota) Check(u Usage, slot, start bool, now time.Time) Verdict {
	v := Verdict{Outcome: Admitted, Quota: *q, Usage: u}
	switch {
	case !slot && !start:
		v.Outcome = AlreadyAdmitted
	case q.starts(u, start) == 0:
		v.Outcome, v.RetryAt = RateExceeded, u.Oldest.Add(q.Window)
		if v.RetryAt.Before(now) {
			v.RetryAt = now
		}
		v.RetryAfter = v.RetryAt.Sub(now)
	case q.slots(u, slot) == 0:
		v.Outcome = ConcurrencyExceeded
	}
	return v
}

// Room returns how many such executions could be admitted, math.MaxInt64 for any number.
func (q *Quota) Room(u Usage, slot, start bool) int64 {
	return min(q.starts(u, start), q.slots(u, slot))
}

// starts returns how many more may begin.
func (q *Quota) starts(u Usage, start bool) int64 {
	if !start || q.MaxRequests == 0 {
		return math.MaxInt64
	}
	return max(q.MaxRequests-u.Recent, 0)
}

// slots returns how many more may be at work.
func (q *Quota) slots(u Usage, slot bool) int64 {
	if !slot || q.MaxConcurrent == 0 {
		return math.MaxInt64
	}
	return max(q.MaxConcurrent-u.Active, 0)
}
