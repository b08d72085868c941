package flow

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/flow"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// row is a stored flow. The counts of members and edges are moved by statements of their own.
type row struct {
	ID         store.ID     `db:"id"`
	Namespace  string       `db:"namespace"`
	AutoFinish int          `db:"auto_finish"`
	CreatedAt  store.Millis `db:"created_at"`
	Limits     store.JSON   `db:"limits"`

	GraphRevision int64 `db:"graph_revision"`
	NodeCount     int64 `db:"node_count"`
	EdgeCount     int64 `db:"edge_count"`

	Kind            string       `db:"kind" row:"moving"`
	ControllerID    string       `db:"controller_id"`
	Goal            string       `db:"goal"`
	OwnerSessionKey string       `db:"owner_session_key"`
	RequesterOrigin string       `db:"requester_origin"`
	CurrentStep     string       `db:"current_step"`
	State           store.JSON   `db:"state"`
	Status          string       `db:"status"`
	CancelRequested int          `db:"cancel_requested"`
	WaitID          store.ID     `db:"wait_id"`
	Revision        int64        `db:"revision"`
	Cancellation    store.JSON   `db:"cancellation"`
	Failure         store.JSON   `db:"failure"`
	Tags            store.JSON   `db:"tags"`
	FieldsChanged   store.JSON   `db:"fields_changed"`
	UpdatedAt       store.Millis `db:"updated_at"`
	EndedAt         store.Millis `db:"ended_at"`
}

var (
	table   = store.TableOf[row]("flows")
	columns = table.Columns
)

// rowOf returns the stored form of f.
func rowOf(f *flow.Flow) (row, error) {
	r := row{
		ID: store.ID(f.ID), Namespace: f.Namespace, AutoFinish: store.Bit(f.AutoFinish), CreatedAt: store.Millis(f.CreatedAt),
		GraphRevision: f.GraphRevision, NodeCount: f.NodeCount, EdgeCount: f.EdgeCount,
		Kind: f.Kind, ControllerID: f.ControllerID, Goal: f.Goal, OwnerSessionKey: f.OwnerSessionKey, RequesterOrigin: f.RequesterOrigin,
		CurrentStep: f.CurrentStep, State: store.JSON(f.State), Status: string(f.Status), CancelRequested: store.Bit(f.CancelRequested),
		Revision: f.Revision, Tags: store.JSON("{}"), FieldsChanged: store.JSON("[]"), UpdatedAt: store.Millis(f.UpdatedAt), EndedAt: store.Millis(f.EndedAt),
	}
	if f.Wait != nil {
		r.WaitID = store.ID(f.Wait.ID)
	}
	var err error
	keep := func(v any, present bool, into *store.JSON) {
		if present && err == nil {
			*into, err = json.Marshal(v)
		}
	}
	keep(f.Limits, !f.Limits.None(), &r.Limits)
	keep(f.Cancellation, f.Cancellation != nil, &r.Cancellation)
	keep(f.Failure, f.Failure != nil, &r.Failure)
	keep(f.Tags, len(f.Tags) > 0, &r.Tags)
	keep(f.History, len(f.History) > 0, &r.FieldsChanged)
	return r, err
}

var (
	errStatus = errors.New("the status is unknown")
	errWait   = errors.New("it waits without a wait")
	errState  = errors.New("the state is not JSON")
)

// flow returns the flow that r stores, with its wait, nil for none. It returns CodeCorruptRecord for a row that cannot be one.
func (r *row) flow(w *wait.Wait) (flow.Flow, error) {
	f := flow.Flow{
		ID: uuid.UUID(r.ID), Namespace: r.Namespace, AutoFinish: r.AutoFinish == 1, CreatedAt: time.Time(r.CreatedAt),
		GraphRevision: r.GraphRevision, NodeCount: r.NodeCount, EdgeCount: r.EdgeCount,
		Kind: r.Kind, ControllerID: r.ControllerID, Goal: r.Goal, OwnerSessionKey: r.OwnerSessionKey, RequesterOrigin: r.RequesterOrigin,
		CurrentStep: r.CurrentStep, State: json.RawMessage(r.State), Status: flow.Status(r.Status), CancelRequested: r.CancelRequested == 1,
		Revision: r.Revision, UpdatedAt: time.Time(r.UpdatedAt), EndedAt: time.Time(r.EndedAt),
	}
	if w != nil {
		f.Wait = &flow.Wait{ID: w.ID, Spec: w.Spec, Since: w.Since}
	}
	var err error
	read := func(doc store.JSON, into any) {
		if doc != nil && err == nil {
			err = json.Unmarshal(doc, into)
		}
	}
	read(r.Limits, &f.Limits)
	read(r.Cancellation, &f.Cancellation)
	read(r.Failure, &f.Failure)
	read(r.FieldsChanged, &f.History)
	if len(r.Tags) > len("{}") {
		read(r.Tags, &f.Tags)
	}
	switch {
	case err != nil:
	case !f.Status.Known():
		err = errStatus
	case (f.Wait != nil) != (f.Status == flow.Waiting):
		err = errWait
	case !json.Valid(f.State):
		err = errState
	}
	if err != nil {
		return f, store.Corrupt("flow", f.ID, err)
	}
	return f, nil
}

// aboutColumns are what about needs.
const aboutColumns = "id, namespace, status, node_count, tags"

// about returns what is needed to tell of a flow, also of one that cannot be read.
func (r *row) about() flow.Flow {
	f := flow.Flow{ID: uuid.UUID(r.ID), Namespace: r.Namespace, Status: flow.Status(r.Status), NodeCount: r.NodeCount,
		GraphRevision: r.GraphRevision, EdgeCount: r.EdgeCount, AutoFinish: r.AutoFinish == 1}
	_ = json.Unmarshal(r.Tags, &f.Tags) // without its tags an event has no instance tag
	return f
}

// check returns CodeCorruptRecord for a row that cannot be a flow, whatever its wait is.
func (r *row) check() error {
	var w *wait.Wait
	if id := uuid.UUID(r.WaitID); id != uuid.Nil {
		w = &wait.Wait{ID: id}
	}
	_, err := r.flow(w)
	return err
}
