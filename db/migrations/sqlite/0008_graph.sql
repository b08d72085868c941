-- +goose Up

-- What members of a flow depend on. state is what the end of the upstream has made of the edge; it is counted in the group of the
-- downstream once, when it leaves pending.
CREATE TABLE edges (
    downstream_id BLOB NOT NULL,
    upstream_id   BLOB NOT NULL,
    id            BLOB NOT NULL,
    flow_id       BLOB NOT NULL,
    pass_result   INTEGER NOT NULL CHECK (pass_result IN (0, 1)),
    state         TEXT NOT NULL CHECK (state = 'pending' OR state = 'satisfied' OR state = 'impossible'),
    created_at    INTEGER NOT NULL,
    resolved_at   INTEGER,
    PRIMARY KEY (downstream_id, upstream_id),
    CHECK ((resolved_at IS NULL) = (state = 'pending'))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX edges_id_idx ON edges (flow_id, id);
CREATE INDEX edges_upstream_idx ON edges (upstream_id);

-- What one member depends on, taken together.
CREATE TABLE edge_groups (
    execution_id BLOB NOT NULL PRIMARY KEY,
    flow_id      BLOB NOT NULL,
    kind         TEXT NOT NULL CHECK (kind = 'all_of' OR kind = 'any_of' OR kind = 'quorum'),
    k            INTEGER NOT NULL,
    on_satisfied TEXT NOT NULL CHECK (on_satisfied IN ('let_run', 'cancel_remaining')),
    state        TEXT NOT NULL CHECK (state = 'pending' OR state = 'satisfied' OR state = 'impossible'),
    edges        INTEGER NOT NULL,
    satisfied    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    skipped      INTEGER NOT NULL,
    fired_at     INTEGER,
    build_id     BLOB,
    CHECK ((fired_at IS NULL) = (state = 'pending')),
    CHECK (satisfied >= 0 AND failed >= 0 AND skipped >= 0 AND satisfied + failed + skipped <= edges)
) STRICT, WITHOUT ROWID;

-- How many members of a flow are in each public state. unforgiven says, once all have ended, that some ended badly and the flow cannot
-- end well in spite of them.
CREATE TABLE flow_rollups (
    flow_id          BLOB NOT NULL PRIMARY KEY REFERENCES flows (id) ON DELETE CASCADE,
    waiting          INTEGER NOT NULL,
    delayed          INTEGER NOT NULL,
    rate_limited     INTEGER NOT NULL,
    waiting_children INTEGER NOT NULL,
    active           INTEGER NOT NULL,
    suspended        INTEGER NOT NULL,
    completed        INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    cancelled        INTEGER NOT NULL,
    expired          INTEGER NOT NULL,
    skipped          INTEGER NOT NULL,
    unforgiven       INTEGER NOT NULL CHECK (unforgiven IN (0, 1))
) STRICT, WITHOUT ROWID;
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
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    flow_id      BLOB NOT NULL,
    kind         TEXT NOT NULL CHECK (kind = 'resolve' OR kind = 'siblings' OR kind = 'start' OR kind = 'cancel' OR kind = 'replay'),
    execution_id BLOB NOT NULL,
    namespace    TEXT NOT NULL,
    actor        TEXT NOT NULL,
    detail       TEXT NOT NULL,
    UNIQUE (flow_id, kind, execution_id)
) STRICT;

-- Graphs that are being written, in several transactions: nobody sees executions and groups with the build_id of one.
CREATE TABLE builds (
    id         BLOB NOT NULL PRIMARY KEY,
    flow_id    BLOB NOT NULL,
    touched_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX builds_touched_idx ON builds (touched_at);
ALTER TABLE executions ADD COLUMN build_id BLOB;
