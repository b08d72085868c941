-- +goose Up

-- A wait belongs to a flow, to a suspended execution, or to a run: then it is the gate of one of its steps, or its own.
ALTER TABLE waits ADD COLUMN run_id UUID;
ALTER TABLE waits ADD COLUMN step_id UUID;
ALTER TABLE waits DROP CONSTRAINT waits_check;
ALTER TABLE waits ADD CONSTRAINT waits_check CHECK (num_nonnulls(flow_id, execution_id, run_id) = 1);
ALTER TABLE waits ADD CONSTRAINT waits_step_check CHECK (step_id IS NULL OR run_id IS NOT NULL);

-- Workflow runs. lease_owner is a digest of the token of whoever drives it; waiting is what a waiting run is blocked on. draining says
-- that children of it, which nobody waits for any more, are still to be cancelled.
CREATE TABLE runs (
    id                     UUID NOT NULL PRIMARY KEY,
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
    created_at             BIGINT NOT NULL,
    parent_workflow_run_id UUID,
    parent_step_id         UUID,
    parent_item_id         UUID,
    flow_id                UUID,
    status                 TEXT NOT NULL CHECK (status IN ('pending', 'running', 'waiting', 'cancelling', 'needs_resume', 'completed', 'failed', 'cancelled')),
    waiting                TEXT,
    result_summary         TEXT,
    error                  TEXT,
    cancel_reason          TEXT,
    cancellation           TEXT,
    dismissed              INTEGER NOT NULL CHECK (dismissed IN (0, 1)),
    generation             BIGINT NOT NULL,
    lease_owner            BYTEA,
    lease_until            BIGINT,
    resume_count           INTEGER NOT NULL,
    revision               BIGINT NOT NULL,
    updated_at             BIGINT NOT NULL,
    started_at             BIGINT,
    ended_at               BIGINT,
    active_since           BIGINT,
    total_duration_ms      BIGINT NOT NULL,
    draining               INTEGER NOT NULL CHECK (draining IN (0, 1)),
    due_at                 BIGINT,
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'cancelled')),
    CHECK ((waiting IS NOT NULL) = (status = 'waiting')),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK (lease_owner IS NULL OR ended_at IS NULL)
);
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
    id                 UUID NOT NULL PRIMARY KEY,
    run_id             UUID NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    namespace          TEXT NOT NULL,
    path               TEXT NOT NULL,
    step_name          TEXT NOT NULL,
    role               TEXT NOT NULL CHECK (role IN ('agent', 'script', 'gate', 'foreach', 'workflow', 'wait')),
    position           BIGINT NOT NULL,
    iteration          INTEGER NOT NULL,
    can_commit         INTEGER NOT NULL CHECK (can_commit IN (0, 1)),
    parallel_group_id  TEXT,
    created_at         BIGINT NOT NULL,
    status             TEXT NOT NULL CHECK (status IN ('pending', 'running', 'waiting', 'completed', 'failed', 'skipped', 'timed_out', 'cancelled')),
    retry_count        INTEGER NOT NULL,
    child_run_id       TEXT,
    child_linked       INTEGER NOT NULL CHECK (child_linked IN (0, 1)),
    child_execution_id UUID,
    started_at         BIGINT,
    attempt_started_at BIGINT,
    ended_at           BIGINT,
    result_text        TEXT,
    context_out        TEXT,
    markers_out        TEXT,
    structured_output  TEXT,
    step_error         TEXT,
    gate               TEXT,
    gate_type          TEXT,
    gate_outcome       TEXT,
    gate_opened_at     BIGINT,
    gate_resolved_at   BIGINT,
    items_pending      INTEGER NOT NULL CHECK (items_pending >= 0),
    items_running      INTEGER NOT NULL CHECK (items_running >= 0),
    items_completed    INTEGER NOT NULL CHECK (items_completed >= 0),
    items_failed       INTEGER NOT NULL CHECK (items_failed >= 0),
    items_skipped      INTEGER NOT NULL CHECK (items_skipped >= 0),
    items_cancelled    INTEGER NOT NULL CHECK (items_cancelled >= 0),
    UNIQUE (run_id, path, iteration),
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'timed_out' OR status = 'cancelled')),
    CHECK ((gate IS NOT NULL) = (role = 'gate'))
);
CREATE INDEX run_steps_position_idx ON run_steps (run_id, position, id);
CREATE UNIQUE INDEX run_steps_execution_idx ON run_steps (child_execution_id) WHERE child_execution_id IS NOT NULL;
CREATE INDEX run_steps_gate_idx ON run_steps (namespace, gate_opened_at, id) WHERE gate_opened_at IS NOT NULL;
CREATE INDEX run_steps_open_gate_idx ON run_steps (namespace, gate_opened_at, id) WHERE gate_outcome = 'pending' AND gate_opened_at IS NOT NULL;

-- Attempts at steps that were followed by another one.
CREATE TABLE run_step_attempts (
    step_id            UUID NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    attempt_index      INTEGER NOT NULL,
    status             TEXT NOT NULL,
    child_run_id       TEXT,
    child_execution_id UUID,
    started_at         BIGINT,
    ended_at           BIGINT NOT NULL,
    step_error         TEXT,
    PRIMARY KEY (step_id, attempt_index)
);

-- What people said to gates.
CREATE TABLE gate_votes (
    id         UUID NOT NULL PRIMARY KEY,
    step_id    UUID NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    attempt    INTEGER NOT NULL,
    voter      TEXT NOT NULL,
    actor      TEXT NOT NULL,
    decision   TEXT NOT NULL CHECK (decision IN ('approved', 'rejected', 'feedback')),
    feedback   TEXT,
    selections TEXT,
    at         BIGINT NOT NULL
);
CREATE INDEX gate_votes_step_idx ON gate_votes (step_id, id);

-- What a step fans out over.
CREATE TABLE run_items (
    id                 UUID NOT NULL PRIMARY KEY,
    step_id            UUID NOT NULL REFERENCES run_steps (id) ON DELETE CASCADE,
    run_id             UUID NOT NULL,
    item_type          TEXT NOT NULL,
    item_id            TEXT NOT NULL,
    item_ref           TEXT NOT NULL,
    context            TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    status             TEXT NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'failed', 'skipped', 'cancelled')),
    child_run_id       TEXT,
    child_linked       INTEGER NOT NULL CHECK (child_linked IN (0, 1)),
    child_execution_id UUID,
    dispatched_at      BIGINT,
    completed_at       BIGINT,
    UNIQUE (step_id, item_type, item_id),
    CHECK ((completed_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'cancelled'))
);
CREATE INDEX run_items_step_idx ON run_items (step_id, id);
CREATE INDEX run_items_status_idx ON run_items (step_id, status, id);
CREATE INDEX run_items_open_idx ON run_items (run_id) WHERE completed_at IS NULL;
CREATE UNIQUE INDEX run_items_execution_idx ON run_items (child_execution_id) WHERE child_execution_id IS NOT NULL;

-- The run that an execution works for, and whether a flow waits for its end, or did.
ALTER TABLE executions ADD COLUMN run_id UUID;
ALTER TABLE executions ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0 CHECK (awaited IN (0, 1));
CREATE INDEX executions_run_idx ON executions (run_id, created_at, id) WHERE run_id IS NOT NULL;
CREATE INDEX flow_steps_run_idx ON flow_steps (workflow_run_id) WHERE workflow_run_id IS NOT NULL;
