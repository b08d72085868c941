package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
)

// suspendedRef is what the answer to a suspension is rendered from again.
type suspendedRef struct {
	Execution    uuid.UUID                `json:"execution_id"`
	SuspensionID uuid.UUID                `json:"suspension_id"`
	Outcome      execution.SuspendOutcome `json:"outcome"`
	Directives   []execution.Directive    `json:"directives,omitempty"`
	Waitpoints   []mintedRef              `json:"waitpoints"`
}

// Suspend gives an execution back until a condition holds that is about what reaches its waitpoints, for f's owner. With
// an idempotency key the first answer is given again while it is recognised, whatever the fence, and nothing is done.
//
// It returns CodeNotFound, what [execution.SuspendRequest.Check], [execution.Execution.CheckSuspend] and
// [execution.Waitpoint.Usable] say, CodeAlreadyExists for the id of a suspension or a waitpoint that is taken, and CodeWaitpointLimit.
// reference: executions.md 2.15.
func (r *Repo) Suspend(ctx context.Context, f execution.Fence, req execution.SuspendRequest) (execution.SuspendReport, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.SuspendReport) error {
		e, draining, err := Held(tx, f.ExecutionID)
		if err != nil {
			return err
		}
		tx.Later()
		tx.Hide()
		ref, known, err := keyedSuspension(tx, e.ID, req.IdempotencyKey)
		if err != nil {
			return err
		}
		if known {
			ref.Directives = e.Directives(draining)
			tx.Refer(ref)
			*out, err = r.resuspended(&tx.Queries, e, ref, tx.Now())
			return err
		}
		req := req // a transaction may run twice
		if err := r.suspend(tx, e, f, &req, out); err != nil {
			return err
		}
		out.Directives = out.Execution.Directives(draining)
		ref = suspendedRef{e.ID, out.SuspensionID, out.Outcome, out.Directives, refsOf(out.Waitpoints)}
		tx.Refer(ref)
		return keepSuspension(tx, &req, ref)
	}, store.Reload(func(ctx context.Context, old suspendedRef) (out execution.SuspendReport, err error) {
		e, err := r.Execution(ctx, old.Execution)
		if err != nil {
			return out, err
		}
		err = r.store.Read(ctx, func(q *store.Queries) error {
			out, err = r.resuspended(q, e, old, q.Now())
			return err
		})
		return out, err
	}))
}

// resuspended renders the answer to an earlier suspension again, with the same tokens.
func (r *Repo) resuspended(q *store.Queries, e execution.Execution, old suspendedRef, now time.Time) (execution.SuspendReport, error) {
	ring, err := r.keys.Ring(q)
	if err != nil {
		return execution.SuspendReport{}, err
	}
	minted, err := again(ring, e.ID, old.Waitpoints, now)
	return execution.SuspendReport{SuspensionID: old.SuspensionID, Outcome: old.Outcome, Waitpoints: minted, Execution: e, Directives: old.Directives}, err
}

// keyedSuspension returns what was answered under an idempotency key of this execution, if that is recognised.
func keyedSuspension(tx *store.Tx, id uuid.UUID, key string) (old suspendedRef, known bool, err error) {
	if key == "" {
		return old, false, nil
	}
	var found struct {
		Answer    store.JSON   `db:"answer"`
		ExpiresAt store.Millis `db:"expires_at"`
	}
	err = tx.Get(&found, `SELECT answer, expires_at FROM suspend_keys WHERE execution_id = ? AND key = ?`, store.ID(id), key)
	switch {
	case store.NotFound(err):
		return old, false, nil
	case err != nil:
		return old, false, fmt.Errorf("look for suspension key: %w", err)
	case !time.Time(found.ExpiresAt).After(tx.Now()):
		_, err := tx.Exec(`DELETE FROM suspend_keys WHERE execution_id = ? AND key = ?`, store.ID(id), key)
		return old, false, err
	}
	if err := json.Unmarshal(found.Answer, &old); err != nil {
		return old, false, store.Corrupt("suspension key of execution", id, err)
	}
	return old, true, nil
}

func keepSuspension(tx *store.Tx, req *execution.SuspendRequest, ref suspendedRef) error {
	if req.IdempotencyKey == "" {
		return nil
	}
	answer, err := json.Marshal(ref)
	if err != nil {
		return fmt.Errorf("keep suspension key: %w", err)
	}
	now := tx.Now()
	err = tx.ExecOne(`INSERT INTO suspend_keys (execution_id, key, answer, expires_at) VALUES (?, ?, ?, ?)`, store.ID(ref.Execution), req.IdempotencyKey, store.JSON(answer),
		store.Millis(now.Add(req.Keep(now))))
	if err != nil {
		return fmt.Errorf("keep suspension key: %w", err)
	}
	return nil
}

// ExpireSuspendKeys forgets up to limit suspension keys whose time is over, and returns how many.
func (r *Repo) ExpireSuspendKeys(ctx context.Context, limit int) (int, error) {
	return store.ExpireRows(ctx, r.store, "suspend_keys", "execution_id, key", limit)
}

