package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/repo/store"
)

type laneRow struct {
	Namespace string       `db:"namespace"`
	Lane      string       `db:"lane"`
	State     string       `db:"state"`
	Reason    store.Text   `db:"reason"`
	Actor     store.Text   `db:"actor"`
	ChangedAt store.Millis `db:"changed_at"`
	Revision  int64        `db:"revision"`
	Quotas    store.JSON   `db:"quotas"`
}

const laneColumns = "namespace, lane, state, reason, actor, changed_at, revision, quotas"

func (r *laneRow) lane() (execution.Lane, error) {
	l := execution.Lane{Namespace: r.Namespace, Name: r.Lane, State: execution.LaneState(r.State), Reason: string(r.Reason), Actor: string(r.Actor),
		ChangedAt: time.Time(r.ChangedAt), Revision: r.Revision}
	if r.Quotas != nil {
		if err := json.Unmarshal(r.Quotas, &l.Quotas); err != nil {
			return l, store.Corrupt("lane", r.Lane, err)
		}
	}
	return l, nil
}

// bucketState is the state of the claim buckets of a lane.
func bucketState(s execution.LaneState) string {
	if s == execution.LanePaused {
		return "paused"
	}
	return "open"
}

// findLane reads a lane. One that nobody has used yet is active.
func findLane(q *store.Queries, namespace, name, lock string) (execution.Lane, error) {
	var found laneRow
	err := q.Get(&found, "SELECT "+laneColumns+" FROM lanes WHERE namespace = ? AND lane = ?"+lock, namespace, name)
	if store.NotFound(err) {
		return execution.Lane{Namespace: namespace, Name: name, State: execution.LaneActive}, nil
	}
	if err != nil {
		return execution.Lane{}, fmt.Errorf("read lane %s: %w", name, err)
	}
	return found.lane()
}

// lockLane reads and locks a lane, which it puts on the list of lanes if it is not there.
func lockLane(tx *store.Tx, namespace, name string) (execution.Lane, error) {
	if _, err := tx.Exec(`INSERT INTO lanes (namespace, lane, state, revision) VALUES (?, ?, 'active', 0) ON CONFLICT DO NOTHING`, namespace, name); err != nil {
		return execution.Lane{}, fmt.Errorf("add lane %s: %w", name, err)
	}
	return findLane(&tx.Queries, namespace, name, tx.ForUpdate())
}

// TurnLane pauses or resumes a lane of the caller's namespace. It returns CodeRevisionMismatch when the caller has read another
// revision than the present one.
func (r *Repo) TurnLane(ctx context.Context, name string, expected *int64, state execution.LaneState, reason string) (execution.Lane, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Lane) error {
		lane, err := laneToTurn(tx, name, state)
		if err != nil {
			return err
		}
		if err := fault.Expect("Lane "+name, expected, lane.Revision); err != nil {
			return err
		}
		c := lane.Turn(state, reason, tx.Call.Actor, tx.Now())
		if *out = c.Lane; len(c.Events) == 0 {
			return nil
		}
		return saveLane(tx, c)
	})
}

// laneToTurn reads and locks a lane of the caller's namespace. Pausing one puts it on the list of lanes; one that nobody has used
// is not paused, and resuming it leaves the list as it is.
func laneToTurn(tx *store.Tx, name string, state execution.LaneState) (execution.Lane, error) {
	if state == execution.LanePaused {
		return lockLane(tx, tx.Call.Namespace, name)
	}
	return findLane(&tx.Queries, tx.Call.Namespace, name, tx.ForUpdate())
}

func saveLane(tx *store.Tx, c execution.LaneChange) error {
	l := &c.Lane
	err := tx.ExecOne(`UPDATE lanes SET state = ?, reason = ?, actor = ?, changed_at = ?, revision = ? WHERE namespace = ? AND lane = ?`,
		string(l.State), store.Text(l.Reason), store.Text(l.Actor), store.Millis(l.ChangedAt), l.Revision, l.Namespace, l.Name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`UPDATE claim_buckets SET state = ? WHERE namespace = ? AND lane = ?`, bucketState(l.State), l.Namespace, l.Name); err != nil {
		return err
	}
	tx.EmitAll(c.Events)
	if l.State == execution.LaneActive {
		return wakeLane(tx, l)
	}
	return nil
}

// wakeMost bounds how many waiting claims a resumed lane wakes for one set of capabilities; those who come later find the rest.
const wakeMost = 100

