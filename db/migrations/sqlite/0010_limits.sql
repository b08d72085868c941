-- +goose Up

-- Amounts of something that executions spend, and how much of it may be. What is attached to one is attached to its ancestors.
CREATE TABLE budgets (
    id                    BLOB NOT NULL PRIMARY KEY,
    namespace             TEXT NOT NULL,
    scope_type            TEXT NOT NULL,
    scope_id              TEXT NOT NULL,
    parent_id             BLOB REFERENCES budgets (id),
    on_hard_limit         TEXT NOT NULL CHECK (on_hard_limit = 'deny' OR on_hard_limit = 'suspend' OR on_hard_limit = 'cancel'),
    reset_interval_ms     INTEGER,
    schedule              TEXT,
    exhausted             INTEGER NOT NULL CHECK (exhausted IN (0, 1)),
    breach_count          INTEGER NOT NULL,
    soft_breach_count     INTEGER NOT NULL,
    last_breach_at        INTEGER,
    last_breach_dimension TEXT,
    next_reset_at         INTEGER,
    last_reset_at         INTEGER,
    period                INTEGER NOT NULL,
    revision              INTEGER NOT NULL,
    created_at            INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX budgets_list_idx ON budgets (namespace, created_at, id);
CREATE INDEX budgets_scope_idx ON budgets (namespace, scope_type, scope_id, created_at, id);
CREATE INDEX budgets_parent_idx ON budgets (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX budgets_reset_idx ON budgets (next_reset_at) WHERE next_reset_at IS NOT NULL;

-- NULL limits were never given; a dimension that was reported once stays. What was breached lets nobody begin until it is relieved.
CREATE TABLE budget_amounts (
    budget_id BLOB NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    dimension TEXT NOT NULL,
    hard      INTEGER,
    soft      INTEGER,
    usage     INTEGER NOT NULL CHECK (usage >= 0),
    used      INTEGER NOT NULL CHECK (used IN (0, 1)),
    breached  INTEGER NOT NULL DEFAULT 0 CHECK (breached IN (0, 1)),
    reserved  INTEGER NOT NULL CHECK (reserved >= 0),
    PRIMARY KEY (budget_id, dimension)
) STRICT, WITHOUT ROWID;

-- What executions that somebody holds are expected to spend yet.
CREATE TABLE budget_reservations (
    execution_id BLOB NOT NULL,
    budget_id    BLOB NOT NULL,
    dimension    TEXT NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount >= 0),
    reserved_at  INTEGER NOT NULL,
    PRIMARY KEY (execution_id, budget_id, dimension)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_reservations_budget_idx ON budget_reservations (budget_id, execution_id);

-- What executions have spent in a period of a budget, through one budget: itself, or one below it.
CREATE TABLE budget_ledger (
    budget_id    BLOB NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    via_id       BLOB NOT NULL,
    execution_id BLOB NOT NULL,
    dimension    TEXT NOT NULL,
    period       INTEGER NOT NULL,
    spent        INTEGER NOT NULL CHECK (spent >= 0),
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (via_id, execution_id, budget_id, dimension)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_ledger_budget_idx ON budget_ledger (budget_id, period);

-- Reports that count once.
CREATE TABLE budget_keys (
    budget_id  BLOB NOT NULL REFERENCES budgets (id) ON DELETE CASCADE,
    key        TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (budget_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_keys_expiry_idx ON budget_keys (expires_at);

-- Executions that were suspended because a budget was exhausted.
CREATE TABLE budget_paused (
    budget_id     BLOB NOT NULL,
    execution_id  BLOB NOT NULL,
    suspension_id BLOB NOT NULL,
    PRIMARY KEY (budget_id, execution_id)
) STRICT, WITHOUT ROWID;

-- How many executions may begin within a window, and how many may be at work.
CREATE TABLE quotas (
    id             BLOB NOT NULL PRIMARY KEY,
    namespace      TEXT NOT NULL,
    window_ms      INTEGER NOT NULL CHECK (window_ms > 0),
    max_requests   INTEGER NOT NULL CHECK (max_requests >= 0),
    max_concurrent INTEGER NOT NULL CHECK (max_concurrent >= 0),
    jitter_ms      INTEGER NOT NULL CHECK (jitter_ms >= 0),
    key_tag        TEXT,
    created_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX quotas_list_idx ON quotas (namespace, created_at, id);

-- What each value of the key has: slots that are taken, and starts that were ever counted; and when it was last told that it refuses.
CREATE TABLE quota_keys (
    quota_id BLOB NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    active   INTEGER NOT NULL CHECK (active >= 0),
    starts   INTEGER NOT NULL,
    told_at  INTEGER,
    PRIMARY KEY (quota_id, key)
) STRICT, WITHOUT ROWID;

-- Starts within the window: n is the number of the last one of those that a claim has counted at once.
CREATE TABLE quota_starts (
    quota_id BLOB NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    n        INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (quota_id, key, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE quota_admissions (
    execution_id BLOB NOT NULL,
    quota_id     BLOB NOT NULL REFERENCES quotas (id) ON DELETE CASCADE,
    key          TEXT NOT NULL,
    admitted_at  INTEGER NOT NULL,
    PRIMARY KEY (execution_id, quota_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX quota_admissions_list_idx ON quota_admissions (quota_id, admitted_at, execution_id);

-- What executions, flows and lanes are attached to; an execution that has a slot of a quota gives it back when it ends.
ALTER TABLE executions ADD COLUMN limits TEXT;
ALTER TABLE executions ADD COLUMN admitted INTEGER NOT NULL DEFAULT 0 CHECK (admitted IN (0, 1));
ALTER TABLE flows ADD COLUMN limits TEXT;
ALTER TABLE lanes ADD COLUMN quotas TEXT;

-- The terms of those who stand in a bucket, and what holds all of them up. A stale bucket is one whose lane has other quotas since:
-- who stands in it is about to stand elsewhere.
ALTER TABLE claim_buckets ADD COLUMN terms TEXT;
ALTER TABLE claim_buckets ADD COLUMN lane_quotas TEXT;
ALTER TABLE claim_buckets ADD COLUMN held_by TEXT CHECK (held_by = 'budget' OR held_by = 'quota');
ALTER TABLE claim_buckets ADD COLUMN held_id BLOB;
ALTER TABLE claim_buckets ADD COLUMN held_key TEXT;
ALTER TABLE claim_buckets ADD COLUMN held_need INTEGER;
ALTER TABLE claim_buckets ADD COLUMN held_detail TEXT;
ALTER TABLE claim_buckets ADD COLUMN held_since INTEGER;
ALTER TABLE claim_buckets ADD COLUMN reopen_at INTEGER;
ALTER TABLE claim_buckets ADD COLUMN stale INTEGER NOT NULL DEFAULT 0 CHECK (stale IN (0, 1));
CREATE INDEX claim_buckets_held_idx ON claim_buckets (held_id, held_key, held_need) WHERE held_by IS NOT NULL;
CREATE INDEX claim_buckets_reopen_idx ON claim_buckets (reopen_at) WHERE reopen_at IS NOT NULL;
CREATE INDEX claim_buckets_stale_idx ON claim_buckets (id) WHERE stale = 1;
