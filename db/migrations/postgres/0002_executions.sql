-- +goose Up

-- Who has reserved an execution, as JSON; only while it may be claimed by nobody else.
ALTER TABLE executions ADD COLUMN claim_grant TEXT;

-- Lists go by age. Lane and kind stand in their index, so that those of one lane are found, and counted, without a look at
-- every row; an index of its own would cost each create more than this costs a list. What ended well is the rule, and found by
-- the same index; other states have theirs.
DROP INDEX executions_list_idx;
CREATE INDEX executions_list_idx ON executions (namespace, created_at, id, lane, kind);
CREATE INDEX executions_state_idx ON executions (namespace, public_state, created_at, id) WHERE terminal_outcome <> 'success';

-- Every lane that an execution was ever created in. A paused one has its claim buckets paused.
CREATE TABLE lanes (
    namespace  TEXT NOT NULL,
    lane       TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('active', 'paused')),
    reason     TEXT,
    actor      TEXT,
    changed_at BIGINT,
    revision   BIGINT NOT NULL,
    PRIMARY KEY (namespace, lane)
);
INSERT INTO lanes (namespace, lane, state, revision) SELECT DISTINCT namespace, lane, 'active', 0 FROM executions;

-- What was lost stands in buckets of its own.
INSERT INTO claim_buckets (namespace, lane, capability_set_id, admission_key, state)
    SELECT DISTINCT b.namespace, b.lane, b.capability_set_id, 'lost', b.state FROM claim_buckets b JOIN executions e ON e.claim_bucket = b.id WHERE e.lifecycle_phase = 'active';
UPDATE executions SET claim_bucket = (SELECT l.id FROM claim_buckets b JOIN claim_buckets l ON l.namespace = b.namespace AND l.lane = b.lane
    AND l.capability_set_id = b.capability_set_id AND l.admission_key = 'lost' WHERE b.id = executions.claim_bucket)
    WHERE claim_bucket IS NOT NULL AND lifecycle_phase = 'active';

-- Who gave an execution back is known by the epoch of its lease, which an operator may move on.
UPDATE executions SET released = (released::jsonb || jsonb_build_object('lease_epoch', lease_epoch))::text WHERE released IS NOT NULL;

-- Workers that say they live, until their heartbeat lapses.
CREATE TABLE workers (
    namespace          TEXT NOT NULL,
    worker_instance_id TEXT NOT NULL,
    worker_id          TEXT NOT NULL,
    lanes              TEXT NOT NULL,
    capabilities       TEXT NOT NULL,
    liveness_ttl_ms    BIGINT NOT NULL,
    registered_at      BIGINT NOT NULL,
    last_heartbeat_at  BIGINT NOT NULL,
    expires_at         BIGINT NOT NULL,
    draining_since     BIGINT,
    PRIMARY KEY (namespace, worker_instance_id)
);
CREATE INDEX workers_expires_idx ON workers (expires_at);

-- Operator actions on many executions, and how far they are: everything up to (cursor_at, cursor_id) is done.
CREATE TABLE bulk_jobs (
    id           UUID NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    action       TEXT NOT NULL CHECK (action IN ('cancel', 'replay', 'priority')),
    filter       TEXT NOT NULL,
    priority     INTEGER,
    reason       TEXT,
    state        TEXT NOT NULL CHECK (state IN ('running', 'stopped', 'finished')),
    total        BIGINT NOT NULL,
    done         BIGINT NOT NULL,
    failed_count BIGINT NOT NULL,
    failed       TEXT NOT NULL,
    actor        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    cursor_at    BIGINT NOT NULL,
    cursor_id    UUID NOT NULL
);
CREATE INDEX bulk_jobs_running_idx ON bulk_jobs (created_at) WHERE state = 'running';
CREATE INDEX bulk_jobs_ended_idx ON bulk_jobs (ended_at) WHERE ended_at IS NOT NULL;
