package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Append adds frames to the stream of the attempt that f's owner is making: all of them or none. A frame whose key the stream
// has already is answered with the id of then, and is not written again. It returns CodeNotFound, CodeStreamClosed for what
// nobody is working on, the other errors of [execution.Execution.Check], CodeRateLimited, and CodePayloadTooLarge for a
// summary that grows too large. The answer to the most frames that a request may have is small enough to be kept under its
// Idempotency-Key.
func (r *Repo) Append(ctx context.Context, f execution.Fence, frames []stream.Frame) (stream.Receipt, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *stream.Receipt) error {
		e, draining, err := executionrepo.Held(tx, f.ExecutionID)
		if err != nil {
			return err
		}
		if e.Lifecycle != execution.Active {
			return closed(tx, &e, f)
		}
		if err := e.Check(f, tx.Now()); err != nil {
			return err
		}
		out.Directives = e.Directives(draining)
		a := appending{tx: tx, id: store.ID(e.ID), attempt: e.AttemptIndex, now: tx.Now()}
		if err := a.run(&e, frames, out); err != nil {
			return fmt.Errorf("append to attempt %d of execution %s: %w", a.attempt, e.ID, err)
		}
		return nil
	})
}

// closed is the refusal of frames for an execution that nobody is working on.
func closed(tx *store.Tx, e *execution.Execution, f execution.Fence) error {
	refusal := fault.New(fault.CodeStreamClosed, "Nobody is working on execution %s: it is %s. Its streams take no frames. Stop, and claim again.", e.ID, e.Public()).With("public_state", e.Public())
	attempt := f.AttemptIndex
	if attempt == execution.AnyAttempt {
		attempt = e.AttemptIndex
	}
	if attempt == execution.NoAttempt {
		return refusal
	}
	h, err := head(&tx.Queries, "", e.ID, attempt)
	if err != nil || !h.Closed() {
		return refusal
	}
	return refusal.With("closed_reason", h.ClosedReason)
}

// appending is an append under way.
type appending struct {
	tx      *store.Tx
	id      store.ID
	attempt int
	now     time.Time

	fresh   []stream.Frame // those that are to be written
	request []int          // which frame of the request each of those is
	stands  []int          // for each frame of the request its place in fresh, or written
}

// written marks a frame that an earlier request has brought.
const written = -1

func (a *appending) run(e *execution.Execution, frames []stream.Frame, out *stream.Receipt) error {
	var row streamRow
	err := a.tx.Get(&row, "SELECT "+streamColumns+" FROM attempts WHERE execution_id = ? AND attempt_index = ?"+a.tx.ForUpdate(), a.id, a.attempt)
	if err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	s := row.stream()
	out.Frames = make([]stream.Appended, len(frames))
	if err := a.sort(frames, out.Frames); err != nil {
		return fmt.Errorf("read the keys of frames: %w", err)
	}
	if len(a.fresh) > 0 {
		if out.Version, err = a.write(e, &s); err != nil {
			return err
		}
		a.tx.Wake(executionrepo.StreamKey(e.ID))
	}
	for i, n := range a.stands {
		if n != written {
			out.Frames[i].ID = a.fresh[n].ID
		}
	}
	out.Count = s.Count
	return nil
}

// sort finds out which frames are new.
func (a *appending) sort(frames []stream.Frame, out []stream.Appended) error {
	known, err := a.known(frames)
	if err != nil {
		return err
	}
	keys := map[string]int{}
	a.stands = make([]int, len(frames))
	for i, f := range frames {
		if id, ok := known[f.Key]; ok {
			a.stands[i], out[i] = written, stream.Appended{ID: id, Duplicate: true}
			continue
		}
		if n, ok := keys[f.Key]; ok {
			a.stands[i], out[i].Duplicate = n, true
			continue
		}
		if f.Key != "" {
			keys[f.Key] = len(a.fresh)
		}
		a.stands[i] = len(a.fresh)
		a.fresh, a.request = append(a.fresh, f), append(a.request, i)
	}
	return nil
}

// known returns the ids of the frames that the stream has under the keys of the request.
func (a *appending) known(frames []stream.Frame) (map[string]stream.ID, error) {
	var keys []string
	for _, f := range frames {
		if f.Key != "" {
			keys = append(keys, f.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	var rows []struct {
		Key string `db:"frame_key"`
		ID  int64  `db:"id"`
	}
	err := a.tx.Select(&rows, "SELECT frame_key, id FROM frames WHERE execution_id = ? AND attempt_index = ? AND frame_key IN ?",
		a.id, a.attempt, store.List(keys))
	known := make(map[string]stream.ID, len(rows))
	for _, row := range rows {
		known[row.Key] = stream.ID(row.ID)
	}
	return known, err
}

// write writes the new frames, what they make of the summary, and how the stream stands then. version is that of the summary,
// 0 when it stays as it is.
func (a *appending) write(e *execution.Execution, s *stream.Stream) (version int64, err error) {
	if err := s.Append(a.fresh, a.now); err != nil {
		return 0, err
	}
	if version, err = a.summarise(); err != nil {
		return 0, err
	}
	if err := a.insert(); err != nil {
		return 0, fmt.Errorf("write frames: %w", err)
	}
	if err := trim(a.tx, a.id, a.attempt, s, e.PolicyOf()); err != nil {
		return 0, err
	}
	return version, saveStream(a.tx, a.id, a.attempt, s)
}

const (
	frameInsert   = "INSERT INTO frames (execution_id, attempt_index, id, kind, frame_type, mode, encoding, correlation_id, frame_key, summary_version, expires_at, payload) VALUES "
	frameWidth    = 12
	framesAtATime = 64 // rows of one INSERT
)

func (a *appending) insert() error {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	for some := range slices.Chunk(a.fresh, framesAtATime) {
		args := make([]any, 0, len(some)*frameWidth)
		for i := range some {
			f := &some[i]
			var version *int64
			if f.Version > 0 {
				version = &f.Version
			}
			args = append(args, a.id, a.attempt, int64(f.ID), string(f.Kind), f.Type, string(f.Mode), string(f.Encoding), store.Text(f.CorrelationID), store.Text(f.Key),
				version, store.Millis(f.ExpiresAt(a.now)), f.Payload)
		}
		if _, err := a.tx.Exec(frameInsert+row+strings.Repeat(", "+row, len(some)-1), args...); err != nil {
			return err
		}
	}
	return nil
}
