package suspensions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/call"
	"github.com/flowapi/flowapi/internal/domain/execution"
	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/page"
	"github.com/flowapi/flowapi/internal/domain/wait"
	"github.com/flowapi/flowapi/internal/form"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// DeliverSignal handles POST /v1/executions/{execution_id}/signals.
func (h *Handlers) DeliverSignal(ctx context.Context, req oapi.DeliverSignalRequestObject) (oapi.DeliverSignalResponseObject, error) {
	b := req.Body
	if source := ask.Or(b.SourceType, ""); source == execution.SourceOperator || source == execution.SourceLink {
		return nil, fault.Invalid(fault.CodeValidationFailed, "/source_type", "%s is the source of decisions at …/approvals and behind links; say another one.", source)
	}
	in := execution.SignalRequest{
		Kept: wait.Kept{
			Signal: wait.Signal{CorrelationID: ask.Or(b.CorrelationID, ""), Payload: wait.Compact(b.Payload), Name: b.SignalName, SourceType: ask.Or(b.SourceType, "external"),
				SourceIdentity: ask.Or(b.SourceIdentity, "")},
			ExecutionID: req.ExecutionID, WaitpointID: b.WaitpointID, Category: ask.Or(b.SignalCategory, "custom"), IdempotencyKey: ask.Or(b.IdempotencyKey, ""),
		},
		Token: b.Token, Recognised: ask.Millis(ask.Or(b.DedupTTLMs, execution.DefaultRecognised.Milliseconds())),
	}
	if b.SignalID != nil {
		in.ID = b.SignalID.String()
	}
	if b.ResumeDelayMs != nil {
		in.ResumeDelay = new(ask.Millis(*b.ResumeDelayMs))
	}
	return answer.Write(ctx, func(ctx context.Context) (execution.Signalled, error) {
		return h.Executions.Signal(ctx, in)
	}, func(s execution.Signalled) oapi.DeliverSignalResponseObject {
		return oapi.DeliverSignal200JSONResponse{SignalOKJSONResponse: receipt(&s)}
	}, oapi.DeliverSignalResponseObject.VisitDeliverSignalResponse)
}

// DecideApproval handles POST /v1/executions/{execution_id}/approvals.
func (h *Handlers) DecideApproval(ctx context.Context, req oapi.DecideApprovalRequestObject) (oapi.DecideApprovalResponseObject, error) {
	b := req.Body
	who := call.From(ctx).Actor
	in := Decision{Execution: req.ExecutionID, Waitpoint: b.WaitpointID, Decision: execution.Decision(b.Decision), By: who, Reason: ask.Or(b.Reason, ""), Form: b.Form,
		Suffix: ask.Or(b.IdempotencySuffix, who)}.Signal()
	in.Trusted = true
	return answer.Write(ctx, func(ctx context.Context) (execution.Signalled, error) {
		return h.Executions.Signal(ctx, in)
	}, func(s execution.Signalled) oapi.DecideApprovalResponseObject {
		return oapi.DecideApproval200JSONResponse{SignalOKJSONResponse: receipt(&s)}
	}, oapi.DecideApprovalResponseObject.VisitDecideApprovalResponse)
}

// Decision is what a person has decided at a waitpoint.
type Decision struct {
	Execution, Waitpoint uuid.UUID
	Decision             execution.Decision
	By                   string
	Source               string // what kind of source By is; an operator without it
	Reason               string
	Form                 json.RawMessage
	Suffix               string // tells decisions of the same kind apart
}

// Signal returns the signal that tells a decision, which the approval's form must fit. reference: executions.md 2.17
// (deliver_approval_signal).
func (d Decision) Signal() execution.SignalRequest {
	payload, err := json.Marshal(struct {
		Decision execution.Decision `json:"decision"`
		By       string             `json:"by"`
		Reason   string             `json:"reason,omitempty"`
		Form     json.RawMessage    `json:"form,omitempty"`
	}{d.Decision, d.By, d.Reason, d.Form})
	if err != nil {
		payload = nil // a form that was read as JSON can be written
	}
	return execution.SignalRequest{
		Kept: wait.Kept{Signal: wait.Signal{Payload: payload, Name: string(d.Decision), SourceType: cmp.Or(d.Source, execution.SourceOperator), SourceIdentity: d.By}, ExecutionID: d.Execution,
			WaitpointID: d.Waitpoint, Category: "approval", IdempotencyKey: "approval:" + string(d.Decision) + ":" + d.Suffix},
		Recognised: execution.DefaultRecognised, Fits: d.fits, Decides: true,
	}
}

// fits refuses what was filled in if an approval asks for something else. Who rejects need not fill in anything.
func (d Decision) fits(a *execution.Approval) error {
	if a == nil || len(a.Form) == 0 {
		return nil
	}
	asked, err := form.Parse(a.Form, "/form")
	if err != nil {
		return fmt.Errorf("the form of waitpoint %s: %s", d.Waitpoint, err) //nolint:errorlint // it was right when it was made: this is no refusal
	}
	if d.Decision == execution.Rejected {
		asked = asked.Optional()
	}
	return asked.Check(d.Form, "/form")
}

func receipt(s *execution.Signalled) oapi.SignalOKJSONResponse {
	return oapi.SignalOKJSONResponse{Body: Receipt(s)}
}

// Receipt says what became of a signal.
func Receipt(s *execution.Signalled) oapi.SignalReceipt {
	outcome := oapi.SignalReceiptOutcomeAccepted
	if s.Duplicate {
		outcome = oapi.SignalReceiptOutcomeDuplicate
	}
	id, _ := uuid.Parse(s.Signal.ID) // it was one when it came
	return oapi.SignalReceipt{Outcome: outcome, SignalID: id, Effect: oapi.SignalEffect(s.Signal.Effect)}
}

// ListSignals handles GET /v1/executions/{execution_id}/signals.
func (h *Handlers) ListSignals(ctx context.Context, req oapi.ListSignalsRequestObject) (oapi.ListSignalsResponseObject, error) {
	list, err := answer.List(ctx, req.Params.Cursor, req.Params.Limit, func(after page.Cursor, limit int) (page.Page[wait.Kept], error) {
		return h.Executions.Signals(ctx, req.ExecutionID, ask.Or(req.Params.All, false), after, limit)
	}, func(k *wait.Kept) oapi.Signal {
		id, _ := uuid.Parse(k.ID)
		return oapi.Signal{SignalID: id, WaitpointID: k.WaitpointID, WaitpointKey: k.Waitpoint, SignalName: k.Name, SignalCategory: k.Category, SourceType: k.SourceType,
			SourceIdentity: k.SourceIdentity, CorrelationID: wire.TextOrNull(k.CorrelationID), AcceptedAt: wire.Time(k.At), Payload: k.Payload, Effect: oapi.SignalEffect(k.Effect)}
	})
	if err != nil {
		return nil, err
	}
	return oapi.ListSignals200JSONResponse{Body: oapi.SignalList{Items: list.Items, NextCursor: list.Next}, Headers: oapi.ListSignals200ResponseHeaders{Link: list.Link}}, nil
}
