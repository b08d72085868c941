package event

// The topics.
const (
	TopicFlow       Topic = "flow"
	TopicStep       Topic = "step"
	TopicExecution  Topic = "execution"
	TopicCompletion Topic = "completion"
	TopicLease      Topic = "lease"
	TopicSignal     Topic = "signal"
	TopicStream     Topic = "stream"
	TopicOperator   Topic = "operator"
	TopicWorker     Topic = "worker"
	TopicLane       Topic = "lane"
	TopicAdmin      Topic = "admin"
	TopicRun        Topic = "run"
	TopicGate       Topic = "gate"
	TopicFanout     Topic = "fanout"
	TopicBudget     Topic = "budget"
	TopicQuota      Topic = "quota"
)

// Topics returns every topic.
func Topics() []Topic {
	return []Topic{TopicFlow, TopicStep, TopicExecution, TopicCompletion, TopicLease, TopicStream, TopicSignal, TopicOperator, TopicWorker, TopicLane, TopicRun, TopicGate, TopicFanout, TopicBudget, TopicQuota, TopicAdmin}
}

// The types.
const (
	FlowCreated             Type = "flow.created"
	FlowStarted             Type = "flow.started"
	FlowStateUpdated        Type = "flow.state_updated"
	FlowWaiting             Type = "flow.waiting"
	FlowResumed             Type = "flow.resumed"
	FlowFinished            Type = "flow.finished"
	FlowFailed              Type = "flow.failed"
	FlowCancelRequested     Type = "flow.cancel_requested"
	FlowCancelled           Type = "flow.cancelled"
	FlowReplaced            Type = "flow.replaced"
	FlowReplayed            Type = "flow.replayed"
	FlowTagSet              Type = "flow.tag_set"
	FlowGraphChanged        Type = "flow.graph_changed"
	FlowMemberAdded         Type = "flow.member_added"
	FlowEdgeStaged          Type = "flow.edge_staged"
	FlowGroupSet            Type = "flow.group_set"
	FlowDeleted             Type = "flow.deleted"
	FlowPruned              Type = "flow.pruned"
	StepInserted            Type = "step.inserted"
	StepObserved            Type = "step.observed"
	StepUpdated             Type = "step.updated"
	ExecutionCreated        Type = "execution.created"
	ExecutionDelayed        Type = "execution.delayed"
	ExecutionEligible       Type = "execution.eligible"
	ExecutionBlocked        Type = "execution.blocked"
	ExecutionProgressed     Type = "execution.progressed"
	ExecutionSuspended      Type = "execution.suspended"
	ExecutionResumed        Type = "execution.resumed"
	ExecutionCancelling     Type = "execution.cancelling"
	ExecutionTagSet         Type = "execution.tag_set"
	ExecutionCompleted      Type = "execution.completed"
	ExecutionFailed         Type = "execution.failed"
	ExecutionCancelled      Type = "execution.cancelled"
	ExecutionExpired        Type = "execution.expired"
	ExecutionSkipped        Type = "execution.skipped"
	LeaseAcquired           Type = "lease.acquired"
	LeaseRenewed            Type = "lease.renewed"
	LeaseExpired            Type = "lease.expired"
	LeaseReclaimed          Type = "lease.reclaimed"
	LeaseRevoked            Type = "lease.revoked"
	StreamClosed            Type = "stream.closed"
	SignalDelivered         Type = "signal.delivered"
	SignalBuffered          Type = "signal.buffered"
	WaitpointCreated        Type = "waitpoint.created"
	WaitpointClosed         Type = "waitpoint.closed"
	OperatorCancelled       Type = "operator.cancelled"
	OperatorLeaseRevoked    Type = "operator.lease_revoked"
	OperatorPriorityChanged Type = "operator.priority_changed"
	OperatorReplayed        Type = "operator.replayed"
	OperatorResumed         Type = "operator.resumed"
	OperatorFlowCancel      Type = "operator.flow_cancel_requested"
	OperatorClaimed         Type = "operator.claimed"
	OperatorReported        Type = "operator.reported"
	OperatorBulkStarted     Type = "operator.bulk_started"
	OperatorBulkFinished    Type = "operator.bulk_finished"
	WorkerRegistered        Type = "worker.registered"
	WorkerHeartbeatLost     Type = "worker.heartbeat_lost"
	WorkerDrained           Type = "worker.drained"
	WorkerRemoved           Type = "worker.removed"
	LanePaused              Type = "lane.paused"
	LaneResumed             Type = "lane.resumed"
	LaneUpdated             Type = "lane.updated"
	RunCreated              Type = "run.created"
	RunStarted              Type = "run.started"
	RunWaiting              Type = "run.waiting"
	RunResumed              Type = "run.resumed"
	RunCompleted            Type = "run.completed"
	RunFailed               Type = "run.failed"
	RunCancelling           Type = "run.cancelling"
	RunCancelled            Type = "run.cancelled"
	RunNeedsResume          Type = "run.needs_resume"
	RunLeased               Type = "run.leased"
	RunLeaseReleased        Type = "run.lease_released"
	RunLinked               Type = "run.linked"
	RunDismissed            Type = "run.dismissed"
	RunDeleted              Type = "run.deleted"
	RunStepInserted         Type = "run_step.inserted"
	RunStepStarted          Type = "run_step.started"
	RunStepWaiting          Type = "run_step.waiting"
	RunStepUpdated          Type = "run_step.updated"
	RunStepReset            Type = "run_step.reset"
	RunStepCompleted        Type = "run_step.completed"
	RunStepFailed           Type = "run_step.failed"
	RunStepSkipped          Type = "run_step.skipped"
	RunStepTimedOut         Type = "run_step.timed_out"
	RunStepCancelled        Type = "run_step.cancelled"
	GateOpened              Type = "gate.opened"
	GateVoted               Type = "gate.voted"
	GateApproved            Type = "gate.approved"
	GateRejected            Type = "gate.rejected"
	GateTimedOut            Type = "gate.timed_out"
	GateCancelled           Type = "gate.cancelled"
	GateSkipped             Type = "gate.skipped"
	ItemAdded               Type = "item.added"
	ItemRunning             Type = "item.running"
	ItemCompleted           Type = "item.completed"
	ItemFailed              Type = "item.failed"
	ItemSkipped             Type = "item.skipped"
	ItemCancelled           Type = "item.cancelled"
	BudgetCreated           Type = "budget.created"
	BudgetUpdated           Type = "budget.updated"
	BudgetExhausted         Type = "budget.exhausted"
	BudgetAvailable         Type = "budget.available"
	BudgetBreached          Type = "budget.breached"
	BudgetSoftBreached      Type = "budget.soft_breached"
	BudgetReset             Type = "budget.reset"
	BudgetToppedUp          Type = "budget.topped_up"
	BudgetReleased          Type = "budget.released"
	BudgetDeleted           Type = "budget.deleted"
	QuotaCreated            Type = "quota.created"
	QuotaDeleted            Type = "quota.deleted"
	QuotaRefused            Type = "quota.refused"
	QuotaAdmitted           Type = "quota.admitted"
	QuotaReleased           Type = "quota.released"
	TokenCreated            Type = "token.created"
	TokenRevoked            Type = "token.revoked"
	SecretSeeded            Type = "secret.seeded"
	SecretRotated           Type = "secret.rotated"
	RetentionTrimmed        Type = "retention.trimmed"
)

