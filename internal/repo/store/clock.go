package store

import (
	"sync/atomic"
	"time"
)

// Clock is the server's clock. On SQLite it is the machine's, on PostgreSQL the database's; tests move both alike with
// Advance, or let them stand still.
type Clock struct {
	offset atomic.Int64
	still  *time.Time
}

// StillClock returns a clock that stands at a time until Advance moves it, whatever the database.
func StillClock(at time.Time) *Clock { return &Clock{still: &at} }

// Now returns the machine's time, moved by the offset, in UTC and whole milliseconds.
func (c *Clock) Now() time.Time { return c.at(time.Now()) }

// at returns the time of the clock when the machine, or the database, says that it is now.
func (c *Clock) at(now time.Time) time.Time {
	if c.still != nil {
		now = *c.still
	}
	return now.Add(c.Offset()).UTC().Truncate(time.Millisecond)
}

// Offset returns how far Advance has moved the clock: 0 outside tests.
func (c *Clock) Offset() time.Duration { return time.Duration(c.offset.Load()) }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// Now returns the time by the server's own clock. What is decided in a transaction is decided by [Tx.Now].
func (s *Store) Now() time.Time { return s.cfg.Clock.Now() }
