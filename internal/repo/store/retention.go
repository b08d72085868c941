package store

import (
	"context"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// trimRows is how many events one transaction deletes.
const trimRows = 1000

// slack is the part of the wanted rows by which the log may be longer before it is cut.
const slack = 100

// TrimEvents deletes the oldest events that are older than age or more than rows, one batch of them, and returns how many
// went. The cut is remembered, so that a reader behind it is told.
func (s *Store) TrimEvents(ctx context.Context, age time.Duration, rows int64) (int, error) {
	cut, err := s.cut(ctx, s.Now().Add(-age), rows)
	if err != nil || cut == 0 {
		return 0, err
	}
	return Write(ctx, s, func(tx *Tx, out *int) error {
		var log logRow
		if err := tx.Get(&log, `SELECT last, trimmed_through, gap_from, gap_to, generation FROM event_log`+tx.ForUpdate()); err != nil {
			return err
		}
		through := min(cut, log.TrimmedThrough+trimRows)
		if through <= log.TrimmedThrough {
			return nil
		}
		n, err := tx.Exec(`DELETE FROM events WHERE id <= ?`, through)
		if err != nil {
			return fmt.Errorf("trim events: %w", err)
		}
		*out = int(max(n, through-log.TrimmedThrough)) // a hole in the ids is progress, too
		if through == cut {
			tx.Emit(event.Event{Namespace: "default", Type: event.RetentionTrimmed, Data: map[string]any{"through": through}})
		}
		return tx.ExecOne(`UPDATE event_log SET trimmed_through = ?`, through)
	}, Background())
}

// cut returns the newest id that may go, 0 for none. Times grow with ids, so the place of an age is found by bisection.
func (s *Store) cut(ctx context.Context, before time.Time, rows int64) (int64, error) {
	var cut int64
	err := s.Read(ctx, func(q *Queries) error {
		var log logRow
		if err := q.log(&log); err != nil {
			return err
		}
		low, high := log.TrimmedThrough, log.Last // at(low) is before, at(high+1) is not
		for low < high {
			mid := low + (high-low+1)/2
			var at Millis
			err := q.Get(&at, `SELECT at FROM events WHERE id >= ? ORDER BY id LIMIT 1`, mid)
			switch {
			case NotFound(err) || err == nil && !time.Time(at).Before(before):
				high = mid - 1
			case err != nil:
				return err
			default:
				low = mid
			}
		}
		cut = low
		if kept := log.Last - log.TrimmedThrough; kept > rows+rows/slack+1 { // room, so that the event of a cut asks for no other one
			cut = max(cut, log.Last-rows)
		}
		if cut <= log.TrimmedThrough {
			cut = 0
		}
		return nil
	})
	return cut, err
}
