//! The second migration: what is collected, what starts from what, limits of experiments, and who is told of ends.

/// Tables of the queue's upkeep.
pub(super) const SECOND: &str = "
CREATE TABLE garbage (
    experiment INTEGER NOT NULL,
    run INTEGER NOT NULL,
    checkpoint TEXT NOT NULL,
    PRIMARY KEY (run, checkpoint)
);
CREATE TABLE uncollected (experiment INTEGER PRIMARY KEY);
CREATE TABLE sources (
    experiment INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    checkpoint TEXT NOT NULL
);
CREATE TABLE limits (
    experiment INTEGER PRIMARY KEY,
    max_ms INTEGER,
    max_slot_ms INTEGER,
    used_ms INTEGER NOT NULL,
    used_slot_ms INTEGER NOT NULL,
    reason TEXT,
    log_days INTEGER,
    ended INTEGER
);
CREATE TABLE killed_trials (run INTEGER PRIMARY KEY);
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    states TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    webhook TEXT NOT NULL,
    experiment INTEGER NOT NULL,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due INTEGER NOT NULL,
    error TEXT
);
";
