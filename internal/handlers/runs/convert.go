package runs

import (
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/answer"
	"github.com/flowapi/flowapi/internal/handlers/ask"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
	"github.com/flowapi/flowapi/internal/handlers/shape"
	"github.com/flowapi/flowapi/internal/handlers/wire"
)

// creation returns what a request asks to create.
func creation(b *oapi.CreateRun) run.Create {
	return run.Create{ID: ask.Or(b.ID, uuid.Nil), WorkflowName: b.WorkflowName, Trigger: ask.Or(b.Trigger, ""), DryRun: ask.Or(b.DryRun, false), Inputs: b.Inputs,
		Definition: b.DefinitionSnapshot, ParentRunID: ask.Or(b.ParentRunID, ""), Parent: run.Place{RunID: ask.Or(b.ParentWorkflowRunID, uuid.Nil)},
		FlowID: ask.Or(b.FlowID, uuid.Nil), Iteration: int(ask.Or(b.Iteration, 0))}
}

// child returns whoever is to do the work of a step or an item, nil for nobody. What is wrong with a new execution is at pointer.
func child(b *oapi.RunChild, pointer string) (*run.Child, error) {
	if b == nil {
		return nil, nil
	}
	c := &run.Child{ExecutionID: ask.Or(b.ExecutionID, uuid.Nil), RunID: ask.Or(b.RunID, uuid.Nil)}
	if b.Run != nil {
		c.Run = new(creation(b.Run))
	}
	if b.Execution != nil {
		in, err := shape.Creation(b.Execution)
		if err != nil {
			return nil, fault.MovedTo(err, fault.InBody, pointer+"/execution")
		}
		c.Execution = &in
	}
	return c, nil
}

func runOK(r *run.Run) oapi.RunOKJSONResponse {
	return oapi.RunOKJSONResponse{Body: body(r), Headers: oapi.RunOKResponseHeaders{ETag: ask.ETag(r.Revision)}}
}

// body returns r as clients see it: without the holder of its lease.
func body(r *run.Run) oapi.Run {
	out := oapi.Run{
		ID: r.ID, Namespace: r.Namespace, WorkflowName: r.WorkflowName, WorkflowTitle: wire.TextOrNull(r.WorkflowTitle), Status: oapi.RunStatus(r.Status), Trigger: r.Trigger,
		DryRun: r.DryRun, Inputs: r.Inputs, DefinitionSnapshot: r.Definition, ParentRunID: wire.TextOrNull(r.ParentRunID), ParentWorkflowRunID: wire.IDOrNull(r.Parent.RunID),
		ParentStepID: wire.IDOrNull(r.Parent.StepID), ParentItemID: wire.IDOrNull(r.Parent.ItemID), FlowID: wire.IDOrNull(r.FlowID), Iteration: int32(r.Iteration),
		ResultSummary: wire.TextOrNull(r.ResultSummary), Error: wire.TextOrNull(r.Error), CancelReason: wire.TextOrNull(string(r.CancelReason)), Dismissed: r.Dismissed,
		Generation: r.Generation, LeaseUntil: wire.TimeOrNull(r.Lease.Until), ResumeCount: int32(r.ResumeCount), Revision: r.Revision, CreatedAt: wire.Time(r.CreatedAt),
		UpdatedAt: wire.Time(r.UpdatedAt), StartedAt: wire.TimeOrNull(r.StartedAt), EndedAt: wire.TimeOrNull(r.EndedAt), TotalDurationMs: r.TotalDuration.Milliseconds(),
	}
	if w := r.Wait; w != nil {
		out.BlockedOn = w.BlockedOn
		out.Wait = &oapi.RunWait{WaitID: w.ID, Deadline: wire.TimeOrNull(w.Deadline), OnTimeout: oapi.RunOnTimeout(w.OnTimeout), Since: wire.Time(w.Since)}
	}
	if c := r.Cancellation; c != nil {
		out.Cancellation = &oapi.RunCancellation{Actor: c.Actor, Message: wire.TextOrNull(c.Message), RequestedAt: wire.Time(c.RequestedAt), DeadlineAt: wire.TimeOrNull(c.DeadlineAt)}
	}
	return out
}

