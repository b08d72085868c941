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
	// fewRows are read first: of the largest frames they fill a page. Then it is by what those weighed, up to manyRows.
	fewRows  = pageBytes / stream.MaxPayload
	manyRows = 100
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
	err := r.store.Read(ctx, func(q *store.Queries) error {
		h, err := head(q, namespace, id, attempt)
		if err == nil {
			page, err = pageOf(q, store.ID(id), h, part)
		}
		return err
	})
	return page, err
}

// onward is Read of the current attempt, or of one before it that has something left. Of an attempt that there is not it is from
// the beginning of the current one.
func (r *Repo) onward(ctx context.Context, id uuid.UUID, attempt int, part stream.Range) (stream.Page, error) {
	var page stream.Page
	err := r.store.Read(ctx, func(q *store.Queries) error {
		current, err := head(q, call.From(ctx).Namespace, id, stream.Current)
		if err != nil {
			return err
		}
		for ; attempt != stream.Current && attempt < current.AttemptIndex; attempt++ {
			h, err := head(q, "", id, attempt)
			if err != nil {
				return err
			}
			if page, err = pageOf(q, store.ID(id), h, part); err != nil || len(page.Frames) > 0 {
				return err
			}
			part.From = stream.Start
		}
		if attempt > current.AttemptIndex {
			part.From = stream.Start
		}
		page, err = pageOf(q, store.ID(id), current, part)
		return err
	})
	return page, err
}

// pageOf reads a page of a stream that stands like this.
func pageOf(q *store.Queries, id store.ID, h stream.Head, part stream.Range) (stream.Page, error) {
	page := stream.Page{Head: h, Through: max(part.From-1, stream.Start)}
	if h.Last < part.From {
		return page, nil // which spares who has seen everything the look
	}
	var err error
	if page.Frames, page.More, err = frames(q, id, h.AttemptIndex, part); err != nil {
		return page, err
	}
	if page.Through = min(h.Last, part.To); page.More {
		page.Through = page.Frames[len(page.Frames)-1].ID
	}
	return page, nil
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
	from, size, room := part.From, 0, fewRows
	for {
		n, before := min(part.Limit+1-len(all), room), size
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
		room = min(manyRows, 1+max(0, pageBytes-size)*n/max(1, size-before))
	}
}

// Tail returns what comes after a frame in the stream of an attempt. While there is nothing and the stream is open it waits, for
// wait at most, and holds no connection to the database meanwhile. With onward it is what comes after a frame of any attempt, or of
// [stream.Current]: what is left of one comes before that of the next, and who has come to [stream.Head.Closing] waits for that,
// until the execution has ended. It returns CodeNotFound.
func (r *Repo) Tail(ctx context.Context, id uuid.UUID, attempt int, onward bool, part stream.Range, wait time.Duration) (stream.Page, error) {
	waiter := r.store.Hub().Wait([]string{executionrepo.StreamKey(id)}, nil)
	defer waiter.Stop()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(r.store.Poll()) // a notification may be lost
	defer poll.Stop()
	look := r.Read
	if onward {
		look = r.onward
	}
	for { // armed before looking: whatever comes later wakes us
		page, err := look(ctx, id, attempt, part)
		if err != nil || wait <= 0 || len(page.Frames) > 0 || page.Ended || page.Closed() && !(onward && part.From > page.Closing()) {
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
		part.From = page.Through.Next()
		if onward {
			attempt = max(page.AttemptIndex, 0)
		}
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
