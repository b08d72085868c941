// Package execution keeps executions: rows, queries and transactions of one subject. Every method that changes something
// is one transaction; what it decides is decided by the machine in domain/execution.
package execution

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/tag"
	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/repo/worker"
)

// row is a stored execution.
type row struct {
	ID              store.ID     `db:"id"`
	Namespace       string       `db:"namespace"`
	Lane            string       `db:"lane"`
	Kind            string       `db:"kind"`
	FlowID          store.ID     `db:"flow_id"`
	Key             store.Text   `db:"key"`
	Payload         []byte       `db:"payload"`
	PayloadEncoding string       `db:"payload_encoding"`
	Policy          store.JSON   `db:"policy"`
	Required        string       `db:"required_capabilities"`
	Creator         string       `db:"creator"`
	CreatedAt       store.Millis `db:"created_at"`
	Followed        int          `db:"followed"` // set by a statement of its own
	Limits          store.JSON   `db:"limits"`

	Priority         int          `db:"priority" row:"moving"`
	Revision         int64        `db:"revision"`
	Lifecycle        string       `db:"lifecycle_phase"`
	Ownership        string       `db:"ownership_state"`
	Eligibility      string       `db:"eligibility_state"`
	Blocking         string       `db:"blocking_reason"`
	Outcome          string       `db:"terminal_outcome"`
	Attempt          string       `db:"attempt_state"`
	Public           string       `db:"public_state"`
	BlockingDetail   store.Text   `db:"blocking_detail"`
	Tags             store.JSON   `db:"tags"`
	InstanceTag      store.Text   `db:"instance_tag"`
	StartedAt        store.Millis `db:"started_at"`
	CompletedAt      store.Millis `db:"completed_at"`
	DelayUntil       store.Millis `db:"delay_until"`
	DeadlineAt       store.Millis `db:"deadline_at"`
	AttemptTimeoutAt store.Millis `db:"attempt_timeout_at"`
	DueAt            store.Millis `db:"due_at"`
	AttemptIndex     *int         `db:"current_attempt_index"`
	Attempts         int          `db:"total_attempt_count"`
	Retries          int          `db:"retry_count"`
	Replays          int          `db:"replay_count"`
	Reclaims         int          `db:"lease_reclaim_count"`
	LeaseID          store.ID     `db:"lease_id"`
	LeaseEpoch       int64        `db:"lease_epoch"`
	AttemptID        store.ID     `db:"attempt_id"`
	WorkerID         store.Text   `db:"worker_id"`
	InstanceID       store.Text   `db:"worker_instance_id"`
	LeaseAcquiredAt  store.Millis `db:"lease_acquired_at"`
	LeaseExpiresAt   store.Millis `db:"lease_expires_at"`
	Progress         store.JSON   `db:"progress"`
	Failure          store.JSON   `db:"failure"`
	Cancellation     store.JSON   `db:"cancellation"`
	Released         store.JSON   `db:"released"`
	Grant            store.JSON   `db:"claim_grant"`
	Suspension       store.JSON   `db:"suspension"`
	RunID            store.ID     `db:"run_id"`
	Admitted         int          `db:"admitted"`
	ClaimBucket      *int64       `db:"claim_bucket"`
	Draining         bool         `db:"draining" row:"computed"` // by what selectHeld reads
}

var (
	table      = store.TableOf[row]("executions")
	columns    = table.Columns
	endRow     = table.UpdateAnd("result", "result_encoding")
	selectByID = "SELECT " + columns + " FROM executions WHERE id = ? AND " + visible

	// selectHeld also tells whether the worker that holds the execution is draining; its first argument is the time.
	selectHeld = "SELECT " + columns + `, EXISTS (SELECT 1 FROM workers w WHERE w.namespace = executions.namespace
		AND w.worker_instance_id = executions.worker_instance_id AND ` + worker.Draining + `) AS draining FROM executions`
)

