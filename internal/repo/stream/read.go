package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/stream"
	executionrepo "github.com/flowapi/flowapi/internal/repo/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

const (
	// pageBytes bounds the payloads of one page: it ends with the frame that reaches it.
	pageBytes = 1 << 20
	// rowsAtATime is how many frames are read before the bytes are counted.
	rowsAtATime = 100
	// lookAgain is how often a tail looks although nobody has told it to: a notification may be lost.
	lookAgain = 5 * time.Second
)

// Read returns a page of the stream of an attempt, which may be [stream.Current], and how the stream stands. It returns CodeNotFound.
func (r *Repo) Read(ctx context.Context, id uuid.UUID, attempt int, part stream.Range) (stream.Page, error) {
	return r.read(ctx, call.From(ctx).Namespace, id, attempt, part)
}

// Follow is Read of what comes after a frame, for a caller who has looked whether the execution is one of his namespace.
func (r *Repo) Follow(ctx context.Context, id uuid.UUID, attempt int, after stream.ID, limit int) (stream.Page, error) {
	return r.read(ctx, "", id, attempt, stream.Range{From: after.Next(), To: stream.End, Limit: limit})
}

func (r *Repo) read(ctx context.Context, namespace string, id uuid.UUID, attempt int, part stream.Range) (stream.Page, error) {
	var page stream.Page
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		if page.Head, err = head(q, namespace, id, attempt); err != nil {
			return err
		}
		if page.Last < part.From {
			return nil // which spares a follower who has seen everything the look
		}
		page.Frames, page.More, err = frames(q, store.ID(id), page.AttemptIndex, part)
		return err
	})
	return page, err
}

// Head returns how the stream of an attempt stands. It returns CodeNotFound.
func (r *Repo) Head(ctx context.Context, id uuid.UUID, attempt int) (stream.Head, error) {
	return r.head(ctx, call.From(ctx).Namespace, id, attempt)
}

// HeadOf is Head for a caller who has looked whether the execution is one of his namespace.
func (r *Repo) HeadOf(ctx context.Context, id uuid.UUID, attempt int) (stream.Head, error) {
	return r.head(ctx, "", id, attempt)
}

func (r *Repo) head(ctx context.Context, namespace string, id uuid.UUID, attempt int) (stream.Head, error) {
	var h stream.Head
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		h, err = head(q, namespace, id, attempt)
		return err
	})
	return h, err
}

// frames reads the frames of a range, until there are enough or they are large.
func frames(q *store.Queries, id store.ID, attempt int, part stream.Range) (all []stream.Frame, more bool, err error) {
	query := "SELECT " + frameColumns + " FROM frames WHERE execution_id = ? AND attempt_index = ? AND id >= ? AND id <= ?"
	if part.Lasting {
		query += " AND expires_at IS NULL"
	}
	query += " ORDER BY id LIMIT ?"
	size := 0
	for from := part.From; ; {
		n := min(part.Limit+1-len(all), rowsAtATime)
		var rows []frameRow
		if err := q.Select(&rows, query, id, attempt, int64(from), int64(part.To), n); err != nil {
			return nil, false, fmt.Errorf("read frames: %w", err)
		}
		for i := range rows {
			if len(all) == part.Limit || size >= pageBytes {
				return all, true, nil
			}
			all = append(all, rows[i].frame())
			size += len(rows[i].Payload)
		}
		if len(rows) < n {
			return all, false, nil
		}
		from = all[len(all)-1].ID + 1
	}
}

// Tail returns what comes after a frame in the stream of an attempt, which may be [stream.Current]. While there is nothing and the
// stream is open it waits, for wait at most, and holds no connection to the database meanwhile. It returns CodeNotFound.
func (r *Repo) Tail(ctx context.Context, id uuid.UUID, attempt int, part stream.Range, wait time.Duration) (stream.Page, error) {
	if wait <= 0 {
		return r.Read(ctx, id, attempt, part)
	}
	waiter := r.store.Hub().Wait([]string{executionrepo.StreamKey(id)}, nil)
	defer waiter.Stop()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(lookAgain)
	defer poll.Stop()
	for { // armed before looking: whatever comes later wakes us
		page, err := r.Read(ctx, id, attempt, part)
		if err != nil || len(page.Frames) > 0 || page.Closed() {
			return page, err
		}
		select {
		case _, open := <-waiter.C():
			if !open {
				return page, nil
			}
		case <-poll.C:
		case <-deadline.C:
			return page, nil
		case <-ctx.Done():
			return page, ctx.Err()
		}
		waiter.Rearm()
	}
}

// Watch returns a function whose channel is ready once the streams of an execution have changed since its call. It is for one
// goroutine, and stop ends it.
func (r *Repo) Watch(id uuid.UUID) (changed func() <-chan struct{}, stop func()) {
	waiter := r.store.Hub().Wait([]string{executionrepo.StreamKey(id)}, nil)
	return func() <-chan struct{} {
		waiter.Rearm()
		return waiter.C()
	}, func() { waiter.Stop() }
}
