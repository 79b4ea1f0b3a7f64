-- Turns go on while the database restarts. Where they run, and which keys began them, outlives a crash of it.
ALTER TABLE runs SET LOGGED;
ALTER TABLE idempotency_keys SET LOGGED;

-- Where the messages of an unfinished answer begin in the history; the end of it if null.
ALTER TABLE partials ADD COLUMN IF NOT EXISTS position integer;

-- Heartbeat. A frozen server keeps its connections and locks, but does not update this.
ALTER TABLE processes ADD COLUMN seen timestamptz NOT NULL DEFAULT clock_timestamp();
