-- +goose Up

-- A CHECK spells its values out with OR: SQLite builds a temporary table for an IN list of more than two, at every write.

-- The event log. ids are consecutive and in the order of commits. last and trimmed_through bound what a reader may ask
-- for; generation changes when ids may have been lost; then the ids after gap_from and up to gap_to are
-- left out, and a reader who has seen one of them is told.
CREATE TABLE event_log (
    one             INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    last            INTEGER NOT NULL,
    trimmed_through INTEGER NOT NULL,
    gap_from        INTEGER NOT NULL DEFAULT 0,
    gap_to          INTEGER NOT NULL DEFAULT 0,
    generation      BLOB NOT NULL
) STRICT;
INSERT INTO event_log (last, trimmed_through, generation) VALUES (0, 0, randomblob(16));

CREATE TABLE events (
    id             INTEGER PRIMARY KEY,
    at             INTEGER NOT NULL,
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    type           TEXT NOT NULL,
    flow_id        BLOB,
    run_id         BLOB,
    execution_id   BLOB,
    instance_tag   TEXT,
    revision       INTEGER,
    actor          TEXT NOT NULL,
    cause          INTEGER,
    trace_id       TEXT,
    data           TEXT NOT NULL,
    schema_version INTEGER NOT NULL
) STRICT;
CREATE INDEX events_flow_idx ON events (flow_id) WHERE flow_id IS NOT NULL;
CREATE INDEX events_run_idx ON events (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX events_execution_idx ON events (execution_id) WHERE execution_id IS NOT NULL;

-- Answers kept under their Idempotency-Key. status is 0 while the first request runs.
CREATE TABLE idempotency_keys (
    namespace  TEXT NOT NULL,
    token      TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       BLOB NOT NULL,
    status     INTEGER NOT NULL,
    location   TEXT,
    etag       TEXT,
    body       BLOB,
    ref        TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, token, key)
) STRICT;
CREATE INDEX idempotency_keys_expires_idx ON idempotency_keys (expires_at);

-- API tokens. The secret is not kept, only its SHA-256; prefix finds the row.
CREATE TABLE tokens (
    id           BLOB NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role = 'viewer' OR role = 'worker' OR role = 'operator' OR role = 'admin'),
    namespace    TEXT NOT NULL,
    prefix       TEXT NOT NULL UNIQUE,
    hash         BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

CREATE TABLE flows (
    id                BLOB NOT NULL PRIMARY KEY,
    namespace         TEXT NOT NULL,
    kind              TEXT NOT NULL,
    controller_id     TEXT NOT NULL,
    goal              TEXT NOT NULL,
    owner_session_key TEXT NOT NULL,
    requester_origin  TEXT NOT NULL,
    current_step      TEXT NOT NULL,
    state             TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status = 'waiting' OR status = 'created' OR status = 'running' OR status = 'finished' OR status = 'failed' OR status = 'cancelled'),
    cancel_requested  INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
    wait_id           BLOB,
    revision          INTEGER NOT NULL,
    graph_revision    INTEGER NOT NULL,
    node_count        INTEGER NOT NULL,
    edge_count        INTEGER NOT NULL,
    auto_finish       INTEGER NOT NULL CHECK (auto_finish IN (0, 1)),
    cancellation      TEXT,
    failure           TEXT,
    tags              TEXT NOT NULL,
    fields_changed    TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    ended_at          INTEGER,
    CHECK ((wait_id IS NOT NULL) = (status = 'waiting')),
    CHECK ((ended_at IS NOT NULL) = (status = 'finished' OR status = 'failed' OR status = 'cancelled'))
) STRICT;
CREATE INDEX flows_list_idx ON flows (namespace, created_at, id);
CREATE INDEX flows_owner_idx ON flows (namespace, owner_session_key, created_at, id);
CREATE INDEX flows_status_idx ON flows (namespace, status, created_at, id);
CREATE INDEX flows_ended_idx ON flows (status, updated_at) WHERE ended_at IS NOT NULL;

CREATE TABLE flow_steps (
    id                BLOB NOT NULL PRIMARY KEY,
    flow_id           BLOB NOT NULL REFERENCES flows (id) ON DELETE CASCADE,
    run_id            TEXT NOT NULL,
    position          INTEGER NOT NULL,
    runtime           TEXT NOT NULL CHECK (runtime IN ('managed', 'mirrored')),
    child_session_key TEXT,
    task              TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'cancelled'),
    result            TEXT,
    execution_id      BLOB,
    workflow_run_id   BLOB,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    UNIQUE (flow_id, run_id)
) STRICT;
CREATE INDEX flow_steps_position_idx ON flow_steps (flow_id, position, id);
CREATE INDEX flow_steps_execution_idx ON flow_steps (execution_id) WHERE execution_id IS NOT NULL;

