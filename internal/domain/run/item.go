package run

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

// How many items a step, and all steps of a run together, may have.
const (
	MaxItems      = 10_000
	MaxItemsOfRun = 30_000
)

// Item is one of many things that a step does. It is known in its step by its type and id.
// reference: runs-and-taskflows.md A3.3.
type Item struct {
	ID             uuid.UUID
	StepID         uuid.UUID
	RunID          uuid.UUID
	Type           string
	ItemID         string
	Ref            string // a label for people
	Status         ItemStatus
	ChildRunID     string
	ChildLinked    bool // it is a run of ours, whose end ends the item
	ChildExecution uuid.UUID
	Context        json.RawMessage // an object
	CreatedAt      time.Time
	DispatchedAt   time.Time
	CompletedAt    time.Time
}

// NewItem is what a new item is made of.
type NewItem struct {
	Type    string
	ItemID  string
	Ref     string
	Context json.RawMessage // nil for {}
}

// ItemRequest is a new item with the child that does its work, if there is one.
type ItemRequest struct {
	NewItem
	Child *Child
}

// New returns a new item of a step.
func (in NewItem) New(id uuid.UUID, s *Step, at time.Time) Item {
	it := Item{ID: id, StepID: s.ID, RunID: s.RunID, Type: in.Type, ItemID: in.ItemID, Ref: in.Ref, Status: ItemPending, Context: compact(in.Context), CreatedAt: at}
	if it.Context == nil {
		it.Context = json.RawMessage("{}")
	}
	return it
}

// Name is what people call the item.
func (it *Item) Name() string { return cmp.Or(it.Ref, it.ItemID) }

// HasChild says whether a child of ours does the item's work. While the item has not ended, the child has not either.
func (it *Item) HasChild() bool { return it.ChildExecution != uuid.Nil || it.ChildLinked }

// Within returns the place of a child of the item.
func (it *Item) Within() Place { return Place{RunID: it.RunID, StepID: it.StepID, ItemID: it.ID} }

// ItemUpdate is what an engine says of an item.
type ItemUpdate struct {
	ID         uuid.UUID
	Status     ItemStatus
	ChildRunID *string // nil keeps it
	Child      *Child  // that does its work from now on
}

// Update returns it as its engine changes it, and whether that is a change. The same status again changes nothing. It returns
// CodeIllegalTransition.
func (it Item) Update(u ItemUpdate, at time.Time) (Item, bool, error) {
	if u.Status != it.Status && !slices.Contains(itemTransitions[it.Status], u.Status) {
		return it, false, illegal("Item", it.ID, it.Status, u.Status).With("item_id", it.ID)
	}
	if it.Status.Terminal() || u.Status == it.Status && (u.ChildRunID == nil || it.ChildLinked || *u.ChildRunID == it.ChildRunID) {
		return it, false, nil
	}
	if u.ChildRunID != nil && !it.ChildLinked {
		it.ChildRunID = *u.ChildRunID
	}
	return it.become(u.Status, at), true, nil
}

// Become returns an item in the status that its child, its step or its run makes it have, and whether that is a change: what has
// ended stays as it is.
func (it Item) Become(to ItemStatus, at time.Time) (Item, bool) {
	if it.Status == to || !slices.Contains(itemTransitions[it.Status], to) {
		return it, false
	}
	return it.become(to, at), true
}

func (it Item) become(to ItemStatus, at time.Time) Item {
	it.Status = to
	if to != ItemPending && it.DispatchedAt.IsZero() && (to == ItemRunning || it.HasChild()) {
		it.DispatchedAt = at
	}
	if to.Terminal() {
		it.CompletedAt = at
	}
	return it
}

// Again says whether a resume does an item anew, whose step is done anew.
func (it *Item) Again(in Resume) bool {
	return in.Restart || in.FromStep != "" || it.Status == ItemFailed || it.Status == ItemCancelled || it.Status == ItemRunning && !it.HasChild()
}

// Reset returns an item that is done anew.
func (it Item) Reset() Item {
	it.Status, it.ChildRunID, it.ChildLinked, it.ChildExecution, it.DispatchedAt, it.CompletedAt = ItemPending, "", false, uuid.Nil, time.Time{}, time.Time{}
	return it
}

// itemEvents are the events of items.
var itemEvents = map[ItemStatus]event.Type{
	ItemPending: event.ItemAdded, ItemRunning: event.ItemRunning, ItemCompleted: event.ItemCompleted, ItemFailed: event.ItemFailed, ItemSkipped: event.ItemSkipped,
	ItemCancelled: event.ItemCancelled,
}

// Event returns the event that tells what has become of an item.
func (it *Item) Event(r *Run) event.Event {
	return r.Event(itemEvents[it.Status], struct {
		StepID           uuid.UUID  `json:"step_id"`
		ID               uuid.UUID  `json:"id"`
		ItemType         string     `json:"item_type"`
		ItemID           string     `json:"item_id"`
		Status           ItemStatus `json:"status"`
		ChildRunID       string     `json:"child_run_id,omitempty"`
		ChildExecutionID uuid.UUID  `json:"child_execution_id,omitzero"`
	}{it.StepID, it.ID, it.Type, it.ItemID, it.Status, it.ChildRunID, it.ChildExecution})
}

// Counts says how many items of a step are in each status.
type Counts map[ItemStatus]int

// Total is how many there are.
func (c Counts) Total() int {
	n := 0
	for _, of := range c {
		n += of
	}
	return n
}

// Open is how many have not ended.
func (c Counts) Open() int { return c[ItemPending] + c[ItemRunning] }
