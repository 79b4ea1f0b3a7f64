-- Pages of a list that begins with pins are read in the order of this index.
DROP INDEX sessions_pinned;
CREATE INDEX sessions_pinned ON sessions (collection, pinned DESC, updated_at DESC, session_id);
