-- Webhooks that are not delivered yet. The server that sends one sets `due` to the time of the next attempt.
CREATE TABLE webhooks (
    webhook_id text PRIMARY KEY,
    body text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX webhooks_by_due ON webhooks (due);