func (r *Repo) suspend(tx *store.Tx, e execution.Execution, f execution.Fence, req *execution.SuspendRequest, out *execution.SuspendReport) error {
	now := tx.Now()
	req.Time(&e, now)
	if err := req.Check(now); err != nil {
		return err
	}
	if err := e.CheckSuspend(f, now); err != nil {
		return err
	}
	if req.ID == uuid.Nil {
		req.ID = store.NewID()
	} else if err := r.unused(tx, &e, req.ID); err != nil {
		return err
	}
	out.SuspensionID = req.ID
	if req.Bindings[0].Pending != uuid.Nil {
		return r.suspendOnPending(tx, e, f, req, out)
	}
	if err := room(tx, e.ID, len(req.Bindings)); err != nil {
		return err
	}
	for _, b := range req.Bindings {
		w := b.Fresh
		if w.ID == uuid.Nil {
			w.ID = store.NewID()
		}
		w.ExecutionID, w.AttemptIndex, w.State, w.CreatedAt = e.ID, e.AttemptIndex, execution.WaitpointActive, now
		minted, err := r.mint(tx, w)
		if err != nil {
			return err
		}
		out.Waitpoints = append(out.Waitpoints, minted)
	}
	return r.open(tx, e, f, req, nil, out)
}

// unused refuses, with CodeAlreadyExists, an id that a suspension has had: its signals would be taken for those of this one.
func (r *Repo) unused(tx *store.Tx, e *execution.Execution, id uuid.UUID) error {
	used := e.Suspension != nil && e.Suspension.ID == id
	if !used {
		var err error
		if used, err = r.waits.Used(&tx.Queries, id); err != nil {
			return err
		}
	}
	if used {
		return fault.New(fault.CodeAlreadyExists, "There is a suspension %s already. Choose another id, or none.", id)
	}
	return nil
}

// suspendOnPending suspends on a waitpoint that was made before. If what was kept there is enough, the execution stays with its
// owner.
func (r *Repo) suspendOnPending(tx *store.Tx, e execution.Execution, f execution.Fence, req *execution.SuspendRequest, out *execution.SuspendReport) error {
	id := req.Bindings[0].Pending
	w, err := findWaitpoint(&tx.Queries, e.ID, id)
	if fault.CodeOf(err) == fault.CodeNotFound {
		return fault.Invalid(fault.CodeNotFound, "/waitpoints/0/use_pending", "Execution %s has no waitpoint %s.", e.ID, id).With("resource", "waitpoint")
	}
	if err != nil {
		return err
	}
	if err := w.Usable(&e, tx.Now()); err != nil {
		return err
	}
	if err := req.Fit([]execution.Waitpoint{w}); err != nil {
		return err
	}
	ring, err := r.keys.Ring(&tx.Queries)
	if err != nil {
		return err
	}
	token, err := ring.Again(w.Kid, e.ID, w.ID, tx.Now())
	if err != nil {
		return err
	}
	out.Waitpoints = []execution.Minted{{Waitpoint: w, Token: token}}
	kept, err := r.waits.KeptAt(&tx.Queries, w.ID)
	if err != nil {
		return err
	}
	return r.open(tx, e, f, req, kept, out)
}

// open opens the wait of a suspension, gives it what was kept for it, and suspends the execution unless that is enough.
func (r *Repo) open(tx *store.Tx, e execution.Execution, f execution.Fence, req *execution.SuspendRequest, kept []wait.Kept, out *execution.SuspendReport) error {
	now := tx.Now()
	approvals := make([]*execution.Approval, len(out.Waitpoints))
	for i := range out.Waitpoints {
		w := &out.Waitpoints[i]
		approvals[i] = w.Approval
		req.Waitpoints = append(req.Waitpoints, execution.Bound{ID: w.ID, Key: w.Key})
	}
	req.Since = now
	of := req.Wait(&e, approvals)
	early := make([]wait.Signal, len(kept))
	for i := range kept {
		early[i] = kept[i].Signal
	}
	of, counted := of.DeliverAll(early, now)
	if len(kept) > 0 {
		if err := r.waits.Give(tx, e.ID, kept[0].WaitpointID, req.ID, counted); err != nil {
			return err
		}
	}
	if _, satisfied := of.DecideBy(now); satisfied {
		out.Outcome = execution.SuspendSatisfied
		c := e.Satisfied(req.Suspension, counted[len(counted)-1], now)
		out.Execution = c.Execution
		if err := r.satisfied(tx, &out.Waitpoints[0].Waitpoint, c.Execution.Suspension); err != nil {
			return err
		}
		return r.save(tx, &e, c, nil)
	}
	c, err := e.Suspend(f, req.Suspension, now)
	if err != nil {
		return err
	}
	out.Outcome, out.Execution = execution.SuspendDone, c.Execution
	if c.Execution.Lifecycle != execution.Suspended { // it was to end, and has ended
		out.Outcome, out.Waitpoints = execution.SuspendCancelled, nil
		return r.save(tx, &e, c, nil)
	}
	for i := range out.Waitpoints {
		if err := activate(tx, &out.Waitpoints[i].Waitpoint, &req.Suspension, req.Bindings[0].Pending != uuid.Nil); err != nil {
			return err
		}
	}
	if err := r.waits.Insert(tx, &of); err != nil {
		return err
	}
	return r.save(tx, &e, c, nil)
}