// rowOf returns the stored form of e.
func rowOf(e *execution.Execution, bucket *int64) (row, error) {
	r := row{
		ID: store.ID(e.ID), Namespace: e.Namespace, Lane: e.Lane, Kind: e.Kind, FlowID: store.ID(e.FlowID), Key: store.Text(e.Key),
		Payload: e.Payload, PayloadEncoding: string(e.PayloadEncoding), Policy: store.JSON(e.Policy), Required: e.Required.String(),
		Creator: e.Creator, CreatedAt: store.Millis(e.CreatedAt),
		Priority: e.Priority, Revision: e.Revision, Lifecycle: string(e.Lifecycle), Ownership: string(e.Ownership), Eligibility: string(e.Eligibility),
		Blocking: string(e.Blocking), Outcome: string(e.Outcome), Attempt: string(e.Attempt), Public: string(e.Public()),
		BlockingDetail: store.Text(e.BlockingDetail), Tags: store.JSON("{}"), InstanceTag: store.Text(e.Tags[tag.Instance]),
		StartedAt: store.Millis(e.StartedAt), CompletedAt: store.Millis(e.CompletedAt), DelayUntil: store.Millis(e.DelayUntil),
		DeadlineAt: store.Millis(e.DeadlineAt), AttemptTimeoutAt: store.Millis(e.AttemptTimeoutAt), DueAt: store.Millis(e.DueAt()),
		Attempts: e.Attempts, Retries: e.Retries, Replays: e.Replays, Reclaims: e.Reclaims,
		LeaseID: store.ID(e.Lease.ID), LeaseEpoch: e.Lease.Epoch, AttemptID: store.ID(e.Lease.AttemptID), WorkerID: store.Text(e.Lease.WorkerID),
		InstanceID: store.Text(e.Lease.InstanceID), LeaseAcquiredAt: store.Millis(e.Lease.AcquiredAt), LeaseExpiresAt: store.Millis(e.Lease.ExpiresAt),
		RunID: store.ID(e.RunID), Admitted: store.Bit(e.Admitted), ClaimBucket: bucket,
	}
	if e.AttemptIndex != execution.NoAttempt {
		r.AttemptIndex = &e.AttemptIndex
	}
	var err error
	keep := func(v any, present bool, into *store.JSON) {
		if present && err == nil {
			*into, err = json.Marshal(v)
		}
	}
	keep(e.Tags, len(e.Tags) > 0, &r.Tags)
	keep(e.Progress, e.Progress != nil, &r.Progress)
	keep(e.Failure, e.Failure != nil, &r.Failure)
	keep(e.Cancellation, e.Cancellation != nil, &r.Cancellation)
	keep(e.Released, e.Released != nil, &r.Released)
	keep(e.Grant, e.Grant != nil, &r.Grant)
	keep(e.Suspension, e.Suspension != nil, &r.Suspension)
	keep(e.Limits, !e.Limits.None(), &r.Limits)
	return r, err
}

// limitsDoc is the stored form of limits.
func limitsDoc(l *execution.Limits) (store.JSON, error) {
	if l.None() {
		return nil, nil
	}
	return json.Marshal(l)
}

// execution returns the execution that r stores. It returns CodeCorruptRecord for a row that cannot be one.
func (r *row) execution() (execution.Execution, error) {
	e := execution.Execution{
		ID: uuid.UUID(r.ID), Namespace: r.Namespace, Lane: r.Lane, Kind: r.Kind, FlowID: uuid.UUID(r.FlowID), RunID: uuid.UUID(r.RunID), Key: string(r.Key),
		Priority: r.Priority, Revision: r.Revision,
		Vector: execution.Vector{Lifecycle: execution.Lifecycle(r.Lifecycle), Ownership: execution.Ownership(r.Ownership),
			Eligibility: execution.Eligibility(r.Eligibility), Blocking: execution.Blocking(r.Blocking), Outcome: execution.Outcome(r.Outcome),
			Attempt: execution.AttemptState(r.Attempt)},
		BlockingDetail: string(r.BlockingDetail), Payload: r.Payload, PayloadEncoding: execution.Encoding(r.PayloadEncoding),
		Policy: json.RawMessage(r.Policy), Required: execution.ParseCapabilities(r.Required), Creator: r.Creator, Followed: r.Followed == 1, Admitted: r.Admitted == 1,
		CreatedAt: time.Time(r.CreatedAt), StartedAt: time.Time(r.StartedAt), CompletedAt: time.Time(r.CompletedAt), DelayUntil: time.Time(r.DelayUntil),
		DeadlineAt: time.Time(r.DeadlineAt), AttemptTimeoutAt: time.Time(r.AttemptTimeoutAt),
		AttemptIndex: execution.NoAttempt, Attempts: r.Attempts, Retries: r.Retries, Replays: r.Replays, Reclaims: r.Reclaims,
		Lease: execution.Lease{ID: uuid.UUID(r.LeaseID), Epoch: r.LeaseEpoch, AttemptID: uuid.UUID(r.AttemptID), WorkerID: string(r.WorkerID),
			InstanceID: string(r.InstanceID), AcquiredAt: time.Time(r.LeaseAcquiredAt), ExpiresAt: time.Time(r.LeaseExpiresAt)},
	}
	if r.AttemptIndex != nil {
		e.AttemptIndex = *r.AttemptIndex
	}
	if e.Payload == nil && e.PayloadEncoding == execution.EncodingBase64 {
		e.Payload = []byte{} // octets were given, if none; SQLite reads them as NULL
	}
	var err error
	read := func(doc store.JSON, into any) {
		if doc != nil && err == nil {
			err = json.Unmarshal(doc, into)
		}
	}
	if len(r.Tags) > len("{}") {
		read(r.Tags, &e.Tags)
	}
	read(r.Progress, &e.Progress)
	read(r.Failure, &e.Failure)
	read(r.Cancellation, &e.Cancellation)
	read(r.Released, &e.Released)
	read(r.Grant, &e.Grant)
	read(r.Suspension, &e.Suspension)
	read(r.Limits, &e.Limits)
	if err == nil && (e.Lifecycle == execution.Suspended) != e.Suspension.Open() || err == nil && (!e.Legal() || string(e.Public()) != r.Public) {
		err = errIllegal
	}
	if err != nil {
		return e, store.Corrupt("execution", e.ID, err)
	}
	return e, nil
}

func executionsOf(rows []row) ([]execution.Execution, error) {
	return store.Rows(rows, (*row).execution)
}
