package stream

import (
	"math"
	"time"
)

// Live says how a best-effort frame is kept: for about TTL at the rate of its stream, within bounds.
type Live struct {
	TTL     time.Duration
	Floor   int64
	Ceiling int64
	Alpha   float64 // weight of the newest append in the average rate
}

// Defaults of best-effort frames.
const (
	DefaultTTL     = 30 * time.Second
	DefaultFloor   = 64
	DefaultCeiling = 16_384
	DefaultAlpha   = 0.2
)

// normal replaces what makes no sense by the defaults.
func (l Live) normal() Live {
	if l.TTL <= 0 {
		l.TTL = DefaultTTL
	}
	if l.Floor <= 0 {
		l.Floor = DefaultFloor
	}
	if l.Ceiling <= 0 {
		l.Ceiling = DefaultCeiling
	}
	l.Ceiling = max(l.Ceiling, l.Floor)
	if !(l.Alpha > 0 && l.Alpha <= 1) {
		l.Alpha = DefaultAlpha
	}
	return l
}

// lifetime is how long a best-effort frame is kept; after that it goes with others, by TrimAgain.
func (l Live) lifetime() time.Duration { return 2 * l.TTL }

// TrimAgain returns when the best-effort frames of a stream are looked through again after now, the next of which is too old at
// next. What is lossy anyway goes many at a time: each look is at the whole stream. shortest is the shortest of their lifetimes.
func TrimAgain(next, now time.Time, shortest time.Duration) time.Time {
	if rested := now.Add(max(minRest, shortest/16)); next.Before(rested) {
		return rested
	}
	return next
}

// minRest is the shortest time between two looks at the best-effort frames of a stream.
const minRest = time.Second

// Rate is how often best-effort frames come, and how many of them are kept for it.
type Rate struct {
	Hertz  float64
	At     time.Time // of the last append
	Maxlen int64     // 0 before the first frame
}

// after returns the rate after an append of n frames, which is one step of the average: they have come since the append before.
// reference: flows-streams-budgets.md 4.2.
func (r Rate) after(n int, l Live, now time.Time) Rate {
	ttl := l.TTL.Seconds()
	if r.Maxlen == 0 {
		r.Hertz = float64(l.Floor) / (2 * ttl)
	} else {
		r.Hertz = l.Alpha*float64(n)*1000/float64(max(1, now.Sub(r.At).Milliseconds())) + (1-l.Alpha)*r.Hertz
	}
	r.At = now
	r.Maxlen = int64(min(max(math.Ceil(r.Hertz*ttl*2), float64(l.Floor)), float64(l.Ceiling)))
	return r
}
