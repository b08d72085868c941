-- +goose Up

-- The event log. ids are consecutive and in the order of commits. last and trimmed_through bound what a reader may ask
-- for; generation changes when ids may have been lost; then the ids after gap_from and up to gap_to are
-- left out, and a reader who has seen one of them is told.
CREATE TABLE event_log (
    one             INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    last            BIGINT NOT NULL,
    trimmed_through BIGINT NOT NULL,
    gap_from        BIGINT NOT NULL DEFAULT 0,
    gap_to          BIGINT NOT NULL DEFAULT 0,
    generation      UUID NOT NULL,
    timeline        INTEGER
);
INSERT INTO event_log (last, trimmed_through, generation) VALUES (0, 0, gen_random_uuid());

CREATE TABLE events (
    id             BIGINT PRIMARY KEY,
    local_id       BIGINT NOT NULL,
    at             BIGINT NOT NULL,
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    type           TEXT NOT NULL,
    flow_id        UUID,
    run_id         UUID,
    execution_id   UUID,
    instance_tag   TEXT,
    revision       BIGINT,
    actor          TEXT NOT NULL,
    cause          BIGINT,
    trace_id       TEXT,
    data           TEXT NOT NULL,
    schema_version INTEGER NOT NULL
);
CREATE INDEX events_flow_idx ON events (flow_id, id) WHERE flow_id IS NOT NULL;
CREATE INDEX events_run_idx ON events (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX events_execution_idx ON events (execution_id, id) WHERE execution_id IS NOT NULL;

-- Where transactions write their events, under ids that agree with the locks they hold. The sequencer moves them to events.
CREATE SEQUENCE events_local_id;
CREATE TABLE events_inbox (
    local_id       BIGINT PRIMARY KEY,
    at             BIGINT NOT NULL,
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    type           TEXT NOT NULL,
    flow_id        UUID,
    run_id         UUID,
    execution_id   UUID,
    instance_tag   TEXT,
    revision       BIGINT,
    actor          TEXT NOT NULL,
    cause          BIGINT,
    trace_id       TEXT,
    data           TEXT NOT NULL,
    schema_version INTEGER NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Answers kept under their Idempotency-Key. status is 0 while the first request runs.
CREATE TABLE idempotency_keys (
    namespace  TEXT NOT NULL,
    token      TEXT NOT NULL,
    key        TEXT NOT NULL,
    hash       BYTEA NOT NULL,
    status     INTEGER NOT NULL,
    location   TEXT,
    etag       TEXT,
    body       BYTEA,
    ref        TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, token, key)
);
CREATE INDEX idempotency_keys_expires_idx ON idempotency_keys (expires_at);

-- API tokens. The secret is not kept, only its SHA-256; prefix finds the row.
CREATE TABLE tokens (
    id           UUID NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    namespace    TEXT NOT NULL,
    prefix       TEXT NOT NULL UNIQUE,
    hash         BYTEA NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked_at   BIGINT
);

CREATE TABLE flows (
    id                UUID NOT NULL PRIMARY KEY,
    namespace         TEXT NOT NULL,
    kind              TEXT NOT NULL,
    controller_id     TEXT NOT NULL,
    goal              TEXT NOT NULL,
    owner_session_key TEXT NOT NULL,
    requester_origin  TEXT NOT NULL,
    current_step      TEXT NOT NULL,
    state             TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('created', 'running', 'waiting', 'finished', 'failed', 'cancelled')),
    cancel_requested  INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
    wait_id           UUID,
    revision          BIGINT NOT NULL,
    graph_revision    BIGINT NOT NULL,
    node_count        BIGINT NOT NULL,
    edge_count        BIGINT NOT NULL,
    auto_finish       INTEGER NOT NULL CHECK (auto_finish IN (0, 1)),
    cancellation      TEXT,
    failure           TEXT,
    tags              TEXT NOT NULL,
    fields_changed    TEXT NOT NULL,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    ended_at          BIGINT,
    CHECK ((wait_id IS NOT NULL) = (status = 'waiting')),
    CHECK ((ended_at IS NOT NULL) = (status IN ('finished', 'failed', 'cancelled')))
);
CREATE INDEX flows_list_idx ON flows (namespace, created_at, id);
CREATE INDEX flows_owner_idx ON flows (namespace, owner_session_key, created_at, id);
CREATE INDEX flows_status_idx ON flows (namespace, status, created_at, id);
CREATE INDEX flows_ended_idx ON flows (status, updated_at) WHERE ended_at IS NOT NULL;

