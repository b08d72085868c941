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

const ofStream = " FROM frames WHERE execution_id = ? AND attempt_index = ?"

// The sorts of frames: what is kept, all of which comes after that which was trimmed; what is best effort; of that what is too old by
// the argument; and all.
const (
	kept    = " AND expires_at IS NULL AND id > ?"
	live    = " AND expires_at IS NOT NULL"
	expired = " AND expires_at <= ?"
	all     = ""
)

// deleteOldest deletes up to limit of the oldest frames of a sort, and returns how many, and the last of them. That one is looked
// for once: a list of them would be read again for each frame of the stream, by a planner who knows nothing of the table yet.
func deleteOldest(tx *store.Tx, id store.ID, attempt int, limit int64, sort string, args ...any) (n int64, last stream.ID, err error) {
	args = append([]any{id, attempt}, args...)
	var to *int64
	if err := tx.Get(&to, "SELECT max(id) FROM (SELECT id"+ofStream+sort+" ORDER BY id LIMIT ?) o", append(args, limit)...); err != nil || to == nil {
		return 0, 0, err
	}
	n, err = tx.Exec("DELETE"+ofStream+sort+" AND id <= ?", append(args, *to)...)
	return n, stream.ID(*to), err
}

// trim deletes the frames that are too many after an append.
func trim(tx *store.Tx, id store.ID, attempt int, s *stream.Stream, policy execution.Policy) error {
	durable, lossy := s.Trim(policy.StreamLength())
	if durable > 0 {
		_, last, err := deleteOldest(tx, id, attempt, durable, kept, int64(s.Trimmed))
		if err != nil {
			return fmt.Errorf("trim the stream: %w", err)
		}
		s.Trimmed = max(s.Trimmed, last)
	}
	if lossy > 0 {
		if _, _, err := deleteOldest(tx, id, attempt, lossy, live); err != nil {
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
// closed long ago or whose attempt is deleted. It returns how many rows it changed. Any number of processes may call it at the same time.
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
		gone, err := drop(tx, limit-*out)
		*out += gone
		return err
	}, store.Background())
}

// trimDue deletes up to limit frames of one stream and says when there is something to do again.
func trimDue(tx *store.Tx, due *dueRow, limit int) (int, error) {
	s := due.stream()
	ends, err := endOf(tx, due)
	if err != nil {
		return 0, err
	}
	work := expire
	if !ends.IsZero() && !ends.After(tx.Now()) {
		work = empty
	}
	s.TrimAt = ends
	n, err := work(tx, due, &s, int64(limit))
	if err != nil {
		return 0, err
	}
	return int(n), saveStream(tx, due.ID, due.Attempt, &s)
}

// empty deletes frames of a stream that keeps none any more: the durable ones first.
func empty(tx *store.Tx, due *dueRow, s *stream.Stream, limit int64) (int64, error) {
	durable, last, err := deleteOldest(tx, due.ID, due.Attempt, limit, kept, int64(s.Trimmed))
	if err != nil {
		return 0, err
	}
	lossy, _, err := deleteOldest(tx, due.ID, due.Attempt, limit-durable, live)
	if err != nil {
		return 0, err
	}
	s.Kept, s.Live, s.Trimmed = s.Kept-durable, s.Live-lossy, max(s.Trimmed, last)
	if durable+lossy < limit {
		s.TrimAt = time.Time{}
	}
	return durable + lossy, nil
}

// expire deletes best-effort frames that are too old. When the next ones are is decided by those that are left: with ages of their
// own, and up to their stream's end.
func expire(tx *store.Tx, due *dueRow, s *stream.Stream, limit int64) (int64, error) {
	now := tx.Now()
	n, _, err := deleteOldest(tx, due.ID, due.Attempt, limit, expired, store.Millis(now))
	if err != nil {
		return 0, err
	}
	s.Live -= n
	var left struct {
		Next     store.Millis `db:"next"`
		Lifetime *int64       `db:"lifetime"` // in ms, the shortest
	}
	err = tx.Get(&left, "SELECT min(expires_at) AS next, min(expires_at - (id >> ?)) AS lifetime"+ofStream+live, stream.SeqBits, due.ID, due.Attempt)
	if err != nil || left.Lifetime == nil {
		return n, err
	}
	next := time.Time(left.Next)
	if n < limit {
		next = stream.TrimAgain(next, now, time.Duration(*left.Lifetime)*time.Millisecond)
	}
	if s.TrimAt.IsZero() || next.Before(s.TrimAt) {
		s.TrimAt = next
	}
	return n, nil
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

// drop deletes up to limit frames of attempts that are deleted.
func drop(tx *store.Tx, limit int) (n int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	var dropped []struct {
		ID      store.ID `db:"execution_id"`
		Attempt int      `db:"attempt_index"`
	}
	if err := tx.Select(&dropped, "SELECT execution_id, attempt_index FROM dropped_streams LIMIT ?"+tx.SkipLocked(), streamsAtATime); err != nil {
		return 0, fmt.Errorf("read the dropped streams: %w", err)
	}
	for _, d := range dropped {
		gone, _, err := deleteOldest(tx, d.ID, d.Attempt, int64(limit-n), all)
		if err != nil {
			return n, fmt.Errorf("drop attempt %d of execution %v: %w", d.Attempt, d.ID, err)
		}
		if n += int(gone); n >= limit {
			break
		}
		n++
		if err := tx.ExecOne("DELETE FROM dropped_streams WHERE execution_id = ? AND attempt_index = ?", d.ID, d.Attempt); err != nil {
			return n, err
		}
	}
	return n, nil
}

// NextDue returns when something is to go next, zero for never.
func (r *Repo) NextDue(ctx context.Context) (time.Time, error) {
	return store.NextDue(ctx, r.store, "SELECT min(at) FROM (SELECT min(trim_at) AS at FROM attempts WHERE trim_at IS NOT NULL UNION ALL SELECT min(dropped_at) FROM dropped_streams) due")
}
