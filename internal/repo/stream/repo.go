// Package stream keeps the streams of attempts: their frames and their summaries. How a stream stands is written in the row
// of its attempt, in columns that are this package's alone except for the end, which an attempt's own end writes.
package stream

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/repo/build"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the sweep over streams of which something is to go.
const Loop = executionrepo.StreamLoop

// Repo is the store of streams.
type Repo struct{ store *store.Store }

// New returns a repository on s.
func New(s *store.Store) *Repo { return &Repo{store: s} }

// frameRow is a stored frame.
type frameRow struct {
	ID            int64      `db:"id"`
	Kind          string     `db:"kind"`
	Type          string     `db:"frame_type"`
	Mode          string     `db:"mode"`
	Encoding      string     `db:"encoding"`
	CorrelationID store.Text `db:"correlation_id"`
	Payload       []byte     `db:"payload"`
}

const frameColumns = "id, kind, frame_type, mode, encoding, correlation_id, payload"

func (r *frameRow) frame() stream.Frame {
	return stream.Frame{ID: stream.ID(r.ID), Kind: stream.Kind(r.Kind), Type: r.Type, Mode: stream.Mode(r.Mode), Encoding: stream.Encoding(r.Encoding),
		CorrelationID: string(r.CorrelationID), Payload: r.Payload}
}

// streamRow is how a stream stands, as it is stored in the row of its attempt.
type streamRow struct {
	Count  int64        `db:"frame_count"`
	Last   int64        `db:"last_frame_id"`
	Kept   int64        `db:"kept_frames"`
	Live   int64        `db:"live_frames"`
	Hertz  float64      `db:"live_hertz"`
	LiveAt store.Millis `db:"live_at"`
	Maxlen int64        `db:"live_maxlen"`
	PaceUS int64        `db:"frame_pace_us"`
	TrimAt store.Millis `db:"trim_at"`

	Trimmed int64 `db:"trimmed_through"`
}

const streamColumns = "frame_count, last_frame_id, kept_frames, live_frames, live_hertz, live_at, live_maxlen, frame_pace_us, trim_at, trimmed_through"

func (r *streamRow) stream() stream.Stream {
	return stream.Stream{Count: r.Count, Last: stream.ID(r.Last), Kept: r.Kept, Live: r.Live,
		Rate: stream.Rate{Hertz: r.Hertz, At: time.Time(r.LiveAt), Maxlen: r.Maxlen}, Pace: stream.Pace(time.UnixMicro(r.PaceUS)), TrimAt: time.Time(r.TrimAt),
		Trimmed: stream.ID(r.Trimmed)}
}

// saveStream writes how a stream stands.
func saveStream(tx *store.Tx, id store.ID, attempt int, s *stream.Stream) error {
	err := tx.ExecOne(`UPDATE attempts SET frame_count = ?, last_frame_id = ?, kept_frames = ?, live_frames = ?, live_hertz = ?, live_at = ?, live_maxlen = ?,
		frame_pace_us = ?, trim_at = ?, trimmed_through = ? WHERE execution_id = ? AND attempt_index = ?`,
		s.Count, int64(s.Last), s.Kept, s.Live, s.Rate.Hertz, store.Millis(s.Rate.At), s.Rate.Maxlen, time.Time(s.Pace).UnixMicro(), store.Millis(s.TrimAt), int64(s.Trimmed), id, attempt)
	if err == nil {
		tx.Alarm(Loop, s.TrimAt)
	}
	return err
}

// headRow is how the stream of an attempt stands, for those who read it.
type headRow struct {
	Namespace string       `db:"namespace"`
	Lifecycle string       `db:"lifecycle_phase"`
	State     string       `db:"public_state"`
	Index     *int         `db:"attempt_index"`
	Count     *int64       `db:"frame_count"`
	Last      *int64       `db:"last_frame_id"`
	Trimmed   *int64       `db:"trimmed_through"`
	ClosedAt  store.Millis `db:"closed_at"`
	Reason    store.Text   `db:"closed_reason"`
}

const selectHead = `SELECT e.namespace, e.lifecycle_phase, e.public_state, a.attempt_index, a.frame_count, a.last_frame_id, a.trimmed_through, a.closed_at, a.closed_reason
	FROM executions e LEFT JOIN attempts a ON a.execution_id = e.id AND a.attempt_index = `

// head reads how the stream of an attempt stands. It returns CodeNotFound for an unknown execution or attempt; the current
// attempt of an execution that nobody has claimed yet has an empty stream. namespace is "" where the caller has checked it.
func head(q *store.Queries, namespace string, id uuid.UUID, attempt int) (stream.Head, error) {
	var row headRow
	var err error
	if attempt == stream.Current {
		err = q.Get(&row, selectHead+"e.current_attempt_index WHERE e.id = ? AND "+build.Shown("e"), store.ID(id))
	} else {
		err = q.Get(&row, selectHead+"? WHERE e.id = ? AND "+build.Shown("e"), attempt, store.ID(id))
	}
	switch {
	case store.NotFound(err) || err == nil && namespace != "" && row.Namespace != namespace:
		return stream.Head{}, fault.NotFound("execution", id)
	case err != nil:
		return stream.Head{}, fmt.Errorf("read the stream of execution %s: %w", id, err)
	case row.Index == nil && attempt != stream.Current:
		return stream.Head{}, fault.New(fault.CodeNotFound, "Execution %s has no attempt %d. Those that it has are at GET …/attempts.", id, attempt).With("resource", "attempt")
	}
	h := stream.Head{AttemptIndex: execution.NoAttempt, State: execution.Public(row.State), Ended: execution.Lifecycle(row.Lifecycle) == execution.Terminal,
		ClosedAt: time.Time(row.ClosedAt), ClosedReason: execution.CloseReason(row.Reason)}
	if row.Index != nil {
		h.AttemptIndex, h.Count, h.Last, h.Trimmed = *row.Index, *row.Count, stream.ID(*row.Last), stream.ID(*row.Trimmed)
	}
	return h, nil
}
