package run

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Loop is the name of the sweep over runs that are due: those whose engine had time to end them, and those that have children to end.
const Loop = "runs"

// verb is one transition of a run that the transaction holds.
type verb func(tx *store.Tx, x run.Run) (run.Change, error)

// change applies a verb to a run of the caller's namespace in one transaction, and returns the run as it is in the end. expected is the
// revision that the caller has read, nil for any.
func (r *Repo) change(ctx context.Context, id uuid.UUID, expected *int64, do verb) (run.Run, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *run.Run) error {
		return r.changeIn(tx, id, expected, out, do)
	}, store.Reload(r.Run))
}

// changeIn is change in a transaction.
func (r *Repo) changeIn(tx *store.Tx, id uuid.UUID, expected *int64, out *run.Run, do verb, then ...func(before, after *run.Run) error) error {
	x, err := r.hold(tx, id)
	if err != nil {
		return err
	}
	if err := x.Expect(expected); err != nil {
		return err
	}
	c, err := do(tx, x)
	if err != nil {
		return err
	}
	tx.Refer(id)
	if len(c.Events) == 0 {
		*out = c.Run
		return r.renew(tx, &x, &c.Run)
	}
	tx.Final(func() (err error) {
		*out, err = find(&tx.Queries, tx.Call.Namespace, id, "")
		return err
	})
	return r.save(tx, &x, c, then...)
}

// renew writes a lease that goes on, which is no event.
func (*Repo) renew(tx *store.Tx, before, after *run.Run) error {
	if before.Lease.Until.Equal(after.Lease.Until) {
		return nil
	}
	if err := tx.ExecOne(`UPDATE runs SET lease_until = ? WHERE id = ?`, store.Millis(after.Lease.Until), store.ID(after.ID)); err != nil {
		return fmt.Errorf("renew the lease of run %s: %w", after.ID, err)
	}
	return nil
}

// save writes what a transition of a run did: its row, its events, and what follows for its wait, for what is in it, for what it is in
// itself, and by then.
func (r *Repo) save(tx *store.Tx, before *run.Run, c run.Change, then ...func(before, after *run.Run) error) error {
	if len(c.Events) == 0 {
		return nil
	}
	defer tx.Because(tell(tx, c.Events)) // what follows is caused by it
	after := &c.Run
	if err := r.followWait(tx, before, after); err != nil {
		return err
	}
	moved := before.Status != after.Status
	if moved && after.Status.Terminal() {
		r.orphaned(tx, after) // first, so that the end of the run is their cause
		if err := r.endSteps(tx, after); err != nil {
			return err
		}
	}
	if err := r.write(tx, after); err != nil {
		return err
	}
	if moved {
		if err := r.tellOthers(tx, c.Events[0].Type, after); err != nil {
			return err
		}
	}
	for _, follow := range then { // last: it may move the run on, and others are to see the moves in their order
		if err := follow(before, after); err != nil {
			return err
		}
	}
	return nil
}

// tellOthers tells who sees a run or waits for it what it has become, and its children what they are to.
func (r *Repo) tellOthers(tx *store.Tx, told event.Type, x *run.Run) error {
	if x.Status == run.Cancelling {
		r.orphaned(tx, x)
	}
	if err := r.flows.MirrorRun(tx, x.ID, x.FlowStepOf()); err != nil {
		return err
	}
	if x.Status.Terminal() {
		if err := r.waits.Ended(tx, x.Namespace, told, x.ID); err != nil {
			return err
		}
	}
	return r.tellParent(tx, x)
}

// write writes the row of a run that is held.
func (r *Repo) write(tx *store.Tx, x *run.Run) error {
	stored, err := rowOf(x)
	if err != nil {
		return fmt.Errorf("run %s: %w", x.ID, err)
	}
	if err := tx.ExecOne(table.Update, append(table.Moving(&stored), stored.ID)...); err != nil {
		return fmt.Errorf("update run %s: %w", x.ID, err)
	}
	tx.Alarm(Loop, x.DueAt())
	return nil
}

// followWait opens and closes what a run itself waits for.
func (r *Repo) followWait(tx *store.Tx, before, after *run.Run) error {
	if before.Wait != nil && (after.Wait == nil || after.Wait.ID != before.Wait.ID) {
		if _, err := r.waits.Close(tx, before.Wait.ID); err != nil {
			return err
		}
	}
	if after.Wait == nil || before.Wait != nil && before.Wait.ID == after.Wait.ID {
		return nil
	}
	return r.waits.Insert(tx, &wait.Wait{ID: after.Wait.ID, Namespace: after.Namespace, RunID: after.ID, Spec: after.Wait.Spec(), Since: after.Wait.Since, Title: after.Name(),
		RequestedBy: after.Creator})
}
