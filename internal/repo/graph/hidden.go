package graph

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// A large graph is written in pieces that carry the id of a build, and nobody sees what carries the id of one that is not done. One that
// does not come to its end is taken back.

// BuildLoop is the name of the loop that takes abandoned graphs back.
const BuildLoop = "builds"

// buildTimeout is after how long without a sign a graph that is being written counts as abandoned.
const buildTimeout = 20 * time.Second

// errSlow ends a build that was taken back meanwhile.
var errSlow error = fault.New(fault.CodeBusy, "The graph was written too slowly and was taken back. Send it again.")

// writeHidden writes a graph in pieces that nobody sees.
func (r *Repo) writeHidden(ctx context.Context, b *draft) error {
	err := store.Do(ctx, r.store, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO builds (id, flow_id, touched_at) VALUES (?, ?, ?)`, store.ID(b.build), store.ID(b.flowID), store.Millis(tx.Now()))
		return err
	})
	for from := 0; from < len(b.made) && err == nil; {
		to, links := from, 0
		for to < len(b.made) && (to == from || r.fits(to-from+1, links+len(b.plan.Nodes[to].Needs))) {
			links += len(b.plan.Nodes[to].Needs)
			to++
		}
		err = store.Do(ctx, r.store, func(tx *store.Tx) error {
			n, err := tx.Exec(`UPDATE builds SET touched_at = ? WHERE id = ? AND touched_at > 0`, store.Millis(tx.Now()), store.ID(b.build))
			if err != nil || n == 0 {
				return cmp.Or(err, errSlow)
			}
			return r.insert(tx, b, from, to)
		}, store.Background())
		from = to
	}
	return err
}

// Recover gives up the graphs that a process was writing when it died, where there is no other that may be writing one now.
func (r *Repo) Recover(ctx context.Context) error {
	if !r.store.Alone() {
		return nil
	}
	return store.Do(ctx, r.store, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE builds SET touched_at = 0`)
		return err
	})
}

// abandon gives up a graph that was not written to its end.
func (r *Repo) abandon(ctx context.Context, build uuid.UUID) {
	c := call.Engine("")
	err := store.Do(call.With(ctx, c), r.store, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE builds SET touched_at = 0 WHERE id = ?`, store.ID(build))
		tx.Alarm(BuildLoop, tx.Now())
		return err
	})
	_ = err // then it counts as abandoned in a while
}

// NextClean returns when the next graph counts as abandoned that is not written to its end.
func (r *Repo) NextClean(ctx context.Context) (time.Time, error) {
	at, err := store.NextDue(ctx, r.store, `SELECT min(touched_at) FROM builds`)
	if err != nil || at.IsZero() {
		return at, err
	}
	return at.Add(buildTimeout + time.Millisecond), nil
}

// Clean takes back a part of a graph that was abandoned, and returns how many executions those were.
func (r *Repo) Clean(ctx context.Context, limit int) (int, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *int) error {
		var build struct {
			ID     store.ID `db:"id"`
			FlowID store.ID `db:"flow_id"`
		}
		err := tx.Get(&build, `SELECT id, flow_id FROM builds WHERE touched_at < ? ORDER BY touched_at LIMIT 1`+tx.SkipLocked(), store.Millis(tx.Now().Add(-buildTimeout)))
		if store.NotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find abandoned graphs: %w", err)
		}
		if _, err := tx.Exec(`UPDATE builds SET touched_at = 0 WHERE id = ?`, build.ID); err != nil { // for good: its writer, if it still lives, gives up
			return err
		}
		var ids []store.ID
		if err := tx.Select(&ids, `SELECT id FROM executions WHERE flow_id = ? AND build_id = ? LIMIT ?`, build.FlowID, build.ID, limit); err != nil {
			return fmt.Errorf("find members of an abandoned graph: %w", err)
		}
		*out = max(len(ids), 1)
		if len(ids) == 0 {
			return tx.ExecOne(`DELETE FROM builds WHERE id = ?`, build.ID)
		}
		for _, statement := range []string{`DELETE FROM edges WHERE downstream_id IN ?`, `DELETE FROM edge_groups WHERE execution_id IN ?`, `DELETE FROM executions WHERE id IN ?`} {
			if _, err := tx.Exec(statement, store.List(ids)); err != nil {
				return fmt.Errorf("take an abandoned graph back: %w", err)
			}
		}
		return nil
	}, store.Background())
}
