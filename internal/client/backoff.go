package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// Backoff spaces the repetitions of what fails: longer each time, and never in step with others. Its zero value is the beginning.
type Backoff struct{ next time.Duration }

// Next returns how long to wait now, and no less than the server has asked for.
func (b *Backoff) Next(asked time.Duration) time.Duration {
	b.next = min(max(2*b.next, firstBackoff), lastBackoff)
	return asked + b.next/2 + rand.N(b.next/2) //nolint:gosec // a pause is no secret
}

// Reset begins again, after a success.
func (b *Backoff) Reset() { b.next = 0 }

// Sleep waits and says whether it did so to the end, ctx did not end before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