-- Open waits, whatever they belong to. A wait that has ended has no row. received are the events that have met a part of
-- the condition.
CREATE TABLE waits (
    id           BLOB NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    flow_id      BLOB NOT NULL,
    condition    TEXT NOT NULL,
    received     TEXT NOT NULL,
    deadline_at  INTEGER,
    on_timeout   TEXT NOT NULL CHECK (on_timeout = 'resume' OR on_timeout = 'fail' OR on_timeout = 'cancel'),
    manual       INTEGER NOT NULL CHECK (manual IN (0, 1)),
    title        TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    since        INTEGER NOT NULL,
    due_at       INTEGER
) STRICT;
CREATE INDEX waits_due_idx ON waits (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX waits_inbox_idx ON waits (namespace, since, id) WHERE manual = 1;

-- What open waits listen to.
CREATE TABLE wait_keys (
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    wait_id        BLOB NOT NULL REFERENCES waits (id) ON DELETE CASCADE,
    PRIMARY KEY (namespace, topic, correlation_id, wait_id)
) STRICT;
CREATE INDEX wait_keys_wait_idx ON wait_keys (wait_id);

-- Rows to lock: whoever opens a wait for an event, or delivers one, holds the row of its topic and correlation id, so that
-- neither misses the other.
CREATE TABLE wait_stripes (id INTEGER PRIMARY KEY) STRICT;
INSERT INTO wait_stripes (id) WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 63) SELECT id FROM n;

-- External events: what they woke, or that they are kept for a wait to come (open). id is our own, in the order of arrival.
CREATE TABLE external_events (
    id             BLOB NOT NULL PRIMARY KEY,
    namespace      TEXT NOT NULL,
    event_id       TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    flow_id        BLOB,
    payload        TEXT,
    matched        TEXT NOT NULL,
    open           INTEGER NOT NULL CHECK (open IN (0, 1)),
    received_at    INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    UNIQUE (namespace, event_id)
) STRICT;
CREATE INDEX external_events_open_idx ON external_events (namespace, topic, correlation_id, received_at, id) WHERE open = 1;
CREATE INDEX external_events_expires_idx ON external_events (expires_at);

-- Sets of capabilities that executions require; immutable.
CREATE TABLE capability_sets (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tokens TEXT NOT NULL UNIQUE
) STRICT;

-- Where claimable executions stand: those of one bucket differ in nothing that decides who may have them.
CREATE TABLE claim_buckets (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace         TEXT NOT NULL,
    lane              TEXT NOT NULL,
    capability_set_id INTEGER NOT NULL,
    admission_key     TEXT NOT NULL,
    state             TEXT NOT NULL CHECK (state = 'open' OR state = 'paused' OR state = 'blocked_by_budget' OR state = 'blocked_by_quota'),
    UNIQUE (namespace, lane, capability_set_id, admission_key)
) STRICT;

