package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/build"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// The rollup of a flow is moved once in a transaction, last: it is the row that all members of a flow share.

// rollupRow is the stored rollup.
type rollupRow struct {
	FlowID          store.ID `db:"flow_id"`
	Waiting         int64    `db:"waiting"`
	Delayed         int64    `db:"delayed"`
	RateLimited     int64    `db:"rate_limited"`
	WaitingChildren int64    `db:"waiting_children"`
	Active          int64    `db:"active"`
	Suspended       int64    `db:"suspended"`
	Completed       int64    `db:"completed"`
	Failed          int64    `db:"failed"`
	Cancelled       int64    `db:"cancelled"`
	Expired         int64    `db:"expired"`
	Skipped         int64    `db:"skipped"`
	Unforgiven      int      `db:"unforgiven"`
}

// The columns are named after the public states.
var (
	rollupColumns = func() string {
		names := make([]string, len(execution.Publics()))
		for i, p := range execution.Publics() {
			names[i] = string(p)
		}
		return strings.Join(names, ", ")
	}()
	openColumns = func() string {
		var names []string
		for _, p := range execution.Publics() {
			if !p.Ended() {
				names = append(names, string(p))
			}
		}
		return strings.Join(names, " + ")
	}()
	insertRollup  = "INSERT INTO flow_rollups (flow_id, unforgiven, " + rollupColumns + ") VALUES (?, 0" + strings.Repeat(", ?", len(execution.Publics())) + ")"
	selectRollups = "SELECT flow_id, unforgiven, " + rollupColumns + " FROM flow_rollups"
)

func (r *rollupRow) rollup() flow.Rollup {
	counts := map[execution.Public]int64{
		execution.PublicWaiting: r.Waiting, execution.PublicDelayed: r.Delayed, execution.PublicRateLimited: r.RateLimited,
		execution.PublicWaitingChildren: r.WaitingChildren, execution.PublicActive: r.Active, execution.PublicSuspended: r.Suspended,
		execution.PublicCompleted: r.Completed, execution.PublicFailed: r.Failed, execution.PublicCancelled: r.Cancelled,
		execution.PublicExpired: r.Expired, execution.PublicSkipped: r.Skipped,
	}
	for p, n := range counts {
		if n == 0 {
			delete(counts, p)
		}
	}
	return flow.Rollup{Counts: counts, Unforgiven: r.Unforgiven == 1}
}

