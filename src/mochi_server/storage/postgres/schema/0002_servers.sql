-- Which server runs what. A crash of the database costs it, as it ends the runs.
CREATE UNLOGGED TABLE processes (
    name text PRIMARY KEY               -- holds a lock of its name as long as it lives
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
    process text NOT NULL,              -- where it was used first
    claimed timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, key)
);
