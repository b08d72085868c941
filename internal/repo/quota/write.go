package quota

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/repo/store"
)

// write writes down what a transaction has done: first what was given back, then what was taken.
func (r *Repo) write(tx *store.Tx, d *desk) error {
	ended := d.ended
	d.ended = nil
	if err := r.giveBack(tx, ended); err != nil {
		return err
	}
	var rows [][]any
	for _, p := range slices.SortedFunc(maps.Keys(d.states), place.order) {
		s := d.states[p]
		if len(s.slots) == 0 && s.started == 0 {
			continue
		}
		for _, id := range s.slots {
			rows = append(rows, []any{store.ID(id), store.ID(p.id), p.key, store.Millis(tx.Now())})
		}
		if err := s.write(tx, p); err != nil {
			return fmt.Errorf("count for quota %s: %w", p.id, err)
		}
	}
	if _, err := tx.Insert(`INSERT INTO quota_admissions (execution_id, quota_id, key, admitted_at) VALUES `, rows, ""); err != nil {
		return fmt.Errorf("note slots: %w", err)
	}
	return nil
}

// write writes what was taken at a place.
func (s *state) write(tx *store.Tx, p place) error {
	err := tx.ExecOne(`UPDATE quota_keys SET active = active + ?, starts = starts + ? WHERE quota_id = ? AND key = ?`, len(s.slots), s.started, store.ID(p.id), p.key)
	if err != nil {
		return err
	}
	if s.started > 0 {
		s.starts += s.started
		if err := tx.ExecOne(`INSERT INTO quota_starts (quota_id, key, n, count, at) VALUES (?, ?, ?, ?, ?)`, store.ID(p.id), p.key, s.starts, s.started, store.Millis(s.at)); err != nil {
			return err
		}
		if _, err := tx.Exec(`DELETE FROM quota_starts WHERE quota_id = ? AND key = ? AND at <= ?`, store.ID(p.id), p.key, store.Millis(s.at.Add(-s.quota.Window))); err != nil {
			return err
		}
	}
	s.slots, s.started = nil, 0
	return nil
}

// giveBack gives back the slots of executions, and lets those go on who wait for one.
func (r *Repo) giveBack(tx *store.Tx, executions []uuid.UUID) error {
	freed := map[place]int64{}
	for chunk := range store.Chunks(executions) {
		var rows []struct {
			QuotaID store.ID `db:"quota_id"`
			Key     string   `db:"key"`
		}
		if err := tx.Select(&rows, `DELETE FROM quota_admissions WHERE execution_id IN ? RETURNING quota_id, key`, store.List(store.IDs(chunk))); err != nil {
			return fmt.Errorf("give slots back: %w", err)
		}
		for _, row := range rows {
			freed[place{uuid.UUID(row.QuotaID), row.Key}]++
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(freed), place.order) {
		if err := r.free(tx, p, freed[p]); err != nil {
			return err
		}
	}
	return nil
}

// free counts slots that were given back. Only where none was left may somebody be held up.
func (r *Repo) free(tx *store.Tx, p place, n int64) error {
	var after struct {
		Active int64 `db:"active"`
		Most   int64 `db:"most"`
	}
	err := tx.Get(&after, `UPDATE quota_keys SET active = active - ? WHERE quota_id = ? AND key = ? RETURNING active, (SELECT q.max_concurrent FROM quotas q WHERE q.id = quota_id) AS most`, n, store.ID(p.id), p.key)
	if store.NotFound(err) { // it was deleted at the same time
		return nil
	}
	if err != nil {
		return fmt.Errorf("give slots of quota %s back: %w", p.id, err)
	}
	if s := r.desk(tx).states[p]; s != nil {
		s.usage.Active -= n
	}
	if after.Most == 0 || after.Active+n < after.Most || after.Active >= after.Most {
		return nil
	}
	return r.executions.Reopen(tx, p.id, p.key, after.Most-after.Active)
}
