-- Times from which the stored turns of sessions may continue without a client.
DROP INDEX sessions_parked;
CREATE INDEX sessions_due ON sessions
    (collection, ((substring(metadata FROM '"(?:turn|pending_approval)":\{"due":([0-9.]+)')::float8)))
    WHERE substring(metadata FROM '"(?:turn|pending_approval)":\{"due":([0-9.]+)') IS NOT NULL;

-- Webhooks of a session are delivered in the order of `number`. One that reports a request is dropped before a later
-- one. `claimed` is the time until which a server sends a webhook.
DELETE FROM webhooks WHERE body LIKE '%"run.started"%';
ALTER TABLE webhooks ADD COLUMN session_id text NOT NULL DEFAULT '';
ALTER TABLE webhooks ADD COLUMN is_request boolean NOT NULL DEFAULT false;
ALTER TABLE webhooks ADD COLUMN number bigserial;
ALTER TABLE webhooks ADD COLUMN claimed timestamptz;
UPDATE webhooks SET session_id = coalesce(substring(body FROM '"session_id":"([^"]*)"'), ''),
    is_request = body LIKE '%"run.waiting_for_approval"%';
CREATE INDEX webhooks_by_session ON webhooks (session_id, number);
