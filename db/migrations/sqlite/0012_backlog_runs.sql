-- +goose Up

-- What is left to do of a flow that has ended may be to end the runs in it, too.
CREATE TABLE backlog (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    flow_id      BLOB NOT NULL,
    kind         TEXT NOT NULL CHECK (kind = 'resolve' OR kind = 'siblings' OR kind = 'start' OR kind = 'cancel' OR kind = 'replay' OR kind = 'runs'),
    execution_id BLOB NOT NULL,
    namespace    TEXT NOT NULL,
    actor        TEXT NOT NULL,
    detail       TEXT NOT NULL,
    UNIQUE (flow_id, kind, execution_id)
) STRICT;
INSERT INTO backlog (id, flow_id, kind, execution_id, namespace, actor, detail)
    SELECT id, flow_id, kind, execution_id, namespace, actor, detail FROM graph_backlog;
DROP TABLE graph_backlog;
ALTER TABLE backlog RENAME TO graph_backlog;
