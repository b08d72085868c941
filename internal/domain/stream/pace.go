package stream

import (
	"time"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

// How fast one attempt may append. What it has not used of a second or two it may use at once.
const (
	FramesPerSecond = 5_000
	Burst           = 10_000

	perFrame = time.Second / FramesPerSecond
)

// Pace is when an attempt that appends at the greatest steady rate would append its next frame: the theoretical arrival time
// of the generic cell rate algorithm.
type Pace time.Time

// admit returns the pace after n more frames at now. It returns CodeRateLimited when they come too fast. A pace that is further
// ahead than a burst is from a clock that was: these frames are then the last ones of a burst.
func (p Pace) admit(n int, now time.Time) (Pace, error) {
	arrival := time.Time(p)
	if arrival.After(now.Add(Burst * perFrame)) {
		arrival = now.Add(time.Duration(Burst-n) * perFrame)
	} else if arrival.Before(now) {
		arrival = now
	}
	arrival = arrival.Add(time.Duration(n) * perFrame)
	if wait := arrival.Sub(now) - Burst*perFrame; wait > 0 {
		return p, fault.New(fault.CodeRateLimited, "The attempt appends more than %d frames a second. Repeat the request in %s.", FramesPerSecond, wait).
			With("retry_after_ms", max(1, (wait+time.Millisecond-1).Milliseconds()))
	}
	return Pace(arrival), nil
}
