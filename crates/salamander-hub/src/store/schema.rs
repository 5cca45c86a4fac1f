//! The tables of a store, as a row of migrations that only goes forward.

/// Each migration, the first one first; what was released is never changed.
pub(super) const MIGRATIONS: [&str; 2] = [FIRST, super::upkeep_tables::SECOND];

const FIRST: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE experiments (
    id INTEGER PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    description TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    reason TEXT,
    wanted TEXT NOT NULL DEFAULT 'run',
    fact TEXT,
    fact_reason TEXT,
    kind TEXT NOT NULL DEFAULT 'single',
    model TEXT,
    config TEXT,
    base TEXT,
    sets TEXT NOT NULL DEFAULT '[]',
    program TEXT,
    program_hash TEXT,
    priority INTEGER NOT NULL DEFAULT 42,
    slots INTEGER NOT NULL DEFAULT 1,
    max_slots INTEGER NOT NULL DEFAULT 1,
    archived INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    metric TEXT,
    smaller_is_better INTEGER NOT NULL DEFAULT 1,
    best REAL,
    best_trial INTEGER,
    progress REAL,
    trials INTEGER NOT NULL DEFAULT 0,
    restarts INTEGER NOT NULL DEFAULT 0,
    change INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX experiments_state ON experiments (state);

CREATE TABLE labels (
    experiment INTEGER NOT NULL,
    label TEXT NOT NULL,
    PRIMARY KEY (experiment, label)
) WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    experiment INTEGER NOT NULL,
    trial INTEGER NOT NULL,
    folder TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    model TEXT,
    hparams TEXT NOT NULL DEFAULT '{}',
    steps INTEGER NOT NULL DEFAULT 0,
    total_steps INTEGER,
    epoch INTEGER NOT NULL DEFAULT 0,
    epochs INTEGER,
    steps_per_epoch INTEGER,
    parameters INTEGER,
    workers INTEGER,
    metric TEXT,
    smaller_is_better INTEGER NOT NULL DEFAULT 1,
    best REAL,
    best_steps INTEGER,
    length INTEGER,
    measured REAL,
    started INTEGER,
    ended INTEGER,
    pid INTEGER,
    summary TEXT,
    change INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_experiment ON runs (experiment, trial);
CREATE INDEX runs_started ON runs (started);

CREATE TABLE metrics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE run_metrics (
    run INTEGER NOT NULL,
    metric INTEGER NOT NULL,
    points INTEGER NOT NULL,
    last REAL,
    last_step INTEGER NOT NULL,
    min REAL,
    max REAL,
    PRIMARY KEY (run, metric)
) WITHOUT ROWID;
CREATE INDEX run_metrics_metric ON run_metrics (metric, run, last, min, max);

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    metric INTEGER NOT NULL,
    number INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    points INTEGER NOT NULL,
    min REAL,
    min_step INTEGER,
    max REAL,
    max_step INTEGER,
    nan_step INTEGER,
    steps BLOB NOT NULL,
    vals BLOB NOT NULL
);
CREATE UNIQUE INDEX chunks_place ON chunks (run, metric, number);

CREATE TABLE validations (
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    best INTEGER NOT NULL,
    seconds REAL,
    training TEXT NOT NULL,
    validation TEXT,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    steps INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    watched REAL,
    recovery INTEGER NOT NULL,
    weights_hash TEXT,
    bytes INTEGER NOT NULL,
    validation TEXT NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;

CREATE TABLE files (
    run INTEGER NOT NULL,
    path TEXT NOT NULL,
    inode INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (run, path)
) WITHOUT ROWID;

CREATE TABLE log_blocks (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    process TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    first_time INTEGER,
    last_time INTEGER,
    text TEXT NOT NULL
);
CREATE INDEX log_blocks_place ON log_blocks (run, process, first_line);
CREATE VIRTUAL TABLE log_words USING fts5 (
    text, content='', contentless_delete=1, detail=none
);

CREATE TABLE models (
    name TEXT PRIMARY KEY,
    description TEXT NOT NULL,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE model_versions (
    model TEXT NOT NULL,
    version INTEGER NOT NULL,
    run INTEGER NOT NULL,
    checkpoint TEXT NOT NULL,
    notes TEXT NOT NULL,
    owner TEXT NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (model, version)
) WITHOUT ROWID;
CREATE TABLE model_aliases (
    model TEXT NOT NULL,
    alias TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (model, alias)
) WITHOUT ROWID;

CREATE TABLE users (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    user TEXT NOT NULL,
    salt BLOB NOT NULL,
    hash BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
) WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    user TEXT NOT NULL,
    operation TEXT NOT NULL
);
";
