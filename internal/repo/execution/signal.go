package execution

import (
	"context"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
	waitrepo "github.com/flowapi/flowapi/internal/repo/wait"
)

// Signal gives a signal to whoever waits at a waitpoint, or keeps it there. If it is the last that was needed the execution goes
// on. The same signal again, by its id or its idempotency key, is answered as before and does nothing.
//
// It returns CodeNotFound for an execution that does not exist; before anything else is looked at CodeInvalidToken (the same
// for a waitpoint that does not exist; CodeNotFound to whom needs no token); what [execution.Waitpoint.Takes],
// [execution.Approval.Admit], the request's Fits and [execution.Execution.RoomFor] say. reference: executions.md 2.17.
func (r *Repo) Signal(ctx context.Context, in execution.SignalRequest) (execution.Signalled, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *execution.Signalled) error {
		e, err := r.State(tx, in.ExecutionID)
		if err != nil {
			return err
		}
		tx.Later()
		w, err := r.opened(tx, &in)
		if err != nil {
			return err
		}
		out.Execution = e
		k := in.Kept
		k.Waitpoint, k.At, k.RecognisedUntil = w.Key, tx.Now(), tx.Now().Add(in.Recognised)
		if k.ID == "" {
			k.ID = store.NewID().String()
		}
		if in.Decides { // the same decision about something else is another one
			k.IdempotencyKey += "@" + w.LastOf(&e).String()
		}
		if out.Signal, out.Duplicate, err = r.waits.Known(tx, &k); err != nil || out.Duplicate {
			return err
		}
		deliver, err := w.Takes(&e, tx.Now())
		if err != nil {
			return err
		}
		if err := w.Approval.Admit(execution.Decision(k.Name), k.SourceIdentity, in.Trusted || in.Identified); err != nil {
			return err
		}
		if in.Fits != nil {
			if err := in.Fits(w.Approval); err != nil {
				return err
			}
		}
		_, had, err := counted(tx, e.ID)
		if err != nil {
			return err
		}
		if err := e.RoomFor(had); err != nil {
			return err
		}
		w.Signals++
		if err := moveWaitpoint(tx, &w); err != nil {
			return err
		}
		out.Signal, out.Execution, err = r.take(tx, e, &w, k, &in, deliver)
		return err
	})
}

// opened returns the waitpoint that a signal is for, if its sender may signal it.
func (r *Repo) opened(tx *store.Tx, in *execution.SignalRequest) (execution.Waitpoint, error) {
	w, err := findWaitpoint(&tx.Queries, in.ExecutionID, in.WaitpointID)
	if in.Trusted || err != nil && fault.CodeOf(err) != fault.CodeNotFound {
		return w, err
	}
	ring, failed := r.keys.Ring(&tx.Queries)
	if failed != nil {
		return w, failed
	}
	if failed := ring.Verify(in.Token, in.ExecutionID, in.WaitpointID, tx.Now()); failed != nil || err == nil {
		return w, failed
	}
	return w, ring.Verify("", in.ExecutionID, in.WaitpointID, tx.Now())
}

// take delivers a signal, or keeps it, and makes the execution go on that it wakes.
func (r *Repo) take(tx *store.Tx, e execution.Execution, w *execution.Waitpoint, k wait.Kept, in *execution.SignalRequest, deliver bool) (wait.Kept, execution.Execution, error) {
	k.Effect, k.Open = wait.Buffered, true
	var taken waitrepo.Taken
	if deliver {
		bare := k.Signal
		bare.Payload = nil // it stays where it is kept
		var err error
		if taken, err = r.waits.Take(tx, w.SuspensionID, bare); err != nil {
			return k, e, err
		}
		k.SuspensionID, k.Effect, k.Counts, k.Open = w.SuspensionID, taken.Effect, taken.Counts, false
	}
	if err := r.waits.Keep(tx, k); err != nil {
		return k, e, err
	}
	ref := tx.Emit(e.Told(&k))
	if !taken.Decided {
		return k, e, nil
	}
	c := e.Wake(k.ID, in.ResumeDelay, tx.Now())
	cause := tx.Because(ref)
	err := r.save(tx, &e, c, nil)
	tx.Because(cause)
	return k, c.Execution, err
}

// Signals lists what reached the waitpoints of an execution's present suspension, or of its last one if that was of the same
// attempt: the signals that counted, or all of them. It returns CodeNotFound.
func (r *Repo) Signals(ctx context.Context, id uuid.UUID, all bool, after page.Cursor, limit int) (out page.Page[wait.Kept], err error) {
	err = r.store.Read(ctx, func(q *store.Queries) error {
		e, err := find(q, call.From(ctx).Namespace, id, "")
		if err != nil || e.Suspension == nil || e.Suspension.AttemptIndex != e.AttemptIndex {
			return err
		}
		out, err = r.waits.Signals(q, e.Suspension.ID, all, after, limit)
		return err
	})
	return out, err
}
