package run

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// recoverChunk is how many steps one statement reads. reference: runs-and-taskflows.md A5.10.
const recoverChunk = 199

// Recover ends steps whose engine was lost, all or none; those that have ended stay as they are. It asks for no generation. It returns
// CodeNotFound for the run, and CodeValidationFailed for an end in the future or of no step.
func (r *Repo) Recover(ctx context.Context, runID uuid.UUID, steps []run.Recovery, endedAt time.Time) (run.Recovered, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Recovered) error {
		if err := r.holdBelow(tx, tx.Call.Namespace, runID); err != nil {
			return err
		}
		x, err := r.hold(tx, runID)
		if err != nil {
			return err
		}
		if endedAt.After(tx.Now()) {
			return fault.Invalid(fault.CodeTimerOutOfRange, "/ended_at", "ended_at is in the future. Send a time that has passed, or none for now.")
		}
		out.Recovered, out.SkippedTerminal, out.Missing = []uuid.UUID{}, []uuid.UUID{}, []uuid.UUID{}
		seen := map[uuid.UUID]bool{}
		for chunk := range slices.Chunk(steps, recoverChunk) {
			if err := r.recoverSome(tx, &x, chunk, endedAt, seen, out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Repo) recoverSome(tx *store.Tx, x *run.Run, chunk []run.Recovery, endedAt time.Time, seen map[uuid.UUID]bool, out *run.Recovered) error {
	ids := make([]store.ID, len(chunk))
	for i := range chunk {
		ids[i] = store.ID(chunk[i].StepID)
	}
	list, err := someSteps(&tx.Queries, "run_id = ? AND id IN ? ORDER BY id", store.ID(x.ID), store.List(ids))
	if err != nil {
		return err
	}
	found := make(map[uuid.UUID]run.Step, len(list))
	for i := range list {
		found[list[i].ID] = list[i]
	}
	for _, item := range chunk {
		if seen[item.StepID] { // the first entry counts
			continue
		}
		seen[item.StepID] = true
		s, ok := found[item.StepID]
		switch {
		case !ok:
			out.Missing = append(out.Missing, item.StepID)
			continue
		case s.Status.Terminal():
			out.SkippedTerminal = append(out.SkippedTerminal, s.ID)
			continue
		}
		item.EndedAt = endedAt
		if err := r.saveStep(tx, x, &s, s.Recover(x, item, tx.By())); err != nil {
			return err
		}
		out.Recovered = append(out.Recovered, s.ID)
	}
	return nil
}
