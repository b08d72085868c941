package fault

import "strings"

// Code is the stable name of a refusal. It never changes its meaning; new ones may be added.
type Code string

// Page returns the path of the page that describes the code: /problems/stale-lease.
func (c Code) Page() string { return "/problems/" + strings.ReplaceAll(string(c), "_", "-") }

// The codes. Each is described at /problems/<code with dashes>.
const (
	CodeMalformedJSON         Code = "malformed_json"
	CodeInvalidCursor         Code = "invalid_cursor"
	CodeInvalidParameter      Code = "invalid_parameter"
	CodeInvalidHandle         Code = "invalid_handle"
	CodeUnauthenticated       Code = "unauthenticated"
	CodeForbidden             Code = "forbidden"
	CodeCrossOrigin           Code = "cross_origin"
	CodeNotFound              Code = "not_found"
	CodeMethodNotAllowed      Code = "method_not_allowed"
	CodeIllegalTransition     Code = "illegal_transition"
	CodeAlreadyTerminal       Code = "already_terminal"
	CodeNotTerminal           Code = "not_terminal"
	CodeCancelPending         Code = "cancel_pending"
	CodeStaleGraphRevision    Code = "stale_graph_revision"
	CodeCycleDetected         Code = "cycle_detected"
	CodeSelfReferencingEdge   Code = "self_referencing_edge"
	CodeExecutionNotInFlow    Code = "execution_not_in_flow"
	CodeAlreadyMember         Code = "already_member"
	CodePolicyFixed           Code = "policy_fixed"
	CodeChildAlreadyStarted   Code = "child_already_started"
	CodeOpenMembers           Code = "open_members"
	CodeStepTerminal          Code = "step_terminal"
	CodeDuplicateStep         Code = "duplicate_step"
	CodeAlreadyExists         Code = "already_exists"
	CodeStaleLease            Code = "stale_lease"
	CodeLeaseExpired          Code = "lease_expired"
	CodeLeaseRevoked          Code = "lease_revoked"
	CodeExecutionNotActive    Code = "execution_not_active"
	CodeExecutionNotTerminal  Code = "execution_not_terminal"
	CodeExecutionNotEligible  Code = "execution_not_eligible"
	CodeExecutionNotLeaseable Code = "execution_not_leaseable"
	CodeLeaseConflict         Code = "lease_conflict"
	CodeMaxReplaysExhausted   Code = "max_replays_exhausted"
	CodeGrantNotFound         Code = "grant_not_found"
	CodeGrantExists           Code = "grant_exists"
	CodeInvalidClaimGrant     Code = "invalid_claim_grant"
	CodeClaimGrantExpired     Code = "claim_grant_expired"
	CodeNotReclaimable        Code = "not_reclaimable"
	CodeReclaimCapExceeded    Code = "reclaim_cap_exceeded"
	CodeCapabilityMismatch    Code = "capability_mismatch"
	CodeAlreadySuspended      Code = "already_suspended"
	CodeWaitpointClosed       Code = "waitpoint_closed"
	CodeWaitpointNotPending   Code = "waitpoint_not_pending"
	CodePendingExpired        Code = "pending_waitpoint_expired"
	CodeTargetNotSignalable   Code = "target_not_signalable"
	CodeSignalLimitExceeded   Code = "signal_limit_exceeded"
	CodeInvalidToken          Code = "invalid_token"
	CodeWaitpointLimit        Code = "waitpoint_limit_exceeded"
	CodeSelfApproval          Code = "self_approval"
	CodeInvalidCondition      Code = "invalid_condition"
	CodeNotSuspended          Code = "not_suspended"
	CodeBudgetInUse           Code = "budget_in_use"
	CodeBudgetExhausted       Code = "budget_exhausted"
	CodeStreamClosed          Code = "stream_closed"
	CodeWorkerNotRegistered   Code = "worker_not_registered"
	CodeWorkerReassigned      Code = "worker_reassigned"
	CodeWorkerDraining        Code = "worker_draining"
	CodeRotationConflict      Code = "rotation_conflict"
	CodeLeaseHeld             Code = "lease_held"
	CodeLeaseLost             Code = "lease_lost"
	CodeRunTerminal           Code = "run_terminal"
	CodeRunCancelled          Code = "run_cancelled"
	CodeNotResumable          Code = "not_resumable"
	CodeLinkCycle             Code = "link_cycle"
	CodeNotAGate              Code = "not_a_gate"
	CodeGateAlreadyResolved   Code = "gate_already_resolved"
	CodeIdempotencyInFlight   Code = "idempotency_in_flight"
	CodeRevisionMismatch      Code = "revision_mismatch"
	CodePayloadTooLarge       Code = "payload_too_large"
	CodeUnsupportedMediaType  Code = "unsupported_media_type"
	CodeValidationFailed      Code = "validation_failed"
	CodeIdempotencyMismatch   Code = "idempotency_mismatch"
	CodeTimerOutOfRange       Code = "timer_out_of_range"
	CodeGraphInvalid          Code = "graph_invalid"
	CodeInvalidSelection      Code = "invalid_selection"
	CodeOutOfRange            Code = "out_of_range"
	CodeBadWaitCondition      Code = "bad_wait_condition"
	CodeInvalidCapabilities   Code = "invalid_capabilities"
	CodeInvalidTagKey         Code = "invalid_tag_key"
	CodePreconditionRequired  Code = "precondition_required"
	CodeTooManyStreams        Code = "too_many_streams"
	CodeRateLimited           Code = "rate_limited"
	CodeInternal              Code = "internal"
	CodeCorruptRecord         Code = "corrupt_record"
	CodeReactorLoop           Code = "reactor_loop"
	CodeBusy                  Code = "busy"
	CodeShuttingDown          Code = "shutting_down"
	CodeUnavailable           Code = "unavailable"
)

