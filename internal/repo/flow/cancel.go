package flow

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/repo/backlog"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// cancelRef is what the answer to a cancellation is rendered from again, beside the flow.
type cancelRef struct {
	ID    uuid.UUID
	Total int
}

// Cancel ends a flow and, as the request says, its members: as many as one transaction may change at once, the others right
// after it. reference: flows-streams-budgets.md 3.
func (r *Repo) Cancel(ctx context.Context, id uuid.UUID, expected *int64, req flow.CancelRequest) (flow.CancelOutcome, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.CancelOutcome) error {
		total := 0
		failed, err := r.apply(tx, id, expected, func(tx *store.Tx, f flow.Flow) (flow.Change, error) {
			c, err := f.Cancel(req, tx.By())
			if err != nil || len(c.Events) == 0 {
				return c, err
			}
			if total, err = r.concerned(&tx.Queries, &c.Flow); err != nil {
				return c, err
			}
			tx.Because(tx.Emit(f.Event(event.OperatorFlowCancel, struct {
				Policy  flow.CancelPolicy `json:"policy"`
				Reason  string            `json:"reason,omitempty"`
				Members int               `json:"member_count"`
				GraceMS int64             `json:"grace_ms,omitempty"`
			}{req.Policy, c.Flow.Cancellation.Reason, total, req.GraceMS})))
			return c, nil
		})
		if err != nil {
			return err
		}
		tx.Refer(cancelRef{id, total})
		tx.Final(func() (err error) {
			*out, err = r.cancelled(&tx.Queries, tx.Call.Namespace, id, total)
			out.Members.Failed = failed
			return err
		})
		return nil
	}, store.Reload(func(ctx context.Context, kept cancelRef) (out flow.CancelOutcome, err error) {
		err = r.store.Read(ctx, func(q *store.Queries) (err error) {
			out, err = r.cancelled(q, call.From(ctx).Namespace, kept.ID, kept.Total)
			return err
		})
		return out, err
	}))
}

// concerned counts the members that a cancellation has still to end.
func (r *Repo) concerned(q *store.Queries, f *flow.Flow) (int, error) {
	end, ends := f.MembersEnd()
	if !ends || f.NodeCount == 0 {
		return 0, nil
	}
	return r.executions.CountMembers(q, f.ID, end)
}

// cancelled returns a cancelled flow, and how far the cancellation of its members has come.
func (r *Repo) cancelled(q *store.Queries, namespace string, id uuid.UUID, total int) (flow.CancelOutcome, error) {
	f, err := r.find(q, namespace, id, "")
	if err != nil {
		return flow.CancelOutcome{}, err
	}
	out := flow.CancelOutcome{Flow: f, Members: flow.Members{Total: total}}
	out.Members.Outstanding, err = r.outstanding(q, &f)
	out.Members.Total = max(total, out.Members.Outstanding) // of a cancellation that is repeated
	return out, err
}

// outstanding counts the members of a cancelled flow that are still to end. Of those that only were to end if nobody worked on
// them, none is once the backlog is done.
func (r *Repo) outstanding(q *store.Queries, f *flow.Flow) (int, error) {
	if f.Cancellation == nil || f.Cancellation.Policy == flow.CancelPending {
		if busy, err := backlog.Has(q, f.ID, backlog.Cancel); err != nil || !busy {
			return 0, err
		}
	}
	return r.concerned(q, f)
}

// shownMembers bounds how many members a cancellation names.
const shownMembers = 100

// Cancellation tells how far the cancellation of a flow has come. It returns CodeNotFound, also for a flow that was not cancelled.
func (r *Repo) Cancellation(ctx context.Context, id uuid.UUID) (flow.CancelProgress, error) {
	var p flow.CancelProgress
	err := r.store.Read(ctx, func(q *store.Queries) (err error) {
		p, err = r.cancellation(q, call.From(ctx).Namespace, id)
		return err
	})
	return p, err
}

func (r *Repo) cancellation(q *store.Queries, namespace string, id uuid.UUID) (flow.CancelProgress, error) {
	f, err := r.find(q, namespace, id, "")
	if err != nil {
		return flow.CancelProgress{}, err
	}
	if f.Status != flow.Cancelled || f.Cancellation == nil {
		return flow.CancelProgress{}, fault.New(fault.CodeNotFound, "Flow %s is %s and was not cancelled.", id, f.Status).With("resource", "cancellation")
	}
	p := flow.CancelProgress{Cancellation: *f.Cancellation, Total: f.NodeCount}
	if p.Outstanding, err = r.outstanding(q, &f); err != nil || p.Outstanding == 0 {
		return p, err
	}
	end, _ := f.MembersEnd()
	p.Members, p.Failed, err = r.executions.NameMembers(q, id, end, shownMembers)
	p.Outstanding -= len(p.Failed)
	return p, err
}

// Acknowledge ends a member of a cancelled flow whose worker still has time to end it. For any other execution it changes nothing.
// It returns CodeNotFound for the flow.
func (r *Repo) Acknowledge(ctx context.Context, id, executionID uuid.UUID) (flow.CancelProgress, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *flow.CancelProgress) error {
		f, err := r.Head(tx, id)
		if err != nil {
			return err
		}
		if f.Status == flow.Cancelled {
			if err := r.executions.EndGrace(tx, id, executionID); err != nil {
				return fmt.Errorf("end the grace of execution %s: %w", executionID, err)
			}
		}
		tx.Refer(id)
		tx.Final(func() (err error) {
			*out, err = r.cancellation(&tx.Queries, tx.Call.Namespace, id)
			return err
		})
		return nil
	}, store.Reload(r.Cancellation))
}
