package quota

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/event"
)

type created struct {
	QuotaID       uuid.UUID `json:"quota_id"`
	Window        int64     `json:"window_seconds"`
	MaxRequests   int64     `json:"max_requests_per_window"`
	MaxConcurrent int64     `json:"max_concurrent"`
	Jitter        int64     `json:"jitter_ms"`
	KeyTag        string    `json:"key_tag,omitempty"`
}

type keyed struct {
	QuotaID uuid.UUID `json:"quota_id"`
	Key     string    `json:"key"`
}

type refused struct {
	keyed
	Outcome Outcome     `json:"outcome"`
	Limit   int64       `json:"limit"`
	Current int64       `json:"current"`
	RetryAt event.Stamp `json:"retry_at,omitzero"`
}

func (q *Quota) tell(kind event.Type, execution uuid.UUID, data any) event.Event {
	return event.Event{Namespace: q.Namespace, Type: kind, ExecutionID: execution, Data: data}
}

// Deleted returns the event of a quota that goes.
func (q *Quota) Deleted() event.Event {
	return q.tell(event.QuotaDeleted, uuid.Nil, struct {
		QuotaID uuid.UUID `json:"quota_id"`
	}{q.ID})
}

// Refused returns the event of a queue whose head has to wait.
func (q *Quota) Refused(key string, v Verdict) event.Event {
	data := refused{keyed{q.ID, key}, v.Outcome, q.MaxConcurrent, v.Usage.Active, event.Stamp(v.RetryAt)}
	if v.Outcome == RateExceeded {
		data.Limit, data.Current = q.MaxRequests, v.Usage.Recent
	}
	return q.tell(event.QuotaRefused, uuid.Nil, data)
}

// Admitted returns the event of an execution that was admitted by hand.
func (q *Quota) Admitted(a Admission) event.Event {
	return q.tell(event.QuotaAdmitted, a.ExecutionID, keyed{q.ID, a.Key})
}

// Released returns the event of an admission that was taken back by hand.
func (q *Quota) Released(a Admission) event.Event {
	return q.tell(event.QuotaReleased, a.ExecutionID, keyed{q.ID, a.Key})
}
