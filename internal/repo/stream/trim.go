package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// The oldest frames, of either sort or of both, as many as the last argument says. The last of them is looked for once: a list
// of them would be read again for each frame of the stream, by a planner who knows nothing of the table yet.
const (
	ofStream    = " FROM frames WHERE execution_id = ? AND attempt_index = ?"
	oldest      = "DELETE" + ofStream + " AND id <= (SELECT max(id) FROM (SELECT id" + ofStream + " ORDER BY id LIMIT ?) o)"
	oldestKept  = "DELETE" + ofStream + " AND expires_at IS NULL AND id <= (SELECT max(id) FROM (SELECT id" + ofStream + " AND expires_at IS NULL ORDER BY id LIMIT ?) o)"
	oldestLive  = "DELETE" + ofStream + " AND expires_at IS NOT NULL AND id <= (SELECT max(id) FROM (SELECT id" + ofStream + " AND expires_at IS NOT NULL ORDER BY id LIMIT ?) o)"
	expiredLive = "DELETE" + ofStream + " AND expires_at <= ? AND id <= (SELECT max(id) FROM (SELECT id" + ofStream + " AND expires_at <= ? ORDER BY id LIMIT ?) o)"
)

// trim deletes the frames that are too many after an append.
func trim(tx *store.Tx, id store.ID, attempt int, s *stream.Stream, policy execution.Policy) error {
	kept, live := s.Trim(policy.StreamLength())
	if kept > 0 {
		if _, err := tx.Exec(oldestKept, id, attempt, id, attempt, kept); err != nil {
			return fmt.Errorf("trim the stream: %w", err)
		}
	}
	if live > 0 {
		if _, err := tx.Exec(oldestLive, id, attempt, id, attempt, live); err != nil {
			return fmt.Errorf("trim the best-effort frames: %w", err)
		}
	}
	return nil
}

// dueRow is a stream of which something is to go.
type dueRow struct {
	ID       store.ID     `db:"execution_id"`
	Attempt  int          `db:"attempt_index"`
	ClosedAt store.Millis `db:"closed_at"`
	streamRow
}

// streamsAtATime is how many streams one transaction trims.
const streamsAtATime = 50

// Trim deletes up to limit frames whose time is over: best-effort frames that are too old, and all frames of streams that were
// closed long ago. It returns how many rows it changed. Any number of processes may call it at the same time.
func (r *Repo) Trim(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var due []dueRow
		err := tx.Select(&due, "SELECT execution_id, attempt_index, closed_at, "+streamColumns+" FROM attempts WHERE trim_at <= ? ORDER BY trim_at LIMIT ?"+tx.SkipLocked(),
			store.Millis(tx.Now()), streamsAtATime)
		if err != nil {
			return fmt.Errorf("read the streams to trim: %w", err)
		}
		for i := range due {
			if *out >= limit {
				break
			}
			gone, err := trimDue(tx, &due[i], limit-*out)
			if err != nil {
				return fmt.Errorf("trim attempt %d of execution %v: %w", due[i].Attempt, due[i].ID, err)
			}
			*out += gone + 1
		}
		return nil
	}, store.Background())
}

// trimDue deletes up to limit frames of one stream and says when there is something to do again.
func trimDue(tx *store.Tx, due *dueRow, limit int) (int, error) {
	s, now := due.stream(), tx.Now()
	ends, err := endOf(tx, due)
	if err != nil {
		return 0, err
	}
	if !ends.IsZero() && !ends.After(now) {
		gone, err := tx.Exec(oldest, due.ID, due.Attempt, due.ID, due.Attempt, limit)
		if err != nil {
			return 0, err
		}
		if int(gone) < limit {
			s.Kept, s.Live, s.TrimAt = 0, 0, time.Time{}
		}
		return int(gone), saveStream(tx, due.ID, due.Attempt, &s)
	}
	gone, err := tx.Exec(expiredLive, due.ID, due.Attempt, store.Millis(now), due.ID, due.Attempt, store.Millis(now), limit)
	if err != nil {
		return 0, err
	}
	s.Live -= gone
	s.TrimAt = ends
	var next store.Millis
	if err := tx.Get(&next, "SELECT min(expires_at) FROM frames WHERE execution_id = ? AND attempt_index = ? AND expires_at IS NOT NULL", due.ID, due.Attempt); err != nil {
		return 0, err
	}
	if at := time.Time(next); !at.IsZero() && (ends.IsZero() || at.Before(ends)) {
		s.TrimAt = at
	}
	return int(gone), saveStream(tx, due.ID, due.Attempt, &s)
}

// endOf returns when the frames of a closed stream go, zero for an open one.
func endOf(tx *store.Tx, due *dueRow) (time.Time, error) {
	closed := time.Time(due.ClosedAt)
	if closed.IsZero() {
		return closed, nil
	}
	var policy store.JSON
	if err := tx.Get(&policy, "SELECT policy FROM executions WHERE id = ?", due.ID); err != nil {
		return closed, err
	}
	e := execution.Execution{Policy: json.RawMessage(policy)}
	return closed.Add(e.PolicyOf().StreamRetention()), nil
}

// NextDue returns when something is to go next, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, "SELECT min(trim_at) FROM attempts WHERE trim_at IS NOT NULL")
}
