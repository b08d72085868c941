-- +goose Up

-- What is left to do of a flow that has ended may be to end the runs in it, too.
ALTER TABLE graph_backlog DROP CONSTRAINT graph_backlog_kind_check;
ALTER TABLE graph_backlog ADD CONSTRAINT graph_backlog_kind_check CHECK (kind IN ('resolve', 'siblings', 'start', 'cancel', 'replay', 'runs'));