// satisfied closes the waitpoint at which enough was kept, or leaves it pending if the policy keeps it.
func (r *Repo) satisfied(tx *store.Tx, w *execution.Waitpoint, s *execution.Suspension) error {
	if s.Policy.KeepWaitpoints {
		return r.returnSignals(tx, s)
	}
	w.State, w.SuspensionID, w.ClosedAt, w.CloseReason = execution.WaitpointClosed, s.ID, s.ClosedAt, "resumed"
	return moveWaitpoint(tx, w)
}

// returnSignals keeps for the next suspension what the policy of this one does not use up.
func (r *Repo) returnSignals(tx *store.Tx, s *execution.Suspension) (err error) {
	if s.Policy.KeepMatched {
		err = r.waits.Return(tx, s.ID, true)
	}
	if err == nil && s.Policy.KeepOthers {
		err = r.waits.Return(tx, s.ID, false)
	}
	return err
}

// activate makes a waitpoint one that somebody waits at.
func activate(tx *store.Tx, w *execution.Waitpoint, s *execution.Suspension, stored bool) error {
	w.State, w.SuspensionID, w.ActivatedAt, w.ExpiresAt = execution.WaitpointActive, s.ID, tx.Now(), s.TimeoutAt
	if stored {
		return moveWaitpoint(tx, w)
	}
	return insertWaitpoint(tx, w)
}

// endSuspension ends the wait of an execution that goes on or has ended, and closes its waitpoints, or keeps them for the next
// suspension if that is what its policy says.
func (r *Repo) endSuspension(tx *store.Tx, e *execution.Execution) error {
	s := e.Suspension
	if _, err := r.waits.Close(tx, s.ID); err != nil {
		return err
	}
	goesOn := e.Lifecycle == execution.Runnable
	if goesOn && s.Policy.KeepWaitpoints {
		expires := tx.Now().Add(execution.DefaultPendingTTL)
		_, err := tx.Exec(`UPDATE waitpoints SET state = 'pending', suspension_id = NULL, activated_at = NULL, expires_at = ? WHERE execution_id = ? AND suspension_id = ? AND state = 'active'`,
			store.Millis(expires), store.ID(e.ID), store.ID(s.ID))
		if err != nil {
			return fmt.Errorf("keep the waitpoints of execution %s: %w", e.ID, err)
		}
		tx.Alarm(WaitpointLoop, expires)
		return r.returnSignals(tx, s)
	}
	_, err := tx.Exec(`UPDATE waitpoints SET state = 'closed', closed_at = ?, close_reason = ? WHERE execution_id = ? AND suspension_id = ? AND state = 'active'`,
		store.Millis(s.ClosedAt), s.CloseReason, store.ID(e.ID), store.ID(s.ID))
	if err != nil {
		return fmt.Errorf("close the waitpoints of execution %s: %w", e.ID, err)
	}
	return nil
}

var _ waitrepo.Owner = (*Repo)(nil)

// Hold locks a suspended execution. See [waitrepo.Owner].
func (*Repo) Hold(tx *store.Tx, namespace string, id uuid.UUID, skip bool) (bool, error) {
	lock := tx.ForUpdate()
	if skip {
		lock = tx.SkipLocked()
		if ok, err := unheldFlow(tx, id); err != nil || !ok {
			return false, err
		}
	} else if err := lockFlow(tx, id); err != nil {
		return false, err
	}
	_, err := find(&tx.Queries, namespace, id, lock)
	if skip && fault.CodeOf(err) == fault.CodeNotFound { // locked, or gone
		return false, nil
	}
	return err == nil, err
}

// Decided makes an execution do what its suspension says about its timeout. See [waitrepo.Owner]; signals decide in
// [Repo.Signal].
func (r *Repo) Decided(tx *store.Tx, w wait.Wait, o wait.Outcome) error {
	e, err := find(&tx.Queries, w.Namespace, w.ExecutionID, tx.ForUpdate())
	if err != nil {
		return err
	}
	if !e.Suspension.Open() || e.Suspension.ID != w.ID || o.By != wait.ByTimeout {
		return store.Corrupt("execution", e.ID, fmt.Errorf("it does not wait for %s, decided by %s", w.ID, o.By))
	}
	c, escalated := e.TimeOut(tx.Now())
	if escalated {
		w.Deadline, w.Asks = time.Time{}, true
		if err := r.waits.Insert(tx, &w); err != nil {
			return err
		}
		if _, err := tx.Exec(`UPDATE waitpoints SET expires_at = NULL WHERE execution_id = ? AND suspension_id = ? AND state = 'active'`, store.ID(e.ID), store.ID(w.ID)); err != nil {
			return fmt.Errorf("escalate the waitpoints of execution %s: %w", e.ID, err)
		}
	}
	return r.save(tx, &e, c, nil)
}