// Entry is a line of the catalogue.
type Entry struct {
	Code      Code
	Status    int
	Retryable bool   // the same request may succeed later, unchanged
	Title     string // what is wrong, in a few words
	About     string // what it means and what to do next
}

// Catalogue returns every code with its meaning, by status.
func Catalogue() []Entry { return catalogue[:] }

// Lookup returns the entry of c, and that of [CodeInternal] for a code that is not in the catalogue.
func Lookup(c Code) Entry {
	if e, ok := byCode[c]; ok {
		return e
	}
	return byCode[CodeInternal]
}

var byCode = func() map[Code]Entry {
	m := make(map[Code]Entry, len(catalogue))
	for _, e := range catalogue {
		m[e.Code] = e
	}
	return m
}()

var catalogue = [...]Entry{
	{Code: CodeMalformedJSON, Status: 400, Retryable: false, Title: "The body is not one JSON value", About: "The body must be one JSON value in UTF-8, without duplicate keys and at most 100 levels deep. `errors[].pointer` names the place."},
	{Code: CodeInvalidCursor, Status: 400, Retryable: false, Title: "The cursor is not one of ours", About: "Cursors are opaque and belong to the list that returned them. Start again without one."},
	{Code: CodeInvalidParameter, Status: 400, Retryable: false, Title: "A parameter has the wrong form", About: "A path, query or header parameter cannot be parsed. `errors[]` names it."},
	{Code: CodeInvalidHandle, Status: 400, Retryable: false, Title: "The handle is not one of ours", About: "Send the `handle` of the claim answer unchanged, to the execution it was given for."},
	{Code: CodeUnauthenticated, Status: 401, Retryable: false, Title: "No valid token", About: "Send `Authorization: Bearer <token>`. An administrator makes one with `flowapi token create`."},
	{Code: CodeForbidden, Status: 403, Retryable: false, Title: "The token's role does not allow this", About: "`required_role` names the role that does, or `namespace` the one that the token is for. Ask an administrator for another token."},
	{Code: CodeInvalidToken, Status: 403, Retryable: false, Title: "The token does not open this waitpoint", About: "The answer is the same whatever is wrong: with the token, its secret, or the waitpoint. Use the token that was given out with the waitpoint."},
	{Code: CodeSelfApproval, Status: 403, Retryable: false, Title: "Whoever asks may not approve", About: "`requested_by` asked for this approval. Another person has to decide."},
	{Code: CodeCrossOrigin, Status: 403, Retryable: false, Title: "A page of another origin may not call this server", About: "Call from a page of the same origin, or from outside a browser."},
	{Code: CodeNotFound, Status: 404, Retryable: false, Title: "There is no such resource", About: "`resource` names its kind. A resource of another namespace does not exist for this token."},
	{Code: CodeMethodNotAllowed, Status: 405, Retryable: false, Title: "The resource has no such method", About: "The `Allow` header and `allowed` list the methods it has."},
	{Code: CodeIllegalTransition, Status: 409, Retryable: false, Title: "The state does not allow this change", About: "`from` and `to` say what was tried. Read the resource and decide again."},
	{Code: CodeAlreadyTerminal, Status: 409, Retryable: false, Title: "The resource has ended", About: "`current_status` says how. What has ended does not change any more: create another one, or replay what can be replayed."},
	{Code: CodeNotTerminal, Status: 409, Retryable: false, Title: "The resource has not ended", About: "`current_status` says where it is. Only what has ended can be deleted: end or cancel it first."},
	{Code: CodeCancelPending, Status: 409, Retryable: false, Title: "Cancellation was requested", About: "Somebody wants the flow to end. Only cancelling or failing it is possible now."},
	{Code: CodeOpenMembers, Status: 409, Retryable: false, Title: "Parts of it are still open", About: "`count` says how many members, steps or items. Wait for them or end them, or end the whole otherwise."},
	{Code: CodeStaleGraphRevision, Status: 409, Retryable: true, Title: "The graph has changed since you read it", About: "`expected` and `actual` tell. Read the flow again and repeat with its `graph_revision`."},
	{Code: CodeCycleDetected, Status: 409, Retryable: false, Title: "The edge would close a cycle", About: "`path` names the members that would need one another. Leave the edge out."},
	{Code: CodeSelfReferencingEdge, Status: 409, Retryable: false, Title: "An execution cannot depend on itself", About: "Upstream and downstream of an edge are two members."},
	{Code: CodeExecutionNotInFlow, Status: 409, Retryable: false, Title: "The execution is not a member of the flow", About: "`execution_id` says which. Add it to the flow first."},
	{Code: CodeAlreadyMember, Status: 409, Retryable: false, Title: "The execution belongs to another flow", About: "`flow_id` says to which. An execution belongs to one flow, for good."},
	{Code: CodePolicyFixed, Status: 409, Retryable: false, Title: "The member has dependencies already", About: "How many of them have to end well is said before the first edge is staged, and stays: set it before, or leave it."},
	{Code: CodeChildAlreadyStarted, Status: 409, Retryable: false, Title: "The downstream member has started", About: "`public_state` says where it is. Only what has not started can get further dependencies: add another member."},
	{Code: CodeStepTerminal, Status: 409, Retryable: false, Title: "The step has ended", About: "`current_status` says how. Of a flow, repeat the observation with `force` to overwrite it; of a run it stays as it is."},
	{Code: CodeDuplicateStep, Status: 409, Retryable: false, Title: "The flow has a step with this run_id", About: "Use PUT to observe it again."},
	{Code: CodeAlreadyExists, Status: 409, Retryable: false, Title: "The id is taken by something else", About: "The same id was created with other content. Choose another id."},
	{Code: CodeStaleLease, Status: 409, Retryable: false, Title: "The lease belongs to somebody else now", About: "The work was taken over. Stop working on it, and claim again."},
	{Code: CodeLeaseExpired, Status: 409, Retryable: false, Title: "The lease has run out", About: "Nobody has taken the work over yet, but it is not yours any more. Stop, and claim again."},
	{Code: CodeLeaseRevoked, Status: 409, Retryable: false, Title: "The lease was revoked", About: "An operator took the lease away. Stop, and claim again."},
	{Code: CodeExecutionNotActive, Status: 409, Retryable: false, Title: "Nobody is working on the execution", About: "`lifecycle_phase`, `terminal_outcome` and `lease_epoch` say where it is. If you were working on it, stop, and claim again."},
	{Code: CodeExecutionNotTerminal, Status: 409, Retryable: false, Title: "The execution has not ended", About: "Only what has ended can be run again. `public_state` says where it is; wait for it, or cancel it."},
	{Code: CodeExecutionNotEligible, Status: 409, Retryable: false, Title: "The execution does not wait for a claim", About: "`public_state` says where it is. `GET …/explain` says what it waits for."},
	{Code: CodeExecutionNotLeaseable, Status: 409, Retryable: false, Title: "The execution cannot be claimed", About: "`public_state` says where it is. `GET …/explain` says what it waits for."},
	{Code: CodeLeaseConflict, Status: 409, Retryable: true, Title: "Somebody holds the execution", About: "Wait until its lease ends, or let an operator take it away."},
	{Code: CodeMaxReplaysExhausted, Status: 409, Retryable: false, Title: "The execution was replayed as often as its policy allows", About: "`replay_count` says how often. Create a new one."},
	{Code: CodeGrantNotFound, Status: 409, Retryable: false, Title: "There is no such grant", About: "It was used, it has lapsed, or it never was. Ask for another one."},
	{Code: CodeGrantExists, Status: 409, Retryable: true, Title: "Somebody has reserved the execution", About: "The grant lapses at `expires_at`."},
	{Code: CodeInvalidClaimGrant, Status: 409, Retryable: false, Title: "The grant does not give this worker this execution", About: "Use the `grant_id` as it was given, as the worker it was given to."},
	{Code: CodeClaimGrantExpired, Status: 409, Retryable: false, Title: "The grant has lapsed", About: "Ask for another one."},
	{Code: CodeNotReclaimable, Status: 409, Retryable: false, Title: "Nobody has lost the execution", About: "Only an active execution whose lease has run out or was revoked can be taken over. `ownership_state` says where it is."},
	{Code: CodeReclaimCapExceeded, Status: 409, Retryable: false, Title: "The execution was taken over as often as its policy allows", About: "The next claim of its lane ends it as failed; replay it then, or cancel it."},
	{Code: CodeCapabilityMismatch, Status: 409, Retryable: true, Title: "The worker lacks capabilities that the execution requires", About: "`missing` lists them. Another worker may have it."},
	{Code: CodeNotSuspended, Status: 409, Retryable: false, Title: "The execution is not suspended", About: "Only what is suspended, or waits for its children, can be resumed. `public_state` says where it is."},
	{Code: CodeAlreadySuspended, Status: 409, Retryable: false, Title: "The execution is suspended already", About: "Stop working on it. Its waitpoints are at `GET …/waitpoints`; whoever claims it after it was resumed goes on."},
	{Code: CodeWaitpointClosed, Status: 409, Retryable: false, Title: "The waitpoint is closed", About: "`close_reason` says why. What waited there has gone on, or has ended; nothing was changed."},
	{Code: CodeWaitpointNotPending, Status: 409, Retryable: false, Title: "The waitpoint is not pending", About: "Only a pending waitpoint of the present attempt can be suspended on. `state` says where it is. Create another one."},
	{Code: CodePendingExpired, Status: 409, Retryable: false, Title: "The pending waitpoint has expired", About: "Nobody suspended on it in time. Create another one."},
	{Code: CodeTargetNotSignalable, Status: 409, Retryable: false, Title: "The execution takes no signals", About: "`public_state` says where it is: it has ended, or the attempt that the waitpoint belongs to is over."},
	{Code: CodeSignalLimitExceeded, Status: 409, Retryable: false, Title: "The execution has as many signals as its policy allows", About: "`limit` is `max_signals_per_execution` of its policy. An operator may resume it; allow more to the next one."},
	{Code: CodeWaitpointLimit, Status: 409, Retryable: false, Title: "The execution has as many waitpoints as it may have", About: "`limit` says how many. Suspend on those that there are."},
	{Code: CodeRotationConflict, Status: 409, Retryable: false, Title: "The secrets cannot be changed in this way", About: "`current_kid` names the secret that tokens are made with. Choose a kid that was not used yet, or send the secret that belongs to it."},
	{Code: CodeBudgetInUse, Status: 409, Retryable: false, Title: "The budget is the parent of others", About: "`children` says of how many. Delete them first."},
	{Code: CodeBudgetExhausted, Status: 409, Retryable: true, Title: "A budget has not enough left", About: "`budget_id` and `dimension` say which, and of what. Wait until it is reset, top it up, or claim something else."},
	{Code: CodeStreamClosed, Status: 409, Retryable: false, Title: "The stream takes no more frames", About: "Nobody is working on the execution: `public_state` says where it is, and `closed_reason` why the stream was closed, if it was."},
	{Code: CodeWorkerNotRegistered, Status: 409, Retryable: false, Title: "The worker is not registered", About: "Its registration has lapsed, or it never was. Register it with PUT."},
	{Code: CodeWorkerReassigned, Status: 409, Retryable: false, Title: "The instance belongs to another worker", About: "`worker_id` names it. Choose another instance id, or take the other one off the register first."},
	{Code: CodeWorkerDraining, Status: 409, Retryable: false, Title: "The worker is draining", About: "It gets no more work. End what it holds, and stop it."},
	{Code: CodeLeaseHeld, Status: 409, Retryable: true, Title: "Somebody else drives the run", About: "`lease_until` says until when, unless it is renewed. It can be taken over then, or when it is released."},
	{Code: CodeLeaseLost, Status: 409, Retryable: false, Title: "The run has another generation", About: "Somebody else drives it: `current_generation` is theirs. Nothing was changed. Stop, or take the lease again."},
	{Code: CodeRunTerminal, Status: 409, Retryable: false, Title: "The run has ended", About: "`current_status` says how. What is in it does not change any more; a run that has failed can be resumed."},
	{Code: CodeRunCancelled, Status: 409, Retryable: false, Title: "The run is to end", About: "Nothing new begins in it. End what is at work, and cancel the run with your generation."},
	{Code: CodeNotResumable, Status: 409, Retryable: false, Title: "The run cannot be resumed", About: "`current_status` says where it is. What waits, needs_resume or has failed goes on; what has completed only with `restart`, what was cancelled never."},
	{Code: CodeLinkCycle, Status: 409, Retryable: false, Title: "A run cannot be in itself", About: "`path` names the runs that would be in one another, or `limit` says how deep they may stand."},
	{Code: CodeNotAGate, Status: 409, Retryable: false, Title: "The step is not a gate", About: "`role` says what it is. Only steps with the role `gate` are answered."},
	{Code: CodeGateAlreadyResolved, Status: 409, Retryable: false, Title: "The gate has its outcome", About: "`state`, `by` and `at` say which. A gate is decided once."},
	{Code: CodeIdempotencyInFlight, Status: 409, Retryable: true, Title: "The first request with this key is still running", About: "Repeat the request a moment later."},
	{Code: CodeRevisionMismatch, Status: 412, Retryable: false, Title: "The resource has changed since you read it", About: "`expected`, `actual` and `changed` tell. Read it again and repeat with its ETag."},
	{Code: CodePayloadTooLarge, Status: 413, Retryable: false, Title: "The body is too large", About: "`limit_bytes` is the limit. Send less at a time, or keep it elsewhere and send where it is."},
	{Code: CodeUnsupportedMediaType, Status: 415, Retryable: false, Title: "The body has a type that this route does not take", About: "Send `application/json`, or no Content-Type at all."},
	{Code: CodeValidationFailed, Status: 422, Retryable: false, Title: "The request breaks the contract", About: "`errors[]` names each place: a missing or unknown field, a wrong type, a value out of bounds."},
	{Code: CodeIdempotencyMismatch, Status: 422, Retryable: false, Title: "The key was used for another request", About: "An `Idempotency-Key` belongs to one method, path and body for 24 hours. Use a new key."},
	{Code: CodeTimerOutOfRange, Status: 422, Retryable: false, Title: "The time is in the past or too far ahead", About: "Timers and deadlines lie in the future and within the horizon that `/v1/meta` names."},
	{Code: CodeGraphInvalid, Status: 422, Retryable: false, Title: "The graph cannot be built", About: "`errors[]` names every mistake, and `path` a cycle if there is one: unknown or repeated names, needs that go round, quorums that cannot be reached. Nothing was written."},
	{Code: CodeInvalidSelection, Status: 422, Retryable: false, Title: "The selection is not among the options", About: "`invalid` names the first that is not, `allowed` those that are."},
	{Code: CodeOutOfRange, Status: 422, Retryable: false, Title: "The value is out of bounds", About: "`errors[]` names it and its bounds."},
	{Code: CodeBadWaitCondition, Status: 422, Retryable: false, Title: "The wait condition is not well formed", About: "`errors[].pointer` names the part."},
	{Code: CodeInvalidCondition, Status: 422, Retryable: false, Title: "The resume condition is not well formed", About: "`errors[].pointer` names the part, and `rule` the rule that it breaks."},
	{Code: CodeInvalidCapabilities, Status: 422, Retryable: false, Title: "The capabilities are not well formed", About: "At most 256 tokens and 4,096 bytes, none empty, without commas, spaces or control characters."},
	{Code: CodeInvalidTagKey, Status: 422, Retryable: false, Title: "The tag's key is not well formed", About: "Keys look like `area.name`: lower-case letters, digits and underscores, with a dot inside."},
	{Code: CodePreconditionRequired, Status: 428, Retryable: false, Title: "This change needs If-Match", About: "Read the resource and send its ETag as `If-Match`."},
	{Code: CodeTooManyStreams, Status: 429, Retryable: true, Title: "Too many open streams", About: "Close some streams, or read /v1/events with Prefer: wait instead."},
	{Code: CodeRateLimited, Status: 429, Retryable: true, Title: "Too many requests", About: "Slow down; `Retry-After` says for how long. `quota_id` names the quota, if one has refused it."},
	{Code: CodeInternal, Status: 500, Retryable: false, Title: "An error of ours", About: "The log has it under `request_id`. Please report it."},
	{Code: CodeCorruptRecord, Status: 500, Retryable: false, Title: "A stored record cannot be read", About: "The log has it under `request_id`. Nothing was changed. Restore the record, or report it."},
	{Code: CodeReactorLoop, Status: 500, Retryable: false, Title: "A change caused itself", About: "The change was rolled back. Please report it with `request_id`."},
	{Code: CodeBusy, Status: 503, Retryable: true, Title: "The server is busy", About: "Nothing was changed. Repeat after `Retry-After`."},
	{Code: CodeShuttingDown, Status: 503, Retryable: true, Title: "The server is shutting down", About: "Nothing was changed. Repeat after `Retry-After`, or at another replica."},
	{Code: CodeUnavailable, Status: 503, Retryable: true, Title: "The database is not available", About: "Nothing was changed. Repeat after `Retry-After`."},
}
