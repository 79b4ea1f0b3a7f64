-- Which server runs what, and what servers ask of each other. A crash of the database costs it, as it ends the runs.
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

-- Requests of clients that another server has to answer, and its answers, part by part.
CREATE UNLOGGED TABLE requests (
    id text PRIMARY KEY,
    asker text NOT NULL,
    process text NOT NULL,
    head text NOT NULL,
    body bytea NOT NULL,
    taken boolean NOT NULL DEFAULT false
);
CREATE INDEX requests_waiting ON requests (process) WHERE NOT taken;

CREATE UNLOGGED TABLE parts (
    request text NOT NULL,
    number integer NOT NULL,
    head text,
    data bytea NOT NULL,
    is_last boolean NOT NULL,
    PRIMARY KEY (request, number)
);