CREATE TABLE flow_steps (
    id                UUID NOT NULL PRIMARY KEY,
    flow_id           UUID NOT NULL REFERENCES flows (id) ON DELETE CASCADE,
    run_id            TEXT NOT NULL,
    position          BIGINT NOT NULL,
    runtime           TEXT NOT NULL CHECK (runtime IN ('managed', 'mirrored')),
    child_session_key TEXT,
    task              TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    result            TEXT,
    execution_id      UUID,
    workflow_run_id   UUID,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    UNIQUE (flow_id, run_id)
);
CREATE INDEX flow_steps_position_idx ON flow_steps (flow_id, position, id);
CREATE INDEX flow_steps_execution_idx ON flow_steps (execution_id) WHERE execution_id IS NOT NULL;

-- Open waits, whatever they belong to. A wait that has ended has no row. received are the events that have met a part of
-- the condition.
CREATE TABLE waits (
    id           UUID NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    flow_id      UUID NOT NULL,
    condition    TEXT NOT NULL,
    received     TEXT NOT NULL,
    deadline_at  BIGINT,
    on_timeout   TEXT NOT NULL CHECK (on_timeout IN ('resume', 'fail', 'cancel')),
    manual       INTEGER NOT NULL CHECK (manual IN (0, 1)),
    title        TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    since        BIGINT NOT NULL,
    due_at       BIGINT
);
CREATE INDEX waits_due_idx ON waits (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX waits_inbox_idx ON waits (namespace, since, id) WHERE manual = 1;

-- What open waits listen to.
CREATE TABLE wait_keys (
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    wait_id        UUID NOT NULL REFERENCES waits (id) ON DELETE CASCADE,
    PRIMARY KEY (namespace, topic, correlation_id, wait_id)
);
CREATE INDEX wait_keys_wait_idx ON wait_keys (wait_id);

-- Rows to lock: whoever opens a wait for an event, or delivers one, holds the row of its topic and correlation id, so that
-- neither misses the other.
CREATE TABLE wait_stripes (id INTEGER PRIMARY KEY);
INSERT INTO wait_stripes (id) WITH RECURSIVE n (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < 63) SELECT id FROM n;

-- External events: what they woke, or that they are kept for a wait to come (open). id is our own, in the order of arrival.
CREATE TABLE external_events (
    id             UUID NOT NULL PRIMARY KEY,
    namespace      TEXT NOT NULL,
    event_id       TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    flow_id        UUID,
    payload        TEXT,
    matched        TEXT NOT NULL,
    open           INTEGER NOT NULL CHECK (open IN (0, 1)),
    received_at    BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    UNIQUE (namespace, event_id)
);
CREATE INDEX external_events_open_idx ON external_events (namespace, topic, correlation_id, received_at, id) WHERE open = 1;
CREATE INDEX external_events_expires_idx ON external_events (expires_at);

-- Sets of capabilities that executions require; immutable.
CREATE TABLE capability_sets (
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tokens TEXT NOT NULL UNIQUE
);

-- Where claimable executions stand: those of one bucket differ in nothing that decides who may have them.
CREATE TABLE claim_buckets (
    id                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace         TEXT NOT NULL,
    lane              TEXT NOT NULL,
    capability_set_id BIGINT NOT NULL,
    admission_key     TEXT NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('open', 'paused', 'blocked_by_budget', 'blocked_by_quota')),
    UNIQUE (namespace, lane, capability_set_id, admission_key)
);

