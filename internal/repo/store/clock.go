package store

import (
	"sync/atomic"
	"time"
)

// Clock is the server's clock. On SQLite it is the machine's, on PostgreSQL the database's; tests move both alike with
// Advance.
type Clock struct {
	offset atomic.Int64
}

// Now returns the machine's time, moved by the offset, in UTC and whole milliseconds.
func (c *Clock) Now() time.Time {
	return time.Now().Add(c.Offset()).UTC().Truncate(time.Millisecond)
}

// Offset returns how far Advance has moved the clock: 0 outside tests.
func (c *Clock) Offset() time.Duration { return time.Duration(c.offset.Load()) }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// Now returns the time by the server's own clock. What is decided in a transaction is decided by [Tx.Now].
func (s *Store) Now() time.Time { return s.cfg.Clock.Now() }
