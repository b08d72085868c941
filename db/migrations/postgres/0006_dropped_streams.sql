-- +goose Up

-- Frames outlive their execution for a while: as many as one may have cannot go in the transaction that deletes it.
ALTER TABLE frames DROP CONSTRAINT frames_execution_id_attempt_index_fkey;

-- The streams whose attempt is deleted, while they have frames.
CREATE TABLE dropped_streams (
    execution_id  UUID NOT NULL,
    attempt_index INTEGER NOT NULL,
    dropped_at    BIGINT NOT NULL,
    PRIMARY KEY (execution_id, attempt_index)
);

-- The last durable frame of each stream that is not kept any more; of what went before this migration it is not known.
ALTER TABLE attempts ADD COLUMN trimmed_through BIGINT NOT NULL DEFAULT 0;
