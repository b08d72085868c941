package run

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/repo/store"
)

// row is a stored run.
type row struct {
	ID            store.ID     `db:"id"`
	Namespace     string       `db:"namespace"`
	WorkflowName  string       `db:"workflow_name"`
	WorkflowTitle store.Text   `db:"workflow_title"`
	Trigger       string       `db:"trigger"`
	DryRun        int          `db:"dry_run"`
	Inputs        store.JSON   `db:"inputs"`
	Definition    store.JSON   `db:"definition"`
	ParentRunID   store.Text   `db:"parent_run_id"`
	Iteration     int          `db:"iteration"`
	Creator       string       `db:"creator"`
	CreatedAt     store.Millis `db:"created_at"`

	ParentWorkflowRunID store.ID     `db:"parent_workflow_run_id" row:"moving"`
	ParentStepID        store.ID     `db:"parent_step_id"`
	ParentItemID        store.ID     `db:"parent_item_id"`
	FlowID              store.ID     `db:"flow_id"`
	Status              string       `db:"status"`
	Waiting             store.JSON   `db:"waiting"`
	ResultSummary       store.Text   `db:"result_summary"`
	Error               store.Text   `db:"error"`
	CancelReason        store.Text   `db:"cancel_reason"`
	Cancellation        store.JSON   `db:"cancellation"`
	Dismissed           int          `db:"dismissed"`
	Generation          int64        `db:"generation"`
	LeaseOwner          []byte       `db:"lease_owner"`
	LeaseUntil          store.Millis `db:"lease_until"`
	ResumeCount         int          `db:"resume_count"`
	Revision            int64        `db:"revision"`
	UpdatedAt           store.Millis `db:"updated_at"`
	StartedAt           store.Millis `db:"started_at"`
	EndedAt             store.Millis `db:"ended_at"`
	ActiveSince         store.Millis `db:"active_since"`
	TotalDurationMS     int64        `db:"total_duration_ms"`
	Draining            int          `db:"draining"`
	DueAt               store.Millis `db:"due_at"`
}

var (
	table   = store.TableOf[row]("runs")
	columns = table.Columns
)

// rowOf returns the stored form of x.
func rowOf(x *run.Run) (row, error) {
	r := row{
		ID: store.ID(x.ID), Namespace: x.Namespace, WorkflowName: x.WorkflowName, WorkflowTitle: store.Text(x.WorkflowTitle), Trigger: x.Trigger, DryRun: store.Bit(x.DryRun),
		Inputs: store.JSON(x.Inputs), Definition: store.JSON(x.Definition), ParentRunID: store.Text(x.ParentRunID), Iteration: x.Iteration, Creator: x.Creator,
		CreatedAt: store.Millis(x.CreatedAt), ParentWorkflowRunID: store.ID(x.Parent.RunID), ParentStepID: store.ID(x.Parent.StepID), ParentItemID: store.ID(x.Parent.ItemID),
		FlowID: store.ID(x.FlowID), Status: string(x.Status), ResultSummary: store.Text(x.ResultSummary), Error: store.Text(x.Error), CancelReason: store.Text(x.CancelReason),
		Dismissed: store.Bit(x.Dismissed), Generation: x.Generation, LeaseOwner: x.Lease.Owner, LeaseUntil: store.Millis(x.Lease.Until), ResumeCount: x.ResumeCount, Revision: x.Revision,
		UpdatedAt: store.Millis(x.UpdatedAt), StartedAt: store.Millis(x.StartedAt), EndedAt: store.Millis(x.EndedAt), ActiveSince: store.Millis(x.ActiveSince),
		TotalDurationMS: x.TotalDuration.Milliseconds(), Draining: store.Bit(x.Draining), DueAt: store.Millis(x.DueAt()),
	}
	var err error
	keep := func(v any, present bool, into *store.JSON) {
		if present && err == nil {
			*into, err = json.Marshal(v)
		}
	}
	keep(x.Wait, x.Wait != nil, &r.Waiting)
	keep(x.Cancellation, x.Cancellation != nil, &r.Cancellation)
	return r, err
}

var (
	errStatus = errors.New("the status is unknown")
	errWait   = errors.New("it is open without a wait")
)

// run returns the run that r stores. It returns CodeCorruptRecord for a row that cannot be one.
func (r *row) run() (run.Run, error) {
	x := run.Run{
		ID: uuid.UUID(r.ID), Namespace: r.Namespace, WorkflowName: r.WorkflowName, WorkflowTitle: string(r.WorkflowTitle), Status: run.Status(r.Status), Trigger: r.Trigger,
		DryRun: r.DryRun == 1, Inputs: json.RawMessage(r.Inputs), Definition: json.RawMessage(r.Definition), ParentRunID: string(r.ParentRunID),
		Parent: run.Place{RunID: uuid.UUID(r.ParentWorkflowRunID), StepID: uuid.UUID(r.ParentStepID), ItemID: uuid.UUID(r.ParentItemID)}, FlowID: uuid.UUID(r.FlowID),
		Iteration: r.Iteration, ResultSummary: string(r.ResultSummary), Error: string(r.Error), CancelReason: run.CancelReason(r.CancelReason), Dismissed: r.Dismissed == 1,
		Generation: r.Generation, Lease: run.Lease{Owner: r.LeaseOwner, Until: time.Time(r.LeaseUntil)}, ResumeCount: r.ResumeCount, Revision: r.Revision, Creator: r.Creator,
		CreatedAt: time.Time(r.CreatedAt), UpdatedAt: time.Time(r.UpdatedAt), StartedAt: time.Time(r.StartedAt), EndedAt: time.Time(r.EndedAt),
		ActiveSince: time.Time(r.ActiveSince), TotalDuration: time.Duration(r.TotalDurationMS) * time.Millisecond, Draining: r.Draining == 1,
	}
	var err error
	read := func(doc store.JSON, into any) {
		if doc != nil && err == nil {
			err = json.Unmarshal(doc, into)
		}
	}
	read(r.Waiting, &x.Wait)
	read(r.Cancellation, &x.Cancellation)
	if err == nil && !x.Status.Known() {
		err = errStatus
	}
	if err != nil {
		return x, store.Corrupt("run", x.ID, err)
	}
	return x, nil
}

func runsOf(rows []row) ([]run.Run, error) { return store.Rows(rows, (*row).run) }
