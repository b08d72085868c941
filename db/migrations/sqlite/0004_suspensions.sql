-- +goose Up

-- A wait belongs to a flow or to a suspended execution, and a person may be asked by either.
CREATE TABLE new_waits (
    id           BLOB NOT NULL PRIMARY KEY,
    namespace    TEXT NOT NULL,
    flow_id      BLOB,
    execution_id BLOB,
    condition    TEXT NOT NULL,
    received     TEXT NOT NULL,
    deadline_at  INTEGER,
    on_timeout   TEXT NOT NULL CHECK (on_timeout = 'resume' OR on_timeout = 'fail' OR on_timeout = 'cancel' OR on_timeout = 'expire' OR on_timeout = 'escalate'),
    manual       INTEGER NOT NULL CHECK (manual IN (0, 1)),
    title        TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    since        INTEGER NOT NULL,
    due_at       INTEGER,
    CHECK ((flow_id IS NULL) <> (execution_id IS NULL))
) STRICT;
CREATE TABLE new_wait_keys (
    namespace      TEXT NOT NULL,
    topic          TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    wait_id        BLOB NOT NULL REFERENCES new_waits (id) ON DELETE CASCADE,
    PRIMARY KEY (namespace, topic, correlation_id, wait_id)
) STRICT;
INSERT INTO new_waits (id, namespace, flow_id, condition, received, deadline_at, on_timeout, manual, title, requested_by, since, due_at)
    SELECT id, namespace, flow_id, condition, received, deadline_at, on_timeout, manual, title, requested_by, since, due_at FROM waits;
INSERT INTO new_wait_keys SELECT namespace, topic, correlation_id, wait_id FROM wait_keys;
DROP TABLE wait_keys;
DROP TABLE waits;
ALTER TABLE new_waits RENAME TO waits;
ALTER TABLE new_wait_keys RENAME TO wait_keys;
CREATE INDEX waits_due_idx ON waits (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX waits_inbox_idx ON waits (namespace, since, id) WHERE manual = 1;
CREATE INDEX wait_keys_wait_idx ON wait_keys (wait_id);

-- The suspension of an execution, as JSON: the present one, or the last.
ALTER TABLE executions ADD COLUMN suspension TEXT;

-- Where signals reach an execution. The token of a waitpoint is made from its id with the secret kid, and kept nowhere.
CREATE TABLE waitpoints (
    id            BLOB NOT NULL PRIMARY KEY,
    execution_id  BLOB NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    attempt_index INTEGER NOT NULL,
    suspension_id BLOB,
    waitpoint_key TEXT NOT NULL,
    kid           TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state = 'pending' OR state = 'active' OR state = 'closed'),
    approval      TEXT,
    created_at    INTEGER NOT NULL,
    activated_at  INTEGER,
    expires_at    INTEGER,
    closed_at     INTEGER,
    close_reason  TEXT,
    signal_count  INTEGER NOT NULL,
    CHECK ((closed_at IS NOT NULL) = (state = 'closed'))
) STRICT;
CREATE INDEX waitpoints_execution_idx ON waitpoints (execution_id, id);
CREATE INDEX waitpoints_expires_idx ON waitpoints (expires_at) WHERE state = 'pending';

-- What came from outside: external events, matched by topic and correlation id, and signals, matched by their waitpoint. open says
-- that it is kept for a wait to come. id is our own, in the order of arrival.
CREATE TABLE signals (
    id              BLOB NOT NULL PRIMARY KEY,
    namespace       TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    topic           TEXT,
    correlation_id  TEXT,
    flow_id         BLOB,
    execution_id    BLOB REFERENCES executions (id) ON DELETE CASCADE,
    waitpoint_id    BLOB,
    waitpoint_key   TEXT,
    suspension_id   BLOB,
    signal_name     TEXT,
    signal_category TEXT,
    source_type     TEXT,
    source_identity TEXT,
    idempotency_key TEXT,
    recognised_until INTEGER,
    effect          TEXT,
    counts          INTEGER CHECK (counts IN (0, 1)),
    payload         TEXT,
    matched         TEXT NOT NULL,
    open            INTEGER NOT NULL CHECK (open IN (0, 1)),
    received_at     INTEGER NOT NULL,
    expires_at      INTEGER,
    CHECK ((topic IS NULL) <> (waitpoint_id IS NULL))
) STRICT;
INSERT INTO signals (id, namespace, event_id, topic, correlation_id, flow_id, payload, matched, open, received_at, expires_at)
    SELECT id, namespace, event_id, topic, correlation_id, flow_id, payload, matched, open, received_at, expires_at FROM external_events;
DROP TABLE external_events;
CREATE UNIQUE INDEX signals_event_idx ON signals (namespace, event_id) WHERE topic IS NOT NULL;
CREATE INDEX signals_open_idx ON signals (namespace, topic, correlation_id, received_at, id) WHERE open = 1 AND topic IS NOT NULL;
CREATE INDEX signals_expires_idx ON signals (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX signals_signal_idx ON signals (execution_id, event_id);
CREATE UNIQUE INDEX signals_key_idx ON signals (waitpoint_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX signals_suspension_idx ON signals (suspension_id, id) WHERE suspension_id IS NOT NULL;
CREATE INDEX signals_kept_idx ON signals (waitpoint_id, id) WHERE open = 1 AND waitpoint_id IS NOT NULL;

-- Keys under which executions were suspended, with what was answered.
CREATE TABLE suspend_keys (
    execution_id BLOB NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    key          TEXT NOT NULL,
    answer       TEXT NOT NULL,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (execution_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX suspend_keys_expires_idx ON suspend_keys (expires_at);
