-- +goose Up

-- What members of a flow depend on. state is what the end of the upstream has made of the edge; it is counted in the group of the
-- downstream once, when it leaves pending.
CREATE TABLE edges (
    downstream_id UUID NOT NULL,
    upstream_id   UUID NOT NULL,
    id            UUID NOT NULL,
    flow_id       UUID NOT NULL,
    pass_result   INTEGER NOT NULL CHECK (pass_result IN (0, 1)),
    state         TEXT NOT NULL CHECK (state IN ('pending', 'satisfied', 'impossible')),
    created_at    BIGINT NOT NULL,
    resolved_at   BIGINT,
    PRIMARY KEY (downstream_id, upstream_id),
    CHECK ((resolved_at IS NULL) = (state = 'pending'))
);
CREATE UNIQUE INDEX edges_id_idx ON edges (flow_id, id);
CREATE INDEX edges_upstream_idx ON edges (upstream_id);

-- What one member depends on, taken together.
CREATE TABLE edge_groups (
    execution_id UUID NOT NULL PRIMARY KEY,
    flow_id      UUID NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('all_of', 'any_of', 'quorum')),
    k            BIGINT NOT NULL,
    on_satisfied TEXT NOT NULL CHECK (on_satisfied IN ('let_run', 'cancel_remaining')),
    state        TEXT NOT NULL CHECK (state IN ('pending', 'satisfied', 'impossible')),
    edges        BIGINT NOT NULL,
    satisfied    BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    skipped      BIGINT NOT NULL,
    fired_at     BIGINT,
    build_id     UUID,
    CHECK ((fired_at IS NULL) = (state = 'pending')),
    CHECK (satisfied >= 0 AND failed >= 0 AND skipped >= 0 AND satisfied + failed + skipped <= edges)
);

-- How many members of a flow are in each public state. unforgiven says, once all have ended, that some ended badly and the flow cannot
-- end well in spite of them.
CREATE TABLE flow_rollups (
    flow_id          UUID NOT NULL PRIMARY KEY REFERENCES flows (id) ON DELETE CASCADE,
    waiting          BIGINT NOT NULL,
    delayed          BIGINT NOT NULL,
    rate_limited     BIGINT NOT NULL,
    waiting_children BIGINT NOT NULL,
    active           BIGINT NOT NULL,
    suspended        BIGINT NOT NULL,
    completed        BIGINT NOT NULL,
    failed           BIGINT NOT NULL,
    cancelled        BIGINT NOT NULL,
    expired          BIGINT NOT NULL,
    skipped          BIGINT NOT NULL,
    unforgiven       INTEGER NOT NULL CHECK (unforgiven IN (0, 1))
);
INSERT INTO flow_rollups SELECT e.flow_id,
    count(*) FILTER (WHERE e.public_state = 'waiting'), count(*) FILTER (WHERE e.public_state = 'delayed'),
    count(*) FILTER (WHERE e.public_state = 'rate_limited'), count(*) FILTER (WHERE e.public_state = 'waiting_children'),
    count(*) FILTER (WHERE e.public_state = 'active'), count(*) FILTER (WHERE e.public_state = 'suspended'),
    count(*) FILTER (WHERE e.public_state = 'completed'), count(*) FILTER (WHERE e.public_state = 'failed'),
    count(*) FILTER (WHERE e.public_state = 'cancelled'), count(*) FILTER (WHERE e.public_state = 'expired'),
    count(*) FILTER (WHERE e.public_state = 'skipped'),
    CASE WHEN count(*) FILTER (WHERE e.public_state = 'failed' OR e.public_state = 'cancelled' OR e.public_state = 'expired') > 0 THEN 1 ELSE 0 END
    FROM executions e JOIN flows f ON f.id = e.flow_id GROUP BY e.flow_id;

-- What the transaction that caused it has left to do, because it is too much for one: to resolve the edges that lead out of an
-- execution, to cancel those that lead to one, or to start, cancel or replay the members of a flow (then execution_id is the flow's).
CREATE TABLE graph_backlog (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow_id      UUID NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('resolve', 'siblings', 'start', 'cancel', 'replay')),
    execution_id UUID NOT NULL,
    namespace    TEXT NOT NULL,
    actor        TEXT NOT NULL,
    detail       TEXT NOT NULL,
    UNIQUE (flow_id, kind, execution_id)
);

-- Graphs that are being written, in several transactions: nobody sees executions and groups with the build_id of one.
CREATE TABLE builds (
    id         UUID NOT NULL PRIMARY KEY,
    flow_id    UUID NOT NULL,
    touched_at BIGINT NOT NULL
);
CREATE INDEX builds_touched_idx ON builds (touched_at);
ALTER TABLE executions ADD COLUMN build_id UUID;
