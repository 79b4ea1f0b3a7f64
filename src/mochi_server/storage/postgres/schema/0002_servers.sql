-- Server processes and their runs. A crash of the database removes them, because it ends the runs.
CREATE UNLOGGED TABLE processes (
    name text PRIMARY KEY               -- the live process has an advisory lock for it
);

CREATE UNLOGGED TABLE runs (
    run_id text PRIMARY KEY,
    session_id text NOT NULL,
    process text NOT NULL,
    began timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended timestamptz
);
CREATE INDEX runs_of_session ON runs (session_id, began);

CREATE UNLOGGED TABLE idempotency_keys (
    session_id text NOT NULL,
    key text NOT NULL,
    process text NOT NULL,              -- process that used the key first
    claimed timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, key)
);
