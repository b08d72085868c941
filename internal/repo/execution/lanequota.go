package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/hub"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// The quotas of a lane are part of the terms of whatever stands in it. When they change, its buckets are stale: nobody claims from
// them, and a loop moves who stands there.

// lanes knows the lanes that have quotas, of which there are few, until one of them changes.
type lanes struct {
	mu      *sync.Mutex
	changed *hub.Waiter
	all     map[laneKey][]execution.QuotaRef
}

// lanesKey is the hub's key for changes of the quotas of lanes, in all processes.
const lanesKey = "lanes/quotas"

func newLanes(h *hub.Hub) *lanes {
	return &lanes{mu: &sync.Mutex{}, changed: h.Wait([]string{lanesKey}, nil)}
}

// forget makes the next look one at the table: what was remembered has turned out to be outdated.
func (l *lanes) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

// quotas returns the quotas of a lane. What was remembered may be outdated for a moment: who is put into a stale bucket by it is
// moved by the loop. It is read in a transaction that writes, which sees the last state.
func (l *lanes) quotas(tx *store.Tx, key laneKey) ([]execution.QuotaRef, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.changed.C():
		l.all = nil
	default:
	}
	if l.all != nil {
		return l.all[key], nil
	}
	l.changed.Rearm() // before it is read
	var rows []laneRow
	if err := tx.Select(&rows, "SELECT "+laneColumns+" FROM lanes WHERE quotas IS NOT NULL"); err != nil {
		return nil, fmt.Errorf("read the quotas of lanes: %w", err)
	}
	all := make(map[laneKey][]execution.QuotaRef, len(rows))
	for i := range rows {
		lane, err := rows[i].lane()
		if err != nil {
			return nil, err
		}
		all[laneKey{lane.Namespace, lane.Name}] = lane.Quotas
	}
	l.all = all
	return all[key], nil
}

// SetLaneQuotas gives a lane of the caller's namespace other quotas: from now on they are asked before anything in it is claimed. It
// returns CodeNotFound for a quota that there is not, and CodeRevisionMismatch.
func (r *Repo) SetLaneQuotas(ctx context.Context, name string, expected *int64, ids []uuid.UUID) (execution.Lane, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Lane) error {
		quotas, err := r.quotas.Attach(&tx.Queries, tx.Call.Namespace, ids)
		if err != nil {
			return err
		}
		lane, err := lockLane(tx, tx.Call.Namespace, name)
		if err != nil {
			return err
		}
		if err := fault.Expect("Lane "+name, expected, lane.Revision); err != nil {
			return err
		}
		c := lane.Limit(quotas)
		if *out = c.Lane; len(c.Events) == 0 {
			return nil
		}
		return limitLane(tx, c)
	})
}

func limitLane(tx *store.Tx, c execution.LaneChange) error {
	l := &c.Lane
	var doc store.JSON
	if len(l.Quotas) > 0 {
		var err error
		if doc, err = json.Marshal(l.Quotas); err != nil {
			return fmt.Errorf("quotas of lane %s: %w", l.Name, err)
		}
	}
	if err := tx.ExecOne(`UPDATE lanes SET quotas = ?, revision = ? WHERE namespace = ? AND lane = ?`, doc, l.Revision, l.Namespace, l.Name); err != nil {
		return fmt.Errorf("set the quotas of lane %s: %w", l.Name, err)
	}
	if _, err := tx.Exec(`UPDATE claim_buckets SET stale = CASE WHEN coalesce(lane_quotas, '') = ? THEN 0 ELSE 1 END WHERE namespace = ? AND lane = ?`,
		execution.LaneQuotas(l.Quotas), l.Namespace, l.Name); err != nil {
		return fmt.Errorf("mark the stale buckets of lane %s: %w", l.Name, err)
	}
	tx.EmitAll(c.Events)
	tx.Wake(lanesKey)
	tx.Alarm(AdmissionLoop, tx.Now())
	return nil
}
