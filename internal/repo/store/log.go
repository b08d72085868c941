package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// pageIDs bounds what one page looks at: a filter that matches nothing must not read the whole log.
const pageIDs = 20000

// A page ends when it is large enough, too: an event may carry a document of a megabyte.
const (
	pageBytes = 8 << 20
	pageRows  = 64 // are read at a time
)

type logRow struct {
	Last           int64 `db:"last"`
	TrimmedThrough int64 `db:"trimmed_through"`
	GapFrom        int64 `db:"gap_from"`
	GapTo          int64 `db:"gap_to"`
	Generation     ID    `db:"generation"`
}

// resume returns where a reader goes on who has read through after, and the id that it is told of when it cannot go on there:
// its cursor was trimmed, or is not of this log.
func (l *logRow) resume(after int64) (from, resetTo int64) {
	switch {
	case after < l.TrimmedThrough || after > l.Last:
		return l.TrimmedThrough, l.TrimmedThrough + 1
	case after > l.GapFrom && after < l.GapTo:
		return l.GapTo, l.GapTo + 1
	case after == l.GapFrom && l.GapTo > 0:
		return l.GapTo, 0
	}
	return after, 0
}

// Sync makes every committed event readable.
func (s *Store) Sync(ctx context.Context) error { return s.dialect.sync(ctx, s) }

// EventLog describes the log.
func (s *Store) EventLog(ctx context.Context) (event.Log, error) {
	var row logRow
	err := s.Read(ctx, func(q *Queries) error { return q.log(&row) })
	return event.Log{Generation: uuid.UUID(row.Generation).String(), Oldest: row.TrimmedThrough + 1, Newest: row.Last}, err
}

func (q *Queries) log(row *logRow) error {
	return q.Get(row, `SELECT last, trimmed_through, gap_from, gap_to, generation FROM event_log`)
}

// Events reads the events after a cursor, oldest first, at most limit of them.
func (s *Store) Events(ctx context.Context, filter event.Filter, after int64, limit int) (event.Page, error) {
	var page event.Page
	err := s.Read(ctx, func(q *Queries) error {
		var log logRow
		if err := q.log(&log); err != nil {
			return err
		}
		page = event.Page{}
		page.Through, page.ResetTo = log.resume(after)
		from, through := page.Through, min(page.Through+pageIDs, log.Last)
		if from < log.GapFrom {
			through = min(through, log.GapFrom)
		}
		size := 0
		for len(page.Events) < limit && size < pageBytes {
			n := min(limit-len(page.Events), pageRows)
			where := matching(filter, "id > ? AND id <= ?", from, through)
			var rows []eventRow
			err := q.Select(&rows, `SELECT id, `+eventColumns+` FROM events WHERE `+where.String()+` ORDER BY id LIMIT ?`, where.Args(n)...)
			if err != nil {
				return err
			}
			for i := range rows {
				page.Events = append(page.Events, rows[i].event())
				size += len(rows[i].Data)
			}
			if len(rows) < n {
				from = through
				break
			}
			from = rows[n-1].ID
		}
		page.Through = from
		page.More = page.Through < log.Last
		return nil
	})
	return page, err
}

// Trail reads the events that a filter selects, newest first: those before the given id, or from the newest for 0.
// The filter must name a flow, a run or an execution.
func (s *Store) Trail(ctx context.Context, filter event.Filter, before int64, limit int) ([]event.Event, error) {
	var events []event.Event
	err := s.Read(ctx, func(q *Queries) error {
		where := matching(filter, "1 = 1")
		where.If(before > 0, "id < ?", before)
		var rows []eventRow
		err := q.Select(&rows, `SELECT id, `+eventColumns+` FROM events WHERE `+where.String()+` ORDER BY id DESC LIMIT ?`, where.Args(limit)...)
		events = eventsOf(rows)
		return err
	})
	return events, err
}

// EventByLocalID reads the event of a flow that was written under the given number.
func (s *Store) EventByLocalID(ctx context.Context, flowID uuid.UUID, local int64) (event.Event, error) {
	if err := s.Sync(ctx); err != nil {
		return event.Event{}, err
	}
	var row eventRow
	err := s.Read(ctx, func(q *Queries) error {
		return q.Get(&row, `SELECT id, `+eventColumns+` FROM events WHERE flow_id = ? AND `+s.dialect.localID+` = ?`, ID(flowID), local)
	})
	return row.event(), err
}

// matching returns the condition that a filter adds to another one.
func matching(f event.Filter, first string, args ...any) *Where {
	w := NewWhere(first, args...)
	w.If(f.Namespace != "", "namespace = ?", f.Namespace)
	w.If(len(f.Topics) > 0, "topic IN ?", List(f.Topics))
	w.If(len(f.Types) > 0, "type IN ?", List(f.Types))
	w.If(f.FlowID != uuid.Nil, "flow_id = ?", ID(f.FlowID))
	w.If(f.RunID != uuid.Nil, "run_id = ?", ID(f.RunID))
	w.If(f.ExecutionID != uuid.Nil, "execution_id = ?", ID(f.ExecutionID))
	w.If(f.InstanceTag != "", "instance_tag = ?", f.InstanceTag)
	return w
}

func eventsOf(rows []eventRow) []event.Event {
	events := make([]event.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].event()
	}
	return events
}

func (r eventRow) event() event.Event {
	e := event.Event{
		ID: r.ID, At: time.Time(r.At), Namespace: r.Namespace, Type: event.Type(r.Type), FlowID: uuid.UUID(r.FlowID), RunID: uuid.UUID(r.RunID),
		ExecutionID: uuid.UUID(r.ExecutionID), InstanceTag: string(r.InstanceTag), Revision: r.Revision, Actor: r.Actor, TraceID: string(r.TraceID),
		Data: json.RawMessage(r.Data), Schema: r.Schema,
	}
	if r.Cause != nil {
		e.Cause = *r.Cause
	}
	return e
}
