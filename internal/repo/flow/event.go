package flow

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/event"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// Trail lists the events of a flow of the caller's namespace, newest first. It returns CodeNotFound.
func (r *Repo) Trail(ctx context.Context, id uuid.UUID, f flow.TrailFilter, after page.Cursor, limit int) (page.Page[event.Event], error) {
	none := page.Page[event.Event]{}
	if err := r.Exists(ctx, id); err != nil {
		return none, err
	}
	if err := r.store.Sync(ctx); err != nil {
		return none, err
	}
	filter := event.Filter{FlowID: id, Types: f.Types}
	if !f.All {
		filter.Topics = []event.Topic{event.TopicFlow, event.TopicStep}
	}
	events, err := r.store.Trail(ctx, filter, after.At, limit+1)
	return page.Of(events, limit, func(e event.Event) page.Cursor { return page.Cursor{At: e.ID} }), err
}

// appended stands for an event that was appended: where to read it.
type appended struct {
	FlowID uuid.UUID
	Local  int64
}

// AppendEvent appends an event of the client's own to a flow's trail; the flow's revision stays. data is any document, nil for
// an empty object. It returns CodeNotFound, and CodeValidationFailed for a type that does not begin with [event.Custom].
//
// The event has its id only after the commit, so the answer is not kept beside an Idempotency-Key but rendered again.
func (r *Repo) AppendEvent(ctx context.Context, id uuid.UUID, t event.Type, data json.RawMessage) (event.Event, error) {
	if len(t) <= len(event.Custom) || !strings.HasPrefix(string(t), event.Custom) {
		return event.Event{}, fault.Invalid(fault.CodeValidationFailed, "/type", "The type of an event of one's own begins with %s", event.Custom)
	}
	e := event.Event{Type: t, FlowID: id}
	if data != nil {
		e.Data = data
	}
	local, err := store.Write(unrendered(ctx), r.store, func(tx *store.Tx, out *event.Event) error {
		f, err := r.find(&tx.Queries, tx.Call.Namespace, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		e.InstanceTag = f.Tags[tag.Instance]
		ref := tx.Emit(e)
		tx.Final(func() error {
			out.ID = tx.LocalID(ref)
			tx.Refer(appended{id, out.ID})
			return nil
		})
		return nil
	}, store.Reload(func(ctx context.Context, kept appended) (event.Event, error) {
		return r.store.EventByLocalID(ctx, kept.FlowID, kept.Local)
	}))
	if err != nil {
		return event.Event{}, err
	}
	return r.store.EventByLocalID(ctx, id, local.ID)
}

// unrendered returns ctx without the rendering of an answer in the transaction.
func unrendered(ctx context.Context) context.Context {
	c := call.From(ctx)
	if c.Key == nil {
		return ctx
	}
	key := *c.Key
	key.Render = nil
	c.Key = &key
	return call.With(ctx, c)
}
