-- +goose Up

-- A wait belongs to a flow or to a suspended execution, and a person may be asked by either.
ALTER TABLE waits ALTER COLUMN flow_id DROP NOT NULL;
ALTER TABLE waits ADD COLUMN execution_id UUID;
ALTER TABLE waits ADD CHECK ((flow_id IS NULL) <> (execution_id IS NULL));
ALTER TABLE waits DROP CONSTRAINT waits_on_timeout_check;
ALTER TABLE waits ADD CONSTRAINT waits_on_timeout_check CHECK (on_timeout IN ('resume', 'fail', 'cancel', 'expire', 'escalate'));

-- The suspension of an execution, as JSON: the present one, or the last.
ALTER TABLE executions ADD COLUMN suspension TEXT;

-- Where signals reach an execution. The token of a waitpoint is made from its id with the secret kid, and kept nowhere.
CREATE TABLE waitpoints (
    id            UUID NOT NULL PRIMARY KEY,
    execution_id  UUID NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    attempt_index INTEGER NOT NULL,
    suspension_id UUID,
    waitpoint_key TEXT NOT NULL,
    kid           TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('pending', 'active', 'closed')),
    approval      TEXT,
    created_at    BIGINT NOT NULL,
    activated_at  BIGINT,
    expires_at    BIGINT,
    closed_at     BIGINT,
    close_reason  TEXT,
    signal_count  INTEGER NOT NULL,
    CHECK ((closed_at IS NOT NULL) = (state = 'closed'))
);
CREATE INDEX waitpoints_execution_idx ON waitpoints (execution_id, id);
CREATE INDEX waitpoints_expires_idx ON waitpoints (expires_at) WHERE state = 'pending';

-- What came from outside: external events, matched by topic and correlation id, and signals, matched by their waitpoint. open says
-- that it is kept for a wait to come. id is our own, in the order of arrival.
CREATE TABLE signals (
    id              UUID NOT NULL PRIMARY KEY,
    namespace       TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    topic           TEXT,
    correlation_id  TEXT,
    flow_id         UUID,
    execution_id    UUID REFERENCES executions (id) ON DELETE CASCADE,
    waitpoint_id    UUID,
    waitpoint_key   TEXT,
    suspension_id   UUID,
    signal_name     TEXT,
    signal_category TEXT,
    source_type     TEXT,
    source_identity TEXT,
    idempotency_key TEXT,
    recognised_until BIGINT,
    effect          TEXT,
    counts          INTEGER CHECK (counts IN (0, 1)),
    payload         TEXT,
    matched         TEXT NOT NULL,
    open            INTEGER NOT NULL CHECK (open IN (0, 1)),
    received_at     BIGINT NOT NULL,
    expires_at      BIGINT,
    CHECK ((topic IS NULL) <> (waitpoint_id IS NULL))
);
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
    execution_id UUID NOT NULL REFERENCES executions (id) ON DELETE CASCADE,
    key          TEXT NOT NULL,
    answer       TEXT NOT NULL,
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (execution_id, key)
);
CREATE INDEX suspend_keys_expires_idx ON suspend_keys (expires_at);
