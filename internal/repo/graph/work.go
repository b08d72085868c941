package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// itemRow is one thing that is left to do.
type itemRow struct {
	ID          int64      `db:"id"`
	FlowID      store.ID   `db:"flow_id"`
	Kind        string     `db:"kind"`
	ExecutionID store.ID   `db:"execution_id"`
	Namespace   string     `db:"namespace"`
	Actor       string     `db:"actor"`
	Detail      store.JSON `db:"detail"`
}

const selectItems = "SELECT id, flow_id, kind, execution_id, namespace, actor, detail FROM graph_backlog"

// Work does a part of what is left to do for one flow, in one transaction, and returns whether it has done any. Any number of
// processes may call it at the same time. What fails is reported and stays; the others go on.
func (r *Repo) Work(ctx context.Context) (int, error) {
	var flows []itemRow
	err := r.store.Read(ctx, func(q *store.Queries) error {
		return q.Select(&flows, "SELECT flow_id, namespace, min(id) AS id FROM graph_backlog GROUP BY flow_id, namespace ORDER BY min(id) LIMIT 16")
	})
	if err != nil {
		return 0, fmt.Errorf("read the backlog of graphs: %w", err)
	}
	var failed error
	for _, it := range flows {
		worked, err := store.Write(call.With(ctx, call.Engine(it.Namespace)), r.store, func(tx *store.Tx, out *int) (err error) {
			*out, err = r.workOn(tx, uuid.UUID(it.FlowID), len(flows) > 1)
			return err
		}, store.Background())
		if err == nil && worked > 0 {
			return worked, failed
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("backlog of flow %s: %w", uuid.UUID(it.FlowID), err))
		}
	}
	return 0, failed
}

// workOn does as much for one flow as a transaction may do, the oldest first, and returns how many items that were: none if somebody
// holds the flow and others are to go first.
func (r *Repo) workOn(tx *store.Tx, flowID uuid.UUID, others bool) (int, error) {
	if others {
		var free []store.ID
		err := tx.Select(&free, `SELECT id FROM flows WHERE id = ?`+tx.SkipLocked(), store.ID(flowID))
		if err != nil || len(free) == 0 {
			return 0, err
		}
	}
	f, err := r.flows.Head(tx, flowID)
	if fault.CodeOf(err) == fault.CodeNotFound { // deleted since
		return 1, backlog.Drop(tx, flowID)
	}
	if err != nil {
		return 0, err
	}
	var items []itemRow
	if err := tx.Select(&items, selectItems+" WHERE flow_id = ? ORDER BY id LIMIT ?", store.ID(flowID), r.cfg.Batch); err != nil {
		return 0, fmt.Errorf("read it: %w", err)
	}
	worked := 0
	for ; worked < len(items) && r.left(tx) > 0; worked++ {
		it := &items[worked]
		// It is put back if there is more to do.
		if err := tx.ExecOne(`DELETE FROM graph_backlog WHERE id = ?`, it.ID); err != nil {
			return 0, err
		}
		tx.Call.Actor = it.Actor
		err := r.continueItem(tx, &f, backlog.Item{Kind: backlog.Kind(it.Kind), FlowID: f.ID, ExecutionID: uuid.UUID(it.ExecutionID)}, it.Detail)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", it.Kind, uuid.UUID(it.ExecutionID), err)
		}
	}
	r.flows.Moved(tx, flowID, "", "", 0) // it may be that the flow has only waited for this
	return worked, nil
}

// continueItem does a part of one item.
func (r *Repo) continueItem(tx *store.Tx, f *flow.Flow, it backlog.Item, detail store.JSON) error {
	switch it.Kind {
	case backlog.Resolve:
		var rest resolveRest
		if err := json.Unmarshal(detail, &rest); err != nil {
			return store.Corrupt("backlog of flow", f.ID, err)
		}
		return r.resolveEnded(tx, f.ID, []uuid.UUID{it.ExecutionID}, rest.Fresh)
	case backlog.Siblings:
		whole, err := r.flows.Find(&tx.Queries, f.Namespace, f.ID)
		if err != nil || ownerOf(&whole).end != nil {
			return err
		}
		g, found, err := findGroup(&tx.Queries, it.ExecutionID)
		if err != nil || !found || !g.CancelsRest() {
			return err
		}
		return r.cancelRest(tx, f.ID, &g)
	case backlog.Replay:
		var rest replayRest
		if err := json.Unmarshal(detail, &rest); err != nil {
			return store.Corrupt("backlog of flow", f.ID, err)
		}
		if f.Status.Terminal() { // it has ended again since
			return nil
		}
		budgetOf(tx).spent += len(rest.IDs)
		return r.replayThese(tx, f.ID, rest.IDs, rest.Started)
	case backlog.Start:
		budgetOf(tx).spent += r.cfg.Batch // it is a batch of its own
		if f.Status == flow.Created {
			return nil
		}
		return r.flows.StartMembers(tx, f.ID)
	case backlog.Cancel:
		budgetOf(tx).spent += r.cfg.Batch
		if !f.Status.Terminal() { // it runs again
			return nil
		}
		var end execution.Cascade
		if err := json.Unmarshal(detail, &end); err != nil {
			return store.Corrupt("backlog of flow", f.ID, err)
		}
		_, err := r.flows.EndMembers(tx, f.ID, end)
		return err
	case backlog.Runs:
		budgetOf(tx).spent += r.cfg.Batch
		var rest backlog.RunsRest
		if err := json.Unmarshal(detail, &rest); err != nil {
			return store.Corrupt("backlog of flow", f.ID, err)
		}
		return r.runs.EndOf(tx, f.ID, rest.After)
	}
	return nil
}

// NextWork returns when there is something left to do: at once, or never.
func (r *Repo) NextWork(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := r.store.Read(ctx, func(q *store.Queries) error {
		var n int
		if err := q.Get(&n, `SELECT count(*) FROM (SELECT 1 FROM graph_backlog LIMIT 1) first`); err != nil || n == 0 {
			return err
		}
		at = q.Now()
		return nil
	})
	return at, err
}

// Left returns how much is left to do, for the metrics.
func (r *Repo) Left(ctx context.Context) (n int64, err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error { return q.Get(&n, `SELECT count(*) FROM graph_backlog`) })
	return n, err
}
