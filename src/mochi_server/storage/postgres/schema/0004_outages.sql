-- Turns continue while the database restarts, so runs and idempotency keys must survive a crash of it.
ALTER TABLE runs SET LOGGED;
ALTER TABLE idempotency_keys SET LOGGED;

-- Position of the partial answer in the history; null means the end.
ALTER TABLE partials ADD COLUMN IF NOT EXISTS position integer;

-- Time of the last heartbeat. A frozen server still has its connections and locks, but sends no heartbeats.
ALTER TABLE processes ADD COLUMN seen timestamptz NOT NULL DEFAULT clock_timestamp();
