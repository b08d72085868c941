package graph

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/graph"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// memberRef is what the answer to an addition is rendered from again.
type memberRef struct {
	ID            uuid.UUID
	NodeCount     int64
	GraphRevision int64
	Existing      bool
}

// Enlist makes an execution that belongs to no flow a member, whatever it is doing. It returns CodeNotFound, CodeAlreadyTerminal,
// CodeAlreadyMember and the refusals of the fence. reference: flows-streams-budgets.md 2.2.
func (r *Repo) Enlist(ctx context.Context, flowID, id uuid.UUID, holder *execution.Fence) (graph.Member, error) {
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Member) error {
		f, err := r.flows.Head(tx, flowID)
		if err != nil {
			return err
		}
		if err := r.allow(tx, flowID, holder); err != nil {
			return err
		}
		if err := open(&f); err != nil {
			return err
		}
		e, err := r.executions.State(tx, id)
		switch {
		case err != nil:
			return err
		case e.FlowID == flowID:
			*out = graph.Member{Execution: e, NodeCount: f.NodeCount, GraphRevision: f.GraphRevision, Existing: true}
			tx.Refer(memberRef{id, f.NodeCount, f.GraphRevision, true})
			return nil
		case e.FlowID != uuid.Nil:
			return fault.New(fault.CodeAlreadyMember, "Execution %s is a member of flow %s, for good. Add another one.", id, e.FlowID).With("flow_id", e.FlowID)
		}
		return r.enlist(tx, flowID, &e, out)
	}, store.Reload(r.reloadMember))
}

func (r *Repo) enlist(tx *store.Tx, flowID uuid.UUID, e *execution.Execution, out *graph.Member) error {
	f, err := r.flows.Grow(tx, flowID, 1, 0)
	if err != nil {
		return err
	}
	c := e.JoinFlow(flowID, f.Limits)
	if f.Status == flow.Created {
		if paused, changed := c.Execution.Pause(); changed {
			paused.Execution.Revision = c.Execution.Revision // one change, one revision
			for i := range paused.Events {
				paused.Events[i].Revision = new(paused.Execution.Revision)
			}
			c = paused
		}
	}
	if err := r.executions.Enlist(tx, e, c); err != nil {
		return err
	}
	r.flows.Moved(tx, flowID, "", c.Execution.Public(), 1)
	r.flows.Joined(tx, &f, &c.Execution)
	*out = graph.Member{Execution: c.Execution, NodeCount: f.NodeCount, GraphRevision: f.GraphRevision}
	tx.Refer(memberRef{e.ID, f.NodeCount, f.GraphRevision, false})
	return nil
}

func (r *Repo) reloadMember(ctx context.Context, old memberRef) (graph.Member, error) {
	e, err := r.executions.Execution(ctx, old.ID)
	return graph.Member{Execution: e, NodeCount: old.NodeCount, GraphRevision: old.GraphRevision, Existing: old.Existing}, err
}

// Add makes a new execution that is a member, with what it depends on. An id that a member has already gets that member, and nothing
// changes. It returns CodeNotFound, CodeAlreadyTerminal, CodeAlreadyExists, the refusals of [graph.NewPlan] and of the fence.
func (r *Repo) Add(ctx context.Context, flowID uuid.UUID, node graph.Node, holder *execution.Fence) (graph.Member, error) {
	reload := store.Reload(r.reloadMember)
	return store.Checked(ctx, r.store, func() (graph.Member, error) { return r.addOnce(ctx, flowID, node, holder, reload) }, reload)
}

func (r *Repo) addOnce(ctx context.Context, flowID uuid.UUID, node graph.Node, holder *execution.Fence, reload store.Option) (graph.Member, error) {
	f, err := r.flows.Flow(ctx, flowID)
	if err != nil {
		return graph.Member{}, err
	}
	if r.isMember(ctx, flowID, node.ID) {
		return r.Enlist(ctx, flowID, node.ID, holder)
	}
	made, err := r.add(ctx, &f, node, holder, reload)
	if _, refused := errors.AsType[*fault.Error](err); refused && r.isMember(ctx, flowID, node.ID) { // made at the same time
		return r.Enlist(ctx, flowID, node.ID, holder)
	}
	return made, err
}

func (r *Repo) isMember(ctx context.Context, flowID, id uuid.UUID) bool {
	if id == uuid.Nil {
		return false
	}
	e, err := r.executions.Execution(ctx, id)
	return err == nil && e.FlowID == flowID
}

// add makes a new member of a flow.
func (r *Repo) add(ctx context.Context, f *flow.Flow, node graph.Node, holder *execution.Fence, reload store.Option) (graph.Member, error) {
	if err := open(f); err != nil {
		return graph.Member{}, err
	}
	flowID := f.ID
	nodes := []graph.Node{node}
	if err := r.limit(ctx, nodes, f.Limits); err != nil {
		return graph.Member{}, err
	}
	b, err := r.draft(ctx, flowID, f, nodes, f.Status == flow.Created, "/execution")
	if err != nil {
		return graph.Member{}, graph.Single(err)
	}
	if err := r.executions.Prepare(ctx, b.made, r.allowed(ctx, &b, holder)); err != nil {
		return graph.Member{}, err
	}
	return store.Write(ctx, r.store, func(tx *store.Tx, out *graph.Member) error {
		if err := r.grow(tx, &b, holder); err != nil {
			return err
		}
		if err := r.insert(tx, &b, 0, 1); err != nil {
			return err
		}
		r.flows.Moved(tx, flowID, "", b.made[0].Execution.Public(), 1)
		r.executions.Tell(tx, b.made)
		r.flows.Joined(tx, &b.owner, &b.made[0].Execution)
		if err := r.resolveEnded(tx, flowID, upstreams(b.plan.Links), true); err != nil {
			return err
		}
		ref := memberRef{b.made[0].Execution.ID, b.owner.NodeCount, b.owner.GraphRevision, false}
		tx.Refer(ref)
		tx.Final(func() error {
			e, err := r.executions.State(tx, ref.ID)
			*out = graph.Member{Execution: e, NodeCount: ref.NodeCount, GraphRevision: ref.GraphRevision}
			return err
		})
		return nil
	}, reload)
}
