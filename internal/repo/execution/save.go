package execution

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Save is save for whoever decides about members of a flow.
func (r *Repo) Save(tx *store.Tx, before *execution.Execution, c execution.Change) error {
	return r.save(tx, before, c, nil)
}

// save writes what a transition did: the row, its attempts and its events, and the result that came with it. A transition that
// changed nothing writes nothing.
func (r *Repo) save(tx *store.Tx, before *execution.Execution, c execution.Change, result *execution.Value) error {
	if c.Execution.Revision == before.Revision {
		return nil
	}
	if err := r.leave(tx, before, &c.Execution); err != nil {
		return err
	}
	stood := before.Claimable() && maps.Equal(before.Tags, c.Execution.Tags) // a quota may count it by another key now
	stored, err := r.stand(tx, &c.Execution, stood)
	if err != nil {
		return err
	}
	statement, args := table.Update, table.Moving(&stored)
	switch {
	case result != nil:
		statement, args = endRow, append(args, result.Bytes, string(result.Encoding))
	case c.Discard:
		statement, args = endRow, append(args, nil, nil)
	}
	if err := tx.ExecOne(statement, append(args, stored.ID)...); err != nil {
		return fmt.Errorf("update execution %s: %w", before.ID, err)
	}
	closed, err := saveAttempts(tx, stored.ID, c)
	if err != nil {
		return err
	}
	if before.Suspension.Open() && !c.Execution.Suspension.Open() {
		if err := r.endSuspension(tx, &c.Execution); err != nil {
			return err
		}
	}
	first := emit(tx, c)
	if from, to := before.Public(), c.Execution.Public(); from != to && before.FlowID != uuid.Nil {
		cause := tx.Because(first)
		r.flows.Moved(tx, before.FlowID, from, to, 1)
		tx.Because(cause)
	}
	tellClosed(tx, c, closed, first)
	if e := &c.Execution; e.Followed && e.Lifecycle == execution.Terminal && before.Lifecycle != execution.Terminal {
		defer tx.Because(tx.Because(first))
		return r.waits.Ended(tx, e.Namespace, execution.CompletionOf(e.Outcome), e.ID)
	}
	return nil
}

// leave gives back what an execution has of its limits: when nobody holds it any more what was reserved for it, when it has ended
// its slots, and when it is not claimed any more its place before others.
func (r *Repo) leave(tx *store.Tx, before, after *execution.Execution) error {
	if before.Ownership == execution.Leased && after.Ownership != execution.Leased && len(after.Counted()) > 0 && len(after.Estimate()) > 0 {
		r.budgets.Settle(tx, after.ID)
	}
	if after.Admitted && after.Lifecycle == execution.Terminal {
		r.quotas.Ended(tx, after.ID)
		after.Admitted = false
	}
	if len(before.Estimate()) == 0 || !before.Claimable() || after.Claimable() || after.Ownership == execution.Leased {
		return nil
	}
	key, err := r.keyOf(tx, before)
	if err != nil {
		return err
	}
	id, err := r.buckets.of(tx, key)
	if err != nil {
		return err
	}
	return r.nudge(tx, before, id)
}

// nudge opens a bucket that a budget holds up, since what stands at its head may be another execution now: those in one bucket are
// expected to spend about as much as one another, but not the same.
func (r *Repo) nudge(tx *store.Tx, e *execution.Execution, bucket int64) error {
	if len(e.Estimate()) == 0 || len(e.Counted()) == 0 {
		return nil
	}
	return r.unhold(tx, unhold+`id = ? AND held_by = 'budget'`, 1, bucket)
}

// stand returns the row of e, in its claim bucket if it is claimable, and arranges for whoever waits for it to be woken.
func (r *Repo) stand(tx *store.Tx, e *execution.Execution, stood bool) (row, error) {
	var bucket *int64
	if e.Claimable() {
		key, err := r.keyOf(tx, e)
		if err != nil {
			return row{}, err
		}
		id, err := r.buckets.of(tx, key)
		if err != nil {
			return row{}, fmt.Errorf("claim bucket of execution %s: %w", e.ID, err)
		}
		bucket = &id
		if err := r.nudge(tx, e, id); err != nil {
			return row{}, err
		}
		if !stood {
			tx.Signal(waitKey(e.Namespace, e.Lane), e.Required.String())
		}
	}
	tx.Alarm(Loop, e.DueAt())
	return rowOf(e, bucket)
}

// emit writes the events of a change, and returns the first. What an operator did causes the rest.
func emit(tx *store.Tx, c execution.Change) (first store.Ref) {
	if len(c.Events) == 0 {
		return 0
	}
	if first = tx.Emit(c.Events[0]); c.Events[0].Type.Topic() == event.TopicOperator {
		defer tx.Because(tx.Because(first)) // and then what it was before
	}
	for _, e := range c.Events[1:] {
		tx.Emit(e)
	}
	return first
}

func saveAttempt(tx *store.Tx, id store.ID, a execution.AttemptChange) error {
	failure, err := failureDoc(a.Failure)
	switch {
	case err != nil:
		return err
	case a.Open != nil:
		return tx.ExecOne(`INSERT INTO attempts (execution_id, attempt_index, attempt_type, state, worker_id, worker_instance_id, lease_epoch,
			started_at, reclaim_reason, previous_attempt_index) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, a.Open.Index, string(a.Open.Type), string(a.Open.Stage), a.Open.WorkerID, a.Open.InstanceID, a.Open.LeaseEpoch,
			store.Millis(a.Open.StartedAt), store.Text(a.Open.ReclaimReason), a.Open.Previous)
	case a.Lease != nil:
		return tx.ExecOne(`UPDATE attempts SET state = ?, worker_id = ?, worker_instance_id = ?, lease_epoch = ? WHERE execution_id = ? AND attempt_index = ?`,
			string(a.Stage), a.Lease.WorkerID, a.Lease.InstanceID, a.Lease.Epoch, id, a.Index)
	default:
		return tx.ExecOne(`UPDATE attempts SET state = ?, ended_at = ?, failure = ? WHERE execution_id = ? AND attempt_index = ?`,
			string(a.Stage), store.Millis(a.EndedAt), failure, id, a.Index)
	}
}

// saveAttempts writes what becomes of attempts. It returns those whose streams, which have frames, are closed by it.
func saveAttempts(tx *store.Tx, id store.ID, c execution.Change) (closed []closing, err error) {
	for _, a := range c.Attempts {
		if a.Close == "" {
			err = saveAttempt(tx, id, a)
		} else {
			closed, err = closeAttempt(tx, id, &c.Execution, a, closed)
		}
		if err != nil {
			return nil, fmt.Errorf("attempt %d of execution %s: %w", a.Index, c.Execution.ID, err)
		}
	}
	return closed, nil
}

func failureDoc(f *execution.Failure) (store.JSON, error) {
	if f == nil {
		return nil, nil
	}
	return json.Marshal(f)
}

func failureOf(doc store.JSON) (*execution.Failure, error) {
	var f execution.Failure
	return &f, json.Unmarshal(doc, &f)
}
