-- +goose Up

-- Frames outlive their execution for a while: as many as one may have cannot go in the transaction that deletes it.
CREATE TABLE new_frames (
    execution_id    BLOB NOT NULL,
    attempt_index   INTEGER NOT NULL,
    id              INTEGER NOT NULL,
    kind            TEXT NOT NULL CHECK (kind = 'stdout' OR kind = 'stderr' OR kind = 'event' OR kind = 'blob'),
    frame_type      TEXT NOT NULL,
    mode            TEXT NOT NULL CHECK (mode = 'durable' OR mode = 'summary' OR mode = 'best_effort'),
    encoding        TEXT NOT NULL CHECK (encoding = 'utf8' OR encoding = 'base64'),
    correlation_id  TEXT,
    frame_key       TEXT,
    summary_version INTEGER,
    expires_at      INTEGER,
    payload         BLOB NOT NULL,
    PRIMARY KEY (execution_id, attempt_index, id)
) STRICT;
INSERT INTO new_frames SELECT * FROM frames;
DROP TABLE frames;
ALTER TABLE new_frames RENAME TO frames;
CREATE UNIQUE INDEX frames_key_idx ON frames (execution_id, attempt_index, frame_key) WHERE frame_key IS NOT NULL;
CREATE INDEX frames_live_idx ON frames (execution_id, attempt_index, id, expires_at) WHERE expires_at IS NOT NULL;

-- The streams whose attempt is deleted, while they have frames.
CREATE TABLE dropped_streams (
    execution_id  BLOB NOT NULL,
    attempt_index INTEGER NOT NULL,
    dropped_at    INTEGER NOT NULL,
    PRIMARY KEY (execution_id, attempt_index)
) STRICT;

-- The last durable frame of each stream that is not kept any more; of what went before this migration it is not known.
ALTER TABLE attempts ADD COLUMN trimmed_through INTEGER NOT NULL DEFAULT 0;