CREATE TABLE executions (
    id                    BLOB NOT NULL PRIMARY KEY,
    namespace             TEXT NOT NULL,
    lane                  TEXT NOT NULL,
    kind                  TEXT NOT NULL,
    flow_id               BLOB,
    key                   TEXT,
    priority              INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9000),
    revision              INTEGER NOT NULL,
    lifecycle_phase       TEXT NOT NULL CHECK (lifecycle_phase = 'active' OR lifecycle_phase = 'runnable' OR lifecycle_phase = 'suspended' OR lifecycle_phase = 'terminal'),
    ownership_state       TEXT NOT NULL CHECK (ownership_state = 'leased' OR ownership_state = 'unowned' OR ownership_state = 'lease_expired_reclaimable' OR ownership_state = 'lease_revoked'),
    eligibility_state     TEXT NOT NULL CHECK (eligibility_state = 'not_applicable' OR eligibility_state = 'eligible_now' OR eligibility_state = 'not_eligible_until_time' OR eligibility_state = 'blocked_by_dependencies' OR eligibility_state = 'blocked_by_budget' OR eligibility_state = 'blocked_by_quota' OR eligibility_state = 'blocked_by_route' OR eligibility_state = 'blocked_by_lane_state' OR eligibility_state = 'blocked_by_operator'),
    blocking_reason       TEXT NOT NULL CHECK (blocking_reason = 'none' OR blocking_reason = 'waiting_for_worker' OR blocking_reason = 'waiting_for_retry_backoff' OR blocking_reason = 'waiting_for_resume_delay' OR blocking_reason = 'waiting_for_delay' OR blocking_reason = 'waiting_for_signal' OR blocking_reason = 'waiting_for_approval' OR blocking_reason = 'waiting_for_callback' OR blocking_reason = 'waiting_for_tool_result' OR blocking_reason = 'waiting_for_children' OR blocking_reason = 'waiting_for_budget' OR blocking_reason = 'waiting_for_quota' OR blocking_reason = 'waiting_for_capable_worker' OR blocking_reason = 'waiting_for_locality_match' OR blocking_reason = 'paused_by_operator' OR blocking_reason = 'paused_by_policy' OR blocking_reason = 'paused_by_flow_cancel'),
    terminal_outcome      TEXT NOT NULL CHECK (terminal_outcome = 'none' OR terminal_outcome = 'success' OR terminal_outcome = 'failed' OR terminal_outcome = 'cancelled' OR terminal_outcome = 'expired' OR terminal_outcome = 'skipped'),
    attempt_state         TEXT NOT NULL CHECK (attempt_state = 'none' OR attempt_state = 'running_attempt' OR attempt_state = 'pending_first_attempt' OR attempt_state = 'attempt_interrupted' OR attempt_state = 'pending_retry_attempt' OR attempt_state = 'pending_replay_attempt' OR attempt_state = 'attempt_terminal'),
    public_state          TEXT NOT NULL CHECK (public_state = 'active' OR public_state = 'waiting' OR public_state = 'delayed' OR public_state = 'rate_limited' OR public_state = 'waiting_children' OR public_state = 'suspended' OR public_state = 'completed' OR public_state = 'failed' OR public_state = 'cancelled' OR public_state = 'expired' OR public_state = 'skipped'),
    blocking_detail       TEXT,
    payload               BLOB,
    payload_encoding      TEXT NOT NULL CHECK (payload_encoding IN ('json', 'base64')),
    result                BLOB,
    result_encoding       TEXT CHECK (result_encoding IN ('json', 'base64')),
    policy                TEXT,
    required_capabilities TEXT NOT NULL,
    tags                  TEXT NOT NULL,
    instance_tag          TEXT,
    creator               TEXT NOT NULL,
    created_at            INTEGER NOT NULL,
    started_at            INTEGER,
    completed_at          INTEGER,
    delay_until           INTEGER,
    deadline_at           INTEGER,
    attempt_timeout_at    INTEGER,
    due_at                INTEGER,
    current_attempt_index INTEGER,
    total_attempt_count   INTEGER NOT NULL,
    retry_count           INTEGER NOT NULL,
    replay_count          INTEGER NOT NULL,
    lease_reclaim_count   INTEGER NOT NULL,
    lease_id              BLOB,
    lease_epoch           INTEGER NOT NULL,
    attempt_id            BLOB,
    worker_id             TEXT,
    worker_instance_id    TEXT,
    lease_acquired_at     INTEGER,
    lease_expires_at      INTEGER,
    progress              TEXT,
    failure               TEXT,
    cancellation          TEXT,
    released              TEXT,
    claim_bucket          INTEGER,
    CHECK ((completed_at IS NOT NULL) = (lifecycle_phase = 'terminal')),
    CHECK ((terminal_outcome <> 'none') = (lifecycle_phase = 'terminal')),
    CHECK ((lease_expires_at IS NOT NULL) = (ownership_state = 'leased'))
) STRICT;
CREATE INDEX executions_list_idx ON executions (namespace, created_at, id);
CREATE INDEX executions_claim_idx ON executions (claim_bucket, priority DESC, created_at, id) WHERE claim_bucket IS NOT NULL;
CREATE INDEX executions_due_idx ON executions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX executions_flow_idx ON executions (flow_id, created_at, id) WHERE flow_id IS NOT NULL;
CREATE UNIQUE INDEX executions_key_idx ON executions (flow_id, key) WHERE key IS NOT NULL;

-- Keys under which executions were created, for as long as a repeated create is recognised.
CREATE TABLE execution_keys (
    namespace    TEXT NOT NULL,
    key          TEXT NOT NULL,
    execution_id BLOB NOT NULL,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE INDEX execution_keys_expires_idx ON execution_keys (expires_at);

CREATE TABLE attempts (
    execution_id           BLOB NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    attempt_index          INTEGER NOT NULL,
    attempt_type           TEXT NOT NULL CHECK (attempt_type = 'initial' OR attempt_type = 'retry' OR attempt_type = 'reclaim' OR attempt_type = 'replay'),
    state                  TEXT NOT NULL CHECK (state = 'started' OR state = 'suspended' OR state = 'ended_success' OR state = 'ended_failure' OR state = 'ended_cancelled' OR state = 'interrupted_reclaimed'),
    worker_id              TEXT NOT NULL,
    worker_instance_id     TEXT NOT NULL,
    lease_epoch            INTEGER NOT NULL,
    started_at             INTEGER NOT NULL,
    ended_at               INTEGER,
    failure                TEXT,
    reclaim_reason         TEXT,
    previous_attempt_index INTEGER,
    PRIMARY KEY (execution_id, attempt_index)
) STRICT, WITHOUT ROWID;
