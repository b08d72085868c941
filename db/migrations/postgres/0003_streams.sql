-- +goose Up

-- How the stream of an attempt stands. It is in the attempt's own row, which the end of an attempt changes anyway.
-- A frame's id is its millisecond times 2^20, and its number within that.
ALTER TABLE attempts ADD COLUMN frame_count   BIGINT NOT NULL DEFAULT 0; -- frames that it has ever had
ALTER TABLE attempts ADD COLUMN last_frame_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN kept_frames   BIGINT NOT NULL DEFAULT 0; -- durable and summary frames that it has now
ALTER TABLE attempts ADD COLUMN live_frames   BIGINT NOT NULL DEFAULT 0; -- best-effort frames that it has now
ALTER TABLE attempts ADD COLUMN live_hertz    DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN live_at       BIGINT;
ALTER TABLE attempts ADD COLUMN live_maxlen   BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN frame_pace_us BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN trim_at       BIGINT;
ALTER TABLE attempts ADD COLUMN closed_at     BIGINT;
ALTER TABLE attempts ADD COLUMN closed_reason TEXT CHECK (closed_reason IN ('attempt_success', 'attempt_failure', 'attempt_cancelled', 'lease_expired', 'lease_revoked', 'reclaimed', 'expired', 'suspension_timeout', 'dependency_impossible'));
CREATE INDEX attempts_trim_idx ON attempts (trim_at) WHERE trim_at IS NOT NULL;

-- What has ended, or was lost, takes no frames.
UPDATE attempts SET closed_at = ended_at, closed_reason = CASE state WHEN 'ended_success' THEN 'attempt_success' WHEN 'ended_cancelled' THEN 'attempt_cancelled'
    WHEN 'interrupted_reclaimed' THEN 'reclaimed' ELSE 'attempt_failure' END WHERE ended_at IS NOT NULL;
UPDATE attempts SET closed_at = started_at, closed_reason = 'lease_expired' WHERE ended_at IS NULL AND EXISTS (SELECT 1 FROM executions e
    WHERE e.id = attempts.execution_id AND e.ownership_state = 'lease_expired_reclaimable');
UPDATE attempts SET closed_at = started_at, closed_reason = 'lease_revoked' WHERE ended_at IS NULL AND EXISTS (SELECT 1 FROM executions e
    WHERE e.id = attempts.execution_id AND e.ownership_state = 'lease_revoked');

CREATE TABLE frames (
    execution_id    UUID NOT NULL,
    attempt_index   INTEGER NOT NULL,
    id              BIGINT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('stdout', 'stderr', 'event', 'blob')),
    frame_type      TEXT NOT NULL,
    mode            TEXT NOT NULL CHECK (mode IN ('durable', 'summary', 'best_effort')),
    encoding        TEXT NOT NULL CHECK (encoding IN ('utf8', 'base64')),
    correlation_id  TEXT,
    frame_key       TEXT,
    summary_version BIGINT,
    expires_at      BIGINT,
    payload         BYTEA NOT NULL,
    PRIMARY KEY (execution_id, attempt_index, id),
    FOREIGN KEY (execution_id, attempt_index) REFERENCES attempts (execution_id, attempt_index) ON DELETE CASCADE
);
CREATE UNIQUE INDEX frames_key_idx ON frames (execution_id, attempt_index, frame_key) WHERE frame_key IS NOT NULL;
CREATE INDEX frames_live_idx ON frames (execution_id, attempt_index, id, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE summaries (
    execution_id     UUID NOT NULL,
    attempt_index    INTEGER NOT NULL,
    version          BIGINT NOT NULL,
    patch_kind       TEXT NOT NULL,
    first_applied_at BIGINT NOT NULL,
    last_updated_at  BIGINT NOT NULL,
    document         TEXT NOT NULL,
    PRIMARY KEY (execution_id, attempt_index),
    FOREIGN KEY (execution_id, attempt_index) REFERENCES attempts (execution_id, attempt_index) ON DELETE CASCADE
);
