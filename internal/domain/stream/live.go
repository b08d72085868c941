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
	Alpha   float64 // weight of the newest frame in the average rate
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

// lifetime is how long a best-effort frame is kept at most.
func (l Live) lifetime() time.Duration { return 2 * l.TTL }

// Rate is how often best-effort frames come, and how many of them are kept for it.
type Rate struct {
	Hertz  float64
	At     time.Time // of the last frame
	Maxlen int64     // 0 before the first frame
}

// frame returns the rate after one more frame. reference: flows-streams-budgets.md 4.2.
func (r Rate) frame(l Live, now time.Time) Rate {
	ttl := l.TTL.Seconds()
	if r.Maxlen == 0 {
		r.Hertz = float64(l.Floor) / (2 * ttl)
	} else {
		r.Hertz = l.Alpha*1000/float64(max(1, now.Sub(r.At).Milliseconds())) + (1-l.Alpha)*r.Hertz
	}
	r.At = now
	r.Maxlen = int64(min(max(math.Ceil(r.Hertz*ttl*2), float64(l.Floor)), float64(l.Ceiling)))
	return r
}