// step returns s as clients see it.
func step(s *run.Step) oapi.RunStep {
	out := oapi.RunStep{
		ID: s.ID, RunID: s.RunID, Path: s.Path, StepName: s.Name, Role: oapi.RunStepRole(s.Role), Status: oapi.RunStepStatus(s.Status), Position: s.Position,
		Iteration: int32(s.Iteration), RetryCount: int32(s.RetryCount), CanCommit: s.CanCommit, ChildRunID: wire.TextOrNull(s.ChildRunID),
		ChildExecutionID: wire.IDOrNull(s.ChildExecution), CreatedAt: wire.Time(s.CreatedAt), StartedAt: wire.TimeOrNull(s.StartedAt), EndedAt: wire.TimeOrNull(s.EndedAt),
		ResultText: wire.TextOrNull(s.ResultText), ContextOut: wire.TextOrNull(s.ContextOut), MarkersOut: s.Markers, StructuredOutput: s.Structured,
		StepError: wire.TextOrNull(s.StepError), ParallelGroupID: wire.TextOrNull(s.ParallelGroup), FanOutTotal: int64(s.FanOut.Total()),
		FanOutPending: int64(s.FanOut[run.ItemPending]), FanOutRunning: int64(s.FanOut[run.ItemRunning]), FanOutCompleted: int64(s.FanOut[run.ItemCompleted]),
		FanOutFailed: int64(s.FanOut[run.ItemFailed]), FanOutSkipped: int64(s.FanOut[run.ItemSkipped]), FanOutCancelled: int64(s.FanOut[run.ItemCancelled]),
		Attempts: answer.Each(s.Attempts(), attempt),
	}
	if s.Gate != nil {
		out.Gate = new(gate(s))
	}
	return out
}

func attempt(a *run.Attempt) oapi.RunStepAttempt {
	return oapi.RunStepAttempt{AttemptIndex: int32(a.Index), Status: oapi.RunStepStatus(a.Status), ChildRunID: wire.TextOrNull(a.ChildRunID),
		ChildExecutionID: wire.IDOrNull(a.ChildExecution), StartedAt: wire.TimeOrNull(a.StartedAt), EndedAt: wire.TimeOrNull(a.EndedAt), StepError: wire.TextOrNull(a.StepError)}
}

func item(it *run.Item) oapi.RunItem {
	return oapi.RunItem{ID: it.ID, StepID: it.StepID, RunID: it.RunID, ItemType: it.Type, ItemID: it.ItemID, ItemRef: it.Ref, Status: oapi.RunItemStatus(it.Status),
		ChildRunID: wire.TextOrNull(it.ChildRunID), ChildExecutionID: wire.IDOrNull(it.ChildExecution), Context: it.Context, CreatedAt: wire.Time(it.CreatedAt),
		DispatchedAt: wire.TimeOrNull(it.DispatchedAt), CompletedAt: wire.TimeOrNull(it.CompletedAt)}
}

// gate returns the gate of a step that has one, as the step shows it.
func gate(s *run.Step) oapi.RunGate {
	g := s.Gate
	return oapi.RunGate{StepID: s.ID, RunID: s.RunID, StepName: s.Name, GateType: g.Type, State: oapi.GateState(g.Outcome), Prompt: wire.TextOrNull(g.Prompt),
		Options: shape.Options(g.Options), MinApprovals: int32(g.MinApprovals), AllowSelfApproval: g.AllowSelf, RequestedBy: wire.TextOrNull(g.RequestedBy),
		TimeoutMs: g.Timeout.Milliseconds(), OnTimeout: oapi.GateOnTimeout(g.OnTimeout), OpenedAt: wire.TimeOrNull(g.OpenedAt), DeadlineAt: wire.TimeOrNull(g.DeadlineAt),
		ResolvedAt: wire.TimeOrNull(g.ResolvedAt), ResolvedBy: wire.TextOrNull(g.ResolvedBy), Feedback: wire.TextOrNull(g.Feedback), Selections: g.Selections}
}

// namedGate returns a gate with the name of its workflow.
func namedGate(g *run.GateAt) oapi.RunGate {
	out := gate(&g.Step)
	out.WorkflowName = &g.Run.WorkflowName
	return out
}

// votedGate returns a gate with what people have said to it.
func votedGate(g *run.GateAt) oapi.RunGate {
	out := namedGate(g)
	out.Votes = answer.Each(g.Votes, func(v *run.Vote) oapi.GateVote {
		return oapi.GateVote{By: v.Voter, Actor: v.Actor, Decision: oapi.GateDecision(v.Decision), Feedback: wire.TextOrNull(v.Feedback), Selections: v.Selections, At: wire.Time(v.At)}
	})
	out.Approvals = new(int32(g.Approvals))
	return out
}

func gateStats(s *run.GateStats) oapi.GateStats {
	return oapi.GateStats{WorkflowName: s.WorkflowName, StepName: s.StepName, GateType: s.GateType, Hits: int64(s.Hits), Approvals: int64(s.Approvals), Rejections: int64(s.Rejections),
		TimedOut: int64(s.TimedOut), ApprovalRate: float64(s.Approvals) / float64(s.Hits), AvgWaitMs: s.AvgWait.Milliseconds(), P50WaitMs: s.P50Wait.Milliseconds(),
		P95WaitMs: s.P95Wait.Milliseconds(), AvgFeedbackLength: int64(s.AvgFeedback)}
}
