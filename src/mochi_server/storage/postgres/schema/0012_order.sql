-- What lists filter and sort by. The metadata of a session contains these values, too.
ALTER TABLE sessions ADD COLUMN tags text[] NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN pinned boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN archived boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN temporary boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN expires_at timestamptz;

CREATE INDEX sessions_tagged ON sessions USING gin (tags);
CREATE INDEX sessions_pinned ON sessions (collection, updated_at DESC, session_id) WHERE pinned;
CREATE INDEX sessions_temporary ON sessions (collection, updated_at) WHERE temporary;
CREATE INDEX sessions_expiring ON sessions (collection, expires_at) WHERE expires_at IS NOT NULL;
