package execution

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flowapi/flowapi/internal/domain/wait"
)

// Asker is the worker for whom a claim is explained. The zero value is one that has every capability.
type Asker struct {
	Named         bool // the fields below describe a worker, else it may be any
	Capabilities  Capabilities
	InstanceID    string
	DrainingSince time.Time
}

// Explanation says whether a claim gets an execution now, and why or why not.
type Explanation struct {
	Claimable bool
	Summary   string
	Gates     []Gate
}

// Gate is one condition of a claim.
type Gate struct {
	Name     GateName
	Met      bool
	Since    time.Time      // since when it is not met, or met
	Evidence map[string]any // what shows it
	NextAt   time.Time      // when it will be met, if time alone does it
	Hint     string         // what to do about it
	what     string         // what is the matter, as a sentence
}

// GateName names a condition.
type GateName string

// The conditions.
const (
	GatePhase        GateName = "phase"        // it waits for a worker, or was lost by one
	GateTime         GateName = "time"         // it does not wait for a time
	GateDependencies GateName = "dependencies" // nor for other executions
	GateFlow         GateName = "flow"         // its flow has been started
	GateAdmission    GateName = "admission"    // no budget, quota or operator holds it up
	GateGrant        GateName = "grant"        // nobody has reserved it
	GateLane         GateName = "lane"         // its lane is not paused
	GateCapabilities GateName = "capabilities" // the worker has what it requires
	GateWorker       GateName = "worker"       // the worker is not draining
)

// Situation is what decides about the claim of an execution beside itself and the worker.
type Situation struct {
	Lane    Lane
	Needs   Dependencies
	Hold    *Hold // the budget or quota that holds it up
	Capable int   // how many registered workers could have it
}

// Explain says whether a claim of e's lane by a worker, who also takes over lost leases, gets e now if nothing stands before
// it. All conditions but those of limits, lane and worker are met just when e is [Execution.Claimable], and a claim does not end it
// because it was lost too often.
func (e *Execution) Explain(at Situation, by Asker, now time.Time) Explanation {
	x := Explanation{Claimable: true, Gates: []Gate{e.phaseGate(now), e.timeGate(now), e.dependenciesGate(at.Needs), e.flowGate(), e.admissionGate(at.Hold), e.grantGate(), laneGate(at.Lane),
		e.capabilitiesGate(by, at.Capable), workerGate(by)}}
	for _, g := range x.Gates {
		if !g.Met && x.Claimable {
			x.Claimable, x.Summary = false, g.what+" "+g.Hint
		}
	}
	switch {
	case !x.Claimable:
	case by.Named:
		x.Summary = fmt.Sprintf("The next claim of lane %s by this worker gets it, after what stands before it.", e.Lane)
	case at.Capable == 0 && len(e.Required) > 0:
		x.Summary = fmt.Sprintf("A claim of lane %s gets it, but no registered worker has what it requires: %s. Start one that claims with these capabilities.", e.Lane, e.Required)
	default:
		x.Summary = fmt.Sprintf("The next claim of lane %s gets it, after what stands before it: start a worker of this lane if there is none.", e.Lane)
	}
	return x
}

func (e *Execution) phaseGate(now time.Time) Gate {
	worn := e.Lost() && e.Reclaims >= e.PolicyOf().MaxReclaims()
	g := Gate{Name: GatePhase, Met: e.Lifecycle == Runnable || e.Lost() && !worn, Evidence: map[string]any{"lifecycle_phase": e.Lifecycle, "ownership_state": e.Ownership}}
	switch {
	case g.Met:
	case e.Lifecycle == Terminal:
		g.Since, g.Evidence["terminal_outcome"] = e.CompletedAt, e.Outcome
		g.what, g.Hint = fmt.Sprintf("It has ended as %s.", e.Public()), "Replay it to run it again."
	case worn:
		g.Evidence["lease_reclaim_count"] = e.Reclaims
		g.what, g.Hint = fmt.Sprintf("It was lost and taken over %d times, which is all that its policy allows.", e.Reclaims), "The next claim of its lane ends it as failed; replay it then, or cancel it."
	case e.Lifecycle == Suspended:
		e.explainSuspension(&g)
	default:
		g.Since, g.NextAt = e.Lease.AcquiredAt, e.Lease.ExpiresAt
		g.Evidence["worker_id"], g.Evidence["worker_instance_id"], g.Evidence["lease_expires_at"] = e.Lease.WorkerID, e.Lease.InstanceID, stamp(e.Lease.ExpiresAt)
		g.what, g.Hint = fmt.Sprintf("Worker %s is working on it.", e.Lease.WorkerID), "Wait for it, or revoke its lease."
		if !e.Held(now) {
			g.Hint = "Its lease has just run out: it can be taken over in a moment."
		}
	}
	return g
}

// explainSuspension tells what a suspended execution waits for.
func (e *Execution) explainSuspension(g *Gate) {
	s := e.Suspension
	keys := make([]string, len(s.Waitpoints))
	for i, w := range s.Waitpoints {
		keys[i] = w.Key
	}
	g.Since = s.Since
	g.Evidence["blocking_reason"], g.Evidence["suspension_id"], g.Evidence["reason_code"], g.Evidence["waitpoints"] = e.Blocking, s.ID, s.Reason, keys
	g.what = fmt.Sprintf("It is suspended: %s, at the waitpoints %s.", s.Reason, strings.Join(keys, ", "))
	g.Hint = fmt.Sprintf("Signal them, decide with POST /v1/executions/%s/approvals, or resume it.", e.ID)
	if !s.TimeoutAt.IsZero() {
		g.Evidence["timeout_at"], g.Evidence["timeout_behavior"] = stamp(s.TimeoutAt), s.Behavior
		g.Hint += fmt.Sprintf(" At %s its time is over: %s.", stamp(s.TimeoutAt), s.Behavior)
		if onTimeout[s.Behavior] == wait.TimeoutResumes {
			g.NextAt = s.TimeoutAt
		}
	}
}

