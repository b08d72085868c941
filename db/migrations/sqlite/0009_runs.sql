-- +goose Up

-- A wait belongs to a flow, to a suspended execution, or to a run: then it is the gate of one of its steps, or its own.
CREATE TABLE new_waits (
    id           BLOB NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    flow_id      BLOB,
    execution_id BLOB,
    run_id       BLOB,
    step_id      BLOB,
    condition    TEXT NOT NULL,
    received     TEXT NOT NULL,
    deadline_at  INTEGER,
    on_timeout   TEXT NOT NULL CHECK (on_timeout = 'resume' OR on_timeout = 'fail' OR on_timeout = 'cancel' OR on_timeout = 'expire' OR on_timeout = 'escalate'),
    manual       INTEGER NOT NULL CHECK (manual IN (0, 1)),
    title        TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    since        INTEGER NOT NULL,
    due_at       INTEGER,
    CHECK ((flow_id IS NOT NULL) + (execution_id IS NOT NULL) + (run_id IS NOT NULL) = 1),
    CHECK (step_id IS NULL OR run_id IS NOT NULL)
) STRICT;
CREATE TABLE new_wait_keys (
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    wait_id        BLOB NOT NULL REFERENCES new_waits (id) ON DELETE CASCADE,
    PRIMARY KEY (namespace, topic, correlation_id, wait_id)
) STRICT;
INSERT INTO new_waits (id, namespace, flow_id, execution_id, condition, received, deadline_at, on_timeout, manual, title, requested_by, since, due_at)
    SELECT id, namespace, flow_id, execution_id, condition, received, deadline_at, on_timeout, manual, title, requested_by, since, due_at FROM waits;
INSERT INTO new_wait_keys SELECT namespace, topic, correlation_id, wait_id FROM wait_keys;
DROP TABLE wait_keys;
DROP TABLE waits;
ALTER TABLE new_waits RENAME TO waits;
ALTER TABLE new_wait_keys RENAME TO wait_keys;
CREATE INDEX waits_due_idx ON waits (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX waits_inbox_idx ON waits (namespace, since, id) WHERE manual = 1;
CREATE INDEX wait_keys_wait_idx ON wait_keys (wait_id);

-- Workflow runs. lease_owner is a digest of the token of whoever drives it; waiting is what a waiting run is blocked on. draining says
-- that children of it, which nobody waits for any more, are still to be cancelled.
CREATE TABLE runs (
    id                     BLOB NOT NULL PRIMARY KEY,
    namespace              TEXT NOT NULL,
    workflow_name          TEXT NOT NULL,
    workflow_title         TEXT,
    trigger                TEXT NOT NULL,
    dry_run                INTEGER NOT NULL CHECK (dry_run IN (0, 1)),
    inputs                 TEXT NOT NULL,
    definition             TEXT,
    parent_run_id          TEXT,
    iteration              INTEGER NOT NULL,
    creator                TEXT NOT NULL,
    created_at             INTEGER NOT NULL,
    parent_workflow_run_id BLOB,
    parent_step_id         BLOB,
    parent_item_id         BLOB,
    flow_id                BLOB,
    status                 TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'cancelling' OR status = 'needs_resume' OR status = 'completed' OR status = 'failed' OR status = 'cancelled'),
    waiting                TEXT,
    result_summary         TEXT,
    error                  TEXT,
    cancel_reason          TEXT,
    cancellation           TEXT,
    dismissed              INTEGER NOT NULL CHECK (dismissed IN (0, 1)),
    generation             INTEGER NOT NULL,
    lease_owner            BLOB,
    lease_until            INTEGER,
    resume_count           INTEGER NOT NULL,
    revision               INTEGER NOT NULL,
    updated_at             INTEGER NOT NULL,
    started_at             INTEGER,
    ended_at               INTEGER,
    active_since           INTEGER,
    total_duration_ms      INTEGER NOT NULL,
    draining               INTEGER NOT NULL CHECK (draining IN (0, 1)),
    due_at                 INTEGER,
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'cancelled')),
    CHECK ((waiting IS NOT NULL) = (status = 'waiting')),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK (lease_owner IS NULL OR ended_at IS NULL)
) STRICT;
CREATE INDEX runs_list_idx ON runs (namespace, created_at, id);
CREATE INDEX runs_status_idx ON runs (namespace, status, created_at, id);
CREATE INDEX runs_open_idx ON runs (namespace, created_at, id) WHERE ended_at IS NULL;
CREATE INDEX runs_workflow_idx ON runs (namespace, workflow_name, created_at, id);
CREATE INDEX runs_cause_idx ON runs (namespace, parent_run_id, created_at, id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_purge_idx ON runs (namespace, id) WHERE ended_at IS NOT NULL AND parent_workflow_run_id IS NULL;
CREATE INDEX runs_parent_idx ON runs (parent_workflow_run_id, created_at, id) WHERE parent_workflow_run_id IS NOT NULL;
CREATE INDEX runs_step_idx ON runs (parent_step_id) WHERE parent_step_id IS NOT NULL;
CREATE INDEX runs_flow_idx ON runs (flow_id, created_at, id) WHERE flow_id IS NOT NULL;
CREATE INDEX runs_due_idx ON runs (due_at) WHERE due_at IS NOT NULL;

-- One row for each step, whatever it took. child_linked says that child_run_id is a run of ours, whose end ends the step. gate is its gate as JSON; what is looked for of it stands beside.
CREATE TABLE run_steps (
    id                 BLOB NOT NULL PRIMARY KEY,
    run_id             BLOB NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    namespace          TEXT NOT NULL,
    path               TEXT NOT NULL,
    step_name          TEXT NOT NULL,
    role               TEXT NOT NULL CHECK (role = 'agent' OR role = 'script' OR role = 'gate' OR role = 'foreach' OR role = 'workflow' OR role = 'wait'),
    position           INTEGER NOT NULL,
    iteration          INTEGER NOT NULL,
    can_commit         INTEGER NOT NULL CHECK (can_commit IN (0, 1)),
    parallel_group_id  TEXT,
    created_at         INTEGER NOT NULL,
    status             TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'timed_out' OR status = 'cancelled'),
    retry_count        INTEGER NOT NULL,
    child_run_id       TEXT,
    child_linked       INTEGER NOT NULL CHECK (child_linked IN (0, 1)),
    child_execution_id BLOB,
    started_at         INTEGER,
    attempt_started_at INTEGER,
    ended_at           INTEGER,
    result_text        TEXT,
    context_out        TEXT,
    markers_out        TEXT,
    structured_output  TEXT,
    step_error         TEXT,
    gate               TEXT,
    gate_type          TEXT,
    gate_outcome       TEXT,
    gate_opened_at     INTEGER,
    gate_resolved_at   INTEGER,
    items_pending      INTEGER NOT NULL CHECK (items_pending >= 0),
    items_running      INTEGER NOT NULL CHECK (items_running >= 0),
    items_completed    INTEGER NOT NULL CHECK (items_completed >= 0),
    items_failed       INTEGER NOT NULL CHECK (items_failed >= 0),
    items_skipped      INTEGER NOT NULL CHECK (items_skipped >= 0),
    items_cancelled    INTEGER NOT NULL CHECK (items_cancelled >= 0),
    UNIQUE (run_id, path, iteration),
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'timed_out' OR status = 'cancelled')),
    CHECK ((gate IS NOT NULL) = (role = 'gate'))
) STRICT;
CREATE INDEX run_steps_position_idx ON run_steps (run_id, position, id);
CREATE UNIQUE INDEX run_steps_execution_idx ON run_steps (child_execution_id) WHERE child_execution_id IS NOT NULL;
CREATE INDEX run_steps_gate_idx ON run_steps (namespace, gate_opened_at, id) WHERE gate_opened_at IS NOT NULL;
CREATE INDEX run_steps_open_gate_idx ON run_steps (namespace, gate_opened_at, id) WHERE gate_outcome = 'pending' AND gate_opened_at IS NOT NULL;

