-- Sessions and their messages. JSON is kept as text, exactly as it was written: jsonb would not take every string.
CREATE TABLE sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection text NOT NULL,           -- chats | agents
    session_id text NOT NULL,
    metadata text NOT NULL,             -- without updated_at, which is a column
    extra text NOT NULL,                -- what else stood in a file that this was copied from
    updated_at timestamptz NOT NULL,
    message_count integer NOT NULL,
    opening text NOT NULL,              -- the first user messages, as far as lists show them
    searched text NOT NULL,             -- the title as searches compare it
    change bigint NOT NULL,             -- grows with every change of the history
    fence bigint NOT NULL DEFAULT 0,    -- grows with every hold; only the latest may write
    run_id text,                        -- of the turn that holds it
    UNIQUE (collection, session_id)
);
CREATE INDEX sessions_newest ON sessions (collection, updated_at DESC, session_id);

CREATE TABLE messages (
    session bigint NOT NULL REFERENCES sessions ON DELETE CASCADE,
    position integer NOT NULL,
    change bigint NOT NULL,             -- the session's, when the message was written
    body text NOT NULL,
    searched text NOT NULL,             -- the content as searches compare it
    PRIMARY KEY (session, position)
);
CREATE INDEX messages_changed ON messages (session, change);

-- How far unfinished answers have come. For a crash of a server; one of the database costs them.
CREATE UNLOGGED TABLE partials (
    session bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    body text NOT NULL
);

-- Searches are for parts of words, which PostgreSQL's trigrams find. Without that extension every text is read.
DO $$
DECLARE
    place text;
BEGIN
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
    EXCEPTION WHEN OTHERS THEN
        RAISE NOTICE 'pg_trgm is not to be had: searching will be slow';
    END;
    SELECT nspname INTO place FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_trgm';
    IF place IS NOT NULL THEN
        EXECUTE format('CREATE INDEX messages_searched ON messages USING gin (searched %I.gin_trgm_ops)', place);
    END IF;
END
$$;