// wakeLane wakes those who wait for what stands in a lane.
func wakeLane(tx *store.Tx, l *execution.Lane) error {
	var buckets []struct {
		Tokens string `db:"tokens"`
		N      int    `db:"n"`
	}
	err := tx.Select(&buckets, `SELECT c.tokens, (SELECT count(*) FROM (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id LIMIT ?) first) AS n
		FROM claim_buckets b JOIN capability_sets c ON c.id = b.capability_set_id WHERE b.namespace = ? AND b.lane = ?
		AND EXISTS (SELECT 1 FROM executions e WHERE e.claim_bucket = b.id)`, wakeMost, l.Namespace, l.Name)
	if err != nil {
		return fmt.Errorf("look whom lane %s wakes: %w", l.Name, err)
	}
	for _, b := range buckets {
		for range b.N {
			tx.Signal(waitKey(l.Namespace, l.Name), b.Tokens)
		}
	}
	return nil
}

// Lanes lists the lanes of the caller's namespace, by name, with what stands in each and how many executions it ends.
func (r *Repo) Lanes(ctx context.Context, after string, limit int) (page.Named[execution.LaneStatus], error) {
	var list []execution.LaneStatus
	err := r.store.Read(ctx, func(q *store.Queries) error {
		namespace, name := call.From(ctx).Namespace, q.Bytes("lane")
		var rows []laneRow
		if err := q.Select(&rows, "SELECT "+laneColumns+" FROM lanes WHERE namespace = ? AND "+name+" > ? ORDER BY "+name+" LIMIT ?", namespace, after, limit+1); err != nil {
			return fmt.Errorf("list lanes: %w", err)
		}
		ended, window, err := throughput(q, namespace)
		if err != nil {
			return err
		}
		list = make([]execution.LaneStatus, len(rows))
		for i := range rows {
			lane, err := rows[i].lane()
			if err == nil {
				list[i], err = contents(q, lane)
			}
			if err != nil {
				return err
			}
			list[i].Completed, list[i].Window = ended[rows[i].Lane], window
		}
		return nil
	})
	return page.OfNames(list, limit, func(l execution.LaneStatus) string { return l.Name }), err
}

// contents says what stands in a lane.
func contents(q *store.Queries, lane execution.Lane) (execution.LaneStatus, error) {
	var found struct {
		N      int64        `db:"n"`
		Oldest store.Millis `db:"oldest"`
	}
	err := q.Get(&found, `SELECT count(*) AS n, min(e.created_at) AS oldest FROM claim_buckets b JOIN executions e ON e.claim_bucket = b.id
		WHERE b.namespace = ? AND b.lane = ?`, lane.Namespace, lane.Name)
	if err != nil {
		return execution.LaneStatus{}, fmt.Errorf("look into lane %s: %w", lane.Name, err)
	}
	return execution.LaneStatus{Lane: lane, Depth: found.N, OldestAt: time.Time(found.Oldest)}, nil
}

// What throughput looks at: the last minute, or as much of it as so many events cover.
const (
	throughputWindow = time.Minute
	throughputEvents = 20_000
)

// throughput says how many executions have ended in each lane, and within which time.
func throughput(q *store.Queries, namespace string) (ended map[string]int64, window time.Duration, err error) {
	now := q.Now()
	since := now.Add(-throughputWindow)
	var newest int64
	if err := q.Get(&newest, `SELECT last FROM event_log`); err != nil {
		return nil, 0, fmt.Errorf("measure throughput: %w", err)
	}
	from := newest - throughputEvents
	var first store.Millis
	if err := q.Get(&first, `SELECT at FROM events WHERE id > ? ORDER BY id LIMIT 1`, from); err != nil && !store.NotFound(err) {
		return nil, 0, fmt.Errorf("measure throughput: %w", err)
	}
	if from > 0 && time.Time(first).After(since) {
		since = time.Time(first)
	}
	var rows []store.JSON
	err = q.Select(&rows, `SELECT data FROM events WHERE id > ? AND at >= ? AND topic = ? AND namespace = ?`, from, store.Millis(since), string(event.TopicCompletion), namespace)
	if err != nil {
		return nil, 0, fmt.Errorf("measure throughput: %w", err)
	}
	ended = map[string]int64{}
	for _, row := range rows {
		var data struct{ Lane string }
		if err := json.Unmarshal(row, &data); err != nil {
			return nil, 0, store.Corrupt("event", "of topic completion", err)
		}
		ended[data.Lane]++
	}
	return ended, now.Sub(since).Round(time.Millisecond), nil
}
