package run

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Items lists the items of a step, in the order in which they were added; those in one status, if one is given. It returns CodeNotFound.
func (r *Repo) Items(ctx context.Context, runID, stepID uuid.UUID, status run.ItemStatus, after page.Cursor, limit int) (page.Page[run.Item], error) {
	var list []run.Item
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		if _, err := find(q, call.From(ctx).Namespace, runID, ""); err != nil {
			return err
		}
		if _, err := findStep(q, runID, stepID); err != nil {
			return err
		}
		where := store.NewWhere("step_id = ?", store.ID(stepID))
		where.If(status != "", "status = ?", string(status))
		where.If(!after.IsZero(), "id > ?", store.ID(after.ID))
		list, err = someItems(q, where.String()+" ORDER BY id LIMIT ?", where.Args(limit+1)...)
		return err
	})
	return page.Of(list, limit, func(it run.Item) page.Cursor { return page.After(it.CreatedAt, it.ID) }), err
}

// itemsRef stands for items in an answer that was not kept.
type itemsRef struct {
	RunID, StepID uuid.UUID
	IDs           []uuid.UUID
	Created       []bool
}

// AddItems adds items to a step, all or none; those that are there already are returned as they are. It returns CodeNotFound,
// CodeLeaseLost, CodeStepTerminal, CodeRunTerminal, CodeRunCancelled, and the refusals of the children.
// reference: runs-and-taskflows.md A5.8, A13 10.
func (r *Repo) AddItems(ctx context.Context, runID, stepID uuid.UUID, generation int64, in []run.ItemRequest) (out []run.AddedItem, err error) {
	err = r.executions.Making(ctx, func() error {
		out, err = store.Write(ctx, r.store, func(tx *store.Tx, out *[]run.AddedItem) error {
			return r.addItems(tx, runID, stepID, generation, in, out)
		}, store.Reload(r.reloadAdded))
		return err
	})
	return out, err
}

func (r *Repo) reloadAdded(ctx context.Context, kept itemsRef) ([]run.AddedItem, error) {
	items, err := r.itemsByID(ctx, kept)
	out := make([]run.AddedItem, 0, len(items))
	for i := range items {
		out = append(out, run.AddedItem{Item: items[i], Created: kept.Created[i]})
	}
	return out, err
}

func (r *Repo) itemsByID(ctx context.Context, of itemsRef) (list []run.Item, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		if _, err := find(q, call.From(ctx).Namespace, of.RunID, ""); err != nil {
			return err
		}
		found, err := readItems(q, of.StepID, of.IDs, "")
		for _, id := range of.IDs {
			if it, ok := found[id]; ok {
				list = append(list, it)
			}
		}
		return err
	})
	return list, err
}

func (r *Repo) addItems(tx *store.Tx, runID, stepID uuid.UUID, generation int64, in []run.ItemRequest, out *[]run.AddedItem) error {
	children := make([]*run.Child, len(in))
	for i := range in {
		children[i] = in[i].Child
	}
	if err := r.holdFlows(tx, runID, children...); err != nil {
		return err
	}
	x, s, err := r.fanOut(tx, runID, stepID, generation)
	if err != nil {
		return err
	}
	there, err := itemsByKey(&tx.Queries, stepID, in)
	if err != nil {
		return err
	}
	if n := unknown(in, there); n > 0 { // else it is only told what is there
		if err := admits(tx, &x, &s, n); err != nil {
			return err
		}
	}
	ref := itemsRef{RunID: runID, StepID: stepID}
	taken := map[uuid.UUID]bool{}
	var rows [][]any
	var made []run.Item
	moved := run.Counts{}
	for i := range in {
		key := itemKey{in[i].Type, in[i].ItemID}
		it, known := there[key]
		if !known {
			it = in[i].New(store.NewID(), &s, tx.Now())
			if !in[i].Child.IsZero() {
				if it, err = r.attachItem(tx, &x, it, in[i].Child, "/items/"+strconv.Itoa(i)+"/child"); err != nil {
					return err
				}
				if taken[it.ChildExecution] {
					return worksElsewhere(it.ChildExecution, x.ID)
				}
				taken[it.ChildExecution] = it.ChildExecution != uuid.Nil
			}
			there[key] = it
			stored := itemRowOf(&it)
			rows, made = append(rows, items.All(&stored)), append(made, it)
			moved[it.Status]++
		}
		*out = append(*out, run.AddedItem{Item: it, Created: !known})
		ref.IDs, ref.Created = append(ref.IDs, it.ID), append(ref.Created, !known)
	}
	tx.Refer(ref)
	if len(rows) == 0 {
		return nil
	}
	if _, err := tx.Insert(insertItems, rows, ""); err != nil {
		return fmt.Errorf("insert %d items: %w", len(rows), err)
	}
	for i := range made {
		added := made[i]
		added.Status = run.ItemPending
		tx.Emit(added.Event(&x))
		if made[i].Status != run.ItemPending {
			tx.Emit(made[i].Event(&x))
		}
	}
	count(tx, stepID, moved)
	return nil
}

