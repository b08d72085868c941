-- +goose Up

-- What waitpoint tokens are made with. secret is sealed with a key that this database does not hold: neither a dump nor a backup of it
-- gives secrets away. The tokens themselves are not stored.
CREATE TABLE waitpoint_secrets (
    kid        TEXT NOT NULL PRIMARY KEY,
    secret     BLOB NOT NULL,
    current    INTEGER NOT NULL CHECK (current = 0 OR current = 1),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    CHECK ((current = 1) = (expires_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX waitpoint_secrets_current_idx ON waitpoint_secrets (current) WHERE current = 1;

-- Whoever changes the secrets locks this row first: locks of the secrets themselves would not hold those that come in between.
CREATE TABLE waitpoint_ring (
    one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1)
) STRICT;
INSERT INTO waitpoint_ring (one) VALUES (1);
