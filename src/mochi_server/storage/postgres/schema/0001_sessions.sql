-- Sessions and their messages. JSON is stored as text, because jsonb rejects some strings.
CREATE TABLE sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection text NOT NULL,           -- chats | agents
    session_id text NOT NULL,
    metadata text NOT NULL,             -- without updated_at, which is a column
    extra text NOT NULL,                -- unknown keys of an imported session file
    updated_at timestamptz NOT NULL,
    message_count integer NOT NULL,
    opening text NOT NULL,              -- first user messages, for list entries
    searched text NOT NULL,             -- normalized title for searches
    change bigint NOT NULL,             -- incremented by every change of the history
    fence bigint NOT NULL DEFAULT 0,    -- incremented by every lock; only the latest may write
    run_id text,                        -- run of the turn that has the lock
    UNIQUE (collection, session_id)
);
CREATE INDEX sessions_newest ON sessions (collection, updated_at DESC, session_id);

CREATE TABLE messages (
    session bigint NOT NULL REFERENCES sessions ON DELETE CASCADE,
    position integer NOT NULL,
    change bigint NOT NULL,             -- value of sessions.change when it was written
    body text NOT NULL,
    searched text NOT NULL,             -- normalized content for searches
    PRIMARY KEY (session, position)
);
CREATE INDEX messages_changed ON messages (session, change);

-- Partial answers, for recovery after a crash of a server. A crash of the database removes them.
CREATE UNLOGGED TABLE partials (
    session bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    body text NOT NULL
);

-- The pg_trgm extension provides an index for substring searches. Without it, searches scan all texts.
DO $$
DECLARE
    place text;
BEGIN
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
    EXCEPTION WHEN OTHERS THEN
        RAISE NOTICE 'extension pg_trgm is not available: searches will be slow';
    END;
    SELECT nspname INTO place FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_trgm';
    IF place IS NOT NULL THEN
        EXECUTE format('CREATE INDEX messages_searched ON messages USING gin (searched %I.gin_trgm_ops)', place);
    END IF;
END
$$;