func (e *Execution) timeGate(now time.Time) Gate {
	g := Gate{Name: GateTime, Met: e.Eligibility != NotEligibleUntilTime}
	if !g.Met {
		g.NextAt, g.Evidence = e.DelayUntil, map[string]any{"delay_until": stamp(e.DelayUntil), "blocking_reason": e.Blocking}
		g.what, g.Hint = fmt.Sprintf("It waits until %s (%s).", stamp(e.DelayUntil), e.Blocking), "Wait until then."
		if !e.DelayUntil.After(now) {
			g.Hint = "That time has just come: it can be claimed in a moment."
		}
	}
	return g
}

func (e *Execution) dependenciesGate(needs Dependencies) Gate {
	g := Gate{Name: GateDependencies, Met: e.Eligibility != BlockedByDependencies}
	switch {
	case g.Met:
	case e.Attempt == AttemptInterrupted:
		g.Evidence = map[string]any{"blocking_reason": e.Blocking}
		g.what, g.Hint = "It waits for its children.", "Wait for them, or resume it."
	default:
		needs.explain(&g)
		g.Evidence["blocking_reason"] = e.Blocking
	}
	return g
}

func (e *Execution) flowGate() Gate {
	g := Gate{Name: GateFlow, Met: e.Eligibility != BlockedByLaneState}
	if !g.Met {
		g.Evidence = map[string]any{"blocking_reason": e.Blocking, "flow_id": e.FlowID}
		g.what, g.Hint = "Its flow has not been started.", fmt.Sprintf("Start it: POST /v1/flows/%s/start.", e.FlowID)
	}
	return g
}

func (e *Execution) admissionGate(h *Hold) Gate {
	if h != nil {
		return h.gate()
	}
	held := slices.Contains([]Eligibility{BlockedByBudget, BlockedByQuota, BlockedByRoute, BlockedByOperator}, e.Eligibility)
	g := Gate{Name: GateAdmission, Met: !held}
	if held {
		g.Evidence = map[string]any{"eligibility_state": e.Eligibility, "blocking_reason": e.Blocking}
		g.what, g.Hint = fmt.Sprintf("It is held up: %s.", e.Blocking), "Remove what holds it up."
	}
	return g
}

// gate tells what holds an execution up, and when that is over.
func (h *Hold) gate() Gate {
	g := Gate{Name: GateAdmission, Since: h.Since, NextAt: h.Until, what: h.Detail, Evidence: map[string]any{"eligibility_state": holds[h.By].eligibility, "blocking_reason": holds[h.By].blocking}}
	if h.By == HeldByBudget {
		g.Evidence["budget_id"], g.Evidence["dimension"], g.Evidence["need"] = h.ID, h.Key, h.Need
		g.Hint = fmt.Sprintf("Raise its limit: POST /v1/budgets/%s/topup.", h.ID)
		if !h.Until.IsZero() {
			g.Hint += fmt.Sprintf(" It is reset at %s.", stamp(h.Until))
		}
		return g
	}
	g.Evidence["quota_id"], g.Evidence["key"] = h.ID, h.Key
	g.Hint = "It goes on when another one that the quota counts has ended."
	if !h.Until.IsZero() {
		g.Hint = fmt.Sprintf("Wait until %s.", stamp(h.Until))
	}
	return g
}

func (e *Execution) grantGate() Gate {
	g := Gate{Name: GateGrant, Met: e.Grant == nil}
	if !g.Met {
		g.Since, g.NextAt = e.Grant.IssuedAt, e.Grant.ExpiresAt
		g.Evidence = map[string]any{"worker_id": e.Grant.WorkerID, "worker_instance_id": e.Grant.InstanceID, "expires_at": stamp(e.Grant.ExpiresAt)}
		g.what, g.Hint = fmt.Sprintf("It is reserved for worker %s.", e.Grant.WorkerID), "Wait until the worker claims it or the grant lapses."
	}
	return g
}

func laneGate(lane Lane) Gate {
	g := Gate{Name: GateLane, Met: lane.State != LanePaused, Since: lane.ChangedAt, Evidence: map[string]any{"lane": lane.Name, "state": lane.State}}
	if !g.Met {
		g.Evidence["actor"], g.Evidence["reason"] = lane.Actor, lane.Reason
		g.what, g.Hint = fmt.Sprintf("Lane %s is paused by %s.", lane.Name, lane.Actor), "Resume the lane."
	}
	return g
}

func (e *Execution) capabilitiesGate(by Asker, capable int) Gate {
	missing := by.Capabilities.Missing(e.Required)
	g := Gate{Name: GateCapabilities, Met: !by.Named || len(missing) == 0, Evidence: map[string]any{"required": strings.Split(e.Required.String(), ","), "registered_workers": capable}}
	if len(e.Required) == 0 {
		g.Evidence["required"] = []string{}
	}
	if !g.Met {
		g.Evidence["missing"] = []string(missing)
		g.what, g.Hint = fmt.Sprintf("This worker lacks %s.", missing), "Claim with a worker that has what it requires."
	}
	return g
}

func workerGate(by Asker) Gate {
	g := Gate{Name: GateWorker, Met: by.DrainingSince.IsZero(), Since: by.DrainingSince}
	if by.InstanceID != "" {
		g.Evidence = map[string]any{"worker_instance_id": by.InstanceID}
	}
	if !g.Met {
		g.what, g.Hint = fmt.Sprintf("Worker %s is draining.", by.InstanceID), "Claim with another worker."
	}
	return g
}