var catalogue = [...]Entry{
	{FlowCreated, TopicFlow, "a flow was created", "goal, kind, controller_id, owner_session_key, requester_origin, current_step, state, tags?, auto_finish?"},
	{FlowStarted, TopicFlow, "a created flow was started", ""},
	{FlowStateUpdated, TopicFlow, "the state document or the step label changed", "patch, merge (shallow or rfc7396), current_step?"},
	{FlowWaiting, TopicFlow, "the flow parked on a condition", "wait_id, condition, deadline?, on_timeout"},
	{FlowResumed, TopicFlow, "a wait ended and the flow runs again", "wait_id, by (request, timer, external_event, timeout), event_id?, topic?, correlation_id?, payload?, earlier?, state_patch?"},
	{FlowFinished, TopicFlow, "the flow reached its goal", "state_patch?"},
	{FlowFailed, TopicFlow, "the flow gave up", "reason, wait_id?"},
	{FlowCancelRequested, TopicFlow, "somebody asked for cancellation; only cancelling or failing is possible now", "reason?"},
	{FlowCancelled, TopicFlow, "the flow was cancelled", "policy, reason?, wait_id?"},
	{FlowReplaced, TopicFlow, "a controller replaced the flow's fields by PUT", "changed, the new value of each changed field, status?, wait?, wait_id?"},
	{FlowReplayed, TopicFlow, "members of a failed or finished flow were replayed, and the flow runs again", "execution_ids (the first hundred), members"},
	{FlowTagSet, TopicFlow, "a tag was set", "key, value"},
	{FlowGraphChanged, TopicFlow, "members and edges were added by one request; each member has its execution.created", "executions, edges, graph_revision, node_count, edge_count"},
	{FlowMemberAdded, TopicFlow, "one execution became a member", "execution_id, key?, graph_revision, node_count"},
	{FlowEdgeStaged, TopicFlow, "a member was made to depend on another", "edge_id, upstream_execution_id, downstream_execution_id, pass_result, state, graph_revision, edge_count"},
	{FlowGroupSet, TopicFlow, "it was said when the dependencies of a member are satisfied", "execution_id, kind, k?, on_satisfied"},
	{FlowDeleted, TopicFlow, "an ended flow was deleted on request", "status"},
	{FlowPruned, TopicFlow, "an ended flow was deleted by retention", "status"},
	{StepInserted, TopicStep, "a step was added", "step_id, run_id, runtime, task, status, result?, child_session_key?, execution_id?, workflow_run_id?, public_state?"},
	{StepObserved, TopicStep, "a step was observed, or mirrors the execution behind it", "step_id, run_id, runtime, task, status, result?, child_session_key?, execution_id?, workflow_run_id?, public_state?"},
	{StepUpdated, TopicStep, "a step was changed by its controller", "step_id, run_id, runtime, task, status, result?, child_session_key?, execution_id?, workflow_run_id?, public_state?"},
	{ExecutionCreated, TopicExecution, "an execution was created", "lane, kind, priority, public_state"},
	{ExecutionDelayed, TopicExecution, "it waits for a time: at its start, or before a retry", "delay_until, blocking_reason"},
	{ExecutionEligible, TopicExecution, "it can be claimed again", "blocking_reason, attempt_state"},
	{ExecutionBlocked, TopicExecution, "it waits for something else than time", "blocking_reason"},
	{ExecutionProgressed, TopicExecution, "its worker reported progress", "pct?, message?"},
	{ExecutionSuspended, TopicExecution, "its worker gave it back until a condition holds; again when it is escalated to an operator", "suspension_id, reason_code, blocking_reason, waitpoints, timeout_at?, timeout_behavior, escalated?"},
	{ExecutionResumed, TopicExecution, "what it waited for has come, or an operator or its timeout let it go on", "suspension_id, by (signal, operator, timeout), signal_id?, public_state, delay_until?"},
	{ExecutionCancelling, TopicExecution, "its worker was asked to end it", "reason, deadline_at"},
	{ExecutionTagSet, TopicExecution, "a tag was set", "key, value, previous?"},
	{ExecutionCompleted, TopicCompletion, "it ended well", "outcome, attempt_index, lane, kind"},
	{ExecutionFailed, TopicCompletion, "it failed for good", "outcome, attempt_index, reason, category?, lane, kind"},
	{ExecutionCancelled, TopicCompletion, "it was cancelled", "outcome, attempt_index?, reason?, category?, lane, kind"},
	{ExecutionExpired, TopicCompletion, "a deadline or an attempt timeout ended it", "outcome, attempt_index?, reason, category, lane, kind"},
	{ExecutionSkipped, TopicCompletion, "what it depends on cannot end well any more", "outcome, attempt_index?, reason, lane, kind"},
	{LeaseAcquired, TopicLease, "a worker holds it", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, kind (fresh, retry, replay, resumed), expires_at"},
	{LeaseRenewed, TopicLease, "its worker renewed the lease", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, expires_at"},
	{LeaseExpired, TopicLease, "the lease ran out; the work may be taken over", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, reason"},
	{LeaseReclaimed, TopicLease, "another worker took the work over, as a new attempt", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, previous_attempt_index, expires_at"},
	{LeaseRevoked, TopicLease, "the ownership ended in another way", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, reason (completed, failed, retry_scheduled, released, delayed, suspended, waiting_children, cancelled, operator, timeout)"},
	{StreamClosed, TopicStream, "the stream of an attempt takes no more frames; told of those that have any", "attempt_index, reason (attempt_success, attempt_failure, attempt_cancelled, lease_expired, lease_revoked, expired, suspension_timeout; reserved: dependency_impossible), frame_count"},
	{SignalDelivered, TopicSignal, "a signal reached a waitpoint that somebody waits for", "signal_id, waitpoint_id, waitpoint_key, signal_name, signal_category, source_type, source_identity, correlation_id?, suspension_id, effect"},
	{SignalBuffered, TopicSignal, "a signal is kept at a waitpoint that nobody waits for yet", "signal_id, waitpoint_id, waitpoint_key, signal_name, signal_category, source_type, source_identity, correlation_id?, effect"},
	{WaitpointCreated, TopicSignal, "a worker made a waitpoint that it will wait for later", "waitpoint_id, waitpoint_key, expires_at"},
	{WaitpointClosed, TopicSignal, "a waitpoint was closed by itself; with its suspension, that is told by what ended it", "waitpoint_id, waitpoint_key, reason"},
	{OperatorCancelled, TopicOperator, "an operator cancelled it", "reason, grace_ms?"},
	{OperatorLeaseRevoked, TopicOperator, "an operator took the lease away", "lease_id, lease_epoch, worker_id, worker_instance_id, attempt_index, reason?"},
	{OperatorPriorityChanged, TopicOperator, "an operator changed its priority", "old_priority, new_priority"},
	{OperatorReplayed, TopicOperator, "an operator ran it again", "replay_count, branch, outcome"},
	{OperatorResumed, TopicOperator, "an operator let it go on", "blocking_reason, resume_delay_ms?"},
	{OperatorFlowCancel, TopicOperator, "an operator cancelled a flow, which tells flow.cancelled", "policy, reason, member_count, grace_ms?"},
	{OperatorClaimed, TopicOperator, "an operator claimed it", "lease_id, lease_epoch"},
	{OperatorReported, TopicOperator, "an operator reported in place of the holder", "operation"},
	{OperatorBulkStarted, TopicOperator, "a bulk job began", "job_id, action, filter, total"},
	{OperatorBulkFinished, TopicOperator, "a bulk job ended", "job_id, action, state (finished, stopped), done, failed_count"},
	{WorkerRegistered, TopicWorker, "a worker was registered, or its registration was changed", "worker_instance_id, worker_id, lanes, capabilities, liveness_ttl_ms"},
	{WorkerHeartbeatLost, TopicWorker, "its heartbeat has lapsed", "worker_instance_id, worker_id"},
	{WorkerDrained, TopicWorker, "an operator drains it", "worker_instance_id, worker_id, reason?"},
	{WorkerRemoved, TopicWorker, "it was taken off the register", "worker_instance_id, worker_id, reason?"},
	{LanePaused, TopicLane, "nothing of the lane can be claimed", "lane, reason?"},
	{LaneResumed, TopicLane, "the lane can be claimed from again", "lane, reason?"},
	{LaneUpdated, TopicLane, "other quotas hold for what stands in the lane", "lane, quota_policy_ids"},
	{RunCreated, TopicRun, "a run was created", "workflow_name, workflow_title?, trigger, dry_run?, parent_workflow_run_id?, step_id?, item_id?"},
	{RunStarted, TopicRun, "its engine has begun", "generation"},
	{RunWaiting, TopicRun, "its engine has parked it", "wait_id, blocked_on, deadline?, on_timeout"},
	{RunResumed, TopicRun, "it runs again: its engine goes on, somebody resumed it, its wait was over, or the child that it waited for has ended", "by (engine, request, timeout, child), resume_count?, from_step?, restart?"},
	{RunCompleted, TopicRun, "it ended well", "result_summary?, error?, cancel_reason?, total_duration_ms, generation"},
	{RunFailed, TopicRun, "it failed", "result_summary?, error?, cancel_reason?, total_duration_ms, generation"},
	{RunCancelling, TopicRun, "its engine was asked to end it", "cancel_reason, message?, deadline_at"},
	{RunCancelled, TopicRun, "it was cancelled", "result_summary?, error?, cancel_reason?, total_duration_ms, generation"},
	{RunNeedsResume, TopicRun, "its engine has given it up unfinished", ""},
	{RunLeased, TopicRun, "an engine drives it; renewals are not told", "generation, outcome (granted, taken_over), lease_until"},
	{RunLeaseReleased, TopicRun, "its engine has given the lease back", "generation"},
	{RunLinked, TopicRun, "a run that existed became the child of a step or an item", "parent_workflow_run_id, step_id, item_id?"},
	{RunDismissed, TopicRun, "it was hidden from lists, or is shown again", "dismissed"},
	{RunDeleted, TopicRun, "an ended run was deleted", "status"},
	{RunStepInserted, TopicRun, "a step was added", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepStarted, TopicRun, "an attempt at the step has begun, or it runs again after it waited", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepWaiting, TopicRun, "the step waits", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepUpdated, TopicRun, "its engine said something of the step, whose status stays", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepReset, TopicRun, "a resume does the step again", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepCompleted, TopicRun, "the step ended well", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepFailed, TopicRun, "the step failed", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepSkipped, TopicRun, "the step was left out", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepTimedOut, TopicRun, "the step took too long", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{RunStepCancelled, TopicRun, "the step was cancelled, or its run has ended", "step_id, step_name, role, status, position, iteration, retry_count, child_run_id?, child_execution_id?, step_error?"},
	{GateOpened, TopicGate, "a gate waits for answers", "step_id, step_name, gate_type, requested_by, min_approvals, deadline_at"},
	{GateVoted, TopicGate, "somebody said something to a gate that did not decide it", "step_id, gate_type, by, decision (approved, feedback), feedback?"},
	{GateApproved, TopicGate, "a gate was approved", "step_id, step_name, gate_type, by?, feedback?, selections?, wait_ms?"},
	{GateRejected, TopicGate, "a gate was rejected", "step_id, step_name, gate_type, by?, feedback?, selections?, wait_ms?"},
	{GateTimedOut, TopicGate, "nobody answered a gate in time", "step_id, step_name, gate_type, by?, feedback?, selections?, wait_ms?, on_timeout"},
	{GateCancelled, TopicGate, "the step of a gate has ended before it was answered", "step_id, step_name, gate_type, by?, feedback?, selections?, wait_ms?"},
	{GateSkipped, TopicGate, "the step of a gate was left out", "step_id, step_name, gate_type, by?, feedback?, selections?, wait_ms?"},
	{ItemAdded, TopicFanout, "an item was added to a step, or is done again", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{ItemRunning, TopicFanout, "the work on an item has begun", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{ItemCompleted, TopicFanout, "an item ended well", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{ItemFailed, TopicFanout, "an item failed", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{ItemSkipped, TopicFanout, "an item was left out", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{ItemCancelled, TopicFanout, "an item was cancelled, or its step has ended", "step_id, id, item_type, item_id, status, child_run_id?, child_execution_id?"},
	{BudgetCreated, TopicBudget, "a budget was made", "budget_id, scope_type, scope_id, parent_id?, hard_limits, soft_limits, on_hard_limit, reset_interval_ms?, schedule?, next_reset_at?"},
	{BudgetUpdated, TopicBudget, "a budget was changed by an operator", "budget_id, scope_type, scope_id, changed (the names of the members that were)"},
	{BudgetExhausted, TopicBudget, "nothing is left of a dimension: what the budget counts for cannot be claimed", "budget_id, scope_type, scope_id, dimension, current_usage, limit, on_hard_limit, next_reset_at?"},
	{BudgetAvailable, TopicBudget, "something is left of every dimension again", "budget_id, scope_type, scope_id"},
	{BudgetBreached, TopicBudget, "a report was not counted, because it would have gone over a hard limit", "budget_id, scope_type, scope_id, dimension, current_usage (before), delta, limit, next_reset_at?"},
	{BudgetSoftBreached, TopicBudget, "a report went over a soft limit; it was counted", "budget_id, scope_type, scope_id, dimension, current_usage (after), delta, limit, next_reset_at?"},
	{BudgetReset, TopicBudget, "a new period has begun: nothing is used", "budget_id, scope_type, scope_id, by (request, schedule), usage (before), period, next_reset_at?"},
	{BudgetToppedUp, TopicBudget, "hard limits were raised", "budget_id, scope_type, scope_id, dimensions (by how much), hard_limits (of these, after)"},
	{BudgetReleased, TopicBudget, "what an execution has spent was given back", "budget_id, scope_type, scope_id, dimensions (how much)"},
	{BudgetDeleted, TopicBudget, "a budget was deleted", "budget_id, scope_type, scope_id"},
	{QuotaCreated, TopicQuota, "a quota was made", "quota_id, window_seconds, max_requests_per_window, max_concurrent, jitter_ms, key_tag?"},
	{QuotaDeleted, TopicQuota, "a quota was deleted", "quota_id"},
	{QuotaRefused, TopicQuota, "what is at the head of a queue has to wait for the quota; at most once a second for each key", "quota_id, key, outcome (rate_exceeded, concurrency_exceeded), limit, current, retry_at?"},
	{QuotaAdmitted, TopicQuota, "an execution was admitted by hand", "quota_id, key"},
	{QuotaReleased, TopicQuota, "the admission of an execution was taken back by hand", "quota_id, key"},
	{TokenCreated, TopicAdmin, "a token was made", "token_id, name, role"},
	{TokenRevoked, TopicAdmin, "a token was revoked", "token_id"},
	{SecretSeeded, TopicAdmin, "waitpoint tokens got their first secret", "kid"},
	{SecretRotated, TopicAdmin, "another secret makes waitpoint tokens", "kid, previous_kid?, expires_at? (until when the previous one verifies)"},
	{RetentionTrimmed, TopicAdmin, "old events were deleted", "through"},
}
