package run

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

func (r *Repo) updateItem(tx *store.Tx, x *run.Run, s *run.Step, before run.Item, u *run.ItemUpdate, pointer string) (run.Item, error) {
	after, changed, err := before.Update(*u, tx.Now())
	if err != nil {
		return before, fault.Under(err, pointer)
	}
	if changed || !u.Child.IsZero() {
		if err := x.Takes(); err != nil {
			return before, err
		}
		if s.Status.Terminal() {
			return before, s.Over(s.Status)
		}
	}
	if !after.Status.Terminal() && (changed || !u.Child.IsZero()) {
		if err := x.Begins(); err != nil {
			return before, err
		}
	}
	if !u.Child.IsZero() {
		if after.HasChild() || after.Status != run.ItemRunning {
			return before, fault.Invalid(fault.CodeValidationFailed, pointer+"/child", "A child does the work of an item that becomes running and has none.")
		}
		if after, err = r.attachItem(tx, x, after, u.Child, pointer+"/child"); err != nil {
			return before, err
		}
		changed = true
	}
	if !changed {
		return after, nil
	}
	return after, r.moveItem(tx, x, &before, &after)
}

// moveItem is saveItem of an item that somebody else than its child moves: the child may have nobody any more who waits for it.
func (r *Repo) moveItem(tx *store.Tx, x *run.Run, before, after *run.Item) error {
	ref, err := r.saveItem(tx, x, before, after)
	if err != nil || !before.HasChild() {
		return err
	}
	defer tx.Because(tx.Because(ref))
	r.orphaned(tx, x)
	return nil
}

// saveItem writes what became of an item, counts it, and returns the event that tells of it.
func (r *Repo) saveItem(tx *store.Tx, x *run.Run, before, after *run.Item) (store.Ref, error) {
	stored := itemRowOf(after)
	if err := tx.ExecOne(items.Update, append(items.Moving(&stored), stored.ID)...); err != nil {
		return 0, fmt.Errorf("update item %s: %w", after.ID, err)
	}
	count(tx, after.StepID, run.Counts{before.Status: -1})
	count(tx, after.StepID, run.Counts{after.Status: 1})
	return tx.Emit(after.Event(x)), nil
}

// endItems ends the open items of a step that has ended.
func (r *Repo) endItems(tx *store.Tx, x *run.Run, s *run.Step) error {
	if s.FanOut.Open() == 0 {
		return nil
	}
	to := run.ItemCancelled
	if s.Status == run.StepSkipped {
		to = run.ItemSkipped
	}
	return r.eachItem(tx, s.ID, " AND completed_at IS NULL", func(it run.Item) error {
		next, changed := it.Become(to, tx.Now())
		if !changed {
			return nil
		}
		return r.moveItem(tx, x, &it, &next)
	})
}

// resetItems does items again, whose step is done again.
func (r *Repo) resetItems(tx *store.Tx, x *run.Run, s *run.Step, in run.Resume) error {
	if s.FanOut.Total() == 0 {
		return nil
	}
	return r.eachItem(tx, s.ID, " AND status <> 'pending'", func(it run.Item) error {
		if !it.Again(in) {
			return nil
		}
		next := it.Reset()
		return r.moveItem(tx, x, &it, &next)
	})
}

type countKey struct{ step uuid.UUID }

// count moves how many items of a step are in each status, once for each step in a transaction, and last.
func count(tx *store.Tx, stepID uuid.UUID, by run.Counts) {
	sum := store.Sum(tx, countKey{stepID}, func(sum *run.Counts) error {
		n := *sum
		err := tx.ExecOne(`UPDATE run_steps SET items_pending = items_pending + ?, items_running = items_running + ?, items_completed = items_completed + ?,
			items_failed = items_failed + ?, items_skipped = items_skipped + ?, items_cancelled = items_cancelled + ? WHERE id = ?`,
			n[run.ItemPending], n[run.ItemRunning], n[run.ItemCompleted], n[run.ItemFailed], n[run.ItemSkipped], n[run.ItemCancelled], store.ID(stepID))
		if err != nil {
			return fmt.Errorf("count the items of step %s: %w", stepID, err)
		}
		return nil
	})
	if *sum == nil {
		*sum = run.Counts{}
	}
	for s, n := range by {
		(*sum)[s] += n
	}
}
