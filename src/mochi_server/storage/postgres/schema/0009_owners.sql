-- Owners of sessions: NULL for sessions without an owner. The metadata of a session contains its owner, too.
ALTER TABLE sessions ADD COLUMN owner text;
CREATE INDEX sessions_owned ON sessions (collection, owner, updated_at DESC, session_id) WHERE owner IS NOT NULL;
