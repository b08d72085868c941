package stream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/stream"
	"github.com/flowapi/flowapi/internal/repo/store"
)

type summaryRow struct {
	Document       store.JSON   `db:"document"`
	Version        int64        `db:"version"`
	FirstAppliedAt store.Millis `db:"first_applied_at"`
	LastUpdatedAt  store.Millis `db:"last_updated_at"`
}

func (r *summaryRow) summary() stream.Summary {
	return stream.Summary{Document: []byte(r.Document), Version: r.Version, FirstAppliedAt: time.Time(r.FirstAppliedAt), LastUpdatedAt: time.Time(r.LastUpdatedAt)}
}

// findSummary reads the summary of a stream, an empty one when there is none.
func findSummary(q *store.Queries, id store.ID, attempt int) (stream.Summary, error) {
	var row summaryRow
	err := q.Get(&row, "SELECT document, version, first_applied_at, last_updated_at FROM summaries WHERE execution_id = ? AND attempt_index = ?", id, attempt)
	if err != nil && !store.NotFound(err) {
		return stream.Summary{}, fmt.Errorf("read the summary: %w", err)
	}
	return row.summary(), nil
}

// summarise merges the new frames that are part of the summary into it, and returns its version, 0 when there are none.
func (a *appending) summarise() (int64, error) {
	if !slices.ContainsFunc(a.fresh, func(f stream.Frame) bool { return f.Mode == stream.Summarised }) {
		return 0, nil
	}
	s, err := findSummary(&a.tx.Queries, a.id, a.attempt)
	if err != nil {
		return 0, err
	}
	if err := s.Apply(a.fresh, a.now, func(i int) int { return a.request[i] }); err != nil {
		return 0, err
	}
	_, err = a.tx.Exec(`INSERT INTO summaries (execution_id, attempt_index, version, patch_kind, first_applied_at, last_updated_at, document) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (execution_id, attempt_index) DO UPDATE SET version = excluded.version, last_updated_at = excluded.last_updated_at, document = excluded.document`,
		a.id, a.attempt, s.Version, stream.PatchKind, store.Millis(s.FirstAppliedAt), store.Millis(s.LastUpdatedAt), store.JSON(s.Document))
	if err != nil {
		return 0, fmt.Errorf("write the summary: %w", err)
	}
	return s.Version, nil
}

// Summary returns what the summary frames of an attempt add up to. It returns CodeNotFound, also while there are none.
func (r *Repo) Summary(ctx context.Context, id uuid.UUID, attempt int) (stream.Summary, error) {
	var s stream.Summary
	err := r.store.Read(ctx, func(q *store.Queries) error {
		h, err := head(q, call.From(ctx).Namespace, id, attempt)
		if err != nil {
			return err
		}
		s, err = findSummary(q, store.ID(id), h.AttemptIndex)
		return err
	})
	if err == nil && s.Version == 0 {
		err = fault.New(fault.CodeNotFound, "The attempt at execution %s has no summary yet: the first frame of the mode summary makes it.", id).With("resource", "summary")
	}
	return s, err
}