// unknown counts the items that are not there yet, each once.
func unknown(in []run.ItemRequest, there map[itemKey]run.Item) int {
	fresh := map[itemKey]bool{}
	for i := range in {
		key := itemKey{in[i].Type, in[i].ItemID}
		if _, known := there[key]; !known {
			fresh[key] = true
		}
	}
	return len(fresh)
}

// admits refuses new items where nothing begins any more, and, with CodeOutOfRange, more than a step or a run may have: they end in one
// transaction with it.
func admits(tx *store.Tx, x *run.Run, s *run.Step, more int) error {
	if err := x.Begins(); err != nil {
		return err
	}
	if s.Status.Terminal() {
		return s.Over(s.Status)
	}
	var n int
	err := tx.Get(&n, `SELECT CAST(coalesce(sum(items_pending + items_running + items_completed + items_failed + items_skipped + items_cancelled), 0) AS BIGINT) FROM run_steps WHERE run_id = ?`, store.ID(x.ID))
	if err != nil {
		return fmt.Errorf("count the items of run %s: %w", x.ID, err)
	}
	if s.FanOut.Total()+more <= run.MaxItems && n+more <= run.MaxItemsOfRun {
		return nil
	}
	return fault.Invalid(fault.CodeOutOfRange, "/items", "A step has at most %d items, and a run %d. Divide the work among several runs.", run.MaxItems, run.MaxItemsOfRun)
}

func (r *Repo) attachItem(tx *store.Tx, x *run.Run, it run.Item, child *run.Child, pointer string) (run.Item, error) {
	a, err := r.attach(tx, x, child, it.Within(), pointer)
	if err != nil {
		return it, err
	}
	next, _ := it.Attach(a).Become(run.ItemOf(a.Seen.Status), tx.Now())
	return next, nil
}

// fanOut returns a run that is held, of an engine with this generation, and a step of it.
func (r *Repo) fanOut(tx *store.Tx, runID, stepID uuid.UUID, generation int64) (run.Run, run.Step, error) {
	x, err := r.engine(tx, runID, generation)
	if err != nil {
		return x, run.Step{}, err
	}
	s, err := findStep(&tx.Queries, runID, stepID)
	return x, s, err
}

// UpdateItems changes items of a step, all or none. It returns CodeNotFound with those that are missing, CodeLeaseLost,
// CodeIllegalTransition, CodeRunTerminal, CodeRunCancelled, and the refusals of the children.
// reference: runs-and-taskflows.md A5.8, A13 11.
func (r *Repo) UpdateItems(ctx context.Context, runID, stepID uuid.UUID, generation int64, updates []run.ItemUpdate) (out []run.Item, err error) {
	err = r.executions.Making(ctx, func() error {
		out, err = store.Write(ctx, r.store, func(tx *store.Tx, out *[]run.Item) error {
			return r.updateItems(tx, runID, stepID, generation, updates, out)
		}, store.Reload(r.itemsByID))
		return err
	})
	return out, err
}

func (r *Repo) updateItems(tx *store.Tx, runID, stepID uuid.UUID, generation int64, updates []run.ItemUpdate, out *[]run.Item) error {
	children := make([]*run.Child, len(updates))
	for i := range updates {
		children[i] = updates[i].Child
	}
	if err := r.holdFlows(tx, runID, children...); err != nil {
		return err
	}
	if err := r.holdItems(tx, updates); err != nil {
		return err
	}
	x, s, err := r.fanOut(tx, runID, stepID, generation)
	if err != nil {
		return err
	}
	ids := make([]uuid.UUID, len(updates))
	for i := range updates {
		ids[i] = updates[i].ID
	}
	items, err := readItems(&tx.Queries, stepID, ids, tx.ForUpdate())
	if err != nil {
		return err
	}
	var missing []uuid.UUID
	for _, id := range ids {
		if _, ok := items[id]; !ok && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.CodeNotFound, "%d of the items are not in step %s. Nothing was changed.", len(missing), stepID).With("resource", "item").With("missing", missing)
	}
	tx.Refer(itemsRef{RunID: runID, StepID: stepID, IDs: ids})
	for i, u := range updates {
		before := items[u.ID]
		after, err := r.updateItem(tx, &x, &s, before, &u, "/updates/"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		items[u.ID] = after
	}
	for _, id := range ids {
		*out = append(*out, items[id])
	}
	return nil
}
