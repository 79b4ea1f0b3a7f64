-- Webhooks that are not delivered yet. A server that sends one first sets `due` to a later time.
CREATE TABLE webhooks (
    webhook_id text PRIMARY KEY,
    body text NOT NULL,
    due timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX webhooks_by_due ON webhooks (due);
