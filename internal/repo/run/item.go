package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
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
	Status         string       `db:"status"`
	ChildRunID     store.Text   `db:"child_run_id"`
	ChildLinked    int          `db:"child_linked"`
	ChildExecution store.ID     `db:"child_execution_id"`
	DispatchedAt   store.Millis `db:"dispatched_at"`
	CompletedAt    store.Millis `db:"completed_at"`
}

var (
	itemNames   = []string{"id", "step_id", "run_id", "item_type", "item_id", "item_ref", "context", "created_at", "status", "child_run_id", "child_linked", "child_execution_id", "dispatched_at", "completed_at"}
	itemColumns = strings.Join(itemNames, ", ")
	insertItems = "INSERT INTO run_items (" + itemColumns + ") VALUES "
)

const updateItem = "UPDATE run_items SET status = ?, child_run_id = ?, child_linked = ?, child_execution_id = ?, dispatched_at = ?, completed_at = ? WHERE id = ?"

func itemValues(it *run.Item) []any {
	return append([]any{store.ID(it.ID), store.ID(it.StepID), store.ID(it.RunID), it.Type, it.ItemID, it.Ref, store.JSON(it.Context), store.Millis(it.CreatedAt)}, movingItem(it)...)
}

func movingItem(it *run.Item) []any {
	return []any{string(it.Status), store.Text(it.ChildRunID), store.Bit(it.ChildLinked), store.ID(it.ChildExecution), store.Millis(it.DispatchedAt), store.Millis(it.CompletedAt)}
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
	if err := q.Select(&rows, "SELECT "+itemColumns+" FROM run_items WHERE "+condition, args...); err != nil {
		return nil, fmt.Errorf("read items: %w", err)
	}
	return store.Rows(rows, (*itemRow).item)
}

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
			rows, made = append(rows, itemValues(&it)), append(made, it)
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
	if err := tx.ExecOne(updateItem, append(movingItem(after), store.ID(after.ID))...); err != nil {
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