// rollupsOf reads the rollups of flows.
func rollupsOf(q *store.Queries, ids []store.ID) (map[uuid.UUID]flow.Rollup, error) {
	found := make(map[uuid.UUID]flow.Rollup, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	var rows []rollupRow
	if err := q.Select(&rows, selectRollups+" WHERE flow_id IN ?", store.List(ids)); err != nil {
		return nil, fmt.Errorf("read rollups: %w", err)
	}
	for i := range rows {
		found[uuid.UUID(rows[i].FlowID)] = rows[i].rollup()
	}
	return found, nil
}

// moves are what a transaction does to rollups: by how much each count changes, and by which event at last.
type moves struct {
	flows  map[uuid.UUID]map[execution.Public]int64
	causes map[uuid.UUID]store.Ref
}

type movesKey struct{}

// Moved counts members of a flow that went from one public state to another: "" for those that are new to it. When all have
// ended, a flow that ends by itself does so; with n = 0 it is only looked whether they have.
func (r *Repo) Moved(tx *store.Tx, flowID uuid.UUID, from, to execution.Public, n int) {
	m := store.Sum(tx, movesKey{}, func(m *moves) error { return r.moveRollups(tx, m) })
	if m.flows == nil {
		m.flows, m.causes = map[uuid.UUID]map[execution.Public]int64{}, map[uuid.UUID]store.Ref{}
	}
	if m.flows[flowID] == nil {
		m.flows[flowID] = map[execution.Public]int64{}
	}
	m.causes[flowID] = tx.Cause()
	if from != "" {
		m.flows[flowID][from] -= int64(n)
	}
	if to != "" {
		m.flows[flowID][to] += int64(n)
	}
}

// forgetMoves forgets what has moved in a flow that is deleted.
func forgetMoves(tx *store.Tx, flowID uuid.UUID) {
	m := store.Sum(tx, movesKey{}, func(*moves) error { return nil })
	delete(m.flows, flowID)
}

// moveRollups writes the moves down, flow by flow in the order of their ids.
func (r *Repo) moveRollups(tx *store.Tx, m *moves) error {
	ids := make([]uuid.UUID, 0, len(m.flows))
	for id := range m.flows {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, store.ByID[uuid.UUID])
	defer tx.Because(tx.Cause()) // and then what it was before
	for _, id := range ids {
		tx.Because(m.causes[id]) // the end of the flow, if it ends now
		open, err := moveRollup(tx, id, m.flows[id])
		if err == nil && open == 0 {
			err = r.completeNow(tx, id)
		}
		if err != nil {
			return fmt.Errorf("move the rollup of flow %s: %w", id, err)
		}
	}
	return nil
}

// moveRollup moves the counts that have changed. It returns how many members have not ended, as far as any may have.
func moveRollup(tx *store.Tx, id uuid.UUID, by map[execution.Public]int64) (open int64, err error) {
	var set []string
	var args []any
	for _, p := range execution.Publics() {
		if n := by[p]; n != 0 {
			set = append(set, string(p)+" = "+string(p)+" + ?")
			args = append(args, n)
		}
	}
	if len(set) == 0 { // only to be looked
		return 0, nil
	}
	update, args := "UPDATE flow_rollups SET "+strings.Join(set, ", ")+" WHERE flow_id = ?", append(args, store.ID(id))
	if slices.ContainsFunc(execution.Ends(), func(p execution.Public) bool { return by[p] > 0 }) {
		err = tx.Get(&open, update+" RETURNING "+openColumns, args...)
		if !store.NotFound(err) {
			return open, err
		}
	} else if n, err := tx.Exec(update, args...); err != nil || n == 1 {
		return 1, err
	}
	args = []any{store.ID(id)}
	for _, p := range execution.Publics() {
		args = append(args, by[p])
	}
	_, err = tx.Exec(insertRollup, args...)
	return 0, err
}

// completeNow ends a flow that ends by itself if all its members have ended.
func (r *Repo) completeNow(tx *store.Tx, id uuid.UUID) error {
	var found rollupRow
	err := tx.Get(&found, selectRollups+" WHERE flow_id = ?", store.ID(id))
	switch {
	case store.NotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the rollup of flow %s: %w", id, err)
	}
	return r.complete(tx, id, found)
}

// shownNames bounds how many members the reason of a failed flow names.
const shownNames = 5

// complete decides how a flow has ended whose members have all ended.
func (r *Repo) complete(tx *store.Tx, id uuid.UUID, found rollupRow) error {
	rollup := found.rollup()
	if rollup.Open() > 0 || rollup.Total() == 0 {
		return nil
	}
	if busy, err := backlog.Has(&tx.Queries, id, backlog.Replay, backlog.Resolve); busy || err != nil { // others are about to run again, or it is not decided yet what made up for a bad end
		return err
	}
	names, err := unforgiven(&tx.Queries, id, &rollup, shownNames+1)
	if err != nil {
		return err
	}
	if bad := store.Bit(len(names) > 0); bad != found.Unforgiven {
		if err := tx.ExecOne(`UPDATE flow_rollups SET unforgiven = ? WHERE flow_id = ?`, bad, store.ID(id)); err != nil {
			return err
		}
	}
	return r.finish(tx, id, names[:min(len(names), shownNames)], len(names) > shownNames)
}

// finish ends a flow of which nothing is left to do, if it ends by itself.
func (r *Repo) finish(tx *store.Tx, id uuid.UUID, names []string, more bool) error {
	var head row
	if err := tx.Get(&head, "SELECT "+aboutColumns+", auto_finish FROM flows WHERE id = ?", store.ID(id)); err != nil {
		return fmt.Errorf("read flow %s: %w", id, err)
	}
	if head.AutoFinish == 0 || flow.Status(head.Status) != flow.Running {
		return nil
	}
	defer tx.As(call.Engine(head.Namespace))()
	_, err := r.apply(tx, id, nil, func(tx *store.Tx, f flow.Flow) (flow.Change, error) { return f.Complete(names, more, tx.By()) })
	return err
}

// Unforgiven is the condition that an execution e keeps its flow from ending well.
var Unforgiven = "(" + endedBadly + " OR " + leftOut + ")"

// endedBadly is the condition that an execution e ended badly and that nothing made up for it: it leads to no group, or to one that was
// not satisfied.
var endedBadly = `e.terminal_outcome IN ('failed', 'expired', 'cancelled')
	AND (NOT EXISTS (SELECT 1 FROM edges d JOIN edge_groups g ON g.execution_id = d.downstream_id WHERE d.upstream_id = e.id AND ` + build.Shown("g") + `)
		OR EXISTS (SELECT 1 FROM edges d JOIN edge_groups g ON g.execution_id = d.downstream_id WHERE d.upstream_id = e.id AND g.state <> 'satisfied' AND ` + build.Shown("g") + `))`

// leftOut is the condition that an execution e was skipped because of one that has ended well since: it should have run.
const leftOut = `e.terminal_outcome = 'skipped' AND EXISTS (SELECT 1 FROM edges d JOIN executions u ON u.id = d.upstream_id
	WHERE d.downstream_id = e.id AND d.state = 'impossible' AND u.terminal_outcome = 'success')`

// unforgiven names up to limit members that keep a flow from ending well: those that ended badly, or, if there are none, those that were
// left out.
func unforgiven(q *store.Queries, id uuid.UUID, r *flow.Rollup, limit int) (names []string, err error) {
	if r.Bad() > 0 {
		names, err = namesOf(q, id, endedBadly, limit)
	}
	if err == nil && len(names) == 0 && r.Counts[execution.PublicSkipped] > 0 {
		names, err = namesOf(q, id, leftOut, limit)
	}
	return names, err
}

// namesOf names up to limit members of a flow that a condition selects, the oldest first.
func namesOf(q *store.Queries, id uuid.UUID, condition string, limit int) ([]string, error) {
	var rows []struct {
		ID  store.ID   `db:"id"`
		Key store.Text `db:"key"`
	}
	err := q.Select(&rows, "SELECT e.id, e.key FROM executions e WHERE e.flow_id = ? AND "+condition+" ORDER BY e.created_at, e.id LIMIT ?", store.ID(id), limit)
	if err != nil {
		return nil, fmt.Errorf("look how the members of flow %s ended: %w", id, err)
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = cmp.Or(fault.Readable(string(row.Key)), uuid.UUID(row.ID).String())
	}
	return names, nil
}