CREATE TABLE executions (
    id                    UUID NOT NULL PRIMARY KEY,
    namespace             TEXT NOT NULL,
    lane                  TEXT NOT NULL,
    kind                  TEXT NOT NULL,
    flow_id               UUID,
    key                   TEXT,
    priority              INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9000),
    revision              BIGINT NOT NULL,
    lifecycle_phase       TEXT NOT NULL CHECK (lifecycle_phase IN ('runnable', 'active', 'suspended', 'terminal')),
    ownership_state       TEXT NOT NULL CHECK (ownership_state IN ('unowned', 'leased', 'lease_expired_reclaimable', 'lease_revoked')),
    eligibility_state     TEXT NOT NULL CHECK (eligibility_state IN ('eligible_now', 'not_eligible_until_time', 'blocked_by_dependencies', 'blocked_by_budget', 'blocked_by_quota', 'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator', 'not_applicable')),
    blocking_reason       TEXT NOT NULL CHECK (blocking_reason IN ('none', 'waiting_for_worker', 'waiting_for_retry_backoff', 'waiting_for_resume_delay', 'waiting_for_delay', 'waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback', 'waiting_for_tool_result', 'waiting_for_children', 'waiting_for_budget', 'waiting_for_quota', 'waiting_for_capable_worker', 'waiting_for_locality_match', 'paused_by_operator', 'paused_by_policy', 'paused_by_flow_cancel')),
    terminal_outcome      TEXT NOT NULL CHECK (terminal_outcome IN ('none', 'success', 'failed', 'cancelled', 'expired', 'skipped')),
    attempt_state         TEXT NOT NULL CHECK (attempt_state IN ('none', 'pending_first_attempt', 'running_attempt', 'attempt_interrupted', 'pending_retry_attempt', 'pending_replay_attempt', 'attempt_terminal')),
    public_state          TEXT NOT NULL CHECK (public_state IN ('waiting', 'delayed', 'rate_limited', 'waiting_children', 'active', 'suspended', 'completed', 'failed', 'cancelled', 'expired', 'skipped')),
    blocking_detail       TEXT,
    payload               BYTEA,
    payload_encoding      TEXT NOT NULL CHECK (payload_encoding IN ('json', 'base64')),
    result                BYTEA,
    result_encoding       TEXT CHECK (result_encoding IN ('json', 'base64')),
    policy                TEXT,
    required_capabilities TEXT NOT NULL,
    tags                  TEXT NOT NULL,
    instance_tag          TEXT,
    creator               TEXT NOT NULL,
    created_at            BIGINT NOT NULL,
    started_at            BIGINT,
    completed_at          BIGINT,
    delay_until           BIGINT,
    deadline_at           BIGINT,
    attempt_timeout_at    BIGINT,
    due_at                BIGINT,
    current_attempt_index INTEGER,
    total_attempt_count   INTEGER NOT NULL,
    retry_count           INTEGER NOT NULL,
    replay_count          INTEGER NOT NULL,
    lease_reclaim_count   INTEGER NOT NULL,
    lease_id              UUID,
    lease_epoch           BIGINT NOT NULL,
    attempt_id            UUID,
    worker_id             TEXT,
    worker_instance_id    TEXT,
    lease_acquired_at     BIGINT,
    lease_expires_at      BIGINT,
    progress              TEXT,
    failure               TEXT,
    cancellation          TEXT,
    released              TEXT,
    claim_bucket          BIGINT,
    CHECK ((completed_at IS NOT NULL) = (lifecycle_phase = 'terminal')),
    CHECK ((terminal_outcome <> 'none') = (lifecycle_phase = 'terminal')),
    CHECK ((lease_expires_at IS NOT NULL) = (ownership_state = 'leased'))
);
CREATE INDEX executions_list_idx ON executions (namespace, created_at, id);
CREATE INDEX executions_claim_idx ON executions (claim_bucket, priority DESC, created_at, id) WHERE claim_bucket IS NOT NULL;
CREATE INDEX executions_due_idx ON executions (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX executions_flow_idx ON executions (flow_id, created_at, id) WHERE flow_id IS NOT NULL;
CREATE UNIQUE INDEX executions_key_idx ON executions (flow_id, key) WHERE key IS NOT NULL;

-- Keys under which executions were created, for as long as a repeated create is recognised.
CREATE TABLE execution_keys (
    namespace    TEXT NOT NULL,
    key          TEXT NOT NULL,
    execution_id UUID NOT NULL,
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX execution_keys_expires_idx ON execution_keys (expires_at);

CREATE TABLE attempts (
    execution_id           UUID NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    attempt_index          INTEGER NOT NULL,
    attempt_type           TEXT NOT NULL CHECK (attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    state                  TEXT NOT NULL CHECK (state IN ('started', 'suspended', 'ended_success', 'ended_failure', 'ended_cancelled', 'interrupted_reclaimed')),
    worker_id              TEXT NOT NULL,
    worker_instance_id     TEXT NOT NULL,
    lease_epoch            BIGINT NOT NULL,
    started_at             BIGINT NOT NULL,
    ended_at               BIGINT,
    failure                TEXT,
    reclaim_reason         TEXT,
    previous_attempt_index INTEGER,
    PRIMARY KEY (execution_id, attempt_index)
);
