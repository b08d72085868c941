// Package shape is how resources look on the wire that several subjects show, and how what is asked for them is read.
package shape

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// Execution returns e as clients see it.
func Execution(e *execution.Execution) oapi.Execution {
	out := oapi.Execution{
		ID: e.ID, Namespace: e.Namespace, Lane: e.Lane, Kind: e.Kind, FlowID: wire.IDOrNull(e.FlowID), RunID: wire.IDOrNull(e.RunID), Key: wire.TextOrNull(e.Key),
		Priority: int32(e.Priority), PublicState: oapi.PublicState(e.Public()), StateVector: Vector(e),
		BlockingReason: oapi.BlockingReason(e.Blocking), BlockingDetail: e.BlockingDetail,
		Payload: Document(e.Payload, e.PayloadEncoding), PayloadEncoding: oapi.PayloadEncoding(e.PayloadEncoding), Policy: e.Policy,
		RequiredCapabilities: List(e.Required), Tags: wire.Tags(e.Tags), Revision: e.Revision,
		TotalAttemptCount: int32(e.Attempts), RetryCount: int32(e.Retries), ReplayCount: int32(e.Replays), LeaseReclaimCount: int32(e.Reclaims),
		DelayUntil: wire.TimeOrNull(e.DelayUntil), DeadlineAt: wire.TimeOrNull(e.DeadlineAt), CreatedAt: wire.Time(e.CreatedAt),
		StartedAt: wire.TimeOrNull(e.StartedAt), CompletedAt: wire.TimeOrNull(e.CompletedAt),
	}
	out.BudgetIds, out.QuotaPolicyIds, out.Estimate = Attached(e.Limits)
	if e.AttemptIndex != execution.NoAttempt {
		out.CurrentAttemptIndex = new(int32(e.AttemptIndex))
	}
	if e.Ownership == execution.Leased {
		out.CurrentLease = &oapi.CurrentLease{LeaseID: e.Lease.ID, LeaseEpoch: e.Lease.Epoch, WorkerID: e.Lease.WorkerID,
			WorkerInstanceID: e.Lease.InstanceID, AcquiredAt: wire.Time(e.Lease.AcquiredAt), ExpiresAt: wire.Time(e.Lease.ExpiresAt)}
	}
	if p := e.Progress; p != nil {
		out.Progress = oapi.Progress{Message: p.Message, At: wire.TimeOrNull(p.At)}
		if p.Pct != nil {
			out.Progress.Pct = new(int32(*p.Pct))
		}
	}
	out.Failure = Failure(e.Failure)
	if c := e.Cancellation; c != nil {
		out.Cancellation = &oapi.ExecutionCancellation{Reason: c.Reason, Actor: c.Actor, RequestedAt: wire.Time(c.RequestedAt), DeadlineAt: wire.TimeOrNull(c.DeadlineAt)}
	}
	out.Suspension = suspension(e.Suspension)
	return out
}

func suspension(s *execution.Suspension) *oapi.Suspension {
	if s == nil {
		return nil
	}
	out := &oapi.Suspension{SuspensionID: s.ID, AttemptIndex: int32(s.AttemptIndex), ReasonCode: oapi.SuspendReason(s.Reason), RequestedBy: s.RequestedBy, Since: wire.Time(s.Since),
		Waitpoints: make([]oapi.BoundWaitpoint, len(s.Waitpoints)), TimeoutAt: wire.TimeOrNull(s.TimeoutAt), TimeoutBehavior: oapi.TimeoutBehavior(s.Behavior),
		ContinuationMetadataPointer: wire.TextOrNull(s.Pointer), ClosedAt: wire.TimeOrNull(s.ClosedAt), CloseReason: wire.TextOrNull(s.CloseReason), CloserSignalID: wire.TextOrNull(s.Closer)}
	for i, w := range s.Waitpoints {
		out.Waitpoints[i] = oapi.BoundWaitpoint{WaitpointID: w.ID, WaitpointKey: w.Key}
	}
	return out
}

// Vector returns the state of an execution in all its dimensions.
func Vector(e *execution.Execution) oapi.StateVector {
	return oapi.StateVector{
		LifecyclePhase: oapi.LifecyclePhase(e.Lifecycle), OwnershipState: oapi.OwnershipState(e.Ownership),
		EligibilityState: oapi.EligibilityState(e.Eligibility), BlockingReason: oapi.BlockingReason(e.Blocking),
		TerminalOutcome: oapi.TerminalOutcome(e.Outcome), AttemptState: oapi.AttemptState(e.Attempt), PublicState: oapi.PublicState(e.Public()),
	}
}

// Failure returns why an attempt failed, nil when none has.
func Failure(f *execution.Failure) *oapi.ExecutionFailure {
	if f == nil {
		return nil
	}
	return &oapi.ExecutionFailure{Reason: f.Reason, Category: wire.TextOrNull(f.Category)}
}

// Attempt returns one attempt.
func Attempt(a *execution.Attempt) oapi.Attempt {
	out := oapi.Attempt{
		AttemptIndex: int32(a.Index), AttemptType: oapi.AttemptType(a.Type), State: oapi.AttemptLifecycle(a.Stage), WorkerID: a.WorkerID,
		WorkerInstanceID: a.InstanceID, LeaseEpoch: a.LeaseEpoch, StartedAt: wire.TimeOrNull(a.StartedAt), EndedAt: wire.TimeOrNull(a.EndedAt),
		Failure: Failure(a.Failure), ReclaimReason: wire.TextOrNull(a.ReclaimReason),
	}
	if a.Previous != nil {
		out.PreviousAttemptIndex = new(int32(*a.Previous))
	}
	return out
}

// Document returns bytes as a JSON document: themselves, or a string in base64.
func Document(b []byte, encoding execution.Encoding) oapi.Document {
	if b == nil || encoding == execution.EncodingJSON {
		return oapi.Document(b)
	}
	quoted := make([]byte, 0, base64.StdEncoding.EncodedLen(len(b))+2)
	quoted = append(quoted, '"')
	quoted = base64.StdEncoding.AppendEncode(quoted, b)
	return append(quoted, '"')
}

// Value returns a JSON document as what is stored, nil when there is none.
func Value(doc json.RawMessage) *execution.Value {
	if doc == nil {
		return nil
	}
	return &execution.Value{Bytes: bytes.TrimSpace(doc), Encoding: execution.EncodingJSON}
}

// List returns capabilities, none as an empty list.
func List(c execution.Capabilities) []string {
	if c == nil {
		return []string{}
	}
	return c
}

// Time returns a time that was asked for, zero for none.
func Time(t *oapi.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time()
}