-- Attempts at steps that were followed by another one.
CREATE TABLE run_step_attempts (
    step_id            BLOB NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    attempt_index      INTEGER NOT NULL,
    status             TEXT NOT NULL,
    child_run_id       TEXT,
    child_execution_id BLOB,
    started_at         INTEGER,
    ended_at           INTEGER NOT NULL,
    step_error         TEXT,
    PRIMARY KEY (step_id, attempt_index)
) STRICT, WITHOUT ROWID;

-- What people said to gates.
CREATE TABLE gate_votes (
    id         BLOB NOT NULL PRIMARY KEY,
    step_id    BLOB NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    attempt    INTEGER NOT NULL,
    voter      TEXT NOT NULL,
    actor      TEXT NOT NULL,
    decision   TEXT NOT NULL CHECK (decision = 'approved' OR decision = 'rejected' OR decision = 'feedback'),
    feedback   TEXT,
    selections TEXT,
    at         INTEGER NOT NULL
) STRICT;
CREATE INDEX gate_votes_step_idx ON gate_votes (step_id, id);

-- What a step fans out over.
CREATE TABLE run_items (
    id                 BLOB NOT NULL PRIMARY KEY,
    step_id            BLOB NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    run_id             BLOB NOT NULL,
    item_type          TEXT NOT NULL,
    item_id            TEXT NOT NULL,
    item_ref           TEXT NOT NULL,
    context            TEXT NOT NULL,
    created_at         INTEGER NOT NULL,
    status             TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'cancelled'),
    child_run_id       TEXT,
    child_linked       INTEGER NOT NULL CHECK (child_linked IN (0, 1)),
    child_execution_id BLOB,
    dispatched_at      INTEGER,
    completed_at       INTEGER,
    UNIQUE (step_id, item_type, item_id),
    CHECK ((completed_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'cancelled'))
) STRICT;
CREATE INDEX run_items_step_idx ON run_items (step_id, id);
CREATE INDEX run_items_status_idx ON run_items (step_id, status, id);
CREATE INDEX run_items_open_idx ON run_items (run_id) WHERE completed_at IS NULL;
CREATE UNIQUE INDEX run_items_execution_idx ON run_items (child_execution_id) WHERE child_execution_id IS NOT NULL;

-- The run that an execution works for, and whether a flow waits for its end, or did.
ALTER TABLE executions ADD COLUMN run_id BLOB;
ALTER TABLE executions ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0 CHECK (awaited IN (0, 1));
CREATE INDEX executions_run_idx ON executions (run_id, created_at, id) WHERE run_id IS NOT NULL;
CREATE INDEX flow_steps_run_idx ON flow_steps (workflow_run_id) WHERE workflow_run_id IS NOT NULL;
