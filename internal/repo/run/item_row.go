package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// itemRow is a stored item.
type itemRow struct {
	ID             store.ID     `db:"id"`
	StepID         store.ID     `db:"step_id"`
	RunID          store.ID     `db:"run_id"`
	Type           string       `db:"item_type"`
	ItemID         string       `db:"item_id"`
	Ref            string       `db:"item_ref"`
	Context        store.JSON   `db:"context"`
	CreatedAt      store.Millis `db:"created_at"`
	Status         string       `db:"status" row:"moving"`
	ChildRunID     store.Text   `db:"child_run_id"`
	ChildLinked    int          `db:"child_linked"`
	ChildExecution store.ID     `db:"child_execution_id"`
	DispatchedAt   store.Millis `db:"dispatched_at"`
	CompletedAt    store.Millis `db:"completed_at"`
}

var (
	items       = store.TableOf[itemRow]("run_items")
	insertItems = "INSERT INTO run_items (" + items.Columns + ") VALUES "
)

func itemRowOf(it *run.Item) itemRow {
	return itemRow{ID: store.ID(it.ID), StepID: store.ID(it.StepID), RunID: store.ID(it.RunID), Type: it.Type, ItemID: it.ItemID, Ref: it.Ref, Context: store.JSON(it.Context),
		CreatedAt: store.Millis(it.CreatedAt), Status: string(it.Status), ChildRunID: store.Text(it.ChildRunID), ChildLinked: store.Bit(it.ChildLinked),
		ChildExecution: store.ID(it.ChildExecution), DispatchedAt: store.Millis(it.DispatchedAt), CompletedAt: store.Millis(it.CompletedAt)}
}

func (r *itemRow) item() (run.Item, error) {
	it := run.Item{ID: uuid.UUID(r.ID), StepID: uuid.UUID(r.StepID), RunID: uuid.UUID(r.RunID), Type: r.Type, ItemID: r.ItemID, Ref: r.Ref, Status: run.ItemStatus(r.Status),
		ChildRunID: string(r.ChildRunID), ChildLinked: r.ChildLinked == 1, ChildExecution: uuid.UUID(r.ChildExecution), Context: json.RawMessage(r.Context),
		CreatedAt: time.Time(r.CreatedAt), DispatchedAt: time.Time(r.DispatchedAt), CompletedAt: time.Time(r.CompletedAt)}
	if !it.Status.Known() {
		return it, store.Corrupt("item", it.ID, errStatus)
	}
	return it, nil
}

// someItems reads the items that a condition selects.
func someItems(q *store.Queries, condition string, args ...any) ([]run.Item, error) {
	var rows []itemRow
	if err := q.Select(&rows, "SELECT "+items.Columns+" FROM run_items WHERE "+condition, args...); err != nil {
		return nil, fmt.Errorf("read items: %w", err)
	}
	return store.Rows(rows, (*itemRow).item)
}

// readItems reads items of a step by their ids. lock is a locking clause, or "".
func readItems(q *store.Queries, stepID uuid.UUID, ids []uuid.UUID, lock string) (map[uuid.UUID]run.Item, error) {
	found := make(map[uuid.UUID]run.Item, len(ids))
	for chunk := range store.Chunks(ids) {
		items, err := someItems(q, "step_id = ? AND id IN ? ORDER BY id"+lock, store.ID(stepID), store.List(store.IDs(chunk)))
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			found[it.ID] = it
		}
	}
	return found, nil
}

// itemKey is what an item is known by in its step.
type itemKey struct{ kind, id string }

// itemsByKey returns those of some items that a step has.
func itemsByKey(q *store.Queries, stepID uuid.UUID, in []run.ItemRequest) (map[itemKey]run.Item, error) {
	there := make(map[itemKey]run.Item, len(in))
	for chunk := range store.Chunks(in) {
		kinds, names := make([]string, len(chunk)), make([]string, len(chunk))
		for i := range chunk {
			kinds[i], names[i] = chunk[i].Type, chunk[i].ItemID
		}
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		found, err := someItems(q, "step_id = ? AND item_type IN ? AND item_id IN ?", store.ID(stepID), store.List(kinds), store.List(names))
		if err != nil {
			return nil, err
		}
		for _, it := range found {
			for i := range chunk {
				if chunk[i].Type == it.Type && chunk[i].ItemID == it.ItemID {
					there[itemKey{it.Type, it.ItemID}] = it
					break
				}
			}
		}
	}
	return there, nil
}

func (r *Repo) eachItem(tx *store.Tx, stepID uuid.UUID, condition string, do func(it run.Item) error) error {
	items, err := someItems(&tx.Queries, "step_id = ?"+condition+" ORDER BY id"+tx.ForUpdate(), store.ID(stepID))
	if err != nil {
		return err
	}
	for _, it := range items {
		if err := do(it); err != nil {
			return err
		}
	}
	return nil
}
